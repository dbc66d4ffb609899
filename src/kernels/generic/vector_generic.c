/* SPDX-License-Identifier: Apache-2.0 */
/* vector_generic.c: the functions of one row, in plain C: quantization of activations, softmax, norms, activations,
 * sums, rotation.
 *
 * Sums run from the first element to the last, in double, so that their rounding does not affect the f32 result.
 */
#include <math.h>

#include "base/check.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"

void kernel_table_generic(kernel_table *t) {
    t->name = "generic";
    t->side = 1;
    generic_linear_entries(t);
    generic_attention_entries(t);
    generic_attention_int8_entries(t);
    generic_attention_bits_entries(t);
    generic_vector_entries(t);
    generic_recurrence_entries(t);
}

static void quantize_row(const float *x, void *q8, int64_t n) {
    uint8_t *row = q8;
    BASE_DCHECK(n % KERNEL_Q8_BLOCK == 0);
    for (int64_t b = 0; b < n / 32; b++) {
        float max = 0.0f;
        for (int i = 0; i < 32; i++) max = fmaxf(max, fabsf(x[32 * b + i]));
        const float d = max < KERNEL_Q8_TINY ? 0.0f : max / 127.0f;
        const float inverse = max < KERNEL_Q8_TINY ? 0.0f : 127.0f / max;
        int32_t sum[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            const int8_t q = (int8_t)lrintf(x[32 * b + i] * inverse);
            row[32 * b + i] = (uint8_t)q;
            sum[i / 16] += q;
        }
        const float s = d * (float)(sum[0] + sum[1]), h[2] = {d * (float)sum[0], d * (float)sum[1]};
        const int16_t c[2] = {(int16_t)sum[0], (int16_t)sum[1]};
        memcpy(row + KERNEL_Q8_D(n) + 4 * b, &d, sizeof d);
        memcpy(row + KERNEL_Q8_S(n) + 4 * b, &s, sizeof s);
        memcpy(row + KERNEL_Q8_H(n) + 8 * b, h, sizeof h);
        memcpy(row + KERNEL_Q8_C(n) + 4 * b, c, sizeof c);
    }
}

static float softmax(float *x, int64_t n) {
    BASE_DCHECK(n >= 1);
    float max = x[0];
    for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    return (float)(1.0 / sum);
}

static void rms_norm(const float *x, const float *w, float eps, float *y, int64_t n) {
    BASE_DCHECK(n > 0);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const float inverse = (float)(1.0 / sqrt(sum / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * inverse * w[i];
}

static void layer_norm(const float *x, const float *w, const float *b, float eps, float *y, int64_t n) {
    BASE_DCHECK(n > 0);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    const float mean = (float)(sum / (double)n);
    for (int64_t i = 0; i < n; i++) {
        const float d = x[i] - mean;
        squares += (double)d * (double)d;
    }
    const float inverse = (float)(1.0 / sqrt(squares / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse * w[i] + (b ? b[i] : 0.0f);
}

/* a / (1 + exp(-t)). With e = exp(-|t|), which cannot overflow: a / (1 + e) for t >= 0, a * e / (1 + e) below. */
static float times_sigmoid(float a, float t) {
    const float e = expf(-fabsf(t));
    return (t >= 0.0f ? a : a * e) / (1.0f + e);
}

static float silu(float a) { return times_sigmoid(a, a); }
static float gelu(float a) { return 0.5f * a * erfcf(a * -0x1.6a09e6p-1f); }
static float gelu_tanh(float a) { return times_sigmoid(a, a * (0x1.988454p+0f + 0x1.2444f2p-4f * a * a)); }

static void silu_row(const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = silu(a[i]) * (up ? up[i] : 1.0f);
}

static void gelu_row(const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = gelu(a[i]) * (up ? up[i] : 1.0f);
}

static void gelu_tanh_row(const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = gelu_tanh(a[i]) * (up ? up[i] : 1.0f);
}

static void swiglu_oai_row(const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float g = fminf(a[i], 7.0f), u = fminf(fmaxf(up[i], -7.0f), 7.0f);
        y[i] = times_sigmoid(g, 1.702f * g) * (u + 1.0f);
    }
}

static void relu_squared_row(const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float positive = fmaxf(a[i], 0.0f);
        y[i] = positive * positive * (up ? up[i] : 1.0f);
    }
}

static void sigmoid_row(const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = times_sigmoid(1.0f, a[i]) * (up ? up[i] : 1.0f);
}

static void add(const float *a, const float *b, float factor, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + factor * b[i];
}

static void soft_cap(float *x, float cap, int64_t n) {
    BASE_DCHECK(cap > 0);
    for (int64_t i = 0; i < n; i++) x[i] = cap * tanhf(x[i] / cap);
}

static void scale(float *x, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static void clamp(float *x, float limit, int64_t n) {
    BASE_DCHECK(limit >= 0);
    for (int64_t i = 0; i < n; i++) x[i] = fminf(fmaxf(x[i], -limit), limit);
}

static void rope_head(const float *x, const float *cs, int64_t dim, int64_t rot_dim, bool neox, float *y) {
    const int64_t n_pairs = rot_dim / 2;
    for (int64_t i = 0; i < n_pairs; i++) {
        const int64_t a = neox ? i : 2 * i, b = neox ? i + n_pairs : 2 * i + 1;
        const float xa = x[a], xb = x[b], c = cs[2 * i], s = cs[2 * i + 1];
        y[a] = xa * c - xb * s;
        y[b] = xb * c + xa * s;
    }
    for (int64_t i = rot_dim; i < dim; i++) y[i] = x[i];
}

static void rope(const float *x, const float *cs, int64_t n_heads, int64_t dim, int64_t rot_dim, bool neox, float *y) {
    BASE_DCHECK(rot_dim % 2 == 0 && rot_dim <= dim);
    for (int64_t h = 0; h < n_heads; h++) rope_head(x + h * dim, cs, dim, rot_dim, neox, y + h * dim);
}

void generic_vector_entries(kernel_table *t) {
    t->quantize_row = quantize_row;
    t->softmax = softmax;
    t->rms_norm = rms_norm;
    t->layer_norm = layer_norm;
    t->act[KERNEL_SILU] = silu_row;
    t->act[KERNEL_GELU] = gelu_row;
    t->act[KERNEL_GELU_TANH] = gelu_tanh_row;
    t->act[KERNEL_SWIGLU_OAI] = swiglu_oai_row;
    t->act[KERNEL_RELU_SQUARED] = relu_squared_row;
    t->act[KERNEL_SIGMOID] = sigmoid_row;
    t->add = add;
    t->soft_cap = soft_cap;
    t->scale = scale;
    t->clamp = clamp;
    t->rope = rope;
}
