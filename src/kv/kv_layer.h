/* SPDX-License-Identifier: Apache-2.0 */
/* kv_layer.h: one layer of the KV cache, as a row of numbers, and the order of bytes in its blocks of 64 token slots.
 * Functions on a `void *block` work on copies of blocks on the host.
 *
 * Layers are of three kinds:
 *
 *   PAIRS    keys and values of each token, by KV head
 *   LATENT   one vector a token for all heads (multi-head latent attention): its keys; the values are the keys' last
 *         dimensions
 *   STATE    a fixed number of bytes after any token, none of a token alone (recurrent layers): it has no blocks of
 *         token slots
 *
 * One block of PAIRS, element type by the format (docs/format.md has the same order on disk); one of LATENT has the
 * keys only:
 *
 *     keys    [kv head][key dimension][64 slots]      slots fastest: 64 scores at a time, no horizontal sums
 *     values  [kv head][64 slots][value dimension]
 *
 * int8 has pairs of dimensions or slots side by side, and a scale for each slot of
 * a head (kernels.h):
 *
 *     keys    [kv head]{ [key dimension / 2][64 slots][2], bf16 scale[64] }   after a Hadamard transform
 *     values  [kv head]{ [32][value dimension][2], bf16 scale[64] }
 *
 * A *cell* is the keys and values of one head in 64 slots.
 */
#ifndef KV_LAYER_H
#define KV_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/block_memory.h"
#include "kv/kv_format.h"

#define KV_BLOCK_SLOTS 64

typedef enum kv_kind { KV_PAIRS,
                       KV_LATENT,
                       KV_STATE } kv_kind;

/* What a model says of a layer, and an engine's options of its format. */
typedef struct kv_layer_shape {
    kv_kind kind;
    int32_t n_heads, key_dim, value_dim; /* KV heads. LATENT: one head, value_dim <= key_dim. STATE: zeros */
    int32_t window;                      /* a token attends to tokens less than this before it; 0: to all */
    bool in_f16;                         /* its KV is in f16 where that of other layers is in a small format */
    uint32_t state_bytes;                /* STATE, else 0 */
} kv_layer_shape;

/* A layer's shape in a format, with the sizes that follow from them. */
typedef struct kv_layer {
    kv_kind kind;
    int32_t n_heads, key_dim, value_dim, window;
    rp_kv_format format;
    size_t key_bytes, value_bytes;  /* of one head in a block */
    size_t cell_bytes, block_bytes; /* keys and values of one head in a block, of all heads; STATE: 0 */
    size_t cell_values_at;          /* where the values begin in a cell; LATENT: in the keys, whose order they have */
} kv_layer;

/* Blocks of so many bytes that a layer's state takes; not STATE: none. */
static inline size_t kv_state_blocks(const kv_layer_shape *l, size_t block_bytes) {
    return ((size_t)l->state_bytes + block_bytes - 1) / block_bytes;
}
kv_layer kv_layer_make(const kv_layer_shape *shape, rp_kv_format format);
/* One head: its blocks are cells. */
kv_layer kv_layer_cell(const kv_layer *l);
/* Does the format support the dimensions? Integers: an even number of dimensions, at most KV_INT_MAX_DIM, and keys that
   are no values. */
bool kv_layer_is_supported(const kv_layer *l);
#define KV_INT_MAX_DIM 16384 /* sums of 16-bit queries by codes fit 32 bits */

/* Where one head's keys or values begin in a block. */
static inline size_t kv_block_keys_at(const kv_layer *l, int32_t kv_head) { return (size_t)kv_head * l->key_bytes; }
static inline size_t kv_block_values_at(const kv_layer *l, int32_t kv_head) {
    return (size_t)l->n_heads * l->cell_values_at + (size_t)kv_head * l->value_bytes;
}

/* Sets slots [from, 64), which are not used, to zero bytes. */
void kv_block_clear_slots(const kv_layer *l, void *block, int from);
/* Bytes of a block's first n slots (1 to 64) without the others: as in the block, but rows of slots end after slot n -
 * 1; a byte that holds two slots or more stays as long as one of them is used. */
size_t kv_block_used_bytes(const kv_layer *l, int n);
/* Moves those bytes, in place, to the beginning of the block; returns their number. And back: all other bytes are zeros
 * then. Slots that are not used must be zeros (kv_block_clear_slots). */
size_t kv_block_pack(const kv_layer *l, void *block, int n);
void kv_block_unpack(const kv_layer *l, void *block, int n);
/* Are two slots of two blocks equal, byte for byte, in all heads? Not of an encoded format: its slots share ranges. */
bool kv_block_same_slot(const kv_layer *l, const void *a, int slot_a, const void *b, int slot_b);

#define KV_SLOT_COPIES 2
/* The copies that make a slot of a head's keys or values one of another head's: writes at most KV_SLOT_COPIES, and
   returns their number. Not of encoded elements. */
size_t kv_slot_copies(const kv_layer *l, bool is_key, kv_address from, int slot_from, kv_address to, int slot_to,
                      kv_row_copy *out);

#endif
