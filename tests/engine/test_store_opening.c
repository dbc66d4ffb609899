/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_opening.c: opening a store: a failing call of SQLite deletes nothing, pins outlive the index, the lock
 * cannot be removed, records in a removed KV format are misses, a smaller budget applies before the first request, and
 * the advice on budgets is correct.
 *
 *   REPRISE_TEST_ROUNDS=N  fewer than 10: every fifth call
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/compiler.h"
#include "store/record/record_header.h"
#include "support/cache_world.h"
#include "support/record_forge.h"
#include "support/seed.h"
#include "reprise_store.h"

static cache_world world;
static uint64_t stride;

static int open_all(void **state) {
    (void)state;
    cache_world_open(&world, true);
    stride = test_rounds(10) < 10 ? 5 : 1;
    return 0;
}

static int close_all(void **state) {
    (void)state;
    cache_world_close(&world);
    return 0;
}

static const rp_store_selection plan = {.name = "cities/plan"};

/* A store with all requests, and pins. Returns the number of pinned records. */
static size_t make_store(char *dir) {
    rp_error err = {0};
    rp_store_listing *l;
    store_folder_make(dir);
    cache_world_fill(&world, dir, NULL);
    rp_store *c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_pin(c, &plan, true, &l, &err), RP_OK);
    size_t n = l->n_entries;
    rp_store_listing_free(l);
    rp_store_close(c);
    return n;
}

static size_t count_pins(const char *dir, uint64_t *uses) {
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l = cache_world_list(c);
    size_t n = 0;
    *uses = 0;
    for (size_t i = 0; i < l->n_entries; i++) n += l->entries[i].pinned, *uses += l->entries[i].uses;
    rp_store_listing_free(l);
    rp_store_close(c);
    return n;
}

static bool has(const char *dir, const char *name) {
    char path[STORE_FOLDER_BYTES + 80];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return lstat(path, &st) == 0;
}

