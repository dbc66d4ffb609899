/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.h: loads and stores of part of a vector. For files of levels that include AVX2. */
#ifndef KERNELS_X86_AVX2_H
#define KERNELS_X86_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "base/check.h"

/* A mask of the first n lanes, 0 <= n <= 8. */
static inline __m256i avx2_first_lanes(int64_t n) {
    BASE_DCHECK(n >= 0 && n <= 8);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n floats at p, 0 < n <= 8; the other lanes are 0 and their memory is not accessed. */
static inline __m256 avx2_load_first(const float *p, int64_t n) {
    BASE_DCHECK(n > 0 && n <= 8);
    return n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, avx2_first_lanes(n));
}

static inline void avx2_store_first(float *p, __m256 v, int64_t n) {
    BASE_DCHECK(n > 0 && n <= 8);
    if (n == 8) {
        _mm256_storeu_ps(p, v);
    } else {
        _mm256_maskstore_ps(p, avx2_first_lanes(n), v);
    }
}

#endif
