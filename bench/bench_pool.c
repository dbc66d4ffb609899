/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pool.c: speed of a pool (src/store/remote): objects written and read whole over one link and over four at once,
 * and look-ups of the first 8 KiB of many objects in one call.
 *
 *   bench_pool ADDRESS [MIB [OBJECTS [ROUNDS]]]      4 MiB, 32 objects, 5 rounds; 200 look-ups
 *
 * Rates are those of all links together; medians of the rounds, with the fastest and the slowest. The objects are
 * removed at the end.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "store/remote/pool_driver.h"
#include "support.h"
#include "support/must.h"
#include "support/pool_check.h"

#define MAX_LINKS 4
#define MAX_ROUNDS 64
#define LOOK_UPS 200
#define LOOK_UP_BYTES 8192
#define SOON_US 60000000

typedef enum bench_kind { PUT,
                          GET,
                          REMOVE } bench_kind;

typedef struct bench_link {
    pthread_t thread;
    pool_link *link;
    bench_kind kind;
    int begin, end; /* objects */
    size_t bytes;
    uint8_t *memory;
} bench_link;

static void *run(void *arg) {
    const bench_link *b = arg;
    for (int i = b->begin; i < b->end; i++) {
        const struct iovec piece = {b->memory, b->bytes};
        const uint64_t deadline = base_clock_us() + SOON_US;
        pool_range r = {.bytes = b->memory, .n = b->bytes};
        rp_error err = {0};
        pool_check_name(i, r.name);
        if (b->kind == PUT) must(pool_put(b->link, r.name, &piece, 1, deadline, &err), &err);
        else if (b->kind == REMOVE) must(pool_remove(b->link, r.name, deadline, &err), &err);
        else must(pool_get(b->link, &r, 1, deadline, &err), &err);
        if (b->kind == GET && (!r.found || r.got != b->bytes)) abort();
    }
    return NULL;
}

/* Seconds that n links need for the objects, divided among them. */
static double run_links(bench_link *links, int n, bench_kind kind, int objects) {
    const uint64_t begun = base_clock_us();
    for (int i = 0; i < n; i++) {
        links[i].kind = kind;
        links[i].begin = objects * i / n;
        links[i].end = objects * (i + 1) / n;
        if (pthread_create(&links[i].thread, NULL, run, &links[i])) abort();
    }
    for (int i = 0; i < n; i++) pthread_join(links[i].thread, NULL);
    return (double)(base_clock_us() - begun) / 1e6;
}

static double look_up(pool_link *l, int objects) {
    static uint8_t bytes[LOOK_UPS][LOOK_UP_BYTES];
    static pool_range ranges[LOOK_UPS];
    rp_error err = {0};
    for (int i = 0; i < LOOK_UPS; i++) {
        ranges[i] = (pool_range){.bytes = bytes[i], .n = LOOK_UP_BYTES};
        pool_check_name(i % objects, ranges[i].name);
    }
    const uint64_t begun = base_clock_us();
    must(pool_get(l, ranges, LOOK_UPS, begun + SOON_US, &err), &err);
    return (double)(base_clock_us() - begun) / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_pool ADDRESS [MIB [OBJECTS [ROUNDS]]]\n");
        return 2;
    }
    const int mib = argc > 2 ? atoi(argv[2]) : 4, objects = argc > 3 ? atoi(argv[3]) : 32,
              rounds = argc > 4 ? atoi(argv[4]) : 5;
    static const int n_links[] = {1, MAX_LINKS};
    static double seconds[2][2][MAX_ROUNDS], look_ups[MAX_ROUNDS];
    bench_link links[MAX_LINKS];
    pool_driver *d;
    rp_error err = {0};
    if (mib < 1 || objects < MAX_LINKS || rounds < 1 || rounds > MAX_ROUNDS) return 2;
    must(pool_driver_open(&d, argv[1], &err), &err);
    for (int i = 0; i < MAX_LINKS; i++) {
        links[i] = (bench_link){.bytes = (size_t)mib << 20, .memory = malloc((size_t)mib << 20)};
        for (size_t k = 0; k < links[i].bytes; k++) links[i].memory[k] = (uint8_t)(k * 31 + k / 251);
        must(pool_link_open(d, &links[i].link, &err), &err);
    }
    for (int round = 0; round < rounds; round++) {
        for (int n = 0; n < 2; n++)
            for (int kind = PUT; kind <= GET; kind++)
                seconds[kind][n][round] = run_links(links, n_links[n], (bench_kind)kind, objects);
        look_ups[round] = look_up(links[0].link, objects);
    }
    for (int kind = PUT; kind <= GET; kind++)
        for (int n = 0; n < 2; n++) {
            double *s = seconds[kind][n];
            const double total = (double)mib * objects, middle = bench_median(s, (size_t)rounds);
            printf("%s  %d link%s  %7.0f MiB/s  (%.0f to %.0f)\n", kind == PUT ? "put" : "get", n_links[n],
                   n ? "s" : " ", total / middle, total / s[rounds - 1], total / s[0]);
        }
    const double middle_s = bench_median(look_ups, (size_t)rounds);
    printf("look up  %.0f us an object, %d in one call\n", middle_s * 1e6 / LOOK_UPS, LOOK_UPS);
    run_links(links, 1, REMOVE, objects);
    for (int i = 0; i < MAX_LINKS; i++) {
        pool_link_close(links[i].link);
        free(links[i].memory);
    }
    pool_driver_close(d);
    return 0;
}
