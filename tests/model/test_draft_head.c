/* SPDX-License-Identifier: Apache-2.0 */
/* test_draft_head.c: logits of draft heads (nextn tensors), of every architecture that may have one, against the head
 * as a model of one layer: by the reference, where it knows the architecture, and by an ordinary forward pass. They
 * have the same bytes for each division into steps, and a file's head changes no byte of the model's logits.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/backend_registry.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "model/forward.h"
#include "support/draft_head_file.h"
#include "support/forward_run.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/reference_model.h"
#include "support/tiny_random.h"

#define ROWS 12
#define CTX 64
#define TOLERANCE 2e-5 /* of logits, relative to the largest */

static const struct subject {
    const char *golden;
    bool in_reference;
} subjects[] = {{"glm4moe", true}, {"deepseek3", true}, {"qwen35", false}, {"qwen35moe", false}, {"qwen3next", false}};
#define N_SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

static char *golden_path(const char *name, char *out, size_t bytes) {
    golden *g = golden_open();
    snprintf(out, bytes, "%s", golden_find(g, name)->path);
    golden_close(g);
    return out;
}

static rp_model *open_model(const char *path) {
    rp_error err = {0};
    rp_model *m;
    must(rp_model_open(&m, path, NULL, &err), &err);
    return m;
}

typedef struct rows {
    int32_t tokens[ROWS];
    float *hidden; /* [ROWS][n_embd] */
} rows;

static rows make_rows(const rp_model *m) {
    const int64_t n = ROWS * m->net.hp.n_embd;
    tiny_random r = {.state = 7};
    rows out = {.hidden = calloc((size_t)n, sizeof(float))};
    for (int32_t i = 0; i < ROWS; i++) out.tokens[i] = (int32_t)tiny_random_below(&r, (uint64_t)m->net.hp.n_vocab);
    for (int64_t i = 0; i < n; i++) out.hidden[i] = (float)tiny_random_below(&r, 4001) / 1000.0f - 2.0f;
    return out;
}

/* The head's logits and hidden states of all rows, `chunk` a step. */
static void run_head(const rp_model *m, const rows *in, int32_t chunk, int32_t n_threads, float *logits,
                     float *hidden) {
    rp_error err = {0};
    const kv_shape shape = model_kv_shape(m, RP_KV_F32);
    kv_shape own = model_draft_kv_shape(m);
    const backend_options o = {
        .shape = shape, .level = BASE_CPU_GENERIC, .n_ctx = CTX, .n_threads = n_threads, .max_rows = ROWS};
    backend *b;
    model_forward *f;
    kv_pool *pool;
    kv_context context;
    const kv_context *contexts[] = {&context};
    own.format = RP_KV_F32; /* as in the other models */
    must(backend_open(&b, "cpu", &m->net, &o, &err), &err);
    must(model_forward_new(&f, m, b, ROWS, ROWS, &err), &err);
    must(kv_pool_new(&pool, &own, (uint64_t)4 << 20, b->ops->memory(b), &err), &err);
    kv_context_init(&context, pool);
    for (int32_t first = 0, n; first < ROWS; first += n) {
        model_row row[ROWS];
        n = chunk < ROWS - first ? chunk : ROWS - first;
        for (int32_t i = 0; i < n; i++) {
            row[i] = (model_row){.token = in->tokens[first + i], .pos = first + i, .wants_logits = true};
            must(kv_context_append(&context, first + i, &row[i].span, &row[i].slot, &err), &err);
        }
        const model_step step = {.rows = row, .n_rows = n, .contexts = contexts, .n_contexts = 1};
        must(model_forward_draft(f, &step, in->hidden + first * m->net.hp.n_embd,
                                 logits + (size_t)first * (size_t)m->net.hp.n_outputs,
                                 hidden + first * m->net.hp.n_embd, &err),
             &err);
    }
    kv_context_clear(&context);
    model_forward_free(f);
    kv_pool_free(pool);
    b->ops->free(b);
}

static void expect_near(const float *expected, const float *got, size_t n) {
    double largest = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        worst = fmax(worst, fabs((double)expected[i] - (double)got[i]));
    }
    print_message("  difference %.2g of %.2g\n", worst, largest);
    assert_true(largest > 0.1 && worst <= TOLERANCE * largest);
}

static void by_reference(const char *path, float *logits, int32_t n_vocab) {
    rp_error err = {0};
    gguf_file *file;
    reference_model *m;
    reference_sight seen[ROWS];
    must(gguf_open(&file, path, &err), &err);
    must(reference_model_open(&m, file, 0, &err), &err);
    gguf_close(file);
    reference_kv *kv = reference_kv_new(m);
    for (int32_t i = 0; i < ROWS; i++) {
        for (int32_t k = 0; k < i; k++) seen[k] = (reference_sight){k, i - k};
        reference_kv_add(kv, i, i, seen, (size_t)i, logits + (size_t)i * (size_t)n_vocab);
    }
    reference_kv_free(kv);
    reference_model_close(m);
}

