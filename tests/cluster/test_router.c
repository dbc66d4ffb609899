/* SPDX-License-Identifier: Apache-2.0 */
/* test_router.c: each rule of a router alone: admission, queue, deadlines; failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cluster/request_queue.h"
#include "support/router_check.h"

#define SECOND 1000000

/* ---- goals ---- */

static void ttft_goal_refuses_what_no_node_meets(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    o.ttft_goal_ms = 100;
    world_begin(&w, &o, 2);
    w.nodes[0].load.engine.drain_us = 250000;
    w.nodes[1].load.engine.drain_us = 99000;
    world_report(&w, 0);
    world_report(&w, 1);
    q[0] = world_plain(512); /* 6.12 ms */
    world_submit(&w, &q[0]);
    assert_ended(&q[0], CLUSTER_REFUSED_TTFT);
    assert_int_equal(q[0].retry_ms, 6); /* 105.12 - 100 */
    assert_int_equal(q[0].n_sends, 0);
    w.nodes[1].load.engine.drain_us = 90000;
    world_report(&w, 1);
    q[1] = world_plain(512);
    world_submit(&w, &q[1]);
    assert_true(q[1].n_sends == 1 && q[1].r.node == 1);
    world_serve(&w, &q[1]);
    close_all(q, 2);
    world_end(&w);

    o.admission = CLUSTER_ADMISSION_OFF; /* never */
    world_options(&w);
    world_begin(&w, &o, 1);
    w.nodes[0].load.engine.drain_us = 10000000;
    world_report(&w, 0);
    q[2] = world_plain(512);
    world_submit(&w, &q[2]);
    assert_int_equal(q[2].n_sends, 1);
    world_serve(&w, &q[2]);
    close_all(q + 2, 1);
    world_end(&w);
}

/* Nodes whose decode step with one more row misses the goal are no candidates. A step takes 1 ms and 10 us a row, and 1
   us a 10 slots here. */
static void itl_goal(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    o.admission = CLUSTER_ADMISSION_AT_ARRIVAL;
    o.itl_goal_ms = 5;
    world_begin(&w, &o, 2);
    for (int32_t i = 0; i < 2; i++) {
        rp_engine_load *load = &w.nodes[i].load.engine;
        load->slot_us = 0.1;
        load->running = load->decoding = 2;
        load->context_tokens = i ? 20000 : 40000;
        load->drain_us = i ? 50000 : 0;
        world_report(&w, i);
    }
    q[0] = world_plain(512);
    world_submit(&w, &q[0]);
    assert_int_equal(q[0].r.node, 1);
    assert_string_equal(q[0].r.candidates[0].excluded, "itl");
    world_serve(&w, &q[0]);
    w.nodes[1].load.engine.context_tokens = 40000;
    world_report(&w, 1);
    q[1] = world_plain(512);
    world_submit(&w, &q[1]);
    assert_ended(&q[1], CLUSTER_REFUSED_ITL);
    assert_true(q[1].retry_ms > 0);
    close_all(q, 2);
    world_end(&w);

    o.admission =
        CLUSTER_ADMISSION_OFF; /* of those that cost the same, nodes that meet it are preferred; none is excluded */
    world_options(&w);
    world_begin(&w, &o, 2);
    for (int32_t i = 0; i < 6; i++) {
        for (int32_t node = 0; node < 2; node++) {
            rp_engine_load *load = &w.nodes[node].load.engine;
            load->slot_us = 0.1;
            load->running = load->decoding = 2;
            load->context_tokens = node && i < 5 ? 20000 : 40000; /* then none meets it */
            load->drain_us = node && i == 4 ? 50000 : 0;
            load->queued_tokens = 100 * node;
            world_report(&w, node);
        }
        q[2] = world_plain(512);
        world_submit(&w, &q[2]);
        assert_int_equal(q[2].n_sends, 1);
        assert_int_equal(q[2].r.node, i < 4);
        assert_null(q[2].r.candidates[!q[2].r.node].excluded);
        world_serve(&w, &q[2]);
        close_all(q + 2, 1);
    }
    world_end(&w);
}

