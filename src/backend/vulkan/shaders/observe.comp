#version 460
// SPDX-License-Identifier: Apache-2.0
// observe.comp: joins the attention weights that rows of a tile, and the query heads of a list, give to each slot of
// the observed blocks (backend/attention_observer.h): their sum as fixed-point numbers, or the bits of their maximum,
// which are the same in any order. An invocation a slot. Grid: blocks, lists.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(local_size_x = 64) in;

layout(push_constant, scalar) uniform Arguments {
    uint64_t scores, factors; // as of attend_values.comp
    uint64_t rows, blocks, norms; // norms: f32 [rows of the step], factors of weights; 0: none
    uint64_t dst;             // u64 [lists][n_entries][64]
    uint first_entry, n_entries, n_heads, group, heads_of_list, stride, row_heads;
    uint first_row, begin, end; // rows [begin, end) of the tile, which begins with first_row of the step
    uint one;  // of sums: the number of a weight of 1 is 2^one
    uint maximum, adds; // maximum: else sums; adds: to what earlier tiles gave
} a;

// The number of a row's block in its list; n_blocks: the row does not see it. Entries ascend.
uint find_entry(Row r, uint entry) {
    uint low = 0u, high = r.n_blocks;
    while (low < high) {
        const uint middle = (low + high) / 2u;
        if (RowBlocks(a.blocks).v[r.first_block + middle].entry < entry) low = middle + 1u;
        else high = middle;
    }
    return low < r.n_blocks && RowBlocks(a.blocks).v[r.first_block + low].entry == entry ? low : r.n_blocks;
}

// attention_observer_number of a positive weight.
uint64_t number_of(float weight) {
    const uint bits = floatBitsToUint(weight), e = bits >> 23;
    if (a.maximum != 0u) return uint64_t(bits);
    const uint64_t m = uint64_t((bits & 0x7fffffu) | (e > 0u ? 0x800000u : 0u));
    const int left = int(max(e, 1u)) - 150 + int(a.one); // weight = m * 2^(e - 150)
    if (left >= 0) return m << left;
    if (left < -25) return 0ul;
    return (m + (1ul << (-left - 1))) >> -left;
}

void main() {
    const uint slot = gl_LocalInvocationID.x, list = gl_WorkGroupID.y;
    for (uint block = gl_WorkGroupID.x; block < a.n_entries; block += gl_NumWorkGroups.x) {
        uint64_t joined = 0ul;
        uint64_t at = a.dst + 8ul * ((uint64_t(list) * a.n_entries + block) * 64ul + slot);
        if (a.adds != 0u) joined = U64(at).v[0];
        for (uint row = a.begin; row < a.end; row++) {
            uint seen = 0xffffffffu, number = 0u;
            bool visible = false;
            for (uint h = list * a.heads_of_list; h < (list + 1u) * a.heads_of_list; h++) {
                const uint kv_head = h / a.group;
                if (seen == 0xffffffffu || (a.row_heads != 0u && kv_head != seen)) { // heads see other slots
                    const Row r = Rows(a.rows).v[kv_head * a.row_heads + a.first_row + row];
                    const uint i = find_entry(r, a.first_entry + block);
                    visible = false;
                    if (i < r.n_blocks) {
                        const RowBlock b = RowBlocks(a.blocks).v[r.first_block + i];
                        visible = is_set(b.visible, slot);
                        number = b.before + bits_below(b.visible, slot);
                    }
                    seen = kv_head;
                }
                if (!visible) continue;
                const uint64_t query = uint64_t(row) * a.n_heads + h;
                precise float factor = get(a.factors, query);
                if (a.norms != 0ul) factor = factor * get(a.norms, a.first_row + row);
                precise const float weight = get(a.scores, query * a.stride + number) * factor;
                if (!(weight > 0.0)) continue;
                const uint64_t n = number_of(weight);
                joined = a.maximum != 0u ? max(joined, n) : joined + n;
            }
        }
        U64(at).v[0] = joined;
    }
}
