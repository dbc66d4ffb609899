/* SPDX-License-Identifier: Apache-2.0 */
/* recurrence_generic.c: convolutions and states of recurrent layers in plain C (kernels.h has the order of sums). */
#include <math.h>

#include "base/check.h"
#include "kernels/generic/generic.h"

static void convolve(const float *const *x, int n_taps, const float *w, int64_t w_stride, const float *bias, float *y,
                     int64_t n) {
    BASE_DCHECK(n_taps > 0);
    for (int64_t i = 0; i < n; i++) {
        float sum = bias ? bias[i] : 0.0f;
        for (int j = 0; j < n_taps; j++) sum += w[j * w_stride + i] * x[j][i];
        y[i] = sum;
    }
}

static void mamba2(float *state, int64_t n_state, int64_t dim, const kernel_mamba2_rows *rows) {
    BASE_DCHECK(n_state > 0 && dim > 0);
    for (int64_t r = 0; r < rows->n; r++) {
        const float *x = rows->x + r * rows->stride, *b = rows->b + r * rows->stride, *c = rows->c + r * rows->stride;
        float *y = rows->y + r * rows->y_stride;
        for (int64_t d = 0; d < dim; d++) {
            const float u = rows->dt[r] * x[d];
            float sum = 0.0f;
            for (int64_t i = 0; i < n_state; i++) {
                float *s = &state[i * dim + d];
                *s = rows->decay[r] * *s + u * b[i];
                sum += *s * c[i];
            }
            y[d] = sum;
        }
    }
}

static void mamba1(float *state, const float *a, int64_t stride, int64_t n_state, int64_t dim,
                   const kernel_mamba1_rows *rows) {
    BASE_DCHECK(n_state > 0 && dim > 0 && dim <= stride && dim <= rows->stride);
    for (int64_t r = 0; r < rows->n; r++) {
        const float *b = rows->b + r * rows->bc_stride, *c = rows->c + r * rows->bc_stride;
        for (int64_t d = 0; d < dim; d++) {
            const float dt = rows->dt[r * rows->stride + d], u = dt * rows->x[r * rows->stride + d];
            float sum = 0.0f;
            for (int64_t i = 0; i < n_state; i++) {
                float *s = &state[i * stride + d];
                *s = expf(dt * a[i * stride + d]) * *s + u * b[i];
                sum += *s * c[i];
            }
            rows->y[r * rows->stride + d] = sum;
        }
    }
}

/* Each dimension of a key has a decay. */
static void delta_by_dimension(float *state, int64_t n_state, int64_t dim, const kernel_delta_rows *rows) {
    for (int64_t r = 0; r < rows->n; r++) {
        const float *q = rows->q + r * rows->stride, *k = rows->k + r * rows->stride, *v = rows->v + r * rows->stride;
        const float *decays = rows->decays + r * rows->decay_stride;
        const float *decayed = rows->decayed_k + r * rows->decay_stride;
        float *y = rows->y + r * rows->y_stride;
        for (int64_t d = 0; d < dim; d++) {
            float known = 0.0f, sum = 0.0f;
            for (int64_t i = 0; i < n_state; i++) known += state[i * dim + d] * decayed[i];
            const float u = rows->beta[r] * (v[d] - known);
            for (int64_t i = 0; i < n_state; i++) {
                float *s = &state[i * dim + d];
                *s = decays[i] * *s + u * k[i];
                sum += *s * q[i];
            }
            y[d] = sum;
        }
    }
}

static void delta(float *state, int64_t n_state, int64_t dim, const kernel_delta_rows *rows) {
    BASE_DCHECK(n_state > 0 && dim > 0);
    if (!rows->decay) {
        delta_by_dimension(state, n_state, dim, rows);
        return;
    }
    for (int64_t r = 0; r < rows->n; r++) {
        const float *q = rows->q + r * rows->stride, *k = rows->k + r * rows->stride, *v = rows->v + r * rows->stride;
        float *y = rows->y + r * rows->y_stride;
        for (int64_t d = 0; d < dim; d++) {
            float known = 0.0f, sum = 0.0f;
            for (int64_t i = 0; i < n_state; i++) known += state[i * dim + d] * k[i];
            const float u = rows->beta[r] * (v[d] - rows->decay[r] * known);
            for (int64_t i = 0; i < n_state; i++) {
                float *s = &state[i * dim + d];
                *s = rows->decay[r] * *s + u * k[i];
                sum += *s * q[i];
            }
            y[d] = sum;
        }
    }
}

void generic_recurrence_entries(kernel_table *t) {
    t->convolve = convolve;
    t->mamba2 = mamba2;
    t->mamba1 = mamba1;
    t->delta = delta;
}
