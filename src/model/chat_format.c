/* SPDX-License-Identifier: Apache-2.0 */
/* chat_format.c: the table of chat templates, and detection of a model's template.
 *
 * Texts follow the templates that were published with the models (vicuna: the program that it was trained with). The
 * beginning-of-text token is not part of a format; the assistant's `after` ends an answer. Messages that a template
 * adds by itself (a default system prompt, today's date, lists of tools) are omitted.
 */
#include "model/chat_format.h"

#include <string.h>

#include "base/check.h"

/* Text around one role. `after_system` replaces `before` directly after a system message; `again` replaces it if the
 * message is not the first and does not follow a system message. NULL: as `before`. */
typedef struct role_text {
    const char *before, *after_system, *again, *after;
} role_text;

#define MAX_MARKS 3

struct chat_format {
    const char *name;
    role_text roles[CHAT_ROLE_COUNT]; /* system, user, assistant, tool */
    const char *answer;               /* generation prompt; NULL: the assistant's `before` */
    const char *marks[MAX_MARKS];     /* substrings that identify a template of this format; all are required */
    /* required end-of-text token, for templates that only refer to it as eos_token; NULL: any */
    const char *eos;
    const char *token; /* a special token that identifies the format of a model without a template */
};

/* DeepSeek writes names between fullwidth vertical bars. */
#define WIDE(name) "<\uFF5C" name "\uFF5C>"
#define LOW "\u2581"

