/* SPDX-License-Identifier: Apache-2.0 */
/* router_internal.h: the parts of a router: nodes (router_nodes.c), the choice of a node for a request (router_placing.c), the life of a request
 * (router_requests.c), and the functions of router.h that use all of them (router.c). A part uses those before it.
 *
 * Load that a node has not reported yet. What this router sent counts twofold:
 *
 *   sent - - arrives - - - - - - first byte                drain = max(report's drain + uncovered, own)
 *     |<------ uncovered ----->|       |
 *     |       until a report that was made ARRIVAL_US after it was sent
 *     |<----------- own: the work of requests without first byte, less the time since ---->|
 *
 * A report says by the node's own clock when it was made; its age is how much later it came than the fastest one of its node. A report that was
 * delayed, or made before the request arrived, therefore covers nothing. Requests that take longer than ARRIVAL_US to arrive are covered too early:
 * then `own` remains, which no report can make smaller. It ends by itself (the node works on it, as predicted), so that a wrong prediction or a
 * half finished prefill cannot count for ever.
 */
#ifndef CLUSTER_ROUTER_INTERNAL_H
#define CLUSTER_ROUTER_INTERNAL_H

#include "cluster/deadlines.h"
#include "cluster/policy.h"
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

/* The router's own data of a request that has not ended; cluster_request.own. */
typedef struct router_ticket {
    cluster_place place; /* in the queue */
    cluster_due due;     /* request_due has the rule */
    int32_t failures;    /* nodes on which it failed after it was sent: 2 end it */
    bool was_busy;       /* a node was too busy for it */
    int32_t n_limited;   /* nodes that refused it for the limits of its tenant; the last reply is kept */
    bool covered;        /* the node's report counts it */
    double work_us;      /* predicted: computing and reading, on its node */
    int32_t work_tokens; /* to be computed there */
    uint64_t answers_us; /* its present node's first byte */
    int32_t cap_candidates;
    char identity[65];            /* of the node on which it began: a continuation needs the same KV */
    uint64_t tried[ROUTER_WORDS]; /* nodes that are not asked again */
    struct router_ticket *next;   /* in the list of free ones */
} router_ticket;

typedef struct router_node {
    bool used, draining, stream_is_open;
    bool said_drains; /* to a request, since its last report */
    char name[CLUSTER_NODE_NAME_BYTES];
    uint64_t name_hash;
    cluster_view *view;
    uint64_t opened_us;     /* its stream */
    uint64_t busy_until_us; /* it asked not to be asked before, or could not be reached */

    /* Requests that it has from this router, in the order in which they were sent. */
    cluster_request *first, *last;
    int32_t n_sent, n_waiting; /* all; without first byte */
    double waiting_us;         /* work of those without first byte */
    uint64_t own_until_us;     /* when it has done that, as predicted */
    int32_t n_uncovered;
    int64_t uncovered_tokens;
    double uncovered_us;
    int32_t n_gone; /* ended since the last report */

    /* Its last report. */
    uint64_t epoch, report_sent_us, report_heard_us, report_made_us; /* sent: its clock; heard, made: ours */
    double clock_us;                                                 /* ours less its own, at least: of the fastest report */
    uint64_t placed, failed, silent;

    /* Silence of requests (router_look_silent). */
    uint64_t heard_us;        /* the node's last sign of life of any of them */
    uint64_t look_us;         /* when they are looked at next */
    uint64_t silent_until_us; /* suspect until then, since it answered none of them */
    int32_t n_silences;       /* in a row, without an answer between */
} router_node;

struct cluster_router {
    cluster_router_options options;
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_env env;
    cluster_index *index;
    router_node *nodes; /* [n_nodes], used or not */
    size_t n_nodes, cap_nodes;
    uint64_t nodes_due_us; /* before it no node needs anything */
    char identity[65];
    char model[CLUSTER_MODEL_NAME_BYTES]; /* that nodes of that identity serve */

    cluster_queue queue;
    cluster_deadlines deadlines;
    cluster_speculation speculation;
    int32_t turn; /* of round robin */
    bool is_inside;
    cluster_router_counts counts;
    int32_t n_requests;

