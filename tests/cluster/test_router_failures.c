/* SPDX-License-Identifier: Apache-2.0 */
/* test_router_failures.c: each rule of a router alone, for what nodes do to requests: retries and their budget,
   continuation, health, drain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/router_check.h"

#define SECOND 1000000

/* ---- failures ---- */

static void one_retry_elsewhere(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    world_begin(&w, &o, 3);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    int32_t first = q[0].r.node;
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_CUT, 0);
    assert_true(q[0].n_sends == 2 && q[0].r.node != first);
    assert_int_equal(cluster_router_counted(w.router).retries, 1);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_ERROR, 0);
    assert_ended(&q[0], CLUSTER_FAILED);
    q[1] = world_plain(10); /* the request's own fault */
    world_submit(&w, &q[1]);
    cluster_router_failed(w.router, &q[1].r, CLUSTER_NODE_REFUSES, 0);
    assert_ended(&q[1], CLUSTER_ANSWERED);
    q[2] = world_plain(10); /* a stored response is nowhere else */
    q[2].r.only_node = 1;
    world_submit(&w, &q[2]);
    assert_int_equal(q[2].r.node, 1);
    cluster_router_failed(w.router, &q[2].r, CLUSTER_NODE_CUT, 0);
    assert_ended(&q[2], CLUSTER_FAILED);
    close_all(q, 3);
    world_end(&w);
}

/* No retry: nothing was done. Each node is tried once, and left alone for a while. */
static void unreachable_nodes_are_no_retry(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    unsigned seen = 0;
    (void)state;
    o.retry_share = 0;
    world_begin(&w, &o, 4);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    for (int i = 1; i <= 4; i++) {
        assert_int_equal(q[0].n_sends, i);
        seen |= 1u << q[0].r.node;
        cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_UNREACHABLE, 0);
    }
    assert_int_equal(seen, 15);
    assert_ended(&q[0], CLUSTER_NO_NODE);
    assert_int_equal(cluster_router_counted(w.router).retries, 0);
    q[1] = world_plain(10);
    world_submit(&w, &q[1]);
    assert_int_equal(q[1].n_sends, 0);
    world_pass(&w, 600000, false);
    assert_int_equal(q[1].n_sends, 1);
    world_serve(&w, &q[1]);
    close_all(q, 2);
    world_end(&w);
}

static void busy_nodes_are_left_alone(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    world_begin(&w, &o, 2);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    int32_t first = q[0].r.node;
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_BUSY, 5000);
    assert_int_equal(q[0].r.node, 1 - first);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_BUSY, 9000);
    assert_ended(&q[0], CLUSTER_REFUSED_BUSY);
    assert_int_equal(q[0].retry_ms, 5001);
    assert_int_equal(cluster_router_counted(w.router).retries, 0);
    q[1] = world_plain(10);
    world_submit(&w, &q[1]); /* 5 s are too long to wait for */
    assert_ended(&q[1], CLUSTER_REFUSED_BUSY);
    world_pass(&w, 4 * SECOND, false);
    q[2] = world_plain(10);
    world_submit(&w, &q[2]);
    assert_int_equal(q[2].n_sends, 0);
    world_pass(&w, SECOND, false);
    assert_true(q[2].n_sends == 1 && q[2].r.node == first);
    world_serve(&w, &q[2]);
    close_all(q, 3);
    world_end(&w);
}

/* A tenant that has reached its own limit at a node takes the node from no one; its request goes elsewhere, without a
 * retry, and ends with the node's reply if no node takes it. */
