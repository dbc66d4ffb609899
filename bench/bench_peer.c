/* SPDX-License-Identifier: Apache-2.0 */
/* bench_peer.c: Reprise's side of tools/bench_peers: one model, loaded once; reads cells from standard input, one a
 * line, and answers each with a line of JSON on standard output. Public interface only.
 *
 *   bench_peer MODEL.gguf [--threads N] [--ctx N] [--kv-format NAME] [--keep SHARE] [--store DIR]
 *              [--device NAME [--device-kv TOKENS] [--kv-in-place]]
 *
 *   prefill N RUNS             ms to the first token of N new tokens
 *   decode DEPTH N RUNS        ms a token, N tokens after a context of DEPTH, a multiple of DEPTH_TOKENS, in cached
 *                              modules; with KEEP and METHOD after RUNS, over as much of it (rp_request.kv_keep),
 *                              without the reduction itself
 *   fresh CACHED N RUNS ORDER  ms to the first token of N new tokens after CACHED ones, in cached modules; ORDER is
 *                              forward or backward
 *   full CACHED N RUNS         the same prompt as one full prefill, without reuse
 *   restart CACHED N RUNS      as fresh, each in an engine that was just opened, with the modules in --store
 *   evicted CACHED N RUNS      as fresh, each after other modules have taken the place of these in the memory of the
 *                              device, so that they are hits in RAM; with --device-kv, less than they take together
 *   tokens TEXT                the token ids of the rest of the line
 *   memory                     peak resident memory of this process
 *
 * --device-kv: the device has memory for the KV of so many tokens; with --kv-in-place it reads KV in RAM where it is,
 * else it copies it.
 *
 * With --keep, cells with modules are those of reduced KV; module_s is the time of their prefill, reduction_s that of
 * their reduction.
 *
 * No cell is warm by accident: every text is new; a cell without reuse fails if a token was cached, and a cell with
 * reuse fails if a module was not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "reprise_device.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/experiments.h"

#define LINE_BYTES 4096
#define MAX_RUNS 64
#define DEPTH_TOKENS 2048 /* of a module of the deep context */
#define DEPTH_MODULES 8
#define DOCUMENT_TOKENS 1000 /* of a module of the documents */
#define DOCUMENTS 5
#define CROWDS 2 /* schemas of other documents, which together take the place of any */

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    rp_engine_options options; /* of every engine */
    int device_kv_tokens;      /* 0: as many as there is memory for */
    unsigned seed;             /* of the next text */
    unsigned documents_seed;   /* of the documents: they are the same in every engine */
    int lead;                  /* extra tokens of a text on its own: SentencePiece adds a leading space */
    double runs[MAX_RUNS];
    double module_s, reduction_s;              /* of the last modules that were computed */
    bool has_depth, has_documents, has_crowds; /* loaded schemas */
} bench;

static void refuse(const char *what) {
    fprintf(stderr, "%s: %s\n", bench_name, what);
    exit(1);
}

/* ---- requests ---- */

static rp_result *run(const bench *b, const rp_request *request) {
    rp_error err;
    rp_result *r;
    rp_request q = *request;
    q.ignore_eos = true;
    if (rp_engine_run(b->engine, &q, &r, &err)) bench_die("run", &err);
    return r;
}

static void load_schema(const bench *b, const bench_text *schema) {
    rp_error err;
    if (rp_schema_parse(b->engine, schema->bytes, schema->n, "schema", NULL, NULL, NULL, &err))
        bench_die("schema", &err);
}

/* Computes the modules of a prompt, and their reduced KV, if it is asked for. */
static void warm(bench *b, const rp_request *q) {
    const double start = bench_now_s();
    rp_result *r = run(b, q);
    const double end = bench_now_s();
    rp_engine_drain(b->engine, -1);
    if (r->timings.module_prefill_ms > 0) b->module_s = end - start, b->reduction_s = bench_now_s() - end;
    rp_result_free(r);
}

/* A schema of modules m0, m1, ... of n_tokens tokens each. */
static void add_schema(bench *b, const char *name, int n_modules, int n_tokens) {
    bench_text schema = {0};
    bench_text_add(&schema, "<schema name=\"%s\">", name);
    for (int i = 0; i < n_modules; i++) {
        bench_text_add(&schema, "<module name=\"m%d\">", i);
        bench_text_add_words(&schema, b->model, (size_t)(n_tokens + b->lead), &b->seed);
        bench_text_add(&schema, "</module>");
    }
    bench_text_add(&schema, "</schema>");
    load_schema(b, &schema);
    bench_text_free(&schema);
}

