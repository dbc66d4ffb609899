/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_forge.c: see bundle_forge.h. */
#include "bundle_forge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/record/record_bundle.h"
#include "support/kv_shapes.h"

#define MOST 8

static void die(const char *what) {
    fprintf(stderr, "bundle_forge: %s\n", what);
    abort();
}

static int compare_worlds(const void *a, const void *b) {
    return memcmp(((const record_world *)a)->record.key.bytes, ((const record_world *)b)->record.key.bytes,
                  BASE_KEY_BYTES);
}

forged bundle_forge(const char *name, size_t n, size_t n_reduced, bool with_text) {
    const kv_shape shape = {KV_SAME(2, 1, 2, 1), .format = RP_KV_F16};
    static record_world worlds[MOST];
    record_bundle_item items[MOST];
    record_bundle b = {.items = items, .n = n};
    char path[128];
    base_io_file file;
    if (n > MOST) die("too many");
    for (size_t i = 0; i < n; i++) { /* even seeds are modules */
        record_plan plan = {.shape = &shape, .n_slots = 3 + (int32_t)i, .seed = 2 * i + (with_text && i == 0)};
        plan.is_reduced = i + n_reduced >= n;
        record_world_open(&worlds[i], &plan);
    }
    qsort(worlds, n, sizeof *worlds, compare_worlds);
    for (size_t i = 0; i < n; i++) { /* sorting moved the entries: restore the pointers into the array */
        worlds[i].record.tokens = worlds[i].tokens;
        items[i] = (record_bundle_item){.key = worlds[i].record.key};
        items[i].bytes = record_file_bytes(&worlds[i].format, &worlds[i].record, false);
    }
    strcpy(b.name, name);
    snprintf(path, sizeof path, "%s/bundle", worlds[0].folder);
    if (base_io_create(&file, path, NULL) || record_bundle_begin(&b, &file, NULL)) die("no file");
    for (size_t i = 0; i < n; i++)
        if (record_append(&file, &worlds[i].format, &worlds[i].record, worlds[i].span, NULL)) die("no record");
    base_io_close(&file);
    forged f = forge_load(path);
    for (size_t i = 0; i < n; i++) record_world_close(&worlds[i]);
    return f;
}

static uint64_t get(const uint8_t *in, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)in[i] << (8 * i);
    return v;
}

static void put(uint8_t *out, uint64_t v, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

/* Offset of the first record; 0: outside the file. */
static size_t front(const uint8_t *bytes, size_t n) {
    if (n < RECORD_BUNDLE_HEADER) return 0;
    uint64_t end = RECORD_BUNDLE_HEADER + get(bytes + 12, 4) * RECORD_BUNDLE_ITEM + get(bytes + 24, 4);
    return end <= n ? (size_t)end : 0;
}

void bundle_forge_checksum(uint8_t *bytes, size_t n) {
    size_t end = front(bytes, n);
    if (end > 0) record_put_checksum(bytes + RECORD_BOUND_BYTES, record_header_checksum(bytes, end));
}

void bundle_forge_sizes(uint8_t *bytes, size_t n) {
    size_t end = front(bytes, n), n_records = end > 0 ? (size_t)get(bytes + 12, 4) : 0;
    uint64_t left = n - end;
    if (end == 0) return;
    put(bytes + 16, n, 8);
    for (size_t i = 0; i + 1 < n_records; i++)
        left -= get(bytes + RECORD_BUNDLE_HEADER + i * RECORD_BUNDLE_ITEM + 32, 8); /* may wrap */
    if (n_records > 0) put(bytes + RECORD_BUNDLE_HEADER + (n_records - 1) * RECORD_BUNDLE_ITEM + 32, left, 8);
}
