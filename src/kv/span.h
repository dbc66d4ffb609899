/* SPDX-License-Identifier: Apache-2.0 */
/* span.h: spans, the immutable attention states of up to 256 tokens, and views of them.
 *
 *   span   key, first position c, n tokens
 *     layer 0   [block 0][block 1][block 2][block 3]      slot j of block b: the token at position c + 64 b + j
 *     layer 1   [block 0][block 1][block 2][block 3]
 *     ...
 *
 * A scattered span says of each slot where its token stands: tokens that are computed here and there between views, without a block for each.
 *
 * Life: new (open, one holder, slots are appended) -> sealed (named by its key, immutable, any number of holders) -> freed with the
 * last reference. Keys are stored rotated for their own position, R(c)k; a view that moves the span by `shift` rotates the
 * query to m - shift instead of touching them.
 *
 * An open span belongs to one thread. A sealed one may be referenced and read by any.
 */
#ifndef KV_SPAN_H
#define KV_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "kv/block_pool.h"

#define KV_SPAN_BLOCKS 4
#define KV_SPAN_TOKENS (KV_SPAN_BLOCKS * KV_BLOCK_SLOTS)

typedef struct kv_span kv_span;

/* An open, empty span with one reference, whose first token will stand at first_pos. RP_ERR_MEMORY. */
int kv_span_new(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err);
/* The same, but scattered: its tokens may leave positions out. It is one context's for ever: never sealed, never trimmed. */
int kv_span_new_scattered(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err);
kv_span *kv_span_ref(kv_span *s);
void kv_span_unref(kv_span *s); /* NULL is fine */
/* Does the caller hold the only reference? (Then nobody else reads it.) */
bool kv_span_is_unshared(const kv_span *s);

/* Makes room for one more token in every layer and returns its slot in *slot (0..255). The span is open and not full.
 * RP_ERR_BUDGET (the pool's budget), RP_ERR_MEMORY: the span is unchanged. */
int kv_span_append(kv_span *s, int32_t *slot, rp_error *err);
/* Scattered, after every append: the token of the last slot stands at pos, which is higher than any before. */
void kv_span_place(kv_span *s, int32_t pos);
/* Takes back the last n tokens of an open span; their blocks stay for those that come instead. */
void kv_span_truncate(kv_span *s, int32_t n);
/* Positions: [begin, end). */
typedef struct kv_positions {
    int32_t begin, end;
} kv_positions;

/* Does a token at `from` or behind it, or one at the n_later stretches, see anything of the block that begins at pos through a window? */
bool kv_block_is_reached(int32_t pos, int32_t window, int32_t from, const kv_positions *later, size_t n_later);
/* Gives back the blocks that nobody will read: in layers with a window, those that no token at `from` or behind it reaches, nor one at
 * the n_later stretches of positions before that. All count as the span's own. The caller holds the only reference. The slots of such
 * blocks are gone: whoever takes a view of the span later reads from these positions alone, so the span's name must tell what it kept.
 * Returns how many blocks were given back. */
int32_t kv_span_trim(kv_span *s, int32_t from, const kv_positions *later, size_t n_later);
/* The first position that a reader of the whole span may stand at, for all that was given back; INT32_MIN if nothing was. */
int32_t kv_span_readable_from(const kv_span *s);
/* Names the span and makes it immutable. */
void kv_span_seal(kv_span *s, const base_key *key);

/* What of a span stands beside its blocks: enough to make room for states that come from elsewhere. */
typedef struct kv_span_form {
    int32_t first_pos, n_tokens, readable_from;
    const uint8_t *kept; /* [n_layers], borrowed: bit b: block b of the layer is there (the others were given back) */
} kv_span_form;

/* A sealed span with one reference whose blocks are there and not filled in yet: it is read layer by layer, and no layer may be looked at
 * before kv_span_layers_ready says so. RP_ERR_FORMAT (the form is not possible: nothing was taken), RP_ERR_BUDGET,
 * RP_ERR_MEMORY. */
int kv_span_restore(kv_span **out, kv_pool *pool, const kv_span_form *form, const base_key *key, rp_error *err);
/* By the thread that fills it in: layers [0, n) are there now. Wakes those who wait. */
void kv_span_set_ready(kv_span *s, int32_t n);
/* It cannot be filled in. All layers count as ready, so that nobody waits; what they hold is nothing to go by. */
void kv_span_set_failed(kv_span *s);
/* How many layers may be looked at, from the first on: all, for a span that was computed. Any thread. */
int32_t kv_span_layers_ready(const kv_span *s);
bool kv_span_has_failed(const kv_span *s);
/* Waits until layers [0, n) are ready. */
void kv_span_wait(const kv_span *s, int32_t n);
/* Bit b: block b of the layer is there. */
uint8_t kv_span_kept(const kv_span *s, int32_t layer);

bool kv_span_is_sealed(const kv_span *s);
int32_t kv_span_tokens(const kv_span *s);
int32_t kv_span_position(const kv_span *s); /* of slot 0 */
int32_t kv_span_end(const kv_span *s);      /* behind its last token */
bool kv_span_is_scattered(const kv_span *s);
/* Scattered: of slots [0, kv_span_tokens), rising; NULL: kv_span_position + slot. Borrowed. */
const int32_t *kv_span_positions(const kv_span *s);
const base_key *kv_span_key(const kv_span *s);
uint64_t kv_span_bytes(const kv_span *s);   /* of its blocks, without those given back */

/* The data of one block (0..3) of one layer (NULL: given back), and of one head's keys and values inside a block. */
void *kv_span_block(const kv_span *s, int32_t layer, int32_t block);
static inline void *kv_block_keys(const kv_shape *shape, void *block, int32_t kv_head) {
    return (char *)block + (size_t)kv_head * kv_shape_key_bytes(shape);
}
static inline void *kv_block_values(const kv_shape *shape, void *block, int32_t kv_head) {
    return (char *)block + (size_t)shape->n_kv_heads * kv_shape_key_bytes(shape) +
           (size_t)kv_head * kv_shape_value_bytes(shape);
}

/* A span as one prompt sees it. Holds no reference by itself; a context does. */
typedef struct kv_view {
    kv_span *span;
    int32_t shift;                 /* positions that the span is moved by in this prompt */
    uint64_t mask[KV_SPAN_BLOCKS]; /* bit j of mask[b]: slot 64 b + j counts */
} kv_view;

/* The first n slots set. */
void kv_mask_first(uint64_t mask[KV_SPAN_BLOCKS], int32_t n);
/* Slots [begin, end) set, 0 <= begin. */
void kv_mask_range(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end);
/* Clears slots [begin, end), which may reach outside 0..256. */
void kv_mask_clear(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end);

/* Slots that are set. */
int32_t kv_mask_count(const uint64_t mask[KV_SPAN_BLOCKS]);

/* The slots of one block of a view that a token at position pos sees: those that count and stand at pos or before, and, if there is a
 * window, less than `window` before. */
uint64_t kv_view_visible(const kv_view *v, int32_t block, int32_t pos, int32_t window);

#endif
