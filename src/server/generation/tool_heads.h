/* SPDX-License-Identifier: Apache-2.0 */
/* tool_heads.h: the text before and after the arguments of a call, matched against text that may not be complete. Pure functions, any thread. */
#ifndef SERVER_TOOL_HEADS_H
#define SERVER_TOOL_HEADS_H

#include "base/buffer.h"
#include "server/generation/generation.h"

/* Does a text have a form? A function moves *at after what it has matched. */
typedef enum tool_match { TOOL_NO,
                          TOOL_YES,
                          TOOL_PERHAPS /* the text is a prefix of it */ } tool_match;

static inline bool tool_heads_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
size_t tool_heads_spaces(const base_buffer *b, size_t at);
/* White space, then this text; a ' ' or '\n' in it is optional white space. */
tool_match tool_heads_expect(const base_buffer *b, size_t *at, const char *text);

/* A call from `begin` up to its arguments: the '{' of an object, or the first argument's mark. */
tool_match tool_heads_call(const tool_form *form, const generation *gen, const base_buffer *b, size_t *at, const server_tool **tool);
/* What follows a call's arguments, up to and with `end`. */
tool_match tool_heads_tail(const tool_form *form, const base_buffer *b, size_t *at);

/* Of a call with arguments as text: an argument's name, *name with *n_name bytes, up to its value; and the texts after a value, and after the
 * last one. */
tool_match tool_heads_key(const tool_form *form, const base_buffer *b, size_t *at, const char **name, size_t *n_name);
const char *tool_heads_value_end(const tool_form *form);

/* A tool that the answer may call, by its name; NULL: none. */
const server_tool *tool_heads_find_tool(const generation *gen, const char *name, size_t n);

#endif
