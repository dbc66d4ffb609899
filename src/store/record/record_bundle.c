/* SPDX-License-Identifier: Apache-2.0 */
/* record_bundle.c: see record_bundle.h. */
#include "store/record/record_bundle.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/record/record_header.h"

enum {
    BOUND = RECORD_BOUND_BYTES,
    MAGIC_BYTES = RECORD_MAGIC_BYTES,
};

_Static_assert((int)BOUND + 16 == (int)RECORD_BUNDLE_HEADER, "a bundle's checksum stands where a record's does");

bool record_label_is_below(const char *label, const char *name) {
    size_t n = strlen(name);
    while (n > 0 && name[n - 1] == '/') n--;
    return n > 0 && strncmp(label, name, n) == 0 && (label[n] == '\0' || label[n] == '/');
}

bool record_bundle_may_name(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n <= RECORD_MAX_LABEL && name[0] != '/' && name[n - 1] != '/';
}

/* ---- numbers, always little-endian ---- */

static void record_bundle_put(uint8_t *out, uint64_t v, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t record_bundle_get(const uint8_t *in, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)in[i] << (8 * i);
    return v;
}

static size_t front_bytes(size_t n, size_t name_bytes) {
    return RECORD_BUNDLE_HEADER + n * RECORD_BUNDLE_ITEM + name_bytes;
}

static int record_bundle_damaged(const char *path, uint64_t at, const char *what, rp_error *err) {
    return base_fail_at(err, RP_ERR_FORMAT, path, at, "not a readable bundle: %s", what);
}

/* ---- reading ---- */

typedef struct front {
    const char *path;
    uint64_t file_bytes;
    uint32_t n, name_bytes;
    uint8_t *bytes; /* [front_bytes] */
} front;

static int base_io_file_read_bytes(const base_io_file *file, uint64_t at, uint8_t *out, size_t n, rp_error *err) {
    size_t n_read;
    int rc = base_io_read(file, at, out, n, &n_read, err);
    return rc || n_read == n ? rc : record_bundle_damaged(file->path, at + n_read, "it is truncated", err);
}

static int check_numbers(front *f, const uint8_t *header, rp_error *err) {
    static const uint8_t zeros[20];
    if (memcmp(header, RECORD_BUNDLE_MAGIC, MAGIC_BYTES) != 0)
        return record_bundle_damaged(f->path, 0, "it does not begin with a bundle's magic number", err);
    uint32_t version = (uint32_t)record_bundle_get(header + 8, 4);
    if (version != RECORD_BUNDLE_VERSION)
        return base_fail_at(err, RP_ERR_FORMAT, f->path, 8, "a bundle of version %u: this version reads version %d",
                            version, RECORD_BUNDLE_VERSION);
    f->n = (uint32_t)record_bundle_get(header + 12, 4);
    f->name_bytes = (uint32_t)record_bundle_get(header + 24, 4);
    uint64_t bytes = record_bundle_get(header + 16, 8);
    if (bytes > f->file_bytes) return record_bundle_damaged(f->path, f->file_bytes, "it is truncated", err);
    if (bytes < f->file_bytes) return record_bundle_damaged(f->path, bytes, "there is data after its end", err);
    if (f->n > RECORD_BUNDLE_MAX)
        return base_fail_at(err, RP_ERR_LIMIT, f->path, 12, "a bundle of %u records: at most %d are allowed", f->n,
                            RECORD_BUNDLE_MAX);
    if (f->n == 0 || f->name_bytes == 0 || f->name_bytes > RECORD_MAX_LABEL ||
        memcmp(header + 28, zeros, sizeof zeros) != 0)
        return record_bundle_damaged(f->path, 12, "a number in its header is out of range", err);
    return front_bytes(f->n, f->name_bytes) <= bytes ? RP_OK
                                                     : record_bundle_damaged(f->path, bytes, "it is truncated", err);
}

