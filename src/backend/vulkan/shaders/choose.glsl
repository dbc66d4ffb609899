// SPDX-License-Identifier: Apache-2.0
// choose.glsl: the k-th highest of numbers, by a workgroup of SIDE: digit by digit, by counts of the numbers that share
// the digits before. Numbers above it are chosen, and of those equal to it the first ones.
shared uint counts[256];
shared uint found_key, found_left;

// Ascending with the number; both zeros are one.
uint key_of(uint64_t numbers, uint i) {
    const float x = get(numbers, i);
    const uint bits = x == 0.0 ? 0u : floatBitsToUint(x);
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
#define LOWEST_KEY 0x007fffffu // of minus infinity

// found_key = the k-th highest of the keys that the invocations count, each those from `first` to before `end`, `step`
// apart; found_left = how many of those equal to it are chosen. Fewer than k keys: 0.
void find_threshold(uint64_t numbers, uint first, uint end, uint step, uint k) {
    const uint own = gl_LocalInvocationID.x;
    if (own == 0u) {
        found_key = 0u;
        found_left = k;
    }
    for (uint pass = 0u; pass < 4u; pass++) {
        const uint at = 24u - 8u * pass, known = pass == 0u ? 0u : 0xffffffffu << (at + 8u);
        for (uint i = own; i < 256u; i += SIDE) counts[i] = 0u;
        barrier();
        const uint so_far = found_key;
        for (uint i = first; i < end; i += step) {
            const uint key = key_of(numbers, i);
            if ((key & known) == (so_far & known)) atomicAdd(counts[(key >> at) & 255u], 1u);
        }
        barrier();
        if (own == 0u) {
            uint digit = 255u, left = found_left;
            while (digit > 0u && counts[digit] < left) left -= counts[digit--];
            found_key = so_far | digit << at;
            found_left = left;
        }
        barrier();
    }
}
