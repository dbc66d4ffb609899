/* SPDX-License-Identifier: Apache-2.0 */
/* test_divided.c: pools of spans that lie in two memories (kv_pool_divide): each layer's blocks are where they belong,
 * with the bytes of a span in one memory; and no spans, whatever was trimmed of them, take more than a part has before
 * the budget of both is used up, so that an admitted sequence never lacks a block. The device's memory is one that the
 * host cannot reach (support/trap_memory.h).
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
#include "base/memory.h"
#include "kv/context.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/reduced_run.h"
#include "support/seed.h"
#include "support/trap_memory.h"

static int32_t below(tiny_random *r, int32_t n) { return (int32_t)tiny_random_below(r, (uint64_t)n); }

static kv_pool *open_pool(const kv_shape *shape, uint64_t device_bytes, int32_t n_host, uint64_t host_bytes) {
    kv_pool *pool;
    rp_error err = {0};
    must(kv_pool_new(&pool, shape, device_bytes, trap_memory(), &err), &err);
    if (n_host > 0) kv_pool_divide(pool, n_host, host_bytes, UINT64_MAX);
    return pool;
}

/* ---- bytes ---- */

static const kv_shape shapes[] = {
    {KV_SAME(3, 2, 8, 4), .format = RP_KV_F32},
    {KV_SAME(2, 4, 16, 16), .format = RP_KV_F16},
    {KV_ROWS(3, KV_ROW(2, 16, 16, 70, false), KV_ROW(2, 16, 16, 0, true), KV_ROW(2, 16, 16, 10, false)),
     .format = RP_KV_INT8},
    {KV_ROWS(3, KV_ROW(2, 16, 8, 70, false), KV_ROW(2, 16, 8, 0, false), KV_ROW(2, 16, 8, 10, false)),
     .format = RP_KV_F16},
};

static void expect_same(const kv_span *a, const kv_span *b) {
    const size_t most = kv_shape_most_block_bytes(kv_span_shape(a));
    uint8_t *x = base_calloc(2, most);
    for (int32_t l = 0; l < kv_span_shape(a)->n_layers; l++)
        for (int32_t block = 0; block * KV_BLOCK_SLOTS < kv_span_tokens(a); block++) {
            const kv_layer *row = kv_span_layer(a, l);
            const int32_t used = BASE_MIN(kv_span_tokens(a) - block * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS);
            kv_span_get_block(a, l, block, x);
            kv_span_get_block(b, l, block, x + most);
            kv_block_clear_slots(row, x, used);
            kv_block_clear_slots(row, x + most, used);
            assert_memory_equal(x, x + most, row->block_bytes);
        }
    base_free(x);
}

static void each_layer_is_in_its_memory(void **state) {
    tiny_random *r = *state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int32_t n_host = 1; n_host < shapes[i].n_layers; n_host++) {
            kv_pool *pools[2] = {open_pool(&shapes[i], 1 << 22, 0, 0), open_pool(&shapes[i], 1 << 22, n_host, 1 << 22)};
            kv_span *runs[2][REDUCED_RUN_SPANS];
            const uint64_t seed = tiny_random_u64(r);
            const int32_t n = 1 + below(r, REDUCED_RUN_SPANS * KV_SPAN_TOKENS);
            for (int p = 0; p < 2; p++) {
                tiny_random bytes = {seed};
                reduced_run_make(&bytes, pools[p], shapes[i].format, 5, n, runs[p]);
            }
            for (size_t s = 0; s < reduced_run_spans(runs[0]); s++) {
                expect_same(runs[0][s], runs[1][s]);
                for (int32_t l = 0; l < shapes[i].n_layers; l++) {
                    const bool is_whole = kv_pool_plan(pools[1], shapes[i].format)->places[l].is_whole;
                    assert_int_equal(kv_span_is_in_place(runs[1][s], l), is_whole && l < n_host);
                }
            }
            const kv_pool_stats whole = kv_pool_get_stats(pools[0]), divided = kv_pool_get_stats(pools[1]);
            assert_int_equal(whole.used_bytes, divided.used_bytes);
            assert_int_equal(whole.host_slab_bytes, 0);
            assert_true(divided.host_slab_bytes > 0 && divided.host_slab_bytes < divided.slab_bytes);
            for (int f = 0; f < RP_N_KV_FORMATS; f++) /* other formats share blocks among layers */
                assert_int_equal(kv_pool_takes(pools[1], (rp_kv_format)f), (rp_kv_format)f == shapes[i].format);
            for (int p = 0; p < 2; p++) {
                reduced_run_free(runs[p]);
                assert_int_equal(kv_pool_get_stats(pools[p]).used_bytes, 0);
                kv_pool_free(pools[p]);
            }
        }
}

