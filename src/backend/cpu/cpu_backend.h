/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_backend.h: internals of the CPU backend.
 *
 *   cpu_backend.c          opening, embeddings, row-wise operations
 *   cpu_elements.c         buffers, element-wise operations
 *   cpu_streams.c          several streams of the residual, sparse activations
 *   cpu_pack.c             repacked weights
 *   cpu_linear.c           linear layers
 *   cpu_adapters.c         what LoRA adapters add to them
 *   cpu_experts.c          mixtures of experts
 *   cpu_attention.c        storing KV into blocks, attention over views
 *   cpu_slot_bounds.c      slots that rows choose anew
 *   cpu_encode.c           elements of KV blocks; encoding of complete spans
 *   cpu_deviate.c          deviation of recomputed KV from cached KV
 *   cpu_relative.c         norms that relative weights of attention are made of
 *   cpu_attention_plan.c   scratch of a step, its rows grouped into tiles
 *   cpu_recurrence.c       layers with states
 *   cpu_latent.c           latent attention: matrices of heads, values out of keys
 *   cpu_indexer.c          indexers: which tokens latent attention sees
 *   cpu_angles.c           angles of rotations
 *
 * Work is split over outputs (linear), rows or elements (the rest); no element's arithmetic depends on the split.
 */
#ifndef BACKEND_CPU_BACKEND_H
#define BACKEND_CPU_BACKEND_H

#include "base/check.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "kv/host_memory.h"
#include "backend/backend_registry.h"

struct backend_buffer {
    int32_t rows, width, most_width;
    float data[];
};

static inline const float *cpu_row_of(const backend_buffer *b, int64_t row) {
    BASE_DCHECK(row >= 0 && row < b->rows);
    return b->data + row * b->width;
}
static inline float *cpu_row_at(backend_buffer *b, int64_t row) {
    BASE_DCHECK(row >= 0 && row < b->rows);
    return b->data + row * b->width;
}

/* One head's keys or values in a block that the span has. */
static inline void *cpu_keys(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head) {
    return kv_host_bytes(kv_span_keys(s, layer, block, kv_head));
}
static inline void *cpu_values(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head) {
    return kv_host_bytes(kv_span_values(s, layer, block, kv_head));
}

/* Queries (rows x heads of a group) of a tile: each block is loaded once for all of them, and their scores, at 8,192
 * slots, stay within 1 MiB. */
#define CPU_TILE_QUERIES 32

size_t cpu_tile_bytes(void); /* of a struct cpu_tile, private to cpu_attention.c */

/* Scratch of one thread for attention. */
typedef struct cpu_scratch {
    float *scores;  /* [CPU_TILE_QUERIES][slots] */
    float *queries; /* [CPU_TILE_QUERIES][key_dim], rotated */
    float *sums;    /* [CPU_TILE_QUERIES][value_dim], of weighted values */
    float *angles;  /* [key_dim], of one row and shift */
    struct cpu_tile *tile;
    void *latent_values; /* latent attention: [64][value_dim] of a block; else NULL */
    /* KV of integers; else NULL */
    float *transformed;   /* [CPU_TILE_QUERIES][key_dim]: rotated queries of one row (kernel_hadamard) */
    int16_t *int_queries; /* [CPU_TILE_QUERIES][key_dim] */
    int16_t *folded;      /* [CPU_TILE_QUERIES][key_dim]: queries by the scales of a block's keys */
    kernel_ranges ranges; /* of a block's keys */
    float *value_scales;  /* [CPU_TILE_QUERIES][slots], of each row's visible slots */
    int16_t *weights;     /* [CPU_TILE_QUERIES][slots]: softmax by value scale, rounded */
    kernel_heavy *heavy;  /* [CPU_TILE_QUERIES][kernel_int8_max_heavy(slots)]: weights of more than 16 bits */
    int32_t *int_sums;    /* [CPU_TILE_QUERIES][value_dim] */
    void *unpacked;       /* keys or values of one head of a block: encoded KV as int8 */
} cpu_scratch;

/* Rows of one context in a tile: rows [row, row + n_rows) of the step. */
typedef struct cpu_part {
    int32_t row, n_rows, context;
    size_t first_view; /* of the context, in cpu_angles.views */
    size_t matches;    /* in cpu_plan.matches, or CPU_LEADS */
} cpu_part;

