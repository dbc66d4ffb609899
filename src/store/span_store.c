/* SPDX-License-Identifier: Apache-2.0 */
/* span_store.c: see span_store.h: lookup, insertion, uses, and the events of the tier. */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "store/remote/pool_driver.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE

bool span_store_is_busy(const span_store *s) { return s->places.tier && tier_measure(s->places.tier).is_busy; }
bool span_store_writes_through(const span_store *s) {
    return s->places.tier && s->writes.mode == SPAN_STORE_WRITE_THROUGH;
}
void span_store_next_request(span_store *s) { s->request++; }
uint64_t span_store_put_serial(const span_store *s) { return s->places.tier ? s->places.tier->serial : 0; }
uint64_t span_store_flushed(const span_store *s) { return s->writes.flushed; }
double span_store_read_byte_us(const span_store *s) {
    return s->places.tier ? tier_measure(s->places.tier).read_byte_us : 0;
}
int span_store_keep_audit(span_store *s, char *bytes, size_t n) {
    return span_write_back_is_on(&s->writes) ? tier_keep_audit(s->places.tier, bytes, n) : RP_ERR_CONFLICT;
}
void span_store_set_clock(span_store *s, int64_t (*now)(void)) { s->places.budget.now = now; }
void span_store_set_computing(span_store *s, bool computing) { span_write_back_set_computing(&s->writes, computing); }
int64_t span_store_wait_ms(const span_store *s) { return span_write_back_wait_ms(&s->writes); }
void span_store_fit_disk(span_store *s) { span_write_back_fit(&s->writes); }
void span_store_settle_writer(span_store *s) {
    if (span_write_back_is_on(&s->writes)) tier_settle(s->places.tier);
}

void span_store_set_on_drop(span_store *s, span_store_on_drop fn, void *user) {
    s->places.on_drop = fn;
    s->places.drop_user = user;
}

void span_store_set_on_change(span_store *s, span_store_on_change fn, void *user) {
    s->places.on_change = fn;
    s->places.change_user = user;
    for (uint32_t i = 0; i < s->places.index.n_entries && fn; i++)
        if (span_store_entry(s, i)->used) span_places_report(&s->places, i);
}

/* ---- lookup ---- */

bool span_store_has(const span_store *s, const base_key *key) { return span_store_find(s, key) != NONE; }

void *span_store_owner(const span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    return i == NONE ? NULL : span_store_entry(s, i)->owner;
}

uint64_t span_store_cost(const span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    return i == NONE ? 0 : span_store_entry(s, i)->cost_us;
}

bool span_store_was_dropped(const span_store *s, const base_key *key) {
    return span_budget_was_dropped(&s->places.budget, key);
}

/* The entry of a key; NONE: none, or without usable KV. Of a span that has just failed, the event comes later. */
static uint32_t find_usable(span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    if (i == NONE || !span_entry_can_use(span_store_entry(s, i))) return NONE;
    if (!span_store_entry(s, i)->span || !kv_span_has_failed(span_store_entry(s, i)->span)) return i;
    span_places_lose(&s->places, i);
    return NONE;
}

/* Starts the read of an entry that is on disk: its span with a reference for the caller; NULL: no memory. */
static kv_span *begin_read(span_store *s, uint32_t i) {
    span_places *p = &s->places;
    span_entry *e = span_store_entry(s, i);
    kv_span *span;
    BASE_ASSERT(!e->span && span_entry_can_read(e));
    const int64_t blocks = (int64_t)(span_places_idle_bytes_of(p, i) / kv_pool_block_bytes(p->pool));
    if (blocks > span_places_free_blocks(p)) return NULL;
    if (kv_span_restore(&span, p->pool, e->form, &e->key, NULL)) return NULL;
    e = span_store_entry(s, i);
    e->arriving = true;
    if (span_places_enter_memory(p, i, span)) {
        kv_span_unref(span);
        return NULL;
    }
    if (tier_read(p->tier, span, s->request) == RP_OK) {
        span_places_fit_quota(p, e->tenant);
        return span;
    }
    kv_span_unref(span);
    span_places_leave_memory(p, i, false);
    return NULL;
}

