/* SPDX-License-Identifier: Apache-2.0 */
/* test_policies.c: predicted times against the engine's own cost model, chunk by chunk; each policy's choice alone;
 * load that nodes have not reported; speculative entries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "cluster/cost.h"
#include "cluster/policy.h"
#include "cluster/pool_hints.h"
#include "engine/core/cost_model.h"
#include "support/router_world.h"
#include "support/seed.h"
#include "reprise_cluster.h"

#define MAX_ITEMS 64

static void assert_near(double a, double b) {
    if (fabs(a - b) > 1e-6 * fmax(1, fabs(b))) fail_msg("%.9g, expected %.9g", a, b);
}

/* ---- the slow path: steps of the engine's model ---- */

/* A model with random coefficients, and the load that reports them. */
static cost_model random_model(tiny_random *r, rp_engine_load *load) {
    cost_model m;
    cost_model_init(&m);
    double knot = 100;
    m.n = 1;
    *load = (rp_engine_load){.struct_size = sizeof(*load), .chunk_tokens = 1 + (int32_t)tiny_random_below(r, 700)};
    for (int k = 0; k < COST_KNOTS; k++) load->knot_us[k] = m.table[k] = knot += (double)tiny_random_below(r, 5000);
    m.weights[COST_KNOTS] = (double)tiny_random_below(r, 1000);     /* of 1e5 row slots */
    m.weights[COST_KNOTS + 1] = (double)tiny_random_below(r, 1000); /* of 1e3 slots */
    load->row_slot_us = m.weights[COST_KNOTS] / 1e5;
    load->slot_us = m.weights[COST_KNOTS + 1] / 1e3;
    load->read_byte_us = 1e-3;
    return m;
}

/* A prefill of n tokens after `slots`, in chunks. */
static double slow_tokens(const cost_model *m, int32_t chunk, int32_t n, int32_t slots) {
    double us = 0;
    for (int32_t done = 0; done < n;) {
        int32_t rows = BASE_MIN(chunk, n - done);
        cost_load step = {rows, rows * ((double)slots + done + 0.5 * rows), (double)slots + done + rows};
        us += cost_model_predict(m, &step);
        done += rows;
    }
    return us;
}

static void costs_are_the_engines(void **state) {
    tiny_random r = {test_seed("policies: costs", 1)};
    (void)state;
    for (int i = 0; i < 300; i++) {
        rp_engine_load load;
        cost_model m = random_model(&r, &load);
        int32_t n = 1 + (int32_t)tiny_random_below(&r, 20000), slots = (int32_t)tiny_random_below(&r, 100000);
        assert_near(cluster_cost_tokens(&load, n, slots), slow_tokens(&m, load.chunk_tokens, n, slots));
        cost_load step = {1 + (int32_t)tiny_random_below(&r, 5000), (double)tiny_random_below(&r, 1000000),
                          (double)tiny_random_below(&r, 1000000)};
        assert_near(cluster_cost_step(&load, step.rows, step.row_slots, step.slots), cost_model_predict(&m, &step));
        load.decoding = (int32_t)tiny_random_below(&r, 20);
        load.context_tokens = 1000 * load.decoding;
        cost_load decode = {load.decoding + 1, (double)load.context_tokens + slots,
                            (double)load.context_tokens + slots};
        assert_near(cluster_cost_decode(&load, slots), cost_model_predict(&m, &decode));
    }
    rp_engine_load nothing = {.chunk_tokens = 512};
    assert_true(cluster_cost_tokens(&nothing, 5000, 3) == 0 && !cluster_cost_is_known(&nothing));
}

/* T(node) of a prompt of text and modules, name by name. Text is one run after what is held; a module is a run of its
 * own unless the one before it is missing, too. */
