/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tenants.c: timing side channel: can a client detect that another tenant has cached its text?
 *
 *   bench_tenants MODEL.gguf [--tokens N] [--rounds N] [--threads N] [--disk yes]
 *
 * In each of --rounds (200) rounds new tenants request the same --tokens (200) tokens, three of them in changing order:
 *
 *   nobody   another tenant has requested as many other tokens before
 *   other    another tenant has requested the same tokens before
 *   own      the tenant itself has: the effect that the other two would show if anything leaked
 *
 * With --disk yes the engine has a store. It is reopened before the tenant's request, with no record in the page cache:
 * all hits come from disk.
 *
 * TTFT is client-side: from rp_engine_run to its first token. All requests use one engine, or store, so the store is
 * equally full for each. Differences are taken within a round; their median has a 95 % interval from the order
 * statistics of the differences, independent of their distribution (that of the sign test; Hollander and Wolfe, 1999).
 * Public interface only.
 */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "reprise_pml.h"

#define MAX_ROUNDS 10000
#define BUDGET_BYTES ((uint64_t)256 << 20) /* a few rounds: later ones evict earlier ones */
#define DISK_BYTES ((uint64_t)64 << 20)

typedef enum subject { NOBODY,
                       OTHER,
                       OWN,
                       SUBJECTS } subject;

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    rp_engine_options options; /* store_dir: NULL without a disk */
    int tokens, rounds;
    bool modules; /* import modules of the tenant's own schema; else plain text */
    int n_names;
    double ms[SUBJECTS][MAX_ROUNDS];
} bench;

/* n tokens with a unique start. */
static void make_text(const bench *b, unsigned seed, bench_text *text) {
    bench_text_add(text, "%u:", seed * 2654435761u);
    bench_text_add_words(text, b->model, (size_t)b->tokens, &seed);
}

static void open_engine(bench *b) {
    rp_error err;
    if (rp_engine_new(&b->engine, b->model, &b->options, &err)) bench_die("engine", &err);
    if (rp_engine_prepare(b->engine, NULL, NULL, &err)) bench_die("prepare", &err);
}

/* Leaves all cached KV on disk only. */
static void restart(bench *b) {
    rp_engine_free(b->engine); /* writes pending records */
    bench_files files = bench_files_of(b->options.store_dir);
    uint64_t left = bench_files_forget(&files);
    if (left * 100 > files.bytes) bench_die("the system keeps records in memory", NULL);
    bench_files_free(&files);
    open_engine(b);
}

static void load(const bench *b, const char *tenant, const char *text) {
    rp_schema_options o = {.struct_size = sizeof(o), .tenant = tenant};
    rp_error err;
    bench_text schema = {0};
    bench_text_add(&schema, "<schema name=\"own\"><module name=\"m\">%s</module></schema>", text);
    if (rp_schema_parse(b->engine, schema.bytes, schema.n, "own", NULL, &o, NULL, &err)) bench_die("schema", &err);
    bench_text_free(&schema);
}

/* TTFT in milliseconds. */
static double ask(const bench *b, const char *tenant, const char *text) {
    rp_request q = rp_request_defaults();
    rp_result *r;
    rp_error err;
    q.tenant = tenant;
    q.max_tokens = 1;
    q.ignore_eos = true;
    if (b->modules) q.prompt = rp_prompt_pml("<prompt schema=\"own\"><m/> What does it say?</prompt>");
    else q.prompt = rp_prompt_text(text);
    double start = bench_now_s();
    if (rp_engine_run(b->engine, &q, &r, &err)) bench_die("run", &err);
    double ms = (bench_now_s() - start) * 1e3;
    rp_result_free(r);
    return ms;
}

static double measure(bench *b, subject s, const char *text, const char *other_text) {
    char asker[32], before[32];
    const char *first = s == NOBODY ? other_text : text;
    snprintf(asker, sizeof(asker), "asker %d", b->n_names);
    snprintf(before, sizeof(before), "%s %d", s == OWN ? "asker" : "other", b->n_names++);
    if (b->modules) load(b, before, first);
    ask(b, before, first);
    if (b->options.store_dir) restart(b);
    if (b->modules) load(b, asker, text);
    return ask(b, asker, text);
}

