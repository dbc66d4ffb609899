/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops.c: operations of the Vulkan backend alone: products with weights of every type, in f32 and in int8, against
 * sums in double, by few rows and many, and by all instructions that the device has; each row's bits depend on neither
 * the other rows nor the instructions; device memory through the table of kv/.
 *
 *   REPRISE_TEST_SEED=N      other numbers
 *   REPRISE_TEST_ROUNDS=N    N types of weights; all by default
 *   REPRISE_TEST_MATRICES=1  fails without dot products and cooperative matrices
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/embedded.h"
#include "support/seed.h"
#include "support/tiny_random.h"
#include "vulkan_world.h"

#define N_IN 768 /* three blocks of 256 */
#define N_OUT 70
#define ROWS 77 /* more than a tile of 64 */

static uint64_t seed;
static tiny_random numbers;

static float number(void) { return (float)((double)(tiny_random_below(&numbers, 2000001)) / 1e6 - 1.0); }

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = number();
}

/* ---- products ---- */

/* out[rows][N_OUT] = products of the first `rows` rows of x, beginning at row `first`. */
static void multiply(world *w, const model_weight *weight, const model_weight *bias, const float *x, int32_t rows,
                     float *out) {
    backend_buffer *src = world_buffer(w, rows, (int32_t)weight->n_in, x), *dst = world_buffer(w, rows, N_OUT, out);
    world_begin(w);
    w->b->ops->linear(w->b, src, rows, 1, (const model_weight *const[]){weight}, (const model_weight *const[]){bias},
                      (backend_buffer *const[]){dst});
    world_read(w, dst, rows, out);
    w->b->ops->buffer_free(w->b, src);
    w->b->ops->buffer_free(w->b, dst);
}

static double worst, worst_int8, worst_rounded;

static void check_sums(kernel_type type, const float *decoded, const float *bias, const float *x, const float *out) {
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t o = 0; o < N_OUT; o++) {
            double sum = (double)bias[o], size = fabs((double)bias[o]);
            for (int32_t i = 0; i < N_IN; i++) {
                const double p = (double)decoded[o * N_IN + i] * (double)x[r * N_IN + i];
                sum += p;
                size += fabs(p);
            }
            const double error = fabs((double)out[r * N_OUT + o] - sum) / size;
            worst = fmax(worst, error);
            if (error > 1e-6) fail_msg("%s: row %d, output %d: %g, not %g", kernel_type_name(type), r, o,
                                       (double)out[r * N_OUT + o], sum);
        }
}

/* What products in int8 of a row are, with the codes of its activations by definition (shaders/int8.glsl). */
typedef struct int8_sum {
    double exact; /* with activations that are not rounded */
    double sum, size;
    double open;  /* by how much it may differ: codes next to a tie */
    double bound; /* of |sum - exact|: half a code of each element */
} int8_sum;

static void add_piece(int8_sum *y, const float *w, const float *x) {
    double peak = 0;
    for (int i = 0; i < 32; i++) peak = fmax(peak, fabs((double)x[i]));
    const double d = peak / 127;
    for (int i = 0; i < 32; i++) {
        const double code = d > 0 ? (double)x[i] / d : 0, weight = (double)w[i];
        y->exact += weight * (double)x[i];
        y->sum += weight * rint(code) * d;
        y->size += fabs(weight * rint(code) * d);
        y->bound += fabs(weight) * d / 2;
        if (fabs(fabs(code - floor(code)) - 0.5) < 1e-4) y->open += fabs(weight) * d;
    }
}

