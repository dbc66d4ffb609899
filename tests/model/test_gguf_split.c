/* SPDX-License-Identifier: Apache-2.0 */
/* test_gguf_split.c: split models: they open as one; missing, unknown or duplicate parts are errors of one clear line.
 * */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

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
#include "base/memory.h"
#include "model/gguf/gguf_writer.h"
#include "model/model.h"
#include "support/gguf_variant.h"
#include "support/tiny_model.h"

#define PARTS 3
#define TENSORS 5

static char folder[] = "/tmp/reprise-split-XXXXXX";

static const char *part_path(const char *name, int no, int count) {
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 128, "%s/%s-%05d-of-%05d.gguf", folder, name, no + 1, count);
    return path;
}

static int open_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

/* The metadata of a part; tests change single values. Negative: the key is omitted. */
typedef struct part {
    int no, count, tensors;
    const char *names; /* of its tensors, one letter each; each holds its letter's number */
    int types;         /* 0: U32; 1: U16, U16 and I32, as gguf-split writes them */
} part;

static void add_number(gguf_writer *w, const char *key, int value, gguf_value_type type) {
    uint16_t narrow = (uint16_t)value;
    if (value < 0) return;
    if (type == GGUF_U16) gguf_writer_scalar(w, key, type, &narrow);
    else gguf_writer_scalar(w, key, type, &value);
}

static gguf_writer *write_part(const part *p) {
    gguf_writer *w = gguf_writer_new(3, p->no == 1 ? 64 : 0);
    if (p->no == 0) gguf_writer_string(w, "general.name", "split");
    add_number(w, "split.no", p->no, p->types ? GGUF_U16 : GGUF_U32);
    add_number(w, "split.count", p->count, p->types ? GGUF_U16 : GGUF_U32);
    add_number(w, "split.tensors.count", p->tensors, p->types ? GGUF_I32 : GGUF_U32);
    for (const char *name = p->names; *name; name++) {
        const char text[] = {*name, '\0'};
        float value = (float)*name;
        gguf_writer_tensor(w, text, KERNEL_F32, 1, (int64_t[]){1}, &value);
    }
    return w;
}

static void save_part(const part *p, const char *path) {
    gguf_writer *w = write_part(p);
    rp_error err = {0};
    if (gguf_writer_save(w, path, &err)) fail_msg("%s", err.message);
    gguf_writer_free(w);
}

static const part good[PARTS] = {
    {0, PARTS, TENSORS, "ca", 1}, {1, PARTS, TENSORS, "e", 1}, {2, PARTS, TENSORS, "db", 0}};

static void save_parts(const part parts[PARTS]) {
    for (int i = 0; i < PARTS; i++) save_part(&parts[i], part_path("m", i, PARTS));
}

static void remove_parts(void) {
    for (int i = 0; i < PARTS; i++) remove(part_path("m", i, PARTS));
}

/* ---- what opens -------------------------------------------------------------------------------------------------- */

static void check_good(const gguf_file *f) {
    static const char order[] = "caedb";
    gguf_string name;
    assert_int_equal(gguf_n_parts(f), PARTS);
    assert_int_equal(gguf_n_tensors(f), TENSORS);
    assert_true(gguf_get_string(f, "general.name", &name));
    for (size_t i = 0; i < TENSORS; i++) {
        const char text[] = {order[i], '\0'};
        const gguf_tensor *t = gguf_find_tensor(f, text);
        float value;
        assert_ptr_equal(t, gguf_tensor_at(f, i));
        memcpy(&value, t->data, sizeof value);
        assert_true(value == (float)order[i]);
    }
    assert_null(gguf_find_tensor(f, "f"));
    assert_null(gguf_tensor_at(f, TENSORS));
    for (size_t i = 0; i < PARTS; i++) {
        size_t n;
        assert_memory_equal(gguf_header(f, i, &n), "GGUF", 4);
        assert_true(n > 24);
    }
}

static void the_first_part_opens_all(void **state) {
    (void)state;
    gguf_file *f;
    rp_error err = {0};
    save_parts(good);
    if (gguf_open(&f, part_path("m", 0, PARTS), &err)) fail_msg("%s", err.message);
    check_good(f);
    gguf_close(f);
    remove_parts();
}

/* The bytes of parts in memory, for tests without files. */
static void in_memory(const part *parts, size_t n, gguf_bytes *out) {
    for (size_t i = 0; i < n; i++) {
        gguf_writer *w = write_part(&parts[i]);
        uint8_t *data;
        assert_int_equal(gguf_writer_save_memory(w, &data, &out[i].n, NULL), 0);
        out[i].data = data;
        gguf_writer_free(w);
    }
}

static void free_memory(gguf_bytes *parts, size_t n) {
    for (size_t i = 0; i < n; i++) base_free((void *)(uintptr_t)parts[i].data);
}

