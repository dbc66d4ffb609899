/* SPDX-License-Identifier: Apache-2.0 */
/* linear_generic.c: matrix products in plain C, the specification of kernel_table.linear.
 *
 * An output element is one sum, from the first input to the last:
 *   float types      acc += w[i] * x[i]
 *   quantized types  by pieces of 32: the products of integers are added exactly, then
 *                    acc += (scale * d) * sum,   and for a format with minima   acc -= min * s
 *                    (a format with two scales or minima a piece has that step for each half, with h for s)
 * A whole column of y is summed at once, so that a weight is unpacked once for all rows; no element's order depends
 * on that. Multiplications and additions are rounded separately.
 */
#include "base/check.h"
#include "kernels/formats.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"

static float load_f32(const uint8_t *row, int64_t i) {
    float f;
    memcpy(&f, row + 4 * i, sizeof f);
    return f;
}

static float load_f16(const uint8_t *row, int64_t i) { return half_load(row + 2 * i); }
static float load_bf16(const uint8_t *row, int64_t i) { return half_bf16_to_float(half_load_u16(row + 2 * i)); }

static void clear_column(float *y, int64_t y_stride, int64_t n_rows) {
    for (int64_t r = 0; r < n_rows; r++) y[r * y_stride] = 0.0f;
}

static void float_column(float (*load)(const uint8_t *, int64_t), const uint8_t *w, int64_t n_in, const uint8_t *x,
                         int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    BASE_DCHECK(n_rows <= 1 || x_stride >= (int64_t)sizeof(float) * n_in);
    clear_column(y, y_stride, n_rows);
    for (int64_t i = 0; i < n_in; i++) {
        const float weight = load(w, i);
        for (int64_t r = 0; r < n_rows; r++) y[r * y_stride] += weight * load_f32(x + r * x_stride, i);
    }
}

static int32_t dot(const int8_t *a, const int8_t *b, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Adds to acc what one piece contributes for one row of activations. */
static float add_piece(float acc, const format_traits *f, const format_piece *w, const uint8_t *x, int64_t n_in,
                       int64_t piece) {
    BASE_DCHECK((f->n_scales == 1 || f->n_scales == 2) && f->n_mins <= 2 && 32 * piece < n_in);
    int8_t q[32];
    memcpy(q, x + 32 * piece, sizeof q);
    const float d = load_f32(x + KERNEL_Q8_D(n_in), piece);
    const int n = 32 / f->n_scales;
    for (int k = 0; k < f->n_scales; k++) acc += w->scale[k] * d * (float)dot(w->q + n * k, q + n * k, n);
    if (f->n_mins == 1) acc -= w->min[0] * load_f32(x + KERNEL_Q8_S(n_in), piece);
    for (int k = 0; f->n_mins == 2 && k < 2; k++) acc -= w->min[k] * load_f32(x + KERNEL_Q8_H(n_in), 2 * piece + k);
    return acc;
}

static void quantized_column(const format_traits *f, format_unpack_fn unpack, const uint8_t *w, int64_t n_in,
                             const uint8_t *x, int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    BASE_DCHECK(n_in % 32 == 0 && (n_rows <= 1 || x_stride >= kernel_q8_bytes(n_in)));
    clear_column(y, y_stride, n_rows);
    for (int64_t piece = 0; piece < n_in / 32; piece++) {
        format_piece weights;
        unpack(w, piece, &weights);
        for (int64_t r = 0; r < n_rows; r++) {
            y[r * y_stride] = add_piece(y[r * y_stride], f, &weights, x + r * x_stride, n_in, piece);
        }
    }
}

#define FLOAT_LINEAR(name, load, elem_bytes) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        for (int64_t o = out_begin; o < out_end; o++) { \
            const uint8_t *row = (const uint8_t *)w + o * n_in * (elem_bytes); \
            float_column(load, row, n_in, x, x_stride, n_rows, y + o, y_stride); \
        } \
    }
FLOAT_LINEAR(f32, load_f32, 4)
FLOAT_LINEAR(f16, load_f16, 2)
FLOAT_LINEAR(bf16, load_bf16, 2)

#define X(NAME, name, ...) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        const int64_t row_bytes = kernel_row_bytes(KERNEL_##NAME, n_in); \
        for (int64_t o = out_begin; o < out_end; o++) { \
            const uint8_t *row = (const uint8_t *)w + o * row_bytes; \
            quantized_column(&format_##name, format_unpack(KERNEL_##NAME), row, n_in, x, x_stride, n_rows, y + o, \
                             y_stride); \
        } \
    }
FORMAT_TYPES(X)
#undef X

void generic_linear_entries(kernel_table *t) {
    for (int i = 0; i < KERNEL_TYPE_END; i++) t->linear[i] = NULL;
    t->linear[KERNEL_F32] = linear_f32;
    t->linear[KERNEL_F16] = linear_f16;
    t->linear[KERNEL_BF16] = linear_bf16;
#define X(NAME, name, ...) t->linear[KERNEL_##NAME] = linear_##name;
    FORMAT_TYPES(X)
#undef X
}
