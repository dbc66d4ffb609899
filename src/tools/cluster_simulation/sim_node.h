/* SPDX-License-Identifier: Apache-2.0 */
/* sim_node.h: a simulated node: a queue, steps of chunked prefill and batched decode, KV and a journal. Its times are
 * those of the cost model that it reports; its tokens are hashes of (request, number of the token).
 *
 *   arrive --> waiting --KV for it, max_sequences--> running: prefill in chunks, then a token a step --> finished
 *
 * A step has a row for each answer and up to chunk_tokens rows of prompts, the oldest first. What arrives during a step
 * waits for its end. A frozen node does nothing, and does it afterwards; a dead one drops everything.
 *
 * If a request has a prefill node, that one computes the prompt, in a job without an answer; then the request waits
 * here, and fetches what this node lacks and that one has, as from a pool:
 *
 *   arrive --prefill--> away --prefilled--> waiting
 *
 * With a pool, a running request first fetches the names that the node lacks and the pool has, if that is faster than
 * computing them, while the node computes other requests.
 */
#ifndef TOOLS_SIM_NODE_H
#define TOOLS_SIM_NODE_H

#include "base/compiler.h"
#include "cluster/cost.h"
#include "cluster/journal.h"
#include "tools/cluster_simulation/sim_cache.h"
#include "tools/cluster_simulation/sim_clock.h"
#include "tools/cluster_simulation/sim_pool.h"
#include "tools/cluster_simulation/sim_workload.h"

typedef enum sim_reply {
    SIM_BEGAN,
    SIM_TOKENS,
    SIM_FINISHED,
    SIM_BUSY,
    SIM_REFUSED,
    SIM_CUT,
    SIM_UNREACHABLE
} sim_reply;

/* A request as a node has it. serial: of the connection. */
typedef struct sim_call {
    uint32_t request, serial;
    int32_t router;
    int32_t resumed;      /* tokens of the answer that were sampled before */
    int32_t prefill_node; /* -1: none */
    int32_t for_node;     /* this is its prefill node's job; -1: it is not */
    const sim_prompt *prompt;
} sim_call;

typedef struct sim_node sim_node;

/* What a node does to others. */
typedef struct sim_port {
    void *user;
    /* Tokens [from, to) of the answer have been sampled; check: the sum of their hashes. Of SIM_FINISHED and others:
       none. */
    void (*reply)(void *user, int32_t node, const sim_call *call, sim_reply what, int32_t from, int32_t to,
                  uint64_t check);
    void (*sampled)(void *user, int32_t node, uint32_t request); /* a token, now */
    void (*changed)(void *user, int32_t node);                   /* its names did */
    void (*pooled)(void *user, const rp_name *names, size_t n);  /* they were written to the pool */
    /* The prefill node of a call gets it; the call's prompt is computed, or cannot be, for call->for_node. */
    void (*prefill)(void *user, int32_t node, const sim_call *call);
    void (*prefilled)(void *user, int32_t node, const sim_call *call);
    sim_node *(*node_of)(void *user, int32_t node);
    void (*broken)(void *user, const char *what); /* an invariant */
} sim_port;

typedef struct sim_node_options {
    int64_t kv_tokens, disk_tokens;
    rp_engine_load costs;               /* coefficients; kv_bytes_per_token, max_running, chunk_tokens */
    int32_t max_waiting, report_tokens; /* tokens of an answer are reported so many at a time */
    uint64_t index_age_us;
    bool no_queues;
    const uint8_t *secret;
    cluster_fetch_cost fetch; /* from the pool, and from a prefill node */
    sim_pool *pool;           /* NULL: none */
} sim_node_options;

/* Created dead. options, pool, workload, clock, port: borrowed. RP_ERR_MEMORY. */
int sim_node_new(sim_node **out, int32_t number, const sim_node_options *o, const sim_workload *w, sim_clock *clock,
                 const sim_port *port);
void sim_node_free(sim_node *n);

int sim_node_start(sim_node *n, uint64_t epoch); /* RP_ERR_MEMORY */
void sim_node_kill(sim_node *n);                 /* the journal's readers must be closed before */
void sim_node_freeze(sim_node *n, uint64_t until_us);
void sim_node_drain(sim_node *n, bool drains);
bool sim_node_is_up(const sim_node *n);
uint64_t sim_node_frozen_until(const sim_node *n); /* 0: not frozen */
cluster_journal *sim_node_journal(sim_node *n);    /* NULL: dead. Its load is made by sim_node_report */
void sim_node_report(sim_node *n);

void sim_node_arrive(sim_node *n, const sim_call *call);
/* The prompt of a request that is away is computed, or cannot be. */
void sim_node_prefilled(sim_node *n, uint32_t request, uint32_t serial);
void sim_node_cancel(sim_node *n, uint32_t request, uint32_t serial);

typedef struct sim_node_totals {
    double busy_us;
    int64_t prompt_tokens, hit_tokens, answer_tokens;
    int64_t fetched_names, fetched_tokens; /* of the hits, from the pool */
    int32_t jobs;                          /* now */
    sim_cache_use cache;
} sim_node_totals;
sim_node_totals sim_node_total(const sim_node *n);

/* Fake arithmetic: the i-th token of a request's answer. */
static inline uint64_t sim_token(uint32_t request, int32_t i) {
    return base_mix64(((uint64_t)request << 32) + (uint64_t)i + 1);
}

#endif
