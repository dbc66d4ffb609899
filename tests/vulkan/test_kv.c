/* SPDX-License-Identifier: Apache-2.0 */
/* test_kv.c: KV formats on the device: rows are stored and spans encoded with the CPU's bytes, and attention reads
 * every format as the floats that the CPU decodes, which the host gets as well.
 *
 *   REPRISE_TEST_SEED=N  other numbers
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
#include "backend/cpu/cpu_kv_elements.h"
#include "backend/backend_registry.h"
#include "backend/vulkan/vulkan_instance.h"
#include "kv/context.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define N_TOKENS 150 /* the last block has 22 */
#define N_KV_HEADS 2
#define N_HEADS 6
#define KEY_DIM 96 /* a Hadamard transform of 32 */
#define VALUE_DIM 64
#define N_LAYERS 2 /* the second is in f16 */

static uint64_t seed;
static tiny_random numbers;
static kernel_table kernels;

static float number(void) { return (float)((double)(tiny_random_below(&numbers, 2000001)) / 1e6 - 1.0); }

/* A backend with two layers that attend, and a pool in its memory. */
typedef struct world {
    model_network net;
    model_layer layers[N_LAYERS];
    backend *b;
    kv_pool *pool;
} world;

static void open_world(world *w, rp_kv_format format) {
    const kv_shape shape = {KV_ROWS(N_LAYERS, KV_ROW(N_KV_HEADS, KEY_DIM, VALUE_DIM, 0, false),
                                    KV_ROW(N_KV_HEADS, KEY_DIM, VALUE_DIM, 0, true)),
                            .format = format};
    rp_error err = {0};
    *w = (world){.net = {.hp = {.n_embd = 64, .n_layers = N_LAYERS, .norm_eps = 1e-5f, .score_scale = 0.125f}}};
    for (int i = 0; i < N_LAYERS; i++)
        w->layers[i] = (model_layer){.n_heads = N_HEADS,
                                     .n_kv_heads = N_KV_HEADS,
                                     .key_dim = KEY_DIM,
                                     .value_dim = VALUE_DIM,
                                     .mixer = MODEL_ATTENTION,
                                     .rope = MODEL_NO_ROPE,
                                     .states = i,
                                     .recurrence = -1,
                                     .index = -1,
                                     .owns_kv = true};
    w->net.layers = w->layers;
    const backend_options o = {.shape = shape, .n_ctx = 512, .n_threads = 1, .max_rows = N_TOKENS};
    must(backend_open(&w->b, "vulkan", &w->net, &o, &err), &err);
    must(kv_pool_new(&w->pool, &shape, 1 << 24, w->b->ops->memory(w->b), &err), &err);
}

static void close_world(world *w) {
    kv_pool_free(w->pool);
    w->b->ops->free(w->b);
}

static kv_span *new_span(world *w, rp_kv_format format) {
    kv_span *s;
    rp_error err = {0};
    int32_t slot;
    must(kv_span_new_in(&s, w->pool, format, 0, &err), &err);
    for (int i = 0; i < N_TOKENS; i++) must(kv_span_append(s, &slot, &err), &err);
    return s;
}

static int slots_of(int32_t block) { return BASE_MIN(N_TOKENS - block * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS); }
#define N_BLOCKS BASE_DIV_UP(N_TOKENS, KV_BLOCK_SLOTS)

/* Stores a slot as cpu_store does. */
static void store(const kv_layer *l, bool is_key, const float *x, void *head, int slot) {
    const int64_t dim = is_key ? l->key_dim : l->value_dim;
    const kv_element e = kv_format_side(l->format, is_key);
    float y[KEY_DIM];
    memcpy(y, x, sizeof(*y) * (size_t)dim);
    if (is_key && e == KV_ELEMENT_INT8) kernel_hadamard(y, dim, kernel_hadamard_size(dim));
    cpu_element_rows[e]->store(&kernels, is_key)(y, dim, head, slot);
}

/* Numbers of different sizes by dimension; few are not finite, if the test has such ones. */
static void make_numbers(float *x, int64_t dim, bool some_are_infinite) {
    const float size = ldexpf(1, (int)tiny_random_below(&numbers, 24) - 12);
    for (int64_t d = 0; d < dim; d++) x[d] = number() * size * (d % 17 == 3 ? 30.0f : 1.0f);
    const float special[3] = {INFINITY, -INFINITY, NAN};
    if (some_are_infinite && tiny_random_below(&numbers, 40) == 0)
        x[tiny_random_below(&numbers, (uint32_t)dim)] = special[tiny_random_below(&numbers, 3)];
    if (tiny_random_below(&numbers, 20) == 0) memset(x, 0, sizeof(*x) * (size_t)dim);
}

