/* SPDX-License-Identifier: Apache-2.0 */
/* test_span_store.c: the store and the pool against a naive model: random puts, gets, references and evictions under
 * a small budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/host_memory.h"
#include "store/index/ghost_list.h"
#include "store/span_store.h"
#include "support/kv_shapes.h"
#include "support/seed.h"
#include "support/tiny_random.h"
#include "reprise_store.h"

#define N_KEYS 64
#define BUDGET_BLOCKS 40

static const kv_shape shape = {KV_SAME(2, 1, 2, 2), .format = RP_KV_F16};

static base_key key_of(uint64_t i) {
    base_key k;
    base_hash h;
    base_hash_init(&h, "test");
    base_hash_u64(&h, i);
    base_hash_final(&h, &k);
    return k;
}

static kv_span *make_span(kv_pool *pool, uint64_t key, int n_tokens) {
    kv_span *s;
    int32_t slot;
    base_key k = key_of(key);
    if (kv_span_new(&s, pool, 0, NULL)) return NULL;
    for (int i = 0; i < n_tokens; i++)
        if (kv_span_append(s, &slot, NULL)) {
            kv_span_unref(s);
            return NULL;
        }
    kv_span_seal(s, &k);
    return s;
}

/* The naive store: present spans, evicted spans that were not inserted again, references. */
typedef struct naive {
    bool there[N_KEYS], dropped[N_KEYS];
    uint64_t bytes[N_KEYS];
    kv_span *held[N_KEYS];
} naive;

static uint64_t idle_bytes(const naive *n) {
    uint64_t bytes = 0;
    for (int i = 0; i < N_KEYS; i++) bytes += n->there[i] && !n->held[i] ? n->bytes[i] : 0;
    return bytes;
}

/* Evicts one unreferenced span, if there is one; the choice is the policy's (test_eviction.c). */
static void drop_one(span_store *s, naive *n) {
    int victim = -1;
    bool any = idle_bytes(n) > 0;
    assert_int_equal(span_store_reclaim(s), any);
    for (int i = 0; i < N_KEYS; i++) {
        base_key k = key_of((uint64_t)i);
        if (span_store_has(s, &k) == n->there[i]) continue;
        assert_true(n->there[i] && !n->held[i] && victim < 0);
        victim = i;
    }
    assert_int_equal(victim >= 0, any);
    if (!any) return;
    n->there[victim] = false;
    n->dropped[victim] = true;
}

