/* SPDX-License-Identifier: Apache-2.0 */
/* router_placing.c: the decision about a request: the node that gets it now, or the queue, or its end. */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "cluster/admission.h"
#include "cluster/cost.h"
#include "cluster/router_internal.h"

/* Time of a token in a cluster in which no node has measured its costs. */
#define TOKEN_US 100.0
/* Answers that share a decode step: a tenant is charged one of so many parts of it. */
#define SHARED_ROWS 32.0

static bool is_reason(const char *excluded, const char *reason) { return excluded && strcmp(excluded, reason) == 0; }

/* ---- nodes that can serve a request ---- */

static const char *node_excluded(const cluster_router *t, const router_node *x, const cluster_request *r,
                                 uint64_t now_us) {
    const router_ticket *tk = router_ticket_of(r);
    const int32_t node = (int32_t)(x - t->nodes);
    BASE_ASSERT(node >= 0 && node < CLUSTER_MAX_NODES);
    if (tk->tried[node / 64] >> (node % 64) & 1) return "tried";
    const char *why = router_node_excluded(t, x, now_us);
    if (is_reason(why, "dead")) return why;
    /* A continuation needs the KV with which the answer began: a node of the same identity. */
    return tk->identity[0] && strcmp(tk->identity, router_node_hello(x)->identity) != 0 ? "identity" : why;
}

/* As router_outlook. */
static int outlook_of(const char *excluded) {
    if (!excluded) return 1;
    return is_reason(excluded, "full") || is_reason(excluded, "suspect") ? 0 : -1;
}

int router_outlook(const cluster_router *t, const cluster_request *r, uint64_t now_us) {
    int best = -1;
    size_t i = r->only_node < 0 ? 0 : (size_t)r->only_node,
           end = r->only_node < 0 ? t->n_nodes : BASE_MIN(i + 1, t->n_nodes);
    for (; i < end && best < 1; i++)
        if (t->nodes[i].used) best = BASE_MAX(best, outlook_of(node_excluded(t, &t->nodes[i], r, now_us)));
    return best;
}

int router_room(const cluster_router *t, uint64_t now_us) {
    int best = -1;
    for (size_t i = 0; i < t->n_nodes && best < 1; i++)
        if (t->nodes[i].used) best = BASE_MAX(best, outlook_of(router_node_excluded(t, &t->nodes[i], now_us)));
    return best;
}

/* ---- scratch memory ---- */

static int scratch_grow(cluster_router *t, cluster_request *r) {
    router_ticket *tk = router_ticket_of(r);
    size_t n = t->n_nodes, items = (size_t)r->n_items;
    if ((size_t)tk->cap_candidates < n) {
        cluster_candidate *c = base_realloc(r->candidates, n * sizeof(*c));
        if (!c) return RP_ERR_MEMORY;
        r->candidates = c;
        tk->cap_candidates = (int32_t)n;
    }
    if (base_grow((void **)&t->facts, &t->cap_facts, n, CLUSTER_MAX_NODES, sizeof(*t->facts))) return RP_ERR_MEMORY;
    if (base_grow((void **)&t->loads, &t->cap_loads, n, CLUSTER_MAX_NODES, sizeof(*t->loads))) return RP_ERR_MEMORY;
    if (base_grow((void **)&t->order, &t->cap_order, items, INT32_MAX, sizeof(*t->order))) return RP_ERR_MEMORY;
    if (t->pool && base_grow((void **)&t->pooled, &t->cap_pooled, items, INT32_MAX, sizeof(*t->pooled)))
        return RP_ERR_MEMORY;
    return base_grow((void **)&t->held, &t->cap_held, items * n, SIZE_MAX / 2, 1);
}

/* ---- state of nodes ---- */

/* Coefficients for nodes that have not measured their costs: those of another node, or constants. */
static rp_engine_load default_load(const cluster_router *t) {
    rp_engine_load load = {.struct_size = sizeof(load)};
    for (int k = 0; k < RP_COST_KNOTS; k++) load.knot_us[k] = TOKEN_US * (double)(1 << k);
    for (size_t i = 0; i < t->n_nodes; i++)
        if (t->nodes[i].used && cluster_cost_is_known(&router_node_load(&t->nodes[i])->engine))
            return router_node_load(&t->nodes[i])->engine;
    return load;
}

static rp_engine_load load_with(const rp_engine_load *counts, const rp_engine_load *coefficients) {
    rp_engine_load load = *counts;
    memcpy(load.knot_us, coefficients->knot_us, sizeof(load.knot_us));
    load.row_slot_us = coefficients->row_slot_us;
    load.slot_us = coefficients->slot_us;
    load.read_byte_us = coefficients->read_byte_us;
    if (load.chunk_tokens <= 0) load.chunk_tokens = coefficients->chunk_tokens;
    return load;
}

