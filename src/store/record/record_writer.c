/* SPDX-License-Identifier: Apache-2.0 */
/* record_writer.c: writes a span's blocks as a record. See record.h.
 *
 *   stage     describe -> checksums of all layers -> header -> create, write header, write layers, sync
 *   publish   rename; then the folder is synced, once for all records that were published in it
 *
 * The KV is read twice: the header, which comes first, has the checksums of the layers. Blocks are written without a
 * copy, except for a last block with unused slots, whose used ones are copied together, for packed and reduced spans
 * and layers in f16 (kv/span.h), whose blocks are collected from cells, and for KV that the host does not reach.
 */
#define _POSIX_C_SOURCE 200809L /* getpid */

#include "base/check.h"
#include "store/record/record_layer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "kv/span_memory.h"

typedef struct writer {
    record_format format; /* with the span's KV format */
    const kv_span *span;
    const record_cipher *cipher;
    const record_rest *rest; /* NULL: none */
    record record;           /* with the span's form */
    void *arrays;            /* the form's */
    record_layer *layers;
    uint64_t file_bytes;
    size_t private_bytes, kv_at, block_bytes;
    uint8_t *header; /* [kv_at] */
    /* [4] blocks, or a piece of a reduced span: those that are not written from where they are; NULL: there are none */
    uint8_t *copies;
    uint8_t *message; /* of one piece; NULL: plain */
    record_stream stream;
    char *temporary;
    base_io_file file;
    uint8_t *memory; /* NULL: written to the file; else to this, [file_bytes], */
    size_t n_memory; /* of which so many are written */
} writer;

/* ---- content ---- */

/* The format of a span's record. */
static record_format format_of(const record_format *format, const kv_span *span) {
    record_format own = *format;
    own.shape.format = kv_span_format(span);
    return own;
}

static int record_format_check(const record_format *format, const record *r, const kv_span *span, rp_error *err) {
    int32_t n_slots = kv_span_tokens(span);
    const size_t block_bytes = kv_shape_most_block_bytes(&format->shape);
    bool is_possible = r->n_tokens >= 0 && r->n_tokens <= n_slots && r->first_slot >= 0 &&
                       r->first_slot <= n_slots - r->n_tokens && r->at >= 0 && r->kind < RECORD_KIND_COUNT &&
                       strlen(r->label) <= RECORD_MAX_LABEL;
    if (kv_span_is_reduced(span))
        is_possible = is_possible && r->at < kv_span_parts(span) && r->n_tokens == 0 && r->first_slot == 0;
    else is_possible = is_possible && r->at <= KV_SPAN_TOKENS;
    is_possible = is_possible && (r->kind == RECORD_REDUCED) == kv_span_is_reduced(span) &&
                  record_is_of_states(r->kind) == kv_span_is_states(span);
    BASE_ASSERT(kv_span_is_sealed(span) && base_key_equal(kv_span_key(span), &r->key));
    BASE_ASSERT(kv_span_layers_ready(span) == format->shape.n_layers && !kv_span_has_failed(span));
    if (!is_possible)
        return base_fail(err, RP_ERR_INVALID, "a record of %d tokens at slot %d of %d", r->n_tokens, r->first_slot,
                         n_slots);
    for (int32_t i = 0; i < format->shape.n_layers; i++)
        if (format->shape.layers[i].state_bytes > RECORD_MAX_BLOCK_BYTES)
            return base_fail(err, RP_ERR_LIMIT, "a layer's state of %u bytes is too large for a record",
                             format->shape.layers[i].state_bytes);
    if (block_bytes > RECORD_MAX_BLOCK_BYTES)
        return base_fail(err, RP_ERR_LIMIT, "blocks of %zu bytes are too large for a record", block_bytes);
    return RP_OK;
}

static size_t private_bytes(const record_format *format, const record *r) {
    const int32_t n_heads = r->form.slots ? format->shape.n_layers * r->form.n_kv_heads : 0;
    return record_private_bytes(record_version_of(&format->shape), format->shape.n_layers, n_heads, r->n_tokens,
                                strlen(r->label));
}

uint64_t record_file_bytes(const record_format *format, const record *r, bool is_encrypted) {
    const kv_shape shape = kv_shape_in(&format->shape, r->form.format);
    uint64_t bytes = record_kv_at(is_encrypted, private_bytes(format, r));
    BASE_ASSERT(r->form.kept && (r->form.n_tokens > 0) == !r->form.is_states);
    for (int32_t i = 0; i < shape.n_layers; i++)
        bytes += record_layer_bytes(&shape, &r->form, i, RECORD_FILE_VERSION, is_encrypted);
    return bytes;
}

