/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_schemas.c: schemas that a router gives to a node for a tenant: /v1/cluster/schemas/NAME?tenant=T, on the cluster's port alone. Who has the
 * cluster's secret needs no key: the router has checked its client's, or restores what it had checked. Without tenant=: the operator's, which all
 * tenants share. Owns nothing. Workers. */
#include "base/memory.h"
#include "server/cluster/cluster_port.h"
#include "server/handlers.h"
#include "server/server_internal.h"

/* The request becomes one of the tenant. */
static bool act_for_tenant(server_request *x) {
    const char *tenant = server_request_query(x, "tenant");
    if (!x->relay) server_fail(&x->problem, SERVER_NOT_FOUND, NULL, "a router's schemas are for the cluster's port (--cluster-listen)");
    else {
        server_key *as = &x->relay->as;
        as->rights = SERVER_SCHEMAS | SERVER_SHARE;
        atomic_store(&as->running, 1); /* ended with the request */
        if (tenant && !(as->tenant = base_strdup(tenant))) server_fail_memory(&x->problem);
        x->key = as;
    }
    const bool may = x->problem.kind == SERVER_FINE;
    if (!may) server_request_reply_problem(x); /* the request may be freed from here on */
    return may;
}

void handle_cluster_schema_put(server_request *x) {
    if (act_for_tenant(x)) handle_schema_put(x);
}

void handle_cluster_schema_delete(server_request *x) {
    if (act_for_tenant(x)) handle_schema_delete(x);
}
