/* SPDX-License-Identifier: Apache-2.0 */
/* test_cache_store.c: stores on disk without a model (rp_store_*): records that an engine wrote are listed, counted,
 * verified, pinned, removed, cleaned, rebuilt and shipped, plain and encrypted; every error; and engines continue with
 * the rest. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "support/cache_world.h"
#include "support/record_forge.h"
#include "reprise_store.h"

#define N_MODULE_RECORDS 4 /* "cities" twice: before the module and after it */
#define PATH_BYTES (STORE_FOLDER_BYTES + 80)

static cache_world world;
static char dir[STORE_FOLDER_BYTES], other[STORE_FOLDER_BYTES], bundle[STORE_FOLDER_BYTES + 16];

static int open_all(void **state) {
    (void)state;
    cache_world_open(&world, false);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    cache_world_close(&world);
    return 0;
}

static int make_folders(void **state) {
    (void)state;
    store_folder_make(dir);
    store_folder_make(other);
    snprintf(bundle, sizeof bundle, "%s.rpb", dir);
    cache_world_fill(&world, dir, NULL);
    return 0;
}

static int remove_folders(void **state) {
    (void)state;
    store_folder_remove(dir);
    store_folder_remove(other);
    unlink(bundle);
    return 0;
}

/* The only record of a module; path: its file. */
static rp_store_entry one_of(const char *name, char *path) {
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l;
    rp_error err;
    assert_int_equal(rp_store_list(c, &(rp_store_selection){.name = name}, NULL, &l, &err), RP_OK);
    assert_true(l->n_entries > 0);
    rp_store_entry e = l->entries[0];
    e.label = name;
    cache_world_path(dir, &e, path);
    rp_store_listing_free(l);
    rp_store_close(c);
    return e;
}

