/* SPDX-License-Identifier: Apache-2.0 */
/* test_selection.c: selections of the highest scores against sorting; reduced spans against the slots that they are
 * copied from.
 */
#include <float.h>
#include <math.h>
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
#include "kv/host_memory.h"
#include "kv/context.h"
#include "support/kv_shapes.h"
#include "support/ranked.h"
#include "support/reduced_run.h"
#include "support/seed.h"
#include "support/tiny_random.h"

static int32_t below(tiny_random *r, int32_t n) { return (int32_t)tiny_random_below(r, (uint64_t)n); }

/* ---- selections ---- */

/* By sorting the scores of heads [first, end). */
static void select_by_sorting(const float *scores, int32_t n_slots, int32_t first, int32_t end, int32_t permille,
                              bool *out) {
    ranked *all = base_alloc(sizeof(*all) * (size_t)((end - first) * n_slots));
    int32_t n = 0;
    for (int32_t i = first * n_slots; i < end * n_slots; i++) {
        out[i] = false;
        if (scores[i] != -INFINITY)
            all[n++] = (ranked){(double)(isnan(scores[i]) ? -INFINITY : scores[i]), i % n_slots, i / n_slots};
    }
    qsort(all, (size_t)n, sizeof(*all), compare_ranked);
    for (int32_t i = 0; i * 1000 < n * permille; i++) out[all[i].head * n_slots + all[i].slot] = true;
    base_free(all);
}

/* Few values, so that many are equal; or any. */
static float random_score(tiny_random *r, int kind) {
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-42f, -1e-42f};
    if (kind == 0) return (float)below(r, 4);
    if (kind == 1) return special[below(r, (int32_t)BASE_ARRAY_LEN(special))];
    return tiny_random_normal(r);
}

static void the_highest_scores_are_selected(void **state) {
    tiny_random *r = *state;
    for (int round = 0; round < test_rounds(400); round++) {
        const int32_t n_layers = 1 + below(r, 3), n_kv_heads = 1 + below(r, 3), n_slots = 1 + below(r, 200),
                      n = n_layers * n_kv_heads * n_slots;
        const int32_t permille = round % 7 == 0 ? 1000 : below(r, 1001);
        const kv_selection_budget budget = round % 2 ? KV_BUDGET_ALL : KV_BUDGET_HEAD;
        float *scores = base_alloc(sizeof(*scores) * (size_t)n);
        bool *expected = base_alloc((size_t)n);
        kv_selection *s;
        for (int32_t i = 0; i < n; i++) scores[i] = random_score(r, round % 3);
        const int32_t step = budget == KV_BUDGET_ALL ? n_layers * n_kv_heads : 1;
        for (int32_t head = 0; head < n_layers * n_kv_heads; head += step)
            select_by_sorting(scores, n_slots, head, head + step, permille, expected);
        assert_int_equal(kv_selection_new(&s, n_layers, n_kv_heads, n_slots, NULL), RP_OK);
        kv_selection_add(s, 0, 0, 0); /* forgotten */
        kv_selection_highest(s, scores, budget, permille);
        for (int32_t head = 0; head < n_layers * n_kv_heads; head++) {
            int32_t count = 0;
            for (int32_t slot = 0; slot < n_slots; slot++) {
                assert_int_equal(kv_selection_has(s, head / n_kv_heads, head % n_kv_heads, slot),
                                 expected[head * n_slots + slot]);
                count += expected[head * n_slots + slot];
            }
            assert_int_equal(kv_selection_count(s, head / n_kv_heads, head % n_kv_heads), count);
            assert_true(kv_selection_most(s) >= count);
        }
        kv_selection_free(s);
        base_free(scores);
        base_free(expected);
    }
    kv_selection *s;
    assert_int_equal(kv_selection_new(&s, 1, 1, KV_SELECTION_MAX_SLOTS + 1, NULL), RP_ERR_LIMIT);
    assert_null(s);
}