#define CPU_LEADS SIZE_MAX /* this context is the leader of its group */

/* Rows of a group that are computed together. Contexts of a group share spans with its leader, in the leader's
 * order. */
typedef struct cpu_row_tile {
    int32_t first_part, n_parts, n_rows;
    int32_t leader;              /* a context: the group's leader, or the only context of the rows */
    int32_t first_tile, n_tiles; /* of the group */
} cpu_row_tile;

typedef struct cpu_recurrent cpu_recurrent; /* private to cpu_recurrence.c */
typedef struct cpu_run cpu_run;             /* private to cpu_attention_plan.c */
typedef struct cpu_found cpu_found;

/* The tiles of a step's rows. */
typedef struct cpu_plan {
    cpu_row_tile *tiles;
    cpu_part *parts;
    int32_t *matches; /* of each follower: for each view of its leader, its own view of that span, or -1 */
    size_t n_tiles, n_parts, n_matches, n_runs;
    size_t cap_tiles, cap_parts, cap_matches, cap_runs;
    int32_t most_rows; /* of a tile */

    cpu_run *runs;    /* of rows of one context */
    cpu_found *found; /* views of leaders, by span */
    int32_t *buckets; /* [n_buckets], a power of two: first of `found`, or -1 */
    int32_t *order;   /* [3][views of a context]: scratch of the longest ascending subsequence */
    size_t n_found, n_buckets, cap_found, cap_buckets, cap_order;
} cpu_plan;

/* The angles of a step for one kind of layer (model_network.ropes). */
typedef struct cpu_angles {
    const model_rope *rope; /* NULL: no layer is of this kind */
    float *rows;            /* [n_rows][rope's rot_dim]: of each row's position */
    float *views;           /* [views of all contexts][rot_dim]: of each view's shift */
    size_t cap_rows, cap_views;
} cpu_angles;

#define CPU_N_ANGLES (MODEL_ROPE_LOCAL_BASE + 1) /* kinds that layers name */

/* One matrix of cpu_linear: rows [first_row, first_row + n_rows) of the source are the input of the same rows of
 * dst. */
typedef struct cpu_linear_part {
    model_weight weight;
    const float *bias; /* [n_out] or NULL */
    int32_t first_row, n_rows;
    backend_buffer *dst;
    int64_t first_task; /* set by cpu_linear */
} cpu_linear_part;

typedef struct cpu_experts cpu_experts;
typedef struct cpu_latent cpu_latent;     /* private to cpu_latent.c */
typedef struct cpu_indexer cpu_indexer;   /* private to cpu_indexer.c */
typedef struct cpu_adapters cpu_adapters; /* private to cpu_adapters.c */
typedef struct cpu_choices cpu_choices;   /* private to cpu_slot_bounds.c */

typedef struct cpu_backend {
    backend base;
    const model_network *net;
    kv_shape shape;
    kernel_table kernels;
    base_threads *threads;
    char *q8;                       /* activations of the current linear, quantized once for all of its weights */
    float *row;                     /* one row of embeddings, in floats or in the file's type */
    int32_t rows_per_tile;          /* at most */
    cpu_experts *experts;           /* NULL: the model has none */
    cpu_latent *latent;             /* NULL: no latent attention */
    cpu_indexer *indexer;           /* NULL: no layer has one */
    model_weight *packed;           /* [n_matrices]: repacked matrices; the others have no data */
    char *packed_data;              /* NULL: not yet repacked, or mapped, or no matrix is */
    const backend_weights *weights; /* NULL: repacked weights are not kept */
    bool prepared, is_mapped;       /* is_mapped: repacked weights come from `weights` */
    uint64_t activation_bytes;

    /* of the current step */
    const model_step *step;
    cpu_angles angles[CPU_N_ANGLES];
    cpu_plan plan;

    cpu_scratch *scratch;  /* one for each thread */
    int64_t scratch_slots; /* capacity of the scratch */
    bool has_int_scratch;
    bool sees_ints, sees_floats;   /* the step's contexts have spans of integers; of floats. Of a layer: attend_job */
    bool is_observed, is_recorded; /* rows of the step have observers; records of queries */
    bool is_relative;              /* observers of relative weights */
    float *inverse_norms;          /* [max_rows]: 1 / norm of each row's input of the current layer's attention, for
                                      them */
    bool is_chosen;                /* rows of the step choose slots; */
    cpu_choices *choices;          /* NULL: none ever did */
    bool is_adapted;               /* rows of the step have adapters; */
    cpu_adapters *adapters;        /* NULL: none ever had */
    cpu_recurrent *recurrent;      /* NULL: the model has no recurrent layers */
    uint64_t n_divided;            /* attentions with tasks divided among threads, since opening: for tests */
} cpu_backend;

