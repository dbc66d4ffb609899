/* SPDX-License-Identifier: Apache-2.0 */
/* test_answer_meaning.c: what a model writes and what chat templates write of the same message mean the same, in the
 * convention of each family; another text, reasoning, call, order or argument is another meaning; an answer that was
 * cut off has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "structured/answer_meaning.h"

#define WIDE(name) "<\uFF5C" name "\uFF5C>"
#define LOW "\u2581"

static tool_spec tools[] = {{.name = "f", .place = "f"}, {.name = "g", .place = "g"}};

static answer_form ask_of(const char *family, const char *reasoning_template) {
    answer_form ask = {
        .tools = tools, .n_tools = BASE_ARRAY_LEN(tools), .convention = {.family = tool_family_find(family)}};
    assert_non_null(ask.convention.family);
    if (reasoning_template)
        ask.convention.reasoning =
            tool_convention_detect(reasoning_template, strlen(reasoning_template), NULL).reasoning;
    return ask;
}

static bool meaning_of(const answer_form *ask, const char *opening, const char *text, uint8_t out[RP_MEANING_BYTES]) {
    return answer_meaning(ask, opening, text, strlen(text), out);
}

static bool same(const answer_form *ask, const char *a, const char *b) {
    uint8_t x[RP_MEANING_BYTES], y[RP_MEANING_BYTES];
    if (!meaning_of(ask, "", a, x)) fail_msg("no meaning: %s", a);
    if (!meaning_of(ask, "", b, y)) fail_msg("no meaning: %s", b);
    return memcmp(x, y, sizeof(x)) == 0;
}

#define F "{\"name\": \"f\", \"arguments\": "
#define KIMI(id) "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:" id "<|tool_call_argument_begin|>"
#define KIMI_END "<|tool_call_end|><|tool_calls_section_end|>"
#define DEEPSEEK(arguments) \
    WIDE("tool" LOW "calls" LOW "begin") \
    WIDE("tool" LOW "call" LOW "begin") \
    "function" WIDE("tool" LOW "sep") "f\n```json\n" arguments "\n```" WIDE("tool" LOW "call" LOW "end") \
        WIDE("tool" LOW "calls" LOW "end")
#define G "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
#define ANALYSIS "<|channel|>analysis<|message|>Well.<|end|><|start|>assistant"
#define CALL(arguments) "<tool_call>\n{\"name\": \"f\", \"arguments\": " arguments "}\n</tool_call>"

/* What was sampled, and what a template writes. */
static void families_write_alike(void **state) {
    (void)state;
    static const struct {
        const char *family, *reasoning, *sampled, *written;
    } cases[] = {
        {"hermes", NULL, CALL("{\"a\": 1, \"b\": [true, null, \"\\u00e9/\"]}"),
         "\n<tool_call>{\"name\":\"f\",\"arguments\":{\"b\":[true,null,\"\xc3\xa9\\/\"],\"a\":1.0}}</tool_call>\n"},
        {"hermes", NULL, "I look.\n" CALL("{}"), "\nI look. \n\n" CALL("{ }")},
        {"hermes", "</think>", "<think>\nWell.\n</think>\n\nI look." CALL("{\"a\": 100}"),
         "<think>Well.</think>I look.\n" CALL("{\"a\": 1e2}")},
        {"hermes", "</think>", "<think>\n\n</think>\n\nYes.", "Yes."},
        {"qwen3-coder", NULL,
         "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n</"
         "tool_call>",
         "\n<tool_call><function=f><parameter=b>2</parameter><parameter=a>1</parameter></function></tool_call>"},
        {"llama-3", NULL, "{\"name\": \"f\", \"parameters\": {\"a\": \"1\", \"b\": 2}}",
         "{\"name\":\"f\",\"parameters\":{\"b\":2,\"a\":\"1\"}}"},
        {"mistral", NULL,
         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
         "[TOOL_CALLS][" F
         "{\"a\": 1}, \"id\": \"000000001\"}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"000000002\"}]"},
        {"mistral", NULL, "[TOOL_CALLS]f[ARGS]{\"a\": 1}", "[TOOL_CALLS]f[CALL_ID]000000001[ARGS]{\"a\":1}"},
        {"deepseek", NULL, DEEPSEEK("{\"a\": 1}"), DEEPSEEK("{\"a\":1}")},
        {"kimi-k2", NULL, KIMI("0") "{\"a\": 1}" KIMI_END, KIMI("7") "{\"a\":1}" KIMI_END},
        {"glm-4.5", NULL,
         "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2</"
         "arg_value>\n</tool_call>",
         "\n<tool_call>f<arg_key>b</arg_key><arg_value>2</arg_value><arg_key>a</arg_key><arg_value>1</arg_value></"
         "tool_call>"},
        {"gemma", NULL, "```tool_code\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```",
         "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"},
        {"harmony", NULL, ANALYSIS "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}",
         ANALYSIS " to=functions.f<|channel|>commentary json<|message|>{\"a\":1}"},
        {"harmony", NULL, "<|channel|>final<|message|>Yes.", "<|channel|>final<|message|>Yes."},
        {"command-r7b", NULL,
         "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}]<|END_ACTION|>",
         "<|START_ACTION|>[\n    {\"tool_call_id\": \"4\", \"tool_name\": \"f\", \"parameters\": "
         "{\"a\":1}}\n]<|END_ACTION|>"},
        {"functionary", NULL, "<function=f>{\"a\": 1}</function>", "<function=f>{\"a\":1}</function>"},
        {"granite", NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
         "<|tool_call|> [{\"name\":\"f\",\"arguments\":{\"a\":1}}]"},
        {"phi-4-mini", NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
         "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        const answer_form ask = ask_of(cases[i].family, cases[i].reasoning);
        if (!same(&ask, cases[i].sampled, cases[i].written))
            fail_msg("%s: '%s' and '%s'", cases[i].family, cases[i].sampled, cases[i].written);
        if (same(&ask, cases[i].sampled, "No.")) fail_msg("%s: '%s' and 'No.'", cases[i].family, cases[i].sampled);
    }
}

static void other_things_differ(void **state) {
    (void)state;
    static const char *const texts[] = {"I look.",
                                        "I look",
                                        "",
                                        "<think>I look.</think>",
                                        "<think>Well.</think>I look.",
                                        "I look." CALL("{}"),
                                        CALL("{}"),
                                        CALL("{}") CALL("{}"),
                                        CALL("{\"a\": 1}"),
                                        CALL("{\"a\": 2}"),
                                        CALL("{\"a\": \"1\"}"),
                                        CALL("{\"a\": [1]}"),
                                        CALL("{\"a\": [[1], 2]}"),
                                        CALL("{\"a\": [1, [2]]}"),
                                        CALL("{\"a\": {\"b\": 1}}"),
                                        CALL("{\"a\": {}, \"b\": 1}"),
                                        CALL("{\"a\": true}"),
                                        CALL("{\"a\": null}"),
                                        CALL("{\"a\": -1}"),
                                        CALL("{\"a\": 10}"),
                                        CALL("{\"a\": 18446744073709551616}"),
                                        CALL("{\"a\": 18446744073709551617}"),
                                        CALL("{\"a\": 0.1}"),
                                        G,
                                        CALL("{}") G,
                                        G CALL("{}")};
    const answer_form ask = ask_of("hermes", "</think>");
    for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(texts); k++)
            if (same(&ask, texts[i], texts[k]) != (i == k)) fail_msg("'%s' and '%s'", texts[i], texts[k]);
}

