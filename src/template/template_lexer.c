/* SPDX-License-Identifier: Apache-2.0 */
/* template_lexer.c: source to tokens, with white space control: {%- -%}, trim_blocks, lstrip_blocks, as in Jinja2's
 * lexer.
 *
 *   DATA --"{%" "{{" "{#"--> BLOCK, VARIABLE, COMMENT --"%}" "}}" "#}"--> DATA
 *
 * trim_blocks removes the line end after a block or a comment; lstrip_blocks removes the white space before one that is
 * the first on its line; "-" removes all white space on its side, "+" prevents both. Owns nothing. One thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "template/template_internal.h"

#define MAX_TOKENS ((size_t)1 << 20)
#define MAX_OPEN_BRACKETS 256

typedef struct lexer {
    arena *memory;
    const char *source, *name;
    size_t n, at;
    uint32_t line;
    bool starts_line; /* what came before the data ended with a line end, or is the beginning */
    token_stream *out;
    rp_error *err;
    int rc;
} lexer;

BASE_PRINTF(3, 4)
static void lexer_fail(lexer *x, rp_code code, const char *fmt, ...) {
    char message[RP_ERROR_MESSAGE_BYTES], where[RP_ERROR_WHERE_BYTES];
    va_list ap;
    if (x->rc) return;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    snprintf(where, sizeof(where), "%.200s:%u", x->name, x->line);
    x->rc = base_fail_at(x->err, code, where, x->at, "%s", message);
}

static void lexer_add(lexer *x, token_kind kind, const char *bytes, size_t n) {
    BASE_ASSERT(x->out->n <= x->out->cap);
    token_stream *out = x->out;
    if (x->rc) return;
    if (out->n == out->cap) {
        size_t cap = out->cap ? out->cap * 2 : 256;
        token *items = cap > MAX_TOKENS ? NULL : arena_alloc(x->memory, cap * sizeof(*items));
        if (!items) {
            if (cap > MAX_TOKENS) lexer_fail(x, RP_ERR_LIMIT, "the template has more than %zu tokens", MAX_TOKENS);
            else x->rc = base_fail_memory(x->err, cap * sizeof(*items), "a chat template");
            return;
        }
        if (out->n > 0) memcpy(items, out->items, out->n * sizeof(*items));
        out->items = items;
        out->cap = cap;
    }
    out->items[out->n++] = (token){.kind = (uint8_t)kind, .line = x->line, .bytes = bytes, .n = n};
}

static void lexer_skip(lexer *x, size_t to) {
    BASE_ASSERT(to <= x->n);
    for (; x->at < to; x->at++) x->line += x->source[x->at] == '\n';
}

static bool lexer_is(const lexer *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return at + n <= x->n && memcmp(x->source + at, text, n) == 0;
}

/* The character at `at` < n, and its length. */
static uint32_t lexer_character(const lexer *x, size_t at, size_t *n) {
    BASE_ASSERT(at < x->n);
    const string all = {.bytes = x->source, .n = x->n};
    return string_at(&all, at, n);
}

static size_t after_space(const lexer *x, size_t at) {
    size_t n = 0;
    while (at < x->n && is_python_space(lexer_character(x, at, &n))) at += n;
    return at;
}

static size_t before_space(const lexer *x, size_t from, size_t to) {
    BASE_ASSERT(from <= to && to <= x->n);
    while (to > from) {
        size_t at = to - 1, n;
        while (at > from && ((unsigned char)x->source[at] & 0xc0) == 0x80) at--;
        if (!is_python_space(lexer_character(x, at, &n))) break;
        to = at;
    }
    return to;
}

/* ---- Data ---- */

/* The end of the data before a tag that begins at `to` with that sign. */
static size_t data_end(const lexer *x, size_t from, size_t to, char sign, bool is_variable) {
    BASE_ASSERT(from <= to && to <= x->n);
    if (sign == '-') return before_space(x, from, to);
    if (sign == '+' || is_variable) return to;
    size_t line = to;
    while (line > from && x->source[line - 1] != '\n') line--;
    if (line == from && !x->starts_line) return to;
    return before_space(x, line, to) == line ? line : to;
}

/* After the end of a block or comment: its line end, or with "-" all white space. */
static void finish_tag(lexer *x, size_t end, bool strips, bool trims) {
    if (strips) end = after_space(x, end);
    else if (trims && end < x->n && x->source[end] == '\n') end++;
    lexer_skip(x, end);
    x->starts_line = x->at > 0 && x->source[x->at - 1] == '\n';
}

static void lex_comment(lexer *x) {
    BASE_ASSERT(lexer_is(x, x->at, "{#"));
    size_t begin = x->at + 2, end;
    if (begin < x->n && (x->source[begin] == '-' || x->source[begin] == '+')) begin++;
    for (end = begin; end < x->n && !lexer_is(x, end, "#}");) end++;
    if (end >= x->n) {
        lexer_fail(x, RP_ERR_SYNTAX, "a comment has no end: close it with #}");
        return;
    }
    char before = end > begin ? x->source[end - 1] : ' ';
    finish_tag(x, end + 2, before == '-', before != '+');
}

