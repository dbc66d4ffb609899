/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_attention.c: scores and values over a block of 64 slots, and storing into a block.
 *
 * The reference is a sum in double. With u = 2^-24, a score of dim terms with magnitudes that add up to S is off by at
 * most (2 dim + 2) u S |scale|, a value after n slots by (2 n + 2) u S, S including the initial value of the sum;
 * doubled below, and 2^-149 for each term that underflows. Independence is checked on bytes: of the other queries, of
 * addresses, of block borders, and of the level, except for plain C, which does not fuse.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

#define SLOTS KERNEL_SLOTS

typedef struct problem {
    bool f16;
    int64_t dim, n_q, q_stride, p_stride, acc_stride, out_stride;
    void *states; /* keys or values: dim * 64 elements */
    float *query, *p, *acc, *out;
} problem;

static double element(const problem *a, int64_t i) {
    return a->f16 ? (double)kernel_f16_to_f32(((const uint16_t *)a->states)[i]) : (double)((const float *)a->states)[i];
}

static size_t offset(size_t elem) { return elem * (size_t)check_random_in(0, 7); }

static size_t rows_bytes(int64_t n, int64_t stride, int64_t width) {
    return n == 0 ? 0 : (size_t)((n - 1) * stride + width) * sizeof(float);
}

static void fill_kv(problem *a, check_kind kind) {
    for (int64_t i = 0; i < a->dim * SLOTS; i++) {
        const float f = check_float(kind);
        if (a->f16) {
            ((uint16_t *)a->states)[i] = kernel_f32_to_f16(fmaxf(-65504.0f, fminf(65504.0f, f)));
        } else {
            ((float *)a->states)[i] = f;
        }
    }
}

static problem problem_new(bool f16, int64_t dim, int64_t n_q) {
    problem a = {.f16 = f16, .dim = dim, .n_q = n_q};
    const size_t elem = f16 ? 2 : 4;
    a.q_stride = dim + check_random_in(0, 9);
    a.acc_stride = dim + check_random_in(0, 9);
    a.p_stride = SLOTS + check_random_in(0, 9);
    a.out_stride = SLOTS + check_random_in(0, 9);
    a.states = check_alloc((size_t)(dim * SLOTS) * elem, offset(elem));
    a.query = check_alloc(rows_bytes(n_q, a.q_stride, dim), offset(4));
    a.acc = check_alloc(rows_bytes(n_q, a.acc_stride, dim), offset(4));
    a.p = check_alloc(rows_bytes(n_q, a.p_stride, SLOTS), offset(4));
    a.out = check_alloc(rows_bytes(n_q, a.out_stride, SLOTS), offset(4));
    return a;
}

static void problem_fill(problem *a, check_kind states, check_kind rest) {
    fill_kv(a, states);
    for (int64_t q = 0; q < a->n_q; q++) {
        check_fill(a->query + q * a->q_stride, a->dim, rest);
        check_fill(a->acc + q * a->acc_stride, a->dim, rest);
        check_fill(a->p + q * a->p_stride, SLOTS, rest);
    }
}

static void problem_free(problem *a) {
    check_release(a->states);
    check_release(a->query);
    check_release(a->acc);
    check_release(a->p);
    check_release(a->out);
}

/* Head sizes of real models, and any other. */
static int64_t random_dim(int round) {
    static const int64_t usual[] = {1, 8, 16, 48, 64, 80, 96, 128, 256, 512};
    return round % 2 ? check_random_in(1, 140) : usual[round / 2 % BASE_ARRAY_LEN(usual)];
}

/* An address to prefetch may be invalid. */
static const void *any_address(void) { return (const void *)(uintptr_t)check_random(); }

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static void run_scores(const kernel_table *t, const problem *a, int64_t first, int64_t n, float scale, float *out,
                       int64_t out_stride) {
    const kernel_attn_scores_fn fn = a->f16 ? t->attn_scores_f16 : t->attn_scores_f32;
    fn(a->states, a->dim, a->query + first * a->q_stride, a->q_stride, n, scale, out, out_stride, any_address());
}

