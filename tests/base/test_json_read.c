/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_read.c: JSON from bytes and to bytes, and its numbers. Jansson is the oracle: what is read equals what it
 * reads, what is written is what it writes, and ordinary texts are read; of texts by hand, and of random ones, whole
 * and damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buffer.h"
#include "base/json_number.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define TEXT_BYTES ((size_t)1 << 20)

/* Members in the same order, too. */
static void assert_same(json_t *own, json_t *oracle, bool writes) {
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    char *a = json_dumps(own, flags), *b = json_dumps(oracle, flags);
    assert_true(json_equal(own, oracle));
    assert_string_equal(a, b);
    free(a); /* jansson's */
    free(b);
    static const size_t written[] = {0, JSON_COMPACT, JSON_SORT_KEYS, JSON_COMPACT | JSON_REAL_PRECISION(9)};
    for (size_t i = 0; i < BASE_ARRAY_LEN(written) && writes; i++) {
        char *text = base_json_text(own, written[i]);
        json_t *again = json_loads(text, JSON_ALLOW_NUL, NULL);
        b = json_dumps(oracle, written[i] | JSON_REAL_PRECISION(9));
        a = json_dumps(again, written[i] | JSON_REAL_PRECISION(9));
        assert_true(json_equal(again, oracle) || i == 3); /* the fewest digits are enough */
        assert_string_equal(a, b);
        if (i == 3) assert_string_equal(text, b);
        free(a); /* jansson's */
        free(b);
        json_decref(again);
        base_free(text);
    }
}

/* Returns whether it was read; in a copy without anything after it, so that a sanitizer sees reads beyond its end. */
static bool check(const char *text, size_t n) {
    char *copy = base_alloc(n + (n == 0));
    json_error_t err;
    assert_non_null(copy);
    if (n > 0) memcpy(copy, text, n);
    json_t *own = base_json_read(copy, n, 0),
           *oracle = json_loadb(copy, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);
    const bool was_read = own != NULL, is_beyond = !oracle && json_error_code(&err) == json_error_numeric_overflow;
    if (was_read && !is_beyond) {
        assert_non_null(oracle);
        assert_same(own, oracle, n % 32 == 0 || n < 60);
    }
    json_decref(own);
    json_decref(oracle);
    base_free(copy);
    return was_read;
}

static void texts_that_are_read(void **state) {
    static const char *const texts[] = {
        "{}",
        "[]",
        " \t\r\n{ } \n",
        "[1,2 , 3]",
        "{\"a\":{\"b\":[{\"c\":null}]},\"d\":true,\"e\":false}",
        "[\"\"]",
        "{\"\":0}",
        "[0,-0,7,-7,123456789012345678,-123456789012345678]",
        "[1234567890123456789,9223372036854775807,-9223372036854775808]",
        "[0.5,-1.25e3,1E-2]",
        "[\"a\\u0000b\"]",
        "[1.0,2e2]",
        "[\"plain\",\"with \\\"quotes\\\" and \\\\\",\"\\/\\b\\f\\n\\r\\t\"]",
        "[\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\\u007f\\u0080\\u07ff\\u0800\\uffff\\udbff\\udfff\"]",
        "[\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \x7f\"]",
        "{\"k\xc3\xa9y\":1,\"a\\nb\":\"a\\nb\"}",
        "{\"one\":\"x\\ny\",\"two\":[\"\\\\\"]}",
        "[\"12345678\\n\",\"1234567\\n8\",\"123456\xc3\xa9 7\",\"1234567\xc3\xa9\"]"};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++)
        if (!check(texts[i], strlen(texts[i]))) fail_msg("%s", texts[i]);
}

