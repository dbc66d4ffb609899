/* SPDX-License-Identifier: Apache-2.0 */
/* record_reader.c: reads a record into a span's blocks. See record.h.
 *
 *   record_reader_open: sizes -> public header -> both headers' checksum -> cipher -> private header -> format, key
 *        -> record_read_layer: layer 0: read, decrypted if encrypted, checksum -> layer 1 -> ...
 */
#include "base/check.h"
#include "store/record/record_layer.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "base/memory.h"
#include "kernels/kernels.h"

struct record_reader {
    base_io_file file;
    record_source source; /* read NULL: the file */
    base_io_sizes sizes;
    uint64_t at; /* offset of the record, which is the whole file or `sizes` of it */
    record_public public;
    record_head head;
    bool is_checked; /* against a format */
    int32_t next_layer;
    record_stream stream; /* of an encrypted record */
    uint8_t *message;     /* of one piece; NULL until the first layer of an encrypted record is read */
    /* [4] blocks, or a piece of a reduced span, for layers that are not read in place (kv/span.h); NULL until one is
       read */
    uint8_t *copies;
    char path[];
};

static bool is_encrypted(const record_reader *r) { return r->public.flags & RECORD_ENCRYPTED; }

/* ---- file access ---- */

static record_fault read_pieces(const record_reader *r, uint64_t offset, const struct iovec *pieces, int n,
                                rp_error *err) {
    size_t bytes = 0, n_read;
    for (int i = 0; i < n; i++) bytes += pieces[i].iov_len;
    BASE_ASSERT(offset <= r->sizes.bytes); /* of a header that was checked */
    const int rc = r->source.read ? r->source.read(r->source.user, offset, pieces, n, &n_read, err)
                                  : base_io_readv(&r->file, r->at + offset, pieces, n, &n_read, err);
    if (rc) return RECORD_FAULT_IO;
    if (n_read == bytes) return RECORD_FAULT_NONE;
    return record_fail(err, RECORD_FAULT_TRUNCATED, r->path, "%zu of %zu bytes at %llu", n_read, bytes,
                       (unsigned long long)offset);
}

static record_fault record_reader_read_bytes(const record_reader *r, uint64_t offset, void *bytes, size_t n,
                                             rp_error *err) {
    return read_pieces(r, offset, &(struct iovec){bytes, n}, 1, err);
}

static record_fault no_memory(const record_reader *r, uint64_t bytes, rp_error *err) {
    base_fail_memory(err, bytes, r->path);
    return RECORD_FAULT_MEMORY;
}

/* ---- headers ---- */

static record_fault check_length(const record_reader *r, rp_error *err) {
    if (r->sizes.bytes >= RECORD_PUBLIC_BYTES) return RECORD_FAULT_NONE;
    return record_fail(err, RECORD_FAULT_TRUNCATED, r->path, "%llu bytes", (unsigned long long)r->sizes.bytes);
}

/* part NULL: the record is the whole file. */
static record_fault open_file(record_reader *r, const base_io_sizes *part, rp_error *err) {
    if (base_io_open(&r->file, r->path, err))
        return errno == ENOENT || errno == ENOTDIR ? RECORD_FAULT_GONE : RECORD_FAULT_IO;
    if (!part && base_io_stat_file(&r->file, &r->sizes, err)) return RECORD_FAULT_IO;
    if (part) r->sizes = *part;
    return check_length(r, err);
}

/* Is the record encrypted if and only if there is a cipher, and with its key? */
static record_fault check_cipher(const record_reader *r, const record_cipher *cipher, rp_error *err) {
    if (is_encrypted(r) && !cipher)
        return record_fail(err, RECORD_FAULT_CIPHER, r->path, "it is encrypted, and there is no key");
    if (!is_encrypted(r) && cipher)
        return record_fail(err, RECORD_FAULT_CIPHER, r->path, "it is not encrypted, and there is a key");
    if (cipher && memcmp(r->public.cipher_id, record_cipher_id(cipher), RECORD_CIPHER_ID_BYTES) != 0)
        return record_fail(err, RECORD_FAULT_CIPHER, r->path, "it is encrypted with another key");
    return RECORD_FAULT_NONE;
}

