/* SPDX-License-Identifier: Apache-2.0 */
/* test_simulate.c: simulated traces: results computed by hand, LRU and LFU against naive code, the optimum against
 * exhaustive search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/memory.h"
#include "reprise_tools.h"
#include "tools/cache_simulation/simulate_policies.h"
#include "support/tiny_random.h"

#define MAX_REQUESTS 400
#define MAX_CHAIN 8
#define MAX_BLOCKS 1024 /* capacity of the naive caches */

typedef struct trace {
    uint64_t blocks[MAX_REQUESTS][MAX_CHAIN];
    rp_simulate_request requests[MAX_REQUESTS];
    size_t n;
} trace;

static void add_request(trace *t, size_t n, const uint64_t *blocks) {
    memcpy(t->blocks[t->n], blocks, n * sizeof(*blocks));
    t->requests[t->n] = (rp_simulate_request){t->blocks[t->n], n, (int32_t)n * 10, 0};
    t->n++;
}

/* Chains of a tree: a block's number is its path, so each block follows one other block only. Some prefixes are
 * frequent. */
static void random_trace(tiny_random *r, trace *t, size_t n, uint64_t width, size_t longest) {
    t->n = 0;
    while (t->n < n) {
        uint64_t blocks[MAX_CHAIN], way = 0;
        size_t length = 1 + tiny_random_below(r, longest);
        for (size_t i = 0; i < length; i++)
            blocks[i] = way = way * width + 1 + tiny_random_below(r, 1 + tiny_random_below(r, width));
        add_request(t, length, blocks);
    }
}

static rp_simulator *open_sessions(const trace *t, int32_t attention_tokens, rp_simulate_sessions sessions) {
    rp_simulator *s;
    rp_error err = {0};
    rp_simulate_options o = {
        .struct_size = sizeof(o), .block_tokens = 10, .attention_tokens = attention_tokens, .sessions = sessions};
    if (rp_simulator_new(&s, t->requests, t->n, &o, &err) != RP_OK) fail_msg("%s", err.message);
    return s;
}

static rp_simulator *open_trace(const trace *t, int32_t attention_tokens) {
    return open_sessions(t, attention_tokens, RP_SESSIONS_KNOWN);
}

static rp_simulation run_once(const rp_simulator *s, rp_policy policy, size_t capacity) {
    rp_simulation out = {.struct_size = sizeof(out)};
    rp_error err = {0};
    if (rp_simulator_run(s, policy, capacity, &out, &err) != RP_OK) fail_msg("%s", err.message);
    return out;
}

static uint64_t hits(const rp_simulator *s, rp_policy policy, size_t capacity) {
    return run_once(s, policy, capacity).hit_tokens / 10;
}

/* ---- by hand ---- */

/* Capacity for three: a b | c | a b | d | c. LRU: hits a b; d evicts c, so c is a miss. The optimum keeps c in place
 * of a or b. */
static void a_small_trace_worked_out_by_hand(void **state) {
    (void)state;
    trace t = {.n = 0};
    add_request(&t, 2, (const uint64_t[]){71, 72});
    add_request(&t, 1, (const uint64_t[]){73});
    add_request(&t, 2, (const uint64_t[]){71, 72});
    add_request(&t, 1, (const uint64_t[]){74});
    add_request(&t, 1, (const uint64_t[]){73});
    rp_simulator *s = open_trace(&t, 1000000000);
    assert_int_equal(rp_simulator_blocks(s), 4);
    assert_int_equal(hits(s, RP_POLICY_LRU, 3), 2);
    assert_int_equal(hits(s, RP_POLICY_OPTIMUM, 3), 3);
    for (int p = 0; p < RP_N_POLICIES; p++) {
        rp_simulation all = run_once(s, (rp_policy)p, 4);
        assert_int_equal(all.hit_tokens, 30);
        assert_int_equal(all.prompt_tokens, 70);
        assert_int_equal(all.requests, 5);
        assert_true(fabs(all.saved - 30) < 0.01 && fabs(all.compute - 70) < 0.01);
    }
    rp_simulator_free(s);
}

