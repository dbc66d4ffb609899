/* SPDX-License-Identifier: Apache-2.0 */
/* vector_neon.c: the functions of one row: quantization of activations, softmax, norms, activations, sums, rotation.
 * The exact GELU, the squared ReLU, scale and clamp are those of generic/.
 *
 * Eight elements a step, in two vectors. Element-wise results do not depend on n. Sums (softmax, norms) are kept in
 * double in 8 lanes, element i in lane i % 8, and folded 8 -> 4 -> 2 -> 1; a tail is filled with zeros. quantize_row,
 * add and rope give the bits of generic/.
 */
#include "base/check.h"
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"

void kernel_table_neon(kernel_table *t) {
    t->name = "neon";
    t->side = LANES;
    neon_linear_float_entries(t);
    neon_linear_quant_entries(t);
    neon_attention_entries(t);
    neon_attention_int8_entries(t);
    neon_vector_entries(t);
    neon_recurrence_entries(t);
}

/* The first n of eight floats at p, n > 0; the other lanes are 0 and their memory is not accessed. */
static inline float32x4x2_t load8(const float *p, int64_t n) {
    if (n >= 8) return vld1q_f32_x2(p);
    float v[8] = {0};
    memcpy(v, p, (size_t)n * sizeof *v);
    return vld1q_f32_x2(v);
}

static inline void store8(float *p, float32x4x2_t v, int64_t n) {
    if (n >= 8) {
        vst1q_f32_x2(p, v);
    } else {
        float all[8];
        vst1q_f32_x2(all, v);
        memcpy(p, all, (size_t)n * sizeof *p);
    }
}

/* The first n of 8 lanes; 0 in the others. */
static inline float32x4x2_t keep8(float32x4x2_t v, int64_t n) {
    if (n >= 8) return v;
    static const int32_t lane[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int i = 0; i < 2; i++) {
        const uint32x4_t used = vcgtq_s32(vdupq_n_s32((int32_t)n), vld1q_s32(lane + 4 * i));
        v.val[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.val[i]), used));
    }
    return v;
}

/* ---- reductions
   ----------------------------------------------------------------------------------------------------- */

typedef struct sum8 {
    float64x2_t pair[4]; /* lanes 0 and 1, 2 and 3, .. */
} sum8;

static inline sum8 sum8_zero(void) {
    const float64x2_t zero = vdupq_n_f64(0);
    return (sum8){{zero, zero, zero, zero}};
}

static inline float64x2_t pair_of(float32x4x2_t v, int i) {
    return i % 2 ? vcvt_high_f64_f32(v.val[i / 2]) : vcvt_f64_f32(vget_low_f32(v.val[i / 2]));
}

static inline void sum8_add(sum8 *s, float32x4x2_t v) {
    for (int i = 0; i < 4; i++) s->pair[i] = vaddq_f64(s->pair[i], pair_of(v, i));
}

static inline void sum8_add_squares(sum8 *s, float32x4x2_t v) {
    for (int i = 0; i < 4; i++) s->pair[i] = vfmaq_f64(s->pair[i], pair_of(v, i), pair_of(v, i));
}

static double sum8_total(const sum8 *s) {
    const float64x2_t two = vaddq_f64(vaddq_f64(s->pair[0], s->pair[2]), vaddq_f64(s->pair[1], s->pair[3]));
    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

/* ---- quantization of activations
   ----------------------------------------------------------------------------------------- */

static float block_max(const float32x4_t v[8]) {
    float32x4_t max = vabsq_f32(v[0]);
    for (int k = 1; k < 8; k++) max = vmaxq_f32(max, vabsq_f32(v[k]));
    return vmaxvq_f32(max);
}

/* 32 elements; d: their scale, sum: of either half. */
static void quantize_block(const float *x, uint8_t *q, float *d, int32_t sum[2]) {
    float32x4_t v[8];
    for (int k = 0; k < 8; k++) v[k] = vld1q_f32(x + 4 * k);
    const float max = block_max(v), inverse = max < KERNEL_Q8_TINY ? 0.0f : 127.0f / max;
    *d = max < KERNEL_Q8_TINY ? 0.0f : max / 127.0f;
    for (int half = 0; half < 2; half++) {
        int16x4_t words[4];
        for (int k = 0; k < 4; k++) words[k] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + k], inverse)));
        const int8x8_t low = vqmovn_s16(vcombine_s16(words[0], words[1])),
                       high = vqmovn_s16(vcombine_s16(words[2], words[3]));
        const int8x16_t bytes = vcombine_s8(low, high);
        sum[half] = vaddlvq_s8(bytes);
        vst1q_u8(q + 16 * half, vreinterpretq_u8_s8(bytes));
    }
}

