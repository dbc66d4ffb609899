/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool_folder.c: a pool in a shared folder: as every driver, and every failing call of the file system. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/io.h"
#include "support/must.h"
#include "support/pool_check.h"
#include "support/store_folder.h"

#define SOON_US 10000000

static pool_driver *driver_of(const char *dir) {
    char address[STORE_FOLDER_BYTES + 4];
    snprintf(address, sizeof(address), "dir:%s", dir);
    return pool_check_driver(address);
}

static void it_is_a_driver(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES], address[STORE_FOLDER_BYTES + 4];
    store_folder_make(dir);
    snprintf(address, sizeof(address), "dir:%s", dir);
    pool_check(address);
    store_folder_remove(dir);
}

static void addresses_are_checked(void **state) {
    (void)state;
    static const char *const wrong[] = {"dir:relative", "dir:", "ftp://host/x", "", "/tmp"};
    char text[64];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        pool_driver *d;
        rp_error err = {0};
        assert_int_equal(pool_driver_open(&d, wrong[i], &err), RP_ERR_INVALID);
        assert_null(d);
        assert_non_null(strstr(err.message, "dir:/FOLDER"));
    }
    assert_string_equal(pool_address_text("redis://user:secret@host:6379/0", text, sizeof(text)),
                        "redis://host:6379/0");
    assert_string_equal(pool_address_text("redis://host/a@b", text, sizeof(text)), "redis://host/a@b");
    assert_string_equal(pool_address_text("dir:/a@b", text, sizeof(text)), "dir:/a@b");
}

/* A folder that is absent, is no folder, or has a file in place of one of its own. */
static void a_folder_that_cannot_be_used_fails_its_operations(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES], path[STORE_FOLDER_BYTES + 80], name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    store_folder_make(dir);
    pool_driver *d = driver_of(dir);
    pool_link *l = pool_check_link(d);
    pool_check_name(1, name);
    snprintf(path, sizeof(path), "%s/%.2s", dir, name);
    FILE *f = fopen(path, "w");
    fclose(f);
    const struct iovec piece = {"x", 1};
    assert_int_equal(pool_put(l, name, &piece, 1, base_clock_us() + SOON_US, &err), RP_ERR_IO);
    assert_string_equal(pool_cause_name(errno), "absent");
    unlink(path);
    must(pool_put(l, name, &piece, 1, base_clock_us() + SOON_US, &err), &err); /* it works again */
    assert_int_equal(pool_put(l, name, &piece, 1, base_clock_us(), &err), RP_ERR_IO);
    assert_string_equal(pool_cause_name(errno), "timeout");
    pool_link_close(l);
    pool_driver_close(d);
    store_folder_remove(dir);
}

static int n_entries(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *e; dir && (e = readdir(dir));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (dir) closedir(dir);
    return n;
}

/* Each call of the file system fails in turn: a failed write leaves nothing, and the object before it. */
static void every_failing_call_leaves_whole_objects(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES], folder[STORE_FOLDER_BYTES + 80], name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    store_folder_make(dir);
    pool_driver *d = driver_of(dir);
    pool_link *l = pool_check_link(d);
    pool_check_name(1, name);
    snprintf(folder, sizeof(folder), "%s/%.2s", dir, name);
    const struct iovec old = {"old", 3}, new = {"newer", 5};
    for (base_io_fault fault = BASE_IO_EIO; fault <= BASE_IO_SHORT; fault++) {
        must(pool_put(l, name, &old, 1, base_clock_us() + SOON_US, &err), &err);
        for (uint64_t n = 1;; n++) {
            char got[6] = "";
            base_io_count(BASE_IO_ALL);
            base_io_fault_at(n, fault, BASE_IO_ALL);
            const int rc = pool_put(l, name, &new, 1, base_clock_us() + SOON_US, &err);
            base_io_fault_at(0, fault, BASE_IO_ALL);
            if (base_io_count(BASE_IO_ALL) < n) {
                assert_int_equal(rc, RP_OK);
                break;
            }
            pool_range r = {.bytes = got, .n = 5};
            strcpy(r.name, name);
            must(pool_get(l, &r, 1, base_clock_us() + SOON_US, &err), &err);
            assert_string_equal(got, rc ? "old" : "newer");
            assert_int_equal(n_entries(folder), 1);
            if (!rc) must(pool_put(l, name, &old, 1, base_clock_us() + SOON_US, &err), &err);
        }
    }
    pool_link_close(l);
    pool_driver_close(d);
    store_folder_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_driver),
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(a_folder_that_cannot_be_used_fails_its_operations),
        cmocka_unit_test(every_failing_call_leaves_whole_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
