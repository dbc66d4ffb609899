/* SPDX-License-Identifier: Apache-2.0 */
/* chat_rendering.h: a conversation as the model's own chat template writes it.
 *
 *   messages, tool definitions, calls, results, reasoning, chat_template_kwargs --> rp_template_input
 *   --rp_model_render_input--> text with origins
 *
 * Roles and names of tokens are the template's; everything else of the request is untrusted, and never becomes a
 * control token. A template that refuses a conversation gets it once more in the form that it asks for: arguments of
 * calls as text, call ids of nine characters, consecutive messages of a role as one, system messages in the user's
 * first one. Its own error is reported if that does not help.
 *
 * Owns nothing; the text belongs to the generation. Worker threads.
 */
#ifndef SERVER_CHAT_RENDERING_H
#define SERVER_CHAT_RENDERING_H

#include "server/http/server_request.h"
#include "server/prompt/generation.h"
#include "reprise_chat.h"

/* Does the model's template render this request? Not if messages use modules of a schema, whose texts have the built-in
   format. */
bool chat_rendering_applies(const server_request *x);
/* Does the template write tool definitions, calls and results? Then tools.h need not. */
bool chat_rendering_has_tools(const server_request *x);
/* Sets gen->rendered and gen->form.reasoning_open. With `truncation`, the oldest turns are left out until the prompt
 * and its answer fit. Returns a server_problem_kind. */
int chat_rendering_make(server_request *x);
/* The input of the template of a rendered request; the contents of its messages are borrowed from x->gen.
 * rp_template_input_free. NULL: out of memory. */
rp_template_input *chat_rendering_input(const server_request *x);
/* How many messages were left out. */
size_t chat_rendering_dropped(const generation *gen);

#endif
