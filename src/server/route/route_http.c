/* SPDX-License-Identifier: Apache-2.0 */
/* route_http.c: handlers of routes that a router answers by itself, or by requests to one node or all (route_table.c).
 * Workers; readiness on I/O threads. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "server/admin/admin_handlers.h"
#include "server/answers/report_ring.h"
#include "server/route/route_internal.h"

#define ASK_MS 30000
#define CONTENTS_ASKED 1000 /* cached contents of a node, at most */

/* ---- readiness ---- */

static bool is_ready(const server_request *x) {
    return server_get_state(x->server) == SERVER_STATE_READY && route_n_well(x->server->route) > 0;
}

void handle_route_readyz(server_request *x) {
    base_buffer text = BASE_BUFFER(256);
    if (server_get_state(x->server) != SERVER_STATE_READY || is_ready(x)) {
        handle_readyz(x);
        return;
    }
    if (base_buffer_append_str(&text, "no node is healthy\n")) base_buffer_clear(&text);
    server_request_reply_text(x, 503, "text/plain; charset=utf-8", &text);
}

void handle_route_health(server_request *x) {
    if (server_get_state(x->server) != SERVER_STATE_READY || is_ready(x)) {
        handle_health(x);
        return;
    }
    server_fail(&x->problem, SERVER_LOADING, NULL, "no node is healthy");
    server_request_reply_problem(x);
}

/* ---- one node ---- */

static const char *static_type(const char *type) {
    static const char *const types[] = {"application/json", "text/event-stream", "application/xml",
                                        "application/octet-stream", "text/plain; charset=utf-8"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++)
        if (strncmp(type, types[i], strcspn(types[i], ";")) == 0) return types[i];
    return "text/plain; charset=utf-8";
}

/* Replies with the node's reply. */
static void pass_reply(server_request *x, route_reply *r) {
    if (r->status == 0) {
        server_fail(&x->problem, SERVER_NODE, NULL, "node '%s': %s", r->name, r->error);
        server_request_reply_problem(x);
        return;
    }
    server_request_reply_text(x, r->status, static_type(r->content_type), &r->body);
}

/* Relays the request to a node. */
static void pass_to(server_request *x, int32_t node) {
    route *t = x->server->route; /* the request may be freed when it has its reply */
    bool failed = false;
    int32_t n = 0;
    if (!route_begin_ask(x)) {
        server_request_reply_problem(x);
        return;
    }
    char *target = route_target_of(x);
    struct curl_slist *headers = route_headers_of(x, &failed);
    route_reply *reply = target && !failed ? route_replies_new(x->server->route, node, &n) : NULL;
    if (n == 1) {
        const route_question q = {
            x->method, target, headers, x->body.data, x->body.len, x, ASK_MS, true, strcmp(x->method, "GET") != 0};
        route_ask(x->server->route, &q, reply, 1);
        pass_reply(x, reply);
    } else {
        server_fail(&x->problem, SERVER_NODE, NULL, "the node is no longer listed");
        server_request_reply_problem(x);
    }
    route_replies_free(reply, n);
    curl_slist_free_all(headers);
    base_free(target);
    route_end_ask(t);
}

static void list_names(route *t, char *out, size_t bytes) {
    out[0] = '\0';
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++) {
        const size_t used = strlen(out);
        if (t->nodes[i]) snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", t->nodes[i]->name);
    }
    pthread_mutex_unlock(&t->lock);
}

/* The number of the node in the query; -1: a problem is set. */
static int32_t asked_node(server_request *x) {
    char names[400];
    const char *name = server_request_query(x, "node");
    const int32_t node = name ? route_find_node(x->server->route, name) : -1;
    if (node >= 0) return node;
    list_names(x->server->route, names, sizeof(names));
    if (name) server_fail(&x->problem, SERVER_NOT_FOUND, "node", "unknown node '%.60s': the nodes are %s", name, names);
    else
        server_fail(&x->problem, SERVER_INVALID, "node",
                    "a router has no store of its own: choose a node with ?node=NAME: %s", names);
    return -1;
}

void handle_route_node(server_request *x) {
    const int32_t node = asked_node(x);
    if (node < 0) server_request_reply_problem(x);
    else pass_to(x, node);
}

