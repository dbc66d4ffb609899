/* SPDX-License-Identifier: Apache-2.0 */
/* deadlines.h: requests by their deadlines, the first one first: a binary heap, whose places the requests know. One thread. */
#ifndef CLUSTER_DEADLINES_H
#define CLUSTER_DEADLINES_H

#include "cluster/router.h"

/* Zero-initialise, and set place. */
typedef struct cluster_deadlines {
    int32_t *(*place)(const cluster_request *r); /* where a request keeps its place; -1: it is not here */
    cluster_request **heap;                      /* [n] */
    size_t n, cap;
} cluster_deadlines;

void cluster_deadlines_free(cluster_deadlines *d);
int cluster_deadlines_add(cluster_deadlines *d, cluster_request *r); /* RP_ERR_MEMORY */
void cluster_deadlines_remove(cluster_deadlines *d, cluster_request *r); /* nothing if it is not here */
cluster_request *cluster_deadlines_first(const cluster_deadlines *d);    /* NULL: none */

#endif
