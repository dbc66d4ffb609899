/* SPDX-License-Identifier: Apache-2.0 */
/* tool_conventions.c: see tool_conventions.h. The texts are those of the models' published templates. */
#include "structured/tool_conventions.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

/* DeepSeek writes names between fullwidth vertical bars. */
#define WIDE(name) "<\uFF5C" name "\uFF5C>"
#define LOW "\u2581"

/* ---- forms ---- */

#define JSON_FORM .body = TOOL_BODY_JSON, .begin = "", .name_key = "name", .arguments_key = "arguments"

static const tool_form hermes = {
    .body = TOOL_BODY_JSON,
    .begin = "\n",
    .name_key = "name",
    .arguments_key = "arguments",
    .open = "<tool_call>",
    .end = "\n</tool_call>",
    .close = "",
};

static const tool_form python_tag = {
    .body = TOOL_BODY_JSON,
    .begin = "",
    .name_key = "name",
    .arguments_key = "parameters",
    .open = "<|python_tag|>",
    .end = "",
    .next = "; ",
    .close = "",
};
static const tool_form bare_object = {
    .body = TOOL_BODY_JSON,
    .begin = "",
    .name_key = "name",
    .arguments_key = "parameters",
    .open = "{",
    .at_start = true,
    .end = "",
    .next = "; ",
    .close = "",
};
static const tool_form bare_list = {JSON_FORM, .open = "[", .at_start = true, .is_list = true,
                                    .end = "", .next = ", ", .close = "]"};

static const tool_form mistral_list = {JSON_FORM, .open = "[TOOL_CALLS]", .is_list = true,
                                       .end = "", .next = ", ", .close = "]"};
static const tool_form mistral_named = {
    .body = TOOL_BODY_NAMED,
    .open = "[TOOL_CALLS]",
    .begin = "",
    .before_name = "",
    .after_name = "[ARGS]",
    .after_arguments = "",
    .id_mark = "[CALL_ID]",
    .end = "",
    .next = "[TOOL_CALLS]",
    .close = "",
};

#define DEEPSEEK_FORM \
    .body = TOOL_BODY_NAMED, .open = WIDE("tool" LOW "calls" LOW "begin"), \
    .begin = WIDE("tool" LOW "call" LOW "begin"), .end = WIDE("tool" LOW "call" LOW "end"), .next = "\n", \
    .close = WIDE("tool" LOW "calls" LOW "end")
static const tool_form deepseek_r1 = {
    DEEPSEEK_FORM,
    .before_name = "function" WIDE("tool" LOW "sep"),
    .after_name = "\n```json\n",
    .after_arguments = "\n```",
};
static const tool_form deepseek_v31 = {DEEPSEEK_FORM, .before_name = "", .after_name = WIDE("tool" LOW "sep"),
                                       .after_arguments = ""};

static const tool_form kimi = {
    .body = TOOL_BODY_NAMED,
    .open = "<|tool_calls_section_begin|>",
    .begin = "<|tool_call_begin|>",
    .before_name = "functions.",
    .after_name = "<|tool_call_argument_begin|>",
    .after_arguments = "",
    .id_mark = ":",
    .writes_id = true,
    .end = "<|tool_call_end|>",
    .next = "",
    .close = "<|tool_calls_section_end|>",
};

static const tool_form glm = {
    .body = TOOL_BODY_TEXT,
    .open = "<tool_call>",
    .begin = "",
    .after_name = "",
    .key_open = "\n<arg_key>",
    .key_close = "</arg_key>\n<arg_value>",
    .value_end = "</arg_value>",
    .end = "</tool_call>",
    .close = "",
};

#define FUNCTION_FORM \
    .body = TOOL_BODY_TEXT, .after_name = ">", .key_open = "\n<parameter=", .key_close = ">", \
    .value_end = "</parameter>", .end = "</function>"
static const tool_form coder = {
    FUNCTION_FORM, .has_lines = true, .open = "<tool_call>", .begin = "\n<function=", .close = "\n</tool_call>"};
static const tool_form coder_bare = {
    FUNCTION_FORM, .has_lines = true, .open = "<function=", .begin = "", .close = "\n</tool_call>"};
static const tool_form seed = {FUNCTION_FORM, .open = "<seed:tool_call>", .begin = "\n<function=",
                               .close = "\n</seed:tool_call>"};

