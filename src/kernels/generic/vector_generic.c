/* vector_generic.c: everything that works along one row, in plain C: quantising activations, softmax, norm, gate, add,
 * rotation.
 *
 * Sums run from the first element to the last, in double, so that their rounding does not show in the f32 result.
 */
#include <assert.h>
#include <math.h>

#include "kernels/generic/generic.h"
#include "kernels/half.h"

void kernel_table_generic(kernel_table *t) {
    t->name = "generic";
    generic_linear_entries(t);
    generic_attention_entries(t);
    generic_vector_entries(t);
}

/* Blocks whose largest element is below this are stored as zeros: 127 / max must stay finite and the scale normal. */
#define QUANTIZE_TINY 0x1p-110f

static void quantize_row(const float *x, void *q8, int64_t n) {
    uint8_t *scales = (uint8_t *)q8 + n, *sums = scales + n / 8, *half_sums = sums + n / 8;
    assert(n % KERNEL_Q8_BLOCK == 0);
    for (int64_t b = 0; b < n / 32; b++) {
        float max = 0.0f;
        for (int i = 0; i < 32; i++) max = fmaxf(max, fabsf(x[32 * b + i]));
        const float d = max < QUANTIZE_TINY ? 0.0f : max / 127.0f;
        const float inverse = max < QUANTIZE_TINY ? 0.0f : 127.0f / max;
        int32_t sum[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            const int8_t q = (int8_t)lrintf(x[32 * b + i] * inverse);
            ((int8_t *)q8)[32 * b + i] = q;
            sum[i / 16] += q;
        }
        const float s = d * (float)(sum[0] + sum[1]), h[2] = {d * (float)sum[0], d * (float)sum[1]};
        memcpy(scales + 4 * b, &d, sizeof d);
        memcpy(sums + 4 * b, &s, sizeof s);
        memcpy(half_sums + 8 * b, h, sizeof h);
    }
}

static void softmax(float *x, int64_t n) {
    assert(n >= 1);
    float max = x[0];
    for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    const float inverse = (float)(1.0 / sum);
    for (int64_t i = 0; i < n; i++) x[i] *= inverse;
}

static void rms_norm(const float *x, const float *w, float eps, float *y, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const float inverse = (float)(1.0 / sqrt(sum / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * inverse * w[i];
}

/* With e = exp(-|a|), which cannot overflow: a / (1 + e) for a >= 0, a * e / (1 + e) below. */
static void silu_mul(const float *gate, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float a = gate[i];
        const float e = expf(-fabsf(a));
        y[i] = (a >= 0.0f ? a : a * e) / (1.0f + e) * up[i];
    }
}

static void add(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
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
    assert(rot_dim % 2 == 0 && rot_dim <= dim);
    for (int64_t h = 0; h < n_heads; h++) rope_head(x + h * dim, cs, dim, rot_dim, neox, y + h * dim);
}

void generic_vector_entries(kernel_table *t) {
    t->quantize_row = quantize_row;
    t->softmax = softmax;
    t->rms_norm = rms_norm;
    t->silu_mul = silu_mul;
    t->add = add;
    t->rope = rope;
}
