/* SPDX-License-Identifier: Apache-2.0 */
/* nonces.h: replay protection: nonces of the signed requests that a node has received, so that a request that was
 * recorded on the network, or sent again by an HTTP library, is not answered twice. Bounded: the nonces of the last
 * CLUSTER_KNOWN_NONCES requests at least. Requests to an earlier process are refused by their epoch (relay.h). One user
 * at a time.
 */
#ifndef CLUSTER_NONCES_H
#define CLUSTER_NONCES_H

#include <stdbool.h>

#include "cluster/wire.h"

#define CLUSTER_KNOWN_NONCES 32768

typedef struct cluster_nonces cluster_nonces;
cluster_nonces *cluster_nonces_new(void); /* NULL: no memory */
void cluster_nonces_free(cluster_nonces *n);
/* Adds a nonce. false: it is known already. */
bool cluster_nonces_add(cluster_nonces *n, const uint8_t nonce[CLUSTER_NONCE_BYTES]);

#endif