void span_store_set_ram(span_store *s, const span_ram *ram) {
    span_places_set_ram(&s->places, ram);
}

void span_store_set_reads(span_store *s, double n_reads) { s->n_reads = n_reads; }

/* A reference to the span of an entry with a span. One in RAM is copied to the device, or stays where it is:
 * the device reads it there. *copied: it was copied. */
static kv_span *reach(span_store *s, uint32_t i, bool *copied) {
    span_places *p = &s->places;
    const span_entry *e = span_store_entry(s, i);
    const uint64_t bytes = kv_span_bytes(e->span);
    const bool is_held = span_entry_is_held(e); /* others read it where it is */
    kv_span *span = kv_span_ref(e->span);
    *copied = false;
    if (span_entry_place(e) == TIER_MEMORY || is_held) return span;
    const kv_pool_stats pool = kv_pool_get_stats(p->pool);
    const bool is_full = pool.used_bytes + bytes > pool.budget_bytes,
               fits = (int64_t)(bytes / kv_pool_block_bytes(p->pool)) <= span_places_free_blocks(p);
    if (fits && !p->ram.reads_in_place(p->ram.user, s->n_reads, is_full))
        *copied = span_places_promote(p, i) == RP_OK;
    return span;
}

kv_span *span_store_get(span_store *s, const base_key *key, span_found *found) {
    uint32_t i = find_usable(s, key);
    span_found f = SPAN_FOUND_NOTHING;
    kv_span *span = NULL;
    if (i != NONE && span_budget_has_expired(&s->places.budget, i)) {
        span_places_expire(&s->places, i);
        i = NONE;
    }
    span_entry *e = i == NONE ? NULL : span_store_entry(s, i);
    if (e && e->span) {
        bool copied;
        span = reach(s, i, &copied);
        e = span_store_entry(s, i);
        const bool in_place = span_entry_place(e) == TIER_RAM;
        f = copied || in_place ? SPAN_FOUND_RAM : e->fetched;
        e->fetched = SPAN_FOUND_MEMORY;
        s->places.stats.host_hits += f == SPAN_FOUND_RAM;
        s->places.stats.host_in_place += in_place;
    } else if (e) {
        span = begin_read(s, i);
        f = span ? SPAN_FOUND_DISK : SPAN_FOUND_NO_MEMORY;
    }
    BASE_ASSERT(!span || base_key_equal(kv_span_key(span), key));
    *(span ? &s->places.stats.hits : &s->places.stats.misses) += 1;
    if (found) *found = f;
    return span;
}

kv_span *span_store_fetch(span_store *s, const base_key *key) {
    const uint32_t i = find_usable(s, key);
    if (i == NONE) return NULL;
    bool copied;
    if (span_store_entry(s, i)->span) {
        kv_span *present = reach(s, i, &copied);
        if (copied) span_store_entry(s, i)->fetched = SPAN_FOUND_RAM;
        return present;
    }
    kv_span *span = begin_read(s, i);
    if (span) span_store_entry(s, i)->fetched = SPAN_FOUND_DISK;
    return span;
}

/* ---- insertion and uses ---- */

static void use_entry(span_store *s, uint32_t i, const span_terms *terms) {
    span_budget_use(&s->places.budget, i, terms);
    if (span_store_entry(s, i)->use.uses > 1) span_write_back_sooner(&s->writes, i);
    span_pushes_use(&s->pushes, i);
}