static void sql(const char *folder, const char *text) {
    char path[PATH_BYTES];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/index.db", folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", text, sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void flip(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ 1, f);
    fclose(f);
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* ---- looking ---- */

static void is_listed(void **state) {
    (void)state;
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l = cache_world_list(c);
    rp_store_usage s = {.struct_size = sizeof(s)};
    size_t n_modules = 0;
    uint64_t bytes = 0, tokens = 0;
    for (size_t i = 0; i < l->n_entries; i++) {
        const rp_store_entry *e = &l->entries[i];
        n_modules += e->kind == RP_STORE_MODULE;
        bytes += e->bytes;
        tokens += (uint64_t)e->n_tokens;
        assert_int_equal(strlen(e->key), 64);
        assert_string_equal(e->model, l->entries[0].model);
        assert_int_equal(strlen(e->model), 64);
        assert_true(e->kind == RP_STORE_MODULE ? strncmp(e->label, "cities", 6) == 0 : e->label[0] == '\0');
        assert_true(i == 0 || strcmp(l->entries[i - 1].key, e->key) < 0);
        assert_true(e->n_tokens > 0 && e->last_use > 0 && e->last_use <= (int64_t)time(NULL));
        assert_true(!e->pinned && !e->expired && !e->encrypted && e->expires == 0 && e->fault[0] == '\0');
    }
    assert_true(n_modules >= N_MODULE_RECORDS && l->n_entries > n_modules);
    rp_error err = {0};
    assert_int_equal(rp_store_get_usage(c, &s, &err), RP_OK);
    assert_int_equal(s.records, l->n_entries);
    assert_int_equal(s.modules, n_modules);
    assert_int_equal(s.texts, l->n_entries - n_modules);
    assert_int_equal(s.record_bytes, bytes);
    assert_int_equal(s.module_bytes + s.text_bytes, bytes);
    assert_int_equal(s.tokens, tokens);
    assert_int_equal(s.encrypted + s.unreadable + s.pinned + s.expired + s.bad + s.leftovers, 0);
    assert_int_equal(s.broken + s.without_row + s.without_file, 0);
    assert_int_equal(s.owner, 0);
    rp_store_close(c);
    assert_int_equal(s.total_bytes, store_folder_bytes(dir));
    assert_non_null(l->entries[0].label); /* outlives the cache handle */
    rp_store_listing_free(l);
}

static size_t count(rp_store *c, const rp_store_selection *s) {
    rp_store_listing *l;
    rp_error err;
    if (rp_store_list(c, s, NULL, &l, &err)) return 0;
    size_t n = l->n_entries;
    rp_store_listing_free(l);
    return n;
}

static void selections(void **state) {
    (void)state;
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l = cache_world_list(c);
    char key[65], model[65];
    size_t all = l->n_entries, cities = count(c, &(rp_store_selection){.name = "cities"});
    strcpy(key, l->entries[1].key);
    strcpy(model, l->entries[1].model);
    assert_true(cities >= N_MODULE_RECORDS && cities < all);
    assert_int_equal(count(c, NULL), all);
    assert_int_equal(count(c, &(rp_store_selection){.all = true}), all);
    assert_int_equal(count(c, &(rp_store_selection){.name = "cities/plan"}), 3);
    assert_int_equal(count(c, &(rp_store_selection){.name = "cities/plan/"}), 3);
    assert_int_equal(count(c, &(rp_store_selection){.name = "cities/plan/miami"}), 1);
    assert_int_equal(count(c, &(rp_store_selection){.key = key}), 1);
    key[6] = '\0';
    assert_int_equal(count(c, &(rp_store_selection){.key = key}), 1);
    model[8] = '\0';
    assert_int_equal(count(c, &(rp_store_selection){.model = model}), all);
    assert_int_equal(count(c, &(rp_store_selection){.model = model, .name = "cities/plan"}), 3);
    assert_int_equal(count(c, &(rp_store_selection){.expired = true}), 0);
    static const struct {
        rp_store_selection s;
        int rc;
    } wrong[] = {
        {{.name = "citi"}, RP_ERR_NAME},
        {{.name = "cities/pla"}, RP_ERR_NAME},
        {{.name = ""}, RP_ERR_NAME},
        {{.name = "/"}, RP_ERR_NAME},
        {{.key = "zzzz"}, RP_ERR_INVALID},
        {{.key = "abc"}, RP_ERR_INVALID},
        {{.key = "ABCD"}, RP_ERR_INVALID},
        {{.model = ""}, RP_ERR_INVALID},
        {{.all = false}, RP_ERR_INVALID},
        {{.key = "00000000"}, RP_ERR_NAME},
        {{.model = "00000000"}, RP_ERR_NAME},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rp_store_listing *none = l;
        rp_error err = {0};
        assert_int_equal(rp_store_list(c, &wrong[i].s, NULL, &none, &err), wrong[i].rc);
        assert_null(none);
        assert_true(err.message[0] != '\0' && !strchr(err.message, '\n'));
    }
    rp_store_listing_free(l);
    rp_store_close(c);
}

static void fails_to_open(const char *where, const rp_store_options *o, int rc) {
    rp_store *c = NULL;
    rp_error err = {0};
    assert_int_equal(rp_store_open(&c, where, o, &err), rc);
    assert_null(c);
    assert_true(err.message[0] != '\0' && !strchr(err.message, '\n'));
}

static void opening_fails(void **state) {
    (void)state;
    char path[PATH_BYTES];
    rp_store_options to_read = {.struct_size = sizeof(to_read), .read_only = true},
                     no_key = {.struct_size = sizeof(no_key), .key_file = "/nowhere/key"};
    fails_to_open("/nowhere/store", NULL, RP_ERR_IO);
    fails_to_open("/nowhere/store", &to_read, RP_ERR_IO);
    fails_to_open(other, NULL, RP_ERR_FORMAT);
    fails_to_open(other, &to_read, RP_ERR_FORMAT);
    fails_to_open(dir, &no_key, RP_ERR_IO);
    fails_to_open("/nowhere/store", &(rp_store_options){.struct_size = sizeof(rp_store_options), .create = true},
                  RP_ERR_IO);
    snprintf(path, sizeof path, "%s/new", other);
    rp_store_close(cache_world_cache(path, NULL, false));
    assert_true(exists(path));
}

/* The store of a running engine can be inspected, not changed. */
static void one_changes_it(void **state) {
    (void)state;
    rp_error err = {0};
    rp_store_listing *l = NULL;
    rp_store_usage s = {.struct_size = sizeof(s)};
    rp_store_verification v = {.struct_size = sizeof(v)};
    rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
    rp_store_transfer shipment = {.struct_size = sizeof(shipment)};
    rp_store_selection all = {.all = true};
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    assert_non_null(e);
    fails_to_open(dir, NULL, RP_ERR_CONFLICT);
    rp_store *c = cache_world_cache(dir, NULL, true);
    assert_int_equal(rp_store_get_usage(c, &s, &err), RP_OK);
    assert_int_equal(s.owner, getpid());
    assert_int_equal(rp_store_verify(c, NULL, NULL, NULL, &v, &err), RP_OK);
    assert_int_equal(v.records, s.records);
    assert_false(v.is_whole);
    assert_int_equal(rp_store_export(c, "cities", bundle, NULL, NULL, &shipment, &err), RP_OK);
    assert_int_equal(rp_store_remove(c, &all, &l, &err), RP_ERR_CONFLICT);
    assert_int_equal(rp_store_pin(c, &all, true, &l, &err), RP_ERR_CONFLICT);
    assert_int_equal(rp_store_gc(c, NULL, NULL, &cleaning, &err), RP_ERR_CONFLICT);
    assert_int_equal(rp_store_rebuild(c, NULL, NULL, &cleaning, &err), RP_ERR_CONFLICT);
    assert_int_equal(rp_store_import(c, bundle, NULL, NULL, &shipment, &err), RP_ERR_CONFLICT);
    assert_null(l);
    rp_store_close(c);
    assert_true(cache_world_ask(&world, e, NULL, NULL));
    rp_engine_free(e);
    c = cache_world_cache(dir, NULL, false); /* and an open cache blocks an engine */
    assert_null(cache_world_engine(&world, dir, NULL, &err));
    assert_int_equal(err.code, RP_ERR_CONFLICT);
    rp_store_close(c);
}

/* The index cannot be opened with its log, as on a read-only file system. */
static void index_is_read_as_it_lies(void **state) {
    (void)state;
    char path[PATH_BYTES], key[PATH_BYTES];
    rp_store_entry e = one_of("cities/plan/miami", key);
    sql(dir, "UPDATE records SET uses = 4242; PRAGMA wal_checkpoint(TRUNCATE)");
    snprintf(path, sizeof path, "%s/index.db-wal", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l;
    rp_error err;
    assert_int_equal(rp_store_list(c, &(rp_store_selection){.key = e.key}, NULL, &l, &err), RP_OK);
    assert_int_equal(l->entries[0].uses, 4242);
    rp_store_listing_free(l);
    rp_store_close(c);
    rmdir(path);
}

/* Without an index, the records' own headers are listed. */
static void files_tell_of_themselves(void **state) {
    (void)state;
    char path[PATH_BYTES];
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *before = cache_world_list(c), *after;
    rp_store_close(c);
    snprintf(path, sizeof path, "%s/index.db", dir);
    unlink(path);
    c = cache_world_cache(dir, NULL, true);
    after = cache_world_list(c);
    assert_true(cache_world_same(before, after));
    assert_false(exists(path));
    rp_store_listing_free(before);
    rp_store_listing_free(after);
    rp_store_close(c);
}

/* ---- verify ---- */

typedef struct findings {
    int n;
    rp_store_flaw flaw;
    char reason[32], path[512];
} findings;

static void on_finding(void *user, const rp_store_finding *f) {
    findings *all = user;
    all->n++;
    all->flaw = f->flaw;
    snprintf(all->reason, sizeof all->reason, "%s", f->reason);
    snprintf(all->path, sizeof all->path, "%s", f->path);
    assert_true(f->message[0] != '\0' && !strchr(f->message, '\n') && rp_store_flaw_name(f->flaw));
}

static findings verify(const char *folder, const char *key_file) {
    findings all = {0};
    rp_store_verification v = {.struct_size = sizeof(v)};
    rp_error err;
    uint64_t flaws = 0;
    rp_store *c = cache_world_cache(folder, key_file, true);
    assert_int_equal(rp_store_verify(c, NULL, on_finding, &all, &v, &err), RP_OK);
    for (int i = 0; i < RP_N_STORE_FLAWS; i++) flaws += v.flaws[i];
    assert_int_equal(flaws, all.n);
    assert_true(v.is_whole);
    rp_store_close(c);
    return all;
}

static void expect_one(rp_store_flaw flaw, const char *reason, const char *path) {
    findings f = verify(dir, NULL);
    if (f.n != 1 || f.flaw != flaw)
        fail_msg("%d findings, the last one %s (%s) of %s", f.n, rp_store_flaw_name(f.flaw), f.reason, f.path);
    assert_string_equal(f.reason, reason);
    assert_string_equal(f.path, path);
}

static void damage_is_found(void **state) {
    (void)state;
    static const struct {
        long at;
        const char *reason;
    } flips[] = {{3, "damaged"}, {9, "version"}, {70, "damaged"}, {5000, "damaged"}, {-1, "damaged"}};
    char path[PATH_BYTES], moved[PATH_BYTES];
    rp_store_entry e = one_of("cities/plan/miami", path);
    assert_int_equal(verify(dir, NULL).n, 0);
    for (size_t i = 0; i < sizeof flips / sizeof flips[0]; i++) {
        flip(path, flips[i].at);
        expect_one(RP_STORE_BAD_RECORD, flips[i].reason, path);
        flip(path, flips[i].at);
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    forged whole = forge_load(path);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    expect_one(RP_STORE_BAD_RECORD, "truncated", path);
    forge_save(path, whole.bytes, whole.n);
    forge_free(&whole);
    char target = e.key[63] == '0' ? '1' : '0'; /* under another name */
    strcpy(moved, path);
    moved[strlen(moved) - 5] = target;
    assert_int_equal(link(path, moved), 0);
    expect_one(RP_STORE_BAD_RECORD, "key", moved);
    unlink(moved);
    assert_int_equal(verify(dir, NULL).n, 0);
}

static void index_is_compared(void **state) {
    (void)state;
    char path[PATH_BYTES], moved[PATH_BYTES + 16], index[PATH_BYTES];
    rp_store_entry e = one_of("cities/plan/miami", path);
    snprintf(moved, sizeof moved, "%s/elsewhere", dir);
    snprintf(index, sizeof index, "%s/index.db", dir);
    assert_int_equal(rename(path, moved), 0);
    expect_one(RP_STORE_WITHOUT_FILE, "", path);
    assert_int_equal(rename(moved, path), 0);
    char text[256];
    snprintf(text, sizeof text, "UPDATE records SET first_slot = first_slot, cost_us = cost_us + 1 WHERE label = '%s'",
             e.label);
    sql(dir, text);
    expect_one(RP_STORE_OLD_ROW, "", path); /* as after a kill between writing a record again and its row */
    rp_store *cleaned = cache_world_cache(dir, NULL, false);
    rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
    rp_error err = {0};
    assert_int_equal(rp_store_gc(cleaned, NULL, NULL, &cleaning, &err), RP_OK);
    assert_int_equal(cleaning.rows_corrected, 1);
    rp_store_close(cleaned);
    assert_int_equal(verify(dir, NULL).n, 0);
    snprintf(text, sizeof text, "UPDATE records SET pos = pos + 1 WHERE label = '%s'", e.label);
    sql(dir, text);
    expect_one(RP_STORE_BAD_ROW, "", path);
    snprintf(text, sizeof text, "DELETE FROM records WHERE label = '%s'", e.label);
    sql(dir, text);
    expect_one(RP_STORE_WITHOUT_ROW, "", path);
    rp_store_close(cache_world_cache(dir, NULL, false)); /* opening alone changes nothing */
    expect_one(RP_STORE_WITHOUT_ROW, "", path);
    cache_world_fill(&world, dir, NULL);
    snprintf(moved, sizeof moved, "%s.1-2-3.tmp", path);
    write_text(moved, "half");
    expect_one(RP_STORE_LEFTOVER, "", moved);
    assert_true(exists(moved));
    unlink(moved);
    write_text(index,
               "this is no database, and it is long enough to be looked at as one; it is not even nearly like one....");
    findings f = verify(dir, NULL);
    assert_true(f.n >= 1);
}

/* ---- changing ---- */

static void removes(void **state) {
    (void)state;
    char path[PATH_BYTES];
    rp_error err = {0};
    rp_store_listing *l = NULL;
    int32_t cached = 0;
    one_of("cities/plan/miami", path);
    rp_store *c = cache_world_cache(dir, NULL, false);
    size_t all = count(c, NULL);
    assert_int_equal(rp_store_remove(c, &(rp_store_selection){.name = "cities/plan/miami"}, &l, &err), RP_OK);
    assert_int_equal(l->n_entries, 1);
    assert_string_equal(l->entries[0].label, "cities/plan/miami");
    rp_store_listing_free(l);
    assert_false(exists(path));
    assert_int_equal(count(c, NULL), all - 1);
    assert_int_equal(rp_store_remove(c, &(rp_store_selection){.name = "cities/plan/miami"}, &l, &err), RP_ERR_NAME);
    assert_null(l);
    assert_int_equal(rp_store_remove(c, &(rp_store_selection){.all = false}, NULL, &err), RP_ERR_INVALID);
    assert_int_equal(rp_store_remove(c, &(rp_store_selection){.expired = true}, NULL, &err), RP_OK);
    assert_int_equal(count(c, NULL), all - 1);
    rp_store_close(c);
    assert_int_equal(verify(dir, NULL).n, 0);
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    assert_true(cache_world_ask(&world, e, &cached, NULL));
    assert_true(cached > 0);
    rp_engine_free(e);
    assert_true(exists(path));
    c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_remove(c, &(rp_store_selection){.all = true}, NULL, &err), RP_OK);
    assert_int_equal(count(c, NULL), 0);
    rp_store_close(c);
    assert_int_equal(store_folder_count(dir, ".rps"), 0);
}

static size_t n_pinned(void) {
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_usage s = {.struct_size = sizeof(s)};
    assert_int_equal(rp_store_get_usage(c, &s, NULL), RP_OK);
    rp_store_close(c);
    return s.pinned;
}

static void pins(void **state) {
    (void)state;
    rp_error err = {0};
    rp_store_listing *l = NULL;
    rp_store *c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_pin(c, &(rp_store_selection){.name = "cities/plan"}, true, &l, &err), RP_OK);
    assert_int_equal(l->n_entries, 3);
    assert_true(l->entries[0].pinned);
    rp_store_listing_free(l);
    rp_store_close(c);
    assert_int_equal(n_pinned(), 3);
    cache_world_fill(&world, dir, NULL); /* one engine run */
    assert_int_equal(n_pinned(), 3);
    c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_pin(c, &(rp_store_selection){.name = "cities/plan/lisbon"}, false, NULL, &err), RP_OK);
    assert_int_equal(rp_store_pin(c, &(rp_store_selection){.name = "paris"}, true, &l, &err), RP_ERR_NAME);
    assert_int_equal(rp_store_list(c, NULL, NULL, &l, &err), RP_OK);
    size_t text = 0;
    while (l->entries[text].kind != RP_STORE_TEXT) assert_true(++text < l->n_entries);
    assert_int_equal(rp_store_pin(c, &(rp_store_selection){.key = l->entries[text].key}, true, NULL, &err),
                     RP_ERR_INVALID);
    rp_store_listing_free(l);
    rp_store_close(c);
    assert_int_equal(n_pinned(), 2);
}

