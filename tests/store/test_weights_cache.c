/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights_cache.c: files of repacked weights (store/weights_cache.h).
 *
 *   equality    mapped weights have the bytes of those that are repacked in memory, and give the same logits
 *   misses      a truncated, damaged or foreign file is a miss with its reason, and is replaced
 *   folder      budget, order of eviction, links, modes, leftovers of killed processes, several processes at once
 *   failures    every call fails in turn, and the process is killed at every change: answers stay right
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* flock */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/io.h"
#include "engine/core/engine_state.h"
#include "backend/cpu/cpu_backend.h"
#include "model/model.h"
#include "reprise_store.h"
#include "support/must.h"
#include "support/record_forge.h"
#include "support/store_folder.h"
#include "support/tiny_model.h"

#define PATH_BYTES 512

static char root[STORE_FOLDER_BYTES], dir[STORE_FOLDER_BYTES + 16], models[3][STORE_FOLDER_BYTES + 16];
static char log_text[8192];
static bool is_avx; /* does this machine repack weights? */

static int64_t far_future(void) { return INT64_C(7000000000000000000); }

static void on_log(void *user, rp_log_level level, const char *line) {
    (void)user;
    (void)level;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static int make_world(void **state) {
    (void)state;
    rp_error err = {0};
    store_folder_make(root);
    snprintf(dir, sizeof dir, "%s/a/weights", root);
    for (int i = 0; i < 3; i++) {
        tiny_model_shape shape = tiny_model_defaults();
        shape.weight_type = shape.embd_type = i == 1 ? KERNEL_F16 : KERNEL_Q8_0;
        shape.n_ff = 136; /* no multiple of 16 rows: groups are filled up */
        shape.seed = (uint64_t)i + 1;
        shape.tied_output = i == 2;
        snprintf(models[i], sizeof models[i], "%s/%d.gguf", root, i);
        must(tiny_model_write(models[i], &shape, &err), &err);
    }
    base_file_set_clock(far_future);
    rp_log_set_level(RP_LOG_DEBUG);
    rp_log_set_callback(on_log, NULL);
    kernel_table k;
    base_cpu_level level;
    must(base_cpu_detect(&level, &err), &err);
    kernel_table_init(&k, level);
    is_avx = k.side > 1;
    return 0;
}

static int remove_world(void **state) {
    (void)state;
    base_file_set_clock(NULL);
    rp_log_set_callback(NULL, NULL);
    store_folder_remove(root);
    return 0;
}

/* ---- a start ---- */

typedef struct start {
    rp_model *model;
    rp_engine *engine;
    char state[16];
    uint64_t weights, weights_file, file;
    uint64_t logits; /* a hash */
} start;

static void take_logits(void *user, const float *logits, int32_t n_vocab) {
    start *s = user;
    s->logits = XXH3_64bits_withSeed(logits, sizeof(float) * (size_t)n_vocab, s->logits);
}

/* Opens a model, prepares it and computes some tokens. Ends the program if that fails. */
static void start_open(start *s, const char *model, rp_engine_options o) {
    rp_error err = {0};
    rp_engine_info info = {.struct_size = sizeof(info)};
    rp_memory memory = {.struct_size = sizeof(memory)};
    *s = (start){0};
    log_text[0] = '\0';
    o.n_threads = 1;
    o.n_ctx = 64;
    must(rp_model_open(&s->model, model, NULL, &err), &err);
    must(rp_engine_new(&s->engine, s->model, &o, &err), &err);
    must(rp_engine_prepare(s->engine, NULL, NULL, &err), &err);
    must(rp_engine_describe(s->engine, &info), &err);
    must(rp_engine_memory(s->engine, &memory), &err);
    snprintf(s->state, sizeof s->state, "%s", info.weights_cache);
    s->weights = memory.weights;
    s->weights_file = memory.weights_file;
    s->file = memory.file;
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_text("some text");
    r.max_tokens = 3;
    r.ignore_eos = true;
    r.on_logits = take_logits;
    r.user = s;
    rp_result_free(tiny_model_answer(s->engine, &r));
}

static void start_close(start *s) {
    rp_engine_free(s->engine);
    rp_model_close(s->model);
}

static rp_engine_options options(void) {
    rp_engine_options o = rp_engine_options_defaults();
    o.weights_dir = dir;
    o.weights_min_bytes = 1;
    return o;
}

static uint64_t expected[3]; /* logits without a cache */

/* Starts with these options and checks the logits. Returns the state: static. */
static const char *start_with(int model, rp_engine_options o) {
    static char state[16];
    start s;
    if (expected[model] == 0) {
        start_open(&s, models[model], rp_engine_options_defaults());
        expected[model] = s.logits;
        assert_string_equal(s.state, "off");
        start_close(&s);
    }
    start_open(&s, models[model], o);
    if (s.logits != expected[model]) fail_msg("other logits after '%s'", s.state);
    if (strcmp(s.state, "mapped") == 0) assert_true(s.weights == 0 && s.weights_file > 0);
    else assert_true(s.weights > 0 && s.weights_file == 0);
    snprintf(state, sizeof state, "%s", s.state);
    start_close(&s);
    return state;
}

static const char *start_again(int model) { return start_with(model, options()); }

static void clear(void) {
    must(rp_weights_remove(dir, NULL, NULL, NULL, NULL), &(rp_error){0});
}

static void needs_packing(void) {
    if (!is_avx) skip();
}

/* ---- the files of the folder ---- */

typedef struct listing {
    char path[4][PATH_BYTES], fault[4][16];
    uint64_t bytes;
    int n, n_temporary;
} listing;

static void take_file(void *user, const rp_weights_file *f) {
    listing *l = user;
    l->n_temporary += f->is_temporary;
    if (f->is_temporary || l->n == 4) return;
    snprintf(l->path[l->n], PATH_BYTES, "%s", f->path);
    snprintf(l->fault[l->n], 16, "%s", f->fault);
    l->bytes += f->bytes;
    l->n++;
}

static listing list(bool reads_all) {
    listing l = {.n = 0};
    rp_error err = {0};
    must(rp_weights_each(dir, reads_all, NULL, take_file, &l, &err), &err);
    return l;
}

static const char *only_path(void) {
    static char path[PATH_BYTES];
    listing l = list(false);
    assert_int_equal(l.n, 1);
    memcpy(path, l.path[0], PATH_BYTES);
    return path;
}

/* ---- tests ---- */

static void second_start_maps_the_same_bytes(void **state) {
    (void)state;
    needs_packing();
    for (int i = 0; i < 3; i++) {
        start first, second;
        struct stat st;
        clear();
        assert_string_equal(start_again(i), "written");
        assert_true(stat(only_path(), &st) == 0 && (st.st_mode & 0777) == 0600);
        assert_true(stat(dir, &st) == 0 && (st.st_mode & 0777) == 0700);
        start_open(&first, models[i], rp_engine_options_defaults());
        start_open(&second, models[i], options());
        assert_string_equal(second.state, "mapped");
        assert_int_equal(first.weights, second.weights_file);
        assert_int_equal(first.weights + first.file, second.weights + second.file);
        const cpu_backend *a = (const cpu_backend *)first.engine->backend,
                          *b = (const cpu_backend *)second.engine->backend;
        assert_null(b->packed_data);
        uint64_t total = 0;
        for (int32_t k = 0; k < first.model->net.n_matrices; k++) {
            const model_weight *x = &a->packed[k], *y = &b->packed[k];
            assert_true(!x->data == !y->data && x->slice_bytes == y->slice_bytes);
            if (!x->data) continue;
            assert_int_equal((uintptr_t)y->data % BACKEND_PACKED_ALIGNMENT, 0);
            assert_memory_equal(x->data, y->data, (size_t)(x->slice_bytes * x->n_slices));
            total += (uint64_t)(x->slice_bytes * x->n_slices);
        }
        assert_int_equal(total, second.weights_file);
        start_close(&first);
        start_close(&second);
    }
}

static void put(uint8_t *at, uint64_t v, int n) {
    for (int i = 0; i < n; i++) at[i] = (uint8_t)(v >> 8 * i);
}

/* Recomputes the header's checksum. */
static void seal(forged *f) {
    uint32_t n;
    memcpy(&n, f->bytes + 12, 4);
    size_t at = 144 + 16 * (size_t)n;
    put(f->bytes + at, XXH3_64bits(f->bytes, at), 8);
}

static void make_other_version(forged *f) { put(f->bytes + 8, 2, 4); }
static void make_other_model(forged *f) {
    f->bytes[20] ^= 1;
    seal(f);
}
static void make_other_level(forged *f) {
    put(f->bytes + 48, 2, 4);
    seal(f);
}
static void make_other_order(forged *f) {
    put(f->bytes + 52, 99, 4);
    seal(f);
}
static void make_other_magic(forged *f) { f->bytes[1] = 'X'; }
static void make_unsealed(forged *f) { f->bytes[85] ^= 1; }
static void make_shorter(forged *f) { f->n -= 1; }
static void make_half(forged *f) { f->n /= 2; }
static void make_header_only(forged *f) { f->n = 100; }
static void make_empty(forged *f) { f->n = 0; }
static void make_far_data(forged *f) {
    put(f->bytes + 64, UINT64_C(1) << 62, 8);
    seal(f);
}
static void make_many(forged *f) { put(f->bytes + 12, UINT32_MAX, 4); }
/* Moves bytes from the second matrix to the first: the sum is right. */
static void make_other_shapes(forged *f) {
    uint64_t a, b;
    memcpy(&a, f->bytes + 144, 8);
    memcpy(&b, f->bytes + 160, 8);
    put(f->bytes + 144, a + 64, 8);
    put(f->bytes + 160, b - 64, 8);
    seal(f);
}
static void make_overflow(forged *f) {
    put(f->bytes + 144, UINT64_MAX - 63, 8);
    seal(f);
}

static void a_wrong_file_is_a_miss_with_its_reason(void **state) {
    (void)state;
    static const struct {
        void (*change)(forged *f);
        const char *reason;
    } cases[] = {
        {make_other_version, "(version)"},
        {make_other_model, "(model)"},
        {make_other_level, "(level)"},
        {make_other_order, "(level)"},
        {make_other_magic, "(damaged)"},
        {make_unsealed, "(damaged)"},
        {make_shorter, "(truncated)"},
        {make_half, "(truncated)"},
        {make_header_only, "(truncated)"},
        {make_empty, "(truncated)"},
        {make_far_data, "(damaged)"},
        {make_many, "(damaged)"},
        {make_other_shapes, "(layout)"},
        {make_overflow, "(damaged)"},
    };
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        forged f = forge_load(only_path());
        cases[i].change(&f);
        forge_save(only_path(), f.bytes, f.n);
        forge_free(&f);
        assert_string_equal(start_again(0), "written");
        if (!strstr(log_text, cases[i].reason)) fail_msg("case %zu: no %s in: %s", i, cases[i].reason, log_text);
        assert_string_equal(start_again(0), "mapped");
    }
    assert_int_equal(list(true).fault[0][0], '\0');
}

