/* SPDX-License-Identifier: Apache-2.0 */
/* known_fields.h: the fields that a dialect has in the objects inside a request. A dialect lists them by path; what a
 * client sends beyond them is reported with its place, as generation_known does for the request itself.
 */
#ifndef SERVER_KNOWN_FIELDS_H
#define SERVER_KNOWN_FIELDS_H

#include "server/prompt/generation.h"

typedef struct server_known_fields {
    const char *path;  /* "messages[].content[]": the objects in these arrays; "tool_choice.function": one object */
    const char *known; /* names, separated by spaces: those that a parser reads, and those that are ignored on
                          purpose */
} server_known_fields;

/* Parts that Reprise adds to every content (generation_message). */
#define SERVER_PART_FIELDS "type text schema name args source title context citations cache_control "
#define SERVER_SOURCE_FIELDS "type data media_type content"

/* Reports the unknown fields of every object at a listed path. A value of another type there is the parser's to
   refuse. */
void generation_known_inside(generation *gen, const server_known_fields *list, size_t n, server_problem *p);

#endif
