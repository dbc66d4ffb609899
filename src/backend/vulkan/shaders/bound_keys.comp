#version 460
// SPDX-License-Identifier: Apache-2.0
// bound_keys.comp: the largest and the smallest elements of the keys of groups of slots (backend/slot_bounds.h), in
// f16. Slots that no row can see do not count. Grid: groups, KV heads.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#include "kv_elements.glsl"
#include "kv_rounding.glsl"

layout(local_size_x = 64) in;

struct Place { // of a listed slot
    uint entry, slot;
    int pos;
};
struct Span { // listed slots of a group
    uint first, end;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Places { Place v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Groups { Span v[]; };

layout(push_constant, scalar) uniform Arguments {
    uint64_t heads, places, groups; // heads: of the layer
    uint64_t keys;                  // f16 [KV heads][blocks of 64 groups][largest, smallest][dim][64]
    uint n_groups, n_kv_heads, dim;
    int window, end; // 0: no window; position of the first row that chooses
} a;

#include "head_values.glsl"
#include "kv_key.glsl"

#define MOST_OWN 32u // dimensions of an invocation: MOST_DIMS / 64

// own = the largest and the smallest elements so far, of dimensions i, i + 64, ...
void add_slot(Head h, uint slot, bool is_first, inout vec2 own[MOST_OWN]) {
    const bool is_small = h.key_element > ELEMENT_F16;
    barrier();
    if (is_small) load_small_key(h.keys, h.key_element, a.dim, slot);
    for (uint d = gl_LocalInvocationID.x, i = 0u; d < a.dim; d += 64u, i++) {
        const float k = is_small ? key_of_x(h.key_element, a.dim, d)
                                 : float_element(h.keys, h.key_element, d * SLOTS + slot);
        own[i] = is_first ? vec2(k) : vec2(max(own[i].x, k), min(own[i].y, k));
    }
}

void main() {
    const uint kv_head = gl_WorkGroupID.y, n_blocks = (a.n_groups + 63u) / 64u;
    for (uint group = gl_WorkGroupID.x; group < a.n_groups; group += gl_NumWorkGroups.x) {
        const Span g = Groups(a.groups).v[group];
        vec2 own[MOST_OWN];
        bool is_first = true;
        for (uint i = 0u; i < MOST_OWN; i++) own[i] = vec2(0.0);
        for (uint i = g.first; i < g.end; i++) { // uniform in the workgroup
            const Place p = Places(a.places).v[i];
            if (a.window > 0 && a.end - p.pos >= a.window) continue;
            add_slot(Heads(a.heads).v[p.entry * a.n_kv_heads + kv_head], p.slot, is_first, own);
            is_first = false;
        }
        const uint64_t to = a.keys + 256ul * a.dim * (uint64_t(kv_head) * n_blocks + group / 64u) + 2u * (group % 64u);
        for (uint d = gl_LocalInvocationID.x, i = 0u; d < a.dim; d += 64u, i++) {
            U16(to + 128ul * d).v[0] = uint16_t(f32_to_f16(own[i].x));
            U16(to + 128ul * (a.dim + d)).v[0] = uint16_t(f32_to_f16(own[i].y));
        }
    }
}