static double slow_ttft(const cost_model *m, const rp_engine_load *load, const cluster_request *r,
                        const uint8_t *held) {
    double us = 0, read_us = 0;
    int32_t tokens = 0, chunk = load->chunk_tokens;
    bool missing[8192] = {false};
    int32_t named = 0;
    for (int32_t i = 0; i < r->n_items; i++) {
        named += r->items[i].n_tokens;
        if (held[i] & (RP_TIER_RAM | CLUSTER_TIER_SPECULATIVE)) continue;
        double row_us =
                   slow_tokens(m, chunk, chunk, 0) - load->row_slot_us * chunk * 0.5 * chunk - load->slot_us * chunk,
               alone = 0;
        int32_t n = r->items[i].n_tokens, from = r->items[i].position;
        alone = n * row_us / chunk + load->row_slot_us * n * (from + 0.5 * n);
        for (int32_t done = 0; done < n; done += chunk)
            alone += load->slot_us * (from + BASE_MIN(done + chunk, n));
        double read = load->read_byte_us * (double)r->items[i].bytes;
        if (held[i] == RP_TIER_DISK && read <= alone) read_us += read;
        else
            for (int32_t k = 0; k < r->items[i].n_tokens; k++) missing[r->items[i].position + k] = true;
    }
    for (int32_t k = named; k < r->prompt_tokens; k++) missing[k] = true; /* fresh tokens, at the end */
    for (int32_t from = 0, to; from < r->prompt_tokens; from = to) {
        for (to = from; to < r->prompt_tokens && missing[to] == missing[from]; to++) {}
        if (!missing[from]) continue;
        tokens += to - from;
        for (int32_t done = 0; done < to - from; done += chunk) {
            int32_t rows = BASE_MIN(chunk, to - from - done);
            us += load->row_slot_us * rows * (from + done + 0.5 * rows) + load->slot_us * (from + done + rows);
        }
    }
    double attention = us;
    for (int32_t done = 0; done < tokens; done += chunk) {
        cost_load step = {BASE_MIN(chunk, tokens - done), 0, 0};
        us = attention += cost_model_predict(m, &step);
    }
    return us + read_us;
}

/* Modules from position 0, then text; tiers at random, of text nothing after the first name that is missing. */
static int32_t random_items(tiny_random *r, rp_named_kv *items, uint8_t *held) {
    int32_t n_modules = (int32_t)tiny_random_below(r, 10), n_text = (int32_t)tiny_random_below(r, 30), position = 0,
            n = 0;
    uint8_t tiers[] = {0, RP_TIER_RAM, RP_TIER_DISK, RP_TIER_RAM | RP_TIER_DISK, CLUSTER_TIER_SPECULATIVE};
    bool whole = true;
    for (; n < n_modules; n++) {
        items[n] = world_module((uint32_t)n, position, 1 + (int32_t)tiny_random_below(r, 256));
        items[n].bytes = 1 + tiny_random_below(r, 4000000);
        held[n] = tiers[tiny_random_below(r, 5)];
        position += items[n].n_tokens;
    }
    world_text(items + n, n_text, 1);
    for (int32_t i = 0; i < n_text; i++, n++) {
        items[n].position += position;
        items[n].bytes = 1 + tiny_random_below(r, 4000000);
        whole = whole && tiny_random_below(r, 12);
        held[n] = whole ? tiers[1 + tiny_random_below(r, 4)] : 0;
    }
    return n;
}

static void predicted_times_are_sums_over_names(void **state) {
    tiny_random r = {test_seed("policies: times", 2)};
    (void)state;
    for (int i = 0; i < 2000; i++) {
        rp_engine_load load;
        rp_named_kv items[MAX_ITEMS];
        uint8_t held[MAX_ITEMS];
        cost_model m = random_model(&r, &load);
        cluster_facts facts = {.load = &load, .drain_us = (double)tiny_random_below(&r, 100000)};
        int32_t n = random_items(&r, items, held), named = 0;
        for (int32_t k = 0; k < n; k++) named += items[k].n_tokens;
        world_request q = world_request_of(items, n, named + 1 + (int32_t)tiny_random_below(&r, 63));
        cluster_candidate c = {0};
        cluster_policy_see(&c, &facts, &q.r, held, NULL);
        assert_near(c.ttft_ms * 1e3, facts.drain_us + slow_ttft(&m, &load, &q.r, held));
    }
}

/* ---- the pool ---- */

/* A token takes 100 us to compute, wherever it is. */
static rp_engine_load plain_load(void) {
    rp_engine_load load = {.chunk_tokens = 64, .kv_bytes_per_token = 1000};
    for (int k = 0; k < RP_COST_KNOTS; k++) load.knot_us[k] = 100 * (double)(1 << k);
    return load;
}

