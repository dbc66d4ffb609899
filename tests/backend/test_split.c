/* SPDX-License-Identifier: Apache-2.0 */
/* test_split.c: networks that are divided between two backends (backend/split) against whole ones. The device is a
 * second CPU backend here, so that each golden model has to give the same bytes, wherever it is divided: attention,
 * windows, mixtures, latent vectors and indexers, states, several streams, embeddings of layers. The same with
 * layers' KV in two memories, and a draft head. tests/vulkan/test_layers.c is about a device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/split/split_layers.h"
#include "base/cpu.h"
#include "support/draft_head_file.h"
#include "support/forward_run.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/test_device.h"

/* ---- a CPU as a device ---- */

static backend_ops ops;
static int n_submits;

static void submit(backend *b, const backend_buffer *read, int32_t rows) {
    (void)b, (void)read, (void)rows;
    n_submits++;
}

static int finish(backend *b, rp_error *err) {
    (void)b, (void)err;
    return RP_OK;
}

static const char *arithmetic(const backend *b) {
    (void)b;
    return "a second CPU";
}

static uint64_t kv_limit(backend *b) {
    (void)b;
    return UINT64_MAX;
}

static int open_device(backend **out, const model_network *net, const backend_options *o, rp_error *err) {
    const int rc = cpu_backend_new(out, net, o, err);
    if (rc) return rc;
    ops = *(*out)->ops;
    ops.submit = submit;
    ops.finish = finish;
    ops.arithmetic = arithmetic;
    ops.kv_limit = kv_limit;
    (*out)->ops = &ops;
    return RP_OK;
}

/* ---- models ---- */

static base_cpu_level level;

static backend_options options_of(const rp_model *m, int32_t n_ctx) {
    return (backend_options){.shape = model_kv_shape(m, RP_KV_F32),
                             .level = level,
                             .n_ctx = n_ctx,
                             .n_threads = 1,
                             .max_rows = FORWARD_RUN_ROWS};
}

/* host_layers 0: of the whole network. */
static backend *open_backend(const rp_model *m, int32_t n_ctx, int32_t host_layers) {
    static const backend_row row = {.name = "a second CPU", .open = open_device};
    backend_options o = options_of(m, n_ctx);
    backend *b;
    rp_error err = {0};
    o.host_layers = host_layers;
    must(host_layers ? split_backend_new(&b, &row, &m->net, &o, &err) : cpu_backend_new(&b, &m->net, &o, &err), &err);
    return b;
}

/* Logits of all tokens of a prompt, [n_tokens][n_vocab], the caller's. */
static float *logits_of(const rp_model *m, const golden_prompt *p, int32_t host_layers, int32_t chunk) {
    forward_run r;
    forward_run_open_on(&r, m, open_backend(m, p->n_tokens + 1, host_layers), chunk);
    float *logits = calloc((size_t)p->n_tokens * (size_t)m->net.hp.n_vocab, sizeof(float));
    forward_run_feed(&r, p->tokens, 0, p->n_tokens, p->n_tokens, logits);
    forward_run_close(&r);
    return logits;
}

/* Returns the number of divisions that gave other bytes; *n: of all. */
static int check_model(const golden_model *g, int *n) {
    const golden_prompt *p = &g->prompts[g->n_prompts - 1]; /* the longest */
    rp_model *m;
    rp_error err = {0};
    int failed = 0;
    must(model_open(&m, g->path, NULL, &err), &err);
    const size_t bytes = sizeof(float) * (size_t)p->n_tokens * (size_t)m->net.hp.n_vocab;
    float *whole = logits_of(m, p, 0, 64);
    for (int32_t i = 1; i < m->net.hp.n_layers; i++) {
        if (split_check(&m->net, i, &err)) {
            printf("%-20s %d of %d: %s\n", g->name, i, m->net.hp.n_layers, err.message);
            continue;
        }
        for (int c = 0; c < test_rounds(2); c++) {
            float *divided = logits_of(m, p, i, c ? 7 : 64);
            const bool same = memcmp(whole, divided, bytes) == 0;
            if (!same) printf("%-20s %d of %d, chunks of %d: FAILED\n", g->name, i, m->net.hp.n_layers, c ? 7 : 64);
            failed += !same;
            free(divided);
        }
        ++*n;
    }
    free(whole);
    model_close(m);
    return failed;
}

