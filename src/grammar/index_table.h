/* SPDX-License-Identifier: Apache-2.0 */
/* index_table.h: hash table of indices of an array: open addressing, at most half full. The caller owns the array.
 * Zero-initialise. */
#ifndef GRAMMAR_INDEX_TABLE_H
#define GRAMMAR_INDEX_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INDEX_NONE UINT32_MAX

typedef struct index_slot {
    uint32_t hash;
    uint32_t index; /* + 1; 0: the slot is free */
} index_slot;

typedef struct index_table {
    index_slot *slots;
    size_t n, cap; /* cap: a power of two */
} index_table;

/* Is the item equal to the key in `user`? */
typedef bool (*index_is)(const void *user, uint32_t index);

uint32_t index_table_find(const index_table *t, uint32_t hash, index_is is, const void *user);
/* Adds an item that is not in the table. RP_ERR_MEMORY. */
int index_table_add(index_table *t, uint32_t hash, uint32_t index);
/* Clears the run of slots at a hash. Calls with the hashes of all items empty the table, whatever its capacity. */
void index_table_clear_at(index_table *t, uint32_t hash);
void index_table_free(index_table *t);

/* Adds a number to a hash. The initial hash is 0. */
static inline uint32_t index_hash(uint32_t hash, uint32_t value) {
    hash = (hash ^ value) * UINT32_C(0x9e3779b1);
    hash ^= hash >> 15;
    hash *= UINT32_C(0x85ebca77);
    return hash ^ hash >> 13;
}

#endif
