/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.h: the grammar of an answer that must or may call tools, or is JSON, in the model's convention (tool_conventions.h).
 *
 *   root ::= [reasoning] OPEN calls | [reasoning] ANSWER          from the beginning; or, if the answer may be any text,
 *   root ::= calls                                                after the trigger OPEN
 *
 * Reasoning before them is free if the model has it, the dialect has a place for it, and the request does not switch it off. Forms that begin
 * with JSON itself have no trigger: an answer that may call is free. Strings that are written as text (TOOL_BODY_ARG_KEYS,
 * TOOL_BODY_PARAMETERS) are any text without the argument's end, or one of an enum (tool_values_is_text); all other values are JSON. What of
 * schemas of tools that are not strict is not enforced is a warning (generation_ignore). Any thread.
 */
#ifndef SERVER_TOOL_GRAMMAR_H
#define SERVER_TOOL_GRAMMAR_H

#include "server/generation/generation.h"

#define TOOLS_MAX_CALLS 16 /* in an answer */

/* Sets gen->grammar and gen->grammar_trigger. calls: tools are on. Returns a server_problem_kind. */
int tool_grammar_make(generation *gen, bool calls, server_problem *p);

#endif
