/* SPDX-License-Identifier: Apache-2.0 */
/* deadlines.h: requests by the time at which they expire: a binary heap with the earliest one at its root. Each request
 * has its index in the heap. One thread. */
#ifndef CLUSTER_DEADLINES_H
#define CLUSTER_DEADLINES_H

#include "cluster/router.h"

/* In a request's private data. */
typedef struct cluster_due {
    uint64_t at_us;
    int32_t place; /* index in the heap; -1: it is not in the heap */
} cluster_due;

/* Zero-initialise, and set due. */
typedef struct cluster_deadlines {
    cluster_due *(*due)(const cluster_request *r);
    cluster_request **heap; /* [n] */
    size_t n, cap;
} cluster_deadlines;

void cluster_deadlines_free(cluster_deadlines *d);
/* Adds a request that is not in the heap. RP_ERR_MEMORY. */
int cluster_deadlines_add(cluster_deadlines *d, cluster_request *r, uint64_t at_us);
/* No effect if it is not in the heap. */
void cluster_deadlines_remove(cluster_deadlines *d, cluster_request *r);
/* NULL, and UINT64_MAX: the heap is empty. */
cluster_request *cluster_deadlines_first(const cluster_deadlines *d, uint64_t *at_us);

#endif
