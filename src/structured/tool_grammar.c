/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.c: see tool_grammar.h. Owns nothing. */
#include "structured/tool_grammar.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/buffer.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "structured/json_grammar.h"
#include "structured/json_schema.h"
#include "structured/json_schema_check.h"
#include "structured/regex.h"
#include "structured/structured_error.h"
#include "structured/tool_heads.h"
#include "structured/tool_literals.h"

#define MAX_KEY_BYTES 256 /* a name of an argument, with its marks, is a head */

typedef struct writer {
    const answer_form *answer;
    const tool_form *form;
    json_grammar *g;
    json_t *dropped; /* an array of texts: what is not enforced */
    rp_error *err;
    int n_rules;          /* rules with a number */
    int n_literals;       /* schemas whose values are literals */
    int check_steps;      /* left (json_schema_check.h) */
    char value_until[16]; /* rule of text up to and with an argument's end; "": none yet */
} writer;

/* ---- text ---- */

static void put(writer *w, base_buffer *b, const char *text) {
    if (w->err->code) return;
    int rc = base_buffer_append_str(b, text);
    if (rc == RP_ERR_LIMIT)
        structured_fail(w->err, RP_ERR_INVALID, "tools", "the tools' grammar has more than %zu bytes: give less",
                        b->limit);
    else if (rc) structured_fail_memory(w->err);
}

/* An error of a buffer with an answer's text form. */
static void check_text(writer *w, int rc) {
    if (rc == RP_ERR_LIMIT)
        structured_fail(w->err, RP_ERR_INVALID, NULL,
                        "the form of the answer is too large: its grammar has more than %zu bytes", JSON_GRAMMAR_BYTES);
    else if (rc) structured_fail_memory(w->err);
}

#define DROPPED_BYTES 512

/* Notes what is not enforced. */
static void put_dropped(writer *w, const char *fmt, ...) BASE_PRINTF(2, 3);
static void put_dropped(writer *w, const char *fmt, ...) {
    char text[DROPPED_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!w->err->code && json_array_append_new(w->dropped, base_json_string(text, strlen(text))))
        structured_fail_memory(w->err);
}

/* A literal, with a space after it. */
static void put_literal(writer *w, base_buffer *b, const char *bytes, size_t n) {
    if (n == 0 || w->err->code) return;
    if (json_grammar_literal(b, bytes, n)) structured_fail_memory(w->err);
    put(w, b, " ");
}

/* A text of a form: '\n' is a gap, ' ' an optional space, but for one before a letter. */
static void put_text(writer *w, base_buffer *b, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n ");
        while (text[n] == ' ' && text[n + 1] >= 'a' && text[n + 1] <= 'z') n += 1 + strcspn(text + n + 1, "\n ");
        put_literal(w, b, text, n);
        text += n;
        if (*text) put(w, b, *text++ == '\n' ? "gap " : "sp ");
    }
}

static base_buffer *rules(const writer *w) { return json_grammar_text(w->g); }

/* The state after a character, of matching `text` (Knuth, Morris, Pratt, 1977). States are bytes; in UTF-8 they are
   where characters begin. */
static size_t next_state(const char *text, size_t n, size_t state, const char *c, size_t n_c) {
    BASE_ASSERT(state < n);
    for (size_t k = state + n_c; k >= n_c; k--) /* the longest prefix that is a suffix of text[0..state) c */
        if (k <= n && memcmp(text + k - n_c, c, n_c) == 0 && memcmp(text, text + state + n_c - k, k - n_c) == 0)
            return k;
    return 0;
}

static size_t character_bytes(const char *text, size_t n) {
    const int bytes = base_utf8_length((const unsigned char *)text, n);
    BASE_ASSERT(bytes > 0);
    return (size_t)bytes;
}

/* Is the character at i in text[0..i), too? */
static bool is_before(const char *text, size_t i, size_t length) {
    for (size_t k = 0; k < i; k++)
        if (memcmp(text + k, text + i, length) == 0) return true;
    return false;
}

/* Rules of any text up to and with the first `end`; writes the name of the first one. A rule for each prefix of
   `end`. */
static void put_until(writer *w, const char *end, char name[16]) {
    const size_t n = strlen(end);
    const int number = w->n_rules++;
    char part[64];
    BASE_ASSERT(n > 0);
    snprintf(name, 16, "u%d-0", number);
    for (size_t state = 0, length; state < n; state += character_bytes(end + state, n - state)) {
        snprintf(part, sizeof(part), "u%d-%zu ::= ", number, state);
        put(w, rules(w), part);
        for (size_t i = 0; i < n; i += length) {
            length = character_bytes(end + i, n - i);
            if (is_before(end, i, length)) continue;
            const size_t next = next_state(end, n, state, end + i, length);
            put_literal(w, rules(w), end + i, length);
            snprintf(part, sizeof(part), next == n ? "| " : "u%d-%zu | ", number, next);
            put(w, rules(w), part);
        }
        put(w, rules(w), "[^");
        for (size_t i = 0; i < n; i += length) {
            length = character_bytes(end + i, n - i);
            if (is_before(end, i, length)) continue;
            snprintf(part, sizeof(part), length == 1 ? "\\x%02X" : "\\u%04X",
                     (unsigned)base_utf8_decode((const unsigned char *)end + i, (int)length));
            put(w, rules(w), part);
        }
        snprintf(part, sizeof(part), "\\x00] u%d-0\n", number);
        put(w, rules(w), part);
    }
}