/* A prompt of 25 tokens, twice: token i costs 1 + i / 10. */
static void costs_grow_with_the_position(void **state) {
    (void)state;
    uint64_t blocks[] = {5, 6, 7};
    rp_simulate_request requests[] = {{blocks, 3, 25, 0}, {blocks, 3, 25, 0}, {blocks, 2, 20, 0}};
    rp_simulate_options o = {.struct_size = sizeof(o), .block_tokens = 10, .attention_tokens = 10};
    rp_simulator *s;
    assert_int_equal(rp_simulator_new(&s, requests, 3, &o, NULL), RP_OK);
    rp_simulation out = run_once(s, RP_POLICY_LRU, 3);
    assert_int_equal(out.hit_tokens, 45);
    assert_true(fabs(out.compute - (2 * (25 + 30.0) + 20 + 19.0)) < 1e-9);
    assert_true(fabs(out.saved - (25 + 30.0 + 20 + 19.0)) < 1e-9);
    out = run_once(s, RP_POLICY_REPRISE, 2); /* the suffix does not fit */
    assert_int_equal(out.hit_tokens, 40);
    rp_simulator_free(s);
}

/* Capacity for four: a block is read ten times by its session; then that ends, two sessions of two blocks begin, and
 * the first comes back, then the second. Unknown, ten uses keep the dead block; known to have ended, it is the first to
 * be evicted. */
static void sessions_that_end_make_room(void **state) {
    (void)state;
    trace t = {.n = 0};
    const uint64_t session[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 2, 3};
    for (int i = 0; i < 10; i++) add_request(&t, 1, (const uint64_t[]){71});
    for (int i = 0; i < 4; i++) add_request(&t, 2, i % 2 ? (const uint64_t[]){75, 76} : (const uint64_t[]){73, 74});
    for (size_t i = 0; i < t.n; i++) t.requests[i].session = session[i];
    uint64_t found[RP_SESSIONS_ENDED + 1];
    for (int k = 0; k <= RP_SESSIONS_ENDED; k++) {
        rp_simulator *s = open_sessions(&t, 1000000000, (rp_simulate_sessions)k);
        found[k] = hits(s, RP_POLICY_REPRISE, 4);
        rp_simulator_free(s);
    }
    assert_true(found[RP_SESSIONS_IGNORED] < 13);
    assert_int_equal(found[RP_SESSIONS_ENDED], 13);
    assert_true(found[RP_SESSIONS_KNOWN] >= found[RP_SESSIONS_IGNORED]);
}

/* Ten blocks are used four times, then twenty once, then the ten again: all policies except LRU still have them. */
static void scans(void **state) {
    (void)state;
    trace t = {.n = 0};
    for (int round = 0; round < 4; round++)
        for (uint64_t b = 0; b < 10; b++) add_request(&t, 1, &b);
    for (uint64_t b = 100; b < 120; b++) add_request(&t, 1, &b);
    for (uint64_t b = 0; b < 10; b++) add_request(&t, 1, &b);
    rp_simulator *s = open_trace(&t, 16384);
    assert_int_equal(hits(s, RP_POLICY_LRU, 15), 30);
    for (rp_policy p = RP_POLICY_LFU; p <= RP_POLICY_OPTIMUM; p++) assert_int_equal(hits(s, p, 15), 40);
    rp_simulator_free(s);
}

/* ---- naive code ---- */

/* One list by last use, or by uses and last use; hits are prefixes. */
static uint64_t naive_hits(const trace *t, size_t capacity, bool by_uses) {
    static uint64_t names[MAX_BLOCKS], uses[MAX_BLOCKS];
    size_t n = 0;
    uint64_t found = 0;
    for (size_t r = 0; r < t->n; r++) {
        const rp_simulate_request *q = &t->requests[r];
        bool hit = true;
        for (size_t i = 0; i < q->n_blocks && hit; i++) {
            hit = false;
            for (size_t k = 0; k < n; k++) hit = hit || names[k] == q->blocks[i];
            found += hit;
        }
        for (size_t i = q->n_blocks; i-- > 0;) { /* the last one is the newest */
            size_t at = 0;
            uint64_t count = 1;
            while (at < n && names[at] != q->blocks[i]) at++;
            if (at < n) {
                count += uses[at];
            } else if (n < capacity) {
                at = n++;
            } else {
                at = 0;
                for (size_t k = 1; k < n && by_uses; k++)
                    if (uses[k] < uses[at]) at = k;
            }
            memmove(names + at, names + at + 1, (n - at - 1) * sizeof(*names));
            memmove(uses + at, uses + at + 1, (n - at - 1) * sizeof(*uses));
            names[n - 1] = q->blocks[i];
            uses[n - 1] = count;
        }
    }
    return found;
}

