/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar.c: see json_grammar.h.
 *
 *   add --> rule_of (a rule for a schema) --> visit (a schema to an expression) --> object, array, string, ... --> visit ...
 *
 * An expression is text in a buffer of its visitor's; whole rules go to the grammar's text. A target of $ref gets a rule once, and its
 * name where it is used again, so that schemas may contain themselves. One that is itself before anything was written would be a rule
 * without end: `edges` are the uses of targets by targets with nothing written in between, and a cycle of them is refused.
 */
#include "server/generation/json_grammar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "server/generation/fields.h"
#include "server/generation/json_grammar_numbers.h"
#include "server/generation/json_schema.h"

#define PLACE_BYTES ((size_t)4096)
#define NO_TARGET (-1)
#define NONE (-1)
#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)

static const char any_json[] =
    "sp ::= \" \"?\n"
    "hex ::= [0-9a-fA-F]\n"
    /* any character but NUL, surrogates in pairs */
    "code ::= [1-9a-cefA-CEF] hex hex hex | \"0\" [1-9a-fA-F] hex hex | \"00\" [1-9a-fA-F] hex | \"000\" [1-9a-fA-F] | [dD] [0-7] hex hex | "
    "[dD] [89abAB] hex hex \"\\\\u\" [dD] [c-fC-F] hex hex\n"
    "plain ::= [^\"\\\\\\x00-\\x1F\\x7F]\n"
    "char ::= plain | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" code)\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "value ::= object | array | string | number | boolean | \"null\"\n"
    "object ::= \"{\" (string \":\" sp value (\",\" sp string \":\" sp value)*)? \"}\"\n"
    "array ::= \"[\" (value (\",\" sp value)*)? \"]\"\n";

typedef struct ref_target {
    const json_t *schema;
    int rule;
} ref_target;

typedef struct ref_edge {
    int from, to; /* indices of targets */
} ref_edge;

struct json_grammar {
    base_buffer text;
    json_t *owned; /* an array: merged schemas, which targets may point into */
    int n_rules;

    /* of the schema that is added */
    const json_t *document;
    server_problem *problem;
    bool strict;
    base_buffer place;
    int depth, n_visits;
    int target; /* the target that begins here, with nothing written since; NO_TARGET */
    ref_target targets[JSON_GRAMMAR_REFS];
    ref_edge edges[JSON_GRAMMAR_EDGES];
    int n_targets, n_edges;
};

json_grammar *json_grammar_new(void) {
    json_grammar *g = base_calloc(1, sizeof(*g));
    if (!g) return NULL;
    g->text = BASE_BUFFER(JSON_GRAMMAR_BYTES);
    g->place = BASE_BUFFER(PLACE_BYTES);
    g->owned = json_array();
    if (g->owned && base_buffer_append_str(&g->text, any_json) == 0) return g;
    json_grammar_free(g);
    return NULL;
}

void json_grammar_free(json_grammar *g) {
    if (!g) return;
    base_buffer_free(&g->text);
    base_buffer_free(&g->place);
    json_decref(g->owned);
    base_free(g);
}

base_buffer *json_grammar_text(json_grammar *g) { return &g->text; }

/* ---- writing ---- */

/* An error of a buffer, as a problem. */
static void json_grammar_check(json_grammar *g, int rc) {
    if (rc == RP_ERR_LIMIT)
        server_fail(g->problem, SERVER_INVALID, NULL, "'%.200s' is too large: its grammar has more than %zu bytes",
                    g->place.data ? g->place.data : "", JSON_GRAMMAR_BYTES);
    else if (rc) server_fail_memory(g->problem);
}

static bool json_grammar_failed(const json_grammar *g) { return g->problem->kind != SERVER_FINE; }

static void json_grammar_put(json_grammar *g, base_buffer *out, const char *text) {
    if (!json_grammar_failed(g)) json_grammar_check(g, base_buffer_append_str(out, text));
}

