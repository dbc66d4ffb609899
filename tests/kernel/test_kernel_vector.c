/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_vector.c: softmax, norms, activations, add, soft_cap, scale, clamp, rope.
 *
 * References are in double. Unit u = 2^-24 (half a unit in the last place); a vector exponential may be 8 u off (4
 * ulp).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

/* exp flushes to 0 below -87.3; nothing larger is flushed. */
#define FLUSHED 1.3e-38

static float *row(int64_t n) { return check_alloc((size_t)n * sizeof(float), 4 * (size_t)check_random_in(0, 7)); }

/* Lengths with every tail, and some long ones. */
static int64_t random_length(int round) { return round % 4 == 3 ? check_random_in(100, 3000) : check_random_in(1, 70); }

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* x - max rounds once (u |x - max|, which the exponential makes relative), exp adds 8 u, the sum 9 u at most on average
 * over positive terms, the factor 2 u. */
static void check_softmax_row(const float *before, const float *after, float factor, int64_t n) {
    double max = before[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = before[i] > max ? before[i] : max;
    for (int64_t i = 0; i < n; i++) sum += exp(before[i] - max);
    double total = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) worst = BASE_MAX(worst, BASE_MIN(max - (double)before[i], 100));
    for (int64_t i = 0; i < n; i++) {
        const double want = exp(before[i] - max) / sum;
        const double got = (double)after[i] * (double)factor;
        check_near(got, want, (2 * worst + 24) * CHECK_UNIT * want + FLUSHED, "softmax", i);
        total += got;
    }
    check_near(total, 1.0, (2 * worst + 24) * CHECK_UNIT, "total", n);
}

static void softmax_inputs(float *x, int64_t n, int round) {
    check_fill(x, n, round % 5 == 4 ? CHECK_SUBNORMAL : CHECK_NORMAL);
    const float scale = round % 5 == 0 ? 1.0f : round % 5 == 1 ? 30.0f
                                                               : 200.0f;
    const float same = x[0] * 1e30f;
    for (int64_t i = 0; i < n; i++) x[i] = round % 7 == 6 ? same : x[i] * scale;
    if (round % 3 == 0 && n > 1) x[check_random_in(1, n - 1)] = -INFINITY; /* a masked slot; x[0] stays finite */
}

static void check_softmax(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 400; round++) {
        const int64_t n = random_length(round);
        float *x = row(n), *y = row(n), *again = row(n);
        softmax_inputs(x, n, round);
        memcpy(y, x, (size_t)n * 4);
        memcpy(again, x, (size_t)n * 4);
        const float factor = t->softmax(y, n), same = t->softmax(again, n);
        check_that(factor == same, "softmax at another address: factor %g, not %g", (double)same, (double)factor);
        check_softmax_row(x, y, factor, n);
        check_same_bytes(y, again, (size_t)n * 4, "softmax at another address");
        check_release(x);
        check_release(y);
        check_release(again);
    }
}

/* The exponential alone: with the maximum 0, x - max is exact and after[i] / after[0] = exp(x[i]). */
static void check_exponential(const kernel_table *t, int arg) {
    (void)arg;
    enum { N = 4001 };
    float *x = row(N), *y = row(N);
    for (int i = 0; i < N; i++) x[i] = -87.0f * (float)i / (float)(N - 1);
    for (int i = 1; i < N; i += 5) x[i] = -(float)check_random_in(0, 87000000) * 1e-6f;
    x[N - 1] = -104.0f, x[N - 2] = -1000.0f, x[N - 3] = -3e38f, x[N - 4] = -INFINITY;
    memcpy(y, x, N * sizeof *x);
    t->softmax(y, N);
    for (int i = 0; i < N - 4; i++) {
        const double want = exp((double)x[i]);
        check_near((double)y[i] / (double)y[0], want, 12 * CHECK_UNIT * want + FLUSHED, "exp", i);
    }
    for (int i = N - 4; i < N; i++) check_that(y[i] == 0.0f, "exp(%g) is %g", (double)x[i], (double)y[i]);
    check_release(x);
    check_release(y);
}

/* ---- norm -------------------------------------------------------------------------------------------------------- */

