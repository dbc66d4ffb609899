/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h: answers of a request: a job of the engine for each choice, and its text on the way to the client.
 *
 *   engine's thread --on_text--> choice.text (bounded) --generate_take, I/O thread--> form's frames --> client
 *
 * Text that arrives while the client is busy becomes one frame.
 */
#ifndef SERVER_GENERATE_H
#define SERVER_GENERATE_H

#include "server/http/server_request.h"
#include "server/prompt/generation.h"
#include "server/prompt/request_tenant.h"
#include "structured/tool_finder.h"

/* Limits on unread output of a choice. A job is paused beyond them, or with any unread output while all choices
 * together exceed rp_server_options.reply_buffer_bytes, until the client has read. */
#define SERVER_UNREAD_TEXT_BYTES ((size_t)2 << 10)
#define SERVER_UNREAD_TOKENS_BYTES ((size_t)16 << 10)
#define SERVER_PENDING_BYTES ((uint64_t)64 << 20)
/* Whether a client reads is seen only once the kernel's buffers are full, on its side as well: some 100 KiB, thousands
 * of tokens in large frames. A stream gives its place in the batch to requests that wait for one after so many tokens,
 * until its turn comes. */
#define SERVER_TURN_TOKENS 64
/* A running step may exceed them; beyond these the job is ended. */
#define SERVER_PENDING_TEXT_BYTES ((size_t)4 << 20)
#define SERVER_PENDING_TOKENS_BYTES ((size_t)32 << 20)

/* A token with its log-probability; followed by n_top rp_token_logprob. */
typedef struct server_token {
    int32_t id;
    float logprob;
    int32_t n_top;
} server_token;

/* The most likely tokens after a record, and the next record. */
static inline const rp_token_logprob *server_token_top(const server_token *t) {
    return (const rp_token_logprob *)(const void *)(t + 1);
}
static inline const server_token *server_token_next(const server_token *t) {
    return (const server_token *)(const void *)(server_token_top(t) + t->n_top);
}

/* New output of an answer. */
typedef struct server_piece {
    const char *text;
    size_t n;
    const server_token *tokens, *tokens_end;
} server_piece;

/* How much of a prompt has KV, in tokens. */
typedef struct server_prompt_progress {
    int32_t total, cached, done; /* done: cached or computed */
    double ms;                   /* since its job was submitted */
} server_prompt_progress;

/* A token of `listed`, and where its text begins in the answer. */
typedef struct token_place {
    size_t record, at;
} token_place;

typedef struct server_choice {
    server_request *x;
    int32_t index;
    rp_job *call;
    uint64_t submitted_us; /* submission to the library */

    /* shared, under the request's lock */
    base_buffer text, tokens, sampled; /* sampled: int32_t, for marks (stream_marks.h) */
    size_t pending;                    /* their bytes, as counted by the server */
    bool done, paused;

    /* the engine's thread */
    uint64_t token_us;       /* time of the last token; 0: none yet */
    tool_finder stop_finder; /* of stop strings in the answer's text; empty before the first one */
    size_t n_stop_finder;    /* bytes of the answer that it has read */
    int32_t n_resumed;       /* tokens that were reported, of those that were sampled before */

    /* owned by the I/O thread for a stream, else by the worker that has the request */
    base_buffer taken_text, taken_tokens, taken_sampled;
    bool ended, collected;
    server_piece piece; /* input of the finder */
    tool_finder finder; /* finds tool calls and reasoning in taken text; empty if the answer is plain text
                           (generate_is_parsed) */
    int32_t n_blocks;   /* content blocks begun, if the dialect numbers them; block_is_open: the last one has not
                           ended */
    bool block_is_open, block_is_reasoning;
    int32_t n_progress;      /* tokens of its prompt that were last reported as done; -1: none yet */
    bool is_prompt_done;     /* nothing more is to be reported of its prompt */
    int32_t n_events;        /* events sent, if the dialect numbers them */
    size_t reported_bytes;   /* bytes of tokens with reported log-probabilities: text may arrive after its token */
    base_buffer listed;      /* server_token of the whole answer, if the dialect lists them item by item
                                (responses_logprobs.c) */
    token_place next_listed; /* of a stream: after those that were sent */
    size_t n_shown;          /* bytes of the answer's text that were sent, if it is not parsed */
    rp_result *result;       /* or NULL and a problem */
    server_problem problem;
} server_choice;

/* The answers of a request, one or more to each of its prompts: server_request.answers. */
typedef struct server_answers {
    const struct server_form *form; /* the dialect's renderer */
    server_choice *choices;
    int32_t n_choices;
    char salted[SERVER_SALTED_BYTES];
    const char *tenant; /* of its jobs: the key's, or salted */
    uint64_t seed;
    bool hint_sought; /* a worker looks, or has looked, for the template's hint */

    /* shared, under the request's lock */
    int32_t n_submitted; /* choices with jobs, ended ones included; embeddings: the others follow */
    int32_t n_done;      /* choices with ended jobs */
} server_answers;

/* How a dialect renders answers. Frames are appended by server_request_frame; nonzero: out of memory. */
typedef struct server_form {
    generation_parser parse;
    json_t *(*whole)(server_request *x); /* all choices have results */
    int (*open)(server_request *x);      /* each of these may be NULL */
    int (*piece)(server_request *x, server_choice *c, const server_piece *piece);
    int (*close)(server_request *x, server_choice *c); /* after its last piece: it has its result */
    int (*end)(server_request *x);
    int (*fail)(server_request *x, const server_problem *p); /* within a stream, which ends */
    int (*call)(server_request *x, server_choice *c, tool_event event, const tool_item *item, const char *bytes,
                size_t n);
    int (*reasoning)(server_request *x, server_choice *c,
                     const server_piece *piece); /* NULL: reasoning is part of the text */
    int (*progress)(server_request *x, server_choice *c,
                    const server_prompt_progress *progress); /* NULL: it has none */
} server_form;

/* With --strict unknown fields of x->gen are a problem. Returns its kind. */
int generate_check_fields(server_request *x);
/* Handler: parses the body by the form and submits. The reply follows when there is output. */
void generate_handle(server_request *x, const server_form *form);
/* The same for a generation that is already in x->gen-> */
void generate_begin(server_request *x, const server_form *form);
/* I/O thread, STREAMING, not locked: appends frames of new output. */
void generate_take(server_request *x);
/* {"total", "cache", "processed", "time_ms"}, as llama.cpp's server gives it. NULL: out of memory. */
json_t *generate_progress(const server_prompt_progress *progress);
/* The text of a choice with a result, without tool calls and reasoning. NULL: out of memory. */
json_t *generate_text(const server_choice *c);
/* Its reasoning, "" if there is none. NULL: out of memory. */
json_t *generate_reasoning(const server_choice *c);
/* Whether the choice's answer is searched for tool calls or reasoning. */
static inline bool generate_is_parsed(const server_choice *c) { return c->finder.answer != NULL; }

/* The request of a choice to the library. */
rp_request generate_request_of(server_choice *c);
/* Worker: ends the jobs of all choices and frees them. */
void generate_free(server_request *x);

extern const server_answer_ops generate_operations;

#endif
