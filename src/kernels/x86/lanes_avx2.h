/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_avx2.h: the AVX2 + FMA + F16C primitives for the code in kernels/lanes/ (arm/lanes_neon.h documents each). For
 * files of levels that include AVX2. */
#ifndef KERNELS_X86_LANES_AVX2_H
#define KERNELS_X86_LANES_AVX2_H

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/formats.h"
#include "kernels/half.h"
#include "kernels/prefetch.h"
#include "kernels/x86/avx2.h"

#define LANES 8
#define LANES_GROUPS 2
#define LANES_SUMS 8
#if !defined(LANES_KEEP) /* tests emulate levels that use this */
#define LANES_KEEP(v) __asm__("" \
                              : "+x"(v))
#endif

typedef __m256i lanes_bytes;
typedef __m256i lanes_ints;
typedef __m256 lanes_floats;

/* ---- floats
   --------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_floats lanes_zero(void) { return _mm256_setzero_ps(); }

static BASE_ALWAYS_INLINE lanes_floats lanes_broadcast(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_ps(v);
}

static BASE_ALWAYS_INLINE lanes_floats lanes_load_first(const float *p, int64_t n) { return avx2_load_first(p, n); }
static BASE_ALWAYS_INLINE void lanes_store_first(float *p, lanes_floats v, int64_t n) { avx2_store_first(p, v, n); }
static BASE_ALWAYS_INLINE void lanes_store(float *p, lanes_floats v) { _mm256_storeu_ps(p, v); }
static BASE_ALWAYS_INLINE lanes_floats lanes_multiply(lanes_floats a, lanes_floats b) { return _mm256_mul_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_floats lanes_fma(lanes_floats a, lanes_floats b, lanes_floats acc) {
    return _mm256_fmadd_ps(a, b, acc);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_fnma(lanes_floats a, lanes_floats b, lanes_floats acc) {
    return _mm256_fnmadd_ps(a, b, acc);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_negate(lanes_floats v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
static BASE_ALWAYS_INLINE lanes_floats lanes_to_floats(lanes_ints v) { return _mm256_cvtepi32_ps(v); }
static BASE_ALWAYS_INLINE lanes_floats lanes_max(lanes_floats a, lanes_floats b) { return _mm256_max_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_floats lanes_low_bits_as_exponents(lanes_floats v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 23));
}

static BASE_ALWAYS_INLINE lanes_floats lanes_load_f32(const uint8_t *p) {
    return _mm256_loadu_ps((const float *)(const void *)p);
}

static BASE_ALWAYS_INLINE __m128i load_halves(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_load_f16(const uint8_t *p) { return _mm256_cvtph_ps(load_halves(p)); }

static BASE_ALWAYS_INLINE lanes_floats lanes_load_bf16(const uint8_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p)), 16));
}

static BASE_ALWAYS_INLINE void lanes_store_f16(uint16_t *p, const float *x) {
    const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)p, h);
}

/* ---- bytes
   ---------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_bytes lanes_load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_bits(lanes_bytes v, int shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask));
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_shift_left(lanes_bytes v, int n) { return _mm256_slli_epi16(v, n); }
static BASE_ALWAYS_INLINE lanes_bytes lanes_or(lanes_bytes a, lanes_bytes b) { return _mm256_or_si256(a, b); }
static BASE_ALWAYS_INLINE lanes_bytes lanes_add(lanes_bytes v, int number) {
    return _mm256_add_epi8(v, _mm256_set1_epi8((char)number));
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_table(const int8_t values[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_look_up(lanes_bytes table, lanes_bytes v) {
    return _mm256_shuffle_epi8(table, v);
}

static BASE_ALWAYS_INLINE lanes_bytes lanes_spread_bits(lanes_bytes words, int g, int value) {
    const __m256i lane = _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const __m256i byte = _mm256_shuffle_epi8(words, _mm256_add_epi8(lane, _mm256_set1_epi8((char)(g / 2))));
    const __m256i bit = _mm256_set1_epi32(g % 2 ? (int)0x80402010u : 0x08040201);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit), _mm256_set1_epi8((char)value));
}

/* ---- integers: for lanes_sums
   ------------------------------------------------------------------------------------------ */

/* The dword at p in all lanes. */
static BASE_ALWAYS_INLINE lanes_bytes lanes_broadcast_dword(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* factor * the sum of none, one or both of the two int16 at p, in all lanes. */
static BASE_ALWAYS_INLINE lanes_ints lanes_times_sums(int factor, const uint8_t *p, bool first, bool second) {
    const uint32_t low = first ? (uint16_t)factor : 0, high = second ? (uint16_t)factor : 0;
    return _mm256_madd_epi16(lanes_broadcast_dword(p), _mm256_set1_epi32((int)(low | high << 16)));
}

/* ---- scales
   --------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_ints lanes_field(lanes_bytes v, int shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi32(v, shift), _mm256_set1_epi32(mask));
}

static BASE_ALWAYS_INLINE lanes_ints lanes_join(lanes_ints low, lanes_ints high, int shift) {
    return _mm256_or_si256(low, _mm256_slli_epi32(high, shift));
}

static BASE_ALWAYS_INLINE void lanes_split_f16(lanes_bytes v, lanes_floats *low, lanes_floats *high) {
    const __m256i both = _mm256_packus_epi32(lanes_field(v, 0, 0xffff), lanes_field(v, 16, 0xffff));
    const __m256i sorted = _mm256_permute4x64_epi64(both, 0xd8); /* packing works in 128-bit halves */
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
}

static BASE_ALWAYS_INLINE lanes_floats lanes_times(lanes_ints v, int offset, lanes_floats d) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(offset))), d);
}

static BASE_ALWAYS_INLINE lanes_floats lanes_powers(const uint8_t *p) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

#endif