static void lru_and_lfu_agree_with_lists(void **state) {
    (void)state;
    tiny_random r = {11};
    static trace t;
    for (int round = 0; round < 60; round++) {
        random_trace(&r, &t, MAX_REQUESTS, 4, 4);
        rp_simulator *s = open_trace(&t, 16384);
        for (size_t capacity = 1; capacity < 100; capacity += 1 + tiny_random_below(&r, 20)) {
            assert_int_equal(hits(s, RP_POLICY_LRU, capacity), naive_hits(&t, capacity, false));
            assert_int_equal(hits(s, RP_POLICY_LFU, capacity), naive_hits(&t, capacity, true));
        }
        rp_simulator_free(s);
    }
}

/* The largest number of hits from request r on with the blocks of `kept`: tries every choice of blocks to keep. */
static int best_from(const trace *t, size_t r, unsigned kept, int capacity, signed char (*known)[1 << 9]) {
    unsigned there = kept;
    int found = 0, best = 0;
    if (r == t->n) return 0;
    if (known[r][kept] >= 0) return known[r][kept];
    for (size_t i = 0; i < t->requests[r].n_blocks && (kept >> t->blocks[r][i] & 1); i++) found++;
    for (size_t i = 0; i < t->requests[r].n_blocks; i++) there |= 1u << t->blocks[r][i];
    for (unsigned next = there;; next = (next - 1) & there) {
        if (__builtin_popcount(next) <= capacity) {
            int more = best_from(t, r + 1, next, capacity, known);
            best = more > best ? more : best;
        }
        if (next == 0) break;
    }
    return known[r][kept] = (signed char)(found + best);
}

/* Numbers the blocks of a trace from 0; false: there are more than 9. */
static bool number_blocks(trace *t) {
    uint64_t names[9];
    size_t n = 0;
    for (size_t r = 0; r < t->n; r++)
        for (size_t i = 0; i < t->requests[r].n_blocks; i++) {
            size_t k = 0;
            while (k < n && names[k] != t->blocks[r][i]) k++;
            if (k == 9) return false;
            if (k == n) names[n++] = t->blocks[r][i];
            t->blocks[r][i] = k;
        }
    return true;
}

static void nothing_beats_the_optimum(void **state) {
    (void)state;
    tiny_random r = {5};
    static trace t;
    static signed char known[12][1 << 9];
    int compared = 0;
    while (compared < 150) {
        random_trace(&r, &t, 12, 2, 3);
        if (!number_blocks(&t)) continue;
        rp_simulator *s = open_trace(&t, 16384);
        int capacity = 1 + (int)tiny_random_below(&r, 6);
        memset(known, -1, sizeof known);
        int best = best_from(&t, 0, 0, capacity, known);
        assert_int_equal(hits(s, RP_POLICY_OPTIMUM, (size_t)capacity), best);
        for (rp_policy p = RP_POLICY_LRU; p < RP_POLICY_OPTIMUM; p++)
            assert_true(hits(s, p, (size_t)capacity) <= (uint64_t)best);
        rp_simulator_free(s);
        compared++;
    }
}

/* ---- each policy alone ---- */

static const simulate_policy *const policies[] = {&simulate_lru, &simulate_lfu, &simulate_arc,
                                                  &simulate_s3_fifo, &simulate_reprise, &simulate_optimum};

/* Chains of one to five of 200 blocks, each block always after the same one. */
static simulate_chain random_chain(tiny_random *r, uint32_t *blocks, uint32_t *next, uint32_t number) {
    uint32_t first = 5 * (uint32_t)tiny_random_below(r, 1 + tiny_random_below(r, 40));
    simulate_chain chain = {blocks, next, 1 + tiny_random_below(r, 5), number, 0, false};
    for (uint32_t i = 0; i < 5; i++) {
        blocks[i] = first + i;
        next[i] = tiny_random_below(r, 3) ? number + 1 + (uint32_t)tiny_random_below(r, 50) : SIMULATE_NEVER;
    }
    return chain;
}

static void no_cache_is_ever_too_full(void **state) {
    (void)state;
    tiny_random r = {3};
    uint64_t costs[200];
    for (int i = 0; i < 200; i++) costs[i] = 1000 + tiny_random_below(&r, 1000);
    for (size_t capacity = 1; capacity < 130; capacity = capacity * 2 + 1)
        for (int p = 0; p < RP_N_POLICIES; p++) {
            simulate_world world = {200, capacity, costs};
            void *cache;
            size_t most = 0;
            assert_int_equal(policies[p]->open(&cache, &world), RP_OK);
            for (uint32_t number = 0; number < 500; number++) {
                uint32_t blocks[5], next[5];
                simulate_chain chain = random_chain(&r, blocks, next, number);
                assert_int_equal(policies[p]->read(cache, &chain), RP_OK);
                size_t there = 0;
                for (uint32_t b = 0; b < 200; b++) there += policies[p]->has(cache, b);
                assert_true(there <= capacity);
                most = there > most ? there : most;
            }
            assert_true(most == capacity || policies[p] == &simulate_optimum); /* keeps only blocks with a next use */
            policies[p]->close(cache);
        }
}