static void another_model_is_another_file(void **state) {
    (void)state;
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    assert_string_equal(start_again(1), "written");
    assert_string_equal(start_again(0), "mapped");
    assert_string_equal(start_again(1), "mapped");
    listing l = list(true);
    assert_int_equal(l.n, 2);
    char moved[PATH_BYTES]; /* the file of one model under the name of the other */
    snprintf(moved, sizeof moved, "%s", l.path[1]);
    assert_int_equal(rename(l.path[0], moved), 0);
    int n_written = 0;
    for (int i = 0; i < 2; i++) n_written += strcmp(start_again(i), "written") == 0;
    assert_int_equal(n_written, 2);
}

/* The model is rewritten in place with the same size and mtime: another digest, another file. */
static void a_changed_model_is_another_model(void **state) {
    (void)state;
    struct stat st;
    needs_packing();
    clear();
    assert_string_equal(start_again(2), "written");
    assert_int_equal(stat(models[2], &st), 0);
    struct timespec times[2] = {st.st_atim, st.st_mtim}, tick = {0, 20000000};
    nanosleep(&tick, NULL); /* the kernel's clock of files ticks every 10 ms at the slowest */
    forged f = forge_load(models[2]);
    f.bytes[f.n - 5] ^= 1;
    forge_save(models[2], f.bytes, f.n);
    utimensat(AT_FDCWD, models[2], times, 0);
    expected[2] = 0;
    assert_string_equal(start_again(2), "written");
    assert_int_equal(list(true).n, 2);
    f.bytes[f.n - 5] ^= 1;
    forge_save(models[2], f.bytes, f.n);
    forge_free(&f);
    expected[2] = 0;
    assert_string_equal(start_again(2), "mapped");
}

