/* SPDX-License-Identifier: Apache-2.0 */
/* span_store.c: see span_store.h: the table, and the RAM tier. */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE
#define FIRST_BUCKETS 64 /* a power of two; doubled when half full */

int span_store_new(span_store **out, kv_pool *pool, rp_error *err) {
    span_store *s = base_calloc(1, sizeof(*s));
    *out = s;
    if (!s) return base_fail_memory(err, sizeof(*s), "the store");
    s->pool = pool;
    s->free_list = NONE;
    for (int i = 0; i < N_LISTS; i++) s->lists[i] = (span_list){NONE, NONE};
    if (span_store_open_budget(s) == RP_OK) return RP_OK;
    span_store_free(s);
    *out = NULL;
    return base_fail_memory(err, sizeof(*s), "the store");
}

/* ---- the table: keys are hashes, so their first bytes serve as the hash ---- */

static size_t span_store_home_bucket(const span_store *s, const base_key *key) {
    uint64_t h;
    memcpy(&h, key->bytes, sizeof(h));
    return (size_t)h & (s->n_buckets - 1);
}

/* The bucket of the key, or the empty one in which it would be inserted. */
static size_t span_store_find_bucket(const span_store *s, const base_key *key) {
    size_t b = span_store_home_bucket(s, key);
    while (s->buckets[b] != NONE && !base_key_equal(&s->entries[s->buckets[b]].key, key)) b = (b + 1) & (s->n_buckets - 1);
    return b;
}

uint32_t span_store_find(const span_store *s, const base_key *key) { return s->n_buckets == 0 ? NONE : s->buckets[span_store_find_bucket(s, key)]; }

static int grow_table(span_store *s) {
    size_t n = s->n_buckets ? s->n_buckets * 2 : FIRST_BUCKETS;
    uint32_t *old = s->buckets, *buckets = base_alloc(n * sizeof(*buckets));
    size_t n_old = s->n_buckets;
    if (!buckets) return RP_ERR_MEMORY;
    memset(buckets, 0xff, n * sizeof(*buckets));
    s->buckets = buckets;
    s->n_buckets = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != NONE) buckets[span_store_find_bucket(s, &s->entries[old[i]].key)] = old[i];
    base_free(old);
    return RP_OK;
}

/* Empties a bucket and moves later ones of the run forward: no probe ends too early. */
static void span_store_clear_bucket(span_store *s, size_t hole) {
    size_t mask = s->n_buckets - 1;
    for (size_t b = (hole + 1) & mask; s->buckets[b] != NONE; b = (b + 1) & mask) {
        size_t home = span_store_home_bucket(s, &s->entries[s->buckets[b]].key);
        if (((b - home) & mask) < ((b - hole) & mask)) continue; /* its home is after the hole */
        s->buckets[hole] = s->buckets[b];
        hole = b;
    }
    s->buckets[hole] = NONE;
}

/* ---- the lists ---- */

void span_store_unlink(span_store *s, span_list_kind list, uint32_t i) {
    span_list *l = &s->lists[list];
    span_links *e = &s->entries[i].links[list];
    BASE_ASSERT((e->newer == NONE) == (l->newest == i) && (e->older == NONE) == (l->oldest == i)); /* in this list */
    *(e->newer == NONE ? &l->newest : &s->entries[e->newer].links[list].older) = e->older;
    *(e->older == NONE ? &l->oldest : &s->entries[e->older].links[list].newer) = e->newer;
}

void span_store_link(span_store *s, span_list_kind list, uint32_t i) {
    span_list *l = &s->lists[list];
    BASE_ASSERT(s->entries[i].used && l->newest != i);
    s->entries[i].links[list] = (span_links){.newer = NONE, .older = l->newest};
    *(l->newest == NONE ? &l->oldest : &s->entries[l->newest].links[list].newer) = i;
    l->newest = i;
}

/* ---- entries ---- */

static int take_index(span_store *s, uint32_t *out) {
    if (s->free_list != NONE) {
        *out = s->free_list;
        s->free_list = s->entries[*out].links[0].older;
        return RP_OK;
    }
    int rc = base_grow((void **)&s->entries, &s->cap_entries, s->n_entries + 1, SPAN_STORE_MAX, sizeof(*s->entries));
    if (rc) return rc;
    *out = (uint32_t)s->n_entries++;
    return RP_OK;
}

int span_store_take_entry(span_store *s, const base_key *key, void *owner, uint32_t *out, rp_error *err) {
    int rc = s->n_used * 2 >= s->n_buckets ? grow_table(s) : RP_OK;
    if (!rc) rc = take_index(s, out);
    if (rc) return base_fail(err, rc, "the store has %zu spans and cannot take another", s->n_used);
    s->entries[*out] = (span_entry){.used = true, .key = *key, .owner = owner};
    s->buckets[span_store_find_bucket(s, key)] = *out;
    s->n_used++;
    return RP_OK;
}

