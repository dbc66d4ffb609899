/* linear_float_avx2.c: products of F32, F16 and BF16 weights with f32 activations.
 *
 * Sixteen outputs are the lanes of two vectors; as with quantised weights no sum runs across lanes:
 *
 *   16 weight rows ──convert, transpose──> panel w[k][16], up to 256 inputs (16 KiB, stays in L1)
 *   panel x 6, 2 or 1 rows of x ─────────> y[r][o .. o+15], which holds the sums between two panels
 *
 * Order: acc = fma(w[k], x[k], acc) for k from 0 to n_in - 1, one chain for an element whatever the tile; no tails in
 * k. A group of fewer than 16 outputs repeats its last row in the idle lanes and does not store them.
 */
#include <string.h>

#include "kernels/half.h"
#include "kernels/x86/avx2.h"

#define LANES 16
#define PANEL_INPUTS 256

typedef struct panel {
    _Alignas(32) float w[PANEL_INPUTS][LANES];
} panel;

/* Four consecutive elements of row a (lower half) and of row b (upper half); and one element. */
typedef __m256 (*load_pair_fn)(const uint8_t *a, const uint8_t *b);
typedef float (*load_one_fn)(const uint8_t *p);

static BASE_ALWAYS_INLINE __m256 pair_f32(const uint8_t *a, const uint8_t *b) {
    const __m128i low = _mm_loadu_si128((const __m128i *)a), high = _mm_loadu_si128((const __m128i *)b);
    return _mm256_castsi256_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

static BASE_ALWAYS_INLINE __m128i pair_16_bits(const uint8_t *a, const uint8_t *b) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)a), _mm_loadl_epi64((const __m128i *)b));
}

static BASE_ALWAYS_INLINE __m256 pair_f16(const uint8_t *a, const uint8_t *b) {
    return _mm256_cvtph_ps(pair_16_bits(a, b));
}

static BASE_ALWAYS_INLINE __m256 pair_bf16(const uint8_t *a, const uint8_t *b) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(pair_16_bits(a, b)), 16));
}

static BASE_ALWAYS_INLINE float one_f32(const uint8_t *p) {
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static BASE_ALWAYS_INLINE float one_f16(const uint8_t *p) { return _cvtsh_ss(half_load_u16(p)); }
static BASE_ALWAYS_INLINE float one_bf16(const uint8_t *p) { return half_bf16_to_float(half_load_u16(p)); }

/* Four inputs of eight rows to columns `lane` .. `lane + 7` of the panel. */
static BASE_ALWAYS_INLINE void fill_4x8(load_pair_fn load, const uint8_t *const rows[8], int64_t offset, float *dst) {
    const __m256 r0 = load(rows[0] + offset, rows[4] + offset), r1 = load(rows[1] + offset, rows[5] + offset);
    const __m256 r2 = load(rows[2] + offset, rows[6] + offset), r3 = load(rows[3] + offset, rows[7] + offset);
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1)), b = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3));
    const __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1)), d = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
    _mm256_storeu_ps(dst, _mm256_castpd_ps(_mm256_unpacklo_pd(a, b)));
    _mm256_storeu_ps(dst + LANES, _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    _mm256_storeu_ps(dst + 2 * LANES, _mm256_castpd_ps(_mm256_unpacklo_pd(c, d)));
    _mm256_storeu_ps(dst + 3 * LANES, _mm256_castpd_ps(_mm256_unpackhi_pd(c, d)));
}

static BASE_ALWAYS_INLINE void fill_panel(load_pair_fn load, load_one_fn one, int64_t elem_bytes,
                                          const uint8_t *const rows[LANES], int64_t first, int64_t n, panel *p) {
    const int64_t whole = n / 4 * 4;
    for (int half = 0; half < LANES; half += 8) { /* 16 rows a power of two apart would evict each other from L1 */
        for (int64_t k = 0; k < whole; k += 4) fill_4x8(load, rows + half, (first + k) * elem_bytes, p->w[k] + half);
    }
    for (int64_t k = whole; k < n; k++) {
        for (int i = 0; i < LANES; i++) p->w[k][i] = one(rows[i] + (first + k) * elem_bytes);
    }
}

