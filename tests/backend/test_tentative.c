/* SPDX-License-Identifier: Apache-2.0 */
/* test_tentative.c: a step with tentative contexts leaves their states as they are, gives the logits of any other step,
 * and states_accept moves the states to the n-th row: to the bytes of a step of n rows. Every kind of recurrent layer,
 * every n, on one thread and several, beside another tentative context and one that is none.
 * REPRISE_TEST_DEVICE=NAME: on another device than the CPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend_registry.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "kv/span.h"
#include "model/forward.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/recurrent_model.h"
#include "support/test_device.h"
#include "support/tiny_model.h"

#define N_CONTEXTS 3
#define BEFORE 7 /* tokens of a context before the tentative ones */
#define MOST 6   /* rows of a context in the step */
#define ROWS (N_CONTEXTS * MOST)
#define CTX 64

static const int32_t n_rows[N_CONTEXTS] = {MOST, 4, 5};        /* of the step */
static const bool tentative[N_CONTEXTS] = {true, false, true}; /* the last one is accepted first */

/* Contexts of one model. */
typedef struct world {
    const rp_model *model;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    kv_context contexts[N_CONTEXTS];
    backend_states *states[N_CONTEXTS];
    int32_t n[N_CONTEXTS]; /* tokens */
    float *logits;         /* [ROWS][n_outputs] */
} world;

static void world_open(world *w, const rp_model *m, int32_t n_threads) {
    rp_error err = {0};
    const kv_shape shape = model_kv_shape(m, RP_KV_F16);
    const backend_options o = {.shape = shape,
                               .level = BASE_CPU_GENERIC,
                               .n_ctx = CTX,
                               .n_threads = n_threads,
                               .max_rows = ROWS,
                               .max_tentative = 2 * MOST,
                               .host_layers = test_host_layers(&m->net)};
    *w = (world){.model = m};
    must(backend_open(&w->backend, test_device(), &m->net, &o, &err), &err);
    must(model_forward_new(&w->forward, m, w->backend, ROWS, ROWS, &err), &err);
    must(kv_pool_new(&w->pool, &shape, (uint64_t)64 << 20, w->backend->ops->memory(w->backend), &err), &err);
    test_divide(w->pool, w->backend, (uint64_t)64 << 20);
    for (int i = 0; i < N_CONTEXTS; i++) {
        kv_context_init(&w->contexts[i], w->pool);
        must(w->backend->ops->recurrence->states_new(w->backend, &w->states[i], &err), &err);
    }
    w->logits = calloc((size_t)ROWS * (size_t)m->net.hp.n_outputs, sizeof(float));
}

static void world_close(world *w) {
    for (int i = 0; i < N_CONTEXTS; i++) {
        w->backend->ops->recurrence->states_free(w->backend, w->states[i]);
        kv_context_clear(&w->contexts[i]);
    }
    model_forward_free(w->forward);
    kv_pool_free(w->pool);
    w->backend->ops->free(w->backend);
    free(w->logits);
}

/* A step of n[i] more tokens of each context. */
static void world_step(world *w, const int32_t n[N_CONTEXTS], bool is_tentative) {
    rp_error err = {0};
    model_row rows[ROWS];
    const kv_context *contexts[N_CONTEXTS];
    int32_t k = 0;
    for (int32_t i = 0; i < N_CONTEXTS; i++) {
        contexts[i] = &w->contexts[i];
        for (int32_t r = 0; r < n[i]; r++, k++) {
            const int32_t pos = w->n[i]++;
            rows[k] = (model_row){
                .token = 3 + (pos * 31 + i * 7) % 200, .pos = pos, .context = i, .wants_logits = true};
            must(kv_context_append(&w->contexts[i], pos, &rows[k].span, &rows[k].slot, &err), &err);
        }
    }
    const model_step step = {.rows = rows,
                             .n_rows = k,
                             .contexts = contexts,
                             .n_contexts = N_CONTEXTS,
                             .states = w->states,
                             .tentative = is_tentative ? tentative : NULL};
    must(model_forward_step(w->forward, &step, w->logits, &err), &err);
}

