/* SPDX-License-Identifier: Apache-2.0 */
/* test_simulation.c: a thousand seeds of small clusters with faults, each with its invariants; times and hits of small
 * clusters, computed by hand; equal runs are equal; policies in their order; a pool; prefill and decode apart; failing
 * allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "tools/cluster_simulation/sim_cluster.h"
#include "reprise_tools.h"
#include "support/seed.h"

#define SEEDS 1000

static rp_cluster_simulation run(const rp_cluster_simulate_options *o, const rp_cluster_trace_request *trace,
                                 size_t n) {
    rp_cluster_simulation r = {.struct_size = sizeof(r)};
    rp_error err = {0};
    if (rp_cluster_simulate(o, trace, n, &r, &err) != RP_OK) fail_msg("%s", err.message);
    if (r.broken[0])
        fail_msg("%s (again: reprise cluster simulate --faults --policy %s --seed %llu)", r.broken, o->policy,
                 (unsigned long long)o->seed);
    return r;
}

/* ---- faults ---- */

static void test_faults(void **state) {
    (void)state;
    uint64_t first = test_seed("simulation", 1);
    int n = test_rounds(SEEDS), n_policies = 0;
    rp_cluster_simulation sum = {0};
    while (rp_cluster_policy_name(n_policies)) n_policies++;
    for (int i = 0; i < n; i++) {
        rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
        o.seed = first + (uint64_t)i;
        o.faults = true;
        o.policy = i % 2 ? "cost" : rp_cluster_policy_name(i / 2 % n_policies);
        rp_cluster_simulation r = run(&o, NULL, 0);
        for (int k = 0; k < RP_CLUSTER_OUTCOMES; k++) sum.outcomes[k] += r.outcomes[k];
        sum.requests += r.requests;
        sum.restarts += r.restarts;
        sum.freezes += r.freezes;
        sum.router_restarts += r.router_restarts;
        sum.lost += r.lost;
        sum.cut += r.cut;
        sum.delayed += r.delayed;
        sum.swallowed += r.swallowed;
        sum.retries += r.retries;
        sum.continuations += r.continuations;
        sum.hit_tokens += r.hit_tokens;
        sum.router_lost += r.router_lost;
    }
    if (n < 100) return;
    /* What the seeds should meet was met. */
    assert_true(sum.outcomes[RP_CLUSTER_SERVED] > sum.requests / 2);
    assert_true(sum.restarts > 0 && sum.freezes > 0 && sum.router_restarts > 0 && sum.lost > 0 && sum.cut > 0 &&
                sum.delayed > 0);
    assert_true(sum.swallowed > 0);
    assert_true(sum.retries > 0 && sum.continuations > 0 && sum.hit_tokens > 0 && sum.router_lost > 0);
    assert_true(sum.outcomes[CLUSTER_LATE] > 0 && sum.outcomes[CLUSTER_FAILED] > 0 &&
                sum.outcomes[CLUSTER_REFUSED_ITL] > 0);
}

/* Nodes that die, and requests that are cancelled, while they fetch. */
static void test_faults_with_pool(void **state) {
    (void)state;
    uint64_t first = test_seed("simulation: pool", 1), fetched = 0;
    int n = test_rounds(SEEDS / 4);
    for (int i = 0; i < n; i++) {
        rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
        o.seed = first + (uint64_t)i;
        o.faults = true;
        o.pool_tokens = i % 3 ? -1 : 3000;
        o.pool_writes = i % 3;
        o.pool_fetch_us = i % 2 ? 10 : 40;
        o.pool_rtt_us = i % 5 ? 200 : 20000;
        o.policy = i % 4 ? "cost" : "round-robin";
        fetched += run(&o, NULL, 0).fetched_names;
    }
    assert_true(n < 100 || fetched > 0);
}

static void test_equal_runs(void **state) {
    (void)state;
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    o.faults = true;
    o.seed = 42;
    rp_cluster_simulation a = run(&o, NULL, 0), b = run(&o, NULL, 0);
    assert_memory_equal(&a, &b, sizeof(a));
    o.seed = 43;
    b = run(&o, NULL, 0);
    assert_true(a.hash != b.hash);
}

/* ---- by hand ---- */