static void quantize_row(const float *x, void *q8, int64_t n) {
    uint8_t *row = q8;
    BASE_DCHECK(n % KERNEL_Q8_BLOCK == 0);
    for (int64_t b = 0; b < n / 32; b++) {
        float d;
        int32_t sum[2];
        quantize_block(x + 32 * b, row + 32 * b, &d, sum);
        const float s = d * (float)(sum[0] + sum[1]), h[2] = {d * (float)sum[0], d * (float)sum[1]};
        const int16_t c[2] = {(int16_t)sum[0], (int16_t)sum[1]};
        memcpy(row + KERNEL_Q8_D(n) + 4 * b, &d, sizeof d);
        memcpy(row + KERNEL_Q8_S(n) + 4 * b, &s, sizeof s);
        memcpy(row + KERNEL_Q8_H(n) + 8 * b, h, sizeof h);
        memcpy(row + KERNEL_Q8_C(n) + 4 * b, c, sizeof c);
    }
}

/* ---- exponential
   ---------------------------------------------------------------------------------------------------- */

/* exp(x) for x <= 0; 0 below -87.3, before the result would be subnormal.
 * x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor series of exp(r) up to r^7 is off by less than 6e-9, a tenth of a
 * unit in the last place. ln 2 is split so that n times its first part is exact. */
static float32x4_t exp_negative(float32x4_t x) {
    static const float inverse_factorial[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                              1.0f / 6, 0.5f, 1.0f, 1.0f};
    const uint32x4_t vanishes = vcltq_f32(x, vdupq_n_f32(-87.3f)); /* a NaN passes through */
    const float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    float32x4_t e = vdupq_n_f32(inverse_factorial[0]);
    for (int i = 1; i < 8; i++) e = vfmaq_f32(vdupq_n_f32(inverse_factorial[i]), e, r);
    const int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    const float32x4_t all = vmulq_f32(e, vreinterpretq_f32_s32(exponent));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(all), vanishes));
}

static float row_max(const float *x, int64_t n) {
    float32x4_t max = vdupq_n_f32(x[0]);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) max = vmaxq_f32(vld1q_f32(x + i), max);
    float m = vmaxvq_f32(max);
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

static float softmax(float *x, int64_t n) {
    BASE_DCHECK(n >= 1);
    const float32x4_t max = vdupq_n_f32(row_max(x, n));
    sum8 sum = sum8_zero();
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(x + i, n - i);
        for (int k = 0; k < 2; k++) v.val[k] = exp_negative(vsubq_f32(v.val[k], max));
        store8(x + i, v, n - i);
        sum8_add(&sum, keep8(v, n - i));
    }
    return (float)(1.0 / sum8_total(&sum));
}

/* ---- norms
   ---------------------------------------------------------------------------------------------------------- */

