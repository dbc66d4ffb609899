/* SPDX-License-Identifier: Apache-2.0 */
/* record_layer.c: see record_layer.h. */
#include "store/record/record_layer.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

/* ---- sizes ---- */

size_t record_block_bytes(const kv_shape *shape, const kv_span_form *form, int32_t layer, uint32_t version,
                          int32_t block) {
    const kv_layer l = kv_shape_layer(shape, layer);
    const int32_t used = form->n_tokens - block * KV_BLOCK_SLOTS;
    BASE_ASSERT(layer >= 0 && layer < shape->n_layers && block < KV_SPAN_BLOCKS && used > 0 && !form->slots);
    return version == 1 || used >= KV_BLOCK_SLOTS ? l.block_bytes : kv_block_used_bytes(&l, used);
}

static int32_t slots_of(const kv_span_form *form, int32_t layer, int32_t head) {
    return form->slots[(int64_t)layer * form->n_kv_heads + head];
}
static size_t position_bytes(int32_t first_pos, int32_t end) { return end - first_pos <= 1 << 16 ? 2 : 4; }

/* Of a reduced span's layer. */
static uint64_t reduced_bytes(const kv_shape *shape, const kv_span_form *form, int32_t layer) {
    BASE_ASSERT(layer >= 0 && layer < shape->n_layers && form->end > form->first_pos);
    const kv_layer l = kv_shape_layer(shape, layer), one = kv_layer_cell(&l);
    uint64_t bytes = 0;
    for (int32_t h = 0; h < form->n_kv_heads; h++) {
        const int32_t n = slots_of(form, layer, h), rest = n % KV_BLOCK_SLOTS;
        bytes +=
            (uint64_t)n * position_bytes(form->first_pos, form->end) + (uint64_t)(n / KV_BLOCK_SLOTS) * one.cell_bytes;
        if (rest > 0) bytes += kv_block_used_bytes(&one, rest);
    }
    return bytes;
}

int record_layer_pieces(const kv_shape *shape, const kv_span_form *form, int32_t layer, uint32_t version,
                        size_t sizes[KV_SPAN_BLOCKS]) {
    int n = 0;
    if (record_is_single(form)) {
        sizes[0] = form->slots ? (size_t)reduced_bytes(shape, form, layer) : shape->layers[layer].state_bytes;
        return sizes[0] > 0;
    }
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++)
        if (form->kept[layer] >> b & 1) sizes[n++] = record_block_bytes(shape, form, layer, version, b);
    BASE_ASSERT(n <= BASE_DIV_UP(form->n_tokens, KV_BLOCK_SLOTS));
    return n;
}

uint64_t record_layer_bytes(const kv_shape *shape, const kv_span_form *form, int32_t layer, uint32_t version,
                            bool is_encrypted) {
    size_t sizes[KV_SPAN_BLOCKS];
    const int n = record_layer_pieces(shape, form, layer, version, sizes);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += sizes[i] + (is_encrypted ? RECORD_MESSAGE_EXTRA : 0);
    return bytes;
}

uint64_t record_most_layer_bytes(const kv_shape *shape, const kv_span_form *form, uint32_t version) {
    uint64_t most = 0;
    for (int32_t i = 0; i < shape->n_layers; i++)
        most = BASE_MAX(most, record_layer_bytes(shape, form, i, version, false));
    return most;
}

/* ---- layers of one piece ---- */

size_t record_single_space(const kv_shape *shape, const kv_span_form *form) {
    size_t cell = 0;
    for (int32_t i = 0; i < shape->n_layers; i++) cell = BASE_MAX(cell, kv_shape_layer(shape, i).cell_bytes);
    return (size_t)record_most_layer_bytes(shape, form, RECORD_FILE_VERSION) + cell;
}

static uint8_t *put_position(uint8_t *out, uint32_t v, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
    return out + n;
}

static uint32_t get_position(const uint8_t *in, size_t n) {
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint32_t)in[i] << (8 * i);
    return v;
}

