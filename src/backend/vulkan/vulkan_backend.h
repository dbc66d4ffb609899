/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_backend.h: internals of the Vulkan backend.
 *
 *   vulkan_instance.c    the loader, devices
 *   vulkan_device.c      one device: buffers, commands, pipelines
 *   vulkan_support.c     which networks it computes; the best device
 *   vulkan_backend.c     opening, steps
 *   vulkan_budget.c      buffers within the limit of device memory
 *   vulkan_step.c        what a step records: dispatches, and memory for tables
 *   vulkan_memory.c      KV blocks in device memory and in the host's
 *   vulkan_copies.c      copies over the bus
 *   vulkan_weights.c     weights in device memory
 *   vulkan_elements.c    buffers, norms, operations on elements
 *   vulkan_linear.c      linear layers, mixtures of experts
 *   vulkan_attention.c   storing KV, attention over views
 *   vulkan_tables.c      addresses of KV, kept between steps
 *   vulkan_indexer.c     indexers: keys, and the choice of what attention sees
 *   vulkan_slot_bounds.c slots that rows choose anew
 *   vulkan_observers.c   what rows attend to
 *   vulkan_study.c       deviation of recomputed KV, norms of what values add
 *   vulkan_streams.c     several streams of the residual (AltUp), sparse activations
 *   vulkan_recurrence.c  states of recurrent layers, their scans
 *   vulkan_adapters.c    LoRA adapters of rows
 *   vulkan_kv.c          elements of KV formats: encoding of spans, reading of heads
 *   shaders/             what the device computes
 *
 * Operations record commands; nothing is computed before `submit` (backend.h). A failure while recording is kept and
 * returned by `finish`; operations after it record nothing.
 */
#ifndef BACKEND_VULKAN_BACKEND_H
#define BACKEND_VULKAN_BACKEND_H

#include "backend/backend_registry.h"
#include "backend/vulkan/vulkan_device.h"

struct backend_buffer {
    vulkan_buffer memory; /* f32 [rows][width] */
    int32_t rows, width, most_width;
};

/* Memory that the host writes for one step; freed as a whole by the next. */
typedef struct vulkan_arena {
    vulkan_buffer *chunks; /* [n]; only the last is being filled */
    size_t n, cap;
    uint64_t used; /* of the last chunk */
} vulkan_arena;

/* A part of it. */
typedef struct vulkan_part {
    void *host;       /* NULL: out of memory */
    uint64_t address; /* of the device */
} vulkan_part;

typedef struct vulkan_memory vulkan_memory;       /* private to vulkan_memory.c */
typedef struct vulkan_weights vulkan_weights;     /* private to vulkan_weights.c */
typedef struct vulkan_attention vulkan_attention; /* private to vulkan_attention.c */
typedef struct vulkan_tables vulkan_tables;       /* private to vulkan_tables.c */
typedef struct vulkan_recurrent vulkan_recurrent; /* private to vulkan_recurrence.c */
typedef struct vulkan_adapters vulkan_adapters;   /* private to vulkan_adapters.c */

/* The copies that a block of KV takes part in: numbers of the last ones, as of vulkan_copies.timeline. Guarded by the
 * lock of copies. */
#define VULKAN_QUEUED UINT64_MAX /* it is not submitted yet */
typedef struct vulkan_block {
    uint64_t written, read; /* by a copy; 0: by none */
} vulkan_block;

/* A block that moves to the other memory of the backend, with the buffers that it is in. */
typedef struct vulkan_block_copy {
    VkBuffer from, to;
    uint64_t from_at, to_at, bytes; /* offsets; bytes: of a block */
    vulkan_block *source, *target;
    int32_t layer; /* whose KV it is, at least */
    bool is_promotion;
} vulkan_block_copy;

/* Copies between the host and the device, and blocks between their memories. Any thread may copy while a step is
 * computed. */
#define VULKAN_STAGING_SLOTS 2
#define VULKAN_BATCH_SLOTS 16
typedef struct vulkan_staging_slot {
    vulkan_stream stream;
    vulkan_buffer staging; /* empty: the host reaches device memory */
} vulkan_staging_slot;