extern const backend_recurrence cpu_recurrence;
/* Scratch of steps of at most max_rows rows, max_tentative of them tentative, for a model with recurrent layers.
 * RP_ERR_MEMORY. */
int cpu_recurrence_open(cpu_backend *b, int32_t max_rows, int32_t max_tentative, rp_error *err);
void cpu_recurrence_begin(cpu_backend *b); /* of a step */
void cpu_recurrence_free(cpu_backend *b);

int cpu_attention_open(cpu_backend *b, int32_t n_ctx, rp_error *err); /* scratch. RP_ERR_MEMORY */
int cpu_attention_begin(cpu_backend *b, rp_error *err);               /* plans the step. RP_ERR_MEMORY */
void cpu_attention_free(cpu_backend *b);
void cpu_observe_input(backend *self, const backend_buffer *input);
int cpu_output_norms(backend *self, int32_t layer, const float *values, int32_t n, double *norms, rp_error *err);
void cpu_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
/* Of the step, all kinds. RP_ERR_MEMORY. */
int cpu_angles_begin(cpu_backend *b, rp_error *err);
void cpu_angles_free(cpu_backend *b);
/* The angles of (position - shift) of a row: cos and sin of a difference. A shift of 0 gives the row's own, to the bit.
 * shift_cs: of the shift; out: [rot_dim], may be used. */
const float *cpu_shifted_angles(const cpu_backend *b, const cpu_angles *angles, int32_t row, int32_t shift,
                                const float *shift_cs, float *out);

/* Rotated queries of n heads times the layer's query weights, then rotated back by a shift; shift_cs: its angles; NULL:
   none. scratch: [rot_dim] */
void cpu_weigh_queries(const cpu_backend *b, const model_layer *l, int32_t n, const float *shift_cs, float *scratch,
                       float *queries);

/* Rows that choose slots (backend/slot_bounds.h): which of the step's do, RP_ERR_MEMORY; their choice in a layer; slots
 * of a block of a view that a row may attend to, all of them if it does not choose. */
int cpu_choices_begin(cpu_backend *b, rp_error *err);
void cpu_choose(cpu_backend *b, int32_t layer, const backend_buffer *queries);
uint64_t cpu_chosen_slots(const cpu_backend *b, int32_t row, int32_t kv_head, size_t view, int32_t block);
void cpu_choices_free(cpu_backend *b);
int cpu_bound(backend *self, struct slot_bounds *bounds, const kv_context *context, rp_error *err);
void cpu_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values);
int cpu_encode(backend *self, const kv_span *from, kv_span *to, rp_error *err);
/* Slots [begin, end) of a run, as backend_ops.read_head: to + slot * dimension. Needs no backend. */
void cpu_read_slots(const kv_span *const *run, int32_t layer, int32_t kv_head, bool is_key, int64_t begin, int64_t end,
                    float *to);
int cpu_read_head(backend *self, const kv_span *const *run, size_t n, int32_t layer, int32_t kv_head, bool is_key,
                  float *to, rp_error *err);
void cpu_deviate(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values, float *deviations);

/* cpu_pack_open plans the repacking of the model's matrices, cpu_pack_prepare repacks or maps them, once.
 * RP_ERR_MEMORY. */
