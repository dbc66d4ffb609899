/* SPDX-License-Identifier: Apache-2.0 */
/* route_internal.h: the internals of a router, for the files of this folder.
 *
 *   network thread   curl's transfers: span streams, requests, liveness queries; cluster_router_tick
 *                                                                        route_network.c, route_transfer.c,
 *                                                                        route_life.c
 *   nodes' thread    the list of nodes: file, DNS                                           route_nodes.c
 *   planner's thread engines for plans, schemas for nodes                                   route_planner.c
 *   workers          submit and free requests; ask nodes directly (schemas, reports)        route_answers.c,
 *         route_ask.c, route_http.c
 *   I/O threads      take from the buffers of requests                                      route_answers.c
 *   any thread       marks, names; settings and signatures of requests to nodes             route_state.c, route_sign.c
 *
 * `lock` guards the cluster_router and the list of nodes. A thread that holds it may call the cluster_router, whose
 * callbacks (cluster_env) end requests and mark transfers for the network thread. Only the network thread uses
 * transfers and curl's handles.
 *
 * Lock order: lock, a server_request's lock, queue_lock. A thread that holds a request's lock sends commands to the
 * router through its queue (route_post).
 */
#ifndef SERVER_ROUTE_INTERNAL_H
#define SERVER_ROUTE_INTERNAL_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "cluster/relay.h"
#include "cluster/router.h"
#include "cluster/signature.h"
#include "server/http/server_internal.h"
#include "server/models/schema_registry.h"
#include "server/route/route.h"
#include "server/route/route_frames.h"
#include "server/route/route_poll.h"
#include "reprise_cluster.h"

#define ROUTE_URL_BYTES 256
#define ROUTE_TARGET_BYTES ((size_t)16 << 10)  /* path and query */
#define ROUTE_UNREAD_BYTES ((size_t)256 << 10) /* unread by the client: beyond it the transfer pauses */
#define ROUTE_HELD_BYTES ((size_t)1 << 20)     /* of a reply without a stream; longer ones are relayed */
#define ROUTE_CONTENT_TYPE_BYTES 96
#define ROUTE_CONNECT_MS 2000
#define ROUTE_ATTEMPTS 8    /* in a report */
#define ROUTE_SYNC_MS 30000 /* timeout of a change of a schema, without prefill */
#define ROUTE_SYNC_AGAIN_US 1000000

/* A transfer of curl: a span stream, a request, or a liveness query. The network thread processes marked ones: it opens
 * the stream, sends the query, or removes the transfer. */
typedef enum route_handle_kind { ROUTE_IS_REQUEST,
                                 ROUTE_IS_STREAM,
                                 ROUTE_IS_LIFE } route_handle_kind;
typedef struct route_handle {
    route_handle_kind kind;
    bool is_dirty; /* under lock */
    BASE_LINKS(struct route_handle)
    dirty; /* in route.dirty if is_dirty */
    CURL *easy;
} route_handle;

typedef struct route_transfer route_transfer;
typedef struct route_stream route_stream;
typedef struct route_life route_life;

typedef struct route_node {
    char name[CLUSTER_NODE_NAME_BYTES], url[ROUTE_URL_BYTES]; /* url: without a slash at its end */
    int32_t number;                                           /* of the cluster_router */
    bool is_listed;                                           /* in the new list (route_nodes.c) */
    bool is_drained;                                          /* by the operator */
    bool is_held;                                             /* it gets no requests until it has all schemas */
    bool must_cut;                                            /* its stream could not be opened */
    bool logged_ignored;                                      /* that names of it are ignored was logged */
    uint64_t format_epoch;                                    /* epoch whose unknown KV format was logged; 0: none */
    route_stream *stream;                                     /* open, or to be opened; NULL */
    route_life *life;                                         /* a liveness query in progress; NULL */

    /* Uploaded schemas (route_exchange.c). */
    uint64_t n_missed, n_caught; /* changes that it did not get: now; when the last exchange began */
    bool must_sync;              /* the planner's thread exchanges schemas with it */
    uint64_t sync_after_us;      /* earliest time of the next exchange, after a failure */
    uint64_t epoch;              /* the process that these fields describe */
    bool is_exchanged;           /* an exchange with that process is complete */
    /* Digests at the beginning of the last exchange, or before a change that the node accepted. While they are
     * unchanged, and until synced_until_us, nothing is exchanged: the node's next load reports the new digest, and
     * changes that it refused would be refused again. A change at another router may restore them. */
    uint64_t synced_ours, synced_theirs, synced_until_us;
} route_node;

