/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_conventions.c: the convention of each family: detected from its template; a grammar of it, through the
 * engine, gives calls that are read back, with arguments of their schema, whether the vocabulary has its marks as
 * control tokens or not; and what the models' own templates write for a past call is read as that call
 * (../shared/data/templates, if REPRISE_TEST_DATA is set).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "server/models/model_convention.h"
#include "structured/tool_finder.h"
#include "server/prompt/tools.h"
#include "support/tiny_model.h"

#define D(name) "<\uFF5C" name "\uFF5C>"
#define CALLS_BEGIN D("tool\u2581calls\u2581begin")
#define CALLS_END D("tool\u2581calls\u2581end")
#define CALL_BEGIN D("tool\u2581call\u2581begin")
#define CALL_END D("tool\u2581call\u2581end")
#define DSML "<\uFF5CDSML\uFF5C"
#define SEP D("tool\u2581sep")

/* ---- detection ---- */

/* What the templates of a family have that those of others lack. */
static const struct {
    const char *family, *template, *format;
} detected[] = {
    {"hermes", "<|im_start|> <tool_call> </think>", "chatml"},
    {"qwen3-coder", "<|im_start|> <tool_call> <function=f> <parameter=a>", "chatml"},
    {"llama-3", "<|start_header_id|> {\"name\": function name, \"parameters\": dictionary}", "llama-3"},
    {"mistral", "[INST] [TOOL_CALLS] [THINK]", "mistral-v7-tekken"},
    {"deepseek", CALLS_BEGIN " </think>", "deepseek-3"},
    {"kimi-k2", "<|tool_calls_section_begin|>", "plain"},
    {"glm-4.5", "<tool_call> <arg_key> </think>", "plain"},
    {"gemma", "<start_of_turn>", "gemma"},
    {"gemma-4", "<|turn> <|tool_call>call: <|channel>thought", "plain"},
    {"lfm2", "<|im_start|> List of tools: <|tool_call_start|> </think>", "chatml"},
    {"mistral-3", "[INST] [TOOL_CALLS] [ARGS] [THINK]", "mistral-v7-tekken"},
    {"olmo-3", "<|im_start|> <function_calls>", "chatml"},
    {"hunyuan", "<tool_calls> </tool_calls> </think>", "plain"},
    {"nemotron-2", "<TOOLCALL>[ </think>", "plain"},
    {"apertus", "<|tools_prefix|> <|inner_prefix|>", "plain"},
    {"ernie-4.5", "<tool_call> <response> </think>", "plain"},
    {"minimax-m2", "<minimax:tool_call> <invoke name=\"f\"> <parameter name=\"a\"> </think>", "plain"},
    {"seed-oss", "<seed:tool_call> <function=f> <parameter=a> <seed:think>", "plain"},
    {"deepseek-3.2", DSML "function_calls> </think>", "deepseek-3"},
    {"deepseek-4", DSML "tool_calls> </think>", "deepseek-3"},
    {"harmony", "<|start|> <|channel|>analysis <|message|>", "gpt-oss"},
    {"command-r7b", "<|START_THINKING|> <|START_ACTION|>", "command-r"},
    {"functionary", "<|start_header_id|> <function=f>", "llama-3"},
    {"granite", "<|start_of_role|> <|tool_call|> </think>", "granite"},
    {"phi-4-mini", "<|tool|> <|/tool|> <|tool_call|>", "phi-4-mini"},
};

static void test_detection(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(detected); i++) {
        tool_convention c = tool_convention_detect(detected[i].template, strlen(detected[i].template), "plain");
        assert_string_equal(c.family->name, detected[i].family);
        const bool reasons =
            strstr(detected[i].template, "think") || strstr(detected[i].template, "thought") ||
            strstr(detected[i].template, "inner") || strstr(detected[i].template, "THINK") || c.family->has_channels;
        assert_true((c.reasoning != NULL) == reasons);
    }
    static const char *const formats[][2] = {
        {"chatml", "hermes"},
        {"plain", "hermes"},
        {"llama-3", "llama-3"},
        {"llama-4", "llama-3"},
        {"gemma", "gemma"},
        {"deepseek-3", "deepseek"},
        {"granite", "granite"},
        {"command-r", "command-r7b"},
        {"mistral-v3", "mistral"},
        {"mistral-v1", "hermes"},
        {"gpt-oss", "harmony"},
        {"phi-4-mini", "phi-4-mini"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(formats); i++)
        assert_string_equal(tool_convention_detect(NULL, 0, formats[i][0]).family->name, formats[i][1]);
    assert_string_equal(tool_convention_detect("", 0, "gemma").family->name, "hermes");
    assert_string_equal(tool_convention_detect("<tool_cal", 9, "gemma").family->name, "hermes");
}

