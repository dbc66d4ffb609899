/* SPDX-License-Identifier: Apache-2.0 */
/* route_planner.c: the planner's thread: an engine that plans for the most frequent identity of nodes, and exchanges of
 * schemas with nodes (route_internal.h). The engine is replaced as by a reload of a model: requests that are being
 * planned are completed first. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "server/models/model_pool.h"
#include "server/route/route_internal.h"
#include "reprise_pml.h"
#include "reprise_cluster.h"

#define AGAIN_MS 1000 /* delay after a failure */

/* ---- the engine ---- */

int route_planner_load(void *user, int32_t i, rp_model **model, rp_engine **engine, rp_error *err) {
    route *t = user;
    rp_engine_options o = t->engine;
    (void)i;
    const rp_cluster_options cluster = {
        .struct_size = sizeof(cluster),
        .key = t->secret,
        .plans_only = true,
        .identity = t->identity[0] ? t->identity : NULL,
    };
    o.cluster = &cluster;
    o.n_ctx = t->n_ctx;
    o.kv_format = t->kv_format;
    o.n_threads = 1;
    int rc = rp_engine_new(engine, t->model, &o, err);
    if (rc) return rc;
    for (int32_t k = 0; k < t->n_schemas && !rc; k++) rc = rp_schema_load(*engine, t->schemas[k], NULL, NULL, err);
    if (rc) {
        rp_engine_free(*engine);
        *engine = NULL;
        return rc;
    }
    *model = t->model;
    return RP_OK;
}

void route_planner_unload(void *user, int32_t i, rp_model *model, rp_engine *engine) {
    (void)user;
    (void)i;
    (void)model;
    rp_engine_free(engine);
}

/* ---- work for the thread ---- */

/* Sets the wanted identity: the most frequent one among healthy nodes. */
static void find_identity(route *t) {
    const char *identity = cluster_router_identity(t->router);
    rp_kv_format format;
    cluster_node_status s;
    if (!identity[0] || strcmp(identity, t->wanted_identity) == 0) return;
    for (int32_t i = 0; i < cluster_router_nodes(t->router); i++) {
        if (!cluster_router_node(t->router, i, &s) || strcmp(s.hello->identity, identity) != 0) continue;
        if (!cluster_kv_format_find(s.hello->kv_format, &format)) continue; /* the identity includes it: a wrong node */
        pthread_mutex_lock(&t->wake_lock);
        snprintf(t->wanted_identity, sizeof(t->wanted_identity), "%s", identity);
        t->wanted_format = format;
        t->wanted_ctx = s.hello->n_ctx;
        pthread_cond_signal(&t->planner_wake);
        pthread_mutex_unlock(&t->wake_lock);
        return;
    }
}

/* Holds back requests from a new process of a node that lacks schemas of the router. Other schemas of the node, or
 * later states, do not matter. Returns whether an exchange is due. */
static bool look_at_schemas(route *t, route_node *n, const cluster_node_status *s, uint64_t ours) {
    const uint64_t epoch = s->hello->epoch, theirs = s->load->schemas;
    if (s->stream != CLUSTER_VIEW_LIVE || s->health != CLUSTER_WELL || epoch == 0) return false;
    route_schemas_see(n, epoch);
    const bool is_settled =
        theirs == n->synced_theirs && ours == n->synced_ours && base_clock_us() < n->synced_until_us;
    const bool is_synced = s->load->sent_us != 0 && (theirs == ours || is_settled);
    if (theirs != n->synced_theirs) n->synced_until_us = 0;
    const bool lacks = n->n_missed != n->n_caught, holds = lacks || (!n->is_exchanged && !is_synced && ours != 0);
    n->must_sync = lacks || !n->is_exchanged || !is_synced;
    if (n->is_held != holds) {
        n->is_held = holds;
        route_apply_drain(t, n);
    }
    return n->must_sync && base_clock_us() >= n->sync_after_us;
}

/* Logs an unknown KV format, once for each process of a node. */
static void look_at_format(route_node *n, const cluster_hello *hello) {
    rp_kv_format format;
    if (hello->epoch == 0 || hello->epoch == n->format_epoch) return;
    if (cluster_kv_format_find(hello->kv_format, &format)) return;
    n->format_epoch = hello->epoch;
    base_log(BASE_LOG_ERROR,
             "route: node '%s' has the KV format '%s', which this router does not know: its requests are "
             "placed by load alone, without plans: run the same release on nodes and routers",
             n->name, hello->kv_format);
}