/* Calls in one block; text and JSON have marks of their own, where the names of arguments are attributes. */
static const tool_form minimax = {
    .body = TOOL_BODY_TEXT,
    .open = "<minimax:tool_call>",
    .begin = "\n<invoke name=\"",
    .after_name = "\">",
    .key_open = "\n<parameter name=\"",
    .key_close = "\">",
    .value_end = "</parameter>",
    .end = "</invoke>",
    .next = "\n",
    .close = "\n</minimax:tool_call>",
};
#define DSML "\uFF5CDSML\uFF5C"
#define DSML_FORM(name) \
    .body = TOOL_BODY_TEXT, .open = "<" DSML name ">", .begin = "\n<" DSML "invoke name=\"", .after_name = "\">", \
    .key_open = "\n<" DSML "parameter name=\"", .key_close = "\" string=\"true\">", \
    .key_close_json = "\" string=\"false\">", .value_end = "</" DSML "parameter>", .end = "</" DSML "invoke>", \
    .next = "\n", .close = "\n</" DSML name ">"
static const tool_form dsml_functions = {DSML_FORM("function_calls")};
static const tool_form dsml_tools = {DSML_FORM("tool_calls")};

/* ---- forms with literals ---- */

static const tool_notation gemma_notation = {
    .quotes = {"<|\"|>"}, .close = '}', .bare_keys = true, .names = {"true", "false", "null"}};
static const tool_form gemma_4 = {
    .body = TOOL_BODY_LITERALS,
    .notation = &gemma_notation,
    .open = "<|tool_call>",
    .begin = "call:",
    .after_name = "{",
    .key_close = ":",
    .end = "<tool_call|>",
    .close = "",
};

static const tool_notation python_notation = {
    .quotes = {"\"", "'"}, .close = ')', .has_escapes = true, .names = {"True", "False", "None"}};
/* A list of calls in Python: Llama 4, Llama 3.2, Gemma 3; one a line: Olmo 3. */
#define PYTHON_FORM \
    .body = TOOL_BODY_LITERALS, .notation = &python_notation, .begin = "", .after_name = "(", .key_close = "=", \
    .end = ""
static const tool_form python_bare = {PYTHON_FORM, .open = "[", .at_start = true, .is_list = true,
                                      .next = ", ", .close = "]"};
static const tool_form python_start = {PYTHON_FORM, .open = "<|python_start|>", .is_list = true,
                                       .next = ", ", .close = "]<|python_end|>"};
static const tool_form gemma_python = {PYTHON_FORM, .open = "```tool_code", .next = "\n", .close = "\n```"};
static const tool_form gemma_python_list = {PYTHON_FORM, .open = "```tool_code", .is_list = true,
                                            .next = ", ", .close = "]\n```"};
static const tool_form olmo = {PYTHON_FORM, .open = "<function_calls>", .next = "\n",
                               .close = "\n</function_calls>"};
static const tool_form lfm = {PYTHON_FORM, .open = "<|tool_call_start|>", .is_list = true,
                              .next = ", ", .close = "]<|tool_call_end|>"};
static const tool_form lfm_list = {JSON_FORM, .open = "<|tool_call_start|>", .is_list = true,
                                   .end = "", .next = ", ", .close = "]<|tool_call_end|>"};

/* ---- other forms ---- */

static const tool_form functionary = {
    .body = TOOL_BODY_NAMED,
    .open = "<function=",
    .begin = "",
    .before_name = "",
    .after_name = ">",
    .after_arguments = "",
    .end = "</function>",
    .close = "",
};

static const tool_form gemma_code = {
    .body = TOOL_BODY_JSON,
    .begin = "\n",
    .name_key = "name",
    .arguments_key = "parameters",
    .open = "```tool_code",
    .end = "\n```",
    .close = "",
};
static const tool_form gemma_code_list = {JSON_FORM, .open = "```tool_code", .is_list = true,
                                          .end = "", .next = ", ", .close = "]\n```"};
static const tool_form gemma_json = {JSON_FORM, .open = "```json", .end = "\n```", .close = ""};
static const tool_form gemma_json_list = {JSON_FORM, .open = "```json", .is_list = true,
                                          .end = "", .next = ", ", .close = "]\n```"};

