/* SPDX-License-Identifier: Apache-2.0 */
/* attention_observer.c: see attention_observer.h. */
#include "backend/attention_observer.h"

#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define SUM_BITS 62 /* a weight may be above 1 by a rounding */

int attention_observer_new(attention_observer **out, int32_t n_layers, int32_t n_heads, attention_measure measure,
                           int64_t most, size_t first_view, size_t n_views, rp_error *err) {
    BASE_ASSERT(most > 0 && most < (int64_t)1 << SUM_BITS);
    const size_t n_lists = measure == ATTENTION_TOTAL ? 1 : (size_t)n_layers * (size_t)n_heads;
    const size_t n = n_lists * n_views * KV_SPAN_TOKENS;
    const size_t bytes = sizeof(attention_observer) + n * sizeof(atomic_uint_least64_t);
    attention_observer *o = *out = base_alloc(bytes);
    if (!o) return base_fail_memory(err, bytes, "weights of attention");
    o->measure = measure;
    o->n_heads = n_heads;
    o->one = ldexp(1.0, SUM_BITS);
    for (int64_t n_weights = 1; n_weights < most; n_weights *= 2) o->one /= 2;
    BASE_ASSERT(o->one >= 1); /* `most` weights of 1 are below 2^63 */
    o->first_view = first_view;
    o->n_views = n_views;
    o->n = n;
    for (size_t i = 0; i < n; i++) atomic_init(&o->weights[i], 0);
    return RP_OK;
}

int query_record_new(query_record **out, int32_t n_layers, int32_t width, rp_error *err) {
    BASE_ASSERT(n_layers > 0 && width > 0);
    const size_t bytes = sizeof(query_record) + sizeof(float) * (size_t)n_layers * KV_SPAN_TOKENS * (size_t)width;
    query_record *q = *out = base_calloc(1, bytes);
    if (!q) return base_fail_memory(err, bytes, "queries");
    q->n_layers = n_layers;
    q->width = width;
    return RP_OK;
}

void attention_observer_free(attention_observer *o) { base_free(o); }

static size_t index_of(const attention_observer *o, int32_t layer, int32_t head, size_t view, int32_t slot) {
    const size_t list = o->measure == ATTENTION_TOTAL ? 0 : (size_t)layer * (size_t)o->n_heads + (size_t)head;
    const size_t i = (list * o->n_views + view) * KV_SPAN_TOKENS + (size_t)slot;
    BASE_DCHECK(view < o->n_views && slot >= 0 && slot < KV_SPAN_TOKENS && i < o->n);
    return i;
}

double attention_observer_weight(const attention_observer *o, int32_t layer, int32_t head, size_t view, int32_t slot) {
    const uint64_t number =
        atomic_load_explicit(&o->weights[index_of(o, layer, head, view, slot)], memory_order_relaxed);
    const uint32_t bits = (uint32_t)number;
    float weight;
    if (!attention_observer_is_maximum(o)) return (double)number / o->one;
    memcpy(&weight, &bits, sizeof(weight));
    return (double)weight;
}

/* In any order: the threads of a step wait for each other before anything is read. */
void attention_observer_add(attention_observer *o, int32_t layer, int32_t head, size_t view, int32_t block,
                            uint64_t slots, const uint64_t numbers[KV_BLOCK_SLOTS]) {
    atomic_uint_least64_t *at = &o->weights[index_of(o, layer, head, view, block * KV_BLOCK_SLOTS)];
    for (; slots; slots &= slots - 1) {
        const int i = base_ctz64(slots);
        uint_least64_t seen = atomic_load_explicit(&at[i], memory_order_relaxed);
        if (!attention_observer_is_maximum(o)) atomic_fetch_add_explicit(&at[i], numbers[i], memory_order_relaxed);
        else
            while (seen < numbers[i] && !atomic_compare_exchange_weak_explicit(
                                            &at[i], &seen, numbers[i], memory_order_relaxed, memory_order_relaxed)) {}
    }
}
