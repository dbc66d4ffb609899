/* SPDX-License-Identifier: Apache-2.0 */
/* store_admin.c: see store_admin.h: opening, scanning, changing, counting; store_verify.c reads every byte. */
#include "store/disk/store_admin.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/disk/disk_tier.h"
#include "store/record/record_header.h"

/* ---- opening ---- */

/* A full disk has no space for the index's log. Removals free space, so they continue without the index: the files
 * are authoritative. */
static int open_index(store_admin *a, rp_error *err) {
    char path[DISK_PATH_BYTES];
    rp_error why;
    disk_folder_index(&a->folder, path);
    a->index_bytes = record_index_bytes_at(path);
    if (!a->folder.read_only) {
        int rc = record_index_open(&a->index, path, &why);
        a->is_full = rc == RP_ERR_IO && base_io_is_full(errno);
        if (a->is_full) base_log(BASE_LOG_WARN, "store: %s: continuing without the index", why.message);
        else if (rc && err) *err = why;
        return a->is_full ? RP_OK : rc;
    }
    int rc = record_index_open_read(&a->index, path, &why);
    if (rc == RP_ERR_IO) base_log(BASE_LOG_INFO, "store: %s: using the record files instead", why.message);
    else if (rc && err) *err = why;
    return rc == RP_ERR_IO ? RP_OK : rc;
}

/* Opens the index of a full disk after a removal. The comparison with the files removes the rows of removed records.
 * If either fails, for whatever reason, the store stays without an index (is_full) until the next removal. */
static void open_index_again(store_admin *a) {
    rp_error why;
    if (!a->is_full) return;
    int rc = a->index ? RP_OK : open_index(a, &why);
    if (!rc && a->index) rc = store_admin_each(a, NULL, NULL, &why);
    if (rc) base_log(BASE_LOG_WARN, "store: %s: continuing without the index", why.message);
    a->is_full = rc || !a->index;
}

int store_admin_open(store_admin **out, const char *dir, const rp_store_options *o, rp_error *err) {
    *out = NULL;
    store_admin *a = base_calloc(1, sizeof(*a));
    if (!a) return base_fail_memory(err, sizeof(*a), "a store");
    a->folder.lock = a->folder.lock_file = -1;
    int rc = RP_OK;
    if (!o->create || o->read_only) { /* a folder that is not a store is neither locked nor made one */
        rc = disk_folder_open(&a->folder, dir, true, err);
        if (!rc) rc = disk_folder_check(&a->folder, err);
    }
    if (!rc) rc = record_cipher_open(&a->cipher, o->key_file, err);
    if (!rc) rc = disk_folder_open(&a->folder, dir, o->read_only, err);
    if (!rc) rc = open_index(a, err);
    if (rc) store_admin_close(a);
    else *out = a;
    return rc;
}

void store_admin_close(store_admin *a) {
    if (!a) return;
    record_index_close(a->index);
    disk_folder_close(&a->folder);
    record_cipher_close(a->cipher);
    base_free(a);
}

int store_admin_may_change(const store_admin *a, bool removes, rp_error *err) {
    BASE_ASSERT(a->folder.read_only || a->is_full || a->index); /* changes that are no removals need it */
    if (!a->folder.read_only && a->is_full && !removes)
        return base_fail_at(err, RP_ERR_IO, a->folder.dir, 0,
                            "the disk was full, and the index is not open since: free space first (rp_store_gc and "
                            "rp_store_remove work on a full disk)");
    if (!a->folder.read_only) return RP_OK;
    return base_fail_at(err, RP_ERR_CONFLICT, a->folder.dir, 0,
                        "the store is open read-only: open it for writing to change it");
}

/* ---- scanning ---- */

typedef struct look {
    store_admin *a;
    store_item_fn fn;      /* may be NULL */
    disk_oddity_fn on_odd; /* may be NULL */
    void *user;
    int64_t now;
    record_fault fault; /* of the next record */
} look;

