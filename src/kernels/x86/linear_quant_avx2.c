/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_avx2.c: products of quantized weights with AVX2, eight outputs a vector (lanes_quant.inc has all
 * except the integer sums).
 *
 * VPMADDUBSW multiplies unsigned by signed bytes and adds pairs with saturation to 16 bits; |x| <= 127 (kernels.h). As
 * many pairs as fit are added in 16 bits before they are widened. If q has up to 64 values, weights are q - lowest,
 * which is unsigned, and lowest * (sum of x) is added at the end. Others are split as |w| * (sign(w) x): a pair is at
 * most 2 * 127 * 128 = 32512 in Q8_0 (w = -128 included: |w| is unsigned). */
#include "base/check.h"
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) {
    return f->highest - f->lowest < 64 ? f->lowest : 0;
}

static BASE_ALWAYS_INLINE bool is_signed(const format_traits *f) { return f->lowest < 0 && lanes_zero_point(f) == 0; }

#include "kernels/lanes/lanes_formats.inc"

static BASE_ALWAYS_INLINE void lanes_arrange(lanes_bytes q[8]) { (void)q; }

/* Number of VPMADDUBSW results with a sum that fits in 16 bits: 1, 2, 4 or 8. */
static BASE_ALWAYS_INLINE int pairs_that_fit(const format_traits *f) {
    const int highest = BASE_MAX(f->highest - lanes_zero_point(f), is_signed(f) ? -f->lowest : 0);
    BASE_DCHECK(highest > 0 && highest <= 128);
    const int n = INT16_MAX / (2 * 127 * highest);
    return n >= 8 ? 8 : n >= 4 ? 4
                    : n >= 2   ? 2
                               : 1;
}

/* Pairs of dword g of a piece with v. */
static BASE_ALWAYS_INLINE __m256i pairs(const format_traits *f, const lanes_bytes *q, int g, __m256i v) {
    if (!is_signed(f)) return _mm256_maddubs_epi16(q[g], v);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(q[g]), _mm256_sign_epi8(v, q[g]));
}

/* sum[r * n_groups + p] = the products of dwords [begin, end) of a piece of group p with row r. LANES_KEEP:
 * without it the compiler regroups these sums until all registers are spilled, at half the speed. */
static BASE_ALWAYS_INLINE void dword_sums(const format_traits *f, int n_rows, int n_groups,
                                          const lanes_bytes *const q[2], const uint8_t *x, int64_t x_stride, int begin,
                                          int end, lanes_ints *sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int fit = pairs_that_fit(f),
              step = BASE_MIN(fit, 2); /* fit <= 2: widened with each step, otherwise at the end */
    BASE_DCHECK((end - begin) % step == 0 && (fit <= 2 || end - begin <= fit));
    BASE_UNROLL
    for (int g = begin; g < end; g += step) {
        BASE_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *dword = x + r * x_stride + 4 * g;
            const __m256i v = lanes_broadcast_dword(dword), after = step == 2 ? lanes_broadcast_dword(dword + 4) : v;
            BASE_UNROLL
            for (int p = 0; p < n_groups; p++) {
                lanes_ints *s = &sum[r * n_groups + p];
                __m256i more = pairs(f, q[p], g, v);
                if (step == 2) more = _mm256_add_epi16(more, pairs(f, q[p], g + 1, after));
                if (fit <= 2) more = _mm256_madd_epi16(more, ones);
                *s = g == begin ? more : fit <= 2 ? _mm256_add_epi32(*s, more)
                                                  : _mm256_add_epi16(*s, more);
                LANES_KEEP(*s);
            }
        }
    }
    if (fit <= 2) return;
    BASE_UNROLL
    for (int i = 0; i < n_rows * n_groups; i++) sum[i] = _mm256_madd_epi16(sum[i], ones);
}

static BASE_ALWAYS_INLINE void lanes_sums(const format_traits *f, int n_rows, int n_groups,
                                          const lanes_bytes *const q[2], const uint8_t *x, const uint8_t *c,
                                          int64_t x_stride, int k, lanes_ints *sum) {
    const int n = 8 / f->n_scales, begin = n * k, step = pairs_that_fit(f) > 2 ? BASE_MIN(n, pairs_that_fit(f)) : n;
    dword_sums(f, n_rows, n_groups, q, x, x_stride, begin, begin + step, sum);
    if (step < n) {
        lanes_ints more[8];
        dword_sums(f, n_rows, n_groups, q, x, x_stride, begin + step, begin + n, more);
        BASE_UNROLL
        for (int i = 0; i < n_rows * n_groups; i++) sum[i] = _mm256_add_epi32(sum[i], more[i]);
    }
    if (lanes_zero_point(f) == 0) return;
    BASE_UNROLL
    for (int r = 0; r < n_rows; r++) {
        const lanes_ints offset = lanes_times_sums(lanes_zero_point(f), c + r * x_stride, k == 0, k == f->n_scales - 1);
        BASE_UNROLL
        for (int p = 0; p < n_groups; p++) sum[r * n_groups + p] = _mm256_add_epi32(sum[r * n_groups + p], offset);
    }
}

#include "kernels/lanes/lanes_quant.inc"

void avx2_linear_quant_entries(kernel_table *t) { lanes_quant_entries(t); }
