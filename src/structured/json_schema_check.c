/* SPDX-License-Identifier: Apache-2.0 */
/* json_schema_check.c: see json_schema_check.h. Owns nothing. A function for each kind of keywords; what is not there
   fits. */
#include "structured/json_schema_check.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/json_number.h"
#include "structured/json_schema.h"
#include "structured/regex.h"

#define MAX_DEPTH 32
#define PATTERN_STEPS 100 /* of compiling one */
#define COMPOUND_STEPS \
    100 /* of comparing arrays or objects, whatever their size: each is as long as the body at most */

#define MISFIT JSON_SCHEMA_MISFIT
#define FITS JSON_SCHEMA_FITS
#define UNKNOWN JSON_SCHEMA_UNKNOWN

typedef json_schema_verdict verdict;

typedef struct checker {
    const json_t *document;
    int depth;
    int *steps; /* left */
} checker;

static verdict check_value(checker *c, const json_t *schema, const json_t *value);

static verdict both(verdict a, verdict b) {
    if (a == MISFIT || b == MISFIT) return MISFIT;
    return a == UNKNOWN || b == UNKNOWN ? UNKNOWN : FITS;
}

static verdict either(verdict a, verdict b) {
    if (a == FITS || b == FITS) return FITS;
    return a == UNKNOWN || b == UNKNOWN ? UNKNOWN : MISFIT;
}

static verdict of(bool fits) { return fits ? FITS : MISFIT; }

/* Takes n steps; false: there are too few. */
static bool spend(checker *c, size_t n) {
    BASE_ASSERT(*c->steps >= 0);
    const bool enough = n <= (size_t)*c->steps;
    *c->steps = enough ? *c->steps - (int)n : 0;
    return enough;
}

static bool spend_comparison(checker *c, const json_t *value) {
    return spend(c, json_is_object(value) || json_is_array(value) ? COMPOUND_STEPS : 1);
}

/* ---- types and values ---- */

static verdict check_type(const char *name, const json_t *value) {
    static const char *const names[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
    size_t i = 0;
    while (i < BASE_ARRAY_LEN(names) && !(name && strcasecmp(names[i], name) == 0)) i++;
    switch (i) {
    case 0: return of(json_is_object(value));
    case 1: return of(json_is_array(value));
    case 2: return of(json_is_string(value));
    case 3: return of(base_json_is_whole(value));
    case 4: return of(json_is_number(value));
    case 5: return of(json_is_boolean(value));
    case 6: return of(json_is_null(value));
    default: return UNKNOWN;
    }
}

static verdict check_types(checker *c, const json_t *schema, const json_t *value) {
    const json_t *types = json_object_get(schema, "type");
    verdict any = json_is_null(value) && json_is_true(json_object_get(schema, "nullable")) ? FITS : MISFIT;
    if (!types || json_is_null(types)) return FITS;
    if (!json_is_array(types)) return either(any, check_type(json_string_value(types), value));
    if (!spend(c, json_array_size(types))) return UNKNOWN;
    for (size_t i = 0; i < json_array_size(types); i++)
        any = either(any, check_type(json_string_value(json_array_get(types, i)), value));
    return any;
}

static verdict check_listed(checker *c, const json_t *schema, const json_t *value) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    bool known = !values;
    for (size_t i = 0; i < json_array_size(values) && !known; i++) {
        if (!spend_comparison(c, value)) return UNKNOWN;
        known = base_json_equal(json_array_get(values, i), value);
    }
    return of(known && (!fixed || base_json_equal(fixed, value)));
}

/* ---- numbers ---- */

/* A bound, or, where `exclusive` is true as it was once, the same without the bound itself. */
static verdict check_bound(const json_t *schema, const char *name, const char *outside, int sign, const json_t *value) {
    BASE_ASSERT(sign == 1 || sign == -1);
    const json_t *in = json_object_get(schema, name), *ex = json_object_get(schema, outside);
    verdict v = FITS;
    if (json_is_number(in)) {
        const int order = sign * base_json_number_compare(value, in);
        v = of(json_is_true(ex) ? order < 0 : order <= 0);
    } else if (in && !json_is_null(in)) v = UNKNOWN;
    return json_is_number(ex) ? both(v, of(sign * base_json_number_compare(value, ex) < 0)) : v;
}

