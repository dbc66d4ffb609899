/* SPDX-License-Identifier: Apache-2.0 */
/* route.c: options, start and stop of a router, and its functions of reprise_server.h. Owns struct route. */
#include "server/route/route_internal.h"

#include <string.h>

#include <sodium.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/threads.h"
#include "server/models/model_pool.h"

#define MAX_LISTED 256
#define LEAST_NODE_TIMEOUT_MS 100
#define LEAST_INDEX_BYTES (1 << 20)
#define MOST_NODE_TIMEOUT_MS 86400000

void rp_router_options_init(rp_router_options *options, uint32_t struct_size) {
    const cluster_router_options o = cluster_router_defaults();
    rp_router_options own = {
        .max_queue = o.max_queue, .index_bytes = o.index_bytes, .node_timeout_ms = (double)o.node_timeout_us / 1e3};
    base_sized_init(options, struct_size, &own, sizeof(own));
}

/* ---- options ---- */

/* The number of a name in a list of names (reprise_cluster.h). */
static int find_name(const char *what, const char *name, const char *(*name_of)(int32_t i), int *found, rp_error *err) {
    char all[256] = "";
    for (int32_t i = 0; name_of(i); i++) {
        if (strcmp(name_of(i), name) == 0) return *found = i, RP_OK;
        const size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? ", " : "", name_of(i));
    }
    return base_fail(err, RP_ERR_INVALID, "unknown %s '%.40s': give one of %s", what, name, all);
}

static int read_policy(route *t, const rp_router_options *o, rp_error *err) {
    int policy = CLUSTER_POLICY_COST, admission = CLUSTER_ADMISSION_PREDICTED, rc = RP_OK;
    if (o->policy) rc = find_name("policy", o->policy, rp_cluster_policy_name, &policy, err);
    if (!rc && o->admission) rc = find_name("admission", o->admission, rp_cluster_admission_name, &admission, err);
    if (rc) return rc;
    if (!(o->ttft_goal_ms >= 0) || !(o->itl_goal_ms >= 0))
        return base_fail(err, RP_ERR_INVALID, "a goal is negative: give milliseconds, or 0 for none");
    if (o->max_queue < 1 || o->max_queue > CLUSTER_MAX_REQUESTS)
        return base_fail(err, RP_ERR_INVALID, "max_queue is %d: give 1 to %d", o->max_queue, CLUSTER_MAX_REQUESTS);
    if (o->node_timeout_ms != 0 &&
        !(o->node_timeout_ms >= LEAST_NODE_TIMEOUT_MS && o->node_timeout_ms <= MOST_NODE_TIMEOUT_MS))
        return base_fail(err, RP_ERR_INVALID, "node_timeout_ms is %g: give %d to %d, or 0 for none", o->node_timeout_ms,
                         LEAST_NODE_TIMEOUT_MS, MOST_NODE_TIMEOUT_MS);
    t->options = cluster_router_defaults();
    t->options.policy = (cluster_policy)policy;
    t->options.admission = (cluster_admission)admission;
    t->options.ttft_goal_ms = o->ttft_goal_ms;
    t->options.itl_goal_ms = o->itl_goal_ms;
    if (o->index_bytes < LEAST_INDEX_BYTES)
        return base_fail(err, RP_ERR_INVALID, "index_bytes is %llu: give %d at least",
                         (unsigned long long)o->index_bytes, LEAST_INDEX_BYTES);
    t->options.max_queue = o->max_queue;
    t->options.index_bytes = o->index_bytes;
    t->options.node_timeout_us = (uint64_t)(o->node_timeout_ms * 1e3);
    return RP_OK;
}

