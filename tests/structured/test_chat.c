/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat.c: reprise_chat.h with the bundled model: calls and answers in a form that the grammar enforces, parts of
 * answers, also as they arrive, returned answers, errors, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "reprise_chat.h"
#include "support/tiny_model.h"

typedef struct world {
    rp_model *model;
    rp_engine *engine;
} world;

static const rp_tool tools[] = {
    {.name = "weather",
     .description = "The weather in a city.",
     .parameters = "{\"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Miami\", \"Rome\"]}}, "
                   "\"required\": [\"city\"]}",
     .strict = true},
    {.name = "now"},
};

static int set_up(void **state) {
    static world w;
    const char *root = getenv("REPRISE_SOURCE_DIR");
    char path[1024];
    rp_error err;
    snprintf(path, sizeof(path), "%s/models/reprise-mini.gguf", root ? root : ".");
    if (rp_model_open(&w.model, path, NULL, &err) || rp_engine_new(&w.engine, w.model, NULL, &err))
        fail_msg("%s", err.message);
    *state = &w;
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    rp_engine_free(w->engine);
    rp_model_close(w->model);
    return 0;
}

static rp_chat_options options_of(const rp_chat_message *messages, size_t n) {
    rp_chat_options o = rp_chat_options_defaults();
    o.messages = messages;
    o.n_messages = n;
    return o;
}

static rp_chat *chat_of(const world *w, const rp_chat_options *o) {
    rp_chat *chat;
    rp_error err;
    if (rp_chat_new(&chat, w->model, o, &err)) fail_msg("%s", err.message);
    return chat;
}

/* The answer of the model; rp_chat_answer_free. */
static rp_chat_answer *answer_of(const world *w, const rp_chat_options *o) {
    rp_chat *chat = chat_of(w, o);
    rp_chat_answer *answer;
    rp_result *result;
    rp_error err;
    if (rp_chat_run(chat, w->engine, NULL, &result, &err)) fail_msg("%s", err.message);
    assert_string_equal(result->finish_reason, "stop");
    assert_int_equal(rp_chat_parse(chat, result->text, strlen(result->text), &answer, &err), RP_OK);
    rp_result_free(result);
    rp_chat_free(chat);
    return answer;
}

/* A call, its result, and JSON over both. */
static void a_tool_is_called(void **state) {
    const world *w = *state;
    rp_chat_message messages[3] = {{.role = RP_ROLE_USER, .text = "What is the weather in Miami?"}};
    rp_chat_options o = options_of(messages, 1);
    o.tools = tools;
    o.n_tools = 2;
    o.tool_choice = RP_TOOL_CHOICE_REQUIRED;
    o.tool_name = "weather";
    o.one_call = true;
    rp_chat_answer *call = answer_of(w, &o);
    assert_int_equal(call->n_calls, 1);
    assert_string_equal(call->calls[0].name, "weather");
    assert_string_equal(call->calls[0].id, "call_0");
    assert_true(call->calls[0].is_whole);
    assert_string_equal(call->text, "");
    json_t *arguments = json_loads(call->calls[0].arguments, 0, NULL);
    assert_non_null(json_string_value(json_object_get(arguments, "city")));
    json_decref(arguments);
    messages[1] = (rp_chat_message){.role = RP_ROLE_ASSISTANT, .calls = call->calls, .n_calls = 1};
    messages[2] = (rp_chat_message){.role = RP_ROLE_TOOL, .text = "sunny", .call_id = "call_0"};
    o.n_messages = 3;
    o.tool_choice = RP_TOOL_CHOICE_NONE;
    o.tool_name = NULL;
    o.json_schema = "{\"enum\": [\"sunny\", \"rainy\"]}";
    rp_chat_answer *answer = answer_of(w, &o);
    assert_true(strcmp(answer->text, "\"sunny\"") == 0 || strcmp(answer->text, "\"rainy\"") == 0);
    rp_chat_answer_free(answer);
    rp_chat_answer_free(call);
}

static void forms_of_texts(void **state) {
    const world *w = *state;
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "Hello"};
    rp_chat_options o = options_of(&message, 1);
    o.regex = "[ab]{3}";
    rp_chat_answer *answer = answer_of(w, &o);
    assert_int_equal(answer->n_text, 3);
    assert_int_equal(strspn(answer->text, "ab"), 3);
    rp_chat_answer_free(answer);
}

