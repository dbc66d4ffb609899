/* attention_avx2.c: scores and values over a block of 64 slots, and storing f16 states.
 *
 * Lanes are slots (scores) or dimensions (values), so every sum is one chain of fused additions in the order of
 * kernels.h: over d for a score, over the visible slots for a value, the same in every tile. A tile is some queries
 * times some vectors, so that a key or value is loaded (and converted) once for several queries:
 *
 *   4 queries x 2 vectors, 2 x 4, 1 x 8: eight sums in registers, enough to hide the latency of the addition
 */
#include "kernels/half.h"
#include "kernels/x86/avx2.h"

typedef __m256 (*load8_fn)(const void *base, int64_t i); /* eight elements from the i-th */
typedef __m128 (*load1_fn)(const void *base, int64_t i); /* one, in the lowest lane */

static BASE_ALWAYS_INLINE __m256 load8_f32(const void *base, int64_t i) {
    return _mm256_loadu_ps((const float *)base + i);
}

static BASE_ALWAYS_INLINE __m256 load8_f16(const void *base, int64_t i) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)base + i)));
}

static BASE_ALWAYS_INLINE __m128 load1_f32(const void *base, int64_t i) { return _mm_load_ss((const float *)base + i); }

static BASE_ALWAYS_INLINE __m128 load1_f16(const void *base, int64_t i) {
    return _mm_cvtph_ps(_mm_cvtsi32_si128(((const uint16_t *)base)[i]));
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE void score_tile(load8_fn load, const void *k, int64_t dim, const float *query,
                                          int64_t q_stride, float scale, float *out, int64_t out_stride, int first_slot,
                                          int n_q, int n_vectors) {
    __m256 acc[8];
    for (int i = 0; i < n_q * n_vectors; i++) acc[i] = _mm256_setzero_ps();
    for (int64_t d = 0; d < dim; d++) {
        __m256 key[8];
        for (int v = 0; v < n_vectors; v++) key[v] = load(k, d * KERNEL_SLOTS + first_slot + 8 * v);
        for (int q = 0; q < n_q; q++) {
            const __m256 x = _mm256_set1_ps(query[q * q_stride + d]);
            for (int v = 0; v < n_vectors; v++) {
                acc[q * n_vectors + v] = _mm256_fmadd_ps(x, key[v], acc[q * n_vectors + v]);
            }
        }
    }
    for (int q = 0; q < n_q; q++) {
        for (int v = 0; v < n_vectors; v++) {
            const __m256 score = _mm256_mul_ps(_mm256_set1_ps(scale), acc[q * n_vectors + v]);
            _mm256_storeu_ps(out + q * out_stride + first_slot + 8 * v, score);
        }
    }
}

static BASE_ALWAYS_INLINE void scores(load8_fn load, const void *k, int64_t dim, const float *query, int64_t q_stride,
                                      int64_t n_q, float scale, float *out, int64_t out_stride) {
    int64_t q = 0;
    for (; q + 4 <= n_q; q += 4) {
        for (int slot = 0; slot < KERNEL_SLOTS; slot += 16) {
            score_tile(load, k, dim, query + q * q_stride, q_stride, scale, out + q * out_stride, out_stride, slot, 4,
                       2);
        }
    }
    for (; q + 2 <= n_q; q += 2) {
        for (int slot = 0; slot < KERNEL_SLOTS; slot += 32) {
            score_tile(load, k, dim, query + q * q_stride, q_stride, scale, out + q * out_stride, out_stride, slot, 2,
                       4);
        }
    }
    for (; q < n_q; q++) {
        score_tile(load, k, dim, query + q * q_stride, q_stride, scale, out + q * out_stride, out_stride, 0, 1, 8);
    }
}

static void attn_scores_f32(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                            float *out, int64_t out_stride) {
    scores(load8_f32, k, dim, query, q_stride, n_q, scale, out, out_stride);
}

static void attn_scores_f16(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                            float *out, int64_t out_stride) {
    scores(load8_f16, k, dim, query, q_stride, n_q, scale, out, out_stride);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* The visible slots of one call, and where weights and sums are. */
typedef struct value_args {
    const void *v;
    const float *p;
    float *acc;
    int64_t p_stride, acc_stride;
    int n_slots;
    int32_t first[KERNEL_SLOTS]; /* element at which the i-th visible slot begins */
} value_args;

static BASE_ALWAYS_INLINE void value_tile(load8_fn load, const value_args *a, int64_t q0, int64_t d0, int n_q,
                                          int n_vectors) {
    const float *p = a->p + q0 * a->p_stride;
    float *out = a->acc + q0 * a->acc_stride + d0;
    __m256 acc[8];
    for (int q = 0; q < n_q; q++) {
        for (int v = 0; v < n_vectors; v++) {
            acc[q * n_vectors + v] = _mm256_loadu_ps(out + q * a->acc_stride + 8 * v);
        }
    }
    for (int i = 0; i < a->n_slots; i++) {
        __m256 value[8];
        for (int v = 0; v < n_vectors; v++) value[v] = load(a->v, a->first[i] + d0 + 8 * v);
        for (int q = 0; q < n_q; q++) {
            const __m256 weight = _mm256_set1_ps(p[q * a->p_stride + i]);
            for (int v = 0; v < n_vectors; v++) {
                acc[q * n_vectors + v] = _mm256_fmadd_ps(weight, value[v], acc[q * n_vectors + v]);
            }
        }
    }
    for (int q = 0; q < n_q; q++) {
        for (int v = 0; v < n_vectors; v++) {
            _mm256_storeu_ps(out + q * a->acc_stride + 8 * v, acc[q * n_vectors + v]);
        }
    }
}

/* The dimension left over when dim is no multiple of 8. */
static BASE_ALWAYS_INLINE void value_one(load1_fn load, const value_args *a, int64_t q, int64_t d) {
    const float *p = a->p + q * a->p_stride;
    float *out = a->acc + q * a->acc_stride + d;
    __m128 acc = _mm_load_ss(out);
    for (int i = 0; i < a->n_slots; i++) acc = _mm_fmadd_ss(_mm_load_ss(p + i), load(a->v, a->first[i] + d), acc);
    _mm_store_ss(out, acc);
}

/* All dimensions of n_q (a constant) queries from q0. */
static BASE_ALWAYS_INLINE void value_queries(load8_fn load8, load1_fn load1, const value_args *a, int64_t dim,
                                             int64_t q0, int n_q) {
    const int wide = 8 / n_q;
    int64_t d = 0;
    for (; d + 8 * wide <= dim; d += 8 * wide) value_tile(load8, a, q0, d, n_q, wide);
    for (; d + 8 <= dim; d += 8) value_tile(load8, a, q0, d, n_q, 1);
    for (; d < dim; d++) {
        for (int64_t q = q0; q < q0 + n_q; q++) value_one(load1, a, q, d);
    }
}

static BASE_ALWAYS_INLINE void values(load8_fn load8, load1_fn load1, value_args *a, int64_t dim, uint64_t visible,
                                      int64_t n_q) {
    for (uint64_t rest = visible; rest != 0; rest &= rest - 1) {
        a->first[a->n_slots++] = (int32_t)(base_ctz64(rest) * dim);
    }
    int64_t q = 0;
    for (; q + 4 <= n_q; q += 4) value_queries(load8, load1, a, dim, q, 4);
    for (; q + 2 <= n_q; q += 2) value_queries(load8, load1, a, dim, q, 2);
    for (; q < n_q; q++) value_queries(load8, load1, a, dim, q, 1);
}

static void attn_values_f32(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                            float *acc, int64_t acc_stride) {
    value_args a = {.v = v, .p = p, .acc = acc, .p_stride = p_stride, .acc_stride = acc_stride, .n_slots = 0};
    values(load8_f32, load1_f32, &a, dim, visible, n_q);
}

static void attn_values_f16(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                            float *acc, int64_t acc_stride) {
    value_args a = {.v = v, .p = p, .acc = acc, .p_stride = p_stride, .acc_stride = acc_stride, .n_slots = 0};
    values(load8_f16, load1_f16, &a, dim, visible, n_q);
}

/* ---- storing ---------------------------------------------------------------------------------------------------- */

static __m128i to_f16(const float *x) {
    return _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static void store_value_f16(const float *x, int64_t dim, void *v, int slot) {
    uint16_t *dst = (uint16_t *)v + slot * dim;
    int64_t d = 0;
    for (; d + 8 <= dim; d += 8) _mm_storeu_si128((__m128i *)(void *)(dst + d), to_f16(x + d));
    for (; d < dim; d++) dst[d] = half_from_float(x[d]);
}

static void store_key_f16(const float *x, int64_t dim, void *k, int slot) {
    uint16_t *dst = (uint16_t *)k + slot;
    int64_t d = 0;
    for (; d + 8 <= dim; d += 8) {
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)(void *)h, to_f16(x + d));
        for (int i = 0; i < 8; i++) dst[(d + i) * KERNEL_SLOTS] = h[i];
    }
    for (; d < dim; d++) dst[d * KERNEL_SLOTS] = half_from_float(x[d]);
}

void avx2_attention_entries(kernel_table *t) {
    t->attn_scores_f32 = attn_scores_f32;
    t->attn_scores_f16 = attn_scores_f16;
    t->attn_values_f32 = attn_values_f32;
    t->attn_values_f16 = attn_values_f16;
    t->store_key_f16 = store_key_f16;
    t->store_value_f16 = store_value_f16;
}