static void put_rule(json_grammar *g, base_buffer *out, int rule) {
    if (!json_grammar_failed(g)) json_grammar_check(g, base_buffer_printf(out, " r%d", rule));
}

/* {m,n}; n < 0: any number. */
static void put_times(json_grammar *g, base_buffer *out, int m, int n) {
    if (json_grammar_failed(g)) return;
    if (m == 0 && n < 0) json_grammar_check(g, base_buffer_append_str(out, "*"));
    else if (n < 0) json_grammar_check(g, base_buffer_printf(out, "{%d,}", m));
    else json_grammar_check(g, base_buffer_printf(out, "{%d,%d}", m, n));
}

int json_grammar_literal(base_buffer *out, const char *bytes, size_t n) {
    int rc = base_buffer_append_str(out, "\"");
    for (size_t i = 0; i < n && !rc; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c < 0x20 || c == 0x7f) rc = base_buffer_printf(out, "\\x%02X", c);
        else if (c == '"' || c == '\\') rc = base_buffer_printf(out, "\\%c", c);
        else rc = base_buffer_append(out, bytes + i, 1);
    }
    return rc ? rc : base_buffer_append_str(out, "\"");
}

/* A value as a literal, compact. */
static void json_grammar_put_json(json_grammar *g, base_buffer *out, const json_t *value) {
    char *text = json_grammar_failed(g) ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text) {
        json_grammar_put(g, out, " ");
        json_grammar_check(g, json_grammar_literal(out, text, strlen(text)));
    } else server_fail_memory(g->problem);
    free(text); /* jansson's */
}

static base_buffer json_grammar_expression(void) { return BASE_BUFFER(JSON_GRAMMAR_BYTES); }

/* A rule of that number; frees the expression. */
static void json_grammar_end_rule(json_grammar *g, int rule, base_buffer *e) {
    if (!json_grammar_failed(g)) json_grammar_check(g, base_buffer_printf(&g->text, "r%d ::=%s\n", rule, e->data ? e->data : " \"\""));
    base_buffer_free(e);
}

/* ---- places and problems ---- */

static size_t go_to(json_grammar *g, const char *name) {
    size_t before = g->place.len;
    if (!json_grammar_failed(g) && base_buffer_printf(&g->place, ".%.128s", name))
        server_fail(g->problem, SERVER_INVALID, NULL, "the schema is nested too deep: '%.300s'", g->place.data ? g->place.data : "");
    return before;
}

static size_t go_to_index(json_grammar *g, const char *name, size_t i) {
    char text[64];
    snprintf(text, sizeof(text), "%.32s[%zu]", name, i);
    return go_to(g, text);
}

static void go_back(json_grammar *g, size_t before) {
    if (g->place.data) base_buffer_truncate(&g->place, before);
}

static const char *json_grammar_place_of(const json_grammar *g) { return g->place.data ? g->place.data : ""; }

/* The schema is none: refused whether strict or not. */
static void json_grammar_wrong(json_grammar *g, const char *name, const char *expected) {
    size_t before = name ? go_to(g, name) : g->place.len;
    server_fail(g->problem, SERVER_INVALID, json_grammar_place_of(g), "'%.300s': give %s", json_grammar_place_of(g), expected);
    go_back(g, before);
}

/* It cannot be honoured: refused where strict; else any value will do where `out` is given. */
static void json_grammar_unsupported(json_grammar *g, const char *name, const char *why, base_buffer *out) {
    size_t before = name ? go_to(g, name) : g->place.len;
    if (g->strict) server_fail(g->problem, SERVER_UNSUPPORTED, json_grammar_place_of(g), "'%.300s' is not supported: %s", json_grammar_place_of(g), why);
    else if (out) json_grammar_put(g, out, " value");
    go_back(g, before);
}

/* ---- visiting ---- */

