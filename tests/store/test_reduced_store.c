/* SPDX-License-Identifier: Apache-2.0 */
/* test_reduced_store.c: reduced spans in every tier: written, listed, found by the next engine, read from bundles, and
 * in an index that was rebuilt from the files; in several formats, plain and encrypted.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "kv/host_memory.h"
#include "reprise_store.h"
#include "store/disk/disk_tier.h"
#include "store/span_store.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/record_forge.h"
#include "support/store_folder.h"

#define MOST_PARTS 3
#define RUN_TOKENS 600
#define LABEL "cities/plan/miami"

static const kv_shape shapes[] = {
    {KV_SAME(3, 2, 8, 4), .format = RP_KV_F16},
    {KV_ROWS(3, KV_ROW(2, 16, 16, 0, false), KV_ROW(2, 16, 16, 100, true), KV_ROW(2, 16, 16, 0, false)),
     .format = RP_KV_INT8},
};

/* The parts of a module's reduced KV, each in a world of its own. */
typedef struct module {
    record_world parts[MOST_PARTS];
    int32_t n;
} module;

static module make_module(const kv_shape *shape, rp_kv_format encoded, uint64_t seed) {
    module m = {.n = 1};
    for (int32_t i = 0; i < m.n; i++) {
        record_plan plan = {.shape = shape, .n_slots = RUN_TOKENS, .first_pos = 30, .seed = seed, .is_reduced = true};
        plan.part = i;
        plan.encoded = encoded;
        record_world_open(&m.parts[i], &plan);
        kv_span *s = m.parts[i].span;
        base_key key = m.parts[0].record.key;
        m.n = kv_span_parts(s);
        assert_true(m.n <= MOST_PARTS);
        key.bytes[31] = (uint8_t)i;
        kv_span *own; /* the same, with a key of its own */
        must(kv_span_new_like(&own, s, kv_span_format(s), NULL), &(rp_error){.message = "a span"});
        for (int32_t l = 0; l < shape->n_layers; l++)
            for (int32_t h = 0; h < kv_shape_heads(shape); h++)
                for (int32_t b = 0; b * KV_BLOCK_SLOTS < kv_span_slots(s, l, h); b++) {
                    const kv_layer of_layer = kv_shape_layer(kv_span_shape(s), l);
                    memcpy(kv_host_bytes(kv_span_keys(own, l, b, h)), kv_host_bytes(kv_span_keys(s, l, b, h)),
                           of_layer.key_bytes);
                    memcpy(kv_host_bytes(kv_span_values(own, l, b, h)), kv_host_bytes(kv_span_values(s, l, b, h)),
                           of_layer.value_bytes);
                }
        kv_span_seal(own, &key);
        kv_span_unref(s);
        m.parts[i].span = own;
        m.parts[i].record.key = key;
        m.parts[i].record.parent = i > 0 ? m.parts[i - 1].record.key : m.parts[i].record.parent;
    }
    return m;
}

static void free_module(module *m) {
    for (int32_t i = 0; i < m->n; i++) record_world_close(&m->parts[i]);
}

/* ---- a store with a disk tier ---- */

typedef struct world {
    char dir[STORE_FOLDER_BYTES], key_file[STORE_FOLDER_BYTES];
    kv_pool *pool;
    span_store *store;
    record_format format;
    record_cipher *cipher; /* NULL: plain */
} world;

static void ignore_event(void *user) { (void)user; }

static int no_text(void *user, const record_row *row, span_claim *claim, rp_error *err) {
    (void)user, (void)row, (void)claim, (void)err;
    fail_msg("there is no text");
    return RP_ERR_INTERNAL;
}

static void open_tier(world *w) {
    rp_error err = {0};
    const disk_tier_options tier = {.dir = w->dir, .cipher = w->cipher};
    const span_store_disk disk = {.source = {.open = disk_tier_open, .options = &tier},
                                  .format = &w->format,
                                  .notify = ignore_event,
                                  .write = SPAN_STORE_WRITE_THROUGH,
                                  .budget_bytes = UINT64_C(64) << 20};
    must(kv_pool_new(&w->pool, &w->format.shape, UINT64_C(8) << 20, NULL, &err), &err);
    must(span_store_new(&w->store, w->pool, &err), &err);
    must(span_store_open_disk(w->store, &disk, no_text, NULL, &err), &err);
}