typedef struct tile_rows {
    const uint8_t *x; /* first row */
    int64_t x_stride;
    float *y; /* first row, first output of the group */
    int64_t y_stride;
    int64_t n_out[2]; /* lanes in use of either vector */
} tile_rows;

/* Adds a panel's products to n_rows x 16 sums. n_rows is a constant at each call: everything unrolls. */
static BASE_ALWAYS_INLINE void tile(const panel *p, const tile_rows *t, int64_t first, int64_t n, int64_t row,
                                    int n_rows) {
    const uint8_t *x = t->x + row * t->x_stride + 4 * first;
    float *y = t->y + row * t->y_stride;
    __m256 acc[6][2];
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < 2; v++) {
            const bool load = first != 0 && t->n_out[v] > 0;
            acc[r][v] = load ? avx2_load_first(y + r * t->y_stride + 8 * v, t->n_out[v]) : _mm256_setzero_ps();
        }
    }
    for (int64_t k = 0; k < n; k++) {
        const __m256 w0 = _mm256_loadu_ps(p->w[k]), w1 = _mm256_loadu_ps(p->w[k] + 8);
        for (int r = 0; r < n_rows; r++) {
            const __m256 v = _mm256_set1_ps(one_f32(x + r * t->x_stride + 4 * k));
            acc[r][0] = _mm256_fmadd_ps(w0, v, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(w1, v, acc[r][1]);
        }
    }
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < 2; v++) {
            if (t->n_out[v] > 0) avx2_store_first(y + r * t->y_stride + 8 * v, acc[r][v], t->n_out[v]);
        }
    }
}

static void panel_rows(const panel *p, const tile_rows *t, int64_t first, int64_t n, int64_t n_rows) {
    int64_t row = 0;
    for (; row + 6 <= n_rows; row += 6) tile(p, t, first, n, row, 6);
    for (; row + 2 <= n_rows; row += 2) tile(p, t, first, n, row, 2);
    for (; row < n_rows; row++) tile(p, t, first, n, row, 1);
}

static BASE_ALWAYS_INLINE void linear(load_pair_fn load, load_one_fn one, int64_t elem_bytes, const void *w,
                                      int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, int64_t x_stride,
                                      int64_t n_rows, float *y, int64_t y_stride) {
    panel p;
    for (int64_t o = out_begin; o < out_end; o += LANES) {
        const int64_t n_out = BASE_MIN(LANES, out_end - o);
        const tile_rows t = {x, x_stride, y + o, y_stride, {BASE_MIN(8, n_out), BASE_MAX(0, n_out - 8)}};
        const uint8_t *rows[LANES];
        for (int i = 0; i < LANES; i++) {
            rows[i] = (const uint8_t *)w + (o + BASE_MIN(i, n_out - 1)) * n_in * elem_bytes;
        }
        int64_t k = 0;
        do { /* once even if there is no input: the sums are 0 */
            const int64_t n = BASE_MIN(PANEL_INPUTS, n_in - k);
            fill_panel(load, one, elem_bytes, rows, k, n, &p);
            panel_rows(&p, &t, k, n, n_rows);
            k += n;
        } while (k < n_in);
    }
}

#define LINEAR(name, elem_bytes) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        linear(pair_##name, one_##name, elem_bytes, w, n_in, out_begin, out_end, x, x_stride, n_rows, y, y_stride); \
    }
LINEAR(f32, 4)
LINEAR(f16, 2)
LINEAR(bf16, 2)

void avx2_linear_float_entries(kernel_table *t) {
    t->linear[KERNEL_F32] = linear_f32;
    t->linear[KERNEL_F16] = linear_f16;
    t->linear[KERNEL_BF16] = linear_bf16;
}
