/* SPDX-License-Identifier: Apache-2.0 */
/* route_network.c: the network thread: span streams of nodes, transfers of requests, and the transport of the
 * cluster_router (cluster_env). Owns the streams (route_internal.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "server/route/route_internal.h"

#define LOOK_EVERY_US 20000
#define MOST_WAIT_MS 1000
#define IDLE_CONNECTIONS 4096 /* kept open, to all nodes together */

/* A span stream. A closed one may exist beside the node's next one. */
struct route_stream {
    route_handle handle; /* first */
    route *t;
    int32_t node; /* -1: it was closed. Under lock */
    struct curl_slist *headers;
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    uint64_t epoch, after;
};

/* ---- span streams ---- */

static void stream_free(route_stream *s) {
    if (!s) return;
    if (s->handle.easy) curl_easy_cleanup(s->handle.easy);
    curl_slist_free_all(s->headers);
    base_free(s);
}

static size_t on_stream(char *bytes, size_t size, size_t n, void *user) {
    route_stream *s = user;
    long status = 0;
    (void)size;
    curl_easy_getinfo(s->handle.easy, CURLINFO_RESPONSE_CODE, &status);
    pthread_mutex_lock(&s->t->lock);
    const bool is_open = s->node >= 0;
    if (is_open && status == 200) cluster_router_fed(s->t->router, s->node, bytes, n);
    pthread_mutex_unlock(&s->t->lock);
    return is_open && status == 200 ? n : 0;
}

static int stream_prepare(route_stream *s, const route_node *n) {
    char target[96], url[ROUTE_URL_BYTES + sizeof(target)];
    snprintf(target, sizeof(target), "/v1/cluster/stream?epoch=%016" PRIx64 "&after=%" PRIu64, s->epoch, s->after);
    snprintf(url, sizeof(url), "%s%s", n->url, target);
    s->headers = route_sign(s->t, NULL, "GET", target, NULL, NULL, NULL, 0, s->nonce);
    if (!s->headers || !(s->handle.easy = curl_easy_init())) return RP_ERR_MEMORY;
    route_curl_settings(s->handle.easy, url);
    curl_easy_setopt(s->handle.easy, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->handle.easy, CURLOPT_WRITEFUNCTION, on_stream);
    curl_easy_setopt(s->handle.easy, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->handle.easy, CURLOPT_PRIVATE, &s->handle);
    return RP_OK;
}

/* Under lock. */
static void stream_begin(route_stream *s) {
    route *t = s->t;
    route_node *n = s->node >= 0 ? t->nodes[s->node] : NULL;
    BASE_ASSERT(!s->handle.easy && (!n || n->stream == s));
    if (n) route_apply_drain(t, n);
    if (n && !stream_prepare(s, n) && curl_multi_add_handle(t->poll.multi, s->handle.easy) == CURLM_OK) return;
    const int32_t node = s->node;
    if (n) n->stream = NULL;
    stream_free(s);
    if (node >= 0) cluster_router_cut(t->router, node);
}

/* The stream has ended by itself. Under lock. */
static void stream_done(route_stream *s) {
    route *t = s->t;
    const int32_t node = s->node;
    BASE_ASSERT(node < 0 || t->nodes[node]->stream == s);
    if (node >= 0) t->nodes[node]->stream = NULL;
    curl_multi_remove_handle(t->poll.multi, s->handle.easy);
    stream_free(s);
    if (node >= 0) cluster_router_cut(t->router, node);
}

/* ---- cluster_env ---- */

static uint64_t env_now(void *user) {
    (void)user;
    return base_clock_us();
}

static uint64_t env_random(void *user) {
    uint64_t r;
    (void)user;
    randombytes_buf(&r, sizeof(r));
    return r;
}

static void env_close_stream(void *user, int32_t node) {
    route *t = user;
    route_node *n = t->nodes[node];
    route_stream *s = n ? n->stream : NULL;
    if (!s) return;
    BASE_ASSERT(s->node == node);
    s->node = -1;
    n->stream = NULL;
    route_mark(t, &s->handle);
}