/* Reads the part before the records into memory of its own, and checks its checksum. */
static int read_front(front *f, const base_io_file *file, rp_error *err) {
    uint8_t header[RECORD_BUNDLE_HEADER];
    base_io_sizes sizes;
    int rc = base_io_stat_file(file, &sizes, err);
    f->file_bytes = sizes.bytes;
    if (!rc && sizes.bytes < sizeof header) rc = record_bundle_damaged(f->path, sizes.bytes, "it is truncated", err);
    if (!rc) rc = base_io_file_read_bytes(file, 0, header, sizeof header, err);
    if (!rc) rc = check_numbers(f, header, err);
    if (rc) return rc;
    size_t n = front_bytes(f->n, f->name_bytes);
    f->bytes = base_alloc(n);
    if (!f->bytes) return base_fail_memory(err, n, "a bundle");
    memcpy(f->bytes, header, sizeof header);
    rc = base_io_file_read_bytes(file, sizeof header, f->bytes + sizeof header, n - sizeof header, err);
    if (rc) return rc;
    uint8_t sum[16];
    record_put_checksum(sum, record_header_checksum(f->bytes, n));
    return memcmp(sum, header + BOUND, sizeof sum) == 0
               ? RP_OK
               : record_bundle_damaged(f->path, BOUND, "the checksum of its header is wrong", err);
}

/* Keys ascend, and the records fill the file. */
static int get_items(record_bundle *b, const front *f, rp_error *err) {
    BASE_ASSERT(f->n > 0 && f->n <= RECORD_BUNDLE_MAX); /* checked */
    const uint8_t *at = f->bytes + RECORD_BUNDLE_HEADER;
    uint64_t begin = front_bytes(f->n, f->name_bytes);
    b->items = base_calloc(f->n, sizeof *b->items);
    if (!b->items) return base_fail_memory(err, f->n * sizeof *b->items, "a bundle");
    for (b->n = 0; b->n < f->n; b->n++, at += RECORD_BUNDLE_ITEM) {
        record_bundle_item *item = &b->items[b->n];
        memcpy(item->key.bytes, at, BASE_KEY_BYTES);
        item->bytes = record_bundle_get(at + BASE_KEY_BYTES, 8);
        item->at = begin;
        if (b->n > 0 && memcmp(item[-1].key.bytes, item->key.bytes, BASE_KEY_BYTES) >= 0)
            return record_bundle_damaged(f->path, (uint64_t)(at - f->bytes), "its records are out of order", err);
        if (item->bytes < RECORD_PUBLIC_BYTES || item->bytes > f->file_bytes - begin)
            return record_bundle_damaged(f->path, (uint64_t)(at - f->bytes), "a record's size is out of range", err);
        begin += item->bytes;
    }
    return begin == f->file_bytes ? RP_OK
                                  : record_bundle_damaged(f->path, begin, "its size does not match its records", err);
}

static int get_name(record_bundle *b, const front *f, rp_error *err) {
    size_t at = front_bytes(f->n, 0);
    BASE_ASSERT(f->name_bytes < sizeof(b->name));
    memcpy(b->name, f->bytes + at, f->name_bytes);
    b->name[f->name_bytes] = '\0';
    if (strlen(b->name) == f->name_bytes && record_bundle_may_name(b->name)) return RP_OK;
    return record_bundle_damaged(f->path, at, "its name is malformed", err);
}

int record_bundle_open(record_bundle *out, const char *path, rp_error *err) {
    base_io_file file;
    front f = {.path = path};
    *out = (record_bundle){.path = base_strdup(path)};
    if (!out->path) return base_fail_memory(err, strlen(path), "a bundle");
    int rc = base_io_open(&file, path, err);
    if (!rc) rc = read_front(&f, &file, err);
    if (!rc) rc = get_items(out, &f, err);
    if (!rc) rc = get_name(out, &f, err);
    out->file_bytes = f.file_bytes;
    base_io_close(&file);
    base_free(f.bytes);
    if (rc) record_bundle_close(out);
    return rc;
}

void record_bundle_close(record_bundle *b) {
    base_free(b->items);
    base_free(b->path);
    *b = (record_bundle){0};
}

/* ---- its records ---- */

