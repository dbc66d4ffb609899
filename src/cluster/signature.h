/* SPDX-License-Identifier: Apache-2.0 */
/* signature.h: what proves that a request comes from who has the cluster's secret, for both sides of the cluster port (docs/cluster-protocol.md).
 *
 *   x-reprise-cluster: 1;NONCE;MAC     NONCE: 32 hexadecimal digits, new for each request; MAC: 64
 *   MAC = BLAKE2b-256, keyed by the secret, of: "reprise request 1", method, target, NONCE, x-reprise-route, x-reprise-resume, tag of the body;
 *         each is its length (u32, little-endian) and its bytes
 *   tag = Poly1305 of the body (RFC 8439, 2.5), with the key BLAKE2b-256, keyed by the secret, of: "reprise body 1", NONCE
 *
 * A prompt of 100,000 tokens is hashed by the router and by the node: Poly1305 takes a sixth of BLAKE2b's time. Its key is used for one body, and
 * its tag is not sent, so that nothing is known of either but whether a MAC is right.
 *
 * Pure, but for cluster_secret_read. sodium_init must have been called.
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

/* Reads a secret of RP_CLUSTER_KEY_BYTES from a file of so many bytes, or of 64 hexadecimal digits. RP_ERR_INVALID (neither; others than the owner
 * and his group may read or write it), RP_ERR_IO, RP_ERR_MEMORY. */
int cluster_secret_read(uint8_t secret[RP_CLUSTER_KEY_BYTES], const char *path, rp_error *err);

/* The tag of a body, as its bytes arrive. Without any: the tag of an empty body. */
typedef struct cluster_body {
    _Alignas(64) unsigned char state[256];
} cluster_body;
void cluster_body_init(cluster_body *b, const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES]);
void cluster_body_add(cluster_body *b, const void *bytes, size_t n);
void cluster_body_final(cluster_body *b, uint8_t tag[CLUSTER_BODY_TAG_BYTES]);

/* What is signed. */
typedef struct cluster_signed {
    const char *method, *target; /* target: the path with its query, as it is sent */
    const char *route, *resume;  /* values of x-reprise-route and x-reprise-resume; NULL: "" */
    const uint8_t *body_tag;     /* [CLUSTER_BODY_TAG_BYTES], of the same nonce */
} cluster_signed;

/* The header's value for a request. */
void cluster_sign(char out[CLUSTER_SIGNATURE_BYTES], const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES], const cluster_signed *r);
/* Is it well-formed, up to its MAC? nonce: receives that of the request. text may be NULL: no. */
bool cluster_signature_parse(const char *text, uint8_t nonce[CLUSTER_NONCE_BYTES]);
/* Is it the header's value for this request? In constant time. */
bool cluster_signature_check(const char *text, const uint8_t *secret, const cluster_signed *r);

/* What proves that bytes are the reply to the request with this nonce: 32 digits of BLAKE2b-256, keyed by the secret, of "reprise reply 1", nonce,
 * bytes. */
#define CLUSTER_REPLY_TAG_BYTES 33
void cluster_reply_tag(char out[CLUSTER_REPLY_TAG_BYTES], const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES], const void *bytes,
                       size_t n);

/* The tag of a node: 8 digits of BLAKE2b-256 of its name, in the ids of what it stores. */
#define CLUSTER_NODE_TAG_BYTES 9
void cluster_node_tag(char out[CLUSTER_NODE_TAG_BYTES], const char *name);

#endif
