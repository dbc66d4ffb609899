/* linear_k_avx2.c: products of weights in blocks of 256 (quant_avx2.h has the products themselves).
 *
 * A block holds eight pieces. Scales are unpacked for eight rows at once: eight of a row become the bytes of a word, and
 * eight such words are transposed.
 */
#include "kernels/x86/quant_avx2.h"

/* ---- unpacking ---------------------------------------------------------------------------------------------------- */

/* q of Q2_K and Q3_K (low bits): 8 dwords from `first` on for four pieces, two bits each. */
static BASE_ALWAYS_INLINE void two_bits(const uint8_t *quants, int first, int piece, __m256i q[8]) {
    for (int g = 0; g < 8; g++) q[g] = avx2_bits(avx2_dwords(quants, first + 8 * (piece / 4) + g), 2 * (piece % 4), 3);
}

/* q of Q4_K and Q5_K (low bits): 8 dwords for two pieces, a nibble each. */
static BASE_ALWAYS_INLINE void byte_nibbles(const uint8_t *quants, int first, int piece, __m256i q[8]) {
    for (int g = 0; g < 8; g++) q[g] = avx2_bits(avx2_dwords(quants, first + 8 * (piece / 2) + g), 4 * (piece & 1), 15);
}

/* Bit `piece` of every byte of the first 8 dwords is bit `to` of its element. */
static BASE_ALWAYS_INLINE void add_high_bits(const uint8_t *quants, int piece, int to, __m256i q[8]) {
    for (int g = 0; g < 8; g++) q[g] = _mm256_or_si256(q[g], _mm256_slli_epi16(avx2_bits(avx2_dwords(quants, g), piece, 1), to));
}

static BASE_ALWAYS_INLINE void unpack_q2_k(const uint8_t *quants, int piece, __m256i q[8]) { two_bits(quants, 0, piece, q); }

static BASE_ALWAYS_INLINE void unpack_q3_k(const uint8_t *quants, int piece, __m256i q[8]) {
    two_bits(quants, 8, piece, q);
    add_high_bits(quants, piece, 2, q);
    avx2_subtract(q, 4);
}

static BASE_ALWAYS_INLINE void unpack_q4_k(const uint8_t *quants, int piece, __m256i q[8]) { byte_nibbles(quants, 0, piece, q); }

static BASE_ALWAYS_INLINE void unpack_q5_k(const uint8_t *quants, int piece, __m256i q[8]) {
    byte_nibbles(quants, 8, piece, q);
    add_high_bits(quants, piece, 4, q);
}

static BASE_ALWAYS_INLINE void unpack_q6_k(const uint8_t *quants, int piece, __m256i q[8]) {
    const int group = piece % 4, low = 16 * (piece / 4) + 8 * (group & 1), high = 32 + 8 * (piece / 4);
    for (int g = 0; g < 8; g++) {
        const __m256i l = avx2_bits(avx2_dwords(quants, low + g), 4 * (group >> 1), 15);
        q[g] = _mm256_or_si256(l, _mm256_slli_epi16(avx2_bits(avx2_dwords(quants, high + g), 2 * group, 3), 4));
    }
    avx2_subtract(q, 32);
}

static BASE_ALWAYS_INLINE void unpack_iq4_xs(const uint8_t *quants, int piece, __m256i q[8]) {
    avx2_look_up(quants, 4 * piece, format_iq4_values, q);
}

#define REST(name, offset) format_rest_offset(&format_##name, offset)

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

static void fill_scales_q2_k(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    const __m256 d = avx2_load_halves(rest, format_rest_bytes(&format_q2_k), REST(q2_k, FORMAT_Q2_K_D)),
                 dmin = avx2_load_halves(rest, format_rest_bytes(&format_q2_k), REST(q2_k, FORMAT_Q2_K_DMIN));
    for (int part = 0; part < 2; part++) {
        uint64_t scales[LANES], mins[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint64_t both = load_u64(rest + i * format_rest_bytes(&format_q2_k) + 8 * part);
            scales[i] = both & LOW_4;
            mins[i] = (both >> 4) & LOW_4;
        }
        put_scales(scales, 0, d, 2, p->scale + piece + 4 * part);
        put_scales(mins, 0, dmin, 2, p->min + piece + 4 * part);
    }
}

static void fill_scales_q3_k(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    const __m256 d = avx2_load_halves(rest, format_rest_bytes(&format_q3_k), REST(q3_k, FORMAT_Q3_K_D));
    for (int part = 0; part < 2; part++) {
        uint64_t scales[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint8_t *packed = rest + i * format_rest_bytes(&format_q3_k) + REST(q3_k, FORMAT_Q3_K_SCALES);
            const uint64_t low = load_u64(packed) >> 4 * part, high = load_u32(packed + 8) >> 4 * part;
            scales[i] = (low & LOW_4) | ((high | high >> 2 << 32) & LOW_2) << 4;
        }
        put_scales(scales, 32, d, 2, p->scale + piece + 4 * part);
    }
}

static void fill_scales_q4_k(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    uint64_t scales[LANES], mins[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint8_t *packed = rest + i * format_rest_bytes(&format_q4_k) + FORMAT_Q4_K_SCALES;
        const uint32_t a = load_u32(packed), b = load_u32(packed + 4), c = load_u32(packed + 8);
        const uint32_t low4 = (uint32_t)LOW_4, upper2 = 0x30303030u;
        scales[i] = (a & LOW_6) | (uint64_t)((c & low4) | ((a >> 2) & upper2)) << 32;
        mins[i] = (b & LOW_6) | (uint64_t)(((c >> 4) & low4) | ((b >> 2) & upper2)) << 32;
    }
    put_scales(scales, 0, avx2_load_halves(rest, format_rest_bytes(&format_q4_k), 0), 1, p->scale + piece);
    put_scales(mins, 0, avx2_load_halves(rest, format_rest_bytes(&format_q4_k), 2), 1, p->min + piece);
}

static void fill_scales_q6_k(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    const __m256 d = avx2_load_halves(rest, format_rest_bytes(&format_q6_k), REST(q6_k, FORMAT_Q6_K_D));
    for (int part = 0; part < 2; part++) {
        uint64_t scales[LANES];
        for (int i = 0; i < LANES; i++) scales[i] = load_u64(rest + i * format_rest_bytes(&format_q6_k) + REST(q6_k, FORMAT_Q6_K_SCALES) + 8 * part);
        put_scales(scales, 0, d, 2, p->scale + piece + 4 * part);
    }
}

static void fill_scales_iq4_xs(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    uint64_t scales[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint8_t *block = rest + i * format_rest_bytes(&format_iq4_xs);
        const uint64_t high = spread_2(half_load_u16(block + FORMAT_IQ4_XS_HIGH));
        scales[i] = spread_4(load_u32(block + FORMAT_IQ4_XS_LOW)) | high << 4;
    }
    put_scales(scales, 32, avx2_load_halves(rest, format_rest_bytes(&format_iq4_xs), 0), 1, p->scale + piece);
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
