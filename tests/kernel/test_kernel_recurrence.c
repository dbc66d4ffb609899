/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_recurrence.c: convolutions and states of recurrent layers.
 *
 * References are in double. Unit u = 2^-24. All levels above plain C give the same bytes, and so does every division of
 * rows into calls.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

static float *row(int64_t n) { return check_alloc((size_t)n * sizeof(float), 4 * (size_t)check_random_in(0, 7)); }

static float *filled(int64_t n) {
    float *x = row(n);
    check_fill(x, n, CHECK_NORMAL);
    return x;
}

/* The same bytes as the lowest level above plain C. */
static void check_level(const kernel_table *t, const float *got, const float *lowest, int64_t n, const char *what) {
    if (check_lowest_level() && t != check_reference() && strcmp(t->name, "generic") != 0)
        check_same_bytes(got, lowest, (size_t)n * sizeof(*got), what);
}

/* ---- convolutions ---- */

static void check_convolve(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = check_random_in(1, 70), stride = n + check_random_in(0, 3);
        const int n_taps = (int)check_random_in(1, 8);
        float *w = filled(stride * n_taps), *bias = round % 2 ? filled(n) : NULL, *y = row(n), *lowest = row(n);
        float *x[8];
        for (int j = 0; j < n_taps; j++) x[j] = filled(n);
        t->convolve((const float *const *)x, n_taps, w, stride, bias, y, n);
        for (int64_t i = 0; i < n; i++) {
            double want = bias ? (double)bias[i] : 0, size = fabs(want);
            for (int j = 0; j < n_taps; j++) {
                want += (double)w[j * stride + i] * (double)x[j][i];
                size += fabs((double)w[j * stride + i] * (double)x[j][i]);
            }
            check_near((double)y[i], want, 2 * (n_taps + 1) * CHECK_UNIT * size, "convolve", i);
        }
        if (check_lowest_level())
            check_lowest_level()->convolve((const float *const *)x, n_taps, w, stride, bias, lowest, n);
        check_level(t, y, lowest, n, "convolve at another level");
        for (int j = 0; j < n_taps; j++) check_release(x[j]);
        check_release(w);
        if (bias) check_release(bias);
        check_release(y);
        check_release(lowest);
    }
}

/* ---- heads with a matrix: Mamba2, delta nets ---- */

enum { MAMBA2,
       DELTA,
       DELTA_BY_DIMENSION };

/* Rows of one head: x, b, c of Mamba2; v, k, q and beta of a delta net, whose decays may be of dimensions. */
typedef struct head_case {
    int kind;
    int64_t n_state, dim, n, stride, y_stride;
    float *x, *b, *c, *dt, *decay, *decays, *decayed, *state; /* decays, decayed: [n][stride] */
} head_case;

static void fill_case(head_case *m, int kind) {
    m->kind = kind;
    m->x = filled(m->n * m->stride);
    m->b = filled(m->n * m->stride);
    m->c = filled(m->n * m->stride);
    m->dt = filled(m->n);
    m->decay = row(m->n);
    m->state = filled(m->n_state * m->dim);
    m->decays = row(m->n * m->stride);
    m->decayed = row(m->n * m->stride);
    for (int64_t r = 0; r < m->n; r++) m->decay[r] = 0.1f * (float)check_random_in(0, 10);
    /* keys of a delta net have a length of about 1, and beta is a sigmoid: else its state grows with every row */
    for (int64_t i = 0; i < m->n * m->stride && kind != MAMBA2; i++) m->b[i] /= sqrtf((float)m->n_state);
    for (int64_t i = 0; i < m->n * m->stride; i++) {
        m->decays[i] = kind == DELTA_BY_DIMENSION ? 0.1f * (float)check_random_in(0, 10) : m->decay[i / m->stride];
        m->decayed[i] = m->decays[i] * m->b[i];
    }
    for (int64_t r = 0; r < m->n && kind != MAMBA2; r++) m->dt[r] = 0.1f * (float)check_random_in(0, 10);
}

