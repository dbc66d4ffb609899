/* SPDX-License-Identifier: Apache-2.0 */
/* pool_redis.c: a pool on Redis 7 or Valkey: one server, a cluster, or a master with Sentinels. See pool_driver.h and
 * redis_address.h.
 *
 *   pool_redis: address, TLS      immutable
 *        \--> a link: redis_batch -> redis_nodes -> redis_connection -> redis_socket
 *
 *   object of 2.5 chunks   PREFIX{NAME}:0   PREFIX{NAME}:1   PREFIX{NAME}:2 (shorter)      an empty one: an empty :0
 *
 * put     A transaction of all chunks, from the last one to the first, which also removes the chunk after the last one:
 *         readers see the old object or the new one, and never a chunk of a longer old object after the new one. If
 *         there was such a chunk, the rest of the longer object is removed afterwards; a failure until then leaves
 *         chunks that no reader reaches until they are evicted, expire, or the object is removed.
 * get     GETRANGE of each chunk of a range, and EXISTS of chunk 0, because the range of an absent key is empty, too. A
 *         range ends at the first chunk that is shorter than it should be. The chunks of a range are not read in one
 *         transaction: a writer between two of them gives a mixture, which the reader's checksums detect.
 * remove  UNLINK of chunks in groups, from the first one, until a group has none.
 *
 * An eviction policy removes chunks one by one: an object without a chunk ends before it.
 *
 * Commands that a user of Redis (ACL) needs: SET GETRANGE EXISTS UNLINK MULTI EXEC on keys PREFIX*; CLUSTER|SLOTS and
 * ASKING in a cluster. */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/remote/pool_drivers.h"
#include "store/remote/redis_batch.h"

#define MAX_CHUNKS (REDIS_MAX_CALLS - 1) /* of an object: about 511 MiB */
#define BATCH_BYTES ((size_t)16 << 20)   /* of replies that are asked for at once: a server has them in its memory */
#define GROUP 64                         /* chunks that are removed at once */

typedef struct pool_redis {
    pool_driver base;
    redis_address address;
    redis_tls *tls; /* NULL: none */
} pool_redis;

typedef struct pool_redis_link {
    pool_link base;
    redis_batch batch;
} pool_redis_link;

static void check_name(const char *name) {
    BASE_ASSERT(strlen(name) == POOL_NAME_CHARS && strspn(name, "0123456789abcdef") == POOL_NAME_CHARS);
}

static redis_call *next_call(redis_batch *b, redis_call_kind kind, const char *name, uint64_t chunk) {
    BASE_ASSERT(b->n < REDIS_MAX_CALLS);
    redis_call *call = &b->calls[b->n++];
    *call = (redis_call){.kind = kind, .name = name, .chunk = chunk};
    return call;
}

/* ---- get ---- */

/* The calls of a batch, and what their results are of. */
typedef struct reading {
    redis_batch *batch;
    pool_range *ranges;
    redis_call *exists; /* of the batch, the last one; NULL: none */
    size_t n_bytes;     /* that the batch asks for */
    uint64_t deadline_us;
    rp_error *err;
} reading;

static int run_reading(reading *g) {
    redis_batch *b = g->batch;
    const int rc = b->n > 0 ? redis_batch_run(b, false, g->deadline_us, g->err) : RP_OK;
    for (size_t i = 0; i < b->n && !rc; i++) {
        const redis_call *call = &b->calls[i];
        for (size_t k = call->range; k < call->range + call->n_ranges; k++) g->ranges[k].found |= call->result > 0;
        if (call->kind != REDIS_GETRANGE) continue;
        pool_range *r = &g->ranges[call->range];
        BASE_ASSERT((uint64_t)call->result <= call->n && r->got + call->n <= r->n);
        if ((uint8_t *)r->bytes + r->got == call->bytes)
            r->got += (size_t)call->result; /* no chunk before it was short */
    }
    b->n = 0;
    g->exists = NULL;
    g->n_bytes = 0;
    return rc;
}

/* One EXISTS for ranges of one object that follow each other. */
static int add_exists(reading *g, size_t k) {
    const char *name = g->ranges[k].name;
    BASE_ASSERT(!g->exists || g->exists->range + g->exists->n_ranges == k);
    if (g->exists && strcmp(g->exists->name, name) == 0) return g->exists->n_ranges++, RP_OK;
    const int rc = g->batch->n == REDIS_MAX_CALLS ? run_reading(g) : RP_OK;
    if (rc) return rc;
    g->exists = next_call(g->batch, REDIS_EXISTS, name, 0);
    g->exists->range = k;
    g->exists->n_ranges = 1;
    return RP_OK;
}

static int add_range(reading *g, size_t k) {
    const pool_range *r = &g->ranges[k];
    for (size_t done = 0; done < r->n;) {
        const uint64_t at = r->begin + done;
        const size_t from = (size_t)(at % REDIS_CHUNK_BYTES), step = BASE_MIN(r->n - done, REDIS_CHUNK_BYTES - from);
        if (g->batch->n == REDIS_MAX_CALLS || g->n_bytes + step > BATCH_BYTES) {
            const int rc = run_reading(g);
            if (rc) return rc;
        }
        redis_call *call = next_call(g->batch, REDIS_GETRANGE, r->name, at / REDIS_CHUNK_BYTES);
        BASE_ASSERT(step > 0);
        call->from = from;
        call->n = step;
        call->bytes = (uint8_t *)r->bytes + done;
        call->range = k;
        call->n_ranges = 1;
        done += step;
        g->n_bytes += step;
    }
    return RP_OK;
}