/* PATH.PID-TIME-NUMBER.tmp: unique for each writer, in every process. */
static int writer_name_temporary(writer *w, const char *path, rp_error *err) {
    static _Atomic uint32_t number;
    size_t bytes = strlen(path) + 64;
    w->temporary = base_alloc(bytes);
    if (!w->temporary) return base_fail_memory(err, bytes, "a record's name");
    snprintf(w->temporary, bytes, "%s.%ld-%llx-%x" RECORD_TEMPORARY, path, (long)getpid(),
             (unsigned long long)base_clock_us(),
             (unsigned)atomic_fetch_add_explicit(&number, 1, memory_order_relaxed));
    return RP_OK;
}

static int writer_allocate(writer *w, rp_error *err) {
    const bool is_single = record_is_single(&w->record.form);
    size_t piece = w->block_bytes, copied = KV_SPAN_BLOCKS * w->block_bytes;
    bool copies = is_single || kv_span_tokens(w->span) % KV_BLOCK_SLOTS != 0;
    for (int32_t i = 0; i < w->format.shape.n_layers && !copies; i++) copies = !kv_span_is_in_place(w->span, i);
    if (is_single) piece = copied = record_single_space(&w->format.shape, &w->record.form);
    w->layers = base_alloc((size_t)w->format.shape.n_layers * sizeof *w->layers);
    w->header = base_calloc(1, w->kv_at);
    if (copies) w->copies = base_alloc_aligned(copied, 64);
    if (w->cipher) w->message = base_alloc_aligned(piece + RECORD_MESSAGE_EXTRA, 64);
    bool is_done = w->layers && w->header && (w->copies || !copies) && (w->message || !w->cipher);
    return is_done ? RP_OK : base_fail_memory(err, w->kv_at + piece, "a record");
}

/* Sizes, form and offsets. */
static int writer_describe(writer *w, const record *r, rp_error *err) {
    const kv_shape *shape = &w->format.shape;
    w->record = *r;
    w->arrays = base_alloc(kv_span_form_bytes(w->span));
    if (!w->arrays) return base_fail_memory(err, kv_span_form_bytes(w->span), "a record");
    w->record.form = kv_span_describe(w->span, w->arrays);
    w->private_bytes = private_bytes(&w->format, &w->record);
    w->kv_at = (size_t)record_kv_at(w->cipher, w->private_bytes);
    w->block_bytes = kv_shape_most_block_bytes(shape);
    int rc = writer_allocate(w, err);
    if (rc) return rc;
    w->file_bytes = w->kv_at;
    for (int32_t i = 0; i < shape->n_layers; i++) {
        w->layers[i].begin = w->file_bytes;
        w->file_bytes += record_layer_bytes(shape, &w->record.form, i, RECORD_FILE_VERSION, w->cipher);
    }
    return RP_OK;
}

/* ---- blocks ---- */

/* A copy of a block's used slots. */
static void *copy_block(writer *w, int32_t layer, int32_t block, int n_used) {
    const kv_layer l = kv_shape_layer(&w->format.shape, layer);
    BASE_ASSERT(w->copies && block < KV_SPAN_BLOCKS && n_used > 0 && l.block_bytes <= w->block_bytes);
    void *copy = w->copies + (size_t)block * w->block_bytes;
    kv_span_get_block(w->span, layer, block, copy);
    if (n_used >= KV_BLOCK_SLOTS) return copy;
    kv_block_clear_slots(&l, copy, n_used);
    kv_block_pack(&l, copy, n_used);
    return copy;
}

static void writer_rest(const writer *w) {
    if (w->rest) w->rest->fn(w->rest->user);
}

/* A layer's pieces in their written form. Returns their number. */
static int layer_pieces(writer *w, int32_t layer, struct iovec out[KV_SPAN_BLOCKS]) {
    const kv_span_form *form = &w->record.form;
    int n = 0;
    if (record_is_single(form)) {
        BASE_ASSERT(w->copies);
        out[0] = (struct iovec){w->copies, record_get_single(w->span, layer, w->copies)};
        return out[0].iov_len > 0;
    }
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) {
        if (!(form->kept[layer] >> b & 1)) continue;
        int32_t n_used = form->n_tokens - b * KV_BLOCK_SLOTS;
        const bool is_copied = n_used < KV_BLOCK_SLOTS || !kv_span_is_in_place(w->span, layer);
        out[n++] = (struct iovec){is_copied ? copy_block(w, layer, b, n_used) : kv_span_in_place(w->span, layer, b),
                                  record_block_bytes(&w->format.shape, form, layer, RECORD_FILE_VERSION, b)};
    }
    return n;
}