/* Times to live of a folder's entries: set, kept by an engine that opens the folder, cleared. */
static void expires(void **state) {
    (void)state;
    rp_error err = {0};
    rp_store_listing *l = NULL;
    rp_store *c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_set_ttl(c, &(rp_store_selection){.texts = true}, -1, NULL, &err), RP_ERR_INVALID);
    assert_int_equal(rp_store_set_ttl(c, &(rp_store_selection){.name = "paris"}, 60, NULL, &err), RP_ERR_NAME);
    assert_int_equal(rp_store_set_ttl(c, &(rp_store_selection){.texts = true}, 3600, &l, &err), RP_OK);
    size_t n = l->n_entries;
    assert_true(n > 0 && l->entries[0].expires > 0 && !l->entries[0].expired);
    int64_t until = l->entries[0].expires;
    rp_store_listing_free(l);
    rp_store_close(c);
    cache_world_fill(&world, dir, NULL); /* one engine run */
    c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_list(c, &(rp_store_selection){.texts = true}, NULL, &l, &err), RP_OK);
    assert_int_equal(l->n_entries, n);
    for (size_t i = 0; i < n; i++) assert_true(l->entries[i].expires >= until);
    rp_store_listing_free(l);
    assert_int_equal(rp_store_set_ttl(c, &(rp_store_selection){.texts = true}, 0, NULL, &err), RP_OK);
    assert_int_equal(rp_store_list(c, &(rp_store_selection){.texts = true}, NULL, &l, &err), RP_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(l->entries[i].expires, 0);
    rp_store_listing_free(l);
    rp_store_close(c);
}