/* A prompt of the first n_modules modules and n new tokens. */
static bench_text make_prompt(bench *b, const char *schema, int n_modules, bool backward, int n) {
    bench_text prompt = {0};
    bench_text_add(&prompt, "<prompt schema=\"%s\">", schema);
    for (int i = 0; i < n_modules; i++) bench_text_add(&prompt, "<m%d/>", backward ? n_modules - 1 - i : i);
    bench_text_add_words(&prompt, b->model, (size_t)(n + b->lead), &b->seed);
    bench_text_add(&prompt, "</prompt>");
    return prompt;
}

/* ---- results ---- */

static void print_runs(const bench *b, int n_runs) {
    printf("{\"ms\":[");
    for (int i = 0; i < n_runs; i++) printf("%s%.4f", i ? "," : "", b->runs[i]);
    printf("]");
}

static void print_result(const bench *b, int n_runs, const rp_result *r) {
    print_runs(b, n_runs);
    printf(",\"cached\":%d,\"fresh\":%d,\"plan_ms\":%.4f,\"bytes_copied\":%llu,\"kv_bytes\":%llu,\"module_s\":%.3f,"
           "\"reduction_s\":%.3f,"
           "\"reduction_ms\":%.2f}\n",
           r->cached_tokens, r->fresh_tokens, r->timings.plan_ms, (unsigned long long)r->bytes_copied,
           (unsigned long long)r->kv_bytes, b->module_s, b->reduction_s, r->kv_reduction.ms);
}

/* ---- engines ---- */

static void reopen(bench *b) {
    rp_error err;
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_engine_free(b->engine);
    b->has_depth = b->has_documents = b->has_crowds = false;
    if (b->device_kv_tokens > 0) {
        rp_model_describe(b->model, &info);
        b->options.kv_budget_bytes = 4 * DOCUMENTS * DOCUMENT_TOKENS * info.kv_bytes_per_token; /* in RAM */
        b->engine = bench_open_small_device(b->model, &b->options,
                                            (uint64_t)b->device_kv_tokens * info.kv_bytes_per_token);
    } else if (rp_engine_new(&b->engine, b->model, &b->options, &err)) {
        bench_die("engine", &err);
    }
}

/* ---- cells ---- */

/* No prefix cache: a cell's text is prefilled even if an earlier run has cached it. */
static rp_request plain_request(void) {
    rp_request q = rp_request_defaults();
    q.experiment = &experiment_no_prefix;
    return q;
}

static bool prefill(bench *b, const char *line) {
    int n, n_runs;
    rp_result *r = NULL;
    if (sscanf(line, "prefill %d %d", &n, &n_runs) != 2 || n < 1 || n_runs < 1 || n_runs > MAX_RUNS) return false;
    for (int i = 0; i < n_runs; i++) {
        bench_text text = {0};
        rp_request q = plain_request();
        bench_text_add(&text, "%s", "");
        /* the beginning-of-text token is one of the n */
        if (n > 1) bench_text_add_words(&text, b->model, (size_t)n - 1, &b->seed);
        q.prompt = rp_prompt_text(text.bytes);
        q.max_tokens = 1;
        rp_result_free(r);
        r = run(b, &q);
        b->runs[i] = r->timings.ttft_ms;
        if (r->cached_tokens > 0 || r->fresh_tokens != n) refuse("prefill: not as many new tokens as asked for");
        bench_text_free(&text);
    }
    print_result(b, n_runs, r);
    rp_result_free(r);
    return true;
}

static bool decode(bench *b, const char *line) {
    int depth, n, n_runs;
    char keep[16] = "", method[16] = "snapkv";
    if (sscanf(line, "decode %d %d %d %15s %15s", &depth, &n, &n_runs, keep, method) < 3 || depth < 0 ||
        depth % DEPTH_TOKENS || depth > DEPTH_TOKENS * DEPTH_MODULES || n < 2 || n_runs < 1 || n_runs > MAX_RUNS)
        return false;
    bench_text prompt = {0};
    rp_request q = plain_request();
    q.prompt = rp_prompt_text("");
    if (depth > 0) {
        if (!b->has_depth) add_schema(b, "depth", DEPTH_MODULES, DEPTH_TOKENS);
        b->has_depth = true;
        prompt = make_prompt(b, "depth", depth / DEPTH_TOKENS, false, 1);
        q.prompt = rp_prompt_pml(prompt.bytes);
        q.max_tokens = 1;
        warm(b, &q);
    }
    q.max_tokens = n;
    if (keep[0]) q.kv_keep = keep, q.kv_method = method;
    rp_result *r = NULL;
    for (int i = 0; i < n_runs; i++) {
        rp_result_free(r);
        r = run(b, &q);
        if (r->n_tokens != n) refuse("decode: fewer tokens than asked for: raise --ctx");
        if (r->timings.module_prefill_ms > 0) refuse("decode: a module was computed anew");
        b->runs[i] = (r->timings.decode_ms - r->kv_reduction.ms) / (n - 1);
    }
    print_result(b, n_runs, r);
    rp_result_free(r);
    bench_text_free(&prompt);
    return true;
}

