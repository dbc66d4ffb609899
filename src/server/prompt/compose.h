/* SPDX-License-Identifier: Apache-2.0 */
/* compose.h: a conversation that has modules in it becomes one PML prompt.
 *
 *   [user: module plan/miami, "Where is surf?"] [assistant: "..."] [user: "And then?"]
 *     --> <prompt schema="cities"><user><plan><miami/></plan>Where is surf?</user><assistant>...</assistant><user>And then?</user></prompt>
 *
 * A module stands where PML allows it (docs/server.md, 'Modules in messages'):
 *
 *   inside    the message's role: it has nothing to do with roles
 *   outside   before, between or behind the message's own text, whose role is closed around it: it holds roles
 *   bare      it stands in a role of the schema, so the message is that role, and gets none of its own
 *
 * With "reuse": "modular" the documents of a conversation are modules of its prompt (modular.c).
 * Whatever a client writes as text stays text: it is escaped here. Owns nothing; what it makes belongs to the ask. Workers.
 */
#ifndef SERVER_COMPOSE_H
#define SERVER_COMPOSE_H

#include "server/http/server_request.h"

#define SERVER_MAX_COMPOSED_BYTES ((size_t)64 << 20) /* of a prompt; what a PML document may have */

/* Sets the generation's `pml`, or `built` for modular reuse, if the conversation needs it. tenant: the request's. Returns a
 * server_problem_kind. */
int compose_conversation(server_request *x, const char *tenant);

/* Tokens of the ask's conversation with what opens an answer. Composes it. */
int compose_count(server_request *x, size_t *n_tokens);

/* Builds the prompt of a conversation with "reuse": "modular", if it has documents (modular.c). Returns a server_problem_kind. */
int modular_build(server_request *x);

/* Appends text as XML that means it. RP_ERR_INVALID: it holds a character that XML does not have. */
int compose_escape(base_buffer *out, const char *text, size_t n, bool in_attribute);

/* ---- compose_markup.c: what a client wrote as PML ---- */

#define SERVER_SCHEMA_NAME_BYTES 256

typedef struct compose_markup {
    char schema[SERVER_SCHEMA_NAME_BYTES];
    size_t begin, end; /* what <prompt> holds, in the part's text */
} compose_markup;

/* child: called for each element that <prompt> holds; may be NULL. Returns a server_problem_kind: a document that is not well-formed or no
 * prompt is refused. */
int compose_scan(const char *pml, compose_markup *out, void (*child)(void *user, const char *name), void *user, server_problem *p);

#endif
