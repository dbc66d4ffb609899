/* SPDX-License-Identifier: Apache-2.0 */
/* tool_heads.c: see tool_heads.h. Owns nothing. */
#include "structured/tool_heads.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/compiler.h"

size_t tool_heads_spaces(const base_buffer *b, size_t at) {
    BASE_ASSERT(at <= b->len);
    size_t n = 0;
    while (at + n < b->len && tool_heads_is_space(b->data[at + n])) n++;
    return n;
}

tool_match tool_heads_expect(const base_buffer *b, size_t *at, const char *text) {
    BASE_ASSERT(*at <= b->len);
    if (!text[0]) return TOOL_YES;
    *at += tool_heads_spaces(b, *at);
    for (; *text; text++) {
        if (*text == '\n' || *text == ' ') {
            *at += tool_heads_spaces(b, *at);
            continue;
        }
        if (*at == b->len) return TOOL_PERHAPS;
        if (b->data[*at] != *text) return TOOL_NO;
        (*at)++;
    }
    return TOOL_YES;
}

const tool_spec *tool_heads_find_tool(const answer_form *answer, const char *name, size_t n) {
    for (size_t i = 0; i < answer->n_tools; i++)
        if (!answer->tools[i].barred && strlen(answer->tools[i].name) == n &&
            memcmp(answer->tools[i].name, name, n) == 0)
            return &answer->tools[i];
    return NULL;
}

/* ---- JSON ---- */

/* A string without escapes in *text, as keys and names of tools are. */
static tool_match expect_string(const base_buffer *b, size_t *at, const char **text, size_t *n) {
    tool_match m = tool_heads_expect(b, at, "\"");
    if (m != TOOL_YES) return m;
    *text = b->data + *at;
    for (*n = 0; *at < b->len; (*at)++, (*n)++) {
        if (b->data[*at] == '\\') return TOOL_NO;
        if (b->data[*at] != '"') continue;
        (*at)++;
        return TOOL_YES;
    }
    return TOOL_PERHAPS;
}

/* Any value. A number is whole only with what follows it. */
static tool_match skip_value(const base_buffer *b, size_t *at) {
    bool in_string = false;
    int32_t depth = 0;
    *at += tool_heads_spaces(b, *at);
    for (size_t first = *at; *at < b->len; (*at)++) {
        const char c = b->data[*at];
        if (in_string) {
            if (c == '\\') (*at)++;
            else if (c == '"') in_string = false;
        } else if (c == '"') in_string = true;
        else if (c == '{' || c == '[') depth++;
        else if (depth == 0 && (c == ',' || c == '}' || c == ']')) return *at > first ? TOOL_YES : TOOL_NO;
        else if (c == '}' || c == ']') depth--;
    }
    *at = b->len;
    return TOOL_PERHAPS;
}

