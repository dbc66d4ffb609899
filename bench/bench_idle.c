/* SPDX-License-Identifier: Apache-2.0 */
/* bench_idle.c: effect of background tasks on requests: TTFT and end-to-end latency with tasks always pending, against
 * none.
 *
 *   bench_idle MODEL.gguf [REQUESTS]
 *
 * ROUNDS times, in changing order: REQUESTS (40) requests of 100 new tokens and 30 generated ones arrive one after the
 * other, each after a pause of PAUSE_MS on average (exponential), while the engine has no other work, or tasks of 600
 * tokens that are resubmitted as they end. Medians and 99th percentiles over all rounds. Load from other programs
 * disturbs both: run it alone.
 */
#define _DEFAULT_SOURCE /* usleep */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "engine/background/background.h"
#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "support.h"
#include "support/experiments.h"

#define ROUNDS 10
#define PAUSE_MS 50.0
#define PROMPT 100
#define ANSWER 30
#define TASK 600
#define TASKS 8
#define MAX_REQUESTS 10000

typedef struct times {
    double *first_ms, *all_ms; /* [n] */
    size_t n;
} times;

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    times times[2]; /* without tasks, with them */
    unsigned seed;
    bool busy;     /* owned by the engine's thread; changed while it has no task */
    uint64_t rows; /* of background tasks */
} bench;

static void fill(int32_t *tokens, int32_t n, unsigned *seed) {
    for (int32_t i = 0; i < n; i++) tokens[i] = 100 + rand_r(seed) % 500;
}

/* ---- engine thread ---- */

static void submit(rp_engine *e, void *user);

static void on_done(rp_engine *e, void *user, int rc, const background_result *result) {
    bench *b = user;
    (void)result;
    if (b->busy && rc == RP_OK) submit(e, user);
}

static void submit(rp_engine *e, void *user) {
    static unsigned seed = 1;
    background_task t = {.salt = e->salt, .n = TASK, .done = on_done, .user = user};
    t.tokens = base_alloc(TASK * sizeof(int32_t));
    t.positions = base_alloc(TASK * sizeof(int32_t));
    if (!t.tokens || !t.positions) bench_die("a task", NULL);
    fill(t.tokens, TASK, &seed);
    for (int32_t i = 0; i < TASK; i++) t.positions[i] = i;
    if (background_submit(e, &t)) bench_die("a task", NULL);
}

static void begin(rp_engine *e, void *user) {
    bench *b = user;
    b->busy = true;
    for (int i = 0; i < TASKS; i++) submit(e, user);
}

static void stop(rp_engine *e, void *user) {
    (void)e;
    ((bench *)user)->busy = false;
}

static void on_step(void *user, const rp_step *s) {
    if (s->parts[0].kind == RP_STEP_BACKGROUND) ((bench *)user)->rows += (uint64_t)s->parts[0].n_rows;
}

/* ---- requests ---- */

static void ask(bench *b, times *t) {
    int32_t tokens[PROMPT];
    rp_request q = rp_request_defaults();
    rp_result *r;
    rp_error err;
    usleep((useconds_t)(-PAUSE_MS * 1e3 * log((rand_r(&b->seed) % 10000 + 1) / 10001.0)));
    fill(tokens, PROMPT, &b->seed);
    q.prompt = rp_prompt_tokens(tokens, PROMPT);
    q.max_tokens = ANSWER;
    q.ignore_eos = true;
    q.experiment = &experiment_no_prefix;
    double start = bench_now_s();
    if (rp_engine_run(b->engine, &q, &r, &err)) bench_die("a request", &err);
    t->all_ms[t->n] = (bench_now_s() - start) * 1e3;
    t->first_ms[t->n++] = r->timings.ttft_ms;
    rp_result_free(r);
}

static void run(bench *b, bool busy, int requests) {
    if (engine_do(b->engine, busy ? begin : stop, b, NULL)) bench_die("an errand", NULL);
    if (!busy) rp_engine_drain(b->engine, -1);
    for (int i = 0; i < requests; i++) ask(b, &b->times[busy]);
}

static void print(const char *name, times *t) {
    double first = bench_median(t->first_ms, t->n), all = bench_median(t->all_ms, t->n); /* bench_median sorted them */
    size_t p99 = t->n * 99 / 100;
    printf("%-10s %zu requests: first token %.2f ms at the median, %.2f at p99; all of it %.2f and %.2f\n", name, t->n,
           first, t->first_ms[p99], all, t->all_ms[p99]);
}

int main(int argc, char **argv) {
    static bench b = {.seed = 7};
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err;
    int requests = argc > 2 ? atoi(argv[2]) : 40;
    bench_name = "bench_idle";
    if (argc < 2 || requests < 1 || requests > MAX_REQUESTS) {
        fprintf(stderr, "usage: bench_idle MODEL.gguf [REQUESTS, up to %d]\n", MAX_REQUESTS);
        return 2;
    }
    o.n_threads = 2;
    o.on_step = on_step;
    o.step_user = &b;
    if (rp_model_open(&b.model, argv[1], NULL, &err)) bench_die("model", &err);
    if (rp_engine_new(&b.engine, b.model, &o, &err) || rp_engine_prepare(b.engine, NULL, NULL, &err))
        bench_die("engine", &err);
    for (int i = 0; i < 2; i++) {
        b.times[i].first_ms = calloc((size_t)(ROUNDS * requests), sizeof(double));
        b.times[i].all_ms = calloc((size_t)(ROUNDS * requests), sizeof(double));
        if (!b.times[i].first_ms || !b.times[i].all_ms) bench_die("times", NULL);
    }
    for (int i = 0; i < 2 * ROUNDS; i++) run(&b, (i + i / 2) % 2 == 1, requests);
    print("without", &b.times[0]);
    print("background", &b.times[1]);
    printf("%-10s %llu tokens\n", "computed", (unsigned long long)b.rows);
    rp_engine_free(b.engine);
    rp_model_close(b.model);
    for (int i = 0; i < 2; i++) free(b.times[i].first_ms), free(b.times[i].all_ms);
    return 0;
}
