/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h: tokens that are computed at the end of a context, piece by piece: a prompt with its answer, or a module.
 *
 *   context   [views ...][own spans: what is computed, the last one open]
 *   tokens    | computed (done) | to compute | room for the answer |
 *
 * What a sequence may still take from the pool is reserved: `reserved` blocks, counted down as it takes them, so that what was admitted
 * once never lacks a block (kv_pool_reserve). Belongs to the engine's thread.
 */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "model/backend.h"

typedef struct sequence {
    kv_context context;
    const int32_t *tokens;    /* borrowed */
    const int32_t *positions; /* [n], borrowed; NULL: first_pos + i */
    int32_t first_pos;
    int32_t n, done;
    int64_t slots;    /* that its tokens attend to, own ones included */
    int64_t reserved; /* blocks; changed by sequence_reserve alone, which keeps the pool's count in step */
    bool keeps_windows; /* layers with a window keep what is out of reach: somebody may read the same beginning */
} sequence;

static inline int32_t sequence_position(const sequence *s, int32_t i) { return s->positions ? s->positions[i] : s->first_pos + i; }

/* Blocks that n tokens in so many runs of consecutive positions take at most, in all layers. max_piece: of them in one step. */
int64_t sequence_blocks(const kv_shape *shape, int32_t n, int32_t runs, int32_t max_piece, bool keeps_windows);

/* From now on the sequence has so many blocks reserved. */
void sequence_reserve(sequence *s, int64_t blocks);
/* Nothing is reserved, computed or to be computed; the context stays as it is. */
void sequence_reset(sequence *s);

/* Appends a token for row `row` of a step. RP_ERR_MEMORY. */
int sequence_append(sequence *s, int32_t token, int32_t pos, model_row *row, rp_error *err);
/* After a step: takes back the last n rows, and lets layers with windows forget what the token at pos does not reach. */
void sequence_settle(sequence *s, int32_t n, int32_t pos);

#endif
