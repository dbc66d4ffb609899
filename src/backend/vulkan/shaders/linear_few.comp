#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_few.comp: dst = weights * src + bias for up to 8 rows a workgroup: each byte of weights is read once for them.
//
// Workgroup: 8 outputs of 16 lanes. A chunk of 16 pieces of each output is read into shared memory in words of 32 bits,
// neighbours by neighbouring lanes, whatever the type; each lane decodes its piece from there. The next chunk is on its
// way meanwhile. Then an invocation for each output of each row adds the products of the pieces. Grid: outputs / 8,
// rows / ROWS, slices of linear_runs; or tiles of at most ROWS rows.
//
// INT8: activations are rounded to codes here, 4 elements of each row an invocation, so that a step of few rows has no
// dispatch for it.
//
// Decode is bound by memory: what counts is how many bytes are on their way. A workgroup has 2 to 5 KiB of weights in
// flight (16 KiB of F32) and 4 subgroups of 32; its 7 to 20 KiB of shared memory leave 5 or more of them to a
// multiprocessor.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "linear.glsl"

#define LANES 16u
#define OUTPUTS 8u
layout(local_size_x = 128) in; // LANES * OUTPUTS
layout(constant_id = 0) const uint ROWS = 8u; // of a workgroup, at most 8

#define CHUNK (32u * LANES)                          // elements of an output
#define CHUNK_BYTES (CHUNK / TYPE_BLOCK * TYPE_BYTES) // a multiple of 4 in every type
#define CHUNK_WORDS (CHUNK_BYTES / 4u + 1u)          // a row of weights may begin inside of a word
#define OWN_WORDS ((CHUNK_WORDS + LANES - 1u) / LANES)

shared uint chunk[OUTPUTS * (CHUNK_WORDS + CHUNK_WORDS / 32u + 1u) + 1u];
shared float products[ROWS * OUTPUTS * (LANES + 1u)]; // a float is skipped after each 16: no two wait for a bank

// Weights in shared memory, by the number of a byte. A word is skipped after each 32, so that lanes whose pieces take
// 64 or 128 bytes do not wait for one bank.
#define PLACE uint
uint word_at(uint i) { return chunk[i + (i >> 5)]; }
#include "shared_weights.glsl"
#include "formats.glsl"

#ifdef INT8
#include "int8.glsl"
shared uint peaks[ROWS * 128u];
shared float ds[ROWS * LANES];
shared uint codes[ROWS * 9u * LANES]; // a word is skipped after each 8

// Pieces [begin, begin + 16) of the rows: 4 elements of each row an invocation, then their codes.
float own_x[8][4];

void load_rows(uint begin, uint first, uint n, uint column) {
    const uint t = gl_LocalInvocationID.x, element = 32u * begin + 4u * t;
    for (uint r = 0u; r < ROWS; r++) {
        uint peak = 0u;
        for (uint k = 0u; k < 4u; k++) {
            float x = 0.0;
            if (r < n && element < a.n_in) x = get(a.src, uint64_t(first + r) * a.src_width + column + element + k);
            own_x[r][k] = x;
            peak = max(peak, floatBitsToUint(x) & 0x7fffffffu);
        }
        peaks[128u * r + t] = peak;
    }
}

void round_rows() {
    const uint t = gl_LocalInvocationID.x, piece = t / 8u;
    for (uint r = 0u; r < ROWS; r++) {
        uint peak = 0u, word = 0u;
        for (uint k = 0u; k < 8u; k++) peak = max(peak, peaks[128u * r + 8u * piece + k]);
        const float inverse = inverse_scale(peak);
        for (uint k = 0u; k < 4u; k++) word |= code_of(own_x[r][k], inverse) << (8u * k);
        codes[9u * (LANES * r + piece) + (t & 7u)] = word;
        if ((t & 7u) == 0u) ds[LANES * r + piece] = scale_of(peak);
    }
}

