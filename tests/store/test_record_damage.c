/* SPDX-License-Identifier: Apache-2.0 */
/* test_record_damage.c: records that were altered, truncated, extended or exchanged: each is refused with the right
 * reason. */
#define _POSIX_C_SOURCE 200809L /* truncate */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "store/record/record_load.h"
#include "support/kv_shapes.h"
#include "support/record_forge.h"

static const kv_shape small = {KV_SAME(1, 1, 1, 1), .format = RP_KV_F16};
static const kv_shape odd = {KV_ROWS(2, KV_ROW(3, 5, 3, 0, false), KV_ROW(3, 5, 3, 40, false)), .format = RP_KV_F16};
static const kv_shape mixed = {KV_ROWS(2, KV_ROW(3, 4, 2, 0, false), KV_ROW(3, 4, 2, 0, true)), .format = RP_KV_INT8};
static const kv_shape large = {KV_SAME(3, 2, 16, 16), .format = RP_KV_F16};

/* Reads as an engine does: with all expectations, and every byte. */
static record_fault look(const char *path, const record_world *w, const record_cipher *cipher) {
    record_reader *r;
    rp_error err = {0};
    record_fault fault = record_reader_open(&r, path, &w->format, &w->record.key, cipher, &err);
    assert_int_equal(fault == RECORD_FAULT_NONE, err.code == RP_OK);
    if (fault) {
        assert_null(r);
        assert_true(err.message[0] && !strchr(err.message, '\n'));
    }
    record_reader_close(r);
    if (!fault) fault = record_verify(path, &w->format, cipher, &err);
    assert_int_equal(fault == RECORD_FAULT_NONE, err.code == RP_OK);
    return fault;
}

static record_fault look_at(const record_world *w, const uint8_t *bytes, size_t n, const record_cipher *cipher) {
    forge_save(w->other, bytes, n);
    return look(w->other, w, cipher);
}

/* ---- fields ---- */

enum { PRIVATE = RECORD_PUBLIC_BYTES,
       LAYERS = PRIVATE + RECORD_FIXED_BYTES,
       TOKENS = LAYERS + 2 * RECORD_LAYER_BYTES };

/* A field of the record of make_odd, and its new value. fault: after the header's checksum was corrected. */
typedef struct change {
    const char *name;
    int at, n;
    uint64_t value;
    record_fault fault, without; /* without: while the checksum is still that of the original */
} change;

#define ALTERED(name, at, n, value, fault) \
    { name, at, n, (uint64_t)(value), fault, RECORD_FAULT_DAMAGED }

