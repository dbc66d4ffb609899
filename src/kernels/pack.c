/* pack.c: rows of quantised weights side by side, and back (formats.h has the order). Owns no state; any thread. */
#include <assert.h>
#include <string.h>

#include "kernels/formats.h"

const format_traits *format_find(kernel_type t) {
    static const format_traits *const traits[KERNEL_TYPE_END] = {
#define X(NAME, name, ...) [KERNEL_##NAME] = &format_##name,
        FORMAT_TYPES(X)
#undef X
    };
    return traits[t];
}

int64_t kernel_packed_bytes(kernel_type t, int side, int64_t n_in, int64_t n_out) {
    int64_t rows = format_find(t) ? (n_out + side - 1) / side * side : n_out;
    return rows * kernel_row_bytes(t, n_in);
}

/* One row's block to its places among `side` blocks that begin at `to`; or back. */
static void pack_block(const format_traits *f, int side, int row, const uint8_t *block, uint8_t *to) {
    const int64_t rest = format_rest_bytes(f), before = f->quants_begin, n_quants = f->quants_end - f->quants_begin;
    uint8_t *own = to + row * rest, *quants = to + side * rest + 4 * row;
    memcpy(own, block, (size_t)before);
    memcpy(own + before, block + f->quants_end, (size_t)(rest - before));
    for (int64_t i = 0; i < n_quants; i += 4) memcpy(quants + i * side, block + before + i, 4);
}

static void unpack_block(const format_traits *f, int side, int row, const uint8_t *from, uint8_t *block) {
    const int64_t rest = format_rest_bytes(f), before = f->quants_begin, n_quants = f->quants_end - f->quants_begin;
    const uint8_t *own = from + row * rest, *quants = from + side * rest + 4 * row;
    memcpy(block, own, (size_t)before);
    memcpy(block + f->quants_end, own + before, (size_t)(rest - before));
    for (int64_t i = 0; i < n_quants; i += 4) memcpy(block + before + i, quants + i * side, 4);
}

void kernel_pack(kernel_type t, int side, const void *rows, int64_t n_in, int64_t n_out, void *packed) {
    const format_traits *f = format_find(t);
    const int64_t row_bytes = kernel_row_bytes(t, n_in), n_blocks = f ? row_bytes / f->block_bytes : 0;
    if (!f || side == 1) {
        memcpy(packed, rows, (size_t)(n_out * row_bytes));
        return;
    }
    for (int64_t o = 0; o < (n_out + side - 1) / side * side; o++) {
        static const uint8_t zeros[256] = {0};
        const uint8_t *row = (const uint8_t *)rows + o * row_bytes;
        uint8_t *group = (uint8_t *)packed + o / side * side * row_bytes;
        for (int64_t b = 0; b < n_blocks; b++)
            pack_block(f, side, (int)(o % side), o < n_out ? row + b * f->block_bytes : zeros, group + b * side * f->block_bytes);
    }
}

void kernel_packed_row(kernel_type t, int side, const void *packed, int64_t n_in, int64_t o, void *row) {
    const format_traits *f = format_find(t);
    const int64_t row_bytes = kernel_row_bytes(t, n_in), n_blocks = f ? row_bytes / f->block_bytes : 0;
    if (!f || side == 1) {
        memcpy(row, (const uint8_t *)packed + o * row_bytes, (size_t)row_bytes);
        return;
    }
    const uint8_t *group = (const uint8_t *)packed + o / side * side * row_bytes;
    for (int64_t b = 0; b < n_blocks; b++)
        unpack_block(f, side, (int)(o % side), group + b * side * f->block_bytes, (uint8_t *)row + b * f->block_bytes);
}
