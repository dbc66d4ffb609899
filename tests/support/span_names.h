/* SPDX-License-Identifier: Apache-2.0 */
/* span_names.h: names of KV for tests, and the numbers that tests of src/cluster draw. */
#ifndef SUPPORT_SPAN_NAMES_H
#define SUPPORT_SPAN_NAMES_H

#include <stdint.h>
#include <string.h>

#include "reprise.h"
#include "reprise_cluster.h"

/* SplitMix64. */
static inline uint64_t span_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static inline uint64_t span_below(uint64_t *state, uint64_t n) { return span_random(state) % n; }

static inline rp_name span_name(uint64_t low, uint64_t high) {
    rp_name name;
    for (int i = 0; i < 8; i++) {
        name.bytes[i] = (uint8_t)(low >> 8 * i);
        name.bytes[8 + i] = (uint8_t)(high >> 8 * i);
    }
    return name;
}

/* The i-th of some names that look random. */
static inline rp_name span_name_at(uint64_t i) {
    uint64_t state = i;
    const uint64_t low = span_random(&state);
    return span_name(low, span_random(&state));
}

/* A name with cluster_name_hash(name, 0) == hash, one for each high: that hash is no secret, and its steps can be
   undone. */
static inline rp_name span_name_of_hash(uint64_t hash, uint64_t high) {
    hash = (hash ^ hash >> 33) * UINT64_C(0x9cb4b2f8129337db);
    hash = (hash ^ hash >> 33) * UINT64_C(0x4f74430c22a54005);
    hash ^= hash >> 33;
    return span_name(hash ^ high * UINT64_C(0x9e3779b97f4a7c15), high);
}

#endif
