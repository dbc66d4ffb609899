/* SPDX-License-Identifier: Apache-2.0 */
/* router.c: the functions of router.h: calls of the transport. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/router_internal.h"

cluster_router_options cluster_router_defaults(void) {
    return (cluster_router_options){
        .policy = CLUSTER_POLICY_COST,
        .admission = CLUSTER_ADMISSION_PREDICTED,
        .near_ties = 0.05,
        .max_queue = 4096,
        .max_sent = 4,
        .retry_share = 0.1,
        .speculative_us = 2000000,
        .node_timeout_us = 60000000,
        .index_bytes = (uint64_t)512 << 20,
        .pool_bytes = (uint64_t)32 << 20,
    };
}

const char *cluster_outcome_name(cluster_outcome outcome) {
    static const char *const names[CLUSTER_N_OUTCOMES] = {
        [CLUSTER_SERVED] = "served",
        [CLUSTER_REFUSED_TTFT] = "refused-ttft",
        [CLUSTER_REFUSED_ITL] = "refused-itl",
        [CLUSTER_REFUSED_QUEUE] = "refused-queue",
        [CLUSTER_REFUSED_BUSY] = "refused-busy",
        [CLUSTER_NO_NODE] = "no-node",
        [CLUSTER_LATE] = "late",
        [CLUSTER_FAILED] = "failed",
        [CLUSTER_ANSWERED] = "answered",
        [CLUSTER_CANCELLED] = "cancelled",
    };
    return (unsigned)outcome < CLUSTER_N_OUTCOMES ? names[outcome] : "unknown";
}

void cluster_request_close(cluster_request *r) {
    BASE_ASSERT(!r->own); /* it has ended */
    base_free(r->candidates);
    r->candidates = NULL;
    r->n_candidates = 0;
}

/* The table's functions must not call the router: no request may change while one is placed. */
static void router_enter(cluster_router *t) {
    BASE_ASSERT(!t->is_inside);
    t->is_inside = true;
}

/* The call may have freed capacity for queued requests. */
static void router_leave(cluster_router *t) {
    BASE_ASSERT(t->is_inside);
    router_dispatch(t);
    t->is_inside = false;
}

/* ---- a router ---- */

int cluster_router_new(cluster_router **out, const cluster_router_options *options, const cluster_env *env,
                       rp_error *err) {
    BASE_ASSERT((unsigned)options->policy < CLUSTER_N_POLICIES && (unsigned)options->admission < CLUSTER_N_ADMISSIONS);
    BASE_ASSERT(options->max_sent >= 0 && options->retry_share >= 0 && options->near_ties >= 0);
    cluster_router *t = base_calloc(1, sizeof(*t));
    *out = NULL;
    if (!t) return base_fail_memory(err, sizeof(*t), "a router");
    t->options = *options;
    t->env = *env;
    memcpy(t->secret, options->secret, sizeof(t->secret));
    t->options.secret = t->secret;
    t->queue.place = router_place_of;
    t->deadlines.due = router_due_of;
    t->turn = -1;
    t->retry_budget = 10;
    t->budget_us = router_now(t);
    int rc = cluster_index_new(&t->index, err);
    if (!rc && t->options.fetch.byte_us > 0) rc = cluster_pool_hints_new(&t->pool, t->options.pool_bytes, err);
    if (rc) {
        cluster_index_free(t->index);
        base_free(t);
        return rc;
    }
    cluster_index_set_limit(t->index, t->options.index_bytes);
    *out = t;
    return rc;
}

void cluster_router_free(cluster_router *t) {
    if (!t) return;
    router_requests_free(t);
    for (size_t i = t->n_nodes; i-- > 0;)
        if (t->nodes[i].used) router_node_remove(t, &t->nodes[i]);
    cluster_speculation_free(&t->speculation);
    cluster_index_free(t->index);
    cluster_pool_hints_free(t->pool);
    base_free(t->nodes);
    base_free(t->facts);
    base_free(t->loads);
    base_free(t->held);
    base_free(t->pooled);
    base_free(t->order);
    memset(t->secret, 0, sizeof(t->secret));
    base_free(t);
}

/* ---- nodes ---- */

static router_node *router_node_at(const cluster_router *t, int32_t node) {
    return node >= 0 && (size_t)node < t->n_nodes && t->nodes[node].used ? &t->nodes[node] : NULL;
}

int cluster_router_add_node(cluster_router *t, const char *name, int32_t *node, rp_error *err) {
    return router_node_add(t, name, node, err);
}