/* The error of a record, with its number. */
static int fail_record(const record_bundle *b, size_t i, const rp_error *why, rp_error *err) {
    BASE_ASSERT(i < b->n && why->code != RP_OK);
    char where[RP_ERROR_WHERE_BYTES];
    size_t n = strlen(b->path);
    const char *text = why->message;
    if (strncmp(text, b->path, n) == 0 && strncmp(text + n, ": ", 2) == 0) text += n + 2;
    snprintf(where, sizeof where, "%s: record %zu of %zu", b->path, i + 1, b->n);
    return base_fail_at(err, why->code, where, b->items[i].at, "%s", text);
}

static int check_kind(const record_bundle *b, const record *r, rp_error *err) {
    if (record_is_of_module(r->kind) && record_label_is_below(r->label, b->name)) return RP_OK;
    return base_fail(err, RP_ERR_FORMAT, "it does not belong to module '%s': the bundle is rejected", b->name);
}

static record_place record_bundle_place_of(const record_bundle *b, size_t i) {
    BASE_ASSERT(i < b->n && b->items[i].bytes <= b->file_bytes && b->items[i].at <= b->file_bytes - b->items[i].bytes);
    return (record_place){b->path, b->items[i].at, b->items[i].bytes};
}

int record_bundle_check(const record_bundle *b, size_t i, rp_error *err) {
    record_reader *r;
    rp_error why = {0};
    record_place place = record_bundle_place_of(b, i);
    record_fault fault = record_place_open(&r, &place, &b->items[i].key, NULL, &why);
    bool is_bad = fault || check_kind(b, record_reader_record(r), &why) || record_reader_verify(r, &why);
    record_reader_close(r);
    return is_bad ? fail_record(b, i, &why, err) : RP_OK;
}

int record_bundle_load(const record_bundle *b, size_t i, record_loaded *out, rp_error *err) {
    rp_error why = {0};
    record_place place = record_bundle_place_of(b, i);
    record_fault fault = record_load(out, &place, &b->items[i].key, NULL, &why);
    if (!fault && check_kind(b, record_reader_record(out->reader), &why) == RP_OK) return RP_OK;
    record_loaded_free(out);
    return fail_record(b, i, &why, err);
}

/* ---- writing ---- */

int record_bundle_begin(const record_bundle *b, const base_io_file *to, rp_error *err) {
    size_t name_bytes = strlen(b->name), n = front_bytes(b->n, name_bytes);
    uint64_t file_bytes = n;
    BASE_ASSERT(record_bundle_may_name(b->name) && b->n > 0);
    if (b->n > RECORD_BUNDLE_MAX)
        return base_fail(err, RP_ERR_LIMIT,
                         "a bundle of %zu records: at most %d are allowed: export the members one by one", b->n,
                         RECORD_BUNDLE_MAX);
    uint8_t *bytes = base_calloc(1, n);
    if (!bytes) return base_fail_memory(err, n, "a bundle");
    uint8_t *at = bytes + RECORD_BUNDLE_HEADER;
    for (size_t i = 0; i < b->n; i++, at += RECORD_BUNDLE_ITEM) {
        memcpy(at, b->items[i].key.bytes, BASE_KEY_BYTES);
        BASE_ASSERT(i == 0 ||
                    memcmp(b->items[i - 1].key.bytes, b->items[i].key.bytes, BASE_KEY_BYTES) < 0); /* keys ascend */
        record_bundle_put(at + BASE_KEY_BYTES, b->items[i].bytes, 8);
        file_bytes += b->items[i].bytes;
    }
    memcpy(at, b->name, name_bytes);
    memcpy(bytes, RECORD_BUNDLE_MAGIC, MAGIC_BYTES);
    record_bundle_put(bytes + 8, RECORD_BUNDLE_VERSION, 4);
    record_bundle_put(bytes + 12, b->n, 4);
    record_bundle_put(bytes + 16, file_bytes, 8);
    record_bundle_put(bytes + 24, name_bytes, 4);
    BASE_ASSERT(at + name_bytes == bytes + n);
    record_put_checksum(bytes + BOUND, record_header_checksum(bytes, n));
    int rc = base_io_writev(to, &(struct iovec){bytes, n}, 1, err);
    base_free(bytes);
    return rc;
}