static void parts_in_memory_open_as_well(void **state) {
    (void)state;
    gguf_bytes parts[PARTS];
    gguf_file *f;
    in_memory(good, PARTS, parts);
    assert_int_equal(gguf_open_parts(&f, parts, PARTS, "memory", NULL), 0);
    check_good(f);
    gguf_close(f);
    free_memory(parts, PARTS);
}

static void a_model_in_one_part_is_whole(void **state) {
    (void)state;
    static const part whole[] = {{0, 1, 1, "a", 0}, {0, 0, 1, "a", 0}, {0, -1, -1, "a", 0}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(whole); i++) {
        gguf_file *f;
        const char *path = part_path("whole", 0, 1);
        save_part(&whole[i], path);
        assert_int_equal(gguf_open(&f, path, NULL), 0);
        assert_int_equal(gguf_n_parts(f), 1);
        gguf_close(f);
        remove(path);
    }
}

/* gguf-split can leave the first part without tensors. */
static void a_part_may_be_empty(void **state) {
    (void)state;
    static const part some[] = {{0, 3, 1, "", 0}, {1, 3, 1, "x", 0}, {2, 3, 1, "", 0}};
    gguf_bytes parts[3];
    gguf_file *f;
    in_memory(some, 3, parts);
    assert_int_equal(gguf_open_parts(&f, parts, 3, "memory", NULL), 0);
    assert_int_equal(gguf_n_tensors(f), 1);
    assert_non_null(gguf_find_tensor(f, "x"));
    gguf_close(f);
    free_memory(parts, 3);
}

/* ---- refused files ---------------------------------------------------------------------------------------------- */

static void expect_refused(const char *path, int code, const char *says, const char *says_too) {
    gguf_file *f;
    rp_error err = {0};
    int rc = gguf_open(&f, path, &err);
    if (rc != code || !strstr(err.message, says) || !strstr(err.message, says_too) || strchr(err.message, '\n'))
        fail_msg("%d: %s", rc, err.message);
    assert_null(f);
}

/* The good parts, with one replaced. */
static void expect_part_refused(int i, part replaced, int code, const char *says, const char *says_too) {
    part parts[PARTS];
    memcpy(parts, good, sizeof parts);
    parts[i] = replaced;
    save_parts(parts);
    expect_refused(part_path("m", 0, PARTS), code, says, says_too);
    remove_parts();
}

static void a_missing_part_is_named(void **state) {
    (void)state;
    save_parts(good);
    remove(part_path("m", 1, PARTS));
    expect_refused(part_path("m", 0, PARTS), RP_ERR_IO, "part 2 of 3 of the model is missing",
                   part_path("m", 1, PARTS));
    remove_parts();
}

static void another_part_names_the_first(void **state) {
    (void)state;
    save_parts(good);
    expect_refused(part_path("m", 2, PARTS), RP_ERR_INVALID, "is part 3 of 3 of a model: open the first, '",
                   part_path("m", 0, PARTS));
    assert_int_equal(rename(part_path("m", 2, PARTS), part_path("n", 0, 1)), 0);
    expect_refused(part_path("n", 0, 1), RP_ERR_INVALID, "is part 3 of 3 of a model: open the first", "");
    remove(part_path("n", 0, 1));
    remove_parts();
}

static void another_name_is_refused(void **state) {
    (void)state;
    const char *path = part_path("m", 0, 4);
    save_part(&good[0], path);
    expect_refused(path, RP_ERR_IO, "its name ends in '-00001-of-00003.gguf'", path);
    remove(path);
}

static void strangers_are_refused(void **state) {
    (void)state;
    expect_part_refused(1, (part){2, 3, 5, "e", 0}, RP_ERR_FORMAT, "does not belong to", "it is part 3 of 3");
    expect_part_refused(1, (part){1, 4, 5, "e", 0}, RP_ERR_FORMAT, "does not belong to", "it is part 2 of 4");
    expect_part_refused(2, (part){2, 3, 6, "db", 0}, RP_ERR_FORMAT, "does not belong to",
                        "a model of 6 tensors, expected part 3 of 3 of 5");
    expect_part_refused(2, (part){0, -1, -1, "db", 0}, RP_ERR_FORMAT, "does not belong to", "it is part 1 of 1");
    expect_part_refused(1, (part){1, 3, 5, "a", 0}, RP_ERR_FORMAT, "tensor 'a' is in two files of the model", "");
    expect_part_refused(1, (part){1, 3, 5, "", 0}, RP_ERR_FORMAT, "have 4 tensors, 'split.tensors.count' says 5", "");
    expect_part_refused(2, (part){2, 3, 5, "dbf", 0}, RP_ERR_FORMAT, "have 6 tensors", "");
}

