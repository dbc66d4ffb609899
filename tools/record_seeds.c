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

#include "support/kv_shapes.h"
#include "support/record_forge.h"

/* Two layers, the second with a window, or in f16, or both. */
#define WINDOWED(heads, keys, values) \
    KV_ROWS(2, KV_ROW(heads, keys, values, 0, false), KV_ROW(heads, keys, values, 40, false))
#define MIXED(heads, keys, values) \
    KV_ROWS(2, KV_ROW(heads, keys, values, 0, false), KV_ROW(heads, keys, values, 0, true))
#define WINDOWED_MIXED(heads, keys, values) \
    KV_ROWS(2, KV_ROW(heads, keys, values, 0, false), KV_ROW(heads, keys, values, 40, true))

static const struct {
    const char *name;
    uint8_t mode; /* bit 0: without the zeros before the KV */
    kv_shape shape;
    int32_t n_slots, from;
    bool is_encrypted;
    int packed;  /* the span is in this format, modulo RP_N_KV_FORMATS; 0: in the shape's */
    int reduced; /* a reduced span: its part + 1; 0: not */
} seeds[] = {
    {"plain", 0, {KV_SAME(1, 1, 1, 1), .format = RP_KV_F16}, 3, 0, false, 0, 0},
    {"sizes-and-checksums", 7, {KV_SAME(2, 2, 3, 5), .format = RP_KV_F16}, 65, 0, false, 0, 0},
    {"windows", 7, {WINDOWED(1, 1, 2), .format = RP_KV_F32}, 200, 260, false, 0, 0},
    {"wrong-layers", 3, {KV_SAME(3, 1, 1, 1), .format = RP_KV_F32}, 64, 0, false, 0, 0},
    {"made-encrypted", 31, {WINDOWED(1, 2, 1), .format = RP_KV_F16}, 130, 150, false, 0, 0},
    {"without-its-cipher", 15, {KV_SAME(1, 1, 1, 1), .format = RP_KV_F16}, 1, 0, false, 0, 0},
    {"encrypted", 16, {KV_SAME(1, 1, 1, 1), .format = RP_KV_F16}, 3, 0, true, 0, 0},
    {"int8", 7, {WINDOWED(2, 4, 2), .format = RP_KV_INT8}, 70, 90, false, 0, 0},
    {"int8-last-block",
     6,
     {KV_SAME(1, 2, 4, 2), .format = RP_KV_INT8},
     130,
     0,
     false,
     0,
     0}, /* two whole blocks, two slots */
    {"f32-one-slot", 6, {KV_SAME(1, 1, 2, 1), .format = RP_KV_F32}, 65, 0, false, 0, 0},
    {"kivi4", 7, {KV_SAME(1, 2, 4, 2), .format = RP_KV_INT8}, 5, 0, false, RP_KV_KIVI4, 0},
    {"k4v2", 6, {KV_SAME(1, 1, 4, 4), .format = RP_KV_F16}, 66, 0, false, RP_KV_K4V2, 0},
    {"kivi2-windows", 7, {WINDOWED(1, 4, 4), .format = RP_KV_F16}, 70, 90, false, RP_KV_KIVI2, 0},
    {"kivi2-encrypted", 16, {KV_SAME(1, 1, 4, 4), .format = RP_KV_F16}, 65, 0, true, RP_KV_KIVI2, 0},
    /* keys and values in different blocks: */
    {"f16-apart", 7, {KV_SAME(2, 1, 4, 4), .format = RP_KV_INT8}, 65, 0, false, RP_KV_F16 + RP_N_KV_FORMATS, 0},
    {"int8-f16-layer", 7, {WINDOWED_MIXED(2, 4, 2), .format = RP_KV_INT8}, 70, 90, false, 0, 0},
    {"kivi4-f16-layer", 6, {MIXED(1, 4, 4), .format = RP_KV_INT8}, 66, 0, false, RP_KV_KIVI4, 0},
    {"int8-f16-layer-encrypted", 16, {MIXED(1, 2, 2), .format = RP_KV_INT8}, 65, 0, true, 0, 0},
    {"encrypted-checksum", 18, {KV_SAME(2, 1, 1, 1), .format = RP_KV_F16}, 64, 0, true, 0, 0},
    {"reduced", 7, {KV_SAME(2, 2, 4, 2), .format = RP_KV_F16}, 70, 0, false, 0, 1},
    {"reduced-last-part", 7, {KV_SAME(1, 2, 1, 1), .format = RP_KV_F32}, 300, 0, false, 0, 2},
    {"reduced-wrong-layers", 3, {WINDOWED(1, 2, 2), .format = RP_KV_INT8}, 66, 0, false, 0, 1},
    {"reduced-int8-f16-layer", 6, {WINDOWED_MIXED(2, 4, 2), .format = RP_KV_INT8}, 90, 0, false, 0, 1},
    {"reduced-kivi4", 7, {KV_SAME(2, 1, 4, 4), .format = RP_KV_INT8}, 67, 0, false, RP_KV_KIVI4, 1},
    {"reduced-kivi2-f16-layer", 7, {MIXED(2, 4, 4), .format = RP_KV_INT8}, 65, 0, false, RP_KV_KIVI2, 1},
    {"reduced-made-encrypted", 31, {KV_SAME(2, 2, 2, 1), .format = RP_KV_F16}, 130, 0, false, 0, 1},
    {"reduced-encrypted", 16, {KV_SAME(1, 2, 4, 4), .format = RP_KV_F16}, 20, 0, true, RP_KV_K4V2, 1},
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

/* The world's span in another format, with bytes that depend on their places. */
static kv_span *pack_span(const record_world *w, rp_kv_format format) {
    const kv_shape own = kv_shape_in(&w->format.shape, format);
    uint8_t *block = malloc(kv_shape_most_block_bytes(&own));
    kv_span *s;
    if (!block || kv_span_new_like(&s, w->span, format, NULL)) abort();
    for (int32_t l = 0; l < own.n_layers; l++)
        for (int32_t b = 0; b * KV_BLOCK_SLOTS < kv_span_tokens(s); b++) {
            const kv_layer shape = kv_shape_layer(&own, l);
            const size_t bytes = shape.block_bytes;
            const int used = kv_span_tokens(s) - b * KV_BLOCK_SLOTS;
            if (!kv_span_has(s, l, b)) continue;
            for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)(i * 7 + (size_t)b);
            if (used < KV_BLOCK_SLOTS) {
                kv_block_clear_slots(&shape, block, used);
                kv_block_pack(&shape, block, used);
                kv_block_unpack(&shape, block, used);
            }
            kv_span_put_block(s, l, b, block);
        }
    free(block);
    kv_span_seal(s, &w->record.key);
    return s;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: record_seeds DIR\n"), 2;
    record_cipher *cipher = forge_cipher(7);
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char path[1024];
        record_world w;
        record_plan plan = {.shape = &seeds[i].shape, .n_slots = seeds[i].n_slots, .from = seeds[i].from, .seed = i};
        plan.is_reduced = seeds[i].reduced > 0;
        plan.part = plan.is_reduced ? seeds[i].reduced - 1 : 0;
        plan.encoded = (rp_kv_format)(seeds[i].packed % RP_N_KV_FORMATS);
        record_world_open(&w, &plan);
        rp_error err;
        kv_span *span = seeds[i].packed && !seeds[i].reduced
                            ? pack_span(&w, (rp_kv_format)(seeds[i].packed % RP_N_KV_FORMATS))
                            : kv_span_ref(w.span);
        if (record_write(w.path, &w.format, &w.record, span, seeds[i].is_encrypted ? cipher : NULL, NULL, &err))
            return fprintf(stderr, "%s\n", err.message), 1;
        forged f = forge_load(w.path);
        snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].name);
        save_seed(path, seeds[i].mode, &f);
        forge_free(&f);
        kv_span_unref(span);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
    return 0;
}
