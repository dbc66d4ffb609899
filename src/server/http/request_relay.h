/* SPDX-License-Identifier: Apache-2.0 */
/* request_relay.h: what a router said about a request that it sent to this node, and what was sent of the answer. A
 * request without one came from a client. Filled in by the layer that reads the cluster's headers
 * (node/cluster_port.h).
 */
#ifndef SERVER_REQUEST_RELAY_H
#define SERVER_REQUEST_RELAY_H

#include "cluster/relay.h"
#include "cluster/signature.h"
#include "server/http/server_request.h"

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

/* Bytes of the body, stored or not. */
void relay_add(server_request *x, const void *bytes, size_t n);
void relay_free(server_request *x);
/* Why this node, which is well, refuses a router's request: from its problem. CLUSTER_NO_REFUSAL: another problem, or
   none. */
cluster_refusal relay_refusal(const server_request *x);

/* The id of something that this server stores for a request: "TAG_ID" on a node with a name, else the request's id. */
#define RELAY_ID_BYTES (SERVER_ID_BYTES + CLUSTER_NODE_TAG_BYTES)
void relay_stored_id(const server_request *x, char out[RELAY_ID_BYTES]);

#endif
