/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h: the timed loops of limits.c, one set for each instruction-set level (limits_*.c).
 *
 * The loops load nothing, and nothing else is timed: their rates are what the level's instructions can reach.
 */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "support.h"

/* Runs a loop of products and returns the number of its operations: a product and its addition are two. */
typedef uint64_t (*bench_products_fn)(long rounds);

typedef struct bench_loops {
    bench_products_fn products[BENCH_N_PRODUCTS];
    uint64_t (*sum)(const uint64_t *data, size_t n); /* reads n words; n: a multiple of 64 */
} bench_loops;

/* Replace in *l the loops that the level improves. */
void bench_loops_avx2(bench_loops *l);
void bench_loops_avxvnni(bench_loops *l);
void bench_loops_avx512(bench_loops *l);
void bench_loops_amx(bench_loops *l);

/* Independent sums: they hide the latency of one (an FMA of four cycles on two ports needs eight). */
#define BENCH_SUMS 8

/* Hides the value of x from the compiler, which can then neither hoist nor remove a product with it. x is a vector
   register. */
#define BENCH_HIDE(x) __asm__ volatile("" \
                                       : "+v"(x))

/* A bench_products_fn. one, other: vectors of factors; zero: a sum of nothing; add(sum, a, b): sum plus `products`
   products. */
#define BENCH_PRODUCTS(name, vector, sum_vector, one, other, zero, add, n_products) \
    static uint64_t name(long rounds) { \
        sum_vector sums[BENCH_SUMS]; \
        vector a = one, b = other; \
        for (int k = 0; k < BENCH_SUMS; k++) sums[k] = zero; \
        for (long r = 0; r < rounds; r++) \
            for (int k = 0; k < BENCH_SUMS; k++) { \
                BENCH_HIDE(a); \
                sums[k] = add(sums[k], a, b); \
            } \
        for (int k = 0; k < BENCH_SUMS; k++) BENCH_HIDE(sums[k]); \
        return (uint64_t)rounds * BENCH_SUMS * (n_products)*2; \
    }

#endif
