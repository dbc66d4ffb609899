/* SPDX-License-Identifier: Apache-2.0 */
/* template_parser.c: tokens to nodes, by recursive descent with Jinja's precedence:
 *
 *   condition   or if or else condition         math       + -           over  concat     ~
 *   or, and, not                                concat     ~             over  product    * / // %
 *   comparison  == != < <= > >= in, not in      product                  over  power      **  (of the left)
 *   unary       - + primary . [] () | is
 *
 * Nodes and constants live in the template's arena. One thread.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "template/template_internal.h"

#define MAX_NESTED 200 /* statements and expressions */

typedef struct parser {
    template *t;
    const token_stream *tokens;
    size_t at;
    int nested;
    int loops;      /* open, for break and continue */
    int conditions; /* bodies of `if` around: as in Jinja, an unknown filter or test in them is an error only when it is
                       used */
    uint8_t uses;   /* macro_uses: of the macros around */
    rp_error *err;
    int rc;
} parser;

static template_node *parse_expression(parser *p);
static template_node *parse_or(parser *p);
static template_node *parse_unary(parser *p, bool with_filters);
static template_node *parse_body(parser *p, const char *const *ends);
static template_node *parse_tuple(parser *p, bool with_condition, const char *end_name, bool may_be_empty);

/* ---- Tokens, errors, nodes ---- */

static const token *current(const parser *p) {
    BASE_ASSERT(p->at < p->tokens->n);
    return &p->tokens->items[p->at];
}
static const token *following(const parser *p) {
    return &p->tokens->items[p->at + 1 < p->tokens->n ? p->at + 1 : p->at];
}

BASE_PRINTF(3, 4)
static void parser_fail(parser *p, rp_code code, const char *fmt, ...) {
    char message[RP_ERROR_MESSAGE_BYTES], where[RP_ERROR_WHERE_BYTES];
    va_list ap;
    if (p->rc) return;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    snprintf(where, sizeof(where), "%.200s:%u", p->t->name, current(p)->line);
    p->rc = base_fail_at(p->err, code, where, 0, "%s", message);
}

static void parser_fail_memory(parser *p) {
    if (!p->rc) p->rc = base_fail_memory(p->err, p->t->memory.total, "a chat template");
}

/* Any token as it is shown in errors. */
static void fail_unexpected(parser *p, const char *expected) {
    const token *t = current(p);
    if (t->kind == TOKEN_END) parser_fail(p, RP_ERR_SYNTAX, "unexpected end of the template: expected %s", expected);
    else
        parser_fail(p, RP_ERR_SYNTAX, "unexpected '%.*s': expected %s", (int)(t->n < 40 ? t->n : 40), t->bytes,
                    expected);
}

static void advance(parser *p) {
    BASE_ASSERT(p->tokens->items[p->tokens->n - 1].kind == TOKEN_END);
    if (p->at + 1 < p->tokens->n) p->at++;
}

static bool token_is(const token *t, token_kind kind, const char *text) {
    return t->kind == kind && (!text || (t->n == strlen(text) && memcmp(t->bytes, text, t->n) == 0));
}

static bool at_operator(const parser *p, const char *text) { return token_is(current(p), TOKEN_OPERATOR, text); }
static bool at_name(const parser *p, const char *text) { return token_is(current(p), TOKEN_NAME, text); }

static bool skip_operator(parser *p, const char *text) {
    if (p->rc || !at_operator(p, text)) return false;
    advance(p);
    return true;
}

static bool skip_name(parser *p, const char *text) {
    if (p->rc || !at_name(p, text)) return false;
    advance(p);
    return true;
}

static void expect_operator(parser *p, const char *text) {
    if (!skip_operator(p, text)) fail_unexpected(p, text);
}

static void expect_kind(parser *p, token_kind kind, const char *what) {
    if (p->rc) return;
    if (current(p)->kind != kind) fail_unexpected(p, what);
    else advance(p);
}

static const char *intern(parser *p, const char *bytes, size_t n) {
    const char *name = name_intern(&p->t->memory, &p->t->names, bytes, n);
    if (!name) parser_fail_memory(p);
    return name;
}

static const char *expect_name(parser *p) {
    const token *t = current(p);
    if (p->rc) return NULL;
    if (t->kind != TOKEN_NAME) {
        fail_unexpected(p, "a name");
        return NULL;
    }
    advance(p);
    return intern(p, t->bytes, t->n);
}

/* A node that nothing reads is given after an error, so that callers need no checks. */
static template_node *node_new(parser *p, node_kind kind) {
    BASE_ASSERT(kind <= NODE_RESULT);
    static template_node broken;
    template_node *node = p->rc ? NULL : arena_alloc(&p->t->memory, sizeof(*node));
    if (!node) {
        parser_fail_memory(p);
        return &broken;
    }
    node->kind = (uint8_t)kind;
    node->line = current(p)->line;
    return node;
}

