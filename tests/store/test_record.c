/* SPDX-License-Identifier: Apache-2.0 */
/* test_record.c: spans to records and back: every shape, plain and encrypted; keys of ciphers; records of version 1. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "kv/host_memory.h"
#include "store/record/record_header.h"
#include "store/record/record_load.h"
#include "support/kv_shapes.h"
#include "support/record_forge.h"
#include "support/seed.h"
#include "support/tiny_random.h"

/* Seven layers with windows; some of them in f16 if is_mixed. */
#define SEVEN(heads, keys, values, is_mixed) \
    KV_ROWS(7, KV_ROW(heads, keys, values, 0, false), KV_ROW(heads, keys, values, 40, is_mixed), \
            KV_ROW(heads, keys, values, 100, false), KV_ROW(heads, keys, values, 0, is_mixed), \
            KV_ROW(heads, keys, values, 64, is_mixed), KV_ROW(heads, keys, values, 130, false), \
            KV_ROW(heads, keys, values, 1, false))

/* Layers of several sizes and kinds: records of version 3. */
static const kv_layer_shape alternating[] = {KV_ROW(4, 16, 16, 70, false), KV_ROW(2, 32, 32, 0, false),
                                             KV_ROW(4, 16, 16, 0, true)};
static const kv_layer_shape latent[] = {{.kind = KV_LATENT, .n_heads = 1, .key_dim = 40, .value_dim = 32},
                                        KV_ROW(2, 10, 6, 0, false)};
static const kv_layer_shape hybrid[] = {
    {.kind = KV_STATE, .state_bytes = 5000}, KV_ROW(2, 16, 16, 0, false), {.kind = KV_STATE, .state_bytes = 7}};

static const kv_shape shapes[] = {
    {KV_SAME(1, 1, 1, 1), .format = RP_KV_F16},
    {KV_SAME(3, 2, 8, 8), .format = RP_KV_F32},
    {KV_SAME(2, 3, 5, 3), .format = RP_KV_F16},
    {SEVEN(2, 3, 7, false), .format = RP_KV_F16},
    {KV_ROWS(2, KV_ROW(1, 4, 1, 40, false), KV_ROW(1, 4, 1, 100, false)),
     .format = RP_KV_F32}, /* every layer has a window */
    {SEVEN(3, 6, 2, false), .format = RP_KV_INT8},
    {SEVEN(3, 6, 2, true), .format = RP_KV_INT8},
    {KV_ROWS(3, KV_ROW(1, 8, 8, 0, false), KV_ROW(1, 8, 8, 0, true), KV_ROW(1, 8, 8, 0, false)), .format = RP_KV_INT8},
    {.n_layers = 3, .layers = alternating, .format = RP_KV_INT8},
    {.n_layers = 2, .layers = latent, .format = RP_KV_F16},
    {.n_layers = 3, .layers = hybrid, .format = RP_KV_F16},
};
static const int32_t sizes[] = {1, 63, 64, 65, 130, 255, 256};

static void expect_record(const record *a, const record *b) {
    assert_true(base_key_equal(&a->key, &b->key) && base_key_equal(&a->parent, &b->parent));
    assert_true(a->kind == b->kind && a->at == b->at && a->first_slot == b->first_slot && a->cost_us == b->cost_us);
    assert_string_equal(a->label, b->label);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
}

/* Reads a record into a span of a pool of its own, and compares. */
static void expect_read(const record_world *w, const char *path, const record_cipher *cipher) {
    record_reader *r;
    kv_pool *pool;
    kv_span *copy;
    rp_error err = {0};
    assert_int_equal(kv_pool_new(&pool, &w->format.shape, UINT64_C(1) << 30, NULL, &err), RP_OK);
    assert_int_equal(record_reader_open(&r, path, &w->format, &w->record.key, cipher, &err), RECORD_FAULT_NONE);
    expect_record(record_reader_record(r), &w->record);
    assert_true(base_key_equal(&record_reader_format(r)->fingerprint, &w->format.fingerprint));
    if (path == w->path)
        assert_int_equal(record_reader_sizes(r).bytes, record_file_bytes(&w->format, &w->record, cipher));
    assert_int_equal(kv_span_restore(&copy, pool, &record_reader_record(r)->form, &w->record.key, &err), RP_OK);
    for (int32_t i = 0; i < w->format.shape.n_layers; i++) {
        assert_int_equal(kv_span_layers_ready(copy), i);
        assert_int_equal(record_read_layer(r, i, copy, &err), RECORD_FAULT_NONE);
        kv_span_set_ready(copy, i + 1);
    }
    record_reader_close(r);
    assert_true(forge_spans_equal(&w->format.shape, w->span, copy));
    kv_span_unref(copy);
    kv_pool_free(pool);
    assert_int_equal(record_verify(path, NULL, cipher, &err), RECORD_FAULT_NONE);
    assert_int_equal(record_verify(path, &w->format, cipher, &err), RECORD_FAULT_NONE);
    assert_int_equal(err.code, RP_OK);
}

