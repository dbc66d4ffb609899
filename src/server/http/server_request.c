/* SPDX-License-Identifier: Apache-2.0 */
/* server_request.c: see server_request.h. */
#define _GNU_SOURCE /* strcasestr */
#include "server/http/server_request.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "base/check.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/core/fields.h"
#include "server/http/gate.h"
#include "server/http/request_relay.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"

server_request *server_request_new(rp_server *server, struct MHD_Connection *connection, server_peer *peer) {
    server_request *x = base_calloc(1, sizeof(*x));
    if (!x) return NULL;
    x->server = server;
    x->connection = connection;
    x->peer = peer;
    x->start_us = base_clock_us();
    x->body = BASE_BUFFER((size_t)server->options.max_body_bytes);
    x->reply = BASE_BUFFER(SERVER_REPLY_BYTES);
    x->content_type = "application/json";
    pthread_mutex_init(&x->lock, NULL);
    x->say = server_problem_openai;
    x->only_node = -1;
    unsigned char id[12]; /* it cannot be guessed and does not reveal the number of requests */
    randombytes_buf(id, sizeof(id));
    sodium_bin2hex(x->id, SERVER_ID_BYTES, id, sizeof(id));
    if (server->layers->open(x)) {
        pthread_mutex_destroy(&x->lock);
        base_free(x);
        return NULL;
    }
    BASE_ASSERT(x->gen && x->answers); /* the layers have made their parts */
    return x;
}

void server_request_free(server_request *x) {
    const request_memory_visit visit = request_memory_enter(x);
    x->server->layers->close(x);
    BASE_ASSERT(!x->suspended && !x->held && !x->is_active); /* its jobs have ended: nobody else has it */
    server_request_drop_body(x);
    base_buffer_free(&x->reply);
    base_free(x->taken);
    relay_free(x);
    request_memory_leave(visit);
    request_memory_end(x);
    pthread_mutex_destroy(&x->lock);
    base_free(x);
}

void server_request_drop_body(server_request *x) {
    request_memory_drop_body(x, x->body.len);
    base_buffer_free(&x->body);
    json_decref(x->root);
    x->root = NULL;
}

json_t *server_request_json(server_request *x) {
    return x->root ? json_incref(x->root) : server_json_parse(x->body.data, x->body.len, &x->problem);
}

int64_t server_request_created(const server_request *x) {
    return x->relay && x->relay->has_route ? x->relay->route.created : (int64_t)time(NULL);
}

void server_request_set_active(server_request *x, bool is) {
    rp_server *s = x->server;
    if (x->is_active == is) return;
    x->is_active = is;
    pthread_mutex_lock(&s->lock);
    s->n_active += is ? 1 : -1;
    BASE_ASSERT(s->n_active >= 0);
    if (s->n_active == 0) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

/* ---- suspended ---- */

bool server_request_suspend(server_request *x) {
    rp_server *s = x->server;
    BASE_ASSERT(!x->suspended); /* invariant 1 */
    pthread_mutex_lock(&s->lock);
    bool may = server_get_state(s) != SERVER_STATE_CLOSED;
    if (may) s->n_suspended++;
    pthread_mutex_unlock(&s->lock);
    if (!may) return false;
    x->suspended = true;
    MHD_suspend_connection(x->connection);
    return true;
}

void server_request_resume(server_request *x) {
    rp_server *s = x->server;
    if (!x->suspended) return;
    x->suspended = false;
    server_gate *gate =
        listeners_gate(&s->listeners, x->connection); /* the connection may be gone once it is resumed */
    MHD_resume_connection(x->connection);
    if (gate) gate_wake(gate);
    pthread_mutex_lock(&s->lock);
    BASE_ASSERT(s->n_suspended > 0);
    if (--s->n_suspended == 0) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

void server_request_wake(server_request *x) {
    BASE_ASSERT(x->stage != SERVER_RUNNING || x->is_stream); /* other replies are made by a worker, or at once */
    x->has_news = true;
    if (x->stage == SERVER_RUNNING) x->stage = SERVER_STREAMING;
    if (x->stage == SERVER_STREAMING) server_request_resume(x);
}

void server_request_abandon(server_request *x) {
    pthread_mutex_lock(&x->lock);
    x->gone = true;
    x->server->answers->cancel(x);
    if (x->encoding) rp_job_cancel(x->encoding);
    if (x->stage == SERVER_STREAMING) server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
}

void server_request_ask_worker(server_request *x) {
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->stage == SERVER_STREAMING && !x->held &&
                x->server->answers->assist); /* its place in the queue is free */
    x->held = true;
    work_queue_put(x->server->work, &x->work);
    pthread_mutex_unlock(&x->lock);
}

bool server_request_is_held(server_request *x) {
    pthread_mutex_lock(&x->lock);
    const bool held = x->held;
    pthread_mutex_unlock(&x->lock);
    return held;
}

void server_request_hold(server_request *x, void (*take)(server_request *x)) {
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->stage == SERVER_HANDLING && !x->held);
    x->is_stream = x->held = true;
    x->take = take;
    x->stage = SERVER_STREAMING;
    server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
}

void server_request_release(server_request *x) {
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->held && (x->stage == SERVER_STREAMING || x->stage == SERVER_CLOSED));
    bool alone = x->stage == SERVER_CLOSED;
    x->held = false;
    x->progress.over = x->has_news = true;
    if (!alone) server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
    if (alone) server_request_free(x);
}