/* ---- calls ---- */

/* Arguments are an object, whatever type the schema has. Any one: no schema that could be enforced. */
static bool is_any_object(writer *w, const tool_spec *t) {
    const json_t *type = json_object_get(t->schema, "type");
    const bool is_object = json_is_string(type) && strcasecmp(json_string_value(type), "object") == 0;
    const bool is_wrong = !json_is_object(t->schema) || (type && !is_object);
    if (is_wrong && t->strict)
        structured_fail(w->err, RP_ERR_INVALID, t->place, "'%.80s': give a schema of type object", t->place);
    else if (is_wrong) put_dropped(w, "%.120s (a schema of another type than object)", t->place);
    return is_wrong || (!t->strict && w->answer->loose_tools) || (!type && !json_schema_constrains(t->schema, NULL));
}

static void put_json_arguments(writer *w, base_buffer *b, const tool_spec *t) {
    char rule[JSON_GRAMMAR_RULE_BYTES] = "object";
    if (t->schema && !is_any_object(w, t)) json_grammar_add(w->g, t->schema, t->place, t->strict, rule, w->err);
    put(w, b, t->schema ? rule : "\"{}\"");
    put(w, b, " ");
}

/* {"name": "f", "arguments": {...}} */
static void put_json_call(writer *w, base_buffer *b, const tool_spec *t) {
    BASE_ASSERT(w->form->body == TOOL_BODY_JSON);
    char key[80];
    put(w, b, "\"{\" ");
    if (w->form->id_key) {
        snprintf(key, sizeof(key), "\"\\\"%s\\\":\" sp \"\\\"\" [0-9]{1,4} \"\\\",\" sp ", w->form->id_key);
        put(w, b, key);
    }
    snprintf(key, sizeof(key), "\"\\\"%s\\\":\" sp \"\\\"", w->form->name_key);
    put(w, b, key);
    put(w, b, t->name);
    snprintf(key, sizeof(key), "\\\",\" sp \"\\\"%s\\\":\" sp ", w->form->arguments_key);
    put(w, b, key);
    put_json_arguments(w, b, t);
    put(w, b, "\"}\" ");
}

static void put_named_call(writer *w, base_buffer *b, const tool_spec *t) {
    BASE_ASSERT(w->form->body == TOOL_BODY_NAMED);
    put_text(w, b, w->form->before_name);
    put_literal(w, b, t->name, strlen(t->name));
    if (w->form->writes_id) {
        put_text(w, b, w->form->id_mark);
        put(w, b, "[0-9]{1,4} ");
    }
    put_text(w, b, w->form->after_name);
    put_json_arguments(w, b, t);
    put_text(w, b, w->form->after_arguments);
}

/* ---- arguments as text ---- */

/* Any text, and the argument's end. */
static void put_any_text(writer *w, base_buffer *b) {
    if (!w->value_until[0]) put_until(w, w->form->value_end, w->value_until);
    put(w, b, w->value_until);
    put(w, b, " ");
}

/* A property as a schema of its own, with the definitions that it may refer to. NULL: out of memory. */
static json_t *schema_of_property(const json_t *schema, const json_t *property) {
    static const char *const names[] = {"$defs", "definitions"};
    json_t *own = json_is_object(property) ? json_copy((json_t *)property) : json_object();
    for (size_t i = 0; own && i < 2; i++) {
        json_t *definitions = json_object_get(schema, names[i]);
        if (definitions && !json_object_get(own, names[i]) && json_object_set(own, names[i], definitions))
            return json_decref(own), NULL;
    }
    return own;
}

/* A line end that belongs to the marks; must: one, since the text has another one beside it. */
static void put_line(writer *w, base_buffer *b, bool must) {
    if (w->form->has_lines) put(w, b, must ? "\"\\x0A\" " : "line ");
}

/* One of the strings as text. */
static void put_listed_text(writer *w, base_buffer *b, const json_t *string) {
    BASE_ASSERT(json_is_string(string));
    const char *text = json_string_value(string);
    const size_t n = json_string_length(string);
    put_line(w, b, text[0] == '\n');
    put_literal(w, b, text, n);
    put_line(w, b, n > 0 && text[n - 1] == '\n');
    put_literal(w, b, w->form->value_end, strlen(w->form->value_end));
}

