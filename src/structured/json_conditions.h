/* SPDX-License-Identifier: Apache-2.0 */
/* json_conditions.h: schemas with not, if, then, else and dependentRequired, as schemas without: alternatives (anyOf).
 * Any thread; inputs are not modified.
 *
 *   dependentRequired {"p": ["q"]}   without p | with p and q
 *   not                              enum or const: fewer values; type: fewer types; required ["p"]: without p
 *   if {"properties": {"p": V}}      p is one of V, and then | p is another of its values, and else; p must have an
 *         enum, a const, or type boolean
 */
#ifndef STRUCTURED_JSON_CONDITIONS_H
#define STRUCTURED_JSON_CONDITIONS_H

#include <jansson.h>
#include <stdbool.h>

bool json_conditions_are_in(const json_t *schema);
/* The schema without one of these keywords; owned by the caller (json_decref). NULL: *keyword cannot be honoured
 * because of *why (static), or, if *keyword is NULL, out of memory. */
json_t *json_conditions_resolve(const json_t *schema, const char **keyword, const char **why);

#endif
