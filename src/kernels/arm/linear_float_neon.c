/* SPDX-License-Identifier: Apache-2.0 */
/* linear_float_neon.c: products of F32, F16 and BF16 weights (lanes_float.inc). */
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"
#include "kernels/lanes/lanes_float.inc"

void neon_linear_float_entries(kernel_table *t) { lanes_float_entries(t); }
