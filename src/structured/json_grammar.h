/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar.h: JSON Schema -> rules of a grammar (GBNF, as in rp_request.grammar) that accept the JSON that the
 * schema allows.
 *
 *   grammar  text of whole rules: those of any JSON ("value", "object", "string", ...), then those of each schema that
 *   was added
 *   place    path of a schema in the request, for error messages ("response_format.json_schema.schema.properties.x")
 *   strict   what cannot be honoured is an error. Otherwise nothing of a schema is: a keyword that is not supported, is
 *         malformed or allows no value
 *            is dropped, and the grammar accepts more than the schema; one that is too large allows any object, or any
 *            value. What was dropped is noted, by its place (json_grammar_dropped)
 *
 * The only white space is at most one space after ':' and ','. Properties have the order of the schema (or the order
 * that propertyOrdering gives). Optional ones may be missing; others are accepted only if additionalProperties is true
 * or a schema. All of prefixItems are required. Numbers without bounds have up to 16 digits and small exponents,
 * strings no NUL and no half of a surrogate pair.
 *
 * Supported: type, properties, required, additionalProperties, patternProperties, propertyNames, minProperties,
 * maxProperties, items, prefixItems, minItems, maxItems, uniqueItems, contains, minContains, minLength, maxLength,
 * pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum (whole numbers; of integers any; up to
 * JSON_GRAMMAR_BOUND_DIGITS digits), multipleOf, enum and const (those of their values that the keywords beside them
 * allow: json_schema_check.h), anyOf, oneOf (as anyOf), allOf (merged), not, if, then, else, dependentRequired
 * (json_conditions.h), $ref within the document, nullable, true and false; docs/server.md has the limits of each.
 * Ignored, because they do not constrain the text or vendors ignore them: unknown formats, title, description,
 * default, examples and unknown keywords. Refused if strict: JSON_GRAMMAR_REFUSED. One thread at a time.
 */
#ifndef STRUCTURED_JSON_GRAMMAR_H
#define STRUCTURED_JSON_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "reprise.h"

#define JSON_GRAMMAR_BYTES ((size_t)1 << 20) /* of text */
#define JSON_GRAMMAR_DEPTH 48                /* of schemas inside of schemas */
#define JSON_GRAMMAR_VISITS 20000            /* schemas in a schema, those of $ref again where they are merged */
#define JSON_GRAMMAR_REFS 512                /* different targets of $ref in one schema */
#define JSON_GRAMMAR_EDGES 2048              /* uses of them */
#define JSON_GRAMMAR_NAMES 1024              /* properties of an object, alternatives */
#define JSON_GRAMMAR_LOOSE_BYTES \
    (RP_MAX_GRAMMAR_BYTES / 4 * 3) /* of text, after which schemas that are not strict allow anything */
#define JSON_GRAMMAR_MAX_DROPPED 16
#define JSON_GRAMMAR_REPEATS 2000 /* minItems, maxItems, minLength, maxLength */
#define JSON_GRAMMAR_RULE_BYTES 24

/* Keywords that are refused where strict. */
#define JSON_GRAMMAR_REFUSED \
    "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef"

typedef struct json_grammar json_grammar;

/* NULL: no memory. Free it in any case. */
json_grammar *json_grammar_new(void);
/* Replaces " "?, the white space after ':' and ','. expression: of a grammar. Before anything else is added. Returns 0
   or an error of the buffer. */
int json_grammar_set_space(json_grammar *g, const char *expression) BASE_NODISCARD;
void json_grammar_free(json_grammar *g);
/* Adds the rules of a schema, itself the document of its references; writes the name of its rule. err: not NULL; after
 * an error it does nothing (structured_error.h). Returns err->code: RP_ERR_INVALID, RP_ERR_UNSUPPORTED (strict),
 * RP_ERR_MEMORY. */
int json_grammar_add(json_grammar *g, const json_t *schema, const char *place, bool strict,
                     char rule[JSON_GRAMMAR_RULE_BYTES], rp_error *err);
/* What was dropped, a text for each place: "tools[0].function.parameters.properties.n.minimum (at most maximum)".
   Borrowed. */
const json_t *json_grammar_dropped(const json_grammar *g);
/* The rules so far: others may be appended; a rule "root" is up to the caller. */
base_buffer *json_grammar_text(json_grammar *g);
/* Appends a literal: bytes as GBNF writes them, in quotes. Returns 0 or an error of the buffer. */
int json_grammar_literal(base_buffer *out, const char *bytes, size_t n) BASE_NODISCARD;

#endif