static head_case new_case(int kind) {
    head_case m = {.n_state = check_random_in(1, 40), .dim = check_random_in(1, 70), .n = check_random_in(1, 9)};
    m.stride = BASE_MAX(m.n_state, m.dim) + check_random_in(0, 5);
    m.y_stride = m.dim + check_random_in(0, 5);
    fill_case(&m, kind);
    return m;
}

static void free_case(head_case *m) {
    float *const all[] = {m->x, m->b, m->c, m->dt, m->decay, m->decays, m->decayed, m->state};
    for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++) check_release(all[i]);
}

/* Rows [first, end), from and to `state`. */
static void run(const kernel_table *t, const head_case *m, int64_t first, int64_t end, float *state, float *y) {
    const int64_t at = first * m->stride;
    const kernel_mamba2_rows mamba2 = {
        .n = end - first,
        .x = m->x + at,
        .b = m->b + at,
        .c = m->c + at,
        .stride = m->stride,
        .dt = m->dt + first,
        .decay = m->decay + first,
        .y = y + first * m->y_stride,
        .y_stride = m->y_stride,
    };
    const kernel_delta_rows delta = {
        .n = end - first,
        .q = m->c + at,
        .k = m->b + at,
        .v = m->x + at,
        .stride = m->stride,
        .beta = m->dt + first,
        .decay = m->kind == DELTA ? m->decay + first : NULL,
        .decays = m->decays + at,
        .decayed_k = m->decayed + at,
        .decay_stride = m->stride,
        .y = y + first * m->y_stride,
        .y_stride = m->y_stride,
    };
    if (m->kind == MAMBA2) t->mamba2(state, m->n_state, m->dim, &mamba2);
    else t->delta(state, m->n_state, m->dim, &delta);
}

/* sizes: sums of absolute values, which errors are relative to. */
static void check_values(const head_case *m, const float *y) {
    double *s = malloc(sizeof(double) * (size_t)m->n_state), *sizes = malloc(sizeof(double) * (size_t)m->n_state);
    const double steps = m->kind == MAMBA2 ? (double)(m->n_state + 4 * m->n + 4)
                                           : (double)((m->n_state + 8) * (m->n + 1));
    for (int64_t d = 0; d < m->dim; d++) {
        for (int64_t i = 0; i < m->n_state; i++) sizes[i] = fabs(s[i] = (double)m->state[i * m->dim + d]);
        for (int64_t r = 0; r < m->n; r++) {
            const float *b = m->b + r * m->stride, *c = m->c + r * m->stride;
            const float *decays = m->decays + r * m->stride;
            double want = 0, size = 0, added = (double)m->x[r * m->stride + d], added_size = fabs(added);
            for (int64_t i = 0; i < m->n_state && m->kind != MAMBA2; i++) {
                added -= (double)decays[i] * s[i] * (double)b[i];
                added_size += (double)decays[i] * sizes[i] * fabs((double)b[i]);
            }
            for (int64_t i = 0; i < m->n_state; i++) {
                s[i] = (double)decays[i] * s[i] + (double)m->dt[r] * added * (double)b[i];
                sizes[i] = (double)decays[i] * sizes[i] + fabs((double)m->dt[r] * (double)b[i]) * added_size;
                want += s[i] * (double)c[i];
                size += sizes[i] * fabs((double)c[i]);
            }
            check_near((double)y[r * m->y_stride + d], want, steps * CHECK_UNIT * size,
                       m->kind == MAMBA2 ? "mamba2" : "delta", d);
        }
    }
    free(s);
    free(sizes);
}

static void check_head(const kernel_table *t, int kind) {
    for (int round = 0; round < 150; round++) {
        head_case m = new_case(kind);
        const int64_t n_y = m.n * m.y_stride, n_s = m.n_state * m.dim, cut = check_random_in(0, m.n);
        float *state[3], *y[3];
        for (int i = 0; i < 3; i++) {
            state[i] = row(n_s), y[i] = row(n_y);
            memcpy(state[i], m.state, (size_t)n_s * sizeof(float));
            memset(y[i], 0, (size_t)n_y * sizeof(float));
        }
        run(t, &m, 0, m.n, state[0], y[0]);
        check_values(&m, y[0]);
        run(t, &m, 0, cut, state[1], y[1]); /* another division of the rows */
        run(t, &m, cut, m.n, state[1], y[1]);
        check_same_bytes(y[0], y[1], (size_t)n_y * sizeof(float), "a head, divided");
        check_same_bytes(state[0], state[1], (size_t)n_s * sizeof(float), "state of a head, divided");
        if (check_lowest_level()) run(check_lowest_level(), &m, 0, m.n, state[2], y[2]);
        check_level(t, y[0], y[2], n_y, "a head at another level");
        check_level(t, state[0], state[2], n_s, "state of a head at another level");
        for (int i = 0; i < 3; i++) {
            check_release(state[i]);
            check_release(y[i]);
        }
        free_case(&m);
    }
}

