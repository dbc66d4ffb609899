/* SPDX-License-Identifier: Apache-2.0 */
/* http_io.c: libmicrohttpd's callbacks, on its I/O threads: they check heads, collect bodies, and send replies
 * and streams. They never block. */
#define _POSIX_C_SOURCE 200809L /* strncasecmp */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/http/http_stream.h"
#include "server/http/request_relay.h"
#include "server/http/request_content.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"

#define STREAM_BLOCK_BYTES ((size_t)32 << 10) /* most that is taken of a stream at once */
#define LOADING_RETRY_MS 1000
#define DRAINING_RETRY_MS 5000
#define LOG_LINE_BYTES 1024

/* ---- connections ---- */

static void http_io_connection(void *cls, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code) {
    rp_server *s = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *from = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *context = info ? watchdog_add(s->watchdog, info->connect_fd, from ? from->client_addr : NULL,
                                       (uint64_t)s->options.head_timeout_ms * 1000)
                        : NULL;
        if (*context && ((server_peer *)*context)->refused) atomic_fetch_add(&s->counts.refused, 1);
        atomic_fetch_add(&s->counts.connections, 1);
        atomic_fetch_add(&s->counts.connections_open, 1);
        return;
    }
    watchdog_remove(s->watchdog, *context);
    atomic_fetch_sub(&s->counts.connections_open, 1);
}

/* ---- replies ---- */

static void add_header(struct MHD_Response *r, const char *name, const char *value) {
    (void)MHD_add_response_header(r, name, value);
}

/* RFC 9110, 9.3.7: "OPTIONS *" asks what the server can do, whatever its resources are. */
static bool asks_options(const server_request *x) {
    return strcmp(x->method, "OPTIONS") == 0 && strcmp(x->path, "*") == 0;
}

static void add_headers(server_request *x, struct MHD_Response *r) {
    char seconds[16];
    const char *streamed = x->is_bytes ? x->content_type : x->is_lines ? "application/x-ndjson"
                                                                       : "text/event-stream";
    add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->is_stream ? streamed : x->content_type);
    if (x->is_stream && x->relay && x->relay->has_marks) add_header(r, CLUSTER_MARKS_HEADER, "1");
    if (x->relay && relay_refusal(x)) add_header(r, CLUSTER_REFUSAL_HEADER, cluster_refusal_value(relay_refusal(x)));
    add_header(r, "x-request-id", x->id);
    if (x->node) add_header(r, "x-reprise-node", x->node);
    if (x->say == server_problem_anthropic) add_header(r, "request-id", x->id);
    if (x->page_tag[0]) {
        /* The page may load its own files only, may not be framed by another page, and is revalidated each time it is
         * opened: the ETag shows whether it has changed. */
        add_header(r, MHD_HTTP_HEADER_ETAG, x->page_tag);
        add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        add_header(r, "Content-Security-Policy",
                   "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                   "require-trusted-types-for 'script'");
        add_header(r, "X-Content-Type-Options", "nosniff");
        add_header(r, "Referrer-Policy", "no-referrer");
    } else add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (x->problem.kind == SERVER_METHOD) add_header(r, MHD_HTTP_HEADER_ALLOW, x->allow);
    if (asks_options(x) && !x->problem.kind)
        add_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    if (request_content_is_refused(x)) add_header(r, MHD_HTTP_HEADER_ACCEPT_ENCODING, REQUEST_CONTENT_CODINGS);
    if (x->problem.kind == SERVER_KEY) add_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (x->problem.retry_after_ms > 0) {
        snprintf(seconds, sizeof(seconds), "%" PRIu32, (x->problem.retry_after_ms + 999) / 1000);
        add_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (server_get_state(x->server) >= SERVER_STATE_DRAINING || x->peer->refused)
        add_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (x->server->cors_origin) {
        add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, x->server->cors_origin);
        add_header(r, "Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE");
        add_header(r, "Access-Control-Allow-Headers",
                   "*, Authorization, Content-Type, x-api-key, x-goog-api-key, anthropic-version");
        add_header(r, "Access-Control-Expose-Headers", "x-request-id, x-reprise-node, retry-after");
    }
}

