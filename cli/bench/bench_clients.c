/* SPDX-License-Identifier: Apache-2.0 */
/* bench_clients.c: connections and requests in flight: see bench_serve.h. Owns its slots and all started requests. One
 * thread.
 *
 *   arrival -> queue -> a free slot: a transfer of libcurl -> tally; the slot is free again
 *
 *        ppoll(epoll) --socket ready, timer of libcurl, next arrival--> curl_multi_socket_action -> body -> take_event
 *
 * A slot is one of --connections: while all are busy, requests wait in the queue, and their latency counts. libcurl
 * keeps the connections open between requests, and repeats a request on a new connection if the server had closed the
 * old one. curl_multi_poll would do with less code, but waits in whole milliseconds, and arrivals fall between them.
 */
#define _GNU_SOURCE /* ppoll */

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench_serve.h"
#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/sse_reader.h"

#define LOOK_EVERY_MS 100.0 /* for Ctrl-C, and for timeouts of silent servers */
#define EVENTS_AT_ONCE 64
#define ERROR_BYTES ((size_t)4096) /* of the body of a reply with a status other than 200 */

typedef struct request {
    bench_outcome outcome;
    char *body;
    size_t n_body;
    struct bench_conversation *conversation;
    bool is_counted, said_done, has_failed;
    bench_text text;      /* the answer, if its conversation needs it; or the error */
    struct request *next; /* in the queue */
} request;

typedef struct slot {
    bench_clients *clients;
    request *request; /* NULL: free */
    double active_ms; /* time of the last bytes received, or found sent */
    curl_off_t sent;  /* bytes of the body at that time */
    http_transfer transfer;
    sse_reader events;
} slot;