static const change changes[] = {
    {"magic", 0, 1, 'R', RECORD_FAULT_DAMAGED, RECORD_FAULT_DAMAGED},
    {"version 0", 8, 4, 0, RECORD_FAULT_VERSION, RECORD_FAULT_VERSION},
    {"version 1", 8, 4, 1, RECORD_FAULT_DAMAGED, RECORD_FAULT_DAMAGED}, /* other sizes */
    {"version 4", 8, 4, 4, RECORD_FAULT_VERSION, RECORD_FAULT_VERSION},
    ALTERED("an unknown flag", 12, 4, 2, RECORD_FAULT_DAMAGED),
    ALTERED("zeros", 28, 4, 1, RECORD_FAULT_DAMAGED),
    ALTERED("a cipher's id", 32, 1, 1, RECORD_FAULT_DAMAGED),
    {"a longer file", 16, 8, UINT64_MAX, RECORD_FAULT_TRUNCATED, RECORD_FAULT_TRUNCATED},
    {"a shorter file", 16, 8, 64, RECORD_FAULT_DAMAGED, RECORD_FAULT_DAMAGED},
    ALTERED("private bytes 0", 24, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("private bytes too many", 24, 4, RECORD_MAX_PRIVATE + 1, RECORD_FAULT_DAMAGED),
    ALTERED("private bytes out of the file", 24, 4, RECORD_MAX_PRIVATE, RECORD_FAULT_DAMAGED),
    ALTERED("private bytes all", 24, 4, UINT32_MAX, RECORD_FAULT_DAMAGED),
    ALTERED("private bytes fewer", 24, 4, RECORD_FIXED_BYTES, RECORD_FAULT_DAMAGED),
    ALTERED("fingerprint", PRIVATE, 1, 0, RECORD_FAULT_MODEL),
    ALTERED("key", PRIVATE + 32, 1, 0, RECORD_FAULT_KEY),
    ALTERED("parent", PRIVATE + 64, 1, 0, RECORD_FAULT_NONE), /* any value is valid */
    ALTERED("cost", PRIVATE + 96, 8, UINT64_MAX, RECORD_FAULT_NONE),
    ALTERED("kind", PRIVATE + 104, 4, RECORD_KIND_COUNT, RECORD_FAULT_DAMAGED),
    ALTERED("kind of a reduced span", PRIVATE + 104, 4, RECORD_REDUCED, RECORD_FAULT_DAMAGED),
    ALTERED("at -1", PRIVATE + 108, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("at 257", PRIVATE + 108, 4, 257, RECORD_FAULT_DAMAGED),
    ALTERED("first slot -1", PRIVATE + 112, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("first slot behind", PRIVATE + 112, 4, 1, RECORD_FAULT_DAMAGED),
    ALTERED("first slot far behind", PRIVATE + 112, 4, INT32_MAX, RECORD_FAULT_DAMAGED),
    ALTERED("tokens -1", PRIVATE + 116, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("tokens fewer", PRIVATE + 116, 4, 129, RECORD_FAULT_DAMAGED),
    ALTERED("tokens more than slots", PRIVATE + 116, 4, 131, RECORD_FAULT_DAMAGED),
    ALTERED("slots 0", PRIVATE + 120, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("slots 257", PRIVATE + 120, 4, 257, RECORD_FAULT_DAMAGED),
    ALTERED("slots in another block", PRIVATE + 120, 4, 193, RECORD_FAULT_DAMAGED),
    ALTERED("position -1", PRIVATE + 124, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("position too far", PRIVATE + 124, 4, INT32_MAX - 255, RECORD_FAULT_DAMAGED),
    ALTERED("readable from", PRIVATE + 128, 4, -1, RECORD_FAULT_NONE),
    ALTERED("format 255", PRIVATE + 132, 4, 255, RECORD_FAULT_FORMAT),
    ALTERED("k8v4, of version 0.2.0", PRIVATE + 132, 4, 3, RECORD_FAULT_FORMAT),
    ALTERED("fp8, of version 0.2.0", PRIVATE + 132, 4, 7, RECORD_FAULT_FORMAT),
    ALTERED("f16 with layers in f16", PRIVATE + 132, 4, RECORD_MIXES, RECORD_FAULT_FORMAT),
    ALTERED("int8 of an odd number of dimensions", PRIVATE + 132, 4, 2, RECORD_FAULT_DAMAGED),
    ALTERED("format f32", PRIVATE + 132, 4, 1, RECORD_FAULT_DAMAGED), /* other sizes */
    ALTERED("layers 0", PRIVATE + 136, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("layers 4097", PRIVATE + 136, 4, 4097, RECORD_FAULT_DAMAGED),
    ALTERED("layers 1", PRIVATE + 136, 4, 1, RECORD_FAULT_DAMAGED),
    ALTERED("heads 0", PRIVATE + 140, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("heads 65537", PRIVATE + 140, 4, 65537, RECORD_FAULT_DAMAGED),
    ALTERED("heads 4", PRIVATE + 140, 4, 4, RECORD_FAULT_DAMAGED),
    ALTERED("heads 65536", PRIVATE + 140, 4, 65536, RECORD_FAULT_DAMAGED),
    ALTERED("key dim 0", PRIVATE + 144, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("key dim 65537", PRIVATE + 144, 4, 65537, RECORD_FAULT_DAMAGED),
    ALTERED("value dim 0", PRIVATE + 148, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("value dim -1", PRIVATE + 148, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("both dims exchanged", PRIVATE + 144, 8, UINT64_C(5) << 32 | 3, RECORD_FAULT_FORMAT), /* the same sizes */
    ALTERED("label 256", PRIVATE + 152, 4, 256, RECORD_FAULT_DAMAGED),
    ALTERED("label all", PRIVATE + 152, 4, UINT32_MAX, RECORD_FAULT_DAMAGED),
    ALTERED("label shorter", PRIVATE + 152, 4, 1, RECORD_FAULT_DAMAGED),
    ALTERED("tenant", PRIVATE + 156, 4, UINT32_MAX, RECORD_FAULT_NONE),
    ALTERED("a derived key", PRIVATE + 160, 1, 1, RECORD_FAULT_CIPHER),
    ALTERED("a signature", PRIVATE + 239, 1, 1, RECORD_FAULT_CIPHER),
    ALTERED("layer 0 begins elsewhere", LAYERS, 8, 0, RECORD_FAULT_DAMAGED),
    ALTERED("layer 1 begins elsewhere", LAYERS + RECORD_LAYER_BYTES, 8, UINT64_MAX, RECORD_FAULT_DAMAGED),
    ALTERED("a window", LAYERS + 8, 4, 7, RECORD_FAULT_FORMAT),
    ALTERED("another window", LAYERS + RECORD_LAYER_BYTES + 8, 4, 41, RECORD_FAULT_FORMAT),
    ALTERED("no window, and blocks are missing", LAYERS + RECORD_LAYER_BYTES + 8, 4, 0, RECORD_FAULT_DAMAGED),
    ALTERED("window -1", LAYERS + 8, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("kept too few", LAYERS + 12, 1, 3, RECORD_FAULT_DAMAGED),
    ALTERED("kept too many", LAYERS + RECORD_LAYER_BYTES + 12, 1, 7, RECORD_FAULT_DAMAGED),
    ALTERED("kept what is not", LAYERS + 12, 1, 11, RECORD_FAULT_DAMAGED),
    ALTERED("kept a fifth", LAYERS + 12, 1, 19, RECORD_FAULT_DAMAGED),
    ALTERED("f16 in a layer of f16", LAYERS + 13, 1, 1, RECORD_FAULT_DAMAGED),
    ALTERED("zeros of a layer", LAYERS + 14, 1, 1, RECORD_FAULT_DAMAGED),
    ALTERED("checksum of layer 0", LAYERS + 16, 1, 0, RECORD_FAULT_DAMAGED),
    ALTERED("checksum of layer 1", LAYERS + RECORD_LAYER_BYTES + 31, 1, 0, RECORD_FAULT_DAMAGED),
    ALTERED("token", TOKENS, 4, 5, RECORD_FAULT_NONE),
    ALTERED("token -1", TOKENS, 4, -1, RECORD_FAULT_DAMAGED),
    ALTERED("label with a zero", TOKENS + 130 * 4 + 3, 1, 0, RECORD_FAULT_DAMAGED),
};

static void put(uint8_t *at, uint64_t v, int n) {
    for (int i = 0; i < n; i++) at[i] = (uint8_t)(v >> (8 * i));
}

static void expect_fault(const change *c, const char *how, record_fault fault, record_fault expected) {
    if (fault != expected)
        fail_msg("%s, %s: %s instead of %s", c->name, how, record_fault_name(fault), record_fault_name(expected));
}

/* Two blocks and two slots in layer 0, two slots in layer 1. */
static forged make_odd(record_world *w) {
    record_plan plan = {.shape = &odd, .n_slots = 130, .from = 200, .seed = 2};
    record_world_open(w, &plan);
    assert_int_equal(kv_span_kept(w->span, 1), 4);
    assert_int_equal(record_write(w->path, &w->format, &w->record, w->span, NULL, NULL, NULL), RP_OK);
    return forge_load(w->path);
}

static void every_field_is_checked(void **state) {
    (void)state;
    record_world w;
    forged whole = make_odd(&w), f = {malloc(whole.n), whole.n};
    assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_NONE);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const change *c = &changes[i];
        memcpy(f.bytes, whole.bytes, f.n);
        put(f.bytes + c->at, c->value, c->n);
        assert_memory_not_equal(f.bytes, whole.bytes, f.n);
        expect_fault(c, "as it is", look_at(&w, f.bytes, f.n, NULL), c->without);
        forge_header_checksum(f.bytes, f.n);
        expect_fault(c, "with its checksum", look_at(&w, f.bytes, f.n, NULL), c->fault);
    }
    forge_free(&f);
    forge_free(&whole);
    record_world_close(&w);
}

/* The checks of the private header do not depend on encryption: a change before encryption is detected after
 * decryption. */
static void every_private_field_is_checked_when_decrypted(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    record_world w;
    forged whole = make_odd(&w), f = {malloc(whole.n), whole.n};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const change *c = &changes[i];
        if (c->at < PRIVATE || c->at == LAYERS || strncmp(c->name, "kept", 4) == 0) continue; /* forging moves layers */
        memcpy(f.bytes, whole.bytes, f.n);
        put(f.bytes + c->at, c->value, c->n);
        forged e = forge_encrypt(f.bytes, f.n, cipher);
        if (e.n) expect_fault(c, "encrypted", look_at(&w, e.bytes, e.n, cipher), c->fault);
        forge_free(&e);
    }
    forged e = forge_encrypt(whole.bytes, whole.n, cipher);
    assert_int_equal(look_at(&w, e.bytes, e.n, cipher), RECORD_FAULT_NONE);
    e.bytes[12] = 0; /* the flag for encryption is cleared */
    forge_header_checksum(e.bytes, e.n);
    assert_int_not_equal(look_at(&w, e.bytes, e.n, cipher), RECORD_FAULT_NONE);
    assert_int_not_equal(look_at(&w, e.bytes, e.n, NULL), RECORD_FAULT_NONE);
    forge_free(&e);
    forge_free(&f);
    forge_free(&whole);
    record_world_close(&w);
    record_cipher_close(cipher);
}

/* A corrected checksum, which anybody can compute, does not help: the stream authenticates the public header. */
static void the_public_header_is_bound_to_the_stream(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    record_world w;
    record_plan plan = {.shape = &small, .n_slots = 3};
    record_world_open(&w, &plan);
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, cipher, NULL, NULL), RP_OK);
    forged f = forge_load(w.path);
    size_t longer = f.n + 273; /* by a block */
    f.bytes = realloc(f.bytes, longer);
    memset(f.bytes + f.n, 0, longer - f.n);
    put(f.bytes + 16, longer, 8);
    forge_header_checksum(f.bytes, longer);
    assert_int_equal(look_at(&w, f.bytes, longer, cipher), RECORD_FAULT_DAMAGED);
    put(f.bytes + 16, f.n, 8);
    forge_header_checksum(f.bytes, f.n);
    assert_int_equal(look_at(&w, f.bytes, f.n, cipher), RECORD_FAULT_NONE);
    forge_free(&f);
    record_world_close(&w);
    record_cipher_close(cipher);
}

/* ---- bytes ---- */

static record_world world_of(const kv_shape *shape, int32_t n_slots, const record_cipher *cipher) {
    record_plan plan = {.shape = shape, .n_slots = n_slots, .seed = 8};
    record_world w;
    record_world_open(&w, &plan);
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, cipher, NULL, NULL), RP_OK);
    return w;
}

static void every_flipped_byte_is_found(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    for (int k = 0; k < 2; k++) {
        const record_cipher *c = k ? cipher : NULL;
        record_world w = world_of(&small, 3, c);
        forged f = forge_load(w.path);
        for (size_t i = 0; i < f.n; i++)
            for (int bit = 0; bit < 8; bit += 7) {
                f.bytes[i] ^= (uint8_t)(1 << bit);
                record_fault fault = look_at(&w, f.bytes, f.n, c);
                if (fault == RECORD_FAULT_NONE) fail_msg("byte %zu, bit %d", i, bit);
                if (i >= RECORD_PUBLIC_BYTES) assert_int_equal(fault, RECORD_FAULT_DAMAGED);
                f.bytes[i] ^= (uint8_t)(1 << bit);
            }
        assert_int_equal(look_at(&w, f.bytes, f.n, c), RECORD_FAULT_NONE);
        forge_free(&f);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
}

static void every_truncation_is_found(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    for (int k = 0; k < 4; k++) {
        const record_cipher *c = k & 1 ? cipher : NULL;
        record_world w = k & 2 ? world_of(&large, 256, c) : world_of(&small, 3, c);
        forged f = forge_load(w.path);
        forge_save(w.other, f.bytes, f.n);
        for (size_t n = f.n; n-- > 0;) {
            if (k & 2 && n % 512) continue;
            assert_int_equal(truncate(w.other, (off_t)n), 0);
            assert_int_equal(look(w.other, &w, c), RECORD_FAULT_TRUNCATED);
        }
        forge_free(&f);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
}

static void appended_bytes_are_found(void **state) {
    (void)state;
    record_world w = world_of(&small, 3, NULL);
    forged f = forge_load(w.path);
    f.bytes = realloc(f.bytes, f.n + 5000);
    memset(f.bytes + f.n, 0, 5000);
    for (size_t more = 1; more < 5000; more = more * 3 + 1)
        assert_int_equal(look_at(&w, f.bytes, f.n + more, NULL), RECORD_FAULT_DAMAGED);
    forge_free(&f);
    record_world_close(&w);
}

/* ---- other records ---- */

/* Regression: the version's constant had the fault's name, and every record of another version was counted as missing:
 * fuzz/corpus/record/another-version. */
static void another_version_is_named_so(void **state) {
    (void)state;
    record_world w = world_of(&small, 3, NULL);
    rp_error err;
    forged f = forge_load(w.path);
    f.bytes[8] = 9;
    forge_save(w.other, f.bytes, f.n);
    record_fault fault = record_verify(w.other, NULL, NULL, &err);
    assert_string_equal(record_fault_name(fault), "version");
    assert_int_equal(err.code, RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "9, but this program reads 1 to 3"));
    forge_free(&f);
    record_world_close(&w);
}

/* Layers in another order, or from another record, have valid checksums, but not in this place. */
static void exchanged_states_are_found(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    for (int k = 0; k < 2; k++) {
        const record_cipher *c = k ? cipher : NULL;
        record_world w = world_of(&large, 256, c);
        forged f = forge_load(w.path);
        size_t layer = (f.n - (size_t)record_kv_at(
                                  c, record_private_bytes(RECORD_FILE_VERSION, 3, 0, 256, strlen(w.record.label)))) /
                       3;
        uint8_t *last = f.bytes + f.n - layer, *held = malloc(layer);
        memcpy(held, last, layer);
        memcpy(last, last - layer, layer);
        memcpy(last - layer, held, layer);
        assert_int_equal(look_at(&w, f.bytes, f.n, c), RECORD_FAULT_DAMAGED);
        free(held);
        forge_free(&f);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
}

static void what_is_not_expected_is_refused(void **state) {
    (void)state;
    record_world w = world_of(&odd, 100, NULL), good = w;
    const base_key nothing = {{0}};
    w.format.fingerprint = nothing;
    assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_MODEL);
    w = good;
    w.record.key = nothing;
    assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_KEY);
    for (int i = 0; i < 8; i++) {
        w = good;
        kv_shape *s = &w.format.shape;
        kv_layer_shape layers[3] = {odd.layers[0], odd.layers[1], odd.layers[1]}, *last = &layers[1];
        s->layers = layers;
        if (i == 0) s->n_layers++;
        else if (i == 1) layers[0].n_heads++, last->n_heads++;
        else if (i == 2) last->key_dim++;
        else if (i == 3) layers[0].value_dim++;
        else if (i == 4) s->format = RP_KV_F32;
        else if (i == 5) last->window = 41;
        else if (i == 6) last->window = 0;
        else last->kind = KV_LATENT;
        assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_FORMAT);
    }
    assert_int_equal(look("/nowhere/at/all", &good, NULL), RECORD_FAULT_GONE);
    assert_int_equal(look("/etc/passwd/all", &good, NULL), RECORD_FAULT_GONE);
    assert_int_equal(look(good.folder, &good, NULL), RECORD_FAULT_IO);
    assert_int_equal(look("/dev/zero", &good, NULL), RECORD_FAULT_IO);
    record_world_close(&good);
}

/* A record has the engine's layers in f16. */
static void layers_in_f16_are_compared(void **state) {
    (void)state;
    static const bool others[][2] = {{false, false}, {true, true}, {true, false}};
    record_world w = world_of(&mixed, 100, NULL);
    assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_NONE);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        record_reader *r;
        rp_error err;
        const kv_layer_shape layers[] = {KV_ROW(3, 4, 2, 0, others[i][0]), KV_ROW(3, 4, 2, 0, others[i][1])};
        w.format.shape.layers = layers;
        assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_FORMAT);
        assert_int_equal(record_reader_open(&r, w.path, &w.format, NULL, NULL, &err), RECORD_FAULT_FORMAT);
        assert_non_null(strstr(err.message, i > 0 ? "layer 0 is in int8" : "layer 1 is in f16"));
    }
    record_world_close(&w);
    const kv_shape plain = {KV_SAME(2, 3, 4, 2), .format = RP_KV_INT8};
    w = world_of(&plain, 100, NULL);
    assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_NONE);
    w.format.shape.layers = mixed.layers;
    assert_int_equal(look(w.path, &w, NULL), RECORD_FAULT_FORMAT);
    record_world_close(&w);
}

