/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: the span stream of a node, as bytes: a sequence of frames, little-endian.
 *
 *   frame     u32 length of what follows | u8 kind | body | u8[16] tag       tag: BLAKE2b of (key of the stream, number of the frame, kind, body)
 *   hello     first frame of a stream: version, epoch, identity, name of the node, formats, capacity
 *   snapshot  u64 seq, u64 n, then frames `names` with n names together; the stream continues after seq
 *   names     n x (name 16 B, tiers 1 B)
 *   changes   u64 seq of the first, n x (name 16 B, tiers 1 B)
 *   load      cluster_load
 *   digest    u64 seq, u64 count, u64 sum: of the names held after change seq
 *
 * The key of a stream is made of the cluster's secret, the reader's nonce and the hello's epoch, so that a frame cannot be forged or moved to another
 * stream. Numbers from the wire are checked before they are used.
 */
#ifndef CLUSTER_WIRE_H
#define CLUSTER_WIRE_H

#include "base/buffer.h"
#include "reprise_cluster.h"

#define CLUSTER_WIRE_VERSION 1
#define CLUSTER_MAX_FRAME ((size_t)1 << 20) /* bytes */
#define CLUSTER_NODE_NAME_BYTES 64
#define CLUSTER_TAG_BYTES 16
#define CLUSTER_NONCE_BYTES 16

typedef enum cluster_frame_kind {
    CLUSTER_HELLO = 1,
    CLUSTER_SNAPSHOT,
    CLUSTER_NAMES,
    CLUSTER_CHANGES,
    CLUSTER_LOAD,
    CLUSTER_DIGEST,
} cluster_frame_kind;

/* Who a node is. */
typedef struct cluster_hello {
    uint64_t epoch; /* random, of the process */
    char identity[65];
    char node[CLUSTER_NODE_NAME_BYTES]; /* its name, for reports */
    char model[256];                    /* name of its model */
    char kv_format[16], weights[16];
    int32_t n_ctx, max_sequences, max_queue;
    uint64_t kv_budget_bytes, disk_budget_bytes;
} cluster_hello;

/* What changes all the time. */
typedef struct cluster_load {
    rp_engine_load engine;
    bool draining;    /* it accepts no new requests */
    uint64_t sent_us; /* of the node's own clock: for the age of a report, relative to others of the same node */
} cluster_load;

typedef struct cluster_digest {
    uint64_t seq, count, sum; /* sum of cluster_name_hash of (name, tiers) */
} cluster_digest;

/* 64 bits of a name and its tiers, for digests and tables. */
uint64_t cluster_name_hash(const rp_name *name, uint32_t tiers);

typedef struct cluster_stream_key {
    uint8_t bytes[32];
} cluster_stream_key;
/* Key of a stream: secret [RP_CLUSTER_KEY_BYTES]. nonce: the reader's. */
void cluster_stream_key_make(cluster_stream_key *out, const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES]);

/* ---- Writing: each appends one frame, the stream's number-th, to out. RP_ERR_MEMORY. ---- */

int cluster_write_hello(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_hello *hello);
int cluster_write_snapshot(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint64_t seq, uint64_t n);
int cluster_write_names(base_buffer *out, const cluster_stream_key *key, uint64_t number, const rp_span_change *names, size_t n);
int cluster_write_changes(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint64_t seq, const rp_span_change *changes, size_t n);
int cluster_write_load(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_load *load);
int cluster_write_digest(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_digest *digest);

/* ---- Reading: bytes as they arrive ---- */

/* A frame that was read. Pointers are valid until the next call. */
typedef struct cluster_frame {
    cluster_frame_kind kind;
    cluster_hello hello;
    cluster_load load;
    cluster_digest digest;
    uint64_t seq, n;               /* snapshot: both; changes: seq */
    const rp_span_change *changes; /* names, changes: [n_changes] */
    size_t n_changes;
} cluster_frame;

typedef struct cluster_reader cluster_reader;
int cluster_reader_new(cluster_reader **out, const cluster_stream_key *key, rp_error *err); /* RP_ERR_MEMORY */
void cluster_reader_free(cluster_reader *r);
/* Takes bytes of the stream over, in pieces of any size; calls fn with each complete frame until it returns nonzero, which is returned.
 * RP_ERR_FORMAT (malformed, or not from who has the secret), RP_ERR_MEMORY; the reader is of no use afterwards. */
typedef int (*cluster_reader_fn)(void *user, const cluster_frame *frame);
int cluster_reader_feed(cluster_reader *r, const void *bytes, size_t n, cluster_reader_fn fn, void *user, rp_error *err);

#endif
