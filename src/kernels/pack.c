/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c: packs rows of weights and unpacks them (formats.h has the order). Owns no state; any thread. */
#include <string.h>

#include "base/check.h"
#include "kernels/formats.h"

const format_traits *format_find(kernel_type t) {
    static const format_traits *const traits[KERNEL_TYPE_END] = {
#define X(NAME, name, ...) [KERNEL_##NAME] = &format_##name,
        FORMAT_TYPES(X)
#undef X
    };
    BASE_DCHECK((unsigned)t < KERNEL_TYPE_END);
    return traits[t];
}

int64_t kernel_packed_bytes(kernel_type t, int side, int64_t n_in, int64_t n_out) {
    BASE_DCHECK(side >= 1 && n_in >= 0 && n_out >= 0);
    return (n_out + side - 1) / side * side * kernel_row_bytes(t, n_in);
}

/* Copies the bytes of one row to their offsets among `side` interleaved rows, and back. */
static void spread(const uint8_t *bytes, int64_t n, int side, int row, uint8_t *to) {
    BASE_DCHECK(row >= 0 && row < side);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) memcpy(to + i * side + 4 * row, bytes + i, 4);
    for (int64_t unit = 2; unit >= 1; unit--) {
        if (i + unit > n) continue;
        memcpy(to + i * side + unit * row, bytes + i, (size_t)unit);
        i += unit;
    }
}

static void collect(const uint8_t *from, int64_t n, int side, int row, uint8_t *bytes) {
    BASE_DCHECK(row >= 0 && row < side);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) memcpy(bytes + i, from + i * side + 4 * row, 4);
    for (int64_t unit = 2; unit >= 1; unit--) {
        if (i + unit > n) continue;
        memcpy(bytes + i, from + i * side + unit * row, (size_t)unit);
        i += unit;
    }
}

#define MAX_REST 32 /* bytes of a block that are not q: 20 at most */

static void pack_block(const format_traits *f, int side, int row, const uint8_t *block, uint8_t *to) {
    const int64_t rest = format_rest_bytes(f);
    uint8_t bytes[MAX_REST];
    BASE_DCHECK(rest <= MAX_REST);
    memcpy(bytes, block, (size_t)f->quants_begin);
    memcpy(bytes + f->quants_begin, block + f->quants_end, (size_t)(rest - f->quants_begin));
    spread(bytes, rest, side, row, to);
    spread(block + f->quants_begin, f->quants_end - f->quants_begin, side, row, to + side * rest);
}

static void unpack_block(const format_traits *f, int side, int row, const uint8_t *from, uint8_t *block) {
    const int64_t rest = format_rest_bytes(f);
    uint8_t bytes[MAX_REST];
    BASE_DCHECK(rest <= MAX_REST);
    collect(from, rest, side, row, bytes);
    memcpy(block, bytes, (size_t)f->quants_begin);
    memcpy(block + f->quants_end, bytes + f->quants_begin, (size_t)(rest - f->quants_begin));
    collect(from + side * rest, f->quants_end - f->quants_begin, side, row, block + f->quants_begin);
}

/* Rows of plain elements, `n` of them; the others are zeros. */
static void pack_elements(int64_t bytes, int side, const uint8_t *rows, int64_t n_in, int64_t n, uint8_t *group) {
    BASE_DCHECK((bytes == 2 || bytes == 4) && n > 0 && n <= side);
    for (int64_t k = 0; k < n_in; k++) {
        uint8_t *to = group + k * side * bytes;
        for (int64_t row = 0; row < n; row++) {
            const uint8_t *from = rows + (row * n_in + k) * bytes;
            if (bytes == 2) memcpy(to + 2 * row, from, 2);
            else memcpy(to + 4 * row, from, 4);
        }
        memset(to + n * bytes, 0, (size_t)((side - n) * bytes));
    }
}

static void pack_blocks(const format_traits *f, int side, const uint8_t *rows, int64_t n_blocks, int64_t n,
                        uint8_t *group) {
    static const uint8_t zeros[256] = {0};
    BASE_DCHECK(f->block_bytes <= (int64_t)sizeof(zeros) && n > 0 && n <= side);
    for (int64_t b = 0; b < n_blocks; b++)
        for (int row = 0; row < side; row++)
            pack_block(f, side, row, row < n ? rows + (row * n_blocks + b) * f->block_bytes : zeros,
                       group + b * side * f->block_bytes);
}

void kernel_pack(kernel_type t, int side, const void *rows, int64_t n_in, int64_t n_out, void *packed) {
    const format_traits *f = format_find(t);
    const int64_t row_bytes = kernel_row_bytes(t, n_in);
    BASE_DCHECK(side >= 1 && n_in % kernel_type_block(t) == 0);
    if (side == 1) {
        memcpy(packed, rows, (size_t)(n_out * row_bytes));
        return;
    }
    for (int64_t o = 0; o < n_out; o += side) {
        const uint8_t *from = (const uint8_t *)rows + o * row_bytes;
        uint8_t *group = (uint8_t *)packed + o * row_bytes;
        const int64_t n = n_out - o < side ? n_out - o : side;
        if (f) pack_blocks(f, side, from, n_in / kernel_type_block(t), n, group);
        else pack_elements(kernel_type_bytes(t), side, from, n_in, n, group);
    }
}

void kernel_packed_row(kernel_type t, int side, const void *packed, int64_t n_in, int64_t o, void *row) {
    const format_traits *f = format_find(t);
    const int64_t row_bytes = kernel_row_bytes(t, n_in), bytes = kernel_type_bytes(t);
    BASE_DCHECK(side >= 1 && o >= 0 && n_in % kernel_type_block(t) == 0);
    const uint8_t *group = (const uint8_t *)packed + o / side * side * row_bytes;
    for (int64_t b = 0; b < n_in / kernel_type_block(t); b++) {
        if (f && side > 1) unpack_block(f, side, (int)(o % side), group + b * side * bytes, (uint8_t *)row + b * bytes);
        else memcpy((uint8_t *)row + b * bytes, group + (b * side + o % side) * bytes, (size_t)bytes);
    }
}
