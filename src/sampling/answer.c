/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c: an answer, token by token. */
#include "sampling/answer.h"

#include <math.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "reprise_test.h"

#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define RESERVED_TOKENS 4096 /* capacity of an answer before its first token; a longer answer grows */
#define RESERVED_BYTES 8     /* of text for each; words are shorter on average in all vocabularies */

/* ---- what it holds ---- */

static int answer_grow(void **items, size_t *cap, size_t n, size_t bytes, rp_error *err) {
    int rc = base_grow(items, cap, n, TOKENIZER_MAX_TOKENS, bytes);
    return rc ? base_fail(err, rc, "out of memory: %zu answer tokens", n) : RP_OK;
}

/* Grows the result to a capacity of n tokens. */
static int reserve_tokens(answer *a, size_t n, rp_error *err) {
    rp_result *r = a->result;
    int rc = answer_grow((void **)&r->tokens, &a->cap_tokens, n, sizeof(*r->tokens), err);
    if (rc || r->n_top == 0) return rc;
    rc = answer_grow((void **)&r->logprobs, &a->cap_logprobs, n, sizeof(*r->logprobs), err);
    return rc ? rc
              : answer_grow((void **)&r->top_logprobs, &a->cap_top, n, (size_t)r->n_top * sizeof(*r->top_logprobs),
                            err);
}

void answer_limit(answer *a, const rp_request *o, const answer_place *place) {
    a->most = (int32_t)BASE_MIN(o->experiment->forced ? o->experiment->n_forced : o->max_tokens, place->room);
}

static int open_guide(answer *a, rp_error *err) {
    int rc = grammar_constraint_open(&a->grammar_constraint, a->options, a->place.tokenizer, a->place.trie, err);
    if (!rc) rc = sampler_restrict(&a->sampler, err);
    if (rc || !grammar_constraint_must_end(&a->grammar_constraint)) return rc;
    answer_stop(a, "stop", true); /* a language of nothing */
    return RP_OK;
}

int answer_open(answer *a, const rp_request *o, const answer_place *place, rp_result *result, rp_error *err) {
    a->options = o;
    a->place = *place;
    a->result = result;
    a->memory = base_budget_ref(base_budget_current());
    a->over = a->most <= 0;
    a->stream = (text_stream){
        .text = BASE_BUFFER(MAX_ANSWER_BYTES),
        .on_text = o->on_text,
        .on_stop = o->on_stop,
        .user = o->user,
        .events = o->stream,
        .tag = o->stream_tag,
    };
    result->finish_reason = "length";
    int64_t tokens = (int64_t)place->n_prompt + a->most;
    int rc;
    if ((rc = stop_matcher_open(&a->stream.stops, o->stops, o->experiment->forced ? 0 : o->n_stops, err)) ||
        (rc = sampler_open(&a->sampler, &o->sampling, place->n_vocab, tokens, err)) ||
        (rc = logprobs_open(&a->logprobs, o->n_logprobs, place->n_vocab, err)) ||
        (rc = o->grammar && !o->experiment->forced ? open_guide(a, err) : RP_OK))
        return rc;
    result->n_top = a->logprobs.n_top;
    const size_t n = (size_t)BASE_MAX(BASE_MIN(a->most, RESERVED_TOKENS), 1);
    if ((rc = reserve_tokens(a, n, err))) return rc;
    rc = base_buffer_reserve(&a->stream.text, n * RESERVED_BYTES);
    return rc ? base_fail_memory(err, n * RESERVED_BYTES, "an answer's text") : RP_OK;
}

void answer_close(answer *a) {
    sampler_close(&a->sampler);
    grammar_constraint_close(&a->grammar_constraint);
    logprobs_close(&a->logprobs);
    text_stream_close(&a->stream);
    base_free(a->resumed_ends);
    a->resumed_ends = NULL;
    base_budget_unref(a->memory);
    a->memory = NULL;
}

/* ---- one token ---- */

static int keep_token(answer *a, const float *logits, int32_t token, rp_error *err) {
    rp_result *r = a->result;
    size_t n = (size_t)r->n_tokens + 1;
    BASE_ASSERT(r->n_tokens < a->most);
    int rc = reserve_tokens(a, n, err);
    if (rc) return rc;
    if (r->n_top > 0) {
        rp_token_logprob *top = r->top_logprobs + (n - 1) * (size_t)r->n_top;
        if (logits) r->logprobs[n - 1] = logprobs_measure(&a->logprobs, logits, token, top);
        else r->logprobs[n - 1] = NAN; /* of a resumed token */
        for (int32_t k = 0; k < r->n_top && !logits; k++) top[k] = (rp_token_logprob){-1, NAN};
    }
    r->tokens[r->n_tokens++] = token;
    sampler_accept(&a->sampler, token);
    return RP_OK;
}