static void write_and_read(const record_plan *plan, const record_cipher *cipher) {
    record_world w;
    rp_error err = {0};
    uint64_t on_disk = 0;
    int n_temporary;
    record_world_open(&w, plan);
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, cipher, &on_disk, &err), RP_OK);
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, cipher, NULL, &err),
                     RP_OK); /* again, over it */
    assert_int_equal(record_world_files(&w, &n_temporary), 1);
    assert_int_equal(n_temporary, 0);
    struct stat st;
    assert_int_equal(stat(w.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(on_disk, st.st_blocks * 512);
    expect_read(&w, w.path, cipher);
    record_world_close(&w);
}

static void every_shape_comes_back(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    uint64_t seed = 0;
    assert_int_equal(record_version_of(&shapes[sizeof shapes / sizeof *shapes - 1]), 3);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            record_plan plan = {
                .shape = &shapes[i], .n_slots = sizes[j], .first_pos = (int32_t)seed * 100, .seed = seed, .junk = 99};
            seed++;
            plan.n_extra = j == 2 || j == 3 ? 70 : 0; /* a block after the last token */
            if (kv_shape_has_windows(&shapes[i])) plan.from = plan.first_pos + plan.n_slots + (int32_t)j * 20;
            write_and_read(&plan, NULL);
            write_and_read(&plan, cipher);
        }
    record_cipher_close(cipher);
}

/* ---- states of recurrent layers ---- */

typedef struct states_world {
    char path[64];
    record_format format;
    record record;
    kv_pool *pool;
    kv_span *span;
} states_world;

static void put_random_states(kv_span *s, uint64_t seed) {
    tiny_random r = {seed};
    uint8_t bytes[5000];
    for (int32_t l = 0; l < 3; l++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)tiny_random_u64(&r);
        if (hybrid[l].state_bytes) kv_span_put_state(s, l, bytes);
    }
}

static void open_states(states_world *w) {
    *w = (states_world){.path = "/tmp/reprise-states-XXXXXX",
                        .format.shape = {.n_layers = 3, .layers = hybrid, .format = RP_KV_F16}};
    const int fd = mkstemp(w->path);
    assert_true(fd >= 0);
    close(fd);
    w->record = (record){.key = {{3}}, .parent = {{4}}, .kind = RECORD_STATES, .at = 77, .label = "", .cost_us = 12};
    assert_int_equal(kv_pool_new(&w->pool, &w->format.shape, 1 << 20, NULL, NULL), RP_OK);
    assert_int_equal(kv_span_new_states(&w->span, w->pool, 1077, NULL), RP_OK);
    put_random_states(w->span, 1);
    kv_span_seal(w->span, &w->record.key);
}

static void close_states(states_world *w) {
    unlink(w->path);
    kv_span_unref(w->span);
    kv_pool_free(w->pool);
}

static void expect_same_states(const kv_span *a, const kv_span *b) {
    uint8_t x[5000], y[5000];
    for (int32_t l = 0; l < 3; l += 2) {
        kv_span_get_state(a, l, x);
        kv_span_get_state(b, l, y);
        assert_memory_equal(x, y, hybrid[l].state_bytes);
    }
}

static void states_come_back(void **state) {
    (void)state;
    states_world w;
    record_cipher *cipher = forge_cipher(7);
    open_states(&w);
    for (int is_encrypted = 0; is_encrypted < 2; is_encrypted++) {
        const record_cipher *with = is_encrypted ? cipher : NULL;
        record_reader *r;
        kv_span *copy;
        rp_error err = {0};
        if (record_write(w.path, &w.format, &w.record, w.span, with, NULL, &err)) fail_msg("%s", err.message);
        assert_int_equal(record_verify(w.path, &w.format, with, &err), RECORD_FAULT_NONE);
        assert_int_equal(record_reader_open(&r, w.path, &w.format, &w.record.key, with, &err), RECORD_FAULT_NONE);
        expect_record(record_reader_record(r), &w.record);
        assert_true(record_reader_record(r)->form.is_states && record_reader_record(r)->form.first_pos == 1077);
        assert_int_equal(kv_span_restore(&copy, w.pool, &record_reader_record(r)->form, &w.record.key, &err), RP_OK);
        for (int32_t l = 0; l < 3; l++) {
            assert_int_equal(record_read_layer(r, l, copy, &err), RECORD_FAULT_NONE);
            kv_span_set_ready(copy, l + 1);
        }
        expect_same_states(copy, w.span);
        record_reader_close(r);
        kv_span_unref(copy);
    }
    w.record.kind = RECORD_TEXT; /* not of states */
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, NULL, NULL, NULL), RP_ERR_INVALID);
    close_states(&w);
    record_cipher_close(cipher);
}

static bool is_same_record(const record *a, const record *b) {
    return base_key_equal(&a->key, &b->key) && base_key_equal(&a->parent, &b->parent) && a->at == b->at &&
           a->cost_us == b->cost_us && a->tenant == b->tenant && a->form.first_pos == 1077 &&
           a->form.readable_from == INT32_MIN;
}

