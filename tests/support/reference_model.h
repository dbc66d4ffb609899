/* SPDX-License-Identifier: Apache-2.0 */
/* reference_model.h: the slow, obvious transformer of every family in tests/golden, one token at a time.
 *
 * Independent of views, spans, blocks and plans: the caller passes for each token the earlier tokens that it attends
 * to, and their distances. Arithmetic is in double over weights dequantized to F32; keys and queries are kept
 * un-rotated, and a score is
 *
 *     score(t, u) = cap((R(distance(t, u)) q_t) . k_u scale) - slope distance(t, u)
 *
 * with cap, slope and R depending on the family. A layer with a window attends only to smaller distances. Parts:
 *
 *   reference_weights.h  weights of a file   reference_family.c, reference_weights.c, reference_rope.c
 *   reference_layers.h   arithmetic
 *
 * For tests: out of memory ends the program. Not thread-safe.
 */
#ifndef SUPPORT_REFERENCE_MODEL_H
#define SUPPORT_REFERENCE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "model/gguf/gguf.h"
#include "reprise.h"

/* calloc that ends the program when out of memory; release with free. */
void *reference_alloc(size_t n, size_t bytes);

typedef struct reference_model reference_model;

/* The file may be closed afterwards. n_ctx: maximal positions of prompts, which select the factors of long-rope; 0:
 * the model's training context. RP_ERR_UNSUPPORTED: an unknown architecture; RP_ERR_FORMAT: something is missing or
 * misshapen. */
int reference_model_open(reference_model **out, const gguf_file *f, int32_t n_ctx, rp_error *err);
void reference_model_close(reference_model *m);
int32_t reference_model_n_vocab(const reference_model *m);
/* Positions that a model with learned ones has; 0: positions are not learned, and there is no limit. */
int32_t reference_model_n_positions(const reference_model *m);

/* One token that another attends to: its number, and its distance in positions (0 or more). */
typedef struct reference_sight {
    int32_t token, distance;
} reference_sight;

/* The tokens computed so far, numbered 0, 1, ... */
typedef struct reference_kv reference_kv;
reference_kv *reference_kv_new(const reference_model *m);
void reference_kv_free(reference_kv *s);
int32_t reference_kv_count(const reference_kv *s);
/* The smallest margin of any choice of experts so far: the least probable chosen one minus the most probable other.
 * If it is as small as rounding, another implementation may correctly choose another expert. Infinite without
 * experts. */
double reference_kv_margin(const reference_kv *s);

/* Computes the next token, which attends to `sights` and itself. position: the row of learned position embeddings,
 * and what queries are scaled by. logits: n_vocab floats, or NULL. */
void reference_kv_add(reference_kv *s, int32_t id, int32_t position, const reference_sight *sights, size_t n_sights,
                      float *logits);

#endif
