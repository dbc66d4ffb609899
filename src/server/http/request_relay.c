/* SPDX-License-Identifier: Apache-2.0 */
/* request_relay.c: see request_relay.h. */
#include "server/http/request_relay.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "server/http/server_internal.h"

void relay_add(server_request *x, const void *bytes, size_t n) {
    if (x->relay) cluster_body_add(&x->relay->body, bytes, n);
}

void relay_free(server_request *x) {
    if (!x->relay) return;
    base_free(x->relay->tokens);
    base_free(x->relay->as.tenant);
    base_buffer_free(&x->relay->unmarked);
    base_free(x->relay);
    x->relay = NULL;
}

cluster_refusal relay_refusal(const server_request *x) {
    const server_problem *p = &x->problem;
    if (p->kind == SERVER_LOADING)
        return server_get_state(x->server) == SERVER_STATE_LOADING ? CLUSTER_NO_REFUSAL : CLUSTER_DRAINING;
    if (p->kind != SERVER_CONFLICT) return CLUSTER_NO_REFUSAL;
    if (strcmp(p->field, CLUSTER_ROUTE_HEADER) == 0) return CLUSTER_OTHER_PROCESS;
    return strcmp(p->field, CLUSTER_SIGNATURE_HEADER) == 0 ? CLUSTER_REPLAYED : CLUSTER_NO_REFUSAL;
}

void relay_stored_id(const server_request *x, char out[RELAY_ID_BYTES]) {
    const char *tag = x->server->node_tag;
    const int n = snprintf(out, RELAY_ID_BYTES, "%s%s%s", tag, tag[0] ? "_" : "", x->id);
    BASE_ASSERT(n > 0 && n < RELAY_ID_BYTES); /* a cut id would name something else */
}
