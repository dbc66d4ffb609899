/* SPDX-License-Identifier: Apache-2.0 */
/* test_gguf.c: round trips from writer to reader: every type of metadata, array and tensor; and real files. */
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

#include "base/compiler.h"
#include "base/memory.h"
#include "model/gguf/gguf.h"
#include "model/gguf/gguf_writer.h"
#include "support/tiny_random.h"

/* A file in memory, open. */
typedef struct opened {
    gguf_file *f;
    uint8_t *data;
    size_t bytes;
} opened;

/* Saves and frees the writer, and opens the result. */
static opened reopen(gguf_writer *w) {
    opened o = {0};
    rp_error err = {0};
    assert_int_equal(gguf_writer_save_memory(w, &o.data, &o.bytes, &err), 0);
    gguf_writer_free(w);
    int rc = gguf_open_memory(&o.f, o.data, o.bytes, "memory.gguf", &err);
    if (rc) fail_msg("%s", err.message);
    return o;
}

static void close_opened(opened *o) {
    gguf_close(o->f);
    base_free(o->data);
}

static bool string_is(gguf_string s, const char *expected) {
    return s.n == strlen(expected) && memcmp(s.bytes, expected, (size_t)s.n) == 0;
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

#define ADD_SCALARS(w, T, type, name, ...) \
    do { \
        const T list_[] = {__VA_ARGS__}; \
        char key_[32]; \
        for (size_t i_ = 0; i_ < BASE_ARRAY_LEN(list_); i_++) { \
            snprintf(key_, sizeof key_, name "%zu", i_); \
            gguf_writer_scalar(w, key_, type, &list_[i_]); \
        } \
    } while (0)

static void expect_integer(const gguf_file *f, const char *key, bool fits_u64, uint64_t u, bool fits_i64, int64_t s) {
    uint64_t got_u = 77;
    int64_t got_s = 77;
    assert_int_equal(gguf_get_u64(f, key, &got_u), fits_u64);
    assert_true(got_u == (fits_u64 ? u : 77));
    assert_int_equal(gguf_get_i64(f, key, &got_s), fits_i64);
    assert_true(got_s == (fits_i64 ? s : 77));
}

static void every_integer_type_is_read(void **state) {
    (void)state;
    gguf_writer *w = gguf_writer_new(3, 0);
    ADD_SCALARS(w, uint8_t, GGUF_U8, "u8.", 0, 255);
    ADD_SCALARS(w, int8_t, GGUF_I8, "i8.", 127, -1, INT8_MIN);
    ADD_SCALARS(w, uint16_t, GGUF_U16, "u16.", 65535);
    ADD_SCALARS(w, int16_t, GGUF_I16, "i16.", INT16_MAX, INT16_MIN);
    ADD_SCALARS(w, uint32_t, GGUF_U32, "u32.", UINT32_MAX);
    ADD_SCALARS(w, int32_t, GGUF_I32, "i32.", INT32_MAX, INT32_MIN);
    ADD_SCALARS(w, uint64_t, GGUF_U64, "u64.", INT64_MAX, UINT64_MAX);
    ADD_SCALARS(w, int64_t, GGUF_I64, "i64.", INT64_MAX, INT64_MIN, -1);
    opened o = reopen(w);
    expect_integer(o.f, "u8.0", true, 0, true, 0);
    expect_integer(o.f, "u8.1", true, 255, true, 255);
    expect_integer(o.f, "i8.0", true, 127, true, 127);
    expect_integer(o.f, "i8.1", false, 0, true, -1);
    expect_integer(o.f, "i8.2", false, 0, true, INT8_MIN);
    expect_integer(o.f, "u16.0", true, 65535, true, 65535);
    expect_integer(o.f, "i16.0", true, INT16_MAX, true, INT16_MAX);
    expect_integer(o.f, "i16.1", false, 0, true, INT16_MIN);
    expect_integer(o.f, "u32.0", true, UINT32_MAX, true, UINT32_MAX);
    expect_integer(o.f, "i32.0", true, INT32_MAX, true, INT32_MAX);
    expect_integer(o.f, "i32.1", false, 0, true, INT32_MIN);
    expect_integer(o.f, "u64.0", true, INT64_MAX, true, INT64_MAX);
    expect_integer(o.f, "u64.1", true, UINT64_MAX, false, 0);
    expect_integer(o.f, "i64.0", true, INT64_MAX, true, INT64_MAX);
    expect_integer(o.f, "i64.1", false, 0, true, INT64_MIN);
    expect_integer(o.f, "i64.2", false, 0, true, -1);
    expect_integer(o.f, "absent", false, 0, false, 0);
    close_opened(&o);
}

static void floats_booleans_and_strings_are_read(void **state) {
    (void)state;
    gguf_writer *w = gguf_writer_new(3, 0);
    double third = 1.0 / 3.0, d = 0;
    bool b = false;
    gguf_string s;
    gguf_writer_f32(w, "f32", -0.1f);
    gguf_writer_scalar(w, "f64", GGUF_F64, &third);
    gguf_writer_bool(w, "yes", true);
    gguf_writer_bool(w, "no", false);
    gguf_writer_string(w, "text", "caf\xc3\xa9");
    gguf_writer_string(w, "empty", "");
    opened o = reopen(w);
    assert_true(gguf_get_f64(o.f, "f32", &d) && d == (double)-0.1f);
    assert_true(gguf_get_f64(o.f, "f64", &d) && d == third);
    assert_true(gguf_get_bool(o.f, "yes", &b) && b);
    assert_true(gguf_get_bool(o.f, "no", &b) && !b);
    assert_true(gguf_get_string(o.f, "text", &s) && string_is(s, "caf\xc3\xa9"));
    assert_true(gguf_get_string(o.f, "empty", &s) && s.n == 0);
    close_opened(&o);
}

/* A getter of another type reports the key as absent and leaves *out unchanged. */
static void a_value_of_another_type_is_absent(void **state) {
    (void)state;
    gguf_writer *w = gguf_writer_new(3, 0);
    uint64_t u = 5;
    int64_t i = 5;
    double d = 5;
    bool b = true;
    gguf_string s = {"untouched", 9};
    gguf_array a = {.n = 5};
    gguf_writer_bool(w, "bool", false);
    gguf_writer_u32(w, "u32", 1);
    gguf_writer_string(w, "string", "1");
    gguf_writer_array(w, "array", GGUF_U8, "\1", 1);
    gguf_writer_f32(w, "f32", 1.0f);
    opened o = reopen(w);
    const char *const not_numbers[] = {"bool", "string", "array", "f32", "absent", ""};
    for (size_t k = 0; k < BASE_ARRAY_LEN(not_numbers); k++) {
        assert_false(gguf_get_u64(o.f, not_numbers[k], &u));
        assert_false(gguf_get_i64(o.f, not_numbers[k], &i));
    }
    assert_false(gguf_get_f64(o.f, "u32", &d));
    assert_false(gguf_get_f64(o.f, "string", &d));
    assert_false(gguf_get_bool(o.f, "u32", &b));
    assert_false(gguf_get_string(o.f, "array", &s));
    assert_false(gguf_get_array(o.f, "string", &a));
    assert_true(u == 5 && i == 5 && d == 5 && b && string_is(s, "untouched") && a.n == 5);
    assert_true(gguf_has(o.f, "array") && !gguf_has(o.f, "arra") && !gguf_has(o.f, "array "));
    close_opened(&o);
}

static void arrays_of_every_fixed_type_are_read(void **state) {
    (void)state;
    static const struct {
        gguf_value_type type;
        size_t size;
    } kinds[] = {
        {GGUF_U8, 1},
        {GGUF_I8, 1},
        {GGUF_U16, 2},
        {GGUF_I16, 2},
        {GGUF_U32, 4},
        {GGUF_I32, 4},
        {GGUF_F32, 4},
        {GGUF_BOOL, 1},
        {GGUF_U64, 8},
        {GGUF_I64, 8},
        {GGUF_F64, 8},
    };
    uint8_t bytes[8 * 100];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i & 1; /* booleans as well as anything else */
    for (size_t k = 0; k < BASE_ARRAY_LEN(kinds); k++) {
        for (size_t n = 0; n <= 100; n += 25) {
            gguf_writer *w = gguf_writer_new(3, 0);
            gguf_writer_array(w, "a", kinds[k].type, bytes, n);
            gguf_writer_u32(w, "after", 42);
            opened o = reopen(w);
            gguf_array a = {0};
            uint64_t after = 0;
            assert_true(gguf_get_array(o.f, "a", &a));
            assert_true(a.type == kinds[k].type && a.n == n);
            assert_memory_equal(a.data, bytes, n * kinds[k].size);
            assert_true(gguf_get_u64(o.f, "after", &after) && after == 42);
            close_opened(&o);
        }
    }
}

static void arrays_of_strings_are_read(void **state) {
    (void)state;
    static const char *const texts[] = {"", "a", "", "two words", "\xe2\x96\x81the"};
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_writer_strings(w, "strings", texts, BASE_ARRAY_LEN(texts));
    gguf_writer_strings(w, "none", texts, 0);
    opened o = reopen(w);
    gguf_array a;
    gguf_string got[BASE_ARRAY_LEN(texts)];
    assert_true(gguf_get_array(o.f, "strings", &a));
    assert_true(a.type == GGUF_STRING && a.n == BASE_ARRAY_LEN(texts));
    gguf_array_strings(&a, got);
    for (size_t i = 0; i < a.n; i++) assert_true(string_is(got[i], texts[i]));
    assert_true(gguf_get_array(o.f, "none", &a) && a.n == 0);
    gguf_array_strings(&a, got);
    close_opened(&o);
}

/* [[1, 2], []] as an array of arrays of U8: skipped, and the next key is read. */
static void nested_arrays_are_skipped(void **state) {
    (void)state;
    static const uint8_t nested[] = {9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,       /* 2 arrays */
                                     0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2, /* of 2 U8 */
                                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};      /* of none */
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_writer_raw(w, "nested", GGUF_ARRAY, nested, sizeof nested);
    gguf_writer_string(w, "after", "there");
    opened o = reopen(w);
    gguf_array a;
    gguf_string s;
    assert_true(gguf_has(o.f, "nested"));
    assert_false(gguf_get_array(o.f, "nested", &a));
    assert_true(gguf_get_string(o.f, "after", &s) && string_is(s, "there"));
    close_opened(&o);
}

static void keys_keep_the_order_of_the_file(void **state) {
    (void)state;
    static const char *const keys[] = {"b", "a", "c.long", "c", "aa"};
    gguf_writer *w = gguf_writer_new(2, 0);
    for (size_t i = 0; i < BASE_ARRAY_LEN(keys); i++) gguf_writer_u32(w, keys[i], (uint32_t)i);
    opened o = reopen(w);
    assert_int_equal(gguf_version(o.f), 2);
    assert_int_equal(gguf_n_metadata(o.f), BASE_ARRAY_LEN(keys));
    for (size_t i = 0; i < BASE_ARRAY_LEN(keys); i++) {
        uint64_t v = 99;
        assert_true(string_is(gguf_metadata_key(o.f, i), keys[i]));
        assert_true(gguf_get_u64(o.f, keys[i], &v) && v == i);
    }
    assert_int_equal(gguf_metadata_key(o.f, BASE_ARRAY_LEN(keys)).n, 0);
    close_opened(&o);
}

static void a_name_may_have_256_bytes(void **state) {
    (void)state;
    char name[GGUF_MAX_NAME + 1];
    memset(name, 'n', GGUF_MAX_NAME);
    name[GGUF_MAX_NAME] = '\0';
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_writer_u32(w, name, 1);
    gguf_writer_tensor(w, name, KERNEL_F32, 1, (int64_t[]){1}, (float[]){2.0f});
    opened o = reopen(w);
    assert_true(gguf_has(o.f, name));
    assert_non_null(gguf_find_tensor(o.f, name));
    close_opened(&o);
}

static void a_name_with_a_nul_is_refused(void **state) {
    (void)state;
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_writer_u32(w, "a.key", 1);
    uint8_t *data;
    size_t bytes;
    gguf_file *f = NULL;
    rp_error err = {0};
    assert_int_equal(gguf_writer_save_memory(w, &data, &bytes, &err), 0);
    gguf_writer_free(w);
    assert_memory_equal(data + 24 + 8, "a.key", 5);
    data[24 + 8 + 1] = '\0';
    assert_int_equal(gguf_open_memory(&f, data, bytes, "memory.gguf", &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "NUL"));
    assert_null(f);
    base_free(data);
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static const kernel_type tensor_types[] = {
#define X(name, number, block, bytes) KERNEL_##name,
    KERNEL_TYPES(X)
#undef X
};

static void every_tensor_type_round_trips(void **state) {
    (void)state;
    enum { N = 512,
           ROWS = 3 };
    static float data[N * ROWS];
    static uint8_t expected[N * ROWS * 4];
    tiny_random r = {1};
    for (size_t i = 0; i < BASE_ARRAY_LEN(data); i++) data[i] = tiny_random_normal(&r);
    gguf_writer *w = gguf_writer_new(3, 0);
    for (size_t i = 0; i < BASE_ARRAY_LEN(tensor_types); i++)
        gguf_writer_tensor(w, kernel_type_name(tensor_types[i]), tensor_types[i], 2, (int64_t[]){N, ROWS}, data);
    opened o = reopen(w);
    assert_int_equal(gguf_n_tensors(o.f), BASE_ARRAY_LEN(tensor_types));
    for (size_t i = 0; i < BASE_ARRAY_LEN(tensor_types); i++) {
        kernel_type type = tensor_types[i];
        const gguf_tensor *t = gguf_find_tensor(o.f, kernel_type_name(type));
        assert_ptr_equal(t, gguf_tensor_at(o.f, i));
        assert_true(t->type == type && t->n_dims == 2);
        assert_true(t->dims[0] == N && t->dims[1] == ROWS && t->dims[2] == 1 && t->dims[3] == 1);
        assert_int_equal(t->bytes, ROWS * kernel_row_bytes(type, N));
        kernel_quantize(type, data, expected, N * ROWS); /* rows are whole blocks, so they may be taken as one */
        assert_memory_equal(t->data, expected, (size_t)t->bytes);
    }
    assert_null(gguf_tensor_at(o.f, BASE_ARRAY_LEN(tensor_types)));
    close_opened(&o);
}

static void tensors_have_one_to_four_dimensions(void **state) {
    (void)state;
    static const int64_t dims[] = {5, 2, 3, 4};
    static float data[120];
    for (size_t i = 0; i < BASE_ARRAY_LEN(data); i++) data[i] = (float)i;
    gguf_writer *w = gguf_writer_new(3, 0);
    for (int n = 1; n <= 4; n++) gguf_writer_tensor(w, (char[]){(char)('0' + n), '\0'}, KERNEL_F32, n, dims, data);
    opened o = reopen(w);
    uint64_t elements = 1;
    for (int n = 1; n <= 4; n++) {
        const gguf_tensor *t = gguf_find_tensor(o.f, (char[]){(char)('0' + n), '\0'});
        elements *= (uint64_t)dims[n - 1];
        assert_int_equal(t->n_dims, n);
        for (int d = 0; d < GGUF_MAX_DIMS; d++) assert_int_equal(t->dims[d], d < n ? dims[d] : 1);
        assert_int_equal(t->bytes, elements * sizeof(float));
        assert_memory_equal(t->data, data, (size_t)t->bytes);
    }
    close_opened(&o);
}

static void data_starts_at_the_files_alignment(void **state) {
    (void)state;
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        gguf_writer *w = gguf_writer_new(3, alignment);
        gguf_writer_tensor(w, "a", KERNEL_F32, 1, (int64_t[]){3}, (float[]){1, 2, 3});
        gguf_writer_tensor(w, "b", KERNEL_F16, 1, (int64_t[]){3}, (float[]){4, 5, 6});
        opened o = reopen(w);
        float b[3];
        for (size_t i = 0; i < 2; i++) {
            const gguf_tensor *t = gguf_tensor_at(o.f, i);
            assert_int_equal((size_t)((const uint8_t *)t->data - o.data) % alignment, 0);
        }
        kernel_dequantize(KERNEL_F16, gguf_find_tensor(o.f, "b")->data, b, 3);
        assert_true(b[0] == 4 && b[1] == 5 && b[2] == 6);
        close_opened(&o);
    }
}

static void names_are_found_among_many(void **state) {
    (void)state;
    enum { N = 1000 };
    gguf_writer *w = gguf_writer_new(3, 0);
    char name[32];
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%u.weight", i * 7919u % N);
        gguf_writer_tensor(w, name, KERNEL_F32, 1, (int64_t[]){1}, (float[]){(float)(i * 7919u % N)});
        gguf_writer_u32(w, name, i);
    }
    opened o = reopen(w);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t v = N;
        snprintf(name, sizeof name, "blk.%u.weight", i);
        assert_true(*(const float *)gguf_find_tensor(o.f, name)->data == (float)i);
        assert_true(gguf_get_u64(o.f, name, &v) && v * 7919u % N == i);
    }
    assert_null(gguf_find_tensor(o.f, "blk.1000.weight"));
    assert_null(gguf_find_tensor(o.f, "blk.1.weigh"));
    assert_null(gguf_find_tensor(o.f, ""));
    close_opened(&o);
}

