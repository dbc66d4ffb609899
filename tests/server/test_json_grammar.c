/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_grammar.c: the grammar of a schema accepts what fits it and refuses what does not, text by text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "grammar/matcher.h"
#include "server/generation/fields.h"
#include "server/generation/json_grammar.h"
#include "server/generation/json_grammar_numbers.h"

#define MAX_TEXTS 12

typedef struct subject {
    const char *schema;
    const char *fit[MAX_TEXTS], *misfit[MAX_TEXTS]; /* end with NULL */
} subject;

/* Does the grammar accept the text? */
static bool accepts(const char *gbnf, const char *text) {
    grammar *g;
    matcher m = {0};
    rp_error err;
    bool fits;
    if (grammar_new(&g, gbnf, &err) || matcher_open(&m, g, NULL, &err)) fail_msg("%s in\n%s", err.message, gbnf);
    int32_t place = m.place;
    assert_int_equal(matcher_walk(&m, &place, text, strlen(text), &fits), 0);
    if (fits) fits = m.pool.places[place].may_end;
    matcher_close(&m);
    grammar_free(g);
    return fits;
}

/* A grammar with the schema as its root; base_free. */
static char *grammar_of(const char *schema, bool strict, server_problem *p) {
    char rule[JSON_GRAMMAR_RULE_BYTES];
    json_t *root = json_loads(schema, JSON_DECODE_ANY, NULL);
    json_grammar *g = json_grammar_new();
    char *text = NULL;
    assert_non_null(root);
    assert_non_null(g);
    if (!json_grammar_add(g, root, "schema", strict, rule, p)) {
        assert_int_equal(base_buffer_printf(json_grammar_text(g), "root ::= %s\n", rule), 0);
        text = base_strdup(json_grammar_text(g)->data);
    }
    json_grammar_free(g);
    json_decref(root);
    return text;
}

