/* SPDX-License-Identifier: Apache-2.0 */
/* tools.h: what tools and a form of the answer become: text of the prompt, and a grammar for the answer.
 *
 * The system message gets the definitions, one a line, compact and with sorted keys: however a client orders them, the prompt is the same
 * and its states are found. Calls and results are written as Hermes and Qwen models are used to, in every chat format:
 *
 *   <tools> {"function":{...},"type":"function"} ... </tools>      in the system message
 *   <tool_call> {"name": "f", "arguments": {...}} </tool_call>     in the assistant's, behind its text
 *   <tool_response> ... </tool_response>                           in a message of role tool; in chatml of the user's, as Qwen has it
 *
 * An answer that has to call something is bound by a grammar from its beginning, one that may from behind "<tool_call>". Any thread.
 */
#ifndef SERVER_TOOLS_H
#define SERVER_TOOLS_H

#include "server/generation/generation.h"

#define TOOLS_CALL_OPEN "<tool_call>"
#define TOOLS_CALL_CLOSE "</tool_call>"
#define TOOLS_MAX_CALLS 16 /* in an answer */

/* May the answer call tools? Then it is searched for calls (tool_calls.h). */
bool tools_are_on(const generation *gen);
/* Makes ask->messages those that the model gets, and ask->grammar. Once, before anything is done with them. chat_format: of
 * rp_model_info. Returns a server_problem_kind. */
int tools_prepare(generation *gen, const char *chat_format, server_problem *p);

#endif
