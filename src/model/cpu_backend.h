/* cpu_backend.h: inside of the CPU backend, shared by cpu_backend.c (buffers, linear algebra) and cpu_attention.c. */
#ifndef MODEL_CPU_BACKEND_H
#define MODEL_CPU_BACKEND_H

#include "base/threads.h"
#include "kernels/kernels.h"
#include "model/backend.h"

struct backend_buffer {
    int32_t rows, width;
    float data[];
};

/* Queries (rows x heads of a group) that are attended together: a block is read once for all of them, and their scores, at
 * 8,192 slots, stay within 1 MiB. */
#define CPU_TILE_QUERIES 32

/* Scratch of one thread for attention. */
typedef struct cpu_scratch {
    float *scores;  /* [CPU_TILE_QUERIES][slots] */
    float *queries; /* [CPU_TILE_QUERIES][key_dim], rotated */
    float *angles;  /* [rot_dim], of one row and shift */
} cpu_scratch;

/* Rows of one context that are attended together. */
typedef struct cpu_row_tile {
    int32_t row, n_rows, context;
    size_t first_view; /* of the context, in view_angles */
} cpu_row_tile;

typedef struct cpu_backend {
    backend base;
    const rp_model *model;
    kv_shape shape;
    kernel_table kernels;
    base_threads *threads;
    char *q8; /* activations of the current linear, quantised once for all of its weights */
    int32_t heads_per_tile, rows_per_tile;

    /* of the current step */
    const model_step *step;
    float *row_angles;  /* [n_rows][rot_dim]: of each row's position */
    float *view_angles; /* [views of all contexts][rot_dim]: of each view's shift */
    cpu_row_tile *tiles;
    size_t cap_row_angles, cap_view_angles, cap_tiles, n_tiles;

    cpu_scratch *scratch;  /* one for each thread */
    int64_t scratch_slots; /* that the scratch has room for */
} cpu_backend;

int cpu_attention_begin(cpu_backend *b, rp_error *err);
void cpu_attention_free(cpu_backend *b);
void cpu_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
void cpu_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values);

#endif
