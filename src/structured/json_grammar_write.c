/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_write.c: see json_grammar_internal.h: a grammar's text, its places and errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "structured/json_grammar_internal.h"
#include "structured/json_schema_check.h"

#define PLACE_BYTES ((size_t)4096)

#define SPACE "sp ::= \" \"?\n"

static const char any_json[] =
    SPACE "hex ::= [0-9a-fA-F]\n"
          /* any character but NUL, surrogates in pairs */
          "code ::= [1-9a-cefA-CEF] hex hex hex | \"0\" [1-9a-fA-F] hex hex | \"00\" [1-9a-fA-F] hex | \"000\" "
          "[1-9a-fA-F] | [dD] [0-7] hex hex | "
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

json_grammar *json_grammar_new(void) {
    json_grammar *g = base_calloc(1, sizeof(*g));
    if (!g) return NULL;
    g->text = BASE_BUFFER(JSON_GRAMMAR_BYTES);
    g->place = BASE_BUFFER(PLACE_BYTES);
    g->owned = json_array();
    g->check_steps = JSON_SCHEMA_CHECK_STEPS;
    g->dropped = json_array();
    if (g->owned && g->dropped && base_buffer_append_str(&g->text, any_json) == 0) return g;
    json_grammar_free(g);
    return NULL;
}

void json_grammar_free(json_grammar *g) {
    if (!g) return;
    base_buffer_free(&g->text);
    base_buffer_free(&g->place);
    json_decref(g->owned);
    json_decref(g->dropped);
    base_free(g);
}

int json_grammar_set_space(json_grammar *g, const char *expression) {
    BASE_ASSERT(g->n_rules == 0);
    base_buffer_clear(&g->text);
    int rc = base_buffer_printf(&g->text, "sp ::= %s\n", expression);
    return rc ? rc : base_buffer_append_str(&g->text, any_json + strlen(SPACE));
}

base_buffer *json_grammar_text(json_grammar *g) { return &g->text; }

/* ---- writing ---- */

void json_grammar_check(json_grammar *g, int rc) {
    BASE_ASSERT(rc == 0 || rc == RP_ERR_LIMIT || rc == RP_ERR_MEMORY);
    if (rc == RP_ERR_LIMIT) json_grammar_too_large(g, "its grammar has more than 1 MB");
    else if (rc) structured_fail_memory(g->error);
}

bool json_grammar_failed(const json_grammar *g) { return g->error->code != RP_OK || g->spoiled || g->too_large; }

void json_grammar_put(json_grammar *g, base_buffer *out, const char *text) {
    if (!json_grammar_failed(g)) json_grammar_check(g, base_buffer_append_str(out, text));
}

void json_grammar_put_rule(json_grammar *g, base_buffer *out, int rule) {
    BASE_ASSERT(json_grammar_failed(g) || (rule >= 0 && rule < g->n_rules));
    if (!json_grammar_failed(g)) json_grammar_check(g, base_buffer_printf(out, " r%d", rule));
}