/* One attempt to send a request to a node; for reports. */
typedef struct route_attempt {
    char node[CLUSTER_NODE_NAME_BYTES];
    const char *failure; /* static; NULL: it succeeded, or is in progress */
    bool continues;      /* it continues the answer after the tokens so far */
} route_attempt;

enum { ROUTE_SUBMIT = 1,
       ROUTE_CANCEL = 2,
       ROUTE_RESUME = 4 }; /* commands for a request */

/* A request that a node answers. A worker creates it; the network thread owns it from its submission until `over`. */
typedef struct route_request {
    cluster_request r; /* first: cluster_env's callbacks get it */
    route *t;
    server_request *x;
    rp_plan_names *names;       /* NULL: it could not be planned */
    char *target;               /* path and query */
    struct curl_slist *headers; /* the client's headers that are passed on */
    int64_t created;            /* seconds since 1970: the time in the answer's objects */
    bool wants_stream;

    /* Under route.lock. */
    bool is_submitted, is_ended, must_send;
    BASE_LINKS(struct route_request)
    send;                     /* in route.send if must_send */
    route_transfer *transfer; /* NULL: none */
    route_frames frames;
    char node_name[CLUSTER_NODE_NAME_BYTES]; /* of the last attempt */
    route_attempt attempts[ROUTE_ATTEMPTS];
    int n_attempts, n_continuations;
    uint64_t first_us; /* time of the answer's first bytes; 0: none yet */
    /* A complete reply, for the client. */
    int status;
    char content_type[ROUTE_CONTENT_TYPE_BYTES];
    uint32_t retry_after_ms;
    base_buffer held;

    /* Under the request's lock. */
    base_buffer out;                          /* bytes of a stream that the client has not taken yet */
    size_t pending;                           /* bytes of it that the server's count includes */
    char shown_node[CLUSTER_NODE_NAME_BYTES]; /* the node in the reply's head */
    bool is_paused;                           /* the transfer waits until the client has read */
    bool out_ended;
    char tail[2];           /* the last two bytes for the client; zeros: none */
    server_problem problem; /* of a stream that failed */

    /* Under route.queue_lock. */
    unsigned commands;
    bool is_queued, over; /* over: the network thread no longer uses the request */
    BASE_LINKS(struct route_request)
    queued; /* in route.queue if is_queued */
} route_request;

struct route {
    rp_server *server;
    rp_model *model;          /* borrowed */
    rp_engine_options engine; /* of the planning engines, except identity, format and context of nodes */
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_router_options options;
    char **listed; /* [n_listed] of the options */
    int32_t n_listed;
    char *nodes_file, *nodes_dns; /* NULL: none */
    char **schemas;               /* [n_schemas] of the options */
    int32_t n_schemas;

    pthread_mutex_t lock;
    cluster_router *router;
    char planned_identity[65];            /* the identity that plans are made for; "": none yet */
    route_node *nodes[CLUSTER_MAX_NODES]; /* by number; NULL: none */
    BASE_LIST(route_handle)
    dirty; /* marked ones */
    BASE_LIST(route_request)
    send;               /* requests with must_send */
    uint64_t looked_us; /* last check of nodes, identity and schemas; the network thread */

    route_poll poll;
    _Atomic int n_well;
    _Atomic bool stops;
    pthread_t network, nodes_thread, planner;
    bool has_network, has_nodes_thread, has_planner;

    pthread_mutex_t queue_lock;
    pthread_cond_t is_over;
    BASE_LIST(route_request)
    queue;

    /* The nodes' and the planner's thread. */
    pthread_mutex_t wake_lock;
    pthread_cond_t nodes_wake, planner_wake;
    bool must_reload, must_sync, must_replace; /* must_replace: create the engine again */
    char wanted_identity[65];                  /* the identity that plans should be made for; "": unknown */
    rp_kv_format wanted_format;                /* of a node with that identity */
    int32_t wanted_ctx;
    char identity[65];      /* of the current engine; the planner's thread */
    rp_kv_format kv_format; /* of the next engine; the planner's thread */
    int32_t last_synced;    /* node of the last exchange; the planner's thread */
    int32_t n_ctx;

