/* linear_k_avx2.c: products of weights in blocks of 256 (quant_avx2.h has the products themselves).
 *
 * A block holds eight pieces. Scales are unpacked for eight rows at once: eight of a row become the bytes of a word, and
 * eight such words are transposed.
 */
#include "kernels/x86/quant_avx2.h"

/* ---- unpacking ---------------------------------------------------------------------------------------------------- */

/* Bits [shift, shift + n) of every byte, `mask` being 2^n - 1. */
static BASE_ALWAYS_INLINE __m256i bits(__m256i bytes, int shift, int mask) {
    return _mm256_and_si256(_mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm256_set1_epi8((char)mask));
}

/* q of Q2_K and Q3_K (low bits): 32 bytes for four pieces, two bits each. */
static BASE_ALWAYS_INLINE void two_bits(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    for (int i = 0; i < 2; i++) {
        const int offset = 32 * (piece / 4) + 16 * i;
        half[i] = bits(avx2_load_pair(a + offset, b + offset), 2 * (piece % 4), 3);
    }
}

/* q of Q4_K and Q5_K (low bits): 32 bytes for two pieces, a nibble each. */
static BASE_ALWAYS_INLINE void byte_nibbles(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    for (int i = 0; i < 2; i++) {
        const int offset = 32 * (piece / 2) + 16 * i;
        half[i] = bits(avx2_load_pair(a + offset, b + offset), 4 * (piece & 1), 15);
    }
}

/* Bit `piece` of every byte is bit `to` of its element. */
static BASE_ALWAYS_INLINE void add_high_bits(const uint8_t *a, const uint8_t *b, int piece, int to, __m256i half[2]) {
    for (int i = 0; i < 2; i++) {
        const __m256i high = bits(avx2_load_pair(a + 16 * i, b + 16 * i), piece, 1);
        half[i] = _mm256_or_si256(half[i], _mm256_slli_epi16(high, to));
    }
}

static BASE_ALWAYS_INLINE void unpack_q2_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    two_bits(a + FORMAT_Q2_K_QUANTS, b + FORMAT_Q2_K_QUANTS, piece, half);
}

static BASE_ALWAYS_INLINE void unpack_q3_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    two_bits(a + FORMAT_Q3_K_QUANTS, b + FORMAT_Q3_K_QUANTS, piece, half);
    add_high_bits(a, b, piece, 2, half);
    for (int i = 0; i < 2; i++) half[i] = _mm256_sub_epi8(half[i], _mm256_set1_epi8(4));
}

static BASE_ALWAYS_INLINE void unpack_q4_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    byte_nibbles(a + FORMAT_Q4_K_QUANTS, b + FORMAT_Q4_K_QUANTS, piece, half);
}

static BASE_ALWAYS_INLINE void unpack_q5_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    byte_nibbles(a + FORMAT_Q5_K_QUANTS, b + FORMAT_Q5_K_QUANTS, piece, half);
    add_high_bits(a + FORMAT_Q5_K_HIGH, b + FORMAT_Q5_K_HIGH, piece, 4, half);
}

static BASE_ALWAYS_INLINE void unpack_q6_k(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    const int group = piece % 4;
    const int low = 64 * (piece / 4) + 32 * (group & 1), high = FORMAT_Q6_K_HIGH + 32 * (piece / 4);
    for (int i = 0; i < 2; i++) {
        const __m256i l = bits(avx2_load_pair(a + low + 16 * i, b + low + 16 * i), 4 * (group >> 1), 15);
        const __m256i h = bits(avx2_load_pair(a + high + 16 * i, b + high + 16 * i), 2 * group, 3);
        half[i] = _mm256_sub_epi8(_mm256_or_si256(l, _mm256_slli_epi16(h, 4)), _mm256_set1_epi8(32));
    }
}

static BASE_ALWAYS_INLINE void unpack_iq4_xs(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    const int offset = FORMAT_IQ4_XS_QUANTS + 16 * piece;
    avx2_look_up(a + offset, b + offset, format_iq4_values, half);
}

/* ---- scales: eight of them as the bytes of a word ----------------------------------------------------------------- */

#define LOW_2 0x0303030303030303u /* of every byte */
#define LOW_4 0x0f0f0f0f0f0f0f0fu
#define LOW_6 0x3f3f3f3fu

static inline uint64_t load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight pairs of bits, or eight nibbles, to a byte each; lowest first. */
static inline uint64_t spread_2(uint64_t v) {
    v = (v | v << 24) & 0x000000ff000000ffu;
    v = (v | v << 12) & 0x000f000f000f000fu;
    return (v | v << 6) & LOW_2;
}

static inline uint64_t spread_4(uint64_t v) {
    v = (v | v << 16) & 0x0000ffff0000ffffu;
    v = (v | v << 8) & 0x00ff00ff00ff00ffu;
    return (v | v << 4) & LOW_4;
}

/* (byte j - offset) * d of eight words, a row each, to piece j, or for pieces with two scales to half j % 2 of piece j / 2.
 * Byte - offset is from -128 to 127. */