/* The private header of an encrypted record with a valid checksum. *out is freed by the caller. */
static record_fault decrypt_private(record_reader *r, const uint8_t *header, const record_cipher *cipher, uint8_t **out,
                                    rp_error *err) {
    const uint8_t *start = header + RECORD_PUBLIC_BYTES, *message = start + RECORD_STREAM_START_BYTES;
    BASE_ASSERT(is_encrypted(r) && r->public.private_bytes > 0);
    *out = base_alloc(r->public.private_bytes);
    if (!*out) return no_memory(r, r->public.private_bytes, err);
    record_stream_resume(&r->stream, cipher, start);
    if (record_stream_open(&r->stream, message, r->public.private_bytes, header, RECORD_BOUND_BYTES, *out))
        return RECORD_FAULT_NONE;
    return record_fail(err, RECORD_FAULT_DAMAGED, r->path, "its header does not decrypt");
}

/* header[0..kv_at): the beginning of the file, up to the end of the headers. */
static record_fault parse_header(record_reader *r, const uint8_t *header, size_t kv_at, const record_cipher *cipher,
                                 rp_error *err) {
    uint8_t *plain = NULL;
    BASE_ASSERT(kv_at >= RECORD_PUBLIC_BYTES && kv_at <= r->sizes.bytes);
    if (!record_checksum_equal(record_header_checksum(header, kv_at), r->public.checksum))
        return record_fail(err, RECORD_FAULT_DAMAGED, r->path, "checksum of its header");
    record_fault fault = check_cipher(r, cipher, err);
    if (!fault && cipher) fault = decrypt_private(r, header, cipher, &plain, err);
    if (!fault)
        fault = record_get_private(&r->head, cipher ? plain : header + RECORD_PUBLIC_BYTES, &r->public, r->path, err);
    base_free(plain);
    return fault;
}

static record_fault record_reader_read_header(record_reader *r, const record_cipher *cipher, rp_error *err) {
    uint8_t public[RECORD_PUBLIC_BYTES];
    record_fault fault = record_reader_read_bytes(r, 0, public, sizeof public, err);
    if (!fault) fault = record_get_public(&r->public, public, r->sizes.bytes, r->path, err);
    if (fault) return fault;
    size_t kv_at = (size_t)record_kv_at(is_encrypted(r), r->public.private_bytes); /* within the file */
    uint8_t *header = base_alloc(kv_at);
    if (!header) return no_memory(r, kv_at, err);
    memcpy(header, public, sizeof public);
    fault = record_reader_read_bytes(r, sizeof public, header + sizeof public, kv_at - sizeof public, err);
    if (!fault) fault = parse_header(r, header, kv_at, cipher, err);
    base_free(header);
    return fault;
}

static bool shapes_are_equal(const kv_shape *a, const kv_shape *b) {
    bool are_equal = a->n_layers == b->n_layers;
    for (int32_t i = 0; i < a->n_layers && are_equal; i++) {
        const kv_layer_shape *x = &a->layers[i], *y = &b->layers[i];
        are_equal = x->kind == y->kind && x->n_heads == y->n_heads && x->key_dim == y->key_dim &&
                    x->value_dim == y->value_dim && x->window == y->window && x->state_bytes == y->state_bytes;
    }
    return are_equal;
}

/* The first layer with another format than the engine's layer has in spans of the same format; -1: none. */
static int32_t find_other_layer(const kv_shape *engine, const kv_shape *found) {
    BASE_ASSERT(engine->n_layers == found->n_layers);
    const kv_shape own = kv_shape_in(engine, found->format);
    for (int32_t i = 0; i < found->n_layers; i++)
        if (kv_shape_layer_format(&own, i) != kv_shape_layer_format(found, i)) return i;
    return -1;
}

