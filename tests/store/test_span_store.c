/* test_span_store.c: the store and the pool beside a naive model: random puts, gets, holds and evictions under a small budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/span_store.h"
#include "support/tiny_random.h"

#define N_KEYS 64
#define BUDGET_BLOCKS 40

static const kv_shape shape = {.n_layers = 2, .n_kv_heads = 1, .key_dim = 2, .value_dim = 2, .format = KV_F16};

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

/* The naive store: last use by key, 0 for absent; which drop was its last one, from 1. */
typedef struct naive {
    uint64_t used[N_KEYS], clock;
    uint64_t bytes[N_KEYS];
    uint64_t dropped[N_KEYS], n_dropped;
    kv_span *held[N_KEYS];
} naive;

static int oldest_free(const naive *n) {
    int best = -1;
    for (int i = 0; i < N_KEYS; i++)
        if (n->used[i] && !n->held[i] && (best < 0 || n->used[i] < n->used[best])) best = i;
    return best;
}

static uint64_t idle_bytes(const naive *n) {
    uint64_t bytes = 0;
    for (int i = 0; i < N_KEYS; i++) bytes += n->used[i] && !n->held[i] ? n->bytes[i] : 0;
    return bytes;
}

static bool was_dropped(const naive *n, int key) {
    return n->dropped[key] && n->n_dropped - n->dropped[key] < SPAN_STORE_DROPPED;
}

static void drop_oldest(span_store *s, naive *n) {
    int victim = oldest_free(n);
    assert_int_equal(span_store_reclaim(s), victim >= 0);
    if (victim < 0) return;
    n->used[victim] = 0;
    n->dropped[victim] = ++n->n_dropped;
}

static void random_operations_agree_with_a_naive_store(void **state) {
    (void)state;
    const char *given = getenv("REPRISE_TEST_SEED");
    tiny_random r = {given ? strtoull(given, NULL, 10) : 20260101};
    printf("REPRISE_TEST_SEED=%llu\n", (unsigned long long)r.state);
    kv_pool *pool;
    span_store *s;
    naive n = {.clock = 1};
    assert_int_equal(kv_pool_new(&pool, &shape, (uint64_t)BUDGET_BLOCKS * 2 * 64 * 2 * 2, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    for (int step = 0; step < 20000; step++) {
        int key = (int)tiny_random_below(&r, N_KEYS);
        base_key k = key_of((uint64_t)key);
        assert_int_equal(span_store_has(s, &k), n.used[key] != 0);
        switch (tiny_random_below(&r, 4)) {
        case 0: {
            kv_span *span = make_span(pool, (uint64_t)key, 1 + (int)tiny_random_below(&r, 200));
            if (!span) break; /* the budget is used up */
            assert_int_equal(span_store_put(s, span, NULL, NULL, NULL), RP_OK);
            if (!n.used[key]) {
                n.used[key] = n.clock++;
                n.bytes[key] = kv_span_bytes(span);
            }
            kv_span_unref(span);
            break;
        }
        case 1: {
            kv_span *span = span_store_get(s, &k, NULL);
            assert_int_equal(span != NULL, n.used[key] != 0);
            if (!span) break;
            n.used[key] = n.clock++;
            assert_true(base_key_equal(kv_span_key(span), &k));
            if (n.held[key]) kv_span_unref(span);
            else n.held[key] = span;
            break;
        }
        case 2:
            kv_span_unref(n.held[key]);
            n.held[key] = NULL;
            break;
        default: drop_oldest(s, &n);
        }
        assert_int_equal(span_store_was_dropped(s, &k), was_dropped(&n, key));
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

/* The pool asks the store before it gives up, and what somebody holds stays. */
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
    assert_int_equal(span_store_put(s, held, NULL, NULL, NULL), RP_OK);
    for (uint64_t i = 2; i < 20; i++) {
        kv_span *span = make_span(pool, i, 128);
        assert_non_null(span);
        assert_int_equal(span_store_put(s, span, NULL, NULL, NULL), RP_OK);
        kv_span_unref(span);
    }
    base_key k = key_of(1);
    assert_true(span_store_has(s, &k));
    kv_span *big;
    int32_t slot;
    assert_int_equal(kv_span_new(&big, pool, 0, NULL), RP_OK);
    for (int i = 0; i < 192; i++) assert_int_equal(kv_span_append(big, &slot, &err), RP_OK);
    assert_int_equal(kv_span_append(big, &slot, &err), RP_ERR_MEMORY);
    assert_non_null(strstr(err.message, "budget"));
    kv_span_unref(big);
    kv_span_unref(held);
    span_store_free(s);
    kv_pool_free(pool);
}

/* The first of more than it remembers is forgotten, and no other. */
static void the_last_drops_are_remembered(void **state) {
    (void)state;
    kv_pool *pool;
    span_store *s;
    assert_int_equal(kv_pool_new(&pool, &shape, (uint64_t)8 * 2 * 64 * 2 * 2, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(&s, pool, NULL), RP_OK);
    for (uint64_t i = 0; i <= SPAN_STORE_DROPPED; i++) {
        base_key first = key_of(0), k = key_of(i);
        kv_span *span = make_span(pool, i, 1);
        assert_non_null(span);
        assert_int_equal(span_store_put(s, span, NULL, NULL, NULL), RP_OK);
        kv_span_unref(span);
        assert_false(span_store_was_dropped(s, &k));
        assert_true(span_store_reclaim(s));
        assert_true(span_store_was_dropped(s, &k));
        assert_int_equal(span_store_was_dropped(s, &first), i < SPAN_STORE_DROPPED);
    }
    span_store_free(s);
    kv_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_naive_store),
        cmocka_unit_test(the_pool_reclaims_from_the_store),
        cmocka_unit_test(the_last_drops_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
