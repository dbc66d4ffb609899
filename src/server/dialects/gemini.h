/* SPDX-License-Identifier: Apache-2.0 */
/* gemini.h: parts of Gemini's dialect: tools and forms of answers, which its Interactions share (gemini_tools.c);
 * conversations, which are sent or kept (gemini_conversation.c, cached_contents_http.c). */
#ifndef SERVER_GEMINI_H
#define SERVER_GEMINI_H

#include "server/answers/generate.h"

/* Adds the messages of a content's parts: its text, tool calls and their responses, each as its own message. */
void gemini_add_parts(generation *gen, rp_role role, const json_t *parts, const char *name, server_problem *p);
/* tools, toolConfig. */
void gemini_parse_tools(generation *gen, const server_fields *f);
/* responseMimeType, responseSchema, responseJsonSchema. */
void gemini_parse_format(generation *gen, const server_fields *config);
/* The MIME type of the answer, in that field, and its schema (NULL: none), at that place. */
void gemini_set_format(generation *gen, const char *type, const char *field, const json_t *schema, const char *place,
                       server_problem *p);
/* A list of names: excludes all other tools; empty or NULL: none. */
void gemini_allow_tools(generation *gen, const json_t *allowed, const char *field, server_problem *p);
/* An object as JSON text, kept; `otherwise` for anything else. */
const char *gemini_object_text(generation *gen, const json_t *value, const char *otherwise, server_problem *p);

/* The parts of an answer. A call that was cut is text. NULL: no memory. */
json_t *gemini_parts(const server_choice *c);
/* A call, as a part. */
json_t *gemini_part_of(const server_choice *c, const tool_item *item);

/* systemInstruction, contents and tools, and the fields inside them that are unknown. */
void gemini_parse_conversation(generation *gen, const server_fields *f);
/* Prepends the contents that the request's cachedContent names to its own. Returns a server_problem_kind. */
int gemini_add_content(server_request *x, json_t *root);

#endif
