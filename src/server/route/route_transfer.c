/* SPDX-License-Identifier: Apache-2.0 */
/* route_transfer.c: the transfer of a request to a node, and of the reply (route_internal.h). Owns curl's handle and
 * the headers. The network thread.
 *
 *   a stream          200, text/event-stream or lines of JSON: relayed frame by frame, up to a mark
 *   any other reply   held until it is complete, so that a failed request can be retried; beyond ROUTE_HELD_BYTES it is
 *                     relayed, too
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/answers/generate.h"
#include "server/http/request_memory.h"
#include "server/route/route_internal.h"

#define HEAD_BYTES ((size_t)64 << 10) /* limit of a reply's head */

struct route_transfer {
    route_handle handle; /* first */
    route *t;
    route_request *rr; /* NULL: dropped. Under lock */
    struct curl_slist *headers;
    route_part body[2]; /* the client's body, which belongs to rr; tokens */
    size_t sent;
    int32_t *tokens; /* owned */
    int status;
    char content_type[ROUTE_CONTENT_TYPE_BYTES];
    uint64_t retry_after_ms;
    size_t head_bytes;
    cluster_refusal refusal;
    bool has_marks, relays;
    base_buffer bytes; /* of a relayed reply, for the client */
    base_buffer held;
    const char *broken; /* why the reply is invalid: static; NULL: it is valid */
};

void route_transfer_free(route_transfer *tr) {
    if (!tr) return;
    BASE_ASSERT(!tr->rr && !tr->handle.is_dirty); /* no request has it, and no list */
    if (tr->handle.easy) curl_easy_cleanup(tr->handle.easy);
    curl_slist_free_all(tr->headers);
    base_buffer_free(&tr->bytes);
    base_buffer_free(&tr->held);
    base_free(tr->tokens);
    base_free(tr);
}

/* ---- the reply's head ---- */

static bool is_header(const char *line, size_t n, const char *name, char *value, size_t value_bytes) {
    const size_t length = strlen(name);
    if (n <= length || strncasecmp(line, name, length) != 0 || line[length] != ':') return false;
    size_t begin = length + 1;
    while (begin < n && (line[begin] == ' ' || line[begin] == '\t')) begin++;
    while (n > begin && strchr(" \t\r\n", line[n - 1])) n--;
    const size_t most = BASE_MIN(n - begin, value_bytes - 1);
    memcpy(value, line + begin, most);
    value[most] = '\0';
    return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    route_transfer *tr = user;
    char value[64];
    (void)size;
    if ((tr->head_bytes += n) > HEAD_BYTES) {
        tr->broken = "endless head";
        return 0;
    }
    if (n > 9 && strncmp(line, "HTTP/1.", 7) == 0) {
        tr->status = atoi(line + 9);
        pthread_mutex_lock(&tr->t->lock); /* a sign of life */
        if (tr->rr) cluster_router_heard(tr->t->router, &tr->rr->r, base_clock_us(), true);
        pthread_mutex_unlock(&tr->t->lock);
    } else if (is_header(line, n, "Content-Type", tr->content_type, sizeof(tr->content_type))) return n;
    else if (is_header(line, n, "Retry-After", value, sizeof(value)))
        tr->retry_after_ms = 1000 * (uint64_t)strtoull(value, NULL, 10);
    else if (is_header(line, n, CLUSTER_REFUSAL_HEADER, value, sizeof(value)))
        tr->refusal = cluster_refusal_read(value);
    else if (is_header(line, n, CLUSTER_MARKS_HEADER, value, sizeof(value))) tr->has_marks = strcmp(value, "1") == 0;
    return n;
}

/* ---- the reply's body ---- */

