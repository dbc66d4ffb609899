/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_budget.c: see span_store.h: eviction, and its limits: pins, TTLs, quotas. */
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/memory.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE
/* The largest part of a tier's budget that pins may take: 1/PIN_SHARE. */
#define PIN_SHARE 2
/* The largest part of what pins leave of a tier's budget, and of a tenant's quota, that kept entries may take: 1/KEPT_SHARE.
 * The other half serves requests that ask for nothing. */
#define KEPT_SHARE 2
#define MOST_KEPT_S ((int64_t)7 * 86400)
/* Approximate throughput of a disk. An error matters little: a factor of four doubles the value of entries in RAM
 * alone against entries on disk, too. */
#define DISK_BYTES_PER_US 1000
#define MAX_QUOTAS (EVICTION_MAX_GROUPS - 1)

static int64_t now_s(void) { return (int64_t)time(NULL); }

/* ---- times ---- */

/* Adds an entry, or moves it. RP_ERR_MEMORY: it is not there. */
static int span_deadlines_put(span_store *s, span_deadlines *d, uint32_t i, int64_t at) {
    int rc = item_heap_reserve(&d->heap, s->n_used + 1);
    if (!rc) rc = base_grow((void **)&d->places, &d->cap_places, s->n_entries, SPAN_STORE_MAX, sizeof(*d->places));
    if (rc) return rc;
    while (d->n_places < s->n_entries) d->places[d->n_places++] = ITEM_HEAP_NOWHERE;
    item_heap_put(&d->heap, d->places, (item_heap_entry){(double)at, 0, i});
    return RP_OK;
}

static void span_deadlines_remove(span_deadlines *d, uint32_t i) {
    if (i < d->n_places) item_heap_remove(&d->heap, d->places, i);
}

static void span_deadlines_free(span_deadlines *d) {
    base_free(d->heap.entries);
    base_free(d->places);
}

int span_store_open_budget(span_store *s) {
    s->now = now_s;
    for (int i = 0; i < N_TIERS; i++)
        if (eviction_new(&s->tiers[i])) return RP_ERR_MEMORY;
    return RP_OK;
}

void span_store_close_budget(span_store *s) {
    for (int i = 0; i < N_TIERS; i++) eviction_free(s->tiers[i]);
    span_deadlines_free(&s->expiring);
    span_deadlines_free(&s->keeping);
    base_free(s->quotas);
}

void span_store_set_clock(span_store *s, int64_t (*now)(void)) { s->now = now; }

/* ---- tiers ---- */

static bool span_store_budget_is_in(const span_store *s, span_tier tier, uint32_t i) {
    return tier == TIER_RAM ? s->entries[i].span != NULL : s->entries[i].file != NULL;
}

/* A read is cheaper than a prefill. */
static uint64_t cost_in(const span_entry *e, span_tier tier) {
    uint64_t cost = BASE_MAX(e->cost_us, 1);
    if (tier == TIER_DISK || !e->file || !e->file->written || e->file->unreadable) return cost;
    return BASE_MIN(cost, BASE_MAX(e->file->bytes / DISK_BYTES_PER_US, 1));
}

static uint32_t parent_in(const span_store *s, span_tier tier, uint32_t i) {
    uint32_t parent = s->entries[i].kind == RECORD_TEXT ? span_store_find(s, &s->entries[i].parent) : NONE;
    return parent != NONE && parent != i && span_store_budget_is_in(s, tier, parent) ? parent : EVICTION_NONE;
}

static uint64_t budget_of(const span_store *s, span_tier tier) {
    return tier == TIER_RAM ? kv_pool_get_stats(s->pool).budget_bytes : s->disk_budget;
}

/* Pins it as far as the budget of pins permits. */
static void pin_in(span_store *s, span_tier tier, uint32_t i, uint64_t bytes) {
    if (s->pinned_bytes[tier] + bytes > budget_of(s, tier) / PIN_SHARE) {
        base_log(s->reported_pins ? BASE_LOG_DEBUG : BASE_LOG_WARN, "store: pins take half of the budget %s: further pinned spans can be evicted",
                 tier == TIER_RAM ? "in RAM" : "on disk");
        s->reported_pins = true;
        return;
    }
    s->entries[i].pinned_bytes[tier] = bytes;
    s->pinned_bytes[tier] += bytes;
    eviction_set_pinned(s->tiers[tier], i, true);
}

static void unpin_in(span_store *s, span_tier tier, uint32_t i) {
    s->pinned_bytes[tier] -= s->entries[i].pinned_bytes[tier];
    s->entries[i].pinned_bytes[tier] = 0;
}

