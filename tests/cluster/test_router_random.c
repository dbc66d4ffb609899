/* SPDX-License-Identifier: Apache-2.0 */
/* test_router_random.c: random requests, nodes that fail in every way that a router can see, and a clock that jumps:
 * every request ends once, by its deadline, or a little later on a node; no answer begins anew; limits and budgets
 * hold; priorities and tenants have their due; counters return to 0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/router_world.h"
#include "support/seed.h"

#define N_NODES 6
#define N_REQUESTS 2000
#define N_TEXTS 12
#define TEXT_NAMES 24
#define N_MODULES 16
#define MAX_NAMES (TEXT_NAMES + 4)
#define QUEUED 1 /* states, as the router has them */

typedef enum node_state { LIVES,
                          IS_FROZEN,
                          IS_DEAD } node_state;

/* What a test knows of a request. */
typedef struct story {
    world_request q; /* first */
    rp_named_kv items[MAX_NAMES];
    bool at_node;   /* sent, and neither cancelled nor ended there */
    bool has_bytes; /* its client has */
    int32_t node;
    uint64_t begins_us, ends_us; /* there */
} story;

typedef struct chaos {
    router_world w;
    cluster_router_options options;
    tiny_random random;
    story *stories; /* [N_REQUESTS] */
    int32_t n;
    node_state nodes[N_NODES];
    bool drains[N_NODES];
    uint64_t busy_us[N_NODES];                   /* when it has computed what it has */
    uint8_t holds[N_NODES][N_TEXTS + N_MODULES]; /* of its present stream */
    uint64_t reported_us[N_NODES];
    uint64_t begun_us;
    bool strict_order; /* no goals: priorities can be checked exactly */
} chaos;

static bool chance(chaos *c, uint64_t of) { return tiny_random_below(&c->random, of) == 0; }

/* ---- the router's calls ---- */

static void check_order(chaos *c, const story *s) {
    if (!c->strict_order || s->q.n_sends != 1 || s->q.r.only_node >= 0) return;
    for (int32_t i = 0; i < c->n; i++) {
        const cluster_request *r = &c->stories[i].q.r;
        if (r->state == QUEUED && r->only_node < 0 && c->stories[i].q.n_sends == 0 && r->priority > s->q.r.priority)
            fail_msg("a request of priority %d was sent before one of priority %d", s->q.r.priority, r->priority);
    }
}

static void on_send(void *user, world_request *q) {
    chaos *c = user;
    story *s = (story *)(void *)q;
    cluster_node_status status;
    int32_t node = q->r.node;
    assert_true(q->n_ends == 0 && !s->at_node);
    assert_int_equal(q->began_at_send, s->has_bytes); /* never anew after its first byte */
    assert_true(!s->has_bytes || q->r.continues);
    assert_true(s->has_bytes || !q->r.deadline_us || q->r.deadline_us > c->w.now_us);
    assert_true(cluster_router_node(c->w.router, node, &status));
    assert_true(status.health == CLUSTER_WELL && !status.draining && status.sent <= 4 + c->options.max_sent);
    assert_true(q->r.only_node < 0 || q->r.only_node == node);
    check_order(c, s);
    s->at_node = true;
    s->node = node;
    uint64_t work = 2000 + 12 * (uint64_t)BASE_MAX(q->r.prompt_tokens - q->r.held_tokens, 1);
    c->busy_us[node] = BASE_MAX(c->busy_us[node], c->w.now_us) + work;
    s->begins_us = c->busy_us[node];
    s->ends_us = s->begins_us + tiny_random_below(&c->random, 400000);
}

static void on_cancel(void *user, world_request *q) {
    story *s = (story *)(void *)q;
    (void)user;
    assert_true(s->at_node && q->n_ends == 0);
    s->at_node = false;
}

static void on_end(void *user, world_request *q) {
    story *s = (story *)(void *)q;
    (void)user;
    assert_int_equal(q->n_ends, 1);
    s->at_node = false;
}

/* ---- requests ---- */

