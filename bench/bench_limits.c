/* SPDX-License-Identifier: Apache-2.0 */
/* bench_limits.c: peak memory bandwidth and multiplication rate of this machine, measured now, as one line of JSON.
 *
 *   bench_limits [--threads N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

int main(int argc, char **argv) {
    bench_name = "bench_limits";
    int threads = argc == 3 && strcmp(argv[1], "--threads") == 0 ? atoi(argv[2]) : argc == 1 ? 2
                                                                                             : 0;
    if (threads < 1 || threads > BENCH_MAX_THREADS) {
        fprintf(stderr, "usage: bench_limits [--threads N]   (1 to %d)\n", BENCH_MAX_THREADS);
        return 2;
    }
    printf("{\"threads\":%d,\"read_gbs_1\":%.2f,\"read_gbs\":%.2f,", threads, bench_read_bandwidth(1),
           bench_read_bandwidth(threads));
    printf("\"int8_gops\":%.1f,\"int16_gops\":%.1f,\"f32_gops\":%.1f}\n", bench_multiply_peak(BENCH_INT8, threads),
           bench_multiply_peak(BENCH_INT16, threads), bench_multiply_peak(BENCH_F32, threads));
    return 0;
}