/* One of the strings that the keywords beside them allow; without one, any of them, or a problem. */
static void put_listed(writer *w, base_buffer *b, const tool_spec *t, const char *place, const json_t *property,
                       const json_t *listed) {
    const size_t n = json_is_string(listed) ? 1 : json_array_size(listed);
    size_t used = 0;
    put(w, b, "(");
    for (int any = 0; any < 2 && used == 0 && !w->err->code; any++) {
        if (any && t->strict)
            structured_fail(w->err, RP_ERR_INVALID, place, "'%.300s': give values that the keywords beside them allow",
                            place);
        else if (any) put_dropped(w, "%.200s (the keywords beside enum or const allow none of its values)", place);
        for (size_t i = 0; i < n && !w->err->code; i++) {
            const json_t *value = json_is_string(listed) ? listed : json_array_get(listed, i);
            if (!any && json_schema_check(property, property, value, &w->check_steps) == JSON_SCHEMA_MISFIT) continue;
            if (used++ > 0) put(w, b, "| ");
            put_listed_text(w, b, value);
        }
    }
    put(w, b, ") ");
}

static void put_value(writer *w, base_buffer *b, const tool_spec *t, const char *name, const json_t *property) {
    char rule[JSON_GRAMMAR_RULE_BYTES], place[256];
    const bool is_text = tool_heads_is_text(w->form, t, name, strlen(name));
    const json_t *listed = is_text ? tool_heads_listed(property) : NULL;
    snprintf(place, sizeof(place), "%.120s.properties.%.100s", t->place ? t->place : "", name);
    if (is_text && !listed) {
        put_line(w, b, false);
        put_any_text(w, b);
        return;
    }
    json_t *own = schema_of_property(t->schema, property);
    if (!own) structured_fail_memory(w->err);
    else if (listed) put_listed(w, b, t, place, own, listed);
    else json_grammar_add(w->g, own, place, t->strict, rule, w->err);
    json_decref(own);
    if (listed || w->err->code) return;
    put_line(w, b, false);
    put(w, b, rule);
    put(w, b, " ");
    put_line(w, b, false);
    put_literal(w, b, w->form->value_end, strlen(w->form->value_end));
}

/* A name that its marks end, or that is too long for a head, cannot be written. */
static bool is_writable(writer *w, const tool_spec *t, const char *name) {
    const char ends[] = {w->form->key_close[0], '\0'},
               *refused = !w->form->notation             ? ends
                          : w->form->notation->bare_keys ? ""
                                                         : TOOL_LITERALS_NAME_ENDS;
    const bool is_quoted = w->form->notation && w->form->notation->bare_keys,
               fits = strlen(name) <= MAX_KEY_BYTES &&
                      (is_quoted ? !strstr(name, w->form->notation->quotes[0]) : !name[strcspn(name, refused)]);
    char place[256];
    if (fits) return true;
    snprintf(place, sizeof(place), "%.120s.properties.%.100s", t->place ? t->place : "", name);
    if (t->strict)
        structured_fail(w->err, RP_ERR_UNSUPPORTED, place,
                        "'%.300s' is not supported: this model writes names without '%s', of at most %d bytes", place,
                        is_quoted ? w->form->notation->quotes[0] : refused, MAX_KEY_BYTES);
    else put_dropped(w, "%.200s (this model cannot write the name)", place);
    return false;
}

static void put_key(writer *w, base_buffer *b, const char *name, const char *rule, bool is_text) {
    BASE_ASSERT(w->form->body == TOOL_BODY_TEXT);
    put_text(w, b, w->form->key_open);
    if (name) put_literal(w, b, name, strlen(name));
    else put(w, b, rule);
    put_text(w, b, is_text || !w->form->key_close_json ? w->form->key_close : w->form->key_close_json);
}

