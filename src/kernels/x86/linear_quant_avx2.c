/* linear_quant_avx2.c: products of Q8_0, Q4_0, Q4_K and Q6_K weights with q8 activations.
 *
 * Eight outputs are the eight lanes of a vector, so no sum ever runs across lanes:
 *
 *   8 weight rows ──unpack, transpose──> panel of up to 32 pieces of 32 elements (11 KiB, stays in L1)
 *   panel x 4, 2 or 1 rows of x ───────> y[r][o .. o+7], which holds the sums between two panels
 *
 *   panel.q[piece][g]: lane o holds elements 4g .. 4g+3 of output o;   x: its same four bytes in every lane
 *
 * Order: within a piece the products of integers are added exactly (in any order); then, piece after piece,
 *     acc = fma(sum, scale * d, acc)   (Q6_K: for each half piece), Q4_K further   acc = fma(-min, s, acc)
 * That is one chain for an element, whatever the tile; a group of fewer than 8 outputs repeats its last row in
 * the idle lanes and does not store them.
 *
 * Integers: maddubs multiplies unsigned by signed bytes and adds pairs with saturation to 16 bits. Signed weights are
 * split as |w| * (sign(w) x). With |x| <= 127 (kernels.h) a pair is at most
 *     Q8_0 2*128*127 = 32512 (w = -128 included: |w| is unsigned),   Q6_K 2*32*127 = 8128,
 *     Q4_0 2*8*127 = 2032,   Q4_K 2*15*127 = 3810 (not negative, needs no split)
 * so Q6_K may add 4 of them (32512), Q4_0 and Q4_K 8 (16256, 30480) before widening to 32 bits; Q8_0 widens each.
 */
#include <string.h>

#include "kernels/formats.h"
#include "kernels/x86/avx2.h"
#include "kernels/half.h"

#define LANES 8
/* Pieces of a panel, multiples of the pieces in a block of any format. With few rows filling the panel is most of the work,
 * and short panels let the processor overlap it with the products. */
#define PANEL_PIECES 32
#define PANEL_PIECES_FEW_ROWS 8
#define FEW_ROWS 2

typedef struct panel {
    __m256i q[PANEL_PIECES][8];
    __m256 scale[PANEL_PIECES][2]; /* [1] only with two scales a piece */
    __m256 min[PANEL_PIECES];      /* only in Q4_K */
} panel;

typedef struct format_traits {
    int64_t block_bytes;
    int pieces;       /* in a block */
    bool is_unsigned; /* panel.q is not negative */
    int n_scales;     /* of a piece: 1 or 2 */
    bool has_min;
    int n_pairs; /* maddubs results that fit in 16 bits */
} format_traits;

static const format_traits q8_0_traits = {FORMAT_Q8_0_BYTES, 1, false, 1, false, 1};
static const format_traits q4_0_traits = {FORMAT_Q4_0_BYTES, 1, false, 1, false, 8};
static const format_traits q4_k_traits = {FORMAT_Q4_K_BYTES, FORMAT_K_PIECES, true, 1, true, 8};
static const format_traits q6_k_traits = {FORMAT_Q6_K_BYTES, FORMAT_K_PIECES, false, 2, false, 4};

/* ---- unpacking ---------------------------------------------------------------------------------------------------
 * Each unpacks a piece of two rows at once: half[0] = elements 0..15 of row a | of row b, half[1] = elements 16..31.
 * a and b point to the block, piece counts within it. */
typedef void (*unpack_fn)(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]);

static BASE_ALWAYS_INLINE __m256i load_pair(const uint8_t *a, const uint8_t *b) {
    const __m128i low = _mm_loadu_si128((const __m128i *)a);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128((const __m128i *)b), 1);
}

static BASE_ALWAYS_INLINE void unpack_q8_0(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    half[0] = load_pair(a + 2, b + 2);
    half[1] = load_pair(a + 18, b + 18);
}

static BASE_ALWAYS_INLINE void unpack_q4_0(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    const __m256i nibble = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8);
    const __m256i bytes = load_pair(a + 2, b + 2);
    (void)piece;
    half[0] = _mm256_sub_epi8(_mm256_and_si256(bytes, nibble), eight);
    half[1] = _mm256_sub_epi8(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble), eight);
}

