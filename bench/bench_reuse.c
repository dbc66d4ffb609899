/* bench_reuse.c: what reuse is worth: first-token times with and without it, planning time, bytes copied, decode against bandwidth.
 *
 *   bench_reuse MODEL.gguf [--tokens N] [--modules N] [--fresh N] [--threads N] [--runs N]
 *
 * Every cell has its own salt (the tenant), so that nothing is warm by accident; times with reuse are medians of --runs requests
 * after one that encoded the modules. Public interface only.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reprise.h"

typedef struct settings {
    const char *model;
    int tokens, modules, fresh, threads, runs;
} settings;

static int n_cells; /* salts */

static void die(const char *what, const rp_error *err) {
    fprintf(stderr, "bench_reuse: %s: %s\n", what, err ? err->message : "");
    exit(1);
}

/* ---- texts of a wanted number of tokens ---- */

static size_t count_tokens(const rp_model *m, const char *text) {
    rp_error err;
    int32_t *tokens;
    size_t n;
    if (rp_tokenize(m, text, strlen(text), false, false, &tokens, &n, &err)) die("tokenize", &err);
    rp_free(tokens);
    return n;
}

/* Appends words, then letters, until the text has at least n tokens: with most vocabularies exactly n. */
static void append_words(const rp_model *m, char **text, size_t *used, size_t *cap, size_t n, unsigned *seed) {
    static const char *const words[] = {" river", " stone", " of", " the", " north", " is", " a", " lantern", " quiet", " seven"};
    size_t start = *used;
    for (size_t have = 0; have < n; have = count_tokens(m, *text + start)) {
        int count = n - have > 100 ? 8 : 1;
        for (int i = 0; i < count; i++) {
            *seed = *seed * 1664525u + 1013904223u;
            unsigned random = *seed >> 16;
            if (*used + 64 > *cap) *text = realloc(*text, *cap *= 2);
            if (n - have < 10) *used += (size_t)sprintf(*text + *used, "%c", "kxqz"[random % 4]);
            else *used += (size_t)sprintf(*text + *used, "%s", words[random % 10]);
        }
    }
}

/* A schema of n modules of about `tokens` tokens each, and a prompt that takes all of them, the last first, with fresh text. */
static void make_documents(const rp_model *m, int n, int tokens, int fresh, char **schema, char **prompt) {
    size_t cap = 1 << 16, used = 0;
    unsigned seed = 7;
    char *s = malloc(cap), *p;
    used += (size_t)sprintf(s, "<schema name=\"bench\">");
    for (int i = 0; i < n; i++) {
        used += (size_t)sprintf(s + used, "<module name=\"m%d\">", i);
        append_words(m, &s, &used, &cap, (size_t)tokens, &seed);
        used += (size_t)sprintf(s + used, "</module>");
    }
    sprintf(s + used, "</schema>");
    *schema = s;
    cap = 1 << 16;
    used = 0;
    p = malloc(cap);
    used += (size_t)sprintf(p, "<prompt schema=\"bench\">");
    for (int i = n - 1; i >= 0; i--) used += (size_t)sprintf(p + used, "<m%d/>", i);
    append_words(m, &p, &used, &cap, (size_t)fresh, &seed);
    sprintf(p + used, "</prompt>");
    *prompt = p;
}

/* ---- cells ---- */

static rp_engine *new_engine(rp_model *m, const settings *s, int32_t n_ctx) {
    rp_error err;
    rp_engine *e;
    char salt[32];
    snprintf(salt, sizeof(salt), "cell %d", n_cells++);
    rp_engine_options o = rp_engine_options_defaults();
    o.tenant = salt;
    o.n_threads = s->threads;
    o.n_ctx = n_ctx;
    o.state_budget_bytes = (uint64_t)4 << 30;
    if (rp_engine_new(&e, m, &o, &err)) die("engine", &err);
    return e;
}

