/* SPDX-License-Identifier: Apache-2.0 */
/* record.h: the states of one span as a file. docs/format.md has it byte by byte.
 *
 *   plain       public header | private header | zeros up to a page  | layer 0 | layer 1 | ...
 *   encrypted   public header | start of the stream | private header | layer 0 | layer 1 | ...      a message each, and one a block
 *
 *   public header    magic, version, flags, size of the file, checksum over both headers
 *   private header   model, key, parent, tokens, form, format; of each layer where it begins and a checksum
 *   layer            the blocks that the span kept of it, as they are in RAM; slots that no token has are zeros
 *
 * A record is written under a temporary name, synced and renamed, then its folder is synced: under its own name it is whole or absent.
 * The same span gives the same bytes (encrypted ones differ). Nothing in a file is trusted: every number is checked before it is used,
 * no more memory is asked for than the file has bytes, and states count only when their layer's checksum is right. A record that cannot
 * serve is a miss with a reason (record_fault).
 *
 * A reader has one user at a time; everything else may be called by any thread. Calls of the system go through base/io.h.
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "base/io.h"
#include "kv/span.h"
#include "store/record_cipher.h"

#define RECORD_MAX_LAYERS 4096
#define RECORD_MAX_LABEL 255
#define RECORD_MAX_BLOCK_BYTES ((uint64_t)64 << 20) /* 256 heads of 512 + 512 dimensions in f32 */
#define RECORD_TEMPORARY ".tmp"                     /* the end of temporary names: what a killed process leaves behind */

/* Why a record does not serve: X(NAME, name, code, text) */
#define RECORD_FAULTS(X) \
    X(NONE, none, OK, "it is usable") \
    X(GONE, gone, ERR_IO, "there is no such record") \
    X(IO, io, ERR_IO, "it is unreadable") \
    X(TRUNCATED, truncated, ERR_FORMAT, "it is truncated") \
    X(DAMAGED, damaged, ERR_FORMAT, "it is corrupt") \
    X(VERSION, version, ERR_FORMAT, "its version is not supported") \
    X(MODEL, model, ERR_FORMAT, "it belongs to another model") \
    X(ARITHMETIC, arithmetic, ERR_FORMAT, "its KV was computed by kernels with different rounding") \
    X(FORMAT, format, ERR_FORMAT, "its KV has another format") \
    X(KEY, key, ERR_FORMAT, "it contains another span") \
    X(CIPHER, cipher, ERR_FORMAT, "it cannot be decrypted") \
    X(MEMORY, memory, ERR_MEMORY, "out of memory")

typedef enum record_fault {
#define X(NAME, name, code, text) RECORD_FAULT_##NAME,
    RECORD_FAULTS(X)
#undef X
    RECORD_FAULT_COUNT
} record_fault;

const char *record_fault_name(record_fault fault); /* "truncated"; static */

typedef enum record_kind { RECORD_MODULE, RECORD_TEXT, RECORD_KIND_COUNT } record_kind;

/* What a record says of its span. Arrays and strings are borrowed. */
typedef struct record {
    base_key key;    /* names the span */
    base_key parent; /* text: the node, or root, that it stands behind; module: the span before it in its segment, or zeros */
    record_kind kind;
    int32_t at;         /* text: behind so many tokens of the parent, at most 256 */
    int32_t first_slot; /* the slot of tokens[0] */
    int32_t n_tokens;   /* at most 256; first_slot + n_tokens is at most form.n_tokens */
    const int32_t *tokens;
    kv_span_form form;
    uint64_t cost_us;  /* what computing it took, about */
    uint32_t tenant;   /* whose it is (span_store.h); 0: nobody's */
    const char *label; /* for people: "cities/plan/miami", "" for text; at most RECORD_MAX_LABEL bytes */
} record;