static void limits_are_those_of_one_request(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[4];
    (void)state;
    o.retry_share = 0;
    world_begin(&w, &o, 2);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    int32_t first = q[0].r.node;
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_LIMITS, 5000);
    assert_true(q[0].n_sends == 2 && q[0].r.node == 1 - first);
    q[1] = world_plain(10); /* of another tenant: the node is there for it */
    q[1].r.tenant = 2;
    q[1].r.only_node = first;
    world_submit(&w, &q[1]);
    assert_int_equal(q[1].n_sends, 1);
    world_serve(&w, &q[1]);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_LIMITS, 5000);
    assert_ended(&q[0], CLUSTER_ANSWERED);
    q[2] = world_plain(10); /* the other node has failed: there is a reply all the same */
    world_submit(&w, &q[2]);
    cluster_router_failed(w.router, &q[2].r, CLUSTER_NODE_LIMITS, 0);
    cluster_router_failed(w.router, &q[2].r, CLUSTER_NODE_UNREACHABLE, 0);
    assert_ended(&q[2], CLUSTER_ANSWERED);
    world_pass(&w, SECOND, false);
    q[3] = world_plain(10); /* a stream that has begun has no place for it */
    q[3].r.continues = true;
    world_submit(&w, &q[3]);
    cluster_router_began(w.router, &q[3].r);
    cluster_router_failed(w.router, &q[3].r, CLUSTER_NODE_CUT, 0);
    cluster_router_failed(w.router, &q[3].r, CLUSTER_NODE_LIMITS, 0);
    assert_ended(&q[3], CLUSTER_FAILED);
    assert_int_equal(cluster_router_counted(w.router).retries, 0);
    close_all(q, 4);
    world_end(&w);
}

/* A node that drains before its load says so is no node any more, for those that were sent and for others; they do not
   end as if it were busy. */
static void a_node_says_that_it_drains(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    world_begin(&w, &o, 2);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    const int32_t first = q[0].r.node;
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_DRAINS, 5000);
    assert_true(q[0].n_sends == 2 && q[0].r.node == 1 - first);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_DRAINS, 5000);
    assert_ended(&q[0], CLUSTER_NO_NODE);
    q[1] = world_plain(10);
    world_submit(&w, &q[1]);
    assert_ended(&q[1], CLUSTER_NO_NODE);
    world_pass(&w, SECOND, false); /* their loads say that they do not */
    q[2] = world_plain(10);
    world_submit(&w, &q[2]);
    assert_int_equal(q[2].n_sends, 1);
    world_serve(&w, &q[2]);
    close_all(q, 3);
    world_end(&w);
}

/* A tenant over its limit does not go around the whole cluster with each request. */
static void three_limits_are_enough(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q = world_plain(10);
    (void)state;
    world_begin(&w, &o, 6);
    world_submit(&w, &q);
    for (int i = 1; i <= 3; i++) {
        assert_true(q.n_sends == i && q.n_ends == 0);
        cluster_router_failed(w.router, &q.r, CLUSTER_NODE_LIMITS, 0);
    }
    assert_ended(&q, CLUSTER_ANSWERED);
    close_all(&q, 1);
    world_end(&w);
}

static void the_budget_of_retries_ends(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[60];
    int served = 0;
    (void)state;
    o.retry_share = 0.25;
    world_begin(&w, &o, 3);
    for (int i = 0; i < 60; i++) {
        q[i] = world_plain(10);
        world_submit(&w, &q[i]);
        cluster_router_failed(w.router, &q[i].r, CLUSTER_NODE_CUT, 0);
        if (q[i].n_ends) assert_ended(&q[i], CLUSTER_FAILED);
        else world_serve(&w, &q[i]), served++;
    }
    assert_int_equal(served, 25); /* 10 at any time, and a quarter of 60 */
    assert_int_equal(cluster_router_counted(w.router).retries, 25);
    world_pass(&w, 10 * SECOND, false);
    close_all(q, 60);
    world_end(&w);
}

/* ---- continuation ---- */

static void answers_are_continued(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[4];
    (void)state;
    world_begin(&w, &o, 3);
    q[0] = world_plain(10);
    q[0].r.continues = true;
    world_submit(&w, &q[0]);
    int32_t first = q[0].r.node;
    cluster_router_began(w.router, &q[0].r);
    cluster_router_progress(w.router, &q[0].r, 5);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_CUT, 0);
    assert_true(q[0].n_sends == 2 && q[0].began_at_send && q[0].r.node != first && q[0].r.answer_tokens == 5);
    assert_int_equal(cluster_router_counted(w.router).continuations, 1);
    cluster_router_progress(w.router, &q[0].r, 6); /* its first byte there */
    cluster_router_finished(w.router, &q[0].r);
    assert_ended(&q[0], CLUSTER_SERVED);
    q[1] = world_plain(10); /* twice: no more */
    q[1].r.continues = true;
    world_submit(&w, &q[1]);
    cluster_router_began(w.router, &q[1].r);
    cluster_router_failed(w.router, &q[1].r, CLUSTER_NODE_CUT, 0);
    cluster_router_began(w.router, &q[1].r);
    cluster_router_failed(w.router, &q[1].r, CLUSTER_NODE_CUT, 0);
    assert_ended(&q[1], CLUSTER_FAILED);
    q[2] = world_plain(10); /* it may not */
    world_submit(&w, &q[2]);
    cluster_router_began(w.router, &q[2].r);
    cluster_router_failed(w.router, &q[2].r, CLUSTER_NODE_CUT, 0);
    assert_ended(&q[2], CLUSTER_FAILED);
    assert_int_equal(q[2].n_sends, 1);
    close_all(q, 3);
    world_end(&w);
}

