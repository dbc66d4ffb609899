/* SPDX-License-Identifier: Apache-2.0 */
/* router_internal.h: the parts of a router: nodes (router_nodes.c), the decision about a request (router_placing.c),
 * the life of a request (router_requests.c), and the functions of router.h, which use all of them (router.c). A part
 * uses those before it.
 *
 * Load that a node's last report does not include yet. Requests that this router sent are counted in two ways:
 *
 *   sent - - arrives - - - - - - first byte                drain = max(report's drain + uncovered, own)
 *     |<------ uncovered ----->|       |
 *     |       until a report that was made ARRIVAL_US after it was sent
 *     |<----------- own: the work of requests without first byte, less the time since ---->|
 *
 * A report has its time by the node's own clock; its age is its delay beyond that of the node's fastest report. A
 * report that was delayed, or made before the request arrived, therefore covers nothing. Requests that take longer than
 * ARRIVAL_US to arrive are covered too early; `own`, which no report reduces, still counts them. `own` decreases with
 * time, as the node is predicted to work on it, so that a wrong prediction or a prefill that is half complete does not
 * count forever.
 */
#ifndef CLUSTER_ROUTER_INTERNAL_H
#define CLUSTER_ROUTER_INTERNAL_H

#include "cluster/deadlines.h"
#include "cluster/policy.h"
#include "cluster/pool_hints.h"
#include "cluster/request_queue.h"
#include "cluster/speculation.h"
#include "reprise_cluster.h"

#define ROUTER_WORDS (CLUSTER_MAX_NODES / 64)
#define ROUTER_TICKETS_AT_ONCE 64

typedef enum router_state {
    ROUTER_NEW,
    ROUTER_QUEUED,
    ROUTER_SENT,
    ROUTER_ANSWERING,
    ROUTER_ENDED,
} router_state;

/* The router's private data of a request, until it ends: cluster_request.own. */
typedef struct router_ticket {
    cluster_place place;    /* in the queue */
    cluster_due due;        /* for the rule see request_due */
    int32_t failures;       /* nodes on which it failed after it was sent: the second one ends it */
    bool was_busy;          /* a node was too busy for it */
    int32_t n_limited;      /* nodes that refused it by limits of its tenant; the last reply is kept */
    bool covered;           /* included in the node's last report */
    double work_us;         /* predicted: computing and reading, on its node */
    int32_t work_tokens;    /* to be computed on its node */
    uint64_t answers_us;    /* first byte from its current node */
    double prefill_us;      /* on its prefill node: predicted work */
    int32_t prefill_tokens; /* to be computed there */
    bool prefill_covered;   /* included in that node's last report */
    cluster_request *next_prefill;
    int32_t cap_candidates;
    char identity[65];            /* of the node on which it began: a continuation needs the same KV */
    uint64_t tried[ROUTER_WORDS]; /* bit set of nodes that it is not sent to again */
    struct router_ticket *next;   /* in the free list */
} router_ticket;

typedef struct router_node {
    bool used, draining, stream_is_open;
    bool said_drains; /* in the reply to a request, since its last report */
    char name[CLUSTER_NODE_NAME_BYTES];
    uint64_t name_hash;
    cluster_view *view;
    uint64_t opened_us;     /* its stream */
    uint64_t busy_until_us; /* gets no requests until then: by its Retry-After, or since it was unreachable */

    /* Requests of this router that it has, in the order of sending. */
    cluster_request *first, *last;
    int32_t n_sent, n_waiting; /* all; those without a first byte */
    double waiting_us;         /* work of those without a first byte */
    uint64_t own_until_us;     /* predicted end of that work */
    int32_t n_uncovered;
    int64_t uncovered_tokens;
    double uncovered_us;
    bool prefills_only; /* its role with CLUSTER_APART_ALWAYS */
    /* Prompts that it computes for other nodes, without a first byte there; of them not covered. */
    cluster_request *prefills;
    int32_t n_prefills;
    int64_t prefill_tokens;
    double prefill_us;
    double busy;    /* share of time with prompts to compute, of about the last BUSY_US */
    int32_t n_gone; /* covered ones that ended since the last report */

    /* Its last report. */
    uint64_t epoch, report_sent_us, report_heard_us, report_made_us; /* sent: by its clock; heard, made: by ours */
    double clock_us;                                                 /* our clock less its clock, plus the delay of the
                                                                        fastest report */
    uint64_t placed, failed, silent;

    /* Silence of requests (router_look_silent). */
    uint64_t heard_us;        /* last sign of life of any request, from the node */
    uint64_t look_us;         /* next check of its requests */
    uint64_t silent_until_us; /* suspect until then: it gave no sign of life of any request */
    int32_t n_silences;       /* consecutive ones, without an answer between them */
} router_node;

struct cluster_router {
    cluster_router_options options;
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_env env;
    cluster_index *index;
    cluster_pool_hints *pool; /* NULL: there is no pool */
    router_node *nodes;       /* [n_nodes], used or not */
    size_t n_nodes, cap_nodes;
    uint64_t nodes_due_us; /* next time at which a node needs router_node_tick */
    char identity[65];
    char model[CLUSTER_MODEL_NAME_BYTES]; /* name of the model of that identity */

    cluster_queue queue;
    cluster_deadlines deadlines;
    cluster_speculation speculation;
    int32_t turn;   /* of round robin: the last node */
    bool is_inside; /* within a call: the table's functions must not call the router */
    cluster_router_counts counts;
    int32_t n_requests;

