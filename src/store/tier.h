/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h: a tier below RAM, as a table of operations: whatever keeps records (record/record.h) by key. disk/disk_tier.h
 * is the one of the product; a remote tier is another table.
 *
 *                   +-> reads: by request, then layer by layer ---+
 *   engine's thread |                                             +-> events --> engine's thread (tier_next)
 *                   +-> writes, removals, notes, in their order --+
 *
 *   write   queued -> begun -> written           event TIER_WRITTEN; failed: with the reason
 *             |         +-> failed               erased before it began, a full tier, the deadline, ...
 *             +-> late: begin_by passed          the event returns the row
 *   read    queued -> layer 0 -> layer 1 -> ... -> read        event TIER_READ; each layer: kv_span_set_ready
 *             +-----------+-> failed                           fault is the reason; the span has failed
 *
 * Rules for a tier. It may be slow, full, unreachable, and hold bytes that nobody wrote:
 *
 *   1. KV that it cannot return as it was written is a failed read with a record_fault, never other bytes. The fault
 *      becomes the reason of a miss.
 *   2. No operation waits for the medium, except opening, wait, settle and close.
 *   3. Each read, write and sync has one event, with the span's reference of the operation; writes complete in their
 *      order.
 *   4. A removal that follows a write of the same key takes effect after it.
 *   5. A tier that cannot be used now is RP_ERR_IO when it is opened, with the cause in errno: the store does without
 *   it.
 *
 * Used by one thread, the engine's; a tier may have threads of its own.
 */
#ifndef STORE_TIER_H
#define STORE_TIER_H

#include "store/record/record_row.h"

/* TIER_EVICT: to free space. TIER_SET_ASIDE: its record is unreadable; kept where nobody reads it, if the tier can.
 * TIER_ERASE: permanent: a write of it that has not begun does not begin (its event is failed, with RP_ERR_CANCELLED),
 * and the next sync reports whether it is gone. */
typedef enum tier_removal {
    TIER_EVICT,
    TIER_SET_ASIDE,
    TIER_ERASE,
} tier_removal;

typedef enum tier_event_kind {
    TIER_READ,
    TIER_WRITTEN,
    TIER_SYNCED,
} tier_event_kind;

typedef struct tier_event {
    tier_event_kind kind;
    base_key key;    /* of a read or a write */
    kv_span *span;   /* likewise: a reference, owned by the caller */
    uint64_t bytes;  /* read or written, in the tier */
    uint64_t serial; /* of the write or the sync */
    bool failed;
    record_fault fault; /* the reason, of a read */
    rp_error err;       /* the reason, */
    int cause;          /* and of a write its errno */
    record_row *late;   /* the caller's (base_free): row of a write that was too late (RP_ERR_CANCELLED); or NULL */
} tier_event;

typedef struct tier_figures {
    bool is_busy;            /* there are events to come, or to be taken */
    double read_byte_us;     /* measured microseconds to read a byte of a record, checks included; 0: too few were
                                read */
    uint64_t overhead_bytes; /* the part of the tier's budget that records cannot take */
} tier_figures;

typedef struct store_tier store_tier;

/* The operations. The functions below are their callers' names, and document them. */
typedef struct tier_ops {
    int (*read)(store_tier *t, kv_span *span, uint64_t request);
    int (*write)(store_tier *t, record_row *row, kv_span *span, uint64_t begin_by, uint64_t serial);
    void (*remove)(store_tier *t, const base_key *key, tier_removal how);
    void (*note)(store_tier *t, const base_key *key, const record_use *use);
    int (*keep_audit)(store_tier *t, char *bytes, size_t n);
    int (*sync)(store_tier *t, uint64_t serial);
    bool (*next)(store_tier *t, tier_event *out);
    void (*wait)(store_tier *t);
    void (*settle)(store_tier *t);
    void (*set_share)(store_tier *t, uint32_t one_in);
    void (*set_deadline)(store_tier *t, uint64_t at_us);
    void (*measure)(store_tier *t, tier_figures *out);
    uint64_t (*record_bytes)(const store_tier *t, const record *r);
    void (*close)(store_tier *t);
} tier_ops;

