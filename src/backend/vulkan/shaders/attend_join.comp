#version 460
// SPDX-License-Identifier: Apache-2.0
// attend_join.comp: adds the sums of a query's splits in ascending order, and multiplies by its factor. Grid: elements.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(local_size_x = 64) in;
#define SPLIT 512u

layout(push_constant, scalar) uniform Arguments {
    uint64_t sums, factors, rows, dst; // dst: f32 [rows of the step][n_heads][value_dim]
    uint n_heads, value_dim, first_row, splits, n_rows, group, row_heads;
} a;

void main() {
    const uint64_t n = uint64_t(a.n_rows) * a.n_heads * a.value_dim;
    const uint64_t step = uint64_t(gl_NumWorkGroups.x) * gl_WorkGroupSize.x;
    for (uint64_t i = gl_GlobalInvocationID.x; i < n; i += step) {
        const uint64_t query = i / a.value_dim;
        const uint row = uint(query / a.n_heads);
        const uint d = uint(i % a.value_dim), kv_head = uint(query % a.n_heads) / a.group;
        const uint n_slots = Rows(a.rows).v[kv_head * a.row_heads + a.first_row + row].n_slots;
        precise float sum = 0.0;
        for (uint s = 0u; s * SPLIT < n_slots; s++) sum = sum + get(a.sums, (query * a.splits + s) * a.value_dim + d);
        sum = sum * get(a.factors, query);
        put(a.dst, uint64_t(a.first_row) * a.n_heads * a.value_dim + i, sum);
    }
}
