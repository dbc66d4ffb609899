/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: predicted times of a request on each node, and the choice of a node.
 *
 *   T(node) = drain + sum over names that it lacks of compute
 *                   + sum over names on its disk of min(compute, read)
 *                   + compute of the tokens without names
 *
 *   compute: by the node's cost model and the position in the prompt
 *
 * This is algorithm 1 of Mooncake (FAST'25, section 4), without transfers of KV.
 *
 * The node with the least T + delayed x (compute + read) is chosen. A node that computes for 1 ms delays all its
 * requests by 1 ms: waiting prompts, and answers, whose steps include the rows of the prompt. `delayed` is the number
 * of such requests: the mean of the cluster, not that of the node, because routers level the load, so that avoidable
 * work on any node delays the requests of all nodes (docs/cluster-simulation.md).
 *
 * Among the nodes whose cost is within the share near_ties of the least, two are drawn and the one with fewer queued
 * tokens is chosen (two random choices: Mitzenmacher, 2001), so that routers with equal views do not all choose the
 * same node.
 */
#ifndef CLUSTER_POLICY_H
#define CLUSTER_POLICY_H

#include "cluster/router.h"

/* State of a node in a decision. */
typedef struct cluster_facts {
    int32_t node;
    const rp_engine_load *load; /* of the node's last report; coefficients of another node if it has not measured its
                                   own */
    double drain_us;            /* until its prompts are computed, those not reported yet included */
    int64_t queued_tokens;      /* likewise */
    int32_t requests;           /* on it, likewise */
    uint64_t name_hash;         /* of the node's name: for sessions, equal in all routers */
    double delayed;             /* requests that computing on a node delays: the mean, equal for all nodes */
    bool slow;                  /* its decode steps exceed the ITL goal, but it is not excluded: near ties prefer
                                   others */
} cluster_facts;

/* Order of a request's names by position, for policies that count modules as text: [n_items] indices into items. */
void cluster_policy_order(const cluster_request *r, int32_t *order);
/* Does the policy count modules as text? */
bool cluster_policy_as_text(cluster_policy policy);

/* Fills in *c: tokens held and predicted times. held: [n_items] tiers (cluster_index_match), NULL: nothing is held.
 * order: NULL, or of cluster_policy_order: names count as held only if everything before them is. */
void cluster_policy_see(cluster_candidate *c, const cluster_facts *facts, const cluster_request *r, const uint8_t *held,
                        const int32_t *order);

/* Chooses a candidate that is not excluded; facts: [n], of the same nodes. Returns its index; -1: all are excluded.
 * turn: the last node of round robin, updated. */
int32_t cluster_policy_choose(cluster_policy policy, double near_ties, const cluster_candidate *candidates,
                              const cluster_facts *facts, int32_t n, const cluster_request *r, int32_t *turn,
                              const cluster_env *env);

/* Would a node that is excluded as full cost less than the chosen one? A waiting request may then wait for it. false
 * for policies that do not use names. */
bool cluster_policy_prefers_full(cluster_policy policy, const cluster_candidate *candidates, const cluster_facts *facts,
                                 int32_t n, int32_t chosen);

#endif
