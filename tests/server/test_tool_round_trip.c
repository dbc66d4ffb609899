/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_round_trip.c: what a grammar makes a model write is read as what was asked for: random values of all types
 * (const, enum) in every convention, with the marks of all conventions in their strings, through the grammar and back
 * from a stream that is cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/json_number.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "grammar/matcher.h"
#include "structured/tool_finder.h"
#include "structured/tool_grammar.h"
#include "server/prompt/tools.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define MOST_BYTES ((size_t)1 << 16)

/* ---- values ---- */

static const char *const pieces[] = {
    "</parameter>", "</arg_value>", "</tool_call>", "</function>", "<tool_call>", "<function=f>", "<parameter=p>",
    "<arg_key>", "</arg_key>", "[TOOL_CALLS]", "<|im_end|>", "```", "</", "<", ">", "\n", "\n\n", " ", "  ", "\t",
    "\"", "\\", "\\\"", "'", "{", "}", "[", "]", ",", ":", "a", "word ", "true", "False", "null", "None", "12",
    "-1.5", "1e5", "{\"a\": 1}", "[1]", "\"x\"", "\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80", "\r\n", "\x01",
    "\x7f", "; ", "<|call|>"};

static json_t *random_string(tiny_random *r) {
    base_buffer b = BASE_BUFFER(4096);
    for (uint64_t n = tiny_random_below(r, 5); n > 0; n--)
        assert_int_equal(base_buffer_append_str(&b, pieces[tiny_random_below(r, BASE_ARRAY_LEN(pieces))]), 0);
    json_t *text = json_stringn(b.data ? b.data : "", b.len);
    base_buffer_free(&b);
    return text;
}

static json_t *random_number(tiny_random *r) {
    static const char *const texts[] = {"0",
                                        "-7",
                                        "1.0",
                                        "0.1",
                                        "1e22",
                                        "-2.5e-3",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "-99999999999999999999999",
                                        "1e400"};
    const char *text = texts[tiny_random_below(r, BASE_ARRAY_LEN(texts))];
    return base_json_number(text, strlen(text));
}

static json_t *random_value(tiny_random *r, int depth) {
    switch (tiny_random_below(r, depth > 2 ? 5 : 8)) {
    case 0: return random_number(r);
    case 1: return json_boolean(tiny_random_below(r, 2));
    case 2: return json_null();
    case 3:
    case 4: return random_string(r);
    case 5: {
        json_t *array = json_array();
        for (uint64_t n = tiny_random_below(r, 4); n > 0; n--) json_array_append_new(array, random_value(r, depth + 1));
        return array;
    }
    default: {
        json_t *object = json_object(), *key;
        for (uint64_t n = tiny_random_below(r, 4); n > 0; n--) {
            key = random_string(r);
            json_object_set_new(object, json_string_value(key), random_value(r, depth + 1));
            json_decref(key);
        }
        return object;
    }
    }
}

/* ---- through a grammar ---- */

static grammar *parsed(const char *gbnf) {
    grammar *g = NULL;
    rp_error err;
    if (grammar_new(&g, gbnf, &err)) fail_msg("%s in\n%s", err.message, gbnf);
    return g;
}

/* Bytes of the grammar's own text, which has all that its literals have, and control characters. */
static size_t alphabet_of(const char *gbnf, char out[256]) {
    bool has[256] = {false};
    size_t n = 0;
    for (const char *c = gbnf; *c; c++) has[(unsigned char)*c] = true;
    for (int c = 1; c < 256; c++)
        if (c < 0x20 || c == 0x7f || has[c]) out[n++] = (char)c;
    return n;
}