static void states_are_in_both_memories(void **state) {
    const kv_layer_shape layers[] = {{.kind = KV_STATE, .state_bytes = 5000},
                                     KV_ROW(2, 8, 8, 0, false),
                                     {.kind = KV_STATE, .state_bytes = 5000}};
    const kv_shape shape = {.n_layers = 3, .layers = layers, .format = RP_KV_F16};
    tiny_random *r = *state;
    for (int32_t n_host = 1; n_host < 3; n_host++) {
        kv_pool *pool = open_pool(&shape, 1 << 20, n_host, 1 << 20);
        kv_span *s;
        rp_error err = {0};
        uint8_t put[2][5000], got[5000];
        must(kv_span_new_states(&s, pool, 7, &err), &err);
        for (int i = 0; i < 2; i++) {
            for (size_t k = 0; k < sizeof(put[i]); k++) put[i][k] = (uint8_t)below(r, 256);
            kv_span_put_state(s, 2 * i, put[i]);
        }
        for (int i = 0; i < 2; i++) {
            kv_span_get_state(s, 2 * i, got);
            assert_memory_equal(got, put[i], sizeof(got));
        }
        kv_span_unref(s);
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
        kv_pool_free(pool);
    }
}

/* Slots of other heads share blocks of the pool: a record of them is refused, as one of another format is. */
static void reduced_spans_are_refused(void **state) {
    kv_pool *pool = open_pool(&shapes[1], 1 << 20, 1, 1 << 20);
    uint16_t slots[8];
    const uint8_t kept[] = {1, 1};
    const base_key key = {{1}};
    kv_span *s;
    (void)state;
    for (int i = 0; i < 8; i++) slots[i] = 3;
    const kv_span_form form = {.format = RP_KV_F16,
                               .n_tokens = 3,
                               .readable_from = INT32_MIN,
                               .kept = kept,
                               .slots = slots,
                               .n_kv_heads = 4,
                               .end = 9,
                               .n_parts = 1};
    assert_true(kv_form_is_possible(&form, &shapes[1]));
    assert_int_equal(kv_form_blocks(pool, &form), 0);
    assert_int_equal(kv_span_restore(&s, pool, &form, &key, NULL), RP_ERR_FORMAT);
    kv_pool_free(pool);
}

/* ---- budgets ---- */

#define MOST_LAYERS 6
#define MOST_SPANS 24

static void make_layers(tiny_random *r, kv_layer_shape *layers, int32_t n) {
    static const int32_t windows[] = {0, 0, 70, 200, 70};
    for (int32_t i = 0; i < n; i++) {
        const bool is_state = i > 0 && below(r, 5) == 0;
        layers[i] = (kv_layer_shape)KV_ROW(2, 16, 16, windows[below(r, 5)], below(r, 4) == 0);
        if (is_state) layers[i] = (kv_layer_shape){.kind = KV_STATE, .state_bytes = 1 + (uint32_t)below(r, 20000)};
    }
}

typedef struct crowd {
    kv_pool *pool;
    kv_span *spans[MOST_SPANS];
    int64_t states_blocks; /* of a span of states; 0: no layer has any */
    int n_failures;
} crowd;

/* A request for more blocks fails only if the budget of both memories is used up. */
static void expect_full(crowd *c, int rc, uint64_t blocks) {
    const kv_pool_stats t = kv_pool_get_stats(c->pool);
    assert_true(t.used_bytes <= t.budget_bytes);
    if (rc == RP_OK) return;
    assert_int_equal(rc, RP_ERR_BUDGET);
    if (t.used_bytes + blocks * kv_pool_block_bytes(c->pool) <= t.budget_bytes)
        fail_msg("%llu blocks are refused at %llu of %llu bytes", (unsigned long long)blocks,
                 (unsigned long long)t.used_bytes, (unsigned long long)t.budget_bytes);
    c->n_failures++;
}

/* Fills the span's last column. */
static void grow(crowd *c, kv_span *s) {
    int32_t slot;
    int rc = RP_OK;
    do {
        rc = kv_span_append(s, &slot, NULL);
        expect_full(c, rc, (uint64_t)kv_column_blocks(c->pool, kv_span_format(s)));
    } while (!rc && kv_span_tokens(s) % KV_BLOCK_SLOTS != 0);
}

