/* SPDX-License-Identifier: Apache-2.0 */
/* disk_records.h: which records a store has: its files and its index compared, and what a crash left put right.
 *
 *   files   a  b     d  e        both by rising key
 *   rows    a  b  c     e
 *              |  |  |
 *              |  |  a file without a row: it tells of itself, and is entered
 *              |  a row without a file: it goes
 *              a file whose header is broken: it is set aside, and its row goes
 *
 * Of a file without a row pin and uses are recalled (record_index_recall).
 *
 * The engine does it when it opens a store (disk_tier.h), whoever looks after one at every look (store_admin.h).
 */
#ifndef STORE_DISK_RECORDS_H
#define STORE_DISK_RECORDS_H

#include "store/disk_folder.h"
#include "store/record_index.h"

/* What is not as it should be, or cannot be told. */
typedef enum disk_oddity_kind {
    DISK_LEFTOVER,         /* a file that is no record */
    DISK_BROKEN,           /* a record that is worth nothing to anybody */
    DISK_UNREADABLE,       /* one that another key, program or machine may read: it stays, and fn is told next */
    DISK_ROW_WITHOUT_FILE,
    DISK_FILE_WITHOUT_ROW, /* it has been read, and fn is told next */
    DISK_ROW_DIFFERS,      /* from its record (r->compares): the record's is entered, and fn is told next */
    DISK_FOREIGN,          /* a file that is not the store's: it is left alone */
} disk_oddity_kind;

typedef struct disk_oddity {
    disk_oddity_kind kind;
    const char *path;    /* borrowed, as all of it; of a row: where its file should be */
    uint64_t bytes;      /* on disk */
    record_fault fault;  /* of the broken and the unreadable */
    const char *message; /* one line, of these; else "" */
} disk_oddity;

typedef void (*disk_oddity_fn)(void *user, const disk_oddity *o);

/* folder->read_only: nothing is put right. */
typedef struct disk_records {
    const disk_folder *folder;
    record_index *index;         /* NULL: every file tells of itself, and none is entered */
    const record_cipher *cipher; /* NULL: records are not encrypted */
    bool compares;               /* the header of every record with its row: a crash may leave an older one */
    bool by_index;               /* of a record that is not readable the index tells all it knows, not its uses alone */
    record_row_fn fn;            /* told every record, by rising key, but those that are broken; stops with an error */
    disk_oddity_fn on_odd;       /* may be NULL */
    void *user;
    int index_rc;                /* out: the first change of the index that failed; the others were made, and all of the folder's */
    rp_error index_err;
} disk_records;

/* Changes of the index join its transaction, which is not committed. RP_ERR_IO, RP_ERR_MEMORY, what fn returns. */
int disk_records_each(disk_records *r, rp_error *err);

/* Enters a record into the index: of an encrypted one neither tokens nor label, which are text. RP_ERR_IO. */
int disk_records_enter(record_index *index, const record_cipher *cipher, const record_row *row, rp_error *err);

/* What a row and its record say alike. */
typedef struct disk_row_digests {
    base_key own;  /* what the key stands for: fingerprint, kind, slots, form, and the text of a record that is not encrypted; */
    base_key rest; /* what another write of the same key may say otherwise: parent and place, cost, tenant, label */
} disk_row_digests;
/* has_text: the index has the record's text and label (disk_records_enter). */
disk_row_digests disk_records_digest(const record *r, const base_key *fingerprint, int32_t n_layers, bool has_text);

#endif