static bool is_one_of(const char *name, size_t n, const char *const names[2]) {
    for (size_t i = 0; i < 2; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return true;
    return false;
}

/* A member: *key, and *at at its value. */
static tool_match expect_key(const base_buffer *b, size_t *at, const char **key, size_t *n) {
    tool_match m = expect_string(b, at, key, n);
    if (m == TOOL_YES) m = tool_heads_expect(b, at, ":");
    return m;
}

#define NAME_BYTES 480 /* a name after the arguments ends within so many bytes: less than a head has */

static const char *const name_keys[2] = {"name", "tool_name"};

/* The name after the arguments at `at`, as Hermes 2 and Falcon H1 write it. */
static tool_match name_behind(const answer_form *answer, const base_buffer *b, size_t at, const tool_spec **tool) {
    const char *key, *name;
    size_t n, n_name;
    tool_match m = skip_value(b, &at);
    while (m == TOOL_YES && (m = tool_heads_expect(b, &at, ",")) == TOOL_YES) {
        if ((m = expect_key(b, &at, &key, &n)) != TOOL_YES) return m;
        if (!is_one_of(key, n, name_keys)) {
            m = skip_value(b, &at);
            continue;
        }
        if ((m = expect_string(b, &at, &name, &n_name)) != TOOL_YES) return m;
        *tool = at <= NAME_BYTES ? tool_heads_find_tool(answer, name, n_name) : NULL;
        return *tool ? TOOL_YES : TOOL_NO;
    }
    return m;
}

static tool_match json_head(const answer_form *answer, const base_buffer *b, size_t *at, const tool_spec **tool) {
    BASE_ASSERT(!*tool);
    static const char *const arguments[2] = {"arguments", "parameters"};
    const char *key, *name;
    size_t n, n_name;
    tool_match m = tool_heads_expect(b, at, "{");
    while (m == TOOL_YES) {
        if ((m = expect_key(b, at, &key, &n)) != TOOL_YES) return m;
        if (is_one_of(key, n, arguments)) {
            m = tool_heads_expect(b, at, "{");
            if (m == TOOL_YES) (*at)--;
            return m == TOOL_YES && !*tool ? name_behind(answer, b, *at, tool) : m;
        }
        if (is_one_of(key, n, name_keys) && !*tool) {
            if ((m = expect_string(b, at, &name, &n_name)) != TOOL_YES) return m;
            if (!(*tool = tool_heads_find_tool(answer, name, n_name))) return TOOL_NO;
        } else if ((m = skip_value(b, at)) != TOOL_YES) return m;
        m = tool_heads_expect(b, at, ",");
    }
    return m;
}

/* Members after the arguments, and the object's end. */
static tool_match json_tail(const base_buffer *b, size_t *at) {
    const char *key;
    size_t n, before = *at;
    tool_match m;
    while ((m = tool_heads_expect(b, at, "}")) == TOOL_NO) {
        *at = before;
        if ((m = tool_heads_expect(b, at, ",")) != TOOL_YES || (m = expect_key(b, at, &key, &n)) != TOOL_YES ||
            (m = skip_value(b, at)) != TOOL_YES)
            return m;
        before = *at;
    }
    return m;
}

/* ---- names as text ---- */

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_-.:", c));
}

static size_t name_length(const base_buffer *b, size_t at) {
    BASE_ASSERT(at <= b->len);
    size_t n = 0;
    while (at + n < b->len && is_name_char(b->data[at + n])) n++;
    return n;
}

/* The name ends where a character follows that no name has. With ids after a ':', the last one is not the name's. */
static tool_match expect_name(const tool_form *form, const answer_form *answer, const base_buffer *b, size_t *at,
                              const tool_spec **tool) {
    *at += tool_heads_spaces(b, *at);
    size_t n = name_length(b, *at), n_name = n;
    if (*at + n == b->len) return TOOL_PERHAPS;
    if (form->id_mark && form->id_mark[0] == ':')
        for (size_t i = n; i-- > 0;)
            if (b->data[*at + i] == ':') {
                n_name = i;
                break;
            }
    *tool = tool_heads_find_tool(answer, b->data + *at, n_name);
    *at += n;
    return *tool ? TOOL_YES : TOOL_NO;
}

static tool_match named_head(const tool_form *form, const answer_form *answer, const base_buffer *b, size_t *at,
                             const tool_spec **tool) {
    BASE_ASSERT(form->body == TOOL_BODY_NAMED);
    tool_match m = tool_heads_expect(b, at, form->before_name);
    if (m == TOOL_YES) m = expect_name(form, answer, b, at, tool);
    if (m != TOOL_YES) return m;
    size_t after = *at;
    if (form->id_mark && form->id_mark[0] != ':') {
        m = tool_heads_expect(b, at, form->id_mark);
        if (m == TOOL_PERHAPS) { /* after_name may begin alike */
            size_t other = after;
            if (tool_heads_expect(b, &other, form->after_name) != TOOL_NO) m = TOOL_NO;
        }
        if (m == TOOL_PERHAPS) return m;
        if (m == TOOL_YES) *at += name_length(b, *at);
        else *at = after;
    }
    m = tool_heads_expect(b, at, form->after_name);
    if (m == TOOL_YES) m = tool_heads_expect(b, at, "{");
    if (m == TOOL_YES) (*at)--;
    return m;
}