static void formats_of_layers_are_checked(void **state) {
    (void)state;
    record_world w = world_of(&mixed, 100, NULL);
    const size_t layer = RECORD_PUBLIC_BYTES + RECORD_FIXED_BYTES + 13;
    const struct {
        const char *name;
        size_t at;
        uint8_t value;
        record_fault fault;
    } flips[] = {
        {"a layer, but no mixture", RECORD_PUBLIC_BYTES + 132, RP_KV_INT8, RECORD_FAULT_DAMAGED},
        {"a mixture of f32", RECORD_PUBLIC_BYTES + 132, RP_KV_F32 + RECORD_MIXES, RECORD_FAULT_FORMAT},
        {"no layer", layer + RECORD_LAYER_BYTES, 0, RECORD_FAULT_DAMAGED},
        {"both layers", layer, 1, RECORD_FAULT_DAMAGED},
        {"another format", layer + RECORD_LAYER_BYTES, 2, RECORD_FAULT_DAMAGED},
    };
    forged f = forge_load(w.path);
    assert_int_equal(f.bytes[RECORD_PUBLIC_BYTES + 132], RP_KV_INT8 + RECORD_MIXES);
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        const uint8_t before = f.bytes[flips[i].at];
        f.bytes[flips[i].at] = flips[i].value;
        forge_header_checksum(f.bytes, f.n);
        if (look_at(&w, f.bytes, f.n, NULL) != flips[i].fault) fail_msg("%s", flips[i].name);
        f.bytes[flips[i].at] = before;
    }
    forge_free(&f);
    record_world_close(&w);
}

