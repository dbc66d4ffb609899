/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_arrays.c: see json_grammar_internal.h: items, their number, unique ones, contained ones. Owns
   nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_number.h"
#include "structured/json_grammar_internal.h"
#include "structured/json_schema.h"

#define MAX_UNIQUE 8     /* values of unique items: there is a rule for each set of them */
#define MAX_CONTAINED 16 /* minContains */

/* Items after n others, at least `min` and at most `max` (max JSON_GRAMMAR_NONE: any number) in all. */
static void put_items(json_grammar *g, const json_t *items, int n, int min, int max, base_buffer *out) {
    BASE_ASSERT(n >= 0 && min >= 0);
    base_buffer e = json_grammar_expression();
    int rule = json_grammar_new_rule(g);
    size_t before = json_grammar_go_to(g, "items");
    if (items) json_grammar_visit_inside(g, items, &e);
    else json_grammar_put(g, &e, " value");
    json_grammar_go_back(g, before);
    json_grammar_end_rule(g, rule, &e);
    if (n == 0 && min == 0) json_grammar_put(g, out, " (");
    if (n == 0) json_grammar_put_rule(g, out, rule);
    int used = n == 0 ? 1 : n;
    json_grammar_put(g, out, " (\",\" sp");
    json_grammar_put_rule(g, out, rule);
    json_grammar_put(g, out, ")");
    json_grammar_put_times(g, out, min > used ? min - used : 0,
                           max == JSON_GRAMMAR_NONE ? JSON_GRAMMAR_NONE : max - used);
    if (n == 0 && min == 0) json_grammar_put(g, out, ")?");
}

/* ---- unique items ---- */

/* The values of items that are one of a few, without twins; the caller's. NULL: they are not. */
static json_t *json_grammar_values_of(const json_grammar *g, const json_t *items) {
    const json_t *ref = json_object_get(items, "$ref");
    if (json_is_string(ref) && !json_schema_constrains(items, "$ref"))
        items = json_schema_resolve(g->document, json_string_value(ref));
    const json_t *values = json_object_get(items, "enum"), *fixed = json_object_get(items, "const");
    const char *type = json_string_value(json_object_get(items, "type"));
    if (fixed && !json_schema_constrains(items, "const")) return json_pack("[O]", fixed);
    if (type && strcmp(type, "boolean") == 0 && !json_schema_constrains(items, "type"))
        return json_pack("[b, b]", 1, 0);
    json_t *rest = json_is_array(values) ? json_copy((json_t *)items) : NULL;
    bool strings = type && strcmp(type, "string") == 0, all = true, more;
    for (size_t i = 0; i < json_array_size(values); i++) all &= json_is_string(json_array_get(values, i));
    if (rest && strings && all) json_object_del(rest, "type");
    more = !rest || json_schema_constrains(rest, "enum");
    json_decref(rest);
    if (more) return NULL;
    json_t *distinct = json_array();
    for (size_t i = 0; i < json_array_size(values) && json_array_size(distinct) <= MAX_UNIQUE;
         i++) { /* more are too many */
        json_t *one = json_array_get(values, i);
        bool known = false;
        for (size_t k = 0; k < json_array_size(distinct) && !known; k++)
            known = base_json_equal(one, json_array_get(distinct, k));
        if (!known) json_array_append(distinct, one);
    }
    return distinct;
}

/* A rule for each set of values that was used: what may follow. */
static void put_unique(json_grammar *g, const json_t *values, int min, int max, base_buffer *out) {
    int rules[1 << MAX_UNIQUE];
    const int n = (int)json_array_size(values), n_sets = 1 << n;
    BASE_ASSERT(n <= MAX_UNIQUE);
    for (int set = 0; set < n_sets; set++) rules[set] = json_grammar_new_rule(g);
    for (int set = 0; set < n_sets && !json_grammar_failed(g); set++) {
        base_buffer e = json_grammar_expression();
        int used = 0;
        for (int i = 0; i < n; i++) used += set >> i & 1;
        const char *between = "";
        if (used >= min) json_grammar_put(g, &e, " \"\""), between = " |";
        for (int i = 0; i < n && (max == JSON_GRAMMAR_NONE || used < max); i++) {
            if (set >> i & 1) continue;
            json_grammar_put(g, &e, between);
            if (used > 0) json_grammar_put(g, &e, " \",\" sp");
            json_grammar_put_json(g, &e, json_array_get(values, (size_t)i));
            json_grammar_put_rule(g, &e, rules[set | 1 << i]);
            between = " |";
        }
        json_grammar_end_rule(g, rules[set], &e); /* sets of more than max values are not reached */
    }
    json_grammar_put_rule(g, out, rules[0]);
}

