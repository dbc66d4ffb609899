/* SPDX-License-Identifier: Apache-2.0 */
/* record_forge.h: spans of random KV and the files of their records, whole and altered, for tests and fuzzers of
 * records. */
#ifndef SUPPORT_RECORD_FORGE_H
#define SUPPORT_RECORD_FORGE_H

#include <stdbool.h>

#include "store/record/record_layer.h"

/* A folder with one span to write. The seed determines everything except the content of unused slots, which `junk`
 * determines. */
typedef struct record_world {
    char folder[64], path[96], other[96];
    kv_pool *pool;
    record_format format;
    record record; /* with the span's form */
    int32_t tokens[KV_SPAN_TOKENS];
    void *form_arrays;
    kv_span *span;
} record_world;

typedef struct record_plan {
    const kv_shape *shape;
    int32_t first_pos, n_slots;
    int32_t n_extra; /* slots that are appended and taken back */
    int32_t from;    /* frees the blocks that no token at this position or later attends to; 0: none */
    uint64_t seed, junk;
    /* a part of a reduced run of n_slots tokens, of which each head has none, some, or all */
    bool is_reduced;
    int32_t part;
    rp_kv_format encoded; /* in this format, if it is encoded */
} record_plan;

/* Ends the process if there is no memory or no folder. */
void record_world_open(record_world *w, const record_plan *plan);
void record_world_close(record_world *w); /* with all files of the folder */
/* Files in the folder, and how many of them have temporary names. */
int record_world_files(const record_world *w, int *n_temporary);
/* A cipher of 32 equal bytes. */
record_cipher *forge_cipher(uint8_t byte);

/* Do two spans of a shape have the same KV in the slots of their tokens, and `copy` zeros in the others? Of reduced
   ones also: positions. */
bool forge_spans_equal(const kv_shape *shape, const kv_span *span, const kv_span *copy);

/* ---- files in memory ---- */

typedef struct forged {
    uint8_t *bytes;
    size_t n;
} forged;

forged forge_load(const char *path);
void forge_save(const char *path, const uint8_t *bytes, size_t n);
void forge_free(forged *f);
/* Recomputes the checksum of the header of an arbitrary file. */
void forge_header_checksum(uint8_t *bytes, size_t n);
/* The offsets of a plain record's private header end and KV; false: the header's numbers are impossible, or the header
 * does not fit. */
bool forge_places(const uint8_t *bytes, size_t n, uint64_t *private_bytes, uint64_t *kv_at);
/* The sizes and offsets that follow from the numbers of a plain record. */
void forge_sizes(uint8_t *bytes, size_t n);
/* The checksums of a plain record's layers, as far as they fit. */
void forge_layer_checksums(uint8_t *bytes, size_t n);
/* Encrypts the private header and the layers of a plain record, if they can be located; else n is 0. */
forged forge_encrypt(const uint8_t *bytes, size_t n, const record_cipher *cipher);

#endif
