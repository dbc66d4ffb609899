/* SPDX-License-Identifier: Apache-2.0 */
/* bench_stats.h: measurement for `bench`: histograms of fixed size, random numbers, the process's memory. */
#ifndef CLI_BENCH_STATS_H
#define CLI_BENCH_STATS_H

#include <jansson.h>
#include <stdint.h>

/* A histogram: each bucket's upper bound is 1 % above its lower one, so percentiles are within 1 %, from a microsecond
 * to hours. An hour of load takes no more memory than a second. Zero-initialise. */
#define BENCH_BUCKETS 2400
typedef struct bench_histogram {
    uint64_t n;
    double sum_ms, max_ms;
    uint32_t buckets[BENCH_BUCKETS];
} bench_histogram;

void bench_histogram_add(bench_histogram *h, double ms);
/* The percentile for a share (0 to 1); 0 if the histogram is empty. */
double bench_histogram_at(const bench_histogram *h, double share);
/* {"n", "mean", "p50", "p90", "p95", "p99", "max"} */
json_t *bench_histogram_object(const bench_histogram *h);
/* Three percentiles and the maximum, 9 cells each; "-" if it is empty. */
void bench_histogram_print(const bench_histogram *h, const double shares[3]);

/* SplitMix64 (Steele, Lea and Flood, 2014): the same state gives the same numbers everywhere. */
uint64_t bench_random(uint64_t *state);
uint32_t bench_random_below(uint64_t *state, uint32_t n); /* n > 0 */
double bench_random_real(uint64_t *state);                /* [0, 1) */
int32_t bench_random_around(uint64_t *state, int32_t n);  /* from half of n to one and a half times n, at least 1 */
double bench_random_gap_ms(uint64_t *state,
                           double rate); /* until the next event of a Poisson process; rate per second */
/* The state of one of many independent streams. */
uint64_t bench_random_stream(uint64_t seed, uint64_t stream);

/* From /proc/self/status; without it the peak comes from getrusage, and the others are 0. */
typedef struct bench_process {
    uint64_t peak_bytes, resident_bytes;
    uint64_t own_bytes; /* part of resident_bytes that is not mapped from files */
} bench_process;
bench_process bench_process_now(void);

#endif
