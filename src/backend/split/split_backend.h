/* SPDX-License-Identifier: Apache-2.0 */
/* split_backend.h: a network whose first layers the CPU computes, and the others a device: for models that are larger
 * than the device's memory (docs/gpu.md, "Layers on the processor").
 *
 *   embedding, layers 0 .. n-1   CPU        KV in host memory, weights as the CPU backend keeps them
 *        | residual rows, once a step
 *   layers n .., output head     device     KV and weights in device memory
 *
 *   split_network.c   the two parts of a network
 *   split_backend.c   opening, steps, memory
 *   split_ops.c       operations, each on the side that computes the current layer
 *   split_states.c    states of recurrent layers: each side has those of its own layers
 *
 * split_layers.h is for others. It owns a backend of each side. Both know the same numbers of layers and matrices; what
 * the other side computes has no mixer and no data.
 */
#ifndef BACKEND_SPLIT_BACKEND_H
#define BACKEND_SPLIT_BACKEND_H

#include <stdatomic.h>

#include "backend/split/split_layers.h"

typedef enum split_side { SPLIT_HOST,
                          SPLIT_DEVICE,
                          SPLIT_SIDES } split_side;

/* What one side computes. */
typedef struct split_part {
    model_network net;
    kv_shape shape; /* of its KV; states of the other side have no bytes */
    model_layer *layers;
    const model_weight **matrices;
    kv_layer_shape *kv_layers;
} split_part;

struct backend_buffer {
    backend_buffer *halves[SPLIT_SIDES]; /* of the same shape; the rows are in that of the side that wrote them */
    int32_t width;
};

typedef struct split_backend {
    backend base;
    backend *sides[SPLIT_SIDES];
    split_part parts[SPLIT_SIDES];
    const model_network *net; /* all of it */
    int32_t first;            /* layer of the device */
    int32_t n_host_kv;        /* the first layers of spans, whose KV is the host's */
    int32_t max_rows;
    float *rows;   /* [max_rows][most columns of a carried buffer]: on their way */
    size_t n_rows; /* floats of it */
    atomic_ullong carried_bytes;
    char arithmetic[700];

    split_side side;                      /* that computes the current layer */
    model_step steps[SPLIT_SIDES];        /* the current step, as each side sees it */
    backend_states **states[SPLIT_SIDES]; /* [max_rows] */
} split_backend;

static inline split_backend *split(backend *b) { return (split_backend *)b; }

/* ---- networks ---- */

/* One side's part. RP_ERR_MEMORY: still to be closed. */
int split_part_open(split_part *p, const model_network *net, const kv_shape *shape, int32_t first, split_side side,
                    rp_error *err);
void split_part_close(split_part *p); /* all zeros is fine */

/* ---- operations (backend.h) ---- */

int split_buffer_new(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err);
void split_buffer_free(backend *self, backend_buffer *buffer);
void split_buffer_set_width(backend *self, backend_buffer *buffer, int32_t width);
void split_buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst);
void split_buffer_write(backend *self, const float *src, int32_t rows, backend_buffer *dst);
void split_embed(backend *self, const model_weight *table, backend_buffer *dst);
void split_embed_layers(backend *self, backend_buffer *dst);
void split_norm(backend *self, const backend_buffer *src, const model_norm *norm, int32_t rows, backend_buffer *dst);
void split_linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n, const model_weight *const *weights,
                  const model_weight *const *biases, backend_buffer *const *dst);
void split_adapt(backend *self, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
                 const model_weight *const *weights, backend_buffer *const *dst);
bool split_has_adapters(const backend *self);
void split_linear_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows,
                       const model_weight *weight, backend_buffer *dst, backend_columns to);
void split_copy_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                     int32_t n, backend_buffer *dst, backend_columns to);
void split_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values);
void split_index_store(backend *self, int32_t layer, backend_buffer *keys);
void split_index_choose(backend *self, int32_t layer, const backend_buffer *queries, const backend_buffer *weights);
void split_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
void split_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows);
void split_sparsify(backend *self, backend_buffer *a, float deviations, int32_t rows);
void split_mix(backend *self, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
               backend_buffer *const *dst, int32_t n_dst);
void split_match(backend *self, backend_buffer *dst, const backend_buffer *like, int32_t rows);
void split_multiply(backend *self, backend_buffer *dst, const model_weight *factors, int32_t rows);
void split_xielu(backend *self, const model_xielu *xielu, backend_buffer *a, int32_t rows);
void split_experts(backend *self, int32_t layer, const backend_buffer *src, const backend_buffer *scores, int32_t rows,
                   backend_buffer *dst);
void split_gate_rows(backend *self, backend_buffer *dst, const backend_buffer *gates, int32_t rows);
void split_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows);
void split_clamp(backend *self, backend_buffer *dst, float limit, int32_t rows);
void split_scale(backend *self, backend_buffer *dst, float factor, int32_t rows);
void split_soft_cap(backend *self, backend_buffer *dst, float cap, int32_t rows);
void split_temper(backend *self, backend_buffer *dst, int32_t rows);
void split_gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst);

extern const backend_recurrence split_recurrence;
/* The states of a step's contexts, as each side sees them. */
void split_states_begin(split_backend *b, const model_step *step);

#endif
