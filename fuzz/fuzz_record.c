/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_record.c: arbitrary bytes as a record: it is refused with a reason, or read, and then reading it layer by layer
 * and verifying it must agree.
 *
 * First byte: bit 0: the input lacks the padding before the KV, and all sizes and offsets are corrected; bit 1: also
 * the header's checksum; bit 2: also the layers'; bit 3: the record is then encrypted; bit 4: it is read with that
 * cipher.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/record/record_load.h"
#include "support/record_forge.h"
#include "support/scratch_file.h"

#define MOST_BLOCK_BYTES 65536 /* a larger shape is verified, but not read into a pool */
#define MOST_LAYERS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_fault(record_fault fault, const rp_error *err) {
    if ((fault == RECORD_FAULT_NONE) != (err->code == RP_OK) || fault >= RECORD_FAULT_COUNT) abort();
    if (fault && (!err->message[0] || strchr(err->message, '\n'))) abort();
    /* The file exists, and memory suffices. */
    if (fault == RECORD_FAULT_GONE || fault == RECORD_FAULT_IO || fault == RECORD_FAULT_MEMORY) abort();
}

static void check_record(const record *r, const kv_shape *shape) {
    const kv_span_form *f = &r->form;
    if ((r->kind == RECORD_REDUCED) != (f->slots != NULL) || !kv_form_is_possible(f, shape)) abort();
    if (f->slots && (r->at >= f->n_parts || r->n_tokens != 0)) abort();
    if (f->n_tokens < 1 || f->n_tokens > KV_SPAN_TOKENS || f->first_pos < 0 || r->n_tokens < 0 || r->first_slot < 0 ||
        r->first_slot + r->n_tokens > f->n_tokens || strlen(r->label) > RECORD_MAX_LABEL ||
        r->kind >= RECORD_KIND_COUNT)
        abort();
    for (int32_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0) abort();
}

/* Opens the record again, as an engine that expects it, and reads it into a pool. */
static record_fault read_all(const char *path, const record_reader *seen, const record_cipher *cipher) {
    const record_format *format = record_reader_format(seen);
    record_reader *r;
    kv_pool *pool;
    kv_span *span;
    rp_error err = {0};
    if (record_reader_open(&r, path, format, &record_reader_record(seen)->key, cipher, &err)) abort();
    const kv_shape shape = record_pool_shape(&format->shape);
    if (kv_pool_new(&pool, &shape, 0, NULL, NULL)) abort();
    kv_pool_set_budget(pool,
                       (uint64_t)kv_form_blocks(pool, &record_reader_record(r)->form) * kv_pool_block_bytes(pool));
    if (kv_span_restore(&span, pool, &record_reader_record(r)->form, &record_reader_record(r)->key, &err)) abort();
    record_fault fault = RECORD_FAULT_NONE;
    for (int32_t i = 0; i < format->shape.n_layers && !fault; i++) fault = record_read_layer(r, i, span, &err);
    check_fault(fault, &err);
    kv_span_unref(span);
    kv_pool_free(pool);
    record_reader_close(r);
    return fault;
}

static void read_record(const char *path, const record_cipher *cipher) {
    record_reader *r;
    rp_error err = {0};
    record_fault fault = record_reader_open(&r, path, NULL, NULL, cipher, &err);
    check_fault(fault, &err);
    if (fault) return;
    const record_format *format = record_reader_format(r);
    check_record(record_reader_record(r), &format->shape);
    fault = record_verify(path, NULL, cipher, &err);
    check_fault(fault, &err);
    bool is_small =
        kv_shape_most_block_bytes(&format->shape) <= MOST_BLOCK_BYTES && format->shape.n_layers <= MOST_LAYERS;
    if (is_small && read_all(path, r, cipher) != fault) abort();
    record_reader_close(r);
}

/* The input with zeros between the private header, which ends where its numbers say, and the KV. */
static forged pad(const uint8_t *data, size_t n) {
    forged f = {calloc(1, n + 2 * (size_t)RECORD_MAX_PRIVATE), n};
    uint64_t kv_at, private_bytes;
    if (!f.bytes) abort();
    memcpy(f.bytes, data, n);
    if (!forge_places(f.bytes, n, &private_bytes, &kv_at)) return f;
    size_t header = RECORD_PUBLIC_BYTES + (size_t)private_bytes;
    memset(f.bytes + header, 0, n - header);
    memcpy(f.bytes + kv_at, data + header, n - header);
    f.n = (size_t)kv_at + n - header;
    return f;
}

/* The input, changed according to its mode. */
static forged make_file(uint8_t mode, const uint8_t *data, size_t n, const record_cipher *cipher) {
    forged f = mode & 1 ? pad(data, n) : (forged){malloc(n + 1), n};
    if (!f.bytes) abort();
    if (mode & 1) forge_sizes(f.bytes, f.n);
    else memcpy(f.bytes, data, n);
    if (mode & 4) forge_layer_checksums(f.bytes, f.n);
    forged encrypted = mode & 8 ? forge_encrypt(f.bytes, f.n, cipher) : (forged){0};
    if (encrypted.n) {
        forge_free(&f);
        f = encrypted;
    }
    if (mode & 2) forge_header_checksum(f.bytes, f.n);
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static record_cipher *cipher;
    if (n == 0) return 0;
    if (!cipher) cipher = forge_cipher(7);
    forged f = make_file(data[0], data + 1, n - 1, cipher);
    scratch_file_write(f.bytes, f.n);
    read_record(scratch_file_path(), data[0] & 16 ? cipher : NULL);
    forge_free(&f);
    return 0;
}
