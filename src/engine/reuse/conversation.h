/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.h: messages as prompts: drops the oldest turns of a conversation that is too long, and continues answers
   as they were sampled.
 */
#ifndef ENGINE_CONVERSATION_H
#define ENGINE_CONVERSATION_H

#include "reprise.h"

/* The submitting thread: plans a request's messages; remembered answers are replaced by their tokens. Errors as
   pml_plan_messages. */
int conversation_plan(rp_job *c, const rp_request *request, rp_error *err);
/* The engine's thread: remembers the tokens of a complete answer. */
void conversation_remember(rp_job *c);

#endif