static void drop(const char *dir, const char *name) {
    char path[STORE_FOLDER_BYTES + 80];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

static rp_store_stats stats_of(rp_engine *e) {
    rp_store_stats s = {.struct_size = sizeof(s)};
    rp_engine_store_stats(e, &s);
    return s;
}

/* ---- failing file operations of SQLite ---- */

static uint64_t n_calls, fails_at;
static int fails_with;

static bool fails(void) {
    bool is = ++n_calls == fails_at;
    if (is) errno = fails_with;
    return is;
}

static int failing_open(const char *path, int flags, int mode) { return fails() ? -1 : open(path, flags, mode); }
static ssize_t failing_pread(int fd, void *to, size_t n, off_t at) { return fails() ? -1 : pread(fd, to, n, at); }
static ssize_t failing_pwrite(int fd, const void *from, size_t n, off_t at) {
    return fails() ? -1 : pwrite(fd, from, n, at);
}
static int failing_ftruncate(int fd, off_t n) { return fails() ? -1 : ftruncate(fd, n); }
static int failing_fallocate(int fd, off_t at, off_t n) { return fails() ? errno : posix_fallocate(fd, at, n); }

static void set_calls(bool failing) {
    sqlite3_vfs *v = sqlite3_vfs_find(NULL);
    const struct {
        const char *name;
        sqlite3_syscall_ptr call;
    } calls[] = {
        {"open", (sqlite3_syscall_ptr)failing_open},
        {"pread", (sqlite3_syscall_ptr)failing_pread},
        {"pread64", (sqlite3_syscall_ptr)failing_pread},
        {"pwrite", (sqlite3_syscall_ptr)failing_pwrite},
        {"pwrite64", (sqlite3_syscall_ptr)failing_pwrite},
        {"ftruncate", (sqlite3_syscall_ptr)failing_ftruncate},
        {"fallocate", (sqlite3_syscall_ptr)failing_fallocate},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(calls); i++)
        (void)v->xSetSystemCall(v, calls[i].name, failing ? calls[i].call : NULL);
}

/* Regression: any error on opening the index deleted it, with its pins, expiry times and use counts. */
static void a_failing_call_deletes_no_index(void **state) {
    (void)state;
    static const int errors[] = {ENOSPC, EIO, EMFILE, EACCES};
    for (size_t k = 0; k < BASE_ARRAY_LEN(errors); k++) {
        uint64_t n = 1, degraded = 0;
        for (bool more = true; more; n += stride) {
            char dir[STORE_FOLDER_BYTES];
            rp_error err = {0};
            uint64_t uses, before;
            size_t n_pins = make_store(dir);
            count_pins(dir, &before);
            n_calls = 0, fails_at = n, fails_with = errors[k];
            set_calls(true);
            rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
            if (!e) fail_msg("error %d at call %llu: %s", errors[k], (unsigned long long)n, err.message);
            more = n_calls >= n;
            degraded += stats_of(e).disk_state > RP_STORE_WORKS;
            fails_at = 0;
            if (!cache_world_ask(&world, e, NULL, NULL)) fail_msg("other bytes");
            rp_engine_free(e);
            set_calls(false);
            if (has(dir, "index.db.bad"))
                fail_msg("error %d at call %llu: the index was made again", errors[k], (unsigned long long)n);
            if (count_pins(dir, &uses) != n_pins || uses < before)
                fail_msg("error %d at call %llu: pins or uses are lost", errors[k], (unsigned long long)n);
            store_folder_remove(dir);
        }
        printf("error %d: %llu calls, %llu engines went on without all of the store\n", errors[k],
               (unsigned long long)n, (unsigned long long)degraded);
        assert_true(n > 10 && degraded > 0);
    }
}

/* ---- pins ---- */

static void sql(const char *dir, const char *text) {
    char path[STORE_FOLDER_BYTES + 16];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/index.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", text, sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void overwrite(const char *dir, long at, size_t n) {
    char path[STORE_FOLDER_BYTES + 16], bytes[512];
    snprintf(path, sizeof path, "%s/index.db", dir);
    FILE *f = fopen(path, "r+b");
    memset(bytes, 0x5a, sizeof bytes);
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* damage: 0 no database, 1 a corrupt tree, 2 no file, 3 another program's file, 4 without our table. */
static void pins_outlive_the_index(void **state) {
    (void)state;
    for (int damage = 0; damage < 5; damage++)
        for (int by_command = 0; by_command < 2; by_command++) {
            char dir[STORE_FOLDER_BYTES];
            rp_error err = {0};
            uint64_t uses, before;
            size_t n_pins = make_store(dir);
            count_pins(dir, &before);
            sql(dir, "PRAGMA wal_checkpoint(TRUNCATE)");
            if (damage == 0) overwrite(dir, 0, 16);
            else if (damage == 1) overwrite(dir, 4096 + 3, 4);
            else if (damage == 2) drop(dir, "index.db");
            else if (damage == 3) sql(dir, "PRAGMA application_id = 7");
            else sql(dir, "DROP TABLE records");
            if (by_command) {
                rp_store *c = cache_world_cache(dir, NULL, false);
                rp_store_listing_free(cache_world_list(c));
                rp_store_close(c);
            } else {
                rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
                if (!e) fail_msg("%s", err.message);
                assert_int_equal(stats_of(e).disk_state, RP_STORE_WORKS);
                assert_true(cache_world_ask(&world, e, NULL, NULL));
                rp_engine_free(e);
            }
            if (count_pins(dir, &uses) != n_pins) fail_msg("damage %d: pins are lost", damage);
            if (damage == 3 && uses < before) fail_msg("damage %d: uses are lost", damage);
            if (damage != 2 && damage != 4 && !has(dir, "index.db.bad"))
                fail_msg("damage %d: the old index is gone", damage);
            store_folder_remove(dir);
        }
}

static void a_newer_index_is_left_as_it_is(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    rp_error err = {0};
    int32_t from_disk;
    uint64_t uses;
    size_t n_pins = make_store(dir);
    sql(dir, "PRAGMA user_version = 99");
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    assert_non_null(e);
    rp_store_stats s = stats_of(e);
    assert_int_equal(s.disk_state, RP_STORE_READ_ONLY);
    assert_string_equal(s.disk_trouble, "version");
    assert_true(cache_world_ask(&world, e, NULL, &from_disk) && from_disk > 0);
    rp_engine_free(e);
    assert_false(has(dir, "index.db.bad"));
    sql(dir, "PRAGMA user_version = 2");
    assert_int_equal(count_pins(dir, &uses), n_pins);
    store_folder_remove(dir);
}

/* It lacks the columns of reduced spans: a new one takes its pins and uses. */
static void an_index_of_version_3_is_rebuilt(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    rp_error err = {0};
    int32_t from_disk;
    uint64_t uses, again;
    size_t n_pins = make_store(dir);
    assert_int_equal(count_pins(dir, &uses), n_pins);
    sql(dir, "ALTER TABLE records DROP COLUMN head_slots; ALTER TABLE records DROP COLUMN end_pos; ALTER TABLE records "
             "DROP COLUMN parts;"
             "PRAGMA user_version = 3");
    assert_true(n_pins > 0 && uses > 0);
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    assert_non_null(e);
    assert_int_equal(stats_of(e).disk_state, RP_STORE_WORKS);
    assert_true(cache_world_ask(&world, e, NULL, &from_disk) && from_disk > 0);
    rp_engine_free(e);
    assert_true(has(dir, "index.db.bad"));
    assert_int_equal(count_pins(dir, &again), n_pins);
    assert_true(again >= uses);
    sql(dir, "SELECT head_slots, end_pos, parts FROM records");
    store_folder_remove(dir);
}

/* ---- removed KV formats ---- */

typedef struct removed_findings {
    int n;
    const char *name;
} removed_findings;

static void expect_removed(void *user, const rp_store_finding *finding) {
    removed_findings *f = user;
    char words[64];
    f->n++;
    snprintf(words, sizeof words, "its KV has another format: %s, which was removed", f->name);
    assert_int_equal(finding->flaw, RP_STORE_BAD_RECORD);
    assert_string_equal(finding->reason, "format");
    if (!strstr(finding->message, words)) fail_msg("%s", finding->message);
}

/* Modules' records, and their rows, get the number of another format. Returns how many there are. */
static int renumber_modules(const char *dir, uint8_t number) {
    char path[STORE_FOLDER_BYTES + 80], change[96];
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l = cache_world_list(c);
    int n = 0;
    for (size_t i = 0; i < l->n_entries; i++) {
        if (l->entries[i].kind != RP_STORE_MODULE) continue;
        cache_world_path(dir, &l->entries[i], path);
        forged f = forge_load(path);
        f.bytes[RECORD_PUBLIC_BYTES + 132] = number;
        forge_header_checksum(f.bytes, f.n);
        forge_save(path, f.bytes, f.n);
        forge_free(&f);
        n++;
    }
    rp_store_listing_free(l);
    rp_store_close(c);
    snprintf(change, sizeof change, "UPDATE records SET format = %d WHERE kind = %d", number, RECORD_MODULE);
    sql(dir, change);
    return n;
}

static int count_unreadable(const char *dir, const char *fault) {
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l = cache_world_list(c);
    int n = 0;
    for (size_t i = 0; i < l->n_entries; i++) n += strcmp(l->entries[i].fault, fault) == 0;
    rp_store_listing_free(l);
    rp_store_close(c);
    return n;
}

/* A store of version 0.2.0 with modules in k8v4 or fp8: it opens, says why these records are misses, and computes them
   anew. */
static void records_in_a_removed_format_are_misses(void **state) {
    (void)state;
    static const struct {
        uint8_t number;
        const char *name;
    } formats[] = {{3, "k8v4"}, {7, "fp8"}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(formats); i++) {
        char dir[STORE_FOLDER_BYTES];
        rp_error err = {0};
        int32_t cached, before;
        make_store(dir);
        rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
        assert_true(cache_world_ask(&world, e, &before, NULL));
        rp_engine_free(e);
        const int n = renumber_modules(dir, formats[i].number);
        assert_true(n > 0);
        assert_int_equal(count_unreadable(dir, "format"), n);
        rp_store *c = cache_world_cache(dir, NULL, true);
        rp_store_verification v = {.struct_size = sizeof(v)};
        removed_findings findings = {.name = formats[i].name};
        assert_int_equal(rp_store_verify(c, NULL, expect_removed, &findings, &v, &err), RP_OK);
        assert_int_equal(findings.n, n);
        rp_store_close(c);
        e = cache_world_engine(&world, dir, NULL, &err);
        if (!e) fail_msg("%s", err.message);
        assert_int_equal(stats_of(e).disk_state, RP_STORE_WORKS);
        assert_true(cache_world_ask(&world, e, &cached, NULL));
        assert_true(cached < before);
        rp_engine_free(e);
        assert_false(has(dir, "bad")); /* none was set aside */
        store_folder_remove(dir);
    }
}

/* ---- the lock ---- */

static void a_removed_lock_lets_nobody_in(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    rp_error err = {0};
    rp_store *c = NULL;
    make_store(dir);
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    assert_non_null(e);
    drop(dir, "lock");
    assert_null(cache_world_engine(&world, dir, NULL, &err));
    assert_int_equal(err.code, RP_ERR_CONFLICT);
    assert_int_equal(
        rp_store_open(&c, dir, &(rp_store_options){.struct_size = sizeof(rp_store_options), .create = true}, &err),
        RP_ERR_CONFLICT);
    assert_true(cache_world_ask(&world, e, NULL, NULL));
    rp_engine_free(e);
    e = cache_world_engine(&world, dir, NULL, &err);
    assert_non_null(e);
    assert_true(has(dir, "lock"));
    rp_engine_free(e);
    store_folder_remove(dir);
}

/* ---- budgets ---- */

static int open_with(rp_engine **e, const char *dir, uint64_t budget, rp_error *err) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 256;
    o.store_dir = dir;
    o.store_budget_bytes = budget;
    o.store_write = RP_STORE_WRITE_THROUGH;
    return rp_engine_new(e, world.model, &o, err);
}

static void the_advice_on_budgets_is_true(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    rp_error err = {0};
    rp_engine *e = NULL;
    rp_request q = rp_request_defaults();
    rp_result *r = NULL;
    store_folder_make(dir);
    assert_int_equal(open_with(&e, dir, 1 << 20, &err), RP_ERR_INVALID);
    const char *give = strstr(err.message, "give ");
    assert_non_null(give);
    uint64_t least = strtoull(give + strlen("give "), NULL, 10);
    assert_true(least > 1 << 20 && least < 3 << 20);
    if (open_with(&e, dir, least, &err)) fail_msg("%s", err.message);
    q.prompt = rp_prompt_text("the hills of the river");
    q.max_tokens = 1;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_OK);
    rp_result_free(r);
    assert_int_equal(stats_of(e).disk_unwritten, 0);
    rp_engine_free(e); /* flushes pending writes */
    assert_true(store_folder_bytes(dir) <= least);
    if (open_with(&e, dir, least, &err)) fail_msg("%s", err.message);
    assert_true(stats_of(e).disk_spans > 0);
    rp_engine_free(e);
    store_folder_remove(dir);
}