/* Of a record that cannot be opened: does its public header have the flag for encryption? */
static bool says_encrypted(const char *path) {
    uint8_t header[RECORD_PUBLIC_BYTES];
    record_public p;
    base_io_file file;
    base_io_sizes sizes;
    size_t n = 0;
    if (base_io_open(&file, path, NULL)) return false;
    bool ok = base_io_stat_file(&file, &sizes, NULL) == RP_OK &&
              base_io_read(&file, 0, header, sizeof(header), &n, NULL) == RP_OK && n == sizeof(header) &&
              record_get_public(&p, header, sizes.bytes, path, NULL) == RECORD_FAULT_NONE;
    base_io_close(&file);
    return ok && (p.flags & RECORD_ENCRYPTED);
}

static void store_admin_meet_oddity(void *user, const disk_oddity *o) {
    look *l = user;
    if (o->kind == DISK_UNREADABLE) l->fault = o->fault;
    if (l->on_odd) l->on_odd(l->user, o);
}

static int meet_record(void *user, const record_row *row, rp_error *err) {
    look *l = user;
    char path[DISK_PATH_BYTES];
    store_item item = {
        .row = *row,
        .fault = l->fault,
        .encrypted = l->a->cipher && !l->fault,
        .expired = row->use.expires != 0 && !row->use.pinned && row->use.expires <= l->now,
    };
    if (l->fault) {
        disk_folder_record(&l->a->folder, &row->record.key, path);
        item.encrypted = says_encrypted(path);
    }
    l->fault = RECORD_FAULT_NONE;
    return l->fn ? l->fn(l->user, &item, err) : RP_OK;
}

/* folder: the store's own, or a read-only view of it. compares: rows with the headers of their records. */
static int store_admin_examine(store_admin *a, const disk_folder *folder, bool compares, store_item_fn fn,
                               disk_oddity_fn on_odd, void *user, rp_error *err) {
    BASE_ASSERT(folder->read_only || folder->lock >= 0); /* invariant 5 */
    look l = {.a = a, .fn = fn, .on_odd = on_odd, .user = user, .now = (int64_t)time(NULL)};
    disk_records r = {
        .folder = folder,
        .index = a->index,
        .cipher = a->cipher,
        .by_index = true,
        .compares = compares,
        .fn = meet_record,
        .on_odd = store_admin_meet_oddity,
        .user = &l,
    };
    int rc = disk_records_each(&r, err);
    if (!rc && r.index_rc && err) *err = r.index_err;
    return rc ? rc : r.index_rc;
}

int store_admin_each(store_admin *a, store_item_fn fn, void *user, rp_error *err) {
    int rc = store_admin_examine(a, &a->folder, false, fn, NULL, user, err);
    return rc || a->folder.read_only || !a->index ? rc : record_index_commit(a->index, err);
}

int store_admin_peek(store_admin *a, store_item_fn fn, disk_oddity_fn on_odd, void *user, rp_error *err) {
    disk_folder view = a->folder;
    view.read_only = true;
    return store_admin_examine(a, &view, false, fn, on_odd, user, err);
}

int store_keys_add(store_keys *k, const base_key *key, uint64_t bytes, rp_error *err) {
    if (base_grow((void **)&k->files, &k->cap, k->n + 1, DISK_TIER_MAX_RECORDS, sizeof(*k->files)))
        return base_fail_memory(err, (k->n + 1) * sizeof(*k->files), "the records of a store");
    k->files[k->n++] = (disk_file){*key, bytes};
    k->bytes += bytes;
    return RP_OK;
}

/* ---- changes ---- */

int store_admin_remove(store_admin *a, const base_key *key, rp_error *err) {
    char path[DISK_PATH_BYTES];
    BASE_ASSERT(!a->folder.read_only &&
                a->folder.lock >= 0); /* invariant 5: it holds its lock, and files change first */
    disk_folder_record(&a->folder, key, path);
    int rc = base_io_unlink(path, err);
    a->unsynced |= 1u << disk_folder_of(key);
    return rc || !a->index ? rc : record_index_remove(a->index, key, err);
}

int store_admin_set_expiry(store_admin *a, const base_key *key, int64_t expires, rp_error *err) {
    BASE_ASSERT(!a->folder.read_only && a->index && expires >= 0);
    a->has_changed = true;
    return record_index_set_expiry(a->index, key, expires, err);
}

int store_admin_pin(store_admin *a, const base_key *key, bool pinned, rp_error *err) {
    BASE_ASSERT(!a->folder.read_only && a->index);
    a->has_changed = true;
    return record_index_set_pinned(a->index, key, pinned, err);
}