/* ---- grammars ---- */

static const char tools_text[] =
    "[{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 8}, \"unit\": {\"enum\": "
    "[\"c\", \"f\"]},"
    "  \"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}}, \"required\": [\"city\", \"unit\"], "
    "\"additionalProperties\": false},"
    " {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"enum\": [\"Rome\", \"Krak\u00f3w\"]},"
    "  \"unit\": {\"enum\": [\"c\", \"f\"]}, \"days\": {\"$ref\": \"#/$defs/days\"}},"
    "  \"$defs\": {\"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}},"
    "  \"required\": [\"city\", \"unit\"]}]";

static void check_arguments(const tool_item *item) {
    json_t *root = json_loadb(item->text.data, item->text.len, 0, NULL), *value;
    const char *key;
    if (!item->is_whole || !root) fail_msg("'%.*s' is no whole JSON", (int)item->text.len, item->text.data);
    if (strcmp(item->tool->name, "now") == 0) assert_int_equal(json_object_size(root), 0);
    else {
        assert_true(json_string_length(json_object_get(root, "city")) <= 32 &&
                    json_is_string(json_object_get(root, "city")));
        const char *unit = json_string_value(json_object_get(root, "unit"));
        if (!unit || (strcmp(unit, "c") != 0 && strcmp(unit, "f") != 0))
            fail_msg("'%.*s' has no unit", (int)item->text.len, item->text.data);
    }
    json_object_foreach(root, key, value) {
        if (strcmp(key, "days") == 0)
            assert_true(json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= 14);
        else assert_true(strcmp(key, "city") == 0 || strcmp(key, "unit") == 0);
    }
    json_decref(root);
}

typedef struct family_world {
    const char *control[8];
    rp_model *model;
    rp_engine *engine;
    model_convention convention;
    tool_spec tools[2];
} family_world;

/* A random model with the family's template. has_control: its marks are tokens. */
static void open_family(family_world *w, const char *template, bool has_control, json_t *schemas) {
    tiny_model_shape shape = tiny_model_defaults();
    const tool_convention c = tool_convention_detect(template, strlen(template), "plain");
    const bool is_text = c.family->forms[0]->body == TOOL_BODY_TEXT || c.family->forms[0]->body == TOOL_BODY_LITERALS;
    size_t n = 0;
    w->control[n++] = "<|im_end|>";
    if (!c.family->forms[0]->at_start) w->control[n++] = c.family->forms[0]->open;
    if (c.family->forms[0]->notation && !c.family->forms[0]->notation->has_escapes) {
        w->control[n++] = c.family->forms[0]->notation->quotes[0];
        w->control[n++] = c.family->forms[0]->end;
    }
    if (c.reasoning) {
        w->control[n++] = c.reasoning->open;
        w->control[n++] = c.reasoning->close;
    }
    if (c.family->has_channels) { /* with these, <|end|> ends a message, not the answer */
        w->control[n++] = "<|return|>";
        w->control[n++] = "<|call|>";
    }
    if (!has_control) n = 1;
    w->control[n] = NULL;
    shape.vocab = TINY_VOCAB_BPE;
    shape.n_vocab = 0;
    shape.n_ctx = 8192;
    shape.chat_template = template;
    shape.control = w->control;
    w->model = tiny_model_open(&shape, "chatml");
    assert_int_equal(rp_engine_new(&w->engine, w->model, NULL, NULL), RP_OK);
    w->convention = model_convention_of(w->model);
    assert_ptr_equal(w->convention.convention.family, c.family);
    assert_true(w->convention.special_text == (n > 1));
    w->tools[0] = (tool_spec){.name = "weather", .schema = json_array_get(schemas, is_text), .place = "tools[0]"};
    w->tools[1] = (tool_spec){.name = "now", .place = "tools[1]"};
}

