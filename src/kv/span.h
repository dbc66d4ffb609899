/* SPDX-License-Identifier: Apache-2.0 */
/* span.h: spans, the immutable KV of up to 256 tokens, and views of them.
 *
 *   span   key, first position c, n tokens
 *     layer 0   [block 0][block 1][block 2][block 3]      slot j of block b: the token at position c + 64 b + j
 *     layer 1   [block 0][block 1][block 2][block 3]
 *     ...
 *
 * The blocks of a span in the pool's format are blocks of the pool. A span of another format is packed: each block of
 * the span is one cell (kv_layer.h) for each head, and cells, or their parts, fill blocks of the pool, layer by layer.
 * A span that grows begins each column of 64 tokens with a new block of the pool:
 *
 *   block 0   [layer 0: head 0][layer 0: head 1] ... | [layer 1: head 0] ...
 *
 * The blocks of a layer that is apart (kv_plan.h) take several blocks of the pool, which no other layer shares: they
 * are freed with the layer's window.
 *
 * A span of an encoded format is encoded from a complete one (kv_span_new_like, backend.h).
 *
 * A scattered span stores the position of each slot: recomputed tokens between views share its blocks instead of taking
 * a block each.
 *
 * A reduced span has some slots of a run of tokens, other ones in each head of each layer (slot_selection.h). Slot j of
 * a head is the j-th that the head keeps, with its position in the run; a head has up to 256 of them, and a run as many
 * reduced spans as its largest head needs. Blocks are compact: a head has one cell for each 64 slots that it keeps, and
 * cells fill blocks of the pool as those of packed spans do, head by head:
 *
 *   block 0   [layer 0: head 0: slots 0-63][layer 0: head 0: slots 64-127][layer 0: head 1: slots 0-63] ...
 *
 * Life: new (open, one reference, slots are appended) -> sealed (named by its key, immutable, any number of references)
 * -> freed with the last reference. Keys are stored rotated for their own position, R(c)k; for a view that moves the
 * span by `shift`, the query is rotated to m - shift and the keys stay unchanged.
 *
 * An open span belongs to one thread. Any thread may reference and read a sealed one.
 */
#ifndef KV_SPAN_H
#define KV_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "kv/block_pool.h"
#include "kv/slot_selection.h"

#define KV_SPAN_BLOCKS 4
#define KV_SPAN_TOKENS (KV_SPAN_BLOCKS * KV_BLOCK_SLOTS)

/* Blocks of the pool that 64 tokens of a span take in all layers. */
int32_t kv_column_blocks(const kv_pool *pool, rp_kv_format format);

typedef struct kv_span kv_span;

/* Creates an open, empty span with one reference; its first token will be at first_pos. RP_ERR_MEMORY. */
int kv_span_new(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err);
/* The same in another format, which the pool must take (kv_pool_takes). */
int kv_span_new_in(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, rp_error *err);
/* An unsealed span with the tokens, or the slots of each head, and the blocks of `from`, in another format. Its KV is
 * undefined until it is encoded. */
int kv_span_new_like(kv_span **out, const kv_span *from, rp_kv_format format, rp_error *err);
/* The same as kv_span_new_in, but scattered: its tokens may skip positions. It belongs to one context: never sealed,
   never trimmed. */
int kv_span_new_scattered(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, rp_error *err);
/* An unsealed reduced span: selected slots [256 i, 256 i + 256) of each head, i < kv_reduced_spans, copied byte by byte
 * from a run of n_from complete spans, all but the last of 256 tokens, in a format that is not encoded. The selection
 * is of the run's slots, and of blocks that the run has. RP_ERR_LIMIT (more than KV_REDUCED_MAX_HEADS heads),
 * RP_ERR_BUDGET, RP_ERR_MEMORY. */
int kv_span_reduce(kv_span **out, const kv_span *const *from, size_t n_from, const kv_selection *selection, int32_t i,
                   rp_error *err);
/* Spans that the selection's slots take: the parts of a reduced run. */
int32_t kv_reduced_spans(const kv_selection *selection);
/* A slot of a span that is neither encoded nor reduced. */
typedef struct kv_source {
    const kv_span *span;
    int32_t slot;
} kv_source;
/* The same as kv_span_reduce, of the slots of any spans of one format, open ones too: from[selection->n_slots], by
   rising position. */
int kv_span_collect(kv_span **out, const kv_source *from, const kv_selection *selection, int32_t i, rp_error *err);
/* Upper bound of the blocks of the pool that n_spans reduced spans with n_cells times 64 slots of a head take. */
int64_t kv_reduced_blocks(const kv_pool *pool, rp_kv_format format, int64_t n_cells, int64_t n_spans);
/* Parts of the run that a reduced span is a part of: kv_span_reduce sets them. 0: the span is not reduced. */
int32_t kv_span_parts(const kv_span *s);
/* A span of states: what the layers of the kind STATE hold after the token at pos - 1, without tokens. It is not a part
 * of a context: a backend continues from a copy. Its states are undefined until they are put; then it is sealed.
 * RP_ERR_BUDGET, RP_ERR_MEMORY. */