static bool answer_report_token(const answer *a, size_t i) {
    const rp_result *r = a->result;
    if (!a->options->on_token) return true;
    rp_token token = {.struct_size = (uint32_t)sizeof(token), .id = r->tokens[i]};
    if (r->n_top > 0 && i >= (size_t)a->n_resumed) {
        token.logprob = r->logprobs[i];
        token.top = r->top_logprobs + i * (size_t)r->n_top;
        token.n_top = r->n_top;
    }
    return a->options->on_token(a->options->user, &token);
}

/* SentencePiece writes the space before a text's first word into the word; at the beginning of a text it is no
   space. */
static bool drops_space(const answer *a) {
    return a->result->n_tokens == 0 && a->place.n_prompt == 1 && a->place.begins_text &&
           tokenizer_has_space_prefix(a->place.tokenizer);
}

/* drops: drops_space, before the token was kept. too_hard: the grammar cannot be followed any more. *end: as of
   text_stream_hold. */
static int answer_add_text(answer *a, int32_t token, bool drops, bool *too_hard, size_t *end, rp_error *err) {
    size_t n = 0;
    const char *bytes = tokenizer_answer_bytes(a->place.tokenizer, token, a->options->special_text, &n);
    if (!bytes) return RP_OK;
    if (drops && n > 0 && bytes[0] == ' ') bytes++, n--;
    int rc = text_stream_hold(&a->stream, bytes, n, end, err);
    return rc || !a->grammar_constraint.grammar
               ? rc
               : grammar_constraint_accept(&a->grammar_constraint, bytes, n, too_hard, err);
}

/* ---- all of it ---- */

/* Checks a token that on_choose has chosen, and skips the sampler's draw. */
static int answer_check_chosen(answer *a, int32_t token, bool *too_hard, rp_error *err) {
    grammar_constraint *g = &a->grammar_constraint;
    bool fits = true;
    int rc = RP_OK;
    if (token < 0 || token >= a->place.n_vocab)
        return base_fail(err, RP_ERR_INVALID, "on_choose returned %d: give a token id below %d, or RP_CHOOSE_SAMPLED",
                         token, a->place.n_vocab);
    sampler_skip(&a->sampler);
    if (g->grammar && !a->options->ignore_eos && tokenizer_is_end(a->place.tokenizer, token))
        fits = grammar_constraint_may_end(g);
    else if (g->grammar) rc = grammar_constraint_check(g, &a->sampler, drops_space(a), token, &fits, too_hard, err);
    if (rc || fits || *too_hard) return rc;
    return base_fail(err, RP_ERR_INVALID, "on_choose returned token %d, which the grammar excludes", token);
}

/* *token: -1: there is none. */
static int answer_choose(answer *a, const float *logits, int32_t *token, rp_error *err) {
    const rp_request *o = a->options;
    bool too_hard = false;
    int rc = RP_OK;
    BASE_ASSERT(!o->experiment->forced || a->result->n_tokens < o->experiment->n_forced);
    const int32_t chosen = o->on_choose ? o->on_choose(o->user, logits, a->place.n_vocab) : RP_CHOOSE_SAMPLED;
    if (o->experiment->forced) *token = o->experiment->forced[a->result->n_tokens];
    else if (chosen != RP_CHOOSE_SAMPLED) {
        rc = answer_check_chosen(a, chosen, &too_hard, err);
        *token = rc || too_hard ? -1 : chosen;
    } else if (!a->grammar_constraint.grammar) *token = sampler_draw(&a->sampler, logits);
    else
        rc =
            grammar_constraint_draw(&a->grammar_constraint, &a->sampler, logits, drops_space(a), token, &too_hard, err);
    if (rc || *token >= 0) return rc;
    a->result->finish_reason = !too_hard && grammar_constraint_may_end(&a->grammar_constraint) ? "stop" : "grammar";
    return RP_OK;
}

/* A token was reported, with its text. */
static void answer_settle(answer *a, bool too_hard) {
    const char *reason = a->stream.cancelled ? "cancelled" : a->stream.stop ? "stop"
                                                         : too_hard         ? "grammar"
                                                                            : NULL;
    if (!reason && a->grammar_constraint.grammar && grammar_constraint_must_end(&a->grammar_constraint))
        reason = "stop";
    if (reason) a->result->finish_reason = reason;
    else a->over = a->result->n_tokens == a->most;
}

/* ---- resumed tokens ---- */

static int check_resumed(answer *a, int32_t token, bool drops, rp_error *err) {
    const rp_request *o = a->options;
    const int32_t i = a->result->n_tokens;
    bool fits = true, too_hard = false;
    if (a->over)
        return base_fail(err, RP_ERR_INVALID, "the resumed answer ends before its token %d (%s)", i,
                         a->result->finish_reason);
    if (!o->ignore_eos && tokenizer_is_end(a->place.tokenizer, token))
        return base_fail(err, RP_ERR_INVALID,
                         "token %d of the resumed answer, %d, is an end of text: an answer does not contain it", i,
                         token);
    int rc = RP_OK;
    if (a->grammar_constraint.grammar)
        rc = grammar_constraint_check(&a->grammar_constraint, &a->sampler, drops, token, &fits, &too_hard, err);
    if (rc || (fits && !too_hard)) return rc;
    return base_fail(err, RP_ERR_INVALID, "token %d of the resumed answer, %d, does not match the grammar", i, token);
}

