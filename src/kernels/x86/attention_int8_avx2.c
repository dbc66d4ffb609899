/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_avx2.c: attention over int8 KV with VPMADDWD: int16 of a query or of weights by codes widened to int16, pairs of dimensions
 * (scores) or of slots (values) side by side. Lanes are slots or dimensions. The results are those of attention_int8_generic.c, bit for bit.
 *
 * A tile is 4, 2 or 1 queries times 2, 4 or 8 vectors: codes are loaded and widened once for several queries. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/half.h"
#include "kernels/prefetch.h"
#include "kernels/x86/avx2.h"
#include "kernels/x86/x86.h"

#define LANES 8
#define SUMS 8 /* accumulators of a tile */
#define WEIGHT_MAX 32767.0f

/* 8 pairs of codes, widened. */
static BASE_ALWAYS_INLINE __m256i load_pairs(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p)); }

static BASE_ALWAYS_INLINE __m256i broadcast_pair(const int16_t *p) {
    int32_t both;
    memcpy(&both, p, sizeof both);
    return _mm256_set1_epi32(both);
}

/* ---- scores ---- */

typedef struct score_args {
    const int8_t *k, *next;
    int64_t dim;
    const int16_t *query;
    int64_t q_stride;
    const float *scales;
    float *out;
    int64_t out_stride;
} score_args;

static BASE_ALWAYS_INLINE void store_scores(const score_args *a, int64_t q, int slot, __m256i sums) {
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(a->k + KERNEL_INT8_SCALES(a->dim) + 2 * slot));
    const __m256 scales = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(a->scales[q]));
    _mm256_storeu_ps(a->out + q * a->out_stride + slot, _mm256_mul_ps(scaled, scales));
}

static BASE_ALWAYS_INLINE void score_tile(const score_args *a, int64_t first_q, int first_slot, int n_q, int n_vectors, bool fetch) {
    const int16_t *query = a->query + first_q * a->q_stride;
    __m256i acc[SUMS];
    for (int i = 0; i < n_q * n_vectors; i++) acc[i] = _mm256_setzero_si256();
    for (int64_t d = 0; d < a->dim; d += 2) {
        const int64_t at = d * KERNEL_SLOTS + 2 * first_slot;
        __m256i x[4];
        if (fetch) kernel_prefetch(a->next, at, 2 * LANES * n_vectors);
        BASE_UNROLL
        for (int q = 0; q < n_q; q++) x[q] = broadcast_pair(query + q * a->q_stride + d);
        BASE_UNROLL
        for (int v = 0; v < n_vectors; v++) {
            const __m256i codes = load_pairs(a->k + at + 2 * LANES * v);
            BASE_UNROLL
            for (int q = 0; q < n_q; q++) {
                const int i = q * n_vectors + v;
                acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(x[q], codes));
            }
        }
    }
    for (int i = 0; i < n_q * n_vectors; i++) store_scores(a, first_q + i / n_vectors, first_slot + LANES * (i % n_vectors), acc[i]);
}

static BASE_ALWAYS_INLINE void score_queries(const score_args *a, int64_t first_q, int n_q) {
    const int n_vectors = SUMS / n_q;
    for (int slot = 0; slot < KERNEL_SLOTS; slot += LANES * n_vectors) {
        if (first_q == 0) score_tile(a, first_q, slot, n_q, n_vectors, true);
        else score_tile(a, first_q, slot, n_q, n_vectors, false);
    }
}

static void scores_int8(const void *k, int64_t dim, const int16_t *query, int64_t q_stride, int64_t n_q, const float *scales, float *out,
                        int64_t out_stride, const void *next) {
    const score_args a = {k, next, dim, query, q_stride, scales, out, out_stride};
    int64_t q = 0;
    for (; q + 4 <= n_q; q += 4) score_queries(&a, q, 4);
    for (; q + 2 <= n_q; q += 2) score_queries(&a, q, 2);
    for (; q < n_q; q++) score_queries(&a, q, 1);
}

/* ---- values ---- */

typedef struct value_args {
    const int8_t *v, *next;
    int64_t dim;
    const int16_t *p;
    int64_t p_stride;
    int32_t *acc;
    int64_t acc_stride;
} value_args;