void span_store_forget(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    void *owner = e->owner;
    BASE_ASSERT(!e->span && !e->file && !e->row);
    s->n_failed -= e->failed;
    span_store_clear_bucket(s, span_store_find_bucket(s, &e->key));
    span_store_unwatch(s, i);
    s->stats.evictions++;
    base_free(e->label);
    *e = (span_entry){.links[0].older = s->free_list};
    s->free_list = i;
    s->n_used--;
    if (owner && s->on_drop) s->on_drop(s->drop_user, owner);
}

/* ---- reports of changes ---- */

static uint32_t usable_tiers(const span_entry *e) {
    if (e->failed) return 0;
    return (e->span ? RP_TIER_RAM : 0) | (e->file && e->file->written && !e->file->unreadable ? RP_TIER_DISK : 0);
}

void span_store_report(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    const uint32_t tiers = usable_tiers(e);
    if (!s->on_change || e->is_foreign || tiers == e->tiers) return;
    e->tiers = (uint8_t)tiers;
    s->on_change(s->change_user, &(span_change){&e->key, e->kind, e->owner, tiers});
}

void span_store_set_on_change(span_store *s, span_store_on_change fn, void *user) {
    s->on_change = fn;
    s->change_user = user;
    for (uint32_t i = 0; i < s->n_entries && fn; i++)
        if (s->entries[i].used) span_store_report(s, i);
}

int span_store_enter_ram(span_store *s, uint32_t i, kv_span *span) {
    BASE_ASSERT(!s->entries[i].span && base_key_equal(kv_span_key(span), &s->entries[i].key));
    s->entries[i].span = span;
    int rc = span_store_enter_tier(s, TIER_RAM, i, kv_span_bytes(span), 0);
    if (rc) {
        s->entries[i].span = NULL;
        return rc;
    }
    kv_span_ref(span);
    span_store_link(s, LIST_RAM, i);
    s->stats.spans++;
    s->stats.bytes += kv_span_bytes(span);
    span_store_report(s, i);
    return RP_OK;
}

void span_store_fail(span_store *s, uint32_t i) {
    s->n_failed += !s->entries[i].failed;
    s->entries[i].failed = true;
    span_store_report(s, i);
}

void span_store_set_label(span_entry *e, const char *label) {
    if (!label || !label[0]) return; /* a note without a record needs none */
    base_free(e->label);
    e->label = base_strdup(label);
}

void span_store_leave_ram(span_store *s, uint32_t i, bool for_room) {
    span_entry *e = &s->entries[i];
    BASE_ASSERT(e->span && s->stats.spans > 0 && s->stats.bytes >= kv_span_bytes(e->span));
    span_store_stop_waiting(s, i, for_room);
    span_store_leave_tier(s, TIER_RAM, i, for_room);
    span_store_unlink(s, LIST_RAM, i);
    s->stats.spans--;
    s->stats.bytes -= kv_span_bytes(e->span);
    BASE_TRACE(STORE, "%s a span of %d tokens", e->file ? "demote" : "evict", kv_span_tokens(e->span));
    kv_span_unref(e->span);
    e->span = NULL;
    e->fetched = false;
    span_store_report(s, i);
}

/* ---- lookup and insertion ---- */

bool span_store_has(const span_store *s, const base_key *key) { return span_store_find(s, key) != NONE; }

bool span_store_is_lost(const span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    return i != NONE && !s->entries[i].span && !span_store_can_read(&s->entries[i]);
}

void *span_store_owner(const span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    return i == NONE ? NULL : s->entries[i].owner;
}

/* Has the span in RAM usable KV? */
static bool can_use(const span_entry *e) { return !e->failed && !kv_span_has_failed(e->span); }

uint64_t span_store_cost(const span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    return i == NONE ? 0 : s->entries[i].cost_us;
}

kv_span *span_store_get(span_store *s, const base_key *key, span_found *found) {
    uint32_t i = span_store_find(s, key);
    span_found f = SPAN_FOUND_NOTHING;
    kv_span *span = NULL;
    if (i != NONE && span_store_has_expired(s, i)) {
        span_store_expire(s, i);
        i = NONE;
    }
    if (i != NONE && s->entries[i].span) {
        bool fetched = s->entries[i].fetched;
        if (can_use(&s->entries[i])) span = kv_span_ref(s->entries[i].span), f = fetched ? SPAN_FOUND_DISK : SPAN_FOUND_RAM;
        s->entries[i].fetched = false;
    } else if (i != NONE && span_store_can_read(&s->entries[i])) {
        span = span_store_read(s, i);
        f = span ? SPAN_FOUND_DISK : SPAN_FOUND_NO_MEMORY;
    }
    *(span ? &s->stats.hits : &s->stats.misses) += 1;
    if (found) *found = f;
    return span;
}

