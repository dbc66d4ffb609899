/* SPDX-License-Identifier: Apache-2.0 */
/* template_arithmetic.c: + - * / // % ** as in Python, of numbers, strings and lists. Owns nothing. One thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

static const char *const operator_names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

static value overflow(state *s) {
    state_fail(s, OVERFLOW_ERROR, "an integer has more than 64 bits");
    return (value){0};
}

static value division_by_zero(state *s, binary_operator op, bool is_float) {
    BASE_ASSERT(op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD);
    const char *what = op == OP_DIV && !is_float ? "division by zero"
                       : op == OP_DIV            ? "float division by zero"
                       : is_float                ? "float floor division by zero"
                                                 : "integer division or modulo by zero";
    if (op == OP_MOD) what = is_float ? "float modulo" : "integer modulo by zero";
    state_fail(s, ZERO_DIVISION_ERROR, "%s", what);
    return (value){0};
}

/* Quotients are rounded down, and the remainder has the sign of the divisor. */
static value int_operate(state *s, binary_operator op, int64_t a, int64_t b) {
    BASE_ASSERT(op <= OP_POW);
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
    if (b < 0)
        return a == 0 ? (state_fail(s, ZERO_DIVISION_ERROR, "0.0 cannot be raised to a negative power"), (value){0})
                      : value_float(pow((double)a, (double)b));
    if (b > 64 && a != 0 && a != 1 && a != -1) return overflow(s);
    if (b > 64) return value_int(a == -1 && b % 2 == 0 ? 1 : a);
    for (r = 1; b > 0; b--)
        if (__builtin_mul_overflow(r, a, &r)) return overflow(s);
    return value_int(r);
}