/* Pages of a folder's listing: every entry once, in the order of keys; or the largest ones. */
static void pages(void **state) {
    (void)state;
    rp_error err = {0};
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *whole, *l;
    assert_int_equal(rp_store_list(c, NULL, NULL, &whole, &err), RP_OK);
    assert_true(whole->n_entries > 3 && !whole->has_more);
    rp_store_page page = {.limit = 2};
    char after[65];
    size_t n = 0;
    for (bool more = true; more; page.after = after) {
        assert_int_equal(rp_store_list(c, NULL, &page, &l, &err), RP_OK);
        assert_true(l->n_entries > 0 && l->n_entries <= 2);
        for (size_t i = 0; i < l->n_entries; i++, n++) assert_string_equal(l->entries[i].key, whole->entries[n].key);
        memcpy(after, l->entries[l->n_entries - 1].key, sizeof(after));
        more = l->has_more;
        assert_int_equal(more, n < whole->n_entries);
        rp_store_listing_free(l);
    }
    assert_int_equal(n, whole->n_entries);
    assert_int_equal(rp_store_list(c, NULL, &(rp_store_page){.order = RP_STORE_BY_BYTES, .limit = 3}, &l, &err), RP_OK);
    assert_true(l->n_entries == 3 && l->has_more);
    size_t n_larger = 0;
    for (size_t i = 0; i < whole->n_entries; i++) n_larger += whole->entries[i].bytes > l->entries[2].bytes;
    assert_true(n_larger <= 2); /* both are listed */
    assert_true(l->entries[0].bytes >= l->entries[1].bytes && l->entries[1].bytes >= l->entries[2].bytes);
    rp_store_listing_free(l);
    rp_store_listing_free(whole);
    assert_int_equal(rp_store_list(c, NULL, &(rp_store_page){.order = RP_STORE_BY_BYTES, .after = after}, &l, &err),
                     RP_ERR_INVALID);
    assert_int_equal(rp_store_list(c, NULL, &(rp_store_page){.order = (rp_store_order)2}, &l, &err), RP_ERR_INVALID);
    assert_int_equal(rp_store_list(c, NULL, &(rp_store_page){.order = (rp_store_order)-1}, &l, &err), RP_ERR_INVALID);
    rp_store_close(c);
}

