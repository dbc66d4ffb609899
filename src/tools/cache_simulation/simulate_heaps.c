/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_heaps.c: LFU, Reprise's own policy (eviction.h, the code of the store itself) and the optimum.
 *
 * LFU evicts the block with the fewest uses since its insertion, among equals the one with the oldest last use.
 *
 * The optimum knows the future: it keeps the blocks with the nearest next use, and of one request the prefix (Belady
 * 1966, with the option not to keep a block at all). No policy has more hits. It ignores costs, so a policy could, in
 * theory, save a little more.
 *
 * One thread.
 */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise.h"
#include "store/index/eviction.h"
#include "store/index/item_heap.h"
#include "tools/cache_simulation/simulate_policies.h"

/* ---- LFU and the optimum: a heap of the blocks in the cache ---- */

typedef struct heap_cache {
    item_heap heap;
    uint32_t *places, *uses;
    size_t capacity;
    uint64_t n_orders;
} heap_cache;

static int open_heap(void **out, const simulate_world *world) {
    heap_cache *c = base_calloc(1, sizeof(*c));
    *out = c;
    if (!c) return RP_ERR_MEMORY;
    c->capacity = world->capacity;
    c->places = base_alloc(world->n_blocks * sizeof(*c->places));
    c->uses = base_calloc(world->n_blocks, sizeof(*c->uses));
    if (!c->places || !c->uses) return RP_ERR_MEMORY;
    memset(c->places, 0xff, world->n_blocks * sizeof(*c->places));
    return item_heap_reserve(&c->heap, world->n_blocks);
}

static void close_heap(void *state) {
    heap_cache *c = state;
    if (!c) return;
    base_free(c->heap.entries);
    base_free(c->places);
    base_free(c->uses);
    base_free(c);
}

static bool in_heap(const void *state, uint32_t block) {
    const heap_cache *c = state;
    return c->places[block] != ITEM_HEAP_NOWHERE;
}

static void drop_top(heap_cache *c) {
    BASE_ASSERT(c->heap.n > 0);
    item_heap_remove(&c->heap, c->places, c->heap.entries[0].item);
}

static int lfu_read(void *state, const simulate_chain *chain) {
    heap_cache *c = state;
    for (size_t i = chain->n; i-- > 0;) {
        uint32_t b = chain->blocks[i];
        if (!in_heap(c, b)) {
            if (c->heap.n == c->capacity) drop_top(c);
            c->uses[b] = 0;
        }
        item_heap_put(&c->heap, c->places, (item_heap_entry){++c->uses[b], c->n_orders++, b});
    }
    BASE_ASSERT(c->heap.n <= c->capacity);
    return RP_OK;
}

const simulate_policy simulate_lfu = {"LFU", open_heap, in_heap, lfu_read, close_heap};

static int optimum_read(void *state, const simulate_chain *chain) {
    heap_cache *c = state;
    for (size_t i = 0; i < chain->n; i++) {
        uint32_t b = chain->blocks[i];
        if (chain->next[i] == SIMULATE_NEVER) item_heap_remove(&c->heap, c->places, b);
        else item_heap_put(&c->heap, c->places, (item_heap_entry){-(double)chain->next[i], UINT64_MAX - i, b});
    }
    while (c->heap.n > c->capacity) drop_top(c);
    return RP_OK;
}

const simulate_policy simulate_optimum = {"optimum", open_heap, in_heap, optimum_read, close_heap};

/* ---- Reprise ---- */

#define BLOCK_BYTES 1 /* all have the same size */

typedef struct own_cache {
    eviction *eviction;
    bool *there;
    uint32_t *held; /* the request that references a block, counted from 1 */
    uint32_t now;
    size_t n, capacity;
    const uint64_t *costs;
} own_cache;

static int open_own(void **out, const simulate_world *world) {
    own_cache *c = base_calloc(1, sizeof(*c));
    *out = c;
    if (!c) return RP_ERR_MEMORY;
    c->capacity = world->capacity;
    c->costs = world->costs;
    c->there = base_calloc(world->n_blocks, sizeof(*c->there));
    c->held = base_calloc(world->n_blocks, sizeof(*c->held));
    return c->there && c->held ? eviction_new(&c->eviction) : RP_ERR_MEMORY;
}

static void close_own(void *state) {
    own_cache *c = state;
    if (!c) return;
    eviction_free(c->eviction);
    base_free(c->there);
    base_free(c->held);
    base_free(c);
}

static bool own_has(const void *state, uint32_t block) { return ((const own_cache *)state)->there[block]; }

static bool is_not_held(void *state, uint32_t block) {
    const own_cache *c = state;
    return c->held[block] != c->now;
}

/* Evicts a block if the cache is full. False: the request references them all. */
static bool own_cache_make_space(own_cache *c) {
    if (c->n < c->capacity) return true;
    uint32_t victim = eviction_victim(c->eviction, EVICTION_NONE, is_not_held, c);
    if (victim == EVICTION_NONE) return false;
    BASE_ASSERT(c->there[victim] && c->held[victim] != c->now);
    eviction_drop(c->eviction, victim);
    c->there[victim] = false;
    c->n--;
    return true;
}

/* Present blocks form a prefix: a block is present only if the previous one is. */
static int own_read(void *state, const simulate_chain *chain) {
    own_cache *c = state;
    size_t found = 0;
    c->now = chain->number + 1;
    eviction_set_reader(c->eviction,
                        (eviction_reader){chain->session, chain->session != 0 ? EVICTION_RUNNING : EVICTION_ONE_OFF});
    for (; found < chain->n && c->there[chain->blocks[found]]; found++) c->held[chain->blocks[found]] = c->now;
    for (size_t i = found; i-- > 0;) eviction_use(c->eviction, chain->blocks[i]);
    for (size_t i = found; i < chain->n && own_cache_make_space(c); i++) {
        uint32_t b = chain->blocks[i];
        BASE_ASSERT(!c->there[b]); /* one after a missing one is missing */
        eviction_item about = {.name = b,
                               .bytes = BLOCK_BYTES,
                               .cost_us = c->costs[b],
                               .parent = i > 0 ? chain->blocks[i - 1] : EVICTION_NONE};
        int rc = eviction_add(c->eviction, b, &about);
        if (rc) return rc;
        c->there[b] = true;
        c->held[b] = c->now;
        c->n++;
    }
    if (chain->ends_session) eviction_end_session(c->eviction, chain->session);
    return RP_OK;
}

const simulate_policy simulate_reprise = {"Reprise", open_own, own_has, own_read, close_own};