/* ---- reduced spans ---- */

/* Part 1 of three: slots of its heads: 256, 88, 82; 0, 101, 256. */
static const kv_shape pair = {KV_ROWS(2, KV_ROW(3, 6, 2, 0, false), KV_ROW(3, 6, 2, 40, true)), .format = RP_KV_INT8};
static const record_plan reduced = {
    .shape = &pair, .n_slots = 700, .first_pos = 40, .seed = 5, .is_reduced = true, .part = 1};

enum { REDUCED = LAYERS + 2 * RECORD_LAYER_BYTES,
       SLOTS = REDUCED + RECORD_REDUCED_BYTES };

static forged make_reduced(record_world *w, const record_plan *plan, const record_cipher *cipher) {
    record_world_open(w, plan);
    assert_int_equal(record_write(w->path, &w->format, &w->record, w->span, cipher, NULL, NULL), RP_OK);
    return forge_load(w->path);
}

/* As look, and read into a span: both agree. */
static record_fault look_and_read(const record_world *w, const uint8_t *bytes, size_t n, const record_cipher *cipher) {
    record_loaded l;
    rp_error err = {0};
    const record_fault fault = look_at(w, bytes, n, cipher),
                       loaded = record_load(&l, &(record_place){.path = w->other}, NULL, cipher, &err);
    assert_int_equal(loaded == RECORD_FAULT_NONE, err.code == RP_OK);
    if (loaded == RECORD_FAULT_NONE) record_loaded_free(&l);
    if (fault != RECORD_FAULT_MODEL && fault != RECORD_FAULT_ARITHMETIC && fault != RECORD_FAULT_FORMAT &&
        fault != RECORD_FAULT_KEY)
        assert_int_equal(loaded, fault);
    return fault;
}