static void json_grammar_visit(json_grammar *g, const json_t *schema, base_buffer *out);

/* After written text. */
static void visit_inside(json_grammar *g, const json_t *schema, base_buffer *out) {
    int target = g->target;
    g->target = NO_TARGET;
    json_grammar_visit(g, schema, out);
    g->target = target;
}

/* ---- objects ---- */

typedef struct property {
    const char *name;
    const json_t *schema; /* NULL: any value */
    bool required;
    int pair, more; /* rules: itself; what follows when something came before: it and the later ones */
} property;

typedef struct property_list {
    property *items;
    size_t n, cap;
    int others; /* the rule of a property that has none of these names; NONE: there may be none */
} property_list;

static bool json_grammar_is_in(const json_t *names, const char *name) {
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *one = json_string_value(json_array_get(names, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

static bool has_property(const property_list *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].name, name) == 0) return true;
    return false;
}

static void add_property(json_grammar *g, property_list *l, const char *name, const json_t *schema, bool required) {
    if (json_grammar_failed(g) || has_property(l, name)) return;
    int rc = base_grow((void **)&l->items, &l->cap, l->n + 1, JSON_GRAMMAR_NAMES, sizeof(*l->items));
    if (rc == RP_ERR_LIMIT) json_grammar_wrong(g, "properties", "fewer of them");
    else if (rc) server_fail_memory(g->problem);
    else l->items[l->n++] = (property){name, schema, required, NONE, NONE};
}

/* In the order of propertyOrdering, if given, then in the order of properties; required names without a schema come last. */
static void list_properties(json_grammar *g, const json_t *schema, property_list *l) {
    json_t *properties = json_object_get(schema, "properties"), *one;
    const json_t *required = json_object_get(schema, "required"), *order = json_object_get(schema, "propertyOrdering");
    const char *name;
    if (properties && !json_is_object(properties)) json_grammar_wrong(g, "properties", "an object");
    if (required && !json_is_array(required) && !json_is_boolean(required)) json_grammar_wrong(g, "required", "an array of names");
    for (size_t i = 0; i < json_array_size(order); i++) {
        name = json_string_value(json_array_get(order, i));
        one = name ? json_object_get(properties, name) : NULL;
        if (one) add_property(g, l, name, one, json_grammar_is_in(required, name));
    }
    json_object_foreach(properties, name, one) {
        if (!json_is_false(one)) add_property(g, l, name, one, json_grammar_is_in(required, name));
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        if (!name) json_grammar_wrong(g, "required", "an array of names");
        else if (json_is_false(json_object_get(schema, "additionalProperties")) && !has_property(l, name))
            json_grammar_wrong(g, "required", "names from properties");
        else add_property(g, l, name, NULL, true);
    }
}

/* Can a text without escapes be this name? */
static bool is_plain(const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f || *c == '"' || *c == '\\') return false;
    return true;
}

static bool json_grammar_begins(const char *name, const char *with, size_t n) { return is_plain(name) && strncmp(name, with, n) == 0; }

/* A character in a class. */
static void put_class_character(json_grammar *g, base_buffer *out, const char *c, size_t n) {
    if (n > 1) json_grammar_check(g, json_grammar_failed(g) ? 0 : base_buffer_append(out, c, n));
    else json_grammar_check(g, json_grammar_failed(g) ? 0 : base_buffer_printf(out, "\\x%02X", (unsigned char)*c));
}

/* Names that share the first n bytes with the i-th name and then differ from all names of the list. */
static void put_branch(json_grammar *g, base_buffer *out, const property_list *l, size_t i, size_t n) {
    const char *prefix = l->items[i].name;
    bool is_name = false;
    json_grammar_put(g, out, n == 0 ? " " : " | ");
    if (!json_grammar_failed(g)) json_grammar_check(g, json_grammar_literal(out, prefix, n));
    json_grammar_put(g, out, " ([^\"\\\\\\x00-\\x1F\\x7F");
    for (size_t k = 0; k < l->n; k++) {
        const char *rest = l->items[k].name + n;
        if (!json_grammar_begins(l->items[k].name, prefix, n)) continue;
        if (*rest) put_class_character(g, out, rest, server_character((const unsigned char *)rest, strlen(rest)));
        else is_name = true;
    }
    json_grammar_put(g, out, is_name ? "] plain*)" : "] plain*)?");
}