static void add_documents(bench *b) {
    const unsigned next = b->seed;
    if (b->has_documents) return;
    b->seed = b->documents_seed;
    add_schema(b, "documents", DOCUMENTS, DOCUMENT_TOKENS);
    b->seed = next;
    b->has_documents = true;
}

/* Cells fresh and full: the first documents and new text. */
static bool documents(bench *b, const char *line) {
    int cached, n, n_runs;
    char order[16] = "forward";
    bool full = strncmp(line, "full", 4) == 0;
    if (full ? sscanf(line, "full %d %d %d", &cached, &n, &n_runs) != 3
             : sscanf(line, "fresh %d %d %d %15s", &cached, &n, &n_runs, order) != 4)
        return false;
    if (cached < 0 || cached % DOCUMENT_TOKENS || cached > DOCUMENTS * DOCUMENT_TOKENS || n < 1 || n_runs < 1 ||
        n_runs > MAX_RUNS)
        return false;
    add_documents(b);
    rp_result *r = NULL;
    for (int i = full ? 0 : -1; i < n_runs; i++) { /* -1: prefills missing modules */
        bench_text prompt = make_prompt(b, "documents", cached / DOCUMENT_TOKENS, strcmp(order, "backward") == 0, n);
        rp_request q = plain_request();
        q.prompt = rp_prompt_pml(prompt.bytes);
        q.max_tokens = 1;
        q.reuse = full ? RP_REUSE_EXACT : RP_REUSE_ON;
        rp_result_free(r);
        r = NULL;
        if (i < 0) warm(b, &q);
        else r = run(b, &q);
        bench_text_free(&prompt);
        if (i < 0) continue;
        if (r->timings.module_prefill_ms > 0) refuse("fresh: a module was computed anew");
        if (llabs((long long)(r->fresh_tokens + r->cached_tokens - cached - n)) > 1)
            refuse("fresh: not as many tokens as asked for");
        if (full ? r->cached_tokens > 0 : r->cached_tokens < cached)
            refuse("fresh: what is cached is not what should be");
        b->runs[i] = r->timings.ttft_ms;
    }
    print_result(b, n_runs, r);
    rp_result_free(r);
    return true;
}

/* Other documents take the place of what is in the device's memory. */
static void crowd_out(bench *b) {
    for (int i = 0; i < CROWDS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "crowd%d", i);
        if (!b->has_crowds) add_schema(b, name, DOCUMENTS, DOCUMENT_TOKENS);
        bench_text prompt = make_prompt(b, name, DOCUMENTS, false, 1);
        rp_request q = plain_request();
        q.prompt = rp_prompt_pml(prompt.bytes);
        q.max_tokens = 1;
        warm(b, &q);
        bench_text_free(&prompt);
    }
    b->has_crowds = true;
}

/* Cell evicted. */
static bool evicted(bench *b, const char *line) {
    int cached, n, n_runs;
    if (sscanf(line, "evicted %d %d %d", &cached, &n, &n_runs) != 3 || cached < DOCUMENT_TOKENS ||
        cached % DOCUMENT_TOKENS || cached > DOCUMENTS * DOCUMENT_TOKENS || n < 1 || n_runs < 1 || n_runs > MAX_RUNS)
        return false;
    add_documents(b);
    rp_result *r = NULL;
    for (int i = -1; i < n_runs; i++) { /* -1: prefills missing modules */
        bench_text prompt = make_prompt(b, "documents", cached / DOCUMENT_TOKENS, false, n);
        rp_request q = plain_request();
        q.prompt = rp_prompt_pml(prompt.bytes);
        q.max_tokens = 1;
        rp_result_free(r);
        r = run(b, &q);
        bench_text_free(&prompt);
        if (i >= 0 && bench_tokens_of_tier(r, "ram") < cached)
            refuse("evicted: the modules were not in RAM: give --device-kv, of a device with memory of its own");
        if (i >= 0) b->runs[i] = r->timings.ttft_ms;
        if (i + 1 < n_runs) crowd_out(b);
    }
    print_result(b, n_runs, r);
    rp_result_free(r);
    return true;
}