static BASE_ALWAYS_INLINE void unpack_q4_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    const __m128i shift = _mm_cvtsi32_si128(4 * (piece & 1));
    const int offset = FORMAT_Q4_K_QUANTS + 32 * (piece / 2);
    for (int i = 0; i < 2; i++) {
        const __m256i bytes = load_pair(a + offset + 16 * i, b + offset + 16 * i);
        half[i] = _mm256_and_si256(_mm256_srl_epi16(bytes, shift), _mm256_set1_epi8(15));
    }
}

static BASE_ALWAYS_INLINE void unpack_q6_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    const int group = piece % 4;
    const __m128i low_shift = _mm_cvtsi32_si128(4 * (group >> 1)), high_shift = _mm_cvtsi32_si128(2 * group);
    const int low = 64 * (piece / 4) + 32 * (group & 1), high = FORMAT_Q6_K_HIGH + 32 * (piece / 4);
    for (int i = 0; i < 2; i++) {
        const __m256i l = _mm256_srl_epi16(load_pair(a + low + 16 * i, b + low + 16 * i), low_shift);
        const __m256i h = _mm256_srl_epi16(load_pair(a + high + 16 * i, b + high + 16 * i), high_shift);
        const __m256i upper = _mm256_slli_epi16(_mm256_and_si256(h, _mm256_set1_epi8(3)), 4);
        const __m256i bits = _mm256_or_si256(_mm256_and_si256(l, _mm256_set1_epi8(15)), upper);
        half[i] = _mm256_sub_epi8(bits, _mm256_set1_epi8(32));
    }
}

/* r[i] holds 4 dwords of row i and 4 of row i + 4; out[g] gets dword g of rows 0..7. */
static BASE_ALWAYS_INLINE void transpose_dwords(const __m256i r[4], __m256i out[4]) {
    const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpacklo_epi32(r[2], r[3]);
    const __m256i c = _mm256_unpackhi_epi32(r[0], r[1]), d = _mm256_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm256_unpacklo_epi64(a, b);
    out[1] = _mm256_unpackhi_epi64(a, b);
    out[2] = _mm256_unpacklo_epi64(c, d);
    out[3] = _mm256_unpackhi_epi64(c, d);
}

static BASE_ALWAYS_INLINE void fill_piece(unpack_fn unpack, const uint8_t *const rows[LANES], int64_t offset, int piece,
                                          __m256i q[8]) {
    __m256i first[4], second[4];
    for (int i = 0; i < 4; i++) {
        __m256i half[2];
        unpack(rows[i] + offset, rows[i + 4] + offset, piece, half);
        first[i] = half[0];
        second[i] = half[1];
    }
    transpose_dwords(first, q);
    transpose_dwords(second, q + 4);
}

/* ---- scales ----------------------------------------------------------------------------------------------------- */

/* The f16 at `offset` of eight rows, as floats. */
static BASE_ALWAYS_INLINE __m256 load_halves(const uint8_t *const rows[LANES], int64_t offset) {
    uint16_t h[LANES];
    for (int i = 0; i < LANES; i++) h[i] = half_load_u16(rows[i] + offset);
    return _mm256_cvtph_ps(_mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4], (short)h[5],
                                          (short)h[6], (short)h[7]));
}

/* m[i] becomes column i of the 8 x 8 floats m[0..7]. */
static void transpose_8x8(__m256 m[8]) {
    __m256i low[4], high[4], a[4], b[4];
    for (int i = 0; i < 4; i++) {
        low[i] = _mm256_castps_si256(_mm256_permute2f128_ps(m[i], m[i + 4], 0x20));
        high[i] = _mm256_castps_si256(_mm256_permute2f128_ps(m[i], m[i + 4], 0x31));
    }
    transpose_dwords(low, a);
    transpose_dwords(high, b);
    for (int i = 0; i < 4; i++) {
        m[i] = _mm256_castsi256_ps(a[i]);
        m[i + 4] = _mm256_castsi256_ps(b[i]);
    }
}

/* 8 bytes, unsigned or signed, as floats times d. */
static __m256 scaled_u8(uint64_t bytes, float d) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(d));
}

