/* SPDX-License-Identifier: Apache-2.0 */
/* route_internal.h: a router's parts, for the files of this folder.
 *
 *   network thread   curl's transfers: span streams, requests, questions about them; cluster_router_tick
 *                                                                        route_network.c, route_transfer.c, route_life.c
 *   nodes' thread    the list of nodes: file, DNS                                           route_nodes.c
 *   planner's thread engines for plans, schemas for nodes                                   route_planner.c
 *   workers          submit and free requests; ask nodes directly (schemas, reports)        route_answers.c, route_ask.c, route_http.c
 *   I/O threads      take from the buffers of requests                                      route_answers.c
 *   any thread       marks, names; settings and signatures of requests to nodes             route_state.c, route_sign.c
 *
 * `lock` guards the cluster_router and the list of nodes. Whoever holds it may call the cluster_router, whose callbacks (cluster_env) only note what
 * the network thread shall do with transfers, and end requests. Only the network thread touches transfers and curl's handles.
 *
 * Lock order: lock, a server_request's lock, queue_lock. A thread that holds a request's lock reaches the router by its queue (route_post).
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
#define ROUTE_UNREAD_BYTES ((size_t)256 << 10) /* of a reply that its client has not read: beyond it the transfer pauses */
#define ROUTE_HELD_BYTES ((size_t)1 << 20)     /* of a reply that is no stream: beyond it it begins, and cannot be asked for again */
#define ROUTE_CONTENT_TYPE_BYTES 96
#define ROUTE_CONNECT_MS 2000
#define ROUTE_ATTEMPTS 8    /* that a report lists */
#define ROUTE_SYNC_MS 30000 /* a schema, without prefill */
#define ROUTE_SYNC_AGAIN_US 1000000

/* A transfer of curl's: of a span stream, of a request, or of a question about requests. Marked: the network thread shall open the stream, ask the
 * question, or remove it from curl's. */
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
    bool is_listed;                                           /* for route_nodes.c: in the new list */
    bool is_drained;                                          /* by the operator */
    bool is_held;                                             /* gets no requests until it has all schemas */
    bool must_cut;                                            /* its stream could not be opened */
    bool says_ignored;                                        /* it was logged that names of it are ignored */
    uint64_t format_epoch;                                    /* its process whose unknown KV format was logged; 0: none */
    route_stream *stream;                                     /* open, or to be opened; NULL */
    route_life *life;                                         /* under way; NULL */

    /* Uploaded schemas (route_exchange.c). */
    uint64_t n_missed, n_caught; /* changes that could not be given to it, so far; and when the last exchange began */
    bool must_sync;              /* for the planner's thread */
    uint64_t sync_after_us;      /* the last exchange failed: not before */
    uint64_t epoch;              /* of its process, which the rest is about */
    bool is_exchanged;           /* with that process */
    /* Digests when the last exchange began, or before a change that it has taken. While they are the same, and until then, nothing is exchanged: its
     * next load says what it has, and what it refuses it would refuse again. A change at another router may lead back to them. */
    uint64_t synced_ours, synced_theirs, synced_until_us;
} route_node;

/* Why an attempt ended; for reports. */
typedef struct route_attempt {
    char node[CLUSTER_NODE_NAME_BYTES];
    const char *failure; /* static; NULL: it succeeded, or goes on */
    bool continues;      /* from the tokens so far */
} route_attempt;

enum { ROUTE_SUBMIT = 1,
       ROUTE_CANCEL = 2,
       ROUTE_RESUME = 4 }; /* wishes of a request */

/* A request on its way. Made by a worker; the network thread's from its submission until `over`. */
typedef struct route_request {
    cluster_request r; /* first: cluster_env's callbacks get it */
    route *t;
    server_request *x;
    rp_plan_names *names;       /* NULL: it could not be planned */
    char *target;               /* path and query */
    struct curl_slist *headers; /* of the client, that are passed on */
    int64_t created;            /* seconds since 1970, in the answer's objects */
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
    uint64_t first_us; /* when the first bytes of the answer came; 0: not yet */
    /* The reply that is kept whole. */
    int status;
    char content_type[ROUTE_CONTENT_TYPE_BYTES];
    uint32_t retry_after_ms;
    base_buffer held;

    /* Under the request's lock. */
    base_buffer out;                          /* of a stream: not yet taken by the client */
    size_t pending;                           /* bytes of it that the server has counted */
    char shown_node[CLUSTER_NODE_NAME_BYTES]; /* that answers, for the reply's head */
    bool is_paused;                           /* the transfer waits until the client has read */
    bool out_ended;
    char tail[2];           /* the last bytes for the client; zeros: none */
    server_problem problem; /* how a stream failed */

    /* Under route.queue_lock. */
    unsigned wishes;
    bool is_queued, over; /* over: the network thread does not know the request any more */
    BASE_LINKS(struct route_request)
    queued; /* in route.queue if is_queued */
} route_request;

