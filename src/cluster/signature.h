/* SPDX-License-Identifier: Apache-2.0 */
/* signature.h: authentication of requests with the cluster's secret, for both sides of the cluster port
 * (docs/cluster-protocol.md).
 *
 *   x-reprise-cluster: 1;NONCE;MAC     NONCE: 32 hexadecimal digits, new for each request; MAC: 64
 *   MAC = BLAKE2b-256, keyed by the secret, of: "reprise request 1", method, target, NONCE, x-reprise-route,
 *   x-reprise-resume, tag of the body;
 *         each as its length (u32, little-endian) and its bytes
 *   tag = Poly1305 of the body (RFC 8439, 2.5), with the key BLAKE2b-256, keyed by the secret, of: "reprise body 1",
 *   NONCE
 *
 * Router and node both hash a body, of 100,000 tokens for instance: Poly1305 takes a sixth of the time of BLAKE2b. Its
 * key is used for one body, and its tag is not sent: an attacker only learns whether a MAC is accepted.
 *
 * Pure functions, except cluster_secret_read. sodium_init must have been called.
 */
#ifndef CLUSTER_SIGNATURE_H
#define CLUSTER_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

#include "cluster/wire.h"
#include "reprise_cluster.h"

#define CLUSTER_SIGNATURE_HEADER "x-reprise-cluster"
#define CLUSTER_SIGNATURE_BYTES (2 + 2 * CLUSTER_NONCE_BYTES + 1 + 2 * 32 + 1) /* with its NUL */
#define CLUSTER_BODY_TAG_BYTES 16

/* Reads a secret of RP_CLUSTER_KEY_BYTES from a file that has these bytes, or 64 hexadecimal digits. RP_ERR_INVALID (it
 * has neither; users besides the owner and the group can read or write it), RP_ERR_IO, RP_ERR_MEMORY. */
int cluster_secret_read(uint8_t secret[RP_CLUSTER_KEY_BYTES], const char *path, rp_error *err);

/* The tag of a body, computed as its bytes arrive. */
typedef struct cluster_body {
    _Alignas(64) unsigned char state[256];
} cluster_body;
void cluster_body_init(cluster_body *b, const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES]);
void cluster_body_add(cluster_body *b, const void *bytes, size_t n);
void cluster_body_final(cluster_body *b, uint8_t tag[CLUSTER_BODY_TAG_BYTES]);

/* The signed parts of a request. */
typedef struct cluster_signed {
    const char *method, *target; /* target: the path with its query, as it is sent */
    const char *route, *resume;  /* values of x-reprise-route and x-reprise-resume; NULL: "" */
    const uint8_t *body_tag;     /* [CLUSTER_BODY_TAG_BYTES], of the same nonce */
} cluster_signed;

/* Writes the value of the header of a request. */
void cluster_sign(char out[CLUSTER_SIGNATURE_BYTES], const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES],
                  const cluster_signed *r);
/* Is the header well-formed, whatever its MAC? nonce: receives its nonce. text NULL: false. */
bool cluster_signature_parse(const char *text, uint8_t nonce[CLUSTER_NONCE_BYTES]);
/* Is it the header of this request? The MAC is compared in constant time. */
bool cluster_signature_check(const char *text, const uint8_t *secret, const cluster_signed *r);

/* The tag of the reply to the request with this nonce: 32 digits of BLAKE2b-128, keyed by the secret, of "reprise reply
 * 1", nonce, bytes. */
#define CLUSTER_REPLY_TAG_BYTES 33
void cluster_reply_tag(char out[CLUSTER_REPLY_TAG_BYTES], const uint8_t *secret,
                       const uint8_t nonce[CLUSTER_NONCE_BYTES], const void *bytes, size_t n);

/* The tag of a node in the ids of its stored objects: 8 digits of BLAKE2b-256 of its name. */
#define CLUSTER_NODE_TAG_BYTES 9
void cluster_node_tag(char out[CLUSTER_NODE_TAG_BYTES], const char *name);

#endif