/* Formats with minima subtract large sums of codes: their error is relative to those. */
static void check_int8(kernel_type type, const float *decoded, const float *bias, const float *x, const float *out) {
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t o = 0; o < N_OUT; o++) {
            int8_sum y = {.exact = (double)bias[o], .sum = (double)bias[o], .size = fabs((double)bias[o])};
            for (int32_t i = 0; i < N_IN; i += 32) add_piece(&y, decoded + o * N_IN + i, x + r * N_IN + i);
            const double got = (double)out[r * N_OUT + o], error = fmax(0, fabs(got - y.sum) - y.open) / y.size;
            worst_int8 = fmax(worst_int8, error);
            worst_rounded = fmax(worst_rounded, fabs(got - y.exact) / y.bound);
            if (error > 2e-6)
                fail_msg("%s in int8: row %d, output %d: %g, not %g", kernel_type_name(type), r, o, got, y.sum);
            if (fabs(got - y.exact) > y.bound * 1.001 + 2e-6 * y.size)
                fail_msg("%s in int8: row %d, output %d: %g is too far from %g", kernel_type_name(type), r, o, got,
                         y.exact);
        }
}

typedef struct products_case {
    model_weight weight, bias;
    const float *decoded; /* [N_OUT][N_IN] */
    float *x;             /* [ROWS][N_IN] */
    float *all, *some;    /* [ROWS][N_OUT] */
} products_case;

/* Products of all rows, then of a row alone, of few, of tiles: the same bits. */
static void multiply_all(const products_case *c, rp_device_arithmetic arithmetic) {
    static const int32_t counts[] = {1, 2, 8, 9, 32, 33, 64, 65};
    world v;
    world_open_in(&v, N_IN, ROWS, arithmetic); /* one for each: weights are known by their address */
    multiply(&v, &c->weight, &c->bias, c->x, ROWS, c->all);
    for (size_t i = 0; i < BASE_ARRAY_LEN(counts); i++) {
        const int32_t first = ROWS - counts[i];
        multiply(&v, &c->weight, &c->bias, c->x + first * N_IN, counts[i], c->some);
        if (memcmp(c->some, c->all + first * N_OUT, sizeof(float) * N_OUT * (size_t)counts[i]) != 0)
            fail_msg("%s: other bits in a step of %d rows (%d)", kernel_type_name(c->weight.type), counts[i],
                     (int)vulkan_products_of(vulkan(v.b)->device));
    }
    v.b->ops->free(v.b);
}

static vulkan_device *device; /* stays open, so that pipelines are made once */

/* By all instructions that the device has. Single products are compared for a type of each kind: pipelines take most of
 * the time. */
static void check_instructions(const products_case *c) {
    const kernel_type type = c->weight.type;
    const bool is_sample = type == KERNEL_Q8_0 || type == KERNEL_Q4_K || type == KERNEL_Q2_K || type == KERNEL_Q6_K;
    float *first = calloc(ROWS * N_OUT, sizeof(float));
    bool is_first = true;
    for (int by = VULKAN_BY_CODES; by <= VULKAN_BY_MATRICES; by++) {
        vulkan_most_products = (vulkan_products)by;
        if (vulkan_products_of(device) != vulkan_most_products) continue; /* the device lacks it */
        if (by == VULKAN_BY_CODES && device->description.has_dot && !is_sample) continue;
        multiply_all(c, RP_DEVICE_ARITHMETIC_INT8);
        if (is_first) {
            is_first = false;
            check_int8(type, c->decoded, c->bias.data, c->x, c->all);
            memcpy(first, c->all, sizeof(float) * ROWS * N_OUT);
        }
        if (memcmp(first, c->all, sizeof(float) * ROWS * N_OUT) != 0)
            fail_msg("%s: other bits by other instructions (%d)", kernel_type_name(type), by);
    }
    vulkan_most_products = VULKAN_BY_MATRICES;
    free(first);
}