static int32_t token_of(const family_world *w, const char *text) {
    int32_t *ids, id;
    size_t n;
    assert_int_equal(rp_tokenize(w->model, text, strlen(text), true, false, &ids, &n, NULL), RP_OK);
    id = n == 1 ? ids[0] : -1;
    rp_free(ids);
    return id;
}

static generation ask_of(family_world *w) {
    return (generation){
        .form = {.tools = w->tools, .n_tools = 2, .convention = w->convention.convention, .splits_reasoning = true},
        .special_text = w->convention.special_text,
    };
}

static rp_request request_of(const generation *gen, uint64_t seed) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text("What is the weather in Rome?");
    q.grammar = gen->grammar;
    q.grammar_trigger = gen->grammar_trigger;
    q.special_text = gen->special_text;
    q.max_tokens = 6000;
    q.sampling.temperature = 1;
    q.sampling.seed = seed;
    return q;
}

/* Runs the request, and finds in its answer what it has. The caller frees the finder. */
static void run(const family_world *w, const generation *gen, const rp_request *q, tool_finder *f, char text[64]) {
    rp_result *r;
    rp_error err;
    if (rp_engine_run(w->engine, q, &r, &err)) fail_msg("%s: %s", gen->form.convention.family->name, err.message);
    if (strcmp(r->finish_reason, "stop") != 0)
        fail_msg("%s: '%.400s' ends by %s", gen->form.convention.family->name, r->text, r->finish_reason);
    snprintf(text, 64, "%s", r->text);
    tool_finder_init(f, &gen->form, TOOL_REASONING_ITEMS, NULL, NULL);
    for (size_t at = 0, n = strlen(r->text); at < n; at += 3)
        assert_int_equal(tool_finder_feed(f, r->text + at, BASE_MIN(3, n - at)), 0);
    assert_int_equal(tool_finder_finish(f), 0);
    for (size_t i = 0; i < f->n_items; i++)
        if (f->items[i].tool) check_arguments(&f->items[i]);
    if (f->n_calls == 0 && !gen->form.wants_json)
        fail_msg("%s: no call in '%s'", gen->form.convention.family->name, r->text);
    rp_result_free(r);
}

static void make_grammar(generation *gen) {
    server_problem p = {0};
    if (tools_check(gen, &p) || tools_constrain(gen, &p))
        fail_msg("%s: %s", gen->form.convention.family->name, p.message);
}

/* Leaves what the world owns. */
static void free_ask(generation *gen) {
    gen->form.tools = NULL;
    generation_free(gen);
}

static void check_required(family_world *w, const char *name, bool one) {
    char text[64];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        generation gen = ask_of(w);
        tool_finder f;
        gen.form.tool_choice = TOOL_CHOICE_REQUIRED;
        gen.form.one_call = one;
        w->tools[0].barred = name && strcmp(name, "weather") != 0;
        w->tools[1].barred = name && strcmp(name, "now") != 0;
        gen.form.thinking = THINKING_OFF; /* a random model's reasoning does not end */
        make_grammar(&gen);
        rp_request q = request_of(&gen, seed);
        run(w, &gen, &q, &f, text);
        assert_int_equal(f.n_items, f.n_calls);
        assert_true(!one || f.n_calls == 1);
        for (size_t i = 0; i < f.n_items && name; i++) assert_string_equal(f.items[i].tool->name, name);
        tool_finder_free(&f);
        free_ask(&gen);
    }
    w->tools[0].barred = w->tools[1].barred = false;
}

/* The model begins a call by itself: the grammar applies from there on. */
static void check_auto(family_world *w, bool has_control) {
    char text[64];
    generation gen = ask_of(w);
    tool_finder f;
    const tool_form *form = gen.form.convention.family->forms[0];
    make_grammar(&gen);
    assert_true((gen.grammar_trigger == NULL) == form->at_start && (gen.grammar == NULL) == form->at_start);
    if (has_control && !form->at_start) {
        rp_request q = request_of(&gen, 1);
        const rp_logit_bias bias = {token_of(w, form->open), 1000};
        q.sampling.bias = &bias;
        q.sampling.n_bias = 1;
        run(w, &gen, &q, &f, text);
        assert_int_equal(f.n_items, f.n_calls);
        assert_memory_equal(text, form->open, BASE_MIN(strlen(form->open), 63));
        tool_finder_free(&f);
    }
    free_ask(&gen);
}

