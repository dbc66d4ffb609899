/* SPDX-License-Identifier: Apache-2.0 */
/* bench_serve.h: `reprise bench serve`: interfaces between its parts.
 *
 *   bench_workload   arrival times of requests, and their bodies
 *   bench_clients    connections: sends each request at its arrival, in an open loop; timestamps the replies
 *   bench_tally      totals, and the report
 *
 * One thread; the server is another process.
 */
#ifndef CLI_BENCH_SERVE_H
#define CLI_BENCH_SERVE_H

#include "bench/bench_requests.h"
#include "bench/bench_stats.h"
#include "bench/bench_words.h"
#include "common/http_client.h"

typedef enum bench_workload_kind { BENCH_RANDOM,
                                   BENCH_CHAT,
                                   BENCH_RETRIEVAL,
                                   BENCH_TRACE } bench_workload_kind;
typedef enum bench_reuse_kind { BENCH_REUSE_PREFIX,
                                BENCH_REUSE_PARTS,
                                BENCH_REUSE_MODULAR } bench_reuse_kind;

typedef struct bench_serve_options {
    const char *url, *unix_path, *ca_file, *model, *name, *requests, *salt;
    int32_t workload, reuse; /* of the enums above */
    float rate, seconds, speed, ttft_limit, tbt_limit, patience;
    int32_t count, warm_up, prompt_tokens, max_tokens, shared_tokens, documents, pick, document_tokens, conversations,
        turns, scale;
    int32_t connections;
    uint64_t seed;
    bool each, json;
} bench_serve_options;

/* ---- bench_workload.c ---- */

typedef struct bench_workload bench_workload;

/* A request to send. */
typedef struct bench_ask {
    double due_ms; /* arrival, from the workload's start */
    char *body;    /* owned by the receiver */
    size_t n_body;
    struct bench_conversation *conversation; /* NULL: the answer's text is not needed */
} bench_ask;

/* words and requests are borrowed. */
bench_workload *bench_workload_new(const bench_serve_options *o, const bench_words *words,
                                   const bench_requests *requests);
void bench_workload_free(bench_workload *w);
/* Arrival of the next request, from the load's start; INFINITY: there is none. */
double bench_workload_due_ms(const bench_workload *w);
/* The next request, regardless of its arrival. */
bench_ask bench_workload_next(bench_workload *w);
/* A request that is not counted and does not advance the arrivals. */
bench_ask bench_workload_warm_up(bench_workload *w);
/* The answer of a request; NULL: it failed. Called once for each request with a conversation. */
void bench_workload_answered(bench_workload *w, struct bench_conversation *c, const char *text);

/* ---- bench_tally.c ---- */

/* Failures other than an HTTP status. */
typedef enum bench_failure { BENCH_NO_CONNECTION,
                             BENCH_CLOSED,
                             BENCH_SILENT,
                             BENCH_IN_STREAM,
                             BENCH_FAILURES } bench_failure;
#define BENCH_STATUS_MAX 600

typedef struct bench_tally {
    bench_histogram ttft_ms;             /* from a request's arrival to the first text of its answer */
    bench_histogram tbt_ms;              /* between two pieces of an answer */
    bench_histogram mean_tbt_ms;         /* an answer's mean inter-token latency: first to last piece, by its tokens */
    bench_histogram total_ms;            /* from arrival to the answer's end */
    bench_histogram lag_ms;              /* from arrival to the sending: delay by this program or by --connections */
    uint64_t sent, done, failed, waited; /* waited: requests that waited for one of --connections */
    uint64_t in_limits;                  /* of done */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint64_t by_status[BENCH_STATUS_MAX], by_failure[BENCH_FAILURES]; /* of failed */
    uint64_t faults;                                                  /* of failed: neither 429 nor 503 */
    char fault[256];                                                  /* the first fault */
    double start_ms, end_ms;                                          /* cli_now_ms: the load's start, the last answer's
                                                                         end */
} bench_tally;

/* Outcome of one request. Times are cli_now_ms; 0: not reached. */
typedef struct bench_outcome {
    double due_ms, sent_ms, first_ms, last_ms, end_ms;
    int status;            /* of HTTP; 0: none */
    bench_failure failure; /* for a failure without a status, or after 200 */
    bool is_done, has_waited;
    uint64_t pieces;
    int64_t prompt_tokens, cached_tokens, answer_tokens; /* as reported by the server; -1: unknown */
    char message[192];
} bench_outcome;

void bench_tally_add(bench_tally *t, const bench_outcome *e, const bench_serve_options *o);
/* A line of JSON, for --each. */
void bench_outcome_print(const bench_outcome *e, double start_ms);
/* Returns an exit status: of the output, or CLI_FAILED if there were faults or no answers. */
int bench_tally_report(const bench_tally *t, const bench_serve_options *o, const http_target *target);

/* ---- bench_clients.c ---- */

typedef struct bench_clients bench_clients;

/* Borrows all arguments. key: NULL: none. */
bench_clients *bench_clients_new(const http_target *target, const char *key, const bench_serve_options *o,
                                 bench_workload *w, bench_tally *t);
void bench_clients_free(bench_clients *c);
/* Sends n requests, one after the other, without counting them. Returns CLI_OK, or CLI_FAILED after its error line if
 * one fails. */
int bench_clients_warm_up(bench_clients *c, int32_t n);
/* Runs the workload until its last answer, or Ctrl-C. Returns CLI_OK or CLI_INTERRUPTED. */
int bench_clients_run(bench_clients *c);

#endif
