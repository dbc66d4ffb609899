#version 460
// SPDX-License-Identifier: Apache-2.0
// index_choose.comp: leaves the top_k slots of each row with the highest scores, of equal ones the earlier, as masks of
// the row's blocks: a workgroup a row. Grid: rows of the tile.
//
// The k-th highest score is found digit by digit, by counts of the scores that share the digits before; scores above it
// are chosen, and of those equal to it the first ones.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

#define SIDE 128u
layout(local_size_x = 128) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) writeonly buffer ChosenBlocks { RowBlock v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t scores, rows, blocks, chosen; // f32 [rows of the tile][stride]; as blocks: what is left of them
    uint stride, first_row, top_k;
} a;

shared uint above[SIDE], equal[SIDE];

#include "choose.glsl"

void main() {
    const uint own = gl_LocalInvocationID.x, tile_row = gl_WorkGroupID.x;
    const Row r = Rows(a.rows).v[a.first_row + tile_row];
    const uint64_t scores = a.scores + 4ul * uint64_t(tile_row) * a.stride;
    const uint each = (r.n_blocks + SIDE - 1u) / SIDE; // blocks of an invocation, adjacent ones
    const uint begin = min(own * each, r.n_blocks), end = min(begin + each, r.n_blocks);
    if (r.n_slots <= a.top_k) {
        for (uint i = begin; i < end; i++)
            ChosenBlocks(a.chosen).v[r.first_block + i] = RowBlocks(a.blocks).v[r.first_block + i];
        return;
    }
    find_threshold(scores, own, r.n_slots, SIDE, a.top_k);
    const uint threshold = found_key, left = found_left;
    uint n_above = 0u, n_equal = 0u;
    for (uint i = begin; i < end; i++) {
        const RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
        for (uint k = 0u; k < bits_of(b.visible); k++) {
            const uint key = key_of(scores, b.before + k);
            n_above += uint(key > threshold);
            n_equal += uint(key == threshold);
        }
    }
    above[own] = n_above;
    equal[own] = n_equal;
    barrier();
    uint before = 0u, rank = 0u; // chosen slots, and slots of equal score, in earlier blocks
    for (uint i = 0u; i < own; i++) {
        before += above[i];
        rank += equal[i];
    }
    before += min(rank, left);
    for (uint i = begin; i < end; i++) {
        RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
        uint64_t mask = 0ul;
        uint number = b.before;
        for (uint slot = 0u; slot < 64u; slot++) {
            if (!is_set(b.visible, slot)) continue;
            const uint key = key_of(scores, number++);
            if (key > threshold || (key == threshold && rank < left)) mask |= 1ul << slot;
            rank += uint(key == threshold);
        }
        b.visible = mask;
        b.before = before;
        before += bits_of(mask);
        ChosenBlocks(a.chosen).v[r.first_block + i] = b;
    }
}