/* Reasoning may come first; if the prompt opened it, it must end first. */
static void check_reasoning(family_world *w, bool opened) {
    char text[64];
    const reasoning_marks *marks = w->convention.convention.reasoning;
    generation gen = ask_of(w);
    tool_finder f;
    gen.form.tool_choice = TOOL_CHOICE_REQUIRED;
    gen.form.reasoning_open = opened;
    make_grammar(&gen);
    rp_request q = request_of(&gen, 1);
    const rp_logit_bias bias[] = {{token_of(w, marks->open), 500}, {token_of(w, marks->close), 1000}};
    q.sampling.bias = bias;
    q.sampling.n_bias = 2;
    run(w, &gen, &q, &f, text);
    assert_int_equal(f.n_reasoned, 1);
    assert_int_equal(f.reasoned[0].begin, 0);
    assert_int_equal(f.reasoned[0].end, (opened ? 0 : strlen(marks->open)) + strlen(marks->close));
    assert_int_equal(f.n_items, f.n_calls);
    tool_finder_free(&f);
    free_ask(&gen);
}

/* An answer that is JSON is text. */
static void check_json(family_world *w) {
    char text[64];
    generation gen = ask_of(w);
    tool_finder f;
    base_buffer all = {0};
    gen.form.n_tools = 0;
    gen.form.wants_json = true;
    gen.form.schema = json_object_get(json_object_get(w->tools[0].schema, "properties"), "unit");
    gen.form.place = "schema";
    gen.form.thinking = THINKING_OFF;
    make_grammar(&gen);
    rp_request q = request_of(&gen, 1);
    run(w, &gen, &q, &f, text);
    all = BASE_BUFFER(1024);
    assert_int_equal(tool_finder_text(&f, false, &all), 0);
    if (strcmp(all.data, "\"c\"") != 0) assert_string_equal(all.data, "\"f\"");
    base_buffer_free(&all);
    tool_finder_free(&f);
    free_ask(&gen);
}

static void test_grammars(void **state) {
    (void)state;
    json_t *schemas = json_loads(tools_text, 0, NULL);
    assert_non_null(schemas);
    for (size_t i = 0; i < 2 * BASE_ARRAY_LEN(detected); i++) {
        const bool has_control = i % 2;
        family_world w = {0};
        open_family(&w, detected[i / 2].template, has_control, schemas);
        check_required(&w, NULL, false);
        check_required(&w, "weather", false);
        check_required(&w, "now", true);
        check_auto(&w, has_control);
        for (int opened = 0; opened < 2 && has_control && w.convention.convention.reasoning; opened++)
            check_reasoning(&w, opened);
        check_json(&w);
        rp_engine_free(w.engine);
        rp_model_close(w.model);
    }
    json_decref(schemas);
}

/* ---- templates ---- */

/* What templates write for past calls. `before` and `after`: what is around the assistant's turn. Those without them
 * write calls only for messages that the vectors do not have: these texts were rendered by Jinja2 from a message with
 * arguments as text. */
static const struct {
    const char *template, *family, *before, *after, *text;
} written[] = {
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r7b", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>",
     NULL},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", "<|im_start|>assistant\n", "<|im_end|>", NULL},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "<|im_start|>assistant\n", "<|im_end|>", NULL},
    {"Qwen-Qwen3-0.6B", "hermes", "<|im_start|>assistant\n", "<|im_end|>", NULL},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama-3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
     NULL},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama-3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
     NULL},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", "[/INST]", "</s>", NULL},
    {"moonshotai-Kimi-K2", "kimi-k2", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>", NULL},
    {"openai-gpt-oss-120b", "harmony", "<|start|>assistant", "<|start|>functions", NULL},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek", NULL, NULL,
     CALLS_BEGIN CALL_BEGIN
     "function" SEP
     "get_weather\n```json\n{\"city\": \"S\u00e3o Paulo\", \"unit\": \"celsius\"}\n```" CALL_END CALLS_END},
    {"meetkai-functionary-medium-v3.1", "functionary", NULL, NULL,
     "<function=get_weather>{\"city\": \"S\u00e3o Paulo\", \"unit\": \"celsius\"}</function>"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", NULL, NULL, NULL}, /* no calls in its conversations */
    {"google-gemma-2-2b-it", "gemma", NULL, NULL, NULL},
    {"microsoft-Phi-3.5-mini-instruct", "hermes", NULL, NULL, NULL},
};

