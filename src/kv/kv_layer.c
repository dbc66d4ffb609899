/* SPDX-License-Identifier: Apache-2.0 */
/* kv_layer.c: see kv_layer.h. */
#include "kv/kv_layer.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/kernels.h"

/* ---- sizes ---- */

/* Of one head's keys or values. */
static size_t side_bytes(kv_element e, bool is_key, int32_t dim) {
    if (e == KV_ELEMENT_INT8) return (size_t)kernel_int8_bytes(dim);
    if (kv_element_is_encoded(e))
        return (size_t)(is_key ? kernel_bits_key_bytes : kernel_bits_value_bytes)(kv_element_bits(e), dim);
    return (size_t)KV_BLOCK_SLOTS * (size_t)dim * (size_t)kv_element_bits(e) / 8;
}

kv_layer kv_layer_make(const kv_layer_shape *shape, rp_kv_format format) {
    kv_layer l = {.kind = shape->kind, .format = format, .window = shape->window};
    if (shape->kind == KV_STATE) return l;
    BASE_ASSERT(shape->kind == KV_PAIRS ||
                (shape->n_heads == 1 && shape->value_dim <= shape->key_dim)); /* values are a view of keys */
    l.n_heads = shape->n_heads;
    l.key_dim = shape->key_dim;
    l.value_dim = shape->value_dim;
    l.key_bytes = side_bytes(kv_format_keys(format), true, shape->key_dim);
    if (shape->kind == KV_PAIRS) l.value_bytes = side_bytes(kv_format_values(format), false, shape->value_dim);
    if (shape->kind == KV_PAIRS) l.cell_values_at = l.key_bytes;
    else l.cell_values_at = side_bytes(kv_format_keys(format), true, shape->key_dim - shape->value_dim);
    l.cell_bytes = l.key_bytes + l.value_bytes;
    l.block_bytes = (size_t)shape->n_heads * l.cell_bytes;
    return l;
}

kv_layer kv_layer_cell(const kv_layer *l) {
    kv_layer one = *l;
    one.n_heads = 1;
    one.block_bytes = one.cell_bytes;
    return one;
}

bool kv_layer_is_supported(const kv_layer *l) {
    if (!kv_format_is_int(l->format) || l->kind == KV_STATE) return true;
    return l->kind == KV_PAIRS && l->key_dim % 2 == 0 && l->value_dim % 2 == 0 && l->key_dim <= KV_INT_MAX_DIM;
}

/* ---- slots of a block ---- */

/* One head's keys or values as rows of 64 slots of `unit` bytes; the codes of int8 values, of pairs of slots, are
   apart. */
typedef struct slot_rows {
    size_t n_rows, unit, first; /* first: offset of the rows in the head */
    int32_t paired_dim;         /* > 0: int8 values */
} slot_rows;

static slot_rows rows_of(const kv_layer *l, bool is_key) {
    const int32_t dim = is_key ? l->key_dim : l->value_dim;
    const kv_element e = kv_format_side(l->format, is_key);
    const size_t element = (size_t)kv_element_bits(e) / 8;
    if (!is_key && l->value_bytes == 0) return (slot_rows){0, 0, 0, 0}; /* LATENT */
    if (kv_element_is_encoded(e)) return (slot_rows){0, 0, 0, 0};       /* bits of unused slots are 0
                                                                           (kernel_encode_keys) */
    if (e == KV_ELEMENT_INT8 && is_key) return (slot_rows){(size_t)dim / 2 + 1, 2, 0, 0};
    if (e == KV_ELEMENT_INT8) return (slot_rows){1, 2, (size_t)dim * KV_BLOCK_SLOTS, dim};
    return is_key ? (slot_rows){(size_t)dim, element, 0, 0} : (slot_rows){1, element * (size_t)dim, 0, 0};
}

static void clear_rows(const slot_rows *r, uint8_t *head, int from) {
    for (size_t i = 0; i < r->n_rows; i++) {
        uint8_t *row = head + r->first + i * r->unit * KV_BLOCK_SLOTS;
        memset(row + r->unit * (size_t)from, 0, r->unit * (size_t)(KV_BLOCK_SLOTS - from));
    }
    for (int slot = from; r->paired_dim > 0 && slot < KV_BLOCK_SLOTS; slot++)
        for (int32_t d = 0; d < r->paired_dim; d++) head[(slot / 2 * r->paired_dim + d) * 2 + slot % 2] = 0;
}