static record_fault check_expected(record_reader *r, const record_format *format, const base_key *key, rp_error *err) {
    char hex[17];
    base_key_hex(&r->head.record.key, hex, 16);
    if (format && !base_key_equal(&format->fingerprint, &r->head.format.fingerprint))
        return format->arithmetic == r->head.format.arithmetic
                   ? record_fail(err, RECORD_FAULT_MODEL, r->path, "another fingerprint")
                   : record_fail(err, RECORD_FAULT_ARITHMETIC, r->path, "%s",
                                 kernel_arithmetic_name((kernel_arithmetic)r->head.format.arithmetic));
    if (format && (!shapes_are_equal(&format->shape, &r->head.format.shape) ||
                   (!format->any_format && format->shape.format != r->head.format.shape.format)))
        return record_fail(err, RECORD_FAULT_FORMAT, r->path, "%d layers", r->head.format.shape.n_layers);
    const int32_t other = format ? find_other_layer(&format->shape, &r->head.format.shape) : -1;
    if (other >= 0)
        return record_fail(err, RECORD_FAULT_FORMAT, r->path, "layer %d is in %s", other,
                           kv_format_name(kv_shape_layer_format(&r->head.format.shape, other)));
    if (key && !base_key_equal(key, &r->head.record.key))
        return record_fail(err, RECORD_FAULT_KEY, r->path, "%s...", hex);
    r->is_checked = format;
    return RECORD_FAULT_NONE;
}

static record_reader *record_reader_new(const char *path, rp_error *err) {
    const size_t path_bytes = strlen(path) + 1;
    record_reader *r = base_calloc(1, sizeof *r + path_bytes);
    if (r) memcpy(r->path, path, path_bytes);
    else base_fail_memory(err, sizeof *r + path_bytes, path);
    return r;
}

/* Reads and checks the headers; a reader with a fault is closed. */
static record_fault record_reader_begin(record_reader *r, record_fault fault, const record_format *format,
                                        const base_key *key, const record_cipher *cipher, record_reader **out,
                                        rp_error *err) {
    if (!fault) fault = record_reader_read_header(r, cipher, err);
    if (!fault) fault = check_expected(r, format, key, err);
    BASE_ASSERT(fault || !key ||
                base_key_equal(&r->head.record.key, key));     /* a reader that is opened is of the key asked for, */
    BASE_ASSERT(fault || is_encrypted(r) == (cipher != NULL)); /* and of the store's protection */
    if (fault) record_reader_close(r);
    else *out = r;
    return fault;
}

static record_fault record_reader_open_record(record_reader **out, const char *path, uint64_t at,
                                              const base_io_sizes *part, const record_format *format,
                                              const base_key *key, const record_cipher *cipher, rp_error *err) {
    record_reader *r = record_reader_new(path, err);
    *out = NULL;
    if (!r) return RECORD_FAULT_MEMORY;
    r->at = at;
    return record_reader_begin(r, open_file(r, part, err), format, key, cipher, out, err);
}

record_fault record_reader_open_from(record_reader **out, const record_source *source, const record_format *format,
                                     const base_key *key, const record_cipher *cipher, rp_error *err) {
    record_reader *r = record_reader_new(source->name, err);
    *out = NULL;
    if (!r) return RECORD_FAULT_MEMORY;
    r->source = *source;
    r->sizes = (base_io_sizes){.bytes = source->bytes, .disk_bytes = source->bytes};
    return record_reader_begin(r, check_length(r, err), format, key, cipher, out, err);
}

record_fault record_reader_open(record_reader **out, const char *path, const record_format *format, const base_key *key,
                                const record_cipher *cipher, rp_error *err) {
    return record_reader_open_record(out, path, 0, NULL, format, key, cipher, err);
}