struct bench_clients {
    const http_target *target;
    const char *key;
    const bench_serve_options *options;
    bench_workload *workload;
    bench_tally *tally;
    slot *all; /* options->connections; a slot's transfer is opened on first use */
    CURLM *multi;
    int epoll_fd;
    double timer_ms;       /* when libcurl wants to be called; INFINITY: not */
    request *first, *last; /* the queue */
    int64_t n_open;        /* requests, queued or in flight */
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

static void take_piece(slot *c, const char *text, size_t n) {
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
    slot *c = user;
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

static bool bench_clients_take_body(void *user, const char *bytes, size_t n) {
    slot *c = user;
    request *q = c->request;
    c->active_ms = cli_now_ms();
    if (http_transfer_status(&c->transfer) == 200) {
        if (!sse_reader_feed(&c->events, bytes, n)) bench_clients_fail(q, BENCH_IN_STREAM, "an event is too long");
    } else if (q->text.n_bytes < ERROR_BYTES) bench_text_keep(&q->text, bytes, n < ERROR_BYTES ? n : ERROR_BYTES);
    return true;
}

/* ---- completion ---- */

static void free_request(request *q) {
    free(q->body);
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
        bench_workload_answered(s->workload, q->conversation,
                                e->is_done ? (q->text.bytes != NULL ? q->text.bytes : "") : NULL);
    s->n_open--;
    free_request(q);
}

/* Ends a slot's request: after its transfer, or to cancel it. */
static void slot_finish(slot *c, bool is_ok, bench_failure failure, const char *why) {
    request *q = c->request;
    int status = http_transfer_status(&c->transfer);
    curl_multi_remove_handle(c->clients->multi, c->transfer.handle);
    c->request = NULL;
    if (!is_ok) bench_clients_fail(q, status == 200 ? BENCH_IN_STREAM : failure, why); /* 200: a truncated answer */
    bench_clients_finish(c->clients, q, status);
}

static bench_failure bench_failure_of(CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION: return BENCH_NO_CONNECTION;
    case CURLE_OPERATION_TIMEDOUT: return BENCH_SILENT;
    default: return BENCH_CLOSED;
    }
}

static void bench_clients_collect(bench_clients *s) {
    int left;
    const CURLMsg *m;
    while ((m = curl_multi_info_read(s->multi, &left)) != NULL) {
        slot *c = NULL;
        CURLcode code = m->data.result; /* m is freed with the handle's removal */
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        slot_finish(c, code == CURLE_OK, bench_failure_of(code), http_fault(c->transfer.why, code));
    }
}

/* ---- libcurl's sockets and timer ---- */

static int bench_clients_on_socket(CURL *handle, curl_socket_t fd, int what, void *user, void *known) {
    bench_clients *s = user;
    (void)handle;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    struct epoll_event e = {.data.fd = fd};
    if (what != CURL_POLL_OUT) e.events |= EPOLLIN;
    if (what != CURL_POLL_IN) e.events |= EPOLLOUT;
    epoll_ctl(s->epoll_fd, known != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e);
    curl_multi_assign(s->multi, fd, s); /* marks it as known */
    return 0;
}

static int bench_clients_on_timer(CURLM *multi, long ms, void *user) {
    bench_clients *s = user;
    (void)multi;
    s->timer_ms = ms < 0 ? INFINITY : cli_now_ms() + (double)ms;
    return 0;
}

static void bench_clients_act(bench_clients *s, curl_socket_t fd, int events) {
    int n_running;
    if (fd == CURL_SOCKET_TIMEOUT) s->timer_ms = INFINITY; /* libcurl sets it again if it needs it */
    curl_multi_socket_action(s->multi, fd, events, &n_running);
}

static void bench_clients_act_on_ready(bench_clients *s) {
    struct epoll_event ready[EVENTS_AT_ONCE];
    int n = epoll_wait(s->epoll_fd, ready, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < n; i++) {
        uint32_t e = ready[i].events;
        int events = ((e & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) | ((e & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                     ((e & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        bench_clients_act(s, ready[i].data.fd, events);
    }
}

/* ---- event loop ---- */

static slot *find_free(const bench_clients *s) {
    for (int32_t i = 0; i < s->options->connections; i++)
        if (s->all[i].request == NULL) return &s->all[i];
    return NULL;
}

static void slot_start(slot *c, request *q) {
    bench_clients *s = c->clients;
    http_request head = {
        .method = "POST", .path = "/v1/chat/completions", .key = s->key, .body = q->body, .n_body = q->n_body};
    if (c->transfer.handle == NULL) {
        http_transfer_open(&c->transfer, s->target, bench_clients_take_body, c);
        curl_easy_setopt(c->transfer.handle, CURLOPT_PRIVATE, c);
    }
    http_transfer_set(&c->transfer, s->target, &head);
    sse_reader_begin(&c->events, take_event, c);
    c->request = q;
    c->sent = 0;
    c->active_ms = q->outcome.sent_ms = cli_now_ms();
    curl_multi_add_handle(s->multi, c->transfer.handle);
    bench_clients_act(s, CURL_SOCKET_TIMEOUT, 0); /* sends it now */
}

static void serve_row(bench_clients *s) {
    slot *c;
    while (s->first != NULL && (c = find_free(s)) != NULL) {
        request *q = s->first;
        s->first = q->next;
        slot_start(c, q);
    }
}

static void bench_clients_begin(bench_clients *s, bench_ask *ask, double due_ms, bool is_counted) {
    request *q = cli_alloc(sizeof *q);
    *q = (request){
        .conversation = ask->conversation, .is_counted = is_counted, .body = ask->body, .n_body = ask->n_body};
    q->outcome = (bench_outcome){.due_ms = due_ms, .prompt_tokens = -1, .cached_tokens = -1, .answer_tokens = -1};
    q->outcome.has_waited = s->first != NULL || find_free(s) == NULL;
    s->n_open++;
    if (s->first == NULL) s->first = q;
    else s->last->next = q;
    s->last = q;
    serve_row(s);
}

/* Bytes that were sent count as activity, too. */
static void give_up_silent(bench_clients *s) {
    double now = cli_now_ms(), before = now - (double)s->options->patience * 1e3;
    for (int32_t i = 0; i < s->options->connections; i++) {
        slot *c = &s->all[i];
        curl_off_t sent = 0;
        if (c->request == NULL || c->active_ms >= before) continue;
        curl_easy_getinfo(c->transfer.handle, CURLINFO_SIZE_UPLOAD_T, &sent);
        if (sent == c->sent) slot_finish(c, false, BENCH_SILENT, "no data within --patience");
        else c->active_ms = now;
        c->sent = sent;
    }
}

/* Waits for an event, at most until ms. */
static void wait_until(bench_clients *s, double ms) {
    bench_clients_collect(s);
    struct pollfd p = {.fd = s->epoll_fd, .events = POLLIN};
    double wait = fmax(0, fmin(fmin(ms, s->timer_ms) - cli_now_ms(), LOOK_EVERY_MS));
    struct timespec t = {.tv_nsec = (long)(wait * 1e6)};
    if (s->first != NULL && find_free(s) != NULL) t.tv_nsec = 0; /* a request ended at once */
    if (ppoll(&p, 1, &t, NULL) > 0) bench_clients_act_on_ready(s);
    else give_up_silent(s);
    if (cli_now_ms() >= s->timer_ms) bench_clients_act(s, CURL_SOCKET_TIMEOUT, 0);
    bench_clients_collect(s);
    serve_row(s);
}

/* Discards requests in flight and queued ones. */
static void drop_all(bench_clients *s) {
    for (int32_t i = 0; i < s->options->connections; i++) {
        slot *c = &s->all[i];
        if (c->request == NULL) continue;
        curl_multi_remove_handle(s->multi, c->transfer.handle);
        free_request(c->request);
        c->request = NULL;
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

bench_clients *bench_clients_new(const http_target *target, const char *key, const bench_serve_options *o,
                                 bench_workload *w, bench_tally *t) {
    bench_clients *s = cli_alloc(sizeof *s);
    size_t n = (size_t)o->connections;
    *s = (bench_clients){.target = target, .key = key, .options = o, .workload = w, .tally = t, .timer_ms = INFINITY};
    s->all = cli_alloc(n * sizeof *s->all);
    for (size_t i = 0; i < n; i++) s->all[i].clients = s;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->multi = curl_multi_init();
    if (s->epoll_fd < 0 || s->multi == NULL)
        exit(cli_fail(CLI_FAILED, "cannot create an event loop: out of memory or descriptors"));
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETFUNCTION, bench_clients_on_socket);
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETDATA, s);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERFUNCTION, bench_clients_on_timer);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERDATA, s);
    curl_multi_setopt(s->multi, CURLMOPT_MAXCONNECTS, (long)o->connections);
    return s;
}

void bench_clients_free(bench_clients *s) {
    if (s == NULL) return;
    drop_all(s);
    for (int32_t i = 0; i < s->options->connections; i++) {
        slot *c = &s->all[i];
        if (c->transfer.handle != NULL) http_transfer_close(&c->transfer);
        sse_reader_free(&c->events);
    }
    curl_multi_cleanup(s->multi);
    close(s->epoll_fd);
    free(s->all);
    free(s);
}
