/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_linear.c: kernel_table.linear of every type, and quantize_row.
 *
 * The reference is a sum in double over weights decoded by support/kernel_blocks.h (float types: by
 * kernel_dequantize, which test_kernel_formats.c checks on its own) and activations read from their bytes. Bounds,
 * with u = 2^-24 and S the sum of the magnitudes of all terms:
 *   float types      n fused or 2n separate roundings, each at most u * S: (2n + 2) u S
 *   quantised types  a piece of 32 gives one exact integer, at most 32 * 128 * 127 < 2^24, so exact as a float too; a
 *                    scale is an f16 times at most 8 bits (or a power of two), exact, and so is a minimum; then scale *
 *                    d, the product and the addition round. With T terms (a piece has one or two scales, up to two
 *                    minima): (T + 3) u S, and for underflow: T * 2^-149 * 2^20
 * T and n are doubled below, which covers (1 + u)^T - 1 > T u.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_blocks.h"

typedef struct problem {
    kernel_type type;
    int64_t n_in, n_out, n_rows, x_stride, y_stride;
    uint8_t *w, *x;
    float *y;
    uint8_t *packed; /* w in the table's layout: pack */
} problem;

static float read_float(const uint8_t *p) {
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static size_t elem_align(kernel_type t) { return t == KERNEL_F32 ? 4 : t == KERNEL_F16 || t == KERNEL_BF16 ? 2
                                                                                                           : 1; }

/* ---- making problems --------------------------------------------------------------------------------------------- */

static void random_floats(kernel_type t, uint8_t *w, int64_t n, check_kind kind) {
    for (int64_t i = 0; i < n; i++) {
        float f = check_float(kind);
        if (t == KERNEL_F16 && fabsf(f) > 65504.0f) f = f > 0 ? 65504.0f : -65504.0f;
        kernel_quantize(t, &f, w + i * kernel_type_bytes(t), 1);
    }
}

static void random_weights(problem *p, check_kind kind, bool extreme) {
    const int64_t n = p->n_in * p->n_out;
    if (kernel_type_quantized(p->type)) {
        kernel_blocks_random(p->type, p->w, n / kernel_type_block(p->type), kind, extreme);
    } else {
        random_floats(p->type, p->w, n, kind);
    }
}

static void extreme_q8_row(uint8_t *row, int64_t n) {
    const int8_t value = check_random() & 1 ? 127 : -127;
    for (int64_t i = 0; i < n / 32; i++) {
        const float d = (float)check_random_in(1, 1000) * 1e-3f, s = d * 32.0f * (float)value, h[2] = {s / 2, s / 2};
        memset(row + 32 * i, (uint8_t)value, 32);
        memcpy(row + KERNEL_Q8_D(n) + 4 * i, &d, sizeof d);
        memcpy(row + KERNEL_Q8_S(n) + 4 * i, &s, sizeof s);
        memcpy(row + KERNEL_Q8_H(n) + 8 * i, h, sizeof h);
        memcpy(row + KERNEL_Q8_C(n) + 4 * i, (int16_t[]){(int16_t)(16 * value), (int16_t)(16 * value)}, 4);
    }
}

static void random_activations(problem *p, check_kind kind, bool extreme) {
    float *values = check_alloc((size_t)p->n_in * sizeof(float), 0);
    for (int64_t r = 0; r < p->n_rows; r++) {
        uint8_t *row = p->x + r * p->x_stride;
        check_fill(values, p->n_in, kind);
        if (!kernel_type_quantized(p->type)) {
            memcpy(row, values, (size_t)p->n_in * sizeof(float));
        } else if (extreme) {
            extreme_q8_row(row, p->n_in);
        } else {
            check_reference()->quantize_row(values, row, p->n_in);
        }
    }
    check_release(values);
}

static size_t y_bytes(const problem *p) {
    return p->n_rows == 0 ? 0 : (size_t)((p->n_rows - 1) * p->y_stride + p->n_out) * sizeof(float);
}

static problem problem_new(kernel_type t, int64_t n_in, int64_t n_out, int64_t n_rows) {
    problem p = {.type = t, .n_in = n_in, .n_out = n_out, .n_rows = n_rows};
    const int64_t row_bytes = kernel_type_quantized(t) ? kernel_q8_bytes(n_in) : 4 * n_in;
    p.x_stride = row_bytes + 4 * check_random_in(0, 3);
    p.y_stride = n_out + check_random_in(0, 5);
    p.w = check_alloc((size_t)(n_out * kernel_row_bytes(t, n_in)), elem_align(t) * (size_t)check_random_in(0, 3));
    p.x = check_alloc((size_t)(n_rows * p.x_stride), 4 * (size_t)check_random_in(0, 3));
    p.y = check_alloc(y_bytes(&p), 4 * (size_t)check_random_in(0, 3));
    return p;
}

static void problem_free(problem *p) {
    if (p->packed) check_release(p->packed);
    check_release(p->w);
    check_release(p->x);
    check_release(p->y);
}

/* Packs the weights, and checks that unpacking restores each row. To be called after they are filled in. */
static void pack(const kernel_table *t, problem *p) {
    const int64_t row_bytes = kernel_row_bytes(p->type, p->n_in);
    uint8_t *row = check_alloc((size_t)row_bytes, 0);
    p->packed = check_alloc((size_t)kernel_packed_bytes(p->type, t->side, p->n_in, p->n_out),
                            elem_align(p->type) * (size_t)check_random_in(0, 3));
    kernel_pack(p->type, t->side, p->w, p->n_in, p->n_out, p->packed);
    for (int64_t o = 0; o < p->n_out; o += 1 + p->n_out / 64) {
        kernel_packed_row(p->type, t->side, p->packed, p->n_in, o, row);
        check_same_bytes(row, p->w + o * row_bytes, (size_t)row_bytes, "packed row");
    }
    check_release(row);
}

static void run(const kernel_table *t, const problem *p, int64_t out_begin, int64_t out_end) {
    t->linear[p->type](p->packed, p->n_in, out_begin, out_end, p->x, p->x_stride, p->n_rows, p->y, p->y_stride);
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

typedef struct truth {
    double sum, magnitude, terms;
} truth;

static void truth_float(const double *w, const uint8_t *x, int64_t n, truth *out) {
    for (int64_t i = 0; i < n; i++) {
        const double term = w[i] * (double)read_float(x + 4 * i);
        out->sum += term;
        out->magnitude += fabs(term);
    }
    out->terms = 2.0 * (double)n;
}

/* Piece by piece: the terms of the sum are (sum over q of the weight without its minimum) * d, and minimum * s, or for
 * Q2_K the minimum of each half * h. */
static void truth_quantized(const problem *p, const double *w, const double *min, const uint8_t *x, truth *out) {
    const int64_t n = p->n_in;
    for (int64_t piece = 0; piece < n / 32; piece++) {
        const double d = read_float(x + KERNEL_Q8_D(n) + 4 * piece), s = read_float(x + KERNEL_Q8_S(n) + 4 * piece);
        for (int k = 0; k < 2; k++) {
            const double h = p->type == KERNEL_Q2_K ? read_float(x + KERNEL_Q8_H(n) + 8 * piece + 4 * k) : k == 0 ? s
                                                                                                                  : 0;
            double half = 0;
            for (int64_t i = 32 * piece + 16 * k; i < 32 * piece + 16 * k + 16; i++) {
                half += (w[i] + min[i]) * (double)(int8_t)x[i] * d;
            }
            const double offset = -min[32 * piece + 16 * k] * h;
            out->sum += half + offset;
            out->magnitude += fabs(half) + fabs(offset);
        }
        out->terms += 4;
    }
}

/* A row's weights and minima: of quantised types by the second decoder, which does not round. */
static void row_values(const problem *p, const uint8_t *row, double *w, double *min) {
    const int64_t block = kernel_type_block(p->type);
    for (int64_t i = 0; i < p->n_in; i++) {
        const uint8_t *at = row + i / block * kernel_type_bytes(p->type);
        float f = 0.0f;
        if (!kernel_type_quantized(p->type)) kernel_dequantize(p->type, at, &f, 1);
        w[i] = kernel_type_quantized(p->type) ? kernel_blocks_value(p->type, at, (int)(i % block)) : (double)f;
        min[i] = kernel_blocks_min(p->type, at, (int)(i % block));
    }
}

static void check_output(const problem *p, int64_t o, double *w, double *min) {
    row_values(p, p->w + o * kernel_row_bytes(p->type, p->n_in), w, min);
    for (int64_t r = 0; r < p->n_rows; r++) {
        const uint8_t *x = p->x + r * p->x_stride;
        truth t = {0, 0, 0};
        double tiny = 0x1p-149;
        if (kernel_type_quantized(p->type)) {
            truth_quantized(p, w, min, x, &t);
            tiny *= 0x1p20;
        } else {
            truth_float(w, x, p->n_in, &t);
        }
        const double bound = (2 * t.terms + 4) * (CHECK_UNIT * t.magnitude + tiny);
        check_near(p->y[r * p->y_stride + o], t.sum, bound, "y", r * p->n_out + o);
    }
}

static void check_values(const kernel_table *t, const problem *p) {
    double *w = check_alloc((size_t)p->n_in * sizeof *w, 0), *min = check_alloc((size_t)p->n_in * sizeof *min, 0);
    run(t, p, 0, p->n_out);
    for (int64_t o = 0; o < p->n_out; o++) check_output(p, o, w, min);
    check_release(w);
    check_release(min);
}

/* ---- independence of rows, ranges and addresses ------------------------------------------------------------------ */

/* Computes some rows and outputs of p again, from copies at other addresses, and compares bits. */
static void check_part(const kernel_table *t, const problem *p) {
    const int64_t begin = check_random_in(0, p->n_out / t->side) * t->side, end = check_random_in(begin, p->n_out);
    const int64_t first = check_random_in(0, p->n_rows - 1), count = check_random_in(1, p->n_rows - first);
    problem part = problem_new(p->type, p->n_in, p->n_out, count);
    memcpy(part.w, p->w, (size_t)(p->n_out * kernel_row_bytes(p->type, p->n_in)));
    for (int64_t r = 0; r < count; r++) {
        const size_t bytes = (size_t)BASE_MIN(p->x_stride, part.x_stride);
        memcpy(part.x + r * part.x_stride, p->x + (first + r) * p->x_stride, bytes);
    }
    pack(t, &part);
    run(t, &part, begin, end);
    for (int64_t r = 0; r < count; r++) {
        const float *y = part.y + r * part.y_stride, *whole = p->y + (first + r) * p->y_stride;
        check_same_bytes(y + begin, whole + begin, (size_t)(end - begin) * sizeof(float), "part of rows and outputs");
        for (int64_t o = 0; o < p->n_out; o++) {
            const bool untouched = (o >= begin && o < end) || isnan(y[o]);
            if (!check_that(untouched, "wrote output %lld outside its range", (long long)o)) break;
        }
    }
    problem_free(&part);
}

/* Products have the same bits at all levels except plain C: integers are exact, the rest is fused in one order. */
static void check_levels(const kernel_table *t, const problem *p) {
    const kernel_table *lowest = check_lowest_level();
    if (!lowest || t->side == 1) return;
    problem other = *p;
    other.y = check_alloc(y_bytes(p), 0);
    pack(lowest, &other);
    run(lowest, &other, 0, p->n_out);
    for (int64_t r = 0; r < p->n_rows; r++) {
        check_same_bytes(p->y + r * p->y_stride, other.y + r * p->y_stride, (size_t)p->n_out * sizeof(float),
                         "a lower level's");
    }
    check_release(other.y);
    check_release(other.packed);
}

static void check_gaps(const problem *p) {
    for (int64_t r = 0; r + 1 < p->n_rows; r++) {
        for (int64_t o = p->n_out; o < p->y_stride; o++) {
            check_that(isnan(p->y[r * p->y_stride + o]), "wrote between rows %lld and %lld", (long long)r,
                       (long long)r + 1);
        }
    }
}

static void check_linear(const kernel_table *t, int type) {
    const int64_t block = BASE_MAX(kernel_type_block((kernel_type)type), 1);
    for (int round = 0; round < 60; round++) {
        const int64_t most = block == 1 ? 600 : block == 32 ? 48
                                                            : 6;
        const int64_t n_in = block * check_random_in(round % 8 == 7 ? 0 : 1, round % 8 == 6 ? 3 : most);
        problem p = problem_new((kernel_type)type, n_in, check_random_in(1, 37), check_random_in(1, 14));
        random_weights(&p, (check_kind)(round % CHECK_KINDS), round % 7 == 6);
        random_activations(&p, (check_kind)(round / CHECK_KINDS % CHECK_KINDS), round % 7 >= 5);
        pack(t, &p);
        check_values(t, &p);
        for (int i = 0; i < 4; i++) check_part(t, &p);
        check_levels(t, &p);
        check_gaps(&p);
        problem_free(&p);
    }
    problem none = problem_new((kernel_type)type, block * 32, 3, 0);
    pack(t, &none);
    run(t, &none, 0, 3);
    problem_free(&none);
}

/* Widths of models that the formats' smallest blocks divide: 172 (stories260K), panels' borders. */
static void check_widths(const kernel_table *t, int type) {
    static const int64_t widths[] = {172, 255, 256, 257, 512, 1024, 1056, 2048};
    const int64_t block = kernel_type_block((kernel_type)type);
    for (size_t i = 0; i < BASE_ARRAY_LEN(widths); i++) {
        if (widths[i] % block != 0) continue;
        problem p = problem_new((kernel_type)type, widths[i], 17, 9);
        random_weights(&p, CHECK_NORMAL, false);
        random_activations(&p, CHECK_NORMAL, false);
        pack(t, &p);
        check_values(t, &p);
        for (int k = 0; k < 4; k++) check_part(t, &p);
        problem_free(&p);
    }
}

static void check_type(const kernel_table *t, int type) {
    check_linear(t, type);
    check_widths(t, type);
}

/* ---- quantize_row ------------------------------------------------------------------------------------------------ */

/* Bytes equal those of plain C; each element is within half a step (and the rounding of d, 1/d and their product, 127
 * * 3u of a step) of its value; s is d * sum, h the same for halves, c their sums. A block below 2^-110 may become
 * zeros. */
static void check_quantize_row(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = 32 * check_random_in(0, 40);
        float *x = check_alloc((size_t)n * 4, 4 * (size_t)check_random_in(0, 7));
        uint8_t *q = check_alloc((size_t)kernel_q8_bytes(n), 4 * (size_t)check_random_in(0, 7));
        uint8_t *ref = check_alloc((size_t)kernel_q8_bytes(n), 0);
        check_fill(x, n, (check_kind)(round % CHECK_KINDS));
        t->quantize_row(x, q, n);
        check_reference()->quantize_row(x, ref, n);
        check_same_bytes(q, ref, (size_t)kernel_q8_bytes(n), "q8 row");
        for (int64_t b = 0; b < n / 32; b++) {
            const double d = read_float(q + KERNEL_Q8_D(n) + 4 * b);
            double sum[2] = {0, 0};
            for (int i = 0; i < 32; i++) {
                const int8_t v = (int8_t)q[32 * b + i];
                sum[i / 16] += v;
                check_that(v >= -127, "q = -128");
                check_near(d * v, x[32 * b + i], d * 0.5001 + 0x1p-110, "d * q", 32 * b + i);
            }
            check_that(read_float(q + KERNEL_Q8_S(n) + 4 * b) == (float)(d * (sum[0] + sum[1])), "s is not d * sum");
            for (int k = 0; k < 2; k++) {
                check_that(read_float(q + KERNEL_Q8_H(n) + 8 * b + 4 * k) == (float)(d * sum[k]), "h is not d * sum");
                int16_t c;
                memcpy(&c, q + KERNEL_Q8_C(n) + 4 * b + 2 * k, sizeof c);
                check_that(c == (int)sum[k], "c is not the sum");
            }
        }
        check_release(x);
        check_release(q);
        check_release(ref);
    }
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

typedef struct timing {
    const kernel_table *table;
    problem p;
} timing;

static void time_linear(void *arg) {
    const timing *t = arg;
    run(t->table, &t->p, 0, t->p.n_out);
}

/* One row over weights too large for the caches (44 MB at Q8_0), and several rows over a smaller matrix. */
static void bench_linear(const kernel_table *t, int type) {
    static const int64_t rows[] = {1, 2, 4, 8, 16, 20, 21, 32, 48, 64, 256};
    const bool slow = strcmp(t->name, "generic") == 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows); i++) {
        if (slow && rows[i] > 1 && rows[i] != 16) continue;
        const int64_t n_in = 2048, n_out = rows[i] == 1 ? (slow ? 512 : 20480) : slow ? 64
                                                                                      : 1024;
        timing a = {t, problem_new((kernel_type)type, n_in, n_out, rows[i])};
        random_weights(&a.p, CHECK_NORMAL, false);
        random_activations(&a.p, CHECK_NORMAL, false);
        pack(t, &a.p);
        char label[32];
        snprintf(label, sizeof label, "%lldx%lld r%lld", (long long)n_in, (long long)n_out, (long long)rows[i]);
        check_time(label, time_linear, &a, (double)(n_out * kernel_row_bytes((kernel_type)type, n_in)),
                   2.0 * (double)(n_in * n_out * rows[i]));
        problem_free(&a.p);
    }
}

typedef struct row_timing {
    const kernel_table *table;
    float *x;
    uint8_t *q;
} row_timing;

static void time_quantize_row(void *arg) {
    const row_timing *a = arg;
    a->table->quantize_row(a->x, a->q, 2048);
}

static void bench_quantize_row(const kernel_table *t, int arg) {
    row_timing a = {t, check_alloc(4 * 2048, 0), check_alloc((size_t)kernel_q8_bytes(2048), 0)};
    (void)arg;
    check_fill(a.x, 2048, CHECK_NORMAL);
    check_time("2048", time_quantize_row, &a, 4 * 2048, 2048);
    check_release(a.x);
    check_release(a.q);
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
#define X(name, number, block, bytes) {"linear_" #name, number, check_type, bench_linear},
        KERNEL_TYPES(X)
#undef X
            {"quantize_row", 0, check_quantize_row, bench_quantize_row},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
