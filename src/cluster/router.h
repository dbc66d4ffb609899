/* SPDX-License-Identifier: Apache-2.0 */
/* router.h: requests from arrival to end.
 *
 *   submit --> QUEUED --chosen--> SENT --first byte--> ANSWERING --> ended
 *                |                  |                      |
 *                |                  +--failed: one retry --+--failed: continued on another node after the tokens so far
 *                +--no node meets the goals, the deadline has passed, the queue is full: refused (429, 503)
 *
 * The router decides; its transport (HTTP in src/server/route, or the simulation) sends, and reports replies and
 * failures. One thread at a time: the transport calls the router, which calls functions of the table (cluster_env)
 * before it returns. These do not call the router: a send that fails at once is reported after the call that sent it
 * has returned.
 */
#ifndef CLUSTER_ROUTER_H
#define CLUSTER_ROUTER_H

#include "cluster/cost.h"
#include "cluster/view.h"

#define CLUSTER_MAX_REQUESTS 65536 /* at a time */

/* X(ID, "name"): how a node is chosen among those that can serve the request. */
#define CLUSTER_POLICIES(X) \
    X(RANDOM, "random") \
    X(ROUND_ROBIN, "round-robin") \
    X(LEAST_LOADED, "least-loaded")   /* fewest prompt tokens queued */ \
    X(LONGEST_MATCH, "longest-match") /* longest cached prefix in tokens, modules counted as text */ \
    X(SESSION, "session")             /* by a hash of the session, else of the tenant */ \
    X(PREFIX_COST, "prefix-cost")     /* cost, with modules counted as text: held only if everything before them is */ \
    X(COST, "cost")                   /* least predicted TTFT plus delay of other requests; the default */
typedef enum cluster_policy {
#define X(id, name) CLUSTER_POLICY_##id,
    CLUSTER_POLICIES(X)
#undef X
        CLUSTER_N_POLICIES
} cluster_policy;

/* X(ID, "name"): admission rules: when a request that will miss its goals is refused (early rejection: Mooncake,
 * FAST'25). */
#define CLUSTER_ADMISSIONS(X) \
    X(OFF, "off")                     /* never: only the queue's limit and deadlines apply */ \
    X(AFTER_PREFILL, "after-prefill") /* the ITL goal is checked after the prefill, whose work is lost then */ \
    X(AT_ARRIVAL, "at-arrival")       /* by the load at arrival */ \
    X(PREDICTED, "predicted")         /* by the predicted load at the end of the prefill; the default */
typedef enum cluster_admission {
#define X(id, name) CLUSTER_ADMISSION_##id,
    CLUSTER_ADMISSIONS(X)
#undef X
        CLUSTER_N_ADMISSIONS
} cluster_admission;

/* Is a prompt computed on one node (prefill), and answered on another one (decode), to which its KV is moved? */
typedef enum cluster_apart {
    CLUSTER_APART_NEVER,   /* the default */
    CLUSTER_APART_ALWAYS,  /* except continuations; nodes have roles: cluster_router_set_prefill */
    CLUSTER_APART_BY_COST, /* on any two nodes, if that costs less than any one node; with policies of cost */
} cluster_apart;

typedef struct cluster_router_options {
    cluster_policy policy;
    cluster_admission admission;
    double ttft_goal_ms, itl_goal_ms; /* 0: none */
    double near_ties;                 /* share of the least cost within which the less loaded of two nodes is chosen;
                                         0.05 */
    int32_t max_queue;                /* requests that wait for a node; default 4096 */
    int32_t max_sent;                 /* requests per node beyond those that it runs: others wait in the router; default
                                         4 */
    double retry_share;               /* retries and continuations per recent request; default 0.1, and 10 at any
                                         time */
    uint64_t speculative_us;          /* life of speculative entries; default 2 s; 0: none */
    uint64_t index_bytes;             /* memory of the index, divided equally among nodes; default 512 MiB */
    uint64_t node_timeout_us;         /* a request without a sign of life for so long has failed; default 60 s; 0:
                                         never */
    cluster_apart apart;
    cluster_fetch_cost move;  /* KV from a prefill node to a decode node */
    cluster_fetch_cost fetch; /* KV from the pool; byte_us 0: there is none (default) */
    uint64_t pool_bytes;      /* memory of the hints of what the pool has; default 32 MiB: 4 million names */
    const uint8_t *secret;    /* [RP_CLUSTER_KEY_BYTES] */
} cluster_router_options;
cluster_router_options cluster_router_defaults(void);

