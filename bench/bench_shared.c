/* SPDX-License-Identifier: Apache-2.0 */
/* bench_shared.c: decode of many sequences after the same modules, against the same number with copies of their own.
 *
 *   bench_shared MODEL.gguf [--threads N] [--tokens N] [--rounds N] [--least N] [--most N] [--memory GB]
 *
 * n sequences, from --least (1) to --most (32), doubled each time, follow --tokens (4,000) tokens of KV and add one row
 * each per step. Shared: all contexts view the same spans. Copies: each views its own; the series ends where they
 * exceed --memory GB (8). The KV is random, because its content does not affect speed and computing it would take
 * hours. The two take turns; medians of all rounds.
 *
 * A row of the table: tokens/s, their ratio, the KV bytes of both, and the lower bound of a step's time on this
 * machine: the larger of the time to read the weights and the time of their products, plus the larger of the time to
 * read the KV (once, or n times) and the time of attention's sums, by the bandwidth and multiplication rate measured at
 * that moment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/half.h"
#include "backend/backend_registry.h"
#include "model/forward.h"
#include "support.h"
#include "support/tiny_random.h"

#define MAX_SEQUENCES 32
#define MAX_ROUNDS 64
#define STEP_ROWS 16    /* minimum per round: few sequences take more steps */
#define OWN_TOKENS 1024 /* capacity of a sequence for new tokens */

typedef struct bench {
    rp_model *model;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    kv_context modules[1 + MAX_SEQUENCES]; /* the shared one, then the copies */
    float *logits;
    tiny_random random;
    int threads, tokens, rounds, least, most;
    double memory_gb;
} bench;

/* One way to hold the modules: the contexts of n sequences. */
typedef struct subject {
    kv_context contexts[MAX_SEQUENCES];
    int32_t pos; /* of the next token of each */
    double speed[MAX_ROUNDS];
} subject;

static void must(int rc, const rp_error *err) {
    if (rc) bench_die("bench_shared", err);
}

/* ---- KV ---- */

/* Small random halves. All copies use the same random bytes, from different offsets. */
static void fill_block(bench *b, void *block) {
    enum { STRETCH = 1 << 16 };
    static uint16_t stretch[STRETCH];
    if (stretch[0] == 0)
        for (int i = 0; i < STRETCH; i++) stretch[i] = half_from_float(0.3f * tiny_random_normal(&b->random)) | 1;
    size_t left = kv_pool_block_bytes(b->pool) / sizeof(uint16_t);
    for (uint16_t *at = block; left > 0;) {
        size_t first = tiny_random_below(&b->random, STRETCH / 2), n = BASE_MIN(left, STRETCH - first);
        memcpy(at, stretch + first, n * sizeof(uint16_t));
        at += n;
        left -= n;
    }
}

