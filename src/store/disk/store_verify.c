/* SPDX-License-Identifier: Apache-2.0 */
/* store_verify.c: reads every byte of a store (store_admin.h): checks records by their checksums, and rows of the
 * index against the records. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "store/disk/disk_tier.h"
#include "store/disk/store_admin.h"

/* A record to read, and its row in the index. */
typedef struct expected {
    base_key key;
    uint64_t bytes;
    disk_row_digests row;
    bool is_known; /* the row comes from the index */
} expected;

typedef struct verification {
    store_admin *a;
    rp_on_progress on_progress;
    rp_on_store_finding on_finding;
    void *user;
    rp_store_verification *out;
    bool is_shared; /* an engine uses it meanwhile: files and rows change */
    expected *items;
    size_t n, cap;
    uint64_t total_bytes;
} verification;

static void verification_find(verification *v, rp_store_flaw flaw, const char *path, record_fault fault,
                              const char *message) {
    rp_store_finding f = {
        .flaw = flaw, .path = path, .reason = fault ? record_fault_name(fault) : "", .message = message};
    v->out->flaws[flaw]++;
    if (v->on_finding) v->on_finding(v->user, &f);
}

static int store_verify_expect(void *user, const store_item *item, rp_error *err) {
    verification *v = user;
    const record_row *row = &item->row;
    if (base_grow((void **)&v->items, &v->cap, v->n + 1, DISK_TIER_MAX_RECORDS, sizeof(*v->items)))
        return base_fail_memory(err, (v->n + 1) * sizeof(*v->items), "the records of a store");
    expected *e = &v->items[v->n++];
    *e = (expected){
        .key = row->record.key, .bytes = row->bytes, .is_known = v->a->index && !item->fault && row->n_layers > 0};
    if (e->is_known) e->row = disk_records_digest(&row->record, &row->fingerprint, row->n_layers, true);
    v->total_bytes += row->bytes;
    return RP_OK;
}

static void store_verify_meet_oddity(void *user, const disk_oddity *o) {
    verification *v = user;
    char message[DISK_PATH_BYTES + 128];
    const char *what = o->kind == DISK_LEFTOVER           ? "not a record: the leftover of a crash"
                       : o->kind == DISK_ROW_WITHOUT_FILE ? "the index has a row, but there is no record"
                                                          : "the index has no row for it";
    snprintf(message, sizeof(message), "%s: %s", o->path, what);
    if (o->kind == DISK_BROKEN) {
        v->out->records++;
        v->out->bytes += o->bytes;
        verification_find(v, RP_STORE_BAD_RECORD, o->path, o->fault, o->message);
    } else if (!v->is_shared && o->kind != DISK_UNREADABLE && o->kind != DISK_FOREIGN) {
        verification_find(v,
                          o->kind == DISK_LEFTOVER           ? RP_STORE_LEFTOVER
                          : o->kind == DISK_ROW_WITHOUT_FILE ? RP_STORE_WITHOUT_FILE
                                                             : RP_STORE_WITHOUT_ROW,
                          o->path, RECORD_FAULT_NONE, message);
    }
}

/* RP_ERR_MEMORY. */
static int verify_one(verification *v, const expected *e, rp_error *err) {
    char path[DISK_PATH_BYTES], message[DISK_PATH_BYTES + 128];
    record_reader *r;
    rp_error why;
    disk_folder_record(&v->a->folder, &e->key, path);
    record_fault fault = record_reader_open(&r, path, NULL, &e->key, v->a->cipher, &why);
    if (!fault && e->is_known) {
        const record_format *format = record_reader_format(r);
        disk_row_digests row =
            disk_records_digest(record_reader_record(r), &format->fingerprint, format->shape.n_layers, true);
        snprintf(message, sizeof(message), "%s: the index row does not match the record", path);
        if (!base_key_equal(&row.own, &e->row.own))
            verification_find(v, RP_STORE_BAD_ROW, path, RECORD_FAULT_NONE, message);
        snprintf(message, sizeof(message), "%s: the index row describes an earlier record of the same key", path);
        if (base_key_equal(&row.own, &e->row.own) && !base_key_equal(&row.rest, &e->row.rest))
            verification_find(v, RP_STORE_OLD_ROW, path, RECORD_FAULT_NONE, message);
    }
    if (!fault) fault = record_reader_verify(r, &why);
    record_reader_close(r);
    if (fault == RECORD_FAULT_GONE && v->is_shared) return RP_OK; /* the engine has removed it */
    if (fault == RECORD_FAULT_MEMORY && err) *err = why;
    if (fault == RECORD_FAULT_MEMORY) return RP_ERR_MEMORY;
    v->out->records++;
    v->out->bytes += e->bytes;
    if (fault) verification_find(v, RP_STORE_BAD_RECORD, path, fault, why.message);
    return RP_OK;
}

static void verify_index(verification *v) {
    char path[DISK_PATH_BYTES];
    rp_error why;
    disk_folder_index(&v->a->folder, path);
    if (!v->a->index && record_index_look_at(path) == RECORD_INDEX_EMPTY) {
        char message[DISK_PATH_BYTES + 64];
        snprintf(message, sizeof(message), "%s: the index is empty: its process was killed", path);
        verification_find(v, RP_STORE_LEFTOVER, path, RECORD_FAULT_NONE, message);
    } else if (!v->a->index) {
        char message[DISK_PATH_BYTES + 64];
        snprintf(message, sizeof(message), "%s: there is no readable index", path);
        verification_find(v, RP_STORE_BAD_INDEX, path, RECORD_FAULT_NONE, message);
    } else if (record_index_check(v->a->index, &why)) {
        verification_find(v, RP_STORE_BAD_INDEX, path, RECORD_FAULT_NONE, why.message);
    }
}

int store_admin_verify(store_admin *a, rp_on_progress on_progress, rp_on_store_finding on_finding, void *user,
                       rp_store_verification *out, rp_error *err) {
    *out = (rp_store_verification){0};
    verification v = {.a = a, .on_progress = on_progress, .on_finding = on_finding, .user = user, .out = out};
    v.is_shared = a->folder.read_only && disk_folder_owner(&a->folder) != 0;
    out->is_whole = !v.is_shared;
    verify_index(&v);
    int rc = store_admin_peek(a, store_verify_expect, store_verify_meet_oddity, &v, err);
    uint64_t done = 0;
    for (size_t i = 0; i < v.n && !rc; i++) {
        rc = verify_one(&v, &v.items[i], err);
        done += v.items[i].bytes;
        if (on_progress) on_progress(user, done, v.total_bytes);
    }
    base_free(v.items);
    return rc;
}
