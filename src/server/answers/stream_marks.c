/* SPDX-License-Identifier: Apache-2.0 */
/* stream_marks.c: see stream_marks.h. Owns nothing. */
#include "server/answers/stream_marks.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "server/http/request_relay.h"

/* ---- workers ---- */

int stream_marks_begin(server_request *x) {
    server_relay *r = x->relay;
    if (!r || !r->has_route) return SERVER_FINE;
    if (r->resumes && x->answers->n_choices != 1)
        return server_fail(&x->problem, SERVER_INVALID, CLUSTER_RESUME_HEADER,
                           "a request for %d answers cannot be continued", (int)x->answers->n_choices);
    const generation *gen = x->gen;
    const bool reduces = gen->kv_keep && strcmp(gen->kv_keep, "off") != 0;
    const bool focuses = gen->quality.mode == RP_QUALITY_FOCUS;
    /* Answers that rp_request.resumed excludes. */
    const bool is_fixed = gen->embedding.pooling != RP_POOLING_OFF || reduces || focuses || gen->context_shift;
    /* Log-probabilities of tokens that were sampled before are not known here. */
    r->has_marks = r->route.marks && x->is_stream && x->answers->n_choices == 1 && gen->n_logprobs < 0 && !is_fixed;
    r->skips = r->resumes && x->is_stream;
    if (r->skips && !r->has_marks)
        return server_fail(&x->problem, SERVER_INVALID, CLUSTER_RESUME_HEADER,
                           "a stream without marks cannot be continued");
    return SERVER_FINE;
}

void stream_marks_resume(const server_request *x, rp_request *q) {
    if (!x->relay || !x->relay->resumes) return;
    BASE_ASSERT(x->relay->tokens || x->relay->resume.n_tokens == 0);
    q->resumed = x->relay->tokens;
    q->n_resumed = (int32_t)x->relay->resume.n_tokens;
}

/* ---- the engine's thread ---- */

bool stream_marks_is_resumed(server_choice *c) {
    const server_relay *r = c->x->relay;
    if (!r || !r->resumes || (uint64_t)c->n_resumed == r->resume.n_tokens) return false;
    BASE_ASSERT((uint64_t)c->n_resumed < r->resume.n_tokens);
    c->n_resumed++;
    return true;
}

bool stream_marks_add(server_choice *c, int32_t token) {
    return base_buffer_append(&c->sampled, &token, sizeof(token)) == 0;
}

/* ---- I/O threads ---- */

int stream_marks_take(server_request *x, const server_choice *c) {
    if (!x->relay || !x->relay->has_marks) return 0;
    return base_buffer_append(&x->relay->unmarked, c->taken_sampled.data, c->taken_sampled.len);
}

void stream_marks_drop_begin(server_request *x, size_t reply_bytes) {
    if (stream_marks_skip(x) && x->relay->resume.frames > 0) base_buffer_truncate(&x->reply, reply_bytes);
}

bool stream_marks_skip(const server_request *x) { return x->relay && x->relay->skips; }

size_t stream_marks_count_had(const server_request *x, size_t n) {
    const server_relay *r = x->relay;
    BASE_ASSERT(!stream_marks_skip(x) || r->text_bytes <= r->resume.text_bytes);
    return stream_marks_skip(x) ? (size_t)BASE_MIN(r->resume.text_bytes - r->text_bytes, (uint64_t)n) : 0;
}

void stream_marks_rendered(server_request *x, server_choice *c, size_t n, size_t reply_bytes) {
    server_relay *r = x->relay;
    if (!r) return;
    r->text_bytes += n;
    if (!r->skips) return;
    BASE_ASSERT(r->text_bytes <= r->resume.text_bytes);
    base_buffer_truncate(&x->reply, reply_bytes);
    if (r->text_bytes < r->resume.text_bytes) return;
    r->skips = false;
    if (r->resume.frames == 0) return; /* not even the begin was sent */
    r->frames = r->resume.frames;
    c->n_events = (int32_t)r->resume.frames;
}

int stream_marks_append(server_request *x, size_t reply_bytes) {
    server_relay *r = x->relay;
    if (!r || !r->has_marks || r->skips || (x->reply.len == reply_bytes && r->unmarked.len == 0)) return 0;
    int rc = base_buffer_printf(&x->reply, CLUSTER_MARK "%" PRIu64 " %" PRIu64, r->text_bytes, r->frames);
    BASE_ASSERT(r->unmarked.len % sizeof(int32_t) == 0);
    for (size_t at = 0; at < r->unmarked.len && !rc; at += sizeof(int32_t)) {
        int32_t token;
        memcpy(&token, r->unmarked.data + at, sizeof(token));
        rc = base_buffer_printf(&x->reply, " %" PRId32, token);
    }
    base_buffer_clear(&r->unmarked);
    return rc ? rc : base_buffer_append_str(&x->reply, "\n\n");
}