static int put(span_store *s, kv_span *span, void *owner, const record *about, const span_terms *terms, bool is_pulled,
               rp_error *err) {
    BASE_ASSERT(kv_span_is_sealed(span) &&
                kv_span_layers_ready(span) == kv_pool_shape(s->places.pool)->n_layers); /* invariant 3 of src/engine */
    BASE_ASSERT(!kv_span_has_failed(span));
    BASE_ASSERT(!about || (about->label && (about->kind == RECORD_REDUCED) == kv_span_is_reduced(span)));
    const base_key *key = kv_span_key(span);
    const bool seen = span_store_was_dropped(s, key);
    if (find_usable(s, key) != NONE) return RP_OK;
    /* Of an unreadable entry: its record keeps its place and its use, pin included, until the new one replaces them
     * (span_write_back.c). */
    uint32_t i = span_store_find(s, key);
    if (i == NONE) {
        const int rc = span_index_add(&s->places.index, key, &i);
        if (rc) return base_fail(err, rc, "the store has %zu spans and cannot take another", s->places.index.n_used);
    }
    span_entry *e = span_store_entry(s, i);
    e->owner = owner;
    if (about) {
        e->cost_us = about->cost_us;
        e->tenant = about->tenant;
        e->kind = about->kind;
        e->parent = about->parent;
        span_entry_set_label(e, about->label);
    }
    e->arriving = true;
    if (span_places_enter_memory(&s->places, i, span)) {
        e->owner = NULL; /* the caller knows it */
        span_places_settle(&s->places, i);
        return base_fail_memory(err, sizeof(*e), "the store");
    }
    s->places.stats.inserts++;
    use_entry(s, i, terms);
    if (about) span_write_back_add(&s->writes, i, about, seen);
    if (about && !is_pulled) span_pushes_add(&s->pushes, i, about, seen);
    if (is_pulled) span_store_entry(s, i)->fetched = SPAN_FOUND_POOL;
    span_places_fit_quota(&s->places, span_store_entry(s, i)->tenant);
    return RP_OK;
}

int span_store_put(span_store *s, kv_span *span, void *owner, const record *about, const span_terms *terms,
                   rp_error *err) {
    return put(s, span, owner, about, terms, false, err);
}

int span_store_put_pulled(span_store *s, kv_span *span, void *owner, const record *about, rp_error *err) {
    return put(s, span, owner, about, NULL, true, err);
}

void span_store_use(span_store *s, const base_key *key, const span_terms *terms) {
    const uint32_t i = span_store_find(s, key);
    if (i != NONE) use_entry(s, i, terms);
}

void span_store_mark(span_store *s, const base_key *key, const span_terms *terms) {
    const uint32_t i = span_store_find(s, key);
    if (i != NONE) span_budget_mark(&s->places.budget, i, terms);
}

void span_store_set_reader(span_store *s, span_reader reader) { span_budget_set_reader(&s->places.budget, reader); }
void span_store_end_session(span_store *s, uint64_t session) { span_budget_end_session(&s->places.budget, session); }

void span_store_drop(span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    BASE_ASSERT(i != NONE);
    span_places_drop(&s->places, i);
}

int span_store_set_quota(span_store *s, uint32_t tenant, uint64_t ram_bytes, uint64_t disk_bytes) {
    BASE_ASSERT(tenant != 0); /* span_tenant */
    const span_quota quota = {tenant, {[TIER_MEMORY] = ram_bytes, [TIER_DISK] = disk_bytes, [TIER_RAM] = ram_bytes}};
    const int rc = span_budget_set_quota(&s->places.budget, &quota);
    if (rc && span_budget_group(&s->places.budget, tenant) == 0) return rc;
    span_places_fit_quota(&s->places, tenant);
    span_store_fit_disk(s);
    return rc;
}

/* ---- memory ---- */

bool span_store_reclaim(void *store) { return span_places_reclaim(&((span_store *)store)->places); }
uint64_t span_store_idle_bytes(const span_store *s) { return span_places_idle_bytes(&s->places); }
int64_t span_store_free_blocks(const span_store *s) { return span_places_free_blocks(&s->places); }

