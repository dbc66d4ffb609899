/* SPDX-License-Identifier: Apache-2.0 */
/* record.h: the KV of one span as a file. docs/format.md describes every byte.
 *
 *   plain       public header | private header | zeros up to a page  | layer 0 | layer 1 | ...
 *   encrypted   public header | start of the stream | private header | layer 0 | ...      a message each, and per piece
 *         (record_layer.h)
 *
 *   public header    magic, version, flags, size of the file, checksum over both headers
 *   private header   model, key, parent, tokens, form, format; offset and checksum of each layer
 *   layer            the used slots of the blocks that the span kept, in the order of RAM; of a reduced span also their
 *         positions
 *
 * A record is written under a temporary name, synced and renamed, then its folder is synced: under its own name it is
 * whole or absent. The same span gives the same bytes (encrypted records differ). Nothing in a file is trusted: every
 * number is checked before it is used, no allocation exceeds 64 times the size of the file (blocks with one used slot)
 * and a block, and KV is valid only if its layer's checksum is right. A record that cannot be used is a miss with a
 * reason (record_fault).
 *
 * A reader has one user at a time; every other function is thread-safe. System calls go through base/io.h.
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "base/io.h"
#include "kv/span.h"
#include "store/record/record_cipher.h"

#define RECORD_MAX_LAYERS 4096
#define RECORD_MAX_LABEL 255
#define RECORD_MAX_BLOCK_BYTES ((uint64_t)64 << 20) /* 256 heads of 512 + 512 dimensions in f32 */
#define RECORD_TEMPORARY ".tmp"                     /* suffix of temporary names: left over after a crash */

/* Why a record cannot be used: X(NAME, name, code, text) */
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

typedef enum record_kind {
    RECORD_MODULE,
    RECORD_TEXT,
    RECORD_REDUCED,       /* a part of a module's reduced KV: kv_span_is_reduced */
    RECORD_STATES,        /* what recurrent layers hold after a token of a text: kv_span_is_states */
    RECORD_MODULE_STATES, /* after the last token of a module */
    RECORD_KIND_COUNT
} record_kind;

/* Is it of the prefix tree: a text, or the states after one of its tokens? Its parent is an entry of the tree. */
static inline bool record_is_of_text(record_kind kind) { return kind == RECORD_TEXT || kind == RECORD_STATES; }
/* May it have a module's name, and be pinned and exported with the module? */
static inline bool record_is_of_module(record_kind kind) {
    return kind == RECORD_MODULE || kind == RECORD_REDUCED || kind == RECORD_MODULE_STATES;
}
/* Is its span one of states (kv_span_is_states)? */
static inline bool record_is_of_states(record_kind kind) {
    return kind == RECORD_STATES || kind == RECORD_MODULE_STATES;
}

/* Content of a record. Arrays and strings are borrowed. */
typedef struct record {
    base_key key; /* names the span */
    /* text: the parent node, or root; module: the previous span of its segment, or zeros; reduced: the previous part,
     * of part 0 the last span of the module; states: the node of the token before them; module states: the
     * last span of the module */
    base_key parent;
    record_kind kind;
    int32_t at;         /* text, states: after this many tokens of the parent, at most 256; reduced: its part, less than
                           form.n_parts */
    int32_t first_slot; /* the slot of tokens[0] */
    int32_t n_tokens;   /* at most 256; first_slot + n_tokens is at most form.n_tokens; reduced, states: 0, as is
                           first_slot */
    const int32_t *tokens;
    kv_span_form form;
    uint64_t cost_us;  /* time to compute it, approximately */
    uint32_t tenant;   /* owner (span_store.h); 0: none */
    const char *label; /* for display: "cities/plan/miami", "" for text; at most RECORD_MAX_LABEL bytes */
} record;

/* The format that an engine expects of every record. */
typedef struct record_format {
    base_key fingerprint; /* of the model, and of everything else that changes KV bytes */
    uint8_t arithmetic;   /* a kernel_arithmetic, part of the fingerprint too: for the reason of a miss */
    bool any_format;      /* spans of modules may have another KV format than the shape's: their keys cover it */
    kv_shape shape;
} record_format;