/* In the order of detection: more specific formats come first. */
static const chat_format chat_formats[] = {
    {.name = "phi-4",
     .roles = {{"<|im_start|>system<|im_sep|>", NULL, NULL, "<|im_end|>"},
               {"<|im_start|>user<|im_sep|>", NULL, NULL, "<|im_end|>"},
               {"<|im_start|>assistant<|im_sep|>", NULL, NULL, "<|im_end|>"},
               {"<|im_start|>user<|im_sep|>", NULL, NULL, "<|im_end|>"}},
     .marks = {"<|im_start|>", "<|im_sep|>"},
     .token = "<|im_sep|>"},
    {.name = "chatml", /* Qwen, SmolLM, StableLM 2, OLMo 3 and many more */
     .roles = {{"<|im_start|>system\n", NULL, NULL, "<|im_end|>\n"},
               {"<|im_start|>user\n", NULL, NULL, "<|im_end|>\n"},
               {"<|im_start|>assistant\n", NULL, NULL, "<|im_end|>\n"},
               {"<|im_start|>tool\n", NULL, NULL, "<|im_end|>\n"}},
     .marks = {"<|im_start|>"},
     .token = "<|im_start|>"},
    {.name = "llama-4",
     .roles = {{"<|header_start|>system<|header_end|>\n\n", NULL, NULL, "<|eot|>"},
               {"<|header_start|>user<|header_end|>\n\n", NULL, NULL, "<|eot|>"},
               {"<|header_start|>assistant<|header_end|>\n\n", NULL, NULL, "<|eot|>"},
               {"<|header_start|>ipython<|header_end|>\n\n", NULL, NULL, "<|eot|>"}},
     .marks = {"<|header_start|>"},
     .token = "<|header_start|>"},
    {.name = "llama-3",
     .roles = {{"<|start_header_id|>system<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"},
               {"<|start_header_id|>user<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"},
               {"<|start_header_id|>assistant<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"},
               {"<|start_header_id|>ipython<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"}},
     .marks = {"<|start_header_id|>"},
     .token = "<|start_header_id|>"},
    {.name = "gemma",
     .roles = {{"<start_of_turn>user\n", NULL, NULL, "\n\n"},
               {"<start_of_turn>user\n", "", NULL, "<end_of_turn>\n"},
               {"<start_of_turn>model\n", NULL, NULL, "<end_of_turn>\n"},
               {"<start_of_turn>user\n", "", NULL, "<end_of_turn>\n"}},
     .marks = {"<start_of_turn>"},
     .token = "<start_of_turn>"},
    {.name = "gpt-oss", /* harmony: the model chooses the channel of its answer */
     .roles = {{"<|start|>developer<|message|># Instructions\n\n", NULL, NULL, "\n\n<|end|>"},
               {"<|start|>user<|message|>", NULL, NULL, "<|end|>"},
               {"<|start|>assistant<|channel|>final<|message|>", NULL, NULL, "<|end|>"},
               {"<|start|>functions to=assistant<|channel|>commentary<|message|>", NULL, NULL, "<|end|>"}},
     .answer = "<|start|>assistant",
     .marks = {"<|start|>", "<|channel|>"},
     .token = "<|channel|>"},
    {.name = "granite",
     .roles = {{"<|start_of_role|>system<|end_of_role|>", NULL, NULL, "<|end_of_text|>\n"},
               {"<|start_of_role|>user<|end_of_role|>", NULL, NULL, "<|end_of_text|>\n"},
               {"<|start_of_role|>assistant<|end_of_role|>", NULL, NULL, "<|end_of_text|>\n"},
               {"<|start_of_role|>tool_response<|end_of_role|>", NULL, NULL, "<|end_of_text|>\n"}},
     .marks = {"<|start_of_role|>"},
     .token = "<|start_of_role|>"},
    {.name = "command-r",
     .roles = {{"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", NULL, NULL, "<|END_OF_TURN_TOKEN|>"},
               {"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", NULL, NULL, "<|END_OF_TURN_TOKEN|>"},
               {"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", NULL, NULL, "<|END_OF_TURN_TOKEN|>"},
               {"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", NULL, NULL, "<|END_OF_TURN_TOKEN|>"}},
     .marks = {"<|START_OF_TURN_TOKEN|>"},
     .token = "<|START_OF_TURN_TOKEN|>"},
    {.name = "deepseek-3", /* and 2.5, R1 */
     .roles = {{"", NULL, NULL, ""},
               {WIDE("User"), NULL, NULL, ""},
               {WIDE("Assistant"), NULL, NULL, WIDE("end" LOW "of" LOW "sentence")},
               {WIDE("tool" LOW "outputs" LOW "begin") WIDE("tool" LOW "output" LOW "begin"), NULL, NULL,
                WIDE("tool" LOW "output" LOW "end") WIDE("tool" LOW "outputs" LOW "end")}},
     .marks = {WIDE("User"), WIDE("Assistant")},
     .token = WIDE("Assistant")},
    {.name = "deepseek-2", /* and the first deepseek-llm */
     .roles = {{"", NULL, NULL, "\n\n"},
               {"User: ", NULL, NULL, "\n\n"},
               {"Assistant: ", NULL, NULL, WIDE("end" LOW "of" LOW "sentence")},
               {"User: ", NULL, NULL, "\n\n"}},
     .answer = "Assistant:",
     .marks = {"'User: '", "'Assistant: '"}},
    {.name = "deepseek-coder",
     .roles = {{"", NULL, NULL, ""},
               {"### Instruction:\n", NULL, NULL, "\n"},
               {"### Response:\n", NULL, NULL, "\n<|EOT|>\n"},
               {"### Instruction:\n", NULL, NULL, "\n"}},
     .marks = {"### Instruction:", "<|EOT|>"}},
    {.name = "llama-2",
     .roles = {{"[INST] <<SYS>>\n", NULL, "<s>[INST] <<SYS>>\n", "\n<</SYS>>\n\n"},
               {"[INST] ", "", "<s>[INST] ", " [/INST]"},
               {" ", NULL, NULL, " </s>"},
               {"[INST] ", "", "<s>[INST] ", " [/INST]"}},
     .answer = "",
     .marks = {"[INST]", "<<SYS>>"}},
    {.name = "mistral-v7",
     .roles = {{"[SYSTEM_PROMPT] ", NULL, NULL, "[/SYSTEM_PROMPT]"},
               {"[INST] ", NULL, NULL, "[/INST]"},
               {" ", NULL, NULL, "</s>"},
               {"[TOOL_RESULTS] ", NULL, NULL, "[/TOOL_RESULTS]"}},
     .answer = "",
     .marks = {"[SYSTEM_PROMPT] "}},
    {.name = "mistral-v7-tekken",
     .roles = {{"[SYSTEM_PROMPT]", NULL, NULL, "[/SYSTEM_PROMPT]"},
               {"[INST]", NULL, NULL, "[/INST]"},
               {"", NULL, NULL, "</s>"},
               {"[TOOL_RESULTS]", NULL, NULL, "[/TOOL_RESULTS]"}},
     .answer = "",
     .marks = {"[SYSTEM_PROMPT]"},
     .token = "[SYSTEM_PROMPT]"},
    {.name = "mistral-v3",
     .roles = {{"[INST] ", NULL, NULL, "\n\n"},
               {"[INST] ", "", NULL, "[/INST]"},
               {" ", NULL, NULL, "</s>"},
               {"[TOOL_RESULTS] ", NULL, NULL, "[/TOOL_RESULTS]"}},
     .answer = "",
     .marks = {"\"[INST] \""},
     .token = "[INST]"},
    {.name = "mistral-v3-tekken",
     .roles = {{"[INST]", NULL, NULL, "\n\n"},
               {"[INST]", "", NULL, "[/INST]"},
               {"", NULL, NULL, "</s>"},
               {"[TOOL_RESULTS]", NULL, NULL, "[/TOOL_RESULTS]"}},
     .answer = "",
     .marks = {"\"[INST]\""}},
    {.name = "mistral-v1",
     .roles = {{" [INST] ", NULL, NULL, "\n\n"},
               {" [INST] ", "", NULL, " [/INST]"},
               {" ", NULL, NULL, "</s>"},
               {" [INST] ", "", NULL, " [/INST]"}},
     .answer = "",
     .marks = {"' [INST] '"}},
    {.name = "mistral", /* the templates before v1 */
     .roles = {{"[INST] ", NULL, NULL, "\n\n"},
               {"[INST] ", "", NULL, " [/INST]"},
               {"", NULL, NULL, "</s>"},
               {"[INST] ", "", NULL, " [/INST]"}},
     .marks = {"[INST]"}},
    {.name = "phi-4-mini",
     .roles = {{"<|system|>", NULL, NULL, "<|end|>"},
               {"<|user|>", NULL, NULL, "<|end|>"},
               {"<|assistant|>", NULL, NULL, "<|end|>"},
               {"<|tool_response|>", NULL, NULL, "<|end|>"}},
     .marks = {"<|assistant|>", "<|end|>", "<|/tool|>"}},
    {.name = "phi-3",
     .roles = {{"<|system|>\n", NULL, NULL, "<|end|>\n"},
               {"<|user|>\n", NULL, NULL, "<|end|>\n"},
               {"<|assistant|>\n", NULL, NULL, "<|end|>\n"},
               {"<|user|>\n", NULL, NULL, "<|end|>\n"}},
     .marks = {"<|end|>"},
     .token = "<|end|>"},
    {.name = "falcon-3",
     .roles = {{"<|system|>\n", NULL, NULL, "\n"},
               {"<|user|>\n", NULL, NULL, "\n"},
               {"<|assistant|>\n", NULL, NULL, "<|endoftext|>\n"},
               {"<|assistant|>\n<tool_response>\n", NULL, NULL, "\n</tool_response>\n"}},
     .marks = {"<|user|>", "not loop.last", "Falcon"}},
    {.name = "olmo-2",
     .roles = {{"<|system|>\n", NULL, NULL, "\n"},
               {"<|user|>\n", NULL, NULL, "\n"},
               {"<|assistant|>\n", NULL, NULL, "<|endoftext|>\n"},
               {"<|user|>\n", NULL, NULL, "\n"}},
     .marks = {"<|user|>", "not loop.last"},
     .eos = "<|endoftext|>"},
    {.name = "tulu-2",
     .roles = {{"<|system|>\n", NULL, NULL, "\n"},
               {"<|user|>\n", NULL, NULL, "\n"},
               {"<|assistant|>\n", NULL, NULL, "</s>\n"},
               {"<|user|>\n", NULL, NULL, "\n"}},
     .marks = {"<|user|>", "not loop.last"},
     .eos = "</s>"},
    {.name = "tulu-3",
     .roles = {{"<|system|>\n", NULL, NULL, "\n"},
               {"<|user|>\n", NULL, NULL, "\n"},
               {"<|assistant|>\n", NULL, NULL, "<|end_of_text|>\n"},
               {"<|user|>\n", NULL, NULL, "\n"}},
     .marks = {"<|user|>", "not loop.last"},
     .eos = "<|end_of_text|>"},
    {.name = "zephyr",
     .roles = {{"<|system|>\n", NULL, NULL, "</s>\n"},
               {"<|user|>\n", NULL, NULL, "</s>\n"},
               {"<|assistant|>\n", NULL, NULL, "</s>\n"},
               {"<|user|>\n", NULL, NULL, "</s>\n"}},
     .marks = {"<|user|>"},
     .eos = "</s>"},
    {.name = "stablelm", /* StableLM Zephyr */
     .roles = {{"<|system|>\n", NULL, NULL, "<|endoftext|>\n"},
               {"<|user|>\n", NULL, NULL, "<|endoftext|>\n"},
               {"<|assistant|>\n", NULL, NULL, "<|endoftext|>\n"},
               {"<|user|>\n", NULL, NULL, "<|endoftext|>\n"}},
     .marks = {"<|user|>"},
     .eos = "<|endoftext|>"},
    {.name = "vicuna",
     .roles = {{"", NULL, NULL, " "},
               {"USER: ", NULL, NULL, " "},
               {"ASSISTANT: ", NULL, NULL, "</s>"},
               {"USER: ", NULL, NULL, " "}},
     .answer = "ASSISTANT:",
     .marks = {"USER: ", "ASSISTANT: "}},
    {.name = "plain",
     .roles = {{"", NULL, NULL, "\n"}, {"", NULL, NULL, "\n"}, {"", NULL, NULL, "\n"}, {"", NULL, NULL, "\n"}}},
};
#define N_FORMATS (sizeof(chat_formats) / sizeof(chat_formats[0]))

