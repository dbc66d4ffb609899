/* SPDX-License-Identifier: Apache-2.0 */
/* relay.h: what a router writes on a request that it passes to a node, and what a node writes between the frames of its stream
 * (docs/cluster-protocol.md):
 *
 *   x-reprise-route: epoch=HEX;id=ID;seed=N;created=SECONDS;marks=0|1[;left=MS]
 *   x-reprise-resume: N;TEXT_BYTES;FRAMES               N tokens (int32, little-endian) are the end of the body
 *   : r TEXT_BYTES FRAMES TOKEN TOKEN ...               a mark: a line of the stream, and an empty one
 *
 * Pure. Any thread.
 */
#ifndef CLUSTER_RELAY_H
#define CLUSTER_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_ROUTE_HEADER "x-reprise-route"
#define CLUSTER_RESUME_HEADER "x-reprise-resume"
#define CLUSTER_MARKS_HEADER "x-reprise-marks" /* of a reply: "1" if its stream has marks */
#define CLUSTER_MARK ": r "                    /* how a mark begins */
/* Messages. 503: it takes nothing any more, which its load says, too, a little later. 409: for another epoch, nothing was done; for a nonce that the
 * node knows. */
#define CLUSTER_DRAINING "the server is draining: use another one"
#define CLUSTER_OTHER_PROCESS "the request is for another process: this node has begun anew"
#define CLUSTER_REPLAYED "the request was sent before: a router signs each one anew"

#define CLUSTER_REQUEST_ID_BYTES 40 /* with its NUL: letters, digits, '-' and '_' */
#define CLUSTER_ROUTE_BYTES 192
#define CLUSTER_RESUME_BYTES 64
#define CLUSTER_MAX_RESUMED ((uint64_t)1 << 24) /* tokens */

typedef struct cluster_route {
    uint64_t epoch; /* of the node that is meant */
    char id[CLUSTER_REQUEST_ID_BYTES];
    uint64_t seed;   /* of a request that names none */
    int64_t created; /* seconds since 1970 */
    bool marks;
    int64_t left_ms; /* of its deadline, when it was sent; 0: none, and not written */
} cluster_route;

/* Writes the header's value. */
void cluster_route_write(char out[CLUSTER_ROUTE_BYTES], const cluster_route *r);
/* Fields in any order, each once. false: malformed. */
bool cluster_route_read(cluster_route *out, const char *text);

typedef struct cluster_resume {
    uint64_t n_tokens;   /* that were sampled before */
    uint64_t text_bytes; /* of the answer's text that the client has, rendered */
    uint64_t frames;     /* that it has */
} cluster_resume;

void cluster_resume_write(char out[CLUSTER_RESUME_BYTES], const cluster_resume *r);
bool cluster_resume_read(cluster_resume *out, const char *text);

#endif
