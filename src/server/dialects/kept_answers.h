/* SPDX-License-Identifier: Apache-2.0 */
/* kept_answers.h: the stored answers of Responses and of Interactions, in one registry (response_registry.h): each is
 * an object, and its conversation as a list of items, which the next request may continue. The prefix of an id says
 * which API an answer is of. Workers; put: also I/O threads.
 */
#ifndef SERVER_KEPT_ANSWERS_H
#define SERVER_KEPT_ANSWERS_H

#include "server/answers/generate.h"
#include "server/http/request_relay.h"
#include "server/http/server_request.h"

#define KEPT_ANSWERS_ID_BYTES (RELAY_ID_BYTES + 8)

typedef struct kept_kind {
    const char *prefix;              /* of its ids, as routers know them (route/route_http.c) */
    const char *word;                /* "response": in problems */
    const char *previous;            /* the field of a request that names the answer before it */
    const char *output;              /* the field of an object with the items of the answer */
    json_t *(*items)(json_t *input); /* the field `input` as a new list of items; NULL: no memory */
} kept_kind;

/* The id of a request's answer. */
void kept_answers_id(const server_request *x, const kept_kind *k, char id[KEPT_ANSWERS_ID_BYTES]);
/* Stores a finished answer, unless the request has "store": false. The object is borrowed. */
void kept_answers_put(const server_request *x, const kept_kind *k, const json_t *object);
/* Begins the answer of a request, whose input continues the stored conversation that it names. form: of its dialect. */
void kept_answers_begin(server_request *x, const kept_kind *k, const server_form *form);
/* The object of the answer that the path names; with_input: with the items of its request in the field `input`. NULL: a
   problem. */
json_t *kept_answers_get(server_request *x, const kept_kind *k, bool with_input);
/* Removes it. Returns a server_problem_kind. */
int kept_answers_remove(server_request *x, const kept_kind *k);

#endif
