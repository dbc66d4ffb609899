/* SPDX-License-Identifier: Apache-2.0 */
/* span_write_back.h: which spans are written to the tier below RAM, when, and which records they replace.
 *
 *             module, text used twice or remembered ----> LIST_DUE ----+
 *   put ---->                                                         +--> LIST_WRITING (tier.h) --> on disk
 *             text used once --> LIST_ONCE ---------------------------+        late text: to LIST_ONCE
 *                                  |  second use: LIST_DUE
 *                                  +--> not admitted: its row stays with it; second use: LIST_DUE
 *
 * Most text is used once (docs/eviction.md), and its writes compete with requests for disk and processor. Therefore
 *
 *   due       is written first, oldest first. The more bytes are queued, the larger the writer's share of a processor,
 *             up to 1/MOST_SHARE: the queue stays within about most_queued()
 *   once      is written when nothing is due: at any time into free space on disk, and after QUIET_US without
 *             computation also in place of records that eviction would select. Of more bytes than half of the disk
 *             budget the oldest are not admitted: they would be evicted first
 *   turnover  text replaces records on disk at most as fast as TURNOVER_US replaces all of them: a working set that
 *             does not fit would wear out the disk, and each record would be evicted before its next use. Text beyond
 *             it waits in LIST_ONCE
 *   victims   text is admitted to a full disk if the policy would keep it longer than the records it replaces
 *             (eviction_outranks)
 *
 *   late      due text that has waited BEGIN_US without the start of a write is counted (disk_late) and waits in
 *             LIST_ONCE from then on, until its next use: due text is on disk, or no longer due, within
 *             SPAN_WRITE_LAG_LIMIT_US. Modules and pinned text stay due
 *
 * The tier gets two groups of writes at a time: the choice is made as late as possible. With write-through everything
 * is due.
 *
 * Invariants: a write begins only if all records, its own included, then take at most span_write_back_limit; text that
 * replaces records stays within the allowance of the turnover.
 *
 * Used by one thread.
 */
#ifndef STORE_SPAN_WRITE_BACK_H
#define STORE_SPAN_WRITE_BACK_H

#include "store/index/span_places.h"

/* Limit on the age of text that is due to be written with write-back, while no single system call takes seconds.
 * Later it waits like text used once: long enough for a pause of the disk, and short enough that a crash loses
 * little. */
#define SPAN_WRITE_LAG_LIMIT_US ((uint64_t)6000000)

typedef enum span_store_write {
    SPAN_STORE_WRITE_BACK,    /* later, beside requests */
    SPAN_STORE_WRITE_THROUGH, /* the KV of a request is on disk when it ends: span_store_flushed */
    SPAN_STORE_WRITE_OFF,     /* records are read, none is added */
} span_store_write;

typedef struct span_write_back {
    span_places *places;
    const base_key *fingerprint; /* of the records */
    span_store_write mode;
    bool computing;
    bool closing;      /* no further input: everything is written */
    uint32_t share;    /* of a processor, that the tier's writer gets while requests are computed: 1/share */
    uint64_t quiet_us; /* base_clock_us: since when no request is computed */
    uint64_t retry_us; /* after a failed write: not before this time */
    bool reported_failure;
    uint64_t allowed_bytes, allowed_us; /* budget of text that may replace records, at this time */
    uint64_t flushed;                   /* serial of the last write with an event */
} span_write_back;

/* Without a tier nothing is written. places is borrowed. */
void span_write_back_init(span_write_back *w, span_places *places);
/* Are records added? */
bool span_write_back_is_on(const span_write_back *w);

/* Starts the write of an entry in RAM, or queues it; does nothing without a tier. r: content of its record, copied; key
 * and form are the span's. seen: it was in the store before. */
void span_write_back_add(span_write_back *w, uint32_t i, const record *r, bool seen);
/* Raises its priority after another use. */
void span_write_back_sooner(span_write_back *w, uint32_t i);
/* Passes queued writes to the tier, as many as it accepts. */
void span_write_back_continue(span_write_back *w);
/* Handles an event of a write; its span stays the caller's. */
void span_write_back_take(span_write_back *w, const tier_event *event);
/* Does an entry wait? Does a pinned one, whose write can begin soon? */
bool span_write_back_has_queued(const span_write_back *w);
bool span_write_back_has_pins(const span_write_back *w);
/* While requests are computed, the writer takes a small share of a processor (never where requests wait for it). */
void span_write_back_set_computing(span_write_back *w, bool computing);
/* Milliseconds until span_write_back_continue may write a span that waits for an idle engine; -1: none waits. */
int64_t span_write_back_wait_ms(const span_write_back *w);

/* The part of the disk budget that records may take. */
uint64_t span_write_back_limit(const span_write_back *w);
/* Evicts records beyond the budget or a quota. */
void span_write_back_fit(span_write_back *w);

#endif