static int pool_redis_get(pool_link *l, pool_range *ranges, size_t n, uint64_t deadline_us, rp_error *err) {
    reading g = {.batch = &((pool_redis_link *)l)->batch, .ranges = ranges, .deadline_us = deadline_us, .err = err};
    int rc = RP_OK;
    g.batch->n = 0;
    for (size_t k = 0; k < n && !rc; k++) {
        check_name(ranges[k].name);
        BASE_ASSERT(ranges[k].begin <= UINT64_MAX - ranges[k].n);
        ranges[k].found = false;
        ranges[k].got = 0;
        rc = add_exists(&g, k);
        if (!rc) rc = add_range(&g, k);
    }
    return rc ? rc : run_reading(&g);
}

/* ---- put and remove ---- */

/* Removes chunks from `chunk` on. */
static int remove_from(redis_batch *b, const char *name, uint64_t chunk, uint64_t deadline_us, rp_error *err) {
    for (int64_t n_removed = 1; n_removed > 0; chunk += GROUP) {
        b->n = 0;
        for (uint64_t k = 0; k < GROUP; k++) (void)next_call(b, REDIS_UNLINK, name, chunk + k);
        const int rc = redis_batch_run(b, false, deadline_us, err);
        if (rc) return rc;
        n_removed = 0;
        for (size_t i = 0; i < b->n; i++) n_removed += b->calls[i].result;
    }
    return RP_OK;
}

static int pool_redis_put(pool_link *l, const char *name, const struct iovec *pieces, int n_pieces,
                          uint64_t deadline_us, rp_error *err) {
    redis_batch *b = &((pool_redis_link *)l)->batch;
    check_name(name);
    b->pieces = pieces;
    b->n_bytes = 0;
    b->n = 0;
    for (int i = 0; i < n_pieces; i++) b->n_bytes += pieces[i].iov_len;
    const uint64_t n_chunks = BASE_MAX((b->n_bytes + REDIS_CHUNK_BYTES - 1) / REDIS_CHUNK_BYTES, 1);
    if (n_chunks > MAX_CHUNKS) {
        const int rc =
            base_fail(err, RP_ERR_IO, "an object of %llu bytes is too large for a pool on Redis: at most %llu",
                      (unsigned long long)b->n_bytes, (unsigned long long)MAX_CHUNKS * REDIS_CHUNK_BYTES);
        errno = EFBIG;
        return rc;
    }
    for (uint64_t k = n_chunks; k > 0; k--) (void)next_call(b, REDIS_SET, name, k - 1);
    const redis_call *next = next_call(b, REDIS_UNLINK, name, n_chunks);
    const int rc = redis_batch_run(b, true, deadline_us, err);
    return rc || next->result == 0 ? rc : remove_from(b, name, n_chunks + 1, deadline_us, err);
}

static int pool_redis_remove(pool_link *l, const char *name, uint64_t deadline_us, rp_error *err) {
    check_name(name);
    return remove_from(&((pool_redis_link *)l)->batch, name, 0, deadline_us, err);
}

/* ---- opening ---- */

static int pool_redis_connect(pool_driver *d, pool_link **out, rp_error *err) {
    const pool_redis *p = (pool_redis *)d;
    pool_redis_link *l = base_alloc(sizeof(*l));
    if (!l) return base_fail_memory(err, sizeof(*l), "a pool");
    l->base.ops = d->ops;
    const int rc = redis_batch_open(&l->batch, &p->address, p->tls, err);
    if (rc) base_free(l);
    else *out = &l->base;
    return rc;
}

static void pool_redis_disconnect(pool_link *l) {
    redis_batch_close(&((pool_redis_link *)l)->batch);
    base_free(l);
}

static void pool_redis_close(pool_driver *d) {
    pool_redis *p = (pool_redis *)d;
    redis_tls_close(p->tls);
    redis_address_free(&p->address);
    base_free(p);
}

static int pool_redis_open(pool_driver **out, const char *address, rp_error *err) {
    pool_redis *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a pool");
    const redis_address *a = &p->address;
    int rc = redis_address_parse(&p->address, address, err);
    p->base.ops = a->is_tls ? &pool_redis_tls_ops : &pool_redis_ops;
    if (!rc && a->is_tls) rc = redis_tls_open(&p->tls, a->ca, a->cert, a->key, err);
    if (rc) pool_redis_close(&p->base);
    else *out = &p->base;
    return rc;
}

#define OPS(scheme) \
    { \
        .prefix = scheme, .open = pool_redis_open, .connect = pool_redis_connect, .get = pool_redis_get, \
        .put = pool_redis_put, .remove = pool_redis_remove, .disconnect = pool_redis_disconnect, \
        .close = pool_redis_close, \
    }

const pool_driver_ops pool_redis_ops = OPS(REDIS_SCHEME);
const pool_driver_ops pool_redis_tls_ops = OPS(REDIS_TLS_SCHEME);