/* Writes the record of a sealed span, all of whose layers are ready, at a path in an existing folder. Replaces an
 * existing record. r->form is ignored: the span's form is written. cipher NULL: plain. *bytes_on_disk: size of the
 * file on disk; may be NULL. A failure leaves no new file, and an older record at the path only if it was not
 * replaced yet: RP_ERR_IO (errno is the cause), RP_ERR_INVALID (r exceeds its limits, or has another kind than its
 * span), RP_ERR_LIMIT (blocks of more than RECORD_MAX_BLOCK_BYTES), RP_ERR_MEMORY. */
int record_write(const char *path, const record_format *format, const record *r, const kv_span *span,
                 const record_cipher *cipher, uint64_t *bytes_on_disk, rp_error *err);
/* The same in steps: records of one folder share its sync:
 *
 *   record_stage      writes and syncs it under a temporary name, *temporary (base_free), in the folder of its path
 *   record_publish    renames it; durable after the caller has synced the folder (base_io_sync_folder)
 *   record_discard    removes a file of either name; errno stays
 *
 * rest->fn (NULL: none) is called between some layers: the writer may pause there. On failure no file of the
 * temporary name is left, and *temporary is NULL after record_stage. */
typedef struct record_rest {
    void (*fn)(void *user);
    void *user;
} record_rest;
int record_stage(char **temporary, const char *path, const record_format *format, const record *r, const kv_span *span,
                 const record_cipher *cipher, const record_rest *rest, uint64_t *bytes_on_disk, rp_error *err);
int record_publish(const char *temporary, const char *path, rp_error *err);
void record_discard(const char *path);
/* The size of the file that record_write would write for a record with its span's form. */
uint64_t record_file_bytes(const record_format *format, const record *r, bool is_encrypted);

/* The same record as bytes in memory: **out (base_free), *n of them. Errors of record_write but RP_ERR_IO. */
int record_encode(uint8_t **out, size_t *n, const record_format *format, const record *r, const kv_span *span,
                  const record_cipher *cipher, rp_error *err);

/* Appends a plain record to a file that the caller has created, without a sync. Errors of record_write; a part of it
 * may have been written then. */
int record_append(const base_io_file *to, const record_format *format, const record *r, const kv_span *span,
                  rp_error *err);

typedef struct record_reader record_reader;

/* Opens a record and checks all of its headers. format and key: expected values; NULL: any valid one (to rebuild an
 * index). With a cipher, a plain record is a fault too: a store with a key reads only records that were written with
 * it. */
record_fault record_reader_open(record_reader **out, const char *path, const record_format *format, const base_key *key,
                                const record_cipher *cipher, rp_error *err);
/* The same for a record that is `bytes` of another file, at offset `at`. */
record_fault record_reader_open_in(record_reader **out, const char *path, uint64_t at, uint64_t bytes,
                                   const record_format *format, const base_key *key, const record_cipher *cipher,
                                   rp_error *err);
/* The same for a record that is anywhere: read fills in the pieces from an offset on, and *n_read is smaller than their
 * bytes only if the record ends before. RP_ERR_IO. user is borrowed until the reader is closed. */
typedef struct record_source {
    const char *name; /* for messages; borrowed by the call */
    uint64_t bytes;   /* of the record */
    int (*read)(void *user, uint64_t offset, const struct iovec *pieces, int n, size_t *n_read, rp_error *err);
    void *user;
} record_source;
record_fault record_reader_open_from(record_reader **out, const record_source *source, const record_format *format,
                                     const base_key *key, const record_cipher *cipher, rp_error *err);
void record_reader_close(record_reader *r); /* NULL is fine */
/* The content of the record. Valid until the reader is closed. */
const record *record_reader_record(const record_reader *r);
const record_format *record_reader_format(const record_reader *r);
base_io_sizes record_reader_sizes(const record_reader *r);

/* Reads the next layer, which is `layer` (in ascending order, each once), into a span that kv_span_restore made with
 * the record's form, in a pool of the format that the record was opened with. The caller sets it ready. After a fault
 * the reader can only be closed, and the content of the layer's blocks is undefined. */
record_fault record_read_layer(record_reader *r, int32_t layer, kv_span *span, rp_error *err);

/* Reads all layers, none of which was read yet, and checks them. */
record_fault record_reader_verify(record_reader *r, rp_error *err);

/* Reads and checks every byte of a record. format NULL: of any model. */
record_fault record_verify(const char *path, const record_format *format, const record_cipher *cipher, rp_error *err);

#endif
