/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_formats.c: decoding of every format, the half conversions, and quantising.
 *
 * Dequantising is compared with the second decoder of support/kernel_blocks.h, and with a few blocks that were
 * decoded by hand.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_blocks.h"

/* ---- dequantising ------------------------------------------------------------------------------------------------ */

/* A scale times its factor is exact; the product with q and the minimum's subtraction round: 2 u (|w| + |min|), and
 * 2^-149 below the normal range. */
static void check_dequantize(const kernel_table *table, int arg) {
    const kernel_type t = (kernel_type)arg;
    const int64_t block = kernel_type_block(t), bytes = kernel_type_bytes(t);
    (void)table;
    for (int round = 0; round < 400; round++) {
        const int64_t n_blocks = check_random_in(1, 3);
        uint8_t *w = check_alloc((size_t)(n_blocks * bytes), (size_t)check_random_in(0, 3));
        float *f = check_alloc((size_t)(n_blocks * block) * 4, 4 * (size_t)check_random_in(0, 3));
        kernel_blocks_random(t, w, n_blocks, (check_kind)(round % CHECK_KINDS), round % 7 == 6);
        kernel_dequantize(t, w, f, n_blocks * block);
        for (int64_t i = 0; i < n_blocks * block; i++) {
            const uint8_t *b = w + i / block * bytes;
            const double want = kernel_blocks_value(t, b, (int)(i % block)),
                         min = kernel_blocks_min(t, b, (int)(i % block));
            check_near(f[i], want, 4 * CHECK_UNIT * (fabs(want) + fabs(min)) + 0x1p-149, kernel_type_name(t), i);
        }
        check_release(w);
        check_release(f);
    }
}

typedef struct known {
    int element;
    float value;
} known;

static void check_known(kernel_type t, const uint8_t *block, const known *values, size_t n) {
    float f[256];
    kernel_dequantize(t, block, f, kernel_type_block(t));
    for (size_t i = 0; i < n; i++) check_near(f[values[i].element], values[i].value, 0, "by hand", values[i].element);
}

/* d = 0x3800 = 0.5: 1, -1, 127, -128 become 0.5, -0.5, 63.5, -64.
 * The same scale in Q4_0: byte 0xf0 gives element 0 -> (0 - 8) / 2 and element 16 -> (15 - 8) / 2. */
static void check_blocks_by_hand(void) {
    uint8_t q8_0[34] = {0x00, 0x38, 0x01, 0xff, 0x7f, 0x80};
    q8_0[33] = 3;
    check_known(KERNEL_Q8_0, q8_0, (known[]){{0, 0.5f}, {1, -0.5f}, {2, 63.5f}, {3, -64.0f}, {4, 0}, {31, 1.5f}}, 6);
    uint8_t q4_0[18] = {0x00, 0x38, 0xf0, 0x19};
    q4_0[17] = 0x8a;
    check_known(KERNEL_Q4_0, q4_0,
                (known[]){{0, -4.0f}, {16, 3.5f}, {1, 0.5f}, {17, -3.5f}, {15, 1.0f}, {31, 0.0f}, {2, -4.0f}}, 7);
}

/* Q4_K, d = 1 (0x3c00), dmin = 0.25 (0x3400). Byte 4 = 0xc1: scale 0 is 1 and 3 is the upper part of scale 4. Byte 8
 * = 0x87: minimum 0 is 7, and 2 is the upper part of minimum 4. Byte 12 = 0x52: scale 4 = 2 + 16*3 = 50, minimum 4 =
 * 5 + 16*2 = 37. Byte 16 = 0xa3: element 0 is q 3, element 32 is q 10 with scale 1 = byte 5 = 2 and minimum 1 = 0.
 * Byte 80 = 0x0f: element 128 is q 15. */
