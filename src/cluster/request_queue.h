/* SPDX-License-Identifier: Apache-2.0 */
/* request_queue.h: requests that wait for a node.
 *
 *   priority 5   tenant A: a1 a2 a3      the highest priority first; within it tenants in turn, by deficit round robin over the predicted time of
 *                tenant B: b1            their requests (engine/core/turns.h); within a tenant in the order of arrival
 *   priority 0   tenant A: a4
 *
 * Requests that were sent before (a retry, a continuation) go to the front of their tenant, and have paid for their turn. One thread.
 */
#ifndef CLUSTER_REQUEST_QUEUE_H
#define CLUSTER_REQUEST_QUEUE_H

#include "cluster/router.h"
#include "engine/core/turns.h"

/* A tenant's requests of one priority. */
typedef struct cluster_flow {
    uint64_t tenant;
    int32_t priority, n;
    double cost_us;                /* of its requests */
    cluster_request *first, *last; /* by next and previous */
    cluster_request *candidate;    /* the next one to be placed in this pass; NULL: none */
} cluster_flow;

/* A place in the queue: part of a request's own data. */
typedef struct cluster_place {
    double cost_us;  /* predicted time that it takes of its tenant's share */
    uint64_t number; /* of arrival */
    turn at;
    bool paid;
} cluster_place;

/* Zero-initialise, and set place. */
typedef struct cluster_queue {
    cluster_place *(*place)(const cluster_request *r); /* of a request in the queue */
    cluster_flow *flows;                               /* [n_flows], those with requests */
    size_t n_flows, cap_flows;
    turns turns;
    int32_t n;
    uint64_t number;
} cluster_queue;

void cluster_queue_free(cluster_queue *q);
/* Appends a request; its place has cost_us and paid. RP_ERR_MEMORY. */
int cluster_queue_push(cluster_queue *q, cluster_request *r);
/* Removes one that does not wait any more; served: it was sent, and its tenant pays. */
void cluster_queue_remove(cluster_queue *q, cluster_request *r, bool served);

/* A pass over the requests in their order: each one that next gives is removed, or passed over: it stays, and those after it have their turn.
 * Nothing is pushed within a pass. */
void cluster_queue_begin(cluster_queue *q);
cluster_request *cluster_queue_next(cluster_queue *q); /* NULL: none is left */
void cluster_queue_pass(cluster_queue *q, cluster_request *r);
/* Passes over requests of which that is true, up to the first one of each tenant and priority of which it is not. They do not have to be given. */
void cluster_queue_skip(cluster_queue *q, bool (*is_skipped)(void *user, const cluster_request *r), void *user);

/* The last request of the lowest priority that was not sent before; NULL: none. */
cluster_request *cluster_queue_last(const cluster_queue *q);
/* Time of the requests that are before one of this priority, in us, and their number. */
double cluster_queue_ahead(const cluster_queue *q, int32_t priority, int32_t *n);

#endif
