/* SPDX-License-Identifier: Apache-2.0 */
/* bench_quality.c: cost of link, blend and focus, against the cost of the tokens that they recompute.
 *
 *   bench_quality MODEL.gguf [--modules N] [--tokens N] [--rounds N] [--threads N] [--clock wall|processor]
 *
 * A prompt imports --modules (8) modules of --tokens (250) tokens, with their KV in RAM, in an order that none of them
 * was prefilled in, and ends with FRESH tokens of its own. In each of --rounds (9) rounds, in turns:
 *
 *   QUALITY    the prompt with that quality, which recomputes k module tokens
 *   control    the prompt with plain reuse and k more tokens of its own: as many rows over as many slots; for focus,
 *         whose first
 *              token is uncertain with random weights, 2 more: its last row is computed three times
 *   exact      no reuse
 *
 * Cost of the tokens: the control, plus, for blend, one of n layers of an exact prefill, because all module tokens pass
 * through one layer. Times count from complete KV to the first token (prompt_prefill_ms); --clock processor: processor
 * time of the process for the whole request, for a shared machine (with --threads 1: threads that wait for each other
 * use time, too). Medians, and medians of the ratios by round.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/model.h"
#include "support.h"
#include "reprise_pml.h"
#include "support/experiments.h"

#define MAX_ROUNDS 99
#define MAX_MODULES 64
#define FRESH 20

static const char *const qualities[] = {"link:4", "link:16", "blend:5", "blend:15", "blend:30", "focus:15"};
enum { N_QUALITIES = sizeof(qualities) / sizeof(qualities[0]) };

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    int modules, tokens, rounds, threads;
    bool processor;
    bench_text schema, prompt;
} bench;

/* One quality and its control. */
typedef struct subject {
    rp_quality quality;
    bench_text control;
    int32_t again, probed;
    double ms[MAX_ROUNDS], control_ms[MAX_ROUNDS], reported_ms[MAX_ROUNDS], ratios[MAX_ROUNDS];
} subject;

static void must(int rc, const char *what, const rp_error *err) {
    if (rc) bench_die(what, err);
}

/* The modules in an order of their own: every other one, then the others. */
static void write_prompt(const bench *b, bench_text *t, int32_t tokens) {
    unsigned seed = 7;
    bench_text_add(t, "<prompt schema=\"bench\">");
    for (int i = 1; i < b->modules; i += 2) bench_text_add(t, "<m%d/>", i);
    for (int i = 0; i < b->modules; i += 2) bench_text_add(t, "<m%d/>", i);
    bench_text_add_words(t, b->model, (size_t)tokens, &seed);
    bench_text_add(t, "</prompt>");
}

static void write_schema(bench *b) {
    unsigned seed = 1;
    bench_text_add(&b->schema, "<schema name=\"bench\">");
    bench_text_add_words(&b->schema, b->model, 16, &seed);
    for (int i = 0; i < b->modules; i++) {
        bench_text_add(&b->schema, "<module name=\"m%d\">", i);
        bench_text_add_words(&b->schema, b->model, (size_t)b->tokens, &seed);
        bench_text_add(&b->schema, "</module>");
    }
    bench_text_add(&b->schema, "</schema>");
}

static double processor_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* *ms: time by the clock in use. */
static rp_result *run(const bench *b, const bench_text *prompt, rp_quality quality, double *ms) {
    rp_error err = {0};
    rp_result *r;
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(prompt->bytes);
    req.quality = quality;
    req.experiment = &experiment_no_prefix;
    req.max_tokens = 1;
    req.ignore_eos = true;
    double start = processor_ms();
    must(rp_engine_run(b->engine, &req, &r, &err), "a prompt", &err);
    *ms = b->processor ? processor_ms() - start : r->timings.prompt_prefill_ms;
    return r;
}

static double time_of(const bench *b, const bench_text *prompt, rp_quality quality) {
    double ms;
    rp_result_free(run(b, prompt, quality, &ms));
    return ms;
}

static void open_bench(bench *b, const char *path) {
    rp_error err = {0};
    rp_engine_options o = rp_engine_options_defaults();
    must(rp_model_open(&b->model, path, NULL, &err), path, &err);
    write_schema(b);
    write_prompt(b, &b->prompt, FRESH);
    o.n_threads = b->threads;
    must(rp_engine_new(&b->engine, b->model, &o, &err), "an engine", &err);
    must(rp_schema_parse(b->engine, b->schema.bytes, b->schema.n, "schema", NULL, NULL, NULL, &err), "the schema",
         &err);
    must(rp_engine_prepare(b->engine, NULL, NULL, &err), "the weights", &err);
}

