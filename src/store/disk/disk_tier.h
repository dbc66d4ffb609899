/* SPDX-License-Identifier: Apache-2.0 */
/* disk_tier.h: spans on disk: a folder of records, used by one process at a time.
 *
 *   DIR/reprise-store        the marker of a store (disk_folder.h)
 *   DIR/lock                 the process that uses it
 *   DIR/index.db             an index over the records, for queries (record_index.h)
 *   DIR/pins                 keys of pinned records: for a rebuilt index
 *   DIR/audit                results of the auditor (engine/background/audit.h): a few bytes, opaque to the tier
 *   DIR/a/ab3f...{64}.rps    records (record.h); "a": the key's first digit
 *   DIR/bad/                 quarantined records (unreadable): DISK_TIER_BAD of them, and options.bad_bytes, at most
 *
 *                   +-> reads: by request, then layer by layer --> readers ---+
 *   engine's thread |                                                         +-> events --> engine's thread
 *                   +-> writes, removals, notes, in their order -> writer ----+
 *
 * Records are written in groups of up to DISK_TIER_GROUP, as many as wait: each is written and synced under a
 * temporary name, then all are renamed, then each folder is synced once, then they enter the index, and their events
 * follow. A crash leaves each of them whole or absent.
 *
 * A read fills in a span that kv_span_restore made. Of the spans of one request every first layer is read before any
 * second one: computation can begin with the first layer. A write references its span until its event was taken. The
 * index follows the files: opening a store repairs rows that are missing or surplus after a crash.
 *
 * Used by one thread, the engine's. Only opening, closing, settling and waiting block on the disk (and a removal,
 * when there is no memory to queue it).
 */
#ifndef STORE_DISK_TIER_H
#define STORE_DISK_TIER_H

#include "store/disk/record_index.h"

#define DISK_TIER_READERS 2
#define DISK_TIER_OPEN_FILES 128 /* open for reading at a time */
#define DISK_TIER_GROUP 32       /* records that share the syncs of their folders */
#define DISK_TIER_BAD 16
#define DISK_TIER_MAX_RECORDS ((size_t)1 << 26)

typedef struct disk_tier disk_tier;

typedef struct disk_tier_options {
    const char *dir;
    bool read_only;              /* nothing is written, and another process may use it meanwhile */
    uint64_t bad_bytes;          /* limit on the bytes of quarantined records */
    bool whole_reads;            /* span by span instead of layer by layer: for measurements */
    const record_format *format; /* borrowed until it is closed, like cipher */
    const record_cipher *cipher; /* NULL: records are not encrypted */
    void (*notify)(void *user);  /* called by a thread of the tier when there is an event */
    void *user;
} disk_tier_options;

/* Opens a store, creates it if it does not exist, and repairs it after a crash. fn is called with every record, of
 * other models too. RP_ERR_IO with its cause in errno (it cannot be used now), RP_ERR_CONFLICT (another process uses
 * it), RP_ERR_FORMAT (the folder is neither empty nor a store, or is a file), RP_ERR_MEMORY, errors of fn. */
int disk_tier_open(disk_tier **out, const disk_tier_options *options, record_row_fn fn, void *user, rp_error *err);
/* Completes all queued operations, writes included, within the deadline. Events that were not taken are lost. */
void disk_tier_close(disk_tier *d);
/* After this time (base_clock_us) no read or write starts, and no write that waits for a sync continues: they fail
 * with RP_ERR_CANCELLED and leave no files. Removals and notes are carried out. The tier waits for one system call at
 * most. */
void disk_tier_set_deadline(disk_tier *d, uint64_t at_us);

/* Reads a record into a span of its key and form (takes a reference; a failed read fails the span). Reads with a lower
 * `request` are served first. RP_ERR_MEMORY: nothing was queued. */
