/* SPDX-License-Identifier: Apache-2.0 */
/* bench_audit.c: latency of requests while every request is audited: an open-loop load on an engine that audits,
 * against engines that do not.
 *
 *   bench_audit MODEL.gguf [--rate R] [--requests N] [--rounds N] [--threads N] [--answer N]
 *
 * In each of --rounds (12) rounds --requests (200) prompts arrive at random times (Poisson, --rate (25) a second),
 * without waiting for earlier ones: four of twelve documents of 60 tokens, as modules in any order, a new question of
 * 12 tokens, an answer of --answer (16). Each of three engines, one after the other in changing order, receives the
 * same prompts at the same times:
 *
 *   off     audits nothing
 *   every   audits every request: rp_engine_options.audit_every = 1
 *   again   a second engine without audits: its difference from `off` is noise
 *
 * TTFT and end-to-end latency count from a prompt's scheduled arrival. Audits run in the gaps between requests; the
 * engine is drained at the end of a round, before the next begins.
 *
 * On a busy machine three engines differ by more than the effect of auditing. Background steps are therefore recorded,
 * too: a request that arrives during one waits for its end, and delays requests that arrive before the engine is idle
 * again by at most that wait. Their latency without audits is the measured latency minus this wait.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support.h"
#include "reprise_store.h"
#include "reprise_pml.h"

#define MAX_ROUNDS 100
#define MAX_REQUESTS 1000
#define DOCUMENTS 12
#define TAKEN 4
#define DOCUMENT_TOKENS 60
#define QUESTION_TOKENS 12
#define DRAIN_MS 60000
#define MAX_STEPS (1 << 20) /* background steps */

typedef enum subject { OFF,
                       EVERY,
                       AGAIN,
                       SUBJECTS } subject;
static const char *const names[] = {"off", "every", "again"};

typedef struct request {
    double due_s, first_s, end_s; /* bench_now_s; the engine's thread owns first_s and end_s until the job ends */
    double submitted_s;
    bench_text prompt;
    rp_job *call;
} request;

typedef struct bench {
    rp_model *model;
    rp_engine *engines[SUBJECTS];
    int rounds, requests, threads, answer;
    double rate;
    request list[MAX_REQUESTS];
    double first[SUBJECTS][MAX_ROUNDS * MAX_REQUESTS], whole[SUBJECTS][MAX_ROUNDS * MAX_REQUESTS];
    double waits[MAX_ROUNDS * MAX_REQUESTS], first_without[MAX_ROUNDS * MAX_REQUESTS],
        whole_without[MAX_ROUNDS * MAX_REQUESTS];
    size_t n;
    struct {
        double start_s, end_s;
    } steps[MAX_STEPS]; /* of a round; the engine's thread owns them until it is drained */
    size_t n_steps;
} bench;

/* ---- load ---- */

static double share(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return ((*seed >> 8) + 0.5) / 16777216.0;
}

/* Prompts and arrival times of a round: the same for all engines. */
static void make_round(bench *b, unsigned seed) {
    double at = 0;
    for (int i = 0; i < b->requests; i++) {
        request *q = &b->list[i];
        bool taken[DOCUMENTS] = {false};
        at -= log(share(&seed)) / b->rate;
        q->due_s = at;
        q->prompt.n = 0;
        bench_text_add(&q->prompt, "<prompt schema=\"load\">");
        for (int k = 0; k < TAKEN;) {
            int d = (int)(share(&seed) * DOCUMENTS);
            if (taken[d]) continue;
            taken[d] = true;
            bench_text_add(&q->prompt, "<d%d/>", d);
            k++;
        }
        bench_text_add(&q->prompt, "<user>");
        bench_text_add_words(&q->prompt, b->model, QUESTION_TOKENS, &seed);
        bench_text_add(&q->prompt, "</user></prompt>");
    }
}

/* ---- requests ---- */

static bool on_token(void *user, const rp_token *token) {
    request *q = user;
    (void)token;
    if (q->first_s == 0) q->first_s = bench_now_s();
    return true;
}

static void on_done(void *user) { ((request *)user)->end_s = bench_now_s(); }

static void on_step(void *user, const rp_step *step) {
    bench *b = user;
    if (step->parts[0].kind != RP_STEP_BACKGROUND || b->n_steps == MAX_STEPS) return;
    b->steps[b->n_steps].start_s = (double)step->start_us / 1e6;
    b->steps[b->n_steps++].end_s = (double)step->end_us / 1e6;
}

