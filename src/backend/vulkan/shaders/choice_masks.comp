#version 460
// SPDX-License-Identifier: Apache-2.0
// choice_masks.comp: what a row sees in a KV head: of the blocks of its table, the slots of chosen groups, and those
// that are not listed. Grid: KV heads, rows of the tile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#include "chooser.glsl"

#define SIDE 128u
layout(local_size_x = 128) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) writeonly buffer ChosenRows { Row v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) writeonly buffer ChosenBlocks { RowBlock v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t bounds, choosers; // choice_highest.comp
    uint64_t rows, blocks;
    uint64_t to_rows, to_blocks; // [KV heads][n_rows]; [KV heads][n_blocks], or as `blocks` if row_heads is not 0
    uint n_heads, n_kv_heads, stride, first_row, row_heads, n_rows, n_blocks;
} a;

shared uint counts[SIDE];

// The slots of a block that stay.
uint64_t chosen(Chooser c, uint64_t flags, uint entry, uint64_t visible) {
    const uint local = entry - c.first_entry;
    if (c.keys == 0ul || local >= c.n_entries) return visible;
    uint64_t mask = visible;
    for (uint slot = 0u; slot < 64u; slot++) {
        if (!is_set(visible, slot)) continue;
        const int group = Members(c.members).v[local * 64u + slot];
        if (group >= 0 && get(flags, uint(group)) == 0.0) mask &= ~(1ul << slot);
    }
    return mask;
}

void main() {
    const uint own = gl_LocalInvocationID.x, kv_head = gl_WorkGroupID.x, row = a.first_row + gl_WorkGroupID.y;
    const Chooser c = Choosers(a.choosers).v[row];
    const uint64_t flags =
        a.bounds + 4ul * a.stride * (uint64_t(gl_WorkGroupID.y) * a.n_heads + kv_head * (a.n_heads / a.n_kv_heads));
    Row r = Rows(a.rows).v[kv_head * a.row_heads + row];
    const uint to = r.first_block + (a.row_heads == 0u ? kv_head * a.n_blocks : 0u);
    const uint each = (r.n_blocks + SIDE - 1u) / SIDE; // adjacent blocks
    const uint begin = min(own * each, r.n_blocks), end = min(begin + each, r.n_blocks);
    uint n = 0u;
    for (uint i = begin; i < end; i++) {
        const RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
        n += bits_of(chosen(c, flags, b.entry, b.visible));
    }
    counts[own] = n;
    barrier();
    uint before = 0u, all = 0u;
    for (uint i = 0u; i < SIDE; i++) {
        before += i < own ? counts[i] : 0u;
        all += counts[i];
    }
    for (uint i = begin; i < end; i++) {
        RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
        b.visible = chosen(c, flags, b.entry, b.visible);
        b.before = before;
        before += bits_of(b.visible);
        ChosenBlocks(a.to_blocks).v[to + i] = b;
    }
    if (own > 0u) return;
    r.first_block = to;
    r.n_slots = all;
    ChosenRows(a.to_rows).v[kv_head * a.n_rows + row] = r;
}
