/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_emulated.h: the AVX-512 and AVX-VNNI instructions of the kernels, emulated with AVX2, to run the kernels' own
 * files on processors without them. A file named *_on_avx2.c includes this and then the kernels' file. Intel's manual
 * (SDM, volume 2) defines each instruction; 512 bits are two halves here.
 */
#ifndef SUPPORT_AVX512_EMULATED_H
#define SUPPORT_AVX512_EMULATED_H

#include <immintrin.h> /* before its names are redefined */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

typedef struct emulated_512 {
    __m256i half[2];
} emulated_512;

#define __m512 emulated_512
#define __m512i emulated_512
#define LANES_KEEP(v) ((void)(v)) /* no registers to keep */

/* Unrolled, the code would be twice that of AVX2, and four times as long to compile. */
#undef BASE_UNROLL
#define BASE_UNROLL

/* The kernels' names, which the library uses as well. */
#define kernel_table_avxvnni emulated_table_avxvnni
#define kernel_table_avx512 emulated_table_avx512
#define avx512_linear_quant emulated_linear_quant
#define avx512_linear_float_entries emulated_linear_float_entries
#define avx512_attention_entries emulated_attention_entries
#define avx512_recurrence_entries emulated_recurrence_entries
#define avx512_attention_int8_entries emulated_attention_int8_entries
#define avxvnni_attention_int8_entries emulated_attention_int8_entries_256

/* emulated_NAME replaces _mm512_NAME: `value` is half h of the result. F: a half as floats, I: back. */
#define EMULATE(name, parameters, value) \
    static inline emulated_512 emulated_##name parameters { \
        emulated_512 r; \
        for (int h = 0; h < 2; h++) r.half[h] = (value); \
        return r; \
    }
#define F(v) _mm256_castsi256_ps((v).half[h])
#define I(v) _mm256_castps_si256(v)

/* All bits of lane i of half h where bit 8h + i of a mask is set. */
static inline __m256i emulated_lanes(unsigned mask, int h) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(mask >> 8 * h)), bit), bit);
}

/* ---- floats
   --------------------------------------------------------------------------------------------------------- */

EMULATE(setzero_ps, (void), _mm256_setzero_si256())
EMULATE(set1_ps, (float a), I(_mm256_set1_ps(a)))
EMULATE(loadu_ps, (const void *p), _mm256_loadu_si256((const __m256i *)p + h))
EMULATE(maskz_loadu_ps, (unsigned mask, const float *p), I(_mm256_maskload_ps(p + 8 * h, emulated_lanes(mask, h))))
EMULATE(mul_ps, (emulated_512 a, emulated_512 b), I(_mm256_mul_ps(F(a), F(b))))
EMULATE(fmadd_ps, (emulated_512 a, emulated_512 b, emulated_512 c), I(_mm256_fmadd_ps(F(a), F(b), F(c))))
EMULATE(fnmadd_ps, (emulated_512 a, emulated_512 b, emulated_512 c), I(_mm256_fnmadd_ps(F(a), F(b), F(c))))
EMULATE(xor_ps, (emulated_512 a, emulated_512 b), _mm256_xor_si256(a.half[h], b.half[h]))
EMULATE(cvtepi32_ps, (emulated_512 a), I(_mm256_cvtepi32_ps(a.half[h])))
EMULATE(castsi512_ps, (emulated_512 a), a.half[h])
EMULATE(castps_si512, (emulated_512 a), a.half[h])
EMULATE(cvtps_epi32, (emulated_512 a), _mm256_cvtps_epi32(F(a)))
EMULATE(max_ps, (emulated_512 a, emulated_512 b), I(_mm256_max_ps(F(a), F(b))))
EMULATE(sub_ps, (emulated_512 a, emulated_512 b), I(_mm256_sub_ps(F(a), F(b))))
EMULATE(cvtph_ps, (__m256i a), I(_mm256_cvtph_ps(h ? _mm256_extracti128_si256(a, 1) : _mm256_castsi256_si128(a))))

