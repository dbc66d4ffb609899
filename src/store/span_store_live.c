/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_live.c: see span_store.h: administration of a store in use: list, pin, set a TTL, remove. */
#include "base/error.h"
#include "base/memory.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE

static bool is_held(const span_entry *e) { return e->span && !kv_span_is_unshared(e->span); }

void span_store_each(const span_store *s, span_store_about_fn fn, void *user) {
    for (uint32_t i = 0; i < s->n_entries; i++) {
        const span_entry *e = &s->entries[i];
        if (!e->used || e->failed) continue;
        span_about about = {.key = e->key,
                            .kind = e->kind,
                            .label = e->label ? e->label : "",
                            .format = e->span ? kv_span_format(e->span) : e->file->form.format,
                            .n_tokens = e->span ? kv_span_tokens(e->span) : e->file->form.n_tokens,
                            .ram_bytes = e->span ? kv_span_bytes(e->span) : 0,
                            .disk_bytes = e->file ? e->file->bytes : 0,
                            .cost_us = e->cost_us,
                            .uses = e->uses,
                            .last_use = e->last_use,
                            .expires = e->expires,
                            .pinned = e->pinned,
                            .expired = e->expires > 0 && !e->pinned && s->now() >= e->expires,
                            .held = is_held(e)};
        fn(user, &about);
    }
}

bool span_store_is_read_only(const span_store *s) { return s->read_only; }

/* Updates the index, for the time after a crash too. */
static void span_store_live_note(span_store *s, uint32_t i) {
    s->entries[i].noted = false;
    span_store_note_use(s, i);
}

bool span_store_pin(span_store *s, const base_key *key, bool pinned) {
    uint32_t i = span_store_find(s, key);
    if (i == NONE || s->entries[i].failed || (!record_is_of_module(s->entries[i].kind) && pinned)) return false;
    span_store_set_pinned(s, i, pinned);
    if (pinned) span_store_write_sooner(s, i); /* its write may have been late */
    span_store_live_note(s, i);
    return true;
}

bool span_store_set_ttl(span_store *s, const base_key *key, int64_t ttl_s) {
    uint32_t i = span_store_find(s, key);
    if (i == NONE || s->entries[i].failed) return false;
    span_entry *e = &s->entries[i];
    e->ttl_s = ttl_s;
    e->expires = ttl_s > 0 ? s->now() + ttl_s : 0;
    if (ttl_s > 0) span_store_watch(s, i);
    else span_store_unwatch(s, i);
    span_store_live_note(s, i);
    return true;
}

bool span_store_remove(span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    if (i == NONE || s->entries[i].failed) return false;
    span_entry *e = &s->entries[i];
    span_store_stop_waiting(s, i, false);
    if (e->file) span_store_leave_disk(s, i, TIER_ERASE, false);
    if (is_held(e)) span_store_fail(s, i);
    else span_store_drop(s, key);
    return true;
}

/* ---- durable changes ---- */

bool span_store_is_kept(const span_store *s, const base_key *key) {
    uint32_t i = span_store_find(s, key);
    return !s->tier || (i != NONE && s->entries[i].file && s->entries[i].file->written);
}

/* Does a pinned entry wait whose write can begin soon? */
static bool has_pins_to_write(const span_store *s) {
    if (s->closing || base_clock_us() < s->retry_us) return false;
    for (uint32_t i = s->lists[LIST_DUE].oldest; i != NONE; i = s->entries[i].links[LIST_DUE].newer)
        if (s->entries[i].pinned) return true;
    return false;
}

void span_store_start_syncs(span_store *s) {
    if (!s->syncs) return;
    const bool pins_wait = has_pins_to_write(s);
    for (span_sync **link = &s->syncs, *sync; (sync = *link) != NULL;) {
        if (sync->after_pins && pins_wait) {
            link = &sync->next;
            continue;
        }
        if (sync->serial == 0) sync->rc = tier_sync(s->tier, &sync->serial);
        if (sync->rc) base_fail_memory(&sync->err, sizeof(*sync), "a sync of records");
        sync->done = sync->rc != RP_OK;
        if (sync->done) *link = sync->next;
        else link = &sync->next;
    }
}

void span_store_sync(span_store *s, span_sync *sync, bool after_pins) {
    *sync = (span_sync){.done = true, .after_pins = after_pins};
    if (!s->tier || s->read_only) return;
    sync->done = false;
    sync->next = s->syncs;
    s->syncs = sync;
    span_store_write_waiting(s);
    span_store_start_syncs(s);
}

void span_store_take_sync(span_store *s, const tier_event *event) {
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
