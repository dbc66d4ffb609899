/* SPDX-License-Identifier: Apache-2.0 */
/* limits_avx2.c: peak read and multiplication rates with AVX2 and FMA. The timed product loops load nothing. */
#include <immintrin.h>

#include "support.h"

/* Eight independent sums hide the latency of an addition, or of an FMA of four cycles on two ports. */
#define SUMS 8

/* Hides the value of x from the compiler, which can then neither hoist nor remove a product with it. */
#define HIDE(x) __asm__ volatile("" : "+x"(x))

uint64_t bench_sum_avx2(const uint64_t *data, size_t n) {
    __m256i sums[SUMS];
    for (int k = 0; k < SUMS; k++) sums[k] = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 4 * SUMS)
        for (int k = 0; k < SUMS; k++) sums[k] = _mm256_add_epi64(sums[k], _mm256_loadu_si256((const __m256i *)(data + i + 4 * k)));
    uint64_t lanes[4], sum = 0;
    for (int k = 1; k < SUMS; k++) sums[0] = _mm256_add_epi64(sums[0], sums[k]);
    _mm256_storeu_si256((__m256i *)lanes, sums[0]);
    for (int k = 0; k < 4; k++) sum += lanes[k];
    return sum;
}

/* A product of 32 bytes: unsigned by signed, in pairs, then pairs of pairs; exact for bytes from -127 to 127. */
uint64_t bench_products_int8_avx2(long rounds) {
    __m256i sums[SUMS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm256_setzero_si256();
    for (long r = 0; r < rounds; r++)
        for (int k = 0; k < SUMS; k++) {
            HIDE(a);
            sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
        }
    for (int k = 0; k < SUMS; k++) HIDE(sums[k]);
    return (uint64_t)rounds * SUMS * 32 * 2;
}

uint64_t bench_products_f32_avx2(long rounds) {
    __m256 sums[SUMS], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    for (int k = 0; k < SUMS; k++) sums[k] = _mm256_setzero_ps();
    for (long r = 0; r < rounds; r++)
        for (int k = 0; k < SUMS; k++) {
            HIDE(a);
            sums[k] = _mm256_fmadd_ps(a, b, sums[k]);
        }
    for (int k = 0; k < SUMS; k++) HIDE(sums[k]);
    return (uint64_t)rounds * SUMS * 8 * 2;
}