uint64_t span_store_idle_bytes_of(const span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    return i == NONE ? 0 : span_places_idle_bytes_of(&s->places, i);
}

/* ---- events of the tier ---- */

/* KV that could not be read gives way at once to a recomputed span. A corrupt record is set aside; one that the tier
 * could not read stays, and is not read again. */
static void take_fault(span_store *s, const tier_event *event) {
    span_places *p = &s->places;
    uint32_t i = span_store_find(s, &event->key);
    if (i == NONE) return; /* it was removed meanwhile */
    const bool stays = event->fault == RECORD_FAULT_IO || event->fault == RECORD_FAULT_MEMORY ||
                       event->fault == RECORD_FAULT_CIPHER || event->fault == RECORD_FAULT_VERSION;
    p->stats.disk_faults++;
    base_log(BASE_LOG_WARN, "store: a record is %s (%s): %s", stays ? "ignored" : "set aside",
             record_fault_name(event->fault), event->err.message);
    BASE_ASSERT(event->fault != RECORD_FAULT_NONE); /* a miss has a reason */
    if (span_store_entry(s, i)->span == event->span) span_places_lose(p, i);
    i = span_store_find(s, &event->key);
    if (i == NONE || stays || !span_store_entry(s, i)->places[TIER_DISK].is_unreadable) return; /* a new record stays */
    span_places_leave_disk(p, i, event->fault == RECORD_FAULT_GONE ? TIER_EVICT : TIER_SET_ASIDE, false);
    span_places_settle(p, i);
}

static void take_read(span_store *s, const tier_event *event) {
    s->places.stats.disk_reads++;
    s->places.stats.disk_read_bytes += event->bytes;
    BASE_ASSERT(event->failed == kv_span_has_failed(event->span));
    if (event->failed) take_fault(s, event);
}

static void take_sync(span_store *s, const tier_event *event) {
    for (span_sync **link = &s->syncs; *link; link = &(*link)->next) {
        span_sync *sync = *link;
        if (sync->serial != event->serial) continue;
        sync->done = true;
        sync->rc = event->failed ? event->err.code : RP_OK;
        sync->err = event->err;
        *link = sync->next;
        return;
    }
}

/* Starts the syncs that waited for writes. */
static void begin_syncs(span_store *s) {
    if (!s->syncs) return;
    const bool pins_wait = span_write_back_has_pins(&s->writes);
    for (span_sync **link = &s->syncs, *sync; (sync = *link) != NULL;) {
        if (sync->after_pins && pins_wait) {
            link = &sync->next;
            continue;
        }
        if (sync->serial == 0) sync->rc = tier_sync(s->places.tier, &sync->serial);
        if (sync->rc) base_fail_memory(&sync->err, sizeof(*sync), "a sync of records");
        sync->done = sync->rc != RP_OK;
        if (sync->done) *link = sync->next;
        else link = &sync->next;
    }
}

void span_store_sync(span_store *s, span_sync *sync, bool after_pins) {
    for (const span_sync *other = s->syncs; other; other = other->next)
        BASE_ASSERT(other != sync); /* not started twice */
    *sync = (span_sync){.done = true, .after_pins = after_pins};
    if (!s->places.tier || s->read_only) return;
    sync->done = false;
    sync->next = s->syncs;
    s->syncs = sync;
    span_write_back_continue(&s->writes);
    begin_syncs(s);
}

bool span_store_poll(span_store *s) {
    tier_event event;
    bool any = false;
    for (uint32_t i; (i = span_budget_next_expired(&s->places.budget)) != NONE;) span_places_expire(&s->places, i);
    while (s->places.tier && tier_next(s->places.tier, &event)) {
        if (event.kind == TIER_READ) take_read(s, &event);
        else if (event.kind == TIER_WRITTEN) span_write_back_take(&s->writes, &event);
        else take_sync(s, &event);
        kv_span_unref(event.span);
        any = true;
    }
    span_write_back_continue(&s->writes);
    span_pushes_continue(&s->pushes);
    begin_syncs(s);
    return any;
}