int kv_span_new_states(kv_span **out, kv_pool *pool, int32_t pos, rp_error *err);
bool kv_span_is_states(const kv_span *s);
int64_t kv_states_blocks(const kv_pool *pool); /* of the pool, that a span of states takes */
/* Copies the state of a layer, kv_layer_shape.state_bytes. put: of a span that is not sealed, or a layer that is still
   loading. */
void kv_span_get_state(const kv_span *s, int32_t layer, void *to);
void kv_span_put_state(kv_span *s, int32_t layer, const void *from);
kv_span *kv_span_ref(kv_span *s);
void kv_span_unref(kv_span *s); /* NULL is fine */
/* Returns true if the caller holds the only reference; no other thread reads the span then. */
bool kv_span_is_unshared(const kv_span *s);
/* Moves the blocks of a sealed span to a pool of the same shape, whose memory is the other one of the backend. Its
 * addresses change: no step and no writer may have a reference to it. RP_ERR_BUDGET, RP_ERR_MEMORY, RP_ERR_IO: it is
 * unchanged. */
int kv_span_move(kv_span *s, kv_pool *to, rp_error *err);
const kv_memory *kv_span_memory(const kv_span *s); /* that its blocks are in */
/* A number that no other span of the process has, and that changes with any address of its blocks; not if it gets more
 * of them. */
uint64_t kv_span_serial(const kv_span *s);

/* Takes a slot for one more token in every layer and returns it in *slot (0..255). The span must be open and not full.
 * RP_ERR_BUDGET (the pool's budget), RP_ERR_MEMORY: the span is unchanged. Not for encoded formats. */
int kv_span_append(kv_span *s, int32_t *slot, rp_error *err);
/* Scattered spans, after every append: sets the position of the last slot, which must be higher than all before. */
void kv_span_place(kv_span *s, int32_t pos);
/* Removes the last n tokens of an open span; their blocks stay for the tokens that replace them. */
void kv_span_truncate(kv_span *s, int32_t n);
/* Positions: [begin, end). */
typedef struct kv_positions {
    int32_t begin, end;
} kv_positions;

/* Returns true if a token at `from` or after it, or in one of the n_later ranges, sees any slot of the block at pos
 * through a window. */
bool kv_block_is_reached(int32_t pos, int32_t window, int32_t from, const kv_positions *later, size_t n_later);
/* Frees the blocks that no later token reaches: in layers with a window, blocks that neither a token at `from` or after
 * it nor one in the n_later ranges of positions before `from` sees. Positions are the span's own. The caller must hold
 * the only reference. The KV of freed blocks is lost: later views of the span are valid for readers at these positions
 * only, so the span's key must cover the kept blocks. Returns the number of freed blocks. */
int32_t kv_span_trim(kv_span *s, int32_t from, const kv_positions *later, size_t n_later);
/* Lowest valid position of a reader of the whole span, given its freed blocks; INT32_MIN if none was freed. */
int32_t kv_span_readable_from(const kv_span *s);
/* Sets the span's key and makes the span immutable. */
void kv_span_seal(kv_span *s, const base_key *key);

/* Description of a span without its blocks: enough to allocate blocks for KV that is loaded from a store. */
typedef struct kv_span_form {
    rp_kv_format format;
    int32_t first_pos, n_tokens, readable_from;
    /* [n_layers], borrowed: bit b: the layer, in a reduced span any head of it, has block b (the others were freed) */
    const uint8_t *kept;
    /* reduced spans, else slots is NULL; first_pos: the lowest position, n_tokens: slots of the head that has most */
    const uint16_t *slots; /* [n_layers][n_kv_heads], borrowed: slots of each head, at most KV_SPAN_TOKENS */
    int32_t n_kv_heads;
    int32_t end;     /* the highest position + 1 */
    int32_t n_parts; /* kv_span_parts */
    bool is_states;  /* no tokens: kv_span_new_states */
} kv_span_form;

/* Limits on reduced spans: heads of all layers together; parts of a run. */
#define KV_REDUCED_MAX_HEADS 65536
#define KV_REDUCED_MAX_PARTS (KV_SELECTION_MAX_SLOTS / KV_SPAN_TOKENS)

/* The form of a span. Its arrays are stored in `arrays`: kv_span_form_bytes, aligned for uint16_t. */
kv_span_form kv_span_describe(const kv_span *s, void *arrays);
size_t kv_span_form_bytes(const kv_span *s);
bool kv_span_has_form(const kv_span *s, const kv_span_form *form);
/* A copy of a form of n_layers, its arrays included, in the same way. */
kv_span_form kv_form_copy(const kv_span_form *form, int32_t n_layers, void *arrays);
size_t kv_form_bytes(const kv_span_form *form, int32_t n_layers);
/* Can a span of this shape, whatever its format (of states: in the shape's), have this form? */
bool kv_form_is_possible(const kv_span_form *form, const kv_shape *shape);
/* Blocks of the pool that a span of this form takes; 0: the pool does not take its format. The form may be
   impossible. */
