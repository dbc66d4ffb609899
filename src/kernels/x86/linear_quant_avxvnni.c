/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_avxvnni.c: products of quantized weights with AVX-VNNI, eight outputs a vector. All entries but these
 * and those of int8 KV are AVX2's. */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) { return f->lowest; }

/* sum plus the four products of unsigned w by signed v in each lane. */
static BASE_ALWAYS_INLINE lanes_ints lanes_dot(lanes_ints sum, lanes_bytes w, lanes_bytes v) {
    return _mm256_dpbusd_avx_epi32(sum, w, v);
}

#include "kernels/lanes/lanes_formats.inc"
#include "kernels/x86/lanes_vnni.inc"
#include "kernels/lanes/lanes_quant.inc"

void kernel_table_avxvnni(kernel_table *t) {
    t->name = "avxvnni";
    lanes_quant_entries(t);
    avxvnni_attention_int8_entries(t);
}
