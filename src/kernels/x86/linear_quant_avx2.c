/* linear_quant_avx2.c: products of weights in blocks of 32 (quant_avx2.h has the products themselves). */
#include "kernels/x86/quant_avx2.h"

/* ---- unpacking; a block is one piece ------------------------------------------------------------------------------ */

static BASE_ALWAYS_INLINE void subtract(__m256i half[2], int value) {
    for (int i = 0; i < 2; i++) half[i] = _mm256_sub_epi8(half[i], _mm256_set1_epi8((char)value));
}

static BASE_ALWAYS_INLINE __m256i load_dword_pair(const uint8_t *a, const uint8_t *b) {
    int32_t low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(low)), _mm_set1_epi32(high), 1);
}

/* Bit i of 32 is the fifth of element i: its byte goes to all eight elements, each of which looks at one bit. */
static BASE_ALWAYS_INLINE void add_fifth_bits(const uint8_t *a, const uint8_t *b, __m256i half[2]) {
    const __m256i words = load_dword_pair(a, b), bits = _mm256_set1_epi64x((long long)0x8040201008040201u);
    for (int i = 0; i < 2; i++) {
        const long long first = 0x0101010101010101 * (2 * i), second = 0x0101010101010101 * (2 * i + 1);
        const __m256i spread = _mm256_shuffle_epi8(words, _mm256_setr_epi64x(first, second, first, second));
        const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
        half[i] = _mm256_or_si256(half[i], _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
}

static BASE_ALWAYS_INLINE void unpack_q4_0(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    avx2_nibbles(a + 2, b + 2, half);
    subtract(half, 8);
}

static BASE_ALWAYS_INLINE void unpack_q4_1(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    avx2_nibbles(a + 4, b + 4, half);
}

static BASE_ALWAYS_INLINE void unpack_q5_0(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    avx2_nibbles(a + 6, b + 6, half);
    add_fifth_bits(a + 2, b + 2, half);
    subtract(half, 16);
}

static BASE_ALWAYS_INLINE void unpack_q5_1(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    avx2_nibbles(a + 8, b + 8, half);
    add_fifth_bits(a + 4, b + 4, half);
}

static BASE_ALWAYS_INLINE void unpack_q8_0(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    half[0] = avx2_load_pair(a + 2, b + 2);
    half[1] = avx2_load_pair(a + 18, b + 18);
}

static BASE_ALWAYS_INLINE void unpack_iq4_nl(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    avx2_look_up(a + 2, b + 2, format_iq4_values, half);
}

static BASE_ALWAYS_INLINE void unpack_mxfp4(const uint8_t *a, const uint8_t *b, int piece, __m256i half[2]) {
    (void)piece;
    avx2_look_up(a + 1, b + 1, format_fp4_values, half);
}

/* ---- scales ------------------------------------------------------------------------------------------------------- */

/* d stands first in the block. */
static BASE_ALWAYS_INLINE void fill_scales_simple(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p,
                                                  int64_t piece) {
    p->scale[piece][0] = avx2_load_halves(rows, offset);
}

/* d, m; w = d * q + m. */
static BASE_ALWAYS_INLINE void fill_scales_min(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p,
                                               int64_t piece) {
    p->scale[piece][0] = avx2_load_halves(rows, offset);
    p->min[piece][0] = _mm256_xor_ps(avx2_load_halves(rows, offset + 2), _mm256_set1_ps(-0.0f));
}

static BASE_ALWAYS_INLINE void fill_scales_power(const uint8_t *const rows[LANES], int64_t offset, avx2_panel *p,
                                                 int64_t piece) {
    float scale[LANES];
    for (int i = 0; i < LANES; i++) scale[i] = half_power_of_two(rows[i][offset]);
    p->scale[piece][0] = _mm256_loadu_ps(scale);
}

AVX2_LINEAR(q4_0, fill_scales_simple)
AVX2_LINEAR(q4_1, fill_scales_min)
AVX2_LINEAR(q5_0, fill_scales_simple)
AVX2_LINEAR(q5_1, fill_scales_min)
AVX2_LINEAR(q8_0, fill_scales_simple)
AVX2_LINEAR(iq4_nl, fill_scales_simple)
AVX2_LINEAR(mxfp4, fill_scales_power)

void avx2_linear_quant_entries(kernel_table *t) {
    t->linear[KERNEL_Q4_0] = linear_q4_0;
    t->linear[KERNEL_Q4_1] = linear_q4_1;
    t->linear[KERNEL_Q5_0] = linear_q5_0;
    t->linear[KERNEL_Q5_1] = linear_q5_1;
    t->linear[KERNEL_Q8_0] = linear_q8_0;
    t->linear[KERNEL_IQ4_NL] = linear_iq4_nl;
    t->linear[KERNEL_MXFP4] = linear_mxfp4;
}