static void close_tier(world *w) {
    assert_int_equal(span_store_close(w->store, UINT64_MAX), 0);
    assert_int_equal(kv_pool_get_stats(w->pool).used_bytes, 0);
    kv_pool_free(w->pool);
}

static void open_world(world *w, const kv_shape *shape, bool is_encrypted) {
    *w = (world){.format = {.fingerprint = {{1}}, .any_format = true, .shape = *shape}};
    store_folder_make(w->dir);
    store_folder_key(w->dir, w->key_file, 7);
    rp_error err = {0};
    if (is_encrypted) must(record_cipher_open(&w->cipher, w->key_file, &err), &err);
    open_tier(w);
}

static void close_world(world *w) {
    record_cipher_close(w->cipher);
    unlink(w->key_file);
    store_folder_remove(w->dir);
}

/* A copy of the span in the store's pool. */
static kv_span *copy_span(const world *w, const record_world *part) {
    kv_span *s;
    rp_error err = {0};
    uint8_t *piece = malloc(record_single_space(kv_span_shape(part->span), &part->record.form));
    assert_non_null(piece);
    must(kv_span_restore(&s, w->pool, &part->record.form, &part->record.key, &err), &err);
    for (int32_t l = 0; l < w->format.shape.n_layers; l++) {
        const size_t n = record_get_single(part->span, l, piece);
        record_put_single(s, l, piece, n);
        kv_span_set_ready(s, l + 1);
    }
    free(piece);
    return s;
}

static void put_parts(world *w, const module *m) {
    for (int32_t i = 0; i < m->n; i++) {
        const record *r = &m->parts[i].record;
        kv_span *s = copy_span(w, &m->parts[i]);
        rp_error err = {0};
        const record about = {
            .kind = RECORD_REDUCED, .parent = r->parent, .at = i, .cost_us = 1000, .tenant = 5, .label = LABEL};
        must(span_store_put(w->store, s, NULL, &about, &(span_terms){.pin = i == 0}, &err), &err);
        kv_span_unref(s);
    }
    while (span_store_is_busy(w->store)) span_store_poll(w->store);
}

/* Lookups find all parts, and the first one says how many there are. */
static void expect_parts(world *w, const module *m, span_found tier) {
    for (int32_t i = 0; i < m->n; i++) {
        span_found found;
        kv_span *s = span_store_get(w->store, &m->parts[i].record.key, &found);
        assert_int_equal(found, tier);
        kv_span_wait(s, w->format.shape.n_layers);
        assert_false(kv_span_has_failed(s));
        assert_int_equal(kv_span_parts(s), m->n);
        assert_true(forge_spans_equal(NULL, m->parts[i].span, s));
        kv_span_unref(s);
    }
    while (span_store_is_busy(w->store)) span_store_poll(w->store);
}

typedef struct listed {
    int n, n_pinned;
    uint64_t ram_bytes, disk_bytes;
} listed;

static void list_one(void *user, const store_item *a) {
    listed *l = user;
    assert_int_equal(a->row.record.kind, RECORD_REDUCED);
    assert_string_equal(a->row.record.label, LABEL);
    l->n++;
    l->n_pinned += a->row.use.pinned;
    l->ram_bytes += a->ram_bytes;
    l->disk_bytes += a->row.bytes;
}

static uint64_t kv_bytes(const module *m) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < m->n; i++) bytes += kv_span_bytes(m->parts[i].span);
    return bytes;
}

static listed list_all(const world *w) {
    listed l = {0};
    span_store_each(w->store, list_one, &l);
    return l;
}

/* All cases: shape, format of the parts, encrypted. */
static const struct {
    int shape;
    rp_kv_format format;
    bool is_encrypted;
} cases[] = {{0, RP_KV_F16, false},
             {0, RP_KV_KIVI2, true},
             {1, RP_KV_INT8, true},
             {1, RP_KV_INT8, false},
             {1, RP_KV_KIVI4, false}};

