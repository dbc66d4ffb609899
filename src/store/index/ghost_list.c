/* SPDX-License-Identifier: Apache-2.0 */
/* ghost_list.c: see ghost_list.h. */
#include "store/index/ghost_list.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise.h"

#define EMPTY UINT32_MAX
#define HOLE UINT32_MAX

void ghost_list_free(ghost_list *d) {
    base_free(d->ring);
    base_free(d->buckets);
    *d = (ghost_list){0};
}

/* ---- the table ---- */

static size_t bucket_mask(const ghost_list *d) { return 2 * d->cap - 1; }

/* Names are hashes, except in tests and simulations (Fibonacci hashing; Knuth, vol. 3). */
static size_t ghost_list_home_bucket(const ghost_list *d, uint64_t name) {
    return (size_t)((name * 0x9e3779b97f4a7c15u) >> 32) & bucket_mask(d);
}

/* The bucket of a name, or the empty one in which it would be inserted. */
static size_t ghost_list_find_bucket(const ghost_list *d, uint64_t name) {
    size_t b = ghost_list_home_bucket(d, name);
    while (d->buckets[b] != EMPTY && d->ring[d->buckets[b]].name != name) b = (b + 1) & bucket_mask(d);
    return b;
}

/* Empties a bucket and moves later ones of the run forward: no probe ends too early. */
static void ghost_list_clear_bucket(ghost_list *d, size_t hole) {
    size_t mask = bucket_mask(d);
    BASE_ASSERT(d->buckets[hole] != EMPTY);
    for (size_t b = (hole + 1) & mask; d->buckets[b] != EMPTY; b = (b + 1) & mask) {
        size_t home = ghost_list_home_bucket(d, d->ring[d->buckets[b]].name);
        if (((b - home) & mask) < ((b - hole) & mask)) continue; /* its home is after the hole */
        d->buckets[hole] = d->buckets[b];
        hole = b;
    }
    d->buckets[hole] = EMPTY;
}

/* ---- the ring ---- */

static void ghost_list_push(ghost_list *d, const ghost_key *key) {
    BASE_ASSERT(d->n < d->cap);
    const size_t at = (d->first + d->n++) & (d->cap - 1);
    d->ring[at] = *key;
    d->buckets[ghost_list_find_bucket(d, key->name)] = (uint32_t)at;
}

/* Removes the oldest entry from the ring. False: it was a hole. */
static bool ghost_list_shift(ghost_list *d, ghost_key *out) {
    BASE_ASSERT(d->n > 0);
    *out = d->ring[d->first];
    if (out->n_born != HOLE) ghost_list_clear_bucket(d, ghost_list_find_bucket(d, out->name));
    d->first = (d->first + 1) & (d->cap - 1);
    d->n--;
    return out->n_born != HOLE;
}

int ghost_list_reserve(ghost_list *d, size_t n) {
    size_t cap = d->cap ? d->cap : GHOST_LIST_MIN;
    while (cap < n && cap < GHOST_LIST_MAX) cap *= 2;
    if (cap == d->cap) return RP_OK;
    ghost_list more = {.cap = cap,
                       .ring = base_alloc(cap * sizeof(*more.ring)),
                       .buckets = base_alloc(2 * cap * sizeof(*more.buckets))};
    if (!more.ring || !more.buckets) {
        ghost_list_free(&more);
        return RP_ERR_MEMORY;
    }
    memset(more.buckets, 0xff, 2 * cap * sizeof(*more.buckets));
    for (ghost_key key; d->n > 0;)
        if (ghost_list_shift(d, &key)) ghost_list_push(&more, &key);
    BASE_ASSERT((more.cap & (more.cap - 1)) == 0 && more.n <= more.cap);
    ghost_list_free(d);
    *d = more;
    return RP_OK;
}

bool ghost_list_add(ghost_list *d, const ghost_key *key, ghost_key *forgotten) {
    BASE_ASSERT(d->cap > 0 && key->n_born != HOLE && !ghost_list_has(d, key->name));
    bool full = d->n == d->cap && ghost_list_shift(d, forgotten);
    ghost_list_push(d, key);
    return full;
}

bool ghost_list_has(const ghost_list *d, uint64_t name) {
    return d->cap > 0 && d->buckets[ghost_list_find_bucket(d, name)] != EMPTY;
}

bool ghost_list_take(ghost_list *d, uint64_t name, ghost_key *out) {
    if (!ghost_list_has(d, name)) return false;
    size_t b = ghost_list_find_bucket(d, name);
    ghost_key *key = &d->ring[d->buckets[b]];
    BASE_ASSERT(key->name == name && key->n_born != HOLE);
    ghost_list_clear_bucket(d, b);
    *out = *key;
    key->n_born = HOLE;
    return true;
}