/* Like answer_next, without logits and callbacks. */
static int resume_token(answer *a, int32_t token, size_t *end, rp_error *err) {
    bool drops = drops_space(a), too_hard = false;
    int rc = check_resumed(a, token, drops, err);
    if (rc) return rc;
    a->over = true;
    sampler_skip(&a->sampler);
    if ((rc = keep_token(a, NULL, token, err)) || (rc = answer_add_text(a, token, drops, &too_hard, end, err)))
        return rc;
    answer_settle(a, too_hard);
    return RP_OK;
}

int answer_resume(answer *a, const int32_t *tokens, int32_t n, rp_error *err) {
    if (n > a->options->max_tokens)
        return base_fail(err, RP_ERR_INVALID, "%d resumed tokens, but max_tokens is %d: give the whole answer's", n,
                         a->options->max_tokens);
    if (n > a->place.room)
        return base_fail(
            err, RP_ERR_CONTEXT,
            "the context has %lld positions after the prompt, but there are %d resumed tokens: raise n_ctx",
            (long long)a->place.room, n);
    if (n > a->most)
        return base_fail(
            err, RP_ERR_BUDGET,
            "the budget allows %d tokens after the prompt, but there are %d resumed ones: raise kv_budget_bytes",
            a->most, n);
    a->resumed_ends = base_calloc((size_t)n, sizeof(*a->resumed_ends));
    if (!a->resumed_ends) return base_fail_memory(err, (size_t)n * sizeof(*a->resumed_ends), "resumed tokens");
    a->n_resumed = n;
    int rc = RP_OK;
    size_t end = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        rc = resume_token(a, tokens[i], &end, err);
        a->resumed_ends[i] = end;
    }
    return rc;
}

/* In the order of a fresh answer: a token, then its text. A callback that stops the answer stops it at its token. */
static void answer_report_resumed(answer *a) {
    if (!a->resumed_ends) return;
    for (int32_t i = 0; i < a->n_resumed && !a->stream.cancelled; i++) {
        a->stream.cancelled = !answer_report_token(a, (size_t)i);
        if (!a->stream.cancelled) text_stream_give(&a->stream, a->resumed_ends[i]);
        if (!a->stream.cancelled) continue;
        a->result->n_tokens = i + 1;
        answer_stop(a, "cancelled", false);
    }
    base_free(a->resumed_ends);
    a->resumed_ends = NULL;
}

/* ---- the next token ---- */

static int answer_sample(answer *a, const float *logits, int32_t *token, rp_error *err) {
    const rp_request *o = a->options;
    answer_report_resumed(a);
    *token = -1;
    if (a->over) return RP_OK;
    if (o->on_logits) o->on_logits(o->user, logits, a->place.n_vocab);
    int rc = answer_choose(a, logits, token, err);
    a->over = true;
    if (!a->first_us) a->first_us = base_clock_us();
    if (rc || *token < 0) return rc;
    if (!o->ignore_eos && !o->experiment->forced && tokenizer_is_end(a->place.tokenizer, *token)) {
        a->result->finish_reason = "stop";
        return RP_OK;
    }
    bool drops = drops_space(a), too_hard = false;
    size_t end = a->stream.released;
    if ((rc = keep_token(a, logits, *token, err))) return rc;
    a->stream.cancelled = !answer_report_token(a, (size_t)a->result->n_tokens - 1);
    if (!a->stream.cancelled && (rc = answer_add_text(a, *token, drops, &too_hard, &end, err))) return rc;
    if (!a->stream.cancelled) text_stream_give(&a->stream, end);
    answer_settle(a, too_hard);
    return RP_OK;
}

int answer_next(answer *a, const float *logits, int32_t *token, rp_error *err) {
    base_budget *before = base_budget_enter(a->memory);
    const int rc = answer_sample(a, logits, token, err);
    base_budget_enter(before);
    return rc;
}

int32_t answer_fitting(answer *a, const int32_t *tokens, int32_t n) {
    return a->grammar_constraint.grammar ? grammar_constraint_fitting(&a->grammar_constraint, tokens, n) : n;
}

void answer_stop(answer *a, const char *reason, bool shown) {
    a->over = true;
    a->stream.cancelled = !shown;
    a->result->finish_reason = reason;
}

int answer_finish(answer *a, rp_error *err) {
    answer_report_resumed(a);
    text_stream_end(&a->stream);
    a->result->text = a->stream.text.data ? base_buffer_take(&a->stream.text) : base_strdup("");
    return a->result->text ? RP_OK : base_fail_memory(err, 1, "a result");
}
