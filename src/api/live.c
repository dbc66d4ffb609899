/* SPDX-License-Identifier: Apache-2.0 */
/* live.c: entries of a running engine's store, for its operator: listed and changed on the engine's thread, between two
 * steps.
 *
 * A listing holds at most twice its limit of entries while the store is scanned.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/store.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "kv/kv_format.h"
#include "reprise_store.h"
#include "store/record/record.h"
#include "store/span_store.h"

typedef enum live_action { LIVE_LIST,
                           LIVE_PIN,
                           LIVE_TTL,
                           LIVE_REMOVE } live_action;

/* A command for the engine's thread. */
typedef struct live_command {
    const rp_store_selection *selection;
    rp_store_page page;
    rp_store_listing *listing; /* of the selected entries; of a change: of the changed ones, NULL: not wanted */
    live_action action;
    bool pinned;
    int64_t ttl_s;
    store_item *found; /* n selected entries; their labels belong to the store */
    size_t n, cap;
    size_t n_selected; /* entries beyond the page included */
    size_t n_changed;
    span_sync sync;  /* of a change */
    size_t n_unkept; /* pinned entries without a record on disk */
    int rc;
    rp_error err;
} live_command;

/* ---- selection ---- */

static const base_key *key_of(const store_item *item) { return &item->row.record.key; }

static int store_item_compare_keys(const void *a, const void *b) {
    return memcmp(key_of(a), key_of(b), sizeof(base_key));
}

static int store_item_compare_bytes(const void *a, const void *b) {
    const store_item *x = a, *y = b;
    uint64_t m = x->ram_bytes + x->row.bytes, n = y->ram_bytes + y->row.bytes;
    return m != n ? (m < n) - (m > n) : store_item_compare_keys(a, b);
}

/* Keeps the first `limit` entries in the page's order. */
static void live_command_cut(live_command *r) {
    bool by_bytes = r->page.order == RP_STORE_BY_BYTES;
    if (r->n > 0)
        qsort(r->found, r->n, sizeof(*r->found), by_bytes ? store_item_compare_bytes : store_item_compare_keys);
    r->n = BASE_MIN(r->n, r->page.limit);
}

/* A span_store_each_fn. */
static void live_entries_examine(void *user, const store_item *item) {
    live_command *r = user;
    const rp_store_entry e = store_item_describe(item, r->selection->key != NULL);
    if (r->rc || !store_selection_matches(r->selection, &e) || !store_page_follows(&r->page, key_of(item))) return;
    r->n_selected++;
    if (r->action == LIVE_LIST && r->n == 2 * r->page.limit) live_command_cut(r);
    BASE_ASSERT(r->action != LIVE_LIST || r->n < 2 * r->page.limit);
    if (base_grow((void **)&r->found, &r->cap, r->n + 1, SPAN_STORE_MAX, sizeof(*r->found)))
        r->rc = base_fail_memory(&r->err, r->cap * sizeof(*r->found), "a list of store entries");
    else r->found[r->n++] = *item;
}

/* ---- on the engine's thread ---- */

static int live_command_fill_listing(live_command *r) {
    rp_store_listing *l = r->listing;
    live_command_cut(r);
    BASE_ASSERT(r->n == r->n_selected || (r->action == LIVE_LIST && r->n < r->n_selected)); /* a change has no page */
    l->has_more = r->n_selected > r->n;
    if (r->n == 0) return RP_OK;
    if (!(l->entries = base_calloc(r->n, sizeof(*l->entries))))
        return base_fail_memory(&r->err, r->n * sizeof(*l->entries), "a listing");
    for (size_t i = 0; i < r->n; i++) {
        rp_store_entry e = store_item_describe(&r->found[i], true);
        if (e.label[0] && !(e.label = base_strdup(e.label)))
            return base_fail_memory(&r->err, RECORD_MAX_LABEL, "a listing");
        l->entries[l->n_entries++] = e;
    }
    return RP_OK;
}

/* Changes the found entries. The listing, which has all of them, keeps the changed ones, as they are now. */
static int live_command_change(rp_engine *e, live_command *r) {
    BASE_ASSERT(r->action != LIVE_LIST && (!r->listing || r->listing->n_entries == r->n));
    if (span_store_is_read_only(e->store))
        return base_fail(&r->err, RP_ERR_CONFLICT, "the store is open read-only: entries cannot be changed");
    for (size_t i = 0; i < r->n; i++) {
        const base_key *key = key_of(&r->found[i]);
        bool changed;
        if (r->action == LIVE_PIN) changed = span_store_pin(e->store, key, r->pinned);
        else if (r->action == LIVE_TTL) changed = span_store_set_ttl(e->store, key, r->ttl_s);
        else changed = span_store_remove(e->store, key);
        if (r->listing && changed) store_listing_keep(r->listing, i, r->n_changed);
        r->n_changed += changed;
    }
    if (r->listing) store_listing_cut(r->listing, r->n_changed);
    for (size_t i = 0; r->listing && i < r->n_changed; i++) {
        rp_store_entry *entry = &r->listing->entries[i];
        if (r->action == LIVE_PIN) entry->pinned = r->pinned;
        if (r->action == LIVE_TTL) entry->expires = r->ttl_s ? (int64_t)time(NULL) + r->ttl_s : 0;
        if (r->action != LIVE_REMOVE) store_entry_update_expired(entry);
    }
    if (r->n > 0 && r->n_changed == 0 && r->action == LIVE_PIN && r->pinned) return store_fail_pin_texts(&r->err);
    span_store_sync(e->store, &r->sync, r->action == LIVE_PIN && r->pinned);
    e->budget_epoch++; /* jobs that wait for memory try again */
    return RP_OK;
}