static void cleans(void **state) {
    (void)state;
    char path[PATH_BYTES], gone[PATH_BYTES], unknown[PATH_BYTES], leftover[PATH_BYTES + 16], bad[PATH_BYTES];
    rp_store_cleaning c = {.struct_size = sizeof(c)};
    rp_error err = {0};
    one_of("cities/plan/miami", path);
    one_of("cities/plan/lisbon", gone);
    one_of("cities/plan", unknown);
    rp_store *cache = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_pin(cache, &(rp_store_selection){.name = "cities/plan"}, true, NULL, &err), RP_OK);
    size_t all = count(cache, NULL);
    rp_store_close(cache);
    /* two texts are expired, a pinned module as well; a file and a row are missing; a temporary file and a corrupt
     * record exist */
    sql(dir, "UPDATE records SET expires = 1000 WHERE key IN (SELECT key FROM records WHERE kind = 1 LIMIT 2)"
             " OR label = 'cities/plan/miami'");
    sql(dir, "DELETE FROM records WHERE label = 'cities/plan'");
    unlink(gone);
    snprintf(leftover, sizeof leftover, "%s.77-1-1.tmp", path);
    write_text(leftover, "half a record");
    snprintf(bad, sizeof bad, "%s/bad", dir);
    mkdir(bad, 0700);
    snprintf(bad, sizeof bad, "%s/bad/%s", dir, strrchr(gone, '/') + 1);
    write_text(bad, "no record");
    cache = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_gc(cache, NULL, NULL, &c, &err), RP_OK);
    assert_int_equal(c.leftovers, 1);
    assert_int_equal(c.bad, 1);
    assert_int_equal(c.expired, 2);
    assert_int_equal(c.rows_removed, 1);
    assert_int_equal(c.rows_entered, 1);
    assert_int_equal(c.records, all - 3);
    assert_true(c.leftover_bytes > 0 && c.bad_bytes > 0 && c.expired_bytes > 0 && c.index_bytes > 0);
    assert_int_equal(count(cache, NULL), all - 3);
    rp_store_close(cache);
    assert_true(exists(path) && exists(unknown) && !exists(leftover) && !exists(bad));
    assert_int_equal(verify(dir, NULL).n, 0);
    cache = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_gc(cache, NULL, NULL, &c, &err), RP_OK);
    assert_int_equal(c.leftovers + c.bad + c.expired + c.rows_removed + c.rows_entered, 0);
    const rp_store_selection miami = {.name = "cities/plan/miami"}, over = {.expired = true};
    rp_store_listing *l;
    assert_int_equal(count(cache, &over), 0); /* a pinned entry does not expire; changes list it as it is now */
    for (int pinned = 0; pinned < 3; pinned++) {
        assert_int_equal(rp_store_pin(cache, &miami, pinned == 1, &l, &err), RP_OK);
        assert_true(l->n_entries == 1 && l->entries[0].expires == 1000);
        assert_int_equal(l->entries[0].expired, pinned != 1);
        assert_int_equal(count(cache, &over), pinned != 1);
        rp_store_listing_free(l);
    }
    assert_int_equal(rp_store_remove(cache, &over, NULL, &err), RP_OK);
    rp_store_close(cache);
    assert_false(exists(path));
    cache_world_fill(&world, dir, NULL);
}