/* Is no name before the i-th one that begins with its first n bytes? */
static bool is_first(const property_list *l, size_t i, size_t n) {
    for (size_t k = 0; k < i; k++)
        if (json_grammar_begins(l->items[k].name, l->items[i].name, n)) return false;
    return true;
}

/* Quoted names outside of the list: for each prefix of a listed name, the continuations that no listed name has. */
static void put_other_names(json_grammar *g, base_buffer *out, const property_list *l) {
    bool any = false;
    json_grammar_put(g, out, "\"\\\"\" (");
    for (size_t i = 0; i < l->n && !json_grammar_failed(g); i++) {
        const char *name = l->items[i].name;
        for (size_t n = 0, bytes = strlen(name); is_plain(name) && n <= bytes && !json_grammar_failed(g);) {
            if (is_first(l, i, n)) put_branch(g, out, l, i, n);
            any = true;
            n += n < bytes ? server_character((const unsigned char *)name + n, bytes - n) : 1;
        }
    }
    json_grammar_put(g, out, any ? ") \"\\\"\"" : "plain*) \"\\\"\"");
}

static int new_rule(json_grammar *g) { return g->n_rules++; }

/* The properties that additionalProperties allows. If properties are listed, others are allowed only if the schema has additionalProperties. */
static void find_others(json_grammar *g, const json_t *schema, property_list *l) {
    const json_t *others = json_object_get(schema, "additionalProperties");
    if (others && !json_is_boolean(others) && !json_is_object(others)) json_grammar_wrong(g, "additionalProperties", "true, false or a schema");
    if (json_grammar_failed(g) || !others || json_is_false(others)) return;
    size_t before = go_to(g, "additionalProperties");
    base_buffer e = json_grammar_expression();
    l->others = new_rule(g);
    json_grammar_put(g, &e, " ");
    put_other_names(g, &e, l);
    json_grammar_put(g, &e, " \":\" sp");
    visit_inside(g, others, &e);
    json_grammar_end_rule(g, l->others, &e);
    go_back(g, before);
}

static void put_pair(json_grammar *g, const property *p, base_buffer *out) {
    json_t *name = json_string(p->name);
    size_t before = go_to(g, "properties");
    go_to(g, p->name);
    if (name) json_grammar_put_json(g, out, name);
    else server_fail_memory(g->problem);
    json_grammar_put(g, out, " \":\" sp");
    if (p->schema) visit_inside(g, p->schema, out);
    else json_grammar_put(g, out, " value");
    go_back(g, before);
    json_decref(name);
}

/* All of them, in order, and no others. */
static void put_all(json_grammar *g, const property_list *l, base_buffer *out) {
    for (size_t i = 0; i < l->n && !json_grammar_failed(g); i++) {
        if (i > 0) json_grammar_put(g, out, " \",\" sp");
        put_pair(g, &l->items[i], out);
    }
}

/* Rules for each property, and for what may follow where something came before it. */
static void make_rules(json_grammar *g, property_list *l) {
    for (size_t i = l->n; i-- > 0 && !json_grammar_failed(g);) {
        property *p = &l->items[i];
        base_buffer pair = json_grammar_expression(), more = json_grammar_expression();
        int next = i + 1 < l->n ? l->items[i + 1].more : NONE;
        p->pair = new_rule(g);
        p->more = new_rule(g);
        put_pair(g, p, &pair);
        json_grammar_end_rule(g, p->pair, &pair);
        json_grammar_put(g, &more, " (\",\" sp");
        put_rule(g, &more, p->pair);
        json_grammar_put(g, &more, p->required ? ")" : ")?");
        if (next != NONE) put_rule(g, &more, next);
        else if (l->others != NONE) {
            json_grammar_put(g, &more, " (\",\" sp");
            put_rule(g, &more, l->others);
            json_grammar_put(g, &more, ")*");
        }
        json_grammar_end_rule(g, p->more, &more);
    }
}