struct route {
    rp_server *server;
    rp_model *model;          /* borrowed */
    rp_engine_options engine; /* of the engines for plans, besides what nodes say */
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_router_options options;
    char **listed; /* [n_listed] of the options */
    int32_t n_listed;
    char *nodes_file, *nodes_dns; /* NULL: none */
    char **schemas;               /* [n_schemas] of the options */
    int32_t n_schemas;

    pthread_mutex_t lock;
    cluster_router *router;
    char planned_identity[65];            /* that plans are made for; "": of no node yet */
    route_node *nodes[CLUSTER_MAX_NODES]; /* by number; NULL: none */
    BASE_LIST(route_handle)
    dirty; /* marked ones */
    BASE_LIST(route_request)
    send;               /* requests with must_send */
    uint64_t looked_us; /* when nodes, identity and schemas were last looked at; the network thread */

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
    bool must_reload, must_sync, must_replace; /* must_replace: an engine could not be made */
    char wanted_identity[65];                  /* plans should be made for it; "": none is known */
    rp_kv_format wanted_format;                /* of a node with that identity */
    int32_t wanted_ctx;
    char identity[65];      /* of the engine that is there; the planner's thread */
    rp_kv_format kv_format; /* of the next engine: the planner's thread */
    int32_t last_synced;    /* node: the planner's thread */
    int32_t n_ctx;

    _Atomic int n_asking;       /* workers that wait for nodes */
    _Atomic uint64_t unplanned; /* requests without names */
    server_histogram wait;      /* time from arrival until a node has the request */
};

/* ---- route_network.c ---- */

int route_network_start(route *t, rp_error *err);
void route_network_stop(route *t);

/* ---- route_state.c ---- */

void route_wake(route *t); /* the network thread looks at what there is to do. Any thread */
/* Under lock. */
void route_mark(route *t, route_handle *h);
/* A node's name for reports; "" if there is none. Under lock. */
const char *route_node_name(const route *t, int32_t number);
/* Whether a node gets requests: for is_drained and is_held. Under lock. */
void route_apply_drain(route *t, route_node *n);

/* ---- route_transfer.c: on the network thread ---- */

/* Sends the request to r->node. Under lock. */
void route_transfer_start(route_request *rr);
/* The last attempt, if it has not failed otherwise, ended by silence: for its report. Under lock. */
void route_note_silence(route_request *rr);
/* The transfer is no longer the request's. Under lock; any thread. */
void route_transfer_drop(route_request *rr);
/* It has ended. Under lock. */
void route_transfer_done(route_transfer *tr, CURLcode result);
void route_transfer_free(route_transfer *tr);
/* curl's handle of its transfer, for curl_easy_pause without the lock: the network thread alone frees it. NULL: none. Under lock. */
CURL *route_transfer_handle(const route_request *rr);

/* ---- route_life.c: on the network thread, under lock ---- */

/* Asks the node which requests it works on, unless it is being asked. Only notes that: for cluster_env. */
void route_life_want(route *t, int32_t node);
void route_life_begin(route_life *life); /* a marked one */
void route_life_done(route_life *life, CURLcode result);
void route_life_free(route_life *life);
/* The node leaves. */
void route_life_close(route_node *n, route *t);

/* ---- route_sign.c: of every request to a node ---- */

/* Settings of its transfer. */
void route_curl_settings(CURL *easy, const char *url);
/* Headers with which a node accepts a request: to (x-reprise-route) and resume may be NULL. body: [n_parts]. NULL: no memory; list is freed. */
typedef struct route_part {
    const void *bytes;
    size_t n;
} route_part;
struct curl_slist *route_sign(const route *t, struct curl_slist *list, const char *method, const char *target, const char *to, const char *resume,
                              const route_part *body, int n_parts, const uint8_t *nonce);
/* Each frees the list if it cannot make it longer, and returns NULL. */
struct curl_slist *route_add_line(struct curl_slist *list, const char *line);
struct curl_slist *route_add_header(struct curl_slist *list, const char *name, const char *value);

/* ---- route_answers.c ---- */

/* Wishes of a request. Any thread; its request's lock may be held, lock not. */
void route_post(route_request *rr, unsigned wishes);
/* The next request with wishes, which it receives; NULL: none. Under lock: others end requests, too. */
route_request *route_next_posted(route *t, unsigned *wishes);
/* There are new bytes in `out`. Under lock, the request's not. */
void route_relay(route_request *rr, base_buffer *bytes);
/* Ends the request: its client gets the reply, or the end of its stream. The request may be freed afterwards. Under lock. */
void route_deliver(route_request *rr, cluster_outcome outcome, uint64_t retry_after_ms);

