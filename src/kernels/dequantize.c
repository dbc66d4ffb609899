/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize.c: dequantization of every weight format: its definition (formats.h has the layouts).
 *
 * Owns no state; any thread. Not here: quantization (quantize.c) and fast unpacking (lanes/).
 */

#include "base/check.h"
#include "kernels/formats.h"
#include "kernels/half.h"

const int8_t format_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t format_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void set_scale(format_piece *out, float scale, float min) {
    out->scale[0] = out->scale[1] = scale;
    out->min[0] = out->min[1] = min;
}

/* ---- parts shared by formats ------------------------------------------------------------------------------------- */

/* 16 bytes: the low nibbles are q[0..15], the high ones q[16..31]. */
static void nibbles(const uint8_t *bytes, int offset, int8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((bytes[i] & 15) + offset);
        q[i + 16] = (int8_t)((bytes[i] >> 4) + offset);
    }
}

/* Bit i of the 32 is bit 4 of q[i]. */
static void add_fifth_bits(const uint8_t *bytes, int8_t *q) {
    for (int i = 0; i < 32; i++) q[i] = (int8_t)(q[i] + 16 * ((bytes[i / 8] >> (i % 8)) & 1));
}

/* Nibbles are indices of a table of values. */
static void look_up(const uint8_t *bytes, const int8_t *values, int8_t *q) {
    nibbles(bytes, 0, q);
    for (int i = 0; i < 32; i++) q[i] = values[q[i]];
}

/* Byte l, bits 2*(j%4), of every 32 bytes. */
static void two_bits(const uint8_t *bytes, int j, int8_t *q) {
    BASE_DCHECK(j >= 0 && j < 8);
    for (int l = 0; l < 32; l++) q[l] = (int8_t)((bytes[32 * (j / 4) + l] >> 2 * (j % 4)) & 3);
}

/* Byte l, nibble j%2, of every 32 bytes. */
static void byte_nibbles(const uint8_t *bytes, int j, int8_t *q) {
    BASE_DCHECK(j >= 0 && j < 8);
    for (int l = 0; l < 32; l++) q[l] = (int8_t)((bytes[32 * (j / 2) + l] >> 4 * (j % 2)) & 15);
}

/* Bit j of byte l is worth `value`. */
static void add_high_bits(const uint8_t *bytes, int j, int value, int8_t *q) {
    BASE_DCHECK(j >= 0 && j < 8);
    for (int l = 0; l < 32; l++) q[l] = (int8_t)(q[l] + value * ((bytes[l] >> j) & 1));
}

/* ---- blocks of 32
   ------------------------------------------------------------------------------------------------- */

static void unpack_q4_0(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q4_0_BYTES;
    nibbles(block + 2, -8, out->q);
    set_scale(out, half_load(block), 0.0f);
}

static void unpack_q4_1(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q4_1_BYTES;
    nibbles(block + 4, 0, out->q);
    set_scale(out, half_load(block), -half_load(block + 2));
}

static void unpack_q5_0(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q5_0_BYTES;
    nibbles(block + 6, -16, out->q);
    add_fifth_bits(block + 2, out->q);
    set_scale(out, half_load(block), 0.0f);
}

static void unpack_q5_1(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q5_1_BYTES;
    nibbles(block + 8, 0, out->q);
    add_fifth_bits(block + 4, out->q);
    set_scale(out, half_load(block), -half_load(block + 2));
}

static void unpack_q8_0(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q8_0_BYTES;
    memcpy(out->q, block + 2, sizeof out->q);
    set_scale(out, half_load(block), 0.0f);
}

static void unpack_iq4_nl(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_IQ4_NL_BYTES;
    look_up(block + 2, format_iq4_values, out->q);
    set_scale(out, half_load(block), 0.0f);
}

static void unpack_mxfp4(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_MXFP4_BYTES;
    look_up(block + 1, format_fp4_values, out->q);
    set_scale(out, half_power_of_two(block[0]), 0.0f);
}

/* ---- blocks of 256: j is the piece within the block
   --------------------------------------------------------------- */

static void unpack_q2_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_Q2_K_PIECES * FORMAT_Q2_K_BYTES;
    const int j = (int)(piece % FORMAT_Q2_K_PIECES);
    two_bits(block + FORMAT_Q2_K_QUANTS, j, out->q);
    for (int i = 0; i < 2; i++) {
        out->scale[i] = half_load(block + FORMAT_Q2_K_D) * (float)(block[2 * j + i] & 15);
        out->min[i] = half_load(block + FORMAT_Q2_K_DMIN) * (float)(block[2 * j + i] >> 4);
    }
}

static int q3_k_scale(const uint8_t *scales, int s) {
    BASE_DCHECK(s >= 0 && s < 16);
    const int low = (scales[s % 8] >> 4 * (s / 8)) & 15, high = (scales[8 + s % 4] >> 2 * (s / 4)) & 3;
    return (low | high << 4) - 32;
}

