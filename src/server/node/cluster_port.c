/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_port.c: see cluster_port.h. */
#include "server/node/cluster_port.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"
#include "server/node/cluster_node.h"

/* ---- heads ---- */

static void refuse_signature(server_request *x) {
    x->problem = (server_problem){0}; /* nothing else is told to who lacks the secret */
    server_fail(&x->problem, SERVER_KEY, NULL,
                "no valid signature of the cluster: sign requests to this port (" CLUSTER_SIGNATURE_HEADER ")");
}

static void read_route(server_request *x) {
    server_relay *r = x->relay;
    const char *route = server_request_header(x, CLUSTER_ROUTE_HEADER),
               *resume = server_request_header(x, CLUSTER_RESUME_HEADER);
    if (route && !cluster_route_read(&r->route, route))
        server_fail(&x->problem, SERVER_INVALID, CLUSTER_ROUTE_HEADER, "malformed " CLUSTER_ROUTE_HEADER);
    if (resume && !route)
        server_fail(&x->problem, SERVER_INVALID, CLUSTER_RESUME_HEADER,
                    CLUSTER_RESUME_HEADER " needs " CLUSTER_ROUTE_HEADER);
    if (resume && !cluster_resume_read(&r->resume, resume))
        server_fail(&x->problem, SERVER_INVALID, CLUSTER_RESUME_HEADER, "malformed " CLUSTER_RESUME_HEADER);
    if (route && !x->problem.kind && r->route.epoch != cluster_node_epoch(x->server->cluster))
        server_fail(&x->problem, SERVER_CONFLICT, CLUSTER_ROUTE_HEADER, "%s",
                    cluster_refusal_message(CLUSTER_OTHER_PROCESS));
    if (!route || x->problem.kind) return;
    r->has_route = true;
    r->resumes = resume != NULL;
    snprintf(x->id, sizeof(x->id), "%s", r->route.id);
}

bool cluster_port_begin(server_request *x) {
    const server_listener *l = listeners_of(&x->server->listeners, x->connection);
    uint8_t nonce[CLUSTER_NONCE_BYTES] = {0};
    if (x->server->route) return true; /* it passes none of its clients' on */
    if (!l || !l->is_cluster) {
        if (server_request_header(x, CLUSTER_ROUTE_HEADER) || server_request_header(x, CLUSTER_RESUME_HEADER))
            server_fail(&x->problem, SERVER_INVALID, CLUSTER_ROUTE_HEADER,
                        "%s and %s are a router's: this is not the cluster's port", CLUSTER_ROUTE_HEADER,
                        CLUSTER_RESUME_HEADER);
        return true;
    }
    BASE_ASSERT(!x->relay && x->server->cluster);
    x->relay = base_calloc(1, sizeof(*x->relay));
    if (!x->relay) return false;
    x->relay->unmarked = BASE_BUFFER(CLUSTER_MAX_RESUMED * sizeof(int32_t));
    if (!cluster_signature_parse(server_request_header(x, CLUSTER_SIGNATURE_HEADER), nonce)) refuse_signature(x);
    else read_route(x);
    cluster_body_init(&x->relay->body, cluster_node_secret(x->server->cluster), nonce);
    return true;
}

/* ---- bodies ---- */

/* The tokens at the body's end, which is cut. */
static void take_tokens(server_request *x) {
    server_relay *r = x->relay;
    const size_t n = (size_t)r->resume.n_tokens, bytes = n * sizeof(int32_t);
    if (!r->resumes || x->problem.kind) return;
    if (x->body.len < bytes) {
        server_fail(&x->problem, SERVER_INVALID, CLUSTER_RESUME_HEADER,
                    "the body has %zu bytes: too few for %zu tokens", x->body.len, n);
        return;
    }
    BASE_ASSERT(!r->tokens);
    if (n > 0 && !(r->tokens = base_calloc(n, sizeof(*r->tokens)))) {
        server_fail_memory(&x->problem);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char *b = (const unsigned char *)x->body.data + x->body.len - bytes + i * sizeof(int32_t);
        r->tokens[i] = (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
    }
    base_buffer_truncate(&x->body, x->body.len - bytes);
    request_memory_drop_body(x, bytes);
}

void cluster_port_end(server_request *x) {
    uint8_t tag[CLUSTER_BODY_TAG_BYTES];
    if (!x->relay) return;
    cluster_body_final(&x->relay->body, tag);
    const cluster_signed said = {x->method, x->peer->target ? x->peer->target : "",
                                 server_request_header(x, CLUSTER_ROUTE_HEADER),
                                 server_request_header(x, CLUSTER_RESUME_HEADER), tag};
    const char *signature = server_request_header(x, CLUSTER_SIGNATURE_HEADER);
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    if (!cluster_signature_check(signature, cluster_node_secret(x->server->cluster), &said)) refuse_signature(x);
    else if (!cluster_signature_parse(signature, nonce) || !cluster_node_take_nonce(x->server->cluster, nonce))
        server_fail(&x->problem, SERVER_CONFLICT, CLUSTER_SIGNATURE_HEADER, "%s",
                    cluster_refusal_message(CLUSTER_REPLAYED));
    else take_tokens(x);
}

_Static_assert(SERVER_ID_BYTES >= CLUSTER_REQUEST_ID_BYTES, "a router's id is a request's id");
