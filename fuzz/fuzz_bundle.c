/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_bundle.c: arbitrary bytes as a bundle: it is refused with a reason, or every record of it is checked, and then
 * checking and loading must agree.
 *
 * First byte: bit 0: the sizes of the file and of the last record are corrected; bit 1: also the header's checksum; bit
 * 2: also those of the records' headers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/record/record_bundle.h"
#include "support/bundle_forge.h"
#include "support/scratch_file.h"

#define MOST_BYTES ((uint64_t)16 << 20) /* a larger record is checked but not loaded */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(int rc, const rp_error *err) {
    if (err->code != (rp_code)rc || (rc && (!err->message[0] || strchr(err->message, '\n')))) abort();
    if (rc && rc != RP_ERR_FORMAT && rc != RP_ERR_LIMIT) abort(); /* the file exists, and memory suffices */
}

static void check_front(const record_bundle *b, size_t n) {
    uint64_t end = 0;
    if (b->n == 0 || b->n > RECORD_BUNDLE_MAX || b->file_bytes != n || !record_bundle_may_name(b->name)) abort();
    for (size_t i = 0; i < b->n; i++) {
        if (i > 0 &&
            (b->items[i].at != end || memcmp(b->items[i - 1].key.bytes, b->items[i].key.bytes, BASE_KEY_BYTES) >= 0))
            abort();
        if (b->items[i].at > n || b->items[i].bytes > n - b->items[i].at) abort();
        end = b->items[i].at + b->items[i].bytes;
    }
    if (end != n) abort();
}

static void check_item(const record_bundle *b, size_t i) {
    rp_error err = {0}, again = {0};
    record_loaded l;
    int rc = record_bundle_check(b, i, &err);
    check_error(rc, &err);
    if (b->items[i].bytes > MOST_BYTES) return;
    int loaded = record_bundle_load(b, i, &l, &again);
    check_error(loaded, &again);
    if (rc != loaded) abort();
    if (loaded) return;
    const record *r = record_reader_record(l.reader);
    if (!record_is_of_module(r->kind) || !record_label_is_below(r->label, b->name) ||
        !base_key_equal(&r->key, &b->items[i].key))
        abort();
    record_loaded_free(&l);
}

/* Corrects the checksums of the headers of all records with possible sizes. */
static void make_records_right(uint8_t *bytes, size_t n) {
    static const uint8_t magic[] = RECORD_MAGIC;
    for (size_t at = 0; at + RECORD_PUBLIC_BYTES < n; at++)
        if (memcmp(bytes + at, magic, RECORD_MAGIC_BYTES) == 0) {
            uint64_t size = 0;
            for (int i = 0; i < 8; i++) size |= (uint64_t)bytes[at + 16 + (size_t)i] << (8 * i);
            forge_header_checksum(bytes + at, size < n - at ? (size_t)size : n - at);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n-- == 0) return 0;
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) abort();
    memcpy(bytes, data + 1, n);
    if (data[0] & 4) make_records_right(bytes, n);
    if (data[0] & 1) bundle_forge_sizes(bytes, n);
    if (data[0] & 2) bundle_forge_checksum(bytes, n);
    scratch_file_write(bytes, n);
    free(bytes);
    record_bundle b;
    rp_error err = {0};
    int rc = record_bundle_open(&b, scratch_file_path(), &err);
    check_error(rc, &err);
    if (!rc) check_front(&b, n);
    for (size_t i = 0; !rc && i < b.n; i++) check_item(&b, i);
    record_bundle_close(&b);
    return 0;
}
