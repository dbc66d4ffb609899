/* SPDX-License-Identifier: Apache-2.0 */
/* test_record_failures.c: every system call and every allocation fails in turn, and the process is killed at every
 * change: a record is whole or absent, a fault is clean, and no file is left except the temporary file of a killed
 * process. */
#define _POSIX_C_SOURCE 200809L /* fork, kill */
#include <errno.h>
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

#include "base/memory.h"
#include "support/kv_shapes.h"
#include "support/record_forge.h"

static const kv_shape shape = {KV_SAME(3, 2, 5, 3), .format = RP_KV_F16};
static const base_io_fault kinds[] = {BASE_IO_EIO, BASE_IO_ENOSPC, BASE_IO_EMFILE, BASE_IO_SHORT, BASE_IO_INTERRUPT};

/* The second: a reduced span with slots in each layer. */
static const record_plan plans[] = {{.shape = &shape, .n_slots = 130, .seed = 1},
                                    {.shape = &shape, .n_slots = 130, .seed = 2, .is_reduced = true}};
static const record_plan *plan = &plans[0];

static void open_world(record_world *w) { record_world_open(w, plan); }

/* Runs a test with each of them. */
static void with_every_plan(void (*test)(void)) {
    for (size_t i = 0; i < 2; i++) {
        plan = &plans[i];
        test();
    }
    plan = &plans[0];
}

static int write_record(const record_world *w, const record_cipher *cipher, rp_error *err) {
    uint64_t on_disk;
    return record_write(w->path, &w->format, &w->record, w->span, cipher, &on_disk, err);
}

/* All operations of an engine on a record. */
static record_fault read_record(const record_world *w, const record_cipher *cipher, rp_error *err) {
    record_reader *r;
    kv_span *copy = NULL;
    record_fault fault = record_reader_open(&r, w->path, &w->format, &w->record.key, cipher, err);
    if (fault) return fault;
    if (kv_span_restore(&copy, w->pool, &record_reader_record(r)->form, &w->record.key, err))
        fault = RECORD_FAULT_MEMORY;
    for (int32_t i = 0; i < shape.n_layers && !fault; i++) fault = record_read_layer(r, i, copy, err);
    if (!fault && !forge_spans_equal(&shape, w->span, copy)) fail_msg("a record was read that is another");
    kv_span_unref(copy);
    record_reader_close(r);
    if (!fault) fault = record_verify(w->path, NULL, cipher, err);
    return fault;
}

static void switch_off(void) {
    base_io_fault_at(0, BASE_IO_NO_FAULT, BASE_IO_ALL);
    base_alloc_fail_at(0, 0);
}

/* ---- failing system calls ---- */

static uint64_t fail_every_write(const record_cipher *cipher, base_io_fault kind) {
    record_world w;
    open_world(&w);
    for (uint64_t n = 1;; n++) {
        rp_error err = {0};
        int n_temporary;
        base_io_count(BASE_IO_ALL);
        base_io_fault_at(n, kind, BASE_IO_ALL);
        errno = 0;
        int rc = write_record(&w, cipher, &err), cause = errno;
        bool is_last = base_io_count(BASE_IO_ALL) < n, is_done = is_last || kind == BASE_IO_INTERRUPT;
        switch_off();
        assert_int_equal(rc, is_done ? RP_OK : RP_ERR_IO);
        assert_int_equal(err.code, rc);
        if (!is_done && kind == BASE_IO_ENOSPC) assert_int_equal(cause, ENOSPC);
        assert_int_equal(record_world_files(&w, &n_temporary), is_done ? 1 : 0);
        assert_int_equal(n_temporary, 0);
        if (is_done) assert_int_equal(read_record(&w, cipher, &err), RECORD_FAULT_NONE);
        if (!is_last) {
            unlink(w.path);
            continue;
        }
        record_world_close(&w);
        return n - 1;
    }
}

static void fail_all_writes(void) {
    record_cipher *cipher = forge_cipher(7);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        assert_int_equal(fail_every_write(NULL, kinds[k]), 9); /* create, header, 3 layers, sync, stat, rename, sync */
        assert_int_equal(fail_every_write(cipher, kinds[k]),
                         plan->is_reduced ? 9 : 15); /* and a write for each of nine blocks */
    }
    record_cipher_close(cipher);
}

static void every_call_of_writing_can_fail(void **state) {
    (void)state;
    with_every_plan(fail_all_writes);
}

/* A record stays unchanged until its replacement is whole. */
static void a_failed_write_leaves_the_old_record(void **state) {
    (void)state;
    record_world w;
    int n_temporary;
    open_world(&w);
    for (uint64_t n = 1; n <= 8; n++) {
        assert_int_equal(write_record(&w, NULL, NULL), RP_OK);
        base_io_fault_at(n, BASE_IO_ENOSPC, BASE_IO_ALL);
        assert_int_equal(write_record(&w, NULL, NULL), RP_ERR_IO);
        switch_off();
        assert_int_equal(record_world_files(&w, &n_temporary), 1);
        assert_int_equal(read_record(&w, NULL, NULL), RECORD_FAULT_NONE);
    }
    record_world_close(&w);
}