static rp_cluster_simulate_options one_node(void) {
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    o.nodes = 1;
    o.latency_ms = 1;
    o.prefill_tokens_per_s = 1000; /* a token a millisecond: 512 ms a chunk */
    o.attention_tokens = 1e12;     /* none */
    o.decode_ms = 10;
    return o;
}

/* A prompt of 1,000 tokens takes 1,000 ms and two messages; again, all but its last token is cached. */
static void test_times(void **state) {
    (void)state;
    static const uint64_t blocks[] = {1, 2};
    const rp_cluster_trace_request trace[] = {{0, blocks, 2, 1000, 11}, {10000, blocks, 2, 1000, 1}};
    rp_cluster_simulate_options o = one_node();
    rp_cluster_simulation r = run(&o, trace, 1);
    assert_int_equal(r.outcomes[RP_CLUSTER_SERVED], 1);
    assert_int_equal(r.prompt_tokens, 1000);
    assert_int_equal(r.hit_tokens, 0);
    assert_int_equal(r.answer_tokens, 11);
    assert_true(r.ttft_mean_ms > 1001.9 && r.ttft_mean_ms < 1002.1);
    assert_true(r.itl_p50_ms > 9.5 && r.itl_p50_ms < 10.1); /* of a bucket's lower end */
    assert_true(r.computed_s > 1.0999 && r.computed_s < 1.1001);
    r = run(&o, trace, 2);
    assert_int_equal(r.hit_tokens, 999);
    assert_true(r.ttft_p50_ms > 1001.9 || r.ttft_p50_ms < 13);
    assert_true(r.seconds > 10.0119 && r.seconds < 10.0121); /* the second one: two messages and a step of one row */
}

/* Two at a time on a node that runs one: the second one waits for the first one's answer. */
static void test_queue(void **state) {
    (void)state;
    static const uint64_t first[] = {1}, second[] = {2};
    const rp_cluster_trace_request trace[] = {{0, first, 1, 500, 101}, {0, second, 1, 500, 1}};
    rp_cluster_simulate_options o = one_node();
    o.max_sequences = 1;
    rp_cluster_simulation r = run(&o, trace, 2);
    assert_int_equal(r.outcomes[RP_CLUSTER_SERVED], 2);
    assert_true(r.ttft_p99_ms > 500 + 1000 + 500 && r.ttft_p99_ms < 2010);
    o.max_sequences = 2; /* beside the first one's answer */
    r = run(&o, trace, 2);
    assert_true(r.ttft_p99_ms > 1000 && r.ttft_p99_ms < 1020);
}

/* Two nodes: round robin computes every prompt twice, cost once. */
static void test_hits(void **state) {
    (void)state;
    static const uint64_t a[] = {1}, b[] = {2};
    rp_cluster_trace_request trace[12];
    rp_cluster_simulate_options o = one_node();
    for (size_t i = 0; i < 12; i++)
        trace[i] = (rp_cluster_trace_request){1000 * (double)i, i % 4 < 2 ? a : b, 1, 512, 1};
    o.nodes = 2;
    o.policy = "round-robin";
    rp_cluster_simulation r = run(&o, trace, 12);
    assert_int_equal(r.hit_tokens, 8 * 511);
    o.policy = "cost";
    r = run(&o, trace, 12);
    assert_int_equal(r.hit_tokens, 10 * 511);
    o.kv_tokens = 600; /* one prompt: a and b displace each other, unless each has its node */
    r = run(&o, trace, 12);
    assert_true(r.hit_tokens >= 6 * 511);
    o.policy = "round-robin";
    assert_int_equal(run(&o, trace, 12).hit_tokens, 0);
}

/* ---- a pool ---- */

/* Requests of one block of 512 tokens, at one a second. */
static rp_cluster_simulation run_blocks(rp_cluster_simulate_options o, const uint64_t *blocks, size_t n) {
    rp_cluster_trace_request trace[16];
    for (size_t i = 0; i < n; i++) trace[i] = (rp_cluster_trace_request){1000 * (double)i, &blocks[i], 1, 512, 1};
    return run(&o, trace, n);
}

static rp_cluster_simulate_options nodes_with_pool(int32_t nodes, int32_t writes) {
    rp_cluster_simulate_options o = one_node();
    o.nodes = nodes;
    o.policy = "round-robin";
    o.pool_tokens = -1;
    o.pool_writes = writes;
    return o;
}