static void read_states(world *w, int32_t context, char *out, size_t bytes) {
    rp_error err = {0};
    kv_span *span;
    const kv_shape *shape = kv_pool_shape(w->pool);
    must(kv_span_new_states(&span, w->pool, w->n[context], &err), &err);
    w->backend->ops->recurrence->states_save(w->backend, w->states[context], span);
    size_t at = 0;
    for (int32_t l = 0; l < shape->n_layers; l++) {
        if (shape->layers[l].kind != KV_STATE) continue;
        assert_true(at + shape->layers[l].state_bytes <= bytes);
        kv_span_get_state(span, l, out + at);
        at += shape->layers[l].state_bytes;
    }
    assert_true(at > 0);
    kv_span_unref(span);
}

static void expect_states(world *a, world *b, int32_t context) {
    const size_t bytes = (size_t)1 << 20;
    char *x = calloc(1, bytes), *y = calloc(1, bytes);
    read_states(a, context, x, bytes);
    read_states(b, context, y, bytes);
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
}

/* accepted: of the first context; of the last one, as many as there are rows left. */
static void check_accepted(const rp_model *m, int32_t n_threads, int32_t accepted) {
    static const int32_t before[N_CONTEXTS] = {BEFORE, BEFORE - 1, BEFORE - 2}, one[N_CONTEXTS] = {1, 1, 1};
    const int32_t n[N_CONTEXTS] = {accepted, n_rows[1], n_rows[2] - (accepted < n_rows[2] ? accepted : n_rows[2])};
    const size_t n_outputs = (size_t)m->net.hp.n_outputs;
    world plain, drafting, all;
    world_open(&plain, m, 1);
    world_open(&all, m, 1);
    world_open(&drafting, m, n_threads);
    world_step(&plain, before, false);
    world_step(&all, before, false);
    world_step(&drafting, before, false);
    world_step(&plain, n, false); /* what is accepted alone */
    world_step(&all, n_rows, false);
    world_step(&drafting, n_rows, true);
    assert_memory_equal(all.logits, drafting.logits, (size_t)(n_rows[0] + n_rows[1] + n_rows[2]) * n_outputs * 4);
    for (int32_t i = N_CONTEXTS; i-- > 0;) {
        if (!tentative[i]) continue;
        drafting.backend->ops->recurrence->states_accept(drafting.backend, drafting.states[i], n[i]);
        kv_context_truncate(&drafting.contexts[i], n_rows[i] - n[i]);
        drafting.n[i] = plain.n[i];
    }
    for (int32_t i = 0; i < N_CONTEXTS; i++) expect_states(&plain, &drafting, i);
    world_step(&plain, one, false); /* and they go on alike */
    world_step(&drafting, one, false);
    assert_memory_equal(plain.logits, drafting.logits, N_CONTEXTS * n_outputs * 4);
    for (int32_t i = 0; i < N_CONTEXTS; i++) expect_states(&plain, &drafting, i);
    world_close(&plain);
    world_close(&all);
    world_close(&drafting);
}

static void check_model(const rp_model *m) {
    const int32_t most_threads = strcmp(test_device(), "cpu") == 0 ? 3 : 1;
    for (int32_t n_threads = 1; n_threads <= most_threads; n_threads += 2)
        for (int32_t accepted = 0; accepted <= n_rows[0]; accepted++) check_accepted(m, n_threads, accepted);
}

static void golden_models_go_on_from_the_accepted_row(void **state) {
    static const char *const names[] = {"lfm2", "granitehybrid", "nemotron-h", "falcon-h1", "mamba2",
                                        "jamba", "mamba", "qwen35", "qwen3next", "kimi-linear"};
    golden *g = golden_open();
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        rp_error err = {0};
        rp_model *m;
        must(rp_model_open(&m, golden_find(g, names[i])->path, NULL, &err), &err);
        check_model(m);
        rp_model_close(m);
    }
    golden_close(g);
}

static void a_decayed_sum_goes_on_from_the_accepted_row(void **state) {
    tiny_model_shape shape = tiny_model_defaults();
    (void)state;
    shape.n_layers = 4;
    rp_model *m = tiny_model_open(&shape, NULL);
    recurrent_model_make(m);
    check_model(m);
    rp_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_go_on_from_the_accepted_row),
        cmocka_unit_test(a_decayed_sum_goes_on_from_the_accepted_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
