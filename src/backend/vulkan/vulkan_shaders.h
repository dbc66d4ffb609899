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
    X(LINEAR_FEW, "linear_few", 1, 8)    /* variant: type */ \
    X(LINEAR_ONE, "linear_few", 1, 1)    /* the same, a row a workgroup */ \
    X(LINEAR_MANY, "linear_many", 1, 0)  /* variant: type */ \
    X(INT8_FEW, "linear_few_int8", 1, 8) /* in int8, by products of single codes */ \
    X(INT8_ONE, "linear_few_int8", 1, 1) \
    X(INT8_MANY, "linear_many_int8", 1, 0) \
    X(DOT_FEW, "linear_few_dot", 1, 8) /* the same by dot products of 4 */ \
    X(DOT_ONE, "linear_few_dot", 1, 1) \
    X(DOT_MANY, "linear_many_dot", 1, 0) \
    X(MATRIX_MANY, "linear_matrix", 1, 0) /* the same by cooperative matrices; constants: vulkan_matrices */ \
    X(CODES, "codes", 0, 0) \
    X(ELEMENTS, "elements", 0, 0)     /* variant: vulkan_element_op */ \
    X(NORM, "norm", 0, 0)             /* variant: vulkan_norm_kind */ \
    X(STORE, "store", 0, 0)           /* variant: 1: rotated pairs are halves */ \
    X(STORE_INT8, "store_int8", 0, 0) /* variant: as of STORE */ \
    X(KV_READ, "kv_read", 0, 0) \
    X(KV_ENCODE, "kv_encode", 0, 0) \
    X(SCORES, "attend_scores", 0, 0) /* variant: as of STORE */ \
    X(SOFTMAX, "attend_softmax", 0, 0) \
    X(VALUES, "attend_values", 0, 0) /* variant: 1: of latent layers */ \
    X(JOIN, "attend_join", 0, 0) \
    X(ROUTE, "route", 0, 0) \
    X(SORT_ROWS, "sort_rows", 0, 0) \
    X(CONVOLVE, "recurrent_convolve", 0, 0) /* variant: vulkan_convolve_op */ \
    X(RATES, "recurrent_rates", 0, 0)       /* variant: 1: sigmoids */ \
    X(SCAN, "recurrent_scan", 0, 0)         /* variant: vulkan_scan_kind */ \
    X(GATE, "recurrent_gate", 0, 0)         /* variant: 1: sigmoids */ \
    X(STREAMS, "streams", 0, 0)             /* variant: vulkan_stream_op */ \
    X(INDEX_SCORES, "index_scores", 0, 0)   /* variant: as of STORE */ \
    X(INDEX_CHOOSE, "index_choose", 0, 0) \
    X(COPY_ROWS, "copy_rows", 0, 0) \
    X(OBSERVE, "observe", 0, 0) \
    X(DEVIATE, "deviate", 0, 0) /* variant: as of STORE */ \
    X(BOUND_KEYS, "bound_keys", 0, 0) \
    X(CHOICE_BOUNDS, "choice_bounds", 0, 0) /* variant: as of STORE */ \
    X(CHOICE_HIGHEST, "choice_highest", 0, 0) \
    X(CHOICE_MASKS, "choice_masks", 0, 0)

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

typedef enum vulkan_norm_kind { VULKAN_RMS_NORM,
                                VULKAN_LAYER_NORM,
                                VULKAN_LENGTH,
                                VULKAN_INVERSE_LENGTH } vulkan_norm_kind;

typedef enum vulkan_convolve_op { VULKAN_CONVOLVE_SILU,
                                  VULKAN_CONVOLVE_GATED, /* short convolutions */
                                  VULKAN_MOVE_INPUTS,
                                  VULKAN_MOVE_GATED } vulkan_convolve_op;

typedef enum vulkan_scan_kind { VULKAN_SCAN_MAMBA2,
                                VULKAN_SCAN_MAMBA1,
                                VULKAN_SCAN_DELTA,
                                VULKAN_SCAN_KIMI,
                                VULKAN_SCAN_DECAYED_SUM } vulkan_scan_kind;

typedef struct vulkan_elements_args {
    uint64_t dst, src, other, order;
    uint32_t rows, width;
    float x, y, z, w;
    uint32_t src_width, dst_width, src_first, dst_first, src_step, dst_step, n;
} vulkan_elements_args;

typedef struct vulkan_linear_args {
    uint64_t src, dst, weights, bias, tiles;
    uint32_t n_in, n_out, rows, row_bytes, src_width, dst_width, src_first, dst_first;
    uint64_t slice_bytes;
    uint32_t run_src, run_dst;
} vulkan_linear_args;

typedef struct vulkan_codes_args {
    uint64_t src, dst;
    uint32_t n_in, rows, src_width, src_first, run_src;
} vulkan_codes_args;

#define VULKAN_PIECE_BYTES 40 /* of 32 activations as codes (shaders/int8.glsl) */

typedef struct vulkan_norm_args {
    uint64_t src, dst, weight, bias;
    uint32_t n, runs, weight_runs, n_runs;
    float eps, scale;
    uint32_t stride;
} vulkan_norm_args;

typedef struct vulkan_store_args {
    uint64_t keys, values, angles, slots;
    uint32_t n_heads, key_dim, value_dim, rot_dim;
    uint64_t deviations;
} vulkan_store_args;

typedef struct vulkan_scores_args {
    uint64_t queries, scores, rows, blocks, entries, heads, angles, shifts, weights, slopes;
    uint32_t n_heads, n_kv_heads, key_dim, rot_dim, stride, first_row;
    float scale, cap;
    uint32_t row_heads, entry_heads;
} vulkan_scores_args;