/* A byte of a record of version 3 that changes is a fault, or the header says something else: then its checksum is made
   right again. */
static void every_byte_of_states_is_checked(void **state) {
    (void)state;
    states_world w;
    char path[80];
    int n_faults = 0, n_others = 0;
    open_states(&w);
    snprintf(path, sizeof path, "%s.changed", w.path);
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, NULL, NULL, NULL), RP_OK);
    forged f = forge_load(w.path);
    const size_t kv_at = (size_t)record_kv_at(false, record_private_bytes(3, 3, 0, 0, 0));
    for (size_t at = 0; at < f.n;
         at = at + 1 == RECORD_PUBLIC_BYTES + record_private_bytes(3, 3, 0, 0, 0) ? kv_at : at + 1) {
        record_reader *r;
        rp_error err;
        f.bytes[at] ^= 0x81;
        if (at >= RECORD_PUBLIC_BYTES && at < kv_at)
            record_put_checksum(f.bytes + RECORD_BOUND_BYTES, record_header_checksum(f.bytes, kv_at));
        forge_save(path, f.bytes, f.n);
        const bool is_fault = record_verify(path, NULL, NULL, &err) != RECORD_FAULT_NONE;
        n_faults += is_fault;
        if (!is_fault && record_reader_open(&r, path, &w.format, &w.record.key, NULL, &err) == RECORD_FAULT_NONE) {
            if (is_same_record(record_reader_record(r), &w.record) && record_reader_format(r)->arithmetic == 0)
                fail_msg("a change of byte %zu is not seen", at);
            record_reader_close(r);
            n_others++;
        }
        f.bytes[at] ^= 0x81;
        if (at >= RECORD_PUBLIC_BYTES && at < kv_at)
            record_put_checksum(f.bytes + RECORD_BOUND_BYTES, record_header_checksum(f.bytes, kv_at));
    }
    unlink(path);
    printf("%d faults, %d other records\n", n_faults, n_others);
    assert_true(n_faults > 5000);
    forge_free(&f);
    close_states(&w);
}

/* Plain records: whatever unused slots contain. Encrypted ones differ, since their streams start differently. */
static void the_same_states_give_the_same_bytes(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    for (int is_encrypted = 0; is_encrypted < 2; is_encrypted++) {
        record_plan plan = {.shape = &shapes[2], .n_slots = 130, .seed = 4, .junk = 1};
        record_world a, b;
        record_world_open(&a, &plan);
        plan.junk = 2;
        record_world_open(&b, &plan);
        assert_int_equal(record_write(a.path, &a.format, &a.record, a.span, is_encrypted ? cipher : NULL, NULL, NULL),
                         RP_OK);
        assert_int_equal(record_write(b.path, &b.format, &b.record, b.span, is_encrypted ? cipher : NULL, NULL, NULL),
                         RP_OK);
        forged x = forge_load(a.path), y = forge_load(b.path);
        assert_int_equal(x.n, y.n);
        assert_int_equal(memcmp(x.bytes, y.bytes, x.n) == 0, !is_encrypted);
        forge_free(&x);
        forge_free(&y);
        record_world_close(&a);
        record_world_close(&b);
    }
    record_cipher_close(cipher);
}

static bool contains(const forged *f, const void *bytes, size_t n) {
    for (size_t i = 0; i + n <= f->n; i++)
        if (memcmp(f->bytes + i, bytes, n) == 0) return true;
    return false;
}

static void an_encrypted_record_tells_nothing(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7);
    record_plan plan = {.shape = &shapes[1], .n_slots = 100, .seed = 6};
    record_world w;
    record_world_open(&w, &plan);
    const uint8_t *states = kv_span_in_place(w.span, 0, 0);
    for (int is_encrypted = 0; is_encrypted < 2; is_encrypted++) {
        assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, is_encrypted ? cipher : NULL, NULL, NULL),
                         RP_OK);
        forged f = forge_load(w.path);
        assert_int_equal(contains(&f, w.tokens, 16), !is_encrypted);
        assert_int_equal(contains(&f, w.record.label, strlen(w.record.label)), !is_encrypted);
        assert_int_equal(contains(&f, w.record.key.bytes, 16), !is_encrypted);
        assert_int_equal(contains(&f, states, 16), !is_encrypted);
        forge_free(&f);
    }
    record_world_close(&w);
    record_cipher_close(cipher);
}

static void a_cipher_is_all_or_nothing(void **state) {
    (void)state;
    record_cipher *cipher = forge_cipher(7), *other = forge_cipher(8);
    record_plan plan = {.shape = &shapes[1], .n_slots = 100};
    record_world w;
    record_reader *r;
    rp_error err;
    record_world_open(&w, &plan);
    assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, cipher, NULL, NULL), RP_OK);
    assert_int_equal(record_write(w.other, &w.format, &w.record, w.span, NULL, NULL, NULL), RP_OK);
    const record_cipher *ciphers[] = {NULL, cipher, other};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(record_verify(w.path, NULL, ciphers[i], &err),
                         i == 1 ? RECORD_FAULT_NONE : RECORD_FAULT_CIPHER);
        assert_int_equal(record_verify(w.other, NULL, ciphers[i], &err),
                         i == 0 ? RECORD_FAULT_NONE : RECORD_FAULT_CIPHER);
    }
    assert_int_equal(record_reader_open(&r, w.path, &w.format, &w.record.key, other, &err), RECORD_FAULT_CIPHER);
    assert_int_equal(err.code, RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "another key"));
    record_world_close(&w);
    record_cipher_close(cipher);
    record_cipher_close(other);
}