/* The second node fetches a block in 512 x 10 us and a round trip of 200 us, if that is less than its 512 ms. */
static void test_fetch(void **state) {
    (void)state;
    static const uint64_t blocks[] = {1, 1, 1, 1};
    rp_cluster_simulate_options o = nodes_with_pool(2, RP_CLUSTER_POOL_ALWAYS);
    rp_cluster_simulation r = run_blocks(o, blocks, 2);
    assert_int_equal(r.fetched_names, 1);
    assert_int_equal(r.fetched_tokens, 512);
    assert_int_equal(r.hit_tokens, 511);
    assert_int_equal(r.pool_written_tokens, 512);
    /* Two messages each; 512 ms, and 5.32 ms and a step of one row. */
    const double both_ms = 2 + 512 + 2 + 5.32 + 10;
    assert_true(r.ttft_mean_ms > both_ms / 2 - 0.1 && r.ttft_mean_ms < both_ms / 2 + 0.1);
    r = run_blocks(o, blocks, 4); /* what was fetched is the node's own */
    assert_int_equal(r.fetched_names, 1);
    assert_int_equal(r.hit_tokens, 3 * 511);
    o.pool_fetch_us = 1001; /* a token is computed in 1,000 us */
    assert_int_equal(run_blocks(o, blocks, 2).fetched_names, 0);
    o.pool_fetch_us = 10;
    o.pool_rtt_us = 512 * 991; /* more than the fetch saves */
    assert_int_equal(run_blocks(o, blocks, 2).fetched_names, 0);
    o.pool_rtt_us = 512 * 989;
    assert_int_equal(run_blocks(o, blocks, 2).fetched_names, 1);
}

static void test_pool_writes(void **state) {
    (void)state;
    static const uint64_t same[] = {1, 1, 1}, turns[] = {1, 2, 1};
    assert_int_equal(run_blocks(nodes_with_pool(3, RP_CLUSTER_POOL_ALWAYS), same, 3).fetched_names, 2);
    assert_int_equal(run_blocks(nodes_with_pool(3, RP_CLUSTER_POOL_SECOND_USE), same, 3).fetched_names, 1);
    rp_cluster_simulate_options o = nodes_with_pool(1, RP_CLUSTER_POOL_SECOND_USE);
    o.kv_tokens = 600; /* the second block evicts the first one */
    assert_int_equal(run_blocks(o, turns, 3).fetched_names, 0);
    o.pool_writes = RP_CLUSTER_POOL_EVICTED;
    assert_int_equal(run_blocks(o, turns, 3).fetched_names, 1);
    o.pool_tokens = 511; /* it has no space for a block */
    assert_int_equal(run_blocks(o, turns, 3).fetched_names, 0);
    o.pool_tokens = 512; /* the second block evicts the first one there, too */
    o.pool_writes = RP_CLUSTER_POOL_ALWAYS;
    assert_int_equal(run_blocks(o, turns, 2).pool_written_tokens, 2 * 512);
}

/* ---- prefill and decode apart ---- */

/* The second node lets the first one compute 1,000 tokens in 1,000 ms, and fetches them in 10.2 ms; four messages. */
static void test_apart(void **state) {
    (void)state;
    static const uint64_t blocks[] = {1, 2};
    const rp_cluster_trace_request trace[] = {{0, blocks, 2, 1000, 11}, {10000, blocks, 2, 1000, 11}};
    rp_cluster_simulate_options o = one_node();
    o.nodes = 2;
    o.apart = RP_CLUSTER_APART;
    o.prefill_nodes = 1;
    rp_cluster_simulation r = run(&o, trace, 1);
    assert_int_equal(r.apart, 1);
    assert_int_equal(r.outcomes[RP_CLUSTER_SERVED], 1);
    assert_int_equal(r.prompt_tokens, 1000);
    assert_int_equal(r.answer_tokens, 11);
    assert_true(r.ttft_mean_ms > 4 + 1000 + 10.2 + 10 - 0.1 && r.ttft_mean_ms < 4 + 1000 + 10.2 + 10 + 0.1);
    assert_true(r.e2e_mean_ms > r.ttft_mean_ms + 99 && r.e2e_mean_ms < r.ttft_mean_ms + 101);
    r = run(&o, trace, 2); /* both nodes hold it then */
    assert_int_equal(r.hit_tokens, 999);
    o.apart = RP_CLUSTER_APART_BY_COST; /* an idle node does both in less time */
    o.prefill_nodes = 0;
    assert_int_equal(run(&o, trace, 2).apart, 0);
}

