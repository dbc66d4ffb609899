/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_parse.c: parses GBNF text into a tree. Unknown syntax is refused with its line and column, never guessed.
 *
 *   grammar  := rule*                         one per line; it continues in lines that begin with '|' and inside ( )
 *   rule     := name "::=" choice
 *   choice   := sequence ("|" sequence)*
 *   sequence := (item repeat*)*
 *   item     := "literal" | [class] | [^class] | . | name | ( choice )
 *   repeat   := * | + | ? | {m} | {m,} | {m,n}
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "grammar/grammar_internal.h"

#define MAX_EXPRS (4 * RP_MAX_GRAMMAR_BYTES) /* a byte of text adds three at most */
#define LAST_CODE_POINT 0x10ffff

typedef struct parser {
    grammar_tree *t;
    size_t at;
    int depth;             /* of groups */
    grammar_range *ranges; /* of the current class */
    size_t cap_ranges;
} parser;

/* ---- errors ---- */

int grammar_fail(const grammar_tree *t, rp_code code, size_t at, const char *fmt, ...) {
    char text[RP_ERROR_MESSAGE_BYTES], where[RP_ERROR_WHERE_BYTES];
    size_t line = 1, column = 1;
    BASE_ASSERT(at <= t->n_text);
    for (size_t i = 0; i < at; i++) {
        if (t->text[i] == '\n') line++, column = 1;
        else if (((unsigned char)t->text[i] & 0xc0) != 0x80) column++;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(where, sizeof(where), "grammar:%zu:%zu", line, column);
    return base_fail_at(t->err, code, where, at, "%s", text);
}

/* Describes the text at the current offset, for messages. */
static const char *parser_found(const parser *p, char out[16]) {
    const unsigned char *s = (const unsigned char *)p->t->text + p->at;
    BASE_ASSERT(p->at <= p->t->n_text);
    size_t left = p->t->n_text - p->at;
    if (left == 0) return "the end";
    if (*s == '\n' || *s == '\r') return "the end of the line";
    int n = base_utf8_length(s, left);
    if (n > 0 && *s >= ' ' && *s != 0x7f) snprintf(out, 16, "'%.*s'", n, (const char *)s);
    else snprintf(out, 16, "byte 0x%02x", *s);
    return out;
}

static int parser_expected(const parser *p, const char *what) {
    char text[16];
    return grammar_fail(p->t, RP_ERR_SYNTAX, p->at, "expected %s, found %s", what, parser_found(p, text));
}

/* ---- the text ---- */

static char parser_peek(const parser *p) { return p->t->text[p->at]; } /* NUL at its end */

static bool grammar_parse_is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

/* Skips spaces and comments; lines: line ends, too. */
static void skip_space(parser *p, bool lines) {
    for (;;) {
        char c = parser_peek(p);
        if (c == '#')
            while (parser_peek(p) && parser_peek(p) != '\n' && parser_peek(p) != '\r') p->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) p->at++;
        else return;
    }
}

static grammar_name parse_name(parser *p) {
    size_t first = p->at;
    while (grammar_parse_is_name_byte(parser_peek(p))) p->at++;
    return (grammar_name){(uint32_t)first, (uint32_t)(p->at - first), GRAMMAR_NONE};
}

/* n hexadecimal digits after the two bytes of an escape. */
static int parse_hex(parser *p, int n, uint32_t *out) {
    size_t first = p->at;
    p->at += 2;
    *out = 0;
    for (int i = 0; i < n; i++, p->at++) {
        int digit = base_hex_digit(parser_peek(p));
        if (digit < 0) return parser_expected(p, "a hexadecimal digit");
        *out = *out << 4 | (uint32_t)digit;
    }
    if (*out <= LAST_CODE_POINT && (*out < 0xd800 || *out > 0xdfff)) return RP_OK;
    return grammar_fail(p->t, RP_ERR_SYNTAX, first, "U+%04X is not a character%s", *out,
                        *out <= LAST_CODE_POINT ? ", but half of a UTF-16 surrogate pair: write \\U and eight digits"
                                                : "");
}

static int parse_escape(parser *p, uint32_t *out) {
    static const char names[] = "\\\"[]-^trn", values[] = "\\\"[]-^\t\r\n";
    char c = p->t->text[p->at + 1];
    if (c == 'x') return parse_hex(p, 2, out);
    if (c == 'u') return parse_hex(p, 4, out);
    if (c == 'U') return parse_hex(p, 8, out);
    const char *known = c ? strchr(names, c) : NULL;
    if (!known)
        return grammar_fail(
            p->t, RP_ERR_SYNTAX, p->at,
            "unknown escape: give one of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xNN \\uNNNN \\UNNNNNNNN");
    *out = (unsigned char)values[known - names];
    p->at += 2;
    return RP_OK;
}