static void expect_key(const char *path, const char *variable, int rc) {
    record_cipher *c;
    rp_error err = {0};
    if (variable) setenv("REPRISE_STORE_KEY", variable, 1);
    assert_int_equal(record_cipher_open(&c, path, &err), rc);
    assert_int_equal(err.code, rc);
    assert_null(strstr(err.message, "0123456789"));
    assert_true(rc == RP_OK || !c);
    record_cipher_close(c);
    unsetenv("REPRISE_STORE_KEY");
}

#define DIGITS "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcde"

static void keys_come_from_files_or_the_environment(void **state) {
    (void)state;
    record_plan plan = {.shape = &shapes[0], .n_slots = 1};
    record_world w;
    record_cipher *a, *b, *none;
    record_world_open(&w, &plan);
    static const struct {
        const char *text;
        int rc;
    } texts[] = {
        {DIGITS "f", RP_OK},
        {DIGITS "f \r\n", RP_OK},
        {DIGITS, RP_ERR_INVALID},
        {DIGITS "f0", RP_ERR_INVALID},
        {DIGITS "g", RP_ERR_INVALID},
        {" " DIGITS "f", RP_ERR_INVALID},
        {"", RP_ERR_INVALID},
        {"\n", RP_ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        forge_save(w.other, (const uint8_t *)texts[i].text, strlen(texts[i].text));
        assert_int_equal(chmod(w.other, 0600), 0);
        expect_key(w.other, NULL, texts[i].rc);
        expect_key(NULL, texts[i].text, texts[i].rc);
    }
    forge_save(w.other, (const uint8_t *)DIGITS, 32); /* raw: any bytes are a valid key */
    expect_key(w.other, NULL, RP_OK);
    expect_key(NULL, "0123456789abcdef0123456789abcdef", RP_ERR_INVALID);
    /* a key that others may read was accepted without a word; a group may read it, as that of a secret in a
       container */
    static const struct {
        mode_t mode;
        int rc;
    } modes[] = {
        {0644, RP_ERR_INVALID},
        {0604, RP_ERR_INVALID},
        {0602, RP_ERR_INVALID},
        {0620, RP_ERR_INVALID},
        {0440, RP_OK},
        {0640, RP_OK},
        {0400, RP_OK},
        {0600, RP_OK},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(w.other, modes[i].mode), 0);
        expect_key(w.other, NULL, modes[i].rc);
    }
    expect_key(w.folder, NULL, RP_ERR_IO);
    expect_key(w.path, NULL, RP_ERR_IO);
    forge_save(w.other, (const uint8_t *)DIGITS DIGITS DIGITS DIGITS DIGITS, 300);
    expect_key(w.other, NULL, RP_ERR_LIMIT);

    assert_int_equal(record_cipher_open(&none, NULL, NULL), RP_OK);
    assert_null(none); /* the variable is not set */
    setenv("REPRISE_STORE_KEY", "0707070707070707070707070707070707070707070707070707070707070707", 1);
    assert_int_equal(record_cipher_open(&a, NULL, NULL), RP_OK);
    unsetenv("REPRISE_STORE_KEY");
    b = forge_cipher(7);
    assert_memory_equal(record_cipher_id(a), record_cipher_id(b), RECORD_CIPHER_ID_BYTES);
    record_cipher_close(a);
    record_cipher_close(b);
    record_world_close(&w);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    char label[300] = "";
    record_plan plan = {.shape = &shapes[0], .n_slots = 10};
    record_world w;
    rp_error err;
    int n_temporary;
    record_world_open(&w, &plan);
    memset(label, 'x', 255);
    const record good = w.record;
    record bad[9];
    for (int i = 0; i < 9; i++) bad[i] = good;
    bad[0].label = label;
    bad[1].n_tokens = 11;
    bad[2].n_tokens = -1;
    bad[3].first_slot = 1;
    bad[4].first_slot = -1;
    bad[5].at = -1;
    bad[6].at = 257;
    bad[7].kind = RECORD_KIND_COUNT;
    bad[8].n_tokens = 0;
    for (int i = 0; i < 9; i++) {
        int rc = i == 0 || i == 8 ? RP_OK : RP_ERR_INVALID;
        assert_int_equal(record_write(w.path, &w.format, &bad[i], w.span, NULL, NULL, &err), rc);
        if (rc) continue;
        w.record = bad[i];
        expect_read(&w, w.path, NULL);
        unlink(w.path);
    }
    label[255] = 'x';
    assert_int_equal(record_write(w.path, &w.format, &bad[0], w.span, NULL, NULL, &err), RP_ERR_INVALID);
    assert_int_equal(record_write("/nowhere/at/all", &w.format, &good, w.span, NULL, NULL, &err), RP_ERR_IO);
    assert_int_equal(record_world_files(&w, &n_temporary), 0);
    record_world_close(&w);
}