static void story_begin(chaos *c) {
    story *s = &c->stories[c->n];
    bool modules = chance(c, 2);
    int32_t n = 0, position = 0;
    for (int32_t i = 0; modules && i < 4; i++, n++) {
        s->items[n] = world_module((uint32_t)tiny_random_below(&c->random, N_MODULES), position, 128);
        position += 128;
    }
    world_text(s->items + n, TEXT_NAMES, (uint32_t)tiny_random_below(&c->random, N_TEXTS));
    for (int32_t i = 0; i < TEXT_NAMES; i++, n++) s->items[n].position += position;
    s->q = world_request_of(s->items, n, position + 64 * TEXT_NAMES + 1 + (int32_t)tiny_random_below(&c->random, 63));
    cluster_request *r = &s->q.r;
    r->tenant = 1 + (chance(c, 4) ? 1 : 0);
    r->session = tiny_random_below(&c->random, 40);
    r->priority = chance(c, 5) ? 5 : 0;
    r->continues = !chance(c, 4);
    if (chance(c, 3)) r->deadline_us = c->w.now_us + tiny_random_below(&c->random, 3000000);
    if (chance(c, 20)) r->only_node = (int32_t)tiny_random_below(&c->random, N_NODES);
    c->n++;
    world_submit(&c->w, &s->q);
}

static cluster_failure random_failure(chaos *c, story *s) {
    if (c->nodes[s->node] == IS_DEAD)
        return s->q.r.state == QUEUED + 1 && chance(c, 2) ? CLUSTER_NODE_UNREACHABLE : CLUSTER_NODE_CUT;
    const cluster_failure some[] = {CLUSTER_NODE_CUT, CLUSTER_NODE_ERROR, CLUSTER_NODE_BUSY, CLUSTER_NODE_REFUSES,
                                    CLUSTER_NODE_LIMITS};
    return some[tiny_random_below(&c->random, s->has_bytes ? 2 : BASE_ARRAY_LEN(some))];
}

static void story_fails(chaos *c, story *s) {
    cluster_failure failure = random_failure(c, s);
    s->at_node = false;
    cluster_router_failed(c->w.router, &s->q.r, failure,
                          failure == CLUSTER_NODE_BUSY ? tiny_random_below(&c->random, 4000) : 0);
}

static void story_step(chaos *c, story *s) {
    cluster_router *t = c->w.router;
    if (s->q.n_ends || (chance(c, 3000) && (cluster_router_cancelled(t, &s->q.r), true))) return;
    if (!s->at_node || c->nodes[s->node] == IS_FROZEN) return;
    if (c->nodes[s->node] == IS_DEAD || chance(c, 1500)) {
        story_fails(c, s);
        return;
    }
    if (s->q.r.state == QUEUED + 1 && c->w.now_us >= s->begins_us) {
        cluster_router_began(t, &s->q.r);
        if (s->q.n_ends) return; /* refused after its prefill */
        s->has_bytes = true;
    }
    if (s->q.r.state != QUEUED + 2) return;
    cluster_router_progress(t, &s->q.r, s->q.r.answer_tokens + 1);
    if (c->w.now_us >= s->ends_us) cluster_router_finished(t, &s->q.r);
}

/* ---- nodes ---- */

static void node_report(chaos *c, int32_t i) {
    rp_engine_load *load = &c->w.nodes[i].load.engine;
    uint64_t now = c->w.now_us;
    load->running = load->decoding = load->waiting = 0;
    for (int32_t k = 0; k < c->n; k++) {
        const story *s = &c->stories[k];
        if (!s->at_node || s->node != i) continue;
        if (load->running < 4) load->running++;
        else load->waiting++;
        load->decoding += s->has_bytes && load->waiting == 0;
    }
    load->context_tokens = 1500 * load->decoding;
    load->drain_us = c->busy_us[i] > now ? c->busy_us[i] - now : 0;
    load->queued_tokens = (int64_t)load->drain_us / 12;
    if (c->w.nodes[i].n_frames == 0) memset(c->holds[i], 0, sizeof(c->holds[i])); /* a snapshot follows, of nothing */
    world_report(&c->w, i);
    c->reported_us[i] = now;
}

/* It reports that it computed a text, or dropped it. */
static void node_change(chaos *c, int32_t i) {
    rp_named_kv items[TEXT_NAMES];
    int32_t what = (int32_t)tiny_random_below(&c->random, N_TEXTS + N_MODULES), n = 1;
    if (!c->w.nodes[i].is_open || c->w.nodes[i].n_frames == 0) return;
    if (what < N_TEXTS) world_text(items, n = TEXT_NAMES, (uint32_t)what);
    else items[0] = world_module((uint32_t)(what - N_TEXTS), 0, 128);
    c->holds[i][what] = (uint8_t)tiny_random_below(&c->random, 4);
    world_hold(&c->w, i, items, n, c->holds[i][what]);
}

static void node_falls(chaos *c, int32_t i) {
    c->nodes[i] = IS_DEAD;
    if (c->w.nodes[i].is_open) world_restart(&c->w, i);
}