/* ---- replies ---- */

#define JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9)) /* floats come back as they were */

/* The handler is done: the I/O thread sends what there is. */
static void reply_is_there(server_request *x, int status) {
    x->status = status;
    x->is_stream = false;
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->stage < SERVER_REPLYING); /* one reply */
    x->stage = SERVER_REPLYING;
    server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
}

int server_request_append_json(base_buffer *b, const json_t *value) { return base_json_write(b, value, JSON_FLAGS); }

/* Takes over the object. false: no memory; the reply is empty. */
static bool set_reply(server_request *x, json_t *object) {
    base_buffer_clear(&x->reply);
    bool failed = !object || server_request_append_json(&x->reply, object) != 0;
    json_decref(object);
    if (failed) base_buffer_clear(&x->reply);
    return !failed;
}

void server_request_reply_json(server_request *x, int status, json_t *object) {
    static const char no_memory[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"code\":\"internal_error\"}}";
    const bool is_whole = status >= 400 || !base_budget_refusal(); /* else the object may lack a part */
    if (!set_reply(x, object) || !is_whole) {                      /* its error must not fail, too: outside the
                                                                      request's budget */
        server_fail_memory(&x->problem);
        status = server_problem_status(x->problem.kind);
        base_budget *budget = base_budget_enter(NULL);
        base_buffer_free(&x->reply);
        x->reply = BASE_BUFFER(SERVER_REPLY_BYTES);
        if (!set_reply(x, x->say(&x->problem)) && base_buffer_append_str(&x->reply, no_memory))
            base_buffer_clear(&x->reply);
        base_budget_enter(budget);
    }
    reply_is_there(x, status);
}

void server_request_reply_text(server_request *x, int status, const char *content_type, base_buffer *text) {
    base_buffer_free(&x->reply);
    x->reply = *text;
    *text = (base_buffer){0};
    x->content_type = content_type;
    reply_is_there(x, status);
}

/* There is always more to take until the last piece. */
static void take_piece(server_request *x) {
    BASE_ASSERT(x->is_stream && x->is_bytes && !x->stream_ended);
    const int rc = x->take_piece(x);
    pthread_mutex_lock(&x->lock);
    x->has_news = true;
    x->gone |= rc != 0; /* its client sees that it is cut */
    pthread_mutex_unlock(&x->lock);
}

void server_request_reply_pieces(server_request *x, const char *content_type, int (*take)(server_request *x),
                                 void *from) {
    BASE_ASSERT(!x->taken && !x->is_stream);
    x->content_type = content_type;
    x->taken = from;
    if (take(x)) {
        server_fail_memory(&x->problem);
        server_request_reply_problem(x);
        return;
    }
    if (x->stream_ended) { /* the first piece is all of it */
        x->stream_ended = false;
        reply_is_there(x, 200);
        return;
    }
    x->status = 200;
    x->is_stream = x->is_bytes = true;
    x->take_piece = take;
    x->take = take_piece;
    pthread_mutex_lock(&x->lock);
    x->has_news = true;
    x->stage = SERVER_STREAMING;
    server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
}

void server_request_reply_problem(server_request *x) {
    BASE_ASSERT(x->problem.kind != SERVER_FINE);   /* invariant 7 */
    base_budget *budget = base_budget_enter(NULL); /* the problem may be that there is no more of it */
    server_request_reply_json(x, server_problem_status(x->problem.kind), x->say(&x->problem));
    base_budget_enter(budget);
}

int server_request_frame(server_request *x, const char *event, json_t *object) {
    BASE_ASSERT(!x->is_lines && !x->is_bytes);
    base_buffer *b = &x->reply;
    size_t before = b->len;
    int failed = !object;
    if (event && !failed)
        failed = base_buffer_append_str(b, "event: ") || base_buffer_append_str(b, event) ||
                 base_buffer_append_str(b, "\n");
    failed = failed || base_buffer_append_str(b, "data: ") || server_request_append_json(b, object) ||
             base_buffer_append_str(b, "\n\n");
    if (failed) base_buffer_truncate(b, before);
    else if (x->relay) x->relay->frames++;
    json_decref(object);
    return failed;
}

int server_request_done(server_request *x, const char *event) {
    BASE_ASSERT(!x->is_lines && !x->is_bytes);
    if (x->relay) x->relay->frames++;
    return base_buffer_printf(&x->reply, "%s%s%sdata: [DONE]\n\n", event ? "event: " : "", event ? event : "",
                              event ? "\n" : "") != 0;
}

int server_request_line(server_request *x, json_t *object) {
    BASE_ASSERT(x->is_lines && !x->is_bytes);
    size_t before = x->reply.len;
    int failed = !object || server_request_append_json(&x->reply, object) || base_buffer_append_str(&x->reply, "\n");
    if (failed) base_buffer_truncate(&x->reply, before);
    else if (x->relay) x->relay->frames++;
    json_decref(object);
    return failed;
}

/* ---- headers and parameters ---- */

const char *server_request_query(const server_request *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *server_request_header(const server_request *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

bool server_request_wants_events(const server_request *x) {
    const char *accept = server_request_header(x, MHD_HTTP_HEADER_ACCEPT);
    return accept && strcasestr(accept, "text/event-stream");
}
