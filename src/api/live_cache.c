/* SPDX-License-Identifier: Apache-2.0 */
/* live_cache.c: what an engine that runs keeps, for its operator: listed and changed on the engine's thread, between two steps.
 *
 * Of a listing only what is told is held, twice that at most while the entries are looked at.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "api/cache_selection.h"
#include "engine/engine_internal.h"

typedef enum live_action { LIVE_PIN, LIVE_TTL, LIVE_REMOVE } live_action;

/* What is wanted of the engine's thread. */
typedef struct live_command {
    const rp_cache_selection *selection;
    rp_cache_page page;
    rp_cache_listing *listing; /* NULL: a change */
    live_action change;
    bool pinned;
    int64_t ttl_s;
    span_about *found; /* labels are the store's */
    size_t n, cap;
    size_t n_meant;
    size_t n_changed;
    span_sync sync; /* of what was removed */
    int rc;
    rp_error err;
} live_command;

/* ---- which ---- */

/* As far as a selection looks at it, or all of it. */
static rp_cache_entry span_about_describe(const span_about *a, bool whole, const rp_cache_selection *s) {
    rp_cache_entry e = {.kind = a->kind == RECORD_MODULE ? RP_CACHE_MODULE : RP_CACHE_TEXT, .label = a->label, .fault = "",
                        .expired = a->expired};
    if (whole || s->key) base_key_hex(&a->key, e.key, CACHE_KEY_DIGITS);
    if (!whole) return e;
    e.pinned = a->pinned;
    e.in_ram = a->ram_bytes > 0;
    e.on_disk = a->disk_bytes > 0;
    e.in_use = a->held;
    e.n_tokens = a->n_tokens;
    e.ram_bytes = a->ram_bytes;
    e.bytes = a->ram_bytes + a->disk_bytes;
    e.cost_us = a->cost_us;
    e.uses = a->uses;
    e.last_use = a->last_use;
    e.expires = a->expires;
    return e;
}

static int live_cache_compare_keys(const void *a, const void *b) {
    return memcmp(&((const span_about *)a)->key, &((const span_about *)b)->key, sizeof(base_key));
}

static int live_cache_compare_bytes(const void *a, const void *b) {
    const span_about *x = a, *y = b;
    uint64_t m = x->ram_bytes + x->disk_bytes, n = y->ram_bytes + y->disk_bytes;
    return m != n ? (m < n) - (m > n) : live_cache_compare_keys(a, b);
}

/* Leaves the first ones. */
static void live_command_cut(live_command *r) {
    if (r->n > 0) qsort(r->found, r->n, sizeof(*r->found), r->page.order == RP_CACHE_BY_BYTES ? live_cache_compare_bytes : live_cache_compare_keys);
    r->n = BASE_MIN(r->n, r->page.limit);
}

static bool live_command_is_after(const live_command *r, const span_about *a) {
    char key[CACHE_KEY_DIGITS + 1];
    if (!r->page.after) return true;
    base_key_hex(&a->key, key, CACHE_KEY_DIGITS);
    return strcmp(key, r->page.after) > 0;
}

/* A span_store_about_fn. */
static void live_cache_examine(void *user, const span_about *about) {
    live_command *r = user;
    rp_cache_entry e = span_about_describe(about, false, r->selection);
    if (r->rc || !cache_selection_means(r->selection, &e) || !live_command_is_after(r, about)) return;
    r->n_meant++;
    if (r->listing && r->n == 2 * r->page.limit) live_command_cut(r);
    if (base_grow((void **)&r->found, &r->cap, r->n + 1, SPAN_STORE_MAX, sizeof(*r->found)))
        r->rc = base_fail_memory(&r->err, r->cap * sizeof(*r->found), "a list of store entries");
    else r->found[r->n++] = *about;
}

/* ---- on the engine's thread ---- */

static int fill_listing(live_command *r) {
    rp_cache_listing *l = r->listing;
    live_command_cut(r);
    l->has_more = r->n_meant > r->n;
    if (r->n == 0) return RP_OK;
    if (!(l->entries = base_calloc(r->n, sizeof(*l->entries)))) return base_fail_memory(&r->err, r->n * sizeof(*l->entries), "a listing");
    for (size_t i = 0; i < r->n; i++) {
        rp_cache_entry e = span_about_describe(&r->found[i], true, r->selection);
        if (e.label[0] && !(e.label = base_strdup(e.label))) return base_fail_memory(&r->err, RECORD_MAX_LABEL, "a listing");
        l->entries[l->n_entries++] = e;
    }
    return RP_OK;
}

static int live_command_fail_none(live_command *r) {
    const rp_cache_selection *s = r->selection;
    return base_fail(&r->err, RP_ERR_NAME, s->name ? "no entry of '%s'"
                                                   : "no entry with a key that begins with '%s'", s->name ? s->name : s->key);
}

static bool change_one(rp_engine *e, const live_command *r, const base_key *key) {
    if (r->change == LIVE_PIN) return span_store_pin(e->store, key, r->pinned);
    if (r->change == LIVE_TTL) return span_store_set_ttl(e->store, key, r->ttl_s);
    return span_store_remove(e->store, key);
}

