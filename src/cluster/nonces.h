/* SPDX-License-Identifier: Apache-2.0 */
/* nonces.h: the nonces that a node has seen of signed requests, so that none is answered twice: what somebody has recorded on the network, or what an
 * HTTP library sent again by itself. Bounded: of the last CLUSTER_KNOWN_NONCES requests at least; of a longer memory than its process nothing is
 * known, which epochs are for (relay.h). Pure. One user at a time.
 */
#ifndef CLUSTER_NONCES_H
#define CLUSTER_NONCES_H

#include <stdbool.h>

#include "cluster/wire.h"

#define CLUSTER_KNOWN_NONCES 32768

typedef struct cluster_nonces cluster_nonces;
cluster_nonces *cluster_nonces_new(void); /* NULL: no memory */
void cluster_nonces_free(cluster_nonces *n);
/* Adds it. false: it is known. */
bool cluster_nonces_add(cluster_nonces *n, const uint8_t nonce[CLUSTER_NONCE_BYTES]);

#endif