/* A record's name may be relative, and its folder the root. */
static void names_may_be_relative(void **state) {
    (void)state;
    char old[4096];
    record_plan plan = {.shape = &shapes[0], .n_slots = 10};
    record_world w;
    record_world_open(&w, &plan);
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(w.folder), 0);
    assert_int_equal(record_write("record.rps", &w.format, &w.record, w.span, NULL, NULL, NULL), RP_OK);
    assert_int_equal(chdir(old), 0);
    expect_read(&w, w.path, NULL);
    record_world_close(&w);
}

/* Files of every version are kept and read; those of the current one are written identically: tests/golden/records. */
static void golden_records_are_read_and_written(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is_encrypted;
        record_plan plan;
    } records[] = {
        {"v1-module", false, {.shape = &shapes[3], .n_slots = 130, .first_pos = 11, .from = 150, .seed = 2}},
        {"v1-text", false, {.shape = &shapes[1], .n_slots = 1, .seed = 3}},
        {"v1-encrypted", true, {.shape = &shapes[3], .n_slots = 130, .first_pos = 11, .from = 150, .seed = 2}},
        {"v2-module", false, {.shape = &shapes[3], .n_slots = 130, .first_pos = 11, .from = 150, .seed = 2}},
        {"v2-text", false, {.shape = &shapes[1], .n_slots = 1, .seed = 3}},
        {"v2-encrypted", true, {.shape = &shapes[3], .n_slots = 130, .first_pos = 11, .from = 150, .seed = 2}},
        {"v2-int8", false, {.shape = &shapes[5], .n_slots = 67, .seed = 4}},
        {"v2-int8-f16-layers", false, {.shape = &shapes[6], .n_slots = 67, .seed = 4}},
        {"v2-reduced",
         false,
         {.shape = &shapes[6], .n_slots = 600, .first_pos = 11, .seed = 5, .is_reduced = true, .part = 1}},
        {"v2-reduced-kivi4",
         false,
         {.shape = &shapes[5], .n_slots = 90, .seed = 6, .is_reduced = true, .encoded = RP_KV_KIVI4}},
    };
    record_cipher *cipher = forge_cipher(7);
    const char *root = getenv("REPRISE_SOURCE_DIR");
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        char path[1024];
        record_world w;
        const record_cipher *c = records[i].is_encrypted ? cipher : NULL;
        snprintf(path, sizeof path, "%s/tests/golden/records/%s.rps", root ? root : ".", records[i].name);
        record_world_open(&w, &records[i].plan);
        assert_int_equal(record_write(w.path, &w.format, &w.record, w.span, c, NULL, NULL), RP_OK);
        forged made = forge_load(w.path);
        const bool is_current = records[i].name[1] == '2';
        if (is_current && getenv("REPRISE_TEST_WRITE_GOLDEN"))
            forge_save(path, made.bytes, made.n); /* for a new version, manually */
        forged golden = forge_load(path);
        expect_read(&w, path, c);
        if (is_current) assert_int_equal(golden.n, made.n);
        if (is_current && !c) assert_memory_equal(golden.bytes, made.bytes, made.n);
        forge_free(&golden);
        forge_free(&made);
        record_world_close(&w);
    }
    record_cipher_close(cipher);
}

/* xxHash's own test vector; the digest of pieces equals that of the whole. */
static void checksums_are_xxh3(void **state) {
    (void)state;
    static uint8_t bytes[1000];
    record_checksum empty = record_checksum_of(NULL, 0);
    assert_true(empty.high == UINT64_C(0x99aa06d3014798d8) && empty.low == UINT64_C(0x6001c324468d497f));
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    record_checksum whole = record_checksum_of(&(struct iovec){bytes, sizeof bytes}, 1);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 37) {
        const struct iovec pieces[] = {{bytes, cut}, {bytes + cut, sizeof bytes - cut}};
        assert_true(record_checksum_equal(record_checksum_of(pieces, 2), whole));
    }
}