/* ---- reduced spans ---- */

#define N_RUN_SPANS REDUCED_RUN_SPANS

/* The last of the run's spans has 1 to 256 tokens. */
static int32_t random_tokens(tiny_random *r) {
    return (N_RUN_SPANS - 1) * KV_SPAN_TOKENS + 1 + below(r, KV_SPAN_TOKENS);
}

/* One head's keys or values as the only ones of a block: for kv_block_same_slot. */
static bool same_slot(const kv_layer *l, const void *keys_a, const void *values_a, int slot_a, const void *keys_b,
                      const void *values_b, int slot_b) {
    const kv_layer one = kv_layer_cell(l);
    uint8_t *a = base_alloc(2 * one.cell_bytes), *b = a + one.cell_bytes;
    memcpy(a, keys_a, one.key_bytes);
    memcpy(a + one.key_bytes, values_a, one.value_bytes);
    memcpy(b, keys_b, one.key_bytes);
    memcpy(b + one.key_bytes, values_b, one.value_bytes);
    const bool same = kv_block_same_slot(&one, a, slot_a, b, slot_b);
    base_free(a);
    return same;
}

/* Slots of the run that a head keeps, by the selection's bits. */
static int32_t list_head(const kv_selection *s, int32_t layer, int32_t head, int32_t *out) {
    int32_t n = 0;
    for (int32_t slot = 0; slot < s->n_slots; slot++)
        if (kv_selection_has(s, layer, head, slot)) out[n++] = slot;
    return n;
}

/* Part `part` of a head of a reduced run: its slots, their positions and bytes. Returns the number of its cells. */
static int32_t check_head(const kv_span *to, const kv_shape *own, int32_t part, kv_span *const run[N_RUN_SPANS],
                          const kv_selection *s, int32_t layer, int32_t head) {
    static int32_t slots[N_RUN_SPANS * KV_SPAN_TOKENS];
    const int32_t all = list_head(s, layer, head, slots), first = part * KV_SPAN_TOKENS,
                  n = BASE_MIN(BASE_MAX(all - first, 0), KV_SPAN_TOKENS);
    const kv_layer l = kv_shape_layer(own, layer);
    assert_int_equal(kv_span_slots(to, layer, head), n);
    for (int32_t i = 0; i < n; i++) {
        const int32_t slot = slots[first + i], block = slot % KV_SPAN_TOKENS / KV_BLOCK_SLOTS;
        const kv_span *from = run[slot / KV_SPAN_TOKENS];
        assert_int_equal(kv_span_positions(to, layer, head)[i], kv_span_position(run[0]) + slot);
        const void *keys = kv_host_bytes(kv_span_keys(from, layer, block, head)),
                   *values = kv_host_bytes(kv_span_values(from, layer, block, head));
        assert_true(same_slot(&l, keys, values, slot % 64, kv_host_bytes(kv_span_keys(to, layer, i / 64, head)),
                              kv_host_bytes(kv_span_values(to, layer, i / 64, head)), i % 64));
    }
    return (n + 63) / 64;
}

/* What a token sees of a head: by definition. */
static void check_visible(const kv_view *v, int32_t layer, int32_t head, int32_t pos, int32_t window) {
    const int32_t *positions = kv_span_positions(v->span, layer, head);
    for (int32_t block = 0; block < KV_SPAN_BLOCKS; block++) {
        uint64_t expected = 0;
        for (int32_t i = block * 64; i < kv_span_slots(v->span, layer, head) && i < block * 64 + 64; i++) {
            const int32_t at = positions[i] + v->shift;
            if (at <= pos && (window == 0 || at > pos - window)) expected |= UINT64_C(1) << (i % 64);
        }
        assert_true(kv_view_visible(v, layer, head, block, pos, window) == expected);
    }
}

