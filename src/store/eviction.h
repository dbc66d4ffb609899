/* SPDX-License-Identifier: Apache-2.0 */
/* eviction.h: which item of a tier goes first when room is needed. One policy for all tiers.
 *
 *   stay(item) = uses x sqrt(cost_us / bytes x share)      how long it is kept after a use
 *   due(item)  = clock when it was used last + stay         the least goes first, and moves the clock on to its own: ageing
 *
 *   clock -->  .....[c]...[b]..........[a]........> due     a victim is taken on the left; a use puts an item back to the right
 *
 * uses    times that it was used, with those before it was dropped, as far as that is remembered. What is new below a parent begins with
 *         the uses that the parent's children had on average, 1 at least: uses of the parent / children that it ever had.
 * share   of what had been used as often, how much was used once more before it was forgotten: measured as the tier runs, for uses of
 *         1, 2 to 3, 4 to 7, ... So where most text comes once, a scan is dropped before it can push out what comes again.
 * sqrt    what was not used for twice as long is used about a quarter as often, so an item of four times the worth is kept twice as long.
 *
 * This is GreedyDual-Size-Frequency (Cherkasova 1998) with measured reuse and a memory of what was dropped; docs/eviction.md compares.
 *
 *   parent     an item that this one is of no use without: it is never offered while a child of it is there. Where it goes all the same (it
 *              could not be read), its children stand alone
 *   group      whose item it is: a tenant's bytes are known, and a victim can be asked for among a group's items alone
 *   pinned     never offered
 *   expired    goes before all that is not
 *
 * Items are indices that the caller gives, below EVICTION_MAX_ITEMS, best small ones used again: memory is about 100 bytes for each index
 * up to the highest, and 48 for what is remembered of each. Adding, using and dropping take O(log items), asking for a victim that and
 * O(groups). The clock is made of drops, never of time: the same calls give the same victims. Used by one thread.
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
    uint64_t name;    /* the beginning of its key: what it is remembered by */
    uint64_t bytes;   /* at least 1 */
    uint64_t cost_us; /* to have it again: computing it, or reading it from the tier below if that is less */
    uint32_t parent;  /* an item that is there, or EVICTION_NONE: it stands alone */
    uint32_t group;   /* below EVICTION_MAX_GROUPS */
    float uses;       /* if it is not remembered here: how often it was used, as somebody else knows; 0: nobody does */
    float idle;       /* 0 to 1: so much of its stay has gone by since its last use (it was there before the program ended) */
} eviction_item;

int eviction_new(eviction **out) BASE_NODISCARD; /* RP_ERR_MEMORY */
void eviction_free(eviction *e);

/* An item is there now, and used. item: an index that is free. RP_ERR_MEMORY, RP_ERR_LIMIT: it is not there. */
int eviction_add(eviction *e, uint32_t item, const eviction_item *about) BASE_NODISCARD;
/* An item was used. */
void eviction_use(eviction *e, uint32_t item);
/* If an item stands alone, it stands on a parent from now on: so what is there already may be added in any order. */
void eviction_set_parent(eviction *e, uint32_t item, uint32_t parent);
/* It is another group's from now on. RP_ERR_MEMORY: it is not. */
int eviction_set_group(eviction *e, uint32_t item, uint32_t group) BASE_NODISCARD;
/* It costs less or more to have again: it was written to the tier below, or removed there. */
void eviction_set_cost(eviction *e, uint32_t item, uint64_t cost_us);
void eviction_set_pinned(eviction *e, uint32_t item, bool pinned);
/* Its time is over (ttl): it goes as soon as nothing stands on it. A use takes that back. */
void eviction_expire(eviction *e, uint32_t item);

/* May the item go now? Not while somebody holds it, for instance. */
typedef bool (*eviction_may_go)(void *user, uint32_t item);
/* The item that goes first of a group, or of all (EVICTION_NONE), without children, not pinned, and that may_go lets go; NULL: all may.
 * EVICTION_NONE: there is none. Nothing is dropped yet. What may_go refuses counts as if it had been used at this moment, but for its
 * uses, so that what is held for long is not offered each time. */
uint32_t eviction_victim(eviction *e, uint32_t group, eviction_may_go may_go, void *user);

/* Would an item that is not there be kept longer, if it came now, than one that is (eviction_victim)? One that is remembered as dropped would be. */
bool eviction_outranks(eviction *e, const eviction_item *about, uint32_t victim);

/* An item goes: for want of room (it has no children, its key is remembered, and the clock moves on), or for another reason. */
void eviction_drop(eviction *e, uint32_t item);
void eviction_remove(eviction *e, uint32_t item);

/* Is a key of that name remembered as dropped and not there again since? As many are remembered as twice the most items that were there at
 * once, 1,024 at least and 2^20 at most. */
bool eviction_was_dropped(const eviction *e, uint64_t name);
/* Bytes of a group's items. */
uint64_t eviction_group_bytes(const eviction *e, uint32_t group);

#endif