int disk_tier_read(disk_tier *d, kv_span *span, uint64_t request);
/* Writes a span (takes a reference). row: owned by the tier from here (base_free), with all that it points to in the
 * same block of memory. begin_by (base_clock_us; UINT64_MAX: none): a write that has not started by then does not
 * start, its event is late and returns the row; a group with a record that has started is published then, even if
 * more records wait. disk_tier_set_deadline lifts these limits, also those of queued writes. RP_ERR_MEMORY: nothing
 * was queued, and the caller keeps the row. */
int disk_tier_write(disk_tier *d, record_row *row, kv_span *span, uint64_t begin_by, rp_error *err);
/* DISK_EVICT: to free space. DISK_SET_ASIDE: quarantine an unreadable record. DISK_ERASE: permanent: a write of it
 * that has not started does not start (its event is failed, with RP_ERR_CANCELLED), and disk_tier_sync reports
 * whether the file is removed. */
typedef enum disk_removal {
    DISK_EVICT,
    DISK_SET_ASIDE,
    DISK_ERASE,
} disk_removal;
void disk_tier_remove(disk_tier *d, const base_key *key, disk_removal how);
/* Requests an event, DISK_SYNCED with this serial: all earlier removals are durable then, in files and index, after a
 * loss of power too; or the event is failed, with the reason. The writer does not pause until then. RP_ERR_MEMORY,
 * RP_ERR_CONFLICT (read-only). */
int disk_tier_sync(disk_tier *d, uint64_t *serial);
/* While requests are computed, the writer takes at most a share of one processor (1/DISK_TIER_LEAST_SHARE unless
 * another one was set); otherwise, and after opening, there is no limit. */
#define DISK_TIER_LEAST_SHARE 32U
void disk_tier_set_computing(disk_tier *d, bool computing);
void disk_tier_set_share(disk_tier *d, uint32_t one_in); /* 1/one_in, from now on; at least 1 */
/* Updates the uses, times and pin of a record in the index. */
void disk_tier_note(disk_tier *d, const base_key *key, const record_use *use);

/* Replaces DIR/audit by these n bytes, which the tier owns from here (base_free). Completes before the tier is
 * closed; a failure is only logged. RP_ERR_MEMORY, RP_ERR_CONFLICT (read-only): the caller keeps the bytes. */
int disk_tier_keep_audit(disk_tier *d, char *bytes, size_t n);

typedef enum disk_event_kind {
    DISK_READ,
    DISK_WRITTEN,
    DISK_SYNCED,
} disk_event_kind;

typedef struct disk_event {
    disk_event_kind kind;
    base_key key;
    kv_span *span;   /* a reference, owned by the caller */
    uint64_t bytes;  /* read or written, on disk */
    uint64_t serial; /* of the write: disk_tier_serial when it was queued; of disk_tier_sync */
    bool failed;
    record_fault fault; /* the reason, of a read */
    rp_error err;       /* the reason, */
    int cause;          /* and of a write its errno */
    record_row *late;   /* the caller's (base_free): row of a write that was too late (RP_ERR_CANCELLED); or NULL */
} disk_event;

/* The next event. */
bool disk_tier_next(disk_tier *d, disk_event *out);
bool disk_tier_is_busy(disk_tier *d); /* there are events to come, or to be taken */
/* Waits for an event, if any operation is in progress. */
void disk_tier_wait(disk_tier *d);
/* Waits until everything queued so far is done, removals included. */
void disk_tier_settle(disk_tier *d);
/* The serial of the last queued write; writes complete in this order. */
uint64_t disk_tier_serial(const disk_tier *d);
uint64_t disk_tier_queued_bytes(const disk_tier *d); /* of KV, waiting to be written */
size_t disk_tier_queued(const disk_tier *d);         /* writes */
/* Measured microseconds to read a byte of a record, checksums and decryption included; 0: too few were read. */
double disk_tier_read_byte_us(disk_tier *d);
/* Bytes on disk besides the records and the quarantine: index, folders. */
uint64_t disk_tier_overhead(disk_tier *d);
/* Upper bound of the size on disk of a record with its span's form. */
uint64_t disk_tier_record_bytes(const disk_tier *d, const record *r);

#endif