static void rms_norm(const float *x, const float *w, float eps, float *y, int64_t n) {
    sum8 sum = sum8_zero();
    for (int64_t i = 0; i < n; i += 8) sum8_add_squares(&sum, load8(x + i, n - i));
    const float inverse = (float)(1.0 / sqrt(sum8_total(&sum) / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(x + i, n - i);
        const float32x4x2_t factor = load8(w + i, n - i);
        for (int k = 0; k < 2; k++) v.val[k] = vmulq_f32(vmulq_n_f32(v.val[k], inverse), factor.val[k]);
        store8(y + i, v, n - i);
    }
}

/* Two passes, the second over differences from the mean, as in generic/. */
static void layer_norm(const float *x, const float *w, const float *b, float eps, float *y, int64_t n) {
    sum8 sum = sum8_zero(), squares = sum8_zero();
    for (int64_t i = 0; i < n; i += 8) sum8_add(&sum, load8(x + i, n - i));
    const float mean = (float)(sum8_total(&sum) / (double)n);
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(x + i, n - i);
        for (int k = 0; k < 2; k++) v.val[k] = vsubq_f32(v.val[k], vdupq_n_f32(mean));
        sum8_add_squares(&squares, keep8(v, n - i));
    }
    const float inverse = (float)(1.0 / sqrt(sum8_total(&squares) / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(x + i, n - i), offset = b ? load8(b + i, n - i) : v;
        const float32x4x2_t factor = load8(w + i, n - i);
        for (int k = 0; k < 2; k++) {
            v.val[k] = vmulq_f32(vmulq_n_f32(vsubq_f32(v.val[k], vdupq_n_f32(mean)), inverse), factor.val[k]);
            if (b) v.val[k] = vaddq_f32(v.val[k], offset.val[k]);
        }
        store8(y + i, v, n - i);
    }
}

/* ---- activations, sums
   ---------------------------------------------------------------------------------------------- */

/* a / (1 + exp(-t)). With e = exp(-|t|), which cannot overflow: a / (1 + e) for t >= 0, a * e / (1 + e) below. */
static float32x4_t times_sigmoid(float32x4_t a, float32x4_t t) {
    const float32x4_t e = exp_negative(vnegq_f32(vabsq_f32(t)));
    const uint32x4_t negative = vcltzq_s32(vreinterpretq_s32_f32(t));
    return vdivq_f32(vbslq_f32(negative, vmulq_f32(a, e), a), vaddq_f32(vdupq_n_f32(1.0f), e));
}

static float32x4_t silu(float32x4_t a) { return times_sigmoid(a, a); }
static float32x4_t sigmoid(float32x4_t a) { return times_sigmoid(vdupq_n_f32(1.0f), a); }

/* The argument a (c + d a^2) with c = 2 sqrt(2 / pi), d = 0.044715 c. */
static float32x4_t gelu_tanh(float32x4_t a) {
    const float32x4_t inner = vmulq_f32(vmulq_n_f32(a, 0x1.2444f2p-4f), a);
    return times_sigmoid(a, vmulq_f32(a, vaddq_f32(vdupq_n_f32(0x1.988454p+0f), inner)));
}

/* One loop for all: inlined with a constant act. */
static BASE_ALWAYS_INLINE void act_row(float32x4_t (*act)(float32x4_t), const float *a, const float *up, float *y,
                                       int64_t n) {
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(a + i, n - i);
        for (int k = 0; k < 2; k++) v.val[k] = act(v.val[k]);
        if (up) {
            const float32x4x2_t u = load8(up + i, n - i);
            for (int k = 0; k < 2; k++) v.val[k] = vmulq_f32(v.val[k], u.val[k]);
        }
        store8(y + i, v, n - i);
    }
}

static void silu_row(const float *a, const float *up, float *y, int64_t n) { act_row(silu, a, up, y, n); }
static void gelu_tanh_row(const float *a, const float *up, float *y, int64_t n) { act_row(gelu_tanh, a, up, y, n); }
static void sigmoid_row(const float *a, const float *up, float *y, int64_t n) { act_row(sigmoid, a, up, y, n); }

/* FMIN and FMAX let a NaN through. */
static void swiglu_oai_row(const float *a, const float *up, float *y, int64_t n) {
    const float32x4_t seven = vdupq_n_f32(7.0f), below = vdupq_n_f32(-7.0f), one = vdupq_n_f32(1.0f);
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(a + i, n - i);
        const float32x4x2_t ups = load8(up + i, n - i);
        for (int k = 0; k < 2; k++) {
            const float32x4_t g = vminq_f32(seven, v.val[k]), u = vminq_f32(seven, vmaxq_f32(below, ups.val[k]));
            v.val[k] = vmulq_f32(times_sigmoid(g, vmulq_n_f32(g, 1.702f)), vaddq_f32(u, one));
        }
        store8(y + i, v, n - i);
    }
}

static void add(const float *a, const float *b, float factor, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(a + i, n - i);
        const float32x4x2_t more = load8(b + i, n - i);
        for (int k = 0; k < 2; k++) v.val[k] = vaddq_f32(v.val[k], vmulq_n_f32(more.val[k], factor));
        store8(y + i, v, n - i);
    }
}