static verdict check_number(const json_t *schema, const json_t *value) {
    BASE_ASSERT(json_is_number(value));
    const json_t *step = json_object_get(schema, "multipleOf");
    const verdict v = both(check_bound(schema, "maximum", "exclusiveMaximum", 1, value),
                           check_bound(schema, "minimum", "exclusiveMinimum", -1, value));
    const double a = json_number_value(step), b = json_number_value(value);
    int64_t whole_a = 0, whole_b = 0;
    if (!step || json_is_null(step)) return v;
    if (!(a > 0) || !isfinite(a) || !isfinite(b)) return both(v, UNKNOWN);
    if (base_json_int64(step, &whole_a) && base_json_int64(value, &whole_b)) return both(v, of(whole_b % whole_a == 0));
    return both(v, of(fabs(remainder(b, a)) <= 1e-9 * a));
}

/* ---- sizes and strings ---- */

/* n against two keywords: sizes. */
static verdict check_size(const json_t *schema, const char *least, const char *most, size_t n) {
    const json_t *min = json_object_get(schema, least), *max = json_object_get(schema, most);
    const bool known = (!min || json_is_number(min)) && (!max || json_is_number(max));
    if (!known) return UNKNOWN;
    return of((!min || (double)n >= json_number_value(min)) && (!max || (double)n <= json_number_value(max)));
}

static verdict check_pattern(checker *c, const char *pattern, const char *text) {
    char why[REGEX_WHY_BYTES];
    if (!spend(c, PATTERN_STEPS + (pattern ? strlen(pattern) : 0) + strlen(text))) return UNKNOWN;
    regex *r = pattern ? regex_parse(pattern, why) : NULL;
    const verdict v = r ? of(regex_matches(r, text)) : UNKNOWN;
    regex_free(r);
    return v;
}

static verdict check_string(checker *c, const json_t *schema, const json_t *value) {
    BASE_ASSERT(json_is_string(value));
    const json_t *pattern = json_object_get(schema, "pattern");
    size_t n = 0;
    for (const char *at = json_string_value(value); *at; at++) n += ((unsigned char)*at & 0xc0) != 0x80;
    const verdict v = check_size(schema, "minLength", "maxLength", n);
    return pattern ? both(v, check_pattern(c, json_string_value(pattern), json_string_value(value))) : v;
}

/* ---- arrays and objects ---- */

static verdict check_array(checker *c, const json_t *schema, const json_t *value) {
    BASE_ASSERT(json_is_array(value));
    const json_t *first = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    const size_t n = json_array_size(value);
    verdict v = check_size(schema, "minItems", "maxItems", n);
    if (json_is_array(items)) first = items, items = json_object_get(schema, "additionalItems");
    for (size_t i = 0; i < n && v != MISFIT; i++) {
        const json_t *of_item = i < json_array_size(first) ? json_array_get(first, i) : items;
        if (of_item) v = both(v, check_value(c, of_item, json_array_get(value, i)));
    }
    for (size_t i = 0; i < n && json_is_true(json_object_get(schema, "uniqueItems")); i++)
        for (size_t k = 0; k < i; k++) {
            if (!spend_comparison(c, json_array_get(value, i))) return UNKNOWN;
            if (base_json_equal(json_array_get(value, i), json_array_get(value, k))) return MISFIT;
        }
    return json_object_get(schema, "contains") ? both(v, UNKNOWN) : v;
}

/* A member by the keywords that speak of its name. */
static verdict check_member(checker *c, const json_t *schema, const char *name, const json_t *value) {
    json_t *patterns = json_object_get(schema, "patternProperties"), *of_pattern;
    const json_t *own = json_object_get(json_object_get(schema, "properties"), name),
                 *others = json_object_get(schema, "additionalProperties");
    const char *pattern;
    verdict v = own ? check_value(c, own, value) : FITS;
    bool known = own;
    json_object_foreach(patterns, pattern, of_pattern) {
        const verdict matches = check_pattern(c, pattern, name);
        if (matches == MISFIT) continue;
        known = true;
        v = both(v, matches == UNKNOWN ? UNKNOWN : check_value(c, of_pattern, value));
    }
    return known || !others ? v : both(v, check_value(c, others, value));
}

static verdict check_required(checker *c, const json_t *names, const json_t *value) {
    if (!spend(c, json_array_size(names))) return UNKNOWN;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name) return UNKNOWN;
        if (!json_object_get(value, name)) return MISFIT;
    }
    return FITS;
}