/* Why a request ended. */
typedef enum cluster_outcome {
    CLUSTER_SERVED,
    CLUSTER_REFUSED_TTFT,  /* no node meets the TTFT goal: 429 with Retry-After */
    CLUSTER_REFUSED_ITL,   /* no node meets the ITL goal: likewise */
    CLUSTER_REFUSED_QUEUE, /* the queue is full: likewise */
    CLUSTER_REFUSED_BUSY,  /* every node refused it: likewise */
    CLUSTER_NO_NODE,       /* no node is healthy: 503 */
    CLUSTER_LATE,          /* its deadline passed before it was sent, or CLUSTER_DEAD_US ago: 504 */
    CLUSTER_FAILED,        /* it failed on two nodes, or the retry budget is spent: 502, or the stream is cut */
    CLUSTER_ANSWERED,      /* a node's error reply (4xx, 504) is the answer; a 429 if no other node accepts it */
    CLUSTER_CANCELLED,     /* by its client */
    CLUSTER_N_OUTCOMES
} cluster_outcome;
const char *cluster_outcome_name(cluster_outcome outcome);

/* One node in the decision about a request: for explain. */
typedef struct cluster_candidate {
    int32_t node;
    /* Why the node was excluded: "dead", "suspect", "draining", "model", "identity", "itl", "tried", "full", "busy";
     * NULL: it was not. Static */
    const char *excluded;
    int32_t held_tokens, disk_tokens; /* tokens whose KV it holds; those of them that are on disk only */
    int32_t pool_tokens;              /* tokens whose KV it would fetch from the pool */
    /* Predicted: until its prompts are computed; prefill of missing tokens; reads from disk; the fetch from the pool,
     * meanwhile; the TTFT (policy.h). */
    double drain_ms, compute_ms, read_ms, fetch_ms, ttft_ms;
    double answer_ms; /* the answer, if prefill and decode can be apart; else 0 */
    double step_ms;   /* a decode step that includes the request */
} cluster_candidate;

typedef struct cluster_request {
    /* The transport's. */
    const rp_named_kv *items; /* [n_items], borrowed until the end */
    int32_t n_items, prompt_tokens, max_tokens;
    uint64_t tenant, session; /* hashes; session 0: none */
    int32_t priority;
    uint64_t deadline_us; /* 0: none. The node that serves the request ends it then */
    int32_t only_node;    /* >= 0: only this node has an object that the request needs (a stored response); -1: any */
    bool continues;       /* another node can continue it after its first byte */
    void *user;

    /* The router's; zero-initialised. */
    int32_t state, node, attempts;
    int32_t prefill_node; /* computes the prompt first, for `node`; -1: none */
    bool began;
    int32_t answer_tokens; /* reported so far */
    int32_t held_tokens;   /* by the chosen node */
    double predicted_ttft_ms;
    uint64_t arrived_us, sent_us, began_us;
    uint64_t heard_us;             /* last sign of life of it from its node, or the time of sending */
    cluster_candidate *candidates; /* of the last decision, [n_candidates]; owned; freed by cluster_request_close */
    int32_t n_candidates;
    struct cluster_request *next, *previous; /* in lists of the router */
    void *own;
} cluster_request;
void cluster_request_close(cluster_request *r);

/* The router's environment: clock, random numbers and transport. */
typedef struct cluster_env {
    void *user;
    uint64_t (*now_us)(void *user); /* monotonic */
    uint64_t (*random)(void *user);
    /* Opens the span stream of a node: GET with the nonce and the position after which it continues. The transport then
     * calls cluster_router_fed and cluster_router_cut. */
    void (*open_stream)(void *user, int32_t node, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch,
                        uint64_t after);
    void (*close_stream)(void *user, int32_t node); /* no cluster_router_cut follows */
    /* Sends a request to r->node; r->began: as a continuation. r->prefill_node >= 0: the node lets that one compute the
     * prompt, then fetches its KV; it computes what it cannot get. */
    void (*send)(void *user, cluster_request *r);
    /* Cancels the request that was sent to r->node; the transport reports nothing more about it. */
    void (*cancel)(void *user, cluster_request *r);
    /* Liveness query: asks a node which requests of this router it works on; cluster_router_heard follows for each.
     * Called again until it does. NULL: the transport has none, and bytes are the only signs of life. */
    void (*ask)(void *user, int32_t node);
    /* The request has ended; the router no longer uses it. retry_after_ms: for refusals. */
    void (*end)(void *user, cluster_request *r, cluster_outcome outcome, uint64_t retry_after_ms);
} cluster_env;

typedef struct cluster_router cluster_router;
int cluster_router_new(cluster_router **out, const cluster_router_options *options, const cluster_env *env,
                       rp_error *err);
void cluster_router_free(cluster_router *t); /* all requests have ended */

