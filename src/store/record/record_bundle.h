/* SPDX-License-Identifier: Apache-2.0 */
/* record_bundle.h: the records of a module as one file, for export and import. docs/format.md describes every byte.
 *
 *   header            | items, 40 bytes each | name | record | record | ...      plain, by ascending key, without gaps
 *     0   8  magic        0  32  key
 *     8   4  version     32   8  bytes
 *    12   4  records
 *    16   8  bytes of the file
 *    24   4  bytes of the name
 *    28  20  zeros
 *    48  16  checksum over [0, 48) and the bytes between this header and the first record
 *
 * record.h describes the records; their own checksums cover all that this one does not. Nothing in a file is trusted:
 * a bundle that was altered, truncated or extended is refused, and memory is limited by the size of the file and by
 * fixed caps.
 *
 * One user at a time. System calls go through base/io.h.
 */
#ifndef STORE_RECORD_BUNDLE_H
#define STORE_RECORD_BUNDLE_H

#include "store/record/record_load.h"

#define RECORD_BUNDLE_VERSION 1
#define RECORD_BUNDLE_MAGIC "\x89RPB\r\n\x1a\n"
#define RECORD_BUNDLE_MAX 65536 /* records: 16 million tokens */

enum {
    RECORD_BUNDLE_HEADER = 64,
    RECORD_BUNDLE_ITEM = 40,
};

typedef struct record_bundle_item {
    base_key key;
    uint64_t bytes;
    uint64_t at; /* offset in the file; follows from the previous items */
} record_bundle_item;

typedef struct record_bundle {
    char name[RECORD_MAX_LABEL + 1]; /* the module's */
    record_bundle_item *items;
    size_t n;
    uint64_t file_bytes;
    char *path;
} record_bundle;

/* Is a label the name, or below it? "cities" matches "cities" and "cities/plan" and not "citiesandtowns"; so does
 * "cities/". */
bool record_label_is_below(const char *label, const char *name);
/* May a module's name be the name of a bundle? */
bool record_bundle_may_name(const char *name);

/* Reads and checks everything before the records. RP_ERR_IO, RP_ERR_FORMAT, RP_ERR_LIMIT (too many records),
 * RP_ERR_MEMORY. On failure *out needs no freeing. */
int record_bundle_open(record_bundle *out, const char *path, rp_error *err);
void record_bundle_close(record_bundle *b); /* zero-initialised is fine */
/* Reads the i-th record and checks every byte of it, and that it is a module's, whole or reduced, at or below the
 * bundle's name. RP_ERR_IO, RP_ERR_FORMAT, RP_ERR_MEMORY. */
int record_bundle_check(const record_bundle *b, size_t i, rp_error *err);
/* The same, into memory. On failure *out needs no freeing. */
int record_bundle_load(const record_bundle *b, size_t i, record_loaded *out, rp_error *err);

/* ---- writing ---- */

/* Writes the part before the records to a new file; b->name, n, and each item's key and bytes are the input, by
 * ascending key. Then the caller appends the records (record_append). RP_ERR_IO, RP_ERR_LIMIT, RP_ERR_MEMORY. */
int record_bundle_begin(const record_bundle *b, const base_io_file *to, rp_error *err);

#endif