static value float_operate(state *s, binary_operator op, double a, double b) {
    BASE_ASSERT(op <= OP_POW);
    if ((op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD) && b == 0) return division_by_zero(s, op, true);
    switch (op) {
    case OP_ADD: return value_float(a + b);
    case OP_SUB: return value_float(a - b);
    case OP_MUL: return value_float(a * b);
    case OP_DIV: return value_float(a / b);
    case OP_FLOOR_DIV: return value_float(floor(a / b));
    case OP_MOD: {
        state_step(s, 64); /* up to 1 us with far exponents */
        double r = fmod(a, b);
        return value_float(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    case OP_POW: break;
    }
    double r = pow(a, b);
    state_step(s, 8);
    if (a == 0 && b < 0) state_fail(s, ZERO_DIVISION_ERROR, "0.0 cannot be raised to a negative power");
    else if (isnan(r) && !isnan(a) && !isnan(b)) state_fail(s, TYPE_ERROR, "complex numbers are not supported");
    else if (isinf(r) && isfinite(a) && isfinite(b))
        state_fail(s, OVERFLOW_ERROR, "(34, 'Numerical result out of range')");
    return value_float(r);
}

static value list_join(state *s, const list *a, const list *b) {
    BASE_ASSERT(a->kind == b->kind);
    value all = value_list(s, a->kind, a->n + b->n);
    for (size_t i = 0; i < a->n && !s->failed; i++) list_add(s, all.as.l, a->items[i]);
    for (size_t i = 0; i < b->n && !s->failed; i++) list_add(s, all.as.l, b->items[i]);
    return all;
}

/* Of short strings, pieces of several copies are repeated. */
static value string_repeat(state *s, const string *text, int64_t times) {
    enum { PIECE_BYTES = 4096 };
    builder b = {0}, piece = {0};
    int64_t copies = text->n > 0 && text->n < PIECE_BYTES ? PIECE_BYTES / (int64_t)text->n : 1;
    if (times <= 0 || text->n == 0) return value_string(builder_string(s, &b));
    for (int64_t i = 0; i < copies && times >= copies; i++) builder_add_string(s, &piece, text);
    const string *several = builder_string(s, &piece);
    for (int64_t i = 0; i < times / copies && state_step(s, 0); i++) builder_add_string(s, &b, several);
    for (int64_t i = 0; i < times % copies && !s->failed; i++) builder_add_string(s, &b, text);
    return value_string(builder_string(s, &b));
}

static value list_repeat(state *s, const list *l, int64_t times) {
    value all = value_list(s, l->kind, 0);
    for (int64_t i = 0; i < times && l->n > 0 && state_step(s, 0); i++)
        for (size_t k = 0; k < l->n && !s->failed; k++) list_add(s, all.as.l, l->items[k]);
    return all;
}

static value sequence_repeat(state *s, value v, int64_t times) {
    BASE_ASSERT(v.type == VALUE_STRING || value_is_sequence(v));
    return v.type == VALUE_STRING ? string_repeat(s, v.as.s, times) : list_repeat(s, v.as.l, times);
}

/* keys() and items() are sets to Python's operators. */
static bool is_set(value v) {
    return v.type == VALUE_LIST && (v.as.l->kind == LIST_KEYS || v.as.l->kind == LIST_ITEMS);
}

static bool has_items(value v) {
    return v.type == VALUE_STRING || v.type == VALUE_LIST || v.type == VALUE_DICT || v.type == VALUE_UNDEFINED;
}

static value operands_fail(state *s, binary_operator op, value a, value b) {
    BASE_ASSERT((size_t)op < BASE_ARRAY_LEN(operator_names));
    if (op == OP_SUB && (is_set(a) || is_set(b)) && !(has_items(a) && has_items(b)))
        state_fail(s, TYPE_ERROR, "'%s' object is not iterable", value_type_name(has_items(a) ? b : a));
    else if (op == OP_ADD && a.type == VALUE_STRING)
        state_fail(s, TYPE_ERROR, "can only concatenate str (not \"%s\") to str", value_type_name(b));
    else if (op == OP_ADD && value_is_sequence(a))
        state_fail(s, TYPE_ERROR, "can only concatenate %s (not \"%s\") to %s", value_type_name(a), value_type_name(b),
                   value_type_name(a));
    else if (op == OP_MUL &&
             (a.type == VALUE_STRING || value_is_sequence(a) || b.type == VALUE_STRING || value_is_sequence(b)))
        state_fail(s, TYPE_ERROR, "can't multiply sequence by non-int of type '%s'",
                   value_type_name(a.type == VALUE_STRING || value_is_sequence(a) ? b : a));
    else
        state_fail(s, TYPE_ERROR, "unsupported operand type(s) for %s: '%s' and '%s'", operator_names[op],
                   value_type_name(a), value_type_name(b));
    return (value){0};
}

value binary_operate(state *s, binary_operator op, value a, value b) {
    value r = {0};
    if (s->failed) return r;
    if (op == OP_MOD && a.type == VALUE_STRING) {
        bool tuple = b.type == VALUE_LIST && b.as.l->kind == LIST_TUPLE;
        return string_percent(s, a.as.s, tuple ? b.as.l->items : &b, tuple ? b.as.l->n : 1, b);
    }
    if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED) {
        state_fail_undefined(s, a.type == VALUE_UNDEFINED ? a : b);
        return r;
    }
    if (value_is_number(a) && value_is_number(b)) {
        r = a.type == VALUE_FLOAT || b.type == VALUE_FLOAT ? float_operate(s, op, value_as_float(a), value_as_float(b))
                                                           : int_operate(s, op, value_as_int(a), value_as_int(b));
        r.untrusted = a.untrusted || b.untrusted;
        return r;
    }
    if (op == OP_ADD && a.type == VALUE_STRING && b.type == VALUE_STRING) return value_concat(s, a.as.s, b.as.s);
    if (op == OP_ADD && value_is_sequence(a) && value_is_sequence(b) && a.as.l->kind == b.as.l->kind)
        return list_join(s, a.as.l, b.as.l);
    if (a.type == VALUE_BIG || b.type == VALUE_BIG) {
        state_fail(s, OVERFLOW_ERROR, "%s: an integer has more than 64 bits", operator_names[op]);
        return r;
    }
    bool a_repeats = a.type == VALUE_INT || a.type == VALUE_BOOL,
         b_repeats = b.type == VALUE_INT || b.type == VALUE_BOOL;
    if (op == OP_MUL && (a.type == VALUE_STRING || value_is_sequence(a)) && b_repeats)
        return sequence_repeat(s, a, value_as_int(b));
    if (op == OP_MUL && (b.type == VALUE_STRING || value_is_sequence(b)) && a_repeats)
        return sequence_repeat(s, b, value_as_int(a));
    return operands_fail(s, op, a, b);
}
