/* SPDX-License-Identifier: Apache-2.0 */
/* test_gguf_damage.c: malformed GGUF files. Each is refused with the right code and a message with the error and its
 * place; nothing is read outside the bytes (they are in a block of exactly their size, for the sanitizers). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "model/gguf/gguf.h"
#include "model/gguf/gguf_writer.h"
#include "support/seed.h"
#include "support/tiny_random.h"

/* ---- a file, byte by byte -------------------------------------------------------------------------------------- */

typedef struct raw {
    uint8_t bytes[8192];
    size_t n;
} raw;

static void put(raw *r, const void *bytes, size_t n) {
    assert_true(r->n + n <= sizeof r->bytes);
    if (n) memcpy(r->bytes + r->n, bytes, n);
    r->n += n;
}

static void put_u32(raw *r, uint32_t v) { put(r, &v, sizeof v); }
static void put_u64(raw *r, uint64_t v) { put(r, &v, sizeof v); }

static void put_string(raw *r, const char *s) {
    put_u64(r, strlen(s));
    put(r, s, strlen(s));
}

static void put_zeros(raw *r, size_t n) {
    for (size_t i = 0; i < n; i++) put(r, "", 1);
}

static raw header(uint64_t n_tensors, uint64_t n_metadata) {
    raw r = {.n = 0};
    put(&r, "GGUF", 4);
    put_u32(&r, 3);
    put_u64(&r, n_tensors);
    put_u64(&r, n_metadata);
    return r;
}

static void put_key(raw *r, const char *key, uint32_t type) {
    put_string(r, key);
    put_u32(r, type);
}

static void put_tensor(raw *r, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    put_string(r, name);
    put_u32(r, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) put_u64(r, dims[i]);
    put_u32(r, type);
    put_u64(r, offset);
}

/* The padding and n bytes of data. */
static void put_data(raw *r, size_t n) { put_zeros(r, (32 - r->n % 32) % 32 + n); }

/* Opens a copy in a block of exactly its size, which is returned in *block. */
static int open_copy(gguf_file **f, const void *bytes, size_t n, uint8_t **block, rp_error *err) {
    *block = malloc(n ? n : 1);
    assert_non_null(*block);
    if (n) memcpy(*block, bytes, n);
    return gguf_open_memory(f, *block, n, "test.gguf", err);
}

#define ANY_OFFSET UINT64_MAX

static void expect_refused(const raw *r, rp_code code, uint64_t offset, const char *message) {
    gguf_file *f = (gguf_file *)(uintptr_t)1;
    rp_error err = {0};
    uint8_t *block;
    int rc = open_copy(&f, r->bytes, r->n, &block, &err);
    if (rc != (int)code) fail_msg("%d instead of %d: %s", rc, (int)code, err.message);
    assert_null(f);
    assert_int_equal(err.code, code);
    assert_int_equal(strncmp(err.where, "test.gguf: ", 11), 0);
    if (!strstr(err.message, message)) fail_msg("'%s' is not in: %s", message, err.message);
    if (offset != ANY_OFFSET) assert_int_equal(err.offset, offset);
    assert_int_equal(gguf_open_memory(&f, block, r->n, "test.gguf", NULL), code);
    free(block);
}

static void expect_opened(const raw *r) {
    gguf_file *f;
    rp_error err = {0};
    uint8_t *block;
    if (open_copy(&f, r->bytes, r->n, &block, &err)) fail_msg("%s", err.message);
    gguf_close(f);
    free(block);
}

/* ---- the header ------------------------------------------------------------------------------------------------ */

static void other_files_are_refused(void **state) {
    (void)state;
    raw r = {.n = 0};
    expect_refused(&r, RP_ERR_FORMAT, 0, "not a GGUF file");
    put(&r, "GGU", 3);
    expect_refused(&r, RP_ERR_FORMAT, 0, "not a GGUF file");
    put(&r, "X and more", 10);
    expect_refused(&r, RP_ERR_FORMAT, 0, "not a GGUF file");
}

