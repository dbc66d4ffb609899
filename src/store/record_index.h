/* SPDX-License-Identifier: Apache-2.0 */
/* record_index.h: what can be asked about records without opening them: an SQLite database beside them.
 *
 *   records   key | fingerprint, parent, kind, at, first_slot, pos, slots, readable_from, kept, tokens | label, bytes, cost_us
 *             tenant, uses, last_use, expires, pinned
 *
 * The files are the truth: a row whose file is gone, and a file without a row, are found when a store is opened (disk_tier.h), and the
 * whole table can be made again from the files' headers. Where records are encrypted no row has tokens or a label: they are text.
 *
 * Write-ahead log; changes are gathered in one transaction until record_index_commit. Any thread, one at a time.
 */
#ifndef STORE_RECORD_INDEX_H
#define STORE_RECORD_INDEX_H

#include "store/record.h"

typedef struct record_index record_index;

/* A record, and what is known of its use. */
typedef struct record_row {
    record record;
    base_key fingerprint; /* of the model and format that it is for */
    int32_t n_layers;     /* of record.form.kept */
    uint64_t bytes;       /* that its file takes on disk */
    uint64_t uses;
    int64_t last_use;     /* seconds since 1970 */
    int64_t expires;      /* likewise; 0: never */
    bool pinned;
} record_row;

/* What becomes of a record after it was written: as in its row. */
typedef struct record_use {
    uint64_t uses;
    int64_t last_use, expires;
    bool pinned;
} record_use;

#define RECORD_INDEX_BAD ".bad" /* the end of a damaged index's name */

/* path: of the database; made if it is not there, for its owner alone. Only one that SQLite says is damaged or no database, or that has not our
 * table, is replaced by a new one: it is kept beside it. RP_ERR_IO: it cannot be used now, and is left as it is; errno is the cause (EBUSY:
 * another process has it locked; ENOTSUP: a newer version). RP_ERR_MEMORY. */
int record_index_open(record_index **out, const char *path, rp_error *err);
/* Commits what was gathered. */
void record_index_close(record_index *ix);

/* What is known of a record that has no row: its pin from the file `pins` beside the database, which has the pinned keys and is written
 * whenever they change; its uses and times from a damaged index, as far as that could be read. */
void record_index_recall(const record_index *ix, const base_key *key, record_use *out);
/* Every file has been looked at. Until then nothing of a new index is committed: one that lacks rows would seem to lack their pins. */
void record_index_complete(record_index *ix);

/* What lies at a path, without changing anything. */
typedef enum record_index_look {
    RECORD_INDEX_NONE,  /* no database, or a damaged one */
    RECORD_INDEX_EMPTY, /* without tables: whoever made it was killed */
    RECORD_INDEX_OURS,
    RECORD_INDEX_OTHER, /* another program's, or it cannot be opened */
} record_index_look;
record_index_look record_index_look_at(const char *path);

/* Each of these joins the transaction. RP_ERR_IO, with the cause in errno; RP_ERR_MEMORY. */
int record_index_put(record_index *ix, const record_row *row, rp_error *err);
int record_index_remove(record_index *ix, const base_key *key, rp_error *err);
int record_index_note(record_index *ix, const base_key *key, const record_use *use, rp_error *err);
int record_index_commit(record_index *ix, rp_error *err);
/* The same, and what was removed is gone from the disk for good when it returns, after a loss of power too: synced, and neither in the log nor in
 * free pages, but for copies that SQLite left when it split a page (compact removes them). While another process reads the index, old rows may stay in the log until the next commit. RP_ERR_IO. */
int record_index_commit_durably(record_index *ix, rp_error *err);
/* From now on nothing waits for the disk: the log is not carried over, which the next one who opens the index does. */
void record_index_hurry(record_index *ix);

/* Calls fn for every row, by rising key; what row points to is borrowed meanwhile. fn returns an error to stop. fingerprint NULL: rows of
 * every model. Rows that cannot be are left out. RP_ERR_IO, and what fn returns. */
typedef int (*record_row_fn)(void *user, const record_row *row, rp_error *err);
int record_index_each(record_index *ix, const base_key *fingerprint, record_row_fn fn, void *user, rp_error *err);

/* Bytes on disk: database, log and shared memory. */
uint64_t record_index_bytes(const record_index *ix);
uint64_t record_index_bytes_at(const char *path); /* of one that is not open, too */

/* ---- For who looks after a store (store_admin.h) ---- */

/* Opens a database that is there, to ask and not to change, also while another process changes it. RP_ERR_IO (there is none, or it cannot
 * be read), RP_ERR_MEMORY. */
int record_index_open_read(record_index **out, const char *path, rp_error *err);
/* Is every page what it should be, and the version known? RP_ERR_FORMAT. */
int record_index_check(record_index *ix, rp_error *err);
/* Each of these joins the transaction; a key without a row is fine. RP_ERR_IO. */
int record_index_set_pinned(record_index *ix, const base_key *key, bool pinned, rp_error *err);
int record_index_set_expiry(record_index *ix, const base_key *key, int64_t expires, rp_error *err);
/* The table is made again: it is empty now, and the old rows are set aside; */
int record_index_begin_rebuild(record_index *ix, rp_error *err);
/* an old row is taken over as it was, where its record cannot be opened; */
int record_index_keep(record_index *ix, const base_key *key, rp_error *err);
/* and uses, last use, expiry and pin of the old rows, which no file has, go to the new ones of their keys. */
int record_index_end_rebuild(record_index *ix, rp_error *err);
/* Takes back the transaction. */
void record_index_roll_back(record_index *ix);
/* Commits, carries the log over and gives free pages back. RP_ERR_IO. */
int record_index_compact(record_index *ix, rp_error *err);

#endif