static void a_restart_finds_the_same_spans(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        world w;
        open_world(&w, &shapes[cases[i].shape], cases[i].is_encrypted);
        module m = make_module(&shapes[cases[i].shape], cases[i].format, 3 + i);
        put_parts(&w, &m);
        expect_parts(&w, &m, SPAN_FOUND_MEMORY);
        listed before = list_all(&w);
        assert_true(before.n == m.n && before.n_pinned == 1 && before.ram_bytes == kv_bytes(&m) &&
                    before.disk_bytes > 0);
        for (int32_t k = 0; k < m.n; k++)
            assert_int_equal(span_store_idle_bytes_of(w.store, &m.parts[k].record.key), kv_span_bytes(m.parts[k].span));
        close_tier(&w);
        open_tier(&w);
        listed after = list_all(&w);
        assert_true(after.n == m.n && after.n_pinned == 1 && after.ram_bytes == 0 &&
                    after.disk_bytes == before.disk_bytes);
        for (int32_t k = 0; k < m.n; k++)
            assert_int_equal(span_store_idle_bytes_of(w.store, &m.parts[k].record.key), kv_span_bytes(m.parts[k].span));
        expect_parts(&w, &m, SPAN_FOUND_DISK);
        expect_parts(&w, &m, SPAN_FOUND_MEMORY);
        assert_int_equal(list_all(&w).ram_bytes, kv_bytes(&m));
        while (span_store_reclaim(w.store)) {} /* all but the pinned part */
        assert_int_equal(list_all(&w).ram_bytes, kv_span_bytes(m.parts[0].span));
        assert_true(span_store_remove(w.store, &m.parts[0].record.key));
        assert_int_equal(list_all(&w).n, m.n - 1);
        close_tier(&w);
        free_module(&m);
        close_world(&w);
    }
}

/* ---- index and administration ---- */

/* All columns of all rows but the time of the last use, as text. */
static char *dump_index(const char *dir) {
    static const char columns[] =
        "SELECT hex(key), hex(fingerprint), hex(parent), kind, at, first_slot, pos, slots, readable_from, format, "
        "hex(kept), hex(tokens), label,"
        " bytes, cost_us, tenant, uses, pinned, hex(head_slots), end_pos, parts FROM records ORDER BY key";
    char path[STORE_FOLDER_BYTES + 16], *text = NULL;
    sqlite3 *db;
    sqlite3_stmt *s;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/index.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, columns, -1, &s, NULL), SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(s); i++) {
            const char *value = (const char *)sqlite3_column_text(s, i);
            const size_t bytes = strlen(value) + 1;
            text = realloc(text, n + bytes + 1);
            memcpy(text + n, value, bytes - 1);
            memcpy(text + n + bytes - 1, "|", 2);
            n += bytes;
        }
    sqlite3_finalize(s);
    sqlite3_close(db);
    assert_non_null(text);
    return text;
}