/* The sum is in double; 1 / root, x times it and times w round: 3 u, and the subnormal range. */
static void check_rms_norm(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 300; round++) {
        const int64_t n = random_length(round);
        const float eps = round % 2 ? 1e-5f : 1e-6f;
        float *x = row(n), *w = row(n), *y = row(n);
        check_fill(x, n, (check_kind)(round % CHECK_KINDS));
        check_fill(w, n, CHECK_NORMAL);
        t->rms_norm(x, w, eps, y, n);
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
        const double inverse = 1 / sqrt(squares / (double)n + (double)eps);
        for (int64_t i = 0; i < n; i++) {
            const double want = (double)x[i] * inverse * (double)w[i];
            check_near(y[i], want, 4 * CHECK_UNIT * fabs(want) + 0x1p-147, "norm", i);
        }
        t->rms_norm(x, w, eps, x, n);
        check_same_bytes(x, y, (size_t)n * 4, "norm in place");
        check_release(x);
        check_release(w);
        check_release(y);
    }
}

/* The mean and the squares are in double; the mean, the difference, the root and two products and a sum round. The
 * difference rounds in units of x and mean, which the root makes relative to the spread. */
static void check_layer_norm(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 300; round++) {
        const int64_t n = random_length(round);
        const float eps = round % 2 ? 1e-5f : 1e-3f, offset = round % 3 ? 0.0f : 10.0f;
        float *x = row(n), *w = row(n), *b = round % 4 ? row(n) : NULL, *y = row(n);
        check_fill(x, n, CHECK_NORMAL);
        check_fill(w, n, CHECK_NORMAL);
        if (b) check_fill(b, n, CHECK_NORMAL);
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) mean += (double)(x[i] += offset);
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double inverse = 1 / sqrt(squares / (double)n + (double)eps);
        t->layer_norm(x, w, b, eps, y, n);
        for (int64_t i = 0; i < n; i++) {
            const double scaled = ((double)x[i] - mean) * inverse * (double)w[i],
                         want = scaled + (b ? (double)b[i] : 0);
            const double lost = (fabs((double)x[i]) + fabs(mean)) * inverse * fabs((double)w[i]);
            check_near(y[i], want, CHECK_UNIT * (8 * fabs(scaled) + 4 * lost + 2 * fabs(want)) + 0x1p-147, "layer norm",
                       i);
        }
        t->layer_norm(x, w, b, eps, x, n);
        check_same_bytes(x, y, (size_t)n * 4, "layer norm in place");
        check_release(x);
        check_release(w);
        if (b) check_release(b);
        check_release(y);
    }
}

/* ---- activations and sums ---------------------------------------------------------------------------------------- */

static double sigmoid(double t) { return t >= 0 ? 1 / (1 + exp(-t)) : exp(t) / (1 + exp(t)); }
static double cut(double x, double limit) { return fmin(fmax(x, -limit), limit); }

static double act_of(int act, double a) {
    switch (act) {
    case KERNEL_SILU: return a * sigmoid(a);
    case KERNEL_GELU: return 0.5 * a * erfc(-a / sqrt(2));
    case KERNEL_SIGMOID: return sigmoid(a);
    case KERNEL_RELU_SQUARED: return a > 0 ? a * a : 0;
    case KERNEL_GELU_TANH: return a * sigmoid(2 * sqrt(2 / acos(-1.0)) * (a + 0.044715 * a * a * a));
    default: return fmin(a, 7) * sigmoid(1.702 * fmin(a, 7));
    }
}

static double up_of(int act, double up) { return act == KERNEL_SWIGLU_OAI ? cut(up, 7) + 1 : up; }

static void act_inputs(float *a, int64_t n, int round) {
    static const float extremes[] = {0.0f, -0.0f, 88.0f, -88.0f, 1000.0f, -1000.0f,
                                     3e38f, -3e38f, 1e-40f, -87.3f, 7.0f, 7.5f};
    check_fill(a, n, (check_kind)(round % CHECK_KINDS));
    for (int64_t i = 0; i < n; i++) a[i] *= round % 2 ? 8.0f : 1.0f;
    for (int64_t i = 0; i < n; i += 3) a[i] = extremes[check_random() % BASE_ARRAY_LEN(extremes)];
}

