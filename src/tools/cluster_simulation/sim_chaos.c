/* SPDX-License-Identifier: Apache-2.0 */
/* sim_chaos.c: see sim_chaos.h. */
#include "tools/cluster_simulation/sim_chaos.h"

#include "base/check.h"
#include "base/compiler.h"
#include "cluster/router_internal.h"

#define MOST_FAULTS 8         /* of nodes and routers in a run */
#define LAST_FAULT_US 8000000 /* after the first arrival */
/* A stream that was refused is opened again within 5 s, and a digest follows within 1 s; frozen nodes thaw before. */
#define QUIET_US 20000000

typedef enum chaos { CHAOS_KILL,
                     CHAOS_FREEZE,
                     CHAOS_DRAIN,
                     CHAOS_ROUTER,
                     N_CHAOS } chaos;

static int32_t drawn(sim_random *r, int32_t low, int32_t high) {
    BASE_ASSERT(low <= high);
    return low + (int32_t)sim_random_below(r, (uint64_t)(high - low + 1));
}

void sim_chaos_draw(rp_cluster_simulate_options *o) {
    sim_random r = {base_mix64(o->seed + 77)};
    o->nodes = drawn(&r, 1, 5);
    o->routers = drawn(&r, 1, 3);
    o->workload = RP_CLUSTER_CONVERSATIONS;
    o->requests = drawn(&r, 10, 60);
    o->rate = drawn(&r, 2, 20);
    o->turns = drawn(&r, 1, 4);
    o->think_s = 0.5;
    o->groups = drawn(&r, 1, 6);
    o->prefix_tokens = 64 * drawn(&r, 0, 20);
    o->question_tokens = drawn(&r, 20, 400);
    o->answer_tokens = drawn(&r, 1, 40);
    o->kv_tokens = drawn(&r, 8000, 40000);
    o->disk_tokens = sim_random_chance(&r, 0.5) ? drawn(&r, 1000, 100000) : 0;
    o->chunk_tokens = 64 * drawn(&r, 1, 8);
    o->max_sequences = drawn(&r, 1, 16);
    o->max_waiting = drawn(&r, 1, 20);
    o->latency_ms = 0.1 * drawn(&r, 1, 50);
    o->prefill_tokens_per_s = drawn(&r, 2000, 20000);
    o->deadline_s = drawn(&r, 5, 20);
    o->admission = rp_cluster_admission_name(drawn(&r, 0, CLUSTER_N_ADMISSIONS - 1));
    o->ttft_goal_ms = sim_random_chance(&r, 0.5) ? drawn(&r, 500, 5000) : 0;
    o->itl_goal_ms = sim_random_chance(&r, 0.5) ? drawn(&r, 8, 30) : 0;
    o->speculative_s = drawn(&r, 0, 3);
}

/* ---- faults ---- */

static void chaos_wakes(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_node_drain(s->nodes[e->node], false);
}

static void chaos_happens(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_node *node = s->nodes[e->node];
    uint64_t us = e->check;
    if (!s->faults.on) return;
    switch ((chaos)e->kind) {
    case CHAOS_KILL: sim_cluster_kill_node(s, e->node, us); break;
    case CHAOS_FREEZE:
        if (!sim_node_is_up(node)) break;
        sim_node_freeze(node, s->clock.now_us + us);
        s->faults.freezes++;
        break;
    case CHAOS_DRAIN:
        sim_node_drain(node, true);
        sim_clock_add(&s->clock,
                      &(sim_event){.at_us = s->clock.now_us + us, .fn = chaos_wakes, .owner = s, .node = e->node});
        break;
    case CHAOS_ROUTER: sim_cluster_restart_router(s, e->router, us / 4); break;
    case N_CHAOS: break;
    }
}

void sim_chaos_begin(sim_cluster *s) {
    BASE_ASSERT(!s->faults.on);
    sim_random r = {base_mix64(s->o->seed + 99)};
    s->faults.on = true;
    s->faults.lose = 0.02 * sim_random_unit(&r);
    s->faults.cut = 0.02 * sim_random_unit(&r);
    s->faults.delay = 0.05 * sim_random_unit(&r);
    s->faults.swallow = 0.01 * sim_random_unit(&r);
    for (int32_t i = drawn(&r, 0, MOST_FAULTS); i > 0; i--) {
        sim_event e = {
            .at_us = SIM_START_US + sim_random_below(&r, LAST_FAULT_US),
            .fn = chaos_happens,
            .owner = s,
            .kind = drawn(&r, 0, N_CHAOS - 1),
            .node = drawn(&r, 0, s->n_nodes - 1),
            .router = drawn(&r, 0, s->n_routers - 1),
            .check = 100000 + sim_random_below(&r, 6000000),
        };
        sim_clock_add(&s->clock, &e);
    }
}

