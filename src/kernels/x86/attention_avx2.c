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

/* What does not change in a call. */
typedef struct score_args {
    const void *k, *next;
    int64_t dim, q_stride, out_stride;
    float scale;
} score_args;

/* fetch: bytes of the next keys to ask for with each of these dimensions: what lies in the lines that the tile reads. */
static BASE_ALWAYS_INLINE void score_tile(load8_fn load, int64_t elem_bytes, const score_args *a, const float *query, float *out,
                                          int first_slot, int n_q, int n_vectors, bool fetch) {
    __m256 acc[8];
    const char *next = (const char *)((uintptr_t)a->next + (uintptr_t)(first_slot * elem_bytes));
    for (int i = 0; i < n_q * n_vectors; i++) acc[i] = _mm256_setzero_ps();
    for (int64_t d = 0; d < a->dim; d++) {
        __m256 key[8];
        if (fetch) avx2_prefetch(next, d * KERNEL_SLOTS * elem_bytes, 8 * n_vectors * elem_bytes);
        for (int v = 0; v < n_vectors; v++) key[v] = load(a->k, d * KERNEL_SLOTS + first_slot + 8 * v);
        for (int q = 0; q < n_q; q++) {
            const __m256 x = _mm256_set1_ps(query[q * a->q_stride + d]);
            for (int v = 0; v < n_vectors; v++) {
                acc[q * n_vectors + v] = _mm256_fmadd_ps(x, key[v], acc[q * n_vectors + v]);
            }
        }
    }
    for (int q = 0; q < n_q; q++) {
        for (int v = 0; v < n_vectors; v++) {
            const __m256 score = _mm256_mul_ps(_mm256_set1_ps(a->scale), acc[q * n_vectors + v]);
            _mm256_storeu_ps(out + q * a->out_stride + first_slot + 8 * v, score);
        }
    }
}

static BASE_ALWAYS_INLINE void scores(load8_fn load, int64_t elem_bytes, const score_args *a, const float *query, int64_t n_q,
                                      float *out) {
    int64_t q = 0;
    for (; q + 4 <= n_q; q += 4) {
        for (int slot = 0; slot < KERNEL_SLOTS; slot += 16) {
            const float *from = query + q * a->q_stride;
            float *to = out + q * a->out_stride;
            /* the first four queries, or where there are eight the first and the second half */
            if (q == (n_q >= 8 && slot >= KERNEL_SLOTS / 2 ? 4 : 0)) score_tile(load, elem_bytes, a, from, to, slot, 4, 2, true);
            else score_tile(load, elem_bytes, a, from, to, slot, 4, 2, false);
        }
    }
    for (; q + 2 <= n_q; q += 2) {
        for (int slot = 0; slot < KERNEL_SLOTS; slot += 32) {
            score_tile(load, elem_bytes, a, query + q * a->q_stride, out + q * a->out_stride, slot, 2, 4, q == 0);
        }
    }
    for (; q < n_q; q++) score_tile(load, elem_bytes, a, query + q * a->q_stride, out + q * a->out_stride, 0, 1, 8, q == 0);
}

static void attn_scores_f32(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                            float *out, int64_t out_stride, const void *next) {
    const score_args a = {k, next, dim, q_stride, out_stride, scale};
    scores(load8_f32, 4, &a, query, n_q, out);
}

static void attn_scores_f16(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                            float *out, int64_t out_stride, const void *next) {
    const score_args a = {k, next, dim, q_stride, out_stride, scale};
    scores(load8_f16, 2, &a, query, n_q, out);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* The visible slots of one call, and where weights and sums are. */
typedef struct value_args {
    const void *v, *next;
    const float *p;
    float *acc;
    int64_t p_stride, acc_stride;
    int64_t dim;
    int n_slots;
    const uint8_t *slots; /* the visible ones, in rising order */
} value_args;

/* fetch: asks for the next values of the same slots and dimensions. */
static BASE_ALWAYS_INLINE void value_tile(load8_fn load, const value_args *a, int64_t q0, int64_t d0, int n_q,
                                          int n_vectors, int64_t elem_bytes, bool fetch) {
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
        if (fetch) avx2_prefetch(a->next, (i * a->dim + d0) * elem_bytes, 8 * n_vectors * elem_bytes);
        for (int v = 0; v < n_vectors; v++) value[v] = load(a->v, a->slots[i] * a->dim + d0 + 8 * v);
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
    for (int i = 0; i < a->n_slots; i++) acc = _mm_fmadd_ss(_mm_load_ss(p + i), load(a->v, a->slots[i] * a->dim + d), acc);
    _mm_store_ss(out, acc);
}

/* All dimensions of n_q (a constant) queries from q0. */
static BASE_ALWAYS_INLINE void value_queries(load8_fn load8, load1_fn load1, int64_t elem_bytes, const value_args *a, int64_t q0,
                                             int n_q, int64_t n_q_all) {
    const int wide = 8 / n_q;
    const int64_t dim = a->dim;
    int64_t d = 0;
    for (; d + 8 * wide <= dim; d += 8 * wide) {
        if (q0 == (n_q_all >= 8 && d >= dim / 2 ? 4 : 0)) value_tile(load8, a, q0, d, n_q, wide, elem_bytes, true);
        else value_tile(load8, a, q0, d, n_q, wide, elem_bytes, false);
    }
    for (; d + 8 <= dim; d += 8) value_tile(load8, a, q0, d, n_q, 1, elem_bytes, false);
    for (; d < dim; d++) {
        for (int64_t q = q0; q < q0 + n_q; q++) value_one(load1, a, q, d);
    }
}

static BASE_ALWAYS_INLINE void values(load8_fn load8, load1_fn load1, int64_t elem_bytes, value_args *a, uint64_t visible,
                                      int64_t n_q) {
    static const uint8_t all[KERNEL_SLOTS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                              22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
                                              44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    uint8_t some[KERNEL_SLOTS];
    a->n_slots = base_popcount64(visible);
    a->slots = (visible & (visible + 1)) == 0 ? all : some; /* the first n, which is usual, or any */
    for (uint64_t rest = visible, i = 0; a->slots == some && rest != 0; rest &= rest - 1) some[i++] = (uint8_t)base_ctz64(rest);
    int64_t q = 0;
    for (; q + 4 <= n_q; q += 4) value_queries(load8, load1, elem_bytes, a, q, 4, n_q);
    for (; q + 2 <= n_q; q += 2) value_queries(load8, load1, elem_bytes, a, q, 2, n_q);
    for (; q < n_q; q++) value_queries(load8, load1, elem_bytes, a, q, 1, n_q);
}

static void attn_values_f32(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                            float *acc, int64_t acc_stride, const void *next) {
    value_args a = {.v = v, .next = next, .p = p, .acc = acc, .p_stride = p_stride, .acc_stride = acc_stride, .dim = dim};
    values(load8_f32, load1_f32, 4, &a, visible, n_q);
}

static void attn_values_f16(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                            float *acc, int64_t acc_stride, const void *next) {
    value_args a = {.v = v, .next = next, .p = p, .acc = acc, .p_stride = p_stride, .acc_stride = acc_stride, .dim = dim};
    values(load8_f16, load1_f16, 2, &a, visible, n_q);
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