static enum MHD_Result http_io_queue(server_request *x, int status, struct MHD_Response *r) {
    if (!r) return MHD_NO;
    add_headers(x, r);
    enum MHD_Result queued = MHD_queue_response(x->connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return queued;
}

/* The request keeps ownership of the buffer, and lives until the reply is sent. */
static enum MHD_Result queue_reply(server_request *x) {
    BASE_ASSERT(!x->is_stream && x->reply_at == 0);
    x->sent_bytes = x->reply.len;
    void *bytes = x->reply.data ? x->reply.data : (void *)"";
    return http_io_queue(x, x->status, MHD_create_response_from_buffer(x->reply.len, bytes, MHD_RESPMEM_PERSISTENT));
}

/* ---- streams ---- */

/* Nothing is there: waits for news, unless there are some. Returns whether the reader has to leave, with *result. */
static bool wait_for_news(server_request *x, ssize_t *result) {
    bool leave = true;
    *result = 0;
    pthread_mutex_lock(&x->lock);
    if (x->gone) *result = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (x->has_news) leave = x->has_news = false;
    else if (!server_request_suspend(x)) *result = MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_mutex_unlock(&x->lock);
    return leave;
}

static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t max) {
    server_request *x = cls;
    ssize_t result;
    (void)pos;
    for (;;) {
        if (x->reply_at < x->reply.len) {
            size_t n = BASE_MIN(x->reply.len - x->reply_at, max);
            memcpy(to, x->reply.data + x->reply_at, n);
            x->reply_at += n;
            x->sent_bytes += n;
            return (ssize_t)n;
        }
        base_buffer_clear(&x->reply);
        x->reply_at = 0;
        if (x->stream_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (wait_for_news(x, &result)) return result;
        const request_memory_visit visit = request_memory_enter(x);
        x->take(x);
        request_memory_leave(visit);
    }
}

/* ---- heads ---- */

/* The key, wherever a dialect's clients put it. */
static const char *secret_of(server_request *x) {
    static const char bearer[] = "Bearer ";
    const char *value = server_request_header(x, MHD_HTTP_HEADER_AUTHORIZATION);
    if (value && strncasecmp(value, bearer, sizeof(bearer) - 1) != 0) return NULL;
    if (value) return value + strspn(value + sizeof(bearer) - 1, " ") + sizeof(bearer) - 1; /* RFC 9110, 11.4 */
    if ((value = server_request_header(x, "x-api-key")) || (value = server_request_header(x, "x-goog-api-key")))
        return value;
    return x->route && x->route->problem == server_problem_gemini ? server_request_query(x, "key") : NULL;
}

static void check_state(server_request *x) {
    server_state state = server_get_state(x->server);
    bool loading = state == SERVER_STATE_LOADING;
    bool is_of_router =
        strcmp(x->route->path, SERVER_SPAN_STREAM) == 0 || strcmp(x->route->path, SERVER_ROUTED_REQUESTS) == 0;
    bool computes = x->route->right == SERVER_REQUEST && strcmp(x->route->method, "POST") == 0;
    /* While an operator drains the server, requests that do not compute are still answered. */
    if (state == SERVER_STATE_READY && !(computes && atomic_load(&x->server->drains))) return;
    if (state == SERVER_STATE_DRAINING && is_of_router) return; /* routers watch the requests that still run */
    server_fail(&x->problem, SERVER_LOADING, NULL,
                "%s", loading ? "the model is loading: retry later" : cluster_refusal_message(CLUSTER_DRAINING));
    x->problem.retry_after_ms = loading ? LOADING_RETRY_MS : DRAINING_RETRY_MS;
}

static void check_key(server_request *x) {
    BASE_ASSERT(!x->key); /* counted once, and until end_exchange */
    server_key *key = api_keys_find(x->server->keys, secret_of(x));
    if (!key) server_fail(&x->problem, SERVER_KEY, NULL, "no valid API key: send 'Authorization: Bearer KEY'");
    else if (!(key->rights & x->route->right))
        server_fail(&x->problem, SERVER_RIGHTS, NULL, "this API key lacks the right for this request");
    else if (!api_keys_begin(key)) {
        server_fail(&x->problem, SERVER_QUOTA, NULL, "this API key has %d running requests, its limit",
                    key->max_running);
        x->problem.retry_after_ms = SERVER_BUSY_RETRY_MS;
    } else x->key = key;
}

/* Paths of OpenAI's and of Gemini's API may be the same (/v1/models): what Gemini's clients send beside them, nobody
   else does. */
static void find_route(server_request *x, const char *url) {
    const bool is_gemini = server_request_header(x, "x-goog-api-key") ||
                           server_request_header(x, "x-goog-api-client") || server_request_query(x, "key");
    const server_asked asked = {x->method, url, is_gemini};
    x->route = server_routes_find(x->server->routes, &asked, x->name, sizeof(x->name), &x->say, x->allow);
    if (x->route) x->say = x->route->problem;
    else if (!x->allow[0]) server_fail(&x->problem, SERVER_NOT_FOUND, NULL, "no route '%.100s'", url);
    else server_fail(&x->problem, SERVER_METHOD, NULL, "'%.100s' accepts %s, not %.15s", url, x->allow, x->method);
}

/* Is it answered without a route? A page of the origin that may ask wants to know whether it may. */
static bool wants_nothing(const server_request *x) {
    const bool is_preflight = x->server->cors_origin && strcmp(x->method, "OPTIONS") == 0;
    return !x->problem.kind && (is_preflight || asks_options(x));
}

/* A head that the gate has refused comes as one of its own (gate.h). */
static bool was_refused(server_request *x) {
    const char *refused = server_request_header(x, HTTP_REFUSED);
    if (!refused) return false;
    bool large = strncmp(refused, "431", 3) == 0;
    snprintf(x->method, sizeof(x->method), "-");
    snprintf(x->path, sizeof(x->path), "-");
    x->say = server_problem_openai;
    server_fail(&x->problem, large ? SERVER_HEAD : SERVER_HTTP, NULL, "malformed HTTP/1.1 request: %s", refused + 4);
    return true;
}

static void judge_head(server_request *x, const char *method, const char *url) {
    rp_server *s = x->server;
    snprintf(x->method, sizeof(x->method), "%s", method);
    snprintf(x->path, sizeof(x->path), "%s", url);
    atomic_fetch_add(&s->counts.requests, 1);
    if (was_refused(x)) return;
    if (!x->relay) request_check_host(x); /* a page cannot sign */
    if (wants_nothing(x)) return;
    find_route(x, url);
    if (x->route && !x->relay) request_check_origin(x);
    if (x->route && !x->route->is_quick) {
        if (x->peer->refused) {
            server_fail(&x->problem, SERVER_BUSY, NULL,
                        "too many connections, from this address or in total: close some, or retry later");
            x->problem.retry_after_ms = SERVER_BUSY_RETRY_MS;
        }
        check_state(x);
    }
    if (x->route && x->route->right != SERVER_OPEN && !x->problem.kind) check_key(x);
    if (x->key && !x->problem.kind) request_memory_begin(x);
    const char *length = server_request_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const uint64_t most = s->options.max_body_bytes;
    if (length && strtoull(length, NULL, 10) > most)
        server_fail(&x->problem, SERVER_TOO_LARGE, NULL, "the body has more than %" PRIu64 " bytes", most);
    if (x->route && !x->problem.kind) request_check_media(x);
    if (x->route && !x->problem.kind) request_check_content(x);
}

/* ---- bodies ---- */

/* Appends to the body within the limits. A refused body is still received for a while, so that the client gets the
 * reply. */
static enum MHD_Result http_io_take_body(server_request *x, const char *bytes, size_t n) {
    rp_server *s = x->server;
    uint64_t most = s->options.max_body_bytes;
    x->body_bytes += n;
    relay_add(x, bytes, n);
    if (x->body_bytes > 2 * most) return MHD_NO;
    if (x->body_bytes > most)
        server_fail(&x->problem, SERVER_TOO_LARGE, NULL, "the body has more than %" PRIu64 " bytes", most);
    if (x->problem.kind || !x->route) return MHD_YES;
    if (request_memory_add_body(x, n) && base_buffer_append(&x->body, bytes, n)) {
        server_fail_memory(&x->problem);
        request_memory_drop_body(x, n); /* not appended */
    }
    return MHD_YES;
}

/* ---- life of a request ---- */

static enum MHD_Result http_io_refuse(server_request *x) {
    server_request_reply_problem(x);
    return queue_reply(x);
}

/* Passes the request to a worker. */
static enum MHD_Result http_io_dispatch(server_request *x) {
    rp_server *s = x->server;
    check_state(x); /* it may have begun to drain while the body came */
    if (x->problem.kind) return http_io_refuse(x);
    BASE_ASSERT(x->route && !x->route->is_quick && !x->is_active);
    server_request_set_active(x, true);
    watchdog_watch(s->watchdog, x->peer, x);
    pthread_mutex_lock(&x->lock);
    bool suspended = server_request_suspend(x);
    if (suspended) {
        server_request_enter(x, SERVER_QUEUED);
        work_queue_put(s->work, &x->work);
    }
    pthread_mutex_unlock(&x->lock);
    return suspended ? MHD_YES : MHD_NO;
}

/* Head and body are there. */
static enum MHD_Result http_io_begin(server_request *x) {
    BASE_ASSERT(x->arrived_us == 0 && x->body.len <= x->body_bytes); /* its body is complete once */
    watchdog_set_deadline(x->server->watchdog, x->peer, 0);
    x->arrived_us = x->handled_us = base_clock_us();
    x->server->layers->body(x);
    if (wants_nothing(x)) {
        base_buffer nothing = {0};
        server_request_reply_text(x, 204, "text/plain", &nothing);
        return queue_reply(x);
    }
    if (x->problem.kind || !x->route) return http_io_refuse(x);
    if (!x->route->is_quick) return http_io_dispatch(x);
    x->route->handle(x);
    return queue_reply(x);
}

static enum MHD_Result http_io_advance(server_request *x) {
    pthread_mutex_lock(&x->lock);
    server_stage stage = x->stage;
    pthread_mutex_unlock(&x->lock);
    switch (stage) {
    case SERVER_READING: return http_io_begin(x);
    case SERVER_REPLYING: return queue_reply(x);
    case SERVER_STREAMING:
        BASE_ASSERT(x->is_stream && x->take && !x->stream_ended);
        x->status = 200;
        atomic_fetch_add(&x->server->counts.streams, 1);
        return http_io_queue(
            x, 200, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, x, NULL));
    default: return MHD_NO;
    }
}