static void live_command_run(rp_engine *e, void *arg) {
    live_command *r = arg;
    r->sync.done = true;
    span_store_each(e->store, live_entries_examine, r);
    const rp_store_selection *s = r->selection;
    BASE_ASSERT(!s->model); /* live_command_do: it would have no entry, and the message no text */
    if (!r->rc && r->n_selected == 0 && store_selection_is_named(s) && !r->page.after)
        r->rc = base_fail(&r->err, RP_ERR_NAME,
                          s->name ? "no entry of '%s'" : "no entry with a key that begins with '%s'",
                          s->name ? s->name : s->key);
    if (!r->rc && r->listing) r->rc = live_command_fill_listing(r); /* before a change: it may free labels */
    if (!r->rc && r->action != LIVE_LIST) r->rc = live_command_change(e, r);
}

/* The changes are on the disk, or that failed: an engine_command_is_over. */
static bool live_command_is_over(rp_engine *e, void *arg) {
    live_command *r = arg;
    if (!r->sync.done) return false;
    r->n_unkept = 0;
    for (size_t i = 0; i < r->n && r->action == LIVE_PIN && r->pinned; i++)
        r->n_unkept +=
            record_is_of_module(r->found[i].row.record.kind) && !span_store_is_kept(e->store, key_of(&r->found[i]));
    return true;
}

/* ---- callers' threads ---- */

/* Runs a command. *out (may be NULL): its listing. */
static int live_command_do(rp_engine *e, live_command *r, rp_store_listing **out, rp_error *err) {
    if (r->selection->model)
        return base_fail(err, RP_ERR_INVALID, "an engine caches KV of its own model only: leave the model out");
    if (out && !(r->listing = store_listing_new(err))) return RP_ERR_MEMORY;
    int rc = engine_do_until(e, live_command_run, live_command_is_over, r, err);
    BASE_ASSERT(rc || r->sync.done); /* else the store has a pointer to it */
    base_free(r->found);
    if (!rc && !r->rc && r->sync.rc && r->action == LIVE_REMOVE)
        r->rc = base_fail(&r->err, RP_ERR_IO,
                          "%zu entries are unlinked, but may still be on disk: %s: end the engine, then remove them "
                          "from its folder",
                          r->n_changed, r->sync.err.message);
    else if (!rc && !r->rc && r->sync.rc)
        r->rc = base_fail(&r->err, RP_ERR_IO,
                          "%zu entries are changed until the engine ends, but not on disk: %s: try again",
                          r->n_changed, r->sync.err.message);
    BASE_ASSERT(rc || r->rc || r->n_unkept <= r->n_changed); /* each of them was pinned */
    if (!rc && !r->rc && r->n_unkept > 0)
        r->rc = base_fail(&r->err, RP_ERR_IO,
                          "%zu of %zu entries are pinned until the engine ends only: their records could not be "
                          "written to the store: "
                          "raise its disk limit, or see its log",
                          r->n_unkept, r->n_changed);
    if (!rc && (rc = r->rc) != RP_OK && err) *err = r->err;
    if (rc) rp_store_listing_free(r->listing);
    else if (out) *out = r->listing;
    return rc;
}

int live_list(rp_engine *e, const rp_store_selection *selection, const rp_store_page *page, rp_store_listing **out,
              rp_error *err) {
    live_command r = {.selection = selection, .page = *page, .action = LIVE_LIST};
    if (r.page.limit == 0) r.page.limit = RP_STORE_MAX_LISTED;
    BASE_ASSERT(r.page.limit <= RP_STORE_MAX_LISTED); /* store_page_check */
    return live_command_do(e, &r, out, err);
}

int live_pin(rp_engine *e, const rp_store_selection *selection, bool pinned, rp_store_listing **changed,
             rp_error *err) {
    live_command r = {.selection = selection, .page.limit = SPAN_STORE_MAX, .action = LIVE_PIN, .pinned = pinned};
    return live_command_do(e, &r, changed, err);
}

int live_set_ttl(rp_engine *e, const rp_store_selection *selection, int64_t ttl_s, rp_store_listing **changed,
                 rp_error *err) {
    BASE_ASSERT(ttl_s >= 0 && ttl_s <= RP_STORE_MAX_TTL_S); /* rp_store_set_ttl */
    live_command r = {.selection = selection, .page.limit = SPAN_STORE_MAX, .action = LIVE_TTL, .ttl_s = ttl_s};
    return live_command_do(e, &r, changed, err);
}

int live_remove(rp_engine *e, const rp_store_selection *selection, rp_store_listing **removed, rp_error *err) {
    live_command r = {.selection = selection, .page.limit = SPAN_STORE_MAX, .action = LIVE_REMOVE};
    return live_command_do(e, &r, removed, err);
}
