/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h: the table of operations that the forward pass uses.
 *
 * A backend owns buffers (rows of f32 activations, in its own memory) and the memory of KV blocks (kv/block_memory.h),
 * and implements each operation on them. Nothing above this table dereferences a buffer or a block: a device backend
 * keeps both in device memory. backend_registry.h lists the backends.
 *
 * One step at a time: begin names the rows, operations follow in order, submit starts them, finish waits for them, and
 * buffer_read takes results. A device may record its operations until submit; those after finish (of hidden states) are
 * computed by buffer_read. Every operation gives each row the same bits, independent of the other rows of the step
 * (docs/architecture.md, "Why the bytes are equal"). Used by one thread.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "kv/context.h"
#include "backend/attention_observer.h"
#include "backend/model_network.h"
#include "reprise_device.h"

/* One token of a step. Its KV is written to `slot` of `span`, the last span of contexts[context]. In a probe, the slot
 * already holds the token's cached KV, and the context has a view of the span. */
typedef struct model_row {
    int32_t token, pos;
    int32_t context; /* index into the step's contexts; rows of one context are adjacent */
    int32_t slot;
    kv_span *span; /* borrowed */
    int32_t after; /* it sees so many positions after its own; 0 in causal models */
    int32_t type;  /* of the token, for models with token types */
    bool wants_logits, wants_hidden;
    /* of its attention, and of its queries, in all layers; borrowed; NULL: none. They change no result */
    attention_observer *observer;
    query_record *queries;
    /* chooses the slots that its attention sees (slot_bounds.h); borrowed; NULL: all */
    const struct slot_bounds *bounds;
    const adapter_weights *adapter; /* it is computed with, times adapter_scale; borrowed; NULL: none */
    float adapter_scale;
} model_row;

typedef struct backend_states
    backend_states; /* what the recurrent layers of a network hold after a token, of one sequence */

typedef struct model_step {
    const model_row *rows;
    int32_t n_rows;
    const kv_context *const *contexts; /* with all rows appended; causality is by position */
    int32_t n_contexts;
    backend_states *const *
        states; /* [n_contexts]: after the token before each context's first row; the step moves them to its last row.
                   NULL: the network has no recurrent layers */
    /* [n_contexts]: the step does not move the states of these contexts, as their last rows may be rejected:
     * backend_recurrence.states_accept moves them after it. NULL: of none */
    const bool *tentative;
} model_step;

#define BACKEND_MAX_WEIGHTS 4 /* per operation `linear` */

/* Runs of columns of a buffer: run i begins at column first + i * step. */
typedef struct backend_columns {
    int32_t first, step;
} backend_columns;

typedef struct backend backend;
typedef struct backend_buffer backend_buffer; /* [rows][width] f32 */

/* Operations that judge and choose slots. Without them there are no blend, no reduction of KV and no audit of what they
   keep. Not during a step, but for deviate and observe_input. */
typedef struct backend_study {
    /* to[slot][dimension] = a head's keys (rotated, as stored) or values of a run of n complete spans, all but the last
     * of 256 tokens; slots of freed blocks: 0. RP_ERR_MEMORY, RP_ERR_IO (the device is lost). */
    int (*read_head)(backend *b, const kv_span *const *run, size_t n, int32_t layer, int32_t kv_head, bool is_key,
                     float *to, rp_error *err);
    /* Fills in the keys of bounds, of slots of that context whose KV is complete, once. RP_ERR_MEMORY, RP_ERR_BUDGET,
       RP_ERR_IO. */
    int (*bound)(backend *b, struct slot_bounds *bounds, const kv_context *context, rp_error *err);
    /* deviations[r] = sum of squared differences between row r's keys and values and the cached ones in its slot of
     * this layer, after the conversions of store: rotation to the slot's position in its span, rounding to the KV
     * format. values NULL: as of store. A failure is the step's: finish */
    void (*deviate)(backend *b, int32_t layer, backend_buffer *keys, const backend_buffer *values, float *deviations);
    /* The input of a layer's attention, before the attend of each layer: for observers of relative weights. Nothing
       happens without them */
    void (*observe_input)(backend *b, const backend_buffer *input);
    /* norms[query head][slot] = Euclidean norm of what a value adds to the residual stream through the head's columns
     * of the layer's output matrix; values: [KV head][n][value dimension]. The same bits for every number of threads.
     * RP_ERR_MEMORY. */
    int (*output_norms)(backend *b, int32_t layer, const float *values, int32_t n, double *norms, rp_error *err);
} backend_study;

