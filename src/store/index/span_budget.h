/* SPDX-License-Identifier: Apache-2.0 */
/* span_budget.h: which entry is evicted next from each tier, and which may not be: pins, kept entries, times to live
 * and quotas of tenants. It counts and selects; span_places.h moves.
 *
 *   span_places: entry enters a tier --> span_budget_enter    span_budget_victim, _next_expired --> entry to move out
 *                entry leaves it     --> span_budget_leave    span_budget_use, _mark: more value
 *
 * Invariants:
 *
 *   1. An entry is an item of a tier's eviction exactly while it is there.
 *   2. Pins of a tier take at most half of its budget; kept entries at most half of what pins leave, and those of a
 *   tenant
 *      with a quota at most half of that.
 *   3. A victim is never pinned; in memory, the store has the only reference to it; on disk, its record is neither read
 *      nor written.
 *
 * Used by one thread.
 */
#ifndef STORE_SPAN_BUDGET_H
#define STORE_SPAN_BUDGET_H

#include "base/hash.h"
#include "store/index/eviction.h"
#include "store/index/item_heap.h"
#include "store/index/span_index.h"

/* Terms of a use of a span; they remain in force. */
typedef struct span_terms {
    int64_t ttl_s; /* idle timeout, in seconds; 0: unchanged */
    bool pin;      /* exempt from eviction; not for texts */
} span_terms;

/* Who uses and adds entries, and how long at least, in seconds, it asks to keep them; 0: it does not. */
typedef struct span_reader {
    eviction_reader who;
    int64_t keep_s;
} span_reader;

/* A tenant's quota; its group in all tiers is its index in the list, plus 1. */
typedef struct span_quota {
    uint32_t tenant;
    uint64_t bytes[N_TIERS]; /* 0: none */
} span_quota;

/* Entries by a time, in seconds since 1970. */
typedef struct span_deadlines {
    item_heap heap;
    uint32_t *places;
    size_t n_places, cap_places;
} span_deadlines;

typedef struct span_budget {
    span_index *index;
    uint64_t bytes[N_TIERS]; /* the budget of each tier */
    eviction *tiers[N_TIERS];
    uint64_t pinned_bytes[N_TIERS];
    bool reported_pins;
    span_quota *quotas;
    size_t n_quotas, cap_quotas;
    span_deadlines expiring, keeping; /* by use.expires, by kept_until */
    span_reader reader;
    int64_t (*now)(void); /* seconds since 1970 */
} span_budget;

/* index is borrowed. RP_ERR_MEMORY: still to be closed. */
int span_budget_open(span_budget *b, span_index *index, uint64_t ram_bytes);
void span_budget_close(span_budget *b);

/* ---- tiers ---- */

/* Adds an entry to a tier: fills in its place, unwritten. idle: as in eviction.h. RP_ERR_MEMORY: it was not added. */
int span_budget_enter(span_budget *b, span_tier tier, uint32_t i, uint64_t bytes, float idle);
/* Removes it from the tier, and clears its place. evicted: its key enters the ghost list. */
void span_budget_leave(span_budget *b, span_tier tier, uint32_t i, bool evicted);
/* The entry as an item of a tier, in which it may be absent. */
eviction_item span_budget_item(const span_budget *b, span_tier tier, uint32_t i, uint64_t bytes, float idle);
/* Sets the parents of the items of all entries on disk, which were added in any order. */
void span_budget_settle(span_budget *b);
/* Updates the cost of an entry in memory, which depends on its record. */
void span_budget_update_cost(span_budget *b, uint32_t i);
/* The entry to evict next from a tier: of a group, or of all (EVICTION_NONE). EVICTION_NONE: there is none. */
uint32_t span_budget_victim(span_budget *b, span_tier tier, uint32_t group);
/* Is the key in a ghost list: was it evicted not long ago (eviction.h)? */
bool span_budget_was_dropped(const span_budget *b, const base_key *key);

/* ---- uses ---- */

void span_budget_set_reader(span_budget *b, span_reader reader);
void span_budget_end_session(span_budget *b, uint64_t session);
/* Counts a use. terms NULL: none. */
void span_budget_use(span_budget *b, uint32_t i, const span_terms *terms);
/* Is of the reader, too, without another use. */
void span_budget_mark(span_budget *b, uint32_t i, const span_terms *terms);
/* Pins it, as far as the budget of pins permits, or removes the pin; nothing for a text. */
void span_budget_set_pinned(span_budget *b, uint32_t i, bool pinned);

/* ---- times to live ---- */

/* Watches the entry's expiry; without memory for that, lookup detects it. */
void span_budget_watch(span_budget *b, uint32_t i);
void span_budget_unwatch(span_budget *b, uint32_t i); /* also before its removal */
/* Has it expired, and does nobody reference it? */
bool span_budget_has_expired(const span_budget *b, uint32_t i);
/* The next entry that has; SPAN_INDEX_NONE: none. Ends the keeping of others whose time is over. */
uint32_t span_budget_next_expired(span_budget *b);
/* Counts an expiry, before the entry leaves its tiers. */
void span_budget_expire(span_budget *b, uint32_t i);

/* ---- tenants ---- */

uint32_t span_budget_group(const span_budget *b, uint32_t tenant);                 /* 0: without a quota */
uint64_t span_budget_quota(const span_budget *b, uint32_t tenant, span_tier tier); /* UINT64_MAX: none */
/* Is the tenant within its quota in a tier, with that many bytes more? */
bool span_budget_fits_quota(const span_budget *b, uint32_t tenant, span_tier tier, uint64_t bytes);
/* Sets a quota: q->bytes may be 0. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int span_budget_set_quota(span_budget *b, const span_quota *q);

#endif
