/* SPDX-License-Identifier: Apache-2.0 */
/* server_request.h: a request and its reply, from the request's head to the last byte of the reply.
 *
 *   READING     I/O thread   head and body arrive
 *   QUEUED      -            the connection is suspended until a worker takes the request
 *   HANDLING    worker       parse, look up, submit                          --> REPLYING, or RUNNING
 *   RUNNING     -            jobs run; the engine's thread appends text to the choices
 *                              a stream: with the first text ------------------> STREAMING
 *                              else: when all jobs have ended, QUEUED again ---> FINISHING (worker: results to a reply)
 *                              --> REPLYING
 *   REPLYING    I/O thread   a complete reply is sent
 *   STREAMING   I/O thread   frames are rendered from the choices' text; the connection is suspended while there is
 *         none. While it is
 *                            `held`, a worker works for it, on what the I/O thread leaves alone
 *   CLOSED      worker       the connection has released the request: its jobs are freed, then the request
 *
 * `lock` guards the fields under "shared". The thread that the stage names owns all others.
 */
#ifndef SERVER_SERVER_REQUEST_H
#define SERVER_SERVER_REQUEST_H

#include <microhttpd.h>
#include <pthread.h>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/file.h"
#include "server/http/api_keys.h"
#include "server/http/content_coding.h"
#include "reprise.h"
#include "server/http/routing.h"
#include "server/http/watchdog.h"
#include "server/http/work_queue.h"

#define SERVER_NAME_BYTES 128 /* of the {name} in a path */
#define SERVER_ID_BYTES 40
#define SERVER_PAGE_TAG_BYTES 24
#define SERVER_TRACEPARENT_BYTES 56
#define SERVER_REPLY_BYTES ((size_t)256 << 20)

typedef struct rp_server rp_server;

typedef enum server_stage {
    SERVER_READING,
    SERVER_QUEUED,
    SERVER_HANDLING,
    SERVER_RUNNING,
    SERVER_FINISHING,
    SERVER_REPLYING,
    SERVER_STREAMING,
    SERVER_CLOSED,
} server_stage;

/* Progress of a worker that works while its stream is sent. */
typedef struct server_progress {
    uint64_t done, total, reported; /* reported: value of done that was last sent to the client */
    bool over;
} server_progress;

struct server_request;

/* Operations of the part that answers: an engine's jobs (generation/generate.c), or nodes (route/route_answers.c).
 * Those after the first do nothing for a request without an answer. */
typedef struct server_answer_ops {
    int (*begin)(struct server_request
                     *x); /* worker: the generation is prepared, and there is a choice for each answer. SERVER_FINE: the
                             answers are under way, and the request is no longer the worker's; else a problem's kind */

    void (*finish)(
        struct server_request *x); /* worker, FINISHING: all jobs have ended: their results become the reply */

    void (*assist)(
        struct server_request *x); /* worker, while the request streams: what the stream needs before it goes on
                                      (server_request_ask_worker). NULL: it never asks */

    void (*look)(struct server_request *x,
                 uint64_t keep_alive_us);     /* the watchdog's thread: resumes or keeps alive a stream */
    void (*cancel)(struct server_request *x); /* any thread, locked: cancels the jobs */
    void (*free)(struct server_request *x);   /* frees the choices, jobs first */
    int (*pin)(struct server_request *x, const char *id,
               const char *field); /* worker: what the request names with this id, in that field (or NULL), is on
                                      another server, which alone gets the request. A problem's kind. NULL: all is here
                                      */
} server_answer_ops;

/* What http/ asks of the layers above it; server.c has the table. */
typedef struct server_layers {
    int (*open)(
        struct server_request *x);           /* I/O thread: makes the parts of a new request that they own.
                                                RP_ERR_MEMORY */
    void (*close)(struct server_request *x); /* frees them, jobs first */
    bool (*head)(
        struct server_request *x);          /* I/O thread: its head is there: is it a router's, and signed? false: no
                                               memory */
    void (*body)(struct server_request *x); /* I/O thread: its body is complete: is the signature right? */
    void (*changed)(rp_server *s);          /* any thread: tells routers that the state or the uploaded schemas have
                                               changed */
    int (*metrics)(base_buffer *b,
                   rp_server *s); /* worker: appends the metrics of models and nodes. Not 0: no memory */
} server_layers;

