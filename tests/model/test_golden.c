/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden.c: every family of tests/golden against the results of transformers: logits of several prompts and 64
 * greedy tokens.
 *
 *   test_golden [-v] [NAME...]     -v: the largest error of each model
 *   REPRISE_TEST_ROUNDS=N          number of chunk sizes to test, of 3
 *   REPRISE_TEST_DEVICE=NAME       another device than the CPU, such as vulkan: models that it does not compute are
 *                                  named and skipped; status 77: all are
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/io.h"
#include "base/memory.h"
#include "support/forward_run.h"
#include "support/gguf_variant.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/test_device.h"

/* Relative to the row's largest logit. Both sides compute in f32: the difference is the order of their sums. */
#define LIMIT 1e-4
/* Quantized weights use activations of 8 bits: in rows of 64 elements this is the error (llama.cpp: 3e-2). Greedy
 * tokens may then differ. The content of such a file is checked by a copy of it in F32. */
#define LIMIT_QUANTIZED 4e-2
static int32_t best(const float *logits, int32_t n) {
    int32_t b = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[b]) b = i;
    return b;
}

/* Number of tokens of the greedy continuation that equal the stored ones. */
static int32_t continue_greedily(forward_run *r, const golden_prompt *p, float *logits) {
    for (int32_t i = 0; i < p->n_greedy; i++) {
        int32_t token = best(logits, r->model->net.hp.n_vocab);
        if (token != p->greedy[i]) return i;
        forward_run_feed(r, &token, p->n_tokens + i, 1, 1, logits);
    }
    return p->n_greedy;
}

typedef struct outcome {
    double worst;
    int32_t greedy, n_greedy;
} outcome;

static void check_prompt(const golden_model *m, const golden_prompt *p, base_cpu_level level, int32_t chunk,
                         outcome *o) {
    rp_error err = {0};
    rp_model *model;
    forward_run r;
    must(model_open(&model, m->path, NULL, &err), &err);
    /* long-rope picks its factors by the number of the context's positions; transformers by the prompt's length. */
    forward_run_open(&r, model, level, p->n_tokens + p->n_greedy, chunk, 1 + chunk % 2);
    float *logits = calloc((size_t)p->rows * (size_t)m->vocabulary, sizeof(float));
    size_t last = (size_t)(p->rows - 1) * (size_t)m->vocabulary;
    forward_run_feed(&r, p->tokens, 0, p->n_tokens, p->rows, logits);
    for (int32_t i = 0; i < p->rows; i++)
        o->worst = fmax(
            o->worst, oracle_deviation(logits + (size_t)i * (size_t)m->vocabulary, golden_row(m, p, i), m->vocabulary));
    memmove(logits, logits + last, sizeof(float) * (size_t)m->vocabulary);
    o->greedy += continue_greedily(&r, p, logits);
    o->n_greedy += p->n_greedy;
    free(logits);
    forward_run_close(&r);
    model_close(model);
}

static outcome check_file(const golden_model *m, const char *path, base_cpu_level level) {
    static const int32_t chunks[] = {7, 64, 1};
    const size_t n_chunks = sizeof(chunks) / sizeof(chunks[0]), rounds = (size_t)test_rounds((int)n_chunks);
    golden_model file = *m;
    outcome o = {0};
    file.path = (char *)path;
    for (size_t c = 0; c < n_chunks && c < rounds; c++)
        for (int32_t i = 0; i < m->n_prompts; i++) check_prompt(&file, &m->prompts[i], level, chunks[c], &o);
    return o;
}

static bool is_quantized(const golden_model *m) {
    rp_error err = {0};
    gguf_file *f;
    bool quantized = false;
    must(gguf_open(&f, m->path, &err), &err);
    for (size_t i = 0; i < gguf_n_tensors(f); i++) quantized |= kernel_type_quantized(gguf_tensor_at(f, i)->type);
    gguf_close(f);
    return quantized;
}

static bool report(const golden_model *m, const char *kind, outcome o, double limit, int32_t greedy, bool verbose) {
    bool ok = o.worst <= limit && o.greedy >= greedy;
    if (verbose || !ok)
        printf("%-20s %-10s %-12s %.1e  %d of %d greedy tokens%s\n", m->name, m->architecture, kind, o.worst,
               (int)o.greedy, (int)o.n_greedy, ok ? "" : "  FAILED");
    return ok;
}

/* A copy of the model in F32, with the changes of the variant. */
static bool check_variant(const golden_model *m, const gguf_variant *v, const char *kind, base_cpu_level level,
                          bool verbose) {
    char path[64];
    gguf_variant_write(m->path, v, path);
    outcome o = check_file(m, path, level);
    unlink(path);
    return report(m, kind, o, LIMIT, o.n_greedy, verbose);
}