/* ---- a pool ---- */

void span_store_set_pool(span_store *s, remote_pool *pool, const base_key *fingerprint, span_text_names names,
                         void *user) {
    BASE_ASSERT(!s->pushes.pool);
    s->pushes.pool = pool;
    s->pushes.fingerprint = fingerprint;
    s->pushes.names = names;
    s->pushes.names_user = user;
}

int span_store_know_tenant(span_store *s, const base_key *salt) { return span_pushes_know(&s->pushes, salt); }

void span_store_take_push(span_store *s, const remote_event *event) { span_pushes_take(&s->pushes, event); }

void span_store_count_look(span_store *s) { s->places.stats.pool_looks++; }

void span_store_count_pull(span_store *s, const remote_event *event) {
    s->places.stats.pool_reads += !event->failed;
    s->places.stats.pool_faults += event->failed;
    s->places.stats.pool_read_bytes += event->bytes;
}

/* ---- figures ---- */

bool span_store_is_consistent(const span_store *s, uint64_t used_bytes) {
    const span_places *p = &s->places;
    uint64_t bytes = 0, n = 0, waiting = 0;
    for (uint32_t i = p->index.lists[LIST_MEMORY].oldest; i != NONE;
         i = span_store_entry(s, i)->links[LIST_MEMORY].newer, n++)
        bytes += kv_span_bytes(span_store_entry(s, i)->span);
    if (n != p->stats.spans || bytes != p->stats.bytes) return false;
    uint64_t ram_bytes = 0, n_ram = 0;
    for (uint32_t i = p->index.lists[LIST_RAM].oldest; i != NONE;
         i = span_store_entry(s, i)->links[LIST_RAM].newer, n_ram++)
        ram_bytes += kv_span_bytes(span_store_entry(s, i)->span);
    if (n_ram != p->stats.host_spans || ram_bytes != p->stats.host_bytes) return false;
    for (int list = LIST_DUE; list < N_LISTS; list++) {
        uint64_t of_list = 0;
        for (uint32_t i = p->index.lists[list].oldest; i != NONE;
             i = span_store_entry(s, i)->links[list].newer, waiting++)
            of_list += span_store_entry(s, i)->wait_bytes;
        if (of_list != p->waiting_bytes[list]) return false;
    }
    const bool uses_pool = s->pushes.pool && remote_pool_measure(s->pushes.pool).is_busy;
    const bool is_idle = !s->syncs && !uses_pool && (!p->tier || (p->tier->n_queued == 0 && !span_store_is_busy(s)));
    return waiting == p->stats.disk_waiting && (!is_idle || used_bytes == bytes);
}

void span_store_stats(const span_store *s, rp_store_stats *out) {
    const uint64_t budget = out->budget_bytes, used = out->used_bytes;
    *out = s->places.stats;
    for (int list = LIST_DUE; list < N_LISTS; list++) {
        const uint32_t oldest = s->places.index.lists[list].oldest;
        out->disk_waiting_bytes += s->places.waiting_bytes[list];
        if (list == LIST_ONCE) out->disk_once_bytes = s->places.waiting_bytes[list];
        else if (oldest != NONE)
            out->disk_lag_us = BASE_MAX(out->disk_lag_us, base_clock_us() - span_store_entry(s, oldest)->since_us);
    }
    out->budget_bytes = budget;
    out->used_bytes = used;
    if (!out->disk_trouble) out->disk_trouble = "";
    out->pool_trouble = "";
    if (!s->pushes.pool) return;
    const remote_figures pool = remote_pool_measure(s->pushes.pool);
    out->pool_pauses = pool.n_opened;
    out->pool_is_paused = pool.is_open;
    if (pool.cause) out->pool_trouble = pool_cause_name(pool.cause);
}
