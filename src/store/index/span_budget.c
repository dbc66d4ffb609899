/* SPDX-License-Identifier: Apache-2.0 */
/* span_budget.c: see span_budget.h. */
#include "store/index/span_budget.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

#define NONE SPAN_INDEX_NONE
/* The largest part of a tier's budget that pins may take: 1/PIN_SHARE. */
#define PIN_SHARE 2
/* The largest part of what pins leave of a tier's budget, and of a tenant's quota, that kept entries may take:
 * 1/KEPT_SHARE. The other half serves requests that ask for nothing. */
#define KEPT_SHARE 2
#define MOST_KEPT_S ((int64_t)7 * 86400)
/* Approximate throughput of a disk. An error matters little: a factor of four doubles the value of entries in RAM
 * alone against entries on disk, too. */
#define DISK_BYTES_PER_US 1000
#define MAX_QUOTAS (EVICTION_MAX_GROUPS - 1)

static int64_t now_s(void) { return (int64_t)time(NULL); }

/* ---- times ---- */

/* Adds an entry, or moves it. RP_ERR_MEMORY: it is not there. */
static int span_deadlines_put(span_deadlines *d, const span_index *x, uint32_t i, int64_t at) {
    int rc = item_heap_reserve(&d->heap, x->n_used + 1);
    if (!rc) rc = base_grow((void **)&d->places, &d->cap_places, x->n_entries, SPAN_INDEX_MAX, sizeof(*d->places));
    if (rc) return rc;
    while (d->n_places < x->n_entries) d->places[d->n_places++] = ITEM_HEAP_NOWHERE;
    item_heap_put(&d->heap, d->places, (item_heap_entry){(double)at, 0, i});
    return RP_OK;
}

static void span_deadlines_remove(span_deadlines *d, uint32_t i) {
    if (i < d->n_places) item_heap_remove(&d->heap, d->places, i);
}

/* The entry whose time comes first; NONE: there is none. */
static uint32_t span_deadlines_first(const span_deadlines *d) { return d->heap.n > 0 ? d->heap.entries[0].item : NONE; }

static void span_deadlines_free(span_deadlines *d) {
    base_free(d->heap.entries);
    base_free(d->places);
}

int span_budget_open(span_budget *b, span_index *index, uint64_t ram_bytes) {
    *b = (span_budget){.index = index, .bytes[TIER_MEMORY] = ram_bytes, .now = now_s};
    for (int i = 0; i < N_TIERS; i++)
        if (eviction_new(&b->tiers[i])) return RP_ERR_MEMORY;
    return RP_OK;
}

void span_budget_close(span_budget *b) {
    for (int i = 0; i < N_TIERS; i++) eviction_free(b->tiers[i]);
    span_deadlines_free(&b->expiring);
    span_deadlines_free(&b->keeping);
    base_free(b->quotas);
}

/* ---- tiers ---- */

/* A read is cheaper than a prefill. */
static uint64_t cost_in(const span_entry *e, span_tier tier) {
    const uint64_t cost = BASE_MAX(e->cost_us, 1);
    if (tier == TIER_DISK || !span_entry_has_record(e)) return cost;
    return BASE_MIN(cost, BASE_MAX(e->places[TIER_DISK].bytes / DISK_BYTES_PER_US, 1));
}

static uint32_t find_parent(const span_budget *b, uint32_t i) {
    const span_entry *e = &b->index->entries[i];
    const uint32_t parent = record_is_of_text(e->kind) ? span_index_find(b->index, &e->parent) : NONE;
    return parent != i ? parent : NONE;
}

static uint32_t parent_in(const span_budget *b, span_tier tier, uint32_t i) {
    const uint32_t parent = find_parent(b, i);
    return parent != NONE && span_entry_is_in(&b->index->entries[parent], tier) ? parent : EVICTION_NONE;
}

/* The entry has entered a tier: its children that were there before it are children there from now on. A parent is
 * evicted after its children, so that it enters the next tier after them. */
static void adopt_children(span_budget *b, span_tier tier, uint32_t i) {
    const uint32_t parent = find_parent(b, i);
    if (parent != NONE) span_index_set_parent(b->index, i, parent);
    for (uint32_t c = span_index_first_child(b->index, i); c != NONE; c = span_index_next_child(b->index, c))
        if (span_entry_is_in(&b->index->entries[c], tier)) eviction_set_parent(b->tiers[tier], c, i);
}

