/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat_input.c: conversations as the input of a chat template: calls, results, styles, variables, and where
   contents are in the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "structured/chat_input.h"
#include "structured/tool_finder.h"
#include "reprise_chat.h"

static const char source[] =
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls %}({{ c.id }} {{ c.function.name }} {{ c.function.arguments.city }}){% endfor %}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }} {{ m.name }}){% endif %}{% if m.reasoning_content %}~{{ "
    "m.reasoning_content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

static rp_template *template_of(const char *text) {
    rp_template *t;
    rp_error err;
    if (rp_template_new(&t, text, strlen(text), "template", &err)) fail_msg("%s", err.message);
    return t;
}

/* The text, and its turns. */
static rp_template_text *rendered(const chat_input *in, rp_rendered_turn *turns, size_t *n_turns) {
    uint32_t sources[8];
    rp_template_text *text;
    rp_error err;
    assert_true(in->n_messages <= BASE_ARRAY_LEN(sources));
    rp_template_input *values;
    assert_int_equal(chat_input_values(in, &values, sources, NULL), RP_OK);
    if (rp_template_render_input(in->t, values, NULL, &text, &err)) fail_msg("%s", err.message);
    if (turns) *n_turns = chat_input_turns(in, text, sources, turns, NULL);
    rp_template_input_free(values);
    return text;
}

static const rp_message messages[] = {{RP_ROLE_SYSTEM, "S", 1},
                                      {RP_ROLE_USER, "U", 1},
                                      {RP_ROLE_ASSISTANT, "", 0},
                                      {RP_ROLE_TOOL, "r0", 2},
                                      {RP_ROLE_TOOL, "r1", 2},
                                      {RP_ROLE_USER, "V", 1},
                                      {RP_ROLE_ASSISTANT, "A", 1},
                                      {RP_ROLE_TOOL, "r2", 2}};
static const chat_call calls[] = {
    {2, "a", "f", "{\"city\": \"Rome\"}"}, {2, NULL, "g", "{}"}, {6, "a", "h", "{\"city\": \"Oslo\"}"}};
static const chat_reasoning reasonings[] = {{6, "so"}, {6, "me"}};
static const chat_result by_number[] = {{3, NULL, false}, {4, NULL, false}, {7, NULL, false}};

/* All of it, with results by number. */
static chat_input input_of(const rp_template *t, const answer_form *form) {
    return (chat_input){.t = t,
                        .form = form,
                        .messages = messages,
                        .n_messages = 8,
                        .calls = calls,
                        .n_calls = 3,
                        .results = by_number,
                        .n_results = 3,
                        .reasonings = reasonings,
                        .n_reasonings = 2};
}

/* Ids: of the last call before the result, by the call's own id or the one that it gets, or by number. */
static void results_belong_to_calls(void **state) {
    (void)state;
    static const chat_result by_id[] = {{3, "call_1", false}, {4, "a", false}, {7, "a", false}},
                             unknown[] = {{3, "x", false}};
    const answer_form form = {0};
    rp_template *t = template_of(source);
    chat_input in = input_of(t, &form);
    in.results = by_id;
    rp_rendered_turn turns[8];
    size_t n_turns;
    rp_template_text *text = rendered(&in, turns, &n_turns);
    assert_string_equal(text->bytes,
                        "<system>S<user>U<assistant>(a f Rome)(call_1 g )<tool>r0(call_1 g)<tool>r1(a f)<user>V"
                        "<assistant>A(a h Oslo)~some<tool>r2(a h)<assistant>");
    assert_int_equal(n_turns, 7); /* not the empty content */
    assert_true(turns[0].role == RP_ROLE_SYSTEM && turns[0].end == strlen("<system>S"));
    assert_true(turns[6].role == RP_ROLE_TOOL && strncmp(text->bytes + turns[6].end, "(a h)", 5) == 0);
    rp_template_text_free(text);
    in.results = by_number;
    text = rendered(&in, NULL, NULL);
    assert_non_null(strstr(text->bytes, "r0(a f)<tool>r1(call_1 g)"));
    assert_non_null(strstr(text->bytes, "r2(a h)"));
    rp_template_text_free(text);
    in.results = unknown;
    in.n_results = 1;
    text = rendered(&in, NULL, NULL);
    assert_non_null(strstr(text->bytes, "r0(x )<tool>r1<user>"));
    rp_template_text_free(text);
    rp_template_free(t);
}

/* Without the oldest turns: the numbers of calls and the contents' numbers stay right. */
static void messages_are_left_out(void **state) {
    (void)state;
    const answer_form form = {0};
    rp_template *t = template_of(source);
    chat_input in = input_of(t, &form);
    in.first = 5;
    in.continues_last = true;
    rp_rendered_turn turns[8];
    size_t n_turns;
    rp_template_text *text = rendered(&in, turns, &n_turns);
    assert_string_equal(text->bytes, "<system>S<user>V<assistant>A(a h Oslo)~some<tool>r2(a h)");
    assert_int_equal(n_turns, 4);
    assert_true(turns[1].role == RP_ROLE_USER && turns[1].end == strlen("<system>S<user>V"));
    rp_template_text_free(text);
    rp_template_free(t);
}

/* Templates without messages of tools: results are in the message of the calls, and so is the answer after them. */
static void results_are_in_the_message_of_calls(void **state) {
    (void)state;
    static const char text_of[] =
        "{% for m in messages %}<{{ m.role }}>{% for c in m['tool_calls'] %}({{ c.function.name }}){% endfor %}"
        "{% for r in m.get('tool_responses') or [] %}[{{ r.name }}={{ r.response }}]{% endfor %}{{ m.content }}"
        "{% endfor %}";
    static const rp_message turn[] = {
        {RP_ROLE_ASSISTANT, "", 0}, {RP_ROLE_TOOL, "r", 1}, {RP_ROLE_ASSISTANT, "A", 1}, {RP_ROLE_USER, "V", 1}};
    static const chat_call call = {0, NULL, "f", "{}"}, more[] = {{0, NULL, "f", "{}"}, {2, NULL, "g", "{}"}};
    static const chat_result result = {1, NULL, false};
    const answer_form form = {0};
    rp_template *t = template_of(text_of);
    chat_input in = input_of(t, &form);
    rp_rendered_turn turns[8];
    size_t n_turns;
    rp_template_text *text = rendered(&in, turns, &n_turns);
    assert_string_equal(text->bytes,
                        "<system>S<user>U<assistant>(f)(g)[f=r0][g=r1]<user>V<assistant>(h)[h=r2]A");
    assert_int_equal(n_turns, 6); /* neither the empty content nor the last result, which is before its message's */
    rp_template_text_free(text);
    in = (chat_input){.t = t, .form = &form, .messages = turn, .n_messages = 4};
    in.calls = &call;
    in.results = &result;
    in.n_calls = in.n_results = 1;
    text = rendered(&in, turns, &n_turns);
    assert_string_equal(text->bytes, "<assistant>(f)[f=r]A<user>V");
    assert_int_equal(n_turns, 3);
    assert_true(turns[1].role == RP_ROLE_ASSISTANT && turns[1].end == strlen("<assistant>(f)[f=r]A"));
    rp_template_text_free(text);
    in.calls = more;
    in.n_calls = 2;
    text = rendered(&in, NULL, NULL);
    assert_string_equal(text->bytes, "<assistant>(f)[f=r]<assistant>(g)A<user>V");
    rp_template_text_free(text);
    rp_template_free(t);
}

/* ---- calls of families ---- */

/* Parts of minimal templates that write calls as the models' own do: around all of them, before an argument, an
 * argument k of value v, after the last one; and the calls of f and g that they write. */
static const struct {
    const char *family, *begin, *call, *argument, *call_end, *end, *written;
} families[] = {
    {"gemma-4",
     "",
     "<|tool_call>call:{{ f.name + '{' }}",
     "{{ k }}:{{ '<|\"|>' + v + '<|\"|>' if v is string else v | tojson }}{{ ',' if not loop.l"
     "ast }}",
     "}<tool_call|>",
     "",
     "<|tool_call>call:f{city:<|\"|>It's \"Rome\"<|\"|>,days:3}<tool_call|><|tool_call>call:g{"
     "}<tool_call|>"},
    {"lfm2",
     "<|tool_call_start|>[",
     "{{ f.name }}(",
     "{{ k }}={{ \"'\" + v + \"'\" if v is string else v | string }}{{ ', ' if not loop.last }"
     "}",
     "){{ ', ' if not loop.last }}",
     "]<|tool_call_end|>",
     "<|tool_call_start|>[f(city='It's \"Rome\"', days=3), g()]<|tool_call_end|>"},
    {"minimax-m2",
     "<minimax:tool_call>\n",
     "<invoke name=\"{{ f.name }}\">\n",
     "<parameter name=\"{{ k }}\">{{ v if v is string else v | tojson }}</parameter>\n",
     "</invoke>\n",
     "</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"city\">It's \"Rome\"</parame"
     "ter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>"
     "\n</minimax:tool_call>"},
    {"seed-oss",
     "",
     "<seed:tool_call>\n<function={{ f.name }}>\n",
     "<parameter={{ k }}>{{ v | string }}</parameter>\n",
     "</function>\n</seed:tool_call>",
     "",
     "<seed:tool_call>\n<function=f>\n<parameter=city>It's \"Rome\"</parameter>\n<parameter=da"
     "ys>3</parameter>\n</function>\n</seed:tool_call><seed:tool_call>\n<function=g>\n</functi"
     "on>\n</seed:tool_call>"},
    {"deepseek-3.2",
     "<\uFF5CDSML\uFF5Cfunction_calls>\n",
     "<\uFF5CDSML\uFF5Cinvoke name=\"{{ f.name }}\">\n",
     "<\uFF5CDSML\uFF5Cparameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'fals"
     "e' }}\">{{ v if v is string else v | tojson }}</\uFF5CDSML\uFF5Cparameter>\n",
     "</\uFF5CDSML\uFF5Cinvoke>\n",
     "</\uFF5CDSML\uFF5Cfunction_calls>",
     "<\uFF5CDSML\uFF5Cfunction_calls>\n<\uFF5CDSML\uFF5Cinvoke name=\"f\">\n<\uFF5CDSML\uFF5C"
     "parameter name=\"city\" string=\"true\">It's \"Rome\"</\uFF5CDSML\uFF5Cparameter>\n<"
     "\uFF5CDSML\uFF5Cparameter name=\"days\" string=\"false\">3</\uFF5CDSML\uFF5Cparameter>\n"
     "</\uFF5CDSML\uFF5Cinvoke>\n<\uFF5CDSML\uFF5Cinvoke name=\"g\">\n</\uFF5CDSML\uFF5Cinvoke"
     ">\n</\uFF5CDSML\uFF5Cfunction_calls>"},
    {"qwen3-coder",
     "",
     "<tool_call>\n<function={{ f.name }}>\n",
     "<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n</parameter>\n",
     "</function>\n</tool_call>",
     "",
     "<tool_call>\n<function=f>\n<parameter=city>\nIt's \"Rome\"\n</parameter>\n<parameter=day"
     "s>\n3\n</parameter>\n</function>\n</tool_call><tool_call>\n<function=g>\n</function>\n</"
     "tool_call>"},
    {"glm-4.5",
     "",
     "<tool_call>{{ f.name }}",
     "<arg_key>{{ k }}</arg_key><arg_value>{{ v if v is string else v | tojson }}</arg_value>",
     "</tool_call>",
     "",
     "<tool_call>f<arg_key>city</arg_key><arg_value>It's \"Rome\"</arg_value><arg_key>days</ar"
     "g_key><arg_value>3</arg_value></tool_call><tool_call>g</tool_call>"},
    {"mistral-3",
     "",
     "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}",
     "",
     "",
     "",
     "[TOOL_CALLS]f[ARGS]{\"city\": \"It's \\\"Rome\\\"\", \"days\": 3}[TOOL_CALLS]g[ARGS]{}"},
    {"apertus",
     "<|tools_prefix|>[",
     "{\"{{ f.name }}\": {{ f.arguments | tojson }}}{{ ', ' if not loop.last }}",
     "",
     "",
     "]<|tools_suffix|>",
     "<|tools_prefix|>[{\"f\": {\"city\": \"It's \\\"Rome\\\"\", \"days\": 3}}, {\"g\": {}}]<|"
     "tools_suffix|>"},
    {"nemotron-2",
     "<TOOLCALL>[",
     "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}{{ ', ' if not lo"
     "op.last }}",
     "",
     "",
     "]</TOOLCALL>",
     "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"city\": \"It's \\\"Rome\\\"\", \"days\": "
     "3}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>"},
    {"hunyuan",
     "<tool_calls>[",
     "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}{{ ', ' if not lo"
     "op.last }}",
     "",
     "",
     "]</tool_calls>",
     "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"city\": \"It's \\\"Rome\\\"\", \"days\""
     ": 3}}, {\"name\": \"g\", \"arguments\": {}}]</tool_calls>"},
    {"olmo-3",
     "<function_calls>",
     "{{ f.name }}(",
     "{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}",
     "){{ '\\n' if not loop.last }}",
     "</function_calls>",
     "<function_calls>f(city=\"It's \\\"Rome\\\"\", days=3)\ng()</function_calls>"},
};

static void put_source(size_t i, base_buffer *out) {
    assert_int_equal(
        base_buffer_printf(out,
                           "{%% for m in messages %%}{%% if m.tool_calls %%}%s{%% for c in m.tool_calls %%}{%% set f = "
                           "c.function %%}%s{%% for k, v in f.arguments.items() %%}%s{%% endfor %%}%s{%% endfor %%}%s"
                           "{%% else %%}{{ m.content }}|{%% endif %%}{%% endfor %%}",
                           families[i].begin, families[i].call, families[i].argument, families[i].call_end,
                           families[i].end),
        0);
}

/* What a template writes of calls is read as those, by the convention that it is detected to be. */
static void calls_are_rendered_and_read(void **state) {
    (void)state;
    static const rp_message asked[] = {{RP_ROLE_USER, "U", 1}, {RP_ROLE_ASSISTANT, "", 0}};
    static const char arguments[] = "{\"city\": \"It's \\\"Rome\\\"\", \"days\": 3}";
    static const chat_call both[] = {{1, NULL, "f", arguments}, {1, NULL, "g", "{}"}};
    tool_spec tools[] = {{.name = "f"}, {.name = "g"}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(families); i++) {
        answer_form form = {.tools = tools, .n_tools = 2};
        base_buffer written = BASE_BUFFER(4096);
        put_source(i, &written);
        rp_template *t = template_of(written.data);
        const chat_input in = {.t = t, .form = &form, .messages = asked, .n_messages = 2, .calls = both, .n_calls = 2};
        form.convention = tool_convention_detect(written.data, written.len, "plain");
        assert_string_equal(form.convention.family->name, families[i].family);
        rp_template_text *text = rendered(&in, NULL, NULL);
        const char *turn = strchr(text->bytes, '|') + 1;
        assert_string_equal(turn, families[i].written);
        tool_finder f;
        tool_finder_init(&f, &form, TOOL_REASONING_ITEMS, NULL, NULL);
        assert_int_equal(tool_finder_feed(&f, turn, strlen(turn)), 0);
        assert_int_equal(tool_finder_finish(&f), 0);
        assert_int_equal(f.n_items, 2);
        for (size_t k = 0; k < 2; k++) {
            json_t *found = tool_item_arguments(&f.items[k]), *expected = json_loads(both[k].arguments, 0, NULL);
            assert_ptr_equal(f.items[k].tool, &tools[k]);
            assert_true(found && json_equal(found, expected));
            json_decref(found);
            json_decref(expected);
        }
        tool_finder_free(&f);
        rp_template_text_free(text);
        rp_template_free(t);
        base_buffer_free(&written);
    }
}

static int rendered_as(const chat_input *in, rp_template_text **text, rp_template_failure *why) {
    rp_template_options options = rp_template_options_defaults();
    rp_template_input *values;
    options.failure = why;
    assert_int_equal(chat_input_values(in, &values, NULL, NULL), RP_OK);
    const int rc = rp_template_render_input(in->t, values, &options, text, NULL);
    rp_template_input_free(values);
    return rc;
}

static void a_template_gets_what_it_wants(void **state) {
    (void)state;
    static const char mistral[] = "{% for m in messages %}{% for c in m.tool_calls %}"
                                  "{% if c.id | length != 9 %}{{ raise_exception('no such ids') }}"
                                  "{% endif %}{{ c.id }}{{ c.function.arguments + '!' }}{% endfor %}{% endfor %}";
    const answer_form form = {0};
    rp_template *t = template_of(mistral);
    chat_input in = {.t = t, .form = &form, .messages = messages, .n_messages = 3, .calls = calls, .n_calls = 1};
    rp_template_text *text = NULL;
    rp_template_failure why;
    int rc, n_styles = 0;
    while ((rc = rendered_as(&in, &text, &why)) != RP_OK && n_styles++ < 3)
        assert_int_equal(chat_input_adapt(&in, false, why), CHAT_AGAIN);
    assert_int_equal(rc, RP_OK);
    assert_true(in.style.short_ids && in.style.text_arguments);
    assert_string_equal(text->bytes + 9, "{\"city\": \"Rome\"}!");
    assert_int_equal(chat_input_adapt(&in, false, why), CHAT_GIVE_UP);
    rp_template_text_free(text);
    rp_template_free(t);
}

/* Whatever a template says, each form is tried once, and those that changed nothing are taken back. */
static void each_form_is_tried_once(void **state) {
    (void)state;
    const answer_form form = {0};
    const chat_input start = {.form = &form, .messages = messages, .n_messages = 3, .calls = calls, .n_calls = 1};
    for (int why = RP_TEMPLATE_REFUSED; why <= RP_TEMPLATE_FAILED; why++) {
        chat_input in = start;
        bool merged = false;
        int n = 0;
        for (chat_retry retry; (retry = chat_input_adapt(&in, merged, (rp_template_failure)why)) != CHAT_GIVE_UP; n++) {
            if (retry == CHAT_MERGE) {
                assert_false(merged);
                assert_false(in.style.short_ids); /* merging may be all that is needed */
                merged = true;
            }
            assert_true(n < 4);
        }
        assert_true(merged);
        assert_int_equal(in.style.short_ids, why == RP_TEMPLATE_REFUSED);
        assert_int_equal(in.style.text_arguments, why == RP_TEMPLATE_WRONG_TYPE);
    }
    chat_input one = {.form = &form, .messages = messages, .n_messages = 1};
    assert_int_equal(chat_input_adapt(&one, false, RP_TEMPLATE_REFUSED), CHAT_GIVE_UP); /* no calls, nothing to merge */
}

/* Messages in turns of user and assistant; what belongs to them moves with them, and each text is where `offset`
   says. */
static void messages_are_merged(void **state) {
    (void)state;
    static const rp_message given[] = {
        {RP_ROLE_SYSTEM, "S", 1},
        {RP_ROLE_USER, "", 0},
        {RP_ROLE_USER, "U", 1},
        {RP_ROLE_ASSISTANT, "", 0},
        {RP_ROLE_ASSISTANT, "A", 1},
        {RP_ROLE_TOOL, "r", 1},
        {RP_ROLE_TOOL, "s", 1},
        {RP_ROLE_SYSTEM, "T", 1},
    };
    static const char *const texts[] = {"S\n\nU", "A", "r", "s", "T"};
    static const rp_role roles[] = {RP_ROLE_USER, RP_ROLE_ASSISTANT, RP_ROLE_TOOL, RP_ROLE_TOOL, RP_ROLE_USER};
    chat_call call = {.message = 4};
    chat_result result = {.message = 6};
    chat_reasoning reasoning = {.message = 3};
    chat_merged m;
    assert_int_equal(chat_merge(&m, given, 8, 100), RP_OK);
    assert_int_equal(m.n_messages, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(m.messages[i].text, texts[i]);
        assert_int_equal(m.messages[i].n, strlen(texts[i]));
        assert_int_equal(m.messages[i].role, roles[i]);
    }
    for (size_t i = 0; i < 8; i++)
        assert_memory_equal(m.messages[m.to[i]].text + m.offset[i], given[i].text, given[i].n);
    chat_merged_move(&m, &call, 1, &result, 1, &reasoning, 1);
    assert_true(call.message == 1 && result.message == 3 && reasoning.message == 1);
    chat_merged_free(&m);
    assert_int_equal(chat_merge(&m, given, 8, 9), RP_ERR_LIMIT);
    chat_merged_free(&m);
    assert_int_equal(chat_merge(&m, &given[1], 1, 100), RP_OK);
    assert_string_equal(m.messages[0].text, "");
    chat_merged_free(&m);
}

static void variables(void **state) {
    (void)state;
    tool_spec tools[] = {{.name = "f"}, {.name = "g", .barred = true}};
    answer_form form = {.tools = tools, .n_tools = 2, .thinking = THINKING_OFF};
    rp_template *t = template_of(
        "{{ tools | tojson if tools is not none else 'no tools' }}|{{ bos_token }}|{{ date }}|{{ reasoning_effort }}|"
        "{{ enable_thinking }}{{ thinking }}|{{ add_generation_prompt }}|{{ documents }}");
    json_t *given = json_pack("{s:s, s:s}", "bos_token", "<s>", "date", "today");
    chat_input in = {
        .t = t, .form = &form, .messages = messages, .n_messages = 1, .variables = given, .reasoning_effort = "low"};
    rp_template_text *text = rendered(&in, NULL, NULL);
    assert_string_equal(
        text->bytes, "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
                     "\"properties\": {}}}}]||today|low|FalseFalse|True|None");
    rp_template_text_free(text);
    form.tool_choice = TOOL_CHOICE_NONE;
    text = rendered(&in, NULL, NULL);
    assert_int_equal(strncmp(text->bytes, "no tools|", 9), 0);
    rp_template_text_free(text);
    json_decref(given);
    rp_template_free(t);
}

static void reasoning_is_opened(void **state) {
    (void)state;
    static const char thinks[] =
        "{% for m in messages %}{{ (m.content | string).split('</think>')[-1] }}{% endfor %}<think>\n";
    const rp_message user = {RP_ROLE_USER, "<think>", 7};
    rp_template *t = template_of(thinks), *plain = template_of("{% for m in messages %}{{ m.content }}{% endfor %}");
    answer_form form = {.convention = tool_convention_detect(thinks, strlen(thinks), "chatml")};
    chat_input in = {.t = t, .form = &form, .messages = &user, .n_messages = 1};
    rp_template_text *text = rendered(&in, NULL, NULL);
    assert_non_null(form.convention.reasoning);
    assert_true(chat_input_opens_reasoning(&in, text));
    rp_template_text_free(text);
    in.t = plain;
    text = rendered(&in, NULL, NULL);
    assert_false(chat_input_opens_reasoning(&in, text)); /* the user's text */
    in.continues_last = true;
    assert_true(chat_input_opens_reasoning(&in, text)); /* the answer that is continued */
    rp_template_text_free(text);
    rp_template_free(plain);
    rp_template_free(t);
}

static void roles_have_names(void **state) {
    (void)state;
    for (int i = 0; i < RP_N_ROLES; i++) {
        rp_role role = RP_ROLE_SYSTEM;
        assert_true(rp_role_parse(rp_role_name((rp_role)i), &role));
        assert_int_equal(role, i);
    }
    rp_role role = RP_ROLE_TOOL;
    assert_false(rp_role_parse("developer", &role) || rp_role_parse("", &role) || rp_role_parse(NULL, &role));
    assert_int_equal(role, RP_ROLE_TOOL);
    assert_null(rp_role_name((rp_role)RP_N_ROLES));
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(results_belong_to_calls),
        cmocka_unit_test(messages_are_left_out),
        cmocka_unit_test(results_are_in_the_message_of_calls),
        cmocka_unit_test(calls_are_rendered_and_read),
        cmocka_unit_test(a_template_gets_what_it_wants),
        cmocka_unit_test(each_form_is_tried_once),
        cmocka_unit_test(messages_are_merged),
        cmocka_unit_test(variables),
        cmocka_unit_test(reasoning_is_opened),
        cmocka_unit_test(roles_have_names),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