/* "00-TRACE-PARENT-FLAGS", in lower-case hexadecimal digits, no id only zeros. */
static bool is_traceparent(const char *text) {
    static const char form[] = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
    size_t i = 0;
    for (; i < sizeof(form) - 1; i++)
        if (form[i] == 'h' ? !strchr("0123456789abcdef", text[i]) || !text[i] : text[i] != form[i]) return false;
    return !text[i] && strspn(text + 3, "0") < 32 && strspn(text + 36, "0") < 16;
}

/* The head is there. */
static enum MHD_Result begin_exchange(rp_server *s, struct MHD_Connection *connection, const char *url,
                                      const char *method, void **request) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    server_peer *peer = info ? info->socket_context : NULL;
    server_request *x = peer ? server_request_new(s, connection, peer) : NULL;
    *request = x;
    if (!x) return MHD_NO;
    watchdog_set_busy(s->watchdog, peer, true);
    watchdog_set_deadline(s->watchdog, peer, (uint64_t)s->options.body_timeout_ms * 1000);
    const char *given = s->options.on_request ? server_request_header(x, "traceparent") : NULL;
    if (given && is_traceparent(given)) snprintf(x->traceparent, sizeof(x->traceparent), "%s", given);
    if (!s->layers->head(x)) server_fail_memory(&x->problem);
    judge_head(x, method, url);
    return x->problem.kind == SERVER_TOO_LARGE ? http_io_refuse(x) : MHD_YES;
}

