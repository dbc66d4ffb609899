/* SPDX-License-Identifier: Apache-2.0 */
/* router.h: requests from arrival to end.
 *
 *   submit --> QUEUED --chosen--> SENT --first byte--> ANSWERING --> ended
 *                |                  |                      |
 *                |                  +--failed: one retry --+--failed: continued on another node, from the tokens so far
 *                +--no node meets its goals, deadline, queue full: refused (429, 503)
 *
 * The router decides; its transport (HTTP in src/server/route, or the simulation) sends, and reports what happens. One thread at a time: the
 * transport calls, and the router calls the table back before it returns.
 * The table's functions do not call the router: a send that fails at once is reported after the call that sent it has returned.
 */
#ifndef CLUSTER_ROUTER_H
#define CLUSTER_ROUTER_H

#include "cluster/view.h"

#define CLUSTER_MAX_REQUESTS 65536 /* not ended */

/* X(ID, "name"): how a node is chosen among those that may have the request. */
#define CLUSTER_POLICIES(X) \
    X(RANDOM, "random") \
    X(ROUND_ROBIN, "round-robin") \
    X(LEAST_LOADED, "least-loaded")   /* fewest prompt tokens queued */ \
    X(LONGEST_MATCH, "longest-match") /* most tokens held, as prefix routers do: text alone, from its beginning */ \
    X(SESSION, "session")             /* by a hash of the session, else of the tenant */ \
    X(PREFIX_COST, "prefix-cost")     /* cost, but modules count as text: held only if everything before them is */ \
    X(COST, "cost")                   /* least predicted time to first token over all names, and delay of others; the default */
typedef enum cluster_policy {
#define X(id, name) CLUSTER_POLICY_##id,
    CLUSTER_POLICIES(X)
#undef X
        CLUSTER_N_POLICIES
} cluster_policy;

/* X(ID, "name"): when a request that will miss its goals is refused (Mooncake, FAST'25). */
#define CLUSTER_ADMISSIONS(X) \
    X(OFF, "off")                     /* never: the queue's limit and deadlines alone */ \
    X(AFTER_PREFILL, "after-prefill") /* the ITL goal is checked when the prefill has ended: its work is lost */ \
    X(AT_ARRIVAL, "at-arrival")       /* by the load at arrival */ \
    X(PREDICTED, "predicted")         /* by the load that is predicted for the time at which the prefill will end; the default */
typedef enum cluster_admission {
#define X(id, name) CLUSTER_ADMISSION_##id,
    CLUSTER_ADMISSIONS(X)
#undef X
        CLUSTER_N_ADMISSIONS
} cluster_admission;

typedef struct cluster_router_options {
    cluster_policy policy;
    cluster_admission admission;
    double ttft_goal_ms, itl_goal_ms; /* 0: none */
    double near_ties;                 /* within this share of the least cost, two are drawn and the less loaded one is taken; default 0.05 */
    int32_t max_queue;                /* requests that wait for a node; default 4096 */
    int32_t max_sent;                 /* per node, beyond what it can run: more wait in the router, where their order can still change; default 4 */
    double retry_share;               /* retries and continuations, as a share of the last requests; default 0.1, and 10 at any time */
    uint64_t speculative_us;          /* life of speculative entries; default 2 s; 0: none */
    uint64_t index_bytes;             /* memory of the index, which nodes share equally; default 512 MiB */
    uint64_t node_timeout_us;         /* without a byte or another sign of life of a request its node has lost it; default 60 s; 0: never */
    const uint8_t *secret;            /* [RP_CLUSTER_KEY_BYTES] */
} cluster_router_options;
cluster_router_options cluster_router_defaults(void);

