/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_neon.c: attention over int8 KV with SMLAL: int16 of a query or of weights by codes widened to int16,
 * pairs of dimensions (scores) or of slots (values) side by side. Both products of a pair have a lane of their own
 * until all pairs are added. The results are those of attention_int8_generic.c, bit for bit, except for those of exp.
 *
 * A tile is 4, 2 or 1 queries times 8 slots or dimensions: codes are loaded and widened once for several queries.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"
#include "kernels/half.h"

#define TILE 8 /* slots or dimensions */
#define MOST_QUERIES 4
#define WEIGHT_MAX 32767
#define CODE_MAX 127.0f

/* ---- products ---- */

/* Two factors (int16) for each pair of codes, n pairs; rows of codes are `stride` bytes apart, queries `x_stride`. */
typedef struct pair_args {
    const int8_t *codes;
    int64_t stride, n;
    const int16_t *x;
    int64_t x_stride;
} pair_args;

/* sums[2 * q], sums[2 * q + 1]: of the tile's 8 slots or dimensions. */
static BASE_ALWAYS_INLINE void multiply_pairs(const pair_args *a, int n_q, int32x4_t sums[2 * MOST_QUERIES]) {
    int32x4_t acc[4 * MOST_QUERIES];
    for (int i = 0; i < 4 * n_q; i++) acc[i] = vdupq_n_s32(0);
    for (int64_t pair = 0; pair < a->n; pair++) {
        const int8x16_t codes = vld1q_s8(a->codes + pair * a->stride);
        const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_high_s8(codes);
        BASE_UNROLL
        for (int q = 0; q < n_q; q++) {
            int32_t both;
            memcpy(&both, a->x + q * a->x_stride + 2 * pair, sizeof both);
            const int16x8_t x = vreinterpretq_s16_s32(vdupq_n_s32(both));
            acc[4 * q] = vmlal_s16(acc[4 * q], vget_low_s16(low), vget_low_s16(x));
            acc[4 * q + 1] = vmlal_high_s16(acc[4 * q + 1], low, x);
            acc[4 * q + 2] = vmlal_s16(acc[4 * q + 2], vget_low_s16(high), vget_low_s16(x));
            acc[4 * q + 3] = vmlal_high_s16(acc[4 * q + 3], high, x);
        }
    }
    for (int i = 0; i < 2 * n_q; i++) sums[i] = vpaddq_s32(acc[2 * i], acc[2 * i + 1]);
}

/* ---- scores ---- */

typedef struct score_args {
    const int8_t *k;
    int64_t dim;
    const int16_t *query;
    int64_t q_stride;
    const float *scales;
    float *out;
    int64_t out_stride;
} score_args;

static BASE_ALWAYS_INLINE void score_tile(const score_args *a, int64_t first_q, int slot, int n_q) {
    const pair_args pairs = {a->k + 2 * slot, 2 * KERNEL_SLOTS, a->dim / 2, a->query + first_q * a->q_stride,
                             a->q_stride};
    int32x4_t sums[2 * MOST_QUERIES];
    uint16_t halves[TILE];
    multiply_pairs(&pairs, n_q, sums);
    memcpy(halves, a->k + KERNEL_INT8_SCALES(a->dim) + 2 * slot, sizeof halves);
    for (int i = 0; i < 2 * n_q; i++) {
        const float32x4_t scales = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(halves + 4 * (i % 2)), 16));
        const float32x4_t scaled = vmulq_n_f32(vcvtq_f32_s32(sums[i]), a->scales[first_q + i / 2]);
        vst1q_f32(a->out + (first_q + i / 2) * a->out_stride + slot + 4 * (i % 2), vmulq_f32(scaled, scales));
    }
}

static BASE_ALWAYS_INLINE void score_queries(const score_args *a, int64_t first_q, int n_q) {
    for (int slot = 0; slot < KERNEL_SLOTS; slot += TILE) score_tile(a, first_q, slot, n_q);
}

static void scores_int8(const void *k, int64_t dim, const int16_t *query, int64_t q_stride, int64_t n_q,
                        const float *scales, float *out, int64_t out_stride, const void *next) {
    const score_args a = {k, dim, query, q_stride, scales, out, out_stride};
    int64_t q = 0;
    (void)next;
    for (; q + 4 <= n_q; q += 4) score_queries(&a, q, 4);
    for (; q + 2 <= n_q; q += 2) score_queries(&a, q, 2);
    for (; q < n_q; q++) score_queries(&a, q, 1);
}

/* ---- values ---- */

typedef struct value_args {
    const int8_t *v;
    int64_t dim;
    const int16_t *p;
    int64_t p_stride;
    int32_t *acc;
    int64_t acc_stride;
} value_args;

