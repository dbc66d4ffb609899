/* SPDX-License-Identifier: Apache-2.0 */
/* bench_driver.h: an engine with many concurrent requests: submits them, timestamps them in their callbacks, collects
 * the results.
 *
 *   main's thread     submit ---------------------------------> wait: results, counts, on_ended -> freed
 *   engine's thread           on_step, on_token, on_done --^
 *
 * The engine's thread writes inter-token latencies and step totals; read them only when no request is alive.
 */
#ifndef CLI_BENCH_DRIVER_H
#define CLI_BENCH_DRIVER_H

#include <pthread.h>

#include "bench/bench_stats.h"
#include "bench/bench_trace.h"
#include "common/loader.h"

#define BENCH_KINDS_MAX 2
#define BENCH_ERRORS 16 /* by code */

/* Requests of one kind. */
typedef struct bench_kind {
    const char *name;        /* "short"; static */
    bench_histogram ttft_ms; /* from a request's scheduled arrival to its first token */
    bench_histogram queue_ms;
    bench_histogram tbt_ms; /* inter-token latency */
    uint64_t submitted, done, failed;
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
} bench_kind;

typedef struct bench_steps {
    bench_histogram ms;
    bench_histogram alone_ms;       /* of ms: steps that only decode, */
    bench_histogram mixed_ms;       /* and steps that decode and prefill */
    bench_histogram miss;           /* prediction error of predicted steps: 100 * |actual - predicted| / actual, as
                                       "ms" */
    uint64_t rows[RP_N_STEP_KINDS]; /* by rp_step_kind */
    int32_t most_running, most_waiting;
    uint64_t max_kv_bytes;
} bench_steps;

typedef struct bench_driver bench_driver;

typedef struct bench_call {
    bench_driver *driver;
    rp_job *call;
    int kind;
    double due_ms, submitted_ms, first_ms, last_ms; /* cli_now_ms; due_ms: scheduled arrival */
    int32_t n_tokens;
    int32_t stop_after; /* tokens after which on_token ends the request; 0: never */
    int64_t tag;
    struct bench_call *newer, *older; /* list of those alive */
    struct bench_call *next_ended;
} bench_call;

/* A request has ended with result, or err. Called on main's thread, in bench_wait_* and bench_submit. */
typedef void (*bench_on_ended)(void *user, const bench_call *call, const rp_result *result, const rp_error *err);

struct bench_driver {
    cli_loaded *loaded;
    bench_trace *trace;      /* borrowed; NULL: none */
    bench_on_ended on_ended; /* may be NULL */
    void *user;
    uint32_t tolerated; /* bits 1 << -code: errors that the load expects */
    bench_kind kinds[BENCH_KINDS_MAX];
    int n_kinds;
    double start_ms, end_ms;               /* of the measurement: bench_driver_restart, end of the last request */
    uint64_t errors[BENCH_ERRORS], faults; /* by -code; faults: those not tolerated */
    char fault[RP_ERROR_MESSAGE_BYTES];    /* the first fault */
    int32_t n_alive;
    bench_call *newest;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bench_call *ended; /* guarded by lock, */
    bench_steps steps; /* like steps, */
    int32_t n_running, n_waiting;
    uint64_t kv_bytes;
};

/* Creates the engine (options with on_step added) and prepares it. loaded: with its model; it owns the engine. Returns
 * an exit status. */
int bench_driver_open(bench_driver *d, cli_loaded *loaded, const rp_engine_options *options, bench_trace *trace);
void bench_driver_close(bench_driver *d);
/* Restarts the measurement. No request may be alive. */
void bench_driver_restart(bench_driver *d);

/* The caller's description of a request. */
typedef struct bench_place {
    int kind;
    double due_ms;
    int64_t tag;        /* the caller's */
    int32_t stop_after; /* as in bench_call */
} bench_place;

/* Submits a request. Its callbacks and user belong to the driver. A refused request ends at once. */
void bench_submit(bench_driver *d, rp_request *request, const bench_place *place);
/* Collects ended requests until ms, or Ctrl-C. */
void bench_wait_until(bench_driver *d, double ms);
/* Collects ended requests until at most n are alive. Ctrl-C cancels those. */
void bench_wait_alive(bench_driver *d, int32_t n);
/* Counts a fault, with its message. */
void bench_fault(bench_driver *d, const char *fmt, ...) CLI_PRINTF(2, 3);

/* Totals of all steps so far. */
bench_steps bench_steps_now(bench_driver *d);

#endif