static void what_the_pool_has_is_fetched_if_that_is_faster(void **state) {
    rp_named_kv items[4];
    rp_engine_load load = plain_load();
    cluster_fetch_cost fetch = {.rtt_us = 300, .byte_us = 1e-2}; /* 10 us a token */
    cluster_facts facts = {.load = &load, .fetch = &fetch, .requests_of_all = 3, .delayed = 2};
    cluster_candidate c = {0};
    const bool pooled[4] = {true, true, true, false};
    uint8_t held[4] = {RP_TIER_RAM, 0, 0, 0};
    (void)state;
    world_text(items, 4, 1);
    for (int i = 0; i < 4; i++) items[i].bytes = 64000;
    world_request q = world_request_of(items, 4, 256);
    cluster_policy_mark_pooled(&q.r, pooled, held);
    assert_true(held[0] == RP_TIER_RAM && held[1] == CLUSTER_TIER_POOL && held[2] == CLUSTER_TIER_POOL && !held[3]);
    cluster_policy_see(&c, &facts, &q.r, held, NULL);
    assert_true(c.held_tokens == 64 && c.pool_tokens == 128);
    assert_near(c.fetch_ms, 0.3 + 1.28);
    assert_near(c.ttft_ms, 6.4 + 0.3 + 1.28);
    assert_near(cluster_policy_cost(CLUSTER_POLICY_COST, &c, &facts), c.ttft_ms + 2 * 6.4 + 3 * c.fetch_ms);
    facts.drain_us = 5000; /* the fetch takes place meanwhile */
    cluster_policy_see(&c, &facts, &q.r, held, NULL);
    assert_near(c.ttft_ms, 5 + 6.4);
    facts.drain_us = 0;
    fetch.rtt_us = 128 * 90; /* what the fetch saves */
    cluster_policy_see(&c, &facts, &q.r, held, NULL);
    assert_true(c.pool_tokens == 0 && c.fetch_ms == 0);
    assert_near(c.ttft_ms, 3 * 6.4);
    fetch = (cluster_fetch_cost){.rtt_us = 0, .byte_us = 0.101};
    cluster_policy_see(&c, &facts, &q.r, held, NULL);
    assert_int_equal(c.pool_tokens, 0);
}

/* Text after a name that is nowhere is not fetched; modules are, and groups as a whole. */
static void pooled_names_have_their_prefix(void **state) {
    rp_named_kv items[6] = {world_module(1, 0, 64), world_module(2, 64, 64), world_module(3, 128, 64)};
    const bool pooled[6] = {true, true, false, true, false, true};
    uint8_t held[6] = {0};
    (void)state;
    items[1].group = items[2].group = 1;
    world_text(items + 3, 3, 1);
    world_request q = world_request_of(items, 6, 400);
    cluster_policy_mark_pooled(&q.r, pooled, held);
    const uint8_t marked[6] = {CLUSTER_TIER_POOL, 0, 0, CLUSTER_TIER_POOL, 0, 0};
    assert_memory_equal(held, marked, sizeof(held));
    memset(held, 0, sizeof(held));
    held[4] = RP_TIER_DISK; /* the node has the name between */
    cluster_policy_mark_pooled(&q.r, pooled, held);
    assert_true(held[3] == CLUSTER_TIER_POOL && held[4] == RP_TIER_DISK && held[5] == CLUSTER_TIER_POOL);
}

/* A bucket of 8 forgets the name that was used longest ago. */
static void hints_of_the_pool_are_few(void **state) {
    cluster_pool_hints *h = NULL;
    rp_named_kv items[9];
    (void)state;
    assert_int_equal(cluster_pool_hints_new(&h, 64, NULL), RP_OK);
    world_text(items, 9, 1);
    for (int i = 0; i < 8; i++) cluster_pool_hints_add(h, &items[i].name);
    assert_true(cluster_pool_hints_get(h, &items[0].name));
    assert_false(cluster_pool_hints_get(h, &items[8].name));
    cluster_pool_hints_add(h, &items[0].name); /* no second time */
    cluster_pool_hints_add(h, &items[8].name);
    for (int i = 0; i < 9; i++) assert_int_equal(cluster_pool_hints_get(h, &items[i].name), i != 1);
    cluster_pool_hints_free(h);
    base_alloc_fail_at(2, 0);
    assert_int_equal(cluster_pool_hints_new(&h, 64, NULL), RP_ERR_MEMORY);
    base_alloc_fail_at(0, 0);
}

/* Prefix routers: held up to the first name that is missing, in the order of positions. */
static void prefix_policies_see_modules_as_text(void **state) {
    rp_named_kv items[4] = {world_module(1, 0, 100), world_module(2, 100, 100), world_module(3, 200, 100)};
    uint8_t held[4] = {RP_TIER_RAM, 0, RP_TIER_RAM, RP_TIER_RAM};
    int32_t order[4];
    rp_engine_load load = {.chunk_tokens = 512, .knot_us = {1, 2, 4, 8}};
    cluster_facts facts = {.load = &load};
    cluster_candidate c = {0};
    (void)state;
    world_text(items + 3, 1, 1);
    items[3].position = 300;
    world_request q = world_request_of(items, 4, 370);
    cluster_policy_order(&q.r, order);
    cluster_policy_see(&c, &facts, &q.r, held, order);
    assert_int_equal(c.held_tokens, 100);
    cluster_policy_see(&c, &facts, &q.r, held, NULL);
    assert_int_equal(c.held_tokens, 264);
    items[3].position = 50; /* text around modules: order by position */
    cluster_policy_order(&q.r, order);
    assert_true(order[0] == 0 && order[1] == 3 && order[2] == 1 && order[3] == 2);
    items[0].position = 7; /* fresh text before it */
    items[3].position = 300;
    cluster_policy_order(&q.r, order);
    cluster_policy_see(&c, &facts, &q.r, held, order);
    assert_int_equal(c.held_tokens, 0);
}