/* By cost: nearly as soon complete as the better of always and never. */
static void test_apart_by_cost(void **state) {
    (void)state;
    static const double rates[] = {1, 8};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
        o.workload = RP_CLUSTER_SHARED_PREFIX;
        o.requests = 400;
        o.answer_tokens = 200;
        o.nodes = 4;
        o.rate = rates[i];
        double together_ms = run(&o, NULL, 0).e2e_mean_ms;
        o.apart = RP_CLUSTER_APART;
        o.prefill_nodes = 3;
        double apart_ms = run(&o, NULL, 0).e2e_mean_ms;
        o.apart = RP_CLUSTER_APART_BY_COST;
        o.prefill_nodes = 0;
        rp_cluster_simulation r = run(&o, NULL, 0);
        assert_int_equal(r.outcomes[RP_CLUSTER_SERVED], 400);
        assert_true(r.e2e_mean_ms <= 1.05 * BASE_MIN(together_ms, apart_ms));
    }
}

/* ---- policies ---- */

static rp_cluster_simulation run_policy(rp_cluster_simulate_options o, const char *policy) {
    o.policy = policy;
    return run(&o, NULL, 0);
}

/* Documents in random order: only the cost of modules sees that they are there. */
static void test_retrieval(void **state) {
    (void)state;
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    o.workload = RP_CLUSTER_RETRIEVAL;
    o.requests = 600;
    o.prefix_tokens = 3000;
    o.question_tokens = o.answer_tokens = 100;
    o.kv_tokens = 100000;
    rp_cluster_simulation cost = run_policy(o, "cost"), prefix = run_policy(o, "prefix-cost");
    assert_int_equal(cost.outcomes[RP_CLUSTER_SERVED], 600);
    assert_true(cost.hit_tokens > prefix.hit_tokens);
    assert_true(cost.ttft_mean_ms < prefix.ttft_mean_ms);
}

/* Shared prefixes beyond capacity: routing by cost has the hits, and so the throughput. */
static void test_shared_prefix(void **state) {
    (void)state;
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    o.workload = RP_CLUSTER_SHARED_PREFIX;
    o.requests = 400;
    o.answer_tokens = 100;
    o.kv_tokens = 300000;
    o.rate = 40;
    rp_cluster_simulation cost = run_policy(o, "cost"), random = run_policy(o, "random");
    assert_int_equal(cost.outcomes[RP_CLUSTER_SERVED], 400);
    assert_true(cost.hit_tokens > 2 * random.hit_tokens);
    assert_true(cost.seconds < random.seconds);
}

/* With a pool, round robin has the hits, too; cost fetches less for them. */
static void test_pool_policies(void **state) {
    (void)state;
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    o.workload = RP_CLUSTER_SHARED_PREFIX;
    o.requests = 400;
    o.answer_tokens = 100;
    o.kv_tokens = 100000;
    o.rate = 20;
    rp_cluster_simulation alone = run_policy(o, "cost");
    o.pool_tokens = -1;
    rp_cluster_simulation cost = run_policy(o, "cost"), robin = run_policy(o, "round-robin");
    assert_int_equal(cost.outcomes[RP_CLUSTER_SERVED], 400);
    assert_true(cost.hit_tokens > alone.hit_tokens && cost.ttft_mean_ms < alone.ttft_mean_ms);
    assert_true(cost.fetched_tokens < robin.fetched_tokens / 2);
}

/* Goals: what is refused is refused by the rule, and counted. */
static void test_refusals(void **state) {
    (void)state;
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    o.workload = RP_CLUSTER_SHARED_PREFIX;
    o.requests = 400;
    o.answer_tokens = 50;
    o.rate = 100;
    o.admission = "at-arrival";
    o.ttft_goal_ms = 2000;
    rp_cluster_simulation r = run_policy(o, "cost");
    uint64_t refused = r.outcomes[CLUSTER_REFUSED_TTFT];
    assert_true(refused > 0 && r.outcomes[RP_CLUSTER_SERVED] > 0);
    assert_int_equal(refused + r.outcomes[RP_CLUSTER_SERVED], 400);
    o.admission = "off";
    assert_true(r.ttft_p99_ms < run_policy(o, "cost").ttft_p99_ms);
}

