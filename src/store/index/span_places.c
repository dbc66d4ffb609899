/* SPDX-License-Identifier: Apache-2.0 */
/* span_places.c: see span_places.h. */
#include "store/index/span_places.h"

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "reprise_cluster.h"

#define NONE SPAN_INDEX_NONE

static inline span_entry *entry_at(span_places *p, uint32_t i) {
    BASE_DCHECK(i < p->index.n_entries && p->index.entries[i].used);
    return &p->index.entries[i];
}

int span_places_open(span_places *p, kv_pool *pool) {
    *p = (span_places){.pool = pool};
    span_index_init(&p->index);
    return span_budget_open(&p->budget, &p->index, kv_pool_get_stats(pool).budget_bytes);
}

void span_places_set_ram(span_places *p, const span_ram *ram) {
    BASE_ASSERT(p->index.n_used == 0 && kv_pool_block_bytes(ram->pool) == kv_pool_block_bytes(p->pool));
    p->ram = *ram;
    p->budget.bytes[TIER_RAM] = p->stats.host_budget_bytes = kv_pool_get_stats(ram->pool).budget_bytes;
}

void span_places_close(span_places *p) {
    tier_close(p->tier);
    span_budget_close(&p->budget);
    span_index_free(&p->index);
}

/* ---- reports ---- */

void span_places_report(span_places *p, uint32_t i) {
    span_entry *e = entry_at(p, i);
    const uint32_t in_memory = e->span ? RP_TIER_RAM : 0,
                   on_disk = span_entry_has_record(e) ? RP_TIER_DISK : 0;
    const uint32_t tiers = in_memory | on_disk;
    if (!p->on_change || tiers == e->tiers) return;
    e->tiers = (uint8_t)tiers;
    p->on_change(p->change_user, &(span_change){&e->key, e->kind, e->owner, tiers});
}

/* ---- memory that is computed with ---- */

/* Adds an entry to the list, and to the counts, of its span's tier; removes it from them. */
static void span_places_link(span_places *p, uint32_t i) {
    const span_entry *e = entry_at(p, i);
    const bool in_ram_tier = span_entry_place(e) == TIER_RAM;
    span_index_link(&p->index, in_ram_tier ? LIST_RAM : LIST_MEMORY, i);
    *(in_ram_tier ? &p->stats.host_spans : &p->stats.spans) += 1;
    *(in_ram_tier ? &p->stats.host_bytes : &p->stats.bytes) += kv_span_bytes(e->span);
}

static void span_places_unlink(span_places *p, uint32_t i) {
    const span_entry *e = entry_at(p, i);
    const bool in_ram_tier = span_entry_place(e) == TIER_RAM;
    uint64_t *spans = in_ram_tier ? &p->stats.host_spans : &p->stats.spans,
             *bytes = in_ram_tier ? &p->stats.host_bytes : &p->stats.bytes;
    BASE_ASSERT(e->span && *spans > 0 && *bytes >= kv_span_bytes(e->span));
    span_index_unlink(&p->index, in_ram_tier ? LIST_RAM : LIST_MEMORY, i);
    *spans -= 1;
    *bytes -= kv_span_bytes(e->span);
}

int span_places_enter_memory(span_places *p, uint32_t i, kv_span *span) {
    span_entry *e = entry_at(p, i);
    BASE_ASSERT(!e->span && kv_span_is_sealed(span) && kv_span_memory(span) == kv_pool_memory(p->pool) &&
                base_key_equal(kv_span_key(span), &e->key)); /* invariant 1 of the index */
    const int rc = span_budget_enter(&p->budget, TIER_MEMORY, i, kv_span_bytes(span), 0);
    if (rc) return rc;
    e->places[TIER_MEMORY].is_written = true;
    e->span = kv_span_ref(span);
    span_places_link(p, i);
    span_places_report(p, i);
    return RP_OK;
}

void span_places_leave_memory(span_places *p, uint32_t i, bool evicted) {
    span_entry *e = entry_at(p, i);
    span_places_cancel(p, i, evicted);
    span_places_unlink(p, i);
    span_budget_leave(&p->budget, span_entry_place(e), i, evicted);
    BASE_TRACE(STORE, "%s a span of %d tokens", span_entry_is_in(e, TIER_DISK) ? "demote" : "evict",
               kv_span_tokens(e->span));
    kv_span_unref(e->span);
    base_free(e->push_row);
    e->span = NULL;
    e->push_row = NULL;
    e->push_is_due = false;
    e->fetched = SPAN_FOUND_MEMORY;
    span_places_report(p, i);
}

