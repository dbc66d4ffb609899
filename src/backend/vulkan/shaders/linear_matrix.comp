#version 460
// SPDX-License-Identifier: Apache-2.0
// linear_matrix.comp: linear_many_int8 by cooperative matrices of int8 (VK_KHR_cooperative_matrix), with sums of int32:
// the same integers. The floats of a piece are multiplied and added element by element, in the same order: not as
// matrices, since Mesa reorders sums of matrices even if they are `precise`.
//
// Tile: 64 outputs (M of a matrix) x 64 rows (N); each subgroup has the same number of matrices of it. Scales are
// loaded as matrices with equal rows, or columns, of one array (a stride of 0), so that no shader needs to know which
// invocation has which element. A subgroup keeps the matrices of an output's rows together, which share its scales.
//
// Types with scales of 16 elements: a matrix may have 32 elements of k, so their factors are multiplied into the codes,
// factor * code = 128 * high + low, two planes of 8 bits. Those of Q2_K are at most 45, and need one.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#include "common.glsl"
#include "linear.glsl"
#include "tile.glsl"
#include "int8.glsl"

layout(local_size_x = 128) in; // INVOCATIONS
layout(constant_id = 0) const uint M = 16u; // of the device's matrices (vulkan_matrices)
layout(constant_id = 1) const uint N = 16u;
layout(constant_id = 2) const uint K = 32u; // at most 32
layout(constant_id = 3) const uint SUBGROUPS = 4u;

const uint ACROSS = TILE / N;                     // matrices of M outputs and all rows
const uint OWN = (TILE / M) * ACROSS / SUBGROUPS; // of a subgroup
const uint OWN_ACROSS = OWN < ACROSS ? OWN : ACROSS;
const uint OWN_DOWN = OWN / OWN_ACROSS;

#define PLANES (TYPE == 11 || TYPE == 14 ? 2u : 1u)
#define CODE_STRIDE 12u // words of a piece: 8, and 4 more, so that rows begin in other banks, at 16 bytes

shared uint ws[PLANES * TILE * CODE_STRIDE], xs[TILE * CODE_STRIDE];
shared float scale[TILE], minima[2 * TILE], d[TILE], sums[2 * TILE];
shared float finished[SUBGROUPS * M * N];

#define BY_ROWS gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMNS gl_CooperativeMatrixLayoutColumnMajor
#define FLOATS coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define INTEGERS coopmat<int, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

void load_weights(uint number, uint piece, uint slice) {
    const uint own = gl_LocalInvocationID.x % TILE, part = gl_LocalInvocationID.x / TILE; // part: 0 or 1
    int q[16], high[16];
    uint words[4];
    scales x;
    if (gl_WorkGroupID.x * TILE + own >= a.n_out) return;
    decode(place_of(own, number, slice), 2u * piece + part, q, x);
    for (uint k = 0u; k < 16u && HALVES; k++) {
        q[k] *= x.factor;
        high[k] = PLANES == 2u ? (q[k] + 64) >> 7 : 0;
        q[k] -= 128 * high[k];
    }
    for (uint plane = 0u; plane < PLANES; plane++) {
        if (plane == 0u) pack(q, words);
        else pack(high, words);
        for (uint k = 0u; k < 4u; k++) ws[(plane * TILE + own) * CODE_STRIDE + 4u * part + k] = words[k];
    }
    if (part == 0u) scale[own] = x.scale;
    if (MINIMA > 0) minima[TILE * part + own] = x.minimum;
}

void load_rows(uint piece, row_range rows) {
    const uint n_words = PIECE_WORDS * rows.n;
    const uint64_t number = (uint64_t(rows.run) * (a.n_in / 32u) + piece) * a.rows + rows.first;
    const uint64_t from = a.src + 4ul * PIECE_WORDS * number;
    for (uint i = gl_LocalInvocationID.x; i < n_words; i += INVOCATIONS) {
        const uint word = U32(from).v[i], r = i / PIECE_WORDS, w = i % PIECE_WORDS;
        if (w < 8u) xs[CODE_STRIDE * r + w] = word;
        else if (w == 8u) d[r] = uintBitsToFloat(word);
        else if (MINIMA > 0) {
            const float own_d = uintBitsToFloat(U32(from).v[i - 1u]);
            const int x = bitfieldExtract(int(word), 0, 16), y = int(word) >> 16;
            precise const float one = own_d * float(MINIMA == 1 ? x + y : x);
            precise const float two = own_d * float(y);
            sums[r] = one;
            sums[TILE + r] = two;
        }
    }
}