/* Parts of an answer, however the model came to write it. */
static void answers_have_parts(void **state) {
    const world *w = *state;
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "Hello"};
    rp_chat_options o = options_of(&message, 1);
    o.tools = tools;
    o.n_tools = 2;
    rp_chat *chat = chat_of(w, &o);
    rp_chat_answer *answer;
    rp_error err;
    static const char text[] = "Well.\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
                               "{}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", "
                               "\"arguments\": {\"city\": \"Rome\"";
    assert_int_equal(rp_chat_parse(chat, text, strlen(text), &answer, &err), RP_OK);
    assert_string_equal(answer->text, "Well.");
    assert_int_equal(answer->n_calls, 2);
    assert_string_equal(answer->calls[0].arguments, "{}");
    assert_true(answer->calls[0].is_whole && !answer->calls[1].is_whole);
    assert_string_equal(answer->calls[1].id, "call_1");
    rp_chat_answer_free(answer);
    assert_int_equal(rp_chat_parse(chat, NULL, 0, &answer, &err), RP_OK);
    assert_true(answer->n_text == 0 && answer->n_calls == 0 && answer->n_reasoning == 0);
    rp_chat_answer_free(answer);
    rp_chat_free(chat);
}

static void warnings_name_what_is_not_enforced(void **state) {
    const world *w = *state;
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "Hello"};
    const rp_tool loose = {.name = "f",
                           .parameters = "{\"type\": \"object\", \"properties\": {\"a\": {\"dependentSchemas\": {}}}}"};
    rp_chat_options o = options_of(&message, 1);
    o.tools = &loose;
    o.n_tools = 1;
    rp_chat *chat = chat_of(w, &o);
    assert_non_null(strstr(rp_chat_warning(chat, 0), "tools[0].parameters.properties.a.dependentSchemas"));
    assert_null(rp_chat_warning(chat, 1));
    assert_non_null(rp_chat_grammar(chat));
    assert_non_null(rp_chat_trigger(chat));
    rp_chat_free(chat);
}