static void check_views(kv_pool *pool, kv_span *to, int32_t pos, tiny_random *r) {
    const kv_shape *shape = kv_pool_shape(pool);
    kv_context c;
    base_key key = {{1}};
    kv_context_init(&c, pool);
    kv_span_seal(to, &key);
    assert_int_equal(kv_context_add(&c, to, below(r, 300), NULL, NULL), RP_OK);
    for (int i = 0; i < 20; i++)
        check_visible(&c.views[0], below(r, shape->n_layers), below(r, kv_shape_heads(shape)), pos + below(r, 1200),
                      i % 2 * (1 + below(r, 300)));
    assert_int_equal(kv_context_slots(&c), kv_span_tokens(to));
    kv_context_clear(&c);
}

static uint64_t packed_blocks(const kv_packing *packing, int32_t n_cells) {
    return n_cells ? (uint64_t)(n_cells * packing->per_cell + packing->per_block - 1) / (uint64_t)packing->per_block
                   : 0;
}

/* All spans of a reduced run. */
static void check_reduced(kv_pool *pool, kv_span *const run[N_RUN_SPANS], const kv_selection *s, tiny_random *r) {
    const kv_shape *shape = kv_pool_shape(pool), own = kv_shape_in(shape, kv_span_format(run[0]));
    const kv_packing packing = kv_shape_packing(shape, own.format), f16_packing = kv_shape_packing(shape, RP_KV_F16);
    int32_t most = 0;
    for (int32_t part = 0; part < kv_reduced_spans(s); part++) {
        const uint64_t used = kv_pool_get_stats(pool).used_bytes;
        int32_t n_cells = 0, n_f16 = 0, tokens = 0;
        kv_span *to;
        assert_int_equal(kv_span_reduce(&to, (const kv_span *const *)run, N_RUN_SPANS, s, part, NULL), RP_OK);
        assert_true(kv_span_is_reduced(to) && !kv_span_has_pool_format(to));
        for (int32_t layer = 0; layer < shape->n_layers; layer++)
            for (int32_t head = 0; head < kv_shape_heads(shape); head++) {
                *(kv_shape_layer_format(&own, layer) == own.format ? &n_cells : &n_f16) +=
                    check_head(to, &own, part, run, s, layer, head);
                tokens = BASE_MAX(tokens, kv_span_slots(to, layer, head));
            }
        const uint64_t blocks = packed_blocks(&packing, n_cells) + packed_blocks(&f16_packing, n_f16);
        assert_int_equal(kv_span_bytes(to), blocks * kv_pool_block_bytes(pool)); /* memory is really freed */
        assert_int_equal(kv_pool_get_stats(pool).used_bytes - used, kv_span_bytes(to));
        assert_int_equal(kv_span_tokens(to), tokens);
        check_views(pool, to, kv_span_position(run[0]), r);
        most += tokens;
        kv_span_unref(to);
    }
    assert_int_equal(most, kv_selection_most(s));
}

static void reduced_spans_have_the_selected_slots(void **state) {
    const kv_shape shapes[] = {
        {KV_SAME(3, 2, 8, 4), .format = RP_KV_F32},
        {KV_SAME(2, 4, 16, 16), .format = RP_KV_F16},
        {KV_SAME(2, 2, 16, 16), .format = RP_KV_INT8},
        {KV_SAME(2, 1, 16, 16), .format = RP_KV_INT8}, /* f16: keys and values apart */
        {KV_ROWS(3, KV_ROW(2, 16, 16, 0, false), KV_ROW(2, 16, 16, 0, true), KV_ROW(2, 16, 16, 0, false)),
         .format = RP_KV_INT8},
    };
    tiny_random *r = *state;
    for (int round = 0; round < test_rounds(40); round++) {
        const kv_shape *shape = &shapes[round % (int)BASE_ARRAY_LEN(shapes)];
        const rp_kv_format format = round % 2 ? shape->format : RP_KV_F16;
        kv_pool *pool;
        kv_span *run[N_RUN_SPANS];
        kv_selection *s;
        assert_int_equal(kv_pool_new(&pool, shape, 1 << 24, NULL, NULL), RP_OK);
        if (!kv_pool_takes(pool, format)) {
            kv_pool_free(pool);
            continue;
        }
        const int32_t n = random_tokens(r);
        reduced_run_make(r, pool, format, below(r, 500), n, run);
        s = reduced_run_select(r, shape, n);
        check_reduced(pool, run, s, r);
        kv_selection_free(s);
        reduced_run_free(run);
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
        kv_pool_free(pool);
    }
}

