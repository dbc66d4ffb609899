/* SPDX-License-Identifier: Apache-2.0 */
/* attention_avx2.c: scores, values and stores of f16 KV (lanes_attention.inc), unpacking of fp8. */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_attention.inc"
#include "kernels/prefetch.h"

/* As fp8_to_f16, of 16 codes. The low byte of a subnormal number of fp8 is 0 in f16. */
static BASE_ALWAYS_INLINE __m256i fp8_to_halves(__m256i codes) {
    const __m256i subnormals = _mm256_broadcastsi128_si256(_mm_setr_epi8(0x00, 0x18, 0x1c, 0x1e, 0x20, 0x21, 0x22, 0x23, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f)), sign = _mm256_sub_epi16(codes, magnitude);
    const __m256i normal = _mm256_add_epi16(_mm256_slli_epi16(magnitude, 7), _mm256_set1_epi16(0x2000));
    const __m256i subnormal = _mm256_slli_epi16(_mm256_shuffle_epi8(subnormals, magnitude), 8);
    const __m256i finite = _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(7)));
    const __m256i quiet = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7e00));
    return _mm256_or_si256(_mm256_or_si256(finite, quiet), _mm256_slli_epi16(sign, 8));
}

static void unpack_fp8(const void *from, int64_t n, uint16_t *to, const void *next) {
    const uint8_t *codes = from;
    for (int64_t i = 0; i < n; i += 16) {
        if (i % 64 == 0) kernel_prefetch(next, i, 64);
        const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(codes + i)));
        _mm256_storeu_si256((__m256i *)(to + i), fp8_to_halves(wide));
    }
}

void avx2_attention_entries(kernel_table *t) {
    lanes_attention_entries(t);
    t->unpack_fp8 = unpack_fp8;
}
