/* SPDX-License-Identifier: Apache-2.0 */
/* json_out.h: JSON output that is always valid: text is converted to UTF-8, numbers are finite. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <jansson.h>

/* A string; NULL gives "". */
json_t *cli_json_text(const char *s);
/* A number with three decimal places (milliseconds to the microsecond); a number that is not finite becomes 0. */
json_t *cli_json_real(double v);
/* Sets a field and takes the reference to `value`; exits if out of memory. */
void cli_json_set(json_t *object, const char *field, json_t *value);
void cli_json_append(json_t *array, json_t *value);
/* Prints the object as one line on standard output and releases the reference. Returns an exit status. */
int cli_json_print(json_t *object);

#endif
