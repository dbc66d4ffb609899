/* SPDX-License-Identifier: Apache-2.0 */
/* span_places.h: moves the entries of a store between its tiers, and into and out of the queue of writes. Whoever moves
 * KV calls it, and it keeps index, budget, counts and reports in step.
 *
 * "Memory" is what is computed with: the device's, or RAM without one (span_index.h).
 *
 *   computed --enter_memory--> memory --enter_disk--> both --leave_memory--> disk --enter_memory--> both
 *                                |                                            | |
 *                                |                                            | +--lose--> unreadable --enter_memory-->
 *                                +--leave_memory, settle--> removed <---------+ leave_disk, settle
 *
 * With RAM below a device (span_places_set_ram), what leaves memory without its removal moves there, and back for its
 * next use:
 *
 *   memory --demote--> RAM --promote--> memory          RAM --evicted--> removed, or disk alone
 *
 *   queue    none --queue--> LIST_DUE, LIST_ONCE, LIST_WRITING --unqueue--> none
 *
 * Invariants: those of span_index.h and span_budget.h hold between two calls, except that an entry that has left a tier
 * is the caller's to settle; spans and bytes of rp_store_stats agree with the lists.
 *
 * Used by one thread.
 */
#ifndef STORE_SPAN_PLACES_H
#define STORE_SPAN_PLACES_H

#include "store/index/span_budget.h"
#include "store/tier.h"
#include "reprise_store.h"

/* An entry is in other tiers than before. */
typedef struct span_change {
    const base_key *key;
    record_kind kind;
    void *owner;
    uint32_t tiers; /* RP_TIER_*; 0: none that can be used. On disk: its record is complete and readable */
} span_change;
typedef void (*span_store_on_change)(void *user, const span_change *change);
/* Called after an entry with an owner has lost its KV: it was removed, or its record is unreadable. Others may still
 * reference its span. */
typedef void (*span_store_on_drop)(void *user, void *owner);

/* RAM below a device, for KV that is evicted from it. */
typedef struct span_ram {
    kv_pool *pool; /* borrowed: of the backend's host memory, in which its device reads, too; NULL: there is none */
    /* Is KV that a job reads that many times rather read in place than copied to the device first? is_full: the copy
     * takes the place of other KV. */
    bool (*reads_in_place)(void *user, double n_reads, bool is_full);
    /* Is it quicker to compute KV of so many bytes again, which takes cost_us (0: not known), than to copy it back?
     * Then it does not move to RAM. NULL, the function: never. */
    bool (*recomputes)(void *user, uint64_t bytes, uint64_t cost_us);
    void *user;
} span_ram;

typedef struct span_places {
    span_index index;
    span_budget budget;
    kv_pool *pool;
    span_ram ram;
    store_tier *tier; /* NULL: none */
    span_store_on_drop on_drop;
    void *drop_user;
    span_store_on_change on_change;
    void *change_user;
    uint64_t waiting_bytes[N_LISTS]; /* of KV */
    rp_store_stats stats;
} span_places;

int span_places_open(span_places *p, kv_pool *pool); /* RP_ERR_MEMORY: still to be closed. The pool is borrowed */
void span_places_close(span_places *p);              /* with all entries; the tier is closed */

/* ---- tiers ---- */

/* Spans that are evicted from the device's memory move to RAM (kv_span_move), within the budget of its pool. Once,
 * before the first entry. */
void span_places_set_ram(span_places *p, const span_ram *ram);
/* Moves the span of an entry from RAM to the device's memory. The store and the caller have the only references.
 * RP_ERR_BUDGET, RP_ERR_MEMORY, RP_ERR_IO: it does not. */
int span_places_promote(span_places *p, uint32_t i);
/* Gives an entry that has no span one, with one reference. RP_ERR_MEMORY: it does not. */
int span_places_enter_memory(span_places *p, uint32_t i, kv_span *span);
/* Removes the span from memory, or from RAM below it; the entry stays. evicted: its key enters the ghost list. */
void span_places_leave_memory(span_places *p, uint32_t i, bool evicted);
/* A copy of a record's form in a block of its own (base_free); NULL: out of memory. n_layers: of the form, which may be
 * another model's: then *is_own is false, and the copy lacks its arrays. */
kv_span_form *span_places_copy_form(const span_places *p, const kv_span_form *form, int32_t n_layers, bool *is_own);
/* Adds a record, unwritten, of that form, owned by the entry from here, and of at most so many bytes; not is_own: it is
 * never read. idle: as in eviction.h. RP_ERR_MEMORY: it is not there, and the caller keeps the form. */
int span_places_enter_disk(span_places *p, uint32_t i, kv_span_form *form, bool is_own, uint64_t bytes, float idle);
/* The record is complete, and has this size. */
void span_places_set_written(span_places *p, uint32_t i, uint64_t bytes);
/* Removes a record that was not written, or is gone, from the entry. */
void span_places_lose_disk(span_places *p, uint32_t i, bool evicted);
/* The same, and removes it from the tier: a queued write continues, and the removal after it in the queue deletes
   it. */
void span_places_leave_disk(span_places *p, uint32_t i, tier_removal how, bool evicted);
/* After it has left a tier: an entry in no tier is removed, and one without usable KV has no owner from here
 * (on_drop). */
void span_places_settle(span_places *p, uint32_t i);
/* Its KV cannot be read, now or as it arrives in memory: it leaves memory, its record is unreadable, and it is
 * settled. */
void span_places_lose(span_places *p, uint32_t i);
/* Removes an entry from all tiers. Others may reference its span: it is freed with their last reference. */
void span_places_drop(span_places *p, uint32_t i);
/* The same of an expired one. Entries without children are remembered (ghost list). */
void span_places_expire(span_places *p, uint32_t i);
/* Evicts an entry that is not referenced from memory: the one of the lowest priority, or one below a referenced entry.
 * false: there is none. */
bool span_places_reclaim(span_places *p);
/* Evicts the tenant's entries from memory, and from RAM, while it is over its quota. */
void span_places_fit_quota(span_places *p, uint32_t tenant);
/* Updates the record's use in the tier. */
void span_places_note(span_places *p, uint32_t i);

/* Reports the entry's tiers, if they have changed. */
void span_places_report(span_places *p, uint32_t i);

/* ---- the queue of writes ---- */

void span_places_queue(span_places *p, span_list_kind list, uint32_t i);
void span_places_unqueue(span_places *p, uint32_t i); /* nothing if it does not wait */
/* Cancels a queued write: the entry's span leaves memory, or is removed. is_lost: counts it. */
void span_places_cancel(span_places *p, uint32_t i, bool is_lost);

/* ---- memory ---- */

/* Bytes of spans in memory that are neither referenced elsewhere nor pinned: reclaiming could free them. */
uint64_t span_places_idle_bytes(const span_places *p);
/* Reclaimable or free bytes that getting the entry's span would take. */
uint64_t span_places_idle_bytes_of(const span_places *p, uint32_t i);
/* Blocks that are free or that reclaiming would free, less those that sequences have reserved. */
int64_t span_places_free_blocks(const span_places *p);

#endif
