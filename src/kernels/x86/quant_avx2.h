/* quant_avx2.h: products of quantised weights with quantised activations (kernels.h), for linear_quant_avx2.c and linear_k_avx2.c.
 *
 * Eight outputs are the eight lanes of a vector, so no sum ever runs across lanes. Weights come packed (formats.h), eight rows side by
 * side, so that four consecutive inputs of all eight rows are one load.
 *
 *   few rows of x   unpack a piece of 8 outputs into registers ── x 4, 2 or 1 rows of x ──> y
 *   many            unpack 32 pieces of 16 outputs into two panels (16 KiB, stay in L1) ── x 4, 3, 2 or 1 rows ──> y, which holds the
 *                   sums between two panels
 *
 * Order of an output's sum, the same everywhere: for each piece of 32 inputs in turn
 *     acc = fma(exact sum of the products of integers, scale * d, acc)
 *     acc = fma(-min, s, acc)
 *     (for each half piece, with its h, if it has two scales, two minima)
 * That is one chain for an element, whatever the tile; a group of fewer than 8 outputs has zeros in the idle lanes and does
 * not store them.
 *
 * Integers: maddubs multiplies unsigned by signed bytes and adds pairs with saturation to 16 bits; |x| <= 127 (kernels.h). Where q has
 * up to 32 values, weights are q - lowest, which is unsigned, and lowest * (sum of x) is added at the end. Others are split as
 * |w| * (sign(w) x): a pair is at most 2 * 127 * 128 = 32512 in Q8_0 (w = -128 included: |w| is unsigned). As many pairs as fit
 * are added in 16 bits before they are widened.
 */
#ifndef KERNELS_X86_QUANT_AVX2_H
#define KERNELS_X86_QUANT_AVX2_H

#include <assert.h>
#include <string.h>

#include "kernels/formats.h"
#include "kernels/x86/avx2.h"

#define LANES 8
#define PANEL_PIECES 32 /* a multiple of the pieces in a block of any format */
/* Up to so many rows, a panel would be used too rarely to pay for itself. */
#define FEW_ROWS 8

/* Scales and minima of some pieces, as many of them as a piece of the format has. */
typedef struct avx2_scales {
    __m256 scale[PANEL_PIECES][2], min[PANEL_PIECES][2];
} avx2_scales;

typedef struct avx2_panel {
    __m256i q[PANEL_PIECES][8];
    avx2_scales scales;
} avx2_panel;

/* What a format brings along; all of eight rows.
 *
 * unpack: piece `piece` of a packed block's q, less the lowest where avx2_zero_point says so: q[g] = elements 4g .. 4g+3 of row o in
 * lane o.
 * fill_scales: scales and minima of all pieces of a block, to piece `piece` of s on. rest: what of the block is not q. */
typedef void (*avx2_unpack_fn)(const uint8_t *quants, int piece, __m256i q[8]);
typedef void (*avx2_fill_scales_fn)(const uint8_t *rest, avx2_scales *s, int64_t piece);

/* What is subtracted from q to make it unsigned; 0: q stays as it is. */
static BASE_ALWAYS_INLINE int avx2_zero_point(const format_traits *f) { return f->highest - f->lowest < 32 ? f->lowest : 0; }
static BASE_ALWAYS_INLINE bool avx2_is_signed(const format_traits *f) { return f->lowest < 0 && avx2_zero_point(f) == 0; }

/* ---- unpacking ---------------------------------------------------------------------------------------------------- */

/* Dword i of eight rows. */
static BASE_ALWAYS_INLINE __m256i avx2_dwords(const uint8_t *packed, int i) {
    return _mm256_loadu_si256((const __m256i *)(const void *)(packed + 32 * i));
}

/* Bits [shift, shift + n) of every byte, `mask` being 2^n - 1. */
static BASE_ALWAYS_INLINE __m256i avx2_bits(__m256i bytes, int shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8((char)mask));
}

/* 16 bytes of a block, from dword `first` on: the low nibbles are elements 0..15, the high ones 16..31. */
static BASE_ALWAYS_INLINE void avx2_nibbles(const uint8_t *quants, int first, __m256i q[8]) {
    BASE_UNROLL
    for (int g = 0; g < 4; g++) {
        const __m256i v = avx2_dwords(quants, first + g);
        q[g] = avx2_bits(v, 0, 15);
        q[g + 4] = avx2_bits(v, 4, 15);
    }
}

/* Such nibbles as codes for the values of a table, less `lowest`. */
static BASE_ALWAYS_INLINE void avx2_look_up(const uint8_t *quants, int first, const int8_t values[16], int lowest, __m256i q[8]) {
    const __m256i signed_table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
    const __m256i table = _mm256_sub_epi8(signed_table, _mm256_set1_epi8((char)lowest));
    avx2_nibbles(quants, first, q);
    BASE_UNROLL
    for (int g = 0; g < 8; g++) q[g] = _mm256_shuffle_epi8(table, q[g]);
}