/* exp or erfc 8 u, products, sum and quotient 5 u. Where the exponent of exp is computed, its rounding (3 u of the
 * exponent, which is at most 104 before the result vanishes) is relative to the result. Where exp is flushed the
 * result is below 1.2e-36 |a|. */
static void check_act(const kernel_table *t, int act) {
    for (int round = 0; round < 300; round++) {
        const int64_t n = random_length(round);
        const bool alone = act != KERNEL_SWIGLU_OAI && round % 4 == 0;
        float *a = row(n), *up = row(n), *y = row(n);
        act_inputs(a, n, round);
        check_fill(up, n, CHECK_NORMAL);
        for (int64_t i = 0; i < n && round % 3 == 0; i++) up[i] *= 10.0f;
        t->act[act](a, alone ? NULL : up, y, n);
        for (int64_t i = 0; i < n; i++) {
            const double by = alone ? 1 : up_of(act, up[i]), want = act_of(act, a[i]) * by;
            const bool is_own = act == KERNEL_SILU || act == KERNEL_SIGMOID; /* a itself is the exponent of exp */
            const double exponent =
                is_own ? 0 : fmin(fabs((double)a[i]) * (1.6 + 0.08 * (double)a[i] * (double)a[i]), 110);
            if (fabs(want) > 3e38) continue; /* 3e38 * up may overflow, as it should */
            const double bound =
                (16 + 4 * exponent) * CHECK_UNIT * fabs(want) + 4 * CHECK_UNIT * fabs(act_of(act, a[i]));
            check_near(y[i], want, bound + 1.2e-36 * fabs(by) + 0x1p-148, "act", i);
        }
        float *in_place = round % 2 && !alone ? up : a;
        t->act[act](a, alone ? NULL : up, in_place, n);
        check_same_bytes(in_place, y, (size_t)n * 4, "act in place");
        check_release(a);
        check_release(up);
        check_release(y);
    }
}

/* A value of an element-wise function does not depend on its position in the row. */
static void check_places(const kernel_table *t, int act) {
    for (int round = 0; round < 100; round++) {
        float a[33], up[33], y[33], capped[33], alone;
        check_fill(a, 33, CHECK_NORMAL);
        check_fill(up, 33, CHECK_NORMAL);
        t->act[act](a, up, y, 33);
        memcpy(capped, a, sizeof capped);
        t->soft_cap(capped, 0.7f, 33);
        for (int i = 0; i < 33; i++) {
            t->act[act](a + i, up + i, &alone, 1);
            check_same_bytes(&alone, y + i, 4, "act alone");
            alone = a[i];
            t->soft_cap(&alone, 0.7f, 1);
            check_same_bytes(&alone, capped + i, 4, "soft cap alone");
        }
    }
}

/* tanh is off by its last digits near its limit of 1, where the cap is flat: relative to the cap. */
static void check_soft_cap(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = random_length(round);
        const float cap = round % 2 ? 50.0f : 0.3f;
        float *x = row(n), *y = row(n);
        act_inputs(x, n, round);
        memcpy(y, x, (size_t)n * 4);
        t->soft_cap(y, cap, n);
        for (int64_t i = 0; i < n; i++) {
            check_near(y[i], (double)cap * tanh((double)x[i] / (double)cap), 8 * CHECK_UNIT * (double)cap, "soft cap",
                       i);
            check_that(fabsf(y[i]) <= cap, "soft cap of %g is %g", (double)x[i], (double)y[i]);
        }
        check_release(x);
        check_release(y);
    }
}

static void check_scale_and_clamp(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 100; round++) {
        const int64_t n = random_length(round);
        float *x = row(n), *scaled = row(n), *clamped = row(n);
        check_fill(x, n, (check_kind)(round % CHECK_KINDS));
        memcpy(scaled, x, (size_t)n * 4);
        memcpy(clamped, x, (size_t)n * 4);
        t->scale(scaled, 1.7f, n);
        t->clamp(clamped, 0.5f, n);
        for (int64_t i = 0; i < n; i++) {
            const float s = x[i] * 1.7f, c = x[i] > 0.5f ? 0.5f : x[i] < -0.5f ? -0.5f
                                                                               : x[i];
            check_same_bytes(&scaled[i], &s, 4, "scaled");
            check_same_bytes(&clamped[i], &c, 4, "clamped");
        }
        check_release(x);
        check_release(scaled);
        check_release(clamped);
    }
}

