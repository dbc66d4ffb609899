#version 460
// SPDX-License-Identifier: Apache-2.0
// streams.comp: several streams of the residual (AltUp), and sparse activations, a workgroup a row.
//
// Order of sums over a row: invocation i adds elements i, i + 128, ...; their sums are added pair by pair, at distances
// 64, 32, ... A mix adds the sources in their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint OP = 0u; // vulkan_stream_op of vulkan_shaders.h
#define MIX 0u      // dst += sum over k < n of factors[row][k] * src[k]
#define MATCH 1u    // dst gets the root mean square of src[0]
#define SPARSIFY 2u // dst = max(0, dst - (mean + x * standard deviation))

layout(push_constant, scalar) uniform Arguments {
    uint64_t dst, factors; // f32 [rows][width], [rows][factors_width]
    uint64_t src[4];       // f32 [rows][width]
    uint rows, width, n, factors_width;
    float x;
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

// Sum of the squares of a row's differences from a number.
float squares_of(uint64_t x, float from) {
    precise float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += 128u) {
        precise const float d = get(x, i) - from;
        precise const float p = d * d;
        sum = sum + p;
    }
    return sum_all(sum);
}

void mix(uint64_t y, uint64_t factors, uint64_t row) {
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += 128u) {
        precise float sum = get(y, i);
        for (uint k = 0u; k < a.n; k++) {
            precise const float p = get(factors, k) * get(a.src[k] + row, i);
            sum = sum + p;
        }
        put(y, i, sum);
    }
}

void match(uint64_t y, uint64_t like) {
    const float wanted = squares_of(like, 0.0) / float(a.width), is = squares_of(y, 0.0) / float(a.width);
    precise const float factor = sqrt(wanted) / sqrt(max(is, 1e-5));
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += 128u) {
        precise const float v = get(y, i) * factor;
        put(y, i, v);
    }
}

void sparsify(uint64_t y) {
    precise float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += 128u) sum = sum + get(y, i);
    const float mean = sum_all(sum) / float(a.width);
    precise const float deviation = a.x * sqrt(squares_of(y, mean) / float(a.width));
    precise const float cutoff = mean + deviation;
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += 128u) {
        precise const float above = get(y, i) - cutoff;
        put(y, i, max(above, 0.0));
    }
}

void main() {
    const uint r = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
    if (r >= a.rows) return;
    const uint64_t row = 4ul * uint64_t(r) * a.width;
    if (OP == MIX) mix(a.dst + row, a.factors + 4ul * uint64_t(r) * a.factors_width, row);
    else if (OP == MATCH) match(a.dst + row, a.src[0] + row);
    else sparsify(a.dst + row);
}
