/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_never.c: finds schemas that no value fits: such alternatives, properties and items get no rule. It looks
 * at a bounded number of schemas within a schema, and finds none beyond that. Writes no text. */
#include <strings.h>

#include "base/check.h"
#include "structured/json_grammar_internal.h"
#include "structured/json_schema.h"
#include "structured/json_schema_check.h"

#define MAX_NEVER_DEPTH 8

static bool is_never(json_grammar *g, const json_t *schema, int depth);

static bool all_never(json_grammar *g, const json_t *list, int depth) {
    bool never = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list) && never; i++) never = is_never(g, json_array_get(list, i), depth);
    return never;
}

/* Does one of these exclude all values, or one what another demands? */
static bool any_never(json_grammar *g, const json_t *list, int depth) {
    const char *conflict = NULL;
    json_t *all = json_object();
    bool never = false;
    for (size_t i = 0; i < json_array_size(list) && all && !never; i++) {
        const json_t *one = json_array_get(list, i);
        never = is_never(g, one, depth);
        json_t *both = !never && json_is_object(one) ? json_schema_merge(all, one, &conflict) : NULL;
        if (json_is_false(both)) never = true;
        if (!json_is_object(both)) continue;
        json_decref(all);
        all = both;
    }
    json_decref(all);
    return never;
}

static bool needs_never(json_grammar *g, const json_t *schema, int depth) {
    const json_t *required = json_object_get(schema, "required"), *properties = json_object_get(schema, "properties");
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (json_object_get(schema, "type") && !(type && strcasecmp(type, "object") == 0)) return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        const json_t *one = name ? json_object_get(properties, name) : NULL;
        if (one && is_never(g, one, depth)) return true;
    }
    return false;
}

static bool lists_never(json_grammar *g, const json_t *schema) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    if (fixed) return json_schema_check(g->document, schema, fixed, &g->check_steps) == JSON_SCHEMA_MISFIT;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_schema_check(g->document, schema, json_array_get(values, i), &g->check_steps) != JSON_SCHEMA_MISFIT)
            return false;
    return json_array_size(values) > 0;
}

/* Is it known that no value fits? depth: of schemas around it. */
static bool is_never(json_grammar *g, const json_t *schema, int depth) {
    BASE_ASSERT(depth >= 0 && depth <= MAX_NEVER_DEPTH);
    const json_t *ref = json_object_get(schema, "$ref"), *not = json_object_get(schema, "not");
    if (json_is_false(schema)) return true;
    if (!json_is_object(schema) || depth == MAX_NEVER_DEPTH || g->n_never == JSON_GRAMMAR_VISITS) return false;
    g->n_never++;
    if (json_is_true(not ) || (json_is_object(not ) && json_object_size(not ) == 0)) return true;
    if (json_is_string(ref) && is_never(g, json_schema_resolve(g->document, json_string_value(ref)), depth + 1))
        return true;
    return lists_never(g, schema) || any_never(g, json_object_get(schema, "allOf"), depth + 1) ||
           all_never(g, json_object_get(schema, "anyOf"), depth + 1) ||
           all_never(g, json_object_get(schema, "oneOf"), depth + 1) || needs_never(g, schema, depth + 1);
}

bool json_grammar_is_never(json_grammar *g, const json_t *schema) { return is_never(g, schema, 0); }
