/* SPDX-License-Identifier: Apache-2.0 */
/* request_queue.c: see request_queue.h. The next request is found by a scan of the flows, so that the time of a choice
 * is proportional to the number of waiting tenants, which max_queue limits. */
#include "cluster/request_queue.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"

/* Predicted time a round: about a short prefill on a fast node. A smaller quantum is fairer, at no cost (turns.h). */
#define QUANTUM_US 10000.0

void cluster_queue_free(cluster_queue *q) {
    BASE_ASSERT(q->n == 0 && q->n_flows == 0);
    base_free(q->flows);
    turns_free(&q->turns);
    q->flows = NULL;
    q->n_flows = q->cap_flows = 0;
}

static base_key flow_salt(const cluster_flow *f) {
    base_key salt = {0};
    memcpy(salt.bytes, &f->tenant, sizeof(f->tenant));
    return salt;
}

static cluster_flow *queue_find(const cluster_queue *q, uint64_t tenant, int32_t priority) {
    for (size_t i = 0; i < q->n_flows; i++)
        if (q->flows[i].tenant == tenant && q->flows[i].priority == priority) return &q->flows[i];
    return NULL;
}

static cluster_flow *queue_flow(cluster_queue *q, const cluster_request *r) {
    cluster_flow *f = queue_find(q, r->tenant, r->priority);
    if (f) return f;
    if (base_grow((void **)&q->flows, &q->cap_flows, q->n_flows + 1, CLUSTER_MAX_REQUESTS, sizeof(*q->flows)))
        return NULL;
    f = &q->flows[q->n_flows++];
    *f = (cluster_flow){.tenant = r->tenant, .priority = r->priority};
    base_key salt = flow_salt(f);
    turns_begin(&q->turns, &salt, f->priority, QUANTUM_US);
    return f;
}

/* Assigns turns to a request and to those after it in its flow. */
static void flow_assign(cluster_queue *q, cluster_flow *f, cluster_request *from) {
    if (!from) return;
    base_key salt = flow_salt(f);
    turn at = from->previous ? q->place(from->previous)->at : turns_start(&q->turns, &salt, f->priority, QUANTUM_US);
    for (cluster_request *r = from; r; r = r->next) {
        cluster_place *p = q->place(r);
        if (!p->paid) at = turns_next(at, p->cost_us, QUANTUM_US);
        p->at = at;
    }
}

int cluster_queue_push(cluster_queue *q, cluster_request *r) {
    BASE_ASSERT(!r->next && !r->previous); /* it is in no list */
    cluster_flow *f = queue_flow(q, r);
    if (!f) return RP_ERR_MEMORY;
    cluster_place *p = q->place(r);
    p->number = q->number++;
    cluster_request *before = NULL;
    if (p->paid)
        for (before = f->first; before && q->place(before)->paid;) before = before->next;
    r->next = before;
    r->previous = before ? before->previous : f->last;
    if (r->previous) r->previous->next = r;
    else f->first = r;
    if (before) before->previous = r;
    else f->last = r;
    flow_assign(q, f, r);
    f->n++;
    f->cost_us += p->cost_us;
    q->n++;
    return RP_OK;
}

void cluster_queue_remove(cluster_queue *q, cluster_request *r, bool served) {
    cluster_flow *f = queue_find(q, r->tenant, r->priority);
    BASE_ASSERT(f && q->n > 0);
    base_key salt = flow_salt(f);
    cluster_place *p = q->place(r);
    cluster_request *next = r->next;
    if (r->previous) r->previous->next = next;
    else f->first = next;
    if (next) next->previous = r->previous;
    else f->last = r->previous;
    if (f->candidate == r) f->candidate = next;
    r->next = r->previous = NULL;
    if (served && !p->paid) {
        /* A request that was sent before earlier ones of its tenant is charged its own cost; their turns follow after
         * it. */
        turn from = turns_start(&q->turns, &salt, f->priority, QUANTUM_US);
        turns_admit(&q->turns, &salt, f->priority, turns_next(from, p->cost_us, QUANTUM_US));
        next = f->first;
    }
    q->n--;
    f->n--;
    f->cost_us -= p->cost_us;
    BASE_ASSERT(f->n >= 0 && (f->n == 0) == !f->first);
    if (f->first) flow_assign(q, f, next);
    else {
        BASE_ASSERT(f->n == 0 && !f->last && !f->candidate && q->n_flows > 0);
        turns_rest(&q->turns, &salt, f->priority);
        *f = q->flows[--q->n_flows];
    }
}

/* ---- a pass ---- */

void cluster_queue_begin(cluster_queue *q) {
    for (size_t i = 0; i < q->n_flows; i++) q->flows[i].candidate = q->flows[i].first;
}

static bool flow_precedes(const cluster_queue *q, const cluster_flow *a, const cluster_flow *b) {
    if (a->priority != b->priority) return a->priority > b->priority;
    const cluster_place *x = q->place(a->candidate), *y = q->place(b->candidate);
    if (x->paid != y->paid) return x->paid;
    return x->at.round != y->at.round ? x->at.round < y->at.round : x->number < y->number;
}

cluster_request *cluster_queue_next(cluster_queue *q) {
    const cluster_flow *best = NULL;
    for (size_t i = 0; i < q->n_flows; i++)
        if (q->flows[i].candidate && (!best || flow_precedes(q, &q->flows[i], best))) best = &q->flows[i];
    return best ? best->candidate : NULL;
}

void cluster_queue_pass(cluster_queue *q, cluster_request *r) {
    cluster_flow *f = queue_find(q, r->tenant, r->priority);
    BASE_ASSERT(f && f->candidate == r);
    f->candidate = r->next;
}

void cluster_queue_skip(cluster_queue *q, bool (*is_skipped)(void *user, const cluster_request *r), void *user) {
    for (size_t i = 0; i < q->n_flows; i++) {
        cluster_flow *f = &q->flows[i];
        while (f->candidate && is_skipped(user, f->candidate)) f->candidate = f->candidate->next;
    }
}

double cluster_queue_ahead(const cluster_queue *q, int32_t priority, int32_t *n) {
    double us = 0;
    *n = 0;
    for (size_t i = 0; i < q->n_flows; i++) {
        if (q->flows[i].priority < priority) continue;
        us += q->flows[i].cost_us;
        *n += q->flows[i].n;
    }
    BASE_ASSERT(*n <= q->n);
    return us;
}

cluster_request *cluster_queue_last(const cluster_queue *q) {
    cluster_request *last = NULL;
    for (size_t i = 0; i < q->n_flows; i++) {
        cluster_request *r = q->flows[i].last;
        if (q->place(r)->paid) continue; /* paid ones are first in their flow: it has no others */
        if (!last || r->priority < last->priority ||
            (r->priority == last->priority && q->place(r)->number > q->place(last)->number))
            last = r;
    }
    return last;
}
