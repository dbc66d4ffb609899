/* SPDX-License-Identifier: Apache-2.0 */
/* gemini.h: tools and forms of answers in Gemini's dialect (gemini_tools.c). */
#ifndef SERVER_GEMINI_H
#define SERVER_GEMINI_H

#include "server/generation/generate.h"

/* Adds the messages of a content's parts: its text, tool calls and their responses, each as its own message. */
void gemini_add_parts(generation *gen, rp_role role, const json_t *parts, const char *name, server_problem *p);
/* tools, toolConfig. */
void gemini_parse_tools(generation *gen, const server_fields *f);
/* responseMimeType, responseSchema, responseJsonSchema. */
void gemini_parse_format(generation *gen, const server_fields *config);

/* The parts of an answer. A call that was cut is text. NULL: no memory. */
json_t *gemini_parts(const server_choice *c);
/* A call, as a part. */
json_t *gemini_part_of(const server_choice *c, const tool_item *item);

#endif
