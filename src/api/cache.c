/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c: stores on disk, without a model: the public interface of store/store_admin.h and store/store_bundle.h. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/background/audit_table.h"
#include "api/cache_selection.h"
#include "store/record_bundle.h"
#include "store/store_bundle.h"

struct rp_cache {
    store_admin *admin;
};

store_admin *cache_admin(rp_cache *c) { return c->admin; }

rp_cache_options rp_cache_options_defaults(void) { return (rp_cache_options){.key_file = NULL}; }

int rp_cache_open(rp_cache **out, const char *dir, const rp_cache_options *options, rp_error *err) {
    rp_cache_options o = options ? *options : rp_cache_options_defaults();
    if (!out || !dir) return base_fail(err, RP_ERR_INVALID, "rp_cache_open: out and dir are needed");
    *out = NULL;
    rp_cache *c = base_calloc(1, sizeof(*c));
    if (!c) return base_fail_memory(err, sizeof(*c), "a cache");
    int rc = store_admin_open(&c->admin, dir, &o, err);
    if (rc) base_free(c);
    else *out = c;
    return rc;
}

void rp_cache_close(rp_cache *c) {
    if (c) store_admin_close(c->admin);
    base_free(c);
}

/* ---- listing ---- */

typedef struct gathering {
    const rp_cache_selection *selection;
    rp_cache_listing *listing;
    base_key *keys; /* of the entries */
    size_t cap_entries, cap_keys, n_hidden; /* hidden: without a label because there is no key */
} gathering;

static void store_item_describe(const store_item *item, rp_cache_entry *e) {
    const record_row *row = &item->row;
    bool known = row->n_layers > 0;
    *e = (rp_cache_entry){.kind = !known                              ? RP_CACHE_UNKNOWN
                                  : row->record.kind == RECORD_MODULE ? RP_CACHE_MODULE
                                                                      : RP_CACHE_TEXT,
                          .label = row->record.label,
                          .fault = item->fault ? record_fault_name(item->fault) : "",
                          .encrypted = item->encrypted,
                          .on_disk = true,
                          .pinned = row->pinned,
                          .expired = item->expired,
                          .n_tokens = row->record.form.n_tokens,
                          .bytes = row->bytes,
                          .cost_us = row->record.cost_us,
                          .uses = row->uses,
                          .last_use = row->last_use,
                          .expires = row->expires};
    base_key_hex(&row->record.key, e->key, CACHE_KEY_DIGITS);
    if (known) base_key_hex(&row->fingerprint, e->model, CACHE_KEY_DIGITS);
}

static int cache_gather(void *user, const store_item *item, rp_error *err) {
    gathering *g = user;
    rp_cache_listing *l = g->listing;
    rp_cache_entry e;
    store_item_describe(item, &e);
    g->n_hidden += item->fault == RECORD_FAULT_CIPHER && item->encrypted;
    if (!cache_selection_means(g->selection, &e)) return RP_OK;
    size_t need = l->n_entries + 1;
    e.label = e.label[0] ? base_strdup(e.label) : "";
    if (!e.label || base_grow((void **)&l->entries, &g->cap_entries, need, SIZE_MAX, sizeof(*l->entries)) ||
        base_grow((void **)&g->keys, &g->cap_keys, need, SIZE_MAX, sizeof(*g->keys))) {
        if (e.label && e.label[0]) base_free((char *)(uintptr_t)e.label);
        return base_fail_memory(err, need * sizeof(e), "a list of records");
    }
    g->keys[l->n_entries] = item->row.record.key;
    l->entries[l->n_entries++] = e;
    return RP_OK;
}

void rp_cache_listing_free(rp_cache_listing *l) {
    if (!l) return;
    for (size_t i = 0; i < l->n_entries; i++)
        if (l->entries[i].label[0]) base_free((char *)(uintptr_t)l->entries[i].label);
    base_free(l->entries);
    base_free(l->owner);
    base_free(l);
}