record_fault record_reader_open_in(record_reader **out, const char *path, uint64_t at, uint64_t bytes,
                                   const record_format *format, const base_key *key, const record_cipher *cipher,
                                   rp_error *err) {
    return record_reader_open_record(out, path, at,
                                     &(base_io_sizes){.bytes = bytes, .disk_bytes = bytes, .is_file = true}, format,
                                     key, cipher, err);
}

void record_reader_close(record_reader *r) {
    if (!r) return;
    base_io_close(&r->file);
    record_head_free(&r->head);
    record_stream_wipe(&r->stream);
    base_free(r->message);
    base_free(r->copies);
    base_free(r);
}

const record *record_reader_record(const record_reader *r) { return &r->head.record; }
const record_format *record_reader_format(const record_reader *r) { return &r->head.format; }
base_io_sizes record_reader_sizes(const record_reader *r) { return r->sizes; }

/* ---- layers ---- */

/* Space for a layer that is not read in place, in its written form and after it is unpacked. */
static size_t copies_bytes(const record_reader *r) {
    const kv_shape *shape = &r->head.format.shape;
    if (record_is_single(&r->head.record.form)) return record_single_space(shape, &r->head.record.form);
    return KV_SPAN_BLOCKS * kv_shape_most_block_bytes(shape);
}

/* One message per piece. */
static record_fault read_encrypted(record_reader *r, uint64_t offset, const struct iovec *blocks, int n,
                                   rp_error *err) {
    const bool is_single = record_is_single(&r->head.record.form);
    const size_t most =
        (is_single ? copies_bytes(r) : kv_shape_most_block_bytes(&r->head.format.shape)) + RECORD_MESSAGE_EXTRA;
    record_fault fault = RECORD_FAULT_NONE;
    if (!r->message && !(r->message = base_alloc_aligned(most, 64))) return no_memory(r, most, err);
    for (int i = 0; i < n && !fault; i++) {
        const size_t message = blocks[i].iov_len + RECORD_MESSAGE_EXTRA;
        BASE_ASSERT(message <= most);
        fault = record_reader_read_bytes(r, offset, r->message, message, err);
        if (!fault && !record_stream_open(&r->stream, r->message, blocks[i].iov_len, NULL, 0, blocks[i].iov_base))
            fault = record_fail(err, RECORD_FAULT_DAMAGED, r->path, "a block at %llu does not decrypt",
                                (unsigned long long)offset);
        offset += message;
    }
    return fault;
}

/* Bytes of a block in the file, before encryption. */
static size_t stored_bytes(const record_reader *r, int32_t layer, int32_t block) {
    return record_block_bytes(&r->head.format.shape, &r->head.record.form, layer, r->public.version, block);
}

/* Reads the next layer into as many pieces as it has, as they are stored. */
static record_fault read_layer(record_reader *r, const struct iovec *blocks, int n, rp_error *err) {
    int32_t layer = r->next_layer++;
    BASE_ASSERT(n <= KV_SPAN_BLOCKS && layer < r->head.format.shape.n_layers); /* each layer once, in ascending order */
    const record_layer *l = &r->head.layers[layer];
    const kv_span_form *form = &r->head.record.form;
    record_fault fault = RECORD_FAULT_NONE;
    if (n > 0)
        fault =
            is_encrypted(r) ? read_encrypted(r, l->begin, blocks, n, err) : read_pieces(r, l->begin, blocks, n, err);
    if (!fault && !record_checksum_equal(record_checksum_of(blocks, n), l->checksum))
        fault = record_fail(err, RECORD_FAULT_DAMAGED, r->path, "checksum of layer %d", layer);
    if (!fault && form->slots && n > 0 && !record_positions_are_valid(form, layer, blocks[0].iov_base))
        fault = record_fail(err, RECORD_FAULT_DAMAGED, r->path, "positions of layer %d are out of order", layer);
    return fault;
}

