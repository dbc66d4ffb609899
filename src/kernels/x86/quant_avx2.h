/* quant_avx2.h: products of quantised weights with q8 activations, for every format. Internal to kernels/x86: included by
 * files named *_avx2.c, which unpack the formats and instantiate avx2_linear.
 *
 * Eight outputs are the eight lanes of a vector, so no sum ever runs across lanes:
 *
 *   8 weight rows, packed ──unpack─────> panel of up to 32 pieces of 32 elements (12 KiB, stays in L1)
 *   panel x 4, 2 or 1 rows of x ───────> y[r][o .. o+7], which holds the sums between two panels
 *
 *   panel.q[piece][g]: lane o holds elements 4g .. 4g+3 of output o;   x: its same four bytes in every lane
 *
 * Order: within a piece the products of integers are added exactly (in any order); then, piece after piece,
 *     acc = fma(sum, scale * d, acc)   (for each half piece if it has two scales), and for a minimum   acc = fma(-min, s, acc)
 *     (for each half piece with its h if it has two minima)
 * That is one chain for an element, whatever the tile; a group of fewer than 8 outputs has zeros in the idle lanes and does
 * not store them.
 *
 * Integers: maddubs multiplies unsigned by signed bytes and adds pairs with saturation to 16 bits. Signed weights are
 * split as |w| * (sign(w) x). With |x| <= 127 (kernels.h) a pair is at most 2 * 127 * the format's largest |w|: 32512 in Q8_0
 * (w = -128 included: |w| is unsigned). Where four pairs fit in 16 bits, up to |w| = 32, they are added before they are widened.
 */
#ifndef KERNELS_X86_QUANT_AVX2_H
#define KERNELS_X86_QUANT_AVX2_H

#include <assert.h>
#include <string.h>

#include "kernels/formats.h"
#include "kernels/half.h"
#include "kernels/x86/avx2.h"

#define LANES 8
/* Pieces of a panel, multiples of the pieces in a block of any format. With few rows filling the panel is most of the work,
 * and short panels let the processor overlap it with the products. */
#define PANEL_PIECES 32
#define PANEL_PIECES_FEW_ROWS 8
#define FEW_ROWS 2

typedef struct avx2_panel {
    __m256i q[PANEL_PIECES][8];
    __m256 scale[PANEL_PIECES][2], min[PANEL_PIECES][2]; /* as many of them as a piece of the format has */
} avx2_panel;

/* What a format brings along.
 *
 * unpack: piece `piece` of a packed block's q, of eight rows: q[g] = elements 4g .. 4g+3 of row o in lane o.
 * fill_scales: scales and minima of all pieces of a block of eight rows, to piece `piece` of the panel on. rest: what of
 * row 0's block is not q; that of the next row stands format_rest_bytes behind it. */
typedef void (*avx2_unpack_fn)(const uint8_t *quants, int piece, __m256i q[8]);
typedef void (*avx2_fill_scales_fn)(const uint8_t *rest, avx2_panel *p, int64_t piece);

/* ---- unpacking ---------------------------------------------------------------------------------------------------- */

/* Dword i of eight rows. */
static BASE_ALWAYS_INLINE __m256i avx2_dwords(const uint8_t *quants, int i) {
    return _mm256_loadu_si256((const __m256i *)(const void *)(quants + 32 * i));
}

/* Bits [shift, shift + n) of every byte, `mask` being 2^n - 1. */
static BASE_ALWAYS_INLINE __m256i avx2_bits(__m256i bytes, int shift, int mask) {
    return _mm256_and_si256(_mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm256_set1_epi8((char)mask));
}

/* 16 bytes of a block, from dword `first` on: the low nibbles are elements 0..15, the high ones 16..31. */
static BASE_ALWAYS_INLINE void avx2_nibbles(const uint8_t *quants, int first, __m256i q[8]) {
    for (int g = 0; g < 4; g++) {
        const __m256i v = avx2_dwords(quants, first + g);
        q[g] = avx2_bits(v, 0, 15);
        q[g + 4] = avx2_bits(v, 4, 15);
    }
}

