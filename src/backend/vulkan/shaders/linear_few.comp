#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_few.comp: dst = weights * src + bias for up to 8 rows a workgroup: of weights, each is read once for them.
//
// Workgroup: 8 outputs of 16 lanes, which read neighbouring pieces. Grid: outputs / 8, rows / ROWS, slices of
// linear_runs. With `slices`, a workgroup has one row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
#include "linear.glsl"

#define OUTPUTS 8u
layout(local_size_x = 128) in; // LANES * OUTPUTS
layout(constant_id = 0) const uint ROWS = 8u; // of a workgroup, at most 8

shared float sums[8][OUTPUTS][LANES];

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES, own = gl_LocalInvocationID.x / LANES;
    const uint o = gl_WorkGroupID.x * OUTPUTS + own, first = gl_WorkGroupID.y * ROWS, run = gl_WorkGroupID.z;
    const uint n = min(ROWS, a.rows - first);
    const uint slice = a.slices != 0ul ? U32(a.slices).v[first] : run;
    if (o < a.n_out) {
        const uint64_t row = a.weights + a.slice_bytes * slice + uint64_t(a.row_bytes) * o;
        const uint n_pieces = (a.n_in + 31u) / 32u, column = a.src_first + run * a.run_src;
        precise float acc[8];
        for (uint r = 0u; r < ROWS; r++) acc[r] = 0.0;
        for (uint i = 2u * lane; i < 2u * n_pieces; i += (i & 1u) == 0u ? 1u : 2u * LANES - 1u) {
            float w[16];
            unpack(row, i, a.n_in, w);
            for (uint r = 0u; r < n; r++) {
                F32 x = F32(a.src + 4ul * (uint64_t(first + r) * a.src_width + column));
                for (uint k = 0u; k < 16u; k++) {
                    const uint c = 16u * i + k;
                    const float v = c < a.n_in ? x.v[c] : 0.0;
                    precise const float p = w[k] * v;
                    acc[r] = acc[r] + p;
                }
            }
        }
        for (uint r = 0u; r < n; r++) sums[r][own][lane] = acc[r];
    }
    barrier();
    // each of the 128 invocations finishes at most one output of one row
    const uint r = gl_LocalInvocationID.x / OUTPUTS, q = gl_LocalInvocationID.x % OUTPUTS;
    const uint to = gl_WorkGroupID.x * OUTPUTS + q;
    if (r >= n || to >= a.n_out) return;
    precise float sum = 0.0;
    for (uint l = 0u; l < LANES; l++) sum = sum + sums[r][q][l];
    if (a.bias != 0ul) sum = sum + get(a.bias, slice * a.n_out + to);
    put(a.dst, uint64_t(first + r) * a.dst_width + a.dst_first + run * a.run_dst + to, sum);
}
