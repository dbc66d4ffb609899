/* SPDX-License-Identifier: Apache-2.0 */
/* test_layers.c: layers of different kinds and sizes in one pool: each head of each layer has memory of its own, in
 * spans of every layout; states of recurrent layers; what a shape allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "kv/context.h"
#include "support/kv_shapes.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define LATENT_ROW(keys, values) \
    { .kind = KV_LATENT, .n_heads = 1, .key_dim = keys, .value_dim = values }
#define STATE_ROW(bytes) \
    { .kind = KV_STATE, .state_bytes = bytes }

/* Alternating widths, fewer heads in every third layer, a layer with wide heads, a latent one, states between them. */
static const kv_layer_shape alternating[] = {KV_ROW(4, 16, 16, 70, false), KV_ROW(2, 32, 32, 0, false),
                                             KV_ROW(4, 16, 16, 70, true)};
static const kv_layer_shape wide[] = {KV_ROW(2, 8, 8, 0, false), KV_ROW(1, 48, 16, 0, false),
                                      KV_ROW(3, 8, 8, 100, false)};
static const kv_layer_shape latent[] = {LATENT_ROW(40, 32), KV_ROW(1, 40, 32, 0, false), LATENT_ROW(40, 32)};
static const kv_layer_shape hybrid[] = {STATE_ROW(5000), KV_ROW(2, 16, 16, 0, false), STATE_ROW(12288), STATE_ROW(1)};
static const kv_layer_shape recurrent[] = {STATE_ROW(3 << 16), STATE_ROW(100)};

#define SHAPE(layers_of, a_format) \
    { .n_layers = (int32_t)BASE_ARRAY_LEN(layers_of), .layers = layers_of, .format = a_format }

static const kv_shape shapes[] = {
    SHAPE(alternating, RP_KV_F16),
    SHAPE(alternating, RP_KV_INT8),
    SHAPE(alternating, RP_KV_F32),
    SHAPE(wide, RP_KV_F32),
    SHAPE(wide, RP_KV_F16),
    SHAPE(wide, RP_KV_INT8),
    SHAPE(latent, RP_KV_F16),
    SHAPE(latent, RP_KV_F32),
    SHAPE(hybrid, RP_KV_F16),
    SHAPE(hybrid, RP_KV_INT8),
};

static int32_t below(tiny_random *r, int32_t n) { return (int32_t)tiny_random_below(r, (uint64_t)n); }

/* ---- keys and values ---- */

/* Calls fn for each cell that the span has, in order. */
static int for_cells(kv_span *s, void (*fn)(kv_span *s, int32_t layer, int32_t block, int32_t head, uint8_t number)) {
    int n = 0;
    for (int32_t layer = 0; layer < kv_span_shape(s)->n_layers; layer++)
        for (int32_t block = 0; block * KV_BLOCK_SLOTS < kv_span_tokens(s); block++)
            for (int32_t head = 0; kv_span_has(s, layer, block) && head < kv_span_layer(s, layer)->n_heads; head++)
                fn(s, layer, block, head, (uint8_t)(++n * 7 + 1));
    return n;
}

static void put_number(kv_span *s, int32_t layer, int32_t block, int32_t head, uint8_t number) {
    const size_t bytes = kv_span_layer(s, layer)->cell_bytes;
    void *cell = malloc(bytes);
    memset(cell, number, bytes);
    kv_span_put_cell(s, layer, block, head, cell);
    free(cell);
}

static void expect_number(kv_span *s, int32_t layer, int32_t block, int32_t head, uint8_t number) {
    const kv_layer *l = kv_span_layer(s, layer);
    uint8_t *cell = malloc(l->cell_bytes);
    kv_span_get_cell(s, layer, block, head, cell);
    for (size_t i = 0; i < l->cell_bytes; i++) assert_int_equal(cell[i], number);
    free(cell);
    const uint64_t keys = kv_span_keys(s, layer, block, head).at, values = kv_span_values(s, layer, block, head).at;
    if (l->kind == KV_LATENT) /* a view of their last dimensions */
        assert_int_equal(values - keys, l->key_bytes / (size_t)l->key_dim * (size_t)(l->key_dim - l->value_dim));
    else assert_int_not_equal(keys, values);
}