/* Regression: the budget applied only after the writer had reached it, when requests were already accepted. */
static void a_smaller_budget_holds_when_the_engine_is_there(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES], text[200];
    rp_error err = {0};
    rp_engine *e = NULL;
    const uint64_t small = (uint64_t)1280 << 10;
    store_folder_make(dir);
    assert_int_equal(open_with(&e, dir, 0, &err), RP_OK);
    for (int i = 0; i < 60; i++) {
        rp_request q = rp_request_defaults();
        rp_result *r = NULL;
        char *end = text + sprintf(text, "%d:", i);
        while (end < text + sizeof(text) - 16) end += sprintf(end, " w%d", (int)(end - text) * 37 % 1000);
        q.prompt = rp_prompt_text(text);
        q.max_tokens = 1;
        assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_OK);
        rp_result_free(r);
    }
    rp_engine_free(e);
    uint64_t before = store_folder_bytes(dir);
    assert_true(before > small);
    if (open_with(&e, dir, small, &err)) fail_msg("%s", err.message);
    uint64_t after = store_folder_bytes(dir);
    printf("%llu bytes, then %llu\n", (unsigned long long)before, (unsigned long long)after);
    assert_true(after <= small && store_folder_count(dir, ".rps") > 0);
    rp_engine_free(e);
    store_folder_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_call_deletes_no_index),
        cmocka_unit_test(pins_outlive_the_index),
        cmocka_unit_test(a_newer_index_is_left_as_it_is),
        cmocka_unit_test(an_index_of_version_3_is_rebuilt),
        cmocka_unit_test(records_in_a_removed_format_are_misses),
        cmocka_unit_test(a_removed_lock_lets_nobody_in),
        cmocka_unit_test(the_advice_on_budgets_is_true),
        cmocka_unit_test(a_smaller_budget_holds_when_the_engine_is_there),
    };
    return cmocka_run_group_tests_name("store_opening", tests, open_all, close_all);
}
