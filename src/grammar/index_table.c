/* SPDX-License-Identifier: Apache-2.0 */
/* index_table.c: see index_table.h. */
#include "grammar/index_table.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "reprise.h"

#define LEAST_SLOTS 64

uint32_t index_table_find(const index_table *t, uint32_t hash, index_is is, const void *user) {
    if (t->cap == 0) return INDEX_NONE;
    for (size_t i = hash & (t->cap - 1); t->slots[i].index; i = (i + 1) & (t->cap - 1))
        if (t->slots[i].hash == hash && is(user, t->slots[i].index - 1)) return t->slots[i].index - 1;
    return INDEX_NONE;
}

static void index_table_put(index_table *t, index_slot slot) {
    size_t i = slot.hash & (t->cap - 1);
    while (t->slots[i].index) i = (i + 1) & (t->cap - 1);
    t->slots[i] = slot;
}

static int index_table_grow(index_table *t) {
    index_table larger = {.n = t->n, .cap = BASE_MAX(2 * t->cap, LEAST_SLOTS)};
    larger.slots = base_calloc(larger.cap, sizeof(*larger.slots));
    if (!larger.slots) return RP_ERR_MEMORY;
    for (size_t i = 0; i < t->cap; i++)
        if (t->slots[i].index) index_table_put(&larger, t->slots[i]);
    base_free(t->slots);
    *t = larger;
    return RP_OK;
}

int index_table_add(index_table *t, uint32_t hash, uint32_t index) {
    if (2 * (t->n + 1) > t->cap) {
        int rc = index_table_grow(t);
        if (rc) return rc;
    }
    BASE_ASSERT(2 * (t->n + 1) <= t->cap && index < INDEX_NONE); /* a search ends at a free slot */
    index_table_put(t, (index_slot){hash, index + 1});
    t->n++;
    return RP_OK;
}

/* The items of a hash, moved by collisions or not, are in one run of slots that ends at a free slot. */
void index_table_clear_at(index_table *t, uint32_t hash) {
    if (t->cap == 0) return;
    for (size_t i = hash & (t->cap - 1); t->slots[i].index; i = (i + 1) & (t->cap - 1)) {
        BASE_ASSERT(t->n > 0);
        t->slots[i].index = 0;
        t->n--;
    }
}

void index_table_free(index_table *t) {
    base_free(t->slots);
    *t = (index_table){0};
}
