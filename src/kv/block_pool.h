/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.h: memory for the KV cache, in blocks of 64 token slots of one layer, under a hard byte budget.
 *
 * One block, element type by the format (docs/format.md has the same order on disk):
 *
 *     keys    [kv head][key dimension][64 slots]      slots fastest: 64 scores at a time, no horizontal sums
 *     values  [kv head][64 slots][value dimension]
 *
 * fp8 has one byte an element (e4m3). int8 has pairs of dimensions or slots side by side, and a scale for each slot of
 * a head (kernels.h):
 *
 *     keys    [kv head]{ [key dimension / 2][64 slots][2], bf16 scale[64] }   after a Hadamard transform
 *     values  [kv head]{ [32][value dimension][2], bf16 scale[64] }
 *
 * All blocks of a pool have one shape and format. KV of another format is packed into them: a *cell* is the keys and
 * values of one head in 64 slots, and a block takes as many cells as fit (span.h). Layers that stay in f16 (kv_shape)
 * have blocks of the pool of their own: two, as a rule, where the pool's format is int8 or fp8.
 *
 * Blocks are taken and freed one by one. Their memory comes from the backend in slabs and stays with the pool (fresh
 * pages cost more than a block's arithmetic). When the budget is used up, the pool asks its reclaimer (the store) to
 * evict spans before it fails.
 *
 * Thread-safe: one mutex, held for a few instructions, never while the reclaimer runs. A condition variable serves
 * threads that wait for blocks that another thread fills.
 */
#ifndef KV_BLOCK_POOL_H
#define KV_BLOCK_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/kv_format.h"

#define KV_BLOCK_SLOTS 64

typedef struct kv_shape {
    int32_t n_layers, n_kv_heads, key_dim, value_dim;
    /* [n_layers], borrowed: sliding windows: a token attends to tokens less than this before it; 0: all. NULL: no
     * windows */
    const int32_t *windows;
    rp_kv_format format;
    /* [n_layers], borrowed: layers with KV in f16 if the format is small; NULL: none */
    const bool *f16_layers;
} kv_shape;

/* Allocator of block memory. The CPU's memory is the default; a device backend has its own. */
typedef struct kv_memory {
    void *(*alloc)(void *user, size_t bytes); /* 64-byte aligned, NULL when there is none */
    void (*release)(void *user, void *p);
    void *user;
} kv_memory;

typedef struct kv_pool kv_pool;

/* Tries to free at least one block by evicting an unreferenced span. Returns false if no such span is left. */
typedef bool (*kv_reclaim_fn)(void *user);

/* memory NULL: the CPU's. The shape's arrays are borrowed. RP_ERR_INVALID (shape), RP_ERR_UNSUPPORTED (its format, or
 * layers in f16 that do not fit into its blocks), RP_ERR_MEMORY. */
int kv_pool_new(kv_pool **out, const kv_shape *shape, uint64_t budget_bytes, const kv_memory *memory, rp_error *err);
void kv_pool_free(kv_pool *p); /* every block must have been freed */
void kv_pool_set_reclaim(kv_pool *p, kv_reclaim_fn reclaim, void *user);

const kv_shape *kv_pool_shape(const kv_pool *p);
size_t kv_pool_block_bytes(const kv_pool *p);
/* [n_layers + 1]: where the blocks of each layer begin in a column, the blocks of 64 tokens of a span in the pool's
 * format; the last: blocks in a column. */
const int32_t *kv_pool_column(const kv_pool *p);
/* KV bytes per token: in all layers. */
uint64_t kv_shape_token_bytes(const kv_shape *s);
/* Does the format support the shape? Integers: an even number of dimensions, at most 16384. */
bool kv_shape_is_supported(const kv_shape *s);
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
/* The shape with the format of a layer: what the functions of heads and blocks below take. */
static inline kv_shape kv_shape_of_layer(const kv_shape *s, int32_t layer) { return kv_shape_in(s, kv_shape_layer_format(s, layer)); }
/* Are any layers in f16 because of f16_layers? */
bool kv_shape_mixes(const kv_shape *s);
size_t kv_shape_key_bytes(const kv_shape *s);   /* of one head's keys in a block */
size_t kv_shape_value_bytes(const kv_shape *s); /* of one head's values in a block */
size_t kv_shape_cell_bytes(const kv_shape *s);  /* keys and values of one head in a block */
size_t kv_shape_block_bytes(const kv_shape *s);
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
/* Can spans be in this format? */
static inline bool kv_pool_takes(const kv_pool *p, rp_kv_format format) {
    return format == kv_pool_shape(p)->format || kv_shape_packing(kv_pool_shape(p), format).per_block > 0;
}

/* Sets slots [from, 64), which are not used, to zero bytes. */
void kv_block_clear_slots(const kv_shape *s, void *block, int from);
/* Bytes of a block's first n slots (1 to 64) without the others: as in the block, but rows of slots end after slot n - 1;
 * a byte that holds two slots or more stays as long as one of them is used. */
size_t kv_block_used_bytes(const kv_shape *s, int n);
/* Moves those bytes, in place, to the beginning of the block; returns their number. And back: all other bytes are zeros
 * then. Slots that are not used must be zeros (kv_block_clear_slots). */
size_t kv_block_pack(const kv_shape *s, void *block, int n);
void kv_block_unpack(const kv_shape *s, void *block, int n);
/* Are two slots of two blocks equal, byte for byte, in all heads? Not of an encoded format: its slots share ranges. */
bool kv_block_same_slot(const kv_shape *s, const void *a, int slot_a, const void *b, int slot_b);

/* Copies a slot of a head's keys or values to a slot of another, byte by byte. Not of encoded elements. */
void kv_copy_slot(const kv_shape *s, bool is_key, const void *from, int slot_from, void *to, int slot_to);

/* Takes n blocks into out[0..n), all or none. RP_ERR_BUDGET: over the budget even after reclaiming; RP_ERR_MEMORY: out
 * of memory. */
int kv_pool_take(kv_pool *p, void **out, size_t n, rp_error *err);
void kv_pool_give(kv_pool *p, void *const *blocks, size_t n);

/* Waits until *count is n or more. The thread that increases it must call kv_pool_notify_filled afterwards. */
void kv_pool_wait_filled(kv_pool *p, const atomic_int *count, int n);
void kv_pool_notify_filled(kv_pool *p);

/* Reserves (delta > 0) or releases blocks that a sequence may take later. The pool only counts them: kv_pool_take
 * ignores the count. */
void kv_pool_reserve(kv_pool *p, int64_t delta);

typedef struct kv_pool_stats {
    uint64_t budget_bytes, used_bytes, slab_bytes;
    int64_t reserved_blocks;
    /* since creation; its growth over a piece of code is an upper bound of the bytes written or copied there */
    uint64_t taken_bytes_total;
} kv_pool_stats;
kv_pool_stats kv_pool_get_stats(kv_pool *p);

#endif