/* Blocks that are copied by one submission. */
typedef struct vulkan_batch_slot {
    vulkan_stream stream;
    uint64_t bytes; /* that are timed: the result is not read yet; 0: none */
    bool is_promotion;
} vulkan_batch_slot;

typedef struct vulkan_copies {
    struct vulkan_backend *backend;
    vulkan_timeline timeline;                     /* of all of them */
    pthread_mutex_t lock;                         /* guards those up to times */
    vulkan_staging_slot up[VULKAN_STAGING_SLOTS]; /* to the device, taken in turn */
    vulkan_batch_slot batches[VULKAN_BATCH_SLOTS];
    unsigned next, next_batch;
    vulkan_stream down; /* of copies that are awaited */
    vulkan_stream rows; /* of copies of rows, in the queue and the timeline of steps */
    vulkan_buffer unstaging;
    vulkan_block_copy *queued; /* [n_queued] */
    size_t n_queued, cap_queued;
    VkQueryPool times;      /* two of each batch; 0: copies are not timed */
    atomic_ullong uploaded; /* the last upload of anything but KV */
    atomic_ullong to_device_bytes, to_host_bytes;
    /* of blocks whose copies were timed: what the speed of the bus is learnt from */
    atomic_ullong promoted_bytes, promoted_ns, demoted_bytes, demoted_ns;
} vulkan_copies;

typedef struct vulkan_backend {
    backend base;
    const model_network *net;
    kv_shape shape;
    int32_t n_ctx, n_threads, max_rows;
    vulkan_device *device;
    bool is_int8;             /* products with quantized weights are of int8, else of f32 */
    vulkan_timeline timeline; /* of steps: their parts */
    vulkan_stream stream;     /* of steps */
    vulkan_buffer kv_floats;  /* scratch of vulkan_kv.c; empty until it is used */
    vulkan_buffer codes;      /* of vulkan_linear.c: activations in int8, of one operation */
    vulkan_buffer readback;   /* what buffer_read gives; empty until the first */
    vulkan_arena arena;
    vulkan_buffer *retired; /* [n_retired] */
    size_t n_retired, cap_retired;
    vulkan_memory *memory;
    vulkan_copies copies;
    vulkan_weights *weights;
    vulkan_attention *attention;
    vulkan_tables *tables;
    vulkan_recurrent *recurrent; /* NULL: the model has no recurrent layers */
    vulkan_adapters *adapters;   /* NULL until a step has some */
    /* of mixtures: [max_rows * n_used] rows; routing: scratch of route.comp; empty: the model has none */
    struct {
        backend_buffer *gathered, *gate, *up, *out, *experts, *weights, *values, *order, *places, *tiles;
    } mix;
    char arithmetic[600]; /* see backend_ops.arithmetic */

    atomic_ullong used_bytes, limit_bytes; /* of device memory, all of this backend; limit 0: none */
    uint64_t activation_bytes;
    uint64_t submitted_us;                     /* base_clock_us: the last submission */
    atomic_ullong submits, submit_us, step_us; /* of steps: submissions, the host's time in them, their time */
    atomic_ullong in_place_bytes;              /* KV of host memory that steps have read, once for each step */
    const backend_buffer *read;                /* in `readback` after finish; NULL: none */

    const model_step *step; /* the current one */
    rp_error failure;       /* of the current step; code 0: none */
    bool needs_barrier;     /* commands since the last barrier wrote something */
    /* Copies that the part which is being recorded begins after; those that any submission so far began after */
    uint64_t part_after, all_after;
    uint64_t part_dispatches; /* counts.dispatches when it began */
    struct {
        uint64_t dispatches, table_bytes; /* recorded; written by the host */
        uint64_t parts;                   /* submissions */
    } counts;                             /* of the current step */
} vulkan_backend;

static inline vulkan_backend *vulkan(backend *b) { return (vulkan_backend *)b; }

/* ---- memory ---- */

/* As vulkan_buffer_new, within the limit of the backend. RP_ERR_BUDGET. Any thread. */
int vulkan_take(vulkan_backend *b, vulkan_use use, uint64_t bytes, const char *what, vulkan_buffer *out, rp_error *err);
void vulkan_give(vulkan_backend *b, vulkan_buffer *buffer); /* all zeros is fine */
/* Gives a buffer back when the commands that were recorded are complete. The engine's thread. */
void vulkan_retire(vulkan_backend *b, vulkan_buffer *buffer);
void vulkan_retired_free(vulkan_backend *b);

