/* SPDX-License-Identifier: Apache-2.0 */
/* pool_check.c: see pool_check.h. */
#include "support/pool_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/must.h"

#define MANY 200
#define SOON_US 10000000 /* a deadline that a test never reaches */
#define SHORT_US 300000
#define TOLERANCE_US 3000000
#define MIB ((size_t)1 << 20)
#define N_THREADS 4

static const size_t sizes[] = {0, 1, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB + 77};
#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

static uint64_t soon(void) { return base_clock_us() + SOON_US; }

void pool_check_name(int i, char out[POOL_NAME_CHARS + 1]) {
    snprintf(out, POOL_NAME_CHARS + 1, "%08x%056x", (unsigned)i * 2654435761u, (unsigned)i);
}

static uint8_t byte_at(int i, size_t at) { return (uint8_t)(at * 31 + at / 251 + (size_t)i * 7); }

static uint8_t *content(int i, size_t n) {
    uint8_t *bytes = malloc(n + 1);
    for (size_t k = 0; k < n; k++) bytes[k] = byte_at(i, k);
    return bytes;
}

pool_driver *pool_check_driver(const char *address) {
    pool_driver *d = NULL;
    rp_error err = {0};
    must(pool_driver_open(&d, address, &err), &err);
    return d;
}

pool_link *pool_check_link(pool_driver *d) {
    pool_link *l = NULL;
    rp_error err = {0};
    must(pool_link_open(d, &l, &err), &err);
    return l;
}

/* In two pieces. */
static void put(pool_link *l, int i, int as, size_t n) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    uint8_t *bytes = content(as, n);
    const struct iovec pieces[] = {{bytes, n / 3}, {bytes + n / 3, n - n / 3}};
    pool_check_name(i, name);
    must(pool_put(l, name, pieces, 2, soon(), &err), &err);
    free(bytes);
}

/* Bytes [begin, begin + n) of object i, which has the content of `as` and `size` bytes. */
static void expect(pool_link *l, int i, int as, size_t size, size_t begin, size_t n) {
    rp_error err = {0};
    uint8_t *got = malloc(n + 1);
    pool_range r = {.begin = begin, .bytes = got, .n = n};
    pool_check_name(i, r.name);
    must(pool_get(l, &r, 1, soon(), &err), &err);
    assert_true(r.found);
    assert_int_equal(r.got, begin >= size ? 0 : size - begin < n ? size - begin
                                                                 : n);
    for (size_t k = 0; k < r.got; k++)
        if (got[k] != byte_at(as, begin + k)) fail_msg("object %d of %zu bytes differs at %zu", i, size, begin + k);
    free(got);
}

static void expect_absent(pool_link *l, int i) {
    rp_error err = {0};
    uint8_t byte;
    pool_range r = {.bytes = &byte, .n = 1, .found = true};
    pool_check_name(i, r.name);
    must(pool_get(l, &r, 1, soon(), &err), &err);
    assert_false(r.found);
}

static void take_away(pool_link *l, int i) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    pool_check_name(i, name);
    must(pool_remove(l, name, soon(), &err), &err);
}

/* Whole, and by ranges that begin and end at, before and after the borders of chunks of a MiB, and past the end. */
static void check_sizes(pool_link *writer, pool_link *reader) {
    for (int i = 0; i < N_SIZES; i++) {
        const size_t n = sizes[i];
        const size_t begins[] = {0, 1, n / 2, n < MIB ? 0 : MIB - 1, n < MIB ? 0 : MIB, n};
        expect_absent(reader, i);
        put(writer, i, i, n);
        for (size_t k = 0; k < sizeof(begins) / sizeof(begins[0]); k++) {
            if (begins[k] == n && n > 0) continue; /* what a range past the end finds is the driver's */
            expect(reader, i, i, n, begins[k], 1);
            expect(reader, i, i, n, begins[k], MIB);
            expect(reader, i, i, n, begins[k], n + 10);
        }
    }
    put(writer, 1, 3, sizes[3]); /* replaced by a larger one, */
    expect(reader, 1, 3, sizes[3], 0, sizes[3] + 1);
    put(writer, 6, 2, sizes[2]); /* and by a smaller one */
    expect(reader, 6, 2, sizes[2], 0, sizes[2] + 1);
    for (int i = 0; i < N_SIZES; i++) {
        take_away(writer, i);
        expect_absent(reader, i);
        take_away(reader, i); /* no error */
    }
}

/* Every third one is there. */
static void check_many(pool_link *l) {
    rp_error err = {0};
    pool_range *ranges = calloc(MANY, sizeof(*ranges));
    uint8_t *bytes = malloc(MANY * 100);
    for (int i = 0; i < MANY; i += 3) put(l, 1000 + i, i, 50 + (size_t)i);
    for (int i = 0; i < MANY; i++) {
        ranges[i] = (pool_range){.begin = 10, .bytes = bytes + i * 100, .n = 100};
        pool_check_name(1000 + i, ranges[i].name);
    }
    must(pool_get(l, ranges, MANY, soon(), &err), &err);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ranges[i].found, i % 3 == 0);
        if (!ranges[i].found) continue;
        assert_int_equal(ranges[i].got, 40 + i < 100 ? 40 + i : 100);
        for (size_t k = 0; k < ranges[i].got; k++) assert_int_equal(bytes[i * 100 + (int)k], byte_at(i, 10 + k));
    }
    for (int i = 0; i < MANY; i += 3) take_away(l, 1000 + i);
    free(ranges);
    free(bytes);
}

typedef struct check_thread {
    pthread_t thread;
    pool_driver *driver;
    int number;
} check_thread;

/* Each thread writes objects of its own and one that all of them write, the same. */
static void *work(void *arg) {
    const check_thread *t = arg;
    pool_link *l = pool_check_link(t->driver);
    for (int k = 0; k < 10; k++) {
        const int i = 2000 + t->number * 100 + k;
        put(l, i, i, MIB + (size_t)k);
        put(l, 1999, 5, MIB + 100);
        expect(l, i, i, MIB + (size_t)k, 0, 2 * MIB);
        expect(l, 1999, 5, MIB + 100, 0, 2 * MIB);
        take_away(l, i);
    }
    pool_link_close(l);
    return NULL;
}

static void check_threads(pool_driver *a, pool_driver *b) {
    check_thread threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        threads[i] = (check_thread){.driver = i % 2 ? a : b, .number = i};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, work, &threads[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i].thread, NULL);
    pool_link *l = pool_check_link(a);
    take_away(l, 1999);
    pool_link_close(l);
}

void pool_check(const char *address) {
    pool_driver *a = pool_check_driver(address), *b = pool_check_driver(address);
    pool_link *writer = pool_check_link(a), *reader = pool_check_link(b);
    check_sizes(writer, reader);
    check_many(reader);
    check_threads(a, b);
    pool_link_close(writer);
    pool_link_close(reader);
    pool_driver_close(a);
    pool_driver_close(b);
}

void pool_check_fails(pool_link *l, int cause, int or_cause) {
    rp_error err = {0};
    uint8_t byte;
    pool_range r = {.bytes = &byte, .n = 1};
    pool_check_name(1, r.name);
    for (int k = 0; k < 2; k++) {
        const uint64_t begin = base_clock_us();
        assert_int_equal(pool_get(l, &r, 1, begin + SHORT_US, &err), RP_ERR_IO);
        const int found = errno;
        assert_true(base_clock_us() < begin + SHORT_US + TOLERANCE_US);
        if (found != cause && found != or_cause) fail_msg("errno %d: %s", found, err.message);
        assert_true(err.message[0] != '\0' && !strchr(err.message, '\n'));
    }
}
