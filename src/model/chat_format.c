/* chat_format.c: the table of chat formats, and how a model's own is recognised.
 *
 * Texts follow the templates that the models were published with. The beginning-of-text token is not part of a format; the
 * assistant's `after` is what ends an answer.
 */
#include "model/chat_format.h"

#include <string.h>

/* Text around one role; `after_system` replaces `before` when a system message came directly before, and `again` when the message
 * is not the first and no system message came before. NULL: as `before`. */
typedef struct role_text {
    const char *before, *after_system, *again, *after;
} role_text;

struct chat_format {
    const char *name;
    role_text roles[CHAT_ROLE_COUNT]; /* system, user, assistant, tool */
    const char *marks[2];             /* texts that a template holds in this format alone; all of them are needed */
    const char *token;                /* a control token that gives it away without a template */
};

/* The order is the order of recognition: what is more specific comes first. */
static const chat_format chat_formats[] = {
    {"chatml",
     {{"<|im_start|>system\n", NULL, NULL, "<|im_end|>\n"},
      {"<|im_start|>user\n", NULL, NULL, "<|im_end|>\n"},
      {"<|im_start|>assistant\n", NULL, NULL, "<|im_end|>\n"},
      {"<|im_start|>tool\n", NULL, NULL, "<|im_end|>\n"}},
     {"<|im_start|>", NULL},
     "<|im_start|>"},
    {"llama-3",
     {{"<|start_header_id|>system<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"},
      {"<|start_header_id|>user<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"},
      {"<|start_header_id|>assistant<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"},
      {"<|start_header_id|>ipython<|end_header_id|>\n\n", NULL, NULL, "<|eot_id|>"}},
     {"<|start_header_id|>", NULL},
     "<|start_header_id|>"},
    {"gemma",
     {{"<start_of_turn>user\n", NULL, NULL, "\n\n"},
      {"<start_of_turn>user\n", "", NULL, "<end_of_turn>\n"},
      {"<start_of_turn>model\n", NULL, NULL, "<end_of_turn>\n"},
      {"<start_of_turn>user\n", "", NULL, "<end_of_turn>\n"}},
     {"<start_of_turn>", NULL},
     "<start_of_turn>"},
    {"llama-2",
     {{"[INST] <<SYS>>\n", NULL, "<s>[INST] <<SYS>>\n", "\n<</SYS>>\n\n"},
      {"[INST] ", "", "<s>[INST] ", " [/INST]"},
      {" ", NULL, NULL, " </s>"},
      {"[INST] ", "", "<s>[INST] ", " [/INST]"}},
     {"[INST]", "<<SYS>>"},
     NULL},
    {"mistral",
     {{"[INST] ", NULL, NULL, "\n\n"},
      {"[INST] ", "", NULL, " [/INST]"},
      {" ", NULL, NULL, "</s>"},
      {"[TOOL_RESULTS] ", NULL, NULL, " [/TOOL_RESULTS]"}},
     {"[INST]", NULL},
     "[INST]"},
    {"phi-3",
     {{"<|system|>\n", NULL, NULL, "<|end|>\n"},
      {"<|user|>\n", NULL, NULL, "<|end|>\n"},
      {"<|assistant|>\n", NULL, NULL, "<|end|>\n"},
      {"<|user|>\n", NULL, NULL, "<|end|>\n"}},
     {"<|user|>", "<|end|>"},
     "<|end|>"},
    {"zephyr",
     {{"<|system|>\n", NULL, NULL, "</s>\n"},
      {"<|user|>\n", NULL, NULL, "</s>\n"},
      {"<|assistant|>\n", NULL, NULL, "</s>\n"},
      {"<|user|>\n", NULL, NULL, "</s>\n"}},
     {"<|user|>", NULL},
     NULL},
    {"plain",
     {{"", NULL, NULL, "\n"}, {"", NULL, NULL, "\n"}, {"", NULL, NULL, "\n"}, {"", NULL, NULL, "\n"}},
     {NULL, NULL},
     NULL},
};
#define N_FORMATS (sizeof(chat_formats) / sizeof(chat_formats[0]))

const chat_format *chat_format_at(int i) { return i >= 0 && (size_t)i < N_FORMATS ? &chat_formats[i] : NULL; }

const chat_format *chat_format_find(const char *name) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(chat_formats[i].name, name) == 0) return &chat_formats[i];
    return NULL;
}

const char *chat_format_name(const chat_format *f) { return f->name; }

static bool holds(gguf_string text, const char *mark) {
    size_t n = strlen(mark);
    for (uint64_t i = 0; i + n <= text.n; i++)
        if (text.bytes[i] == mark[0] && memcmp(text.bytes + i, mark, n) == 0) return true;
    return false;
}

/* What a template's `eos_token` leaves out: zephyr writes the variable, so its marks are <|user|> without <|end|>. */
static bool matches(const chat_format *f, gguf_string template) {
    if (!f->marks[0]) return false;
    for (size_t i = 0; i < 2 && f->marks[i]; i++)
        if (!holds(template, f->marks[i])) return false;
    return true;
}

const chat_format *chat_format_detect(const gguf_file *f, const tokenizer *t) {
    gguf_string template;
    if (gguf_get_string(f, "tokenizer.chat_template", &template))
        for (size_t i = 0; i < N_FORMATS; i++)
            if (matches(&chat_formats[i], template)) return &chat_formats[i];
    for (size_t i = 0; i < N_FORMATS; i++)
        if (chat_formats[i].token && tokenizer_find(t, chat_formats[i].token, strlen(chat_formats[i].token)) >= 0)
            return &chat_formats[i];
    return chat_format_find("plain");
}

chat_text chat_format_around(const chat_format *f, chat_role role, int previous) {
    const role_text *r = &f->roles[role];
    const char *before = r->before;
    if (previous == CHAT_SYSTEM && r->after_system) before = r->after_system;
    else if (previous != CHAT_ROLE_NONE && previous != CHAT_SYSTEM && r->again) before = r->again;
    return (chat_text){before, r->after};
}

const char *chat_format_answer(const chat_format *f, int previous) {
    return chat_format_around(f, CHAT_ASSISTANT, previous).before;
}
