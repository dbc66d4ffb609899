/* SPDX-License-Identifier: Apache-2.0 */
/* test_context.c: masks, visibility and appending, each against its naive definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "kv/host_memory.h"
#include "kv/context.h"
#include "support/kv_shapes.h"
#include "support/seed.h"
#include "support/tiny_random.h"

static const kv_shape shape = {KV_SAME(3, 2, 8, 4), .format = RP_KV_F32};

static kv_pool *new_pool(uint64_t bytes) {
    kv_pool *pool = NULL;
    assert_int_equal(kv_pool_new(&pool, &shape, bytes, NULL, NULL), RP_OK);
    return pool;
}

static bool bit(const uint64_t mask[KV_SPAN_BLOCKS], int slot) { return mask[slot / 64] >> (slot % 64) & 1; }

static void masks_are_sets_of_slots(void **state) {
    (void)state;
    static const int edges[] = {-70, -1, 0, 1, 63, 64, 65, 127, 128, 200, 255, 256, 300};
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
        for (size_t j = 0; j < sizeof(edges) / sizeof(edges[0]); j++)
            for (int n = 0; n <= 256; n += 51) {
                uint64_t mask[KV_SPAN_BLOCKS];
                kv_mask_first(mask, n);
                kv_mask_clear(mask, edges[i], edges[j]);
                for (int slot = 0; slot < 256; slot++)
                    assert_int_equal(bit(mask, slot), slot < n && !(slot >= edges[i] && slot < edges[j]));
            }
}

static void a_token_sees_what_counts_and_stands_before_it(void **state) {
    (void)state;
    kv_pool *pool = new_pool(1 << 24);
    kv_span *span;
    int32_t slot;
    assert_int_equal(kv_span_new(&span, pool, 100, NULL), RP_OK);
    for (int i = 0; i < 150; i++) assert_int_equal(kv_span_append(span, &slot, NULL), RP_OK);
    for (int shift = -100; shift <= 1000; shift += 275) {
        kv_view v = {.span = span, .shift = shift};
        kv_mask_first(v.mask, 150);
        kv_mask_clear(v.mask, 60, 70);
        for (int pos = shift; pos < shift + 400; pos += 7)
            for (int block = 0; block < KV_SPAN_BLOCKS; block++)
                for (int j = 0; j < 64; j++) {
                    int s = block * 64 + j;
                    bool expected = s < 150 && !(s >= 60 && s < 70) && 100 + s + shift <= pos;
                    assert_int_equal(kv_view_visible(&v, 0, 0, block, pos, 0) >> j & 1, expected);
                }
    }
    kv_span_unref(span);
    kv_pool_free(pool);
}

static void appended_tokens_fill_spans(void **state) {
    (void)state;
    kv_pool *pool = new_pool(1 << 24);
    kv_context c;
    kv_span *span, *first = NULL;
    int32_t slot;
    base_key key = {{1}};
    kv_context_init(&c, pool);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(kv_context_append(&c, 10 + i, &span, &slot, NULL), RP_OK);
        if (i == 0) first = span;
        assert_int_equal(kv_span_position(span) + slot, 10 + i);
        assert_true((span == first) == (i < KV_SPAN_TOKENS));
    }
    assert_int_equal(c.n_views, 2);
    assert_int_equal(kv_context_append(&c, 500, &span, &slot, NULL), RP_OK); /* a gap */
    assert_int_equal(c.n_views, 3);
    kv_context_close(&c);
    assert_int_equal(kv_context_append(&c, 501, &span, &slot, NULL), RP_OK); /* a new run */
    assert_int_equal(c.n_views, 4);
    assert_int_equal(kv_context_slots(&c), 302);
    kv_span_seal(first, &key);
    kv_context other;
    kv_context_init(&other, pool);
    uint64_t taken = kv_pool_get_stats(pool).taken_bytes_total;
    assert_int_equal(kv_context_add(&other, first, 77, NULL, NULL), RP_OK);
    assert_int_equal(kv_pool_get_stats(pool).taken_bytes_total, taken); /* sharing takes no block */
    kv_context_clear(&c);
    assert_true(kv_span_is_unshared(first));
    assert_int_equal(kv_context_slots(&other), 256);
    kv_context_clear(&other);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    kv_pool_free(pool);
}