/* The end of {% NAME %}, from `at` after "{%": the byte after it; 0: it is another tag. *strips: it ends with -%};
   *plus, if given: with +%}. */
static size_t named_tag(const lexer *x, size_t at, const char *name, bool *strips, bool *plus) {
    if (at < x->n && (x->source[at] == '-' || x->source[at] == '+')) at++;
    at = after_space(x, at);
    if (!lexer_is(x, at, name)) return 0;
    at = after_space(x, at + strlen(name));
    *strips = lexer_is(x, at, "-%}");
    if (plus) *plus = lexer_is(x, at, "+%}");
    if (*strips || (plus && *plus)) return at + 3;
    return lexer_is(x, at, "%}") ? at + 2 : 0;
}

/* {% raw %}: text up to {% endraw %}. `begin` is after the opening tag. */
static void lex_raw(lexer *x, size_t begin, bool strips_begin) {
    bool strips, plus;
    if (strips_begin) begin = after_space(x, begin);
    lexer_skip(x, begin);
    x->starts_line = false;
    for (size_t at = begin; at < x->n; at++) {
        if (!lexer_is(x, at, "{%")) continue;
        size_t end = named_tag(x, at + 2, "endraw", &strips, &plus);
        if (end == 0) continue;
        char sign = at + 2 < x->n ? x->source[at + 2] : ' ';
        size_t to = data_end(x, begin, at, sign, false);
        if (to > begin) lexer_add(x, TOKEN_DATA, x->source + begin, to - begin);
        finish_tag(x, end, strips, !plus);
        return;
    }
    lexer_fail(x, RP_ERR_SYNTAX, "{%% raw %%} has no end: close it with {%% endraw %%}");
}

/* ---- Code ---- */

