/* SPDX-License-Identifier: Apache-2.0 */
/* json_schema.c: see json_schema.h. Owns nothing. */
#include "structured/json_schema.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/json_number.h"

#define SEGMENT_BYTES 256

/* ---- references ---- */

/* One segment of a JSON pointer in a URI: ~0, ~1 and %XX are other characters. Returns what is behind it, NULL: it is
   too long. */
static const char *json_schema_segment(const char *s, char out[SEGMENT_BYTES]) {
    size_t n = 0;
    while (*s && *s != '/') {
        char c = *s++;
        if (c == '%' && base_hex_digit(s[0]) >= 0 && base_hex_digit(s[1]) >= 0) {
            c = (char)(base_hex_digit(s[0]) * 16 + base_hex_digit(s[1]));
            s += 2;
        }
        if (c == '~' && (*s == '0' || *s == '1')) c = *s++ == '0' ? '~' : '/';
        if (n + 1 >= SEGMENT_BYTES) return NULL;
        out[n++] = c;
    }
    out[n] = '\0';
    return s;
}

static const json_t *json_schema_step(const json_t *at, const char *name) {
    char *end = NULL;
    if (!json_is_array(at)) return json_object_get(at, name);
    unsigned long i = strtoul(name, &end, 10);
    return *name && !*end ? json_array_get(at, i) : NULL;
}

const json_t *json_schema_resolve(const json_t *document, const char *ref) {
    BASE_ASSERT(ref);
    char name[SEGMENT_BYTES];
    const json_t *at = document;
    if (*ref++ != '#') return NULL;
    while (ref && *ref == '/' && at) {
        ref = json_schema_segment(ref + 1, name);
        if (ref) at = json_schema_step(at, name);
    }
    return ref && !*ref ? at : NULL;
}

/* ---- names ---- */

static const char *const annotations[] = {
    "title", "description", "default", "example", "examples", "$schema", "$id",
    "$comment", "$defs", "definitions", "deprecated", "readOnly", "writeOnly", "$anchor",
    "$vocabulary", "contentEncoding", "contentMediaType", "externalDocs", "xml", "discriminator", "strict"};

static bool is_annotation(const char *name) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(annotations); i++)
        if (strcmp(annotations[i], name) == 0) return true;
    return name[0] == 'x' && name[1] == '-';
}

bool json_schema_constrains(const json_t *schema, const char *but) {
    json_t *value;
    const char *name;
    json_object_foreach((json_t *)schema, name, value) {
        if (!is_annotation(name) && !(but && strcmp(name, but) == 0)) return true;
    }
    return false;
}

/* ---- two as one ---- */

static bool json_schema_holds(const json_t *array, const json_t *value) {
    for (size_t i = 0; i < json_array_size(array); i++)
        if (base_json_equal(json_array_get(array, i), value)) return true;
    return false;
}

/* A string as an array of one. */
static json_t *as_array(const json_t *types) {
    return json_is_array(types) ? json_incref((json_t *)types) : json_pack("[O]", types);
}

static bool json_schema_is_type(const json_t *value, const char *name) {
    return json_is_string(value) && strcmp(json_string_value(value), name) == 0;
}

/* What is in both; an integer is a number. NULL: nothing. */
static json_t *json_schema_common(const json_t *a, const json_t *b) {
    json_t *left = as_array(a), *right = as_array(b), *both = json_array(), *number = json_string("number");
    for (size_t i = 0; i < json_array_size(left); i++) {
        json_t *value = json_array_get(left, i);
        if (json_schema_holds(right, value) ||
            (json_schema_is_type(value, "integer") && json_schema_holds(right, number)))
            json_array_append(both, value);
    }
    for (size_t i = 0; i < json_array_size(right); i++) {
        json_t *value = json_array_get(right, i);
        if (json_schema_is_type(value, "integer") && json_schema_holds(left, number) && !json_schema_holds(both, value))
            json_array_append(both, value);
    }
    json_decref(left);
    json_decref(right);
    json_decref(number);
    if (json_array_size(both) > 0) return both;
    json_decref(both);
    return NULL;
}

static json_t *json_schema_united(const json_t *a, const json_t *b) {
    json_t *both = json_copy((json_t *)a);
    for (size_t i = 0; i < json_array_size(b); i++)
        if (!json_schema_holds(both, json_array_get(b, i))) json_array_append(both, json_array_get(b, i));
    return both;
}