/* Such nibbles as codes for the values of a table. */
static BASE_ALWAYS_INLINE void avx2_look_up(const uint8_t *quants, int first, const int8_t values[16], __m256i q[8]) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
    avx2_nibbles(quants, first, q);
    for (int g = 0; g < 8; g++) q[g] = _mm256_shuffle_epi8(table, q[g]);
}

static BASE_ALWAYS_INLINE void avx2_subtract(__m256i q[8], int value) {
    for (int g = 0; g < 8; g++) q[g] = _mm256_sub_epi8(q[g], _mm256_set1_epi8((char)value));
}

/* ---- scales ----------------------------------------------------------------------------------------------------- */

/* The f16 at `offset` of what is not q of eight rows, as floats. */
static BASE_ALWAYS_INLINE __m256 avx2_load_halves(const uint8_t *rest, int64_t rest_bytes, int64_t offset) {
    uint16_t h[LANES];
    for (int i = 0; i < LANES; i++) h[i] = half_load_u16(rest + i * rest_bytes + offset);
    return _mm256_cvtph_ps(_mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4], (short)h[5],
                                          (short)h[6], (short)h[7]));
}

/* How far ahead of the products packed weights are asked for. */
#define PREFETCH_BYTES 4096

static BASE_ALWAYS_INLINE void fill_panel(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                          const uint8_t *group, int64_t first_piece, int64_t n_pieces, avx2_panel *p) {
    for (int64_t piece = 0; piece < n_pieces; piece += f->pieces) {
        const uint8_t *block = group + (first_piece + piece) / f->pieces * LANES * f->block_bytes;
        avx2_prefetch(block, PREFETCH_BYTES, LANES * f->block_bytes);
        fill_scales(block, p, piece);
        for (int j = 0; j < f->pieces; j++) unpack(block + LANES * format_rest_bytes(f), j, p->q[piece + j]);
    }
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Where a tile's rows of activations and results are. */
typedef struct tile_rows {
    const uint8_t *x; /* first row */
    int64_t x_stride, n_in;
    float *y; /* first row, first output of the group */
    int64_t y_stride;
    int64_t n_out; /* lanes in use */
} tile_rows;

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

/* Do four results of maddubs fit in 16 bits when they are added? */
static BASE_ALWAYS_INLINE bool four_fit(const format_traits *f) { return 4 * 2 * 127 * f->largest <= INT16_MAX; }

/* sum[r] = the products of dwords [begin, end) of a piece, at most 4 if they are added in 16 bits, for n_rows rows. */
static BASE_ALWAYS_INLINE void dword_sums(const format_traits *f, const __m256i q[8], const uint8_t *x, int64_t x_stride,
                                          int n_rows, int begin, int end, __m256i *sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int r = 0; r < n_rows; r++) sum[r] = _mm256_setzero_si256();
    for (int g = begin; g < end; g++) {
        const __m256i w = q[g], magnitude = f->is_unsigned ? w : _mm256_abs_epi8(w);
        for (int r = 0; r < n_rows; r++) {
            __m256i v = broadcast_dword(x + r * x_stride + 4 * g);
            if (!f->is_unsigned) v = _mm256_sign_epi8(v, w);
            const __m256i pairs = _mm256_maddubs_epi16(magnitude, v);
            sum[r] = four_fit(f) ? _mm256_add_epi16(sum[r], pairs) : _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int r = 0; four_fit(f) && r < n_rows; r++) sum[r] = _mm256_madd_epi16(sum[r], ones);
}

/* The products that scale k of a piece belongs to. */
static BASE_ALWAYS_INLINE void scale_sums(const format_traits *f, const __m256i q[8], const uint8_t *x, int64_t x_stride,
                                          int n_rows, int k, __m256i *sum) {
    if (f->n_scales == 2) {
        dword_sums(f, q, x, x_stride, n_rows, 4 * k, 4 * k + 4, sum);
    } else if (!four_fit(f)) {
        dword_sums(f, q, x, x_stride, n_rows, 0, 8, sum);
    } else { /* eight would fit in some formats, but then the compiler runs out of registers: 8 % slower */
        __m256i rest[4];
        dword_sums(f, q, x, x_stride, n_rows, 0, 4, sum);
        dword_sums(f, q, x, x_stride, n_rows, 4, 8, rest);
        for (int r = 0; r < n_rows; r++) sum[r] = _mm256_add_epi32(sum[r], rest[r]);
    }
}

/* Adds a panel's products to n_rows x 8 sums. n_rows is a constant at each call: everything unrolls. */
static BASE_ALWAYS_INLINE void tile(const format_traits *f, const avx2_panel *p, const tile_rows *t, int64_t first_piece,
                                    int64_t n_pieces, int64_t row, int n_rows) {
    const uint8_t *x = t->x + row * t->x_stride;
    float *y = t->y + row * t->y_stride;
    __m256 acc[4];
    for (int r = 0; r < n_rows; r++) {
        acc[r] = first_piece == 0 ? _mm256_setzero_ps() : avx2_load_first(y + r * t->y_stride, t->n_out);
    }
    for (int64_t piece = 0; piece < n_pieces; piece++) {
        const uint8_t *q = x + 32 * (first_piece + piece);
        const uint8_t *d = x + t->n_in + 4 * (first_piece + piece);
        const uint8_t *s = f->n_mins == 2 ? x + t->n_in + t->n_in / 4 + 8 * (first_piece + piece) : d + t->n_in / 8;
        for (int k = 0; k < f->n_scales; k++) {
            __m256i sum[4];
            scale_sums(f, p->q[piece], q, t->x_stride, n_rows, k, sum);
            for (int r = 0; r < n_rows; r++) {
                const __m256 scale = _mm256_mul_ps(p->scale[piece][k], broadcast_float(d + r * t->x_stride));
                acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), scale, acc[r]);
            }
        }
        for (int k = 0; k < f->n_mins; k++) {
            for (int r = 0; r < n_rows; r++) {
                acc[r] = _mm256_fnmadd_ps(p->min[piece][k], broadcast_float(s + r * t->x_stride + 4 * k), acc[r]);
            }
        }
    }
    for (int r = 0; r < n_rows; r++) avx2_store_first(y + r * t->y_stride, acc[r], t->n_out);
}

