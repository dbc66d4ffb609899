/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_avx512.c: scores and values of int8 KV with VPDPWSSD in 512 bits, which adds both products of a pair
 * to a sum, and its softmax. */
#include <stdbool.h>

#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/x86.h"

#define INT8_SUMS 16

static BASE_ALWAYS_INLINE lanes_ints int8_zero(void) { return _mm512_set1_epi32(0); }

static BASE_ALWAYS_INLINE lanes_ints int8_codes(const int8_t *p) {
    return _mm512_cvtepi8_epi16(load_halves((const uint8_t *)p));
}

static BASE_ALWAYS_INLINE lanes_ints int8_add_products(lanes_ints sums, lanes_ints x, lanes_ints codes) {
    return _mm512_dpwssd_epi32(sums, x, codes);
}

static BASE_ALWAYS_INLINE lanes_ints int8_load_sums(const int32_t *p) { return _mm512_loadu_si512(p); }
static BASE_ALWAYS_INLINE void int8_store_sums(int32_t *p, lanes_ints v) { _mm512_storeu_si512(p, v); }

#include "kernels/x86/lanes_int8.inc"

/* ---- softmax ---- */

static BASE_ALWAYS_INLINE lanes_floats int8_max(lanes_floats a, lanes_floats b) { return _mm512_max_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_floats int8_subtract(lanes_floats a, lanes_floats b) { return _mm512_sub_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_ints int8_round(lanes_floats v) { return _mm512_cvtps_epi32(v); }
static BASE_ALWAYS_INLINE lanes_ints int8_add(lanes_ints a, lanes_ints b) { return _mm512_add_epi32(a, b); }
static BASE_ALWAYS_INLINE lanes_ints int8_positive(lanes_ints v) { return _mm512_max_epi32(v, int8_zero()); }
static BASE_ALWAYS_INLINE lanes_ints int8_first(lanes_ints v, int64_t n) {
    return _mm512_mask_blend_epi32(first_lanes(n), int8_zero(), v);
}
static BASE_ALWAYS_INLINE lanes_floats int8_to_exponent(lanes_floats v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 23));
}

/* No lane is NaN. */
static BASE_ALWAYS_INLINE float int8_highest_lane(lanes_floats v) {
    float lane[LANES], max;
    lanes_store(lane, v);
    max = lane[0];
    for (int i = 1; i < LANES; i++) max = lane[i] > max ? lane[i] : max;
    return max;
}

static BASE_ALWAYS_INLINE void store_words(int16_t *out, lanes_ints v) {
    _mm256_storeu_si256((__m256i *)(void *)out, _mm512_cvtsepi32_epi16(v));
}

static BASE_ALWAYS_INLINE bool int8_store_words(int16_t *out, lanes_ints low, lanes_ints high) {
    const lanes_ints limit = _mm512_set1_epi32(INT16_MAX - 1);
    store_words(out, low);
    store_words(out + LANES, high);
    return (_mm512_cmplt_epi32_mask(limit, low) | _mm512_cmplt_epi32_mask(limit, high)) != 0;
}

#include "kernels/x86/lanes_int8_softmax.inc"

void avx512_attention_int8_entries(kernel_table *t) {
    lanes_int8_entries(t);
    lanes_int8_softmax_entries(t);
}
