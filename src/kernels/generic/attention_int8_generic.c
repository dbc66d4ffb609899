/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_generic.c: attention over int8 KV in plain C (kernels.h has the layouts).
 *
 * Every rounding is of one element, by the formula here; the sums are exact. Other levels give the same bits, except
 * for those of exp.
 */
#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"

#define CODE_MAX 127.0f
#define WEIGHT_MAX 32767

/* A score's sum of dim products fits 32 bits. */
static float query_max(int64_t dim) {
    BASE_DCHECK(dim > 0 && dim <= INT32_MAX / 127);
    return (float)BASE_MIN(INT64_C(32767), INT32_MAX / (127 * dim));
}

static float query_int8(const float *q, int64_t dim, int16_t *out) {
    const float limit = query_max(dim);
    float max = 0.0f;
    for (int64_t d = 0; d < dim; d++) max = fmaxf(max, fabsf(q[d]));
    const float factor = max < KERNEL_Q8_TINY ? 0.0f : limit / max;
    for (int64_t d = 0; d < dim; d++) out[d] = (int16_t)lrintf(q[d] * factor);
    return max < KERNEL_Q8_TINY ? 0.0f : max / limit;
}

static float scale_at(const void *head, int64_t dim, int slot) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    uint16_t h;
    memcpy(&h, (const uint8_t *)head + KERNEL_INT8_SCALES(dim) + 2 * slot, sizeof h);
    return half_bf16_to_float(h);
}

static void scores_int8(const void *k, int64_t dim, const int16_t *query, int64_t q_stride, int64_t n_q,
                        const float *scales, float *out, int64_t out_stride, const void *next) {
    BASE_DCHECK(dim % 2 == 0 && (n_q <= 1 || (q_stride >= dim && out_stride >= KERNEL_SLOTS)));
    (void)next;
    const int8_t *codes = k;
    for (int64_t q = 0; q < n_q; q++) {
        int32_t sums[KERNEL_SLOTS] = {0};
        for (int64_t d = 0; d < dim; d++) {
            const int32_t x = query[q * q_stride + d];
            for (int64_t j = 0; j < KERNEL_SLOTS; j++) sums[j] += x * codes[(d / 2 * KERNEL_SLOTS + j) * 2 + d % 2];
        }
        for (int j = 0; j < KERNEL_SLOTS; j++)
            out[q * out_stride + j] = (float)sums[j] * scales[q] * scale_at(k, dim, j);
    }
}

static float highest(const float *x, int64_t n) {
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

/* To the nearest integer; 0 for NaN and for what 32 bits do not hold. */
static int32_t round_positive(float x) { return x > 0 && x < 0x1p31f ? (int32_t)lrintf(x) : 0; }

static int64_t exp_int8(float *x, int64_t n, float max) {
    BASE_DCHECK(n >= 0 && n <= KERNEL_INT8_MAX_SLOTS + 1);
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += round_positive(x[i] * KERNEL_INT8_ONE);
    }
    return sum;
}

int kernel_int8_weight_bits(int64_t n) {
    BASE_DCHECK(n >= 0 && n <= KERNEL_INT8_MAX_SLOTS);
    int bits = 15;
    for (; n >= 64 && bits < 22; n /= 2) bits++;
    return bits;
}

static int64_t weights_int8(const float *x, const float *scales, int64_t n, float factor, int16_t *out,
                            kernel_heavy *heavy) {
    int64_t n_heavy = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t weight = round_positive(x[i] * scales[i] * factor);
        out[i] = (int16_t)(weight > WEIGHT_MAX ? 0 : weight);
        if (weight > WEIGHT_MAX) heavy[n_heavy++] = (kernel_heavy){(int32_t)i, weight};
    }
    return n_heavy;
}

