/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_blocks.c: random blocks and the second decoder (kernel_blocks.h). */
#include "support/kernel_blocks.h"

#include <math.h>
#include <string.h>

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

double kernel_blocks_half(const uint8_t *p) {
    const int fraction = bits(p, 0, 10), exponent = bits(p, 10, 5);
    const double sign = bit(p, 15) ? -1.0 : 1.0;
    if (exponent == 31) return fraction ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double half(const uint8_t *p, int byte) { return kernel_blocks_half(p + byte); }

/* ---- blocks of 32
   ------------------------------------------------------------------------------------------------- */

/* The nibble of element i of 32, with their nibbles from a byte on. */
static int nibble(const uint8_t *b, int byte, int i) { return bits(b, 8 * byte + 8 * (i % 16) + 4 * (i / 16), 4); }

static double value_q4_0(const uint8_t *b, int i) { return half(b, 0) * (nibble(b, 2, i) - 8); }
static double value_q4_1(const uint8_t *b, int i) { return half(b, 0) * nibble(b, 4, i) + half(b, 2); }
static double value_q5_0(const uint8_t *b, int i) { return half(b, 0) * (nibble(b, 6, i) + 16 * bit(b, 16 + i) - 16); }
static double value_q5_1(const uint8_t *b, int i) {
    return half(b, 0) * (nibble(b, 8, i) + 16 * bit(b, 32 + i)) + half(b, 2);
}
static double value_q8_0(const uint8_t *b, int i) { return half(b, 0) * signed_byte(b, 2 + i); }

static int iq4(int code) {
    static const int above[] = {1, 13, 25, 38, 53, 69, 89, 113}, below[] = {10, 22, 35, 49, 65, 83, 104, 127};
    return code >= 8 ? above[code - 8] : -below[7 - code];
}

static double value_iq4_nl(const uint8_t *b, int i) { return half(b, 0) * iq4(nibble(b, 2, i)); }

/* E2M1: sign, two bits of exponent with bias 1, one of fraction. E8M0: an exponent with bias 127. */
static double value_mxfp4(const uint8_t *b, int i) {
    const int code = nibble(b, 1, i), fraction = code & 1, exponent = (code >> 1) & 3;
    const double magnitude = exponent ? ldexp(1 + 0.5 * fraction, exponent - 1) : 0.5 * fraction;
    return (code & 8 ? -magnitude : magnitude) * ldexp(1, bits(b, 0, 8) - 127);
}

/* ---- blocks of 256: j = piece of 32, l = element within it
   -------------------------------------------------------- */

static double value_q2_k(const uint8_t *b, int i) {
    const int q = bits(b, 8 * (16 + 32 * (i / 128) + i % 32) + 2 * (i / 32 % 4), 2);
    return half(b, 80) * bits(b, 8 * (i / 16), 4) * q - kernel_blocks_min(KERNEL_Q2_K, b, i);
}

static double value_q3_k(const uint8_t *b, int i) {
    const int s = i / 16, low = bits(b, 8 * (32 + 32 * (i / 128) + i % 32) + 2 * (i / 32 % 4), 2);
    const int high = bit(b, 8 * (i % 32) + i / 32);
    const int scale = bits(b, 8 * (96 + s % 8) + 4 * (s / 8), 4) + 16 * bits(b, 8 * (104 + s % 4) + 2 * (s / 4), 2);
    return half(b, 108) * (scale - 32) * (low + 4 * high - 4);
}

/* Six bits from two places: the lower four and the upper two. */
static int scale_k(const uint8_t *b, int j) {
    if (j < 4) return bits(b, 8 * (4 + j), 6);
    return bits(b, 8 * (8 + j), 4) + 16 * bits(b, 8 * j + 6, 2);
}

static int min_k(const uint8_t *b, int j) {
    if (j < 4) return bits(b, 8 * (8 + j), 6);
    return bits(b, 8 * (8 + j) + 4, 4) + 16 * bits(b, 8 * (4 + j) + 6, 2);
}

static double value_q4_k(const uint8_t *b, int i) {
    const int q = bits(b, 8 * (16 + 32 * (i / 64) + i % 32) + 4 * (i / 32 % 2), 4);
    return half(b, 0) * scale_k(b, i / 32) * q - kernel_blocks_min(KERNEL_Q4_K, b, i);
}

static double value_q5_k(const uint8_t *b, int i) {
    const int low = bits(b, 8 * (48 + 32 * (i / 64) + i % 32) + 4 * (i / 32 % 2), 4);
    const int high = bit(b, 8 * (16 + i % 32) + i / 32);
    return half(b, 0) * scale_k(b, i / 32) * (low + 16 * high) - kernel_blocks_min(KERNEL_Q5_K, b, i);
}

static double value_q6_k(const uint8_t *b, int i) {
    const int n = i / 128, g = i % 128 / 32, l = i % 32;
    const int low = bits(b, 8 * (64 * n + 32 * (g % 2) + l) + 4 * (g / 2), 4);
    const int high = bits(b, 8 * (128 + 32 * n + l) + 2 * g, 2);
    return half(b, 208) * signed_byte(b, 192 + i / 16) * (low + 16 * high - 32);
}

static double value_iq4_xs(const uint8_t *b, int i) {
    const int j = i / 32, scale = bits(b, 32 + 4 * j, 4) + 16 * bits(b, 16 + 2 * j, 2);
    return half(b, 0) * (scale - 32) * iq4(nibble(b, 8 + 16 * j, i % 32));
}

/* ---- any type
   ----------------------------------------------------------------------------------------------------- */

double kernel_blocks_value(kernel_type t, const uint8_t *block, int i) {
    switch (t) {
    case KERNEL_Q4_0: return value_q4_0(block, i);
    case KERNEL_Q4_1: return value_q4_1(block, i);
    case KERNEL_Q5_0: return value_q5_0(block, i);
    case KERNEL_Q5_1: return value_q5_1(block, i);
    case KERNEL_Q8_0: return value_q8_0(block, i);
    case KERNEL_Q2_K: return value_q2_k(block, i);
    case KERNEL_Q3_K: return value_q3_k(block, i);
    case KERNEL_Q4_K: return value_q4_k(block, i);
    case KERNEL_Q5_K: return value_q5_k(block, i);
    case KERNEL_Q6_K: return value_q6_k(block, i);
    case KERNEL_IQ4_NL: return value_iq4_nl(block, i);
    case KERNEL_IQ4_XS: return value_iq4_xs(block, i);
    case KERNEL_MXFP4: return value_mxfp4(block, i);
    default: return NAN;
    }
}

double kernel_blocks_min(kernel_type t, const uint8_t *block, int i) {
    switch (t) {
    case KERNEL_Q4_1:
    case KERNEL_Q5_1: return -half(block, 2);
    case KERNEL_Q2_K: return half(block, 82) * bits(block, 8 * (i / 16) + 4, 4);
    case KERNEL_Q4_K:
    case KERNEL_Q5_K: return half(block, 2) * min_k(block, i / 32);
    default: return 0;
    }
}

/* ---- random blocks
   ------------------------------------------------------------------------------------------------ */

static uint16_t random_half(check_kind kind) {
    switch (kind) {
    case CHECK_ZERO: return (uint16_t)(check_random() & 0x8000);
    case CHECK_SUBNORMAL: return (uint16_t)(check_random() & 0x83ff);
    case CHECK_HUGE: return (uint16_t)(0x7800 | (check_random() & 0x83ff));
    case CHECK_MIXED: return random_half((check_kind)check_random_in(CHECK_NORMAL, CHECK_HUGE));
    default: return (uint16_t)(0x2000 + (check_random() & 0x83ff));
    }
}

/* The exponent of MXFP4. There is no zero: 2^-127 comes nearest. 0 and 1 make the stored scale subnormal. */
static uint8_t random_exponent(check_kind kind) {
    switch (kind) {
    case CHECK_ZERO: return 0;
    case CHECK_SUBNORMAL: return (uint8_t)check_random_in(0, 2);
    case CHECK_HUGE: return (uint8_t)check_random_in(140, 150);
    case CHECK_MIXED: return random_exponent((check_kind)check_random_in(CHECK_NORMAL, CHECK_HUGE));
    default: return (uint8_t)check_random_in(110, 130);
    }
}

/* Where a block has halves (-1: none) and the integers, bytes [first, end). */
typedef struct block_parts {
    int half[2], first, end;
} block_parts;

static block_parts parts_of(kernel_type t) {
    switch (t) {
    case KERNEL_Q4_1: return (block_parts){{0, 2}, 4, 20};
    case KERNEL_Q5_1: return (block_parts){{0, 2}, 4, 24};
    case KERNEL_Q2_K: return (block_parts){{80, 82}, 16, 80};
    case KERNEL_Q3_K: return (block_parts){{108, -1}, 0, 96};
    case KERNEL_Q4_K: return (block_parts){{0, 2}, 16, 144};
    case KERNEL_Q5_K: return (block_parts){{0, 2}, 16, 176};
    case KERNEL_Q6_K: return (block_parts){{208, -1}, 0, 192};
    case KERNEL_IQ4_XS: return (block_parts){{0, -1}, 8, 136};
    case KERNEL_MXFP4: return (block_parts){{-1, -1}, 1, 17};
    default: return (block_parts){{0, -1}, 2, (int)kernel_type_bytes(t)};
    }
}

void kernel_blocks_random(kernel_type t, uint8_t *w, int64_t n_blocks, check_kind kind, bool extreme) {
    static const uint8_t values[] = {0x00, 0x7f, 0x80, 0xff};
    const uint8_t value = values[check_random_in(0, 3)];
    const block_parts parts = parts_of(t);
    const int64_t bytes = kernel_type_bytes(t);
    for (int64_t i = 0; i < n_blocks * bytes; i++) w[i] = (uint8_t)check_random();
    for (int64_t b = 0; b < n_blocks; b++) {
        uint8_t *block = w + b * bytes;
        if (extreme) memset(block + parts.first, value, (size_t)(parts.end - parts.first));
        if (t == KERNEL_MXFP4) block[0] = random_exponent(kind);
        for (int k = 0; k < 2; k++) {
            const uint16_t h = random_half(kind);
            if (parts.half[k] >= 0) memcpy(block + parts.half[k], &h, sizeof h);
        }
    }
}
