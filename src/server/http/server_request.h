/* SPDX-License-Identifier: Apache-2.0 */
/* server_request.h: a request and its reply, from the request's head to the last byte of the reply.
 *
 *   READING     I/O thread   head and body arrive
 *   QUEUED      -            the connection is suspended, a worker will take it
 *   HANDLING    worker       parse, look up, submit                          --> REPLYING, or RUNNING
 *   RUNNING     -            calls are under way; the engine's thread appends text to the choices
 *                              a stream: with the first text ------------------> STREAMING
 *                              else: when all calls are over, QUEUED again ---> FINISHING (worker: results to a reply) --> REPLYING
 *   REPLYING    I/O thread   a reply that is whole is sent
 *   STREAMING   I/O thread   frames are made out of what the choices hold, or the connection is suspended until they hold something
 *   CLOSED      worker       the connection does not need it any more: calls are freed, then the exchange
 *
 * `lock` guards what stands under "shared". Everything else belongs to the thread that the stage names.
 */
#ifndef SERVER_SERVER_REQUEST_H
#define SERVER_SERVER_REQUEST_H

#include <microhttpd.h>
#include <pthread.h>

#include "base/buffer.h"
#include "server/http/api_keys.h"
#include "server/generation/generation.h"
#include "server/http/watchdog.h"
#include "server/http/routing.h"
#include "server/http/work_queue.h"

#define SERVER_NAME_BYTES 128      /* of what a route takes out of a path */
#define SERVER_ID_BYTES 40
#define SERVER_PAGE_TAG_BYTES 24
#define SERVER_REPLY_BYTES ((size_t)256 << 20)
#define SERVER_FRAMES_BYTES ((size_t)64 << 20) /* of frames that were made and not taken */

typedef struct rp_server rp_server;

typedef enum server_stage {
    SERVER_READING, SERVER_QUEUED, SERVER_HANDLING, SERVER_RUNNING, SERVER_FINISHING, SERVER_REPLYING, SERVER_STREAMING, SERVER_CLOSED,
} server_stage;

/* How far a worker is that works while its stream is read. */
typedef struct server_progress {
    uint64_t done, total, reported; /* told: of done, to the client */
    bool over;
} server_progress;

struct server_request;

/* What computes the answer of a request (generation/generate.c). Each does nothing for a request that has none. */
typedef struct server_answer_ops {
    void (*finish)(struct server_request *x); /* worker, FINISHING: all jobs have ended: their results become the reply */
    void (*look)(struct server_request *x, uint64_t keep_alive_us); /* the watchdog's thread: resumes or keeps alive a stream */
    void (*cancel)(struct server_request *x); /* any thread, locked: cancels the jobs */
    void (*free)(struct server_request *x);   /* frees the choices, jobs first */
} server_answer_ops;

typedef struct server_request {
    rp_server *server;
    struct MHD_Connection *connection;
    server_peer *peer;
    server_work work;
    const server_route *route; /* NULL: none */
    json_t *(*say)(const server_problem *p); /* the dialect of its errors */
    server_key *key;           /* who asks; NULL: a route that is open to anybody, or nobody who may */
    char id[SERVER_ID_BYTES]; /* nobody else's */
    char method[16], path[256]; /* for the log; cut */
    char name[SERVER_NAME_BYTES]; /* the {name} of the route */
    uint64_t start_us;
    uint64_t arrived_us, handled_us; /* its last byte came; a thread took it up */

    base_buffer body;
    uint64_t body_bytes; /* that came, kept or not */
    bool body_is_counted, is_active; /* parts of the server's counts */

    server_problem problem;
    int status; /* of the reply */
    const char *content_type;
    char page_tag[SERVER_PAGE_TAG_BYTES]; /* ETag of what of the page the reply is; "": nothing */
    char allow[SERVER_ALLOW_BYTES]; /* the methods that a path has, for 405; or "" */
    base_buffer reply; /* whole, or frames that wait for the reader */
    size_t reply_at;   /* taken of them */
    bool is_stream, stream_began, stream_ended;
    uint64_t sent_bytes;

    generation gen;
    const struct server_form *form; /* how answers are written */
    struct server_choice *choices;
    int32_t n_choices;
    uint64_t seed;

    void (*take)(struct server_request *x); /* I/O thread, STREAMING, not locked: appends frames of what is new */

    pthread_mutex_t lock;
    /* shared */
    server_stage stage;
    bool suspended;
    bool gone;       /* the client is, or the server ends */
    bool has_news;   /* for the reader of a stream */
    bool is_idle;    /* nothing has come of its calls for so long that the reader is to be told that they go on */
    uint64_t reported_us; /* when the reader of a stream was last told something */
    int32_t n_done;  /* choices whose calls are over */
    bool held;       /* a worker goes on with it while it streams, and ends that by server_request_release */
    server_progress progress; /* of a schema (schemas_http.c) */
    rp_job *encoding;        /* what a worker waits for; NULL: nothing. Cancelled with the exchange */
} server_request;

/* NULL: no memory. */
server_request *server_request_new(rp_server *server, struct MHD_Connection *connection, server_peer *peer);
/* Frees calls, which waits for them, and the rest. Worker, or whoever has it alone. */
void server_request_free(server_request *x);

/* I/O thread, in one of libmicrohttpd's callbacks: suspends the connection. false: the server ends and nothing may be suspended. Locked. */
bool server_request_suspend(server_request *x);
/* Lets the connection go on, if it is suspended. Locked; the last that this thread does with the exchange but for unlocking. */
void server_request_resume(server_request *x);
/* The exchange's calls, if it has any, are cancelled; a stream ends. Any thread, not locked. */
void server_request_abandon(server_request *x);

/* Worker: the connection goes on as a stream that `take` makes the frames of, while the worker works on. */
void server_request_hold(server_request *x, void (*take)(server_request *x));
/* The worker's work is over; the exchange may be gone afterwards. */
void server_request_release(server_request *x);

/* Gives the body's memory back, and its part of the server's limit. Whoever has the exchange. */
void server_request_drop_body(server_request *x);

#define SERVER_SALTED_BYTES (2 * 32 + 1)

/* The tenant of the request's KV: its key's, or with a `cache_salt` another one for each value, written to `salted`. */
const char *server_request_tenant(const server_request *x, char salted[SERVER_SALTED_BYTES]);

/* ---- for handlers: the reply ---- */

/* Takes the object over and makes it the reply; NULL is no memory. */
void server_request_reply_json(server_request *x, int status, json_t *object);
/* Takes over what the buffer holds. content_type: static. */
void server_request_reply_text(server_request *x, int status, const char *content_type, base_buffer *text);
/* The exchange's problem, in the route's dialect. */
void server_request_reply_problem(server_request *x);

/* Appends a frame of server-sent events: "event: NAME" (NULL: no such line) and the object, which is taken over. NULL: no memory. */
int server_request_frame(server_request *x, const char *event, json_t *object);

/* A value of the query string, or NULL; a header, or NULL. Worker, while the connection is suspended, or I/O thread. */
const char *server_request_query(const server_request *x, const char *name);
const char *server_request_header(const server_request *x, const char *name);
/* Does the client want server-sent events (Accept)? */
bool server_request_wants_events(const server_request *x);

#endif