/* Requests on a node: reported ones and those that its report does not include yet, but at least those of this
 * router. */
static int32_t node_requests(const router_node *x) {
    const rp_engine_load *load = &router_node_load(x)->engine;
    return BASE_MAX(load->running + load->waiting + x->n_uncovered + x->n_prefills - x->n_gone, x->n_sent);
}

/* What computing and fetching delays (policy.h): [1] is of nodes that only prefill, [0] of the others. */
typedef struct delays {
    double mean[2]; /* requests of a healthy node, and of the queue */
    double all;     /* of all healthy nodes, and the queue */
} delays;

static delays count_delays(const cluster_router *t, uint64_t now_us) {
    int64_t of_class[2] = {0, 0};
    int32_t nodes[2] = {0, 0};
    for (size_t i = 0; i < t->n_nodes; i++) {
        const router_node *x = &t->nodes[i];
        if (!x->used || router_node_health(x, now_us) != CLUSTER_WELL) continue;
        nodes[x->prefills_only]++;
        of_class[x->prefills_only] += node_requests(x);
    }
    /* What waits in the queue is computed by prefill nodes, if there are any. */
    of_class[nodes[1] > 0] += t->queue.n;
    delays d = {.all = (double)(of_class[0] + of_class[1])};
    for (int k = 0; k < 2; k++) d.mean[k] = nodes[k] ? (double)of_class[k] / nodes[k] : 0;
    return d;
}

/* Tokens of an answer, as far as they are known before it. */
static double expected_answer(const cluster_router *t, const cluster_request *r) {
    return t->mean_answer_tokens > 0 ? BASE_MIN(r->max_tokens, t->mean_answer_tokens) : r->max_tokens;
}

static cluster_facts node_facts(cluster_router *t, const cluster_request *r, int32_t node, int32_t k,
                                const delays *delayed, uint64_t now_us) {
    BASE_ASSERT(k >= 0 && k <= node &&
                (size_t)node < t->n_nodes); /* candidates are some of the nodes, in their order */
    const router_node *x = &t->nodes[node];
    const rp_engine_load *load = &router_node_load(x)->engine;
    double drain = router_node_drain_us(x, now_us);
    if (!cluster_cost_is_known(load)) {
        const rp_engine_load coefficients = default_load(t);
        t->loads[k] = load_with(load, &coefficients);
        load = &t->loads[k];
        drain = BASE_MAX(drain, cluster_cost_rows(load, (double)load->queued_tokens));
    }
    return (cluster_facts){
        .node = node,
        .load = load,
        .fetch = t->pool ? &t->options.fetch : NULL,
        .drain_us = drain,
        .queued_tokens = load->queued_tokens + x->uncovered_tokens + x->prefill_tokens,
        .requests = node_requests(x),
        .name_hash = x->name_hash,
        .requests_of_all = delayed->all,
        .delayed = t->options.apart == CLUSTER_APART_BY_COST ? node_requests(x) : delayed->mean[x->prefills_only],
        .answer_tokens = t->options.apart != CLUSTER_APART_NEVER ? expected_answer(t, r) : 0,
        .busy = x->busy,
    };
}

/* ---- the ITL goal ---- */

int32_t router_own_answers(const router_node *x) {
    BASE_ASSERT(x->n_waiting >= 0 && x->n_waiting <= x->n_sent);
    return x->n_sent - x->n_waiting;
}

static cluster_own_answers own_answers(const cluster_router *t, const router_node *x, uint64_t then_us) {
    cluster_own_answers own = {.answering = router_own_answers(x), .waiting = x->n_waiting};
    for (const cluster_request *r = x->first; r; r = r->next) {
        uint64_t begins = router_ticket_of(r)->answers_us;
        if (r->state != ROUTER_ANSWERING) begins = r->sent_us + (uint64_t)(r->predicted_ttft_ms * 1e3);
        own.then += cluster_admission_decodes(begins, then_us, t->mean_answer_us);
    }
    return own;
}

/* Answers that decode together with the request, now or at its first token. */
static double decoding_rows(const cluster_router *t, const cluster_candidate *c, const rp_engine_load *load,
                            uint64_t now_us) {
    const router_node *x = &t->nodes[c->node];
    if (t->options.admission != CLUSTER_ADMISSION_PREDICTED) return BASE_MAX(load->decoding, router_own_answers(x));
    double after_us = c->ttft_ms * 1e3;
    cluster_own_answers own = own_answers(t, x, now_us + (uint64_t)after_us);
    return cluster_admission_rows(load, &own, after_us, t->mean_answer_us);
}