/* Sealed spans of b->tokens tokens at positions from 0 on. */
static void make_modules(bench *b, kv_context *c) {
    rp_error err;
    kv_span *span;
    int32_t slot;
    kv_context_init(c, b->pool);
    for (int32_t i = 0; i < b->tokens; i++) must(kv_context_append(c, i, &span, &slot, &err), &err);
    kv_context_close(c);
    for (size_t v = 0; v < c->n_views; v++) {
        base_key key = {{(uint8_t)v}};
        span = c->views[v].span;
        int32_t n_blocks = (kv_span_tokens(span) + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS;
        for (int32_t block = 0; block < n_blocks; block++)
            for (int32_t l = 0; l < kv_pool_shape(b->pool)->n_layers; l++)
                fill_block(b, kv_span_in_place(span, l, block));
        kv_span_seal(span, &key);
    }
}

static uint64_t states_of(const kv_context *c) {
    uint64_t bytes = 0;
    for (size_t v = 0; v < c->n_views; v++) bytes += kv_span_bytes(c->views[v].span);
    return bytes;
}

static void open_subject(bench *b, subject *s, int n, bool shared) {
    rp_error err;
    *s = (subject){.pos = b->tokens};
    for (int i = 0; i < n; i++) {
        kv_context *modules = &b->modules[shared ? 0 : 1 + i];
        if (modules->n_views == 0) make_modules(b, modules);
        kv_context_init(&s->contexts[i], b->pool);
        for (size_t v = 0; v < modules->n_views; v++)
            must(kv_context_add(&s->contexts[i], modules->views[v].span, 0, NULL, &err), &err);
    }
}

static void close_subject(subject *s, int n) {
    for (int i = 0; i < n; i++) kv_context_clear(&s->contexts[i]);
}

/* ---- steps ---- */

/* Tokens/s of n sequences over some steps. */
static double decode(bench *b, subject *s, int n, int n_steps) {
    rp_error err;
    model_row rows[MAX_SEQUENCES];
    const kv_context *contexts[MAX_SEQUENCES];
    double begin = bench_now_s();
    for (int step = 0; step < n_steps; step++, s->pos++) {
        for (int i = 0; i < n; i++) {
            int32_t token = (int32_t)tiny_random_below(&b->random, (uint64_t)b->model->net.hp.n_vocab);
            rows[i] = (model_row){.token = token, .pos = s->pos, .context = i, .wants_logits = true};
            must(kv_context_append(&s->contexts[i], s->pos, &rows[i].span, &rows[i].slot, &err), &err);
            contexts[i] = &s->contexts[i];
        }
        must(model_forward_step(b->forward,
                                &(model_step){.rows = rows, .n_rows = n, .contexts = contexts, .n_contexts = n},
                                b->logits, &err),
             &err);
    }
    return n * n_steps / (bench_now_s() - begin);
}

/* Both subjects in turns; copies may be NULL. The first round is a warm-up. */
static void measure(bench *b, subject *shared, subject *copies, int n) {
    int n_steps = BASE_MAX(1, STEP_ROWS / n);
    for (int r = -1; r < b->rounds; r++) {
        subject *first = r % 2 ? copies : shared, *second = r % 2 ? shared : copies;
        double a = first ? decode(b, first, n, n_steps) : 0, c = second ? decode(b, second, n, n_steps) : 0;
        if (r >= 0 && first) first->speed[r] = a;
        if (r >= 0 && second) second->speed[r] = c;
    }
}

/* ---- limits of the machine ---- */

typedef struct limits {
    double read_gbs, int8_gops, f32_gops;
    double weight_bytes, products; /* of a step, and of one of its rows */
} limits;

static limits weigh_model(const bench *b) {
    limits l = {0};
    for (int32_t i = 0; i < b->model->net.n_matrices; i++) {
        const model_weight *w = b->model->net.matrices[i];
        if (!w->data) continue;
        l.weight_bytes += (double)kernel_row_bytes(w->type, w->n_in) * (double)(w->n_out * w->n_slices);
        l.products += 2.0 * (double)w->n_in * (double)(w->n_out * w->n_slices);
    }
    return l;
}

static void measure_machine(const bench *b, limits *l) {
    l->read_gbs = bench_read_bandwidth(b->threads);
    l->int8_gops = bench_multiply_peak(BENCH_INT8, b->threads);
    l->f32_gops = bench_multiply_peak(BENCH_F32, b->threads);
}

/* Milliseconds of a step of n rows that reads the KV `times` times. */
static double least_ms(const bench *b, const limits *l, int n, double kv_bytes, int times) {
    const model_hparams *hp = &b->model->net.hp;
    double sums = 2.0 * n * b->tokens * hp->n_layers * hp->n_heads * (hp->key_dim + hp->value_dim);
    double products_ms = n * l->products / l->int8_gops / 1e6, sums_ms = sums / l->f32_gops / 1e6;
    double weights_ms = l->weight_bytes / l->read_gbs / 1e6, states_ms = kv_bytes * times / l->read_gbs / 1e6;
    return BASE_MAX(products_ms, weights_ms) + BASE_MAX(states_ms, sums_ms);
}

static void report(bench *b, const limits *l, subject *shared, subject *copies, int n) {
    double one = (double)states_of(&b->modules[0]), own = (double)states_of(&shared->contexts[0]) - one;
    double least = least_ms(b, l, n, one, 1), least_copies = least_ms(b, l, n, one, n);
    double speed = bench_median(shared->speed, (size_t)b->rounds);
    printf("| %d | %.1f | ", n, speed);
    if (copies) {
        double with_copies = bench_median(copies->speed, (size_t)b->rounds);
        printf("%.1f | %.2f x | %.0f, %.0f", with_copies, speed / with_copies, (one + n * own) / 1e6,
               n * (one + own) / 1e6);
    } else printf(" | | %.0f, %.0f", (one + n * own) / 1e6, n * (one + own) / 1e6);
    printf(" | %.1f, %.1f | %.2f x | %.0f %% | %.1f, %.0f, %.0f |\n", least, least_copies, least_copies / least,
           100 * least * speed / n / 1e3, l->read_gbs, l->int8_gops, l->f32_gops);
    fflush(stdout);
}

/* ---- main ---- */

static void open_bench(bench *b, const char *path) {
    rp_error err;
    must(model_open(&b->model, path, NULL, &err), &err);
    kv_shape shape = model_kv_shape(b->model, RP_KV_F16);
    base_cpu_level level;
    must(base_cpu_detect(&level, &err), &err);
    backend_options o = {.shape = shape,
                         .level = level,
                         .n_ctx = b->tokens + OWN_TOKENS,
                         .n_threads = b->threads,
                         .max_rows = MAX_SEQUENCES};
    must(backend_open(&b->backend, "cpu", &b->model->net, &o, &err), &err);
    must(b->backend->ops->prepare(b->backend, NULL, NULL, &err), &err);
    must(model_forward_new(&b->forward, b->model, b->backend, MAX_SEQUENCES, MAX_SEQUENCES, &err), &err);
    must(kv_pool_new(&b->pool, &shape, UINT64_MAX / 2, NULL, &err), &err);
    b->logits = base_alloc(sizeof(float) * MAX_SEQUENCES * (size_t)b->model->net.hp.n_vocab);
    if (!b->logits) bench_die("out of memory", NULL);
}

static void close_bench(bench *b) {
    for (int i = 0; i <= MAX_SEQUENCES; i++) kv_context_clear(&b->modules[i]);
    model_forward_free(b->forward);
    kv_pool_free(b->pool);
    b->backend->ops->free(b->backend);
    model_close(b->model);
    base_free(b->logits);
}

static double number_after(int argc, char **argv, const char *name, double fallback) {
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return atof(argv[i + 1]);
    return fallback;
}

int main(int argc, char **argv) {
    static bench b = {.random = {7}};
    static subject shared, copies;
    bench_name = "bench_shared";
    b.threads = (int)number_after(argc, argv, "--threads", 2);
    b.tokens = (int)number_after(argc, argv, "--tokens", 4000);
    b.rounds = (int)number_after(argc, argv, "--rounds", 7);
    b.least = (int)number_after(argc, argv, "--least", 1);
    b.most = (int)number_after(argc, argv, "--most", MAX_SEQUENCES);
    b.memory_gb = number_after(argc, argv, "--memory", 8);
    if (argc < 2 || argv[1][0] == '-' || b.threads < 1 || b.threads > BENCH_MAX_THREADS || b.tokens < 1 ||
        b.rounds < 1 || b.rounds > MAX_ROUNDS || b.least < 1 || b.most < b.least || b.most > MAX_SEQUENCES) {
        fprintf(stderr, "usage: bench_shared MODEL.gguf [--threads N] [--tokens N] [--rounds N] [--least N] [--most N] "
                        "[--memory GB]\n");
        return 2;
    }
    open_bench(&b, argv[1]);
    limits l = weigh_model(&b);
    double token_bytes = (double)kv_shape_token_bytes(kv_pool_shape(b.pool));
    printf("%d threads; weights %.0f MB, %.2f Gop a row; states %.1f KB a token\n\n", b.threads, l.weight_bytes / 1e6,
           l.products / 1e9, token_bytes / 1e3);
    printf("| sequences | shared, tokens/s | copies | ratio | states, MB | least of a step, ms | its ratio | shared: "
           "share of it | "
           "GB/s, Gop/s of int8, f32 |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int n = b.least; n <= b.most; n *= 2) {
        bool has_copies = n * b.tokens * token_bytes <= b.memory_gb * 1e9;
        open_subject(&b, &shared, n, true);
        if (has_copies) open_subject(&b, &copies, n, false);
        measure_machine(&b, &l); /* the machine's speed may change from row to row */
        measure(&b, &shared, has_copies ? &copies : NULL, n);
        report(&b, &l, &shared, has_copies ? &copies : NULL, n);
        close_subject(&shared, n);
        if (has_copies) close_subject(&copies, n);
    }
    close_bench(&b);
    return 0;
}