    double retry_budget;                       /* retries and continuations that may be begun */
    uint64_t budget_us;                        /* when it was last refilled */
    double mean_answer_us, mean_answer_tokens; /* of the last answers; 0: none yet */

    router_ticket *free_tickets, **slabs; /* [n_slabs] */
    size_t n_slabs, cap_slabs;

    /* Scratch of one choice. */
    cluster_facts *facts;  /* [cap_facts] */
    rp_engine_load *loads; /* [cap_loads] stand-ins */
    uint8_t *held;         /* [n_nodes][n_items] */
    int32_t *order;        /* [n_items] */
    size_t cap_facts, cap_loads, cap_held, cap_order;
};

static inline router_ticket *router_ticket_of(const cluster_request *r) { return r->own; }
static inline uint64_t router_now(const cluster_router *t) { return t->env.now_us(t->env.user); }

/* ---- nodes ---- */

int router_node_add(cluster_router *t, const char *name, int32_t *node, rp_error *err);
void router_node_remove(cluster_router *t, router_node *x); /* it has no requests */
const cluster_load *router_node_load(const router_node *x);
const cluster_hello *router_node_hello(const router_node *x);
cluster_health router_node_health(const router_node *x, uint64_t now_us);
bool router_node_is_other(const cluster_router *t, const router_node *x); /* of another identity than the plans */
/* Why it gets no new requests now, whatever they are; NULL: it does. */
const char *router_node_excluded(const cluster_router *t, const router_node *x, uint64_t now_us);
bool router_node_is_full(const cluster_router *t, const router_node *x);
/* A request was sent; it has its first byte; it is the node's no more. */
void router_node_sent(router_node *x, cluster_request *r, uint64_t now_us);
void router_node_began(router_node *x, cluster_request *r, uint64_t now_us);
void router_node_left(router_node *x, cluster_request *r, uint64_t now_us);
/* A report may have come. */
void router_node_heard(router_node *x, uint64_t now_us);
/* Predicted time until its prompts are computed. */
double router_node_drain_us(const router_node *x, uint64_t now_us);
/* Opens its stream if it is time; returns when the node needs something next. */
uint64_t router_node_tick(cluster_router *t, router_node *x, uint64_t now_us);
void router_node_close(cluster_router *t, router_node *x, uint64_t now_us);

/* ---- choice ---- */

typedef struct router_decision {
    int32_t node;            /* >= 0: it may be sent there */
    bool waits;              /* in the queue */
    bool prefers_full;       /* another node, if it had room */
    cluster_outcome outcome; /* else: how it ends */
    uint64_t retry_ms;
    double cost_us; /* predicted time that it takes of its tenant's share */
    const cluster_candidate *candidate;
} router_decision;
router_decision router_decide(cluster_router *t, cluster_request *r, uint64_t now_us);
/* Without costs: is there a node that may take it now (1), later (0), or none (-1)? */
int router_outlook(const cluster_router *t, const cluster_request *r, uint64_t now_us);
/* Without a request: has some node room (1), or will one (0)? */
int router_room(const cluster_router *t, uint64_t now_us);
int32_t router_own_answers(const router_node *x);

/* ---- requests ---- */

void router_submit(cluster_router *t, cluster_request *r);
void router_began(cluster_router *t, cluster_request *r);
void router_finished(cluster_router *t, cluster_request *r);
void router_failed(cluster_router *t, cluster_request *r, cluster_failure failure, uint64_t retry_ms);
void router_cancelled(cluster_router *t, cluster_request *r);
/* Its requests go elsewhere: it is dead, or removed. */
void router_move_all(cluster_router *t, router_node *x);
/* Requests of the node without a sign of life: asks it about them, and gives up those whose time is over. Returns when to call again. */
uint64_t router_look_silent(cluster_router *t, router_node *x, uint64_t now_us);
/* Ends those whose deadline has passed (long ago, if a node has them), or their TTFT goal while they waited. */
void router_expire(cluster_router *t);
/* Sends what waits and has a node. */
void router_dispatch(cluster_router *t);
void router_requests_free(cluster_router *t);
cluster_place *router_place_of(const cluster_request *r);
cluster_due *router_due_of(const cluster_request *r);

#endif
