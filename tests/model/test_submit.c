/* SPDX-License-Identifier: Apache-2.0 */
/* test_submit.c: a step in two parts. With a backend that computes on a thread of its own, submit returns before
 * anything is computed, collect waits, and the logits are those of the backend alone, byte for byte: nothing that a
 * step lends to operations is gone or changed when they run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/forward.h"
#include "support/deferred_backend.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/recurrent_model.h"
#include "support/tiny_model.h"
#include "backend/backend_registry.h"

#define ROWS 24
#define STEPS 4
#define N_TOKENS (ROWS * STEPS)
#define CTX 256

/* A forward pass in one context. */
typedef struct pass {
    const rp_model *model;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    kv_context context;
    backend_states *states; /* NULL: the model has no recurrent layers */
    float *logits;          /* [N_TOKENS][n_vocab] */
} pass;

static void open_pass(pass *p, const rp_model *m, bool is_deferred) {
    rp_error err = {0};
    const kv_shape shape = model_kv_shape(m, RP_KV_F16);
    const backend_options o = {
        .shape = shape, .level = BASE_CPU_GENERIC, .n_ctx = CTX, .n_threads = 1, .max_rows = ROWS};
    *p = (pass){.model = m};
    must(backend_open(&p->backend, "cpu", &m->net, &o, &err), &err);
    if (is_deferred) p->backend = deferred_backend_new(p->backend);
    must(model_forward_new(&p->forward, m, p->backend, ROWS, ROWS, &err), &err);
    must(kv_pool_new(&p->pool, &shape, (uint64_t)16 << 20, NULL, &err), &err);
    kv_context_init(&p->context, p->pool);
    if (model_is_recurrent(&m->net)) must(p->backend->ops->recurrence->states_new(p->backend, &p->states, &err), &err);
    p->logits = calloc((size_t)N_TOKENS * (size_t)m->net.hp.n_outputs, sizeof(float));
}

static void close_pass(pass *p) {
    if (p->states) p->backend->ops->recurrence->states_free(p->backend, p->states);
    kv_context_clear(&p->context);
    model_forward_free(p->forward);
    kv_pool_free(p->pool);
    p->backend->ops->free(p->backend);
    free(p->logits);
}

/* Every third row wants logits. */
static void run_step(pass *p, int32_t first, bool is_deferred, size_t *n_logits) {
    rp_error err = {0};
    model_row rows[ROWS];
    const kv_context *contexts[] = {&p->context};
    float *out = p->logits + *n_logits * (size_t)p->model->net.hp.n_outputs;
    for (int32_t i = 0; i < ROWS; i++) {
        rows[i] = (model_row){.token = 3 + (first + i) * 31 % 200, .pos = first + i, .wants_logits = i % 3 == 0};
        must(kv_context_append(&p->context, first + i, &rows[i].span, &rows[i].slot, &err), &err);
        *n_logits += rows[i].wants_logits;
    }
    const model_step step = {.rows = rows, .n_rows = ROWS, .contexts = contexts, .n_contexts = 1, .states = &p->states};
    if (is_deferred) deferred_backend_close_gate(p->backend);
    const uint64_t before = is_deferred ? deferred_backend_computed(p->backend) : 0;
    must(model_forward_submit(p->forward, &step, &err), &err);
    if (is_deferred) {
        assert_int_equal(deferred_backend_computed(p->backend), before);
        deferred_backend_open_gate(p->backend);
    }
    must(model_forward_collect(p->forward, out, &err), &err);
    if (is_deferred) assert_true(deferred_backend_computed(p->backend) > before);
}

static void check_model(const rp_model *m) {
    pass direct, later;
    size_t n[2] = {0, 0};
    open_pass(&direct, m, false);
    open_pass(&later, m, true);
    for (int32_t s = 0; s < STEPS; s++) {
        run_step(&direct, s * ROWS, false, &n[0]);
        run_step(&later, s * ROWS, true, &n[1]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(direct.logits, later.logits, n[0] * (size_t)m->net.hp.n_outputs * sizeof(float));
    close_pass(&direct);
    close_pass(&later);
}

static void golden_models_give_the_same_bytes(void **state) {
    static const char *const names[] = {"llama", "gemma3", "gpt-oss", "qwen2moe", "qwen35", "kimi-linear", "glm-dsa",
                                        "gemma4", "gemma4-moe", "gemma3n", "falcon-40b"};
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

static void a_recurrent_model_gives_the_same_bytes(void **state) {
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
        cmocka_unit_test(golden_models_give_the_same_bytes),
        cmocka_unit_test(a_recurrent_model_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
