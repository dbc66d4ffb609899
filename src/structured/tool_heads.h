/* SPDX-License-Identifier: Apache-2.0 */
/* tool_heads.h: the text before and after the arguments of a call, and headers of harmony's messages (gpt-oss), matched
 * against text that may not be complete. Pure functions, any thread.
 *
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>     the recipient may also be
 *         before the channel;
 *   <|channel|>final<|message|>                                                             <|start|>assistant is in
 *         the prompt
 */
#ifndef STRUCTURED_TOOL_HEADS_H
#define STRUCTURED_TOOL_HEADS_H

#include "base/buffer.h"
#include "structured/answer_form.h"

/* Does a text have a form? A function moves *at after what it has matched. */
typedef enum tool_match { TOOL_NO,
                          TOOL_YES,
                          TOOL_PERHAPS /* the text is a prefix of it */ } tool_match;

static inline bool tool_heads_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
size_t tool_heads_spaces(const base_buffer *b, size_t at);
/* White space, then this text; a ' ' or '\n' in it is optional white space. */
tool_match tool_heads_expect(const base_buffer *b, size_t *at, const char *text);

/* A call from `begin` up to its arguments: the '{' of an object, or the first argument's mark. */
tool_match tool_heads_call(const tool_form *form, const answer_form *answer, const base_buffer *b, size_t *at,
                           const tool_spec **tool);
/* What follows a call's arguments, up to and with `end`. */
tool_match tool_heads_tail(const tool_form *form, const base_buffer *b, size_t *at);

/* What the mark before a value says of it. */
typedef enum tool_value { TOOL_VALUE_BY_SCHEMA,
                          TOOL_VALUE_TEXT,
                          TOOL_VALUE_JSON } tool_value;

/* Of a call with arguments as text: an argument's name, *name with *n_name bytes, up to its value. */
tool_match tool_heads_key(const tool_form *form, const base_buffer *b, size_t *at, const char **name, size_t *n_name,
                          tool_value *value);

/* Is the argument a string by the tool's schema, written as it is? Otherwise it is JSON where it reads as JSON: so are
 * the strings of an enum of which one has the end of values in it, which no text could. */
bool tool_heads_is_text(const tool_form *form, const tool_spec *tool, const char *name, size_t n);
/* The strings that such an argument may be, an array, or one string; NULL: any. Borrowed. */
const json_t *tool_heads_listed(const json_t *schema);

/* A tool that the answer may call, by its name; NULL: none. */
const tool_spec *tool_heads_find_tool(const answer_form *answer, const char *name, size_t n);

/* ---- Harmony ---- */

typedef enum tool_channel {
    TOOL_CHANNEL_TEXT,      /* final, or commentary to the user */
    TOOL_CHANNEL_REASONING, /* analysis */
    TOOL_CHANNEL_CALL,      /* to a tool, and its arguments begin */
    TOOL_CHANNEL_UNKNOWN,   /* to anybody else: its header is text */
} tool_channel;

/* A header at the beginning of b; n_bytes: up to the message, or a call's '{'. A header of more than `most` bytes is
   none. */
tool_match tool_channels_header(const answer_form *answer, const base_buffer *b, size_t most, tool_channel *channel,
                                const tool_spec **tool, size_t *n_bytes);

/* Texts that end a message; NULL past the end. Those that begin a header. */
const char *tool_channels_end(size_t i);
const char *tool_channels_begin(size_t i);

#endif
