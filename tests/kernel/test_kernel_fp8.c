/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_fp8.c: KV in fp8 (e4m3) against its definition: the number of each of the 256 codes, the nearest of them for
 * floats of all kinds, and unpacking to f16.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

#define SLOTS KERNEL_SLOTS

static size_t offset(size_t elem) { return elem * (size_t)check_random_in(0, 7); }

/* Sign, 4 bits of exponent (bias 7), 3 bits of fraction; the code with all bits is no number. */
static double number_of(int code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double magnitude = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
    if ((code & 0x7f) == 0x7f) return NAN;
    return code & 0x80 ? -magnitude : magnitude;
}

/* The nearest number, the even code of two; numbers above 448 become it. */
static int code_of(float x) {
    const int sign = signbit(x) ? 0x80 : 0;
    const double magnitude = fabs((double)x);
    int best = 0;
    if (isnan(x)) return sign | 0x7f;
    if (magnitude >= 448) return sign | 0x7e;
    for (int code = 1; code < 0x7f; code++) {
        const double distance = fabs(number_of(code) - magnitude), least = fabs(number_of(best) - magnitude);
        if (distance < least || (distance == least && code % 2 == 0)) best = code;
    }
    return sign | best;
}

static void check_code(float x) {
    const int got = kernel_f32_to_fp8(x), want = code_of(x);
    check_that(got == want, "the code of %.9g: %d, not %d", (double)x, got, want);
}

static void check_codes(const kernel_table *t, int arg) {
    (void)t;
    (void)arg;
    for (int code = 0; code < 256; code++) {
        const float x = kernel_fp8_to_f32((uint8_t)code);
        const double want = number_of(code);
        check_that(isnan(want) ? isnan(x) : (double)x == want, "the number of code %d: %g, not %g", code, (double)x, want);
        check_that(!signbit(x) == !(code & 0x80), "the sign of code %d", code);
        check_code(x);
        if ((code & 0x7f) >= 0x7e) continue;
        const float middle = (float)((want + number_of(code + 1)) / 2);
        check_code(middle);
        check_code(nextafterf(middle, INFINITY));
        check_code(nextafterf(middle, -INFINITY));
    }
    static const float others[] = {448, 449, 464, 480, 1e30f, INFINITY, -INFINITY, NAN, 0x1p-10f, 0x1p-149f, -0x1p-126f, 0.0f, -0.0f};
    for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++) check_code(others[i]);
    for (int i = 0; i < 20000; i++) {
        const uint32_t bits = (uint32_t)check_random_in(0, INT32_MAX) << 1 | (uint32_t)(i % 2);
        float x;
        memcpy(&x, &bits, sizeof x);
        check_code(x);
        check_code(check_float(CHECK_NORMAL) * ldexpf(1, i % 20 - 10));
    }
}

/* arg: 1: values */
static void check_store(const kernel_table *t, int arg) {
    for (int round = 0; round < 60; round++) {
        const int64_t dim = check_random_in(1, 140), n = SLOTS * dim;
        const int slot = (int)check_random_in(0, SLOTS - 1);
        float *x = check_alloc((size_t)dim * 4, offset(4));
        uint8_t *head = check_alloc((size_t)n, offset(1));
        memset(head, 0xaa, (size_t)n);
        for (int64_t d = 0; d < dim; d++) x[d] = check_float((check_kind)(round % CHECK_KINDS));
        (arg ? t->store_value_fp8 : t->store_key_fp8)(x, dim, head, slot);
        for (int64_t i = 0; i < n; i++) {
            const int64_t d = arg ? i % dim : i / SLOTS, at = arg ? i / dim : i % SLOTS;
            const int want = at == slot ? code_of(x[d]) : 0xaa;
            check_that(head[i] == want, "dimension %d of slot %d: %d, not %d", (int)d, (int)at, head[i], want);
        }
        check_release(x);
        check_release(head);
    }
}

static void check_unpack(const kernel_table *t, int arg) {
    (void)arg;
    for (int round = 0; round < 40; round++) {
        const int64_t n = SLOTS * check_random_in(1, 140);
        uint8_t *codes = check_alloc((size_t)n, offset(1));
        uint16_t *halves = check_alloc((size_t)n * 2, offset(2));
        for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)(round == 0 ? i : check_random_in(0, 255));
        t->unpack_fp8(codes, n, halves, codes);
        uint16_t *plain = check_alloc((size_t)n * 2, 0);
        check_reference()->unpack_fp8(codes, n, plain, codes);
        check_same_bytes(halves, plain, (size_t)n * 2, "fp8 as f16");
        check_release(plain);
        for (int64_t i = 0; i < n; i++) {
            const double want = number_of(codes[i]);
            const float got = kernel_f16_to_f32(halves[i]);
            check_that(isnan(want) ? isnan(got) : (double)got == want && !signbit(got) == !signbit(want), "code %d as f16: %g, not %g",
                       codes[i], (double)got, want);
        }
        check_release(codes);
        check_release(halves);
    }
}

/* ---- timing ---- */

typedef struct timing {
    const kernel_table *table;
    uint8_t *codes;
    uint16_t *halves;
} timing;

static void time_call(void *arg) {
    const timing *t = arg;
    t->table->unpack_fp8(t->codes, 64 * SLOTS, t->halves, t->codes);
}

static void bench(const kernel_table *table, int arg) {
    timing t = {table, check_alloc(64 * SLOTS, 0), check_alloc(2 * 64 * SLOTS, 0)};
    (void)arg;
    for (int i = 0; i < 64 * SLOTS; i++) t.codes[i] = (uint8_t)i;
    check_time("dim 64", time_call, &t, 64.0 * SLOTS, 64.0 * SLOTS);
    check_release(t.codes);
    check_release(t.halves);
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"codes", 0, check_codes, NULL},
        {"store_key_fp8", 0, check_store, NULL},
        {"store_value_fp8", 1, check_store, NULL},
        {"unpack_fp8", 0, check_unpack, bench},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
