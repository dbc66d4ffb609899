/* SPDX-License-Identifier: Apache-2.0 */
/* test_recompute.c: rp_store_recompute and the model fingerprint: the KV of a store equals the KV that the model
 * computes.
 *
 *   fingerprint   depends on every byte of every part, not on threads; remembered by the files' metadata, and computed
 *                 again if that changed
 *   recompute     detects a record with valid checksums and another model's KV
 *   arithmetic    KV of another arithmetic is a miss, and its records have the reason
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "model/model.h"
#include "store/disk/fingerprints.h"
#include "store/record/record.h"
#include "store/span_store.h"
#include "support/cache_world.h"
#include "support/gguf_variant.h"
#include "support/must.h"
#include "support/record_forge.h"
#include "reprise_store.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

#define PATH_BYTES (STORE_FOLDER_BYTES + 80)
#define PARTS 3

static char dir[STORE_FOLDER_BYTES], copy[STORE_FOLDER_BYTES + 16];

static int make_folders(void **state) {
    (void)state;
    char model[4096];
    snprintf(model, sizeof model, "%s/models/reprise-mini.gguf", getenv("REPRISE_SOURCE_DIR"));
    store_folder_make(dir);
    snprintf(copy, sizeof copy, "%s.gguf", dir);
    forged f = forge_load(model);
    forge_save(copy, f.bytes, f.n);
    forge_free(&f);
    return 0;
}

static const char *part_path(int i) {
    static char paths[PARTS][PATH_BYTES];
    snprintf(paths[i], PATH_BYTES, "%s-%05d-of-%05d.gguf", dir, i + 1, PARTS);
    return paths[i];
}

static int remove_folders(void **state) {
    (void)state;
    base_file_set_clock(NULL);
    unsetenv("REPRISE_CPU");
    store_folder_remove(dir);
    unlink(copy);
    for (int i = 0; i < PARTS; i++) unlink(part_path(i));
    return 0;
}

static rp_model *open_model(const char *path) {
    rp_model *m = NULL;
    rp_error err = {0};
    if (rp_model_open(&m, path, NULL, &err)) fail_msg("%s", err.message);
    return m;
}

static void fingerprint_of(const char *path, int n_threads, char out[65]) {
    rp_model *m = open_model(path);
    const char *text = NULL;
    rp_error err = {0};
    if (rp_model_fingerprint(m, n_threads, NULL, NULL, &text, &err)) fail_msg("%s", err.message);
    snprintf(out, 65, "%s", text);
    assert_int_equal(strlen(out), 64);
    assert_true(m->hashed_bytes > 0);
    rp_model_close(m);
}

/* Bytes of the largest tensor between two of the 64 pieces of 64 bytes that version 0.1 hashed. */
static long between_pieces(const char *path) {
    rp_model *m = open_model(path);
    const gguf_tensor *t = gguf_tensor_at(m->file, 0);
    size_t n;
    const char *file = gguf_header(m->file, 0, &n);
    for (size_t i = 1; i < gguf_n_tensors(m->file); i++)
        if (gguf_tensor_at(m->file, i)->bytes > t->bytes) t = gguf_tensor_at(m->file, i);
    uint64_t step = (t->bytes - 64) / 63;
    long at = (long)((const char *)t->data - file) + (long)(3 * step + 64);
    assert_true(step > 128);
    rp_model_close(m);
    return at;
}