    _Atomic int n_asking;       /* workers that wait for replies of nodes */
    _Atomic uint64_t unplanned; /* requests without a plan */
    server_histogram wait;      /* time from arrival until a request is sent to a node */
};

/* ---- route_network.c ---- */

int route_network_start(route *t, rp_error *err);
void route_network_stop(route *t);

/* ---- route_state.c ---- */

void route_wake(route *t); /* wakes the network thread. Any thread */
/* Marks a transfer for the network thread. Under lock. */
void route_mark(route *t, route_handle *h);
/* A node's name for reports; "": there is no such node. Under lock. */
const char *route_node_name(const route *t, int32_t number);
/* Applies is_drained and is_held to the cluster_router: a node with either gets no requests. Under lock. */
void route_apply_drain(route *t, route_node *n);

/* ---- route_transfer.c: on the network thread ---- */

/* Sends the request to r->node. Under lock. */
void route_transfer_start(route_request *rr);
/* Notes for the report that the last attempt, unless it has another failure, ended by silence. Under lock. */
void route_note_silence(route_request *rr);
/* Detaches the transfer from the request and marks it for removal. Under lock; any thread. */
void route_transfer_drop(route_request *rr);
/* The transfer has ended. Under lock. */
void route_transfer_done(route_transfer *tr, CURLcode result);
void route_transfer_free(route_transfer *tr);
/* curl's handle of the request's transfer, for curl_easy_pause without the lock: only the network thread frees it.
 * NULL: none. Under lock. */
CURL *route_transfer_handle(const route_request *rr);

/* ---- route_life.c: liveness queries; on the network thread, under lock ---- */

/* Requests a query of the node, unless one is in progress: for cluster_env. */
void route_life_want(route *t, int32_t node);
void route_life_begin(route_life *life); /* sends or removes a marked query */
void route_life_done(route_life *life, CURLcode result);
void route_life_free(route_life *life);
/* The node leaves. */
void route_life_close(route_node *n, route *t);

/* ---- route_sign.c: for every request to a node ---- */

/* Settings of a transfer. */
void route_curl_settings(CURL *easy, const char *url);
/* Appends the headers with which a node accepts a request: signature, x-reprise-route (to) and x-reprise-resume, which
 * may be NULL. body: [n_parts]; nonce: NULL for a random one. Returns NULL without memory; list is freed then. */
typedef struct route_part {
    const void *bytes;
    size_t n;
} route_part;
struct curl_slist *route_sign(const route *t, struct curl_slist *list, const char *method, const char *target,
                              const char *to, const char *resume, const route_part *body, int n_parts,
                              const uint8_t *nonce);
/* Each appends one header. Returns NULL without memory; list is freed then. */
struct curl_slist *route_add_line(struct curl_slist *list, const char *line);
struct curl_slist *route_add_header(struct curl_slist *list, const char *name, const char *value);

/* ---- route_answers.c ---- */

/* Sends commands for a request to the network thread. Any thread; the request's lock may be held, lock must not. */
void route_post(route_request *rr, unsigned commands);
/* Takes the next request with commands; NULL: none. Under lock, because other threads also end requests. */
route_request *route_next_posted(route *t, unsigned *commands);
/* Passes bytes of a stream on to the client, and clears them. Under lock; the request's lock must not be held. */
void route_relay(route_request *rr, base_buffer *bytes);
/* Ends the request: its client gets the reply, or the end of the stream. The request may be freed afterwards. Under
 * lock. */
void route_deliver(route_request *rr, cluster_outcome outcome, uint64_t retry_after_ms);

/* ---- route_target.c: parts of a client's request for nodes ---- */

/* Path and query. NULL: too long, or no memory. */
char *route_target_of(server_request *x);
/* The client's headers that are passed on. NULL with *failed: no memory. */
struct curl_slist *route_headers_of(server_request *x, bool *failed);
/* Appends text with all but unreserved characters and those in `kept` percent-encoded. */
int route_append_encoded(base_buffer *b, const char *text, const char *kept);

/* ---- route_report.c ---- */

/* Keeps a report of the request for explain. Under lock. */
void route_report_keep(route_request *rr, cluster_outcome outcome);

/* ---- route_nodes.c ---- */