static void other_versions_are_refused(void **state) {
    (void)state;
    static const uint32_t versions[] = {0, 1, 4, UINT32_MAX};
    for (size_t i = 0; i < BASE_ARRAY_LEN(versions); i++) {
        raw r = header(0, 0);
        memcpy(r.bytes + 4, &versions[i], 4);
        expect_refused(&r, RP_ERR_UNSUPPORTED, 4, "only 2 and 3");
    }
}

static void a_big_endian_file_is_named_so(void **state) {
    (void)state;
    raw r = header(0, 0);
    memcpy(r.bytes + 4, "\0\0\0\3", 4);
    expect_refused(&r, RP_ERR_UNSUPPORTED, 4, "big-endian");
}

/* Only the file and its name are allocated before a count is refused. */
static void absurd_counts_are_refused_before_allocating(void **state) {
    (void)state;
    static const uint64_t counts[] = {(uint64_t)1 << 40, UINT64_MAX, GGUF_MAX_TENSORS + 1, GGUF_MAX_TENSORS, 1000, 31};
    for (size_t i = 0; i < BASE_ARRAY_LEN(counts) * 2; i++) {
        bool tensors = i % 2 == 0;
        raw r = tensors ? header(counts[i / 2], 0) : header(0, counts[i / 2]);
        put_zeros(&r, 400);
        (void)base_alloc_count();
        expect_refused(&r, RP_ERR_FORMAT, tensors ? 8 : 16, counts[i / 2] > GGUF_MAX_TENSORS ? "limit" : "do not fit");
        assert_true(base_alloc_count() <= 4); /* it opens twice */
    }
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

static void keys_of_no_or_too_many_bytes_are_refused(void **state) {
    (void)state;
    char name[GGUF_MAX_NAME + 2];
    memset(name, 'k', GGUF_MAX_NAME + 1);
    name[GGUF_MAX_NAME + 1] = '\0';
    const char *const names[] = {"", name};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        raw r = header(0, 1);
        put_key(&r, names[i], GGUF_U32);
        put_u32(&r, 1);
        put_zeros(&r, 64);
        expect_refused(&r, RP_ERR_FORMAT, 24, "expected 1 to 256");
    }
}

static void lengths_beyond_the_file_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = {41, (uint64_t)1 << 40, INT64_MAX, UINT64_MAX, UINT64_MAX - 31};
    for (size_t i = 0; i < BASE_ARRAY_LEN(lengths); i++) {
        raw key = header(0, 1), value = header(0, 1);
        put_u64(&key, lengths[i]);
        put_zeros(&key, 40);
        expect_refused(&key, RP_ERR_FORMAT, 32, "truncated");
        put_key(&value, "key", GGUF_STRING);
        put_u64(&value, lengths[i]);
        put_zeros(&value, 40);
        expect_refused(&value, RP_ERR_FORMAT, 47, "test.gguf: key 'key'");
    }
}

static void unknown_value_types_are_refused(void **state) {
    (void)state;
    static const uint32_t types[] = {13, 255, UINT32_MAX};
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++) {
        raw scalar = header(0, 1), array = header(0, 1);
        put_key(&scalar, "key", types[i]);
        put_u64(&scalar, 0);
        expect_refused(&scalar, RP_ERR_FORMAT, 35, "unknown value type");
        put_key(&array, "key", GGUF_ARRAY);
        put_u32(&array, types[i]);
        put_u64(&array, 0);
        expect_refused(&array, RP_ERR_FORMAT, 39, "unknown value type");
    }
}

static void booleans_are_0_or_1(void **state) {
    (void)state;
    raw scalar = header(0, 1), array = header(0, 1);
    put_key(&scalar, "key", GGUF_BOOL);
    put(&scalar, "\2", 1);
    expect_refused(&scalar, RP_ERR_FORMAT, 39, "a boolean is 2");
    put_key(&array, "key", GGUF_ARRAY);
    put_u32(&array, GGUF_BOOL);
    put_u64(&array, 3);
    put(&array, "\0\1\xff", 3);
    expect_refused(&array, RP_ERR_FORMAT, 53, "a boolean is 255");
}