/* A random text of the grammar, up to where it may end. */
static void write_answer(const char *gbnf, tiny_random *r, base_buffer *out) {
    grammar *g = parsed(gbnf);
    matcher m = {0};
    rp_error err;
    char alphabet[256];
    const size_t n = alphabet_of(gbnf, alphabet);
    assert_int_equal(matcher_open(&m, g, NULL, &err), 0);
    int32_t place = m.place;
    base_buffer_clear(out);
    while (!m.pool.places[place].may_end) {
        const size_t first = (size_t)tiny_random_below(r, n);
        bool fits = false;
        for (size_t i = 0; i < n && !fits; i++) {
            int32_t next = place;
            const char c = alphabet[(first + i) % n];
            assert_int_equal(matcher_walk(&m, &next, &c, 1, &fits), 0);
            if (!fits) continue;
            place = next;
            assert_int_equal(base_buffer_append(out, &c, 1), 0);
        }
        if (!fits) fail_msg("nothing may follow '%s' in\n%s", out->data, gbnf);
    }
    matcher_close(&m);
    grammar_free(g);
}

static bool accepts(const char *gbnf, const char *text, size_t n) {
    grammar *g = parsed(gbnf);
    matcher m = {0};
    rp_error err;
    bool fits;
    assert_int_equal(matcher_open(&m, g, NULL, &err), 0);
    int32_t place = m.place;
    assert_int_equal(matcher_walk(&m, &place, text, n, &fits), 0);
    if (fits) fits = m.pool.places[place].may_end;
    matcher_close(&m);
    grammar_free(g);
    return fits;
}

static generation ask_of(const tool_family *family, tool_spec *tool, json_t *schema) {
    *tool = (tool_spec){.name = "f", .schema = schema, .place = "tools[0]", .strict = true};
    return (generation){.form = {
                            .tools = tool,
                            .n_tools = 1,
                            .convention = {.family = family},
                            .tool_choice = TOOL_CHOICE_REQUIRED,
                            .one_call = true,
                        }};
}

static void make_grammar(generation *gen) {
    server_problem p = {0};
    if (tools_check(gen, &p) || tools_constrain(gen, &p))
        fail_msg("%s: %s", gen->form.convention.family->name, p.message);
}

static void free_ask(generation *gen) {
    gen->form.tools = NULL;
    generation_free(gen);
}

/* The arguments of the one call that a text has, cut at random. The caller's. */
static json_t *read_call(const generation *gen, const char *text, size_t n, tiny_random *r) {
    tool_finder f;
    json_t *arguments = NULL;
    tool_finder_init(&f, &gen->form, TOOL_REASONING_ITEMS, NULL, NULL);
    const uint64_t most = 1 + tiny_random_below(r, 40);
    for (size_t at = 0; at < n;) {
        const size_t wanted = 1 + (size_t)tiny_random_below(r, most), piece = BASE_MIN(n - at, wanted);
        assert_int_equal(tool_finder_feed(&f, text + at, piece), 0);
        at += piece;
    }
    assert_int_equal(tool_finder_finish(&f), 0);
    if (f.n_items == 1 && f.items[0].tool) arguments = tool_item_arguments(&f.items[0]);
    tool_finder_free(&f);
    return arguments;
}

static void check_read(const generation *gen, const base_buffer *text, const json_t *expected, tiny_random *r) {
    json_t *found = read_call(gen, text->data, text->len, r);
    if (!found || !base_json_equal(found, expected)) {
        char *a = found ? base_json_text(found, 0) : NULL, *b = base_json_text(expected, 0);
        fail_msg("%s: '%s' is read as %s, not %s", gen->form.convention.family->name, text->data, a ? a : "no call", b);
    }
    json_decref(found);
}

/* Without the values' const a string is any text: its grammar accepts what that of the const has written. */
static void check_any_text(const tool_family *family, const json_t *expected, const base_buffer *text) {
    json_t *properties = json_object(), *required = json_array(), *value;
    const char *name;
    tool_spec tool;
    const tool_form *form = family->forms[0];
    bool strings = true;
    json_object_foreach((json_t *)expected, name, value) {
        const char *string = json_string_value(value);
        strings = strings && string && !strchr(string, 0x7f) &&
                  !(form->body == TOOL_BODY_TEXT && strstr(string, form->value_end)) &&
                  !(form->notation && strstr(string, form->notation->quotes[0]));
        json_object_set_new(properties, name, json_pack("{s:s}", "type", "string"));
        json_array_append_new(required, json_string(name));
    }
    json_t *schema = json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required", required,
                               "additionalProperties", 0);
    generation gen = ask_of(family, &tool, schema);
    make_grammar(&gen);
    if (strings && !accepts(gen.grammar, text->data, text->len)) fail_msg("%s refuses '%s'", family->name, text->data);
    free_ask(&gen);
    json_decref(schema);
}

