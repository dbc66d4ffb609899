/* SPDX-License-Identifier: Apache-2.0 */
/* limits_avx2.c: the loops of limits.h with AVX2 and FMA. */
#include <immintrin.h>

#include "limits.h"

static uint64_t sum_words(const uint64_t *data, size_t n) {
    __m256i sums[BENCH_SUMS];
    for (int k = 0; k < BENCH_SUMS; k++) sums[k] = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 4 * BENCH_SUMS)
        for (int k = 0; k < BENCH_SUMS; k++)
            sums[k] = _mm256_add_epi64(sums[k], _mm256_loadu_si256((const __m256i *)(const void *)(data + i + 4 * k)));
    uint64_t lanes[4], sum = 0;
    for (int k = 1; k < BENCH_SUMS; k++) sums[0] = _mm256_add_epi64(sums[0], sums[k]);
    _mm256_storeu_si256((__m256i *)(void *)lanes, sums[0]);
    for (int k = 0; k < 4; k++) sum += lanes[k];
    return sum;
}

/* Unsigned by signed bytes, in pairs, then pairs of pairs; exact for bytes from -127 to 127. */
static inline __m256i add_bytes(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
static inline __m256i add_words(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
static inline __m256 add_floats(__m256 sum, __m256 a, __m256 b) { return _mm256_fmadd_ps(a, b, sum); }

#define INTEGERS __m256i, __m256i, _mm256_set1_epi8(3), _mm256_set1_epi8(-5), _mm256_setzero_si256()
#define FLOATS __m256, __m256, _mm256_set1_ps(0.5f), _mm256_set1_ps(0.25f), _mm256_setzero_ps()
#define PRODUCTS(name, vectors, add, n_products) BENCH_PRODUCTS(name, vectors, add, n_products)
PRODUCTS(products_int8, INTEGERS, add_bytes, 32)
PRODUCTS(products_int16, INTEGERS, add_words, 16)
PRODUCTS(products_f32, FLOATS, add_floats, 8)

void bench_loops_avx2(bench_loops *l) {
    *l = (bench_loops){{[BENCH_INT8] = products_int8, [BENCH_INT16] = products_int16, [BENCH_F32] = products_f32},
                       sum_words};
}