static void every_byte_is_verified(void **state) {
    (void)state;
    uint64_t n, bytes;
    rp_error err = {0};
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    assert_string_equal(list(true).fault[0], "");
    forged f = forge_load(only_path());
    for (size_t at = 4096; at < f.n; at += f.n / 20) {
        f.bytes[at] ^= 1;
        forge_save(only_path(), f.bytes, f.n);
        assert_string_equal(list(false).fault[0], "");
        assert_string_equal(list(true).fault[0], "damaged");
        f.bytes[at] ^= 1;
    }
    forge_save(only_path(), f.bytes, f.n / 2);
    assert_string_equal(list(false).fault[0], "truncated");
    must(rp_weights_clean(dir, &n, &bytes, &err), &err);
    assert_true(n == 1 && bytes == f.n / 2);
    assert_int_equal(list(false).n, 0);
    forge_free(&f);
}

static void files_of_others_are_not_mapped(void **state) {
    (void)state;
    char target[PATH_BYTES], path[PATH_BYTES];
    struct stat st;
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    snprintf(path, sizeof path, "%s", only_path());
    assert_int_equal(chmod(path, 0660), 0);
    assert_string_equal(start_again(0), "written");
    assert_non_null(strstr(log_text, "(owner)"));
    snprintf(target, sizeof target, "%s/target", root);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(stat(target, &st), 0);
    assert_string_equal(start_again(0), "written");
    assert_non_null(strstr(log_text, "(io)"));
    assert_true(lstat(path, &st) == 0 && S_ISREG(st.st_mode)); /* the link was replaced, its target was not written */
    assert_true(lstat(target, &st) == 0 && S_ISREG(st.st_mode));
    unlink(target);
    /* a folder that is a link */
    char real[PATH_BYTES];
    snprintf(real, sizeof real, "%s/real", root);
    assert_int_equal(rename(dir, real), 0);
    assert_int_equal(symlink(real, dir), 0);
    assert_string_equal(start_again(0), "io");
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(rename(real, dir), 0);
    assert_string_equal(start_again(0), "mapped");
}

