/* SPDX-License-Identifier: Apache-2.0 */
/* disk_tier.h: spans on disk: a folder of records, used by one process at a time.
 *
 *   DIR/reprise-store        the marker of a store (disk_folder.h)
 *   DIR/lock                 the process that uses it
 *   DIR/index.db             an index over the records, for queries (record_index.h)
 *   DIR/pins                 keys of pinned records: for a rebuilt index
 *   DIR/audit                results of the auditor (engine/background/audit.h): a few bytes, opaque to the tier
 *   DIR/a/ab3f...{64}.rps    records (record.h); "a": the key's first digit
 *   DIR/bad/                 quarantined records (unreadable): DISK_TIER_BAD of them, and a sixteenth of the budget, at
 *         most
 *
 * Its threads: readers, each of which reads a layer at a time (tier.h has the order), and a writer for all else.
 *
 * Records are written in groups of up to DISK_TIER_GROUP, as many as wait: each is written and synced under a
 * temporary name, then all are renamed, then each folder is synced once, then they enter the index, and their events
 * follow.
 * A crash leaves each of them whole or absent. A group is published when a record that has begun would be late
 * otherwise (tier_write), and before a change of one of its keys; a sync publishes it, too, and the writer does not
 * pause until the sync is done. The index follows the files: opening a store repairs rows that are missing or surplus
 * after a crash.
 *
 * When there is no memory to queue a removal, the engine's thread removes the file.
 */
#ifndef STORE_DISK_TIER_H
#define STORE_DISK_TIER_H

#include "store/tier.h"

#define DISK_TIER_READERS 2
#define DISK_TIER_OPEN_FILES 128 /* open for reading at a time */
#define DISK_TIER_GROUP 32       /* records that share the syncs of their folders */
#define DISK_TIER_BAD 16
#define DISK_TIER_MAX_RECORDS ((size_t)1 << 26)

typedef struct disk_tier_options {
    const char *dir;
    bool whole_reads;            /* span by span instead of layer by layer: for measurements */
    const record_cipher *cipher; /* NULL: records are not encrypted. Borrowed until the tier is closed */
} disk_tier_options;

/* Opens a store, creates it if it does not exist, and repairs it after a crash: a tier_source's function, with these
 * options. Read-only, another process may use the folder meanwhile. RP_ERR_FORMAT: the folder is neither empty nor a
 * store, or is a file. */
int disk_tier_open(store_tier **out, const void *options, const tier_terms *terms, rp_error *err);

#endif
