/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_avxvnni.c: scores and values of int8 KV with VPDPWSSD, which adds both products of a pair to a sum. */
#include <stdbool.h>

#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"

static BASE_ALWAYS_INLINE lanes_ints int8_add_products(lanes_ints sums, lanes_ints x, lanes_ints codes) {
    return _mm256_dpwssd_avx_epi32(sums, x, codes);
}

#include "kernels/x86/lanes_int8_256.inc"
#include "kernels/x86/lanes_int8.inc"

void avxvnni_attention_int8_entries(kernel_table *t) { lanes_int8_entries(t); }