/* Whatever a node reports of an answer that has begun, here a status that says that nothing was done: it is not sent
   again. */
static void answers_that_began_are_not_sent_again(void **state) {
    static const cluster_failure failures[] = {CLUSTER_NODE_UNREACHABLE, CLUSTER_NODE_CUT, CLUSTER_NODE_BUSY,
                                               CLUSTER_NODE_DRAINS, CLUSTER_NODE_LIMITS, CLUSTER_NODE_ERROR,
                                               CLUSTER_NODE_REFUSES};
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[BASE_ARRAY_LEN(failures)];
    (void)state;
    world_begin(&w, &o, (int32_t)BASE_ARRAY_LEN(failures) + 2);
    for (size_t i = 0; i < BASE_ARRAY_LEN(failures); i++) {
        q[i] = world_plain(10);
        world_submit(&w, &q[i]);
        cluster_router_began(w.router, &q[i].r);
        cluster_router_failed(w.router, &q[i].r, failures[i], 0);
        assert_ended(&q[i], CLUSTER_FAILED);
        assert_int_equal(q[i].n_sends, 1);
    }
    close_all(q, (int)BASE_ARRAY_LEN(failures));
    world_end(&w);
}

/* Only where the KV is that of the beginning. */
static void continuations_need_the_same_identity(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[2];
    (void)state;
    world_begin(&w, &o, 3);
    for (int32_t i = 1; i < 3; i++) {
        snprintf(w.nodes[i].hello.identity, sizeof(w.nodes[i].hello.identity), "other");
        world_restart(&w, i);
    }
    world_pass(&w, 300000, false);
    for (int i = 0; i < 2; i++) {
        q[i] = world_plain(10);
        q[i].r.continues = true;
        world_submit(&w, &q[i]);
    }
    while (q[0].r.node == 0) { /* on another node than 0 */
        world_serve(&w, &q[0]);
        cluster_request_close(&q[0].r);
        q[0] = world_plain(10);
        q[0].r.continues = true;
        world_submit(&w, &q[0]);
    }
    int32_t first = q[0].r.node;
    cluster_router_began(w.router, &q[0].r);
    cluster_router_failed(w.router, &q[0].r, CLUSTER_NODE_CUT, 0);
    assert_int_equal(q[0].r.node, 3 - first);
    cluster_router_finished(w.router, &q[0].r);
    if (q[1].r.node != 0) {
        world_serve(&w, &q[1]);
        cluster_request_close(&q[1].r);
        q[1] = world_plain(10);
        q[1].r.continues = true;
        q[1].r.only_node = 0;
        world_submit(&w, &q[1]);
        q[1].r.only_node = -1;
    }
    cluster_router_began(w.router, &q[1].r);
    cluster_router_failed(w.router, &q[1].r, CLUSTER_NODE_CUT, 0);
    assert_ended(&q[1], CLUSTER_FAILED); /* node 0 was the only one */
    close_all(q, 2);
    world_end(&w);
}

/* ---- health ---- */