static BASE_ALWAYS_INLINE void value_tile(const value_args *a, int64_t first_q, int64_t d, int n_q) {
    const pair_args pairs = {a->v + 2 * d, 2 * a->dim, KERNEL_SLOTS / 2, a->p + first_q * a->p_stride, a->p_stride};
    int32x4_t sums[2 * MOST_QUERIES];
    multiply_pairs(&pairs, n_q, sums);
    for (int i = 0; i < 2 * n_q; i++) {
        int32_t *acc = a->acc + (first_q + i / 2) * a->acc_stride + d + 4 * (i % 2);
        vst1q_s32(acc, vaddq_s32(vld1q_s32(acc), sums[i]));
    }
}

static void value_one(const value_args *a, int64_t q, int64_t d) {
    int32_t sum = a->acc[q * a->acc_stride + d];
    for (int slot = 0; slot < KERNEL_SLOTS; slot++)
        sum += a->p[q * a->p_stride + slot] * a->v[slot / 2 * 2 * a->dim + 2 * d + slot % 2];
    a->acc[q * a->acc_stride + d] = sum;
}

/* Are all 64 weights of n queries 0? In a long context most weights of a peaked head round to 0. */
static BASE_ALWAYS_INLINE bool is_zero(const value_args *a, int64_t first_q, int n_q) {
    int16x8_t any = vdupq_n_s16(0);
    for (int q = 0; q < n_q; q++)
        for (int slot = 0; slot < KERNEL_SLOTS; slot += 8)
            any = vorrq_s16(any, vld1q_s16(a->p + (first_q + q) * a->p_stride + slot));
    return vmaxvq_u16(vreinterpretq_u16_s16(any)) == 0;
}

static BASE_ALWAYS_INLINE void value_queries(const value_args *a, int64_t first_q, int n_q) {
    int64_t d = 0;
    if (is_zero(a, first_q, n_q)) return;
    for (; d + TILE <= a->dim; d += TILE) value_tile(a, first_q, d, n_q);
    for (; d < a->dim; d++)
        for (int64_t q = first_q; q < first_q + n_q; q++) value_one(a, q, d);
}

static void values_int8(const void *v, int64_t dim, const int16_t *p, int64_t p_stride, int64_t n_q, int32_t *acc,
                        int64_t acc_stride, const void *next) {
    const value_args a = {v, dim, p, p_stride, acc, acc_stride};
    int64_t q = 0;
    (void)next;
    for (; q + 4 <= n_q; q += 4) value_queries(&a, q, 4);
    for (; q + 2 <= n_q; q += 2) value_queries(&a, q, 2);
    for (; q < n_q; q++) value_queries(&a, q, 1);
}

/* ---- queries ---- */

static float largest_magnitude(const float *x, int64_t n) {
    float32x4_t most = vdupq_n_f32(0);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) most = vmaxnmq_f32(most, vabsq_f32(vld1q_f32(x + i)));
    float max = vmaxnmvq_f32(most);
    for (; i < n; i++) max = fmaxf(max, fabsf(x[i]));
    return max;
}

static float query_int8(const float *q, int64_t dim, int16_t *out) {
    const float limit = (float)BASE_MIN(INT64_C(32767), INT32_MAX / (127 * dim)), max = largest_magnitude(q, dim);
    const float factor = max < KERNEL_Q8_TINY ? 0.0f : limit / max;
    int64_t d = 0;
    for (; d + 4 <= dim; d += 4) vst1_s16(out + d, vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(q + d), factor))));
    for (; d < dim; d++) out[d] = (int16_t)lrintf(q[d] * factor);
    return max < KERNEL_Q8_TINY ? 0.0f : max / limit;
}

/* ---- softmax ---- */

static float highest(const float *x, int64_t n) {
    float32x4_t most = vdupq_n_f32(-INFINITY);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) most = vmaxnmq_f32(most, vld1q_f32(x + i)); /* the other one if one is NaN */
    float max = vmaxnmvq_f32(most);
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

/* The first n of four floats at p, n > 0; the other lanes are 0 and their memory is not accessed. */
static BASE_ALWAYS_INLINE float32x4_t load4(const float *p, int64_t n) {
    if (n >= 4) return vld1q_f32(p);
    float v[4] = {0};
    memcpy(v, p, (size_t)n * sizeof *v);
    return vld1q_f32(v);
}

/* To the nearest integers; 0 for NaN and for what 32 bits do not hold. */
static BASE_ALWAYS_INLINE int32x4_t round_positive(float32x4_t x) {
    const uint32x4_t fits = vandq_u32(vcgtq_f32(x, vdupq_n_f32(0)), vcltq_f32(x, vdupq_n_f32(0x1p31f)));
    return vandq_s32(vcvtnq_s32_f32(x), vreinterpretq_s32_u32(fits));
}

/* exp(x) for x <= 0, as exp_negative of vector_neon.c, with fewer terms: the series up to r^5 is off by less than
 * 2.5e-6, and ln 2 is not split. A NaN gives that of the lowest x. */