static void numbers_of_reduced_spans_are_checked(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    record_world w;
    forged whole = make_reduced(&w, &reduced, NULL), f = {malloc(whole.n), whole.n};
    const kv_span_form *form = &w.record.form;
    int32_t empty = -1, some = -1; /* heads */
    for (int32_t i = 0; i < 6; i++) *(form->slots[i] == 0 ? &empty : &some) = i;
    assert_true(form->n_parts == 3 && empty >= 0 && some >= 0 && form->n_tokens < 257);
    const change alterations[] = {
        ALTERED("a module", PRIVATE + 104, 4, RECORD_MODULE, RECORD_FAULT_DAMAGED),
        ALTERED("a text", PRIVATE + 104, 4, RECORD_TEXT, RECORD_FAULT_DAMAGED),
        ALTERED("version 1", 8, 4, 1, RECORD_FAULT_DAMAGED),
        ALTERED("part -1", PRIVATE + 108, 4, -1, RECORD_FAULT_DAMAGED),
        ALTERED("part 0", PRIVATE + 108, 4, 0, RECORD_FAULT_NONE),
        ALTERED("part 3", PRIVATE + 108, 4, 3, RECORD_FAULT_DAMAGED),
        ALTERED("a first slot", PRIVATE + 112, 4, 1, RECORD_FAULT_DAMAGED),
        ALTERED("a token", PRIVATE + 116, 4, 1, RECORD_FAULT_DAMAGED),
        ALTERED("fewer slots", PRIVATE + 120, 4, form->n_tokens - 1, RECORD_FAULT_DAMAGED),
        ALTERED("257 slots", PRIVATE + 120, 4, 257, RECORD_FAULT_DAMAGED),
        ALTERED("position -1", PRIVATE + 124, 4, -1, RECORD_FAULT_DAMAGED),
        ALTERED("a later position", PRIVATE + 124, 4, form->end - form->n_tokens + 1, RECORD_FAULT_DAMAGED),
        ALTERED("65536 heads", PRIVATE + 140, 4, 65536, RECORD_FAULT_DAMAGED),
        ALTERED("another head", PRIVATE + 140, 4, 4, RECORD_FAULT_DAMAGED),
        ALTERED("no blocks", LAYERS + 12, 1, 0, RECORD_FAULT_DAMAGED),
        ALTERED("a fifth block", LAYERS + 12, 1, 31, RECORD_FAULT_DAMAGED),
        ALTERED("an earlier end", REDUCED, 4, form->first_pos + form->n_tokens - 1, RECORD_FAULT_DAMAGED),
        ALTERED("an end before a position", REDUCED, 4, form->end - 1,
                RECORD_FAULT_DAMAGED), /* when the layer is read */
        ALTERED("a later end", REDUCED, 4, form->end + 1, RECORD_FAULT_NONE),
        ALTERED("an end with wider positions", REDUCED, 4, form->first_pos + 65537, RECORD_FAULT_DAMAGED),
        ALTERED("an end too far", REDUCED, 4, form->first_pos + KV_SELECTION_MAX_SLOTS + 1, RECORD_FAULT_DAMAGED),
        ALTERED("end -1", REDUCED, 4, -1, RECORD_FAULT_DAMAGED),
        ALTERED("no parts", REDUCED + 4, 4, 0, RECORD_FAULT_DAMAGED),
        ALTERED("one part", REDUCED + 4, 4, 1, RECORD_FAULT_DAMAGED),
        ALTERED("two parts", REDUCED + 4, 4, 2, RECORD_FAULT_NONE),
        ALTERED("too many parts", REDUCED + 4, 4, KV_REDUCED_MAX_PARTS + 1, RECORD_FAULT_DAMAGED),
        ALTERED("a slot more", SLOTS + 2 * empty, 2, 1, RECORD_FAULT_DAMAGED),
        ALTERED("a slot less", SLOTS + 2 * some, 2, form->slots[some] - 1, RECORD_FAULT_DAMAGED),
        ALTERED("65535 slots", SLOTS + 2 * some, 2, 65535, RECORD_FAULT_DAMAGED),
        ALTERED("label 0", SLOTS + 12, 1, 0, RECORD_FAULT_DAMAGED),
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(alterations); i++) {
        const change *c = &alterations[i];
        memcpy(f.bytes, whole.bytes, f.n);
        put(f.bytes + c->at, c->value, c->n);
        assert_memory_not_equal(f.bytes, whole.bytes, f.n);
        expect_fault(c, "as it is", look_and_read(&w, f.bytes, f.n, NULL), c->without);
        forge_header_checksum(f.bytes, f.n);
        expect_fault(c, "with its checksum", look_and_read(&w, f.bytes, f.n, NULL), c->fault);
        if (c->at < PRIVATE || c->fault == RECORD_FAULT_NONE) continue;
        forged e = forge_encrypt(f.bytes, f.n, cipher);
        if (e.n && c->at != LAYERS) expect_fault(c, "encrypted", look_and_read(&w, e.bytes, e.n, cipher), c->fault);
        forge_free(&e);
    }
    forged e = forge_encrypt(whole.bytes, whole.n, cipher);
    assert_int_equal(look_and_read(&w, e.bytes, e.n, cipher), RECORD_FAULT_NONE);
    forge_free(&e);
    forge_free(&f);
    forge_free(&whole);
    record_world_close(&w);
    record_cipher_close(cipher);
}

