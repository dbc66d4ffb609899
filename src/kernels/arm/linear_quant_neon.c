/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_neon.c: products of quantized weights without SDOT (lanes_quant.inc has all except the integer sums).
 *
 * SMULL multiplies signed bytes to 16 bits. With |x| <= 127 (kernels.h) two products fit in 16 bits at |w| = 128, and
 * eight up to
 * |w| = 32: as many dwords as fit are added there, then pairs are added and widened. */
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) { return (void)f, 0; }

#include "kernels/lanes/lanes_formats.inc"

static BASE_ALWAYS_INLINE void lanes_arrange(lanes_bytes q[8]) { (void)q; }

/* Number of products with a sum that fits in 16 bits: 2, 4 or 8. */
static BASE_ALWAYS_INLINE int products_that_fit(const format_traits *f) {
    const int n = INT16_MAX / (127 * BASE_MAX(-f->lowest, f->highest));
    return n >= 8 ? 8 : n >= 4 ? 4
                               : 2;
}

/* A row's dword in all lanes. */
static BASE_ALWAYS_INLINE int8x16_t broadcast_dword(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return vreinterpretq_s8_s32(vdupq_n_s32(v));
}

/* The products of dwords [begin, end) with one row. */
static BASE_ALWAYS_INLINE int32x4_t row_sum(const format_traits *f, const lanes_bytes q[8], const uint8_t *x, int begin,
                                            int end) {
    const int run = BASE_MIN(end - begin, products_that_fit(f));
    int32x4_t low = vdupq_n_s32(0), high = low; /* lanes 0 and 1, 2 and 3: two sums each */
    BASE_UNROLL
    for (int first = begin; first < end; first += run) {
        int16x8_t a = vdupq_n_s16(0), b = a;
        BASE_UNROLL
        for (int g = first; g < first + run; g++) {
            const int8x16_t w = vreinterpretq_s8_u8(q[g]), v = broadcast_dword(x + 4 * g);
            a = g == first ? vmull_s8(vget_low_s8(w), vget_low_s8(v)) : vmlal_s8(a, vget_low_s8(w), vget_low_s8(v));
            b = g == first ? vmull_high_s8(w, v) : vmlal_high_s8(b, w, v);
        }
        low = vpadalq_s16(low, a);
        high = vpadalq_s16(high, b);
    }
    return vpaddq_s32(low, high);
}

static BASE_ALWAYS_INLINE void lanes_sums(const format_traits *f, int n_rows, int n_groups,
                                          const lanes_bytes *const q[2], const uint8_t *x, const uint8_t *c,
                                          int64_t x_stride, int k, lanes_ints *sum) {
    const int n = 8 / f->n_scales;
    (void)c;
    BASE_UNROLL
    for (int i = 0; i < n_rows * n_groups; i++) {
        sum[i] = row_sum(f, q[i % n_groups], x + i / n_groups * x_stride, n * k, n * k + n);
        LANES_KEEP(sum[i]);
    }
}

#include "kernels/lanes/lanes_quant.inc"

void neon_linear_quant_entries(kernel_table *t) { lanes_quant_entries(t); }