/* What an engine expects of every record. */
typedef struct record_format {
    base_key fingerprint; /* of the model, and of all else that changes KV bytes */
    uint8_t arithmetic;   /* a kernel_arithmetic, which the fingerprint depends on, too: to name why a record does not serve */
    kv_shape shape;
} record_format;

/* Writes the record of a sealed span, all of whose layers are ready, at a path whose folder is there. A record that has the path is
 * replaced. r->form is not looked at: the span says it. cipher NULL: plain. *bytes_on_disk: what the file takes from the disk; may be NULL.
 * Nothing is left behind on failure, an older record of the path only if it was not replaced yet: RP_ERR_IO (errno is the cause),
 * RP_ERR_INVALID (r does not keep its limits), RP_ERR_LIMIT (blocks of more than RECORD_MAX_BLOCK_BYTES), RP_ERR_MEMORY. */
int record_write(const char *path, const record_format *format, const record *r, const kv_span *span, const record_cipher *cipher,
                 uint64_t *bytes_on_disk, rp_error *err);
/* The same in steps, so that records of one folder share its sync:
 *
 *   record_stage      writes and syncs the record under a temporary name, *temporary (base_free), in the folder of its path
 *   record_publish    renames it; the caller syncs the folder (base_io_sync_folder) before it counts on the record
 *   record_discard    removes a file of either name; errno stays
 *
 * rest->fn (NULL: none) is called now and then, between two layers: the writer may pause there. On failure nothing is left under the temporary
 * name, and *temporary is NULL after record_stage. */
typedef struct record_rest {
    void (*fn)(void *user);
    void *user;
} record_rest;
int record_stage(char **temporary, const char *path, const record_format *format, const record *r, const kv_span *span,
                 const record_cipher *cipher, const record_rest *rest, uint64_t *bytes_on_disk, rp_error *err);
int record_publish(const char *temporary, const char *path, rp_error *err);
void record_discard(const char *path);
/* The size of the file that record_write would write. */
uint64_t record_file_bytes(const record_format *format, const record *r, const kv_span *span, const record_cipher *cipher);

/* Appends a plain record to a file that the caller has created, and does not sync it. Errors are those of record_write; part of it may be
 * there after one. */
int record_append(const base_io_file *to, const record_format *format, const record *r, const kv_span *span, rp_error *err);
/* How many bytes that are. r: as it was read, with its form. */
uint64_t record_plain_bytes(const record_format *format, const record *r);

typedef struct record_reader record_reader;

/* Opens a record and checks all of its headers. format and key: what is expected; NULL: anything that is possible (to rebuild an
 * index). With a cipher a plain record is a fault too: a store that has a key reads only what was written with it. */
record_fault record_reader_open(record_reader **out, const char *path, const record_format *format, const base_key *key,
                                const record_cipher *cipher, rp_error *err);
/* The same of a record that is `bytes` of another file, from `at` on. */
record_fault record_reader_open_in(record_reader **out, const char *path, uint64_t at, uint64_t bytes, const record_format *format,
                                   const base_key *key, const record_cipher *cipher, rp_error *err);
void record_reader_close(record_reader *r); /* NULL is fine */
/* What it says. Valid until it is closed. */
const record *record_reader_record(const record_reader *r);
const record_format *record_reader_format(const record_reader *r);
base_io_sizes record_reader_sizes(const record_reader *r);

/* Reads the next layer, which is `layer` (they are read in rising order, each once), into a span that kv_span_restore made of the
 * record's form, in a pool of the format that the record was opened with. Setting it ready is the caller's. After a fault the reader
 * can only be closed, and what the layer's blocks hold is nothing to go by. */
record_fault record_read_layer(record_reader *r, int32_t layer, kv_span *span, rp_error *err);

/* Reads all layers, of which none was read yet, and checks them. */
record_fault record_reader_verify(record_reader *r, rp_error *err);

/* Reads every byte of a record and checks it. format NULL: of any model. */
record_fault record_verify(const char *path, const record_format *format, const record_cipher *cipher, rp_error *err);

#endif
