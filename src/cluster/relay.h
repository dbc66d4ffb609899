/* SPDX-License-Identifier: Apache-2.0 */
/* relay.h: headers of the requests that a router relays to a node, marks between the frames of a node's stream, and
 * refusals (docs/cluster-protocol.md):
 *
 *   x-reprise-route: epoch=HEX;id=ID;seed=N;created=SECONDS;marks=0|1[;left=MS]
 *   x-reprise-resume: N;TEXT_BYTES;FRAMES               the body ends with N tokens (int32, little-endian)
 *   : r TEXT_BYTES FRAMES TOKEN TOKEN ...               a mark: a line of the stream, then an empty one
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
#define CLUSTER_MARK ": r "                    /* beginning of a mark */

/* Why a node refused a request of a router, if the status alone does not define what the router does next.
 * X(ID, "value", message for people).
 *
 *   DRAINING        503   the node takes no new requests; its next load says so, too. Nothing was done
 *   OTHER_PROCESS   409   the route's epoch is that of an earlier process of the node. Nothing was done
 *   REPLAYED        409   the node has seen the nonce: it has the request, or had it
 */
#define CLUSTER_REFUSAL_HEADER "x-reprise-refusal" /* of the reply */
#define CLUSTER_REFUSALS(X) \
    X(DRAINING, "draining", "the server is draining: use another one") \
    X(OTHER_PROCESS, "other-process", \
      "the request is for another process: the node has restarted, read its span stream") \
    X(REPLAYED, "replayed", "the request was sent before: sign each request with a new nonce")
typedef enum cluster_refusal {
    CLUSTER_NO_REFUSAL,
#define X(id, value, message) CLUSTER_##id,
    CLUSTER_REFUSALS(X)
#undef X
        CLUSTER_N_REFUSALS
} cluster_refusal;

/* The header's value; its message. Not of CLUSTER_NO_REFUSAL. Static. */
const char *cluster_refusal_value(cluster_refusal r);
const char *cluster_refusal_message(cluster_refusal r);
/* CLUSTER_NO_REFUSAL: another value. */
cluster_refusal cluster_refusal_read(const char *value);

#define CLUSTER_REQUEST_ID_BYTES 40 /* with its NUL: letters, digits, '-' and '_' */
#define CLUSTER_ROUTE_BYTES 192
#define CLUSTER_RESUME_BYTES 64
#define CLUSTER_MAX_RESUMED ((uint64_t)1 << 24) /* tokens */

typedef struct cluster_route {
    uint64_t epoch; /* of the process for which the request is */
    char id[CLUSTER_REQUEST_ID_BYTES];
    uint64_t seed;   /* of a request without a seed of its own */
    int64_t created; /* seconds since 1970 */
    bool marks;
    int64_t left_ms; /* time to its deadline, at the time of sending; 0: no deadline, and not written */
} cluster_route;

/* Writes the header's value. */
void cluster_route_write(char out[CLUSTER_ROUTE_BYTES], const cluster_route *r);
/* Reads it: fields in any order, each once. false: malformed. */
bool cluster_route_read(cluster_route *out, const char *text);

typedef struct cluster_resume {
    uint64_t n_tokens;   /* tokens that were sampled before */
    uint64_t text_bytes; /* bytes of the answer's rendered text that the client has */
    uint64_t frames;     /* frames that the client has */
} cluster_resume;

void cluster_resume_write(char out[CLUSTER_RESUME_BYTES], const cluster_resume *r);
bool cluster_resume_read(cluster_resume *out, const char *text);

#endif
