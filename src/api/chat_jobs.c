/* SPDX-License-Identifier: Apache-2.0 */
/* chat_jobs.c: reprise_chat.h: a chat as a request of an engine.
 *
 * The request's callbacks have one `user`. A chat needs its own for two of them: so all of them get a chat_job, which
 * passes them on to the caller's. It holds a reference to the chat, and ends with the job's last callback (on_done).
 */
#include <string.h>

#include "api/chat.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "structured/answer_meaning.h"
#include "structured/tool_finder.h"

typedef struct chat_job {
    rp_chat *chat;
    rp_request own; /* the caller's: its callbacks and its user are used */
    bool in_heap;
    tool_finder stops; /* reads the answer when a stop string is complete; zeroed until then. Engine's thread */
    size_t n_stops;    /* bytes that it has read */
} chat_job;

static void chat_job_end(chat_job *j) {
    tool_finder_free(&j->stops);
    rp_chat_free(j->chat);
    if (j->in_heap) base_free(j);
}

/* ---- callbacks ---- */

static bool chat_job_on_text(void *user, const char *text, size_t n) {
    const chat_job *j = user;
    return j->own.on_text(j->own.user, text, n);
}

static bool chat_job_on_token(void *user, const rp_token *token) {
    const chat_job *j = user;
    return j->own.on_token(j->own.user, token);
}

static void chat_job_on_logits(void *user, const float *logits, int32_t n_vocab) {
    const chat_job *j = user;
    j->own.on_logits(j->own.user, logits, n_vocab);
}

static int32_t chat_job_on_choose(void *user, const float *logits, int32_t n_vocab) {
    const chat_job *j = user;
    return j->own.on_choose(j->own.user, logits, n_vocab);
}

static void chat_job_on_progress(void *user, uint64_t done, uint64_t total) {
    const chat_job *j = user;
    j->own.on_progress(j->own.user, done, total);
}

static void chat_job_on_done(void *user) {
    chat_job *j = user;
    if (j->own.on_done) j->own.on_done(j->own.user);
    if (j->in_heap) chat_job_end(j);
}

static rp_stop_verdict chat_job_on_stop(void *user, const char *stop, const char *text, size_t n, size_t end) {
    chat_job *j = user;
    if (j->own.on_stop) return j->own.on_stop(j->own.user, stop, text, n, end);
    BASE_ASSERT(tool_finder_is_needed(&j->chat->form) && j->n_stops <= n && end <= n); /* the text only grows */
    if (!j->stops.answer) tool_finder_init(&j->stops, &j->chat->form, TOOL_REASONING_DROPPED, NULL, NULL);
    if (tool_finder_feed(&j->stops, text + j->n_stops, n - j->n_stops)) return RP_STOP_COUNTS; /* out of memory */
    j->n_stops = n;
    return tool_finder_stop(&j->stops, stop, n - end);
}

static bool chat_job_on_meaning(void *user, const char *opening, const char *text, size_t n,
                                uint8_t meaning[RP_MEANING_BYTES]) {
    const chat_job *j = user;
    if (j->own.on_meaning) return j->own.on_meaning(j->own.user, opening, text, n, meaning);
    return answer_meaning(&j->chat->form, opening, text, n, meaning);
}

/* ---- requests ---- */

/* The request with the chat's prompt and grammar. Then chat_job_end is due. */
static int chat_job_begin(chat_job *j, const rp_chat *c, const rp_request *request, rp_request *q, rp_error *err) {
    *q = rp_request_defaults();
    const int rc = base_sized_read(q, sizeof(*q), request, "rp_request", err);
    if (rc) return rc;
    if (!c) return base_fail(err, RP_ERR_INVALID, "a chat is needed");
    if (q->prompt.kind != RP_PROMPT_NONE || q->grammar)
        return base_fail(err, RP_ERR_INVALID, "the request has a prompt or a grammar: both are the chat's");
    BASE_ASSERT(c->rendered ? c->n_turns == 0 || c->turns : c->n_messages > 0); /* rp_chat_new */
    j->own = *q;
    j->chat = chat_ref(c);
    q->struct_size = (uint32_t)sizeof(*q);
    const bool continues_last = q->prompt.continues_last;
    q->prompt = c->rendered ? rp_prompt_rendered(c->rendered, c->turns, c->n_turns)
                            : rp_prompt_messages(c->messages, c->n_messages);
    q->prompt.continues_last = continues_last;
    q->grammar = c->grammar.text;
    q->grammar_trigger = c->grammar.trigger;
    q->special_text = c->special_text;
    q->on_text = q->on_text ? chat_job_on_text : NULL;
    q->on_token = q->on_token ? chat_job_on_token : NULL;
    q->on_logits = q->on_logits ? chat_job_on_logits : NULL;
    q->on_choose = q->on_choose ? chat_job_on_choose : NULL;
    q->on_progress = q->on_progress ? chat_job_on_progress : NULL;
    q->on_done = chat_job_on_done;
    q->on_stop = q->on_stop || tool_finder_is_needed(&c->form) ? chat_job_on_stop : NULL;
    q->on_meaning = chat_job_on_meaning;
    q->user = j;
    return RP_OK;
}

int rp_chat_submit(const rp_chat *chat, rp_engine *engine, const rp_request *request, rp_job **out, rp_error *err) {
    rp_request q;
    if (out) *out = NULL;
    chat_job *j = base_calloc(1, sizeof(*j));
    if (!j) return base_fail_memory(err, sizeof(*j), "a job of a chat");
    j->in_heap = true;
    int rc = chat_job_begin(j, chat, request, &q, err);
    if (!rc) rc = rp_engine_submit(engine, &q, out, err);
    if (rc) chat_job_end(j); /* else with on_done, or it has ended */
    return rc;
}

int rp_chat_run(const rp_chat *chat, rp_engine *engine, const rp_request *request, rp_result **out, rp_error *err) {
    rp_request q;
    chat_job j = {0};
    if (out) *out = NULL;
    int rc = chat_job_begin(&j, chat, request, &q, err);
    if (!rc) rc = rp_engine_run(engine, &q, out, err);
    chat_job_end(&j);
    return rc;
}
