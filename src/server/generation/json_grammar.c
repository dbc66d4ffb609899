/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar.c: see json_grammar.h.
 *
 *   add --> rule_of (a rule for a schema) --> visit (a schema to an expression) --> object, array, string, ... --> visit ...
 *
 * An expression is text in a buffer of its visitor's; whole rules go to the grammar's text. A target of $ref gets a rule once, and its
 * name where it is used again, so that schemas may contain themselves. One that is itself before anything was written would be a rule
 * without end: `edges` are the uses of targets by targets with nothing written in between, and a cycle of them is refused.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/generation/json_conditions.h"
#include "server/generation/json_grammar_internal.h"
#include "server/generation/json_schema.h"

#define NONE JSON_GRAMMAR_NONE

static void json_grammar_visit(json_grammar *g, const json_t *schema, base_buffer *out);

/* ---- types ---- */

static const char *const types[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
enum { OBJECT, ARRAY, STRING, INTEGER, NUMBER, BOOLEAN, NULL_TYPE, N_TYPES };

/* Names may be upper-case, as Gemini's are. NONE: unknown. */
static int json_grammar_type_of(const char *name) {
    for (int i = 0; i < N_TYPES && name; i++)
        if (strcasecmp(types[i], name) == 0) return i;
    return NONE;
}

static void put_type(json_grammar *g, const json_t *schema, int type, base_buffer *out) {
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
    } signs[] = {{"properties", OBJECT},   {"required", OBJECT},   {"additionalProperties", OBJECT},    {"items", ARRAY},
                 {"prefixItems", ARRAY},   {"minItems", ARRAY},    {"maxItems", ARRAY},                 {"minLength", STRING},
                 {"maxLength", STRING},    {"pattern", STRING},    {"patternProperties", OBJECT},       {"propertyNames", OBJECT},
                 {"minProperties", OBJECT}, {"maxProperties", OBJECT}, {"uniqueItems", ARRAY},      {"contains", ARRAY},
                 {"multipleOf", NUMBER},      {"minimum", NUMBER},    {"maximum", NUMBER},                 {"exclusiveMinimum", NUMBER},
                 {"exclusiveMaximum", NUMBER}};
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
        if (type == NONE) json_grammar_wrong(g, "type", "object, array, string, integer, number, boolean or null, or an array of them");
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

static bool has_type(unsigned allowed, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return allowed & 1u << OBJECT;
    case JSON_ARRAY: return allowed & 1u << ARRAY;
    case JSON_STRING: return allowed & 1u << STRING;
    case JSON_INTEGER: return allowed & (1u << INTEGER | 1u << NUMBER);
    case JSON_REAL: return allowed & 1u << NUMBER;
    case JSON_NULL: return allowed & 1u << NULL_TYPE;
    default: return allowed & 1u << BOOLEAN;
    }
}

/* Those of the schema's types, and, of strings, those that its pattern and lengths admit. */
static void put_enum(json_grammar *g, const json_t *schema, const json_t *values, base_buffer *out) {
    unsigned allowed = types_of(g, schema);
    json_grammar_text_rule rule;
    size_t n = json_array_size(values), used = 0;
    if (!json_is_array(values) || n == 0 || n > JSON_GRAMMAR_NAMES)
        json_grammar_wrong(g, "enum", "an array of 1 to " JSON_GRAMMAR_TEXT(JSON_GRAMMAR_NAMES) " values");
    json_grammar_text_rule_read(g, schema, &rule);
    json_grammar_put(g, out, " (");
    for (size_t i = 0; i < n && !json_grammar_failed(g); i++) {
        const json_t *value = json_array_get(values, i);
        if (allowed && !has_type(allowed, value)) continue;
        if (json_is_string(value) && !json_grammar_text_rule_admits(&rule, json_string_value(value))) continue;
        if (used++ > 0) json_grammar_put(g, out, " |");
        json_grammar_put_json(g, out, value);
    }
    if (used == 0) json_grammar_wrong(g, "enum", "values of its type, and of its pattern");
    json_grammar_text_rule_free(&rule);
    json_grammar_put(g, out, ")");
}

/* The two as one schema, which the grammar keeps; NULL: a problem, or any value will do. */
static const json_t *json_grammar_merged(json_grammar *g, const json_t *a, const json_t *b, const char *name, base_buffer *out) {
    const char *conflict = NULL;
    if (!json_is_object(a) || !json_is_object(b)) {
        if (json_is_true(a)) return b;
        if (json_is_true(b)) return a;
        json_grammar_wrong(g, name, "schemas");
        return NULL;
    }
    json_t *both = json_schema_merge(a, b, &conflict);
    if (both || !conflict) return json_grammar_own(g, both);
    char why[96];
    snprintf(why, sizeof(why), "two of '%.40s' cannot be combined", conflict);
    json_grammar_unsupported(g, name, why, out);
    return NULL;
}

/* A copy without one name, which the grammar keeps. */
static const json_t *json_grammar_without(json_grammar *g, const json_t *schema, const char *name) {
    json_t *rest = json_copy((json_t *)schema);
    json_object_del(rest, name);
    return json_grammar_own(g, rest);
}

