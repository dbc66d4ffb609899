// SPDX-License-Identifier: Apache-2.0
// kv_key.glsl: a key of integers as floats, in x of head_values.glsl.

// x = the key, of int8 transformed still.
void load_small_key(uint64_t head, uint element, uint dim, uint slot) {
    for (uint i = gl_LocalInvocationID.x; i < dim / 2u; i += 64u) {
        const vec2 y = small_key(head, element, dim, slot, i);
        x[2u * i] = y.x;
        x[2u * i + 1u] = y.y;
    }
    const uint size = element == ELEMENT_INT8 ? hadamard_size(dim) : 1u;
    HADAMARD(x, dim, size)
}

// Dimension d of the key in x.
float key_of_x(uint element, uint dim, uint d) {
    const uint size = element == ELEMENT_INT8 ? hadamard_size(dim) : 1u;
    precise const float y = x[d] * inverse_of_power(size);
    return y;
}
