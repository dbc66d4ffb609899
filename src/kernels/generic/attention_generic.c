/* SPDX-License-Identifier: Apache-2.0 */
/* attention_generic.c: scores and values over a block of 64 slots, and stores into a block, in plain C.
 *
 * Layouts are those of kernels.h: keys k[dim][64], values v[64][dim], f32 or f16. A score is one sum over d in
 * ascending order, scaled at the end; a value is one sum over the visible slots in ascending order.
 */
#include "base/check.h"
#include "base/compiler.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"

typedef float (*load_fn)(const void *base, int64_t i);

static float load_f32(const void *base, int64_t i) { return ((const float *)base)[i]; }
static float load_f16(const void *base, int64_t i) { return half_to_float(((const uint16_t *)base)[i]); }

static void scores(load_fn load, const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q,
                   float scale, float *out, int64_t out_stride) {
    BASE_DCHECK(dim > 0 && (n_q <= 1 || (q_stride >= dim && out_stride >= KERNEL_SLOTS)));
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
    BASE_DCHECK(dim > 0 && (n_q <= 1 || (p_stride >= base_popcount64(visible) && acc_stride >= dim)));
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
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    float *dst = (float *)k + slot;
    for (int64_t d = 0; d < dim; d++) dst[d * KERNEL_SLOTS] = x[d];
}

static void store_key_f16(const float *x, int64_t dim, void *k, int slot) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    uint16_t *dst = (uint16_t *)k + slot;
    for (int64_t d = 0; d < dim; d++) dst[d * KERNEL_SLOTS] = half_from_float(x[d]);
}

static void store_value_f32(const float *x, int64_t dim, void *v, int slot) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    memcpy((float *)v + slot * dim, x, (size_t)dim * sizeof *x);
}

static void store_value_f16(const float *x, int64_t dim, void *v, int slot) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    uint16_t *dst = (uint16_t *)v + slot * dim;
    for (int64_t d = 0; d < dim; d++) dst[d] = half_from_float(x[d]);
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
}
