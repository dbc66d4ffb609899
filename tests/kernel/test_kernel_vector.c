/* test_kernel_vector.c: softmax, rms_norm, silu_mul, add, rope.
 *
 * Truths are in double. Unit u = 2^-24 (half a unit in the last place); a vector exponential may be 8 u off (4 ulp).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

/* exp flushes to 0 below -87.3; nothing larger is lost. */
#define FLUSHED 1.3e-38

static float *row(int64_t n) { return check_alloc((size_t)n * sizeof(float), 4 * (size_t)check_random_in(0, 7)); }

/* Lengths with every tail, and some long ones. */
static int64_t random_length(int round) { return round % 4 == 3 ? check_random_in(100, 3000) : check_random_in(1, 70); }

/* ---- softmax ------------------------------------------------------------------------------------------------------- */

/* x - max rounds once (u |x - max|, which the exponential makes relative), exp adds 8 u, the sum 9 u at most on average
 * over positive terms, the quotient 2 u. */
static void check_softmax_row(const float *before, const float *after, int64_t n) {
    double max = before[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = fmax(max, before[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(before[i] - max);
    double total = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) worst = fmax(worst, fmin(max - (double)before[i], 100));
    for (int64_t i = 0; i < n; i++) {
        const double want = exp(before[i] - max) / sum;
        check_near(after[i], want, (2 * worst + 24) * CHECK_UNIT * want + FLUSHED, "softmax", i);
        total += after[i];
    }
    check_near(total, 1.0, (2 * worst + 24) * CHECK_UNIT, "total", n);
}

static void softmax_inputs(float *x, int64_t n, int round) {
    check_fill(x, n, round % 5 == 4 ? CHECK_SUBNORMAL : CHECK_NORMAL);
    const float scale = round % 5 == 0 ? 1.0f : round % 5 == 1 ? 30.0f : 200.0f;
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
        t->softmax(y, n);
        t->softmax(again, n);
        check_softmax_row(x, y, n);
        check_same_bytes(y, again, (size_t)n * 4, "softmax at another address");
        check_release(x);
        check_release(y);
        check_release(again);
    }
}

/* The exponential by itself: with the maximum 0, x - max is exact and after[i] / after[0] = exp(x[i]). */
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

/* ---- norm ---------------------------------------------------------------------------------------------------------- */

/* The sum is kept in double; 1 / root, x * it and * w round: 3 u, and what is subnormal. */
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

/* ---- gate and add -------------------------------------------------------------------------------------------------- */

static double silu(double a) { return a >= 0 ? a / (1 + exp(-a)) : a * exp(a) / (1 + exp(a)); }

static void gate_inputs(float *gate, int64_t n, int round) {
    static const float extremes[] = {0.0f, -0.0f, 88.0f, -88.0f, 1000.0f, -1000.0f, 3e38f, -3e38f, 1e-40f, -87.3f};
    check_fill(gate, n, (check_kind)(round % CHECK_KINDS));
    for (int64_t i = 0; i < n; i++) gate[i] *= round % 2 ? 8.0f : 1.0f;
    for (int64_t i = 0; i < n; i += 3) gate[i] = extremes[check_random() % BASE_ARRAY_LEN(extremes)];
}

/* exp 8 u, product, sum, quotient and product 4 u; where exp is flushed |a| exp(-|a|) is below 1.2e-36. */
static void check_silu_mul(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 300; round++) {
        const int64_t n = random_length(round);
        float *gate = row(n), *up = row(n), *y = row(n);
        gate_inputs(gate, n, round);
        check_fill(up, n, CHECK_NORMAL);
        t->act[KERNEL_SILU](gate, up, y, n);
        for (int64_t i = 0; i < n; i++) {
            const double want = silu(gate[i]) * (double)up[i];
            if (fabs(want) > 3e38) continue; /* 3e38 * up may overflow, and should */
            check_near(y[i], want, 16 * CHECK_UNIT * fabs(want) + 1.2e-36 * fabs((double)up[i]) + 0x1p-148, "silu", i);
        }
        if (round % 2) {
            t->act[KERNEL_SILU](gate, up, up, n);
            check_same_bytes(up, y, (size_t)n * 4, "silu over up");
        } else {
            t->act[KERNEL_SILU](gate, up, gate, n);
            check_same_bytes(gate, y, (size_t)n * 4, "silu over gate");
        }
        check_release(gate);
        check_release(up);
        check_release(y);
    }
}

/* A value of an element-wise function does not depend on where in the row it stands. */
static void check_silu_places(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 100; round++) {
        float gate[33], up[33], y[33], alone;
        check_fill(gate, 33, CHECK_NORMAL);
        check_fill(up, 33, CHECK_NORMAL);
        t->act[KERNEL_SILU](gate, up, y, 33);
        for (int i = 0; i < 33; i++) {
            t->act[KERNEL_SILU](gate + i, up + i, &alone, 1);
            check_same_bytes(&alone, y + i, 4, "silu alone");
        }
    }
}

static void check_add(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = random_length(round);
        float *a = row(n), *b = row(n), *y = row(n), *want = row(n);
        check_fill(a, n, (check_kind)(round % CHECK_KINDS));
        check_fill(b, n, (check_kind)(round / CHECK_KINDS % CHECK_KINDS));
        for (int64_t i = 0; i < n; i++) want[i] = a[i] + b[i];
        t->add(a, b, 1.0f, y, n);
        check_same_bytes(y, want, (size_t)n * 4, "sum");
        float *in_place = round % 2 ? a : b;
        t->add(a, b, 1.0f, in_place, n);
        check_same_bytes(in_place, want, (size_t)n * 4, "sum in place");
        check_release(a);
        check_release(b);
        check_release(y);
        check_release(want);
    }
}

/* ---- rotation ------------------------------------------------------------------------------------------------------ */

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

/* ---- timing: a row of 2048 ------------------------------------------------------------------------------------------ */

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

static void time_silu_mul(void *arg) {
    const timing *t = arg;
    t->table->act[KERNEL_SILU](t->a, t->b, t->y, WIDTH);
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
static void bench_silu_mul(const kernel_table *t, int arg) { (void)arg, bench(t, time_silu_mul); }
static void bench_add(const kernel_table *t, int arg) { (void)arg, bench(t, time_add); }
static void bench_rope(const kernel_table *t, int neox) { bench(t, neox ? time_rope_neox : time_rope); }

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"softmax", 0, check_softmax, bench_softmax},    {"exponential", 0, check_exponential, NULL},
        {"rms_norm", 0, check_rms_norm, bench_rms_norm}, {"silu_mul", 0, check_silu_mul, bench_silu_mul},
        {"silu_mul_places", 0, check_silu_places, NULL}, {"add", 0, check_add, bench_add},
        {"rope", 0, check_rope, bench_rope},             {"rope_neox", 1, check_rope, bench_rope},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