/* Kept entries of a group, or of all, lose that while they take too much, the least valuable ones first. */
static void span_store_fit_kept(span_store *s, span_tier tier, uint32_t group, uint64_t most) {
    for (uint32_t i; eviction_kept_bytes(s->tiers[tier], group) > most && (i = eviction_least_kept(s->tiers[tier], group)) != EVICTION_NONE;)
        eviction_set_kept(s->tiers[tier], i, false);
}

static void keep_in(span_store *s, span_tier tier, uint32_t i) {
    const uint64_t quota = span_store_quota(s, s->entries[i].tenant, tier), budget = budget_of(s, tier);
    eviction_set_kept(s->tiers[tier], i, true);
    if (quota != UINT64_MAX) span_store_fit_kept(s, tier, span_store_group(s, s->entries[i].tenant), quota / KEPT_SHARE);
    span_store_fit_kept(s, tier, EVICTION_NONE, (budget - BASE_MIN(s->pinned_bytes[tier], budget)) / KEPT_SHARE);
}

eviction_item span_store_item(const span_store *s, span_tier tier, uint32_t i, uint64_t bytes, float idle) {
    const span_entry *e = &s->entries[i];
    eviction_item about = {
        .bytes = BASE_MAX(bytes, 1),
        .cost_us = cost_in(e, tier),
        .parent = parent_in(s, tier, i),
        .group = span_store_group(s, e->tenant),
        .idle = idle,
        .uses = e->uses > 0 ? (float)e->uses + e->arriving : 0,
    };
    memcpy(&about.name, e->key.bytes, sizeof(about.name));
    return about;
}

int span_store_enter_tier(span_store *s, span_tier tier, uint32_t i, uint64_t bytes, float idle) {
    const span_entry *e = &s->entries[i];
    eviction_item about = span_store_item(s, tier, i, bytes, idle);
    int rc = eviction_add(s->tiers[tier], i, &about);
    if (!rc && e->pinned && record_is_of_module(e->kind)) pin_in(s, tier, i, bytes);
    if (!rc && e->kept_until > s->now()) keep_in(s, tier, i);
    return rc;
}

void span_store_leave_tier(span_store *s, span_tier tier, uint32_t i, bool for_room) {
    unpin_in(s, tier, i);
    (for_room ? eviction_drop : eviction_remove)(s->tiers[tier], i);
}

/* They were added in any order. */
void span_store_settle_disk(span_store *s) {
    for (uint32_t i = 0; i < s->n_entries; i++) {
        uint32_t parent = s->entries[i].used && s->entries[i].file ? parent_in(s, TIER_DISK, i) : EVICTION_NONE;
        if (parent != EVICTION_NONE) eviction_set_parent(s->tiers[TIER_DISK], i, parent);
    }
}

void span_store_set_cost(span_store *s, uint32_t i) {
    if (s->entries[i].span) eviction_set_cost(s->tiers[TIER_RAM], i, cost_in(&s->entries[i], TIER_RAM));
}

bool span_store_was_dropped(const span_store *s, const base_key *key) {
    uint64_t name;
    memcpy(&name, key->bytes, sizeof(name));
    return eviction_was_dropped(s->tiers[TIER_RAM], name) || eviction_was_dropped(s->tiers[TIER_DISK], name);
}

/* ---- uses ---- */

void span_store_watch(span_store *s, uint32_t i) {
    if (s->entries[i].ttl_s > 0 && span_deadlines_put(s, &s->expiring, i, s->entries[i].expires))
        base_log(BASE_LOG_DEBUG, "store: out of memory: lookup alone detects the end of a time to live");
}

void span_store_unwatch(span_store *s, uint32_t i) {
    span_deadlines_remove(&s->expiring, i);
    span_deadlines_remove(&s->keeping, i);
}

/* Restarts the entry's idle timeout. */
static void span_store_budget_renew(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    if (e->ttl_s > 0) e->expires = e->last_use + e->ttl_s;
    span_store_watch(s, i);
}

void span_store_set_pinned(span_store *s, uint32_t i, bool pinned) {
    span_entry *e = &s->entries[i];
    if (e->pinned == pinned || !record_is_of_module(e->kind)) return;
    e->pinned = pinned;
    if (pinned && e->span) pin_in(s, TIER_RAM, i, kv_span_bytes(e->span));
    if (pinned && e->file) pin_in(s, TIER_DISK, i, e->file->bytes);
    for (int tier = 0; tier < N_TIERS && !pinned; tier++) {
        if (e->pinned_bytes[tier] > 0) eviction_set_pinned(s->tiers[tier], i, false);
        unpin_in(s, (span_tier)tier, i);
    }
}