const chat_format *chat_format_at(int i) { return i >= 0 && (size_t)i < N_FORMATS ? &chat_formats[i] : NULL; }

const chat_format *chat_format_find(const char *name) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(chat_formats[i].name, name) == 0) return &chat_formats[i];
    return NULL;
}

const char *chat_format_name(const chat_format *f) { return f->name; }

/* ---- recognition ---- */

static bool chat_format_holds(gguf_string text, const char *mark) {
    size_t n = strlen(mark);
    for (uint64_t i = 0; i + n <= text.n; i++)
        if (text.bytes[i] == mark[0] && memcmp(text.bytes + i, mark, n) == 0) return true;
    return false;
}

static bool chat_format_matches(const chat_format *f, gguf_string template, const tokenizer *t) {
    if (!f->marks[0]) return false;
    if (f->eos) {
        size_t n = 0;
        const char *text = tokenizer_bytes(t, tokenizer_eos(t), true, &n);
        if (!text || n != strlen(f->eos) || memcmp(text, f->eos, n) != 0) return false;
    }
    for (size_t i = 0; i < MAX_MARKS && f->marks[i]; i++)
        if (!chat_format_holds(template, f->marks[i])) return false;
    return true;
}

const chat_format *chat_format_detect(const gguf_file *f, const tokenizer *t, bool *guessed) {
    gguf_string template;
    bool has_template = gguf_get_string(f, "tokenizer.chat_template", &template);
    if (guessed) *guessed = false;
    for (size_t i = 0; has_template && i < N_FORMATS; i++)
        if (chat_format_matches(&chat_formats[i], template, t)) return &chat_formats[i];
    if (guessed) *guessed = has_template;
    for (size_t i = 0; i < N_FORMATS; i++)
        if (chat_formats[i].token && tokenizer_find(t, chat_formats[i].token, strlen(chat_formats[i].token)) >= 0)
            return &chat_formats[i];
    return chat_format_find("plain");
}

/* ---- texts ---- */

chat_text chat_format_around(const chat_format *f, chat_role role, int previous) {
    BASE_ASSERT((unsigned)role < CHAT_ROLE_COUNT && previous >= CHAT_ROLE_NONE && previous < CHAT_ROLE_COUNT);
    const role_text *r = &f->roles[role];
    const char *before = r->before;
    if (previous == CHAT_SYSTEM && r->after_system) before = r->after_system;
    else if (previous != CHAT_ROLE_NONE && previous != CHAT_SYSTEM && r->again) before = r->again;
    return (chat_text){before, r->after};
}

const char *chat_format_answer(const chat_format *f, int previous) {
    return f->answer ? f->answer : chat_format_around(f, CHAT_ASSISTANT, previous).before;
}