/* ---- choices of a router ---- */

/* Where a request of these names goes; it is served. */
static int32_t goes_to(router_world *w, const rp_named_kv *items, int32_t n_items, int32_t prompt_tokens) {
    world_request q = world_request_of(items, n_items, prompt_tokens);
    world_submit(w, &q);
    assert_int_equal(q.n_sends, 1);
    int32_t node = q.r.node;
    world_serve(w, &q);
    assert_true(q.n_ends == 1 && q.outcome == CLUSTER_SERVED);
    cluster_request_close(&q.r);
    return node;
}

/* A router that has hints of the pool sends a request to the idle node, instead of the one that holds its text. */
static void routers_know_what_can_be_fetched(void **state) {
    rp_named_kv text[16];
    (void)state;
    for (int i = 0; i < 2; i++) {
        router_world w;
        cluster_router_options o = world_options(&w);
        o.speculative_us = 0;
        o.fetch = (cluster_fetch_cost){.rtt_us = 100, .byte_us = 1e-6};
        world_begin(&w, &o, 2);
        world_text(text, 16, 1);
        world_hold(&w, 0, text, 16, RP_TIER_RAM);
        w.nodes[0].load.engine.drain_us = 9000; /* computing takes some 13 ms */
        world_report(&w, 0);
        for (int k = 0; k < 16 && i; k++) cluster_router_pooled(w.router, &text[k].name, 1);
        assert_int_equal(goes_to(&w, text, 16, 1030), i);
        world_end(&w);
    }
}

static void cost_weighs_held_names_and_queues(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_named_kv text[16], modules[3] = {world_module(1, 0, 200), world_module(2, 200, 200), world_module(3, 400, 200)};
    (void)state;
    o.speculative_us = 0;
    world_begin(&w, &o, 4);
    world_text(text, 16, 1);
    world_hold(&w, 2, text, 16, RP_TIER_RAM);
    assert_int_equal(goes_to(&w, text, 16, 1030), 2);
    w.nodes[2].load.engine.drain_us = 60000; /* more than computing 1,030 tokens, which delays nothing */
    world_report(&w, 2);
    assert_int_not_equal(goes_to(&w, text, 16, 1030), 2);
    w.nodes[2].load.engine.drain_us = 5000;
    world_report(&w, 2);
    assert_int_equal(goes_to(&w, text, 16, 1030), 2);
    w.nodes[2].load.engine.drain_us = 0; /* a disk that is slower than computing is not read */
    w.nodes[2].load.engine.read_byte_us = 1;
    world_report(&w, 2);
    world_hold(&w, 2, text, 16, RP_TIER_DISK);
    world_hold(&w, 1, text, 4, RP_TIER_RAM);
    assert_int_equal(goes_to(&w, text, 16, 1030), 1);
    w.nodes[2].load.engine.read_byte_us = 1e-4;
    world_report(&w, 2);
    assert_int_equal(goes_to(&w, text, 16, 1030), 2);
    world_hold(&w, 0, modules + 1, 2, RP_TIER_RAM); /* modules count in any order */
    world_hold(&w, 3, modules, 1, RP_TIER_RAM);
    assert_int_equal(goes_to(&w, modules, 3, 610), 0);
    world_end(&w);
}

/* Computing 1,030 tokens takes some 13 ms, waiting 60 ms: worth it if that delays eight requests, wherever they are. */
static void computing_counts_for_all_that_it_delays(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_named_kv text[16];
    (void)state;
    o.speculative_us = 0;
    world_begin(&w, &o, 4);
    world_text(text, 16, 1);
    world_hold(&w, 2, text, 16, RP_TIER_RAM);
    w.nodes[2].load.engine.drain_us = 60000;
    world_report(&w, 2);
    assert_int_not_equal(goes_to(&w, text, 16, 1030), 2);
    for (int32_t i = 0; i < 2; i++) { /* answers, and prompts that wait: eight for each node */
        w.nodes[i].load.engine.running = w.nodes[i].load.engine.decoding = i ? 4 : 16;
        w.nodes[i].load.engine.waiting = i ? 12 : 0;
        world_report(&w, i);
    }
    assert_int_equal(goes_to(&w, text, 16, 1030), 2);
    world_pass(&w, 2000000, true); /* of nodes that are silent, nothing is known */
    world_report(&w, 2);
    world_report(&w, 3);
    assert_int_not_equal(goes_to(&w, text, 16, 1030), 2);
    world_end(&w);
}

