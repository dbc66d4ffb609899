/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar.c: see json_grammar.h.
 *
 *   add --> rule_of (a rule for a schema) --> visit (a schema to an expression) --> object, array, string, ... -->
 *   visit ...
 *
 * An expression is text in a buffer of its visitor's; whole rules go to the grammar's text. A target of $ref gets a
 * rule once, and its name where it is used again, so that schemas may contain themselves. One that is itself before
 * anything was written would be a rule without end: `edges` are the uses of targets by targets with nothing written in
 * between, and a cycle of them is refused.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/memory.h"
#include "structured/json_conditions.h"
#include "structured/json_grammar_internal.h"
#include "structured/json_schema.h"
#include "structured/json_schema_check.h"

#define NONE JSON_GRAMMAR_NONE

static void json_grammar_visit(json_grammar *g, const json_t *schema, base_buffer *out);

/* ---- types ---- */

static const char *const types[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
enum {
    OBJECT,
    ARRAY,
    STRING,
    INTEGER,
    NUMBER,
    BOOLEAN,
    NULL_TYPE,
    N_TYPES,
};

_Static_assert(BASE_ARRAY_LEN(types) == N_TYPES, "a name for each type");

/* Names may be upper-case, as Gemini's are. NONE: unknown. */
static int json_grammar_type_of(const char *name) {
    for (int i = 0; i < N_TYPES && name; i++)
        if (strcasecmp(types[i], name) == 0) return i;
    return NONE;
}

static void put_type(json_grammar *g, const json_t *schema, int type, base_buffer *out) {
    BASE_ASSERT(type >= NONE && type < N_TYPES);
    switch (type) {
    case OBJECT: json_grammar_put_object(g, schema, out); break;
    case ARRAY: json_grammar_put_array(g, schema, out); break;
    case STRING: json_grammar_put_string(g, schema, out); break;
    case INTEGER: json_grammar_put_number(g, schema, true, out); break;
    case NUMBER: json_grammar_put_number(g, schema, false, out); break;
    case BOOLEAN: json_grammar_put(g, out, " boolean"); break;
    case NULL_TYPE: json_grammar_put(g, out, " \"null\""); break;
    default: json_grammar_put(g, out, " value");
    }
}

/* The type that names speak of, where none is given; NONE: any. */
static int guessed_type(const json_t *schema) {
    static const struct {
        const char *name;
        int type;
    } signs[] = {
        {"properties", OBJECT},
        {"required", OBJECT},
        {"additionalProperties", OBJECT},
        {"items", ARRAY},
        {"prefixItems", ARRAY},
        {"minItems", ARRAY},
        {"maxItems", ARRAY},
        {"minLength", STRING},
        {"maxLength", STRING},
        {"pattern", STRING},
        {"patternProperties", OBJECT},
        {"propertyNames", OBJECT},
        {"minProperties", OBJECT},
        {"maxProperties", OBJECT},
        {"uniqueItems", ARRAY},
        {"contains", ARRAY},
        {"multipleOf", NUMBER},
        {"minimum", NUMBER},
        {"maximum", NUMBER},
        {"exclusiveMinimum", NUMBER},
        {"exclusiveMaximum", NUMBER},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(signs); i++)
        if (json_object_get(schema, signs[i].name)) return signs[i].type;
    return NONE;
}

/* The types that a schema names, as bits; 0: it names none. */
static unsigned types_of(json_grammar *g, const json_t *schema) {
    const json_t *named = json_object_get(schema, "type");
    unsigned found = 0;
    if (!named || json_is_null(named)) return 0;
    for (size_t i = 0; i < (json_is_array(named) ? json_array_size(named) : 1); i++) {
        int type = json_grammar_type_of(json_string_value(json_is_array(named) ? json_array_get(named, i) : named));
        if (type == NONE)
            json_grammar_wrong(g, "type",
                               "object, array, string, integer, number, boolean or null, or an array of them");
        else found |= 1u << type;
    }
    if (!found) json_grammar_wrong(g, "type", "at least one type");
    if (found && json_is_true(json_object_get(schema, "nullable"))) found |= 1u << NULL_TYPE;
    return found;
}

static void put_types(json_grammar *g, const json_t *schema, base_buffer *out) {
    unsigned found = types_of(g, schema);
    const char *between = "";
    if (!found) {
        put_type(g, schema, guessed_type(schema), out);
        return;
    }
    if (found & 1u << NUMBER) found &= ~(1u << INTEGER);
    json_grammar_put(g, out, " (");
    for (int i = 0; i < N_TYPES && !json_grammar_failed(g); i++) {
        if (!(found & 1u << i)) continue;
        json_grammar_put(g, out, between);
        put_type(g, schema, i, out);
        between = " |";
    }
    json_grammar_put(g, out, ")");
}

/* ---- one of several ---- */

/* The values of const or enum that the keywords beside them allow. */
static void put_values(json_grammar *g, const json_t *schema, base_buffer *out) {
    json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum"),
           *rest = json_copy((json_t *)schema);
    const char *name = fixed ? "const" : "enum";
    const size_t n = fixed ? 1 : json_array_size(values);
    size_t used = 0;
    bool unknown = false;
    if (!fixed && n == 0) json_grammar_wrong(g, name, "an array of values");
    if (!rest) structured_fail_memory(g->error);
    json_object_del(rest, name);
    json_grammar_put(g, out, " (");
    for (size_t i = 0; i < n && !json_grammar_failed(g); i++) {
        const json_t *value = fixed ? fixed : json_array_get(values, i);
        const json_schema_verdict verdict = json_schema_constrains(rest, NULL)
                                                ? json_schema_check(g->document, rest, value, &g->check_steps)
                                                : JSON_SCHEMA_FITS;
        if (verdict == JSON_SCHEMA_MISFIT) continue;
        unknown |= verdict == JSON_SCHEMA_UNKNOWN;
        if (used++ > 0) json_grammar_put(g, out, " |");
        json_grammar_put_json(g, out, value);
    }
    if (unknown) json_grammar_unsupported(g, name, "a keyword beside it cannot be checked: leave it out", NULL);
    if (used == 0)
        json_grammar_wrong(
            g, name, fixed ? "a value that the keywords beside it allow" : "values that the keywords beside it allow");
    json_grammar_put(g, out, ")");
    json_decref(rest);
}

/* A copy without one name, which the grammar keeps. */
static const json_t *json_grammar_without(json_grammar *g, const json_t *schema, const char *name) {
    json_t *rest = json_copy((json_t *)schema);
    json_object_del(rest, name);
    return json_grammar_own(g, rest);
}

/* The two as one schema, which the grammar keeps. Where it need not be strict, without keywords that cannot be
   combined. NULL: a problem. */
static const json_t *json_grammar_merged(json_grammar *g, const json_t *a, const json_t *b, const char *name) {
    char why[96];
    if (json_is_true(a) || json_is_false(b)) return b;
    if (json_is_true(b) || json_is_false(a)) return a;
    if (!json_is_object(a) || !json_is_object(b)) json_grammar_wrong(g, name, "schemas");
    while (!json_grammar_failed(g)) {
        const char *conflict = NULL;
        json_t *both = json_schema_merge(a, b, &conflict);
        if (both || !conflict) return json_grammar_own(g, both);
        snprintf(why, sizeof(why), "two of '%.40s' cannot be combined", conflict);
        json_grammar_unsupported(g, name, why, NULL);
        if (json_grammar_failed(g)) break;
        if (strcmp(conflict, "additionalProperties") == 0) a = json_grammar_without(g, a, "additionalProperties");
        b = json_grammar_without(g, b, conflict);
    }
    return NULL;
}

/* Each alternative, merged with the keywords beside it. */
static void put_any_of(json_grammar *g, const json_t *schema, const char *name, base_buffer *out) {
    const json_t *list = json_object_get(schema, name), *rest = NULL;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > JSON_GRAMMAR_NAMES) json_grammar_wrong(g, name, "an array of schemas");
    if (json_schema_constrains(schema, name)) rest = json_grammar_without(g, schema, name);
    size_t used = 0;
    json_grammar_put(g, out, " (");
    for (size_t i = 0; i < n && !json_grammar_failed(g); i++) {
        const json_t *one = json_array_get(list, i);
        size_t before = json_grammar_go_to_index(g, name, i);
        if (rest && !json_grammar_is_never(g, one)) one = json_grammar_merged(g, rest, one, NULL);
        const bool never = one && json_grammar_is_never(g, one);
        if (one && !never && used++ > 0) json_grammar_put(g, out, " |");
        if (one && !never) json_grammar_visit(g, one, out);
        json_grammar_go_back(g, before);
    }
    if (used == 0) json_grammar_wrong(g, name, "an alternative that allows a value");
    json_grammar_put(g, out, ")");
}

