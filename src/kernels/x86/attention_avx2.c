/* SPDX-License-Identifier: Apache-2.0 */
/* attention_avx2.c: scores, values and stores of f16 KV (lanes_attention.inc). */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_attention.inc"

void avx2_attention_entries(kernel_table *t) { lanes_attention_entries(t); }