/* Requests that wait in the router are delayed, too: with many of them, a node's place is not for one that would
   compute there what another has. */
static void computing_counts_for_the_queue(void **state) {
    (void)state;
    for (int n = 1; n <= 20; n += 19) {
        router_world w;
        cluster_router_options o = world_options(&w);
        rp_named_kv text[16];
        world_request q[21];
        o.speculative_us = 0;
        o.max_sent = 0;
        world_begin(&w, &o, 2);
        world_text(text, 16, 1);
        world_hold(&w, 0, text, 16, RP_TIER_RAM);
        w.nodes[0].load.engine.drain_us = 60000;
        for (int32_t i = 0; i < 2; i++) {
            w.nodes[i].load.engine.running = w.nodes[i].load.engine.max_running = 1;
            world_report(&w, i);
        }
        q[0] = world_request_of(text, 16, 1030);
        for (int i = 1; i <= n; i++) q[i] = world_request_of(NULL, 0, 10);
        for (int i = 0; i <= n; i++) world_submit(&w, &q[i]);
        w.nodes[1].load.engine.running = 0;
        world_report(&w, 1);
        assert_int_equal(q[0].n_sends, n == 1);
        assert_int_equal(q[1].n_sends, n != 1);
        for (int i = 0; i <= n; i++) {
            if (q[i].n_sends) world_serve(&w, &q[i]);
            else cluster_router_cancelled(w.router, &q[i].r);
            cluster_request_close(&q[i].r);
        }
        world_end(&w);
    }
}

static void prefix_policies_ignore_modules_after_a_gap(void **state) {
    const cluster_policy policies[] = {CLUSTER_POLICY_PREFIX_COST, CLUSTER_POLICY_LONGEST_MATCH};
    rp_named_kv modules[3] = {world_module(1, 0, 200), world_module(2, 200, 200), world_module(3, 400, 200)};
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        router_world w;
        cluster_router_options o = world_options(&w);
        o.policy = policies[p];
        o.speculative_us = 0;
        world_begin(&w, &o, 4);
        world_hold(&w, 0, modules + 1, 2, RP_TIER_RAM);
        world_hold(&w, 3, modules, 1, RP_TIER_RAM);
        assert_int_equal(goes_to(&w, modules, 3, 610), 3);
        w.nodes[3].load.engine.drain_us = w.nodes[3].load.engine.queued_tokens =
            1000000; /* longest match does not care */
        world_report(&w, 3);
        assert_int_equal(goes_to(&w, modules, 3, 610) == 3, policies[p] == CLUSTER_POLICY_LONGEST_MATCH);
        world_end(&w);
    }
}

static void simple_policies(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    int counts[4] = {0};
    (void)state;
    o.policy = CLUSTER_POLICY_ROUND_ROBIN;
    world_begin(&w, &o, 3);
    for (int32_t i = 0; i < 7; i++) assert_int_equal(goes_to(&w, NULL, 0, 10), i % 3);
    world_end(&w);

    o = world_options(&w);
    o.policy = CLUSTER_POLICY_RANDOM;
    world_begin(&w, &o, 4);
    for (int i = 0; i < 400; i++) counts[goes_to(&w, NULL, 0, 10)]++;
    for (int i = 0; i < 4; i++) assert_true(counts[i] > 60 && counts[i] < 140); /* 100, deviation 8.7 */
    world_end(&w);

    o = world_options(&w);
    o.policy = CLUSTER_POLICY_LEAST_LOADED;
    world_begin(&w, &o, 3);
    for (int32_t i = 0; i < 3; i++) {
        w.nodes[i].load.engine.queued_tokens = i == 1 ? 10 : 500;
        world_report(&w, i);
    }
    for (int i = 0; i < 20; i++) assert_int_equal(goes_to(&w, NULL, 0, 10), 1);
    world_end(&w);
}

