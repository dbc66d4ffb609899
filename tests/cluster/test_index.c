/* SPDX-License-Identifier: Apache-2.0 */
/* test_index.c: the index of names against a table of every name and node, under random operations, with failing
 * allocations, names with equal hashes, and snapshots that do not end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cluster/index.h"
#include "cluster/wire.h"
#include "support/seed.h"
#include "support/span_names.h"
#include "reprise_cluster.h"

#define N_NAMES 400
#define N_NODES 24

/* Numbers of the nodes: on both sides of words of bits. */
static const int32_t numbers[N_NODES] = {0, 1, 2, 3, 5, 8, 31, 62, 63, 64, 65, 99,
                                         127, 128, 200, 300, 500, 511, 512, 640, 700, 1000, 1022, 1023};

typedef struct naive {
    rp_name names[N_NAMES];
    uint32_t tiers[N_NAMES][N_NODES];
    bool confirmed[N_NAMES][N_NODES]; /* in the present snapshot */
} naive;

/* Random ones, groups with equal hashes, and groups at the end of a segment. */
static void naive_init(naive *m) {
    *m = (naive){0};
    for (uint64_t i = 0; i < N_NAMES; i++)
        m->names[i] = i % 4 == 0   ? span_name_of_hash(UINT64_C(0x1230000012345678) + i / 40, i)
                      : i % 4 == 1 ? span_name_of_hash(UINT64_C(0x12300000ffffffff) - (i / 40 << 26), i)
                                   : span_name_at(i);
}

static void check_name(const cluster_index *x, const naive *m, int name) {
    int32_t nodes[N_NODES + 1], n, expected = 0;
    uint32_t tiers[N_NODES + 1];
    n = cluster_index_find(x, &m->names[name], nodes, tiers, N_NODES + 1);
    for (int k = 0; k < N_NODES; k++) {
        assert_int_equal(cluster_index_get(x, &m->names[name], numbers[k]), m->tiers[name][k]);
        if (!m->tiers[name][k]) continue;
        int at = 0;
        while (at < n && nodes[at] != numbers[k]) at++;
        assert_true(at < n && tiers[at] == m->tiers[name][k]);
        expected++;
    }
    assert_int_equal(n, expected);
    if (n > 1) assert_int_equal(cluster_index_find(x, &m->names[name], nodes, tiers, n - 1), n - 1);
}

static void check_node(const cluster_index *x, const naive *m, int k) {
    size_t names = 0;
    uint64_t count = 0, sum = 0, own_count, own_sum;
    for (int i = 0; i < N_NAMES; i++) {
        const uint32_t reported = m->tiers[i][k] & 3u;
        names += m->tiers[i][k] != 0;
        count += reported != 0;
        sum += reported ? cluster_name_hash(&m->names[i], reported) : 0;
    }
    cluster_index_digest(x, numbers[k], &own_count, &own_sum);
    assert_int_equal(cluster_index_count_of(x, numbers[k]), names);
    assert_int_equal(own_count, count);
    assert_int_equal(own_sum, sum);
}

static int find_name(const naive *m, const rp_name *name) {
    for (int i = 0; i < N_NAMES; i++)
        if (memcmp(&m->names[i], name, sizeof *name) == 0) return i;
    return -1;
}

/* A walk in pieces meets every name of the node once. */
static void check_walk(const cluster_index *x, const naive *m, int k, size_t most) {
    cluster_index_place place = {0};
    rp_span_change piece[64];
    bool met[N_NAMES] = {false};
    size_t n, all = 0;
    while ((n = cluster_index_walk(x, numbers[k], &place, piece, most)) > 0)
        for (size_t i = 0; i < n; i++, all++) {
            const int name = find_name(m, &piece[i].name);
            assert_true(name >= 0 && !met[name] && piece[i].tiers == m->tiers[name][k]);
            met[name] = true;
        }
    assert_int_equal(all, cluster_index_count_of(x, numbers[k]));
}

static void check_match(const cluster_index *x, const naive *m, uint64_t *seed) {
    static uint8_t held[1024 * 50];
    rp_named_kv items[50];
    int who[50];
    const int n = (int)span_below(seed, 51), n_modules = n ? (int)span_below(seed, (uint64_t)n + 1) : 0;
    for (int i = 0; i < n; i++) {
        who[i] = (int)span_below(seed, span_below(seed, 2) ? 20 : N_NAMES);
        items[i] = (rp_named_kv){.name = m->names[who[i]], .is_module = i < n_modules};
        if (i < n_modules) items[i].group = i == 0 || span_below(seed, 3) == 0 ? i + 1 : items[i - 1].group;
    }
    const int32_t n_nodes = span_below(seed, 2) ? 1024 : 100;
    memset(held, 77, sizeof held);
    cluster_index_match(x, items, n, n_nodes, held);
    for (int k = 0, text; k < N_NODES && numbers[k] < n_nodes; k++) {
        text = 1;
        for (int i = 0; i < n; i++) {
            uint32_t expected = m->tiers[who[i]][k];
            if (i >= n_modules) text = text && expected, expected = text ? expected : 0;
            for (int j = 0; j < n_modules && i < n_modules; j++)
                if (items[j].group == items[i].group && !m->tiers[who[j]][k]) expected = 0;
            assert_int_equal(held[numbers[k] * n + i], expected);
        }
    }
}

