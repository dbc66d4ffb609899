/* SPDX-License-Identifier: Apache-2.0 */
/* test_experts.c: mixtures of experts on the device: a row's bits are the same alone, among few rows, and among many,
 * which are sorted by their experts; of many rows each byte of an expert's weights is read once a tile.
 *
 *   REPRISE_TEST_SEED=N  other numbers
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "load_counter.h"
#include "support/seed.h"
#include "support/tiny_random.h"
#include "vulkan_world.h"

#define N_EMBD 256
#define N_FF 512
#define N_EXPERTS 40
#define N_USED 3
#define ROWS 1100 /* with three experts each: more than two tiles of an expert, and parts of shaders/sort_rows.comp */
#define TILE 64

static tiny_random numbers;

static float number(void) { return (float)((double)(tiny_random_below(&numbers, 2000001)) / 1e6 - 1.0); }

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = number();
}

/* ---- a layer ---- */

typedef struct kind {
    kernel_type up, gate, down; /* gate: KERNEL_TYPE_END: none */
    bool has_bias, reads_weighed;
    rp_device_arithmetic arithmetic;
} kind;

typedef struct mixture {
    model_layer layer;
    world w;
    void *data[8];
    int n_data;
} mixture;

/* Experts of random weights, n_out rows of n_in each. */
static model_weight make_weight(mixture *m, kernel_type type, int32_t n_in, int32_t n_out) {
    const int64_t bytes = kernel_row_bytes(type, n_in);
    const size_t n_rows = (size_t)N_EXPERTS * (size_t)n_out;
    char *data = malloc(n_rows * (size_t)bytes);
    float row[N_FF];
    for (size_t i = 0; i < n_rows; i++) {
        fill(row, (size_t)n_in);
        kernel_quantize(type, row, data + i * (size_t)bytes, n_in);
    }
    m->data[m->n_data++] = data;
    return (model_weight){.data = data,
                          .type = type,
                          .n_in = n_in,
                          .n_out = n_out,
                          .n_slices = N_EXPERTS,
                          .slice_bytes = bytes * n_out};
}

static model_weight make_bias(mixture *m, int32_t n_out) {
    float *data = malloc(sizeof(float) * N_EXPERTS * (size_t)n_out);
    fill(data, (size_t)N_EXPERTS * (size_t)n_out);
    m->data[m->n_data++] = data;
    return (model_weight){.data = data, .type = KERNEL_F32, .n_in = n_out, .n_out = N_EXPERTS, .n_slices = 1};
}

static void open_mixture(mixture *m, const kind *k) {
    *m = (mixture){0};
    model_ffn *f = &m->layer.experts;
    f->up = make_weight(m, k->up, N_EMBD, N_FF);
    f->down = make_weight(m, k->down, N_FF, N_EMBD);
    if (k->gate != KERNEL_TYPE_END) f->gate = make_weight(m, k->gate, N_EMBD, N_FF);
    if (k->has_bias) {
        f->up_bias = make_bias(m, N_FF);
        f->down_bias = make_bias(m, N_EMBD);
        if (k->gate != KERNEL_TYPE_END) f->gate_bias = make_bias(m, N_FF);
    }
    const model_network net = {.hp = {.n_embd = N_EMBD,
                                      .n_ff_expert = N_FF,
                                      .n_experts = N_EXPERTS,
                                      .n_experts_used = N_USED,
                                      .experts_sum_1 = true,
                                      .experts_scale = 1,
                                      .experts_read_weighed = k->reads_weighed,
                                      .act = KERNEL_SILU},
                               .layers = &m->layer};
    world_open_net(&m->w, &net, ROWS, k->arithmetic);
}

static void close_mixture(mixture *m) {
    m->w.b->ops->free(m->w.b);
    for (int i = 0; i < m->n_data; i++) free(m->data[i]);
}

/* out[rows][N_EMBD] = the mixture's of x, with the scores of its rows. */
static void compute(mixture *m, const float *x, const float *scores, int32_t rows, float *out) {
    backend *b = m->w.b;
    backend_buffer *src = world_buffer(&m->w, rows, N_EMBD, x), *own = world_buffer(&m->w, rows, N_EXPERTS, scores),
                   *dst = world_buffer(&m->w, rows, N_EMBD, out);
    world_begin(&m->w);
    b->ops->experts(b, 0, src, own, rows, dst);
    world_read(&m->w, dst, rows, out);
    b->ops->buffer_free(b, src);
    b->ops->buffer_free(b, own);
    b->ops->buffer_free(b, dst);
}