static verdict check_object(checker *c, const json_t *schema, const json_t *value) {
    BASE_ASSERT(json_is_object(value));
    json_t *dependent = json_object_get(schema, "dependentRequired"), *item;
    const json_t *names = json_object_get(schema, "propertyNames");
    const char *name;
    verdict v = both(check_size(schema, "minProperties", "maxProperties", json_object_size(value)),
                     check_required(c, json_object_get(schema, "required"), value));
    json_object_foreach((json_t *)value, name, item) {
        if (v == MISFIT) break;
        json_t *text = names ? json_string(name) : NULL;
        if (names) v = both(v, text ? check_value(c, names, text) : UNKNOWN);
        json_decref(text);
        v = both(v, check_member(c, schema, name, item));
    }
    json_object_foreach(dependent, name, item) {
        if (!spend(c, 1)) return UNKNOWN;
        if (json_object_get(value, name)) v = both(v, check_required(c, item, value));
    }
    return v;
}

/* ---- combined schemas ---- */

static verdict check_any(checker *c, const json_t *list, const json_t *value) {
    verdict any = json_is_array(list) ? MISFIT : UNKNOWN;
    for (size_t i = 0; i < json_array_size(list) && any != FITS; i++)
        any = either(any, check_value(c, json_array_get(list, i), value));
    return any;
}

static verdict check_if(checker *c, const json_t *schema, const json_t *condition, const json_t *value) {
    const json_t *then = json_object_get(schema, "then"), *otherwise = json_object_get(schema, "else");
    const verdict holds = check_value(c, condition, value), a = then ? check_value(c, then, value) : FITS,
                  b = otherwise ? check_value(c, otherwise, value) : FITS;
    return holds == FITS ? a : holds == MISFIT ? b
                           : a == b            ? a
                                               : UNKNOWN;
}

static verdict check_combined(checker *c, const json_t *schema, const json_t *value) {
    static const char *const unknown[] = {"dependentSchemas", "dependencies", "unevaluatedItems",
                                          "unevaluatedProperties", "$dynamicRef"};
    const json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf"),
                 *not = json_object_get(schema, "not");
    verdict v = FITS;
    if (ref) {
        const json_t *target = json_is_string(ref) ? json_schema_resolve(c->document, json_string_value(ref)) : NULL;
        v = target ? check_value(c, target, value) : UNKNOWN;
    }
    for (size_t i = 0; i < json_array_size(all) && v != MISFIT; i++)
        v = both(v, check_value(c, json_array_get(all, i), value));
    if (json_object_get(schema, "anyOf")) v = both(v, check_any(c, json_object_get(schema, "anyOf"), value));
    if (json_object_get(schema, "oneOf")) v = both(v, check_any(c, json_object_get(schema, "oneOf"), value));
    if (not ) {
        const verdict other = check_value(c, not, value);
        v = both(v, other == UNKNOWN ? UNKNOWN : of(other == MISFIT));
    }
    if (json_object_get(schema, "if")) v = both(v, check_if(c, schema, json_object_get(schema, "if"), value));
    for (size_t i = 0; i < BASE_ARRAY_LEN(unknown); i++)
        if (json_object_get(schema, unknown[i])) v = both(v, UNKNOWN);
    return v;
}

static verdict check_value(checker *c, const json_t *schema, const json_t *value) {
    BASE_ASSERT(c->depth >= 0 && c->depth <= MAX_DEPTH);
    if (json_is_boolean(schema)) return of(json_is_true(schema));
    if (!json_is_object(schema) || c->depth == MAX_DEPTH || !spend(c, 1)) return UNKNOWN;
    c->depth++;
    verdict v = both(check_types(c, schema, value), check_listed(c, schema, value));
    if (v != MISFIT) v = both(v, check_combined(c, schema, value));
    if (v != MISFIT && json_is_number(value)) v = both(v, check_number(schema, value));
    if (v != MISFIT && json_is_string(value)) v = both(v, check_string(c, schema, value));
    if (v != MISFIT && json_is_array(value)) v = both(v, check_array(c, schema, value));
    if (v != MISFIT && json_is_object(value)) v = both(v, check_object(c, schema, value));
    c->depth--;
    return v;
}

json_schema_verdict json_schema_check(const json_t *document, const json_t *schema, const json_t *value, int *steps) {
    checker c = {.document = document, .steps = steps};
    return check_value(&c, schema, value);
}
