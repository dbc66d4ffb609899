/* SPDX-License-Identifier: Apache-2.0 */
/* linear_quant_avx512.c: products of quantized weights with AVX-512 VNNI, sixteen outputs a vector. */
#include "base/check.h"
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/x86.h"

static BASE_ALWAYS_INLINE int lanes_zero_point(const format_traits *f) { return f->lowest; }

/* sum plus the four products of unsigned w by signed v in each lane. */
static BASE_ALWAYS_INLINE lanes_ints lanes_dot(lanes_ints sum, lanes_bytes w, lanes_bytes v) {
    return _mm512_dpbusd_epi32(sum, w, v);
}

#include "kernels/lanes/lanes_formats.inc"
#include "kernels/x86/lanes_vnni.inc"
#include "kernels/lanes/lanes_quant.inc"

kernel_linear_fn avx512_linear_quant(kernel_type t) {
    BASE_DCHECK(kernel_type_quantized(t));
    static const kernel_linear_fn products[KERNEL_TYPE_END] = {
#define X(NAME, name, ...) [KERNEL_##NAME] = linear_##name,
        FORMAT_TYPES(X)
#undef X
    };
    return products[t];
}

/* The functions of one row are AVX2's: their share of the time is small. */
void kernel_table_avx512(kernel_table *t) {
    t->name = "avx512";
    t->side = LANES;
    lanes_quant_entries(t);
    avx512_linear_float_entries(t);
    avx512_attention_entries(t);
    avx512_recurrence_entries(t);
    avx512_attention_int8_entries(t);
}
