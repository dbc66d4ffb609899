/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_int8.c: attention over int8 KV. Every level gives the bytes of plain C. Plain C is compared with the
 * definition: codes are within half a scale of the element and depend on their own token only, and products are exact
 * integer sums.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

#define SLOTS KERNEL_SLOTS
#define MOST_QUERIES 11

static int64_t random_dim(int round) {
    static const int64_t usual[] = {2, 8, 16, 48, 64, 80, 96, 128, 256, 512};
    return round % 2 ? 2 * check_random_in(1, 70) : usual[round / 2 % BASE_ARRAY_LEN(usual)];
}

static size_t offset(size_t elem) { return elem * (size_t)check_random_in(0, 7); }
static const void *any_address(void) { return (const void *)(uintptr_t)check_random(); }

/* Finite values of every magnitude that a model may have: codes divide by 127. */
static float element(check_kind kind) { return fmaxf(-1e30f, fminf(1e30f, check_float(kind))); }

static void fill(float *x, int64_t n, int round) {
    for (int64_t i = 0; i < n; i++) x[i] = element((check_kind)(round % CHECK_KINDS));
}

/* ---- storing ---- */

/* arg: 1: values */
static void check_store(const kernel_table *t, int arg) {
    const bool is_key = !arg;
    for (int round = 0; round < 200; round++) {
        const int64_t dim = random_dim(round);
        const int slot = (int)check_random_in(0, SLOTS - 1);
        const size_t bytes = (size_t)kernel_int8_bytes(dim);
        float *x = check_alloc((size_t)dim * 4, offset(4)), *other = check_alloc((size_t)dim * 4, offset(4));
        uint8_t *head = check_alloc(bytes, 2 * offset(1)), *want = check_alloc(bytes, 0);
        fill(x, dim, round);
        fill(other, dim, round + 1);
        if (round % 18 == 0) memset(other, 0, (size_t)dim * 4);
        if (round % 9 == 0) other[check_random_in(0, dim - 1)] = round % 2 ? NAN : -INFINITY;
        memset(head, 0, bytes);
        memset(want, 0, bytes);
        for (int i = 0; i < SLOTS; i++) { /* the other tokens do not matter, nor does what the slot held before */
            (is_key ? t->store_key_int8 : t->store_value_int8)(i == slot ? x : other, dim, head, i);
            if (i != slot) (is_key ? t->store_key_int8 : t->store_value_int8)(other, dim, want, i);
        }
        const kernel_table *ref = check_reference();
        (is_key ? ref->store_key_int8 : ref->store_value_int8)(other, dim, want, slot);
        (is_key ? ref->store_key_int8 : ref->store_value_int8)(x, dim, want, slot);
        check_same_bytes(head, want, bytes, "a head");
        const float scale = kernel_int8_scale(x, dim);
        for (int64_t d = 0; d < dim; d++) {
            const float got = is_key ? kernel_int8_key(head, dim, slot, d) : kernel_int8_value(head, dim, slot, d);
            check_near(got, x[d], 0.5001 * (double)scale + 0x1p-100, "an element", d);
            check_that(fabsf(got) <= 127.0f * scale, "a code above 127");
        }
        check_release(x);
        check_release(other);
        check_release(head);
        check_release(want);
    }
}

/* ---- the transform of keys and queries ---- */

/* By definition: element d is the sum over i of x[i], minus where d and i share an odd number of bits. */
static double hadamard_element(const float *x, int64_t size, int64_t d) {
    double sum = 0;
    for (int64_t i = 0; i < size; i++) sum += base_popcount64((uint64_t)(d & i)) % 2 ? -(double)x[i] : (double)x[i];
    return sum;
}