static int copy_nodes(route *t, const rp_router_options *o, rp_error *err) {
    if (o->n_nodes < 0 || o->n_nodes > MAX_LISTED)
        return base_fail(err, RP_ERR_INVALID, "n_nodes is %d: give 0 to %d", o->n_nodes, MAX_LISTED);
    if (o->n_nodes == 0 && !o->nodes_file && !o->nodes_dns)
        return base_fail(err, RP_ERR_INVALID, "a router needs nodes: give some, a file, or a DNS name");
    if (o->n_nodes > 0 && !(t->listed = base_calloc((size_t)o->n_nodes, sizeof(*t->listed))))
        return base_fail_memory(err, 64, "a router");
    const int rc = route_nodes_check(o->nodes, o->n_nodes, err);
    if (rc) return rc;
    for (int32_t i = 0; i < o->n_nodes; i++) {
        if (!(t->listed[i] = base_strdup(o->nodes[i]))) return base_fail_memory(err, 64, "a router");
        t->n_listed++;
    }
    if (o->n_schemas < 0 || o->n_schemas > MAX_LISTED)
        return base_fail(err, RP_ERR_INVALID, "n_schemas is %d: give 0 to %d", o->n_schemas, MAX_LISTED);
    if (o->n_schemas > 0 && !(t->schemas = base_calloc((size_t)o->n_schemas, sizeof(*t->schemas))))
        return base_fail_memory(err, 64, "a router");
    for (; t->n_schemas < o->n_schemas; t->n_schemas++)
        if (!(t->schemas[t->n_schemas] = base_strdup(o->schemas[t->n_schemas])))
            return base_fail_memory(err, 64, "a router");
    if (o->nodes_dns && route_nodes_check_dns(o->nodes_dns, err)) return RP_ERR_INVALID;
    if (o->nodes_dns && !(t->nodes_dns = base_strdup(o->nodes_dns))) return base_fail_memory(err, 64, "a router");
    if (o->nodes_file && !(t->nodes_file = base_strdup(o->nodes_file))) return base_fail_memory(err, 64, "a router");
    return RP_OK;
}

int route_new(route **out, rp_server *server, const rp_router_options *options, rp_error *err) {
    rp_router_options o = rp_router_options_defaults();
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), options, "rp_router_options", err);
    if (rc) return rc;
    if (!o.secret_file) return base_fail(err, RP_ERR_INVALID, "a router needs the cluster's secret: give its file");
    route *t = base_calloc(1, sizeof(*t));
    if (!t) return base_fail_memory(err, sizeof(*t), "a router");
    t->server = server;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->queue_lock, NULL);
    pthread_mutex_init(&t->wake_lock, NULL);
    if (!base_cond_init(&t->is_over) || !base_cond_init(&t->nodes_wake) || !base_cond_init(&t->planner_wake)) {
        base_free(t);
        return base_fail_memory(err, sizeof(*t), "a router");
    }
    if ((rc = read_policy(t, &o, err)) || (rc = copy_nodes(t, &o, err)) ||
        (rc = cluster_secret_read(t->secret, o.secret_file, err)))
        route_free(t);
    else *out = t;
    return rc;
}

void route_free(route *t) {
    if (!t) return;
    for (int32_t i = 0; i < t->n_listed; i++) base_free(t->listed[i]);
    base_free(t->listed);
    for (int32_t i = 0; i < t->n_schemas; i++) base_free(t->schemas[i]);
    base_free(t->schemas);
    base_free(t->nodes_file);
    base_free(t->nodes_dns);
    sodium_memzero(t->secret, sizeof(t->secret));
    pthread_cond_destroy(&t->is_over);
    pthread_cond_destroy(&t->nodes_wake);
    pthread_cond_destroy(&t->planner_wake);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->queue_lock);
    pthread_mutex_destroy(&t->wake_lock);
    base_free(t);
}

/* ---- threads ---- */

int route_start(route *t, rp_model *model, const rp_engine_options *options, rp_error *err) {
    const char *name = t->server->model_name[0] ? t->server->model_name : NULL;
    rp_server_models models = {.struct_size = sizeof(models), .n = 1, .names = &name};
    if (t->server->models)
        return base_fail(err, RP_ERR_INVALID,
                         "rp_server_ready_router was called before: make a new server, after an error, too");
    models.load = route_planner_load;
    models.unload = route_planner_unload;
    models.user = t;
    t->model = model;
    t->engine = rp_engine_options_defaults();
    int rc = base_sized_read(&t->engine, sizeof(t->engine), options, "rp_engine_options", err);
    t->engine.cluster = NULL; /* route_planner_load's own */
    t->engine.experiment = NULL;
    if (!rc) rc = model_pool_new(&t->server->models, t->server, &models, err);
    if (rc) return rc;
    rc = route_network_start(t, err);
    if (!rc) rc = route_planner_start(t, err);
    return rc ? rc : route_nodes_start(t, err);
}

void route_stop(route *t) {
    if (!t) return;
    route_nodes_stop(t);
    route_planner_stop(t);
    route_network_stop(t);
}

int route_n_well(const route *t) { return atomic_load(&t->n_well); }

void rp_server_reload_nodes(rp_server *server) {
    if (server && server->route) route_reload_nodes(server->route);
}