void route_planner_look(route *t) {
    cluster_node_status s;
    bool must_sync = false;
    const uint64_t ours = route_schemas_digest(t);
    find_identity(t);
    for (int32_t i = 0; i < cluster_router_nodes(t->router); i++)
        if (t->nodes[i] && cluster_router_node(t->router, i, &s)) {
            look_at_format(t->nodes[i], s.hello);
            must_sync |= look_at_schemas(t, t->nodes[i], &s, ours);
        }
    if (!must_sync) return;
    pthread_mutex_lock(&t->wake_lock);
    t->must_sync = true;
    pthread_cond_signal(&t->planner_wake);
    pthread_mutex_unlock(&t->wake_lock);
}

/* ---- the thread ---- */

/* Replaces the planning engine. Returns whether it succeeded. */
static bool planner_replace(route *t) {
    rp_error err;
    pthread_mutex_lock(&t->wake_lock);
    snprintf(t->identity, sizeof(t->identity), "%s", t->wanted_identity);
    t->kv_format = t->wanted_format;
    t->n_ctx = t->wanted_ctx;
    pthread_mutex_unlock(&t->wake_lock);
    const int rc = model_pool_reload(t->server->models, &err);
    if (rc) base_log(BASE_LOG_WARN, "route: cannot plan for identity %.16s: %s", t->identity, err.message);
    else {
        pthread_mutex_lock(&t->lock);
        cluster_router_set_identity(t->router, t->identity);
        snprintf(t->planned_identity, sizeof(t->planned_identity), "%s", t->identity);
        pthread_mutex_unlock(&t->lock);
    }
    return rc == 0;
}

/* The next node for an exchange of schemas, in turn, so that a node that hangs does not get more exchanges than others;
 * -1: none. */
static int32_t take_unsynced(route *t) {
    const uint64_t now = base_clock_us();
    int32_t found = -1;
    BASE_ASSERT(t->last_synced >= 0 && t->last_synced < CLUSTER_MAX_NODES);
    pthread_mutex_lock(&t->lock);
    for (int32_t k = 1; k <= CLUSTER_MAX_NODES && found < 0; k++) {
        const int32_t i = (t->last_synced + k) % CLUSTER_MAX_NODES;
        if (t->nodes[i] && t->nodes[i]->must_sync && now >= t->nodes[i]->sync_after_us) found = i;
    }
    if (found >= 0) t->nodes[t->last_synced = found]->must_sync = false;
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* Exchanges schemas with all nodes for which it is due, unless a new planning engine is wanted. */
static void planner_exchange(route *t) {
    bool must_leave = false;
    for (int32_t node; !must_leave && (node = take_unsynced(t)) >= 0;) {
        route_schemas_exchange(t, node);
        pthread_mutex_lock(&t->wake_lock);
        must_leave = atomic_load(&t->stops) || strcmp(t->wanted_identity, t->identity) != 0;
        pthread_mutex_unlock(&t->wake_lock);
    }
}

/* Waits for work. replaces_us: earliest time of a new engine. Returns whether the work is a new engine. */
static bool planner_wait(route *t, uint64_t replaces_us) {
    for (;;) {
        const bool replaces = strcmp(t->wanted_identity, t->identity) != 0 || t->must_replace,
                   may = base_clock_us() >= replaces_us;
        if (atomic_load(&t->stops) || t->must_sync || (replaces && may)) return replaces && may;
        const struct timespec until = base_clock_after(replaces ? AGAIN_MS : 60000);
        pthread_cond_timedwait(&t->planner_wake, &t->wake_lock, &until);
    }
}

static void *planner_run(void *user) {
    route *t = user;
    uint64_t replaces_us = 0;
    pthread_mutex_lock(&t->wake_lock);
    while (!atomic_load(&t->stops)) {
        const bool replaces = planner_wait(t, replaces_us);
        t->must_sync = false;
        if (replaces) t->must_replace = false;
        pthread_mutex_unlock(&t->wake_lock);
        const bool failed = replaces && !planner_replace(t);
        if (failed) replaces_us = base_clock_us() + AGAIN_MS * UINT64_C(1000);
        planner_exchange(t);
        route_wake(t);
        pthread_mutex_lock(&t->wake_lock);
        t->must_replace |= failed;
    }
    pthread_mutex_unlock(&t->wake_lock);
    return NULL;
}

int route_planner_start(route *t, rp_error *err) {
    const int failed = base_thread_start(&t->planner, planner_run, t);
    t->has_planner = failed == 0;
    return failed ? base_fail(err, RP_ERR_IO, "cannot start a thread: %s", strerror(failed)) : RP_OK;
}

void route_planner_stop(route *t) {
    if (!t->has_planner) return;
    pthread_mutex_lock(&t->wake_lock);
    atomic_store(&t->stops, true);
    pthread_cond_signal(&t->planner_wake);
    pthread_mutex_unlock(&t->wake_lock);
    pthread_join(t->planner, NULL);
    t->has_planner = false;
}
