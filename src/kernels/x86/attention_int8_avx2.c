/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_avx2.c: attention over int8 KV: scores and values with VPMADDWD (lanes_int8.inc), softmax
 * (lanes_int8_softmax.inc), queries, storing. The results are those of attention_int8_generic.c, bit for bit, except
 * for those of exp. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/half.h"
#include "kernels/prefetch.h"
#include "kernels/x86/avx2.h"
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"

#define CODE_MAX 127.0f

static BASE_ALWAYS_INLINE lanes_ints int8_add_products(lanes_ints sums, lanes_ints x, lanes_ints codes) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(x, codes));
}

#include "kernels/x86/lanes_int8_256.inc"
#include "kernels/x86/lanes_int8.inc"

static void value_int8(const void *v, int64_t dim, int slot, int32_t weight, int32_t *acc) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    const int8_t *pairs = (const int8_t *)v + slot / 2 * 2 * dim;
    const __m256i w = _mm256_set1_epi32(weight);
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) {
        const __m128i both = _mm_loadu_si128((const __m128i *)(const void *)(pairs + 2 * d));
        const __m128i codes = _mm_srai_epi16(slot % 2 ? both : _mm_slli_epi16(both, 8), 8);
        __m256i *sums = (__m256i *)(void *)(acc + d);
        _mm256_storeu_si256(
            sums, _mm256_add_epi32(_mm256_loadu_si256(sums), _mm256_mullo_epi32(w, _mm256_cvtepi16_epi32(codes))));
    }
    for (; d < dim; d++) acc[d] += weight * pairs[2 * d + slot % 2];
}

/* ---- queries ---- */

static BASE_ALWAYS_INLINE float highest_lane(__m256 v) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

/* out[i] = round(x[i] * factor), for n in whole vectors of 16 and a rest. */
static void round_to_int16(const float *x, float factor, int64_t n, int16_t *out) {
    const __m256 f = _mm256_set1_ps(factor);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), f));
        const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), f));
        const __m256i both =
            _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8); /* packing works in 128-bit halves */
        _mm256_storeu_si256((__m256i *)(void *)(out + i), both);
    }
    for (; i < n; i++) out[i] = (int16_t)lrintf(x[i] * factor);
}

static BASE_ALWAYS_INLINE float largest_magnitude(const float *x, int64_t n) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 most = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += LANES)
        most = _mm256_max_ps(_mm256_and_ps(avx2_load_first(x + i, BASE_MIN(LANES, n - i)), no_sign), most);
    return highest_lane(most);
}

static float query_int8(const float *q, int64_t dim, int16_t *out) {
    BASE_DCHECK(dim > 0 && dim <= INT32_MAX / 127);
    const float limit = (float)BASE_MIN(INT64_C(32767), INT32_MAX / (127 * dim));
    const float max = largest_magnitude(q, dim);
    round_to_int16(q, max < KERNEL_Q8_TINY ? 0.0f : limit / max, dim, out);
    return max < KERNEL_Q8_TINY ? 0.0f : max / limit;
}

/* ---- softmax ---- */

static BASE_ALWAYS_INLINE lanes_floats int8_max(lanes_floats a, lanes_floats b) { return _mm256_max_ps(a, b); }
static BASE_ALWAYS_INLINE float int8_highest_lane(lanes_floats v) { return highest_lane(v); }
static BASE_ALWAYS_INLINE lanes_floats int8_subtract(lanes_floats a, lanes_floats b) { return _mm256_sub_ps(a, b); }
static BASE_ALWAYS_INLINE lanes_ints int8_round(lanes_floats v) { return _mm256_cvtps_epi32(v); }
static BASE_ALWAYS_INLINE lanes_ints int8_add(lanes_ints a, lanes_ints b) { return _mm256_add_epi32(a, b); }
static BASE_ALWAYS_INLINE lanes_ints int8_positive(lanes_ints v) { return _mm256_max_epi32(v, _mm256_setzero_si256()); }
static BASE_ALWAYS_INLINE lanes_ints int8_first(lanes_ints v, int64_t n) {
    return _mm256_and_si256(v, avx2_first_lanes(n));
}
static BASE_ALWAYS_INLINE lanes_floats int8_to_exponent(lanes_floats v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 23));
}