/* Time that a request with this arrival waited for a background step. */
static double wait_of(const bench *b, double s) {
    for (size_t i = 0; i < b->n_steps; i++)
        if (s >= b->steps[i].start_s && s < b->steps[i].end_s) return b->steps[i].end_s - s;
    return 0;
}

static void sleep_until(double s) {
    for (double left = s - bench_now_s(); left > 0; left = s - bench_now_s()) {
        struct timespec t = {(time_t)left, (long)((left - floor(left)) * 1e9)};
        nanosleep(&t, NULL);
    }
}

static void submit(const bench *b, rp_engine *e, request *q) {
    rp_request r = rp_request_defaults();
    rp_error err;
    q->first_s = q->end_s = 0;
    r.prompt = rp_prompt_pml(q->prompt.bytes);
    r.max_tokens = b->answer;
    r.ignore_eos = true;
    r.on_token = on_token;
    r.on_done = on_done;
    r.user = q;
    q->submitted_s = bench_now_s();
    if (rp_engine_submit(e, &r, &q->call, &err)) bench_die("submit", &err);
}

static void run(bench *b, subject s, bool counts) {
    rp_engine *e = b->engines[s];
    double start = bench_now_s() + 0.05;
    for (int i = 0; i < b->requests; i++) {
        sleep_until(start + b->list[i].due_s);
        submit(b, e, &b->list[i]);
    }
    for (int i = 0; i < b->requests; i++) {
        request *q = &b->list[i];
        rp_result *r;
        rp_error err;
        if (rp_job_result(q->call, &r, &err)) bench_die("run", &err);
        rp_result_free(r);
        rp_job_free(q->call);
        if (!counts) continue;
        b->first[s][b->n + (size_t)i] = (q->first_s - start - q->due_s) * 1e3;
        b->whole[s][b->n + (size_t)i] = (q->end_s - start - q->due_s) * 1e3;
    }
    if (!rp_engine_drain(e, DRAIN_MS)) bench_die("drain", NULL);
    double busy_until = 0, held_up = 0; /* delay by the step that its first request waited for */
    for (int i = 0; i < b->requests && s == EVERY && counts; i++) {
        size_t k = b->n + (size_t)i;
        const request *q = &b->list[i];
        double own = wait_of(b, q->submitted_s);
        if (q->submitted_s >= busy_until) held_up = own;
        busy_until = fmax(busy_until, q->end_s);
        b->waits[k] = (own > 0 ? own : held_up) * 1e3;
        b->first_without[k] = b->first[s][k] - b->waits[k];
        b->whole_without[k] = b->whole[s][k] - b->waits[k];
    }
    b->n_steps = 0;
}

/* ---- results ---- */

static double at(const double *sorted, size_t n, double part) { return sorted[(size_t)(part * (double)(n - 1))]; }

static void report(bench *b) {
    double first[SUBJECTS], whole[SUBJECTS];
    printf("%d rounds of %d requests, %.0f a second, %d threads; ms\n\n", b->rounds, b->requests, b->rate, b->threads);
    printf(
        "| audit | first token, median | p99 | p99 / off | answer, median | p99 | p99 / off | compared | dropped |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int s = 0; s < SUBJECTS; s++) {
        double first_median = bench_median(b->first[s], b->n),
               whole_median = bench_median(b->whole[s], b->n); /* sorts */
        rp_audit *a;
        rp_error err;
        if (rp_engine_audit(b->engines[s], &a, &err)) bench_die("audit", &err);
        first[s] = at(b->first[s], b->n, 0.99);
        whole[s] = at(b->whole[s], b->n, 0.99);
        printf("| %s | %.2f | %.2f | %.3f | %.2f | %.2f | %.3f | %llu | %llu |\n", names[s], first_median, first[s],
               first[s] / first[OFF], whole_median, whole[s], whole[s] / whole[OFF], (unsigned long long)a->audited,
               (unsigned long long)a->dropped);
        rp_audit_free(a);
    }
    size_t held = 0;
    for (size_t i = 0; i < b->n; i++) held += b->waits[i] > 0;
    bench_median(b->waits, b->n);
    bench_median(b->first_without, b->n);
    bench_median(b->whole_without, b->n);
    double first_less = at(b->first_without, b->n, 0.99), whole_less = at(b->whole_without, b->n, 0.99);
    printf("\nOf the requests of every %.1f %% were held up by a step of the background, or behind one that was; p99 "
           "of that wait %.2f ms, longest %.2f. Without these\n"
           "waits p99 would be %.2f and %.2f: they add %.1f %% and %.1f %%.\n",
           100.0 * (double)held / (double)b->n, at(b->waits, b->n, 0.99), b->waits[b->n - 1], first_less, whole_less,
           (first[EVERY] / first_less - 1) * 100, (whole[EVERY] / whole_less - 1) * 100);
    bool reached = first[EVERY] <= 1.05 * first[OFF] && whole[EVERY] <= 1.05 * whole[OFF];
    printf("\nTarget: p99 of every within 5 %% of off: %s (again: %+.1f %% and %+.1f %%).\n",
           reached ? "reached" : "missed", (first[AGAIN] / first[OFF] - 1) * 100,
           (whole[AGAIN] / whole[OFF] - 1) * 100);
}

