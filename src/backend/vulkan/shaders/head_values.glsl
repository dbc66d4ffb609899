// SPDX-License-Identifier: Apache-2.0
// head_values.glsl: the elements of one head in shared memory, and the largest of them, for workgroups of 64.
#define MOST_DIMS 2048u // vulkan_support.c

shared float x[MOST_DIMS];
shared uint largest[64];

// The bits of the largest magnitude of x[dim]; NaN count as 0.
uint find_largest(uint dim) {
    const uint i = gl_LocalInvocationID.x;
    uint most = 0u;
    for (uint d = i; d < dim; d += 64u)
        if (!is_nan(x[d])) most = max(most, floatBitsToUint(x[d]) & 0x7fffffffu);
    largest[i] = most;
    barrier();
    for (uint n = 32u; n > 0u; n >>= 1) {
        if (i < n) largest[i] = max(largest[i], largest[i + n]);
        barrier();
    }
    return largest[0];
}
