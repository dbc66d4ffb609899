/* SPDX-License-Identifier: Apache-2.0 */
/* json_conditions.c: see json_conditions.h. Owns nothing. */
#include "structured/json_conditions.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/json_number.h"
#include "structured/json_schema.h"

#define MAX_DEPENDENT 6 /* dependentRequired: each doubles the alternatives */

bool json_conditions_are_in(const json_t *schema) {
    return json_object_get(schema, "if") || json_object_get(schema, "not") ||
           json_object_get(schema, "dependentRequired");
}

/* ---- values, names ---- */

static bool json_conditions_has(const json_t *list, const json_t *value) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (base_json_equal(json_array_get(list, i), value)) return true;
    return false;
}

static bool has_name(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_string(json_array_get(list, i)) && strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return true;
    return false;
}

static json_t *json_conditions_values(const json_t *schema);

/* The values that all schemas of a list have, as far as one has such a list; the caller's. NULL: none has. */
static json_t *common_values(const json_t *list) {
    json_t *common = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *values = json_conditions_values(json_array_get(list, i)), *both = common ? json_array() : NULL;
        for (size_t k = 0; k < json_array_size(values) && common; k++)
            if (json_conditions_has(common, json_array_get(values, k)))
                json_array_append(both, json_array_get(values, k));
        if (values && common) {
            json_decref(common);
            common = json_incref(both);
        } else if (values) common = json_incref(values);
        json_decref(values);
        json_decref(both);
    }
    return common;
}

/* The values of an enum, a const or a boolean, also in an allOf; the caller's. NULL: it has others. */
static json_t *json_conditions_values(const json_t *schema) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (fixed) return json_pack("[O]", fixed);
    if (json_is_array(values)) return json_incref((json_t *)values);
    if (json_is_array(json_object_get(schema, "allOf"))) return common_values(json_object_get(schema, "allOf"));
    return type && strcmp(type, "boolean") == 0 ? json_pack("[b, b]", 1, 0) : NULL;
}

/* Has the schema no keyword that constrains but these? names: up to four; NULL ends them. */
static bool has_only(const json_t *schema, const char *const *names) {
    json_t *rest = json_is_object(schema) ? json_copy((json_t *)schema) : NULL;
    for (; rest && *names; names++) json_object_del(rest, *names);
    const bool only = rest && !json_schema_constrains(rest, NULL);
    json_decref(rest);
    return only;
}

/* Can an object have no properties but the listed ones? */
static bool is_closed(const json_t *schema) {
    const json_t *others = json_object_get(schema, "additionalProperties");
    return (!others || json_is_false(others)) && json_object_get(schema, "properties") &&
           !json_object_get(schema, "patternProperties");
}

/* A copy in which one level of a member is a copy as well, to be changed. */
static json_t *copy_with(const json_t *schema, const char *name) {
    json_t *copy = json_copy((json_t *)schema);
    const json_t *member = json_object_get(schema, name);
    if (copy && member) json_object_set_new(copy, name, json_copy((json_t *)member));
    return copy;
}

static json_t *without_member(const json_t *schema, const char *name) {
    json_t *copy = json_copy((json_t *)schema);
    if (copy) json_object_del(copy, name);
    return copy;
}

static json_t *without_property(const json_t *schema, const char *name) {
    json_t *copy = copy_with(schema, "properties");
    if (copy) json_object_del(json_object_get(copy, "properties"), name);
    return copy;
}

/* Also requires these names. */
static json_t *with_required(const json_t *schema, const char *name, const json_t *more) {
    json_t *copy = copy_with(schema, "required");
    if (copy && !json_is_array(json_object_get(copy, "required"))) json_object_set_new(copy, "required", json_array());
    json_t *list = json_object_get(copy, "required");
    if (list && !has_name(list, name)) json_array_append_new(list, json_string(name));
    for (size_t i = 0; i < json_array_size(more) && list; i++) {
        const char *one = json_string_value(json_array_get(more, i));
        if (one && !has_name(list, one)) json_array_append_new(list, json_string(one));
    }
    return copy;
}

/* ---- dependentRequired ---- */

