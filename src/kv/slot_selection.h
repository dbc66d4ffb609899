/* SPDX-License-Identifier: Apache-2.0 */
/* slot_selection.h: which slots of a run of tokens each head of each layer keeps.
 *
 *   slots of the run      0  1  2  3  4  5  6  7  8 ...
 *   layer 0, KV head 0    x     x     x           x          every (layer, KV head) has slots of its own, and any
 *         number
 *   layer 0, KV head 1       x                               of them, also none
 *   ...
 *
 * A reduced span (span.h) has the KV of selected slots only. A selection is made from scores: the highest are kept, of
 * all heads of all layers together, or of each head alone. Equal scores: the lower slot first, then the lower layer,
 * then the lower head. The result depends on the scores only. Used by one thread at a time.
 */
#ifndef KV_SLOT_SELECTION_H
#define KV_SLOT_SELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "reprise.h"

/* Slots in the run of a selection. */
#define KV_SELECTION_MAX_SLOTS ((int32_t)1 << 24)

typedef struct kv_selection {
    int32_t n_layers, n_kv_heads, n_slots;
    uint64_t *bits; /* [n_layers][n_kv_heads][words of n_slots bits] */
} kv_selection;

/* Whose scores are compared. */
typedef enum kv_selection_budget { KV_BUDGET_ALL,
                                   KV_BUDGET_HEAD } kv_selection_budget;

/* Selects nothing. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int kv_selection_new(kv_selection **out, int32_t n_layers, int32_t n_kv_heads, int32_t n_slots, rp_error *err);
void kv_selection_free(kv_selection *s); /* NULL is fine */

static inline int32_t kv_selection_words(const kv_selection *s) { return BASE_DIV_UP(s->n_slots, 64); }
static inline uint64_t *kv_selection_head(const kv_selection *s, int32_t layer, int32_t kv_head) {
    return s->bits + ((int64_t)layer * s->n_kv_heads + kv_head) * kv_selection_words(s);
}
static inline void kv_selection_add(kv_selection *s, int32_t layer, int32_t kv_head, int32_t slot) {
    kv_selection_head(s, layer, kv_head)[slot / 64] |= UINT64_C(1) << (slot % 64);
}
static inline bool kv_selection_has(const kv_selection *s, int32_t layer, int32_t kv_head, int32_t slot) {
    return kv_selection_head(s, layer, kv_head)[slot / 64] >> (slot % 64) & 1;
}
/* Number of selected slots of a head; the largest of all heads. */
int32_t kv_selection_count(const kv_selection *s, int32_t layer, int32_t kv_head);
int32_t kv_selection_most(const kv_selection *s);

/* Selects the highest scores, instead of what was selected before. scores: [n_layers][n_kv_heads][n_slots]; -INFINITY:
 * the slot is not there, or must not be kept. permille: share of the others that is kept, rounded up; 0 to 1000. A NaN
 * is lower than every number. */
void kv_selection_highest(kv_selection *s, const float *scores, kv_selection_budget budget, int32_t permille);
/* Adds the n highest scores of the heads [first, end), counted over all layers, or all that are there. None of these
 * heads has a slot yet. */
void kv_selection_add_highest(kv_selection *s, const float *scores, int64_t first, int64_t end, int64_t n);

#endif