/* Tokens at scattered positions share blocks; visibility follows positions. */
static void scattered_tokens_see_by_position(void **state) {
    (void)state;
    enum { N = 300 };
    kv_pool *pool = new_pool(1 << 24);
    kv_context c;
    kv_span *span;
    int32_t slot, positions[N], pos = 3;
    kv_context_init(&c, pool);
    c.scatters = true;
    for (int i = 0; i < N + 40; i++) { /* and 40 that are removed again */
        assert_int_equal(kv_context_append(&c, pos, &span, &slot, NULL), RP_OK);
        assert_int_equal(kv_span_end(span), pos + 1);
        if (i < N) positions[i] = pos;
        pos += 1 + i * i % 5;
    }
    kv_context_truncate(&c, 40);
    assert_int_equal(c.n_views, 2);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 6 * 3 * kv_pool_block_bytes(pool)); /* of 340 tokens */
    assert_int_equal(kv_context_trim(&c, pos), 0);
    assert_int_equal(kv_span_end(c.views[1].span), positions[N - 1] + 1);
    for (int shift = 0; shift <= 50; shift += 50)
        for (int window = 0; window <= 100; window += 20)
            for (int p = 0; p < pos + 60; p += 7)
                for (int i = 0; i < N; i++) {
                    kv_view v = c.views[i / KV_SPAN_TOKENS];
                    int s = i % KV_SPAN_TOKENS, at = positions[i] + shift;
                    v.shift = shift;
                    bool expected = at <= p && (window == 0 || at > p - window);
                    assert_int_equal(kv_view_visible(&v, 0, 0, s / 64, p, window) >> (s % 64) & 1, expected);
                }
    kv_context_clear(&c);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    kv_pool_free(pool);
}

#define MOST_TOKENS 900

/* The naive context: positions of its tokens, and which of them no earlier span may contain. */
typedef struct naive_context {
    int32_t positions[MOST_TOKENS];
    bool begins[MOST_TOKENS + 1]; /* a run begins here: after a gap or a close */
    int n, closed;                /* tokens; those before the last close */
} naive_context;

/* The views contain the tokens one by one, in spans that begin at runs, or where the previous one is full. */
static void check_tokens(const kv_context *c, const naive_context *n) {
    int at = 0;
    for (size_t i = 0; i < c->n_views; i++) {
        const kv_view *v = &c->views[i];
        int32_t tokens = kv_span_tokens(v->span);
        assert_true(tokens > 0);
        for (int slot = 0; slot < KV_SPAN_TOKENS; slot++) assert_int_equal(bit(v->mask, slot), slot < tokens);
        for (int32_t slot = 0; slot < tokens; slot++, at++) {
            assert_true(at < n->n);
            assert_int_equal(kv_span_position(v->span) + slot, n->positions[at]);
            if (slot > 0) assert_false(n->begins[at]);
        }
    }
    assert_int_equal(at, n->n);
    assert_int_equal(kv_context_slots(c), n->n);
}

static void append_one(kv_context *c, naive_context *n, int32_t pos) {
    kv_span *span;
    int32_t slot;
    assert_int_equal(kv_context_append(c, pos, &span, &slot, NULL), RP_OK);
    assert_int_equal(kv_span_position(span) + slot, pos);
    n->begins[n->n] |= n->n == 0 || pos != n->positions[n->n - 1] + 1;
    n->positions[n->n++] = pos;
}

static void truncate(kv_context *c, naive_context *n, int taken) {
    kv_context_truncate(c, taken);
    for (; taken > 0; taken--) {
        n->n--;
        if (n->n != n->closed) n->begins[n->n] = false;
    }
}

