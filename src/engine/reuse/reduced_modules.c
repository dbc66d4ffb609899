/* SPDX-License-Identifier: Apache-2.0 */
/* reduced_modules.c: see reduced_modules.h. */
#include "engine/reuse/reduced_modules.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "pml/layout.h"
#include "store/record/record.h"
#include "store/span_store.h"

/* The index of a key, or its insertion index. Locked. */
static size_t reduced_modules_index(const reduced_modules *r, const base_key *key) {
    size_t low = 0, high = r->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (memcmp(&r->keys[mid], key, sizeof(*key)) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

static bool is_at(const reduced_modules *r, size_t i, const base_key *key) {
    return i < r->n && base_key_equal(&r->keys[i], key);
}

static void add_key(rp_engine *e, const base_key *key) {
    reduced_modules *r = e->reduced_modules;
    pthread_mutex_lock(&e->lock);
    const size_t i = reduced_modules_index(r, key);
    BASE_ASSERT(i == 0 || memcmp(&r->keys[i - 1], key, sizeof(*key)) < 0);
    if (!is_at(r, i, key) && !base_grow((void **)&r->keys, &r->cap, r->n + 1, REDUCED_MODULES_MAX, sizeof(*r->keys))) {
        memmove(r->keys + i + 1, r->keys + i, (r->n++ - i) * sizeof(*r->keys));
        r->keys[i] = *key;
    }
    pthread_mutex_unlock(&e->lock);
}

void reduced_modules_add(rp_engine *e, const pml_segment *s) {
    BASE_ASSERT(s->keep > 0);
    const base_key key = pml_reduced_key(s, 0);
    add_key(e, &key);
}

bool reduced_modules_has(rp_engine *e, const pml_segment *s) {
    BASE_ASSERT(s->keep > 0); /* others have no such key */
    const base_key key = pml_reduced_key(s, 0);
    pthread_mutex_lock(&e->lock);
    const bool has = is_at(e->reduced_modules, reduced_modules_index(e->reduced_modules, &key), &key);
    pthread_mutex_unlock(&e->lock);
    return has;
}

/* A span_store_each_fn. Keys of other parts than the first do no harm. */
static void note_stored(void *user, const store_item *item) {
    if (item->row.record.kind == RECORD_REDUCED) add_key(user, &item->row.record.key);
}

void reduced_modules_open(rp_engine *e) { span_store_each(e->store, note_stored, e); }

void reduced_modules_free(rp_engine *e) { base_free(e->reduced_modules->keys); }