static uint64_t fail_every_read(const record_cipher *cipher, base_io_fault kind) {
    record_world w;
    open_world(&w);
    assert_int_equal(write_record(&w, cipher, NULL), RP_OK);
    for (uint64_t n = 1;; n++) {
        rp_error err = {0};
        base_io_count(BASE_IO_ALL);
        base_io_fault_at(n, kind, BASE_IO_ALL);
        record_fault fault = read_record(&w, cipher, &err);
        bool is_last = base_io_count(BASE_IO_ALL) < n, is_done = is_last || kind == BASE_IO_INTERRUPT;
        switch_off();
        if (is_done) assert_int_equal(fault, RECORD_FAULT_NONE);
        else if (kind == BASE_IO_SHORT) assert_true(fault == RECORD_FAULT_TRUNCATED || fault == RECORD_FAULT_IO);
        else assert_int_equal(fault, RECORD_FAULT_IO);
        assert_int_equal(err.code == RP_OK, is_done);
        if (!is_last) continue;
        assert_int_equal(read_record(&w, cipher, &err), RECORD_FAULT_NONE); /* the record is intact */
        record_world_close(&w);
        return n - 1;
    }
}

static void fail_all_reads(void) {
    record_cipher *cipher = forge_cipher(7);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        /* open, stat, two for the header, three layers */
        assert_int_equal(fail_every_read(NULL, kinds[k]), 2 * 7);
        assert_int_equal(fail_every_read(cipher, kinds[k]), plan->is_reduced ? 2 * 7 : 2 * 13); /* or nine blocks */
    }
    record_cipher_close(cipher);
}

static void every_call_of_reading_can_fail(void **state) {
    (void)state;
    with_every_plan(fail_all_reads);
}

/* ---- kills ---- */

/* Never returns in the child: nothing else of the test runs in it. Returns whether the child was killed. */
static bool write_in_a_child(const record_world *w, const record_cipher *cipher, uint64_t n, base_io_set set) {
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        base_io_fault_at(n, BASE_IO_KILL, set);
        _exit(write_record(w, cipher, NULL) != RP_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) assert_int_equal(WTERMSIG(status), SIGKILL);
    else assert_int_equal(status, 0);
    return WIFSIGNALED(status);
}

/* Whole or absent, with at most the temporary file of the killed process. was_there: a record existed before. */
static void kill_every_write(const record_cipher *cipher, base_io_set set, bool was_there) {
    record_world w;
    rp_error err;
    int n_temporary, n_whole = 0;
    open_world(&w);
    for (uint64_t n = 1;; n++) {
        if (was_there) assert_int_equal(write_record(&w, cipher, &err), RP_OK);
        bool was_killed = write_in_a_child(&w, cipher, n, set);
        bool is_there = access(w.path, F_OK) == 0;
        int n_files = record_world_files(&w, &n_temporary);
        assert_int_equal(n_files, n_temporary + is_there);
        assert_true(n_temporary <= (was_killed ? 1 : 0));
        assert_true(is_there || (was_killed && !was_there));
        assert_int_equal(read_record(&w, cipher, &err), is_there ? RECORD_FAULT_NONE : RECORD_FAULT_GONE);
        n_whole += is_there;
        record_world_close(&w);
        if (!was_killed) break;
        open_world(&w);
    }
    assert_true(n_whole >= 1);
}

static void killed_at_every_call_a_record_is_whole_or_absent(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    for (int is_there = 0; is_there < 2; is_there++) {
        kill_every_write(NULL, BASE_IO_CHANGES, is_there);
        kill_every_write(cipher, BASE_IO_CHANGES, is_there);
        kill_every_write(NULL, BASE_IO_ALL, is_there);
    }
    record_cipher_close(cipher);
}

/* ---- allocations ---- */

static void fail_all_allocations(void) {
    record_cipher *cipher = forge_cipher(7);
    for (int k = 0; k < 2; k++) {
        const record_cipher *c = k ? cipher : NULL;
        record_world w;
        bool is_done = false;
        int n_temporary;
        open_world(&w);
        for (uint64_t n = 1; !is_done; n++) {
            rp_error err = {0};
            base_alloc_fail_at(n, 0);
            int rc = write_record(&w, c, &err);
            switch_off();
            assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
            assert_int_equal(err.code, rc);
            is_done = rc == RP_OK;
            assert_int_equal(record_world_files(&w, &n_temporary), is_done ? 1 : 0);
        }
        is_done = false;
        for (uint64_t n = 1; !is_done; n++) {
            rp_error err = {0};
            base_alloc_fail_at(n, 0);
            record_fault fault = read_record(&w, c, &err);
            switch_off();
            assert_true(fault == RECORD_FAULT_NONE || fault == RECORD_FAULT_MEMORY);
            assert_int_equal(err.code, fault ? RP_ERR_MEMORY : RP_OK);
            is_done = fault == RECORD_FAULT_NONE;
        }
        record_world_close(&w);
    }
    record_cipher_close(cipher);
}

static void every_allocation_can_fail(void **state) {
    (void)state;
    with_every_plan(fail_all_allocations);
}

static void a_cipher_without_memory_is_an_error(void **state) {
    (void)state;
    char path[] = "/tmp/reprise-key-XXXXXX";
    int fd = mkstemp(path);
    bool is_done = false;
    assert_true(fd >= 0 && write(fd, "0123456789abcdef0123456789abcdef", 32) == 32 && close(fd) == 0);
    for (uint64_t n = 1; !is_done; n++) {
        record_cipher *c;
        base_alloc_fail_at(n, 0);
        int rc = record_cipher_open(&c, path, NULL);
        switch_off();
        assert_true(rc == RP_ERR_MEMORY ? !c : rc == RP_OK);
        is_done = rc == RP_OK;
        record_cipher_close(c);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_writing_can_fail),
        cmocka_unit_test(a_failed_write_leaves_the_old_record),
        cmocka_unit_test(every_call_of_reading_can_fail),
        cmocka_unit_test(killed_at_every_call_a_record_is_whole_or_absent),
        cmocka_unit_test(every_allocation_can_fail),
        cmocka_unit_test(a_cipher_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
