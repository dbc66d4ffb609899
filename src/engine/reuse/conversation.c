/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.c: plans conversations. The oldest turns of one that is too long for the context are left out, if asked to.
 * Sampled answers are kept as tokens: an answer is remembered when its job ends (engine's thread) and replaces the
 * tokenization of its text in the next turn's prompt (submitting thread), if the same tenant sends exactly this text
 * after exactly the same tokens.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

/* ---- remember ---- */

/* How many of an answer's tokens make up its text, byte for byte; -1: none do, as they do not end where the text does,
 * or one of them has no text. */
static int32_t tokens_of_text(const rp_job *c, size_t n_bytes) {
    const rp_result *r = c->result;
    size_t done = 0;
    int32_t i = 0;
    for (; i < r->n_tokens && done < n_bytes; i++) {
        size_t n = 0;
        const char *bytes = tokenizer_answer_bytes(c->engine->model->tokenizer, r->tokens[i], c->request->options.special_text, &n);
        if (!bytes || n == 0 || n > n_bytes - done || memcmp(r->text + done, bytes, n) != 0) return -1;
        done += n;
    }
    return i > 0 && done == n_bytes ? i : -1;
}

void conversation_remember(rp_job *c) {
    rp_engine *e = c->engine;
    if (!c->request->remembers) return;
    size_t n_bytes = strlen(c->result->text);
    int32_t n = tokens_of_text(c, n_bytes);
    int32_t *tokens = n > 0 ? base_alloc((size_t)n * sizeof(*tokens)) : NULL;
    if (!tokens) return; /* the next turn tokenizes the text */
    memcpy(tokens, c->result->tokens, (size_t)n * sizeof(*tokens));
    base_key key = answer_memory_key(&c->request->before, c->result->text, n_bytes);
    pthread_mutex_lock(&e->lock);
    answer_memory_put(e->answers, &key, tokens, (size_t)n);
    pthread_mutex_unlock(&e->lock);
}

/* ---- recall ---- */

/* A copy, as the entry may be evicted. NULL: a miss, or out of memory. */
static int32_t *copy_of(rp_engine *e, const base_key *key, size_t *n) {
    pthread_mutex_lock(&e->lock);
    const int32_t *known = answer_memory_find(e->answers, key, n);
    int32_t *copy = known ? base_alloc(*n * sizeof(*copy)) : NULL;
    if (copy) memcpy(copy, known, *n * sizeof(*copy));
    pthread_mutex_unlock(&e->lock);
    return copy;
}

typedef struct recalling {
    rp_engine *e;
    answer_before before;
} recalling;

static void recalling_read_on(recalling *r, const token_list *tokens) {
    answer_before_add(&r->before, tokens->ids + r->before.n, tokens->n - r->before.n);
}

/* A pml_recall. */
static bool conversation_recall(void *user, const char *text, size_t n_bytes, token_list *out) {
    recalling *r = user;
    size_t n = 0, n_before = out->n;
    recalling_read_on(r, out);
    base_key before = answer_before_key(&r->before), key = answer_memory_key(&before, text, n_bytes);
    int32_t *tokens = copy_of(r->e, &key, &n);
    bool ok = tokens != NULL;
    if (ok) ok = token_list_append(out, tokens, n) == RP_OK;
    if (!ok) out->n = n_before;
    base_free(tokens);
    return ok;
}

/* ---- plan ---- */

/* Of messages, or of rendered text. */
static int plan_text(rp_job *c, const rp_request *o, const rp_message *messages, size_t n, const pml_recall *recall, rp_error *err) {
    const size_t n_turns = o->rendered_turns ? (size_t)BASE_MAX(o->n_rendered_turns, 0) : 0;
    if (o->rendered) return pml_plan_rendered(&c->plan, c->engine->model, o->rendered, o->rendered_turns, n_turns, recall, err);
    return pml_plan_messages(&c->plan, c->engine->model, messages, n, o->continues_last, recall, err);
}

static int plan_conversation(rp_job *c, const rp_request *o, const rp_message *messages, size_t n, rp_error *err) {
    recalling r = {.e = c->engine};
    if (o->reuse != RP_REUSE_ON || o->no_prefix) return plan_text(c, o, messages, n, NULL, err);
    answer_before_init(&r.before, &c->salt);
    int rc = plan_text(c, o, messages, n, &(pml_recall){conversation_recall, &r}, err);
    if (rc) return rc;
    recalling_read_on(&r, &c->plan->tokens);
    job_draft(c)->before = answer_before_key(&r.before);
    job_draft(c)->remembers = !o->continues_last && o->pooling == RP_POOLING_OFF; /* else its text is only part of a message */
    return RP_OK;
}

/* ---- truncation ---- */

#define PIECES 4 /* of the context: one is dropped at a time; the answer gets one at most */

/* Tokens of the plan beyond those that leave room for the answer. */
static int32_t excess_of(const rp_job *c, const rp_request *o) {
    const int32_t n_ctx = c->engine->n_ctx, n_answer = BASE_MIN(BASE_MAX(o->max_tokens, 1), n_ctx / PIECES);
    return c->plan->end - (n_ctx - n_answer);
}

/* The message that the conversation goes on with: the first of a user, after `first`, so that whole pieces are dropped; at least the last one of a
 * user. 0: there is none. */
static size_t first_kept(const rp_job *c, const rp_message *messages, size_t first, int32_t excess) {
    const pml_plan *p = c->plan;
    const int32_t piece = BASE_MAX(c->engine->n_ctx / PIECES, 1), drop = (excess + piece - 1) / piece * piece;
    const size_t before = first > 0 ? p->turns[first - 1].end : 0;
    size_t kept = 0;
    for (size_t i = first + 1; i < p->n_turns; i++) {
        if (messages[i].role != RP_ROLE_USER) continue;
        kept = i;
        if (p->turns[i - 1].end - before >= (size_t)drop) return i;
    }
    return kept;
}

/* Plans the conversation without its oldest turns. */
static int drop_turns(rp_job *c, const rp_request *o, rp_error *err) {
    const size_t n = (size_t)o->n_messages;
    size_t first = 0;
    while (first < n && o->messages[first].role == RP_ROLE_SYSTEM) first++;
    const size_t kept = first_kept(c, o->messages, first, excess_of(c, o));
    if (kept <= first) return RP_OK; /* check_plan refuses it */
    rp_message *messages = base_alloc(n * sizeof(*messages));
    if (!messages) return base_fail_memory(err, n * sizeof(*messages), "a conversation");
    memcpy(messages, o->messages, first * sizeof(*messages));
    memcpy(messages + first, o->messages + kept, (n - kept) * sizeof(*messages));
    pml_plan_free(c->plan);
    c->plan = NULL;
    const int rc = plan_conversation(c, o, messages, n - (kept - first), err);
    base_free(messages);
    job_draft(c)->dropped = (int32_t)(kept - first);
    return rc;
}

int conversation_plan(rp_job *c, const rp_request *o, rp_error *err) {
    const int rc = plan_conversation(c, o, o->messages, (size_t)BASE_MAX(o->n_messages, 0), err);
    return rc || !o->truncates || o->rendered || excess_of(c, o) <= 0 ? rc : drop_turns(c, o, err);
}
