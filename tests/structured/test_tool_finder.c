/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_finder.c: tool calls and reasoning in an answer's text, in the convention of each family: the output does
 * not depend on how the text is cut, and only calls, reasoning and the white space around them are removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "sampling/text_stream.h"
#include "structured/tool_finder.h"
#include "support/seed.h"
#include "support/tiny_random.h"

static tool_spec tools[] = {{.name = "f"}, {.name = "g.h"}, {.name = "barred", .barred = true}};
static answer_form ask = {.tools = tools, .n_tools = 3};
static tool_reasoning what_with_reasoning = TOOL_REASONING_ITEMS;

#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

/* The output as text: texts as they are, reasoning as (it), a call as [name|arguments], a truncated one as
   [name|arguments! */
typedef struct reported {
    base_buffer all;
    int open;
    bool reasons;
} reported;

static int end_reasoning(reported *t) {
    if (!t->reasons) return 0;
    t->reasons = false;
    return base_buffer_append_str(&t->all, ")");
}

static int on_event(void *user, tool_event event, const tool_item *item, const char *bytes, size_t n) {
    reported *t = user;
    if (event == TOOL_REASONING) {
        assert_true(n > 0 && item->is_reasoning && t->open == 0);
        if (!t->reasons && base_buffer_append_str(&t->all, "(")) return RP_ERR_MEMORY;
        t->reasons = true;
        return base_buffer_append(&t->all, bytes, n);
    }
    if (end_reasoning(t)) return RP_ERR_MEMORY;
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

/* What was reported is what the finder keeps. */
static void check_items(const tool_finder *f, const char *expected) {
    base_buffer all = BASE_BUFFER(1 << 16);
    for (size_t i = 0; i < f->n_items; i++) {
        const tool_item *item = &f->items[i];
        const int n = (int)item->text.len;
        const char *text = n > 0 ? item->text.data : "";
        if (item->tool)
            assert_int_equal(
                base_buffer_printf(&all, "[%s|%.*s%s", item->tool->name, n, text, item->is_whole ? "]" : "!"), 0);
        else assert_int_equal(base_buffer_printf(&all, item->is_reasoning ? "(%.*s)" : "%.*s", n, text), 0);
    }
    assert_string_equal(all.data ? all.data : "", expected);
    base_buffer_free(&all);
}

/* Feeds the text in pieces of up to `piece` bytes; random: of 1 to `piece`. */
static void check_cut(const char *text, size_t piece, tiny_random *random, const char *expected) {
    reported t = {.all = BASE_BUFFER(1 << 16)};
    tool_finder f;
    tool_finder_init(&f, &ask, what_with_reasoning, on_event, &t);
    for (size_t at = 0, n = strlen(text), step; at < n; at += step) {
        const size_t wanted = random ? 1 + (size_t)tiny_random_below(random, piece) : piece;
        step = BASE_MIN(wanted, n - at);
        assert_int_equal(tool_finder_feed(&f, text + at, step), 0);
    }
    assert_int_equal(tool_finder_finish(&f), 0);
    assert_int_equal(end_reasoning(&t), 0);
    assert_int_equal(t.open, 0);
    assert_string_equal(t.all.data ? t.all.data : "", expected);
    check_items(&f, expected);
    for (size_t i = 0; i < f.n_reasoned; i++) {
        assert_true(f.reasoned[i].begin <= f.reasoned[i].end && f.reasoned[i].end <= strlen(text));
        if (i > 0) assert_true(f.reasoned[i - 1].end <= f.reasoned[i].begin);
    }
    tool_finder_free(&f);
    base_buffer_free(&t.all);
}

static void check_pieces(const char *text, size_t piece, const char *expected) {
    check_cut(text, piece, NULL, expected);
}

static void check(const char *text, const char *expected) {
    tiny_random random = {20260101};
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) check_pieces(text, piece, expected);
    for (int i = 0; i < 50; i++) check_cut(text, 1 + strlen(text) / 4, &random, expected);
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
    check("Well.\n\n" CALL("f", "{\"a\": [1, {\"b\": \"}]\\\"</tool_call>\\\\\"}]}") "\n",
          "Well.[f|{\"a\": [1, {\"b\": \"}]\\\"</tool_call>\\\\\"}]}]");
    check(CALL("f", "{\"a\":1}") "\n" CALL("g.h", "{\"ü\":2}"), "[f|{\"a\":1}][g.h|{\"ü\":2}]");
    check(" <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> and more", "[f|{}] and more");
    check("<tool_call>{\"arguments\": {\"a\": [1, \"}\"]}, \"name\": \"f\"}</tool_call>", "[f|{\"a\": [1, \"}\"]}]");
    check("<tool_call>{\"arguments\": {}, \"id\": 1, \"name\": \"nobody\"}</tool_call>",
          "<tool_call>{\"arguments\": {}, \"id\": 1, \"name\": \"nobody\"}</tool_call>");
    check("<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>");
    check("<tool_call> \n{ \"name\" : \"f\" , \"arguments\" : {} } \n</tool_call>", "[f|{}]");
}

