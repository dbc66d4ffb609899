/* SPDX-License-Identifier: Apache-2.0 */
/* linear_float_avx2.c: products of F32, F16 and BF16 weights (lanes_float.inc). */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_float.inc"

void avx2_linear_float_entries(kernel_table *t) { lanes_float_entries(t); }