static bool may_be_taken(const span_entry *e) {
    return !span_entry_is_held(e) && e->places[span_entry_place(e)].pinned_bytes == 0;
}

/* ---- RAM below a device ---- */

/* Moves an entry's span to the other memory. evicted: its key enters the ghost list of the tier that it leaves. */
static int span_places_move(span_places *p, uint32_t i, span_tier to, bool evicted) {
    span_entry *e = entry_at(p, i);
    const span_tier from = span_entry_place(e);
    BASE_ASSERT(from != to && from != TIER_DISK && to != TIER_DISK);
    span_places_unlink(p, i);
    int rc = span_budget_enter(&p->budget, to, i, kv_span_bytes(e->span), 0);
    if (!rc && (rc = kv_span_move(e->span, to == TIER_RAM ? p->ram.pool : p->pool, NULL)))
        span_budget_leave(&p->budget, to, i, false);
    if (!rc) {
        span_budget_leave(&p->budget, from, i, evicted);
        e->places[to].is_written = true;
        BASE_TRACE(STORE, "%s a span of %d tokens", to == TIER_RAM ? "demote to RAM" : "promote",
                   kv_span_tokens(e->span));
    }
    span_places_link(p, i);
    return rc;
}

int span_places_promote(span_places *p, uint32_t i) {
    const uint64_t bytes = kv_span_bytes(entry_at(p, i)->span);
    entry_at(p, i)->arriving = true;
    const int rc = span_places_move(p, i, TIER_MEMORY, false);
    entry_at(p, i)->arriving = !rc;
    if (rc) return rc;
    p->stats.host_reads++;
    p->stats.host_read_bytes += bytes;
    span_places_fit_quota(p, entry_at(p, i)->tenant);
    return RP_OK;
}

/* Evicts one span from RAM: of a group, or of all. */
static bool evict_from_ram(span_places *p, uint32_t group) {
    const uint32_t i = span_budget_victim(&p->budget, TIER_RAM, group);
    if (i == EVICTION_NONE) return false;
    BASE_ASSERT(may_be_taken(entry_at(p, i))); /* invariant 3 of the budget */
    span_places_leave_memory(p, i, true);
    p->stats.host_evictions++;
    span_places_settle(p, i);
    return true;
}

static bool fits_ram(const span_places *p, uint64_t bytes) {
    const kv_pool_stats ram = kv_pool_get_stats(p->ram.pool);
    return ram.used_bytes + bytes <= ram.budget_bytes;
}

/* Moves a span from memory of a device to RAM, in place of the spans of lowest priority there. false: it does not. */
static bool demote(span_places *p, uint32_t i, bool evicted) {
    const span_entry *e = entry_at(p, i);
    const uint64_t bytes = kv_span_bytes(e->span);
    if (!p->ram.pool || bytes == 0 || bytes > p->budget.bytes[TIER_RAM]) return false;
    if (p->ram.recomputes && p->ram.recomputes(p->ram.user, bytes, e->cost_us)) return false;
    while (!span_budget_fits_quota(&p->budget, e->tenant, TIER_RAM, bytes))
        if (!evict_from_ram(p, span_budget_group(&p->budget, e->tenant))) return false;
    while (!fits_ram(p, bytes))
        if (!evict_from_ram(p, EVICTION_NONE)) return false;
    if (span_places_move(p, i, TIER_RAM, evicted)) return false;
    p->stats.host_writes++;
    p->stats.host_write_bytes += bytes;
    return true;
}

/* ---- eviction from memory ---- */

static void take_from_memory(span_places *p, uint32_t i, bool evicted) {
    BASE_ASSERT(may_be_taken(entry_at(p, i))); /* invariant 3 of the budget */
    if (demote(p, i, evicted)) return;
    span_places_leave_memory(p, i, evicted);
    span_places_settle(p, i);
}

/* Evicts one span: of a group, or of all. */
static bool evict_from_memory(span_places *p, uint32_t group) {
    const uint32_t i = span_budget_victim(&p->budget, TIER_MEMORY, group);
    if (i != EVICTION_NONE) take_from_memory(p, i, true);
    return i != EVICTION_NONE;
}

/* An entry that nobody references below one that is referenced, by the tier's writer for instance: preferably one that
 * is on disk. */