static void errors(void **state) {
    const world *w = *state;
    const rp_chat_message user = {.role = RP_ROLE_USER, .text = "Hello"};
    const rp_tool bad_schema = {.name = "f",
                                .parameters = "{\"type\": \"object\", \"properties\": {\"a\": {\"minimum\": \"x\"}}}",
                                .strict = true};
    const rp_tool unsupported = {
        .name = "f", .parameters = "{\"type\": \"object\", \"dependentSchemas\": {}}", .strict = true};
    const rp_tool no_json = {.name = "f", .parameters = "{"}, bad_name = {.name = "a b"},
                  twice[] = {{.name = "f"}, {.name = "f"}};
    const rp_chat_message call = {
        .role = RP_ROLE_USER, .calls = &(rp_tool_call){.name = "f", .arguments = "{}"}, .n_calls = 1};
    const rp_chat_message no_calls = {.role = RP_ROLE_ASSISTANT, .n_calls = 2};
    const rp_tool latin_tool = {.name = "f", .description = "caf\xE9"};
    const rp_tool_call latin_names[] = {{.name = "f", .arguments = "{}"}, {.name = "\xE9", .arguments = "{}"}};
    const rp_tool_call latin_id = {.id = "\xE9", .name = "f", .arguments = "{}"};
    const rp_chat_message latin_call = {.role = RP_ROLE_ASSISTANT, .calls = latin_names, .n_calls = 2},
                          latin_id_call = {.role = RP_ROLE_ASSISTANT, .calls = &latin_id, .n_calls = 1};
    const struct {
        rp_chat_options o;
        rp_code code;
        const char *message;
    } cases[] = {
        {{.messages = NULL}, RP_ERR_INVALID, "1 to"},
        {{.messages = &call, .n_messages = 1}, RP_ERR_INVALID, "messages[0]: calls"},
        {{.messages = &no_calls, .n_messages = 1}, RP_ERR_INVALID, "messages[0]: n_calls is 2"},
        {{.messages = &user, .n_messages = 1, .n_tools = 1}, RP_ERR_INVALID, "n_tools is 1"},
        {{.messages = &user, .n_messages = 1, .tools = &bad_schema, .n_tools = 1},
         RP_ERR_INVALID,
         "tools[0].parameters.properties.a.minimum"},
        {{.messages = &user, .n_messages = 1, .tools = &unsupported, .n_tools = 1},
         RP_ERR_UNSUPPORTED,
         "tools[0].parameters.dependentSchemas"},
        {{.messages = &user, .n_messages = 1, .tools = &no_json, .n_tools = 1},
         RP_ERR_INVALID,
         "'tools[0].parameters' is not valid JSON: line 1"},
        {{.messages = &user, .n_messages = 1, .tools = &bad_name, .n_tools = 1}, RP_ERR_INVALID, "a name has"},
        {{.messages = &user, .n_messages = 1, .tools = twice, .n_tools = 2}, RP_ERR_INVALID, "duplicate tool 'f'"},
        {{.messages = &user, .n_messages = 1, .tools = tools, .n_tools = 2, .tool_name = "g"}, RP_ERR_NAME, "'g'"},
        {{.messages = &user, .n_messages = 1, .tool_choice = RP_TOOL_CHOICE_REQUIRED}, RP_ERR_INVALID, "no tools"},
        {{.messages = &user, .n_messages = 1, .json_schema = "{}", .regex = "a"}, RP_ERR_INVALID, "exclude each other"},
        {{.messages = &user, .n_messages = 1, .regex = "(?=a)"}, RP_ERR_INVALID, "'regex' is not supported"},
        {{.messages = &user, .n_messages = 1, .json_schema = "1"}, RP_ERR_INVALID, "give a JSON Schema"},
        {{.messages = &user, .n_messages = 1, .tools = &latin_tool, .n_tools = 1},
         RP_ERR_INVALID,
         "'tools[0].description' is not UTF-8: byte 3"},
        {{.messages = &latin_call, .n_messages = 1}, RP_ERR_INVALID, "'messages[0].calls[1].name' is not UTF-8"},
        {{.messages = &latin_id_call, .n_messages = 1}, RP_ERR_INVALID, "'messages[0].calls[0].id' is not UTF-8"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        rp_chat_options o = cases[i].o;
        rp_chat *chat;
        rp_error err;
        o.struct_size = (uint32_t)sizeof(o);
        const int rc = rp_chat_new(&chat, w->model, &o, &err);
        if (rc != cases[i].code || !strstr(err.message, cases[i].message))
            fail_msg("case %zu: %d: %s", i, rc, rc ? err.message : "no error");
        assert_null(chat);
    }
    rp_chat *chat = chat_of(
        w, &(rp_chat_options){.struct_size = (uint32_t)sizeof(rp_chat_options), .messages = &user, .n_messages = 1});
    rp_request request = rp_request_defaults();
    rp_result *result;
    rp_error err;
    request.prompt = rp_prompt_text("a");
    assert_int_equal(rp_chat_run(chat, w->engine, &request, &result, &err), RP_ERR_INVALID);
    assert_null(result);
    rp_chat_free(chat);
}

/* A function that fails sets *out to NULL, whichever argument is missing. */
static void results_of_failures_are_null(void **state) {
    const world *w = *state;
    const rp_chat_message user = {.role = RP_ROLE_USER, .text = "Hello"};
    const rp_chat_options o = options_of(&user, 1);
    rp_error err;
    rp_chat *chat = (rp_chat *)&err;
    rp_chat_reader *reader = (rp_chat_reader *)&err;
    rp_chat_answer *answer = (rp_chat_answer *)&err;
    char *grammar = err.message;
    assert_int_equal(rp_chat_new(&chat, NULL, &o, &err), RP_ERR_INVALID);
    assert_null(chat);
    chat = (rp_chat *)&err;
    assert_int_equal(rp_chat_new(&chat, w->model, NULL, &err), RP_ERR_INVALID);
    assert_null(chat);
    assert_int_equal(rp_chat_new(NULL, w->model, &o, &err), RP_ERR_INVALID);
    assert_int_equal(rp_chat_reader_new(&reader, NULL, NULL, NULL, &err), RP_ERR_INVALID);
    assert_null(reader);
    assert_int_equal(rp_chat_parse(NULL, "a", 1, &answer, &err), RP_ERR_INVALID);
    assert_null(answer);
    assert_int_equal(rp_json_schema_grammar(NULL, 0, &grammar, &err), RP_ERR_INVALID);
    assert_null(grammar);
}

/* A template that writes tools, calls and results itself, opens reasoning, and whose model has its marks as control
   tokens. */
static void templates_write_the_conversation(void **state) {
    (void)state;
    static const char source[] =
        "{% if tools %}<tool_call> {{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
        "{% for c in m.tool_calls %}<tool_call>{{ c.function.name }} {{ c.function.arguments.city }} {{ c.id "
        "}}</tool_call>{% endfor %}"
        "{% if m.tool_call_id %} for {{ m.tool_call_id }} of {{ m.name }}{% endif %}<|im_end|>\n{% endfor "
        "%}<|im_start|>assistant\n"
        "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}";
    static const char *const control[] = {"<|im_end|>", "<tool_call>", "<think>", "</think>", NULL};
    const rp_tool_call call = {.name = "weather", .arguments = "{\"city\": \"Rome\"}"};
    const rp_chat_message messages[] = {{.role = RP_ROLE_USER, .text = "Rome?"},
                                        {.role = RP_ROLE_ASSISTANT, .reasoning = "Hm.", .calls = &call, .n_calls = 1},
                                        {.role = RP_ROLE_TOOL, .text = "sunny"}};
    tiny_model_shape shape = tiny_model_defaults();
    shape.vocab = TINY_VOCAB_BPE;
    shape.n_vocab = 0;
    shape.n_ctx = 4096;
    shape.chat_template = source;
    shape.control = control;
    world w = {.model = tiny_model_open(&shape, NULL)};
    rp_error err;
    assert_int_equal(rp_engine_new(&w.engine, w.model, NULL, &err), RP_OK);
    assert_true(rp_model_writes_control_marks(w.model));
    rp_chat_options o = options_of(messages, 3);
    o.tools = tools;
    o.n_tools = 1;
    rp_chat *chat = chat_of(&w, &o);
    rp_chat_answer *answer;
    static const char text[] =
        "So.\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Miami\"}}\n</tool_call>";
    assert_int_equal(rp_chat_parse(chat, text, strlen(text), &answer, &err), RP_OK);
    assert_string_equal(answer->reasoning, "So."); /* the prompt opened it */
    assert_int_equal(answer->n_calls, 1);
    assert_string_equal(answer->calls[0].id, "call_1"); /* the conversation has call_0 */
    rp_chat_answer_free(answer);
    rp_chat_free(chat);
    o.tool_choice = RP_TOOL_CHOICE_REQUIRED;
    o.thinking = RP_THINKING_OFF; /* a random model's reasoning does not end */
    answer = answer_of(&w, &o);
    assert_true(answer->n_calls >= 1 && answer->calls[0].is_whole && answer->n_reasoning == 0);
    rp_chat_answer_free(answer);
    rp_engine_free(w.engine);
    rp_model_close(w.model);
}

/* A template that knows neither system messages nor two messages of the user in turn, nor arguments that are no
   text. */
static void templates_that_refuse_get_another_form(void **state) {
    (void)state;
    static const char source[] =
        "{% for m in messages %}{% if m.role != ['user', 'assistant', 'tool'][loop.index0 % 3] %}"
        "{{ raise_exception('roles must take turns') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor "
        "%}"
        "{% if m.name %}{{ m.name }}{% endif %}{% endfor %}{{ tools | length }}";
    const rp_tool_call call = {.name = "now", .arguments = "{}"};
    const rp_chat_message messages[] = {{.role = RP_ROLE_SYSTEM, .text = "Be brief."},
                                        {.role = RP_ROLE_USER, .text = "Hello."},
                                        {.role = RP_ROLE_ASSISTANT, .calls = &call, .n_calls = 1},
                                        {.role = RP_ROLE_TOOL, .text = "noon"}};
    tiny_model_shape shape = tiny_model_defaults();
    shape.chat_template = source;
    rp_model *model = tiny_model_open(&shape, NULL);
    rp_chat_options o = options_of(messages, 4);
    o.tools = tools;
    o.n_tools = 2;
    rp_chat *chat;
    rp_error err;
    if (rp_chat_new(&chat, model, &o, &err)) fail_msg("%s", err.message);
    rp_chat_free(chat);
    o.messages = &messages[2]; /* no form of it begins with the user */
    o.n_messages = 2;
    assert_int_equal(rp_chat_new(&chat, model, &o, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "roles must take turns"));
    rp_model_close(model);
}

static void schemas_as_grammars(void **state) {
    (void)state;
    rp_error err;
    char *grammar;
    assert_int_equal(rp_json_schema_grammar("{\"enum\": [1, 2]}", 16, &grammar, &err), RP_OK);
    assert_non_null(strstr(grammar, "root ::= "));
    rp_free(grammar);
    assert_int_equal(rp_json_schema_grammar("{\"enum\":", 8, &grammar, &err), RP_ERR_INVALID);
    assert_null(grammar);
    assert_int_equal(rp_json_schema_grammar("{\"dependentSchemas\": {}}", 24, &grammar, &err), RP_ERR_UNSUPPORTED);
    assert_string_equal(err.where, "schema.dependentSchemas");
}

/* ---- answers as they arrive ---- */

/* Events as text: "T(Well.)C(call_0 now)A({})E(1 {})"; consecutive pieces of one kind are joined. */
typedef struct event_log {
    char text[4096];
    size_t n;
    rp_chat_event last;
    int left; /* events until it says stop; -1: never */
} event_log;

static void put(event_log *l, const char *bytes, size_t n) {
    assert_true(l->n + n < sizeof(l->text));
    memcpy(l->text + l->n, bytes, n);
    l->n += n;
}

static bool on_event(void *user, rp_chat_event event, const rp_tool_call *call, const char *bytes, size_t n) {
    event_log *l = user;
    char head[512];
    assert_true((call == NULL) == (event == RP_CHAT_TEXT || event == RP_CHAT_REASONING));
    const bool joins = l->n > 0 && event == l->last && call == NULL
                           ? true
                           : event == RP_CHAT_ARGUMENTS && l->last == RP_CHAT_ARGUMENTS;
    if (joins) l->n--;
    snprintf(head, sizeof(head), "%c(", "TRCAE"[event]);
    if (event == RP_CHAT_CALL) snprintf(head, sizeof(head), "C(%s %s", call->id, call->name);
    if (event == RP_CHAT_CALL_END) snprintf(head, sizeof(head), "E(%d %s", call->is_whole, call->arguments);
    if (!joins) put(l, head, strlen(head));
    put(l, bytes, n);
    put(l, ")", 1);
    l->last = event;
    return l->left < 0 || l->left-- > 0;
}

/* The same events however the answer is cut, and the same parts as of the complete answer; the chat may go before its
   readers. */
static void answers_are_read_as_they_arrive(void **state) {
    const world *w = *state;
    static const char text[] = "Well \xE2\x82\xAC.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
                               "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
                               "\"Rome\"}}\n</tool_call> And <tool_call> is text."
                               "<tool_call>{\"name\": \"now\", \"arguments\": {\"a";
    static const char events[] = "T(Well \xE2\x82\xAC.)C(call_0 now)A({})E(1 {})C(call_1 weather)A({\"city\": "
                                 "\"Rome\"})E(1 {\"city\": \"Rome\"})"
                                 "T( And <tool_call> is text.)C(call_2 now)A({\"a)E(0 {\"a)";
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "Hello"};
    rp_chat_options o = options_of(&message, 1);
    o.tools = tools;
    o.n_tools = 2;
    for (size_t piece = 1; piece <= sizeof(text); piece += piece < 40 ? 1 : 37) {
        rp_chat *chat = chat_of(w, &o);
        event_log log = {.left = -1};
        rp_chat_reader *reader;
        rp_chat_answer *answer, *whole;
        rp_error err;
        assert_int_equal(rp_chat_parse(chat, text, strlen(text), &whole, &err), RP_OK);
        assert_int_equal(rp_chat_reader_new(&reader, chat, on_event, &log, &err), RP_OK);
        rp_chat_free(chat);
        for (size_t at = 0; at < strlen(text); at += piece)
            assert_int_equal(rp_chat_reader_feed(reader, text + at, BASE_MIN(piece, strlen(text) - at), &err), RP_OK);
        assert_int_equal(rp_chat_reader_end(reader, &answer, &err), RP_OK);
        if (strcmp(log.text, events) != 0) fail_msg("pieces of %zu: %s", piece, log.text);
        assert_string_equal(answer->text, whole->text);
        assert_int_equal(answer->n_calls, whole->n_calls);
        assert_int_equal(rp_chat_reader_feed(reader, "a", 1, &err), RP_ERR_INVALID);
        assert_int_equal(rp_chat_reader_end(reader, NULL, &err), RP_ERR_INVALID);
        rp_chat_reader_free(reader);
        rp_chat_answer_free(answer);
        rp_chat_answer_free(whole);
    }
}

