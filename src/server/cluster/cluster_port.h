/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_port.h: requests of routers, on the cluster's port (docs/cluster-protocol.md): their signature, and what their headers say.
 *
 *   head   signature well-formed? route: epoch, id       else 401, 400, 409
 *   body   its hash, piece by piece
 *   end    signature right, and its nonce new?           else 401, 409; resumed tokens are taken from the body's end
 *
 * I/O threads; after that the request's owner reads.
 */
#ifndef SERVER_CLUSTER_PORT_H
#define SERVER_CLUSTER_PORT_H

#include "cluster/relay.h"
#include "cluster/signature.h"
#include "server/http/server_request.h"

/* What a router says about a request, and what was sent of its answer (stream_marks.h). */
typedef struct server_relay {
    cluster_body body; /* hash of the bytes that have arrived */
    bool has_route, resumes;
    cluster_route route;
    cluster_resume resume;
    int32_t *tokens; /* [resume.n_tokens] that were sampled before */
    server_key as;   /* for whom a router changes schemas (cluster_schemas.c); its tenant is owned */

    /* Of a stream: owned by its I/O thread. */
    bool has_marks;      /* set before its jobs are submitted */
    bool skips;          /* what was rendered so far is what the client has */
    uint64_t text_bytes; /* of the answer, rendered */
    uint64_t frames;
    base_buffer unmarked; /* int32_t: tokens since the last mark */
} server_relay;

/* The callback of listeners_start: keeps the request's target, of which libmicrohttpd gives only parts later. */
void *cluster_port_target(void *cls, const char *target, struct MHD_Connection *connection);
/* The head is there. On another port: refuses a router's headers. false: no memory. */
bool cluster_port_begin(server_request *x);
/* Bytes of the body, stored or not. */
void cluster_port_add(server_request *x, const void *bytes, size_t n);
/* The body is complete: checks the signature, before anything else of the request counts. */
void cluster_port_end(server_request *x);
void cluster_port_free(server_request *x);

/* The id of something that this server stores for a request: "TAG_ID" on a node with a name, else the request's id. */
#define CLUSTER_PORT_ID_BYTES (SERVER_ID_BYTES + CLUSTER_NODE_TAG_BYTES)
void cluster_port_stored_id(const server_request *x, char out[CLUSTER_PORT_ID_BYTES]);

#endif