static bool is_required(const json_t *schema, const char *name) {
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *one = json_string_value(json_array_get(required, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

/* A name, and its arguments in the order of the schema; without properties, any. */
static void put_text_call(writer *w, base_buffer *b, const tool_spec *t) {
    BASE_ASSERT(w->form->body == TOOL_BODY_TEXT);
    const char *name;
    json_t *one;
    put_literal(w, b, t->name, strlen(t->name));
    put_text(w, b, w->form->after_name);
    const bool any = t->schema && is_any_object(w, t);
    json_t *properties = any ? NULL : json_object_get(t->schema, "properties");
    json_object_foreach(properties, name, one) {
        const bool required = is_required(t->schema, name);
        if ((json_is_false(one) && !required) || !is_writable(w, t, name)) continue;
        put(w, b, required ? "" : "(");
        put_key(w, b, name, NULL, tool_heads_is_text(w->form, t, name, strlen(name)));
        put_value(w, b, t, name, one);
        put(w, b, required ? "" : ")? ");
    }
    if (any) {
        put(w, b, "(");
        put_key(w, b, NULL, "[A-Za-z0-9_.-]{1,64} ", true);
        put_line(w, b, false);
        put_any_text(w, b);
        put(w, b, ")* ");
    }
    put(w, b, "gap ");
}

/* ---- arguments as literals ---- */

#define LITERALS_DEPTH 24    /* of schemas inside of schemas */
#define LITERALS_VISITS 4000 /* schemas of all tools, those of $ref again at each use: beyond them values are any */

static void put_literal_value(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema, int depth);

static void put_character(writer *w, base_buffer *b, char c) { put_literal(w, b, &c, 1); }

static void put_comma(writer *w, base_buffer *b) { put(w, b, w->form->notation->has_escapes ? "\",\" sp " : "\",\" "); }

static void put_colon(writer *w, base_buffer *b) { put(w, b, w->form->notation->has_escapes ? "\":\" sp " : "\":\" "); }

/* Rules of any literals: "lvalue", "lobject", "lstring". */
static void put_literal_rules(writer *w) {
    BASE_ASSERT(w->form->body == TOOL_BODY_LITERALS);
    const tool_notation *notation = w->form->notation;
    base_buffer *text = rules(w);
    char until[16];
    if (!notation->has_escapes) put_until(w, notation->quotes[0], until);
    put(w, text, "lstring ::= ");
    if (notation->has_escapes) put(w, text, "string");
    else put_literal(w, text, notation->quotes[0], strlen(notation->quotes[0]));
    if (!notation->has_escapes) put(w, text, until);
    put(w, text, "\nlkey ::= ");
    put(w, text, notation->bare_keys ? "[A-Za-z0-9_.-]{1,64}" : "string");
    put(w, text, "\nlitem ::= lkey ");
    put_colon(w, text);
    put(w, text, "lvalue\nlobject ::= \"{\" (litem (");
    put_comma(w, text);
    put(w, text, "litem)*)? \"}\"\nlarray ::= \"[\" (lvalue (");
    put_comma(w, text);
    put(w, text, "lvalue)*)? \"]\"\nlvalue ::= lobject | larray | lstring | number | lboolean | ");
    put_literal(w, text, notation->names[2], strlen(notation->names[2]));
    put(w, text, "\nlboolean ::= ");
    put_literal(w, text, notation->names[0], strlen(notation->names[0]));
    put(w, text, "| ");
    put_literal(w, text, notation->names[1], strlen(notation->names[1]));
    put(w, text, "\n");
}

/* Can the notation write all strings of the value? */
static bool is_literal(const tool_form *form, const json_t *value) {
    const char *name;
    const json_t *one;
    if (form->notation->has_escapes) return true;
    if (json_is_string(value)) return !strstr(json_string_value(value), form->notation->quotes[0]);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!is_literal(form, json_array_get(value, i))) return false;
    json_object_foreach((json_t *)value, name, one) {
        if (strstr(name, form->notation->quotes[0]) || !is_literal(form, one)) return false;
    }
    return true;
}

static void put_json_text(writer *w, base_buffer *b, const json_t *value) {
    char *text = base_json_text(value, JSON_ENCODE_ANY);
    if (!text) structured_fail_memory(w->err);
    else put_literal(w, b, text, strlen(text));
    base_free(text);
}

static void put_literal_string(writer *w, base_buffer *b, const char *text, size_t n) {
    const tool_notation *notation = w->form->notation;
    json_t *string = notation->has_escapes ? base_json_string(text, n) : NULL;
    const size_t n_quote = strlen(notation->quotes[0]);
    if (notation->has_escapes && !string) structured_fail_memory(w->err);
    if (string) put_json_text(w, b, string);
    json_decref(string);
    if (notation->has_escapes) return;
    put_literal(w, b, notation->quotes[0], n_quote);
    put_literal(w, b, text, n);
    put_literal(w, b, notation->quotes[0], n_quote);
}

/* A name in an object: bare, where it is a word and the notation has such; always where it is an argument's in Python,
   which is_writable has checked. */
static void put_literal_name(writer *w, base_buffer *b, const char *name, bool is_argument) {
    const size_t n = strlen(name);
    bool is_word = n > 0 && n <= MAX_KEY_BYTES && name[0] != ' ' && name[n - 1] != ' ';
    for (size_t i = 0; i < n && is_word; i++)
        is_word = (unsigned char)name[i] >= 0x80 || isalnum((unsigned char)name[i]) || strchr("_.- ", name[i]);
    if (w->form->notation->bare_keys ? is_word : is_argument) put_literal(w, b, name, n);
    else put_literal_string(w, b, name, n);
    if (is_argument) put_text(w, b, w->form->key_close);
    else put_colon(w, b);
}

/* A value as it is. */
static void put_literal_json(writer *w, base_buffer *b, const json_t *value) {
    const char *const *names = w->form->notation->names;
    const char *name, *text = json_is_true(value)    ? names[0]
                              : json_is_false(value) ? names[1]
                              : json_is_null(value)  ? names[2]
                                                     : NULL;
    const json_t *one;
    size_t n = 0;
    if (text) put_literal(w, b, text, strlen(text));
    else if (json_is_string(value)) put_literal_string(w, b, json_string_value(value), json_string_length(value));
    else if (json_is_number(value)) put_json_text(w, b, value);
    else put_character(w, b, json_is_object(value) ? '{' : '[');
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i > 0) put_comma(w, b);
        put_literal_json(w, b, json_array_get(value, i));
    }
    json_object_foreach((json_t *)value, name, one) {
        if (n++ > 0) put_comma(w, b);
        put_literal_name(w, b, name, false);
        put_literal_json(w, b, one);
    }
    if (json_is_array(value)) put_character(w, b, ']');
    else if (json_is_object(value)) put_character(w, b, '}');
}