static void fill_span(kv_span *s, bool some_are_infinite) {
    for (int32_t layer = 0; layer < N_LAYERS; layer++)
        for (int32_t block = 0; block < N_BLOCKS; block++)
            for (int32_t head = 0; head < N_KV_HEADS; head++) {
                const kv_layer *l = kv_span_layer(s, layer);
                char *cell = calloc(1, l->cell_bytes);
                float x[KEY_DIM];
                for (int slot = 0; slot < slots_of(block); slot++)
                    for (int is_key = 0; is_key < 2; is_key++) {
                        make_numbers(x, is_key ? KEY_DIM : VALUE_DIM, some_are_infinite);
                        store(l, is_key, x, cell + (is_key ? 0 : l->key_bytes), slot);
                    }
                kv_span_put_cell(s, layer, block, head, cell);
                free(cell);
            }
}

/* ---- encoding ---- */

/* A cell of `from`, encoded by the CPU. */
static void encode_cell(const kv_span *from, const kv_layer *to, int32_t layer, int32_t block, int32_t head,
                        char *out) {
    const kv_layer *l = kv_span_layer(from, layer);
    char *cell = malloc(l->cell_bytes);
    float *x = malloc(sizeof(float) * KV_BLOCK_SLOTS * KEY_DIM);
    kv_span_get_cell(from, layer, block, head, cell);
    cpu_encode_head(&kernels, l, cell, true, slots_of(block), x, to, out);
    cpu_encode_head(&kernels, l, cell + l->key_bytes, false, slots_of(block), x, to, out + to->key_bytes);
    free(cell), free(x);
}

static void check_cells(const kv_span *from, const kv_span *to) {
    for (int32_t layer = 0; layer < N_LAYERS; layer++)
        for (int32_t block = 0; block < N_BLOCKS; block++)
            for (int32_t head = 0; head < N_KV_HEADS; head++) {
                const kv_layer *l = kv_span_layer(to, layer), one = kv_layer_cell(l);
                char *expected = malloc(l->cell_bytes), *cell = malloc(l->cell_bytes);
                encode_cell(from, l, layer, block, head, expected);
                kv_span_get_cell(to, layer, block, head, cell);
                kv_block_clear_slots(&one, expected, slots_of(block)); /* of floats: undefined */
                kv_block_clear_slots(&one, cell, slots_of(block));
                for (size_t i = 0; i < l->cell_bytes; i++)
                    if (cell[i] != expected[i])
                        fail_msg("%s to %s: layer %d, block %d, head %d: byte %zu (values from %zu) is %d, not %d",
                                 kv_format_name(kv_span_layer_format(from, layer)),
                                 kv_format_name(kv_span_layer_format(to, layer)), layer, block, head, i, l->key_bytes,
                                 cell[i], expected[i]);
                free(expected), free(cell);
            }
}

static void encoded_blocks_have_the_bytes_of_the_cpu(void **state) {
    static const rp_kv_format sources[] = {RP_KV_F32, RP_KV_F16, RP_KV_INT8},
                              targets[] = {RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(sources); i++) {
        rp_error err = {0};
        world w;
        open_world(&w, sources[i]);
        for (int round = 0; round < 6; round++) {
            kv_span *from = new_span(&w, sources[i]), *to;
            fill_span(from, round % 2 == 1);
            must(kv_span_new_like(&to, from, targets[round / 2], &err), &err);
            must(w.b->ops->encode(w.b, from, to, &err), &err);
            check_cells(from, to);
            kv_span_unref(from);
            kv_span_unref(to);
        }
        close_world(&w);
    }
}

/* ---- reading ---- */

/* A head of a span is read as what the CPU decodes; slots of a freed block are 0. */
static void check_read(world *w, const kv_span *s, int32_t layer, int32_t head, bool is_key) {
    const kv_layer *l = kv_span_layer(s, layer);
    const size_t dim = is_key ? KEY_DIM : VALUE_DIM;
    rp_error err = {0};
    char *cell = malloc(l->cell_bytes);
    float *x = malloc(sizeof(*x) * N_TOKENS * dim), expected[KEY_DIM];
    const kv_span *const run[] = {s};
    must(w->b->ops->study->read_head(w->b, run, 1, layer, head, is_key, x, &err), &err);
    for (int32_t slot = 0; slot < N_TOKENS; slot++) {
        const int32_t block = slot / KV_BLOCK_SLOTS;
        memset(expected, 0, sizeof(expected));
        if (kv_span_has(s, layer, block)) {
            kv_span_get_cell(s, layer, block, head, cell);
            cpu_elements(l, cell + (is_key ? 0 : l->key_bytes), is_key, slot % KV_BLOCK_SLOTS, expected);
        }
        assert_memory_equal(x + (size_t)slot * dim, expected, sizeof(*x) * dim);
    }
    free(cell), free(x);
}