static void every_fault_has_a_name(void **state) {
    (void)state;
    for (int i = 0; i < RECORD_FAULT_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(record_fault_name((record_fault)i), record_fault_name((record_fault)j));
    assert_string_equal(record_fault_name(RECORD_FAULT_TRUNCATED), "truncated");
    assert_string_equal(record_fault_name(RECORD_FAULT_VERSION), "version");
    assert_string_equal(record_fault_name(RECORD_FAULT_COUNT), "?");
}

/* ---- spans of other formats than the engine's ---- */

/* A span of random bytes in a format, with blocks that a window freed. */
static kv_span *packed_span(const record_world *w, rp_kv_format format, tiny_random *random) {
    kv_span *s;
    const kv_shape own = kv_shape_in(&w->format.shape, format);
    uint8_t *block = malloc(kv_shape_most_block_bytes(&own));
    assert_non_null(block);
    assert_int_equal(kv_span_new_like(&s, w->span, format, NULL), RP_OK);
    for (int32_t l = 0; l < own.n_layers; l++)
        for (int32_t b = 0; b * KV_BLOCK_SLOTS < kv_span_tokens(s); b++) {
            const kv_layer shape = kv_shape_layer(&own, l);
            const size_t bytes = shape.block_bytes;
            assert_int_equal(kv_span_has(s, l, b), kv_span_has(w->span, l, b));
            if (!kv_span_has(s, l, b)) continue;
            for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)tiny_random_u64(random);
            const int used = kv_span_tokens(s) - b * KV_BLOCK_SLOTS;
            if (used < KV_BLOCK_SLOTS) { /* unused slots are zeros, as an encoder leaves them */
                kv_block_pack(&shape, block, used);
                kv_block_unpack(&shape, block, used);
            }
            kv_span_put_block(s, l, b, block);
        }
    free(block);
    kv_span_seal(s, &w->record.key);
    return s;
}

static void expect_same_blocks(const kv_shape *own, const kv_span *a, const kv_span *b) {
    const size_t most = kv_shape_most_block_bytes(own);
    uint8_t *x = malloc(most), *y = malloc(most);
    assert_true(x && y && kv_span_format(a) == kv_span_format(b) && kv_span_tokens(a) == kv_span_tokens(b));
    for (int32_t l = 0; l < own->n_layers; l++)
        for (int32_t i = 0; i * KV_BLOCK_SLOTS < kv_span_tokens(a); i++) {
            const kv_layer shape = kv_shape_layer(own, l);
            const int used = kv_span_tokens(a) - i * KV_BLOCK_SLOTS;
            assert_int_equal(kv_span_has(a, l, i), kv_span_has(b, l, i));
            if (!kv_span_has(a, l, i)) continue;
            kv_span_get_block(a, l, i, x);
            kv_span_get_block(b, l, i, y);
            if (used < KV_BLOCK_SLOTS) kv_block_clear_slots(&shape, x, used);
            assert_int_equal(kv_span_layer_format(b, l), shape.format);
            assert_memory_equal(x, y, shape.block_bytes);
        }
    free(x);
    free(y);
}

static void check_packed(const record_world *w, const record_cipher *cipher, rp_kv_format format, tiny_random *random) {
    rp_error err = {0};
    record_reader *r;
    record_loaded loaded;
    kv_span *span = packed_span(w, format, random), *copy;
    record_format expected = w->format;
    const kv_shape shape = kv_shape_in(&w->format.shape, format);
    assert_int_equal(record_write(w->path, &w->format, &w->record, span, cipher, NULL, &err), RP_OK);
    if (format != w->format.shape.format)
        assert_int_equal(record_verify(w->path, &expected, cipher, &err), RECORD_FAULT_FORMAT);
    expected.any_format = true;
    assert_int_equal(record_reader_open(&r, w->path, &expected, &w->record.key, cipher, &err), RECORD_FAULT_NONE);
    assert_int_equal(record_reader_sizes(r).bytes, record_file_bytes(&w->format, record_reader_record(r), cipher));
    assert_int_equal(kv_form_blocks(w->pool, &record_reader_record(r)->form) * (int64_t)kv_pool_block_bytes(w->pool),
                     kv_span_bytes(span));
    assert_int_equal(kv_span_restore(&copy, w->pool, &record_reader_record(r)->form, &w->record.key, &err), RP_OK);
    for (int32_t l = 0; l < shape.n_layers; l++)
        assert_int_equal(record_read_layer(r, l, copy, &err), RECORD_FAULT_NONE);
    expect_same_blocks(&shape, span, copy);
    record_reader_close(r);
    kv_span_unref(copy);
    const record_place place = {.path = w->path};
    assert_int_equal(record_load(&loaded, &place, &w->record.key, cipher, &err), RECORD_FAULT_NONE);
    expect_same_blocks(&shape, span, loaded.span); /* in a pool of its own: record_pool_shape */
    record_loaded_free(&loaded);
    kv_span_unref(span);
}

