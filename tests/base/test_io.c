/* SPDX-License-Identifier: Apache-2.0 */
/* test_io.c: calls on files, and the faults that they meet. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, fork */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/io.h"

static char folder[] = "/tmp/reprise-io-XXXXXX", path[64], other[64], inner[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(inner, sizeof inner, "%s/inner", folder);
    return 0;
}

/* Fails if a test left a file. */
static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static struct iovec piece(const char *s) { return (struct iovec){(char *)(uintptr_t)s, strlen(s)}; }

/* Creates `path` with "hello world" in three pieces, the empty one among them, and renames it to `other`. */
static int write_all(rp_error *err) {
    const struct iovec pieces[] = {piece("hel"), piece(""), piece("lo wor")};
    const struct iovec rest[] = {piece("ld")};
    base_io_file f;
    int rc = base_io_create(&f, path, err);
    if (rc) return rc;
    rc = base_io_writev(&f, pieces, 3, err);
    if (!rc) rc = base_io_writev(&f, rest, 1, err);
    if (!rc) rc = base_io_sync(&f, err);
    base_io_close(&f);
    if (!rc) rc = base_io_rename(path, other, err);
    if (!rc) rc = base_io_sync_folder(folder, err);
    return rc;
}

static int read_all(char out[16], size_t *n, rp_error *err) {
    base_io_file f;
    base_io_sizes sizes;
    int rc = base_io_open(&f, other, err);
    if (rc) return rc;
    rc = base_io_stat_file(&f, &sizes, err);
    if (!rc) rc = base_io_readv(&f, 2, (struct iovec[]){{out, 4}, {out + 4, 1}, {out + 5, 11}}, 3, n, err);
    base_io_close(&f);
    return rc;
}

static void remove_all(void) {
    assert_int_equal(base_io_unlink(path, NULL), RP_OK);
    assert_int_equal(base_io_unlink(other, NULL), RP_OK);
}

