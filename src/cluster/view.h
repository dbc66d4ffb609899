/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: what a router knows of one node: its stream, applied to the index.
 *
 *   CLOSED --open_stream--> OPENING --hello, snapshot--> LIVE --gap, wrong digest--> OPENING (a snapshot is asked for)
 *                              |                          |
 *                              +---cut, refused-----------+--> CLOSED, again after a delay (100 ms, doubled up to 5 s)
 *
 * Another epoch in a hello: all names of the node leave the index before the first new one enters it. While a snapshot is read after a gap, the old
 * entries stay, and those that it does not confirm are removed at its end.
 *
 * Health, by what was heard: nothing for CLUSTER_SUSPECT_US: suspect, no new requests; for CLUSTER_DEAD_US, or no connection: dead, its requests
 * move. A stream without a frame for CLUSTER_DEAD_US (cluster_view_is_silent) is cut by the caller: its connection may be half open.
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
void cluster_view_free(cluster_view *v); /* its names leave the index */

/* The most names that it takes of its node: these, and as many as the KV budgets that the node told can hold. Further ones are ignored and counted;
 * if the node has more already, the next cluster_view_feed forgets them and fails, so that a snapshot is asked for. */
void cluster_view_set_most(cluster_view *v, uint64_t names);
/* The transport opens a stream: nonce for its request, and where the view left off (epoch 0: nowhere). */
void cluster_view_open(cluster_view *v, uint64_t now_us, uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t random, uint64_t *epoch, uint64_t *after);
/* Bytes of it. Nonzero: the stream is wrong (why: err), close it, and open it again with cluster_view_open. */
int cluster_view_feed(cluster_view *v, uint64_t now_us, const void *bytes, size_t n, rp_error *err);
/* It has ended, or could not be opened. */
void cluster_view_cut(cluster_view *v, uint64_t now_us);
/* When to open it (again); UINT64_MAX: it is open. */
uint64_t cluster_view_opens_at(const cluster_view *v);

/* Whether it is open, and no frame has come for CLUSTER_DEAD_US. */
bool cluster_view_is_silent(const cluster_view *v, uint64_t now_us);

cluster_view_state cluster_view_get_state(const cluster_view *v);
cluster_health cluster_view_health(const cluster_view *v, uint64_t now_us);
const cluster_hello *cluster_view_hello(const cluster_view *v); /* of the last stream; its epoch is 0 before the first */
const cluster_load *cluster_view_load(const cluster_view *v);
uint64_t cluster_view_heard_us(const cluster_view *v); /* when the last frame came; 0: never */
/* Totals since the start, for metrics. */
typedef struct cluster_view_counts {
    uint64_t frames, bytes, changes, snapshots, gaps, wrong_digests, other_epochs, cuts, forged, ignored;
} cluster_view_counts;
const cluster_view_counts *cluster_view_counted(const cluster_view *v);

#endif
