// SPDX-License-Identifier: Apache-2.0
// kv_tasks.glsl: the keys or values of one head in a block, and the same as floats.
layout(local_size_x = 64) in;

struct Task {
    uint64_t head;     // in a block
    uint64_t floats;   // f32 [n][dim], keys as they are before the transform of int8; ELEMENT_NONE: bytes to copy
    uint element, dim; // ELEMENT_NONE: dim words of 32 bits
    uint n, is_key;    // slots
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Tasks { Task v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t tasks;
} a;