/* What an object may begin with: any of the first properties up to one that is required. */
static void put_beginnings(json_grammar *g, const property_list *l, base_buffer *out) {
    bool may_be_empty = true;
    json_grammar_put(g, out, " (");
    for (size_t i = 0; i < l->n && may_be_empty; i++) {
        if (i > 0) json_grammar_put(g, out, " |");
        put_rule(g, out, l->items[i].pair);
        if (i + 1 < l->n) put_rule(g, out, l->items[i + 1].more);
        else if (l->others != NONE) {
            json_grammar_put(g, out, " (\",\" sp");
            put_rule(g, out, l->others);
            json_grammar_put(g, out, ")*");
        }
        may_be_empty = !l->items[i].required;
    }
    if (may_be_empty && l->others != NONE) {
        if (l->n > 0) json_grammar_put(g, out, " |");
        put_rule(g, out, l->others);
        json_grammar_put(g, out, " (\",\" sp");
        put_rule(g, out, l->others);
        json_grammar_put(g, out, ")*");
    }
    json_grammar_put(g, out, may_be_empty ? ")?" : ")");
}

static void put_object(json_grammar *g, const json_t *schema, base_buffer *out) {
    property_list l = {.others = NONE};
    bool all_required = true;
    if (!json_object_get(schema, "properties") && !json_object_get(schema, "additionalProperties") && !json_object_get(schema, "required")) {
        json_grammar_put(g, out, " object");
        return;
    }
    list_properties(g, schema, &l);
    find_others(g, schema, &l);
    for (size_t i = 0; i < l.n; i++) all_required = all_required && l.items[i].required;
    json_grammar_put(g, out, " \"{\"");
    if (all_required && l.others == NONE) put_all(g, &l, out);
    else {
        make_rules(g, &l);
        put_beginnings(g, &l, out);
    }
    json_grammar_put(g, out, " \"}\"");
    base_free(l.items);
}

/* ---- arrays and strings ---- */

/* A bound of a size; `none` where there is none. */
static int json_grammar_size_of(json_grammar *g, const json_t *schema, const char *name, int none) {
    const json_t *value = json_object_get(schema, name);
    double v = json_number_value(value);
    if (!value || json_is_null(value) || json_grammar_failed(g)) return none;
    if (json_is_string(value)) v = strtod(json_string_value(value), NULL); /* Gemini's way to write 64 bits */
    if (!(v >= 0 && v == floor(v)) || !(json_is_number(value) || json_is_string(value))) json_grammar_wrong(g, name, "a whole number from 0");
    else if (v > JSON_GRAMMAR_REPEATS) json_grammar_unsupported(g, name, "sizes of at most " TEXT_OF(JSON_GRAMMAR_REPEATS), NULL);
    else return (int)v;
    return none;
}

/* Items after n others, at least `min` and at most `max` (NONE: any number) in all. */
static void put_items(json_grammar *g, const json_t *items, int n, int min, int max, base_buffer *out) {
    base_buffer e = json_grammar_expression();
    int rule = new_rule(g);
    size_t before = go_to(g, "items");
    if (items) visit_inside(g, items, &e);
    else json_grammar_put(g, &e, " value");
    go_back(g, before);
    json_grammar_end_rule(g, rule, &e);
    if (n == 0 && min == 0) json_grammar_put(g, out, " (");
    if (n == 0) put_rule(g, out, rule);
    int used = n == 0 ? 1 : n;
    json_grammar_put(g, out, " (\",\" sp");
    put_rule(g, out, rule);
    json_grammar_put(g, out, ")");
    put_times(g, out, min > used ? min - used : 0, max == NONE ? NONE : max - used);
    if (n == 0 && min == 0) json_grammar_put(g, out, ")?");
}