static void a_reader_is_stopped(void **state) {
    const world *w = *state;
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "Hello"};
    rp_chat_options o = options_of(&message, 1);
    rp_chat *chat = chat_of(w, &o);
    rp_chat_reader *reader;
    rp_error err;
    event_log log = {.left = 1};
    assert_int_equal(rp_chat_reader_new(&reader, chat, on_event, &log, &err), RP_OK);
    assert_int_equal(rp_chat_reader_feed(reader, "one", 3, &err), RP_OK);
    assert_int_equal(rp_chat_reader_feed(reader, "two", 3, &err), RP_ERR_CANCELLED);
    assert_int_equal(rp_chat_reader_feed(reader, "three", 5, &err), RP_ERR_INVALID);
    assert_string_equal(log.text, "T(onetwo)");
    rp_chat_reader_free(reader);
    assert_int_equal(rp_chat_reader_new(&reader, chat, NULL, NULL, &err), RP_OK);
    assert_int_equal(rp_chat_reader_feed(reader, NULL, 1, &err), RP_ERR_INVALID);
    assert_int_equal(rp_chat_reader_end(reader, NULL, &err), RP_OK);
    rp_chat_reader_free(reader);
    rp_chat_reader_free(NULL);
    rp_chat_free(chat);
}

typedef struct inner_use {
    rp_chat_reader *reader;
    int n_events, fed, ended;
} inner_use;

