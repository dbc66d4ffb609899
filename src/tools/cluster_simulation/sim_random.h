/* SPDX-License-Identifier: Apache-2.0 */
/* sim_random.h: random numbers of a simulation: the same on every machine, without libm. */
#ifndef TOOLS_SIM_RANDOM_H
#define TOOLS_SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/hash.h"

typedef struct sim_random {
    uint64_t state;
} sim_random;

static inline uint64_t sim_random_next(sim_random *r) { return base_random_next(&r->state); }

/* n: 1 to 2^32. */
static inline uint64_t sim_random_below(sim_random *r, uint64_t n) {
    BASE_ASSERT(n >= 1 && n <= UINT64_C(1) << 32);
    return ((sim_random_next(r) >> 32) * n) >> 32;
}

/* 0 <= x < 1 */
static inline double sim_random_unit(sim_random *r) { return (double)(sim_random_next(r) >> 11) / 9007199254740992.0; }

static inline bool sim_random_chance(sim_random *r, double p) { return p > 0 && sim_random_unit(r) < p; }

/* Exponentially distributed with mean 1, by comparisons alone (von Neumann, 1951): the first number of a falling run
 * counts if the run has an odd length; each run that does not adds 1. */
static inline double sim_random_exponential(sim_random *r) {
    for (double whole = 0;; whole += 1) {
        double first = sim_random_unit(r), last = first;
        int length = 1;
        for (double next; (next = sim_random_unit(r)) < last; last = next) length++;
        if (length % 2 == 1) return whole + first;
    }
}

#endif
