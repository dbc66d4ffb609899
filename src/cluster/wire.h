/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: the span stream of a node, as bytes: a sequence of frames, little-endian.
 *
 *   frame     at  0  u32      length of what follows, at most CLUSTER_MAX_FRAME
 *                 4  u8       kind
 *                 5  body
 *                    u8[16]   tag: BLAKE2b-128, keyed with the key of the stream, of u64 number of the frame, kind,
 *                          body
 *
 *   hello     at  0  u32      version
 *                 4  u32      0
 *                 8  u64      epoch, not 0
 *                16  i32[3]   n_ctx, max_sequences, max_queue
 *                28  u32      0
 *                32  u64[2]   kv_budget_bytes, disk_budget_bytes
 *                48  strings  u8 length, then UTF-8 without control characters: identity, node, model, kv_format,
 *                weights
 *   snapshot  at  0  u64[2]   seq, n: number of names at seq. Frames `names` follow, with `changes` after seq between
 *         them
 *   names     at  0  17 B[n]  u8[16] name, u8 tiers, not 0. n = 0: the snapshot is complete
 *   changes   at  0  u64      seq of the first, not 0
 *                 8  17 B[n]  u8[16] name, u8 tiers; n is not 0
 *   load      at  0  u64      sent_us
 *                 8  i32[4]   running, waiting, decoding, background
 *                24  i64[2]   queued_tokens, context_tokens
 *                40  u64[4]   drain_us, gap_p95_us, kv_bytes_per_token, free_bytes
 *                72  i32[2]   max_running, chunk_tokens
 *                80  f64[16]  knot_us[13], row_slot_us, slot_us, read_byte_us: finite
 *               208  u64      schemas
 *               216  u8       draining: 0 or 1
 *   digest    at  0  u64[3]   seq, count, sum: of the names held after change seq
 *
 * The first frame, number 0, is a hello, and no other frame is. The key of a stream is derived from the cluster's
 * secret and the reader's nonce, so that frames cannot be forged, omitted, or moved to another stream. No number is
 * negative or exceeds the CLUSTER_MOST_ of its kind: a reader refuses such a frame, a writer writes the nearest valid
 * number.
 */
#ifndef CLUSTER_WIRE_H
#define CLUSTER_WIRE_H

#include "base/buffer.h"
#include "reprise_cluster.h"

#define CLUSTER_WIRE_VERSION 1
#define CLUSTER_MAX_FRAME ((size_t)1 << 20) /* bytes */
#define CLUSTER_CHANGE_BYTES 17
#define CLUSTER_MAX_CHANGES ((CLUSTER_MAX_FRAME - 8 - 1 - CLUSTER_TAG_BYTES) / CLUSTER_CHANGE_BYTES) /* in one frame */
#define CLUSTER_MAX_NAMES ((uint64_t)1 << 26)                                                        /* of one node */
#define CLUSTER_MOST_TOKENS ((uint64_t)1 << 40)
#define CLUSTER_MOST_US ((uint64_t)1 << 50)
#define CLUSTER_MOST_BYTES ((uint64_t)1 << 60)
#define CLUSTER_MOST_COEFFICIENT_US 1e12
#define CLUSTER_NODE_NAME_BYTES 64
#define CLUSTER_MODEL_NAME_BYTES 256
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

/* A node's identity and capacity. */
typedef struct cluster_hello {
    uint64_t epoch; /* random number of the process */
    char identity[65];
    char node[CLUSTER_NODE_NAME_BYTES];   /* name of the node, for reports */
    char model[CLUSTER_MODEL_NAME_BYTES]; /* name of the model */
    char kv_format[16], weights[16];
    int32_t n_ctx, max_sequences, max_queue;
    uint64_t kv_budget_bytes, disk_budget_bytes;
} cluster_hello;

/* A node's load. */
typedef struct cluster_load {
    rp_engine_load engine;
    uint64_t schemas; /* digest of the uploaded schemas; 0: none */
    bool draining;    /* it accepts no new requests */
    uint64_t sent_us; /* by the node's clock: for the age of a report relative to others of the same node */
} cluster_load;

typedef struct cluster_digest {
    uint64_t seq, count, sum; /* sum of cluster_name_hash of (name, tiers) */
} cluster_digest;

/* 64 bits of a name and its tiers, for digests and tables. */
uint64_t cluster_name_hash(const rp_name *name, uint32_t tiers);

typedef struct cluster_stream_key {
    uint8_t bytes[32];
} cluster_stream_key;
/* Derives the key of a stream. secret: [RP_CLUSTER_KEY_BYTES]; nonce: the reader's. */
void cluster_stream_key_make(cluster_stream_key *out, const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES]);

/* ---- Writing: each appends one frame, the number-th of the stream (from 0), to out. RP_ERR_MEMORY, RP_ERR_LIMIT: out
 * is unchanged. ---- */

int cluster_write_hello(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_hello *hello);
int cluster_write_snapshot(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint64_t seq, uint64_t n);
/* n: at most CLUSTER_MAX_CHANGES; the same for changes. */
int cluster_write_names(base_buffer *out, const cluster_stream_key *key, uint64_t number, const rp_span_change *names,
                        size_t n);
int cluster_write_changes(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint64_t seq,
                          const rp_span_change *changes, size_t n);
int cluster_write_load(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_load *load);
int cluster_write_digest(base_buffer *out, const cluster_stream_key *key, uint64_t number,
                         const cluster_digest *digest);
/* A frame with any body, for tests. */
int cluster_write_frame(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint8_t kind,
                        const void *body, size_t n);

/* ---- Reading: bytes as they arrive ---- */

/* A frame as it was read. Pointers are valid until the next call. */
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
/* Reads bytes of the stream, in pieces of any size, and calls fn with each complete frame. A nonzero result of fn ends
 * the call and is returned. RP_ERR_FORMAT (malformed, or not signed with the secret), RP_ERR_MEMORY: the reader cannot
 * be used afterwards. */
typedef int (*cluster_reader_fn)(void *user, const cluster_frame *frame);
int cluster_reader_feed(cluster_reader *r, const void *bytes, size_t n, cluster_reader_fn fn, void *user,
                        rp_error *err);

#endif