static bool use_within(void *user, rp_chat_event event, const rp_tool_call *call, const char *bytes, size_t n) {
    inner_use *u = user;
    (void)event, (void)call, (void)bytes, (void)n;
    if (u->n_events++ > 0) return true;
    u->fed = rp_chat_reader_feed(u->reader, "two", 3, NULL);
    u->ended = rp_chat_reader_end(u->reader, NULL, NULL);
    rp_chat_reader_free(u->reader);
    return true;
}

/* on_event cannot use the reader that calls it. */
static void a_reader_is_not_used_within_its_callback(void **state) {
    const world *w = *state;
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "Hello"};
    rp_chat_options o = options_of(&message, 1);
    rp_chat *chat = chat_of(w, &o);
    inner_use use = {0};
    rp_chat_answer *answer;
    rp_error err;
    assert_int_equal(rp_chat_reader_new(&use.reader, chat, use_within, &use, &err), RP_OK);
    assert_int_equal(rp_chat_reader_feed(use.reader, "one", 3, &err), RP_OK);
    assert_int_equal(use.fed, RP_ERR_INVALID);
    assert_int_equal(use.ended, RP_ERR_INVALID);
    assert_int_equal(rp_chat_reader_end(use.reader, &answer, &err), RP_OK);
    assert_string_equal(answer->text, "one");
    assert_int_equal(use.n_events, 1);
    rp_chat_answer_free(answer);
    rp_chat_reader_free(use.reader);
    rp_chat_free(chat);
}

