/* SPDX-License-Identifier: Apache-2.0 */
/* request_queue.h: requests that wait for a node.
 *
 *   priority 5   tenant A: a1 a2 a3      order: the highest priority first; within a priority deficit round robin over
 *                tenant B: b1            tenants, by the predicted time of their requests (engine/core/turns.h); within
 *                      a
 *   priority 0   tenant A: a4            tenant by arrival
 *
 * Requests that were sent before (retries, continuations) are the first ones of their tenant, and are not charged
 * again. One thread.
 */
#ifndef CLUSTER_REQUEST_QUEUE_H
#define CLUSTER_REQUEST_QUEUE_H

#include "cluster/router.h"
#include "engine/core/turns.h"

/* A flow: the requests of one tenant and priority. */
typedef struct cluster_flow {
    uint64_t tenant;
    int32_t priority, n;
    double cost_us;                /* sum over its requests */
    cluster_request *first, *last; /* by next and previous */
    cluster_request *candidate;    /* the next one of this pass; NULL: none */
} cluster_flow;

/* A request's position in the queue, in the request's private data. */
typedef struct cluster_place {
    double cost_us;  /* predicted time that is charged to its tenant */
    uint64_t number; /* order of arrival */
    turn at;
    bool paid; /* it was sent before, and charged then */
} cluster_place;

/* Zero-initialise, and set place. */
typedef struct cluster_queue {
    cluster_place *(*place)(const cluster_request *r); /* of a request in the queue */
    cluster_flow *flows;                               /* [n_flows], none of them empty, in any order */
    size_t n_flows, cap_flows;
    turns turns;
    int32_t n;
    uint64_t number;
} cluster_queue;

void cluster_queue_free(cluster_queue *q);
/* Appends a request, whose place has cost_us and paid. RP_ERR_MEMORY. */
int cluster_queue_push(cluster_queue *q, cluster_request *r);
/* Removes a request. served: it was sent, and its tenant is charged. */
void cluster_queue_remove(cluster_queue *q, cluster_request *r, bool served);

/* A pass over the requests in their order: the caller removes each one that next returns, or passes over it, so that it
 * stays in the queue and the next one follows. Nothing is pushed within a pass. */
void cluster_queue_begin(cluster_queue *q);
cluster_request *cluster_queue_next(cluster_queue *q); /* NULL: the pass is complete */
void cluster_queue_pass(cluster_queue *q, cluster_request *r);
/* Passes over the first requests of each flow for which is_skipped is true, without returning them. */
void cluster_queue_skip(cluster_queue *q, bool (*is_skipped)(void *user, const cluster_request *r), void *user);

/* The last request of the lowest priority that was not sent before; NULL: none. */
cluster_request *cluster_queue_last(const cluster_queue *q);
/* Cost in us and number of the requests before a new one of this priority. */
double cluster_queue_ahead(const cluster_queue *q, int32_t priority, int32_t *n);

#endif
