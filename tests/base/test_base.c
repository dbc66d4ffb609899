/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c: errors, memory, buffers, keys, files, the CPU mask. */
#define _POSIX_C_SOURCE 200809L /* setenv, mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

static void every_code_has_a_name_and_a_text(void **state) {
    (void)state;
#define X(name, value, text) \
    assert_string_equal(rp_code_name(RP_##name), "RP_" #name); \
    assert_string_equal(rp_code_text(RP_##name), text);
    RP_ERRORS(X)
#undef X
    assert_string_equal(rp_version(), RP_VERSION_STRING);
}

static void messages_carry_their_place(void **state) {
    (void)state;
    rp_error err;
    assert_int_equal(base_fail_at(&err, RP_ERR_SYNTAX, "a.xml:3:4", 17, "expected %s", "x"), RP_ERR_SYNTAX);
    assert_string_equal(err.message, "a.xml:3:4: expected x");
    assert_string_equal(err.where, "a.xml:3:4");
    assert_int_equal(err.offset, 17);
    assert_int_equal(base_fail(NULL, RP_ERR_NAME, "nobody listens"), RP_ERR_NAME);
    assert_int_equal(base_fail_memory(&err, 5, "a thing"), RP_ERR_MEMORY);
    char path[] = "/nowhere/at/all";
    base_buffer b = {0};
    assert_int_equal(base_file_read(path, 100, &b, &err), RP_ERR_IO);
    assert_non_null(strstr(err.message, path));
}

static void the_nth_allocation_fails(void **state) {
    (void)state;
    void *p[5];
    base_alloc_fail_at(3, 0);
    for (int i = 0; i < 5; i++) p[i] = base_alloc(8);
    for (int i = 0; i < 5; i++) assert_int_equal(p[i] == NULL, i == 2);
    base_alloc_fail_at(2, 1);
    void *first = base_alloc(8);
    assert_non_null(first);
    assert_null(base_calloc(2, 2));
    assert_null(base_realloc(NULL, 4));
    base_alloc_fail_at(0, 0);
    for (int i = 0; i < 5; i++) base_free(p[i]);
    base_free(first);
    assert_null(base_calloc(SIZE_MAX / 2, 3));
}

static void arrays_and_buffers_keep_their_caps(void **state) {
    (void)state;
    void *items = NULL;
    size_t cap = 0;
    assert_int_equal(base_grow(&items, &cap, 10, 20, 8), RP_OK);
    assert_true(cap >= 10 && cap <= 20);
    assert_int_equal(base_grow(&items, &cap, 21, 20, 8), RP_ERR_LIMIT);
    assert_int_equal(base_grow(&items, &cap, 20, 20, 8), RP_OK);
    base_free(items);
    base_buffer b = BASE_BUFFER(10);
    assert_int_equal(base_buffer_append_str(&b, "12345"), RP_OK);
    assert_int_equal(base_buffer_printf(&b, "%d", 678), RP_OK);
    assert_int_equal(base_buffer_append_str(&b, "abc"), RP_ERR_LIMIT);
    assert_string_equal(b.data, "12345678");
    assert_int_equal(b.len, 8);
    base_buffer_truncate(&b, 3);
    assert_string_equal(b.data, "123");
    assert_int_equal(base_buffer_append_str(&b, "x"), RP_OK);
    assert_string_equal(b.data, "123x");
    base_buffer_free(&b);
}

static void expect_content(const char *path, const char *content) {
    base_buffer b;
    assert_int_equal(base_file_read(path, 100, &b, NULL), RP_OK);
    assert_string_equal(b.data, content);
    base_buffer_free(&b);
}

/* The folder is removed at the end, which fails if it still contains a file. */
static void a_new_file_appears_whole_or_not_at_all(void **state) {
    (void)state;
    char folder[] = "/tmp/reprise-base-XXXXXX", path[64], other[64];
    base_new_file f;
    rp_error err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/link", folder);
    assert_int_equal(base_new_file_open(&f, path, &err), RP_OK);
    fputs("first", f.file);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(base_new_file_commit(&f, &err), RP_OK);
    expect_content(path, "first");
    base_new_file_abandon(&f); /* nothing more */

    assert_int_equal(base_new_file_open(&f, path, &err), RP_OK);
    fputs("second", f.file);
    base_new_file_abandon(&f);
    expect_content(path, "first");
    assert_int_equal(base_new_file_open(&f, path, &err), RP_OK);
    fputs("third", f.file);
    assert_int_equal(base_new_file_commit(&f, &err), RP_OK);
    expect_content(path, "third");

    assert_int_equal(link(path, other), 0);
    assert_true(base_file_same(path, other) && !base_file_same(path, folder) &&
                !base_file_same(path, "/nowhere/at/all"));
    assert_int_equal(base_new_file_open(&f, folder, &err), RP_ERR_IO);
    assert_non_null(strstr(err.message, "it is a directory"));
    assert_int_equal(base_new_file_open(&f, "/dev/null", &err), RP_ERR_IO);
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(base_new_file_open(&f, "/nowhere/at/all", &err), RP_ERR_IO);
    assert_int_equal(base_new_file_open(&f, path, &err), RP_OK);
    assert_int_equal(unlink(f.temporary), 0); /* so that it cannot be renamed */
    assert_int_equal(base_new_file_commit(&f, &err), RP_ERR_IO);
    expect_content(path, "third");
    unlink(path);
    unlink(other);
    assert_int_equal(rmdir(folder), 0);
}

static void keys_are_framed(void **state) {
    (void)state;
    base_hash h;
    base_key a, b, c;
    char hex[65];
    base_hash_init(&h, "x");
    base_hash_bytes(&h, "ab", 2);
    base_hash_bytes(&h, "c", 1);
    base_hash_final(&h, &a);
    base_hash_init(&h, "x");
    base_hash_bytes(&h, "a", 1);
    base_hash_bytes(&h, "bc", 2);
    base_hash_final(&h, &b);
    base_hash_init(&h, "x");
    base_hash_bytes(&h, "ab", 2);
    base_hash_bytes(&h, "c", 1);
    base_hash_final(&h, &c);
    assert_false(base_key_equal(&a, &b));
    assert_true(base_key_equal(&a, &c));
    base_key_hex(&a, hex, 16);
    assert_int_equal(strlen(hex), 16);
}

/* The first vectors of SipHash's authors, with 128 bits. */
static void a_short_hash_is_siphash(void **state) {
    static const uint8_t of_nothing[] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                         0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
    static const uint8_t of_zero[] = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                                      0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45};
    uint8_t key[BASE_SHORT_KEY_BYTES], out[BASE_SHORT_HASH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(key); i++) key[i] = (uint8_t)i;
    base_short_hash(out, key, "", 0);
    assert_memory_equal(out, of_nothing, sizeof(out));
    base_short_hash(out, key, "", 1);
    assert_memory_equal(out, of_zero, sizeof(out));
}

static void a_key_is_read_back_from_its_digits(void **state) {
    (void)state;
    base_hash h;
    base_key a, b;
    char hex[2 * BASE_KEY_BYTES + 1];
    base_hash_init(&h, "x");
    base_hash_final(&h, &a);
    base_key_hex(&a, hex, 2 * BASE_KEY_BYTES);
    assert_true(base_key_parse(&b, hex));
    assert_true(base_key_equal(&a, &b));
    for (size_t i = 0; i < 2 * BASE_KEY_BYTES; i++)
        for (const char *wrong = "gG/:@`A \n"; *wrong; wrong++) {
            char c = hex[i];
            hex[i] = *wrong;
            assert_false(base_key_parse(&b, hex));
            hex[i] = c;
        }
    for (size_t n = 0; n < 2 * BASE_KEY_BYTES; n++) { /* nothing after the end is read: ASan reports it */
        char *cut = malloc(n + 1);
        memcpy(cut, hex, n);
        cut[n] = '\0';
        assert_false(base_key_parse(&b, cut));
        free(cut);
    }
}

static void the_cpu_can_be_masked(void **state) {
    (void)state;
    base_cpu_level level;
    rp_error err;
    setenv("REPRISE_CPU", "generic", 1);
    assert_int_equal(base_cpu_detect(&level, &err), RP_OK);
    assert_int_equal(level, BASE_CPU_GENERIC);
    setenv("REPRISE_CPU", "abacus", 1);
    assert_int_equal(base_cpu_detect(&level, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "generic"));
    unsetenv("REPRISE_CPU");
    assert_int_equal(base_cpu_detect(&level, &err), RP_OK);
    assert_true(base_cpu_count() >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_and_a_text),
        cmocka_unit_test(messages_carry_their_place),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(arrays_and_buffers_keep_their_caps),
        cmocka_unit_test(a_new_file_appears_whole_or_not_at_all),
        cmocka_unit_test(keys_are_framed),
        cmocka_unit_test(a_short_hash_is_siphash),
        cmocka_unit_test(a_key_is_read_back_from_its_digits),
        cmocka_unit_test(the_cpu_can_be_masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
