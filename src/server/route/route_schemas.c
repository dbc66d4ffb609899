/* SPDX-License-Identifier: Apache-2.0 */
/* route_schemas.c: schemas of a router: in its planning engine, in its registry, and on every node (route_internal.h). Owns nothing.
 *
 *   PUT     engine and registry (schemas_http.c), then all nodes that are well, at once; a node that fails gets no requests until it has it
 *   later   a node that comes, or comes back: all schemas of the registry first (route_schemas_sync)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/handlers.h"
#include "server/prompt/schemas_http.h"
#include "server/route/route_internal.h"

#define PREFILL_MS 600000 /* a schema's, on the slowest node */
#define SYNC_MS 30000     /* without prefill */

/* "/v1/cluster/schemas/NAME?tenant=T&prefill=false": for a tenant, by who has the cluster's secret. tenant NULL: shared by all. */
static int write_target(base_buffer *b, const char *tenant, const char *name, bool prefills) {
    int rc = base_buffer_append_str(b, "/v1/cluster/schemas/");
    if (!rc) rc = route_append_encoded(b, name, "");
    if (!rc) rc = base_buffer_append_str(b, prefills ? "?prefill=true" : "?prefill=false");
    if (!rc && tenant) rc = base_buffer_append_str(b, "&tenant=");
    return rc || !tenant ? rc : route_append_encoded(b, tenant, "");
}

/* ---- to all nodes ---- */

/* Nodes whose reply is no success. Returns their number. */
static int list_failed(const route_reply *replies, int32_t n, char *out, size_t bytes) {
    int failed = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < n; i++) {
        const size_t used = strlen(out);
        if (replies[i].status == 200) continue;
        if (replies[i].status) snprintf(out + used, bytes - used, "%s'%s' (status %d)", failed ? ", " : "", replies[i].name, replies[i].status);
        else snprintf(out + used, bytes - used, "%s'%s' (%s)", failed ? ", " : "", replies[i].name, replies[i].error);
        failed++;
    }
    return failed;
}

/* At once: also one that is dead, and comes back before the planner's thread looks. Under lock. */
static void hold_if_old(route *t, route_node *n) {
    if (!n || n->is_held || n->synced_version == atomic_load(&t->schema_version)) return;
    n->is_held = true;
    route_apply_drain(t, n);
}

/* The change has a new number: nodes that did it have all up to it, if they had all before. The others are brought up by the planner's thread. */
static void note_change(route *t, const route_reply *replies, int32_t n) {
    pthread_mutex_lock(&t->lock);
    const uint64_t before = atomic_load(&t->schema_version);
    atomic_store(&t->schema_version, before + 1);
    for (int32_t i = 0; i < n; i++) {
        route_node *node = t->nodes[replies[i].node];
        if (node && strcmp(node->name, replies[i].name) == 0 && replies[i].status == 200 &&
            node->synced_version == before) node->synced_version = before + 1;
    }
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++) hold_if_old(t, t->nodes[i]);
    pthread_mutex_unlock(&t->lock);
}

/* Sets a problem if a node failed. */
static void tell_all(server_request *x, const char *tenant, bool puts, bool prefills, json_t **names) {
    route *t = x->server->route;
    base_buffer target = BASE_BUFFER(ROUTE_TARGET_BYTES);
    char failed[RP_ERROR_MESSAGE_BYTES - 200];
    int32_t n = 0;
    route_reply *replies = write_target(&target, tenant, x->name, prefills) ? NULL : route_replies_new(t, -1, &n);
    route_question q = {.method = "DELETE", .target = target.data, .x = x, .timeout_ms = SYNC_MS, .of_the_living = true};
    if (puts) q = (route_question){"PUT", target.data, NULL, x->body.data, x->body.len, x, PREFILL_MS, true};
    if (n > 0) route_ask(t, &q, replies, n);
    note_change(t, replies, n);
    if (list_failed(replies, n, failed, sizeof(failed)))
        server_fail(&x->problem, SERVER_NODE, NULL, "some nodes failed, and get no requests until they have it: %s", failed);
    *names = json_array();
    for (int32_t i = 0; i < n && *names; i++) json_array_append_new(*names, json_string(replies[i].name));
    route_replies_free(replies, n);
    base_buffer_free(&target);
    route_wake(t);
}

static void reply_schema(server_request *x, const char *object, json_t *names) {
    if (!x->problem.kind) {
        server_request_reply_json(x, 200, json_pack("{s:s, s:s, s:o}", "object", object, "name", x->name, "nodes", names));
        return;
    }
    json_decref(names);
    server_request_reply_problem(x);
}