static void arrays_longer_than_the_file_are_refused(void **state) {
    (void)state;
    static const uint32_t types[] = {GGUF_U8, GGUF_F32, GGUF_U64, GGUF_STRING, GGUF_ARRAY};
    static const uint64_t lengths[] = {65, (uint64_t)1 << 61, (uint64_t)1 << 62, UINT64_MAX};
    for (size_t t = 0; t < BASE_ARRAY_LEN(types); t++) {
        for (size_t i = 0; i < BASE_ARRAY_LEN(lengths); i++) {
            raw r = header(0, 1);
            put_key(&r, "key", GGUF_ARRAY);
            put_u32(&r, types[t]);
            put_u64(&r, lengths[i]);
            put_zeros(&r, 64);
            expect_refused(&r, RP_ERR_FORMAT, ANY_OFFSET, "not fit into a file of");
        }
    }
}

static void a_string_inside_an_array_ends_in_the_file(void **state) {
    (void)state;
    raw r = header(0, 1);
    put_key(&r, "key", GGUF_ARRAY);
    put_u32(&r, GGUF_STRING);
    put_u64(&r, 2);
    put_string(&r, "fine");
    put_u64(&r, 5);
    put(&r, "four", 4);
    expect_refused(&r, RP_ERR_FORMAT, 71, "needs 5 bytes");
}

static raw nested(int depth) {
    raw r = header(0, 1);
    put_key(&r, "key", GGUF_ARRAY);
    for (int i = 1; i < depth; i++) {
        put_u32(&r, GGUF_ARRAY);
        put_u64(&r, 1);
    }
    put_u32(&r, GGUF_U8);
    put_u64(&r, 0);
    return r;
}

static void arrays_are_nested_four_deep_at_most(void **state) {
    (void)state;
    for (int depth = 1; depth <= 400; depth += depth < 8 ? 1 : 49) {
        raw r = nested(depth);
        if (depth <= 4) expect_opened(&r);
        else expect_refused(&r, RP_ERR_FORMAT, 39 + 3 * 12, "nested more than 4 deep");
    }
}

static void a_damaged_nested_array_is_refused(void **state) {
    (void)state;
    raw r = nested(3);
    uint64_t n = 1;
    memcpy(r.bytes + r.n - 8, &n, 8);
    expect_refused(&r, RP_ERR_FORMAT, ANY_OFFSET, "not fit into a file of");
}

static void a_key_is_there_once(void **state) {
    (void)state;
    raw r = header(0, 3);
    put_key(&r, "twice", GGUF_U8);
    put(&r, "\1", 1);
    put_key(&r, "other", GGUF_U8);
    put(&r, "\1", 1);
    put_key(&r, "twice", GGUF_STRING);
    put_string(&r, "");
    expect_refused(&r, RP_ERR_FORMAT, 24 + 2 * 18 + 8, "key 'twice': is duplicate (entries 0 and 2)");
}

static void alignments_other_than_powers_of_two_are_refused(void **state) {
    (void)state;
    static const uint32_t alignments[] = {0, 1, 4, 7, 24, 33, (uint32_t)1 << 25, (uint32_t)1 << 31, UINT32_MAX};
    for (size_t i = 0; i < BASE_ARRAY_LEN(alignments); i++) {
        raw r = header(0, 1);
        put_key(&r, "general.alignment", GGUF_U32);
        put_u32(&r, alignments[i]);
        expect_refused(&r, RP_ERR_FORMAT, 53, "key 'general.alignment'");
    }
}