/* Rejected drafts: tokens that were appended and removed leave no trace. */
static void tokens_are_taken_back(void **state) {
    (void)state;
    tiny_random r = {test_seed("context", 20260103)};
    kv_pool *pool = new_pool(1 << 24);
    for (int round = 0; round < 40; round++) {
        kv_context c;
        naive_context n = {0};
        int32_t pos = 0;
        kv_context_init(&c, pool);
        while (n.n < MOST_TOKENS - 20) {
            pos = n.n ? n.positions[n.n - 1] + 1 : 5;
            if (tiny_random_below(&r, 12) == 0) pos += 3;
            for (int i = (int)tiny_random_below(&r, 17); i >= 0; i--) append_one(&c, &n, pos++);
            if (tiny_random_below(&r, 2))
                truncate(&c, &n, (int)tiny_random_below(&r, (uint64_t)(n.n - n.closed) + 1) / (1 + round % 3));
            if (tiny_random_below(&r, 20) == 0) {
                kv_context_close(&c);
                n.closed = n.n;
                n.begins[n.n] = true;
            }
            check_tokens(&c, &n);
        }
        truncate(&c, &n, n.n - n.closed);
        check_tokens(&c, &n);
        kv_context_clear(&c);
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    }
    kv_pool_free(pool);
}

static void the_budget_is_hard(void **state) {
    (void)state;
    uint64_t block = 64 * 2 * (8 + 4) * 4;
    kv_pool *pool = new_pool(7 * block); /* two columns of three layers, and one block too few for a third */
    kv_context c;
    kv_span *span;
    int32_t slot;
    rp_error err = {0};
    kv_context_init(&c, pool);
    for (int i = 0; i < 128; i++) assert_int_equal(kv_context_append(&c, i, &span, &slot, &err), RP_OK);
    assert_int_equal(kv_context_append(&c, 128, &span, &slot, &err), RP_ERR_BUDGET);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 6 * block);
    kv_context_clear(&c);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    kv_pool_free(pool);
}

/* ---- packed spans ---- */

/* Fills each head's keys and values with a byte of its own, and finds them again: no two share memory. own: in the
 * span's format; n_missing: blocks of layers that the span does not have. */
