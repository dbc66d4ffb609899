#version 460
// SPDX-License-Identifier: Apache-2.0
// recurrent_rates.comp: time steps and decays of heads or channels, or their rates of learning. Grid: elements.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint SIGMOID = 0u;

layout(push_constant, scalar) uniform Arguments {
    uint64_t src, bias, factors; // [rows][src_width], [n], [n / per]; bias 0: none
    uint64_t steps, decays;      // [rows][n]: softplus(src + bias), or sigmoid(src); exp(steps * factors); 0: not wanted
    uint rows, n, src_width, per;
    uint run, step; // element i is column i / run * step + i % run of src
} a;

void main() {
    const uint64_t all = uint64_t(a.rows) * a.n;
    const uint64_t stride = uint64_t(gl_NumWorkGroups.x) * gl_WorkGroupSize.x;
    for (uint64_t k = gl_GlobalInvocationID.x; k < all; k += stride) {
        const uint row = uint(k / a.n), i = uint(k % a.n);
        precise float x = get(a.src, uint64_t(row) * a.src_width + i / a.run * a.step + i % a.run);
        if (a.bias != 0ul) x = x + get(a.bias, i);
        const float s = SIGMOID != 0u ? times_sigmoid(1.0, x) : softplus(x);
        if (a.steps != 0ul) put(a.steps, k, s);
        if (a.decays == 0ul) continue;
        precise const float exponent = s * get(a.factors, i / a.per);
        put(a.decays, k, exp_own(exponent));
    }
}
