/* SPDX-License-Identifier: Apache-2.0 */
/* vector_avx2.c: the functions of one row: quantization of activations, softmax, norms, activations, sums, rotation.
 * The exact GELU, the squared ReLU, scale and clamp are those of generic/.
 *
 * Element-wise results do not depend on n. Sums (softmax, norms) are kept in double in 8 lanes, element i in lane
 * i % 8, and folded 8 -> 4 -> 2 -> 1; a tail is filled with zeros. quantize_row, add and rope give the bits of
 * generic/.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_exp.inc"

void kernel_table_avx2(kernel_table *t) {
    t->name = "avx2";
    t->side = 8;
    avx2_linear_float_entries(t);
    avx2_linear_quant_entries(t);
    avx2_attention_entries(t);
    avx2_attention_int8_entries(t);
    avx2_attention_bits_entries(t);
    avx2_vector_entries(t);
    avx2_recurrence_entries(t);
}

static __m256 absolute(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

/* ---- reductions ------------------------------------------------------------------------------------------------- */

typedef struct sum8 {
    __m256d low, high; /* lanes 0..3, 4..7 */
} sum8;

static inline void sum8_add(sum8 *s, __m256 v) {
    s->low = _mm256_add_pd(s->low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    s->high = _mm256_add_pd(s->high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

static inline void sum8_add_squares(sum8 *s, __m256 v) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    s->low = _mm256_fmadd_pd(low, low, s->low);
    s->high = _mm256_fmadd_pd(high, high, s->high);
}

static double sum8_total(const sum8 *s) {
    const __m256d four = _mm256_add_pd(s->low, s->high);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static float max8(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* {sum of a, sum of b}. */
static void sums8_i32(__m256i a, __m256i b, int32_t sum[2]) {
    const __m256i pairs = _mm256_hadd_epi32(a, b);
    const __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storel_epi64((__m128i *)(void *)sum, _mm_hadd_epi32(s, s));
}

/* ---- quantization of activations
   ------------------------------------------------------------------------------------- */

static void quantize_block(const float *x, uint8_t *q, float *d, float *s, float h[2], int16_t c[2]) {
    __m256 v[4];
    __m256i i[4];
    for (int k = 0; k < 4; k++) v[k] = _mm256_loadu_ps(x + 8 * k);
    const __m256 largest = _mm256_max_ps(_mm256_max_ps(absolute(v[0]), absolute(v[1])),
                                         _mm256_max_ps(absolute(v[2]), absolute(v[3])));
    const float max = max8(largest);
    const float inverse = max < KERNEL_Q8_TINY ? 0.0f : 127.0f / max;
    for (int k = 0; k < 4; k++) i[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v[k], _mm256_set1_ps(inverse)));
    int32_t sum[2];
    sums8_i32(_mm256_add_epi32(i[0], i[1]), _mm256_add_epi32(i[2], i[3]), sum);
    *d = max < KERNEL_Q8_TINY ? 0.0f : max / 127.0f;
    *s = *d * (float)(sum[0] + sum[1]);
    for (int k = 0; k < 2; k++) {
        h[k] = *d * (float)sum[k];
        c[k] = (int16_t)sum[k];
    }
    /* Packing works in 128-bit halves, which leaves groups of four in the order 0 2 4 6 | 1 3 5 7. */
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_permutevar8x32_epi32(bytes, order));
}

static void quantize_row(const float *x, void *q8, int64_t n) {
    uint8_t *row = q8;
    BASE_DCHECK(n % KERNEL_Q8_BLOCK == 0);
    for (int64_t b = 0; b < n / 32; b++) {
        float d, s, h[2];
        int16_t c[2];
        quantize_block(x + 32 * b, row + 32 * b, &d, &s, h, c);
        memcpy(row + KERNEL_Q8_D(n) + 4 * b, &d, sizeof d);
        memcpy(row + KERNEL_Q8_S(n) + 4 * b, &s, sizeof s);
        memcpy(row + KERNEL_Q8_H(n) + 8 * b, h, sizeof h);
        memcpy(row + KERNEL_Q8_C(n) + 4 * b, c, sizeof c);
    }
}

/* ---- exponential ------------------------------------------------------------------------------------------------ */

/* exp(x) for x <= 0; 0 below -87.3; a NaN passes through. */
static __m256 exp_negative(__m256 x) {
    const __m256 in_range = _mm256_cmp_ps(x, _mm256_set1_ps(LANES_EXP_LEAST), _CMP_NLT_UQ);
    return _mm256_and_ps(lanes_exp(x), in_range);
}

static float row_max(const float *x, int64_t n) {
    BASE_DCHECK(n > 0);
    __m256 max = _mm256_set1_ps(x[0]);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) max = _mm256_max_ps(_mm256_loadu_ps(x + i), max);
    float m = max8(max);
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

static float softmax(float *x, int64_t n) {
    BASE_DCHECK(n >= 1);
    const __m256 max = _mm256_set1_ps(row_max(x, n));
    sum8 sum = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 e = exp_negative(_mm256_sub_ps(_mm256_loadu_ps(x + i), max));
        _mm256_storeu_ps(x + i, e);
        sum8_add(&sum, e);
    }
    if (i < n) {
        const __m256 used = _mm256_castsi256_ps(avx2_first_lanes(n - i));
        const __m256 e = exp_negative(_mm256_sub_ps(avx2_load_first(x + i, n - i), max));
        avx2_store_first(x + i, e, n - i);
        sum8_add(&sum, _mm256_and_ps(e, used));
    }
    return (float)(1.0 / sum8_total(&sum));
}

/* ---- norm, gate, add -------------------------------------------------------------------------------------------- */

static void rms_norm(const float *x, const float *w, float eps, float *y, int64_t n) {
    BASE_DCHECK(n > 0);
    sum8 sum = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    for (int64_t i = 0; i < n; i += 8) sum8_add_squares(&sum, avx2_load_first(x + i, BASE_MIN(8, n - i)));
    const __m256 inverse = _mm256_set1_ps((float)(1.0 / sqrt(sum8_total(&sum) / (double)n + (double)eps)));
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        const __m256 v = _mm256_mul_ps(avx2_load_first(x + i, lanes), inverse);
        avx2_store_first(y + i, _mm256_mul_ps(v, avx2_load_first(w + i, lanes)), lanes);
    }
}

