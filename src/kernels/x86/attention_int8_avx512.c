/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int8_avx512.c: scores and values of int8 KV with VPDPWSSD in 512 bits, which adds both products of a pair to
 * a sum. */
#include <stdbool.h>

#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/x86.h"

#define INT8_SUMS 16

static BASE_ALWAYS_INLINE lanes_ints int8_zero(void) { return _mm512_set1_epi32(0); }

static BASE_ALWAYS_INLINE lanes_ints int8_codes(const int8_t *p) { return _mm512_cvtepi8_epi16(load_halves((const uint8_t *)p)); }

static BASE_ALWAYS_INLINE lanes_ints int8_add_products(lanes_ints sums, lanes_ints x, lanes_ints codes) {
    return _mm512_dpwssd_epi32(sums, x, codes);
}

static BASE_ALWAYS_INLINE lanes_ints int8_load_sums(const int32_t *p) { return _mm512_loadu_si512(p); }
static BASE_ALWAYS_INLINE void int8_store_sums(int32_t *p, lanes_ints v) { _mm512_storeu_si512(p, v); }

#include "kernels/x86/lanes_int8.inc"

void avx512_attention_int8_entries(kernel_table *t) { lanes_int8_entries(t); }