/* ---- jobs ---- */

typedef struct calls_seen {
    size_t n_bytes;
    int n_tokens, n_done;
} calls_seen;

static bool count_text(void *user, const char *text, size_t n) {
    (void)text;
    ((calls_seen *)user)->n_bytes += n;
    return true;
}

static bool count_token(void *user, const rp_token *token) {
    (void)token;
    ((calls_seen *)user)->n_tokens++;
    return true;
}

static void count_done(void *user) { ((calls_seen *)user)->n_done++; }

/* Callbacks are the caller's; a stop string within a call is no end; the chat may go as soon as its job is
   submitted. */
static void jobs_of_chats(void **state) {
    const world *w = *state;
    const rp_chat_message message = {.role = RP_ROLE_USER, .text = "What is the weather in Miami?"};
    static const char *const stops[] = {"city"};
    rp_chat_options o = options_of(&message, 1);
    o.tools = tools;
    o.n_tools = 1;
    o.tool_choice = RP_TOOL_CHOICE_REQUIRED;
    rp_chat *chat = chat_of(w, &o), *same = chat_of(w, &o);
    calls_seen seen = {0};
    rp_request request = rp_request_defaults();
    rp_chat_answer *answer;
    rp_result *result;
    rp_job *job;
    rp_error err;
    request.stops = stops;
    request.n_stops = 1;
    request.on_text = count_text;
    request.on_token = count_token;
    request.on_done = count_done;
    request.user = &seen;
    assert_int_equal(rp_chat_submit(chat, w->engine, &request, &job, &err), RP_OK);
    rp_chat_free(chat);
    assert_int_equal(rp_job_result(job, &result, &err), RP_OK);
    rp_job_free(job);
    assert_int_equal(rp_chat_parse(same, result->text, strlen(result->text), &answer, &err), RP_OK);
    assert_true(answer->n_calls >= 1 && answer->calls[0].is_whole);
    assert_true(seen.n_done == 1 && seen.n_tokens == result->n_tokens && seen.n_bytes == strlen(result->text));
    rp_chat_answer_free(answer);
    rp_result_free(result);
    request.stops = (const char *const[]){""};
    assert_true(rp_chat_submit(same, w->engine, &request, &job, &err) != RP_OK);
    assert_true(rp_chat_run(same, w->engine, &request, &result, &err) != RP_OK);
    assert_int_equal(seen.n_done, 1);
    rp_chat_free(same);
}

