/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_bits.c: KV of 4 and 2 bits. Encoding is compared with the definition: elements are within half a step of
 * their range, slots behind the last one matter to nothing. Unpacking and folding give the bytes of plain C at every
 * level, and the codes of single elements.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

#define SLOTS KERNEL_SLOTS

static int64_t random_dim(int round) {
    static const int64_t usual[] = {2, 8, 16, 48, 64, 80, 96, 128, 256};
    return round % 2 ? 2 * check_random_in(1, 70) : usual[round / 2 % BASE_ARRAY_LEN(usual)];
}

static size_t offset(size_t elem) { return elem * (size_t)check_random_in(0, 7); }

typedef struct block {
    int64_t dim;
    int bits, n; /* n: slots */
    bool is_key;
    float *x; /* [64][dim] */
    uint8_t *head;
} block;

static size_t head_bytes(const block *b) {
    return (size_t)(b->is_key ? kernel_bits_key_bytes(b->bits, b->dim) : kernel_bits_value_bytes(b->bits, b->dim));
}

static void encode(const block *b, void *head) {
    (b->is_key ? kernel_encode_keys : kernel_encode_values)(b->bits, b->x, b->n, b->dim, head);
}

static float decoded(const block *b, int slot, int64_t d) {
    return (b->is_key ? kernel_bits_key : kernel_bits_value)(b->head, b->bits, b->dim, slot, d);
}

static block random_block(int round, bool is_key) {
    block b = {.dim = random_dim(round), .bits = check_random_in(0, 1) ? 4 : 2, .is_key = is_key};
    b.n = round % 3 ? (int)check_random_in(1, SLOTS) : SLOTS;
    b.x = check_alloc((size_t)(SLOTS * b.dim) * 4, offset(4));
    b.head = check_alloc(head_bytes(&b), offset(1));
    const check_kind kind = round % 5 ? CHECK_NORMAL : (check_kind)(round / 5 % CHECK_KINDS);
    for (int64_t i = 0; i < SLOTS * b.dim; i++) b.x[i] = fmaxf(-6e4f, fminf(6e4f, check_float(kind)));
    for (int64_t d = 0; d < b.dim && round % 4 == 0; d += 5) /* channels far from zero */
        for (int j = 0; j < SLOTS; j++) b.x[j * b.dim + d] += (float)(100 * (d % 3) - 100);
    encode(&b, b.head);
    return b;
}

static void release(block *b) {
    check_release(b->x);
    check_release(b->head);
}

/* ---- encoding ---- */

/* The range that an element is encoded in: of its dimension over all slots, or of its slot and zero. */
static void find_range(const block *b, int slot, int64_t d, double *least, double *most) {
    *least = *most = b->is_key ? (double)b->x[d] : 0;
    for (int64_t i = 0; i < (b->is_key ? b->n : b->dim); i++) {
        const double x = (double)(b->is_key ? b->x[i * b->dim + d] : b->x[slot * b->dim + i]);
        *least = fmin(*least, x);
        *most = fmax(*most, x);
    }
}

static void check_elements(const block *b) {
    for (int j = 0; j < b->n; j++)
        for (int64_t d = 0; d < b->dim; d++) {
            double least, most;
            find_range(b, j, d, &least, &most);
            /* half a step of a range that f16 or bf16 enlarged, from an end that f16 or 1/8 of a step moved */
            const double step = (most - least) * (b->is_key ? 1.001 : 1.008) / ((1 << b->bits) - 1) +
                                fabs(least) * (b->is_key ? 0x1p-10 : 0);
            check_near(decoded(b, j, d), b->x[j * b->dim + d], (b->is_key ? 0.502 : 0.57) * step + 0x1p-23,
                       "an element", d);
            const float again = b->is_key ? kernel_bits_round_key(b->head, b->bits, b->dim, d, b->x[j * b->dim + d])
                                          : kernel_bits_round_value(b->head, b->bits, b->dim, j, b->x[j * b->dim + d]);
            check_that(again == decoded(b, j, d), "an element encoded alone: %g, not %g", (double)again,
                       (double)decoded(b, j, d));
        }
}

/* arg: 1: values */
static void check_encode(const kernel_table *t, int arg) {
    (void)t;
    for (int round = 0; round < 150; round++) {
        block b = random_block(round, !arg);
        uint8_t *again = check_alloc(head_bytes(&b), offset(1));
        check_elements(&b);
        for (int64_t i = b.n * b.dim; i < SLOTS * b.dim; i++) b.x[i] = NAN; /* slots that are not there */
        memset(again, 0xff, head_bytes(&b));
        encode(&b, again);
        check_same_bytes(again, b.head, head_bytes(&b), "an encoded block");
        for (int64_t i = 0; i < b.n * b.dim; i++) /* what no model should have */
            if (check_random_in(0, 9) == 0) b.x[i] = round % 3 == 0 ? NAN : round % 3 == 1 ? INFINITY
                                                                                           : -INFINITY;
        encode(&b, b.head);
        for (int j = 0; j < SLOTS; j++)
            check_that(isfinite(decoded(&b, j, 0)), "an element of slot %d is not finite", j);
        check_release(again);
        release(&b);
    }
}

/* ---- unpacking ---- */

/* An element by its code: scales and least elements are those of the codes 1 and 0. */
static float decoded_key(const block *b, float code, int64_t d) {
    uint16_t ranges[2];
    const uint8_t *at = b->head + kernel_bits_key_bytes(b->bits, b->dim) - 4 * b->dim;
    memcpy(&ranges[0], at + 2 * d, sizeof *ranges);
    memcpy(&ranges[1], at + 2 * (b->dim + d), sizeof *ranges);
    return kernel_f16_to_f32(ranges[0]) * code + kernel_f16_to_f32(ranges[1]);
}

