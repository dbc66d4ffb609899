/* SPDX-License-Identifier: Apache-2.0 */
/* json_schema_check.h: whether a value fits a schema: for the values of enum and const, beside other keywords. Any
   thread. */
#ifndef STRUCTURED_JSON_SCHEMA_CHECK_H
#define STRUCTURED_JSON_SCHEMA_CHECK_H

#include <jansson.h>

typedef enum json_schema_verdict {
    JSON_SCHEMA_MISFIT,
    JSON_SCHEMA_FITS,
    JSON_SCHEMA_UNKNOWN, /* a pattern or a reference that is not supported, a malformed keyword, too many steps */
} json_schema_verdict;

/* Work that all checks of a request may take together: schemas that are looked at, names and values that are compared.
   About 50 ms. */
#define JSON_SCHEMA_CHECK_STEPS 500000

/* document: of its references. oneOf is read as anyOf, formats are annotations, as in grammars. steps: what is left of
 * the request's; it is counted down. */
json_schema_verdict json_schema_check(const json_t *document, const json_t *schema, const json_t *value, int *steps);

#endif
