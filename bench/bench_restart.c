/* SPDX-License-Identifier: Apache-2.0 */
/* bench_restart.c: TTFT after a restart: with KV on disk, against KV in RAM and full prefill.
 *
 *   bench_restart MODEL.gguf [--tokens N] [--modules N] [--fresh N] [--rounds N] [--threads N] [--dir DIR]
 *                 [--only modules|prefix] [--kv-format f16,int8,...]
 *
 * A folder (DIR, or a temporary one; of several formats: DIR-int8 and so on) is filled once with --tokens (5,000)
 * tokens: --modules (5) modules of a schema, and one long prompt. In each of --rounds (5) rounds an engine is opened
 * for each KV format, in turn, and each of
 *
 *   modules or prefix   the cached part of its prompts; --fresh (20) new tokens follow it
 *   layers or whole     reads layer by layer of all spans, or span by span (rp_engine_experiment.store_whole_reads)
 *
 * Its first request hits the disk, its second RAM. Before the engine opens, the records are removed from the page cache
 * (verified by mincore), read once to measure the disk's speed, and removed again. Plans must report the expected tier,
 * and logits of the same prompt are compared byte for byte, also with those of an exact prefill. Nothing is written
 * during a measurement. TTFT is client-side: from rp_engine_run to its first token. Public interface only.
 */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/experiments.h"
#include "reprise_test.h"

#define MAX_ROUNDS 64
#define DISK_THREADS 2
#define PIECE_BYTES ((size_t)256 << 10) /* a layer of 256 tokens of the 1.1B shape */
#define FAST_DISK_GBS 1.0
#define BUDGET_BYTES ((uint64_t)1 << 30)

typedef enum mode { MODULES,
                    PREFIX,
                    MODES } mode;
typedef enum reading { LAYERS,
                       WHOLE,
                       READINGS } reading;
static const char *const mode_names[] = {"modules", "prefix"}, *const reading_names[] = {"layer by layer",
                                                                                         "span by span"};
enum { TAILS = 2 }; /* different new texts: for an engine's first request and its second, swapped in the next round */
static const int depths[] = {1, 2, 4, 8};
enum { N_DEPTHS = sizeof depths / sizeof depths[0] };

/* Outcome of a request. */
typedef struct answer {
    double ms;
    int cached, fresh;
    bool from_disk; /* at least in part */
    int32_t token;
} answer;

#define DIR_BYTES 4096

/* A KV format with its folder. */
typedef struct bench {
    rp_model *model;
    rp_kv_format format;
    char dir[DIR_BYTES];
    bool is_own_dir;
    bench_files files;
    int tokens, modules, fresh, rounds, threads;
    bool has[MODES];
    bool was_filled;                                   /* by an earlier run: nothing is prefilled for it */
    bench_text schema, prompts[MODES][TAILS], filling; /* filling: a prompt with the same prefix, to be cached */
    float *logits[MODES][TAILS];
    int n_vocab, n_compared, n_different;
    double afresh_ms[MODES];
    double disk_ms[MODES][READINGS][MAX_ROUNDS], ram_ms[MODES][READINGS][MAX_ROUNDS], alone_ms[MAX_ROUNDS],
        open_ms[MAX_ROUNDS];
    double ratio[MODES][READINGS][MAX_ROUNDS];
    double gbs[N_DEPTHS][MAX_ROUNDS];
    int n_alone, n_gbs;
    double bytes[MODES]; /* read from disk */
} bench;

/* ---- texts ---- */