int vulkan_memory_new(vulkan_memory **out, vulkan_backend *b, rp_error *err); /* RP_ERR_MEMORY */
void vulkan_memory_free(vulkan_memory *m);                                    /* NULL is fine; nothing is allocated */
kv_memory *vulkan_memory_interface(vulkan_memory *m);
/* Memory of the host that the device reads, too: the RAM tier. NULL: device memory is the host's. */
kv_memory *vulkan_memory_host(vulkan_memory *m);
void vulkan_memory_usage(vulkan_memory *m, rp_device_usage *out); /* KV, host memory. Any thread */
/* Lets the current step begin what follows after the copies that write the KV of these rows' slots or of these contexts
 * in a layer of the pool, or that read what rows write. Nothing if there are no copies. */
void vulkan_memory_await_rows(vulkan_memory *m, int32_t layer);
void vulkan_memory_await_contexts(vulkan_memory *m, int32_t layer);
/* Bytes of the spans in host memory that the contexts of a step have. */
uint64_t vulkan_memory_in_place(const vulkan_memory *m, const model_step *step);

/* ---- copies over the bus ---- */

int vulkan_copies_open(vulkan_copies *c, vulkan_backend *b, rp_error *err); /* RP_ERR_MEMORY, RP_ERR_IO */
void vulkan_copies_close(vulkan_copies *c);                                 /* all zeros is fine */
/* Waits for all copies: before a buffer that takes part is freed. Any thread. */
void vulkan_copies_settle(vulkan_copies *c);
/* A part of a buffer, with the blocks of KV in it. */
typedef struct vulkan_region {
    const vulkan_buffer *buffer;
    uint64_t at, bytes;
    vulkan_block *blocks; /* [n_blocks], with the region's first one; NULL: it is not of KV */
    size_t n_blocks;
} vulkan_region;
/* Copies to device memory, in pieces: later steps see it; from it. RP_ERR_MEMORY, RP_ERR_IO. Any thread. */
int vulkan_upload(vulkan_copies *c, const void *from, const vulkan_region *to, rp_error *err);
int vulkan_download(vulkan_copies *c, const vulkan_region *from, void *to, rp_error *err);
/* n blocks to the other memory: they are queued, and submitted by the next step, those of lower layers first, or
 * earlier if their memory is used. RP_ERR_MEMORY: none is queued. Any thread. */
int vulkan_copies_queue(vulkan_copies *c, const vulkan_block_copy *blocks, size_t n, rp_error *err);
/* Submits what is queued. RP_ERR_MEMORY, RP_ERR_IO: what was not submitted stays queued. Any thread. */
int vulkan_copies_flush(vulkan_copies *c, rp_error *err);
/* Waits for copies that write these blocks, or, for_write, also for those that read them: before the host does. Any
 * thread. */
int vulkan_copies_await(vulkan_copies *c, const vulkan_block *blocks, size_t n, bool for_write, rp_error *err);
/* The number of the copy that a step begins after if it reads a block, or writes it. 0: none. Nothing may be queued. */
uint64_t vulkan_copies_before(vulkan_copies *c, const vulkan_block *block, bool for_write);
/* Fault injection (tests): bytes of blocks of a batch, at least. */
extern uint64_t vulkan_batch_bytes;
/* Rows within the memory that the device reaches, after all copies so far; waits for them. The device is apart. Any
 * thread. */
int vulkan_copy_rows(vulkan_copies *c, const kv_row_copy *copies, size_t n, rp_error *err);

/* ---- weights ---- */

int vulkan_weights_new(vulkan_backend *b, rp_error *err); /* RP_ERR_MEMORY */
void vulkan_weights_free(vulkan_backend *b);
/* Uploads all matrices, once. RP_ERR_MEMORY, RP_ERR_BUDGET, RP_ERR_IO. */
int vulkan_weights_prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err);
/* The address of a weight's data on the device, all slices one after another, which is uploaded at first use; of a
   weight without data: 0. A failure is the step's. */
