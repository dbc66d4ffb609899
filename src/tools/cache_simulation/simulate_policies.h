/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_policies.h: the cache policies of simulate.h.
 *
 * A cache holds up to `capacity` blocks of equal size, which are numbers below n_blocks. It processes the blocks of
 * one request after the other; afterwards all of them are in the cache, as far as the policy keeps them.
 */
#ifndef TOOLS_SIMULATE_POLICIES_H
#define TOOLS_SIMULATE_POLICIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIMULATE_NEVER UINT32_MAX

typedef struct simulate_chain {
    const uint32_t *blocks; /* [n], each follows the previous one */
    const uint32_t *next;   /* [n]: the request that uses it next, or SIMULATE_NEVER; for the optimum only */
    size_t n;
    uint32_t number;   /* of the request, from 0 */
    uint64_t session;  /* 0: none */
    bool ends_session; /* it is known to be the last one of its session */
} simulate_chain;

typedef struct simulate_world {
    size_t n_blocks, capacity;
    const uint64_t *costs; /* [n_blocks] in thousandths of a token's linear part */
} simulate_world;

typedef struct simulate_policy {
    const char *name;
    int (*open)(void **state, const simulate_world *world); /* RP_ERR_MEMORY; close it in any case */
    bool (*has)(const void *state, uint32_t block);
    int (*read)(void *state, const simulate_chain *chain); /* RP_ERR_MEMORY */
    void (*close)(void *state);                            /* NULL is fine */
} simulate_policy;

/* simulate_classics.c. A request's blocks are used from the last to the first: suffixes are evicted before prefixes. */
extern const simulate_policy simulate_lru, simulate_arc, simulate_s3_fifo;
/* simulate_heaps.c */
extern const simulate_policy simulate_lfu, simulate_reprise, simulate_optimum;

#endif