/* What the notation cannot have enforced: refused where strict, else any value. */
static void put_literal_any(writer *w, base_buffer *b, const tool_spec *t, const char *rule, const char *what) {
    if (t->strict)
        structured_fail(w->err, RP_ERR_UNSUPPORTED, t->place, "'%.300s': %s is not supported in calls of this model",
                        t->place, what);
    else put_dropped(w, "%.200s (%s, in calls of this model)", t->place, what);
    put(w, b, rule);
}

/* const or enum: those that the keywords beside them allow. */
static void put_literal_listed(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    const size_t n = fixed ? 1 : json_array_size(values);
    base_buffer e = BASE_BUFFER(JSON_GRAMMAR_BYTES);
    size_t used = 0;
    for (size_t i = 0; i < n && !w->err->code; i++) {
        const json_t *value = fixed ? fixed : json_array_get(values, i);
        if (!is_literal(w->form, value) ||
            json_schema_check(t->schema, schema, value, &w->check_steps) == JSON_SCHEMA_MISFIT)
            continue;
        put(w, &e, used++ > 0 ? "| " : "(");
        put_literal_json(w, &e, value);
    }
    if (used == 0) put_literal_any(w, b, t, "lvalue ", fixed ? "this const" : "this enum");
    else put(w, b, e.data);
    if (used > 0) put(w, b, ") ");
    base_buffer_free(&e);
}

/* Members in the order of the schema: "first" has those after which nothing was written yet, "l<rule>-<i>" those from
 * the i-th on with a comma before each. is_arguments: the members of a call. */
static void put_literal_members(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema, bool is_arguments,
                                int depth) {
    BASE_ASSERT(depth >= 0 && depth <= LITERALS_DEPTH);
    const int rule = w->n_rules++;
    const char *name, *between = "";
    char part[48];
    json_t *one;
    int i = 0;
    const bool is_bare = w->form->notation->bare_keys;
    bool must = false;
    put(w, b, "(");
    json_object_foreach(json_object_get(schema, "properties"), name, one) {
        const bool required = is_required(schema, name);
        if ((json_is_false(one) && !required) || ((is_arguments || is_bare) && !is_writable(w, t, name))) continue;
        base_buffer member = BASE_BUFFER(JSON_GRAMMAR_BYTES);
        put_literal_name(w, &member, name, is_arguments);
        put_literal_value(w, &member, t, one, depth + 1);
        snprintf(part, sizeof(part), "l%d-%d-m ::= ", rule, i);
        put(w, rules(w), part);
        put(w, rules(w), member.data ? member.data : "");
        snprintf(part, sizeof(part), "\nl%d-%d ::= (", rule, i);
        put(w, rules(w), part);
        put_comma(w, rules(w));
        snprintf(part, sizeof(part), required ? "l%d-%d-m) l%d-%d\n" : "l%d-%d-m)? l%d-%d\n", rule, i, rule, i + 1);
        put(w, rules(w), part);
        if (!must) {
            snprintf(part, sizeof(part), "l%d-%d-m l%d-%d ", rule, i, rule, i + 1);
            put(w, b, between);
            put(w, b, part);
            between = "| ";
        }
        must = must || required;
        base_buffer_free(&member);
        i++;
    }
    snprintf(part, sizeof(part), "l%d-%d ::= \"\"\n", rule, i);
    put(w, rules(w), part);
    put(w, b, i == 0 ? "\"\") " : must ? ") "
                                       : ")? ");
}