static void check_type(kernel_type type) {
    const size_t row_bytes = (size_t)kernel_row_bytes(type, N_IN);
    float *w = calloc(N_OUT * N_IN, sizeof(float)), bias[N_OUT];
    char *rows = calloc(N_OUT, row_bytes);
    products_case c = {.decoded = w,
                       .x = calloc(ROWS * N_IN, sizeof(float)),
                       .all = calloc(ROWS * N_OUT, sizeof(float)),
                       .some = calloc(ROWS * N_OUT, sizeof(float))};
    fill(w, N_OUT * N_IN);
    fill(c.x, ROWS * N_IN);
    fill(bias, N_OUT);
    for (int32_t o = 0; o < N_OUT; o++) {
        kernel_quantize(type, w + o * N_IN, rows + (size_t)o * row_bytes, N_IN);
        kernel_dequantize(type, rows + (size_t)o * row_bytes, w + o * N_IN, N_IN);
    }
    c.weight = (model_weight){.data = rows, .type = type, .n_in = N_IN, .n_out = N_OUT, .n_slices = 1};
    c.bias = (model_weight){.data = bias, .type = KERNEL_F32, .n_in = N_OUT, .n_out = 1, .n_slices = 1};
    multiply_all(&c, RP_DEVICE_ARITHMETIC_F32);
    check_sums(type, w, bias, c.x, c.all);
    if (kernel_type_quantized(type)) check_instructions(&c);
    free(w), free(c.x), free(c.all), free(c.some), free(rows);
}

static void open_device(void) {
    world v;
    rp_error err = {0};
    world_open(&v, N_IN, ROWS);
    must(vulkan_device_ref(&device, &vulkan(v.b)->device->description, &err), &err);
    v.b->ops->free(v.b);
}

/* What the device has, so that a report tells by which instructions products were tested. */
static void report_instructions(void) {
    const vulkan_description *d = &device->description;
    printf("int8 by codes%s", d->has_dot ? ", dot products" : "");
    if (d->matrices.m) printf(", matrices of %u x %u x %u", d->matrices.m, d->matrices.n, d->matrices.k);
    printf("\n");
    if (getenv("REPRISE_TEST_MATRICES")) assert_true(d->has_dot && d->matrices.m > 0);
}

static void products_of_every_type_are_exact_sums(void **state) {
    static const kernel_type types[] = {
#define X(name, number, block, bytes) KERNEL_##name,
        KERNEL_TYPES(X)
#undef X
    };
    const int n = (int)BASE_ARRAY_LEN(types), n_some = BASE_MIN(test_rounds(n), n);
    _Static_assert(BASE_ARRAY_LEN(types) % 5 != 0, "steps of 5 reach all");
    (void)state;
    report_instructions();
    for (int i = 0; i < n_some; i++) check_type(types[i * 5 % n]);
    printf("products in f32: worst error %.2g of the sum of magnitudes; int8 %.2g, and %.2g of the rounding's bound\n",
           worst, worst_int8, worst_rounded);
}

/* Rows of zeros, of numbers too small and too large for codes, and of what is no number. */
static void odd_activations_have_the_same_bits_in_every_step(void **state) {
    static const float odd[] = {0, 1e-40f, 1e-33f, 3e38f, INFINITY, NAN};
    enum { N = (int)BASE_ARRAY_LEN(odd) };
    float w[N_OUT * N_IN], bias[N_OUT];
    float x[ROWS * N_IN], out[ROWS * N_OUT], one[N_OUT];
    static char rows[N_OUT * N_IN];
    world v;
    (void)state;
    fill(w, N_OUT * N_IN);
    fill(bias, N_OUT);
    fill(x, ROWS * N_IN);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < (i < 4 ? N_IN : 40); k++) x[i * N_IN + k] = i < 4 ? x[i * N_IN + k] * odd[i] : odd[i];
    const size_t row_bytes = (size_t)kernel_row_bytes(KERNEL_Q4_K, N_IN);
    for (int32_t o = 0; o < N_OUT; o++)
        kernel_quantize(KERNEL_Q4_K, w + o * N_IN, rows + (size_t)o * row_bytes, N_IN);
    const model_weight weight = {.data = rows, .type = KERNEL_Q4_K, .n_in = N_IN, .n_out = N_OUT, .n_slices = 1};
    const model_weight b = {.data = bias, .type = KERNEL_F32, .n_in = N_OUT, .n_out = 1, .n_slices = 1};
    world_open(&v, N_IN, ROWS);
    multiply(&v, &weight, &b, x, ROWS, out);
    for (int i = 0; i < N; i++) {
        multiply(&v, &weight, &b, x + i * N_IN, 1, one);
        for (int o = 0; o < N_OUT; o++)
            if (i >= 4) assert_true(isnan(one[o]) && isnan(out[i * N_OUT + o]));
        if (i < 4) assert_memory_equal(one, out + i * N_OUT, sizeof(one));
        if (i < 2) assert_memory_equal(one, bias, sizeof(one));
    }
    v.b->ops->free(v.b);
}