/* ---- Mamba1 ---- */

typedef struct mamba1_case {
    int64_t n_state, dim, n, stride, bc_stride;
    float *x, *dt, *b, *c, *a, *state;
} mamba1_case;

static mamba1_case new_mamba1(int64_t n_state, int64_t dim, int64_t n) {
    mamba1_case m = {.n_state = n_state, .dim = dim, .n = n};
    m.stride = dim + check_random_in(0, 5);
    m.bc_stride = n_state + check_random_in(0, 5);
    m.x = filled(n * m.stride);
    m.dt = filled(n * m.stride);
    m.b = filled(n * m.bc_stride);
    m.c = filled(n * m.bc_stride);
    m.a = filled(n_state * m.stride);
    m.state = filled(n_state * m.stride);
    for (int64_t i = 0; i < n * m.stride; i++) m.dt[i] = fabsf(m.dt[i]);
    for (int64_t i = 0; i < n_state * m.stride; i++) m.a[i] = (i % 7 ? -1.0f : -60.0f) * fabsf(m.a[i]);
    return m;
}

static void free_mamba1(mamba1_case *m) {
    float *const all[] = {m->x, m->dt, m->b, m->c, m->a, m->state};
    for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++) check_release(all[i]);
}

/* Rows [first, end), channels [from, to), from and to `state`. */
static void run_mamba1(const kernel_table *t, const mamba1_case *m, int64_t first, int64_t end, int64_t from,
                       int64_t to, float *state, float *y) {
    const kernel_mamba1_rows rows = {
        .n = end - first,
        .x = m->x + first * m->stride + from,
        .dt = m->dt + first * m->stride + from,
        .b = m->b + first * m->bc_stride,
        .c = m->c + first * m->bc_stride,
        .y = y + first * m->stride + from,
        .stride = m->stride,
        .bc_stride = m->bc_stride,
    };
    t->mamba1(state + from, m->a + from, m->stride, m->n_state, to - from, &rows);
}

/* The exponent is rounded: exp is off by its size times u, besides its own error. */
static void check_mamba1_values(const mamba1_case *m, const float *y) {
    double *s = malloc(sizeof(double) * (size_t)m->n_state), *sizes = malloc(sizeof(double) * (size_t)m->n_state);
    for (int64_t d = 0; d < m->dim; d++) {
        for (int64_t i = 0; i < m->n_state; i++) sizes[i] = fabs(s[i] = (double)m->state[i * m->stride + d]);
        for (int64_t r = 0; r < m->n; r++) {
            const double dt = (double)m->dt[r * m->stride + d], x = (double)m->x[r * m->stride + d];
            double want = 0, size = 0;
            for (int64_t i = 0; i < m->n_state; i++) {
                const double decay = exp(dt * (double)m->a[i * m->stride + d]);
                const double u = dt * x * (double)m->b[r * m->bc_stride + i];
                s[i] = decay * s[i] + u;
                sizes[i] = decay * sizes[i] + fabs(u);
                want += s[i] * (double)m->c[r * m->bc_stride + i];
                size += sizes[i] * fabs((double)m->c[r * m->bc_stride + i]);
            }
            check_near((double)y[r * m->stride + d], want,
                       (double)(m->n_state + 12 * m->n + 4) * CHECK_UNIT * size + 1e-35, "mamba1", d);
        }
    }
    free(s);
    free(sizes);
}

