/* SPDX-License-Identifier: Apache-2.0 */
/* bench_loads.h: the loads of `bench`, and what they share. */
#ifndef CLI_BENCH_LOADS_H
#define CLI_BENCH_LOADS_H

#include "bench/bench_disk.h"
#include "bench/bench_driver.h"
#include "bench/bench_requests.h"
#include "bench/bench_words.h"

typedef enum bench_load { BENCH_POISSON, BENCH_REPLAY, BENCH_SOAK } bench_load;

typedef struct bench_options {
    const char *model, *trace, *requests;
    cli_engine_args engine;
    int32_t load; /* bench_load */
    float seconds, rate, long_every, goal_ms;
    int32_t prompt_tokens, max_tokens, long_tokens, shared_tokens; /* poisson */
    int32_t scale, count, parallel;                                /* replay; parallel: soak's, too */
    int32_t sequences;
    uint64_t seed;
    bool json;
} bench_options;

/* Whether memory stayed flat and inside its budgets: soak. */
typedef struct bench_verdict {
    uint64_t first_bytes, later_bytes;  /* most resident memory in the first quarter or until states were dropped, and after that */
    uint64_t allowed_bytes;             /* for later_bytes: not to have grown */
    uint64_t budget_bytes;              /* of everything; 0: not known */
    uint64_t checked;                   /* answers that were compared with what they had to be */
    bool judged;                        /* at least a quarter of the time came after that; else flat is not known, and true */
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

/* Each drives calls until its end or Ctrl-C; what came of it stands in the driver. Return an exit status; calls that failed are not a
 * failure of theirs. */
int bench_poisson(bench_session *s);
int bench_replay(bench_session *s);
int bench_soak(bench_session *s);

/* Before the model is opened: wrong use of replay's options. Returns an exit status. */
int bench_replay_check(const bench_options *o);

/* What came of it. Returns an exit status: of the output, or CLI_FAILED if calls failed or the verdict is bad. */
int bench_report(const bench_session *s);
/* One line about a replayed request, with --json. */
void bench_report_request(const bench_call *c, const rp_result *r, const rp_error *err);

#endif
