#version 460
// SPDX-License-Identifier: Apache-2.0
// recurrent_convolve.comp: the convolution of a recurrent layer's inputs, and the move of its last inputs to the state.
// A sum is that of the bias and the products in the order of the tokens. Grid: channels / 64, rows of the longest run
// (a move: 1), runs.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "recurrence.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint OP = 0u; // vulkan_convolve_op of vulkan_shaders.h
#define SILU 0u
#define GATED 1u // rows are B | C | x, of n channels each: the result is C times the convolution of B x
#define MOVE 2u
#define MOVE_GATED 3u

layout(push_constant, scalar) uniform Arguments {
    uint64_t runs, src, dst; // f32 [rows][src_width], [rows][dst_width]: the first of n channels
    uint64_t weights, bias;  // f32 [n][taps], [n]; 0: none
    uint64_t at;             // bytes: the first channel's inputs in the states; rows of `channels` floats
    uint n, taps, channels, src_width, dst_width;
} a;

float product(uint row, uint c) {
    const uint64_t x = a.src + 4ul * uint64_t(row) * a.src_width;
    if (OP == SILU || OP == MOVE) return get(x, c);
    precise const float p = get(x, 2u * a.n + c) * get(x, c);
    return p;
}

// What the convolution reads at a row, which may be one before the run's first.
float read_input(Run run, int row, uint c) {
    if (row >= int(run.first)) return product(uint(row), c);
    return get(run.states + a.at, uint(row - int(run.first) + int(a.taps) - 1) * a.channels + c);
}

void main() {
    const uint c = gl_GlobalInvocationID.x;
    const Run run = Runs(a.runs).v[gl_WorkGroupID.z];
    if (c >= a.n) return;
    if (OP == MOVE || OP == MOVE_GATED) {
        if (run.copy != 0ul) return;
        for (uint i = 0u; i + 1u < a.taps; i++) // from later places, which are not yet written
            put(run.states + a.at, i * a.channels + c, read_input(run, int(run.end + i + 1u) - int(a.taps), c));
        return;
    }
    const uint row = run.first + gl_WorkGroupID.y;
    if (row >= run.end) return;
    precise float sum = a.bias != 0ul ? get(a.bias, c) : 0.0;
    for (uint i = 0u; i < a.taps; i++) {
        precise const float p = get(a.weights, c * a.taps + i) * read_input(run, int(row + i + 1u) - int(a.taps), c);
        sum = sum + p;
    }
    if (OP == SILU) sum = times_sigmoid(sum, sum);
    else sum = get(a.src, uint64_t(row) * a.src_width + a.n + c) * sum;
    put(a.dst, uint64_t(row) * a.dst_width + c, sum);
}
