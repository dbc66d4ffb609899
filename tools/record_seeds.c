/* SPDX-License-Identifier: Apache-2.0 */
/* record_seeds.c: writes small records as seeds for a fuzzer: record_seeds DIR (fuzz/corpus/record).
 *
 * The first byte of each is a mode of fuzz/fuzz_record.c: the fields that the fuzzer corrects. One seed for each mode,
 * plain and encrypted.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/record_forge.h"

static const int32_t windows[] = {0, 40};

static const struct {
    const char *name;
    uint8_t mode; /* bit 0: without the zeros before the KV */
    kv_shape shape;
    int32_t n_slots, from;
    bool is_encrypted;
} seeds[] = {
    {"plain", 0, {1, 1, 1, 1, NULL, KV_F16}, 3, 0, false},
    {"sizes-and-checksums", 7, {2, 2, 3, 5, NULL, KV_F16}, 65, 0, false},
    {"windows", 7, {2, 1, 1, 2, windows, KV_F32}, 200, 260, false},
    {"wrong-layers", 3, {3, 1, 1, 1, NULL, KV_F32}, 64, 0, false},
    {"made-encrypted", 31, {2, 1, 2, 1, windows, KV_F16}, 130, 150, false},
    {"without-its-cipher", 15, {1, 1, 1, 1, NULL, KV_F16}, 1, 0, false},
    {"encrypted", 16, {1, 1, 1, 1, NULL, KV_F16}, 3, 0, true},
    {"int8", 7, {2, 2, 4, 2, windows, KV_INT8}, 70, 90, false},
    {"encrypted-checksum", 18, {2, 1, 1, 1, NULL, KV_F16}, 64, 0, true},
};

static void save_seed(const char *path, uint8_t mode, const forged *f) {
    uint64_t private_bytes, kv_at;
    uint8_t *out = malloc(f->n + 1);
    size_t n = f->n;
    if (!out) abort();
    out[0] = mode;
    memcpy(out + 1, f->bytes, n);
    if (mode & 1 && forge_places(f->bytes, n, &private_bytes, &kv_at)) {
        size_t header = RECORD_PUBLIC_BYTES + (size_t)private_bytes;
        memcpy(out + 1 + header, f->bytes + kv_at, n - (size_t)kv_at);
        n -= (size_t)kv_at - header;
    }
    forge_save(path, out, n + 1);
    free(out);
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: record_seeds DIR\n"), 2;
    record_cipher *cipher = forge_cipher(7);
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char path[1024];
        record_world w;
        record_world_open(&w, &(record_plan){.shape = &seeds[i].shape, .n_slots = seeds[i].n_slots, .from = seeds[i].from, .seed = i});
        rp_error err;
        if (record_write(w.path, &w.format, &w.record, w.span, seeds[i].is_encrypted ? cipher : NULL, NULL, &err))
            return fprintf(stderr, "%s\n", err.message), 1;
        forged f = forge_load(w.path);
        snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].name);
        save_seed(path, seeds[i].mode, &f);
        forge_free(&f);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
    return 0;
}