static void make_checksums(writer *w) {
    struct iovec pieces[KV_SPAN_BLOCKS];
    for (int32_t i = 0; i < w->format.shape.n_layers; i++) {
        int n = layer_pieces(w, i, pieces);
        w->layers[i].checksum = record_checksum_of(pieces, n);
        writer_rest(w);
    }
}

/* ---- headers ---- */

/* The private header as the stream's first message, authenticated with the public one. */
static int encrypt_private(writer *w, rp_error *err) {
    uint8_t *start = w->header + RECORD_PUBLIC_BYTES, *plain = base_alloc(w->private_bytes);
    if (!plain) return base_fail_memory(err, w->private_bytes, "a record's header");
    BASE_ASSERT(w->cipher &&
                w->kv_at == RECORD_PUBLIC_BYTES + RECORD_STREAM_START_BYTES + w->private_bytes + RECORD_MESSAGE_EXTRA);
    record_put_private(plain, &w->format, &w->record, w->layers);
    record_stream_begin(&w->stream, w->cipher, start);
    record_stream_seal(&w->stream, plain, w->private_bytes, w->header, RECORD_BOUND_BYTES,
                       start + RECORD_STREAM_START_BYTES);
    base_free(plain);
    return RP_OK;
}

static int make_header(writer *w, rp_error *err) {
    int rc = RP_OK;
    record_public p = {.version = record_version_of(&w->format.shape),
                       .file_bytes = w->file_bytes,
                       .private_bytes = (uint32_t)w->private_bytes};
    if (w->cipher) {
        p.flags = RECORD_ENCRYPTED;
        memcpy(p.cipher_id, record_cipher_id(w->cipher), sizeof p.cipher_id);
    }
    BASE_ASSERT(w->private_bytes <= RECORD_MAX_PRIVATE && w->kv_at <= w->file_bytes);
    record_put_public(w->header, &p);
    if (w->cipher) rc = encrypt_private(w, err);
    else record_put_private(w->header + RECORD_PUBLIC_BYTES, &w->format, &w->record, w->layers);
    record_put_checksum(w->header + RECORD_BOUND_BYTES, record_header_checksum(w->header, w->kv_at));
    return rc;
}

/* ---- the file ---- */

/* Preserves errno, the cause of the removal. */
static void remove_file(const char *path) {
    int cause = errno;
    (void)base_io_unlink(path, NULL);
    errno = cause;
}

static int write_pieces(writer *w, const struct iovec *pieces, int n, rp_error *err) {
    if (!w->memory) return base_io_writev(&w->file, pieces, n, err);
    for (int i = 0; i < n; i++) {
        BASE_ASSERT(pieces[i].iov_len <= w->file_bytes - w->n_memory);
        memcpy(w->memory + w->n_memory, pieces[i].iov_base, pieces[i].iov_len);
        w->n_memory += pieces[i].iov_len;
    }
    return RP_OK;
}

static int write_bytes(writer *w, void *bytes, size_t n, rp_error *err) {
    return write_pieces(w, &(struct iovec){bytes, n}, 1, err);
}

static int write_layer(writer *w, int32_t layer, rp_error *err) {
    struct iovec pieces[KV_SPAN_BLOCKS];
    int n = layer_pieces(w, layer, pieces), rc = RP_OK;
    if (!w->cipher) return n > 0 ? write_pieces(w, pieces, n, err) : RP_OK;
    BASE_ASSERT(w->message);
    for (int i = 0; i < n && !rc; i++) {
        record_stream_seal(&w->stream, pieces[i].iov_base, pieces[i].iov_len, NULL, 0, w->message);
        rc = write_bytes(w, w->message, pieces[i].iov_len + RECORD_MESSAGE_EXTRA, err);
    }
    return rc;
}

static int writer_write_all(writer *w, rp_error *err) {
    int rc = write_bytes(w, w->header, w->kv_at, err);
    for (int32_t i = 0; i < w->format.shape.n_layers && !rc; i++) {
        rc = write_layer(w, i, err);
        writer_rest(w);
    }
    return rc;
}

