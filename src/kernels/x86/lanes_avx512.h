/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_avx512.h: the AVX-512 (F, BW, DQ, VL) primitives for the code in kernels/lanes/ (arm/lanes_neon.h documents
 * each). For files named *_avx512.c. */
#ifndef KERNELS_X86_LANES_AVX512_H
#define KERNELS_X86_LANES_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/formats.h"
#include "kernels/half.h"
#include "kernels/prefetch.h"

#define LANES 16
#define LANES_GROUPS 2
#define LANES_SUMS 16
#if !defined(LANES_KEEP) /* tests emulate the set without its registers */
#define LANES_KEEP(v) __asm__("" \
                              : "+v"(v))
#endif

typedef __m512i lanes_bytes;
typedef __m512i lanes_ints;
typedef __m512 lanes_floats;

/* ---- floats
   --------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_floats lanes_zero(void) { return _mm512_setzero_ps(); }

static BASE_ALWAYS_INLINE lanes_floats lanes_broadcast(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_ps(v);
}

/* A mask of the first n lanes, 0 < n <= 16. Memory of the other lanes is not accessed. */
static BASE_ALWAYS_INLINE __mmask16 first_lanes(int64_t n) { return (__mmask16)(0xffffu >> (LANES - n)); }

static BASE_ALWAYS_INLINE lanes_floats lanes_load_first(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static BASE_ALWAYS_INLINE void lanes_store_first(float *p, lanes_floats v, int64_t n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
static BASE_ALWAYS_INLINE void lanes_store(float *p, lanes_floats v) { _mm512_storeu_ps(p, v); }
static BASE_ALWAYS_INLINE lanes_floats lanes_multiply(lanes_floats a, lanes_floats b) { return _mm512_mul_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_floats lanes_fma(lanes_floats a, lanes_floats b, lanes_floats acc) {
    return _mm512_fmadd_ps(a, b, acc);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_fnma(lanes_floats a, lanes_floats b, lanes_floats acc) {
    return _mm512_fnmadd_ps(a, b, acc);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_negate(lanes_floats v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }
static BASE_ALWAYS_INLINE lanes_floats lanes_to_floats(lanes_ints v) { return _mm512_cvtepi32_ps(v); }
static BASE_ALWAYS_INLINE lanes_floats lanes_max(lanes_floats a, lanes_floats b) { return _mm512_max_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_floats lanes_low_bits_as_exponents(lanes_floats v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 23));
}

static BASE_ALWAYS_INLINE lanes_floats lanes_load_f32(const uint8_t *p) { return _mm512_loadu_ps(p); }

static BASE_ALWAYS_INLINE __m256i load_halves(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_load_f16(const uint8_t *p) { return _mm512_cvtph_ps(load_halves(p)); }

static BASE_ALWAYS_INLINE lanes_floats lanes_load_bf16(const uint8_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(p)), 16));
}

static BASE_ALWAYS_INLINE void lanes_store_f16(uint16_t *p, const float *x) {
    const __m256i h = _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)p, h);
}

/* ---- bytes
   ---------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_bytes lanes_load(const uint8_t *p) { return _mm512_loadu_si512(p); }

static BASE_ALWAYS_INLINE lanes_bytes lanes_bits(lanes_bytes v, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)shift), _mm512_set1_epi8((char)mask));
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_shift_left(lanes_bytes v, int n) {
    return _mm512_slli_epi16(v, (unsigned)n);
}
static BASE_ALWAYS_INLINE lanes_bytes lanes_or(lanes_bytes a, lanes_bytes b) { return _mm512_or_si512(a, b); }
static BASE_ALWAYS_INLINE lanes_bytes lanes_add(lanes_bytes v, int number) {
    return _mm512_add_epi8(v, _mm512_set1_epi8((char)number));
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_table(const int8_t values[16]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)values));
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_look_up(lanes_bytes table, lanes_bytes v) {
    return _mm512_shuffle_epi8(table, v);
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_spread_bits(lanes_bytes words, int g, int value) {
    const __m512i lane = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const __m512i byte = _mm512_shuffle_epi8(words, _mm512_add_epi8(lane, _mm512_set1_epi8((char)(g / 2))));
    const __m512i bit = _mm512_set1_epi32(g % 2 ? (int)0x80402010u : 0x08040201);
    return _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(byte, bit), (char)value);
}

/* ---- integers: for lanes_vnni.inc (see lanes_avx2.h)
   ---------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_bytes lanes_broadcast_dword(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

static BASE_ALWAYS_INLINE lanes_ints lanes_times_sums(int factor, const uint8_t *p, bool first, bool second) {
    const uint32_t low = first ? (uint16_t)factor : 0, high = second ? (uint16_t)factor : 0;
    return _mm512_madd_epi16(lanes_broadcast_dword(p), _mm512_set1_epi32((int)(low | high << 16)));
}

/* ---- scales
   --------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE void lanes_split_f16(lanes_bytes v, lanes_floats *low, lanes_floats *high) {
    *low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
    *high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
}

static BASE_ALWAYS_INLINE lanes_ints lanes_field(lanes_bytes v, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)shift), _mm512_set1_epi32(mask));
}

static BASE_ALWAYS_INLINE lanes_ints lanes_join(lanes_ints low, lanes_ints high, int shift) {
    return _mm512_or_si512(low, _mm512_slli_epi32(high, (unsigned)shift));
}

static BASE_ALWAYS_INLINE lanes_floats lanes_times(lanes_ints v, int offset, lanes_floats d) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(v, _mm512_set1_epi32(offset))), d);
}

static BASE_ALWAYS_INLINE lanes_floats lanes_powers(const uint8_t *p) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), normal, tiny));
}

#endif