/* A character of a literal or a class. */
static int parse_character(parser *p, uint32_t *out) {
    const unsigned char *s = (const unsigned char *)p->t->text + p->at;
    if (*s == '\\') return parse_escape(p, out);
    int n = base_utf8_length(s, p->t->n_text - p->at);
    if (n <= 0)
        return grammar_fail(p->t, RP_ERR_SYNTAX, p->at, "byte 0x%02x is not UTF-8: write the grammar in UTF-8", *s);
    *out = base_utf8_decode(s, n);
    p->at += (size_t)n;
    return RP_OK;
}

/* ---- the tree ---- */

static int add_expr(parser *p, grammar_expr expr, uint32_t *out) {
    grammar_tree *t = p->t;
    BASE_ASSERT(expr.kind != EXPR_REPEAT || expr.first < t->n_exprs);
    int rc = base_grow((void **)&t->exprs, &t->cap_exprs, t->n_exprs + 1, MAX_EXPRS, sizeof(*t->exprs));
    if (rc) return base_fail_memory(t->err, (t->n_exprs + 1) * sizeof(*t->exprs), "a grammar");
    if (expr.kind >= EXPR_SEQUENCE)
        for (uint32_t i = expr.first; i != GRAMMAR_NONE; i = expr.kind == EXPR_REPEAT ? GRAMMAR_NONE : t->exprs[i].next)
            expr.height = BASE_MAX(expr.height, t->exprs[i].height);
    expr.height = (uint16_t)(expr.height + (expr.kind == EXPR_REPEAT));
    if (expr.height > GRAMMAR_MAX_DEPTH)
        return grammar_fail(t, RP_ERR_LIMIT, expr.at,
                            "groups and repetitions are nested more than %d deep: use rules", GRAMMAR_MAX_DEPTH);
    expr.next = GRAMMAR_NONE;
    *out = (uint32_t)t->n_exprs;
    t->exprs[t->n_exprs++] = expr;
    return RP_OK;
}

static int grammar_tree_add_name(grammar_tree *t, grammar_name **names, size_t *n, size_t *cap, grammar_name name) {
    int rc = base_grow((void **)names, cap, *n + 1, RP_MAX_GRAMMAR_BYTES, sizeof(name));
    if (rc) return base_fail_memory(t->err, (*n + 1) * sizeof(name), "a grammar");
    (*names)[(*n)++] = name;
    return RP_OK;
}

/* ---- items ---- */

static int parse_literal(parser *p, uint32_t *out) {
    grammar_tree *t = p->t;
    size_t first = t->n_bytes, at = p->at++;
    while (parser_peek(p) != '"') {
        uint32_t c;
        if (!parser_peek(p))
            return grammar_fail(t, RP_ERR_SYNTAX, at, "unterminated string literal: add a closing quote");
        int rc = parse_character(p, &c);
        if (rc) return rc;
        if (base_grow((void **)&t->bytes, &t->cap_bytes, t->n_bytes + 4, 2 * RP_MAX_GRAMMAR_BYTES, 1))
            return base_fail_memory(t->err, t->n_bytes + 4, "a grammar");
        t->n_bytes += (size_t)base_utf8_encode(c, t->bytes + t->n_bytes);
    }
    p->at++;
    uint32_t n = (uint32_t)(t->n_bytes - first);
    return add_expr(p, (grammar_expr){.kind = EXPR_BYTES, .first = (uint32_t)first, .n = n, .at = (uint32_t)at}, out);
}

static int parse_range(parser *p, grammar_range *out) {
    size_t at = p->at;
    int rc = parse_character(p, &out->low);
    out->high = out->low;
    if (rc || parser_peek(p) != '-' || p->t->text[p->at + 1] == ']' || p->t->text[p->at + 1] == '\0') return rc;
    p->at++;
    if ((rc = parse_character(p, &out->high))) return rc;
    if (out->high >= out->low) return RP_OK;
    return grammar_fail(p->t, RP_ERR_SYNTAX, at,
                        "descending range from U+%04X to U+%04X: write the lower character first", out->low, out->high);
}