static void the_alignment_is_an_unsigned_integer(void **state) {
    (void)state;
    raw text = header(0, 1), negative = header(0, 1);
    put_key(&text, "general.alignment", GGUF_STRING);
    put_string(&text, "32");
    expect_refused(&text, RP_ERR_FORMAT, ANY_OFFSET, "not an unsigned integer");
    put_key(&negative, "general.alignment", GGUF_I32);
    put_u32(&negative, (uint32_t)-32);
    expect_refused(&negative, RP_ERR_FORMAT, ANY_OFFSET, "not an unsigned integer");
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static void expect_tensor_refused(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset, rp_code code,
                                  const char *message) {
    raw r = header(1, 0);
    put_tensor(&r, "name", n_dims, dims, type, offset);
    put_data(&r, 256);
    expect_refused(&r, code, ANY_OFFSET, message);
}

static void tensors_have_one_to_four_dimensions(void **state) {
    (void)state;
    static const uint64_t dims[GGUF_MAX_DIMS + 1] = {1, 1, 1, 1, 1};
    expect_tensor_refused(0, dims, KERNEL_F32, 0, RP_ERR_FORMAT, "tensor 'name': has 0 dimensions, expected 1 to 4");
    expect_tensor_refused(5, dims, KERNEL_F32, 0, RP_ERR_FORMAT, "has 5 dimensions");
    raw r = header(1, 0);
    put_string(&r, "name");
    put_u32(&r, UINT32_MAX);
    put_zeros(&r, 64);
    expect_refused(&r, RP_ERR_FORMAT, 36, "has 4294967295 dimensions");
}

static void dimensions_are_positive(void **state) {
    (void)state;
    static const uint64_t bad[] = {0, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < BASE_ARRAY_LEN(bad); i++)
        for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
            uint64_t dims[GGUF_MAX_DIMS] = {32, 1, 1, 1};
            dims[d] = bad[i];
            expect_tensor_refused(GGUF_MAX_DIMS, dims, KERNEL_F32, 0, RP_ERR_FORMAT, "expected 1 or more");
        }
}