/* Grows an array of the template's arena. */
static bool parser_grow(parser *p, void **items, uint32_t *cap, uint32_t need, size_t item_bytes) {
    BASE_ASSERT(need > 0 && item_bytes > 0);
    if (p->rc) return false;
    if (need <= *cap) return true;
    uint32_t more = *cap ? *cap * 2 : 4;
    void *grown = arena_alloc(&p->t->memory, more * item_bytes);
    if (!grown) {
        parser_fail_memory(p);
        return false;
    }
    if (*cap > 0) memcpy(grown, *items, *cap * item_bytes);
    *items = grown;
    *cap = more;
    return true;
}

static void node_list_add(parser *p, node_list *l, template_node *node) {
    BASE_ASSERT(l->n <= l->cap);
    if (parser_grow(p, (void **)&l->items, &l->cap, l->n + 1, sizeof(template_node *))) l->items[l->n++] = node;
}

static bool enter(parser *p) {
    if (p->rc) return false;
    if (p->nested++ < MAX_NESTED) return true;
    parser_fail(p, RP_ERR_LIMIT, "statements or expressions are nested deeper than %d", MAX_NESTED);
    return false;
}

static template_node *leave(parser *p, template_node *node) {
    BASE_ASSERT(p->nested > 0);
    p->nested--;
    return node;
}

/* ---- Constants ---- */

static string *constant_string(parser *p, const char *bytes, size_t n) {
    static string broken;
    string *text = p->rc ? NULL : arena_alloc(&p->t->memory, sizeof(*text));
    template_run *run = text ? arena_alloc(&p->t->memory, sizeof(*run)) : NULL;
    if (!run) {
        parser_fail_memory(p);
        return &broken;
    }
    *run = (template_run){.end = n, .offset = TEMPLATE_NO_OFFSET, .origin = TEMPLATE_TRUSTED};
    *text = (string){.bytes = bytes, .n = n, .runs = run, .n_runs = n > 0};
    return text;
}

static template_node *constant_new(parser *p, value v) {
    template_node *node = node_new(p, NODE_CONSTANT);
    if (!p->rc) node->constant = v;
    return node;
}

/* A code point of n hexadecimal digits; -1: malformed. */
static int64_t read_hex(const char *bytes, size_t left, size_t n) {
    BASE_ASSERT(n <= 8);
    int64_t c = 0;
    for (size_t i = 0; i < n; i++) {
        if (i >= left || base_hex_digit(bytes[i]) < 0) return -1;
        c = c * 16 + base_hex_digit(bytes[i]);
    }
    return c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) ? c : -1;
}

/* Writes what the escape after a backslash means; returns the bytes read, 0: the backslash stays. */
static size_t unescape_one(parser *p, const char *bytes, size_t left, char *out, size_t *n_out) {
    static const char letters[] = "ntrabfv\\'\"", plain[] = "\n\t\r\a\b\f\v\\'\"";
    const char *at = left > 0 && bytes[0] ? strchr(letters, bytes[0]) : NULL;
    size_t digits = left == 0 ? 0 : bytes[0] == 'x' ? 2
                                : bytes[0] == 'u'   ? 4
                                : bytes[0] == 'U'   ? 8
                                                    : 0;
    if (at) {
        out[(*n_out)++] = plain[at - letters];
        return 1;
    }
    if (left > 0 && bytes[0] == '\n') return 1;
    if (left > 0 && bytes[0] == 'N')
        parser_fail(p, RP_ERR_UNSUPPORTED, "characters by name (\\N{...}) are not supported in string literals");
    int64_t c = -1;
    size_t n = 1 + digits;
    if (digits > 0) {
        c = read_hex(bytes + 1, left - 1, digits);
        if (c < 0) parser_fail(p, RP_ERR_SYNTAX, "malformed escape \\%c in a string literal", bytes[0]);
    } else if (left > 0 && bytes[0] >= '0' && bytes[0] <= '7')
        for (n = 0, c = 0; n < 3 && n < left && bytes[n] >= '0' && bytes[n] <= '7'; n++) c = c * 8 + (bytes[n] - '0');
    if (c < 0) return 0;
    unsigned char utf8[4];
    int length = base_utf8_encode((uint32_t)c, utf8);
    BASE_ASSERT(length > 0 && (size_t)length <= n + 1); /* no escape is shorter than its character */
    memcpy(out + *n_out, utf8, (size_t)length);
    *n_out += (size_t)length;
    return n;
}

/* Adjacent literals are one. */
static template_node *parse_string(parser *p) {
    BASE_ASSERT(p->rc || current(p)->kind == TOKEN_STRING);
    size_t total = 0, n = 0;
    for (size_t i = p->at; p->tokens->items[i].kind == TOKEN_STRING; i++) total += p->tokens->items[i].n;
    char *out = p->rc ? NULL : arena_alloc(&p->t->memory, total + 8);
    if (!out) {
        parser_fail_memory(p);
        return node_new(p, NODE_CONSTANT);
    }
    for (; current(p)->kind == TOKEN_STRING && !p->rc; advance(p)) {
        const token *t = current(p);
        for (size_t i = 0; i < t->n;) {
            size_t read = t->bytes[i] == '\\' ? unescape_one(p, t->bytes + i + 1, t->n - i - 1, out, &n) : 0;
            if (read == 0) out[n++] = t->bytes[i];
            i += read + 1;
        }
    }
    BASE_ASSERT(n <= total);
    return constant_new(p, value_string(constant_string(p, out, n)));
}