/* One node with 3 answers that began together; decoding takes 2 s (learned from one request). A step with 3 answers
 * meets the goal, with 4 it does not. */
static void rule_world(router_world *w, cluster_admission rule, world_request *q) {
    cluster_router_options o = world_options(w);
    o.admission = rule;
    o.itl_goal_ms = 1.5;
    world_begin(w, &o, 1);
    for (int k = 0; k < RP_COST_KNOTS; k++)
        w->nodes[0].load.engine.knot_us[k] = 1000 + 150 * (double)(1 << k); /* 4 rows: 1.6 ms */
    w->nodes[0].load.engine.max_running = 100;
    world_report(w, 0);
    q[0] = world_plain(10);
    world_submit(w, &q[0]);
    cluster_router_began(w->router, &q[0].r);
    world_pass(w, 2 * SECOND, false);
    cluster_router_finished(w->router, &q[0].r);
    for (int i = 1; i <= 3; i++) {
        q[i] = world_plain(10);
        world_submit(w, &q[i]);
        assert_int_equal(q[i].n_sends, 1);
    }
    for (int i = 1; i <= 3; i++) cluster_router_began(w->router, &q[i].r);
    w->nodes[0].load.engine.running = w->nodes[0].load.engine.decoding = 3;
    w->nodes[0].load.engine.context_tokens = 30;
    world_pass(w, SECOND, false);
}

static void rejection_rules_look_at_different_times(void **state) {
    router_world w;
    world_request q[6];
    (void)state;
    /* At arrival three answers decode: a fourth one is refused. */
    rule_world(&w, CLUSTER_ADMISSION_AT_ARRIVAL, q);
    q[4] = world_plain(10);
    world_submit(&w, &q[4]);
    assert_ended(&q[4], CLUSTER_REFUSED_ITL);
    assert_int_equal(q[4].retry_ms, 667); /* a third of 2 s */
    for (int i = 1; i <= 3; i++) cluster_router_finished(w.router, &q[i].r);
    close_all(q, 5);
    world_end(&w);

    /* Predicted: a short prefill ends while they decode, a long one after they have ended. */
    rule_world(&w, CLUSTER_ADMISSION_PREDICTED, q);
    q[4] = world_plain(10);
    world_submit(&w, &q[4]);
    assert_ended(&q[4], CLUSTER_REFUSED_ITL);
    q[5] = world_plain(10000); /* 20 steps of 77.8 ms, more than the second that is left */
    world_submit(&w, &q[5]);
    assert_int_equal(q[5].n_sends, 1);
    world_serve(&w, &q[5]);
    for (int i = 1; i <= 3; i++) cluster_router_finished(w.router, &q[i].r);
    close_all(q, 6);
    world_end(&w);

    /* After prefill: sent, and refused at its first byte if they still decode then. */
    rule_world(&w, CLUSTER_ADMISSION_AFTER_PREFILL, q);
    q[4] = world_plain(10);
    q[5] = world_plain(10);
    world_submit(&w, &q[4]);
    world_submit(&w, &q[5]);
    assert_true(q[4].n_sends == 1 && q[5].n_sends == 1);
    cluster_router_began(w.router, &q[4].r);
    assert_ended(&q[4], CLUSTER_REFUSED_ITL);
    assert_int_equal(q[4].n_cancels, 1);
    for (int i = 1; i <= 3; i++) cluster_router_finished(w.router, &q[i].r);
    w.nodes[0].load.engine.running = w.nodes[0].load.engine.decoding = 0;
    w.nodes[0].load.engine.context_tokens = 0;
    world_report(&w, 0);
    world_serve(&w, &q[5]);
    assert_ended(&q[5], CLUSTER_SERVED);
    close_all(q, 6);
    world_end(&w);
}

/* ---- the queue ---- */

