/* SPDX-License-Identifier: Apache-2.0 */
/* bench_formats.c: KV formats against each other: steps over cached KV, and a prefill without any.
 *
 *   bench_formats MODEL.gguf [--threads N] [--rounds N] [--formats f16,int8] [--cell NAME]
 *
 * Every format has a backend and a pool of its own and takes its turn in each round; medians of all rounds, and the
 * median of the rounds' ratios to the first format. The cached KV is random, because its content does not affect speed
 * and computing it would take hours. Attention is timed inside the step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "model/forward.h"
#include "support.h"
#include "support/tiny_random.h"

#define MAX_ROUNDS 64
#define MAX_ROWS 256
#define MAX_CONTEXTS 16
#define MAX_CACHED 8192
#define CHUNK 256 /* rows of a step of a prefill */

typedef struct cell {
    const char *name, *text;
    int32_t cached, n_contexts, n_rows; /* n_rows: of each context */
    int n_steps;                        /* of a round; a prefill takes n_rows in chunks instead */
} cell;

static const cell cells[] = {
    {"first-20", "first token of 20 tokens after 5,000", 5000, 1, 20, 2},
    {"decode-1000", "decode after 1,000", 1000, 1, 1, 16},
    {"decode-8192", "decode after 8,192", MAX_CACHED, 1, 1, 16},
    {"shared-16", "decode of 16 sequences over the same 4,000", 4000, 16, 1, 4},
    {"prefill-512", "prefill of 512", 0, 1, 512, 1},
    {"prefill-2048", "prefill of 2,048", 0, 1, 2048, 1},
};