static void env_open_stream(void *user, int32_t node, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch,
                            uint64_t after) {
    route *t = user;
    route_node *n = t->nodes[node];
    if (!n) return;
    env_close_stream(user, node);
    if (route_schemas_digest(t) != 0) n->is_held = true; /* it may have restarted: route_planner_look */
    route_stream *s = base_calloc(1, sizeof(*s));
    n->must_cut = s == NULL;
    if (!s) return;
    *s = (route_stream){.handle.kind = ROUTE_IS_STREAM, .t = t, .node = node, .epoch = epoch, .after = after};
    memcpy(s->nonce, nonce, sizeof(s->nonce));
    n->stream = s;
    route_mark(t, &s->handle);
}

static void env_send(void *user, cluster_request *r) {
    route *t = user;
    route_request *rr = (route_request *)(void *)r;
    BASE_ASSERT(rr->is_submitted && !rr->is_ended);
    if (rr->must_send) return;
    rr->must_send = true;
    BASE_LIST_APPEND(&t->send, rr, send);
}

static void unlink_send(route *t, route_request *rr) {
    if (!rr->must_send) return;
    rr->must_send = false;
    BASE_LIST_REMOVE(&t->send, rr, send);
}

static void env_ask(void *user, int32_t node) { route_life_want(user, node); }

static void env_cancel(void *user, cluster_request *r) {
    route_request *rr = (route_request *)(void *)r;
    unlink_send(user, rr);
    route_transfer_drop(rr);
}

static void env_end(void *user, cluster_request *r, cluster_outcome outcome, uint64_t retry_after_ms) {
    route_request *rr = (route_request *)(void *)r;
    env_cancel(user, r);
    if (outcome == CLUSTER_FAILED) route_note_silence(rr);
    route_report_keep(rr, outcome);
    route_deliver(rr, outcome, retry_after_ms);
}

/* ---- the thread ---- */

/* Opens, sends or removes a marked transfer. Under lock. */
static void network_process_handle(route *t, route_handle *h) {
    route_stream *s = (route_stream *)(void *)h;
    if (h->kind == ROUTE_IS_LIFE) {
        route_life_begin((route_life *)(void *)h);
        return;
    }
    if (h->kind == ROUTE_IS_STREAM && s->node >= 0) {
        stream_begin(s);
        return;
    }
    if (h->easy) curl_multi_remove_handle(t->poll.multi, h->easy);
    if (h->kind == ROUTE_IS_STREAM) stream_free(s);
    else route_transfer_free((route_transfer *)(void *)h);
}

/* Processes marked handles and requests to be sent, which may add others. Under lock. */
static void network_process_marked(route *t) {
    while (t->dirty.first || t->send.first) {
        route_handle *h = t->dirty.first;
        route_request *rr = t->send.first;
        if (h) {
            BASE_LIST_REMOVE(&t->dirty, h, dirty);
            h->is_dirty = false;
            network_process_handle(t, h);
        } else {
            unlink_send(t, rr);
            route_transfer_start(rr);
        }
    }
}

/* Carries out commands for a request, which may be freed afterwards. Under lock. */
static void network_take_command(route *t, route_request *rr, unsigned commands) {
    const bool begins = (commands & ROUTE_SUBMIT) && !rr->is_submitted,
               ends = (commands & ROUTE_CANCEL) && !rr->is_ended;
    const bool was_submitted = rr->is_submitted;
    rr->is_submitted |= begins;
    if (begins && ends) route_deliver(rr, CLUSTER_CANCELLED, 0);
    else if (begins) cluster_router_submit(t->router, &rr->r);
    else if (ends && was_submitted) cluster_router_cancelled(t->router, &rr->r);
}

static void network_take_commands(route *t) {
    for (bool has_one = true; has_one;) {
        unsigned commands = 0;
        CURL *resumed = NULL;
        pthread_mutex_lock(&t->lock);
        route_request *rr = route_next_posted(t, &commands);
        has_one = rr != NULL;
        if (rr && commands & ROUTE_RESUME) resumed = route_transfer_handle(rr);
        if (rr) network_take_command(t, rr, commands);
        pthread_mutex_unlock(&t->lock);
        if (resumed) curl_easy_pause(resumed, CURLPAUSE_CONT); /* calls on_body, which locks */
    }
}

