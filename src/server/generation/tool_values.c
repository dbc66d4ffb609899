/* SPDX-License-Identifier: Apache-2.0 */
/* tool_values.c: see tool_values.h. Owns nothing. */
#include "server/generation/tool_values.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/json_read.h"
#include "server/generation/tool_heads.h"

/* ---- strings ---- */

static bool is_type_string(const json_t *type) {
    return json_is_string(type) && strcasecmp(json_string_value(type), "string") == 0;
}

const json_t *tool_values_listed(const json_t *schema) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    bool strings = json_array_size(values) > 0;
    if (fixed) return json_is_string(fixed) ? fixed : NULL;
    for (size_t i = 0; i < json_array_size(values); i++) strings &= json_is_string(json_array_get(values, i));
    return strings ? values : NULL;
}

static bool has_end(const tool_form *form, const json_t *string) {
    return strstr(json_string_value(string), tool_heads_value_end(form)) != NULL;
}

bool tool_values_is_text(const tool_form *form, const server_tool *tool, const char *name, size_t n) {
    const json_t *schema = json_object_getn(json_object_get(tool->schema, "properties"), name, n),
                 *listed = tool_values_listed(schema);
    if (json_is_string(listed)) return !has_end(form, listed);
    for (size_t i = 0; i < json_array_size(listed); i++)
        if (has_end(form, json_array_get(listed, i))) return false;
    return listed || is_type_string(json_object_get(schema, "type"));
}

/* ---- the end of JSON ---- */

enum {
    SCAN_BEGIN, /* white space */
    SCAN_JSON,  /* it may be JSON: an object, an array or a string */
    SCAN_WHOLE, /* it is, if its end follows */
    SCAN_TEXT,  /* the first end is its end */
};

void tool_values_begin(tool_finder *f) {
    f->depth = 0;
    f->in_string = f->escaped = false;
    f->n_scanned = 0;
    f->scan = SCAN_BEGIN;
}

void tool_values_give_up(tool_finder *f) { f->scan = SCAN_TEXT; }

/* Brackets: whether each open one is an object's. */
static bool push_bracket(tool_finder *f, bool is_object) {
    if (f->depth == TOOL_VALUE_DEPTH) return false;
    const uint64_t bit = UINT64_C(1) << (f->depth % 64);
    uint64_t *word = &f->brackets[f->depth++ / 64];
    *word = is_object ? *word | bit : *word & ~bit;
    return true;
}

static bool pop_bracket(tool_finder *f, bool is_object) {
    f->depth--;
    return f->depth >= 0 && (f->brackets[f->depth / 64] >> (f->depth % 64) & 1) == is_object;
}

/* One character of what may be JSON: false: it is not. */
static bool scan_character(tool_finder *f, char c) {
    if (f->in_string) {
        if ((unsigned char)c < 0x20) return false;
        if (f->escaped) f->escaped = false;
        else if (c == '\\') f->escaped = true;
        else f->in_string = c != '"';
        return true;
    }
    if (c == '"') return f->in_string = true;
    if (c == '{' || c == '[') return push_bracket(f, c == '{');
    if (c == '}' || c == ']') return pop_bracket(f, c == '}');
    return tool_heads_is_space(c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr(":,.+-E", c));
}

static void scan_held(tool_finder *f) {
    const base_buffer *b = &f->held;
    for (; f->scan < SCAN_WHOLE && f->n_scanned < b->len; f->n_scanned++) {
        const char c = b->data[f->n_scanned];
        if (f->scan == SCAN_BEGIN && tool_heads_is_space(c)) continue;
        if (f->scan == SCAN_BEGIN) f->scan = c == '{' || c == '[' || c == '"' ? SCAN_JSON : SCAN_TEXT;
        if (f->scan == SCAN_JSON && !scan_character(f, c)) f->scan = SCAN_TEXT;
        if (f->scan == SCAN_JSON && f->depth == 0 && !f->in_string) f->scan = SCAN_WHOLE;
    }
}

static bool is_json(const char *text, size_t n) {
    json_t *value = base_json_read(text, n, BASE_JSON_AS_WRITTEN);
    json_decref(value);
    return value;
}

/* The first end, however the value was written. */
static bool first_end(const tool_finder *f, const char *end, size_t *n) {
    const size_t length = strlen(end);
    const base_buffer *b = &f->held;
    for (*n = 0; *n + length <= b->len; (*n)++)
        if (b->data[*n] == end[0] && memcmp(b->data + *n, end, length) == 0) return true;
    return false;
}

bool tool_values_end(tool_finder *f, size_t *n, size_t *n_end) {
    const char *end = tool_heads_value_end(f->form);
    scan_held(f);
    if (f->scan == SCAN_WHOLE) {
        size_t at = f->n_scanned;
        const tool_match m = tool_heads_expect(&f->held, &at, end);
        if (m == TOOL_PERHAPS) return false;
        if (m == TOOL_YES && is_json(f->held.data, f->n_scanned)) {
            *n = f->n_scanned;
            *n_end = at - *n;
            return true;
        }
        f->scan = SCAN_TEXT;
    }
    *n_end = strlen(end);
    return f->scan == SCAN_TEXT && first_end(f, end, n);
}

/* ---- as JSON ---- */

int tool_values_escaped(tool_finder *f, const char *text, size_t n) {
    size_t plain = 0;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const unsigned char c = (unsigned char)text[i];
        char code[8];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (c == '"' || c == '\\') snprintf(code, sizeof(code), "\\%c", c);
        else if (c == '\n') snprintf(code, sizeof(code), "\\n");
        else snprintf(code, sizeof(code), "\\u%04x", c);
        rc = tool_items_arguments(f, text + plain, i - plain);
        if (!rc) rc = tool_items_arguments(f, code, strlen(code));
        plain = i + 1;
    }
    return rc ? rc : tool_items_arguments(f, text + plain, n - plain);
}

int tool_values_string(tool_finder *f, const char *text, size_t n) {
    int rc = tool_items_arguments(f, "\"", 1);
    if (!rc) rc = tool_values_escaped(f, text, n);
    return rc ? rc : tool_items_arguments(f, "\"", 1);
}

int tool_values_any(tool_finder *f, const char *text, size_t n) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *own = text;
    size_t n_own = n;
    while (n_own > 0 && tool_heads_is_space(*own)) own++, n_own--;
    while (n_own > 0 && tool_heads_is_space(own[n_own - 1])) n_own--;
    for (size_t i = 0; i < BASE_ARRAY_LEN(python); i++)
        if (strlen(python[i][0]) == n_own && memcmp(python[i][0], own, n_own) == 0)
            return tool_items_arguments(f, python[i][1], strlen(python[i][1]));
    return is_json(own, n_own) ? tool_items_arguments(f, own, n_own) : tool_values_string(f, text, n);
}