/* Recurrent layers: those of the kind KV_STATE (kv_layer.h). Their states are in the backend's memory, apart from KV
 * blocks; a span of states is a copy of them. A state after a token is the same for every division of the tokens before
 * it into steps. */
typedef struct backend_recurrence {
    /* The states before any token. RP_ERR_MEMORY. */
    int (*states_new)(backend *b, backend_states **out, rp_error *err);
    void (*states_free)(backend *b, backend_states *states);
    /* From, and to, a span of states (kv_span_new_states) whose layers are all ready; to: not sealed. Not during a
       step. */
    void (*states_load)(backend *b, backend_states *states, const kv_span *from);
    void (*states_save)(backend *b, const backend_states *states, kv_span *to);
    /* After a step in which the context of these states was tentative, before the next one, and once: moves them to the
       n-th of its rows; 0: to where they are */
    void (*states_accept)(backend *b, backend_states *states, int32_t n);
    /* The states begin a module: what its transitions multiply them by is counted from here on. Not during a step. */
    void (*states_begin)(backend *b, backend_states *states);
    /* states = end + transition (states - begin): those after a module that moved the states `begin` to `end`, as if it
     * began with these (model_states_compose). begin NULL: zeros. The inputs of convolutions are those of `end`. Not
     * during a step. RP_ERR_MEMORY. */
    int (*states_compose)(backend *b, backend_states *states, const kv_span *end, const kv_span *begin, rp_error *err);
    /* dst = SiLU of the convolution of src's first columns, row by row; moves these inputs of the states. A part of the
       scan, for layers that project its result (Mamba1) */
    void (*convolve)(backend *b, int32_t layer, backend_buffer *src, backend_buffer *dst);
    /* dst = output of a layer's recurrence, row by row; moves the states of the step. in: the layer's inputs
       (model_recurrent), which it may overwrite */
    void (*scan)(backend *b, int32_t layer, backend_buffer *const *in, backend_buffer *dst);
} backend_recurrence;