static void check_add(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = random_length(round);
        float *a = row(n), *b = row(n), *y = row(n), *want = row(n);
        check_fill(a, n, (check_kind)(round % CHECK_KINDS));
        check_fill(b, n, (check_kind)(round / CHECK_KINDS % CHECK_KINDS));
        const float factor = round % 3 ? 1.0f : 0.3f;
        for (int64_t i = 0; i < n; i++) {
            const float scaled = factor * b[i];
            want[i] = a[i] + scaled;
        }
        t->add(a, b, factor, y, n);
        check_same_bytes(y, want, (size_t)n * 4, "sum");
        float *in_place = round % 2 ? a : b;
        t->add(a, b, factor, in_place, n);
        check_same_bytes(in_place, want, (size_t)n * 4, "sum in place");
        check_release(a);
        check_release(b);
        check_release(y);
        check_release(want);
    }
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

typedef struct rotation {
    int64_t n_heads, dim, rot_dim;
    bool neox;
    float *x, *cs, *y;
} rotation;

/* Two products and a sum: 3 u of the magnitudes at most; elements that are not rotated are copied. */
static void check_rotation(const rotation *r) {
    for (int64_t i = 0; i < r->n_heads * r->dim; i++) {
        const float *head = r->x + i / r->dim * r->dim;
        const int64_t d = i % r->dim, pairs = r->rot_dim / 2;
        if (d >= r->rot_dim) {
            check_same_bytes(&r->y[i], &r->x[i], 4, "not rotated");
            continue;
        }
        const int64_t pair = r->neox ? d % pairs : d / 2;
        const bool second = r->neox ? d >= pairs : d % 2 == 1;
        const int64_t other = r->neox ? (second ? d - pairs : d + pairs) : d ^ 1;
        const double c = r->cs[2 * pair], s = r->cs[2 * pair + 1];
        const double by_cos = head[d] * c, by_sin = head[other] * s;
        const double bound = 3 * CHECK_UNIT * (fabs(by_cos) + fabs(by_sin)) + 0x1p-147;
        check_near(r->y[i], second ? by_cos + by_sin : by_cos - by_sin, bound, "rotated", i);
    }
}

static void check_rope(const kernel_table *t, int neox) {
    for (int round = 0; round < 300; round++) {
        rotation r = {.n_heads = check_random_in(0, 5), .dim = check_random_in(1, 140), .neox = neox != 0};
        r.rot_dim = round % 2 ? r.dim / 2 * 2 : check_random_in(0, r.dim / 2) * 2;
        const int64_t n = r.n_heads * r.dim;
        r.x = row(n), r.y = row(n), r.cs = row(r.rot_dim);
        float *plain = row(n);
        check_fill(r.x, n, (check_kind)(round % CHECK_KINDS));
        for (int64_t i = 0; i < r.rot_dim / 2; i++) {
            const double angle = (double)check_random_in(-100000, 100000) * 1e-3;
            r.cs[2 * i] = (float)cos(angle), r.cs[2 * i + 1] = (float)sin(angle);
        }
        t->rope(r.x, r.cs, r.n_heads, r.dim, r.rot_dim, r.neox, r.y);
        check_rotation(&r);
        check_reference()->rope(r.x, r.cs, r.n_heads, r.dim, r.rot_dim, r.neox, plain);
        check_same_bytes(r.y, plain, (size_t)n * 4, "rotation in plain C");
        t->rope(r.x, r.cs, r.n_heads, r.dim, r.rot_dim, r.neox, r.x);
        check_same_bytes(r.x, plain, (size_t)n * 4, "rotation in place");
        check_release(r.x);
        check_release(r.y);
        check_release(r.cs);
        check_release(plain);
    }
}

/* ---- timing: a row of 2048 --------------------------------------------------------------------------------------- */

enum { WIDTH = 2048 };

typedef struct timing {
    const kernel_table *table;
    float *a, *b, *y;
} timing;

static void time_softmax(void *arg) {
    const timing *t = arg;
    t->table->softmax(t->a, WIDTH);
}

static void time_rms_norm(void *arg) {
    const timing *t = arg;
    t->table->rms_norm(t->a, t->b, 1e-5f, t->y, WIDTH);
}