/* ---- errors ---- */

static void test_errors(void **state) {
    (void)state;
    static const uint64_t blocks[] = {1, 2};
    const rp_cluster_trace_request wrong[] = {{0, blocks, 2, 100, 1}, {-1, blocks, 1, 100, 1}, {0, blocks, 1, 0, 1}};
    rp_cluster_simulation r = {.struct_size = sizeof(r)};
    rp_error err;
    for (size_t i = 0; i < 3; i++) assert_int_equal(rp_cluster_simulate(NULL, &wrong[i], 1, &r, &err), RP_ERR_INVALID);
    rp_cluster_simulate_options o = rp_cluster_simulate_options_defaults();
    assert_int_equal(rp_cluster_simulate(&o, NULL, 0, &r, &err), RP_ERR_INVALID); /* no trace */
    o.policy = "best";
    assert_int_equal(rp_cluster_simulate(&o, wrong, 1, &r, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "best"));
    o = rp_cluster_simulate_options_defaults();
    o.nodes = 0;
    assert_int_equal(rp_cluster_simulate(&o, wrong, 1, &r, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "nodes"));
    o = rp_cluster_simulate_options_defaults();
    o.workload = RP_CLUSTER_RETRIEVAL;
    o.documents = o.chosen = 1 << 20;
    o.prefix_tokens = 1 << 24; /* positions would overflow */
    assert_int_equal(rp_cluster_simulate(&o, NULL, 0, &r, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "chosen"));
    for (int i = 0; i < 4; i++) {
        o = rp_cluster_simulate_options_defaults();
        o.apart = i < 3 ? RP_CLUSTER_APART : RP_CLUSTER_APART_BY_COST;
        o.prefill_nodes = i == 0 ? o.nodes : i < 3;
        o.no_queues = i == 1;
        o.faults = i == 2;
        if (i == 3) o.policy = "random"; /* it compares no costs */
        o.workload = RP_CLUSTER_CONVERSATIONS;
        assert_int_equal(rp_cluster_simulate(&o, NULL, 0, &r, &err), RP_ERR_INVALID);
        assert_non_null(strstr(err.message, i == 0 ? "prefill_nodes" : i < 3 ? "apart"
                                                                             : "random"));
    }
    r.struct_size = 0;
    assert_int_equal(rp_cluster_simulate(NULL, wrong, 1, &r, &err), RP_ERR_INVALID);
}

/* The n-th allocation of the making of a simulation fails. */
static void test_no_memory(void **state) {
    (void)state;
    static const uint64_t blocks[] = {1, 2};
    const rp_cluster_trace_request trace[] = {{0, blocks, 2, 1000, 2}};
    rp_cluster_simulate_options o = one_node();
    int failures = 0;
    o.pool_tokens = -1;
    for (uint64_t n = 1; n < 25; n++) {
        rp_cluster_simulation r = {.struct_size = sizeof(r)};
        rp_error err;
        base_alloc_fail_at(n, 0);
        int rc = rp_cluster_simulate(&o, trace, 1, &r, &err);
        base_alloc_fail_at(0, 0);
        assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
        failures += rc == RP_ERR_MEMORY;
    }
    assert_true(failures > 10);
}

/* ---- parts ---- */

static void test_clock_gaps(void **state) {
    (void)state;
    for (uint64_t us = 0; us < 4000000; us += 1 + us / 50) {
        uint64_t low = sim_gap_of(sim_gap_bucket(us));
        assert_true(low <= us && us - low <= us / 32);
    }
}

static void test_exponential(void **state) {
    (void)state;
    sim_random r = {7};
    double sum = 0, squares = 0;
    for (int i = 0; i < 200000; i++) {
        double x = sim_random_exponential(&r);
        sum += x;
        squares += x * x;
    }
    assert_true(sum / 200000 > 0.99 && sum / 200000 < 1.01);
    assert_true(squares / 200000 > 1.95 && squares / 200000 < 2.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_gaps),
        cmocka_unit_test(test_exponential),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_hits),
        cmocka_unit_test(test_fetch),
        cmocka_unit_test(test_pool_writes),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_apart_by_cost),
        cmocka_unit_test(test_equal_runs),
        cmocka_unit_test(test_retrieval),
        cmocka_unit_test(test_shared_prefix),
        cmocka_unit_test(test_pool_policies),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_faults_with_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
