/* SPDX-License-Identifier: Apache-2.0 */
/* template_json.c: the variables of a rendering from JSON, and tojson as Python's json.dumps writes it. One thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/json_number.h"
#include "base/json_read.h"
#include "template/template_internal.h"

/* ---- Reading ---- */

typedef struct json_reader {
    state *s;
    uint32_t next_string; /* its number */
} json_reader;

static value json_value(json_reader *r, const json_t *json, bool trusted);

static value json_text(json_reader *r, const json_t *json, bool trusted) {
    uint32_t number = r->next_string++;
    return value_string(string_new(r->s, json_string_value(json), json_string_length(json), trusted ? (uint32_t)TEMPLATE_TRUSTED : number));
}

/* Names that chat templates give to senders of messages. They are part of control tokens in some ("<|" + role + "|>"). */
static bool is_role(const char *text) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "tool_response"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (strcmp(roles[i], text) == 0) return true;
    return false;
}

/* level 0: the variables, 1: a message, 2: anything else. No name makes a text trusted: whoever wrote the JSON may have chosen it. */
static value json_object_value(json_reader *r, const json_t *json, int level) {
    state *s = r->s;
    value all = value_dict(s), messages = {0};
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)json, name, item) {
        bool trusted = json_is_string(item) && level == 1 && strcmp(name, "role") == 0 && is_role(json_string_value(item));
        if (s->failed) break;
        value key = value_string(string_new(s, name, strlen(name), TEMPLATE_UNTRUSTED));
        if (level == 0 && strcmp(name, "messages") == 0 && json_is_array(item)) {
            messages = value_list(s, LIST_LIST, json_array_size(item));
            for (size_t i = 0; i < json_array_size(item) && !s->failed; i++) {
                const json_t *message = json_array_get(item, i);
                list_add(s, messages.as.l, json_is_object(message) ? json_object_value(r, message, 1) : json_value(r, message, false));
            }
            dict_set(s, all.as.d, key, messages);
        } else dict_set(s, all.as.d, key, json_value(r, item, trusted));
    }
    return all;
}

/* A whole number that is kept as text; beyond a double it is infinite, as in Python. */
static value real_value(state *s, const json_t *json) {
    const char *digits = base_json_number_text(json);
    if (!digits || strpbrk(digits, ".eE")) return value_float(json_real_value(json));
    return (value){.type = VALUE_BIG, .as.s = string_new(s, digits, strlen(digits), TEMPLATE_UNTRUSTED)};
}

/* The depth is limited: is_deeper. */
static value json_value(json_reader *r, const json_t *json, bool trusted) {
    state *s = r->s;
    value v = value_none;
    if (!state_step(s, 0)) return v;
    switch (json_typeof(json)) {
    case JSON_STRING: return json_text(r, json, trusted);
    case JSON_INTEGER: v = value_int(json_integer_value(json)); break;
    case JSON_REAL: v = real_value(r->s, json); break;
    case JSON_TRUE:
    case JSON_FALSE: v = value_bool(json_is_true(json)); break;
    case JSON_OBJECT: return json_object_value(r, json, 2);
    case JSON_ARRAY:
        v = value_list(s, LIST_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json) && !s->failed; i++) list_add(s, v.as.l, json_value(r, json_array_get(json, i), false));
        return v;
    default: break;
    }
    v.untrusted = true;
    return v;
}

/* Are brackets nested deeper than that? Before parsing, which recurses. */
static bool is_deeper(const char *json, size_t n, int most) {
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < n && depth <= most; i++) {
        const char c = json[i];
        if (c == '"') in_string = !in_string;
        else if (in_string) i += c == '\\';
        else depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    }
    return depth > most;
}

json_t *json_parse(const char *json, size_t n, json_error_t *err) {
    json_t *root = base_json_read(json, n, 0);
    if (!root) json_decref(json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, err)); /* for the reason */
    return root;
}

dict *json_read(state *s, const char *json, size_t n) {
    json_error_t err;
    bool too_deep = is_deeper(json, n, TEMPLATE_MAX_DEPTH);
    json_t *root = too_deep ? NULL : json_parse(json, n, &err);
    json_reader r = {.s = s, .next_string = TEMPLATE_FIRST_STRING};
    value all = {0};
    if (too_deep) {
        state_fail(s, INPUT_ERROR, "the JSON is nested deeper than %d", TEMPLATE_MAX_DEPTH);
        s->code = RP_ERR_LIMIT;
    } else if (!root && !err.text[0]) state_fail_memory(s);
    else if (!root) state_fail(s, INPUT_ERROR, "%s, in line %d", err.text, err.line);
    else if (!json_is_object(root)) state_fail(s, INPUT_ERROR, "not a JSON object: give {\"messages\": [...]}");
    else all = json_object_value(&r, root, 0);
    json_decref(root);
    return s->failed ? NULL : all.as.d;
}

/* ---- Writing ---- */

static void write_json(state *s, builder *b, value v, const json_style *style, int64_t level);

/* What tojson writes is one text for the tokenizer: names and values of the user, and the marks between them. */
static void put(state *s, builder *b, const char *bytes, size_t n) { builder_add(s, b, bytes, n, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET); }

static void put_text(state *s, builder *b, const char *text) { put(s, b, text, strlen(text)); }

