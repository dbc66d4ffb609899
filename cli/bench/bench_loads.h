/* SPDX-License-Identifier: Apache-2.0 */
/* bench_loads.h: the loads of `bench`, and their shared types. */
#ifndef CLI_BENCH_LOADS_H
#define CLI_BENCH_LOADS_H

#include "bench/bench_disk.h"
#include "bench/bench_driver.h"
#include "bench/bench_requests.h"
#include "bench/bench_words.h"

typedef enum bench_load { BENCH_POISSON,
                          BENCH_REPLAY,
                          BENCH_SOAK } bench_load;

typedef struct bench_options {
    const char *model, *trace, *requests;
    cli_engine_args engine;
    int32_t load; /* bench_load */
    float seconds, rate, long_every, goal_ms;
    int32_t prompt_tokens, max_tokens, long_tokens, shared_tokens; /* poisson */
    int32_t scale, count, parallel;                                /* replay; parallel: soak, too */
    int32_t sequences;
    uint64_t seed;
    bool json;
} bench_options;

/* Result of soak: memory flat and within its budgets. */
typedef struct bench_verdict {
    uint64_t first_bytes, later_bytes; /* peak resident memory before usage settled, and after */
    uint64_t allowed_bytes;            /* limit for later_bytes */
    uint64_t budget_bytes;             /* limit for the whole process; 0: unknown */
    uint64_t checked;                  /* answers compared with the expected ones */
    bool judged;                       /* a quarter of the time or more came after settling; else flat is true */
    bool flat, inside;
    bench_disk_verdict disk;
} bench_verdict;

typedef struct bench_session {
    const bench_options *options;
    const bench_words *words;
    bench_driver *driver;
    bench_requests requests; /* replay's */
    bench_verdict verdict;   /* soak's */
} bench_session;

/* Each runs requests until its end or Ctrl-C; the driver holds the results. They return an exit status; failed requests
 * are not failures of the load. */
int bench_poisson(bench_session *s);
int bench_replay(bench_session *s);
int bench_soak(bench_session *s);

/* Checks replay's options, before the model is opened. Returns an exit status. */
int bench_replay_check(const bench_options *o);

/* Prints the results. Returns an exit status: of the output, or CLI_FAILED if requests failed or the verdict is bad. */
int bench_report(const bench_session *s);
/* One line per replayed request, with --json. */
void bench_report_request(const bench_call *c, const rp_result *r, const rp_error *err);

#endif