/* Cell restart. The engine is opened before its time begins. */
static bool restart(bench *b, const char *line) {
    int cached, n, n_runs;
    if (sscanf(line, "restart %d %d %d", &cached, &n, &n_runs) != 3 || n_runs < 1 || n_runs > MAX_RUNS) return false;
    if (!b->options.store_dir) refuse("restart: give --store");
    rp_result *r = NULL;
    for (int i = -1; i < n_runs; i++) { /* -1: fills the store */
        bench_text prompt = {0};
        rp_request q = plain_request();
        reopen(b);
        add_documents(b);
        prompt = make_prompt(b, "documents", cached / DOCUMENT_TOKENS, false, n);
        q.prompt = rp_prompt_pml(prompt.bytes);
        q.max_tokens = 1;
        rp_result_free(r);
        r = run(b, &q);
        if (i >= 0 && (r->timings.module_prefill_ms > 0 || r->cached_tokens < cached))
            refuse("restart: a module was not in the store");
        if (i >= 0) b->runs[i] = r->timings.ttft_ms;
        rp_engine_drain(b->engine, -1);
        bench_text_free(&prompt);
    }
    print_result(b, n_runs, r);
    rp_result_free(r);
    return true;
}

static bool tokens(const bench *b, const char *line) {
    rp_error err;
    int32_t *ids;
    size_t n;
    if (strncmp(line, "tokens ", 7) != 0) return false;
    if (rp_tokenize(b->model, line + 7, strlen(line + 7), false, true, &ids, &n, &err)) bench_die("tokenize", &err);
    printf("{\"ids\":[");
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? "," : "", ids[i]);
    printf("]}\n");
    rp_free(ids);
    return true;
}

/* VmHWM of Linux, in KiB; 0 if unavailable. */
static bool memory(const char *line) {
    char status[256];
    unsigned long long kib = 0;
    if (strcmp(line, "memory") != 0) return false;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(status, sizeof(status), f))
        if (sscanf(status, "VmHWM: %llu", &kib) == 1) break;
    if (f) fclose(f);
    printf("{\"peak_bytes\":%llu}\n", kib * 1024);
    return true;
}

/* ---- main ---- */

static void open_model(bench *b, const char *path) {
    rp_error err;
    rp_model_info info = {.struct_size = sizeof(info)};
    double start = bench_now_s(), opened;
    if (rp_model_open(&b->model, path, NULL, &err)) bench_die("model", &err);
    opened = bench_now_s();
    reopen(b);
    rp_model_describe(b->model, &info);
    b->lead = (int)bench_count_tokens(b->model, "k") - 1;
    printf("{\"version\":\"%s\",\"open_ms\":%.2f,\"engine_ms\":%.2f,\"weights\":\"%s\",\"weight_bytes\":%llu,\"kv_"
           "bytes_per_token\":%llu}\n",
           rp_version(), (opened - start) * 1e3, (bench_now_s() - opened) * 1e3, info.weights,
           (unsigned long long)info.weight_bytes, (unsigned long long)info.kv_bytes_per_token);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static char line[LINE_BYTES];
    bench b = {.seed = 7, .documents_seed = 1 << 20, .options = rp_engine_options_defaults()};
    bench_name = "bench_peer";
    const int threads = bench_number_after(argc, argv, "--threads", 2),
              ctx = bench_number_after(argc, argv, "--ctx", 0);
    const char *format_name = bench_text_after(argc, argv, "--kv-format", "f16");
    const rp_device_options device = {.struct_size = sizeof(device),
                                      .name = bench_text_after(argc, argv, "--device", NULL),
                                      .kv_in_place = bench_has_flag(argc, argv, "--kv-in-place")
                                                         ? RP_KV_IN_PLACE_ALWAYS
                                                         : RP_KV_IN_PLACE_NEVER};
    rp_kv_format format;
    b.device_kv_tokens = bench_number_after(argc, argv, "--device-kv", 0);
    if (argc < 2 || argv[1][0] == '-' || threads < 1 || ctx < 0 || b.device_kv_tokens < 0 ||
        !bench_kv_format_parse(format_name, strlen(format_name), &format)) {
        fprintf(stderr, "usage: bench_peer MODEL.gguf [--threads N] [--ctx N] [--kv-format NAME] [--keep SHARE] "
                        "[--store DIR] [--device NAME [--device-kv TOKENS] [--kv-in-place]]   (cells on standard "
                        "input: see bench/README.md)\n");
        return 2;
    }
    b.options.n_threads = threads;
    b.options.n_ctx = ctx;
    b.options.kv_format = format;
    b.options.keep_share = bench_text_after(argc, argv, "--keep", NULL);
    b.options.store_dir = bench_text_after(argc, argv, "--store", NULL);
    b.options.device = &device;
    open_model(&b, argv[1]);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!prefill(&b, line) && !decode(&b, line) && !documents(&b, line) && !restart(&b, line) &&
            !evicted(&b, line) && !tokens(&b, line) && !memory(line)) {
            fprintf(stderr, "bench_peer: '%s' is no cell: see bench/README.md\n", line);
            return 1;
        }
        fflush(stdout);
    }
    rp_engine_free(b.engine);
    rp_model_close(b.model);
    return 0;
}