uint64_t vulkan_weight(vulkan_backend *b, const model_weight *w);
uint64_t vulkan_weights_bytes(const vulkan_backend *b);   /* of all, uploaded or not */
uint64_t vulkan_weights_pending(const vulkan_backend *b); /* of matrices that are not yet uploaded */

/* ---- recording ---- */

void vulkan_step_fail(vulkan_backend *b, int rc, const rp_error *err); /* keeps the first failure */
/* Memory of the step. host NULL: the step has failed. */
vulkan_part vulkan_arena_take(vulkan_backend *b, size_t bytes);
void vulkan_arena_reset(vulkan_backend *b);
void vulkan_arena_free(vulkan_backend *b);
/* Begins to record, unless it does: after a step, for what follows it. */
void vulkan_step_continue(vulkan_backend *b);
/* What is recorded from here on begins after the copy of that number. Submits what was recorded before as a part of its
 * own, if that can begin earlier. */
void vulkan_step_after(vulkan_backend *b, uint64_t copy);
/* Submits what was recorded, the last part of a step; drops it, if the step has failed. */
void vulkan_step_end(vulkan_backend *b);
void vulkan_step_wait(vulkan_backend *b); /* until it is computed */
/* Records a dispatch after all before it; `beside`: not after the last one. A dimension of 0: nothing. */
void vulkan_dispatch(vulkan_backend *b, vulkan_shader shader, uint32_t variant, const void *arguments, size_t bytes,
                     const uint32_t groups[3]);
void vulkan_dispatch_beside(vulkan_backend *b, vulkan_shader shader, uint32_t variant, const void *arguments,
                            size_t bytes, const uint32_t groups[3]);
/* Records a copy of a buffer's first bytes, after all commands before it. */
void vulkan_record_copy(vulkan_backend *b, const vulkan_buffer *from, const vulkan_buffer *to, uint64_t to_at,
                        uint64_t bytes);
/* Records a copy of a buffer's first bytes to b->readback, for the host. */
void vulkan_record_read(vulkan_backend *b, const vulkan_buffer *src, uint64_t bytes);
/* Computes what was recorded, and returns a buffer's first bytes on the host, until the next read; the step may go on.
   NULL: it has failed. */
const void *vulkan_read_now(vulkan_backend *b, const vulkan_buffer *from, uint64_t bytes);
/* Begins what is no part of a step, and forgets an earlier step's failure. `submit` and `finish` end it. */
void vulkan_work_begin(vulkan_backend *b);
/* A buffer of at least so many floats, whose content is undefined; false: the step has failed. */
bool vulkan_grow_scratch(vulkan_backend *b, vulkan_buffer *buffer, uint64_t floats);
/* Records an operation on elements: rows x width. */
void vulkan_element_op_record(vulkan_backend *b, uint32_t op, const vulkan_elements_args *a);

/* Records norms of runs, as the arguments name them. */
void vulkan_norm_record(vulkan_backend *b, vulkan_norm_kind kind, const vulkan_norm_args *a);

/* ---- operations (backend.h) ---- */

int vulkan_buffer_create(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err);
void vulkan_buffer_destroy(backend *self, backend_buffer *buffer);
void vulkan_buffer_set_width(backend *self, backend_buffer *buffer, int32_t width);
void vulkan_norm(backend *self, const backend_buffer *src, const model_norm *norm, int32_t rows, backend_buffer *dst);
void vulkan_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows);
void vulkan_xielu(backend *self, const model_xielu *xielu, backend_buffer *a, int32_t rows);
void vulkan_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows);
void vulkan_clamp(backend *self, backend_buffer *dst, float limit, int32_t rows);
void vulkan_scale(backend *self, backend_buffer *dst, float factor, int32_t rows);
void vulkan_soft_cap(backend *self, backend_buffer *dst, float cap, int32_t rows);
void vulkan_multiply(backend *self, backend_buffer *dst, const model_weight *factors, int32_t rows);
void vulkan_temper(backend *self, backend_buffer *dst, int32_t rows);
void vulkan_gate_rows(backend *self, backend_buffer *dst, const backend_buffer *gates, int32_t rows);
void vulkan_gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst);
void vulkan_copy_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                      int32_t n, backend_buffer *dst, backend_columns to);
void vulkan_buffer_write(backend *self, const float *src, int32_t rows, backend_buffer *dst);
void vulkan_embed(backend *self, const model_weight *table, backend_buffer *dst);
void vulkan_embed_layers(backend *self, backend_buffer *dst);
void vulkan_linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n,
                   const model_weight *const *weights, const model_weight *const *biases, backend_buffer *const *dst);