/* ---- route_target.c: from a client's request ---- */

/* Path and query as they are sent to nodes. NULL: too long, or no memory. */
char *route_target_of(server_request *x);
/* The headers that are passed on. NULL with *failed: no memory. */
struct curl_slist *route_headers_of(server_request *x, bool *failed);
/* Appends text with all but unreserved characters and those in `kept` percent-encoded. */
int route_append_encoded(base_buffer *b, const char *text, const char *kept);

/* ---- route_report.c ---- */

/* Keeps the decision for explain. Under lock. */
void route_report_keep(route_request *rr, cluster_outcome outcome);

/* ---- route_nodes.c ---- */

/* Are they nodes, "URL" or "NAME=URL", none of them twice; "NAME:PORT"? RP_ERR_INVALID, RP_ERR_LIMIT. */
int route_nodes_check(const char *const *texts, int32_t n, rp_error *err);
int route_nodes_check_dns(const char *text, rp_error *err);
int route_nodes_start(route *t, rp_error *err);
void route_nodes_stop(route *t);

/* ---- route_planner.c ---- */

int route_planner_start(route *t, rp_error *err);
void route_planner_stop(route *t);
/* Compares what the nodes are with what plans are made for, and their schemas with the server's. Under lock. */
void route_planner_look(route *t);
/* rp_server_models.load and unload. */
int route_planner_load(void *user, int32_t i, rp_model **model, rp_engine **engine, rp_error *err);
void route_planner_unload(void *user, int32_t i, rp_model *model, rp_engine *engine);

/* ---- route_ask.c: workers and the planner's thread ask nodes, and wait ---- */

#define ROUTE_ASK_BYTES ((size_t)64 << 20) /* of a reply */

typedef struct route_reply {
    int32_t node;
    char name[CLUSTER_NODE_NAME_BYTES], url[ROUTE_URL_BYTES];
    int status; /* 0: none */
    char content_type[ROUTE_CONTENT_TYPE_BYTES];
    uint8_t nonce[CLUSTER_NONCE_BYTES]; /* of the request */
    base_buffer body;
    char error[CURL_ERROR_SIZE]; /* why there is none */
} route_reply;

/* What is asked. */
typedef struct route_question {
    const char *method, *target;
    const struct curl_slist *headers; /* NULL: those of a schema */
    const void *body;
    size_t n_body;
    server_request *x; /* given up when its client has left; NULL */
    uint64_t timeout_ms;
    bool of_the_living; /* nodes that are dead need not answer */
    bool computes;      /* the node may work for long before it answers: --node-timeout does not count, timeout_ms alone does */
} route_question;

/* Replies for all nodes that are well, or for that one; *n of them, the caller's (route_replies_free). NULL: no memory, or no such node. */
route_reply *route_replies_new(route *t, int32_t only, int32_t *n);
void route_replies_free(route_reply *replies, int32_t n);
/* Asks all of them at once. */
void route_ask(route *t, const route_question *q, route_reply *replies, int32_t n);
/* May one more worker wait for nodes? route_end_ask, then. false: a problem is set: the others are for requests that nodes answer. */
bool route_begin_ask(server_request *x);
void route_end_ask(route *t);
/* The number of the node with that name; -1: none. */
int32_t route_find_node(route *t, const char *name);

/* ---- route_exchange.c ---- */

/* What is known of a node's schemas is about this process of it. Under lock. */
void route_schemas_see(route_node *n, uint64_t epoch);
/* It has what it takes of ours; theirs: the digest of its last load. Under lock. */
void route_schemas_settle(route_node *n, uint64_t theirs, uint64_t ours, bool has_changed);
/* Of the router's schemas (schema_registry.h). */
uint64_t route_schemas_digest(route *t);
/* Sends a change to nodes. x: whose client's leaving ends it; NULL: no one's. */
void route_schemas_send(route *t, const schema_entry *e, bool prefills, server_request *x, uint64_t timeout_ms, route_reply *replies, int32_t n);
/* The router and the node get what they lack. The planner's thread. */
void route_schemas_exchange(route *t, int32_t node);

/* ---- route_http.c, route_schemas.c: handlers of route_table.c ---- */

void handle_route_readyz(server_request *x);
void handle_route_health(server_request *x);
void handle_route_explain(server_request *x);
void handle_route_node(server_request *x);   /* of the node that ?node= names */
void handle_route_stored(server_request *x); /* of the node that the id's tag names */
void handle_route_contents(server_request *x);
void handle_route_cluster(server_request *x);
void handle_route_drain(server_request *x);
void handle_route_undrain(server_request *x);
void handle_route_schema_put(server_request *x);
void handle_route_schema_delete(server_request *x);

#endif
