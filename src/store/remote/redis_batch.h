/* SPDX-License-Identifier: Apache-2.0 */
/* redis_batch.h: commands on chunks of objects, in as few round trips as there can be: all of them are sent to their
 * nodes before the first reply is read, and those that are redirected are sent again.
 *
 *   the key of chunk k of object NAME:   PREFIX{NAME}:k        its slot is NAME's: an object is on one node
 *
 * A batch may be a transaction (MULTI, EXEC): all of it happens or nothing, which a writer of several chunks needs,
 * because two writers of one name may have different bytes of it (encryption). While its slot migrates to another node
 * Redis refuses transactions: then its commands are sent one by one, in their order.
 *
 * A connection that is lost is opened again once, and its commands are repeated: each of them can be. One thread at a
 * time. */
#ifndef STORE_REDIS_BATCH_H
#define STORE_REDIS_BATCH_H

#include "store/remote/redis_nodes.h"

/* Redis' allocator (jemalloc) has no size between 1 MiB and 1.25 MiB, and a string has a head: a chunk of a MiB would
 * take a quarter of maxmemory more than it has bytes. */
#define REDIS_CHUNK_BYTES (((size_t)1 << 20) - 64)
#define REDIS_MAX_CALLS 512
#define REDIS_MAX_REDIRECTIONS 5 /* of a batch */

typedef enum redis_call_kind { REDIS_EXISTS,
                               REDIS_GETRANGE,
                               REDIS_SET,
                               REDIS_UNLINK } redis_call_kind;

typedef struct redis_call {
    redis_call_kind kind;
    const char *name; /* borrowed; POOL_NAME_CHARS */
    uint64_t chunk;
    size_t from, n;         /* REDIS_GETRANGE: bytes of the chunk, n > 0, */
    void *bytes;            /* into [n] */
    size_t range, n_ranges; /* the user's */
    int64_t result;         /* REDIS_GETRANGE: bytes; REDIS_EXISTS, REDIS_UNLINK: 0 or 1 */
    redis_node *node, *ask; /* where it was sent; where it is sent next, once, instead of to the node of its slot */
    bool is_sent, is_done;
} redis_call;

typedef struct redis_batch {
    redis_nodes nodes;
    const struct iovec *pieces; /* the object that REDIS_SET writes; borrowed */
    uint64_t n_bytes;           /* of it */
    redis_call calls[REDIS_MAX_CALLS];
    size_t n;
    base_buffer text; /* commands that are not sent yet */
} redis_batch;

int redis_batch_open(redis_batch *out, const redis_address *address, const redis_tls *tls, rp_error *err);
void redis_batch_close(redis_batch *b);

/* Runs the calls; all of a transaction are of one name. b->n stays. RP_ERR_IO, RP_ERR_MEMORY: results are undefined. */
int redis_batch_run(redis_batch *b, bool is_transaction, uint64_t deadline_us, rp_error *err);

#endif
