/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_streams.c: operations of models with several streams of the residual (AltUp), and of sparse activations. Each row
 * is computed by one thread, its sums in double from the first element to the last: they are a small part of a layer,
 * and the compiler makes vectors of the rest. */
#include <math.h>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

#define ROWS_PER_TASK 4

typedef struct streams_job {
    const cpu_backend *b;
    backend_buffer *const *src, *const *dst;
    int32_t n, n_dst;
    const backend_buffer *other; /* factors, or the rows whose magnitude is taken */
    const float *columns;
    float deviations;
} streams_job;

static void run_rows(backend *self, base_loop_fn fn, streams_job *j, int32_t rows) {
    const cpu_backend *b = (const cpu_backend *)self;
    j->b = b;
    base_threads_for(b->threads, fn, j, rows, ROWS_PER_TASK);
}

static void sparsify_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const streams_job *j = arg;
    const int32_t n = j->dst[0]->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *x = cpu_row_at(j->dst[0], r);
        double sum = 0, squares = 0;
        for (int32_t i = 0; i < n; i++) sum += (double)x[i];
        for (int32_t i = 0; i < n; i++) squares += ((double)x[i] - sum / n) * ((double)x[i] - sum / n);
        const float cutoff = (float)(sum / n + (double)j->deviations * sqrt(squares / n));
        for (int32_t i = 0; i < n; i++) x[i] = x[i] > cutoff ? x[i] - cutoff : 0;
    }
}

void cpu_sparsify(backend *self, backend_buffer *a, float deviations, int32_t rows) {
    streams_job j = {.dst = &a, .deviations = deviations};
    BASE_ASSERT(rows <= a->rows && isfinite(deviations));
    run_rows(self, sparsify_rows, &j, rows);
}

static void mix_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const streams_job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int32_t i = 0; i < j->n_dst * j->n; i++) {
            float *y = cpu_row_at(j->dst[i / j->n], r);
            j->b->kernels.add(y, cpu_row_of(j->src[i % j->n], r), cpu_row_of(j->other, r)[i], y,
                              j->dst[i / j->n]->width);
        }
}

void cpu_mix(backend *self, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
             backend_buffer *const *dst, int32_t n_dst) {
    streams_job j = {.src = src, .dst = dst, .n = n, .n_dst = n_dst, .other = factors};
    BASE_ASSERT(factors->width == n * n_dst && rows <= factors->rows);
    for (int32_t i = 0; i < n * n_dst; i++) BASE_ASSERT(src[i % n]->width == dst[i / n]->width);
    run_rows(self, mix_rows, &j, rows);
}

static double mean_square(const float *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum / n;
}

static void match_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const streams_job *j = arg;
    const int32_t n = j->other->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *x = cpu_row_at(j->dst[0], r);
        const double wanted = mean_square(cpu_row_of(j->other, r), n), is = mean_square(x, n);
        j->b->kernels.scale(x, (float)(sqrt(wanted) / sqrt(fmax(is, 1e-5))), n);
    }
}

void cpu_match(backend *self, backend_buffer *dst, const backend_buffer *like, int32_t rows) {
    streams_job j = {.dst = &dst, .other = like};
    BASE_ASSERT(dst->width == like->width && rows <= dst->rows);
    run_rows(self, match_rows, &j, rows);
}

static void multiply_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const streams_job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *x = cpu_row_at(j->dst[0], r);
        for (int32_t i = 0; i < j->dst[0]->width; i++) x[i] *= j->columns[i];
    }
}

void cpu_multiply(backend *self, backend_buffer *dst, const model_weight *factors, int32_t rows) {
    streams_job j = {.dst = &dst, .columns = factors->data};
    BASE_ASSERT(factors->n_in == dst->width && factors->type == KERNEL_F32 && rows <= dst->rows);
    run_rows(self, multiply_rows, &j, rows);
}