/* ---- misuse, failures ---- */

static void wrong_requests_are_refused(void **state) {
    (void)state;
    rp_simulator *s;
    rp_error err = {0};
    uint64_t a[] = {1, 2}, b[] = {3, 2};
    rp_simulate_request two[] = {{a, 2, 1000, 0}, {b, 2, 1000, 0}};
    assert_int_equal(rp_simulator_new(&s, two, 2, NULL, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "request 1: block 2 follows another block"));
    assert_null(s);
    for (int i = 0; i < 3; i++) {
        rp_simulate_request wrong = {a, i == 0 ? 0 : 2, i == 1 ? 512 : i == 2 ? 1025
                                                                              : 0,
                                     0};
        assert_int_equal(rp_simulator_new(&s, &wrong, 1, NULL, &err), RP_ERR_INVALID);
        assert_non_null(strstr(err.message, "request 0"));
    }
    rp_simulate_options o = {.struct_size = sizeof(o), .block_tokens = 0, .attention_tokens = 1};
    assert_int_equal(rp_simulator_new(&s, two, 1, &o, &err), RP_ERR_INVALID);
    assert_int_equal(rp_simulator_new(NULL, two, 1, NULL, &err), RP_ERR_INVALID);
    assert_int_equal(rp_simulator_new(&s, two, 1, NULL, &err), RP_OK);
    rp_simulation out = {.struct_size = sizeof(out)};
    assert_int_equal(rp_simulator_run(s, RP_POLICY_LRU, 0, &out, &err), RP_ERR_INVALID);
    assert_int_equal(rp_simulator_run(s, (rp_policy)RP_N_POLICIES, 1, &out, &err), RP_ERR_INVALID);
    rp_simulator_free(s);
    rp_simulator_free(NULL);
    assert_null(rp_policy_name((rp_policy)RP_N_POLICIES));
    assert_int_equal(rp_simulator_new(&s, NULL, 0, NULL, &err), RP_OK); /* no requests */
    assert_int_equal(rp_simulator_run(s, RP_POLICY_ARC, 1, &out, &err), RP_OK);
    assert_true(out.requests == 0 && out.compute == 0);
    rp_simulator_free(s);
}

static void failing_allocations_are_said(void **state) {
    (void)state;
    tiny_random r = {9};
    static trace t;
    random_trace(&r, &t, 100, 4, 4);
    rp_simulator *s = NULL;
    int rc = RP_ERR_MEMORY;
    uint64_t n = 1;
    for (; rc != RP_OK; n++) {
        base_alloc_fail_at(n, 0);
        rc = rp_simulator_new(&s, t.requests, t.n,
                              &(rp_simulate_options){sizeof(rp_simulate_options), 10, 10, RP_SESSIONS_ENDED}, NULL);
        base_alloc_fail_at(0, 0);
        assert_true(rc == RP_OK || (rc == RP_ERR_MEMORY && s == NULL));
    }
    assert_true(n > 8);
    for (int p = 0; p < RP_N_POLICIES; p++) {
        rp_simulation out = {.struct_size = sizeof(out)}, whole = run_once(s, (rp_policy)p, 30);
        for (n = 1, rc = RP_ERR_MEMORY; rc != RP_OK; n++) {
            base_alloc_fail_at(n, 0);
            rc = rp_simulator_run(s, (rp_policy)p, 30, &out, NULL);
            base_alloc_fail_at(0, 0);
            assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
        }
        assert_true(n > 2 && out.hit_tokens == whole.hit_tokens && out.saved == whole.saved);
    }
    rp_simulator_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_trace_worked_out_by_hand),
        cmocka_unit_test(costs_grow_with_the_position),
        cmocka_unit_test(scans),
        cmocka_unit_test(lru_and_lfu_agree_with_lists),
        cmocka_unit_test(nothing_beats_the_optimum),
        cmocka_unit_test(no_cache_is_ever_too_full),
        cmocka_unit_test(sessions_that_end_make_room),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(failing_allocations_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