/* Syncs each folder with removals once, and then the index: a change that was reported outlives a loss of power. */
int store_admin_commit(store_admin *a, rp_error *err) {
    bool any = a->unsynced != 0 || a->has_changed;
    BASE_ASSERT(!any || !a->folder.read_only);
    a->has_changed = false;
    int rc = disk_folder_sync_removals(&a->folder, &a->unsynced, err);
    if (!a->index) return rc;
    int cause = errno, committed = any ? record_index_commit_durably(a->index, rc ? NULL : err)
                                       : record_index_commit(a->index, rc ? NULL : err);
    if (rc) errno = cause;
    return rc ? rc : committed;
}

int store_admin_commit_removals(store_admin *a, bool *index_unwritten, rp_error *err) {
    rp_error why;
    open_index_again(a);
    int rc = store_admin_commit(a, &why);
    bool is_full = rc == RP_ERR_IO && base_io_is_full(errno);
    *index_unwritten = a->is_full || is_full;
    if (rc && !is_full && err) *err = why;
    return is_full ? RP_OK : rc;
}

/* ---- counting ---- */

static void store_admin_add(uint64_t *n, uint64_t *sum, bool counts, uint64_t bytes) {
    *n += counts;
    *sum += counts ? bytes : 0;
}

static int count_item(void *user, const store_item *item, rp_error *err) {
    rp_store_usage *s = user;
    const record_row *row = &item->row;
    bool known = row->n_layers > 0;
    (void)err;
    store_admin_add(&s->records, &s->record_bytes, true, row->bytes);
    store_admin_add(&s->modules, &s->module_bytes, known && row->record.kind == RECORD_MODULE, row->bytes);
    store_admin_add(&s->texts, &s->text_bytes, known && row->record.kind == RECORD_TEXT, row->bytes);
    store_admin_add(&s->reduced, &s->reduced_bytes, known && row->record.kind == RECORD_REDUCED, row->bytes);
    store_admin_add(&s->states, &s->state_bytes, known && record_is_of_states(row->record.kind), row->bytes);
    store_admin_add(&s->pinned, &s->pinned_bytes, row->use.pinned, row->bytes);
    store_admin_add(&s->expired, &s->expired_bytes, item->expired, row->bytes);
    s->tokens += (uint64_t)row->record.form.n_tokens;
    s->encrypted += item->encrypted;
    s->unreadable += item->fault != RECORD_FAULT_NONE;
    return RP_OK;
}

static void count_oddity(void *user, const disk_oddity *o) {
    rp_store_usage *s = user;
    store_admin_add(&s->leftovers, &s->leftover_bytes, o->kind == DISK_LEFTOVER, o->bytes);
    store_admin_add(&s->foreign, &s->foreign_bytes, o->kind == DISK_FOREIGN, o->bytes);
    s->broken += o->kind == DISK_BROKEN;
    if (o->kind == DISK_BROKEN) s->total_bytes += o->bytes;
    s->without_row += o->kind == DISK_FILE_WITHOUT_ROW;
    s->without_file += o->kind == DISK_ROW_WITHOUT_FILE;
}

static void count_bad(void *user, disk_file_kind kind, const char *path, uint64_t bytes) {
    rp_store_usage *s = user;
    (void)kind;
    (void)path;
    store_admin_add(&s->bad, &s->bad_bytes, true, bytes);
}

static uint64_t index_bytes(const store_admin *a) {
    return a->folder.read_only || !a->index ? a->index_bytes : record_index_bytes(a->index);
}

int store_admin_stats(store_admin *a, rp_store_usage *out, rp_error *err) {
    *out = (rp_store_usage){.owner = a->folder.read_only ? disk_folder_owner(&a->folder) : 0};
    int rc = store_admin_peek(a, count_item, count_oddity, out, err);
    disk_folder_each_bad(&a->folder, false, count_bad, out, NULL);
    out->index_bytes = index_bytes(a);
    out->total_bytes +=
        out->record_bytes + out->leftover_bytes + out->bad_bytes + out->index_bytes + disk_folder_overhead(&a->folder);
    return rc;
}

/* ---- cleaning ---- */

typedef struct cleaning {
    store_admin *a;
    rp_store_cleaning *out;
    rp_on_progress on_progress;
    void *user;
    store_keys expired;
    bool keeps; /* rows of records that cannot be opened */
} cleaning;