/* ---- arguments as text ---- */

static tool_match first_of(tool_match a, tool_match b) {
    if (a == TOOL_YES || b == TOOL_YES) return TOOL_YES;
    return a == TOOL_PERHAPS || b == TOOL_PERHAPS ? TOOL_PERHAPS : TOOL_NO;
}

static tool_match text_head(const tool_form *form, const answer_form *answer, const base_buffer *b, size_t *at,
                            const tool_spec **tool) {
    BASE_ASSERT(form->body == TOOL_BODY_TEXT || form->body == TOOL_BODY_LITERALS);
    tool_match m = expect_name(form, answer, b, at, tool);
    if (m == TOOL_YES) m = tool_heads_expect(b, at, form->after_name);
    if (m != TOOL_YES || form->body == TOOL_BODY_LITERALS) return m;
    *at += tool_heads_spaces(b, *at);
    size_t key = *at, end = *at;
    return first_of(tool_heads_expect(b, &key, form->key_open), tool_heads_expect(b, &end, form->end));
}

tool_match tool_heads_key(const tool_form *form, const base_buffer *b, size_t *at, const char **name, size_t *n_name,
                          tool_value *value) {
    BASE_ASSERT(form->body == TOOL_BODY_TEXT);
    tool_match m = tool_heads_expect(b, at, form->key_open), json = TOOL_NO;
    if (m != TOOL_YES) return m;
    const char *end = *at < b->len ? memchr(b->data + *at, form->key_close[0], b->len - *at) : NULL;
    if (!end) return TOOL_PERHAPS;
    *name = b->data + *at;
    *n_name = (size_t)(end - *name);
    *at += *n_name;
    size_t other = *at;
    m = tool_heads_expect(b, at, form->key_close);
    if (form->key_close_json) json = tool_heads_expect(b, &other, form->key_close_json);
    if (json == TOOL_YES) *at = other;
    *value = json == TOOL_YES ? TOOL_VALUE_JSON : form->key_close_json ? TOOL_VALUE_TEXT
                                                                       : TOOL_VALUE_BY_SCHEMA;
    return first_of(m, json);
}

/* ---- calls ---- */

tool_match tool_heads_call(const tool_form *form, const answer_form *answer, const base_buffer *b, size_t *at,
                           const tool_spec **tool) {
    tool_match m = tool_heads_expect(b, at, form->begin);
    *tool = NULL;
    if (m != TOOL_YES) return m;
    switch (form->body) {
    case TOOL_BODY_JSON: return json_head(answer, b, at, tool);
    case TOOL_BODY_NAMED: return named_head(form, answer, b, at, tool);
    default: return text_head(form, answer, b, at, tool);
    }
}

tool_match tool_heads_tail(const tool_form *form, const base_buffer *b, size_t *at) {
    tool_match m = TOOL_YES;
    if (form->body == TOOL_BODY_JSON) m = json_tail(b, at);
    else if (form->body == TOOL_BODY_NAMED) m = tool_heads_expect(b, at, form->after_arguments);
    return m == TOOL_YES ? tool_heads_expect(b, at, form->end) : m;
}

/* ---- arguments that are strings ---- */

const json_t *tool_heads_listed(const json_t *schema) {
    const json_t *fixed = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    bool strings = json_array_size(values) > 0;
    if (fixed) return json_is_string(fixed) ? fixed : NULL;
    for (size_t i = 0; i < json_array_size(values); i++) strings &= json_is_string(json_array_get(values, i));
    return strings ? values : NULL;
}

static bool has_end(const tool_form *form, const json_t *string) {
    BASE_ASSERT(json_is_string(string));
    return strstr(json_string_value(string), form->value_end) != NULL;
}