static void set_terms(span_store *s, uint32_t i, const span_terms *terms) {
    span_entry *e = &s->entries[i];
    if (terms->ttl_s > 0) e->ttl_s = terms->ttl_s;
    if (terms->pin) span_store_set_pinned(s, i, true);
}

/* ---- kept entries ---- */

/* A use restarts the time, whoever's it is: as long as the longest one that was asked for and is not over. */
static void span_store_keep(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    const int64_t now = s->now();
    if (e->kept_until <= now) e->keep_s = 0;
    e->keep_s = BASE_MAX(e->keep_s, BASE_MIN(s->reader.keep_s, MOST_KEPT_S));
    if (e->keep_s <= 0 || span_deadlines_put(s, &s->keeping, i, now + e->keep_s)) return;
    e->kept_until = now + e->keep_s;
    for (int tier = 0; tier < N_TIERS; tier++)
        if (span_store_budget_is_in(s, (span_tier)tier, i)) keep_in(s, (span_tier)tier, i);
}

/* Entries whose time is over are evicted like all others. */
static void span_store_end_keeping(span_store *s) {
    while (s->keeping.heap.n > 0) {
        const uint32_t i = s->keeping.heap.entries[0].item;
        span_entry *e = &s->entries[i];
        if (s->now() < e->kept_until) return;
        span_deadlines_remove(&s->keeping, i);
        e->keep_s = e->kept_until = 0;
        for (int tier = 0; tier < N_TIERS; tier++)
            if (span_store_budget_is_in(s, (span_tier)tier, i)) eviction_set_kept(s->tiers[tier], i, false);
    }
}

void span_store_set_reader(span_store *s, span_reader reader) {
    s->reader = reader;
    for (int tier = 0; tier < N_TIERS; tier++) eviction_set_reader(s->tiers[tier], reader.who);
}

void span_store_end_session(span_store *s, uint64_t session) {
    for (int tier = 0; tier < N_TIERS; tier++) eviction_end_session(s->tiers[tier], session);
}

void span_store_use_entry(span_store *s, uint32_t i, const span_terms *terms) {
    span_entry *e = &s->entries[i];
    e->uses++;
    e->last_use = s->now();
    e->noted = false;
    if (e->span && !e->arriving) eviction_use(s->tiers[TIER_RAM], i);
    if (e->file) eviction_use(s->tiers[TIER_DISK], i);
    e->arriving = false;
    if (e->uses > 1) span_store_write_sooner(s, i);
    if (terms) set_terms(s, i, terms);
    span_store_keep(s, i);
    span_store_budget_renew(s, i);
}

void span_store_use(span_store *s, const base_key *key, const span_terms *terms) {
    uint32_t i = span_store_find(s, key);
    if (i != NONE) span_store_use_entry(s, i, terms);
}

void span_store_mark(span_store *s, const base_key *key, const span_terms *terms) {
    const uint32_t i = span_store_find(s, key);
    if (i == NONE) return;
    if (s->entries[i].span) eviction_mark(s->tiers[TIER_RAM], i);
    if (s->entries[i].file) eviction_mark(s->tiers[TIER_DISK], i);
    if (terms) set_terms(s, i, terms);
    span_store_keep(s, i);
}

/* ---- TTLs ---- */

bool span_store_has_expired(const span_store *s, uint32_t i) {
    const span_entry *e = &s->entries[i];
    return e->expires > 0 && !e->pinned && s->now() >= e->expires && (!e->span || kv_span_is_unshared(e->span));
}

/* Entries without children are remembered (ghost list). */
void span_store_expire(span_store *s, uint32_t i) {
    const span_entry *e = &s->entries[i];
    bool alone = record_is_of_module(e->kind);
    BASE_TRACE(STORE, "a span has expired");
    s->stats.expired++;
    if (e->span) eviction_expire(s->tiers[TIER_RAM], i), span_store_leave_ram(s, i, alone);
    if (e->file) eviction_expire(s->tiers[TIER_DISK], i), span_store_leave_disk(s, i, TIER_EVICT, alone);
    span_store_forget(s, i);
}

void span_store_sweep(span_store *s) {
    span_store_end_keeping(s);
    while (s->expiring.heap.n > 0) {
        uint32_t i = s->expiring.heap.entries[0].item;
        if (s->now() < s->entries[i].expires) return;
        if (!span_store_has_expired(s, i)) { /* referenced, which counts as a use; or pinned */
            s->entries[i].last_use = s->now();
            span_store_budget_renew(s, i);
            continue;
        }
        span_store_expire(s, i);
    }
}

/* ---- tenants ---- */

