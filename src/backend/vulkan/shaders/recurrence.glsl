// SPDX-License-Identifier: Apache-2.0
// recurrence.glsl: the rows of a sequence in a step, which the host lists (vulkan_recurrence.c).
struct Run {
    uint64_t states; // of the sequence (recurrent_states.h), all layers
    uint64_t copy;   // what is scanned instead of a layer's state, which stays: of rows that may be rejected; 0: none
    uint first, end; // rows of the step
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Runs { Run v[]; };
