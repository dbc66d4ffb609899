#version 460
// SPDX-License-Identifier: Apache-2.0
// elements.comp: operations on each element of a buffer, chosen by a constant of the pipeline.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint OP = 0u; // vulkan_element_op of vulkan_shaders.h

layout(push_constant, scalar) uniform Arguments {
    uint64_t dst, src, other; // other: factors or indices, by the operation
    uint64_t order;           // of mixtures: u32, numbers of sorted rows (sort_rows.comp); 0: they are not sorted
    uint rows, width;
    float x, y, z, w;
    uint src_width, dst_width, src_first, dst_first, src_step, dst_step, n; // of copied runs, and of rows
} a;

#define ADD 0u         // dst += x * src
#define SCALE 1u       // dst *= x
#define CLAMP 2u       // dst to [-x, x]
#define SOFT_CAP 3u    // dst = x * tanh(dst / x)
#define MULTIPLY 4u    // dst *= src[column]
#define SCALE_ROWS 5u  // dst *= other[row]
#define GATE_ROWS 6u   // dst *= sigmoid(src[row])
#define GATHER 7u      // dst row r = src row other[r]
#define COPY_RUNS 8u   // columns
#define XIELU 9u       // dst = xIELU(dst), alpha_n x, alpha_p y, beta z, eps w
#define SUM_EXPERTS 10u // dst row r = sum over i < n of other[r * n + i] * src row order[r * n + i]
#define WEIGH_GATHER 11u // dst row r = src row k / n, times other[k] if x is not 0; k = order[r]
#define ACT 16u        // and more: dst = act(dst) * src; kernel_act
#define SILU 16u
#define GELU 17u
#define GELU_TANH 18u
#define SWIGLU_OAI 19u
#define RELU_SQUARED 20u
#define SIGMOID 21u

float act(float v) {
    precise float t;
    if (OP == SILU) return times_sigmoid(v, v);
    if (OP == SIGMOID) return times_sigmoid(1.0, v);
    if (OP == GELU) {
        t = v * -0.70710678;
        t = 0.5 * v * erfc_own(t);
        return t;
    }
    if (OP == GELU_TANH) {
        t = 0.071354814 * v * v;
        t = 1.5957691 + t;
        t = v * t;
        return times_sigmoid(v, t);
    }
    t = max(v, 0.0);
    t = t * t;
    return t;
}

float xielu(float v) {
    precise float t;
    if (v > 0.0) t = a.y * v * v;
    else {
        t = exp_own(min(v, a.w)) - 1.0;
        if (abs(v) < 0.125) t = min(v, a.w) + 0.5 * min(v, a.w) * min(v, a.w) +
                                min(v, a.w) * min(v, a.w) * min(v, a.w) * (1.0 / 6.0) +
                                min(v, a.w) * min(v, a.w) * min(v, a.w) * min(v, a.w) * (1.0 / 24.0);
        t = a.x * (t - v);
    }
    t = t + a.z * v;
    return t;
}

// The address is chosen, not the load: see linear.glsl.
uint ordered(uint row) {
    const uint listed = U32(a.order != 0ul ? a.order + 4ul * row : a.src).v[0];
    return a.order != 0ul ? listed : row;
}

float element(uint64_t i, uint row, uint column) {
    precise float t;
    if (OP == GATHER) return get(a.src, uint64_t(U32(a.other).v[row]) * a.width + column);
    if (OP == SUM_EXPERTS) {
        t = 0.0;
        for (uint k = 0u; k < a.n; k++) {
            const uint slot = row * a.n + k;
            precise const float p = get(a.other, slot) * get(a.src, uint64_t(ordered(slot)) * a.width + column);
            t = t + p;
        }
        return t;
    }
    if (OP == WEIGH_GATHER) {
        const uint slot = ordered(row);
        t = get(a.src, uint64_t(slot / a.n) * a.width + column);
        if (a.x != 0.0) t = t * get(a.other, slot);
        return t;
    }
    const float v = get(a.dst, i);
    if (OP == ADD) {
        t = a.x * get(a.src, i);
        t = v + t;
        return t;
    }
    if (OP == SCALE) {
        t = v * a.x;
        return t;
    }
    if (OP == CLAMP) return min(max(v, -a.x), a.x);
    if (OP == SOFT_CAP) {
        t = a.x * tanh_own(v / a.x);
        return t;
    }
    if (OP == MULTIPLY) {
        t = v * get(a.src, column);
        return t;
    }
    if (OP == SCALE_ROWS) {
        t = v * get(a.other, row);
        return t;
    }
    if (OP == GATE_ROWS) return times_sigmoid(v, get(a.src, row));
    if (OP == XIELU) return xielu(v);
    if (OP == SWIGLU_OAI) {
        const float g = min(v, 7.0), u = min(max(get(a.src, i), -7.0), 7.0);
        precise const float x = 1.702 * g;
        t = u + 1.0;
        t = times_sigmoid(g, x) * t;
        return t;
    }
    t = act(v);
    if (a.src != 0ul) t = t * get(a.src, i);
    return t;
}

void main() {
    const uint64_t n = uint64_t(a.rows) * a.width;
    const uint64_t step = uint64_t(gl_NumWorkGroups.x) * gl_WorkGroupSize.x;
    for (uint64_t i = gl_GlobalInvocationID.x; i < n; i += step) {
        const uint row = uint(i / a.width), column = uint(i % a.width);
        if (OP == COPY_RUNS) { // width: columns of all runs
            const uint run = column / a.n, c = column % a.n;
            put(a.dst, uint64_t(row) * a.dst_width + a.dst_first + run * a.dst_step + c,
                get(a.src, uint64_t(row) * a.src_width + a.src_first + run * a.src_step + c));
        } else put(a.dst, i, element(i, row, column));
    }
}
