#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_many.comp: dst = weights * src + bias in f32 for many rows, in tiles of 64 outputs and 32 rows, 4 outputs x 4
// rows an invocation. The order of the sums is that of linear_few (linear.glsl). At most 26 KiB of shared memory.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "linear.glsl"
#include "tile.glsl"

#define ROWS 32u
layout(local_size_x = 128) in; // INVOCATIONS

shared float ws[32][TILE], xs[32][ROWS];

void load_weights(uint number, uint piece, uint slice) {
    const uint own = gl_LocalInvocationID.x % TILE, part = gl_LocalInvocationID.x / TILE; // part: 0 or 1
    float w[16];
    if (gl_WorkGroupID.x * TILE + own >= a.n_out) return;
    unpack(place_of(own, number, slice), 2u * piece + part, a.n_in - 32u * CHUNK_PIECES * number, w);
    for (uint k = 0u; k < 16u; k++) ws[16u * part + k][own] = w[k];
}

void load_rows(uint piece, row_range rows) {
    const uint k = gl_LocalInvocationID.x % 32u, c = 32u * piece + k;
    for (uint r = gl_LocalInvocationID.x / 32u; r < ROWS; r += 4u) {
        xs[k][r] = r < rows.n && c < a.n_in
                       ? get(a.src, uint64_t(rows.first + r) * a.src_width + a.src_first + rows.run * a.run_src + c)
                       : 0.0;
    }
}

void main() {
    const row_range rows = own_rows(ROWS);
    const uint n_pieces = (a.n_in + 31u) / 32u;
    const uint o = 4u * (gl_LocalInvocationID.x % 16u), r = 4u * (gl_LocalInvocationID.x / 16u); // of the tile
    precise float sum[4][4];
    if (rows.n == 0u) return;
    for (uint i = 0u; i < 4u; i++)
        for (uint j = 0u; j < 4u; j++) sum[i][j] = 0.0;
    for (uint piece = 0u; piece < n_pieces; piece++) {
        const uint number = piece / CHUNK_PIECES;
        if (piece % CHUNK_PIECES == 0u) read_chunk(number, rows.slice);
        barrier();
        load_weights(number, piece % CHUNK_PIECES, rows.slice);
        load_rows(piece, rows);
        barrier();
        precise float acc[4][4];
        for (uint i = 0u; i < 4u; i++)
            for (uint j = 0u; j < 4u; j++) acc[i][j] = 0.0;
        for (uint k = 0u; k < 32u; k++)
            for (uint i = 0u; i < 4u; i++)
                for (uint j = 0u; j < 4u; j++) {
                    precise const float p = ws[k][o + j] * xs[k][r + i];
                    acc[i][j] = acc[i][j] + p;
                }
        for (uint i = 0u; i < 4u; i++)
            for (uint j = 0u; j < 4u; j++) sum[i][j] = sum[i][j] + acc[i][j];
    }
    for (uint i = 0u; i < 4u; i++)
        for (uint j = 0u; j < 4u; j++) {
            const uint to = gl_WorkGroupID.x * TILE + o + j, row = rows.first + r + i;
            if (to >= a.n_out || r + i >= rows.n) continue;
            precise float y = sum[i][j];
            if (a.bias != 0ul) y = y + get(a.bias, rows.slice * a.n_out + to);
            put(a.dst, uint64_t(row) * a.dst_width + a.dst_first + rows.run * a.run_dst + to, y);
        }
}