typedef struct vulkan_softmax_args {
    uint64_t scores, factors, rows, sinks;
    uint32_t n_heads, stride, first_row, group, row_heads;
} vulkan_softmax_args;

typedef struct vulkan_values_args {
    uint64_t scores, sums, rows, blocks, heads;
    uint32_t n_heads, n_kv_heads, value_dim, stride, first_row, splits, row_heads;
} vulkan_values_args;

typedef struct vulkan_join_args {
    uint64_t sums, factors, rows, dst;
    uint32_t n_heads, value_dim, first_row, splits, n_rows, group, row_heads;
} vulkan_join_args;

typedef struct vulkan_route_args {
    uint64_t scores, values, correction, scales, experts, weights;
    uint32_t rows, n_experts, n_used, n_groups, n_groups_used, sums_to_1, sigmoid, corrected;
    float factor;
} vulkan_route_args;

#define VULKAN_MOST_EXPERTS 1024 /* of sort_rows.comp */

typedef struct vulkan_sort_args {
    uint64_t experts, order, places, tiles;
    uint32_t rows, n_experts, most, n_tiles;
} vulkan_sort_args;

typedef struct vulkan_convolve_args {
    uint64_t runs, src, dst, weights, bias, at;
    uint32_t n, taps, channels, src_width, dst_width;
} vulkan_convolve_args;

typedef struct vulkan_rates_args {
    uint64_t src, bias, factors, steps, decays;
    uint32_t rows, n, src_width, per, run, step;
} vulkan_rates_args;

typedef struct vulkan_scan_args {
    uint64_t runs, x, decays, rates, bc, dst, at, copy_at;
    uint32_t n_heads, dim, n_state, n_groups, width, neighbours, has_products;
} vulkan_scan_args;

typedef struct vulkan_gate_args {
    uint64_t y, x, z, d;
    uint32_t rows, n, x_width, z_width, per;
} vulkan_gate_args;

typedef enum vulkan_stream_op { VULKAN_MIX,
                                VULKAN_MATCH,
                                VULKAN_SPARSIFY } vulkan_stream_op;

typedef struct vulkan_streams_args {
    uint64_t dst, factors, src[4];
    uint32_t rows, width, n, factors_width;
    float x;
} vulkan_streams_args;

typedef struct vulkan_index_scores_args {
    uint64_t queries, weights, scores, rows, blocks, entries, keys, angles, shifts;
    uint32_t n_heads, dim, rot_dim, stride, first_row, top_k;
    float scale, weight_scale;
} vulkan_index_scores_args;

typedef struct vulkan_index_choose_args {
    uint64_t scores, rows, blocks, chosen;
    uint32_t stride, first_row, top_k;
} vulkan_index_choose_args;

typedef struct vulkan_copy_rows_args {
    uint64_t copies; /* kv_row_copy */
    uint32_t n;
} vulkan_copy_rows_args;

typedef struct vulkan_observe_args {
    uint64_t scores, factors, rows, blocks, norms, dst;
    uint32_t first_entry, n_entries, n_heads, group, heads_of_list, stride, row_heads, first_row, begin, end, one,
        maximum, adds;
} vulkan_observe_args;

typedef struct vulkan_bound_keys_args {
    uint64_t heads, places, groups, keys;
    uint32_t n_groups, n_kv_heads, dim;
    int32_t window, end;
} vulkan_bound_keys_args;

typedef struct vulkan_choice_bounds_args {
    uint64_t queries, bounds, rows, choosers, entries, angles, shifts, weights, slopes;
    uint32_t n_heads, n_kv_heads, key_dim, rot_dim, stride, first_row, layer;
    float scale;
    int32_t window;
    uint32_t is_chunked;
} vulkan_choice_bounds_args;

typedef struct vulkan_choice_highest_args {
    uint64_t bounds, choosers;
    uint32_t n_heads, n_kv_heads, stride, first_row;
} vulkan_choice_highest_args;

typedef struct vulkan_choice_masks_args {
    uint64_t bounds, choosers, rows, blocks, to_rows, to_blocks;
    uint32_t n_heads, n_kv_heads, stride, first_row, row_heads, n_rows, n_blocks;
} vulkan_choice_masks_args;

/* ---- tables that the host makes for each step (attention.glsl, store.glsl, recurrence.glsl, chooser.glsl) ---- */

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

typedef struct vulkan_index_keys {
    uint64_t keys;
    uint32_t is_f16, unused;
} vulkan_index_keys;

typedef struct vulkan_slot {
    uint64_t keys, values;
    uint32_t element, slot;
} vulkan_slot;

typedef struct vulkan_chooser {
    uint64_t keys, groups, members;
    uint32_t n_groups, most, first_entry, n_entries;
} vulkan_chooser;

typedef struct vulkan_run {
    uint64_t states, copy;
    uint32_t first, end;
} vulkan_run;

/* ---- tables of listed slots (shaders/bound_keys.comp, chooser.glsl) ---- */

typedef struct vulkan_place {
    uint32_t entry, slot;
    int32_t pos;
} vulkan_place;

typedef struct vulkan_group {
    uint32_t entry;
    int32_t pos;
} vulkan_group;

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
#define VULKAN_BLOCKS 4  /* row blocks of a workgroup of attend_scores, index_scores */

/* Changes with the results of the shaders: a part of the arithmetic level, as is the arithmetic of products. */
#define VULKAN_ARITHMETIC 2

#endif