static void check_hadamard(const kernel_table *t, int arg) {
    (void)t;
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t dim = random_dim(round), n = dim * check_random_in(1, 4), size = kernel_hadamard_size(dim);
        float *x = check_alloc((size_t)n * 4, offset(4)), *y = check_alloc((size_t)n * 4, offset(4));
        check_that(dim % size == 0 && dim / size % 2 == 1, "the size is not the largest power of two");
        fill(x, n, round);
        memcpy(y, x, (size_t)n * 4);
        kernel_hadamard(y, n, size);
        for (int64_t d = 0; d < n; d++) {
            const float *group = x + d / size * size;
            double magnitude = 0;
            for (int64_t i = 0; i < size; i++) magnitude += fabs((double)group[i]);
            check_near(y[d], hadamard_element(group, size, d % size), magnitude * 16 * CHECK_UNIT,
                       "a transformed element", d);
        }
        check_release(x);
        check_release(y);
    }
}

/* ---- queries and scores ---- */

static void check_query(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t dim = random_dim(round);
        float *q = check_alloc((size_t)dim * 4, offset(4));
        int16_t *out = check_alloc((size_t)dim * 2, offset(2)), *want = check_alloc((size_t)dim * 2, 0);
        fill(q, dim, round);
        const float scale = t->query_int8(q, dim, out), expected = check_reference()->query_int8(q, dim, want);
        check_same_bytes(&scale, &expected, sizeof scale, "a query's scale");
        check_same_bytes(out, want, (size_t)dim * 2, "a query");
        for (int64_t d = 0; d < dim; d++)
            check_near((double)scale * out[d], q[d], 0.51 * (double)scale + 0x1p-100, "an element of a query", d);
        check_release(q);
        check_release(out);
        check_release(want);
    }
}

/* A head of random bytes as codes, of ordinary scales. */
static uint8_t *random_head(int64_t dim) {
    uint8_t *head = check_alloc((size_t)kernel_int8_bytes(dim), 2 * offset(1));
    for (int64_t i = 0; i < dim * SLOTS; i++) head[i] = (uint8_t)(int8_t)check_random_in(-127, 127);
    for (int i = 0; i < SLOTS; i++) {
        const uint16_t h = (uint16_t)check_random_in(0x3000, 0x3f80);
        memcpy(head + KERNEL_INT8_SCALES(dim) + 2 * i, &h, sizeof h);
    }
    return head;
}

static int16_t *random_ints(int64_t n, int64_t least, int64_t most, int round) {
    int16_t *x = check_alloc((size_t)n * 2, offset(2));
    for (int64_t i = 0; i < n; i++) x[i] = (int16_t)(round % 3 == 0 ? most : check_random_in(least, most));
    return x;
}

static void check_scores(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 120; round++) {
        const int64_t dim = random_dim(round), n = check_random_in(0, MOST_QUERIES),
                      q_stride = dim + check_random_in(0, 9);
        const int64_t stride = SLOTS + check_random_in(0, 9), most = BASE_MIN(INT64_C(32767), INT32_MAX / (127 * dim));
        uint8_t *k = random_head(dim);
        int16_t *query = random_ints(BASE_MAX(n, 1) * q_stride, -most, most, round);
        float *scales = check_alloc(MOST_QUERIES * 4, offset(4)),
              *out = check_alloc((size_t)(MOST_QUERIES * stride) * 4, offset(4));
        float *want = check_alloc((size_t)(MOST_QUERIES * stride) * 4, 0);
        if (round % 3 == 0) memset(k, 127, (size_t)(dim * SLOTS)); /* the largest sum */
        for (int i = 0; i < MOST_QUERIES; i++) scales[i] = check_float(CHECK_NORMAL);
        memset(out, 0, (size_t)(MOST_QUERIES * stride) * 4);
        memset(want, 0, (size_t)(MOST_QUERIES * stride) * 4);
        t->scores_int8(k, dim, query, q_stride, n, scales, out, stride, any_address());
        check_reference()->scores_int8(k, dim, query, q_stride, n, scales, want, stride, any_address());
        check_same_bytes(out, want, (size_t)(MOST_QUERIES * stride) * 4, "scores");
        for (int64_t q = 0; q < n; q++)
            for (int slot = 0; slot < SLOTS; slot += 7) {
                double sum = 0;
                for (int64_t d = 0; d < dim; d++)
                    sum += (double)query[q * q_stride + d] * (double)kernel_int8_key(k, dim, slot, d);
                check_near(out[q * stride + slot], sum * (double)scales[q],
                           fabs(sum * (double)scales[q]) * 4 * CHECK_UNIT + 0x1p-120, "a score", q);
            }
        check_release(k);
        check_release(query);
        check_release(scales);
        check_release(out);
        check_release(want);
    }
}

