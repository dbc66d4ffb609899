#version 460
// SPDX-License-Identifier: Apache-2.0
// copy_rows.comp: copies rows of bytes within the memory that the device reaches (block_memory.h). Grid: copies.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;

struct Copy {
    uint64_t from, to;
    uint row_bytes, stride, n_rows; // stride: of both
    uint unused;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Copies { Copy v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t copies;
    uint n;
} a;

void main() {
    for (uint k = gl_WorkGroupID.x; k < a.n; k += gl_NumWorkGroups.x) {
        const Copy c = Copies(a.copies).v[k];
        const bool is_even = ((uint(c.from) | uint(c.to) | c.row_bytes | c.stride) & 1u) == 0u;
        const uint unit = is_even ? 2u : 1u, n = c.row_bytes / unit;
        for (uint i = gl_LocalInvocationID.x; i < n * c.n_rows; i += 64u) {
            const uint64_t at = uint64_t(i / n) * c.stride + i % n * unit;
            if (is_even) U16(c.to + at).v[0] = U16(c.from + at).v[0];
            else U8(c.to + at).v[0] = U8(c.from + at).v[0];
        }
    }
}
