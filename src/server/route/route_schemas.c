/* SPDX-License-Identifier: Apache-2.0 */
/* route_schemas.c: changes of schemas by a router's clients: in its planning engine and registry
 * (prompt/schema_changes.h), then on every healthy node. A node that fails gets no requests until it has the change
 * (route_exchange.c). Workers. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "server/models/schema_changes.h"
#include "server/prompt/schemas_http.h"
#include "server/route/route_internal.h"

#define PREFILL_MS 600000 /* timeout of the prefill of a schema */
#define LIST_BYTES (RP_ERROR_MESSAGE_BYTES - 200)

/* ---- to all nodes ---- */

/* Is the change complete on the node? A refusal is final: it would be repeated. */
static bool is_settled(const route_reply *r) {
    return r->status == 200 || (r->status >= 400 && r->status < 500 && r->status != 401);
}

/* 409: the node has a later change. */
static bool is_taken(const route_reply *r) { return r->status == 200 || r->status == 409; }

static bool is_gone(const route_reply *r) { return is_taken(r) || r->status == 404; }

/* Lists nodes that failed, each with its reason. Returns their number. */
static int list_failed(const route_reply *replies, int32_t n, bool (*is_fine)(const route_reply *r), char *out,
                       size_t bytes) {
    int failed = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < n; i++) {
        const size_t used = strlen(out);
        if (is_fine(&replies[i])) continue;
        snprintf(out + used, bytes - used, "%s'%s' (%s)", failed ? ", " : "", replies[i].name, replies[i].error);
        failed++;
    }
    return failed;
}

/* Did the node accept or finally refuse the change? Under lock. */
static bool has_taken(const route_node *n, const route_reply *replies, int32_t n_replies) {
    for (int32_t i = 0; i < n_replies; i++)
        if (replies[i].node == n->number && strcmp(replies[i].name, n->name) == 0) return is_settled(&replies[i]);
    return false;
}

/* Holds back requests from all other nodes, dead ones included, which may return. before: the router's digest without
 * the change. */
static void note_change(route *t, uint64_t before, const route_reply *replies, int32_t n) {
    const uint64_t ours = route_schemas_digest(t);
    cluster_node_status s;
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++) {
        route_node *node = t->nodes[i];
        if (!node || !cluster_router_node(t->router, i, &s)) continue;
        route_schemas_see(node, s.hello->epoch);
        if (has_taken(node, replies, n)) { /* its next load has the new digest */
            if (s.load->schemas == before) route_schemas_settle(node, before, ours, true);
            continue;
        }
        node->n_missed++;
        node->is_held = true;
        route_apply_drain(t, node);
    }
    pthread_mutex_unlock(&t->lock);
}

/* Sends a change to all healthy nodes, and sets a problem if one failed. A disconnection of the client does not cancel
 * it. */
static void distribute(server_request *x, const schema_entry *e, uint64_t before, json_t **names) {
    route *t = x->server->route;
    char failed[LIST_BYTES];
    int32_t n = 0;
    route_reply *replies = route_replies_new(t, -1, &n);
    route_schemas_send(t, e, false, NULL, ROUTE_SYNC_MS, replies, n);
    note_change(t, before, replies, n);
    if (list_failed(replies, n, is_settled, failed, sizeof(failed)))
        server_fail(&x->problem, SERVER_NODE, NULL,
                    "the change failed on some nodes, which get no requests until they have it: %s", failed);
    if (list_failed(replies, n, e->text ? is_taken : is_gone, failed, sizeof(failed)))
        server_fail(&x->problem, SERVER_NODE, NULL, "some nodes refused the change: %s", failed);
    *names = json_array();
    for (int32_t i = 0; i < n && *names; i++) json_array_append_new(*names, json_string(replies[i].name));
    route_replies_free(replies, n);
    route_wake(t);
}

/* Prefills the schema on all nodes. A disconnection of the client cancels it. */
static void prefill(server_request *x, const schema_entry *e) {
    char failed[LIST_BYTES];
    int32_t n = 0;
    route_reply *replies = route_replies_new(x->server->route, -1, &n);
    route_schemas_send(x->server->route, e, true, x, PREFILL_MS, replies, n);
    if (list_failed(replies, n, is_taken, failed, sizeof(failed)))
        server_fail(&x->problem, SERVER_NODE, NULL, "the schema is stored, but not prefilled on all nodes: %s",
                    failed);
    route_replies_free(replies, n);
}

static void reply_schema(server_request *x, const char *object, json_t *names) {
    if (!x->problem.kind) {
        server_request_reply_json(x, 200,
                                  json_pack("{s:s, s:s, s:o}", "object", object, "name", x->name, "nodes", names));
        return;
    }
    json_decref(names);
    server_request_reply_problem(x);
}

/* The planning engine has the change before the nodes: a request for it may meanwhile reach a node without it, and is
 * refused. The model is released before the worker waits for nodes. */
void handle_route_schema_put(server_request *x) {
    json_t *names = NULL;
    schema_entry e = {.tenant = schemas_http_tenant(x), .name = x->name, .text = x->body.data, .n = x->body.len};
    route *t = x->server->route;
    const bool asks = !x->problem.kind && route_begin_ask(x), prefills = schemas_http_prefills(x);
    const bool may = asks && (!prefills || schemas_http_begin_prefill(x));
    const uint64_t before = route_schemas_digest(t);
    if (may && !schema_change_put(x->server, x->model, &e, &x->problem)) {
        model_pool_part(x);
        distribute(x, &e, before, &names);
        if (prefills && !x->problem.kind) prefill(x, &e);
    }
    if (may && prefills) schemas_http_end_prefill(x->server);
    if (asks) route_end_ask(t);
    reply_schema(x, "schema", names);
}

void handle_route_schema_delete(server_request *x) {
    json_t *names = NULL;
    schema_entry e = {.tenant = schemas_http_tenant(x), .name = x->name};
    route *t = x->server->route;
    const bool asks = !x->problem.kind && route_begin_ask(x);
    const uint64_t before = route_schemas_digest(t);
    if (asks && !schema_change_remove(x->server, x->model, &e, &x->problem)) {
        model_pool_part(x);
        distribute(x, &e, before, &names);
    }
    if (asks) route_end_ask(t);
    reply_schema(x, "schema.deleted", names);
}
