/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_amx.c: products of quantized weights with AMX, for more than KERNEL_FEW_ROWS rows; fewer are avx512's.
 *
 * A tile has up to 16 rows of 64 bytes. One instruction adds the products of 16 rows of activations (A) and 16 outputs
 * (B) over the 32 or 16 inputs with one scale, exactly, in 32 bits:
 *
 *     A  16 rows x 32 inputs         straight from the quantized activations
 *     B  8 x (16 outputs x 4 inputs) a piece of a panel, as it is: lane o of vector g has inputs 4g .. 4g+3 of output o
 *     C  16 rows x 16 outputs        stored, then scaled and added in vectors, in the order of every set
 *
 * Both factors are signed, so that no format needs a correction. The last tile has the remaining rows alone.
 *
 * The system must have given the process leave to use the tiles (base_cpu_has). Their state is set and released in each
 * call. */
#include "base/check.h"
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/x86.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) {
    (void)f;
    return 0;
}

#include "kernels/lanes/lanes_formats.inc"

#define TILE_ROWS 16

static BASE_ALWAYS_INLINE void lanes_arrange(lanes_bytes q[8]) { (void)q; }

/* The sums were stored by add_tile: q[p]: of the first row, in group p; those of another scale are TILE_ROWS after
   it. */
static BASE_ALWAYS_INLINE void lanes_sums(const format_traits *f, int n_rows, int n_groups,
                                          const lanes_bytes *const q[2], const uint8_t *x, const uint8_t *c,
                                          int64_t x_stride, int k, lanes_ints *sum) {
    (void)f, (void)x, (void)c, (void)x_stride;
    BASE_UNROLL
    for (int i = 0; i < n_rows * n_groups; i++) sum[i] = q[i % n_groups][TILE_ROWS * k + i / n_groups];
}

#include "kernels/lanes/lanes_quant_pieces.inc"

/* ---- tiles ---- */

/* Numbers of tiles; constants of instructions. SUMS and WEIGHTS: of either group. REST: of the remaining rows. */
#define ROWS 0
#define SUMS_0 1
#define SUMS_1 2
#define REST_ROWS 3
#define REST_SUMS_0 4
#define REST_SUMS_1 5
#define WEIGHTS_0 6
#define WEIGHTS_1 7

/* gcc 12 does not know what memory the functions of tiles read: what was written through p must be there before the
   next one. */
static BASE_ALWAYS_INLINE void finish_writes(const void *p) { __asm__ volatile(""
                                                                               :
                                                                               : "r"(p)
                                                                               : "memory"); }

/* The operand of LDTILECFG (Intel SDM, volume 2A). */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* n_rest: remaining rows; 0: none. */
static void configure_tiles(const format_traits *f, int64_t n_rest) {
    BASE_DCHECK(n_rest >= 0 && n_rest < TILE_ROWS);
    const uint16_t inputs = (uint16_t)(32 / f->n_scales); /* of one scale */
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = 4 * LANES, c.rows[i] = TILE_ROWS;
    c.row_bytes[ROWS] = c.row_bytes[REST_ROWS] = inputs;
    c.rows[WEIGHTS_0] = c.rows[WEIGHTS_1] = (uint8_t)(inputs / 4);
    if (n_rest > 0) c.rows[REST_ROWS] = c.rows[REST_SUMS_0] = c.rows[REST_SUMS_1] = (uint8_t)n_rest;
    finish_writes(&c);
    _tile_loadconfig(&c);
}

/* Exact sums over the inputs of one scale: sums[p]: [rows], x: of the first row; w: of each group. */
static BASE_ALWAYS_INLINE void add_products(const uint8_t *x, int64_t x_stride, const lanes_bytes *const w[2],
                                            lanes_ints *const sums[2], bool is_rest) {
    finish_writes(w[0]);
    finish_writes(w[1]);
    _tile_loadd(WEIGHTS_0, w[0], 4 * LANES);
    _tile_loadd(WEIGHTS_1, w[1], 4 * LANES);
    if (is_rest) {
        _tile_loadd(REST_ROWS, x, x_stride);
        _tile_zero(REST_SUMS_0);
        _tile_zero(REST_SUMS_1);
        _tile_dpbssd(REST_SUMS_0, REST_ROWS, WEIGHTS_0);
        _tile_dpbssd(REST_SUMS_1, REST_ROWS, WEIGHTS_1);
        _tile_stored(REST_SUMS_0, sums[0], 4 * LANES);
        _tile_stored(REST_SUMS_1, sums[1], 4 * LANES);
        return;
    }
    _tile_loadd(ROWS, x, x_stride);
    _tile_zero(SUMS_0);
    _tile_zero(SUMS_1);
    _tile_dpbssd(SUMS_0, ROWS, WEIGHTS_0);
    _tile_dpbssd(SUMS_1, ROWS, WEIGHTS_1);
    _tile_stored(SUMS_0, sums[0], 4 * LANES);
    _tile_stored(SUMS_1, sums[1], 4 * LANES);
}

/* Adds piece i of the panels, piece `piece` of the inputs, to n_rows rows from `row` of the tile on. n_rows is a
 * constant at each call. acc: [TILE_ROWS][2] */