typedef struct backend_ops {
    const char *name;
    const backend_study *study;           /* NULL: none */
    const backend_recurrence *recurrence; /* NULL: no recurrent layers */
    void (*free)(backend *b);
    kv_memory *(*memory)(backend *b); /* what the KV blocks are in, which it computes with */
    /* Memory of the host that the device reads as well, over a bus, for KV that leaves `memory`; NULL: there is no
     * other, as `memory` is the host's. NULL, the function: so it is */
    kv_memory *(*host_memory)(backend *b);
    /* The first layers of spans whose KV is not in `memory` but in that of the host (kv_pool_divide): the processor
       computes their layers. NULL, the function: none */
    int32_t (*host_layers)(const backend *b);
    /* Fills in all fields of out. NULL, the function: there is no device. Any thread */
    void (*device_usage)(backend *b, rp_device_usage *out);
    /* Bytes that this memory can give for KV; NULL, the function: no limit of its own */
    uint64_t (*kv_limit)(backend *b);
    /* What the results depend on besides the model: device, driver, version of its kernels: a part of the keys of KV.
     * As long as the backend. NULL, the function: the level of the CPU's kernels alone (kernel_arithmetic_of) */
    const char *(*arithmetic)(const backend *b);
    int (*buffer_new)(backend *b, int32_t rows, int32_t width, backend_buffer **out, rp_error *err);
    void (*buffer_free)(backend *b, backend_buffer *buffer);
    /* Its rows have so many elements from now on, at most as many as buffer_new gave them; values are undefined */
    void (*buffer_set_width)(backend *b, backend_buffer *buffer, int32_t width);
    /* Copies the first `rows` rows to the host, packed. Of a step that failed (finish): undefined. */
    void (*buffer_read)(backend *b, const backend_buffer *src, int32_t rows, float *dst);
    /* The first `rows` rows become those of src, packed, which may change after it returns. */
    void (*buffer_write)(backend *b, const float *src, int32_t rows, backend_buffer *dst);

    /* Repacks the weights for this backend, or maps repacked ones, with progress (on_progress may be NULL; the total
     * may change between calls). Without it, the first begin does. Repeated calls have no effect. RP_ERR_MEMORY. */
    int (*prepare)(backend *b, rp_on_progress on_progress, void *user, rp_error *err);
    /* Fills in the weights, file and activations of out. */
    void (*usage)(backend *b, rp_memory *out);

    /* Prepares rotations and scratch for a step; the step is borrowed until the next begin. RP_ERR_MEMORY. */
    int (*begin)(backend *b, const model_step *step, rp_error *err);
    /* The operations that follow are of this layer; n_layers: of the draft head, and those after the last layer. A step
     * begins in layer 0 and enters layers in their order. carried: buffers whose first `rows` rows operations of this
     * layer or of later ones read, that earlier ones wrote. NULL, the function: one device computes all layers */
    void (*enter)(backend *b, int32_t layer, backend_buffer *const *carried, int32_t n, int32_t rows);
    /* Starts the operations of the step, without waiting. read: the buffer that buffer_read takes `rows` rows of
       next; NULL: none. NULL, the function: operations are complete when they return */
    void (*submit)(backend *b, const backend_buffer *read, int32_t rows);
    /* Waits until the operations are complete. RP_ERR_MEMORY, RP_ERR_BUDGET, RP_ERR_IO (the device is lost): the first
     * failure of an operation of this step; its KV and its results are undefined. NULL, the function: none fails. */
    int (*finish)(backend *b, rp_error *err);
    /* dst row r = scaled embedding of row r's token, plus those of its type and of its position if the model has
       them. table: the embeddings, instead of the model's; NULL: these */
    void (*embed)(backend *b, const model_weight *table, backend_buffer *dst);
    /* dst row r += the embeddings of all layers of row r's token, times the root of their dimensions */
    void (*embed_layers)(backend *b, backend_buffer *dst);
    /* dst = norm(src), over each run of weight.n_in elements; dst may be src */
    void (*norm)(backend *b, const backend_buffer *src, const model_norm *norm, int32_t rows, backend_buffer *dst);
    /* dst[i] = weights[i] * src + biases[i], for n <= BACKEND_MAX_WEIGHTS weights with the same input; a bias without
     * data is absent */
    void (*linear)(backend *b, const backend_buffer *src, int32_t rows, int32_t n, const model_weight *const *weights,
                   const model_weight *const *biases, backend_buffer *const *dst);
    /* After linear, of the same src, rows and dst: dst[i] += what the rows' adapters add to weights[i]. indices: row r
     * of src is row indices[r] of the step; NULL: row r. Only in a step with adapters: has_adapters */
    void (*adapt)(backend *b, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
                  const model_weight *const *weights, backend_buffer *const *dst);
    bool (*has_adapters)(const backend *b); /* of the step that began last */
    /* Run i of dst = slice i of the weight * run i of src, for each slice (latent attention). Other columns are left
       alone */
    void (*linear_runs)(backend *b, const backend_buffer *src, backend_columns from, int32_t rows,
                        const model_weight *weight, backend_buffer *dst, backend_columns to);
    /* Run i of dst = run i of src, for n runs of `width` columns */
    void (*copy_runs)(backend *b, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                      int32_t n, backend_buffer *dst, backend_columns to);
    /* Rotates each row's keys to its position and stores keys and values into its slot of this layer. values NULL: of
       a latent layer, whose values are parts of its keys */
    void (*store)(backend *b, int32_t layer, backend_buffer *keys, const backend_buffer *values);
    /* The indexer of a latent layer; NULL: no indexers. Norms each row's key, rotates it to its position, and stores
     * it into its slot of the layer's index */
    void (*index_store)(backend *b, int32_t layer, backend_buffer *keys);
    /* Chooses the index_top_k tokens that each row's attention sees from now on, in layers that are chosen: those with
     * the highest scores, the earlier of equal ones, or all if they are few. A score is the sum over heads of weight *
     * max(0, query . key); queries are not yet rotated. weights: [rows][n_index_heads] */
    void (*index_choose)(backend *b, int32_t layer, const backend_buffer *queries, const backend_buffer *weights);
    /* Encodes the KV of a complete span into one of an encoded format that kv_span_new_like made of it.
       RP_ERR_MEMORY. */
    int (*encode)(backend *b, const kv_span *from, kv_span *to, rp_error *err);
    /* dst = attention of each row's queries (not yet rotated) over its context, in context order, with the layer's
     * window, rotation, sinks. Reports to the observers of rows, and records their queries */
    void (*attend)(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
    /* a = act(a) * up; up NULL: a = act(a) */
    void (*act)(backend *b, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows);
    /* each row: a = max(0, a - (mean + deviations * standard deviation of its elements)) */
    void (*sparsify)(backend *b, backend_buffer *a, float deviations, int32_t rows);
    /* dst[i] row r += sum of factors[r][i * n + k] * src[k] row r, in the order of k < n; factors: [rows][n_dst * n] */
    void (*mix)(backend *b, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
                backend_buffer *const *dst, int32_t n_dst);
    /* scales each row of dst to the root mean square of like's row; one below the root of 1e-5 counts as that */
    void (*match)(backend *b, backend_buffer *dst, const backend_buffer *like, int32_t rows);
    void (*multiply)(backend *b, backend_buffer *dst, const model_weight *factors, int32_t rows); /* of columns */
    /* a = xIELU(a) */
    void (*xielu)(backend *b, const model_xielu *xielu, backend_buffer *a, int32_t rows);
    /* dst = output of this layer's mixture of experts for src; scores: router logits, [rows][n_experts] */
    void (*experts)(backend *b, int32_t layer, const backend_buffer *src, const backend_buffer *scores, int32_t rows,
                    backend_buffer *dst);
    /* multiplies each row of dst by the sigmoid of its gate, [rows][1] */
    void (*gate_rows)(backend *b, backend_buffer *dst, const backend_buffer *gates, int32_t rows);
    /* dst += scale * src */
    void (*add)(backend *b, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows);
    void (*clamp)(backend *b, backend_buffer *dst, float limit, int32_t rows); /* to [-limit, limit] */
    void (*scale)(backend *b, backend_buffer *dst, float factor, int32_t rows);
    void (*soft_cap)(backend *b, backend_buffer *dst, float cap, int32_t rows); /* cap * tanh(dst / cap) */
    /* multiplies each row of the step by the temperature of its position (model_hparams.temperature) */
    void (*temper)(backend *b, backend_buffer *dst, int32_t rows);
    /* dst row i = src row indices[i] */
    void (*gather)(backend *b, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst);
} backend_ops;

struct backend {
    const backend_ops *ops;
};

/* Repacked weights: what a backend computes from the model's matrices at each start. */
typedef struct backend_packed {
    uint32_t side, version; /* rows that are interleaved; version of the order of bytes */
    const uint64_t *bytes;  /* [n]: of each matrix, in order; multiples of BACKEND_PACKED_ALIGNMENT */
    size_t n;
    uint64_t total; /* their sum */
} backend_packed;

#define BACKEND_PACKED_ALIGNMENT 64

/* Keeps repacked weights for later processes. The store implements it (store/weights_cache.h). */
typedef struct backend_weights {
    /* The matrices of this description, one after another, as keep received them: mapped read-only, valid as long as
     * the backend. NULL: none; *keeps: keep must be called with them. on_progress (bytes, of a model that has to be
     * hashed) may be NULL. */
    const char *(*find)(void *user, const backend_packed *packed, bool *keeps, rp_on_progress on_progress,
                        void *progress_user);
    /* Failures are logged. on_progress (bytes written) may be NULL. */
    void (*keep)(void *user, const backend_packed *packed, const char *data, rp_on_progress on_progress,
                 void *progress_user);
    void *user;
} backend_weights;

#endif