static __m256 scaled_s8(const uint8_t *bytes, float d) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(d));
}

static float block_half(const uint8_t *p) { return _cvtsh_ss(half_load_u16(p)); }

/* The 8 scales and minima of a Q4_K block, a byte each (formats.h has the packing; four pieces at a time here). */
static void q4_k_bytes(const uint8_t *packed, uint64_t *scales, uint64_t *mins) {
    uint32_t a, b, c;
    memcpy(&a, packed, 4);
    memcpy(&b, packed + 4, 4);
    memcpy(&c, packed + 8, 4);
    const uint32_t low4 = 0x0f0f0f0fu, low6 = 0x3f3f3f3fu, two = 0x30303030u;
    *scales = (a & low6) | (uint64_t)((c & low4) | ((a >> 2) & two)) << 32;
    *mins = (b & low6) | (uint64_t)(((c >> 4) & low4) | ((b >> 2) & two)) << 32;
}

static void fill_scales_q4_k(const uint8_t *const rows[LANES], int64_t offset, panel *p, int64_t piece) {
    __m256 scale[8], min[8];
    for (int i = 0; i < LANES; i++) {
        const uint8_t *block = rows[i] + offset;
        uint64_t scales, mins;
        q4_k_bytes(block + FORMAT_Q4_K_SCALES, &scales, &mins);
        scale[i] = scaled_u8(scales, block_half(block));
        min[i] = scaled_u8(mins, block_half(block + 2));
    }
    transpose_8x8(scale);
    transpose_8x8(min);
    for (int j = 0; j < 8; j++) {
        p->scale[piece + j][0] = scale[j];
        p->min[piece + j] = min[j];
    }
}

static void fill_scales_q6_k(const uint8_t *const rows[LANES], int64_t offset, panel *p, int64_t piece) {
    for (int part = 0; part < 2; part++) { /* scales 0..7 are pieces 0..3, two each */
        __m256 scale[8];
        for (int i = 0; i < LANES; i++) {
            const uint8_t *block = rows[i] + offset;
            scale[i] = scaled_s8(block + FORMAT_Q6_K_SCALES + 8 * part, block_half(block + FORMAT_Q6_K_D));
        }
        transpose_8x8(scale);
        for (int j = 0; j < 8; j++) p->scale[piece + 4 * part + j / 2][j % 2] = scale[j];
    }
}

/* Q8_0 and Q4_0: the scale stands first in the block. */
static BASE_ALWAYS_INLINE void fill_scales_simple(const uint8_t *const rows[LANES], int64_t offset, panel *p,
                                                  int64_t piece) {
    p->scale[piece][0] = load_halves(rows, offset);
}

typedef void (*fill_scales_fn)(const uint8_t *const rows[LANES], int64_t offset, panel *p, int64_t piece);

static BASE_ALWAYS_INLINE void fill_panel(const format_traits *f, unpack_fn unpack, fill_scales_fn fill_scales,
                                          const uint8_t *const rows[LANES], int64_t first_piece, int64_t n_pieces,
                                          int64_t row_bytes, panel *p) {
    for (int64_t piece = 0; piece < n_pieces; piece += f->pieces) {
        const int64_t offset = (first_piece + piece) / f->pieces * f->block_bytes;
        for (int i = 0; i < LANES; i++) avx2_prefetch(rows[i] + offset, LANES * row_bytes, f->block_bytes);
        fill_scales(rows, offset, p, piece);
        for (int j = 0; j < f->pieces; j++) fill_piece(unpack, rows, offset, j, p->q[piece + j]);
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

/* sum[r] = the products of dwords [begin, end) of a piece, for n_rows rows. */
static BASE_ALWAYS_INLINE void piece_sums(const format_traits *f, const __m256i q[8], const uint8_t *x,
                                          int64_t x_stride, int n_rows, int begin, int end, __m256i *sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int r = 0; r < n_rows; r++) sum[r] = _mm256_setzero_si256();
    for (int g = begin; g < end; g++) {
        const __m256i w = q[g], magnitude = f->is_unsigned ? w : _mm256_abs_epi8(w);
        for (int r = 0; r < n_rows; r++) {
            __m256i v = broadcast_dword(x + r * x_stride + 4 * g);
            if (!f->is_unsigned) v = _mm256_sign_epi8(v, w);
            const __m256i pairs = _mm256_maddubs_epi16(magnitude, v);
            if (f->n_pairs == 1) {
                sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs, ones));
            } else {
                sum[r] = _mm256_add_epi16(sum[r], pairs);
            }
        }
    }
    if (f->n_pairs == 1) return;
    for (int r = 0; r < n_rows; r++) sum[r] = _mm256_madd_epi16(sum[r], ones);
}