/* Under lock. */
static void network_look(route *t) {
    cluster_node_status s;
    int n = 0;
    for (int32_t i = 0; i < cluster_router_nodes(t->router); i++) {
        const bool is_there = cluster_router_node(t->router, i, &s) && t->nodes[i];
        n += is_there && s.health == CLUSTER_WELL && !s.draining;
        if (is_there && s.counts->ignored > 0 && !t->nodes[i]->logged_ignored) {
            t->nodes[i]->logged_ignored = true;
            base_log(BASE_LOG_WARN,
                     "route: node '%s' reports more names than its KV budgets or its share of --index-ram allow: "
                     "the rest is ignored",
                     t->nodes[i]->name);
        }
        if (!is_there || !t->nodes[i]->must_cut) continue;
        t->nodes[i]->must_cut = false;
        cluster_router_cut(t->router, i);
    }
    atomic_store(&t->n_well, n);
    route_planner_look(t);
}

/* Processes commands, timers and marked handles. Returns the milliseconds until the next timer. */
static int network_turn(route *t) {
    network_take_commands(t);
    pthread_mutex_lock(&t->lock);
    const uint64_t next = cluster_router_tick(t->router);
    if (base_clock_us() - t->looked_us >= LOOK_EVERY_US) {
        network_look(t);
        t->looked_us = base_clock_us();
    }
    network_process_marked(t);
    pthread_mutex_unlock(&t->lock);
    const uint64_t now = base_clock_us();
    return next <= now ? 0 : (int)BASE_MIN((next - now + 999) / 1000, (uint64_t)MOST_WAIT_MS);
}

/* A transfer has ended. A marked one is processed later. Under lock. */
static void network_done(route *t, route_handle *h, CURLcode result) {
    if (h->is_dirty) return;
    if (h->kind == ROUTE_IS_STREAM) {
        stream_done((route_stream *)(void *)h);
        return;
    }
    if (h->kind == ROUTE_IS_LIFE) {
        route_life_done((route_life *)(void *)h, result);
        return;
    }
    BASE_ASSERT(h->kind == ROUTE_IS_REQUEST);
    route_transfer *tr = (route_transfer *)(void *)h;
    route_transfer_done(tr, result);
    if (h->is_dirty) return; /* the request has ended: the transfer is marked */
    curl_multi_remove_handle(t->poll.multi, h->easy);
    route_transfer_free(tr);
}

static void network_take_done(route *t) {
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(t->poll.multi, &left));) {
        char *handle = NULL;
        const CURLcode result = m->data.result;
        if (m->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &handle);
        pthread_mutex_lock(&t->lock);
        network_done(t, (route_handle *)(void *)handle, result);
        pthread_mutex_unlock(&t->lock);
    }
}

static void *network_run(void *user) {
    route *t = user;
    int wait_ms = 0;
    while (!atomic_load(&t->stops)) {
        route_poll_wait(&t->poll, wait_ms);
        network_take_done(t);
        wait_ms = network_turn(t);
    }
    return NULL;
}

int route_network_start(route *t, rp_error *err) {
    const cluster_env env = {t, env_now, env_random, env_open_stream, env_close_stream,
                             env_send, env_cancel, env_ask, env_end};
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) return base_fail(err, RP_ERR_MEMORY, "libcurl cannot be initialized");
    int rc = route_poll_open(&t->poll, err);
    if (rc) return rc;
    curl_multi_setopt(t->poll.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(t->poll.multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS);
    t->options.secret = t->secret;
    rc = cluster_router_new(&t->router, &t->options, &env, err);
    if (rc) return rc;
    const int failed = base_thread_start(&t->network, network_run, t);
    t->has_network = failed == 0;
    return failed ? base_fail(err, RP_ERR_IO, "cannot start a thread: %s", strerror(failed)) : RP_OK;
}

/* All requests are freed. */
void route_network_stop(route *t) {
    if (t->has_network) {
        atomic_store(&t->stops, true);
        route_wake(t);
        pthread_join(t->network, NULL);
        t->has_network = false;
    }
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++)
        if (t->nodes[i]) {
            env_close_stream(t, i);
            route_life_close(t->nodes[i], t);
        }
    if (t->poll.multi) network_process_marked(t);
    cluster_router_free(t->router);
    t->router = NULL;
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++) {
        base_free(t->nodes[i]);
        t->nodes[i] = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    route_poll_close(&t->poll);
}
