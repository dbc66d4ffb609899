/* SPDX-License-Identifier: Apache-2.0 */
/* anthropic.h: shared by the files of Anthropic's dialect: contents of blocks, and tools (anthropic_tools.c). */
#ifndef SERVER_ANTHROPIC_H
#define SERVER_ANTHROPIC_H

#include "server/answers/generate.h"

/* Adds the messages of a content: texts, tool calls and results, each as its own message; reasoning belongs to its
 * message. name: of the content, in problems. */
void anthropic_add_content(generation *gen, rp_role role, const json_t *content, const char *name, server_problem *p);
/* tools, tool_choice. */
void anthropic_parse_tools(generation *gen, const server_fields *f);

/* The blocks of an answer. A truncated tool call becomes text. NULL: out of memory. */
json_t *anthropic_content(const server_request *x, const server_choice *c);
/* Frames of a stream. */
int anthropic_begin_text(server_request *x, server_choice *c);
int anthropic_end_block(server_request *x, server_choice *c); /* no effect without an open block */
int anthropic_tell_reasoning(server_request *x, server_choice *c, const server_piece *piece);
int anthropic_tell_call(server_request *x, server_choice *c, tool_event event, const tool_item *item, const char *bytes,
                        size_t n);

#endif