/* ---- stored objects ---- */

void handle_route_stored(server_request *x) {
    if (route_pin(x, x->name, NULL)) server_request_reply_problem(x);
    else pass_to(x, x->only_node);
}

/* Cached contents of all nodes. */
void handle_route_contents(server_request *x) {
    bool failed = false;
    int32_t n = 0;
    char target[64];
    route *t = x->server->route;
    if (!route_begin_ask(x)) {
        server_request_reply_problem(x);
        return;
    }
    json_t *all = json_array();
    struct curl_slist *headers = route_headers_of(x, &failed);
    route_reply *replies = failed ? NULL : route_replies_new(x->server->route, -1, &n);
    snprintf(target, sizeof(target), "/v1beta/cachedContents?pageSize=%d", CONTENTS_ASKED);
    const route_question q = {"GET", target, headers, NULL, 0, x, ASK_MS, true, false};
    route_ask(t, &q, replies, n);
    route_end_ask(t);
    for (int32_t i = 0; i < n; i++) {
        json_t *one = json_loadb(replies[i].body.data ? replies[i].body.data : "", replies[i].body.len, 0, NULL);
        if (replies[i].status != 200)
            server_fail(&x->problem, SERVER_NODE, NULL, "node '%s': %s", replies[i].name, replies[i].error);
        else json_array_extend(all, json_object_get(one, "cachedContents"));
        json_decref(one);
    }
    route_replies_free(replies, n);
    curl_slist_free_all(headers);
    if (!x->problem.kind) server_request_reply_json(x, 200, json_pack("{s:o}", "cachedContents", all));
    else {
        json_decref(all);
        server_request_reply_problem(x);
    }
}

/* ---- explain ---- */

/* The report of the node that answered, with the rights of the client; null: there is none. */
static json_t *node_report(server_request *x, const char *name) {
    server_request *asks = route_begin_ask(x) ? x : NULL; /* else without a report */
    bool failed = asks == NULL;
    int32_t n = 0;
    char target[SERVER_NAME_BYTES * 3 + 40];
    base_buffer path = BASE_BUFFER(sizeof(target) - 1);
    const int32_t node = name && name[0] ? route_find_node(x->server->route, name) : -1;
    struct curl_slist *headers = asks ? route_headers_of(x, &failed) : NULL;
    route_reply *reply = node >= 0 && !failed ? route_replies_new(x->server->route, node, &n) : NULL;
    json_t *report = NULL;
    int rc = base_buffer_append_str(&path, "/v1/requests/");
    if (!rc) rc = route_append_encoded(&path, x->name, "");
    if (!rc) rc = base_buffer_append_str(&path, "/explain");
    if (n == 1 && !rc) {
        const route_question q = {"GET", path.data, headers, NULL, 0, x, ASK_MS, true, false};
        route_ask(x->server->route, &q, reply, 1);
        if (reply->status == 200)
            report = json_loadb(reply->body.data ? reply->body.data : "", reply->body.len, 0, NULL);
    }
    route_replies_free(reply, n);
    curl_slist_free_all(headers);
    base_buffer_free(&path);
    if (asks) route_end_ask(x->server->route);
    x->problem = (server_problem){0};
    return report ? report : json_null();
}

void handle_route_explain(server_request *x) {
    base_buffer text = BASE_BUFFER(SERVER_MAX_REPORT_BYTES);
    json_t *report = NULL;
    if (report_ring_get(x->server->reports, x->name, x->key->tenant, &text) == 0)
        report = json_loadb(text.data, text.len, 0, NULL);
    base_buffer_free(&text);
    if (report) {
        json_object_set_new(report, "node_report", node_report(x, json_string_value(json_object_get(report, "node"))));
        server_request_reply_json(x, 200, report);
        return;
    }
    server_fail(&x->problem, SERVER_NOT_FOUND, "id", "unknown request '%.40s': only the last %d answers are kept",
                x->name, SERVER_MAX_REPORTS);
    server_request_reply_problem(x);
}

/* ---- /v1/cluster ---- */

static const char *const health_names[] = {"dead", "suspect", "well"};
static const char *const stream_names[] = {"closed", "opening", "live"};