static void values_int8(const void *v, int64_t dim, const int16_t *p, int64_t p_stride, int64_t n_q, int32_t *acc,
                        int64_t acc_stride, const void *next) {
    BASE_DCHECK(dim % 2 == 0 && (n_q <= 1 || (p_stride >= KERNEL_SLOTS && acc_stride >= dim)));
    (void)next;
    const int8_t *codes = v;
    for (int64_t q = 0; q < n_q; q++) {
        for (int64_t slot = 0; slot < KERNEL_SLOTS; slot++) {
            const int32_t weight = p[q * p_stride + slot];
            const int8_t *code = codes + slot / 2 * 2 * dim + slot % 2;
            for (int64_t d = 0; d < dim; d++) acc[q * acc_stride + d] += weight * code[2 * d];
        }
    }
}

static void value_int8(const void *v, int64_t dim, int slot, int32_t weight, int32_t *acc) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    const int8_t *code = (const int8_t *)v + slot / 2 * 2 * dim + slot % 2;
    for (int64_t d = 0; d < dim; d++) acc[d] += weight * code[2 * d];
}

/* ---- storing ---- */

/* bf16: the upper half of a float, rounded up. */
float kernel_int8_scale(const float *x, int64_t dim) {
    float max = 0.0f;
    for (int64_t d = 0; d < dim; d++) max = fmaxf(max, fabsf(x[d]));
    return max < KERNEL_Q8_TINY ? 0.0f : half_bits_float((half_float_bits(max / CODE_MAX) + 0xffff) & 0xffff0000u);
}

void kernel_int8_scales(const void *scales, float out[KERNEL_SLOTS]) {
    uint16_t h[KERNEL_SLOTS];
    memcpy(h, scales, sizeof h);
    for (int j = 0; j < KERNEL_SLOTS; j++) out[j] = half_bf16_to_float(h[j]);
}

/* A NaN becomes the largest code. */
int8_t kernel_int8_code(float x, float scale) {
    float code = x / (scale > 0 ? scale : INFINITY);
    code = code < CODE_MAX ? code : CODE_MAX;
    return (int8_t)lrintf(code > -CODE_MAX ? code : -CODE_MAX);
}

static const int8_t *key_code(const void *k, int slot, int64_t d) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS && d >= 0);
    return (const int8_t *)k + (d / 2 * KERNEL_SLOTS + slot) * 2 + d % 2;
}
static const int8_t *value_code(const void *v, int64_t dim, int slot, int64_t d) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS && d >= 0 && d < dim);
    return (const int8_t *)v + (slot / 2 * dim + d) * 2 + slot % 2;
}

float kernel_int8_key(const void *k, int64_t dim, int slot, int64_t d) {
    return scale_at(k, dim, slot) * (float)*key_code(k, slot, d);
}
float kernel_int8_value(const void *v, int64_t dim, int slot, int64_t d) {
    return scale_at(v, dim, slot) * (float)*value_code(v, dim, slot, d);
}

static void put_scale(void *head, int64_t dim, int slot, float scale) {
    const uint16_t h = (uint16_t)(half_float_bits(scale) >> 16);
    BASE_DCHECK(dim % 2 == 0 && slot >= 0 && slot < KERNEL_SLOTS);
    memcpy((uint8_t *)head + KERNEL_INT8_SCALES(dim) + 2 * slot, &h, sizeof h);
}

static void store_key_int8(const float *x, int64_t dim, void *k, int slot) {
    const float scale = kernel_int8_scale(x, dim);
    put_scale(k, dim, slot, scale);
    for (int64_t d = 0; d < dim; d++) *(int8_t *)key_code(k, slot, d) = kernel_int8_code(x[d], scale);
}

static void store_value_int8(const float *x, int64_t dim, void *v, int slot) {
    const float scale = kernel_int8_scale(x, dim);
    put_scale(v, dim, slot, scale);
    for (int64_t d = 0; d < dim; d++) *(int8_t *)value_code(v, dim, slot, d) = kernel_int8_code(x[d], scale);
}

void generic_attention_int8_entries(kernel_table *t) {
    t->query_int8 = query_int8;
    t->scores_int8 = scores_int8;
    t->highest = highest;
    t->exp_int8 = exp_int8;
    t->weights_int8 = weights_int8;
    t->values_int8 = values_int8;
    t->value_int8 = value_int8;
    t->store_key_int8 = store_key_int8;
    t->store_value_int8 = store_value_int8;
}