/* ---- a draft head ---- */

#define ROWS 9

/* Logits of a head's rows, [ROWS][n_outputs], the caller's: in two steps, each after a step of the model. */
static float *drafts_of(const rp_model *m, const golden_prompt *p, int32_t host_layers) {
    backend *b = open_backend(m, 64, host_layers);
    kv_shape own = model_draft_kv_shape(m);
    float *hidden = calloc((size_t)(ROWS * m->net.hp.n_embd), sizeof(float)),
          *logits = calloc((size_t)ROWS * (size_t)m->net.hp.n_outputs, sizeof(float));
    forward_run r;
    kv_pool *pool;
    kv_context context;
    const kv_context *contexts[] = {&context};
    rp_error err = {0};
    for (int32_t i = 0; i < ROWS * m->net.hp.n_embd; i++) hidden[i] = (float)(i * 37 % 401) / 100 - 2;
    own.format = RP_KV_F32;
    forward_run_open_on(&r, m, b, 64);
    must(kv_pool_new(&pool, &own, (uint64_t)4 << 20, b->ops->memory(b), &err), &err);
    kv_context_init(&context, pool);
    for (int32_t first = 0, n; first < ROWS; first += n) {
        model_row row[ROWS];
        n = first == 0 ? 4 : ROWS - first;
        forward_run_feed(&r, p->tokens, first, n, 0, NULL);
        for (int32_t i = 0; i < n; i++) {
            row[i] = (model_row){.token = p->tokens[first + i], .pos = first + i, .wants_logits = true};
            must(kv_context_append(&context, first + i, &row[i].span, &row[i].slot, &err), &err);
        }
        const model_step step = {.rows = row, .n_rows = n, .contexts = contexts, .n_contexts = 1};
        float *after = calloc((size_t)(ROWS * m->net.hp.n_embd), sizeof(float));
        must(model_forward_draft(r.forward, &step, hidden + first * m->net.hp.n_embd,
                                 logits + (size_t)first * (size_t)m->net.hp.n_outputs, after, &err),
             &err);
        free(after);
    }
    kv_context_clear(&context);
    kv_pool_free(pool);
    forward_run_close(&r);
    free(hidden);
    return logits;
}

static int check_draft_head(const golden_model *g, bool owns_tables) {
    char path[64];
    rp_model *m;
    rp_error err = {0};
    int failed = 0;
    draft_head_file_write(g->path, owns_tables, path);
    must(model_open(&m, path, NULL, &err), &err);
    unlink(path);
    float *whole = drafts_of(m, &g->prompts[g->n_prompts - 1], 0);
    for (int32_t i = 1; i < m->net.hp.n_layers; i++) {
        float *divided = drafts_of(m, &g->prompts[g->n_prompts - 1], i);
        failed += memcmp(whole, divided, sizeof(float) * (size_t)ROWS * (size_t)m->net.hp.n_outputs) != 0;
        free(divided);
    }
    free(whole);
    model_close(m);
    if (failed) printf("%s with a draft head: FAILED\n", g->name);
    return failed;
}

int main(void) {
    rp_error err = {0};
    golden *g = golden_open();
    int failed = 0, n = 0;
    must(base_cpu_detect(&level, &err), &err);
    for (int32_t i = 0; i < g->n_models; i++) failed += check_model(&g->models[i], &n);
    for (int owns = 0; owns < 2; owns++) failed += check_draft_head(golden_find(g, "glm4moe"), owns);
    golden_close(g);
    printf("%d divisions, %d failures, %d steps\n", n, failed, n_submits);
    return failed > 0 || n == 0 || n_submits == 0;
}
