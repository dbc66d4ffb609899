/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bits_generic.c: KV of 4 and 2 bits: encoding and single elements (kernels.h has the layouts). */
#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"
#include "kernels/lanes/lanes_bits.inc"

#define F16_MAX 65504.0f

static int most_code(int bits) {
    BASE_DCHECK(bits == 2 || bits == 4);
    return (1 << bits) - 1;
}

/* NaN and infinities become the largest numbers of f16. */
static float finite(float x) { return x < F16_MAX ? (x > -F16_MAX ? x : -F16_MAX) : F16_MAX; }

static int round_code(float x, int most) {
    const float code = x < (float)most ? x : (float)most;
    return code > 0 ? (int)lrintf(code) : 0;
}

/* ---- keys ---- */

static int64_t key_rows_bytes(int bits, int64_t dim) { return dim * KERNEL_SLOTS * bits / 8; }
int64_t kernel_bits_key_bytes(int bits, int64_t dim) {
    BASE_DCHECK(dim >= 0); /* a record of another model may have an odd one */
    return key_rows_bytes(bits, dim) + 4 * dim;
}

static uint16_t f16_at_most(float x) {
    uint16_t h = half_from_float(x);
    if (half_to_float(h) <= x) return h;
    return h & 0x8000 ? (uint16_t)(h + 1) : h == 0 ? 0x8001
                                                   : (uint16_t)(h - 1);
}

static uint16_t f16_at_least(float x) { return f16_at_most(-x) ^ 0x8000; }

/* The byte of a code, and the position of its bits. */
static uint8_t *key_byte(const void *k, int bits, int slot, int64_t d, int *shift) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    uint8_t *rows = (uint8_t *)(uintptr_t)k;
    *shift = (int)(d % 2) * bits + (bits == 2 && slot >= KERNEL_SLOTS / 2 ? 4 : 0);
    return bits == 4 ? rows + d / 2 * KERNEL_SLOTS + slot
                     : rows + d / 2 * (KERNEL_SLOTS / 2) + slot % (KERNEL_SLOTS / 2);
}

static float key_scale(const void *k, int bits, int64_t dim, int64_t d) {
    return half_load((const uint8_t *)k + key_rows_bytes(bits, dim) + 2 * d);
}
static float key_least(const void *k, int bits, int64_t dim, int64_t d) {
    return half_load((const uint8_t *)k + key_rows_bytes(bits, dim) + 2 * (dim + d));
}

void kernel_encode_keys(int bits, const float *x, int n, int64_t dim, void *k) {
    uint8_t *ranges = (uint8_t *)k + key_rows_bytes(bits, dim);
    BASE_ASSERT(n > 0 && n <= KERNEL_SLOTS && dim % 2 == 0);
    memset(k, 0, (size_t)kernel_bits_key_bytes(bits, dim));
    for (int64_t d = 0; d < dim; d++) {
        float least = finite(x[d]), most = least;
        for (int j = 1; j < n; j++) {
            least = fminf(least, finite(x[j * dim + d]));
            most = fmaxf(most, finite(x[j * dim + d]));
        }
        const uint16_t h = f16_at_most(least);
        const uint16_t scale = f16_at_least((most - half_to_float(h)) / (float)most_code(bits));
        memcpy(ranges + 2 * d, &scale, sizeof scale);
        memcpy(ranges + 2 * (dim + d), &h, sizeof h);
        const float step = half_to_float(scale);
        for (int j = 0, shift; j < n && step > 0; j++) {
            uint8_t *byte = key_byte(k, bits, j, d, &shift);
            *byte |=
                (uint8_t)(round_code((finite(x[j * dim + d]) - half_to_float(h)) / step, most_code(bits)) << shift);
        }
    }
}

static void key_ranges(const void *k, int bits, int64_t dim, kernel_ranges *out) {
    BASE_DCHECK(dim > 0 && dim % 2 == 0);
    float most = 0;
    for (int64_t d = 0; d < dim; d++) most = fmaxf(most, key_scale(k, bits, dim, d));
    const float factor = most > 0 ? 32767.0f / most : 0.0f;
    for (int64_t d = 0; d < dim; d++) {
        out->scales[d] = (int16_t)lrintf(key_scale(k, bits, dim, d) * factor);
        out->least[d] = key_least(k, bits, dim, d);
    }
    out->unit = most * (32768.0f / 32767.0f);
}