/* A past call, as the built-in format writes it (tools.c); its arguments are any JSON. */
static void check_history(const generation *gen, const json_t *expected, tiny_random *r) {
    char *arguments = base_json_text(expected, 0);
    base_buffer text = BASE_BUFFER(MOST_BYTES);
    assert_int_equal(base_buffer_printf(
                         &text, "<tool_call>"
                                "\n{\"name\": \"f\", \"arguments\": %s}\n"
                                "</tool_call>",
                         arguments),
                     0);
    check_read(gen, &text, expected, r);
    base_buffer_free(&text);
    base_free(arguments);
}

static void check_values(const tool_family *family, tiny_random *r) {
    static const char *const names[] = {"p", "a b", "\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87",
                                        "q\"uote", "x-y.z", "back\\slash"};
    json_t *expected = json_object(), *properties = json_object(), *required = json_array();
    const tool_form *form = family->forms[0];
    const size_t n = 1 + (size_t)tiny_random_below(r, 2), first = (size_t)tiny_random_below(r, BASE_ARRAY_LEN(names));
    base_buffer text = BASE_BUFFER(MOST_BYTES);
    tool_spec tool;
    for (size_t i = 0; i < n; i++) {
        const char *name = names[(first + i) % BASE_ARRAY_LEN(names)];
        if (form->body == TOOL_BODY_TEXT && strchr(name, form->key_close[0])) name = "p q"; /* no form for it */
        json_t *value = tiny_random_below(r, 2) ? random_string(r) : random_value(r, 0), *property = json_object();
        json_object_set_new(expected, name, value);
        if (tiny_random_below(r, 2)) json_object_set(property, "const", value);
        else json_object_set_new(property, "enum", json_pack("[O]", value));
        if (json_is_string(value) && tiny_random_below(r, 2))
            json_object_set_new(property, "type", json_string("string"));
        json_object_set_new(properties, name, property);
        json_array_append_new(required, json_string(name));
    }
    json_t *schema = json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required", required,
                               "additionalProperties", 0);
    generation gen = ask_of(family, &tool, schema);
    make_grammar(&gen);
    for (int i = 0; i < 2; i++) {
        write_answer(gen.grammar, r, &text);
        check_read(&gen, &text, expected, r);
        check_any_text(family, expected, &text);
    }
    check_history(&gen, expected, r);
    base_buffer_free(&text);
    free_ask(&gen);
    json_decref(schema);
    json_decref(expected);
}

static void test_round_trip(void **state) {
    tiny_random r = {test_seed("tool_round_trip", 46)};
    const int rounds = test_rounds(60);
    (void)state;
    for (int i = 0; i < rounds; i++)
        for (size_t k = 0; tool_family_at(k); k++) {
            const tool_form *form = tool_family_at(k)->forms[0];
            const bool is_json = form->body == TOOL_BODY_JSON || form->body == TOOL_BODY_NAMED;
            for (int n = 0; n < (is_json ? 1 : 5); n++) check_values(tool_family_at(k), &r);
        }
}

/* ---- what models write by themselves ---- */

/* Values without a string type: JSON with the end of values in a string, and text that begins as JSON does. Issue
   46. */
