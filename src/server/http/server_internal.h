/* SPDX-License-Identifier: Apache-2.0 */
/* server_internal.h: what the files of the server share: the server itself.
 *
 *   LOADING --rp_server_ready--> READY --rp_server_stop--> DRAINING --nothing runs any more, or in time--> CLOSED
 */
#ifndef SERVER_SERVER_INTERNAL_H
#define SERVER_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "reprise_server.h"
#include "server/core/histogram.h"
#include "server/http/api_keys.h"
#include "server/http/listeners.h"
#include "server/http/request_origin.h"
#include "server/http/server_request.h"
#include "server/http/watchdog.h"
#include "server/http/work_queue.h"
#include "reprise_store.h"
#include "reprise_cluster.h"

#define SERVER_WORKERS 8
#define SERVER_MAX_TURNS 4    /* workers that handle requests of one of several models at a time */
#define SERVER_FREE_WORKERS 2 /* of a single model: left to requests without a model */
#define SERVER_MAX_PREFILLS 2 /* at one time: each holds a worker, and prompts need workers too */
#define SERVER_BUSY_RETRY_MS 1000
#define SERVER_N_STATUS_CLASSES 6

typedef enum server_state { SERVER_STATE_LOADING,
                            SERVER_STATE_READY,
                            SERVER_STATE_DRAINING,
                            SERVER_STATE_CLOSED } server_state;

/* Totals since the start, except the fields marked "now". */
typedef struct server_counts {
    _Atomic uint64_t connections_open; /* now */
    _Atomic uint64_t connections, requests, answers, streams;
    _Atomic uint64_t by_status[SERVER_N_STATUS_CLASSES]; /* 2: of 200 to 299, ... */
    _Atomic uint64_t jobs_open;                          /* now: jobs of the engine that are not freed */
    _Atomic uint64_t gone;                               /* clients that disconnected before their reply was complete */
    _Atomic uint64_t pauses;                             /* of answers with a client that reads too slowly */
    _Atomic uint64_t refused;                            /* connections over a limit */
    _Atomic uint64_t overflows;                          /* answers ended because the client reads too slowly */
    _Atomic uint64_t prompt_tokens, cached_tokens, inexact_tokens, answer_tokens;
    /* draft tokens, and those that were accepted: by prompt lookup, and by a draft model or head */
    _Atomic uint64_t lookup_drafted, lookup_accepted, model_drafted, model_accepted;
    _Atomic uint64_t ram_tokens, disk_tokens; /* prompt tokens with KV from the RAM tier, from the disk tier */

    /* requests that ended with a problem */
    _Atomic uint64_t rejections[SERVER_N_PROBLEMS];
    server_histogram queue, module_prefill, plan, prompt_prefill, first_token, between_tokens, step; /* times */
} server_counts;

struct rp_server {
    uint64_t drain_until_us;   /* base_clock_us; 0: not stopped */
    rp_server_options options; /* without its strings */
    char *cors_origin;
    char model_name[SERVER_MODEL_NAME_BYTES]; /* of the options; "": that in the model's file */
    char **aliases;                           /* [options.n_aliases] as in the options */
    char **adapters;                          /* [options.n_adapters] likewise */
    char *schema_dir;                         /* NULL: none */
    struct document_split *split;             /* NULL: texts are not split */
    struct model_pool *models;                /* written before the state is READY */
    int64_t created;                          /* seconds since 1970 */
    uint64_t seed;                            /* for requests without a seed */

    server_routes routes;
    const server_layers *layers;
    const server_answer_ops *answers;
    struct route *route;          /* a router: its answers come from nodes (route/route.h); NULL: from engines */
    _Atomic int state;            /* server_state */
    _Atomic bool drains;          /* an operator has said so: no new answers, until he says otherwise */
    _Atomic bool leaves;          /* it will be stopped: /readyz is 503, and requests are still accepted */
    struct cluster_node *cluster; /* NULL: the server is no node of a cluster */
    const char *node_tag;         /* of that node, in ids of what it stores; "": it has no name */
    char *pool;                   /* its address; NULL: none */
    uint8_t pool_secret[RP_CLUSTER_KEY_BYTES];
    rp_cluster_options engine_cluster; /* what rp_server_join gives an engine */
    struct kv_events *kv_events;       /* NULL: none are published */
    int stop_event;
    server_listeners listeners;
    server_names names; /* accepted host names */
    api_keys *keys;
    watchdog *watchdog;
    work_queue *work;
    struct content_registry *contents;
    struct report_ring *reports;
    struct response_registry *responses;
    struct response_registry *fingerprints; /* of requests, by the id of their answer (prompt/request_fingerprint.h) */
    server_counts counts;
    base_budget *memory;            /* of all requests (http/request_memory.h) */
    _Atomic uint64_t body_bytes;    /* of all bodies in memory */
    _Atomic uint64_t pending_bytes; /* of all answers, not yet taken by their clients (generate.h) */
    _Atomic int n_prefills;

    pthread_mutex_t lock;
    pthread_cond_t idle; /* n_active or n_suspended fell to 0 */
    bool has_lock;
    int n_active; /* requests after their heads, without quick ones */
    int n_suspended;
    pthread_mutex_t log_lock;
};

static inline server_state server_get_state(rp_server *s) { return (server_state)atomic_load(&s->state); }
/* Are new answers refused, while it is not loading? */
static inline bool server_is_draining(rp_server *s) {
    return atomic_load(&s->drains) || atomic_load(&s->leaves) || server_get_state(s) >= SERVER_STATE_DRAINING;
}

/* libmicrohttpd's callbacks, with the server as cls (http_io.c): passed to listeners_start. */
extern const server_http_callbacks http_io_callbacks;

#endif
