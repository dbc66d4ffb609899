#version 460
// SPDX-License-Identifier: Apache-2.0
// deviate.comp: sums of squared differences between a row's keys and values, rotated and rounded as they would be
// stored, and those that are in its slot. Grid: rows.
//
// Order of a sum: invocation i adds dimensions i, i + 64, ... of each head in turn, keys apart from values; their sums
// are added pair by pair. Keys of int8 are compared after their transform, which multiplies the sum by its size.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"
#include "store.glsl"
#include "head_values.glsl"

shared float partial[64];

// A key, or a value, as the format of the stored one rounds it. scale: of int8
float rounded(uint64_t head, uint element, bool is_key, uint dim, uint slot, uint d, float scale) {
    if (element == ELEMENT_F32) return x[d];
    if (element == ELEMENT_F16) return f16_to_f32(f32_to_f16(x[d]));
    precise float y;
    if (element == ELEMENT_INT8) {
        y = scale * float(int8_code(x[d], scale));
        return y;
    }
    const uint bits = bits_of_element(element), most = (1u << bits) - 1u;
    if (is_key) {
        const uint64_t ranges = head + dim * 8u * bits + 2u * d;
        const float step = f16_to_f32(u16_at(ranges)), least = f16_to_f32(u16_at(ranges + 2u * dim));
        if (!(step > 0.0)) return least;
        y = finite(x[d]) - least;
        y = step * float(round_code(quotient(y, step), most)) + least;
        return y;
    }
    const uint64_t tail = head + dim * 8u * bits;
    const float step = bf16_to_f32(u16_at(tail + 2u * slot));
    const int zero = int(u8_at(tail + 2u * SLOTS + slot));
    if (!(step > 0.0)) return 0.0;
    y = (quotient(finite(x[d]), step) + float(zero)) * 0.125;
    y = step * float(8 * int(round_code(y, most)) - zero);
    return y;
}

float stored(uint64_t head, uint element, bool is_key, uint dim, uint slot, uint d) {
    if (element <= ELEMENT_F16) return float_element(head, element, is_key ? d * SLOTS + slot : slot * dim + d);
    if (!is_key) return small_value(head, element, dim, slot, d);
    const vec2 pair = small_key(head, element, dim, slot, d / 2u);
    return (d & 1u) == 0u ? pair.x : pair.y;
}

// sum + what this invocation's dimensions of the head in x differ by.
float add_differences(float sum, uint64_t head, uint element, bool is_key, uint dim, uint slot) {
    float scale = 0.0;
    barrier();
    if (element == ELEMENT_INT8) scale = bf16_to_f32(scale_of_largest(find_largest(dim)));
    precise float s = sum;
    for (uint d = gl_LocalInvocationID.x; d < dim; d += 64u) {
        precise const float difference =
            rounded(head, element, is_key, dim, slot, d, scale) - stored(head, element, is_key, dim, slot, d);
        precise const float square = difference * difference;
        s = s + square;
    }
    barrier();
    return s;
}

void main() {
    const uint row = gl_WorkGroupID.x, own = gl_LocalInvocationID.x;
    float keys_sum = 0.0, values_sum = 0.0;
    uint size = 1u;
    for (uint h = 0u; h < a.n_heads; h++) {
        const Slot at = Slots(a.slots).v[row * a.n_heads + h];
        const uint key_element = at.element & 255u, value_element = at.element >> 8;
        for (uint d = own; d < a.key_dim; d += 64u) x[d] = key(keys_of(row, h), angles_of(row), d);
        size = key_element == ELEMENT_INT8 ? hadamard_size(a.key_dim) : 1u;
        HADAMARD(x, a.key_dim, size)
        keys_sum = add_differences(keys_sum, at.keys, key_element, true, a.key_dim, at.slot);
        for (uint d = own; d < a.value_dim; d += 64u) x[d] = get(values_of(row, h), d);
        if (a.value_dim > 0u)
            values_sum = add_differences(values_sum, at.values, value_element, false, a.value_dim, at.slot);
    }
    precise float sum = keys_sum * inverse_of_power(size);
    sum = sum + values_sum;
    partial[own] = sum;
    barrier();
    for (uint n = 32u; n > 0u; n >>= 1) {
        if (own < n) {
            precise const float s = partial[own] + partial[own + n];
            partial[own] = s;
        }
        barrier();
    }
    if (own == 0u) put(a.deviations, row, partial[0]);
}