static void put_literal_object(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema, int depth) {
    if (!json_is_object(json_object_get(schema, "properties"))) {
        put(w, b, "lobject ");
        return;
    }
    put_character(w, b, '{');
    put_literal_members(w, b, t, schema, false, depth);
    put_character(w, b, '}');
}

static void put_literal_array(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema, int depth) {
    const json_t *items = json_object_get(schema, "items"), *low = json_object_get(schema, "minItems"),
                 *high = json_object_get(schema, "maxItems");
    const int rule = w->n_rules++;
    const json_int_t most = JSON_GRAMMAR_REPEATS, min = BASE_MIN(BASE_MAX(json_integer_value(low), 0), most),
                     max = json_is_integer(high) ? BASE_MIN(BASE_MAX(json_integer_value(high), min), most) : -1;
    char part[64];
    base_buffer item = BASE_BUFFER(JSON_GRAMMAR_BYTES);
    if (json_is_object(items)) put_literal_value(w, &item, t, items, depth + 1);
    else put(w, &item, "lvalue ");
    snprintf(part, sizeof(part), "l%d ::= ", rule);
    put(w, rules(w), part);
    put(w, rules(w), item.data ? item.data : "");
    put(w, rules(w), "\n");
    base_buffer_free(&item);
    if (max == 0) {
        put(w, b, "\"[]\" ");
        return;
    }
    snprintf(part, sizeof(part), "\"[\" (l%d (", rule);
    put(w, b, part);
    put_comma(w, b);
    if (max < 0) snprintf(part, sizeof(part), "l%d){%d,}", rule, (int)BASE_MAX(min - 1, 0));
    else snprintf(part, sizeof(part), "l%d){%d,%d}", rule, (int)BASE_MAX(min - 1, 0), (int)(max - 1));
    put(w, b, part);
    put(w, b, min > 0 ? ") \"]\" " : ")? \"]\" ");
}

static void put_literal_type(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema, const char *type,
                             int depth) {
    char rule[JSON_GRAMMAR_RULE_BYTES] = "";
    const bool is_string = strcasecmp(type, "string") == 0;
    if (strcasecmp(type, "object") == 0) put_literal_object(w, b, t, schema, depth);
    else if (strcasecmp(type, "array") == 0) put_literal_array(w, b, t, schema, depth);
    else if (strcasecmp(type, "boolean") == 0) put(w, b, "lboolean ");
    else if (strcasecmp(type, "null") == 0)
        put_literal(w, b, w->form->notation->names[2], strlen(w->form->notation->names[2]));
    else if (is_string && !w->form->notation->has_escapes) put(w, b, "lstring ");
    else if (is_string || strcasecmp(type, "number") == 0 || strcasecmp(type, "integer") == 0) {
        json_t *own = json_copy((json_t *)schema);
        if (!own || json_object_set_new(own, "type", json_string(type))) structured_fail_memory(w->err);
        else json_grammar_add(w->g, own, t->place ? t->place : "", t->strict, rule, w->err);
        json_decref(own);
        put(w, b, rule);
        put(w, b, " ");
    } else put_literal_any(w, b, t, "lvalue ", "this type");
}

/* Each of the types, or each of the schemas. */
static void put_literal_alternatives(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema,
                                     const json_t *list, bool types, int depth) {
    put(w, b, "(");
    for (size_t i = 0; i < json_array_size(list) && !w->err->code; i++) {
        const json_t *one = json_array_get(list, i);
        if (i > 0) put(w, b, "| ");
        if (!types) put_literal_value(w, b, t, one, depth + 1);
        else put_literal_type(w, b, t, schema, json_is_string(one) ? json_string_value(one) : "", depth);
    }
    put(w, b, ") ");
}

static void put_literal_value(writer *w, base_buffer *b, const tool_spec *t, const json_t *schema, int depth) {
    static const char *const refused[] = {"allOf", "not", "if", "patternProperties", "propertyNames", "minProperties",
                                          "maxProperties", "dependentRequired", "prefixItems", "uniqueItems",
                                          "contains", JSON_GRAMMAR_REFUSED};
    const json_t *type = json_object_get(schema, "type"), *any = json_object_get(schema, "anyOf"),
                 *ref = json_object_get(schema, "$ref"), *target = NULL;
    if (w->err->code) return;
    if (!any) any = json_object_get(schema, "oneOf");
    if (json_is_string(ref)) target = json_schema_resolve(t->schema, json_string_value(ref));
    for (size_t i = 0; i < BASE_ARRAY_LEN(refused); i++)
        if (json_object_get(schema, refused[i]) && !json_is_false(json_object_get(schema, refused[i]))) {
            put_literal_any(w, b, t, "lvalue ", refused[i]);
            return;
        }
    if (depth >= LITERALS_DEPTH || w->n_literals++ >= LITERALS_VISITS)
        put_literal_any(w, b, t, "lvalue ", "a schema of so many parts");
    else if (json_object_get(schema, "const") || json_object_get(schema, "enum")) put_literal_listed(w, b, t, schema);
    else if (target) put_literal_value(w, b, t, target, depth + 1);
    else if (ref) put_literal_any(w, b, t, "lvalue ", "this $ref");
    else if (json_array_size(any) > 0) put_literal_alternatives(w, b, t, schema, any, false, depth);
    else if (json_array_size(type) > 0) put_literal_alternatives(w, b, t, schema, type, true, depth);
    else if (json_is_string(type) && json_is_true(json_object_get(schema, "nullable"))) {
        put(w, b, "(");
        put_literal_type(w, b, t, schema, json_string_value(type), depth);
        put(w, b, "| ");
        put_literal_type(w, b, t, schema, "null", depth);
        put(w, b, ") ");
    } else if (json_is_string(type)) put_literal_type(w, b, t, schema, json_string_value(type), depth);
    else if (json_object_get(schema, "properties")) put_literal_object(w, b, t, schema, depth);
    else put(w, b, "lvalue ");
}