/* Left to jansson, whose verdict counts. */
static void texts_that_are_not(void **state) {
    static const char *const texts[] = {"",
                                        " ",
                                        "1",
                                        "\"a\"",
                                        "true",
                                        "[",
                                        "]",
                                        "{",
                                        "[1",
                                        "[1,]",
                                        "[,1]",
                                        "[1 2]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{a:1}",
                                        "{\"a\":1 \"b\":2}",
                                        "[] []",
                                        "{} x",
                                        "[01]",
                                        "[-]",
                                        "[+1]",
                                        "[.5]",
                                        "[1.]",
                                        "[1e]",
                                        "[0x1]",
                                        "[--1]",
                                        "[1-2]",
                                        "[99999999999999999999-]",
                                        "[099999999999999999999]",
                                        "[1e400.]",
                                        "[tru]",
                                        "[nul",
                                        "[True]",
                                        "[\"a]",
                                        "[\"\n\"]",
                                        "[\"\x1f\"]",
                                        "[\"\\x\"]",
                                        "[\"\\u12\"]",
                                        "[\"\\u12g4\"]",
                                        "[\"\\",
                                        "[\"\\ud800\"]",
                                        "[\"\\ud800\\u0041\"]",
                                        "[\"\\ud800x\"]",
                                        "[\"\\udc00\"]",
                                        "[\"\xff\"]",
                                        "[\"\xc3\"]",
                                        "[\"\xc0\xaf\"]",
                                        "[\"\xed\xa0\x80\"]",
                                        "[\"\xf5\x80\x80\x80\"]",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":1,\"\\u0061\":2}",
                                        "{\"\\u0000\":1}"};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++)
        if (check(texts[i], strlen(texts[i]))) fail_msg("%s", texts[i]);
    assert_false(check("[\"a\0b\"]", 7));
    assert_false(check("[1]\0", 4));
}

static void depth(void **state) {
    char text[20000];
    (void)state;
    memset(text, '[', 10000);
    memset(text + 10000, ']', 10000);
    assert_true(check(text + 9900, 200));
    assert_true(check(text + 10000 - 2048, 2 * 2048));
    assert_false(check(text + 10000 - 2049, 2 * 2049));
    assert_false(check(text, 20000));
    assert_false(check(text, 10000));
}

/* ---- random texts ---- */

static void add(base_buffer *b, const char *text) { assert_int_equal(base_buffer_append_str(b, text), 0); }

static void add_space(base_buffer *b, tiny_random *r) {
    static const char *const spaces[] = {"", "", "", "", " ", "\n  ", "\t", "\r\n"};
    add(b, spaces[tiny_random_below(r, BASE_ARRAY_LEN(spaces))]);
}

static void add_string(base_buffer *b, tiny_random *r, uint64_t number) {
    static const char *const pieces[] = {"a",
                                         "word ",
                                         "a longer run of plain letters, ",
                                         "\\n",
                                         "\\\"",
                                         "\\\\",
                                         "\\/",
                                         "\\t",
                                         "\\u00e9",
                                         "\\uD83D\\uDE00",
                                         "\xc3\xa9",
                                         "\xe6\x97\xa5\xe6\x9c\xac",
                                         "\xf0\x9f\x98\x80",
                                         "\x7f",
                                         "{",
                                         "]",
                                         ",",
                                         ":",
                                         " "};
    char key[24];
    add(b, "\"");
    snprintf(key, sizeof(key), "k%u", (unsigned)number);
    if (number) add(b, key);
    for (uint64_t n = tiny_random_below(r, 12); n > 0; n--)
        add(b, pieces[tiny_random_below(r, BASE_ARRAY_LEN(pieces))]);
    add(b, "\"");
}

static void add_number(base_buffer *b, tiny_random *r) {
    const int64_t integer = (int64_t)(tiny_random_u64(r) >> tiny_random_below(r, 64));
    if (tiny_random_below(r, 2)) assert_int_equal(base_buffer_printf(b, "%lld", (long long)integer), 0);
    else assert_int_equal(base_buffer_printf(b, "%.*e", (int)tiny_random_below(r, 17), (double)integer / 1e7), 0);
}

static void add_value(base_buffer *b, tiny_random *r, int deep);