/* One node that is full: 4 running and max_sent more. Returns their number. */
static int fill_node(router_world *w, world_request *q) {
    int n = 0;
    for (; n < 8; n++) {
        q[n] = world_plain(10);
        world_submit(w, &q[n]);
        assert_int_equal(q[n].n_sends, 1);
    }
    return n;
}

static void requests_wait_when_nodes_are_full(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[12];
    (void)state;
    o.max_queue = 3;
    world_begin(&w, &o, 1);
    int n = fill_node(&w, q);
    for (int i = n; i < n + 4; i++) {
        q[i] = world_plain(10);
        world_submit(&w, &q[i]);
        assert_int_equal(q[i].n_sends, 0);
    }
    assert_ended(&q[n + 3], CLUSTER_REFUSED_QUEUE);
    assert_true(q[n + 3].retry_ms > 0);
    assert_int_equal(cluster_router_counted(w.router).queued, 3);
    world_serve(&w, &q[0]);
    assert_int_equal(q[n].n_sends, 1); /* in the order of arrival */
    assert_int_equal(q[n + 1].n_sends, 0);
    cluster_router_cancelled(w.router, &q[n + 1].r);
    assert_ended(&q[n + 1], CLUSTER_CANCELLED);
    assert_int_equal(q[n + 1].n_cancels, 0);
    for (int i = 1; i <= n; i++) world_serve(&w, &q[i]);
    world_serve(&w, &q[n + 2]);
    close_all(q, n + 4);
    world_end(&w);
}

/* Requests that only a full node can have keep no one from the others: any number of them, of one tenant or of many,
 * before or after. They have that node's places in their order. */
static void pinned_requests_block_no_one(void **state) {
    enum { PINNED = 300 };
    (void)state;
    for (int tenants = 1; tenants <= PINNED; tenants *= PINNED) {
        router_world w;
        cluster_router_options o = world_options(&w);
        world_request *q = calloc(PINNED + 16, sizeof(*q)), *other = q + PINNED + 8;
        world_begin(&w, &o, 2);
        for (int i = 0; i < PINNED + 8; i++) {
            q[i] = world_plain(10);
            q[i].r.only_node = 0;
            q[i].r.priority = 7;
            q[i].r.tenant = (uint64_t)(i % tenants);
            world_submit(&w, &q[i]);
            assert_int_equal(q[i].n_sends, i < 8);
        }
        for (int i = 0; i < 8; i++) {
            other[i] = world_plain(10);
            world_submit(&w, &other[i]);
            assert_true(other[i].n_sends == 1 && other[i].r.node == 1);
        }
        for (int i = 0; i < PINNED + 8; i++) {
            assert_int_equal(q[i].n_sends, 1);
            if (i + 8 < PINNED + 8) assert_int_equal(q[i + 8].n_sends, 0);
            world_serve(&w, &q[i]);
        }
        for (int i = 0; i < 8; i++) world_serve(&w, &other[i]);
        close_all(q, PINNED + 16);
        free(q);
        world_end(&w);
    }
}

/* Nor do those that a node with room has refused. */
static void refused_requests_block_no_one(void **state) {
    enum { REFUSED = 100 };
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[REFUSED + 9];
    (void)state;
    world_begin(&w, &o, 2);
    for (int i = 0; i < 8; i++) { /* node 0 is full */
        q[i] = world_plain(10);
        q[i].r.only_node = 0;
        world_submit(&w, &q[i]);
    }
    for (int i = 8; i < REFUSED + 8; i++) {
        q[i] = world_plain(10);
        world_submit(&w, &q[i]);
        assert_int_equal(q[i].r.node, 1);
        cluster_router_failed(w.router, &q[i].r, CLUSTER_NODE_LIMITS, 0);
        assert_int_equal(q[i].n_ends, 0);
    }
    q[REFUSED + 8] = world_plain(10);
    world_submit(&w, &q[REFUSED + 8]);
    assert_int_equal(q[REFUSED + 8].r.node, 1);
    for (int i = 0; i < REFUSED + 9; i++) world_serve(&w, &q[i]);
    close_all(q, REFUSED + 9);
    world_end(&w);
}