static void rebuilds(void **state) {
    (void)state;
#define COLUMNS \
    "first_slot, pos, slots, readable_from, format, kept, tokens, label, bytes, cost_us, tenant, uses, last_use, " \
    "expires, pinned, " \
    "head_slots, end_pos, parts"
    static const char copies[] = "INSERT INTO records (key, fingerprint, parent, kind, at, " COLUMNS ")"
                                 " SELECT randomblob(32), fingerprint, parent, kind, at, " COLUMNS " FROM records";
    static const char *const lies[] = {"DELETE FROM records WHERE kind = 1",
                                       "UPDATE records SET at = 9999 WHERE kind = 1",
                                       "UPDATE records SET label = 'paris' WHERE label = 'cities'", copies};
    char path[PATH_BYTES];
    rp_error err = {0};
    rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
    rp_store *c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_pin(c, &(rp_store_selection){.name = "cities/plan"}, true, NULL, &err), RP_OK);
    rp_store_close(c);
    sql(dir, "UPDATE records SET uses = 77, last_use = 12345, expires = 4000000000 WHERE label = 'cities/plan/miami'");
    c = cache_world_cache(dir, NULL, true);
    rp_store_listing *before = cache_world_list(c);
    rp_store_close(c);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        sql(dir, lies[i]);
        assert_true(verify(dir, NULL).n > 0);
        c = cache_world_cache(dir, NULL, false);
        assert_int_equal(rp_store_rebuild(c, NULL, NULL, &cleaning, &err), RP_OK);
        assert_int_equal(cleaning.rows_entered, before->n_entries);
        rp_store_listing *after = cache_world_list(c), *one;
        if (!cache_world_same(before, after)) fail_msg("%s: another list", lies[i]);
        assert_int_equal(rp_store_list(c, &(rp_store_selection){.name = "cities/plan/miami"}, NULL, &one, &err), RP_OK);
        assert_int_equal(one->entries[0].uses, 77);
        assert_int_equal(one->entries[0].last_use, 12345);
        rp_store_listing_free(one);
        rp_store_listing_free(after);
        rp_store_close(c);
        assert_int_equal(verify(dir, NULL).n, 0);
    }
    /* no index at all: use counts and times are lost with it, pins are not */
    int pins = n_pinned();
    assert_true(pins > 0);
    snprintf(path, sizeof path, "%s/index.db", dir);
    unlink(path);
    c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_rebuild(c, NULL, NULL, &cleaning, &err), RP_OK);
    rp_store_listing *after = cache_world_list(c);
    assert_int_equal(after->n_entries, before->n_entries);
    rp_store_listing_free(after);
    rp_store_listing_free(before);
    rp_store_close(c);
    assert_int_equal(n_pinned(), pins);
    assert_int_equal(verify(dir, NULL).n, 0);
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    int32_t cached = 0;
    assert_true(cache_world_ask(&world, e, &cached, NULL) && cached > 0);
    rp_engine_free(e);
}