static json_t *describe_stream(const cluster_node_status *s) {
    const cluster_view_counts *c = s->counts;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "state", stream_names[s->stream],
                     "frames", (json_int_t)c->frames, "bytes", (json_int_t)c->bytes, "changes", (json_int_t)c->changes,
                     "snapshots", (json_int_t)c->snapshots, "gaps", (json_int_t)c->gaps, "wrong_digests",
                     (json_int_t)c->wrong_digests, "other_epochs", (json_int_t)c->other_epochs, "cuts",
                     (json_int_t)c->cuts, "forged", (json_int_t)c->forged, "ignored", (json_int_t)c->ignored);
}

static json_t *describe_load(const rp_engine_load *l) {
    return json_pack("{s:i, s:i, s:i, s:I, s:I, s:f, s:f, s:I}", "running", (int)l->running, "waiting", (int)l->waiting,
                     "decoding", (int)l->decoding, "queued_tokens", (json_int_t)l->queued_tokens, "context_tokens",
                     (json_int_t)l->context_tokens, "drain_ms", (double)l->drain_us / 1e3, "gap_p95_ms",
                     (double)l->gap_p95_us / 1e3, "free_bytes", (json_int_t)l->free_bytes);
}

/* Under the router's lock. */
static json_t *describe_node(const route_node *n, const cluster_node_status *s) {
    char epoch[20];
    snprintf(epoch, sizeof(epoch), "%016" PRIx64, s->hello->epoch);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:s, s:b, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:o, s:o}", "name",
        n->name, "url", n->url, "cluster_name", s->hello->node, "health", health_names[s->health], "draining",
        s->draining, "drained", n->is_drained, "waits_for_schemas", n->is_held, "identity", s->hello->identity,
        "other_identity", s->other_identity, "epoch", epoch, "model", s->hello->model, "n_ctx", (int)s->hello->n_ctx,
        "max_running", (int)s->hello->max_sequences, "sent", (int)s->sent, "sent_tokens", (json_int_t)s->sent_tokens,
        "names", (json_int_t)s->names, "placed", (json_int_t)s->placed, "failed", (json_int_t)s->failed, "load",
        describe_load(&s->load->engine), "stream", describe_stream(s));
}

void handle_route_cluster(server_request *x) {
    route *t = x->server->route;
    cluster_node_status s;
    json_t *nodes = json_array();
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < cluster_router_nodes(t->router); i++)
        if (t->nodes[i] && cluster_router_node(t->router, i, &s))
            json_array_append_new(nodes, describe_node(t->nodes[i], &s));
    const cluster_router_counts c = cluster_router_counted(t->router);
    json_t *identity = json_string(cluster_router_identity(t->router)), *planned = json_string(t->planned_identity);
    pthread_mutex_unlock(&t->lock);
    json_t *all = json_pack("{s:s, s:o, s:o, s:i, s:i, s:I, s:I, s:o}", "object", "cluster", "identity", identity,
                            "planned_identity", planned, "queued", (int)c.queued, "sent", (int)c.sent, "names",
                            (json_int_t)c.names, "index_bytes", (json_int_t)c.index_bytes, "nodes", nodes);
    server_request_reply_json(x, 200, all);
}

static void drain_node(server_request *x, bool drains) {
    route *t = x->server->route;
    const int32_t node = asked_node(x);
    cluster_node_status s = {0};
    bool is_there = false;
    if (node >= 0) {
        pthread_mutex_lock(&t->lock);
        is_there = t->nodes[node] && cluster_router_node(t->router, node, &s);
        if (is_there) {
            t->nodes[node]->is_drained = drains;
            route_apply_drain(t, t->nodes[node]);
        }
        pthread_mutex_unlock(&t->lock);
        route_wake(t);
    }
    if (!is_there) {
        server_fail(&x->problem, SERVER_NOT_FOUND, "node", "the node is no longer listed");
        server_request_reply_problem(x);
        return;
    }
    json_t *all = json_pack("{s:s, s:s, s:b, s:i}", "object", "cluster.node", "name", s.name, "drained", drains, "sent",
                            (int)s.sent);
    server_request_reply_json(x, 200, all);
}

void handle_route_drain(server_request *x) { drain_node(x, true); }
void handle_route_undrain(server_request *x) { drain_node(x, false); }