static void time_layer_norm(void *arg) {
    const timing *t = arg;
    t->table->layer_norm(t->a, t->b, t->b, 1e-5f, t->y, WIDTH);
}

static void time_silu(void *arg) {
    const timing *t = arg;
    t->table->act[KERNEL_SILU](t->a, t->b, t->y, WIDTH);
}

static void time_gelu(void *arg) {
    const timing *t = arg;
    t->table->act[KERNEL_GELU](t->a, NULL, t->y, WIDTH);
}

static void time_gelu_tanh(void *arg) {
    const timing *t = arg;
    t->table->act[KERNEL_GELU_TANH](t->a, t->b, t->y, WIDTH);
}

static void time_soft_cap(void *arg) {
    const timing *t = arg;
    t->table->soft_cap(t->a, 50.0f, WIDTH);
}

static void time_add(void *arg) {
    const timing *t = arg;
    t->table->add(t->a, t->b, 1.0f, t->y, WIDTH);
}

static void time_rope(void *arg) {
    const timing *t = arg;
    t->table->rope(t->a, t->b, 32, 64, 64, false, t->y);
}

static void time_rope_neox(void *arg) {
    const timing *t = arg;
    t->table->rope(t->a, t->b, 32, 64, 64, true, t->y);
}

static void bench(const kernel_table *t, void (*fn)(void *)) {
    timing m = {t, row(WIDTH), row(WIDTH), row(WIDTH)};
    check_fill(m.a, WIDTH, CHECK_NORMAL);
    check_fill(m.b, WIDTH, CHECK_NORMAL);
    check_time("2048", fn, &m, 4.0 * WIDTH, WIDTH);
    check_release(m.a);
    check_release(m.b);
    check_release(m.y);
}

static void bench_softmax(const kernel_table *t, int arg) { (void)arg, bench(t, time_softmax); }
static void bench_rms_norm(const kernel_table *t, int arg) { (void)arg, bench(t, time_rms_norm); }
static void bench_layer_norm(const kernel_table *t, int arg) { (void)arg, bench(t, time_layer_norm); }
static void bench_soft_cap(const kernel_table *t, int arg) { (void)arg, bench(t, time_soft_cap); }
static void bench_act(const kernel_table *t, int act) {
    bench(t, act == KERNEL_SILU ? time_silu : act == KERNEL_GELU ? time_gelu
                                                                 : time_gelu_tanh);
}
static void bench_add(const kernel_table *t, int arg) { (void)arg, bench(t, time_add); }
static void bench_rope(const kernel_table *t, int neox) { bench(t, neox ? time_rope_neox : time_rope); }

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"softmax", 0, check_softmax, bench_softmax},
        {"exponential", 0, check_exponential, NULL},
        {"rms_norm", 0, check_rms_norm, bench_rms_norm},
        {"layer_norm", 0, check_layer_norm, bench_layer_norm},
        {"silu", KERNEL_SILU, check_act, bench_act},
        {"gelu", KERNEL_GELU, check_act, bench_act},
        {"gelu_tanh", KERNEL_GELU_TANH, check_act, bench_act},
        {"swiglu_oai", KERNEL_SWIGLU_OAI, check_act, NULL},
        {"relu_squared", KERNEL_RELU_SQUARED, check_act, NULL},
        {"sigmoid", KERNEL_SIGMOID, check_act, NULL},
        {"silu_places", KERNEL_SILU, check_places, NULL},
        {"gelu_places", KERNEL_GELU, check_places, NULL},
        {"gelu_tanh_places", KERNEL_GELU_TANH, check_places, NULL},
        {"relu_squared_places", KERNEL_RELU_SQUARED, check_places, NULL},
        {"sigmoid_places", KERNEL_SIGMOID, check_places, NULL},
        {"swiglu_oai_places", KERNEL_SWIGLU_OAI, check_places, NULL},
        {"soft_cap", 0, check_soft_cap, bench_soft_cap},
        {"scale_and_clamp", 0, check_scale_and_clamp, NULL},
        {"add", 0, check_add, bench_add},
        {"rope", 0, check_rope, bench_rope},
        {"rope_neox", 1, check_rope, bench_rope},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
