/* SPDX-License-Identifier: Apache-2.0 */
/* kv_plan.h: the layers of a model's KV, and how those of spans of one format lie in the blocks of a pool.
 *
 * Spans of the pool's format have columns, the blocks of 64 tokens:
 *
 *   column    [layer 0][layer 1][layer 2][layer 2]...      a block a layer; f16_blocks of them a layer in f16
 *
 * The cells of another format are packed: a block takes as many as fit (span.h). Layers that stay in f16 (kv_shape) have
 * blocks of the pool of their own: two, as a rule, where the pool's format is int8 or fp8.
 */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "kv/kv_layer.h"

typedef struct kv_shape {
    int32_t n_layers, n_kv_heads, key_dim, value_dim;
    /* [n_layers], borrowed: sliding windows: a token attends to tokens less than this before it; 0: all. NULL: no
     * windows */
    const int32_t *windows;
    rp_kv_format format;
    /* [n_layers], borrowed: layers with KV in f16 if the format is small; NULL: none */
    const bool *f16_layers;
} kv_shape;

/* KV bytes per token: in all layers. */
uint64_t kv_shape_token_bytes(const kv_shape *s);
/* The shape with another format. */
static inline kv_shape kv_shape_in(const kv_shape *s, rp_kv_format format) {
    kv_shape other = *s;
    other.format = format;
    return other;
}
/* The format of a layer's KV. */
static inline rp_kv_format kv_shape_layer_format(const kv_shape *s, int32_t layer) {
    return s->f16_layers && s->f16_layers[layer] && kv_format_is_small(s->format) ? RP_KV_F16 : s->format;
}
/* The row of a layer: in its own format, and in any. */
kv_layer kv_shape_layer(const kv_shape *s, int32_t layer);
kv_layer kv_shape_layer_in(const kv_shape *s, int32_t layer, rp_kv_format format);
/* Are any layers in f16 because of f16_layers? */
bool kv_shape_mixes(const kv_shape *s);
size_t kv_shape_block_bytes(const kv_shape *s);      /* of a layer in the shape's format: blocks of a pool */
size_t kv_shape_most_block_bytes(const kv_shape *s); /* of the layer with the largest block */
/* How cells of a format are packed into blocks of a pool. Keys and values of an f16 cell are two parts where a whole cell
 * does not fit (a pool of int8 with one KV head), or fewer cells would (an odd number of heads). */
typedef struct kv_packing {
    int32_t per_block; /* parts in a block; 0: none fits, or the shape has no such format */
    int32_t per_cell;  /* parts of a cell: 1 or 2 */
    size_t part_bytes;
} kv_packing;
/* s: of the pool. */
kv_packing kv_shape_packing(const kv_shape *s, rp_kv_format format);
/* Blocks of a pool of this shape that 64 slots of a layer in f16 take, if no other layer is packed with it; 0: f16 does
 * not fit. */
int32_t kv_shape_f16_blocks(const kv_shape *s);
/* Blocks that n cells take. */
static inline int32_t kv_packing_blocks(const kv_packing *p, int64_t n) { return (int32_t)((n * p->per_cell + p->per_block - 1) / p->per_block); }
/* Blocks of a pool of this shape that are taken by blocks of 64 slots of a packed span: n of them in its format, n_f16 of layers in f16. */
int64_t kv_shape_packed_blocks(const kv_shape *pool, rp_kv_format format, int64_t n, int64_t n_f16);

/* Of spans of one format in a pool. */
typedef struct kv_plan {
    kv_shape shape;         /* in the format */
    const kv_layer *layers; /* [n_layers]: their rows */
    const int32_t *column;  /* [n_layers + 1], of the pool's format: where the blocks of each layer begin in a column */
    int32_t column_blocks;  /* of the pool that 64 tokens take in all layers; 0: the pool does not take the format */
    kv_packing packing;     /* of layers in the format */
    kv_packing f16_packing; /* of layers in f16, and the blocks of the pool that a block of such a layer takes; 0: there are none */
    int32_t f16_blocks;
} kv_plan;

/* layers: [n_layers], filled in; column: as above. The plan borrows both, and the arrays of the pool's shape. */
void kv_plan_init(kv_plan *p, const kv_shape *pool, rp_kv_format format, kv_layer *layers, const int32_t *column);

/* Is a layer in f16 because of f16_layers? */
static inline bool kv_plan_is_in_f16(const kv_plan *p, int32_t layer) { return p->layers[layer].format != p->shape.format; }

#endif
