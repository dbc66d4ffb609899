/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_dotprod.c: products of quantized weights with SDOT. It adds the four products of signed bytes in each
 * lane to its int32, exactly. Sixteen bytes of a row of x are loaded at once; the instruction selects the dword. */
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) { return (void)f, 0; }

#include "kernels/lanes/lanes_formats.inc"

static BASE_ALWAYS_INLINE void lanes_arrange(lanes_bytes q[8]) { (void)q; }

/* sum plus the products of half a piece. The dword's number must be a literal: it is part of the instruction. */
static BASE_ALWAYS_INLINE int32x4_t half_sum(int32x4_t sum, const lanes_bytes q[4], int8x16_t x) {
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[0]), x, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[1]), x, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[2]), x, 2);
    return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(q[3]), x, 3);
}

static BASE_ALWAYS_INLINE void lanes_sums(const format_traits *f, int n_rows, int n_groups,
                                          const lanes_bytes *const q[2], const uint8_t *x, const uint8_t *c,
                                          int64_t x_stride, int k, lanes_ints *sum) {
    const int begin = f->n_scales == 2 ? k : 0, end = f->n_scales == 2 ? k + 1 : 2; /* halves of the piece */
    (void)c;
    BASE_UNROLL
    for (int i = 0; i < n_rows * n_groups; i++) sum[i] = vdupq_n_s32(0);
    BASE_UNROLL
    for (int h = begin; h < end; h++) {
        BASE_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(x + r * x_stride + 16 * h));
            BASE_UNROLL
            for (int p = 0; p < n_groups; p++) sum[r * n_groups + p] = half_sum(sum[r * n_groups + p], q[p] + 4 * h, v);
        }
    }
}

#include "kernels/lanes/lanes_quant.inc"

void kernel_table_dotprod(kernel_table *t) {
    t->name = "dotprod";
    lanes_quant_entries(t);
}