/* Two passes, the second over differences from the mean, as in generic/. */
static void layer_norm(const float *x, const float *w, const float *b, float eps, float *y, int64_t n) {
    BASE_DCHECK(n > 0);
    sum8 sum = {_mm256_setzero_pd(), _mm256_setzero_pd()}, squares = sum;
    for (int64_t i = 0; i < n; i += 8) sum8_add(&sum, avx2_load_first(x + i, BASE_MIN(8, n - i)));
    const __m256 mean = _mm256_set1_ps((float)(sum8_total(&sum) / (double)n));
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        const __m256 d = _mm256_sub_ps(avx2_load_first(x + i, lanes), mean);
        sum8_add_squares(&squares, _mm256_and_ps(d, _mm256_castsi256_ps(avx2_first_lanes(lanes))));
    }
    const __m256 inverse = _mm256_set1_ps((float)(1.0 / sqrt(sum8_total(&squares) / (double)n + (double)eps)));
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(avx2_load_first(x + i, lanes), mean), inverse);
        v = _mm256_mul_ps(v, avx2_load_first(w + i, lanes));
        avx2_store_first(y + i, b ? _mm256_add_ps(v, avx2_load_first(b + i, lanes)) : v, lanes);
    }
}

/* a / (1 + exp(-t)). With e = exp(-|t|), which cannot overflow: a / (1 + e) for t >= 0, a * e / (1 + e) below. */
static __m256 times_sigmoid(__m256 a, __m256 t) {
    const __m256 e = exp_negative(_mm256_or_ps(t, _mm256_set1_ps(-0.0f)));
    const __m256 numerator = _mm256_blendv_ps(a, _mm256_mul_ps(a, e), t); /* chooses by the sign of t */
    return _mm256_div_ps(numerator, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static __m256 silu(__m256 a) { return times_sigmoid(a, a); }
static __m256 sigmoid(__m256 a) { return times_sigmoid(_mm256_set1_ps(1.0f), a); }

/* The argument a (c + d a^2) with c = 2 sqrt(2 / pi), d = 0.044715 c. */
static __m256 gelu_tanh(__m256 a) {
    const __m256 inner = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0x1.2444f2p-4f), a), a);
    return times_sigmoid(a, _mm256_mul_ps(a, _mm256_add_ps(_mm256_set1_ps(0x1.988454p+0f), inner)));
}

/* One loop for all: inlined with a constant act. */
static BASE_ALWAYS_INLINE void act_row(__m256 (*act)(__m256), const float *a, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        const __m256 v = act(avx2_load_first(a + i, lanes));
        avx2_store_first(y + i, up ? _mm256_mul_ps(v, avx2_load_first(up + i, lanes)) : v, lanes);
    }
}