static void put_array(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *first = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    int min = json_grammar_size_of(g, schema, "minItems", 0), max = json_grammar_size_of(g, schema, "maxItems", NONE);
    if (json_is_array(items)) { /* as it was written before prefixItems */
        first = items;
        items = json_object_get(schema, "additionalItems");
    }
    if (first && !json_is_array(first)) json_grammar_wrong(g, "prefixItems", "an array of schemas");
    int n = (int)json_array_size(first);
    bool more = first ? items && !json_is_false(items) : !json_is_false(items);
    if (max != NONE && n > max) n = max;
    if ((max != NONE && max < min) || (!more && n < min)) json_grammar_wrong(g, "minItems", "a representable number");
    json_grammar_put(g, out, " \"[\"");
    for (int i = 0; i < n && !json_grammar_failed(g); i++) {
        size_t before = go_to_index(g, "prefixItems", (size_t)i);
        if (i > 0) json_grammar_put(g, out, " \",\" sp");
        visit_inside(g, json_array_get(first, (size_t)i), out);
        go_back(g, before);
    }
    if (more && (max == NONE || max > n) && !json_grammar_failed(g)) put_items(g, items, n, min, max, out);
    json_grammar_put(g, out, " \"]\"");
}

static void json_grammar_put_string(json_grammar *g, const json_t *schema, base_buffer *out) {
    int min = json_grammar_size_of(g, schema, "minLength", 0), max = json_grammar_size_of(g, schema, "maxLength", NONE);
    if (max != NONE && max < min) json_grammar_wrong(g, "maxLength", "at least minLength");
    if (min == 0 && max == NONE) {
        json_grammar_put(g, out, " string");
        return;
    }
    json_grammar_put(g, out, " \"\\\"\" char");
    put_times(g, out, min, max);
    json_grammar_put(g, out, " \"\\\"\"");
}

/* ---- numbers ---- */

/* A bound as the nearest whole number inside of it. strict: the exclusive one, or true for the other as it was once. Returns whether it
 * is there and can be honoured. */
static bool bound_of(json_grammar *g, const json_t *schema, bool upper, bool whole, int64_t *out) {
    const char *name = upper ? "maximum" : "minimum", *outside = upper ? "exclusiveMaximum" : "exclusiveMinimum";
    const json_t *in = json_object_get(schema, name), *ex = json_object_get(schema, outside);
    bool exclusive = json_is_number(ex) || (json_is_true(ex) && json_is_number(in));
    const json_t *value = json_is_number(ex) ? ex : in;
    double v = json_number_value(value);
    if (!value || json_is_null(value) || json_grammar_failed(g)) return false;
    if (!json_is_number(value)) json_grammar_wrong(g, name, "a number");
    else if (json_is_number(ex) && json_is_number(in)) json_grammar_unsupported(g, outside, "give only one bound", NULL);
    else if (!whole && (exclusive || v != floor(v))) json_grammar_unsupported(g, exclusive ? outside : name, "bounds of numbers must be whole and inclusive", NULL);
    else if (!(fabs(v) <= (double)JSON_GRAMMAR_MAX_NUMBER)) json_grammar_unsupported(g, name, "numbers have at most 16 digits", NULL);
    else {
        double edge = upper ? floor(v) : ceil(v);
        *out = (int64_t)edge;
        if (exclusive && edge == v) *out += upper ? -1 : 1;
        return true;
    }
    return false;
}

