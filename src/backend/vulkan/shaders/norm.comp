#version 460
// SPDX-License-Identifier: Apache-2.0
// norm.comp: RMSNorm or LayerNorm of runs of n elements, a workgroup a run; or runs get a length; or the inverses of
// their lengths.
//
// Order of sums: invocation i adds elements i, i + 128, ...; their sums are added pair by pair, at distances 64, 32, ...
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint KIND = 0u; // vulkan_norm_kind of vulkan_shaders.h
#define LAYER_NORM 1u
#define LENGTH 2u // each run is divided by the root of scale * (sum of squares + eps); else RMSNorm
#define INVERSE 3u // dst: a number for each run: 1 / its length, which is taken to be at least LEAST_LENGTH
#define LEAST_LENGTH 1e-30

layout(push_constant, scalar) uniform Arguments {
    uint64_t src, dst, weight, bias; // 0: none
    uint n, runs, weight_runs, n_runs; // elements of a run; runs a row; 1: all have the same weights; runs in all
    float eps, scale;
    uint stride; // floats from a row to the next
} a;

shared float partial[128];

float sum_all(float own) {
    const uint i = gl_LocalInvocationID.x;
    barrier();
    partial[i] = own;
    barrier();
    for (uint d = 64u; d > 0u; d >>= 1) {
        if (i < d) {
            precise const float s = partial[i] + partial[i + d];
            partial[i] = s;
        }
        barrier();
    }
    return partial[0];
}

void main() {
    const uint64_t run = gl_WorkGroupID.x + uint64_t(gl_WorkGroupID.y) * gl_NumWorkGroups.x;
    if (run >= a.n_runs) return;
    const uint64_t first = run / a.runs * a.stride + run % a.runs * a.n;
    F32 x = F32(a.src + 4ul * first), y = F32(a.dst + 4ul * (KIND == INVERSE ? run : first));
    F32 w = F32(a.weight + (a.weight_runs > 1u ? 4ul * a.n * (run % a.runs) : 0ul));
    precise float mean = 0.0, sum = 0.0;
    if (KIND == LAYER_NORM) {
        for (uint i = gl_LocalInvocationID.x; i < a.n; i += 128u) sum = sum + x.v[i];
        mean = sum_all(sum) / float(a.n);
        sum = 0.0;
    }
    for (uint i = gl_LocalInvocationID.x; i < a.n; i += 128u) {
        precise const float d = x.v[i] - mean;
        precise const float p = d * d;
        sum = sum + p;
    }
    precise float variance = sum_all(sum);
    if (KIND == INVERSE) {
        precise const float one = 1.0 / max(sqrt(variance), LEAST_LENGTH);
        if (gl_LocalInvocationID.x == 0u) y.v[0] = one;
        return;
    }
    if (KIND == LENGTH) variance = (variance + a.eps) * a.scale;
    else variance = variance / float(a.n) + a.eps;
    precise const float inverse = 1.0 / sqrt(variance);
    for (uint i = gl_LocalInvocationID.x; i < a.n; i += 128u) {
        precise const float d = x.v[i] - mean;
        precise float t = d * inverse;
        if (a.weight != 0ul) t = t * w.v[i];
        if (a.bias != 0ul) t = t + F32(a.bias).v[i];
        y.v[i] = t;
    }
}
