/* SPDX-License-Identifier: Apache-2.0 */
/* store_bundle.c: see store_bundle.h.
 *
 *   export   scan for the records -> their headers: sizes -> front of the bundle -> each record: read, decrypted,
 *            checked, appended -> sync, rename
 *   import   front of the bundle -> each record checked -> each record read, checked again, written (record_write) and
 *            entered
 */
#define _POSIX_C_SOURCE 200809L /* getpid */

#include "store/disk/store_bundle.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "store/disk/disk_tier.h"
#include "store/record/record_bundle.h"

/* ---- export ---- */

typedef struct bundle_export {
    store_admin *a;
    record_bundle bundle;
    size_t cap, n_encrypted; /* records without a key to decrypt them */
    rp_store_transfer *out;
    rp_on_progress on_progress;
    void *user;
    base_io_file file;
    char *temporary;
} bundle_export;

static int store_bundle_choose(void *user, const store_item *item, rp_error *err) {
    bundle_export *x = user;
    const record *r = &item->row.record;
    record_bundle *b = &x->bundle;
    x->n_encrypted += item->fault == RECORD_FAULT_CIPHER && item->encrypted;
    if (item->fault || !record_is_of_module(r->kind) || !record_label_is_below(r->label, b->name)) return RP_OK;
    if (base_grow((void **)&b->items, &x->cap, b->n + 1, DISK_TIER_MAX_RECORDS, sizeof(*b->items)))
        return base_fail_memory(err, (b->n + 1) * sizeof(*b->items), "a bundle");
    b->items[b->n++] = (record_bundle_item){.key = r->key};
    x->out->tokens += (uint64_t)r->form.n_tokens;
    return RP_OK;
}

static record_place export_place_of(const bundle_export *x, size_t i, char path[DISK_PATH_BYTES]) {
    disk_folder_record(&x->a->folder, &x->bundle.items[i].key, path);
    return (record_place){.path = path};
}

static int fail_fault(record_fault fault, const rp_error *err) {
    return fault == RECORD_FAULT_NONE ? RP_OK : err->code;
}

/* The size of each as a plain record. */
static int export_measure(bundle_export *x, rp_error *err) {
    record_bundle *b = &x->bundle;
    int rc = RP_OK;
    for (size_t i = 0; i < b->n && !rc; i++) {
        char path[DISK_PATH_BYTES];
        record_place place = export_place_of(x, i, path);
        record_reader *r;
        rc = fail_fault(record_place_open(&r, &place, &b->items[i].key, x->a->cipher, err), err);
        if (!rc) b->items[i].bytes = record_file_bytes(record_reader_format(r), record_reader_record(r), false);
        if (!rc) b->file_bytes += b->items[i].bytes;
        record_reader_close(r);
    }
    return rc;
}

static int export_append(bundle_export *x, size_t i, rp_error *err) {
    char path[DISK_PATH_BYTES];
    record_place place = export_place_of(x, i, path);
    record_loaded l;
    int rc = fail_fault(record_load(&l, &place, &x->bundle.items[i].key, x->a->cipher, err), err);
    if (rc) return rc;
    BASE_ASSERT(record_is_of_module(record_reader_record(l.reader)->kind)); /* a bundle has no text */
    rc = record_append(&x->file, record_reader_format(l.reader), record_reader_record(l.reader), l.span, err);
    record_loaded_free(&l);
    return rc;
}

static int write_bundle(bundle_export *x, rp_error *err) {
    base_io_sizes sizes;
    uint64_t done = 0;
    int rc = base_io_create(&x->file, x->temporary, err);
    if (!rc) rc = record_bundle_begin(&x->bundle, &x->file, err);
    for (size_t i = 0; i < x->bundle.n && !rc; i++) {
        rc = export_append(x, i, err);
        done += x->bundle.items[i].bytes;
        if (!rc && x->on_progress) x->on_progress(x->user, done, x->bundle.file_bytes);
    }
    if (!rc) rc = base_io_sync(&x->file, err);
    if (!rc) rc = base_io_stat_file(&x->file, &sizes, err);
    if (!rc) x->out->bytes = sizes.bytes;
    BASE_ASSERT(rc || (done == x->bundle.file_bytes && sizes.bytes > done)); /* all records, after the front */
    return rc;
}

static int export_publish(bundle_export *x, const char *to, rp_error *err) {
    char path[DISK_PATH_BYTES];
    int rc = base_io_resolve(to, path, sizeof(path), err);
    if (rc) return rc;
    size_t n = strlen(path) + 64;
    x->temporary = base_alloc(n);
    if (!x->temporary) return base_fail_memory(err, n, "a bundle's name");
    snprintf(x->temporary, n, "%s.%ld-%llx" RECORD_TEMPORARY, path, (long)getpid(),
             (unsigned long long)base_clock_us());
    rc = write_bundle(x, err);
    bool is_there = x->file.path;
    base_io_close(&x->file);
    if (!rc) rc = base_io_rename(x->temporary, path, err);
    if (rc && is_there) (void)base_io_unlink(x->temporary, NULL);
    return rc ? rc : base_io_sync_folder_of(x->temporary, err);
}

