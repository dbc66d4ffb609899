/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_schemas.c: uploaded schemas of a node, for its routers: /v1/cluster/schemas..., on the cluster's port alone.
 * Who has the cluster's secret needs no key: the router has checked its client's, or passes on what another one had
 * checked. tenant=: whose schema it is; without it: the operator's, which all tenants share. Owns nothing. Workers. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "server/http/server_internal.h"
#include "server/node/cluster_node.h"
#include "server/node/cluster_port.h"
#include "server/node/node_handlers.h"
#include "server/prompt/schemas_http.h"

/* Any reply: of a router. */
static bool is_of_router(server_request *x) {
    if (!x->relay)
        server_fail(&x->problem, SERVER_NOT_FOUND, NULL,
                    "a router's schemas are for the cluster's port (--cluster-listen)");
    return x->problem.kind == SERVER_FINE;
}

/* ---- changes ---- */

/* The request becomes one of the tenant. Only for this process: a recording of it would undo a later change otherwise.
 * at: when the change was made. false: the reply is made, and the request may be freed. */
static bool act_for_tenant(server_request *x, uint64_t *at) {
    const char *tenant = server_request_query(x, "tenant");
    if (is_of_router(x) && !x->relay->has_route)
        server_fail(&x->problem, SERVER_INVALID, CLUSTER_ROUTE_HEADER,
                    "a change of schemas needs " CLUSTER_ROUTE_HEADER);
    *at = cluster_http_number(x, "at", 10);
    if (*at > INT64_MAX) server_fail(&x->problem, SERVER_INVALID, "at", "'at' is no time: give nanoseconds since 1970");
    if (x->relay) {
        server_key *as = &x->relay->as;
        BASE_ASSERT(!x->key && !as->tenant); /* its routes need none */
        as->rights = SERVER_SCHEMAS | SERVER_SHARE;
        atomic_store(&as->running, 1); /* ended with the request */
        if (tenant && !(as->tenant = base_strdup(tenant))) server_fail_memory(&x->problem);
        x->key = as;
    }
    const bool may = x->problem.kind == SERVER_FINE;
    if (!may) server_request_reply_problem(x);
    return may;
}

void handle_cluster_schema_put(server_request *x) {
    uint64_t at;
    if (act_for_tenant(x, &at)) schemas_http_put(x, x->key->tenant, at);
}

void handle_cluster_schema_delete(server_request *x) {
    uint64_t at;
    if (act_for_tenant(x, &at)) schemas_http_delete(x, x->key->tenant, at);
}

/* ---- what there is ---- */

/* The object, which it takes over, and a line with the tag of its bytes: a router stores what a node replies, so that
   the reply is signed. */
static void reply_tagged(server_request *x, json_t *object) {
    base_buffer text = BASE_BUFFER(2 * SERVER_MAX_REGISTRY_BYTES);
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    char tag[CLUSTER_REPLY_TAG_BYTES];
    char *bytes = object ? json_dumps(object, JSON_COMPACT) : NULL;
    int rc = bytes ? base_buffer_append_str(&text, bytes) : RP_ERR_MEMORY;
    base_free(bytes);
    json_decref(object);
    const bool is_signed = cluster_signature_parse(server_request_header(x, CLUSTER_SIGNATURE_HEADER), nonce);
    BASE_ASSERT(is_signed); /* cluster_port_end has checked it */
    if (!rc) {
        cluster_reply_tag(tag, cluster_node_secret(x->server->cluster), nonce, text.data, text.len);
        rc = base_buffer_printf(&text, "\n%s", tag);
    }
    if (!rc) {
        server_request_reply_text(x, 200, "text/plain; charset=utf-8", &text);
        return;
    }
    base_buffer_free(&text);
    server_fail_memory(&x->problem);
    server_request_reply_problem(x);
}

static void add_entry(void *user, const schema_entry *e) {
    json_array_append_new(user, json_pack("{s:s*, s:s, s:I, s:b}", "tenant", e->tenant, "name", e->name, "changed",
                                          (json_int_t)e->changed, "removed", e->text == NULL));
}

void handle_cluster_schema_list(server_request *x) {
    if (!is_of_router(x)) {
        server_request_reply_problem(x);
        return;
    }
    schema_registry *registry = x->model->registry;
    const uint64_t digest =
        schema_registry_digest(registry); /* before: a change in between leads to another exchange */
    json_t *all = json_array();
    if (all) schema_registry_visit(registry, add_entry, all);
    reply_tagged(x, json_pack("{s:s, s:I, s:o}", "object", "list", "digest", (json_int_t)digest, "data", all));
}

void handle_cluster_schema_get(server_request *x) {
    base_buffer pml = BASE_BUFFER(SERVER_MAX_REGISTRY_BYTES);
    const char *tenant = server_request_query(x, "tenant");
    uint64_t changed = 0;
    int rc = RP_OK;
    if (is_of_router(x)) {
        changed = schema_registry_changed(x->model->registry, tenant, x->name);
        rc = schema_registry_get(x->model->registry, tenant, x->name, &pml);
    }
    if (rc == RP_ERR_NAME) server_fail(&x->problem, SERVER_NOT_FOUND, "name", "unknown schema '%.80s'", x->name);
    else if (rc) server_fail_memory(&x->problem);
    if (x->problem.kind) server_request_reply_problem(x);
    else reply_tagged(x, json_pack("{s:I, s:s%}", "changed", (json_int_t)changed, "pml", pml.data, pml.len));
    base_buffer_free(&pml);
}
