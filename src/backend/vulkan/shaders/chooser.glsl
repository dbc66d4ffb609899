// SPDX-License-Identifier: Apache-2.0
// chooser.glsl: what a row's choice of slots needs (vulkan_slot_bounds.c).
struct Chooser {      // of a row of the step
    uint64_t keys;    // as bound_keys.comp, of all layers; 0: the row sees all slots
    uint64_t groups;  // Group [n_groups]
    uint64_t members; // i32 [n_entries][64]: the group of a slot; -1: it is not listed
    uint n_groups, most; // most: groups that are chosen
    uint first_entry, n_entries; // of the row's context; of it when the slots were listed
};
struct Group {
    uint entry; // of its context: any of its view
    int pos;    // of its last slot
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Choosers { Chooser v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Groups { Group v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Members { int v[]; };
