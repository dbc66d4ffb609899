/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c: entries of a store's folder, without a model: listed and changed over store/disk/store_admin.h. One thread
   at a time. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/store.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/disk/store_bundle.h"

/* ---- Listing ---- */

typedef struct gathering {
    const rp_store_selection *selection;
    rp_store_listing *listing;
    base_key *keys; /* of the entries */
    size_t cap_entries, cap_keys;
    size_t n_hidden; /* records without a readable label: they are encrypted, and there is no key */
} gathering;

static int folder_gather(void *user, const store_item *item, rp_error *err) {
    gathering *g = user;
    rp_store_listing *l = g->listing;
    rp_store_entry e = store_item_describe(item, true);
    e.on_disk = true; /* also a file without blocks */
    g->n_hidden += item->fault == RECORD_FAULT_CIPHER && item->encrypted;
    if (!store_selection_matches(g->selection, &e)) return RP_OK;
    size_t need = l->n_entries + 1;
    e.label = e.label[0] ? base_strdup(e.label) : "";
    if (!e.label || base_grow((void **)&l->entries, &g->cap_entries, need, SIZE_MAX, sizeof(*l->entries)) ||
        base_grow((void **)&g->keys, &g->cap_keys, need, SIZE_MAX, sizeof(*g->keys))) {
        if (e.label && e.label[0]) base_free((char *)(uintptr_t)e.label);
        return base_fail_memory(err, need * sizeof(e), "a list of records");
    }
    BASE_ASSERT(l->n_entries == 0 || /* ascending: folder_list cuts a page off by it */
                memcmp(&g->keys[l->n_entries - 1], &item->row.record.key, sizeof(base_key)) <= 0);
    g->keys[l->n_entries] = item->row.record.key;
    l->entries[l->n_entries++] = e;
    return RP_OK;
}

static int folder_fail_none(const rp_store *store, const gathering *g, rp_error *err) {
    const rp_store_selection *s = g->selection;
    const char *dir = store->admin->folder.dir;
    if (s->name && g->n_hidden > 0)
        return base_fail_at(err, RP_ERR_NAME, dir, 0,
                            "no readable record of '%s'; %zu records are encrypted: give their key",
                            s->name, g->n_hidden);
    const char *what = s->name ? s->name : s->key ? s->key
                                                  : s->model;
    BASE_ASSERT(what); /* store_selection_is_named */
    const char *text = s->name ? "no record of '%s': see rp_store_list"
                       : s->key
                           ? "no record with a key that begins with '%s': see rp_store_list"
                           : "no record of a model with a fingerprint that begins with '%s': see rp_store_get_usage";
    return base_fail_at(err, RP_ERR_NAME, dir, 0, text, what);
}

/* Selected entries in the order of their keys, and their keys (owner). */
static int folder_find(rp_store *store, const rp_store_selection *selection, rp_store_listing **out, rp_error *err) {
    gathering g = {.selection = selection};
    *out = NULL;
    if (!(g.listing = store_listing_new(err))) return RP_ERR_MEMORY;
    int rc = store_admin_each(store->admin, folder_gather, &g, err);
    g.listing->owner = g.keys;
    if (!rc && g.listing->n_entries == 0 && store_selection_is_named(g.selection))
        rc = folder_fail_none(store, &g, err);
    if (rc) rp_store_listing_free(g.listing);
    else *out = g.listing;
    return rc;
}

static int store_entry_compare_bytes(const void *a, const void *b) {
    const rp_store_entry *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : strcmp(x->key, y->key);
}

int folder_list(rp_store *store, const rp_store_selection *selection, const rp_store_page *page, rp_store_listing **out,
                rp_error *err) {
    int rc = folder_find(store, selection, out, err);
    if (rc) return rc;
    rp_store_listing *l = *out;
    size_t first = 0;
    while (page->after && first < l->n_entries && !store_page_follows(page, &((const base_key *)l->owner)[first]))
        first++;
    for (size_t i = first; first > 0 && i < l->n_entries; i++) store_listing_keep(l, i, i - first);
    store_listing_cut(l, l->n_entries - first);
    if (page->order == RP_STORE_BY_BYTES && l->n_entries > 0)
        qsort(l->entries, l->n_entries, sizeof(*l->entries), store_entry_compare_bytes);
    l->has_more = page->limit > 0 && l->n_entries > page->limit;
    if (l->has_more) store_listing_cut(l, page->limit);
    return RP_OK;
}