/* Slices of a weight, each with its columns: those of as many products. */
static void products_of_slices_are_those_of_their_columns(void **state) {
    enum { SLICES = 3,
           N = 256,
           OUT = 40 };
    static float w[SLICES * OUT * N], x[ROWS * SLICES * N], own[ROWS * N], out[ROWS * SLICES * OUT], one[ROWS * OUT];
    static char data[SLICES * OUT * N];
    static const int32_t counts[] = {1, 7, ROWS};
    const size_t slice = (size_t)kernel_row_bytes(KERNEL_Q6_K, N) * OUT;
    world v;
    (void)state;
    fill(w, SLICES * OUT * N);
    fill(x, ROWS * SLICES * N);
    for (int32_t o = 0; o < SLICES * OUT; o++)
        kernel_quantize(KERNEL_Q6_K, w + o * N, data + slice / OUT * (size_t)o, N);
    const model_weight all = {.data = data,
                              .type = KERNEL_Q6_K,
                              .n_in = N,
                              .n_out = OUT,
                              .n_slices = SLICES,
                              .slice_bytes = (int64_t)slice};
    world_open(&v, N_IN, ROWS);
    for (size_t c = 0; c < BASE_ARRAY_LEN(counts); c++) {
        const int32_t rows = counts[c];
        backend_buffer *src = world_buffer(&v, rows, SLICES * N, x), *dst = world_buffer(&v, rows, SLICES * OUT, out);
        world_begin(&v);
        v.b->ops->linear_runs(v.b, src, (backend_columns){0, N}, rows, &all, dst, (backend_columns){0, OUT});
        world_read(&v, dst, rows, out);
        v.b->ops->buffer_free(v.b, src);
        v.b->ops->buffer_free(v.b, dst);
        for (int s = 0; s < SLICES; s++) {
            const model_weight weight = {
                .data = data + slice * (size_t)s, .type = KERNEL_Q6_K, .n_in = N, .n_out = OUT, .n_slices = 1};
            for (int32_t r = 0; r < rows; r++) memcpy(own + r * N, x + (r * SLICES + s) * N, sizeof(float) * N);
            backend_buffer *part = world_buffer(&v, rows, N, own), *to = world_buffer(&v, rows, OUT, one);
            world_begin(&v);
            v.b->ops->linear(v.b, part, rows, 1, (const model_weight *const[]){&weight}, NULL,
                             (backend_buffer *const[]){to});
            world_read(&v, to, rows, one);
            for (int32_t r = 0; r < rows; r++)
                assert_memory_equal(one + r * OUT, out + (r * SLICES + s) * OUT, sizeof(float) * OUT);
            v.b->ops->buffer_free(v.b, part);
            v.b->ops->buffer_free(v.b, to);
        }
    }
    v.b->ops->free(v.b);
}

/* Rows whose length is no multiple of a piece. */
static void short_rows_end_where_they_end(void **state) {
    enum { N = 37 };
    float w[N_OUT * N], x[ROWS * N], out[ROWS * N_OUT], zero[N_OUT] = {0};
    world v;
    (void)state;
    world_open(&v, N_IN, ROWS);
    fill(w, N_OUT * N);
    fill(x, ROWS * N);
    const model_weight weight = {.data = w, .type = KERNEL_F32, .n_in = N, .n_out = N_OUT, .n_slices = 1};
    const model_weight bias = {.data = zero, .type = KERNEL_F32, .n_in = N_OUT, .n_out = 1, .n_slices = 1};
    multiply(&v, &weight, &bias, x, ROWS, out);
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t o = 0; o < N_OUT; o++) {
            double sum = 0;
            for (int32_t i = 0; i < N; i++) sum += (double)w[o * N + i] * (double)x[r * N + i];
            assert_true(fabs(sum - (double)out[r * N_OUT + o]) < 1e-5);
        }
    v.b->ops->free(v.b);
}

