/* SPDX-License-Identifier: Apache-2.0 */
/* test_disk_tier.c: the writer completes all queued changes, whatever their kinds and however they are divided into
 * commits. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "store/disk/disk_tier.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/record_forge.h"

#define WAIT_US 20000000
#define MOST_NOTES 40 /* more than the writer commits at once */

static const kv_shape shape = {KV_SAME(2, 1, 4, 4), .format = RP_KV_F16};

static void ignore_event(void *user) { (void)user; }

static int no_record(void *user, const record_row *row, rp_error *err) {
    (void)user;
    (void)row;
    (void)err;
    return RP_OK;
}

static record_row *row_of(const record_world *w) {
    record_row *row = record_row_new(&w->record, w->span, &w->format.fingerprint);
    assert_non_null(row);
    return row;
}

static void wait_for_write(store_tier *t, int n_notes) {
    uint64_t end = base_clock_us() + WAIT_US;
    tier_event event;
    while (!tier_next(t, &event)) {
        if (base_clock_us() > end) fail_msg("the write behind %d notes has not ended", n_notes);
        base_rest_us(100);
    }
    assert_int_equal(event.kind, TIER_WRITTEN);
    assert_false(event.failed);
    kv_span_unref(event.span);
}

/* A commit may come between the write of a record's file and the publication of its group. */
static void a_write_behind_any_number_of_notes_ends(void **state) {
    (void)state;
    record_world w;
    record_world_open(&w, &(record_plan){.shape = &shape, .n_slots = 10, .seed = 1});
    store_tier *t;
    rp_error err;
    char dir[128];
    snprintf(dir, sizeof(dir), "%s/store", w.folder);
    const disk_tier_options options = {.dir = dir};
    const tier_terms terms = {
        .adds = true, .budget_bytes = 16 << 20, .format = &w.format, .notify = ignore_event, .fn = no_record};
    must(disk_tier_open(&t, &options, &terms, &err), &err);
    for (int n_notes = 0; n_notes <= MOST_NOTES; n_notes++) {
        record_use use = {.uses = 1};
        for (int i = 0; i < n_notes; i++) tier_note(t, &w.record.key, &use);
        must(tier_write(t, row_of(&w), w.span, UINT64_MAX), &err);
        wait_for_write(t, n_notes);
    }
    tier_close(t);
    char command[256];
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
    record_world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_write_behind_any_number_of_notes_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
