/* SPDX-License-Identifier: Apache-2.0 */
/* json_schema.h: JSON schemas: resolves references within a document, and merges two schemas. Any thread; inputs are
   not modified. */
#ifndef STRUCTURED_JSON_SCHEMA_H
#define STRUCTURED_JSON_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

/* The target of a reference ("#", "#/$defs/node", "#/properties/a/items"); NULL: none in the document. */
const json_t *json_schema_resolve(const json_t *document, const char *ref);

/* Whether the schema has a keyword, besides `but` (may be NULL), that constrains text. */
bool json_schema_constrains(const json_t *schema, const char *but);

/* The intersection of two schemas; owned by the caller (json_decref). false: their types, enums or consts have nothing
 * in common. NULL: out of memory, or *conflict is the keyword that cannot be merged (borrowed from a or b, or
 * static). */
json_t *json_schema_merge(const json_t *a, const json_t *b, const char **conflict);

#endif