/* Another format of the same slots; failures leave nothing. */
static void a_reduced_span_is_encoded_or_not_at_all(void **state) {
    const kv_shape shape = {KV_SAME(2, 2, 16, 16), .format = RP_KV_F16};
    tiny_random *r = *state;
    kv_pool *pool;
    kv_span *run[N_RUN_SPANS], *to, *other;
    kv_selection *s;
    rp_error err;
    assert_int_equal(kv_pool_new(&pool, &shape, 32 * 64 * 2 * 2 * 16 * 2, NULL, NULL), RP_OK); /* 32 blocks */
    const int32_t n = random_tokens(r);
    reduced_run_make(r, pool, RP_KV_F16, 7, n, run);
    assert_int_equal(kv_selection_new(&s, 2, 2, n, NULL), RP_OK);
    for (int32_t slot = 3; slot < 80; slot++) kv_selection_add(s, 1, slot % 2, slot); /* none in layer 0 */
    assert_int_equal(kv_span_reduce(&to, (const kv_span *const *)run, N_RUN_SPANS, s, 0, NULL), RP_OK);
    assert_int_equal(kv_span_position(to), 10);
    assert_int_equal(kv_span_end(to), 87);
    assert_int_equal(kv_span_readable_from(to), INT32_MIN); /* nothing was freed before */
    assert_int_equal(kv_span_new_like(&other, to, RP_KV_KIVI4, NULL), RP_OK);
    for (int32_t head = 0; head < 4; head++) {
        assert_int_equal(kv_span_slots(other, head / 2, head % 2), kv_span_slots(to, head / 2, head % 2));
        const size_t bytes = sizeof(int32_t) * (size_t)kv_span_slots(to, head / 2, head % 2);
        assert_memory_equal(kv_span_positions(other, head / 2, head % 2), kv_span_positions(to, head / 2, head % 2),
                            bytes);
    }
    assert_true(kv_span_bytes(other) <= kv_span_bytes(to));
    const uint64_t used = kv_pool_get_stats(pool).used_bytes;
    kv_address rest[64];
    const size_t n_free = (kv_pool_get_stats(pool).budget_bytes - used) / kv_pool_block_bytes(pool);
    assert_int_equal(kv_pool_take(pool, rest, n_free, NULL), RP_OK);
    kv_span *none;
    assert_int_equal(kv_span_reduce(&none, (const kv_span *const *)run, N_RUN_SPANS, s, 0, &err), RP_ERR_BUDGET);
    assert_null(none);
    kv_pool_give(pool, rest, n_free);
    for (int i = 1;; i++) {
        base_alloc_fail_at((uint64_t)i, 0);
        int rc = kv_span_reduce(&none, (const kv_span *const *)run, N_RUN_SPANS, s, 0, &err);
        base_alloc_fail_at(0, 0);
        if (rc == RP_OK) break;
        assert_int_equal(rc, RP_ERR_MEMORY);
        assert_null(none);
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, used);
    }
    kv_span_unref(none);
    kv_span_unref(other);
    kv_span_unref(to);
    reduced_run_free(run);
    kv_selection_free(s);
    kv_pool_free(pool);
}

/* ---- forms ---- */

