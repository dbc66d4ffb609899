/* SPDX-License-Identifier: Apache-2.0 */
/* bench_clients.c: connections and requests in flight: see bench_serve.h. Owns its connections and all started
 * requests. One thread.
 *
 *   arrival -> queue -> a free connection: CONNECTING -> SENDING -> RECEIVING -> tally;
 *              then the connection is IDLE, or CLOSED
 *
 * While all --connections are busy, requests wait in the queue, and their latency counts. The server may have closed a
 * persistent connection meanwhile: a request on such a connection is retried on a new one.
 */
#define _GNU_SOURCE /* ppoll: arrivals fall between milliseconds */

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench_serve.h"
#include "common/command.h"
#include "common/json_out.h"

#define LOOK_EVERY_MS 100.0 /* for Ctrl-C, and for timeouts of silent servers */
#define READ_BYTES 65536
#define ERROR_BYTES ((size_t)4096) /* of the body of a reply with a status other than 200 */

typedef struct request {
    bench_outcome outcome;
    char *bytes; /* head and body */
    size_t n_bytes;
    struct bench_conversation *conversation;
    bool is_counted, is_again, said_done, has_failed;
    bench_text text; /* the answer, if its conversation needs it; or the error */
    struct request *next; /* in the queue */
} request;

typedef enum stage { CLOSED, CONNECTING, SENDING, RECEIVING, IDLE } stage;

typedef struct connection {
    bench_clients *clients;
    int fd;
    stage stage;
    bool is_used;   /* has served an earlier request */
    bool has_heard; /* received a part of the reply */
    request *request;
    size_t sent;
    double active_ms; /* time of the last byte sent or received */
    http_reader reader;
    sse_reader events;
} connection;

struct bench_clients {
    const http_target *target;
    const char *key;
    const bench_serve_options *options;
    bench_workload *workload;
    bench_tally *tally;
    connection *all; /* options->connections */
    struct pollfd *polls;
    connection **polled; /* the connection of each of polls */
    request *first, *last; /* the queue */
    int64_t n_open; /* requests, queued or in flight */
    bool last_failed;
    char message[192]; /* the reason */
};

/* ---- answers ---- */

static void bench_text_keep(bench_text *t, const char *bytes, size_t n) {
    if (t->n_bytes + n + 1 > t->cap_bytes) {
        t->cap_bytes = 2 * (t->n_bytes + n + 1);
        t->bytes = cli_realloc(t->bytes, t->cap_bytes);
    }
    memcpy(t->bytes + t->n_bytes, bytes, n);
    t->n_bytes += n;
    t->bytes[t->n_bytes] = '\0';
}

static void bench_clients_fail(request *q, bench_failure failure, const char *why) {
    if (q->has_failed) return;
    q->has_failed = true;
    q->outcome.failure = failure;
    snprintf(q->outcome.message, sizeof q->outcome.message, "%s", why);
}

static void take_piece(connection *c, const char *text, size_t n) {
    request *q = c->request;
    bench_outcome *e = &q->outcome;
    double now = cli_now_ms();
    if (e->pieces++ == 0) e->first_ms = now;
    else if (q->is_counted) bench_histogram_add(&c->clients->tally->tbt_ms, now - e->last_ms);
    e->last_ms = now;
    if (q->conversation != NULL) bench_text_keep(&q->text, text, n);
}

static void take_count(const json_t *object, const char *field, int64_t *out) {
    const json_t *value = json_object_get(object, field);
    if (json_is_integer(value)) *out = json_integer_value(value);
}

/* OpenAI's fields, and those that llama.cpp's server adds. */
static void take_usage(bench_outcome *e, const json_t *event) {
    const json_t *usage = json_object_get(event, "usage"), *timings = json_object_get(event, "timings");
    take_count(timings, "cache_n", &e->cached_tokens);
    take_count(usage, "prompt_tokens", &e->prompt_tokens);
    take_count(usage, "completion_tokens", &e->answer_tokens);
    take_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &e->cached_tokens);
}

/* The message in {"error": {"message": ...}}, or {"error": "..."}. */
static const char *error_text(const json_t *root) {
    const json_t *error = json_object_get(root, "error"), *message = json_object_get(error, "message");
    const char *text = json_string_value(message != NULL ? message : error);
    return text != NULL ? text : "an error without a message";
}