/* tanh(t) = (1 - e) / (1 + e) with e = exp(-2 |t|), and the sign of t: off by 2^-23 of the cap. */
static void soft_cap(float *x, float cap, int64_t n) {
    const uint32x4_t sign = vdupq_n_u32(0x80000000u);
    const float32x4_t one = vdupq_n_f32(1.0f);
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t v = load8(x + i, n - i);
        for (int k = 0; k < 2; k++) {
            const float32x4_t t = vdivq_f32(v.val[k], vdupq_n_f32(cap));
            const float32x4_t e = exp_negative(vnegq_f32(vabsq_f32(vaddq_f32(t, t))));
            const float32x4_t capped = vmulq_n_f32(vdivq_f32(vsubq_f32(one, e), vaddq_f32(one, e)), cap);
            v.val[k] = vbslq_f32(sign, t, capped);
        }
        store8(x + i, v, n - i);
    }
}

/* ---- rotation ---------------------------------------------------------------------------------------------------
 * Not fused, so that the tail below and generic/ give the same bits. */

/* Four pairs (a, b) by angles that alternate cos and sin. */
static float32x4x2_t rotate4(float32x4x2_t v, const float *cs) {
    const float32x4x2_t angle = vld2q_f32(cs);
    const float32x4_t c = angle.val[0], s = angle.val[1];
    return (float32x4x2_t){{vsubq_f32(vmulq_f32(v.val[0], c), vmulq_f32(v.val[1], s)),
                            vaddq_f32(vmulq_f32(v.val[1], c), vmulq_f32(v.val[0], s))}};
}

static void rotate_pair(const float *x, const float *cs, int64_t a, int64_t b, float *y) {
    const float xa = x[a], xb = x[b];
    y[a] = xa * cs[0] - xb * cs[1];
    y[b] = xb * cs[0] + xa * cs[1];
}

/* Pairs (2i, 2i+1). */
static void rope_adjacent(const float *x, const float *cs, int64_t n_pairs, float *y) {
    int64_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) vst2q_f32(y + 2 * i, rotate4(vld2q_f32(x + 2 * i), cs + 2 * i));
    for (; i < n_pairs; i++) rotate_pair(x, cs + 2 * i, 2 * i, 2 * i + 1, y);
}

/* Pairs (i, i + n_pairs). */
static void rope_halves(const float *x, const float *cs, int64_t n_pairs, float *y) {
    int64_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        const float32x4x2_t v = rotate4((float32x4x2_t){{vld1q_f32(x + i), vld1q_f32(x + i + n_pairs)}}, cs + 2 * i);
        vst1q_f32(y + i, v.val[0]);
        vst1q_f32(y + i + n_pairs, v.val[1]);
    }
    for (; i < n_pairs; i++) rotate_pair(x, cs + 2 * i, i, i + n_pairs, y);
}

static void rope(const float *x, const float *cs, int64_t n_heads, int64_t dim, int64_t rot_dim, bool neox, float *y) {
    BASE_DCHECK(rot_dim % 2 == 0 && rot_dim <= dim);
    for (int64_t h = 0; h < n_heads; h++, x += dim, y += dim) {
        if (neox) {
            rope_halves(x, cs, rot_dim / 2, y);
        } else {
            rope_adjacent(x, cs, rot_dim / 2, y);
        }
        if (x != y) memcpy(y + rot_dim, x + rot_dim, (size_t)(dim - rot_dim) * sizeof *y);
    }
}

void neon_vector_entries(kernel_table *t) {
    t->quantize_row = quantize_row;
    t->softmax = softmax;
    t->rms_norm = rms_norm;
    t->layer_norm = layer_norm;
    t->act[KERNEL_SILU] = silu_row;
    t->act[KERNEL_GELU_TANH] = gelu_tanh_row;
    t->act[KERNEL_SWIGLU_OAI] = swiglu_oai_row;
    t->act[KERNEL_SIGMOID] = sigmoid_row;
    t->add = add;
    t->soft_cap = soft_cap;
    t->rope = rope;
}