static void check_score(const problem *a, int64_t q, int64_t slot, float scale) {
    double sum = 0, magnitude = 0;
    for (int64_t d = 0; d < a->dim; d++) {
        const double term = (double)a->query[q * a->q_stride + d] * element(a, d * SLOTS + slot);
        sum += term;
        magnitude += fabs(term);
    }
    const double terms = 4 * (double)a->dim + 4;
    const double bound = terms * (CHECK_UNIT * magnitude + 0x1p-149) * fabs((double)scale) + 0x1p-149;
    check_near(a->out[q * a->out_stride + slot], sum * (double)scale, bound, "score", q * SLOTS + slot);
}

static const kernel_table *other_level(const kernel_table *t) { return t->side > 1 ? check_lowest_level() : NULL; }

static void check_scores_level(const kernel_table *other, const problem *a, float scale) {
    float *out = check_alloc((size_t)(a->n_q * SLOTS) * sizeof(float), offset(4));
    run_scores(other, a, 0, a->n_q, scale, out, SLOTS);
    for (int64_t q = 0; q < a->n_q; q++)
        check_same_bytes(out + q * SLOTS, a->out + q * a->out_stride, SLOTS * 4, "a lower level's scores");
    check_release(out);
}

static void check_scores_round(const kernel_table *t, const problem *a, float scale) {
    run_scores(t, a, 0, a->n_q, scale, a->out, a->out_stride);
    if (other_level(t)) check_scores_level(other_level(t), a, scale);
    for (int64_t q = 0; q < a->n_q; q++) {
        for (int64_t slot = 0; slot < SLOTS; slot++) check_score(a, q, slot, scale);
    }
    for (int k = 0; k < 3 && a->n_q > 0; k++) {
        const int64_t first = check_random_in(0, a->n_q - 1), n = check_random_in(1, a->n_q - first);
        float *part = check_alloc((size_t)(n * SLOTS) * sizeof(float), offset(4));
        run_scores(t, a, first, n, scale, part, SLOTS);
        for (int64_t q = 0; q < n; q++) {
            check_same_bytes(part + q * SLOTS, a->out + (first + q) * a->out_stride, SLOTS * 4,
                             "scores of some queries");
        }
        check_release(part);
    }
}

