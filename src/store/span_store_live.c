/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_live.c: see span_store.h: administration of a store in use: list, pin, set a TTL, remove. */
#include "base/check.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE

void span_store_each(const span_store *s, span_store_each_fn fn, void *user) {
    for (uint32_t i = 0; i < s->places.index.n_entries; i++) {
        const span_entry *e = span_store_entry(s, i);
        if (!e->used) continue;
        BASE_ASSERT(e->span || e->form); /* invariant 4 of the index */
        const store_item item = {
            .row.record.key = e->key,
            .row.record.kind = e->kind,
            .row.record.label = e->label ? e->label : "",
            .row.record.form.format = e->span ? kv_span_format(e->span) : e->form->format,
            .row.record.form.n_tokens = e->span ? kv_span_tokens(e->span) : e->form->n_tokens,
            .row.record.cost_us = e->cost_us,
            .row.record.tenant = e->tenant,
            .row.n_layers = kv_pool_shape(s->places.pool)->n_layers,
            .row.bytes = e->places[TIER_DISK].bytes,
            .row.use = e->use,
            .expired = e->use.expires > 0 && !e->use.pinned && s->places.budget.now() >= e->use.expires,
            .held = span_entry_is_held(e),
            .ram_bytes = e->places[span_entry_place(e)].bytes,
        };
        fn(user, &item);
    }
}

bool span_store_is_read_only(const span_store *s) { return s->read_only; }

/* Updates the use in the tier, for the time after a crash too. */
static void note_change(span_store *s, uint32_t i) {
    span_store_entry(s, i)->is_noted = false;
    span_places_note(&s->places, i);
}

bool span_store_pin(span_store *s, const base_key *key, bool pinned) {
    const uint32_t i = span_store_find(s, key);
    if (i == NONE || (!record_is_of_module(span_store_entry(s, i)->kind) && pinned)) return false;
    span_budget_set_pinned(&s->places.budget, i, pinned);
    if (pinned) span_write_back_sooner(&s->writes, i); /* its write may have been late */
    note_change(s, i);
    return true;
}

bool span_store_set_ttl(span_store *s, const base_key *key, int64_t ttl_s) {
    const uint32_t i = span_store_find(s, key);
    BASE_ASSERT(ttl_s >= 0);
    if (i == NONE) return false;
    span_entry *e = span_store_entry(s, i);
    e->ttl_s = ttl_s;
    e->use.expires = ttl_s > 0 ? s->places.budget.now() + ttl_s : 0;
    if (ttl_s > 0) span_budget_watch(&s->places.budget, i);
    else span_budget_unwatch(&s->places.budget, i);
    note_change(s, i);
    return true;
}

bool span_store_remove(span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    if (i == NONE) return false;
    const span_entry *e = span_store_entry(s, i);
    span_places_cancel(&s->places, i, false);
    if (span_entry_is_in(e, TIER_DISK)) span_places_leave_disk(&s->places, i, TIER_ERASE, false);
    span_places_drop(&s->places, i);
    return true;
}

bool span_store_is_kept(const span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    return !s->places.tier || (i != NONE && span_store_entry(s, i)->places[TIER_DISK].is_written);
}
