/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: how a node looks to a request, and which one is chosen.
 *
 *   T(node) = drain + sum over names that it lacks of their computing           computing: by its own cost model and the place in the prompt
 *                   + sum over names on its disk of min(computing, reading)     (Mooncake's algorithm 1, without a transfer: FAST'25, section 4)
 *                   + computing of the tokens without names
 *
 * The least T + delayed x (computing + reading) is taken. A node that computes for 1 ms delays by 1 ms whatever it has: prompts that wait, and
 * answers, whose steps have the rows of the prompt, too. `delayed` is how many that are: the mean of the cluster, not the node's own, because a
 * router levels the load, so that what is computed in vain anywhere delays the requests of all nodes (docs/cluster-simulation.md).
 *
 * Of the nodes within the share near_ties of the least, two are drawn and the one with fewer tokens queued is taken (two random choices:
 * Mitzenmacher, 2001), so that routers with equal views do not all choose the same node.
 */
#ifndef CLUSTER_POLICY_H
#define CLUSTER_POLICY_H

#include "cluster/router.h"

/* What is known of a node when a request is placed. */
typedef struct cluster_facts {
    int32_t node;
    const rp_engine_load *load; /* coefficients and counts: of the node's last report, or stand-ins where it has measured nothing */
    double drain_us;            /* until it has computed its prompts, requests that its report does not count yet included */
    int64_t queued_tokens;      /* likewise */
    int32_t requests;           /* that it has, likewise */
    uint64_t name_hash;         /* of the node's name: for sessions, equal in all routers */
    double delayed;             /* requests that computing delays: of a node on average; equal in all facts of a choice */
    bool slow;                  /* its steps would miss an ITL goal for which nothing is refused: others are preferred among near ties */
} cluster_facts;

/* A request's names in the order of their positions, for the policies that see text alone: [n_items] indices into items. */
void cluster_policy_order(const cluster_request *r, int32_t *order);
/* Does the policy see modules as text? */
bool cluster_policy_as_text(cluster_policy policy);

/* Fills in *c: tokens held and predicted times. held: [n_items] tiers (cluster_index_match), NULL: nothing is held. order: NULL, or of
 * cluster_policy_order: names count as held only if everything before them is. */
void cluster_policy_see(cluster_candidate *c, const cluster_facts *facts, const cluster_request *r, const uint8_t *held, const int32_t *order);

/* Chooses one of the candidates that are not excluded; facts: [n], of the same nodes. Returns its index; -1: all are excluded. turn: of round
 * robin, updated. random: of the table. */
int32_t cluster_policy_choose(cluster_policy policy, double near_ties, const cluster_candidate *candidates, const cluster_facts *facts, int32_t n,
                              const cluster_request *r, int32_t *turn, const cluster_env *env);

/* Would one that is excluded as full cost less than the chosen one? A request that waits may then wait for it. Policies that look at names. */
bool cluster_policy_prefers_full(cluster_policy policy, const cluster_candidate *candidates, const cluster_facts *facts, int32_t n, int32_t chosen);

#endif