/* No two cells share memory, and none is outside the blocks that the span has taken. */
static void check_cells(kv_span *s, const kv_pool *pool) {
    const int n = for_cells(s, put_number);
    uint64_t least = 0;
    assert_int_equal(for_cells(s, expect_number), n);
    for (int32_t i = 0; i < kv_span_shape(s)->n_layers; i++)
        for (int32_t b = 0; b * KV_BLOCK_SLOTS < kv_span_tokens(s); b++)
            least += kv_span_has(s, i, b) ? kv_span_layer(s, i)->block_bytes : 0;
    assert_true(kv_span_bytes(s) >= least && kv_span_bytes(s) % kv_pool_block_bytes(pool) == 0);
}

static void check_form(kv_span *s, kv_pool *pool) {
    const base_key key = {{3}};
    void *arrays = malloc(kv_span_form_bytes(s));
    kv_span *copy;
    rp_error err;
    const kv_span_form form = kv_span_describe(s, arrays);
    assert_true(kv_form_is_possible(&form, kv_pool_shape(pool)) && kv_span_has_form(s, &form));
    if (kv_span_restore(&copy, pool, &form, &key, &err)) fail_msg("%s", err.message);
    assert_int_equal(kv_span_bytes(copy), (uint64_t)kv_form_blocks(pool, &form) * kv_pool_block_bytes(pool));
    assert_true(kv_span_has_form(copy, &form));
    check_cells(copy, pool);
    kv_span_unref(copy);
    free(arrays);
}

static kv_span *new_run(kv_pool *pool, rp_kv_format format, int32_t n) {
    kv_span *s;
    int32_t slot;
    rp_error err;
    if (kv_span_new_in(&s, pool, format, 10, &err)) fail_msg("%s", err.message);
    for (int32_t i = 0; i < n; i++) assert_int_equal(kv_span_append(s, &slot, &err), RP_OK);
    return s;
}

static void every_head_has_memory_of_its_own(void **state) {
    tiny_random *r = *state;
    int n_packed = 0, n_freed = 0;
    for (int i = 0; i < (int)BASE_ARRAY_LEN(shapes) * RP_N_KV_FORMATS; i++) {
        const kv_shape *shape = &shapes[i / RP_N_KV_FORMATS];
        const rp_kv_format format = (rp_kv_format)(i % RP_N_KV_FORMATS);
        kv_pool *pool;
        kv_span *s, *like;
        rp_error err;
        if (kv_pool_new(&pool, shape, 1 << 22, NULL, &err)) fail_msg("%s", err.message);
        if (kv_pool_takes(pool, format) && !kv_format_is_encoded(format)) { /* grows token by token */
            s = new_run(pool, format, 1 + below(r, 256));
            check_cells(s, pool);
            n_freed += kv_span_trim(s, kv_span_end(s) + 60, NULL, 0);
            check_cells(s, pool);
            check_form(s, pool);
            assert_int_equal(kv_pool_get_stats(pool).used_bytes, kv_span_bytes(s));
            kv_span_unref(s);
        }
        if (kv_pool_takes(pool, format) && format != shape->format) { /* made of a complete one */
            s = new_run(pool, shape->format, 1 + below(r, 256));
            kv_span_trim(s, kv_span_end(s) + 60, NULL, 0);
            assert_int_equal(kv_span_new_like(&like, s, format, &err), RP_OK);
            check_cells(like, pool);
            check_form(like, pool);
            kv_span_unref(like);
            kv_span_unref(s);
            n_packed++;
        }
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
        kv_pool_free(pool);
    }
    printf("%d packed spans, %d blocks freed\n", n_packed, n_freed);
    assert_true(n_packed >= 30 && n_freed > 0);
}

/* A column has the fewest bytes that blocks of one of its layers allow. */
static void blocks_have_the_size_that_wastes_least(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(shapes); i++) {
        const size_t chosen = kv_shape_block_bytes(&shapes[i]);
        uint64_t least = 0;
        bool is_of_layer = false;
        kv_pool *pool;
        assert_int_equal(kv_pool_new(&pool, &shapes[i], 1 << 22, NULL, NULL), RP_OK);
        for (int32_t l = 0; l < shapes[i].n_layers; l++) {
            const kv_layer layer = kv_shape_layer(&shapes[i], l);
            is_of_layer |= kv_shape_layer_in(&shapes[i], l, shapes[i].format).block_bytes == chosen;
            least += layer.block_bytes;
        }
        const uint64_t column = (uint64_t)kv_column_blocks(pool, shapes[i].format) * chosen;
        printf("shape %zu: blocks of %zu bytes, columns of %llu, %.2f of what layers need\n", i, chosen,
               (unsigned long long)column, (double)column / (double)least);
        assert_true(is_of_layer && column >= least && (double)column < 1.6 * (double)least);
        kv_pool_free(pool);
    }
}

