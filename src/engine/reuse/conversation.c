/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.c: plans conversations. The oldest turns of one that is too long for the context are left out, if asked
 * to. Sampled answers are kept as tokens: an answer is remembered when its job ends (engine's thread) and replaces the
 * tokenization of its text in the next turn's prompt (submitting thread), if the same tenant sends exactly this text,
 * or one that means the same (rp_request.on_meaning), after exactly the same tokens.
 */
#include "engine/reuse/conversation.h"

#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/reuse/answer_memory.h"
#include "model/model.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/plan.h"
#include "structured/chat_truncation.h"
#include "reprise_test.h"

/* ---- keys ---- */

/* An answer's key by what it means. false: it means what its bytes are. */
static bool key_by_meaning(const rp_request *o, const base_key *before, const char *opening, const char *text, size_t n,
                           base_key *key) {
    uint8_t meaning[RP_MEANING_BYTES];
    if (!o->on_meaning || !o->on_meaning(o->user, opening, text, n, meaning)) return false;
    *key = answer_memory_key_of_meaning(before, meaning);
    return true;
}

/* ---- remember ---- */

/* How many of an answer's tokens make up its text, byte for byte; -1: none do, as they do not end where the text does,
 * or one of them has no text. */
static int32_t tokens_of_text(const rp_job *c, size_t n_bytes) {
    const rp_result *r = c->result;
    size_t done = 0;
    int32_t i = 0;
    for (; i < r->n_tokens && done < n_bytes; i++) {
        size_t n = 0;
        const char *bytes =
            tokenizer_answer_bytes(c->engine->model->tokenizer, r->tokens[i], c->request->options.special_text, &n);
        if (!bytes || n == 0 || n > n_bytes - done || memcmp(r->text + done, bytes, n) != 0) return -1;
        done += n;
    }
    return i > 0 && done == n_bytes ? i : -1;
}

/* What the prompt has of the answer, and what was sampled. */
static int whole_answer(const rp_job *c, int32_t n_sampled, base_buffer *text, token_list *tokens) {
    const pml_opened *o = &c->plan->opened;
    const token_list *prompt = &c->plan->tokens;
    BASE_ASSERT(o->n_tokens <= prompt->n && n_sampled <= c->result->n_tokens);
    int rc = base_buffer_append(text, o->begun ? o->begun : "", o->n_begun);
    if (!rc) rc = base_buffer_append_str(text, c->result->text);
    if (!rc && o->n_begun > 0) rc = token_list_append(tokens, prompt->ids + o->n_tokens, prompt->n - o->n_tokens);
    return rc ? rc : token_list_append(tokens, c->result->tokens, (size_t)n_sampled);
}

/* An answer that is known keeps its tokens: other conversations go on with them. */
static void remember(rp_engine *e, const base_key *key, token_list *tokens) {
    size_t n = 0;
    pthread_mutex_lock(&e->lock);
    if (!answer_memory_find(e->answers, key, &n)) {
        answer_memory_put(e->answers, key, tokens->ids, tokens->n);
        *tokens = (token_list){0};
    }
    pthread_mutex_unlock(&e->lock);
}

/* Without memory for it the next turn tokenizes the text. */
void conversation_remember(rp_job *c) {
    const job_request *q = c->request;
    const int32_t n = q->remembers ? tokens_of_text(c, strlen(c->result->text)) : -1;
    base_buffer text = BASE_BUFFER(SIZE_MAX);
    token_list tokens = {0};
    base_key key;
    if (n > 0 && whole_answer(c, n, &text, &tokens) == RP_OK) {
        if (!key_by_meaning(&q->options, &q->before, c->plan->opened.opening, text.data, text.len, &key))
            key = answer_memory_key(&q->before, text.data, text.len);
        remember(c->engine, &key, &tokens);
    }
    token_list_free(&tokens);
    base_buffer_free(&text);
}

/* ---- recall ---- */

/* Appends the tokens of a key. false: a miss, or out of memory. */
static bool append_known(rp_engine *e, const base_key *key, token_list *out) {
    size_t n = 0, n_before = out->n;
    pthread_mutex_lock(&e->lock);
    const int32_t *known = answer_memory_find(e->answers, key, &n);
    const bool ok = known && token_list_append(out, known, n) == RP_OK;
    pthread_mutex_unlock(&e->lock);
    if (!ok) out->n = n_before;
    return ok;
}

typedef struct recalling {
    rp_engine *e;
    const rp_request *o;
    answer_before before;
} recalling;

/* The key of the tokens so far. */
static base_key recalling_key(recalling *r, const token_list *tokens, size_t n) {
    BASE_ASSERT(n >= r->before.n);
    answer_before_add(&r->before, tokens->ids + r->before.n, n - r->before.n);
    return answer_before_key(&r->before);
}

/* A pml_recall. */
static bool conversation_recall(void *user, const char *opening, const char *text, size_t n_bytes, token_list *out) {
    recalling *r = user;
    const base_key before = recalling_key(r, out, out->n);
    base_key key;
    if (key_by_meaning(r->o, &before, opening, text, n_bytes, &key) && append_known(r->e, &key, out)) return true;
    key = answer_memory_key(&before, text, n_bytes);
    return append_known(r->e, &key, out);
}

/* ---- plan ---- */

/* Of messages, or of rendered text. */
static int plan_text(rp_job *c, const rp_request *o, const rp_message *messages, size_t n, const pml_recall *recall,
                     rp_error *err) {
    const rp_prompt *p = &o->prompt;
    if (p->kind == RP_PROMPT_RENDERED)
        return pml_plan_rendered(&c->plan, c->engine->model, p->content, p->turns, p->turns ? p->n_turns : 0, recall,
                                 err);
    return pml_plan_messages(&c->plan, c->engine->model, messages, n, p->continues_last, recall, err);
}

static int plan_conversation(rp_job *c, const rp_request *o, const rp_message *messages, size_t n, rp_error *err) {
    recalling r = {.e = c->engine, .o = o};
    if (o->reuse != RP_REUSE_ON || o->experiment->no_prefix) return plan_text(c, o, messages, n, NULL, err);
    answer_before_init(&r.before, &c->salt);
    int rc = plan_text(c, o, messages, n, &(pml_recall){conversation_recall, &r}, err);
    if (rc) return rc;
    pml_opened *opened = &c->plan->opened;
    if (!opened->opening) *opened = (pml_opened){.opening = "", .n_tokens = c->plan->tokens.n};
    job_draft(c)->before = recalling_key(&r, &c->plan->tokens, opened->n_tokens);
    job_draft(c)->remembers =
        !o->prompt.continues_last && o->pooling == RP_POOLING_OFF; /* else its text is only part of a message */
    return RP_OK;
}

/* ---- truncation ---- */

/* *kept: the message that the conversation goes on with; 0: none. Each message is a turn of the plan. */
static int first_kept(const rp_job *c, const rp_request *o, size_t first, int64_t excess, size_t *kept, rp_error *err) {
    const pml_plan *p = c->plan;
    size_t *ends = base_alloc(BASE_MAX(p->n_turns, 1) * sizeof(*ends));
    if (!ends) return base_fail_memory(err, p->n_turns * sizeof(*ends), "a conversation");
    for (size_t i = 0; i < p->n_turns; i++) ends[i] = p->turns[i].end;
    *kept = chat_first_kept(o->prompt.content, p->n_turns, ends, first, excess, c->engine->n_ctx);
    base_free(ends);
    return RP_OK;
}

/* Plans the conversation without its oldest turns. */
static int drop_turns(rp_job *c, const rp_request *o, int64_t excess, rp_error *err) {
    const rp_message *all = o->prompt.content;
    const size_t n = o->prompt.n, first = chat_count_leading_systems(all, n);
    size_t kept = 0;
    int rc = first_kept(c, o, first, excess, &kept, err);
    if (rc || kept <= first) return rc; /* check_plan refuses it */
    rp_message *messages = base_alloc(n * sizeof(*messages));
    if (!messages) return base_fail_memory(err, n * sizeof(*messages), "a conversation");
    memcpy(messages, all, first * sizeof(*messages));
    memcpy(messages + first, all + kept, (n - kept) * sizeof(*messages));
    pml_plan_free(c->plan);
    c->plan = NULL;
    rc = plan_conversation(c, o, messages, n - (kept - first), err);
    base_free(messages);
    job_draft(c)->dropped = (int32_t)(kept - first);
    return rc;
}

int conversation_plan(rp_job *c, const rp_request *o, rp_error *err) {
    const bool is_rendered = o->prompt.kind == RP_PROMPT_RENDERED;
    const int rc = plan_conversation(c, o, is_rendered ? NULL : o->prompt.content, is_rendered ? 0 : o->prompt.n, err);
    if (rc || !o->truncates || is_rendered) return rc;
    const int64_t excess = chat_excess(c->plan->end, c->engine->n_ctx, o->max_tokens);
    return excess > 0 ? drop_turns(c, o, excess, err) : RP_OK;
}
