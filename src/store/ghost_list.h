/* SPDX-License-Identifier: Apache-2.0 */
/* ghost_list.h: remembers the last keys that were dropped for room, and what was known of them.
 *
 *   ring    | oldest ... newest | free |     a key that is taken leaves a hole
 *   table   open addressing: name -> place in the ring
 *
 * A name is the beginning of a key (64 of its 256 bits): a wrong answer costs a number in the statistics and nothing else.
 * Used by one thread.
 */
#ifndef STORE_GHOST_LIST_H
#define STORE_GHOST_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define GHOST_LIST_MIN ((size_t)1 << 10)
#define GHOST_LIST_MAX ((size_t)1 << 20) /* 24 bytes each */

typedef struct ghost_key {
    uint64_t name;
    float uses;
    uint32_t n_born; /* children it ever had; UINT32_MAX: a hole */
} ghost_key;

/* Zero-initialise. */
typedef struct ghost_list {
    ghost_key *ring;
    uint32_t *buckets; /* places in the ring, or UINT32_MAX: empty; twice as many as the ring has */
    size_t cap, first, n; /* cap: a power of two; n: places in use, holes among them */
} ghost_list;

void ghost_list_free(ghost_list *d);
/* Makes room for `n` keys, GHOST_LIST_MIN to GHOST_LIST_MAX. RP_ERR_MEMORY: as it was. */
int ghost_list_reserve(ghost_list *d, size_t n) BASE_NODISCARD;
/* Remembers a key, which is not remembered yet. True: the oldest was forgotten for it, and is in *forgotten. There is room for some. */
bool ghost_list_add(ghost_list *d, const ghost_key *key, ghost_key *forgotten);
bool ghost_list_has(const ghost_list *d, uint64_t name);
/* Gives a key that is remembered and forgets it. False: it is not. */
bool ghost_list_take(ghost_list *d, uint64_t name, ghost_key *out);

#endif
