#version 460
// SPDX-License-Identifier: Apache-2.0
// attend_values.comp: sums of weighted values over SPLIT slots of a row, in the order of their numbers, an invocation a
// dimension. Values of latent layers are parts of their keys, in the order of keys. Grid: splits, KV heads, rows of the
// tile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#include "kv_elements.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint LATENT = 0u; // values are [value_dim][64]; else [64][value_dim]
#define SPLIT 512u // attend_join, vulkan_attention.c

layout(push_constant, scalar) uniform Arguments {
    uint64_t scores, sums; // f32 [rows of the tile][n_heads][stride]; [rows of the tile][n_heads][splits][value_dim]
    uint64_t rows, blocks, heads;
    uint n_heads, n_kv_heads, value_dim, stride, first_row, splits, row_heads;
} a;

float value(Head h, uint slot, uint d) {
    if (h.value_element <= ELEMENT_F16) return float_element(h.values, h.value_element, slot * a.value_dim + d);
    return small_value(h.values, h.value_element, a.value_dim, slot, d);
}

// Adds the slots of a block with numbers in [begin, end) to the sums of n heads.
void add_block(RowBlock b, Head h, uint64_t list, uint n, uint d, uint begin, uint end, inout float acc[QUERIES]) {
    uint number = b.before;
    for (uint slot = 0u; slot < 64u && number < end; slot++) {
        if (!is_set(b.visible, slot)) continue;
        if (number >= begin) {
            const float v = LATENT != 0u ? float_element(h.values, h.value_element, d * 64u + slot) : value(h, slot, d);
            for (uint q = 0u; q < QUERIES; q++) {
                precise const float p = get(list, uint64_t(min(q, n - 1u)) * a.stride + number) * v;
                precise const float s = acc[q] + p;
                acc[q] = s;
            }
        }
        number++;
    }
}

// The first block of a row with a slot whose number is `begin` or more.
uint find_block(Row r, uint begin) {
    uint low = 0u, high = r.n_blocks;
    while (high - low > 1u) {
        const uint middle = (low + high) / 2u;
        if (RowBlocks(a.blocks).v[r.first_block + middle].before <= begin) low = middle;
        else high = middle;
    }
    return low;
}

void main() {
    const uint row = gl_WorkGroupID.z, kv_head = gl_WorkGroupID.y, group = a.n_heads / a.n_kv_heads;
    const Row r = Rows(a.rows).v[kv_head * a.row_heads + a.first_row + row];
    const uint begin = gl_WorkGroupID.x * SPLIT, end = min(begin + SPLIT, r.n_slots);
    if (begin >= end) return;
    const uint first_block = find_block(r, begin);
    for (uint first = 0u; first < group; first += QUERIES) {
        const uint n = min(QUERIES, group - first);
        const uint64_t query = uint64_t(row) * a.n_heads + kv_head * group + first;
        for (uint d = gl_LocalInvocationID.x; d < a.value_dim; d += 64u) {
            float acc[QUERIES];
            for (uint q = 0u; q < QUERIES; q++) acc[q] = 0.0;
            for (uint i = first_block; i < r.n_blocks; i++) {
                const RowBlock b = RowBlocks(a.blocks).v[block_at(r, i)];
                if (b.before >= end) break;
                add_block(b, Heads(a.heads).v[b.entry * a.n_kv_heads + kv_head], a.scores + 4ul * a.stride * query, n, d,
                          begin, end, acc);
            }
            for (uint q = 0u; q < n; q++)
                put(a.sums, ((query + q) * a.splits + gl_WorkGroupID.x) * a.value_dim + d, acc[q]);
        }
    }
}