/* Products that wrap around 64 bits to something small or to zero. */
static void products_of_dimensions_do_not_wrap(void **state) {
    (void)state;
    static const uint64_t dims[][GGUF_MAX_DIMS] = {
        {(uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1},
        {(uint64_t)1 << 62, 4, 1, 1},
        {32, INT64_MAX, INT64_MAX, INT64_MAX},
        {(uint64_t)1 << 62, 1, 1, 1},
        {INT64_MAX / 32 * 32, 1, 1, 1},
        {(uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16},
        {32, 1, 1, ((uint64_t)1 << 59) + 1},
    };
    static const uint32_t types[] = {KERNEL_F32, KERNEL_F16, KERNEL_Q8_0};
    for (size_t i = 0; i < BASE_ARRAY_LEN(dims); i++)
        for (size_t t = 0; t < BASE_ARRAY_LEN(types); t++)
            expect_tensor_refused(GGUF_MAX_DIMS, dims[i], types[t], 0, RP_ERR_FORMAT, "more than the file's");
}

static void rows_are_whole_blocks(void **state) {
    (void)state;
    expect_tensor_refused(1, (uint64_t[]){33}, KERNEL_Q8_0, 0, RP_ERR_FORMAT, "not whole blocks of 32 (Q8_0)");
    expect_tensor_refused(1, (uint64_t[]){31}, KERNEL_Q4_0, 0, RP_ERR_FORMAT, "not whole blocks of 32 (Q4_0)");
    expect_tensor_refused(2, (uint64_t[]){128, 2}, KERNEL_Q4_K, 0, RP_ERR_FORMAT, "not whole blocks of 256 (Q4_K)");
    expect_tensor_refused(1, (uint64_t[]){255}, KERNEL_Q6_K, 0, RP_ERR_FORMAT, "not whole blocks of 256 (Q6_K)");
}

static void unsupported_types_are_named(void **state) {
    (void)state;
    static const uint64_t dims[] = {256};
    expect_tensor_refused(1, dims, 16, 0, RP_ERR_UNSUPPORTED, "tensor 'name': tensor type 16 (IQ2_XXS)");
    expect_tensor_refused(
        1, dims, 16, 0, RP_ERR_UNSUPPORTED,
        "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, MXFP4");
    expect_tensor_refused(1, dims, 34, 0, RP_ERR_UNSUPPORTED, "type 34 (TQ1_0)");
    expect_tensor_refused(1, dims, KERNEL_TYPE_END, 0, RP_ERR_UNSUPPORTED, "type 64 (unknown");
    expect_tensor_refused(1, dims, UINT32_MAX, 0, RP_ERR_UNSUPPORTED, "type 4294967295 (unknown");
}

static void data_lies_in_the_file(void **state) {
    (void)state;
    static const uint64_t offsets[] = {32 + 160, 256, 288, (uint64_t)1 << 40, UINT64_MAX - 31, (uint64_t)INT64_MAX + 1};
    for (size_t i = 0; i < BASE_ARRAY_LEN(offsets); i++)
        expect_tensor_refused(1, (uint64_t[]){32}, KERNEL_F32, offsets[i], RP_ERR_FORMAT,
                              "beyond the file's last byte");
}

/* The last byte is missing; also with a file that ends before the data begins. */
static void data_that_is_cut_short_is_refused(void **state) {
    (void)state;
    raw r = header(1, 0);
    put_tensor(&r, "name", 1, (uint64_t[]){32}, KERNEL_F32, 0);
    size_t header_end = r.n;
    put_data(&r, 128);
    expect_opened(&r);
    for (r.n--; r.n >= header_end; r.n--) expect_refused(&r, RP_ERR_FORMAT, ANY_OFFSET, r.n < 128 ? "" : "truncated");
}

static void offsets_are_aligned(void **state) {
    (void)state;
    for (uint64_t offset = 1; offset < 32; offset++)
        expect_tensor_refused(1, (uint64_t[]){8}, KERNEL_F32, offset, RP_ERR_FORMAT,
                              "not a multiple of the alignment 32");
}

static raw two_tensors(const char *a, uint64_t offset_a, const char *b, uint64_t offset_b) {
    raw r = header(2, 0);
    put_tensor(&r, a, 1, (uint64_t[]){16}, KERNEL_F32, offset_a);
    put_tensor(&r, b, 1, (uint64_t[]){16}, KERNEL_F32, offset_b);
    put_data(&r, 128);
    return r;
}

static void a_tensor_is_there_once(void **state) {
    (void)state;
    raw r = two_tensors("same", 0, "same", 64);
    expect_refused(&r, RP_ERR_FORMAT, ANY_OFFSET, "tensor 'same': is duplicate (entries 0 and 1)");
}

static void tensors_do_not_share_bytes(void **state) {
    (void)state;
    raw apart = two_tensors("a", 64, "b", 0), same = two_tensors("a", 64, "b", 64), half = two_tensors("a", 0, "b", 32);
    expect_opened(&apart);
    expect_refused(&same, RP_ERR_FORMAT, ANY_OFFSET, "overlaps that of tensor");
    expect_refused(&half, RP_ERR_FORMAT, ANY_OFFSET, "tensor 'b': its data overlaps that of tensor 'a'");
}

static void tensor_names_have_1_to_256_bytes(void **state) {
    (void)state;
    char name[GGUF_MAX_NAME + 2];
    memset(name, 't', GGUF_MAX_NAME + 1);
    name[GGUF_MAX_NAME + 1] = '\0';
    const char *const names[] = {"", name};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        raw r = header(1, 0);
        put_tensor(&r, names[i], 1, (uint64_t[]){1}, KERNEL_F32, 0);
        put_data(&r, 4);
        expect_refused(&r, RP_ERR_FORMAT, 24, "expected 1 to 256");
    }
}

/* A name from the file cannot control the terminal or break the message's line. */
static void names_are_shown_safely(void **state) {
    (void)state;
    char name[GGUF_MAX_NAME + 1];
    memset(name, 0x1b, GGUF_MAX_NAME);
    name[GGUF_MAX_NAME] = '\0';
    raw r = header(1, 0);
    put_tensor(&r, name, 1, (uint64_t[]){33}, KERNEL_Q8_0, 0);
    put_data(&r, 64);
    gguf_file *f;
    rp_error err = {0};
    uint8_t *block;
    assert_int_equal(open_copy(&f, r.bytes, r.n, &block, &err), RP_ERR_FORMAT);
    assert_null(strchr(err.message, 0x1b));
    assert_null(strchr(err.where, 0x1b));
    assert_non_null(strstr(err.message, "not whole blocks"));
    free(block);
}

static void the_end_of_a_long_path_is_shown(void **state) {
    (void)state;
    char path[600];
    memset(path, 'p', sizeof path);
    memcpy(path + sizeof path - 12, "/model.gguf", 12);
    gguf_file *f;
    rp_error err = {0};
    assert_int_equal(gguf_open_memory(&f, "GGUF", 4, path, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.where, "p/model.gguf: header"));
    assert_int_equal(strncmp(err.where, "...ppp", 6), 0);
}

/* ---- every byte ------------------------------------------------------------------------------------------------ */

/* A small file with every kind of content. */
static uint8_t *small_file(size_t *bytes) {
    static const char *const strings[] = {"one", "", "three"};
    static const uint8_t inner[] = {9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2};
    float data[64];
    uint8_t *out;
    for (int i = 0; i < 64; i++) data[i] = (float)i;
    gguf_writer *w = gguf_writer_new(3, 16);
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_bool(w, "b", true);
    gguf_writer_f32(w, "f", 0.5f);
    gguf_writer_strings(w, "s", strings, BASE_ARRAY_LEN(strings));
    gguf_writer_array(w, "a", GGUF_I32, data, 5);
    gguf_writer_raw(w, "n", GGUF_ARRAY, inner, sizeof inner);
    gguf_writer_tensor(w, "x", KERNEL_F32, 2, (int64_t[]){3, 5}, data);
    gguf_writer_tensor(w, "y", KERNEL_Q8_0, 2, (int64_t[]){32, 2}, data);
    assert_int_equal(gguf_writer_save_memory(w, &out, bytes, NULL), 0);
    gguf_writer_free(w);
    return out;
}

/* Uses everything that the reader returns, and sums it up. */
static uint64_t sum_bytes(uint64_t sum, const void *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) sum = sum * 31 + ((const uint8_t *)p)[i];
    return sum * 31 + n;
}

