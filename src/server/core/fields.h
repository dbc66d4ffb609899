/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h: reading the fields of a JSON object. What is absent or null leaves the value as it is; what is of another
 * type or out of its range is a problem that names the field. After a problem every function does nothing.
 */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json_write.h"
#include "server/core/problem.h"

typedef struct server_fields {
    const json_t *object;
    server_problem *problem;
    const char *prefix; /* of names in problems: "stream_options."; "" at the top */
} server_fields;

/* n bytes of JSON, an object. NULL: a problem. The caller's (json_decref). */
json_t *server_json_parse(const char *bytes, size_t n, server_problem *p);

/* The field, or NULL where it is absent or null. */
const json_t *server_field(const server_fields *f, const char *name);
/* Complains of a field's type: "'prompt' is a number: give a string". */
void server_field_wrong(const server_fields *f, const char *name, const json_t *value, const char *expected);

void server_field_text(const server_fields *f, const char *name, const char **out); /* borrowed from the object */
void server_field_bool(const server_fields *f, const char *name, bool *out);
void server_field_int(const server_fields *f, const char *name, int64_t min, int64_t max, int32_t *out);
void server_field_real(const server_fields *f, const char *name, double min, double max, float *out);
/* Any whole number; its remainder modulo 2^64 counts. Returns whether it is there. */
bool server_field_seed(const server_fields *f, const char *name, uint64_t *out);
/* The object or array in a field, or NULL. */
const json_t *server_field_object(const server_fields *f, const char *name);
const json_t *server_field_array(const server_fields *f, const char *name);

#endif
