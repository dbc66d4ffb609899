/* SPDX-License-Identifier: Apache-2.0 */
/* disk_tier.h: spans on disk: a folder of records, used by one process at a time.
 *
 *   DIR/reprise-store        the marker of a store (disk_folder.h)
 *   DIR/lock                 the process that uses it
 *   DIR/index.db             what can be asked about records (record_index.h)
 *   DIR/pins                 keys of pinned records: for an index that is made again
 *   DIR/audit                what an auditor found, as it says it (engine/background/audit.h): a few bytes that the tier does not look at
 *   DIR/a/ab3f...{64}.rps    records (record.h); "a": the key's first digit
 *   DIR/bad/                 records that could not be read: DISK_TIER_BAD of them, and options.bad_bytes, at most
 *
 *                   +-> reads: by request, then layer by layer --> readers ---+
 *   engine's thread |                                                         +-> events --> engine's thread
 *                   +-> writes, removals, notes, in their order -> writer ----+
 *
 * Records are written in groups of up to DISK_TIER_GROUP, as many as wait: each is written and synced under a temporary name, then all are
 * renamed, then each folder is synced once, then they enter the index, and their events follow. A crash leaves each of them whole or absent.
 *
 * A read fills in a span that kv_span_restore made. Of the spans of one request every first layer is read before any second one, so that
 * computing may begin with the first. What is written keeps a reference to its span until its event was taken. The index follows the
 * files: whatever is missing or too much in it after a crash is put right when the store is opened.
 *
 * Everything here is called by one thread, the engine's; nothing but opening and closing waits for the disk (and a removal, where there is no memory
 * to queue it).
 */
#ifndef STORE_DISK_TIER_H
#define STORE_DISK_TIER_H

#include "store/record_index.h"

#define DISK_TIER_READERS 2
#define DISK_TIER_OPEN_FILES 128 /* that are read at a time */
#define DISK_TIER_GROUP 32       /* records that share the syncs of their folders */
#define DISK_TIER_BAD 16
#define DISK_TIER_MAX_RECORDS ((size_t)1 << 26)

typedef struct disk_tier disk_tier;

typedef struct disk_tier_options {
    const char *dir;
    bool read_only;              /* nothing is written, and another process may use it meanwhile */
    uint64_t bad_bytes;          /* that records which could not be read may take */
    bool whole_reads;            /* span by span rather than layer by layer: to measure what that is worth */
    const record_format *format; /* borrowed until it is closed; so is */
    const record_cipher *cipher; /* NULL: records are not encrypted */
    void (*notify)(void *user);  /* called by a thread of the tier when there is an event */
    void *user;
} disk_tier_options;

/* Opens a store, makes it if it is not there, and puts right what a crash left. fn is told every record, those of other models too.
 * RP_ERR_IO with its cause in errno (it cannot be used now), RP_ERR_CONFLICT (another process uses it), RP_ERR_FORMAT (the folder is neither empty
 * nor a store), RP_ERR_MEMORY, what fn returns. */
int disk_tier_open(disk_tier **out, const disk_tier_options *options, record_row_fn fn, void *user, rp_error *err);
/* Ends what is queued, writes included, as far as there is time. Events that were not taken are gone. */
void disk_tier_close(disk_tier *d);
/* From then on (base_clock_us) no read or write is begun, and none that waits for a sync goes on: they fail with RP_ERR_CANCELLED, and there is
 * nothing of their records. Removals and notes are carried out. The disk is waited for during one call of the system at most. */
void disk_tier_set_deadline(disk_tier *d, uint64_t at_us);

/* Reads a record into a span of its key and form (takes a reference; it fails the span if it cannot). Reads with a lower `request` go first.
 * RP_ERR_MEMORY: nothing was begun. */