static void spans_of_every_format_are_written_and_read(void **state) {
    const kv_shape engines[] = {
        {KV_SAME(3, 4, 64, 64), .format = RP_KV_F16},
        {SEVEN(3, 16, 8, false), .format = RP_KV_INT8},
        {KV_SAME(2, 5, 10, 34), .format = RP_KV_F32},
        {SEVEN(3, 16, 8, true), .format = RP_KV_INT8},
        {KV_ROWS(4, KV_ROW(2, 8, 8, 0, false), KV_ROW(2, 8, 8, 0, true), KV_ROW(2, 8, 8, 0, false),
                 KV_ROW(2, 8, 8, 0, true)),
         .format = RP_KV_INT8},
    };
    tiny_random random = {test_seed("test_record", 20261124)};
    record_cipher *cipher = forge_cipher(7);
    int n_packed = 0;
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(engines) * BASE_ARRAY_LEN(sizes); i++) {
        record_world w;
        const size_t engine = i % BASE_ARRAY_LEN(engines), size = i / BASE_ARRAY_LEN(engines);
        const record_plan plan = {
            .shape = &engines[engine], .n_slots = sizes[size], .first_pos = 90, .from = 300, .seed = i};
        record_world_open(&w, &plan);
        for (int format = 0; format < RP_N_KV_FORMATS; format++) {
            if ((rp_kv_format)format == plan.shape->format || !kv_pool_takes(w.pool, (rp_kv_format)format)) continue;
            check_packed(&w, format % 2 ? cipher : NULL, (rp_kv_format)format, &random);
            n_packed++;
        }
        record_world_close(&w);
    }
    record_cipher_close(cipher);
    assert_true(n_packed > 130);
}

/* ---- reduced spans ---- */

/* A part's file is read as an engine of its format does, and, as a bundle's is, into a pool of its own. */
static void check_reduced(const record_world *w, const record_cipher *cipher) {
    record_loaded loaded;
    rp_error err = {0};
    const record_place place = {.path = w->path};
    assert_int_equal(record_write(w->path, &w->format, &w->record, w->span, cipher, NULL, &err), RP_OK);
    expect_read(w, w->path, cipher);
    assert_int_equal(record_load(&loaded, &place, &w->record.key, cipher, &err), RECORD_FAULT_NONE);
    const record *r = record_reader_record(loaded.reader);
    assert_true(r->kind == RECORD_REDUCED && r->at == w->record.at);
    assert_true(r->form.n_parts == w->record.form.n_parts && r->form.end == kv_span_end(w->span));
    assert_true(kv_span_has_form(loaded.span, &w->record.form) && forge_spans_equal(NULL, w->span, loaded.span));
    record_loaded_free(&loaded);
}

static void reduced_spans_of_every_format_come_back(void **state) {
    const kv_shape engines[] = {
        {KV_SAME(3, 4, 16, 16), .format = RP_KV_F16},
        {SEVEN(3, 16, 8, false), .format = RP_KV_INT8},
        {KV_SAME(2, 5, 10, 34), .format = RP_KV_F32},
        {SEVEN(3, 16, 8, true), .format = RP_KV_INT8},
        {KV_ROWS(4, KV_ROW(1, 8, 8, 0, false), KV_ROW(1, 8, 8, 0, true), KV_ROW(1, 8, 8, 0, false),
                 KV_ROW(1, 8, 8, 0, true)),
         .format = RP_KV_INT8},
    };
    static const int32_t tokens[] = {1, 2, 63, 65, 130, 257, 700};
    record_cipher *cipher = forge_cipher(7);
    int n_encoded = 0, n_later = 0, n_empty = 0;
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(engines) * BASE_ARRAY_LEN(tokens) * RP_N_KV_FORMATS; i++) {
        const kv_shape *engine = &engines[i / RP_N_KV_FORMATS % BASE_ARRAY_LEN(engines)];
        const rp_kv_format format = (rp_kv_format)(i % RP_N_KV_FORMATS);
        record_plan plan = {.shape = engine,
                            .n_slots = tokens[i / RP_N_KV_FORMATS / BASE_ARRAY_LEN(engines)],
                            .first_pos = (int32_t)i,
                            .seed = i};
        if ((format != engine->format && !kv_format_is_encoded(format)) ||
            kv_shape_packing(engine, format).per_block == 0)
            continue;
        plan.is_reduced = true;
        plan.encoded = format;
        for (int32_t n_parts = 1; plan.part < n_parts; plan.part++) {
            record_world w;
            record_world_open(&w, &plan);
            n_parts = kv_span_parts(w.span);
            check_reduced(&w, NULL);
            check_reduced(&w, cipher);
            for (int32_t k = 0; k < engine->n_layers * kv_shape_heads(engine); k++)
                n_empty += w.record.form.slots[k] == 0;
            n_encoded += kv_format_is_encoded(format);
            n_later += plan.part > 0;
            record_world_close(&w);
        }
    }
    assert_true(n_encoded > 100 && n_later > 20 && n_empty > 100);
    record_cipher_close(cipher);
}

static void the_same_slots_give_the_same_bytes(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) { /* f16, int8 with layers in f16, kivi4, kivi2 with layers in f16 */
        static const rp_kv_format encoded[] = {RP_KV_F16, RP_KV_F16, RP_KV_KIVI4, RP_KV_KIVI2};
        record_plan plan = {.shape = &shapes[k % 2 ? 6 : 2],
                            .n_slots = 330,
                            .seed = 4,
                            .is_reduced = true,
                            .encoded = encoded[k],
                            .junk = 1};
        const kv_shape even = {KV_SAME(2, 3, 6, 2), .format = RP_KV_F16};
        record_world a, b;
        if (k == 2) plan.shape = &even;
        record_world_open(&a, &plan);
        plan.junk = 2;
        record_world_open(&b, &plan);
        assert_int_equal(record_write(a.path, &a.format, &a.record, a.span, NULL, NULL, NULL), RP_OK);
        assert_int_equal(record_write(b.path, &b.format, &b.record, b.span, NULL, NULL, NULL), RP_OK);
        forged x = forge_load(a.path), y = forge_load(b.path);
        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.bytes, y.bytes, x.n);
        forge_free(&x);
        forge_free(&y);
        record_world_close(&a);
        record_world_close(&b);
    }
}