static BASE_ALWAYS_INLINE void put_scales(const uint64_t words[LANES], int offset, __m256 d, int n_scales, __m256 dst[][2]) {
    __m128i pairs[4], fours[4], columns[4]; /* of rows; of rows; two columns each */
    for (int i = 0; i < 4; i++) {
        const __m128i a = _mm_cvtsi64_si128((int64_t)words[2 * i]), b = _mm_cvtsi64_si128((int64_t)words[2 * i + 1]);
        pairs[i] = _mm_sub_epi8(_mm_unpacklo_epi8(a, b), _mm_set1_epi8((char)offset));
    }
    for (int i = 0; i < 2; i++) {
        fours[i] = _mm_unpacklo_epi16(pairs[2 * i], pairs[2 * i + 1]);
        fours[i + 2] = _mm_unpackhi_epi16(pairs[2 * i], pairs[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        columns[2 * i] = _mm_unpacklo_epi32(fours[2 * i], fours[2 * i + 1]);
        columns[2 * i + 1] = _mm_unpackhi_epi32(fours[2 * i], fours[2 * i + 1]);
    }
    for (int j = 0; j < 8; j++) {
        const __m128i column = j % 2 ? _mm_unpackhi_epi64(columns[j / 2], columns[j / 2]) : columns[j / 2];
        const __m256 scale = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(column)), d);
        dst[j / n_scales][j % n_scales] = scale;
    }
}

static void fill_scales_q2_k(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p, int64_t piece) {
    const __m256 d = avx2_load_halves(rows, offset + FORMAT_Q2_K_D), dmin = avx2_load_halves(rows, offset + FORMAT_Q2_K_DMIN);
    for (int part = 0; part < 2; part++) {
        uint64_t scales[LANES], mins[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint64_t both = load_u64(rows[i] + offset + 8 * part);
            scales[i] = both & LOW_4;
            mins[i] = (both >> 4) & LOW_4;
        }
        put_scales(scales, 0, d, 2, p->scale + piece + 4 * part);
        put_scales(mins, 0, dmin, 2, p->min + piece + 4 * part);
    }
}

static void fill_scales_q3_k(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p, int64_t piece) {
    const __m256 d = avx2_load_halves(rows, offset + FORMAT_Q3_K_D);
    for (int part = 0; part < 2; part++) {
        uint64_t scales[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint8_t *packed = rows[i] + offset + FORMAT_Q3_K_SCALES;
            const uint64_t low = load_u64(packed) >> 4 * part, high = load_u32(packed + 8) >> 4 * part;
            scales[i] = (low & LOW_4) | ((high | high >> 2 << 32) & LOW_2) << 4;
        }
        put_scales(scales, 32, d, 2, p->scale + piece + 4 * part);
    }
}

static void fill_scales_q4_k(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p, int64_t piece) {
    uint64_t scales[LANES], mins[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint8_t *packed = rows[i] + offset + FORMAT_Q4_K_SCALES;
        const uint32_t a = load_u32(packed), b = load_u32(packed + 4), c = load_u32(packed + 8);
        const uint32_t low4 = (uint32_t)LOW_4, upper2 = 0x30303030u;
        scales[i] = (a & LOW_6) | (uint64_t)((c & low4) | ((a >> 2) & upper2)) << 32;
        mins[i] = (b & LOW_6) | (uint64_t)(((c >> 4) & low4) | ((b >> 2) & upper2)) << 32;
    }
    put_scales(scales, 0, avx2_load_halves(rows, offset), 1, p->scale + piece);
    put_scales(mins, 0, avx2_load_halves(rows, offset + 2), 1, p->min + piece);
}

static void fill_scales_q6_k(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p, int64_t piece) {
    const __m256 d = avx2_load_halves(rows, offset + FORMAT_Q6_K_D);
    for (int part = 0; part < 2; part++) {
        uint64_t scales[LANES];
        for (int i = 0; i < LANES; i++) scales[i] = load_u64(rows[i] + offset + FORMAT_Q6_K_SCALES + 8 * part);
        put_scales(scales, 0, d, 2, p->scale + piece + 4 * part);
    }
}

static void fill_scales_iq4_xs(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p, int64_t piece) {
    uint64_t scales[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint8_t *block = rows[i] + offset;
        const uint64_t high = spread_2(half_load_u16(block + FORMAT_IQ4_XS_HIGH));
        scales[i] = spread_4(load_u32(block + FORMAT_IQ4_XS_LOW)) | high << 4;
    }
    put_scales(scales, 32, avx2_load_halves(rows, offset), 1, p->scale + piece);
}

AVX2_LINEAR(q2_k, fill_scales_q2_k)
AVX2_LINEAR(q3_k, fill_scales_q3_k)
AVX2_LINEAR(q4_k, fill_scales_q4_k)
AVX2_LINEAR(q5_k, fill_scales_q4_k) /* its blocks begin alike */
AVX2_LINEAR(q6_k, fill_scales_q6_k)
AVX2_LINEAR(iq4_xs, fill_scales_iq4_xs)

void avx2_linear_k_entries(kernel_table *t) {
    t->linear[KERNEL_Q2_K] = linear_q2_k;
    t->linear[KERNEL_Q3_K] = linear_q3_k;
    t->linear[KERNEL_Q4_K] = linear_q4_k;
    t->linear[KERNEL_Q5_K] = linear_q5_k;
    t->linear[KERNEL_Q6_K] = linear_q6_k;
    t->linear[KERNEL_IQ4_XS] = linear_iq4_xs;
}
