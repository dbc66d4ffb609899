/* SPDX-License-Identifier: Apache-2.0 */
/* router_apart.c: prefill and decode on two nodes: the choice of a pair, and the load of prompts that a node computes
 * for others (router_internal.h). A request is on its decode node; its prefill node has no state that must be freed. */
#include "base/check.h"
#include "base/compiler.h"
#include "cluster/cost.h"
#include "cluster/router_internal.h"

/* May a node compute prompts for others, or answer after others' prefill? By cost, each node may do both. */
static bool has_role(const cluster_router *t, const cluster_candidate *c, bool prefill) {
    return t->options.apart == CLUSTER_APART_BY_COST || t->nodes[c->node].prefills_only == prefill;
}

/* KV of the prompt that a decode node lacks. */
static double move_ms(const cluster_router *t, const cluster_request *r, int32_t i) {
    double bytes =
        (double)(r->prompt_tokens - r->candidates[i].held_tokens) * (double)t->facts[i].load->kv_bytes_per_token;
    return (t->options.move.rtt_us + cluster_cost_transfer(&t->options.move, bytes)) / 1e3;
}

/* By the policy, among prefill nodes. */
static int32_t choose_prefill(cluster_router *t, cluster_request *r) {
    static const char role[] = "role";
    for (int32_t i = 0; i < r->n_candidates; i++)
        if (!r->candidates[i].excluded && !has_role(t, &r->candidates[i], true)) r->candidates[i].excluded = role;
    int32_t chosen = cluster_policy_choose(t->options.policy, t->options.near_ties, r->candidates, t->facts,
                                           r->n_candidates, r, &t->turn, &t->env);
    for (int32_t i = 0; i < r->n_candidates; i++)
        if (r->candidates[i].excluded == role) r->candidates[i].excluded = NULL;
    return chosen;
}

/* The node with the least time after the prefill: the KV is moved, while the node computes the prompts that it has, and
 * then the answer begins. That time is a part of the cost. */
static int32_t choose_decode(const cluster_router *t, const cluster_request *r, int32_t prefill, double *after_ms) {
    const double prefilled_ms = r->candidates[prefill].ttft_ms;
    int32_t best = -1;
    for (int32_t i = 0; i < r->n_candidates; i++) {
        const cluster_candidate *c = &r->candidates[i];
        if (c->excluded || i == prefill || !has_role(t, c, false)) continue;
        double ms = BASE_MAX(move_ms(t, r, i), c->drain_ms - prefilled_ms) + c->answer_ms;
        if (best >= 0 && ms >= *after_ms) continue;
        best = i;
        *after_ms = ms;
    }
    return best;
}

int32_t router_choose_pair(cluster_router *t, cluster_request *r, int32_t chosen, const cluster_candidate **prefill) {
    const bool always = t->options.apart == CLUSTER_APART_ALWAYS;
    *prefill = NULL;
    if (t->options.apart == CLUSTER_APART_NEVER || r->began || r->only_node >= 0) return chosen;
    double after_ms = 0;
    int32_t p = choose_prefill(t, r), d = p >= 0 ? choose_decode(t, r, p, &after_ms) : -1;
    if (d < 0) return always ? -1 : chosen;
    const cluster_candidate *from = &r->candidates[p];
    double pair_ms = cluster_policy_cost(t->options.policy, from, &t->facts[p]) - from->answer_ms + after_ms;
    if (!always && chosen >= 0 &&
        cluster_policy_cost(t->options.policy, &r->candidates[chosen], &t->facts[chosen]) <= pair_ms)
        return chosen;
    cluster_candidate *to = &r->candidates[d];
    to->fetch_ms = move_ms(t, r, d);
    to->ttft_ms = BASE_MAX(from->ttft_ms + to->fetch_ms, to->drain_ms) + to->step_ms;
    to->compute_ms = to->read_ms = 0;
    to->pool_tokens = r->prompt_tokens - to->held_tokens;
    *prefill = from;
    return d;
}

/* ---- load ---- */

static void prefill_count(router_node *x, const router_ticket *tk, int sign) {
    x->n_prefills += sign;
    x->prefill_tokens += (int64_t)sign * tk->prefill_tokens;
    BASE_ASSERT(x->n_prefills >= 0 && x->prefill_tokens >= 0);
    x->prefill_us = x->n_prefills ? x->prefill_us + sign * tk->prefill_us : 0;
}

void router_prefill_sent(cluster_router *t, cluster_request *r, const cluster_candidate *prefill) {
    router_node *x = &t->nodes[prefill->node];
    router_ticket *tk = router_ticket_of(r);
    r->prefill_node = prefill->node;
    tk->prefill_us = (prefill->compute_ms + prefill->read_ms) * 1e3;
    tk->prefill_tokens = BASE_MAX(r->prompt_tokens - prefill->held_tokens - prefill->pool_tokens, 0);
    tk->prefill_covered = false;
    tk->next_prefill = x->prefills;
    x->prefills = r;
    prefill_count(x, tk, 1);
}

void router_prefill_over(cluster_router *t, cluster_request *r) {
    if (r->prefill_node < 0) return;
    router_node *x = &t->nodes[r->prefill_node];
    router_ticket *tk = router_ticket_of(r);
    cluster_request **at = &x->prefills;
    while (*at && *at != r) at = &router_ticket_of(*at)->next_prefill;
    r->prefill_node = -1;
    if (!*at) return; /* the node was removed, or its number is another's */
    *at = tk->next_prefill;
    if (!tk->prefill_covered) prefill_count(x, tk, -1);
}

void router_prefills_heard(router_node *x, uint64_t before_us) {
    for (cluster_request *r = x->prefills; r; r = router_ticket_of(r)->next_prefill) {
        router_ticket *tk = router_ticket_of(r);
        if (tk->prefill_covered || r->sent_us > before_us) continue;
        tk->prefill_covered = true;
        prefill_count(x, tk, -1);
    }
}
