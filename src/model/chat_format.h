/* SPDX-License-Identifier: Apache-2.0 */
/* chat_format.h: chat templates: the text around system, user, assistant and tool messages.
 *
 * A table of texts before and after each role's content. Control tokens are recognised in these texts only.
 */
#ifndef MODEL_CHAT_FORMAT_H
#define MODEL_CHAT_FORMAT_H

#include <stdbool.h>

#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "reprise.h"

typedef enum chat_role { CHAT_SYSTEM,
                         CHAT_USER,
                         CHAT_ASSISTANT,
                         CHAT_TOOL,
                         CHAT_ROLE_COUNT } chat_role;
#define CHAT_ROLE_NONE (-1)

typedef struct chat_text {
    const char *before, *after; /* static; "" for nothing */
} chat_text;

typedef struct chat_format chat_format;

const chat_format *chat_format_at(int i);              /* NULL past the end */
const chat_format *chat_format_find(const char *name); /* NULL if unknown */
const char *chat_format_name(const chat_format *f);

/* Detects the model's format: by distinctive substrings of its tokenizer.chat_template, then by special tokens of its
 * vocabulary, else "plain". Never NULL. *guessed (may be NULL): true if the file has a template that matches no known
 * format. */
const chat_format *chat_format_detect(const gguf_file *f, const tokenizer *t, bool *guessed);

/* The texts around a message of `role` after a message of role `previous` (CHAT_ROLE_NONE: the message is the first).
 * Formats that put the system prompt into the first user message (llama-2, mistral, gemma) depend on `previous`. */
chat_text chat_format_around(const chat_format *f, chat_role role, int previous);
/* The generation prompt after a message of role `previous`: usually the assistant's `before`. */
const char *chat_format_answer(const chat_format *f, int previous);

#endif