void cluster_router_remove_node(cluster_router *t, int32_t node) {
    router_node *x = router_node_at(t, node);
    if (!x) return;
    router_enter(t);
    x->draining = true; /* its requests move to other nodes */
    router_move_all(t, x);
    router_node_remove(t, x);
    router_leave(t);
}

void cluster_router_set_prefill(cluster_router *t, int32_t node) {
    router_node *x = router_node_at(t, node);
    if (x) x->prefills_only = true;
}

void cluster_router_drain_node(cluster_router *t, int32_t node, bool drains) {
    router_node *x = router_node_at(t, node);
    if (!x) return;
    router_enter(t);
    x->draining = drains;
    router_leave(t);
}

/* ---- streams ---- */

#define NAME_BYTES 48 /* of the index for a name with few holders, free slots of a segment included */

void cluster_router_fed(cluster_router *t, int32_t node, const void *bytes, size_t n) {
    router_node *x = router_node_at(t, node);
    if (!x || !x->stream_is_open) return;
    router_enter(t);
    uint64_t now_us = router_now(t);
    int32_t n_nodes = 0;
    for (size_t i = 0; i < t->n_nodes; i++) n_nodes += t->nodes[i].used;
    cluster_view_set_most(x->view, t->options.index_bytes / NAME_BYTES / (uint64_t)BASE_MAX(n_nodes, 1));
    if (cluster_view_feed(x->view, now_us, bytes, n, NULL)) {
        t->env.close_stream(t->env.user, node);
        router_node_close(t, x, now_us);
    } else router_node_heard(x, now_us);
    t->nodes_due_us = BASE_MIN(t->nodes_due_us, now_us + CLUSTER_SUSPECT_US); /* silence is checked from now on */
    router_leave(t);
}

void cluster_router_cut(cluster_router *t, int32_t node) {
    router_node *x = router_node_at(t, node);
    if (!x || !x->stream_is_open) return;
    router_enter(t);
    router_node_close(t, x, router_now(t));
    router_leave(t);
}

void cluster_router_pooled(cluster_router *t, const rp_name *names, size_t n) {
    BASE_ASSERT(!t->is_inside && t->pool);
    for (size_t i = 0; i < n; i++) cluster_pool_hints_add(t->pool, &names[i]);
}

/* ---- requests ---- */

void cluster_router_submit(cluster_router *t, cluster_request *r) {
    router_enter(t);
    router_submit(t, r);
    router_leave(t);
}

void cluster_router_began(cluster_router *t, cluster_request *r) {
    router_enter(t);
    router_began(t, r);
    router_leave(t);
}

void cluster_router_progress(cluster_router *t, cluster_request *r, int32_t answer_tokens) {
    BASE_ASSERT(!t->is_inside);
    if (r->state == ROUTER_SENT) cluster_router_began(t, r); /* a continuation: any bytes are its first ones */
    if (r->state != ROUTER_ANSWERING) return;
    BASE_ASSERT(answer_tokens >= r->answer_tokens); /* invariant 3: an answer only grows */
    r->answer_tokens = answer_tokens;
}

void cluster_router_finished(cluster_router *t, cluster_request *r) {
    router_enter(t);
    router_finished(t, r);
    router_leave(t);
}

void cluster_router_heard(cluster_router *t, cluster_request *r, uint64_t at_us, bool of_node) {
    if (r->state != ROUTER_SENT && r->state != ROUTER_ANSWERING) return;
    BASE_ASSERT(r->node >= 0 && (size_t)r->node < t->n_nodes && t->nodes[r->node].n_sent > 0);
    r->heard_us = BASE_MAX(r->heard_us, at_us);
    if (of_node) t->nodes[r->node].heard_us = BASE_MAX(t->nodes[r->node].heard_us, at_us);
}

void cluster_router_each_sent(cluster_router *t, int32_t node, void (*fn)(void *user, cluster_request *r), void *user) {
    const router_node *x = router_node_at(t, node);
    for (cluster_request *r = x ? x->first : NULL; r; r = r->next) fn(user, r);
}

void cluster_router_failed(cluster_router *t, cluster_request *r, cluster_failure failure, uint64_t retry_after_ms) {
    router_enter(t);
    router_failed(t, r, failure, retry_after_ms);
    router_leave(t);
}

void cluster_router_cancelled(cluster_router *t, cluster_request *r) {
    router_enter(t);
    router_cancelled(t, r);
    router_leave(t);
}

/* ---- timers ---- */

