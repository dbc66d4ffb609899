/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_random.h: a small random generator, the same on every machine (splitmix64; Steele, Lea and Flood 2014). */
#ifndef SUPPORT_TINY_RANDOM_H
#define SUPPORT_TINY_RANDOM_H

#include <stdint.h>

typedef struct tiny_random {
    uint64_t state;
} tiny_random;

static inline uint64_t tiny_random_u64(tiny_random *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, n), n >= 1; the bias for small n does not matter here. */
static inline uint64_t tiny_random_below(tiny_random *r, uint64_t n) { return tiny_random_u64(r) % n; }

/* Mean 0, deviation 1, within +-3.47: the sum of four uniform 16-bit numbers, so that no libm can change a bit of
   it. */
static inline float tiny_random_normal(tiny_random *r) {
    uint64_t z = tiny_random_u64(r);
    int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    return (float)(sum - 131070) * (1.0f / 37837.2f);
}

#endif
