/* SPDX-License-Identifier: Apache-2.0 */
/* route_ask.c: synchronous requests to nodes: schemas, reports, requests of operators (route_internal.h). Owns the
 * replies until route_replies_free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/route/route_internal.h"

#define WAIT_MS 100
#define MOST_ASKING (SERVER_WORKERS / 2)
#define BUSY_RETRY_MS 1000
#define NO_REPLY "no reply"

/* The transfer of one reply. */
typedef struct asking {
    route_reply *reply;
    CURL *easy;
    struct curl_slist *headers;
    bool is_over;
} asking;

int32_t route_find_node(route *t, const char *name) {
    int32_t found = -1;
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES && found < 0; i++)
        if (t->nodes[i] && strcmp(t->nodes[i]->name, name) == 0) found = i;
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* Does the request go to node i? To a single one whatever its health is, for the error. Under lock. */
static bool is_target(const route *t, int32_t i, int32_t only) {
    cluster_node_status s;
    if (!t->nodes[i] || (only >= 0 && i != only)) return false;
    return only >= 0 || (cluster_router_node(t->router, i, &s) && s.health == CLUSTER_WELL);
}

route_reply *route_replies_new(route *t, int32_t only, int32_t *n) {
    route_reply *replies = NULL;
    size_t cap = 0;
    bool failed = false;
    *n = 0;
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES && !failed; i++) {
        if (!is_target(t, i, only)) continue;
        failed = base_grow((void **)&replies, &cap, (size_t)*n + 1, CLUSTER_MAX_NODES, sizeof(*replies)) != 0;
        if (failed) break;
        route_reply *r = &replies[(*n)++];
        *r = (route_reply){.node = i, .body = BASE_BUFFER(ROUTE_ASK_BYTES)};
        snprintf(r->name, sizeof(r->name), "%s", t->nodes[i]->name);
        snprintf(r->url, sizeof(r->url), "%s", t->nodes[i]->url);
    }
    pthread_mutex_unlock(&t->lock);
    if (!failed) return replies;
    base_free(replies);
    *n = 0;
    return NULL;
}

void route_replies_free(route_reply *replies, int32_t n) {
    for (int32_t i = 0; i < n; i++) base_buffer_free(&replies[i].body);
    base_free(replies);
}

static size_t on_reply(char *bytes, size_t size, size_t n, void *user) {
    route_reply *r = user;
    (void)size;
    return base_buffer_append(&r->body, bytes, n) == 0 ? n : 0;
}

/* Writes x-reprise-route with the node's epoch: a recorded request cannot be replayed to a later process. x NULL: a
 * request of the router itself. */
static int write_route(route *t, char line[CLUSTER_ROUTE_BYTES], const route_reply *r, const server_request *x) {
    cluster_route to = {.epoch = 0, .created = (int64_t)time(NULL)};
    cluster_node_status s;
    pthread_mutex_lock(&t->lock);
    if (cluster_router_node(t->router, r->node, &s)) to.epoch = s.hello->epoch;
    pthread_mutex_unlock(&t->lock);
    snprintf(to.id, sizeof(to.id), "%s", x ? x->id : "router");
    cluster_route_write(line, &to);
    return to.epoch ? RP_OK : RP_ERR_NAME;
}

static int asking_prepare(route *t, asking *a, const route_question *q) {
    char line[CLUSTER_ROUTE_BYTES];
    char url[ROUTE_URL_BYTES + ROUTE_TARGET_BYTES];
    const route_part body = {q->body ? q->body : "", q->n_body};
    for (const struct curl_slist *h = q->headers; h; h = h->next)
        if (!(a->headers = route_add_line(a->headers, h->data))) return RP_ERR_MEMORY;
    if (!q->headers && (!(a->headers = route_add_line(NULL, "Content-Type: application/xml")) ||
                        !(a->headers = route_add_line(a->headers, "Expect:"))))
        return RP_ERR_MEMORY;
    randombytes_buf(a->reply->nonce, sizeof(a->reply->nonce));
    if (write_route(t, line, a->reply, q->x)) return RP_ERR_NAME;
    a->headers = route_sign(t, a->headers, q->method, q->target, line, NULL, &body, 1, a->reply->nonce);
    if (!a->headers || !(a->easy = curl_easy_init())) return RP_ERR_MEMORY;
    const int length = snprintf(url, sizeof(url), "%s%s", a->reply->url, q->target);
    BASE_ASSERT(length > 0 && (size_t)length < sizeof(url)); /* else the node would not get the signed target */
    route_curl_settings(a->easy, url);
    curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, a->headers);
    curl_easy_setopt(a->easy, CURLOPT_CUSTOMREQUEST, q->method);
    if (strcmp(q->method, "HEAD") == 0) curl_easy_setopt(a->easy, CURLOPT_NOBODY, 1L);
    if (q->n_body > 0) {
        curl_easy_setopt(a->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_body);
        curl_easy_setopt(a->easy, CURLOPT_POSTFIELDS, q->body);
    }
    curl_easy_setopt(a->easy, CURLOPT_TIMEOUT_MS, (long)q->timeout_ms);
    if (!q->computes && t->options.node_timeout_us) { /* in seconds, at least one */
        curl_easy_setopt(a->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(a->easy, CURLOPT_LOW_SPEED_TIME, (long)((t->options.node_timeout_us + 999999) / 1000000));
    }
    curl_easy_setopt(a->easy, CURLOPT_WRITEFUNCTION, on_reply);
    curl_easy_setopt(a->easy, CURLOPT_WRITEDATA, a->reply);
    curl_easy_setopt(a->easy, CURLOPT_ERRORBUFFER, a->reply->error);
    curl_easy_setopt(a->easy, CURLOPT_PRIVATE, a);
    return RP_OK;
}