static int cache_fail_none(const rp_cache *c, const gathering *g, rp_error *err) {
    const rp_cache_selection *s = g->selection;
    const char *dir = c->admin->folder.dir;
    if (s->name && g->n_hidden > 0)
        return base_fail_at(err, RP_ERR_NAME, dir, 0,
                            "no readable record of '%s'; %zu records are encrypted: give their key",
                            s->name, g->n_hidden);
    const char *what = s->name ? s->name : s->key ? s->key : s->model;
    const char *text = s->name  ? "no record of '%s': see rp_cache_list"
                       : s->key ? "no record with a key that begins with '%s': see rp_cache_list"
                                : "no record of a model with a fingerprint that begins with '%s': see rp_cache_get_stats";
    return base_fail_at(err, RP_ERR_NAME, dir, 0, text, what);
}

/* The entries that are meant, and their keys. */
static int cache_find(rp_cache *c, const rp_cache_selection *selection, rp_cache_listing **out, rp_error *err) {
    static const rp_cache_selection everything = {.all = true};
    gathering g = {.selection = selection ? selection : &everything};
    int rc = cache_selection_check(g.selection, err);
    *out = NULL;
    if (rc) return rc;
    g.listing = base_calloc(1, sizeof(*g.listing));
    if (!g.listing) return base_fail_memory(err, sizeof(*g.listing), "a list of records");
    rc = store_admin_each(c->admin, cache_gather, &g, err);
    g.listing->owner = g.keys;
    if (!rc && g.listing->n_entries == 0 && cache_selection_is_named(g.selection)) rc = cache_fail_none(c, &g, err);
    if (rc) rp_cache_listing_free(g.listing);
    else *out = g.listing;
    return rc;
}

int rp_cache_list(rp_cache *c, const rp_cache_selection *selection, rp_cache_listing **out, rp_error *err) {
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_list: cache and out are needed");
    return cache_find(c, selection, out, err);
}

/* ---- changing ---- */

/* A selection that says something, and a store that may be changed. */
static int begin_change(rp_cache *c, const rp_cache_selection *selection, bool removes, rp_cache_listing **out, rp_error *err) {
    *out = NULL;
    if (!c || !selection) return base_fail(err, RP_ERR_INVALID, "cache and selection are needed");
    int rc = store_admin_may_change(c->admin, removes, err);
    return rc ? rc : cache_find(c, selection, out, err);
}

static void cache_listing_end_change(rp_cache_listing *l, rp_cache_listing **out, int rc) {
    if (out) *out = rc ? NULL : l;
    if (rc || !out) rp_cache_listing_free(l);
}

int rp_cache_remove(rp_cache *c, const rp_cache_selection *selection, rp_cache_listing **removed, rp_error *err) {
    rp_cache_listing *l;
    int rc = begin_change(c, selection, true, &l, err);
    for (size_t i = 0; !rc && i < l->n_entries; i++) rc = store_admin_remove(c->admin, &((const base_key *)l->owner)[i], err);
    if (l) {
        int committed = store_admin_commit_removals(c->admin, &l->index_unwritten, rc ? NULL : err); /* what is gone is gone */
        if (!rc) rc = committed;
    }
    cache_listing_end_change(l, removed, rc);
    return rc;
}

/* Leaves modules in a listing. */
static int keep_modules(rp_cache_listing *l, rp_error *err) {
    base_key *keys = l->owner;
    size_t n = 0;
    for (size_t i = 0; i < l->n_entries; i++) {
        if (l->entries[i].kind != RP_CACHE_MODULE) continue;
        l->entries[n] = l->entries[i];
        keys[n++] = keys[i];
    }
    l->n_entries = n;
    if (n > 0) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "prompts and answers cannot be pinned, because they are useless without their prefix: name a module");
}

int rp_cache_pin(rp_cache *c, const rp_cache_selection *selection, bool pinned, rp_cache_listing **changed, rp_error *err) {
    rp_cache_listing *l;
    int rc = begin_change(c, selection, false, &l, err);
    if (!rc && pinned) rc = keep_modules(l, err);
    for (size_t i = 0; !rc && i < l->n_entries; i++) {
        rc = store_admin_pin(c->admin, &((const base_key *)l->owner)[i], pinned, err);
        l->entries[i].pinned = pinned;
    }
    if (!rc) rc = store_admin_commit(c->admin, err);
    else if (l) record_index_roll_back(c->admin->index);
    cache_listing_end_change(l, changed, rc);
    return rc;
}

