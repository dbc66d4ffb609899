#version 460
// SPDX-License-Identifier: Apache-2.0
// index_scores.comp: scores of an indexer (DeepSeek Sparse Attention) for the slots that a row sees, an invocation a
// slot: the sum over heads, in ascending order, of weight * max(0, query . key); a product is one sum over the
// dimensions, in ascending order. Grid: row blocks / BLOCKS, rows of the tile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint HALVES = 0u;
#define BLOCKS 4u

struct IndexKeys { // of an entry: [dim][64]
    uint64_t keys;
    uint is_f16, unused;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer AllKeys { IndexKeys v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t queries, weights, scores; // f32 [rows of the step][n_heads * dim], [n_heads]; [rows of the tile][stride]
    uint64_t rows, blocks, entries, keys;
    uint64_t angles, shifts; // [rows of the step][rot_dim], [shifts][rot_dim]
    uint n_heads, dim, rot_dim, stride, first_row, top_k;
    float scale, weight_scale;
} a;

shared float query[QUERY_FLOATS]; // [QUERIES][dim]

float rotated(uint row, uint shift, uint64_t x, uint d) {
    if (d >= a.rot_dim) return get(x, d);
    const uint n = a.rot_dim / 2u, i = HALVES != 0u ? d % n : d / 2u;
    const bool second = HALVES != 0u ? d >= n : (d & 1u) != 0u;
    const float xa = get(x, HALVES != 0u ? i : 2u * i), xb = get(x, HALVES != 0u ? i + n : 2u * i + 1u);
    const uint64_t own = a.angles + 4ul * a.rot_dim * row, moved = a.shifts + 4ul * a.rot_dim * shift;
    float c = get(own, 2u * i), s = get(own, 2u * i + 1u);
    if (shift != 0u) { // the difference of the angles
        const float mc = get(moved, 2u * i), ms = get(moved, 2u * i + 1u);
        precise const float both_c = c * mc + s * ms;
        precise const float both_s = s * mc - c * ms;
        c = both_c;
        s = both_s;
    }
    precise const float p = second ? xb * c : xa * c;
    precise const float q = second ? xa * s : -(xb * s);
    precise const float y = p + q;
    return y;
}

// query = the queries of heads [first, first + n), rotated for a shift.
void load_queries(uint row, uint first, uint n, uint shift) {
    const uint64_t x = a.queries + 4ul * a.dim * (uint64_t(row) * a.n_heads + first);
    barrier();
    for (uint j = gl_LocalInvocationID.x; j < n * a.dim; j += 64u)
        query[j] = rotated(row, shift, x + 4ul * a.dim * (j / a.dim), j % a.dim);
    barrier();
}

// total + what n heads give for a slot of a block.
float add_heads(float total, RowBlock b, uint64_t weights, uint n) {
    const uint slot = gl_LocalInvocationID.x;
    const IndexKeys k = AllKeys(a.keys).v[b.entry];
    precise float acc[QUERIES];
    for (uint q = 0u; q < QUERIES; q++) acc[q] = 0.0;
    for (uint d = 0u; d < a.dim; d++) {
        const uint at = d * 64u + slot;
        const float v = k.is_f16 == 0u ? F32(k.keys).v[at] : f16_to_f32(uint(U16(k.keys).v[at]));
        for (uint q = 0u; q < QUERIES; q++) {
            precise const float p = query[min(q, n - 1u) * a.dim + d] * v;
            acc[q] = acc[q] + p;
        }
    }
    precise float sum = total;
    for (uint q = 0u; q < n; q++) {
        precise const float product = acc[q] * a.scale;
        precise const float weight = get(weights, q) * a.weight_scale;
        precise const float p = weight * max(product, 0.0);
        sum = sum + p;
    }
    return sum;
}

void main() {
    const uint row = a.first_row + gl_WorkGroupID.y, at_once = min(QUERIES, QUERY_FLOATS / a.dim);
    const Row r = Rows(a.rows).v[row];
    const uint begin = gl_WorkGroupID.x * BLOCKS, end = min(begin + BLOCKS, r.n_blocks);
    float total[BLOCKS] = float[BLOCKS](0.0, 0.0, 0.0, 0.0);
    if (r.n_slots <= a.top_k) return; // all are chosen
    for (uint first = 0u; first < a.n_heads; first += at_once) {
        const uint n = min(at_once, a.n_heads - first);
        uint loaded = 0xffffffffu;
        for (uint i = begin; i < end; i++) {
            const RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
            const uint shift = Entries(a.entries).v[b.entry].shift;
            if (shift != loaded) load_queries(row, first, n, shift);
            loaded = shift;
            if (is_set(b.visible, gl_LocalInvocationID.x))
                total[i - begin] =
                    add_heads(total[i - begin], b, a.weights + 4ul * (uint64_t(row) * a.n_heads + first), n);
        }
    }
    for (uint i = begin; i < end; i++) {
        const RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
        if (is_set(b.visible, gl_LocalInvocationID.x))
            put(a.scores, uint64_t(row - a.first_row) * a.stride + b.before + bits_below(b.visible, gl_LocalInvocationID.x),
                total[i - begin]);
    }
}