kv_span *span_store_fetch(span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    if (i == NONE) return NULL;
    if (s->entries[i].span) return can_use(&s->entries[i]) ? kv_span_ref(s->entries[i].span) : NULL;
    kv_span *span = span_store_can_read(&s->entries[i]) ? span_store_read(s, i) : NULL;
    if (span) s->entries[i].fetched = true;
    return span;
}

static void note_entry(span_entry *e, const span_note *note) {
    e->cost_us = note->cost_us;
    e->tenant = note->tenant;
    e->kind = note->kind;
    e->parent = note->parent;
    span_store_set_label(e, note->label);
}

int span_store_put(span_store *s, kv_span *span, void *owner, const span_note *note, rp_error *err) {
    BASE_ASSERT(kv_span_is_sealed(span)); /* invariant 3 of src/engine: complete and sealed */
    uint32_t i = span_store_find(s, kv_span_key(span));
    int rc = RP_OK;
    bool seen = span_store_was_dropped(s, kv_span_key(span));
    if (i != NONE && (s->entries[i].span || span_store_can_read(&s->entries[i]))) return RP_OK;
    /* The record of an unreadable entry keeps its file and its row, pin included, until the new one replaces them
     * (span_store_write_row). */
    if (i == NONE) rc = span_store_take_entry(s, kv_span_key(span), owner, &i, err);
    if (rc) return rc;
    span_entry *e = &s->entries[i];
    e->owner = owner;
    if (note) note_entry(e, note);
    e->arriving = true;
    if (span_store_enter_ram(s, i, span)) {
        e->owner = NULL; /* the caller knows it */
        if (!e->file) span_store_forget(s, i);
        return base_fail_memory(err, sizeof(*e), "the store");
    }
    s->stats.inserts++;
    span_store_use_entry(s, i, note ? &note->terms : NULL);
    if (note) span_store_write_entry(s, i, note, seen);
    span_store_fit_quota(s, s->entries[i].tenant);
    return RP_OK;
}

/* ---- budget ---- */

/* Bytes in all layers of a span of this form. */
static uint64_t bytes_of_form(const span_store *s, const kv_span_form *f) {
    return (uint64_t)kv_form_blocks(kv_pool_shape(s->pool), f) * kv_pool_block_bytes(s->pool);
}

uint64_t span_store_idle_bytes_of(const span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    if (i == NONE) return 0;
    const span_entry *e = &s->entries[i];
    if (!e->span) return bytes_of_form(s, &e->file->form);
    return kv_span_is_unshared(e->span) ? kv_span_bytes(e->span) : 0;
}

void span_store_set_on_drop(span_store *s, span_store_on_drop fn, void *user) {
    s->on_drop = fn;
    s->drop_user = user;
}

int64_t span_store_free_blocks(const span_store *s) {
    kv_pool_stats pool = kv_pool_get_stats(s->pool);
    int64_t block = (int64_t)kv_pool_block_bytes(s->pool);
    return ((int64_t)pool.budget_bytes - (int64_t)pool.used_bytes + (int64_t)span_store_idle_bytes(s)) / block - pool.reserved_blocks;
}

void span_store_drop(span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    if (s->entries[i].span) span_store_leave_ram(s, i, false);
    if (s->entries[i].file) span_store_leave_disk(s, i, TIER_EVICT, false);
    span_store_forget(s, i);
}

bool span_store_is_consistent(const span_store *s, uint64_t used_bytes) {
    uint64_t bytes = 0, n = 0, waiting = 0;
    for (uint32_t i = s->lists[LIST_RAM].oldest; i != NONE; i = s->entries[i].links[LIST_RAM].newer, n++) bytes += kv_span_bytes(s->entries[i].span);
    if (n != s->stats.spans || bytes != s->stats.bytes) return false;
    for (int list = LIST_DUE; list < N_LISTS; list++) {
        uint64_t of_list = 0;
        for (uint32_t i = s->lists[list].oldest; i != NONE; i = s->entries[i].links[list].newer, waiting++) of_list += s->entries[i].wait_bytes;
        if (of_list != s->waiting_bytes[list]) return false;
    }
    bool is_idle = s->n_failed == 0 && !s->syncs && (!s->tier || (s->tier->n_queued == 0 && !span_store_is_busy(s)));
    return waiting == s->stats.disk_waiting && (!is_idle || used_bytes == bytes);
}

void span_store_stats(const span_store *s, rp_store_stats *out) {
    uint64_t budget = out->budget_bytes, used = out->used_bytes;
    *out = s->stats;
    for (int list = LIST_DUE; list < N_LISTS; list++) {
        uint32_t oldest = s->lists[list].oldest;
        out->disk_waiting_bytes += s->waiting_bytes[list];
        if (list == LIST_ONCE) out->disk_once_bytes = s->waiting_bytes[list];
        else if (oldest != NONE) out->disk_lag_us = BASE_MAX(out->disk_lag_us, base_clock_us() - s->entries[oldest].since_us);
    }
    out->budget_bytes = budget;
    out->used_bytes = used;
    if (!out->disk_trouble) out->disk_trouble = "";
}
