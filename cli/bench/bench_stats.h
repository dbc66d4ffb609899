/* SPDX-License-Identifier: Apache-2.0 */
/* bench_stats.h: what `bench` counts with: times in a table of fixed size, how they are told, random numbers, the process's memory. */
#ifndef CLI_BENCH_STATS_H
#define CLI_BENCH_STATS_H

#include <jansson.h>
#include <stdint.h>

/* Times by their size: each bucket's upper end is 1 % above its lower one, so percentiles are within 1 %, from a microsecond to hours.
 * An hour of load takes no more memory than a second. Zero-initialise. */
#define BENCH_BUCKETS 2400
typedef struct bench_histogram {
    uint64_t n;
    double sum_ms, max_ms;
    uint32_t buckets[BENCH_BUCKETS];
} bench_histogram;

void bench_histogram_add(bench_histogram *h, double ms);
/* The time that a share (0 to 1) of all are not above; 0 if there is none. */
double bench_histogram_at(const bench_histogram *h, double share);
/* {"n", "mean", "p50", "p90", "p95", "p99", "max"} */
json_t *bench_histogram_object(const bench_histogram *h);
/* Three percentiles and the greatest, 9 cells each; "-" where there is none. */
void bench_histogram_print(const bench_histogram *h, const double shares[3]);

/* SplitMix64 (Steele, Lea and Flood, 2014): the same state gives the same numbers everywhere. */
uint64_t bench_random(uint64_t *state);
uint32_t bench_random_below(uint64_t *state, uint32_t n); /* n > 0 */
double bench_random_real(uint64_t *state);                /* [0, 1) */
int32_t bench_random_around(uint64_t *state, int32_t n);  /* from half of n to one and a half times n, at least 1 */
double bench_random_gap_ms(uint64_t *state, double rate); /* until the next event of a Poisson process of so many a second */
/* A state for one of many independent streams. */
uint64_t bench_random_stream(uint64_t seed, uint64_t stream);

/* Of /proc/self/status; where there is none the peak is what getrusage says, the others are 0. */
typedef struct bench_process {
    uint64_t peak_bytes, resident_bytes;
    uint64_t own_bytes; /* of resident_bytes: not of files */
} bench_process;
bench_process bench_process_now(void);

#endif