static void check_q4_k_by_hand(void) {
    uint8_t b[144] = {0x00, 0x3c, 0x00, 0x34, 0xc1, 0x02, 0, 0, 0x87, 0, 0, 0, 0x52, 0, 0, 0, 0xa3};
    b[80] = 0x0f;
    check_known(KERNEL_Q4_K, b,
                (known[]){{0, 3.0f - 1.75f}, {1, -1.75f}, {32, 20.0f}, {33, 0}, {128, 750.0f - 9.25f}, {129, -9.25f}},
                6);
}

/* Q6_K, d = 2 (0x4000). Scales 0 = 1, 2 = -1, 4 = 3, 6 = -128, 8 = 5. Byte 0 = 0x9c, byte 32 = 0x51, byte 128 (upper
 * bits 3, 2, 1, 0 for groups 0..3) = 0x1b: element 0 is 12 + 48 - 32 = 28, element 32 is 1 + 32 - 32 = 1, element 64 is
 * 9 + 16 - 32 = -7, element 96 is 5 - 32 = -27. Element 128 has all bits zero: -32. */
static void check_q6_k_by_hand(void) {
    uint8_t b[210] = {0x9c};
    b[32] = 0x51, b[128] = 0x1b;
    b[192] = 1, b[194] = 0xff, b[196] = 3, b[198] = 0x80, b[200] = 5, b[209] = 0x40;
    check_known(KERNEL_Q6_K, b,
                (known[]){{0, 56.0f}, {1, -64.0f}, {32, -2.0f}, {64, -42.0f}, {96, 6912.0f}, {128, -320.0f}, {16, 0}},
                7);
}

/* d = 0.5, m = 3 (0x4200): element 0 = 0.5 * 2 + 3, element 16 = 0.5 * 15 + 3. */
static void check_q4_1_by_hand(void) {
    uint8_t b[20] = {0x00, 0x38, 0x00, 0x42, 0xf2};
    b[19] = 0x10;
    check_known(KERNEL_Q4_1, b, (known[]){{0, 4.0f}, {16, 10.5f}, {1, 3.0f}, {31, 3.5f}, {15, 3.0f}}, 5);
}

/* Q5_0, d = 0.5. Fifth bits 0x80010001: elements 0, 16 and 31. Byte 6 = 0x43: element 0 is 3 + 16 - 16, element 16 is
 * 4; byte 7 = 0x21: element 1 is 1 - 16, element 17 is 2 - 16. Element 31 has only its fifth bit: 0.
 * Q5_1, d = 0.5, m = -1 (0xbc00), the same integers without the offset. */
static void check_q5_by_hand(void) {
    const uint8_t q5_0[22] = {0x00, 0x38, 0x01, 0x00, 0x01, 0x80, 0x43, 0x21};
    check_known(KERNEL_Q5_0, q5_0,
                (known[]){{0, 1.5f}, {16, 2.0f}, {1, -7.5f}, {17, -7.0f}, {31, 0.0f}, {2, -8.0f}, {30, -8.0f}}, 7);
    const uint8_t q5_1[24] = {0x00, 0x38, 0x00, 0xbc, 0x01, 0x00, 0x01, 0x80, 0x43, 0x21};
    check_known(KERNEL_Q5_1, q5_1,
                (known[]){{0, 8.5f}, {16, 9.0f}, {1, -0.5f}, {17, 0.0f}, {31, 7.0f}, {2, -1.0f}, {30, -1.0f}}, 7);
}

/* IQ4_NL, d = 2: the ends and the middle of the table.
 * MXFP4: e = 128 doubles E2M1's values; codes 7 = 6, 15 = -6, 1 = 0.5, 9 = -0.5, 2 = 1, 11 = -1.5; e = 0 is 2^-127,
 * half of that is 2^-128; e = 255, which is NaN in E8M0, continues the sequence: 0.5 * 2^128 = 2^127. */
