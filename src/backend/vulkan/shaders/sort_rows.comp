#version 460
// SPDX-License-Identifier: Apache-2.0
// sort_rows.comp: rows of a mixture in the order of their experts, so that each tile of rows has one expert: `order` has
// the rows, of equal experts in ascending order, `places` the place of each row in it, `tiles` what workgroups of
// products compute (linear.glsl): tiles of at most `most` rows, those of an expert in turn; the rest have no rows.
//
// One workgroup. Each invocation counts, then places, the rows of its own experts: all read the same row at a time.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#define INVOCATIONS 128u
layout(local_size_x = 128) in; // INVOCATIONS

layout(push_constant, scalar) uniform Arguments {
    uint64_t experts;              // u32 [rows][3], of route.comp
    uint64_t order, places, tiles; // u32 [rows], [rows], [n_tiles][3]
    uint rows, n_experts, most, n_tiles;
} a;

#define MOST_EXPERTS 1024u // VULKAN_MOST_EXPERTS
#define PART 1024u

shared uint ends[MOST_EXPERTS], tile_ends[MOST_EXPERTS]; // of each expert: the rows, and the tiles, up to its last one
shared uint part[PART];

void read_part(uint first) {
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < min(PART, a.rows - first); i += INVOCATIONS)
        part[i] = U32(a.experts + 12ul * (first + i)).v[0];
    barrier();
}

void write_tiles(uint e, uint begin, uint end, uint tile) {
    for (uint from = begin; from < end; from += a.most, tile++) {
        U32 t = U32(a.tiles + 12ul * tile);
        t.v[0] = e;
        t.v[1] = from;
        t.v[2] = min(a.most, end - from);
    }
}

void main() {
    const uint t = gl_LocalInvocationID.x;
    for (uint e = t; e < a.n_experts; e += INVOCATIONS) ends[e] = 0u;
    for (uint first = 0u; first < a.rows; first += PART) {
        read_part(first);
        for (uint e = t; e < a.n_experts; e += INVOCATIONS) {
            uint n = 0u;
            for (uint i = 0u; i < min(PART, a.rows - first); i++) n += uint(part[i] == e);
            ends[e] += n;
        }
    }
    barrier();
    if (t == 0u) {
        uint end = 0u, tile = 0u;
        for (uint e = 0u; e < a.n_experts; e++) {
            const uint n = ends[e];
            end += n;
            tile += (n + a.most - 1u) / a.most;
            ends[e] = end;
            tile_ends[e] = tile;
        }
    }
    barrier();
    for (uint e = t; e < a.n_experts; e += INVOCATIONS)
        write_tiles(e, e > 0u ? ends[e - 1u] : 0u, ends[e], e > 0u ? tile_ends[e - 1u] : 0u);
    for (uint i = tile_ends[a.n_experts - 1u] + t; i < a.n_tiles; i += INVOCATIONS) U32(a.tiles + 12ul * i).v[2] = 0u;
    barrier();
    for (uint e = t; e < a.n_experts; e += INVOCATIONS) // where the next row goes
        tile_ends[e] = e > 0u ? ends[e - 1u] : 0u;
    for (uint first = 0u; first < a.rows; first += PART) {
        read_part(first);
        for (uint e = t; e < a.n_experts; e += INVOCATIONS) {
            uint to = tile_ends[e];
            for (uint i = 0u; i < min(PART, a.rows - first); i++) {
                if (part[i] != e) continue;
                U32(a.order + 4ul * to).v[0] = first + i;
                U32(a.places + 4ul * (first + i)).v[0] = to++;
            }
            tile_ends[e] = to;
        }
    }
}