/* Has the client disconnected? */
static bool is_cancelled(server_request *x) {
    if (!x) return false;
    pthread_mutex_lock(&x->lock);
    const bool gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return gone;
}

static void take_reply(asking *a, CURLcode result) {
    route_reply *r = a->reply;
    long status = 0;
    char *type = NULL;
    struct curl_header *refusal = NULL;
    curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(a->easy, CURLINFO_CONTENT_TYPE, &type);
    a->is_over = true;
    r->status = result == CURLE_OK ? (int)status : 0;
    snprintf(r->content_type, sizeof(r->content_type), "%s", type ? type : "");
    if (r->status == 409 &&
        curl_easy_header(a->easy, CLUSTER_REFUSAL_HEADER, 0, CURLH_HEADER, -1, &refusal) == CURLHE_OK &&
        cluster_refusal_read(refusal->value) == CLUSTER_OTHER_PROCESS) {
        r->status = 0;
        snprintf(r->error, sizeof(r->error), "it has restarted");
        return;
    }
    if (result == CURLE_OK) snprintf(r->error, sizeof(r->error), "status %ld", status);
    else if (!r->error[0] || strcmp(r->error, NO_REPLY) == 0)
        snprintf(r->error, sizeof(r->error), "%s", curl_easy_strerror(result));
}

/* Ends transfers to nodes that are dead. Returns their number. */
static int end_dead(route *t, CURLM *multi, asking *all, int32_t n) {
    cluster_node_status s;
    int ended = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!all[i].easy || all[i].is_over) continue;
        pthread_mutex_lock(&t->lock);
        const bool is_dead = !cluster_router_node(t->router, all[i].reply->node, &s) || s.health == CLUSTER_DEAD;
        pthread_mutex_unlock(&t->lock);
        if (!is_dead) continue;
        all[i].is_over = true;
        ended++;
        snprintf(all[i].reply->error, sizeof(all[i].reply->error), "no sign of life");
        curl_multi_remove_handle(multi, all[i].easy);
    }
    return ended;
}

static void run_all(route *t, CURLM *multi, const route_question *q, asking *all, int32_t n) {
    int running = 1, left;
    while (running > 0 && !is_cancelled(q->x)) {
        if (curl_multi_perform(multi, &running)) break;
        for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
            char *a = NULL;
            const CURLcode result = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &a);
            take_reply((asking *)(void *)a, result);
        }
        if (q->of_the_living && running > 0) running -= end_dead(t, multi, all, n);
        if (running > 0) curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL);
    }
}

bool route_begin_ask(server_request *x) {
    if (atomic_fetch_add(&x->server->route->n_asking, 1) < MOST_ASKING) return true;
    route_end_ask(x->server->route);
    server_fail(&x->problem, SERVER_BUSY, NULL, "too many requests wait for replies of nodes: retry later");
    x->problem.retry_after_ms = BUSY_RETRY_MS;
    return false;
}

void route_end_ask(route *t) {
    const int before = atomic_fetch_sub(&t->n_asking, 1);
    BASE_ASSERT(before > 0);
}

void route_ask(route *t, const route_question *q, route_reply *replies, int32_t n) {
    CURLM *multi = curl_multi_init();
    asking *all = base_calloc((size_t)BASE_MAX(n, 1), sizeof(*all));
    for (int32_t i = 0; i < n; i++) {
        replies[i].status = 0; /* of an earlier request */
        replies[i].content_type[0] = '\0';
        base_buffer_clear(&replies[i].body);
        snprintf(replies[i].error, sizeof(replies[i].error), "%s", multi && all ? NO_REPLY : "out of memory");
        if (!multi || !all) continue;
        all[i].reply = &replies[i];
        const int rc = asking_prepare(t, &all[i], q);
        const char *why = rc == RP_ERR_NAME ? "no span stream of it was received yet" : "out of memory";
        if (rc) snprintf(replies[i].error, sizeof(replies[i].error), "%s", why);
        else curl_multi_add_handle(multi, all[i].easy);
    }
    if (multi && all) run_all(t, multi, q, all, n);
    for (int32_t i = 0; all && i < n; i++) {
        if (all[i].easy) curl_multi_remove_handle(multi, all[i].easy);
        if (all[i].easy) curl_easy_cleanup(all[i].easy);
        curl_slist_free_all(all[i].headers);
    }
    if (multi) curl_multi_cleanup(multi);
    base_free(all);
}