static BASE_ALWAYS_INLINE bool int8_store_words(int16_t *out, lanes_ints low, lanes_ints high) {
    const __m256i both =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8); /* packing works in 128-bit halves */
    const __m256i saturated = _mm256_cmpeq_epi16(both, _mm256_set1_epi16(INT16_MAX));
    _mm256_storeu_si256((__m256i *)(void *)out, both);
    return !_mm256_testz_si256(saturated, saturated);
}

#include "kernels/x86/lanes_int8_softmax.inc"

/* ---- storing ---- */

/* The codes of up to 8 elements, in 32 bits; see kernel_int8_code. */
static BASE_ALWAYS_INLINE __m256i codes_of(const float *x, int64_t n, __m256 scale) {
    const __m256 most = _mm256_set1_ps(CODE_MAX),
                 code = _mm256_min_ps(_mm256_div_ps(avx2_load_first(x, n), scale), most);
    return _mm256_cvtps_epi32(_mm256_max_ps(code, _mm256_sub_ps(_mm256_setzero_ps(), most)));
}

/* The scale of a token, stored in its slot; returned as a divisor: infinity if all elements count as 0. */
static BASE_ALWAYS_INLINE __m256 store_scale(const float *x, int64_t dim, void *head, int slot) {
    BASE_DCHECK(dim % 2 == 0 && slot >= 0 && slot < KERNEL_SLOTS);
    const float max = largest_magnitude(x, dim);
    const uint32_t bits = max < KERNEL_Q8_TINY ? 0 : (half_float_bits(max / CODE_MAX) + 0xffff) & 0xffff0000u;
    const uint16_t scale = (uint16_t)(bits >> 16);
    memcpy((uint8_t *)head + KERNEL_INT8_SCALES(dim) + 2 * slot, &scale, sizeof scale);
    return bits ? _mm256_set1_ps(half_bits_float(bits)) : _mm256_set1_ps(INFINITY);
}

static void store_key_int8(const float *x, int64_t dim, void *k, int slot) {
    const __m256 scale = store_scale(x, dim, k, slot);
    for (int64_t d = 0; d < dim; d += LANES) {
        int32_t codes[LANES];
        _mm256_storeu_si256((__m256i *)(void *)codes, codes_of(x + d, BASE_MIN(LANES, dim - d), scale));
        for (int64_t i = 0; i < LANES && d + i < dim; i += 2) {
            int8_t *pair = (int8_t *)k + (d + i) * KERNEL_SLOTS + 2 * slot;
            pair[0] = (int8_t)codes[i];
            pair[1] = (int8_t)codes[i + 1];
        }
    }
}

static void store_value_int8(const float *x, int64_t dim, void *v, int slot) {
    const __m256 scale = store_scale(x, dim, v, slot);
    int8_t *pairs = (int8_t *)v + slot / 2 * 2 * dim + slot % 2;
    for (int64_t d = 0; d < dim; d += LANES) {
        int32_t codes[LANES];
        _mm256_storeu_si256((__m256i *)(void *)codes, codes_of(x + d, BASE_MIN(LANES, dim - d), scale));
        for (int64_t i = 0; i < LANES && d + i < dim; i++) pairs[2 * (d + i)] = (int8_t)codes[i];
    }
}

void avx2_attention_int8_entries(kernel_table *t) {
    lanes_int8_entries(t);
    t->query_int8 = query_int8;
    lanes_int8_softmax_entries(t);
    t->value_int8 = value_int8;
    t->store_key_int8 = store_key_int8;
    t->store_value_int8 = store_value_int8;
}
