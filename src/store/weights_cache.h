/* SPDX-License-Identifier: Apache-2.0 */
/* weights_cache.h: repacked weights in files, so that a model is repacked once (docs/decisions/0031). Implements
 * backend_weights (backend/backend.h).
 *
 *   DIR/
 *     {64 digits}.rpw               repacked weights of one model for one order of bytes, named by a hash of both
 *     {64 digits}.rpw.PID-TIME.tmp  a file that is being written, locked by its writer; unlocked: of a killed process
 *     fingerprints                  digests of models (store/disk/fingerprints.h), unless the model's fingerprint is
 *           known
 *
 * A file, little-endian (store/weights_file.h checks it):
 *
 *     0   8  magic: 89 'R' 'P' 'W' 0D 0A 1A 0A
 *     8   4  version: 1
 *    12   4  N, matrices
 *    16  32  digest of the model's files (model_fingerprint.c)
 *    48   4  side, rows that are interleaved
 *    52   4  version of the order of bytes (backend_packed)
 *    56   8  bytes of the file
 *    64   8  offset of the first matrix, a multiple of 4096 (in large files, of 2 MiB)
 *    72   8  time of creation, seconds since 1970
 *    80  64  the model's name, for people: UTF-8, zeros at the end
 *   144 16N  of each matrix: bytes, a multiple of 64; XXH3 (64 bits) of them
 *         8  XXH3 (64 bits) of all before
 *            zeros, then the matrices one after another, to the end
 *
 * Invariants
 *
 *   1. A file is whole or absent: it is written under a temporary name, synced, and renamed. Its bytes never change.
 *   2. A file that is not exactly what this model needs (digest, order, number and sizes of matrices, length, checksum
 *      of the header) is a miss with a named reason, and is written again. The matrices' own checksums are verified by
 *      weights_cache_verify only: reading all bytes at each start would cost what the file saves.
 *   3. Only a regular file that belongs to the user and that nobody else can write to is mapped. No link is followed.
 *   4. Files and temporary files of the folder take at most the budget. Only names of the patterns above are removed.
 *
 * Several processes may use a folder at the same time: names are unique, and a file that is removed remains mapped
 * where it is. One thread per weights_cache.
 */
#ifndef STORE_WEIGHTS_CACHE_H
#define STORE_WEIGHTS_CACHE_H

#include "backend/backend.h"
#include "model/model.h"
#include "reprise_store.h"

typedef struct weights_cache weights_cache;

typedef struct weights_cache_options {
    const char *dir;       /* need not exist; a folder below it, or above it, may be a symbolic link, itself must not */
    uint64_t budget_bytes; /* limit on all files of the folder */
    uint64_t min_bytes;    /* fewer are not kept */
    bool read_only;
    int n_threads; /* to hash a model */
} weights_cache_options;

/* The model is borrowed. RP_ERR_INVALID (a path that is too long), RP_ERR_MEMORY. */
int weights_cache_new(weights_cache **out, rp_model *model, const weights_cache_options *options, rp_error *err);
void weights_cache_free(weights_cache *c);                        /* unmaps what find returned; NULL is fine */
const backend_weights *weights_cache_interface(weights_cache *c); /* valid as long as the cache */
const char *weights_cache_state(const weights_cache *c);          /* rp_engine_info.weights_cache; static */

/* ---- Maintenance: reprise_store.h has the public functions ---- */

/* Calls fn with each file by name; reads_all: verifies every byte. RP_ERR_IO. */
int weights_cache_each(const char *dir, bool reads_all, rp_on_progress on_progress, rp_on_weights_file fn, void *user,
                       rp_error *err);
/* Removes files whose model's digest begins with these digits (NULL: all), and temporary files without a writer.
 * RP_ERR_IO. */
int weights_cache_remove(const char *dir, const char *digits, uint64_t *n, uint64_t *bytes, rp_error *err);
/* Removes temporary files without a writer, and damaged files. RP_ERR_IO. */
int weights_cache_clean(const char *dir, uint64_t *n, uint64_t *bytes, rp_error *err);

#endif
