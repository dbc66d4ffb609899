/* SPDX-License-Identifier: Apache-2.0 */
/* tool_literals.c: see tool_literals.h. A step reads a name, a separator, a bracket, a literal or part of a string. */
#include "structured/tool_literals.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/json_read.h"

enum {
    AT_FIRST, /* after an opening bracket */
    AT_NEXT,  /* after a comma */
    AT_VALUE,
    AT_SEPARATOR, /* after a name in quotes */
    AT_AFTER,     /* after a value */
    IN_STRING,
};

/* What is read, and what has been used of it. */
typedef struct input {
    const char *text;
    size_t n, at;
} input;

typedef enum step { STEP_DONE,
                    STEP_MORE /* more text is needed */,
                    STEP_BROKEN,
                    STEP_WHOLE,
                    STEP_FAILED } step;

bool tool_brackets_push(uint64_t *brackets, int32_t *depth, bool is_object) {
    BASE_ASSERT(*depth >= 0 && *depth <= TOOL_VALUE_DEPTH);
    if (*depth == TOOL_VALUE_DEPTH) return false;
    const uint64_t bit = UINT64_C(1) << (*depth % 64);
    uint64_t *word = &brackets[(*depth)++ / 64];
    *word = is_object ? *word | bit : *word & ~bit;
    return true;
}

bool tool_brackets_pop(const uint64_t *brackets, int32_t *depth, bool is_object) {
    BASE_ASSERT(*depth <= TOOL_VALUE_DEPTH);
    (*depth)--;
    return *depth >= 0 && (brackets[*depth / 64] >> (*depth % 64) & 1) == is_object;
}

int tool_literals_escape(base_buffer *out, const char *text, size_t n) {
    size_t plain = 0;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        rc = base_buffer_append(out, text + plain, i - plain);
        if (!rc && (c == '"' || c == '\\')) rc = base_buffer_printf(out, "\\%c", c);
        else if (!rc) rc = c == '\n' ? base_buffer_append_str(out, "\\n") : base_buffer_printf(out, "\\u%04x", c);
        plain = i + 1;
    }
    return rc ? rc : base_buffer_append(out, text + plain, n - plain);
}