/* ---- weights and values ---- */

static void check_weights(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = check_random_in(1, 400);
        float *p = check_alloc((size_t)n * 4, offset(4)), *scales = check_alloc((size_t)n * 4, offset(4));
        int16_t *out = check_alloc((size_t)n * 2, offset(2)), *want = check_alloc((size_t)n * 2, 0);
        kernel_heavy *heavy = check_alloc(sizeof(*heavy) * (size_t)n, 0),
                     *expected = check_alloc(sizeof(*heavy) * (size_t)n, 0);
        const float factor = round % 3 == 0 ? NAN : round % 3 == 1 ? 0x1p20f
                                                                   : 0x1p31f;
        for (int64_t i = 0; i < n; i++) {
            p[i] = round % 5 == 0 ? 0.0f : expf(-(float)check_random_in(0, 30));
            if (round % 7 == 0 && check_random_in(0, 9) == 0) p[i] = NAN;
            scales[i] = fabsf(check_float(CHECK_NORMAL));
        }
        const int64_t n_heavy = t->weights_int8(p, scales, n, factor, out, heavy);
        check_that(n_heavy == check_reference()->weights_int8(p, scales, n, factor, want, expected), "%d heavy weights",
                   (int)n_heavy);
        check_same_bytes(out, want, (size_t)n * 2, "weights");
        check_same_bytes(heavy, expected, sizeof(*heavy) * (size_t)n_heavy, "heavy weights");
        for (int64_t i = 0, at = 0; i < n; i++) {
            const bool is_heavy = at < n_heavy && heavy[at].index == i;
            const float product = p[i] * scales[i] * factor;
            const double weight = product < 0x1p31f ? (double)product : 0, got = is_heavy ? heavy[at].weight : out[i];
            at += is_heavy;
            check_that(is_heavy == (got > 32767), "weight %d", (int)i);
            check_near(got, weight, 0.5, "a weight", i);
        }
        check_release(p);
        check_release(scales);
        check_release(out);
        check_release(want);
        check_release(heavy);
        check_release(expected);
    }
}

/* exp differs between arithmetics, not between levels above plain C; its sum is exact, and equal for any division of
 * the list. */
static void check_exp(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        const int64_t n = check_random_in(1, 400), cut = check_random_in(0, n);
        const size_t bytes = (size_t)n * 4;
        float *x = check_alloc(bytes, offset(4)), *y = check_alloc(bytes, 0), *original = check_alloc(bytes, 0),
              *lowest = check_alloc(bytes, 0);
        for (int64_t i = 0; i < n; i++)
            x[i] = round % 4 == 0 ? 1000 * check_float(CHECK_NORMAL) : check_float(CHECK_NORMAL);
        if (round % 5 == 0) x[check_random_in(0, n - 1)] = -INFINITY;
        if (round % 6 == 0 && n > 1) x[check_random_in(1, n - 1)] = NAN;
        memcpy(y, x, bytes);
        memcpy(original, x, bytes);
        const float max = t->highest(x, n), expected = check_reference()->highest(x, n);
        check_same_bytes(&max, &expected, sizeof max, "the largest score");
        check_that(t->highest(x, 0) == -INFINITY, "the largest of none");
        const int64_t all = t->exp_int8(x, n, max),
                      parts = t->exp_int8(y, cut, max) + t->exp_int8(y + cut, n - cut, max);
        check_that(all == parts, "a sum of %lld, in two parts %lld", (long long)all, (long long)parts);
        check_same_bytes(x, y, bytes, "exponentials");
        if (t->side > 1 && check_lowest_level()) {
            memcpy(lowest, original, bytes);
            check_that(check_lowest_level()->exp_int8(lowest, n, max) == all, "the lowest level has another sum");
            check_same_bytes(x, lowest, bytes, "exponentials of the lowest level");
        }
        int64_t sum = 0;
        for (int64_t i = 0; i < n; i++) sum += isnan(x[i]) ? 0 : lrint((double)x[i] * (double)KERNEL_INT8_ONE);
        check_that(all == sum, "a sum of %lld, not %lld", (long long)all, (long long)sum);
        for (int64_t i = 0; i < n; i++) {
            const double e = exp((double)original[i] - (double)max);
            if (!isnan(original[i])) check_near(x[i], e, 4e-6 * e + 1e-37, "an exponential", i);
        }
        check_release(x);
        check_release(y);
        check_release(original);
        check_release(lowest);
    }
}