/* Pins it as far as the budget of pins permits. */
static void pin_in(span_budget *b, span_tier tier, uint32_t i) {
    span_place *p = &b->index->entries[i].places[tier];
    BASE_ASSERT(p->is_there && p->pinned_bytes == 0);
    if (b->pinned_bytes[tier] + p->bytes > b->bytes[tier] / PIN_SHARE) {
        base_log(b->reported_pins ? BASE_LOG_DEBUG : BASE_LOG_WARN,
                 "store: pins take half of the budget %s: further pinned spans can be evicted",
                 tier == TIER_DISK ? "on disk" : "in RAM");
        b->reported_pins = true;
        return;
    }
    p->pinned_bytes = p->bytes;
    b->pinned_bytes[tier] += p->bytes;
    BASE_ASSERT(b->pinned_bytes[tier] <= b->bytes[tier] / PIN_SHARE); /* invariant 2 */
    eviction_set_pinned(b->tiers[tier], i, true);
}

static void unpin_in(span_budget *b, span_tier tier, uint32_t i) {
    span_place *p = &b->index->entries[i].places[tier];
    BASE_ASSERT(b->pinned_bytes[tier] >= p->pinned_bytes);
    b->pinned_bytes[tier] -= p->pinned_bytes;
    p->pinned_bytes = 0;
}

/* Kept entries of a group, or of all, lose that while they take too much, the least valuable ones first. */
static void span_budget_fit_kept(span_budget *b, span_tier tier, uint32_t group, uint64_t most) {
    for (uint32_t i; eviction_kept_bytes(b->tiers[tier], group) > most &&
                     (i = eviction_least_kept(b->tiers[tier], group)) != EVICTION_NONE;)
        eviction_set_kept(b->tiers[tier], i, false);
}

static void keep_in(span_budget *b, span_tier tier, uint32_t i) {
    const uint32_t tenant = b->index->entries[i].tenant;
    const uint64_t quota = span_budget_quota(b, tenant, tier), budget = b->bytes[tier];
    eviction_set_kept(b->tiers[tier], i, true);
    if (quota != UINT64_MAX) span_budget_fit_kept(b, tier, span_budget_group(b, tenant), quota / KEPT_SHARE);
    span_budget_fit_kept(b, tier, EVICTION_NONE, (budget - BASE_MIN(b->pinned_bytes[tier], budget)) / KEPT_SHARE);
}

/* Of an entry whose span has no KV, in models without attention: about as much memory as its tokens, its span and the
 * entry take. Such texts are evicted, too, although this frees no block. */
#define ENTRY_BYTES 4096

eviction_item span_budget_item(const span_budget *b, span_tier tier, uint32_t i, uint64_t bytes, float idle) {
    const span_entry *e = &b->index->entries[i];
    eviction_item about = {
        .bytes = bytes > 0 ? bytes : ENTRY_BYTES,
        .cost_us = cost_in(e, tier),
        .parent = parent_in(b, tier, i),
        .group = span_budget_group(b, e->tenant),
        .idle = idle,
        .uses = e->use.uses > 0 ? (float)e->use.uses + e->arriving : 0,
    };
    memcpy(&about.name, e->key.bytes, sizeof(about.name));
    return about;
}

int span_budget_enter(span_budget *b, span_tier tier, uint32_t i, uint64_t bytes, float idle) {
    span_entry *e = &b->index->entries[i];
    BASE_ASSERT(e->used && !e->places[tier].is_there);
    const eviction_item about = span_budget_item(b, tier, i, bytes, idle);
    const int rc = eviction_add(b->tiers[tier], i, &about);
    if (rc) return rc;
    e->places[tier] = (span_place){.is_there = true, .bytes = bytes};
    adopt_children(b, tier, i);
    if (e->use.pinned && record_is_of_module(e->kind)) pin_in(b, tier, i);
    if (e->kept_until > b->now()) keep_in(b, tier, i);
    return RP_OK;
}

void span_budget_leave(span_budget *b, span_tier tier, uint32_t i, bool evicted) {
    span_entry *e = &b->index->entries[i];
    BASE_ASSERT(e->places[tier].is_there);                      /* invariant 1 */
    BASE_ASSERT(!evicted || e->places[tier].pinned_bytes == 0); /* invariant 3 */
    unpin_in(b, tier, i);
    (evicted ? eviction_drop : eviction_remove)(b->tiers[tier], i);
    e->places[tier] = (span_place){0};
}

void span_budget_settle(span_budget *b) {
    for (uint32_t i = 0; i < b->index->n_entries; i++) {
        const span_entry *e = &b->index->entries[i];
        if (!e->used || !span_entry_is_in(e, TIER_DISK)) continue;
        const uint32_t parent = parent_in(b, TIER_DISK, i);
        if (find_parent(b, i) != NONE) span_index_set_parent(b->index, i, find_parent(b, i));
        if (parent != EVICTION_NONE) eviction_set_parent(b->tiers[TIER_DISK], i, parent);
    }
}

