/* linear_quant_avx2.c: products of weights in blocks of 32 (quant_avx2.h has the products themselves). */
#include "kernels/x86/quant_avx2.h"

/* ---- unpacking; a block is one piece ------------------------------------------------------------------------------ */

/* Bit i of a block's dword `first` is bit 4 of element i: its byte goes to all four of a dword, each of which looks at one bit. */
static BASE_ALWAYS_INLINE void add_fifth_bits(const uint8_t *quants, int first, __m256i q[8]) {
    const __m256i words = avx2_dwords(quants, first);
    for (int g = 0; g < 8; g++) {
        const int byte = g / 2;
        const __m256i at = _mm256_add_epi8(_mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c),
                                           _mm256_set1_epi8((char)byte));
        const __m256i bit = _mm256_set1_epi32(g % 2 ? (int)0x80402010u : 0x08040201);
        const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(words, at), bit), bit);
        q[g] = _mm256_or_si256(q[g], _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
}

static BASE_ALWAYS_INLINE void unpack_q4_0(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_nibbles(quants, 0, q);
}

static BASE_ALWAYS_INLINE void unpack_q4_1(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_nibbles(quants, 0, q);
}

static BASE_ALWAYS_INLINE void unpack_q5_0(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_nibbles(quants, 1, q);
    add_fifth_bits(quants, 0, q);
}

static BASE_ALWAYS_INLINE void unpack_q5_1(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_nibbles(quants, 1, q);
    add_fifth_bits(quants, 0, q);
}

static BASE_ALWAYS_INLINE void unpack_q8_0(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    for (int g = 0; g < 8; g++) q[g] = avx2_dwords(quants, g);
}

static BASE_ALWAYS_INLINE void unpack_iq4_nl(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_look_up(quants, 0, format_iq4_values, avx2_zero_point(&format_iq4_nl), q);
}

static BASE_ALWAYS_INLINE void unpack_mxfp4(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_look_up(quants, 0, format_fp4_values, avx2_zero_point(&format_mxfp4), q);
}

/* ---- scales ------------------------------------------------------------------------------------------------------- */

/* d alone. */
static BASE_ALWAYS_INLINE void fill_scales_simple(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    s->scale[piece][0] = avx2_load_halves(rest);
}

/* d, m; w = d * q + m. */
static BASE_ALWAYS_INLINE void fill_scales_min(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    __m256 m;
    avx2_split_halves(avx2_dwords(rest, 0), &s->scale[piece][0], &m);
    s->min[piece][0] = _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
}

/* e: 2^(e - 128), subnormal for 0 and 1 (half_power_of_two). */
static BASE_ALWAYS_INLINE void fill_scales_power(const uint8_t *rest, avx2_scales *s, int64_t piece) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)rest));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i bits = _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    s->scale[piece][0] = _mm256_castsi256_ps(bits);
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
