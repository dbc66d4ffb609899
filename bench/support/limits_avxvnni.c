/* SPDX-License-Identifier: Apache-2.0 */
/* limits_avxvnni.c: the loops of limits.h with AVX-VNNI: products and their sum are one instruction. */
#include <immintrin.h>

#include "limits.h"

#define INTEGERS __m256i, __m256i, _mm256_set1_epi8(3), _mm256_set1_epi8(-5), _mm256_setzero_si256()
#define PRODUCTS(name, vectors, add, n_products) BENCH_PRODUCTS(name, vectors, add, n_products)
PRODUCTS(products_int8, INTEGERS, _mm256_dpbusd_avx_epi32, 32)
PRODUCTS(products_int16, INTEGERS, _mm256_dpwssd_avx_epi32, 16)

void bench_loops_avxvnni(bench_loops *l) {
    l->products[BENCH_INT8] = products_int8;
    l->products[BENCH_INT16] = products_int16;
}