static void shapes_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const kv_layer_shape bad[][1] = {{KV_ROW(0, 8, 8, 0, false)},
                                            {KV_ROW(1, 0, 8, 0, false)},
                                            {KV_ROW(1, 8, 8, -1, false)},
                                            {STATE_ROW(0)},
                                            {LATENT_ROW(8, 9)},
                                            {{.kind = KV_LATENT, .n_heads = 2, .key_dim = 8, .value_dim = 8}},
                                            {{.kind = KV_STATE, .n_heads = 1, .state_bytes = 4}},
                                            {{.n_heads = 1, .key_dim = 8, .value_dim = 8, .state_bytes = 4}}};
    const kv_shape of_latent = SHAPE(latent, RP_KV_INT8);
    kv_pool *pool;
    rp_error err;
    for (size_t i = 0; i < BASE_ARRAY_LEN(bad); i++) {
        const kv_shape shape = SHAPE(bad[i], RP_KV_F16);
        assert_int_equal(kv_pool_new(&pool, &shape, 1 << 20, NULL, &err), RP_ERR_INVALID);
    }
    assert_int_equal(kv_pool_new(&pool, &of_latent, 1 << 20, NULL, &err), RP_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "int8 KV does not support layers with latent attention: choose f16");
}

/* ---- latent layers ---- */

/* Blocks of a latent layer have keys only: used slots are moved and cleared as those of other layers. */
static void latent_blocks_are_packed_without_values(void **state) {
    tiny_random *r = *state;
    const kv_layer l = kv_layer_make(&latent[0], RP_KV_F16);
    assert_true(l.value_bytes == 0 && l.block_bytes == 40 * 64 * 2 && kv_block_values_at(&l, 0) == 8 * 64 * 2);
    for (int n = 1; n <= KV_BLOCK_SLOTS; n++) {
        uint8_t a[40 * 64 * 2], b[sizeof(a)];
        for (size_t i = 0; i < sizeof(a); i++) a[i] = (uint8_t)below(r, 256);
        kv_block_clear_slots(&l, a, n);
        memcpy(b, a, sizeof(a));
        assert_int_equal(kv_block_pack(&l, b, n), (size_t)n * 40 * 2);
        kv_block_unpack(&l, b, n);
        assert_memory_equal(a, b, sizeof(a));
        assert_true(kv_block_same_slot(&l, a, n - 1, b, n - 1));
        b[2 * (n - 1)] ^= 1;
        assert_false(kv_block_same_slot(&l, a, n - 1, b, n - 1));
    }
}

/* ---- states ---- */

static void fill(uint8_t *bytes, size_t n, uint64_t seed) {
    tiny_random r = {.state = seed};
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)tiny_random_u64(&r);
}

static void put_states(kv_span *s, uint8_t seed) {
    for (int32_t l = 0; l < kv_span_shape(s)->n_layers; l++) {
        const uint32_t n = kv_span_shape(s)->layers[l].state_bytes;
        uint8_t *bytes = malloc(n + 1);
        fill(bytes, n, (uint64_t)seed << 8 | (uint64_t)l);
        if (n > 0) kv_span_put_state(s, l, bytes);
        free(bytes);
    }
}

static void expect_states(const kv_span *s, uint8_t seed) {
    for (int32_t l = 0; l < kv_span_shape(s)->n_layers; l++) {
        const uint32_t n = kv_span_shape(s)->layers[l].state_bytes;
        uint8_t *bytes = malloc(n + 1), *own = malloc(n + 1);
        fill(bytes, n, (uint64_t)seed << 8 | (uint64_t)l);
        if (n > 0) kv_span_get_state(s, l, own), assert_memory_equal(own, bytes, n);
        free(bytes);
        free(own);
    }
}