bool tool_heads_is_text(const tool_form *form, const tool_spec *tool, const char *name, size_t n) {
    const json_t *schema = json_object_getn(json_object_get(tool->schema, "properties"), name, n),
                 *listed = tool_heads_listed(schema), *type = json_object_get(schema, "type");
    if (json_is_string(listed)) return !has_end(form, listed);
    for (size_t i = 0; i < json_array_size(listed); i++)
        if (has_end(form, json_array_get(listed, i))) return false;
    return listed || (json_is_string(type) && strcasecmp(json_string_value(type), "string") == 0);
}

/* ---- headers of harmony ---- */

static const char message_mark[] = "<|message|>", channel_mark[] = "<|channel|>", recipient_mark[] = "to=";
static const char *const begins[] = {"<|start|>", "<|channel|>", NULL}, *const ends[] = {"<|end|>", "<|return|>",
                                                                                         "<|call|>", NULL};

const char *tool_channels_end(size_t i) { return ends[i]; }
const char *tool_channels_begin(size_t i) { return begins[i]; }

/* Where a text is in [at, end); NULL: nowhere. */
static const char *find_text(const char *at, const char *end, const char *text) {
    BASE_ASSERT(at <= end);
    const size_t n = strlen(text);
    for (; (size_t)(end - at) >= n; at++)
        if (memcmp(at, text, n) == 0) return at;
    return NULL;
}

/* Does b begin as a header does? The first one may begin with its recipient. */
static tool_match header_begins(const base_buffer *b) {
    static const char *const texts[] = {"<|start|>", "<|channel|>", " to=", "to="};
    tool_match all = TOOL_NO;
    for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++) {
        const size_t n = BASE_MIN(strlen(texts[i]), b->len);
        if (memcmp(b->data, texts[i], n) != 0) continue;
        if (n == strlen(texts[i])) return TOOL_YES;
        all = TOOL_PERHAPS;
    }
    return all;
}

/* The word after a mark in [at, end): letters of names. */
static size_t word_after(const char *at, const char *end, const char *mark, const char **word) {
    const char *found = find_text(at, end, mark);
    if (!found) return 0;
    *word = found += strlen(mark);
    while (found < end && *found != ' ' && *found != '<') found++;
    return (size_t)(found - *word);
}

tool_match tool_channels_header(const answer_form *answer, const base_buffer *b, size_t most, tool_channel *channel,
                                const tool_spec **tool, size_t *n_bytes) {
    static const char functions[] = "functions.";
    if (b->len == 0) return TOOL_PERHAPS;
    tool_match m = header_begins(b);
    if (m != TOOL_YES) return m;
    const size_t n = BASE_MIN(b->len, most);
    const char *end = find_text(b->data, b->data + n, message_mark), *to = NULL, *name = NULL;
    if (!end) return b->len < most ? TOOL_PERHAPS : TOOL_NO;
    for (size_t i = 0; ends[i]; i++)
        if (find_text(b->data, end, ends[i])) return TOOL_NO;
    size_t n_to = word_after(b->data, end, recipient_mark, &to), n_name = word_after(b->data, end, channel_mark, &name);
    *n_bytes = (size_t)(end - b->data) + sizeof(message_mark) - 1;
    *channel = n_to > 0                                          ? TOOL_CHANNEL_UNKNOWN
               : n_name == 8 && memcmp(name, "analysis", 8) == 0 ? TOOL_CHANNEL_REASONING
                                                                 : TOOL_CHANNEL_TEXT;
    if (n_to <= sizeof(functions) - 1 || memcmp(to, functions, sizeof(functions) - 1) != 0) return TOOL_YES;
    *tool = tool_heads_find_tool(answer, to + sizeof(functions) - 1, n_to - (sizeof(functions) - 1));
    if (!*tool) return TOOL_YES;
    size_t at = *n_bytes;
    m = tool_heads_expect(b, &at, "{");
    if (m == TOOL_YES && at <= most) {
        *channel = TOOL_CHANNEL_CALL;
        *n_bytes = at - 1;
    }
    return m == TOOL_PERHAPS && b->len < most ? TOOL_PERHAPS : TOOL_YES;
}