static void unpack_q3_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_Q3_K_PIECES * FORMAT_Q3_K_BYTES;
    const int j = (int)(piece % FORMAT_Q3_K_PIECES);
    two_bits(block + FORMAT_Q3_K_QUANTS, j, out->q);
    add_high_bits(block, j, 4, out->q);
    for (int l = 0; l < 32; l++) out->q[l] = (int8_t)(out->q[l] - 4);
    set_scale(out, 0.0f, 0.0f);
    for (int i = 0; i < 2; i++) {
        out->scale[i] = half_load(block + FORMAT_Q3_K_D) * (float)q3_k_scale(block + FORMAT_Q3_K_SCALES, 2 * j + i);
    }
}

/* The scale and minimum of piece j in a block of Q4_K or Q5_K, which start with the same fields. */
static void set_scale_min_k(const uint8_t *block, int j, format_piece *out) {
    BASE_DCHECK(j >= 0 && j < 8);
    const uint8_t *scales = block + FORMAT_Q4_K_SCALES;
    int scale = scales[j] & 63, min = scales[j + 4] & 63;
    if (j >= 4) {
        scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
        min = (scales[j + 4] >> 4) | (scales[j] >> 6) << 4;
    }
    set_scale(out, half_load(block) * (float)scale, half_load(block + 2) * (float)min);
}

static void unpack_q4_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_Q4_K_PIECES * FORMAT_Q4_K_BYTES;
    const int j = (int)(piece % FORMAT_Q4_K_PIECES);
    byte_nibbles(block + FORMAT_Q4_K_QUANTS, j, out->q);
    set_scale_min_k(block, j, out);
}

static void unpack_q5_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_Q5_K_PIECES * FORMAT_Q5_K_BYTES;
    const int j = (int)(piece % FORMAT_Q5_K_PIECES);
    byte_nibbles(block + FORMAT_Q5_K_QUANTS, j, out->q);
    add_high_bits(block + FORMAT_Q5_K_HIGH, j, 16, out->q);
    set_scale_min_k(block, j, out);
}

static void unpack_q6_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_Q6_K_PIECES * FORMAT_Q6_K_BYTES;
    const int j = (int)(piece % FORMAT_Q6_K_PIECES);
    const int half = j / 4, group = j % 4;
    const uint8_t *low = block + 64 * half + 32 * (group & 1);
    const uint8_t *high = block + FORMAT_Q6_K_HIGH + 32 * half;
    for (int i = 0; i < 32; i++) {
        const int bits = ((low[i] >> 4 * (group >> 1)) & 15) | ((high[i] >> 2 * group) & 3) << 4;
        out->q[i] = (int8_t)(bits - 32);
    }
    set_scale(out, 0.0f, 0.0f);
    const float d = half_load(block + FORMAT_Q6_K_D);
    for (int i = 0; i < 2; i++) {
        const int scale = block[FORMAT_Q6_K_SCALES + 2 * j + i];
        out->scale[i] = d * (float)(scale < 128 ? scale : scale - 256);
    }
}

static void unpack_iq4_xs(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_IQ4_XS_PIECES * FORMAT_IQ4_XS_BYTES;
    const int j = (int)(piece % FORMAT_IQ4_XS_PIECES);
    const int low = (block[FORMAT_IQ4_XS_LOW + j / 2] >> 4 * (j % 2)) & 15;
    const int high = (block[FORMAT_IQ4_XS_HIGH + j / 4] >> 2 * (j % 4)) & 3;
    look_up(block + FORMAT_IQ4_XS_QUANTS + 16 * j, format_iq4_values, out->q);
    set_scale(out, half_load(block) * (float)((low | high << 4) - 32), 0.0f);
}

/* ---- rows
   --------------------------------------------------------------------------------------------------------- */

format_unpack_fn format_unpack(kernel_type t) {
    static const format_unpack_fn unpack[KERNEL_TYPE_END] = {
#define X(NAME, name, ...) [KERNEL_##NAME] = unpack_##name,
        FORMAT_TYPES(X)
#undef X
    };
    BASE_DCHECK((unsigned)t < KERNEL_TYPE_END);
    return unpack[t];
}

static void dequantize_pieces(format_unpack_fn unpack, const uint8_t *row, float *dst, int64_t n) {
    BASE_DCHECK(n >= 0 && n % 32 == 0);
    for (int64_t piece = 0; piece < n / 32; piece++) {
        format_piece w;
        unpack(row, piece, &w);
        for (int i = 0; i < 32; i++) dst[32 * piece + i] = w.scale[i / 16] * (float)w.q[i] - w.min[i / 16];
    }
}

void kernel_dequantize(kernel_type t, const void *src, float *dst, int64_t n) {
    const uint8_t *bytes = src;
    BASE_DCHECK(kernel_type_known((uint32_t)t) && n % kernel_type_block(t) == 0);
    switch (t) {
    case KERNEL_F32:
        memcpy(dst, src, (size_t)n * sizeof *dst);
        break;
    case KERNEL_F16:
        for (int64_t i = 0; i < n; i++) dst[i] = half_load(bytes + 2 * i);
        break;
    case KERNEL_BF16:
        for (int64_t i = 0; i < n; i++) dst[i] = half_bf16_to_float(half_load_u16(bytes + 2 * i));
        break;
    default:
        dequantize_pieces(format_unpack(t), bytes, dst, n);
    }
}