static bool means_its_bytes(void *user, const char *opening, const char *text, size_t n,
                            uint8_t meaning[RP_MEANING_BYTES]) {
    (void)user, (void)opening, (void)text, (void)n, (void)meaning;
    return false;
}

/* A returned call with its arguments in another order is the sampled tokens again. */
static void returned_answers_are_known(void **state) {
    const world *w = *state;
    static const rp_tool trip = {.name = "trip",
                                 .parameters =
                                     "{\"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Miami\"]}, "
                                     "\"days\": {\"enum\": [3]}}, \"required\": [\"city\", \"days\"]}",
                                 .strict = true};
    const rp_tool_call returned = {.name = "trip", .arguments = "{ \"days\":3, \"city\":\"Miami\" }"};
    const rp_chat_message messages[] = {{.role = RP_ROLE_USER, .text = "Plan a trip to Miami."},
                                        {.role = RP_ROLE_ASSISTANT, .calls = &returned, .n_calls = 1},
                                        {.role = RP_ROLE_TOOL, .text = "done"}};
    rp_chat_options o = options_of(messages, 1);
    o.tools = &trip;
    o.n_tools = 1;
    o.tool_choice = RP_TOOL_CHOICE_REQUIRED;
    o.one_call = true;
    rp_chat *chat = chat_of(w, &o);
    rp_result *first, *by_bytes, *by_meaning;
    rp_request request = rp_request_defaults();
    rp_error err;
    assert_int_equal(rp_chat_run(chat, w->engine, NULL, &first, &err), RP_OK);
    rp_chat_free(chat);
    o.n_messages = 3;
    chat = chat_of(w, &o);
    request.max_tokens = 1;
    request.adds_nothing = true;
    request.on_meaning = means_its_bytes;
    assert_int_equal(rp_chat_run(chat, w->engine, &request, &by_bytes, &err), RP_OK);
    request.on_meaning = NULL;
    assert_int_equal(rp_chat_run(chat, w->engine, &request, &by_meaning, &err), RP_OK);
    if (by_meaning->cached_tokens < first->prompt_tokens + first->n_tokens - 1)
        fail_msg("%d tokens are cached of a prompt of %d and an answer of %d", (int)by_meaning->cached_tokens,
                 (int)first->prompt_tokens, (int)first->n_tokens);
    assert_true(by_bytes->cached_tokens < by_meaning->cached_tokens);
    rp_result_free(first);
    rp_result_free(by_bytes);
    rp_result_free(by_meaning);
    rp_chat_free(chat);
}