static void check_tables_by_hand(void) {
    const uint8_t iq4_nl[18] = {0x00, 0x40, 0xf0, 0x87};
    check_known(KERNEL_IQ4_NL, iq4_nl, (known[]){{0, -254.0f}, {16, 226.0f}, {1, -20.0f}, {17, 2.0f}, {2, -254.0f}}, 5);
    uint8_t mxfp4[17] = {128, 0xf7, 0x91, 0xb2};
    check_known(KERNEL_MXFP4, mxfp4,
                (known[]){{0, 12.0f}, {16, -12.0f}, {1, 1.0f}, {17, -1.0f}, {2, 2.0f}, {18, -3.0f}, {3, 0.0f}}, 7);
    mxfp4[0] = 0;
    check_known(KERNEL_MXFP4, mxfp4, (known[]){{0, 6 * 0x1p-127f}, {1, 0x1p-128f}, {17, -0x1p-128f}}, 3);
    mxfp4[0] = 255;
    check_known(KERNEL_MXFP4, mxfp4, (known[]){{1, 0x1p127f}, {17, -0x1p127f}, {0, (float)HUGE_VAL}}, 2);
}

/* Q2_K, d = 0.5, dmin = 0.25 (bytes 80..83). Byte 0 = 0x42: scale 2, minimum 4; byte 2 = 0x0f: scale 15 of elements
 * 32..47; byte 9 = 0xf1: scale 1, minimum 15 of elements 144..159. Byte 16 = 0xe4: elements 0, 32, 64, 96 are 0, 1,
 * 2, 3; byte 17 = 0x03: element 1 is 3. Byte 64 = 0x02: element 144 (16 of the second half) is 2. */
static void check_q2_k_by_hand(void) {
    uint8_t b[84] = {0x42, 0x00, 0x0f};
    b[9] = 0xf1, b[16] = 0xe4, b[17] = 0x03, b[64] = 0x02, b[81] = 0x38, b[83] = 0x34;
    check_known(
        KERNEL_Q2_K, b,
        (known[]){{0, -1.0f}, {1, 2.0f}, {2, -1.0f}, {16, 0.0f}, {32, 7.5f}, {144, -2.75f}, {145, -3.75f}, {64, 0.0f}},
        8);
}

/* Q3_K, d = 1. Scale 0 has low bits 3 (byte 96 = 0x53) and upper bits 2 (byte 104 = 0x36): 35 - 32 = 3. Scale 8 is 5
 * + 16 * 3 - 32 = 21; scale 4 has low bits 0 and upper 1: 16 - 32 = -16; scale 12 has upper bits 0: -32. Byte 0 =
 * 0x11: elements 0 and 128 have their high bit. Byte 32 = 0x06: element 0 is 2 + 4 - 4 = 2, element 32 is 1 - 4 = -3
 * with scale 2 (0 - 32); byte 64 = 0x03: element 128 is 3 + 4 - 4 = 3. Element 64 is -4 with scale 4, element 192 -4
 * with scale 12. */
static void check_q3_k_by_hand(void) {
    uint8_t b[110] = {0x11};
    b[32] = 0x06, b[64] = 0x03, b[96] = 0x53, b[104] = 0x36, b[109] = 0x3c;
    check_known(KERNEL_Q3_K, b,
                (known[]){{0, 6.0f}, {1, -12.0f}, {32, 96.0f}, {128, 63.0f}, {129, -84.0f}, {64, 64.0f}, {192, 128.0f}},
                7);
}

/* Q5_K, with the scales of Q4_K above. High bits in byte 16 = 0x11: pieces 0 and 4. Byte 48 = 0xa3: element 0 is 19,
 * element 32 is 10; byte 112 = 0x0f: element 128 is 31. Byte 17 = 0x02: element 33 is 16. */
