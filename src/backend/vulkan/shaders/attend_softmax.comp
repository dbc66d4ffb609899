#version 460
// SPDX-License-Identifier: Apache-2.0
// attend_softmax.comp: scores become weights up to a factor, which is stored for each query. Grid: heads, rows of the
// tile.
//
// Order of the sum: invocation i adds slots i, i + 128, ...; their sums are added pair by pair; then the sink.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(local_size_x = 128) in;

layout(push_constant, scalar) uniform Arguments {
    uint64_t scores, factors, rows, sinks; // f32 [rows of the tile][n_heads][stride]; [rows of the tile][n_heads]
    uint n_heads, stride, first_row, group, row_heads; // group: query heads of a KV head
} a;

shared float partial[128];

void main() {
    const uint head = gl_WorkGroupID.x, row = gl_WorkGroupID.y, i = gl_LocalInvocationID.x;
    const uint n = Rows(a.rows).v[head / a.group * a.row_heads + a.first_row + row].n_slots;
    const uint64_t list = a.scores + 4ul * a.stride * (uint64_t(row) * a.n_heads + head);
    float highest = -3.4028234e38;
    for (uint k = i; k < n; k += 128u) highest = max(highest, get(list, k));
    if (a.sinks != 0ul) highest = max(highest, get(a.sinks, head));
    partial[i] = highest;
    barrier();
    for (uint d = 64u; d > 0u; d >>= 1) {
        if (i < d) partial[i] = max(partial[i], partial[i + d]);
        barrier();
    }
    highest = partial[0];
    barrier();
    precise float sum = 0.0;
    for (uint k = i; k < n; k += 128u) {
        precise const float below = get(list, k) - highest;
        const float e = exp_own(below);
        put(list, k, e);
        sum = sum + e;
    }
    partial[i] = sum;
    barrier();
    for (uint d = 64u; d > 0u; d >>= 1) {
        if (i < d) {
            precise const float s = partial[i] + partial[i + d];
            partial[i] = s;
        }
        barrier();
    }
    if (i > 0u) return;
    precise float total = partial[0];
    if (a.sinks != 0ul) {
        precise const float below = get(a.sinks, head) - highest;
        total = total + exp_own(below);
    }
    put(a.factors, row * a.n_heads + head, total > 0.0 ? 1.0 / total : 0.0);
}