static json_t *resolve_dependent(const json_t *schema, const char **why) {
    json_t *all = json_object_get(schema, "dependentRequired"), *rest, *result = NULL;
    if (!json_is_object(all) || json_object_size(all) > MAX_DEPENDENT)
        return *why = "give an object with at most 6 names", NULL;
    void *first = json_object_iter(all);
    if (!first) return without_member(schema, "dependentRequired");
    const char *name = json_object_iter_key(first);
    const json_t *needed = json_object_iter_value(first);
    if (!is_closed(schema)) return *why = "it needs properties, and no additionalProperties", NULL;
    rest = copy_with(schema, "dependentRequired");
    json_object_del(json_object_get(rest, "dependentRequired"), name);
    json_t *with = rest ? with_required(rest, name, needed) : NULL,
           *without = rest ? without_property(rest, name) : NULL;
    if (!json_object_get(json_object_get(schema, "properties"), name)) result = json_incref(rest);
    else if (has_name(json_object_get(schema, "required"), name)) result = json_incref(with);
    else result = json_pack("{s:[O, O]}", "anyOf", without, with);
    json_decref(with);
    json_decref(without);
    json_decref(rest);
    return result;
}

/* ---- not ---- */

/* The types of a schema, or all of them, but some. */
static json_t *other_types(const json_t *schema, const json_t * not, const char **why) {
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    json_t *types = json_object_get(schema, "type"), *left = json_array();
    const bool one = json_is_string(not ), any = !types;
    for (size_t i = 0; i < (any ? BASE_ARRAY_LEN(all) : json_is_array(types) ? json_array_size(types)
                                                                             : 1);
         i++) {
        const char *type = any ? all[i] : json_string_value(json_is_array(types) ? json_array_get(types, i) : types);
        const bool is_number = type && strcmp(type, "number") == 0, is_integer = type && strcmp(type, "integer") == 0;
        if (!type) continue;
        if (is_number && (one ? strcmp(json_string_value(not ), "integer") == 0 : has_name(not, "integer")))
            *why = "numbers that are no integers";
        if (one ? strcmp(type, json_string_value(not )) == 0 : has_name(not, type)) continue;
        if (is_integer && (one ? strcmp("number", json_string_value(not )) == 0 : has_name(not, "number"))) continue;
        json_array_append_new(left, json_string(type));
    }
    if (json_array_size(left) == 0 && !*why) *why = "it leaves no type";
    return left;
}

static json_t *other_values(const json_t *schema, const json_t * not, const char **why) {
    json_t *values = json_conditions_values(schema), *refused = json_conditions_values(not ), *left = json_array();
    if (!values) *why = "the schema beside it must have enum, const or type boolean";
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_conditions_has(refused, json_array_get(values, i)))
            json_array_append(left, json_array_get(values, i));
    if (values && json_array_size(left) == 0) *why = "it leaves no value";
    json_decref(values);
    json_decref(refused);
    return left;
}

static json_t *resolve_not(const json_t *schema, const char **why) {
    static const char *const of_type[] = {"type", NULL}, *const of_values[] = {"enum", "const", "type", NULL},
                             *const of_names[] = {"required", NULL};
    const json_t *not = json_object_get(schema, "not"), *names = json_object_get(not, "required"),
                 *type = json_object_get(not, "type");
    json_t *rest = without_member(schema, "not"), *left = NULL, *result = NULL;
    if (json_is_false(not )) return rest;
    if (!json_is_object(not ) || !json_schema_constrains(not, NULL)) *why = "nothing would be allowed";
    else if (names && has_only(not, of_names) && json_array_size(names) == 1 &&
             json_is_string(json_array_get(names, 0))) {
        const char *name = json_string_value(json_array_get(names, 0));
        if (!is_closed(rest)) *why = "it needs properties, and no additionalProperties";
        else if (has_name(json_object_get(rest, "required"), name)) *why = "the name is required";
        else result = without_property(rest, name);
    } else if ((json_object_get(not, "enum") || json_object_get(not, "const")) && has_only(not, of_values)) {
        left = other_values(rest, not, why);
        json_object_del(rest, "const");
        if (!*why && json_object_set(rest, "enum", left) == 0) result = json_incref(rest);
    } else if ((json_is_string(type) || json_is_array(type)) && has_only(not, of_type)) {
        left = other_types(rest, type, why);
        if (!*why && json_object_set(rest, "type", left) == 0) result = json_incref(rest);
    } else *why = "give enum or const beside an enum, type, or required with one name";
    json_decref(left);
    json_decref(rest);
    return result;
}

/* ---- if ---- */

