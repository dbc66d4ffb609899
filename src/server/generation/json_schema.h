/* SPDX-License-Identifier: Apache-2.0 */
/* json_schema.h: schemas as documents: references inside of them, and two schemas as one. Any thread; nothing is changed. */
#ifndef SERVER_JSON_SCHEMA_H
#define SERVER_JSON_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

/* What a reference points to ("#", "#/$defs/node", "#/properties/a/items"); NULL: nothing, or outside of the document. */
const json_t *json_schema_resolve(const json_t *document, const char *ref);

/* Has the schema, besides `but` (may be NULL), a name that says something of a text's form? */
bool json_schema_constrains(const json_t *schema, const char *but);

/* A schema that allows what both allow; the caller's (json_decref). NULL: no memory, or *conflict is the name of what cannot be combined
 * (borrowed from a or b, or static). */
json_t *json_schema_merge(const json_t *a, const json_t *b, const char **conflict);

#endif
