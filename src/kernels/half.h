/* SPDX-License-Identifier: Apache-2.0 */
/* half.h: conversion of the 16-bit float formats, and the power of two of MXFP4's scale. The results are those of the
 * F16C instructions for every input, NaNs included.
 *
 *            sign  exponent  fraction   bias
 *   binary32   1       8        23       127
 *   binary16   1       5        10        15
 *   bfloat16   1       8         7       127    (the upper half of a binary32)
 */
#ifndef KERNELS_HALF_H
#define KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/check.h"

static inline uint32_t half_float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float half_bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t fraction = h & 0x3ffu;
    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24, exact in binary32 */
        const float magnitude = (float)fraction * 0x1p-24f;
        return half_bits_float(half_float_bits(magnitude) | sign);
    }
    if (exponent == 31) { /* infinity, or a NaN, which becomes quiet */
        const uint32_t quiet = fraction ? 0x00400000u : 0;
        return half_bits_float(sign | 0x7f800000u | quiet | fraction << 13);
    }
    return half_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Drops the lowest `bits` bits of u and rounds to nearest, ties to even. */
static inline uint32_t half_round_shift(uint32_t u, uint32_t bits) {
    BASE_DCHECK(bits > 0 && bits < 32);
    const uint32_t half = 1u << (bits - 1);
    const uint32_t odd = (u >> bits) & 1u;
    return (u + (half - 1) + odd) >> bits;
}

static inline uint16_t half_from_float(float f) {
    const uint32_t u = half_float_bits(f);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    uint32_t h;
    if (magnitude > 0x7f800000u) { /* NaN: quiet, keeps the upper payload */
        h = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x47800000u) { /* >= 2^16 */
        h = 0x7c00u;
    } else if (magnitude >= 0x38800000u) { /* normal in binary16; a carry may reach infinity, as it should */
        h = half_round_shift(magnitude - (112u << 23), 13);
    } else if (magnitude >= 0x33000000u) { /* subnormal: the significand counts steps of 2^-24 */
        const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
        h = half_round_shift(significand, 126u - (magnitude >> 23));
    } else { /* < 2^-25, rounds to zero */
        h = 0;
    }
    return (uint16_t)(sign | h);
}

static inline float half_bf16_to_float(uint16_t h) { return half_bits_float((uint32_t)h << 16); }

static inline uint16_t half_bf16_from_float(float f) {
    const uint32_t u = half_float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)half_round_shift(u, 16); /* a carry out of the sign cannot happen: infinity has zero below it */
}

/* 2^(e - 128): half of E8M0's value of e, subnormal for 0 and 1. 255 is a NaN in E8M0; ggml decodes it as 2^127. */
static inline float half_power_of_two(uint8_t e) {
    return half_bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* An element at any address. */
static inline uint16_t half_load_u16(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static inline float half_load(const void *p) { return half_to_float(half_load_u16(p)); }

#endif
