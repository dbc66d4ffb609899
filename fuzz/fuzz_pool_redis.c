/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pool_redis.c: hostile Redis servers, Sentinels and nodes of a cluster. Whatever they answer, an operation of a
 * pool ends with a result or a named error, after few connections; it writes to the memory of its ranges alone; and
 * bytes give the same in one piece and in several.
 *
 * The first byte: bits 0 and 1: get, put, remove, all of them, by one link
 *                 bits 2 to 4:  the address (addresses[])
 * The second one: most bytes of a piece, less one
 * The rest:       answers of each connection, one after another: a connection ends with a byte FF, and answers to what
 *                 is sent until the first of them is read with a byte FE. What an answer that comes too early does
 *                 depends on its pieces: such an input is not compared */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "store/remote/pool_driver.h"
#include "store/remote/redis_batch.h"

#define DEADLINE_US 60000000
#define MAX_CONNECTIONS 200 /* of one operation: retries, redirections, seeds */
#define N_RANGES 5
#define RANGE_BYTES 64
#define GUARD 0xA5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok) {
    if (!ok) abort();
}

static const char *const addresses[] = {"redis://h",
                                        "redis://h?cluster=yes",
                                        "redis://a,b,c:1?cluster=yes",
                                        "redis://h?cluster=no&ttl=7",
                                        "redis://h?sentinel=m",
                                        "redis://u:p@a,b/3?sentinel=m",
                                        "redis://u:p@h/3?prefix=p",
                                        "redis://a,b"};

/* ---- the network: redis_socket.h ---- */

static struct {
    const uint8_t *at, *end; /* of connections that are not open yet */
    size_t most;
    int n_opened;
    bool is_early; /* something was sent before all answers to earlier commands were read */
} network;

struct redis_socket {
    const uint8_t *at, *end, *now; /* now: the end of the answers to what was sent */
    bool has_read;
};

static const uint8_t *find_end(const uint8_t *at, const uint8_t *end, int mark) {
    const uint8_t *found = memchr(at, mark, (size_t)(end - at));
    return found ? found : end;
}

static int fail(rp_error *err, int cause) {
    const int rc = base_fail(err, RP_ERR_IO, "the network of the fuzzer");
    errno = cause;
    return rc;
}

int redis_socket_open(redis_socket **out, const redis_host *host, const redis_tls *tls, uint64_t deadline_us,
                      rp_error *err) {
    check(strlen(host->name) > 0 && host->port > 0 && !tls && deadline_us > 0);
    check(++network.n_opened <= MAX_CONNECTIONS);
    if (network.at == network.end) return fail(err, ECONNREFUSED);
    redis_socket *s = base_alloc(sizeof(*s));
    check(s != NULL);
    const uint8_t *end = find_end(network.at, network.end, 0xFF);
    *s = (redis_socket){network.at, end, find_end(network.at, end, 0xFE), false};
    network.at = end + (end < network.end);
    *out = s;
    return RP_OK;
}

void redis_socket_close(redis_socket *s) { base_free(s); }

int redis_socket_read(redis_socket *s, const struct iovec *pieces, int n, size_t *got, uint64_t deadline_us,
                      rp_error *err) {
    check(n > 0 && pieces[0].iov_len > 0 && deadline_us > 0);
    const size_t most = BASE_MIN(network.most, (size_t)(s->now - s->at));
    *got = 0;
    s->has_read = true;
    for (int i = 0; i < n && *got < most; i++) {
        const size_t step = BASE_MIN(pieces[i].iov_len, most - *got);
        memcpy(pieces[i].iov_base, s->at, step);
        s->at += step;
        *got += step;
    }
    return *got > 0 ? RP_OK : fail(err, ECONNRESET);
}

int redis_socket_write(redis_socket *s, struct iovec *pieces, int n, uint64_t deadline_us, rp_error *err) {
    (void)deadline_us, (void)err;
    if (s->has_read && s->at < s->now) network.is_early = true;
    else if (s->has_read) {
        s->at = s->now + (s->now < s->end);
        s->now = find_end(s->at, s->end, 0xFE);
    }
    s->has_read = false;
    for (int i = 0; i < n; i++) check(pieces[i].iov_base || pieces[i].iov_len == 0);
    return RP_OK;
}

/* ---- operations ---- */

typedef struct outcome {
    int rc[3], cause[3];
    struct {
        bool found;
        size_t got;
        uint8_t guarded[RANGE_BYTES + 2];
    } ranges[N_RANGES];
} outcome;