static void node_step(chaos *c, int32_t i) {
    if (c->nodes[i] == IS_DEAD && c->w.nodes[i].is_open) { /* refused */
        c->w.nodes[i].is_open = false;
        cluster_router_cut(c->w.router, i);
    }
    if (chance(c, 2500)) node_falls(c, i);
    else if (chance(c, 2500)) c->nodes[i] = IS_FROZEN;
    else if (chance(c, 200)) c->nodes[i] = LIVES;
    if (chance(c, 1500)) cluster_router_drain_node(c->w.router, i, c->drains[i] = !c->drains[i]);
    if (c->drains[i] && chance(c, 100)) cluster_router_drain_node(c->w.router, i, c->drains[i] = false);
    if (c->nodes[i] != LIVES) return;
    if (c->w.now_us - c->reported_us[i] >= 100000) node_report(c, i);
    if (chance(c, 40)) node_change(c, i);
}

/* ---- the whole ---- */

static void check_limits(chaos *c) {
    cluster_router_counts n = cluster_router_counted(c->w.router);
    double budget = 10 + c->options.retry_share * (double)n.submitted + (double)(c->w.now_us - c->begun_us) / 1e6;
    assert_true((double)(n.retries + n.continuations) <= budget + 1e-6);
    assert_true(n.queued <= c->options.max_queue + (int32_t)(n.retries + n.continuations));
    int32_t live = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const story *s = &c->stories[i];
        live += !s->q.n_ends;
        const uint64_t deadline = s->q.r.deadline_us + (s->at_node ? CLUSTER_DEAD_US : 0);
        if (!s->q.n_ends && s->q.r.deadline_us && deadline <= c->w.now_us) assert_true(s->has_bytes);
    }
    assert_int_equal(n.queued + n.sent, live);
}

static bool chaos_step(chaos *c) {
    bool live = c->n < N_REQUESTS;
    c->w.now_us += tiny_random_below(&c->random, 8000);
    if (chance(c, 1500)) c->w.now_us += tiny_random_below(&c->random, 8000000);
    cluster_router_tick(c->w.router);
    check_limits(c);
    for (int32_t i = 0; i < N_NODES; i++) node_step(c, i);
    if (c->n < N_REQUESTS && chance(c, 2))
        for (uint64_t k = chance(c, 60) ? 40 : 1; k > 0 && c->n < N_REQUESTS; k--) story_begin(c);
    for (int32_t i = 0; i < c->n; i++) {
        if (c->stories[i].q.n_ends) continue;
        story_step(c, &c->stories[i]);
        live = true;
    }
    return live;
}

/* All nodes are well again, and their names are those that the router knows. */
static void check_quiet(chaos *c) {
    uint64_t ended = 0;
    for (int32_t i = 0; i < N_NODES; i++) {
        c->nodes[i] = LIVES;
        cluster_router_drain_node(c->w.router, i, false);
    }
    for (int k = 0; k < 200; k++) {
        c->w.now_us += 100000;
        cluster_router_tick(c->w.router);
        for (int32_t i = 0; i < N_NODES; i++) node_report(c, i);
    }
    cluster_router_counts n = cluster_router_counted(c->w.router);
    assert_true(n.queued == 0 && n.sent == 0 && n.submitted == N_REQUESTS);
    for (int k = 0; k < CLUSTER_N_OUTCOMES; k++) ended += n.outcomes[k];
    assert_int_equal(ended, N_REQUESTS);
    for (int32_t i = 0; i < N_NODES; i++) {
        cluster_node_status s;
        size_t names = 0;
        assert_true(cluster_router_node(c->w.router, i, &s));
        for (int32_t k = 0; k < N_TEXTS + N_MODULES; k++) names += !c->holds[i][k] ? 0 : k < N_TEXTS ? TEXT_NAMES
                                                                                                     : 1;
        assert_int_equal(s.names, names); /* no speculative entry is left */
        assert_true(s.sent == 0 && s.sent_tokens == 0 && s.health == CLUSTER_WELL);
    }
    uint64_t refused = n.outcomes[CLUSTER_REFUSED_TTFT] + n.outcomes[CLUSTER_REFUSED_ITL];
    refused += n.outcomes[CLUSTER_REFUSED_QUEUE] + n.outcomes[CLUSTER_REFUSED_BUSY];
    printf("  %s: served %d, refused %d, no node %d, late %d, failed %d, answered %d, cancelled %d; retries %d, "
           "continuations %d\n",
           c->strict_order ? "no goals" : "goals", (int)n.outcomes[CLUSTER_SERVED], (int)refused,
           (int)n.outcomes[CLUSTER_NO_NODE], (int)n.outcomes[CLUSTER_LATE], (int)n.outcomes[CLUSTER_FAILED],
           (int)n.outcomes[CLUSTER_ANSWERED], (int)n.outcomes[CLUSTER_CANCELLED], (int)n.retries, (int)n.continuations);
    assert_true(n.outcomes[CLUSTER_SERVED] > N_REQUESTS / 8); /* the test is not about refusals alone */
}