/* ---- scales ----------------------------------------------------------------------------------------------------- */

/* Eight f16 from `rest` on. */
static BASE_ALWAYS_INLINE __m256 avx2_load_halves(const uint8_t *rest) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)rest));
}

/* The f16 in the lower and the upper halves of eight dwords. */
static BASE_ALWAYS_INLINE void avx2_split_halves(__m256i dwords, __m256 *low, __m256 *high) {
    const __m256i both = _mm256_packus_epi32(_mm256_and_si256(dwords, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(dwords, 16));
    const __m256i sorted = _mm256_permute4x64_epi64(both, 0xd8); /* packing works in 128-bit halves */
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
}

/* How far ahead of the products packed weights are asked for. */
#define PREFETCH_BYTES 2048

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Where rows of activations and results are. */
typedef struct avx2_rows {
    const uint8_t *x; /* first row */
    int64_t x_stride, n_in;
    float *y; /* first row, first output of the first group */
    int64_t y_stride;
    int64_t n_out[2]; /* lanes in use of either group */
} avx2_rows;

static BASE_ALWAYS_INLINE __m256i broadcast_dword(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

static BASE_ALWAYS_INLINE __m256 broadcast_float(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_ps(v);
}

/* How many results of maddubs fit in 16 bits when they are added: 1, 4 or 8. */
static BASE_ALWAYS_INLINE int pairs_that_fit(const format_traits *f) {
    const int highest = BASE_MAX(f->highest - avx2_zero_point(f), avx2_is_signed(f) ? -f->lowest : 0);
    const int n = INT16_MAX / (2 * 127 * highest);
    return n >= 8 ? 8 : n >= 4 ? 4 : 1;
}

/* sum[r * n_groups + p] (+)= the products of dwords [begin, end) of a piece of group p with row r, at most pairs_that_fit unless that
 * is 1. AVX2_KEEP: left to itself the compiler regroups such sums until everything is spilled, at half the speed. */
static BASE_ALWAYS_INLINE void dword_sums(const format_traits *f, int n_rows, int n_groups, const __m256i *const q[2], const uint8_t *x,
                                          int64_t x_stride, int begin, int end, __m256i *sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    BASE_UNROLL
    for (int g = begin; g < end; g++) {
        BASE_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256i v = broadcast_dword(x + r * x_stride + 4 * g);
            BASE_UNROLL
            for (int p = 0; p < n_groups; p++) {
                __m256i *s = &sum[r * n_groups + p];
                const __m256i w = q[p][g];
                const __m256i pairs = avx2_is_signed(f) ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(v, w))
                                                        : _mm256_maddubs_epi16(w, v);
                if (pairs_that_fit(f) > 1) *s = g == begin ? pairs : _mm256_add_epi16(*s, pairs);
                else *s = g == begin ? _mm256_madd_epi16(pairs, ones) : _mm256_add_epi32(*s, _mm256_madd_epi16(pairs, ones));
                AVX2_KEEP(*s);
            }
        }
    }
    if (pairs_that_fit(f) == 1) return;
    BASE_UNROLL
    for (int i = 0; i < n_rows * n_groups; i++) sum[i] = _mm256_madd_epi16(sum[i], ones);
}

/* The exact sums of what scale k of a piece belongs to. c: the activations' half sums of this piece. */
static BASE_ALWAYS_INLINE void scale_sums(const format_traits *f, int n_rows, int n_groups, const __m256i *const q[2], const uint8_t *x,
                                          const uint8_t *c, int64_t x_stride, int k, __m256i *sum) {
    const int n = 8 / f->n_scales, begin = n * k, step = pairs_that_fit(f) > 1 ? BASE_MIN(n, pairs_that_fit(f)) : n;
    dword_sums(f, n_rows, n_groups, q, x, x_stride, begin, begin + step, sum);
    if (step < n) {
        __m256i more[8];
        dword_sums(f, n_rows, n_groups, q, x, x_stride, begin + step, begin + n, more);
        BASE_UNROLL
        for (int i = 0; i < n_rows * n_groups; i++) sum[i] = _mm256_add_epi32(sum[i], more[i]);
    }
    if (avx2_zero_point(f) == 0) return;
    const short lowest = (short)avx2_zero_point(f), first = k == 0 ? lowest : 0, second = k == 1 || f->n_scales == 1 ? lowest : 0;
    const __m256i halves = _mm256_unpacklo_epi16(_mm256_set1_epi16(first), _mm256_set1_epi16(second));
    BASE_UNROLL
    for (int r = 0; r < n_rows; r++) {
        const __m256i offset = _mm256_madd_epi16(broadcast_dword(c + r * x_stride), halves);
        BASE_UNROLL
        for (int p = 0; p < n_groups; p++) sum[r * n_groups + p] = _mm256_add_epi32(sum[r * n_groups + p], offset);
    }
}