/* Why a request ended. */
typedef enum cluster_outcome {
    CLUSTER_SERVED,
    CLUSTER_REFUSED_TTFT,  /* no node meets the TTFT goal: 429 with Retry-After */
    CLUSTER_REFUSED_ITL,   /* no node meets the ITL goal: likewise */
    CLUSTER_REFUSED_QUEUE, /* the queue is full: likewise */
    CLUSTER_REFUSED_BUSY,  /* every node refused it: likewise */
    CLUSTER_NO_NODE,       /* none is well: 503 */
    CLUSTER_LATE,          /* its deadline passed before a node had it, or the node that had it did not end it (CLUSTER_DEAD_US later): 504 */
    CLUSTER_FAILED,        /* it failed on two nodes, or the budget of retries is spent: 502, or the stream is cut */
    CLUSTER_ANSWERED,      /* a node answered with an error of its own (4xx, 504): passed on as it is; a 429, if no node takes the request */
    CLUSTER_CANCELLED,     /* by its client */
    CLUSTER_N_OUTCOMES
} cluster_outcome;
const char *cluster_outcome_name(cluster_outcome outcome);

/* How one node was seen when a request was placed: for explain. */
typedef struct cluster_candidate {
    int32_t node;
    /* Why it is none: "dead", "suspect", "draining", "model", "identity", "itl", "tried", "full", "busy"; NULL: it is one. Static */
    const char *excluded;
    int32_t held_tokens, disk_tokens;              /* tokens whose KV it holds; of them only on disk */
    double drain_ms, compute_ms, read_ms, ttft_ms; /* predicted: until idle; missing tokens; reads from disk; their sum */
    double step_ms;                                /* a decode step with it */
} cluster_candidate;

typedef struct cluster_request {
    /* The transport's. */
    const rp_named_kv *items; /* [n_items], borrowed until the end */
    int32_t n_items, prompt_tokens, max_tokens;
    uint64_t tenant, session; /* hashes; session 0: none */
    int32_t priority;
    uint64_t deadline_us; /* 0: none. A node that has the request ends it then */
    int32_t only_node;    /* >= 0: it alone has what the request needs (a stored response); -1 */
    bool continues;       /* it may be continued on another node after its first byte */
    void *user;

    /* The router's; zeros at first. */
    int32_t state, node, attempts;
    bool began;
    int32_t answer_tokens; /* reported so far */
    int32_t held_tokens;   /* by the node that was chosen */
    double predicted_ttft_ms;
    uint64_t arrived_us, sent_us, began_us;
    uint64_t heard_us;             /* its node's last sign of life, or when it was sent */
    cluster_candidate *candidates; /* of the last choice, [n_candidates]; owned; freed by cluster_request_close */
    int32_t n_candidates;
    struct cluster_request *next, *previous; /* in lists of the router */
    void *own;
} cluster_request;
void cluster_request_close(cluster_request *r);

/* What the router needs from outside. */
typedef struct cluster_env {
    void *user;
    uint64_t (*now_us)(void *user); /* monotonic */
    uint64_t (*random)(void *user);
    /* Opens the stream of a node: GET with the nonce, and where to go on. The transport then calls cluster_router_fed and cluster_router_cut. */
    void (*open_stream)(void *user, int32_t node, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after);
    void (*close_stream)(void *user, int32_t node); /* no cluster_router_cut follows */
    /* Sends a request to r->node; r->began: as a continuation. */
    void (*send)(void *user, cluster_request *r);
    /* Gives up what was sent to r->node; nothing is reported of it any more. */
    void (*cancel)(void *user, cluster_request *r);
    /* Asks a node which requests of this router it works on: cluster_router_heard follows for each. Called again until it does. NULL: the
     * transport cannot ask; bytes alone count, then. */
    void (*ask)(void *user, int32_t node);
    /* The request has ended; the router does not use it any more. retry_after_ms: for refusals. */
    void (*end)(void *user, cluster_request *r, cluster_outcome outcome, uint64_t retry_after_ms);
} cluster_env;

typedef struct cluster_router cluster_router;
int cluster_router_new(cluster_router **out, const cluster_router_options *options, const cluster_env *env, rp_error *err);
void cluster_router_free(cluster_router *t); /* all requests have ended */

/* Nodes: numbers from 0; those of removed nodes are used again. RP_ERR_LIMIT (CLUSTER_MAX_NODES), RP_ERR_MEMORY. */
int cluster_router_add_node(cluster_router *t, const char *name, int32_t *node, rp_error *err);
void cluster_router_remove_node(cluster_router *t, int32_t node);
/* No new requests for it; those that it has go on. */
void cluster_router_drain_node(cluster_router *t, int32_t node, bool drains);