static void other_routers_fill_nodes_too(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q = world_plain(10);
    (void)state;
    world_begin(&w, &o, 1);
    w.nodes[0].load.engine.running = 4;
    w.nodes[0].load.engine.waiting = 4;
    world_report(&w, 0);
    world_submit(&w, &q);
    assert_int_equal(q.n_sends, 0);
    w.nodes[0].load.engine.waiting = 3;
    world_report(&w, 0);
    assert_int_equal(q.n_sends, 1);
    world_serve(&w, &q);
    close_all(&q, 1);
    world_end(&w);
}

static void priorities_and_a_full_queue(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[13];
    (void)state;
    o.max_queue = 3;
    world_begin(&w, &o, 1);
    int n = fill_node(&w, q);
    for (int i = n; i < n + 5; i++) {
        q[i] = world_plain(10);
        q[i].r.priority = i == n + 3 ? 5 : i == n + 4 ? -1
                                                      : 0;
        world_submit(&w, &q[i]);
    }
    assert_ended(&q[n + 2], CLUSTER_REFUSED_QUEUE); /* the last one of the lowest priority makes room */
    assert_ended(&q[n + 4], CLUSTER_REFUSED_QUEUE); /* lower than all */
    world_serve(&w, &q[0]);
    assert_true(q[n + 3].n_sends == 1 && q[n].n_sends == 0);
    for (int i = 1; i < n; i++) world_serve(&w, &q[i]);
    world_serve(&w, &q[n]);
    world_serve(&w, &q[n + 1]);
    world_serve(&w, &q[n + 3]);
    close_all(q, n + 5);
    world_end(&w);
}

/* Tenants share predicted time, not requests: one with requests of ten times the cost has a tenth of the number. */
static void tenants_share_time(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    enum { N = 400 };
    world_request q[8], *a = calloc(N, sizeof(*a)), *b = calloc(N, sizeof(*b));
    int sent_a = 0, sent_b = 0;
    (void)state;
    world_begin(&w, &o, 1);
    int n = fill_node(&w, q);
    for (int i = 0; i < N; i++) { /* the greedy tenant was first */
        a[i] = world_plain(20480);
        a[i].r.max_tokens = 0;
        a[i].r.tenant = 5;
        world_submit(&w, &a[i]);
    }
    for (int i = 0; i < N; i++) {
        b[i] = world_plain(2048);
        b[i].r.max_tokens = 0;
        b[i].r.tenant = 6;
        world_submit(&w, &b[i]);
    }
    for (int i = 0; i < n; i++) world_serve(&w, &q[i]);
    for (bool any = true; any && sent_b < N;) { /* as long as both wait */
        any = false;
        sent_a = sent_b = 0;
        for (int i = 0; i < N; i++) {
            sent_a += a[i].n_sends;
            sent_b += b[i].n_sends;
        }
        for (int i = 0; i < N && !any; i++) {
            world_request *x = a[i].n_sends && !a[i].n_ends ? &a[i] : b[i].n_sends && !b[i].n_ends ? &b[i]
                                                                                                   : NULL;
            if (!x || sent_b >= N) continue;
            world_serve(&w, x);
            any = true;
        }
    }
    assert_true(sent_b == N && sent_a >= N / 10 - 5 && sent_a <= N / 10 + 5);
    for (int i = 0; i < N; i++) {
        if (!a[i].n_ends) cluster_router_cancelled(w.router, &a[i].r);
        if (!b[i].n_ends) cluster_router_cancelled(w.router, &b[i].r);
    }
    close_all(q, n);
    close_all(a, N);
    close_all(b, N);
    free(a);
    free(b);
    world_end(&w);
}

