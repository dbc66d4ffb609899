/* SPDX-License-Identifier: Apache-2.0 */
/* eviction.h: eviction policy: priorities and victims of a tier. One policy for all tiers.
 *
 *   stay(item) = uses x sqrt(cost_us / bytes x share)      how long it is kept after a use
 *   due(item)  = clock at its last use + stay               priority: the least is evicted, the clock advances to it
 *
 *   clock -->  .....[c]...[b]..........[a]........> due     victims on the left; a use moves an item right
 *
 * uses    number of uses, including those before an eviction, while the ghost list remembers them. A new child starts
 *         with the average uses of its parent's children, at least 1: uses of the parent / children that it ever had.
 *         Consecutive uses by one session count once: an agent that reads its own conversation a hundred times shows
 *         that it runs, not that others need its text.
 * share   of all items that were used as often, the share that was used once more before it was forgotten: measured at
 *         run time, for uses of 1, 2 to 3, 4 to 7, ... Where most text is used once, a scan is evicted before text that
 *         is reused.
 * sqrt    an item that was idle for twice as long is used about a quarter as often: an item of four times the value
 *         is kept twice as long.
 *
 * This is GreedyDual-Size-Frequency (Cherkasova 1998) with measured reuse and a ghost list; docs/eviction.md
 * compares.
 *
 *   parent     an item that this one is useless without: it is never offered while it has a child. If it is removed
 *              nevertheless (it was unreadable), its children have no parent
 *   group      the owner, a tenant: bytes are counted by group, and a victim can be selected within a group
 *   pinned     never offered
 *   kept       offered only when no other item can be (a soft pin): the heap of a group is two, and the second waits
 *   expired    evicted before all others
 *   session    whose uses are counted (eviction_set_reader): when it ends, what it alone has used expires
 *
 * Items are indices that the caller chooses, below EVICTION_MAX_ITEMS, preferably small and reused: memory is about
 * 120 bytes for each index up to the highest, and 48 for each in the ghost list. Adding, using and evicting take
 * O(log items), selecting a victim that and O(groups). The clock advances on evictions, not by wall time: the same
 * calls give the same victims. Used by one thread.
 */
#ifndef STORE_EVICTION_H
#define STORE_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#define EVICTION_NONE UINT32_MAX
#define EVICTION_MAX_ITEMS ((size_t)1 << 26)
#define EVICTION_MAX_GROUPS ((size_t)1 << 16)

typedef struct eviction eviction;

typedef struct eviction_item {
    uint64_t name;    /* the first 64 bits of its key: its name in the ghost list */
    uint64_t bytes;   /* at least 1 */
    uint64_t cost_us; /* to restore it: time to compute it, or to read it from the next tier if that is less */
    uint32_t parent;  /* an item that is present, or EVICTION_NONE */
    uint32_t group;   /* below EVICTION_MAX_GROUPS */
    float uses;       /* uses known from elsewhere, if the ghost list has none; 0: unknown */
    float idle;       /* 0 to 1: the part of its stay that has passed since its last use (before a restart) */
} eviction_item;

int eviction_new(eviction **out) BASE_NODISCARD; /* RP_ERR_MEMORY */
void eviction_free(eviction *e);

/* Adds an item and counts its first use. item: a free index. RP_ERR_MEMORY, RP_ERR_LIMIT: it was not added. */
int eviction_add(eviction *e, uint32_t item, const eviction_item *about) BASE_NODISCARD;
/* How likely a reader's text is read again: the most likely of its readers multiplies the time for which an item stays.
 * A factor moves nothing where all readers are alike. */
typedef enum eviction_rank {
    EVICTION_ONE_OFF,  /* unknown: 1 */
    EVICTION_SUBAGENT, /* of a session that works for another one: 4 */
    EVICTION_RUNNING,  /* of a session: 8 */
} eviction_rank;

/* Who uses items from now on. */
typedef struct eviction_reader {
    uint64_t session; /* 0: none */
    eviction_rank rank;
} eviction_reader;
void eviction_set_reader(eviction *e, eviction_reader reader);
/* Items that only this session has used expire, and are no longer kept. Takes time for each item. */
void eviction_end_session(eviction *e, uint64_t session);
/* Counts a use. */
void eviction_use(eviction *e, uint32_t item);
/* The reader is one of those who used it, without another use. */
void eviction_mark(eviction *e, uint32_t item);
/* Sets the parent of an item without one: at a restart, items can be added in any order. */
void eviction_set_parent(eviction *e, uint32_t item, uint32_t parent);
/* Moves it to another group. RP_ERR_MEMORY: it was not moved. */
int eviction_set_group(eviction *e, uint32_t item, uint32_t group) BASE_NODISCARD;
/* Its cost changed: it was written to the next tier, or removed there. */
void eviction_set_cost(eviction *e, uint32_t item, uint64_t cost_us);
void eviction_set_pinned(eviction *e, uint32_t item, bool pinned);
/* Keeps it, or ends that. */
void eviction_set_kept(eviction *e, uint32_t item, bool kept);
/* The kept item without children of a group, or of all (EVICTION_NONE), with the lowest priority; EVICTION_NONE: there
 * is none. */
uint32_t eviction_least_kept(const eviction *e, uint32_t group);
uint64_t eviction_kept_bytes(const eviction *e, uint32_t group); /* of a group, or of all (EVICTION_NONE) */
/* Its TTL is over: it is evicted as soon as it has no children. A use cancels this. */
void eviction_expire(eviction *e, uint32_t item);

/* May the item be evicted now? For instance, not while it is referenced. */
typedef bool (*eviction_may_go)(void *user, uint32_t item);
/* The item of a group, or of all (EVICTION_NONE), with the lowest priority that has no children, is not pinned, and
 * that may_go permits (NULL: all); a kept one only if there is no other. EVICTION_NONE: there is none. Does not evict
 * it. An item that may_go refuses gets the priority of a use now, without a count: referenced items are not offered
 * each time. */
uint32_t eviction_victim(eviction *e, uint32_t group, eviction_may_go may_go, void *user);

/* Would an absent item, added now, be kept longer than a present one (eviction_victim)? An item in the ghost list
 * would be; no kept item is replaced for it. */
bool eviction_outranks(eviction *e, const eviction_item *about, uint32_t victim);

/* Removes an item: drop evicts it (it has no children, its key enters the ghost list, and the clock advances); remove
 * is for other reasons. */
void eviction_drop(eviction *e, uint32_t item);
void eviction_remove(eviction *e, uint32_t item);

/* Is a key of that name in the ghost list: evicted and not added again since? The list has capacity for twice the
 * largest number of items so far, at least 1,024 and at most 2^20. */
bool eviction_was_dropped(const eviction *e, uint64_t name);
/* Bytes of a group's items. */
uint64_t eviction_group_bytes(const eviction *e, uint32_t group);

#endif