/* Are the items those of put_unique, which has written them? */
static bool json_grammar_unique_items(json_grammar *g, const json_t *schema, const json_t *items, int n_first, int min,
                                      int max, base_buffer *out) {
    if (!json_is_true(json_object_get(schema, "uniqueItems")) || (max != JSON_GRAMMAR_NONE && max <= 1)) return false;
    json_t *values = n_first == 0 && items ? json_grammar_values_of(g, items) : NULL;
    const bool few = values && json_array_size(values) <= MAX_UNIQUE;
    if (!few)
        json_grammar_unsupported(
            g, "uniqueItems",
            "its items must be one of at most " JSON_GRAMMAR_TEXT(MAX_UNIQUE) " values (enum, const or boolean)", NULL);
    else if (min > (int)json_array_size(values))
        json_grammar_wrong(g, "minItems", "at most the number of different items");
    else put_unique(g, values, min, max, out);
    json_decref(values);
    return few;
}

/* ---- contains ---- */

/* (item ",")* contained (("," item)* "," contained){n-1} ("," item)* */
static void put_contained(json_grammar *g, const json_t *items, const json_t *contained, int n, base_buffer *out) {
    BASE_ASSERT(n >= 1 && n <= MAX_CONTAINED);
    const int any = json_grammar_new_rule(g), one = json_grammar_new_rule(g);
    base_buffer of_any = json_grammar_expression(), of_one = json_grammar_expression();
    size_t before = json_grammar_go_to(g, "contains");
    const json_t *both = items ? json_grammar_own(g, json_pack("{s:[O, O]}", "allOf", items, contained)) : contained;
    if (items) json_grammar_visit_inside(g, items, &of_any);
    else json_grammar_put(g, &of_any, " value");
    if (both) json_grammar_visit_inside(g, both, &of_one);
    json_grammar_go_back(g, before);
    json_grammar_end_rule(g, any, &of_any);
    json_grammar_end_rule(g, one, &of_one);
    if (!json_grammar_failed(g))
        json_grammar_check(
            g, base_buffer_printf(out, " (r%d \",\" sp)* r%d ((\",\" sp r%d)* \",\" sp r%d){%d,%d} (\",\" sp r%d)*",
                                  any, one, any, one, n - 1, n - 1, any));
}

/* Has put_contained written the items? */
static bool json_grammar_contained_items(json_grammar *g, const json_t *schema, const json_t *items, int n_first,
                                         int min, int max, base_buffer *out) {
    const json_t *contained = json_object_get(schema, "contains");
    const int n = json_grammar_size_of(g, schema, "minContains", 1);
    if (!contained || json_grammar_failed(g)) return false;
    if (json_object_get(schema, "maxContains")) json_grammar_unsupported(g, "maxContains", "leave it out", NULL);
    if (n == 0) return false;
    const bool simple = n_first == 0 && min <= n && max == JSON_GRAMMAR_NONE && n <= MAX_CONTAINED &&
                        !json_is_true(json_object_get(schema, "uniqueItems"));
    if (simple) put_contained(g, items, contained, n, out);
    else
        json_grammar_unsupported(
            g, "contains",
            "it cannot be combined with prefixItems, uniqueItems, maxItems, or a minItems above minContains", NULL);
    return simple;
}

/* ---- arrays ---- */

void json_grammar_put_array(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *first = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    int min = json_grammar_size_of(g, schema, "minItems", 0),
        max = json_grammar_size_of(g, schema, "maxItems", JSON_GRAMMAR_NONE);
    if (json_is_array(items)) { /* as it was written before prefixItems */
        first = items;
        items = json_object_get(schema, "additionalItems");
    }
    if (first && !json_is_array(first)) json_grammar_wrong(g, "prefixItems", "an array of schemas");
    int n = (int)json_array_size(first);
    const bool never = items && json_grammar_is_never(g, items);
    bool more = first ? items && !never : !never;
    for (int i = 0; i < n; i++)
        if (json_grammar_is_never(g, json_array_get(first, (size_t)i)))
            n = i, more = false; /* the array ends before it */
    if (max != JSON_GRAMMAR_NONE && n > max) n = max;
    if ((max != JSON_GRAMMAR_NONE && max < min) || (!more && n < min))
        json_grammar_wrong(g, "minItems", "a representable number");
    if (!more && n > 1 && json_is_true(json_object_get(schema, "uniqueItems")))
        json_grammar_unsupported(g, "uniqueItems", "leave it out beside prefixItems", NULL);
    if (!more && json_object_get(schema, "contains"))
        json_grammar_unsupported(g, "contains", "leave it out beside prefixItems", NULL);
    json_grammar_put(g, out, " \"[\"");
    if (more && (json_grammar_contained_items(g, schema, items, n, min, max, out) ||
                 json_grammar_unique_items(g, schema, items, n, min, max, out))) {
        json_grammar_put(g, out, " \"]\"");
        return;
    }
    for (int i = 0; i < n && !json_grammar_failed(g); i++) {
        size_t before = json_grammar_go_to_index(g, "prefixItems", (size_t)i);
        if (i > 0) json_grammar_put(g, out, " \",\" sp");
        json_grammar_visit_inside(g, json_array_get(first, (size_t)i), out);
        json_grammar_go_back(g, before);
    }
    if (more && (max == JSON_GRAMMAR_NONE || max > n) && !json_grammar_failed(g)) put_items(g, items, n, min, max, out);
    json_grammar_put(g, out, " \"]\"");
}