static void deadlines(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[14];
    (void)state;
    world_begin(&w, &o, 1);
    q[0] = world_plain(512);
    q[0].r.deadline_us = w.now_us + 6000; /* it takes 6.12 ms */
    world_submit(&w, &q[0]);
    assert_ended(&q[0], CLUSTER_LATE);
    assert_int_equal(q[0].n_sends, 0);
    q[1] = world_plain(512);
    q[1].r.deadline_us = w.now_us + 7000; /* sent: the node ends it then, and has still time to say so */
    world_submit(&w, &q[1]);
    assert_int_equal(q[1].n_sends, 1);
    world_pass(&w, 7000 + CLUSTER_DEAD_US - 1, false);
    assert_int_equal(q[1].n_ends, 0);
    world_pass(&w, 1, false);
    assert_ended(&q[1], CLUSTER_LATE);
    assert_int_equal(q[1].n_cancels, 1);
    q[2] = world_plain(512);
    q[2].r.deadline_us = w.now_us + 7000; /* its first byte came: an answer has no deadline */
    world_submit(&w, &q[2]);
    cluster_router_began(w.router, &q[2].r);
    world_pass(&w, 100000, false);
    cluster_router_finished(w.router, &q[2].r);
    assert_ended(&q[2], CLUSTER_SERVED);
    int n = fill_node(&w, q + 3) + 3;
    for (int i = n; i < n + 3; i++) { /* in the queue */
        q[i] = world_plain(10);
        q[i].r.deadline_us = w.now_us + SECOND * (uint64_t)(n + 3 - i);
        world_submit(&w, &q[i]);
    }
    world_pass(&w, SECOND, false);
    assert_ended(&q[n + 2], CLUSTER_LATE);
    assert_int_equal(q[n + 1].n_ends, 0);
    world_serve(&w, &q[3]);
    assert_int_equal(q[n].n_sends, 1);
    world_pass(&w, 2 * SECOND, false);
    assert_ended(&q[n + 1], CLUSTER_LATE);
    assert_int_equal(q[n].n_ends, 0); /* a node has it */
    world_pass(&w, CLUSTER_DEAD_US, false);
    assert_ended(&q[n], CLUSTER_LATE);
    for (int i = 4; i < n; i++) world_serve(&w, &q[i]);
    close_all(q, n + 3);
    world_end(&w);
}

/* What a node has of an answer at the deadline is the client's: a reply that is no stream comes as a whole, just after
   it. */
static void nodes_end_what_they_have(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[2];
    (void)state;
    world_begin(&w, &o, 1);
    for (int i = 0; i < 2; i++) {
        q[i] = world_plain(10);
        q[i].r.deadline_us = w.now_us + SECOND;
        world_submit(&w, &q[i]);
    }
    world_pass(&w, SECOND + 10000, false);
    cluster_router_finished(w.router, &q[0].r);
    assert_ended(&q[0], CLUSTER_SERVED);
    cluster_router_failed(w.router, &q[1].r, CLUSTER_NODE_REFUSES, 0); /* 504: no token by then */
    assert_ended(&q[1], CLUSTER_ANSWERED);
    close_all(q, 2);
    world_end(&w);
}

/* A request that failed at a node is the router's again, with its deadline as it was. */
static void retries_end_at_the_deadline(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[12];
    (void)state;
    world_begin(&w, &o, 2);
    q[0] = world_plain(10);
    q[0].r.deadline_us = w.now_us + SECOND;
    world_submit(&w, &q[0]);
    int n = 1;
    for (; n < 9; n++) { /* the other node is full */
        q[n] = world_plain(10);
        q[n].r.only_node = 1 - q[0].r.node;
        world_submit(&w, &q[n]);
    }
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_CUT, 0);
    assert_true(q[0].n_sends == 1 && q[0].n_ends == 0);
    world_pass(&w, SECOND - 1, false);
    assert_int_equal(q[0].n_ends, 0);
    world_pass(&w, 1, false);
    assert_ended(&q[0], CLUSTER_LATE);
    for (int i = 1; i < n; i++) world_serve(&w, &q[i]);
    q[n] = world_plain(10); /* it fails after its deadline: no other node begins it */
    q[n].r.deadline_us = w.now_us + SECOND;
    world_submit(&w, &q[n]);
    world_pass(&w, SECOND, false);
    assert_int_equal(q[n].n_ends, 0);
    cluster_router_failed(w.router, &q[n].r, CLUSTER_NODE_CUT, 0);
    assert_ended(&q[n], CLUSTER_LATE);
    assert_int_equal(q[n].n_sends, 1);
    close_all(q, n + 1);
    world_end(&w);
}