void span_budget_update_cost(span_budget *b, uint32_t i) {
    const span_entry *e = &b->index->entries[i];
    const span_tier tier = span_entry_place(e);
    if (span_entry_is_in(e, tier)) eviction_set_cost(b->tiers[tier], i, cost_in(e, tier));
}

static bool span_may_go(void *user, uint32_t i) {
    return kv_span_is_unshared(((const span_index *)user)->entries[i].span);
}

/* Its record is written, and not being read. */
static bool disk_may_go(void *user, uint32_t i) {
    const span_entry *e = &((const span_index *)user)->entries[i];
    return e->places[TIER_DISK].is_written &&
           (!e->span || kv_span_layers_ready(e->span) == kv_span_shape(e->span)->n_layers);
}

uint32_t span_budget_victim(span_budget *b, span_tier tier, uint32_t group) {
    const uint32_t i = eviction_victim(b->tiers[tier], group, tier == TIER_DISK ? disk_may_go : span_may_go, b->index);
    const span_place *p = i == EVICTION_NONE ? NULL : &b->index->entries[i].places[tier];
    BASE_ASSERT(!p || (p->is_there && p->pinned_bytes == 0)); /* invariant 3 */
    return i;
}

bool span_budget_was_dropped(const span_budget *b, const base_key *key) {
    uint64_t name;
    memcpy(&name, key->bytes, sizeof(name));
    bool was_dropped = false;
    for (int tier = 0; tier < N_TIERS && !was_dropped; tier++) was_dropped = eviction_was_dropped(b->tiers[tier], name);
    return was_dropped;
}

/* ---- uses ---- */

void span_budget_watch(span_budget *b, uint32_t i) {
    const span_entry *e = &b->index->entries[i];
    if (e->ttl_s > 0 && span_deadlines_put(&b->expiring, b->index, i, e->use.expires))
        base_log(BASE_LOG_DEBUG, "store: out of memory: lookup alone detects the end of a time to live");
}

void span_budget_unwatch(span_budget *b, uint32_t i) {
    span_deadlines_remove(&b->expiring, i);
    span_deadlines_remove(&b->keeping, i);
}

/* Restarts the entry's idle timeout. */
static void span_budget_renew(span_budget *b, uint32_t i) {
    span_entry *e = &b->index->entries[i];
    if (e->ttl_s > 0) e->use.expires = e->use.last_use + e->ttl_s;
    span_budget_watch(b, i);
}

void span_budget_set_pinned(span_budget *b, uint32_t i, bool pinned) {
    span_entry *e = &b->index->entries[i];
    if (e->use.pinned == pinned || !record_is_of_module(e->kind)) return;
    e->use.pinned = pinned;
    for (int tier = 0; tier < N_TIERS; tier++) {
        if (pinned && span_entry_is_in(e, (span_tier)tier)) pin_in(b, (span_tier)tier, i);
        if (!pinned && e->places[tier].pinned_bytes > 0) eviction_set_pinned(b->tiers[tier], i, false);
        if (!pinned) unpin_in(b, (span_tier)tier, i);
    }
}

static void set_terms(span_budget *b, uint32_t i, const span_terms *terms) {
    span_entry *e = &b->index->entries[i];
    BASE_ASSERT(terms->ttl_s >= 0);
    if (terms->ttl_s > 0) e->ttl_s = terms->ttl_s;
    if (terms->pin) span_budget_set_pinned(b, i, true);
}

/* A use restarts the time, whoever's it is: as long as the longest one that was asked for and is not over. */
static void span_budget_keep(span_budget *b, uint32_t i) {
    span_entry *e = &b->index->entries[i];
    const int64_t now = b->now();
    if (e->kept_until <= now) e->keep_s = 0;
    e->keep_s = BASE_MAX(e->keep_s, BASE_MIN(b->reader.keep_s, MOST_KEPT_S));
    if (e->keep_s <= 0 || span_deadlines_put(&b->keeping, b->index, i, now + e->keep_s)) return;
    e->kept_until = now + e->keep_s;
    for (int tier = 0; tier < N_TIERS; tier++)
        if (span_entry_is_in(e, (span_tier)tier)) keep_in(b, (span_tier)tier, i);
}

void span_budget_set_reader(span_budget *b, span_reader reader) {
    BASE_ASSERT(reader.keep_s >= 0);
    b->reader = reader;
    for (int tier = 0; tier < N_TIERS; tier++) eviction_set_reader(b->tiers[tier], reader.who);
}

void span_budget_end_session(span_budget *b, uint64_t session) {
    for (int tier = 0; tier < N_TIERS; tier++) eviction_end_session(b->tiers[tier], session);
}