static void check_scores(const kernel_table *t, int f16) {
    for (int round = 0; round < 60; round++) {
        problem a = problem_new(f16 != 0, random_dim(round), check_random_in(0, 11));
        problem_fill(&a, (check_kind)(round % CHECK_KINDS), (check_kind)(round / CHECK_KINDS % CHECK_KINDS));
        check_scores_round(t, &a, round % 4 ? 0.125f : 1.0f / sqrtf((float)a.dim));
        for (int64_t q = 0; q + 1 < a.n_q; q++) {
            for (int64_t j = SLOTS; j < a.out_stride; j++)
                check_that(isnan(a.out[q * a.out_stride + j]), "wrote a gap");
        }
        problem_free(&a);
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void run_values(const kernel_table *t, const problem *a, const void *states, uint64_t visible, const float *p,
                       int64_t n_q, float *acc) {
    const kernel_attn_values_fn fn = a->f16 ? t->attn_values_f16 : t->attn_values_f32;
    fn(states, a->dim, visible, p, a->p_stride, n_q, acc, a->acc_stride, any_address());
}

static uint64_t random_mask(int round) {
    switch (round % 6) {
    case 0: return UINT64_MAX;
    case 1: return 0;
    case 2: return UINT64_C(1) << check_random_in(0, 63);
    case 3: return UINT64_MAX >> check_random_in(0, 63);
    case 4: return UINT64_MAX << check_random_in(0, 63);
    default: return check_random();
    }
}

static void check_value(const problem *a, uint64_t visible, const float *before, int64_t q, int64_t d) {
    double sum = before[q * a->acc_stride + d], magnitude = fabs(sum), terms = 4;
    int64_t i = 0;
    for (int64_t slot = 0; slot < SLOTS; slot++) {
        if (!(visible >> slot & 1)) continue;
        const double term = (double)a->p[q * a->p_stride + i++] * element(a, slot * a->dim + d);
        sum += term;
        magnitude += fabs(term);
        terms += 4;
    }
    const double bound = terms * (CHECK_UNIT * magnitude + 0x1p-149);
    check_near(a->acc[q * a->acc_stride + d], sum, bound, "value", q * a->dim + d);
}

/* Moves the slots of `visible` to the slots of `target` (as many bits) in a block of their own. */
static void *move_slots(const problem *a, uint64_t visible, uint64_t target) {
    const size_t row = (size_t)a->dim * (a->f16 ? 2 : 4);
    uint8_t *moved = check_alloc(row * SLOTS, offset(a->f16 ? 2 : 4));
    for (; visible; visible &= visible - 1, target &= target - 1) {
        memcpy(moved + row * (size_t)base_ctz64(target), (uint8_t *)a->states + row * (size_t)base_ctz64(visible), row);
    }
    return moved;
}

static uint64_t lowest_bits(uint64_t mask, int n) {
    uint64_t out = 0;
    for (int i = 0; i < n; i++, mask &= mask - 1) out |= mask & (~mask + 1);
    return out;
}

/* The same slots in two calls, the second from another block with other slot numbers, give the same bits; so does a
 * single query alone. */
static void check_borders(const kernel_table *t, const problem *a, uint64_t visible, const float *before) {
    const int n = base_popcount64(visible), split = (int)check_random_in(0, n);
    const uint64_t first = lowest_bits(visible, split), second = visible & ~first;
    const int64_t up = check_random_in(0, BASE_MIN(SLOTS - (n - split), SLOTS - 1)); /* there may be no slot to place */
    const uint64_t target = lowest_bits(UINT64_MAX << up, n - split);
    void *moved = move_slots(a, second, target);
    const size_t bytes = rows_bytes(a->n_q, a->acc_stride, a->dim);
    float *acc = check_alloc(bytes, offset(4));
    memcpy(acc, before, bytes);
    for (int64_t q = 0; q < a->n_q; q++) {
        run_values(t, a, a->states, first, a->p + q * a->p_stride, 1, acc + q * a->acc_stride);
    }
    run_values(t, a, moved, target, a->p + split, a->n_q, acc);
    for (int64_t q = 0; q < a->n_q; q++) {
        check_same_bytes(acc + q * a->acc_stride, a->acc + q * a->acc_stride, (size_t)a->dim * 4,
                         "values in two blocks");
    }
    check_release(acc);
    check_release(moved);
}

static void check_values_level(const kernel_table *other, const problem *a, uint64_t visible, const float *before) {
    const size_t bytes = rows_bytes(a->n_q, a->acc_stride, a->dim);
    float *acc = check_alloc(bytes, offset(4));
    memcpy(acc, before, bytes);
    run_values(other, a, a->states, visible, a->p, a->n_q, acc);
    for (int64_t q = 0; q < a->n_q; q++) {
        check_same_bytes(acc + q * a->acc_stride, a->acc + q * a->acc_stride, (size_t)a->dim * 4,
                         "a lower level's values");
    }
    check_release(acc);
}

static void check_values(const kernel_table *t, int f16) {
    for (int round = 0; round < 90; round++) {
        problem a = problem_new(f16 != 0, random_dim(round), check_random_in(1, 11));
        problem_fill(&a, (check_kind)(round % CHECK_KINDS), (check_kind)(round / CHECK_KINDS % CHECK_KINDS));
        const uint64_t visible = random_mask(round / 2);
        const size_t bytes = rows_bytes(a.n_q, a.acc_stride, a.dim);
        float *before = check_alloc(bytes, 0);
        memcpy(before, a.acc, bytes);
        run_values(t, &a, a.states, visible, a.p, a.n_q, a.acc);
        for (int64_t q = 0; q < a.n_q; q++) {
            for (int64_t d = 0; d < a.dim; d++) check_value(&a, visible, before, q, d);
        }
        check_borders(t, &a, visible, before);
        if (other_level(t)) check_values_level(other_level(t), &a, visible, before);
        check_release(before);
        problem_free(&a);
    }
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

static void store(const kernel_table *t, bool f16, bool key, const float *x, int64_t dim, void *block, int slot) {
    if (key) {
        (f16 ? t->store_key_f16 : t->store_key_f32)(x, dim, block, slot);
    } else {
        (f16 ? t->store_value_f16 : t->store_value_f32)(x, dim, block, slot);
    }
}

/* arg: bit 0 f16, bit 1 values. Exactly one slot changes, to the rounded bits. */
static void check_store(const kernel_table *t, int arg) {
    const bool f16 = arg & 1, key = !(arg & 2);
    const size_t elem = f16 ? 2 : 4;
    for (int round = 0; round < 200; round++) {
        const int64_t dim = random_dim(round), slot = check_random_in(0, SLOTS - 1);
        const size_t bytes = (size_t)(dim * SLOTS) * elem;
        float *x = check_alloc((size_t)dim * 4, offset(4));
        uint8_t *block = check_alloc(bytes, offset(elem)), *want = check_alloc(bytes, 0);
        check_fill(x, dim, (check_kind)(round % CHECK_KINDS));
        for (size_t i = 0; i < bytes; i++) want[i] = block[i] = (uint8_t)check_random();
        for (int64_t d = 0; d < dim; d++) {
            const uint16_t h = kernel_f32_to_f16(x[d]);
            const void *bits = f16 ? (const void *)&h : (const void *)&x[d];
            memcpy(want + (size_t)(key ? d * SLOTS + slot : slot * dim + d) * elem, bits, elem);
        }
        store(t, f16, key, x, dim, block, (int)slot);
        check_same_bytes(block, want, bytes, "block");
        check_release(x);
        check_release(block);
        check_release(want);
    }
}

/* ---- timing: 32 blocks of a head of 64 or 128, by 1, 4 and 16 queries -------------------------------------------- */

typedef struct timing {
    const kernel_table *table;
    problem a;
    bool values;
} timing;

static void time_call(void *arg) {
    const timing *t = arg;
    if (t->values) {
        run_values(t->table, &t->a, t->a.states, UINT64_MAX, t->a.p, t->a.n_q, t->a.acc);
    } else {
        run_scores(t->table, &t->a, 0, t->a.n_q, 0.125f, t->a.out, t->a.out_stride);
    }
}

static void bench(const kernel_table *t, bool f16, bool values) {
    static const int64_t queries[] = {1, 4, 16};
    for (int64_t dim = 64; dim <= 128; dim *= 2) {
        for (size_t i = 0; i < BASE_ARRAY_LEN(queries); i++) {
            timing m = {t, problem_new(f16, dim, queries[i]), values};
            problem_fill(&m.a, CHECK_NORMAL, CHECK_ZERO);
            char label[32];
            snprintf(label, sizeof label, "dim %d q%d", (int)dim, (int)queries[i]);
            check_time(label, time_call, &m, (double)(dim * SLOTS * (f16 ? 2 : 4)),
                       2.0 * (double)(dim * SLOTS * queries[i]));
            problem_free(&m.a);
        }
    }
}

static void bench_scores(const kernel_table *t, int f16) { bench(t, f16 != 0, false); }
static void bench_values(const kernel_table *t, int f16) { bench(t, f16 != 0, true); }

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"attn_scores_f32", 0, check_scores, bench_scores},
        {"attn_scores_f16", 1, check_scores, bench_scores},
        {"attn_values_f32", 0, check_values, bench_values},
        {"attn_values_f16", 1, check_values, bench_values},
        {"store_key_f32", 0, check_store, NULL},
        {"store_key_f16", 1, check_store, NULL},
        {"store_value_f32", 2, check_store, NULL},
        {"store_value_f16", 3, check_store, NULL},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
