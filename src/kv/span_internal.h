/* SPDX-License-Identifier: Apache-2.0 */
/* span_internal.h: the fields of a span, and what its layout does. For the files of spans alone: span.c and
 * span_select.c over span_plain.c, span_packed.c, span_reduced.c and span_states.c, over span_shared.c.
 *
 * A layout is how the blocks of a span lie in blocks of the pool:
 *
 *   plain     of the pool's format, in columns (kv_plan.h)          also scattered spans
 *   packed    of another format: cells follow one another
 *   reduced   other slots in each head: cells of heads
 *   states    no slots: what layers of the kind STATE hold after a token
 */
#ifndef KV_SPAN_INTERNAL_H
#define KV_SPAN_INTERNAL_H

#include <stdatomic.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kv/span.h"

typedef struct span_layout {
    /* Takes blocks for 64 more tokens. RP_ERR_BUDGET, RP_ERR_MEMORY: unchanged. NULL: no tokens can be appended. */
    int (*append)(kv_span *s, rp_error *err);
    /* Takes the blocks of a new span of s->n_tokens with this form. RP_ERR_BUDGET, RP_ERR_MEMORY: those in s->blocks
       are freed with the span. */
    int (*take)(kv_span *s, const kv_span_form *form, rp_error *err);
    /* Has a layer, in a reduced span any head of it, a block? block < s->n_blocks */
    bool (*has)(const kv_span *s, int32_t layer, int32_t block);
    /* The keys (part 0) or values (part 1) of a head in a block that the span has, unless the block is whole. */
    kv_address (*part)(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, int part);
} span_layout;

struct kv_span {
    atomic_int refs;
    atomic_int ready; /* layers that may be read; see kv_span_layers_ready */
    atomic_bool failed;
    const span_layout *layout;
    kv_pool *pool;
    uint64_t serial; /* kv_span_serial */
    base_key key;
    bool sealed;
    const kv_plan *plan;                   /* of its format, in the pool */
    int32_t first_pos, n_tokens, n_blocks; /* n_blocks: blocks in each layer */
    int32_t n_layers;
    int32_t readable_from;
    size_t n_pool_blocks; /* entries of blocks[] in use */
    int32_t n_trimmed;    /* plain: of them, those that were freed before the span itself, or never taken */
    int32_t *positions;   /* scattered: [KV_SPAN_TOKENS], stored after blocks[]; else NULL */
    /* packed: the cells of (block, layer) follow place[block][layer] others, from blocks[first_block[block]] on; of a
     * layer that is apart, it counts blocks of the pool, from blocks[first_apart[block]] on. NO_PLACE: the layer does
     * not have the block. Stored after blocks[] */
    int32_t *place;
    int32_t first_block[KV_SPAN_BLOCKS], first_apart[KV_SPAN_BLOCKS]; /* reduced: first_apart[0] alone */
    /* reduced, else NULL: of each (layer, KV head) and one more: index of its first slot in head_positions; of each:
     * its first cell, among those of layers that are apart or the others. All stored after blocks[] */
    int32_t *first_slots, *first_cells, *head_positions;
    int32_t end, n_parts; /* reduced: the highest position + 1; parts of the run */
    /* plain: [block][column], so that one block of every layer is taken at once; none: freed. Others: without gaps.
       Names of the pool, see kv_block_address */
    kv_address blocks[];
};

extern const span_layout span_plain, span_packed, span_reduced, span_states;

/* An open span with one reference, without tokens, with space for n_blocks and extra bytes after them.
   RP_ERR_MEMORY. */
int span_new(kv_span **out, kv_pool *pool, const span_layout *layout, rp_kv_format format, int32_t first_pos,
             size_t n_blocks, size_t extra, rp_error *err);
/* Of a new span, or of one with other addresses. */
uint64_t span_next_serial(void);
/* A span of a form that is possible, with blocks of undefined contents. RP_ERR_BUDGET, RP_ERR_MEMORY. */
int span_new_of_form(kv_span **out, kv_pool *pool, const kv_span_form *form, rp_error *err);
/* Of each layout, still without blocks. RP_ERR_MEMORY. */
int span_new_plain(kv_span **out, kv_pool *pool, int32_t first_pos, bool scattered, rp_error *err);
int span_new_packed(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, bool scattered,
                    rp_error *err);
int span_new_reduced(kv_span **out, kv_pool *pool, const kv_span_form *form, rp_error *err);
int span_new_states(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err);

static inline bool span_is_plain(const kv_span *s) { return s->layout == &span_plain; }
/* Is each block of a layer one block of the pool, in its order? */
static inline bool span_is_whole(const kv_span *s, int32_t layer) {
    return span_is_plain(s) && s->plan->places[layer].is_whole;
}
/* Plain: index of the first block of the pool of a layer's block. */
static inline size_t span_index_of(const kv_span *s, int32_t layer, int32_t block) {
    return (size_t)block * (size_t)s->plan->column_blocks + (size_t)s->plan->column[layer];
}
/* Of a layer with whole blocks. */
static inline kv_address span_whole_block(const kv_span *s, int32_t layer, int32_t block) {
    BASE_DCHECK(block < s->n_blocks && layer < s->n_layers);
    BASE_DCHECK(span_is_whole(s, layer));
    return kv_block_address(s->blocks[span_index_of(s, layer, block)]);
}
/* The keys (part 0) or values (part 1) of a cell in blocks of the pool that its layer is packed into. */
kv_address span_part_of(const kv_layer *l, const kv_packing *p, const kv_address *blocks, int64_t cell, int part);

/* kv_span_is_unshared, kv_span_layers_ready */
static inline bool span_is_unshared(const kv_span *s) {
    return atomic_load_explicit(&s->refs, memory_order_acquire) == 1;
}
static inline int32_t span_layers_ready(const kv_span *s) {
    return atomic_load_explicit(&s->ready, memory_order_acquire);
}

static inline int32_t span_cells_of(int32_t n_slots) { return BASE_DIV_UP(n_slots, KV_BLOCK_SLOTS); }
static inline uint8_t span_all_blocks(int32_t n_slots) { return (uint8_t)((1 << span_cells_of(n_slots)) - 1); }

/* Reduced spans: KV heads of each layer; index of one among those of all layers. */
static inline int32_t span_heads(const kv_span *s) { return s->plan->layers[0].n_heads; }
static inline int32_t span_head_index(const kv_span *s, int32_t layer, int32_t kv_head) {
    return layer * span_heads(s) + kv_head;
}
/* kv_span_slots, kv_span_positions */
static inline int32_t span_slots_of(const kv_span *s, int32_t layer, int32_t kv_head) {
    if (!s->first_slots) return s->n_tokens;
    const int32_t i = span_head_index(s, layer, kv_head);
    return s->first_slots[i + 1] - s->first_slots[i];
}
static inline const int32_t *span_positions_of(const kv_span *s, int32_t layer, int32_t kv_head) {
    return s->first_slots ? s->head_positions + s->first_slots[span_head_index(s, layer, kv_head)] : s->positions;
}

bool span_reduced_is_possible(const kv_span_form *f, const kv_shape *shape);
int64_t span_reduced_blocks(const kv_pool *pool, const kv_span_form *form, int64_t *first_apart);

#endif