/* A span that is made from the form of a reduced one, and filled with its positions, has the same slots and blocks. */
static void check_restored(kv_pool *pool, const kv_span *s) {
    const kv_shape *shape = kv_pool_shape(pool);
    uint16_t *arrays = base_alloc(kv_span_form_bytes(s)), *copied = base_alloc(kv_span_form_bytes(s));
    const kv_span_form form = kv_span_describe(s, arrays), copy = kv_form_copy(&form, shape->n_layers, copied);
    kv_span *restored;
    assert_int_equal(kv_form_bytes(&form, shape->n_layers), kv_span_form_bytes(s));
    assert_true(kv_form_is_possible(&form, shape) && kv_span_has_form(s, &form));
    base_free(arrays);
    assert_int_equal(kv_span_restore(&restored, pool, &copy, kv_span_key(s), NULL), RP_OK);
    for (int32_t layer = 0; layer < shape->n_layers; layer++) {
        assert_int_equal(kv_span_layers_ready(restored), layer);
        for (int32_t head = 0; head < kv_shape_heads(shape); head++) {
            const int32_t n = kv_span_slots(s, layer, head);
            assert_int_equal(kv_span_slots(restored, layer, head), n);
            kv_span_put_positions(restored, layer, head, kv_span_positions(s, layer, head));
            if (n > 0)
                assert_memory_equal(kv_span_positions(restored, layer, head), kv_span_positions(s, layer, head),
                                    sizeof(int32_t) * (size_t)n);
        }
        kv_span_set_ready(restored, layer + 1);
    }
    assert_true(kv_span_has_form(restored, &copy));
    assert_true(kv_span_is_reduced(restored) && kv_span_is_sealed(restored) && kv_span_end(restored) == kv_span_end(s));
    assert_int_equal(kv_span_parts(restored), kv_span_parts(s));
    assert_int_equal(kv_span_bytes(restored), kv_span_bytes(s));
    assert_int_equal(kv_span_bytes(restored), (uint64_t)kv_form_blocks(pool, &copy) * kv_pool_block_bytes(pool));
    for (int32_t i = 0; i < 5; i++) { /* another part of it is another form */
        kv_span_form other = copy;
        if (i < 4) ++*(int32_t *[]){&other.first_pos, &other.end, &other.n_parts, &other.readable_from}[i];
        else other.format = other.format == RP_KV_F16 ? RP_KV_INT8 : RP_KV_F16;
        assert_false(kv_span_has_form(restored, &other));
    }
    copied[kv_shape_heads(shape)] ^= 1;
    assert_false(kv_span_has_form(restored, &copy));
    kv_span_unref(restored);
    base_free(copied);
}

/* One part of any number of parts. */
static void check_parts(kv_pool *pool, const kv_span *s, int32_t n_parts) {
    uint16_t *arrays = base_alloc(kv_span_form_bytes(s));
    kv_span_form form = kv_span_describe(s, arrays);
    kv_span *restored;
    form.n_parts = n_parts;
    assert_int_equal(kv_span_restore(&restored, pool, &form, kv_span_key(s), NULL), RP_OK);
    assert_true(kv_span_has_form(restored, &form));
    assert_int_equal(kv_span_parts(restored), n_parts);
    kv_span_unref(restored);
    base_free(arrays);
}

