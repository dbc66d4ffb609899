/* linear_k_avx2.c: products of weights in blocks of 256 (quant_avx2.h has the products themselves).
 *
 * A block holds eight pieces. Its scales come packed too: a vector holds four bytes of each of eight rows.
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
    for (int g = 0; g < 8; g++) q[g] = _mm256_sub_epi8(q[g], _mm256_set1_epi8(32));
}

static BASE_ALWAYS_INLINE void unpack_iq4_xs(const uint8_t *quants, int piece, __m256i q[8]) {
    avx2_look_up(quants, 4 * piece, format_iq4_values, avx2_zero_point(&format_iq4_xs), q);
}

/* ---- scales ------------------------------------------------------------------------------------------------------- */

/* Dword of eight rows' rest that holds the byte at `offset` of a block, and where its f16 begin. */
#define REST_DWORD(name, offset, rest) avx2_dwords(rest, format_rest_offset(&format_##name, offset) / 4)
#define REST_HALVES(name, offset, rest) avx2_load_halves((rest) + LANES * format_rest_offset(&format_##name, offset))

static BASE_ALWAYS_INLINE __m256 times(__m256i v, __m256 d) { return _mm256_mul_ps(_mm256_cvtepi32_ps(v), d); }

/* (byte k of a dword - offset) * d, for k = 0..3, to place first + k of a row of pieces with n places each. */
static BASE_ALWAYS_INLINE void put_scales(__m256i dwords, int offset, __m256 d, int n, int first, __m256 dst[][2]) {
    BASE_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m256i byte = _mm256_and_si256(_mm256_srli_epi32(dwords, 8 * k), _mm256_set1_epi32(255));
        dst[(first + k) / n][(first + k) % n] = times(_mm256_sub_epi32(byte, _mm256_set1_epi32(offset)), d);
    }
}

static BASE_ALWAYS_INLINE void fill_scales_q2_k(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    __m256 d, dmin;
    avx2_split_halves(REST_DWORD(q2_k, FORMAT_Q2_K_D, rest), &d, &dmin);
    for (int i = 0; i < 4; i++) {
        const __m256i both = avx2_dwords(rest, i);
        put_scales(avx2_bits(both, 0, 15), 0, d, 2, 4 * i, s->scale + piece);
        put_scales(avx2_bits(both, 4, 15), 0, dmin, 2, 4 * i, s->min + piece);
    }
}

static BASE_ALWAYS_INLINE void fill_scales_q3_k(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    const __m256 d = REST_HALVES(q3_k, FORMAT_Q3_K_D, rest);
    const __m256i high = avx2_dwords(rest, 2);
    BASE_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m256i low = avx2_bits(avx2_dwords(rest, i % 2), 4 * (i / 2), 15);
        const __m256i upper = _mm256_slli_epi16(avx2_bits(high, 2 * i, 3), 4);
        put_scales(_mm256_or_si256(low, upper), 32, d, 2, 4 * i, s->scale + piece);
    }
}

static BASE_ALWAYS_INLINE void fill_scales_q4_k(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    __m256 d, dmin;
    avx2_split_halves(avx2_dwords(rest, 0), &d, &dmin);
    const __m256i a = avx2_dwords(rest, 1), b = avx2_dwords(rest, 2), c = avx2_dwords(rest, 3), upper = _mm256_set1_epi8(0x30);
    const __m256i scales = _mm256_or_si256(avx2_bits(c, 0, 15), _mm256_and_si256(_mm256_srli_epi16(a, 2), upper));
    const __m256i mins = _mm256_or_si256(avx2_bits(c, 4, 15), _mm256_and_si256(_mm256_srli_epi16(b, 2), upper));
    put_scales(avx2_bits(a, 0, 63), 0, d, 1, 0, s->scale + piece);
    put_scales(scales, 0, d, 1, 4, s->scale + piece);
    put_scales(avx2_bits(b, 0, 63), 0, dmin, 1, 0, s->min + piece);
    put_scales(mins, 0, dmin, 1, 4, s->min + piece);
}

static BASE_ALWAYS_INLINE void fill_scales_q6_k(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    const __m256 d = REST_HALVES(q6_k, FORMAT_Q6_K_D, rest);
    for (int i = 0; i < 4; i++) {
        const __m256i unsigned_bytes = _mm256_xor_si256(avx2_dwords(rest, i), _mm256_set1_epi8((char)0x80));
        put_scales(unsigned_bytes, 128, d, 2, 4 * i, s->scale + piece);
    }
}

static BASE_ALWAYS_INLINE void fill_scales_iq4_xs(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    const __m256i first = avx2_dwords(rest, 0), low = avx2_dwords(rest, 1), high = _mm256_srli_epi32(first, 16);
    __m256 d, unused;
    avx2_split_halves(first, &d, &unused);
    (void)unused;
    BASE_UNROLL
    for (int j = 0; j < 8; j++) {
        const __m256i four = _mm256_and_si256(_mm256_srli_epi32(low, 4 * j), _mm256_set1_epi32(15));
        const __m256i two = _mm256_and_si256(_mm256_srli_epi32(high, 2 * j), _mm256_set1_epi32(3));
        const __m256i v = _mm256_sub_epi32(_mm256_or_si256(four, _mm256_slli_epi32(two, 4)), _mm256_set1_epi32(32));
        s->scale[piece + j][0] = times(v, d);
    }
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