static void take_event(void *user, const char *event, const char *data, size_t n) {
    connection *c = user;
    (void)event;
    if (strcmp(data, "[DONE]") == 0) {
        c->request->said_done = true;
        return;
    }
    json_t *root = json_loadb(data, n, 0, NULL);
    const json_t *delta = json_object_get(json_array_get(json_object_get(root, "choices"), 0), "delta");
    const json_t *text = json_object_get(delta, "content"), *thought = json_object_get(delta, "reasoning_content");
    if (root == NULL) bench_clients_fail(c->request, BENCH_IN_STREAM, "an event that is not JSON");
    else if (json_object_get(root, "error") != NULL) bench_clients_fail(c->request, BENCH_IN_STREAM, error_text(root));
    if (json_string_length(text) > 0) take_piece(c, json_string_value(text), json_string_length(text));
    else if (json_string_length(thought) > 0) take_piece(c, json_string_value(thought), json_string_length(thought));
    take_usage(&c->request->outcome, root);
    json_decref(root);
}

static void bench_clients_take_body(void *user, const char *bytes, size_t n) {
    connection *c = user;
    request *q = c->request;
    if (c->reader.status == 200) {
        if (!sse_reader_feed(&c->events, bytes, n)) bench_clients_fail(q, BENCH_IN_STREAM, "an event is too long");
    } else if (q->text.n_bytes < ERROR_BYTES) bench_text_keep(&q->text, bytes, n < ERROR_BYTES ? n : ERROR_BYTES);
}

/* ---- completion ---- */

static void close_connection(connection *c) {
    if (c->stage != CLOSED) close(c->fd);
    c->stage = CLOSED;
    c->is_used = false;
}

static void free_request(request *q) {
    free(q->bytes);
    free(q->text.bytes);
    free(q);
}

static void bench_clients_print_refused(request *q) {
    json_t *root = q->text.bytes != NULL ? json_loadb(q->text.bytes, q->text.n_bytes, 0, NULL) : NULL;
    snprintf(q->outcome.message, sizeof q->outcome.message, "%s", error_text(root));
    json_decref(root);
}

/* Ends a request, successful or not. */
static void bench_clients_finish(bench_clients *s, request *q, int status) {
    bench_outcome *e = &q->outcome;
    e->status = status;
    e->end_ms = cli_now_ms();
    if (status != 0 && status != 200) bench_clients_print_refused(q);
    else if (!q->has_failed && !q->said_done) bench_clients_fail(q, BENCH_IN_STREAM, "the stream ended without [DONE]");
    e->is_done = status == 200 && !q->has_failed;
    s->last_failed = !e->is_done;
    snprintf(s->message, sizeof s->message, "%s", e->message);
    if (q->is_counted) {
        bench_tally_add(s->tally, e, s->options);
        if (s->options->each) bench_outcome_print(e, s->tally->start_ms);
    }
    if (q->conversation != NULL)
        bench_workload_answered(s->workload, q->conversation, e->is_done ? (q->text.bytes != NULL ? q->text.bytes : "") : NULL);
    s->n_open--;
    free_request(q);
}

static void put_in_row(bench_clients *s, request *q, bool first) {
    q->next = first ? s->first : NULL;
    if (s->first == NULL) s->first = s->last = q;
    else if (first) s->first = q;
    else {
        s->last->next = q;
        s->last = q;
    }
}

/* The connection broke: its request fails, or is retried. */
static void connection_lose(connection *c, bench_failure failure, const char *why) {
    request *q = c->request;
    bool again = c->is_used && !c->has_heard && !q->is_again && failure == BENCH_CLOSED;
    c->request = NULL;
    close_connection(c);
    if (again) {
        q->is_again = true;
        put_in_row(c->clients, q, true);
        return;
    }
    int status = c->has_heard ? c->reader.status : 0;
    bench_clients_fail(q, status == 200 ? BENCH_IN_STREAM : failure, why); /* a truncated answer */
    bench_clients_finish(c->clients, q, status);
}

/* ---- connections ---- */