void sim_chaos_calm(sim_cluster *s) {
    uint64_t until = s->clock.now_us + QUIET_US;
    s->faults.on = false;
    while (sim_clock_step(&s->clock, until)) continue;
}

/* ---- invariants ---- */

static void check_requests(sim_cluster *s) {
    for (size_t i = 0; i < s->w.n; i++) {
        const sim_request *q = &s->requests[i];
        if (q->arrived && !q->ended) sim_cluster_broken(s, "request %zu has not ended", i);
        /* Without a router, a client waits. Simulated nodes know no deadlines: a request that one has ends when its
           router gives it up. */
        uint64_t deadline = BASE_MAX(q->arrived_us + (uint64_t)(s->o->deadline_s * 1e6), q->r.arrived_us);
        if (q->r.attempts > 0) deadline += CLUSTER_DEAD_US;
        if (q->arrived && s->o->deadline_s > 0 && q->outcome == CLUSTER_LATE && !q->lost &&
            q->ended_us > deadline + 1000)
            sim_cluster_broken(s, "request %zu was late %llu us after its deadline", i,
                               (unsigned long long)(q->ended_us - deadline));
        if (q->first_us && s->o->deadline_s > 0 && q->first_us > deadline + 1000)
            sim_cluster_broken(s, "request %zu had its first byte %llu us after its deadline", i,
                               (unsigned long long)(q->first_us - deadline));
    }
}

static void check_node(sim_cluster *s, const sim_router *u, int32_t node) {
    BASE_ASSERT(u->t && sim_node_is_up(s->nodes[node]));
    cluster_node_status status;
    cluster_digest own = cluster_journal_digest(sim_node_journal(s->nodes[node]));
    uint64_t count, sum;
    cluster_index_digest(u->t->index, node, &count, &sum);
    if (!cluster_router_node(u->t, node, &status) || status.health != CLUSTER_WELL ||
        status.stream != CLUSTER_VIEW_LIVE)
        sim_cluster_broken(s, "router %d does not know node %d as well", (int)u->number, (int)node);
    if (count != own.count || sum != own.sum)
        sim_cluster_broken(s, "router %d knows %llu names of node %d, it holds %llu, or others", (int)u->number,
                           (unsigned long long)count, (int)node, (unsigned long long)own.count);
    if (status.sent != 0 || status.sent_tokens != 0)
        sim_cluster_broken(s, "router %d: node %d has %d requests and %lld tokens after the end", (int)u->number,
                           (int)node, (int)status.sent, (long long)status.sent_tokens);
    if (cluster_index_count_of(u->t->index, node) != own.count)
        sim_cluster_broken(s, "router %d has speculative entries of node %d after the end", (int)u->number, (int)node);
}

static void check_router(sim_cluster *s, const sim_router *u) {
    if (!u->t) {
        sim_cluster_broken(s, "router %d did not come back", (int)u->number);
        return;
    }
    cluster_router_counts c = cluster_router_counted(u->t);
    uint64_t ended = 0;
    for (int i = 0; i < CLUSTER_N_OUTCOMES; i++) ended += c.outcomes[i];
    if (c.queued != 0 || c.sent != 0 || ended != c.submitted)
        sim_cluster_broken(s, "router %d: %d queued, %d sent, %llu of %llu requests ended", (int)u->number,
                           (int)c.queued, (int)c.sent, (unsigned long long)ended, (unsigned long long)c.submitted);
    sim_cluster_check_retries(s, u);
    for (int32_t i = 0; i < s->n_nodes; i++)
        if (sim_node_is_up(s->nodes[i])) check_node(s, u, i);
}

void sim_chaos_check(sim_cluster *s) {
    BASE_ASSERT(!s->faults.on); /* sim_chaos_calm came before */
    check_requests(s);
    for (int32_t i = 0; i < s->n_nodes; i++) {
        if (!sim_node_is_up(s->nodes[i])) {
            sim_cluster_broken(s, "node %d did not come back", (int)i);
            continue;
        }
        sim_node_totals t = sim_node_total(s->nodes[i]);
        if (t.jobs != 0 || t.cache.reserved_tokens != 0 || t.cache.held != 0)
            sim_cluster_broken(s, "node %d has %d requests, %lld tokens reserved and %zu names held after the end",
                               (int)i, (int)t.jobs, (long long)t.cache.reserved_tokens, t.cache.held);
        if (t.cache.names != cluster_journal_count(sim_node_journal(s->nodes[i])))
            sim_cluster_broken(s, "node %d reports other names", (int)i);
    }
    for (int32_t i = 0; i < s->n_routers; i++) check_router(s, &s->routers[i]);
}