static const tool_form calls_list = {JSON_FORM, .open = "<tool_calls>", .is_list = true,
                                     .end = "", .next = ", ", .close = "]\n</tool_calls>"};
static const tool_form nemotron_list = {JSON_FORM, .open = "<TOOLCALL>", .is_list = true,
                                        .end = "", .next = ", ", .close = "]\n</TOOLCALL>"};

/* The name is the key of the arguments. */
static const tool_form apertus = {
    .body = TOOL_BODY_NAMED,
    .open = "<|tools_prefix|>",
    .is_list = true,
    .begin = "{\"",
    .before_name = "",
    .after_name = "\": ",
    .after_arguments = "}",
    .end = "",
    .next = ", ",
    .close = "]<|tools_suffix|>",
};

static const tool_form granite_list = {JSON_FORM, .open = "<|tool_call|>", .is_list = true, .end = "", .next = ", ",
                                       .close = "]"};
static const tool_form granite_object = {JSON_FORM, .open = "<|tool_call|>", .end = "", .close = ""};

static const tool_form command_r = {
    .body = TOOL_BODY_JSON,
    .begin = "\n",
    .name_key = "tool_name",
    .arguments_key = "parameters",
    .id_key = "tool_call_id",
    .open = "<|START_ACTION|>",
    .is_list = true,
    .end = "",
    .next = ",",
    .close = "\n]<|END_ACTION|>",
};

/* One call an answer: <|call|> ends it. */
static const tool_form harmony = {
    .body = TOOL_BODY_NAMED,
    .open = "<|channel|>commentary to=",
    .begin = "",
    .before_name = "functions.",
    .after_name = " <|constrain|>json<|message|>",
    .after_arguments = "",
    .end = "",
    .close = "",
};

/* ---- families ---- */

#define NO_ANSWER .answer_open = "", .answer_close = ""

static const tool_family families[] = {
    {.name = "hermes", .forms = {&hermes}, NO_ANSWER}, /* and Qwen 2.5, Qwen 3, Granite 4, many fine-tunes */
    {.name = "qwen3-coder", .forms = {&coder, &coder_bare, &hermes}, NO_ANSWER},
    {.name = "llama-3", .forms = {&bare_object, &python_tag, &python_bare, &python_start, &hermes}, NO_ANSWER},
    {.name = "mistral", .forms = {&mistral_list, &mistral_named, &hermes}, NO_ANSWER},
    {.name = "mistral-3", .forms = {&mistral_named, &mistral_list, &hermes}, NO_ANSWER},
    {.name = "deepseek", .forms = {&deepseek_r1, &deepseek_v31, &hermes}, NO_ANSWER},
    {.name = "kimi-k2", .forms = {&kimi, &hermes}, NO_ANSWER},
    {.name = "glm-4.5", .forms = {&glm, &hermes}, NO_ANSWER},
    {.name = "gemma",
     .forms = {&gemma_code, &gemma_code_list, &gemma_python, &gemma_python_list, &gemma_json, &gemma_json_list,
               &bare_object, &bare_list, &hermes},
     NO_ANSWER},
    {.name = "gemma-4", .forms = {&gemma_4, &hermes}, .dropped = {"<|tool_response>"}, NO_ANSWER},
    {.name = "lfm2", .forms = {&lfm, &lfm_list, &hermes}, NO_ANSWER},
    {.name = "olmo-3", .forms = {&olmo, &hermes}, NO_ANSWER},
    {.name = "hunyuan", .forms = {&calls_list, &hermes}, .dropped = {"<answer>", "</answer>"}, NO_ANSWER},
    {.name = "nemotron-2", .forms = {&nemotron_list, &hermes}, NO_ANSWER},
    {.name = "apertus", .forms = {&apertus, &hermes}, NO_ANSWER},
    {.name = "ernie-4.5", .forms = {&hermes}, .dropped = {"<response>", "</response>"}, NO_ANSWER},
    {.name = "minimax-m2", .forms = {&minimax, &hermes}, NO_ANSWER},
    {.name = "seed-oss", .forms = {&seed, &hermes}, NO_ANSWER},
    {.name = "deepseek-3.2", .forms = {&dsml_functions, &dsml_tools, &hermes}, NO_ANSWER},
    {.name = "deepseek-4", .forms = {&dsml_tools, &dsml_functions, &hermes}, NO_ANSWER},
    {.name = "harmony",
     .forms = {&harmony, &hermes},
     .answer_open = "<|channel|>final<|message|>",
     .answer_close = "",
     .has_channels = true},
    {
        .name = "command-r7b",
        .forms = {&command_r, &hermes},
        .dropped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
        .answer_open = "<|START_RESPONSE|>",
        .answer_close = "<|END_RESPONSE|>",
    },
    {.name = "functionary", .forms = {&functionary, &hermes}, NO_ANSWER},
    {.name = "granite",
     .forms = {&granite_list, &granite_object, &hermes},
     .dropped = {"<response>", "</response>"},
     NO_ANSWER},
    {.name = "phi-4-mini",
     .forms = {&granite_list, &granite_object, &hermes},
     .dropped = {"<|/tool_call|>"},
     NO_ANSWER},
};