/* ---- activations ---- */

static void activations_are_those_of_the_cpu(void **state) {
    enum { N = 512 };
    float a[N], up[N], out[N], expected[N];
    kernel_table k;
    world v;
    (void)state;
    world_open(&v, N_IN, ROWS);
    kernel_table_init(&k, BASE_CPU_GENERIC);
    for (int i = 0; i < N; i++) a[i] = (float)(i - N / 2) / 16.0f; /* -16 to 16 */
    fill(up, N);
    for (int act = 0; act < KERNEL_ACT_COUNT; act++) {
        backend_buffer *x = world_buffer(&v, 1, N, a), *y = world_buffer(&v, 1, N, up);
        world_begin(&v);
        v.b->ops->act(v.b, (kernel_act)act, x, y, 1);
        world_read(&v, x, 1, out);
        k.act[act](a, up, expected, N);
        for (int i = 0; i < N; i++)
            if (fabsf(out[i] - expected[i]) > 2e-6f * fmaxf(1.0f, fabsf(a[i])))
                fail_msg("activation %d of %g times %g: %.9g, not %.9g", act, (double)a[i], (double)up[i],
                         (double)out[i], (double)expected[i]);
        v.b->ops->buffer_free(v.b, x);
        v.b->ops->buffer_free(v.b, y);
    }
    v.b->ops->free(v.b);
}

/* ---- indexers ---- */

#define CHOICES 2 /* rows: one with many equal scores */
#define N_BLOCKS 300
#define TOP_K 1000

/* Is slot `number` of n scores among the TOP_K highest, the earlier of equal ones? */
static bool is_chosen(const float *scores, uint32_t n, uint32_t number) {
    uint32_t better = 0;
    for (uint32_t i = 0; i < n; i++)
        better += scores[i] > scores[number] || (scores[i] == scores[number] && i < number);
    return better < TOP_K;
}

static void indexers_choose_the_highest_scores(void **state) {
    static vulkan_row_block blocks[CHOICES * N_BLOCKS], chosen[CHOICES * N_BLOCKS];
    static float scores[CHOICES][64 * N_BLOCKS];
    vulkan_row rows[CHOICES];
    world v;
    (void)state;
    world_open(&v, N_IN, ROWS);
    for (uint32_t r = 0; r < CHOICES; r++) {
        rows[r] = (vulkan_row){.first_block = r * N_BLOCKS, .n_blocks = N_BLOCKS};
        for (uint32_t i = 0; i < N_BLOCKS; i++) {
            uint64_t visible = (uint64_t)tiny_random_below(&numbers, 1u << 31) << 33;
            visible |= tiny_random_below(&numbers, 1u << 31);
            if (i % 7 == 0) visible = i % 2 ? 0 : UINT64_MAX;
            blocks[r * N_BLOCKS + i] = (vulkan_row_block){i, rows[r].n_slots, visible};
            rows[r].n_slots += (uint32_t)base_popcount64(visible);
        }
        fill(scores[r], 64 * N_BLOCKS);
        for (uint32_t i = 0; i < 64 * N_BLOCKS && r == 0; i++) scores[r][i] = (float)(int)(4 * scores[r][i]) * 0.5f;
        assert_true(rows[r].n_slots > TOP_K);
    }
    backend_buffer *out = world_buffer(&v, CHOICES, 4 * N_BLOCKS, (const float *)(const void *)blocks);
    world_begin(&v);
    const vulkan_part parts[3] = {vulkan_arena_take(vulkan(v.b), sizeof(scores)),
                                  vulkan_arena_take(vulkan(v.b), sizeof(rows)),
                                  vulkan_arena_take(vulkan(v.b), sizeof(blocks))};
    memcpy(parts[0].host, scores, sizeof(scores));
    memcpy(parts[1].host, rows, sizeof(rows));
    memcpy(parts[2].host, blocks, sizeof(blocks));
    const vulkan_index_choose_args a = {.scores = parts[0].address,
                                        .rows = parts[1].address,
                                        .blocks = parts[2].address,
                                        .chosen = out->memory.address,
                                        .stride = 64 * N_BLOCKS,
                                        .top_k = TOP_K};
    vulkan_dispatch(vulkan(v.b), VULKAN_INDEX_CHOOSE, 0, &a, sizeof(a), (uint32_t[]){CHOICES, 1, 1});
    world_read(&v, out, CHOICES, (float *)(void *)chosen);
    for (uint32_t r = 0; r < CHOICES; r++) {
        uint32_t before = 0, number = 0;
        for (uint32_t i = r * N_BLOCKS; i < (r + 1) * N_BLOCKS; i++) {
            uint64_t mask = 0;
            for (uint64_t bits = blocks[i].visible; bits; bits &= bits - 1)
                if (is_chosen(scores[r], rows[r].n_slots, number++)) mask |= bits & (~bits + 1);
            assert_int_equal(chosen[i].entry, blocks[i].entry);
            assert_int_equal(chosen[i].before, before);
            assert_true(chosen[i].visible == mask);
            before += (uint32_t)base_popcount64(mask);
        }
        assert_int_equal(before, TOP_K);
    }
    v.b->ops->buffer_free(v.b, out);
    v.b->ops->free(v.b);
}

