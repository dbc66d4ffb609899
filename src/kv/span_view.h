/* SPDX-License-Identifier: Apache-2.0 */
/* span_view.h: a span as one prompt sees it: which of its slots, and where. */
#ifndef KV_SPAN_VIEW_H
#define KV_SPAN_VIEW_H

#include "kv/span.h"

/* Holds no reference; the context does. */
typedef struct kv_view {
    kv_span *span;
    int32_t shift;                 /* positions that the span is moved by in this prompt */
    uint64_t mask[KV_SPAN_BLOCKS]; /* bit j of mask[b]: slot 64 b + j is selected; reduced spans: all are */
} kv_view;

/* Sets the first n slots and clears the others. */
void kv_mask_first(uint64_t mask[KV_SPAN_BLOCKS], int32_t n);
/* Sets slots [begin, end), 0 <= begin, and clears the others. */
void kv_mask_range(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end);
/* Clears slots [begin, end), which may reach outside 0..256. */
void kv_mask_clear(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end);

/* Number of set slots. */
int32_t kv_mask_count(const uint64_t mask[KV_SPAN_BLOCKS]);

/* Slots of one block of a view that a token at position pos sees in a head: selected slots at pos or before it and,
 * with a window, less than `window` before it. Heads differ in reduced spans only. */
uint64_t kv_view_visible(const kv_view *v, int32_t layer, int32_t kv_head, int32_t block, int32_t pos, int32_t window);

#endif
