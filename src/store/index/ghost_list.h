/* SPDX-License-Identifier: Apache-2.0 */
/* ghost_list.h: the keys of the last evicted items, with their uses.
 *
 *   ring    | oldest ... newest | free |     a key that was taken leaves a hole
 *   table   open addressing: name -> index in the ring
 *
 * A name is the first 64 of a key's 256 bits: a collision affects statistics only.
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
    uint32_t *buckets;    /* indices in the ring, or UINT32_MAX: empty; twice the ring's capacity */
    size_t cap, first, n; /* cap: a power of two; n: entries in use, holes included */
} ghost_list;

void ghost_list_free(ghost_list *d);
/* Reserves capacity for `n` keys, GHOST_LIST_MIN to GHOST_LIST_MAX. RP_ERR_MEMORY: unchanged. */
int ghost_list_reserve(ghost_list *d, size_t n) BASE_NODISCARD;
/* Adds a key that is not in the list. True: the oldest was removed for it, and is in *forgotten. The capacity is not
 * 0. */
bool ghost_list_add(ghost_list *d, const ghost_key *key, ghost_key *forgotten);
bool ghost_list_has(const ghost_list *d, uint64_t name);
/* Removes a key and returns it in *out. False: it is not in the list. */
bool ghost_list_take(ghost_list *d, uint64_t name, ghost_key *out);

#endif