/* Digits with underscores between them; 0x, 0o and 0b, too. */
static template_node *parse_number(parser *p) {
    BASE_ASSERT(current(p)->kind == TOKEN_INT || current(p)->kind == TOKEN_FLOAT);
    const token *t = current(p);
    char text[64];
    size_t n = 0;
    for (size_t i = 0; i < t->n && n + 1 < sizeof(text); i++)
        if (t->bytes[i] != '_') text[n++] = t->bytes[i];
    text[n] = '\0';
    const char mark = n > 2 && text[0] == '0' ? (char)(text[1] | 0x20) : ' ';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8
                                    : mark == 'b'   ? 2
                                                    : 10;
    errno = 0;
    value v = t->kind == TOKEN_FLOAT ? value_float(strtod(text, NULL))
                                     : value_int(strtoll(base == 10 ? text : text + 2, NULL, base));
    if (errno && t->kind == TOKEN_INT) parser_fail(p, RP_ERR_UNSUPPORTED, "the integer %s has more than 64 bits", text);
    advance(p);
    return constant_new(p, v);
}

/* ---- Calls, subscripts, filters, tests ---- */

static void add_keyword(parser *p, template_node *call) {
    BASE_ASSERT(p->rc || current(p)->kind == TOKEN_NAME);
    uint32_t cap = call->second.cap;
    const char *name = expect_name(p);
    advance(p); /* = */
    template_node *item = parse_expression(p);
    for (uint32_t i = 0; i < call->second.n && !p->rc; i++)
        if (call->names[i] == name) parser_fail(p, RP_ERR_SYNTAX, "keyword argument repeated: %s", name);
    if (p->rc) return;
    node_list_add(p, &call->second, item);
    if (call->second.cap != cap) {
        const char **names = arena_alloc(&p->t->memory, call->second.cap * sizeof(*names));
        if (!names) parser_fail_memory(p);
        else if (cap > 0) memcpy(names, call->names, cap * sizeof(*names));
        call->names = names;
    }
    if (!p->rc) call->names[call->second.n - 1] = name;
}

static void parse_arguments(parser *p, template_node *call) {
    bool has_spread = false;
    expect_operator(p, "(");
    while (!p->rc && !at_operator(p, ")")) {
        if (at_operator(p, "**")) parser_fail(p, RP_ERR_UNSUPPORTED, "arguments with ** are not supported");
        else if (has_spread && !(current(p)->kind == TOKEN_NAME && token_is(following(p), TOKEN_OPERATOR, "=")))
            parser_fail(p, RP_ERR_SYNTAX, "invalid syntax for function call expression");
        else if (skip_operator(p, "*")) {
            template_node *spread = node_new(p, NODE_SPREAD), *items = parse_expression(p);
            if (p->rc) return;
            spread->a = items;
            node_list_add(p, &call->items, spread);
            has_spread = true;
        } else if (current(p)->kind == TOKEN_NAME && token_is(following(p), TOKEN_OPERATOR, "=")) add_keyword(p, call);
        else if (call->second.n > 0) parser_fail(p, RP_ERR_SYNTAX, "a positional argument after a keyword argument");
        else node_list_add(p, &call->items, parse_expression(p));
        if (!skip_operator(p, ",")) break;
    }
    expect_operator(p, ")");
}

static template_node *parse_slice_part(parser *p) {
    return at_operator(p, ":") || at_operator(p, "]") || at_operator(p, ",") ? NULL : parse_expression(p);
}

/* A key in quotes is a name that the template uses. */
static void note_key(parser *p, const token *t) {
    size_t n = 0;
    if (p->rc || t->kind != TOKEN_STRING) return;
    while (n < t->n && (isalnum((unsigned char)t->bytes[n]) || t->bytes[n] == '_')) n++;
    if (n > 0 && n == t->n) intern(p, t->bytes, n);
}

/* An index, several with commas (a tuple), or a slice. */
static template_node *parse_subscript_item(parser *p, template_node *object) {
    note_key(p, current(p));
    template_node *start = at_operator(p, ":") ? NULL : parse_tuple(p, true, NULL, true);
    if (!at_operator(p, ":")) {
        template_node *item = node_new(p, NODE_ITEM);
        if (p->rc) return item;
        item->a = object;
        item->b = start;
        return item;
    }
    template_node *slice = node_new(p, NODE_SLICE);
    advance(p);
    template_node *stop = parse_slice_part(p), *step = skip_operator(p, ":") ? parse_slice_part(p) : NULL;
    if (p->rc) return slice;
    slice->a = object;
    node_list_add(p, &slice->items, start);
    node_list_add(p, &slice->items, stop);
    node_list_add(p, &slice->items, step);
    BASE_ASSERT(p->rc || slice->items.n == 3);
    return slice;
}