/* A node that leaves moves its own sessions and no others; another router chooses alike. */
static void sessions_stay(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    int32_t first[200], moved = 0, on[5] = {0};
    (void)state;
    o.policy = CLUSTER_POLICY_SESSION;
    for (int round = 0; round < 3; round++) {
        world_options(&w);
        world_begin(&w, &o, 5);
        if (round == 2) cluster_router_drain_node(w.router, 3, true);
        for (int32_t i = 0; i < 200; i++) {
            world_request q = world_request_of(NULL, 0, 10);
            q.r.session = (uint64_t)(i % 2 ? i : 0); /* without a session: the tenant */
            q.r.tenant = 1000 + (uint64_t)i;
            world_submit(&w, &q);
            if (round == 0) on[first[i] = q.r.node]++;
            if (round == 1) assert_int_equal(q.r.node, first[i]);
            if (round == 2 && first[i] != 3) assert_int_equal(q.r.node, first[i]);
            if (round == 2 && first[i] == 3) moved += q.r.node != 3;
            world_serve(&w, &q);
            cluster_request_close(&q.r);
        }
        world_end(&w);
    }
    assert_true(moved == on[3]);
    for (int i = 0; i < 5; i++) assert_true(on[i] > 20 && on[i] < 60);
}

/* Within 5 % of the least: two at random, the one with fewer tokens queued; never one beyond. */
static void near_ties_are_spread(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    int counts[4] = {0};
    const uint64_t drains[4] = {100000, 102000, 104000, 200000};
    (void)state;
    world_begin(&w, &o, 4);
    for (int32_t i = 0; i < 4; i++) {
        w.nodes[i].load.engine.drain_us = drains[i];
        w.nodes[i].load.engine.queued_tokens = 1000 - 100 * i;
        world_report(&w, i);
    }
    for (int i = 0; i < 300; i++) counts[goes_to(&w, NULL, 0, 10)]++;
    assert_int_equal(counts[3], 0);
    assert_int_equal(counts[0], 0);                 /* of two it has more queued, whichever the other one is */
    assert_true(counts[1] > 60 && counts[1] < 140); /* drawn with the first one: 1/3 */
    assert_true(counts[2] > 160);
    world_end(&w);
}

/* Of equal nodes a session gets the same one each time, and many sessions all of them; never one that costs more. */
static void a_session_stays_at_equal_cost(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    int32_t first[100], on[4] = {0};
    (void)state;
    world_begin(&w, &o, 4);
    w.nodes[3].load.engine.drain_us = 1000000;
    world_report(&w, 3);
    for (int round = 0; round < 2; round++)
        for (int32_t i = 0; i < 100; i++) {
            world_request q = world_request_of(NULL, 0, 10);
            q.r.session = 1 + (uint64_t)i;
            world_submit(&w, &q);
            if (round == 0) on[first[i] = q.r.node]++;
            else assert_int_equal(q.r.node, first[i]);
            world_serve(&w, &q);
            cluster_request_close(&q.r);
        }
    assert_int_equal(on[3], 0);
    for (int i = 0; i < 3; i++) assert_true(on[i] > 15);
    world_end(&w);
}

/* ---- load that is not reported yet ---- */

static double drain_of(router_world *w, int32_t node) {
    world_request q = world_request_of(NULL, 0, 10);
    double ms = -1;
    q.r.only_node = node;
    world_submit(w, &q);
    for (int32_t i = 0; i < q.r.n_candidates; i++)
        if (q.r.candidates[i].node == node) ms = q.r.candidates[i].drain_ms;
    cluster_router_cancelled(w->router, &q.r);
    cluster_request_close(&q.r);
    return ms;
}

static int64_t sent_tokens(const router_world *w, int32_t node) {
    cluster_node_status s;
    assert_true(cluster_router_node(w->router, node, &s));
    return s.sent_tokens;
}

static void own_requests_count_until_they_are_reported(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    (void)state;
    world_begin(&w, &o, 1);
    world_request q = world_request_of(NULL, 0, 51200); /* 100 steps of 6.12 ms */
    world_submit(&w, &q);
    assert_int_equal(sent_tokens(&w, 0), 51200);
    assert_near(drain_of(&w, 0), 612);
    w.now_us += 50000;
    world_report(&w, 0); /* made when it may not have arrived: it does not erase it */
    assert_int_equal(sent_tokens(&w, 0), 51200);
    assert_near(drain_of(&w, 0), 612);
    uint64_t made = w.now_us;
    w.now_us += 250000;
    w.nodes[0].clock_us -= 250000; /* a report that was made then, and comes late: of its age, not of its arrival */
    world_report(&w, 0);
    assert_true(made + 250000 == w.now_us);
    assert_int_equal(sent_tokens(&w, 0), 51200);
    w.nodes[0].clock_us += 250000;
    w.now_us += 1000;
    world_report(&w,
                 0); /* a timely one that does not have it: it counts as arrived; what it has left to compute remains */
    assert_int_equal(sent_tokens(&w, 0), 0);
    assert_near(drain_of(&w, 0), 612 - 301);
    w.nodes[0].load.engine.drain_us = 500000; /* the report counts more: it holds, and no sum of both */
    w.now_us += 1000;
    world_report(&w, 0);
    assert_near(drain_of(&w, 0), 500);
    w.nodes[0].load.engine.drain_us = 0;
    w.now_us += 1000;
    world_report(&w, 0);
    cluster_router_began(w.router, &q.r); /* its prefill has ended, whatever was predicted */
    assert_near(drain_of(&w, 0), 0);
    cluster_router_finished(w.router, &q.r);
    cluster_request_close(&q.r);
    world_end(&w);
}

