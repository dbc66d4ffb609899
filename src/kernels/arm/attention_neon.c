/* SPDX-License-Identifier: Apache-2.0 */
/* attention_neon.c: scores, values and stores of f16 KV (lanes_attention.inc). */
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"
#include "kernels/lanes/lanes_attention.inc"

void neon_attention_entries(kernel_table *t) { lanes_attention_entries(t); }