static void add_all(base_buffer *b, tiny_random *r, int deep, bool is_object) {
    const uint64_t n = tiny_random_below(r, 6);
    add(b, is_object ? "{" : "[");
    for (uint64_t i = 0; i < n; i++) {
        add(b, i ? "," : "");
        add_space(b, r);
        if (is_object) {
            add_string(b, r, i + 1);
            add_space(b, r);
            add(b, ":");
        }
        add_value(b, r, deep + 1);
    }
    add(b, is_object ? "}" : "]");
}

static void add_value(base_buffer *b, tiny_random *r, int deep) {
    static const char *const words[] = {"true", "false", "null"};
    const uint64_t kind = tiny_random_below(r, deep > 5 ? 3 : 6);
    add_space(b, r);
    if (kind == 0) add(b, words[tiny_random_below(r, 3)]);
    else if (kind == 1) add_number(b, r);
    else if (kind == 2) add_string(b, r, 0);
    else add_all(b, r, deep, kind > 3);
    add_space(b, r);
}

/* A few bytes are changed, removed or doubled. */
static void damage(base_buffer *b, tiny_random *r) {
    static const char bytes[] = "\"\\{}[],:0 e-.u\n\x01\x80\xc3\xff";
    for (uint64_t n = 1 + tiny_random_below(r, 3); n > 0 && b->len > 1; n--) {
        const size_t at = (size_t)tiny_random_below(r, b->len);
        const uint64_t what = tiny_random_below(r, 3);
        if (what == 0) b->data[at] = bytes[tiny_random_below(r, sizeof(bytes))];
        else if (what == 1) base_buffer_truncate(b, at + 1);
        else {
            memmove(b->data + at, b->data + at + 1, b->len - at - 1);
            base_buffer_truncate(b, b->len - 1);
        }
    }
}

static void random_texts(void **state) {
    tiny_random r = {test_seed("json_read", 0x6a736f6e)};
    const int rounds = test_rounds(20000);
    (void)state;
    for (int i = 0; i < rounds; i++) {
        base_buffer b = BASE_BUFFER(TEXT_BYTES);
        add_all(&b, &r, 0, tiny_random_below(&r, 2));
        if (!check(b.data, b.len)) fail_msg("%s", b.data);
        damage(&b, &r);
        check(b.data, b.len);
        base_buffer_free(&b);
    }
}

static void long_strings(void **state) {
    base_buffer b = BASE_BUFFER((size_t)4 << 20);
    (void)state;
    add(&b, "{\"prompt\":\"");
    for (int i = 0; i < 20000; i++) add(&b, i % 50 ? "some words of a text, " : "a line\\n\\u00e9\xc3\xa9");
    add(&b, "\",\"n\":1}");
    assert_true(check(b.data, b.len));
    base_buffer_free(&b);
}

/* ---- numbers of any size, and U+0000 ---- */

static void assert_written(const char *text, unsigned flags, const char *expected) {
    json_t *value = base_json_read(text, strlen(text), flags);
    char *written = base_json_text(value, JSON_COMPACT);
    if (!written) fail_msg("%s", text);
    assert_string_equal(written, expected);
    base_free(written);
    json_decref(value);
}

