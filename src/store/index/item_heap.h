/* SPDX-License-Identifier: Apache-2.0 */
/* item_heap.h: a binary heap of item indices: the smallest key is on top, and each item can be found, moved and
 * removed.
 *
 *            [0] smallest                 places[item]: its index in the heap, or ITEM_HEAP_NOWHERE
 *         [1]       [2]
 *       [3] [4]   [5] [6]                 no entry's key is less than its parent's, (i - 1) / 2
 *
 * The array of places is the caller's: an item is in at most one heap, and several heaps may share the array. After a
 * reserve, put cannot fail.
 */
#ifndef STORE_ITEM_HEAP_H
#define STORE_ITEM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define ITEM_HEAP_NOWHERE UINT32_MAX
#define ITEM_HEAP_MAX ((size_t)1 << 26)

typedef struct item_heap_entry {
    double value;
    uint64_t order; /* among equal values: the lower one first */
    uint32_t item;
} item_heap_entry;

bool item_heap_entry_less(const item_heap_entry *a, const item_heap_entry *b);

/* Zero-initialise; base_free(entries) ends it. */
typedef struct item_heap {
    item_heap_entry *entries;
    size_t n, cap;
} item_heap;

int item_heap_reserve(item_heap *h, size_t n) BASE_NODISCARD; /* RP_ERR_MEMORY, RP_ERR_LIMIT */
/* Inserts an item, or changes the key of one that is in the heap. */
void item_heap_put(item_heap *h, uint32_t *places, item_heap_entry entry);
/* Removes an item, if it is in the heap. */
void item_heap_remove(item_heap *h, uint32_t *places, uint32_t item);

#endif