static void test_no_calls(void **state) {
    (void)state;
    static const char *const texts[] = {CALL("nobody", "{}"),
                                        CALL("barred", "{}"),
                                        CALL("f", "[]"),
                                        CALL("f", "1"),
                                        " \n<tool_call>\n{\"arguments\": {}, \"name\": \"no\"}\n</tool_call>\n",
                                        "x <tool_call>\n",
                                        "x <tool_call>\n{\"name\": \"f\", \"argum",
                                        "<tool_call><tool_call>",
                                        "<tool_call>{\"name\": \"f\"}</tool_call>"};
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

/* ---- conventions ---- */

#define D(name) "<\uFF5C" name "\uFF5C>"
#define TOOL(name) "tool\u2581" name
#define CALLS_BEGIN D(TOOL("calls\u2581begin"))
#define CALLS_END D(TOOL("calls\u2581end"))
#define CALL_BEGIN D(TOOL("call\u2581begin"))
#define CALL_END D(TOOL("call\u2581end"))
#define SEP D(TOOL("sep"))
#define KIMI(name, arguments) \
    "<|tool_call_begin|>functions." name "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"

/* Answers as models of the family write them, and look-alikes. */
static const struct {
    const char *family, *text, *expected;
} answers[] = {
    {"llama-3", "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "[f|{\"a\": \"b\"}]"},
    {"llama-3",
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g.h\", \"parameters\": {\"x\": [1]}}",
     "[f|{}][g.h|{\"x\": [1]}]"},
    {"llama-3", "\n\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": 1}}\n", "[f|{\"a\": 1}]"},
    {"llama-3", "{\"name\": \"f\", \"arguments\": {}};{\"name\": \"nobody\", \"parameters\": {}}",
     "[f|{}];{\"name\": \"nobody\", \"parameters\": {}}"},
    {"llama-3", "{\"a\": {\"name\": \"f\", \"parameters\": {}}}", "{\"a\": {\"name\": \"f\", \"parameters\": {}}}"},
    {"llama-3", "As JSON: {\"name\": \"f\", \"parameters\": {}}", "As JSON: {\"name\": \"f\", \"parameters\": {}}"},
    {"llama-3", "<|python_tag|>brave_search.call(query=\"x\")", "<|python_tag|>brave_search.call(query=\"x\")"},
    {"llama-3", "{\"name\": \"f\"", "{\"name\": \"f\""},
    {"llama-3", "{\"name\": \"f\", \"parameters\": {\"a\": ", "[f|{\"a\": !"},
    {"mistral",
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"call12345\"}, "
     "{\"name\":\"g.h\",\"arguments\":{}}]",
     "[f|{\"a\": \"]\"}][g.h|{}]"},
    {"mistral", "Let me see.[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", "Let me see.[f|{}]"},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g.h[CALL_ID]9a8b7c6d5[ARGS]{}", "[f|{\"a\": 1}][g.h|{}]"},
    {"mistral", "[TOOL_CALLS]nobody[ARGS]{}", "[TOOL_CALLS]nobody[ARGS]{}"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"barred\", \"arguments\": {}}]",
     "[f|{}], {\"name\": \"barred\", \"arguments\": {}}]"},
    {"mistral", "Write [TOOL_CALLS] first, then [ARGS].", "Write [TOOL_CALLS] first, then [ARGS]."},
    {"deepseek",
     CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{\"a\": \"```\"}\n```" CALL_END "\n" CALL_BEGIN "function" SEP
                            "g.h\n```json\n{}\n```" CALL_END CALLS_END,
     "[f|{\"a\": \"```\"}][g.h|{}]"},
    {"deepseek",
     "Yes.\n\n" CALLS_BEGIN CALL_BEGIN "f" SEP "{\"a\": 1}" CALL_END CALL_BEGIN "f" SEP "{}" CALL_END CALLS_END,
     "Yes.[f|{\"a\": 1}][f|{}]"},
    {"deepseek", CALLS_BEGIN CALL_BEGIN "function" SEP "nobody\n```json\n{}\n```" CALL_END CALLS_END,
     CALLS_BEGIN CALL_BEGIN "function" SEP "nobody\n```json\n{}\n```" CALL_END CALLS_END},
    {"deepseek", CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{\"a\"", "[f|{\"a\"!"},
    {"kimi-k2",
     "<|tool_calls_section_begin|>" KIMI("f:0", "{\"a\": 1}") KIMI("g.h:1", "{}") "<|tool_calls_section_end|>",
     "[f|{\"a\": 1}][g.h|{}]"},
    {"kimi-k2", "Well. <|tool_calls_section_begin|>\n" KIMI("f:12", "{}") "\n<|tool_calls_section_end|>\n",
     "Well.[f|{}]"},
    {"kimi-k2", "<|tool_calls_section_begin|>" KIMI("nobody:0", "{}") "<|tool_calls_section_end|>",
     "<|tool_calls_section_begin|>" KIMI("nobody:0", "{}") "<|tool_calls_section_end|>"},
    {"glm-4.5",
     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>two \"words\"\nand "
     "<b></arg_value>\n<arg_key>b</arg_key>\n<arg_value>[1, "
     "2]</arg_value>\n</tool_call>",
     "[f|{\"a\": \"two \\\"words\\\"\\nand <b>\", \"b\": [1, 2]}]"},
    {"glm-4.5",
     "Sure.\n<tool_call>f\n</tool_call>\n<tool_call>g.h\n<arg_key>x</arg_key>\n<arg_value>True</arg_value>\n</"
     "tool_call>",
     "Sure.[f|{}][g.h|{\"x\": true}]"},
    {"glm-4.5", CALL("f", "{}"), "[f|{}]"},
    {"glm-4.5", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>cut", "[f|{\"a\": !"},
    {"glm-4.5", "<tool_call>nobody\n</tool_call>", "<tool_call>nobody\n</tool_call>"},
    {"qwen3-coder",
     "<tool_call>\n<function=f>\n<parameter=a>\nline 1\n\nline "
     "2\n</parameter>\n<parameter=b>\n12\n</parameter>\n</function>\n</tool_call>",
     "[f|{\"a\": \"line 1\\n\\nline 2\", \"b\": 12}]"},
    {"qwen3-coder", "Now:\n\n<function=f>\n</function>\n</tool_call>", "Now:[f|{}]"},
    {"qwen3-coder", "<function=nobody>\n</function>", "<function=nobody>\n</function>"},
    {"gemma", "```tool_code\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```", "[f|{\"a\": 1}]"},
    {"gemma", "```json\n[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g.h\", \"parameters\": {}}]\n```",
     "[f|{}][g.h|{}]"},
    {"gemma", "{\"name\": \"f\", \"parameters\": {}}", "[f|{}]"},
    {"gemma", "[{\"name\": \"f\", \"parameters\": {}}]", "[f|{}]"},
    {"gemma", "[1] See:\n```json\n{\"a\": 1}\n```\n", "[1] See:\n```json\n{\"a\": 1}\n```\n"},
    {"gemma", "```tool_code\nprint(f(a=1))\n```", "```tool_code\nprint(f(a=1))\n```"},
    {"gemma-4",
     "<|channel>thought\nI look.\n<channel|><|tool_call>call:f{a:<|\"|>two \"words\", {b}<|\"|>,n:-1.5,t:true,u:null,"
     "l:[1,<|\"|>]<|\"|>,[]],o:{k:<|\"|>v<|\"|>,<|\"|>x:y<|\"|>:{}}}<tool_call|><|tool_call>call:g.h{}<tool_call|>"
     "<|tool_response>",
     "(I look.)[f|{\"a\": \"two \\\"words\\\", {b}\", \"n\": -1.5, \"t\": true, \"u\": null, \"l\": [1, \"]\", []], "
     "\"o\": {\"k\": \"v\", \"x:y\": {}}}][g.h|{}]"},
    {"gemma-4", "So: <|tool_call>call:f{ a : Rome , b:<|\"|><|\"|> }<tool_call|> and more",
     "So:[f|{\"a\": \"Rome\", \"b\": \"\"}] and more"},
    {"gemma-4", "<|tool_call>call:f{a:<|\"|>1 <| 2 <|\"", "[f|{\"a\": \"1 <| 2 !"},
    {"gemma-4", "<|tool_call>call:f{a:,b:1}<tool_call|>", "[f|{\"a\": !,b:1}<tool_call|>"},
    {"gemma-4", "<|tool_call>call:f{a:[1}]<tool_call|>", "[f|{\"a\": [1!}]<tool_call|>"},
    {"gemma-4", "<|tool_call>call:nobody{a:1}<tool_call|>", "<|tool_call>call:nobody{a:1}<tool_call|>"},
    {"gemma-4", "<|channel>thought\n<channel|>Hello <|tool> <|\"|>", "Hello <|tool> <|\"|>"},
    {"lfm2",
     "Yes.<|tool_call_start|>[f(a='it's', b=\"\\u00e9\\x41\\n\\'\\q\\ud83d\\ude00\\ud83d\", c=[True, None, {\"k\": "
     "-2}], d = 'x, y'), g.h()]<|tool_call_end|>",
     "Yes.[f|{\"a\": \"it's\", \"b\": \"\\u00e9\\u0041\\n'\\\\q\\ud83d\\ude00\\ufffd\", \"c\": [true, null, {\"k\": "
     "-2}], \"d\": \"x, y\"}][g.h|{}]"},
    {"lfm2", "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g.h\", \"arguments\": "
             "{}}]<|tool_call_end|> Done.",
     "[f|{\"a\": 1}][g.h|{}] Done."},
    {"lfm2", "<|tool_call_start|>[f(a=\"say \\\"a\\\", (b)\", )]<|tool_call_end|>",
     "[f|{\"a\": \"say \\\"a\\\", (b)\"}]"},
    {"lfm2", "<|tool_call_start|>[f(\"x\")]<|tool_call_end|>", "[f|{!\"x\")]<|tool_call_end|>"},
    {"lfm2", "<|tool_call_start|>[nobody(a=1)]<|tool_call_end|>", "<|tool_call_start|>[nobody(a=1)]<|tool_call_end|>"},
    {"lfm2", "<|tool_call_start|>[f(a=[1, 2", "[f|{\"a\": [1, !"},
    {"llama-3", "[f(a=1, b='c'), g.h()]", "[f|{\"a\": 1, \"b\": \"c\"}][g.h|{}]"},
    {"llama-3", "<|python_start|>[f(a=[None])]<|python_end|>", "[f|{\"a\": [null]}]"},
    {"llama-3", "[1] f(a=1)", "[1] f(a=1)"},
    {"llama-3", "[nobody(a=1)]", "[nobody(a=1)]"},
    {"gemma", "```tool_code\nf(a=1)\ng.h(b=\"c\")\n```", "[f|{\"a\": 1}][g.h|{\"b\": \"c\"}]"},
    {"gemma", "```tool_code\n[f(a=1)]\n```\nSo.", "[f|{\"a\": 1}]\nSo."},
    {"mistral-3", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g.h[ARGS]{}", "[f|{\"a\": 1}][g.h|{}]"},
    {"olmo-3", "Well.\n<function_calls>\nf(a=\"b\", c=true)\ng.h()\n</function_calls>",
     "Well.[f|{\"a\": \"b\", \"c\": true}][g.h|{}]"},
    {"olmo-3", "<function_calls>\nnobody()\n</function_calls>", "<function_calls>\nnobody()\n</function_calls>"},
    {"hunyuan", "<answer>\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g.h\", \"arguments\": "
                "{}}]</tool_calls>\n</answer>",
     "[f|{}][g.h|{}]"},
    {"hunyuan", "<answer>\nIt is warm.\n</answer>", "\nIt is warm."},
    {"nemotron-2", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g.h\", \"arguments\": "
                   "{}}]</TOOLCALL>",
     "[f|{\"a\": 1}][g.h|{}]"},
    {"apertus",
     "<|inner_prefix|>Hm.<|inner_suffix|>"
     "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g.h\": {}}]<|tools_suffix|>",
     "(Hm.)[f|{\"a\": 1}][g.h|{}]"},
    {"apertus", "<|tools_prefix|>[{\"nobody\": {}}]<|tools_suffix|>",
     "<|tools_prefix|>[{\"nobody\": {}}]<|tools_suffix|>"},
    {"ernie-4.5", CALL("f", "{}"), "[f|{}]"},
    {"ernie-4.5", "<response>\nIt is warm.\n</response>", "\nIt is warm."},
    {"minimax-m2",
     "I look.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">\ntwo \"words\"</parameter>\n"
     "<parameter name=\"b\">[1, 2]</parameter>\n</invoke>\n<invoke name=\"g.h\">\n</invoke>\n</minimax:tool_call>",
     "I look.[f|{\"a\": \"\\ntwo \\\"words\\\"\", \"b\": [1, 2]}][g.h|{}]"},
    {"minimax-m2", "<minimax:tool_call>\n<invoke name=\"nobody\">\n</invoke>\n</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"nobody\">\n</invoke>\n</minimax:tool_call>"},
    {"minimax-m2", "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">cut", "[f|{\"a\": !"},
    {"seed-oss",
     "<seed:tool_call>\n<function=f>\n<parameter=a>line 1\nline 2\n</parameter>\n<parameter=b>True</parameter>\n"
     "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g.h>\n</function>\n</seed:tool_call>",
     "[f|{\"a\": \"line 1\\nline 2\\n\", \"b\": true}][g.h|{}]"},
    {"seed-oss", "<seed:tool_call>\n<function=nobody>\n</function>",
     "<seed:tool_call>\n<function=nobody>\n</function>"},
    {"deepseek-3.2",
     "<\uFF5CDSML\uFF5Cfunction_calls>\n<\uFF5CDSML\uFF5Cinvoke name=\"f\">\n<\uFF5CDSML\uFF5C"
     "parameter name=\"a\" string=\"true\">12</\uFF5CDSML\uFF5Cparameter>\n<\uFF5CDSML\uFF5Cpa"
     "rameter name=\"b\" string=\"false\">{\"k\": 1}</\uFF5CDSML\uFF5Cparameter>\n</\uFF5CDSML"
     "\uFF5Cinvoke>\n<\uFF5CDSML\uFF5Cinvoke name=\"g.h\">\n</\uFF5CDSML\uFF5Cinvoke>\n</"
     "\uFF5CDSML\uFF5Cfunction_calls>",
     "[f|{\"a\": \"12\", \"b\": {\"k\": 1}}][g.h|{}]"},
    {"deepseek-3.2",
     "Well.\n\n<\uFF5CDSML\uFF5Ctool_calls><\uFF5CDSML\uFF5Cinvoke name=\"f\"></\uFF5CDSML"
     "\uFF5Cinvoke></\uFF5CDSML\uFF5Ctool_calls>",
     "Well.[f|{}]"},
    {"deepseek-3.2",
     "<\uFF5CDSML\uFF5Cfunction_calls><\uFF5CDSML\uFF5Cinvoke name=\"nobody\"></\uFF5CDSML"
     "\uFF5Cinvoke>",
     "<\uFF5CDSML\uFF5Cfunction_calls><\uFF5CDSML\uFF5Cinvoke name=\"nobody\"></\uFF5CDSML"
     "\uFF5Cinvoke>"},
    {"deepseek-4",
     "<\uFF5CDSML\uFF5Ctool_calls>\n<\uFF5CDSML\uFF5Cinvoke name=\"f\">\n<\uFF5CDSML\uFF5Cpara"
     "meter name=\"a\" string=\"perhaps\">1",
     "[f|{!<\uFF5CDSML\uFF5Cparameter name=\"a\" string=\"perhaps\">1"},
    {"deepseek-4",
     "<\uFF5CDSML\uFF5Ctool_calls>\n<\uFF5CDSML\uFF5Cinvoke name=\"f\">\n<\uFF5CDSML\uFF5Cpara"
     "meter name=\"a\" string=\"true\">x </",
     "[f|{\"a\": \"x !"},
    {"functionary", "<function=f>{\"a\": 1}</function>\n<function=g.h>{}</function>", "[f|{\"a\": 1}][g.h|{}]"},
    {"functionary", "So <function=nobody>{}</function>", "So <function=nobody>{}</function>"},
    {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g.h\", \"arguments\": {}}]",
     "[f|{\"a\": 1}][g.h|{}]"},
    {"granite", "<|tool_call|> {\"name\": \"f\", \"arguments\": {}}", "[f|{}]"},
    {"phi-4-mini", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "[f|{}]"},
    {"command-r7b",
     "<|START_THINKING|>I will look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
     "\"f\", \"parameters\": {\"a\": "
     "1}},\n"
     "    {\"tool_call_id\": \"1\", \"tool_name\": \"g.h\", \"parameters\": {}}\n]<|END_ACTION|>",
     "(I will look.)[f|{\"a\": 1}][g.h|{}]"},
    {"command-r7b", "<|START_THINKING|><|END_THINKING|><|START_RESPONSE|>It is warm.<|END_RESPONSE|>", "It is warm."},
    {"command-r7b", "<|START_ACTION|>[\n    {\"tool_name\": \"nobody\", \"parameters\": {}}\n]<|END_ACTION|>",
     "<|START_ACTION|>[\n    {\"tool_name\": \"nobody\", \"parameters\": {}}\n]<|END_ACTION|>"},
    {"harmony",
     "<|channel|>analysis<|message|>The user asks.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\": "
     "1}<|call|>",
     "(The user asks.)[f|{\"a\": 1}]"},
    {"harmony",
     "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
     "(Simple.)It is 4."},
    {"harmony", " to=functions.g.h<|channel|>commentary json<|message|>{}", "[g.h|{}]"},
    {"harmony",
     "<|channel|>commentary<|message|>I will look it up.<|end|><|start|>assistant "
     "to=functions.f<|channel|>commentary<|message|>\n{\"b\": "
     "{}}<|call|>",
     "I will look it up.[f|{\"b\": {}}]"},
    {"harmony", "<|channel|>commentary to=functions.nobody<|message|>{}<|call|>",
     "<|channel|>commentary to=functions.nobody<|message|>{}"},
    {"harmony", "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.",
     "(One.Two.)"},
    {"harmony", "No header at all.", "No header at all."},
    {"harmony", "<|channel|>final", "<|channel|>final"},
    {"harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\": 1", "[f|{\"a\": 1!"},
};

static answer_form ask_of(const char *family) {
    static const reasoning_marks thinking = {"<|START_THINKING|>", "<|END_THINKING|>", false};
    answer_form gen = {.tools = tools, .n_tools = 3, .convention = {.family = tool_family_find(family)}};
    assert_non_null(gen.convention.family);
    if (gen.convention.family->has_channels) gen.convention = tool_convention_detect(NULL, 0, "gpt-oss");
    if (strcmp(family, "command-r7b") == 0) gen.convention.reasoning = &thinking;
    if (strcmp(family, "apertus") == 0)
        gen.convention = tool_convention_detect("<|tools_prefix|><|inner_prefix|>", 32, NULL);
    if (strcmp(family, "gemma-4") == 0) gen.convention = tool_convention_detect("<|turn><|channel>", 17, NULL);
    return gen;
}

static void test_conventions(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(answers); i++) {
        ask = ask_of(answers[i].family);
        check(answers[i].text, answers[i].expected);
    }
    for (size_t i = 0; tool_family_at(i); i++) { /* every family reads Hermes, too; and text is text */
        ask = ask_of(tool_family_at(i)->name);
        check("Well.\n" CALL("f", "{\"a\": 1}"), "Well.[f|{\"a\": 1}]");
        check("a < b, [c], {d}, `e`, <tool and <|f|> or </g>", "a < b, [c], {d}, `e`, <tool and <|f|> or </g>");
        bool is_tested = i == 0;
        for (size_t k = 0; k < BASE_ARRAY_LEN(answers); k++)
            is_tested |= strcmp(answers[k].family, tool_family_at(i)->name) == 0;
        assert_true(is_tested);
    }
    ask = ask_of("hermes");
}

/* Arguments that the finder writes itself are JSON, whatever a model writes, and do not depend on how it is cut. */
static void test_hostile_literals(void **state) {
    static const char *const pieces[] = {
        "a", ":", "=", ",", "{", "}", "[", "]", "(", ")", "\"", "'", "\\", "\\u", "d83d", "\\ude00", "\\x", "4", "-1.5",
        "<|\"|>", "<|\"", "|>", " ", "\n", "True", "null", "\xc3\xa9", "\x01", "<tool_call|>",
        "]<|tool_call_end|>", "f("};
    static const char *const begins[][2] = {{"gemma-4", "<|tool_call>call:f{"}, {"lfm2", "<|tool_call_start|>[f("}};
    tiny_random random = {test_seed("hostile_literals", 7)};
    (void)state;
    for (int i = 0, n = test_rounds(20000); i < n; i++) {
        base_buffer text = BASE_BUFFER(1 << 16), whole = BASE_BUFFER(1 << 16);
        ask = ask_of(begins[i % 2][0]);
        assert_int_equal(base_buffer_append_str(&text, begins[i % 2][1]), 0);
        if (i % 3) assert_int_equal(base_buffer_append_str(&text, i % 2 ? "a=" : "a:"), 0);
        for (uint64_t k = tiny_random_below(&random, 12); k > 0; k--)
            assert_int_equal(
                base_buffer_append_str(&text, pieces[tiny_random_below(&random, BASE_ARRAY_LEN(pieces))]), 0);
        tool_finder f;
        tool_finder_init(&f, &ask, TOOL_REASONING_ITEMS, NULL, NULL);
        assert_int_equal(tool_finder_feed(&f, text.data, text.len), 0);
        assert_int_equal(tool_finder_finish(&f), 0);
        assert_int_equal(base_buffer_append(&whole, "", 0), 0);
        for (size_t k = 0; k < f.n_items; k++) {
            const tool_item *item = &f.items[k];
            json_t *root = item->tool && item->is_whole ? tool_item_arguments(item) : NULL;
            if (item->tool && item->is_whole && !json_is_object(root))
                fail_msg("'%s' is read as '%.*s'", text.data, (int)item->text.len, item->text.data);
            json_decref(root);
            const char *begin = item->tool ? "[" : item->is_reasoning ? "("
                                                                      : "",
                       *end = item->tool ? item->is_whole ? "]" : "!" : item->is_reasoning ? ")"
                                                                                           : "";
            assert_int_equal(base_buffer_printf(&whole, "%s%s%s%.*s%s", begin, item->tool ? item->tool->name : "",
                                                item->tool ? "|" : "", (int)item->text.len, item->text.data, end),
                             0);
        }
        tool_finder_free(&f);
        check_cut(text.data, 1, NULL, whole.data ? whole.data : "");
        check_cut(text.data, 7, &random, whole.data ? whole.data : "");
        base_buffer_free(&text);
        base_buffer_free(&whole);
    }
    ask = ask_of("hermes");
}

/* A value is a string where the schema has one, whatever it looks like. */
static void test_values_by_schema(void **state) {
    (void)state;
    json_t *schema = json_pack("{s:{s:{s:s}, s:{s:[s, s]}, s:{s:s}}}", "properties", "zip", "type", "string", "unit",
                               "enum", "1", "2", "n", "type", "integer");
    tool_spec own = {.name = "f", .schema = schema};
    const char *expected = "[f|{\"zip\": \"00501\", \"unit\": \"1\", \"n\": 7, \"x\": \"1 2\"}]";
    ask = ask_of("glm-4.5");
    ask.tools = &own;
    ask.n_tools = 1;
    check("<tool_call>f\n<arg_key>zip</arg_key>\n<arg_value>00501</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>1</"
          "arg_value>\n<arg_key>n</"
          "arg_key>\n"
          "<arg_value>7</arg_value>\n<arg_key>x</arg_key>\n<arg_value>1 2</arg_value>\n</tool_call>",
          expected);
    check("<tool_call>f\n<arg_key>zip</arg_key>\n<arg_value>005", "[f|{\"zip\": \"005!");
    ask = ask_of("qwen3-coder");
    ask.tools = &own;
    ask.n_tools = 1;
    check("<tool_call>\n<function=f>\n<parameter=zip>\n00501\n</parameter>\n<parameter=unit>\n1\n</"
          "parameter>\n<parameter=n>\n7\n</"
          "parameter>\n<parameter=x>\n1 2\n"
          "</parameter>\n</function>\n</tool_call>",
          expected);
    ask = ask_of("hermes");
    json_decref(schema);
}

static void test_reasoning(void **state) {
    static const char template[] = "<tool_call> <think> </think>";
    (void)state;
    ask.convention = tool_convention_detect(template, strlen(template), "chatml");
    check("<think>\nHm, 2 + 2.\n</think>\n\n4", "(Hm, 2 + 2.)4");
    check("\n<think>\n\n</think>\n\nHi", "Hi");
    check("<think>a <tool_call> b\n\nc</think>" CALL("f", "{}"), "(a <tool_call> b\n\nc)[f|{}]");
    check("<think>cut\n", "(cut)");
    check("<think>a</think>b <think>c</think>", "(a)b <think>c</think>");
    check("Write <think> first.", "Write <think> first.");
    check("a</think>b", "a</think>b");
    ask.reasoning_open = true;
    check("\nSo.\n</think>\n\nYes.", "(So.)Yes.");
    check("So", "(So)");
    check("", "");
    ask.reasoning_open = false;
    what_with_reasoning = TOOL_REASONING_AS_TEXT;
    check(" <think>\nHm.\n</think>\n\n4", " <think>\nHm.\n</think>\n\n4");
    ask.convention = tool_convention_detect(NULL, 0, "gpt-oss");
    check("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>4",
          "<|channel|>analysis<|message|>Hm.<|end|>4");
    ask.convention = tool_convention_detect(template, strlen(template), "chatml");
    what_with_reasoning = TOOL_REASONING_DROPPED;
    check("<think>\nHm.\n</think>\n\n4", "4");
    what_with_reasoning = TOOL_REASONING_ITEMS;
    ask = ask_of("hermes");
}

/* The convention tells where a prompt ends. */
static void test_opened_reasoning(void **state) {
    (void)state;
    const tool_convention c = tool_convention_detect("</think>", 8, "chatml"), none = {0};
    static const char open[] = "<|im_start|>assistant\n<think>\n", closed[] = "<think>\n\n</think>\n\n";
    assert_true(tool_convention_opens_reasoning(&c, open, strlen(open)));
    assert_false(tool_convention_opens_reasoning(&c, closed, strlen(closed)));
    assert_false(tool_convention_opens_reasoning(&c, "", 0));
    assert_false(tool_convention_opens_reasoning(&none, open, strlen(open)));
}

/* A head that is too long is text, however it is cut. */
static void test_long_heads(void **state) {
    (void)state;
    char text[TOOL_CALLS_HEAD_BYTES + 200], call[TOOL_CALLS_HEAD_BYTES + 200];
    for (int n = TOOL_CALLS_HEAD_BYTES - 100; n < TOOL_CALLS_HEAD_BYTES; n++) { /* the name after the arguments */
        snprintf(text, sizeof(text), "<tool_call>{\"arguments\": {\"a\": %0*d}, \"name\": \"f\"}</tool_call>", n, 7);
        snprintf(call, sizeof(call), "[f|{\"a\": %0*d}]", n, 7);
        const bool is_call = strlen(text) - strlen("}</tool_call>") <= 480;
        for (size_t piece = 1; piece < sizeof(text); piece += 13) check_pieces(text, piece, is_call ? call : text);
        check_pieces(text, sizeof(text), is_call ? call : text);
    }
    for (int n = TOOL_CALLS_HEAD_BYTES - 60; n < TOOL_CALLS_HEAD_BYTES + 20; n++) {
        snprintf(text, sizeof(text), "<tool_call>{\"id\": \"%0*d\", \"name\": \"f\", \"arguments\": {}}</tool_call>", n,
                 7);
        const size_t head = strlen(text) - strlen("{}}</tool_call>");
        const char *expected = head <= TOOL_CALLS_HEAD_BYTES - 16 ? "[f|{}]" : text;
        for (size_t piece = 1; piece < sizeof(text); piece += 13) check_pieces(text, piece, expected);
        check_pieces(text, sizeof(text), expected);
    }
}

/* ---- stop strings ---- */

typedef struct stopped {
    tool_finder finder;
    size_t n_fed;
} stopped;

static rp_stop_verdict on_stop(void *user, const char *stop, const char *text, size_t n, size_t end) {
    stopped *s = user;
    assert_int_equal(tool_finder_feed(&s->finder, text + s->n_fed, n - s->n_fed), 0);
    s->n_fed = n;
    return tool_finder_stop(&s->finder, stop, n - end);
}

/* left: what remains of the answer as the model writes it. */
static void check_stop(const char *text, const char *stop, const char *left) {
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        stopped s = {.n_fed = 0};
        text_stream stream = {.text = BASE_BUFFER(1 << 16), .on_stop = on_stop, .user = &s};
        assert_int_equal(stop_matcher_open(&stream.stops, &stop, 1, NULL), RP_OK);
        tool_finder_init(&s.finder, &ask, TOOL_REASONING_DROPPED, NULL, NULL);
        for (size_t at = 0; at < strlen(text) && !stream.stop; at += piece)
            assert_int_equal(text_stream_add(&stream, text + at, BASE_MIN(piece, strlen(text) - at), NULL), RP_OK);
        text_stream_end(&stream);
        assert_int_equal(stream.text.len, strlen(left));
        assert_memory_equal(stream.text.data, left, strlen(left));
        text_stream_close(&stream);
        tool_finder_free(&s.finder);
    }
}

/* vllm-project/vllm#14399: a stop string in the reasoning must not take the answer away; nor one in a call its
   arguments. */
static void test_stops(void **state) {
    (void)state;
    ask.convention =
        (tool_convention){tool_family_find("hermes"), tool_convention_detect("</think>", 8, NULL).reasoning};
#define REASONED "<think>a\n\nSTOP <b</think>\n\n"
    check_stop(REASONED "c STOP d", "STOP", REASONED "c ");
    check_stop(REASONED "c\n\nd", "\n\n", REASONED "c");
    check_stop(REASONED "c <d", "<", REASONED "c ");
    check_stop(REASONED "c think>", "think>", REASONED "c ");
    check_stop(REASONED "c", "</think>\n\nc", REASONED "c");
    check_stop("\n<think>a\n</think>b\nc", "\n", "\n<think>a\n</think>b");
    check_stop("\nb", "\n", "");
    check_stop("<thin", "<", "<thin"); /* not decided at its end */
    check_stop("<thing", "<", "");
    check_stop("a <thing", "<", "a ");
    check_stop("a " CALL("f", "{\"x\": \"STOP\"}") " STOP", "STOP", "a " CALL("f", "{\"x\": \"STOP\"}") " ");
    check_stop("a " CALL("f", "{\"x\": 1}"), "<", "a " CALL("f", "{\"x\": 1}"));
    check_stop("a " CALL("nobody", "{\"x\": 1}"), "<", "a ");
    check_stop("a STOP", "STOP", "a ");
    ask.convention = tool_convention_detect(NULL, 0, "gpt-oss");
#define ANALYSIS "<|channel|>analysis<|message|>a STOP<|end|><|start|>assistant<|channel|>final<|message|>"
    check_stop(ANALYSIS "b STOP c", "STOP", ANALYSIS "b ");
    check_stop(ANALYSIS "b assistant c", "assistant", ANALYSIS "b ");
    ask.convention = (tool_convention){NULL, NULL};
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_cut_calls),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_conventions),
        cmocka_unit_test(test_hostile_literals),
        cmocka_unit_test(test_values_by_schema),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_opened_reasoning),
        cmocka_unit_test(test_long_heads),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