/* ---- references ---- */

static const json_t *json_grammar_resolve(json_grammar *g, const json_t *ref, base_buffer *out) {
    const char *text = json_string_value(ref);
    const json_t *found = text ? json_schema_resolve(g->document, text) : NULL;
    if (!text) json_grammar_wrong(g, "$ref", "a string");
    else if (!found) json_grammar_unsupported(g, "$ref", "its target is not in this schema", out);
    return found;
}

static int new_target(json_grammar *g, const json_t *schema) {
    BASE_ASSERT(g->n_targets <= JSON_GRAMMAR_REFS);
    if (g->n_targets == JSON_GRAMMAR_REFS) {
        json_grammar_too_large(g, "it has more than " JSON_GRAMMAR_TEXT(JSON_GRAMMAR_REFS) " targets of $ref");
        return NONE;
    }
    g->targets[g->n_targets] = (ref_target){schema, json_grammar_new_rule(g)};
    return g->n_targets++;
}

static void put_target(json_grammar *g, const json_t *schema, base_buffer *out) {
    int i = 0;
    while (i < g->n_targets && g->targets[i].schema != schema) i++;
    bool is_new = i == g->n_targets;
    if (is_new) i = new_target(g, schema);
    if (json_grammar_failed(g)) return;
    BASE_ASSERT(i >= 0 && i < g->n_targets && g->target < g->n_targets);
    if (g->target != JSON_GRAMMAR_NO_TARGET && g->n_edges == JSON_GRAMMAR_EDGES)
        json_grammar_too_large(g, "it has more than " JSON_GRAMMAR_TEXT(JSON_GRAMMAR_EDGES) " uses of $ref");
    else if (g->target != JSON_GRAMMAR_NO_TARGET) g->edges[g->n_edges++] = (ref_edge){g->target, i};
    json_grammar_put_rule(g, out, g->targets[i].rule);
    if (!is_new) return;
    base_buffer e = json_grammar_expression();
    int target = g->target;
    g->target = i;
    json_grammar_visit(g, schema, &e);
    g->target = target;
    json_grammar_end_rule(g, g->targets[i].rule, &e);
}

