/* SPDX-License-Identifier: Apache-2.0 */
/* attention_generic.c: scores and values over a block of 64 slots, and stores into a block, in plain C.
 *
 * Layouts are those of kernels.h: keys k[dim][64], values v[64][dim], f32, f16 or fp8. A score is one sum over d in
 * ascending order, scaled at the end; a value is one sum over the visible slots in ascending order.
 */
#include "base/compiler.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"
#include "kernels/prefetch.h"

typedef float (*load_fn)(const void *base, int64_t i);

static float load_f32(const void *base, int64_t i) { return ((const float *)base)[i]; }
static float load_f16(const void *base, int64_t i) { return half_to_float(((const uint16_t *)base)[i]); }

static void scores(load_fn load, const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q,
                   float scale, float *out, int64_t out_stride) {
    for (int64_t q = 0; q < n_q; q++) {
        float acc[KERNEL_SLOTS] = {0};
        for (int64_t d = 0; d < dim; d++) {
            const float x = query[q * q_stride + d];
            for (int64_t j = 0; j < KERNEL_SLOTS; j++) acc[j] += x * load(k, d * KERNEL_SLOTS + j);
        }
        for (int64_t j = 0; j < KERNEL_SLOTS; j++) out[q * out_stride + j] = scale * acc[j];
    }
}

static void values(load_fn load, const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride,
                   int64_t n_q, float *acc, int64_t acc_stride) {
    int64_t i = 0;
    for (uint64_t rest = visible; rest != 0; rest &= rest - 1, i++) {
        const int64_t slot = base_ctz64(rest);
        for (int64_t q = 0; q < n_q; q++) {
            const float weight = p[q * p_stride + i];
            for (int64_t d = 0; d < dim; d++) acc[q * acc_stride + d] += weight * load(v, slot * dim + d);
        }
    }
}

static void attn_scores_f32(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                            float *out, int64_t out_stride, const void *next) {
    (void)next;
    scores(load_f32, k, dim, query, q_stride, n_q, scale, out, out_stride);
}

static void attn_scores_f16(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                            float *out, int64_t out_stride, const void *next) {
    (void)next;
    scores(load_f16, k, dim, query, q_stride, n_q, scale, out, out_stride);
}

static void attn_values_f32(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                            float *acc, int64_t acc_stride, const void *next) {
    (void)next;
    values(load_f32, v, dim, visible, p, p_stride, n_q, acc, acc_stride);
}

static void attn_values_f16(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                            float *acc, int64_t acc_stride, const void *next) {
    (void)next;
    values(load_f16, v, dim, visible, p, p_stride, n_q, acc, acc_stride);
}

static void store_key_f32(const float *x, int64_t dim, void *k, int slot) {
    float *dst = (float *)k + slot;
    for (int64_t d = 0; d < dim; d++) dst[d * KERNEL_SLOTS] = x[d];
}

static void store_key_f16(const float *x, int64_t dim, void *k, int slot) {
    uint16_t *dst = (uint16_t *)k + slot;
    for (int64_t d = 0; d < dim; d++) dst[d * KERNEL_SLOTS] = half_from_float(x[d]);
}

static void store_value_f32(const float *x, int64_t dim, void *v, int slot) {
    memcpy((float *)v + slot * dim, x, (size_t)dim * sizeof *x);
}

static void store_value_f16(const float *x, int64_t dim, void *v, int slot) {
    uint16_t *dst = (uint16_t *)v + slot * dim;
    for (int64_t d = 0; d < dim; d++) dst[d] = half_from_float(x[d]);
}

/* Exact. The exponent's bias is 8 larger in f16; numbers below 2^-6, which are subnormal in fp8, are normal there.
 * Without branches: compilers vectorize the loop. */
static BASE_ALWAYS_INLINE uint16_t fp8_to_f16(uint8_t code) {
    const uint16_t magnitude = code & 0x7f, sign = (uint16_t)((code & 0x80) << 8);
    const uint16_t normal = (uint16_t)((magnitude << 7) + 0x2000);
    const uint16_t low = (uint16_t)(magnitude < 2 ? magnitude * 0x1800 : 0x1c00 + (magnitude - 2) * 0x200);
    const uint16_t high = (uint16_t)(0x2000 + (magnitude - 4) * 0x100);
    const uint16_t subnormal = magnitude < 4 ? low : high;
    const uint16_t finite = magnitude < 8 ? subnormal : normal;
    return sign | (magnitude == 0x7f ? 0x7f80 : finite);
}

static void unpack_fp8(const void *from, int64_t n, uint16_t *to, const void *next) {
    const uint8_t *codes = from;
    for (int64_t i = 0; i < n; i += KERNEL_SLOTS) {
        kernel_prefetch(next, i, KERNEL_SLOTS);
        for (int64_t j = i; j < i + KERNEL_SLOTS; j++) to[j] = fp8_to_f16(codes[j]);
    }
}

static void store_key_fp8(const float *x, int64_t dim, void *k, int slot) {
    uint8_t *dst = (uint8_t *)k + slot;
    for (int64_t d = 0; d < dim; d++) dst[d * KERNEL_SLOTS] = half_fp8_from_float(x[d]);
}

static void store_value_fp8(const float *x, int64_t dim, void *v, int slot) {
    uint8_t *dst = (uint8_t *)v + slot * dim;
    for (int64_t d = 0; d < dim; d++) dst[d] = half_fp8_from_float(x[d]);
}

void generic_attention_entries(kernel_table *t) {
    t->attn_scores_f32 = attn_scores_f32;
    t->attn_scores_f16 = attn_scores_f16;
    t->attn_values_f32 = attn_values_f32;
    t->attn_values_f16 = attn_values_f16;
    t->store_key_f32 = store_key_f32;
    t->store_key_f16 = store_key_f16;
    t->store_value_f32 = store_value_f32;
    t->store_value_f16 = store_value_f16;
    t->unpack_fp8 = unpack_fp8;
    t->store_key_fp8 = store_key_fp8;
    t->store_value_fp8 = store_value_fp8;
}
