/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.c: see tool_grammar.h. Owns nothing. */
#include "structured/tool_grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/buffer.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "structured/json_grammar.h"
#include "structured/json_schema.h"
#include "structured/json_schema_check.h"
#include "structured/regex.h"
#include "structured/structured_error.h"
#include "structured/tool_heads.h"

#define MAX_KEY_BYTES 256 /* a name of an argument, with its marks, is a head */

typedef struct writer {
    const answer_form *answer;
    const tool_form *form;
    json_grammar *g;
    json_t *dropped; /* an array of texts: what is not enforced */
    rp_error *err;
    int n_untils;
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

/* A text of a form: '\n' is a gap, ' ' an optional space. */
static void put_text(writer *w, base_buffer *b, const char *text) {
    while (*text) {
        const size_t n = strcspn(text, "\n ");
        put_literal(w, b, text, n);
        text += n;
        if (*text) put(w, b, *text++ == '\n' ? "gap " : "sp ");
    }
}

static base_buffer *rules(const writer *w) { return json_grammar_text(w->g); }

/* The state after c, of matching `text` (Knuth, Morris, Pratt, 1977). */
static size_t next_state(const char *text, size_t n, size_t state, char c) {
    BASE_ASSERT(state < n);
    for (size_t k = state + 1; k > 0; k--) /* the longest prefix that is a suffix of text[0..state) c */
        if (k <= n && text[k - 1] == c && memcmp(text, text + state + 1 - k, k - 1) == 0) return k;
    return 0;
}

/* Rules of any text up to and with the first `end`; writes the name of the first one. A rule for each prefix of
   `end`. */
static void put_until(writer *w, const char *end, char name[16]) {
    const size_t n = strlen(end);
    const int number = w->n_untils++;
    char part[64], seen[64];
    BASE_ASSERT(n > 0 && n <= sizeof(seen));
    snprintf(name, 16, "u%d-0", number);
    for (size_t state = 0; state < n; state++) {
        size_t n_seen = 0;
        snprintf(part, sizeof(part), "u%d-%zu ::= ", number, state);
        put(w, rules(w), part);
        for (size_t i = 0; i < n; i++) {
            const char c = end[i];
            if (memchr(seen, c, n_seen)) continue;
            seen[n_seen++] = c;
            const size_t next = next_state(end, n, state, c);
            put_literal(w, rules(w), &c, 1);
            snprintf(part, sizeof(part), next == n ? "| " : "u%d-%zu | ", number, next);
            put(w, rules(w), part);
        }
        put(w, rules(w), "[^");
        for (size_t i = 0; i < n_seen; i++) {
            snprintf(part, sizeof(part), "\\x%02X", (unsigned char)seen[i]);
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
    if (!w->value_until[0]) put_until(w, tool_heads_value_end(w->form), w->value_until);
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
    if (w->form->body == TOOL_BODY_PARAMETERS) put(w, b, must ? "\"\\x0A\" " : "line ");
}

/* One of the strings as text. */
static void put_listed_text(writer *w, base_buffer *b, const json_t *string) {
    BASE_ASSERT(json_is_string(string));
    const char *text = json_string_value(string);
    const size_t n = json_string_length(string);
    put_line(w, b, text[0] == '\n');
    put_literal(w, b, text, n);
    put_line(w, b, n > 0 && text[n - 1] == '\n');
    put_literal(w, b, tool_heads_value_end(w->form), strlen(tool_heads_value_end(w->form)));
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
    put_literal(w, b, tool_heads_value_end(w->form), strlen(tool_heads_value_end(w->form)));
}

/* A name that its marks end, or that is too long for a head, cannot be written. */
static bool is_writable(writer *w, const tool_spec *t, const char *name) {
    const bool keys = w->form->body == TOOL_BODY_ARG_KEYS,
               fits = strlen(name) <= MAX_KEY_BYTES && !strchr(name, keys ? '<' : '>');
    char place[256];
    if (fits) return true;
    snprintf(place, sizeof(place), "%.120s.properties.%.100s", t->place ? t->place : "", name);
    if (t->strict)
        structured_fail(w->err, RP_ERR_UNSUPPORTED, place,
                        "'%.300s' is not supported: this model writes names without '%c', of at most %d bytes", place,
                        keys ? '<' : '>', MAX_KEY_BYTES);
    else put_dropped(w, "%.200s (this model cannot write the name)", place);
    return false;
}

static void put_key(writer *w, base_buffer *b, const char *name, const char *rule) {
    BASE_ASSERT(w->form->body == TOOL_BODY_ARG_KEYS || w->form->body == TOOL_BODY_PARAMETERS);
    const bool keys = w->form->body == TOOL_BODY_ARG_KEYS;
    put_text(w, b, keys ? "\n<arg_key>" : "\n<parameter=");
    if (name) put_literal(w, b, name, strlen(name));
    else put(w, b, rule);
    put_text(w, b, keys ? "</arg_key>\n<arg_value>" : ">"); /* white space after it would be the value's */
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
    BASE_ASSERT(w->form->body == TOOL_BODY_ARG_KEYS || w->form->body == TOOL_BODY_PARAMETERS);
    const char *name;
    json_t *one;
    put_literal(w, b, t->name, strlen(t->name));
    if (w->form->body == TOOL_BODY_PARAMETERS) put(w, b, "\">\" ");
    const bool any = t->schema && is_any_object(w, t);
    json_t *properties = any ? NULL : json_object_get(t->schema, "properties");
    json_object_foreach(properties, name, one) {
        const bool required = is_required(t->schema, name);
        if ((json_is_false(one) && !required) || !is_writable(w, t, name)) continue;
        put(w, b, required ? "" : "(");
        put_key(w, b, name, NULL);
        put_value(w, b, t, name, one);
        put(w, b, required ? "" : ")? ");
    }
    if (any) {
        put(w, b, "(");
        put_key(w, b, NULL, "[A-Za-z0-9_.-]{1,64} ");
        put_line(w, b, false);
        put_any_text(w, b);
        put(w, b, ")* ");
    }
    put(w, b, "gap ");
}

/* "calls": the text after the form's `open`. */
static void put_calls(writer *w) {
    BASE_ASSERT(w->form);
    const tool_form *f = w->form;
    base_buffer e = BASE_BUFFER(JSON_GRAMMAR_BYTES), *text = rules(w);
    const char *between = "";
    char more[48];
    for (size_t i = 0; i < w->answer->n_tools && !w->err->code; i++) {
        const tool_spec *t = &w->answer->tools[i];
        if (t->barred) continue;
        put(w, &e, between);
        if (f->body == TOOL_BODY_JSON) put_json_call(w, &e, t);
        else if (f->body == TOOL_BODY_NAMED) put_named_call(w, &e, t);
        else put_text_call(w, &e, t);
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
