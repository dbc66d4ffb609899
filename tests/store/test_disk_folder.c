/* SPDX-License-Identifier: Apache-2.0 */
/* test_disk_folder.c: removals are synced folder by folder: a failure is reported, and folders that were not synced
 * are synced the next time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/io.h"
#include "store/disk/disk_folder.h"
#include "support/must.h"
#include "support/store_folder.h"

static void every_folder_that_lost_records_is_synced(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    disk_folder f;
    rp_error err = {0};
    const base_key of_one = {{0x1a}}, of_four = {{0x4a}};
    store_folder_make(dir);
    must(disk_folder_open(&f, dir, false, &err), &err);
    must(disk_folder_make_room(&f, &of_one, &err), &err);
    must(disk_folder_make_room(&f, &of_four, &err), &err);
    const uint32_t all = 1u << 1 | 1u << 4 | 1u << 9; /* the last one does not exist */
    for (uint64_t n = 1; n <= 2; n++) {
        uint32_t unsynced = all;
        base_io_count(BASE_IO_ALL);
        base_io_fault_at(n, BASE_IO_EIO, BASE_IO_ALL);
        assert_int_equal(disk_folder_sync_removals(&f, &unsynced, &err), RP_ERR_IO);
        base_io_fault_at(0, BASE_IO_EIO, BASE_IO_ALL);
        assert_int_equal(base_io_count(BASE_IO_ALL), 3); /* the others are tried nevertheless */
        assert_int_equal(unsynced, n == 1 ? 1u << 1 : 1u << 4);
        assert_int_equal(disk_folder_sync_removals(&f, &unsynced, &err), RP_OK);
        assert_int_equal(unsynced, 0);
        assert_int_equal(base_io_count(BASE_IO_ALL), 1);
    }
    disk_folder_close(&f);
    store_folder_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_folder_that_lost_records_is_synced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