/* ---- bundles ---- */

static void export_from(const char *folder, const char *key_file, const char *name, rp_store_transfer *out) {
    rp_error err = {0};
    rp_store *c = cache_world_cache(folder, key_file, true);
    if (rp_store_export(c, name, bundle, NULL, NULL, out, &err)) fail_msg("%s", err.message);
    rp_store_close(c);
}

static void import_into(const char *folder, const char *key_file, rp_store_transfer *out) {
    rp_error err = {0};
    rp_store *c = cache_world_cache(folder, key_file, false);
    if (rp_store_import(c, bundle, NULL, NULL, out, &err)) fail_msg("%s", err.message);
    rp_store_close(c);
}

/* An engine hits the imported records on disk. */
static void expect_reuse(const char *folder, const char *key_file) {
    rp_error err = {0};
    int32_t from_disk = 0;
    rp_engine *e = cache_world_engine(&world, folder, key_file, &err);
    assert_true(cache_world_ask(&world, e, NULL, &from_disk));
    assert_true(from_disk > 0);
    rp_engine_free(e);
}

static void ships(void **state) {
    (void)state;
    rp_store_transfer out = {.struct_size = sizeof(out)}, in = {.struct_size = sizeof(in)};
    export_from(dir, NULL, "cities", &out);
    assert_string_equal(out.name, "cities");
    assert_true(out.records >= N_MODULE_RECORDS && out.tokens > 0);
    forged first = forge_load(bundle);
    assert_int_equal(first.n, out.bytes);
    import_into(other, NULL, &in);
    assert_string_equal(in.name, "cities");
    assert_true(in.records == out.records && in.tokens == out.tokens && in.bytes == out.bytes && in.present == 0);
    assert_int_equal(verify(other, NULL).n, 0);
    import_into(other, NULL, &in);
    assert_int_equal(in.present, out.records);
    export_from(other, NULL, "cities", &in); /* the same records give the same file */
    forged second = forge_load(bundle);
    assert_int_equal(first.n, second.n);
    assert_memory_equal(first.bytes, second.bytes, first.n);
    forge_free(&first);
    forge_free(&second);
    expect_reuse(other, NULL);
    export_from(dir, NULL, "cities/plan/miami", &out);
    assert_int_equal(out.records, 1);
}