static void random_operations_agree_with_a_naive_store(void **state) {
    (void)state;
    tiny_random r = {test_seed("span_store", 20260101)};
    kv_pool *pool;
    span_store *s;
    naive n = {0};
    assert_int_equal(kv_pool_new(&pool, &shape, (uint64_t)BUDGET_BLOCKS * 2 * 64 * 2 * 2, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    for (int step = 0; step < 20000; step++) {
        int key = (int)tiny_random_below(&r, N_KEYS);
        base_key k = key_of((uint64_t)key);
        assert_int_equal(span_store_has(s, &k), n.there[key]);
        switch (tiny_random_below(&r, 4)) {
        case 0: {
            kv_span *span = make_span(pool, (uint64_t)key, 1 + (int)tiny_random_below(&r, 200));
            if (!span) break; /* the budget is exhausted */
            assert_int_equal(span_store_put(s, span, NULL, NULL, NULL, NULL), RP_OK);
            if (!n.there[key]) n.bytes[key] = kv_span_bytes(span);
            n.there[key] = true;
            n.dropped[key] = false;
            kv_span_unref(span);
            break;
        }
        case 1: {
            kv_span *span = span_store_get(s, &k, NULL);
            assert_int_equal(span != NULL, n.there[key]);
            if (!span) break;
            span_store_use(s, &k, NULL);
            assert_true(base_key_equal(kv_span_key(span), &k));
            if (n.held[key]) kv_span_unref(span);
            else n.held[key] = span;
            break;
        }
        case 2:
            kv_span_unref(n.held[key]);
            n.held[key] = NULL;
            break;
        default: drop_one(s, &n);
        }
        assert_int_equal(span_store_was_dropped(s, &k), n.dropped[key]);
        assert_int_equal(span_store_idle_bytes(s), idle_bytes(&n));
        assert_true(kv_pool_get_stats(pool).used_bytes <= kv_pool_get_stats(pool).budget_bytes);
    }
    for (int i = 0; i < N_KEYS; i++) kv_span_unref(n.held[i]);
    rp_store_stats stats = {.budget_bytes = 5, .used_bytes = 7};
    span_store_stats(s, &stats);
    assert_true(stats.budget_bytes == 5 && stats.used_bytes == 7); /* the pool's */
    assert_int_equal(stats.bytes, kv_pool_get_stats(pool).used_bytes);
    assert_true(stats.hits > 0 && stats.misses > 0 && stats.evictions > 0 && stats.spans > 0);
    span_store_free(s);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    kv_pool_free(pool);
}

/* The pool calls the store before it fails, and referenced spans stay. */
static void the_pool_reclaims_from_the_store(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    rp_error err = {0};
    assert_int_equal(kv_pool_new(&pool, &shape, (uint64_t)8 * 2 * 64 * 2 * 2, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    kv_pool_set_reclaim(pool, span_store_reclaim, s);
    kv_span *held = make_span(pool, 1, 64);
    assert_non_null(held);
    assert_int_equal(span_store_put(s, held, NULL, NULL, NULL, NULL), RP_OK);
    for (uint64_t i = 2; i < 20; i++) {
        kv_span *span = make_span(pool, i, 128);
        assert_non_null(span);
        assert_int_equal(span_store_put(s, span, NULL, NULL, NULL, NULL), RP_OK);
        kv_span_unref(span);
    }
    base_key k = key_of(1);
    assert_true(span_store_has(s, &k));
    kv_span *big;
    int32_t slot;
    assert_int_equal(kv_span_new(&big, pool, 0, NULL), RP_OK);
    for (int i = 0; i < 192; i++) assert_int_equal(kv_span_append(big, &slot, &err), RP_OK);
    assert_int_equal(kv_span_append(big, &slot, &err), RP_ERR_BUDGET);
    assert_non_null(strstr(err.message, "budget"));
    kv_span_unref(big);
    kv_span_unref(held);
    span_store_free(s);
    kv_pool_free(pool);
}

/* Capacity of the ghost list of a small store; one more key removes the oldest one only. */
#define REMEMBERED GHOST_LIST_MIN

static void the_last_drops_are_remembered(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    assert_int_equal(kv_pool_new(&pool, &shape, (uint64_t)8 * 2 * 64 * 2 * 2, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    for (uint64_t i = 0; i <= REMEMBERED; i++) {
        base_key first = key_of(0), k = key_of(i);
        kv_span *span = make_span(pool, i, 1);
        assert_non_null(span);
        assert_int_equal(span_store_put(s, span, NULL, NULL, NULL, NULL), RP_OK);
        kv_span_unref(span);
        assert_false(span_store_was_dropped(s, &k));
        assert_true(span_store_reclaim(s));
        assert_true(span_store_was_dropped(s, &k));
        assert_int_equal(span_store_was_dropped(s, &first), i < REMEMBERED);
    }
    span_store_free(s);
    kv_pool_free(pool);
}

/* ---- terms and quotas ---- */

static int64_t fake_now = 1000;
static int64_t tell_fake_now(void) { return fake_now; }

static void open_store(kv_pool **pool, span_store **s, int n_blocks) {
    assert_int_equal(kv_pool_new(pool, &shape, (uint64_t)n_blocks * 2 * 64 * 2 * 2, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(s, *pool, NULL), RP_OK);
    kv_pool_set_reclaim(*pool, span_store_reclaim, *s);
    span_store_set_clock(*s, tell_fake_now);
}

static void put(kv_pool *pool, span_store *s, uint64_t key, uint32_t tenant, span_terms terms) {
    kv_span *span = make_span(pool, key, 64);
    const record about = {.kind = RECORD_MODULE, .cost_us = 1000, .tenant = tenant, .label = ""};
    assert_non_null(span);
    assert_int_equal(span_store_put(s, span, NULL, &about, &terms, NULL), RP_OK);
    kv_span_unref(span);
}

static bool has(const span_store *s, uint64_t key) {
    base_key k = key_of(key);
    return span_store_has(s, &k);
}

static uint64_t expired(const span_store *s) {
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    span_store_stats(s, &stats);
    return stats.expired;
}

static void what_outlives_its_time_goes(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    base_key k1 = key_of(1), k2 = key_of(2);
    open_store(&pool, &s, 40);
    put(pool, s, 1, 1, (span_terms){.ttl_s = 10});
    put(pool, s, 2, 1, (span_terms){.ttl_s = 10});
    put(pool, s, 3, 1, (span_terms){.ttl_s = 10, .pin = true});
    put(pool, s, 4, 1, (span_terms){0});
    fake_now += 9;
    span_store_use(s, &k2, NULL); /* restarts its idle timeout */
    fake_now += 1;
    span_found found;
    assert_null(span_store_get(s, &k1, &found)); /* the lookup detects the expiry */
    assert_int_equal(found, SPAN_FOUND_NOTHING);
    assert_true(span_store_was_dropped(s, &k1) && has(s, 2) && has(s, 3) && has(s, 4));
    fake_now += 9;
    kv_span *held = span_store_get(s, &k2, NULL);
    assert_null(held); /* at 19 the 10 s since 9 are over */
    put(pool, s, 2, 1, (span_terms){.ttl_s = 10});
    held = span_store_get(s, &k2, NULL);
    fake_now += 100;
    span_store_poll(s);
    assert_true(has(s, 2)); /* referenced */
    kv_span_unref(held);
    fake_now += 9;
    span_store_poll(s);
    assert_true(has(s, 2));
    fake_now += 1;
    span_store_poll(s);
    assert_false(has(s, 2));
    assert_true(has(s, 3) && has(s, 4));
    assert_int_equal(expired(s), 3);
    span_store_free(s);
    kv_pool_free(pool);
}

/* The budget is 8 spans (2 layers, 1 block each): of 6 pins 4 take effect, and entries used once are evicted. */
static void half_of_the_room_can_be_pinned(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    open_store(&pool, &s, 16);
    for (uint64_t i = 0; i < 6; i++) put(pool, s, i, 1, (span_terms){.pin = true});
    for (uint64_t i = 100; i < 200; i++) put(pool, s, i, 1, (span_terms){0});
    for (uint64_t i = 0; i < 6; i++) assert_int_equal(has(s, i), i < 4);
    assert_int_equal(span_store_idle_bytes(s), kv_pool_get_stats(pool).used_bytes / 2);
    while (span_store_reclaim(s)) continue;
    for (uint64_t i = 0; i < 200; i++) assert_int_equal(has(s, i), i < 4);
    span_store_free(s);
    kv_pool_free(pool);
}

static int count(const span_store *s, uint64_t from, uint64_t to) {
    int n = 0;
    for (uint64_t i = from; i < to; i++) n += has(s, i);
    return n;
}

static void a_tenant_over_its_quota_loses_its_own(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    open_store(&pool, &s, 40); /* 20 spans */
    for (uint64_t i = 0; i < 5; i++) put(pool, s, i, 1, (span_terms){0});
    for (uint64_t i = 100; i < 105; i++) put(pool, s, i, 2, (span_terms){0});
    uint64_t span_bytes = kv_pool_get_stats(pool).used_bytes / 10;
    assert_int_equal(span_store_set_quota(s, 2, 3 * span_bytes, 0), RP_OK); /* it already exceeds it */
    assert_int_equal(count(s, 100, 105), 3);
    assert_int_equal(count(s, 0, 5), 5);
    for (uint64_t i = 105; i < 150; i++) put(pool, s, i, 2, (span_terms){0});
    assert_int_equal(count(s, 0, 5), 5);
    assert_int_equal(count(s, 100, 150), 3);
    assert_int_equal(span_store_set_quota(s, 2, 0, 0), RP_OK); /* removes the quota */
    for (uint64_t i = 150; i < 160; i++) put(pool, s, i, 2, (span_terms){0});
    assert_int_equal(count(s, 100, 160), 13);
    span_store_free(s);
    kv_pool_free(pool);
}

/* ---- kept entries ---- */

static void ask_to_keep(span_store *s, int64_t keep_s) { span_store_set_reader(s, (span_reader){.keep_s = keep_s}); }

/* The budget is 8 spans: of 6 that are kept 4 stay while others come, until their time is over; a use restarts it. */
static void half_of_the_room_is_kept_for_a_time(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    open_store(&pool, &s, 16);
    ask_to_keep(s, 300);
    for (uint64_t i = 0; i < 6; i++) put(pool, s, i, 1, (span_terms){0});
    ask_to_keep(s, 0);
    for (uint64_t i = 100; i < 200; i++) put(pool, s, i, 1, (span_terms){0});
    assert_int_equal(count(s, 0, 6), 4);
    assert_int_equal(span_store_idle_bytes(s),
                     kv_pool_get_stats(pool).used_bytes); /* a wish: memory that a request needs is given */
    fake_now += 299;
    uint64_t last = 6;
    while (last-- > 0 && !has(s, last)) continue;
    const base_key used = key_of(last);
    span_store_use(s, &used, NULL);
    fake_now += 2;
    span_store_poll(s);
    for (uint64_t i = 200; i < 300; i++) put(pool, s, i, 1, (span_terms){0});
    assert_int_equal(count(s, 0, 6), 1);
    assert_true(has(s, last));
    fake_now += 300;
    span_store_poll(s);
    for (uint64_t i = 300; i < 400; i++) put(pool, s, i, 1, (span_terms){0});
    assert_int_equal(count(s, 0, 6), 0);
    ask_to_keep(s, 300);
    for (uint64_t i = 0; i < 4; i++) put(pool, s, i, 1, (span_terms){0});
    while (span_store_reclaim(s)) continue;
    assert_int_equal(count(s, 0, 400), 0);
    span_store_free(s);
    kv_pool_free(pool);
}

/* Half of a tenant's quota of 8 spans; another tenant's are not counted. */
static void a_tenant_keeps_half_of_its_quota(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    open_store(&pool, &s, 80); /* 40 spans */
    put(pool, s, 1000, 1, (span_terms){0});
    const uint64_t span_bytes = kv_pool_get_stats(pool).used_bytes;
    assert_int_equal(span_store_set_quota(s, 2, 8 * span_bytes, 0), RP_OK);
    ask_to_keep(s, 300);
    for (uint64_t i = 0; i < 8; i++) put(pool, s, i, 2, (span_terms){0});
    for (uint64_t i = 50; i < 60; i++) put(pool, s, i, 1, (span_terms){0});
    ask_to_keep(s, 0);
    for (uint64_t i = 100; i < 200; i++) put(pool, s, i, 2, (span_terms){0});
    assert_int_equal(count(s, 0, 8), 4);
    assert_int_equal(count(s, 50, 60), 10);
    span_store_free(s);
    kv_pool_free(pool);
}

/* ---- RAM below a device ---- */

/* A second memory of the process: blocks move between two pools. */
static int copy_blocks(kv_memory *m, const kv_address *from, const kv_address *to, const int32_t *layers, size_t n,
                       size_t bytes, rp_error *err) {
    (void)m, (void)layers, (void)err;
    for (size_t i = 0; i < n; i++) memcpy(kv_host_bytes(to[i]), kv_host_bytes(from[i]), bytes);
    return RP_OK;
}

static bool never_in_place(void *user, double n_reads, bool is_full) {
    (void)user, (void)n_reads, (void)is_full;
    return false;
}

/* The text `key`, which continues another one, of this cost. */
static void put_text(kv_pool *pool, span_store *s, uint64_t key, uint64_t parent, uint64_t cost_us) {
    kv_span *span = make_span(pool, key, 1);
    assert_non_null(span);
    const record about = {.kind = RECORD_TEXT, .label = "", .parent = key_of(parent), .cost_us = cost_us};
    assert_int_equal(span_store_put(s, span, NULL, &about, NULL, NULL), RP_OK);
    kv_span_unref(span);
}

/* A parent is evicted after its children, and enters RAM after them; there it is evicted after them, too, although it
   is the cheapest to compute. */
static void a_parent_that_follows_its_children_is_evicted_after_them(void **state) {
    enum { PARENT = 1,
           FIRST_CHILD = 2,
           N_CHILDREN = 3,
           ROOT = 1000,
           OTHERS = 2000 };
    (void)state;
    kv_memory_ops ops = *kv_host_memory()->ops;
    ops.copy_blocks = copy_blocks;
    kv_memory memory = {&ops}, below = {&ops};
    kv_pool *pool, *ram;
    span_store *s;
    const uint64_t span_bytes = 2 * kv_shape_block_bytes(&shape);
    assert_int_equal(kv_pool_new(&pool, &shape, 40 * span_bytes, &memory, NULL), RP_OK);
    assert_int_equal(kv_pool_new(&ram, &shape, (N_CHILDREN + 1) * span_bytes, &below, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    span_store_set_ram(s, &(span_ram){.pool = ram, .reads_in_place = never_in_place});
    put_text(pool, s, PARENT, ROOT, 1);
    for (uint64_t i = 0; i < N_CHILDREN; i++) put_text(pool, s, FIRST_CHILD + i, PARENT, 1000000);
    for (int i = 0; i <= N_CHILDREN; i++) assert_true(span_store_reclaim(s)); /* all of them, to RAM */
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    assert_int_equal(kv_pool_get_stats(ram).used_bytes, (N_CHILDREN + 1) * span_bytes);
    for (uint64_t i = 0; i < N_CHILDREN; i++) { /* others take their places, one by one */
        put_text(pool, s, OTHERS + i, ROOT, 1000000000);
        assert_true(span_store_reclaim(s));
        assert_true(has(s, PARENT));
        assert_int_equal(count(s, FIRST_CHILD, FIRST_CHILD + N_CHILDREN), N_CHILDREN - 1 - (int)i);
        assert_true(span_store_is_consistent(s, 0));
    }
    put_text(pool, s, OTHERS + N_CHILDREN, ROOT, 1000000000);
    assert_true(span_store_reclaim(s));
    assert_false(has(s, PARENT)); /* without children it is the cheapest */
    /* entries that were removed leave no links */
    put_text(pool, s, FIRST_CHILD, PARENT, 1);
    put_text(pool, s, PARENT, ROOT, 1);
    const base_key child = key_of(FIRST_CHILD);
    span_store_drop(s, &child);
    assert_true(has(s, PARENT) && span_store_reclaim(s));
    span_store_free(s);
    kv_pool_free(pool);
    kv_pool_free(ram);
}

/* Blocks that are still being copied are taken after all others. */
static void blocks_that_moved_are_taken_last(void **state) {
    enum { N = 8 };
    (void)state;
    kv_pool *pool;
    kv_address all[N], again[N];
    assert_int_equal(kv_pool_new(&pool, &shape, N * kv_shape_block_bytes(&shape), NULL, NULL), RP_OK);
    assert_int_equal(kv_pool_take(pool, all, N, NULL), RP_OK);
    kv_pool_give(pool, all, 4);
    kv_pool_give_last(pool, all + 4, 2);
    kv_pool_give(pool, all + 6, 2);
    assert_int_equal(kv_pool_get_stats(pool).used_bytes, 0);
    assert_int_equal(kv_pool_take(pool, again, 6, NULL), RP_OK);
    for (int i = 0; i < 6; i++) assert_true(again[i].at != all[4].at && again[i].at != all[5].at);
    assert_int_equal(kv_pool_take(pool, again + 6, 2, NULL), RP_OK);
    assert_true(again[6].at == all[4].at && again[7].at == all[5].at);
    kv_pool_give(pool, again, N);
    kv_pool_free(pool);
}

static bool cheap_is_recomputed(void *user, uint64_t bytes, uint64_t cost_us) {
    assert_true(bytes == *(const uint64_t *)user);
    return cost_us < 100;
}

/* KV that is computed again in less time than its copy takes leaves memory for good. */
static void what_is_quickly_computed_does_not_move_to_ram(void **state) {
    (void)state;
    kv_memory_ops ops = *kv_host_memory()->ops;
    ops.copy_blocks = copy_blocks;
    kv_memory memory = {&ops}, below = {&ops};
    kv_pool *pool, *ram;
    span_store *s;
    uint64_t span_bytes = 2 * kv_shape_block_bytes(&shape);
    assert_int_equal(kv_pool_new(&pool, &shape, 40 * span_bytes, &memory, NULL), RP_OK);
    assert_int_equal(kv_pool_new(&ram, &shape, 40 * span_bytes, &below, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    span_store_set_ram(s, &(span_ram){.pool = ram,
                                      .reads_in_place = never_in_place,
                                      .recomputes = cheap_is_recomputed,
                                      .user = &span_bytes});
    put_text(pool, s, 1, 1000, 99);
    put_text(pool, s, 2, 1000, 100);
    while (span_store_reclaim(s)) continue;
    assert_true(!has(s, 1) && has(s, 2));
    assert_int_equal(kv_pool_get_stats(ram).used_bytes, span_bytes);
    span_store_free(s);
    kv_pool_free(pool);
    kv_pool_free(ram);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_naive_store),
        cmocka_unit_test(the_pool_reclaims_from_the_store),
        cmocka_unit_test(the_last_drops_are_remembered),
        cmocka_unit_test(what_outlives_its_time_goes),
        cmocka_unit_test(half_of_the_room_can_be_pinned),
        cmocka_unit_test(a_tenant_over_its_quota_loses_its_own),
        cmocka_unit_test(half_of_the_room_is_kept_for_a_time),
        cmocka_unit_test(a_tenant_keeps_half_of_its_quota),
        cmocka_unit_test(a_parent_that_follows_its_children_is_evicted_after_them),
        cmocka_unit_test(what_is_quickly_computed_does_not_move_to_ram),
        cmocka_unit_test(blocks_that_moved_are_taken_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