typedef struct server_request {
    rp_server *server;
    struct MHD_Connection *connection;
    server_peer *peer;
    server_work work;
    const server_route *route;               /* NULL: none */
    json_t *(*say)(const server_problem *p); /* the dialect of its errors */
    server_key *key;                         /* of the client; NULL: an open route, or an invalid key */
    char id[SERVER_ID_BYTES];                /* unique */
    char method[16], path[256];              /* for the log; cut */
    char name[SERVER_NAME_BYTES];            /* the {name} of the route */
    uint64_t start_us;
    uint64_t arrived_us, handled_us; /* arrival of its last byte; start of its handling */

    base_budget *memory; /* of the request (request_memory.h); NULL: no key was needed, or none was valid */
    base_buffer body;
    uint64_t body_bytes;     /* received, stored or not */
    content_codings codings; /* of the body, until a worker decodes it */
    bool is_active;          /* does it hold up a shutdown? */

    server_problem problem;
    int status; /* of the reply */
    const char *content_type;
    char page_tag[SERVER_PAGE_TAG_BYTES]; /* ETag of the page's file in the reply; "": none */
    char allow[SERVER_ALLOW_BYTES];       /* allowed methods of the path, for 405; or "" */
    base_buffer reply;                    /* complete, or frames that the client has not read */
    size_t reply_at;                      /* bytes of reply already sent */
    bool is_stream, stream_began, stream_ended;
    bool is_lines; /* the stream is lines of JSON (NDJSON), not server-sent events */
    bool is_bytes; /* it is of content_type, neither of them */
    uint64_t sent_bytes;

    char traceparent[SERVER_TRACEPARENT_BYTES]; /* of the request, if well-formed; or "" */
    struct {
        bool is_set;
        rp_timings timings; /* of the first choice */
        int64_t prompt_tokens, cached_tokens, answer_tokens;
    } answer; /* of a finished answer, for on_request */

    bool has_parted;                      /* it is no user of its model any more (model_pool_part) */
    struct server_model *model;           /* that its route needs, from before the handler on (model_pool.h); NULL: the
                                             route needs none */
    const struct server_adapter *adapter; /* of the model, that the request's answers are computed with; NULL: none; */
    float adapter_scale;
    struct server_request *next_waiting; /* of those that wait for the model */
    struct server_model *turn;           /* of which its worker has a turn (model_pool.h); NULL: none */
    json_t *root;                        /* the body, if it was parsed for the model's name (server_request_json); NULL:
                                            not yet */
    struct generation *gen;              /* what it asks for (prompt/generation.h); owned by request_work.c */
    struct server_answers *answers;      /* its jobs and what they have written (answers/generate.h); likewise */

    struct server_relay *relay;   /* of a request on the cluster's port (request_relay.h); NULL: it came on another
                                     one */
    struct server_reader *reader; /* of a span stream (cluster_stream.h); NULL: it is none */

    void (*take)(struct server_request *x); /* I/O thread, STREAMING, not locked: appends frames of new text */
    int (*take_piece)(struct server_request *x);
    void *taken; /* what `take` appends from, of a reply in pieces (server_request_reply_pieces), owned; NULL: none */

    struct route_request *routed; /* of a router: what nodes do for it (route/route_internal.h); NULL: nothing */
    int32_t only_node;            /* the node that has what the request names; -1: any */
    const char *node;             /* name of the node that answers, for x-reprise-node; NULL: none */

    pthread_mutex_t lock;
    /* shared */
    server_stage stage;
    uint64_t stage_us; /* since when it is QUEUED, HANDLING, RUNNING or FINISHING */
    bool suspended;
    bool gone;                /* the client has disconnected, or the server is stopping */
    bool has_news;            /* a stream has something to send */
    bool is_idle;             /* no output for the keep-alive interval: a comment is due */
    uint64_t reported_us;     /* time of the last frame of a stream */
    bool has_jobs;            /* some may run: a worker frees the request */
    bool held;                /* a worker continues while the request streams, or will, until server_request_release */
    server_progress progress; /* of a schema (schemas_http.c) */
    rp_job *encoding;         /* the job that a worker waits for; NULL: none. Cancelled with the request */
} server_request;