static const subject subjects[] = {
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"boolean\"}, \"c\": {\"type\": \"null\"}},"
     " \"required\": [\"b\"]}",
     {"{\"b\":true}", "{\"a\":1,\"b\":false}", "{\"a\": -10, \"b\": true, \"c\": null}", "{\"b\":true,\"c\":null}"},
     {"{}", "{\"a\":1}", "{\"b\":true,\"a\":1}", "{\"b\":1}", "{\"b\":true,}", "{\"b\":true", "{\"b\":  true}", "{\"b\":true,\"d\":1}",
      "{\"b\":true}}", "{\"a\":01,\"b\":true}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}}",
     {"{}", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"b\":2,\"a\":1}", "{,\"b\":2}", "{\"a\":1,}", "{\"a\":2}"}},
    {"{\"type\": \"object\", \"properties\": {}}", {"{}"}, {"{\"a\":1}", "[]"}},
    {"{\"type\": \"object\"}", {"{}", "{\"a\":{\"b\":[1,\"x\",null]}}"}, {"[]", "{a:1}", "{\"a\":}"}},
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"const\": 1}, \"a\\u00e9\": {\"const\": 2}}, \"additionalProperties\": {\"const\": 3}}",
     {"{}", "{\"ab\":1}", "{\"x\":3}", "{\"ab\":1,\"a\":3,\"abc\":3,\"\":3,\"aé!\":3}", "{\"a\xc3\xaa\":3}", "{\"ab\":1,\"aé\":2,\"ac\":3}"},
     {"{\"ab\":3}", "{\"x\":3,\"ab\":3}", "{\"aé\":3}", "{\"x\":1}", "{\"\\u0061b\":3}"}},
    {"true", {"1", "\"x\"", "[]", "{}", "null", "[1, 2.5e-3]"}, {"", "01", "[1,]", "nul", "1.", "\"\n\"", "tru"}},
    {"{\"type\": \"string\"}",
     {"\"\"", "\"a\\n\\\"\\\\ü\\u00e9\\uD83D\\ude00\""},
     {"\"", "\"\\x\"", "\"\\uD83D\"", "\"\\uDE00\"", "\"\\u0000\"", "\"\t\"", "\"a\"b"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", {"\"ab\"", "\"aü\\n\""}, {"\"a\"", "\"abcd\"", "\"\""}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": 3}",
     {"[true]", "[true,false]", "[true, true, true]"},
     {"[]", "[true,true,true,true]", "[1]", "[true,]"}},
    {"{\"type\": \"array\", \"maxItems\": 0}", {"[]"}, {"[1]"}},
    {"{\"type\": \"array\", \"items\": {\"const\": 1}, \"maxItems\": 1}", {"[]", "[1]"}, {"[1,1]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"const\": 2}], \"items\": {\"const\": 3}, \"minItems\": 3}",
     {"[1,2,3]", "[1,2,3,3]"},
     {"[1,2]", "[1]", "[1,2,4]", "[]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"const\": 2}]}", {"[1,2]"}, {"[1,2,3]", "[2,1]"}},
    {"{\"enum\": [\"a\\\"b\", 1.5, null, {\"k\": [true]}]}", {"\"a\\\"b\"", "1.5", "null", "{\"k\":[true]}"}, {"1", "\"a\"", "true"}},
    {"{\"type\": [\"integer\", \"null\"]}", {"1", "null", "-7"}, {"1.5", "true"}},
    {"{\"type\": \"STRING\", \"nullable\": true}", {"\"x\"", "null"}, {"1"}},
    {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"boolean\"}]}", {"1", "true"}, {"null", "1true"}},
    {"{\"type\": \"object\", \"properties\": {\"t\": {\"const\": 1}}, \"required\": [\"t\"], \"anyOf\": [{\"properties\": {\"a\": {\"const\": 1}},"
     " \"required\": [\"a\"]}, {\"properties\": {\"b\": {\"const\": 2}}, \"required\": [\"b\"]}]}",
     {"{\"t\":1,\"a\":1}", "{\"t\":1,\"b\":2}"},
     {"{\"t\":1}", "{\"t\":1,\"a\":1,\"b\":2}"}},
    {"{\"allOf\": [{\"type\": \"integer\", \"minimum\": 3}, {\"maximum\": 5}, {\"type\": \"number\"}]}", {"3", "5"}, {"2", "6", "4.5"}},
    {"{\"$defs\": {\"n\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/n\"}}}, \"$ref\": \"#/$defs/n\"}", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
    {"{\"type\": \"object\", \"properties\": {\"x\": {\"$ref\": \"#\"}}}", {"{}", "{\"x\":{\"x\":{}}}"}, {"{\"x\":1}"}},
    {"{\"$defs\": {\"a b\": {\"const\": 1}}, \"$ref\": \"#/$defs/a%20b\", \"description\": \"x\"}", {"1"}, {"2"}},
    {"{\"$defs\": {\"o\": {\"type\": \"integer\"}}, \"$ref\": \"#/$defs/o\", \"minimum\": 8, \"maximum\": 11}", {"8", "11"}, {"7", "12"}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(subjects); i++) {
        const subject *s = &subjects[i];
        server_problem p = {0};
        char *gbnf = grammar_of(s->schema, true, &p);
        if (!gbnf) fail_msg("%s: %s", s->schema, p.message);
        for (int k = 0; k < MAX_TEXTS && s->fit[k]; k++)
            if (!accepts(gbnf, s->fit[k])) fail_msg("%s refuses %s:\n%s", s->schema, s->fit[k], gbnf);
        for (int k = 0; k < MAX_TEXTS && s->misfit[k]; k++)
            if (accepts(gbnf, s->misfit[k])) fail_msg("%s accepts %s:\n%s", s->schema, s->misfit[k], gbnf);
        base_free(gbnf);
    }
}

/* Bounds of some lengths and signs, and the numbers around them. */
static void test_ranges(void **state) {
    (void)state;
    static const int64_t edges[] = {-1050, -1000, -99, -10, -9, -1, 0, 1, 9, 10, 57, 99, 100, 345, 999, 1000};
    for (size_t a = 0; a < BASE_ARRAY_LEN(edges); a++)
        for (size_t b = a; b < BASE_ARRAY_LEN(edges); b++) {
            base_buffer text = BASE_BUFFER(1 << 16);
            assert_int_equal(base_buffer_append_str(&text, "root ::= "), 0);
            assert_int_equal(json_grammar_integers(&text, edges[a], edges[b]), 0);
            for (size_t k = 0; k < BASE_ARRAY_LEN(edges); k++)
                for (int64_t v = edges[k] - 1; v <= edges[k] + 1; v++) {
                    char number[32];
                    snprintf(number, sizeof(number), "%lld", (long long)v);
                    if (accepts(text.data, number) != (v >= edges[a] && v <= edges[b]))
                        fail_msg("%s of %lld to %lld:\n%s", number, (long long)edges[a], (long long)edges[b], text.data);
                }
            assert_false(accepts(text.data, "00"));
            assert_false(accepts(text.data, "-"));
            base_buffer_free(&text);
        }
}

static void test_reals(void **state) {
    (void)state;
    static const struct {
        int64_t lo, hi;
        const char *fit[6], *misfit[6];
    } cases[] = {{0, 1, {"0", "1", "0.5", "1.0", "0.0000001"}, {"1.1", "-0.1", "2", ".5", "1e1"}},
                 {-2, 3, {"-2", "-1.5", "-0.5", "2.99", "3.00"}, {"-2.1", "3.1", "-3", "4"}},
                 {5, 5, {"5", "5.0"}, {"5.1", "4.9"}},
                 {-7, -3, {"-7", "-3", "-6.9", "-3.5"}, {"-2.9", "-7.1", "3", "0"}}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        base_buffer text = BASE_BUFFER(1 << 16);
        assert_int_equal(base_buffer_append_str(&text, "root ::= "), 0);
        assert_int_equal(json_grammar_reals(&text, cases[i].lo, cases[i].hi), 0);
        for (int k = 0; k < 6 && cases[i].fit[k]; k++) assert_true(accepts(text.data, cases[i].fit[k]));
        for (int k = 0; k < 6 && cases[i].misfit[k]; k++) assert_false(accepts(text.data, cases[i].misfit[k]));
        base_buffer_free(&text);
    }
}

/* Without `strict`, unsupported constraints are ignored; an invalid schema is still refused. */
static void test_not_strict(void **state) {
    (void)state;
    static const struct {
        const char *schema, *fit;
    } cases[] = {{"{\"type\": \"string\", \"pattern\": \"^a\"}", "\"b\""}, {"{\"type\": \"integer\", \"multipleOf\": 3}", "4"}, {"{\"$ref\": \"http://x\"}", "[1]"},
                 {"false", "1"}, {"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"integer\"}]}", "\"x\""}, {"{\"not\": {}}", "null"}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        server_problem p = {0};
        assert_null(grammar_of(cases[i].schema, true, &p));
        assert_int_equal(p.kind, SERVER_UNSUPPORTED);
        p = (server_problem){0};
        char *gbnf = grammar_of(cases[i].schema, false, &p);
        if (!gbnf) fail_msg("%s: %s", cases[i].schema, p.message);
        assert_true(accepts(gbnf, cases[i].fit));
        base_free(gbnf);
    }
    server_problem p = {0};
    assert_null(grammar_of("{\"type\": 3}", false, &p));
    assert_int_equal(p.kind, SERVER_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_ranges), cmocka_unit_test(test_reals),
                                       cmocka_unit_test(test_not_strict)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