void json_grammar_put_times(json_grammar *g, base_buffer *out, int m, int n) {
    BASE_ASSERT(json_grammar_failed(g) || m >= 0);
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

void json_grammar_put_json(json_grammar *g, base_buffer *out, const json_t *value) {
    char *text = json_grammar_failed(g) ? NULL : base_json_text(value, JSON_COMPACT);
    if (text) {
        json_grammar_put(g, out, " ");
        json_grammar_check(g, json_grammar_literal(out, text, strlen(text)));
    } else structured_fail_memory(g->error);
    base_free(text);
}

void json_grammar_end_rule(json_grammar *g, int rule, base_buffer *e) {
    BASE_ASSERT(json_grammar_failed(g) || (rule >= 0 && rule < g->n_rules));
    if (!json_grammar_failed(g))
        json_grammar_check(g, base_buffer_printf(&g->text, "r%d ::=%s\n", rule, e->data ? e->data : " \"\""));
    base_buffer_free(e);
}

/* ---- places and errors ---- */

size_t json_grammar_go_to(json_grammar *g, const char *name) {
    size_t before = g->place.len;
    const int rc = json_grammar_failed(g) ? 0 : base_buffer_printf(&g->place, ".%.128s", name);
    if (rc == RP_ERR_LIMIT) json_grammar_too_large(g, "it is nested too deep");
    else if (rc) structured_fail_memory(g->error);
    return before;
}

size_t json_grammar_go_to_index(json_grammar *g, const char *name, size_t i) {
    char text[64];
    snprintf(text, sizeof(text), "%.32s[%zu]", name, i);
    return json_grammar_go_to(g, text);
}

void json_grammar_go_back(json_grammar *g, size_t before) {
    BASE_ASSERT(before <= g->place.len);
    if (g->place.data) base_buffer_truncate(&g->place, before);
}

const char *json_grammar_place(const json_grammar *g) { return g->place.data ? g->place.data : ""; }

void json_grammar_drop(json_grammar *g, const char *name, const char *why) {
    if (json_array_size(g->dropped) >= JSON_GRAMMAR_MAX_DROPPED) return;
    base_buffer text = BASE_BUFFER(PLACE_BYTES + 1024);
    int rc = base_buffer_printf(&text, name ? "%s.%s (%s)" : "%s%s (%s)", json_grammar_place(g), name ? name : "", why);
    json_t *line = rc ? NULL : base_json_string(text.data, text.len);
    bool known = false;
    for (size_t i = 0; i < json_array_size(g->dropped); i++) known |= json_equal(json_array_get(g->dropped, i), line);
    if (!line || (!known && json_array_append(g->dropped, line))) structured_fail_memory(g->error);
    json_decref(line);
    base_buffer_free(&text);
}

const json_t *json_grammar_dropped(const json_grammar *g) { return g->dropped; }

void json_grammar_too_large(json_grammar *g, const char *why) {
    if (json_grammar_failed(g)) return;
    if (g->strict)
        structured_fail(g->error, RP_ERR_INVALID, json_grammar_place(g), "'%.300s' is too large: %s",
                        json_grammar_place(g), why);
    else json_grammar_drop(g, NULL, why);
    g->too_large = !g->strict;
}

void json_grammar_wrong(json_grammar *g, const char *name, const char *expected) {
    char why[160];
    if (json_grammar_failed(g)) return;
    if (!g->strict) {
        snprintf(why, sizeof(why), "give %.140s", expected);
        json_grammar_drop(g, name, why);
        g->spoiled = true;
        snprintf(g->spoiler, sizeof(g->spoiler), "%s", name ? name : "");
        return;
    }
    size_t before = name ? json_grammar_go_to(g, name) : g->place.len;
    structured_fail(g->error, RP_ERR_INVALID, json_grammar_place(g), "'%.300s': give %s", json_grammar_place(g),
                    expected);
    json_grammar_go_back(g, before);
}

void json_grammar_unsupported(json_grammar *g, const char *name, const char *why, base_buffer *out) {
    if (json_grammar_failed(g)) return;
    if (!g->strict) {
        json_grammar_drop(g, name, why);
        if (out) json_grammar_put(g, out, " value");
        return;
    }
    size_t before = name ? json_grammar_go_to(g, name) : g->place.len;
    structured_fail(g->error, RP_ERR_UNSUPPORTED, json_grammar_place(g), "'%.300s' is not supported: %s",
                    json_grammar_place(g), why);
    json_grammar_go_back(g, before);
}

/* ---- reading ---- */

int json_grammar_size_of(json_grammar *g, const json_t *schema, const char *name, int none) {
    const json_t *value = json_object_get(schema, name);
    double v = json_number_value(value);
    if (!value || json_is_null(value) || json_grammar_failed(g)) return none;
    if (json_is_string(value)) { /* Gemini's way to write 64 bits */
        const char *text = json_string_value(value);
        v = text[0] && text[strspn(text, "0123456789")] == '\0' ? strtod(text, NULL) : -1;
    }
    if (!(v >= 0 && v == floor(v)) || !(json_is_number(value) || json_is_string(value)))
        json_grammar_wrong(g, name, "a whole number from 0");
    else if (v > JSON_GRAMMAR_REPEATS)
        json_grammar_unsupported(g, name, "sizes of at most " JSON_GRAMMAR_TEXT(JSON_GRAMMAR_REPEATS), NULL);
    else return (int)v;
    return none;
}

/* ---- visiting ---- */

void json_grammar_visit_inside(json_grammar *g, const json_t *schema, base_buffer *out) {
    BASE_ASSERT(g->visit);
    int target = g->target;
    g->target = JSON_GRAMMAR_NO_TARGET;
    g->visit(g, schema, out);
    g->target = target;
}

const json_t *json_grammar_own(json_grammar *g, json_t *schema) {
    if (schema && json_array_append_new(g->owned, schema) == 0) return schema;
    structured_fail_memory(g->error);
    return NULL;
}