/* The first member of each tier's struct. Its owner is tier.c, but for ops. */
struct store_tier {
    const tier_ops *ops;
    uint64_t serial, n_syncs; /* of the last write and the last sync */
    uint64_t queued_bytes;    /* of KV, of the writes without an event yet */
    size_t n_queued;          /* these writes */
    uint64_t written;         /* serial of the last write with an event */
};

/* ---- opening ---- */

/* What the store asks of a tier. */
typedef struct tier_terms {
    bool read_only;              /* nothing in it is changed */
    bool adds;                   /* records will be written: not with read_only */
    uint64_t budget_bytes;       /* of everything in it */
    const record_format *format; /* that reads expect; borrowed until the tier is closed */
    void (*notify)(void *user);  /* called by any thread when there is an event */
    void *notify_user;
    record_row_fn fn; /* called with every record in it, of other models too; an error ends the opening */
    void *user;
} tier_terms;

/* How to open a tier: a function and its options, which are borrowed meanwhile. RP_ERR_IO (it cannot be used now; errno
 * is the cause, and fn was not called), RP_ERR_INVALID (the budget is too small for a record), RP_ERR_CONFLICT (another
 * process uses it), RP_ERR_FORMAT (it is something else), RP_ERR_MEMORY, errors of fn. */
typedef struct tier_source {
    int (*open)(store_tier **out, const void *options, const tier_terms *terms, rp_error *err);
    const void *options;
    bool read_only; /* it may not be changed, whatever the store asks */
} tier_source;

/* Completes all queued operations, writes included, within the deadline. Events that were not taken are lost. NULL is
 * fine. */
void tier_close(store_tier *t);
/* After this time (base_clock_us) no read or write begins, and no write that waits for a sync continues: they fail
 * with RP_ERR_CANCELLED and leave nothing. Removals and notes are carried out. The tier waits for one system call at
 * most. */
void tier_set_deadline(store_tier *t, uint64_t at_us);

/* ---- operations ---- */

/* Reads a record into a span that kv_span_restore made with its key and form (takes a reference; a failed read fails
 * the span). Of the spans of one request every first layer is read before any second one; requests with a lower number
 * come first. RP_ERR_MEMORY: nothing was queued. */
int tier_read(store_tier *t, kv_span *span, uint64_t request);
/* Writes a span (takes a reference). row: of record_row_new, owned by the tier from here. begin_by (base_clock_us;
 * UINT64_MAX: none): a write that has not begun by then does not begin, and its event is late. tier_set_deadline lifts
 * these limits, also those of queued writes. RP_ERR_MEMORY: nothing was queued, and the caller keeps the row. */
int tier_write(store_tier *t, record_row *row, kv_span *span, uint64_t begin_by);
/* Removes a record, if it is there. */
void tier_remove(store_tier *t, const base_key *key, tier_removal how);
/* Updates the use of a record, for the next opening. */
void tier_note(store_tier *t, const base_key *key, const record_use *use);
/* Replaces the auditor's results (engine/background/audit.h) beside the records by these n bytes, opaque to the tier,
 * which owns them from here (base_free). Completes before the tier is closed; a failure is only logged. RP_ERR_MEMORY,
 * RP_ERR_CONFLICT (read-only): the caller keeps the bytes. */
int tier_keep_audit(store_tier *t, char *bytes, size_t n);
/* Requests an event, TIER_SYNCED with this serial: all earlier removals are durable then, after a loss of power too;
 * or the event is failed, with the reason. RP_ERR_MEMORY, RP_ERR_CONFLICT (read-only): none will come. */
int tier_sync(store_tier *t, uint64_t *serial);

/* The next event. */
bool tier_next(store_tier *t, tier_event *out);
/* Waits for an event, if any operation is in progress. */
void tier_wait(store_tier *t);
/* Waits until everything queued so far is done, removals included. */
void tier_settle(store_tier *t);
/* The share of a processor that writes may take from now on, 1/one_in; 1: no limit, which holds after opening. */
void tier_set_share(store_tier *t, uint32_t one_in);

/* ---- figures ---- */

tier_figures tier_measure(store_tier *t);
/* Upper bound of the size in the tier of a record with its span's form. */
uint64_t tier_record_bytes(const store_tier *t, const record *r);
/* A name for the cause of a failure (errno), for metrics and /readyz: "no_space", "io_error", ...; static. */
const char *tier_trouble_name(int cause);

#endif
