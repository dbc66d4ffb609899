#version 460
// SPDX-License-Identifier: Apache-2.0
// choice_highest.comp: the groups of slots that a row attends to in a KV head: those with the highest bounds, of equal
// ones the earlier. A group's bound is the highest of the query heads of the KV head, each less the highest bound of
// that head. In place of the first head's bounds: 1: chosen, 0: not. Grid: KV heads, rows of the tile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "chooser.glsl"

#define SIDE 128u
layout(local_size_x = 128) in;

layout(push_constant, scalar) uniform Arguments {
    uint64_t bounds, choosers; // f32 [rows of the tile][n_heads][stride]
    uint n_heads, n_kv_heads, stride, first_row;
} a;

shared float partial[SIDE];
shared uint equal[SIDE];

#include "choose.glsl"

#define NONE uintBitsToFloat(0xff800000u)

// The highest of the numbers [begin, end) of all invocations.
float highest_of(uint64_t numbers, uint begin, uint end) {
    const uint own = gl_LocalInvocationID.x;
    float most = NONE;
    for (uint i = begin; i < end; i++) most = max(most, get(numbers, i));
    barrier();
    partial[own] = most;
    barrier();
    for (uint n = SIDE / 2u; n > 0u; n >>= 1) {
        if (own < n) partial[own] = max(partial[own], partial[own + n]);
        barrier();
    }
    return partial[0];
}

void main() {
    const uint own = gl_LocalInvocationID.x, kv_head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    const uint group_heads = a.n_heads / a.n_kv_heads;
    const Chooser c = Choosers(a.choosers).v[a.first_row + row];
    if (c.keys == 0ul) return;
    const uint64_t list = a.bounds + 4ul * a.stride * (uint64_t(row) * a.n_heads + kv_head * group_heads);
    const uint each = (c.n_groups + SIDE - 1u) / SIDE; // adjacent groups: an invocation reads what it wrote
    const uint begin = min(own * each, c.n_groups), end = min(begin + each, c.n_groups);
    for (uint h = 0u; h < group_heads; h++) {
        const uint64_t bounds = list + 4ul * a.stride * h;
        const float most = highest_of(bounds, begin, end);
        for (uint i = begin; i < end; i++) {
            precise const float below = get(bounds, i) - most;
            const float y = most == NONE ? NONE : below;
            put(list, i, h == 0u ? y : max(get(list, i), y));
        }
    }
    find_threshold(list, begin, end, 1u, c.most);
    const uint threshold = found_key, left = found_left;
    uint n = 0u;
    for (uint i = begin; i < end; i++) n += uint(key_of(list, i) == threshold);
    equal[own] = n;
    barrier();
    uint rank = 0u; // of groups with the threshold
    for (uint i = 0u; i < own; i++) rank += equal[i];
    for (uint i = begin; i < end; i++) {
        const uint key = key_of(list, i);
        const bool is_chosen = key > LOWEST_KEY && (key > threshold || (key == threshold && rank < left));
        rank += uint(key == threshold);
        put(list, i, is_chosen ? 1.0 : 0.0);
    }
}
