/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: the functions of reprise_store.h: arguments are checked here, then folder.c or live.c does the work. */
#include "api/store.h"

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "store/disk/store_bundle.h"

static const rp_store_selection everything = {.all = true};

void rp_store_options_init(rp_store_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_store_options){.read_only = false}, sizeof(rp_store_options));
}

int rp_store_open(rp_store **out, const char *dir, const rp_store_options *options, rp_error *err) {
    rp_store_options o = rp_store_options_defaults();
    if (!out || !dir) return base_fail(err, RP_ERR_INVALID, "rp_store_open: out and dir are needed");
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), options, "rp_store_options", err);
    if (rc) return rc;
    rp_store *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a store");
    rc = store_admin_open(&s->admin, dir, &o, err);
    BASE_ASSERT(!rc == (s->admin != NULL));
    if (rc) base_free(s);
    else *out = s;
    return rc;
}

int rp_store_attach(rp_store **out, rp_engine *engine, rp_error *err) {
    if (!out || !engine) return base_fail(err, RP_ERR_INVALID, "rp_store_attach: out and engine are needed");
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "a store");
    (*out)->engine = engine;
    return RP_OK;
}

void rp_store_close(rp_store *s) {
    if (s && s->admin) store_admin_close(s->admin);
    base_free(s);
}

/* ---- Entries ---- */

int rp_store_list(rp_store *s, const rp_store_selection *selection, const rp_store_page *page, rp_store_listing **out,
                  rp_error *err) {
    static const rp_store_page whole = {.order = RP_STORE_BY_KEY};
    if (!s || !out) return base_fail(err, RP_ERR_INVALID, "rp_store_list: store and out are needed");
    *out = NULL;
    if (!selection) selection = &everything;
    if (!page) page = &whole;
    int rc = store_selection_check(selection, err);
    if (!rc) rc = store_page_check(page, s->engine != NULL, err);
    if (rc) return rc;
    return s->engine ? live_list(s->engine, selection, page, out, err) : folder_list(s, selection, page, out, err);
}

/* Checks a change's arguments; *changed (may be NULL) becomes NULL. */
static int store_check_change(const rp_store *s, const char *what, const rp_store_selection *selection,
                              rp_store_listing **changed, rp_error *err) {
    if (changed) *changed = NULL;
    if (!s || !selection) return base_fail(err, RP_ERR_INVALID, "%s: store and selection are needed", what);
    return store_selection_check(selection, err);
}

int rp_store_pin(rp_store *s, const rp_store_selection *selection, bool pinned, rp_store_listing **changed,
                 rp_error *err) {
    int rc = store_check_change(s, "rp_store_pin", selection, changed, err);
    if (rc) return rc;
    return s->engine ? live_pin(s->engine, selection, pinned, changed, err)
                     : folder_pin(s, selection, pinned, changed, err);
}

int rp_store_set_ttl(rp_store *s, const rp_store_selection *selection, int64_t ttl_s, rp_store_listing **changed,
                     rp_error *err) {
    int rc = store_check_change(s, "rp_store_set_ttl", selection, changed, err);
    if (rc) return rc;
    if (ttl_s < 0 || ttl_s > RP_STORE_MAX_TTL_S)
        return base_fail(err, RP_ERR_INVALID, "a time to live of %lld seconds: give 0 (none) to %lld", (long long)ttl_s,
                         (long long)RP_STORE_MAX_TTL_S);
    return s->engine ? live_set_ttl(s->engine, selection, ttl_s, changed, err)
                     : folder_set_ttl(s, selection, ttl_s, changed, err);
}

int rp_store_remove(rp_store *s, const rp_store_selection *selection, rp_store_listing **removed, rp_error *err) {
    int rc = store_check_change(s, "rp_store_remove", selection, removed, err);
    if (rc) return rc;
    return s->engine ? live_remove(s->engine, selection, removed, err) : folder_remove(s, selection, removed, err);
}

/* ---- Folders ---- */

const char *rp_store_flaw_name(rp_store_flaw flaw) {
    static const char *const names[RP_N_STORE_FLAWS] = {
        [RP_STORE_BAD_RECORD] = "record",
        [RP_STORE_BAD_ROW] = "row",
        [RP_STORE_BAD_INDEX] = "index",
        [RP_STORE_WITHOUT_FILE] = "without_file",
        [RP_STORE_WITHOUT_ROW] = "without_row",
        [RP_STORE_LEFTOVER] = "leftover",
        [RP_STORE_OTHER_KV] = "other_kv",
        [RP_STORE_OLD_ROW] = "old_row",
    };
    return (unsigned)flaw < RP_N_STORE_FLAWS ? names[flaw] : NULL;
}

