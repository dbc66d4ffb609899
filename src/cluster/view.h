/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: a router's view of one node: applies the node's span stream to the index.
 *
 *   CLOSED --open_stream--> OPENING --hello, snapshot--> LIVE --gap, wrong digest--> CLOSED, the next one has a
 *   snapshot
 *                              |                          |
 *                              +---cut, refused-----------+--> CLOSED
 *
 * A closed stream is opened again after a delay: 100 ms, doubled up to 5 s.
 *
 * A hello with another epoch removes all names of the node from the index before new ones are added. While a snapshot
 * is read after a gap, the old entries stay; its end removes those that it did not confirm.
 *
 * Health, by the time since the last frame: after CLUSTER_SUSPECT_US suspect, no new requests; after CLUSTER_DEAD_US,
 * or without a connection, dead, and its requests move to other nodes. The caller cuts a stream without a frame for
 * CLUSTER_DEAD_US (cluster_view_is_silent), which may be half open.
 */
#ifndef CLUSTER_VIEW_H
#define CLUSTER_VIEW_H

#include "cluster/index.h"
#include "cluster/wire.h"

#define CLUSTER_SUSPECT_US 1500000
#define CLUSTER_DEAD_US 3000000

typedef enum cluster_view_state { CLUSTER_VIEW_CLOSED,
                                  CLUSTER_VIEW_OPENING,
                                  CLUSTER_VIEW_LIVE } cluster_view_state;
typedef enum cluster_health { CLUSTER_DEAD,
                              CLUSTER_SUSPECT,
                              CLUSTER_WELL } cluster_health;

typedef struct cluster_view cluster_view;

/* index: borrowed; secret: [RP_CLUSTER_KEY_BYTES], copied. RP_ERR_MEMORY. */
int cluster_view_new(cluster_view **out, cluster_index *index, int32_t node, const uint8_t *secret, rp_error *err);
void cluster_view_free(cluster_view *v); /* removes its names from the index */

/* Sets the limit of the node's names in the index; the KV budgets that the node reports are another one. Further names
 * are ignored and counted. If the index has more already, the next cluster_view_feed removes all names of the node and
 * fails, so that a snapshot follows. */
void cluster_view_set_most(cluster_view *v, uint64_t names);
/* Begins a stream: *nonce, *epoch and *after are for the request of the transport; epoch 0: a snapshot is needed. */
void cluster_view_open(cluster_view *v, uint64_t now_us, uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t random,
                       uint64_t *epoch, uint64_t *after);
/* Applies bytes of the stream. Nonzero: the stream is wrong (err) and the view closed: the caller closes the stream,
 * and opens a new one with cluster_view_open. */
int cluster_view_feed(cluster_view *v, uint64_t now_us, const void *bytes, size_t n, rp_error *err);
/* The stream has ended, or could not be opened. */
void cluster_view_cut(cluster_view *v, uint64_t now_us);
/* When to open the next stream; UINT64_MAX: one is open. */
uint64_t cluster_view_opens_at(const cluster_view *v);

/* Is a stream open without a frame for CLUSTER_DEAD_US? */
bool cluster_view_is_silent(const cluster_view *v, uint64_t now_us);

cluster_view_state cluster_view_get_state(const cluster_view *v);
cluster_health cluster_view_health(const cluster_view *v, uint64_t now_us);
const cluster_hello *cluster_view_hello(const cluster_view *v); /* of the last stream; epoch 0: none yet */
const cluster_load *cluster_view_load(const cluster_view *v);
uint64_t cluster_view_heard_us(const cluster_view *v); /* time of the last frame; 0: none yet */
/* Totals since the start, for metrics. */
typedef struct cluster_view_counts {
    uint64_t frames, bytes, changes, snapshots, gaps, wrong_digests, other_epochs, cuts, forged, ignored;
} cluster_view_counts;
const cluster_view_counts *cluster_view_counted(const cluster_view *v);

#endif