static void take_reply_end(connection *c, bool has_more) {
    request *q = c->request;
    c->request = NULL;
    c->is_used = true;
    if (c->reader.keeps_open && !has_more) c->stage = IDLE;
    else close_connection(c);
    bench_clients_finish(c->clients, q, c->reader.status);
}

static void connection_receive(connection *c) {
    static char bytes[READ_BYTES];
    size_t used = 0;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n < 0) {
        connection_lose(c, BENCH_CLOSED, strerror(errno));
        return;
    }
    c->active_ms = cli_now_ms();
    c->has_heard |= n > 0;
    http_state state = n > 0 ? http_reader_feed(&c->reader, bytes, (size_t)n, &used) : http_reader_end(&c->reader);
    if (state == HTTP_DONE) take_reply_end(c, used < (size_t)n);
    else if (state == HTTP_BROKEN) connection_lose(c, BENCH_CLOSED, c->reader.fault);
}

/* A server that closes the connection during the upload may have sent an error reply: read it. */
static void send_more(connection *c) {
    request *q = c->request;
    while (c->sent < q->n_bytes) {
        ssize_t n = send(c->fd, q->bytes + c->sent, q->n_bytes - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (n < 0) break;
        c->sent += (size_t)n;
        c->active_ms = cli_now_ms();
    }
    c->stage = RECEIVING;
}

static void check_connected(connection *c) {
    int why = 0;
    socklen_t n = sizeof why;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &n);
    if (why != 0) {
        connection_lose(c, BENCH_NO_CONNECTION, strerror(why));
        return;
    }
    c->stage = SENDING;
    send_more(c);
}

static void connection_advance(connection *c) {
    switch (c->stage) {
    case CONNECTING: check_connected(c); break;
    case SENDING: send_more(c); break;
    case RECEIVING: connection_receive(c); break;
    case IDLE: close_connection(c); break; /* no request is pending: the server closed it */
    case CLOSED: break;
    }
}

static void connection_start(connection *c, request *q) {
    c->request = q;
    c->has_heard = false;
    c->sent = 0;
    c->active_ms = cli_now_ms();
    if (!q->is_again) q->outcome.sent_ms = c->active_ms;
    http_reader_begin(&c->reader, false, bench_clients_take_body, c);
    sse_reader_begin(&c->events, take_event, c);
    if (c->stage == IDLE) {
        c->stage = SENDING;
        send_more(c);
        return;
    }
    c->fd = http_connect(c->clients->target, true);
    if (c->fd >= 0) {
        c->stage = CONNECTING;
        return;
    }
    c->request = NULL;
    bench_clients_fail(q, BENCH_NO_CONNECTION, strerror(errno));
    bench_clients_finish(c->clients, q, 0);
}

/* ---- event loop ---- */

static connection *find_free(const bench_clients *s) {
    connection *closed = NULL;
    for (int32_t i = 0; i < s->options->connections; i++) {
        if (s->all[i].stage == IDLE) return &s->all[i];
        if (s->all[i].stage == CLOSED && closed == NULL) closed = &s->all[i];
    }
    return closed;
}

static void serve_row(bench_clients *s) {
    connection *c;
    while (s->first != NULL && (c = find_free(s)) != NULL) {
        request *q = s->first;
        s->first = q->next;
        connection_start(c, q);
    }
}

static void bench_clients_begin(bench_clients *s, bench_ask *ask, double due_ms, bool is_counted) {
    request *q = cli_alloc(sizeof *q);
    http_request head = {.method = "POST", .path = "/v1/chat/completions", .key = s->key, .body = ask->body, .n_body = ask->n_body};
    *q = (request){.conversation = ask->conversation, .is_counted = is_counted};
    q->outcome = (bench_outcome){.due_ms = due_ms, .prompt_tokens = -1, .cached_tokens = -1, .answer_tokens = -1};
    q->bytes = http_request_bytes(s->target, &head, &q->n_bytes);
    free(ask->body);
    q->outcome.has_waited = s->first != NULL || find_free(s) == NULL;
    s->n_open++;
    put_in_row(s, q, false);
    serve_row(s);
}