/* ---- Changes ---- */

/* Finds the entries to change in a folder that may be changed. */
static int folder_begin_change(rp_store *store, const rp_store_selection *selection, bool removes,
                               rp_store_listing **out, rp_error *err) {
    *out = NULL;
    int rc = store_admin_may_change(store->admin, removes, err);
    return rc ? rc : folder_find(store, selection, out, err);
}

static void folder_end_change(rp_store_listing *l, rp_store_listing **out, int rc) {
    BASE_ASSERT(rc || l);
    if (out) *out = rc ? NULL : l;
    if (rc || !out) rp_store_listing_free(l);
}

/* Commits the changed rows, or takes them back. */
static int folder_commit(rp_store *store, const rp_store_listing *l, int rc, rp_error *err) {
    if (!rc) return store_admin_commit(store->admin, err);
    if (l) record_index_roll_back(store->admin->index);
    return rc;
}

int folder_remove(rp_store *store, const rp_store_selection *selection, rp_store_listing **removed, rp_error *err) {
    rp_store_listing *l;
    int rc = folder_begin_change(store, selection, true, &l, err);
    for (size_t i = 0; !rc && i < l->n_entries; i++)
        rc = store_admin_remove(store->admin, &((const base_key *)l->owner)[i], err);
    if (l) { /* after an error, too: files are unlinked */
        int committed = store_admin_commit_removals(store->admin, &l->index_unwritten, rc ? NULL : err);
        if (!rc) rc = committed;
    }
    folder_end_change(l, removed, rc);
    return rc;
}

/* Leaves only what is of modules in a listing and its keys. */
static int listing_keep_modules(rp_store_listing *l, rp_error *err) {
    base_key *keys = l->owner;
    size_t n = 0;
    for (size_t i = 0; i < l->n_entries; i++) {
        if (!store_entry_is_of_module(&l->entries[i])) continue;
        store_listing_keep(l, i, n);
        keys[n++] = keys[i];
    }
    store_listing_cut(l, n);
    return n > 0 ? RP_OK : store_fail_pin_texts(err);
}

int folder_pin(rp_store *store, const rp_store_selection *selection, bool pinned, rp_store_listing **changed,
               rp_error *err) {
    rp_store_listing *l;
    int rc = folder_begin_change(store, selection, false, &l, err);
    if (!rc && pinned) rc = listing_keep_modules(l, err);
    for (size_t i = 0; !rc && i < l->n_entries; i++) {
        rc = store_admin_pin(store->admin, &((const base_key *)l->owner)[i], pinned, err);
        l->entries[i].pinned = pinned;
        store_entry_update_expired(&l->entries[i]);
    }
    rc = folder_commit(store, l, rc, err);
    folder_end_change(l, changed, rc);
    return rc;
}

int folder_set_ttl(rp_store *store, const rp_store_selection *selection, int64_t ttl_s, rp_store_listing **changed,
                   rp_error *err) {
    BASE_ASSERT(ttl_s >= 0 && ttl_s <= RP_STORE_MAX_TTL_S); /* rp_store_set_ttl */
    rp_store_listing *l;
    int64_t expires = ttl_s ? (int64_t)time(NULL) + ttl_s : 0;
    int rc = folder_begin_change(store, selection, false, &l, err);
    for (size_t i = 0; !rc && i < l->n_entries; i++) {
        rc = store_admin_set_expiry(store->admin, &((const base_key *)l->owner)[i], expires, err);
        l->entries[i].expires = expires;
        store_entry_update_expired(&l->entries[i]);
    }
    rc = folder_commit(store, l, rc, err);
    folder_end_change(l, changed, rc);
    return rc;
}
