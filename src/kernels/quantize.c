/* quantize.c: floats to every weight format, for making test models (formats.h has the layouts).
 *
 * Plain min/max quantisers: a scale is chosen from the extremes of a block, stored, read back as stored, and every
 * element is rounded to the nearest multiple of what will be read. No search for better scales. Any thread.
 * Magnitudes above what an f16 scale can express saturate.
 */
#include <assert.h>
#include <math.h>

#include "kernels/formats.h"
#include "kernels/half.h"

/* Largest finite f16. */
#define F16_MAX 65504.0f

/* Stores a scale as f16 and returns the value a reader will see. */
static float store_scale(uint8_t *dst, float scale) {
    const uint16_t h = half_from_float(fmaxf(-F16_MAX, fminf(F16_MAX, scale)));
    memcpy(dst, &h, sizeof h);
    return half_to_float(h);
}

/* Nearest integer to x / step within [low, high]; 0 if the step is 0 (then every element reads as 0). */
static int nearest(float x, float step, int low, int high) {
    if (step == 0.0f) return low > 0 ? low : 0;
    const float q = fmaxf((float)low, fminf((float)high, x / step));
    return (int)lrintf(q);
}

static float max_abs(const float *x, int n) {
    float m = 0.0f;
    for (int i = 0; i < n; i++) m = fmaxf(m, fabsf(x[i]));
    return m;
}

static void quantize_q8_0(const float *x, uint8_t *block) {
    const float d = store_scale(block, max_abs(x, 32) / 127.0f);
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)nearest(x[i], d, -127, 127);
}

/* The element of largest magnitude becomes -8, the one value without a mirror image. */
static void quantize_q4_0(const float *x, uint8_t *block) {
    float extreme = 0.0f;
    for (int i = 0; i < 32; i++) {
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    }
    const float d = store_scale(block, extreme / -8.0f);
    for (int i = 0; i < 16; i++) {
        const int low = nearest(x[i], d, -8, 7) + 8;
        const int high = nearest(x[i + 16], d, -8, 7) + 8;
        block[2 + i] = (uint8_t)(low | high << 4);
    }
}

static void q4_k_pack_scales(const int *scale, const int *min, uint8_t *dst) {
    for (int j = 0; j < 4; j++) {
        dst[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        dst[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        dst[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* A piece spans [-min, -min + 15 * step]; min is not negative in the format, so the span is made to include 0. */
static void q4_k_ranges(const float *x, float *step, float *min) {
    for (int j = 0; j < FORMAT_K_PIECES; j++) {
        float low = 0.0f, high = 0.0f;
        for (int i = 0; i < 32; i++) {
            low = fminf(low, x[32 * j + i]);
            high = fmaxf(high, x[32 * j + i]);
        }
        step[j] = (high - low) / 15.0f;
        min[j] = -low;
    }
}

static void quantize_q4_k(const float *x, uint8_t *block) {
    float step[FORMAT_K_PIECES], min[FORMAT_K_PIECES];
    int step_q[FORMAT_K_PIECES], min_q[FORMAT_K_PIECES];
    q4_k_ranges(x, step, min);
    const float d = store_scale(block, max_abs(step, FORMAT_K_PIECES) / 63.0f);
    const float dmin = store_scale(block + 2, max_abs(min, FORMAT_K_PIECES) / 63.0f);
    for (int j = 0; j < FORMAT_K_PIECES; j++) {
        step_q[j] = nearest(step[j], d, 0, 63);
        min_q[j] = nearest(min[j], dmin, 0, 63);
    }
    q4_k_pack_scales(step_q, min_q, block + FORMAT_Q4_K_SCALES);
    memset(block + FORMAT_Q4_K_QUANTS, 0, 128);
    for (int i = 0; i < 256; i++) {
        const int j = i / 32;
        const int q = nearest(x[i] + dmin * (float)min_q[j], d * (float)step_q[j], 0, 15);
        block[FORMAT_Q4_K_QUANTS + 32 * (j / 2) + i % 32] |= (uint8_t)(q << 4 * (j & 1));
    }
}

static void quantize_q6_k(const float *x, uint8_t *block) {
    float step[16], largest = 0.0f;
    for (int s = 0; s < 16; s++) {
        step[s] = max_abs(x + 16 * s, 16) / 31.0f;
        largest = fmaxf(largest, step[s]);
    }
    memset(block, 0, FORMAT_Q6_K_BYTES);
    const float d = store_scale(block + FORMAT_Q6_K_D, largest / 127.0f);
    for (int s = 0; s < 16; s++) block[FORMAT_Q6_K_SCALES + s] = (uint8_t)nearest(step[s], d, 0, 127);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, group = i / 32 % 4, l = i % 32;
        const int q = nearest(x[i], d * (float)block[FORMAT_Q6_K_SCALES + i / 16], -32, 31) + 32;
        block[64 * half + 32 * (group & 1) + l] |= (uint8_t)((q & 15) << 4 * (group >> 1));
        block[FORMAT_Q6_K_HIGH + 32 * half + l] |= (uint8_t)((q >> 4) << 2 * group);
    }
}

static void quantize_blocks(void (*fn)(const float *, uint8_t *), kernel_type t, const float *src, uint8_t *dst,
                            int64_t n) {
    const int64_t block = kernel_type_block(t), bytes = kernel_type_bytes(t);
    for (int64_t b = 0; b < n / block; b++) fn(src + b * block, dst + b * bytes);
}

void kernel_quantize(kernel_type t, const float *src, void *dst, int64_t n) {
    uint8_t *bytes = dst;
    assert(kernel_type_known((uint32_t)t) && n % kernel_type_block(t) == 0);
    switch (t) {
    case KERNEL_F32: memcpy(dst, src, (size_t)n * sizeof *src); break;
    case KERNEL_Q8_0: quantize_blocks(quantize_q8_0, t, src, dst, n); break;
    case KERNEL_Q4_0: quantize_blocks(quantize_q4_0, t, src, dst, n); break;
    case KERNEL_Q4_K: quantize_blocks(quantize_q4_k, t, src, dst, n); break;
    case KERNEL_Q6_K: quantize_blocks(quantize_q6_k, t, src, dst, n); break;
    default:
        for (int64_t i = 0; i < n; i++) {
            const uint16_t h = t == KERNEL_F16 ? half_from_float(src[i]) : half_bf16_from_float(src[i]);
            memcpy(bytes + 2 * i, &h, sizeof h);
        }
    }
}