/* ---- main ---- */

static void open_engine(bench *b, subject s, const char *schema) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err;
    o.n_threads = b->threads;
    o.max_queue = MAX_REQUESTS;
    o.audit_every = s == EVERY;
    if (s == EVERY) o.on_step = on_step;
    o.step_user = b;
    if (rp_engine_new(&b->engines[s], b->model, &o, &err)) bench_die("engine", &err);
    if (rp_engine_prepare(b->engines[s], NULL, NULL, &err)) bench_die("prepare", &err);
    if (rp_schema_parse(b->engines[s], schema, strlen(schema), "load", NULL, NULL, NULL, &err))
        bench_die("schema", &err);
}

static void open_all(bench *b, const char *path) {
    bench_text schema = {0};
    unsigned seed = 1;
    rp_error err;
    if (rp_model_open(&b->model, path, NULL, &err)) bench_die("model", &err);
    bench_text_add(&schema, "<schema name=\"load\"><system>Read the documents.");
    for (int i = 0; i < DOCUMENTS; i++) {
        bench_text_add(&schema, "<module name=\"d%d\">", i);
        bench_text_add_words(&schema, b->model, DOCUMENT_TOKENS, &seed);
        bench_text_add(&schema, "</module>");
    }
    bench_text_add(&schema, "</system></schema>");
    for (int s = 0; s < SUBJECTS; s++) open_engine(b, (subject)s, schema.bytes);
    bench_text_free(&schema);
}

int main(int argc, char **argv) {
    static const subject orders[6][SUBJECTS] = {
        {OFF, EVERY, AGAIN},
        {EVERY, AGAIN, OFF},
        {AGAIN, OFF, EVERY},
        {AGAIN, EVERY, OFF},
        {EVERY, OFF, AGAIN},
        {OFF, AGAIN, EVERY},
    };
    static bench b;
    bench_name = "bench_audit";
    const char *rate = bench_text_after(argc, argv, "--rate", NULL);
    b.rate = rate ? atof(rate) : 25;
    b.rounds = bench_number_after(argc, argv, "--rounds", 12);
    b.requests = bench_number_after(argc, argv, "--requests", 200);
    b.threads = bench_number_after(argc, argv, "--threads", 2);
    b.answer = bench_number_after(argc, argv, "--answer", 16);
    if (argc < 2 || argv[1][0] == '-' || b.rounds < 1 || b.rounds > MAX_ROUNDS || b.requests < 1 ||
        b.requests > MAX_REQUESTS || b.threads < 1 || b.answer < 1 || !(b.rate > 0)) {
        fprintf(stderr,
                "usage: bench_audit MODEL.gguf [--rate R] [--requests N, up to %d] [--rounds N, up to %d] [--threads "
                "N] [--answer N]\n",
                MAX_REQUESTS, MAX_ROUNDS);
        return 2;
    }
    open_all(&b, argv[1]);
    make_round(&b, 1);
    for (int s = 0; s < SUBJECTS; s++) run(&b, (subject)s, false); /* warm-up: modules, cost model */
    for (int i = 0; i < b.rounds; i++, b.n += (size_t)b.requests) {
        make_round(&b, (unsigned)i + 2);
        for (int k = 0; k < SUBJECTS; k++) run(&b, orders[i % 6][k], true);
    }
    report(&b);
    for (int s = 0; s < SUBJECTS; s++) rp_engine_free(b.engines[s]);
    for (int i = 0; i < b.requests; i++) bench_text_free(&b.list[i].prompt);
    rp_model_close(b.model);
    return 0;
}