/* Passes new bytes on to the client. Under lock. */
static void transfer_relay(route_transfer *tr) {
    route_request *rr = tr->rr;
    BASE_ASSERT(tr->relays && rr->transfer == tr);
    if (tr->bytes.len == 0) return;
    if (!rr->r.began) cluster_router_began(tr->t->router, &rr->r);
    if (!tr->rr) return; /* refused after the prefill */
    if (rr->first_us == 0) {
        base_buffer_clear(&rr->held); /* an earlier refusal of another node */
        rr->status = tr->status;
        snprintf(rr->content_type, sizeof(rr->content_type), "%s", tr->content_type);
        rr->first_us = base_clock_us();
        histogram_add_us(&tr->t->server->counts.first_token, rr->first_us - rr->x->arrived_us);
    }
    route_relay(rr, &tr->bytes);
    cluster_router_progress(tr->t->router, &rr->r, (int32_t)route_frames_n_tokens(&rr->frames));
}

/* From here on the reply is passed on. Under lock. */
static void transfer_begin_relay(route_transfer *tr, bool has_marks) {
    BASE_ASSERT(!tr->relays && tr->rr->transfer == tr);
    tr->relays = true;
    tr->rr->r.continues &= has_marks;
    if (!tr->rr->r.began) route_frames_forget(&tr->rr->frames);
    route_frames_restart(&tr->rr->frames, has_marks);
}

/* Under lock. */
static bool transfer_take(route_transfer *tr, const char *bytes, size_t n) {
    route_request *rr = tr->rr;
    const bool is_fine = tr->status == 200;
    const bool is_stream = strncmp(tr->content_type, "text/event-stream", 17) == 0 ||
                           strncmp(tr->content_type, "application/x-ndjson", 20) == 0;
    if (is_fine && !tr->relays && rr->wants_stream && is_stream) transfer_begin_relay(tr, tr->has_marks);
    if (is_fine && !tr->relays && tr->held.len + n > ROUTE_HELD_BYTES) {
        transfer_begin_relay(tr, false);
        base_buffer held = tr->held;
        tr->held = BASE_BUFFER(SERVER_REPLY_BYTES);
        int failed = base_buffer_append(&tr->bytes, held.data, held.len);
        base_buffer_free(&held);
        if (failed) return false;
    }
    if (!is_fine && tr->held.len + n > ROUTE_HELD_BYTES) { /* errors are shorter */
        tr->broken = "endless error";
        return false;
    }
    if (!tr->relays) return base_buffer_append(&tr->held, bytes, n) == 0;
    const int rc = route_frames_feed(&rr->frames, bytes, n, &tr->bytes);
    if (rc == RP_ERR_FORMAT) tr->broken = "malformed mark";
    else if (rc) tr->broken = rc == RP_ERR_LIMIT ? "frames without a mark" : "out of memory";
    transfer_relay(tr); /* also before an error: another node continues after the last mark */
    return rc == 0;
}

/* Does the client read more slowly than the node writes? Pauses the transfer then. */
static bool client_is_slow(route_request *rr) {
    server_request *x = rr->x;
    pthread_mutex_lock(&x->lock);
    const bool slow =
        rr->out.len >= ROUTE_UNREAD_BYTES ||
        (rr->out.len > 0 && atomic_load(&x->server->pending_bytes) > x->server->options.reply_buffer_bytes);
    rr->is_paused = slow;
    pthread_mutex_unlock(&x->lock);
    if (slow) atomic_fetch_add(&x->server->counts.pauses, 1);
    return slow;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
    route_transfer *tr = user;
    size_t result = n;
    (void)size;
    pthread_mutex_lock(&tr->t->lock);
    if (tr->rr) cluster_router_heard(tr->t->router, &tr->rr->r, base_clock_us(), true);
    if (!tr->rr) result = 0; /* dropped: the transfer ends */
    else if (tr->relays && client_is_slow(tr->rr)) result = CURL_WRITEFUNC_PAUSE;
    else {
        const request_memory_visit visit = request_memory_enter(tr->rr->x);
        if (!transfer_take(tr, bytes, n)) result = 0;
        request_memory_leave(visit);
    }
    pthread_mutex_unlock(&tr->t->lock);
    return result;
}

