/* SPDX-License-Identifier: Apache-2.0 */
/* tools.h: tools and forms of answers of a request: checks them, writes them as prompt text (tool_text.h) for models
 * without a template of their own, and constrains the answer (tool_grammar.h). Any thread.
 */
#ifndef SERVER_TOOLS_H
#define SERVER_TOOLS_H

#include "server/prompt/generation.h"

/* Checks tool choice, tools and grammar. Returns a server_problem_kind, as the others do. */
int tools_check(generation *gen, server_problem *p);
/* Rewrites gen->messages: definitions, calls and results become text. For models whose template does not write them.
 * Once. chat_format: of rp_model_info. */
int tools_write(generation *gen, const char *chat_format, server_problem *p);
/* Sets gen->grammar (tool_grammar.h), for gen->form.convention, after the prompt is known. */
int tools_constrain(generation *gen, server_problem *p);
/* The engine refused the grammar for its size: makes one without the schemas of tools that are not strict. false: there
   is none, or a problem. */
bool tools_loosen(generation *gen, server_problem *p);

#endif