static void the_budget_holds(void **state) {
    (void)state;
    rp_engine_options o = options();
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    uint64_t one = list(false).bytes;
    assert_string_equal(start_again(1), "written");
    uint64_t two = list(false).bytes;
    struct timespec tick = {0, 20000000};
    nanosleep(&tick, NULL);
    assert_string_equal(start_again(0), "mapped"); /* the other one is the least recently used */
    o.weights_budget_bytes = two;
    assert_string_equal(start_with(2, o), "written");
    assert_true(list(false).bytes <= two);
    assert_string_equal(start_with(0, o), "mapped");
    o.weights_budget_bytes = one - 1;
    clear();
    assert_string_equal(start_with(0, o), "budget");
    assert_int_equal(list(false).n, 0);
    o.weights_budget_bytes = one;
    assert_string_equal(start_with(0, o), "written");
    o.weights_min_bytes = one;
    assert_string_equal(start_with(0, o), "small");
    o.weights_min_bytes = 0; /* the default */
    assert_string_equal(start_with(0, o), "small");
    clear();
    o = options();
    o.store_read_only = true;
    assert_string_equal(start_with(0, o), "read_only");
    assert_int_equal(list(false).n, 0);
}

static void leftovers_are_removed_and_writers_are_respected(void **state) {
    (void)state;
    char temporary[PATH_BYTES + 32];
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    snprintf(temporary, sizeof temporary, "%s.1-1.tmp", only_path());
    unlink(only_path());
    forge_save(temporary, (const uint8_t *)"left", 4);
    int fd = open(temporary, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0); /* by another open file: as of another process */
    assert_string_equal(start_again(0), "busy");
    assert_int_equal(list(false).n_temporary, 1);
    close(fd);
    assert_string_equal(start_again(0), "written");
    assert_int_equal(list(false).n_temporary, 0);
}