void span_budget_use(span_budget *b, uint32_t i, const span_terms *terms) {
    span_entry *e = &b->index->entries[i];
    e->use.uses++;
    e->use.last_use = b->now();
    e->is_noted = false;
    for (int tier = 0; tier < N_TIERS; tier++)
        if (span_entry_is_in(e, (span_tier)tier) && !(tier == TIER_MEMORY && e->arriving))
            eviction_use(b->tiers[tier], i);
    e->arriving = false;
    if (terms) set_terms(b, i, terms);
    span_budget_keep(b, i);
    span_budget_renew(b, i);
}

void span_budget_mark(span_budget *b, uint32_t i, const span_terms *terms) {
    for (int tier = 0; tier < N_TIERS; tier++)
        if (span_entry_is_in(&b->index->entries[i], (span_tier)tier)) eviction_mark(b->tiers[tier], i);
    if (terms) set_terms(b, i, terms);
    span_budget_keep(b, i);
}

/* ---- times to live ---- */

bool span_budget_has_expired(const span_budget *b, uint32_t i) {
    const span_entry *e = &b->index->entries[i];
    return e->use.expires > 0 && !e->use.pinned && b->now() >= e->use.expires && !span_entry_is_held(e);
}

/* Entries whose time is over are evicted like all others. */
static void span_budget_end_keeping(span_budget *b) {
    for (uint32_t i; (i = span_deadlines_first(&b->keeping)) != NONE;) {
        span_entry *e = &b->index->entries[i];
        BASE_ASSERT(e->used && e->kept_until > 0);
        if (b->now() < e->kept_until) return;
        span_deadlines_remove(&b->keeping, i);
        e->keep_s = e->kept_until = 0;
        for (int tier = 0; tier < N_TIERS; tier++)
            if (span_entry_is_in(e, (span_tier)tier)) eviction_set_kept(b->tiers[tier], i, false);
    }
}

uint32_t span_budget_next_expired(span_budget *b) {
    span_budget_end_keeping(b);
    for (uint32_t i; (i = span_deadlines_first(&b->expiring)) != NONE;) {
        span_entry *e = &b->index->entries[i];
        BASE_ASSERT(e->used && e->ttl_s > 0);
        if (b->now() < e->use.expires) return NONE;
        if (span_budget_has_expired(b, i)) return i;
        e->use.last_use = b->now(); /* referenced, which counts as a use; or pinned */
        span_budget_renew(b, i);
    }
    return NONE;
}

void span_budget_expire(span_budget *b, uint32_t i) {
    for (int tier = 0; tier < N_TIERS; tier++)
        if (span_entry_is_in(&b->index->entries[i], (span_tier)tier)) eviction_expire(b->tiers[tier], i);
}

/* ---- tenants ---- */

uint32_t span_budget_group(const span_budget *b, uint32_t tenant) {
    for (size_t k = 0; k < b->n_quotas; k++)
        if (b->quotas[k].tenant == tenant) return (uint32_t)k + 1;
    return 0;
}

uint64_t span_budget_quota(const span_budget *b, uint32_t tenant, span_tier tier) {
    const uint32_t g = span_budget_group(b, tenant);
    return g == 0 || b->quotas[g - 1].bytes[tier] == 0 ? UINT64_MAX : b->quotas[g - 1].bytes[tier];
}

bool span_budget_fits_quota(const span_budget *b, uint32_t tenant, span_tier tier, uint64_t bytes) {
    return eviction_group_bytes(b->tiers[tier], span_budget_group(b, tenant)) + bytes <=
           span_budget_quota(b, tenant, tier);
}

/* Moves the tenant's present entries to its group. */
static int span_budget_regroup(span_budget *b, uint32_t tenant) {
    const uint32_t g = span_budget_group(b, tenant);
    int rc = RP_OK;
    for (uint32_t i = 0; i < b->index->n_entries && !rc; i++) {
        const span_entry *e = &b->index->entries[i];
        if (!e->used || e->tenant != tenant) continue;
        for (int tier = 0; tier < N_TIERS && !rc; tier++)
            if (span_entry_is_in(e, (span_tier)tier)) rc = eviction_set_group(b->tiers[tier], i, g);
    }
    return rc;
}

int span_budget_set_quota(span_budget *b, const span_quota *q) {
    uint32_t g = span_budget_group(b, q->tenant);
    int rc = RP_OK;
    if (g == 0) {
        rc = base_grow((void **)&b->quotas, &b->cap_quotas, b->n_quotas + 1, MAX_QUOTAS, sizeof(*b->quotas));
        if (rc) return rc;
        b->quotas[b->n_quotas++] = (span_quota){.tenant = q->tenant};
        g = (uint32_t)b->n_quotas;
        rc = span_budget_regroup(b, q->tenant);
    }
    BASE_ASSERT(g <= MAX_QUOTAS && b->quotas[g - 1].tenant == q->tenant);
    b->quotas[g - 1] = *q;
    return rc;
}
