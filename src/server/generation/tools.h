/* SPDX-License-Identifier: Apache-2.0 */
/* tools.h: prompt text for tools, for models without a template of their own.
 *
 * The system message gets the definitions, one per line, compact and with sorted keys: the prompt does not depend on the client's order of keys,
 * and hits the prefix cache. Calls and results have the format of Hermes and Qwen models, in every chat format:
 *
 *   <tools> {"function":{...},"type":"function"} ... </tools>      in the system message
 *   <tool_call> {"name": "f", "arguments": {...}} </tool_call>     in the assistant's, after its text
 *   <tool_response> ... </tool_response>                           in a message of role tool; in chatml of the user, as for Qwen
 *
 * Any thread.
 */
#ifndef SERVER_TOOLS_H
#define SERVER_TOOLS_H

#include "server/generation/generation.h"

#define TOOLS_CALL_OPEN "<tool_call>"
#define TOOLS_CALL_CLOSE "</tool_call>"

/* Whether the answer may call tools. */
bool tools_are_on(const generation *gen);
/* A definition as OpenAI has it; a new reference. NULL: out of memory. */
json_t *tools_definition(const server_tool *t);
/* Checks tool choice, tools and grammar. Returns a server_problem_kind, as the others do. */
int tools_check(generation *gen, server_problem *p);
/* Rewrites gen->messages: definitions, calls and results become text. For models whose template does not write them. Once. chat_format: of
 * rp_model_info. */
int tools_write(generation *gen, const char *chat_format, server_problem *p);
/* Sets gen->grammar (tool_grammar.h), for gen->convention, after the prompt is known. */
int tools_constrain(generation *gen, server_problem *p);
/* The engine refused the grammar for its size: makes one without the schemas of tools that are not strict. false: there is none, or a problem. */
bool tools_loosen(generation *gen, server_problem *p);

#endif