static const struct {
    char digit; /* of its name */
    uint64_t begin;
    size_t n;
} wanted[N_RANGES] = {{'a', 0, RANGE_BYTES},
                      {'a', REDIS_CHUNK_BYTES - 10, RANGE_BYTES}, /* of two chunks */
                      {'b', 0, 1},
                      {'b', 5, 0},
                      {'c', UINT64_C(1) << 40, RANGE_BYTES}};

static void name_of(char digit, char out[POOL_NAME_CHARS + 1]) {
    memset(out, digit, POOL_NAME_CHARS);
    out[POOL_NAME_CHARS] = '\0';
}

static void note(outcome *o, int k, int rc, int cause, const rp_error *err) {
    check(rc == RP_OK || (rc == RP_ERR_IO && cause != 0 && err->message[0]));
    o->rc[k] = rc;
    o->cause[k] = rc ? cause : 0;
    check(network.n_opened <= MAX_CONNECTIONS);
    network.n_opened = 0;
}

static void get_ranges(pool_link *l, outcome *o) {
    pool_range ranges[N_RANGES];
    rp_error err = {0};
    for (int i = 0; i < N_RANGES; i++) {
        memset(o->ranges[i].guarded, GUARD, sizeof(o->ranges[i].guarded));
        ranges[i] = (pool_range){.begin = wanted[i].begin, .bytes = o->ranges[i].guarded + 1, .n = wanted[i].n};
        name_of(wanted[i].digit, ranges[i].name);
    }
    errno = 0;
    const int rc = pool_get(l, ranges, N_RANGES, base_clock_us() + DEADLINE_US, &err);
    note(o, 0, rc, errno, &err);
    for (int i = 0; i < N_RANGES; i++) {
        check(o->ranges[i].guarded[0] == GUARD && o->ranges[i].guarded[wanted[i].n + 1] == GUARD);
        if (rc) continue;
        check(ranges[i].got <= wanted[i].n && (ranges[i].found || ranges[i].got == 0));
        o->ranges[i].found = ranges[i].found;
        o->ranges[i].got = ranges[i].got;
    }
}

static void put_object(pool_link *l, outcome *o) {
    static uint8_t bytes[REDIS_CHUNK_BYTES + 1];
    const struct iovec pieces[] = {{bytes, 5}, {bytes, 0}, {bytes, sizeof(bytes) - 5}};
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    name_of('a', name);
    errno = 0;
    const int rc = pool_put(l, name, pieces, 3, base_clock_us() + DEADLINE_US, &err);
    note(o, 1, rc, errno, &err);
}

static void remove_object(pool_link *l, outcome *o) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    name_of('a', name);
    errno = 0;
    const int rc = pool_remove(l, name, base_clock_us() + DEADLINE_US, &err);
    note(o, 2, rc, errno, &err);
}

static void run(outcome *o, const uint8_t *data, size_t n, size_t most) {
    const int operation = data[0] & 3;
    pool_driver *d;
    pool_link *l;
    memset(o, 0, sizeof(*o));
    network.at = data + 2;
    network.end = data + n;
    network.most = most;
    network.n_opened = 0;
    network.is_early = false;
    check(pool_driver_open(&d, addresses[data[0] >> 2 & 7], NULL) == RP_OK);
    check(pool_link_open(d, &l, NULL) == RP_OK);
    if (operation == 0 || operation == 3) get_ranges(l, o);
    if (operation == 1 || operation == 3) put_object(l, o);
    if (operation == 2 || operation == 3) remove_object(l, o);
    pool_link_close(l);
    pool_driver_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static outcome whole, cut;
    if (n < 2) return 0;
    run(&whole, data, n, SIZE_MAX);
    const bool is_early = network.is_early;
    run(&cut, data, n, (size_t)data[1] + 1);
    if (is_early || network.is_early) return 0;
    if (memcmp(whole.rc, cut.rc, sizeof(whole.rc)) != 0 || memcmp(whole.cause, cut.cause, sizeof(whole.cause)) != 0)
        abort();
    for (int i = 0; i < N_RANGES && !whole.rc[0]; i++) {
        check(whole.ranges[i].found == cut.ranges[i].found && whole.ranges[i].got == cut.ranges[i].got);
        check(memcmp(whole.ranges[i].guarded, cut.ranges[i].guarded, whole.ranges[i].got + 1) == 0);
    }
    return 0;
}