/* A name, and its arguments as literals; without properties, any. */
static void put_literals_call(writer *w, base_buffer *b, const tool_spec *t) {
    BASE_ASSERT(w->form->body == TOOL_BODY_LITERALS);
    put_literal(w, b, t->name, strlen(t->name));
    put_text(w, b, w->form->after_name);
    if (t->schema && (is_any_object(w, t) || !json_is_object(json_object_get(t->schema, "properties")))) {
        put(w, b, "(lname lvalue (");
        put_comma(w, b);
        put(w, b, "lname lvalue)*)? ");
    } else if (t->schema) put_literal_members(w, b, t, t->schema, true, 0);
    put_character(w, b, w->form->notation->close);
}

/* "calls": the text after the form's `open`. */
static void put_calls(writer *w) {
    BASE_ASSERT(w->form);
    const tool_form *f = w->form;
    if (f->body == TOOL_BODY_LITERALS) {
        put_literal_rules(w);
        put(w, rules(w), "lname ::= [A-Za-z_] [A-Za-z0-9_]{0,63} ");
        put_text(w, rules(w), f->key_close);
        put(w, rules(w), "\n");
    }
    base_buffer e = BASE_BUFFER(JSON_GRAMMAR_BYTES), *text = rules(w);
    const char *between = "";
    char more[48];
    for (size_t i = 0; i < w->answer->n_tools && !w->err->code; i++) {
        const tool_spec *t = &w->answer->tools[i];
        if (t->barred) continue;
        put(w, &e, between);
        if (f->body == TOOL_BODY_JSON) put_json_call(w, &e, t);
        else if (f->body == TOOL_BODY_NAMED) put_named_call(w, &e, t);
        else if (f->body == TOOL_BODY_TEXT) put_text_call(w, &e, t);
        else put_literals_call(w, &e, t);
        between = "| ";
    }
    put(w, text, "call ::= ");
    put_text(w, text, f->begin);
    put(w, text, "(");
    put(w, text, e.data ? e.data : "");
    put(w, text, ") ");
    put_text(w, text, f->end);
    if (!f->next) put_text(w, text, f->close);
    put(w, text, "\ncalls ::= ");
    if (f->is_list && !f->at_start) put(w, text, "\"[\" ");
    put(w, text, "call ");
    if (!w->answer->one_call && !tool_convention_family(&w->answer->convention)->has_channels) {
        put(w, text, "(");
        put_text(w, text, f->next ? f->next : "\n");
        if (!f->next) put_literal(w, text, f->open, strlen(f->open));
        snprintf(more, sizeof(more), "call){0,%d} ", TOOLS_MAX_CALLS - 1);
        put(w, text, more);
    }
    if (f->next) put_text(w, text, f->close);
    put(w, text, "\n");
    base_buffer_free(&e);
}

/* ---- answers ---- */

/* Appends the expression of a regular expression; field: its name in errors. */
static void put_regex(writer *w, base_buffer *out, const char *pattern, const char *field) {
    char why[REGEX_WHY_BYTES];
    regex *r = w->err->code ? NULL : regex_parse(pattern, why);
    const int rc = r ? regex_put(r, REGEX_WHOLE, out) : 0;
    if (!r && !w->err->code && why[0])
        structured_fail(w->err, RP_ERR_INVALID, field, "'%s' is not supported: %s", field, why);
    else if (!r) structured_fail_memory(w->err);
    else check_text(w, rc);
    regex_free(r);
}

/* Replaces the white space of JSON by the form's. Before anything else is written. */
static void put_space(writer *w) {
    base_buffer e = BASE_BUFFER(JSON_GRAMMAR_BYTES);
    if (w->answer->whitespace) put_regex(w, &e, w->answer->whitespace, "whitespace_pattern");
    if (w->answer->whitespace && !w->err->code && json_grammar_set_space(w->g, e.data)) structured_fail_memory(w->err);
    base_buffer_free(&e);
}

