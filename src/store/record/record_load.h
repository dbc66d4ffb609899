/* SPDX-License-Identifier: Apache-2.0 */
/* record_load.h: loads a record of any model into memory of its own, to write it elsewhere. */
#ifndef STORE_RECORD_LOAD_H
#define STORE_RECORD_LOAD_H

#include "store/record/record.h"

/* The bytes of a file that are a record. */
typedef struct record_place {
    const char *path;
    uint64_t at, bytes; /* bytes 0: the whole file */
} record_place;

typedef struct record_loaded {
    record_reader *reader; /* has record_reader_record and record_reader_format */
    kv_pool *pool;
    kv_span *span;          /* all layers are ready */
    record_reader *headers; /* internal: has the format that the reader was opened with */
} record_loaded;

/* The shape of a pool that takes the span of a record. s: of the record; its arrays are shared. */
kv_shape record_pool_shape(const kv_shape *s);
/* The record at a place, opened. */
record_fault record_place_open(record_reader **out, const record_place *place, const base_key *key,
                               const record_cipher *cipher, rp_error *err);
/* Reads all of it and checks every byte. On a fault *out needs no freeing. */
record_fault record_load(record_loaded *out, const record_place *place, const base_key *key,
                         const record_cipher *cipher, rp_error *err);
void record_loaded_free(record_loaded *l); /* zero-initialised is fine */

#endif