static void silu_row(const float *a, const float *up, float *y, int64_t n) { act_row(silu, a, up, y, n); }
static void gelu_tanh_row(const float *a, const float *up, float *y, int64_t n) { act_row(gelu_tanh, a, up, y, n); }
static void sigmoid_row(const float *a, const float *up, float *y, int64_t n) { act_row(sigmoid, a, up, y, n); }

/* min and max return the second operand for a NaN: the NaN passes through. */
static void swiglu_oai_row(const float *a, const float *up, float *y, int64_t n) {
    const __m256 seven = _mm256_set1_ps(7.0f), below = _mm256_set1_ps(-7.0f);
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        const __m256 g = _mm256_min_ps(seven, avx2_load_first(a + i, lanes));
        const __m256 u = _mm256_min_ps(seven, _mm256_max_ps(below, avx2_load_first(up + i, lanes)));
        const __m256 v = times_sigmoid(g, _mm256_mul_ps(_mm256_set1_ps(1.702f), g));
        avx2_store_first(y + i, _mm256_mul_ps(v, _mm256_add_ps(u, _mm256_set1_ps(1.0f))), lanes);
    }
}

static void add(const float *a, const float *b, float factor, float *y, int64_t n) {
    const __m256 f = _mm256_set1_ps(factor);
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        const __m256 scaled = _mm256_mul_ps(f, avx2_load_first(b + i, lanes));
        avx2_store_first(y + i, _mm256_add_ps(avx2_load_first(a + i, lanes), scaled), lanes);
    }
}

/* tanh(t) = (1 - e) / (1 + e) with e = exp(-2 |t|), and the sign of t: off by 2^-23 of the cap. */
static void soft_cap(float *x, float cap, int64_t n) {
    BASE_DCHECK(cap > 0);
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f), c = _mm256_set1_ps(cap);
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t lanes = BASE_MIN(8, n - i);
        const __m256 t = _mm256_div_ps(avx2_load_first(x + i, lanes), c);
        const __m256 e = exp_negative(_mm256_or_ps(_mm256_add_ps(t, t), sign));
        const __m256 v = _mm256_mul_ps(c, _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e)));
        avx2_store_first(x + i, _mm256_or_ps(v, _mm256_and_ps(t, sign)), lanes);
    }
}

/* ---- rotation ----------------------------------------------------------------------------------------------------
 * Not fused, so that the tail below and generic/ give the same bits. */

static void rotate_pair(const float *x, const float *cs, int64_t a, int64_t b, float *y) {
    const float xa = x[a], xb = x[b];
    y[a] = xa * cs[0] - xb * cs[1];
    y[b] = xb * cs[0] + xa * cs[1];
}

/* Four pairs (2i, 2i+1) a step: addsub subtracts in even lanes and adds in odd ones. */
static void rope_adjacent(const float *x, const float *cs, int64_t n_pairs, float *y) {
    int64_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        const __m256 v = _mm256_loadu_ps(x + 2 * i), angle = _mm256_loadu_ps(cs + 2 * i);
        const __m256 swapped = _mm256_permute_ps(v, 0xb1);
        const __m256 by_cos = _mm256_mul_ps(v, _mm256_moveldup_ps(angle));
        const __m256 by_sin = _mm256_mul_ps(swapped, _mm256_movehdup_ps(angle));
        _mm256_storeu_ps(y + 2 * i, _mm256_addsub_ps(by_cos, by_sin));
    }
    for (; i < n_pairs; i++) rotate_pair(x, cs + 2 * i, 2 * i, 2 * i + 1, y);
}

/* Eight pairs (i, i + n_pairs) a step; cos and sin are separated first. */
static void rope_halves(const float *x, const float *cs, int64_t n_pairs, float *y) {
    int64_t i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + n_pairs);
        const __m256 low = _mm256_loadu_ps(cs + 2 * i), high = _mm256_loadu_ps(cs + 2 * i + 8);
        const __m256d c_mixed = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
        const __m256d s_mixed = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
        const __m256 c = _mm256_castpd_ps(_mm256_permute4x64_pd(c_mixed, 0xd8));
        const __m256 s = _mm256_castpd_ps(_mm256_permute4x64_pd(s_mixed, 0xd8));
        _mm256_storeu_ps(y + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(y + i + n_pairs, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
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

void avx2_vector_entries(kernel_table *t) {
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