/* The largest weights of a list keep the sums in 32 bits, and few of them are heavy. */
static void check_bounds(const kernel_table *t, int arg) {
    (void)t;
    (void)arg;
    for (int64_t n = 1; n <= KERNEL_INT8_MAX_SLOTS; n = n * 3 / 2 + 1) {
        const int64_t most = (INT64_C(1) << kernel_int8_weight_bits(n)) + n / 2 + 2;
        check_that(most * 127 <= INT32_MAX, "%d slots: weights may add up to %d", (int)n, (int)most);
        check_that(most / 32768 <= kernel_int8_max_heavy(n), "%d slots: %d heavy weights", (int)n, (int)(most / 32768));
    }
}

static void check_values(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 120; round++) {
        const int64_t dim = random_dim(round), n = check_random_in(1, MOST_QUERIES),
                      p_stride = SLOTS + check_random_in(0, 9);
        const int64_t stride = dim + check_random_in(0, 9);
        uint8_t *v = random_head(dim);
        int16_t *p = random_ints(n * p_stride, 0, 32767, round);
        const size_t bytes = (size_t)(n * stride) * 4;
        int32_t *acc = check_alloc(bytes, offset(4)), *want = check_alloc(bytes, 0);
        if (round % 3 == 0) memset(v, round % 2 ? 127 : -127, (size_t)(dim * SLOTS)); /* the largest sums */
        for (int64_t q = 0; q < n; q++)                                               /* slots without weight */
            if (check_random_in(0, 2) == 0) memset(p + q * p_stride, 0, SLOTS * sizeof(*p));
        memset(acc, 0, bytes);
        memset(want, 0, bytes);
        const int slot_alone = (int)check_random_in(0, SLOTS - 1);
        const int32_t heavy = (int32_t)check_random_in(32768, 1 << 22);
        for (int block = 0; block < 2; block++) {
            t->values_int8(v, dim, p, p_stride, n, acc, stride, any_address());
            check_reference()->values_int8(v, dim, p, p_stride, n, want, stride, any_address());
        }
        t->value_int8(v, dim, slot_alone, heavy, acc);
        check_reference()->value_int8(v, dim, slot_alone, heavy, want);
        check_same_bytes(acc, want, bytes, "sums of values");
        for (int64_t q = 0; q < n; q++)
            for (int64_t d = 0; d < dim; d += 3) {
                int64_t sum = 0;
                for (int slot = 0; slot < SLOTS; slot++)
                    sum += (int64_t)p[q * p_stride + slot] * (int8_t)v[(slot / 2 * dim + d) * 2 + slot % 2];
                sum =
                    2 * sum + (q > 0 ? 0 : (int64_t)heavy * (int8_t)v[(slot_alone / 2 * dim + d) * 2 + slot_alone % 2]);
                check_that(acc[q * stride + d] == sum, "the sum of value %d", (int)d);
            }
        check_release(v);
        check_release(p);
        check_release(acc);
        check_release(want);
    }
}

