#version 460
// SPDX-License-Identifier: Apache-2.0
// store.comp: rotates a row's keys of a head, and writes keys and values of floats to their slot; slots of integers are
// store_int8.comp's. Grid: KV heads, rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_elements.glsl"
#include "store.glsl"

void write(uint64_t array, uint element, uint i, float x) {
    if (element == ELEMENT_F32) F32(array).v[i] = x;
    else U16(array).v[i] = uint16_t(f32_to_f16(x));
}

void main() {
    const uint head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    const Slot to = Slots(a.slots).v[row * a.n_heads + head];
    const uint64_t x = keys_of(row, head), y = values_of(row, head), cs = angles_of(row);
    if (to.element > ELEMENT_F16) return;
    for (uint d = gl_LocalInvocationID.x; d < a.key_dim; d += 64u)
        write(to.keys, to.element, d * SLOTS + to.slot, key(x, cs, d));
    for (uint d = gl_LocalInvocationID.x; d < a.value_dim; d += 64u)
        write(to.values, to.element, to.slot * a.value_dim + d, get(y, d));
}
