/* SPDX-License-Identifier: Apache-2.0 */
/* record_row.h: a record with its use: as tiers index it, and as it is on its way to one. A row in a block of memory of
 * its own (record_row_new) can be passed between threads and is freed by base_free.
 *
 *   | record_row | tokens | arrays of the form | label |      all pointers of the row lead into the block
 */
#ifndef STORE_RECORD_ROW_H
#define STORE_RECORD_ROW_H

#include "store/record/record.h"

/* The fields of a row that change after its record was written. */
typedef struct record_use {
    uint64_t uses;
    int64_t last_use; /* seconds since 1970 */
    int64_t expires;  /* likewise; 0: never */
    bool pinned;
} record_use;

typedef struct record_row {
    record record;
    base_key fingerprint; /* of its model and format */
    int32_t n_layers;     /* of record.form.kept; 0: its header could not be read */
    uint64_t bytes;       /* size in its tier */
    record_use use;
} record_row;

/* An entry of a store as listings describe it: of a folder without an engine, or of a store in use. */
typedef struct store_item {
    record_row row;     /* of a store in use: its form is format and n_tokens alone, and bytes is 0 without a record */
    record_fault fault; /* of a folder: why its header cannot be read */
    bool encrypted;
    bool expired;       /* its time is over, and it is not pinned */
    bool held;          /* of a store in use: referenced by others than the store */
    uint64_t ram_bytes; /* of a store in use */
} store_item;

/* Receives a row, whose pointers are borrowed meanwhile. An error stops the enumeration. */
typedef int (*record_row_fn)(void *user, const record_row *row, rp_error *err);

/* A copy of a record in a block of its own (base_free), with key and form of the span, without a use. r->key and
 * r->form are ignored; r->label is not NULL. NULL: out of memory. */
record_row *record_row_new(const record *r, const kv_span *span, const base_key *fingerprint);
/* The same of a record with its key and a form of n_layers. */
record_row *record_row_copy(const record *r, int32_t n_layers, const base_key *fingerprint);

#endif
