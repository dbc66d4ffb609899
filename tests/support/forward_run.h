/* SPDX-License-Identifier: Apache-2.0 */
/* forward_run.h: a model's forward pass alone: token ids at rising positions in one context of f32 KV, logits out.
 * For tests: a failing setup ends the program. Not thread-safe.
 */
#ifndef SUPPORT_FORWARD_RUN_H
#define SUPPORT_FORWARD_RUN_H

#include "kv/context.h"
#include "backend/backend_registry.h"
#include "model/forward.h"

/* Of runs on a device that are opened from now on. */
extern rp_device_arithmetic forward_run_arithmetic;

#define FORWARD_RUN_ROWS 64 /* of a step at most */

typedef struct forward_run {
    const rp_model *model;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    kv_context context;
    backend_states *states; /* of the context; NULL: the model has no recurrent layers */
    int32_t chunk;
    attention_observer *observer;   /* of all rows that are fed; borrowed; NULL: none */
    query_record *queries;          /* the same */
    const adapter_weights *adapter; /* likewise; its scale is 1 */
} forward_run;

/* n_ctx: context length, which selects the factors of long-rope; chunk: rows of a step. The model is borrowed. */
void forward_run_open(forward_run *r, const rp_model *m, base_cpu_level level, int32_t n_ctx, int32_t chunk,
                      int32_t threads);
/* The same with a backend for steps of FORWARD_RUN_ROWS rows, which it takes over. */
void forward_run_open_on(forward_run *r, const rp_model *m, backend *b, int32_t chunk);
void forward_run_close(forward_run *r);

/* Appends n tokens at positions from `first` on. logits: [rows][n_vocab], of the last `rows` of them. */
void forward_run_feed(forward_run *r, const int32_t *tokens, int32_t first, int32_t n, int32_t rows, float *logits);

#endif