static bool same_rows(const slot_rows *r, const uint8_t *a, int slot_a, const uint8_t *b, int slot_b) {
    for (size_t i = 0; i < r->n_rows; i++) {
        const size_t row = r->first + i * r->unit * KV_BLOCK_SLOTS;
        if (memcmp(a + row + r->unit * (size_t)slot_a, b + row + r->unit * (size_t)slot_b, r->unit) != 0) return false;
    }
    for (int32_t d = 0; d < r->paired_dim; d++)
        if (a[(slot_a / 2 * r->paired_dim + d) * 2 + slot_a % 2] !=
            b[(slot_b / 2 * r->paired_dim + d) * 2 + slot_b % 2])
            return false;
    return true;
}

/* Of a slot in the codes of int8 values. */
static size_t paired_at(const slot_rows *r, int slot) { return (size_t)(slot / 2 * r->paired_dim * 2 + slot % 2); }

size_t kv_slot_copies(const kv_layer *l, bool is_key, kv_address from, int slot_from, kv_address to, int slot_to,
                      kv_row_copy *out) {
    const slot_rows r = rows_of(l, is_key);
    BASE_ASSERT(!kv_element_is_encoded(kv_format_side(l->format, is_key)));
    BASE_DCHECK(slot_from >= 0 && slot_from < KV_BLOCK_SLOTS && slot_to >= 0 && slot_to < KV_BLOCK_SLOTS);
    size_t n = 0;
    if (r.n_rows > 0)
        out[n++] = (kv_row_copy){.from = kv_address_plus(from, r.first + r.unit * (size_t)slot_from),
                                 .to = kv_address_plus(to, r.first + r.unit * (size_t)slot_to),
                                 .row_bytes = (uint32_t)r.unit,
                                 .stride = (uint32_t)r.unit * KV_BLOCK_SLOTS,
                                 .n_rows = (uint32_t)r.n_rows};
    if (r.paired_dim > 0)
        out[n++] = (kv_row_copy){.from = kv_address_plus(from, paired_at(&r, slot_from)),
                                 .to = kv_address_plus(to, paired_at(&r, slot_to)),
                                 .row_bytes = 1,
                                 .stride = 2,
                                 .n_rows = (uint32_t)r.paired_dim};
    return n;
}

void kv_block_clear_slots(const kv_layer *l, void *block, int from) {
    const slot_rows keys = rows_of(l, true), values = rows_of(l, false);
    uint8_t *at = block;
    BASE_ASSERT(from >= 0 && from <= KV_BLOCK_SLOTS);
    for (int32_t h = 0; h < l->n_heads; h++, at += l->key_bytes) clear_rows(&keys, at, from);
    for (int32_t h = 0; h < l->n_heads; h++, at += l->value_bytes) clear_rows(&values, at, from);
}

bool kv_block_same_slot(const kv_layer *l, const void *a, int slot_a, const void *b, int slot_b) {
    const slot_rows keys = rows_of(l, true), values = rows_of(l, false);
    size_t at = 0;
    bool same = true;
    BASE_ASSERT(!kv_format_is_encoded(l->format));
    for (int32_t h = 0; h < l->n_heads && same; h++, at += l->key_bytes)
        same = same_rows(&keys, (const uint8_t *)a + at, slot_a, (const uint8_t *)b + at, slot_b);
    at = (size_t)l->n_heads * l->key_bytes;
    for (int32_t h = 0; h < l->n_heads && same; h++, at += l->value_bytes)
        same = same_rows(&values, (const uint8_t *)a + at, slot_a, (const uint8_t *)b + at, slot_b);
    return same;
}

/* ---- used slots ---- */

/* Rows of bytes, of which the first ones belong to used slots. */
typedef struct used_rows {
    size_t n_rows, row_bytes, used_bytes;
} used_rows;

#define MAX_USED_ROWS 3