static void router_tick_nodes(cluster_router *t, uint64_t now_us) {
    if (now_us < t->nodes_due_us) return;
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < t->n_nodes; i++) {
        router_node *x = &t->nodes[i];
        if (!x->used) continue;
        /* Requests of a node without a sign of life for CLUSTER_DEAD_US move to other nodes. A node whose stream has
         * ended gets no new requests, but can still answer: the transport reports the end of those that it has. */
        if (x->n_sent > 0 && cluster_view_heard_us(x->view) + CLUSTER_DEAD_US <= now_us) router_move_all(t, x);
        due = BASE_MIN(due, router_look_silent(t, x, now_us));
        due = BASE_MIN(due, router_node_tick(t, x, now_us));
    }
    t->nodes_due_us = due;
}

uint64_t cluster_router_tick(cluster_router *t) {
    router_enter(t);
    uint64_t now_us = router_now(t);
    router_tick_nodes(t, now_us);
    router_expire(t);
    uint64_t expires = cluster_speculation_expire(&t->speculation, t->index, now_us);
    router_leave(t);
    uint64_t due;
    (void)cluster_deadlines_first(&t->deadlines, &due);
    return BASE_MIN(BASE_MIN(t->nodes_due_us, expires), due);
}

/* ---- reports ---- */

int32_t cluster_router_nodes(const cluster_router *t) { return (int32_t)t->n_nodes; }

bool cluster_router_node(const cluster_router *t, int32_t node, cluster_node_status *out) {
    const router_node *x = router_node_at(t, node);
    if (!x) return false;
    *out = (cluster_node_status){
        .hello = router_node_hello(x),
        .load = router_node_load(x),
        .counts = cluster_view_counted(x->view),
        .health = router_node_health(x, router_now(t)),
        .stream = cluster_view_get_state(x->view),
        .draining = x->draining || router_node_load(x)->draining,
        .other_identity = router_node_is_other(t, x),
        .sent = x->n_sent,
        .sent_tokens = x->uncovered_tokens,
        .names = cluster_index_count_of(t->index, node),
        .placed = x->placed,
        .failed = x->failed,
        .silent = x->silent,
    };
    memcpy(out->name, x->name, sizeof(out->name));
    return true;
}

cluster_router_counts cluster_router_counted(const cluster_router *t) {
    cluster_router_counts c = t->counts;
    c.queued = t->queue.n;
    c.sent = 0;
    for (size_t i = 0; i < t->n_nodes; i++) c.sent += t->nodes[i].n_sent;
    BASE_ASSERT(t->is_inside || c.queued + c.sent == t->n_requests); /* one that has not ended waits, or is on a node */
    c.names = cluster_index_count(t->index);
    c.index_bytes = cluster_index_bytes(t->index);
    return c;
}

bool cluster_kv_format_find(const char *name, rp_kv_format *format) {
    for (int32_t i = 0; i < RP_N_KV_FORMATS; i++)
        if (strcmp(name, rp_kv_format_name(i)) == 0) {
            *format = (rp_kv_format)i;
            return true;
        }
    return false;
}

/* A plan names KV of one format: for a node with an unknown one, nothing can be planned. */
static bool can_be_planned(const router_node *x, uint64_t now_us) {
    rp_kv_format format;
    if (!x->used || router_node_health(x, now_us) != CLUSTER_WELL) return false;
    return cluster_kv_format_find(router_node_hello(x)->kv_format, &format);
}

const char *cluster_router_identity(const cluster_router *t) {
    uint64_t now_us = router_now(t);
    const char *best = "";
    int32_t most = 0;
    for (size_t i = 0; i < t->n_nodes; i++) {
        if (!can_be_planned(&t->nodes[i], now_us)) continue;
        const char *identity = router_node_hello(&t->nodes[i])->identity;
        if (strcmp(identity, best) == 0) continue;
        int32_t n = 0;
        for (size_t k = 0; k < t->n_nodes; k++)
            n += can_be_planned(&t->nodes[k], now_us) &&
                 strcmp(router_node_hello(&t->nodes[k])->identity, identity) == 0;
        if (n <= most) continue;
        best = identity;
        most = n;
    }
    return best;
}

void cluster_router_set_identity(cluster_router *t, const char *identity) {
    snprintf(t->identity, sizeof(t->identity), "%s", identity);
    for (size_t i = 0; i < t->n_nodes && identity[0]; i++)
        if (t->nodes[i].used && !router_node_is_other(t, &t->nodes[i])) {
            snprintf(t->model, sizeof(t->model), "%s", router_node_hello(&t->nodes[i])->model);
            return;
        }
}