static void heads_are_read_as_the_cpu_decodes_them(void **state) {
    static const rp_kv_format formats[] = {RP_KV_F32, RP_KV_F16, RP_KV_INT8, RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    (void)state;
    for (size_t f = 0; f < BASE_ARRAY_LEN(formats); f++) {
        const bool is_encoded = kv_format_is_encoded(formats[f]);
        rp_error err = {0};
        world w;
        open_world(&w, is_encoded ? RP_KV_F32 : formats[f]);
        kv_span *from = new_span(&w, is_encoded ? RP_KV_F32 : formats[f]), *s = from;
        fill_span(from, false);
        if (is_encoded) {
            must(kv_span_new_like(&s, from, formats[f], &err), &err);
            must(w.b->ops->encode(w.b, from, s, &err), &err);
            kv_span_unref(from);
        }
        for (int i = 0; i < N_LAYERS * N_KV_HEADS * 2; i++)
            check_read(&w, s, i / 2 / N_KV_HEADS, i / 2 % N_KV_HEADS, i % 2);
        kv_span_unref(s);
        close_world(&w);
    }
}

/* ---- storing ---- */

/* Of a step that began. */
static backend_buffer *buffer_of(world *w, int32_t rows, int32_t width, const float *x) {
    rp_error err = {0};
    backend_buffer *b;
    must(w->b->ops->buffer_new(w->b, rows, width, &b, &err), &err);
    w->b->ops->buffer_write(w->b, x, rows, b);
    return b;
}

static void finish(world *w, const backend_buffer *read, int32_t rows) {
    rp_error err = {0};
    w->b->ops->submit(w->b, read, rows);
    must(w->b->ops->finish(w->b, &err), &err);
}

static void check_stored(const kv_span *s, int32_t layer, const float *keys, const float *values) {
    const kv_layer *l = kv_span_layer(s, layer), one = kv_layer_cell(l);
    for (int32_t block = 0; block < N_BLOCKS; block++)
        for (int32_t head = 0; head < N_KV_HEADS; head++) {
            char *expected = calloc(1, l->cell_bytes), *cell = malloc(l->cell_bytes);
            for (int slot = 0; slot < slots_of(block); slot++) {
                const int32_t row = (block * KV_BLOCK_SLOTS + slot) * N_KV_HEADS + head;
                store(l, true, keys + row * KEY_DIM, expected, slot);
                store(l, false, values + row * VALUE_DIM, expected + l->key_bytes, slot);
            }
            kv_span_get_cell(s, layer, block, head, cell);
            kv_block_clear_slots(&one, cell, slots_of(block));
            assert_memory_equal(cell, expected, l->cell_bytes);
            free(expected), free(cell);
        }
}

static void stored_rows_have_the_bytes_of_the_cpu(void **state) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_INT8};
    static float keys[N_TOKENS * N_KV_HEADS * KEY_DIM], values[N_TOKENS * N_KV_HEADS * VALUE_DIM];
    model_row rows[N_TOKENS];
    (void)state;
    for (size_t f = 0; f < BASE_ARRAY_LEN(formats); f++) {
        rp_error err = {0};
        kv_context c;
        world w;
        open_world(&w, formats[f]);
        kv_context_init(&c, w.pool);
        for (int32_t i = 0; i < N_TOKENS; i++) {
            rows[i] = (model_row){.pos = i};
            must(kv_context_append(&c, i, &rows[i].span, &rows[i].slot, &err), &err);
            for (int32_t h = 0; h < N_KV_HEADS; h++) {
                make_numbers(keys + (i * N_KV_HEADS + h) * KEY_DIM, KEY_DIM, true);
                make_numbers(values + (i * N_KV_HEADS + h) * VALUE_DIM, VALUE_DIM, true);
            }
        }
        const kv_context *contexts[] = {&c};
        const model_step step = {.rows = rows, .n_rows = N_TOKENS, .contexts = contexts, .n_contexts = 1};
        must(w.b->ops->begin(w.b, &step, &err), &err);
        backend_buffer *k = buffer_of(&w, N_TOKENS, N_KV_HEADS * KEY_DIM, keys),
                       *v = buffer_of(&w, N_TOKENS, N_KV_HEADS * VALUE_DIM, values);
        for (int32_t layer = 0; layer < N_LAYERS; layer++) w.b->ops->store(w.b, layer, k, v);
        finish(&w, NULL, 0);
        for (int32_t layer = 0; layer < N_LAYERS; layer++) check_stored(c.views[0].span, layer, keys, values);
        w.b->ops->buffer_free(w.b, k);
        w.b->ops->buffer_free(w.b, v);
        kv_context_clear(&c);
        close_world(&w);
    }
}