static enum MHD_Result http_io_access(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                                      const char *version, const char *upload_data, size_t *upload_data_size,
                                      void **request) {
    server_request *x = *request;
    (void)version;
    if (!x) return begin_exchange(cls, connection, url, method, request);
    const request_memory_visit visit = request_memory_enter(x);
    enum MHD_Result result =
        *upload_data_size == 0 ? http_io_advance(x) : http_io_take_body(x, upload_data, *upload_data_size);
    request_memory_leave(visit);
    *upload_data_size = 0;
    return result;
}

/* ---- ends ---- */

static void log_exchange(server_request *x, server_problem_kind problem) {
    rp_server *s = x->server;
    if (!s->options.on_log) return;
    json_t *line =
        json_pack("{s:s, s:o, s:o, s:i, s:f, s:I, s:I, s:b}", "request", x->id, "method",
                  base_json_string(x->method, strlen(x->method)), "path", base_json_string(x->path, strlen(x->path)),
                  "status", x->status, "ms", (double)(base_clock_us() - x->start_us) / 1e3, "in",
                  (json_int_t)x->body_bytes, "out", (json_int_t)x->sent_bytes, "stream", x->is_stream);
    if (line && problem) json_object_set_new(line, "error", json_string(x->problem.message));
    if (line && x->key && x->key->tenant)
        json_object_set_new(line, "tenant", base_json_string(x->key->tenant, strlen(x->key->tenant)));
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    pthread_mutex_lock(&s->log_lock);
    if (text) s->options.on_log(s->options.user, text);
    pthread_mutex_unlock(&s->log_lock);
    base_free(text);
    json_decref(line);
}