static uint32_t find_below(span_places *p) {
    uint32_t lost = NONE;
    for (uint32_t i = p->index.lists[LIST_MEMORY].oldest; i != NONE; i = p->index.entries[i].links[LIST_MEMORY].newer) {
        if (!may_be_taken(entry_at(p, i))) continue;
        if (span_entry_is_in(entry_at(p, i), TIER_DISK)) return i;
        if (lost == NONE) lost = i;
    }
    return lost;
}

bool span_places_reclaim(span_places *p) {
    if (evict_from_memory(p, EVICTION_NONE)) return true;
    const uint32_t i = find_below(p); /* all idle bytes are reclaimable */
    if (i != NONE) take_from_memory(p, i, false);
    return i != NONE;
}

void span_places_fit_quota(span_places *p, uint32_t tenant) {
    const uint32_t g = span_budget_group(&p->budget, tenant);
    while (!span_budget_fits_quota(&p->budget, tenant, TIER_MEMORY, 0) && evict_from_memory(p, g)) continue;
    while (!span_budget_fits_quota(&p->budget, tenant, TIER_RAM, 0) && evict_from_ram(p, g)) continue;
}

/* ---- disk ---- */

kv_span_form *span_places_copy_form(const span_places *p, const kv_span_form *form, int32_t n_layers, bool *is_own) {
    const kv_shape *own = kv_pool_shape(p->pool);
    *is_own = n_layers == own->n_layers &&
              (!form->slots || (kv_shape_capabilities(own).reduces && form->n_kv_heads == kv_shape_heads(own)));
    kv_span_form *f = base_calloc(1, sizeof(*f) + (*is_own ? kv_form_bytes(form, n_layers) : (size_t)own->n_layers));
    if (!f) return NULL;
    *f = *form;
    f->slots = NULL;
    f->kept = (uint8_t *)(f + 1);
    if (*is_own) *f = kv_form_copy(form, n_layers, f + 1);
    return f;
}

int span_places_enter_disk(span_places *p, uint32_t i, kv_span_form *form, bool is_own, uint64_t bytes, float idle) {
    span_entry *e = entry_at(p, i);
    BASE_ASSERT(!e->form && form); /* invariant 2 of the index */
    const int rc = span_budget_enter(&p->budget, TIER_DISK, i, bytes, idle);
    if (rc) return rc;
    e->form = form;
    e->places[TIER_DISK].is_unreadable = !is_own;
    p->stats.disk_spans++;
    p->stats.disk_bytes += bytes;
    return RP_OK;
}

void span_places_set_written(span_places *p, uint32_t i, uint64_t bytes) {
    span_place *disk = &entry_at(p, i)->places[TIER_DISK];
    BASE_ASSERT(disk->is_there && p->stats.disk_bytes >= disk->bytes);
    if (entry_at(p, i)->waits == LIST_WRITING) span_places_unqueue(p, i);
    disk->is_written = true;
    span_budget_update_cost(&p->budget, i);
    span_places_report(p, i);
    p->stats.disk_bytes = p->stats.disk_bytes - disk->bytes + bytes;
    disk->bytes = bytes;
}

void span_places_lose_disk(span_places *p, uint32_t i, bool evicted) {
    span_entry *e = entry_at(p, i);
    BASE_ASSERT(e->form && p->stats.disk_spans > 0 && p->stats.disk_bytes >= e->places[TIER_DISK].bytes);
    if (e->waits == LIST_WRITING) span_places_unqueue(p, i);
    p->stats.disk_spans--;
    p->stats.disk_bytes -= e->places[TIER_DISK].bytes;
    span_budget_leave(&p->budget, TIER_DISK, i, evicted);
    base_free(e->form);
    e->form = NULL;
    span_budget_update_cost(&p->budget, i);
    span_places_report(p, i);
}

void span_places_leave_disk(span_places *p, uint32_t i, tier_removal how, bool evicted) {
    tier_remove(p->tier, &entry_at(p, i)->key, how);
    span_places_lose_disk(p, i, evicted);
}

void span_places_note(span_places *p, uint32_t i) {
    span_entry *e = &p->index.entries[i];
    if (!span_entry_is_in(e, TIER_DISK) || e->is_noted) return;
    tier_note(p->tier, &e->key, &e->use);
}

/* ---- entries ---- */