static void by_forward_pass(const char *path, float *logits) {
    rp_model *m = open_model(path);
    int32_t tokens[ROWS];
    forward_run run;
    for (int32_t i = 0; i < ROWS; i++) tokens[i] = i;
    forward_run_open(&run, m, BASE_CPU_GENERIC, CTX, ROWS, 1);
    forward_run_feed(&run, tokens, 0, ROWS, ROWS, logits);
    forward_run_close(&run);
    rp_model_close(m);
}

static void check_head(const struct subject *s, bool owns_tables) {
    char from[512], path[64], alone[64];
    draft_head_file_write(golden_path(s->golden, from, sizeof from), owns_tables, path);
    rp_model *m = open_model(path);
    assert_true(model_has_draft_head(m));
    const size_t n_logits = (size_t)ROWS * (size_t)m->net.hp.n_outputs, n_hidden = (size_t)(ROWS * m->net.hp.n_embd);
    rows in = make_rows(m);
    float *got = calloc(n_logits, sizeof(float)), *again = calloc(n_logits, sizeof(float)),
          *expected = calloc(n_logits, sizeof(float)), *hidden = calloc(n_hidden, sizeof(float)),
          *hidden_again = calloc(n_hidden, sizeof(float));
    run_head(m, &in, ROWS, 1, got, hidden);
    for (int32_t chunk = 1; chunk < ROWS; chunk += 4) {
        run_head(m, &in, chunk, 1 + chunk % 3, again, hidden_again);
        assert_memory_equal(got, again, n_logits * sizeof(float));
        assert_memory_equal(hidden, hidden_again, n_hidden * sizeof(float));
    }
    print_message("%s, %s tables\n", s->golden, owns_tables ? "own" : "the model's");
    draft_head_model_write(path, in.tokens, in.hidden, ROWS, alone);
    by_forward_pass(alone, expected);
    expect_near(expected, got, n_logits);
    if (s->in_reference) {
        by_reference(alone, expected, m->net.hp.n_vocab);
        expect_near(expected, got, n_logits);
    }
    unlink(path);
    unlink(alone);
    free(in.hidden);
    free(got);
    free(again);
    free(expected);
    free(hidden);
    free(hidden_again);
    rp_model_close(m);
}

static void logits_are_those_of_a_model_of_one_layer(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SUBJECTS; i++)
        for (int owns = 0; owns < 2; owns++) check_head(&subjects[i], owns);
}

/* Logits follow from the hidden state that the next draft reads. */
static void hidden_states_are_those_of_the_logits(void **state) {
    char from[512], path[64];
    (void)state;
    draft_head_file_write(golden_path("glm4moe", from, sizeof from), false, path);
    rp_model *m = open_model(path);
    const int32_t width = m->net.hp.n_embd, n_vocab = m->net.hp.n_vocab;
    rows in = make_rows(m);
    float *logits = calloc((size_t)(ROWS * n_vocab), sizeof(float)), *hidden = calloc((size_t)(ROWS * width), 4),
          *expected = calloc((size_t)(ROWS * n_vocab), sizeof(float));
    run_head(m, &in, 5, 2, logits, hidden);
    assert_int_equal(m->net.output.type, KERNEL_F32);
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t v = 0; v < n_vocab; v++) {
            double sum = 0;
            const float *w = (const float *)m->net.output.data + (size_t)v * (size_t)width;
            for (int32_t i = 0; i < width; i++) sum += (double)w[i] * (double)hidden[r * width + i];
            expected[r * n_vocab + v] = (float)sum;
        }
    expect_near(expected, logits, (size_t)(ROWS * n_vocab));
    free(in.hidden);
    free(logits);
    free(hidden);
    free(expected);
    rp_model_close(m);
    unlink(path);
}

static void a_head_changes_no_logits(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SUBJECTS; i++) {
        char from[512], path[64];
        int32_t tokens[ROWS];
        float *logits[2];
        draft_head_file_write(golden_path(subjects[i].golden, from, sizeof from), true, path);
        for (int k = 0; k < 2; k++) {
            rp_model *m = open_model(k ? path : from);
            forward_run run;
            assert_int_equal(model_has_draft_head(m), k);
            for (int32_t t = 0; t < ROWS; t++) tokens[t] = 3 + t * 37 % (m->net.hp.n_vocab - 3);
            logits[k] = calloc((size_t)(ROWS * m->net.hp.n_vocab), sizeof(float));
            forward_run_open(&run, m, BASE_CPU_GENERIC, CTX, 5, 1);
            forward_run_feed(&run, tokens, 0, ROWS, ROWS, logits[k]);
            forward_run_close(&run);
            if (k) assert_memory_equal(logits[0], logits[1], (size_t)(ROWS * m->net.hp.n_vocab) * sizeof(float));
            rp_model_close(m);
        }
        free(logits[0]);
        free(logits[1]);
        unlink(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_a_model_of_one_layer),
        cmocka_unit_test(hidden_states_are_those_of_the_logits),
        cmocka_unit_test(a_head_changes_no_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