/* A request that waited until it has missed the TTFT goal does not wait any longer. */
static void waiting_ends_with_the_goal(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[9];
    (void)state;
    o.ttft_goal_ms = 500;
    world_begin(&w, &o, 1);
    int n = fill_node(&w, q);
    q[n] = world_plain(10);
    world_submit(&w, &q[n]);
    world_pass(&w, 499000, false);
    assert_int_equal(q[n].n_ends, 0);
    world_pass(&w, 1000, false);
    assert_ended(&q[n], CLUSTER_REFUSED_TTFT);
    assert_int_equal(q[0].n_ends, 0); /* what was sent goes on */
    for (int i = 0; i < n; i++) world_serve(&w, &q[i]);
    close_all(q, n + 1);
    world_end(&w);
}

/* ---- allocations ---- */

static void nothing_is_allocated_for_a_request_but_its_candidates(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_named_kv text[16];
    (void)state;
    world_begin(&w, &o, 8);
    world_text(text, 16, 1);
    for (int i = 0; i < 50; i++) {
        world_request q = world_request_of(text, 16, 1030);
        q.r.deadline_us = w.now_us + SECOND;
        (void)base_alloc_count();
        world_submit(&w, &q);
        world_serve(&w, &q);
        if (i > 0) assert_int_equal(base_alloc_count(), 1);
        close_all(&q, 1);
    }
    world_end(&w);
}

/* Without memory a request is refused, once; the router goes on. */
static void failing_allocations(void **state) {
    rp_named_kv text[16];
    (void)state;
    world_text(text, 16, 1);
    for (uint64_t k = 1; k < 40; k++) {
        router_world w;
        cluster_router_options o = world_options(&w);
        world_request q[11];
        world_begin(&w, &o, 1);
        base_alloc_fail_at(k, 0);
        for (int i = 0; i < 10; i++) {
            q[i] = world_request_of(text, 16, 1030);
            q[i].r.deadline_us = w.now_us + SECOND;
            world_submit(&w, &q[i]);
        }
        base_alloc_fail_at(0, 0);
        for (int i = 0; i < 10; i++) {
            if (q[i].n_ends) assert_ended(&q[i], CLUSTER_REFUSED_QUEUE);
            else world_serve(&w, &q[i]);
        }
        q[10] = world_request_of(text, 16, 1030);
        world_submit(&w, &q[10]);
        world_serve(&w, &q[10]);
        assert_ended(&q[10], CLUSTER_SERVED);
        close_all(q, 11);
        world_end(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ttft_goal_refuses_what_no_node_meets),
        cmocka_unit_test(itl_goal),
        cmocka_unit_test(rejection_rules_look_at_different_times),
        cmocka_unit_test(requests_wait_when_nodes_are_full),
        cmocka_unit_test(pinned_requests_block_no_one),
        cmocka_unit_test(refused_requests_block_no_one),
        cmocka_unit_test(other_routers_fill_nodes_too),
        cmocka_unit_test(priorities_and_a_full_queue),
        cmocka_unit_test(tenants_share_time),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(nodes_end_what_they_have),
        cmocka_unit_test(retries_end_at_the_deadline),
        cmocka_unit_test(waiting_ends_with_the_goal),
        cmocka_unit_test(nothing_is_allocated_for_a_request_but_its_candidates),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
