/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c: peak memory bandwidth and multiplication rate of the machine: figures can be given as a share of them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "limits.h"

#define PASSES 5
#define READ_WORDS ((size_t)64 << 20) /* of 8 bytes: 512 MiB, many times the largest cache */
#define ROUNDS 16000000L              /* 50 ms of products on a core and more */

/* ---- portable C: the compiler's code is then the limit ---- */

static uint64_t sum_c(const uint64_t *data, size_t n) {
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= n; i += 4) a += data[i], b += data[i + 1], c += data[i + 2], d += data[i + 3];
    return a + b + c + d;
}

#define LANES 64

#define INTEGER_PRODUCTS(name, type) \
    static uint64_t name(long rounds) { \
        int32_t sums[LANES] = {0}; \
        type a[LANES], b[LANES]; \
        for (int i = 0; i < LANES; i++) a[i] = (type)i, b[i] = (type)(i - 32); \
        for (long r = 0; r < rounds; r++) { \
            for (int i = 0; i < LANES; i++) sums[i] += a[i] * b[i]; \
            a[r % LANES] ^= 1; \
        } \
        volatile int32_t keep = sums[rounds % LANES]; \
        (void)keep; \
        return (uint64_t)rounds * LANES * 2; \
    }
INTEGER_PRODUCTS(products_int8_c, int8_t)
INTEGER_PRODUCTS(products_int16_c, int16_t)

static uint64_t products_f32_c(long rounds) {
    float sums[LANES] = {0}, a[LANES];
    for (int i = 0; i < LANES; i++) a[i] = 1.0f / (float)(i + 2);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < LANES; i++) sums[i] = sums[i] * a[i] + 0.5f;
    volatile float keep = sums[rounds % LANES];
    (void)keep;
    return (uint64_t)rounds * LANES * 2;
}

static bench_loops fastest_loops(void) {
    bench_loops l = {{[BENCH_INT8] = products_int8_c, [BENCH_INT16] = products_int16_c, [BENCH_F32] = products_f32_c},
                     sum_c};
#if defined(__x86_64__)
    if (base_cpu_has(BASE_CPU_AVX2)) bench_loops_avx2(&l);
    if (base_cpu_has(BASE_CPU_AVXVNNI)) bench_loops_avxvnni(&l);
    if (base_cpu_has(BASE_CPU_AVX512)) bench_loops_avx512(&l);
    if (base_cpu_has(BASE_CPU_AMX)) bench_loops_amx(&l);
#endif
    return l;
}

/* ---- threads ---- */

typedef struct worker {
    bench_loops loops;
    const uint64_t *data; /* NULL: multiply */
    size_t n;
    bench_product kind;
    uint64_t result;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    w->result = w->data ? w->loops.sum(w->data, w->n) : w->loops.products[w->kind](ROUNDS);
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
    const bench_loops loops = fastest_loops();
    size_t share = READ_WORDS / (size_t)n_threads / 64 * 64;
    for (int i = 0; i < n_threads; i++)
        workers[i] = (worker){.loops = loops, .data = data + share * (size_t)i, .n = share};
    double seconds = fastest(workers, n_threads);
    free(data);
    return (double)share * (double)n_threads * 8 / seconds / 1e9;
}

double bench_multiply_peak(bench_product kind, int n_threads) {
    worker workers[BENCH_MAX_THREADS];
    const bench_loops loops = fastest_loops();
    double operations = 0;
    for (int i = 0; i < n_threads; i++) workers[i] = (worker){.loops = loops, .kind = kind};
    double seconds = fastest(workers, n_threads);
    for (int i = 0; i < n_threads; i++) operations += (double)workers[i].result;
    return operations / seconds / 1e9;
}
