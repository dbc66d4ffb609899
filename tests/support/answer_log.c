/* SPDX-License-Identifier: Apache-2.0 */
/* answer_log.c: see answer_log.h. */
#include "answer_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static void keep(base_buffer *b, const void *bytes, size_t n) {
    if (base_buffer_append(b, bytes, n)) abort();
}

static bool goes_on(answer_log *l) { return ++l->n_events != l->cancel_at; }

static bool log_token(void *user, const rp_token *token) {
    answer_log *l = user;
    char line[32];
    keep(&l->events, line, (size_t)snprintf(line, sizeof(line), "token %d\n", (int)token->id));
    return goes_on(l);
}

static bool log_text(void *user, const char *text, size_t n) {
    answer_log *l = user;
    if (text[n] != '\0') abort();
    keep(&l->events, "text ", 5);
    keep(&l->events, text, n);
    keep(&l->events, "\n", 1);
    return goes_on(l);
}

static void log_logits(void *user, const float *logits, int32_t n_vocab) {
    answer_log *l = user;
    const uint64_t hash = base_table_hash(logits, (size_t)n_vocab * sizeof(*logits));
    keep(&l->logits, &hash, sizeof(hash));
}

void answer_log_submit(answer_log *l, rp_engine *e, const rp_request *q, rp_job **job) {
    rp_request own = *q;
    l->events = l->logits = BASE_BUFFER((size_t)1 << 24);
    own.on_token = log_token;
    own.on_text = log_text;
    own.on_logits = log_logits;
    own.user = l;
    *job = NULL;
    l->rc = rp_engine_submit(e, &own, job, &l->err);
}

void answer_log_finish(answer_log *l, rp_job *job) {
    if (!job) return;
    l->rc = rp_job_result(job, &l->result, &l->err);
    rp_job_free(job);
}

void answer_log_run(answer_log *l, rp_engine *e, const rp_request *q) {
    rp_job *job;
    answer_log_submit(l, e, q, &job);
    answer_log_finish(l, job);
}

static bool same_buffer(const base_buffer *a, const base_buffer *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static bool same_result(const rp_result *a, const rp_result *b) {
    if (a->n_tokens != b->n_tokens || memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof(*a->tokens)) != 0)
        return false;
    if (strcmp(a->finish_reason, b->finish_reason) != 0 || strcmp(a->text, b->text) != 0) return false;
    return a->stop && b->stop ? strcmp(a->stop, b->stop) == 0 : a->stop == b->stop;
}

static void print_result(const char *name, const answer_log *l) {
    const rp_result *r = l->result;
    printf("%s: %d tokens, %s, stop '%s': '%s'; %zu logits\nevents:\n%s\n", name, r->n_tokens, r->finish_reason,
           r->stop ? r->stop : "", r->text, l->logits.len / 8, l->events.data ? l->events.data : "");
}

bool answer_log_same(const answer_log *whole, const answer_log *other, int32_t k) {
    const size_t skipped = (size_t)k * sizeof(uint64_t),
                 n = whole->logits.len > skipped ? whole->logits.len - skipped : 0;
    if (whole->rc != other->rc || whole->rc) {
        if (whole->rc != other->rc)
            printf("%d (%s), and %d (%s)\n", whole->rc, whole->err.message, other->rc, other->err.message);
        return whole->rc == other->rc;
    }
    bool same = same_result(whole->result, other->result) && same_buffer(&whole->events, &other->events) &&
                other->logits.len == n;
    if (same && n > 0) same = memcmp(whole->logits.data + skipped, other->logits.data, n) == 0;
    if (same) return true;
    print_result("whole", whole);
    print_result("other", other);
    return false;
}

void answer_log_free(answer_log *l) {
    rp_result_free(l->result);
    base_buffer_free(&l->events);
    base_buffer_free(&l->logits);
    *l = (answer_log){0};
}
