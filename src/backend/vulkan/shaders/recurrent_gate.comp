#version 460
// SPDX-License-Identifier: Apache-2.0
// recurrent_gate.comp: y = (y + d x) act(z), d of each `per` columns. Grid: elements.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint SIGMOID = 0u; // else SiLU

layout(push_constant, scalar) uniform Arguments {
    uint64_t y, x, z, d; // f32 [rows][n], [rows][x_width], [rows][z_width], [n / per]; d 0: none
    uint rows, n, x_width, z_width, per;
} a;

void main() {
    const uint64_t all = uint64_t(a.rows) * a.n;
    const uint64_t stride = uint64_t(gl_NumWorkGroups.x) * gl_WorkGroupSize.x;
    for (uint64_t k = gl_GlobalInvocationID.x; k < all; k += stride) {
        const uint row = uint(k / a.n), i = uint(k % a.n);
        precise float y = get(a.y, k);
        if (a.d != 0ul) {
            precise const float p = get(a.d, i / a.per) * get(a.x, uint64_t(row) * a.x_width + i);
            y = y + p;
        }
        const float z = get(a.z, uint64_t(row) * a.z_width + i);
        const float act = times_sigmoid(SIGMOID != 0u ? 1.0 : z, z);
        y = act * y;
        put(a.y, k, y);
    }
}