/* Whatever a header of valid checksum says, a record is refused, or read as a whole. */
static void any_byte_of_a_reduced_header_may_be_another(void **state) {
    (void)state;
    record_world w;
    forged f = make_reduced(&w, &reduced, NULL);
    const size_t end = SLOTS + 12 + strlen(w.record.label);
    int n_refused = 0;
    for (size_t i = RECORD_MAGIC_BYTES; i < end; i++) {
        static const uint8_t masks[] = {1, 2, 0x80, 0xff};
        if (i >= RECORD_BOUND_BYTES && i < RECORD_PUBLIC_BYTES) continue; /* the checksum itself */
        for (size_t k = 0; k < sizeof masks; k++) {
            f.bytes[i] ^= masks[k];
            forge_header_checksum(f.bytes, f.n);
            n_refused += look_and_read(&w, f.bytes, f.n, NULL) != RECORD_FAULT_NONE;
            f.bytes[i] ^= masks[k];
        }
    }
    forge_header_checksum(f.bytes, f.n);
    assert_int_equal(look_and_read(&w, f.bytes, f.n, NULL), RECORD_FAULT_NONE);
    assert_true(n_refused > 800);
    forge_free(&f);
    record_world_close(&w);
}

static void positions_are_checked(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    record_world w;
    forged f = make_reduced(&w, &reduced, NULL);
    uint64_t private_bytes, kv_at;
    assert_true(forge_places(f.bytes, f.n, &private_bytes, &kv_at));
    const kv_span_form *form = &w.record.form;
    const int32_t range = form->end - form->first_pos;
    uint8_t *at = f.bytes + kv_at; /* of layer 0: 2 bytes each, head by head */
    int n_checked = 0;
    for (int32_t head = 0; head < 3; at += 2 * form->slots[head++])
        for (int32_t i = 0; i < form->slots[head]; i++) {
            const uint8_t *before = at + 2 * (i - 1), *after = at + 2 * (i + 1);
            const int32_t last = i ? before[0] | before[1] << 8 : -1,
                          next = i + 1 < form->slots[head] ? after[0] | after[1] << 8 : range;
            const int32_t bad[] = {last, next, range, 65535};
            const uint8_t held[] = {at[2 * i], at[2 * i + 1]};
            for (size_t k = 0; k < BASE_ARRAY_LEN(bad) && i % 50 < 2; k++) {
                if (bad[k] < 0) continue;
                put(at + 2 * i, (uint64_t)bad[k], 2);
                forge_layer_checksums(f.bytes, f.n);
                forge_header_checksum(f.bytes, f.n);
                assert_int_equal(look_and_read(&w, f.bytes, f.n, NULL), RECORD_FAULT_DAMAGED);
                forged e = forge_encrypt(f.bytes, f.n, cipher);
                assert_int_equal(look_and_read(&w, e.bytes, e.n, cipher), RECORD_FAULT_DAMAGED);
                forge_free(&e);
                n_checked++;
            }
            memcpy(at + 2 * i, held, 2);
        }
    assert_true(n_checked > 20);
    forge_layer_checksums(f.bytes, f.n);
    forge_header_checksum(f.bytes, f.n);
    assert_int_equal(look_and_read(&w, f.bytes, f.n, NULL), RECORD_FAULT_NONE);
    forge_free(&f);
    record_world_close(&w);
    record_cipher_close(cipher);
}