static void make_texts(bench *b) {
    unsigned seed = 11;
    int each = b->tokens / b->modules;
    bench_text prefix = {0};
    bench_text_add(&b->schema, "<schema name=\"bench\">");
    for (int i = 0; i < b->modules; i++) {
        bench_text_add(&b->schema, "<module name=\"m%d\">", i);
        bench_text_add_words(&b->schema, b->model, (size_t)each, &seed);
        bench_text_add(&b->schema, "</module>");
    }
    bench_text_add(&b->schema, "</schema>");
    bench_text_add_words(&prefix, b->model, (size_t)b->tokens, &seed);
    bench_text_add(&b->filling, "%s: what comes with it when it is read first", prefix.bytes);
    for (int t = 0; t < TAILS; t++) {
        bench_text tail = {0};
        bench_text_add(&tail, "%s", t == 0 ? " And" : " But");
        bench_text_add_words(&tail, b->model, (size_t)b->fresh - 1, &seed);
        bench_text_add(&b->prompts[PREFIX][t], "%s%s", prefix.bytes, tail.bytes);
        bench_text_add(&b->prompts[MODULES][t], "<prompt schema=\"bench\">");
        for (int i = b->modules; i-- > 0;) bench_text_add(&b->prompts[MODULES][t], "<m%d/>", i);
        bench_text_add(&b->prompts[MODULES][t], "%s</prompt>", tail.bytes);
        bench_text_free(&tail);
    }
    bench_text_free(&prefix);
}

/* ---- requests ---- */

typedef struct watch {
    bench *b;
    int mode, tail; /* tail -1: logits are not compared */
    double first_s;
} watch;

static void on_logits(void *user, const float *logits, int32_t n) {
    watch *w = user;
    w->first_s = bench_now_s();
    if (w->tail < 0) return;
    float **known = &w->b->logits[w->mode][w->tail];
    if (*known) {
        w->b->n_compared++;
        w->b->n_different += memcmp(*known, logits, (size_t)n * sizeof(float)) != 0;
        return;
    }
    *known = malloc((size_t)n * sizeof(float));
    if (!*known) bench_die("out of memory", NULL);
    memcpy(*known, logits, (size_t)n * sizeof(float));
}

static answer ask(bench *b, rp_engine *e, int m, const char *text, int tail, rp_reuse reuse) {
    rp_request q = rp_request_defaults();
    rp_result *r;
    rp_error err;
    watch w = {b, m, tail, 0};
    answer a = {0};
    q.prompt = m == MODULES ? rp_prompt_pml(text) : rp_prompt_text(text);
    q.experiment = m != PREFIX ? &experiment_no_prefix : NULL;
    q.reuse = reuse;
    q.max_tokens = 1;
    q.ignore_eos = true;
    q.on_logits = on_logits;
    q.user = &w;
    double start = bench_now_s();
    if (rp_engine_run(e, &q, &r, &err)) bench_die("run", &err);
    a.ms = (w.first_s - start) * 1e3;
    a.cached = r->cached_tokens;
    a.fresh = r->fresh_tokens;
    a.token = r->tokens[0];
    for (int32_t i = 0; i < r->n_plan; i++) a.from_disk |= strcmp(r->plan[i].tier, "disk") == 0;
    rp_result_free(r);
    return a;
}

static rp_engine *open_engine(const bench *b, rp_store_write write, bool whole, double *ms) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err;
    o.n_threads = b->threads;
    o.kv_format = b->format;
    o.kv_budget_bytes = BUDGET_BYTES;
    o.store_dir = b->dir;
    o.store_write = write;
    const rp_engine_experiment experiment = {.struct_size = sizeof(experiment), .store_whole_reads = whole};
    o.experiment = &experiment;
    double start = bench_now_s();
    if (rp_engine_new(&e, b->model, &o, &err)) bench_die("engine", &err);
    if (ms) *ms = (bench_now_s() - start) * 1e3;
    if (rp_schema_parse(e, b->schema.bytes, b->schema.n, "bench", NULL, NULL, NULL, &err)) bench_die("schema", &err);
    if (rp_engine_prepare(e, NULL, NULL, &err)) bench_die("prepare", &err);
    return e;
}

/* ---- filling the store ---- */

static void say(const bench *b, const char *what) {
    fprintf(stderr, "bench_restart: %s: %s\n", bench_kv_formats[b->format], what);
    fflush(stderr);
}