static BASE_ALWAYS_INLINE void panel_rows(const format_traits *f, const avx2_panel *p, const tile_rows *t,
                                          int64_t first_piece, int64_t n_pieces, int64_t n_rows) {
    int64_t row = 0;
    for (; row + 4 <= n_rows; row += 4) tile(f, p, t, first_piece, n_pieces, row, 4);
    for (; row + 2 <= n_rows; row += 2) tile(f, p, t, first_piece, n_pieces, row, 2);
    for (; row < n_rows; row++) tile(f, p, t, first_piece, n_pieces, row, 1);
}

/* kernel_linear_fn of a format; everything about it is a constant at each call. */
static BASE_ALWAYS_INLINE void avx2_linear(const format_traits *f, avx2_unpack_fn unpack, avx2_fill_scales_fn fill_scales,
                                      const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x,
                                      int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    const int64_t n_pieces = n_in / 32, row_bytes = n_pieces / f->pieces * f->block_bytes;
    const int64_t most = n_rows <= FEW_ROWS ? PANEL_PIECES_FEW_ROWS : PANEL_PIECES;
    avx2_panel p;
    assert(out_begin % LANES == 0);
    for (int64_t o = out_begin; o < out_end; o += LANES) {
        tile_rows t = {x, x_stride, n_in, y + o, y_stride, BASE_MIN(LANES, out_end - o)};
        const uint8_t *group = (const uint8_t *)w + o * row_bytes;
        int64_t piece = 0;
        do { /* once even if there is no input: the sums are 0 */
            const int64_t n = BASE_MIN(most, n_pieces - piece);
            fill_panel(f, unpack, fill_scales, group, piece, n, &p);
            panel_rows(f, &p, &t, piece, n, n_rows);
            piece += n;
        } while (piece < n_pieces);
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