static void check_q5_k_by_hand(void) {
    uint8_t b[176] = {0x00, 0x3c, 0x00, 0x34, 0xc1, 0x02, 0, 0, 0x87, 0, 0, 0, 0x52, 0, 0, 0, 0x11, 0x02};
    b[48] = 0xa3, b[112] = 0x0f;
    check_known(
        KERNEL_Q5_K, b,
        (known[]){{0, 19.0f - 1.75f}, {1, -1.75f}, {32, 20.0f}, {33, 32.0f}, {128, 1550.0f - 9.25f}, {129, -9.25f}}, 6);
}

/* IQ4_XS, d = 1. Upper bits 0x0d in byte 2: scale 0 has 1, scale 1 has 3; 0x80 in byte 3: scale 7 has 2. Low bits
 * 0x52 in byte 4: scale 0 = 2 + 16 - 32 = -14, scale 1 = 5 + 48 - 32 = 21; byte 7 = 0x30: scale 7 = 3 + 32 - 32 = 3;
 * scale 2 = -32. Byte 8 = 0x90: element 0 is -127, element 16 is 13; byte 24 = 0x08: element 32 is 1, element 48
 * -127; byte 135 = 0xf7: element 239 is -10, element 255 is 113. */
static void check_iq4_xs_by_hand(void) {
    uint8_t b[136] = {0x00, 0x3c, 0x0d, 0x80, 0x52, 0x00, 0x00, 0x30, 0x90};
    b[24] = 0x08, b[135] = 0xf7;
    check_known(
        KERNEL_IQ4_XS, b,
        (known[]){
            {0, 1778.0f}, {16, -182.0f}, {32, 21.0f}, {48, -2667.0f}, {64, 4064.0f}, {239, -30.0f}, {255, 339.0f}},
        7);
}

static void check_hand_blocks(const kernel_table *t, int arg) {
    (void)t, (void)arg;
    check_blocks_by_hand();
    check_q4_1_by_hand();
    check_q5_by_hand();
    check_tables_by_hand();
    check_q2_k_by_hand();
    check_q3_k_by_hand();
    check_q4_k_by_hand();
    check_q5_k_by_hand();
    check_iq4_xs_by_hand();
    check_q6_k_by_hand();
}

/* ---- quantising -------------------------------------------------------------------------------------------------- */

/* Widens a range by n elements. */
static void widen(const float *x, int n, double *low, double *high) {
    for (int i = 0; i < n; i++) {
        if (x[i] < *low) *low = x[i];
        if (x[i] > *high) *high = x[i];
    }
}

/* The range of n elements and 0; returns the largest magnitude. */
static double range(const float *x, int n, double *low, double *high) {
    *low = *high = 0;
    widen(x, n, low, high);
    return fmax(-*low, *high);
}

/* Error bound of a value. f16 scales are off by 2^-11 of themselves, so by 2^-11 of the range at most. Q8_0: half a
 * step of max / 127. Q4_0, Q5_0: a step, since the upper end is clipped by one. IQ4_NL: likewise 127 is clipped to
 * 113, and gaps are at most 23. MXFP4: the largest, up to 8 scales, is clipped to 6; a scale is at most a quarter of
 * max. */
static double bound_32(kernel_type t, const float *block) {
    double low, high;
    const double max = range(block, 32, &low, &high);
    low = high = block[0]; /* Q4_1 and Q5_1 need not reach 0 */
    widen(block, 32, &low, &high);
    const double halves = (max + high - low) * 0x1p-10;
    switch (t) {
    case KERNEL_Q8_0: return 0.5 * max / 127 + halves;
    case KERNEL_Q4_0: return max / 8 + halves;
    case KERNEL_Q5_0: return max / 16 + halves;
    case KERNEL_Q4_1: return 0.5 * (high - low) / 15 + halves;
    case KERNEL_Q5_1: return 0.5 * (high - low) / 31 + halves;
    case KERNEL_IQ4_NL: return max * 14 / 127 + halves;
    default: return max / 2;
    }
}