static inline void emulated_mask_storeu_ps(float *p, unsigned mask, emulated_512 a) {
    for (int h = 0; h < 2; h++) _mm256_maskstore_ps(p + 8 * h, emulated_lanes(mask, h), F(a));
}

static inline void emulated_storeu_ps(float *p, emulated_512 a) { emulated_mask_storeu_ps(p, 0xffff, a); }

/* Rounds to nearest, whatever the mode. */
static inline __m256i emulated_cvtps_ph(emulated_512 a, int rounding) {
    __m128i r[2];
    (void)rounding;
    for (int h = 0; h < 2; h++) r[h] = _mm256_cvtps_ph(F(a), _MM_FROUND_TO_NEAREST_INT);
    return _mm256_set_m128i(r[1], r[0]);
}

/* ---- integers
   ------------------------------------------------------------------------------------------------------- */

/* One AVX2 instruction for each half. */
#define EMULATE_TWO(name) EMULATE(name, (emulated_512 a, emulated_512 b), _mm256_##name(a.half[h], b.half[h]))
#define EMULATE_SHIFT(name) EMULATE(name, (emulated_512 a, unsigned n), _mm256_##name(a.half[h], (int)n))

EMULATE(set1_epi8, (char a), _mm256_set1_epi8(a))
EMULATE(set1_epi32, (int a), _mm256_set1_epi32(a))
EMULATE(loadu_si512, (const void *p), _mm256_loadu_si256((const __m256i *)p + h))
EMULATE(broadcast_i32x4, (__m128i a), _mm256_broadcastsi128_si256(a))
EMULATE(and_si512, (emulated_512 a, emulated_512 b), _mm256_and_si256(a.half[h], b.half[h]))
EMULATE(or_si512, (emulated_512 a, emulated_512 b), _mm256_or_si256(a.half[h], b.half[h]))
EMULATE_TWO(add_epi8)
EMULATE_TWO(add_epi32)
EMULATE_TWO(max_epi32)
EMULATE_TWO(sub_epi32)
EMULATE_TWO(sllv_epi32)
EMULATE_TWO(shuffle_epi8)
EMULATE_TWO(madd_epi16)
EMULATE_SHIFT(srli_epi16)
EMULATE_SHIFT(slli_epi16)
EMULATE_SHIFT(srli_epi32)
EMULATE_SHIFT(slli_epi32)
EMULATE(mask_blend_epi32, (unsigned mask, emulated_512 a, emulated_512 b),
        _mm256_blendv_epi8(a.half[h], b.half[h], emulated_lanes(mask, h)))
EMULATE(cvtepu8_epi32, (__m128i a), _mm256_cvtepu8_epi32(h ? _mm_srli_si128(a, 8) : a))
EMULATE(cvtepu16_epi32, (__m256i a),
        _mm256_cvtepu16_epi32(h ? _mm256_extracti128_si256(a, 1) : _mm256_castsi256_si128(a)))

/* Lower halves of the lanes. */
static inline __m256i emulated_cvtepi32_epi16(emulated_512 a) {
    uint32_t from[16];
    uint16_t to[16];
    memcpy(from, &a, sizeof from);
    for (int i = 0; i < 16; i++) to[i] = (uint16_t)from[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)to);
}

/* The lanes in 16 bits, saturated. */
static inline __m256i emulated_cvtsepi32_epi16(emulated_512 a) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a.half[0], a.half[1]),
                                    0xd8); /* packing works in 128-bit halves */
}

static inline emulated_512 emulated_maskz_set1_epi8(uint64_t mask, char a) {
    emulated_512 r;
    char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (char)(mask >> i & 1 ? a : 0);
    memcpy(&r, bytes, sizeof r);
    return r;
}

static inline __mmask64 emulated_test_epi8_mask(emulated_512 a, emulated_512 b) {
    uint64_t mask = 0;
    for (int h = 0; h < 2; h++) {
        const __m256i none = _mm256_cmpeq_epi8(_mm256_and_si256(a.half[h], b.half[h]), _mm256_setzero_si256());
        mask |= (uint64_t)(uint32_t)~_mm256_movemask_epi8(none) << 32 * h;
    }
    return mask;
}