static int add_class(parser *p, size_t n, bool negated, size_t at, uint32_t *out) {
    grammar_tree *t = p->t;
    uint32_t unit;
    int rc = grammar_add_class(t->g, p->ranges, n, negated, &unit);
    if (rc == RP_ERR_LIMIT)
        return grammar_fail(t, rc, at, "the character classes exceed %zu byte ranges here", GRAMMAR_MAX_EDGES);
    if (rc) return base_fail_memory(t->err, n * sizeof(*p->ranges), "a grammar");
    if (unit == GRAMMAR_DONE) return grammar_fail(t, RP_ERR_SYNTAX, at, "empty character class: nothing can match it");
    return add_expr(p, (grammar_expr){.kind = EXPR_CLASS, .first = unit, .at = (uint32_t)at}, out);
}

static int parse_class(parser *p, uint32_t *out) {
    size_t at = p->at++, n = 0;
    bool negated = parser_peek(p) == '^';
    p->at += negated;
    while (parser_peek(p) != ']') {
        if (!parser_peek(p))
            return grammar_fail(p->t, RP_ERR_SYNTAX, at, "unterminated character class: add a closing ]");
        /* one for this range, two for the negation */
        if (base_grow((void **)&p->ranges, &p->cap_ranges, n + 3, RP_MAX_GRAMMAR_BYTES + 3, sizeof(*p->ranges)))
            return base_fail_memory(p->t->err, (n + 3) * sizeof(*p->ranges), "a grammar");
        int rc = parse_range(p, &p->ranges[n++]);
        if (rc) return rc;
    }
    p->at++;
    return add_class(p, n, negated && n > 0, at, out);
}

static int parse_any(parser *p, uint32_t *out) {
    if (base_grow((void **)&p->ranges, &p->cap_ranges, 3, RP_MAX_GRAMMAR_BYTES + 3, sizeof(*p->ranges)))
        return base_fail_memory(p->t->err, sizeof(*p->ranges), "a grammar");
    p->ranges[0] = (grammar_range){0, LAST_CODE_POINT};
    return add_class(p, 1, false, p->at++, out);
}

static int parse_use(parser *p, uint32_t *out) {
    grammar_tree *t = p->t;
    grammar_name name = parse_name(p);
    int rc = grammar_tree_add_name(t, &t->uses, &t->n_uses, &t->cap_uses, name);
    return rc ? rc
              : add_expr(p, (grammar_expr){.kind = EXPR_RULE, .first = (uint32_t)t->n_uses - 1, .at = name.at}, out);
}

static int parser_parse_choice(parser *p, bool in_group, uint32_t *out);

static int parse_group(parser *p, uint32_t *out) {
    size_t at = p->at++;
    if (++p->depth > GRAMMAR_MAX_DEPTH)
        return grammar_fail(p->t, RP_ERR_LIMIT, at, "groups are nested more than %d deep: use rules",
                            GRAMMAR_MAX_DEPTH);
    skip_space(p, true);
    int rc = parser_parse_choice(p, true, out);
    if (rc) return rc;
    p->depth--;
    if (parser_peek(p) != ')') return parser_expected(p, "')' or the rest of the group");
    p->at++;
    return RP_OK;
}

/* *out: GRAMMAR_NONE if no item follows. */
static int parse_item(parser *p, uint32_t *out) {
    char c = parser_peek(p);
    *out = GRAMMAR_NONE;
    switch (c) {
    case '"': return parse_literal(p, out);
    case '[': return parse_class(p, out);
    case '(': return parse_group(p, out);
    case '.': return parse_any(p, out);
    default: return grammar_parse_is_name_byte(c) ? parse_use(p, out) : RP_OK;
    }
}

/* ---- repetitions ---- */

static int parser_parse_count(parser *p, uint32_t *out) {
    size_t at = p->at;
    uint32_t n = 0;
    if (parser_peek(p) < '0' || parser_peek(p) > '9') return parser_expected(p, "a repetition count");
    for (; parser_peek(p) >= '0' && parser_peek(p) <= '9'; p->at++)
        n = BASE_MIN(10 * n + (uint32_t)(parser_peek(p) - '0'), GRAMMAR_MAX_REPEAT + 1);
    *out = n;
    if (n <= GRAMMAR_MAX_REPEAT) return RP_OK;
    return grammar_fail(p->t, RP_ERR_LIMIT, at, "more than %d repetitions: give fewer, or an open end as in {1,}",
                        GRAMMAR_MAX_REPEAT);
}