static void fail_every_call(bool is_first, base_io_fault kind) {
    for (uint64_t n = 1;; n++) {
        if (is_first) clear();
        else assert_true(strcmp(start_again(0), "io") != 0);
        base_io_count(BASE_IO_ALL);
        base_io_fault_at(n, kind, BASE_IO_ALL);
        const char *state = start_again(0);
        bool is_last = base_io_count(BASE_IO_ALL) < n;
        base_io_fault_at(0, BASE_IO_NO_FAULT, BASE_IO_ALL);
        if (is_last || kind == BASE_IO_INTERRUPT) assert_string_equal(state, is_first ? "written" : "mapped");
        listing l = list(true);
        assert_true(l.n <= 1);
        if (l.n == 1) assert_string_equal(l.fault[0], "");
        assert_int_equal(l.n_temporary, 0);
        if (is_last) return;
        assert_true(n < 200);
    }
}

static void every_call_fails(void **state) {
    (void)state;
    static const base_io_fault kinds[] = {BASE_IO_EIO, BASE_IO_ENOSPC, BASE_IO_SHORT, BASE_IO_INTERRUPT};
    needs_packing();
    for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) {
        fail_every_call(true, kinds[i]);
        fail_every_call(false, kinds[i]);
    }
}

/* Returns the child's status. kill_at 0: it is not killed. */
static pid_t start_child(uint64_t kill_at) {
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return child;
    rp_log_set_callback(NULL, NULL);
    rp_log_set_level(RP_LOG_OFF);
    if (kill_at) base_io_fault_at(kill_at, BASE_IO_KILL, BASE_IO_CHANGES);
    start s;
    start_open(&s, models[0], options());
    bool ok = s.logits == expected[0];
    start_close(&s);
    _exit(ok ? 0 : 1);
}

static void killed_at_every_change(void **state) {
    (void)state;
    needs_packing();
    start_again(0);
    for (uint64_t n = 1; n < 100; n++) {
        int status;
        clear();
        pid_t child = start_child(n);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        listing l = list(true);
        if (l.n == 1) assert_string_equal(l.fault[0], "");
        const char *next = start_again(0);
        assert_true(strcmp(next, "written") == 0 || strcmp(next, "mapped") == 0);
        if (strcmp(next, "written") == 0) assert_int_equal(list(false).n_temporary, 0);
        if (!WIFSIGNALED(status)) return;
    }
    fail_msg("more changes than expected");
}

static void processes_start_together(void **state) {
    (void)state;
    needs_packing();
    start_again(0);
    for (int round = 0; round < 3; round++) {
        pid_t children[4];
        clear();
        for (int i = 0; i < 4; i++) children[i] = start_child(0);
        for (int i = 0; i < 4; i++) {
            int status;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        assert_string_equal(start_again(0), "mapped");
        listing l = list(true);
        assert_true(l.n == 1 && l.n_temporary == 0);
        assert_string_equal(l.fault[0], "");
    }
}

/* A store may be made in a folder that has repacked weights only, and a store has them in its folder. */
static void a_store_and_its_weights(void **state) {
    (void)state;
    char store[STORE_FOLDER_BYTES + 16];
    rp_engine_options o = options();
    needs_packing();
    clear();
    assert_string_equal(start_again(0), "written");
    snprintf(store, sizeof store, "%s/a", root); /* dir without "/weights" */
    o.store_dir = store;
    assert_string_equal(start_with(0, o), "mapped");
    assert_string_equal(start_with(0, o), "mapped");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_start_maps_the_same_bytes),
        cmocka_unit_test(a_wrong_file_is_a_miss_with_its_reason),
        cmocka_unit_test(another_model_is_another_file),
        cmocka_unit_test(a_changed_model_is_another_model),
        cmocka_unit_test(every_byte_is_verified),
        cmocka_unit_test(files_of_others_are_not_mapped),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(leftovers_are_removed_and_writers_are_respected),
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(killed_at_every_change),
        cmocka_unit_test(processes_start_together),
        cmocka_unit_test(a_store_and_its_weights),
    };
    return cmocka_run_group_tests(tests, make_world, remove_world);
}
