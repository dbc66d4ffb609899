/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h: tokens that are computed at the end of a context, chunk by chunk: a prompt with its answer, or a module.
 *
 *   context   [views ...][own spans: computed tokens; the last span is open]
 *   tokens    | computed (done) | to compute | capacity for the answer |
 *
 * The blocks that a sequence may still take from the pool are reserved: `reserved` is counted down as it takes them, so
 * an admitted sequence never lacks a block (kv_pool_reserve). Engine's thread.
 */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "kv/context.h"

struct model_row;

typedef struct sequence {
    kv_context context;
    const int32_t *tokens;    /* borrowed */
    const int32_t *positions; /* [n], borrowed; NULL: first_pos + i */
    int32_t first_pos;
    int32_t n, done;
    int64_t slots;      /* that its tokens attend to, its own included */
    int64_t reserved;   /* blocks; changed by sequence_reserve only, which keeps the pool's count equal */
    bool keeps_windows; /* layers with a window keep KV out of reach: another prompt may have the same prefix */
} sequence;

static inline int32_t sequence_position(const sequence *s, int32_t i) {
    return s->positions ? s->positions[i] : s->first_pos + i;
}

/* Has the KV of all of a context's views been read from disk? */
static inline bool sequence_is_ready(const kv_context *c) {
    return kv_context_is_ready(c, kv_pool_shape(c->pool)->n_layers);
}

/* Upper bound of the blocks that n tokens in `runs` runs of consecutive positions take, in all layers, in a format that
 * the pool takes. max_piece: tokens per step. */
int64_t sequence_blocks_in(const kv_pool *pool, rp_kv_format format, int32_t n, int32_t runs, int32_t max_piece,
                           bool keeps_windows);

/* Blocks that the spans of n tokens of a module take in a format. */
int64_t sequence_held_blocks(const kv_pool *pool, rp_kv_format format, int32_t n);

/* Sets the number of reserved blocks. */
void sequence_reserve(sequence *s, int64_t blocks);
/* Clears the reservation and all tokens; the context is unchanged. */
void sequence_reset(sequence *s);

/* Appends a token for row `row` of a step. RP_ERR_MEMORY. */
int sequence_append(sequence *s, int32_t token, int32_t pos, struct model_row *row, rp_error *err);
/* After a step: removes the last n rows, and trims layers with windows to what the token at pos attends to. */
void sequence_settle(sequence *s, int32_t n, int32_t pos);

#endif
