/* SPDX-License-Identifier: Apache-2.0 */
/* test_budget.c: limits on memory: what is counted, refused and returned, in one thread and in many. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/memory.h"

#define MIB ((size_t)1 << 20)
#define SLACK (4 * BASE_BUDGET_STEP) /* what threads take in advance, and what malloc rounds up */

static void assert_near(uint64_t value, uint64_t wanted) {
    if (value + SLACK < wanted || value > wanted + SLACK)
        fail_msg("%llu, not about %llu", (unsigned long long)value, (unsigned long long)wanted);
}

static void what_is_allocated_is_counted(void **state) {
    base_budget *all = base_budget_new(NULL, 64 * MIB), *b = base_budget_new(all, 32 * MIB);
    (void)state;
    assert_null(base_budget_enter(b));
    void *p = base_alloc(4 * MIB), *q = base_calloc(4, MIB), *r = base_alloc_aligned(2 * MIB, 64);
    assert_near(base_budget_used(b), 10 * MIB);
    assert_near(base_budget_used(all), 10 * MIB);
    p = base_realloc(p, 8 * MIB);
    assert_near(base_budget_used(b), 14 * MIB);
    p = base_realloc(p, MIB);
    assert_near(base_budget_used(b), 7 * MIB);
    base_free(p);
    base_free(q);
    base_free(r);
    assert_near(base_budget_used(b), 0);
    assert_ptr_equal(base_budget_enter(NULL), b);
    assert_int_equal(base_budget_used(b), 0);
    assert_near(base_budget_peak(b), 14 * MIB);
    assert_int_equal(base_budget_used(all), 0);
    base_budget_unref(b);
    base_budget_unref(all);
}

static void a_limit_is_refused_and_named(void **state) {
    base_budget *all = base_budget_new(NULL, 8 * MIB), *tenant = base_budget_new(all, 6 * MIB),
                *b = base_budget_new(tenant, 4 * MIB), *other = base_budget_new(tenant, 4 * MIB),
                *third = base_budget_new(all, 4 * MIB);
    (void)state;
    base_budget_enter(b);
    assert_null(base_alloc(5 * MIB));
    assert_ptr_equal(base_budget_refusal(), b);
    assert_ptr_equal(base_budget_current(), b);
    assert_true(!base_budget_is_root(b) && base_budget_is_root(all));
    assert_null(base_alloc(SIZE_MAX / 2));
    assert_null(base_alloc(PTRDIFF_MAX));
    assert_int_equal(base_budget_limit(b), 4 * MIB);
    void *p = base_alloc(3 * MIB); /* it goes on */
    assert_non_null(p);
    assert_null(base_realloc(p, 5 * MIB)); /* p stays valid */
    ((char *)p)[3 * MIB - 1] = 1;
    base_budget_enter(other);
    assert_null(base_budget_refusal());
    assert_null(base_calloc(4, MIB - BASE_BUDGET_STEP));
    assert_ptr_equal(base_budget_refusal(), tenant);
    void *q = base_alloc(2 * MIB);
    assert_non_null(q);
    base_budget_enter(third);
    assert_null(base_alloc(3 * MIB + MIB / 2));
    assert_ptr_equal(base_budget_refusal(), all);
    base_budget_enter(NULL);
    assert_null(base_budget_refusal());
    base_budget_unref(b); /* its 3 MiB are nobody's any more */
    assert_near(base_budget_used(tenant), 2 * MIB);
    base_budget_enter(other);
    void *r = base_alloc(MIB);
    assert_non_null(r);
    base_free(p); /* another's: credited up to what `other` has taken */
    base_free(q);
    base_free(r);
    base_budget_enter(NULL);
    assert_int_equal(base_budget_used(other), 0);
    assert_int_equal(base_budget_used(all), 0);
    base_budget_unref(other);
    base_budget_unref(third);
    base_budget_unref(tenant);
    base_budget_unref(all);
}

#define THREADS 8
#define BLOCKS 64
#define ROUNDS 20000

typedef struct worker {
    base_budget *budget;
    uint32_t seed;
    size_t refused;
} worker;

/* Allocates and frees at random within a budget that others use, too, leaving and entering it. */
static void *work(void *user) {
    worker *w = user;
    void *blocks[BLOCKS] = {NULL};
    base_budget_enter(w->budget);
    for (int i = 0; i < ROUNDS; i++) {
        w->seed = w->seed * 1664525 + 1013904223;
        const size_t at = (w->seed >> 8) % BLOCKS, bytes = (w->seed >> 16) % 100000;
        if (i % 1000 == 999) {
            base_budget_enter(NULL);
            base_budget_enter(w->budget);
        }
        base_free(blocks[at]);
        blocks[at] = NULL;
        if (w->seed >> 31 && !(blocks[at] = base_alloc(bytes))) w->refused++;
    }
    for (int i = 0; i < BLOCKS; i++) base_free(blocks[i]);
    base_budget_enter(NULL);
    return NULL;
}

static void threads_share_budgets(void **state) {
    base_budget *all = base_budget_new(NULL, 12 * MIB),
                *two[2] = {base_budget_new(all, 7 * MIB), base_budget_new(all, 7 * MIB)};
    worker workers[THREADS];
    pthread_t threads[THREADS];
    size_t refused = 0;
    (void)state;
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){two[i % 2], i * 7919 + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        refused += workers[i].refused;
    }
    assert_true(base_budget_peak(two[0]) <= 7 * MIB + SLACK && base_budget_peak(all) <= 12 * MIB + 2 * SLACK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(base_budget_used(two[i]), 0);
        base_budget_unref(two[i]);
    }
    assert_int_equal(base_budget_used(all), 0);
    base_budget_unref(all);
    (void)refused; /* depends on the threads' order */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_allocated_is_counted),
        cmocka_unit_test(a_limit_is_refused_and_named),
        cmocka_unit_test(threads_share_budgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