static void fill(bench *b) {
    rp_engine *e = open_engine(b, RP_STORE_WRITE_BACK, false, NULL);
    if (b->has[MODULES]) {
        say(b, "computing the modules");
        answer a = ask(b, e, MODULES, b->prompts[MODULES][0].bytes, 0, RP_REUSE_ON); /* the store is still empty */
        b->afresh_ms[MODULES] = a.ms;
    }
    if (b->has[PREFIX]) {
        say(b, "computing the long prompt, once to keep it and once without reuse");
        ask(b, e, PREFIX, b->filling.bytes, -1, RP_REUSE_ON);
        answer a = ask(b, e, PREFIX, b->prompts[PREFIX][0].bytes, 0, RP_REUSE_OFF);
        b->afresh_ms[PREFIX] = a.ms;
    }
    rp_engine_free(e); /* writes pending records */
}

/* ---- rounds ---- */

static void forget(const bench_files *f) {
    uint64_t left = bench_files_forget(f);
    if (left * 100 <= f->bytes) return;
    fprintf(stderr, "bench_restart: the system holds %.1f of %.1f MB in memory all the same: not measured\n",
            (double)left / 1e6, (double)f->bytes / 1e6);
    exit(1);
}

static void check(const bench *b, const answer *a, bool from_disk, const char *what) {
    if (a->from_disk == from_disk && a->cached >= b->tokens - b->tokens / 50 && a->fresh <= 2 * b->fresh + 8) return;
    fprintf(stderr, "bench_restart: %s: %d tokens cached, %d fresh, %s disk: not measured\n", what, a->cached, a->fresh,
            a->from_disk ? "from" : "not from");
    exit(1);
}

static void run_cell(bench *b, const bench_files *f, int m, int how, int round) {
    int first = (round + how) % TAILS;
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    forget(f);
    rp_engine *e = open_engine(b, RP_STORE_WRITE_OFF, how == WHOLE, &b->open_ms[round]);
    answer disk = ask(b, e, m, b->prompts[m][first].bytes, first, RP_REUSE_ON);
    answer ram = ask(b, e, m, b->prompts[m][1 - first].bytes, 1 - first, RP_REUSE_ON);
    rp_engine_store_stats(e, &stats); /* the counts include the first request */
    check(b, &disk, true, "after a restart");
    check(b, &ram, false, "from RAM");
    b->bytes[m] = (double)stats.disk_read_bytes;
    b->disk_ms[m][how][round] = disk.ms;
    b->ram_ms[m][how][round] = ram.ms;
    b->ratio[m][how][round] = disk.ms / ram.ms;
    if (m == (b->has[MODULES] ? MODULES : PREFIX) && how == LAYERS) {
        bench_text t = {0};
        unsigned seed = (unsigned)round + 100;
        bench_text_add_words(&t, b->model, (size_t)b->fresh, &seed);
        b->alone_ms[b->n_alone++] = ask(b, e, MODES, t.bytes, -1, RP_REUSE_ON).ms;
        bench_text_free(&t);
    }
    rp_engine_free(e);
    fprintf(stderr, "bench_restart: round %d, %s, %s, %s: disk %.0f ms, ram %.0f ms (%d cached, %d fresh)\n", round + 1,
            bench_kv_formats[b->format], mode_names[m], reading_names[how], disk.ms, ram.ms, disk.cached, disk.fresh);
}

static void run_round(bench *b, const bench_files *f, int round) {
    for (int i = 0; i < N_DEPTHS; i++) {
        int depth = (i + round) % N_DEPTHS;
        forget(f);
        b->gbs[depth][round] = bench_files_read_gbs(f, depths[depth], PIECE_BYTES);
    }
    b->n_gbs++;
    for (int i = 0; i < MODES * READINGS; i++) {
        int cell = (i + round) % (MODES * READINGS), m = cell % MODES;
        if (b->has[m]) run_cell(b, f, m, cell / MODES, round);
    }
}

/* ---- results ---- */

static const char *reached(bool is) { return is ? "reached" : "MISSED"; }

/* On a fast disk, a ratio; on a slow one, the lower bounds: reads and computation fully overlapped (of_larger), and not
 * at all (of_sum). */
