#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_few.comp: dst = weights * src + bias for up to 8 rows a workgroup: each byte of weights is read once for them.
//
// Workgroup: 8 outputs of 16 lanes. A chunk of 16 pieces of each output is read into shared memory in words of 32 bits,
// neighbours by neighbouring lanes, whatever the type; each lane decodes its piece from there. The next chunk is on its
// way meanwhile. Grid: outputs / 8, rows / ROWS, slices of linear_runs. With `slices`, a workgroup has one row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "linear.glsl"

#define OUTPUTS 8u
layout(local_size_x = 128) in; // LANES * OUTPUTS
layout(constant_id = 0) const uint ROWS = 8u; // of a workgroup, at most 8

#define CHUNK (32u * LANES)                          // elements of an output
#define CHUNK_BYTES (CHUNK / TYPE_BLOCK * TYPE_BYTES) // a multiple of 4 in every type
#define CHUNK_WORDS (CHUNK_BYTES / 4u + 1u)          // a row of weights may begin inside of a word
#define OWN_WORDS ((CHUNK_WORDS + LANES - 1u) / LANES)

shared uint chunk[OUTPUTS * (CHUNK_WORDS + CHUNK_WORDS / 32u + 1u) + 1u];
shared float sums[8][OUTPUTS][LANES];

// Weights in shared memory, by the number of a byte. A word is skipped after each 32, so that lanes whose pieces take
// 64 or 128 bytes do not wait for one bank.
#define PLACE uint
uint word_at(uint i) { return chunk[i + (i >> 5)]; }
uint weight_u8(uint at) { return (word_at(at >> 2) >> (8u * (at & 3u))) & 255u; }
uint weight_u16(uint at) { return weight_u8(at) | weight_u8(at + 1u) << 8; }
uint weight_u32(uint at) {
    const uint shift = 8u * (at & 3u), low = word_at(at >> 2);
    return shift == 0u ? low : low >> shift | word_at((at >> 2) + 1u) << (32u - shift);
}
#include "formats.glsl"

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES, own = gl_LocalInvocationID.x / LANES;
    const uint o = gl_WorkGroupID.x * OUTPUTS + own, first = gl_WorkGroupID.y * ROWS, run = gl_WorkGroupID.z;
    const uint n = min(ROWS, a.rows - first);
    const uint slice = a.slices != 0ul ? U32(a.slices).v[first] : run;
    const uint64_t row = a.weights + a.slice_bytes * slice + uint64_t(a.row_bytes) * min(o, a.n_out - 1u);
    const uint before = uint(row & 3ul), n_words = o < a.n_out ? (before + a.row_bytes + 3u) / 4u : 0u;
    const uint n_pieces = (a.n_in + 31u) / 32u, column = a.src_first + run * a.run_src;
    const uint place = own * CHUNK_WORDS; // of this output's words
    const uint span = CHUNK_BYTES / 4u + uint(before > 0u); // words of a chunk
    uint next[OWN_WORDS];
    precise float acc[8];
    for (uint r = 0u; r < ROWS; r++) acc[r] = 0.0;
    for (uint j = 0u; j < OWN_WORDS; j++) {
        const uint w = lane + LANES * j;
        next[j] = w < min(span, n_words) ? U32((row & ~3ul) + 4ul * w).v[0] : 0u;
    }
    for (uint begin = 0u; begin < n_pieces; begin += LANES) {
        barrier(); // the last chunk is decoded
        for (uint j = 0u; j < OWN_WORDS; j++) {
            const uint w = lane + LANES * j, i = place + w;
            if (w < CHUNK_WORDS) chunk[i + (i >> 5)] = next[j];
        }
        const uint done = (begin / LANES + 1u) * (CHUNK_BYTES / 4u);
        for (uint j = 0u; j < OWN_WORDS; j++) {
            const uint w = lane + LANES * j;
            next[j] = w < span && done + w < n_words ? U32((row & ~3ul) + 4ul * (done + w)).v[0] : 0u;
        }
        barrier();
        if (begin + lane >= n_pieces) continue;
        for (uint part = 0u; part < 2u; part++) {
            const uint c = 32u * (begin + lane) + 16u * part;
            float w[16];
            unpack(4u * place + before, 2u * lane + part, a.n_in - 32u * begin, w);
            for (uint r = 0u; r < ROWS; r++) {
                if (r >= n) continue;
                F32 x = F32(a.src + 4ul * (uint64_t(first + r) * a.src_width + column));
                for (uint k = 0u; k < 16u; k++) {
                    const float v = c + k < a.n_in ? x.v[c + k] : 0.0;
                    precise const float p = w[k] * v;
                    acc[r] = acc[r] + p;
                }
            }
        }
    }
    for (uint r = 0u; r < n; r++) sums[r][own][lane] = acc[r];
    barrier();
    // each of the 128 invocations finishes at most one output of one row
    const uint r = gl_LocalInvocationID.x / OUTPUTS, q = gl_LocalInvocationID.x % OUTPUTS;
    const uint to = gl_WorkGroupID.x * OUTPUTS + q;
    if (r >= n || to >= a.n_out) return;
    precise float sum = 0.0;
    for (uint l = 0u; l < LANES; l++) sum = sum + sums[r][q][l];
    if (a.bias != 0ul) sum = sum + get(a.bias, slice * a.n_out + to);
    put(a.dst, uint64_t(first + r) * a.dst_width + a.dst_first + run * a.run_dst + to, sum);
}