static inline __mmask16 emulated_cmplt_epi32_mask(emulated_512 a, emulated_512 b) {
    int mask = 0;
    for (int h = 0; h < 2; h++)
        mask |= _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.half[h], a.half[h]))) << 8 * h;
    return (__mmask16)mask;
}

/* Adds four products of unsigned by signed bytes to each lane: those of the even bytes, then of the odd ones. Products
 * fit 16 bits, their pairwise sums 32. */
static inline __m256i emulated_dpbusd_256(__m256i sum, __m256i a, __m256i b) {
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

EMULATE(dpbusd_epi32, (emulated_512 sum, emulated_512 a, emulated_512 b),
        emulated_dpbusd_256(sum.half[h], a.half[h], b.half[h]))

/* Adds both products of signed 16-bit pairs to each lane. */
static inline __m256i emulated_dpwssd_256(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

EMULATE(dpwssd_epi32, (emulated_512 sum, emulated_512 a, emulated_512 b),
        emulated_dpwssd_256(sum.half[h], a.half[h], b.half[h]))
EMULATE(cvtepi8_epi16, (__m256i a),
        _mm256_cvtepi8_epi16(h ? _mm256_extracti128_si256(a, 1) : _mm256_castsi256_si128(a)))

static inline void emulated_storeu_si512(void *p, emulated_512 a) {
    for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)p + h, a.half[h]);
}

#undef EMULATE
#undef EMULATE_TWO
#undef EMULATE_SHIFT
#undef F
#undef I

/* ---- the names
   ------------------------------------------------------------------------------------------------------ */

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd_256
#define _mm256_dpwssd_avx_epi32 emulated_dpwssd_256
#define _mm512_add_epi8 emulated_add_epi8
#define _mm512_add_epi32 emulated_add_epi32
#define _mm512_and_si512 emulated_and_si512
#define _mm512_broadcast_i32x4 emulated_broadcast_i32x4
#define _mm512_castps_si512 emulated_castps_si512
#define _mm512_castsi512_ps emulated_castsi512_ps
#undef _mm512_cmplt_epi32_mask
#define _mm512_cmplt_epi32_mask emulated_cmplt_epi32_mask
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph emulated_cvtps_ph
#define _mm512_cvtepi8_epi16 emulated_cvtepi8_epi16
#define _mm512_cvtsepi32_epi16 emulated_cvtsepi32_epi16
#define _mm512_dpbusd_epi32 emulated_dpbusd_epi32
#define _mm512_dpwssd_epi32 emulated_dpwssd_epi32
#define _mm512_fmadd_ps emulated_fmadd_ps
#define _mm512_fnmadd_ps emulated_fnmadd_ps
#define _mm512_loadu_ps emulated_loadu_ps
#define _mm512_loadu_si512 emulated_loadu_si512
#define _mm512_madd_epi16 emulated_madd_epi16
#define _mm512_mask_blend_epi32 emulated_mask_blend_epi32
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
#define _mm512_maskz_set1_epi8 emulated_maskz_set1_epi8
#define _mm512_max_epi32 emulated_max_epi32
#define _mm512_max_ps emulated_max_ps
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_or_si512 emulated_or_si512
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_set1_epi8 emulated_set1_epi8
#define _mm512_set1_ps emulated_set1_ps
#define _mm512_setzero_ps emulated_setzero_ps
#define _mm512_shuffle_epi8 emulated_shuffle_epi8
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 emulated_slli_epi16
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 emulated_slli_epi32
#define _mm512_sllv_epi32 emulated_sllv_epi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 emulated_srli_epi16
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 emulated_srli_epi32
#define _mm512_storeu_ps emulated_storeu_ps
#define _mm512_storeu_si512 emulated_storeu_si512
#define _mm512_sub_epi32 emulated_sub_epi32
#define _mm512_sub_ps emulated_sub_ps
#define _mm512_test_epi8_mask emulated_test_epi8_mask
#define _mm512_xor_ps emulated_xor_ps

#endif