static void test_ends_in_values(void **state) {
    static const struct {
        const char *value, *arguments;
    } cases[] = {
        {"{\"k\": \"a </parameter> b\"}", "{\"p\": {\"k\": \"a </parameter> b\"}, \"q\": 1}"},
        {"[\"</parameter>\", {\"</parameter>\": \"\\\"</parameter>\"}]",
         "{\"p\": [\"</parameter>\", {\"</parameter>\": \"\\\"</parameter>\"}], \"q\": 1}"},
        {" \"</parameter>\" ", "{\"p\": \"</parameter>\", \"q\": 1}"},
        {"{\"a\": 18446744073709551616}", "{\"p\": {\"a\": 18446744073709551616}, \"q\": 1}"},
        {"{\"open\": \"no end",
         "{\"p\": \"{\\\"open\\\": \\\"no end\", \"q\": 1}"}, /* the line end after the mark is none of a JSON string */
        {"\"quoted\" and more", "{\"p\": \"\\\"quoted\\\" and more\", \"q\": 1}"},
        {"{'a': 'b'}", "{\"p\": \"{'a': 'b'}\", \"q\": 1}"},
        {"[1, 2", "{\"p\": \"[1, 2\", \"q\": 1}"},
        {"[1]]", "{\"p\": \"[1]]\", \"q\": 1}"},
        {"[}", "{\"p\": \"[}\", \"q\": 1}"},
        {"{\"a\" 1}", "{\"p\": \"{\\\"a\\\" 1}\", \"q\": 1}"},
        {"True", "{\"p\": true, \"q\": 1}"},
        {"", "{\"p\": \"\", \"q\": 1}"},
    };
    tiny_random r = {46};
    tool_spec tool;
    const generation gen = ask_of(tool_family_find("qwen3-coder"), &tool, NULL);
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++)
        for (int k = 0; k < 20; k++) {
            base_buffer text = BASE_BUFFER(MOST_BYTES);
            json_t *expected = base_json_read(cases[i].arguments, strlen(cases[i].arguments), BASE_JSON_AS_WRITTEN);
            assert_int_equal(base_buffer_printf(&text,
                                                "<tool_call>\n<function=f>\n<parameter=p>\n%s\n</"
                                                "parameter>\n<parameter=q>1</parameter>\n</function>\n</tool_call>",
                                                cases[i].value),
                             0);
            check_read(&gen, &text, expected, &r);
            base_buffer_free(&text);
            json_decref(expected);
        }
}

/* An answer that ends within what may be JSON: its first end was the end. */
static void test_open_string_at_the_end(void **state) {
    static const char text[] =
        "<tool_call>\n<function=f>\n<parameter=p>\"open</parameter><parameter=q>5</parameter></function></tool_call>";
    tiny_random r = {46};
    tool_spec tool;
    const generation gen = ask_of(tool_family_find("qwen3-coder"), &tool, NULL);
    (void)state;
    json_t *found = read_call(&gen, text, sizeof(text) - 1, &r),
           *expected = json_pack("{s:s, s:i}", "p", "\"open", "q", 5);
    assert_true(found && json_equal(found, expected));
    json_decref(found);
    json_decref(expected);
}

/* ---- names ---- */

/* A name that its marks would end is refused where strict, and else not written. */
static void test_names(void **state) {
    static const char *const families[] = {"qwen3-coder", "glm-4.5"}, *const bad[] = {"a>b", "a<b"};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(families); i++)
        for (int strict = 0; strict < 2; strict++) {
            tool_spec tool;
            server_problem p = {0};
            json_t *schema = json_pack("{s:s, s:{s:{s:i}, s:{s:i}}, s:[s]}", "type", "object", "properties", bad[i],
                                       "const", 1, "n", "const", 2, "required", "n");
            generation gen = ask_of(tool_family_find(families[i]), &tool, schema);
            tool.strict = strict;
            assert_int_equal(tools_constrain(&gen, &p), strict ? SERVER_UNSUPPORTED : SERVER_FINE);
            assert_true(strict ? strstr(p.message, bad[i]) != NULL
                               : gen.n_ignored == 1 && strstr(gen.ignored[0], bad[i]));
            free_ask(&gen);
            json_decref(schema);
        }
}