static template_node *parse_dotted(parser *p, template_node *object) {
    template_node *node;
    if (current(p)->kind == TOKEN_INT) {
        node = node_new(p, NODE_ITEM);
        template_node *index = parse_number(p);
        if (p->rc) return node;
        node->a = object;
        node->b = index;
        return node;
    }
    node = node_new(p, NODE_ATTRIBUTE);
    const char *name = expect_name(p);
    if (p->rc) return node;
    node->a = object;
    node->name = name;
    return node;
}

static template_node *parse_call(parser *p, template_node *object) {
    BASE_ASSERT(at_operator(p, "("));
    template_node *call = node_new(p, NODE_CALL);
    if (p->rc) return call;
    call->a = object;
    if (object->kind == NODE_ATTRIBUTE && strcmp(object->name, "get") == 0) note_key(p, following(p));
    parse_arguments(p, call);
    return call;
}

static template_node *parse_postfix(parser *p, template_node *node) {
    while (!p->rc) {
        if (skip_operator(p, ".")) node = parse_dotted(p, node);
        else if (skip_operator(p, "[")) {
            node = parse_subscript_item(p, node);
            expect_operator(p, "]");
        } else if (at_operator(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

/* The name of a filter or test: it may have dots. */
static const char *expect_dotted_name(parser *p) {
    char joined[128];
    const char *name = expect_name(p);
    while (!p->rc && at_operator(p, ".") && following(p)->kind == TOKEN_NAME) {
        advance(p);
        snprintf(joined, sizeof(joined), "%.60s.%.60s", name, expect_name(p));
        name = intern(p, joined, strlen(joined));
    }
    return name;
}

/* A filter of `object`, after the bar. */
static template_node *parse_filter(parser *p, template_node *object) {
    template_node *node = node_new(p, NODE_FILTER);
    const char *name = expect_dotted_name(p);
    if (p->rc) return node;
    node->a = object;
    node->name = name;
    node->handler = filter_find(name);
    if (!node->handler && p->conditions == 0) parser_fail(p, RP_ERR_UNSUPPORTED, "No filter named '%s'.", name);
    if (at_operator(p, "(")) parse_arguments(p, node);
    return node;
}

static bool begins_test_argument(const parser *p) {
    const token *t = current(p);
    if (t->kind == TOKEN_NAME) return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and");
    if (t->kind == TOKEN_OPERATOR) return at_operator(p, "[") || at_operator(p, "{");
    return t->kind == TOKEN_STRING || t->kind == TOKEN_INT || t->kind == TOKEN_FLOAT;
}

static template_node *parse_primary(parser *p);

static template_node *parse_test(parser *p, template_node *object) {
    bool negated = skip_name(p, "not");
    template_node *node = node_new(p, NODE_TEST);
    const char *name = expect_dotted_name(p);
    if (p->rc) return node;
    node->a = object;
    node->name = name;
    node->handler = test_find(name);
    if (!node->handler && p->conditions == 0) parser_fail(p, RP_ERR_UNSUPPORTED, "No test named '%s'.", name);
    if (at_operator(p, "(")) parse_arguments(p, node);
    else if (at_name(p, "is")) parser_fail(p, RP_ERR_SYNTAX, "You cannot chain multiple tests with is");
    else if (begins_test_argument(p)) node_list_add(p, &node->items, parse_postfix(p, parse_primary(p)));
    if (!negated) return node;
    template_node *not = node_new(p, NODE_NOT);
    if (!p->rc) not ->a = node;
    return not ;
}

static template_node *parse_filters(parser *p, template_node *node) {
    while (!p->rc) {
        if (skip_operator(p, "|")) node = parse_filter(p, node);
        else if (skip_name(p, "is")) node = parse_test(p, node);
        else if (at_operator(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

/* ---- Expressions ---- */

static bool ends_tuple(const parser *p, const char *end_name) {
    return current(p)->kind == TOKEN_VARIABLE_END || current(p)->kind == TOKEN_BLOCK_END ||
           current(p)->kind == TOKEN_END || at_operator(p, ")") || at_operator(p, "]") ||
           (end_name && at_name(p, end_name));
}

/* An expression, or several with commas between them: a tuple. */
static template_node *parse_tuple(parser *p, bool with_condition, const char *end_name, bool may_be_empty) {
    node_list items = {0};
    bool is_tuple = false;
    while (!p->rc && !ends_tuple(p, end_name)) {
        node_list_add(p, &items, with_condition ? parse_expression(p) : parse_or(p));
        if (!skip_operator(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && items.n > 0) return items.items[0];
    if (items.n == 0 && !may_be_empty) fail_unexpected(p, "an expression");
    template_node *tuple = node_new(p, NODE_TUPLE);
    if (!p->rc) tuple->items = items;
    return tuple;
}

static template_node *parse_list(parser *p) {
    BASE_ASSERT(at_operator(p, "["));
    template_node *node = node_new(p, NODE_LIST);
    advance(p);
    while (!p->rc && !at_operator(p, "]")) {
        node_list_add(p, &node->items, parse_expression(p));
        if (!skip_operator(p, ",")) break;
    }
    expect_operator(p, "]");
    return node;
}

static template_node *parse_dict(parser *p) {
    BASE_ASSERT(at_operator(p, "{"));
    template_node *node = node_new(p, NODE_DICT);
    advance(p);
    while (!p->rc && !at_operator(p, "}")) {
        node_list_add(p, &node->items, parse_expression(p));
        expect_operator(p, ":");
        node_list_add(p, &node->second, parse_expression(p));
        if (!skip_operator(p, ",")) break;
    }
    expect_operator(p, "}");
    BASE_ASSERT(p->rc || node->items.n == node->second.n);
    return node;
}

static template_node *parse_name(parser *p) {
    static const struct {
        const char *name;
        uint8_t type;
        bool b;
    } literals[] = {{"true", VALUE_BOOL, true},
                    {"True", VALUE_BOOL, true},
                    {"false", VALUE_BOOL, false},
                    {"False", VALUE_BOOL, false},
                    {"none", VALUE_NONE, false},
                    {"None", VALUE_NONE, false}};
    for (size_t i = 0; i < sizeof(literals) / sizeof(*literals); i++)
        if (skip_name(p, literals[i].name))
            return constant_new(p, literals[i].type == VALUE_BOOL ? value_bool(literals[i].b) : value_none);
    template_node *node = node_new(p, NODE_NAME);
    const char *name = expect_name(p);
    if (p->rc) return node;
    node->name = name;
    if (strcmp(name, "caller") == 0) p->uses |= MACRO_USES_CALLER;
    if (strcmp(name, "varargs") == 0) p->uses |= MACRO_USES_VARARGS;
    if (strcmp(name, "kwargs") == 0) p->uses |= MACRO_USES_KWARGS;
    return node;
}

static template_node *parse_primary(parser *p) {
    if (!enter(p)) return node_new(p, NODE_CONSTANT);
    template_node *node;
    switch (current(p)->kind) {
    case TOKEN_NAME: node = parse_name(p); break;
    case TOKEN_STRING: node = parse_string(p); break;
    case TOKEN_INT:
    case TOKEN_FLOAT: node = parse_number(p); break;
    default:
        if (skip_operator(p, "(")) {
            node = parse_tuple(p, true, NULL, true);
            expect_operator(p, ")");
        } else if (at_operator(p, "[")) node = parse_list(p);
        else if (at_operator(p, "{")) node = parse_dict(p);
        else {
            fail_unexpected(p, "an expression");
            node = node_new(p, NODE_CONSTANT);
        }
    }
    return leave(p, node);
}

static template_node *unary_new(parser *p, node_kind kind, template_node *a) {
    BASE_ASSERT(kind == NODE_NEGATE || kind == NODE_POSITIVE || kind == NODE_NOT);
    template_node *node = node_new(p, kind);
    if (!p->rc) node->a = a;
    return node;
}

static template_node *parse_unary(parser *p, bool with_filters) {
    if (!enter(p)) return node_new(p, NODE_CONSTANT);
    template_node *node;
    if (skip_operator(p, "-")) node = unary_new(p, NODE_NEGATE, parse_unary(p, false));
    else if (skip_operator(p, "+")) node = unary_new(p, NODE_POSITIVE, parse_unary(p, false));
    else node = parse_primary(p);
    node = parse_postfix(p, node);
    return leave(p, with_filters ? parse_filters(p, node) : node);
}

static template_node *binary_new(parser *p, binary_operator op, template_node *a, template_node *b) {
    BASE_ASSERT(op <= OP_POW);
    template_node *node = node_new(p, NODE_BINARY);
    if (p->rc) return node;
    node->op = (uint8_t)op;
    node->a = a;
    node->b = b;
    return node;
}

static template_node *parse_power(parser *p) {
    template_node *left = parse_unary(p, true);
    while (skip_operator(p, "**")) left = binary_new(p, OP_POW, left, parse_unary(p, true));
    return left;
}

static template_node *parse_product(parser *p) {
    template_node *left = parse_power(p);
    while (!p->rc) {
        if (skip_operator(p, "*")) left = binary_new(p, OP_MUL, left, parse_power(p));
        else if (skip_operator(p, "//")) left = binary_new(p, OP_FLOOR_DIV, left, parse_power(p));
        else if (skip_operator(p, "/")) left = binary_new(p, OP_DIV, left, parse_power(p));
        else if (skip_operator(p, "%")) left = binary_new(p, OP_MOD, left, parse_power(p));
        else break;
    }
    return left;
}

static template_node *parse_concat(parser *p) {
    template_node *first = parse_product(p);
    if (!at_operator(p, "~")) return first;
    template_node *node = node_new(p, NODE_CONCAT);
    if (p->rc) return node;
    node_list_add(p, &node->items, first);
    while (skip_operator(p, "~")) node_list_add(p, &node->items, parse_product(p));
    return node;
}

static template_node *parse_math(parser *p) {
    template_node *left = parse_concat(p);
    while (!p->rc) {
        if (skip_operator(p, "+")) left = binary_new(p, OP_ADD, left, parse_concat(p));
        else if (skip_operator(p, "-")) left = binary_new(p, OP_SUB, left, parse_concat(p));
        else break;
    }
    return left;
}

static bool skip_comparison(parser *p, uint8_t *op) {
    _Static_assert(CMP_EQ == 0 && CMP_NE == 1 && CMP_LT == 2 && CMP_LE == 3 && CMP_GT == 4 && CMP_GE == 5,
                   "the order of operators[]");
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (uint8_t i = 0; i < sizeof(operators) / sizeof(*operators); i++)
        if (skip_operator(p, operators[i])) {
            *op = i;
            return true;
        }
    if (skip_name(p, "in")) {
        *op = CMP_IN;
        return true;
    }
    if (!at_name(p, "not") || !token_is(following(p), TOKEN_NAME, "in")) return false;
    advance(p);
    advance(p);
    *op = CMP_NOT_IN;
    return true;
}

static template_node *parse_comparison(parser *p) {
    template_node *first = parse_math(p), *node = NULL;
    uint8_t op;
    uint32_t cap = 0;
    while (skip_comparison(p, &op)) {
        if (!node) {
            node = node_new(p, NODE_COMPARE);
            if (p->rc) return node;
            node->a = first;
        }
        template_node *operand = parse_math(p);
        if (!parser_grow(p, (void **)&node->ops, &cap, node->items.n + 1, 1)) return first;
        node->ops[node->items.n] = op;
        node_list_add(p, &node->items, operand);
    }
    return node ? node : first;
}

static template_node *parse_not(parser *p) {
    if (!at_name(p, "not")) return parse_comparison(p);
    if (!enter(p)) return node_new(p, NODE_CONSTANT);
    advance(p);
    return leave(p, unary_new(p, NODE_NOT, parse_not(p)));
}

static template_node *logic_new(parser *p, node_kind kind, template_node *a, template_node *b) {
    BASE_ASSERT(kind == NODE_AND || kind == NODE_OR);
    template_node *node = node_new(p, kind);
    if (p->rc) return node;
    node->a = a;
    node->b = b;
    return node;
}

static template_node *parse_and(parser *p) {
    template_node *left = parse_not(p);
    while (skip_name(p, "and")) left = logic_new(p, NODE_AND, left, parse_not(p));
    return left;
}

static template_node *parse_or(parser *p) {
    template_node *left = parse_and(p);
    while (skip_name(p, "or")) left = logic_new(p, NODE_OR, left, parse_and(p));
    return left;
}

static template_node *parse_expression(parser *p) {
    if (!enter(p)) return node_new(p, NODE_CONSTANT);
    template_node *node = parse_or(p);
    while (skip_name(p, "if")) {
        template_node *condition = node_new(p, NODE_CONDITION), *check = parse_or(p),
                      *otherwise = skip_name(p, "else") ? parse_expression(p) : NULL;
        if (p->rc) break;
        condition->a = check;
        condition->b = node;
        condition->c = otherwise;
        node = condition;
    }
    return leave(p, node);
}

/* ---- Statements ---- */

static void expect_block_end(parser *p) { expect_kind(p, TOKEN_BLOCK_END, "the end of the tag"); }

/* "{% NAME": is the next tag one of these? */
static bool at_tag(const parser *p, const char *const *names) {
    if (current(p)->kind != TOKEN_BLOCK_BEGIN) return false;
    for (size_t i = 0; names && names[i]; i++)
        if (token_is(following(p), TOKEN_NAME, names[i])) return true;
    return false;
}

static bool skip_tag(parser *p, const char *name) {
    if (p->rc || current(p)->kind != TOKEN_BLOCK_BEGIN || !token_is(following(p), TOKEN_NAME, name)) return false;
    advance(p);
    advance(p);
    return true;
}

/* The body of a statement up to {% end %}, and that tag. */
static template_node *parse_block(parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    expect_block_end(p);
    template_node *body = parse_body(p, ends);
    skip_tag(p, end);
    expect_block_end(p);
    return body;
}

static template_node *parse_if(parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    template_node *node = node_new(p, NODE_IF), *check, *body, *otherwise = NULL;
    p->conditions++;
    check = parse_tuple(p, false, NULL, false);
    expect_block_end(p);
    body = parse_body(p, ends);
    if (skip_tag(p, "elif")) {
        if (enter(p)) otherwise = leave(p, parse_if(p)); /* with {% endif %} */
    } else {
        if (skip_tag(p, "else")) {
            expect_block_end(p);
            otherwise = parse_body(p, last);
        }
        skip_tag(p, "endif");
        expect_block_end(p);
    }
    BASE_ASSERT(p->conditions > 0);
    p->conditions--;
    if (p->rc) return node;
    node->a = check;
    node->b = body;
    node->c = otherwise;
    return node;
}

/* A name, or names with commas; of `set`, also an attribute of a namespace. */
static template_node *parse_target(parser *p, bool with_namespace, const char *end_name) {
    if (with_namespace && token_is(following(p), TOKEN_OPERATOR, ".")) {
        template_node *object = parse_name(p), *node;
        advance(p);
        node = parse_dotted(p, object);
        if (!p->rc && (object->kind != NODE_NAME || node->kind != NODE_ATTRIBUTE)) fail_unexpected(p, "a name");
        return node;
    }
    template_node *node = node_new(p, NODE_TUPLE);
    bool is_tuple = false;
    while (!p->rc && !ends_tuple(p, end_name)) {
        template_node *name;
        if (at_operator(p, "(") && enter(p)) {
            advance(p);
            name = leave(p, parse_target(p, false, NULL));
            expect_operator(p, ")");
        } else name = parse_name(p);
        if (!p->rc && name->kind != NODE_NAME && name->kind != NODE_TUPLE)
            parser_fail(p, RP_ERR_SYNTAX, "cannot assign to this expression: give a name");
        node_list_add(p, &node->items, name);
        if (!skip_operator(p, ",")) break;
        is_tuple = true;
    }
    if (p->rc) return node;
    if (node->items.n == 0) fail_unexpected(p, "a name to assign to");
    return is_tuple || node->items.n != 1 ? node : node->items.items[0];
}

static template_node *parse_for(parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    template_node *node = node_new(p, NODE_FOR), *target = parse_target(p, false, "in"), *check = NULL,
                  *otherwise = NULL;
    if (!skip_name(p, "in")) fail_unexpected(p, "in");
    if (!p->rc && target->kind == NODE_NAME && strcmp(target->name, "loop") == 0)
        parser_fail(p, RP_ERR_SYNTAX, "cannot assign to 'loop' in a for loop");
    template_node *iterable = parse_tuple(p, false, "recursive", false);
    if (skip_name(p, "if")) check = parse_expression(p);
    bool recursive = skip_name(p, "recursive");
    expect_block_end(p);
    p->loops++;
    template_node *body = parse_body(p, ends);
    BASE_ASSERT(p->loops > 0);
    p->loops--;
    if (skip_tag(p, "else")) {
        expect_block_end(p);
        otherwise = parse_body(p, last);
    }
    skip_tag(p, "endfor");
    expect_block_end(p);
    if (p->rc) return node;
    BASE_ASSERT(target->kind == NODE_NAME || target->kind == NODE_TUPLE);
    node->a = target;
    node->b = iterable;
    node->c = check;
    node->op = recursive;
    node_list_add(p, &node->items, body);
    if (otherwise) node_list_add(p, &node->items, otherwise);
    return node;
}

/* Filters of a block: | a | b. */
static template_node *parse_block_filters(parser *p) {
    template_node *node = parse_filter(p, node_new(p, NODE_RESULT));
    while (skip_operator(p, "|")) node = parse_filter(p, node);
    return node;
}

static template_node *parse_set(parser *p) {
    template_node *node = node_new(p, NODE_SET), *target = parse_target(p, true, NULL);
    if (p->rc) return node;
    BASE_ASSERT(target->kind == NODE_NAME || target->kind == NODE_TUPLE || target->kind == NODE_ATTRIBUTE);
    node->a = target;
    if (skip_operator(p, "=")) {
        node->b = parse_tuple(p, true, NULL, false);
        expect_block_end(p);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    if (skip_operator(p, "|")) node->c = parse_block_filters(p);
    node->b = parse_block(p, "endset");
    return node;
}

/* The parameters of a macro or of a call block. */
static void parse_parameters(parser *p, template_node *to) {
    expect_operator(p, "(");
    while (!p->rc && !at_operator(p, ")")) {
        const bool is_name = current(p)->kind == TOKEN_NAME;
        template_node *parameter = parse_name(p);
        if (!p->rc && (!is_name || parameter->kind != NODE_NAME))
            parser_fail(p, RP_ERR_SYNTAX, "cannot assign to this parameter: give a name");
        if (p->rc) return;
        node_list_add(p, &to->items, parameter);
        if (skip_operator(p, "=")) node_list_add(p, &to->second, parse_expression(p));
        else if (to->second.n > 0)
            parser_fail(p, RP_ERR_SYNTAX, "a parameter without a default after one with a default");
        if (!skip_operator(p, ",")) break;
    }
    BASE_ASSERT(p->rc || to->second.n <= to->items.n); /* the last parameters have defaults */
    expect_operator(p, ")");
}

static template_node *parse_macro_body(parser *p, template_node *to, const char *end) {
    BASE_ASSERT(p->rc || to->kind == NODE_MACRO);
    int loops = p->loops;
    uint8_t uses = p->uses;
    p->loops = 0;
    p->uses = 0;
    template_node *body = parse_block(p, end);
    if (!p->rc) {
        to->b = body;
        to->op = p->uses;
    }
    p->loops = loops;
    p->uses |= uses;
    return to;
}

static template_node *parse_macro(parser *p) {
    template_node *node = node_new(p, NODE_MACRO);
    const char *name = expect_name(p);
    if (p->rc) return node;
    node->name = name;
    parse_parameters(p, node);
    return parse_macro_body(p, node, "endmacro");
}

static template_node *parse_call_block(parser *p) {
    template_node *node = node_new(p, NODE_CALL_BLOCK), *caller = node_new(p, NODE_MACRO);
    const char *name = intern(p, "caller", 6);
    if (p->rc) return node;
    caller->name = name;
    if (at_operator(p, "(")) parse_parameters(p, caller);
    template_node *call = parse_unary(p, true);
    if (!p->rc && call->kind != NODE_CALL) parser_fail(p, RP_ERR_SYNTAX, "expected call");
    parse_macro_body(p, caller, "endcall");
    if (p->rc) return node;
    node->a = call;
    node->b = caller;
    return node;
}

static template_node *parse_filter_block(parser *p) {
    template_node *node = node_new(p, NODE_FILTER_BLOCK), *filters = parse_block_filters(p),
                  *body = parse_block(p, "endfilter");
    if (p->rc) return node;
    node->a = filters;
    node->b = body;
    return node;
}

static template_node *parse_with(parser *p) {
    template_node *node = node_new(p, NODE_WITH);
    while (!p->rc && current(p)->kind != TOKEN_BLOCK_END) {
        node_list_add(p, &node->items, parse_target(p, false, NULL));
        expect_operator(p, "=");
        node_list_add(p, &node->second, parse_expression(p));
        if (!skip_operator(p, ",")) break;
    }
    template_node *body = parse_block(p, "endwith");
    BASE_ASSERT(p->rc || node->items.n == node->second.n);
    if (!p->rc) node->b = body;
    return node;
}

static template_node *parse_jump(parser *p, node_kind kind, const char *name) {
    BASE_ASSERT(kind == NODE_BREAK || kind == NODE_CONTINUE);
    if (p->loops == 0) parser_fail(p, RP_ERR_SYNTAX, "'%s' outside of a loop", name);
    template_node *node = node_new(p, kind);
    expect_block_end(p);
    return node;
}

static template_node *parse_statement(parser *p) {
    static const char *const unsupported[] = {"block", "extends", "include", "import", "from",
                                              "do", "autoescape", "trans", "debug", NULL};
    if (skip_name(p, "if")) return parse_if(p);
    if (skip_name(p, "for")) return parse_for(p);
    if (skip_name(p, "set")) return parse_set(p);
    if (skip_name(p, "macro")) return parse_macro(p);
    if (skip_name(p, "call")) return parse_call_block(p);
    if (skip_name(p, "filter")) return parse_filter_block(p);
    if (skip_name(p, "with")) return parse_with(p);
    if (skip_name(p, "break")) return parse_jump(p, NODE_BREAK, "break");
    if (skip_name(p, "continue")) return parse_jump(p, NODE_CONTINUE, "continue");
    if (skip_name(p, "generation"))
        return parse_block(p, "endgeneration"); /* of transformers: marks the text of the assistant */
    for (size_t i = 0; unsupported[i]; i++)
        if (at_name(p, unsupported[i]))
            parser_fail(p, RP_ERR_UNSUPPORTED, "the statement '%s' is not supported in chat templates", unsupported[i]);
    fail_unexpected(p, "a statement");
    return node_new(p, NODE_CONSTANT);
}

static template_node *parse_piece(parser *p) {
    const token *t = current(p);
    template_node *node, *expression;
    switch (t->kind) {
    case TOKEN_DATA:
        node = node_new(p, NODE_TEXT);
        if (!p->rc) node->constant = value_string(constant_string(p, t->bytes, t->n));
        advance(p);
        return node;
    case TOKEN_VARIABLE_BEGIN:
        node = node_new(p, NODE_PRINT);
        advance(p);
        expression = parse_tuple(p, true, NULL, false);
        expect_kind(p, TOKEN_VARIABLE_END, "the end of the expression");
        if (!p->rc) node->a = expression;
        return node;
    default: advance(p); return parse_statement(p);
    }
}

/* Up to one of the tags, which is not read; NULL: to the end of the template. */
static template_node *parse_body(parser *p, const char *const *ends) {
    template_node *body = node_new(p, NODE_BODY);
    if (!enter(p)) return body;
    while (!p->rc && current(p)->kind != TOKEN_END && !at_tag(p, ends)) node_list_add(p, &body->items, parse_piece(p));
    if (!p->rc && ends && current(p)->kind == TOKEN_END) {
        size_t last = 0;
        while (ends[last + 1]) last++;
        parser_fail(p, RP_ERR_SYNTAX, "unexpected end of the template: expected {%% %s %%}", ends[last]);
    }
    return leave(p, body);
}

int template_parse_tokens(template *t, const token_stream *tokens, rp_error *err) {
    BASE_ASSERT(tokens->n > 0 && tokens->items[tokens->n - 1].kind == TOKEN_END);
    parser p = {.t = t, .tokens = tokens, .err = err};
    t->body = parse_body(&p, NULL);
    BASE_ASSERT(p.rc || (p.nested == 0 && p.loops == 0 && p.conditions == 0 && p.at + 1 == tokens->n));
    return p.rc;
}