/* ---- failures ---- */

/* A chat, an answer that is read, and its parts. */
static int make_and_read(const rp_model *model, const rp_chat_options *o, rp_error *err) {
    static const char text[] =
        "Well.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    rp_chat *chat = NULL;
    rp_chat_reader *reader = NULL;
    rp_chat_answer *answer = NULL;
    event_log log = {.left = -1};
    int rc = rp_chat_new(&chat, model, o, err);
    if (!rc) rc = rp_chat_reader_new(&reader, chat, on_event, &log, err);
    if (!rc) rc = rp_chat_reader_feed(reader, text, strlen(text), err);
    if (!rc) rc = rp_chat_reader_end(reader, &answer, err);
    if (!rc) assert_true(answer->n_calls == 1 && strcmp(answer->text, "Well.") == 0);
    assert_true(rc == RP_OK || answer == NULL);
    rp_chat_answer_free(answer);
    rp_chat_reader_free(reader);
    rp_chat_free(chat);
    return rc;
}

static void fail_allocations(const rp_model *model, const rp_chat_options *o) {
    rp_error err;
    base_alloc_count();
    if (make_and_read(model, o, &err)) fail_msg("%s", err.message);
    const uint64_t n = base_alloc_count();
    assert_true(n > 50);
    for (uint64_t i = 1; i <= n; i++)
        for (int sticky = 0; sticky < 2; sticky++) {
            err = (rp_error){0};
            base_alloc_fail_at(i, sticky);
            const int rc = make_and_read(model, o, &err);
            base_alloc_fail_at(0, 0);
            if (rc && (rc != RP_ERR_MEMORY || err.code != RP_ERR_MEMORY))
                fail_msg("allocation %d, %d: %s", (int)i, sticky, err.message);
            assert_true(rc == RP_OK || err.message[0] != '\0');
            assert_true(rc != RP_OK || !sticky);
        }
}

/* Each allocation fails in turn: where the library writes tools as text, and where a template does. */
static void every_allocation_fails_cleanly(void **state) {
    const world *w = *state;
    static const char source[] =
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}";
    const rp_tool_call call = {.name = "weather", .arguments = "{\"city\": \"Rome\"}"};
    const rp_chat_message messages[] = {{.role = RP_ROLE_SYSTEM, .text = "Be brief."},
                                        {.role = RP_ROLE_USER, .text = "Rome?"},
                                        {.role = RP_ROLE_ASSISTANT, .reasoning = "Hm.", .calls = &call, .n_calls = 1},
                                        {.role = RP_ROLE_TOOL, .text = "sunny"}};
    tiny_model_shape shape = tiny_model_defaults();
    rp_chat_options o = options_of(messages, 4);
    shape.chat_template = source;
    rp_model *model = tiny_model_open(&shape, NULL);
    o.tools = tools;
    o.n_tools = 2;
    fail_allocations(w->model, &o);
    fail_allocations(model, &o);
    o.n_messages = 2;
    o.tool_choice = RP_TOOL_CHOICE_AUTO;
    o.json_schema = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\", \"minimum\": 3}}, "
                    "\"required\": [\"a\"]}";
    fail_allocations(model, &o);
    rp_model_close(model);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(a_tool_is_called),
        cmocka_unit_test(forms_of_texts),
        cmocka_unit_test(answers_have_parts),
        cmocka_unit_test(warnings_name_what_is_not_enforced),
        cmocka_unit_test(errors),
        cmocka_unit_test(results_of_failures_are_null),
        cmocka_unit_test(templates_write_the_conversation),
        cmocka_unit_test(templates_that_refuse_get_another_form),
        cmocka_unit_test(schemas_as_grammars),
        cmocka_unit_test(answers_are_read_as_they_arrive),
        cmocka_unit_test(a_reader_is_stopped),
        cmocka_unit_test(a_reader_is_not_used_within_its_callback),
        cmocka_unit_test(jobs_of_chats),
        cmocka_unit_test(returned_answers_are_known),
        cmocka_unit_test(every_allocation_fails_cleanly),
    };
    json_set_alloc_funcs(base_alloc, base_free); /* JSON's allocations fail, too */
    return cmocka_run_group_tests(all, set_up, tear_down);
}
