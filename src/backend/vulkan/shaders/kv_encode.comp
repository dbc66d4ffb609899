#version 460
// SPDX-License-Identifier: Apache-2.0
// kv_encode.comp: encodes the floats of a task, which kv_read.comp wrote, into a block; slots that are not used: bits
// of 0, in no range. Grid: tasks.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"
#include "kv_tasks.glsl"

shared uint scales[SLOTS], zeros[SLOTS]; // of values: bf16, an integer

// The code of a key in a range; 0 for slots that are not used.
uint key_code(Task t, uint slot, uint d, uint most, float least, float step) {
    if (slot >= t.n || step == 0.0) return 0u;
    precise const float above = finite(get(t.floats, slot * t.dim + d)) - least;
    return round_code(quotient(above, step), most);
}

// The range of a dimension: f16 bits of the step and of the least value.
uvec2 key_range(Task t, uint d, uint most_code) {
    float least = finite(get(t.floats, d)), most = least;
    for (uint slot = 1u; slot < t.n; slot++) {
        const float y = finite(get(t.floats, slot * t.dim + d));
        least = min(least, y);
        most = max(most, y);
    }
    const uint h = f16_at_most(least);
    precise const float range = most - f16_to_f32(h);
    return uvec2(f16_at_least(quotient(range, float(most_code))), h);
}

void encode_keys(Task t) {
    const uint bits = bits_of_element(t.element), most = (1u << bits) - 1u, per_row = 16u * bits;
    const uint64_t ranges = t.head + t.dim * 8u * bits;
    for (uint i = gl_LocalInvocationID.x; i < t.dim / 2u; i += 64u) {
        const uvec2 one = key_range(t, 2u * i, most), two = key_range(t, 2u * i + 1u, most);
        U16(ranges).v[2u * i] = uint16_t(one.x);
        U16(ranges).v[2u * i + 1u] = uint16_t(two.x);
        U16(ranges).v[t.dim + 2u * i] = uint16_t(one.y);
        U16(ranges).v[t.dim + 2u * i + 1u] = uint16_t(two.y);
        const vec2 step = vec2(f16_to_f32(one.x), f16_to_f32(two.x));
        const vec2 least = vec2(f16_to_f32(one.y), f16_to_f32(two.y));
        for (uint k = 0u; k < per_row; k++) { // a byte
            uint codes = 0u;
            for (uint slot = k, shift = 0u; slot < SLOTS; slot += per_row, shift += 4u)
                codes |= (key_code(t, slot, 2u * i, most, least.x, step.x) |
                          key_code(t, slot, 2u * i + 1u, most, least.y, step.y) << bits) << shift;
            U8(t.head + i * per_row + k).v[0] = uint8_t(codes);
        }
    }
}

// The range of a slot: 1/8 of the distance of two codes, and the code of 0 in these.
void find_range(Task t, uint slot, uint most_code) {
    float least = 0.0, most = 0.0;
    for (uint d = 0u; d < t.dim && slot < t.n; d++) {
        const float y = finite(get(t.floats, slot * t.dim + d));
        least = min(least, y);
        most = max(most, y);
    }
    precise const float range = most - least;
    const float step = quotient(range, 8.0 * float(most_code));
    scales[slot] = floatBitsToUint(step) < TINY_BITS ? 0u : bf16_at_least(step);
    zeros[slot] = scales[slot] == 0u ? 0u : round_code(quotient(-least, bf16_to_f32(scales[slot])), 8u * most_code);
}

uint value_code(Task t, uint slot, uint d, uint most) {
    if (slot >= t.n || scales[slot] == 0u) return 0u;
    const float steps = quotient(finite(get(t.floats, slot * t.dim + d)), bf16_to_f32(scales[slot]));
    precise float y = steps + float(zeros[slot]);
    y = y * 0.125;
    return round_code(y, most);
}

void encode_values(Task t) {
    const uint bits = bits_of_element(t.element), most = (1u << bits) - 1u, rows = 8u * bits;
    const uint own = gl_LocalInvocationID.x;
    const uint64_t tail = t.head + t.dim * rows;
    find_range(t, own, most);
    U16(tail).v[own] = uint16_t(scales[own]);
    U8(tail + 2u * SLOTS).v[own] = uint8_t(zeros[own]);
    barrier();
    for (uint i = own; i < rows * t.dim; i += 64u) { // a byte
        const uint row = i / t.dim, d = i % t.dim;
        uint codes = 0u;
        for (uint slot = 2u * row; slot < SLOTS; slot += 2u * rows)
            codes |= value_code(t, slot, d, most) << value_shift(bits, slot) |
                     value_code(t, slot + 1u, d, most) << value_shift(bits, slot + 1u);
        U8(t.head + i).v[0] = uint8_t(codes);
    }
}

void round_floats(Task t) {
    for (uint i = gl_LocalInvocationID.x; i < t.n * t.dim; i += 64u) {
        const uint slot = i / t.dim, d = i % t.dim, at = t.is_key != 0u ? d * SLOTS + slot : i;
        if (t.element == ELEMENT_F32) F32(t.head).v[at] = get(t.floats, i);
        else U16(t.head).v[at] = uint16_t(f32_to_f16(get(t.floats, i)));
    }
}

void main() {
    const Task t = Tasks(a.tasks).v[gl_WorkGroupID.x];
    if (t.element == ELEMENT_NONE)
        for (uint i = gl_LocalInvocationID.x; i < t.dim; i += 64u) U32(t.head).v[i] = U32(t.floats).v[i];
    else if (t.element <= ELEMENT_F16) round_floats(t);
    else if (t.is_key != 0u) encode_keys(t);
    else encode_values(t);
}
