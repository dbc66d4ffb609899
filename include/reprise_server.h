/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_server.h: an HTTP server for an engine: established APIs, and PML (docs/server.md).
 *
 *   rp_server *server;
 *   rp_server_new(&server, &options, &err);           listens: /livez answers, every other path gets 503 with
 *   Retry-After
 *   ... open a model, create an engine ...
 *   rp_server_ready(server, model, engine, &err);     accepts requests; rp_server_ready_models for several models
 *   rp_server_run(server);                            until rp_server_stop; then running requests may finish
 *   rp_server_free(server);                           then rp_engine_close, which completes writes to the store
 *
 * libreprise-server is libreprise-tools with this server: a program links one of the libraries. Conventions are those
 * of reprise.h. The server handles no signals; a program must ignore SIGPIPE.
 */
#ifndef REPRISE_SERVER_H
#define REPRISE_SERVER_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_server rp_server;

#define RP_SERVER_NO_PORT (-1)

/* A request whose reply has been sent, or given up, for rp_server_options.on_request. Strings are valid during the
 * call. */
typedef struct rp_server_request {
    const char *id;                                      /* x-request-id of the reply */
    const char *method, *route;                          /* "POST", "/v1/chat/completions"; route: as in the
                                                            API's description, or "" */
    const char *traceparent;                             /* of the request, if it is well-formed (W3C Trace
                                                            Context, version 00); or "" */
    const char *error;                                   /* message, or "" */
    int32_t status;                                      /* of HTTP */
    double receive_ms;                                   /* from the head of the request to its last byte */
    double total_ms;                                     /* from the head to the end of the reply */
    bool has_answer;                                     /* whether the fields from here on are set; with several
                                                            choices: those of the first */
    rp_timings timings;                                  /* from the last byte of the request: queue, modules,
                                                            plan, prompt, decode */
    int64_t prompt_tokens, cached_tokens, answer_tokens; /* of all choices */
} rp_server_request;

/* A router: a server that computes nothing. It sends each request to the node, a server of a cluster, that is
 * predicted to answer it first (docs/cluster.md). Strings are borrowed until rp_server_new returns. */