    double retry_budget;                       /* retries and continuations that may be started */
    uint64_t budget_us;                        /* time of the last refill */
    double mean_answer_us, mean_answer_tokens; /* of the last answers; 0: none yet */

    router_ticket *free_tickets, **slabs; /* [n_slabs] */
    size_t n_slabs, cap_slabs;

    /* Scratch memory of one decision. */
    cluster_facts *facts;  /* [cap_facts] */
    rp_engine_load *loads; /* [cap_loads] loads with the coefficients of another node (node_facts) */
    uint8_t *held;         /* [n_nodes][n_items] */
    bool *pooled;          /* [n_items] is the name in the pool? */
    int32_t *order;        /* [n_items] */
    size_t cap_facts, cap_loads, cap_held, cap_pooled, cap_order;
};

static inline router_ticket *router_ticket_of(const cluster_request *r) { return r->own; }
static inline uint64_t router_now(const cluster_router *t) { return t->env.now_us(t->env.user); }

/* ---- nodes ---- */

int router_node_add(cluster_router *t, const char *name, int32_t *node, rp_error *err);
void router_node_remove(cluster_router *t, router_node *x); /* it must have no requests */
const cluster_load *router_node_load(const router_node *x);
const cluster_hello *router_node_hello(const router_node *x);
cluster_health router_node_health(const router_node *x, uint64_t now_us);
bool router_node_is_other(const cluster_router *t, const router_node *x); /* its identity is not that of the plans */
/* Why it gets no new requests now, independent of the request; NULL: it gets them. */
const char *router_node_excluded(const cluster_router *t, const router_node *x, uint64_t now_us);
bool router_node_is_full(const cluster_router *t, const router_node *x);
/* A request was sent to the node; its first byte has arrived; it has left the node. */
void router_node_sent(router_node *x, cluster_request *r, uint64_t now_us);
void router_node_began(router_node *x, cluster_request *r, uint64_t now_us);
void router_node_left(router_node *x, cluster_request *r, uint64_t now_us);
/* Bytes of its stream have arrived, perhaps a new load. */
void router_node_heard(router_node *x, uint64_t now_us);
/* Predicted time until all its prompts are computed. */
double router_node_drain_us(const router_node *x, uint64_t now_us);
/* Opens its stream if that is due; returns when to call it next. */
uint64_t router_node_tick(cluster_router *t, router_node *x, uint64_t now_us);
void router_node_close(cluster_router *t, router_node *x, uint64_t now_us);

/* ---- prefill and decode apart: router_apart.c ---- */

/* Chooses a pair of nodes in place of the chosen one (-1: none has capacity), if the option says so. Returns the decode
 * node's candidate, whose times are then those of the pair, and *prefill that of the prefill node; or `chosen`, and
 * NULL. */
int32_t router_choose_pair(cluster_router *t, cluster_request *r, int32_t chosen, const cluster_candidate **prefill);
/* The prefill node of a request gets work; the request has its first byte, or has left its node. */
void router_prefill_sent(cluster_router *t, cluster_request *r, const cluster_candidate *prefill);
void router_prefill_over(cluster_router *t, cluster_request *r);
/* A new report of a node covers what was sent before. */
void router_prefills_heard(router_node *x, uint64_t before_us);

/* ---- choice ---- */

typedef struct router_decision {
    int32_t node;            /* >= 0: it can be sent to this node */
    bool waits;              /* it has to wait in the queue */
    bool prefers_full;       /* a full node would be better */
    cluster_outcome outcome; /* otherwise: how it ends */
    uint64_t retry_ms;
    double cost_us; /* predicted time that is charged to its tenant */
    const cluster_candidate *candidate;
    const cluster_candidate *prefill; /* computes the prompt for `node`; NULL: none */
} router_decision;
router_decision router_decide(cluster_router *t, cluster_request *r, uint64_t now_us);
/* Without costs: can a node take it now (1), only later (0), or none (-1)? */
int router_outlook(const cluster_router *t, const cluster_request *r, uint64_t now_us);
/* For any request: has a node capacity now (1), only later (0), or none (-1)? */
int router_room(const cluster_router *t, uint64_t now_us);
/* Answers of this router that a node decodes. */
int32_t router_own_answers(const router_node *x);

/* ---- requests ---- */

void router_submit(cluster_router *t, cluster_request *r);
void router_began(cluster_router *t, cluster_request *r);
void router_finished(cluster_router *t, cluster_request *r);
void router_failed(cluster_router *t, cluster_request *r, cluster_failure failure, uint64_t retry_ms);
void router_cancelled(cluster_router *t, cluster_request *r);
/* Retries its requests on other nodes: it is dead, or removed. */
void router_move_all(cluster_router *t, router_node *x);
/* Checks its requests for silence: sends a liveness query, and fails those without a sign of life for node_timeout_us.
 * Returns when to call it next. */
uint64_t router_look_silent(cluster_router *t, router_node *x, uint64_t now_us);
/* Ends requests past their deadline (of those that a node has, CLUSTER_DEAD_US later), and waiting ones past their TTFT
 * goal. */
void router_expire(cluster_router *t);
/* Sends queued requests for which a node has capacity. */
void router_dispatch(cluster_router *t);
void router_requests_free(cluster_router *t);
cluster_place *router_place_of(const cluster_request *r);
cluster_due *router_due_of(const cluster_request *r);

#endif
