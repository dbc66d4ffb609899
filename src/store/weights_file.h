/* SPDX-License-Identifier: Apache-2.0 */
/* weights_file.h: one file of repacked weights: reading, checking and writing (format: weights_cache.h). Owns no
 * folder. */
#ifndef STORE_WEIGHTS_FILE_H
#define STORE_WEIGHTS_FILE_H

#include "base/hash.h"
#include "base/io.h"
#include "backend/backend.h"

#define WEIGHTS_NAME_BYTES 64

/* Why a file was not used. WEIGHTS_OK has the name "". */
#define WEIGHTS_FAULTS(X) \
    X(OK, "") \
    X(ABSENT, "absent") \
    X(IO, "io") \
    X(OWNER, "owner") \
    X(VERSION, "version") \
    X(DAMAGED, "damaged") \
    X(TRUNCATED, "truncated") \
    X(MODEL, "model") \
    X(LEVEL, "level") \
    X(LAYOUT, "layout")
typedef enum weights_fault {
#define X(id, name) WEIGHTS_##id,
    WEIGHTS_FAULTS(X)
#undef X
        WEIGHTS_FAULT_END
} weights_fault;
const char *weights_fault_name(weights_fault fault);

/* A header that was read. */
typedef struct weights_header {
    uint32_t n, side, version;
    base_key digest;
    uint64_t file_bytes, data_begin;
    int64_t created;
    char name[WEIGHTS_NAME_BYTES + 1];
    uint64_t *bytes, *sums; /* [n], owned: weights_header_free */
} weights_header;
void weights_header_free(weights_header *h);

/* Reads and checks the header of an open file, and its size. err: what is wrong, for WEIGHTS_IO. */
weights_fault weights_file_read(const base_io_file *f, weights_header *out, rp_error *err);
/* Is it the file of this model and this order? */
weights_fault weights_file_match(const weights_header *h, const base_key *digest, const backend_packed *packed);
/* Reads every byte. on_progress (bytes) may be NULL. WEIGHTS_OK, WEIGHTS_IO, WEIGHTS_TRUNCATED, WEIGHTS_DAMAGED. */
weights_fault weights_file_verify(const base_io_file *f, const weights_header *h, rp_on_progress on_progress,
                                  void *user, rp_error *err);

/* Bytes of the file of these matrices. */
uint64_t weights_file_bytes(const backend_packed *packed);
/* Writes a file into a new, empty one, and syncs it. data: the matrices, one after another. RP_ERR_IO,
 * RP_ERR_MEMORY. */
int weights_file_write(const base_io_file *f, const base_key *digest, const backend_packed *packed, const char *name,
                       const char *data, rp_on_progress on_progress, void *user, rp_error *err);

#endif