int disk_tier_read(disk_tier *d, kv_span *span, uint64_t request);
/* Writes a span (takes a reference). row: the tier's from now on (base_free), with all that it points to in the same block of memory.
 * begin_by (base_clock_us; UINT64_MAX: none): a write that has not begun by then is not begun, its event is late and returns the row; a group with
 * a record that has begun is published then, even if more records wait. disk_tier_set_deadline lifts these limits, also those of queued writes.
 * RP_ERR_MEMORY: nothing was begun, and the row is the caller's. */
int disk_tier_write(disk_tier *d, record_row *row, kv_span *span, uint64_t begin_by, rp_error *err);
/* DISK_EVICT: for room. DISK_SET_ASIDE: it could not be read. DISK_ERASE: it must not come back: a write of it that has not begun is not begun
 * (its event is failed, with RP_ERR_CANCELLED), and disk_tier_sync says whether it is gone. */
typedef enum disk_removal { DISK_EVICT, DISK_SET_ASIDE, DISK_ERASE } disk_removal;
void disk_tier_remove(disk_tier *d, const base_key *key, disk_removal how);
/* Asks for an event, DISK_SYNCED with this serial: all that was removed before is then gone for good, from files and index, after a loss of power
 * too; or the event is failed and says why. The writer does not rest until then. RP_ERR_MEMORY, RP_ERR_CONFLICT (read-only). */
int disk_tier_sync(disk_tier *d, uint64_t *serial);
/* While somebody computes, the writer takes a share of one processor at most (1/DISK_TIER_LEAST_SHARE unless another one was set); else what it
 * can get, as when a store was opened. */
#define DISK_TIER_LEAST_SHARE 32U
void disk_tier_set_computing(disk_tier *d, bool computing);
void disk_tier_set_share(disk_tier *d, uint32_t one_in); /* 1/one_in, from now on; 1 at least */
/* What became of a record since it was written. */
void disk_tier_note(disk_tier *d, const base_key *key, const record_use *use);

/* DIR/audit becomes these n bytes, which are the tier's from now on (base_free); it comes to its end before the tier is closed, and failing
 * is no more than a line in the log. RP_ERR_MEMORY, RP_ERR_CONFLICT (read-only): they are the caller's. */
int disk_tier_keep_audit(disk_tier *d, char *bytes, size_t n);

typedef enum disk_event_kind { DISK_READ, DISK_WRITTEN, DISK_SYNCED } disk_event_kind;

typedef struct disk_event {
    disk_event_kind kind;
    base_key key;
    kv_span *span;       /* the caller's to let go of */
    uint64_t bytes;      /* read or written, as they lie on disk */
    uint64_t serial;     /* of the write: as disk_tier_serial told when it was asked for; of disk_tier_sync */
    bool failed;
    record_fault fault;  /* why, of a read */
    rp_error err;        /* why, */
    int cause;           /* and of a write its errno */
    record_row *late;    /* the row of a write that had not begun in time (failed, RP_ERR_CANCELLED): the caller's (base_free); else NULL */
} disk_event;

/* The next thing that came to its end. */
bool disk_tier_next(disk_tier *d, disk_event *out);
bool disk_tier_is_busy(disk_tier *d); /* events are to come, or to be taken */
/* Waits until there is one, if anything is under way. */
void disk_tier_wait(disk_tier *d);
/* Waits until all that was asked for so far is done, removals included. */
void disk_tier_settle(disk_tier *d);
/* Number of the last write that was asked for; they come to their end in this order. */
uint64_t disk_tier_serial(const disk_tier *d);
uint64_t disk_tier_queued_bytes(const disk_tier *d); /* of states, waiting to be written */
size_t disk_tier_queued(const disk_tier *d);         /* writes */
/* Bytes on disk beside the records and what was set aside: index, folders. */
uint64_t disk_tier_overhead(disk_tier *d);
/* Upper limit of what a record will take on disk. */
uint64_t disk_tier_record_bytes(const disk_tier *d, const record *r, const kv_span *span);

#endif
