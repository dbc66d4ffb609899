/* SPDX-License-Identifier: Apache-2.0 */
/* pool_hints.c: see pool_hints.h. */
#include "cluster/pool_hints.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/wire.h"

#define WAYS 8

typedef struct hint_bucket {
    uint64_t hashes[WAYS];
} hint_bucket;

struct cluster_pool_hints {
    hint_bucket *buckets;
    uint64_t n; /* a power of two */
};

int cluster_pool_hints_new(cluster_pool_hints **out, uint64_t bytes, rp_error *err) {
    uint64_t n = 1;
    while (2 * n * sizeof(hint_bucket) <= bytes) n *= 2;
    *out = NULL;
    cluster_pool_hints *h = base_calloc(1, sizeof(*h));
    if (h) h->buckets = base_alloc_aligned(n * sizeof(hint_bucket), sizeof(hint_bucket));
    if (!h || !h->buckets) {
        base_free(h);
        return base_fail_memory(err, n * sizeof(hint_bucket), "the names of a pool");
    }
    memset(h->buckets, 0, n * sizeof(hint_bucket));
    h->n = n;
    *out = h;
    return RP_OK;
}

void cluster_pool_hints_free(cluster_pool_hints *h) {
    if (!h) return;
    base_free(h->buckets);
    base_free(h);
}

/* The bucket of a name, and its place in it; WAYS: it has none. */
static int hints_find(const cluster_pool_hints *h, const rp_name *name, uint64_t *hash, hint_bucket **bucket) {
    *hash = cluster_name_hash(name, 0);
    if (*hash == 0) *hash = 1;
    BASE_ASSERT((h->n & (h->n - 1)) == 0);
    *bucket = &h->buckets[*hash & (h->n - 1)];
    int way = 0;
    while (way < WAYS && (*bucket)->hashes[way] != *hash) way++;
    return way;
}

/* Puts a hash first, in the place of another one. */
static void bucket_use(hint_bucket *b, int way, uint64_t hash) {
    memmove(b->hashes + 1, b->hashes, (size_t)way * sizeof(hash));
    b->hashes[0] = hash;
}

void cluster_pool_hints_add(cluster_pool_hints *h, const rp_name *name) {
    uint64_t hash;
    hint_bucket *b;
    int way = hints_find(h, name, &hash, &b);
    bucket_use(b, BASE_MIN(way, WAYS - 1), hash);
}

bool cluster_pool_hints_get(cluster_pool_hints *h, const rp_name *name) {
    uint64_t hash;
    hint_bucket *b;
    int way = hints_find(h, name, &hash, &b);
    if (way < WAYS) bucket_use(b, way, hash);
    return way < WAYS;
}