static void check_apart(const kv_span *s, const kv_shape *own, int n_missing) {
    const int32_t n_blocks = (kv_span_tokens(s) + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS;
    for (int pass = 0; pass < 2; pass++) {
        uint8_t byte = 0;
        int missing = 0;
        for (int32_t i = 0; i < own->n_layers * n_blocks * kv_shape_heads(own); i++) {
            const int32_t layer = i / n_blocks / kv_shape_heads(own), block = i / kv_shape_heads(own) % n_blocks,
                          head = i % kv_shape_heads(own);
            const kv_layer of_layer = kv_shape_layer(own, layer);
            const size_t key_bytes = of_layer.key_bytes, value_bytes = of_layer.value_bytes;
            assert_int_equal(kv_span_layer_format(s, layer), of_layer.format);
            if (!kv_span_has(s, layer, block)) {
                missing += head == 0;
                continue;
            }
            uint8_t *keys = kv_host_bytes(kv_span_keys(s, layer, block, head)),
                    *values = kv_host_bytes(kv_span_values(s, layer, block, head));
            if (pass == 0) memset(keys, ++byte, key_bytes), memset(values, ++byte, value_bytes);
            else {
                for (size_t k = 0, first = ++byte; k < key_bytes; k++) assert_int_equal(keys[k], first);
                for (size_t k = 0, first = ++byte; k < value_bytes; k++) assert_int_equal(values[k], first);
            }
        }
        assert_int_equal(missing, n_missing);
    }
}

static void a_span_of_another_format_fills_blocks_with_cells(void **state) {
    const kv_shape shapes[] = {
        {KV_SAME(3, 4, 64, 64), .format = RP_KV_F16},
        {KV_SAME(5, 3, 16, 8), .format = RP_KV_INT8},
        {KV_SAME(2, 2, 6, 2), .format = RP_KV_F32},
        {KV_SAME(3, 1, 16, 16), .format = RP_KV_INT8}, /* f16: keys and values apart */
    };
    int n_packed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int format = 0; format < RP_N_KV_FORMATS; format++) {
            kv_pool *pool;
            kv_span *span, *like;
            int32_t slot;
            const kv_shape own = kv_shape_in(&shapes[i], (rp_kv_format)format);
            assert_int_equal(kv_pool_new(&pool, &shapes[i], 1 << 26, NULL, NULL), RP_OK);
            const kv_packing packing = kv_shape_packing(&shapes[i], (rp_kv_format)format);
            const int32_t cells = packing.per_block;
            assert_true((size_t)cells * packing.part_bytes <= kv_pool_block_bytes(pool) &&
                        (size_t)(cells + 1) * packing.part_bytes > kv_pool_block_bytes(pool));
            const kv_layer row = kv_shape_layer(&own, 0);
            const size_t whole = kv_pool_block_bytes(pool) / row.cell_bytes;
            const size_t apart = kv_pool_block_bytes(pool) / BASE_MAX(row.key_bytes, row.value_bytes);
            assert_int_equal(packing.per_cell,
                             format == RP_KV_F16 && apart > 2 * whole ? 2 : 1); /* more cells fit if they are apart */
            assert_int_equal(kv_span_new(&span, pool, 7, NULL), RP_OK);
            for (int n = 0; n < 150; n++) assert_int_equal(kv_span_append(span, &slot, NULL), RP_OK);
            const uint64_t before = kv_pool_get_stats(pool).used_bytes;
            if (cells > 0 && own.format != shapes[i].format) {
                assert_int_equal(kv_span_new_like(&like, span, own.format, NULL), RP_OK);
                assert_true(kv_span_tokens(like) == 150 && kv_span_position(like) == 7 &&
                            kv_span_format(like) == own.format);
                const int32_t n_cells =
                    3 * own.n_layers * kv_shape_heads(&own) * packing.per_cell; /* of all columns, without gaps */
                const int32_t n_blocks = (n_cells + cells - 1) / cells;
                assert_int_equal(kv_span_bytes(like), (uint64_t)n_blocks * kv_pool_block_bytes(pool));
                assert_int_equal(kv_pool_get_stats(pool).used_bytes, before + kv_span_bytes(like));
                check_apart(like, &own, 0);
                kv_span_unref(like);
                n_packed++;
            }
            if (cells > 0 && !kv_format_is_encoded(own.format)) { /* grows token by token */
                assert_int_equal(kv_span_new_in(&like, pool, own.format, 0, NULL), RP_OK);
                for (int n = 0; n < 256; n++) assert_int_equal(kv_span_append(like, &slot, NULL), RP_OK);
                check_apart(like, &own, 0);
                kv_span_unref(like);
            }
            assert_int_equal(kv_pool_get_stats(pool).used_bytes, before);
            kv_span_unref(span);
            kv_pool_free(pool);
        }
    assert_int_equal(n_packed, 18);
}

/* ---- layers in f16 ---- */

/* Layers 0 and 3 of five; layers 1 and 3 have windows. */
#define MIXED_IF(heads, keys, values, f, is_mixed) \
    { \
        KV_ROWS(5, KV_ROW(heads, keys, values, 0, is_mixed), KV_ROW(heads, keys, values, 100, false), \
                KV_ROW(heads, keys, values, 0, false), KV_ROW(heads, keys, values, 70, is_mixed), \
                KV_ROW(heads, keys, values, 0, false)), \
            .format = f \
    }
#define MIXED(heads, keys, values, f) MIXED_IF(heads, keys, values, f, true)

/* 150 tokens from position 7 on, of which a reader at 210 does not reach the first block of layer 1, and two of layer
   3. */