static void report_exchange(server_request *x, server_problem_kind problem) {
    rp_server *s = x->server;
    if (!s->options.on_request) return;
    uint64_t now = base_clock_us(), arrived = BASE_MAX(x->arrived_us, x->start_us);
    rp_server_request q = {.id = x->id,
                           .method = x->method,
                           .route = x->route ? x->route->path : "",
                           .traceparent = x->traceparent,
                           .error = problem ? x->problem.message : "",
                           .status = x->status,
                           .receive_ms = (double)(arrived - x->start_us) / 1e3,
                           .total_ms = (double)(now - x->start_us) / 1e3,
                           .has_answer = x->answer.is_set,
                           .timings = x->answer.timings,
                           .prompt_tokens = x->answer.prompt_tokens,
                           .cached_tokens = x->answer.cached_tokens,
                           .answer_tokens = x->answer.answer_tokens};
    s->options.on_request(s->options.user, &q);
}

/* It is counted and logged before a worker can have freed it. */
static void end_exchange(rp_server *s, server_request *x, enum MHD_RequestTerminationCode code) {
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) atomic_fetch_add(&s->counts.gone, 1);
    atomic_fetch_add(&s->counts.by_status[BASE_MIN((unsigned)x->status / 100, SERVER_N_STATUS_CLASSES - 1u)],
                     1); /* a node's may be no status */
    /* While a worker holds the request, its problem belongs to the worker. */
    server_problem_kind problem = server_request_is_held(x) ? SERVER_FINE : x->problem.kind;
    if (problem) atomic_fetch_add(&s->counts.rejections[problem], 1);
    log_exchange(x, problem);
    report_exchange(x, problem);
    if (x->key) api_keys_end(x->key);
    server_request_set_active(x, false);
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->stage != SERVER_CLOSED && !x->suspended); /* invariant 1 */
    x->stage = SERVER_CLOSED;
    bool held = x->held, has_calls = x->has_jobs;
    pthread_mutex_unlock(&x->lock);
    if (held) return; /* the worker frees it */
    if (has_calls) work_queue_put(s->work, &x->work);
    else server_request_free(x);
}

static void http_io_completed(void *cls, struct MHD_Connection *connection, void **request,
                              enum MHD_RequestTerminationCode code) {
    rp_server *s = cls;
    server_request *x = *request;
    (void)connection;
    if (!x) return;
    *request = NULL;
    watchdog_forget(s->watchdog, x->peer);
    watchdog_set_busy(s->watchdog, x->peer, false);
    watchdog_set_deadline(s->watchdog, x->peer,
                          ((uint64_t)s->options.idle_timeout_ms + (uint64_t)s->options.head_timeout_ms) * 1000);
    pthread_mutex_lock(&x->lock);
    x->gone = true;
    s->answers->cancel(x);
    pthread_mutex_unlock(&x->lock);
    const request_memory_visit visit = request_memory_enter(x);
    end_exchange(s, x, code);
    request_memory_leave(visit);
}

/* Keeps the request's target, which signatures cover: libmicrohttpd gives only parts of it later. */
static void *http_io_target(void *cls, const char *target, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    server_peer *peer = info ? info->socket_context : NULL;
    (void)cls;
    if (!peer) return NULL;
    base_free(peer->target);
    peer->target = base_strdup(target); /* NULL: no signature is right */
    return NULL;
}

const server_http_callbacks http_io_callbacks = {http_io_access, http_io_completed, http_io_connection, http_io_target};