/* Nodes have numbers from 0; those of removed nodes are reused. RP_ERR_LIMIT (CLUSTER_MAX_NODES), RP_ERR_MEMORY. */
int cluster_router_add_node(cluster_router *t, const char *name, int32_t *node, rp_error *err);
void cluster_router_remove_node(cluster_router *t, int32_t node);
/* The role of a node with CLUSTER_APART_ALWAYS: it computes prompts for the others. */
void cluster_router_set_prefill(cluster_router *t, int32_t node);
/* A draining node gets no new requests and completes those that it has. */
void cluster_router_drain_node(cluster_router *t, int32_t node, bool drains);

/* Span streams: bytes have arrived; the stream has ended. */
void cluster_router_fed(cluster_router *t, int32_t node, const void *bytes, size_t n);
void cluster_router_cut(cluster_router *t, int32_t node);

/* A node has written these names to the pool: hints for the cost of fetching them. Only with options.fetch. */
void cluster_router_pooled(cluster_router *t, const rp_name *names, size_t n);

/* Requests. submit may end the request before it returns. */
void cluster_router_submit(cluster_router *t, cluster_request *r);
/* The first byte of a successful reply has arrived. May end the request (after-prefill). */
void cluster_router_began(cluster_router *t, cluster_request *r);
void cluster_router_progress(cluster_router *t, cluster_request *r, int32_t answer_tokens);
void cluster_router_finished(cluster_router *t, cluster_request *r); /* the reply is complete */
/* A sign of life of a request on a node: bytes were sent to the node or received from it, or it reported the request.
 * at_us: the time of it. of_node: it came from the node, not from the connection alone. Nothing happens for a request
 * that no node has. */
void cluster_router_heard(cluster_router *t, cluster_request *r, uint64_t at_us, bool of_node);
/* Calls fn with each request that was sent to a node and has not ended. fn may call cluster_router_heard, and no other
 * function of the router. */
void cluster_router_each_sent(cluster_router *t, int32_t node, void (*fn)(void *user, cluster_request *r), void *user);
/* How a node failed a request. */
typedef enum cluster_failure {
    CLUSTER_NODE_UNREACHABLE, /* no connection: the node has not computed anything */
    CLUSTER_NODE_CUT,         /* the connection broke */
    CLUSTER_NODE_SILENT,      /* no sign of life of the request for node_timeout_us; detected by the router itself */
    CLUSTER_NODE_BUSY,        /* 503: it accepts no request now */
    CLUSTER_NODE_DRAINS,      /* likewise: it drains, which its next load reports */
    CLUSTER_NODE_LIMITS,      /* 429: a limit of the request's key or tenant there. Nothing was computed */
    CLUSTER_NODE_ERROR,       /* 500, 502 */
    CLUSTER_NODE_REFUSES,     /* another 4xx: the request is wrong */
} cluster_failure;
void cluster_router_failed(cluster_router *t, cluster_request *r, cluster_failure failure, uint64_t retry_after_ms);
void cluster_router_cancelled(cluster_router *t, cluster_request *r); /* its client has disconnected */

/* Timers: reopens streams, expires deadlines and speculative entries, detects silent nodes. Returns when to call it
 * next. */
uint64_t cluster_router_tick(cluster_router *t);

/* For reports and metrics. */
typedef struct cluster_node_status {
    char name[CLUSTER_NODE_NAME_BYTES];
    const cluster_hello *hello;
    const cluster_load *load;
    const cluster_view_counts *counts;
    cluster_health health;
    cluster_view_state stream;
    bool draining, other_identity; /* other_identity: names of its KV differ from those of the router's plans */
    int32_t sent;                  /* requests from this router that have not ended */
    int64_t sent_tokens;           /* prompt tokens of them to be computed that its last load does not include */
    size_t names;
    uint64_t placed, failed, silent; /* requests, since the start */
} cluster_node_status;
int32_t cluster_router_nodes(const cluster_router *t); /* above all numbers in use */
/* false: no such node. */
bool cluster_router_node(const cluster_router *t, int32_t node, cluster_node_status *out);

typedef struct cluster_router_counts {
    uint64_t submitted, outcomes[CLUSTER_N_OUTCOMES], retries, continuations;
    uint64_t silent; /* requests without a sign of life for node_timeout_us */
    int32_t queued, sent;
    size_t names;
    uint64_t index_bytes;
    int64_t prompt_tokens, held_tokens; /* of placed requests */
} cluster_router_counts;
cluster_router_counts cluster_router_counted(const cluster_router *t);
/* The KV format with a name from a node's hello. false: this release does not know it, so that nothing can be planned
 * for the node. */
bool cluster_kv_format_find(const char *name, rp_kv_format *format);
/* The most frequent identity among healthy nodes with a known KV format, which plans should be made for; "": there is
 * no such node. */
const char *cluster_router_identity(const cluster_router *t);
/* Sets the identity that plans are made for. Nodes of other identities get requests by load alone if they serve a model
 * of the same name, else none. */
void cluster_router_set_identity(cluster_router *t, const char *identity);

#endif