static void own_requests_of_others_do_not_hide(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    world_begin(&w, &o, 1);
    w.nodes[0].load.engine.drain_us = 100000; /* of another router */
    w.nodes[0].load.engine.queued_tokens = 8000;
    world_report(&w, 0);
    for (int i = 0; i < 3; i++) {
        q[i] = world_request_of(NULL, 0, 512);
        world_submit(&w, &q[i]);
    }
    assert_near(drain_of(&w, 0), 100 + 3 * 6.12);
    cluster_router_cancelled(w.router, &q[1].r); /* one less */
    assert_near(drain_of(&w, 0), 100 + 2 * 6.12);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_CUT, 0);
    assert_near(drain_of(&w, 0), 100 + 6.12);
    world_serve(&w, &q[2]);
    assert_near(drain_of(&w, 0), 100);
    assert_int_equal(sent_tokens(&w, 0), 0);
    for (int i = 0; i < 3; i++) cluster_request_close(&q[i].r);
    world_end(&w);
}

/* Requests that arrive together are spread, though no report comes between them. */
static void bursts_are_spread(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[40];
    int on[8] = {0};
    (void)state;
    world_begin(&w, &o, 8);
    for (int i = 0; i < 40; i++) {
        q[i] = world_request_of(NULL, 0, 1000);
        world_submit(&w, &q[i]);
        on[q[i].r.node]++;
    }
    for (int i = 0; i < 8; i++) assert_int_equal(on[i], 5);
    for (int i = 0; i < 40; i++) {
        world_serve(&w, &q[i]);
        cluster_request_close(&q[i].r);
    }
    world_end(&w);
}

/* ---- speculative entries, identities, coefficients ---- */

static void what_was_sent_counts_as_held(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_named_kv text[16];
    (void)state;
    world_begin(&w, &o, 4);
    world_text(text, 16, 9);
    int32_t node = goes_to(&w, text, 16, 1030);
    for (int i = 0; i < 10; i++) assert_int_equal(goes_to(&w, text, 16, 1030), node);
    assert_int_equal(cluster_router_counted(w.router).names, 16);
    world_pass(&w, o.speculative_us + 1, false);
    assert_int_equal(cluster_router_counted(w.router).names, 0);
    node = goes_to(&w, text, 16, 1030); /* the node's report replaces them: they stay */
    world_hold(&w, node, text, 16, RP_TIER_RAM);
    world_pass(&w, 10 * o.speculative_us, false);
    assert_int_equal(cluster_router_counted(w.router).names, 16);
    assert_int_equal(goes_to(&w, text, 16, 1030), node);
    world_hold(&w, node, text, 16, 0);
    world_request q = world_request_of(text, 16, 1030);
    q.r.only_node = 0;
    world_submit(&w, &q);
    assert_int_equal(cluster_router_counted(w.router).names, 16);
    cluster_router_failed(w.router, &q.r, CLUSTER_NODE_CUT, 0); /* it will not hold them */
    assert_int_equal(cluster_router_counted(w.router).names, 0);
    cluster_request_close(&q.r);
    world_end(&w);
}