static int parse_counts(parser *p, uint32_t *least, uint32_t *most) {
    size_t at = p->at++;
    skip_space(p, p->depth > 0);
    int rc = parser_parse_count(p, least);
    if (rc) return rc;
    *most = *least;
    skip_space(p, p->depth > 0);
    if (parser_peek(p) == ',') {
        p->at++;
        skip_space(p, p->depth > 0);
        *most = GRAMMAR_NONE;
        if (parser_peek(p) != '}' && (rc = parser_parse_count(p, most))) return rc;
        skip_space(p, p->depth > 0);
    }
    if (parser_peek(p) != '}') return parser_expected(p, "'}'");
    p->at++;
    return *most >= *least
               ? RP_OK
               : grammar_fail(p->t, RP_ERR_SYNTAX, at, "{%u,%u}: write the smaller number first", *least, *most);
}

/* The repetitions after an item. */
static int parse_repeats(parser *p, bool in_group, uint32_t *item) {
    for (;;) {
        size_t at = p->at;
        uint32_t least = 0, most = GRAMMAR_NONE;
        int rc = RP_OK;
        skip_space(p, in_group);
        switch (parser_peek(p)) {
        case '*': p->at++; break;
        case '+': p->at++, least = 1; break;
        case '?': p->at++, most = 1; break;
        case '{': rc = parse_counts(p, &least, &most); break;
        default: return RP_OK;
        }
        if (rc) return rc;
        rc = add_expr(
            p, (grammar_expr){.kind = EXPR_REPEAT, .first = *item, .n = least, .most = most, .at = (uint32_t)at}, item);
        if (rc) return rc;
    }
}

/* ---- choices and rules ---- */

static int parse_sequence(parser *p, bool in_group, uint32_t *out) {
    size_t at = p->at;
    uint32_t list = GRAMMAR_NONE;
    for (;;) {
        uint32_t item;
        int rc = parse_item(p, &item);
        if (rc) return rc;
        if (item == GRAMMAR_NONE) break;
        if ((rc = parse_repeats(p, in_group, &item))) return rc;
        p->t->exprs[item].next = list;
        list = item;
    }
    if (parser_peek(p) && strchr("*+?{", parser_peek(p))) return parser_expected(p, "something to repeat");
    if (list != GRAMMAR_NONE && p->t->exprs[list].next == GRAMMAR_NONE) {
        *out = list;
        return RP_OK;
    }
    return add_expr(p, (grammar_expr){.kind = EXPR_SEQUENCE, .first = list, .at = (uint32_t)at}, out);
}

/* Does another alternative follow? Outside a group also at the start of a line. */
static bool next_choice(parser *p, bool in_group) {
    size_t at = p->at;
    skip_space(p, true);
    if (parser_peek(p) == '|') {
        p->at++;
        skip_space(p, true);
        return true;
    }
    if (!in_group) p->at = at;
    return false;
}

static int parser_parse_choice(parser *p, bool in_group, uint32_t *out) {
    size_t at = p->at;
    uint32_t list = GRAMMAR_NONE;
    do {
        uint32_t sequence;
        int rc = parse_sequence(p, in_group, &sequence);
        if (rc) return rc;
        p->t->exprs[sequence].next = list;
        list = sequence;
    } while (next_choice(p, in_group));
    if (p->t->exprs[list].next == GRAMMAR_NONE) {
        *out = list;
        return RP_OK;
    }
    return add_expr(p, (grammar_expr){.kind = EXPR_CHOICE, .first = list, .at = (uint32_t)at}, out);
}

static int parse_rule(parser *p) {
    grammar_tree *t = p->t;
    if (!grammar_parse_is_name_byte(parser_peek(p)))
        return parser_expected(p, "a rule name of letters, digits and '-'");
    grammar_name name = parse_name(p);
    skip_space(p, false);
    if (strncmp(t->text + p->at, "::=", 3) != 0) return parser_expected(p, "'::='");
    p->at += 3;
    skip_space(p, true);
    int rc = parser_parse_choice(p, false, &name.expr);
    if (rc) return rc;
    if (t->n_rules == GRAMMAR_MAX_RULES)
        return grammar_fail(t, RP_ERR_LIMIT, name.at, "more than %d rules", GRAMMAR_MAX_RULES);
    if ((rc = grammar_tree_add_name(t, &t->rules, &t->n_rules, &t->cap_rules, name))) return rc;
    skip_space(p, false);
    if (parser_peek(p) && parser_peek(p) != '\n' && parser_peek(p) != '\r')
        return parser_expected(p, "'|', the rest of the rule, or the end of the line");
    skip_space(p, true);
    return RP_OK;
}

int grammar_parse(grammar_tree *t) {
    parser p = {.t = t};
    int rc = RP_OK;
    skip_space(&p, true);
    while (parser_peek(&p) && !rc) rc = parse_rule(&p);
    BASE_ASSERT(rc || (p.depth == 0 && p.at == t->n_text));
    base_free(p.ranges);
    return rc;
}