static record_fault read_single(record_reader *r, int32_t layer, kv_span *span, rp_error *err) {
    size_t sizes[KV_SPAN_BLOCKS] = {0};
    const int n = record_layer_pieces(&r->head.format.shape, &r->head.record.form, layer, r->public.version, sizes);
    if (!r->copies && !(r->copies = base_alloc_aligned(copies_bytes(r), 64))) return no_memory(r, copies_bytes(r), err);
    BASE_ASSERT(n <= 1 && sizes[0] <= copies_bytes(r) && record_is_single(&r->head.record.form));
    const record_fault fault = read_layer(r, &(struct iovec){r->copies, sizes[0]}, n, err);
    if (!fault && n > 0) record_put_single(span, layer, r->copies, sizes[0]);
    return fault;
}

record_fault record_read_layer(record_reader *r, int32_t layer, kv_span *span, rp_error *err) {
    struct iovec blocks[KV_SPAN_BLOCKS];
    BASE_ASSERT(r->is_checked && layer == r->next_layer && layer < r->head.format.shape.n_layers);
    BASE_ASSERT(kv_span_kept(span, layer) == r->head.record.form.kept[layer]);
    const kv_layer l = kv_shape_layer(&r->head.format.shape, layer);
    const size_t most = kv_shape_most_block_bytes(&r->head.format.shape);
    const bool is_in_place = kv_span_is_in_place(span, layer);
    int n = 0;
    if (record_is_single(&r->head.record.form)) return read_single(r, layer, span, err);
    if (!is_in_place && !r->copies && !(r->copies = base_alloc_aligned(copies_bytes(r), 64)))
        return no_memory(r, copies_bytes(r), err);
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++)
        if (r->head.record.form.kept[layer] >> b & 1)
            blocks[n++] = (struct iovec){is_in_place ? kv_span_in_place(span, layer, b) : r->copies + (size_t)b * most,
                                         stored_bytes(r, layer, b)};
    record_fault fault = read_layer(r, blocks, n, err);
    n = 0;
    for (int32_t b = 0; b < KV_SPAN_BLOCKS && !fault; b++) {
        if (!(r->head.record.form.kept[layer] >> b & 1)) continue;
        void *block = blocks[n++].iov_base;
        BASE_ASSERT(stored_bytes(r, layer, b) <= l.block_bytes);
        const int32_t used = r->head.record.form.n_tokens - b * KV_BLOCK_SLOTS;
        if (stored_bytes(r, layer, b) < l.block_bytes) kv_block_unpack(&l, block, used);
        if (!is_in_place) kv_span_put_block(span, layer, b, block);
    }
    return fault;
}

/* Reads every layer into memory for one layer, which is no larger than the file. */
record_fault record_reader_verify(record_reader *r, rp_error *err) {
    BASE_ASSERT(r->next_layer == 0);
    const kv_shape *shape = &r->head.format.shape;
    const kv_span_form *form = &r->head.record.form;
    const uint64_t most = record_most_layer_bytes(shape, form, r->public.version);
    uint8_t *memory = base_alloc_aligned((size_t)most, 64);
    record_fault fault = memory ? RECORD_FAULT_NONE : no_memory(r, most, err);
    for (int32_t i = 0; i < shape->n_layers && !fault; i++) {
        struct iovec pieces[KV_SPAN_BLOCKS];
        size_t sizes[KV_SPAN_BLOCKS];
        uint8_t *at = memory;
        const int n = record_layer_pieces(shape, form, i, r->public.version, sizes);
        BASE_DCHECK(record_layer_bytes(shape, form, i, r->public.version, false) <= most);
        for (int k = 0; k < n; at += sizes[k++]) pieces[k] = (struct iovec){at, sizes[k]};
        fault = read_layer(r, pieces, n, err);
    }
    base_free(memory);
    return fault;
}

record_fault record_verify(const char *path, const record_format *format, const record_cipher *cipher, rp_error *err) {
    record_reader *r;
    record_fault fault = record_reader_open(&r, path, format, NULL, cipher, err);
    if (!fault) fault = record_reader_verify(r, err);
    record_reader_close(r);
    return fault;
}
