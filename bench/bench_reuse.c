/* SPDX-License-Identifier: Apache-2.0 */
/* bench_reuse.c: effect of reuse: TTFT with and without it, planning time, bytes copied, decode against bandwidth.
 *
 *   bench_reuse MODEL.gguf [--tokens N] [--modules N] [--fresh N] [--threads N] [--runs N]
 *
 * Every cell has its own engine, so that nothing is warm by accident; times with reuse are medians of --runs requests
 * after one that prefilled the modules. Public interface only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "reprise_pml.h"
#include "support/experiments.h"

typedef struct settings {
    const char *model;
    int tokens, modules, fresh, threads, runs;
} settings;

/* A schema of n modules of about `tokens` tokens each, and a prompt with all of them, the last first, and fresh
 * text. */
static void make_documents(const rp_model *m, const settings *s, int n, int tokens, bench_text *schema,
                           bench_text *prompt) {
    unsigned seed = 7;
    bench_text_add(schema, "<schema name=\"bench\">");
    bench_text_add(prompt, "<prompt schema=\"bench\">");
    for (int i = 0; i < n; i++) {
        bench_text_add(schema, "<module name=\"m%d\">", i);
        bench_text_add_words(schema, m, (size_t)tokens, &seed);
        bench_text_add(schema, "</module>");
        bench_text_add(prompt, "<m%d/>", n - 1 - i);
    }
    bench_text_add(schema, "</schema>");
    bench_text_add_words(prompt, m, (size_t)s->fresh, &seed);
    bench_text_add(prompt, "</prompt>");
}

/* ---- cells ---- */

static rp_engine *new_engine(rp_model *m, const settings *s, int32_t n_ctx) {
    rp_error err;
    rp_engine *e;
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = s->threads;
    o.n_ctx = n_ctx;
    o.kv_budget_bytes = (uint64_t)4 << 30;
    if (rp_engine_new(&e, m, &o, &err)) bench_die("engine", &err);
    return e;
}

static rp_result *run(rp_engine *e, const char *prompt, rp_reuse reuse, int max_tokens) {
    rp_error err;
    rp_result *r;
    rp_request q = rp_request_defaults();
    q.prompt = prompt ? rp_prompt_pml(prompt) : rp_prompt_text("");
    q.reuse = reuse;
    q.experiment = &experiment_no_prefix;
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    if (rp_engine_run(e, &q, &r, &err)) bench_die("run", &err);
    return r;
}

typedef struct reuse_times {
    double ttft_ms, plan_ms, module_prefill_ms;
    uint64_t bytes_copied;
    int cached, fresh;
} reuse_times;

static reuse_times measure_reuse(rp_model *m, const settings *s, int modules, int tokens, double *off_ms) {
    bench_text schema = {0}, prompt = {0};
    rp_error err;
    double ttft[64], plan[64];
    reuse_times t = {0};
    make_documents(m, s, modules, tokens, &schema, &prompt);
    rp_engine *e = new_engine(m, s, 0);
    if (rp_schema_parse(e, schema.bytes, schema.n, "bench", NULL, NULL, NULL, &err)) bench_die("schema", &err);
    rp_result *first = run(e, prompt.bytes, RP_REUSE_ON, 1);
    t.module_prefill_ms = first->timings.module_prefill_ms;
    rp_result_free(first);
    for (int i = 0; i < s->runs; i++) {
        rp_result *r = run(e, prompt.bytes, RP_REUSE_ON, 1);
        ttft[i] = r->timings.ttft_ms;
        plan[i] = r->timings.plan_ms;
        t.bytes_copied += r->bytes_copied;
        t.cached = r->cached_tokens;
        t.fresh = r->fresh_tokens;
        rp_result_free(r);
    }
    if (off_ms) {
        rp_result *r = run(e, prompt.bytes, RP_REUSE_EXACT, 1);
        *off_ms = r->timings.ttft_ms;
        rp_result_free(r);
    }
    t.ttft_ms = bench_median(ttft, (size_t)s->runs);
    t.plan_ms = bench_median(plan, (size_t)s->runs);
    rp_engine_free(e);
    bench_text_free(&schema);
    bench_text_free(&prompt);
    return t;
}

static void measure_decode(rp_model *m, const settings *s) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(m, &info);
    rp_engine *e = new_engine(m, s, 256);
    double rates[64], bandwidth = bench_read_bandwidth(s->threads), rate;
    for (int i = 0; i < s->runs; i++) {
        rp_result *r = run(e, NULL, RP_REUSE_ON, 24);
        rates[i] = r->timings.decode_tokens_per_second;
        rp_result_free(r);
    }
    rate = bench_median(rates, (size_t)s->runs);
    /* a token looks up one row of the embedding; the rest is not read */
    double embedding = (double)info.weight_bytes * info.n_embd * info.n_vocab / (double)info.parameters;
    double floor_rate = bandwidth * 1e9 / ((double)info.weight_bytes - embedding);
    printf("decode, short context        %10.2f tokens/s  = %.0f %% of %.2f that %.1f GB/s of reads allow\n", rate,
           100 * rate / floor_rate, floor_rate, bandwidth);
    rp_engine_free(e);
}

/* ---- main ---- */

int main(int argc, char **argv) {
    bench_name = "bench_reuse";
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr,
                "usage: bench_reuse MODEL.gguf [--tokens N] [--modules N] [--fresh N] [--threads N] [--runs N]\n");
        return 2;
    }
    settings s = {argv[1],
                  bench_number_after(argc, argv, "--tokens", 1000),
                  bench_number_after(argc, argv, "--modules", 5),
                  bench_number_after(argc, argv, "--fresh", 20),
                  bench_number_after(argc, argv, "--threads", 2),
                  bench_number_after(argc, argv, "--runs", 5)};
    if (s.tokens < 1 || s.modules < 1 || s.fresh < 1 || s.threads < 1 || s.threads > 64 || s.runs < 1 || s.runs > 64) {
        fprintf(stderr, "bench_reuse: numbers are 1 or more; threads and runs at most 64\n");
        return 2;
    }
    rp_error err;
    rp_model *m;
    if (rp_model_open(&m, s.model, NULL, &err)) bench_die("model", &err);
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(m, &info);
    printf("%s: %s, %.2f G parameters, %s, %.2f GB; %d threads; medians of %d\n\n", s.model, info.name,
           (double)info.parameters / 1e9, info.weights, (double)info.weight_bytes / 1e9, s.threads, s.runs);
    measure_decode(m, &s);
    fflush(stdout);
    reuse_times plan = measure_reuse(m, &s, 40, 8, NULL);
    printf("planning 40 modules          %10.3f ms         bytes copied while composing: %llu\n", plan.plan_ms,
           (unsigned long long)plan.bytes_copied);
    fflush(stdout);
    double full_ms;
    reuse_times t = measure_reuse(m, &s, s.modules, s.tokens, &full_ms);
    printf("first token with reuse       %10.1f ms         %d tokens cached in %d modules, %d fresh; planned in %.3f "
           "ms, %llu bytes copied\n",
           t.ttft_ms, t.cached, s.modules, t.fresh, t.plan_ms, (unsigned long long)t.bytes_copied);
    printf("first token without reuse    %10.1f ms         a full prefill (--reuse exact) of the same %d tokens\n",
           full_ms, t.cached + t.fresh);
    printf("ratio                        %10.1f\n", full_ms / t.ttft_ms);
    printf("computing the modules once   %10.1f ms\n", t.module_prefill_ms);
    rp_model_close(m);
    return 0;
}