static int fail_name(const bundle_export *x, const char *name, rp_error *err) {
    if (x->n_encrypted > 0)
        return base_fail_at(err, RP_ERR_NAME, x->a->folder.dir, 0,
                            "no readable module '%s'; %zu records are encrypted: give their key",
                            name, x->n_encrypted);
    return base_fail_at(err, RP_ERR_NAME, x->a->folder.dir, 0, "no module '%s': see rp_store_list",
                        name);
}

int store_bundle_export(store_admin *a, const char *name, const char *path, rp_on_progress on_progress, void *user,
                        rp_store_transfer *out, rp_error *err) {
    bundle_export x = {.a = a, .out = out, .on_progress = on_progress, .user = user};
    *out = (rp_store_transfer){0};
    if (!record_bundle_may_name(name)) return fail_name(&x, name, err);
    snprintf(x.bundle.name, sizeof(x.bundle.name), "%s", name);
    snprintf(out->name, sizeof(out->name), "%s", name);
    int rc = store_admin_peek(a, store_bundle_choose, NULL, &x, err);
    if (!rc && x.bundle.n == 0) rc = fail_name(&x, name, err);
    if (!rc) rc = export_measure(&x, err);
    if (!rc) rc = export_publish(&x, path, err);
    out->records = x.bundle.n;
    record_bundle_close(&x.bundle);
    base_free(x.temporary);
    return rc;
}

/* ---- import ---- */

typedef struct bundle_import {
    store_admin *a;
    record_bundle bundle;
    rp_store_transfer *out;
    rp_on_progress on_progress;
    void *user;
    uint64_t done;
} bundle_import;

static void import_report(bundle_import *m, size_t i) {
    BASE_ASSERT(i < m->bundle.n);
    m->done += m->bundle.items[i].bytes;
    if (m->on_progress) m->on_progress(m->user, m->done, 2 * m->bundle.file_bytes);
}

/* Does the store have the record, undamaged? */
static bool is_present(const bundle_import *m, const char *path, const base_key *key) {
    record_reader *r;
    record_fault fault = record_reader_open(&r, path, NULL, key, m->a->cipher, NULL);
    if (!fault) fault = record_reader_verify(r, NULL);
    record_reader_close(r);
    return !fault;
}

static int import_write_record(bundle_import *m, const record_loaded *l, const char *path, rp_error *err) {
    const record_format *format = record_reader_format(l->reader);
    BASE_ASSERT(!m->a->folder.read_only && m->a->folder.lock >= 0 && m->a->index); /* invariant 5 */
    record_row row = {
        .record = *record_reader_record(l->reader),
        .fingerprint = format->fingerprint,
        .n_layers = format->shape.n_layers,
        .use.last_use = (int64_t)time(NULL),
    };
    int rc = disk_folder_make_room(&m->a->folder, &row.record.key, err);
    if (!rc) rc = record_write(path, format, &row.record, l->span, m->a->cipher, &row.bytes, err);
    if (!rc) rc = disk_records_enter(m->a->index, m->a->cipher, &row, err);
    return rc;
}

static int import_take_over(bundle_import *m, size_t i, rp_error *err) {
    const base_key *key = &m->bundle.items[i].key;
    char path[DISK_PATH_BYTES];
    record_loaded l;
    int rc = record_bundle_load(&m->bundle, i, &l, err);
    if (rc) return rc;
    disk_folder_record(&m->a->folder, key, path);
    m->out->tokens += (uint64_t)kv_span_tokens(l.span);
    if (is_present(m, path, key)) m->out->present++;
    else rc = import_write_record(m, &l, path, err);
    record_loaded_free(&l);
    if (!rc) import_report(m, i);
    return rc;
}

static int put_right(void *user, const store_item *item, rp_error *err) {
    (void)user;
    (void)item;
    (void)err;
    return RP_OK;
}

int store_bundle_import(store_admin *a, const char *from, rp_on_progress on_progress, void *user,
                        rp_store_transfer *out, rp_error *err) {
    char path[DISK_PATH_BYTES];
    bundle_import m = {.a = a, .out = out, .on_progress = on_progress, .user = user};
    *out = (rp_store_transfer){0};
    int rc = base_io_resolve(from, path, sizeof(path), err);
    if (!rc) rc = record_bundle_open(&m.bundle, path, err);
    if (rc) return rc;
    snprintf(out->name, sizeof(out->name), "%s", m.bundle.name);
    out->records = m.bundle.n;
    out->bytes = m.bundle.file_bytes;
    for (size_t i = 0; i < m.bundle.n && !rc; i++) {
        rc = record_bundle_check(&m.bundle, i, err);
        if (!rc) import_report(&m, i);
    }
    if (!rc) rc = store_admin_each(a, put_right, NULL, err);
    for (size_t i = 0; i < m.bundle.n && !rc; i++) rc = import_take_over(&m, i, err);
    int committed = store_admin_commit(a, rc ? NULL : err); /* imported records are kept */
    record_bundle_close(&m.bundle);
    return rc ? rc : committed;
}