void vulkan_linear_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows,
                        const model_weight *weight, backend_buffer *dst, backend_columns to);
int vulkan_linear_open(vulkan_backend *b, rp_error *err); /* memory for codes. RP_ERR_MEMORY, RP_ERR_BUDGET */
/* One product, after all commands before it. */
void vulkan_product(vulkan_backend *b, const vulkan_linear_args *a, kernel_type type);
int vulkan_experts_open(vulkan_backend *b, rp_error *err); /* RP_ERR_MEMORY, RP_ERR_BUDGET */
void vulkan_experts_free(vulkan_backend *b);
void vulkan_mix_experts(backend *self, int32_t layer, const backend_buffer *src, const backend_buffer *scores,
                        int32_t rows, backend_buffer *dst);
void vulkan_mix(backend *self, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
                backend_buffer *const *dst, int32_t n_dst);
void vulkan_match(backend *self, backend_buffer *dst, const backend_buffer *like, int32_t rows);
void vulkan_sparsify(backend *self, backend_buffer *x, float deviations, int32_t rows);
int vulkan_attention_open(vulkan_backend *b, rp_error *err); /* RP_ERR_MEMORY */
void vulkan_attention_free(vulkan_backend *b);
int vulkan_tables_open(vulkan_backend *b, rp_error *err); /* RP_ERR_MEMORY */
void vulkan_tables_free(vulkan_backend *b);
int vulkan_attention_begin(vulkan_backend *b, rp_error *err); /* tables of the step. RP_ERR_MEMORY, RP_ERR_BUDGET */
void vulkan_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values);
void vulkan_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst);

extern const backend_recurrence vulkan_recurrence;
/* RP_ERR_MEMORY, RP_ERR_BUDGET */
int vulkan_recurrence_open(vulkan_backend *b, int32_t max_tentative, rp_error *err);
void vulkan_recurrence_free(vulkan_backend *b);
int vulkan_recurrence_begin(vulkan_backend *b, rp_error *err); /* runs of the step. RP_ERR_MEMORY, RP_ERR_IO */

void vulkan_index_store(backend *self, int32_t layer, backend_buffer *keys);
void vulkan_index_choose(backend *self, int32_t layer, const backend_buffer *queries, const backend_buffer *weights);
/* ---- adapters ---- */

/* Uploads those of the step's rows. RP_ERR_MEMORY, RP_ERR_BUDGET, RP_ERR_IO, RP_ERR_LIMIT. */
int vulkan_adapters_begin(vulkan_backend *b, rp_error *err);
void vulkan_adapters_free(vulkan_backend *b);
bool vulkan_adapters_are_on(const backend *self);
void vulkan_adapt(backend *self, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
                  const model_weight *const *weights, backend_buffer *const *dst);

/* ---- KV formats ---- */

int vulkan_read_head(backend *self, const kv_span *const *run, size_t n, int32_t layer, int32_t kv_head, bool is_key,
                     float *to, rp_error *err);
/* A VULKAN_ELEMENT_* of shaders. */
uint32_t vulkan_element_of(rp_kv_format format, bool is_key);
int vulkan_encode(backend *self, const kv_span *from, kv_span *to, rp_error *err);

/* ---- operations that judge slots ---- */

extern const backend_study vulkan_study;
int vulkan_bound(backend *self, struct slot_bounds *bounds, const kv_context *context, rp_error *err);
void vulkan_observe_input(backend *self, const backend_buffer *input);
void vulkan_deviate(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values,
                    float *deviations);
int vulkan_output_norms(backend *self, int32_t layer, const float *values, int32_t n, double *norms, rp_error *err);

/* ---- networks ---- */

/* Why the backend cannot compute a network, whatever the device; NULL: it can. Static. */
const char *vulkan_network_unsupported(const model_network *net);

#endif
