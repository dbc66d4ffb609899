// SPDX-License-Identifier: Apache-2.0
// kv_elements.glsl: elements of a block's keys and values in every format; kernels/kernels.h has the layouts. Numbers
// are those of kv_element (kv/kv_format.h).
#define ELEMENT_F32 0u
#define ELEMENT_F16 1u
#define ELEMENT_INT8 2u // keys after a Hadamard transform
#define ELEMENT_4BIT 3u
#define ELEMENT_2BIT 4u
#define ELEMENT_NONE 255u // of a task: bytes are copied

#define SLOTS 64u

uint bits_of_element(uint element) { return element == ELEMENT_INT8 ? 8u : element == ELEMENT_4BIT ? 4u : 2u; }
float bf16_to_f32(uint h) { return uintBitsToFloat(h << 16); }

// Elements of floats: keys are at d * SLOTS + slot, values at slot * dim + d.
float float_element(uint64_t head, uint element, uint i) {
    return element == ELEMENT_F32 ? F32(head).v[i] : f16_to_f32(uint(U16(head).v[i]));
}

float scale_int8(uint64_t head, uint dim, uint slot) { return bf16_to_f32(u16_at(head + SLOTS * dim + 2u * slot)); }

// Dimensions 2 i and 2 i + 1 of a key of INT8, 4BIT or 2BIT.
vec2 small_key(uint64_t head, uint element, uint dim, uint slot, uint i) {
    precise vec2 y;
    if (element == ELEMENT_INT8) {
        const uint pair = u16_at(head + 2u * (i * SLOTS + slot));
        y = vec2(scale_int8(head, dim, slot)) * vec2(i8_of(pair), i8_of(pair >> 8));
        return y;
    }
    const uint bits = bits_of_element(element), most = (1u << bits) - 1u, per_row = 16u * bits;
    const uint codes = u8_at(head + i * per_row + slot % per_row) >> (slot >= per_row ? 4u : 0u);
    const uint64_t ranges = head + dim * 8u * bits + 4u * i, least = ranges + 2u * dim;
    y = vec2(f16_to_f32(u16_at(ranges)), f16_to_f32(u16_at(ranges + 2ul))) *
        vec2(codes & most, (codes >> bits) & most);
    y = y + vec2(f16_to_f32(u16_at(least)), f16_to_f32(u16_at(least + 2ul)));
    return y;
}

// Where the code of a value of 4BIT or 2BIT is: a row of bytes, and the first bit.
uint value_row(uint bits, uint slot) { return slot / 2u % (8u * bits); }
uint value_shift(uint bits, uint slot) { return slot % 2u * bits + (slot / 2u >= 8u * bits ? 4u : 0u); }

// Dimension d of a value of INT8, 4BIT or 2BIT.
float small_value(uint64_t head, uint element, uint dim, uint slot, uint d) {
    precise float y;
    if (element == ELEMENT_INT8) {
        const uint code = u8_at(head + 2u * (slot / 2u * dim + d) + slot % 2u);
        y = scale_int8(head, dim, slot) * float(i8_of(code));
        return y;
    }
    const uint bits = bits_of_element(element);
    const uint code = u8_at(head + value_row(bits, slot) * dim + d) >> value_shift(bits, slot) & ((1u << bits) - 1u);
    const uint64_t tail = head + dim * 8u * bits;
    const int zero = int(u8_at(tail + 2u * SLOTS + slot));
    y = bf16_to_f32(u16_at(tail + 2u * slot)) * float(8 * int(code) - zero);
    return y;
}
