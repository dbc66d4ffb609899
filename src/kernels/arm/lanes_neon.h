/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_neon.h: the AArch64 primitives for the code in kernels/lanes/. Also the list of the primitives that every
 * instruction set must define:
 *
 *   LANES          floats of a vector; interleaved rows of weights
 *   LANES_GROUPS   vectors of outputs in a tile of float products
 *   LANES_SUMS     vectors of sums in a tile of attention
 *   lanes_bytes    four bytes in each lane;   lanes_ints   an int32;   lanes_floats   a float
 *   LANES_KEEP     keeps a vector in a register if the compiler would move its computation elsewhere
 *
 * and the functions below. A set's file also defines lanes_zero_point: the number that is subtracted from a format's q
 * before the product. The x86 sets have lanes_broadcast_dword and lanes_times_sums as well (lanes_avx2.h), for their
 * lanes_sums.
 */
#ifndef KERNELS_ARM_LANES_NEON_H
#define KERNELS_ARM_LANES_NEON_H

#if defined(__aarch64__)
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/formats.h"
#include "kernels/half.h"
#include "kernels/prefetch.h"

#define LANES 4
#define LANES_GROUPS 4
#define LANES_SUMS 16
#define LANES_KEEP(v) __asm__("" \
                              : "+w"(v))

typedef uint8x16_t lanes_bytes;
typedef int32x4_t lanes_ints;
typedef float32x4_t lanes_floats;

/* ---- floats
   --------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_floats lanes_zero(void) { return vdupq_n_f32(0.0f); }

/* The float at p in all lanes. */
static BASE_ALWAYS_INLINE lanes_floats lanes_broadcast(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return vdupq_n_f32(v);
}

/* The first n floats at p, 0 < n <= LANES; the other lanes are 0 and their memory is not accessed. */
static BASE_ALWAYS_INLINE lanes_floats lanes_load_first(const float *p, int64_t n) {
    if (n == LANES) return vld1q_f32(p);
    float v[LANES] = {0};
    memcpy(v, p, (size_t)n * sizeof *v);
    return vld1q_f32(v);
}

static BASE_ALWAYS_INLINE void lanes_store_first(float *p, lanes_floats v, int64_t n) {
    if (n == LANES) {
        vst1q_f32(p, v);
    } else {
        float all[LANES];
        vst1q_f32(all, v);
        memcpy(p, all, (size_t)n * sizeof *p);
    }
}

static BASE_ALWAYS_INLINE void lanes_store(float *p, lanes_floats v) { vst1q_f32(p, v); }

static BASE_ALWAYS_INLINE lanes_floats lanes_multiply(lanes_floats a, lanes_floats b) { return vmulq_f32(a, b); }
/* acc + a * b, acc - a * b, rounded once. */
static BASE_ALWAYS_INLINE lanes_floats lanes_fma(lanes_floats a, lanes_floats b, lanes_floats acc) {
    return vfmaq_f32(acc, a, b);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_fnma(lanes_floats a, lanes_floats b, lanes_floats acc) {
    return vfmsq_f32(acc, a, b);
}
static BASE_ALWAYS_INLINE lanes_floats lanes_negate(lanes_floats v) { return vnegq_f32(v); }
static BASE_ALWAYS_INLINE lanes_floats lanes_to_floats(lanes_ints v) { return vcvtq_f32_s32(v); }
static BASE_ALWAYS_INLINE lanes_floats lanes_max(lanes_floats a, lanes_floats b) { return vmaxq_f32(a, b); }
/* The lowest eight bits of each float, moved to where its exponent is; all other bits are 0. */
static BASE_ALWAYS_INLINE lanes_floats lanes_low_bits_as_exponents(lanes_floats v) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(v), 23));
}

/* LANES elements at p. */
static BASE_ALWAYS_INLINE lanes_floats lanes_load_f32(const uint8_t *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }

static BASE_ALWAYS_INLINE lanes_floats lanes_load_f16(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

static BASE_ALWAYS_INLINE lanes_floats lanes_load_bf16(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

/* LANES floats at x as f16, rounded to nearest even. */
static BASE_ALWAYS_INLINE void lanes_store_f16(uint16_t *p, const float *x) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x))));
}

/* ---- bytes
   ---------------------------------------------------------------------------------------------------------- */

static BASE_ALWAYS_INLINE lanes_bytes lanes_load(const uint8_t *p) { return vld1q_u8(p); }

/* Bits [shift, shift + n) of every byte, `mask` being 2^n - 1. */
static BASE_ALWAYS_INLINE lanes_bytes lanes_bits(lanes_bytes v, int shift, int mask) {
    return vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)-shift)), vdupq_n_u8((uint8_t)mask));
}

/* v << n; the results must be below 256. */
static BASE_ALWAYS_INLINE lanes_bytes lanes_shift_left(lanes_bytes v, int n) {
    return vshlq_u8(v, vdupq_n_s8((int8_t)n));
}
static BASE_ALWAYS_INLINE lanes_bytes lanes_or(lanes_bytes a, lanes_bytes b) { return vorrq_u8(a, b); }
/* Every byte plus a number, modulo 256. */
static BASE_ALWAYS_INLINE lanes_bytes lanes_add(lanes_bytes v, int number) {
    return vaddq_u8(v, vdupq_n_u8((uint8_t)number));
}
/* A table of sixteen bytes for lanes_look_up, which replaces every byte (below 16) by its entry. */
static BASE_ALWAYS_INLINE lanes_bytes lanes_table(const int8_t values[16]) { return vld1q_u8((const uint8_t *)values); }
static BASE_ALWAYS_INLINE lanes_bytes lanes_look_up(lanes_bytes table, lanes_bytes v) { return vqtbl1q_u8(table, v); }

/* Bits 4g .. 4g+3 of every lane as its four bytes, each `value` or 0. */
static BASE_ALWAYS_INLINE lanes_bytes lanes_spread_bits(lanes_bytes words, int g, int value) {
    static const uint8_t lane[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const uint8x16_t byte = vqtbl1q_u8(words, vaddq_u8(vld1q_u8(lane), vdupq_n_u8((uint8_t)(g / 2))));
    const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(g % 2 ? 0x80402010u : 0x08040201u));
    return vandq_u8(vtstq_u8(byte, bit), vdupq_n_u8((uint8_t)value));
}

/* ---- scales
   --------------------------------------------------------------------------------------------------------- */

/* Converts the f16 in the lower and in the upper half of each lane. */
static BASE_ALWAYS_INLINE void lanes_split_f16(lanes_bytes v, lanes_floats *low, lanes_floats *high) {
    *low = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_u8(v))));
    *high = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_u8(v), 16)));
}

/* Bits [shift, shift + n) of every lane, `mask` being 2^n - 1. */
static BASE_ALWAYS_INLINE lanes_ints lanes_field(lanes_bytes v, int shift, int mask) {
    return vreinterpretq_s32_u32(
        vandq_u32(vshlq_u32(vreinterpretq_u32_u8(v), vdupq_n_s32(-shift)), vdupq_n_u32((uint32_t)mask)));
}

/* low | high << shift. */
static BASE_ALWAYS_INLINE lanes_ints lanes_join(lanes_ints low, lanes_ints high, int shift) {
    return vorrq_s32(low, vshlq_s32(high, vdupq_n_s32(shift)));
}

/* (v - offset) * d. */
static BASE_ALWAYS_INLINE lanes_floats lanes_times(lanes_ints v, int offset, lanes_floats d) {
    return vmulq_f32(vcvtq_f32_s32(vsubq_s32(v, vdupq_n_s32(offset))), d);
}

/* 2^(e - 128) of LANES bytes e at p, subnormal for 0 and 1 (half_power_of_two). */
static BASE_ALWAYS_INLINE lanes_floats lanes_powers(const uint8_t *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    const uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000u), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), tiny, normal));
}
#endif

#endif