static void put_number(json_grammar *g, const json_t *schema, bool whole, base_buffer *out) {
    int64_t lo = -JSON_GRAMMAR_MAX_NUMBER, hi = JSON_GRAMMAR_MAX_NUMBER;
    bool low = bound_of(g, schema, false, whole, &lo), high = bound_of(g, schema, true, whole, &hi);
    if (json_grammar_failed(g)) return;
    if (!low && !high) json_grammar_put(g, out, whole ? " integer" : " number");
    else if (lo > hi) json_grammar_wrong(g, "minimum", "at most maximum");
    else {
        json_grammar_put(g, out, " ");
        if (!json_grammar_failed(g)) json_grammar_check(g, whole ? json_grammar_integers(out, lo, hi) : json_grammar_reals(out, lo, hi));
    }
}

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
    case OBJECT: put_object(g, schema, out); break;
    case ARRAY: put_array(g, schema, out); break;
    case STRING: json_grammar_put_string(g, schema, out); break;
    case INTEGER: put_number(g, schema, true, out); break;
    case NUMBER: put_number(g, schema, false, out); break;
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
                 {"maxLength", STRING},    {"minimum", NUMBER},    {"maximum", NUMBER},                 {"exclusiveMinimum", NUMBER},
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

/* Those of the schema's types. */
static void put_enum(json_grammar *g, const json_t *schema, const json_t *values, base_buffer *out) {
    unsigned allowed = types_of(g, schema);
    size_t n = json_array_size(values), used = 0;
    if (!json_is_array(values) || n == 0 || n > JSON_GRAMMAR_NAMES)
        json_grammar_wrong(g, "enum", "an array of 1 to " TEXT_OF(JSON_GRAMMAR_NAMES) " values");
    json_grammar_put(g, out, " (");
    for (size_t i = 0; i < n && !json_grammar_failed(g); i++) {
        const json_t *value = json_array_get(values, i);
        if (allowed && !has_type(allowed, value)) continue;
        if (used++ > 0) json_grammar_put(g, out, " |");
        json_grammar_put_json(g, out, value);
    }
    if (used == 0) json_grammar_wrong(g, "enum", "values of its type");
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
    if (both && json_array_append_new(g->owned, both) == 0) return both;
    if (!conflict) server_fail_memory(g->problem);
    else {
        char why[96];
        snprintf(why, sizeof(why), "two of '%.40s' cannot be combined", conflict);
        json_grammar_unsupported(g, name, why, out);
    }
    return NULL;
}

/* A copy without one name, which the grammar keeps. */
static const json_t *json_grammar_without(json_grammar *g, const json_t *schema, const char *name) {
    json_t *rest = json_copy((json_t *)schema);
    if (!rest || json_object_del(rest, name) || json_array_append_new(g->owned, rest)) {
        server_fail_memory(g->problem);
        return NULL;
    }
    return rest;
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
        size_t before = go_to_index(g, name, i);
        if (i > 0) json_grammar_put(g, out, " |");
        if (rest) one = json_grammar_merged(g, rest, one, NULL, out);
        if (one) json_grammar_visit(g, one, out);
        go_back(g, before);
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
        server_fail(g->problem, SERVER_INVALID, json_grammar_place_of(g), "'%.300s' has more than %d targets of $ref", json_grammar_place_of(g), JSON_GRAMMAR_REFS);
        return NONE;
    }
    g->targets[g->n_targets] = (ref_target){schema, new_rule(g)};
    return g->n_targets++;
}

static void add_edge(json_grammar *g, int to) {
    if (g->target == NO_TARGET) return;
    if (g->n_edges == JSON_GRAMMAR_EDGES)
        server_fail(g->problem, SERVER_INVALID, json_grammar_place_of(g), "'%.300s' has more than %d uses of $ref", json_grammar_place_of(g), JSON_GRAMMAR_EDGES);
    else g->edges[g->n_edges++] = (ref_edge){g->target, to};
}