/* Excludes nodes whose decode steps would exceed the ITL goal. If all do, a request that is not refused for the goal
 * gets one of them. The rule `off` excludes none: the other nodes would have to take all requests, whatever the wait
 * there. */
static void exclude_by_itl(cluster_router *t, cluster_request *r, router_decision *d, uint64_t now_us) {
    bool strict = r->attempts == 0 && cluster_admission_checks_itl(t->options.admission), any = strict;
    bool excludes = t->options.admission != CLUSTER_ADMISSION_OFF;
    double slots = (double)r->prompt_tokens + r->answer_tokens;
    uint64_t retry_ms = UINT64_MAX;
    for (int32_t i = 0; i < r->n_candidates; i++) {
        cluster_candidate *c = &r->candidates[i];
        if (outlook_of(c->excluded) < 0) continue;
        double rows = decoding_rows(t, c, t->facts[i].load, now_us);
        c->step_ms = cluster_admission_step_ms(t->facts[i].load, rows, slots);
        t->facts[i].slow = c->step_ms > t->options.itl_goal_ms;
        if (t->facts[i].slow) retry_ms = BASE_MIN(retry_ms, cluster_admission_retry_itl(rows, t->mean_answer_us));
        else if (!c->excluded) any = true;
    }
    for (int32_t i = 0; i < r->n_candidates && any && excludes; i++) {
        cluster_candidate *c = &r->candidates[i];
        if (outlook_of(c->excluded) >= 0 && t->facts[i].slow) c->excluded = "itl";
    }
    if (retry_ms != UINT64_MAX) d->retry_ms = retry_ms;
}

/* ---- the decision ---- */

static void see_nodes(cluster_router *t, cluster_request *r, uint64_t now_us) {
    bool as_text = cluster_policy_as_text(t->options.policy);
    BASE_ASSERT((size_t)router_ticket_of(r)->cap_candidates >= t->n_nodes && t->cap_facts >= t->n_nodes);
    const delays delayed = count_delays(t, now_us);
    r->n_candidates = 0;
    if (r->n_items) cluster_index_match(t->index, r->items, r->n_items, (int32_t)t->n_nodes, t->held);
    for (int32_t i = 0; t->pool && i < r->n_items; i++)
        t->pooled[i] = cluster_pool_hints_get(t->pool, &r->items[i].name);
    if (as_text) cluster_policy_order(r, t->order);
    for (size_t i = 0; i < t->n_nodes; i++) {
        if (!t->nodes[i].used || (r->only_node >= 0 && (size_t)r->only_node != i)) continue;
        int32_t k = r->n_candidates++;
        cluster_candidate *c = &r->candidates[k];
        uint8_t *held =
            router_node_is_other(t, &t->nodes[i]) || !r->n_items ? NULL : t->held + i * (size_t)r->n_items;
        t->facts[k] = node_facts(t, r, (int32_t)i, k, &delayed, now_us);
        c->excluded = node_excluded(t, &t->nodes[i], r, now_us);
        if (t->pool && held) cluster_policy_mark_pooled(r, t->pooled, held);
        cluster_policy_see(c, &t->facts[k], r, held, as_text ? t->order : NULL);
    }
}

/* The candidate with the least predicted time among those that can serve the request now, or now or later; -1: none. */
static int32_t least_candidate(const cluster_request *r, bool now) {
    int32_t best = -1;
    for (int32_t i = 0; i < r->n_candidates; i++) {
        const cluster_candidate *c = &r->candidates[i];
        if (now ? c->excluded != NULL : outlook_of(c->excluded) < 0) continue;
        if (best < 0 || c->ttft_ms < r->candidates[best].ttft_ms) best = i;
    }
    return best;
}

static bool any_excluded(const cluster_request *r, const char *reason) {
    for (int32_t i = 0; i < r->n_candidates; i++)
        if (is_reason(r->candidates[i].excluded, reason)) return true;
    return false;
}

static uint64_t busy_retry_ms(const cluster_router *t, const cluster_request *r, uint64_t now_us) {
    uint64_t least = UINT64_MAX;
    for (int32_t i = 0; i < r->n_candidates; i++) {
        uint64_t until = t->nodes[r->candidates[i].node].busy_until_us;
        if (until > now_us) least = BASE_MIN(least, until - now_us);
    }
    return least == UINT64_MAX ? 1 : least / 1000 + 1;
}