/* Plans are made for nodes whose KV format is known, however few they are: no format stands for one that is not. */
static void unknown_kv_formats_are_not_planned_for(void **state) {
    static const char *const unknown[] = {"f9", "", "F16", "f16 "};
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_kv_format format;
    (void)state;
    for (int32_t i = 0; i < RP_N_KV_FORMATS; i++)
        assert_true(cluster_kv_format_find(rp_kv_format_name(i), &format) && (int32_t)format == i);
    for (size_t i = 0; i < BASE_ARRAY_LEN(unknown); i++) assert_false(cluster_kv_format_find(unknown[i], &format));
    world_begin(&w, &o, 3);
    for (int32_t i = 0; i < 3; i++) {
        if (i > 0) snprintf(w.nodes[i].hello.identity, sizeof(w.nodes[i].hello.identity), "other");
        if (i > 0) snprintf(w.nodes[i].hello.kv_format, sizeof(w.nodes[i].hello.kv_format), "f9");
        world_restart(&w, i);
    }
    world_pass(&w, 300000, false);
    assert_string_equal(cluster_router_identity(w.router), "identity");
    snprintf(w.nodes[0].hello.kv_format, sizeof(w.nodes[0].hello.kv_format), "f9");
    world_restart(&w, 0);
    world_pass(&w, 300000, false);
    assert_string_equal(cluster_router_identity(w.router), "");
    world_end(&w);
}

static void other_identities_get_requests_by_load(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_named_kv text[16];
    cluster_node_status s;
    (void)state;
    o.speculative_us = 0;
    world_begin(&w, &o, 3);
    for (int32_t i = 1; i < 3; i++) {
        snprintf(w.nodes[i].hello.identity, sizeof(w.nodes[i].hello.identity), "other");
        world_restart(&w, i);
    }
    world_pass(&w, 300000, false);
    assert_string_equal(cluster_router_identity(w.router), "other");
    cluster_router_set_identity(w.router, "identity");
    assert_true(cluster_router_node(w.router, 1, &s) && s.other_identity);
    assert_true(cluster_router_node(w.router, 0, &s) && !s.other_identity);
    world_text(text, 16, 1);
    world_hold(&w, 1, text, 16, RP_TIER_RAM); /* other KV by the same names, if there were such */
    world_hold(&w, 0, text, 8, RP_TIER_RAM);
    assert_int_equal(goes_to(&w, text, 16, 1030), 0);
    w.nodes[0].load.engine.drain_us = 1000000;
    world_report(&w, 0);
    assert_int_not_equal(goes_to(&w, text, 16, 1030), 0);
    assert_string_equal(cluster_router_identity(w.router), "other");
    /* another model is no candidate, however busy the others are */
    snprintf(w.nodes[1].hello.model, sizeof(w.nodes[1].hello.model), "another model");
    world_restart(&w, 1);
    world_pass(&w, 300000, false);
    for (int i = 0; i < 20; i++) assert_int_not_equal(goes_to(&w, text, 16, 1030), 1);
    world_end(&w);
}

/* A node that has measured nothing counts with the coefficients of another: it is not the fastest of all. */
static void unmeasured_nodes_are_not_free(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    (void)state;
    world_begin(&w, &o, 2);
    memset(w.nodes[1].load.engine.knot_us, 0, sizeof(w.nodes[1].load.engine.knot_us));
    w.nodes[1].load.engine.queued_tokens = 512;
    world_report(&w, 1);
    world_request q = world_request_of(NULL, 0, 512);
    world_submit(&w, &q);
    assert_int_equal(q.r.node, 0);
    assert_near(q.r.candidates[1].drain_ms, 6.12);
    assert_near(q.r.candidates[1].compute_ms, 6.12);
    world_serve(&w, &q);
    cluster_request_close(&q.r);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_the_engines),
        cmocka_unit_test(predicted_times_are_sums_over_names),
        cmocka_unit_test(what_the_pool_has_is_fetched_if_that_is_faster),
        cmocka_unit_test(pooled_names_have_their_prefix),
        cmocka_unit_test(hints_of_the_pool_are_few),
        cmocka_unit_test(routers_know_what_can_be_fetched),
        cmocka_unit_test(prefix_policies_see_modules_as_text),
        cmocka_unit_test(cost_weighs_held_names_and_queues),
        cmocka_unit_test(computing_counts_for_all_that_it_delays),
        cmocka_unit_test(computing_counts_for_the_queue),
        cmocka_unit_test(prefix_policies_ignore_modules_after_a_gap),
        cmocka_unit_test(simple_policies),
        cmocka_unit_test(sessions_stay),
        cmocka_unit_test(near_ties_are_spread),
        cmocka_unit_test(a_session_stays_at_equal_cost),
        cmocka_unit_test(own_requests_count_until_they_are_reported),
        cmocka_unit_test(own_requests_of_others_do_not_hide),
        cmocka_unit_test(bursts_are_spread),
        cmocka_unit_test(what_was_sent_counts_as_held),
        cmocka_unit_test(unknown_kv_formats_are_not_planned_for),
        cmocka_unit_test(other_identities_get_requests_by_load),
        cmocka_unit_test(unmeasured_nodes_are_not_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
