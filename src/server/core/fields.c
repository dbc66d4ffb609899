/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c: see fields.h. Owns nothing. Any thread. */
#include "server/core/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/json_number.h"
#include "base/json_read.h"

#define MAX_NAME_BYTES 64 /* of a name in a message */

json_t *server_json_parse(const char *bytes, size_t n, server_problem *p) {
    json_error_t at;
    json_t *root = n > 0 ? base_json_read(bytes, n, BASE_JSON_REPLACE_NUL) : NULL;
    if (!root && base_budget_refusal()) {
        server_fail_memory(p);
        return NULL;
    }
    if (!root && (root = json_loadb(n > 0 ? bytes : "", n,
                                    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &at))) {
        json_decref(root); /* it is only read for the reason */
        server_fail_memory(p);
        return NULL;
    }
    if (!root) {
        server_fail(p, SERVER_INVALID, NULL, "the body is not valid JSON: line %d, column %d: %s", at.line, at.column,
                    at.text);
        return NULL;
    }
    if (json_is_object(root)) return root;
    server_fail(p, SERVER_INVALID, NULL, "the body is not a JSON object");
    json_decref(root);
    return NULL;
}

const json_t *server_field(const server_fields *f, const char *name) {
    const json_t *value = f->problem->kind ? NULL : json_object_get(f->object, name);
    return json_is_null(value) ? NULL : value;
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

void server_field_wrong(const server_fields *f, const char *name, const json_t *value, const char *expected) {
    char full[2 * MAX_NAME_BYTES];
    snprintf(full, sizeof(full), "%.*s%.*s", MAX_NAME_BYTES, f->prefix, MAX_NAME_BYTES - 1, name);
    server_fail(f->problem, SERVER_INVALID, full, "'%s' is %s: give %s", full, type_name(value), expected);
}

static void out_of_range(const server_fields *f, const char *name, double min, double max) {
    BASE_ASSERT(min <= max);
    char full[2 * MAX_NAME_BYTES];
    snprintf(full, sizeof(full), "%.*s%.*s", MAX_NAME_BYTES, f->prefix, MAX_NAME_BYTES - 1, name);
    server_fail(f->problem, SERVER_INVALID, full, "'%s' is out of range: give a number from %.10g to %.10g", full, min,
                max);
}

void server_field_text(const server_fields *f, const char *name, const char **out) {
    const json_t *value = server_field(f, name);
    if (!value) return;
    if (json_is_string(value)) *out = json_string_value(value);
    else server_field_wrong(f, name, value, "a string");
}

void server_field_bool(const server_fields *f, const char *name, bool *out) {
    const json_t *value = server_field(f, name);
    if (!value) return;
    if (json_is_boolean(value)) *out = json_is_true(value);
    else server_field_wrong(f, name, value, "true or false");
}

void server_field_int(const server_fields *f, const char *name, int64_t min, int64_t max, int32_t *out) {
    const json_t *value = server_field(f, name);
    BASE_ASSERT(min >= INT32_MIN && max <= INT32_MAX); /* a number in the range fits */
    if (!value) return;
    const double v = json_number_value(value); /* 3.0 is a whole number, too: some languages write it so */
    if (!base_json_is_whole(value)) server_field_wrong(f, name, value, "a whole number");
    else if (!(v >= (double)min && v <= (double)max)) out_of_range(f, name, (double)min, (double)max);
    else *out = (int32_t)v;
}

void server_field_real(const server_fields *f, const char *name, double min, double max, float *out) {
    BASE_ASSERT(min <= max);
    const json_t *value = server_field(f, name);
    if (!value) return;
    double v = json_number_value(value);
    if (!json_is_number(value)) server_field_wrong(f, name, value, "a number");
    else if (!(v >= min && v <= max)) out_of_range(f, name, min, max);
    else *out = (float)v;
}

bool server_field_seed(const server_fields *f, const char *name, uint64_t *out) {
    const json_t *value = server_field(f, name);
    if (!value) return false;
    int64_t v = 0;
    const bool fits = base_json_int64(value, &v);
    if (!base_json_is_whole(value)) server_field_wrong(f, name, value, "a whole number");
    else if (fits) *out = (uint64_t)v;
    else {
        /* Digits with a sign, modulo 2^64: numbers without a sign, and of any size, are seeds elsewhere. With an
         * exponent: 0. */
        const char *text = base_json_number_text(value);
        const bool negative = text && *text == '-';
        uint64_t whole = 0;
        for (const char *c = text ? text + negative : ""; *c >= '0' && *c <= '9'; c++)
            whole = 10 * whole + (uint64_t)(*c - '0');
        *out = negative ? 0 - whole : whole;
    }
    return !f->problem->kind;
}

const json_t *server_field_object(const server_fields *f, const char *name) {
    const json_t *value = server_field(f, name);
    if (!value || json_is_object(value)) return value;
    server_field_wrong(f, name, value, "an object");
    return NULL;
}

const json_t *server_field_array(const server_fields *f, const char *name) {
    const json_t *value = server_field(f, name);
    if (!value || json_is_array(value)) return value;
    server_field_wrong(f, name, value, "an array");
    return NULL;
}