static void put_target(json_grammar *g, const json_t *schema, base_buffer *out) {
    int i = 0;
    while (i < g->n_targets && g->targets[i].schema != schema) i++;
    bool is_new = i == g->n_targets;
    if (is_new) i = new_target(g, schema);
    if (json_grammar_failed(g)) return;
    add_edge(g, i);
    put_rule(g, out, g->targets[i].rule);
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

/* All subschemas and the keywords beside them, as one schema. */
static void put_all_of(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *list = json_object_get(schema, "allOf"), *all = json_grammar_without(g, schema, "allOf");
    if (!json_is_array(list)) json_grammar_wrong(g, "allOf", "an array of schemas");
    for (size_t i = 0; i < json_array_size(list) && all && !json_grammar_failed(g); i++) {
        const json_t *one = json_array_get(list, i), *ref = json_object_get(one, "$ref");
        if (ref && !json_schema_constrains(one, "$ref")) one = json_grammar_resolve(g, ref, out);
        all = one ? json_grammar_merged(g, all, one, "allOf", out) : NULL;
    }
    if (all && !json_grammar_failed(g)) json_grammar_visit(g, all, out);
}

/* ---- schemas ---- */

static void refuse_names(json_grammar *g, const json_t *schema) {
    static const char *const refused[] = {JSON_GRAMMAR_REFUSED};
    for (size_t i = 0; i < BASE_ARRAY_LEN(refused); i++)
        if (json_object_get(schema, refused[i])) json_grammar_unsupported(g, refused[i], "leave it out", NULL);
    if (json_is_true(json_object_get(schema, "uniqueItems"))) json_grammar_unsupported(g, "uniqueItems", "leave it out", NULL);
}

static void visit_object(json_grammar *g, const json_t *schema, base_buffer *out) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    refuse_names(g, schema);
    if (json_grammar_failed(g)) return;
    if (json_object_get(schema, "$ref")) put_ref(g, schema, out);
    else if (json_object_get(schema, "allOf")) put_all_of(g, schema, out);
    else if (json_object_get(schema, "anyOf")) put_any_of(g, schema, "anyOf", out);
    else if (json_object_get(schema, "oneOf")) put_any_of(g, schema, "oneOf", out);
    else if (fixed) json_grammar_put_json(g, out, fixed);
    else if (values) put_enum(g, schema, values, out);
    else put_types(g, schema, out);
}

static void json_grammar_visit(json_grammar *g, const json_t *schema, base_buffer *out) {
    if (json_grammar_failed(g)) return;
    if (g->depth == JSON_GRAMMAR_DEPTH || g->n_visits++ == JSON_GRAMMAR_VISITS) {
        server_fail(g->problem, SERVER_INVALID, json_grammar_place_of(g),
                    "the schema has more than %d parts, is nested more than %d deep, or contains itself: '%.200s'",
                    JSON_GRAMMAR_VISITS, JSON_GRAMMAR_DEPTH, json_grammar_place_of(g));
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
        server_fail(g->problem, SERVER_INVALID, json_grammar_place_of(g), "'%.300s' has a $ref to itself", json_grammar_place_of(g));
}

int json_grammar_add(json_grammar *g, const json_t *schema, const char *place, bool strict, char rule[JSON_GRAMMAR_RULE_BYTES],
                     server_problem *p) {
    base_buffer e = json_grammar_expression();
    g->problem = p;
    g->document = schema;
    g->strict = strict;
    g->target = NO_TARGET;
    g->depth = g->n_visits = g->n_targets = g->n_edges = 0;
    base_buffer_clear(&g->place);
    if (base_buffer_append_str(&g->place, place)) server_fail_memory(p);
    int number = new_rule(g);
    json_grammar_visit(g, schema, &e);
    refuse_cycles(g);
    json_grammar_end_rule(g, number, &e);
    snprintf(rule, JSON_GRAMMAR_RULE_BYTES, "r%d", number);
    return (int)p->kind;
}
