#version 460
// SPDX-License-Identifier: Apache-2.0
// recurrent_scan.comp: the states of a layer go through the rows of each run in their order: an invocation has a column
// of a head's matrix, [state_dim] elements `dim` floats apart. kernels.h has the recurrences. Sums go over the elements
// of a column, in ascending order: they depend neither on the rows of a step nor on where steps begin. Grid:
// columns / 64, heads, runs.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "recurrence.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint KIND = 0u; // vulkan_scan_kind of vulkan_shaders.h
#define MAMBA2 0u
#define MAMBA1 1u
#define DELTA 2u
#define KIMI 3u
#define DECAYED_SUM 4u

layout(push_constant, scalar) uniform Arguments {
    uint64_t runs, x; // f32 [rows][width]: convolved; of Mamba2 x | B | C, Mamba1 x, delta nets q | k | v
    // MAMBA2: [rows][n_heads], both. MAMBA1: [dim][n_state] of a, [rows][dim]. DELTA: [rows][n_heads], both. KIMI:
    // [rows][n_heads * n_state], [rows][n_heads]. DECAYED_SUM: [dim]
    uint64_t decays, rates;
    uint64_t bc;                // MAMBA1: [rows][2 n_state]
    uint64_t dst;               // [rows][n_heads * dim]
    uint64_t at, copy_at;       // bytes: the matrices in the states, and in a copy
    uint n_heads, dim, n_state, n_groups, width;
    uint neighbours;   // heads h * n_groups / n_heads share q and k; else h % n_groups
    uint has_products; // of decays, after all matrices (Mamba2)
} a;

float decayed(float decay, float s, float u, float k) {
    precise const float kept = decay * s;
    precise const float added = u * k;
    precise const float y = kept + added;
    return y;
}

void scan_mamba2(uint row, uint head, uint d, uint64_t s, inout float products) {
    const uint64_t x = a.x + 4ul * uint64_t(row) * a.width, rate = uint64_t(row) * a.n_heads + head;
    const uint b = a.n_heads * a.dim + head * a.n_groups / a.n_heads * a.n_state, c = b + a.n_groups * a.n_state;
    const float decay = get(a.decays, rate);
    precise const float u = get(a.rates, rate) * get(x, head * a.dim + d);
    precise float sum = 0.0;
    for (uint i = 0u; i < a.n_state; i++) {
        const float y = decayed(decay, get(s, i * a.dim), u, get(x, b + i));
        put(s, i * a.dim, y);
        precise const float p = y * get(x, c + i);
        sum = sum + p;
    }
    precise const float all = products * decay;
    products = all;
    put(a.dst, uint64_t(row) * a.n_heads * a.dim + head * a.dim + d, sum);
}

void scan_mamba1(uint row, uint d, uint64_t s) {
    const uint64_t bc = a.bc + 8ul * uint64_t(row) * a.n_state, at = uint64_t(row) * a.dim + d;
    const float dt = get(a.rates, at);
    precise const float u = dt * get(a.x, at);
    precise float sum = 0.0;
    for (uint i = 0u; i < a.n_state; i++) {
        precise const float exponent = dt * get(a.decays, uint64_t(d) * a.n_state + i);
        const float y = decayed(exp_own(exponent), get(s, i * a.dim), u, get(bc, i));
        put(s, i * a.dim, y);
        precise const float p = y * get(bc, a.n_state + i);
        sum = sum + p;
    }
    put(a.dst, at, sum);
}

void scan_delta(uint row, uint head, uint d, uint64_t s) {
    const uint group = a.neighbours != 0u ? head * a.n_groups / a.n_heads : head % a.n_groups;
    const uint64_t x = a.x + 4ul * uint64_t(row) * a.width, rate = uint64_t(row) * a.n_heads + head;
    const uint64_t decays = a.decays + 4ul * a.n_state * rate; // KIMI
    const uint q = group * a.n_state, k = q + a.n_groups * a.n_state, v = 2u * a.n_groups * a.n_state + head * a.dim + d;
    const float decay = KIND == KIMI ? 1.0 : get(a.decays, rate);
    precise float known = 0.0;
    for (uint i = 0u; i < a.n_state; i++) {
        precise float decayed_k = get(x, k + i);
        if (KIND == KIMI) decayed_k = get(decays, i) * decayed_k;
        precise const float p = get(s, i * a.dim) * decayed_k;
        known = known + p;
    }
    if (KIND == DELTA) known = decay * known;
    precise const float missing = get(x, v) - known;
    precise const float u = get(a.rates, rate) * missing;
    precise float sum = 0.0;
    for (uint i = 0u; i < a.n_state; i++) {
        const float y = decayed(KIND == KIMI ? get(decays, i) : decay, get(s, i * a.dim), u, get(x, k + i));
        put(s, i * a.dim, y);
        precise const float p = y * get(x, q + i);
        sum = sum + p;
    }
    put(a.dst, uint64_t(row) * a.n_heads * a.dim + head * a.dim + d, sum);
}

void scan_decayed_sum(uint row, uint d, uint64_t s) {
    const float y = decayed(get(a.decays, d), get(s, 0u), 1.0, get(a.x, uint64_t(row) * a.width + d));
    put(s, 0u, y);
    put(a.dst, uint64_t(row) * a.dim + d, y);
}

void main() {
    const uint d = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y;
    const Run run = Runs(a.runs).v[gl_WorkGroupID.z];
    if (d >= a.dim) return;
    const uint64_t own = 4ul * (uint64_t(head) * a.n_state * a.dim + d);
    uint64_t s = run.states + a.at + own;
    if (run.copy != 0ul) {
        const uint64_t from = s;
        s = run.copy + a.copy_at + own;
        for (uint i = 0u; i < a.n_state; i++) put(s, i * a.dim, get(from, i * a.dim));
    }
    const bool counts = KIND == MAMBA2 && a.has_products != 0u && d == 0u && run.copy == 0ul;
    const uint64_t product = run.states + a.at + 4ul * (uint64_t(a.n_heads) * a.n_state * a.dim + head);
    float products = counts ? get(product, 0u) : 1.0;
    for (uint row = run.first; row < run.end; row++) {
        if (KIND == MAMBA2) scan_mamba2(row, head, d, s, products);
        else if (KIND == MAMBA1) scan_mamba1(row, d, s);
        else if (KIND == DECAYED_SUM) scan_decayed_sum(row, d, s);
        else scan_delta(row, head, d, s);
    }
    if (counts) put(product, 0u, products);
}