static void silent_nodes_lose_their_requests(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    world_begin(&w, &o, 2);
    for (int i = 0; i < 2; i++) {
        q[i] = world_plain(10);
        q[i].r.only_node = 0;
        q[i].r.continues = true;
        world_submit(&w, &q[i]);
        q[i].r.only_node = -1;
    }
    cluster_router_began(w.router, &q[1].r);
    for (int i = 0; i < 15; i++) { /* node 1 lives */
        world_pass(&w, 100000, true);
        world_report(&w, 1);
    }
    q[2] = world_plain(10);
    world_submit(&w, &q[2]);
    assert_int_equal(q[2].r.node, 1);
    assert_string_equal(q[2].r.candidates[0].excluded, "suspect");
    for (int i = 0; i < 15; i++) {
        assert_true(q[0].r.node == 0 && q[1].r.node == 0);
        world_pass(&w, 100000, true);
        world_report(&w, 1);
    }
    assert_true(q[0].r.node == 1 && q[0].n_cancels == 1 && !q[0].began_at_send);
    assert_true(q[1].r.node == 1 && q[1].n_cancels == 1 && q[1].began_at_send);
    for (int i = 0; i < 3; i++) {
        if (!q[i].r.began) cluster_router_began(w.router, &q[i].r);
        cluster_router_finished(w.router, &q[i].r);
    }
    close_all(q, 3);
    world_end(&w);
}

/* A stream that is silent for 3 s is opened anew, again and again. */
static void silent_streams_are_opened_anew(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    (void)state;
    world_begin(&w, &o, 2);
    for (int i = 1; i < 4; i++) {
        uint64_t opened = w.nodes[0].n_opened;
        for (int k = 0; k < 30; k++) {
            assert_int_equal(w.nodes[0].n_opened, opened);
            world_pass(&w, 100000, true);
            world_report(&w, 1);
        }
        assert_false(w.nodes[0].is_open);
        world_pass(&w, 99999, true);
        world_report(&w, 1);
        for (int k = 0; k < 20 && !w.nodes[0].is_open; k++) { /* delays double */
            world_pass(&w, 100000, true);
            world_report(&w, 1);
        }
        assert_int_equal(w.nodes[0].n_opened, opened + 1);
    }
    assert_int_equal(w.nodes[1].n_opened, 1);
    world_report(&w, 0);
    cluster_node_status s;
    assert_true(cluster_router_node(w.router, 0, &s) && s.health == CLUSTER_WELL);
    world_end(&w);
}

/* A request waits for a suspect node, and ends when it is dead; a stream that has ended alone moves nothing. */
static void without_nodes(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[3];
    (void)state;
    world_begin(&w, &o, 1);
    world_pass(&w, 1600000, true);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    assert_true(q[0].n_ends == 0 && q[0].n_sends == 0);
    world_pass(&w, 1500000, true);
    assert_ended(&q[0], CLUSTER_NO_NODE);
    world_report(&w, 0);
    q[1] = world_plain(10);
    world_submit(&w, &q[1]);
    assert_int_equal(q[1].n_sends, 1);
    w.nodes[0].is_open = false;
    cluster_router_cut(w.router, 0);
    q[2] = world_plain(10);
    world_submit(&w, &q[2]);
    assert_ended(&q[2], CLUSTER_NO_NODE);
    world_pass(&w, 500000, false); /* it opens again */
    world_serve(&w, &q[1]);
    assert_ended(&q[1], CLUSTER_SERVED);
    assert_true(w.nodes[0].n_opened > 1);
    close_all(q, 3);
    world_end(&w);
}

static void draining_nodes_get_nothing_new(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[12];
    (void)state;
    world_begin(&w, &o, 2);
    q[0] = world_plain(10);
    world_submit(&w, &q[0]);
    int32_t node = q[0].r.node;
    cluster_router_drain_node(w.router, node, true);
    w.nodes[1 - node].load.engine.drain_us = SECOND;
    world_report(&w, 1 - node);
    for (int i = 1; i < 5; i++) {
        q[i] = world_plain(10);
        world_submit(&w, &q[i]);
        assert_int_equal(q[i].r.node, 1 - node);
    }
    w.nodes[1 - node].load.draining = true; /* by its own word */
    world_report(&w, 1 - node);
    q[5] = world_plain(10);
    world_submit(&w, &q[5]);
    assert_ended(&q[5], CLUSTER_NO_NODE);
    cluster_router_drain_node(w.router, node, false);
    q[6] = world_plain(10);
    world_submit(&w, &q[6]);
    assert_int_equal(q[6].r.node, node);
    for (int i = 0; i < 7; i++)
        if (!q[i].n_ends) world_serve(&w, &q[i]);
    close_all(q, 7);
    world_end(&w);
}

