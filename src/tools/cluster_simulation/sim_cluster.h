/* SPDX-License-Identifier: Apache-2.0 */
/* sim_cluster.h: clients, routers, a network and nodes under one clock.
 *
 *   clients --submit--> router (router.h) --send, cancel--> network --> node
 *                         ^  <-- began, tokens, finished, cut -------------+
 *                         +----- bytes of the span stream (journal.h) -----+
 *
 * A router's only door is cluster_env. Messages of one connection arrive in their order, each after the latency. At
 * every send a fault may happen:
 *
 *   lose    the connection is dead, and nobody knows: the router's transport gives it up after SIM_STALL_US, a stream
 *         has a hole
 *   cut     it breaks: the router is told after the latency, the node gives up the request
 *   delay   up to SIM_DELAY_US more
 *   swallow a request to a node, for ever: its connection lives, and the node does not know it
 */
#ifndef TOOLS_SIM_CLUSTER_H
#define TOOLS_SIM_CLUSTER_H

#include "cluster/router.h"
#include "tools/cluster_simulation/sim_node.h"
#include "reprise_cluster.h"

#define SIM_STALL_US 5000000
#define SIM_DELAY_US 2000000
#define SIM_SWALLOWED_US 5000000 /* of runs with faults: a router's node_timeout_us */
#define SIM_START_US 3000000     /* arrivals begin then: streams are open */
#define SIM_CLIENT_TRIES 3       /* routers that a client asks */

typedef struct sim_faults {
    double lose, cut, delay; /* probabilities at each send */
    double swallow;          /* at each send of a request */
    bool on;
    uint64_t lost, cuts, delays, swallowed, restarts, freezes, router_restarts; /* that happened */
} sim_faults;

/* A request as its client sees it. */
typedef struct sim_request {
    cluster_request r;
    uint32_t serial;   /* of its present connection to a node: messages of others are stale */
    bool is_sent;      /* there is one */
    bool is_broken;    /* it is, and nobody knows yet */
    bool is_swallowed; /* it is, but the node does not know the request */
    bool is_submitted; /* a router has it */
    bool was_cut;      /* by the end of its router, just now */
    uint64_t link_us;  /* its last message arrives then */
    int32_t router, tries;
    bool arrived, ended, lost; /* lost: with its router */
    cluster_outcome outcome;
    int32_t received;                                  /* tokens of the answer */
    uint64_t arrived_us, first_us, ended_us, token_us; /* token_us: when a node sampled the last one */
} sim_request;

/* A router's stream from a node. */
typedef struct sim_link {
    bool is_open;
    uint32_t serial;
    cluster_journal_reader *reader; /* the node's side; NULL: not yet, or no more */
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    uint64_t epoch, after;
    uint64_t arrives_us, poll_us; /* of its last bytes; the next look at the journal */
} sim_link;

struct sim_cluster;
typedef struct sim_router {
    struct sim_cluster *s;
    int32_t number;
    uint32_t life;
    cluster_router *t; /* NULL: down */
    uint64_t begun_us, tick_us;
    sim_random random;
    sim_link *links; /* [n_nodes] */
    bool is_ending;
} sim_router;

#define SIM_GAP_BUCKETS 2048

typedef struct sim_cluster {
    const rp_cluster_simulate_options *o;
    cluster_router_options router_options;
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    sim_clock clock;
    sim_random random;
    sim_workload w;
    sim_request *requests; /* [w.n] */
    size_t n_open;         /* requests that have not ended, or will arrive */
    sim_pool *pool;        /* NULL: none */
    sim_node **nodes;
    sim_router *routers;
    int32_t n_nodes, n_routers;
    sim_faults faults;
    uint64_t latency_us;
    uint64_t gaps[SIM_GAP_BUCKETS];                                         /* inter-token latencies: a logarithmic
                                                                               histogram (sim_gap_bucket) */
    uint64_t router_lost, dropped_turns, retries, continuations, submitted; /* of routers that were restarted, too */
    uint64_t apart;                                                         /* requests sent with a prefill node */
    uint64_t hash;
    uint32_t *seen_by; /* [n_names] 1 + the tenant that asked for it; 0: nobody did */
    char broken[512];
} sim_cluster;

/* o: borrowed; router: copied,
    its secret is drawn. trace as in sim_workload_make. Everything starts at time 1; requests are scheduled. Free it in
    any case. */
int sim_cluster_new(sim_cluster **out, const rp_cluster_simulate_options *o, const cluster_router_options *router,
                    const rp_cluster_trace_request *trace, size_t n, rp_error *err);
void sim_cluster_free(sim_cluster *s);

/* An invariant does not hold: the first one is kept. */
void sim_cluster_broken(sim_cluster *s, const char *format, ...) BASE_PRINTF(2, 3);

/* Faults of nodes and routers. A killed node starts again by itself, with a new epoch, after down_us; a router
   likewise. */
void sim_cluster_kill_node(sim_cluster *s, int32_t node, uint64_t down_us);
void sim_cluster_restart_router(sim_cluster *s, int32_t router, uint64_t down_us);

/* A router's retries and continuations are within their share. */
void sim_cluster_check_retries(sim_cluster *s, const sim_router *u);

/* 32 buckets for each power of two. */
int sim_gap_bucket(uint64_t us);
uint64_t sim_gap_of(int bucket);

#endif
