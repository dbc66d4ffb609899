/* SPDX-License-Identifier: Apache-2.0 */
/* ollama.h: shared by the files of Ollama's API.
 *
 * Streams are lines of JSON and the default. Arguments of tool calls are objects. The last object of an answer has
 * "done": true, the counts, the times in nanoseconds, and the report of Reprise.
 */
#ifndef SERVER_OLLAMA_H
#define SERVER_OLLAMA_H

#include "server/answers/generate.h"

/* Parsers: pure, for the routes and for fuzz/fuzz_requests.c. */
int ollama_parse_generate(generation *gen, server_problem *p);
int ollama_parse_chat(generation *gen, server_problem *p);
int ollama_parse_embed(generation *gen, server_problem *p);
int ollama_parse_embeddings(generation *gen, server_problem *p);

/* ---- ollama_models.c ---- */

#define OLLAMA_TIME_BYTES 40
/* "2026-11-25T16:10:00.123456Z": now; of a routed request the second that the router gave. */
void ollama_write_time(const server_request *x, char text[OLLAMA_TIME_BYTES]);
/* The name with its tag: "reprise-mini:latest". The caller's (json_decref); NULL: out of memory. */
json_t *ollama_model_name(const char *name);

/* ---- ollama_context.c ---- */

/* The token ids that a later request gives as `context`: the prompt and its answer. NULL: out of memory. */
json_t *ollama_context(const server_request *x, const server_choice *c);
/* Makes x->gen's prompt continue the request's `context`, if it has one: the ids, the end of the answer in them, the
   messages. */
int ollama_continue(server_request *x);

#endif