static BASE_ALWAYS_INLINE float32x4_t exp_short(float32x4_t x) {
    static const float inverse_factorial[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    const float32x4_t above = vmaxnmq_f32(x, vdupq_n_f32(-87.0f));
    const float32x4_t n = vrndnq_f32(vmulq_n_f32(above, 0x1.715476p+0f));
    const float32x4_t r = vfmsq_f32(above, n, vdupq_n_f32(0x1.62e43p-1f));
    float32x4_t e = vdupq_n_f32(inverse_factorial[0]);
    for (int i = 1; i < 6; i++) e = vfmaq_f32(vdupq_n_f32(inverse_factorial[i]), e, r);
    const int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(e, vreinterpretq_f32_s32(exponent));
}

static int64_t exp_int8(float *x, int64_t n, float max) {
    int64x2_t sums = vdupq_n_s64(0);
    for (int64_t i = 0; i < n; i += 4) {
        const int64_t lanes = BASE_MIN(4, n - i);
        const float32x4_t e = exp_short(vsubq_f32(load4(x + i, lanes), vdupq_n_f32(max)));
        float all[4];
        vst1q_f32(all, e);
        memcpy(x + i, all, (size_t)lanes * sizeof *x);
        for (int64_t k = lanes; k < 4; k++) all[k] = 0;
        sums = vpadalq_s32(sums, vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(all), KERNEL_INT8_ONE)));
    }
    return vaddvq_s64(sums);
}

static int64_t weights_int8(const float *x, const float *scales, int64_t n, float factor, int16_t *out,
                            kernel_heavy *heavy) {
    int64_t n_heavy = 0;
    for (int64_t i = 0; i < n; i += 4) {
        const int64_t lanes = BASE_MIN(4, n - i);
        int32_t weights[4];
        int16_t narrow[4];
        const int32x4_t w =
            round_positive(vmulq_n_f32(vmulq_f32(load4(x + i, lanes), load4(scales + i, lanes)), factor));
        vst1_s16(narrow, vqmovn_s32(w));
        memcpy(out + i, narrow, (size_t)lanes * sizeof *out);
        if (vmaxvq_s32(w) <= WEIGHT_MAX) continue;
        vst1q_s32(weights, w);
        for (int64_t k = 0; k < lanes; k++) {
            if (weights[k] <= WEIGHT_MAX) continue;
            out[i + k] = 0;
            heavy[n_heavy++] = (kernel_heavy){(int32_t)(i + k), weights[k]};
        }
    }
    return n_heavy;
}

/* ---- storing ---- */

/* The codes of up to 4 elements; see kernel_int8_code. */
static BASE_ALWAYS_INLINE int32x4_t codes_of(const float *x, int64_t n, float scale) {
    const float32x4_t most = vdupq_n_f32(CODE_MAX),
                      code = vminnmq_f32(vdivq_f32(load4(x, n), vdupq_n_f32(scale)), most);
    return vcvtnq_s32_f32(vmaxnmq_f32(code, vnegq_f32(most)));
}

/* The scale of a token, stored in its slot; returned as a divisor: infinity if all elements count as 0. */
static float store_scale(const float *x, int64_t dim, void *head, int slot) {
    const float max = largest_magnitude(x, dim);
    const uint32_t bits = max < KERNEL_Q8_TINY ? 0 : (half_float_bits(max / CODE_MAX) + 0xffff) & 0xffff0000u;
    const uint16_t scale = (uint16_t)(bits >> 16);
    memcpy((uint8_t *)head + KERNEL_INT8_SCALES(dim) + 2 * slot, &scale, sizeof scale);
    return bits ? half_bits_float(bits) : INFINITY;
}

static void store_key_int8(const float *x, int64_t dim, void *k, int slot) {
    const float scale = store_scale(x, dim, k, slot);
    for (int64_t d = 0; d < dim; d += 4) {
        int32_t codes[4];
        vst1q_s32(codes, codes_of(x + d, BASE_MIN(4, dim - d), scale));
        for (int64_t i = d; i < dim && i < d + 4; i++)
            ((int8_t *)k)[(i / 2 * KERNEL_SLOTS + slot) * 2 + i % 2] = (int8_t)codes[i - d];
    }
}

static void store_value_int8(const float *x, int64_t dim, void *v, int slot) {
    const float scale = store_scale(x, dim, v, slot);
    int8_t *pairs = (int8_t *)v + slot / 2 * 2 * dim + slot % 2;
    for (int64_t d = 0; d < dim; d += 4) {
        int32_t codes[4];
        vst1q_s32(codes, codes_of(x + d, BASE_MIN(4, dim - d), scale));
        for (int64_t i = d; i < dim && i < d + 4; i++) pairs[2 * i] = (int8_t)codes[i - d];
    }
}

void neon_attention_int8_entries(kernel_table *t) {
    t->query_int8 = query_int8;
    t->scores_int8 = scores_int8;
    t->highest = highest;
    t->exp_int8 = exp_int8;
    t->weights_int8 = weights_int8;
    t->values_int8 = values_int8;
    t->store_key_int8 = store_key_int8;
    t->store_value_int8 = store_value_int8;
}
