/* SPDX-License-Identifier: Apache-2.0 */
/* slot_selection.c: see slot_selection.h. The n-th highest score is found by radix: four histograms of 256 bytes'
 * values, of the scores as integers in the same order. */
#include "kv/slot_selection.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

int kv_selection_new(kv_selection **out, int32_t n_layers, int32_t n_kv_heads, int32_t n_slots, rp_error *err) {
    const size_t words = BASE_DIV_UP((size_t)n_slots, 64),
                 bytes = sizeof(uint64_t) * (size_t)n_layers * (size_t)n_kv_heads * words;
    *out = NULL;
    if (n_slots > KV_SELECTION_MAX_SLOTS)
        return base_fail(err, RP_ERR_LIMIT, "a selection of %d slots: the limit is %d", n_slots,
                         KV_SELECTION_MAX_SLOTS);
    kv_selection *s = base_calloc(1, sizeof(*s));
    if (s)
        *s = (kv_selection){
            .n_layers = n_layers, .n_kv_heads = n_kv_heads, .n_slots = n_slots, .bits = base_calloc(1, bytes)};
    if (!s || !s->bits) {
        base_free(s);
        return base_fail_memory(err, bytes, "a selection of slots");
    }
    *out = s;
    return RP_OK;
}

void kv_selection_free(kv_selection *s) {
    if (!s) return;
    base_free(s->bits);
    base_free(s);
}

int32_t kv_selection_count(const kv_selection *s, int32_t layer, int32_t kv_head) {
    const uint64_t *bits = kv_selection_head(s, layer, kv_head);
    int32_t n = 0;
    for (int32_t i = 0; i < kv_selection_words(s); i++) n += base_popcount64(bits[i]);
    return n;
}

int32_t kv_selection_most(const kv_selection *s) {
    int32_t most = 0;
    for (int32_t l = 0; l < s->n_layers; l++)
        for (int32_t h = 0; h < s->n_kv_heads; h++) most = BASE_MAX(most, kv_selection_count(s, l, h));
    return most;
}

/* ---- the highest scores ---- */

#define ABSENT 0 /* rank of a slot that is never kept */

/* An integer of the same order; 1 for a NaN, above ABSENT. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    if (isnan(score)) return 1;
    if (isinf(score) && score < 0) return ABSENT;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof(bits));
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

/* The n-th highest of ranks, 1 <= n; *n becomes how many of that rank are among the n highest. */
static uint32_t nth_rank(const float *scores, int64_t n_scores, int64_t *n) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t counts[256] = {0};
        for (int64_t i = 0; i < n_scores; i++) {
            const uint32_t rank = rank_of(scores[i]);
            if (shift == 24 || (rank ^ prefix) >> (shift + 8) == 0) counts[rank >> shift & 255]++;
        }
        uint32_t digit = 255;
        for (; digit > 0 && counts[digit] < *n; digit--) *n -= counts[digit];
        prefix |= digit << shift;
    }
    return prefix;
}

void kv_selection_add_highest(kv_selection *s, const float *scores, int64_t first, int64_t end, int64_t n) {
    const float *from = scores + first * s->n_slots;
    const int64_t n_scores = (end - first) * s->n_slots, words = kv_selection_words(s);
    int64_t there = 0;
    BASE_ASSERT(first >= 0 && first <= end && end <= (int64_t)s->n_layers * s->n_kv_heads);
    for (int64_t i = 0; i < n_scores; i++) there += rank_of(from[i]) != ABSENT;
    n = BASE_MIN(n, there);
    if (n <= 0) return;
    const uint32_t least = nth_rank(from, n_scores, &n); /* n of them are kept */
    for (int32_t slot = 0; slot < s->n_slots; slot++)
        for (int64_t head = first; head < end; head++) {
            const uint32_t rank = rank_of(scores[head * s->n_slots + slot]);
            if (rank < least || (rank == least && n-- <= 0)) continue;
            s->bits[head * words + slot / 64] |= UINT64_C(1) << (slot % 64);
        }
}

void kv_selection_highest(kv_selection *s, const float *scores, kv_selection_budget budget, int32_t permille) {
    const int64_t n_heads = (int64_t)s->n_layers * s->n_kv_heads, step = budget == KV_BUDGET_ALL ? n_heads : 1;
    BASE_ASSERT(permille >= 0 && permille <= 1000);
    memset(s->bits, 0, sizeof(*s->bits) * (size_t)(n_heads * kv_selection_words(s)));
    for (int64_t head = 0; head < n_heads; head += step) {
        int64_t there = 0;
        for (int64_t i = head * s->n_slots; i < (head + step) * s->n_slots; i++) there += rank_of(scores[i]) != ABSENT;
        kv_selection_add_highest(s, scores, head, head + step, (there * permille + 999) / 1000);
    }
}
