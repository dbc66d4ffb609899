/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_internal.h: what the files of json_grammar.h share. No other file includes it.
 *
 *   json_grammar_write      text of rules and expressions; places and errors
 *   json_grammar_never      schemas that no value fits
 *   json_grammar_objects    properties, their names and their number
 *   json_grammar_arrays     items, their number, unique ones
 *   json_grammar_strings    lengths, patterns, formats
 *   json_grammar_numbers    bounds, multiples
 *   json_grammar            types, alternatives, references: calls the files above, which come back through
 *         json_grammar.visit
 *
 * An expression is text in a buffer of its visitor's; whole rules go to the grammar's text.
 */
#ifndef STRUCTURED_JSON_GRAMMAR_INTERNAL_H
#define STRUCTURED_JSON_GRAMMAR_INTERNAL_H

#include "base/memory.h"
#include "structured/json_grammar.h"
#include "structured/regex.h"
#include "structured/structured_error.h"

#define JSON_GRAMMAR_NO_TARGET (-1)
#define JSON_GRAMMAR_NONE (-1)
#define JSON_GRAMMAR_NAME_BYTES 32
#define JSON_GRAMMAR_TEXT_(x) #x
#define JSON_GRAMMAR_TEXT(x) JSON_GRAMMAR_TEXT_(x)

typedef struct ref_target {
    const json_t *schema;
    int rule;
} ref_target;

typedef struct ref_edge {
    int from, to; /* indices of targets */
} ref_edge;

struct json_grammar {
    base_buffer text;
    json_t *owned;   /* an array: merged schemas, which targets may point into */
    json_t *dropped; /* an array of texts */
    int n_rules;

    /* of the schema that is added */
    void (*visit)(json_grammar *g, const json_t *schema, base_buffer *out); /* appends the expression of a schema */
    const json_t *document;
    rp_error *error;
    bool strict;
    bool spoiled;                          /* not strict: the schema that is visited is malformed, or allows nothing: it
                                              is visited again ... */
    char spoiler[JSON_GRAMMAR_NAME_BYTES]; /* ... without this keyword; "": any value will do */
    bool too_large;                        /* not strict: the schema that is added has no rules */
    base_buffer place;
    int check_steps;              /* left, of all schemas that are added (json_schema_check.h) */
    int depth, n_visits, n_never; /* n_never: schemas that json_grammar_is_never looked at */
    int target;                   /* the target that begins here, with nothing written since; JSON_GRAMMAR_NO_TARGET */
    ref_target targets[JSON_GRAMMAR_REFS];
    ref_edge edges[JSON_GRAMMAR_EDGES];
    int n_targets, n_edges;
};

/* ---- json_grammar_write.c: after an error, or in a spoiled schema, each does nothing ---- */

bool json_grammar_failed(const json_grammar *g);
/* An error of a buffer. */
void json_grammar_check(json_grammar *g, int rc);
void json_grammar_put(json_grammar *g, base_buffer *out, const char *text);
void json_grammar_put_rule(json_grammar *g, base_buffer *out, int rule);
/* {m,n}; n < 0: any number. */
void json_grammar_put_times(json_grammar *g, base_buffer *out, int m, int n);
/* A value as a literal, compact. */
void json_grammar_put_json(json_grammar *g, base_buffer *out, const json_t *value);
static inline base_buffer json_grammar_expression(void) { return BASE_BUFFER(JSON_GRAMMAR_BYTES); }
static inline int json_grammar_new_rule(json_grammar *g) { return g->n_rules++; }
/* A rule of that number; frees the expression. */
void json_grammar_end_rule(json_grammar *g, int rule, base_buffer *e);
/* The expression of a schema, after written text. */
void json_grammar_visit_inside(json_grammar *g, const json_t *schema, base_buffer *out);
/* Keeps a schema that was made as long as the grammar: takes it over. Returns it; NULL: out of memory, an error. */
const json_t *json_grammar_own(json_grammar *g, json_t *schema);

/* The place: go_back returns to what go_to returned. */
size_t json_grammar_go_to(json_grammar *g, const char *name);
size_t json_grammar_go_to_index(json_grammar *g, const char *name, size_t i);
void json_grammar_go_back(json_grammar *g, size_t before);
const char *json_grammar_place(const json_grammar *g);
/* The schema is malformed, or allows nothing: refused where strict, else without this keyword. */
void json_grammar_wrong(json_grammar *g, const char *name, const char *expected);
/* A limit: refused where strict; else the schema that is added allows anything. */
void json_grammar_too_large(json_grammar *g, const char *why);
/* Notes what is dropped at the place, or a keyword there. */
void json_grammar_drop(json_grammar *g, const char *name, const char *why);
/* It cannot be honoured: refused where strict; else any value will do where `out` is given. */
void json_grammar_unsupported(json_grammar *g, const char *name, const char *why, base_buffer *out);

/* A bound of a size: minItems, maxLength, ...; `none` where there is none, or it cannot be honoured. */
int json_grammar_size_of(json_grammar *g, const json_t *schema, const char *name, int none);

/* ---- json_grammar_never.c ---- */

/* Is it known that no value fits the schema? Looks at JSON_GRAMMAR_VISITS schemas at most, of a schema that is
   added. */
bool json_grammar_is_never(json_grammar *g, const json_t *schema);

/* ---- the types ---- */

void json_grammar_put_object(json_grammar *g, const json_t *schema, base_buffer *out);
void json_grammar_put_array(json_grammar *g, const json_t *schema, base_buffer *out);
void json_grammar_put_string(json_grammar *g, const json_t *schema, base_buffer *out);
/* whole: integers only. */
void json_grammar_put_number(json_grammar *g, const json_t *schema, bool whole, base_buffer *out);

/* ---- json_grammar_strings.c ---- */

/* The constraints on a string: its lengths, and its pattern, or that of its format. */
typedef struct json_grammar_text_rule {
    int min, max;   /* characters; max: JSON_GRAMMAR_NONE: any number */
    regex *pattern; /* NULL: none */
} json_grammar_text_rule;

/* Reads a schema's; what cannot be honoured is an error or left out. Release it in any case. */
void json_grammar_text_rule_read(json_grammar *g, const json_t *schema, json_grammar_text_rule *out);
void json_grammar_text_rule_free(json_grammar_text_rule *rule);
bool json_grammar_text_rule_admits(const json_grammar_text_rule *rule, const char *text);
bool json_grammar_text_rule_is_empty(const json_grammar_text_rule *rule);
/* The string in quotes. */
void json_grammar_put_text(json_grammar *g, const json_grammar_text_rule *rule, base_buffer *out);

#endif