/* A corrupt record is not exported, and an import replaces it. */
static void ships_what_is_whole(void **state) {
    (void)state;
    char path[PATH_BYTES], there[PATH_BYTES];
    rp_store_transfer s = {.struct_size = sizeof(s)};
    rp_error err = {0};
    rp_store_entry e = one_of("cities/plan/miami", path);
    export_from(dir, NULL, "cities", &s);
    uint64_t all = s.records;
    import_into(other, NULL, &s);
    cache_world_path(other, &e, there);
    flip(there, -1);
    import_into(other, NULL, &s);
    assert_int_equal(s.present, all - 1);
    assert_int_equal(verify(other, NULL).n, 0);
    flip(path, -1);
    rp_store *c = cache_world_cache(dir, NULL, true);
    unlink(bundle);
    assert_int_equal(rp_store_export(c, "cities", bundle, NULL, NULL, &s, &err), RP_ERR_FORMAT);
    assert_false(exists(bundle));
    assert_int_equal(store_folder_count("/dev/shm", ".rpb.tmp"), 0);
    assert_int_equal(rp_store_export(c, "paris", bundle, NULL, NULL, &s, &err), RP_ERR_NAME);
    assert_int_equal(rp_store_export(c, "", bundle, NULL, NULL, &s, &err), RP_ERR_NAME);
    assert_int_equal(rp_store_export(c, "cities/plan/lisbon", "/nowhere/x.rpb", NULL, NULL, &s, &err), RP_ERR_IO);
    rp_store_close(c);
    c = cache_world_cache(other, NULL, false);
    assert_int_equal(rp_store_import(c, "/nowhere/x.rpb", NULL, NULL, &s, &err), RP_ERR_IO);
    assert_int_equal(rp_store_import(c, path, NULL, NULL, &s, &err), RP_ERR_FORMAT);
    assert_int_equal(rp_store_import(c, other, NULL, NULL, &s, &err), RP_ERR_IO);
    rp_store_close(c);
}

static void ships_encrypted(void **state) {
    (void)state;
    char key[STORE_FOLDER_BYTES], second[STORE_FOLDER_BYTES], secret[STORE_FOLDER_BYTES];
    rp_error err = {0};
    rp_store_transfer s = {.struct_size = sizeof(s)};
    rp_store_usage stats = {.struct_size = sizeof(stats)};
    rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
    store_folder_make(secret);
    store_folder_key(secret, key, 5);
    cache_world_fill(&world, secret, key);
    /* without the key: no names, no bundles, and the index keeps its rows */
    rp_store *c = cache_world_cache(secret, NULL, false);
    rp_store_listing *l = cache_world_list(c);
    for (size_t i = 0; i < l->n_entries; i++) {
        assert_true(l->entries[i].encrypted && l->entries[i].label[0] == '\0' && l->entries[i].n_tokens > 0);
        assert_string_equal(l->entries[i].fault, "cipher");
    }
    assert_int_equal(rp_store_get_usage(c, &stats, &err), RP_OK);
    assert_true(stats.encrypted == l->n_entries && stats.unreadable == l->n_entries);
    assert_int_equal(rp_store_export(c, "cities", bundle, NULL, NULL, &s, &err), RP_ERR_NAME);
    assert_non_null(strstr(err.message, "key"));
    assert_int_equal(rp_store_pin(c, &(rp_store_selection){.all = true}, true, NULL, &err), RP_OK);
    assert_int_equal(rp_store_rebuild(c, NULL, NULL, &cleaning, &err), RP_OK);
    rp_store_close(c);
    rp_store_listing_free(l);
    assert_string_equal(verify(secret, NULL).reason, "cipher");
    /* with the key */
    c = cache_world_cache(secret, key, false);
    assert_int_equal(rp_store_get_usage(c, &stats, &err), RP_OK);
    assert_true(stats.encrypted == stats.records && stats.unreadable == 0 && stats.pinned == stats.modules &&
                stats.modules >= N_MODULE_RECORDS);
    assert_int_equal(rp_store_rebuild(c, NULL, NULL, &cleaning, &err), RP_OK);
    rp_store_close(c);
    assert_int_equal(verify(secret, key).n, 0);
    export_from(secret, key, "cities", &s);
    forged plain = forge_load(bundle);
    export_from(dir, NULL, "cities", &s);
    forged same = forge_load(bundle);
    assert_int_equal(plain.n, same.n); /* except for the compute time */
    forge_free(&plain);
    forge_free(&same);
    /* into a store with another key */
    store_folder_key(other, second, 9);
    import_into(other, second, &s);
    assert_int_equal(verify(other, second).n, 0);
    c = cache_world_cache(other, second, true);
    assert_int_equal(rp_store_get_usage(c, &stats, &err), RP_OK);
    assert_int_equal(stats.encrypted, s.records);
    rp_store_close(c);
    expect_reuse(other, second);
    unlink(key);
    unlink(second);
    store_folder_remove(secret);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folders, remove_folders)
        TEST(is_listed),
        TEST(selections),
        TEST(opening_fails),
        TEST(one_changes_it),
        TEST(index_is_read_as_it_lies),
        TEST(files_tell_of_themselves),
        TEST(damage_is_found),
        TEST(index_is_compared),
        TEST(removes),
        TEST(pins),
        TEST(expires),
        TEST(pages),
        TEST(cleans),
        TEST(rebuilds),
        TEST(ships),
        TEST(ships_what_is_whole),
        TEST(ships_encrypted),
    };
    return cmocka_run_group_tests_name("cache_store", tests, open_all, close_all);
}
