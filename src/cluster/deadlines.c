/* SPDX-License-Identifier: Apache-2.0 */
/* deadlines.c: see deadlines.h. */
#include "cluster/deadlines.h"

#include "base/check.h"
#include "base/memory.h"

void cluster_deadlines_free(cluster_deadlines *d) {
    BASE_ASSERT(d->n == 0);
    base_free(d->heap);
    d->heap = NULL;
    d->cap = 0;
}

static void heap_set(cluster_deadlines *d, size_t i, cluster_request *r) {
    BASE_ASSERT(i < d->n);
    d->heap[i] = r;
    d->due(r)->place = (int32_t)i;
}

static uint64_t heap_at(const cluster_deadlines *d, size_t i) { return d->due(d->heap[i])->at_us; }

static void heap_rise(cluster_deadlines *d, size_t i, cluster_request *r) {
    for (; i > 0 && heap_at(d, (i - 1) / 2) > d->due(r)->at_us; i = (i - 1) / 2) heap_set(d, i, d->heap[(i - 1) / 2]);
    heap_set(d, i, r);
}

static void heap_sink(cluster_deadlines *d, size_t i, cluster_request *r) {
    for (size_t child; (child = 2 * i + 1) < d->n; i = child) {
        if (child + 1 < d->n && heap_at(d, child + 1) < heap_at(d, child)) child++;
        if (heap_at(d, child) >= d->due(r)->at_us) break;
        heap_set(d, i, d->heap[child]);
    }
    heap_set(d, i, r);
}

int cluster_deadlines_add(cluster_deadlines *d, cluster_request *r, uint64_t at_us) {
    BASE_ASSERT(d->due(r)->place < 0);
    int rc = base_grow((void **)&d->heap, &d->cap, d->n + 1, CLUSTER_MAX_REQUESTS, sizeof(cluster_request *));
    if (rc) return rc;
    d->due(r)->at_us = at_us;
    d->n++;
    heap_rise(d, d->n - 1, r);
    return RP_OK;
}

void cluster_deadlines_remove(cluster_deadlines *d, cluster_request *r) {
    int32_t place = d->due(r)->place;
    if (place < 0) return;
    BASE_ASSERT((size_t)place < d->n && d->heap[place] == r);
    cluster_request *last = d->heap[--d->n];
    d->due(r)->place = -1;
    if (last == r) return;
    heap_sink(d, (size_t)place, last);
    heap_rise(d, (size_t)d->due(last)->place, last);
}

cluster_request *cluster_deadlines_first(const cluster_deadlines *d, uint64_t *at_us) {
    BASE_ASSERT(d->n == 0 || d->due(d->heap[0])->place == 0);
    *at_us = d->n ? heap_at(d, 0) : UINT64_MAX;
    return d->n ? d->heap[0] : NULL;
}