/* The expression of a text that matches the regular expression, or of one of the choices. */
static void put_text_form(writer *w, base_buffer *out) {
    const json_t *choices = w->answer->choices;
    if (w->answer->regex) put_regex(w, out, w->answer->regex, w->answer->place);
    for (size_t i = 0; i < json_array_size(choices) && !w->err->code; i++) {
        const json_t *one = json_array_get(choices, i);
        const int rc = i > 0 ? base_buffer_append_str(out, " | ") : 0;
        check_text(w, rc ? rc : json_grammar_literal(out, json_string_value(one), json_string_length(one)));
    }
}

/* "answer": the JSON that the answer is, or a text of a form. */
static void put_answer(writer *w) {
    const tool_family *family = tool_convention_family(&w->answer->convention);
    char rule[JSON_GRAMMAR_RULE_BYTES] = "object";
    const bool is_text = answer_form_is_text(w->answer);
    if (w->answer->schema && !is_text) json_grammar_add(w->g, w->answer->schema, w->answer->place, true, rule, w->err);
    put(w, rules(w), "answer ::= ");
    put_text(w, rules(w), family->answer_open);
    put(w, rules(w), is_text ? "(" : rule);
    if (is_text) put_text_form(w, rules(w));
    if (is_text) put(w, rules(w), ")");
    put(w, rules(w), " ");
    put_text(w, rules(w), family->answer_close);
    put(w, rules(w), "\n");
}

/* "thought": reasoning that may or, if the prompt opened it, must come first. Returns whether there is such a rule. */
static bool put_thought(writer *w) {
    const answer_form *answer = w->answer;
    const reasoning_marks *marks = answer->convention.reasoning;
    const bool harmony = tool_convention_family(&answer->convention)->has_channels;
    char until[16];
    if (!marks || !answer->splits_reasoning || (answer->thinking == THINKING_OFF && !answer->reasoning_open))
        return false;
    put_until(w, marks->close, until);
    put(w, rules(w), "thought ::= ");
    if (!answer->reasoning_open) {
        put(w, rules(w), "(");
        put_literal(w, rules(w), marks->open, strlen(marks->open));
    }
    put(w, rules(w), until);
    put(w, rules(w), harmony ? " \"<|start|>assistant\"" : " [ \\n]{0,4}");
    put(w, rules(w), answer->reasoning_open ? "\n" : ")?\n");
    return true;
}

static void put_all(writer *w, bool calls, bool json, bool from_start) {
    base_buffer *text = rules(w);
    put_space(w);
    put(w, text, "gap ::= [ \\n]?\nline ::= \"\\n\"?\n");
    if (calls) put_calls(w);
    if (json) put_answer(w);
    const bool thought = from_start && put_thought(w);
    put(w, text, thought ? "root ::= thought (" : "root ::= (");
    if (json) put(w, text, calls ? "answer | " : "answer");
    if (calls && from_start && !w->form->at_start) put_text(w, text, w->form->open);
    put(w, text, calls ? "calls)\n" : ")\n");
}

int tool_grammar_make(const answer_form *answer, tool_grammar *out, rp_error *err) {
    *out = (tool_grammar){0};
    const bool calls = answer_form_may_call(answer), must_call = answer->tool_choice == TOOL_CHOICE_REQUIRED;
    const bool json = (answer->wants_json || answer_form_is_text(answer)) && !(calls && must_call),
               from_start = json || must_call;
    writer w = {.answer = answer,
                .form = tool_convention_family(&answer->convention)->forms[0],
                .err = err,
                .check_steps = JSON_SCHEMA_CHECK_STEPS};
    if (err->code) return err->code;
    if ((!calls && !json) || (!from_start && w.form->at_start)) return RP_OK; /* nothing that an answer may not be */
    w.g = json_grammar_new();
    w.dropped = json_array();
    if (!w.g || !w.dropped) structured_fail_memory(err);
    else put_all(&w, calls, json, from_start);
    if (!err->code) {
        out->text = base_buffer_take(json_grammar_text(w.g));
        out->trigger = calls && !from_start ? w.form->open : NULL;
        out->dropped = json_incref(w.dropped);
        if (json_array_extend(out->dropped, (json_t *)json_grammar_dropped(w.g)) || !out->text)
            structured_fail_memory(err);
    }
    BASE_ASSERT(err->code || out->text);
    json_decref(w.dropped);
    json_grammar_free(w.g);
    if (err->code) tool_grammar_free(out);
    return err->code;
}

void tool_grammar_free(tool_grammar *g) {
    base_free(g->text);
    json_decref(g->dropped);
    *g = (tool_grammar){0};
}
