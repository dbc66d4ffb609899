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
#include "base/memory.h"
#include "store/disk/disk_tier.h"
#include "support/must.h"
#include "support/record_forge.h"

#define WAIT_US 20000000
#define MOST_NOTES 40 /* more than the writer commits at once */

static const kv_shape shape = {.n_layers = 2, .n_kv_heads = 1, .key_dim = 4, .value_dim = 4, .format = RP_KV_F16};

static void ignore_event(void *user) { (void)user; }

static int no_record(void *user, const record_row *row, rp_error *err) {
    (void)user;
    (void)row;
    (void)err;
    return RP_OK;
}

/* A row in the form that the tier takes over: one block of memory. */
static record_row *row_of(const record_world *w) {
    const record *r = &w->record;
    size_t token_bytes = (size_t)r->n_tokens * sizeof(*r->tokens), form_bytes = kv_span_form_bytes(w->span), label_bytes = strlen(r->label) + 1;
    record_row *row = base_calloc(1, sizeof(*row) + token_bytes + form_bytes + label_bytes);
    assert_non_null(row);
    int32_t *tokens = (int32_t *)(row + 1);
    void *arrays = tokens + r->n_tokens;
    char *label = (char *)arrays + form_bytes;
    memcpy(tokens, r->tokens, token_bytes);
    memcpy(label, r->label, label_bytes);
    *row = (record_row){.record = *r, .fingerprint = w->format.fingerprint, .n_layers = shape.n_layers};
    row->record.tokens = tokens;
    row->record.label = label;
    row->record.form = kv_span_describe(w->span, arrays);
    return row;
}

static void wait_for_write(disk_tier *d, int n_notes) {
    uint64_t end = base_clock_us() + WAIT_US;
    disk_event event;
    while (!disk_tier_next(d, &event)) {
        if (base_clock_us() > end) fail_msg("the write behind %d notes has not ended", n_notes);
        base_rest_us(100);
    }
    assert_int_equal(event.kind, DISK_WRITTEN);
    assert_false(event.failed);
    kv_span_unref(event.span);
}

/* A commit may come between the write of a record's file and the publication of its group. */
static void a_write_behind_any_number_of_notes_ends(void **state) {
    (void)state;
    record_world w;
    record_world_open(&w, &(record_plan){.shape = &shape, .n_slots = 10, .seed = 1});
    disk_tier *d;
    rp_error err;
    char dir[128];
    snprintf(dir, sizeof(dir), "%s/store", w.folder);
    disk_tier_options options = {.dir = dir, .bad_bytes = 1 << 20, .format = &w.format, .notify = ignore_event};
    must(disk_tier_open(&d, &options, no_record, NULL, &err), &err);
    for (int n_notes = 0; n_notes <= MOST_NOTES; n_notes++) {
        record_use use = {.uses = 1};
        for (int i = 0; i < n_notes; i++) disk_tier_note(d, &w.record.key, &use);
        must(disk_tier_write(d, row_of(&w), w.span, UINT64_MAX, &err), &err);
        wait_for_write(d, n_notes);
    }
    disk_tier_close(d);
    char command[256];
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
    record_world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_write_behind_any_number_of_notes_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