/* No node has capacity, now or later. */
static void decide_end(const cluster_router *t, const cluster_request *r, router_decision *d, uint64_t now_us) {
    const router_ticket *tk = router_ticket_of(r);
    d->outcome = CLUSTER_NO_NODE;
    if (r->began) d->outcome = CLUSTER_FAILED;
    else if (tk->n_limited) d->outcome = CLUSTER_ANSWERED;
    else if (tk->failures) d->outcome = CLUSTER_FAILED;
    else if (any_excluded(r, "itl")) d->outcome = CLUSTER_REFUSED_ITL;
    else if (tk->was_busy || any_excluded(r, "busy")) {
        d->outcome = CLUSTER_REFUSED_BUSY;
        d->retry_ms = busy_retry_ms(t, r, now_us);
    }
}

/* Predicted wait of a new request in the queue: until the requests before it are computed, and until as many answers
 * have ended. */
static double queue_wait_ms(const cluster_router *t, const cluster_request *r) {
    int32_t ahead, places = 0, nodes = 0;
    double us = cluster_queue_ahead(&t->queue, r->priority, &ahead);
    for (int32_t i = 0; i < r->n_candidates; i++) {
        if (outlook_of(r->candidates[i].excluded) < 0) continue;
        nodes++;
        places += BASE_MAX(t->facts[i].load->max_running, 1);
    }
    if (!nodes) return 0;
    return BASE_MAX(us / nodes, (ahead + 1) * t->mean_answer_us / places) / 1e3;
}

/* Checks goals and deadline of a request that was not sent before. Returns whether it ends. */
static bool decide_goals(const cluster_router *t, const cluster_request *r, int32_t *chosen, router_decision *d,
                         uint64_t now_us) {
    int32_t least = least_candidate(r, *chosen >= 0);
    if (least < 0) return false;
    double best_ms = r->candidates[least].ttft_ms, waited_ms = (double)(now_us - r->arrived_us) / 1e3,
           goal = t->options.ttft_goal_ms;
    d->outcome = CLUSTER_LATE;
    if (r->deadline_us && now_us + (uint64_t)(best_ms * 1e3) > r->deadline_us) return true;
    if (goal <= 0 || !cluster_admission_checks_ttft(t->options.admission)) return false;
    if (*chosen < 0) best_ms += r->state == ROUTER_QUEUED ? 0 : queue_wait_ms(t, r);
    d->outcome = CLUSTER_REFUSED_TTFT;
    d->retry_ms = cluster_admission_retry_ttft(best_ms, goal);
    if (waited_ms + best_ms > goal) return true;
    if (*chosen >= 0 && waited_ms + r->candidates[*chosen].ttft_ms > goal) *chosen = least;
    return false;
}

static double cost_of(const cluster_router *t, const cluster_request *r, int32_t k) {
    const cluster_candidate *c = &r->candidates[k];
    return (c->compute_ms + c->read_ms) * 1e3 +
           expected_answer(t, r) * cluster_cost_step(t->facts[k].load, SHARED_ROWS, 0, 0) / SHARED_ROWS;
}

router_decision router_decide(cluster_router *t, cluster_request *r, uint64_t now_us) {
    router_decision d = {.node = -1, .outcome = CLUSTER_REFUSED_QUEUE, .retry_ms = 1000};
    if (scratch_grow(t, r)) return d; /* out of memory: as without capacity */
    see_nodes(t, r, now_us);
    if (r->deadline_us && r->deadline_us <= now_us && !r->began) {
        d.outcome = CLUSTER_LATE;
        return d;
    }
    if (t->options.itl_goal_ms > 0) exclude_by_itl(t, r, &d, now_us);
    int32_t chosen = cluster_policy_choose(t->options.policy, t->options.near_ties, r->candidates, t->facts,
                                           r->n_candidates, r, &t->turn, &t->env);
    chosen = router_choose_pair(t, r, chosen, &d.prefill);
    BASE_ASSERT(chosen < r->n_candidates && (chosen < 0 || !r->candidates[chosen].excluded));
    if (r->attempts == 0 && decide_goals(t, r, &chosen, &d, now_us)) return d;
    int32_t about = chosen >= 0 ? chosen : least_candidate(r, false);
    if (about >= 0) d.cost_us = cost_of(t, r, about);
    d.waits = chosen < 0 && about >= 0;
    if (about < 0) decide_end(t, r, &d, now_us);
    if (chosen >= 0) {
        d.candidate = &r->candidates[chosen];
        d.node = d.candidate->node;
        d.prefers_full =
            !d.prefill &&
            cluster_policy_prefers_full(t->options.policy, r->candidates, t->facts, r->n_candidates, chosen);
    }
    return d;
}