static void check_all(const cluster_index *x, const naive *m, uint64_t *seed) {
    size_t count = 0;
    for (int i = 0; i < N_NAMES; i++) {
        bool any = false;
        for (int k = 0; k < N_NODES; k++) any |= m->tiers[i][k] != 0;
        count += any;
        check_name(x, m, i);
    }
    assert_int_equal(cluster_index_count(x), count);
    for (int k = 0; k < N_NODES; k++) check_node(x, m, k);
    check_walk(x, m, (int)span_below(seed, N_NODES), 1 + span_below(seed, 64));
    check_match(x, m, seed);
}

static void do_operation(cluster_index *x, naive *m, uint64_t *seed, uint64_t kind) {
    const int k = (int)span_below(seed, N_NODES);
    if (kind < 3) {
        cluster_index_clear(x, numbers[k]);
        for (int i = 0; i < N_NAMES; i++) m->tiers[i][k] = 0;
    } else if (kind < 15) {
        cluster_index_begin_snapshot(x, numbers[k]);
        for (int i = 0; i < N_NAMES; i++) m->confirmed[i][k] = false;
    } else if (kind < 25) {
        cluster_index_begin_snapshot(x, numbers[k]); /* an earlier one, if any, does not end */
        for (int i = 0; i < N_NAMES; i++) {
            m->confirmed[i][k] = m->tiers[i][k] && span_below(seed, 2);
            if (m->confirmed[i][k])
                assert_int_equal(cluster_index_report(x, &m->names[i], numbers[k], m->tiers[i][k]), RP_OK);
        }
        cluster_index_end_snapshot(x, numbers[k]);
        for (int i = 0; i < N_NAMES; i++)
            if (!m->confirmed[i][k]) m->tiers[i][k] &= CLUSTER_TIER_SPECULATIVE;
    } else {
        /* Mostly few names and many nodes, then many names and few nodes. */
        const int i = (int)span_below(seed, span_below(seed, 2) ? 20 : N_NAMES);
        const uint32_t tiers = span_below(seed, 3) ? (uint32_t)span_below(seed, 8) : 0;
        const bool reports = span_below(seed, 2), fails = span_below(seed, 4) == 0;
        base_alloc_fail_at(fails, 0);
        int rc = reports ? cluster_index_report(x, &m->names[i], numbers[k], tiers)
                         : cluster_index_set(x, &m->names[i], numbers[k], tiers);
        base_alloc_fail_at(0, 0);
        assert_true(rc == RP_OK || (rc == RP_ERR_MEMORY && fails && tiers));
        if (rc == RP_OK) m->tiers[i][k] = tiers;
        check_name(x, m, i);
    }
}

static void the_index_is_a_table_of_names_and_nodes(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_index", 27);
    static naive m;
    for (int round = 0; round < test_rounds(3); round++) {
        cluster_index *x;
        naive_init(&m);
        assert_int_equal(cluster_index_new(&x, NULL), RP_OK);
        for (int i = 0; i < 20000; i++) {
            do_operation(x, &m, &seed, span_below(&seed, 4000));
            if (i % 500 == 0) check_all(x, &m, &seed);
        }
        check_all(x, &m, &seed);
        for (int k = 0; k < N_NODES; k++) cluster_index_clear(x, numbers[k]);
        assert_int_equal(cluster_index_count(x), 0);
        cluster_index_free(x);
    }
}

/* What a node confirms within a snapshot stays, whatever a router sets meanwhile; names of a snapshot that did not end
   do not. */
static void a_snapshot_removes_what_it_does_not_confirm(void **state) {
    (void)state;
    cluster_index *x;
    const rp_name a = span_name_at(1), b = span_name_at(2), c = span_name_at(3);
    assert_int_equal(cluster_index_new(&x, NULL), RP_OK);
    assert_int_equal(cluster_index_report(x, &a, 4, RP_TIER_RAM) | cluster_index_report(x, &b, 4, RP_TIER_DISK), RP_OK);
    assert_int_equal(cluster_index_report(x, &b, 5, RP_TIER_DISK), RP_OK);
    cluster_index_begin_snapshot(x, 4); /* confirms a, and is cut */
    assert_int_equal(cluster_index_report(x, &a, 4, RP_TIER_RAM), RP_OK);
    cluster_index_begin_snapshot(x, 4); /* confirms c */
    assert_int_equal(cluster_index_report(x, &c, 4, RP_TIER_RAM), RP_OK);
    assert_int_equal(cluster_index_set(x, &a, 4, RP_TIER_RAM | CLUSTER_TIER_SPECULATIVE), RP_OK);
    assert_int_equal(cluster_index_set(x, &b, 4, RP_TIER_DISK), RP_OK);
    assert_int_equal(cluster_index_get(x, &b, 4), RP_TIER_DISK); /* no moment of emptiness */
    cluster_index_end_snapshot(x, 4);
    assert_int_equal(cluster_index_get(x, &a, 4), CLUSTER_TIER_SPECULATIVE);
    assert_int_equal(cluster_index_get(x, &b, 4), 0);
    assert_int_equal(cluster_index_get(x, &b, 5), RP_TIER_DISK);
    assert_int_equal(cluster_index_get(x, &c, 4), RP_TIER_RAM);
    cluster_index_free(x);
}

