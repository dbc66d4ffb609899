/* SPDX-License-Identifier: Apache-2.0 */
/* kv_plan.h: the layers of a model's KV, and how those of spans of one format lie in the blocks of a pool.
 *
 * Spans of the pool's format have columns, the blocks of 64 tokens:
 *
 *   column    [layer 0][layer 1][layer 2][layer 2]...      a block a layer, several of a layer with a larger block
 *
 * The cells of another format are packed: a block of the pool takes as many as fit (span.h). In both, a layer may be
 * *apart*: its cells have blocks of the pool of their own, as many as they need. Apart are layers that stay in f16
 * (kv_layer_shape.in_f16: two blocks, as a rule, where the pool's format is int8), and layers whose cells have another
 * size than those of the others.
 *
 * Layers of the kind STATE take no blocks in columns.
 */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "kv/kv_layer.h"

typedef struct kv_shape {
    int32_t n_layers;
    rp_kv_format format;
    const kv_layer_shape *layers; /* [n_layers], borrowed */
} kv_shape;

/* What the KV of these layers allows. */
typedef struct kv_capabilities {
    bool masks;     /* a view may select any slots of a span */
    bool shifts;    /* a view may move a span */
    bool truncates; /* the last tokens of a sequence can be removed */
    bool modules;   /* texts are computed apart from what is before them, and composed: masks and shifts */
    bool reduces;   /* each head of each layer may keep slots of its own: all layers are PAIRS with the same heads */
} kv_capabilities;
kv_capabilities kv_shape_capabilities(const kv_shape *s);

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
    return s->layers[layer].in_f16 && kv_format_is_small(s->format) ? RP_KV_F16 : s->format;
}
/* A layer in its own format, and in any. */
static inline kv_layer kv_shape_layer_in(const kv_shape *s, int32_t layer, rp_kv_format format) {
    return kv_layer_make(&s->layers[layer], format);
}
static inline kv_layer kv_shape_layer(const kv_shape *s, int32_t layer) {
    return kv_shape_layer_in(s, layer, kv_shape_layer_format(s, layer));
}
/* Has any layer a window? */
bool kv_shape_has_windows(const kv_shape *s);
/* KV heads of each layer, of a shape that reduces. */
int32_t kv_shape_heads(const kv_shape *s);
/* Are any layers in f16 because of in_f16? */
bool kv_shape_mixes(const kv_shape *s);
/* Of the blocks of a pool of this shape: those of one of its layers, such that a column takes the fewest bytes. */
size_t kv_shape_block_bytes(const kv_shape *s);
size_t kv_shape_most_block_bytes(const kv_shape *s); /* of the layer with the largest block */

/* How cells are packed into blocks of a pool. Keys and values of a cell are two parts where a whole cell does not fit
 * (f16 in a pool of int8 with one KV head), or fewer cells would (f16, an odd number of heads). */
typedef struct kv_packing {
    int32_t per_block; /* parts in a block; 0: none fits, or the layer has no such format */
    int32_t per_cell;  /* parts of a cell: 1 or 2 */
    size_t part_bytes;
} kv_packing;
/* Of the layers that are not apart, in any format. s: of the pool. */
kv_packing kv_shape_packing(const kv_shape *s, rp_kv_format format);
/* Blocks that n cells take. */
static inline int32_t kv_packing_blocks(const kv_packing *p, int64_t n) {
    return (int32_t)((n * p->per_cell + p->per_block - 1) / p->per_block);
}

/* A layer of spans of one format in a pool. */
typedef struct kv_place {
    bool is_whole;      /* its block is one block of the pool, in the order of kv_layer.h */
    bool is_apart;      /* its cells have blocks of the pool of their own: n_blocks for 64 slots */
    int32_t n_blocks;   /* not apart and not whole: 0 */
    kv_packing packing; /* of its cells, unless it is whole */
} kv_place;

/* Of spans of one format in a pool. */
typedef struct kv_plan {
    kv_shape shape;         /* in the format */
    const kv_layer *layers; /* [n_layers] */
    const kv_place *places; /* [n_layers] */
    const int32_t *column;  /* [n_layers + 1]: where the blocks of each layer begin in a column; only of the pool's
                               format */
    int32_t column_blocks;  /* of the pool that 64 tokens take in all layers; -1: the pool does not take the format */
    kv_packing packing;     /* of layers that are not apart; of the pool's format: of whole layers, in reduced spans */
    bool has_windows;
} kv_plan;

/* layers, places: [n_layers]; column: [n_layers + 1], or NULL: a format that is not the pool's. Filled in; the plan
 * borrows them, and the layers of the pool's shape. */
void kv_plan_init(kv_plan *p, const kv_shape *pool, rp_kv_format format, kv_layer *layers, kv_place *places,
                  int32_t *column);
/* Blocks of the pool that are taken by the blocks of 64 slots that a span has, kept: [n_layers], bit b: block b of the
 * layer; NULL: one of each. -1: the pool does not take the format. */
int64_t kv_plan_blocks(const kv_plan *p, const uint8_t *kept);

#endif
