#version 460
// SPDX-License-Identifier: Apache-2.0
// store_int8.comp: rotates a row's keys of a head, transforms them, and writes keys and values of int8 to their slot;
// slots of floats are store.comp's. Grid: KV heads, rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"
#include "store.glsl"

#include "head_values.glsl"

// first: the byte of dimension d's code is first + d / 2 * pair + d % 2 * one.
void write_slot(uint64_t head, uint dim, uint slot, uint first, uint pair, uint one) {
    const uint scale = scale_of_largest(find_largest(dim));
    if (gl_LocalInvocationID.x == 0u) U16(head + SLOTS * dim + 2u * slot).v[0] = uint16_t(scale);
    for (uint d = gl_LocalInvocationID.x; d < dim; d += 64u)
        U8(head + first + d / 2u * pair + d % 2u * one).v[0] = uint8_t(int8_code(x[d], bf16_to_f32(scale)) & 255);
    barrier();
}

void main() {
    const uint head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    const Slot to = Slots(a.slots).v[row * a.n_heads + head];
    if (to.element != ELEMENT_INT8) return;
    const uint64_t cs = angles_of(row);
    for (uint d = gl_LocalInvocationID.x; d < a.key_dim; d += 64u) x[d] = key(keys_of(row, head), cs, d);
    HADAMARD(x, a.key_dim, hadamard_size(a.key_dim))
    write_slot(to.keys, a.key_dim, to.slot, 2u * to.slot, 2u * SLOTS, 1u);
    for (uint d = gl_LocalInvocationID.x; d < a.value_dim; d += 64u) x[d] = get(values_of(row, head), d);
    barrier();
    write_slot(to.values, a.value_dim, to.slot, to.slot / 2u * 2u * a.value_dim + to.slot % 2u, 4u, 2u);
}
