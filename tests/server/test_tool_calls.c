/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_calls.c: tool calls in an answer's text: the output does not depend on how the text is split, and only tool
 * calls and the white space around them are removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "server/generation/tool_calls.h"

static server_tool tools[] = {{.name = "f"}, {.name = "g.h"}, {.name = "barred", .barred = true}};
static const generation ask = {.tools = tools, .n_tools = 3};

#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

/* The output as text: texts as they are, a call as [name|arguments], a truncated one as [name|arguments! */
typedef struct reported {
    base_buffer all;
    int open;
} reported;

static int on_event(void *user, tool_event event, const tool_item *item, const char *bytes, size_t n) {
    reported *t = user;
    if (event == TOOL_BEGIN) {
        assert_int_equal(t->open++, 0);
        return base_buffer_printf(&t->all, "[%s|", item->tool->name);
    }
    if (event == TOOL_END) {
        assert_int_equal(t->open--, 1);
        return base_buffer_append_str(&t->all, item->is_whole ? "]" : "!");
    }
    assert_int_equal(t->open, event == TOOL_ARGUMENTS);
    assert_true(n > 0);
    return base_buffer_append(&t->all, bytes, n);
}

/* Feeds the text in pieces of up to `piece` bytes. */
static void check_pieces(const char *text, size_t piece, const char *expected) {
    reported t = {.all = BASE_BUFFER(1 << 16)};
    tool_finder f;
    tool_finder_init(&f, &ask, TOOL_REASONING_ITEMS, on_event, &t);
    for (size_t at = 0, n = strlen(text); at < n; at += piece) assert_int_equal(tool_finder_feed(&f, text + at, BASE_MIN(piece, n - at)), 0);
    assert_int_equal(tool_finder_finish(&f), 0);
    assert_int_equal(t.open, 0);
    assert_string_equal(t.all.data ? t.all.data : "", expected);
    tool_finder_free(&f);
    base_buffer_free(&t.all);
}

static void check(const char *text, const char *expected) {
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) check_pieces(text, piece, expected);
}

static void test_text(void **state) {
    (void)state;
    check("", "");
    check("Hello.", "Hello.");
    check(" a < b <tool_cal\n ", " a < b <tool_cal\n ");
    check("<<tool_call", "<<tool_call");
    check("\n \n", "\n \n");
    check("größer <tool_call>", "größer <tool_call>");
}

static void test_calls(void **state) {
    (void)state;
    check(CALL("f", "{}"), "[f|{}]");
    check("Well.\n\n" CALL("f", "{\"a\": [1, {\"b\": \"}]\\\"</tool_call>\\\\\"}]}") "\n", "Well.[f|{\"a\": [1, {\"b\": \"}]\\\"</tool_call>\\\\\"}]}]");
    check(CALL("f", "{\"a\":1}") "\n" CALL("g.h", "{\"ü\":2}"), "[f|{\"a\":1}][g.h|{\"ü\":2}]");
    check(" <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> and more", "[f|{}] and more");
    check("<tool_call> \n{ \"name\" : \"f\" , \"arguments\" : {} } \n</tool_call>", "[f|{}]");
}

static void test_no_calls(void **state) {
    (void)state;
    static const char *const texts[] = {CALL("nobody", "{}"), CALL("barred", "{}"), CALL("f", "[]"), CALL("f", "1"),
                                        " \n<tool_call>\n{\"arguments\": {}, \"name\": \"f\"}\n</tool_call>\n", "x <tool_call>\n",
                                        "x <tool_call>\n{\"name\": \"f\", \"argum", "<tool_call><tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++) check(texts[i], texts[i]);
    char *spaces = malloc(2000);
    memset(spaces, ' ', 1999);
    memcpy(spaces, "<tool_call>", 11);
    spaces[1999] = '\0';
    check_pieces(spaces, 1, spaces);
    check_pieces(spaces, 1999, spaces);
    free(spaces);
    check("<tool_call>" CALL("f", "{}"), "<tool_call>[f|{}]");
    check("a <tool_call> b " CALL("f", "{}"), "a <tool_call> b[f|{}]");
}

static void test_cut_calls(void **state) {
    (void)state;
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}", "[f|{\"a\": \"}!");
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {", "[f|{!");
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_", "[f|{}]");
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {} oops", "[f|{}] oops");
}

/* The N-th allocation fails: an error, and nothing leaks. */
static void test_no_memory(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        tool_finder f;
        tool_finder_init(&f, &ask, TOOL_REASONING_ITEMS, NULL, NULL);
        base_alloc_fail_at(n, 0);
        const char *text = "text " CALL("f", "{\"a\": 1}") CALL("g.h", "{}") " more";
        int rc = tool_finder_feed(&f, text, strlen(text));
        if (!rc) rc = tool_finder_finish(&f);
        base_alloc_fail_at(0, 0);
        if (!rc) assert_int_equal(f.n_calls, 2);
        tool_finder_free(&f);
        if (!rc) {
            assert_true(n > 3);
            return;
        }
        assert_int_equal(rc, RP_ERR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),      cmocka_unit_test(test_calls),     cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_cut_calls), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