/* ---- a context divided among threads ---- */

#define MOST_BLOCKS 12
#define MOST_PARTS 8

/* A query's scores over blocks of one head, and the part that visits each block. */
typedef struct divided {
    const kernel_table *table;
    int64_t dim;
    int n_blocks, n_parts, part_of[MOST_BLOCKS];
    uint8_t *values[MOST_BLOCKS];
    float scores[MOST_BLOCKS][SLOTS], scales[MOST_BLOCKS][SLOTS];
    bool visible[MOST_BLOCKS][SLOTS];
} divided;

/* Of one part: its visible slots as a list. */
typedef struct part {
    int64_t n;
    int32_t slot[MOST_BLOCKS * SLOTS]; /* block * 64 + slot */
    float x[MOST_BLOCKS * SLOTS], scales[MOST_BLOCKS * SLOTS];
    int16_t weights[MOST_BLOCKS * SLOTS];
    kernel_heavy heavy[MOST_BLOCKS * SLOTS];
} part;

static void list_part(const divided *d, int no, part *p) {
    p->n = 0;
    for (int i = 0; i < d->n_blocks * SLOTS; i++) {
        const int block = i / SLOTS, slot = i % SLOTS;
        if (d->part_of[block] % d->n_parts != no || !d->visible[block][slot]) continue;
        p->slot[p->n] = i;
        p->x[p->n] = d->scores[block][slot];
        p->scales[p->n++] = d->scales[block][slot];
    }
}

static void add_values(const divided *d, part *p, float factor, int32_t *acc) {
    const kernel_table *t = d->table;
    int16_t rows[MOST_BLOCKS][SLOTS] = {{0}};
    const int64_t n_heavy = t->weights_int8(p->x, p->scales, p->n, factor, p->weights, p->heavy);
    for (int64_t i = 0; i < p->n; i++) rows[p->slot[i] / SLOTS][p->slot[i] % SLOTS] = p->weights[i];
    for (int block = 0; block < d->n_blocks; block++)
        t->values_int8(d->values[block], d->dim, rows[block], SLOTS, 1, acc, d->dim, NULL);
    for (int64_t i = 0; i < n_heavy; i++) {
        const int32_t at = p->slot[p->heavy[i].index];
        t->value_int8(d->values[at / SLOTS], d->dim, at % SLOTS, p->heavy[i].weight, acc);
    }
}

/* Joins after each step, as cpu_attention.c does: maxima, sums of exponentials, sums of values. */
static int64_t attend_divided(const divided *d, int32_t *acc) {
    static part parts[MOST_PARTS];
    float max = -INFINITY, widest = 0;
    int64_t total = 0, n = 0;
    for (int i = 0; i < d->n_parts; i++) {
        list_part(d, i, &parts[i]);
        max = fmaxf(max, d->table->highest(parts[i].x, parts[i].n));
        for (int64_t j = 0; j < parts[i].n; j++) widest = fmaxf(widest, parts[i].scales[j]);
        n += parts[i].n;
    }
    for (int i = 0; i < d->n_parts; i++) total += d->table->exp_int8(parts[i].x, parts[i].n, max);
    const float factor = ldexpf(KERNEL_INT8_ONE / ((float)total * widest), kernel_int8_weight_bits(n));
    for (int i = 0; i < d->n_parts; i++) {
        int32_t own[2 * 512] = {0};
        add_values(d, &parts[i], factor, own);
        for (int64_t j = 0; j < d->dim; j++) acc[j] += own[j];
    }
    return total;
}