static void run_round(bench *b, int round) {
    static const subject orders[6][SUBJECTS] = {
        {NOBODY, OTHER, OWN},
        {OTHER, NOBODY, OWN},
        {OWN, NOBODY, OTHER},
        {OWN, OTHER, NOBODY},
        {NOBODY, OWN, OTHER},
        {OTHER, OWN, NOBODY},
    };
    bench_text text = {0}, other = {0};
    make_text(b, (unsigned)(4 * round + 2 * b->modules + 1), &text);
    make_text(b, (unsigned)(4 * round + 2 * b->modules + 2), &other);
    for (int i = 0; i < SUBJECTS; i++) {
        subject s = orders[round % 6][i];
        b->ms[s][round] = measure(b, s, text.bytes, other.bytes);
    }
    bench_text_free(&text);
    bench_text_free(&other);
}

/* Median and 95 % interval of `subject` - nobody, in microseconds. */
static void differences(const bench *b, subject s, double out[3]) {
    static double d[MAX_ROUNDS];
    int n = b->rounds, low = (int)floor(0.5 * n - 0.98 * sqrt(n));
    for (int i = 0; i < n; i++) d[i] = (b->ms[s][i] - b->ms[NOBODY][i]) * 1e3;
    out[1] = bench_median(d, (size_t)n); /* bench_median sorted them */
    out[0] = d[low < 0 ? 0 : low];
    out[2] = d[low < 0 ? n - 1 : n - 1 - low];
}

static void run_cell(bench *b, const char *name) {
    double other[3], own[3];
    for (int i = 0; i < b->rounds; i++) run_round(b, i);
    differences(b, OTHER, other);
    differences(b, OWN, own);
    double medians[SUBJECTS];
    for (int s = 0; s < SUBJECTS; s++) medians[s] = bench_median(b->ms[s], (size_t)b->rounds);
    printf("| %s | %.3f | %.3f | %+.1f (%+.1f to %+.1f) | %+.2f %% | %.3f | %+.0f (%+.0f to %+.0f) |\n", name,
           medians[NOBODY], medians[OTHER], other[1], other[0], other[2], other[1] / medians[NOBODY] / 10, medians[OWN],
           own[1], own[0], own[2]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static bench b;
    char dir[] = "bench-tenants-XXXXXX";
    rp_error err;
    bench_name = "bench_tenants";
    b.options = rp_engine_options_defaults();
    b.tokens = bench_number_after(argc, argv, "--tokens", 200);
    b.rounds = bench_number_after(argc, argv, "--rounds", 200);
    b.options.n_threads = bench_number_after(argc, argv, "--threads", 1);
    b.options.kv_budget_bytes = BUDGET_BYTES;
    b.options.store_budget_bytes = DISK_BYTES;
    if (argc < 2 || argv[1][0] == '-' || b.tokens < 1 || b.rounds < 1 || b.rounds > MAX_ROUNDS ||
        b.options.n_threads < 1) {
        fprintf(stderr,
                "usage: bench_tenants MODEL.gguf [--tokens N] [--rounds N, up to %d] [--threads N] [--disk yes]\n",
                MAX_ROUNDS);
        return 2;
    }
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], "--disk") == 0 && strcmp(argv[i + 1], "yes") == 0 && !(b.options.store_dir = mkdtemp(dir)))
            bench_die("a folder", NULL);
    if (rp_model_open(&b.model, argv[1], NULL, &err)) bench_die("model", &err);
    open_engine(&b);
    printf("First token after %d tokens%s, ms, %d rounds, %d threads; differences in microseconds, medians with "
           "intervals of 95 %%\n\n",
           b.tokens, b.options.store_dir ? " and a restart, from disk" : "", b.rounds, (int)b.options.n_threads);
    printf("| asked for | nobody has it | another tenant has it | difference | of it | the tenant has it | difference "
           "|\n");
    printf("| --- | --- | --- | --- | --- | --- | --- |\n");
    run_cell(&b, "text");
    b.modules = true;
    run_cell(&b, "modules of an own schema");
    rp_engine_free(b.engine);
    if (b.options.store_dir) bench_folder_remove(dir);
    rp_model_close(b.model);
    return 0;
}