static void damaged_places_are_refused(void **state) {
    (void)state;
    expect_part_refused(0, (part){3, 3, 5, "ca", 0}, RP_ERR_FORMAT, "'split.no' is missing or not below", "");
    expect_part_refused(0, (part){-1, 3, 5, "ca", 0}, RP_ERR_FORMAT, "'split.no' is missing", "");
    expect_part_refused(0, (part){0, 3, -1, "ca", 0}, RP_ERR_FORMAT, "'split.tensors.count' is missing", "");
    expect_part_refused(0, (part){0, 3, GGUF_MAX_TENSORS + 1, "ca", 0}, RP_ERR_FORMAT,
                        "'split.tensors.count' is missing or larger", "");
    expect_part_refused(0, (part){0, GGUF_MAX_PARTS + 1, 5, "ca", 0}, RP_ERR_FORMAT, "1025 files, more than the limit",
                        "");
    gguf_writer *w = gguf_writer_new(3, 0);
    const char *path = part_path("m", 0, PARTS);
    gguf_writer_string(w, "split.count", "3");
    assert_int_equal(gguf_writer_save(w, path, NULL), 0);
    gguf_writer_free(w);
    expect_refused(path, RP_ERR_FORMAT, "'split.count' is not a number", path);
    remove(path);
}

static void a_damaged_part_says_what_is_damaged(void **state) {
    (void)state;
    save_parts(good);
    const char *path = part_path("m", 2, PARTS);
    assert_int_equal(truncate(path, 60), 0);
    expect_refused(part_path("m", 0, PARTS), RP_ERR_FORMAT, path, "2 tensors do not fit into a file of 60 bytes");
    remove_parts();
}

static void too_few_parts_in_memory_are_refused(void **state) {
    (void)state;
    gguf_bytes parts[PARTS];
    gguf_file *f;
    rp_error err = {0};
    in_memory(good, PARTS, parts);
    assert_int_equal(gguf_open_parts(&f, parts, 2, "memory", &err), RP_ERR_IO);
    assert_non_null(strstr(err.message, "part 3 of 3 is missing"));
    assert_int_equal(gguf_open_memory(&f, parts[0].data, parts[0].n, "memory", NULL), RP_ERR_IO);
    assert_null(f);
    free_memory(parts, PARTS);
}

static void every_failed_allocation_is_a_clean_error(void **state) {
    (void)state;
    save_parts(good);
    int rc = RP_ERR_MEMORY;
    for (uint64_t n = 1; rc; n++) {
        gguf_file *f;
        rp_error err = {0};
        base_alloc_fail_at(n, 0);
        rc = gguf_open(&f, part_path("m", 0, PARTS), &err);
        base_alloc_fail_at(0, 0);
        if (rc && (rc != RP_ERR_MEMORY || f || err.code != RP_ERR_MEMORY))
            fail_msg("allocation %d: %s", (int)n, err.message);
        gguf_close(f);
    }
    remove_parts();
}

/* ---- a model
   ------------------------------------------------------------------------------------------------------ */

/* The same bytes in every tensor. */
static void a_split_model_is_the_model(void **state) {
    (void)state;
    const char *path = part_path("whole", 0, 1);
    tiny_model_shape shape = tiny_model_defaults();
    shape.weight_type = KERNEL_Q8_0;
    assert_int_equal(tiny_model_write(path, &shape, NULL), 0);
    gguf_file *whole;
    rp_model *m;
    rp_error err = {0};
    assert_int_equal(gguf_open(&whole, path, NULL), 0);
    for (int i = 0; i < PARTS; i++) gguf_variant_write_part(whole, i, PARTS, part_path("m", i, PARTS));
    if (model_open(&m, part_path("m", 0, PARTS), NULL, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < gguf_n_tensors(whole); i++) {
        char name[GGUF_MAX_NAME + 1];
        const gguf_tensor *a = gguf_tensor_at(whole, i);
        snprintf(name, sizeof name, "%.*s", (int)a->name.n, a->name.bytes);
        const gguf_tensor *b = gguf_find_tensor(m->file, name);
        assert_true(b && a->type == b->type && a->bytes == b->bytes);
        assert_memory_equal(a->data, b->data, (size_t)a->bytes);
    }
    model_close(m);
    gguf_close(whole);
    remove_parts();
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_part_opens_all),
        cmocka_unit_test(parts_in_memory_open_as_well),
        cmocka_unit_test(a_model_in_one_part_is_whole),
        cmocka_unit_test(a_part_may_be_empty),
        cmocka_unit_test(a_missing_part_is_named),
        cmocka_unit_test(another_part_names_the_first),
        cmocka_unit_test(another_name_is_refused),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(damaged_places_are_refused),
        cmocka_unit_test(a_damaged_part_says_what_is_damaged),
        cmocka_unit_test(too_few_parts_in_memory_are_refused),
        cmocka_unit_test(every_failed_allocation_is_a_clean_error),
        cmocka_unit_test(a_split_model_is_the_model),
    };
    return cmocka_run_group_tests_name("gguf_split", tests, open_folder, remove_folder);
}
