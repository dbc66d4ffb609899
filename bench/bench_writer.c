/* SPDX-License-Identifier: Apache-2.0 */
/* bench_writer.c: inter-token latency of running answers while KV is written to disk, against no writes.
 *
 *   bench_writer MODEL.gguf [--tokens N] [--rounds N] [--threads N] [--dir DIR]
 *
 * In each of --rounds (20) rounds an engine without a store answers with --tokens (64) tokens three times, in changing
 * order:
 *
 *   quiet      no writes
 *   busy       a writer in this process, as in a store, with its queue always full: spans of the model's shape, as
 *              after another client's long prompt
 *   hasty      the same, without the writer's pauses during computation: the effect of the pauses
 *
 * The writers are separate disk tiers, fed by a thread that sleeps until something is written: the effect on answers is
 * theirs alone, while in an engine with a store the KV would have to be computed first. Medians and 99th percentiles of
 * all inter-token latencies, ratios by round.
 */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "store/disk/disk_tier.h"
#include "support.h"
#include "support/experiments.h"

#define MAX_ROUNDS 200
#define MAX_TOKENS 512
#define N_SPANS 16                       /* written repeatedly */
#define QUEUE_BYTES ((uint64_t)64 << 20) /* as in span_write_back.c, */
#define LEAST_SHARE 32                   /* likewise: of a processor, 1/LEAST_SHARE */

typedef enum subject { QUIET,
                       BUSY,
                       HASTY,
                       SUBJECTS } subject;
static const char *const names[] = {"quiet", "busy", "hasty"};

typedef struct writer {
    char dir[256];
    kv_pool *pool;
    kv_span *spans[N_SPANS];
    record_format format;
    store_tier *tier;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool rests;
    bool wanted, idle, closing; /* under the lock */
    int next;
    uint64_t bytes; /* written; owned by the thread */
    double seconds;
} writer;

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    int tokens, rounds, threads;
    writer writers[SUBJECTS];
    double gaps[SUBJECTS][MAX_ROUNDS * MAX_TOKENS], round_gaps[MAX_TOKENS];
    double medians[SUBJECTS][MAX_ROUNDS];
    size_t n_gaps[SUBJECTS];
} bench;

/* ---- the writer ---- */

static void must(int rc, const char *what, const rp_error *err) {
    if (rc) bench_die(what, err);
}

static base_key key_of(int i) {
    base_key k;
    base_hash h;
    base_hash_init(&h, "bench");
    base_hash_u64(&h, (uint64_t)i);
    base_hash_final(&h, &k);
    return k;
}

static kv_span *make_span(kv_pool *pool, const kv_shape *shape, int number) {
    kv_span *s;
    rp_error err;
    int32_t slot;
    base_key key = key_of(number);
    uint64_t random = (uint64_t)number + 1;
    must(kv_span_new(&s, pool, 0, &err), "a span", &err);
    for (int i = 0; i < KV_SPAN_TOKENS; i++) must(kv_span_append(s, &slot, &err), "a span", &err);
    for (int32_t layer = 0; layer < shape->n_layers; layer++)
        for (int b = 0; b < KV_SPAN_BLOCKS; b++) {
            uint64_t *words = kv_span_in_place(s, layer, b);
            for (size_t i = 0; i < kv_pool_block_bytes(pool) / sizeof(*words); i++)
                words[i] = random = random * 6364136223846793005u + 1442695040888963407u;
        }
    kv_span_seal(s, &key);
    return s;
}

static void write_next(writer *w) {
    static const int32_t tokens[KV_SPAN_TOKENS];
    kv_span *span = w->spans[w->next];
    const record about = {.kind = RECORD_MODULE, .n_tokens = KV_SPAN_TOKENS, .tokens = tokens, .label = "bench"};
    record_row *row = record_row_new(&about, span, &w->format.fingerprint);
    if (!row) bench_die("a row", NULL);
    w->next = (w->next + 1) % N_SPANS;
    must(tier_write(w->tier, row, span, UINT64_MAX), "write", NULL);
}