static void sql(const char *dir, const char *text) {
    char path[STORE_FOLDER_BYTES + 16];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/index.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static rp_store *open_folder(const world *w, bool creates, const char *dir) {
    rp_store *s;
    rp_error err = {0};
    rp_store_options o = rp_store_options_defaults();
    o.create = creates;
    o.key_file = w->cipher ? w->key_file : NULL;
    must(rp_store_open(&s, dir, &o, &err), &err);
    return s;
}

/* A clean store: every byte, and every row. */
static void expect_verified(rp_store *s, uint64_t n) {
    rp_store_verification v = {.struct_size = sizeof(v)};
    rp_error err = {0};
    must(rp_store_verify(s, NULL, NULL, NULL, &v, &err), &err);
    assert_int_equal(v.records, n);
    for (int i = 0; i < RP_N_STORE_FLAWS; i++) assert_int_equal(v.flaws[i], 0);
}

static void expect_listed(rp_store *s, int32_t n) {
    rp_store_usage usage = {.struct_size = sizeof(usage)};
    rp_store_listing *l;
    rp_error err = {0};
    must(rp_store_get_usage(s, &usage, &err), &err);
    assert_true(usage.records == (uint64_t)n && usage.reduced == (uint64_t)n && usage.modules == 0 && usage.texts == 0);
    assert_int_equal(usage.reduced_bytes, usage.record_bytes);
    must(rp_store_list(s, &(rp_store_selection){.name = "cities/plan", .modules = true}, NULL, &l, &err), &err);
    assert_int_equal(l->n_entries, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(l->entries[i].kind, RP_STORE_REDUCED);
        assert_string_equal(l->entries[i].label, LABEL);
        assert_true(l->entries[i].bytes > 0 && l->entries[i].n_tokens > 0 && !l->entries[i].fault[0]);
    }
    rp_store_listing_free(l);
    must(rp_store_list(s, &(rp_store_selection){.texts = true}, NULL, &l, &err), &err);
    assert_int_equal(l->n_entries, 0);
    rp_store_listing_free(l);
}

/* A world whose store has a module, and is closed. */
static module fill_world(world *w, size_t i) {
    open_world(w, &shapes[cases[i].shape], cases[i].is_encrypted);
    module m = make_module(&shapes[cases[i].shape], cases[i].format, 3 + i);
    put_parts(w, &m);
    close_tier(w);
    return m;
}

static void a_rebuilt_index_is_the_one_written(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        world w;
        rp_error err = {0};
        rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
        module m = fill_world(&w, i);
        char *written = dump_index(w.dir);
        rp_store *s = open_folder(&w, false, w.dir);
        expect_listed(s, m.n);
        expect_verified(s, (uint64_t)m.n);
        must(rp_store_rebuild(s, NULL, NULL, &cleaning, &err), &err);
        assert_int_equal(cleaning.records, m.n);
        rp_store_close(s);
        char *rebuilt = dump_index(w.dir);
        assert_string_equal(rebuilt, written);
        free(rebuilt);
        sql(w.dir, "UPDATE records SET uses = 1"); /* all that a deleted index loses */
        char path[STORE_FOLDER_BYTES + 16];
        snprintf(path, sizeof path, "%s/index.db", w.dir);
        assert_int_equal(unlink(path), 0);
        s = open_folder(&w, false, w.dir);
        expect_listed(s, m.n);
        expect_verified(s, (uint64_t)m.n);
        rp_store_close(s);
        sql(w.dir, "UPDATE records SET uses = 1");
        rebuilt = dump_index(w.dir);
        assert_string_equal(rebuilt, written);
        open_tier(&w);
        expect_parts(&w, &m, SPAN_FOUND_DISK);
        close_tier(&w);
        free(rebuilt);
        free(written);
        free_module(&m);
        close_world(&w);
    }
}

/* An index that contradicts a record: its row is found, and the record is not read into another form. */
static void a_row_that_lies_is_found(void **state) {
    static const char *const lies[] = {
        "UPDATE records SET end_pos = end_pos + 1",
        "UPDATE records SET parts = parts + 1",
        "UPDATE records SET pos = pos + 1",
        ("UPDATE records SET head_slots = (SELECT head_slots FROM records ORDER BY at DESC LIMIT 1), slots = (SELECT "
         "slots FROM records ORDER BY at"
         " DESC LIMIT 1), kept = (SELECT kept FROM records ORDER BY at DESC LIMIT 1) WHERE at = 0"),
        "UPDATE records SET format = 0",
        "UPDATE records SET head_slots = x'' WHERE at = 0",       /* no row of a reduced span: */
        "UPDATE records SET head_slots = x'010203' WHERE at = 0", /* they are skipped */
        "UPDATE records SET head_slots = x'ffffffffffffffffffffffff' WHERE at = 0",
        "UPDATE records SET kind = 0 WHERE at = 0",
        "UPDATE records SET at = parts",
    };
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(lies); i++) {
        world w;
        rp_error err = {0};
        module m = fill_world(&w, 4);
        assert_int_equal(m.n, 3);
        sql(w.dir, lies[i]);
        rp_store *s = open_folder(&w, false, w.dir);
        rp_store_verification v = {.struct_size = sizeof(v)};
        rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
        must(rp_store_verify(s, NULL, NULL, NULL, &v, &err), &err);
        if (v.flaws[RP_STORE_BAD_ROW] + v.flaws[RP_STORE_OLD_ROW] + v.flaws[RP_STORE_WITHOUT_ROW] == 0)
            fail_msg("lie %zu", i);
        assert_int_equal(v.flaws[RP_STORE_BAD_RECORD], 0);
        rp_store_close(s);
        open_tier(&w); /* never another span */
        for (int32_t k = 0; k < m.n; k++) {
            kv_span *found = span_store_get(w.store, &m.parts[k].record.key, NULL);
            if (!found) continue;
            kv_span_wait(found, w.format.shape.n_layers);
            assert_true(kv_span_has_failed(found) || forge_spans_equal(NULL, m.parts[k].span, found));
            kv_span_unref(found);
        }
        while (span_store_is_busy(w.store)) span_store_poll(w.store);
        close_tier(&w);
        s = open_folder(&w, false, w.dir);
        must(rp_store_gc(s, NULL, NULL, &cleaning, &err), &err);
        expect_verified(s, cleaning.records);
        rp_store_close(s);
        free_module(&m);
        close_world(&w);
    }
}

