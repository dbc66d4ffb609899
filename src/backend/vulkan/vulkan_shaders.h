/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_shaders.h: the shaders (shaders/), their variants and arguments.
 *
 * A variant is a constant of a pipeline, or, of products, the type of the weights (a kernel_type), for which there is a
 * binary each. Arguments are push constants of at most 128 bytes, in the order of the shader's block.
 */
#ifndef BACKEND_VULKAN_SHADERS_H
#define BACKEND_VULKAN_SHADERS_H

#include <stdint.h>

#include "kernels/kernels.h"

/* X(NAME, file, is there a binary for each type of weights?, rows of a workgroup, its constant) */
#define VULKAN_SHADERS(X) \
    X(LINEAR_FEW, "linear_few", 1, 8)   /* variant: type */ \
    X(LINEAR_ONE, "linear_few", 1, 1)   /* the same, a row a workgroup */ \
    X(LINEAR_MANY, "linear_many", 1, 0) /* variant: type */ \
    X(ELEMENTS, "elements", 0, 0)       /* variant: vulkan_element_op */ \
    X(NORM, "norm", 0, 0)               /* variant: 1: LayerNorm */ \
    X(STORE, "store", 0, 0)             /* variant: 1: rotated pairs are halves */ \
    X(STORE_INT8, "store_int8", 0, 0)   /* variant: as of STORE */ \
    X(KV_READ, "kv_read", 0, 0) \
    X(KV_ENCODE, "kv_encode", 0, 0) \
    X(SCORES, "attend_scores", 0, 0) /* variant: as of STORE */ \
    X(SOFTMAX, "attend_softmax", 0, 0) \
    X(VALUES, "attend_values", 0, 0) \
    X(JOIN, "attend_join", 0, 0) \
    X(ROUTE, "route", 0, 0)

typedef enum vulkan_shader {
#define X(NAME, file, by_type, rows) VULKAN_##NAME,
    VULKAN_SHADERS(X)
#undef X
        VULKAN_N_SHADERS
} vulkan_shader;

#define VULKAN_MAX_VARIANTS KERNEL_TYPE_END
#define VULKAN_MAX_ARGUMENTS 128

typedef enum vulkan_element_op {
    VULKAN_ADD,
    VULKAN_SCALE,
    VULKAN_CLAMP,
    VULKAN_SOFT_CAP,
    VULKAN_MULTIPLY,
    VULKAN_SCALE_ROWS,
    VULKAN_GATE_ROWS,
    VULKAN_GATHER,
    VULKAN_COPY_RUNS,
    VULKAN_XIELU,
    VULKAN_SUM_EXPERTS,
    VULKAN_WEIGH_GATHER,
    VULKAN_ACT = 16, /* + kernel_act */
} vulkan_element_op;

typedef struct vulkan_elements_args {
    uint64_t dst, src, other;
    uint32_t rows, width;
    float x, y, z, w;
    uint32_t src_width, dst_width, src_first, dst_first, src_step, dst_step, n;
} vulkan_elements_args;

typedef struct vulkan_linear_args {
    uint64_t src, dst, weights, bias, slices;
    uint32_t n_in, n_out, rows, row_bytes, src_width, dst_width, src_first, dst_first;
    uint64_t slice_bytes;
    uint32_t run_src, run_dst;
} vulkan_linear_args;

typedef struct vulkan_norm_args {
    uint64_t src, dst, weight, bias;
    uint32_t n, runs, weight_runs, n_runs;
    float eps;
} vulkan_norm_args;

typedef struct vulkan_store_args {
    uint64_t keys, values, angles, slots;
    uint32_t n_heads, key_dim, value_dim, rot_dim;
} vulkan_store_args;

typedef struct vulkan_scores_args {
    uint64_t queries, scores, rows, blocks, entries, heads, angles, shifts, weights, slopes;
    uint32_t n_heads, n_kv_heads, key_dim, rot_dim, stride, first_row;
    float scale, cap;
} vulkan_scores_args;

typedef struct vulkan_softmax_args {
    uint64_t scores, factors, rows, sinks;
    uint32_t n_heads, stride, first_row;
} vulkan_softmax_args;

typedef struct vulkan_values_args {
    uint64_t scores, sums, rows, blocks, heads;
    uint32_t n_heads, n_kv_heads, value_dim, stride, first_row, splits;
} vulkan_values_args;

typedef struct vulkan_join_args {
    uint64_t sums, factors, rows, dst;
    uint32_t n_heads, value_dim, first_row, splits, n_rows;
} vulkan_join_args;

typedef struct vulkan_route_args {
    uint64_t scores, values, correction, scales, experts, weights;
    uint32_t rows, n_experts, n_used, n_groups, n_groups_used, sums_to_1, sigmoid, corrected;
    float factor;
} vulkan_route_args;

/* ---- tables that the host makes for each step (shaders/attention.glsl, store.glsl) ---- */

typedef struct vulkan_row {
    uint32_t first_block, n_blocks, n_slots;
    int32_t pos;
} vulkan_row;

typedef struct vulkan_row_block {
    uint32_t entry, before;
    uint64_t visible;
} vulkan_row_block;

typedef struct vulkan_entry {
    uint64_t positions;
    int32_t first;
    uint32_t shift;
} vulkan_entry;

typedef struct vulkan_head {
    uint64_t keys, values;
    uint32_t key_element, value_element; /* vulkan_element_of */
} vulkan_head;

typedef struct vulkan_slot {
    uint64_t keys, values;
    uint32_t element, slot;
} vulkan_slot;

/* ---- KV as floats (shaders/kv_tasks.glsl) ---- */

typedef struct vulkan_kv_task {
    uint64_t head, floats;
    uint32_t element, dim, n, is_key;
} vulkan_kv_task;

typedef struct vulkan_kv_args {
    uint64_t tasks;
} vulkan_kv_args;

/* Elements of KV (shaders/kv_elements.glsl). */
enum { VULKAN_ELEMENT_F32,
       VULKAN_ELEMENT_F16,
       VULKAN_ELEMENT_INT8,
       VULKAN_ELEMENT_4BIT,
       VULKAN_ELEMENT_2BIT,
       VULKAN_ELEMENT_NONE = 255 };

#define VULKAN_SPLIT 512 /* slots whose values are added by one workgroup; a part of the arithmetic */
#define VULKAN_BLOCKS 4  /* row blocks of a workgroup of attend_scores */

/* Changes with the results of the shaders: a part of the arithmetic level. */
#define VULKAN_ARITHMETIC 1

#endif