/* ---- attention ---- */

/* A span of f32 with what the CPU decodes of another. */
static kv_span *decoded_span(world *w, const kv_span *s) {
    kv_span *out = new_span(w, RP_KV_F32);
    for (int32_t block = 0; block < N_BLOCKS; block++)
        for (int32_t head = 0; head < N_KV_HEADS; head++) {
            const kv_layer *l = kv_span_layer(s, 0), *to = kv_span_layer(out, 0);
            char *cell = malloc(l->cell_bytes), *floats = calloc(1, to->cell_bytes);
            float x[KEY_DIM];
            kv_span_get_cell(s, 0, block, head, cell);
            for (int slot = 0; slot < slots_of(block); slot++)
                for (int is_key = 0; is_key < 2; is_key++) {
                    cpu_elements(l, cell + (is_key ? 0 : l->key_bytes), is_key, slot, x);
                    store(to, is_key, x, floats + (is_key ? 0 : to->key_bytes), slot);
                }
            kv_span_put_cell(out, 0, block, head, floats);
            free(cell), free(floats);
        }
    return out;
}

/* Takes the reference. */
static void attend(world *w, kv_span *s, const float *queries, float *out) {
    rp_error err = {0};
    kv_context c;
    base_key key = {{1}};
    kv_span_seal(s, &key);
    kv_context_init(&c, w->pool);
    must(kv_context_add(&c, s, 0, NULL, &err), &err);
    const model_row row = {.pos = N_TOKENS};
    const kv_context *contexts[] = {&c};
    const model_step step = {.rows = &row, .n_rows = 1, .contexts = contexts, .n_contexts = 1};
    must(w->b->ops->begin(w->b, &step, &err), &err);
    backend_buffer *q = buffer_of(w, 1, N_HEADS * KEY_DIM, queries),
                   *dst = buffer_of(w, 1, N_HEADS * VALUE_DIM, out);
    w->b->ops->attend(w->b, 0, q, dst);
    finish(w, dst, 1);
    w->b->ops->buffer_read(w->b, dst, 1, out);
    w->b->ops->buffer_free(w->b, q);
    w->b->ops->buffer_free(w->b, dst);
    kv_context_clear(&c);
    kv_span_unref(s);
}

static void attention_reads_what_the_cpu_decodes(void **state) {
    static const rp_kv_format formats[] = {RP_KV_INT8, RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    (void)state;
    for (size_t f = 0; f < BASE_ARRAY_LEN(formats); f++) {
        float queries[N_HEADS * KEY_DIM], out[N_HEADS * VALUE_DIM] = {0}, expected[N_HEADS * VALUE_DIM] = {0};
        rp_error err = {0};
        world w;
        open_world(&w, RP_KV_F32);
        kv_span *from = new_span(&w, formats[f] == RP_KV_INT8 ? RP_KV_INT8 : RP_KV_F32), *s = from;
        for (int i = 0; i < N_HEADS * KEY_DIM; i++) queries[i] = number() / 256;
        fill_span(from, false);
        if (formats[f] != RP_KV_INT8) {
            must(kv_span_new_like(&s, from, formats[f], &err), &err);
            must(w.b->ops->encode(w.b, from, s, &err), &err);
            kv_span_unref(from);
        }
        attend(&w, decoded_span(&w, s), queries, expected);
        attend(&w, s, queries, out);
        float most = 0, error = 0;
        for (int i = 0; i < N_HEADS * VALUE_DIM; i++) {
            most = fmaxf(most, fabsf(expected[i]));
            error = fmaxf(error, fabsf(out[i] - expected[i]));
        }
        printf("%s: error %.2g of %.2g\n", kv_format_name(formats[f]), (double)error, (double)most);
        assert_true(most > 0);
        /* products with transformed keys have other roundings; all else is the same sum */
        if (formats[f] == RP_KV_INT8) assert_true(error < 1e-5f * most);
        else assert_memory_equal(out, expected, sizeof(out));
        close_world(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoded_blocks_have_the_bytes_of_the_cpu),
        cmocka_unit_test(heads_are_read_as_the_cpu_decodes_them),
        cmocka_unit_test(stored_rows_have_the_bytes_of_the_cpu),
        cmocka_unit_test(attention_reads_what_the_cpu_decodes),
    };
    rp_error err = {0};
    const model_network net = {.hp = {.n_embd = 64}};
    const char *why = vulkan_backend_unavailable(&net, BACKEND_ANY_DEVICE);
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    must(vulkan_instance_ref(&err), &err); /* stays: opening a driver takes long */
    seed = test_seed("vulkan_kv", 20261130);
    numbers.state = seed;
    kernel_table_init(&kernels, BASE_CPU_GENERIC);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vulkan_instance_unref();
    return failed;
}