/* ---- tests ---- */

static float x[ROWS * N_EMBD], scores[ROWS * N_EXPERTS], all[ROWS * N_EMBD], some[ROWS * N_EMBD];

static void check_rows(const char *name, int32_t first, int32_t n) {
    for (int32_t r = 0; r < n; r++)
        if (memcmp(some + r * N_EMBD, all + (first + r) * N_EMBD, sizeof(float) * N_EMBD) != 0)
            fail_msg("%s: row %d of %d: not its bits among %d rows", name, r, n, ROWS);
}

/* 2 rows are computed one by one, 7 and 100 by tiles of few. */
static void check_kind(const kind *k) {
    static const int32_t counts[] = {1, 2, 7, 100, 300};
    mixture m;
    char name[64];
    snprintf(name, sizeof(name), "%s, %s", kernel_type_name(k->up), kernel_type_name(k->down));
    open_mixture(&m, k);
    fill(x, ROWS * N_EMBD);
    fill(scores, ROWS * N_EXPERTS);
    for (int32_t r = 0; r < ROWS; r++) scores[r * N_EXPERTS + 7] += 1; /* one is preferred, one is not used */
    for (int32_t r = 0; r < ROWS; r++) scores[r * N_EXPERTS + 11] = -2;
    compute(&m, x, scores, ROWS, all);
    for (size_t c = 0; c < BASE_ARRAY_LEN(counts); c++) {
        const int32_t first = (int32_t)tiny_random_below(&numbers, (uint32_t)(ROWS - counts[c]));
        compute(&m, x + first * N_EMBD, scores + first * N_EXPERTS, counts[c], some);
        check_rows(name, first, counts[c]);
    }
    close_mixture(&m);
}

static void rows_have_the_same_bits_in_any_number(void **state) {
    static const kind kinds[] = {
        {KERNEL_Q4_K, KERNEL_Q4_K, KERNEL_Q6_K, false, false, RP_DEVICE_ARITHMETIC_INT8},
        {KERNEL_Q8_0, KERNEL_TYPE_END, KERNEL_F16, true, false, RP_DEVICE_ARITHMETIC_INT8}, /* tiles of 32 */
        {KERNEL_MXFP4, KERNEL_MXFP4, KERNEL_MXFP4, true, false, RP_DEVICE_ARITHMETIC_INT8},
        {KERNEL_Q4_0, KERNEL_Q4_0, KERNEL_Q4_0, false, true, RP_DEVICE_ARITHMETIC_F32},
    };
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) check_kind(&kinds[i]);
}

/* Bytes of one matrix of the experts that the mixture of some rows loads, in experts. */
static double experts_read(int32_t rows) {
    const kind k = {KERNEL_Q8_0, KERNEL_Q8_0, KERNEL_Q8_0, false, false, RP_DEVICE_ARITHMETIC_INT8};
    mixture m;
    vulkan_on_device = load_counter_attach;
    open_mixture(&m, &k);
    const model_weight *up = &m.layer.experts.up;
    load_counter_watch(vulkan_weight(vulkan(m.w.b), up), (uint64_t)up->slice_bytes * N_EXPERTS);
    compute(&m, x, scores, rows, some);
    const double n = (double)load_counter_bytes() / (double)up->slice_bytes;
    load_counter_detach();
    close_mixture(&m);
    vulkan_on_device = NULL;
    return n;
}

static void experts_are_read_once_a_tile(void **state) {
    (void)state;
    fill(scores, ROWS * N_EXPERTS);
    const double one = experts_read(1), some_rows = experts_read(100), many = experts_read(ROWS);
    printf("experts read for 1 row: %.1f; for 100: %.1f; for %d: %.1f\n", one, some_rows, ROWS, many);
    assert_true(one >= N_USED && one < N_USED * 1.1);
    assert_true(some_rows < 1.1 * (100.0 * N_USED / 8 + N_EXPERTS));
    assert_true(many < 1.1 * (ROWS * (double)N_USED / TILE + N_EXPERTS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_same_bits_in_any_number),
        cmocka_unit_test(experts_are_read_once_a_tile),
    };
    if (!world_is_available(N_EMBD)) return 77;
    numbers.state = test_seed("experts", 20261130);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vulkan_instance_unref();
    return failed;
}