static kv_span *trimmed_span(kv_pool *pool, rp_kv_format format, int32_t *n_freed) {
    kv_span *s;
    int32_t slot;
    assert_int_equal(kv_span_new_in(&s, pool, format, 7, NULL), RP_OK);
    for (int n = 0; n < 150; n++) assert_int_equal(kv_span_append(s, &slot, NULL), RP_OK);
    *n_freed = kv_span_trim(s, 210, NULL, 0);
    return s;
}

/* A span is stored and read again with the blocks that it has. */
static void check_form(kv_pool *pool, const kv_span *s, int n_missing) {
    const kv_shape own = kv_shape_in(kv_pool_shape(pool), kv_span_format(s));
    const base_key key = {{1}};
    uint8_t kept[5];
    kv_span *copy;
    const kv_span_form form = kv_span_describe(s, kept);
    assert_true(form.first_pos == 7 && form.n_tokens == 150 && !form.slots);
    assert_int_equal(kv_span_restore(&copy, pool, &form, &key, NULL), RP_OK);
    assert_int_equal(kv_span_bytes(copy), (uint64_t)kv_form_blocks(pool, &form) * kv_pool_block_bytes(pool));
    check_apart(copy, &own, n_missing);
    kv_span_unref(copy);
}

static void layers_in_f16_have_blocks_of_their_own(void **state) {
    const struct {
        kv_shape shape;
        int32_t f16_blocks; /* of the pool, for 64 tokens */
    } pools[] = {
        {MIXED(4, 64, 64, RP_KV_INT8), 2},
        {MIXED(1, 16, 16, RP_KV_INT8), 2},
        {MIXED(3, 64, 64, RP_KV_INT8), 2},
        {MIXED(3, 16, 8, RP_KV_INT8), 3},
        {MIXED(4, 64, 64, RP_KV_F16), 1},
    };
    int n_mixed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]) * RP_N_KV_FORMATS; i++) {
        const kv_shape *of_pool = &pools[i / RP_N_KV_FORMATS].shape,
                       own = kv_shape_in(of_pool, (rp_kv_format)(i % RP_N_KV_FORMATS));
        const int32_t f16_blocks = pools[i / RP_N_KV_FORMATS].f16_blocks,
                      n_f16 = own.format == RP_KV_F16 || own.format == RP_KV_F32 ? 0 : 2;
        kv_pool *pool;
        kv_span *span, *like;
        int32_t n_freed;
        assert_int_equal(kv_pool_new(&pool, of_pool, 1 << 26, NULL, NULL), RP_OK);
        if (!kv_pool_takes(pool, own.format)) {
            kv_pool_free(pool);
            continue;
        }
        const bool is_pool_format = own.format == of_pool->format;
        const kv_packing packing = kv_shape_packing(of_pool, own.format);
        const int32_t parts = (5 - n_f16) * kv_shape_heads(&own) * packing.per_cell;
        const int32_t plain = is_pool_format ? 5 - n_f16 : (parts + packing.per_block - 1) / packing.per_block;
        const size_t block = kv_pool_block_bytes(pool);
        assert_int_equal(kv_pool_plan(pool, of_pool->format)->places[0].n_blocks, f16_blocks);
        assert_int_equal(kv_shape_mixes(&own), n_f16 > 0);
        assert_int_equal(kv_column_blocks(pool, own.format), plain + n_f16 * f16_blocks);
        if (!kv_format_is_encoded(own.format)) { /* grows token by token */
            span = trimmed_span(pool, own.format, &n_freed);
            const int32_t freed =
                is_pool_format ? 1 + 2 * (n_f16 > 0 ? f16_blocks : 1) : 0; /* packed spans free none */
            assert_int_equal(n_freed, freed);
            assert_int_equal(kv_span_bytes(span), (uint64_t)(3 * (plain + n_f16 * f16_blocks) - freed) * block);
            assert_int_equal(kv_pool_get_stats(pool).used_bytes, kv_span_bytes(span));
            check_apart(span, &own, is_pool_format ? 3 : 0);
            check_form(pool, span, is_pool_format ? 3 : 0);
            kv_span_unref(span);
        }
        if (!kv_format_is_encoded(of_pool->format) &&
            !is_pool_format) { /* of a complete span, without its missing blocks */
            span = trimmed_span(pool, of_pool->format, &n_freed);
            assert_int_equal(kv_span_new_like(&like, span, own.format, NULL), RP_OK);
            check_apart(like, &own, 3);
            check_form(pool, like, 3);
            n_mixed += n_f16 > 0;
            kv_span_unref(like);
            kv_span_unref(span);
        }
        assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
        kv_pool_free(pool);
    }
    assert_int_equal(n_mixed, 16);
}

