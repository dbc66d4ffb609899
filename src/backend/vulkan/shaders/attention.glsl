// SPDX-License-Identifier: Apache-2.0
// attention.glsl: the tables of attention, which the host makes for each step (vulkan_attention.c), and rotation.
//
// A row attends to a list of blocks of its context, in context order, and of each to the slots of a mask. Slot number i
// of a row is the i-th that it sees, whatever blocks and spans the slots are in: all sums follow these numbers, so that
// a result does not depend on where blocks and spans begin.
//
// KV heads may see different slots (reduced spans, chosen slots): then rows, and entries with positions, have a table
// for each KV head, `row_heads` and `entry_heads` elements after the last; 0: all heads have one.
struct Row { // of the step
    uint first_block, n_blocks; // in the list of row blocks
    uint n_slots;               // that it sees in all
    int pos;
};
struct RowBlock {
    uint entry, before; // before: slots that the row sees in earlier blocks
    uint64_t visible;
};
struct Entry { // one block of a view of a context
    uint64_t positions; // i32 [64]; 0: first + slot
    int first;          // position of slot 0, with the shift; of positions: the shift
    uint shift;         // number of the view's shift; 0: no shift
};
struct Head { // one KV head of an entry
    uint64_t keys, values;
    uint key_element, value_element; // kv_elements.glsl
};
// The place of a row's i-th block in the list. After its last block the last one again: Mesa 26's lavapipe executes loads
// of one address for all once more when a loop has ended, or was not to begin, and follows the addresses in what it loads.
uint block_at(Row r, uint i) { return r.first_block + min(i, max(r.n_blocks, 1u) - 1u); }
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Rows { Row v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer RowBlocks { RowBlock v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Entries { Entry v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Heads { Head v[]; };

#define QUERIES 8u      // heads of a group that a workgroup computes at once, at most
#define QUERY_FLOATS 4096u // of all of them

bool is_set(uint64_t mask, uint bit) { return ((mask >> bit) & 1ul) != 0ul; }
uint bits_below(uint64_t mask, uint bit) {
    const uint64_t m = mask & ((1ul << bit) - 1ul);
    return uint(bitCount(uint(m)) + bitCount(uint(m >> 32)));
}
uint bits_of(uint64_t mask) { return uint(bitCount(uint(mask)) + bitCount(uint(mask >> 32))); }
