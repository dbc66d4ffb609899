/* SPDX-License-Identifier: Apache-2.0 */
/* linear_float_avx512.c: products of F32, F16 and BF16 weights (lanes_float.inc).
 *
 * BF16 weights are widened to f32, as at every level. VDPBF16PS is not used: it multiplies bf16 by bf16, which would
 * cost activations 16 bits; it adds pairs of products that are two steps of a chain here; and it treats subnormal
 * numbers as zeros. */
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_float.inc"

void avx512_linear_float_entries(kernel_table *t) { lanes_float_entries(t); }