static void removed_nodes_lose_their_requests(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q = world_plain(10);
    int32_t again = -1;
    (void)state;
    world_begin(&w, &o, 2);
    world_submit(&w, &q);
    int32_t node = q.r.node;
    cluster_router_remove_node(w.router, node);
    assert_true(q.r.node == 1 - node && q.n_sends == 2 && q.n_cancels == 1);
    assert_false(w.nodes[node].is_open);
    world_serve(&w, &q);
    assert_int_equal(cluster_router_add_node(w.router, "new", &again, NULL), RP_OK);
    assert_int_equal(again, node);
    close_all(&q, 1);
    world_end(&w);
}

/* Attack 7: the span stream lives, and nothing comes of a request. */
static void silent_requests_move(void **state) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request q[5];
    (void)state;
    o.node_timeout_us = 10 * SECOND;
    world_begin(&w, &o, 2);
    q[0] = world_plain(10); /* the node works on it for long */
    world_submit(&w, &q[0]);
    const int32_t node = q[0].r.node;
    world_pass(&w, 60 * SECOND, false);
    assert_true(q[0].n_sends == 1 && q[0].n_cancels == 0);
    w.nodes[node].hangs = true; /* from the last sign of life on */
    world_pass(&w, 4 * SECOND, false);
    assert_int_equal(q[0].n_cancels, 0);
    world_pass(&w, 9 * SECOND, false);
    assert_true(q[0].r.node == 1 - node && q[0].n_sends == 2 && q[0].n_cancels == 1);
    assert_int_equal(cluster_router_counted(w.router).silent, 1);
    q[1] = world_plain(10); /* it is suspect, though its stream lives */
    world_submit(&w, &q[1]);
    assert_int_equal(q[1].r.node, 1 - node);
    world_pass(&w, 11 * SECOND, false); /* and tried again later; an answer makes it well */
    q[2] = world_plain(10);
    q[2].r.only_node = node;
    world_submit(&w, &q[2]);
    assert_int_equal(q[2].r.node, node);
    cluster_node_status s;
    assert_true(cluster_router_node(w.router, node, &s) && s.health == CLUSTER_WELL && s.silent == 1);
    w.nodes[node].hangs = false;
    /* One of two is lost: the node works on the other one, and stays well. A byte is a sign, too. */
    cluster_router_began(w.router, &q[1].r);
    w.nodes[1 - node].hangs = true;
    for (int i = 0; i < 4; i++) {
        assert_true(i > 0 || q[0].n_ends == 0);
        world_pass(&w, 4 * SECOND, false);
        cluster_router_heard(w.router, &q[1].r, w.now_us, true);
    }
    assert_int_equal(q[1].n_ends, 0);
    assert_ended(&q[0], CLUSTER_FAILED); /* on two nodes */
    assert_true(cluster_router_node(w.router, 1 - node, &s) && s.health == CLUSTER_WELL);
    w.nodes[1 - node].hangs = false;
    world_serve(&w, &q[2]);
    cluster_router_finished(w.router, &q[1].r);
    close_all(q, 3);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_retry_elsewhere),
        cmocka_unit_test(unreachable_nodes_are_no_retry),
        cmocka_unit_test(busy_nodes_are_left_alone),
        cmocka_unit_test(limits_are_those_of_one_request),
        cmocka_unit_test(three_limits_are_enough),
        cmocka_unit_test(a_node_says_that_it_drains),
        cmocka_unit_test(the_budget_of_retries_ends),
        cmocka_unit_test(answers_are_continued),
        cmocka_unit_test(answers_that_began_are_not_sent_again),
        cmocka_unit_test(continuations_need_the_same_identity),
        cmocka_unit_test(silent_nodes_lose_their_requests),
        cmocka_unit_test(silent_streams_are_opened_anew),
        cmocka_unit_test(silent_requests_move),
        cmocka_unit_test(without_nodes),
        cmocka_unit_test(draining_nodes_get_nothing_new),
        cmocka_unit_test(removed_nodes_lose_their_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
