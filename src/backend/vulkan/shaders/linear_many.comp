#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_many.comp: dst = weights * src + bias for many rows, in tiles of 64 outputs and 32 rows. The order of the sums
// is that of linear_few (linear.glsl): a tile is computed lane by lane, piece by piece, in 4 outputs x 4 rows an
// invocation.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "linear.glsl"

// Weights in the memory of the device. Blocks begin at even bytes, but for MXFP4's.
#define PLACE uint64_t
uint weight_u8(uint64_t at) { return u8_at(at); }
uint weight_u16(uint64_t at) { return u16_at(at); }
#if TYPE == 39
uint weight_u32(uint64_t at) { return u8_at(at) | u8_at(at + 1u) << 8 | u8_at(at + 2u) << 16 | u8_at(at + 3u) << 24; }
#else
uint weight_u32(uint64_t at) { return u16_at(at) | u16_at(at + 2u) << 16; }
#endif
#include "formats.glsl"

#define OUTPUTS 64u
#define ROWS 32u
layout(local_size_x = 128) in;

shared float ws[32][OUTPUTS], xs[32][ROWS];

void load_weights(uint piece, uint run) {
    const uint own = gl_LocalInvocationID.x % OUTPUTS, part = gl_LocalInvocationID.x / OUTPUTS; // part: 0 or 1
    const uint o = gl_WorkGroupID.x * OUTPUTS + own;
    float w[16];
    if (o < a.n_out) unpack(a.weights + a.slice_bytes * run + uint64_t(a.row_bytes) * o, 2u * piece + part, a.n_in, w);
    else
        for (uint k = 0u; k < 16u; k++) w[k] = 0.0;
    for (uint k = 0u; k < 16u; k++) ws[16u * part + k][own] = w[k];
}

void load_rows(uint piece, uint run) {
    const uint k = gl_LocalInvocationID.x % 32u, c = 32u * piece + k;
    for (uint r = gl_LocalInvocationID.x / 32u; r < ROWS; r += 4u) {
        const uint row = gl_WorkGroupID.y * ROWS + r;
        xs[k][r] = row < a.rows && c < a.n_in
                       ? get(a.src, uint64_t(row) * a.src_width + a.src_first + run * a.run_src + c)
                       : 0.0;
    }
}

void main() {
    const uint run = gl_WorkGroupID.z, n_pieces = (a.n_in + 31u) / 32u;
    const uint o = 4u * (gl_LocalInvocationID.x % 16u), r = 4u * (gl_LocalInvocationID.x / 16u); // of the tile
    precise float total[4][4];
    for (uint i = 0u; i < 4u; i++)
        for (uint j = 0u; j < 4u; j++) total[i][j] = 0.0;
    for (uint lane = 0u; lane < LANES; lane++) {
        precise float acc[4][4];
        for (uint i = 0u; i < 4u; i++)
            for (uint j = 0u; j < 4u; j++) acc[i][j] = 0.0;
        for (uint piece = lane; piece < n_pieces; piece += LANES) {
            barrier();
            load_weights(piece, run);
            load_rows(piece, run);
            barrier();
            for (uint k = 0u; k < 32u; k++)
                for (uint i = 0u; i < 4u; i++)
                    for (uint j = 0u; j < 4u; j++) {
                        precise const float p = ws[k][o + j] * xs[k][r + i];
                        acc[i][j] = acc[i][j] + p;
                    }
        }
        for (uint i = 0u; i < 4u; i++)
            for (uint j = 0u; j < 4u; j++) total[i][j] = total[i][j] + acc[i][j];
    }
    for (uint i = 0u; i < 4u; i++)
        for (uint j = 0u; j < 4u; j++) {
            const uint to = gl_WorkGroupID.x * OUTPUTS + o + j, row = gl_WorkGroupID.y * ROWS + r + i;
            if (to >= a.n_out || row >= a.rows) continue;
            precise float y = total[i][j];
            if (a.bias != 0ul) y = y + get(a.bias, run * a.n_out + to);
            put(a.dst, uint64_t(row) * a.dst_width + a.dst_first + run * a.run_dst + to, y);
        }
}
