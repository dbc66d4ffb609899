/* SPDX-License-Identifier: Apache-2.0 */
/* responses.h: shared by the files of /v1/responses.
 *
 * An answer is a list of output items: a message for each text, a function_call for each tool call, a reasoning item
 * for each run of reasoning (tool_finder.h). The current block of a stream is the item of that index.
 */
#ifndef SERVER_RESPONSES_H
#define SERVER_RESPONSES_H

#include "server/answers/generate.h"
#include "server/dialects/kept_answers.h"

extern const kept_kind responses_kind;

/* ---- responses_object.c ---- */

/* The whole object. status "in_progress": without the result; otherwise the choice has its result. NULL: out of
 * memory. */
json_t *responses_object(const server_request *x, const char *status);
/* "completed", or "incomplete" for a truncated answer. */
const char *responses_status(const server_choice *c);
/* The i-th output item; is_whole: as at its end, else as at its start. */
json_t *responses_item(const server_request *x, const server_choice *c, size_t i, bool is_whole);
size_t responses_count_items(const server_choice *c);
bool responses_is_call(const server_choice *c, size_t i);
bool responses_is_reasoning(const server_choice *c, size_t i);
/* The text of an item that is a message or reasoning; its part, whole or empty. */
json_t *responses_text(const server_choice *c, size_t i);
json_t *responses_part(const server_choice *c, size_t i, bool is_whole);
#define RESPONSES_ID_BYTES 80
void responses_item_id(const server_request *x, const server_choice *c, size_t i, char id[RESPONSES_ID_BYTES]);

/* The frames of a stream (responses_stream.c). */
int responses_open(server_request *x);
int responses_tell_piece(server_request *x, server_choice *c, const server_piece *piece);
int responses_tell_call(server_request *x, server_choice *c, tool_event event, const tool_item *item, const char *bytes,
                        size_t n);
int responses_close(server_request *x, server_choice *c);
int responses_end(server_request *x);
int responses_fail(server_request *x, const server_problem *p);

/* Log-probabilities (responses_logprobs.c). Each takes the next tokens of the answer: those of a piece, or all.
   Nonzero: out of memory. */
int responses_logprobs_add(server_choice *c, const server_piece *piece);
int responses_logprobs_add_result(server_choice *c);
/* The tokens from a place on whose text begins in [begin, end) of the answer; the place moves after them. Empty if they
   were not asked for. */
json_t *responses_logprobs_list(const server_choice *c, token_place *place, size_t begin, size_t end);
/* Those of a message. */
json_t *responses_logprobs(const server_choice *c, size_t i);

/* Stores a finished response, unless the request has "store": false. The object is borrowed. */
void responses_keep(const server_request *x, const json_t *object);

#endif
