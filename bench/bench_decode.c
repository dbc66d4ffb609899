/* SPDX-License-Identifier: Apache-2.0 */
/* bench_decode.c: the share of decode that is not the forward pass.
 *
 *   bench_decode MODEL.gguf [--threads N] [--tokens N] [--cached N]
 *
 * The engine reports when the forward pass of each step began and ended (rp_step). The time from its end to the next
 * begin is everything else: the sampler, the text stream, the caller's callbacks, publishing to the prefix cache, and
 * the scheduler. --tokens (128) tokens are decoded after --cached (256) tokens, for each of
 *
 *   greedy     temperature 0
 *   sampled    temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, repetition penalty 1.1
 *   top-p      temperature 0.8 and top-p 0.95 alone: over the whole vocabulary
 *   4 at once  four sampled answers: a step has a token of each
 *
 * Steps with rows of a prompt are left out. Other programs make single steps long, in and outside of the pass: the
 * share is that of medians; that of first deciles (a tenth of the steps is faster: as on a quiet machine) and that of
 * sums, preemptions included, are printed beside it. The first two must be below 2 %. Public interface only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define MOST_STEPS 4096
#define MOST_JOBS 4
#define LIMIT_PERCENT 2.0

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    uint64_t last_end_us; /* of a pass of decoding alone; 0: none */
    double pass_us[MOST_STEPS], between_us[MOST_STEPS], sum_pass_us, sum_between_us;
    size_t n;
    int tokens;
} bench;

/* ---- steps ---- */

/* The time between two passes belongs to both: both must be of decoding alone, of the same number of answers. */
static void on_step(void *user, const rp_step *step) {
    bench *b = user;
    bool is_decode = true;
    for (int32_t i = 0; i < step->n_parts; i++) is_decode &= step->parts[i].kind == RP_STEP_DECODE;
    if (is_decode && b->last_end_us && b->n < MOST_STEPS) {
        b->pass_us[b->n] = (double)(step->end_us - step->start_us);
        b->between_us[b->n] = (double)(step->start_us - b->last_end_us);
        b->sum_pass_us += b->pass_us[b->n];
        b->sum_between_us += b->between_us[b->n++];
    }
    b->last_end_us = is_decode ? step->end_us : 0;
}

static bool on_text(void *user, const char *bytes, size_t n) {
    (void)user;
    (void)bytes;
    (void)n;
    return true;
}

/* ---- cells ---- */

typedef struct cell {
    const char *name;
    int n_jobs;
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
} cell;

static const cell cells[] = {
    {"greedy", 1, 0, 1, 0, 1, 0},
    {"sampled", 1, 0.8f, 0.95f, 0.05f, 1.1f, 40},
    {"top-p", 1, 0.8f, 0.95f, 0, 1, 0},
    {"4 at once", 4, 0.8f, 0.95f, 0.05f, 1.1f, 40},
};

static double share_of(double between, double pass) { return 100 * between / (between + pass); }

static bool run_cell(bench *b, const cell *c, const char *prompt) {
    rp_job *jobs[MOST_JOBS];
    rp_error err;
    b->last_end_us = 0;
    b->n = 0;
    b->sum_pass_us = b->sum_between_us = 0;
    for (int i = 0; i < c->n_jobs; i++) {
        rp_request q = rp_request_defaults();
        q.prompt = rp_prompt_text(prompt);
        q.max_tokens = b->tokens;
        q.ignore_eos = true;
        q.on_text = on_text;
        q.sampling.temperature = c->temperature;
        q.sampling.top_k = c->top_k;
        q.sampling.top_p = c->top_p;
        q.sampling.min_p = c->min_p;
        q.sampling.repeat_penalty = c->repeat_penalty;
        q.sampling.seed = (uint64_t)i + 1;
        if (rp_engine_submit(b->engine, &q, &jobs[i], &err)) bench_die("submit", &err);
    }
    for (int i = 0; i < c->n_jobs; i++) {
        rp_result *r;
        rp_job_wait(jobs[i], -1);
        if (rp_job_result(jobs[i], &r, &err)) bench_die("run", &err);
        rp_result_free(r);
        rp_job_free(jobs[i]);
    }
    if (b->n == 0) bench_die("no step of decoding alone", NULL);
    const double pass = bench_median(b->pass_us, b->n), between = bench_median(b->between_us, b->n); /* sorts them */
    const double share = share_of(between, pass), of_sums = share_of(b->sum_between_us, b->sum_pass_us);
    const double quick_pass = b->pass_us[b->n / 10], quick_between = b->between_us[b->n / 10],
                 of_quick = share_of(quick_between, quick_pass);
    printf("| %s | %zu | %.1f | %.0f | %.2f %% | %.1f | %.0f | %.2f %% | %.2f %% |\n", c->name, b->n, pass * 1e-3,
           between, share, quick_pass * 1e-3, quick_between, of_quick, of_sums);
    fflush(stdout);
    return share < LIMIT_PERCENT && of_quick < LIMIT_PERCENT;
}

/* ---- main ---- */

int main(int argc, char **argv) {
    static bench b;
    rp_error err;
    rp_engine_options o = rp_engine_options_defaults();
    bench_text prompt = {0};
    unsigned seed = 7;
    bool is_below = true;
    bench_name = "bench_decode";
    o.n_threads = bench_number_after(argc, argv, "--threads", 2);
    o.on_step = on_step;
    o.step_user = &b;
    b.tokens = bench_number_after(argc, argv, "--tokens", 128);
    int cached = bench_number_after(argc, argv, "--cached", 256);
    if (argc < 2 || argv[1][0] == '-' || o.n_threads < 1 || b.tokens < 8 || cached < 1) {
        fprintf(stderr, "usage: bench_decode MODEL.gguf [--threads N] [--tokens N, 8 or more] [--cached N]\n");
        return 2;
    }
    if (rp_model_open(&b.model, argv[1], NULL, &err)) bench_die("model", &err);
    if (rp_engine_new(&b.engine, b.model, &o, &err)) bench_die("engine", &err);
    bench_text_add_words(&prompt, b.model, (size_t)cached, &seed);
    printf("Decode after %d tokens, %d threads\n\n", cached, o.n_threads);
    printf("| answers | steps | forward pass, ms | between passes, us | share | first deciles: ms | us | share | share "
           "of sums |\n");
    printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) is_below &= run_cell(&b, &cells[i], prompt.bytes);
    printf("\nTarget: below %.0f %%: %s.\n", LIMIT_PERCENT, is_below ? "reached" : "MISSED");
    rp_engine_free(b.engine);
    rp_model_close(b.model);
    bench_text_free(&prompt);
    return 0;
}