static bool is_name_start(uint32_t c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t digits_end(const lexer *x, size_t at) {
    while (at < x->n &&
           (is_digit(x->source[at]) || (x->source[at] == '_' && at + 1 < x->n && is_digit(x->source[at + 1]))))
        at++;
    return at;
}

/* The end of an integer: 0x1f, 0o17, 0b1, zeros, or digits of which the first is not 0. */
static size_t integer_end(const lexer *x, size_t at) {
    BASE_ASSERT(at < x->n);
    static const char *const digits[] = {"0123456789abcdefABCDEF", "01234567", "01"};
    char mark = x->source[at] == '0' && at + 1 < x->n ? (char)(x->source[at + 1] | 0x20) : ' ';
    int base = mark == 'x' ? 0 : mark == 'o' ? 1
                             : mark == 'b'   ? 2
                                             : -1;
    const char *accepted = base >= 0 ? digits[base] : x->source[at] == '0' ? "0"
                                                                           : "0123456789";
    size_t begin = base >= 0 ? at + 2 : at, end = begin;
    while (end < x->n) {
        size_t next = x->source[end] == '_' && (end > begin || base >= 0) ? end + 1 : end;
        if (next >= x->n || !x->source[next] || !strchr(accepted, x->source[next])) break;
        end = next + 1;
    }
    return end > begin ? end : at + 1;
}

static void lex_number(lexer *x) {
    BASE_ASSERT(is_digit(x->source[x->at]));
    size_t end = digits_end(x, x->at);
    bool is_float = false, after_dot = x->at > 0 && x->source[x->at - 1] == '.';
    if (!after_dot && end + 1 < x->n && x->source[end] == '.' && is_digit(x->source[end + 1])) {
        end = digits_end(x, end + 1);
        is_float = true;
    }
    if (!after_dot && end < x->n && (x->source[end] == 'e' || x->source[end] == 'E')) {
        size_t digits = end + 1;
        if (digits < x->n && (x->source[digits] == '+' || x->source[digits] == '-')) digits++;
        if (digits < x->n && is_digit(x->source[digits])) {
            end = digits_end(x, digits);
            is_float = true;
        }
    }
    if (!is_float) end = integer_end(x, x->at);
    lexer_add(x, is_float ? TOKEN_FLOAT : TOKEN_INT, x->source + x->at, end - x->at);
    lexer_skip(x, end);
}

static void lex_string(lexer *x) {
    BASE_ASSERT(x->source[x->at] == '"' || x->source[x->at] == '\'');
    char quote = x->source[x->at];
    size_t end = x->at + 1;
    while (end < x->n && x->source[end] != quote) end += x->source[end] == '\\' ? 2 : 1;
    if (end >= x->n) {
        lexer_fail(x, RP_ERR_SYNTAX, "unterminated string literal: add a closing quote");
        return;
    }
    lexer_add(x, TOKEN_STRING, x->source + x->at + 1, end - x->at - 1);
    lexer_skip(x, end + 1);
}

static void lex_operator(lexer *x, char *open, size_t *n_open) {
    BASE_ASSERT(*n_open <= MAX_OPEN_BRACKETS);
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(",
                                            ")", "[", "]", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
        char c = operators[i][0];
        if (!lexer_is(x, x->at, operators[i])) continue;
        if (strchr("([{", c)) {
            if (*n_open == MAX_OPEN_BRACKETS)
                lexer_fail(x, RP_ERR_LIMIT, "brackets are nested deeper than %d", MAX_OPEN_BRACKETS);
            else open[(*n_open)++] = c;
        } else if (strchr(")]}", c)) {
            if (*n_open == 0 || strchr("([{", open[*n_open - 1]) - "([{" != strchr(")]}", c) - ")]}")
                lexer_fail(x, RP_ERR_SYNTAX, "unexpected '%c'", c);
            else (*n_open)--;
        }
        lexer_add(x, TOKEN_OPERATOR, operators[i], strlen(operators[i]));
        lexer_skip(x, x->at + strlen(operators[i]));
        return;
    }
    lexer_fail(x, RP_ERR_SYNTAX, "unexpected character '%c' in an expression", x->source[x->at]);
}

/* Between the brackets of a block or variable. `close`: "%}" or "}}". */
static void lex_code(lexer *x, token_kind end_kind, const char *close) {
    BASE_ASSERT(end_kind == TOKEN_BLOCK_END || end_kind == TOKEN_VARIABLE_END);
    char open[MAX_OPEN_BRACKETS];
    size_t n_open = 0, n;
    while (!x->rc) {
        lexer_skip(x, after_space(x, x->at));
        if (x->at >= x->n) {
            lexer_fail(x, RP_ERR_SYNTAX, "unexpected end of the template: close the tag with %s", close);
            return;
        }
        char sign = x->source[x->at];
        bool is_signed = (sign == '-' || (sign == '+' && end_kind == TOKEN_BLOCK_END)) && lexer_is(x, x->at + 1, close);
        if (n_open == 0 && (is_signed || lexer_is(x, x->at, close))) {
            lexer_add(x, end_kind, x->source + x->at, 2);
            finish_tag(x, x->at + (is_signed ? 3 : 2), is_signed && sign == '-',
                       end_kind == TOKEN_BLOCK_END && !is_signed);
            return;
        }
        uint32_t c = lexer_character(x, x->at, &n);
        if (is_digit(x->source[x->at])) lex_number(x);
        else if (c == '"' || c == '\'') lex_string(x);
        else if (is_name_start(c)) {
            size_t end = x->at;
            for (; end < x->n && (is_name_start(c = lexer_character(x, end, &n)) || (c < 0x80 && is_digit((char)c)));
                 end += n) {}
            lexer_add(x, TOKEN_NAME, x->source + x->at, end - x->at);
            lexer_skip(x, end);
        } else lex_operator(x, open, &n_open);
    }
}

/* Data up to the next tag, and the tag. */
static void lex_next(lexer *x) {
    size_t from = x->at, to = from, raw = 0;
    bool strips;
    while (to < x->n && !(x->source[to] == '{' && to + 1 < x->n && strchr("{%#", x->source[to + 1]))) to++;
    bool is_tag = to < x->n, is_variable = is_tag && x->source[to + 1] == '{';
    char sign = to + 2 < x->n ? x->source[to + 2] : ' ';
    size_t end = is_tag ? data_end(x, from, to, sign, is_variable) : to;
    if (end > from) lexer_add(x, TOKEN_DATA, x->source + from, end - from);
    lexer_skip(x, to);
    if (!is_tag) return;
    if (x->source[to + 1] == '#') {
        lex_comment(x);
        return;
    }
    if (!is_variable && (raw = named_tag(x, to + 2, "raw", &strips, NULL)) > 0) {
        lex_raw(x, raw, strips);
        return;
    }
    lexer_add(x, is_variable ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, x->source + to, 2);
    lexer_skip(x, to + 2 + (sign == '-' || sign == '+'));
    lex_code(x, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, is_variable ? "}}" : "%}");
}

int template_tokenize(arena *memory, const char *source, size_t n, const char *name, token_stream *out, rp_error *err) {
    BASE_ASSERT(out->n == 0);
    lexer x = {.memory = memory,
               .source = source,
               .name = name,
               .n = n,
               .line = 1,
               .starts_line = true,
               .out = out,
               .err = err};
    if (n > 0 && source[n - 1] == '\n') x.n--;
    while (x.at < x.n && !x.rc) lex_next(&x);
    BASE_ASSERT(x.rc || x.at == x.n);
    lexer_add(&x, TOKEN_END, "", 0);
    return x.rc;
}
