/* SPDX-License-Identifier: Apache-2.0 */
/* speculation.c: see speculation.h. */
#include "cluster/speculation.h"

#include "base/check.h"
#include "base/memory.h"

#define FIRST_CAP ((size_t)1024)

void cluster_speculation_free(cluster_speculation *s) {
    base_free(s->ring);
    *s = (cluster_speculation){0};
}

static void speculative_remove(cluster_index *x, const rp_name *name, int32_t node) {
    if (cluster_index_get(x, name, node) == CLUSTER_TIER_SPECULATIVE) (void)cluster_index_set(x, name, node, 0);
}

static void speculation_drop_first(cluster_speculation *s, cluster_index *x) {
    BASE_ASSERT(s->n > 0);
    const cluster_speculative *e = &s->ring[s->first];
    if (e->node >= 0) speculative_remove(x, &e->name, e->node);
    s->first = (s->first + 1) % s->cap;
    s->n--;
}

/* Doubles the ring, unless it has its greatest size or there is no memory. */
static void speculation_grow(cluster_speculation *s) {
    BASE_ASSERT(s->n == s->cap);
    size_t cap = s->cap ? 2 * s->cap : FIRST_CAP;
    if (cap > CLUSTER_MAX_SPECULATIVE) return;
    cluster_speculative *ring = base_alloc(cap * sizeof(*ring));
    if (!ring) return;
    for (size_t i = 0; i < s->n; i++) ring[i] = s->ring[(s->first + i) % s->cap];
    base_free(s->ring);
    s->ring = ring;
    s->cap = cap;
    s->first = 0;
}

void cluster_speculation_add(cluster_speculation *s, cluster_index *x, int32_t node, const rp_named_kv *items,
                             int32_t n_items, uint64_t expires_us) {
    for (int32_t i = 0; i < n_items; i++) {
        if (cluster_index_get(x, &items[i].name, node)) continue;
        if (s->n == s->cap) speculation_grow(s);
        if (s->cap == 0) return;
        if (s->n == s->cap) speculation_drop_first(s, x);
        if (cluster_index_set(x, &items[i].name, node, CLUSTER_TIER_SPECULATIVE)) return;
        BASE_ASSERT(s->n < s->cap && s->cap <= CLUSTER_MAX_SPECULATIVE);
        s->ring[(s->first + s->n++) % s->cap] = (cluster_speculative){items[i].name, node, expires_us};
    }
}

void cluster_speculation_fail(cluster_index *x, int32_t node, const rp_named_kv *items, int32_t n_items) {
    for (int32_t i = 0; i < n_items; i++) speculative_remove(x, &items[i].name, node);
}

void cluster_speculation_leave(cluster_speculation *s, cluster_index *x, int32_t node) {
    for (size_t i = 0; i < s->n; i++) {
        cluster_speculative *e = &s->ring[(s->first + i) % s->cap];
        if (e->node != node) continue;
        speculative_remove(x, &e->name, node);
        e->node = -1;
    }
}

uint64_t cluster_speculation_expire(cluster_speculation *s, cluster_index *x, uint64_t now_us) {
    while (s->n && s->ring[s->first].expires_us <= now_us) speculation_drop_first(s, x);
    return s->n ? s->ring[s->first].expires_us : UINT64_MAX;
}