int64_t kv_form_blocks(const kv_pool *pool, const kv_span_form *form);
/* Creates a sealed span with one reference and allocated, but empty blocks; key NULL: it is sealed when it is loaded.
 * It is loaded layer by layer, of a reduced span also the positions (kv_span_put_positions); no layer may be read
 * before kv_span_layers_ready includes it. RP_ERR_FORMAT (impossible form, or a format that does not fit the pool: no
 * block was taken), RP_ERR_BUDGET, RP_ERR_MEMORY. */
int kv_span_restore(kv_span **out, kv_pool *pool, const kv_span_form *form, const base_key *key, rp_error *err);
/* Called by the loading thread, before the layer is ready: the positions of a head's slots, [kv_span_slots], ascending,
 * from kv_span_position to before kv_span_end. */
void kv_span_put_positions(kv_span *s, int32_t layer, int32_t kv_head, const int32_t *positions);
/* Called by the loading thread: layers [0, n) are loaded. Wakes waiting threads. */
void kv_span_set_ready(kv_span *s, int32_t n);
/* Marks the load as failed. All layers become ready, so that no thread waits; their contents are undefined. */
void kv_span_set_failed(kv_span *s);
/* Number of layers, from layer 0, that may be read; all for a computed span. Any thread. */
int32_t kv_span_layers_ready(const kv_span *s);
bool kv_span_has_failed(const kv_span *s);
/* Waits until layers [0, n) are ready. */
void kv_span_wait(const kv_span *s, int32_t n);
/* Bit b: the layer, in a reduced span any head of it, has block b. */
uint8_t kv_span_kept(const kv_span *s, int32_t layer);

rp_kv_format kv_span_format(const kv_span *s);                  /* layers may be in f16: kv_span_layer_format */
const kv_shape *kv_span_shape(const kv_span *s);                /* in its format */
const kv_layer *kv_span_layer(const kv_span *s, int32_t layer); /* its row; borrowed from the pool */
bool kv_span_is_sealed(const kv_span *s);
int32_t kv_span_tokens(const kv_span *s);   /* reduced: slots of the head that has most */
int32_t kv_span_position(const kv_span *s); /* of slot 0; reduced: the lowest of a slot */
int32_t kv_span_end(const kv_span *s);      /* last position + 1 */
bool kv_span_is_scattered(const kv_span *s);
bool kv_span_is_reduced(const kv_span *s);
/* Number of slots of a head: kv_span_tokens, unless the span is reduced. */
int32_t kv_span_slots(const kv_span *s, int32_t layer, int32_t kv_head);
/* Scattered or reduced: positions of a head's slots, ascending; NULL: kv_span_position + slot. Borrowed. */
const int32_t *kv_span_positions(const kv_span *s, int32_t layer, int32_t kv_head);
/* Position of a slot; not of reduced spans. */
int32_t kv_span_slot_position(const kv_span *s, int32_t slot);
const base_key *kv_span_key(const kv_span *s);
uint64_t kv_span_bytes(const kv_span *s); /* of its blocks, without freed ones */

/* The format of a layer's KV: kv_shape_layer_format. */
rp_kv_format kv_span_layer_format(const kv_span *s, int32_t layer);
/* Returns true if a block (0..3) of a layer was not freed. Not for reduced spans: kv_span_slots. */
bool kv_span_has(const kv_span *s, int32_t layer, int32_t block);
/* One head's keys or values in a block that the span has: for backends. */
kv_address kv_span_keys(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head);
kv_address kv_span_values(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head);
/* Copies a head's keys, then its values, from or to a block that the span has. */
void kv_span_get_cell(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, void *to);
void kv_span_put_cell(kv_span *s, int32_t layer, int32_t block, int32_t kv_head, const void *from);
/* Copies a block of a layer in any format from, or to, the order of a block of its format: keys of all heads, then
 * values. Not for reduced spans. */
void kv_span_get_block(const kv_span *s, int32_t layer, int32_t block, void *to);
void kv_span_put_block(kv_span *s, int32_t layer, int32_t block, const void *from);
/* Is the span of the pool's format, and not reduced? */
bool kv_span_has_pool_format(const kv_span *s);
/* Can files be read and written in place? If each block of a layer is one block of the pool, in this order, and the
   host reaches it. */
bool kv_span_is_in_place(const kv_span *s, int32_t layer);
void *kv_span_in_place(const kv_span *s, int32_t layer, int32_t block); /* a block that the span has */

#endif
