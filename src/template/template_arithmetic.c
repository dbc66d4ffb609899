/* SPDX-License-Identifier: Apache-2.0 */
/* template_arithmetic.c: + - * / // % ** as in Python, of numbers, strings and lists; "%s" % x. Owns nothing. One thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "template/template_internal.h"

/* ---- "%s" % x ---- */

typedef struct percent {
    state *s;
    const string *format;
    const value *items;
    size_t n, next;
    const dict *named;
    size_t at; /* in the format, after "%" */
} percent;

static value percent_argument(percent *p) {
    const string *f = p->format;
    if (p->at < f->n && f->bytes[p->at] == '(' && p->named) {
        size_t end = p->at + 1;
        while (end < f->n && f->bytes[end] != ')') end++;
        const value *v = dict_find(p->s, p->named, value_string(string_part(p->s, f, p->at + 1, end)));
        if (!v) state_fail(p->s, "KeyError", "'%.*s'", (int)(end - p->at - 1), f->bytes + p->at + 1);
        p->at = end < f->n ? end + 1 : end;
        return v ? *v : (value){0};
    }
    if (p->next < p->n) return p->items[p->next++];
    state_fail(p->s, "TypeError", "not enough arguments for format string");
    return (value){0};
}

static void percent_number(percent *p, builder *b, char kind, const char *flags, value v) {
    char format[48], text[128];
    bool is_int = kind == 'd' || kind == 'i' || kind == 'x' || kind == 'X' || kind == 'o';
    if (!value_is_number(v)) {
        state_fail(p->s, "TypeError", "%%%c format: a real number is required, not %s", kind, value_type_name(v));
        return;
    }
    double f = v.type == VALUE_FLOAT ? v.as.f : v.type == VALUE_INT ? (double)v.as.i : v.as.b;
    int64_t i = v.type == VALUE_FLOAT ? (f > -9e18 && f < 9e18 ? (int64_t)f : 0) : v.type == VALUE_INT ? v.as.i : v.as.b;
    int n;
    if (is_int) {
        snprintf(format, sizeof(format), "%%%sll%c", flags, kind == 'i' ? 'd' : kind);
        n = snprintf(text, sizeof(text), format, (long long)i);
    } else {
        snprintf(format, sizeof(format), "%%%s%c", flags, kind);
        n = snprintf(text, sizeof(text), format, f);
    }
    builder_add(p->s, b, text, n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1, v.untrusted ? TEMPLATE_UNTRUSTED : TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
}

/* Flags, width and precision of numbers, up to 16 characters; strings are written whole. */
static void percent_one(percent *p, builder *b) {
    const string *f = p->format;
    char flags[17];
    size_t n = 0;
    value v = p->at < f->n && f->bytes[p->at] == '(' ? percent_argument(p) : (value){.type = VALUE_LOOP};
    while (p->at < f->n && strchr("-+ #0123456789.", f->bytes[p->at]) && n + 1 < sizeof(flags)) flags[n++] = f->bytes[p->at++];
    flags[n] = '\0';
    char kind = p->at < f->n ? f->bytes[p->at++] : '\0';
    if (kind == '%') {
        builder_add(p->s, b, "%", 1, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
        return;
    }
    if (!kind || !strchr("sradixXofFeEgG", kind)) {
        state_fail(p->s, "ValueError", "unsupported format character after %%");
        return;
    }
    if (v.type == VALUE_LOOP) v = percent_argument(p);
    if (p->s->failed) return;
    if (strchr("sra", kind)) value_write(p->s, b, v, kind != 's');
    else percent_number(p, b, kind, flags, v);
}

value string_percent(state *s, const string *format, const value *items, size_t n, const dict *named) {
    percent p = {.s = s, .format = format, .items = items, .n = n, .named = named};
    builder b = {0};
    size_t from = 0;
    while (!s->failed) {
        size_t at = from;
        while (at < format->n && format->bytes[at] != '%') at++;
        builder_add_string(s, &b, string_part(s, format, from, at));
        if (at == format->n) break;
        p.at = at + 1;
        percent_one(&p, &b);
        from = p.at;
    }
    if (p.next < n && !named) state_fail(s, "TypeError", "not all arguments converted during string formatting");
    return value_string(builder_string(s, &b));
}

/* ---- Arithmetic ---- */

static const char *const operator_names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

static value overflow(state *s) {
    state_fail(s, "OverflowError", "an integer has more than 64 bits");
    return (value){0};
}

static value division_by_zero(state *s, binary_operator op, bool is_float) {
    const char *what = op == OP_DIV && !is_float ? "division by zero" : op == OP_DIV ? "float division by zero" : is_float ? "float floor division by zero" : "integer division or modulo by zero";
    if (op == OP_MOD) what = is_float ? "float modulo" : "integer modulo by zero";
    state_fail(s, "ZeroDivisionError", "%s", what);
    return (value){0};
}

/* Quotients are rounded down, and the remainder has the sign of the divisor. */
static value int_operate(state *s, binary_operator op, int64_t a, int64_t b) {
    int64_t r = 0;
    if ((op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD) && b == 0) return division_by_zero(s, op, false);
    switch (op) {
    case OP_ADD: return __builtin_add_overflow(a, b, &r) ? overflow(s) : value_int(r);
    case OP_SUB: return __builtin_sub_overflow(a, b, &r) ? overflow(s) : value_int(r);
    case OP_MUL: return __builtin_mul_overflow(a, b, &r) ? overflow(s) : value_int(r);
    case OP_DIV: return value_float((double)a / (double)b);
    case OP_FLOOR_DIV:
        if (b == -1) return a == INT64_MIN ? overflow(s) : value_int(-a);
        return value_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    case OP_MOD:
        if (b == -1) return value_int(0);
        return value_int(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0));
    case OP_POW: break;
    }
    if (b < 0) return a == 0 ? (state_fail(s, "ZeroDivisionError", "0.0 cannot be raised to a negative power"), (value){0}) : value_float(pow((double)a, (double)b));
    if (b > 64 && a != 0 && a != 1 && a != -1) return overflow(s);
    if (b > 64) return value_int(a == -1 && b % 2 == 0 ? 1 : a);
    for (r = 1; b > 0; b--)
        if (__builtin_mul_overflow(r, a, &r)) return overflow(s);
    return value_int(r);
}

static value float_operate(state *s, binary_operator op, double a, double b) {
    if ((op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD) && b == 0) return division_by_zero(s, op, true);
    switch (op) {
    case OP_ADD: return value_float(a + b);
    case OP_SUB: return value_float(a - b);
    case OP_MUL: return value_float(a * b);
    case OP_DIV: return value_float(a / b);
    case OP_FLOOR_DIV: return value_float(floor(a / b));
    case OP_MOD: {
        double r = fmod(a, b);
        return value_float(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    case OP_POW: break;
    }
    return value_float(pow(a, b));
}

static value list_join(state *s, const list *a, const list *b) {
    value all = value_list(s, a->kind, a->n + b->n);
    for (size_t i = 0; i < a->n && !s->failed; i++) list_add(s, all.as.l, a->items[i]);
    for (size_t i = 0; i < b->n && !s->failed; i++) list_add(s, all.as.l, b->items[i]);
    return all;
}

static value sequence_repeat(state *s, value v, int64_t times) {
    builder b = {0};
    value all = v.type == VALUE_LIST ? value_list(s, v.as.l->kind, 0) : (value){0};
    for (int64_t i = 0; i < times && state_step(s, 0); i++) {
        if (v.type == VALUE_STRING) builder_add_string(s, &b, v.as.s);
        for (size_t k = 0; v.type == VALUE_LIST && k < v.as.l->n && !s->failed; k++) list_add(s, all.as.l, v.as.l->items[k]);
        if ((v.type == VALUE_STRING ? v.as.s->n : v.as.l->n) == 0) break;
    }
    return v.type == VALUE_STRING ? value_string(builder_string(s, &b)) : all;
}

static value operands_fail(state *s, binary_operator op, value a, value b) {
    if (op == OP_ADD && a.type == VALUE_STRING) state_fail(s, "TypeError", "can only concatenate str (not \"%s\") to str", value_type_name(b));
    else if (op == OP_ADD && value_is_sequence(a))
        state_fail(s, "TypeError", "can only concatenate %s (not \"%s\") to %s", value_type_name(a), value_type_name(b), value_type_name(a));
    else if (op == OP_MUL && (a.type == VALUE_STRING || value_is_sequence(a)))
        state_fail(s, "TypeError", "can't multiply sequence by non-int of type '%s'", value_type_name(b));
    else
        state_fail(s, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", operator_names[op], value_type_name(a), value_type_name(b));
    return (value){0};
}

value binary_operate(state *s, binary_operator op, value a, value b) {
    value r = {0};
    if (s->failed) return r;
    if (op == OP_MOD && a.type == VALUE_STRING) {
        bool tuple = b.type == VALUE_LIST && b.as.l->kind == LIST_TUPLE;
        return string_percent(s, a.as.s, tuple ? b.as.l->items : &b, tuple ? b.as.l->n : 1, b.type == VALUE_DICT ? b.as.d : NULL);
    }
    if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED) {
        state_fail_undefined(s, a.type == VALUE_UNDEFINED ? a : b);
        return r;
    }
    if (value_is_number(a) && value_is_number(b)) {
        r = a.type == VALUE_FLOAT || b.type == VALUE_FLOAT ? float_operate(s, op, value_as_float(a), value_as_float(b)) : int_operate(s, op, value_as_int(a), value_as_int(b));
        r.untrusted = a.untrusted || b.untrusted;
        return r;
    }
    if (op == OP_ADD && a.type == VALUE_STRING && b.type == VALUE_STRING) return value_concat(s, a.as.s, b.as.s);
    if (op == OP_ADD && value_is_sequence(a) && value_is_sequence(b) && a.as.l->kind == b.as.l->kind) return list_join(s, a.as.l, b.as.l);
    bool a_repeats = a.type == VALUE_INT || a.type == VALUE_BOOL, b_repeats = b.type == VALUE_INT || b.type == VALUE_BOOL;
    if (op == OP_MUL && (a.type == VALUE_STRING || value_is_sequence(a)) && b_repeats) return sequence_repeat(s, a, value_as_int(b));
    if (op == OP_MUL && (b.type == VALUE_STRING || value_is_sequence(b)) && a_repeats) return sequence_repeat(s, b, value_as_int(a));
    return operands_fail(s, op, a, b);
}
