/* SPDX-License-Identifier: Apache-2.0 */
/* tools.h: prompt text and a grammar for tools and for the format of the answer.
 *
 * The system message gets the definitions, one per line, compact and with sorted keys: the prompt does not depend on the client's order of keys,
 * and hits the prefix cache. Calls and results have the format of Hermes and Qwen models, in every chat format:
 *
 *   <tools> {"function":{...},"type":"function"} ... </tools>      in the system message
 *   <tool_call> {"name": "f", "arguments": {...}} </tool_call>     in the assistant's, after its text
 *   <tool_response> ... </tool_response>                           in a message of role tool; in chatml of the user, as for Qwen
 *
 * The grammar applies from the beginning of an answer that must call a tool, and after "<tool_call>" in one that may. Any thread.
 */
#ifndef SERVER_TOOLS_H
#define SERVER_TOOLS_H

#include "server/generation/generation.h"

#define TOOLS_CALL_OPEN "<tool_call>"
#define TOOLS_CALL_CLOSE "</tool_call>"
#define TOOLS_MAX_CALLS 16 /* in an answer */

/* Whether the answer may call tools; then it is searched for calls (tool_calls.h). */
bool tools_are_on(const generation *gen);
/* Rewrites gen->messages for the model and sets gen->grammar. Once, before they are used. chat_format: of rp_model_info. Returns a
 * server_problem_kind. */
int tools_prepare(generation *gen, const char *chat_format, server_problem *p);

#endif
