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
    avx2_subtract(q, 8);
}

static BASE_ALWAYS_INLINE void unpack_q4_1(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_nibbles(quants, 0, q);
}

static BASE_ALWAYS_INLINE void unpack_q5_0(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_nibbles(quants, 1, q);
    add_fifth_bits(quants, 0, q);
    avx2_subtract(q, 16);
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
    avx2_look_up(quants, 0, format_iq4_values, q);
}

static BASE_ALWAYS_INLINE void unpack_mxfp4(const uint8_t *quants, int piece, __m256i q[8]) {
    (void)piece;
    avx2_look_up(quants, 0, format_fp4_values, q);
}

/* ---- scales ------------------------------------------------------------------------------------------------------- */

/* d alone: eight f16 side by side. */
static BASE_ALWAYS_INLINE void fill_scales_simple(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    p->scale[piece][0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)rest));
}

/* d, m; w = d * q + m. */
static BASE_ALWAYS_INLINE void fill_scales_min(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    p->scale[piece][0] = avx2_load_halves(rest, 4, 0);
    p->min[piece][0] = _mm256_xor_ps(avx2_load_halves(rest, 4, 2), _mm256_set1_ps(-0.0f));
}

static BASE_ALWAYS_INLINE void fill_scales_power(const uint8_t *rest, avx2_panel *p, int64_t piece) {
    float scale[LANES];
    for (int i = 0; i < LANES; i++) scale[i] = half_power_of_two(rest[i]);
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