static bool is_on_device(void) { return strcmp(test_device(), "cpu") != 0; }
/* Does the CPU compute some layers? */
static bool is_split(const golden_model *m) {
    rp_error err = {0};
    rp_model *model;
    must(model_open(&model, m->path, NULL, &err), &err);
    const int32_t n = test_host_layers(&model->net);
    model_close(model);
    return n > 0;
}

/* Why the device does not compute a model; false: it does. */
static bool is_skipped(const golden_model *m) {
    rp_error err = {0};
    rp_model *model;
    const backend_row *row;
    must(model_open(&model, m->path, NULL, &err), &err);
    const int rc = backend_find(&row, test_device(), &model->net, &err);
    model_close(model);
    if (rc) printf("%-20s %-10s skipped: %s\n", m->name, m->architecture, err.message);
    return rc != RP_OK;
}

/* Devices have products of f32 with quantized weights, too: the content of the file needs no copy then. The CPU has
 * not, in the layers that it computes. */
static bool check_in_f32(const golden_model *m, base_cpu_level level, bool verbose) {
    forward_run_arithmetic = RP_DEVICE_ARITHMETIC_F32;
    const outcome o = check_file(m, m->path, level);
    forward_run_arithmetic = RP_DEVICE_ARITHMETIC_INT8;
    return report(m, "f32 rows", o, LIMIT, o.n_greedy, verbose);
}

/* The files are in the repository. */
#define MOST_BYTES (1u << 20)

static bool is_small(const golden_model *m) {
    rp_error err = {0};
    base_io_sizes sizes;
    must(base_io_stat(m->path, &sizes, &err), &err);
    if (sizes.bytes > MOST_BYTES) printf("%-20s has more than 1 MiB: make its shape smaller\n", m->name);
    return sizes.bytes <= MOST_BYTES;
}

static bool check_model(const golden_model *m, base_cpu_level level, bool verbose) {
    bool quantized = is_quantized(m);
    outcome o = check_file(m, m->path, level);
    bool ok = report(m, quantized ? "8-bit rows" : "F32", o, quantized ? LIMIT_QUANTIZED : LIMIT,
                     quantized ? 0 : o.n_greedy, verbose);
    ok &= is_small(m);
    if (quantized) ok &= check_variant(m, &(gguf_variant){0}, "decoded", level, verbose);
    if (quantized && is_on_device() && !getenv("REPRISE_TEST_DEVICE_LAYERS")) ok &= check_in_f32(m, level, verbose);
    if (strcmp(m->name, "mixtral") == 0)
        ok &= check_variant(m, &(gguf_variant){.split_experts = true}, "old experts", level, verbose);
    if (strcmp(m->name, "qwen3next") == 0)
        ok &= check_variant(m, &(gguf_variant){.joint_delta_nets = true}, "old delta net", level, verbose);
    return ok;
}

static bool is_wanted(const golden_model *m, int argc, char **argv) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        if (strcmp(argv[i], m->name) == 0) return true;
        any = true;
    }
    return !any;
}

/* A backend without a model keeps the device open from one model to the next, and with it the pipelines. */
static backend *keep_device(void) {
    static const model_network net = {.hp = {.n_embd = 64, .norm_eps = 1e-5f}};
    const backend_options o = {.n_ctx = 64, .n_threads = 1, .max_rows = 1};
    rp_error err = {0};
    backend *b;
    must(backend_open(&b, test_device(), &net, &o, &err), &err);
    return b;
}

int main(int argc, char **argv) {
    bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    base_cpu_level best_level;
    rp_error err = {0};
    golden *g = golden_open();
    backend *kept = NULL;
    int failed = 0, n = 0;
    must(base_cpu_detect(&best_level, &err), &err);
    for (int32_t i = 0; i < g->n_models; i++) {
        if (!is_wanted(&g->models[i], argc, argv) || (is_on_device() && is_skipped(&g->models[i]))) continue;
        if (getenv("REPRISE_TEST_DEVICE_LAYERS") && !is_split(&g->models[i])) {
            printf("%-20s cannot be divided\n", g->models[i].name);
            continue;
        }
        if (is_on_device() && !kept) kept = keep_device();
        failed += !check_model(&g->models[i], best_level, verbose);
        if (!is_on_device() && best_level != BASE_CPU_GENERIC)
            failed += !check_model(&g->models[i], BASE_CPU_GENERIC, false);
        n++;
    }
    golden_close(g);
    if (kept) kept->ops->free(kept);
    printf("%d models, %d failures\n", n, failed);
    if (n == 0 && is_on_device()) return 77; /* skipped */
    return failed > 0 || n == 0;
}