/* Adds a panel's products to n_rows x 8 sums. n_rows is a constant at each call: everything unrolls. */
static BASE_ALWAYS_INLINE void tile(const format_traits *f, const panel *p, const tile_rows *t, int64_t first_piece,
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
        const uint8_t *s = d + t->n_in / 8;
        for (int k = 0; k < f->n_scales; k++) {
            __m256i sum[4];
            piece_sums(f, p->q[piece], q, t->x_stride, n_rows, 8 / f->n_scales * k, 8 / f->n_scales * (k + 1), sum);
            for (int r = 0; r < n_rows; r++) {
                const __m256 scale = _mm256_mul_ps(p->scale[piece][k], broadcast_float(d + r * t->x_stride));
                acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), scale, acc[r]);
            }
        }
        for (int r = 0; f->has_min && r < n_rows; r++) {
            acc[r] = _mm256_fnmadd_ps(p->min[piece], broadcast_float(s + r * t->x_stride), acc[r]);
        }
    }
    for (int r = 0; r < n_rows; r++) avx2_store_first(y + r * t->y_stride, acc[r], t->n_out);
}

static BASE_ALWAYS_INLINE void panel_rows(const format_traits *f, const panel *p, const tile_rows *t,
                                          int64_t first_piece, int64_t n_pieces, int64_t n_rows) {
    int64_t row = 0;
    for (; row + 4 <= n_rows; row += 4) tile(f, p, t, first_piece, n_pieces, row, 4);
    for (; row + 2 <= n_rows; row += 2) tile(f, p, t, first_piece, n_pieces, row, 2);
    for (; row < n_rows; row++) tile(f, p, t, first_piece, n_pieces, row, 1);
}

static BASE_ALWAYS_INLINE void linear(const format_traits *f, unpack_fn unpack, fill_scales_fn fill_scales,
                                      const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x,
                                      int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    const int64_t n_pieces = n_in / 32, row_bytes = n_pieces / f->pieces * f->block_bytes;
    const int64_t most = n_rows <= FEW_ROWS ? PANEL_PIECES_FEW_ROWS : PANEL_PIECES;
    panel p;
    for (int64_t o = out_begin; o < out_end; o += LANES) {
        tile_rows t = {x, x_stride, n_in, y + o, y_stride, BASE_MIN(LANES, out_end - o)};
        const uint8_t *rows[LANES];
        for (int i = 0; i < LANES; i++) rows[i] = (const uint8_t *)w + (o + BASE_MIN(i, t.n_out - 1)) * row_bytes;
        int64_t piece = 0;
        do { /* once even if there is no input: the sums are 0 */
            const int64_t n = BASE_MIN(most, n_pieces - piece);
            fill_panel(f, unpack, fill_scales, rows, piece, n, row_bytes, &p);
            panel_rows(f, &p, &t, piece, n, n_rows);
            piece += n;
        } while (piece < n_pieces);
    }
}

#define LINEAR(name, fill_scales) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        linear(&name##_traits, unpack_##name, fill_scales, w, n_in, out_begin, out_end, x, x_stride, n_rows, y, \
               y_stride); \
    }
LINEAR(q8_0, fill_scales_simple)
LINEAR(q4_0, fill_scales_simple)
LINEAR(q4_k, fill_scales_q4_k)
LINEAR(q6_k, fill_scales_q6_k)

void avx2_linear_quant_entries(kernel_table *t) {
    t->linear[KERNEL_Q8_0] = linear_q8_0;
    t->linear[KERNEL_Q4_0] = linear_q4_0;
    t->linear[KERNEL_Q4_K] = linear_q4_k;
    t->linear[KERNEL_Q6_K] = linear_q6_k;
}