const tool_family *tool_family_at(size_t i) { return i < BASE_ARRAY_LEN(families) ? &families[i] : NULL; }

const tool_family *tool_family_find(const char *name) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(families); i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

const tool_family *tool_convention_family(const tool_convention *c) { return c->family ? c->family : &families[0]; }

/* ---- reasoning ---- */

static const reasoning_marks think = {"<think>", "</think>", true};
static const reasoning_marks think_in_brackets = {"[THINK]", "[/THINK]", false};
static const reasoning_marks seed_think = {"<seed:think>", "</seed:think>", true};
static const reasoning_marks inner = {"<|inner_prefix|>", "<|inner_suffix|>", false};
static const reasoning_marks thought = {"<|channel>thought", "<channel|>", false};
static const reasoning_marks thinking = {"<|START_THINKING|>", "<|END_THINKING|>", false};
static const reasoning_marks analysis = {"<|channel|>analysis<|message|>", "<|end|>", false};

/* ---- detection ---- */

#define MAX_MARKS 2

/* In the order of detection. */
static const struct {
    const char *family;
    const char *marks[MAX_MARKS]; /* all of them are in the template */
} templates[] = {
    {"harmony", {"<|channel|>", "<|message|>"}},
    {"command-r7b", {"<|START_ACTION|>"}},
    {"kimi-k2", {"<|tool_calls_section_begin|>"}},
    {"deepseek-3.2", {DSML, "function_calls>"}},
    {"deepseek-4", {DSML}},
    {"minimax-m2", {"<minimax:tool_call>"}},
    {"seed-oss", {"<seed:tool_call>"}},
    {"gemma-4", {"<|tool_call>"}},
    {"gemma-4", {"<|turn>"}},
    {"lfm2", {"<|tool_call_start|>"}},
    {"lfm2", {"<|tool_list_start|>"}},
    {"deepseek", {WIDE("tool" LOW "calls" LOW "begin")}},
    {"mistral-3", {"[TOOL_CALLS]", "[ARGS]"}},
    {"mistral", {"[TOOL_CALLS]"}},
    {"apertus", {"<|tools_prefix|>"}},
    {"nemotron-2", {"<TOOLCALL>"}},
    {"olmo-3", {"<function_calls>"}},
    {"hunyuan", {"<tool_calls>"}},
    {"glm-4.5", {"<arg_key>"}},
    {"qwen3-coder", {"<function=", "<parameter="}},
    {"functionary", {"<function="}},
    {"phi-4-mini", {"<|/tool|>"}},
    {"granite", {"<|tool_call|>"}},
    {"ernie-4.5", {"<tool_call>", "<response>"}},
    {"hermes", {"<tool_call>"}},
    {"lfm2", {"<|im_start|>", "List of tools: "}},
    {"llama-3", {"<|python_tag|>"}},
    {"llama-3", {"<|start_header_id|>", "\"parameters\""}},
    {"llama-3", {"<|header_start|>"}},
    {"gemma", {"<start_of_turn>"}},
};

static const struct {
    const reasoning_marks *reasoning;
    const char *mark;
} reasoning_templates[] = {
    {&analysis, "<|channel|>analysis"},
    {&thinking, "<|START_THINKING|>"},
    {&think_in_brackets, "[THINK]"},
    {&seed_think, "<seed:think>"},
    {&thought, "<|channel>"},
    {&inner, "<|inner_prefix|>"},
    {&think, "</think>"},
};

