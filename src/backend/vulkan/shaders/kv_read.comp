#version 460
// SPDX-License-Identifier: Apache-2.0
// kv_read.comp: a slot of a task as floats. Grid: tasks, slots.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"
#include "kv_tasks.glsl"

#define MOST_DIMS 2048u // vulkan_support.c

shared float x[MOST_DIMS];

void main() {
    const Task t = Tasks(a.tasks).v[gl_WorkGroupID.x];
    const uint slot = gl_WorkGroupID.y, first = gl_LocalInvocationID.x;
    if (slot >= t.n) return;
    const uint64_t to = t.floats + 4ul * slot * t.dim;
    if (t.element <= ELEMENT_F16) {
        for (uint d = first; d < t.dim; d += 64u)
            put(to, d, float_element(t.head, t.element, t.is_key != 0u ? d * SLOTS + slot : slot * t.dim + d));
        return;
    }
    if (t.is_key == 0u) {
        for (uint d = first; d < t.dim; d += 64u) put(to, d, small_value(t.head, t.element, t.dim, slot, d));
        return;
    }
    for (uint i = first; i < t.dim / 2u; i += 64u) {
        const vec2 y = small_key(t.head, t.element, t.dim, slot, i);
        x[2u * i] = y.x;
        x[2u * i + 1u] = y.y;
    }
    const uint size = t.element == ELEMENT_INT8 ? hadamard_size(t.dim) : 1u;
    HADAMARD(x, t.dim, size)
    for (uint d = first; d < t.dim; d += 64u) {
        precise const float y = x[d] * inverse_of_power(size);
        put(to, d, y);
    }
}