static void change(crowd *c, tiny_random *r) {
    kv_span **s = &c->spans[below(r, MOST_SPANS)];
    rp_error err = {0};
    if (!*s && c->states_blocks > 0 && below(r, 4) == 0)
        expect_full(c, kv_span_new_states(s, c->pool, 9, &err), (uint64_t)c->states_blocks);
    else if (!*s) must(kv_span_new(s, c->pool, below(r, 300), &err), &err);
    else if (below(r, 8) == 0) {
        kv_span_unref(*s);
        *s = NULL;
    } else if (!kv_span_is_states(*s)) {
        if (kv_span_tokens(*s) < KV_SPAN_TOKENS) grow(c, *s);
        if (below(r, 2) == 0) kv_span_trim(*s, kv_span_end(*s) + below(r, 400), NULL, 0);
    }
}

static void no_part_is_full_before_the_budget(void **state) {
    tiny_random *r = *state;
    int n_failures = 0;
    for (int round = 0; round < test_rounds(200); round++) {
        kv_layer_shape layers[MOST_LAYERS];
        const int32_t n = 2 + below(r, MOST_LAYERS - 1), n_host = 1 + below(r, n - 1);
        const kv_shape shape = {.n_layers = n, .layers = layers, .format = below(r, 2) ? RP_KV_INT8 : RP_KV_F16};
        make_layers(r, layers, n);
        if (layers[0].kind == KV_STATE) continue;
        const uint64_t device = (uint64_t)(1 + below(r, 1 << 19)), host = (uint64_t)(1 + below(r, 1 << 19));
        crowd c = {.pool = open_pool(&shape, device, n_host, host)};
        const kv_pool_stats t = kv_pool_get_stats(c.pool);
        assert_true(t.budget_bytes <= device + host);
        c.states_blocks = kv_states_blocks(c.pool);
        for (int i = 0; i < 400; i++) change(&c, r);
        const kv_pool_stats after = kv_pool_get_stats(c.pool);
        assert_true(after.host_slab_bytes <= host && after.slab_bytes - after.host_slab_bytes <= device);
        for (int i = 0; i < MOST_SPANS; i++) kv_span_unref(c.spans[i]);
        assert_int_equal(kv_pool_get_stats(c.pool).used_bytes, 0);
        kv_pool_free(c.pool);
        n_failures += c.n_failures;
    }
    assert_true(n_failures > 0);
}

/* Of equal layers, the budget is that of the scarcer memory, and all of it can be used. */
static void a_budget_is_used_to_its_end(void **state) {
    const kv_shape shape = {KV_SAME(4, 2, 16, 16), .format = RP_KV_F16};
    (void)state;
    for (int32_t n_host = 1; n_host < 4; n_host++)
        for (int scarce = 0; scarce < 2; scarce++) {
            const size_t block = kv_shape_block_bytes(&shape);
            const uint64_t n_columns = 5;
            const uint64_t device = (uint64_t)(4 - n_host) * block * (scarce ? 100 : n_columns) + block / 2,
                           host = (uint64_t)n_host * block * (scarce ? n_columns : 100) + block / 2;
            kv_pool *pool = open_pool(&shape, device, n_host, host);
            kv_span *spans[8] = {NULL};
            rp_error err = {0};
            uint64_t n = 0;
            assert_int_equal(kv_pool_get_stats(pool).budget_bytes, 4 * block * n_columns);
            for (int i = 0, rc = RP_OK; i < 8 && !rc; i++) {
                int32_t slot;
                must(kv_span_new(&spans[i], pool, 0, &err), &err);
                rc = kv_span_append(spans[i], &slot, NULL);
                n += rc == RP_OK;
            }
            assert_int_equal(n, n_columns);
            for (int i = 0; i < 8; i++) kv_span_unref(spans[i]);
            kv_pool_free(pool);
        }
}

int main(void) {
    tiny_random r = {test_seed("test_divided", 98)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(each_layer_is_in_its_memory, &r),
        cmocka_unit_test_prestate(states_are_in_both_memories, &r),
        cmocka_unit_test_prestate(reduced_spans_are_refused, &r),
        cmocka_unit_test_prestate(no_part_is_full_before_the_budget, &r),
        cmocka_unit_test_prestate(a_budget_is_used_to_its_end, &r),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
