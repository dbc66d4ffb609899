/* linear_float_avx2.c: products of F32, F16 and BF16 weights with f32 activations.
 *
 * Sixteen outputs are the lanes of two vectors; as with quantised weights no sum runs across lanes. Weights come packed (formats.h),
 * eight rows side by side, so that one input of all eight is a load:
 *
 *   few rows of x   two groups of 8 outputs ──convert──> x 2 or 1 rows of x ──> y
 *   many            256 inputs ──convert──> panel w[k][16] (16 KiB, stays in L1) ── x 6, 2 or 1 rows ──> y, which holds the sums
 *                   between two panels
 *
 * Order: acc = fma(w[k], x[k], acc) for k from 0 to n_in - 1, one chain for an element whatever the tile; no tails in
 * k. Where there is no second group the first takes its place, and what that gives is not stored.
 */
#include <assert.h>
#include <string.h>

#include "kernels/x86/avx2.h"

#define LANES 8
#define PANEL_INPUTS 256
#define FEW_INPUTS 64 /* straight from memory: between two requests to prefetch */
#define PREFETCH_BYTES 2048
/* Up to so many rows, a panel would be used too rarely to pay for itself. */
#define FEW_ROWS 6

/* Eight elements at p as floats. */
typedef __m256 (*load_fn)(const uint8_t *p);

static BASE_ALWAYS_INLINE __m256 load_f32(const uint8_t *p) { return _mm256_loadu_ps((const float *)(const void *)p); }

static BASE_ALWAYS_INLINE __m256 load_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static BASE_ALWAYS_INLINE __m256 load_bf16(const uint8_t *p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Two groups of packed weights, from some input on: `step` bytes from one input to the next. */
typedef struct weights {
    const uint8_t *group[2];
    int64_t step;
} weights;

typedef struct rows {
    const uint8_t *x; /* first row */
    int64_t x_stride;
    float *y; /* first row, first output of the first group */
    int64_t y_stride;
    int64_t n_out[2]; /* lanes in use of either group */
} rows;

static BASE_ALWAYS_INLINE __m256 broadcast(const uint8_t *p) {
    float f;
    memcpy(&f, p, sizeof f);
    return _mm256_set1_ps(f);
}

/* Adds the products of inputs [first, first + n) to n_rows x 16 sums. n_rows is a constant at each call: everything unrolls. */
static BASE_ALWAYS_INLINE void tile(load_fn load, const weights *w, const rows *t, int64_t first, int64_t n, int64_t row, int n_rows) {
    const uint8_t *x = t->x + row * t->x_stride + 4 * first, *w0 = w->group[0], *w1 = w->group[1];
    float *y = t->y + row * t->y_stride;
    __m256 acc[12];
    for (int i = 0; i < 2 * n_rows; i++) {
        const bool is_new = first == 0 || t->n_out[i % 2] == 0;
        acc[i] = is_new ? _mm256_setzero_ps() : avx2_load_first(y + i / 2 * t->y_stride + LANES * (i % 2), t->n_out[i % 2]);
    }
    for (int64_t k = 0; k < n; k++, w0 += w->step, w1 += w->step) {
        const __m256 a = load(w0), b = load(w1);
        BASE_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256 v = broadcast(x + r * t->x_stride + 4 * k);
            acc[2 * r] = _mm256_fmadd_ps(a, v, acc[2 * r]);
            acc[2 * r + 1] = _mm256_fmadd_ps(b, v, acc[2 * r + 1]);
        }
    }
    for (int i = 0; i < 2 * n_rows; i++) {
        if (t->n_out[i % 2] > 0) avx2_store_first(y + i / 2 * t->y_stride + LANES * (i % 2), acc[i], t->n_out[i % 2]);
    }
}

static BASE_ALWAYS_INLINE void all_rows(load_fn load, const weights *w, const rows *t, int64_t first, int64_t n, int64_t n_rows) {
    int64_t row = 0;
    for (; row + 6 <= n_rows; row += 6) tile(load, w, t, first, n, row, 6);
    for (; row + 2 <= n_rows; row += 2) tile(load, w, t, first, n, row, 2);
    for (; row < n_rows; row++) tile(load, w, t, first, n, row, 1);
}

/* ---- many rows: panels --------------------------------------------------------------------------------------------- */

typedef struct panel {
    _Alignas(32) float w[PANEL_INPUTS][2][LANES];
} panel;

static BASE_ALWAYS_INLINE void fill_panel(load_fn load, const weights *w, int64_t n, panel *p) {
    for (int64_t k = 0; k < n; k++) {
        _mm256_store_ps(p->w[k][0], load(w->group[0] + k * w->step));
        _mm256_store_ps(p->w[k][1], load(w->group[1] + k * w->step));
    }
}

static BASE_ALWAYS_INLINE void panel_rows(load_fn load, const weights *w, const rows *t, int64_t first, int64_t n, int64_t n_rows) {
    panel p;
    const weights converted = {{(const uint8_t *)p.w[0][0], (const uint8_t *)p.w[0][1]}, sizeof p.w[0]};
    fill_panel(load, w, n, &p);
    all_rows(load_f32, &converted, t, first, n, n_rows);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

static BASE_ALWAYS_INLINE void linear(load_fn load, int64_t elem_bytes, const void *w, int64_t n_in, int64_t out_begin, int64_t out_end,
                                      const void *x, int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) {
    const int64_t step = LANES * elem_bytes, most = n_rows <= FEW_ROWS ? FEW_INPUTS : PANEL_INPUTS;
    assert(out_begin % LANES == 0);
    for (int64_t o = out_begin; o < out_end; o += 2 * LANES) {
        const int64_t n_out = BASE_MIN(2 * LANES, out_end - o);
        const rows t = {x, x_stride, y + o, y_stride, {BASE_MIN(LANES, n_out), BASE_MAX(0, n_out - LANES)}};
        const uint8_t *group = (const uint8_t *)w + o * n_in * elem_bytes;
        int64_t k = 0;
        do { /* once even if there is no input: the sums are 0 */
            const int64_t n = BASE_MIN(most, n_in - k);
            const uint8_t *at = group + k * step;
            const weights two = {{at, t.n_out[1] > 0 ? at + n_in * step : at}, step};
            for (int i = 0; i < 2; i++) avx2_prefetch(two.group[i], PREFETCH_BYTES, n * step);
            if (n_rows <= FEW_ROWS) all_rows(load, &two, &t, k, n, n_rows);
            else panel_rows(load, &two, &t, k, n, n_rows);
            k += n;
        } while (k < n_in);
    }
}

#define LINEAR(name, elem_bytes) \
    static void linear_##name(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x, \
                              int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride) { \
        linear(load_##name, elem_bytes, w, n_in, out_begin, out_end, x, x_stride, n_rows, y, y_stride); \
    }
LINEAR(f32, 4)
LINEAR(f16, 2)
LINEAR(bf16, 2)

void avx2_linear_float_entries(kernel_table *t) {
    t->linear[KERNEL_F32] = linear_f32;
    t->linear[KERNEL_F16] = linear_f16;
    t->linear[KERNEL_BF16] = linear_bf16;
}