/* Each alternative, merged with the keywords beside it. */
static void put_any_of(json_grammar *g, const json_t *schema, const char *name, base_buffer *out) {
    const json_t *list = json_object_get(schema, name), *rest = NULL;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > JSON_GRAMMAR_NAMES) json_grammar_wrong(g, name, "an array of schemas");
    if (json_schema_constrains(schema, name)) rest = json_grammar_without(g, schema, name);
    json_grammar_put(g, out, " (");
    for (size_t i = 0; i < n && !json_grammar_failed(g); i++) {
        const json_t *one = json_array_get(list, i);
        size_t before = json_grammar_go_to_index(g, name, i);
        if (i > 0) json_grammar_put(g, out, " |");
        if (rest) one = json_grammar_merged(g, rest, one, NULL, out);
        if (one) json_grammar_visit(g, one, out);
        json_grammar_go_back(g, before);
    }
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
    if (g->n_targets == JSON_GRAMMAR_REFS) {
        server_fail(g->problem, SERVER_INVALID, json_grammar_place(g), "'%.300s' has more than %d targets of $ref", json_grammar_place(g), JSON_GRAMMAR_REFS);
        return NONE;
    }
    g->targets[g->n_targets] = (ref_target){schema, json_grammar_new_rule(g)};
    return g->n_targets++;
}

static void add_edge(json_grammar *g, int to) {
    if (g->target == JSON_GRAMMAR_NO_TARGET) return;
    if (g->n_edges == JSON_GRAMMAR_EDGES)
        server_fail(g->problem, SERVER_INVALID, json_grammar_place(g), "'%.300s' has more than %d uses of $ref", json_grammar_place(g), JSON_GRAMMAR_EDGES);
    else g->edges[g->n_edges++] = (ref_edge){g->target, to};
}

static void put_target(json_grammar *g, const json_t *schema, base_buffer *out) {
    int i = 0;
    while (i < g->n_targets && g->targets[i].schema != schema) i++;
    bool is_new = i == g->n_targets;
    if (is_new) i = new_target(g, schema);
    if (json_grammar_failed(g)) return;
    add_edge(g, i);
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
    const json_t *rest = json_grammar_without(g, schema, "$ref"), *both = rest ? json_grammar_merged(g, target, rest, "$ref", out) : NULL;
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
static const json_t *add_conditional(json_grammar *g, const json_t *all, json_t *list, base_buffer *out) {
    const json_t *both = all;
    if (!is_conditional(all) && json_array_size(list) > 0) {
        both = json_grammar_merged(g, all, json_array_get(list, 0), "allOf", out);
        json_array_remove(list, 0);
    }
    if (!both || json_array_size(list) == 0) return both;
    json_t *copy = json_copy((json_t *)both);
    if (copy && json_object_set(copy, "allOf", list)) server_fail_memory(g->problem);
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
        else all = one ? json_grammar_merged(g, all, one, "allOf", out) : NULL;
    }
    if (all && !json_grammar_failed(g)) all = add_conditional(g, all, conditional, out);
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

static void refuse_names(json_grammar *g, const json_t *schema) {
    static const char *const refused[] = {JSON_GRAMMAR_REFUSED};
    for (size_t i = 0; i < BASE_ARRAY_LEN(refused); i++)
        if (json_object_get(schema, refused[i])) json_grammar_unsupported(g, refused[i], "leave it out", NULL);
}

static void visit_object(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    refuse_names(g, schema);
    if (json_grammar_failed(g)) return;
    if (json_object_get(schema, "$ref")) put_ref(g, schema, out);
    else if (json_object_get(schema, "allOf") && !(is_conditional(schema) && all_of_is_conditional(json_object_get(schema, "allOf")))) put_all_of(g, schema, out);
    else if (json_conditions_are_in(schema)) put_conditions(g, schema, out);
    else if (json_object_get(schema, "anyOf")) put_any_of(g, schema, "anyOf", out);
    else if (json_object_get(schema, "oneOf")) put_any_of(g, schema, "oneOf", out);
    else if (fixed) json_grammar_put_json(g, out, fixed);
    else if (values) put_enum(g, schema, values, out);
    else put_types(g, schema, out);
}

static void json_grammar_visit(json_grammar *g, const json_t *schema, base_buffer *out) {
    if (json_grammar_failed(g)) return;
    if (g->depth == JSON_GRAMMAR_DEPTH || g->n_visits++ == JSON_GRAMMAR_VISITS) {
        server_fail(g->problem, SERVER_INVALID, json_grammar_place(g),
                    "the schema has more than %d parts, is nested more than %d deep, or contains itself: '%.200s'",
                    JSON_GRAMMAR_VISITS, JSON_GRAMMAR_DEPTH, json_grammar_place(g));
        return;
    }
    g->depth++;
    if (json_is_true(schema)) json_grammar_put(g, out, " value");
    else if (json_is_false(schema)) json_grammar_unsupported(g, NULL, "false allows no value", out);
    else if (json_is_object(schema)) visit_object(g, schema, out);
    else json_grammar_wrong(g, NULL, "a schema, which is an object");
    g->depth--;
}

/* Does each reference at the beginning of this target lead to targets that are known to end? */
static bool json_grammar_ends(const json_grammar *g, int target, const bool *known) {
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
    if (n_known < g->n_targets)
        server_fail(g->problem, SERVER_INVALID, json_grammar_place(g), "'%.300s' has a $ref to itself", json_grammar_place(g));
}

int json_grammar_add(json_grammar *g, const json_t *schema, const char *place, bool strict, char rule[JSON_GRAMMAR_RULE_BYTES],
                     server_problem *p) {
    base_buffer e = json_grammar_expression();
    g->problem = p;
    g->visit = json_grammar_visit;
    g->document = schema;
    g->strict = strict;
    g->target = JSON_GRAMMAR_NO_TARGET;
    g->depth = g->n_visits = g->n_targets = g->n_edges = 0;
    base_buffer_clear(&g->place);
    if (base_buffer_append_str(&g->place, place)) server_fail_memory(p);
    int number = json_grammar_new_rule(g);
    json_grammar_visit(g, schema, &e);
    refuse_cycles(g);
    json_grammar_end_rule(g, number, &e);
    snprintf(rule, JSON_GRAMMAR_RULE_BYTES, "r%d", number);
    return (int)p->kind;
}
