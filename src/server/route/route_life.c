/* SPDX-License-Identifier: Apache-2.0 */
/* route_life.c: liveness queries: which requests of this router does a node work on (docs/cluster-protocol.md, Signs of
 * life)? Their replies become calls of cluster_router_heard. One query a node at a time. Owns the queries. The network
 * thread (route_internal.h).
 *
 *   cluster_env.ask --> route_life_want: marked --> route_life_begin: sent --> route_life_done: cluster_router_heard
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/http/routing.h"
#include "server/route/route_internal.h"

#define LIFE_BYTES ((size_t)8 << 20) /* of a reply: a line of 60 bytes for each request of a node */
#define LEAST_TIMEOUT_MS 100

struct route_life {
    route_handle handle; /* first */
    route *t;
    int32_t node; /* -1: it is no longer listed */
    uint64_t asked_us;
    struct curl_slist *headers;
    base_buffer reply;
};

/* A line of the reply. */
typedef struct life_line {
    char id[CLUSTER_REQUEST_ID_BYTES];
    uint64_t quiet_ms;
} life_line;

void route_life_free(route_life *life) {
    if (!life) return;
    if (life->handle.easy) curl_easy_cleanup(life->handle.easy);
    curl_slist_free_all(life->headers);
    base_buffer_free(&life->reply);
    base_free(life);
}

void route_life_want(route *t, int32_t node) {
    route_node *n = t->nodes[node];
    if (!n || n->life || !(n->life = base_calloc(1, sizeof(*n->life)))) return; /* the next call tries again */
    *n->life = (route_life){.handle.kind = ROUTE_IS_LIFE, .t = t, .node = node, .reply = BASE_BUFFER(LIFE_BYTES)};
    route_mark(t, &n->life->handle);
}

void route_life_close(route_node *n, route *t) {
    if (!n->life) return;
    n->life->node = -1;
    route_mark(t, &n->life->handle);
    n->life = NULL;
}

static size_t on_life(char *bytes, size_t size, size_t n, void *user) {
    route_life *life = user;
    (void)size;
    return base_buffer_append(&life->reply, bytes, n) == 0 ? n : 0;
}

static int life_prepare(route_life *life, const route_node *n) {
    char url[ROUTE_URL_BYTES + sizeof(SERVER_ROUTED_REQUESTS)];
    snprintf(url, sizeof(url), "%s%s", n->url, SERVER_ROUTED_REQUESTS);
    life->headers = route_sign(life->t, NULL, "GET", SERVER_ROUTED_REQUESTS, NULL, NULL, NULL, 0, NULL);
    if (!life->headers || !(life->handle.easy = curl_easy_init())) return RP_ERR_MEMORY;
    CURL *easy = life->handle.easy;
    route_curl_settings(easy, url);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                     (long)BASE_MAX(life->t->options.node_timeout_us / 2000, (uint64_t)LEAST_TIMEOUT_MS));
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, life->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_life);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, life);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, &life->handle);
    return RP_OK;
}

static void life_end(route_life *life) {
    if (life->node >= 0) {
        BASE_ASSERT(life->t->nodes[life->node]->life == life);
        life->t->nodes[life->node]->life = NULL;
    }
    route_life_free(life);
}

/* A paused request waits for its client: its silence is not the node's. */
static void spare_paused(void *user, cluster_request *r) {
    route *t = user;
    route_request *rr = (route_request *)(void *)r;
    pthread_mutex_lock(&rr->x->lock);
    const bool is_paused = rr->is_paused;
    pthread_mutex_unlock(&rr->x->lock);
    if (is_paused) cluster_router_heard(t->router, r, base_clock_us(), false);
}

void route_life_begin(route_life *life) {
    route *t = life->t;
    if (life->node < 0) {
        if (life->handle.easy) curl_multi_remove_handle(t->poll.multi, life->handle.easy);
        route_life_free(life);
        return;
    }
    BASE_ASSERT(!life->handle.easy && t->nodes[life->node]->life == life);
    life->asked_us = base_clock_us();
    cluster_router_each_sent(t->router, life->node, spare_paused, t);
    if (life_prepare(life, t->nodes[life->node]) || curl_multi_add_handle(t->poll.multi, life->handle.easy) != CURLM_OK)
        life_end(life);
}

/* ---- the reply ---- */

static int compare_lines(const void *a, const void *b) {
    return strcmp(((const life_line *)a)->id, ((const life_line *)b)->id);
}

/* Reads "ID MILLISECONDS" from [text, end). false: malformed. */
static bool read_line(life_line *out, const char *text, const char *end) {
    const char *space = memchr(text, ' ', (size_t)(end - text));
    char *digits_end;
    if (!space || space == text || (size_t)(space - text) >= sizeof(out->id)) return false;
    if (space + 1 == end || strspn(space + 1, "0123456789") == 0) return false;
    memcpy(out->id, text, (size_t)(space - text));
    out->id[space - text] = '\0';
    errno = 0;
    out->quiet_ms = strtoull(space + 1, &digits_end, 10);
    return digits_end == end && errno == 0;
}

typedef struct life_lines {
    route *t;
    life_line *lines; /* sorted by id */
    size_t n;
    uint64_t asked_us;
    bool knows_nothing; /* the node has no such route: all its requests count as alive */
} life_lines;

/* Reads lines up to the first malformed one. */
static void read_lines(life_lines *l, const base_buffer *reply) {
    const char *at = reply->data, *end = reply->data + reply->len;
    size_t cap = 0;
    for (const char *line_end; at < end && (line_end = memchr(at, '\n', (size_t)(end - at))); at = line_end + 1) {
        if (base_grow((void **)&l->lines, &cap, l->n + 1, CLUSTER_MAX_REQUESTS, sizeof(*l->lines))) break;
        if (!read_line(&l->lines[l->n], at, line_end)) break;
        l->n++;
    }
    if (l->n > 0) qsort(l->lines, l->n, sizeof(*l->lines), compare_lines);
}

static void hear_request(void *user, cluster_request *r) {
    const life_lines *l = user;
    const route_request *rr = (const route_request *)(const void *)r;
    life_line wanted = {.quiet_ms = 0};
    snprintf(wanted.id, sizeof(wanted.id), "%s", rr->x->id);
    const life_line *found = l->n > 0 ? bsearch(&wanted, l->lines, l->n, sizeof(wanted), compare_lines) : NULL;
    if (found && found->quiet_ms < l->asked_us / 1000)
        cluster_router_heard(l->t->router, r, l->asked_us - found->quiet_ms * 1000, true);
    else if (l->knows_nothing) cluster_router_heard(l->t->router, r, l->asked_us, false);
}

void route_life_done(route_life *life, CURLcode result) {
    route *t = life->t;
    long status = 0;
    curl_easy_getinfo(life->handle.easy, CURLINFO_RESPONSE_CODE, &status);
    life_lines l = {.t = t, .asked_us = life->asked_us, .knows_nothing = result == CURLE_OK && status == 404};
    if (result == CURLE_OK && status == 200 && life->reply.len > 0) read_lines(&l, &life->reply);
    if (l.n > 0 || l.knows_nothing) cluster_router_each_sent(t->router, life->node, hear_request, &l);
    base_free(l.lines);
    curl_multi_remove_handle(t->poll.multi, life->handle.easy);
    life_end(life);
}
