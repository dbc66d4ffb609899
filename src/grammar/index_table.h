/* SPDX-License-Identifier: Apache-2.0 */
/* index_table.h: finds items of an array by hash: open addressing, at most half full. The array is its user's. Zero-initialise. */
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

/* Is the item the one that is looked for? */
typedef bool (*index_is)(const void *user, uint32_t index);

uint32_t index_table_find(const index_table *t, uint32_t hash, index_is is, const void *user);
/* An item that is not there yet. RP_ERR_MEMORY. */
int index_table_add(index_table *t, uint32_t hash, uint32_t index);
/* Empties the slots around a hash. Once this was done with the hashes of all items the table is empty, however large it is. */
void index_table_clear_at(index_table *t, uint32_t hash);
void index_table_free(index_table *t);

/* One number more in a hash, which begins with 0. */
static inline uint32_t index_hash(uint32_t hash, uint32_t value) {
    hash = (hash ^ value) * UINT32_C(0x9e3779b1);
    hash ^= hash >> 15;
    hash *= UINT32_C(0x85ebca77);
    return hash ^ hash >> 13;
}

#endif
