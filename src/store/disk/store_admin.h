/* SPDX-License-Identifier: Apache-2.0 */
/* store_admin.h: inspection, verification and cleaning of a store's folder without a model. Implements the folder
 * functions of reprise_store.h, which documents each; store_bundle.h exports and imports modules.
 *
 * Every scan compares files and index (disk_records.h). Files change first, then the index, which is committed once
 * at the end: work that a killed process has left undone is detected by the next scan.
 *
 * One user at a time; no threads of its own.
 */
#ifndef STORE_STORE_ADMIN_H
#define STORE_STORE_ADMIN_H

#include "store/disk/disk_records.h"
#include "reprise_store.h"

typedef struct store_admin {
    disk_folder folder;
    record_index *index;  /* NULL: opened read-only and there is none that can be read, or is_full */
    bool is_full;         /* the disk was full when the index was opened, and it has not been opened and compared with
                             the files since: removals are possible, and the index follows later */
    uint64_t index_bytes; /* size of the index before it was opened: opening increases it */
    record_cipher *cipher;
    bool has_changed;  /* pins or expiry times since the last commit */
    uint32_t unsynced; /* a bit for each folder that lost records since the last commit */
} store_admin;

/* RP_ERR_IO, RP_ERR_FORMAT (no store), RP_ERR_CONFLICT, RP_ERR_INVALID, RP_ERR_MEMORY. */
int store_admin_open(store_admin **out, const char *dir, const rp_store_options *options, rp_error *err);
void store_admin_close(store_admin *a); /* NULL is fine */

/* May the store be changed, or (removes) may records be removed? RP_ERR_CONFLICT, RP_ERR_IO (a full disk, which
 * permits removals only). */
int store_admin_may_change(const store_admin *a, bool removes, rp_error *err);

typedef int (*store_item_fn)(void *user, const store_item *item, rp_error *err);

/* Calls fn (may be NULL) with every record by ascending key; its pointers are borrowed meanwhile. Repairs folder and
 * index on the way, unless the store is read-only. RP_ERR_IO, RP_ERR_MEMORY, errors of fn (which must not return
 * RP_ERR_IO). */
int store_admin_each(store_admin *a, store_item_fn fn, void *user, rp_error *err);

/* The same, and reports differences; repairs nothing. */
int store_admin_peek(store_admin *a, store_item_fn fn, disk_oddity_fn on_odd, void *user, rp_error *err);

/* Removes, pins or unpins a record. Durable after store_admin_commit. RP_ERR_IO. */
int store_admin_remove(store_admin *a, const base_key *key, rp_error *err);
int store_admin_pin(store_admin *a, const base_key *key, bool pinned, rp_error *err);
int store_admin_set_expiry(store_admin *a, const base_key *key, int64_t expires,
                           rp_error *err); /* seconds since 1970; 0: never */
int store_admin_commit(store_admin *a, rp_error *err);
/* The same after removals. *index_unwritten: the disk is full and the index keeps the rows of removed records; the
 * next opening that can write repairs it. */
int store_admin_commit_removals(store_admin *a, bool *index_unwritten, rp_error *err);

int store_admin_stats(store_admin *a, rp_store_usage *out, rp_error *err);
int store_admin_verify(store_admin *a, rp_on_progress on_progress, rp_on_store_finding on_finding, void *user,
                       rp_store_verification *out, rp_error *err);
int store_admin_gc(store_admin *a, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err);
int store_admin_rebuild(store_admin *a, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err);

/* Keys that a scan selected, to be processed after it. Zero-initialise; base_free(keys). */
typedef struct store_keys {
    disk_file *files;
    size_t n, cap;
    uint64_t bytes;
} store_keys;
int store_keys_add(store_keys *k, const base_key *key, uint64_t bytes, rp_error *err);

#endif