static void flip(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

/* ---- the fingerprint ---- */

static void every_byte_counts(void **state) {
    (void)state;
    char original[65], changed[65], one[65];
    fingerprint_of(copy, 3, original);
    fingerprint_of(copy, 1, one);
    assert_string_equal(one, original);
    flip(copy, between_pieces(copy));
    fingerprint_of(copy, 2, changed);
    assert_string_not_equal(changed, original);
    flip(copy, between_pieces(copy));
    flip(copy, -1);
    fingerprint_of(copy, 2, changed);
    assert_string_not_equal(changed, original);
    flip(copy, -1);
    fingerprint_of(copy, 2, changed);
    assert_string_equal(changed, original);
}

/* Opens the model with the store; returns the number of hashed bytes of weights. */
static uint64_t hashed_at_start(const char *path) {
    rp_model *m = open_model(path);
    rp_engine *e = NULL;
    rp_error err = {0};
    rp_engine_options o = rp_engine_options_defaults();
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(m, &info);
    assert_string_equal(info.fingerprint, "");
    o.n_threads = 1;
    o.n_ctx = 64;
    o.store_dir = dir;
    if (rp_engine_new(&e, m, &o, &err)) fail_msg("%s", err.message);
    uint64_t n = m->hashed_bytes;
    rp_model_describe(m, &info);
    assert_int_equal(strlen(info.fingerprint), 64);
    rp_engine_free(e);
    rp_model_close(m);
    return n;
}

static int64_t far_future(void) { return INT64_C(7000000000000000000); }

static void it_is_remembered(void **state) {
    (void)state;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/" FINGERPRINTS_NAME, dir);
    assert_true(hashed_at_start(copy) > 0); /* just written: a second change may have the same mtime */
    assert_true(hashed_at_start(copy) > 0);
    base_file_set_clock(far_future);
    assert_true(hashed_at_start(copy) > 0);
    assert_int_equal(hashed_at_start(copy), 0);
    assert_int_equal(hashed_at_start(copy), 0);
    flip(copy, between_pieces(copy)); /* of the same size */
    assert_true(hashed_at_start(copy) > 0);
    assert_int_equal(hashed_at_start(copy), 0);
}

static void mtime_set_back_is_seen(void **state) {
    (void)state;
    struct stat st;
    base_file_set_clock(far_future);
    hashed_at_start(copy);
    assert_int_equal(hashed_at_start(copy), 0);
    assert_int_equal(stat(copy, &st), 0);
    struct timespec before[2] = {st.st_atim, st.st_mtim}, tick = {0, 20000000};
    nanosleep(&tick, NULL); /* the kernel's clock of files ticks every 10 ms at the slowest */
    flip(copy, between_pieces(copy));
    assert_int_equal(utimensat(AT_FDCWD, copy, before, 0), 0);
    assert_true(hashed_at_start(copy) > 0);
}

static void damage_is_not_believed(void **state) {
    (void)state;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/" FINGERPRINTS_NAME, dir);
    base_file_set_clock(far_future);
    hashed_at_start(copy);
    forged f = forge_load(path);
    for (size_t i = 0; i < f.n; i += 7) {
        forge_save(path, f.bytes, f.n);
        flip(path, (long)i);
        assert_true(hashed_at_start(copy) > 0);
        assert_int_equal(hashed_at_start(copy), 0); /* it was written again */
    }
    forge_save(path, f.bytes, f.n / 2);
    assert_true(hashed_at_start(copy) > 0);
    unlink(path);
    assert_true(hashed_at_start(copy) > 0);
    forge_free(&f);
}

static void a_key_makes_it_unforgeable(void **state) {
    (void)state;
    base_key files = {{1}}, digest = {{2}}, found;
    record_cipher *mine = forge_cipher(7), *other = forge_cipher(8);
    assert_int_equal(fingerprints_keep(dir, mine, &files, &digest, NULL), RP_OK);
    assert_true(fingerprints_find(dir, mine, &files, &found));
    assert_true(base_key_equal(&found, &digest));
    assert_false(fingerprints_find(dir, other, &files, &found));
    assert_false(fingerprints_find(dir, NULL, &files, &found));
    for (int i = 0; i < 2 * FINGERPRINTS_MOST; i++) {
        base_key more = {{3, (uint8_t)i}};
        assert_int_equal(fingerprints_keep(dir, mine, &more, &digest, NULL), RP_OK);
    }
    assert_false(fingerprints_find(dir, mine, &files, &found)); /* the oldest are removed */
    record_cipher_close(mine);
    record_cipher_close(other);
}

/* ---- a model in several files ---- */

/* A tiny model in PARTS files. */
static void split_model(void) {
    tiny_model_shape shape = tiny_model_defaults();
    rp_error err = {0};
    gguf_file *whole;
    must(tiny_model_write(copy, &shape, &err), &err);
    must(gguf_open(&whole, copy, &err), &err);
    for (int i = 0; i < PARTS; i++) gguf_variant_write_part(whole, i, PARTS, part_path(i));
    gguf_close(whole);
}

/* The fingerprint of all parts, with one byte flipped. false: the model does not open with it. */
static bool flipped_fingerprint(int part, long at, char out[65]) {
    rp_model *m = NULL;
    flip(part_path(part), at);
    bool opens = rp_model_open(&m, part_path(0), NULL, NULL) == RP_OK;
    rp_model_close(m);
    if (opens) fingerprint_of(part_path(0), 1, out);
    flip(part_path(part), at);
    return opens;
}

/* First, middle or last byte of every tensor, and every 5th byte of the other parts' headers. */
static void every_part_counts(void **state) {
    (void)state;
    char original[65], changed[65];
    int n_headers = 0;
    split_model();
    fingerprint_of(part_path(0), 2, original);
    rp_model *m = open_model(part_path(0));
    size_t n_parts = gguf_n_parts(m->file), n_tensors = gguf_n_tensors(m->file), i = 0;
    assert_int_equal(n_parts, PARTS);
    for (int part = 0; part < PARTS; part++) {
        size_t n_header, end = i + (n_tensors - (size_t)part + PARTS - 1) / PARTS;
        const char *file = gguf_header(m->file, (size_t)part, &n_header);
        for (; i < end; i++) { /* in part order, each with its tensors */
            const gguf_tensor *t = gguf_tensor_at(m->file, i);
            const long places[3] = {0, (long)t->bytes / 2, (long)t->bytes - 1};
            assert_true(flipped_fingerprint(part, (long)((const char *)t->data - file) + places[i % 3], changed));
            assert_string_not_equal(changed, original);
        }
        for (size_t at = 4; part > 0 && at < n_header; at += 5) {
            if (!flipped_fingerprint(part, (long)at, changed)) continue;
            assert_string_not_equal(changed, original);
            n_headers++;
        }
    }
    rp_model_close(m);
    fingerprint_of(part_path(0), 1, changed);
    assert_string_equal(changed, original);
    printf("%zu tensors and %d header bytes of %d parts\n", n_tensors, n_headers, PARTS);
}

static struct stat stat_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st;
}

