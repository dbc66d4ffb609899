/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bits_avx2.c: KV of 4 and 2 bits: lanes_bits.inc with the level's vectors. Its results are those of
 * attention_bits_generic.c, bit for bit. */
#include "kernels/lanes/lanes_bits.inc"
#include "kernels/x86/x86.h"

void avx2_attention_bits_entries(kernel_table *t) { lanes_bits_entries(t); }
