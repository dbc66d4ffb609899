/* SPDX-License-Identifier: Apache-2.0 */
/* disk_records.h: the records of a store: compares its files and its index, and repairs them after a crash.
 *
 *   files   a  b     d  e        both by ascending key
 *   rows    a  b  c     e
 *              |  |  |
 *              |  |  a file without a row: entered from its header
 *              |  a row without a file: removed
 *              a file with a broken header: quarantined, and its row removed
 *
 * Pin and uses of a file without a row are restored from elsewhere (record_index_recall).
 *
 * The engine does this when it opens a store (disk_tier.h), maintenance at every scan (store_admin.h).
 */
#ifndef STORE_DISK_RECORDS_H
#define STORE_DISK_RECORDS_H

#include "store/disk/disk_folder.h"
#include "store/disk/record_index.h"

/* A difference between files and index, or a file that cannot be checked. */
typedef enum disk_oddity_kind {
    DISK_LEFTOVER,   /* a file that is no record */
    DISK_BROKEN,     /* a record that nobody can use */
    DISK_UNREADABLE, /* another key, program or machine may be able to read it: it stays, and fn is called next */
    DISK_ROW_WITHOUT_FILE,
    DISK_FILE_WITHOUT_ROW, /* its header was read, and fn is called next */
    DISK_ROW_DIFFERS,      /* from its record (r->compares): the record's values are entered, and fn is called next */
    DISK_FOREIGN,          /* a file that is not the store's: it is not touched */
} disk_oddity_kind;

typedef struct disk_oddity {
    disk_oddity_kind kind;
    const char *path;    /* borrowed, like all pointers here; of a row: the expected path of its file */
    uint64_t bytes;      /* on disk */
    record_fault fault;  /* of DISK_BROKEN and DISK_UNREADABLE */
    const char *message; /* one line, of these two; else "" */
} disk_oddity;

typedef void (*disk_oddity_fn)(void *user, const disk_oddity *o);

/* folder->read_only: nothing is repaired. */
typedef struct disk_records {
    const disk_folder *folder;
    record_index *index;         /* NULL: headers are the only source, and no row is entered */
    const record_cipher *cipher; /* NULL: records are not encrypted */
    bool compares;               /* compare the header of every record with its row: a crash may leave an older one */
    bool by_index;               /* take all fields of an unreadable record from the index, not its uses alone */
    record_row_fn fn;            /* called with all but broken records, by ascending key; an error stops it */
    disk_oddity_fn on_odd;       /* may be NULL */
    void *user;
    int index_rc; /* out: the first failed change of the index; all other changes were made */
    rp_error index_err;
} disk_records;

/* Changes of the index join its transaction, which is not committed. RP_ERR_IO, RP_ERR_MEMORY, errors of fn. */
int disk_records_each(disk_records *r, rp_error *err);

/* Enters a record into the index; tokens and label of an encrypted record, which are text, are left out. RP_ERR_IO. */
int disk_records_enter(record_index *index, const record_cipher *cipher, const record_row *row, rp_error *err);

/* Digests of the fields that a row and its record have in common. */
typedef struct disk_row_digests {
    base_key own;  /* content of the key: fingerprint, kind, slots, form, and the text if unencrypted */
    base_key rest; /* fields that another write of the same key may change: parent and position, cost, tenant, label */
} disk_row_digests;
/* has_text: the index has the record's text and label (disk_records_enter). */
disk_row_digests disk_records_digest(const record *r, const base_key *fingerprint, int32_t n_layers, bool has_text);

#endif
