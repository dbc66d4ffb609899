/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_classics.c: LRU, ARC and S3-FIFO: list-based policies.
 *
 *   LRU       list 1: by last use
 *   ARC       1: used once, 2: used again, 3 and 4: evicted from 1 and 2     a hit in 3 or 4 moves their border
 *             (Megiddo and Modha 2003)
 *   S3-FIFO   1: a tenth, for new blocks, 2: the rest, 3: evicted from 1     a use is only counted; the count decides
 *             (Yang et al. 2023)                                              at the end of a list
 *
 * One thread.
 */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "reprise.h"
#include "tools/cache_simulation/simulate_policies.h"

#define N_LISTS 5 /* 0: in none */
#define NONE UINT32_MAX

typedef struct link {
    uint32_t newer, older;
    uint8_t list, uses;
} link;

typedef struct lists {
    link *links; /* one for each block */
    uint32_t newest[N_LISTS], oldest[N_LISTS];
    size_t n[N_LISTS], capacity;
    double share; /* ARC: target size of list 1, in blocks */
} lists;

static int open_lists(void **out, const simulate_world *world) {
    lists *l = base_calloc(1, sizeof(*l));
    *out = l;
    if (!l) return RP_ERR_MEMORY;
    l->capacity = world->capacity;
    for (int i = 0; i < N_LISTS; i++) l->newest[i] = l->oldest[i] = NONE;
    l->links = base_calloc(world->n_blocks, sizeof(*l->links));
    return l->links ? RP_OK : RP_ERR_MEMORY;
}

static void close_lists(void *state) {
    lists *l = state;
    if (!l) return;
    base_free(l->links);
    base_free(l);
}

static bool in_one_or_two(const void *state, uint32_t block) {
    const lists *l = state;
    return l->links[block].list == 1 || l->links[block].list == 2;
}

static void unlink_block(lists *l, uint32_t b) {
    link *k = &l->links[b];
    if (k->list == 0) return;
    BASE_ASSERT(k->list < N_LISTS && l->n[k->list] > 0);
    *(k->newer == NONE ? &l->newest[k->list] : &l->links[k->newer].older) = k->older;
    *(k->older == NONE ? &l->oldest[k->list] : &l->links[k->older].newer) = k->newer;
    l->n[k->list]--;
    k->list = 0;
}

/* Makes a block the newest of a list, from any list; list 0: of none. */
static void lists_move(lists *l, uint32_t b, uint8_t list) {
    BASE_ASSERT(b != NONE && list < N_LISTS);
    link *k = &l->links[b];
    unlink_block(l, b);
    if (list == 0) return;
    *k = (link){.newer = NONE, .older = l->newest[list], .list = list, .uses = k->uses};
    *(l->newest[list] == NONE ? &l->oldest[list] : &l->links[l->newest[list]].newer) = b;
    l->newest[list] = b;
    l->n[list]++;
}

static void use_all(lists *l, const simulate_chain *chain, void (*use)(lists *, uint32_t)) {
    for (size_t i = chain->n; i-- > 0;) use(l, chain->blocks[i]);
}

/* ---- LRU ---- */

static void lru_use(lists *l, uint32_t b) {
    if (l->links[b].list == 0 && l->n[1] == l->capacity) lists_move(l, l->oldest[1], 0);
    lists_move(l, b, 1);
    BASE_ASSERT(l->n[1] <= l->capacity);
}

static int lru_read(void *state, const simulate_chain *chain) {
    use_all(state, chain, lru_use);
    return RP_OK;
}

const simulate_policy simulate_lru = {"LRU", open_lists, in_one_or_two, lru_read, close_lists};

/* ---- ARC: the paper has T1, T2, B1, B2 for lists 1 to 4, and p for the share ---- */

static void arc_replace(lists *l, bool was_in_four) {
    BASE_ASSERT(l->n[1] + l->n[2] == l->capacity); /* nothing is evicted before the cache is full */
    bool from_one = l->n[1] > 0 && ((double)l->n[1] > l->share || (was_in_four && (double)l->n[1] == l->share));
    if (from_one || l->n[2] == 0) lists_move(l, l->oldest[1], 3);
    else lists_move(l, l->oldest[2], 4);
}