static void a_truncated_answer_has_none(void **state) {
    (void)state;
    static const struct {
        const char *family, *text;
    } cases[] = {{"hermes", "<think>Well"},
                 {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "},
                 {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}"},
                 {"mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}"},
                 {"qwen3-coder", "<tool_call>\n<function=f>\n<parameter=a>\n1"},
                 {"harmony", "<|channel|>analysis<|message|>Well"}};
    uint8_t meaning[RP_MEANING_BYTES];
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        const answer_form ask = ask_of(cases[i].family, "</think>");
        if (meaning_of(&ask, "", cases[i].text, meaning)) fail_msg("%s has a meaning", cases[i].text);
    }
}

/* Reasoning that the answer_form prompt opens. */
static void the_prompt_may_open_reasoning(void **state) {
    (void)state;
    uint8_t opened[RP_MEANING_BYTES], whole[RP_MEANING_BYTES];
    const answer_form ask = ask_of("hermes", "</think>");
    assert_true(meaning_of(&ask, "<|im_start|>assistant\n<think>\n", "Well.\n</think>\n\nYes.", opened));
    assert_true(meaning_of(&ask, "<|im_start|>assistant\n", "<think>\nWell.\n</think>\n\nYes.", whole));
    assert_memory_equal(opened, whole, sizeof(opened));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_write_alike),
        cmocka_unit_test(other_things_differ),
        cmocka_unit_test(a_truncated_answer_has_none),
        cmocka_unit_test(the_prompt_may_open_reasoning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