static int put_string(base_buffer *out, const char *text, size_t n, const char *after) {
    int rc = base_buffer_append_str(out, "\"");
    if (!rc) rc = tool_literals_escape(out, text, n);
    if (!rc) rc = base_buffer_append_str(out, "\"");
    return rc ? rc : base_buffer_append_str(out, after);
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void trim(const char **text, size_t *n) {
    while (*n > 0 && is_space(**text)) (*text)++, (*n)--;
    while (*n > 0 && is_space((*text)[*n - 1])) (*n)--;
}

static bool in_object(const tool_literals *l) {
    BASE_ASSERT(l->depth > 0);
    return l->brackets[(l->depth - 1) / 64] >> ((l->depth - 1) % 64) & 1;
}

static char closing(const tool_literals *l) {
    return !in_object(l) ? ']' : l->depth == 1 ? l->form->notation->close
                                               : '}';
}

static char separator(const tool_literals *l) {
    BASE_ASSERT(l->form->key_close[0]);
    return l->depth == 1 ? l->form->key_close[0] : ':';
}

/* A quote here; NULL: there is none, or *more: it may become one. */
static const char *quote_at(const tool_notation *notation, const input *in, bool *more) {
    *more = false;
    for (size_t i = 0; i < BASE_ARRAY_LEN(notation->quotes) && notation->quotes[i]; i++) {
        const size_t length = strlen(notation->quotes[i]), n = BASE_MIN(length, in->n - in->at);
        if (memcmp(in->text + in->at, notation->quotes[i], n) != 0) continue;
        if (n == length) return notation->quotes[i];
        *more = true;
    }
    return NULL;
}

/* Bytes before the first of the characters, or what is missing for them. */
static step read_word(const input *in, const char *ends, size_t *n) {
    const size_t most = BASE_MIN(in->n - in->at, (size_t)TOOL_LITERALS_WORD_BYTES);
    for (*n = 0; *n < most; (*n)++)
        if (in->text[in->at + *n] != '\0' && strchr(ends, in->text[in->at + *n])) return STEP_DONE;
    return most < TOOL_LITERALS_WORD_BYTES ? STEP_MORE : STEP_BROKEN;
}

static step checked(int rc, step otherwise, int *error) {
    BASE_ASSERT(otherwise != STEP_FAILED);
    *error = rc;
    return rc ? STEP_FAILED : otherwise;
}

static step begin_string(tool_literals *l, input *in, const char *quote, bool is_key, base_buffer *out, int *error) {
    BASE_ASSERT(in->at + strlen(quote) <= in->n);
    in->at += strlen(quote);
    l->quote = quote;
    l->is_key = is_key;
    l->state = IN_STRING;
    return checked(base_buffer_append_str(out, "\""), STEP_DONE, error);
}

static step close_bracket(tool_literals *l, input *in, base_buffer *out, int *error) {
    const bool is_object = in_object(l);
    in->at++;
    tool_brackets_pop(l->brackets, &l->depth, is_object);
    l->state = AT_AFTER;
    return checked(base_buffer_append_str(out, is_object ? "}" : "]"), l->depth == 0 ? STEP_WHOLE : STEP_DONE, error);
}

/* A name and its separator, or the beginning of one in quotes. */
static step read_name(tool_literals *l, input *in, const char *quote, base_buffer *out, int *error) {
    const char ends[] = {separator(l), ',', '{', '}', '[', ']', '(', ')', '\n', '\0'}, *name = in->text + in->at;
    size_t n = 0;
    if (quote) return begin_string(l, in, quote, true, out, error);
    const step word = read_word(in, ends, &n);
    if (word != STEP_DONE) return word;
    if (name[n] != separator(l)) return STEP_BROKEN;
    in->at += n + 1;
    trim(&name, &n);
    if (n == 0) return STEP_BROKEN;
    l->state = AT_VALUE;
    return checked(put_string(out, name, n, ": "), STEP_DONE, error);
}

/* A member, an item, or the end of them. */
static step read_member(tool_literals *l, input *in, base_buffer *out, int *error) {
    bool more = false;
    if (in->text[in->at] == closing(l)) return close_bracket(l, in, out, error);
    const bool may_quote = in_object(l) && (l->depth > 1 || l->form->notation->bare_keys);
    const char *quote = may_quote ? quote_at(l->form->notation, in, &more) : NULL;
    if (may_quote && !quote && more) return STEP_MORE;
    base_buffer name = BASE_BUFFER(TOOL_LITERALS_WORD_BYTES * 8);
    const bool is_next = l->state == AT_NEXT;
    step done = STEP_DONE;
    if (in_object(l)) done = read_name(l, in, quote, &name, error);
    else l->state = AT_VALUE;
    if (done == STEP_DONE && is_next) done = checked(base_buffer_append_str(out, ", "), STEP_DONE, error);
    if (done == STEP_DONE && name.len > 0)
        done = checked(base_buffer_append(out, name.data, name.len), STEP_DONE, error);
    base_buffer_free(&name);
    return done;
}

/* A literal without quotes. */
static step read_bare(tool_literals *l, input *in, base_buffer *out, int *error) {
    static const char *const names[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *word = in->text + in->at;
    size_t n = 0;
    const step found = read_word(in, ",}])", &n);
    if (found != STEP_DONE) return found;
    in->at += n;
    trim(&word, &n);
    if (n == 0) return STEP_BROKEN;
    l->state = AT_AFTER;
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
        if (strlen(names[i][0]) == n && memcmp(names[i][0], word, n) == 0)
            return checked(base_buffer_append_str(out, names[i][1]), STEP_DONE, error);
    json_t *value = base_json_read(word, n, BASE_JSON_AS_WRITTEN);
    const bool is_json = value && !json_is_object(value) && !json_is_array(value);
    json_decref(value);
    return checked(is_json ? base_buffer_append(out, word, n) : put_string(out, word, n, ""), STEP_DONE, error);
}

static step read_literal(tool_literals *l, input *in, base_buffer *out, int *error) {
    const char c = in->text[in->at];
    bool more;
    const char *quote = quote_at(l->form->notation, in, &more);
    if (quote) return begin_string(l, in, quote, false, out, error);
    if (more) return STEP_MORE;
    if (c != '{' && c != '[') return read_bare(l, in, out, error);
    if (!tool_brackets_push(l->brackets, &l->depth, c == '{')) return STEP_BROKEN;
    in->at++;
    l->state = AT_FIRST;
    return checked(base_buffer_append(out, &c, 1), STEP_DONE, error);
}

/* ---- strings ---- */

/* Bytes of text that are no part of the quote, whatever follows. */
static size_t before_quote(const input *in, const char *quote) {
    const size_t length = strlen(quote);
    size_t i = in->at;
    while (i < in->n && memcmp(in->text + i, quote, BASE_MIN(length, in->n - i)) != 0) i++;
    return i - in->at;
}

static step end_string(tool_literals *l, input *in, base_buffer *out, int *error) {
    in->at += strlen(l->quote);
    l->state = l->is_key ? AT_SEPARATOR : AT_AFTER;
    return checked(base_buffer_append_str(out, "\""), STEP_DONE, error);
}

static step read_plain(tool_literals *l, input *in, base_buffer *out, int *error) {
    const size_t n = before_quote(in, l->quote), left = in->n - in->at - n;
    const int rc = tool_literals_escape(out, in->text + in->at, n);
    in->at += n;
    if (rc) return checked(rc, STEP_DONE, error);
    return left >= strlen(l->quote) ? end_string(l, in, out, error) : STEP_MORE;
}

static int hex_digits(const char *text, size_t n, uint32_t *value) {
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        *value = *value * 16 + (uint32_t)digit;
    }
    return 0;
}

/* \uXXXX, or two that are a pair; half of one becomes U+FFFD. \xXX. */
static step read_code(input *in, size_t digits, base_buffer *out, int *error) {
    const size_t n = in->n - in->at;
    const char *text = in->text + in->at;
    uint32_t code = 0, low = 0;
    if (n < 2 + digits) return STEP_MORE;
    if (hex_digits(text + 2, digits, &code)) {
        in->at++;
        return checked(base_buffer_append_str(out, "\\\\"), STEP_DONE, error);
    }
    const bool is_high = code >= 0xD800 && code < 0xDC00;
    if (is_high && n < 12 && memcmp(text + 6, "\\u", BASE_MIN((size_t)2, n - 6)) == 0) return STEP_MORE;
    const bool is_pair = is_high && n >= 12 && memcmp(text + 6, "\\u", 2) == 0 && hex_digits(text + 8, 4, &low) == 0 &&
                         low >= 0xDC00 && low < 0xE000;
    in->at += is_pair ? 12 : 2 + digits;
    if (!is_pair && code >= 0xD800 && code < 0xE000) code = 0xFFFD;
    const int rc = base_buffer_printf(out, "\\u%04x", (unsigned)code);
    return checked(rc || !is_pair ? rc : base_buffer_printf(out, "\\u%04x", (unsigned)low), STEP_DONE, error);
}

/* An escape of Python, or of JSON. */
static step read_escape(input *in, base_buffer *out, int *error) {
    BASE_ASSERT(in->text[in->at] == '\\');
    if (in->n - in->at < 2) return STEP_MORE;
    const char c = in->text[in->at + 1];
    if (c == 'u') return read_code(in, 4, out, error);
    if (c == 'x') return read_code(in, 2, out, error);
    const char code[] = {'\\', c, '\0'};
    const char *text = c != '\0' && strchr("\"\\bfnrt", c) ? code : c == '\'' ? "'"
                                                                : c == '/'    ? "/"
                                                                : c == '\n'   ? ""
                                                                              : "\\\\";
    in->at += strcmp(text, "\\\\") == 0 && c != '\\' ? 1 : 2; /* a backslash before anything else is one */
    return checked(base_buffer_append_str(out, text), STEP_DONE, error);
}

/* A quote ends its string before what may follow one. */
static step read_escaped(tool_literals *l, input *in, base_buffer *out, int *error) {
    const char ends[] = {l->quote[0], '\\', '\0'};
    size_t n = 0;
    while (in->at + n < in->n && (in->text[in->at + n] == '\0' || !strchr(ends, in->text[in->at + n]))) n++;
    const int rc = tool_literals_escape(out, in->text + in->at, n);
    in->at += n;
    if (rc) return checked(rc, STEP_DONE, error);
    if (in->at == in->n) return STEP_MORE;
    if (in->text[in->at] == '\\') return read_escape(in, out, error);
    size_t after = in->at + 1;
    while (after < in->n && is_space(in->text[after]) && after - in->at < TOOL_LITERALS_WORD_BYTES) after++;
    if (after == in->n) return STEP_MORE;
    const char next[] = {l->is_key ? separator(l) : ',', l->is_key ? '\0' : closing(l), '\0'};
    if (in->text[after] != '\0' && strchr(next, in->text[after])) return end_string(l, in, out, error);
    in->at++;
    return checked(tool_literals_escape(out, l->quote, 1), STEP_DONE, error);
}

/* ---- all of it ---- */

static step read_step(tool_literals *l, input *in, base_buffer *out, int *error) {
    const bool escapes = l->form->notation->has_escapes;
    if (l->state == IN_STRING) return escapes ? read_escaped(l, in, out, error) : read_plain(l, in, out, error);
    while (in->at < in->n && is_space(in->text[in->at])) in->at++;
    if (in->at == in->n) return STEP_MORE;
    const char c = in->text[in->at];
    switch (l->state) {
    case AT_FIRST:
    case AT_NEXT: return read_member(l, in, out, error);
    case AT_VALUE: return read_literal(l, in, out, error);
    case AT_SEPARATOR:
        if (c != separator(l)) return STEP_BROKEN;
        in->at++;
        l->state = AT_VALUE;
        return checked(base_buffer_append_str(out, ": "), STEP_DONE, error);
    default:
        if (c == closing(l)) return close_bracket(l, in, out, error);
        if (c != ',') return STEP_BROKEN;
        in->at++;
        l->state = AT_NEXT;
        return STEP_DONE;
    }
}

void tool_literals_begin(tool_literals *l, const tool_form *form) {
    BASE_ASSERT(form->body == TOOL_BODY_LITERALS && form->notation);
    l->form = form;
    l->state = AT_FIRST;
    l->depth = 0;
    tool_brackets_push(l->brackets, &l->depth, true);
}

int tool_literals_read(tool_literals *l, const char *text, size_t n, size_t *used, base_buffer *out,
                       tool_literals_verdict *verdict) {
    input in = {text, n, 0};
    step done = STEP_DONE;
    int error = 0;
    while (done == STEP_DONE) done = read_step(l, &in, out, &error);
    *used = in.at;
    *verdict = done == STEP_WHOLE ? TOOL_LITERALS_WHOLE : done == STEP_BROKEN ? TOOL_LITERALS_BROKEN
                                                                              : TOOL_LITERALS_GO_ON;
    BASE_ASSERT(in.at <= n && (error != 0) == (done == STEP_FAILED));
    return error;
}
