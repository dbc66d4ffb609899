// SPDX-License-Identifier: Apache-2.0
// linear.glsl: the arguments of products, and the order of their sums, which linear_few and linear_many share:
//
//   a row of weights is divided into pieces of 32 elements; lane l of 16 adds the products of pieces l, l + 16, ...
//   one after another; the lanes' sums are added in ascending order, then the bias
//
// So a result depends on its row of weights, its row of activations and n_in alone.
layout(push_constant, scalar) uniform Arguments {
    uint64_t src;     // f32 [rows][src_width]
    uint64_t dst;     // f32 [rows][dst_width]
    uint64_t weights; // [slices][n_out] rows of row_bytes
    uint64_t bias;    // f32 [slices][n_out]; 0: none
    uint64_t slices;  // u32 [rows]: the slice of each row; 0: slice 0 for all
    uint n_in, n_out, rows, row_bytes;
    uint src_width, dst_width, src_first, dst_first; // columns
    uint64_t slice_bytes;
    uint run_src, run_dst; // of linear_runs: slice z of the weights reads and writes columns z * run_* further
} a;

#define LANES 16u