/* The one property that a condition is about; its values in *values (the caller's). NULL: it is another condition. */
static const char *condition_of(const json_t *condition, json_t **values, bool *requires) {
    static const char *const known[] = {"properties", "required", "type", NULL}, *const of_property[] = {
                                                                                     "const", "enum", "type", NULL};
    json_t *properties = json_object_get(condition, "properties");
    const json_t *required = json_object_get(condition, "required");
    void *first = json_object_size(properties) == 1 ? json_object_iter(properties) : NULL;
    *values = NULL;
    if (!first || !has_only(condition, known) || json_array_size(required) > 1) return NULL;
    const char *name = json_object_iter_key(first);
    const json_t *of = json_object_iter_value(first);
    *requires = json_array_size(required) == 1;
    if ((*requires && !has_name(required, name)) || !has_only(of, of_property) ||
        (!json_object_get(of, "const") && !json_object_get(of, "enum")))
        return NULL;
    *values = json_conditions_values(of);
    return name;
}

/* The schema where the property is one of the values (or missing, if it may be), and `then` holds (NULL: nothing
   more). */
static json_t *branch_of(const json_t *schema, const char *name, const json_t *values, bool requires,
                         const json_t *then) {
    json_t *only = json_pack("{s:{s:{s:O}}}", "properties", name, "enum", values), *list;
    if (only && requires) json_object_set_new(only, "required", json_pack("[s]", name));
    list = json_pack("[O, O]", schema, only);
    if (list && then && !json_is_true(then)) json_array_append(list, (json_t *)then);
    json_decref(only);
    return json_pack("{s:o}", "allOf", list);
}

static json_t *resolve_if(const json_t *schema, const char **why) {
    const json_t *then = json_object_get(schema, "then"), *otherwise = json_object_get(schema, "else");
    json_t *rest = without_member(schema, "if"), *values = NULL, *own = NULL, *in = json_array(), *out = json_array(),
           *list = json_array();
    bool requires = false;
    const char *name = condition_of(json_object_get(schema, "if"), &values, &requires);
    const json_t *property = name ? json_object_get(json_object_get(schema, "properties"), name) : NULL;
    json_object_del(rest, "then");
    json_object_del(rest, "else");
    own = json_conditions_values(property);
    for (size_t i = 0; i < json_array_size(own); i++) {
        json_t *one = json_array_get(own, i);
        json_array_append(json_conditions_has(values, one) ? in : out, one);
    }
    const bool must = name && has_name(json_object_get(schema, "required"), name);
    if (!name) *why = "its condition must be {\"properties\": {\"name\": {\"const\": ...}}}, of one property";
    else if (!own) *why = "the property of its condition must have enum, const or type boolean";
    else {
        if (json_array_size(in) > 0 && !json_is_false(then))
            json_array_append_new(list, branch_of(rest, name, in, requires, then));
        if (json_array_size(out) > 0 && !json_is_false(otherwise))
            json_array_append_new(list, branch_of(rest, name, out, !requires, otherwise));
        const json_t *of_none = requires ? otherwise : then; /* without the property, if no branch above has that */
        const bool is_left = json_array_size(requires ? out : in) == 0;
        if (is_left && !must && !json_is_false(of_none)) {
            json_t *none = without_property(rest, name), *both = json_pack("[o]", none);
            if (both && of_none && !json_is_true(of_none)) json_array_append(both, (json_t *)of_none);
            json_array_append_new(list, json_pack("{s:o}", "allOf", both));
        }
        if (json_array_size(list) == 0) *why = "nothing would be allowed";
    }
    json_t *result = *why ? NULL : json_pack("{s:O}", "anyOf", list);
    json_decref(rest);
    json_decref(values);
    json_decref(own);
    json_decref(in);
    json_decref(out);
    json_decref(list);
    return result;
}

json_t *json_conditions_resolve(const json_t *schema, const char **keyword, const char **why) {
    BASE_ASSERT(json_conditions_are_in(schema));
    *why = NULL;
    *keyword = json_object_get(schema, "not") ? "not" : json_object_get(schema, "if") ? "if"
                                                                                      : "dependentRequired";
    json_t *result = json_object_get(schema, "not")  ? resolve_not(schema, why)
                     : json_object_get(schema, "if") ? resolve_if(schema, why)
                                                     : resolve_dependent(schema, why);
    BASE_ASSERT(!*why || !result);
    if (!*why) *keyword = NULL;
    return result;
}
