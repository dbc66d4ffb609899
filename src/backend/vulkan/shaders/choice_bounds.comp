#version 460
// SPDX-License-Identifier: Apache-2.0
// choice_bounds.comp: upper bounds of the scores of groups of slots for a row's queries (backend/slot_bounds.h), an
// invocation a group: the sum over dimensions, in ascending order, of the larger product of the query with the largest
// and the smallest key. Grid: groups / 64, KV heads, rows of the tile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"
#include "chooser.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint HALVES = 0u;

layout(push_constant, scalar) uniform Arguments {
    uint64_t queries, bounds; // f32 [rows of the step][n_heads * key_dim]; [rows of the tile][n_heads][stride]
    uint64_t rows, choosers, entries;
    uint64_t angles, shifts, weights, slopes; // attend_scores.comp
    uint n_heads, n_kv_heads, key_dim, rot_dim, stride, first_row, layer;
    float scale;
    int window;          // 0: none
    uint is_chunked;     // the window is a chunk
} a;

#include "queries.glsl"

bool is_reached(int pos, int last) {
    const int window = a.window > 0 && a.is_chunked != 0u ? pos % a.window + 1 : a.window;
    return window == 0 || pos - last < window;
}

// Bounds of the invocation's group for heads [first, first + n).
void bound(Chooser c, Group g, uint kv_head, uint group, int pos, uint first, uint n, uint64_t to) {
    const uint n_blocks = (c.n_groups + 63u) / 64u;
    const uint64_t block = (uint64_t(a.layer) * a.n_kv_heads + kv_head) * n_blocks + group / 64u;
    const uint64_t keys = c.keys + 256ul * a.key_dim * block;
    float acc[QUERIES];
    for (uint q = 0u; q < QUERIES; q++) acc[q] = 0.0;
    for (uint d = 0u; d < a.key_dim; d++) {
        const float high = f16_to_f32(u16_at(keys + 128ul * d + 2u * (group % 64u)));
        const float low = f16_to_f32(u16_at(keys + 128ul * (a.key_dim + d) + 2u * (group % 64u)));
        for (uint q = 0u; q < QUERIES; q++) {
            const float x = query[min(q, n - 1u) * a.key_dim + d];
            precise const float p = x * high;
            precise const float r = x * low;
            precise const float s = acc[q] + max(p, r);
            acc[q] = s;
        }
    }
    for (uint q = 0u; q < n; q++) {
        precise float s = a.scale * acc[q];
        if (a.slopes != 0ul) {
            precise const float bias = get(a.slopes, first + q) * float(pos - g.pos);
            s = s - bias;
        }
        put(to, uint64_t(first + q) * a.stride + group, is_reached(pos, g.pos) ? s : uintBitsToFloat(0xff800000u));
    }
}

// The number of the shift of a group's view.
uint shift_of(Chooser c, uint group) {
    return Entries(a.entries).v[c.first_entry + Groups(c.groups).v[group].entry].shift;
}

void main() {
    const uint row = a.first_row + gl_WorkGroupID.z, kv_head = gl_WorkGroupID.y, group_heads = a.n_heads / a.n_kv_heads;
    const Chooser c = Choosers(a.choosers).v[row];
    const uint begin = gl_WorkGroupID.x * 64u, own = begin + gl_LocalInvocationID.x;
    if (c.keys == 0ul || begin >= c.n_groups) return;
    const uint end = min(begin + 64u, c.n_groups), at_once = min(QUERIES, QUERY_FLOATS / a.key_dim);
    const int pos = Rows(a.rows).v[row].pos;
    const uint64_t to = a.bounds + 4ul * a.stride * a.n_heads * uint64_t(gl_WorkGroupID.z);
    for (uint first = 0u; first < group_heads; first += at_once) {
        const uint n = min(at_once, group_heads - first), head = kv_head * group_heads + first;
        for (uint g = begin, next; g < end; g = next) { // groups of one shift
            const uint shift = shift_of(c, g);
            for (next = g + 1u; next < end && shift_of(c, next) == shift; next++) {}
            load_queries(row, head, n, shift, false);
            if (own >= g && own < next) bound(c, Groups(c.groups).v[own], kv_head, own, pos, head, n, to);
        }
    }
}