static uint64_t sum_array(uint64_t sum, const gguf_array *a) {
    static const size_t sizes[GGUF_VALUE_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (a->type != GGUF_STRING) return sum_bytes(sum, a->data, a->n * sizes[a->type]);
    gguf_string *strings = calloc((size_t)a->n + 1, sizeof *strings);
    assert_non_null(strings);
    gguf_array_strings(a, strings);
    for (uint64_t i = 0; i < a->n; i++) sum = sum_bytes(sum, strings[i].bytes, strings[i].n);
    free(strings);
    return sum;
}

static uint64_t sum_file(const gguf_file *f) {
    uint64_t sum = 0, u;
    for (size_t i = 0; i < gguf_n_metadata(f); i++) {
        gguf_string key = gguf_metadata_key(f, i), string;
        gguf_array array;
        char name[GGUF_MAX_NAME + 1];
        memcpy(name, key.bytes, (size_t)key.n);
        name[key.n] = '\0';
        sum = sum_bytes(sum, name, key.n);
        if (gguf_get_u64(f, name, &u)) sum += u;
        if (gguf_get_string(f, name, &string)) sum = sum_bytes(sum, string.bytes, string.n);
        if (gguf_get_array(f, name, &array)) sum = sum_array(sum, &array);
    }
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        sum = sum_bytes(sum, t->data, t->bytes);
    }
    return sum;
}

/* Either a clean refusal or, if only padding is missing, the same file. */
static void a_file_cut_at_any_byte_fails_or_is_the_same(void **state) {
    (void)state;
    size_t bytes, n_same = 0;
    uint8_t *whole = small_file(&bytes);
    uint64_t expected = 0;
    for (size_t n = bytes + 1; n-- > 0;) {
        gguf_file *f;
        rp_error err = {0};
        uint8_t *block;
        int rc = open_copy(&f, whole, n, &block, &err);
        if (n == bytes) {
            assert_int_equal(rc, 0);
            expected = sum_file(f);
        }
        if (rc) {
            assert_int_equal(rc, RP_ERR_FORMAT);
            assert_true(!f && err.message[0]);
        } else {
            n_same++;
            assert_true(sum_file(f) == expected);
        }
        gguf_close(f);
        free(block);
    }
    assert_true(n_same >= 1 && n_same <= 16); /* the padding at the end is below the alignment */
    base_free(whole);
}