int cpu_pack_open(cpu_backend *b, rp_error *err);
int cpu_pack_prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err);
uint64_t cpu_packed_total(const cpu_backend *b);  /* bytes */
uint64_t cpu_packed_source(const cpu_backend *b); /* bytes of the file that were repacked */
void cpu_pack_free(cpu_backend *b);
/* The matrix in the order that products read, after prepare. */
static inline const model_weight *cpu_packed(const cpu_backend *b, const model_weight *w) {
    const model_weight *p = &b->packed[w->matrix];
    /* a failure means: missing in matrix_at of model_layers.c */
    BASE_ASSERT(!w->data || b->net->matrices[w->matrix]->data == w->data);
    return p->data ? p : w;
}

/* Allocates q8 for at most max_rows rows. RP_ERR_MEMORY. */
int cpu_linear_open(cpu_backend *b, int32_t max_rows, rp_error *err);
/* Runs all parts over the first `rows` rows of src. */
void cpu_linear(cpu_backend *b, const backend_buffer *src, int32_t rows, cpu_linear_part *parts, int32_t n_parts);

/* Whether rows of the step have adapters, and scratch for them. RP_ERR_MEMORY. */
int cpu_adapters_begin(cpu_backend *b, rp_error *err);
bool cpu_adapters_are_on(const backend *self);
void cpu_adapt(backend *self, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
               const model_weight *const *weights, backend_buffer *const *dst);
void cpu_adapters_free(cpu_backend *b);

/* Allocates scratch for a model with experts and steps of at most max_rows rows. RP_ERR_MEMORY. */
int cpu_experts_open(cpu_backend *b, int32_t max_rows, rp_error *err);
void cpu_experts_free(cpu_backend *b);
void cpu_mix_experts(backend *self, int32_t layer, const backend_buffer *src, const backend_buffer *scores,
                     int32_t rows, backend_buffer *dst);

/* Latent attention. Allocates scratch for steps of at most max_rows rows. RP_ERR_MEMORY. */
int cpu_latent_open(cpu_backend *b, int32_t max_rows, rp_error *err);
void cpu_latent_free(cpu_backend *b);
void cpu_linear_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows,
                     const model_weight *weight, backend_buffer *dst, backend_columns to);
void cpu_copy_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                   int32_t n, backend_buffer *dst, backend_columns to);
/* Indexers: the operations of backend.h, and slots of a block of a view that a row's attention sees, those that the
 * last choice left. Scratch of steps of at most max_rows rows, and of the step. RP_ERR_MEMORY. */
int cpu_indexer_open(cpu_backend *b, int32_t max_rows, rp_error *err);
int cpu_indexer_begin(cpu_backend *b, rp_error *err);
void cpu_indexer_free(cpu_backend *b);
void cpu_index_store(backend *self, int32_t layer, backend_buffer *keys);
void cpu_index_choose(backend *self, int32_t layer, const backend_buffer *queries, const backend_buffer *weights);
uint64_t cpu_indexed_slots(const cpu_backend *b, int32_t row, size_t view, int32_t block);
/* out[slot][dimension] = in[dimension][slot] of a block's 64 slots, elements of 2 or 4 bytes. */
void cpu_latent_values(const void *in, int64_t dim, size_t element_bytes, void *out);

/* cpu_streams.c: the operations of backend.h. */
void cpu_sparsify(backend *self, backend_buffer *a, float deviations, int32_t rows);
void cpu_mix(backend *self, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
             backend_buffer *const *dst, int32_t n_dst);
void cpu_match(backend *self, backend_buffer *dst, const backend_buffer *like, int32_t rows);
void cpu_multiply(backend *self, backend_buffer *dst, const model_weight *factors, int32_t rows);

/* cpu_elements.c: the operations of backend.h. */
int cpu_buffer_new(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err);
void cpu_buffer_free(backend *self, backend_buffer *buffer);
void cpu_buffer_set_width(backend *self, backend_buffer *buffer, int32_t width);
void cpu_buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst);
void cpu_buffer_write(backend *self, const float *src, int32_t rows, backend_buffer *dst);
void cpu_xielu(backend *self, const model_xielu *xielu, backend_buffer *a, int32_t rows);
void cpu_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows);
void cpu_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows);
void cpu_clamp(backend *self, backend_buffer *dst, float limit, int32_t rows);
void cpu_scale(backend *self, backend_buffer *dst, float factor, int32_t rows);
void cpu_soft_cap(backend *self, backend_buffer *dst, float cap, int32_t rows);

#endif