/* An evicted block is requested: the list that it was evicted from should have been longer. */
static void arc_return(lists *l, uint32_t b) {
    BASE_ASSERT(l->links[b].list == 3 || l->links[b].list == 4);
    bool was_in_four = l->links[b].list == 4;
    double three = (double)l->n[3], four = (double)l->n[4];
    if (was_in_four) l->share = BASE_MAX(0.0, l->share - BASE_MAX(1.0, three / four));
    else l->share = BASE_MIN((double)l->capacity, l->share + BASE_MAX(1.0, four / three));
    arc_replace(l, was_in_four);
    lists_move(l, b, 2);
}

static void arc_take(lists *l, uint32_t b) {
    size_t once = l->n[1] + l->n[3], all = once + l->n[2] + l->n[4];
    if (once == l->capacity && l->n[3] == 0) {
        lists_move(l, l->oldest[1], 0);
    } else if (once == l->capacity) {
        lists_move(l, l->oldest[3], 0);
        arc_replace(l, false);
    } else if (all >= l->capacity) {
        if (all == 2 * l->capacity) lists_move(l, l->oldest[4], 0);
        arc_replace(l, false);
    }
    lists_move(l, b, 1);
}

static void arc_use(lists *l, uint32_t b) {
    if (in_one_or_two(l, b)) lists_move(l, b, 2);
    else if (l->links[b].list != 0) arc_return(l, b);
    else arc_take(l, b);
    BASE_ASSERT(l->n[1] + l->n[2] <= l->capacity && l->n[1] + l->n[3] <= l->capacity); /* as in the paper */
}

static int arc_read(void *state, const simulate_chain *chain) {
    use_all(state, chain, arc_use);
    return RP_OK;
}

const simulate_policy simulate_arc = {"ARC", open_lists, in_one_or_two, arc_read, close_lists};

/* ---- S3-FIFO ---- */

#define S3_MOST_USES 3

static size_t s3_small(const lists *l) { return BASE_MAX((size_t)1, l->capacity / 10); }

/* Evicts the oldest block that was not used since it was last at the end of the list. */
static void s3_drop_main(lists *l) {
    BASE_ASSERT(l->n[2] > 0);
    for (uint32_t b; l->links[b = l->oldest[2]].uses > 0; lists_move(l, b, 2)) l->links[b].uses--;
    lists_move(l, l->oldest[2], 0);
}

/* Moves blocks that were used twice while they were new; evicts the first other one, and remembers it. */
static void s3_drop_small(lists *l) {
    uint32_t b;
    size_t room = l->capacity - s3_small(l); /* of list 2, and the number that is remembered */
    while (l->n[1] > 0 && l->links[b = l->oldest[1]].uses > 1) {
        l->links[b].uses = 0;
        lists_move(l, b, 2);
        if (l->n[2] > room) s3_drop_main(l);
    }
    if (l->n[1] == 0) return;
    lists_move(l, l->oldest[1], 3);
    if (l->n[3] > room) lists_move(l, l->oldest[3], 0);
}

static void s3_use(lists *l, uint32_t b) {
    link *k = &l->links[b];
    if (in_one_or_two(l, b)) {
        k->uses = BASE_MIN(S3_MOST_USES, k->uses + 1);
        return;
    }
    bool remembered = k->list == 3;
    while (l->n[1] + l->n[2] >= l->capacity) {
        if (l->n[1] >= s3_small(l) || l->n[2] == 0) s3_drop_small(l);
        else s3_drop_main(l);
    }
    k->uses = 0;
    lists_move(l, b, remembered ? 2 : 1);
    BASE_ASSERT(l->n[1] + l->n[2] <= l->capacity);
}

static int s3_read(void *state, const simulate_chain *chain) {
    use_all(state, chain, s3_use);
    return RP_OK;
}

const simulate_policy simulate_s3_fifo = {"S3-FIFO", open_lists, in_one_or_two, s3_read, close_lists};