/* ---- memory ---- */

static void device_memory_keeps_what_is_written(void **state) {
    enum { BYTES = 9 << 20 }; /* more than two staging buffers */
    char *in = malloc(BYTES), *out = malloc(BYTES);
    (void)state;
    for (int i = 0; i < BYTES; i++) in[i] = (char)tiny_random_below(&numbers, 256);
    for (int unmapped = 0; unmapped < 2; unmapped++) {
        world v;
        vulkan_is_unmapped = unmapped == 1; /* copies go through staging buffers */
        world_open(&v, N_IN, ROWS);
        kv_memory *m = v.b->ops->memory(v.b);
        const kv_address a = m->ops->alloc(m, BYTES, 0), b = m->ops->alloc(m, BYTES, 0);
        assert_false(kv_address_is_none(a) || kv_address_is_none(b));
        m->ops->write(m, in, BYTES, a);
        m->ops->read(m, kv_address_plus(a, 12345), BYTES - 12345, out);
        assert_memory_equal(out, in + 12345, BYTES - 12345);
        m->ops->write(m, out, BYTES, b); /* other bytes at the borders of rows */
        const kv_row_copy copies[2] = {
            {kv_address_plus(a, 64), kv_address_plus(b, 128), 100, 4096, 200, 0},
            {kv_address_plus(a, 1000), kv_address_plus(b, 1001), 1, 2, 500, 0}, /* odd addresses, every second byte */
        };
        m->ops->copy_rows(m, copies, 2);
        m->ops->read(m, b, BYTES, out);
        for (size_t i = 0; i < 200; i++) assert_memory_equal(out + 128 + 4096 * i, in + 64 + 4096 * i, 100);
        for (size_t i = 0; i < 500; i++) assert_int_equal(out[1001 + 2 * i], in[1000 + 2 * i]);
        for (size_t i = 0; i < 500; i++) assert_int_equal(out[1002 + 2 * i], in[12345 + 1002 + 2 * i]); /* not copied */
        assert_false(m->ops->has_failed(m));
        m->ops->free(m, b);
        m->ops->free(m, a);
        v.b->ops->free(v.b);
    }
    vulkan_is_unmapped = false;
    free(in), free(out);
}