static void states_are_spans_without_tokens(void **state) {
    (void)state;
    const kv_shape some[] = {SHAPE(hybrid, RP_KV_F16), SHAPE(hybrid, RP_KV_INT8), SHAPE(recurrent, RP_KV_F16)};
    const base_key key = {{9}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(some); i++) {
        kv_pool *pool;
        kv_span *a, *b, *copy;
        uint8_t kept[4];
        rp_error err;
        if (kv_pool_new(&pool, &some[i], 1 << 22, NULL, &err)) fail_msg("%s", err.message);
        assert_int_equal(kv_span_new_states(&a, pool, 100, &err), RP_OK);
        assert_int_equal(kv_span_new_states(&b, pool, 300, &err), RP_OK);
        assert_true(kv_span_is_states(a) && kv_span_tokens(a) == 0 && kv_span_position(a) == 100 &&
                    kv_span_end(b) == 300);
        put_states(a, 1);
        put_states(b, 2);
        expect_states(a, 1);
        expect_states(b, 2);
        kv_span_seal(a, &key);
        const kv_span_form form = kv_span_describe(a, kept);
        assert_true(form.is_states && kv_form_is_possible(&form, &some[i]) && kv_span_has_form(a, &form) &&
                    !kv_span_has_form(b, &form));
        assert_int_equal(kv_span_bytes(a), (uint64_t)kv_form_blocks(pool, &form) * kv_pool_block_bytes(pool));
        assert_int_equal(kv_span_restore(&copy, pool, &form, &key, &err), RP_OK);
        put_states(copy, 3); /* it loads */
        kv_span_set_ready(copy, some[i].n_layers);
        expect_states(copy, 3);
        expect_states(a, 1);
        kv_span_unref(copy);
        kv_span_unref(a);
        kv_span_unref(b);
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
        kv_pool_free(pool);
    }
}

static void states_over_the_budget_leave_nothing(void **state) {
    (void)state;
    const kv_shape shape = SHAPE(recurrent, RP_KV_F16);
    const size_t block = kv_shape_block_bytes(&shape);
    kv_pool *pool;
    kv_span *a, *b;
    rp_error err;
    assert_int_equal(kv_pool_new(&pool, &shape, 7 * block, NULL, &err), RP_OK); /* 3 and 1 blocks */
    assert_int_equal(kv_span_new_states(&a, pool, 1, &err), RP_OK);
    assert_int_equal(kv_span_bytes(a), 4 * block);
    assert_int_equal(kv_span_new_states(&b, pool, 1, &err), RP_ERR_BUDGET);
    assert_null(b);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 4 * block);
    kv_span_unref(a);
    kv_pool_free(pool);
}

static void forms_of_states_need_layers_with_states(void **state) {
    (void)state;
    const uint8_t kept[4] = {0};
    const kv_shape plain = SHAPE(alternating, RP_KV_F16), of_states = SHAPE(hybrid, RP_KV_F16);
    const kv_span_form good = {
        .format = RP_KV_F16, .first_pos = 5, .readable_from = INT32_MIN, .kept = kept, .is_states = true};
    kv_span_form f = good;
    assert_true(kv_form_is_possible(&good, &of_states));
    assert_false(kv_form_is_possible(&good, &plain));
    f.n_tokens = 1;
    assert_false(kv_form_is_possible(&f, &of_states));
    f = good, f.first_pos = 0; /* before any token there is no state */
    assert_false(kv_form_is_possible(&f, &of_states));
    f = good, f.format = RP_KV_INT8;
    assert_false(kv_form_is_possible(&f, &of_states));
}

/* ---- what a shape allows ---- */

static void capabilities_follow_from_the_layers(void **state) {
    (void)state;
    const struct {
        kv_shape shape;
        bool composes, reduces;
    } rows[] = {
        {{KV_SAME(3, 2, 8, 4), .format = RP_KV_F16}, true, true},
        {SHAPE(alternating, RP_KV_F16), true, false},
        {SHAPE(latent, RP_KV_F16), true, false},
        {SHAPE(hybrid, RP_KV_F16), false, false},
        {SHAPE(recurrent, RP_KV_F16), false, false},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows); i++) {
        const kv_capabilities c = kv_shape_capabilities(&rows[i].shape);
        assert_true(c.masks == rows[i].composes && c.shifts == rows[i].composes && c.modules == rows[i].composes &&
                    c.truncates == rows[i].composes);
        assert_int_equal(c.reduces, rows[i].reduces);
    }
}

static int set_up(void **state) {
    static tiny_random random;
    random.state = test_seed("test_layers", 20261128);
    *state = &random;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_has_memory_of_its_own),
        cmocka_unit_test(blocks_have_the_size_that_wastes_least),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(latent_blocks_are_packed_without_values),
        cmocka_unit_test(states_are_spans_without_tokens),
        cmocka_unit_test(states_over_the_budget_leave_nothing),
        cmocka_unit_test(forms_of_states_need_layers_with_states),
        cmocka_unit_test(capabilities_follow_from_the_layers),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
