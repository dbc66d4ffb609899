#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_many_int8.comp: dst = weights * src + bias in int8 (linear.glsl) for many rows, of the codes that codes.comp
// made, in tiles of 64 outputs and 64 rows: 4 outputs x 8 rows an invocation.
//
// Of a piece an invocation reads 2 x 12 vectors of 16 bytes from shared memory for 256 products of 4 codes. Neighbours
// read neighbouring vectors of weights, and the same ones of rows: no bank is waited for. 64 registers hold sums, about
// 110 are used, and 10 to 19 KiB of shared memory: 4 workgroups on a multiprocessor of 64 K registers and 100 KiB.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "linear.glsl"
#include "tile.glsl"
#include "int8.glsl"

layout(local_size_x = 128) in; // INVOCATIONS

shared uvec4 ws[2][TILE], xs[2][TILE]; // codes of a piece: either half of each output, and of each row
shared float scale[TILE], minima[2][TILE], d[TILE];
shared int factors[2][TILE];
shared uint code_sums[TILE];

void load_weights(uint number, uint piece, uint slice) {
    const uint own = gl_LocalInvocationID.x % TILE, part = gl_LocalInvocationID.x / TILE; // part: 0 or 1
    int q[16];
    uint words[4];
    scales x;
    if (gl_WorkGroupID.x * TILE + own >= a.n_out) return;
    decode(place_of(own, number, slice), 2u * piece + part, q, x);
    pack(q, words);
    ws[part][own] = uvec4(words[0], words[1], words[2], words[3]);
    if (part == 0u) scale[own] = x.scale;
    if (MINIMA > 0) minima[part][own] = x.minimum;
    if (HALVES) factors[part][own] = x.factor;
}

void load_rows(uint piece, row_range rows) {
    const uint n_words = PIECE_WORDS * rows.n;
    const uint64_t number = (uint64_t(rows.run) * (a.n_in / 32u) + piece) * a.rows + rows.first;
    const uint64_t from = a.src + 4ul * PIECE_WORDS * number;
    for (uint i = gl_LocalInvocationID.x; i < n_words; i += INVOCATIONS) {
        const uint word = U32(from).v[i], r = i / PIECE_WORDS, w = i % PIECE_WORDS;
        if (w < 8u) xs[w >> 2][r][w & 3u] = word;
        else if (w == 8u) d[r] = uintBitsToFloat(word);
        else code_sums[r] = word;
    }
}

void main() {
    const row_range rows = own_rows(TILE);
    const uint n_pieces = a.n_in / 32u;
    const uint o = gl_LocalInvocationID.x % 16u, r = gl_LocalInvocationID.x / 16u; // outputs o + 16 j, rows r + 8 i
    precise float sum[8][4];
    if (rows.n == 0u) return;
    for (uint i = 0u; i < 8u; i++)
        for (uint j = 0u; j < 4u; j++) sum[i][j] = 0.0;
    for (uint piece = 0u; piece < n_pieces; piece++) {
        const uint number = piece / CHUNK_PIECES;
        if (piece % CHUNK_PIECES == 0u) read_chunk(number, rows.slice);
        barrier();
        load_weights(number, piece % CHUNK_PIECES, rows.slice);
        load_rows(piece, rows);
        barrier();
        int acc[8][4];
        for (uint i = 0u; i < 8u; i++)
            for (uint j = 0u; j < 4u; j++) acc[i][j] = 0;
        for (uint part = 0u; part < 2u; part++) {
            uvec4 w[4];
            for (uint j = 0u; j < 4u; j++) w[j] = ws[part][o + 16u * j];
            for (uint i = 0u; i < 8u; i++) {
                const uvec4 x = xs[part][r + 8u * i];
                for (uint j = 0u; j < 4u; j++) {
                    const int y = dot4(w[j].x, x.x) + dot4(w[j].y, x.y) + dot4(w[j].z, x.z) + dot4(w[j].w, x.w);
                    acc[i][j] += HALVES ? factors[part][o + 16u * j] * y : y;
                }
            }
        }
        for (uint i = 0u; i < 8u; i++) {
            const float own_d = d[r + 8u * i];
            const uint both = MINIMA > 0 ? code_sums[r + 8u * i] : 0u;
            const ivec2 own_sums = ivec2(bitfieldExtract(int(both), 0, 16), int(both) >> 16);
            for (uint j = 0u; j < 4u; j++) {
                const uint own = o + 16u * j;
                const vec2 m = MINIMA > 0 ? vec2(minima[0][own], minima[1][own]) : vec2(0.0);
                sum[i][j] = sum[i][j] + piece_product(scale[own], m, own_d, acc[i][j], own_sums);
            }
        }
    }
    for (uint i = 0u; i < 8u; i++)
        for (uint j = 0u; j < 4u; j++) {
            const uint to = gl_WorkGroupID.x * TILE + o + 16u * j, row = rows.first + r + 8u * i;
            if (to >= a.n_out || r + 8u * i >= rows.n) continue;
            precise float y = sum[i][j];
            if (a.bias != 0ul) y = y + get(a.bias, rows.slice * a.n_out + to);
            put(a.dst, uint64_t(row) * a.dst_width + a.dst_first + rows.run * a.run_dst + to, y);
        }
}