/* By names of chat_format.h, or how they begin. */
static const struct {
    const char *format, *family;
} formats[] = {
    {"gpt-oss", "harmony"},
    {"command-r", "command-r7b"},
    {"deepseek-3", "deepseek"},
    {"mistral-v3", "mistral"},
    {"mistral-v7", "mistral"},
    {"llama-3", "llama-3"},
    {"llama-4", "llama-3"},
    {"granite", "granite"},
    {"gemma", "gemma"},
    {"phi-4-mini", "phi-4-mini"},
};

static bool has_text(const char *text, size_t n, const char *mark) {
    const size_t length = strlen(mark);
    for (size_t at = 0; at + length <= n; at++)
        if (text[at] == mark[0] && memcmp(text + at, mark, length) == 0) return true;
    return false;
}

static bool has_marks(const char *text, size_t n, const char *const marks[MAX_MARKS]) {
    for (size_t i = 0; i < MAX_MARKS && marks[i]; i++)
        if (!has_text(text, n, marks[i])) return false;
    return true;
}

static tool_convention detect_by_format(const char *format) {
    BASE_ASSERT(format);
    tool_convention c = {&families[0], NULL};
    for (size_t i = 0; i < BASE_ARRAY_LEN(formats); i++)
        if (strncmp(format, formats[i].format, strlen(formats[i].format)) == 0)
            c.family = tool_family_find(formats[i].family);
    BASE_ASSERT(c.family);
    if (c.family->has_channels) c.reasoning = &analysis;
    return c;
}

tool_convention tool_convention_detect(const char *text, size_t n, const char *chat_format) {
    if (!text) return detect_by_format(chat_format);
    tool_convention c = {&families[0], NULL};
    for (size_t i = BASE_ARRAY_LEN(templates); i-- > 0;)
        if (has_marks(text, n, templates[i].marks)) c.family = tool_family_find(templates[i].family);
    for (size_t i = BASE_ARRAY_LEN(reasoning_templates); i-- > 0;)
        if (has_text(text, n, reasoning_templates[i].mark)) c.reasoning = reasoning_templates[i].reasoning;
    BASE_ASSERT(c.family);                               /* families[] has each name of templates[] */
    if (c.family->has_channels) c.reasoning = &analysis; /* headers are read in any case */
    return c;
}

/* ---- marks ---- */

#define FORM_MARKS 13

const char *tool_convention_mark(const tool_convention *c, size_t i) {
    const tool_family *family = tool_convention_family(c);
    static const char *const channels[] = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
    size_t n_forms = 0, n_dropped = 0;
    while (n_forms < TOOL_MAX_FORMS && family->forms[n_forms]) n_forms++;
    while (n_dropped < BASE_ARRAY_LEN(family->dropped) && family->dropped[n_dropped]) n_dropped++;
    if (i < n_forms * FORM_MARKS) {
        const tool_form *f = family->forms[i / FORM_MARKS];
        const char *const marks[] = {f->open, f->begin, f->before_name, f->after_name, f->after_arguments,
                                     f->id_mark, f->end, f->next, f->close, f->key_open, f->key_close,
                                     f->value_end, f->notation ? f->notation->quotes[0] : NULL};
        BASE_ASSERT(i % FORM_MARKS < BASE_ARRAY_LEN(marks));
        const char *mark = marks[i % FORM_MARKS];
        return mark ? mark : "";
    }
    i -= n_forms * FORM_MARKS;
    if (i < n_dropped) return family->dropped[i];
    i -= n_dropped;
    if (family->has_channels) return i < BASE_ARRAY_LEN(channels) ? channels[i] : NULL;
    if (!c->reasoning || i > 1) return NULL;
    return i == 0 ? c->reasoning->open : c->reasoning->close;
}

/* Where the last such text ends; 0: there is none. */
static size_t last_end(const char *text, size_t n, const char *mark) {
    const size_t length = strlen(mark);
    for (size_t at = n; at >= length; at--)
        if (memcmp(text + at - length, mark, length) == 0) return at;
    return 0;
}

bool tool_convention_opens_reasoning(const tool_convention *c, const char *text, size_t n) {
    return c->reasoning && last_end(text, n, c->reasoning->open) > last_end(text, n, c->reasoning->close);
}