/* A walk goes on where it was while the table grows, shrinks and moves. */
static void a_walk_meets_what_stays_once(void **state) {
    (void)state;
    enum { STAY = 20000,
           COME = 60000 };
    cluster_index *x;
    cluster_index_place place = {0};
    rp_span_change piece[97];
    static uint8_t met[STAY];
    size_t n;
    uint64_t came = 0, seed = 5;
    assert_int_equal(cluster_index_new(&x, NULL), RP_OK);
    for (uint64_t i = 0; i < STAY; i++) {
        const rp_name name = span_name(i, span_random(&seed));
        assert_int_equal(cluster_index_report(x, &name, 1, RP_TIER_RAM), RP_OK);
    }
    while ((n = cluster_index_walk(x, 1, &place, piece, 97)) > 0) {
        for (size_t i = 0; i < n; i++) {
            uint64_t number;
            memcpy(&number, piece[i].name.bytes, sizeof number);
            if (number < STAY) assert_int_equal(met[number]++, 0);
        }
        for (int i = 0; i < 500 && came < COME; i++, came++) {
            const rp_name name = span_name(STAY + came, span_random(&seed));
            assert_int_equal(cluster_index_report(x, &name, 1, RP_TIER_DISK), RP_OK);
        }
    }
    for (int i = 0; i < STAY; i++) assert_int_equal(met[i], 1);
    cluster_index_free(x);
}

/* A node that makes names up with one hash gets an error; the table does not grow without limit, and serves others. */
static void equal_hashes_end_at_a_limit(void **state) {
    (void)state;
    cluster_index *x;
    int rc = RP_OK;
    uint64_t n = 0;
    assert_int_equal(cluster_index_new(&x, NULL), RP_OK);
    for (; n < 5000 && rc == RP_OK; n += rc == RP_OK) {
        const rp_name name = span_name_of_hash(UINT64_MAX, n);
        assert_int_equal(cluster_name_hash(&name, 0), UINT64_MAX);
        rc = cluster_index_report(x, &name, 3, RP_TIER_RAM);
    }
    assert_int_equal(rc, RP_ERR_LIMIT);
    assert_true(n >= 9 && cluster_index_bytes(x) < 1000000);
    assert_int_equal(cluster_index_count(x), n);
    for (uint64_t i = 0; i < n; i++) {
        const rp_name name = span_name_of_hash(UINT64_MAX, i);
        assert_int_equal(cluster_index_get(x, &name, 3), RP_TIER_RAM);
    }
    const rp_name other = span_name_at(9);
    assert_int_equal(cluster_index_report(x, &other, 2, RP_TIER_RAM), RP_OK);
    cluster_index_clear(x, 3);
    assert_int_equal(cluster_index_get(x, &other, 2), RP_TIER_RAM);
    assert_int_equal(cluster_index_count(x), 1);
    cluster_index_free(x);
}

/* Memory: what index.h promises, at every size, and given back afterwards. */
static void names_take_little_memory(void **state) {
    (void)state;
    enum { N = 300000 };
    cluster_index *x;
    assert_int_equal(cluster_index_new(&x, NULL), RP_OK);
    const uint64_t empty = cluster_index_bytes(x);
    assert_true(empty < 100000);
    for (uint64_t i = 0; i < N; i++) {
        const rp_name name = span_name_at(i);
        for (int32_t node = 0; node <= (int32_t)(i % 7); node++)
            assert_int_equal(cluster_index_report(x, &name, node, RP_TIER_RAM), RP_OK);
        if (i >= 200000) assert_true(cluster_index_bytes(x) <= empty + 50 * (i + 1));
    }
    for (uint64_t i = 0; i < N; i++) {
        const rp_name name = span_name_at(i);
        for (int32_t node = 0; node <= (int32_t)(i % 7); node++)
            assert_int_equal(cluster_index_report(x, &name, node, 0), RP_OK);
    }
    assert_int_equal(cluster_index_count(x), 0);
    assert_true(cluster_index_bytes(x) <= empty + 1024 * 24 * 32);
    cluster_index_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_is_a_table_of_names_and_nodes),
        cmocka_unit_test(a_snapshot_removes_what_it_does_not_confirm),
        cmocka_unit_test(a_walk_meets_what_stays_once),
        cmocka_unit_test(equal_hashes_end_at_a_limit),
        cmocka_unit_test(names_take_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