static void try_damaged(const uint8_t *bytes, size_t n) {
    gguf_file *f;
    rp_error err = {0};
    uint8_t *block;
    int rc = open_copy(&f, bytes, n, &block, &err);
    if (rc) assert_true((rc == RP_ERR_FORMAT || rc == RP_ERR_UNSUPPORTED) && !f && err.message[0]);
    else (void)sum_file(f);
    gguf_close(f);
    free(block);
}

static void any_bit_may_be_wrong(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *file = small_file(&bytes);
    for (size_t i = 0; i < bytes * 8; i++) {
        file[i / 8] ^= (uint8_t)(1u << i % 8);
        try_damaged(file, bytes);
        file[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    base_free(file);
}

static void any_few_bytes_may_be_wrong(void **state) {
    (void)state;
    tiny_random r = {test_seed("gguf_damage", 20260102)};
    size_t bytes;
    uint8_t *file = small_file(&bytes), *copy = malloc(bytes);
    assert_non_null(copy);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, file, bytes);
        for (uint64_t k = tiny_random_below(&r, 4) + 1; k > 0; k--) {
            static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff};
            uint64_t v = tiny_random_u64(&r);
            copy[tiny_random_below(&r, bytes)] = v & 1 ? telling[(v >> 8) % sizeof telling] : (uint8_t)(v >> 8);
        }
        try_damaged(copy, bytes);
    }
    free(copy);
    base_free(file);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *file = small_file(&bytes);
    int failures = 0;
    for (uint64_t n = 1; n < 1000; n++) {
        gguf_file *f;
        rp_error err = {0};
        base_alloc_fail_at(n, n % 2 == 0);
        int rc = gguf_open_memory(&f, file, bytes, "test.gguf", &err);
        base_alloc_fail_at(0, 0);
        gguf_close(f);
        if (!rc) break;
        failures++;
        assert_int_equal(rc, RP_ERR_MEMORY);
        assert_int_equal(err.code, RP_ERR_MEMORY);
        assert_null(f);
    }
    assert_true(failures >= 6 && failures < 100);
    base_free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(a_big_endian_file_is_named_so),
        cmocka_unit_test(absurd_counts_are_refused_before_allocating),
        cmocka_unit_test(keys_of_no_or_too_many_bytes_are_refused),
        cmocka_unit_test(lengths_beyond_the_file_are_refused),
        cmocka_unit_test(unknown_value_types_are_refused),
        cmocka_unit_test(booleans_are_0_or_1),
        cmocka_unit_test(arrays_longer_than_the_file_are_refused),
        cmocka_unit_test(a_string_inside_an_array_ends_in_the_file),
        cmocka_unit_test(arrays_are_nested_four_deep_at_most),
        cmocka_unit_test(a_damaged_nested_array_is_refused),
        cmocka_unit_test(a_key_is_there_once),
        cmocka_unit_test(alignments_other_than_powers_of_two_are_refused),
        cmocka_unit_test(the_alignment_is_an_unsigned_integer),
        cmocka_unit_test(tensors_have_one_to_four_dimensions),
        cmocka_unit_test(dimensions_are_positive),
        cmocka_unit_test(products_of_dimensions_do_not_wrap),
        cmocka_unit_test(rows_are_whole_blocks),
        cmocka_unit_test(unsupported_types_are_named),
        cmocka_unit_test(data_lies_in_the_file),
        cmocka_unit_test(data_that_is_cut_short_is_refused),
        cmocka_unit_test(offsets_are_aligned),
        cmocka_unit_test(a_tensor_is_there_once),
        cmocka_unit_test(tensors_do_not_share_bytes),
        cmocka_unit_test(tensor_names_have_1_to_256_bytes),
        cmocka_unit_test(names_are_shown_safely),
        cmocka_unit_test(the_end_of_a_long_path_is_shown),
        cmocka_unit_test(a_file_cut_at_any_byte_fails_or_is_the_same),
        cmocka_unit_test(any_bit_may_be_wrong),
        cmocka_unit_test(any_few_bytes_may_be_wrong),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