/* Those of one head's keys or values, in their order, with n used slots. Returns their number. */
static int used_rows_of(const kv_layer *l, bool is_key, int n, used_rows out[MAX_USED_ROWS]) {
    const size_t dim = (size_t)(is_key ? l->key_dim : l->value_dim), used = (size_t)n, pairs = (used + 1) / 2;
    const kv_element e = kv_format_side(l->format, is_key);
    if (!is_key && l->value_bytes == 0) return 0; /* LATENT */
    const int bits = kv_element_bits(e);
    const size_t element = (size_t)bits / 8;
    const used_rows scales = {1, 2 * KV_BLOCK_SLOTS, 2 * used}, zero_points = {1, KV_BLOCK_SLOTS, used},
                    ranges = {1, 4 * dim, 4 * dim};
    if (!kv_element_is_int(e)) {
        out[0] = is_key ? (used_rows){dim, KV_BLOCK_SLOTS * element, used * element}
                        : (used_rows){1, KV_BLOCK_SLOTS * dim * element, used * dim * element};
        return 1;
    }
    if (bits == 8) {
        out[0] = is_key ? (used_rows){dim / 2, 2 * KV_BLOCK_SLOTS, 2 * used}
                        : (used_rows){1, KV_BLOCK_SLOTS * dim, pairs * 2 * dim};
        out[1] = scales;
        return 2;
    }
    if (is_key) {
        const size_t row =
            bits == 4 ? KV_BLOCK_SLOTS : KV_BLOCK_SLOTS / 2; /* 2 bits: a byte holds slots j and j + 32 */
        out[0] = (used_rows){dim / 2, row, BASE_MIN(used, row)};
        out[1] = ranges;
        return 2;
    }
    const size_t rows =
        bits == 4 ? KV_BLOCK_SLOTS / 2 : KV_BLOCK_SLOTS / 4; /* 2 bits: slots 2 i, 2 i + 1, and 32 after them */
    out[0] = (used_rows){1, rows * dim, BASE_MIN(pairs, rows) * dim};
    out[1] = scales;
    out[2] = zero_points;
    return 3;
}

static size_t used_bytes_of(const kv_layer *l, bool is_key, int n) {
    used_rows rows[MAX_USED_ROWS];
    size_t bytes = 0;
    const int n_parts = used_rows_of(l, is_key, n, rows);
    for (int i = 0; i < n_parts; i++) bytes += rows[i].n_rows * rows[i].used_bytes;
    return bytes;
}

size_t kv_block_used_bytes(const kv_layer *l, int n) {
    BASE_ASSERT(n >= 1 && n <= KV_BLOCK_SLOTS);
    return (size_t)l->n_heads * (used_bytes_of(l, true, n) + used_bytes_of(l, false, n));
}

size_t kv_block_pack(const kv_layer *l, void *block, int n) {
    const uint8_t *from = block;
    uint8_t *to = block;
    used_rows rows[MAX_USED_ROWS];
    for (int is_key = 1; is_key >= 0; is_key--) {
        const int n_parts = used_rows_of(l, is_key, n, rows);
        for (int32_t i = 0; i < l->n_heads * n_parts; i++) {
            const used_rows *r = &rows[i % n_parts];
            for (size_t row = 0; row < r->n_rows; row++, from += r->row_bytes, to += r->used_bytes)
                memmove(to, from, r->used_bytes);
        }
    }
    BASE_DCHECK(to == (uint8_t *)block + kv_block_used_bytes(l, n));
    return (size_t)(to - (uint8_t *)block);
}

void kv_block_unpack(const kv_layer *l, void *block, int n) {
    const uint8_t *from = (const uint8_t *)block + kv_block_used_bytes(l, n);
    uint8_t *to = (uint8_t *)block + l->block_bytes;
    used_rows rows[MAX_USED_ROWS];
    for (int is_key = 0; is_key < 2; is_key++) { /* from the end: no row overwrites one that is still to be moved */
        const int n_parts = used_rows_of(l, is_key, n, rows);
        for (int32_t i = l->n_heads * n_parts; i-- > 0;) {
            const used_rows *r = &rows[i % n_parts];
            for (size_t row = 0; row < r->n_rows; row++) {
                from -= r->used_bytes;
                to -= r->row_bytes;
                memmove(to, from, r->used_bytes);
                memset(to + r->used_bytes, 0, r->row_bytes - r->used_bytes);
            }
        }
    }
    BASE_DCHECK(from == block && to == block);
}