static void a_token_in_mixed_formats_has_the_bytes_of_its_layers(void **state) {
    const kv_shape mixed = MIXED(4, 64, 64, RP_KV_INT8);
    const kv_shape f16 = kv_shape_in(&mixed, RP_KV_F16), kivi2 = kv_shape_in(&mixed, RP_KV_KIVI2);
    (void)state;
    assert_int_equal(kv_shape_token_bytes(&f16), 5 * 4 * 128 * 2);
    assert_int_equal(kv_shape_token_bytes(&mixed), 4 * (2 * 128 * 2 + 3 * (128 + 4)));
    assert_int_equal(kv_shape_token_bytes(&kivi2), 4 * (2 * 128 * 2 + 3 * (20 * 64 + 16 * 64 + 192) / 64));
    assert_int_equal(kv_shape_most_block_bytes(&mixed), kv_shape_block_bytes(&f16));
}

static void f16_that_does_not_fit_is_refused(void **state) {
    const kv_shape mixed = MIXED(1, 64, 2, RP_KV_INT8); /* one head's keys in f16 exceed a block */
    const kv_shape plain = MIXED_IF(1, 64, 2, RP_KV_INT8, false);
    kv_pool *pool;
    rp_error err;
    (void)state;
    assert_int_equal(kv_pool_new(&pool, &mixed, 1 << 20, NULL, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "layers in f16 do not fit into blocks of int8 KV with 1 heads of 64 and 2 dimensions"));
    assert_int_equal(kv_pool_new(&pool, &plain, 1 << 20, NULL, &err), RP_OK);
    kv_pool_free(pool);
}

static void a_pool_used_up_leaves_packed_spans_whole(void **state) {
    const kv_shape small = {KV_SAME(4, 2, 8, 8), .format = RP_KV_F16};
    kv_pool *pool;
    kv_span *span, *like;
    rp_error err;
    int32_t slot;
    (void)state;
    assert_int_equal(kv_pool_new(&pool, &small, 4 * 4 * 4096 + 2 * 4096, NULL, NULL),
                     RP_OK); /* four columns, two blocks */
    assert_int_equal(kv_pool_block_bytes(pool), 4096);
    assert_int_equal(kv_span_new(&span, pool, 0, NULL), RP_OK);
    for (int n = 0; n < 256; n++) assert_int_equal(kv_span_append(span, &slot, NULL), RP_OK);
    const uint64_t used = kv_pool_get_stats(pool).used_bytes;
    assert_int_equal(kv_span_new_like(&like, span, RP_KV_INT8, &err), RP_ERR_BUDGET);
    assert_null(like);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, used);
    kv_span_unref(span);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    kv_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_sets_of_slots),
        cmocka_unit_test(a_token_sees_what_counts_and_stands_before_it),
        cmocka_unit_test(appended_tokens_fill_spans),
        cmocka_unit_test(scattered_tokens_see_by_position),
        cmocka_unit_test(tokens_are_taken_back),
        cmocka_unit_test(the_budget_is_hard),
        cmocka_unit_test(a_span_of_another_format_fills_blocks_with_cells),
        cmocka_unit_test(layers_in_f16_have_blocks_of_their_own),
        cmocka_unit_test(a_token_in_mixed_formats_has_the_bytes_of_its_layers),
        cmocka_unit_test(f16_that_does_not_fit_is_refused),
        cmocka_unit_test(a_pool_used_up_leaves_packed_spans_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