static void take_events(writer *w) {
    tier_event event;
    while (tier_next(w->tier, &event)) {
        if (event.failed) bench_die("write", &event.err);
        w->bytes += event.bytes;
        kv_span_unref(event.span);
    }
}

/* Keeps the queue full while wanted; otherwise lets it drain. */
static void *feed(void *arg) {
    writer *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        if (!w->wanted) {
            w->idle = true;
            pthread_cond_broadcast(&w->changed);
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        w->idle = false;
        pthread_mutex_unlock(&w->lock);
        double start = bench_now_s();
        while (w->tier->queued_bytes + kv_span_bytes(w->spans[0]) <= QUEUE_BYTES) write_next(w);
        tier_wait(w->tier);
        take_events(w);
        w->seconds += bench_now_s() - start;
        pthread_mutex_lock(&w->lock);
        while (!w->wanted && tier_measure(w->tier).is_busy) { /* the rest is not counted */
            pthread_mutex_unlock(&w->lock);
            tier_wait(w->tier);
            take_events(w);
            pthread_mutex_lock(&w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void nothing(void *user) { (void)user; }
static int no_row(void *user, const record_row *row, rp_error *err) {
    (void)user, (void)row, (void)err;
    return RP_OK;
}

static void open_writer(writer *w, const char *dir, const char *name, const kv_shape *shape, bool rests) {
    rp_error err;
    snprintf(w->dir, sizeof(w->dir), "%s/%s", dir, name);
    must(kv_pool_new(&w->pool, shape, UINT64_C(1) << 32, NULL, &err), "a pool", &err);
    for (int i = 0; i < N_SPANS; i++) w->spans[i] = make_span(w->pool, shape, i);
    w->format = (record_format){.fingerprint = key_of(-1), .shape = *shape};
    const disk_tier_options o = {.dir = w->dir};
    const tier_terms terms = {
        .adds = true, .budget_bytes = UINT64_C(1) << 40, .format = &w->format, .notify = nothing, .fn = no_row};
    must(disk_tier_open(&w->tier, &o, &terms, &err), "a store", &err);
    w->rests = rests;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (pthread_create(&w->thread, NULL, feed, w) != 0) bench_die("a thread", NULL);
}

/* off: returns after all is written. */
static void switch_writer(writer *w, bool on) {
    tier_set_share(w->tier, on && w->rests ? LEAST_SHARE : 1);
    pthread_mutex_lock(&w->lock);
    w->wanted = on;
    w->idle = false;
    pthread_cond_broadcast(&w->changed);
    while (!on && !w->idle) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void close_writer(writer *w) {
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    tier_close(w->tier);
    for (int i = 0; i < N_SPANS; i++) kv_span_unref(w->spans[i]);
    kv_pool_free(w->pool);
}

/* ---- answers ---- */

typedef struct watch {
    bench *b;
    writer *writer;
    int n;
    double last_s;
} watch;

static bool on_token(void *user, const rp_token *token) {
    watch *w = user;
    double now = bench_now_s();
    (void)token;
    if (w->n > 0) w->b->round_gaps[w->n - 1] = (now - w->last_s) * 1e3;
    w->last_s = now;
    w->n++;
    return true;
}

static void answer(bench *b, subject s, int round) {
    rp_request q = rp_request_defaults();
    rp_result *r;
    rp_error err;
    watch w = {.b = b};
    q.prompt = rp_prompt_text("Once");
    q.experiment = &experiment_no_prefix;
    q.max_tokens = b->tokens + 1;
    q.ignore_eos = true;
    q.on_token = on_token;
    q.user = &w;
    if (s != QUIET) switch_writer(&b->writers[s], true);
    must(rp_engine_run(b->engine, &q, &r, &err), "run", &err);
    if (s != QUIET) switch_writer(&b->writers[s], false);
    rp_result_free(r);
    memcpy(b->gaps[s] + b->n_gaps[s], b->round_gaps, (size_t)b->tokens * sizeof(double));
    b->n_gaps[s] += (size_t)b->tokens;
    b->medians[s][round] = bench_median(b->round_gaps, (size_t)b->tokens);
}

/* ---- results ---- */

static double at(const double *sorted, size_t n, double share) { return sorted[(size_t)(share * (double)(n - 1))]; }

static void report(bench *b) {
    double median[SUBJECTS], p99[SUBJECTS];
    printf("Time between tokens, ms, %d tokens a round, %d rounds, %d threads\n\n", b->tokens, b->rounds, b->threads);
    printf("| writer | median | p99 | longest | median / quiet | median of the rounds' ratios | p99 / quiet | written "
           "|\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int s = 0; s < SUBJECTS; s++) {
        size_t n = b->n_gaps[s];
        double ratios[MAX_ROUNDS];
        for (int i = 0; i < b->rounds; i++) ratios[i] = b->medians[s][i] / b->medians[QUIET][i];
        median[s] = bench_median(b->gaps[s], n); /* sorts them */
        p99[s] = at(b->gaps[s], n, 0.99);
        printf("| %s | %.2f | %.2f | %.1f | %.3f | %.3f | %.3f |", names[s], median[s], p99[s], b->gaps[s][n - 1],
               median[s] / median[QUIET], bench_median(ratios, (size_t)b->rounds), p99[s] / p99[QUIET]);
        if (s == QUIET) printf(" - |\n");
        else printf(" %.0f MB/s |\n", (double)b->writers[s].bytes / b->writers[s].seconds / 1e6);
    }
    bool reached = median[BUSY] <= 1.05 * median[QUIET] && p99[BUSY] <= 1.05 * p99[QUIET];
    printf("\nTarget: busy within 5 %% of quiet, median and p99: %s.\n", reached ? "reached" : "missed");
}

/* ---- main ---- */

static void open_engine(bench *b) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err;
    o.n_threads = b->threads;
    o.n_ctx = 2 * MAX_TOKENS;
    must(rp_engine_new(&b->engine, b->model, &o, &err), "engine", &err);
    must(rp_engine_prepare(b->engine, NULL, NULL, &err), "prepare", &err);
}

int main(int argc, char **argv) {
    static const subject orders[6][SUBJECTS] = {
        {QUIET, BUSY, HASTY},
        {BUSY, QUIET, HASTY},
        {HASTY, QUIET, BUSY},
        {HASTY, BUSY, QUIET},
        {QUIET, HASTY, BUSY},
        {BUSY, HASTY, QUIET},
    };
    static bench b;
    char own[] = "bench-writer-XXXXXX";
    rp_error err;
    bench_name = "bench_writer";
    b.tokens = bench_number_after(argc, argv, "--tokens", 64);
    b.rounds = bench_number_after(argc, argv, "--rounds", 20);
    b.threads = bench_number_after(argc, argv, "--threads", 2);
    if (argc < 2 || argv[1][0] == '-' || b.tokens < 2 || b.tokens > MAX_TOKENS || b.rounds < 1 ||
        b.rounds > MAX_ROUNDS || b.threads < 1) {
        fprintf(
            stderr,
            "usage: bench_writer MODEL.gguf [--tokens N, up to %d] [--rounds N, up to %d] [--threads N] [--dir DIR]\n",
            MAX_TOKENS, MAX_ROUNDS);
        return 2;
    }
    const char *dir = bench_text_after(argc, argv, "--dir", NULL);
    bool is_own = !dir;
    if (is_own && !(dir = mkdtemp(own))) bench_die("a folder", NULL);
    must(rp_model_open(&b.model, argv[1], NULL, &err), "model", &err);
    const kv_shape shape = model_kv_shape(b.model, RP_KV_F16);
    open_engine(&b);
    for (int s = BUSY; s < SUBJECTS; s++) open_writer(&b.writers[s], dir, names[s], &shape, s == BUSY);
    for (int i = 0; i < b.rounds; i++)
        for (int k = 0; k < SUBJECTS; k++) answer(&b, orders[i % 6][k], i);
    report(&b);
    for (int s = BUSY; s < SUBJECTS; s++) close_writer(&b.writers[s]);
    rp_engine_free(b.engine);
    rp_model_close(b.model);
    if (is_own) bench_folder_remove(dir);
    return 0;
}
