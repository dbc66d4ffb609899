/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h: what a node reports about itself, to any number of readers (routers).
 *
 *   table    name -> tiers                                         the truth; snapshot, digest
 *   ring     [seq - n .. seq] the last changes                     readers that are a little late read from here
 *   reader   its place in a snapshot, and in the ring              behind the ring: snapshot again
 *
 * The engine's thread appends changes and never waits for a reader: a lock is held for as long as it takes to change a table entry, or to copy
 * CLUSTER_PIECE names. A reader that does not read costs nothing but its place. Thread-safe.
 *
 * A snapshot is copied in pieces, in an order of names that changes do not disturb, while changes go on; the reader gets the changes from the
 * snapshot's seq on, too, between the pieces and after them. A change is a name's new state, whatever it was before. So after both, a name that
 * did not change since seq has what its piece copied, and another one has what its last change says: each is as in the table.
 *
 * Changes are absolute (rp_span_change: `tiers` is the new state of the name): where two spans have one name, the store reports it as held until
 * both are gone.
 */
#ifndef CLUSTER_JOURNAL_H
#define CLUSTER_JOURNAL_H

#include "cluster/wire.h"
#include "reprise_cluster.h"

#define CLUSTER_RING_CHANGES ((size_t)65536)
#define CLUSTER_MAX_READERS 64
#define CLUSTER_JOURNAL_MAX_NAMES ((size_t)1 << 24) /* about 700 MB */
#define CLUSTER_PIECE 1024                          /* names or changes in a frame */
#define CLUSTER_LOAD_EVERY_US 100000                /* a changed load */
#define CLUSTER_DIGEST_EVERY_US 1000000             /* and a load, changed or not: the sign of life */

typedef struct cluster_journal cluster_journal;
typedef struct cluster_journal_reader cluster_journal_reader;

/* secret: [RP_CLUSTER_KEY_BYTES], copied. hello: copied. RP_ERR_MEMORY. */
int cluster_journal_new(cluster_journal **out, const uint8_t *secret, const cluster_hello *hello, rp_error *err);
void cluster_journal_free(cluster_journal *j); /* after its readers */
/* Replaces the hello, with the same epoch: an engine reports changes before it is known what it is. Before the first reader. */
void cluster_journal_set_hello(cluster_journal *j, const cluster_hello *hello);
/* An rp_on_spans; user: the journal. A name for which there is no memory, or that exceeds CLUSTER_JOURNAL_MAX_NAMES, is left out of table and
 * ring until it changes again, as if it was not held: a prefill more. */
void cluster_journal_change(void *journal, const rp_span_change *changes, size_t n);
/* The present load; readers get it at most every CLUSTER_LOAD_EVERY_US. Any thread. */
void cluster_journal_set_load(cluster_journal *j, const cluster_load *load);
cluster_digest cluster_journal_digest(cluster_journal *j);
/* Names held. */
size_t cluster_journal_count(cluster_journal *j);
/* Changes that were left out, since the start. */
uint64_t cluster_journal_left_out(cluster_journal *j);

/* A reader. nonce: of its stream. epoch, after: where it left off; if the epoch is the journal's and the ring has what follows, it gets the changes
 * after that, else a snapshot. RP_ERR_LIMIT (CLUSTER_MAX_READERS), RP_ERR_MEMORY. */
int cluster_journal_open(cluster_journal *j, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after, cluster_journal_reader **out,
                         rp_error *err);
void cluster_journal_close(cluster_journal_reader *r);
/* Appends whole frames that are due at now_us (monotonic), until they have `most` bytes or a little more, to out. Returns RP_OK or RP_ERR_MEMORY,
 * RP_ERR_LIMIT (out's): then out has the frames before, and the reader goes on after them. *next_us: when there will be something without a change
 * of names or load; changes make the reader ready at once, a new load after CLUSTER_LOAD_EVERY_US (cluster_journal_is_ready). A reader has one user
 * at a time. */
int cluster_journal_read(cluster_journal_reader *r, uint64_t now_us, size_t most, base_buffer *out, uint64_t *next_us);
bool cluster_journal_is_ready(cluster_journal_reader *r, uint64_t now_us);

#endif
