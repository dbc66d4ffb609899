#version 460
// SPDX-License-Identifier: Apache-2.0
// store.comp: rotates a row's keys of a head, and writes keys and values to their slot. Grid: KV heads, rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint HALVES = 0u; // rotated pairs are (i, i + rot_dim / 2); else (2i, 2i + 1)

struct Slot {
    uint64_t keys, values; // of one head of a block: [key_dim][64], [64][value_dim]
    uint format, slot;     // 0: f32, 1: f16
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Slots { Slot v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t keys, values, angles, slots; // f32 [rows][heads * dim]; [rows][rot_dim], 0: no rotation; [rows][heads]
    uint n_heads, key_dim, value_dim, rot_dim;
} a;

void write(uint64_t array, uint format, uint i, float x) {
    if (format == 0u) F32(array).v[i] = x;
    else U16(array).v[i] = uint16_t(f32_to_f16(x));
}

float key(uint64_t x, uint64_t cs, uint d) {
    if (cs == 0ul || d >= a.rot_dim) return get(x, d);
    const uint n = a.rot_dim / 2u, i = HALVES != 0u ? d % n : d / 2u;
    const bool second = HALVES != 0u ? d >= n : (d & 1u) != 0u;
    const float xa = get(x, HALVES != 0u ? i : 2u * i), xb = get(x, HALVES != 0u ? i + n : 2u * i + 1u);
    const float c = get(cs, 2u * i), s = get(cs, 2u * i + 1u);
    precise const float p = second ? xb * c : xa * c;
    precise const float q = second ? xa * s : -(xb * s);
    precise const float y = p + q;
    return y;
}

void main() {
    const uint head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    const Slot to = Slots(a.slots).v[row * a.n_heads + head];
    const uint64_t x = a.keys + 4ul * a.key_dim * (uint64_t(row) * a.n_heads + head);
    const uint64_t y = a.values + 4ul * a.value_dim * (uint64_t(row) * a.n_heads + head);
    const uint64_t cs = a.angles == 0ul ? 0ul : a.angles + 4ul * a.rot_dim * row;
    for (uint d = gl_LocalInvocationID.x; d < a.key_dim; d += 64u)
        write(to.keys, to.format, d * 64u + to.slot, key(x, cs, d));
    for (uint d = gl_LocalInvocationID.x; d < a.value_dim; d += 64u)
        write(to.values, to.format, to.slot * a.value_dim + d, get(y, d));
}