static void random_divided(divided *d, const kernel_table *t, int round) {
    *d = (divided){.table = t, .dim = random_dim(round), .n_blocks = (int)check_random_in(1, MOST_BLOCKS)};
    for (int block = 0; block < d->n_blocks; block++) {
        d->values[block] = random_head(d->dim);
        kernel_int8_scales(d->values[block] + KERNEL_INT8_SCALES(d->dim), d->scales[block]);
        for (int slot = 0; slot < SLOTS; slot++) {
            d->scores[block][slot] = (round % 4 ? 3.0f : 30.0f) * check_float(CHECK_NORMAL);
            d->visible[block][slot] = round % 3 == 0 || check_random_in(0, 3) > 0;
        }
    }
    d->visible[0][0] = true;
}

/* Any division of the blocks among any number of threads gives the bytes of one. */
static void check_divided(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 60; round++) {
        static divided d;
        random_divided(&d, t, round);
        int32_t *acc = check_alloc((size_t)d.dim * 4, 0), *alone = check_alloc((size_t)d.dim * 4, 0);
        memset(alone, 0, (size_t)d.dim * 4);
        d.n_parts = 1;
        const int64_t expected = attend_divided(&d, alone);
        for (int again = 0; again < 4; again++) {
            d.n_parts = (int)check_random_in(2, MOST_PARTS);
            for (int block = 0; block < d.n_blocks; block++) d.part_of[block] = (int)check_random_in(0, MOST_PARTS - 1);
            memset(acc, 0, (size_t)d.dim * 4);
            const int64_t total = attend_divided(&d, acc);
            check_that(total == expected, "%d parts: a sum of %lld, not %lld", d.n_parts, (long long)total,
                       (long long)expected);
            check_same_bytes(acc, alone, (size_t)d.dim * 4, "sums of values of a divided context");
        }
        check_release(acc);
        check_release(alone);
        for (int block = 0; block < d.n_blocks; block++) check_release(d.values[block]);
    }
}

/* ---- timing: a block of a head of 64 or 128, by 1, 4 and 16 queries ---- */

typedef struct timing {
    const kernel_table *table;
    int64_t dim, n_q;
    uint8_t *head;
    int16_t *x;
    float scales[16], *out;
    int32_t *acc;
    bool values;
} timing;

static void time_call(void *arg) {
    timing *t = arg;
    if (t->values) t->table->values_int8(t->head, t->dim, t->x, SLOTS, t->n_q, t->acc, t->dim, t->head);
    else t->table->scores_int8(t->head, t->dim, t->x, t->dim, t->n_q, t->scales, t->out, SLOTS, t->head);
}

static void bench(const kernel_table *table, int values) {
    static const int64_t queries[] = {1, 4, 16};
    for (int64_t dim = 64; dim <= 128; dim *= 2) {
        for (size_t i = 0; i < BASE_ARRAY_LEN(queries); i++) {
            timing t = {.table = table, .dim = dim, .n_q = queries[i], .values = values != 0, .head = random_head(dim)};
            t.x = random_ints(16 * 128, 0, 30, 1); /* small: sums of many calls fit */
            t.out = check_alloc(16 * SLOTS * 4, 0);
            t.acc = calloc(16 * 128, sizeof(*t.acc));
            char label[32];
            snprintf(label, sizeof label, "dim %d q%d", (int)dim, (int)queries[i]);
            check_time(label, time_call, &t, (double)kernel_int8_bytes(dim), 2.0 * (double)(dim * SLOTS * queries[i]));
            check_release(t.head);
            check_release(t.x);
            check_release(t.out);
            free(t.acc);
        }
    }
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"store_key_int8", 0, check_store, NULL},
        {"store_value_int8", 1, check_store, NULL},
        {"hadamard", 0, check_hadamard, NULL},
        {"query_int8", 0, check_query, NULL},
        {"scores_int8", 0, check_scores, bench},
        {"exp_int8", 0, check_exp, NULL},
        {"weights_int8", 0, check_weights, NULL},
        {"weight_bits", 0, check_bounds, NULL},
        {"values_int8", 1, check_values, bench},
        {"divided", 0, check_divided, NULL},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
