#version 460
// SPDX-License-Identifier: Apache-2.0
// route.comp: selects a row's experts, in ascending order, and their weights: an invocation a row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 32) in;

layout(push_constant, scalar) uniform Arguments {
    uint64_t scores, values;      // f32 [rows][n_experts]; scratch of the same shape, of twice as many floats
    uint64_t correction, scales;  // f32 [n_experts]; 0: none
    uint64_t experts, weights;    // u32 [rows][n_used][3]: a tile of one row (linear.glsl); f32 [rows][n_used]
    uint rows, n_experts, n_used, n_groups, n_groups_used;
    uint sums_to_1, sigmoid, corrected; // corrected: experts are selected by probabilities, not by scores
    float factor;
} a;

float highest_of(uint64_t x) {
    float highest = get(x, 0u);
    for (uint e = 1u; e < a.n_experts; e++) highest = max(highest, get(x, e));
    return highest;
}

// Of group g: the sum of the two best, or of its only one.
float group_value(uint64_t values, uint g, uint size) {
    float best = get(values, g * size), second = -3.4028234e38;
    for (uint i = 1u; i < size; i++) {
        const float v = get(values, g * size + i);
        second = max(second, min(best, v));
        best = max(best, v);
    }
    precise const float both = best + second;
    return size > 1u ? both : best;
}

// Leaves the best groups, the first of equal ones.
void drop_groups(uint64_t values, uint64_t kept) {
    const uint size = a.n_experts / a.n_groups;
    for (uint g = 0u; g < a.n_groups; g++) put(kept, g, group_value(values, g, size));
    for (uint g = 0u; g < a.n_groups; g++) {
        const float own = get(kept, g);
        uint better = 0u;
        for (uint k = 0u; k < a.n_groups; k++) {
            const float other = get(kept, k);
            better += uint(other > own || (other == own && k < g));
        }
        for (uint i = 0u; i < size && better >= a.n_groups_used; i++) put(values, g * size + i, -3.4028234e38);
    }
}

void main() {
    const uint row = gl_GlobalInvocationID.x;
    if (row >= a.rows) return;
    const uint64_t scores = a.scores + 4ul * a.n_experts * row, values = a.values + 8ul * a.n_experts * row,
                   probabilities = values + 4ul * a.n_experts;
    const float highest = highest_of(scores);
    precise float sum = 0.0;
    for (uint e = 0u; e < a.n_experts; e++) {
        precise const float below = get(scores, e) - highest;
        const float x = a.sigmoid != 0u ? times_sigmoid(1.0, get(scores, e)) : exp_own(below);
        put(probabilities, e, x);
        if (a.sigmoid == 0u) sum = sum + x;
    }
    for (uint e = 0u; e < a.n_experts; e++) {
        float p = get(probabilities, e);
        if (a.sigmoid == 0u && (a.corrected != 0u || a.sums_to_1 == 0u)) put(probabilities, e, p = p / sum);
        precise float v = a.corrected != 0u ? p : get(scores, e);
        const float c = get(a.correction != 0ul ? a.correction : a.scores, e); // the address is chosen: linear.glsl
        if (a.correction != 0ul) v = v + c;
        put(values, e, v);
    }
    const uint64_t experts = a.experts + 12ul * a.n_used * row, weights = a.weights + 4ul * a.n_used * row;
    if (a.n_groups > 0u) drop_groups(values, scores); // the scores are not needed any more
    for (uint i = 0u; i < a.n_used; i++) { // the best of those that are left; then it is marked by a NaN
        uint best = 0u;
        float most = -3.4028234e38;
        bool any = false;
        for (uint e = 0u; e < a.n_experts; e++) {
            const uint bits = U32(values + 4ul * e).v[0];
            if (bits == 0x7fc00000u) continue;
            const float v = uintBitsToFloat(bits);
            if (!any || v > most) {
                best = e;
                most = v;
                any = true;
            }
        }
        U32(values + 4ul * best).v[0] = 0x7fc00000u;
    }
    uint n = 0u;
    precise float chosen = 0.0;
    for (uint e = 0u; e < a.n_experts && n < a.n_used; e++) {
        if (U32(values + 4ul * e).v[0] != 0x7fc00000u) continue;
        U32 tile = U32(experts + 12ul * n);
        tile.v[0] = e;
        tile.v[1] = a.n_used * row + n;
        tile.v[2] = 1u;
        put(weights, n++, get(probabilities, e));
        chosen = chosen + get(probabilities, e);
    }
    for (uint i = 0u; i < a.n_used; i++) {
        const uint e = U32(experts + 12ul * i).v[0];
        precise float w = get(weights, i);
        if (a.sums_to_1 != 0u) w = w / max(chosen, 1e-20);
        w = w * a.factor;
        const float s = get(a.scales != 0ul ? a.scales : a.scores, e); // likewise
        if (a.scales != 0ul) w = w * s;
        put(weights, i, w);
    }
}