static void a_form_gives_the_same_span(void **state) {
    const kv_shape shapes[] = {
        {KV_SAME(2, 4, 16, 16), .format = RP_KV_F16},
        {KV_ROWS(3, KV_ROW(2, 16, 16, 0, false), KV_ROW(2, 16, 16, 0, true), KV_ROW(2, 16, 16, 0, false)),
         .format = RP_KV_INT8},
    };
    tiny_random *r = *state;
    for (int round = 0; round < test_rounds(16); round++) {
        const kv_shape *shape = &shapes[round % 2];
        const int32_t n = round % 4 < 2 ? random_tokens(r) : 1 + below(r, 70);
        kv_pool *pool;
        kv_span *run[N_RUN_SPANS];
        assert_int_equal(kv_pool_new(&pool, shape, 1 << 24, NULL, NULL), RP_OK);
        reduced_run_make(r, pool, shape->format, below(r, 500), n, run);
        kv_selection *s = reduced_run_select(r, shape, n);
        for (int32_t part = 0; part < kv_reduced_spans(s); part++) {
            const base_key key = {{(uint8_t)part}};
            kv_span *to, *encoded;
            assert_int_equal(kv_span_reduce(&to, (const kv_span *const *)run, reduced_run_spans(run), s, part, NULL),
                             RP_OK);
            assert_int_equal(kv_span_parts(to), kv_reduced_spans(s));
            assert_int_equal(kv_span_new_like(&encoded, to, RP_KV_KIVI4, NULL), RP_OK);
            assert_int_equal(kv_span_parts(encoded), kv_span_parts(to));
            kv_span_seal(to, &key);
            kv_span_seal(encoded, &key);
            check_restored(pool, to);
            check_restored(pool, encoded);
            check_parts(pool, to, 1 + below(r, KV_REDUCED_MAX_PARTS));
            kv_span_unref(to);
            kv_span_unref(encoded);
        }
        kv_selection_free(s);
        reduced_run_free(run);
        kv_pool_free(pool);
    }
}

static void impossible_forms_are_refused(void **state) {
    const kv_shape shape = {KV_SAME(2, 2, 16, 16), .format = RP_KV_F16};
    static const uint16_t slots[] = {65, 0, 0, 256}, too_many[] = {65, 0, 0, 257}, fewer[] = {65, 0, 0, 255};
    static const uint8_t kept[] = {3, 15}, other_kept[] = {1, 15};
    const kv_span_form good = {.first_pos = 9,
                               .n_tokens = 256,
                               .kept = kept,
                               .slots = slots,
                               .n_kv_heads = 2,
                               .end = 9 + 256,
                               .n_parts = 65536};
    const base_key key = {{1}};
    kv_span_form forms[12];
    kv_pool *pool;
    kv_span *s;
    rp_error err;
    (void)state;
    assert_int_equal(kv_pool_new(&pool, &shape, 1 << 20, NULL, NULL), RP_OK);
    for (size_t i = 0; i < BASE_ARRAY_LEN(forms); i++) forms[i] = good;
    forms[1].end = 9 + KV_SELECTION_MAX_SLOTS;
    forms[2].end = good.end - 1;
    forms[3].end = forms[1].end + 1;
    forms[4].n_parts = 0;
    forms[5].n_parts++;
    forms[6].slots = too_many;
    forms[7].slots = fewer;
    forms[8].kept = other_kept;
    forms[9].n_kv_heads = 1;
    forms[10].first_pos = -1;
    forms[11].n_tokens = 255;
    for (size_t i = 0; i < BASE_ARRAY_LEN(forms); i++) {
        assert_int_equal(kv_span_restore(&s, pool, &forms[i], &key, &err), i < 2 ? RP_OK : RP_ERR_FORMAT);
        assert_int_equal(s != NULL, i < 2);
        kv_span_unref(s);
    }
    for (int i = 1;; i++) {
        base_alloc_fail_at((uint64_t)i, 0);
        const int rc = kv_span_restore(&s, pool, &good, &key, &err);
        base_alloc_fail_at(0, 0);
        if (rc == RP_OK) break;
        assert_int_equal(rc, RP_ERR_MEMORY);
        assert_null(s);
    }
    kv_span_unref(s);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    kv_pool_free(pool);
}

int main(void) {
    tiny_random random = {test_seed("test_selection", 20261124)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(the_highest_scores_are_selected, &random),
        cmocka_unit_test_prestate(reduced_spans_have_the_selected_slots, &random),
        cmocka_unit_test_prestate(a_reduced_span_is_encoded_or_not_at_all, &random),
        cmocka_unit_test_prestate(a_form_gives_the_same_span, &random),
        cmocka_unit_test(impossible_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