CURL *route_transfer_handle(const route_request *rr) { return rr->transfer ? rr->transfer->handle.easy : NULL; }

/* ---- the request ---- */

/* Under lock. */
static size_t transfer_send(route_transfer *tr, char *to, size_t n) {
    size_t at = tr->sent, written = 0;
    for (int i = 0; i < 2 && written < n; i++) {
        const route_part *part = &tr->body[i];
        if (at >= part->n) {
            at -= part->n;
            continue;
        }
        const size_t some = BASE_MIN(part->n - at, n - written);
        memcpy(to + written, (const char *)part->bytes + at, some);
        written += some;
        at = 0;
    }
    tr->sent += written;
    return written;
}

/* The body belongs to the request, which may be freed once it has ended: it is read under lock. */
static size_t on_send(char *to, size_t size, size_t n, void *user) {
    route_transfer *tr = user;
    pthread_mutex_lock(&tr->t->lock);
    const size_t written = tr->rr ? transfer_send(tr, to, size * n) : CURL_READFUNC_ABORT;
    if (tr->rr && written > 0) cluster_router_heard(tr->t->router, &tr->rr->r, base_clock_us(), false);
    pthread_mutex_unlock(&tr->t->lock);
    return written;
}

/* If the node has closed an idle connection, curl sends the request again on a new one. */
static int on_seek(void *user, curl_off_t offset, int origin) {
    route_transfer *tr = user;
    if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_FAIL;
    tr->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Appends the tokens so far to the body: little-endian, as in memory. */
static int add_tokens(route_transfer *tr, char resume[CLUSTER_RESUME_BYTES]) {
    const route_frames *f = &tr->rr->frames;
    const cluster_resume r = {route_frames_n_tokens(f), f->text_bytes, f->n_frames};
    const size_t n = f->tokens.len;
    if (!(tr->tokens = base_alloc(n + 1))) return RP_ERR_MEMORY;
    if (n > 0) memcpy(tr->tokens, f->tokens.data, n);
    tr->body[1] = (route_part){tr->tokens, n};
    cluster_resume_write(resume, &r);
    return RP_OK;
}

static int add_headers(route_transfer *tr, const cluster_node_status *node) {
    route_request *rr = tr->rr;
    char line[CLUSTER_ROUTE_BYTES], resume[CLUSTER_RESUME_BYTES];
    bool failed = false;
    cluster_route to = {
        .epoch = node->hello->epoch, .seed = rr->x->answers->seed, .created = rr->created, .marks = rr->r.continues};
    snprintf(to.id, sizeof(to.id), "%s", rr->x->id);
    const uint64_t deadline_us = rr->r.deadline_us;
    if (deadline_us) { /* its rest, which the node counts from the arrival of the request; at least 1 */
        const uint64_t now = base_clock_us();
        to.left_ms = deadline_us > now ? (int64_t)((deadline_us - now + 999) / 1000) : 1;
    }
    cluster_route_write(line, &to);
    if (rr->r.began && add_tokens(tr, resume)) return RP_ERR_MEMORY;
    struct curl_slist *list = NULL; /* a copy of the request's */
    for (const struct curl_slist *one = rr->headers; one && !failed; one = one->next)
        failed = !(list = route_add_line(list, one->data));
    if (failed) return RP_ERR_MEMORY;
    tr->headers =
        route_sign(tr->t, list, rr->x->method, rr->target, line, rr->r.began ? resume : NULL, tr->body, 2, NULL);
    return tr->headers ? RP_OK : RP_ERR_MEMORY;
}

static int transfer_prepare(route_transfer *tr, const route_node *n) {
    char url[ROUTE_URL_BYTES + ROUTE_TARGET_BYTES];
    route_request *rr = tr->rr;
    cluster_node_status node;
    if (!cluster_router_node(tr->t->router, n->number, &node)) return RP_ERR_NAME;
    tr->body[0] = (route_part){rr->x->body.data ? rr->x->body.data : "", rr->x->body.len};
    if (!(tr->handle.easy = curl_easy_init()) || add_headers(tr, &node)) return RP_ERR_MEMORY;
    const int length = snprintf(url, sizeof(url), "%s%s", n->url, rr->target);
    BASE_ASSERT(length > 0 && (size_t)length < sizeof(url)); /* else the node would not get the signed target */
    route_curl_settings(tr->handle.easy, url);
    curl_easy_setopt(tr->handle.easy, CURLOPT_POST, 1L);
    curl_easy_setopt(tr->handle.easy, CURLOPT_CUSTOMREQUEST, rr->x->method);
    curl_easy_setopt(tr->handle.easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(tr->body[0].n + tr->body[1].n));
    curl_easy_setopt(tr->handle.easy, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(tr->handle.easy, CURLOPT_READDATA, tr);
    curl_easy_setopt(tr->handle.easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(tr->handle.easy, CURLOPT_SEEKDATA, tr);
    curl_easy_setopt(tr->handle.easy, CURLOPT_HTTPHEADER, tr->headers);
    curl_easy_setopt(tr->handle.easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(tr->handle.easy, CURLOPT_HEADERDATA, tr);
    curl_easy_setopt(tr->handle.easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(tr->handle.easy, CURLOPT_WRITEDATA, tr);
    curl_easy_setopt(tr->handle.easy, CURLOPT_PRIVATE, &tr->handle);
    return RP_OK;
}

void route_note_silence(route_request *rr) {
    if (rr->n_attempts > 0 && rr->n_attempts <= ROUTE_ATTEMPTS && !rr->attempts[rr->n_attempts - 1].failure)
        rr->attempts[rr->n_attempts - 1].failure = "no sign of life";
}

static void note_attempt(route_request *rr, const char *node) {
    route_note_silence(rr);
    snprintf(rr->node_name, sizeof(rr->node_name), "%s", node);
    if (rr->r.began) rr->n_continuations++;
    if (rr->n_attempts < ROUTE_ATTEMPTS) {
        route_attempt *a = &rr->attempts[rr->n_attempts];
        *a = (route_attempt){.continues = rr->r.began};
        snprintf(a->node, sizeof(a->node), "%s", node);
    }
    rr->n_attempts++;
}

static void note_failure(route_request *rr, const char *why) {
    if (rr->n_attempts > 0 && rr->n_attempts <= ROUTE_ATTEMPTS) rr->attempts[rr->n_attempts - 1].failure = why;
}

void route_transfer_start(route_request *rr) {
    route *t = rr->t;
    const route_node *n = rr->r.node >= 0 && rr->r.node < CLUSTER_MAX_NODES ? t->nodes[rr->r.node] : NULL;
    route_transfer *tr = n ? base_calloc(1, sizeof(*tr)) : NULL;
    BASE_ASSERT(!rr->transfer && !rr->is_ended);
    note_attempt(rr, route_node_name(t, rr->r.node));
    if (rr->n_attempts == 1) histogram_add_us(&t->wait, base_clock_us() - rr->x->arrived_us);
    if (tr) {
        *tr = (route_transfer){
            .t = t, .rr = rr, .bytes = BASE_BUFFER(SERVER_REPLY_BYTES), .held = BASE_BUFFER(SERVER_REPLY_BYTES)};
        rr->transfer = tr;
        if (!transfer_prepare(tr, n) && curl_multi_add_handle(t->poll.multi, tr->handle.easy) == CURLM_OK) return;
        tr->rr = NULL;
        rr->transfer = NULL;
        route_transfer_free(tr);
    }
    note_failure(rr, "out of memory");
    cluster_router_failed(t->router, &rr->r, CLUSTER_NODE_UNREACHABLE, 0);
}

void route_transfer_drop(route_request *rr) {
    route_transfer *tr = rr->transfer;
    if (!tr) return;
    BASE_ASSERT(tr->rr == rr);
    tr->rr = NULL;
    rr->transfer = NULL;
    route_mark(rr->t, &tr->handle);
}

/* ---- the end of a transfer ---- */

/* Keeps the reply for the client. */
static void keep_reply(route_transfer *tr) {
    route_request *rr = tr->rr;
    base_buffer_free(&rr->held);
    rr->held = tr->held;
    tr->held = BASE_BUFFER(SERVER_REPLY_BYTES);
    rr->status = tr->status;
    rr->retry_after_ms = (uint32_t)BASE_MIN(tr->retry_after_ms, (uint64_t)UINT32_MAX);
    snprintf(rr->content_type, sizeof(rr->content_type), "%s", tr->content_type);
}

static void transfer_fail(route_transfer *tr, cluster_failure failure, const char *why) {
    route_request *rr = tr->rr;
    route *t = tr->t;
    const uint64_t retry_ms = tr->retry_after_ms;
    BASE_ASSERT(rr->transfer == tr);
    note_failure(rr, why);
    rr->transfer = NULL;
    tr->rr = NULL;
    cluster_router_failed(t->router, &rr->r, failure, retry_ms);
}

static void transfer_succeed(route_transfer *tr) {
    route_request *rr = tr->rr;
    BASE_ASSERT(rr->transfer == tr);
    if (tr->relays && route_frames_finish(&rr->frames, &tr->bytes)) {
        transfer_fail(tr, CLUSTER_NODE_CUT, "out of memory");
        return;
    }
    if (!tr->relays) keep_reply(tr);
    else {
        transfer_relay(tr);
        if (!tr->rr) return; /* refused after the prefill: the request may be freed */
    }
    rr->transfer = NULL;
    tr->rr = NULL;
    cluster_router_finished(tr->t->router, &rr->r);
}

static bool was_unreachable(CURLcode result) {
    return result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST ||
           result == CURLE_SSL_CONNECT_ERROR || result == CURLE_PEER_FAILED_VERIFICATION;
}

static bool is_connect_timeout(const route_transfer *tr, CURLcode result) {
    curl_off_t connected = 0;
    curl_easy_getinfo(tr->handle.easy, CURLINFO_CONNECT_TIME_T, &connected);
    return result == CURLE_OPERATION_TIMEDOUT && connected == 0;
}

void route_transfer_done(route_transfer *tr, CURLcode result) {
    if (!tr->rr) return;
    const int status = tr->status;
    if (tr->broken) transfer_fail(tr, CLUSTER_NODE_CUT, tr->broken);
    else if (was_unreachable(result) || is_connect_timeout(tr, result))
        transfer_fail(tr, CLUSTER_NODE_UNREACHABLE, "unreachable");
    else if (result != CURLE_OK) transfer_fail(tr, CLUSTER_NODE_CUT, "connection lost");
    else if (status >= 200 && status < 300) transfer_succeed(tr);
    else if (status == 503 && tr->refusal == CLUSTER_DRAINING) transfer_fail(tr, CLUSTER_NODE_DRAINS, "draining");
    else if (status == 503) transfer_fail(tr, CLUSTER_NODE_BUSY, "busy");
    else if (status == 409 && tr->refusal == CLUSTER_OTHER_PROCESS)
        transfer_fail(tr, CLUSTER_NODE_UNREACHABLE, "restarted");
    else if (status == 409 && tr->refusal == CLUSTER_REPLAYED)
        transfer_fail(tr, CLUSTER_NODE_CUT, "connection lost"); /* curl sent it again */
    else if (status == 500 || status == 502) transfer_fail(tr, CLUSTER_NODE_ERROR, "error");
    else {
        keep_reply(tr);
        if (status == 429) transfer_fail(tr, CLUSTER_NODE_LIMITS, "limits");
        else transfer_fail(tr, CLUSTER_NODE_REFUSES, "refused");
    }
}
