/* SPDX-License-Identifier: Apache-2.0 */
/* span_view.c: see span_view.h. Attention asks for each block that a row may see: fields of spans are read directly. */
#include "kv/span_view.h"

#include "kv/span_internal.h"

/* Bits [0, n) of a word, for any n. */
static uint64_t low_bits(int32_t n) {
    if (n <= 0) return 0;
    return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

void kv_mask_first(uint64_t mask[KV_SPAN_BLOCKS], int32_t n) {
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) mask[b] = low_bits(n - b * KV_BLOCK_SLOTS);
}

void kv_mask_clear(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end) {
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) {
        int32_t base = b * KV_BLOCK_SLOTS;
        mask[b] &= ~(low_bits(end - base) & ~low_bits(begin - base));
    }
}

void kv_mask_range(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end) {
    kv_mask_first(mask, end);
    kv_mask_clear(mask, 0, begin);
}

int32_t kv_mask_count(const uint64_t mask[KV_SPAN_BLOCKS]) {
    int32_t n = 0;
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) n += base_popcount64(mask[b]);
    return n;
}

/* Number of ascending positions, n >= 1 in all, that are pos or before. */
static int32_t slots_until(const int32_t *positions, int32_t n, int64_t pos) {
    int32_t low = 0, high = n;
    if (positions[n - 1] <= pos) return n; /* nearly always */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (positions[middle] <= pos) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* positions: of a head's slots. */
static uint64_t visible_by_position(const kv_view *v, const int32_t *positions, int32_t n_slots, int32_t block,
                                    int64_t pos, int32_t window) {
    const int32_t first = block * KV_BLOCK_SLOTS, n = BASE_MIN(n_slots - first, KV_BLOCK_SLOTS);
    if (n <= 0) return 0;
    const uint64_t visible = v->mask[block] & low_bits(slots_until(positions + first, n, pos));
    return window > 0 ? visible & ~low_bits(slots_until(positions + first, n, pos - window)) : visible;
}

uint64_t kv_view_visible(const kv_view *v, int32_t layer, int32_t kv_head, int32_t block, int32_t pos, int32_t window) {
    BASE_DCHECK(block >= 0 && block < KV_SPAN_BLOCKS && !kv_span_is_states(v->span));
    const int32_t *positions = span_positions_of(v->span, layer, kv_head);
    if (positions)
        return visible_by_position(v, positions, span_slots_of(v->span, layer, kv_head), block, (int64_t)pos - v->shift,
                                   window);
    int32_t first = v->span->first_pos + v->shift + block * KV_BLOCK_SLOTS;
    uint64_t visible = v->mask[block] & low_bits(pos - first + 1);
    return window > 0 ? visible & ~low_bits(pos - first + 1 - window) : visible;
}