static void judge(int m, double gbs, double ratio, double of_larger, double of_sum) {
    if (gbs >= FAST_DISK_GBS) fprintf(stderr, "%s: at most 1.5 x from RAM: %s\n", mode_names[m], reached(ratio <= 1.5));
    else
        fprintf(stderr, "%s: within 10 %% of the larger of reading and RAM: %s; of both together: %s\n", mode_names[m],
                reached(of_larger <= 1.1), reached(of_sum <= 1.1));
}

static void report_mode(bench *b, int m, double gbs) {
    double read_ms = b->bytes[m] / gbs / 1e6;
    size_t n = (size_t)b->rounds;
    for (int how = 0; how < READINGS; how++) {
        double disk = bench_median(b->disk_ms[m][how], n), ram = bench_median(b->ram_ms[m][how], n);
        double ratio = bench_median(b->ratio[m][how], n);
        double bound = read_ms > ram ? read_ms : ram;
        printf("| %s, %s | %.0f | %.0f | **%.2f** | ", mode_names[m], reading_names[how], ram, disk, ratio);
        printf("%.0f (%.0f MB) | %.2f | %.2f |", read_ms, b->bytes[m] / 1e6, disk / bound, disk / (read_ms + ram));
        if (b->was_filled) printf(" - | - |\n");
        else printf(" %.0f | %.0f x |\n", b->afresh_ms[m], b->afresh_ms[m] / disk);
        if (how == LAYERS) judge(m, gbs, ratio, disk / bound, disk / (read_ms + ram));
    }
}

