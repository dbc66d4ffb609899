/* SPDX-License-Identifier: Apache-2.0 */
/* interactions.h: shared by the files of Gemini's Interactions (docs/server.md#gemini).
 *
 * An answer is a list of steps: a model_output for each text, a thought for each run of reasoning, a function_call for
 * each tool call: the items of /v1/responses (responses.h) in other words. Stored interactions are in its registry
 * (kept_answers.h).
 */
#ifndef SERVER_INTERACTIONS_H
#define SERVER_INTERACTIONS_H

#include "server/answers/generate.h"
#include "server/dialects/kept_answers.h"

extern const kept_kind interactions_kind;

/* What `input` may be - a text, a content, a list of contents, of steps, or of turns {"role", "content"} as older
 * clients send them - as a new list of steps. An element that is none of them stays as it is. NULL: no memory. */
json_t *interactions_steps(json_t *input);

/* The object; a status but "in_progress": with its times; with_steps: with the steps, and what the client gave. NULL:
   no memory. */
json_t *interactions_object(const server_request *x, const char *status, bool with_steps);
/* "completed", "requires_action" if there are calls to answer, "incomplete" for a truncated answer. */
const char *interactions_status(const server_choice *c);
/* Stores a finished interaction, unless the request has "store": false. The object is borrowed. */
void interactions_keep(const server_request *x, const json_t *object);

/* The frames of a stream (interactions_stream.c). */
int interactions_open(server_request *x);
int interactions_report_piece(server_request *x, server_choice *c, const server_piece *piece);
int interactions_report_reasoning(server_request *x, server_choice *c, const server_piece *piece);
int interactions_report_call(server_request *x, server_choice *c, tool_event event, const tool_item *item,
                             const char *bytes, size_t n);
int interactions_close(server_request *x, server_choice *c);
int interactions_end(server_request *x);
int interactions_fail(server_request *x, const server_problem *p);
/* Appends the stream of a stored object, with one delta for each step, to the reply. Nonzero: no memory. */
int interactions_replay(server_request *x, const json_t *object);

#endif