/* Integers beyond 64 bits and reals beyond a double were no JSON. */
static void numbers_of_any_size(void **state) {
    static const char *const kept[] = {
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "1e400",
        "-1E+999",
        "123456789012345678901234567890.5e400",
        "100000000000000000000000000000000000000000000000000000000000000000000000000000001"};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(kept); i++) {
        assert_written(kept[i], BASE_JSON_ANY, kept[i]);
        json_t *value = base_json_read(kept[i], strlen(kept[i]), BASE_JSON_ANY);
        json_t *other = base_json_read(kept[i], strlen(kept[i]), BASE_JSON_AS_WRITTEN);
        assert_true(json_is_number(value) && base_json_equal(value, other));
        assert_true(i == 0 || base_json_number_text(value));
        json_decref(value);
        json_decref(other);
    }
    assert_written("[0.1,1e22,1.0,0.30000000000000004,5e-324,-0.0,123456.789]", 0,
                   "[0.1,1e+22,1.0,0.30000000000000004,4.94065645841247e-324,-0.0,123456.789]");
    assert_written("{\"a\":1.50,\"b\":[1e2,-0,0.0],\"a\":2.50}", BASE_JSON_AS_WRITTEN,
                   "{\"a\":2.50,\"b\":[1e2,0,0.0]}");
    assert_written("\"a\\u0000b\"", BASE_JSON_ANY, "\"a\\u0000b\"");
    assert_written("\"a\\u0000b\"", BASE_JSON_ANY | BASE_JSON_REPLACE_NUL, "\"a\xef\xbf\xbd"
                                                                           "b\"");
    assert_null(base_json_read("{\"\\u0000\":1}", 12, BASE_JSON_AS_WRITTEN));
    assert_null(base_json_number("", 0));
    assert_null(base_json_number("1 ", 2));
    assert_null(base_json_number("\"1\"", 3));
}

/* In rising order; the same number on one line. */
static const char *const rising[][4] = {{"-1e400"},
                                        {"-9223372036854775809"},
                                        {"-9223372036854775808"},
                                        {"-2"},
                                        {"-1.5", "-15e-1"},
                                        {"0", "0.0", "-0", "0e99"},
                                        {"5e-324"},
                                        {"0.05", "5e-2"},
                                        {"0.5"},
                                        {"1", "1.0", "10e-1", "0.1e1"},
                                        {"9007199254740992"},
                                        {"9007199254740993"},
                                        {"9223372036854775807"},
                                        {"9223372036854775808"},
                                        {"18446744073709551616"},
                                        {"100000000000000000000", "1e20", "1.0e+20"},
                                        {"100000000000000000001"},
                                        {"1e400", "10e399"},
                                        {"11e399"}};

static void numbers_are_compared_by_value(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(rising); i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(rising); k++)
            for (size_t a = 0; a < 4 && rising[i][a]; a++)
                for (size_t b = 0; b < 4 && rising[k][b]; b++) {
                    json_t *x = base_json_number(rising[i][a], strlen(rising[i][a])),
                           *y = base_json_number(rising[k][b], strlen(rising[k][b]));
                    const int order = base_json_number_compare(x, y);
                    if ((order > 0) - (order < 0) != (i > k) - (i < k))
                        fail_msg("%s and %s: %d", rising[i][a], rising[k][b], order);
                    assert_true(base_json_equal(x, y) == (i == k));
                    json_decref(x);
                    json_decref(y);
                }
}

static void whole_numbers(void **state) {
    static const char *const whole[] = {"0", "-0.0", "16.0", "1e2", "150e-1", "1e400", "18446744073709551616",
                                        "1.5e400"};
    static const char *const others[] = {"0.5", "1e-400", "15e-2"};
    int64_t v = 0;
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(whole); i++) {
        json_t *value = base_json_number_as_text(whole[i], strlen(whole[i]));
        if (base_json_is_whole(value) == false) fail_msg("%s", whole[i]);
        json_decref(value);
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++) {
        json_t *value = base_json_number_as_text(others[i], strlen(others[i]));
        if (base_json_is_whole(value)) fail_msg("%s", others[i]);
        json_decref(value);
    }
    json_t *real = json_real(16), *big = base_json_number("9223372036854775808", 19), *text = json_string("1");
    assert_true(base_json_int64(real, &v) && v == 16);
    assert_false(base_json_int64(big, &v) || base_json_int64(text, &v) || base_json_is_whole(text) ||
                 base_json_int64(NULL, &v));
    json_decref(real);
    json_decref(big);
    json_decref(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_are_read),
        cmocka_unit_test(texts_that_are_not),
        cmocka_unit_test(depth),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(long_strings),
        cmocka_unit_test(numbers_of_any_size),
        cmocka_unit_test(numbers_are_compared_by_value),
        cmocka_unit_test(whole_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
