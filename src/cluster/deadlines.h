/* SPDX-License-Identifier: Apache-2.0 */
/* deadlines.h: requests by the time at which something is due for them, the first one first: a binary heap, whose places the requests know. One
 * thread. */
#ifndef CLUSTER_DEADLINES_H
#define CLUSTER_DEADLINES_H

#include "cluster/router.h"

/* Part of a request's own data. */
typedef struct cluster_due {
    uint64_t at_us;
    int32_t place; /* in the heap; -1: it is not there */
} cluster_due;

/* Zero-initialise, and set due. */
typedef struct cluster_deadlines {
    cluster_due *(*due)(const cluster_request *r);
    cluster_request **heap; /* [n] */
    size_t n, cap;
} cluster_deadlines;

void cluster_deadlines_free(cluster_deadlines *d);
int cluster_deadlines_add(cluster_deadlines *d, cluster_request *r, uint64_t at_us);   /* it is not there. RP_ERR_MEMORY */
void cluster_deadlines_remove(cluster_deadlines *d, cluster_request *r);               /* nothing if it is not there */
cluster_request *cluster_deadlines_first(const cluster_deadlines *d, uint64_t *at_us); /* NULL, UINT64_MAX: none */

#endif
