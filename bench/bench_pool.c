/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pool.c: rates of a pool's storage (store/remote/pool_driver.h), by links that work at once.
 *
 *   bench_pool ADDRESS [--links N] [--mib N] [--objects N] [--rounds N]
 *
 * In each of --rounds (20) rounds each of --links (1) links, with a thread each,
 *
 *   put      writes --objects (8) objects of --mib (4) MiB
 *   get      reads them whole
 *   look up  reads the first 8 KiB of 200 objects, every second one of which is there, in one operation
 *
 * Medians over rounds: MB/s of all links together, by the time of the slowest; us of a look-up. The objects have names
 * of their own and are removed at the end.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "store/remote/pool_driver.h"
#include "support.h"

#define MAX_ROUNDS 1000
#define N_LOOKED_UP 200
#define HEAD_BYTES ((size_t)8 << 10)
#define DEADLINE_US 60000000

typedef enum subject { PUT,
                       GET,
                       LOOK_UP,
                       SUBJECTS } subject;

typedef struct bench bench;

typedef struct worker {
    const bench *bench;
    pthread_t thread;
    pool_link *link;
    int number;
    uint8_t *bytes, *heads;
    pool_range *ranges; /* [N_LOOKED_UP] */
} worker;

struct bench {
    pool_driver *driver;
    int n_links, n_objects;
    size_t object_bytes;
    subject subject;
    worker workers[BENCH_MAX_THREADS];
};

static uint64_t soon(void) { return base_clock_us() + DEADLINE_US; }

static void name_of(int link, int object, char out[POOL_NAME_CHARS + 1]) {
    snprintf(out, POOL_NAME_CHARS + 1, "%032x%032x", 0xbe7c4 + link, object);
}

static void must(int rc, const char *what, const rp_error *err) {
    if (rc) bench_die(what, err);
}

static void put_object(const worker *w, int object, size_t n) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err;
    const struct iovec piece = {w->bytes, n};
    name_of(w->number, object, name);
    must(pool_put(w->link, name, &piece, 1, soon(), &err), "put", &err);
}

static void get_object(const worker *w, int object) {
    rp_error err;
    pool_range r = {.bytes = w->bytes, .n = w->bench->object_bytes};
    name_of(w->number, object, r.name);
    must(pool_get(w->link, &r, 1, soon(), &err), "get", &err);
    if (!r.found || r.got != r.n) bench_die("an object is not there", NULL);
}

static void look_up(const worker *w) {
    rp_error err;
    for (int i = 0; i < N_LOOKED_UP; i++) {
        w->ranges[i] = (pool_range){.bytes = w->heads + (size_t)i * HEAD_BYTES, .n = HEAD_BYTES};
        name_of(w->number, 1000000 + i, w->ranges[i].name);
    }
    must(pool_get(w->link, w->ranges, N_LOOKED_UP, soon(), &err), "look up", &err);
    for (int i = 0; i < N_LOOKED_UP; i++)
        if (w->ranges[i].found != (i % 2 == 0)) bench_die("a look-up is wrong", NULL);
}

static void *work(void *arg) {
    const worker *w = arg;
    const bench *b = w->bench;
    if (b->subject == LOOK_UP) look_up(w);
    for (int i = 0; b->subject != LOOK_UP && i < b->n_objects; i++)
        if (b->subject == PUT) put_object(w, i, b->object_bytes);
        else get_object(w, i);
    return NULL;
}

/* Seconds of all workers. */
static double run(bench *b, subject s) {
    b->subject = s;
    const double begin = bench_now_s();
    for (int i = 0; i < b->n_links; i++)
        if (pthread_create(&b->workers[i].thread, NULL, work, &b->workers[i])) bench_die("a thread", NULL);
    for (int i = 0; i < b->n_links; i++) pthread_join(b->workers[i].thread, NULL);
    return bench_now_s() - begin;
}

static void open_worker(bench *b, int k) {
    worker *w = &b->workers[k];
    rp_error err;
    *w = (worker){.bench = b, .number = k};
    w->bytes = malloc(b->object_bytes);
    w->heads = malloc(N_LOOKED_UP * HEAD_BYTES);
    w->ranges = calloc(N_LOOKED_UP, sizeof(*w->ranges));
    if (!w->bytes || !w->heads || !w->ranges) bench_die("out of memory", NULL);
    for (size_t i = 0; i < b->object_bytes; i++) w->bytes[i] = (uint8_t)(i * 167 + i / 253);
    must(pool_link_open(b->driver, &w->link, &err), "link", &err);
    for (int i = 0; i < N_LOOKED_UP; i += 2) put_object(w, 1000000 + i, BASE_MIN(b->object_bytes, 2 * HEAD_BYTES));
}

static void close_worker(const worker *w) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err;
    for (int i = 0; i < w->bench->n_objects + N_LOOKED_UP; i++) {
        name_of(w->number, i < w->bench->n_objects ? i : 1000000 + i - w->bench->n_objects, name);
        must(pool_remove(w->link, name, soon(), &err), "remove", &err);
    }
    pool_link_close(w->link);
    free(w->bytes);
    free(w->heads);
    free(w->ranges);
}

int main(int argc, char **argv) {
    static double times[SUBJECTS][MAX_ROUNDS];
    static bench b;
    char text[RP_ERROR_WHERE_BYTES];
    rp_error err;
    bench_name = "bench_pool";
    if (argc < 2) bench_die("usage: bench_pool ADDRESS [--links N] [--mib N] [--objects N] [--rounds N]", NULL);
    const int rounds = bench_number_after(argc, argv, "--rounds", 20);
    b.n_links = bench_number_after(argc, argv, "--links", 1);
    b.n_objects = bench_number_after(argc, argv, "--objects", 8);
    b.object_bytes = (size_t)bench_number_after(argc, argv, "--mib", 4) << 20;
    if (rounds < 1 || rounds > MAX_ROUNDS || b.n_links < 1 || b.n_links > BENCH_MAX_THREADS || b.n_objects < 1 ||
        b.object_bytes == 0)
        bench_die("a number is out of range", NULL);
    must(pool_driver_open(&b.driver, argv[1], &err), "open", &err);
    for (int i = 0; i < b.n_links; i++) open_worker(&b, i);
    for (int round = 0; round < rounds; round++)
        for (subject s = PUT; s < SUBJECTS; s++) times[s][round] = run(&b, s);
    const double megabytes = (double)b.object_bytes * b.n_objects * b.n_links / 1e6;
    printf("%s, %d links: put %.0f MB/s, get %.0f MB/s, look up %d heads %.0f us\n",
           pool_address_text(argv[1], text, sizeof(text)), b.n_links,
           megabytes / bench_median(times[PUT], (size_t)rounds), megabytes / bench_median(times[GET], (size_t)rounds),
           N_LOOKED_UP, bench_median(times[LOOK_UP], (size_t)rounds) * 1e6);
    for (int i = 0; i < b.n_links; i++) close_worker(&b.workers[i]);
    pool_driver_close(b.driver);
    return 0;
}