static void report(bench *b) {
    size_t n = (size_t)b->rounds;
    double gbs[N_DEPTHS], used = 0;
    for (int i = 0; i < N_DEPTHS; i++) {
        gbs[i] = bench_median(b->gbs[i], n);
        if (depths[i] == DISK_THREADS) used = gbs[i];
    }
    printf("First token of %d new tokens after %d in %s, ms; %d threads; medians of %d rounds\n\n", b->fresh, b->tokens,
           bench_kv_formats[b->format], b->threads, b->rounds);
    printf(
        "| states | from RAM | from disk after a restart | ratio | reading alone | against the larger of the two | ");
    printf("against their sum | computed | gain |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int m = 0; m < MODES; m++)
        if (b->has[m]) report_mode(b, m, used);
    printf("\n%d new tokens alone: %.0f ms. Opening the engine with its store: %.0f ms.\n", b->fresh,
           bench_median(b->alone_ms, (size_t)b->n_alone), bench_median(b->open_ms, n));
    printf("Reading the records, not in memory, in pieces of %zu KiB, by threads:", PIECE_BYTES >> 10);
    for (int i = 0; i < N_DEPTHS; i++) printf(" %d: %.2f GB/s%s", depths[i], gbs[i], i + 1 < N_DEPTHS ? "," : ".\n");
    printf("Target: %s.\n", used >= FAST_DISK_GBS
                                ? "from disk at most 1.5 x from RAM, since two threads read 1 GB/s or more"

                                : "within 10 % of reading, with what computing it does not hide, "
                                  "since two threads read less than 1 GB/s");
    printf("Logits: %d rows compared, %d differ.\n", b->n_compared, b->n_different);
}

static double median_of_ratios(const double *x, const double *base, int n) {
    double ratios[MAX_ROUNDS];
    for (int i = 0; i < n; i++) ratios[i] = x[i] / base[i];
    return bench_median(ratios, (size_t)n);
}

/* Medians of the rounds' ratios to the first format. Before report, which sorts. */
static void compare(const bench *all, int n) {
    for (int i = 1; i < n; i++)
        for (int m = 0; m < MODES; m++)
            if (all[i].has[m])
                printf("%s against %s, %s, layer by layer: TTFT from disk %.2f x, from RAM %.2f x; bytes read %.2f x\n",
                       bench_kv_formats[all[i].format], bench_kv_formats[all[0].format], mode_names[m],
                       median_of_ratios(all[i].disk_ms[m][LAYERS], all[0].disk_ms[m][LAYERS], all[0].rounds),
                       median_of_ratios(all[i].ram_ms[m][LAYERS], all[0].ram_ms[m][LAYERS], all[0].rounds),
                       all[i].bytes[m] / all[0].bytes[m]);
    if (n > 1) printf("\n");
}

/* ---- main ---- */

static bool read_arguments(bench *b, int argc, char **argv) {
    const char *only = bench_text_after(argc, argv, "--only", "");
    b->tokens = bench_number_after(argc, argv, "--tokens", 5000);
    b->modules = bench_number_after(argc, argv, "--modules", 5);
    b->fresh = bench_number_after(argc, argv, "--fresh", 20);
    b->rounds = bench_number_after(argc, argv, "--rounds", 5);
    b->threads = bench_number_after(argc, argv, "--threads", 2);
    for (int m = 0; m < MODES; m++) b->has[m] = strcmp(only, mode_names[1 - m]) != 0;
    return argc >= 2 && argv[1][0] != '-' && b->modules > 0 && b->tokens >= 64 * b->modules && b->fresh > 1 &&
           b->rounds > 0 && b->rounds <= MAX_ROUNDS && b->threads > 0;
}

/* Formats of a list with commas. Returns their number; 0: an unknown one. */
static int read_formats(const char *list, rp_kv_format *out) {
    int n = 0;
    while (*list && n < RP_N_KV_FORMATS) {
        const size_t length = strcspn(list, ",");
        if (!bench_kv_format_parse(list, length, &out[n++])) return 0;
        list += length + (list[length] == ',');
    }
    return n;
}

/* dir NULL: a temporary folder. */
static void open_bench(bench *b, const char *dir, bool is_only) {
    b->is_own_dir = !dir;
    if (!dir) {
        snprintf(b->dir, sizeof b->dir, "bench-restart-XXXXXX");
        if (!mkdtemp(b->dir)) bench_die("a folder", NULL);
    } else {
        snprintf(b->dir, sizeof b->dir, "%s%s%s", dir, is_only ? "" : "-", is_only ? "" : bench_kv_formats[b->format]);
    }
    make_texts(b);
    b->files = bench_files_of(b->dir);
    b->was_filled = b->files.n > 0;
    if (b->was_filled) return;
    bench_files_free(&b->files);
    fill(b);
    b->files = bench_files_of(b->dir);
}

static void close_bench(bench *b) {
    bench_files_free(&b->files);
    if (b->is_own_dir) bench_folder_remove(b->dir);
}

int main(int argc, char **argv) {
    static bench all[RP_N_KV_FORMATS], options;
    rp_kv_format formats[RP_N_KV_FORMATS];
    int n_different = 0, n = read_formats(bench_text_after(argc, argv, "--kv-format", "f16"), formats);
    const char *dir = bench_text_after(argc, argv, "--dir", NULL);
    rp_error err;
    bench_name = "bench_restart";
    if (!read_arguments(&options, argc, argv) || n == 0) {
        fprintf(stderr,
                "usage: bench_restart MODEL.gguf [--tokens N] [--modules N] [--fresh N] [--rounds N, up to %d] "
                "[--threads N] "
                "[--dir DIR] [--only modules|prefix] [--kv-format f16,int8,...]\n",
                MAX_ROUNDS);
        return 2;
    }
    if (rp_model_open(&options.model, argv[1], NULL, &err)) bench_die("model", &err);
    for (int i = 0; i < n; i++) {
        all[i] = options;
        all[i].format = formats[i];
        open_bench(&all[i], dir, n == 1);
    }
    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < n; i++) run_round(&all[(i + round) % n], &all[(i + round) % n].files, round);
    compare(all, n);
    for (int i = 0; i < n; i++) {
        report(&all[i]);
        n_different += all[i].n_different;
        close_bench(&all[i]);
    }
    rp_model_close(options.model);
    return n_different > 0;
}