static void check_mamba1(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 150; round++) {
        mamba1_case m = new_mamba1(check_random_in(1, 20), check_random_in(1, 70), check_random_in(1, 9));
        const int64_t n_y = m.n * m.stride, n_s = m.n_state * m.stride;
        const int64_t cut = check_random_in(0, m.n), split = check_random_in(1, m.dim);
        float *state[3], *y[3];
        for (int i = 0; i < 3; i++) {
            state[i] = row(n_s), y[i] = row(n_y);
            memcpy(state[i], m.state, (size_t)n_s * sizeof(float));
            memset(y[i], 0, (size_t)n_y * sizeof(float));
        }
        run_mamba1(t, &m, 0, m.n, 0, m.dim, state[0], y[0]);
        check_mamba1_values(&m, y[0]);
        run_mamba1(t, &m, 0, cut, 0, m.dim, state[1], y[1]); /* another division of rows, and of channels */
        run_mamba1(t, &m, cut, m.n, 0, split, state[1], y[1]);
        if (split < m.dim) run_mamba1(t, &m, cut, m.n, split, m.dim, state[1], y[1]);
        check_same_bytes(y[0], y[1], (size_t)n_y * sizeof(float), "mamba1, divided");
        check_same_bytes(state[0], state[1], (size_t)n_s * sizeof(float), "state of mamba1, divided");
        if (check_lowest_level()) run_mamba1(check_lowest_level(), &m, 0, m.n, 0, m.dim, state[2], y[2]);
        check_level(t, y[0], y[2], n_y, "mamba1 at another level");
        check_level(t, state[0], state[2], n_s, "state of mamba1 at another level");
        for (int i = 0; i < 3; i++) {
            check_release(state[i]);
            check_release(y[i]);
        }
        free_mamba1(&m);
    }
}

/* ---- timing ---- */

typedef struct bench_args {
    const kernel_table *t;
    const head_case *m;
    float *y;
} bench_args;

static void bench_call(void *arg) {
    const bench_args *a = arg;
    run(a->t, a->m, 0, a->m->n, a->m->state, a->y);
}

/* A head of Granite 4 (64 dimensions, 128 of its state) or of Qwen 3.5 (128 and 128): 64 rows and one. */
static void bench_head(const kernel_table *t, int kind) {
    head_case m = {.n_state = 128, .dim = kind == MAMBA2 ? 64 : 128, .n = 64, .stride = 256, .y_stride = 128};
    fill_case(&m, kind);
    float *y = row(m.n * m.y_stride);
    const double per_row = (double)(m.n_state * m.dim);
    for (; m.n > 0; m.n = m.n > 1 ? 1 : 0)
        check_time(m.n > 1 ? "64 rows of a head" : "a row of a head", bench_call, &(bench_args){t, &m, y},
                   4 * per_row * (double)m.n, (kind == MAMBA2 ? 5 : 7) * per_row * (double)m.n);
    free_case(&m);
    check_release(y);
}

typedef struct bench_mamba1_args {
    const kernel_table *t;
    const mamba1_case *m;
    float *y;
} bench_mamba1_args;

static void bench_mamba1_call(void *arg) {
    const bench_mamba1_args *a = arg;
    run_mamba1(a->t, a->m, 0, a->m->n, 0, a->m->dim, a->m->state, a->y);
}

/* A task of the backend: 256 channels, 16 dimensions of their states; 64 rows. */
static void bench_mamba1(const kernel_table *t, int arg) {
    (void)arg;
    mamba1_case m = new_mamba1(16, 256, 64);
    float *y = row(m.n * m.stride);
    check_time("64 rows of 256 channels", bench_mamba1_call, &(bench_mamba1_args){t, &m, y},
               (double)(m.n_state * m.dim * 8), 5.0 * (double)(m.n * m.n_state * m.dim));
    free_mamba1(&m);
    check_release(y);
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"convolve", 0, check_convolve, NULL},
        {"mamba2", MAMBA2, check_head, bench_head},
        {"delta", DELTA, check_head, bench_head},
        {"delta by dimension", DELTA_BY_DIMENSION, check_head, bench_head},
        {"mamba1", 0, check_mamba1, bench_mamba1},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
