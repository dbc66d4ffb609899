/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: predicted times of a request on each node, and the choice of a node.
 *
 *   T(node) = drain + sum over names that it lacks of compute
 *                   + sum over names on its disk of min(compute, read)
 *                   + compute of the tokens without names
 *
 *   compute: by the node's cost model and the position in the prompt
 *
 * With a pool, names that the node lacks and the pool has cost min(compute, transfer), and a round trip once. The fetch
 * takes place while the node computes the prompts before: T(node) = max(drain, fetch) + the other terms.
 *
 * This is algorithm 1 of Mooncake (FAST'25, section 4).
 *
 * The node with the least T + delayed x (compute + read) + requests x fetch is chosen. A node that computes for 1 ms
 * delays all its requests by 1 ms: waiting prompts, and answers, whose steps include the rows of the prompt. `delayed`
 * is the number of such requests: the mean of the cluster, not that of the node, because routers level the load, so
 * that avoidable work on any node delays the requests of all nodes (docs/cluster-simulation.md). A fetch takes the
 * pool's link, which all nodes share: it delays the requests of all of them.
 *
 * If prefill and decode can be apart (router_apart.c), the predicted time of the answer is part of the cost, and a pair
 * of nodes costs
 *
 *   cost(prefill node, without its answer) + transfer of what the decode node lacks + answer(decode node)
 *
 * `delayed` is then the mean of the nodes of the same role; by cost, without roles, it is the number of the node's own
 * requests, because prompts and answers are not level: a node without answers delays none.
 *
 * Among the nodes whose cost is within the share near_ties of the least, two are drawn and the one with fewer queued
 * tokens is chosen (two random choices: Mitzenmacher, 2001), so that routers with equal views do not all choose the
 * same node.
 */
#ifndef CLUSTER_POLICY_H
#define CLUSTER_POLICY_H

#include "cluster/cost.h"
#include "cluster/router.h"

/* State of a node in a decision. */
typedef struct cluster_facts {
    int32_t node;
    const rp_engine_load *load;      /* of the node's last report; coefficients of another node if it has none */
    const cluster_fetch_cost *fetch; /* from the pool, which the router has hints of; NULL: none */
    double drain_us;                 /* until its prompts are computed, those not reported yet included */
    int64_t queued_tokens;           /* likewise */
    int32_t requests;                /* on it, likewise */
    uint64_t name_hash;              /* of the node's name: for sessions, equal in all routers */
    double requests_of_all;          /* on all nodes, and in the queue: those that a fetch delays */
    double delayed;                  /* requests that computing on the node delays: in general the mean of all nodes */
    double answer_tokens;            /* expected, if its time is part of the cost; 0: it is not */
    double busy;                     /* share of time in which the node computes prompts */
    bool slow;                       /* its decode steps exceed the ITL goal, but it is not excluded: near ties prefer
                                   others */
} cluster_facts;

/* Order of a request's names by position, for policies that count modules as text: [n_items] indices into items. */
void cluster_policy_order(const cluster_request *r, int32_t *order);
/* Does the policy count modules as text? */
bool cluster_policy_as_text(cluster_policy policy);

#define CLUSTER_TIER_POOL 8u /* in held: the node lacks the name, and the pool has it */

/* Marks what a node can fetch. pooled: [n_items] is the name in the pool? held: [n_items] the node's tiers. Text that
 * follows a name that is nowhere is not marked, nor a group without one of its names in the pool. */
void cluster_policy_mark_pooled(const cluster_request *r, const bool *pooled, uint8_t *held);

/* Fills in *c: tokens held and predicted times. held: [n_items] tiers (cluster_index_match) and CLUSTER_TIER_POOL,
 * NULL: nothing is held. order: NULL, or of cluster_policy_order: names count as held only if everything before them
 * is. */
void cluster_policy_see(cluster_candidate *c, const cluster_facts *facts, const cluster_request *r, const uint8_t *held,
                        const int32_t *order);

/* Chooses a candidate that is not excluded; facts: [n], of the same nodes. Returns its index; -1: all are excluded.
 * turn: the last node of round robin, updated. */
int32_t cluster_policy_choose(cluster_policy policy, double near_ties, const cluster_candidate *candidates,
                              const cluster_facts *facts, int32_t n, const cluster_request *r, int32_t *turn,
                              const cluster_env *env);

/* What the policy minimises, in ms. */
double cluster_policy_cost(cluster_policy policy, const cluster_candidate *c, const cluster_facts *facts);

/* Would a node that is excluded as full cost less than the chosen one? A waiting request may then wait for it. false
 * for policies that do not use names. */
bool cluster_policy_prefers_full(cluster_policy policy, const cluster_candidate *candidates, const cluster_facts *facts,
                                 int32_t n, int32_t chosen);

#endif
