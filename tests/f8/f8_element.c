/* SPDX-License-Identifier: Apache-2.0 */
/* f8_element.c: the kernels of a KV element that the product does not have: floats of 8 bits (E4M3: bias 7, subnormal
 * numbers, no infinities), without scales. With a row in RP_KV_FORMATS and one in KV_ELEMENTS (check_f8.c) this is all
 * that a new format needs. Plain C; layouts and order of accumulation are those of kernels.h.
 */
#include <math.h>

#include "backend/cpu/cpu_kv_elements.h"

static float value_of(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float magnitude = exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
    return code & 0x80 ? -magnitude : magnitude;
}

/* The nearest number, ties to even codes; beyond 448: 448. */
static uint8_t code_of(float x) {
    const float magnitude = fminf(fabsf(x), 448);
    const int exponent = magnitude >= 0x1p-6f ? ilogbf(magnitude) : -6;
    const int steps = (int)rintf(ldexpf(magnitude, 3 - exponent)); /* of 2^(exponent - 3): 8 to 16 of a normal number */
    return (uint8_t)((signbit(x) ? 0x80 : 0) | (((exponent + 6) << 3) + steps));
}

static void store_key(const float *x, int64_t dim, void *k, int slot) {
    for (int64_t d = 0; d < dim; d++) ((uint8_t *)k)[d * KERNEL_SLOTS + slot] = code_of(x[d]);
}

static void store_value(const float *x, int64_t dim, void *v, int slot) {
    for (int64_t d = 0; d < dim; d++) ((uint8_t *)v)[slot * dim + d] = code_of(x[d]);
}

static float load(const void *head, bool is_key, int64_t dim, int slot, int64_t d) {
    return value_of(((const uint8_t *)head)[is_key ? d * KERNEL_SLOTS + slot : slot * dim + d]);
}

static void attn_scores(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q, float scale,
                        float *out, int64_t out_stride, const void *next) {
    (void)next;
    for (int64_t q = 0; q < n_q; q++)
        for (int slot = 0; slot < KERNEL_SLOTS; slot++) {
            float sum = 0;
            for (int64_t d = 0; d < dim; d++) sum = fmaf(query[q * q_stride + d], load(k, true, dim, slot, d), sum);
            out[q * out_stride + slot] = scale * sum;
        }
}

static void attn_values(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride, int64_t n_q,
                        float *acc, int64_t acc_stride, const void *next) {
    (void)next;
    for (int64_t q = 0; q < n_q; q++)
        for (int slot = 0, i = 0; slot < KERNEL_SLOTS; slot++) {
            if (!(visible >> slot & 1)) continue;
            const float weight = p[q * p_stride + i++];
            for (int64_t d = 0; d < dim; d++) {
                float *sum = &acc[q * acc_stride + d];
                *sum = fmaf(weight, load(v, false, dim, slot, d), *sum);
            }
        }
}

static cpu_store_fn store_of(const kernel_table *k, bool is_key) {
    (void)k;
    return is_key ? store_key : store_value;
}

static kernel_attn_scores_fn scores_of(const kernel_table *k) {
    (void)k;
    return attn_scores;
}

static kernel_attn_values_fn values_of(const kernel_table *k) {
    (void)k;
    return attn_values;
}

static float round_f8(float x) { return value_of(code_of(x)); }

const cpu_element cpu_element_F8 = {store_of, load, scores_of, values_of, round_f8};