static nfds_t bench_clients_watch(bench_clients *s) {
    static const short events[] = {[CONNECTING] = POLLOUT, [SENDING] = POLLOUT, [RECEIVING] = POLLIN, [IDLE] = POLLIN};
    nfds_t n = 0;
    for (int32_t i = 0; i < s->options->connections; i++) {
        connection *c = &s->all[i];
        if (c->stage == CLOSED) continue;
        s->polls[n] = (struct pollfd){.fd = c->fd, .events = events[c->stage]};
        s->polled[n++] = c;
    }
    return n;
}

static void give_up_silent(bench_clients *s) {
    double before = cli_now_ms() - (double)s->options->patience * 1e3;
    for (int32_t i = 0; i < s->options->connections; i++) {
        connection *c = &s->all[i];
        if (c->request != NULL && c->active_ms < before) connection_lose(c, BENCH_SILENT, "no data within --patience");
    }
}

/* Waits for an event, at most until ms. */
static void wait_until(bench_clients *s, double ms) {
    nfds_t n = bench_clients_watch(s);
    double wait = fmax(0, fmin(ms - cli_now_ms(), LOOK_EVERY_MS));
    struct timespec t = {.tv_nsec = (long)(wait * 1e6)};
    if (ppoll(s->polls, n, &t, NULL) <= 0) give_up_silent(s);
    else
        for (nfds_t i = 0; i < n; i++)
            if (s->polls[i].revents != 0) connection_advance(s->polled[i]);
    serve_row(s);
}

/* Discards requests in flight and queued ones. */
static void drop_all(bench_clients *s) {
    for (int32_t i = 0; i < s->options->connections; i++) {
        connection *c = &s->all[i];
        if (c->request != NULL) free_request(c->request);
        c->request = NULL;
        close_connection(c);
    }
    for (request *q = s->first, *next; q != NULL; q = next) {
        next = q->next;
        free_request(q);
    }
    s->first = NULL;
    s->n_open = 0;
}

int bench_clients_warm_up(bench_clients *s, int32_t n) {
    cli_progress progress = {0};
    for (int32_t i = 0; i < n && !cli_interrupted(); i++) {
        bench_ask ask = bench_workload_warm_up(s->workload);
        bench_clients_begin(s, &ask, cli_now_ms(), false);
        while (s->n_open > 0 && !cli_interrupted()) wait_until(s, INFINITY);
        if (s->n_open == 0 && s->last_failed) {
            cli_progress_clear(&progress);
            return cli_fail(CLI_FAILED, "%s: a warm-up request failed: %s", s->target->name, s->message);
        }
        cli_progress_draw(&progress, "warming up", "requests", (uint64_t)i + 1, (uint64_t)n);
    }
    cli_progress_clear(&progress);
    return CLI_OK;
}

int bench_clients_run(bench_clients *s) {
    bench_tally *t = s->tally;
    double due;
    t->start_ms = t->end_ms = cli_now_ms();
    while (!cli_interrupted() && (isfinite(due = bench_workload_due_ms(s->workload)) || s->n_open > 0)) {
        if (t->start_ms + due > cli_now_ms()) {
            wait_until(s, t->start_ms + due);
            continue;
        }
        bench_ask ask = bench_workload_next(s->workload);
        t->sent++;
        bench_clients_begin(s, &ask, t->start_ms + ask.due_ms, true);
    }
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

/* ---- creation and destruction ---- */

bench_clients *bench_clients_new(const http_target *target, const char *key, const bench_serve_options *o, bench_workload *w, bench_tally *t) {
    bench_clients *s = cli_alloc(sizeof *s);
    size_t n = (size_t)o->connections;
    *s = (bench_clients){.target = target, .key = key, .options = o, .workload = w, .tally = t};
    s->all = cli_alloc(n * sizeof *s->all);
    s->polls = cli_alloc(n * sizeof *s->polls);
    s->polled = cli_alloc(n * sizeof(connection *));
    for (size_t i = 0; i < n; i++) s->all[i].clients = s;
    return s;
}

void bench_clients_free(bench_clients *s) {
    if (s == NULL) return;
    drop_all(s);
    for (int32_t i = 0; i < s->options->connections; i++) sse_reader_free(&s->all[i].events);
    free(s->all);
    free(s->polls);
    free(s->polled);
    free(s);
}