bool rp_store_flaw_is_damage(rp_store_flaw flaw) {
    return flaw == RP_STORE_BAD_RECORD || flaw == RP_STORE_BAD_ROW || flaw == RP_STORE_BAD_INDEX ||
           flaw == RP_STORE_OTHER_KV;
}

int store_check_folder(const rp_store *s, const char *what, rp_error *err) {
    if (!s) return base_fail(err, RP_ERR_INVALID, "%s: store is needed", what);
    if (s->engine)
        return base_fail(err, RP_ERR_CONFLICT, "%s: the store belongs to a running engine: open its folder instead",
                         what);
    BASE_ASSERT(s->admin); /* it is one of the two */
    return RP_OK;
}

int rp_store_get_usage(rp_store *s, rp_store_usage *out, rp_error *err) {
    rp_store_usage own;
    int rc = store_check_folder(s, "rp_store_get_usage", err);
    if (!rc) rc = base_sized_check(out, "rp_store_usage", err);
    if (!rc) rc = store_admin_stats(s->admin, &own, err);
    if (!rc) base_sized_write(out, &own, sizeof(own));
    return rc;
}

int rp_store_verify(rp_store *s, rp_on_progress on_progress, rp_on_store_finding on_finding, void *user,
                    rp_store_verification *out, rp_error *err) {
    rp_store_verification own = {0};
    int rc = store_check_folder(s, "rp_store_verify", err);
    if (!rc) rc = base_sized_check(out, "rp_store_verification", err);
    if (rc) return rc;
    rc = store_admin_verify(s->admin, on_progress, on_finding, user, &own, err);
    base_sized_write(out, &own, sizeof(own));
    return rc;
}

int rp_store_gc(rp_store *s, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err) {
    rp_store_cleaning own = {0};
    int rc = store_check_folder(s, "rp_store_gc", err);
    if (!rc) rc = base_sized_check(out, "rp_store_cleaning", err);
    if (!rc) rc = store_admin_may_change(s->admin, true, err);
    if (rc) return rc;
    rc = store_admin_gc(s->admin, on_progress, user, &own, err);
    base_sized_write(out, &own, sizeof(own));
    return rc;
}

int rp_store_rebuild(rp_store *s, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err) {
    rp_store_cleaning own = {0};
    int rc = store_check_folder(s, "rp_store_rebuild", err);
    if (!rc) rc = base_sized_check(out, "rp_store_cleaning", err);
    if (!rc) rc = store_admin_may_change(s->admin, false, err);
    if (rc) return rc;
    rc = store_admin_rebuild(s->admin, on_progress, user, &own, err);
    base_sized_write(out, &own, sizeof(own));
    return rc;
}

int rp_store_export(rp_store *s, const char *name, const char *path, rp_on_progress on_progress, void *user,
                    rp_store_transfer *out, rp_error *err) {
    rp_store_transfer own = {0};
    rp_error unwanted;
    if (!name || !path) return base_fail(err, RP_ERR_INVALID, "rp_store_export: name and path are needed");
    int rc = store_check_folder(s, "rp_store_export", err);
    if (!rc) rc = base_sized_check(out, "rp_store_transfer", err);
    if (rc) return rc;
    rc = store_bundle_export(s->admin, name, path, on_progress, user, &own, err ? err : &unwanted);
    base_sized_write(out, &own, sizeof(own));
    return rc;
}

int rp_store_import(rp_store *s, const char *path, rp_on_progress on_progress, void *user, rp_store_transfer *out,
                    rp_error *err) {
    rp_store_transfer own = {0};
    rp_error unwanted;
    if (!path) return base_fail(err, RP_ERR_INVALID, "rp_store_import: path is needed");
    int rc = store_check_folder(s, "rp_store_import", err);
    if (!rc) rc = base_sized_check(out, "rp_store_transfer", err);
    if (!rc) rc = store_admin_may_change(s->admin, false, err);
    if (rc) return rc;
    rc = store_bundle_import(s->admin, path, on_progress, user, &own, err ? err : &unwanted);
    base_sized_write(out, &own, sizeof(own));
    return rc;
}