static BASE_ALWAYS_INLINE void value_tile(const value_args *a, int64_t first_q, int64_t d, int n_q, int n_vectors, bool fetch) {
    const int16_t *p = a->p + first_q * a->p_stride;
    int32_t *out = a->acc + first_q * a->acc_stride + d;
    __m256i acc[SUMS];
    for (int i = 0; i < n_q * n_vectors; i++)
        acc[i] = _mm256_loadu_si256((const __m256i *)(const void *)(out + i / n_vectors * a->acc_stride + LANES * (i % n_vectors)));
    for (int slot = 0; slot < KERNEL_SLOTS; slot += 2) {
        const int64_t at = slot * a->dim + 2 * d;
        __m256i x[4];
        if (fetch) kernel_prefetch(a->next, at, 2 * LANES * n_vectors);
        BASE_UNROLL
        for (int q = 0; q < n_q; q++) x[q] = broadcast_pair(p + q * a->p_stride + slot);
        BASE_UNROLL
        for (int v = 0; v < n_vectors; v++) {
            const __m256i codes = load_pairs(a->v + at + 2 * LANES * v);
            BASE_UNROLL
            for (int q = 0; q < n_q; q++) {
                const int i = q * n_vectors + v;
                acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(x[q], codes));
            }
        }
    }
    for (int i = 0; i < n_q * n_vectors; i++)
        _mm256_storeu_si256((__m256i *)(void *)(out + i / n_vectors * a->acc_stride + LANES * (i % n_vectors)), acc[i]);
}

static void value_one(const value_args *a, int64_t q, int64_t d) {
    int32_t sum = a->acc[q * a->acc_stride + d];
    for (int slot = 0; slot < KERNEL_SLOTS; slot++)
        sum += a->p[q * a->p_stride + slot] * a->v[slot / 2 * 2 * a->dim + 2 * d + slot % 2];
    a->acc[q * a->acc_stride + d] = sum;
}

static BASE_ALWAYS_INLINE void value_queries(const value_args *a, int64_t first_q, int n_q) {
    const int wide = SUMS / n_q;
    int64_t d = 0;
    for (; d + LANES * wide <= a->dim; d += LANES * wide) {
        if (first_q == 0) value_tile(a, first_q, d, n_q, wide, true);
        else value_tile(a, first_q, d, n_q, wide, false);
    }
    for (; d + LANES <= a->dim; d += LANES) value_tile(a, first_q, d, n_q, 1, false);
    for (; d < a->dim; d++)
        for (int64_t q = first_q; q < first_q + n_q; q++) value_one(a, q, d);
}

static void values_int8(const void *v, int64_t dim, const int16_t *p, int64_t p_stride, int64_t n_q, int32_t *acc, int64_t acc_stride,
                        const void *next) {
    const value_args a = {v, next, dim, p, p_stride, acc, acc_stride};
    int64_t q = 0;
    for (; q + 4 <= n_q; q += 4) value_queries(&a, q, 4);
    for (; q + 2 <= n_q; q += 2) value_queries(&a, q, 2);
    for (; q < n_q; q++) value_queries(&a, q, 1);
}

/* ---- rounding queries and weights ---- */

static BASE_ALWAYS_INLINE float highest(__m256 v) {
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
        const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8); /* packing works in 128-bit halves */
        _mm256_storeu_si256((__m256i *)(void *)(out + i), both);
    }
    for (; i < n; i++) out[i] = (int16_t)lrintf(x[i] * factor);
}

static float query_int8(const float *q, int64_t dim, int16_t *out) {
    const float limit = (float)BASE_MIN(INT64_C(32767), INT32_MAX / (127 * dim));
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 most = _mm256_setzero_ps();
    int64_t d = 0;
    for (; d + 8 <= dim; d += 8) most = _mm256_max_ps(most, _mm256_and_ps(_mm256_loadu_ps(q + d), no_sign));
    float max = highest(most);
    for (; d < dim; d++) max = fmaxf(max, fabsf(q[d]));
    round_to_int16(q, max < KERNEL_Q8_TINY ? 0.0f : limit / max, dim, out);
    return max < KERNEL_Q8_TINY ? 0.0f : max / limit;
}

static float weights_int8(float *p, const float *scales, int64_t n, int16_t *out) {
    __m256 most = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 w = _mm256_mul_ps(_mm256_loadu_ps(p + i), _mm256_loadu_ps(scales + i));
        _mm256_storeu_ps(p + i, w);
        most = _mm256_max_ps(most, w);
    }
    float max = highest(most);
    for (; i < n; i++) {
        p[i] *= scales[i];
        max = p[i] > max ? p[i] : max;
    }
    round_to_int16(p, max < KERNEL_Q8_TINY ? 0.0f : WEIGHT_MAX / max, n, out);
    return max < KERNEL_Q8_TINY ? 0.0f : max / WEIGHT_MAX;
}

void avx2_attention_int8_entries(kernel_table *t) {
    t->query_int8 = query_int8;
    t->scores_int8 = scores_int8;
    t->weights_int8 = weights_int8;
    t->values_int8 = values_int8;
}