/* A run may reach over more positions than 2 bytes count. */
static void positions_take_2_or_4_bytes(void **state) {
    const kv_shape shape = {KV_SAME(2, 1, 2, 2), .format = RP_KV_F16};
    static const int32_t ends[] = {65535, 65536, 65537, 70000};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++) {
        record_plan plan = {.shape = &shape, .n_slots = 3, .first_pos = 100, .seed = 4, .is_reduced = true};
        record_world w;
        kv_span *wide;
        record_world_open(&w, &plan);
        static const uint16_t slots[] = {3, 2};
        static const uint8_t kept[] = {1, 1};
        const int32_t last = 100 + ends[i] - 1, positions[] = {100, 101, last}, others[] = {100 + 7, last};
        const kv_span_form form = {.first_pos = 100,
                                   .n_tokens = 3,
                                   .readable_from = INT32_MIN,
                                   .kept = kept,
                                   .slots = slots,
                                   .n_kv_heads = 1,
                                   .end = last + 1,
                                   .n_parts = 1};
        assert_int_equal(kv_span_restore(&wide, w.pool, &form, &w.record.key, NULL), RP_OK);
        for (int32_t l = 0; l < 2; l++) {
            kv_span_put_positions(wide, l, 0, l ? others : positions);
            memset(kv_host_bytes(kv_span_keys(wide, l, 0, 0)), l + 1, kv_span_layer(wide, l)->key_bytes);
            memset(kv_host_bytes(kv_span_values(wide, l, 0, 0)), l + 3, kv_span_layer(wide, l)->value_bytes);
            kv_span_set_ready(wide, l + 1);
        }
        kv_span *narrow = w.span;
        w.span = wide;
        w.record.form = form;
        check_reduced(&w, NULL);
        const uint64_t cells = 5 * (2 + 2) * 2, bytes = ends[i] > 65536 ? 4 : 2;
        forged f = forge_load(w.path);
        assert_int_equal(f.n, RECORD_PAGE + cells + 5 * bytes);
        forge_free(&f);
        w.span = narrow;
        kv_span_unref(wide);
        record_world_close(&w);
    }
}

static void kinds_are_those_of_their_spans(void **state) {
    record_world whole, reduced;
    rp_error err;
    (void)state;
    record_world_open(&whole, &(record_plan){.shape = &shapes[1], .n_slots = 10});
    record_world_open(&reduced, &(record_plan){.shape = &shapes[1], .n_slots = 600, .is_reduced = true, .seed = 2});
    const record good = reduced.record;
    record bad[6];
    for (int i = 0; i < 6; i++) bad[i] = good;
    bad[1].at = good.form.n_parts - 1;
    bad[2].at = good.form.n_parts;
    bad[3].n_tokens = 1;
    bad[4].first_slot = 1;
    bad[5].kind = RECORD_MODULE;
    assert_true(good.form.n_parts > 1);
    for (int i = 0; i < 6; i++)
        assert_int_equal(record_write(reduced.path, &reduced.format, &bad[i], reduced.span, NULL, NULL, &err),
                         i < 2 ? RP_OK : RP_ERR_INVALID);
    whole.record.kind = RECORD_REDUCED;
    assert_int_equal(record_write(whole.path, &whole.format, &whole.record, whole.span, NULL, NULL, &err),
                     RP_ERR_INVALID);
    record_world_close(&whole);
    record_world_close(&reduced);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_comes_back),
        cmocka_unit_test(states_come_back),
        cmocka_unit_test(every_byte_of_states_is_checked),
        cmocka_unit_test(the_same_states_give_the_same_bytes),
        cmocka_unit_test(an_encrypted_record_tells_nothing),
        cmocka_unit_test(a_cipher_is_all_or_nothing),
        cmocka_unit_test(keys_come_from_files_or_the_environment),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(names_may_be_relative),
        cmocka_unit_test(golden_records_are_read_and_written),
        cmocka_unit_test(checksums_are_xxh3),
        cmocka_unit_test(every_fault_has_a_name),
        cmocka_unit_test(spans_of_every_format_are_written_and_read),
        cmocka_unit_test(reduced_spans_of_every_format_come_back),
        cmocka_unit_test(the_same_slots_give_the_same_bytes),
        cmocka_unit_test(positions_take_2_or_4_bytes),
        cmocka_unit_test(kinds_are_those_of_their_spans),
    };
    unsetenv("REPRISE_STORE_KEY");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