/* Of streams. */
void cluster_router_fed(cluster_router *t, int32_t node, const void *bytes, size_t n);
void cluster_router_cut(cluster_router *t, int32_t node);

/* Of requests. submit may end it at once. */
void cluster_router_submit(cluster_router *t, cluster_request *r);
void cluster_router_began(cluster_router *t, cluster_request *r); /* the first byte of a successful reply has come; may end it (after-prefill) */
void cluster_router_progress(cluster_router *t, cluster_request *r, int32_t answer_tokens);
void cluster_router_finished(cluster_router *t, cluster_request *r); /* the whole reply has come */
/* A sign of life of a request that a node has: bytes went to the node or came, or the node said so. at_us: when it was. of_node: the node gave it,
 * so that it is no proof of the connection alone. Of other requests: nothing happens. */
void cluster_router_heard(cluster_router *t, cluster_request *r, uint64_t at_us, bool of_node);
/* Calls fn with each request that a node has. fn may call cluster_router_heard, and nothing else of the router. */
void cluster_router_each_sent(cluster_router *t, int32_t node, void (*fn)(void *user, cluster_request *r), void *user);
/* What a node did to a request, instead. */
typedef enum cluster_failure {
    CLUSTER_NODE_UNREACHABLE, /* no connection: nothing was done */
    CLUSTER_NODE_CUT,         /* the connection broke */
    CLUSTER_NODE_SILENT,      /* no sign of life of the request for node_timeout_us: the router's own */
    CLUSTER_NODE_BUSY,        /* 503: it takes nothing now, from anyone */
    CLUSTER_NODE_DRAINS,      /* likewise, and its next load will say why */
    CLUSTER_NODE_LIMITS,      /* 429: a limit of the request's key or tenant there. The node is as well for others; nothing was done */
    CLUSTER_NODE_ERROR,       /* 500, 502 */
    CLUSTER_NODE_REFUSES,     /* another 4xx: the request's own fault */
} cluster_failure;
void cluster_router_failed(cluster_router *t, cluster_request *r, cluster_failure failure, uint64_t retry_after_ms);
void cluster_router_cancelled(cluster_router *t, cluster_request *r); /* its client left */

/* Does what time demands, and returns when to call again. */
uint64_t cluster_router_tick(cluster_router *t);

/* For reports and metrics. */
typedef struct cluster_node_status {
    char name[CLUSTER_NODE_NAME_BYTES];
    const cluster_hello *hello;
    const cluster_load *load;
    const cluster_view_counts *counts;
    cluster_health health;
    cluster_view_state stream;
    bool draining, other_identity; /* other_identity: its KV has other names than the router's plans */
    int32_t sent;                  /* requests that it has from this router */
    int64_t sent_tokens;           /* prompt tokens of them that it has to compute, and that its load does not count yet */
    size_t names;
    uint64_t placed, failed, silent; /* requests, since the start */
} cluster_node_status;
int32_t cluster_router_nodes(const cluster_router *t);                                     /* numbers in use are below it */
bool cluster_router_node(const cluster_router *t, int32_t node, cluster_node_status *out); /* false: no such node */

typedef struct cluster_router_counts {
    uint64_t submitted, outcomes[CLUSTER_N_OUTCOMES], retries, continuations;
    uint64_t silent; /* requests that a node did not answer within node_timeout_us */
    int32_t queued, sent;
    size_t names;
    uint64_t index_bytes;
    int64_t prompt_tokens, held_tokens; /* of placed requests */
} cluster_router_counts;
cluster_router_counts cluster_router_counted(const cluster_router *t);
/* The KV format with that name, of a node's hello. false: this release does not know it, so that nothing can be planned for the node. */
bool cluster_kv_format_find(const char *name, rp_kv_format *format);
/* The identity of most nodes that are well and have a known KV format: what plans should be made for; "" without any. */
const char *cluster_router_identity(const cluster_router *t);
/* The identity that plans are made for. Other nodes get requests by load alone if they serve a model of the same name, else none. */
void cluster_router_set_identity(cluster_router *t, const char *identity);

#endif