static void chaos_run(uint64_t seed) {
    chaos *c = calloc(1, sizeof(*c));
    c->stories = calloc(N_REQUESTS, sizeof(*c->stories));
    c->options = world_options(&c->w);
    c->random = (tiny_random){seed};
    c->w.random = (tiny_random){seed + 1};
    c->options.policy = (cluster_policy)(seed % CLUSTER_N_POLICIES);
    c->options.admission = (cluster_admission)(seed / 2 % CLUSTER_N_ADMISSIONS);
    c->options.max_queue = 60;
    c->strict_order = seed % 2;
    if (!c->strict_order) {
        c->options.ttft_goal_ms = 600;
        c->options.itl_goal_ms = 1.06; /* six rows */
    }
    c->w.on_send = on_send;
    c->w.on_cancel = on_cancel;
    c->w.on_end = on_end;
    c->w.user = c;
    world_begin(&c->w, &c->options, N_NODES);
    c->begun_us = c->w.now_us;
    while (chaos_step(c)) {}
    check_quiet(c);
    for (int32_t i = 0; i < c->n; i++) cluster_request_close(&c->stories[i].q.r);
    world_end(&c->w);
    free(c->stories);
    free(c);
}

static void every_request_ends_once(void **state) {
    uint64_t seed = test_seed("router: random", 1);
    (void)state;
    for (int i = 0; i < test_rounds(14); i++) chaos_run(seed + (uint64_t)i);
}

/* ---- fairness ---- */

/* Two tenants that always have requests waiting, of other sizes and numbers: the predicted time of what was sent for
 * them differs by no more than a quantum and two requests, and what was sent before both waited. */
static void tenants_get_equal_shares(void **state) {
    enum { N = 600,
           MOST = 20000 };
    tiny_random random = {test_seed("router: tenants", 1)};
    router_world w;
    cluster_router_options o = world_options(&w);
    world_request *q = calloc(N, sizeof(*q));
    double work[2] = {0};
    int sent[2] = {0}, of[2] = {0}, most_waiting = 0;
    (void)state;
    world_begin(&w, &o, 4);
    for (int i = 0; i < N; i++) { /* the first tenant sends three of four, and larger ones */
        int tenant = tiny_random_below(&random, 4) == 0;
        q[i] = world_request_of(NULL, 0, 1 + (int32_t)tiny_random_below(&random, tenant ? MOST / 4 : MOST));
        q[i].r.tenant = (uint64_t)tenant;
        q[i].r.max_tokens = 0;
        of[tenant]++;
        world_submit(&w, &q[i]);
    }
    int begun[2] = {0};
    for (int i = 0; i < N; i++) begun[q[i].r.tenant] += q[i].n_sends;
    for (int k = 0; k < N; k++) {
        work[0] = work[1] = sent[0] = sent[1] = 0;
        for (int i = 0; i < N; i++) {
            sent[q[i].r.tenant] += q[i].n_sends;
            if (q[i].n_sends && i >= begun[0] + begun[1]) work[q[i].r.tenant] += q[i].r.prompt_tokens;
        }
        if (sent[0] == of[0] || sent[1] == of[1]) break; /* one has nothing left */
        most_waiting = BASE_MAX(most_waiting, sent[0] + sent[1]);
        double difference = work[0] > work[1] ? work[0] - work[1] : work[1] - work[0];
        if (difference > 2.0 * MOST + 10000.0 / 12)
            fail_msg("%d requests: %.0f and %.0f tokens", sent[0] + sent[1], work[0], work[1]);
        for (int i = 0; i < N; i++)
            if (q[i].n_sends && !q[i].n_ends) {
                world_serve(&w, &q[i]);
                break;
            }
    }
    assert_true(most_waiting > N / 4);
    for (int i = 0; i < N; i++) {
        if (!q[i].n_ends) cluster_router_cancelled(w.router, &q[i].r);
        cluster_request_close(&q[i].r);
    }
    free(q);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_ends_once),
        cmocka_unit_test(tenants_get_equal_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