static void read_file(const char *folder, const char *name, base_buffer *out) {
    char path[512];
    rp_error err;
    snprintf(path, sizeof(path), "%s/templates/%s", folder, name);
    *out = (base_buffer){0};
    if (base_file_read(path, (size_t)64 << 20, out, &err)) fail_msg("%s", err.message);
}

/* The assistant's turn of the case "tool_call" of a template; owned by the caller. NULL: there is none. */
static char *turn_of(const char *vectors, size_t i) {
    char *turn = NULL, name[128];
    snprintf(name, sizeof(name), "%s.jinja", written[i].template);
    for (const char *line = vectors; line && *line && !turn;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        json_t *row = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const char *output = json_string_value(json_object_get(row, "output"));
        if (output && strcmp(json_string_value(json_object_get(row, "template")), name) == 0 &&
            strcmp(json_string_value(json_object_get(row, "case")), "tool_call") == 0) {
            const char *begin = strstr(strstr(output, "Hello!"), written[i].before);
            assert_non_null(begin);
            begin += strlen(written[i].before);
            const char *end = strstr(begin, written[i].after);
            assert_non_null(end);
            turn = base_strndup(begin, (size_t)(end - begin));
        }
        json_decref(row);
    }
    return turn;
}

static void check_turn(const char *turn, tool_convention c) {
    tool_spec tool = {.name = "get_weather"};
    const generation gen = {.form = {.tools = &tool, .n_tools = 1, .convention = c}};
    for (size_t piece = 1; piece <= strlen(turn); piece++) {
        tool_finder f;
        tool_finder_init(&f, &gen.form, TOOL_REASONING_ITEMS, NULL, NULL);
        for (size_t at = 0, n = strlen(turn); at < n; at += piece)
            assert_int_equal(tool_finder_feed(&f, turn + at, BASE_MIN(piece, n - at)), 0);
        assert_int_equal(tool_finder_finish(&f), 0);
        if (f.n_items != 1 || !f.items[0].tool || !f.items[0].is_whole)
            fail_msg("%s: no call in '%s'", c.family->name, turn);
        json_t *found = json_loadb(f.items[0].text.data, f.items[0].text.len, 0, NULL);
        json_t *expected = json_pack("{s:s, s:s}", "city", "S\u00e3o Paulo", "unit", "celsius");
        assert_true(json_equal(found, expected));
        json_decref(found);
        json_decref(expected);
        tool_finder_free(&f);
    }
}

static void test_templates(void **state) {
    (void)state;
    const char *folder = getenv("REPRISE_TEST_DATA");
    base_buffer vectors, template;
    if (!folder) {
        printf("skipped: REPRISE_TEST_DATA is not set\n");
        return;
    }
    read_file(folder, "expected.jsonl", &vectors);
    assert_int_equal(base_buffer_append(&vectors, "", 1), 0);
    for (size_t i = 0; i < BASE_ARRAY_LEN(written); i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s.jinja", written[i].template);
        read_file(folder, name, &template);
        const tool_convention c = tool_convention_detect(template.data, template.len, "plain");
        if (strcmp(c.family->name, written[i].family) != 0) fail_msg("%s is taken for %s", name, c.family->name);
        char *turn = written[i].before ? turn_of(vectors.data, i) : NULL;
        assert_true(!written[i].before || turn);
        if (turn || written[i].text) check_turn(turn ? turn : written[i].text, c);
        base_free(turn);
        base_buffer_free(&template);
    }
    base_buffer_free(&vectors);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_detection), cmocka_unit_test(test_grammars),
                                       cmocka_unit_test(test_templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
