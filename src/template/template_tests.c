/* SPDX-License-Identifier: Apache-2.0 */
/* template_tests.c: Jinja's tests: x is defined, x is string, ... Owns nothing. One thread. */
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

static bool is_defined(state *s, value v, const arguments *args) {
    return (void)s, (void)args, v.type != VALUE_UNDEFINED;
}
static bool is_undefined(state *s, value v, const arguments *args) {
    return (void)s, (void)args, v.type == VALUE_UNDEFINED;
}
static bool is_none(state *s, value v, const arguments *args) { return (void)s, (void)args, v.type == VALUE_NONE; }
static bool is_boolean(state *s, value v, const arguments *args) { return (void)s, (void)args, v.type == VALUE_BOOL; }
static bool is_true(state *s, value v, const arguments *args) {
    return (void)s, (void)args, v.type == VALUE_BOOL && v.as.b;
}
static bool is_false(state *s, value v, const arguments *args) {
    return (void)s, (void)args, v.type == VALUE_BOOL && !v.as.b;
}
static bool is_integer(state *s, value v, const arguments *args) {
    return (void)s, (void)args, v.type == VALUE_INT || v.type == VALUE_BIG;
}
static bool is_float(state *s, value v, const arguments *args) { return (void)s, (void)args, v.type == VALUE_FLOAT; }
static bool is_number(state *s, value v, const arguments *args) {
    return (void)s, (void)args, value_is_number(v) || v.type == VALUE_BIG;
}
static bool is_string(state *s, value v, const arguments *args) { return (void)s, (void)args, v.type == VALUE_STRING; }
static bool is_mapping(state *s, value v, const arguments *args) { return (void)s, (void)args, v.type == VALUE_DICT; }
static bool is_escaped(state *s, value v, const arguments *args) {
    return (void)s, (void)args, v.type == VALUE_STRING && v.as.s->markup;
}

static bool is_iterable(state *s, value v, const arguments *args) {
    (void)s, (void)args;
    return v.type == VALUE_UNDEFINED || v.type == VALUE_STRING || v.type == VALUE_LIST || v.type == VALUE_DICT ||
           v.type == VALUE_LOOP;
}

/* It has a length and items by index. */
static bool is_sequence(state *s, value v, const arguments *args) {
    (void)s, (void)args;
    if (v.type == VALUE_LIST)
        return v.as.l->kind == LIST_LIST || v.as.l->kind == LIST_TUPLE || v.as.l->kind == LIST_RANGE;
    return v.type == VALUE_STRING || v.type == VALUE_DICT || v.type == VALUE_UNDEFINED;
}

static bool is_callable(state *s, value v, const arguments *args) {
    (void)s, (void)args;
    return v.type == VALUE_FUNCTION || v.type == VALUE_METHOD || v.type == VALUE_MACRO || v.type == VALUE_LOOP ||
           v.type == VALUE_JOINER || v.type == VALUE_UNDEFINED;
}

static bool is_lower(state *s, value v, const arguments *args) {
    return (void)args, string_has_case(s, value_to_string(s, v), CASE_LOWER);
}
static bool is_upper(state *s, value v, const arguments *args) {
    return (void)args, string_has_case(s, value_to_string(s, v), CASE_UPPER);
}

static value other_of(state *s, const arguments *args, const char *name) {
    const value *other = argument(args, 0, NULL);
    if (!other) state_fail(s, TYPE_ERROR, "the test '%s' needs an argument", name);
    return other ? *other : (value){0};
}

static bool is_equal(state *s, value v, const arguments *args) { return value_equal(s, v, other_of(s, args, "eq")); }
static bool is_unequal(state *s, value v, const arguments *args) { return !value_equal(s, v, other_of(s, args, "ne")); }
static bool is_less(state *s, value v, const arguments *args) {
    return value_compare(s, v, other_of(s, args, "lt"), "<") < 0;
}
static bool is_at_most(state *s, value v, const arguments *args) {
    return value_compare(s, v, other_of(s, args, "le"), "<=") <= 0;
}
static bool is_greater(state *s, value v, const arguments *args) {
    return value_compare(s, v, other_of(s, args, "gt"), ">") > 0;
}
static bool is_at_least(state *s, value v, const arguments *args) {
    return value_compare(s, v, other_of(s, args, "ge"), ">=") >= 0;
}
static bool is_in(state *s, value v, const arguments *args) { return value_contains(s, other_of(s, args, "in"), v); }

/* Python's `is`: the same object. Numbers and strings are compared by value. */
static bool is_same(state *s, value v, const arguments *args) {
    value other = other_of(s, args, "sameas");
    if (v.type != other.type) return false;
    return v.type == VALUE_LIST || v.type == VALUE_DICT ? v.as.d == other.as.d : value_equal(s, v, other);
}

static bool has_remainder(state *s, value v, value by, int64_t remainder) {
    value r = binary_operate(s, OP_MOD, v, by);
    return !s->failed && value_equal(s, r, value_int(remainder));
}
static bool is_even(state *s, value v, const arguments *args) {
    return (void)args, has_remainder(s, v, value_int(2), 0);
}
static bool is_odd(state *s, value v, const arguments *args) {
    return (void)args, has_remainder(s, v, value_int(2), 1);
}
static bool is_divisible(state *s, value v, const arguments *args) {
    BASE_ASSERT(argument(args, 0, "num"));
    return has_remainder(s, v, *argument(args, 0, "num"), 0);
}

static bool is_test(state *s, value v, const arguments *args) {
    (void)args;
    const char *name = v.type == VALUE_STRING ? string_new(s, v.as.s->bytes, v.as.s->n, TEMPLATE_UNTRUSTED)->bytes : "";
    return test_find(name) != NULL;
}

static const test tests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"mapping", "", is_mapping},
    {"iterable", "", is_iterable},
    {"sequence", "", is_sequence},
    {"callable", "", is_callable},
    {"lower", "", is_lower},
    {"upper", "", is_upper},
    {"escaped", "", is_escaped},
    {"in", "seq", is_in},
    {"sameas", "other", is_same},
    {"even", "", is_even},
    {"odd", "", is_odd},
    {"divisibleby", "num", is_divisible},
    {"test", "", is_test},
    {"eq", "other", is_equal},
    {"equalto", "other", is_equal},
    {"==", "other", is_equal},
    {"ne", "other", is_unequal},
    {"!=", "other", is_unequal},
    {"lt", "other", is_less},
    {"lessthan", "other", is_less},
    {"<", "other", is_less},
    {"le", "other", is_at_most},
    {"<=", "other", is_at_most},
    {"gt", "other", is_greater},
    {"greaterthan", "other", is_greater},
    {">", "other", is_greater},
    {"ge", "other", is_at_least},
    {">=", "other", is_at_least},
    {NULL, NULL, NULL},
};

const test *test_find(const char *name) {
    BASE_ASSERT(name);
    for (const test *t = tests; t->name; t++)
        if (strcmp(t->name, name) == 0) return t;
    return NULL;
}