float kernel_bits_key(const void *k, int bits, int64_t dim, int slot, int64_t d) {
    int shift;
    const uint8_t *byte = key_byte(k, bits, slot, d, &shift);
    return key_scale(k, bits, dim, d) * (float)(*byte >> shift & most_code(bits)) + key_least(k, bits, dim, d);
}

float kernel_bits_round_key(const void *k, int bits, int64_t dim, int64_t d, float x) {
    const float scale = key_scale(k, bits, dim, d), least = key_least(k, bits, dim, d);
    return scale > 0 ? scale * (float)round_code((finite(x) - least) / scale, most_code(bits)) + least : least;
}

/* ---- values ---- */

static int64_t value_rows_bytes(int bits, int64_t dim) { return dim * KERNEL_SLOTS * bits / 8; }
int64_t kernel_bits_value_bytes(int bits, int64_t dim) { return value_rows_bytes(bits, dim) + 3 * KERNEL_SLOTS; }

static uint8_t *value_byte(const void *v, int bits, int64_t dim, int slot, int64_t d, int *shift) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS && d >= 0 && d < dim);
    const int row = slot / 2;
    *shift = slot % 2 * bits + (row >= 8 * bits ? 4 : 0);
    return (uint8_t *)(uintptr_t)v + row % (8 * bits) * dim + d;
}

static float value_scale(const void *v, int bits, int64_t dim, int slot) {
    return half_bf16_to_float(half_load_u16((const uint8_t *)v + value_rows_bytes(bits, dim) + 2 * slot));
}
static int value_zero(const void *v, int bits, int64_t dim, int slot) {
    return ((const uint8_t *)v)[value_rows_bytes(bits, dim) + 2 * KERNEL_SLOTS + slot];
}

/* 1/8 of the distance of two values: the least bf16 that reaches both ends of the range. */
static uint16_t bf16_step(float range, int bits) {
    const float step = range / (8.0f * (float)most_code(bits));
    return step < KERNEL_Q8_TINY ? 0 : (uint16_t)((half_float_bits(step) + 0xffff) >> 16);
}

static void encode_value(int bits, const float *x, int64_t dim, int slot, void *v) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS);
    float least = 0, most = 0;
    for (int64_t d = 0; d < dim; d++) {
        least = fminf(least, finite(x[d]));
        most = fmaxf(most, finite(x[d]));
    }
    const uint16_t h = bf16_step(most - least, bits);
    const float step = half_bf16_to_float(h);
    const int zero = step > 0 ? round_code(-least / step, 8 * most_code(bits)) : 0;
    memcpy((uint8_t *)v + value_rows_bytes(bits, dim) + 2 * slot, &h, sizeof h);
    ((uint8_t *)v)[value_rows_bytes(bits, dim) + 2 * KERNEL_SLOTS + slot] = (uint8_t)zero;
    for (int64_t d = 0; d < dim && step > 0; d++) {
        int shift;
        uint8_t *byte = value_byte(v, bits, dim, slot, d, &shift);
        *byte |= (uint8_t)(round_code((finite(x[d]) / step + (float)zero) / 8.0f, most_code(bits)) << shift);
    }
}

void kernel_encode_values(int bits, const float *x, int n, int64_t dim, void *v) {
    BASE_ASSERT(n > 0 && n <= KERNEL_SLOTS);
    memset(v, 0, (size_t)kernel_bits_value_bytes(bits, dim));
    for (int j = 0; j < n; j++) encode_value(bits, x + j * dim, dim, j, v);
}

float kernel_bits_value(const void *v, int bits, int64_t dim, int slot, int64_t d) {
    int shift;
    const uint8_t *byte = value_byte(v, bits, dim, slot, d, &shift);
    return value_scale(v, bits, dim, slot) *
           (float)(8 * (*byte >> shift & most_code(bits)) - value_zero(v, bits, dim, slot));
}

float kernel_bits_round_value(const void *v, int bits, int64_t dim, int slot, float x) {
    const float step = value_scale(v, bits, dim, slot);
    const int zero = value_zero(v, bits, dim, slot);
    return step > 0 ? step * (float)(8 * round_code((finite(x) / step + (float)zero) / 8.0f, most_code(bits)) - zero)
                    : 0.0f;
}

void generic_attention_bits_entries(kernel_table *t) {
    lanes_bits_entries(t);
    t->key_ranges = key_ranges;
}
