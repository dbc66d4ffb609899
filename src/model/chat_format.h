/* SPDX-License-Identifier: Apache-2.0 */
/* chat_format.h: what a model was trained to see around system, user, assistant and tool messages.
 *
 * A table of texts before and after each role's content. They are the only text that is parsed for control tokens.
 */
#ifndef MODEL_CHAT_FORMAT_H
#define MODEL_CHAT_FORMAT_H

#include <stdbool.h>

#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "reprise.h"

typedef enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_ROLE_COUNT } chat_role;
#define CHAT_ROLE_NONE (-1)
const char *chat_role_name(chat_role role); /* as PML writes it: "system"; static */

typedef struct chat_text {
    const char *before, *after; /* static; "" for nothing */
} chat_text;

typedef struct chat_format chat_format;

const chat_format *chat_format_at(int i);             /* NULL past the end */
const chat_format *chat_format_find(const char *name); /* NULL if unknown */
const char *chat_format_name(const chat_format *f);

/* The format that the model's metadata asks for: by what distinguishes its tokenizer.chat_template, then by special tokens in its
 * vocabulary; "plain" when nothing says otherwise. Never NULL. *guessed (may be NULL): the file has a template of its own, and it is
 * none of those that are known. */
const chat_format *chat_format_detect(const gguf_file *f, const tokenizer *t, bool *guessed);

/* The texts around a message of `role`, when the message before it was of role `previous` (CHAT_ROLE_NONE: it is the first).
 * Formats that put the system message inside the first user message (llama-2, mistral, gemma) depend on it. */
chat_text chat_format_around(const chat_format *f, chat_role role, int previous);
/* What makes the model answer after a message of role `previous`: mostly the assistant's `before`. */
const char *chat_format_answer(const chat_format *f, int previous);

#endif