/* The used slots of a cell. out has space for all of its slots. */
static uint8_t *get_cell(const kv_span *span, int32_t layer, int32_t block, int32_t head, int32_t n_used,
                         uint8_t *out) {
    const kv_layer one = kv_layer_cell(kv_span_layer(span, layer));
    kv_span_get_cell(span, layer, block, head, out);
    if (n_used >= KV_BLOCK_SLOTS) return out + one.cell_bytes;
    kv_block_clear_slots(&one, out, n_used);
    return out + kv_block_pack(&one, out, n_used);
}

/* cell: scratch memory of a cell. */
static const uint8_t *put_cell(kv_span *span, int32_t layer, int32_t block, int32_t head, int32_t n_used,
                               const uint8_t *in, uint8_t *cell) {
    const kv_layer one = kv_layer_cell(kv_span_layer(span, layer));
    const size_t bytes = n_used >= KV_BLOCK_SLOTS ? one.cell_bytes : kv_block_used_bytes(&one, n_used);
    memcpy(cell, in, bytes);
    if (n_used < KV_BLOCK_SLOTS) kv_block_unpack(&one, cell, n_used);
    kv_span_put_cell(span, layer, block, head, cell);
    return in + bytes;
}

static size_t get_reduced(const kv_span *span, int32_t layer, uint8_t *out) {
    const int32_t n_heads = kv_shape_heads(kv_span_shape(span)), first_pos = kv_span_position(span);
    const size_t n_bytes = position_bytes(first_pos, kv_span_end(span));
    BASE_ASSERT(kv_span_is_reduced(span));
    uint8_t *at = out;
    for (int32_t h = 0; h < n_heads; h++)
        for (int32_t i = 0; i < kv_span_slots(span, layer, h); i++)
            at = put_position(at, (uint32_t)(kv_span_positions(span, layer, h)[i] - first_pos), n_bytes);
    for (int32_t h = 0; h < n_heads; h++)
        for (int32_t b = 0, n = kv_span_slots(span, layer, h); b * KV_BLOCK_SLOTS < n; b++)
            at = get_cell(span, layer, b, h, n - b * KV_BLOCK_SLOTS, at);
    return (size_t)(at - out);
}

bool record_positions_are_valid(const kv_span_form *form, int32_t layer, const uint8_t *piece) {
    const size_t n_bytes = position_bytes(form->first_pos, form->end);
    BASE_ASSERT(form->slots);
    for (int32_t h = 0; h < form->n_kv_heads; h++) {
        int64_t last = -1;
        for (int32_t i = 0; i < slots_of(form, layer, h); i++, piece += n_bytes) {
            const int64_t position = get_position(piece, n_bytes);
            if (position <= last || position >= form->end - form->first_pos) return false;
            last = position;
        }
    }
    return true;
}

static void put_reduced(kv_span *span, int32_t layer, uint8_t *piece, size_t bytes) {
    const int32_t n_heads = kv_shape_heads(kv_span_shape(span)), first_pos = kv_span_position(span);
    const size_t n_bytes = position_bytes(first_pos, kv_span_end(span));
    const uint8_t *at = piece;
    int32_t positions[KV_SPAN_TOKENS];
    for (int32_t h = 0; h < n_heads; h++) {
        for (int32_t i = 0; i < kv_span_slots(span, layer, h); i++, at += n_bytes)
            positions[i] = first_pos + (int32_t)get_position(at, n_bytes);
        kv_span_put_positions(span, layer, h, positions);
    }
    for (int32_t h = 0; h < n_heads; h++)
        for (int32_t b = 0, n = kv_span_slots(span, layer, h); b * KV_BLOCK_SLOTS < n; b++)
            at = put_cell(span, layer, b, h, n - b * KV_BLOCK_SLOTS, at, piece + bytes);
    BASE_ASSERT(at == piece + bytes); /* all of it, and no more */
}

size_t record_get_single(const kv_span *span, int32_t layer, uint8_t *out) {
    if (!kv_span_is_states(span)) return get_reduced(span, layer, out);
    const size_t bytes = kv_span_shape(span)->layers[layer].state_bytes;
    if (bytes > 0) kv_span_get_state(span, layer, out);
    return bytes;
}

void record_put_single(kv_span *span, int32_t layer, uint8_t *piece, size_t bytes) {
    if (!kv_span_is_states(span)) put_reduced(span, layer, piece, bytes);
    else kv_span_put_state(span, layer, piece);
}
