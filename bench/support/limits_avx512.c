/* SPDX-License-Identifier: Apache-2.0 */
/* limits_avx512.c: the loops of limits.h with AVX-512 and its VNNI. */
#include <immintrin.h>

#include "limits.h"

static inline __m512 add_floats(__m512 sum, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, sum); }

#define INTEGERS __m512i, __m512i, _mm512_set1_epi8(3), _mm512_set1_epi8(-5), _mm512_setzero_si512()
#define FLOATS __m512, __m512, _mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f), _mm512_setzero_ps()
#define PRODUCTS(name, vectors, add, n_products) BENCH_PRODUCTS(name, vectors, add, n_products)
PRODUCTS(products_int8, INTEGERS, _mm512_dpbusd_epi32, 64)
PRODUCTS(products_int16, INTEGERS, _mm512_dpwssd_epi32, 32)
PRODUCTS(products_f32, FLOATS, add_floats, 16)

void bench_loops_avx512(bench_loops *l) {
    l->products[BENCH_INT8] = products_int8;
    l->products[BENCH_INT16] = products_int16;
    l->products[BENCH_F32] = products_f32;
}
