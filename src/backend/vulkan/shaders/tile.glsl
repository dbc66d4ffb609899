// SPDX-License-Identifier: Apache-2.0
// tile.glsl: weights of a tile of 64 outputs, for shaders of many rows: each byte is loaded once a tile.
//
// A chunk of some pieces of each output is read into shared memory in words, neighbours by neighbouring invocations,
// and decoded from there piece by piece. A chunk is a block of the types with blocks of 256 (its scales are needed
// at once), and about 128 bytes of the others: a line of a cache. It takes 4.6 to 13.6 KiB.
//
// Chunks are not fetched ahead: their words would need as many registers as sums do, and the other workgroups of a
// multiprocessor, 3 and more by shared memory and registers, compute while one waits.
//
// In each piece: barrier; decode and load it; barrier; add its products. A chunk may be read before the first of these
// barriers, since its last decoding is before the second one.
#define TILE 64u
#define INVOCATIONS 128u

#define CHUNK_PIECES (TYPE_BLOCK == 256u ? 8u : TYPE_BLOCK == 32u ? 4u : TYPE_BYTES == 2u ? 2u : 1u)
#define CHUNK_BYTES (32u * CHUNK_PIECES / TYPE_BLOCK * TYPE_BYTES)
#define CHUNK_WORDS (CHUNK_BYTES / 4u + 1u) // rows of weights, and blocks, may begin inside of a word
#define STRIDE (CHUNK_WORDS | 1u)           // odd: decoding invocations, one an output, do not wait for one bank

shared uint chunk_words[TILE * STRIDE + 1u];

#define PLACE uint
uint word_at(uint i) { return chunk_words[i]; }
#include "shared_weights.glsl"
#include "formats.glsl"

uint64_t chunk_at(uint o, uint number, uint slice) {
    return a.weights + a.slice_bytes * slice + uint64_t(a.row_bytes) * o + CHUNK_BYTES * number;
}

void read_chunk(uint number, uint slice) {
    const uint left = min(CHUNK_BYTES, a.row_bytes - CHUNK_BYTES * number);
    for (uint i = gl_LocalInvocationID.x; i < TILE * CHUNK_WORDS; i += INVOCATIONS) {
        const uint own = i / CHUNK_WORDS, w = i % CHUNK_WORDS, o = gl_WorkGroupID.x * TILE + own;
        if (o >= a.n_out) continue;
        const uint64_t at = chunk_at(o, number, slice);
        if (4u * w < uint(at & 3ul) + left) chunk_words[STRIDE * own + w] = U32((at & ~3ul) + 4ul * w).v[0];
    }
}

// The place of a chunk of an output of the tile.
uint place_of(uint own, uint number, uint slice) {
    return 4u * STRIDE * own + uint(chunk_at(gl_WorkGroupID.x * TILE + own, number, slice) & 3ul);
}
