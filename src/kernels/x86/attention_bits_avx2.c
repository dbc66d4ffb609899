/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bits_avx2.c: KV of 4 and 2 bits: lanes_bits.inc with the level's vectors, and values unpacked 32 dimensions
 * at a time. Its results are those of attention_bits_generic.c, bit for bit. */
#include <immintrin.h>

#include "base/check.h"
#include "kernels/lanes/lanes_bits.inc"
#include "kernels/x86/x86.h"

/* Bits [shift, shift + bits) of each byte, times 8. */
static BASE_ALWAYS_INLINE __m256i codes_of(__m256i bytes, int bits, int shift) {
    const __m256i moved = shift > 3 ? _mm256_srli_epi16(bytes, shift - 3) : _mm256_slli_epi16(bytes, 3 - shift);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(((1 << bits) - 1) << 3)));
}

/* As bits_unpack_pairs. */
static BASE_ALWAYS_INLINE void unpack_pairs(const uint8_t *from, int bits, int shift, int64_t dim,
                                            const uint8_t zero[2], int8_t *to) {
    BASE_DCHECK(shift + 2 * bits <= 8);
    const __m256i even_zero = _mm256_set1_epi8((char)zero[0]), odd_zero = _mm256_set1_epi8((char)zero[1]);
    int64_t d = 0;
    for (; d + 32 <= dim; d += 32) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(from + d));
        const __m256i even = _mm256_sub_epi8(codes_of(bytes, bits, shift), even_zero);
        const __m256i odd = _mm256_sub_epi8(codes_of(bytes, bits, shift + bits), odd_zero);
        const __m256i low = _mm256_unpacklo_epi8(even, odd), high = _mm256_unpackhi_epi8(even, odd);
        _mm256_storeu_si256((__m256i *)(to + 2 * d), _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(to + 2 * d + 32), _mm256_permute2x128_si256(low, high, 0x31));
    }
    bits_unpack_pairs(from + d, bits, shift, dim - d, zero, to + 2 * d);
}

static void unpack_values(const void *v, int bits, int64_t dim, void *out) {
    BASE_DCHECK(bits == 2 || bits == 4);
    const int64_t rows = 8 * bits;
    const uint8_t *from = v, *scales = from + rows * dim, *zeros = scales + 2 * KERNEL_SLOTS;
    int8_t *to = out;
    for (int64_t i = 0; i < rows && bits == 4; i++)
        unpack_pairs(from + i * dim, 4, 0, dim, zeros + 2 * i, to + 2 * i * dim);
    for (int64_t i = 0; i < rows && bits == 2; i++) {
        unpack_pairs(from + i * dim, 2, 0, dim, zeros + 2 * i, to + 2 * i * dim);
        unpack_pairs(from + i * dim, 2, 4, dim, zeros + 2 * (i + rows), to + 2 * (i + rows) * dim);
    }
    memcpy((uint8_t *)out + KERNEL_INT8_SCALES(dim), scales, 2 * KERNEL_SLOTS);
}

/* Eight of an array of f16, of which n are there. */
static BASE_ALWAYS_INLINE __m256 load_halves(const uint8_t *from, int64_t n) {
    BASE_DCHECK(n > 0);
    uint16_t some[8] = {0};
    if (n >= 8) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
    memcpy(some, from, (size_t)n * sizeof *some);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)some));
}

static float largest_of(__m256 x) {
    float lanes[8], most = 0;
    _mm256_storeu_ps(lanes, x);
    for (int i = 0; i < 8; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

static void key_ranges(const void *k, int bits, int64_t dim, kernel_ranges *out) {
    BASE_DCHECK(dim > 0 && dim % 2 == 0);
    const uint8_t *scales = (const uint8_t *)k + dim * KERNEL_SLOTS * bits / 8, *least = scales + 2 * dim;
    __m256 most = _mm256_setzero_ps();
    for (int64_t d = 0; d < dim; d += 8) most = _mm256_max_ps(most, load_halves(scales + 2 * d, dim - d));
    const float largest = largest_of(most);
    const __m256 factor = _mm256_set1_ps(largest > 0 ? 32767.0f / largest : 0.0f);
    for (int64_t d = 0; d < dim; d += 8) {
        const __m256i ints = _mm256_cvtps_epi32(_mm256_mul_ps(load_halves(scales + 2 * d, dim - d), factor));
        const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256(ints, 1));
        const __m256 from = load_halves(least + 2 * d, dim - d);
        const size_t n = dim - d >= 8 ? 8 : (size_t)(dim - d);
        int16_t some[8];
        float lanes[8];
        _mm_storeu_si128((__m128i *)some, packed);
        _mm256_storeu_ps(lanes, from);
        memcpy(out->scales + d, some, n * sizeof *some);
        memcpy(out->least + d, lanes, n * sizeof *lanes);
    }
    out->unit = largest * (32768.0f / 32767.0f);
}

/* As bits_fold_query, for a multiple of FOLD_CHAINS dimensions. */
static float fold_query(const float *q, const int16_t *ints, const kernel_ranges *ranges, int64_t dim, int16_t *out) {
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    if (dim % FOLD_CHAINS != 0) return bits_fold_query(q, ints, ranges, dim, out);
    for (int64_t d = 0; d < dim; d += FOLD_CHAINS) {
        for (int i = 0; i < 4; i++) {
            const __m256 product =
                _mm256_mul_ps(_mm256_loadu_ps(q + d + 8 * i), _mm256_loadu_ps(ranges->least + d + 8 * i));
            sums[i] = _mm256_add_ps(sums[i], product);
        }
        for (int i = 0; i < 2; i++) {
            const __m256i x = _mm256_loadu_si256((const __m256i *)(ints + d + 16 * i));
            const __m256i scale = _mm256_loadu_si256((const __m256i *)(ranges->scales + d + 16 * i));
            _mm256_storeu_si256((__m256i *)(out + d + 16 * i), _mm256_mulhrs_epi16(x, scale));
        }
    }
    const __m256 eight = _mm256_add_ps(_mm256_add_ps(sums[0], sums[2]), _mm256_add_ps(sums[1], sums[3]));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

void avx2_attention_bits_entries(kernel_table *t) {
    lanes_bits_entries(t);
    t->fold_query = fold_query;
    t->key_ranges = key_ranges;
    t->unpack_values = unpack_values;
}
