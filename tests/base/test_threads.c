/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c: every index of a loop is run exactly once, for many sizes, grains and pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/threads.h"

#define MOST 3000

typedef struct marks {
    atomic_int hits[MOST];
    int n_threads;
    atomic_int wrong;
} marks;

static void mark(void *arg, int64_t begin, int64_t end, int thread) {
    marks *m = arg;
    if (thread < 0 || thread >= m->n_threads || begin >= end) atomic_fetch_add(&m->wrong, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&m->hits[i], 1);
}

static void every_index_runs_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, MOST}, grains[] = {1, 3, 64, 5000};
    static marks m;
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        base_threads *pool;
        assert_int_equal(base_threads_new(&pool, n_threads, NULL), RP_OK);
        assert_int_equal(base_threads_count(pool), n_threads);
        m.n_threads = n_threads;
        for (int repeat = 0; repeat < 20; repeat++)
            for (size_t s = 0; s < 7; s++)
                for (size_t g = 0; g < 4; g++) {
                    memset(m.hits, 0, sizeof(m.hits));
                    base_threads_for(pool, mark, &m, sizes[s], grains[g]);
                    for (int64_t i = 0; i < MOST; i++) assert_int_equal(m.hits[i], i < sizes[s]);
                }
        base_threads_free(pool);
    }
    assert_int_equal(m.wrong, 0);
}

static void impossible_pools_are_refused(void **state) {
    (void)state;
    base_threads *pool;
    rp_error err = {0};
    assert_int_equal(base_threads_new(&pool, 0, &err), RP_ERR_INVALID);
    assert_int_equal(base_threads_new(&pool, BASE_THREADS_MAX + 1, &err), RP_ERR_INVALID);
    base_threads_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_runs_once),
        cmocka_unit_test(impossible_pools_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