/* acc[r * n_groups + p] += what piece `piece` of group p gives for row r. q, s: of each group, at place `at` of s. */
static BASE_ALWAYS_INLINE void piece_products(const format_traits *f, int n_rows, int n_groups, const __m256i *const q[2],
                                              const avx2_scales *const s[2], int64_t at, const avx2_rows *t, const uint8_t *x,
                                              int64_t piece, __m256 *acc) {
    const int64_t n_in = t->n_in;
    const bool one_min = f->n_mins == 1;
    BASE_UNROLL
    for (int k = 0; k < f->n_scales; k++) {
        __m256i sum[8];
        scale_sums(f, n_rows, n_groups, q, x + 32 * piece, x + KERNEL_Q8_C(n_in) + 4 * piece, t->x_stride, k, sum);
        BASE_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256 d = broadcast_float(x + KERNEL_Q8_D(n_in) + 4 * piece + r * t->x_stride);
            const __m256 total = one_min ? broadcast_float(x + KERNEL_Q8_S(n_in) + 4 * piece + r * t->x_stride) : d;
            BASE_UNROLL
            for (int p = 0; p < n_groups; p++) {
                __m256 *a = &acc[r * n_groups + p];
                *a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r * n_groups + p]), _mm256_mul_ps(s[p]->scale[at][k], d), *a);
                if (one_min) *a = _mm256_fnmadd_ps(s[p]->min[at][0], total, *a);
                AVX2_KEEP(*a);
            }
        }
    }
    if (f->n_mins != 2) return;
    BASE_UNROLL
    for (int k = 0; k < 2; k++) {
        BASE_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256 half = broadcast_float(x + KERNEL_Q8_H(n_in) + 8 * piece + 4 * k + r * t->x_stride);
            BASE_UNROLL
            for (int p = 0; p < n_groups; p++) acc[r * n_groups + p] = _mm256_fnmadd_ps(s[p]->min[at][k], half, acc[r * n_groups + p]);
        }
    }
}

static BASE_ALWAYS_INLINE void load_sums(const avx2_rows *t, int64_t row, int n_rows, int n_groups, bool first, __m256 *acc) {
    for (int i = 0; i < n_rows * n_groups; i++) {
        const int p = i % n_groups;
        const float *y = t->y + (row + i / n_groups) * t->y_stride + LANES * p;
        acc[i] = first || t->n_out[p] == 0 ? _mm256_setzero_ps() : avx2_load_first(y, t->n_out[p]);
    }
}

static BASE_ALWAYS_INLINE void store_sums(const avx2_rows *t, int64_t row, int n_rows, int n_groups, const __m256 *acc) {
    for (int i = 0; i < n_rows * n_groups; i++) {
        const int p = i % n_groups;
        if (t->n_out[p] > 0) avx2_store_first(t->y + (row + i / n_groups) * t->y_stride + LANES * p, acc[i], t->n_out[p]);
    }
}

/* ---- many rows: panels ------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE void fill_panel(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                          const uint8_t *group, int64_t first_piece, int64_t n_pieces, avx2_panel *p) {
    for (int64_t piece = 0; piece < n_pieces; piece += f->pieces) {
        const uint8_t *block = group + (first_piece + piece) / f->pieces * LANES * f->block_bytes;
        avx2_prefetch(block, PREFETCH_BYTES, LANES * f->block_bytes);
        fill_scales(block, &p->scales, piece);
        BASE_UNROLL
        for (int j = 0; j < f->pieces; j++) unpack(block + LANES * format_rest_bytes(f), j, p->q[piece + j]);
    }
}

/* Adds two panels' products to n_rows x 16 sums. n_rows is a constant at each call: everything unrolls. */
static BASE_ALWAYS_INLINE void panel_tile(const format_traits *f, const avx2_panel *const p[2], const avx2_rows *t, int64_t first_piece,
                                          int64_t n_pieces, int64_t row, int n_rows) {
    const uint8_t *x = t->x + row * t->x_stride;
    const avx2_scales *const scales[2] = {&p[0]->scales, &p[1]->scales};
    __m256 acc[8];
    load_sums(t, row, n_rows, 2, first_piece == 0, acc);
    for (int64_t i = 0; i < n_pieces; i++) {
        const __m256i *const q[2] = {p[0]->q[i], p[1]->q[i]};
        piece_products(f, n_rows, 2, q, scales, i, t, x, first_piece + i, acc);
    }
    store_sums(t, row, n_rows, 2, acc);
}

