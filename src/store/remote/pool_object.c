/* SPDX-License-Identifier: Apache-2.0 */
/* pool_object.c: see pool_object.h. */
#include "store/remote/pool_object.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/record/record_header.h"

#define PIECE_BYTES ((size_t)1 << 20)

typedef struct pool_object {
    pool_link *link; /* borrowed */
    char name[POOL_NAME_CHARS + 1];
    uint64_t deadline_us;
    uint64_t bytes; /* that its header says it has */
    uint8_t *piece; /* [cap] */
    size_t cap, n;  /* n: bytes of the object from `begin` on, in `piece` */
    uint64_t begin;
    uint64_t fetched; /* bytes, in all */
    int cause;        /* errno of a failed operation; 0: none failed */
} pool_object;

static int fetch(pool_object *o, uint64_t begin, size_t n, rp_error *err) {
    pool_range r = {.begin = begin, .bytes = o->piece, .n = n};
    memcpy(r.name, o->name, sizeof(r.name));
    o->n = 0;
    const int rc = pool_get(o->link, &r, 1, o->deadline_us, err);
    if (rc) {
        o->cause = errno;
        return rc;
    }
    o->begin = begin;
    o->n = r.found ? r.got : 0;
    o->fetched += o->n;
    return RP_OK;
}

/* Makes the byte at an offset available; *n of them from there on. 0: the object ends there, or is gone. */
static int reach(pool_object *o, uint64_t offset, size_t *n, rp_error *err) {
    if (offset < o->begin || offset >= o->begin + o->n) {
        if (o->cap < PIECE_BYTES) { /* of a look: the headers alone were read */
            uint8_t *piece = base_alloc(PIECE_BYTES);
            if (!piece) return base_fail_memory(err, PIECE_BYTES, "a piece of a record");
            if (o->cap > 0) base_free(o->piece);
            o->piece = piece;
            o->cap = PIECE_BYTES;
        }
        const uint64_t begin = offset / PIECE_BYTES * PIECE_BYTES;
        const int rc = fetch(o, begin, PIECE_BYTES, err);
        if (rc) return rc;
    }
    *n = offset < o->begin + o->n ? (size_t)(o->begin + o->n - offset) : 0;
    return RP_OK;
}

static int read_pieces(void *user, uint64_t offset, const struct iovec *pieces, int n, size_t *n_read, rp_error *err) {
    pool_object *o = user;
    *n_read = 0;
    for (int i = 0; i < n; i++) {
        for (size_t done = 0, there; done < pieces[i].iov_len; done += there) {
            const int rc = reach(o, offset, &there, err);
            if (rc || there == 0) return rc;
            there = BASE_MIN(there, pieces[i].iov_len - done);
            memcpy((uint8_t *)pieces[i].iov_base + done, o->piece + (offset - o->begin), there);
            offset += there;
            *n_read += there;
        }
    }
    return RP_OK;
}

/* Opens the record of an object, whose first bytes are in its piece. */
static record_fault open_record(pool_object *o, record_reader **out, const record_format *format, const base_key *key,
                                const record_cipher *cipher, rp_error *err) {
    BASE_ASSERT(cipher); /* records in a pool are encrypted */
    if (o->n < RECORD_PUBLIC_BYTES)
        return record_fail(err, RECORD_FAULT_TRUNCATED, o->name, "%zu bytes", o->n);
    o->bytes = record_get_file_bytes(o->piece);
    const record_source source = {.name = o->name, .bytes = o->bytes, .read = read_pieces, .user = o};
    return record_reader_open_from(out, &source, format, key, cipher, err);
}

record_fault pool_object_look(record_row **row, pool_link *link, const char *name, uint64_t deadline_us, uint8_t *head,
                              size_t n, const record_format *format, const base_key *key, const record_cipher *cipher,
                              int *cause, rp_error *err) {
    pool_object o = {.link = link, .deadline_us = deadline_us, .piece = head, .n = n};
    record_reader *reader = NULL;
    memcpy(o.name, name, sizeof(o.name));
    record_fault fault = open_record(&o, &reader, format, key, cipher, err);
    *row = NULL;
    if (!fault) {
        const record_format *own = record_reader_format(reader);
        *row = record_row_copy(record_reader_record(reader), own->shape.n_layers, &own->fingerprint);
        if (!*row) fault = RECORD_FAULT_MEMORY, base_fail_memory(err, sizeof(**row), "a record");
        else (*row)->bytes = o.bytes;
    }
    record_reader_close(reader);
    if (o.cap > 0) base_free(o.piece);
    *cause = o.cause;
    return fault;
}

record_fault pool_object_pull(kv_span *span, pool_link *link, const char *name, uint64_t deadline_us,
                              const record_format *format, const base_key *key, const record_cipher *cipher,
                              uint64_t *bytes, int *cause, rp_error *err) {
    pool_object o = {.link = link, .deadline_us = deadline_us, .cap = PIECE_BYTES};
    record_reader *reader = NULL;
    record_fault fault = RECORD_FAULT_NONE;
    memcpy(o.name, name, sizeof(o.name));
    *bytes = 0;
    *cause = 0;
    if (!(o.piece = base_alloc(o.cap))) {
        base_fail_memory(err, o.cap, "a piece of a record");
        return RECORD_FAULT_MEMORY;
    }
    if (fetch(&o, 0, o.cap, err)) fault = RECORD_FAULT_IO;
    else if (o.n == 0) fault = record_fail(err, RECORD_FAULT_GONE, name, "the pool has dropped it");
    if (!fault) fault = open_record(&o, &reader, format, key, cipher, err);
    if (!fault && !kv_span_has_form(span, &record_reader_record(reader)->form))
        fault = record_fail(err, RECORD_FAULT_DAMAGED, name, "it has another form than before");
    for (int32_t i = 0; !fault && i < format->shape.n_layers; i++)
        if (!(fault = record_read_layer(reader, i, span, err))) kv_span_set_ready(span, i + 1);
    record_reader_close(reader);
    base_free(o.piece);
    *bytes = o.fetched;
    *cause = o.cause;
    return fault;
}