static void the_limit_of_device_memory_holds(void **state) {
    rp_error err = {0};
    world v;
    (void)state;
    world_open(&v, N_IN, ROWS);
    atomic_store(&vulkan(v.b)->limit_bytes, atomic_load(&vulkan(v.b)->used_bytes) + 4096);
    kv_memory *m = v.b->ops->memory(v.b);
    assert_true(kv_address_is_none(m->ops->alloc(m, 8192, 0)));
    const kv_address a = m->ops->alloc(m, 4096, 0);
    assert_false(kv_address_is_none(a));
    backend_buffer *b;
    assert_int_equal(v.b->ops->buffer_new(v.b, 1, 16, &b, &err), RP_ERR_BUDGET);
    m->ops->free(m, a);
    v.b->ops->free(v.b);
}

/* ---- shaders ---- */

#define OP_DECORATE 71
#define NO_CONTRACTION 42
#define OP_EXT_INST 12

/* Instructions with precision that Vulkan leaves open: their results could differ between drivers (common.glsl). */
static bool is_open(uint32_t op, const uint32_t *w) {
    /* of GLSL.std.450: sin, cos, tan, tanh, pow, exp, log, exp2, log2, fma */
    static const uint32_t functions[] = {13, 14, 15, 21, 26, 27, 28, 29, 30, 50};
    bool is = op == 142 || op == 148; /* OpVectorTimesScalar, OpDot: no order of their sums */
    for (size_t i = 0; i < BASE_ARRAY_LEN(functions); i++) is |= op == OP_EXT_INST && w[4] == functions[i];
    return is;
}

/* Every sum and product of floats has the decoration: no compiler fuses them. */
static void check_binary(const base_embedded *e) {
    const uint32_t *w = malloc(e->n);
    memcpy((void *)(uintptr_t)w, e->bytes, e->n);
    const size_t n = e->n / 4, n_ids = w[3];
    bool *is_exact = calloc(n_ids, 1);
    size_t sums = 0, products = 0;
    for (size_t i = 5; i < n; i += w[i] >> 16)
        if ((w[i] & 0xffff) == OP_DECORATE && w[i + 2] == NO_CONTRACTION) is_exact[w[i + 1]] = true;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 5; i < n; i += w[i] >> 16) {
            const uint32_t op = w[i] & 0xffff;
            const bool is_sum = op == 129 || op == 131, is_product = op == 133; /* OpFAdd, OpFSub, OpFMul */
            if (is_open(op, w + i)) fail_msg("%s: instruction %u at word %zu", e->name, op, i);
            if (pass == 0) sums += is_sum, products += is_product;
            else if ((is_sum || is_product) && !is_exact[w[i + 2]] && sums > 0 && products > 0)
                fail_msg("%s: instruction %u at word %zu may be fused", e->name, op, i);
        }
    free(is_exact);
    free((void *)(uintptr_t)w);
}

extern const base_embedded vulkan_binaries[];

static void no_sum_of_a_shader_is_fused(void **state) {
    static const char *const scans[] = {"recurrent_scan.spv", "recurrent_convolve.spv", "recurrent_rates.spv",
                                        "recurrent_gate.spv", "streams.spv", "index_scores.spv"};
    int n = 0;
    (void)state;
    for (const base_embedded *e = vulkan_binaries; e->name; e++, n++) check_binary(e);
    assert_true(n >= 40);
    for (size_t i = 0; i < BASE_ARRAY_LEN(scans); i++) assert_non_null(base_embedded_find(vulkan_binaries, scans[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_every_type_are_exact_sums),
        cmocka_unit_test(odd_activations_have_the_same_bits_in_every_step),
        cmocka_unit_test(products_of_slices_are_those_of_their_columns),
        cmocka_unit_test(short_rows_end_where_they_end),
        cmocka_unit_test(activations_are_those_of_the_cpu),
        cmocka_unit_test(indexers_choose_the_highest_scores),
        cmocka_unit_test(device_memory_keeps_what_is_written),
        cmocka_unit_test(the_limit_of_device_memory_holds),
        cmocka_unit_test(no_sum_of_a_shader_is_fused),
    };
    if (!world_is_available(N_IN)) return 77;
    seed = test_seed("vulkan", 20261130);
    numbers.state = seed;
    open_device();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vulkan_device_unref(device);
    vulkan_instance_unref();
    return failed;
}
