/* SPDX-License-Identifier: Apache-2.0 */
/* test_bundle.c: the file of a module (record_bundle.h): its bytes, truncation at every length, a change of every
 * byte, every invalid number, and records that must not be in one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "store/record/record_bundle.h"
#include "support/bundle_forge.h"

static char path[] = "/tmp/reprise-bundle-test";
static forged whole;

static int make(void **state) {
    (void)state;
    whole = bundle_forge("cities", 3, 1, false);
    return 0;
}

static int end(void **state) {
    (void)state;
    forge_free(&whole);
    remove(path);
    return 0;
}

/* Opens it and checks every record. */
static int read_all(const uint8_t *bytes, size_t n, rp_error *err) {
    record_bundle b;
    forge_save(path, bytes, n);
    int rc = record_bundle_open(&b, path, err);
    for (size_t i = 0; !rc && i < b.n; i++) rc = record_bundle_check(&b, i, err);
    if (rc && (err->code != rc || !err->message[0] || strchr(err->message, '\n')))
        fail_msg("error %d does not say what it is", rc);
    record_bundle_close(&b);
    return rc;
}

static void is_read(void **state) {
    (void)state;
    rp_error err = {0};
    record_bundle b;
    if (read_all(whole.bytes, whole.n, &err)) fail_msg("%s", err.message);
    assert_int_equal(record_bundle_open(&b, path, &err), RP_OK);
    assert_string_equal(b.name, "cities");
    assert_int_equal(b.n, 3);
    assert_int_equal(b.file_bytes, whole.n);
    for (size_t i = 0; i < b.n; i++) {
        record_loaded l;
        assert_int_equal(record_bundle_load(&b, i, &l, &err), RP_OK);
        assert_true(base_key_equal(&record_reader_record(l.reader)->key, &b.items[i].key));
        assert_int_equal(kv_span_layers_ready(l.span), record_reader_format(l.reader)->shape.n_layers);
        record_loaded_free(&l);
    }
    record_bundle_close(&b);
}

/* The first bytes are those of docs/format.md. */
static void has_its_bytes(void **state) {
    (void)state;
    static const uint8_t first[] = {0x89, 'R', 'P', 'B', 13, 10, 26, 10, 1, 0, 0, 0, 3, 0, 0, 0};
    assert_memory_equal(whole.bytes, first, sizeof first);
    assert_int_equal(whole.bytes[24], 6);
    assert_memory_equal(whole.bytes + 64 + 3 * 40, "cities", 6);
    assert_memory_equal(whole.bytes + 64 + 3 * 40 + 6, "\x89RPS", 4);                   /* the first record */
    assert_memory_equal(whole.bytes + 64 + 3 * 40 + 6 + 64 + 32, whole.bytes + 64, 32); /* its key */
}

static void every_cut_is_refused(void **state) {
    (void)state;
    rp_error err;
    for (size_t n = 0; n < whole.n; n += n < 400 ? 1 : 97) assert_int_not_equal(read_all(whole.bytes, n, &err), RP_OK);
    uint8_t *longer = test_malloc(whole.n + 1);
    memcpy(longer, whole.bytes, whole.n);
    longer[whole.n] = 0;
    assert_int_equal(read_all(longer, whole.n + 1, &err), RP_ERR_FORMAT);
    test_free(longer);
}

static void every_byte_counts(void **state) {
    (void)state;
    rp_error err;
    for (size_t at = 0; at < whole.n; at += at < 700 ? 1 : 61) {
        whole.bytes[at] ^= (uint8_t)(1 << at % 8);
        int rc = read_all(whole.bytes, whole.n, &err);
        whole.bytes[at] ^= (uint8_t)(1 << at % 8);
        if (rc != RP_ERR_FORMAT && rc != RP_ERR_LIMIT) fail_msg("byte %zu: %d", at, rc);
    }
}

static void put(uint8_t *out, uint64_t v, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

/* Invalid numbers under a valid checksum. */
static void numbers_are_checked(void **state) {
    (void)state;
    static const struct {
        size_t at;
        int n;
        uint64_t value;
        int rc;
    } lies[] = {
        {8, 4, 2, RP_ERR_FORMAT},
        {8, 4, 0, RP_ERR_FORMAT},
        {12, 4, 0, RP_ERR_FORMAT},
        {12, 4, 2, RP_ERR_FORMAT},
        {12, 4, 65537, RP_ERR_LIMIT},
        {12, 4, 65536, RP_ERR_FORMAT},
        {12, 4, UINT32_MAX, RP_ERR_LIMIT},
        {16, 8, 0, RP_ERR_FORMAT},
        {16, 8, UINT64_MAX, RP_ERR_FORMAT},
        {24, 4, 0, RP_ERR_FORMAT},
        {24, 4, 256, RP_ERR_FORMAT},
        {24, 4, 5, RP_ERR_FORMAT},
        {28, 4, 1, RP_ERR_FORMAT},
        {44, 4, 1, RP_ERR_FORMAT},
        {96, 8, 0, RP_ERR_FORMAT},
        {96, 8, UINT64_MAX, RP_ERR_FORMAT},
        {96, 8, INT64_MAX, RP_ERR_FORMAT},
        {64, 8, UINT64_MAX, RP_ERR_FORMAT},
        {184, 1, 0, RP_ERR_FORMAT},
        {184, 1, '/', RP_ERR_FORMAT},
        {189, 1, '/', RP_ERR_FORMAT},
        {184, 1, 'C', RP_ERR_FORMAT},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(lies); i++) {
        forged f = {test_malloc(whole.n), whole.n};
        rp_error err;
        memcpy(f.bytes, whole.bytes, whole.n);
        put(f.bytes + lies[i].at, lies[i].value, lies[i].n);
        bundle_forge_checksum(f.bytes, f.n);
        int rc = read_all(f.bytes, f.n, &err);
        if (rc != lies[i].rc) fail_msg("lie %zu: %d", i, rc);
        test_free(f.bytes);
    }
}

/* Records that no export writes: of a prompt, of another module. */
static void others_are_refused(void **state) {
    (void)state;
    rp_error err;
    forged text = bundle_forge("cities", 2, 1, true), other = bundle_forge("citie", 2, 1, false), below;
    below = bundle_forge("cities/plan/miami", 2, 1, false);
    assert_int_equal(read_all(text.bytes, text.n, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "record"));
    assert_int_equal(read_all(other.bytes, other.n, &err), RP_ERR_FORMAT);
    assert_int_equal(read_all(below.bytes, below.n, &err), RP_OK);
    forge_free(&text);
    forge_free(&other);
    forge_free(&below);
}

static void labels(void **state) {
    (void)state;
    assert_true(record_label_is_below("cities", "cities"));
    assert_true(record_label_is_below("cities/plan", "cities"));
    assert_true(record_label_is_below("cities/plan", "cities/"));
    assert_false(record_label_is_below("citiesandtowns", "cities"));
    assert_false(record_label_is_below("cities", "cities/plan"));
    assert_false(record_label_is_below("", ""));
    assert_false(record_label_is_below("a", "/"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_read),
        cmocka_unit_test(has_its_bytes),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(numbers_are_checked),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(labels),
    };
    return cmocka_run_group_tests_name("bundle", tests, make, end);
}
