/* SPDX-License-Identifier: Apache-2.0 */
/* template_format.c: formatted strings as in Python: the operator %, and values by the specifications of str.format.
   Owns nothing. One thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

#define MAX_PRECISION 200
#define MAX_WIDTH (1 << 20)

/* A format specification: [[fill]align][sign][#][0][width][,][.precision][type]; of %, flags in any order. */
typedef struct spec {
    char align; /* < > ^ =; 0: none given */
    const char *fill;
    size_t n_fill;
    char sign; /* + - or space */
    char kind;
    bool alternate, zero;
    char grouping;
    int64_t width, precision; /* -1: none */
} spec;

static uint32_t origin_of(value v) { return v.untrusted ? TEMPLATE_UNTRUSTED : TEMPLATE_TRUSTED; }

static void add_fill(state *s, builder *b, const spec *f, int64_t n) {
    BASE_ASSERT(n <= MAX_WIDTH);
    for (int64_t i = 0; i < n && !s->failed; i++)
        builder_add(s, b, f->fill, f->n_fill, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
}

/* Text of a width: prefix (sign and base of a number) and body, with the padding where the alignment wants it. */
static void add_padded(state *s, builder *b, const spec *f, const char *prefix, uint32_t origin, const string *body,
                       char otherwise) {
    BASE_ASSERT(f->width >= 0 && f->width <= MAX_WIDTH);
    int64_t missing = f->width - (int64_t)strlen(prefix) - (int64_t)string_length(s, body);
    char align = f->align ? f->align : otherwise;
    if (missing < 0) missing = 0;
    int64_t left = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2
                                                                   : missing;
    add_fill(s, b, f, left);
    builder_add(s, b, prefix, strlen(prefix), origin, TEMPLATE_NO_OFFSET);
    if (align == '=') add_fill(s, b, f, missing);
    builder_add_string(s, b, body);
    if (align != '=') add_fill(s, b, f, missing - left);
}

/* Puts a separator between groups of digits before the point. */
static void group_digits(char *text, size_t cap, char separator, size_t group) {
    BASE_ASSERT(strlen(text) < cap && group > 0);
    size_t n = strspn(text, "0123456789abcdefABCDEF"), all = strlen(text);
    for (size_t at = n; at > group && all + 1 < cap; all++) {
        at -= group;
        memmove(text + at + 1, text + at, all - at + 1);
        text[at] = separator;
    }
}

static void digits_of(uint64_t i, unsigned base, bool upper, char out[65]) {
    BASE_ASSERT(base >= 2 && base <= 16);
    char back[65];
    size_t n = 0;
    do back[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[i % base];
    while (i /= base);
    for (size_t k = 0; k < n; k++) out[k] = back[n - 1 - k];
    out[n] = '\0';
}

static void add_number(state *s, builder *b, const spec *f, value v, bool negative, const char *base,
                       const char *digits) {
    char prefix[4];
    snprintf(prefix, sizeof(prefix), "%s%s", negative ? "-" : f->sign == '+' ? "+"
                                                          : f->sign == ' '   ? " "
                                                                             : "",
             base);
    add_padded(s, b, f, prefix, origin_of(v), string_new(s, digits, strlen(digits), origin_of(v)), '>');
}

static void format_integer(state *s, builder *b, const spec *f, value v, int64_t i) {
    BASE_ASSERT(f->precision <= MAX_PRECISION);
    char digits[256] = "", zeros[MAX_PRECISION + 256];
    unsigned base = f->kind == 'x' || f->kind == 'X' ? 16 : f->kind == 'o' ? 8
                                                        : f->kind == 'b'   ? 2
                                                                           : 10;
    const char *mark = !f->alternate ? "" : f->kind == 'x' ? "0x"
                                        : f->kind == 'X'   ? "0X"
                                        : f->kind == 'o'   ? "0o"
                                        : f->kind == 'b'   ? "0b"
                                                           : "";
    digits_of(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, f->kind == 'X', digits);
    if (f->grouping) group_digits(digits, sizeof(digits), f->grouping, base == 10 ? 3 : 4);
    state_step(s, STEP_PRINTED);
    size_t n = strlen(digits), n_zeros = f->precision > (int64_t)n ? (size_t)f->precision - n : 0;
    memset(zeros, '0', n_zeros);
    memcpy(zeros + n_zeros, digits, n + 1);
    add_number(s, b, f, v, i < 0, mark, zeros);
}

static void format_real(state *s, builder *b, const spec *f, value v, double x) {
    BASE_ASSERT(f->precision <= MAX_PRECISION);
    char text[512], format[16];
    const char kind = f->kind == '%' ? 'f' : f->kind         ? f->kind
                                         : f->precision >= 0 ? 'g'
                                                             : 'r';
    if (f->kind == '%') x *= 100;
    state_step(s, 512); /* up to 500 digits */
    if (kind == 'r') float_repr(s, fabs(x), text);
    else {
        snprintf(format, sizeof(format), f->alternate ? "%%#.*%c" : "%%.*%c", kind);
        snprintf(text, sizeof(text), format, (int)(f->precision < 0 ? 6 : f->precision), fabs(x));
    }
    if (f->grouping) group_digits(text, sizeof(text), f->grouping, 3);
    if (f->kind == '%' && strlen(text) + 1 < sizeof(text)) strcat(text, "%");
    add_number(s, b, f, v, signbit(x) && !isnan(x), "", text);
}

static void format_text(state *s, builder *b, const spec *f, const string *text) {
    BASE_ASSERT(f->precision <= MAX_PRECISION);
    if (f->precision >= 0) text = string_part(s, text, 0, string_offset(s, text, (size_t)f->precision));
    add_padded(s, b, f, "", TEMPLATE_TRUSTED, text, '<');
}

static int64_t int_of(value v) {
    BASE_ASSERT(value_is_number(v));
    return v.type == VALUE_FLOAT ? (fabs(v.as.f) < 9e18 ? (int64_t)v.as.f : 0) : v.type == VALUE_BOOL ? v.as.b
                                                                                                      : v.as.i;
}
static double real_of(value v) { return v.type == VALUE_FLOAT ? v.as.f : (double)int_of(v); }

/* ---- "%s" % x ---- */

typedef struct percent {
    state *s;
    const string *format;
    const value *items;
    size_t n, next;
    const dict *named;
    size_t at; /* in the format, after "%" */
} percent;

static char percent_peek(const percent *p) {
    BASE_ASSERT(p->at <= p->format->n || p->at == p->format->n + 1);
    return p->at < p->format->n ? p->format->bytes[p->at] : '\0';
}

static value percent_next(percent *p) {
    BASE_ASSERT(p->next <= p->n);
    if (p->next < p->n) return p->items[p->next++];
    state_fail(p->s, TYPE_ERROR, "not enough arguments for format string");
    return (value){0};
}

/* The value of "(key)". */
static value percent_named(percent *p) {
    BASE_ASSERT(percent_peek(p) == '(');
    const string *f = p->format;
    size_t end = p->at + 1;
    int open = 1;
    for (; end < f->n; end++) {
        open += f->bytes[end] == '(' ? 1 : f->bytes[end] == ')' ? -1
                                                                : 0;
        if (open == 0) break;
    }
    const string *name = string_part(p->s, f, p->at + 1, end);
    if (!p->named) state_fail(p->s, TYPE_ERROR, "format requires a mapping");
    else if (end >= f->n) state_fail(p->s, VALUE_ERROR, "incomplete format key");
    const value *v = p->s->failed ? NULL : dict_find(p->s, p->named, value_string(name));
    if (!v) state_fail_key(p->s, name);
    p->at = end + 1;
    return v ? *v : (value){0};
}

/* Digits, or "*": an argument. */
static int64_t percent_count(percent *p, int64_t most) {
    int64_t n = 0;
    if (percent_peek(p) == '*') {
        value v = percent_next(p);
        p->at++;
        if (v.type != VALUE_INT) state_fail(p->s, TYPE_ERROR, "* wants int");
        return v.type != VALUE_INT ? 0 : v.as.i > most ? most
                                                       : v.as.i;
    }
    for (; percent_peek(p) >= '0' && percent_peek(p) <= '9'; p->at++)
        if (n <= most) n = n * 10 + (percent_peek(p) - '0');
    if (n > most) state_fail(p->s, VALUE_ERROR, "a width or precision is larger than %lld", (long long)most);
    return n;
}

static void percent_character(percent *p, builder *b, const spec *f, value v) {
    if (v.type == VALUE_STRING && string_length(p->s, v.as.s) == 1) {
        format_text(p->s, b, f, v.as.s);
        return;
    }
    if (v.type != VALUE_INT) {
        state_fail(p->s, TYPE_ERROR, "%%c requires int or char");
        return;
    }
    const string *text = string_of_character(p->s, v.as.i);
    if (!text) state_fail(p->s, OVERFLOW_ERROR, "%%c arg not in range(0x110000)");
    else format_text(p->s, b, f, text);
}

static void percent_value(percent *p, builder *b, spec *f, value v) {
    builder text = {0};
    if (p->s->failed) return;
    if (strchr("sra", f->kind)) {
        value_write(p->s, &text, v, f->kind != 's');
        const string *written = builder_string(p->s, &text);
        f->fill = " ";
        if (!f->align) f->align = '>';
        format_text(p->s, b, f, f->kind == 'a' ? string_ascii(p->s, written) : written);
    } else if (f->kind == 'c') {
        f->fill = " ";
        if (!f->align) f->align = '>';
        percent_character(p, b, f, v);
    } else if (v.type == VALUE_UNDEFINED) state_fail_undefined(p->s, v);
    else if (strchr("diuxXo", f->kind)) {
        bool whole = strchr("diu", f->kind) != NULL;
        if (!value_is_number(v) || (!whole && v.type == VALUE_FLOAT))
            state_fail(p->s, TYPE_ERROR, "%%%c format: %s is required, not %s", f->kind,
                       whole ? "a real number" : "an integer", value_type_name(v));
        else format_integer(p->s, b, f, v, int_of(v));
    } else if (!value_is_number(v)) state_fail(p->s, TYPE_ERROR, "must be real number, not %s", value_type_name(v));
    else format_real(p->s, b, f, v, real_of(v));
}

static void percent_one(percent *p, builder *b) {
    spec f = {.fill = " ", .n_fill = 1, .precision = -1, .sign = '-'};
    bool has_value = percent_peek(p) == '(';
    value v = has_value ? percent_named(p) : (value){0};
    for (; percent_peek(p) && strchr("-+ #0", percent_peek(p)); p->at++) {
        char c = percent_peek(p);
        if (c == '-') f.align = '<';
        else if (c == '+' || (c == ' ' && f.sign != '+')) f.sign = c;
        else if (c == '#') f.alternate = true;
        else if (c == '0') f.zero = true;
    }
    f.width = percent_count(p, MAX_WIDTH);
    if (f.width < 0) {
        f.align = '<';
        f.width = f.width > -MAX_WIDTH ? -f.width : MAX_WIDTH;
    }
    if (percent_peek(p) == '.') {
        p->at++;
        f.precision = percent_count(p, MAX_PRECISION);
        if (f.precision < 0) f.precision = 0;
    }
    if (percent_peek(p) && strchr("hlL", percent_peek(p))) p->at++;
    f.kind = percent_peek(p);
    if (p->s->failed) return;
    if (!f.kind) {
        state_fail(p->s, VALUE_ERROR, "incomplete format");
        return;
    }
    size_t n;
    uint32_t c = string_at(p->format, p->at, &n);
    const string before = {.bytes = p->format->bytes, .n = p->at};
    p->at += n;
    if (c == '%') {
        builder_add_string(p->s, b, string_part(p->s, p->format, p->at - n, p->at));
        return;
    }
    if (c >= 0x80 || !strchr("sradiuxXofFeEgGc", f.kind)) {
        state_fail(p->s, VALUE_ERROR, "unsupported format character '%s' (0x%x) at index %zu",
                   c >= 32 && c < 127 ? (char[]){(char)c, 0} : "?", c, string_length(p->s, &before));
        return;
    }
    if (f.zero && !f.align) {
        f.align = '=';
        f.fill = "0";
    }
    percent_value(p, b, &f, has_value ? v : percent_next(p));
}

value string_percent(state *s, const string *format, const value *items, size_t n, value argument) {
    BASE_ASSERT(n == 0 || items);
    /* Lists are mappings for %, too: what is not used of them is no error. */
    bool any = argument.type == VALUE_DICT || argument.type == VALUE_UNDEFINED ||
               (argument.type == VALUE_LIST && (argument.as.l->kind == LIST_LIST || argument.as.l->kind == LIST_RANGE));
    percent p = {
        .s = s, .format = format, .items = items, .n = n, .named = argument.type == VALUE_DICT ? argument.as.d : NULL};
    builder b = {0};
    size_t from = 0;
    while (!s->failed) {
        size_t at = from;
        while (at < format->n && format->bytes[at] != '%') at++;
        state_step(s, (at - from) / STEP_SCANNED);
        builder_add_string(s, &b, string_part(s, format, from, at));
        if (at == format->n) break;
        p.at = at + 1;
        percent_one(&p, &b);
        from = p.at;
    }
    if (p.next < n && !any) state_fail(s, TYPE_ERROR, "not all arguments converted during string formatting");
    return value_string(builder_string(s, &b));
}

/* ---- Specifications of str.format ---- */

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static bool spec_read(state *s, const string *text, spec *f, value v) {
    size_t at = 0, n = 1;
    *f = (spec){.fill = " ", .n_fill = 1, .precision = -1, .sign = '-'};
    if (text->n > 0) string_at(text, 0, &n);
    if (n < text->n && is_align(text->bytes[n])) {
        f->fill = text->bytes;
        f->n_fill = n;
        f->align = text->bytes[n];
        at = n + 1;
    } else if (text->n > 0 && is_align(text->bytes[0])) f->align = text->bytes[at++];
#define PEEK (at < text->n ? text->bytes[at] : '\0')
    if (PEEK == '+' || PEEK == '-' || PEEK == ' ') f->sign = text->bytes[at++];
    if (PEEK == '#') f->alternate = (at++, true);
    if (PEEK == '0') {
        at++;
        if (!f->align) {
            f->align = v.type == VALUE_STRING ? '<' : '=';
            f->fill = "0";
            f->n_fill = 1;
        }
    }
    for (; PEEK >= '0' && PEEK <= '9'; at++)
        if (f->width <= MAX_WIDTH) f->width = f->width * 10 + (PEEK - '0');
    if (PEEK == ',' || PEEK == '_') f->grouping = text->bytes[at++];
    if (PEEK == '.') {
        f->precision = 0;
        for (at++; PEEK >= '0' && PEEK <= '9'; at++)
            if (f->precision <= MAX_PRECISION) f->precision = f->precision * 10 + (PEEK - '0');
    }
    if (at < text->n) f->kind = text->bytes[at++];
    if (f->width > MAX_WIDTH || f->precision > MAX_PRECISION)
        state_fail(s, VALUE_ERROR, "a width or precision is too large");
    else if (at < text->n) state_fail(s, VALUE_ERROR, "Invalid format specifier");
#undef PEEK
    return !s->failed;
}

void format_value(state *s, builder *b, value v, const string *text) {
    spec f;
    if (text->n == 0) {
        value_write(s, b, v, false);
        return;
    }
    if (v.type != VALUE_STRING && !value_is_number(v)) {
        state_fail(s, TYPE_ERROR, "unsupported format string passed to %s.__format__", value_type_name(v));
        return;
    }
    if (!spec_read(s, text, &f, v)) return;
    bool is_text = v.type == VALUE_STRING, is_whole = v.type == VALUE_INT || v.type == VALUE_BOOL;
    const char *kinds = is_text ? "s" : is_whole ? "dxXobnc%eEfFgG"
                                                 : "%eEfFgGn";
    if (f.kind && !strchr(kinds, f.kind))
        state_fail(s, VALUE_ERROR, "Unknown format code '%c' for object of type '%s'", f.kind, value_type_name(v));
    else if (is_text && f.align == '=')
        state_fail(s, VALUE_ERROR, "'=' alignment not allowed in string format specifier");
    else if (is_text) format_text(s, b, &f, v.as.s);
    else if (is_whole && f.precision >= 0 && (!f.kind || strchr("dxXobnc", f.kind)))
        state_fail(s, VALUE_ERROR, "Precision not allowed in integer format specifier");
    else if (is_whole && f.kind == 'c') {
        const string *c = string_of_character(s, int_of(v));
        if (c) format_text(s, b, &f, c);
        else state_fail(s, OVERFLOW_ERROR, "%%c arg not in range(0x110000)");
    } else if (is_whole && (!f.kind || strchr("dxXobn", f.kind))) format_integer(s, b, &f, v, int_of(v));
    else format_real(s, b, &f, v, real_of(v));
}