static void pins_and_removals_take_the_reduced_parts(void **state) {
    (void)state;
    world w;
    rp_error err = {0};
    rp_store_listing *l;
    module m = fill_world(&w, 0);
    rp_store *s = open_folder(&w, false, w.dir);
    must(rp_store_pin(s, &(rp_store_selection){.name = "cities"}, true, &l, &err), &err);
    assert_int_equal(l->n_entries, m.n);
    rp_store_listing_free(l);
    rp_store_close(s);
    open_tier(&w);
    assert_int_equal(list_all(&w).n_pinned, m.n);
    for (int32_t i = 0; i < m.n; i++) assert_true(span_store_pin(w.store, &m.parts[i].record.key, false));
    assert_int_equal(list_all(&w).n_pinned, 0);
    close_tier(&w);
    s = open_folder(&w, false, w.dir);
    must(rp_store_remove(s, &(rp_store_selection){.modules = true}, &l, &err), &err);
    assert_int_equal(l->n_entries, m.n);
    rp_store_listing_free(l);
    expect_verified(s, 0);
    rp_store_close(s);
    free_module(&m);
    close_world(&w);
}

/* ---- bundles ---- */

static void a_bundle_has_the_reduced_parts(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        world w, to;
        rp_error err = {0};
        char path[STORE_FOLDER_BYTES + 8];
        rp_store_transfer out = {.struct_size = sizeof(out)};
        module m = fill_world(&w, i);
        snprintf(path, sizeof path, "%s.rpb", w.dir);
        rp_store *s = open_folder(&w, false, w.dir);
        must(rp_store_export(s, "cities", path, NULL, NULL, &out, &err), &err);
        assert_int_equal(out.records, m.n);
        rp_store_close(s);
        forged first = forge_load(path);
        open_world(&to, &shapes[cases[i].shape], !cases[i].is_encrypted);
        close_tier(&to);
        s = open_folder(&to, false, to.dir);
        must(rp_store_import(s, path, NULL, NULL, &out, &err), &err);
        assert_true(out.records == (uint64_t)m.n && out.present == 0);
        must(rp_store_import(s, path, NULL, NULL, &out, &err), &err);
        assert_int_equal(out.present, m.n);
        expect_listed(s, m.n);
        expect_verified(s, (uint64_t)m.n);
        must(rp_store_export(s, "cities", path, NULL, NULL, &out, &err), &err);
        rp_store_close(s);
        forged second = forge_load(path);
        assert_int_equal(first.n, second.n);
        assert_memory_equal(first.bytes, second.bytes, first.n);
        open_tier(&to);
        expect_parts(&to, &m, SPAN_FOUND_DISK);
        close_tier(&to);
        forge_free(&first);
        forge_free(&second);
        unlink(path);
        free_module(&m);
        close_world(&w);
        close_world(&to);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_finds_the_same_spans),
        cmocka_unit_test(a_rebuilt_index_is_the_one_written),
        cmocka_unit_test(a_row_that_lies_is_found),
        cmocka_unit_test(pins_and_removals_take_the_reduced_parts),
        cmocka_unit_test(a_bundle_has_the_reduced_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
