// SPDX-License-Identifier: Apache-2.0
// linear.glsl: the arguments of products, and the order of their sums, which every shader of products shares:
//
//   a row of weights is divided into pieces of 32 elements;  y = bias + sum of products of pieces, in ascending order
//
//   in f32   a piece's product is the sum of 32 products of floats, in ascending order. Weights of every type
//   in int8  activations are codes of 8 bits (int8.glsl), a piece's product is an integer, scaled. Quantized weights
//
// So a result depends on its row of weights, its row of activations and n_in alone: neither on the shader, nor on the
// instructions by which it adds integers.
layout(push_constant, scalar) uniform Arguments {
    uint64_t src;     // f32 [rows][src_width]; of shaders that read codes: those of all rows (int8.glsl)
    uint64_t dst;     // f32 [rows][dst_width]
    uint64_t weights; // [slices][n_out] rows of row_bytes
    uint64_t bias;    // f32 [slices][n_out]; 0: none
    uint64_t tiles;   // u32 [workgroups of rows][3]: a slice of the weights, its first row, its rows; 0: rows in order
    uint n_in, n_out, rows, row_bytes;
    uint src_width, dst_width, src_first, dst_first; // columns
    uint64_t slice_bytes;
    uint run_src, run_dst; // of linear_runs: slice z of the weights reads and writes columns z * run_* further
} a;

// What a workgroup computes: `n` rows from `first` on, with a slice of the weights, in the columns of a run.
struct row_range {
    uint slice, run, first, n;
};

// The rows of this workgroup, at most `most`; with tiles maybe none.
row_range own_rows(uint most) {
    const uint y = gl_WorkGroupID.y, run = gl_WorkGroupID.z, first = y * most;
    // The address is chosen, not the load: Mesa 26's lavapipe executes a load of one address for all, even if it is not
    // to be executed.
    const bool listed = a.tiles != 0ul;
    U32 tile = U32(listed ? a.tiles + 12ul * y : a.src);
    const uint slice = tile.v[0], from = tile.v[1], n = tile.v[2];
    if (listed) return row_range(slice, 0u, from, n);
    return row_range(run, run, first, min(most, a.rows - first));
}