/* IQ4_XS is IQ4_NL with steps in units of D = largest step / 31: 127 steps away a value moves by 127 D / 2. */
static double bound_iq4_xs(const float *block, int i) {
    double max = 0, low, high;
    for (int j = 0; j < 8; j++) max = fmax(max, range(block + 32 * j, 32, &low, &high));
    return range(block + i / 32 * 32, 32, &low, &high) * 14 / 127 + max / 31 / 2 + max * 0x1p-10;
}

static double bound_of(kernel_type t, const float *block, int i) {
    switch (t) {
    case KERNEL_F32: return 0;
    case KERNEL_F16: return fabs((double)block[i]) * 0x1p-11 + 0x1p-25;
    case KERNEL_BF16: return fabs((double)block[i]) * 0x1p-8;
    case KERNEL_IQ4_XS: return bound_iq4_xs(block, i);
    default: return bound_32(t, block);
    }
}

/* Formats with a search for scales: parts of a block, the integers low to high, the largest code of a scale. */
typedef struct searched {
    int parts, low, high, codes;
} searched;

/* No parts: not one of these formats. */
static searched search_of(kernel_type t) {
    switch (t) {
    case KERNEL_Q2_K: return (searched){16, 0, 3, 15};
    case KERNEL_Q3_K: return (searched){16, -4, 3, 31};
    case KERNEL_Q4_K: return (searched){8, 0, 15, 63};
    case KERNEL_Q5_K: return (searched){8, 0, 31, 63};
    case KERNEL_Q6_K: return (searched){16, -32, 31, 127};
    default: return (searched){0, 0, 0, 0};
    }
}

/* The squared error of plain rounding of a part, between its extremes, with unrounded scale and minimum. */
static double plain_error(const searched *s, const float *x, double *step, double *min) {
    double low, high, sum = 0;
    range(x, 256 / s->parts, &low, &high);
    *step = s->low == 0 ? (high - low) / s->high : (high > -low ? high : low) / s->low;
    *min = s->low == 0 ? -low : 0;
    for (int i = 0; i < 256 / s->parts && *step != 0; i++) {
        const double q = fmax(s->low, fmin(s->high, rint(((double)x[i] + *min) / *step)));
        sum += (q * *step - *min - x[i]) * (q * *step - *min - x[i]);
    }
    return sum;
}

/* They guarantee a small squared error, not the smallest error of every element. The root mean square of a part is at
 * most that of plain rounding, where the search starts, plus the effect of rounding scales and minima: a scale is a
 * multiple of D = largest / codes, and the far end is max(|low|, high) steps away. Searched scales and minima may be
 * longer than plain ones, by less than 3 : 2 (an end one integer outside, of 3). Returns the block's squared errors
 * of both. */
static void check_search(const searched *s, const float *x, const float *back, double *error, double *plain) {
    const int n = 256 / s->parts;
    double d = 0, m = 0, errors[16], step, min;
    for (int k = 0; k < s->parts; k++) {
        errors[k] = plain_error(s, x + n * k, &step, &min);
        d = fmax(d, 1.5 * fabs(step) / s->codes), m = fmax(m, 1.5 * min / s->codes);
    }
    const double reach = fmax(-s->low, s->high), halves = (reach * d + m) * s->codes * 0x1p-11;
    for (int k = 0; k < s->parts; k++) {
        double sum = 0;
        for (int i = n * k; i < n * k + n; i++) sum += ((double)back[i] - x[i]) * ((double)back[i] - x[i]);
        check_near(sqrt(sum / n), 0, sqrt(errors[k] / n) + reach * d / 2 + m / 2 + halves, "part", k);
        *error += sum, *plain += errors[k];
    }
}

static void check_elements(kernel_type t, const float *x, const float *back, int64_t n) {
    const int64_t block = kernel_type_block(t);
    for (int64_t i = 0; i < n; i++) {
        check_near(back[i], x[i], bound_of(t, x + i / block * block, (int)(i % block)), kernel_type_name(t), i);
    }
}

