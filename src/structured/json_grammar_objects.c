/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_objects.c: see json_grammar_internal.h: properties, their names and their number. Owns nothing.
 *
 *   properties           listed, in their order: a rule for each
 *   others               one rule for all that additionalProperties or patternProperties allow, any number of them
 *   minProperties, ...   instead a rule for each place in the list and number of properties before it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "structured/json_grammar_internal.h"
#include "structured/json_schema.h"

#define MAX_PATTERNS 16  /* patternProperties */
#define MAX_COUNTED 4096 /* rules of objects with a number of properties */

typedef struct property {
    const char *name;
    const json_t *schema; /* NULL: any value */
    bool required;
    int pair, more; /* rules: itself; what follows when something came before: it and the later ones */
} property;

typedef struct property_list {
    property *items;
    size_t n, cap;
    int others;                   /* the rule of a property that has none of these names; JSON_GRAMMAR_NONE: there may
                                     be none */
    const json_t *additional;     /* the schema of the others: false: none; true: any value */
    json_grammar_text_rule names; /* that propertyNames allows */
    const json_t *allowed;        /* propertyNames' enum; NULL: none */
    json_t *barred;               /* names that no property may have; kept by the grammar; NULL: none */
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

/* Its schema allows nothing: it may not be there. */
static void bar_property(json_grammar *g, property_list *l, const char *name) {
    if (json_grammar_failed(g)) return;
    if (!l->barred) l->barred = (json_t *)json_grammar_own(g, json_array());
    if (l->barred && json_array_append_new(l->barred, json_string(name))) structured_fail_memory(g->error);
}

static void add_property(json_grammar *g, property_list *l, const char *name, const json_t *schema, bool required) {
    BASE_ASSERT(l->n <= l->cap);
    if (json_grammar_failed(g) || has_property(l, name)) return;
    int rc = base_grow((void **)&l->items, &l->cap, l->n + 1, JSON_GRAMMAR_NAMES, sizeof(*l->items));
    if (rc == RP_ERR_LIMIT) json_grammar_wrong(g, "properties", "fewer of them");
    else if (rc) structured_fail_memory(g->error);
    else l->items[l->n++] = (property){name, schema, required, JSON_GRAMMAR_NONE, JSON_GRAMMAR_NONE};
}

/* In the order of propertyOrdering, if given, then in the order of properties; required names without a schema come
   last. */
static void list_properties(json_grammar *g, const json_t *schema, property_list *l) {
    json_t *properties = json_object_get(schema, "properties"), *one;
    const json_t *required = json_object_get(schema, "required"), *order = json_object_get(schema, "propertyOrdering");
    const char *name;
    if (properties && !json_is_object(properties)) json_grammar_wrong(g, "properties", "an object");
    if (required && !json_is_array(required) && !json_is_boolean(required))
        json_grammar_wrong(g, "required", "an array of names");
    for (size_t i = 0; i < json_array_size(order); i++) {
        name = json_string_value(json_array_get(order, i));
        one = name ? json_object_get(properties, name) : NULL;
        if (one && !json_grammar_is_never(g, one)) add_property(g, l, name, one, json_grammar_is_in(required, name));
    }
    json_object_foreach(properties, name, one) {
        const bool never = json_grammar_is_never(g, one);
        if (never && json_grammar_is_in(required, name))
            json_grammar_wrong(g, "required", "names of properties that may have a value");
        if (never && !g->strict && !json_is_false(one)) {
            const size_t before = json_grammar_go_to(g, "properties");
            json_grammar_drop(g, name, "no value fits it: it is not written");
            json_grammar_go_back(g, before);
        }
        if (never) bar_property(g, l, name);
        else add_property(g, l, name, one, json_grammar_is_in(required, name));
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        if (!name) json_grammar_wrong(g, "required", "an array of names");
        else if (json_grammar_is_in(l->barred, name)) continue;
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

static bool json_grammar_begins(const char *name, const char *with, size_t n) {
    return is_plain(name) && strncmp(name, with, n) == 0;
}

/* Of the first character of n bytes; names are UTF-8. */
static size_t character_length(const char *name, size_t n) {
    BASE_ASSERT(n > 0);
    return (size_t)BASE_MAX(base_utf8_length((const unsigned char *)name, n), 1);
}

/* A character in a class. */
static void put_class_character(json_grammar *g, base_buffer *out, const char *c, size_t n) {
    if (n > 1) json_grammar_check(g, json_grammar_failed(g) ? 0 : base_buffer_append(out, c, n));
    else json_grammar_check(g, json_grammar_failed(g) ? 0 : base_buffer_printf(out, "\\x%02X", (unsigned char)*c));
}

/* Names that share the first n bytes with the i-th name and then differ from all names of the list. */
static void put_branch(json_grammar *g, base_buffer *out, const property_list *l, size_t i, size_t n) {
    BASE_ASSERT(i < l->n && n <= strlen(l->items[i].name));
    const char *prefix = l->items[i].name;
    bool is_name = false;
    json_grammar_put(g, out, n == 0 ? " " : " | ");
    if (!json_grammar_failed(g)) json_grammar_check(g, json_grammar_literal(out, prefix, n));
    json_grammar_put(g, out, " ([^\"\\\\\\x00-\\x1F\\x7F");
    for (size_t k = 0; k < l->n; k++) {
        const char *rest = l->items[k].name + n;
        if (!json_grammar_begins(l->items[k].name, prefix, n)) continue;
        if (*rest) put_class_character(g, out, rest, character_length(rest, strlen(rest)));
        else is_name = true;
    }
    json_grammar_put(g, out, is_name ? "] plain*)" : "] plain*)?");
}

/* Is no name before the i-th one that begins with its first n bytes? */
static bool is_first(const property_list *l, size_t i, size_t n) {
    BASE_ASSERT(i < l->n);
    for (size_t k = 0; k < i; k++)
        if (json_grammar_begins(l->items[k].name, l->items[i].name, n)) return false;
    return true;
}

/* Quoted names outside of the list: for each prefix of a listed name, the continuations that no listed name has. */
static void put_names_outside(json_grammar *g, base_buffer *out, const property_list *l) {
    bool any = false;
    json_grammar_put(g, out, "\"\\\"\" (");
    for (size_t i = 0; i < l->n && !json_grammar_failed(g); i++) {
        const char *name = l->items[i].name;
        for (size_t n = 0, bytes = strlen(name); is_plain(name) && n <= bytes && !json_grammar_failed(g);) {
            if (is_first(l, i, n)) put_branch(g, out, l, i, n);
            any = true;
            n += n < bytes ? character_length(name + n, bytes - n) : 1;
        }
    }
    json_grammar_put(g, out, any ? ") \"\\\"\"" : "plain*) \"\\\"\"");
}

/* ... and outside of the barred names. */
static void put_other_names(json_grammar *g, base_buffer *out, const property_list *l) {
    const size_t n_barred = json_array_size(l->barred);
    property *names = base_calloc(l->n + n_barred + 1, sizeof(*names));
    if (!names) {
        structured_fail_memory(g->error);
        return;
    }
    if (l->n > 0) memcpy(names, l->items, l->n * sizeof(*names));
    for (size_t i = 0; i < n_barred; i++) names[l->n + i].name = json_string_value(json_array_get(l->barred, i));
    put_names_outside(g, out, &(property_list){.items = names, .n = l->n + n_barred});
    base_free(names);
}

/* ---- names ---- */

/* additionalProperties. Without it other properties are allowed only where the schema lists none. */
static void read_additional(json_grammar *g, const json_t *schema, property_list *l) {
    const json_t *others = json_object_get(schema, "additionalProperties");
    const bool lists = json_object_get(schema, "properties") || json_object_get(schema, "required") ||
                       json_object_get(schema, "patternProperties");
    if (others && !json_is_boolean(others) && !json_is_object(others))
        json_grammar_wrong(g, "additionalProperties", "true, false or a schema");
    if (json_grammar_is_never(g, others)) others = json_grammar_own(g, json_boolean(false));
    l->additional = others ? others : json_grammar_own(g, json_boolean(!lists));
}

/* What propertyNames may have: the constraints of a string. */
static void read_names(json_grammar *g, const json_t *schema, property_list *l) {
    static const char *const known[] = {"type", "pattern", "minLength", "maxLength", "format", "enum", "const"};
    const json_t *names = json_object_get(schema, "propertyNames"), *ref = json_object_get(names, "$ref");
    json_t *rest;
    if (!names || json_is_true(names) || json_grammar_failed(g)) return;
    if (json_is_string(ref) && !json_schema_constrains(names, "$ref"))
        names = json_schema_resolve(g->document, json_string_value(ref));
    if (json_is_false(names)) { /* only the object without properties */
        l->allowed = json_grammar_own(g, json_array());
        return;
    }
    rest = json_is_object(names) ? json_copy((json_t *)names) : NULL;
    for (size_t i = 0; i < BASE_ARRAY_LEN(known); i++) json_object_del(rest, known[i]);
    const bool is_known = rest && !json_schema_constrains(rest, NULL);
    json_decref(rest);
    if (!is_known) {
        json_grammar_unsupported(g, "propertyNames", "give pattern, format, minLength, maxLength, enum or const", NULL);
        return;
    }
    size_t before = json_grammar_go_to(g, "propertyNames");
    json_grammar_text_rule_read(g, names, &l->names);
    json_grammar_go_back(g, before);
    l->allowed = json_object_get(names, "enum");
    if (json_object_get(names, "const"))
        l->allowed = json_grammar_own(g, json_pack("[O]", json_object_get(names, "const")));
    if (l->allowed && !json_is_array(l->allowed)) json_grammar_wrong(g, "propertyNames", "an array for enum");
}

static bool limits_names(const property_list *l) { return l->allowed || !json_grammar_text_rule_is_empty(&l->names); }

static bool allows_name(const property_list *l, const char *name) {
    return (!l->allowed || json_grammar_is_in(l->allowed, name)) && json_grammar_text_rule_admits(&l->names, name);
}

/* Leaves out listed properties with names that propertyNames refuses, and lists the names of its enum. */
static void apply_names(json_grammar *g, property_list *l) {
    size_t n = 0;
    for (size_t i = 0; i < l->n && !json_grammar_failed(g); i++) {
        if (allows_name(l, l->items[i].name)) l->items[n++] = l->items[i];
        else if (l->items[i].required)
            json_grammar_wrong(g, "propertyNames", "a schema that allows the required names");
    }
    l->n = n;
    if (!l->allowed || json_is_false(l->additional)) return;
    for (size_t i = 0; i < json_array_size(l->allowed); i++) {
        const char *name = json_string_value(json_array_get(l->allowed, i));
        if (name && allows_name(l, name)) add_property(g, l, name, l->additional, false);
    }
    l->additional = json_grammar_own(g, json_false()); /* all of them are listed now */
}

/* ---- other properties ---- */

/* Are the listed names apart from those of a pattern? */
static bool is_apart(const property_list *l, const regex *pattern) {
    for (size_t i = 0; i < l->n; i++)
        if (regex_matches(pattern, l->items[i].name)) return false;
    for (size_t i = 0; i < json_array_size(l->barred); i++)
        if (regex_matches(pattern, json_string_value(json_array_get(l->barred, i)))) return false;
    return true;
}

static void put_other(json_grammar *g, base_buffer *out, const json_t *schema) {
    json_grammar_put(g, out, " \":\" sp");
    json_grammar_visit_inside(g, schema, out);
}

static void put_additional(json_grammar *g, property_list *l) {
    BASE_ASSERT(l->others != JSON_GRAMMAR_NONE);
    base_buffer e = json_grammar_expression();
    size_t before = json_grammar_go_to(g, "additionalProperties");
    json_grammar_put(g, &e, " ");
    if (!limits_names(l)) put_other_names(g, &e, l);
    else if (l->n == 0 && !l->barred) json_grammar_put_text(g, &l->names, &e);
    else { /* of the names that a pattern, or lengths, of propertyNames allow, those of the list cannot be left out */
        json_grammar_unsupported(g, "propertyNames",
                                 "other properties could have a listed name: leave additionalProperties out, or "
                                 "give enum",
                                 NULL);
        put_other_names(g, &e, l);
    }
    put_other(g, &e, l->additional);
    json_grammar_end_rule(g, l->others, &e);
    json_grammar_go_back(g, before);
}

/* patternProperties: patterns that exclude each other, and the listed names. */
static void put_patterns(json_grammar *g, const json_t *patterns, property_list *l) {
    regex *parsed[MAX_PATTERNS] = {NULL};
    base_buffer e = json_grammar_expression();
    char why[REGEX_WHY_BYTES];
    const char *key;
    json_t *schema;
    int n = 0;
    size_t before = json_grammar_go_to(g, "patternProperties");
    json_object_foreach((json_t *)patterns, key, schema) {
        if (json_grammar_failed(g) || n == MAX_PATTERNS || json_grammar_is_never(g, schema)) continue;
        regex *r = parsed[n] = regex_parse(key, why);
        if (!r) {
            if (why[0]) json_grammar_unsupported(g, key, why, NULL);
            else structured_fail_memory(g->error);
            continue;
        }
        for (int i = 0; i < n; i++)
            if (regex_may_overlap(parsed[i], r))
                json_grammar_unsupported(
                    g, key, "a name could match two patterns: begin each with ^ and another character", NULL);
        if (!is_apart(l, r)) json_grammar_unsupported(g, key, "it matches the name of a property", NULL);
        json_grammar_put(g, &e, n > 0 ? " | \"\\\"\"" : " \"\\\"\"");
        if (!json_grammar_failed(g)) json_grammar_check(g, regex_put(r, REGEX_JSON, &e));
        json_grammar_put(g, &e, " \"\\\"\"");
        put_other(g, &e, schema);
        n++;
    }
    if (json_object_size(patterns) > MAX_PATTERNS)
        json_grammar_unsupported(g, NULL, "give at most " JSON_GRAMMAR_TEXT(MAX_PATTERNS) " patterns", NULL);
    json_grammar_go_back(g, before);
    for (int i = 0; i < MAX_PATTERNS; i++) regex_free(parsed[i]);
    if (n > 0) l->others = json_grammar_new_rule(g);
    if (n > 0) json_grammar_end_rule(g, l->others, &e);
    base_buffer_free(&e);
}

/* The rule of the properties that are not listed. Beside patternProperties only names that match a pattern are written,
 * whatever additionalProperties allows. */
static void find_others(json_grammar *g, const json_t *schema, property_list *l) {
    const json_t *patterns = json_object_get(schema, "patternProperties");
    if (patterns && !json_is_object(patterns)) json_grammar_wrong(g, "patternProperties", "an object");
    if (json_object_size(patterns) > 0 && limits_names(l))
        json_grammar_unsupported(g, "patternProperties", "leave it out beside propertyNames", NULL);
    if (json_grammar_failed(g)) return;
    if (json_object_size(patterns) > 0 && !limits_names(l)) put_patterns(g, patterns, l);
    else if (!json_is_false(l->additional)) {
        l->others = json_grammar_new_rule(g);
        put_additional(g, l);
    }
}

/* ---- listed properties ---- */

static void put_pair(json_grammar *g, const property *p, base_buffer *out) {
    json_t *name = json_string(p->name);
    size_t before = json_grammar_go_to(g, "properties");
    json_grammar_go_to(g, p->name);
    if (name) json_grammar_put_json(g, out, name);
    else structured_fail_memory(g->error);
    json_grammar_put(g, out, " \":\" sp");
    if (p->schema) json_grammar_visit_inside(g, p->schema, out);
    else json_grammar_put(g, out, " value");
    json_grammar_go_back(g, before);
    json_decref(name);
}

/* Rules for each property, and for what may follow where something came before it. */
static void make_rules(json_grammar *g, property_list *l) {
    for (size_t i = l->n; i-- > 0 && !json_grammar_failed(g);) {
        property *p = &l->items[i];
        base_buffer pair = json_grammar_expression(), more = json_grammar_expression();
        int next = i + 1 < l->n ? l->items[i + 1].more : JSON_GRAMMAR_NONE;
        p->pair = json_grammar_new_rule(g);
        p->more = json_grammar_new_rule(g);
        put_pair(g, p, &pair);
        json_grammar_end_rule(g, p->pair, &pair);
        json_grammar_put(g, &more, " (\",\" sp");
        json_grammar_put_rule(g, &more, p->pair);
        json_grammar_put(g, &more, p->required ? ")" : ")?");
        if (next != JSON_GRAMMAR_NONE) json_grammar_put_rule(g, &more, next);
        else if (l->others != JSON_GRAMMAR_NONE) {
            json_grammar_put(g, &more, " (\",\" sp");
            json_grammar_put_rule(g, &more, l->others);
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
        json_grammar_put_rule(g, out, l->items[i].pair);
        if (i + 1 < l->n) json_grammar_put_rule(g, out, l->items[i + 1].more);
        else if (l->others != JSON_GRAMMAR_NONE) {
            json_grammar_put(g, out, " (\",\" sp");
            json_grammar_put_rule(g, out, l->others);
            json_grammar_put(g, out, ")*");
        }
        may_be_empty = !l->items[i].required;
    }
    if (may_be_empty && l->others != JSON_GRAMMAR_NONE) {
        if (l->n > 0) json_grammar_put(g, out, " |");
        json_grammar_put_rule(g, out, l->others);
        json_grammar_put(g, out, " (\",\" sp");
        json_grammar_put_rule(g, out, l->others);
        json_grammar_put(g, out, ")*");
    }
    json_grammar_put(g, out, may_be_empty ? ")?" : ")");
}

/* ---- a number of properties ---- */

typedef struct counted {
    int min, max; /* max: JSON_GRAMMAR_NONE: any number */
    int most;     /* numbers above it are as good as it */
    int *rules;   /* [n + 1][most + 1]; JSON_GRAMMAR_NONE: it cannot be reached, or has no end */
} counted;

static int *counted_rule(const counted *c, size_t i, int k) {
    BASE_ASSERT(k >= 0 && c->most >= 1);
    return &c->rules[i * (size_t)(c->most + 1) + (size_t)BASE_MIN(k, c->most)];
}

/* Any other properties after k ones. Returns whether there is a number of them. */
static bool put_counted_others(json_grammar *g, const property_list *l, const counted *c, int k, base_buffer *out) {
    BASE_ASSERT(k >= 0);
    int low = BASE_MAX(c->min - k, 0), high = c->max == JSON_GRAMMAR_NONE ? JSON_GRAMMAR_NONE : c->max - k;
    if (l->others == JSON_GRAMMAR_NONE || high == 0) {
        json_grammar_put(g, out, " \"\"");
        return low == 0;
    }
    json_grammar_put(g, out, " (");
    if (k == 0) json_grammar_put_rule(g, out, l->others);
    json_grammar_put(g, out, " (\",\" sp");
    json_grammar_put_rule(g, out, l->others);
    json_grammar_put(g, out, ")");
    const int before = k == 0;
    json_grammar_put_times(g, out, BASE_MAX(low - before, 0), high == JSON_GRAMMAR_NONE ? high : high - before);
    json_grammar_put(g, out, low == 0 ? ")?" : ")");
    return true;
}

/* What may follow where the i-th property is next, and k came before. */
static bool put_counted_at(json_grammar *g, const property_list *l, const counted *c, size_t i, int k,
                           base_buffer *out) {
    BASE_ASSERT(i < l->n && k >= 0);
    const property *p = &l->items[i];
    bool any = false;
    const int taken = c->max != JSON_GRAMMAR_NONE && k >= c->max ? JSON_GRAMMAR_NONE : *counted_rule(c, i + 1, k + 1),
              skipped = *counted_rule(c, i + 1, k);
    if (taken != JSON_GRAMMAR_NONE) {
        if (k > 0) json_grammar_put(g, out, " \",\" sp");
        json_grammar_put_rule(g, out, p->pair);
        json_grammar_put_rule(g, out, taken);
        any = true;
    }
    if (p->required || skipped == JSON_GRAMMAR_NONE) return any;
    if (any) json_grammar_put(g, out, " |");
    json_grammar_put_rule(g, out, skipped);
    return true;
}

static void put_counted(json_grammar *g, property_list *l, counted *c, base_buffer *out) {
    for (size_t i = 0; i < l->n && !json_grammar_failed(g); i++) {
        base_buffer pair = json_grammar_expression();
        put_pair(g, &l->items[i], &pair);
        json_grammar_end_rule(g, l->items[i].pair = json_grammar_new_rule(g), &pair);
    }
    for (size_t i = l->n + 1; i-- > 0 && !json_grammar_failed(g);)
        for (int k = c->most; k >= 0 && !json_grammar_failed(g); k--) {
            base_buffer e = json_grammar_expression();
            const bool any = i == l->n ? put_counted_others(g, l, c, k, &e) : put_counted_at(g, l, c, i, k, &e);
            *counted_rule(c, i, k) = any ? json_grammar_new_rule(g) : JSON_GRAMMAR_NONE;
            if (any) json_grammar_end_rule(g, *counted_rule(c, i, k), &e);
            base_buffer_free(&e);
        }
    if (json_grammar_failed(g)) return;
    if (c->rules[0] == JSON_GRAMMAR_NONE) json_grammar_wrong(g, "minProperties", "a number that the properties allow");
    else json_grammar_put_rule(g, out, c->rules[0]);
}

/* Has it written the properties, because their number is limited? */
static bool json_grammar_count_properties(json_grammar *g, const json_t *schema, property_list *l, base_buffer *out) {
    counted c = {.min = json_grammar_size_of(g, schema, "minProperties", 0),
                 .max = json_grammar_size_of(g, schema, "maxProperties", JSON_GRAMMAR_NONE)};
    if (json_grammar_failed(g) || (c.min == 0 && c.max == JSON_GRAMMAR_NONE)) return false;
    if (c.max != JSON_GRAMMAR_NONE && c.max < c.min) json_grammar_wrong(g, "maxProperties", "at least minProperties");
    if (l->others != JSON_GRAMMAR_NONE && c.min > 1) /* two others could have one name */
        json_grammar_unsupported(g, "minProperties",
                                 "above 1 it needs listed names: give properties, or propertyNames with enum", NULL);
    c.most = BASE_MAX(c.max, c.min);
    c.most = BASE_MAX(c.most, 1);
    const size_t n = (l->n + 1) * (size_t)(c.most + 1);
    if (n > MAX_COUNTED)
        json_grammar_unsupported(g, c.max > c.min ? "maxProperties" : "minProperties",
                                 "give a smaller number, or fewer properties", NULL);
    if (json_grammar_failed(g) || n > MAX_COUNTED) return false;
    c.rules = base_alloc(n * sizeof(*c.rules));
    if (!c.rules) structured_fail_memory(g->error);
    else put_counted(g, l, &c, out);
    base_free(c.rules);
    return true;
}

/* ---- objects ---- */

static bool is_any_object(const json_t *schema) {
    static const char *const names[] = {"properties", "additionalProperties", "required", "patternProperties",
                                        "propertyNames", "minProperties", "maxProperties"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
        if (json_object_get(schema, names[i])) return false;
    return true;
}

static void put_properties(json_grammar *g, property_list *l, base_buffer *out) {
    bool all_required = true;
    for (size_t i = 0; i < l->n; i++) all_required = all_required && l->items[i].required;
    if (!all_required || l->others != JSON_GRAMMAR_NONE) {
        make_rules(g, l);
        put_beginnings(g, l, out);
        return;
    }
    for (size_t i = 0; i < l->n && !json_grammar_failed(g); i++) { /* all of them, in order, and no others */
        if (i > 0) json_grammar_put(g, out, " \",\" sp");
        put_pair(g, &l->items[i], out);
    }
}

void json_grammar_put_object(json_grammar *g, const json_t *schema, base_buffer *out) {
    property_list l = {.others = JSON_GRAMMAR_NONE, .names = {.max = JSON_GRAMMAR_NONE}};
    if (is_any_object(schema)) {
        json_grammar_put(g, out, " object");
        return;
    }
    read_additional(g, schema, &l);
    list_properties(g, schema, &l);
    read_names(g, schema, &l);
    if (!json_grammar_failed(g) && limits_names(&l)) apply_names(g, &l);
    if (!json_grammar_failed(g)) find_others(g, schema, &l);
    json_grammar_put(g, out, " \"{\"");
    if (!json_grammar_failed(g) && !json_grammar_count_properties(g, schema, &l, out)) put_properties(g, &l, out);
    json_grammar_put(g, out, " \"}\"");
    json_grammar_text_rule_free(&l.names);
    base_free(l.items);
}
