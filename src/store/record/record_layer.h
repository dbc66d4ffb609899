/* SPDX-License-Identifier: Apache-2.0 */
/* record_layer.h: a layer of a record: its bytes in the file, before encryption.
 *
 *   a span           block 0 | block 1 | ...        the blocks that the layer kept, each as a piece: used slots only
 *   states           one piece, of a layer of the kind STATE: its state
 *   a reduced span   one piece, nothing if no head has a slot:
 *                    positions of head 0 | of head 1 | ... | head 0: cell 0 | cell 1 | ... | head 1: cell 0 | ...
 *
 * A cell is one head's keys, then its values, in 64 slots: stored as a block of one head (kv_block_pack). Positions are
 * numbers from form.first_pos on, of 2 bytes if all fit, else of 4, little-endian. Each piece is a message of an
 * encrypted record.
 *
 * Used by the writer, the reader, and their tests. No state; any thread.
 */
#ifndef STORE_RECORD_LAYER_H
#define STORE_RECORD_LAYER_H

#include "store/record/record_header.h"

/* Of a piece that is a block of a span that is not reduced. */
size_t record_block_bytes(const kv_shape *shape, const kv_span_form *form, int32_t layer, uint32_t version,
                          int32_t block);
/* Sizes of a layer's pieces. Returns their number. */
int record_layer_pieces(const kv_shape *shape, const kv_span_form *form, int32_t layer, uint32_t version,
                        size_t sizes[KV_SPAN_BLOCKS]);
/* Of a layer in the file: its pieces, encrypted or not. */
uint64_t record_layer_bytes(const kv_shape *shape, const kv_span_form *form, int32_t layer, uint32_t version,
                            bool is_encrypted);
/* Of the largest layer, before encryption. */
uint64_t record_most_layer_bytes(const kv_shape *shape, const kv_span_form *form, uint32_t version);

/* ---- layers of one piece ---- */

/* Has each layer of the span one piece, whatever it keeps: is it reduced, or of states? */
static inline bool record_is_single(const kv_span_form *form) { return form->slots || form->is_states; }
/* Space for a piece that is copied: its bytes and a cell. shape: of the record. */
size_t record_single_space(const kv_shape *shape, const kv_span_form *form);
/* Copies a layer of a reduced span, or of states, to out, which has record_single_space. Returns the number of
   bytes. */
size_t record_get_single(const kv_span *span, int32_t layer, uint8_t *out);
/* Are the positions of a layer of a reduced span ascending, and in [first_pos, end)? piece: its bytes. */
bool record_positions_are_valid(const kv_span_form *form, int32_t layer, const uint8_t *piece);
/* Copies a layer (of a reduced span: with valid positions) to a span that kv_span_restore made. piece: its bytes, in
 * record_single_space. */
void record_put_single(kv_span *span, int32_t layer, uint8_t *piece, size_t bytes);

#endif