/* Changes only the ctime: sets the mode again until the clock of files has ticked. */
static void change_ctime(const char *path) {
    for (struct stat was = stat_of(path), st = was;
         st.st_ctim.tv_sec == was.st_ctim.tv_sec && st.st_ctim.tv_nsec == was.st_ctim.tv_nsec; st = stat_of(path))
        assert_int_equal(chmod(path, was.st_mode & 07777), 0);
}

static void change_mtime(const char *path) {
    struct stat st = stat_of(path);
    struct timespec times[2] = {st.st_atim, {st.st_mtim.tv_sec - 60, st.st_mtim.tv_nsec}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* With the same bytes and mtime. */
static void change_inode(const char *path) {
    char other[PATH_BYTES + 8];
    struct stat st = stat_of(path);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    snprintf(other, sizeof other, "%s.new", path);
    forged f = forge_load(path);
    forge_save(other, f.bytes, f.n);
    forge_free(&f);
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(rename(other, path), 0);
    assert_true(stat_of(path).st_ino != st.st_ino);
}

/* Appends one byte after the last tensor, which no reader uses; the mtime stays. */
static void change_size(const char *path) {
    struct stat st = stat_of(path);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(truncate(path, st.st_size + 1), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void a_change_of_any_part_is_seen(void **state) {
    (void)state;
    void (*const changes[])(const char *) = {change_ctime, change_mtime, change_inode, change_size};
    split_model();
    base_file_set_clock(far_future);
    assert_true(hashed_at_start(part_path(0)) > 0);
    assert_int_equal(hashed_at_start(part_path(0)), 0);
    for (int part = 0; part < PARTS; part++)
        for (size_t i = 0; i < BASE_ARRAY_LEN(changes); i++) {
            changes[i](part_path(part));
            if (hashed_at_start(part_path(0)) == 0)
                fail_msg("part %d, change %zu: the remembered digest was used", part + 1, i);
            assert_int_equal(hashed_at_start(part_path(0)), 0);
        }
}

/* An answer of one token with its logits; *on_disk: prompt tokens with KV from disk. */
static oracle_run run_parts(const char *store, int32_t *on_disk) {
    rp_model *m = open_model(part_path(0));
    rp_engine *e = NULL;
    rp_error err = {0};
    oracle_run run = {0};
    rp_engine_options o = rp_engine_options_defaults();
    rp_request q = rp_request_defaults();
    o.n_threads = 1;
    o.n_ctx = 256;
    o.store_dir = store;
    q.prompt = rp_prompt_text("the hills of the river and the city of the seven hills");
    q.max_tokens = 1;
    must(rp_engine_new(&e, m, &o, &err), &err);
    oracle_run_make(&run, e, &q);
    must(run.rc, &run.err);
    *on_disk = 0;
    for (int32_t i = 0; i < run.result->n_plan; i++)
        if (strcmp(run.result->plan[i].tier, "disk") == 0) *on_disk += run.result->plan[i].n_tokens;
    rp_engine_free(e);
    rp_model_close(m);
    return run;
}

static void a_byte_of_the_second_part_makes_misses(void **state) {
    (void)state;
    int32_t on_disk;
    split_model();
    oracle_run original = run_parts(dir, &on_disk);
    assert_int_equal(on_disk, 0);
    oracle_run again = run_parts(dir, &on_disk);
    assert_true(on_disk > 0 && oracle_run_same(&again, &original));
    flip(part_path(1), -2);
    oracle_run changed = run_parts(dir, &on_disk);
    assert_int_equal(on_disk, 0);
    oracle_run cold = run_parts(NULL, &on_disk);
    assert_true(oracle_run_same(&changed, &cold));
    flip(part_path(1), -2);
    oracle_run back = run_parts(dir, &on_disk);
    assert_true(on_disk > 0 && oracle_run_same(&back, &original)); /* the first model's records are unchanged */
    oracle_run *const runs[] = {&original, &again, &changed, &cold, &back};
    for (size_t i = 0; i < BASE_ARRAY_LEN(runs); i++) oracle_run_free(runs[i]);
}

/* ---- recomputation ---- */

static rp_engine *engine_for(const cache_world *w) {
    rp_error err = {0};
    const char *text;
    if (rp_model_fingerprint(w->model, 1, NULL, NULL, &text, &err)) fail_msg("%s", err.message);
    rp_engine *e = cache_world_engine(w, NULL, NULL, &err);
    if (!e || rp_schema_prefill(e, NULL, "cities", NULL, NULL, &err)) fail_msg("%s", err.message);
    return e;
}

static rp_store_recomputed recompute(const cache_world *w) {
    rp_store_recomputed r = {.struct_size = sizeof(r)};
    rp_error err = {0};
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_engine *e = engine_for(w);
    if (rp_store_recompute(c, e, NULL, NULL, NULL, NULL, &r, &err)) fail_msg("%s", err.message);
    rp_engine_free(e);
    rp_store_close(c);
    assert_int_equal(r.candidates, r.checked + r.unreadable + r.unknown_module + r.unknown_scope + r.no_memory);
    return r;
}

/* Corrupts the KV of a record: flips one bit of the first layer and makes all checksums valid. */
static void forge_kv(const char *path) {
    uint64_t private_bytes, kv_at;
    forged f = forge_load(path);
    assert_true(forge_places(f.bytes, f.n, &private_bytes, &kv_at));
    f.bytes[kv_at] ^= 1; /* of the first token's first key */
    forge_layer_checksums(f.bytes, f.n);
    forge_header_checksum(f.bytes, f.n);
    forge_save(path, f.bytes, f.n);
    forge_free(&f);
}

static void forged_kv_is_found(void **state) {
    (void)state;
    cache_world w;
    char path[PATH_BYTES];
    rp_error err = {0};
    rp_store_verification v = {.struct_size = sizeof(v)};
    cache_world_open(&w, false);
    cache_world_fill(&w, dir, NULL);
    rp_store_recomputed r = recompute(&w);
    assert_int_equal(r.different, 0);
    assert_true(r.checked > 4); /* modules, and the plain text */
    assert_true(r.unknown_scope > 0 && r.unknown_module == 0 && r.unreadable == 0 && r.no_memory == 0);
    uint64_t checked = r.checked;

    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_listing *l = cache_world_list(c);
    for (size_t i = 0; i < l->n_entries; i++) {
        cache_world_path(dir, &l->entries[i], path);
        forge_kv(path);
    }
    assert_int_equal(rp_store_verify(c, NULL, NULL, NULL, &v, &err), RP_OK);
    assert_int_equal(v.flaws[RP_STORE_BAD_RECORD], 0); /* no checksum detects it */
    rp_store_listing_free(l);
    rp_store_close(c);
    r = recompute(&w);
    assert_int_equal(r.different, checked);
    cache_world_close(&w);
}

/* A module's reduced KV: every second slot of each head. */
typedef struct reduction {
    base_key key; /* of the module's span; then of the reduced one */
    bool is_kept; /* in the engine's store */
    char path[PATH_BYTES];
} reduction;

static void choose_module(void *user, const store_item *item) {
    const record *r = &item->row.record;
    if (r->kind == RECORD_MODULE && r->form.n_tokens > 4) *(base_key *)user = r->key;
}

/* An engine_command_fn: writes the record, and keeps the span. */
static void make_reduced(rp_engine *e, void *arg) {
    reduction *r = arg;
    const kv_shape *shape = &e->states->shape;
    rp_error err = {0};
    kv_selection *s;
    kv_span *reduced;
    rp_store_entry entry;
    span_store_each(e->store, choose_module, &r->key);
    kv_span *whole = span_store_get(e->store, &r->key, NULL);
    assert_non_null(whole);
    must(kv_selection_new(&s, shape->n_layers, kv_shape_heads(shape), kv_span_tokens(whole), &err), &err);
    for (int32_t i = 0; i < shape->n_layers * kv_shape_heads(shape) * s->n_slots; i += 2)
        kv_selection_add(s, i / s->n_slots / kv_shape_heads(shape), i / s->n_slots % kv_shape_heads(shape),
                         i % s->n_slots);
    must(kv_span_reduce(&reduced, (const kv_span *const *)&whole, 1, s, 0, &err), &err);
    r->key.bytes[31] ^= 1;
    kv_span_seal(reduced, &r->key);
    const record rec = {.key = r->key, .parent = *kv_span_key(whole), .kind = RECORD_REDUCED, .label = "cities/plan"};
    base_key_hex(&r->key, entry.key, 64);
    cache_world_path(dir, &entry, r->path);
    must(record_write(r->path, e->states, &rec, reduced, NULL, NULL, &err), &err);
    if (r->is_kept) must(span_store_put(e->store, reduced, NULL, &rec, NULL, &err), &err);
    kv_span_unref(whole);
    kv_span_unref(reduced);
    kv_selection_free(s);
}

static rp_store_recomputed recompute_reduced(const cache_world *w, reduction *r, bool is_forged) {
    rp_store_recomputed out = {.struct_size = sizeof(out)};
    rp_error err = {0};
    rp_engine *e = engine_for(w);
    must(engine_do(e, make_reduced, r, &err), &err);
    forged f = forge_load(r->path);
    f.bytes[f.n - 1] ^= is_forged; /* of the last value */
    forge_layer_checksums(f.bytes, f.n);
    forge_header_checksum(f.bytes, f.n);
    forge_save(r->path, f.bytes, f.n);
    forge_free(&f);
    rp_store *c = cache_world_cache(dir, NULL, true);
    must(rp_store_recompute(c, e, NULL, NULL, NULL, NULL, &out, &err), &err);
    rp_store_close(c);
    rp_engine_free(e);
    return out;
}

static void reduced_kv_is_compared(void **state) {
    (void)state;
    cache_world w;
    reduction r = {.is_kept = true};
    cache_world_open(&w, false);
    cache_world_fill(&w, dir, NULL);
    const rp_store_recomputed before = recompute(&w), same = recompute_reduced(&w, &r, false),
                              other = recompute_reduced(&w, &r, true);
    assert_true(same.candidates == before.candidates + 1 && same.checked == before.checked + 1 && same.different == 0);
    assert_true(other.checked == same.checked && other.different == 1);
    r.is_kept = false;
    const rp_store_recomputed unknown = recompute_reduced(&w, &r, false);
    assert_true(unknown.checked == before.checked && unknown.unknown_module == before.unknown_module + 1);
    cache_world_close(&w);
}

static void an_engine_with_a_store_is_refused(void **state) {
    (void)state;
    cache_world w;
    rp_store_recomputed r = {.struct_size = sizeof(r)};
    rp_error err = {0};
    cache_world_open(&w, true);
    cache_world_fill(&w, dir, NULL);
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_engine *e = cache_world_engine(&w, dir, NULL, &err);
    assert_int_equal(rp_store_recompute(c, e, NULL, NULL, NULL, NULL, &r, &err), RP_ERR_CONFLICT);
    rp_engine_free(e);
    rp_store_close(c);
    cache_world_close(&w);
    cache_world_open(&w, true);
    c = cache_world_cache(dir, NULL, true);
    e = cache_world_engine(&w, NULL, NULL, &err); /* before rp_model_fingerprint */
    assert_int_equal(rp_store_recompute(c, e, NULL, NULL, NULL, NULL, &r, &err), RP_ERR_CONFLICT);
    rp_engine_free(e);
    rp_store_close(c);
    cache_world_close(&w);
}

/* ---- arithmetic ---- */

static void arithmetic_is_part_of_the_key(void **state) {
    (void)state;
    cache_world w;
    int32_t cached, from_disk;
    rp_error err = {0};
    setenv("REPRISE_CPU", "generic", 1);
    cache_world_open(&w, false);
    cache_world_fill(&w, dir, NULL);
    unsetenv("REPRISE_CPU");
    rp_engine *e = cache_world_engine(&w, dir, NULL, &err);
    cache_world_ask(&w, e, &cached, &from_disk);
    base_cpu_level level;
    assert_int_equal(base_cpu_detect(&level, &err), RP_OK);
    if (kernel_arithmetic_of(level) != kernel_arithmetic_of(BASE_CPU_GENERIC)) assert_int_equal(from_disk, 0);
    rp_engine_free(e);
    setenv("REPRISE_CPU", "generic", 1);
    e = cache_world_engine(&w, dir, NULL, &err);
    assert_true(cache_world_ask(&w, e, &cached, &from_disk)); /* and equals the bytes of a cold run */
    assert_true(from_disk > 0);
    rp_engine_free(e);
    cache_world_close(&w);
}

int main(void) {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_folders, remove_folders)
    const struct CMUnitTest tests[] = {
        TEST(every_byte_counts),
        TEST(it_is_remembered),
        TEST(mtime_set_back_is_seen),
        TEST(damage_is_not_believed),
        TEST(a_key_makes_it_unforgeable),
        TEST(every_part_counts),
        TEST(a_change_of_any_part_is_seen),
        TEST(a_byte_of_the_second_part_makes_misses),
        TEST(forged_kv_is_found),
        TEST(reduced_kv_is_compared),
        TEST(an_engine_with_a_store_is_refused),
        TEST(arithmetic_is_part_of_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
