/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c: quantization of f32 to every weight format (formats.h has the layouts).
 *
 * A scale is chosen, stored, and loaded as stored; every element is rounded to the nearest value that can be decoded.
 * Formats with one scale per block of 32 take it from the block's extremes; formats with 8 or 16 scales per block of
 * 256 (except IQ4_XS) search for it. Any thread. Magnitudes above the range of an f16 scale saturate.
 */
#include <float.h>
#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/formats.h"
#include "kernels/half.h"

/* Largest finite f16. */
#define F16_MAX 65504.0f

/* Stores a scale as f16 and returns the stored value. */
static float store_scale(uint8_t *dst, float scale) {
    const uint16_t h = half_from_float(fmaxf(-F16_MAX, fminf(F16_MAX, scale)));
    memcpy(dst, &h, sizeof h);
    return half_to_float(h);
}

/* Nearest integer to x / step within [low, high]; 0 if the step is 0 (every element then decodes to 0). */
static int nearest(float x, float step, int low, int high) {
    BASE_DCHECK(low <= high);
    if (step == 0.0f) return low > 0 ? low : 0;
    const float q = fmaxf((float)low, fminf((float)high, x / step));
    return (int)lrintf(q);
}

/* The code with the value nearest to x / step. */
static int nearest_code(float x, float step, const int8_t values[16]) {
    const float v = step == 0.0f ? 0.0f : x / step;
    int best = 0;
    for (int i = 1; i < 16; i++) {
        if (fabsf(v - (float)values[i]) < fabsf(v - (float)values[best])) best = i;
    }
    return best;
}

static float max_abs(const float *x, int n) {
    float m = 0.0f;
    for (int i = 0; i < n; i++) m = fmaxf(m, fabsf(x[i]));
    return m;
}

/* The element of largest magnitude. It becomes the lowest value, which has no positive counterpart. */
static float extreme_of(const float *x, int n) {
    float extreme = 0.0f;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    }
    return extreme;
}

/* The range of n elements and 0. */
static void range_of(const float *x, int n, float *low, float *high) {
    *low = *high = 0.0f;
    for (int i = 0; i < n; i++) {
        *low = fminf(*low, x[i]);
        *high = fmaxf(*high, x[i]);
    }
}

/* ---- blocks of 32
   ------------------------------------------------------------------------------------------------- */