static BASE_ALWAYS_INLINE void scale_rows(const format_traits *f, const quant_panel *const p[2], const quant_rows *t,
                                          const uint8_t *x, int64_t i, int64_t piece, int64_t row, int n_rows,
                                          lanes_ints sums[2][2 * TILE_ROWS], lanes_floats *acc) {
    BASE_DCHECK(row >= 0 && row + n_rows <= TILE_ROWS);
    const lanes_scales *const scales[2] = {&p[0]->scales, &p[1]->scales};
    const lanes_bytes *const of_rows[2] = {sums[0] + row, sums[1] + row};
    piece_products(f, n_rows, 2, of_rows, scales, i, t, x + row * t->x_stride, piece, acc + 2 * row);
}

/* n_rows <= TILE_ROWS: rows from `row` on. is_rest is a constant at each call. */
static BASE_ALWAYS_INLINE void add_tile(const format_traits *f, const quant_panel *const p[2], const quant_rows *t,
                                        int64_t first_piece, int64_t n_pieces, int64_t row, int64_t n_rows,
                                        bool is_rest, const uint8_t *const next[2]) {
    BASE_DCHECK(n_rows > 0 && n_rows <= TILE_ROWS && n_pieces <= PANEL_PIECES);
    const int64_t piece_bytes = LANES * f->block_bytes / f->pieces;
    const uint8_t *x = t->x + row * t->x_stride;
    lanes_ints sums[2][2 * TILE_ROWS]; /* [scale][row] */
    lanes_floats acc[2 * TILE_ROWS];
    for (int64_t r = 0; r < n_rows; r++) load_sums(t, row + r, 1, 2, first_piece == 0, acc + 2 * r);
    for (int64_t i = 0; i < n_pieces; i++) {
        for (int g = 0; row == 0 && g < 2; g++) kernel_prefetch_l2(next[g], i * piece_bytes, piece_bytes);
        BASE_UNROLL
        for (int k = 0; k < f->n_scales; k++) {
            const lanes_bytes *const w[2] = {p[0]->q[i] + 8 / f->n_scales * k, p[1]->q[i] + 8 / f->n_scales * k};
            lanes_ints *const to[2] = {sums[0] + TILE_ROWS * k, sums[1] + TILE_ROWS * k};
            add_products(x + 32 * (first_piece + i) + 32 / f->n_scales * k, t->x_stride, w, to, is_rest);
        }
        int64_t r = 0;
        for (; r + 4 <= n_rows; r += 4) scale_rows(f, p, t, x, i, first_piece + i, r, 4, sums, acc);
        for (; r < n_rows; r++) scale_rows(f, p, t, x, i, first_piece + i, r, 1, sums, acc);
    }
    for (int64_t r = 0; r < n_rows; r++) store_sums(t, row + r, 1, 2, acc + 2 * r);
}

/* A panel_rows_fn. */
static BASE_ALWAYS_INLINE void add_tiles(const format_traits *f, const quant_panel *const p[2], const quant_rows *t,
                                         int64_t first_piece, int64_t n_pieces, int64_t n_rows,
                                         const uint8_t *const next[2]) {
    int64_t row = 0;
    for (; row + TILE_ROWS <= n_rows; row += TILE_ROWS)
        add_tile(f, p, t, first_piece, n_pieces, row, TILE_ROWS, false, next);
    if (row < n_rows) add_tile(f, p, t, first_piece, n_pieces, row, n_rows - row, true, next);
}

/* ---- the product ---- */

static BASE_ALWAYS_INLINE void linear(const format_traits *f, unpack_fn unpack, fill_scales_fn fill_scales,
                                      const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x,
                                      int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    const int64_t row_bytes = n_in / 32 / f->pieces * f->block_bytes;
    BASE_DCHECK(out_begin % LANES == 0);
    BASE_DCHECK(n_rows > KERNEL_FEW_ROWS && x_stride >= kernel_q8_bytes(n_in));
    configure_tiles(f, n_rows % TILE_ROWS);
    for (int64_t o = out_begin; o < out_end; o += 2 * LANES) {
        const int64_t n = BASE_MIN(2 * LANES, out_end - o);
        const quant_rows t = {x, x_stride, n_in, y + o, y_stride, {BASE_MIN(LANES, n), BASE_MAX(0, n - LANES)}};
        many_rows(f, unpack, fill_scales, add_tiles, (const uint8_t *)w + o * row_bytes, LANES * row_bytes, &t, n_rows);
    }
    _tile_release();
}

#define X(NAME, name, ...) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        if (n_rows <= KERNEL_FEW_ROWS) \
            avx512_linear_quant(KERNEL_##NAME)(w, n_in, out_begin, out_end, x, x_stride, n_rows, y, y_stride); \
        else \
            linear(&format_##name, unpack_##name, fill_scales_##name, w, n_in, out_begin, out_end, x, x_stride, \
                   n_rows, y, y_stride); \
    }
FORMAT_TYPES(X)
#undef X

void kernel_table_amx(kernel_table *t) {
    t->name = "amx";
#define X(NAME, name, ...) t->linear[KERNEL_##NAME] = linear_##name;
    FORMAT_TYPES(X)
#undef X
}
