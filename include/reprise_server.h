/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_server.h: an HTTP server for an engine: established APIs, and PML (docs/server.md).
 *
 *   rp_server *server;
 *   rp_server_new(&server, &options, &err);           listens: /livez answers, everything else says 503 and when to try again
 *   ... open a model, make an engine ...
 *   rp_server_ready(server, model, engine, &err);     requests are taken
 *   rp_server_run(server);                            until rp_server_stop; then what runs may finish
 *   rp_server_free(server);                           and then rp_engine_close, which writes what the store has not written
 *
 * A library of its own (libreprise-server), which uses reprise.h as any program does. It follows the conventions of reprise.h. It handles no
 * signals; a program ignores SIGPIPE.
 */
#ifndef REPRISE_SERVER_H
#define REPRISE_SERVER_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_server rp_server;

#define RP_SERVER_NO_PORT (-1)

/* Strings are borrowed until rp_server_new returns. */
typedef struct rp_server_options {
    const char *host;           /* a name or an address; NULL: 127.0.0.1. Anything but loopback needs api_keys */
    int32_t port;               /* 0: any that is free; RP_SERVER_NO_PORT: none; default 8080 */
    const char *unix_path;      /* a Unix socket, too; one that nobody listens on is replaced. NULL: none */
    bool inherit_sockets; /* take the sockets that LISTEN_FDS and LISTEN_PID hand over, in place of host, port and unix_path, if there are
                             any */
    const char *api_keys;       /* a file of keys (docs/server.md); NULL: everybody who can connect is the operator */
    const char *schema_dir;     /* a folder in which schemas that come by HTTP outlive the server; made if it is not there. NULL: none */
    const char *cors_origin;    /* the origin whose pages may ask, or "*"; NULL: none */
    const char *const *host_names; /* names that requests may call the server by (Host), beside the loopback names, the addresses that
                                      it is bound to, and `host`; others are refused, but on Unix sockets. NULL: none */
    int32_t n_host_names;       /* 0 to 64 */
    const char *model_name;     /* model name in the API; NULL: from the model's file */
    bool stable_system;         /* lines of a system message that are different each time (dates, ids, headers that programs put there) go
                                   to its end, so that the others are found again; the report says so */
    bool strict;                /* a request with a field that its dialect does not have is refused; else `reprise.warnings` names the field */
    int32_t max_connections;    /* 1 to 65536; default 1024. Beyond it the oldest idle connection is closed for a new one; where none is
                                   idle, the new one's request gets 503 */
    int32_t max_connections_per_address; /* the same of one address; default 0: a quarter of max_connections, and no limit for loopback
                                   addresses, which may be a proxy's. Unix sockets have no address */
    uint64_t max_body_bytes;    /* of a request; default 16 MiB */
    uint64_t reply_buffer_bytes; /* of all answers that wait for their readers; beyond it streams pause until they are read; default 64 MiB */
    int32_t default_max_tokens; /* of an answer, where the request does not say; default 1024 */
    int32_t head_timeout_ms;    /* timeout for request headers; default 10 s */
    int32_t body_timeout_ms;    /* timeout for the body after them; default 60 s */
    int32_t idle_timeout_ms;    /* timeout between requests, and for clients that stop reading; default 75 s */
    int32_t keep_alive_ms;      /* a stream of which nothing has come for so long (a prompt is computed) gets a comment; default 15 s; 0: none */
    int32_t drain_timeout_ms;   /* grace period for running requests after rp_server_stop; default 30 s */
    bool no_page;               /* disable the web page at / (web/) */
    void (*on_log)(void *user, const char *line); /* a line of JSON for each request; any thread, one at a time. NULL: none */
    void *user;
} rp_server_options;

RP_API rp_server_options rp_server_options_defaults(void);

/* Opens the sockets and starts the server's threads. RP_ERR_INVALID (a value out of its range; an address beyond loopback without
 * keys), RP_ERR_IO (sockets, the file of keys, threads), RP_ERR_FORMAT (the file of keys), RP_ERR_MEMORY. */
RP_API int rp_server_new(rp_server **out, const rp_server_options *options, rp_error *err);
/* Where it listens: "http://127.0.0.1:8080", "unix:/run/reprise.sock"; NULL past the end. Belongs to the server. */
RP_API const char *rp_server_address(const rp_server *server, int i);
/* Takes requests from now on, for this model and engine: both are borrowed until rp_server_free. The tenants of the keys get their quotas.
 * Schemas of schema_dir are loaded; those that cannot be are logged. RP_ERR_MEMORY, RP_ERR_LIMIT (65,535 tenants with quotas), RP_ERR_IO. */
RP_API int rp_server_ready(rp_server *server, rp_model *model, rp_engine *engine, rp_error *err);
/* Counts a step for /metrics: what the on_step of the engine may call while the server lives. The engine may make steps after that. Any
 * thread. */
RP_API void rp_server_count_step(rp_server *server, const rp_step *step);
/* Waits for rp_server_stop; then takes no new requests (503), lets those that run finish for up to drain_timeout_ms, and ends the rest. */
RP_API void rp_server_run(rp_server *server);
/* What is left of drain_timeout_ms, which begins when rp_server_run meets rp_server_stop: for rp_engine_close. -1: it was not stopped. After
 * rp_server_run. */
RP_API int64_t rp_server_drain_left_ms(const rp_server *server);
/* Any thread, and signal handlers. */
RP_API void rp_server_stop(rp_server *server);
/* After rp_server_run has returned, or where it was never called. */
RP_API void rp_server_free(rp_server *server);

/* The line of a file of keys that lets this key in: "HASH tenant=TENANT rights=ask" (docs/server.md); without tenant= the
 * key has a tenant of its own. key: RP_SERVER_MIN_KEY_BYTES to
 * RP_SERVER_MAX_KEY_BYTES printable characters without white space. RP_ERR_INVALID. */
#define RP_SERVER_MIN_KEY_BYTES 16
#define RP_SERVER_MAX_KEY_BYTES 256
#define RP_SERVER_HASH_DIGITS 64
RP_API int rp_server_hash_key(const char *key, char hash[RP_SERVER_HASH_DIGITS + 1], rp_error *err);

#ifdef __cplusplus
}
#endif
#endif