/* What a schema allows and refuses of arguments that are literals. */
static void test_literals(void **state) {
    static const char schema_text[] =
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}, "
        "\"n\": {\"type\": [\"integer\", \"null\"], \"minimum\": 1, \"maximum\": 14}, "
        "\"l\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/o\"}, \"minItems\": 1, \"maxItems\": 2}, "
        "\"e\": {\"enum\": [\"x\", true, null]}}, \"required\": [\"n\"], \"$defs\": {\"o\": {\"type\": \"object\", "
        "\"properties\": {\"k\": {\"anyOf\": [{\"type\": \"boolean\"}, {\"type\": \"number\"}]}, "
        "\"m n\": {}}, \"required\": [\"k\"]}}}";
    static const struct {
        const char *family, *text;
        bool fits;
    } cases[] = {
        {"gemma-4", "<|tool_call>call:f{n:3}<tool_call|>", true},
        {"gemma-4",
         "<|tool_call>call:f{a:<|\"|>it's, {b}: <| \"c\"<|\"|>,n:null,"
         "l:[{k:true},{k:-1.5,m n:{z:[]}}],e:true}<tool_call|>",
         true},
        {"gemma-4", "<|tool_call>call:f{n:3,e:<|\"|>x<|\"|>}<tool_call|>", true},
        {"gemma-4", "<|tool_call>call:f{n:15}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{a:x,n:1}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{,n:1}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{n:1,l:[]}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{n:1,l:[{k:1},{k:1},{k:1}]}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{n:1,l:[{k:<|\"|>1<|\"|>}]}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{n:1,e:<|\"|>y<|\"|>}<tool_call|>", false},
        {"gemma-4", "<|tool_call>call:f{n:1,b:1}<tool_call|>", false},
        {"lfm2", "<|tool_call_start|>[f(a=\"it's \\\"b\\\"\", n=None, l=[{\"k\": True}, {\"k\": 2, \"m n\": [None]}], "
                 "e=None)]<|tool_call_end|>",
         true},
        {"lfm2", "<|tool_call_start|>[f(n=1,e=\"x\")]<|tool_call_end|>", true},
        {"lfm2", "<|tool_call_start|>[f(n=null)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(n=1, l=[{\"k\": true}])]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(e=None)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(n=1), f(n=1)]<|tool_call_end|>", false}, /* one call is asked for */
    };
    tiny_random r = {46};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        json_t *schema = json_loads(schema_text, 0, NULL);
        tool_spec tool;
        generation gen = ask_of(tool_family_find(cases[i].family), &tool, schema);
        make_grammar(&gen);
        if (accepts(gen.grammar, cases[i].text, strlen(cases[i].text)) != cases[i].fits)
            fail_msg("'%s' is %s", cases[i].text, cases[i].fits ? "refused" : "accepted");
        json_t *found = read_call(&gen, cases[i].text, strlen(cases[i].text), &r);
        assert_true(!cases[i].fits || json_is_object(found));
        json_decref(found);
        free_ask(&gen);
        json_decref(schema);
    }
}

/* Schemas that literals cannot enforce: refused where strict, else any value, with a note. */
static void test_loose_literals(void **state) {
    static const char *const schemas[] = {
        "{\"type\": \"object\", \"properties\": {\"a\": {\"allOf\": [{\"type\": \"string\"}]}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#/nowhere\"}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"const\": \"<|\\\"|>\"}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"stirng\"}}}",
    };
    (void)state;
    for (size_t i = 0; i < 2 * BASE_ARRAY_LEN(schemas); i++) {
        json_t *schema = json_loads(schemas[i / 2], 0, NULL);
        tool_spec tool;
        generation gen = ask_of(tool_family_find("gemma-4"), &tool, schema);
        tool_grammar out;
        rp_error err = {0};
        tool.strict = i % 2 == 0;
        if (tool.strict) assert_int_equal(tool_grammar_make(&gen.form, &out, &err), RP_ERR_UNSUPPORTED);
        else {
            assert_int_equal(tool_grammar_make(&gen.form, &out, &err), RP_OK);
            assert_true(json_array_size(out.dropped) > 0);
            static const char text[] = "<|tool_call>call:f{a:{a:{}}}<tool_call|>";
            assert_true(accepts(out.text, text, sizeof(text) - 1));
            tool_grammar_free(&out);
        }
        free_ask(&gen);
        json_decref(schema);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_ends_in_values),
                                       cmocka_unit_test(test_open_string_at_the_end), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_literals), cmocka_unit_test(test_loose_literals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
