/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_i8mm.c: products of quantized weights with SMMLA. It multiplies two rows of eight signed bytes by two
 * others and adds the 2 x 2 results, exactly:
 *
 *   weights   pair of outputs: 8 inputs of the one, 8 of the other;   x   the same of a pair of rows
 *   result    x0 w0, x0 w1, x1 w0, x1 w1;   two of them (outputs 0 and 1, 2 and 3) are combined to a vector for each
 *         row
 *
 * A row without a partner is paired with itself, and half of the result is discarded. The integers are those of every
 * other level. */
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) { return (void)f, 0; }

#include "kernels/lanes/lanes_formats.inc"

/* Each half piece, four dwords of four outputs: inputs 0..7 of outputs 0 and 1, of 2 and 3; inputs 8..15 of 0 and 1, of
   2 and 3. */
static BASE_ALWAYS_INLINE void lanes_arrange(lanes_bytes q[8]) {
    BASE_UNROLL
    for (int i = 0; i < 8; i += 2) {
        const uint32x4_t a = vreinterpretq_u32_u8(q[i]), b = vreinterpretq_u32_u8(q[i + 1]);
        q[i] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
        q[i + 1] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
    }
}

/* Half a piece of a pair of rows: inputs 0..7 of both, 8..15 of both. */
typedef struct row_pair {
    int8x16_t low, high;
} row_pair;

static BASE_ALWAYS_INLINE row_pair load_pair(const uint8_t *a, const uint8_t *b) {
    const uint64x2_t first = vreinterpretq_u64_u8(vld1q_u8(a)), second = vreinterpretq_u64_u8(vld1q_u8(b));
    return (row_pair){vreinterpretq_s8_u64(vzip1q_u64(first, second)), vreinterpretq_s8_u64(vzip2q_u64(first, second))};
}

/* Adds half a piece of two outputs, w[0] and w[2]. */
static BASE_ALWAYS_INLINE int32x4_t pair_sum(int32x4_t sum, row_pair x, const lanes_bytes *w) {
    sum = vmmlaq_s32(sum, x.low, vreinterpretq_s8_u8(w[0]));
    return vmmlaq_s32(sum, x.high, vreinterpretq_s8_u8(w[2]));
}

static BASE_ALWAYS_INLINE void lanes_sums(const format_traits *f, int n_rows, int n_groups,
                                          const lanes_bytes *const q[2], const uint8_t *x, const uint8_t *c,
                                          int64_t x_stride, int k, lanes_ints *sum) {
    const int begin = f->n_scales == 2 ? k : 0, end = f->n_scales == 2 ? k + 1 : 2; /* halves of the piece */
    (void)c;
    BASE_UNROLL
    for (int r = 0; r < n_rows; r += 2) {
        const bool two = r + 1 < n_rows;
        int32x4_t low[2], high[2]; /* outputs 0 and 1, 2 and 3, of either group */
        for (int p = 0; p < n_groups; p++) low[p] = high[p] = vdupq_n_s32(0);
        BASE_UNROLL
        for (int h = begin; h < end; h++) {
            const uint8_t *first = x + r * x_stride + 16 * h;
            const row_pair v = load_pair(first, two ? first + x_stride : first);
            BASE_UNROLL
            for (int p = 0; p < n_groups; p++) {
                low[p] = pair_sum(low[p], v, q[p] + 4 * h);
                high[p] = pair_sum(high[p], v, q[p] + 4 * h + 1);
            }
        }
        BASE_UNROLL
        for (int p = 0; p < n_groups; p++) {
            const int64x2_t a = vreinterpretq_s64_s32(low[p]), b = vreinterpretq_s64_s32(high[p]);
            sum[r * n_groups + p] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
            if (two) sum[(r + 1) * n_groups + p] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
        }
    }
}

#include "kernels/lanes/lanes_quant.inc"

void kernel_table_i8mm(kernel_table *t) {
    t->name = "i8mm";
    lanes_quant_entries(t);
}
