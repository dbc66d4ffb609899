#version 460
// SPDX-License-Identifier: Apache-2.0
// attend_scores.comp: scores of the queries of a group of heads for the slots that a row sees, an invocation a slot.
// A score is one sum over the dimensions, in ascending order. Grid: row blocks / BLOCKS, KV heads, rows of the tile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint HALVES = 0u;
#define BLOCKS 4u

layout(push_constant, scalar) uniform Arguments {
    uint64_t queries, scores; // f32 [rows of the step][n_heads * key_dim]; [rows of the tile][n_heads][stride]
    uint64_t rows, blocks, entries, heads;
    uint64_t angles, shifts;  // [rows of the step][rot_dim]: of their positions, 0: no rotation; [shifts][rot_dim]
    uint64_t weights, slopes; // of rotated queries, of ALiBi; 0: none
    uint n_heads, n_kv_heads, key_dim, rot_dim, stride, first_row;
    float scale, cap; // cap 0: none
    uint row_heads, entry_heads; // attention.glsl
} a;

#include "queries.glsl"

float finished(float sum, uint head, int distance) {
    precise float s = a.scale * sum;
    if (a.slopes != 0ul) {
        precise const float bias = get(a.slopes, head) * float(distance);
        s = s - bias;
    }
    if (a.cap > 0.0) s = a.cap * tanh_own(s / a.cap);
    return s;
}

// acc = the products of n queries with a key of floats.
void multiply_floats(Head h, uint slot, uint n, inout float acc[QUERIES]) {
    for (uint d = 0u; d < a.key_dim; d++) {
        const float k = float_element(h.keys, h.key_element, d * SLOTS + slot);
        for (uint q = 0u; q < QUERIES; q++) {
            precise const float p = query[min(q, n - 1u) * a.key_dim + d] * k;
            precise const float s = acc[q] + p;
            acc[q] = s;
        }
    }
}

// The same of a key of integers, a pair of dimensions at once.
void multiply_small(Head h, uint slot, uint n, inout float acc[QUERIES]) {
    for (uint i = 0u; i < a.key_dim / 2u; i++) {
        const vec2 k = small_key(h.keys, h.key_element, a.key_dim, slot, i);
        for (uint q = 0u; q < QUERIES; q++) {
            const uint at = min(q, n - 1u) * a.key_dim + 2u * i;
            precise const float p = query[at] * k.x;
            precise float s = acc[q] + p;
            precise const float r = query[at + 1u] * k.y;
            s = s + r;
            acc[q] = s;
        }
    }
    // a transform of both factors multiplies their products by its size, a power of two
    const uint size = h.key_element == ELEMENT_INT8 ? hadamard_size(a.key_dim) : 1u;
    for (uint q = 0u; q < QUERIES; q++) {
        precise const float s = acc[q] * inverse_of_power(size);
        acc[q] = s;
    }
}

void score_block(uint row, int pos, RowBlock b, Entry e, Head h, uint first, uint n) {
    const uint slot = gl_LocalInvocationID.x;
    if (!is_set(b.visible, slot)) return;
    float acc[QUERIES];
    for (uint q = 0u; q < QUERIES; q++) acc[q] = 0.0;
    if (h.key_element <= ELEMENT_F16) multiply_floats(h, slot, n, acc);
    else multiply_small(h, slot, n, acc);
    const int at = e.positions == 0ul ? e.first + int(slot) : e.first + int(U32(e.positions).v[slot]);
    const uint64_t i = b.before + bits_below(b.visible, slot);
    for (uint q = 0u; q < n; q++)
        put(a.scores, (uint64_t(row - a.first_row) * a.n_heads + first + q) * a.stride + i,
            finished(acc[q], first + q, pos - at));
}

void main() {
    const uint row = a.first_row + gl_WorkGroupID.z, kv_head = gl_WorkGroupID.y, group = a.n_heads / a.n_kv_heads;
    const Row r = Rows(a.rows).v[kv_head * a.row_heads + row];
    const uint at_once = min(QUERIES, QUERY_FLOATS / a.key_dim);
    const uint begin = gl_WorkGroupID.x * BLOCKS, end = min(begin + BLOCKS, r.n_blocks);
    for (uint first = 0u; first < group; first += at_once) {
        const uint n = min(at_once, group - first), head = kv_head * group + first;
        uint loaded = 0xffffffffu;
        for (uint i = begin; i < end; i++) {
            const RowBlock b = RowBlocks(a.blocks).v[block_at(r, i)];
            const Head h = Heads(a.heads).v[b.entry * a.n_kv_heads + kv_head];
            const Entry e = Entries(a.entries).v[kv_head * a.entry_heads + b.entry];
            const bool transformed = h.key_element == ELEMENT_INT8;
            const uint wanted = 2u * e.shift + uint(transformed); // uniform in the workgroup
            if (wanted != loaded) load_queries(row, head, n, e.shift, transformed);
            loaded = wanted;
            score_block(row, r.pos, b, e, h, head, n);
        }
    }
}