void multiply(uint place, uint lane, uint own, uint n) {
    int q[16];
    uint words[2][4];
    scales x[2];
    for (uint part = 0u; part < 2u; part++) {
        decode(place, 2u * lane + part, q, x[part]);
        pack(q, words[part]);
    }
    for (uint r = 0u; r < ROWS; r++) {
        if (r >= n) continue;
        const uint at = 9u * (LANES * r + lane);
        int part_sums[2], code_sums[2];
        for (uint part = 0u; part < 2u; part++) {
            part_sums[part] = code_sums[part] = 0;
            for (uint k = 0u; k < 4u; k++) {
                const uint c = codes[at + 4u * part + k];
                part_sums[part] += dot4(c, words[part][k]);
                if (MINIMA > 0) code_sums[part] += sum4(c);
            }
        }
        const int sum = x[0].factor * part_sums[0] + x[1].factor * part_sums[1];
        products[(OUTPUTS * r + own) * (LANES + 1u) + lane] =
            piece_product(x[0].scale, vec2(x[0].minimum, x[1].minimum), ds[LANES * r + lane], sum,
                          ivec2(code_sums[0], code_sums[1]));
    }
}
#else
void multiply(uint place, uint lane, uint own, uint n, uint begin, uint first, uint column) {
    precise float acc[8];
    for (uint r = 0u; r < ROWS; r++) acc[r] = 0.0;
    for (uint part = 0u; part < 2u; part++) {
        const uint c = 32u * (begin + lane) + 16u * part;
        float w[16];
        unpack(place, 2u * lane + part, a.n_in - 32u * begin, w);
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
    for (uint r = 0u; r < n; r++) products[(OUTPUTS * r + own) * (LANES + 1u) + lane] = acc[r];
}
#endif

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES, own = gl_LocalInvocationID.x / LANES;
    const row_range rows = own_rows(ROWS);
    const uint o = gl_WorkGroupID.x * OUTPUTS + own, first = rows.first, run = rows.run, n = rows.n;
    if (n == 0u) return;
    const uint64_t row = a.weights + a.slice_bytes * rows.slice + uint64_t(a.row_bytes) * min(o, a.n_out - 1u);
    const uint before = uint(row & 3ul), n_words = o < a.n_out ? (before + a.row_bytes + 3u) / 4u : 0u;
    const uint n_pieces = (a.n_in + 31u) / 32u, column = a.src_first + run * a.run_src;
    const uint place = own * CHUNK_WORDS; // of this output's words
    const uint span = CHUNK_BYTES / 4u + uint(before > 0u); // words of a chunk
    // what this invocation finishes: an output of a row
    const uint to_row = gl_LocalInvocationID.x / OUTPUTS, to_own = gl_LocalInvocationID.x % OUTPUTS;
    const uint to = gl_WorkGroupID.x * OUTPUTS + to_own;
    const bool finishes = to_row < n && to < a.n_out;
    uint next[OWN_WORDS];
    precise float sum = 0.0;
    for (uint j = 0u; j < OWN_WORDS; j++) {
        const uint w = lane + LANES * j;
        next[j] = w < min(span, n_words) ? U32((row & ~3ul) + 4ul * w).v[0] : 0u;
    }
    for (uint begin = 0u; begin < n_pieces; begin += LANES) {
        for (uint j = 0u; j < OWN_WORDS; j++) {
            const uint w = lane + LANES * j, i = place + w;
            if (w < CHUNK_WORDS) chunk[i + (i >> 5)] = next[j];
        }
        const uint done = (begin / LANES + 1u) * (CHUNK_BYTES / 4u);
        for (uint j = 0u; j < OWN_WORDS; j++) {
            const uint w = lane + LANES * j;
            next[j] = w < span && done + w < n_words ? U32((row & ~3ul) + 4ul * (done + w)).v[0] : 0u;
        }
#ifdef INT8
        load_rows(begin, first, n, column);
        barrier();
        round_rows();
        barrier();
        if (begin + lane < n_pieces) multiply(4u * place + before, lane, own, n);
#else
        barrier();
        if (begin + lane < n_pieces) multiply(4u * place + before, lane, own, n, begin, first, column);
#endif
        barrier();
        for (uint l = 0u; l < min(LANES, n_pieces - begin) && finishes; l++)
            sum = sum + products[(OUTPUTS * to_row + to_own) * (LANES + 1u) + l];
    }
    if (!finishes) return;
    if (a.bias != 0ul) sum = sum + get(a.bias, rows.slice * a.n_out + to);
    put(a.dst, uint64_t(first + to_row) * a.dst_width + a.dst_first + run * a.run_dst + to, sum);
}