// The products of a piece, of M outputs from `o` on and N rows from `r` on.
FLOATS multiply(uint o, uint r) {
    INTEGERS y = INTEGERS(0);
    for (uint plane = PLANES; plane-- > 0u;) {
        for (uint k = 0u; k < 32u; k += K) {
            coopmat<int8_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> w;
            coopmat<int8_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> x;
            coopMatLoad(w, ws, (plane * TILE + o) * CODE_STRIDE + k / 4u, CODE_STRIDE, BY_ROWS);
            coopMatLoad(x, xs, r * CODE_STRIDE + k / 4u, CODE_STRIDE, BY_COLUMNS);
            y = coopMatMulAdd(w, x, y);
        }
        if (plane > 0u) y = y * 128;
    }
    return FLOATS(y);
}

void main() {
    const row_range rows = own_rows(TILE);
    const uint n_pieces = a.n_in / 32u;
    const uint first = gl_SubgroupID * OWN, first_o = first / ACROSS * M, first_r = first % ACROSS * N;
    FLOATS sum[OWN];
    if (rows.n == 0u) return;
    for (uint i = 0u; i < OWN; i++) sum[i] = FLOATS(0.0);
    for (uint piece = 0u; piece < n_pieces; piece++) {
        const uint number = piece / CHUNK_PIECES;
        if (piece % CHUNK_PIECES == 0u) read_chunk(number, rows.slice);
        barrier();
        load_weights(number, piece % CHUNK_PIECES, rows.slice);
        load_rows(piece, rows);
        barrier();
        for (uint down = 0u; down < OWN_DOWN; down++) {
            const uint o = first_o + down * M;
            FLOATS own_scale, own_minima, other_minima;
            coopMatLoad(own_scale, scale, o, 0u, BY_COLUMNS);
            if (MINIMA > 0) coopMatLoad(own_minima, minima, o, 0u, BY_COLUMNS);
            if (MINIMA > 1) coopMatLoad(other_minima, minima, TILE + o, 0u, BY_COLUMNS);
            for (uint across = 0u; across < OWN_ACROSS; across++) {
                const uint r = first_r + across * N;
                const FLOATS products = multiply(o, r);
                FLOATS of_rows, own_sums, other_sums;
                coopMatLoad(of_rows, d, r, 0u, BY_ROWS);
                if (MINIMA > 0) coopMatLoad(own_sums, sums, r, 0u, BY_ROWS);
                if (MINIMA > 1) coopMatLoad(other_sums, sums, TILE + r, 0u, BY_ROWS);
                const uint i = OWN_ACROSS * down + across;
                for (uint e = 0u; e < products.length(); e++) {
                    precise float y = of_rows[e] * products[e];
                    y = own_scale[e] * y;
                    if (MINIMA > 0) {
                        precise const float m = own_minima[e] * own_sums[e];
                        y = y - m;
                    }
                    if (MINIMA > 1) {
                        precise const float m = other_minima[e] * other_sums[e];
                        y = y - m;
                    }
                    y = sum[i][e] + y;
                    sum[i][e] = y;
                }
            }
        }
    }
    for (uint i = 0u; i < OWN; i++) { // matrix by matrix, through shared memory, column by column
        const uint o = first_o + i / OWN_ACROSS * M, r = first_r + i % OWN_ACROSS * N;
        coopMatStore(sum[i], finished, gl_SubgroupID * M * N, M, BY_COLUMNS);
        barrier();
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += gl_SubgroupSize) {
            const uint to = gl_WorkGroupID.x * TILE + o + e % M, row = rows.first + r + e / M;
            if (to >= a.n_out || r + e / M >= rows.n) continue;
            precise float y = finished[gl_SubgroupID * M * N + e];
            if (a.bias != 0ul) y = y + get(a.bias, rows.slice * a.n_out + to);
            put(a.dst, uint64_t(row) * a.dst_width + a.dst_first + rows.run * a.run_dst + to, y);
        }
        barrier();
    }
}