uint32_t span_tenant(const base_key *salt) {
    base_key key;
    base_hash h;
    uint32_t tenant;
    base_hash_init(&h, "reprise tenant 1");
    base_hash_key(&h, salt);
    base_hash_final(&h, &key);
    memcpy(&tenant, key.bytes, sizeof(tenant));
    return BASE_MAX(tenant, 1);
}

uint32_t span_store_group(const span_store *s, uint32_t tenant) {
    for (size_t k = 0; k < s->n_quotas; k++)
        if (s->quotas[k].tenant == tenant) return (uint32_t)k + 1;
    return 0;
}

uint64_t span_store_quota(const span_store *s, uint32_t tenant, span_tier tier) {
    uint32_t g = span_store_group(s, tenant);
    return g == 0 || s->quotas[g - 1].bytes[tier] == 0 ? UINT64_MAX : s->quotas[g - 1].bytes[tier];
}

/* Moves the tenant's present entries to its group. */
static int span_store_budget_regroup(span_store *s, uint32_t tenant) {
    uint32_t g = span_store_group(s, tenant);
    int rc = RP_OK;
    for (uint32_t i = 0; i < s->n_entries && !rc; i++) {
        const span_entry *e = &s->entries[i];
        if (!e->used || e->tenant != tenant) continue;
        if (e->span) rc = eviction_set_group(s->tiers[TIER_RAM], i, g);
        if (e->file && !rc) rc = eviction_set_group(s->tiers[TIER_DISK], i, g);
    }
    return rc;
}

int span_store_set_quota(span_store *s, uint32_t tenant, uint64_t ram_bytes, uint64_t disk_bytes) {
    uint32_t g = span_store_group(s, tenant);
    int rc = RP_OK;
    if (g == 0) {
        rc = base_grow((void **)&s->quotas, &s->cap_quotas, s->n_quotas + 1, MAX_QUOTAS, sizeof(*s->quotas));
        if (rc) return rc;
        s->quotas[s->n_quotas++] = (span_quota){.tenant = tenant};
        g = (uint32_t)s->n_quotas;
        rc = span_store_budget_regroup(s, tenant);
    }
    s->quotas[g - 1] = (span_quota){tenant, {ram_bytes, disk_bytes}};
    span_store_fit_quota(s, tenant);
    span_store_fit_disk(s);
    return rc;
}

/* ---- RAM budget ---- */

static bool may_be_taken(const span_entry *e) { return kv_span_is_unshared(e->span) && e->pinned_bytes[TIER_RAM] == 0; }

static bool span_store_budget_may_go(void *user, uint32_t i) {
    const span_store *s = user;
    return kv_span_is_unshared(s->entries[i].span);
}

static void take_one(span_store *s, uint32_t i, bool for_room) {
    span_store_leave_ram(s, i, for_room);
    if (!s->entries[i].file) span_store_forget(s, i);
}

/* Evicts one span from RAM: of a group, or of all. */
static bool span_store_budget_give_one(span_store *s, uint32_t group) {
    uint32_t i = eviction_victim(s->tiers[TIER_RAM], group, span_store_budget_may_go, s);
    if (i != EVICTION_NONE) take_one(s, i, true);
    return i != EVICTION_NONE;
}

/* An entry that nobody references below one that is referenced, by the disk's writer for instance: preferably one
 * that is on disk. */
static uint32_t find_below(const span_store *s) {
    uint32_t lost = NONE;
    for (uint32_t i = s->lists[LIST_RAM].oldest; i != NONE; i = s->entries[i].links[LIST_RAM].newer) {
        if (!may_be_taken(&s->entries[i])) continue;
        if (s->entries[i].file) return i;
        if (lost == NONE) lost = i;
    }
    return lost;
}

bool span_store_reclaim(void *store) {
    span_store *s = store;
    if (span_store_budget_give_one(s, EVICTION_NONE)) return true;
    uint32_t i = find_below(s); /* all idle bytes are reclaimable */
    if (i == NONE) return false;
    take_one(s, i, false);
    return true;
}

void span_store_fit_quota(span_store *s, uint32_t tenant) {
    uint32_t g = span_store_group(s, tenant);
    uint64_t quota = span_store_quota(s, tenant, TIER_RAM);
    while (eviction_group_bytes(s->tiers[TIER_RAM], g) > quota && span_store_budget_give_one(s, g)) continue;
}

uint64_t span_store_idle_bytes(const span_store *s) {
    uint64_t bytes = 0;
    for (uint32_t i = s->lists[LIST_RAM].oldest; i != NONE; i = s->entries[i].links[LIST_RAM].newer)
        if (may_be_taken(&s->entries[i])) bytes += kv_span_bytes(s->entries[i].span);
    return bytes;
}