static int live_cache_change(rp_engine *e, live_command *r) {
    if (span_store_is_read_only(e->store))
        return base_fail(&r->err, RP_ERR_CONFLICT, "the store is open read-only: entries cannot be changed");
    for (size_t i = 0; i < r->n; i++) r->n_changed += change_one(e, r, &r->found[i].key);
    if (r->n > 0 && r->n_changed == 0 && r->change == LIVE_PIN && r->pinned)
        return base_fail(&r->err, RP_ERR_INVALID,
                         "prompts and answers cannot be pinned, because they are useless without their prefix: name a module");
    if (r->change == LIVE_REMOVE) span_store_sync(e->store, &r->sync);
    e->budget_epoch++; /* there may be room */
    return RP_OK;
}

static void live_cache_run(rp_engine *e, void *arg) {
    live_command *r = arg;
    r->sync.done = true;
    span_store_each(e->store, live_cache_examine, r);
    if (!r->rc && r->n_meant == 0 && cache_selection_is_named(r->selection) && !r->page.after) r->rc = live_command_fail_none(r);
    if (!r->rc) r->rc = r->listing ? fill_listing(r) : live_cache_change(e, r);
    base_free(r->found);
}

/* What was removed is gone from the disk, or that failed: an engine_command_is_over. */
static bool live_cache_is_over(rp_engine *e, const void *arg) {
    (void)e;
    return ((const live_command *)arg)->sync.done;
}

/* ---- for callers ---- */

static int live_cache_check(const rp_cache_selection *s, rp_error *err) {
    if (s->model) return base_fail(err, RP_ERR_INVALID, "an engine caches KV of its own model only: leave the model out");
    return cache_selection_check(s, err);
}

static int check_page(const rp_cache_page *p, rp_error *err) {
    if (p->limit > RP_CACHE_MOST_LISTED)
        return base_fail(err, RP_ERR_INVALID, "limit of %zu entries: give at most %d", p->limit, RP_CACHE_MOST_LISTED);
    if (p->after && (p->order != RP_CACHE_BY_KEY || strlen(p->after) != CACHE_KEY_DIGITS))
        return base_fail(err, RP_ERR_INVALID, "to continue a listing give a whole key, and sort by key");
    return RP_OK;
}

static int do_command(rp_engine *e, live_command *r, rp_error *err) {
    int rc = engine_do_until(e, live_cache_run, live_cache_is_over, r, err);
    if (rc) return rc;
    if (!r->rc && r->sync.rc)
        r->rc = base_fail(&r->err, RP_ERR_IO, "%zu entries are unlinked, but may still be on disk: %s: end the engine, then use rp_cache_remove",
                          r->n_changed, r->sync.err.message);
    if (r->rc && err) *err = r->err;
    return r->rc;
}

int rp_engine_cache_list(rp_engine *e, const rp_cache_selection *selection, const rp_cache_page *page, rp_cache_listing **out,
                         rp_error *err) {
    static const rp_cache_selection everything = {.all = true};
    live_command r = {.selection = selection ? selection : &everything};
    *out = NULL;
    if (page) r.page = *page;
    int rc = live_cache_check(r.selection, err);
    if (!rc) rc = check_page(&r.page, err);
    if (rc) return rc;
    if (r.page.limit == 0) r.page.limit = RP_CACHE_MOST_LISTED;
    if (!(r.listing = base_calloc(1, sizeof(*r.listing)))) return base_fail_memory(err, sizeof(*r.listing), "a listing");
    rc = do_command(e, &r, err);
    if (rc) rp_cache_listing_free(r.listing);
    else *out = r.listing;
    return rc;
}

static int change_all(rp_engine *e, const rp_cache_selection *selection, live_command *r, size_t *changed, rp_error *err) {
    if (!selection) return base_fail(err, RP_ERR_INVALID, "a selection is needed");
    int rc = live_cache_check(selection, err);
    if (rc) return rc;
    r->selection = selection;
    rc = do_command(e, r, err);
    if (changed) *changed = r->n_changed;
    return rc;
}

int rp_engine_cache_pin(rp_engine *e, const rp_cache_selection *selection, bool pinned, size_t *changed, rp_error *err) {
    return change_all(e, selection, &(live_command){.change = LIVE_PIN, .pinned = pinned}, changed, err);
}

int rp_engine_cache_set_ttl(rp_engine *e, const rp_cache_selection *selection, int64_t ttl_s, size_t *changed, rp_error *err) {
    if (ttl_s < 0 || ttl_s > RP_CACHE_MOST_TTL_S)
        return base_fail(err, RP_ERR_INVALID, "a time to live of %lld seconds: give 0 (none) to %lld", (long long)ttl_s,
                         (long long)RP_CACHE_MOST_TTL_S);
    return change_all(e, selection, &(live_command){.change = LIVE_TTL, .ttl_s = ttl_s}, changed, err);
}

int rp_engine_cache_remove(rp_engine *e, const rp_cache_selection *selection, size_t *removed, rp_error *err) {
    return change_all(e, selection, &(live_command){.change = LIVE_REMOVE}, removed, err);
}