void span_places_settle(span_places *p, uint32_t i) {
    span_entry *e = entry_at(p, i);
    if (span_entry_can_use(e)) return;
    void *owner = e->owner;
    e->owner = NULL; /* invariant 5 of the index */
    if (!span_entry_is_in(e, TIER_DISK)) {
        span_budget_unwatch(&p->budget, i);
        p->stats.evictions++;
        span_index_remove(&p->index, i);
    }
    if (owner && p->on_drop) p->on_drop(p->drop_user, owner);
}

void span_places_lose(span_places *p, uint32_t i) {
    span_entry *e = entry_at(p, i);
    if (span_entry_is_in(e, TIER_DISK)) e->places[TIER_DISK].is_unreadable = true;
    if (e->span) span_places_leave_memory(p, i, false);
    span_budget_update_cost(&p->budget, i);
    span_places_report(p, i);
    span_places_settle(p, i);
}

void span_places_drop(span_places *p, uint32_t i) {
    const span_entry *e = entry_at(p, i);
    if (e->span) span_places_leave_memory(p, i, false);
    if (span_entry_is_in(e, TIER_DISK)) span_places_leave_disk(p, i, TIER_EVICT, false);
    span_places_settle(p, i);
}

void span_places_expire(span_places *p, uint32_t i) {
    const span_entry *e = entry_at(p, i);
    const bool alone = record_is_of_module(e->kind);
    BASE_TRACE(STORE, "a span has expired");
    p->stats.expired++;
    span_budget_expire(&p->budget, i);
    if (e->span) span_places_leave_memory(p, i, alone);
    if (span_entry_is_in(e, TIER_DISK)) span_places_leave_disk(p, i, TIER_EVICT, alone);
    span_places_settle(p, i);
}

/* ---- the queue of writes ---- */

void span_places_queue(span_places *p, span_list_kind list, uint32_t i) {
    span_entry *e = entry_at(p, i);
    BASE_ASSERT(list != LIST_MEMORY && e->waits == LIST_MEMORY && e->span &&
                (e->row || list == LIST_WRITING)); /* invariant 3 of the index */
    e->waits = list;
    e->wait_bytes = kv_span_bytes(e->span);
    p->waiting_bytes[list] += e->wait_bytes;
    p->stats.disk_waiting++;
    span_index_link(&p->index, list, i);
}

void span_places_unqueue(span_places *p, uint32_t i) {
    span_entry *e = entry_at(p, i);
    if (e->waits == LIST_MEMORY) return;
    span_index_unlink(&p->index, e->waits, i);
    BASE_ASSERT(p->waiting_bytes[e->waits] >= e->wait_bytes && p->stats.disk_waiting > 0);
    p->waiting_bytes[e->waits] -= e->wait_bytes;
    p->stats.disk_waiting--;
    e->waits = LIST_MEMORY;
}

void span_places_cancel(span_places *p, uint32_t i, bool is_lost) {
    span_entry *e = entry_at(p, i);
    if (!e->row) return;
    BASE_ASSERT(e->waits != LIST_WRITING);
    if (is_lost && e->waits == LIST_DUE) p->stats.disk_unwritten++;
    if (is_lost && e->waits == LIST_ONCE) p->stats.disk_skipped++;
    span_places_unqueue(p, i);
    base_free(e->row);
    e->row = NULL;
}

/* ---- memory ---- */

uint64_t span_places_idle_bytes(const span_places *p) {
    uint64_t bytes = 0;
    for (uint32_t i = p->index.lists[LIST_MEMORY].oldest; i != NONE; i = p->index.entries[i].links[LIST_MEMORY].newer) {
        const span_entry *e = &p->index.entries[i];
        if (may_be_taken(e)) bytes += kv_span_bytes(e->span);
    }
    return bytes;
}

uint64_t span_places_idle_bytes_of(const span_places *p, uint32_t i) {
    const span_entry *e = &p->index.entries[i];
    BASE_ASSERT(e->span || e->form); /* invariant 4 of the index */
    if (!e->span) return (uint64_t)kv_form_blocks(p->pool, e->form) * kv_pool_block_bytes(p->pool);
    return span_entry_is_held(e) ? 0 : kv_span_bytes(e->span); /* in RAM below a device: it is promoted */
}

int64_t span_places_free_blocks(const span_places *p) {
    const kv_pool_stats pool = kv_pool_get_stats(p->pool);
    const int64_t block = (int64_t)kv_pool_block_bytes(p->pool);
    return ((int64_t)pool.budget_bytes - (int64_t)pool.used_bytes + (int64_t)span_places_idle_bytes(p)) / block -
           pool.reserved_blocks;
}
