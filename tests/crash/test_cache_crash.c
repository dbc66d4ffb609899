/* SPDX-License-Identifier: Apache-2.0 */
/* test_cache_crash.c: kills the process at every system call that changes the disk, while a bundle is imported or a
 * store is cleaned, rebuilt, or loses records. Another process then continues with the files: every record is complete
 * or absent, and repeating the operation completes it. */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "support/cache_world.h"
#include "support/seed.h"
#include "reprise_store.h"

typedef enum work { IMPORT,
                    GC,
                    REBUILD,
                    REMOVE,
                    EXPORT } work;

static const char *const names[] = {"import", "gc", "rebuild", "rm", "export"};
static cache_world world;
static char source[STORE_FOLDER_BYTES], bundle[STORE_FOLDER_BYTES + 16], out[STORE_FOLDER_BYTES + 16];

static int work_on(work w, const char *dir) {
    rp_store *c = cache_world_cache(dir, NULL, false);
    rp_store_transfer s = {.struct_size = sizeof(s)};
    rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
    rp_error err;
    int rc = w == IMPORT    ? rp_store_import(c, bundle, NULL, NULL, &s, &err)
             : w == GC      ? rp_store_gc(c, NULL, NULL, &cleaning, &err)
             : w == REBUILD ? rp_store_rebuild(c, NULL, NULL, &cleaning, &err)
             : w == EXPORT  ? rp_store_export(c, "cities", out, NULL, NULL, &s, &err)
                            : rp_store_remove(c, &(rp_store_selection){.name = "cities/plan"}, NULL, &err);
    rp_store_close(c);
    return rc;
}

static int open_all(void **state) {
    (void)state;
    cache_world_open(&world, true);
    store_folder_make(source);
    snprintf(out, sizeof out, "%s.out", source);
    cache_world_fill(&world, source, NULL);
    cache_world_bundle(source, bundle);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    store_folder_remove(source);
    unlink(bundle);
    unlink(out);
    cache_world_close(&world);
    return 0;
}

/* Adds files to clean to a filled store: leftover temporary files and files in bad/. */
static void prepare(work w, const char *dir) {
#define ZEROS "0000000000000000000000000000000" \
              "00000000000000000000000000000000" /* and one more digit: a key */
    static const char *const places[] = {"%s/0",
                                         "%s/bad",
                                         "%s/0/0" ZEROS ".rps.1-1-1.tmp",
                                         "%s/0/0" ZEROS ".rps.1-1-2.tmp",
                                         "%s/bad/0" ZEROS ".rps",
                                         "%s/bad/1" ZEROS ".rps"};
    if (w == IMPORT) return;
    assert_int_equal(work_on(IMPORT, dir), RP_OK);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[STORE_FOLDER_BYTES + 96];
        snprintf(path, sizeof path, places[i], dir);
        if (i < 2) {
            (void)base_io_mkdir(path, NULL);
            continue;
        }
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
    }
}

static bool kill_one(work w, const char *dir, uint64_t n) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        base_io_fault_at(n, BASE_IO_KILL, BASE_IO_CHANGES);
        _exit(work_on(w, dir) == RP_OK ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

static void check_rest(work w, const char *dir, uint64_t n) {
    rp_store_verification v = {.struct_size = sizeof(v)};
    rp_error err = {0};
    rp_store *c = cache_world_cache(dir, NULL, false);
    assert_int_equal(rp_store_verify(c, NULL, NULL, NULL, &v, &err), RP_OK);
    if (v.flaws[RP_STORE_BAD_RECORD] > 0)
        fail_msg("%s, call %llu: a record is not whole", names[w], (unsigned long long)n);
    rp_store_close(c);
    int rc = work_on(w, dir);
    if (rc && !(w == REMOVE && rc == RP_ERR_NAME))
        fail_msg("%s, call %llu: it cannot be done again", names[w], (unsigned long long)n);
    c = cache_world_cache(dir, NULL, true);
    assert_int_equal(rp_store_verify(c, NULL, NULL, NULL, &v, &err), RP_OK);
    for (int i = 0; i < RP_N_STORE_FLAWS; i++) /* looking and exporting put nothing right */
        if (v.flaws[i] > 0 && w != EXPORT)
            fail_msg("%s, call %llu: %s is wrong", names[w], (unsigned long long)n,
                     rp_store_flaw_name((rp_store_flaw)i));
    rp_store_close(c);
    rp_engine *e = cache_world_engine(&world, dir, NULL, &err);
    int32_t from_disk = 0;
    assert_non_null(e);
    if (!cache_world_ask(&world, e, NULL, &from_disk))
        fail_msg("%s, call %llu: not the bytes of a cold run", names[w], (unsigned long long)n);
    if (from_disk == 0) fail_msg("%s, call %llu: nothing is found", names[w], (unsigned long long)n);
    rp_engine_free(e);
}

static void kill_at_every_call(work w, uint64_t least) {
    uint64_t n = 1, kills = 0, step = test_rounds(20) < 10 ? 3 : 1;
    for (bool killed = true; killed; n += step) {
        char dir[STORE_FOLDER_BYTES];
        store_folder_make(dir);
        prepare(w, dir);
        killed = kill_one(w, dir, n);
        kills += killed;
        check_rest(w, dir, n);
        store_folder_remove(dir);
    }
    printf("%s: killed at %llu calls\n", names[w], (unsigned long long)kills);
    assert_true(kills >= least / step);
}

static void import(void **state) {
    (void)state;
    kill_at_every_call(IMPORT, 20);
}

static void gc(void **state) {
    (void)state;
    kill_at_every_call(GC, 4);
}

static void rebuild(void **state) {
    (void)state;
    kill_at_every_call(REBUILD, 2);
}

static void rm(void **state) {
    (void)state;
    kill_at_every_call(REMOVE, 3);
}

static void export(void **state) {
    (void)state;
    kill_at_every_call(EXPORT, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(import), cmocka_unit_test(gc), cmocka_unit_test(rebuild),
                                       cmocka_unit_test(rm), cmocka_unit_test(export)};
    return cmocka_run_group_tests_name("cache_crash", tests, open_all, close_all);
}
