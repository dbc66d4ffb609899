/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h: a node's reports of its KV and load to readers (routers).
 *
 *   table    name -> tiers                             the current state: source of snapshots and digests
 *   ring     [seq - n .. seq] the last changes         for readers that are a little late
 *   reader   its position in a snapshot and in the ring; one that is too late for the ring gets a new snapshot
 *
 * The engine's thread appends changes and never waits for a reader: the lock is held only to change some table entries
 * or to copy CLUSTER_PIECE names. A reader that does not read costs its own memory alone. Thread-safe.
 *
 * A snapshot is copied in pieces while changes continue, in an order of names that does not depend on changes. Between
 * and after the pieces the reader also gets the changes after the snapshot's seq. A change is the new state of a name,
 * whatever the old one was. After the snapshot and its changes, a name without a change since seq therefore has the
 * state of its piece, and another one that of its last change: both are those of the table.
 *
 * Changes are absolute (rp_span_change: `tiers` is the new state of the name): while one of two spans with the same
 * name exists, the store reports the name as held.
 */
#ifndef CLUSTER_JOURNAL_H
#define CLUSTER_JOURNAL_H

#include "cluster/wire.h"
#include "reprise_cluster.h"

#define CLUSTER_RING_CHANGES ((size_t)65536)
#define CLUSTER_MAX_READERS 64
#define CLUSTER_JOURNAL_MAX_NAMES ((size_t)1 << 24) /* about 700 MB */
#define CLUSTER_PIECE 1024                          /* names or changes in a frame */
#define CLUSTER_LOAD_EVERY_US 100000                /* period of changed loads */
#define CLUSTER_DIGEST_EVERY_US 1000000             /* period of digests, and of loads that did not change */

typedef struct cluster_journal cluster_journal;
typedef struct cluster_journal_reader cluster_journal_reader;

/* secret: [RP_CLUSTER_KEY_BYTES], copied. hello: copied. RP_ERR_MEMORY. */
int cluster_journal_new(cluster_journal **out, const uint8_t *secret, const cluster_hello *hello, rp_error *err);
void cluster_journal_free(cluster_journal *j); /* after its readers are closed */
/* Replaces the hello by one with the same epoch, before the first reader: an engine reports changes before its
 * description is complete. */
void cluster_journal_set_hello(cluster_journal *j, const cluster_hello *hello);
/* An rp_on_spans callback; user: the journal. A name is left out, as if it was not held, if there is no memory or
 * CLUSTER_JOURNAL_MAX_NAMES is reached, until its next change: that costs a prefill. */
void cluster_journal_change(void *journal, const rp_span_change *changes, size_t n);
/* Sets the current load; readers get it at most every CLUSTER_LOAD_EVERY_US. Any thread. */
void cluster_journal_set_load(cluster_journal *j, const cluster_load *load);
cluster_digest cluster_journal_digest(cluster_journal *j);
/* Number of names held. */
size_t cluster_journal_count(cluster_journal *j);
/* Number of changes that were left out, since the start. */
uint64_t cluster_journal_left_out(cluster_journal *j);

/* Opens a reader. nonce: of its stream. epoch, after: the reader's last state: if the epoch is the journal's and the
 * ring has the changes after it, the reader gets these, else a snapshot. RP_ERR_LIMIT (CLUSTER_MAX_READERS),
 * RP_ERR_MEMORY. */
int cluster_journal_open(cluster_journal *j, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after,
                         cluster_journal_reader **out, rp_error *err);
void cluster_journal_close(cluster_journal_reader *r);
/* Appends complete frames that are due at now_us (monotonic) to out, about `most` bytes at most. Returns RP_OK,
 * RP_ERR_MEMORY or RP_ERR_LIMIT (of out): then out has the frames before the failed one, and the reader continues with
 * that one. *next_us: when a frame is due without any change of names or load; changes make the reader ready at once, a
 * new load after CLUSTER_LOAD_EVERY_US (cluster_journal_is_ready). A reader has one user at a time. */
int cluster_journal_read(cluster_journal_reader *r, uint64_t now_us, size_t most, base_buffer *out, uint64_t *next_us);
bool cluster_journal_is_ready(cluster_journal_reader *r, uint64_t now_us);

#endif
