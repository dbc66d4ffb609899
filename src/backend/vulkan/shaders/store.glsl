// SPDX-License-Identifier: Apache-2.0
// store.glsl: what the shaders that store the KV of rows, or compare it with what is stored, have in common: arguments,
// slots, rotated keys.
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint HALVES = 0u; // rotated pairs are (i, i + rot_dim / 2); else (2i, 2i + 1)

struct Slot {
    uint64_t keys, values; // of one head of a block
    uint element, slot;    // of both: kv_elements.glsl; deviate.comp: of keys, and 256 times that of values
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Slots { Slot v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t keys, values, angles, slots; // f32 [rows][heads * dim]; [rows][rot_dim], 0: no rotation; [rows][heads]
    uint n_heads, key_dim, value_dim, rot_dim;
    uint64_t deviations; // f32 [rows], of deviate.comp
} a;

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

uint64_t keys_of(uint row, uint head) { return a.keys + 4ul * a.key_dim * (uint64_t(row) * a.n_heads + head); }
uint64_t values_of(uint row, uint head) { return a.values + 4ul * a.value_dim * (uint64_t(row) * a.n_heads + head); }
uint64_t angles_of(uint row) { return a.angles == 0ul ? 0ul : a.angles + 4ul * a.rot_dim * row; }
