/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_internal.h: declarations shared by gguf.c (one file) and gguf_open.c (the files of a model). */
#ifndef MODEL_GGUF_INTERNAL_H
#define MODEL_GGUF_INTERNAL_H

#include "base/file.h"
#include "model/gguf/gguf.h"

typedef struct gguf_item {
    gguf_string key;
    gguf_value_type type;
    const uint8_t *value; /* scalars: little-endian bytes; strings: their bytes; arrays: the first element */
    uint64_t n;           /* of a string's bytes or an array's elements */
    gguf_value_type element;
    const uint8_t *raw; /* the encoded value */
    size_t raw_bytes;
} gguf_item;

/* Names sorted by bytes, for lookup and detection of duplicates. */
typedef struct gguf_name_entry {
    gguf_string name;
    size_t index;
} gguf_name_entry;

#define GGUF_MAX_FILE_BYTES ((uint64_t)INT64_MAX)

/* One file. The first part of a split model owns the other parts, and lists the tensors of all parts. */
struct gguf_file {
    base_map map; /* empty if the bytes are the caller's */
    char *name;
    const uint8_t *data;
    size_t bytes;
    uint64_t room;                 /* bytes that the header may claim: `bytes`, or GGUF_MAX_FILE_BYTES while a file is
                                      measured */
    uint64_t data_end, padded_end; /* end of the last tensor, and of the padding after it, from the file's start */
    size_t header_bytes;
    uint32_t version;
    size_t n_metadata, n_tensors;
    gguf_item *metadata;
    gguf_name_entry *metadata_index;
    gguf_tensor *tensors;
    gguf_name_entry *tensor_index;
    gguf_file **others; /* parts 1 .. n_others */
    size_t n_others;
};

/* Reads and checks f->data and fills in the other members; f->others stays empty. The caller closes f, on failure as
 * well. */
int gguf_read(gguf_file *f, rp_error *err);
/* The same without the tensors' data, which the file need not have yet: no tensor has data. */
int gguf_read_header(gguf_file *f, rp_error *err);

/* Sorts by name, then by index. Returns the first entry with the same name as the previous entry, or n. */
size_t gguf_sort_names(gguf_name_entry *entries, size_t n);

#endif