static void files_are_written_and_read_in_pieces(void **state) {
    (void)state;
    char bytes[16] = "";
    size_t n;
    base_io_file f;
    base_io_sizes sizes, again;
    rp_error err;
    assert_int_equal(write_all(&err), RP_OK);
    assert_int_equal(read_all(bytes, &n, &err), RP_OK);
    assert_int_equal(n, 9); /* up to the end */
    assert_memory_equal(bytes, "llo world", 9);
    assert_int_equal(base_io_open(&f, other, &err), RP_OK);
    assert_int_equal(base_io_read(&f, 6, bytes, 5, &n, &err), RP_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(bytes, "world", 5);
    assert_int_equal(base_io_read(&f, 100, bytes, 5, &n, &err), RP_OK);
    assert_int_equal(n, 0);
    assert_int_equal(base_io_stat_file(&f, &sizes, &err), RP_OK);
    assert_int_equal(base_io_stat(other, &again, &err), RP_OK);
    assert_int_equal(sizes.bytes, 11);
    assert_true(sizes.bytes == again.bytes && sizes.disk_bytes == again.disk_bytes && sizes.disk_bytes % 512 == 0);
    base_io_close(&f);
    base_io_close(&f); /* nothing more */
    remove_all();
}

static void refusals_say_what_and_why(void **state) {
    (void)state;
    base_io_file f;
    base_io_sizes sizes;
    rp_error err;
    assert_int_equal(base_io_open(&f, path, &err), RP_ERR_IO);
    assert_int_equal(errno, ENOENT);
    assert_non_null(strstr(err.message, "No such file or directory"));
    assert_non_null(strstr(err.message, path));
    assert_null(f.path);
    assert_int_equal(base_io_open(&f, folder, &err), RP_ERR_IO);
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(base_io_create(&f, path, &err), RP_OK);
    base_io_close(&f);
    assert_int_equal(base_io_create(&f, path, &err), RP_ERR_IO);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(base_io_stat(other, &sizes, &err), RP_ERR_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(base_io_rename(other, path, &err), RP_ERR_IO);
    assert_int_equal(base_io_sync_folder(path, &err), RP_ERR_IO);
    assert_int_equal(base_io_mkdir(path, &err), RP_ERR_IO);
    assert_int_equal(base_io_unlink(folder, &err), RP_ERR_IO);
    remove_all();
}

static void folders_and_files_are_their_owners_alone(void **state) {
    (void)state;
    struct stat st;
    base_io_file f;
    mode_t old = umask(0);
    assert_int_equal(base_io_mkdir(inner, NULL), RP_OK);
    assert_int_equal(base_io_mkdir(inner, NULL), RP_OK); /* it is there */
    assert_int_equal(base_io_create(&f, path, NULL), RP_OK);
    umask(old);
    base_io_close(&f);
    assert_true(stat(inner, &st) == 0 && (st.st_mode & 0777) == 0700);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_int_equal(rmdir(inner), 0);
    remove_all();
}

/* Each call fails in turn, with the requested fault. */
static void every_call_can_fail(void **state) {
    (void)state;
    static const struct {
        base_io_fault fault;
        int cause;
    } kinds[] = {{BASE_IO_EIO, EIO}, {BASE_IO_ENOSPC, ENOSPC}, {BASE_IO_EMFILE, EMFILE}};
    for (size_t k = 0; k < BASE_ARRAY_LEN(kinds); k++) {
        for (uint64_t n = 1;; n++) {
            char bytes[16];
            size_t n_read;
            rp_error err = {0};
            base_io_count(BASE_IO_ALL);
            base_io_fault_at(n, kinds[k].fault, BASE_IO_ALL);
            int rc = write_all(&err);
            if (!rc) rc = read_all(bytes, &n_read, &err);
            int cause = errno;
            bool is_last = base_io_count(BASE_IO_ALL) < n;
            base_io_fault_at(0, BASE_IO_NO_FAULT, BASE_IO_ALL);
            assert_int_equal(rc, is_last ? RP_OK : RP_ERR_IO);
            assert_int_equal(err.code, rc);
            if (!is_last) assert_int_equal(cause, kinds[k].cause);
            remove_all();
            if (!is_last) continue;
            assert_int_equal(n, 10); /* create, two writes, sync, rename, sync; open, stat, read; and none */
            break;
        }
    }
}

static void sets_are_counted_apart(void **state) {
    (void)state;
    char bytes[16];
    size_t n_read;
    base_io_count(BASE_IO_ALL);
    base_io_count(BASE_IO_CHANGES);
    assert_int_equal(write_all(NULL), RP_OK);
    assert_int_equal(read_all(bytes, &n_read, NULL), RP_OK);
    assert_int_equal(base_io_count(BASE_IO_ALL), 9);
    assert_int_equal(base_io_count(BASE_IO_CHANGES), 6);
    assert_int_equal(base_io_count(BASE_IO_CHANGES), 0);
    base_io_fault_at(1, BASE_IO_EIO, BASE_IO_CHANGES);
    assert_int_equal(read_all(bytes, &n_read, NULL), RP_OK);
    assert_int_equal(base_io_unlink(other, NULL), RP_ERR_IO);
    assert_int_equal(base_io_unlink(other, NULL), RP_OK); /* once */
    assert_int_equal(base_io_mkdir(inner, NULL), RP_OK);
    base_io_fault_at(1, BASE_IO_SHORT, BASE_IO_CHANGES);
    assert_int_equal(base_io_mkdir(inner, NULL), RP_ERR_IO);
    assert_int_equal(rmdir(inner), 0);
}

static void transfers_end_early_or_come_in_pieces(void **state) {
    (void)state;
    char bytes[16] = "";
    size_t n_read;
    base_io_sizes sizes;
    rp_error err;
    base_io_fault_at(2, BASE_IO_SHORT, BASE_IO_ALL); /* the first write */
    assert_int_equal(write_all(&err), RP_ERR_IO);
    assert_int_equal(errno, ENOSPC);
    assert_non_null(strstr(err.message, "free disk space"));
    assert_int_equal(base_io_stat(path, &sizes, NULL), RP_OK);
    assert_int_equal(sizes.bytes, 4);
    remove_all();
    for (uint64_t n = 1; n <= 10; n++) {
        base_io_fault_at(n, BASE_IO_INTERRUPT, BASE_IO_ALL);
        assert_int_equal(write_all(&err), RP_OK);
        assert_int_equal(read_all(bytes, &n_read, &err), RP_OK);
        assert_int_equal(n_read, 9);
        assert_memory_equal(bytes, "llo world", 9);
        remove_all();
    }
    base_io_fault_at(0, BASE_IO_NO_FAULT, BASE_IO_ALL);
    assert_int_equal(write_all(&err), RP_OK);
    base_io_fault_at(3, BASE_IO_SHORT, BASE_IO_ALL);
    assert_int_equal(read_all(bytes, &n_read, &err), RP_OK);
    assert_int_equal(n_read, 8); /* of 16 */
    remove_all();
}

/* What is on disk when the n-th change kills: bytes of `path` and of `other`, -1: none. */
static void killed_at_every_change(void **state) {
    (void)state;
    static const int64_t expected[][2] = {{-1, -1}, {4, -1}, {10, -1}, {11, -1}, {11, -1}, {-1, 11}, {-1, 11}};
    for (size_t n = 1; n <= BASE_ARRAY_LEN(expected); n++) {
        int status;
        base_io_sizes sizes;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            base_io_fault_at(n, BASE_IO_KILL, BASE_IO_CHANGES);
            _exit(write_all(NULL) != RP_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        bool is_last = n == BASE_ARRAY_LEN(expected);
        assert_true(is_last ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                            : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(base_io_stat(path, &sizes, NULL) ? -1 : (int64_t)sizes.bytes, expected[n - 1][0]);
        assert_int_equal(base_io_stat(other, &sizes, NULL) ? -1 : (int64_t)sizes.bytes, expected[n - 1][1]);
        remove_all();
    }
}

static void locks_maps_times_and_space(void **state) {
    (void)state;
    base_io_file f, again;
    base_io_sizes before, after;
    base_map map;
    uint64_t free_bytes;
    char deep[96];
    assert_int_equal(write_all(NULL), RP_OK);
    assert_int_equal(base_io_open(&f, other, NULL), RP_OK);
    assert_int_equal(base_io_open(&again, other, NULL), RP_OK);
    assert_true(base_io_lock(&f));
    assert_false(base_io_lock(&again)); /* another open file, as of another process */
    assert_int_equal(base_io_stat_file(&f, &before, NULL), RP_OK);
    assert_true(before.is_private && before.is_file);
    assert_int_equal(base_io_map(&map, &f, 11, NULL), RP_OK);
    assert_int_equal(base_io_touch(&f, NULL), RP_OK);
    assert_int_equal(base_io_stat_file(&f, &after, NULL), RP_OK);
    assert_true(after.mtime_ns >= before.mtime_ns);
    base_io_close(&f);
    assert_memory_equal(map.data, "hello world", 11);
    assert_false(base_io_lock(&again)); /* a map holds the lock */
    base_map_close(&map);
    assert_true(base_io_lock(&again));
    base_io_close(&again);
    assert_int_equal(chmod(other, 0620), 0);
    assert_int_equal(base_io_stat(other, &after, NULL), RP_OK);
    assert_false(after.is_private);
    assert_int_equal(base_io_create(&f, path, NULL), RP_OK);
    assert_int_equal(base_io_reserve(&f, 4096, NULL), RP_OK);
    base_io_fault_at(1, BASE_IO_ENOSPC, BASE_IO_CHANGES);
    assert_int_equal(base_io_reserve(&f, 4096, NULL), RP_ERR_IO);
    base_io_close(&f);
    assert_int_equal(base_io_free_bytes(folder, &free_bytes, NULL), RP_OK);
    assert_true(free_bytes > 0);
    snprintf(deep, sizeof deep, "%s/a/b", inner);
    assert_int_equal(base_io_mkdirs(deep, NULL), RP_OK);
    assert_int_equal(base_io_mkdirs(deep, NULL), RP_OK);
    assert_int_equal(rmdir(deep), 0);
    deep[strlen(deep) - 2] = '\0';
    assert_int_equal(rmdir(deep), 0);
    assert_int_equal(rmdir(inner), 0);
    remove_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_written_and_read_in_pieces),
        cmocka_unit_test(refusals_say_what_and_why),
        cmocka_unit_test(folders_and_files_are_their_owners_alone),
        cmocka_unit_test(every_call_can_fail),
        cmocka_unit_test(sets_are_counted_apart),
        cmocka_unit_test(transfers_end_early_or_come_in_pieces),
        cmocka_unit_test(killed_at_every_change),
        cmocka_unit_test(locks_maps_times_and_space),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