/* ---- the whole ---- */

const char *rp_cache_flaw_name(rp_cache_flaw flaw) {
    static const char *const names[RP_N_CACHE_FLAWS] = {
        [RP_CACHE_BAD_RECORD] = "record",          [RP_CACHE_BAD_ROW] = "row",         [RP_CACHE_BAD_INDEX] = "index",
        [RP_CACHE_WITHOUT_FILE] = "without_file", [RP_CACHE_WITHOUT_ROW] = "without_row", [RP_CACHE_LEFTOVER] = "leftover",
        [RP_CACHE_OTHER_KV] = "other_kv",         [RP_CACHE_OLD_ROW] = "old_row"};
    return (unsigned)flaw < RP_N_CACHE_FLAWS ? names[flaw] : NULL;
}

bool rp_cache_flaw_is_damage(rp_cache_flaw flaw) {
    return flaw == RP_CACHE_BAD_RECORD || flaw == RP_CACHE_BAD_ROW || flaw == RP_CACHE_BAD_INDEX || flaw == RP_CACHE_OTHER_KV;
}

int rp_cache_get_stats(rp_cache *c, rp_cache_stats *out, rp_error *err) {
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_get_stats: cache and out are needed");
    return store_admin_stats(c->admin, out, err);
}

int rp_cache_verify(rp_cache *c, rp_on_progress on_progress, rp_on_cache_finding on_finding, void *user, rp_cache_verification *out,
                    rp_error *err) {
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_verify: cache and out are needed");
    return store_admin_verify(c->admin, on_progress, on_finding, user, out, err);
}

int rp_cache_gc(rp_cache *c, rp_on_progress on_progress, void *user, rp_cache_cleaning *out, rp_error *err) {
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_gc: cache and out are needed");
    int rc = store_admin_may_change(c->admin, true, err);
    return rc ? rc : store_admin_gc(c->admin, on_progress, user, out, err);
}

int rp_cache_rebuild(rp_cache *c, rp_on_progress on_progress, void *user, rp_cache_cleaning *out, rp_error *err) {
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_rebuild: cache and out are needed");
    int rc = store_admin_may_change(c->admin, false, err);
    return rc ? rc : store_admin_rebuild(c->admin, on_progress, user, out, err);
}

int rp_cache_audit(rp_cache *c, rp_audit **out, char *model, rp_error *err) {
    base_buffer text = {0};
    audit_table *t = NULL;
    base_key whose;
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_audit: cache and out are needed");
    *out = NULL;
    if (disk_folder_read_audit(c->admin->folder.dir, AUDIT_MAX_FILE, &text)) return RP_OK;
    int rc = audit_table_read(&t, &whose, text.data ? text.data : "", text.len);
    base_buffer_free(&text);
    if (rc) return rc == RP_ERR_MEMORY ? base_fail_memory(err, sizeof(*t), "an audit report") : RP_OK;
    if (model) base_key_hex(&whose, model, CACHE_KEY_DIGITS);
    rc = audit_table_report(t, out, err);
    audit_table_free(t);
    return rc;
}

int rp_cache_export(rp_cache *c, const char *name, const char *path, rp_on_progress on_progress, void *user, rp_cache_shipment *out,
                    rp_error *err) {
    rp_error own;
    if (!c || !name || !path || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_export: cache, name, path and out are needed");
    return store_bundle_export(c->admin, name, path, on_progress, user, out, err ? err : &own);
}

int rp_cache_import(rp_cache *c, const char *path, rp_on_progress on_progress, void *user, rp_cache_shipment *out, rp_error *err) {
    rp_error own;
    if (!c || !path || !out) return base_fail(err, RP_ERR_INVALID, "rp_cache_import: cache, path and out are needed");
    int rc = store_admin_may_change(c->admin, false, err);
    return rc ? rc : store_bundle_import(c->admin, path, on_progress, user, out, err ? err : &own);
}