static void check_quantize(const kernel_table *table, int arg) {
    const kernel_type t = (kernel_type)arg;
    const int64_t block = kernel_type_block(t), n = block * 4;
    double error = 0, plain = 0;
    const searched s = search_of(t);
    (void)table;
    for (int round = 0; round < 200; round++) {
        float *x = check_alloc((size_t)n * 4, 4), *back = check_alloc((size_t)n * 4, 8);
        uint8_t *q = check_alloc((size_t)kernel_row_bytes(t, n), (size_t)check_random_in(0, 3));
        check_fill(x, n, round % 8 == 7 ? CHECK_ZERO : CHECK_NORMAL);
        for (int64_t i = 0; i < n; i++) x[i] += round % 3 ? 0.0f : 2.0f; /* one-sided blocks too */
        kernel_quantize(t, x, q, n);
        kernel_dequantize(t, q, back, n);
        if (s.parts == 0) check_elements(t, x, back, n);
        for (int64_t b = 0; s.parts && b < n / 256; b++) check_search(&s, x + 256 * b, back + 256 * b, &error, &plain);
        check_release(x);
        check_release(back);
        check_release(q);
    }
    check_that(error <= 0.95 * plain, "searched scales err by %g, plain ones by %g", error, plain);
}

/* For every input, the stored scales are finite. */
static void check_quantize_extremes(const kernel_table *table, int arg) {
    const kernel_type t = (kernel_type)arg;
    (void)table;
    for (int kind = 0; kind < CHECK_KINDS; kind++) {
        float x[512], back[512];
        uint8_t q[2048];
        check_fill(x, 512, (check_kind)kind);
        kernel_quantize(t, x, q, 512);
        kernel_dequantize(t, q, back, 512);
        for (int i = 0; i < 512; i++) check_that(!isnan(back[i]), "element %d of kind %d is no number", i, kind);
    }
}

static void check_quantizer(const kernel_table *t, int arg) {
    check_quantize(t, arg);
    check_quantize_extremes(t, arg);
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */

static double half_value(uint16_t h) {
    const uint8_t bytes[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
    return kernel_blocks_half(bytes);
}

/* Every half, converted to float and back. */
static void check_every_half(void) {
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t h = (uint16_t)i;
        const float f = kernel_f16_to_f32(h);
        const double want = half_value(h);
        if (isnan(want)) {
            check_that(isnan(f) && kernel_f32_to_f16(f) == (h | 0x200), "NaN %04x", i);
        } else {
            check_that((double)f == want && !signbit(f) == !(h >> 15), "half %04x: %.9g", i, (double)f);
            check_that(kernel_f32_to_f16(f) == h, "half %04x comes back as %04x", i, kernel_f32_to_f16(f));
        }
        const uint32_t wide = i << 16;
        const float bf16 = kernel_bf16_to_f32(h);
        check_same_bytes(&bf16, &wide, sizeof wide, "bfloat16");
    }
}

/* The nearest half by search: among the halves of f's sign, all finite ones and 2^16 in place of infinity, the nearest,
 * and of two equally near ones the even. */
static uint16_t nearest_half(float f) {
    const double x = fabs((double)f);
    uint32_t low = 0, high = 0x7c00;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (half_value((uint16_t)middle) <= x) low = middle;
        else high = middle;
    }
    const double below = half_value((uint16_t)low), above = high == 0x7c00 ? 65536.0 : half_value((uint16_t)high);
    const bool up = x - below > above - x || (x - below == above - x && high % 2 == 0);
    return (uint16_t)((up ? high : low) | (signbit(f) ? 0x8000u : 0));
}

