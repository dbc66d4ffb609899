#version 460
// SPDX-License-Identifier: Apache-2.0
// codes.comp: rows of activations as codes of 8 bits (int8.glsl), once for all products that read them.
//
// Workgroup: 16 pieces of a row, 8 invocations a piece, 4 elements an invocation. Grid: pieces / 16, rows, runs.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "int8.glsl"

layout(local_size_x = 128) in;

layout(push_constant, scalar) uniform Arguments {
    uint64_t src, dst; // f32 [rows][src_width]; codes
    uint n_in, rows, src_width, src_first, run_src;
} a;

shared uint peaks[128], words[128];

void main() {
    const uint t = gl_LocalInvocationID.x, own = t & ~7u, row = gl_WorkGroupID.y, run = gl_WorkGroupID.z;
    const uint n_pieces = a.n_in / 32u, piece = 16u * gl_WorkGroupID.x + t / 8u;
    const uint64_t from = uint64_t(row) * a.src_width + a.src_first + run * a.run_src + 32u * piece + 4u * (t & 7u);
    float x[4];
    uint peak = 0u;
    for (uint k = 0u; k < 4u; k++) {
        x[k] = piece < n_pieces ? get(a.src, from + k) : 0.0;
        peak = max(peak, floatBitsToUint(x[k]) & 0x7fffffffu);
    }
    peaks[t] = peak;
    barrier();
    for (uint k = 0u; k < 8u; k++) peak = max(peak, peaks[own + k]);
    const float inverse = inverse_scale(peak);
    uint word = 0u;
    for (uint k = 0u; k < 4u; k++) word |= code_of(x[k], inverse) << (8u * k);
    words[t] = word;
    barrier();
    if (piece >= n_pieces) return;
    const uint64_t to = a.dst + 4ul * PIECE_WORDS * ((uint64_t(run) * n_pieces + piece) * a.rows + row);
    U32(to).v[t & 7u] = word;
    if (t != own) return;
    int sums[2] = int[2](0, 0);
    for (uint k = 0u; k < 8u; k++) sums[k >> 2] += sum4(words[own + k]);
    U32(to).v[8] = floatBitsToUint(scale_of(peak));
    U32(to).v[9] = (uint(sums[0]) & 0xffffu) | uint(sums[1]) << 16;
}