/* Locked. */
static inline void server_request_enter(server_request *x, server_stage stage) {
    x->stage = stage;
    x->stage_us = base_clock_us();
}

/* NULL: no memory. */
server_request *server_request_new(rp_server *server, struct MHD_Connection *connection, server_peer *peer);
/* Does it hold up a shutdown? The owner of the request. */
void server_request_set_active(server_request *x, bool is);
/* Waits for the jobs and frees everything. A worker, or the only holder. */
void server_request_free(server_request *x);

/* I/O thread, in one of libmicrohttpd's callbacks: suspends the connection. false: the server is stopping, and
 * nothing may be suspended. Locked. */
bool server_request_suspend(server_request *x);
/* Resumes the connection, if it is suspended. Locked; afterwards this thread may only unlock the request. */
void server_request_resume(server_request *x);
/* A stream has something to send: wakes its I/O thread. Locked; likewise. */
void server_request_wake(server_request *x);
/* Cancels the request's jobs and ends its stream. Any thread, not locked. */
void server_request_abandon(server_request *x);

/* I/O thread, STREAMING: a worker runs the answer's `assist`, unless the client has left, and wakes the stream.
 * Meanwhile x->held is true, and the stream does not use what `assist` sets. */
void server_request_ask_worker(server_request *x);
/* Locks: does a worker hold the request? */
bool server_request_is_held(server_request *x);
/* Worker: starts a stream with frames from `take`, while the worker continues. */
void server_request_hold(server_request *x, void (*take)(server_request *x));
/* The worker has finished; the request may be freed afterwards. */
void server_request_release(server_request *x);

/* Frees the body and its share of the server's limit. The owner of the request. */
void server_request_drop_body(server_request *x);

/* The body as JSON, which the caller decrefs; NULL: a problem. */
json_t *server_request_json(server_request *x);

/* ---- Replies, for handlers ---- */

/* Makes the object, which it takes over, the reply; NULL: out of memory. */
void server_request_reply_json(server_request *x, int status, json_t *object);
/* Takes over the content of the buffer. content_type: static. */
void server_request_reply_text(server_request *x, int status, const char *content_type, base_buffer *text);
/* Replies with bytes that `take` makes, a piece whenever the client has read the one before: memory for a piece,
 * however long the reply is. take appends to x->reply, and sets x->stream_ended with the last piece; other than 0: no
 * memory, and the reply is cut, or a problem if nothing was sent yet. `from` is x->taken meanwhile, freed with
 * base_free after it. */
void server_request_reply_pieces(server_request *x, const char *content_type, int (*take)(server_request *x),
                                 void *from);
/* Replies with the request's problem, in the route's dialect. */
void server_request_reply_problem(server_request *x);

/* When the request was made, in seconds since 1970, as its objects give it; of a routed request: what the router
   said. */
int64_t server_request_created(const server_request *x);

/* Appends a frame of server-sent events: "event: NAME" (NULL: no such line) and the object, which is taken over.
 * NULL: no memory. */
int server_request_frame(server_request *x, const char *event, json_t *object);
/* Appends a line of JSON to a stream of lines. */
int server_request_line(server_request *x, json_t *object);
/* Appends the frame of server-sent events that ends a stream of OpenAI's, and of Gemini's Interactions. event: as
   above. */
int server_request_done(server_request *x, const char *event);

/* Appends a value to a buffer as replies have it. An error: no memory. */
int server_request_append_json(base_buffer *b, const json_t *value);

/* A value of the query string, or NULL; a header, or NULL. Worker, while the connection is suspended, or I/O thread. */
const char *server_request_query(const server_request *x, const char *name);
const char *server_request_header(const server_request *x, const char *name);
/* Does the client want server-sent events (Accept)? */
bool server_request_wants_events(const server_request *x);

#endif
