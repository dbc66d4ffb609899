/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c: peak memory bandwidth and multiplication rate of the machine: figures can be given as a share of them. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define PASSES 5
#define READ_WORDS ((size_t)64 << 20) /* of 8 bytes: 512 MiB, many times the largest cache */
#define ROUNDS 16000000L              /* about 50 ms of products on a core */

#if defined(__x86_64__)
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
static bool has_avx2(void) { return false; }
uint64_t bench_sum_avx2(const uint64_t *data, size_t n) { return n ? data[0] : 0; } /* never called */
uint64_t bench_products_int8_avx2(long rounds) { return (uint64_t)rounds; }
uint64_t bench_products_f32_avx2(long rounds) { return (uint64_t)rounds; }
#endif

/* ---- portable C: the compiler's code is then the limit ---- */

static uint64_t sum_c(const uint64_t *data, size_t n) {
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= n; i += 4) a += data[i], b += data[i + 1], c += data[i + 2], d += data[i + 3];
    return a + b + c + d;
}

#define LANES 64

static uint64_t products_int8_c(long rounds) {
    int32_t sums[LANES] = {0};
    int8_t a[LANES], b[LANES];
    for (int i = 0; i < LANES; i++) a[i] = (int8_t)i, b[i] = (int8_t)(i - 32);
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < LANES; i++) sums[i] += (int16_t)(a[i] * b[i]);
        a[r % LANES] ^= 1;
    }
    volatile int32_t keep = sums[rounds % LANES];
    (void)keep;
    return (uint64_t)rounds * LANES * 2;
}

static uint64_t products_f32_c(long rounds) {
    float sums[LANES] = {0}, a[LANES];
    for (int i = 0; i < LANES; i++) a[i] = 1.0f / (float)(i + 2);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < LANES; i++) sums[i] = sums[i] * a[i] + 0.5f;
    volatile float keep = sums[rounds % LANES];
    (void)keep;
    return (uint64_t)rounds * LANES * 2;
}

/* ---- threads ---- */

typedef struct worker {
    const uint64_t *data; /* NULL: multiply */
    size_t n;
    bench_product kind;
    bool avx2;
    uint64_t result;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    if (w->data) w->result = w->avx2 ? bench_sum_avx2(w->data, w->n) : sum_c(w->data, w->n);
    else if (w->kind == BENCH_INT8) w->result = w->avx2 ? bench_products_int8_avx2(ROUNDS) : products_int8_c(ROUNDS / 4);
    else w->result = w->avx2 ? bench_products_f32_avx2(ROUNDS) : products_f32_c(ROUNDS / 4);
    return NULL;
}

/* Seconds of the fastest pass of all threads together; the workers hold the results. */
static double fastest(worker *workers, int n) {
    pthread_t ids[BENCH_MAX_THREADS];
    double best = 1e30;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = bench_now_s();
        for (int i = 0; i < n; i++)
            if (pthread_create(&ids[i], NULL, work, &workers[i])) bench_die("no thread can be started", NULL);
        for (int i = 0; i < n; i++) pthread_join(ids[i], NULL);
        double seconds = bench_now_s() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

double bench_read_bandwidth(int n_threads) {
    worker workers[BENCH_MAX_THREADS];
    uint64_t *data = malloc(READ_WORDS * 8);
    if (!data) bench_die("out of memory: reading is measured over 512 MiB", NULL);
    memset(data, 1, READ_WORDS * 8);
    size_t share = READ_WORDS / (size_t)n_threads / 32 * 32;
    for (int i = 0; i < n_threads; i++) workers[i] = (worker){.data = data + share * (size_t)i, .n = share, .avx2 = has_avx2()};
    double seconds = fastest(workers, n_threads);
    free(data);
    return (double)share * (double)n_threads * 8 / seconds / 1e9;
}

double bench_multiply_peak(bench_product kind, int n_threads) {
    worker workers[BENCH_MAX_THREADS];
    double operations = 0;
    for (int i = 0; i < n_threads; i++) workers[i] = (worker){.kind = kind, .avx2 = has_avx2()};
    double seconds = fastest(workers, n_threads);
    for (int i = 0; i < n_threads; i++) operations += (double)workers[i].result;
    return operations / seconds / 1e9;
}