static void put_ref(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *target = json_grammar_resolve(g, json_object_get(schema, "$ref"), out);
    if (!target) return;
    if (!json_schema_constrains(schema, "$ref")) {
        put_target(g, target, out);
        return;
    }
    const json_t *rest = json_grammar_without(g, schema, "$ref"),
                 *both = rest ? json_grammar_merged(g, target, rest, "$ref") : NULL;
    if (both) json_grammar_visit(g, both, out);
}

static bool is_conditional(const json_t *schema) { return json_is_object(schema) && json_object_get(schema, "if"); }

/* Are all subschemas conditional ones? */
static bool all_of_is_conditional(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is_conditional(json_array_get(list, i))) return false;
    return true;
}

/* Adds conditional subschemas: one as the schema's own, the others as its allOf. */
static const json_t *add_conditional(json_grammar *g, const json_t *all, json_t *list) {
    const json_t *both = all;
    if (!is_conditional(all) && json_array_size(list) > 0) {
        both = json_grammar_merged(g, all, json_array_get(list, 0), "allOf");
        json_array_remove(list, 0);
    }
    if (!both || json_array_size(list) == 0) return both;
    json_t *copy = json_copy((json_t *)both);
    if (copy && json_object_set(copy, "allOf", list)) structured_fail_memory(g->error);
    return json_grammar_own(g, copy);
}