static int clean_item(void *user, const store_item *item, rp_error *err) {
    cleaning *c = user;
    store_admin_add(&c->out->records, &c->out->bytes, true, item->row.bytes);
    if (c->on_progress) c->on_progress(c->user, c->out->records, 0);
    if (c->keeps && item->fault && record_index_keep(c->a->index, &item->row.record.key, err))
        return RP_ERR_INTERNAL; /* RP_ERR_IO would mean that the index is unreadable */
    if (c->keeps || !item->expired) return RP_OK;
    return store_keys_add(&c->expired, &item->row.record.key, item->row.bytes, err);
}

static void clean_oddity(void *user, const disk_oddity *o) {
    cleaning *c = user;
    store_admin_add(&c->out->leftovers, &c->out->leftover_bytes, o->kind == DISK_LEFTOVER, o->bytes);
    c->out->set_aside += o->kind == DISK_BROKEN;
    c->out->rows_entered += o->kind == DISK_FILE_WITHOUT_ROW;
    c->out->rows_removed += o->kind == DISK_ROW_WITHOUT_FILE;
    c->out->rows_corrected += o->kind == DISK_ROW_DIFFERS;
}

static void clean_bad(void *user, disk_file_kind kind, const char *path, uint64_t bytes) {
    cleaning *c = user;
    (void)kind;
    (void)path;
    store_admin_add(&c->out->bad, &c->out->bad_bytes, true, bytes);
}

static int remove_expired(cleaning *c, rp_error *err) {
    rp_store_cleaning *out = c->out;
    int rc = RP_OK;
    for (size_t i = 0; i < c->expired.n && !rc; i++) {
        rc = store_admin_remove(c->a, &c->expired.files[i].key, err);
        if (rc) break;
        store_admin_add(&out->expired, &out->expired_bytes, true, c->expired.files[i].bytes);
        BASE_ASSERT(out->records > 0 && out->bytes >= c->expired.files[i].bytes);
        out->records--;
        out->bytes -= c->expired.files[i].bytes;
    }
    return rc;
}

/* Steps that free space come before those that need some. */
int store_admin_gc(store_admin *a, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err) {
    cleaning c = {.a = a, .out = out, .on_progress = on_progress, .user = user};
    BASE_ASSERT(!a->folder.read_only);
    *out = (rp_store_cleaning){.index_bytes_before = index_bytes(a)};
    int rc = disk_folder_each_bad(&a->folder, true, clean_bad, &c, err);
    if (!rc && a->is_full) { /* leftovers are removed by the scan */
        rc = store_admin_examine(a, &a->folder, false, NULL, clean_oddity, &c, err);
        open_index_again(a);
        out->rows_entered = out->rows_removed = 0;
    }
    if (!rc) rc = store_admin_examine(a, &a->folder, true, clean_item, clean_oddity, &c, err);
    if (!rc) rc = remove_expired(&c, err);
    /* files quarantined by this scan */
    if (!rc) rc = disk_folder_each_bad(&a->folder, true, clean_bad, &c, err);
    int committed = store_admin_commit_removals(a, &out->index_unwritten, rc ? NULL : err); /* removals are kept */
    if (!rc) rc = committed;
    if (!rc && a->index && !out->index_unwritten && (rc = record_index_compact(a->index, err)) == RP_ERR_IO &&
        base_io_is_full(errno))
        rc = RP_OK; /* its size stays the same */
    out->index_bytes = index_bytes(a);
    base_free(c.expired.files);
    return rc;
}

int store_admin_rebuild(store_admin *a, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err) {
    cleaning c = {.a = a, .out = out, .on_progress = on_progress, .user = user, .keeps = true};
    *out = (rp_store_cleaning){.index_bytes_before = index_bytes(a)};
    int rc = record_index_begin_rebuild(a->index, err);
    if (!rc) rc = store_admin_examine(a, &a->folder, false, clean_item, clean_oddity, &c, err);
    if (!rc) rc = record_index_end_rebuild(a->index, err);
    if (!rc) rc = record_index_commit(a->index, err);
    record_index_roll_back(a->index);
    if (!rc) rc = record_index_compact(a->index, err);
    out->index_bytes = index_bytes(a);
    return rc;
}
