/* SPDX-License-Identifier: Apache-2.0 */
/* guided.h: vLLM's fields for the form of an answer, in every dialect: guided_json, guided_regex, guided_choice,
 * guided_grammar, and structured_outputs {"json", "regex", "choice", "grammar", "json_object"}, with a whitespace
 * pattern. tools.h makes the grammar. Any thread.
 */
#ifndef SERVER_GUIDED_H
#define SERVER_GUIDED_H

#include "server/prompt/generation.h"
#include "structured/json_grammar.h"

#define SERVER_MAX_CHOICE_BYTES ((size_t)64 << 10) /* of all texts of guided_choice */

/* Reads the fields into gen->guided. Refuses two forms, and fields of another type. */
void guided_parse(generation *gen, const server_fields *f);
/* Checks that no other field asks for a form, and makes it the generation's: a schema or a grammar; a regex or choices
   are in gen->form already. */
void guided_settle(generation *gen, server_problem *p);

#endif