static void put_nibbles(const int *q, uint8_t *dst) {
    for (int i = 0; i < 16; i++) dst[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void put_fifth_bits(const int *q, uint8_t *dst) {
    memset(dst, 0, 4);
    for (int i = 0; i < 32; i++) dst[i / 8] |= (uint8_t)((q[i] >> 4) << (i % 8));
}

/* d, then integers from -half to half - 1, stored with an offset of half. */
static void around_zero(const float *x, int half, uint8_t *block, int *q) {
    BASE_DCHECK(half == 8 || half == 16);
    const float d = store_scale(block, extreme_of(x, 32) / (float)-half);
    for (int i = 0; i < 32; i++) q[i] = nearest(x[i], d, -half, half - 1) + half;
}

/* d and m, then integers from 0 to levels. */
static void above_minimum(const float *x, int levels, uint8_t *block, int *q) {
    BASE_DCHECK(levels == 15 || levels == 31);
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    const float d = store_scale(block, (high - low) / (float)levels), m = store_scale(block + 2, low);
    for (int i = 0; i < 32; i++) q[i] = nearest(x[i] - m, d, 0, levels);
}

static void quantize_q4_0(const float *x, uint8_t *block) {
    int q[32];
    around_zero(x, 8, block, q);
    put_nibbles(q, block + 2);
}

static void quantize_q4_1(const float *x, uint8_t *block) {
    int q[32];
    above_minimum(x, 15, block, q);
    put_nibbles(q, block + 4);
}

static void quantize_q5_0(const float *x, uint8_t *block) {
    int q[32];
    around_zero(x, 16, block, q);
    put_fifth_bits(q, block + 2);
    put_nibbles(q, block + 6);
}

static void quantize_q5_1(const float *x, uint8_t *block) {
    int q[32];
    above_minimum(x, 31, block, q);
    put_fifth_bits(q, block + 4);
    put_nibbles(q, block + 8);
}

static void quantize_q8_0(const float *x, uint8_t *block) {
    const float d = store_scale(block, max_abs(x, 32) / 127.0f);
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)nearest(x[i], d, -127, 127);
}

static void quantize_iq4_nl(const float *x, uint8_t *block) {
    int q[32];
    const float d = store_scale(block, extreme_of(x, 32) / (float)format_iq4_values[0]);
    for (int i = 0; i < 32; i++) q[i] = nearest_code(x[i], d, format_iq4_values);
    put_nibbles(q, block + 2);
}

/* A largest element of 2^k * f, 1 <= f < 2, gets the scale 2^(k - 2): the maximum of E2M1 is 6 = 1.5 * 2^2. */
static void quantize_mxfp4(const float *x, uint8_t *block) {
    int q[32];
    const float max = fminf(max_abs(x, 32), FLT_MAX);
    block[0] = max == 0.0f ? 0 : (uint8_t)BASE_MAX(0, ilogbf(max) - 2 + 127);
    for (int i = 0; i < 32; i++) q[i] = nearest_code(x[i], half_power_of_two(block[0]), format_fp4_values);
    put_nibbles(q, block + 1);
}

/* ---- the search for scales ----------------------------------------------------------------------------------------
 * A candidate maps the ends of the data to up to one step inside or outside the ends of the integers. For a candidate's
 * integers, least squares gives the best scale; these scales are compared. Sums are kept in double. */

#define CANDIDATES 11

static float candidate_steps(int k, float levels) { return levels + 0.2f * (float)(k - CANDIDATES / 2); }

static float inverse_of(float step) { return step == 0.0f ? 0.0f : 1.0f / step; }

/* The nearest integer to x * inverse within [low, high], both below 2^22: after 1.5 * 2^23 is added, a float's last bit
 * has the value 1. The result may differ from nearest() at a tie, in a tenth of the time. */
static double nearly(float x, float inverse, float low, float high) {
    const float v = x * inverse, q = v < low ? low : v > high ? high
                                                              : v;
    return (double)((q + 0x1.8p23f) - 0x1.8p23f);
}

/* w = scale * q, low <= q <= high, |low| > high. With s = sum(x q) / sum(q^2) the squared error is sum(x^2) minus
 * sum(x q)^2 / sum(q^2), which is maximised here. */
static float fit_scale(const float *x, int n, int low, int high) {
    BASE_DCHECK(low < 0 && -low > high);
    const float extreme = extreme_of(x, n);
    double best = 0.0, removed = 0.0;
    for (int k = 0; k < CANDIDATES; k++) {
        const float inverse = inverse_of(-extreme / candidate_steps(k, (float)-low));
        double xq = 0.0, qq = 0.0;
        for (int i = 0; i < n; i++) {
            const double q = nearly(x[i], inverse, (float)low, (float)high);
            xq += q * (double)x[i];
            qq += q * q;
        }
        if (!(xq * xq > removed * qq)) continue;
        removed = xq * xq / qq;
        best = xq / qq;
    }
    return (float)best;
}

typedef struct line {
    double scale, min;
} line;

/* w = scale * q - min, 0 <= q <= levels, min >= 0. The squared error is compared without its constant sum(x^2). */
static line fit_line(const float *x, int n, int levels) {
    BASE_DCHECK(n > 0 && levels > 0);
    float low, high;
    range_of(x, n, &low, &high);
    line best = {(double)(high - low) / levels, -(double)low};
    double least = HUGE_VAL;
    for (int k = 0; k < CANDIDATES; k++) {
        const float inverse = inverse_of((high - low) / candidate_steps(k, (float)levels));
        double sx = 0.0, sq = 0.0, xq = 0.0, qq = 0.0;
        for (int i = 0; i < n; i++) {
            const double q = nearly(x[i] - low, inverse, 0.0f, (float)levels);
            sx += (double)x[i];
            sq += q;
            xq += q * (double)x[i];
            qq += q * q;
        }
        const double det = n * qq - sq * sq;
        if (!(det > 0.0)) continue;
        line l = {(n * xq - sq * sx) / det, (sq * xq - qq * sx) / det};
        if (l.min < 0.0) l = (line){xq / qq, 0.0};
        const double error = l.scale * (l.scale * qq - 2.0 * xq - 2.0 * l.min * sq) + l.min * (n * l.min + 2.0 * sx);
        if (error < least) {
            least = error;
            best = l;
        }
    }
    return best;
}

/* ---- blocks of 256 ------------------------------------------------------------------------------------------------
 * Scales and minima of the parts of a block are multiples of one f16 each. */

typedef struct parts {
    int n; /* 8 or 16 */
    float d, dmin;
    int scale[16], min[16];
} parts;

/* Symmetric parts of 16: scales from -largest to largest. */
static void fit_sixteenths(const float *x, int low, int high, int largest, uint8_t *d, parts *p) {
    BASE_DCHECK(low < 0 && -low > high && largest > 0);
    float scale[16];
    for (int s = 0; s < 16; s++) scale[s] = fit_scale(x + 16 * s, 16, low, high);
    p->n = 16;
    p->d = store_scale(d, max_abs(scale, 16) / (float)largest);
    for (int s = 0; s < 16; s++) p->scale[s] = nearest(scale[s], p->d, -largest, largest);
}

/* Parts with a minimum: scales and minima from 0 to largest. */
static void fit_lines(const float *x, int n, int levels, int largest, uint8_t *d, uint8_t *dmin, parts *p) {
    BASE_DCHECK(n == 8 || n == 16);
    float scale[16], min[16];
    for (int s = 0; s < n; s++) {
        const line l = fit_line(x + 256 / n * s, 256 / n, levels);
        scale[s] = (float)l.scale;
        min[s] = (float)l.min;
    }
    p->n = n;
    p->d = store_scale(d, max_abs(scale, n) / (float)largest);
    p->dmin = store_scale(dmin, max_abs(min, n) / (float)largest);
    for (int s = 0; s < n; s++) {
        p->scale[s] = nearest(scale[s], p->d, 0, largest);
        p->min[s] = nearest(min[s], p->dmin, 0, largest);
    }
}

static int q_of(const float *x, int i, const parts *p, int low, int high) {
    const int s = i / (256 / p->n);
    return nearest(x[i], p->d * (float)p->scale[s], low, high);
}

static int q_above_min(const float *x, int i, const parts *p, int levels) {
    const int s = i / (256 / p->n);
    return nearest(x[i] + p->dmin * (float)p->min[s], p->d * (float)p->scale[s], 0, levels);
}

static void quantize_q2_k(const float *x, uint8_t *block) {
    parts p;
    memset(block, 0, FORMAT_Q2_K_BYTES);
    fit_lines(x, 16, 3, 15, block + FORMAT_Q2_K_D, block + FORMAT_Q2_K_DMIN, &p);
    for (int s = 0; s < 16; s++) block[s] = (uint8_t)(p.scale[s] | p.min[s] << 4);
    for (int i = 0; i < 256; i++) {
        const int j = i / 32, q = q_above_min(x, i, &p, 3);
        block[FORMAT_Q2_K_QUANTS + 32 * (j / 4) + i % 32] |= (uint8_t)(q << 2 * (j % 4));
    }
}

static void quantize_q3_k(const float *x, uint8_t *block) {
    parts p;
    memset(block, 0, FORMAT_Q3_K_BYTES);
    fit_sixteenths(x, -4, 3, 31, block + FORMAT_Q3_K_D, &p);
    for (int s = 0; s < 16; s++) {
        const int code = p.scale[s] + 32;
        block[FORMAT_Q3_K_SCALES + s % 8] |= (uint8_t)((code & 15) << 4 * (s / 8));
        block[FORMAT_Q3_K_SCALES + 8 + s % 4] |= (uint8_t)((code >> 4) << 2 * (s / 4));
    }
    for (int i = 0; i < 256; i++) {
        const int j = i / 32, q = q_of(x, i, &p, -4, 3) + 4;
        block[FORMAT_Q3_K_QUANTS + 32 * (j / 4) + i % 32] |= (uint8_t)((q & 3) << 2 * (j % 4));
        block[i % 32] |= (uint8_t)((q >> 2) << j);
    }
}

/* d, dmin and the 6-bit scales and minima of eight parts. */
static void begin_q4_k(const float *x, int levels, uint8_t *block, parts *p) {
    fit_lines(x, 8, levels, 63, block, block + 2, p);
    const int *scale = p->scale, *min = p->min;
    BASE_DCHECK(p->n == 8);
    uint8_t *dst = block + FORMAT_Q4_K_SCALES;
    for (int j = 0; j < 4; j++) {
        dst[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        dst[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        dst[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

static void quantize_q4_k(const float *x, uint8_t *block) {
    parts p;
    memset(block, 0, FORMAT_Q4_K_BYTES);
    begin_q4_k(x, 15, block, &p);
    for (int i = 0; i < 256; i++) {
        const int j = i / 32, q = q_above_min(x, i, &p, 15);
        block[FORMAT_Q4_K_QUANTS + 32 * (j / 2) + i % 32] |= (uint8_t)(q << 4 * (j % 2));
    }
}

static void quantize_q5_k(const float *x, uint8_t *block) {
    parts p;
    memset(block, 0, FORMAT_Q5_K_BYTES);
    begin_q4_k(x, 31, block, &p);
    for (int i = 0; i < 256; i++) {
        const int j = i / 32, q = q_above_min(x, i, &p, 31);
        block[FORMAT_Q5_K_QUANTS + 32 * (j / 2) + i % 32] |= (uint8_t)((q & 15) << 4 * (j % 2));
        block[FORMAT_Q5_K_HIGH + i % 32] |= (uint8_t)((q >> 4) << j);
    }
}

static void quantize_q6_k(const float *x, uint8_t *block) {
    parts p;
    memset(block, 0, FORMAT_Q6_K_BYTES);
    fit_sixteenths(x, -32, 31, 127, block + FORMAT_Q6_K_D, &p);
    for (int s = 0; s < 16; s++) block[FORMAT_Q6_K_SCALES + s] = (uint8_t)p.scale[s];
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, group = i / 32 % 4, l = i % 32, q = q_of(x, i, &p, -32, 31) + 32;
        block[64 * half + 32 * (group & 1) + l] |= (uint8_t)((q & 15) << 4 * (group >> 1));
        block[FORMAT_Q6_K_HIGH + 32 * half + l] |= (uint8_t)((q >> 4) << 2 * group);
    }
}

static void quantize_iq4_xs(const float *x, uint8_t *block) {
    float scale[8];
    memset(block, 0, FORMAT_IQ4_XS_BYTES);
    for (int j = 0; j < 8; j++) scale[j] = extreme_of(x + 32 * j, 32) / (float)format_iq4_values[0];
    const float d = store_scale(block, max_abs(scale, 8) / 31.0f);
    for (int j = 0; j < 8; j++) {
        int q[32];
        const int s = nearest(scale[j], d, -31, 31), code = s + 32;
        block[FORMAT_IQ4_XS_LOW + j / 2] |= (uint8_t)((code & 15) << 4 * (j % 2));
        block[FORMAT_IQ4_XS_HIGH + j / 4] |= (uint8_t)((code >> 4) << 2 * (j % 4));
        for (int i = 0; i < 32; i++) q[i] = nearest_code(x[32 * j + i], d * (float)s, format_iq4_values);
        put_nibbles(q, block + FORMAT_IQ4_XS_QUANTS + 16 * j);
    }
}

/* ---- rows
   --------------------------------------------------------------------------------------------------------- */

static void quantize_blocks(kernel_type t, const float *src, uint8_t *dst, int64_t n) {
    static void (*const quantize[KERNEL_TYPE_END])(const float *, uint8_t *) = {
#define X(NAME, name, ...) [KERNEL_##NAME] = quantize_##name,
        FORMAT_TYPES(X)
#undef X
    };
    const int64_t block = kernel_type_block(t), bytes = kernel_type_bytes(t);
    BASE_DCHECK(quantize[t] && n >= 0);
    for (int64_t b = 0; b < n / block; b++) quantize[t](src + b * block, dst + b * bytes);
}

void kernel_quantize(kernel_type t, const float *src, void *dst, int64_t n) {
    uint8_t *bytes = dst;
    BASE_DCHECK(kernel_type_known((uint32_t)t) && n % kernel_type_block(t) == 0);
    switch (t) {
    case KERNEL_F32:
        memcpy(dst, src, (size_t)n * sizeof *src);
        break;
    case KERNEL_F16:
    case KERNEL_BF16:
        for (int64_t i = 0; i < n; i++) {
            const uint16_t h = t == KERNEL_F16 ? half_from_float(src[i]) : half_bf16_from_float(src[i]);
            memcpy(bytes + 2 * i, &h, sizeof h);
        }
        break;
    default:
        quantize_blocks(t, src, bytes, n);
    }
}