/* A property of both has to be as both say. */
static json_t *all_properties(const json_t *a, const json_t *b) {
    json_t *both = json_copy((json_t *)a), *value;
    const char *name;
    json_object_foreach((json_t *)b, name, value) {
        json_t *other = json_object_get(both, name);
        if (!other) json_object_set(both, name, value);
        else if (!base_json_equal(other, value))
            json_object_set_new(both, name, json_pack("{s:[O, O]}", "allOf", other, value));
    }
    return both;
}

/* The numbers that are multiples of both: of whole numbers only. NULL: it is not known. */
static json_t *common_multiple(const json_t *a, const json_t *b) {
    const double x = json_number_value(a), y = json_number_value(b);
    if (!(x >= 1 && y >= 1 && x <= 1e6 && y <= 1e6) || x != (double)(int64_t)x || y != (double)(int64_t)y) return NULL;
    int64_t m = (int64_t)x, n = (int64_t)y;
    while (n != 0) {
        const int64_t rest = m % n;
        m = n, n = rest;
    }
    return json_integer((json_int_t)((int64_t)x / m * (int64_t)y));
}

#define MAX_COMPARISONS 1000000 /* of two lists of values; longer ones cannot be combined */

/* A value of a name that both have. NULL: they cannot be combined. */
static json_t *json_schema_combined(const char *name, const json_t *a, const json_t *b) {
    bool upper = strncmp(name, "max", 3) == 0 || strcmp(name, "exclusiveMaximum") == 0;
    if (base_json_equal(a, b) || is_annotation(name)) return json_incref((json_t *)a);
    if (strcmp(name, "const") == 0) return json_false(); /* no value is both */
    if (json_array_size(a) * json_array_size(b) > MAX_COMPARISONS) return NULL;
    if (strcmp(name, "type") == 0 || strcmp(name, "enum") == 0) {
        json_t *common = json_schema_common(a, b);
        return common ? common : json_false();
    }
    if (strcmp(name, "required") == 0 && json_is_array(a) && json_is_array(b)) return json_schema_united(a, b);
    if (strcmp(name, "properties") == 0 && json_is_object(a) && json_is_object(b)) return all_properties(a, b);
    if (strcmp(name, "multipleOf") == 0) return common_multiple(a, b);
    if (strcmp(name, "uniqueItems") == 0) return json_boolean(json_is_true(a) || json_is_true(b));
    if (strcmp(name, "patternProperties") == 0 && json_is_object(a) && json_is_object(b)) return all_properties(a, b);
    if (json_is_number(a) && json_is_number(b) &&
        (upper || strncmp(name, "min", 3) == 0 || strcmp(name, "exclusiveMinimum") == 0)) {
        const int order = base_json_number_compare(a, b);
        const bool first = upper ? order <= 0 : order >= 0;
        return json_incref((json_t *)(first ? a : b));
    }
    if (strcmp(name, "nullable") == 0) return json_false();
    if (strcmp(name, "additionalProperties") == 0 && json_is_true(a)) return json_incref((json_t *)b);
    if (strcmp(name, "additionalProperties") == 0 && json_is_true(b)) return json_incref((json_t *)a);
    return NULL;
}

/* Does b have a property that a, which allows no others, lacks? */
static bool is_shut_out(const json_t *a, const json_t *b) {
    const json_t *others = json_object_get(a, "additionalProperties"), *own = json_object_get(a, "properties");
    json_t *value;
    const char *name;
    if (!others || json_is_true(others)) return false;
    json_object_foreach(json_object_get(b, "properties"), name, value) {
        if (!json_object_get(own, name)) return true;
    }
    return false;
}

json_t *json_schema_merge(const json_t *a, const json_t *b, const char **conflict) {
    json_t *all = json_copy((json_t *)a), *value;
    const char *name;
    *conflict = is_shut_out(a, b) || is_shut_out(b, a) ? "additionalProperties" : NULL;
    if (!all) return NULL;
    json_object_foreach((json_t *)b, name, value) {
        const json_t *own = json_object_get(all, name);
        json_t *set = *conflict ? NULL : own ? json_schema_combined(name, own, value)
                                             : json_incref(value);
        if (!set && !*conflict) *conflict = name;
        const bool never = own && json_is_false(set) &&
                           (strcmp(name, "type") == 0 || strcmp(name, "enum") == 0 || strcmp(name, "const") == 0);
        if (never && !base_json_equal(own, value)) {
            json_decref(all);
            return set;
        }
        if (set) json_object_set_new(all, name, set);
    }
    if (!*conflict) return all;
    json_decref(all);
    return NULL;
}