static int write_temporary(writer *w, uint64_t *bytes_on_disk, rp_error *err) {
    base_io_sizes sizes;
    int rc = base_io_create(&w->file, w->temporary, err);
    if (rc) return rc;
    rc = writer_write_all(w, err);
    if (!rc && kv_span_is_lost(w->span)) rc = base_fail(err, RP_ERR_IO, "the memory of its KV was lost");
    if (!rc) rc = base_io_sync(&w->file, err);
    if (!rc) rc = base_io_stat_file(&w->file, &sizes, err); /* the sync allocates space */
    BASE_ASSERT(rc || sizes.bytes == w->file_bytes);        /* its header says so */
    base_io_close(&w->file);
    if (!rc && bytes_on_disk) *bytes_on_disk = sizes.disk_bytes;
    if (rc) remove_file(w->temporary);
    return rc;
}

int record_publish(const char *temporary, const char *path, rp_error *err) {
    BASE_ASSERT(strncmp(temporary, path, strlen(path)) == 0 && strlen(temporary) > strlen(path)); /* invariant 1 */
    int rc = base_io_rename(temporary, path, err);
    if (rc) remove_file(temporary);
    return rc;
}

void record_discard(const char *path) { remove_file(path); }

static void writer_release(writer *w) {
    record_stream_wipe(&w->stream);
    base_free(w->arrays);
    base_free(w->layers);
    base_free(w->header);
    base_free(w->copies);
    base_free(w->message);
    base_free(w->temporary);
}

int record_stage(char **temporary, const char *path, const record_format *format, const record *r, const kv_span *span,
                 const record_cipher *cipher, const record_rest *rest, uint64_t *bytes_on_disk, rp_error *err) {
    writer w = {.format = format_of(format, span), .span = span, .cipher = cipher, .rest = rest};
    int rc = record_format_check(&w.format, r, span, err);
    if (!rc) rc = writer_describe(&w, r, err);
    if (!rc) rc = writer_name_temporary(&w, path, err);
    if (!rc) make_checksums(&w);
    if (!rc) rc = make_header(&w, err);
    if (!rc) rc = write_temporary(&w, bytes_on_disk, err);
    BASE_ASSERT(rc || strcmp(w.temporary + strlen(w.temporary) - strlen(RECORD_TEMPORARY), RECORD_TEMPORARY) ==
                          0); /* invariant 1 */
    *temporary = NULL;
    if (!rc) {
        *temporary = w.temporary;
        w.temporary = NULL;
    }
    writer_release(&w);
    return rc;
}

int record_encode(uint8_t **out, size_t *n, const record_format *format, const record *r, const kv_span *span,
                  const record_cipher *cipher, rp_error *err) {
    writer w = {.format = format_of(format, span), .span = span, .cipher = cipher};
    int rc = record_format_check(&w.format, r, span, err);
    if (!rc) rc = writer_describe(&w, r, err);
    if (!rc && !(w.memory = base_alloc(w.file_bytes))) rc = base_fail_memory(err, w.file_bytes, "a record");
    if (!rc) make_checksums(&w);
    if (!rc) rc = make_header(&w, err);
    if (!rc) rc = writer_write_all(&w, err);
    if (!rc && kv_span_is_lost(span)) rc = base_fail(err, RP_ERR_IO, "the memory of its KV was lost");
    BASE_ASSERT(rc || w.n_memory == w.file_bytes);
    if (rc) base_free(w.memory);
    *out = rc ? NULL : w.memory;
    *n = rc ? 0 : w.n_memory;
    writer_release(&w);
    return rc;
}

int record_append(const base_io_file *to, const record_format *format, const record *r, const kv_span *span,
                  rp_error *err) {
    writer w = {.format = format_of(format, span), .span = span, .file = *to};
    int rc = record_format_check(&w.format, r, span, err);
    if (!rc) rc = writer_describe(&w, r, err);
    if (!rc) make_checksums(&w);
    if (!rc) rc = make_header(&w, err);
    if (!rc) rc = writer_write_all(&w, err);
    writer_release(&w);
    return rc;
}

int record_write(const char *path, const record_format *format, const record *r, const kv_span *span,
                 const record_cipher *cipher, uint64_t *bytes_on_disk, rp_error *err) {
    char *temporary;
    int rc = record_stage(&temporary, path, format, r, span, cipher, NULL, bytes_on_disk, err);
    if (rc) return rc;
    rc = record_publish(temporary, path, err);
    if (!rc && (rc = base_io_sync_folder_of(temporary, err))) remove_file(path); /* else its bytes would not count */
    base_free(temporary);
    return rc;
}