static BASE_ALWAYS_INLINE void panel_rows(const format_traits *f, const avx2_panel *const p[2], const avx2_rows *t,
                                          int64_t first_piece, int64_t n_pieces, int64_t n_rows) {
    int64_t row = 0;
    for (; row + 4 <= n_rows && n_rows - row != 5; row += 4) panel_tile(f, p, t, first_piece, n_pieces, row, 4);
    for (; row + 3 <= n_rows; row += 3) panel_tile(f, p, t, first_piece, n_pieces, row, 3); /* 5 = 3 + 2: a single row costs as much as two */
    for (; row + 2 <= n_rows; row += 2) panel_tile(f, p, t, first_piece, n_pieces, row, 2);
    for (; row < n_rows; row++) panel_tile(f, p, t, first_piece, n_pieces, row, 1);
}

/* All rows of 16 outputs, or of 8: then the second panel repeats the first, and what it gives is not stored. */
static BASE_ALWAYS_INLINE void many_rows(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                         const uint8_t *group, int64_t group_bytes, const avx2_rows *t, int64_t n_rows) {
    avx2_panel panels[2];
    const avx2_panel *const p[2] = {&panels[0], &panels[t->n_out[1] > 0 ? 1 : 0]};
    int64_t piece = 0;
    do { /* once even if there is no input: the sums are 0 */
        const int64_t n = BASE_MIN(PANEL_PIECES, t->n_in / 32 - piece);
        fill_panel(f, unpack, fill_scales, group, piece, n, &panels[0]);
        if (t->n_out[1] > 0) fill_panel(f, unpack, fill_scales, group + group_bytes, piece, n, &panels[1]);
        panel_rows(f, p, t, piece, n, n_rows);
        piece += n;
    } while (piece < t->n_in / 32);
}

/* ---- few rows: straight from memory ------------------------------------------------------------------------------- */

/* All of 8 outputs for n_rows rows. n_rows is a constant at each call. */
static BASE_ALWAYS_INLINE void direct_tile(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                           const uint8_t *group, const avx2_rows *t, int64_t row, int n_rows) {
    const uint8_t *x = t->x + row * t->x_stride;
    avx2_scales s;
    const avx2_scales *const scales[2] = {&s, NULL};
    __m256 acc[4];
    load_sums(t, row, n_rows, 1, true, acc);
    for (int64_t piece = 0; piece < t->n_in / 32; piece += f->pieces) {
        const uint8_t *block = group + piece / f->pieces * LANES * f->block_bytes;
        avx2_prefetch(block, PREFETCH_BYTES, LANES * f->block_bytes);
        fill_scales(block, &s, 0);
        BASE_UNROLL
        for (int j = 0; j < f->pieces; j++) {
            __m256i w[8];
            const __m256i *const q[2] = {w, NULL};
            unpack(block + LANES * format_rest_bytes(f), j, w);
            piece_products(f, n_rows, 1, q, scales, j, t, x, piece + j, acc);
        }
    }
    store_sums(t, row, n_rows, 1, acc);
}

/* The group stays in L1 where it is read for a second tile. */
static BASE_ALWAYS_INLINE void few_rows(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                        const uint8_t *group, const avx2_rows *t, int64_t n_rows) {
    int64_t row = 0;
    for (; row + 4 <= n_rows; row += 4) direct_tile(f, unpack, fill_scales, group, t, row, 4);
    for (; row + 2 <= n_rows; row += 2) direct_tile(f, unpack, fill_scales, group, t, row, 2);
    for (; row < n_rows; row++) direct_tile(f, unpack, fill_scales, group, t, row, 1);
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

/* kernel_linear_fn of a format; everything about it is a constant at each call. */
static BASE_ALWAYS_INLINE void avx2_linear(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                      const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x,
                                      int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    const int64_t row_bytes = n_in / 32 / f->pieces * f->block_bytes, groups = n_rows <= FEW_ROWS ? 1 : 2;
    assert(out_begin % LANES == 0);
    for (int64_t o = out_begin; o < out_end; o += LANES * groups) {
        const uint8_t *group = (const uint8_t *)w + o * row_bytes;
        const int64_t n = BASE_MIN(LANES * groups, out_end - o);
        const avx2_rows t = {x, x_stride, n_in, y + o, y_stride, {BASE_MIN(LANES, n), BASE_MAX(0, n - LANES)}};
        if (groups == 1) few_rows(f, unpack, fill_scales, group, &t, n_rows);
        else many_rows(f, unpack, fill_scales, group, LANES * row_bytes, &t, n_rows);
    }
}

/* Defines linear_<name>, for a format of formats.h. */
#define AVX2_LINEAR(name, fill_scales) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        avx2_linear(&format_##name, unpack_##name, fill_scales, w, n_in, out_begin, out_end, x, x_stride, n_rows, y, \
                    y_stride); \
    }

#endif