/* All subschemas and the keywords beside them, as one schema. */
static void put_all_of(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *list = json_object_get(schema, "allOf"), *all = json_grammar_without(g, schema, "allOf");
    json_t *conditional = json_array();
    if (!json_is_array(list)) json_grammar_wrong(g, "allOf", "an array of schemas");
    for (size_t i = 0; i < json_array_size(list) && all && !json_grammar_failed(g); i++) {
        const json_t *one = json_array_get(list, i), *ref = json_object_get(one, "$ref");
        if (ref && !json_schema_constrains(one, "$ref")) one = json_grammar_resolve(g, ref, out);
        if (is_conditional(one)) json_array_append(conditional, (json_t *)one);
        else all = one ? json_grammar_merged(g, all, one, "allOf") : NULL;
    }
    if (json_is_false(all)) {
        json_grammar_unsupported(g, "allOf", "no value fits all of its schemas", out);
        all = NULL;
    }
    if (all && !json_grammar_failed(g)) all = add_conditional(g, all, conditional);
    if (all && !json_grammar_failed(g)) json_grammar_visit(g, all, out);
    json_decref(conditional);
}

/* not, if, dependentRequired: as alternatives. Where that cannot be, and it is not refused, without them. */
static void put_conditions(json_grammar *g, const json_t *schema, base_buffer *out) {
    const char *keyword, *why;
    json_t *resolved = json_conditions_resolve(schema, &keyword, &why);
    if (!resolved && keyword) {
        json_grammar_unsupported(g, keyword, why, NULL);
        resolved = json_grammar_failed(g) ? NULL : json_copy((json_t *)schema);
        if (resolved) json_object_del(resolved, keyword);
        if (!resolved && json_grammar_failed(g)) return;
    }
    const json_t *kept = json_grammar_own(g, resolved);
    if (kept) json_grammar_visit(g, kept, out);
}

/* ---- schemas ---- */

static void visit_object(json_grammar *g, const json_t *schema, base_buffer *out) {
    static const char *const refused[] = {JSON_GRAMMAR_REFUSED};
    for (size_t i = 0; i < BASE_ARRAY_LEN(refused); i++)
        if (json_object_get(schema, refused[i])) json_grammar_unsupported(g, refused[i], "leave it out", NULL);
    if (json_grammar_failed(g)) return;
    if (json_object_get(schema, "const") || json_object_get(schema, "enum")) put_values(g, schema, out);
    else if (json_object_get(schema, "$ref")) put_ref(g, schema, out);
    else if (json_object_get(schema, "allOf") &&
             !(is_conditional(schema) && all_of_is_conditional(json_object_get(schema, "allOf"))))
        put_all_of(g, schema, out);
    else if (json_conditions_are_in(schema)) put_conditions(g, schema, out);
    else if (json_object_get(schema, "anyOf")) put_any_of(g, schema, "anyOf", out);
    else if (json_object_get(schema, "oneOf")) put_any_of(g, schema, "oneOf", out);
    else put_types(g, schema, out);
}

static void visit_once(json_grammar *g, const json_t *schema, base_buffer *out) {
    BASE_ASSERT(g->depth >= 0 && g->depth < JSON_GRAMMAR_DEPTH);
    g->depth++;
    if (json_is_true(schema)) json_grammar_put(g, out, " value");
    else if (json_is_false(schema)) json_grammar_unsupported(g, NULL, "false allows no value", out);
    else if (json_is_object(schema)) visit_object(g, schema, out);
    else json_grammar_wrong(g, NULL, "a schema, which is an object");
    g->depth--;
}

/* Is it nested too deep, or one too many? Then any value will do, or there is a problem. */
static bool visits_too_much(json_grammar *g, base_buffer *out) {
    BASE_ASSERT(g->n_visits <= JSON_GRAMMAR_VISITS && g->depth <= JSON_GRAMMAR_DEPTH);
    if (g->depth < JSON_GRAMMAR_DEPTH && g->n_visits < JSON_GRAMMAR_VISITS) {
        g->n_visits++;
        return false;
    }
    if (g->strict)
        structured_fail(g->error, RP_ERR_INVALID, json_grammar_place(g),
                        "the schema has more than %d parts, is nested more than %d deep, or contains itself: '%.200s'",
                        JSON_GRAMMAR_VISITS, JSON_GRAMMAR_DEPTH, json_grammar_place(g));
    else json_grammar_drop(g, NULL, "the schema has too many parts, is nested too deep, or contains itself");
    json_grammar_put(g, out, " value");
    return true;
}