typedef struct rp_router_options {
    uint32_t struct_size;
    const char *const *nodes;   /* [n_nodes] cluster ports, "http://HOST:PORT" or "NAME=http://HOST:PORT" */
    int32_t n_nodes;            /* 0 to 256 */
    const char *nodes_file;     /* file with one more of them in each line, '#' begins a comment; read again when
                                   it changes. NULL: none */
    const char *nodes_dns;      /* "NAME:PORT": a node at each address of the name, which is looked up every 10 s.
                                   NULL: none */
    const char *secret_file;    /* the cluster's secret: 64 hexadecimal digits, or 32 bytes */
    const char *const *schemas; /* [n_schemas] files of schemas that nodes have for all tenants, for plans. NULL:
                                   none */
    int32_t n_schemas;          /* 0 to 256 */
    const char *policy;         /* how a node is chosen: "cost", "longest-match", ... (docs/cluster.md). NULL: cost */
    const char *admission;      /* when a request that will miss its goals is refused: "off", "after-prefill",
                                   "at-arrival", "predicted". NULL: predicted */
    double ttft_goal_ms;        /* goal for the time to first token; 0: none (default) */
    double itl_goal_ms;         /* goal for the inter-token latency; 0: none (default) */
    int32_t max_queue;          /* requests that wait for a node, 1 to 65536; default 4096 */
    uint64_t index_bytes;       /* of the index of names, which nodes share equally; at least 1 MiB; default 512 MiB */
    double node_timeout_ms;     /* a request without a byte or another sign of life of its node for so long moves,
                                   or ends; 0: never; default 60 s */
} rp_router_options;
RP_API void rp_router_options_init(rp_router_options *options, uint32_t struct_size);
static inline rp_router_options rp_router_options_defaults(void) {
    rp_router_options o;
    rp_router_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Text early in prompts that differs between requests, so that nothing after it hits the prefix cache. */
typedef enum rp_agent_noise {
    RP_AGENT_NOISE_MOVE, /* of known agents: working directories, dates, git status and the like move after the
                            constant text, with the same words; Claude Code's billing header is left out
                            (docs/server.md, "Agents") */
    RP_AGENT_NOISE_ALL,  /* likewise; and lines of any client's first system message that have a date, an id or a
                            counter move to its end */
    RP_AGENT_NOISE_KEEP, /* nothing is changed */
} rp_agent_noise;

/* Automatic modules (RP_REUSE_AUTO) of requests. */
typedef enum rp_auto_reuse {
    RP_AUTO_OFF = 0, /* none: reuse "auto" is as "on" */
    RP_AUTO_ASK,     /* of requests with reuse "auto" */
    RP_AUTO_ON,      /* of these, and of requests without the field `reuse` */
} rp_auto_reuse;

/* Strings are borrowed until rp_server_new returns. */
typedef struct rp_server_options {
    uint32_t struct_size;
    const char *host;                             /* a name or an address; NULL: 127.0.0.1. Anything but loopback
                                                     needs api_keys */
    int32_t port;                                 /* 0: any free port; RP_SERVER_NO_PORT: none; default 8080 */
    const char *unix_path;                        /* path of an additional Unix socket; a stale one is replaced.
                                                     NULL: none */
    bool inherit_sockets;                         /* use the sockets of LISTEN_FDS and LISTEN_PID, if set,
                                                     instead of host, port and unix_path */
    const char *api_keys;                         /* key file (docs/server.md); NULL: every client is the operator */
    const char *schema_dir;                       /* folder for schemas that clients upload, so that they outlive
                                                     the server; created if missing. NULL: none */
    const char *cors_origin;                      /* origin of pages that may send requests, or "*"; NULL: none */
    const char *const *host_names;                /* allowed values of Host, besides the loopback names, the
                                                     bound addresses and `host`; requests with others are
                                                     refused, except on Unix sockets. NULL: none */
    int32_t n_host_names;                         /* 0 to 64 */
    const char *model_name;                       /* model name in the API for rp_server_ready; NULL: from the
                                                     model's file */
    const char *const *aliases;                   /* other names, which GET /v1/models lists as well: "NAME", of
                                                     the first model, or "NAME=MODEL". NULL: none */
    int32_t n_aliases;                            /* 0 to 64 */
    rp_agent_noise agent_noise;                   /* what happens with text of known agents that differs between
                                                     their requests; the report lists it. Default MOVE */
    int32_t shifted_reuse;                        /* rp_request.shifted_reuse of requests that do not name it,
                                                     with RP_REUSE_ON; -1: off (default) */
    bool modular;                                 /* documents, tool definitions and system blocks of
                                                     conversations are modules (reuse "modular"), unless the
                                                     request or its key says otherwise */
    rp_auto_reuse auto_reuse;                     /* automatic modules (RP_REUSE_AUTO); default RP_AUTO_OFF. A
                                                     key may say otherwise */
    bool strict;                                  /* refuse requests with fields that their API does not have,
                                                     with names of other models, and with tools that are not
                                                     supported; otherwise `reprise.warnings` names them */
    int32_t max_connections;                      /* 1 to 65536; default 1024. Beyond it a new connection
                                                     replaces the oldest idle one; if none is idle, its request
                                                     gets 503 */
    int32_t max_connections_per_address;          /* likewise, of one address; default 0: a quarter of
                                                     max_connections, and no limit for loopback addresses, which
                                                     may belong to a proxy. Unix sockets have no address */
    uint64_t max_body_bytes;                      /* of a request, decoded; 0: 16 MiB, or half of
                                                     request_ram_bytes if that is less (default) */
    uint64_t reply_buffer_bytes;                  /* of all unread answers; beyond it jobs pause until clients
                                                     read; default 64 MiB */
    int32_t default_max_tokens;                   /* of an answer, if the request has no limit; default 1024 */
    int32_t head_timeout_ms;                      /* timeout for request headers; default 10 s */
    int32_t body_timeout_ms;                      /* timeout for the body after them; default 60 s */
    int32_t idle_timeout_ms;                      /* timeout between requests, and for clients that stop reading;
                                                     default 75 s */
    int32_t keep_alive_ms;                        /* interval of comments in a stream without output, during
                                                     prefill; default 15 s; 0: none */
    int32_t drain_timeout_ms;                     /* grace period for running requests after rp_server_stop;
                                                     default 30 s */
    bool no_page;                                 /* disable the web page at / (web/) */
    void (*on_log)(void *user, const char *line); /* one JSON line per request; any thread, one at a time. NULL: none */
    void *user;
    void (*on_request)(void *user, const rp_server_request *request); /* each request; any thread, several at once:
                                                                         it must not wait. NULL: none */
    void (*on_metrics)(void *user, char *text, size_t size);          /* writes more lines of /metrics, with line feeds,
                                                                         NUL-terminated; any thread. NULL: none */

    const char *split_documents;     /* regular expression (PCRE2) of separators: where documents are modules,
                                        the texts between its matches in a message are documents of their own,
                                        the last one the question. NULL: texts are not split */
    const char *const *adapters;     /* LoRA adapters (rp_adapter_open): "NAME=FILE", of the first model, or
                                        "NAME@MODEL=FILE". A request whose model is NAME uses the adapter.
                                        Opened with their model. NULL: none */
    int32_t n_adapters;              /* 0 to 64 */
    const char *cluster_listen;      /* listen for routers (docs/cluster.md) on "ADDRESS:PORT" or "unix:PATH",
                                        on any address: each request needs a signature with cluster_secret.
                                        With one model, and rp_server_ready_models. NULL: none */
    const char *cluster_secret;      /* file of the cluster's secret: 32 bytes or 64 hexadecimal digits,
                                        readable by its owner and his group alone */
    const char *cluster_name;        /* name of this node, 1 to 63 visible ASCII characters; NULL: the address
                                        of cluster_listen */
    const rp_router_options *router; /* the server is a router: rp_server_ready_router instead of
                                        rp_server_ready. NULL: it is none. Borrowed likewise */
    uint64_t request_ram_bytes;      /* memory of all requests together: bodies, JSON, tokens, template values,
                                        replies; not KV. A request may take half of it (else 413), a tenant
                                        with API keys three quarters (else 429), all bodies half of it (else
                                        503). From 1 MiB; 0: 1 GiB, of a router 192 MiB (default) */
    int32_t shutdown_delay_ms;       /* after rp_server_stop: for so long /readyz is 503 and requests are still
                                        accepted, until a load balancer that asks /readyz sends no more; then
                                        the server drains. Default 0 */
    const char *kv_events;           /* publish KV events in vLLM's form for gateways (docs/cluster.md) on a
                                        ZeroMQ socket, "tcp://0.0.0.0:5557" or "ipc://PATH": every subscriber
                                        receives the token ids of cached text. With one model, and
                                        rp_server_ready_models. RP_ERR_UNSUPPORTED in a build without libzmq.
                                        NULL: none */
    const char *kv_events_name;      /* of this node in their topic, without '@'; NULL: cluster_name, or else
                                        the first address without "http://" */
    const char *pool;                /* address of a pool of KV that other servers use, too (docs/cluster.md):
                                        "redis://HOST", ...; with cluster_secret, of which its names and keys are
                                        made. NULL: none */
    uint64_t pool_write_bytes;       /* pushed to it in a second at most; 0: no limit */
    const char *kv_events_tenant;    /* text of this tenant is published: needed with api_keys, and only with
                                        it. NULL: of the operator */
} rp_server_options;
#define RP_SERVER_METRICS_BYTES 4096 /* size of on_metrics */

RP_API void rp_server_options_init(rp_server_options *options, uint32_t struct_size);
static inline rp_server_options rp_server_options_defaults(void) {
    rp_server_options o;
    rp_server_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Opens the sockets and starts the server's threads. RP_ERR_INVALID (a value out of its range; an address beyond
 * loopback without keys), RP_ERR_IO (sockets, the key file, threads), RP_ERR_FORMAT (the key file), RP_ERR_MEMORY. */
RP_API int rp_server_new(rp_server **out, const rp_server_options *options, rp_error *err);
/* The i-th listening address: "http://127.0.0.1:8080", "unix:/run/reprise.sock"; NULL past the end. Belongs to the
 * server. */
RP_API const char *rp_server_address(const rp_server *server, int i);
/* Accepts requests from now on, for this model and engine: both are borrowed until rp_server_free. Sets the quotas of
 * the key file, and loads the schemas of schema_dir; failures to load one are logged. RP_ERR_INVALID (aliases),
 * RP_ERR_MEMORY, RP_ERR_LIMIT (65,535 tenants with quotas), RP_ERR_IO. */
RP_API int rp_server_ready(rp_server *server, rp_model *model, rp_engine *engine, rp_error *err);
/* Several models, of which those are loaded that requests use. Strings and infos are borrowed until
 * rp_server_ready_models returns. */
#define RP_SERVER_MAX_MODELS 64
typedef struct rp_server_models {
    uint32_t struct_size;
    int32_t n;                  /* 1 to RP_SERVER_MAX_MODELS */
    const char *const *names;   /* [n] in the API, unique. Of a single model, names[0] may be NULL: from the
                                   model's file */
    const rp_model_info *infos; /* [n] from rp_model_describe, for lists of models before their first load. NULL:
                                   unknown until then */
    /* Opens the i-th model and an engine for it. RP_ERR_BUDGET: loaded models have the memory that it needs; the
     * server unloads one of them and calls again, as long as there is one. Other errors are the replies to the
     * requests that wait for the model; the next request tries again. */
    int (*load)(void *user, int32_t i, rp_model **model, rp_engine **engine, rp_error *err);
    /* Closes both. No request uses them. */
    void (*unload)(void *user, int32_t i, rp_model *model, rp_engine *engine);
    void *user;
} rp_server_models;
/* Like rp_server_ready, with models that the server loads by name (the field `model` of a request; names[0] by
 * default) and unloads, the least recently used ones first, when another one needs their memory; idle ones before
 * those with running requests, which are waited for. load and unload are called on one thread at a time: on this one
 * for names[0], which is loaded at once, then on a thread of the server, in rp_server_free for those that are still
 * loaded. Errors of load; RP_ERR_INVALID (names, aliases). */
RP_API int rp_server_ready_models(rp_server *server, const rp_server_models *models, rp_error *err);
/* With cluster_listen or kv_events: sets the option `cluster` of the engine that rp_server_models.load makes, so that
 * the server knows what its store holds (rp_cluster_options: on_spans, on_blocks; owned by the server); without them,
 * nothing. An engine reports until it has ended, which is within rp_server_free: rp_server_ready, whose engine
 * outlives the server, gives RP_ERR_UNSUPPORTED with either. */
RP_API void rp_server_join(rp_server *server, rp_engine_options *options);
/* Like rp_server_ready, of a router. model: may have its vocabulary only; borrowed until rp_server_free, like the
 * strings of options. Engines that plan requests are made for it, for the identity, KV format and context length of
 * most nodes. options: kv_f16_layers, keep_share, keep_method and kv_keep of the nodes; NULL: the defaults. Once for a
 * server, whatever it returns. */
RP_API int rp_server_ready_router(rp_server *server, rp_model *model, const rp_engine_options *options, rp_error *err);
/* Reads nodes_file of a router again, and looks nodes_dns up. Any thread. */
RP_API void rp_server_reload_nodes(rp_server *server);
/* Counts a step for /metrics, for rp_engine_options.on_step. It must not be called after rp_server_free. Any thread. */
RP_API void rp_server_count_step(rp_server *server, const rp_step *step);
/* Waits for rp_server_stop; then refuses new requests (503), lets running ones finish for up to drain_timeout_ms, and
 * ends the rest. */
RP_API void rp_server_run(rp_server *server);
/* Remaining milliseconds of drain_timeout_ms, counted from rp_server_stop: for rp_engine_close. -1: not stopped.
 * After rp_server_run. */
RP_API int64_t rp_server_drain_left_ms(const rp_server *server);
/* Any thread, and signal handlers. */
RP_API void rp_server_stop(rp_server *server);
/* After rp_server_run has returned, or if it was never called. */
RP_API void rp_server_free(rp_server *server);

/* Hashes an API key for a key file, which has lines "HASH tenant=TENANT rights=request" (docs/server.md); without
 * tenant= a key has a tenant of its own. key: RP_SERVER_MIN_KEY_BYTES to RP_SERVER_MAX_KEY_BYTES printable characters
 * without white space. RP_ERR_INVALID. */
#define RP_SERVER_MIN_KEY_BYTES 16
#define RP_SERVER_MAX_KEY_BYTES 256
#define RP_SERVER_HASH_DIGITS 64
RP_API int rp_server_hash_key(const char *key, char hash[RP_SERVER_HASH_DIGITS + 1], rp_error *err);

#ifdef __cplusplus
}
#endif
#endif
