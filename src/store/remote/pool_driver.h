/* SPDX-License-Identifier: Apache-2.0 */
/* pool_driver.h: where a pool keeps its objects, as a table of operations: immutable bytes by name, in storage that
 * other programs provide (docs/cluster.md). The drivers are pool_folder, pool_redis and pool_http.
 *
 *   a pool --open--> pool_driver --connect--> pool_link, one a thread --> get, put, remove
 *
 * Rules for a driver. Its storage may be slow, full, evicting, unreachable, and return bytes that were never written:
 *
 *   1. An object is found whole or not at all, as far as the storage can: a reader detects the rest by the checksums of
 *      what it reads.
 *   2. No operation takes longer than its deadline and a system call that cannot be ended. One that fails leaves its
 *      link usable: the next operation connects again.
 *   3. Opening checks the address alone. A storage that is not there is an error of each operation, not of opening.
 *   4. A missing object is no error.
 *
 * Errors of operations are RP_ERR_IO, with the cause in errno (pool_cause_name): ETIMEDOUT, ECONNREFUSED, EACCES (the
 * credentials are refused), ENOSPC (it is full), EPROTO (an answer that is none), EBUSY (it asks for less), EAGAIN (it
 * is starting, or has no master now), EROFS, EFBIG (the object), or another one of the system's; and RP_ERR_MEMORY. A
 * driver is thread-safe; a link has one user at a time.
 */
#ifndef STORE_POOL_DRIVER_H
#define STORE_POOL_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "reprise.h"

/* A name: lower-case hexadecimal digits. */
#define POOL_NAME_CHARS 64

/* Bytes [begin, begin + n) of an object. */
typedef struct pool_range {
    char name[POOL_NAME_CHARS + 1];
    uint64_t begin;
    void *bytes; /* [n], the caller's */
    size_t n;
    bool found; /* set by get; with */
    size_t got; /* fewer than n: the object ends there */
} pool_range;

typedef struct pool_driver pool_driver;
typedef struct pool_link pool_link;

typedef struct pool_driver_ops {
    const char *prefix; /* of its addresses: "redis://" */
    /* address: begins with the prefix; borrowed. RP_ERR_INVALID (not an address; the message says what is expected),
     * RP_ERR_IO (a file that it names), RP_ERR_MEMORY, RP_ERR_UNSUPPORTED (not in this build). */
    int (*open)(pool_driver **out, const char *address, rp_error *err);
    int (*connect)(pool_driver *d, pool_link **out, rp_error *err); /* RP_ERR_MEMORY: nothing is sent yet */
    /* All ranges, in as few round trips as there can be. deadline_us: base_clock_us. After an error, found and got of
     * all are undefined. */
    int (*get)(pool_link *l, pool_range *ranges, size_t n, uint64_t deadline_us, rp_error *err);
    /* Replaces an object of that name. The pieces, n_pieces of them, are its bytes. */
    int (*put)(pool_link *l, const char *name, const struct iovec *pieces, int n_pieces, uint64_t deadline_us,
               rp_error *err);
    int (*remove)(pool_link *l, const char *name, uint64_t deadline_us, rp_error *err);
    void (*disconnect)(pool_link *l);
    void (*close)(pool_driver *d); /* after its links */
} pool_driver_ops;

/* The first member of each driver's struct, and of its links. */
struct pool_driver {
    const pool_driver_ops *ops;
};
struct pool_link {
    const pool_driver_ops *ops;
};

/* Opens the driver of an address. RP_ERR_INVALID: no driver has its prefix; errors of open. */
int pool_driver_open(pool_driver **out, const char *address, rp_error *err);
/* An address without its password, for logs and messages, into out[n]; returns out. */
const char *pool_address_text(const char *address, char *out, size_t n);
/* A name for the cause of a failure (errno), for metrics and /readyz: "timeout", "refused", ...; static. */
const char *pool_cause_name(int cause);

static inline int pool_link_open(pool_driver *d, pool_link **out, rp_error *err) {
    return d->ops->connect(d, out, err);
}
static inline int pool_get(pool_link *l, pool_range *ranges, size_t n, uint64_t deadline_us, rp_error *err) {
    return l->ops->get(l, ranges, n, deadline_us, err);
}
static inline int pool_put(pool_link *l, const char *name, const struct iovec *pieces, int n, uint64_t deadline_us,
                           rp_error *err) {
    return l->ops->put(l, name, pieces, n, deadline_us, err);
}
static inline int pool_remove(pool_link *l, const char *name, uint64_t deadline_us, rp_error *err) {
    return l->ops->remove(l, name, deadline_us, err);
}
static inline void pool_link_close(pool_link *l) { /* NULL is fine */
    if (l) l->ops->disconnect(l);
}
static inline void pool_driver_close(pool_driver *d) { /* NULL is fine */
    if (d) d->ops->close(d);
}

#endif