/* Determines how many tokens the quality recomputes; the control gets as many. */
static void open_subject(const bench *b, subject *s, const char *name) {
    rp_error err = {0};
    must(rp_quality_parse(name, &s->quality, &err), name, &err);
    double ms;
    rp_result *r = run(b, &b->prompt, s->quality, &ms);
    s->again = r->quality.recomputed_tokens;
    s->probed = r->quality.probed_tokens;
    write_prompt(b, &s->control, FRESH + s->again + (r->quality.focus_token > 0 ? 2 : 0));
    rp_result_free(r);
}

static void measure(const bench *b, subject *s, int round, double layer_ms) {
    const rp_quality reuse = {RP_QUALITY_REUSE, 0};
    rp_result *r = run(b, &b->prompt, s->quality, &s->ms[round]);
    s->reported_ms[round] = r->quality.ms;
    rp_result_free(r);
    s->control_ms[round] = time_of(b, &s->control, reuse);
    s->ratios[round] = s->ms[round] / (s->control_ms[round] + (s->probed > 0 ? layer_ms : 0));
}

static void report(bench *b, subject *s, double *reuse, double *exact) {
    size_t n = (size_t)b->rounds;
    double layer = bench_median(exact, n) / b->model->net.hp.n_layers;
    printf("%d modules of %d tokens, %d threads: reuse %.1f ms, exact %.1f ms, a layer of it %.2f ms\n\n", b->modules,
           b->tokens, b->threads, bench_median(reuse, n), bench_median(exact, n), layer);
    printf("| quality | looked at | computed again | ms | its tokens, ms | ratio | told, ms |\n| --- | ---: | ---: | "
           "---: | ---: | ---: | ---: |\n");
    for (int i = 0; i < N_QUALITIES; i++)
        printf("| %s | %d | %d | %.1f | %.1f | %.2f | %.1f |\n", qualities[i], s[i].probed, s[i].again,
               bench_median(s[i].ms, n), bench_median(s[i].control_ms, n) + (s[i].probed > 0 ? layer : 0),
               bench_median(s[i].ratios, n), bench_median(s[i].reported_ms, n));
}

static int option(int argc, char **argv, const char *name, int otherwise, int most) {
    for (int i = 2; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) otherwise = atoi(argv[i + 1]);
    if (otherwise < 1 || otherwise > most) bench_die(name, NULL);
    return otherwise;
}

int main(int argc, char **argv) {
    static subject subjects[N_QUALITIES];
    static double reuse[MAX_ROUNDS], exact[MAX_ROUNDS];
    bench_name = "bench_quality";
    if (argc < 2)
        bench_die("usage: bench_quality MODEL.gguf [--modules N] [--tokens N] [--rounds N] [--threads N] [--clock "
                  "wall|processor]",
                  NULL);
    bench b = {
        .modules = option(argc, argv, "--modules", 8, MAX_MODULES),
        .tokens = option(argc, argv, "--tokens", 250, 100000),
        .rounds = option(argc, argv, "--rounds", 9, MAX_ROUNDS),
        .threads = option(argc, argv, "--threads", 2, BENCH_MAX_THREADS),
    };
    for (int i = 2; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--clock") == 0) b.processor = strcmp(argv[i + 1], "processor") == 0;
    open_bench(&b, argv[1]);
    for (int i = 0; i < N_QUALITIES; i++) open_subject(&b, &subjects[i], qualities[i]);
    for (int round = 0; round < b.rounds; round++) {
        reuse[round] = time_of(&b, &b.prompt, (rp_quality){RP_QUALITY_REUSE, 0});
        exact[round] = time_of(&b, &b.prompt, (rp_quality){RP_QUALITY_EXACT, 0});
        for (int i = 0; i < N_QUALITIES; i++) measure(&b, &subjects[i], round, exact[round] / b.model->net.hp.n_layers);
    }
    report(&b, subjects, reuse, exact);
    for (int i = 0; i < N_QUALITIES; i++) bench_text_free(&subjects[i].control);
    bench_text_free(&b.schema);
    bench_text_free(&b.prompt);
    rp_engine_free(b.engine);
    rp_model_close(b.model);
    return 0;
}