/* Rows made while saving: byte k of the tensor is k % 251. */
static int fill_counting(void *arg, int64_t row, int64_t n_rows, void *dst) {
    size_t row_bytes = *(const size_t *)arg;
    for (size_t i = 0; i < (size_t)n_rows * row_bytes; i++)
        ((uint8_t *)dst)[i] = (uint8_t)(((size_t)row * row_bytes + i) % 251);
    return RP_OK;
}

static void tensors_larger_than_a_piece_are_filled_in_order(void **state) {
    (void)state;
    size_t row_bytes = (size_t)kernel_row_bytes(KERNEL_Q8_0, 4096);
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_writer_tensor_fill(w, "filled", KERNEL_Q8_0, 2, (int64_t[]){4096, 2500}, fill_counting, &row_bytes);
    opened o = reopen(w);
    const gguf_tensor *t = gguf_find_tensor(o.f, "filled");
    assert_int_equal(t->bytes, 2500 * row_bytes);
    for (size_t i = 0; i < t->bytes; i++)
        if (((const uint8_t *)t->data)[i] != i % 251) fail_msg("byte %zu differs", i);
    close_opened(&o);
}

/* Without tensors nothing has to follow the header, not even padding. */
static void a_vocabulary_alone_is_a_file(void **state) {
    (void)state;
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_writer_u32(w, "only", 1);
    opened o = reopen(w);
    size_t header_bytes;
    gguf_file *f;
    assert_ptr_equal(gguf_header(o.f, 0, &header_bytes), o.data);
    assert_int_equal(header_bytes, 24 + 8 + 4 + 4 + 4);
    assert_int_equal(gguf_n_tensors(o.f), 0);
    assert_int_equal(gguf_open_memory(&f, o.data, header_bytes, "cut", NULL), 0);
    gguf_close(f);
    close_opened(&o);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static void a_file_is_mapped_and_named(void **state) {
    (void)state;
    char path[] = "/tmp/reprise-gguf-XXXXXX";
    int fd = mkstemp(path);
    gguf_writer *w = gguf_writer_new(3, 0);
    gguf_file *f;
    rp_error err = {0};
    assert_true(fd >= 0);
    close(fd);
    gguf_writer_tensor(w, "t", KERNEL_F32, 1, (int64_t[]){2}, (float[]){1.5f, -2.5f});
    assert_int_equal(gguf_writer_save(w, path, &err), 0);
    gguf_writer_free(w);
    assert_int_equal(gguf_open(&f, path, &err), 0);
    assert_string_equal(gguf_name(f), path);
    assert_true(((const float *)gguf_find_tensor(f, "t")->data)[1] == -2.5f);
    gguf_close(f);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(gguf_open(&f, path, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, path));
    assert_null(f);
    remove(path);
}

static void what_cannot_be_opened_is_an_io_error(void **state) {
    (void)state;
    gguf_file *f;
    rp_error err = {0};
    assert_int_equal(gguf_open(&f, "/nonexistent/model.gguf", &err), RP_ERR_IO);
    assert_non_null(strstr(err.message, "/nonexistent/model.gguf"));
    assert_null(f);
    assert_int_equal(gguf_open(&f, "/tmp", &err), RP_ERR_IO);
    assert_null(f);
    assert_int_equal(gguf_open(&f, "/tmp", NULL), RP_ERR_IO);
    gguf_close(NULL);
}

static gguf_file *open_shared(const char *part) {
    const char *folder = getenv("REPRISE_TEST_DATA");
    char path[1024];
    gguf_file *f;
    rp_error err = {0};
    if (!folder) {
        print_message("REPRISE_TEST_DATA is not set\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/%s", folder, part);
    if (access(path, R_OK)) {
        print_message("%s is not there\n", path);
        skip();
    }
    if (gguf_open(&f, path, &err)) fail_msg("%s", err.message);
    return f;
}

static void a_real_model_is_read(void **state) {
    (void)state;
    gguf_file *f = open_shared("models/stories260K.gguf");
    gguf_string architecture;
    gguf_array tokens;
    uint64_t layers = 0, embd = 0, vocab;
    assert_true(gguf_get_string(f, "general.architecture", &architecture) && string_is(architecture, "llama"));
    assert_true(gguf_get_u64(f, "llama.block_count", &layers) && layers == 5);
    assert_true(gguf_get_u64(f, "llama.embedding_length", &embd) && embd == 64);
    assert_true(gguf_get_array(f, "tokenizer.ggml.tokens", &tokens) && tokens.type == GGUF_STRING && tokens.n == 512);
    vocab = tokens.n;
    const gguf_tensor *t = gguf_find_tensor(f, "token_embd.weight");
    assert_non_null(t);
    assert_true(t->type == KERNEL_F32 && t->dims[0] == (int64_t)embd && t->dims[1] == (int64_t)vocab);
    for (uint64_t l = 0; l < layers; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", (unsigned)l);
        assert_non_null(gguf_find_tensor(f, name));
    }
    gguf_close(f);
}

static void real_vocabularies_are_read(void **state) {
    (void)state;
    static const struct {
        const char *file;
        const char *model;
        uint64_t n, merges;
    } vocabularies[] = {
        {"ggml-vocab-gpt-2.gguf", "gpt2", 50257, 50000},
        {"ggml-vocab-falcon.gguf", "gpt2", 65024, 64784},
        {"ggml-vocab-llama-spm.gguf", "llama", 32000, 0},
        {"ggml-vocab-phi-3.gguf", "llama", 32064, 0},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(vocabularies); i++) {
        char part[64];
        gguf_string model;
        gguf_array tokens, merges;
        snprintf(part, sizeof part, "vocab/%s", vocabularies[i].file);
        gguf_file *f = open_shared(part);
        assert_true(gguf_get_string(f, "tokenizer.ggml.model", &model) && string_is(model, vocabularies[i].model));
        assert_true(gguf_get_array(f, "tokenizer.ggml.tokens", &tokens));
        assert_int_equal(tokens.n, vocabularies[i].n);
        gguf_string *texts = calloc((size_t)tokens.n, sizeof *texts);
        gguf_array_strings(&tokens, texts);
        for (size_t k = 0; k < tokens.n; k++) assert_true(texts[k].n > 0 && texts[k].n < 1000);
        free(texts);
        assert_int_equal(gguf_get_array(f, "tokenizer.ggml.merges", &merges), vocabularies[i].merges > 0);
        if (vocabularies[i].merges) assert_int_equal(merges.n, vocabularies[i].merges);
        assert_int_equal(gguf_n_tensors(f), 0);
        gguf_close(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_integer_type_is_read),
        cmocka_unit_test(floats_booleans_and_strings_are_read),
        cmocka_unit_test(a_value_of_another_type_is_absent),
        cmocka_unit_test(arrays_of_every_fixed_type_are_read),
        cmocka_unit_test(arrays_of_strings_are_read),
        cmocka_unit_test(nested_arrays_are_skipped),
        cmocka_unit_test(keys_keep_the_order_of_the_file),
        cmocka_unit_test(a_name_may_have_256_bytes),
        cmocka_unit_test(a_name_with_a_nul_is_refused),
        cmocka_unit_test(every_tensor_type_round_trips),
        cmocka_unit_test(tensors_have_one_to_four_dimensions),
        cmocka_unit_test(data_starts_at_the_files_alignment),
        cmocka_unit_test(names_are_found_among_many),
        cmocka_unit_test(tensors_larger_than_a_piece_are_filled_in_order),
        cmocka_unit_test(a_vocabulary_alone_is_a_file),
        cmocka_unit_test(a_file_is_mapped_and_named),
        cmocka_unit_test(what_cannot_be_opened_is_an_io_error),
        cmocka_unit_test(a_real_model_is_read),
        cmocka_unit_test(real_vocabularies_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
