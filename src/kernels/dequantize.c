/* dequantize.c: the meaning of every weight format (formats.h has the layouts).
 *
 * Owns no state; any thread. Not here: the reverse (quantize.c), and fast unpacking (x86/).
 */
#include <assert.h>

#include "kernels/formats.h"
#include "kernels/half.h"

static void unpack_q8_0(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q8_0_BYTES;
    memcpy(out->q, block + 2, sizeof out->q);
    out->scale[0] = out->scale[1] = half_load(block);
    out->min = 0.0f;
}

static void unpack_q4_0(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece * FORMAT_Q4_0_BYTES;
    for (int i = 0; i < 16; i++) {
        out->q[i] = (int8_t)((block[2 + i] & 15) - 8);
        out->q[i + 16] = (int8_t)((block[2 + i] >> 4) - 8);
    }
    out->scale[0] = out->scale[1] = half_load(block);
    out->min = 0.0f;
}

void format_q4_k_scale_min(const uint8_t *scales, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = scales[j] & 63;
        *min = scales[j + 4] & 63;
    } else {
        *scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
        *min = (scales[j + 4] >> 4) | (scales[j] >> 6) << 4;
    }
}

static void unpack_q4_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_K_PIECES * FORMAT_Q4_K_BYTES;
    const int j = (int)(piece % FORMAT_K_PIECES);
    const uint8_t *quants = block + FORMAT_Q4_K_QUANTS + 32 * (j / 2);
    const int shift = 4 * (j & 1);
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)((quants[i] >> shift) & 15);
    int scale, min;
    format_q4_k_scale_min(block + FORMAT_Q4_K_SCALES, j, &scale, &min);
    out->scale[0] = out->scale[1] = half_load(block) * (float)scale;
    out->min = half_load(block + 2) * (float)min;
}

static void unpack_q6_k(const uint8_t *row, int64_t piece, format_piece *out) {
    const uint8_t *block = row + piece / FORMAT_K_PIECES * FORMAT_Q6_K_BYTES;
    const int j = (int)(piece % FORMAT_K_PIECES);
    const int half = j / 4, group = j % 4;
    const uint8_t *low = block + 64 * half + 32 * (group & 1);
    const uint8_t *high = block + FORMAT_Q6_K_HIGH + 32 * half;
    for (int i = 0; i < 32; i++) {
        const int bits = ((low[i] >> 4 * (group >> 1)) & 15) | ((high[i] >> 2 * group) & 3) << 4;
        out->q[i] = (int8_t)(bits - 32);
    }
    const float d = half_load(block + FORMAT_Q6_K_D);
    for (int i = 0; i < 2; i++) {
        const int scale = block[FORMAT_Q6_K_SCALES + 2 * j + i];
        out->scale[i] = d * (float)(scale < 128 ? scale : scale - 256);
    }
    out->min = 0.0f;
}

format_unpack_fn format_unpack(kernel_type t) {
    switch (t) {
    case KERNEL_Q8_0: return unpack_q8_0;
    case KERNEL_Q4_0: return unpack_q4_0;
    case KERNEL_Q4_K: return unpack_q4_k;
    case KERNEL_Q6_K: return unpack_q6_k;
    default: return NULL;
    }
}

static void dequantize_pieces(format_unpack_fn unpack, const uint8_t *row, float *dst, int64_t n) {
    for (int64_t piece = 0; piece < n / 32; piece++) {
        format_piece w;
        unpack(row, piece, &w);
        for (int i = 0; i < 32; i++) dst[32 * piece + i] = w.scale[i / 16] * (float)w.q[i] - w.min;
    }
}

void kernel_dequantize(kernel_type t, const void *src, float *dst, int64_t n) {
    const uint8_t *bytes = src;
    assert(kernel_type_known((uint32_t)t) && n % kernel_type_block(t) == 0);
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
