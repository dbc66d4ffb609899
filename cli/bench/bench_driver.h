/* SPDX-License-Identifier: Apache-2.0 */
/* bench_driver.h: an engine with many calls under way: submitted, timed by their callbacks, taken back when they have ended.
 *
 *   main's thread     submit ---------------------------------> wait: results, counts, on_ended -> freed
 *   engine's thread           on_step, on_token, on_done --^
 *
 * Times between tokens and step totals are written by the engine's thread; whoever reads them waits until no call is alive.
 */
#ifndef CLI_BENCH_DRIVER_H
#define CLI_BENCH_DRIVER_H

#include <pthread.h>

#include "bench/bench_stats.h"
#include "bench/bench_trace.h"
#include "common/loader.h"

#define BENCH_KINDS_MAX 2
#define BENCH_ERRORS 16 /* by code */

/* Calls of one kind. */
typedef struct bench_kind {
    const char *name; /* "short"; static */
    bench_histogram ttft_ms;  /* from when the call was due to its first token */
    bench_histogram queue_ms;
    bench_histogram tbt_ms;   /* between two tokens of an answer */
    uint64_t submitted, done, failed;
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
} bench_kind;

typedef struct bench_steps {
    bench_histogram ms;
    bench_histogram alone_ms; /* of ms: answers and nothing else, */
    bench_histogram mixed_ms; /* or answers beside pieces of prompts and modules */
    bench_histogram miss; /* of those that were predicted: 100 * |actual - predicted| / actual, as "ms" */
    uint64_t rows[RP_N_STEP_KINDS];     /* by rp_step_kind */
    int32_t most_running, most_waiting;
    uint64_t max_kv_bytes;
} bench_steps;

typedef struct bench_driver bench_driver;

typedef struct bench_call {
    bench_driver *driver;
    rp_job *call;
    int kind;
    double due_ms, submitted_ms, first_ms, last_ms; /* of cli_now_ms */
    int32_t n_tokens;
    int32_t stop_after; /* tokens after which on_token ends the call; 0: never */
    int64_t tag;
    struct bench_call *newer, *older; /* of those alive */
    struct bench_call *next_ended;
} bench_call;

/* A call has ended: result, or err. On main's thread, in bench_wait_* and bench_submit. */
typedef void (*bench_on_ended)(void *user, const bench_call *call, const rp_result *result, const rp_error *err);

struct bench_driver {
    cli_loaded *loaded;
    bench_trace *trace; /* borrowed; NULL: none */
    bench_on_ended on_ended; /* may be NULL */
    void *user;
    uint32_t tolerated;   /* bits 1 << -code: errors that the load brings with it */
    bench_kind kinds[BENCH_KINDS_MAX];
    int n_kinds;
    double start_ms, end_ms; /* of what is counted: bench_driver_restart, the last call's end */
    uint64_t errors[BENCH_ERRORS], faults; /* by -code; those that are not tolerated */
    char fault[RP_ERROR_MESSAGE_BYTES];    /* the first of them */
    int32_t n_alive;
    bench_call *newest;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bench_call *ended;  /* under lock, */
    bench_steps steps;  /* and this, */
    int32_t n_running, n_waiting;
    uint64_t kv_bytes;
};

/* Makes the engine (options with on_step added) and prepares it. loaded: with its model; it keeps the engine. Returns an exit status. */
int bench_driver_open(bench_driver *d, cli_loaded *loaded, const rp_engine_options *options, bench_trace *trace);
void bench_driver_close(bench_driver *d);
/* Counts from here on. No call is alive. */
void bench_driver_restart(bench_driver *d);

/* What the caller says of a call. */
typedef struct bench_place {
    int kind;
    double due_ms;
    int64_t tag;        /* the caller's */
    int32_t stop_after; /* as in bench_call */
} bench_place;

/* Submits a call. The request's callbacks and user are the driver's. One that is refused has ended at once. */
void bench_submit(bench_driver *d, rp_request *request, const bench_place *place);
/* Takes back what has ended until the time is ms, or Ctrl-C. */
void bench_wait_until(bench_driver *d, double ms);
/* The same until at most n calls are alive. Ctrl-C cancels those that are. */
void bench_wait_alive(bench_driver *d, int32_t n);
/* One more fault, with what went wrong. */
void bench_fault(bench_driver *d, const char *fmt, ...) CLI_PRINTF(2, 3);

/* What the steps so far were. */
bench_steps bench_steps_now(bench_driver *d);

#endif
