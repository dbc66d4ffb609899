#version 460
// SPDX-License-Identifier: Apache-2.0
// kv_read.comp: a slot of a task as floats. Grid: tasks, slots.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"
#include "kv_tasks.glsl"
#include "head_values.glsl"
#include "kv_key.glsl"

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
    load_small_key(t.head, t.element, t.dim, slot);
    for (uint d = first; d < t.dim; d += 64u) put(to, d, key_of_x(t.element, t.dim, d));
}
