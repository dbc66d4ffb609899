/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h: reader of a model's GGUF v2 or v3 file, or files, through read-only memory maps.
 *
 * Files are untrusted: every count, length, offset, alignment and type is validated against the file's size (with
 * overflow checks) before it is used. After gguf_open has succeeded, every pointer that this interface returns points
 * at bytes inside a map, and every tensor's data lies wholly inside it.
 *
 * File, little-endian:
 *   "GGUF"  u32 version  u64 n_tensors  u64 n_metadata
 *   n_metadata x { string key, u32 type, value }            string: u64 length, bytes
 *   n_tensors  x { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }
 *   padding to general.alignment (default 32), then the tensors' data; offsets count from here
 *
 * Immutable after opening; any number of threads may read.
 */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/file.h"
#include "kernels/kernels.h"
#include "reprise.h"

#define GGUF_MAX_TENSORS 65536
#define GGUF_MAX_METADATA 65536
#define GGUF_MAX_DIMS 4
#define GGUF_MAX_NAME 256   /* bytes of a tensor's or key's name */
#define GGUF_MAX_PARTS 1024 /* files of a split model */

typedef enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_VALUE_TYPE_COUNT
} gguf_value_type;

typedef struct gguf_string {
    const char *bytes; /* in the map, not NUL-terminated */
    uint64_t n;
} gguf_string;

static inline bool gguf_string_is(gguf_string s, const char *text) {
    return s.n == strlen(text) && memcmp(s.bytes, text, s.n) == 0;
}

typedef struct gguf_tensor {
    gguf_string name;
    kernel_type type; /* as kernels know it */
    int32_t n_dims;
    int64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous; unused ones are 1 */
    const void *data;
    uint64_t bytes;
} gguf_tensor;

typedef struct gguf_file gguf_file;

/* For a model that is split into NAME-00001-of-00003.gguf, NAME-00002-of-00003.gguf, ..., path must name the first
 * part. Metadata come from the first part, tensors from all. RP_ERR_IO (also: a part is missing), RP_ERR_FORMAT (with
 * the byte offset of the error; also: a part of another model), RP_ERR_UNSUPPORTED (version, tensor type),
 * RP_ERR_INVALID (not the first part), RP_ERR_MEMORY. */
int gguf_open(gguf_file **out, const char *path, rp_error *err);
/* The same for bytes in memory, owned by the caller (fuzzing, tests). name: for messages. */
int gguf_open_memory(gguf_file **out, const void *data, size_t bytes, const char *name, rp_error *err);
/* The parts of a split model in memory, in order, n_parts >= 1. */
typedef struct gguf_bytes {
    const void *data;
    size_t n;
} gguf_bytes;
int gguf_open_parts(gguf_file **out, const gguf_bytes *parts, size_t n_parts, const char *name, rp_error *err);
void gguf_close(gguf_file *f);
/* The size of one file by its header: up to the end of the last tensor, and up to the end of the padding that may
 * follow it. The file may end anywhere after its header. The errors of gguf_open; RP_ERR_FORMAT: also an incomplete
 * header. */
int gguf_measure(const char *path, uint64_t *bytes, uint64_t *padded_bytes, rp_error *err);

/* Hint that these bytes of a tensor's data are not needed soon: their pages of the map may be released
 * (base/file.h). */
void gguf_forget(const gguf_file *f, const void *data, size_t bytes);

const char *gguf_name(const gguf_file *f); /* the path (of the first part), for messages */
size_t gguf_n_parts(const gguf_file *f);
/* the part's path; for memory, the name given at opening */
const char *gguf_part_name(const gguf_file *f, size_t part);
/* Identity of a part's file at the time it was mapped. false: the part is bytes in memory. */
bool gguf_part_id(const gguf_file *f, size_t part, base_file_id *out);
uint32_t gguf_version(const gguf_file *f);
size_t gguf_n_tensors(const gguf_file *f);
const gguf_tensor *gguf_tensor_at(const gguf_file *f, size_t i);
/* NULL if absent */
const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name);
/* The bytes of a part's header, metadata and tensor table, for a fingerprint. */
const void *gguf_header(const gguf_file *f, size_t part, size_t *bytes);
size_t gguf_n_metadata(const gguf_file *f);
gguf_string gguf_metadata_key(const gguf_file *f, size_t i);
/* The i-th value as encoded in the file, for copying. */
gguf_bytes gguf_metadata_raw(const gguf_file *f, size_t i, gguf_value_type *type);

/* Metadata. Return true if the key is present with a compatible type (any integer type that holds the value for u64 and
 * i64; F32 or F64 for f64); else false, and *out is unchanged. */
bool gguf_get_u64(const gguf_file *f, const char *key, uint64_t *out);
bool gguf_get_i64(const gguf_file *f, const char *key, int64_t *out);
bool gguf_get_f64(const gguf_file *f, const char *key, double *out);
bool gguf_get_bool(const gguf_file *f, const char *key, bool *out);
bool gguf_get_string(const gguf_file *f, const char *key, gguf_string *out);
bool gguf_has(const gguf_file *f, const char *key);

/* Arrays. Fixed-size elements: `data` points at n packed little-endian elements, possibly misaligned (use memcpy).
 * Strings: gguf_array_strings copies the n string headers into out (caller's array of n). Nested arrays are skipped
 * when opening, and reported as absent here. */
typedef struct gguf_array {
    gguf_value_type type;
    uint64_t n;
    const void *data;
} gguf_array;
bool gguf_get_array(const gguf_file *f, const char *key, gguf_array *out);
void gguf_array_strings(const gguf_array *a, gguf_string *out);

#endif