static void check_rounding(void) {
    for (int i = 0; i < 300000; i++) {
        uint32_t u = (uint32_t)check_random();
        /* mostly in the range of halves; often exactly between two of them */
        if (i % 4) u = (u & 0x807fffffu) | (uint32_t)check_random_in(100, 144) << 23;
        if (i % 3 == 0) u = (u & 0xffffe000u) | 0x1000u;
        float f;
        memcpy(&f, &u, sizeof f);
        if (isnan(f)) continue;
        const uint16_t got = kernel_f32_to_f16(f), want = nearest_half(f);
        if (!check_that(got == want, "%08x rounds to %04x, expected %04x", u, got, want)) return;
    }
}

/* The bits of F16C: each variant stores values with its own instructions. NaNs and infinities included. */
static void check_store_bits(const kernel_table *t) {
    for (int round = 0; round < 2000; round++) {
        float x[19];
        uint16_t v[19];
        for (int i = 0; i < 19; i++) {
            const uint32_t u = (uint32_t)check_random() | (round % 5 ? 0 : 0x7f800000u);
            memcpy(&x[i], &u, sizeof u);
        }
        t->store_value_f16(x, 19, v, 0);
        for (int i = 0; i < 19; i++) {
            check_that(v[i] == kernel_f32_to_f16(x[i]), "stored %04x, expected %04x", v[i], kernel_f32_to_f16(x[i]));
        }
    }
}

/* The bits of F16C the other way: every half as a weight of its own output, times 1. */
static void check_load_bits(const kernel_table *t) {
    const float one = 1.0f;
    uint16_t *w = check_alloc(65536 * sizeof *w, 2);
    float *y = check_alloc(65536 * sizeof *y, 4);
    for (uint32_t i = 0; i < 65536; i++) w[i] = (uint16_t)i;
    t->linear[KERNEL_F16](w, 1, 0, 65536, &one, 4, 1, y, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        const double want = half_value((uint16_t)i);
        check_that(isnan(want) ? isnan(y[i]) : (double)y[i] == want, "half %04x loads as %.9g", i, (double)y[i]);
    }
    check_release(w);
    check_release(y);
}

static void check_halves(const kernel_table *t, int arg) {
    (void)arg;
    check_every_half();
    check_rounding();
    check_store_bits(t);
    check_load_bits(t);
}

/* ---- the table of types ------------------------------------------------------------------------------------------ */

static void check_types(const kernel_table *t, int arg) {
    (void)arg;
    int known_types = 0;
    for (uint32_t i = 0; i < 70; i++) {
        const bool is_known = kernel_type_known(i);
        known_types += is_known;
        if (i < KERNEL_TYPE_END) check_that((t->linear[i] != NULL) == is_known, "type %u: entry and table disagree", i);
    }
    check_that(known_types == 16 && !kernel_type_known(UINT32_MAX), "%d types", known_types);
    check_that(strcmp(kernel_type_name(KERNEL_Q4_K), "Q4_K") == 0, "name of Q4_K");
    check_that(kernel_row_bytes(KERNEL_Q8_0, 2048) == 2176, "bytes of a Q8_0 row");
    check_that(kernel_row_bytes(KERNEL_Q6_K, 512) == 420, "bytes of a Q6_K row");
    check_that(kernel_row_bytes(KERNEL_BF16, 3) == 6, "bytes of a BF16 row");
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"types", 0, check_types, NULL},
        {"blocks_by_hand", 0, check_hand_blocks, NULL},
#define X(name) {"dequantize_" #name, KERNEL_##name, check_dequantize, NULL}
        X(Q4_0),
        X(Q4_1),
        X(Q5_0),
        X(Q5_1),
        X(Q8_0),
        X(Q2_K),
        X(Q3_K),
        X(Q4_K),
        X(Q5_K),
        X(Q6_K),
        X(IQ4_NL),
        X(IQ4_XS),
        X(MXFP4),
#undef X
#define X(name, number, block, bytes) {"quantize_" #name, number, check_quantizer, NULL},
        KERNEL_TYPES(X)
#undef X
            {"halves", 0, check_halves, NULL},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
