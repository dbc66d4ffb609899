/* SPDX-License-Identifier: Apache-2.0 */
/* forward_run.c: see forward_run.h. */
#include "forward_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "must.h"
#include "test_device.h"

rp_device_arithmetic forward_run_arithmetic = RP_DEVICE_ARITHMETIC_INT8;

#define BUDGET_BYTES ((uint64_t)64 << 20)

void forward_run_open(forward_run *r, const rp_model *m, base_cpu_level level, int32_t n_ctx, int32_t chunk,
                      int32_t threads) {
    rp_error err = {0};
    backend *b;
    const backend_options o = {.shape = model_kv_shape(m, RP_KV_F32),
                               .level = level,
                               .n_ctx = n_ctx,
                               .n_threads = threads,
                               .max_rows = FORWARD_RUN_ROWS,
                               .host_layers = test_host_layers(&m->net),
                               .device_arithmetic = forward_run_arithmetic};
    must(backend_open(&b, test_device(), &m->net, &o, &err), &err);
    forward_run_open_on(r, m, b, chunk);
}

void forward_run_open_on(forward_run *r, const rp_model *m, backend *b, int32_t chunk) {
    rp_error err = {0};
    const kv_shape shape = model_kv_shape(m, RP_KV_F32);
    *r = (forward_run){.model = m, .backend = b, .chunk = chunk};
    must(model_forward_new(&r->forward, m, r->backend, FORWARD_RUN_ROWS, FORWARD_RUN_ROWS, &err), &err);
    must(kv_pool_new(&r->pool, &shape, BUDGET_BYTES, r->backend->ops->memory(r->backend), &err), &err);
    test_divide(r->pool, r->backend, BUDGET_BYTES);
    kv_context_init(&r->context, r->pool);
    if (model_is_recurrent(&m->net)) must(r->backend->ops->recurrence->states_new(r->backend, &r->states, &err), &err);
}

void forward_run_close(forward_run *r) {
    kv_context_clear(&r->context);
    model_forward_free(r->forward);
    kv_pool_free(r->pool);
    if (r->states) r->backend->ops->recurrence->states_free(r->backend, r->states);
    r->backend->ops->free(r->backend);
}

void forward_run_feed(forward_run *r, const int32_t *tokens, int32_t first, int32_t n, int32_t rows, float *logits) {
    rp_error err = {0};
    const kv_context *contexts[] = {&r->context};
    for (int32_t done = 0; done < n;) {
        model_row row[FORWARD_RUN_ROWS];
        int32_t k = r->chunk < n - done ? r->chunk : n - done, wanted = 0;
        for (int32_t i = 0; i < k; i++) {
            row[i] =
                (model_row){.token = tokens[done + i], .pos = first + done + i, .wants_logits = done + i >= n - rows};
            row[i].observer = r->observer;
            row[i].queries = r->queries;
            row[i].adapter = r->adapter;
            row[i].adapter_scale = 1;
            must(kv_context_append(&r->context, row[i].pos, &row[i].span, &row[i].slot, &err), &err);
            wanted += row[i].wants_logits;
        }
        model_step step = {.rows = row, .n_rows = k, .contexts = contexts, .n_contexts = 1, .states = &r->states};
        must(model_forward_step(r->forward, &step, logits, &err), &err);
        if (logits) logits += (size_t)wanted * (size_t)r->model->net.hp.n_vocab;
        done += k;
        kv_context_trim(&r->context, first + done);
    }
}