/* The engine knows it before the nodes do: a request for it that comes meanwhile goes to a node that may not have it yet, and is told so. */
void handle_route_schema_put(server_request *x) {
    json_t *names = NULL;
    const char *wanted = server_request_query(x, "prefill"), *tenant = schemas_http_tenant(x);
    if (!x->problem.kind) {
        pthread_mutex_lock(&x->model->schema_lock);
        if (!schemas_http_load(x, tenant)) tell_all(x, tenant, true, !wanted || strcmp(wanted, "false") != 0, &names);
        pthread_mutex_unlock(&x->model->schema_lock);
    }
    reply_schema(x, "schema", names);
}

void handle_route_schema_delete(server_request *x) {
    json_t *names = NULL;
    const char *tenant = schemas_http_tenant(x);
    if (!x->problem.kind) {
        pthread_mutex_lock(&x->model->schema_lock);
        if (!schemas_http_remove(x, tenant)) tell_all(x, tenant, false, false, &names);
        pthread_mutex_unlock(&x->model->schema_lock);
    }
    reply_schema(x, "schema.deleted", names);
}

/* ---- to one node ---- */

typedef struct kept_schema {
    char *tenant, *name, *text; /* tenant NULL: shared */
    size_t n;
} kept_schema;

typedef struct schema_copy {
    kept_schema *items;
    size_t n, cap;
    bool failed;
} schema_copy;

static void copy_one(void *user, const char *tenant, const char *name, const char *text, size_t n) {
    schema_copy *c = user;
    if (c->failed || (c->failed = base_grow((void **)&c->items, &c->cap, c->n + 1, SERVER_MAX_REGISTRY, sizeof(*c->items)) != 0)) return;
    kept_schema *s = &c->items[c->n++];
    *s = (kept_schema){tenant ? base_strdup(tenant) : NULL, base_strdup(name), base_strndup(text, n), n};
    c->failed = (tenant && !s->tenant) || !s->name || !s->text;
}

static void copy_free(schema_copy *c) {
    for (size_t i = 0; i < c->n; i++) {
        base_free(c->items[i].tenant);
        base_free(c->items[i].name);
        base_free(c->items[i].text);
    }
    base_free(c->items);
}

static void count_one(void *user, const char *tenant, const char *name, const char *text, size_t n) {
    size_t *count = user;
    (void)tenant;
    (void)name;
    (void)text;
    (void)n;
    ++*count;
}

size_t route_schemas_count(route *t) {
    size_t n = 0;
    schema_registry_visit(model_pool_find(t->server->models, "default")->registry, count_one, &n);
    return n;
}

static bool send_schema(route *t, route_reply *reply, const kept_schema *s) {
    base_buffer target = BASE_BUFFER(ROUTE_TARGET_BYTES);
    const bool is_written = write_target(&target, s->tenant, s->name, false) == 0;
    const route_question q = {"PUT", target.data, NULL, s->text, s->n, NULL, SYNC_MS, true};
    base_buffer_clear(&reply->body);
    if (is_written) route_ask(t, &q, reply, 1);
    base_buffer_free(&target);
    /* A schema that the node refuses is no reason to keep it from all others. */
    if (reply->status == 200 || (reply->status >= 400 && reply->status < 500 && reply->status != 401)) return true;
    base_log(BASE_LOG_WARN, "route: node '%s': schema '%s': status %d %s", reply->name, s->name, reply->status, reply->error);
    return false;
}

/* What changes meanwhile is sent by who changes it, or makes the node old again. */
bool route_schemas_sync(route *t, int32_t node) {
    schema_copy all = {0};
    cluster_node_status s;
    int32_t n = 0;
    pthread_mutex_lock(&t->lock);
    const uint64_t version = atomic_load(&t->schema_version);
    const uint64_t epoch = t->nodes[node] && cluster_router_node(t->router, node, &s) ? s.hello->epoch : 0;
    pthread_mutex_unlock(&t->lock);
    schema_registry_visit(model_pool_find(t->server->models, "default")->registry, copy_one, &all);
    route_reply *reply = route_replies_new(t, node, &n);
    bool is_fine = n == 1 && !all.failed && epoch != 0;
    for (size_t i = 0; i < all.n && is_fine; i++) is_fine = send_schema(t, reply, &all.items[i]);
    pthread_mutex_lock(&t->lock);
    if (is_fine && t->nodes[node]) {
        t->nodes[node]->synced_epoch = epoch;
        t->nodes[node]->synced_version = version;
    }
    pthread_mutex_unlock(&t->lock);
    route_replies_free(reply, n);
    copy_free(&all);
    return is_fine;
}
