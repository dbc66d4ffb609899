/* test_kernel_formats.c: what the bytes of every format mean, the half conversions, and quantising.
 *
 * The decoder here reads a block as a string of bits, one bit at a time, with the position of each bit of element i given
 * by a formula for each format; halves are put together with ldexp. It shares nothing with src/kernels. A few blocks
 * were moreover decoded by hand.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/kernel_check.h"

/* ---- a second decoder ---------------------------------------------------------------------------------------------- */

static int bit(const uint8_t *p, int64_t i) { return (p[i / 8] >> (i % 8)) & 1; }

/* n bits, lowest first, from bit position i. */
static int bits(const uint8_t *p, int64_t i, int n) {
    int v = 0;
    for (int k = 0; k < n; k++) v += bit(p, i + k) << k;
    return v;
}

static int signed_byte(const uint8_t *p, int64_t byte) {
    return bits(p, 8 * byte, 7) - 128 * bit(p, 8 * byte + 7);
}

static double half(const uint8_t *p, int64_t byte) {
    const int fraction = bits(p, 8 * byte, 10), exponent = bits(p, 8 * byte + 10, 5);
    const double sign = bit(p, 8 * byte + 15) ? -1.0 : 1.0;
    if (exponent == 31) return fraction ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double decode_q8_0(const uint8_t *b, int i) { return half(b, 0) * signed_byte(b, 2 + i); }

static double decode_q4_0(const uint8_t *b, int i) {
    return half(b, 0) * (bits(b, 16 + 8 * (i % 16) + 4 * (i / 16), 4) - 8);
}

/* Six bits from two places: the lower four and the upper two. */
static double decode_q4_k(const uint8_t *b, int i) {
    const int j = i / 32, packed = 8 * 4;
    int scale, min;
    if (j < 4) {
        scale = bits(b, packed + 8 * j, 6);
        min = bits(b, packed + 8 * (j + 4), 6);
    } else {
        scale = bits(b, packed + 8 * (j + 4), 4) + 16 * bits(b, packed + 8 * (j - 4) + 6, 2);
        min = bits(b, packed + 8 * (j + 4) + 4, 4) + 16 * bits(b, packed + 8 * j + 6, 2);
    }
    const int q = bits(b, 8 * 16 + 8 * (32 * (i / 64) + i % 32) + 4 * (i / 32 % 2), 4);
    return half(b, 0) * scale * q - half(b, 2) * min;
}

static double decode_q6_k(const uint8_t *b, int i) {
    const int n = i / 128, g = i % 128 / 32, l = i % 32;
    const int low = bits(b, 8 * (64 * n + 32 * (g % 2) + l) + 4 * (g / 2), 4);
    const int high = bits(b, 8 * (128 + 32 * n + l) + 2 * g, 2);
    return half(b, 208) * signed_byte(b, 192 + i / 16) * (low + 16 * high - 32);
}

static double decode_element(kernel_type t, const uint8_t *block, int i) {
    switch (t) {
    case KERNEL_Q8_0: return decode_q8_0(block, i);
    case KERNEL_Q4_0: return decode_q4_0(block, i);
    case KERNEL_Q4_K: return decode_q4_k(block, i);
    case KERNEL_Q6_K: return decode_q6_k(block, i);
    default: return NAN;
    }
}

/* ---- dequantising -------------------------------------------------------------------------------------------------- */

/* Scales are random finite halves; all other bytes are random. A scale times its factor is exact; the product with q and
 * the minimum's subtraction round: 2 u (|w| + |min|), and 2^-149 below the normal range. */
static void check_dequantize(const kernel_table *table, int arg) {
    const kernel_type t = (kernel_type)arg;
    const int64_t block = kernel_type_block(t), bytes = kernel_type_bytes(t);
    (void)table;
    for (int round = 0; round < 400; round++) {
        const int64_t n_blocks = check_random_in(1, 3);
        uint8_t *w = check_alloc((size_t)(n_blocks * bytes), (size_t)check_random_in(0, 3));
        float *f = check_alloc((size_t)(n_blocks * block) * 4, 4 * (size_t)check_random_in(0, 3));
        for (int64_t i = 0; i < n_blocks * bytes; i++) w[i] = (uint8_t)check_random();
        for (int64_t b = 0; b < n_blocks; b++) {
            w[b * bytes + 1] &= 0xfb, w[b * bytes + 3] &= 0xfb, w[b * bytes + bytes - 1] &= 0xfb; /* exponents < 31 */
        }
        kernel_dequantize(t, w, f, n_blocks * block);
        for (int64_t i = 0; i < n_blocks * block; i++) {
            const double want = decode_element(t, w + i / block * bytes, (int)(i % block));
            const double min = t == KERNEL_Q4_K ? fabs(half(w + i / block * bytes, 2)) * 63 : 0;
            check_near(f[i], want, 4 * CHECK_UNIT * (fabs(want) + min) + 0x1p-149, kernel_type_name(t), i);
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

/* Q4_K, d = 1 (0x3c00), dmin = 0.25 (0x3400). Byte 4 = 0xc1: scale 0 is 1 and 3 is the upper part of scale 4. Byte 8 =
 * 0x87: minimum 0 is 7, and 2 is the upper part of minimum 4. Byte 12 = 0x52: scale 4 = 2 + 16*3 = 50, minimum 4 =
 * 5 + 16*2 = 37. Byte 16 = 0xa3: element 0 is q 3, element 32 is q 10 with scale 1 = byte 5 = 2 and minimum 1 = 0. Byte 80 =
 * 0x0f: element 128 is q 15. */
static void check_q4_k_by_hand(void) {
    uint8_t b[144] = {0x00, 0x3c, 0x00, 0x34, 0xc1, 0x02, 0, 0, 0x87, 0, 0, 0, 0x52, 0, 0, 0, 0xa3};
    b[80] = 0x0f;
    check_known(KERNEL_Q4_K, b,
                (known[]){{0, 3.0f - 1.75f}, {1, -1.75f}, {32, 20.0f}, {33, 0}, {128, 750.0f - 9.25f}, {129, -9.25f}}, 6);
}

/* Q6_K, d = 2 (0x4000). Scales 0 = 1, 2 = -1, 4 = 3, 6 = -128, 8 = 5. Byte 0 = 0x9c, byte 32 = 0x51, byte 128 (upper
 * bits 3, 2, 1, 0 for groups 0..3) = 0x1b: element 0 is 12 + 48 - 32 = 28, element 32 is 1 + 32 - 32 = 1, element 64 is
 * 9 + 16 - 32 = -7, element 96 is 5 - 32 = -27. Element 128 has all bits zero: -32. */
static void check_q6_k_by_hand(void) {
    uint8_t b[210] = {0x9c};
    b[32] = 0x51, b[128] = 0x1b;
    b[192] = 1, b[194] = 0xff, b[196] = 3, b[198] = 0x80, b[200] = 5, b[209] = 0x40;
    check_known(KERNEL_Q6_K, b,
                (known[]){{0, 56.0f}, {1, -64.0f}, {32, -2.0f}, {64, -42.0f}, {96, 6912.0f}, {128, -320.0f}, {16, 0}}, 7);
}

static void check_hand_blocks(const kernel_table *t, int arg) {
    (void)t, (void)arg;
    check_blocks_by_hand();
    check_q4_k_by_hand();
    check_q6_k_by_hand();
}

/* ---- quantising ---------------------------------------------------------------------------------------------------- */

static double range(const float *x, int n, double *low, double *high) {
    *low = *high = 0;
    for (int i = 0; i < n; i++) *low = fmin(*low, x[i]), *high = fmax(*high, x[i]);
    return fmax(-*low, *high);
}

/* How far a value may move. f16 scales are off by 2^-11 of themselves, so by 2^-11 of the range at most.
 * Q8_0: half a step of max / 127. Q4_0: a step of max / 8 (+8 is cut to 7). */
static double bound_simple(kernel_type t, const float *block) {
    double low, high;
    const double max = range(block, 32, &low, &high);
    return (t == KERNEL_Q8_0 ? 0.5 * max / 127 : max / 8) + max * 0x1p-10;
}

/* With steps in units of D = largest step / 63 and minima in units of M = largest minimum / 63: half of the step, which is up
 * to D / 2 longer; the far end, 15 steps away, moves by 15 D / 2; the minimum by M / 2. */
static double bound_q4_k(const float *block, int i) {
    double low, high, step = 0, min = 0;
    for (int j = 0; j < 8; j++) {
        range(block + 32 * j, 32, &low, &high);
        step = fmax(step, (high - low) / 15), min = fmax(min, -low);
    }
    range(block + i / 32 * 32, 32, &low, &high);
    const double d = step / 63, m = min / 63;
    return 0.5 * ((high - low) / 15 + d / 2) + 7.5 * d + m / 2 + (15 * step + min) * 0x1p-10;
}

/* Likewise with D = largest step / 127 and 32 steps to the end. */
static double bound_q6_k(const float *block, int i) {
    double low, high, max = 0;
    for (int s = 0; s < 16; s++) max = fmax(max, range(block + 16 * s, 16, &low, &high));
    const double d = max / 31 / 127, own = range(block + i / 16 * 16, 16, &low, &high);
    return 0.5 * (own / 31 + d / 2) + 16 * d + max * 0x1p-10;
}

static double bound_of(kernel_type t, const float *block, int i) {
    switch (t) {
    case KERNEL_F32: return 0;
    case KERNEL_F16: return fabs((double)block[i]) * 0x1p-11 + 0x1p-25;
    case KERNEL_BF16: return fabs((double)block[i]) * 0x1p-8;
    case KERNEL_Q4_K: return bound_q4_k(block, i);
    case KERNEL_Q6_K: return bound_q6_k(block, i);
    default: return bound_simple(t, block);
    }
}

static void check_quantize(const kernel_table *table, int arg) {
    const kernel_type t = (kernel_type)arg;
    const int64_t block = kernel_type_block(t), n = block * 4;
    (void)table;
    for (int round = 0; round < 200; round++) {
        float *x = check_alloc((size_t)n * 4, 4), *back = check_alloc((size_t)n * 4, 8);
        uint8_t *q = check_alloc((size_t)kernel_row_bytes(t, n), (size_t)check_random_in(0, 3));
        check_fill(x, n, round % 8 == 7 ? CHECK_ZERO : CHECK_NORMAL);
        for (int64_t i = 0; i < n; i++) x[i] += round % 3 ? 0.0f : 2.0f; /* one-sided blocks too */
        kernel_quantize(t, x, q, n);
        kernel_dequantize(t, q, back, n);
        for (int64_t i = 0; i < n; i++) {
            check_near(back[i], x[i], bound_of(t, x + i / block * block, (int)(i % block)), kernel_type_name(t), i);
        }
        check_release(x);
        check_release(back);
        check_release(q);
    }
}

/* Whatever is given, the scales that are stored are finite. */
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

/* ---- halves -------------------------------------------------------------------------------------------------------- */

static double half_value(uint16_t h) {
    const uint8_t bytes[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
    return half(bytes, 0);
}

/* Every half, there and back. */
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

/* The nearest half by searching: of the halves of f's sign, all finite ones and 2^16 in the place of infinity, the nearest,
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
        /* mostly where halves live; often exactly between two of them */
        if (i % 4) u = (u & 0x807fffffu) | (uint32_t)check_random_in(100, 144) << 23;
        if (i % 3 == 0) u = (u & 0xffffe000u) | 0x1000u;
        float f;
        memcpy(&f, &u, sizeof f);
        if (isnan(f)) continue;
        const uint16_t got = kernel_f32_to_f16(f), want = nearest_half(f);
        if (!check_that(got == want, "%08x rounds to %04x, expected %04x", u, got, want)) return;
    }
}

/* The bits of F16C: values are stored by each variant's own instructions. NaNs and infinities included. */
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

/* ---- the table of types ---------------------------------------------------------------------------------------------- */

static void check_types(const kernel_table *t, int arg) {
    (void)arg;
    int known_types = 0;
    for (uint32_t i = 0; i < 70; i++) {
        const bool is_known = kernel_type_known(i);
        known_types += is_known;
        if (i < KERNEL_TYPE_END) check_that((t->linear[i] != NULL) == is_known, "type %u: entry and table disagree", i);
    }
    check_that(known_types == 7 && !kernel_type_known(UINT32_MAX), "%d types", known_types);
    check_that(strcmp(kernel_type_name(KERNEL_Q4_K), "Q4_K") == 0, "name of Q4_K");
    check_that(kernel_row_bytes(KERNEL_Q8_0, 2048) == 2176, "bytes of a Q8_0 row");
    check_that(kernel_row_bytes(KERNEL_Q6_K, 512) == 420, "bytes of a Q6_K row");
    check_that(kernel_row_bytes(KERNEL_BF16, 3) == 6, "bytes of a BF16 row");
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
        {"types", 0, check_types, NULL},
        {"blocks_by_hand", 0, check_hand_blocks, NULL},
        {"dequantize_Q8_0", KERNEL_Q8_0, check_dequantize, NULL},
        {"dequantize_Q4_0", KERNEL_Q4_0, check_dequantize, NULL},
        {"dequantize_Q4_K", KERNEL_Q4_K, check_dequantize, NULL},
        {"dequantize_Q6_K", KERNEL_Q6_K, check_dequantize, NULL},
#define X(name, number, block, bytes) {"quantize_" #name, number, check_quantizer, NULL},
        KERNEL_TYPES(X)
#undef X
        {"halves", 0, check_halves, NULL},
    };
    return check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
}
