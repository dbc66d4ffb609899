/* SPDX-License-Identifier: Apache-2.0 */
/* record_index.h: queries about records without opening them: an SQLite database beside the records.
 *
 *   records   key | fingerprint, parent, kind, at, first_slot, pos, slots, readable_from, format, kept, tokens | label,
 *         bytes,
 *             cost_us, tenant, uses, last_use, expires, pinned | of reduced spans: head_slots, end_pos, parts
 *
 * The files are authoritative: opening a store detects rows without a file and files without a row (disk_tier.h),
 * and the whole table can be rebuilt from the files' headers. Where records are encrypted no row has tokens or a
 * label: they are text.
 *
 * Write-ahead log; changes are gathered in one transaction until record_index_commit. Any thread, one at a time.
 */
#ifndef STORE_RECORD_INDEX_H
#define STORE_RECORD_INDEX_H

#include "store/record/record_row.h"

typedef struct record_index record_index;

#define RECORD_INDEX_BAD ".bad" /* suffix of a damaged index's name */

/* path: of the database; created if it does not exist, accessible to its owner alone. A database is replaced by a new
 * one only if SQLite reports it as corrupt or not a database, or if it lacks our table: the old one is kept beside
 * it. RP_ERR_IO: it cannot be used now, and is unchanged; errno is the cause (EBUSY: another process has it locked;
 * ENOTSUP: a newer version). RP_ERR_MEMORY. */
int record_index_open(record_index **out, const char *path, rp_error *err);
/* Commits the transaction. */
void record_index_close(record_index *ix);

/* Restores the usage of a record without a row: its pin from the file `pins` beside the database, which has the
 * pinned keys and is written whenever they change; its uses and times from a damaged index, as far as that was
 * readable. */
void record_index_recall(const record_index *ix, const base_key *key, record_use *out);
/* All files were compared. Until then a new index commits nothing: without rows it would lose their pins. */
void record_index_complete(record_index *ix);

/* The kind of file at a path; changes nothing. */
typedef enum record_index_look {
    RECORD_INDEX_NONE,  /* no database, or a damaged one */
    RECORD_INDEX_EMPTY, /* without tables: its creator was killed */
    RECORD_INDEX_OURS,
    RECORD_INDEX_OTHER, /* another program's, or it cannot be opened */
} record_index_look;
record_index_look record_index_look_at(const char *path);

/* Each of these joins the transaction. RP_ERR_IO, with the cause in errno; RP_ERR_MEMORY. */
int record_index_put(record_index *ix, const record_row *row, rp_error *err);
int record_index_remove(record_index *ix, const base_key *key, rp_error *err);
int record_index_note(record_index *ix, const base_key *key, const record_use *use, rp_error *err);
int record_index_commit(record_index *ix, rp_error *err);
/* The same, and the removals are durable when it returns, after a loss of power too: synced, and neither in the log
 * nor in free pages, except for copies that SQLite left when it split a page (compact removes them). While another
 * process reads the index, old rows may stay in the log until the next commit. RP_ERR_IO. */
int record_index_commit_durably(record_index *ix, rp_error *err);
/* From now on no operation waits for the disk: the log is not checkpointed; the next opening does that. */
void record_index_hurry(record_index *ix);

/* Calls fn for every row, by ascending key; the row's pointers are borrowed meanwhile. fn returns an error to stop.
 * fingerprint NULL: rows of every model. Invalid rows are skipped. RP_ERR_IO, errors of fn. */
int record_index_each(record_index *ix, const base_key *fingerprint, record_row_fn fn, void *user, rp_error *err);

/* Bytes on disk: database, log and shared memory. */
uint64_t record_index_bytes(const record_index *ix);
uint64_t record_index_bytes_at(const char *path); /* also while it is not open */

/* ---- maintenance (store_admin.h) ---- */

/* Opens an existing database read-only, also while another process changes it. RP_ERR_IO (there is none, or it cannot
 * be read), RP_ERR_MEMORY. */
int record_index_open_read(record_index **out, const char *path, rp_error *err);
/* Is every page intact, and the version known? RP_ERR_FORMAT. */
int record_index_check(record_index *ix, rp_error *err);
/* Each of these joins the transaction; a key without a row is fine. RP_ERR_IO. */
int record_index_set_pinned(record_index *ix, const base_key *key, bool pinned, rp_error *err);
int record_index_set_expiry(record_index *ix, const base_key *key, int64_t expires, rp_error *err);
/* Rebuilds the table: it is empty now, and the old rows are set aside; */
int record_index_begin_rebuild(record_index *ix, rp_error *err);
/* an old row is kept as it was if its record cannot be opened; */
int record_index_keep(record_index *ix, const base_key *key, rp_error *err);
/* and uses, last use, expiry and pin, which no file has, are copied from the old rows to the new rows of their keys. */
int record_index_end_rebuild(record_index *ix, rp_error *err);
/* Rolls back the transaction. */
void record_index_roll_back(record_index *ix);
/* Commits, checkpoints the log and frees unused pages. RP_ERR_IO. */
int record_index_compact(record_index *ix, rp_error *err);

#endif