static void flipped_bytes_of_reduced_spans_are_found(void **state) {
    (void)state;
    const kv_shape tiny = {KV_SAME(2, 1, 2, 2), .format = RP_KV_F16};
    record_cipher *cipher = forge_cipher(7);
    for (int k = 0; k < 2; k++) {
        const record_cipher *c = k ? cipher : NULL;
        record_world w;
        forged f = make_reduced(
            &w, &(record_plan){.shape = &tiny, .n_slots = 20, .seed = 4, .is_reduced = true, .encoded = RP_KV_KIVI4},
            c);
        for (size_t i = 0; i < f.n; i++) {
            f.bytes[i] ^= 0x81;
            if (look_and_read(&w, f.bytes, f.n, c) == RECORD_FAULT_NONE) fail_msg("byte %zu", i);
            f.bytes[i] ^= 0x81;
        }
        forge_save(w.other, f.bytes, f.n);
        for (size_t n = f.n; n-- > 0;) {
            assert_int_equal(truncate(w.other, (off_t)n), 0);
            assert_int_equal(look(w.other, &w, c), RECORD_FAULT_TRUNCATED);
        }
        assert_int_equal(look_and_read(&w, f.bytes, f.n, c), RECORD_FAULT_NONE);
        forge_free(&f);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(every_private_field_is_checked_when_decrypted),
        cmocka_unit_test(the_public_header_is_bound_to_the_stream),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(appended_bytes_are_found),
        cmocka_unit_test(another_version_is_named_so),
        cmocka_unit_test(exchanged_states_are_found),
        cmocka_unit_test(what_is_not_expected_is_refused),
        cmocka_unit_test(layers_in_f16_are_compared),
        cmocka_unit_test(formats_of_layers_are_checked),
        cmocka_unit_test(numbers_of_reduced_spans_are_checked),
        cmocka_unit_test(any_byte_of_a_reduced_header_may_be_another),
        cmocka_unit_test(positions_are_checked),
        cmocka_unit_test(flipped_bytes_of_reduced_spans_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