static void put_escaped(state *s, builder *b, uint32_t c) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char out[16];
    const char *at = c > 0 && c < 0x80 ? strchr(plain, (int)c) : NULL;
    if (at) {
        put(s, b, (const char[]){'\\', letters[at - plain]}, 2);
        return;
    }
    state_step(s, STEP_PRINTED);
    if (c < 0x10000) snprintf(out, sizeof(out), "\\u%04x", c);
    else snprintf(out, sizeof(out), "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    put_text(s, b, out);
}

static void write_json_string(state *s, builder *b, const string *text, const json_style *style) {
    size_t from = 0;
    put(s, b, "\"", 1);
    for (size_t at = 0, n; at < text->n && !s->failed; at += n) {
        uint32_t c = string_at(text, at, &n);
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !style->ascii)) continue;
        put(s, b, text->bytes + from, at - from);
        put_escaped(s, b, c);
        from = at + n;
    }
    state_step(s, text->n / STEP_SCANNED);
    put(s, b, text->bytes + from, text->n - from);
    put(s, b, "\"", 1);
}

static void write_json_number(state *s, builder *b, value v) {
    char text[32];
    state_step(s, STEP_PRINTED);
    if (v.type == VALUE_FLOAT && isnan(v.as.f)) put_text(s, b, "NaN");
    else if (v.type == VALUE_FLOAT && isinf(v.as.f)) put_text(s, b, v.as.f > 0 ? "Infinity" : "-Infinity");
    else if (v.type == VALUE_FLOAT) {
        float_repr(s, v.as.f, text);
        put_text(s, b, text);
    } else {
        snprintf(text, sizeof(text), "%lld", (long long)v.as.i);
        put_text(s, b, text);
    }
}

static void write_break(state *s, builder *b, const json_style *style, int64_t level) {
    if (!style->indent) return;
    put(s, b, "\n", 1);
    for (int64_t i = 0; i < level && !s->failed; i++) put(s, b, style->indent->bytes, style->indent->n);
}

static void write_json_key(state *s, builder *b, value key, const json_style *style) {
    builder text = {0};
    if (key.type == VALUE_STRING) {
        write_json_string(s, b, key.as.s, style);
        return;
    }
    if (!value_is_number(key) && key.type != VALUE_NONE)
        state_fail(s, TYPE_ERROR, "keys must be str, int, float, bool or None, not %s", value_type_name(key));
    write_json(s, &text, key, style, 0);
    write_json_string(s, b, builder_string(s, &text), style);
}

/* The entries, by their keys if the style wants it. */
static const dict_entry *entries_in_order(state *s, const dict *d, const json_style *style) {
    if (!style->sorted) return d->entries;
    keyed *all = state_alloc(s, (d->n + 1) * sizeof(*all));
    dict_entry *entries = all ? state_alloc(s, (d->n + 1) * sizeof(*entries)) : NULL;
    for (size_t i = 0; entries && i < d->n; i++) all[i] = (keyed){.key = d->entries[i].key, .item = d->entries[i].item};
    if (entries) keyed_sort(s, all, d->n, false);
    for (size_t i = 0; entries && i < d->n; i++) entries[i] = (dict_entry){.key = all[i].key, .item = all[i].item};
    return entries;
}

static void write_json_dict(state *s, builder *b, const dict *d, const json_style *style, int64_t level) {
    const dict_entry *entries = entries_in_order(s, d, style);
    if (d->n == 0) {
        put(s, b, "{}", 2);
        return;
    }
    put(s, b, "{", 1);
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        if (i > 0) put_text(s, b, style->item_separator);
        write_break(s, b, style, level + 1);
        write_json_key(s, b, entries[i].key, style);
        put_text(s, b, style->key_separator);
        write_json(s, b, entries[i].item, style, level + 1);
    }
    write_break(s, b, style, level);
    put(s, b, "}", 1);
}

static void write_json_list(state *s, builder *b, const list *l, const json_style *style, int64_t level) {
    if (l->n == 0) {
        put(s, b, "[]", 2);
        return;
    }
    put(s, b, "[", 1);
    for (size_t i = 0; i < l->n && !s->failed; i++) {
        if (i > 0) put_text(s, b, style->item_separator);
        write_break(s, b, style, level + 1);
        write_json(s, b, l->items[i], style, level + 1);
    }
    write_break(s, b, style, level);
    put(s, b, "]", 1);
}

static void write_json(state *s, builder *b, value v, const json_style *style, int64_t level) {
    if (!state_step(s, 0)) return;
    if (level > TEMPLATE_MAX_DEPTH) {
        state_fail(s, RECURSION_ERROR, "tojson: a value is nested deeper than %d", TEMPLATE_MAX_DEPTH);
        s->code = RP_ERR_LIMIT;
        return;
    }
    bool is_list = v.type == VALUE_LIST && (v.as.l->kind == LIST_LIST || v.as.l->kind == LIST_TUPLE);
    if (v.type == VALUE_NONE) put_text(s, b, "null");
    else if (v.type == VALUE_BOOL) put_text(s, b, v.as.b ? "true" : "false");
    else if (value_is_number(v)) write_json_number(s, b, v);
    else if (v.type == VALUE_BIG) put(s, b, v.as.s->bytes, v.as.s->n);
    else if (v.type == VALUE_STRING) write_json_string(s, b, v.as.s, style);
    else if (v.type == VALUE_DICT) write_json_dict(s, b, v.as.d, style, level);
    else if (is_list) write_json_list(s, b, v.as.l, style, level);
    else state_fail(s, TYPE_ERROR, "Object of type %s is not JSON serializable", value_type_name(v));
}

void json_write(state *s, builder *b, value v, const json_style *style) { write_json(s, b, v, style, 0); }
