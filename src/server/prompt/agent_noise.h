/* SPDX-License-Identifier: Apache-2.0 */
/* agent_noise.h: text that known agents put early into their prompts and that differs between requests: a header with a
 * nonce, dates, working directories, git status, memories. Everything after it would miss the prefix cache.
 *
 *   as sent      [ system: header | identity | rules | <env> ... </env> | skills ] [ user: reminders | question ]
 *   as prefilled [ system: rules | skills ] [ user: reminders | identity | <env> ... </env> | question ]
 *
 * A table of rules (agent_noise.c) names each shape. Its text keeps its words and moves after the constant text: to the
 * end of the system messages, or, if the model's template writes tool definitions after those or the agent begins the
 * first user message with blocks of its own, into that message, after such blocks. Only a header that no model needs is
 * left out. Nothing else is touched: no user's own text, no later message, and no system text without the shape.
 *
 * One pass over the leading system messages and the first user message, linear in their bytes; at most SERVER_MAX_NOISE
 * pieces. Owns nothing; texts belong to the generation. Worker threads.
 */
#ifndef SERVER_AGENT_NOISE_H
#define SERVER_AGENT_NOISE_H

#include "reprise_server.h"
#include "server/http/server_request.h"
#include "server/prompt/generation.h"

/* Applies the rules to gen's messages, once, before tool definitions and the template; a conversation with modules of
 * schemas is left unchanged. template_tools: the model's template writes tool definitions. Returns a
 * server_problem_kind. */
int agent_noise_settle(generation *gen, rp_agent_noise mode, bool template_tools, server_problem *p);

/* [{"rule": "claude-code: git status", "message": "system 1", "bytes": 420, "action": "moved"}], for the report. NULL:
   out of memory. */
json_t *agent_noise_report(const generation *gen);

/* Is the text within one that was moved? */
bool agent_noise_has(const generation *gen, const char *text, size_t n);

#endif