static rp_result *run(rp_engine *e, const char *prompt, rp_reuse reuse, int max_tokens) {
    rp_error err;
    rp_result *r;
    rp_request q = rp_request_defaults();
    q.prompt = prompt;
    q.reuse = reuse;
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    if (!prompt) q.text = "";
    if (rp_engine_run(e, &q, &r, &err)) die("run", &err);
    return r;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct reuse_times {
    double ttft_ms, plan_ms, encode_ms;
    uint64_t bytes_copied;
    int cached, fresh;
} reuse_times;

static reuse_times measure_reuse(rp_model *m, const settings *s, int modules, int tokens, double *off_ms) {
    char *schema, *prompt;
    rp_error err;
    double ttft[64], plan[64];
    reuse_times t = {0};
    make_documents(m, modules, tokens, s->fresh, &schema, &prompt);
    rp_engine *e = new_engine(m, s, 0);
    if (rp_schema_parse(e, schema, strlen(schema), "bench", NULL, NULL, NULL, &err)) die("schema", &err);
    rp_result *first = run(e, prompt, RP_REUSE_ON, 1);
    t.encode_ms = first->timings.encode_ms;
    rp_result_free(first);
    for (int i = 0; i < s->runs; i++) {
        rp_result *r = run(e, prompt, RP_REUSE_ON, 1);
        ttft[i] = r->timings.ttft_ms;
        plan[i] = r->timings.plan_ms;
        t.bytes_copied += r->bytes_copied;
        t.cached = r->cached_tokens;
        t.fresh = r->fresh_tokens;
        rp_result_free(r);
    }
    if (off_ms) {
        rp_result *r = run(e, prompt, RP_REUSE_EXACT, 1);
        *off_ms = r->timings.ttft_ms;
        rp_result_free(r);
    }
    qsort(ttft, (size_t)s->runs, sizeof(double), compare_double);
    qsort(plan, (size_t)s->runs, sizeof(double), compare_double);
    t.ttft_ms = ttft[s->runs / 2];
    t.plan_ms = plan[s->runs / 2];
    rp_engine_free(e);
    free(schema);
    free(prompt);
    return t;
}

/* ---- bandwidth ---- */

typedef struct reader {
    const uint64_t *data;
    size_t n;
    uint64_t sum;
} reader;

static void *read_all(void *arg) {
    reader *r = arg;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= r->n; i += 4) a += r->data[i], b += r->data[i + 1], c += r->data[i + 2], d += r->data[i + 3];
    r->sum = a + b + c + d;
    return NULL;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* GB/s that `threads` threads read together, best of five passes over 512 MiB. */
static double read_bandwidth(int threads) {
    size_t n = (size_t)64 << 20; /* of 8 bytes */
    uint64_t *data = malloc(n * 8);
    pthread_t ids[64];
    reader readers[64];
    double best = 0;
    memset(data, 1, n * 8);
    for (int pass = 0; pass < 5; pass++) {
        double start = now_s();
        for (int i = 0; i < threads; i++) {
            readers[i] = (reader){data + n / (size_t)threads * (size_t)i, n / (size_t)threads, 0};
            pthread_create(&ids[i], NULL, read_all, &readers[i]);
        }
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        double rate = (double)n * 8 / (now_s() - start) / 1e9;
        if (rate > best) best = rate;
    }
    free(data);
    return best;
}

static void measure_decode(rp_model *m, const settings *s) {
    rp_model_info info;
    rp_model_describe(m, &info);
    rp_engine *e = new_engine(m, s, 256);
    double rates[64], bandwidth = read_bandwidth(s->threads);
    for (int i = 0; i < s->runs; i++) {
        rp_result *r = run(e, NULL, RP_REUSE_ON, 24);
        rates[i] = r->timings.decode_tokens_per_second;
        rp_result_free(r);
    }
    qsort(rates, (size_t)s->runs, sizeof(double), compare_double);
    /* the embedding is looked up, not read, for a token: one row of it */
    double embedding = (double)info.weight_bytes * info.n_embd * info.n_vocab / (double)info.parameters;
    double floor_rate = bandwidth * 1e9 / ((double)info.weight_bytes - embedding);
    printf("decode, short context        %10.2f tokens/s  = %.0f %% of %.2f that %.1f GB/s of reads allow\n", rates[s->runs / 2],
           100 * rates[s->runs / 2] / floor_rate, floor_rate, bandwidth);
    rp_engine_free(e);
}

/* ---- main ---- */

static int number_after(int argc, char **argv, const char *name, int fallback) {
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return atoi(argv[i + 1]);
    return fallback;
}

int main(int argc, char **argv) {
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: bench_reuse MODEL.gguf [--tokens N] [--modules N] [--fresh N] [--threads N] [--runs N]\n");
        return 2;
    }
    settings s = {argv[1], number_after(argc, argv, "--tokens", 1000), number_after(argc, argv, "--modules", 5),
                  number_after(argc, argv, "--fresh", 20), number_after(argc, argv, "--threads", 2),
                  number_after(argc, argv, "--runs", 5)};
    if (s.tokens < 1 || s.modules < 1 || s.fresh < 1 || s.threads < 1 || s.threads > 64 || s.runs < 1 || s.runs > 64) {
        fprintf(stderr, "bench_reuse: numbers are 1 or more; threads and runs at most 64\n");
        return 2;
    }
    rp_error err;
    rp_model *m;
    if (rp_model_open(&m, s.model, NULL, &err)) die("model", &err);
    rp_model_info info;
    rp_model_describe(m, &info);
    printf("%s: %s, %.2f G parameters, %s, %.2f GB; %d threads; medians of %d\n\n", s.model, info.name, (double)info.parameters / 1e9,
           info.weights, (double)info.weight_bytes / 1e9, s.threads, s.runs);
    measure_decode(m, &s);
    fflush(stdout);
    reuse_times plan = measure_reuse(m, &s, 40, 8, NULL);
    printf("planning 40 modules          %10.3f ms         bytes copied while composing: %llu\n", plan.plan_ms,
           (unsigned long long)plan.bytes_copied);
    fflush(stdout);
    double full_ms;
    reuse_times t = measure_reuse(m, &s, s.modules, s.tokens, &full_ms);
    printf("first token with reuse       %10.1f ms         %d tokens cached in %d modules, %d fresh; planned in %.3f ms, %llu bytes copied\n",
           t.ttft_ms, t.cached, s.modules, t.fresh, t.plan_ms, (unsigned long long)t.bytes_copied);
    printf("first token without reuse    %10.1f ms         a full prefill (--reuse exact) of the same %d tokens\n", full_ms,
           t.cached + t.fresh);
    printf("ratio                        %10.1f\n", full_ms / t.ttft_ms);
    printf("computing the modules once   %10.1f ms\n", t.encode_ms);
    rp_model_close(m);
    return 0;
}