/* A format under test. */
typedef struct subject {
    rp_kv_format format;
    backend *backend;
    backend_ops ops; /* the backend's, with attention timed */
    void (*attend)(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
    double attend_s;
    model_forward *forward;
    kv_pool *pool;
    kv_context cached, contexts[MAX_CONTEXTS];
    int32_t pos;
    double step_ms[MAX_ROUNDS], attend_ms[MAX_ROUNDS];
} subject;

typedef struct bench {
    rp_model *model;
    subject subjects[RP_N_KV_FORMATS];
    int n_subjects, threads, rounds;
    float *logits;
    tiny_random random;
} bench;

static void must(int rc, const rp_error *err) {
    if (rc) bench_die("bench_formats", err);
}

/* ---- attention's share ---- */

static subject *timed[RP_N_KV_FORMATS];

static void timed_attend(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    subject *s = NULL;
    for (int i = 0; i < RP_N_KV_FORMATS; i++)
        if (timed[i] && timed[i]->backend == b) s = timed[i];
    double begin = bench_now_s();
    s->attend(b, layer, queries, dst);
    s->attend_s += bench_now_s() - begin;
}

/* ---- KV ---- */

/* Elements of a normal distribution, stored by the format's kernels. */
static void fill_block(bench *b, const kv_layer *l, const kernel_table *k, void *block) {
    float x[1024];
    for (int32_t i = 0; i < 2 * l->n_heads * KV_BLOCK_SLOTS; i++) {
        int32_t slot = i % KV_BLOCK_SLOTS, head = i / (2 * KV_BLOCK_SLOTS);
        bool is_key = i / KV_BLOCK_SLOTS % 2 == 0;
        int32_t dim = is_key ? l->key_dim : l->value_dim;
        if (dim > 1024) bench_die("heads of more than 1,024 dimensions", NULL);
        for (int32_t d = 0; d < dim; d++) x[d] = 0.3f * tiny_random_normal(&b->random);
        void *to = (char *)block + (is_key ? kv_block_keys_at(l, head) : kv_block_values_at(l, head));
        switch (l->format) {
        case RP_KV_F32: (is_key ? k->store_key_f32 : k->store_value_f32)(x, dim, to, slot); break;
        case RP_KV_INT8: (is_key ? k->store_key_int8 : k->store_value_int8)(x, dim, to, slot); break;
        default: (is_key ? k->store_key_f16 : k->store_value_f16)(x, dim, to, slot);
        }
    }
}

/* In the subject's format, as a module is encoded when all of its tokens were computed. */
static void encode_views(subject *s) {
    rp_error err;
    for (size_t v = 0; v < s->cached.n_views && kv_format_is_encoded(s->format); v++) {
        kv_span *encoded;
        must(kv_span_new_like(&encoded, s->cached.views[v].span, s->format, &err), &err);
        must(s->ops.encode(s->backend, s->cached.views[v].span, encoded, &err), &err);
        kv_context_replace(&s->cached, v, encoded);
    }
}

/* Sealed spans of MAX_CACHED tokens. Every block has the content of one of a few. */
static void make_cached(bench *b, subject *s) {
    enum { SAMPLES = 8 };
    const kv_shape *shape = kv_pool_shape(s->pool);
    const size_t bytes = kv_pool_block_bytes(s->pool);
    char *samples = base_alloc(SAMPLES * bytes);
    rp_error err;
    if (!samples) bench_die("out of memory", NULL);
    const kv_layer *layer = &kv_pool_plan(s->pool, shape->format)->layers[0];
    for (int i = 0; i < SAMPLES; i++) fill_block(b, layer, &((cpu_backend *)s->backend)->kernels, samples + i * bytes);
    kv_context_init(&s->cached, s->pool);
    for (int32_t i = 0; i < MAX_CACHED; i++) {
        kv_span *span;
        int32_t slot;
        must(kv_context_append(&s->cached, i, &span, &slot, &err), &err);
    }
    kv_context_close(&s->cached);
    for (size_t v = 0; v < s->cached.n_views; v++) {
        kv_span *span = s->cached.views[v].span;
        for (int32_t block = 0; block * KV_BLOCK_SLOTS < kv_span_tokens(span); block++)
            for (int32_t l = 0; l < shape->n_layers; l++)
                memcpy(kv_span_in_place(span, l, block), samples + tiny_random_below(&b->random, SAMPLES) * bytes,
                       bytes);
    }
    encode_views(s);
    for (size_t v = 0; v < s->cached.n_views; v++)
        kv_span_seal(s->cached.views[v].span, &(base_key){{(uint8_t)v, (uint8_t)s->format}});
    base_free(samples);
}

static void open_subject(bench *b, subject *s, rp_kv_format format) {
    rp_error err;
    const rp_kv_format text = kv_format_is_encoded(format) ? RP_KV_INT8 : format;
    kv_shape shape = model_kv_shape(b->model, text);
    base_cpu_level level;
    s->format = format;
    must(base_cpu_detect(&level, &err), &err);
    backend_options o = {
        .shape = shape, .level = level, .n_ctx = 2 * MAX_CACHED, .n_threads = b->threads, .max_rows = MAX_ROWS};
    must(backend_open(&s->backend, "cpu", &b->model->net, &o, &err), &err);
    must(s->backend->ops->prepare(s->backend, NULL, NULL, &err), &err);
    s->ops = *s->backend->ops;
    s->attend = s->ops.attend;
    s->ops.attend = timed_attend;
    s->backend->ops = &s->ops;
    timed[format] = s;
    must(model_forward_new(&s->forward, b->model, s->backend, MAX_ROWS, MAX_CONTEXTS, &err), &err);
    must(kv_pool_new(&s->pool, &shape, UINT64_MAX / 2, NULL, &err), &err);
    make_cached(b, s);
}

static void close_subject(subject *s) {
    kv_context_clear(&s->cached);
    model_forward_free(s->forward);
    kv_pool_free(s->pool);
    s->backend->ops->free(s->backend);
}

/* ---- a round ---- */

static void open_contexts(subject *s, const cell *c) {
    rp_error err;
    s->pos = c->cached;
    for (int32_t i = 0; i < c->n_contexts; i++) {
        kv_context_init(&s->contexts[i], s->pool);
        for (int32_t v = 0, left = c->cached; left > 0; left -= kv_span_tokens(s->cached.views[v++].span)) {
            uint64_t mask[KV_SPAN_BLOCKS];
            kv_mask_first(mask, BASE_MIN(left, kv_span_tokens(s->cached.views[v].span)));
            must(kv_context_add(&s->contexts[i], s->cached.views[v].span, 0, mask, &err), &err);
        }
    }
}

/* A step of n rows of each context. */
static void run_step(bench *b, subject *s, const cell *c, int32_t n) {
    rp_error err;
    static model_row rows[MAX_ROWS];
    const kv_context *contexts[MAX_CONTEXTS];
    int32_t n_rows = 0;
    for (int32_t i = 0; i < c->n_contexts; i++) {
        contexts[i] = &s->contexts[i];
        for (int32_t k = 0; k < n; k++, n_rows++) {
            int32_t token = (int32_t)tiny_random_below(&b->random, (uint64_t)b->model->net.hp.n_vocab);
            rows[n_rows] = (model_row){.token = token, .pos = s->pos + k, .context = i, .wants_logits = k == n - 1};
            must(kv_context_append(&s->contexts[i], s->pos + k, &rows[n_rows].span, &rows[n_rows].slot, &err), &err);
        }
    }
    s->pos += n;
    must(model_forward_step(
             s->forward,
             &(model_step){.rows = rows, .n_rows = n_rows, .contexts = contexts, .n_contexts = c->n_contexts},
             b->logits, &err),
         &err);
}

static void run_round(bench *b, subject *s, const cell *c, int round) {
    open_contexts(s, c);
    s->attend_s = 0;
    double begin = bench_now_s();
    for (int step = 0; step < c->n_steps; step++)
        for (int32_t done = 0; done < c->n_rows; done += CHUNK) run_step(b, s, c, BASE_MIN(CHUNK, c->n_rows - done));
    double ms = (bench_now_s() - begin) * 1e3 / c->n_steps;
    if (round >= 0) s->step_ms[round] = ms;
    if (round >= 0) s->attend_ms[round] = s->attend_s * 1e3 / c->n_steps;
    for (int32_t i = 0; i < c->n_contexts; i++) kv_context_clear(&s->contexts[i]);
}

static double median_of_ratios(const double *base, const double *x, int n) {
    double ratios[MAX_ROUNDS];
    for (int i = 0; i < n; i++) ratios[i] = base[i] / x[i];
    return bench_median(ratios, (size_t)n);
}

static void run_cell(bench *b, const cell *c) {
    for (int round = -1; round < b->rounds; round++) /* the first is a warm-up */
        for (int i = 0; i < b->n_subjects; i++)
            run_round(b, &b->subjects[(i + BASE_MAX(round, 0)) % b->n_subjects], c, round);
    double ratio[RP_N_KV_FORMATS], attend_ratio[RP_N_KV_FORMATS];
    for (int i = 0; i < b->n_subjects; i++) {
        ratio[i] = median_of_ratios(b->subjects[0].step_ms, b->subjects[i].step_ms, b->rounds);
        attend_ratio[i] = median_of_ratios(b->subjects[0].attend_ms, b->subjects[i].attend_ms, b->rounds);
    }
    for (int i = 0; i < b->n_subjects; i++) {
        subject *s = &b->subjects[i];
        printf("| %s | %s | %.1f | %.2f x | %.1f | %.2f x |\n", i == 0 ? c->text : "", kv_format_name(s->format),
               bench_median(s->step_ms, (size_t)b->rounds), ratio[i], bench_median(s->attend_ms, (size_t)b->rounds),
               attend_ratio[i]);
    }
    fflush(stdout);
}

/* ---- main ---- */

static void usage(void) {
    fprintf(stderr, "usage: bench_formats MODEL.gguf [--threads N] [--rounds N] [--formats f16,int8] [--cell NAME]\n");
    exit(2);
}

static bool is_named(rp_kv_format format, const char *name, size_t n) {
    return strlen(kv_format_name(format)) == n && memcmp(kv_format_name(format), name, n) == 0;
}

static void open_formats(bench *b, const char *list) {
    while (*list) {
        size_t n = strcspn(list, ",");
        int format = 0;
        while (format < RP_N_KV_FORMATS && !is_named((rp_kv_format)format, list, n)) format++;
        if (format == RP_N_KV_FORMATS || b->n_subjects == RP_N_KV_FORMATS) usage();
        open_subject(b, &b->subjects[b->n_subjects++], (rp_kv_format)format);
        list += n + (list[n] == ',');
    }
    if (b->n_subjects == 0) usage();
}

int main(int argc, char **argv) {
    static bench b = {.random = {7}, .threads = 2, .rounds = 7};
    const char *formats = "f16,int8", *only = NULL;
    rp_error err;
    bench_name = "bench_formats";
    if (argc < 2 || argv[1][0] == '-' || argc % 2) usage();
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0) b.threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rounds") == 0) b.rounds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--formats") == 0) formats = argv[i + 1];
        else if (strcmp(argv[i], "--cell") == 0) only = argv[i + 1];
        else usage();
    }
    if (b.threads < 1 || b.threads > BENCH_MAX_THREADS || b.rounds < 1 || b.rounds > MAX_ROUNDS) usage();
    must(model_open(&b.model, argv[1], NULL, &err), &err);
    b.logits = base_alloc(sizeof(float) * MAX_CONTEXTS * (size_t)b.model->net.hp.n_vocab);
    if (!b.logits) bench_die("out of memory", NULL);
    open_formats(&b, formats);
    printf("| cell, %d threads | KV | ms a step | speed | attention, ms | speed |\n| --- | --- | ---: | ---: | ---: | "
           "---: |\n",
           b.threads);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        if (!only || strcmp(only, cells[i].name) == 0) run_cell(&b, &cells[i]);
    for (int i = 0; i < b.n_subjects; i++) close_subject(&b.subjects[i]);
    model_close(b.model);
    base_free(b.logits);
    return 0;
}
