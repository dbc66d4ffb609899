/* SPDX-License-Identifier: Apache-2.0 */
/* selection.c: listings, selections and pages of store entries: see store.h. Any thread. */
#include <string.h>
#include <time.h>

#include "api/store.h"

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/record/record_bundle.h"

#define LEAST_DIGITS 4 /* of a key or a model: fewer would mean very many by a slip */

static int check_digits(const char *what, const char *digits, rp_error *err) {
    size_t n = digits ? strlen(digits) : LEAST_DIGITS;
    if (n >= LEAST_DIGITS && n <= STORE_KEY_DIGITS && (!digits || strspn(digits, "0123456789abcdef") == n))
        return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "%s '%s': give its first %d to %d hexadecimal digits, in lower case", what,
                     digits, LEAST_DIGITS, STORE_KEY_DIGITS);
}

int store_selection_check(const rp_store_selection *s, rp_error *err) {
    if (!s->all && !s->name && !s->key && !s->model && !s->expired && !s->modules && !s->texts)
        return base_fail(err, RP_ERR_INVALID,
                         "the selection is empty: give a name, a key, a model, a kind, expired, or all");
    int rc = check_digits("the key", s->key, err);
    return rc ? rc : check_digits("the model", s->model, err);
}

const char *rp_store_kind_name(rp_store_kind kind) {
    static const char *const names[] = {"module", "text", "unknown", "reduced", "states"};
    _Static_assert(sizeof(names) / sizeof(names[0]) == RP_N_STORE_KINDS, "each kind has a name");
    return (unsigned)kind < RP_N_STORE_KINDS ? names[kind] : NULL;
}

rp_store_entry store_item_describe(const store_item *item, bool digits) {
    static const rp_store_kind kinds[] = {[RECORD_MODULE] = RP_STORE_MODULE,
                                          [RECORD_TEXT] = RP_STORE_TEXT,
                                          [RECORD_REDUCED] = RP_STORE_REDUCED,
                                          [RECORD_STATES] = RP_STORE_STATES,
                                          [RECORD_MODULE_STATES] = RP_STORE_STATES};
    const record_row *row = &item->row;
    BASE_ASSERT((size_t)row->record.kind < BASE_ARRAY_LEN(kinds) && (unsigned)item->fault < RECORD_FAULT_COUNT);
    const bool is_known = row->n_layers > 0,
               has_model = is_known && memcmp(&row->fingerprint, &(base_key){{0}}, sizeof(base_key)) != 0;
    rp_store_entry e = {
        .kind = is_known ? kinds[row->record.kind] : RP_STORE_UNKNOWN,
        .label = row->record.label,
        .kv_format = is_known ? kv_format_name(row->record.form.format) : "",
        .fault = item->fault ? record_fault_name(item->fault) : "",
        .encrypted = item->encrypted,
        .pinned = row->use.pinned,
        .expired = item->expired,
        .in_ram = item->ram_bytes > 0,
        .on_disk = row->bytes > 0,
        .in_use = item->held,
        .n_tokens = row->record.form.n_tokens,
        .bytes = item->ram_bytes + row->bytes,
        .ram_bytes = item->ram_bytes,
        .cost_us = row->record.cost_us,
        .uses = row->use.uses,
        .last_use = row->use.last_use,
        .expires = row->use.expires,
    };
    if (digits) base_key_hex(&row->record.key, e.key, STORE_KEY_DIGITS);
    if (digits && has_model) base_key_hex(&row->fingerprint, e.model, STORE_KEY_DIGITS);
    return e;
}

void store_entry_update_expired(rp_store_entry *e) {
    e->expired = e->expires != 0 && !e->pinned && e->expires <= (int64_t)time(NULL);
}

static bool has_prefix(const char *text, const char *with) { return !with || strncmp(text, with, strlen(with)) == 0; }

bool store_entry_is_of_module(const rp_store_entry *e) {
    return e->kind == RP_STORE_MODULE || e->kind == RP_STORE_REDUCED ||
           (e->kind == RP_STORE_STATES && e->label[0] != '\0');
}

static bool is_of_kind(const rp_store_selection *s, const rp_store_entry *e) {
    if (!s->modules && !s->texts) return true;
    const bool is_of_module = store_entry_is_of_module(e);
    return (s->modules && is_of_module) ||
           (s->texts && !is_of_module && (e->kind == RP_STORE_TEXT || e->kind == RP_STORE_STATES));
}

bool store_selection_matches(const rp_store_selection *s, const rp_store_entry *e) {
    BASE_ASSERT(!s->key || e->key[0]); /* store_item_describe was asked for it */
    return is_of_kind(s, e) && has_prefix(e->key, s->key) && has_prefix(e->model, s->model) &&
           (!s->name || record_label_is_below(e->label, s->name)) && (!s->expired || e->expired);
}

int store_fail_pin_texts(rp_error *err) {
    return base_fail(
        err, RP_ERR_INVALID,
        "prompts and answers cannot be pinned, because they are useless without their prefix: name a module");
}

bool store_selection_is_named(const rp_store_selection *s) { return s->name || s->key || s->model; }

/* ---- Pages ---- */

int store_page_check(const rp_store_page *p, bool is_live, rp_error *err) {
    if ((unsigned)p->order > RP_STORE_BY_BYTES)
        return base_fail(err, RP_ERR_INVALID, "order %d: give one of rp_store_order", (int)p->order);
    if (is_live && p->limit > RP_STORE_MAX_LISTED)
        return base_fail(err, RP_ERR_INVALID, "limit of %zu entries: give at most %d", p->limit, RP_STORE_MAX_LISTED);
    if (p->after && (p->order != RP_STORE_BY_KEY || strlen(p->after) != STORE_KEY_DIGITS))
        return base_fail(err, RP_ERR_INVALID, "to continue a listing give a whole key, and sort by key");
    return RP_OK;
}

bool store_page_follows(const rp_store_page *p, const base_key *key) {
    char digits[STORE_KEY_DIGITS + 1];
    if (!p->after) return true;
    BASE_ASSERT(p->order == RP_STORE_BY_KEY); /* store_page_check */
    base_key_hex(key, digits, STORE_KEY_DIGITS);
    return strcmp(digits, p->after) > 0;
}

/* ---- Listings ---- */

rp_store_listing *store_listing_new(rp_error *err) {
    rp_store_listing *l = base_calloc(1, sizeof(*l));
    if (!l) (void)base_fail_memory(err, sizeof(*l), "a listing");
    else l->struct_size = (uint32_t)sizeof(*l);
    return l;
}

void store_listing_keep(rp_store_listing *l, size_t from, size_t to) {
    BASE_ASSERT(to <= from && from < l->n_entries);
    rp_store_entry entry = l->entries[to];
    l->entries[to] = l->entries[from];
    l->entries[from] = entry;
}

void store_listing_cut(rp_store_listing *l, size_t n) {
    BASE_ASSERT(n <= l->n_entries);
    while (l->n_entries > n) {
        const char *label = l->entries[--l->n_entries].label;
        if (label[0]) base_free((char *)(uintptr_t)label);
    }
}

void rp_store_listing_free(rp_store_listing *l) {
    if (!l) return;
    store_listing_cut(l, 0);
    base_free(l->entries);
    base_free(l->owner);
    base_free(l);
}
