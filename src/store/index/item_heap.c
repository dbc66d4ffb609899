/* SPDX-License-Identifier: Apache-2.0 */
/* item_heap.c: see item_heap.h. */
#include "store/index/item_heap.h"

#include "base/check.h"
#include "base/memory.h"

bool item_heap_entry_less(const item_heap_entry *a, const item_heap_entry *b) {
    return a->value != b->value ? a->value < b->value : a->order < b->order;
}

static void set_entry(item_heap *h, uint32_t *places, size_t i, item_heap_entry entry) {
    h->entries[i] = entry;
    places[entry.item] = (uint32_t)i;
}

/* Places an entry at i, which is free, or above it, or below it. */
static void place_at(item_heap *h, uint32_t *places, size_t i, item_heap_entry entry) {
    if (i > 0 && item_heap_entry_less(&entry, &h->entries[(i - 1) / 2])) {
        for (size_t parent; i > 0 && item_heap_entry_less(&entry, &h->entries[parent = (i - 1) / 2]); i = parent)
            set_entry(h, places, i, h->entries[parent]);
    } else {
        for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
            if (child + 1 < h->n && item_heap_entry_less(&h->entries[child + 1], &h->entries[child])) child++;
            if (!item_heap_entry_less(&h->entries[child], &entry)) break;
            set_entry(h, places, i, h->entries[child]);
        }
    }
    set_entry(h, places, i, entry);
    /* no entry is less than its parent */
    BASE_ASSERT(i == 0 || !item_heap_entry_less(&h->entries[i], &h->entries[(i - 1) / 2]));
}

int item_heap_reserve(item_heap *h, size_t n) {
    return base_grow((void **)&h->entries, &h->cap, n, ITEM_HEAP_MAX, sizeof(*h->entries));
}

void item_heap_put(item_heap *h, uint32_t *places, item_heap_entry entry) {
    uint32_t at = places[entry.item];
    BASE_ASSERT(entry.value == entry.value); /* a number: the order is total */
    BASE_ASSERT(at == ITEM_HEAP_NOWHERE || (at < h->n && h->entries[at].item == entry.item));
    if (at == ITEM_HEAP_NOWHERE) {
        BASE_ASSERT(h->n < h->cap);
        at = (uint32_t)h->n++;
    }
    place_at(h, places, at, entry);
}

void item_heap_remove(item_heap *h, uint32_t *places, uint32_t item) {
    uint32_t at = places[item];
    if (at == ITEM_HEAP_NOWHERE) return;
    BASE_ASSERT(at < h->n && h->entries[at].item == item);
    places[item] = ITEM_HEAP_NOWHERE;
    item_heap_entry last = h->entries[--h->n];
    if (at < h->n) place_at(h, places, at, last);
}
