/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h: answers for an exchange: a call of the engine for each choice, its text on the way to the reader.
 *
 *   engine's thread --on_text--> choice.text (bounded) --generate_take, I/O thread--> form's frames --> reader
 *
 * What comes while the reader is busy is one frame when it is back.
 */
#ifndef SERVER_GENERATE_H
#define SERVER_GENERATE_H

#include "server/http/server_request.h"
#include "server/generation/tool_calls.h"

/* What waits for the reader of a choice. Beyond it, or as soon as anything waits while all choices together have more than
 * reply_buffer_bytes of the server's options, the call is paused until the reader has taken it. */
#define SERVER_UNREAD_TEXT_BYTES ((size_t)16 << 10)
#define SERVER_UNREAD_TOKENS_BYTES ((size_t)64 << 10)
#define SERVER_PENDING_BYTES ((uint64_t)64 << 20)
/* A step may still add to that; beyond this the call ends. */
#define SERVER_PENDING_TEXT_BYTES ((size_t)4 << 20)
#define SERVER_PENDING_TOKENS_BYTES ((size_t)32 << 20)

/* A token whose probability was asked for; followed by its n_top rp_token_logprob. */
typedef struct server_token {
    int32_t id;
    float logprob;
    int32_t n_top;
} server_token;

/* The likeliest tokens behind a record, and the record behind it. */
static inline const rp_token_logprob *server_token_top(const server_token *t) { return (const rp_token_logprob *)(const void *)(t + 1); }
static inline const server_token *server_token_next(const server_token *t) {
    return (const server_token *)(const void *)(server_token_top(t) + t->n_top);
}

/* What has come of an answer since it was last looked at. */
typedef struct server_piece {
    const char *text;
    size_t n;
    const server_token *tokens, *tokens_end;
} server_piece;

typedef struct server_choice {
    server_request *x;
    int32_t index;
    rp_job *call;
    uint64_t submitted_us; /* when the library got it */

    /* shared, under the exchange's lock */
    base_buffer text, tokens;
    size_t pending; /* their bytes, as the server counts them */
    bool done, paused;

    uint64_t token_us; /* the engine's thread: when the last token came; 0: none did */

    /* the I/O thread's, of a stream; else the worker's that has the exchange */
    base_buffer taken_text, taken_tokens;
    bool ended, collected;
    server_piece piece; /* what the finder reads */
    tool_finder finder; /* finds calls in what was taken, where the ask has tools; else it is empty */
    int32_t n_blocks;    /* parts of the answer whose beginning was told, where the dialect numbers them; the last is open or not */
    bool block_is_open;
    int32_t n_events;    /* that were told, where the dialect numbers them */
    size_t reported_bytes; /* of tokens whose probability was told: text may come behind its token */
    rp_result *result; /* or NULL and a problem */
    server_problem problem;
} server_choice;

/* How a dialect writes answers. Frames are appended by server_request_frame; nonzero: no memory. */
typedef struct server_form {
    generation_parser parse;
    json_t *(*whole)(server_request *x); /* every choice has its result */
    int (*open)(server_request *x);      /* each of these may be NULL */
    int (*piece)(server_request *x, server_choice *c, const server_piece *piece);
    int (*close)(server_request *x, server_choice *c); /* behind its last piece: it has its result */
    int (*end)(server_request *x);
    int (*fail)(server_request *x, const server_problem *p); /* in mid-stream; the stream ends */
    int (*call)(server_request *x, server_choice *c, tool_event event, const tool_item *item, const char *bytes, size_t n);
} server_form;

/* With --strict unknown fields of x->ask are a problem. Returns its kind. */
int generate_check_fields(server_request *x);
/* Handler: parses the body by the form and submits. The reply comes when there is something. */
void generate_handle(server_request *x, const server_form *form);
/* The same with an ask that is there already, in x->ask. */
void generate_begin(server_request *x, const server_form *form);
/* I/O thread, STREAMING, not locked: appends the frames of what has come. */
void generate_take(server_request *x);
/* The text of a choice that has its result, without calls. NULL: no memory. */
json_t *generate_text(const server_choice *c);

extern const server_answer_ops generate_operations;

#endif