/* Check the syntax of nodes, "URL" or "NAME=URL", each once; and of a DNS name, "NAME:PORT". RP_ERR_INVALID,
 * RP_ERR_LIMIT. */
int route_nodes_check(const char *const *texts, int32_t n, rp_error *err);
int route_nodes_check_dns(const char *text, rp_error *err);
int route_nodes_start(route *t, rp_error *err);
void route_nodes_stop(route *t);

/* ---- route_planner.c ---- */

int route_planner_start(route *t, rp_error *err);
void route_planner_stop(route *t);
/* Compares the identity of the nodes with that of the plans, and their schemas with the server's. Under lock. */
void route_planner_look(route *t);
/* rp_server_models.load and unload. */
int route_planner_load(void *user, int32_t i, rp_model **model, rp_engine **engine, rp_error *err);
void route_planner_unload(void *user, int32_t i, rp_model *model, rp_engine *engine);

/* ---- route_ask.c: requests of workers and the planner's thread to nodes, synchronous ---- */

#define ROUTE_ASK_BYTES ((size_t)64 << 20) /* limit of a reply */

typedef struct route_reply {
    int32_t node;
    char name[CLUSTER_NODE_NAME_BYTES], url[ROUTE_URL_BYTES];
    int status; /* 0: no reply */
    char content_type[ROUTE_CONTENT_TYPE_BYTES];
    uint8_t nonce[CLUSTER_NONCE_BYTES]; /* of the request */
    base_buffer body;
    char error[CURL_ERROR_SIZE]; /* why there is no reply, or its status */
} route_reply;

/* A request to one or several nodes. */
typedef struct route_question {
    const char *method, *target;
    const struct curl_slist *headers; /* NULL: those of a schema */
    const void *body;
    size_t n_body;
    server_request *x; /* its client's disconnection cancels the requests; NULL */
    uint64_t timeout_ms;
    bool of_the_living; /* it does not wait for nodes that are dead */
    bool computes;      /* it may take long: only timeout_ms applies, not --node-timeout */
} route_question;

/* Allocates replies, *n of them, for all healthy nodes, or for the node `only` (-1: all). NULL: no memory, or no such
 * node. Freed by route_replies_free. */
route_reply *route_replies_new(route *t, int32_t only, int32_t *n);
void route_replies_free(route_reply *replies, int32_t n);
/* Sends the request to the nodes of all replies in parallel, and waits for the replies. */
void route_ask(route *t, const route_question *q, route_reply *replies, int32_t n);
/* May one more worker wait for nodes? true: route_end_ask must follow. false: a problem is set; the other workers are
 * kept free for requests. */
bool route_begin_ask(server_request *x);
void route_end_ask(route *t);
/* The number of the node with that name; -1: none. */
int32_t route_find_node(route *t, const char *name);

/* ---- route_exchange.c ---- */

/* Resets the state of a node's schemas if its process is a new one. Under lock. */
void route_schemas_see(route_node *n, uint64_t epoch);
/* The node has all schemas of ours that it accepts. theirs: the digest of its last load. Under lock. */
void route_schemas_settle(route_node *n, uint64_t theirs, uint64_t ours, bool has_changed);
/* Digest of the router's schemas (schema_registry.h). */
uint64_t route_schemas_digest(route *t);
/* Sends a change to nodes. x: its client's disconnection cancels it; NULL: nothing does. */
void route_schemas_send(route *t, const schema_entry *e, bool prefills, server_request *x, uint64_t timeout_ms,
                        route_reply *replies, int32_t n);
/* Exchanges schemas: router and node get those that they lack. The planner's thread. */
void route_schemas_exchange(route *t, int32_t node);

/* ---- route_http.c, route_schemas.c: handlers of route_table.c ---- */

void handle_route_readyz(server_request *x);
void handle_route_health(server_request *x);
void handle_route_explain(server_request *x);
void handle_route_node(server_request *x);   /* relays to the node of ?node= */
void handle_route_stored(server_request *x); /* relays to the node of the id's tag */
void handle_route_contents(server_request *x);
void handle_route_cluster(server_request *x);
void handle_route_drain(server_request *x);
void handle_route_undrain(server_request *x);
void handle_route_schema_put(server_request *x);
void handle_route_schema_delete(server_request *x);

#endif