/* A spoiled schema is visited again without its spoiler. The rules that were written for it are gone, and the
   references to them. */
static void json_grammar_visit(json_grammar *g, const json_t *schema, base_buffer *out) {
    const size_t n_out = out->len, n_text = g->text.len, n_place = g->place.len;
    const int n_rules = g->n_rules, n_targets = g->n_targets, n_edges = g->n_edges;
    if (json_grammar_failed(g) || visits_too_much(g, out)) return;
    visit_once(g, schema, out);
    while (g->spoiled) {
        BASE_ASSERT(!g->strict && g->n_rules >= n_rules && g->text.len >= n_text);
        g->spoiled = false;
        g->n_rules = n_rules;
        g->n_targets = n_targets;
        g->n_edges = n_edges;
        if (out->data) base_buffer_truncate(out, n_out);
        base_buffer_truncate(&g->text, n_text);
        json_grammar_go_back(g, n_place);
        schema = json_object_get(schema, g->spoiler) ? json_grammar_without(g, schema, g->spoiler) : NULL;
        if (!schema) json_grammar_put(g, out, " value");
        else if (!visits_too_much(g, out)) visit_once(g, schema, out);
    }
}

/* Does each reference at the beginning of this target lead to targets that are known to end? */
static bool json_grammar_ends(const json_grammar *g, int target, const bool *known) {
    BASE_ASSERT(target < g->n_targets);
    for (int i = 0; i < g->n_edges; i++)
        if (g->edges[i].from == target && !known[g->edges[i].to]) return false;
    return true;
}

/* Each round finds one target more that ends, or there is a cycle. */
static void refuse_cycles(json_grammar *g) {
    bool known[JSON_GRAMMAR_REFS] = {false}, found = true;
    int n_known = 0;
    while (found && !json_grammar_failed(g)) {
        found = false;
        for (int i = 0; i < g->n_targets; i++) {
            if (known[i] || !json_grammar_ends(g, i, known)) continue;
            known[i] = found = true;
            n_known++;
        }
    }
    BASE_ASSERT(n_known <= g->n_targets);
    if (n_known == g->n_targets || json_grammar_failed(g)) return;
    if (g->strict)
        structured_fail(g->error, RP_ERR_INVALID, json_grammar_place(g), "'%.300s' has a $ref to itself",
                        json_grammar_place(g));
    else json_grammar_too_large(g, "it has a $ref to itself");
}

int json_grammar_add(json_grammar *g, const json_t *schema, const char *place, bool strict,
                     char rule[JSON_GRAMMAR_RULE_BYTES], rp_error *err) {
    BASE_ASSERT(schema && place);
    const uint64_t failures = base_alloc_failures();
    base_buffer e = json_grammar_expression();
    g->error = err;
    g->visit = json_grammar_visit;
    g->document = schema;
    g->strict = strict;
    g->spoiled = g->too_large = false;
    g->target = JSON_GRAMMAR_NO_TARGET;
    g->depth = g->n_visits = g->n_never = g->n_targets = g->n_edges = 0;
    base_buffer_clear(&g->place);
    if (base_buffer_append_str(&g->place, place)) structured_fail_memory(err);
    const size_t before = g->text.len;
    int number = json_grammar_new_rule(g);
    json_grammar_visit(g, schema, &e);
    refuse_cycles(g);
    json_grammar_end_rule(g, number, &e);
    if (base_alloc_failures() != failures) { /* a merged schema could lack a part: that is the cause of any error */
        *err = (rp_error){0};
        structured_fail_memory(err);
    }
    if (!strict && g->text.len > JSON_GRAMMAR_LOOSE_BYTES)
        json_grammar_too_large(g, "the grammars of all tools together are");
    snprintf(rule, JSON_GRAMMAR_RULE_BYTES, "r%d", number);
    if (!g->too_large) return err->code;
    base_buffer_truncate(&g->text, before);
    g->n_rules = number;
    /* what arguments of a schema without rules may be */
    const char *type = json_string_value(json_object_get(schema, "type"));
    const bool is_object = type ? strcasecmp(type, "object") == 0 : json_object_get(schema, "properties") != NULL;
    snprintf(rule, JSON_GRAMMAR_RULE_BYTES, "%s", is_object ? "object" : "value");
    return err->code;
}
