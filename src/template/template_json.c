/* SPDX-License-Identifier: Apache-2.0 */
/* template_json.c: values of a rendering's input from JSON, and tojson as Python's json.dumps writes it. One thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/check.h"
#include "base/json_number.h"
#include "base/json_read.h"
#include "template/template_internal.h"
#include "reprise_chat.h"

/* ---- Reading ---- */

/* A number that is kept as text. A whole one keeps its digits; beyond a double the others are infinite, as in
   Python. */
static value kept_number_value(state *s, const char *text) {
    BASE_ASSERT(text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
    const size_t n = strlen(text);
    if (!strpbrk(text, ".eE")) return (value){.type = VALUE_BIG, .as.s = string_new(s, text, n, TEMPLATE_UNTRUSTED)};
    json_t *real = base_json_number(text, n);
    if (!real) state_fail_memory(s);
    const value v = value_float(json_number_value(real));
    json_decref(real);
    return v;
}

static value json_number(state *s, const json_t *json) {
    BASE_ASSERT(json_is_number(json));
    const char *text = base_json_number_text(json);
    if (text) return kept_number_value(s, text);
    return json_is_integer(json) ? value_int(json_integer_value(json)) : value_float(json_real_value(json));
}

/* The depth is limited by the input's. */
void template_input_json(rp_template_input *in, const json_t *json) {
    value v = value_none;
    if (in->s.failed) return;
    switch (json_typeof(json)) {
    case JSON_STRING: template_input_copy(in, json_string_value(json), json_string_length(json)); return;
    case JSON_ARRAY:
        template_input_begin_list(in, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json) && !in->s.failed; i++)
            template_input_json(in, json_array_get(json, i));
        rp_template_input_end(in);
        return;
    case JSON_OBJECT:
        rp_template_input_begin_dict(in);
        template_input_members(in, json);
        rp_template_input_end(in);
        return;
    case JSON_INTEGER:
    case JSON_REAL: v = json_number(&in->s, json); break;
    case JSON_TRUE:
    case JSON_FALSE: v = value_bool(json_is_true(json)); break;
    default: break;
    }
    if (!state_step(&in->s, 0)) return;
    v.untrusted = true;
    template_input_add(in, v);
}

void template_input_members(rp_template_input *in, const json_t *object) {
    BASE_ASSERT(json_is_object(object));
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)object, name, item) {
        if (in->s.failed) return;
        rp_template_input_key(in, name);
        template_input_json(in, item);
    }
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

/* NULL: the input has failed. */
static json_t *input_parse(rp_template_input *in, const char *json, size_t n, unsigned flags) {
    json_error_t err = {.text = ""};
    state *s = &in->s;
    if (n > TEMPLATE_MAX_INPUT_BYTES) {
        state_fail(s, INPUT_ERROR, "JSON of %zu bytes: at most %zu are supported", n, TEMPLATE_MAX_INPUT_BYTES);
        s->code = RP_ERR_LIMIT;
    } else if (is_deeper(json, n, TEMPLATE_MAX_DEPTH)) {
        state_fail(s, INPUT_ERROR, "the JSON is nested deeper than %d", TEMPLATE_MAX_DEPTH);
        s->code = RP_ERR_LIMIT;
    }
    if (s->failed) return NULL;
    json_t *root = base_json_read(json, n, flags);
    if (root) return root;
    json_decref(json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                           &err)); /* for the reason */
    if (!err.text[0]) state_fail_memory(s);
    else if (flags & BASE_JSON_ANY) state_fail(s, INPUT_ERROR, "%s, in line %d", err.text, err.line);
    else state_fail(s, INPUT_ERROR, "%s, in line %d: give {\"messages\": [...]}", err.text, err.line);
    return NULL;
}

void rp_template_input_json(rp_template_input *in, const char *json, size_t n) {
    json_t *parsed = in->s.failed ? NULL : input_parse(in, json, n, BASE_JSON_ANY);
    if (parsed) template_input_json(in, parsed);
    json_decref(parsed);
}

int template_input_read(rp_template_input **out, const char *json, size_t n, rp_error *err) {
    int rc = rp_template_input_new(out, err);
    if (rc) return rc;
    json_t *root = input_parse(*out, json ? json : "", n, 0);
    if (root && !json_is_object(root))
        state_fail(&(*out)->s, INPUT_ERROR, "not a JSON object: give {\"messages\": [...]}");
    else if (root) template_input_members(*out, root);
    json_decref(root);
    if ((rc = template_input_check(*out, err))) {
        rp_template_input_free(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- Writing ---- */

static void write_json(state *s, builder *b, value v, const json_style *style, int64_t level);

/* What tojson writes is one text for the tokenizer: names and values of the user, and the marks between them. */
static void put(state *s, builder *b, const char *bytes, size_t n) {
    builder_add(s, b, bytes, n, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
}

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
    BASE_ASSERT(value_is_number(v));
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
    BASE_ASSERT(level >= 0);
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
    BASE_ASSERT(d->n <= d->cap);
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
