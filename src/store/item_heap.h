/* SPDX-License-Identifier: Apache-2.0 */
/* item_heap.h: indices of items in a heap: the one with the smallest key is on top, and each can be found, moved and taken out.
 *
 *            [0] smallest                 places[item]: where it is, or ITEM_HEAP_NOWHERE
 *         [1]       [2]
 *       [3] [4]   [5] [6]                 no entry's key is less than its parent's, (i - 1) / 2
 *
 * The array of places is the caller's: an item is in one heap at most, and several heaps may share the array.
 * Reserve room first: then nothing fails.
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
    uint64_t order; /* among equal values: less goes first */
    uint32_t item;
} item_heap_entry;

bool item_heap_entry_less(const item_heap_entry *a, const item_heap_entry *b);

/* Zero-initialise; base_free(entries) ends it. */
typedef struct item_heap {
    item_heap_entry *entries;
    size_t n, cap;
} item_heap;

int item_heap_reserve(item_heap *h, size_t n) BASE_NODISCARD; /* RP_ERR_MEMORY, RP_ERR_LIMIT */
/* Puts an item in, or gives one that is in it another key. */
void item_heap_put(item_heap *h, uint32_t *places, item_heap_entry entry);
/* Takes an item out, if it is in. */
void item_heap_remove(item_heap *h, uint32_t *places, uint32_t item);

#endif
