/* SPDX-License-Identifier: Apache-2.0 */
/* conversation_prompt.h: messages with modules, PML or documents in them -> the parts of an rp_prompt. Texts are never
 * parsed.
 *
 *   [user: module plan/miami, "Where can I surf?"] [assistant: "..."] [user: "And then?"]
 *     --> message user (import plan/miami, text), message assistant (text), message user (text)
 *
 * rp_builder_begin_message places the modules (docs/server.md, 'Modules in messages'). With "reuse": "modular" the
 * documents of a conversation are modules by themselves (rp_builder_append_document). Messages without any of these
 * stay messages. Owns nothing; the prompt belongs to the generation. Worker threads.
 */
#ifndef SERVER_CONVERSATION_PROMPT_H
#define SERVER_CONVERSATION_PROMPT_H

#include "server/http/server_request.h"
#include "server/prompt/generation.h"

/* Makes the prompt of a conversation, once: the generation's `rendered`, by the model's template (chat_rendering.h),
 * and its `built`, if messages need
 * it; without either the prompt is `messages`. Returns a server_problem_kind. */
int conversation_prompt_build(server_request *x);

/* Counts the prompt tokens of the messages, with those that open the answer. Returns a server_problem_kind. */
int conversation_prompt_count(server_request *x, size_t *n_tokens);

/* Tokens up to the last message, or the tool definitions, that the client marks for the cache; 0: none, or out of
   memory. */
size_t conversation_prompt_count_marked(const server_request *x, server_mark mark);

#endif
