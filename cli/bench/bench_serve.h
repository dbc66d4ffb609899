/* SPDX-License-Identifier: Apache-2.0 */
/* bench_serve.h: `reprise bench serve`: what its parts share.
 *
 *   bench_workload   which request comes when, and its body
 *   bench_clients    connections: sends a request when it is due, whatever became of those before; times what comes back
 *   bench_tally      what came of all of them, and its report
 *
 * One thread; the server is another process.
 */
#ifndef CLI_BENCH_SERVE_H
#define CLI_BENCH_SERVE_H

#include "bench/bench_requests.h"
#include "bench/bench_stats.h"
#include "bench/bench_words.h"
#include "common/http_client.h"

typedef enum bench_workload_kind { BENCH_RANDOM, BENCH_CHAT, BENCH_RETRIEVAL, BENCH_TRACE } bench_workload_kind;
typedef enum bench_reuse_kind { BENCH_REUSE_PREFIX, BENCH_REUSE_MODULAR } bench_reuse_kind;

typedef struct bench_serve_options {
    const char *url, *unix_path, *model, *name, *requests, *salt;
    int32_t workload, reuse; /* of the enums above */
    float rate, seconds, speed, ttft_limit, tbt_limit, patience;
    int32_t count, warm_up, prompt_tokens, max_tokens, shared_tokens, documents, pick, document_tokens, conversations, turns, scale;
    int32_t connections;
    uint64_t seed;
    bool each, json;
} bench_serve_options;

/* ---- bench_workload.c ---- */

typedef struct bench_workload bench_workload;

/* A request that is to be sent. */
typedef struct bench_ask {
    double due_ms; /* from the workload's start */
    char *body;    /* freed by who takes it */
    size_t n_body;
    struct bench_conversation *conversation; /* NULL: nobody waits for the answer's text */
} bench_ask;

/* words and requests are borrowed. */
bench_workload *bench_workload_new(const bench_serve_options *o, const bench_words *words, const bench_requests *requests);
void bench_workload_free(bench_workload *w);
/* When the next request is due, from the load's start; INFINITY: there is none. */
double bench_workload_due_ms(const bench_workload *w);
/* The next request, whenever it is due. */
bench_ask bench_workload_next(bench_workload *w);
/* A request that is not counted: it moves no arrival. */
bench_ask bench_workload_warm_up(bench_workload *w);
/* Its answer came, or NULL: it failed. Once for each request with a conversation. */
void bench_workload_answered(bench_workload *w, struct bench_conversation *c, const char *text);

/* ---- bench_tally.c ---- */

/* What is not a status of HTTP. */
typedef enum bench_failure { BENCH_NO_CONNECTION, BENCH_CLOSED, BENCH_SILENT, BENCH_IN_STREAM, BENCH_FAILURES } bench_failure;
#define BENCH_STATUS_MAX 600

typedef struct bench_tally {
    bench_histogram ttft_ms;  /* from when a request was due to the first text of its answer */
    bench_histogram tbt_ms;   /* between two pieces of an answer */
    bench_histogram mean_tbt_ms; /* of an answer: from its first piece to its last, by its tokens */
    bench_histogram total_ms; /* from when it was due to the answer's end */
    bench_histogram lag_ms;   /* from when it was due until it was sent: what this program or --connections held up */
    uint64_t sent, done, failed, waited; /* waited: for one of --connections */
    uint64_t in_limits;       /* of done */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint64_t by_status[BENCH_STATUS_MAX], by_failure[BENCH_FAILURES]; /* of failed */
    uint64_t faults;          /* of failed: neither 429 nor 503 */
    char fault[256];          /* the first of them */
    double start_ms, end_ms;  /* of cli_now_ms: the load's start, the last answer's end */
} bench_tally;

/* What came of one request. Times of cli_now_ms; 0: it did not come so far. */
typedef struct bench_outcome {
    double due_ms, sent_ms, first_ms, last_ms, end_ms;
    int status;               /* of HTTP; 0: none */
    bench_failure failure;    /* where it failed without one, or after 200 */
    bool is_done, has_waited;
    uint64_t pieces;
    int64_t prompt_tokens, cached_tokens, answer_tokens; /* as the server says; -1: it does not */
    char message[192];
} bench_outcome;

void bench_tally_add(bench_tally *t, const bench_outcome *e, const bench_serve_options *o);
/* With --each: a line of JSON. */
void bench_outcome_print(const bench_outcome *e, double start_ms);
/* Returns an exit status: of the output, or CLI_FAILED where there were faults or nothing was answered. */
int bench_tally_report(const bench_tally *t, const bench_serve_options *o, const http_target *target);

/* ---- bench_clients.c ---- */

typedef struct bench_clients bench_clients;

/* All is borrowed. key: NULL: none. */
bench_clients *bench_clients_new(const http_target *target, const char *key, const bench_serve_options *o, bench_workload *w, bench_tally *t);
void bench_clients_free(bench_clients *c);
/* So many requests, each after the one before, not counted. Returns CLI_OK, or CLI_FAILED with its line where one fails. */
int bench_clients_warm_up(bench_clients *c, int32_t n);
/* The workload, to its end and the last answer's, or Ctrl-C. Returns CLI_OK or CLI_INTERRUPTED. */
int bench_clients_run(bench_clients *c);

#endif