static void check_unpack(const kernel_table *t, int arg) {
    for (int round = 0; round < 150; round++) {
        block b = random_block(round, !arg);
        const size_t bytes = (size_t)kernel_int8_bytes(b.dim);
        uint8_t *head = check_alloc(bytes, offset(2)), *want = check_alloc(bytes, 0);
        memset(head, 0xff, bytes);
        (arg ? t->unpack_values : t->unpack_keys)(b.head, b.bits, b.dim, head);
        (arg ? check_reference()->unpack_values : check_reference()->unpack_keys)(b.head, b.bits, b.dim, want);
        check_same_bytes(head, want, bytes, "unpacked codes");
        for (int j = 0; j < SLOTS; j++)
            for (int64_t d = 0; d < b.dim; d++) {
                const float got =
                    arg ? kernel_int8_value(head, b.dim, j, d) : decoded_key(&b, kernel_int8_key(head, b.dim, j, d), d);
                check_that(got == decoded(&b, j, d), "element %d of slot %d: %g, not %g", (int)d, j, (double)got,
                           (double)decoded(&b, j, d));
            }
        check_release(head);
        check_release(want);
        release(&b);
    }
}

/* A score by way of the folded query is that of the query and the elements. */
static void check_fold(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        block b = random_block(2 * round + 1, true); /* of ordinary elements */
        const size_t bytes = (size_t)b.dim * 2;
        float *q = check_alloc(2 * bytes, offset(4));
        int16_t *ints = check_alloc(bytes, offset(2)), *out = check_alloc(bytes, offset(2)),
                *want = check_alloc(bytes, 0);
        kernel_ranges ranges = {.scales = check_alloc(bytes, offset(2)), .least = check_alloc(2 * bytes, offset(4))};
        for (int64_t d = 0; d < b.dim; d++) q[d] = check_float(CHECK_NORMAL);
        const float scale = t->query_int8(q, b.dim, ints);
        t->key_ranges(b.head, b.bits, b.dim, &ranges);
        kernel_ranges other = {.scales = check_alloc(bytes, 0), .least = check_alloc(2 * bytes, 0)};
        check_reference()->key_ranges(b.head, b.bits, b.dim, &other);
        check_same_bytes(ranges.scales, other.scales, bytes, "scales");
        check_same_bytes(ranges.least, other.least, 2 * bytes, "least elements");
        check_same_bytes(&ranges.unit, &other.unit, sizeof other.unit, "the unit of scales");
        check_release(other.scales);
        check_release(other.least);
        const float got = t->fold_query(q, ints, &ranges, b.dim, out),
                    expected = check_reference()->fold_query(q, ints, &ranges, b.dim, want);
        check_same_bytes(&got, &expected, sizeof got, "the sum of a folded query");
        check_same_bytes(out, want, bytes, "a folded query");
        double score = 0, folded = 0, added = 0, most = 0, widest = 0;
        for (int64_t d = 0; d < b.dim; d++) {
            const double x = (double)decoded(&b, 3, d), least = (double)ranges.least[d];
            score += (double)q[d] * x;
            folded += (double)scale * (double)ranges.unit * out[d] * (x - least) /
                      fmax(1e-30, (double)ranges.unit * ranges.scales[d] / 32768);
            added += (double)q[d] * least;
            most += fabs((double)q[d] * x) + fabs((double)q[d] * least);
            widest = fmax(widest, fabs((double)q[d]));
        }
        check_near(got, added, most * (double)b.dim * CHECK_UNIT, "the sum of a folded query", b.dim);
        /* one unit of a folded element, times the largest code */
        const double unit = (double)scale * (double)ranges.unit * 16 * (double)b.dim;
        check_near((float)(folded + added), score,
                   unit + widest * (double)ranges.unit * 1e-3 * (double)b.dim + 1e-5 * most, "a score", b.dim);
        check_release(q);
        check_release(ints);
        check_release(out);
        check_release(want);
        check_release(ranges.scales);
        check_release(ranges.least);
        release(&b);
    }
}

/* ---- timing ---- */

typedef struct timing {
    const kernel_table *table;
    const block *b;
    uint8_t *out;
} timing;

static void time_call(void *arg) {
    const timing *t = arg;
    (t->b->is_key ? t->table->unpack_keys : t->table->unpack_values)(t->b->head, t->b->bits, t->b->dim, t->out);
}

static void bench(const kernel_table *table, int arg) {
    for (int bits = 4; bits >= 2; bits -= 2) {
        block b = {.dim = 64, .bits = bits, .is_key = !arg, .n = SLOTS, .x = check_alloc(SLOTS * 64 * 4, 0)};
        b.head = check_alloc(head_bytes(&b), 0);
        memset(b.x, 0, SLOTS * 64 * 4);
        encode(&b, b.head);
        timing t = {table, &b, check_alloc((size_t)kernel_int8_bytes(64), 0)};
        char label[32];
        snprintf(label, sizeof label, "dim 64, %d bits", bits);
        check_time(label, time_call, &t, (double)head_bytes(&b), 64.0 * SLOTS);
        check_release(t.out);
        release(&b);
    }
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"encode_keys", 0, check_encode, NULL},
        {"encode_values", 1, check_encode, NULL},
        {"unpack_keys", 0, check_unpack, bench},
        {"unpack_values", 1, check_unpack, bench},
        {"fold_query", 0, check_fold, NULL},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
