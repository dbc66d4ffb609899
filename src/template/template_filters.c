/* SPDX-License-Identifier: Apache-2.0 */
/* template_filters.c: Jinja's filters, as Jinja2 3.1 has them; tojson is json.dumps, as transformers sets it. One
   thread. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

/* ---- Texts ---- */

static value filter_string(state *s, value v, const arguments *args) {
    return (void)args, value_string(value_to_string(s, v));
}

static value change_case(state *s, value v, case_kind kind) {
    BASE_ASSERT(kind <= CASE_SWAP);
    return value_string(string_case(s, value_to_string(s, v), kind));
}
static value filter_lower(state *s, value v, const arguments *args) {
    return (void)args, change_case(s, v, CASE_LOWER);
}
static value filter_upper(state *s, value v, const arguments *args) {
    return (void)args, change_case(s, v, CASE_UPPER);
}
static value filter_capitalize(state *s, value v, const arguments *args) {
    return (void)args, change_case(s, v, CASE_CAPITAL);
}

/* Words begin after white space, "-" and opening brackets. */
static value filter_title(state *s, value v, const arguments *args) {
    const string *text = value_to_string(s, v);
    builder b = {0};
    (void)args;
    for (size_t at = 0, n, from; at < text->n && !s->failed;) {
        for (from = at; at < text->n; at += n) {
            uint32_t c = string_at(text, at, &n);
            bool breaks = is_python_space(c) || (c < 0x80 && strchr("-({[<", (int)c));
            if (breaks) {
                at += n;
                break;
            }
        }
        string_at(text, from, &n);
        builder_add_string(s, &b, string_case(s, string_part(s, text, from, from + n), CASE_UPPER));
        builder_add_string(s, &b, string_case(s, string_part(s, text, from + n, at), CASE_LOWER));
    }
    return value_string(builder_string(s, &b));
}

static value filter_trim(state *s, value v, const arguments *args) {
    const value *set = argument(args, 0, "chars");
    if (set && set->type != VALUE_STRING && set->type != VALUE_NONE)
        state_fail(s, TYPE_ERROR, "strip arg must be None or str");
    return value_string(
        string_strip(s, value_to_string(s, v), set && set->type == VALUE_STRING ? set->as.s : NULL, true, true));
}

static value filter_replace(state *s, value v, const arguments *args) {
    BASE_ASSERT(argument(args, 0, "old") && argument(args, 1, "new"));
    const value *old = argument(args, 0, "old"), *with = argument(args, 1, "new"), *count = argument(args, 2, "count");
    int64_t most = count && count->type != VALUE_NONE ? argument_int(s, args, 2, "count", -1) : -1;
    return value_string(
        string_replace(s, value_to_string(s, v), value_to_string(s, *old), value_to_string(s, *with), most));
}

static value filter_safe(state *s, value v, const arguments *args) {
    return (void)args, value_string(string_marked(s, value_to_string(s, v)));
}

static value filter_escape(state *s, value v, const arguments *args) {
    (void)args;
    return v.type == VALUE_STRING && v.as.s->markup ? v : value_string(string_escaped(s, value_to_string(s, v)));
}

static value filter_forceescape(state *s, value v, const arguments *args) {
    return (void)args, value_string(string_escaped(s, value_to_string(s, v)));
}

/* Of a line of splitlines(true), which has one. */
static size_t line_end_bytes(const string *line) {
    BASE_ASSERT(line->n > 0);
    size_t n = 0, at = line->n - 1;
    if (line->n > 1 && line->bytes[at] == '\n' && line->bytes[at - 1] == '\r') return 2;
    while (at > 0 && ((unsigned char)line->bytes[at] & 0xc0) == 0x80) at--;
    string_at(line, at, &n);
    return n;
}

/* Indents all lines but the first, and not blank ones; with `first` and `blank` those, too. */
static value filter_indent(state *s, value v, const arguments *args) {
    const value *width = argument(args, 0, "width");
    bool first = argument_bool(s, args, 1, "first", false), blank = argument_bool(s, args, 2, "blank", false);
    builder space = {0}, b = {0}, ended = {0};
    if (v.type == VALUE_UNDEFINED) state_fail_undefined(s, v);
    else if (v.type == VALUE_LIST && v.as.l->kind == LIST_TUPLE)
        state_fail(s, TYPE_ERROR, "can only concatenate tuple (not \"str\") to tuple");
    else if (v.type == VALUE_LIST && v.as.l->kind == LIST_LIST)
        state_fail(s, ATTRIBUTE_ERROR, "'%s' object has no attribute 'splitlines'", value_type_name(v));
    else if (v.type != VALUE_STRING)
        state_fail(s, TYPE_ERROR, "unsupported operand type(s) for +=: '%s' and 'str'", value_type_name(v));
    if (width && width->type == VALUE_STRING) builder_add_string(s, &space, width->as.s);
    else if (width && width->type != VALUE_INT && width->type != VALUE_BOOL)
        state_fail(s, TYPE_ERROR, "can't multiply sequence by non-int of type '%s'", value_type_name(*width));
    else
        for (int64_t i = argument_int(s, args, 0, "width", 4); i > 0 && !s->failed; i--)
            builder_add(s, &space, " ", 1, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
    if (s->failed) return v;
    const string *by = builder_string(s, &space);
    builder_add_string(s, &ended, v.as.s);
    builder_add(s, &ended, "\n", 1, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET); /* so that a line end at the end is kept */
    const value text = value_string(builder_string(s, &ended)), keep = value_bool(true);
    const value lines =
        method_call(s, &(method){.self = &text, .name = "splitlines"}, &(arguments){.items = &keep, .n = 1});
    BASE_ASSERT(s->failed || lines.type == VALUE_LIST);
    for (size_t i = 0, end = 0; !s->failed && i < lines.as.l->n; i++) {
        const string *line = lines.as.l->items[i].as.s;
        if (i > 0 && end == 1 && lines.as.l->items[i - 1].as.s->bytes[lines.as.l->items[i - 1].as.s->n - 1] == '\n')
            builder_add_string(s, &b,
                               string_part(s, lines.as.l->items[i - 1].as.s, lines.as.l->items[i - 1].as.s->n - 1,
                                           lines.as.l->items[i - 1].as.s->n));
        else if (i > 0) builder_add(s, &b, "\n", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
        end = line_end_bytes(line);
        if (i == 0 ? first : blank || line->n > end) builder_add_string(s, &b, by);
        builder_add_string(s, &b, string_part(s, line, 0, line->n - end));
    }
    return value_string(builder_string(s, &b));
}

static value filter_format(state *s, value v, const arguments *args) {
    value named = value_dict(s);
    for (size_t i = 0; i < args->n_named && !s->failed; i++)
        dict_set(s, named.as.d, value_text(s, args->names[i]), args->named[i]);
    if (args->n > 0 && args->n_named > 0)
        state_fail(s, FILTER_ARGUMENT_ERROR, "can't handle positional and keyword arguments at the same time");
    return s->failed
               ? v
               : string_percent(s, value_to_string(s, v), args->items, args->n, args->n_named > 0 ? named : value_none);
}

static value filter_center(state *s, value v, const arguments *args) {
    const value text = value_string(value_to_string(s, v));
    const value width = value_int(argument_int(s, args, 0, "width", 80));
    return method_call(s, &(method){.self = &text, .name = "center"}, &(arguments){.items = &width, .n = 1});
}

static value filter_wordcount(state *s, value v, const arguments *args) {
    const string *text = value_to_string(s, v);
    int64_t words = 0;
    bool inside = false;
    (void)args;
    state_step(s, text->n / STEP_CLASSED);
    for (size_t at = 0, n; at < text->n && !s->failed; at += n) {
        uint32_t c = string_at(text, at, &n);
        bool is_word = c == '_' || is_python_alnum(c);
        words += is_word && !inside;
        inside = is_word;
    }
    return (value){.type = VALUE_INT, .untrusted = true, .as.i = words};
}

static value filter_length(state *s, value v, const arguments *args) {
    (void)args;
    value n = {0};
    if (v.type == VALUE_STRING) n = value_int((int64_t)string_length(s, v.as.s));
    else if (v.type == VALUE_LIST && v.as.l->kind != LIST_GENERATOR) n = value_int((int64_t)v.as.l->n);
    else if (v.type == VALUE_DICT) n = value_int((int64_t)v.as.d->n);
    else if (v.type == VALUE_UNDEFINED) n = value_int(0);
    else if (v.type == VALUE_LOOP) n = value_int((int64_t)v.as.loop->items->n);
    else state_fail(s, TYPE_ERROR, "object of type '%s' has no len()", value_type_name(v));
    n.untrusted = true;
    return n;
}

static value filter_truncate(state *s, value v, const arguments *args) {
    const string *text = value_to_string(s, v), *end = argument_string(s, args, 2, "end", NULL);
    int64_t length = argument_int(s, args, 0, "length", 255), n_end = end ? (int64_t)string_length(s, end) : 3;
    const value *given = argument(args, 3, "leeway");
    int64_t leeway = given && given->type != VALUE_NONE ? argument_int(s, args, 3, "leeway", 5) : 5;
    if (length < n_end)
        state_fail(s, ASSERTION_ERROR, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    else if (leeway < 0) state_fail(s, ASSERTION_ERROR, "expected leeway >= 0, got %lld", (long long)leeway);
    value n = s->failed ? (value){0} : filter_length(s, v, args);
    if (!s->failed && v.type != VALUE_STRING && v.type != VALUE_UNDEFINED && n.as.i - leeway > length)
        state_fail(s, ATTRIBUTE_ERROR, "'%s' object has no attribute 'rsplit'", value_type_name(v));
    if (s->failed || n.as.i - leeway <= length) return v;
    const string *cut = string_part(s, text, 0, string_offset(s, text, (size_t)(length - n_end)));
    if (!argument_bool(s, args, 1, "killwords", false)) {
        size_t last = string_find_last(s, cut, &(string){.bytes = " ", .n = 1});
        if (last != SIZE_MAX) cut = string_part(s, cut, 0, last);
    }
    return value_concat(s, cut, end ? end : value_text(s, "...").as.s);
}

/* "/" is kept in a text; in a query, it is escaped and a space is "+". */
static void add_quoted(state *s, builder *b, value v, bool in_query) {
    static const char digits[] = "0123456789ABCDEF";
    const string *text = value_to_string(s, v);
    for (size_t i = 0; i < text->n && !s->failed; i++) {
        unsigned char c = (unsigned char)text->bytes[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                     (c && strchr(in_query ? "_.-~" : "_.-~/", c));
        const char escape[3] = {'%', digits[c >> 4], digits[c & 15]}, *out = plain                  ? (const char *)&c
                                                                             : in_query && c == ' ' ? "+"
                                                                                                    : escape;
        builder_add(s, b, out, out == escape ? 3 : 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
    }
}

static value filter_urlencode(state *s, value v, const arguments *args) {
    builder b = {0};
    (void)args;
    bool is_query = v.type == VALUE_DICT || v.type == VALUE_LIST;
    value pairs = v.type == VALUE_DICT ? method_call(s, &(method){.self = &v, .name = "items"}, &(arguments){0}) : v;
    const list *items = is_query && !s->failed ? value_iterate(s, pairs) : NULL;
    if (!is_query) add_quoted(s, &b, v, false);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        value pair = items->items[i];
        bool iterable = pair.type == VALUE_LIST || pair.type == VALUE_STRING || pair.type == VALUE_DICT;
        const list *two = iterable ? value_iterate(s, pair) : NULL;
        if (!two) state_fail(s, TYPE_ERROR, "cannot unpack non-iterable %s object", value_type_name(pair));
        if (two && two->n < 2) state_fail(s, VALUE_ERROR, "not enough values to unpack (expected 2, got %zu)", two->n);
        else if (two && two->n > 2) state_fail(s, VALUE_ERROR, "too many values to unpack (expected 2)");
        if (s->failed) break;
        if (i > 0) builder_add(s, &b, "&", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
        add_quoted(s, &b, two->items[0], true);
        builder_add(s, &b, "=", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
        add_quoted(s, &b, two->items[1], true);
    }
    return value_string(builder_string(s, &b));
}

/* NUL-terminated. */
static const char *separator_of(state *s, value v) {
    if (v.type == VALUE_STRING) return string_new(s, v.as.s->bytes, v.as.s->n, TEMPLATE_UNTRUSTED)->bytes;
    state_fail(s, TYPE_ERROR, "sequence item 0: expected str instance, %s found", value_type_name(v));
    return "";
}

static value filter_tojson(state *s, value v, const arguments *args) {
    builder b = {0}, spaces = {0};
    const value *separators = argument(args, 2, "separators"), *indent = argument(args, 1, "indent");
    json_style style = {.item_separator = ", ", .key_separator = ": "};
    if (indent && indent->type != VALUE_NONE) {
        style.item_separator = ",";
        if (indent->type == VALUE_STRING) style.indent = indent->as.s;
        else {
            for (int64_t i = argument_int(s, args, 1, "indent", 0); i > 0 && !s->failed; i--)
                builder_add(s, &spaces, " ", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
            style.indent = builder_string(s, &spaces);
        }
    }
    style.ascii = argument_bool(s, args, 0, "ensure_ascii", false);
    style.sorted = argument_bool(s, args, 3, "sort_keys", false);
    if (separators && separators->type != VALUE_NONE) {
        bool iterable =
            separators->type == VALUE_LIST || separators->type == VALUE_STRING || separators->type == VALUE_DICT;
        const list *two = iterable ? value_iterate(s, *separators) : NULL;
        if (!two) state_fail(s, TYPE_ERROR, "cannot unpack non-iterable %s object", value_type_name(*separators));
        else if (two->n < 2) state_fail(s, VALUE_ERROR, "not enough values to unpack (expected 2, got %zu)", two->n);
        else if (two->n > 2) state_fail(s, VALUE_ERROR, "too many values to unpack (expected 2)");
        if (s->failed) return v;
        style.item_separator = separator_of(s, two->items[0]);
        style.key_separator = separator_of(s, two->items[1]);
    }
    json_write(s, &b, v, &style);
    return value_string(builder_string(s, &b));
}

/* ---- Numbers ---- */

static value filter_abs(state *s, value v, const arguments *args) {
    (void)args;
    if (v.type == VALUE_INT && v.as.i >= 0) return v;
    if (v.type == VALUE_FLOAT) v.as.f = fabs(v.as.f);
    else if (v.type == VALUE_INT) return binary_operate(s, OP_SUB, value_int(0), v);
    else if (v.type == VALUE_BOOL) return (value){.type = VALUE_INT, .untrusted = v.untrusted, .as.i = v.as.b};
    else state_fail(s, TYPE_ERROR, "bad operand type for abs(): '%s'", value_type_name(v));
    return v;
}

/* A number of Python: white space around, "_" between digits. The text without those, NUL-terminated; NULL: it is
   none. */
static const char *number_text(state *s, const string *text, char copy[64]) {
    size_t n = 0;
    text = string_strip(s, text, NULL, true, true);
    if (text->n == 0 || text->n >= 64) return NULL;
    for (size_t i = 0; i < text->n; i++) {
        const char c = text->bytes[i], before = i > 0 ? text->bytes[i - 1] : '_',
                   after = i + 1 < text->n ? text->bytes[i + 1] : '_';
        if (c == '\0' || (c == '_' && (before == '_' || after == '_' || !isxdigit((unsigned char)after)))) return NULL;
        if (c != '_') copy[n++] = c;
    }
    BASE_ASSERT(n < 64);
    copy[n] = '\0';
    return copy;
}

static bool text_float(state *s, const string *text, double *f) {
    char copy[64], *end;
    const char *number = number_text(s, text, copy);
    if (!number || !state_step(s, 64) || strpbrk(number, "xXpP(")) return false;
    *f = strtod(number, &end);
    return *end == '\0' && end > number;
}

/* base 0: as the prefix says. */
static bool text_int(state *s, const string *text, int64_t base, int64_t *i) {
    char copy[64], *end;
    const char *number = number_text(s, text, copy);
    if (!number || base < 0 || base == 1 || base > 36) return false;
    bool negative = *number == '-';
    number += *number == '-' || *number == '+';
    const char mark = number[0] == '0' ? (char)(number[1] | 0x20) : ' ';
    int by = mark == 'x' ? 16 : mark == 'o' ? 8
                            : mark == 'b'   ? 2
                                            : 0;
    if (by && (base == 0 || base == by)) {
        number += 2;
        base = by;
    } else if (base == 0) base = 10;
    if (!isalnum((unsigned char)*number) || (base == 16 && (number[1] | 0x20) == 'x')) return false;
    errno = 0;
    *i = strtoll(number, &end, (int)base);
    if (errno) state_fail(s, OVERFLOW_ERROR, "an integer has more than 64 bits");
    if (negative) *i = -*i;
    return *end == '\0';
}

static int64_t int_of_float(state *s, double f) {
    if (fabs(f) < 9.2e18) return (int64_t)f;
    state_fail(s, OVERFLOW_ERROR,
               isinf(f) ? "cannot convert float infinity to integer" : "an integer has more than 64 bits");
    return 0;
}

static value filter_int(state *s, value v, const arguments *args) {
    const value *otherwise = argument(args, 0, "default");
    value r = otherwise ? *otherwise : value_int(0);
    double f = 0;
    int64_t i = 0, base = argument_int(s, args, 1, "base", 10);
    if (v.type == VALUE_INT || v.type == VALUE_BIG) return v;
    if (v.type == VALUE_UNDEFINED) state_fail_undefined(s, v);
    if (v.type == VALUE_BOOL) r = value_int(v.as.b);
    else if (v.type == VALUE_FLOAT && !isnan(v.as.f)) r = value_int(int_of_float(s, v.as.f));
    else if (v.type == VALUE_STRING && text_int(s, v.as.s, base, &i)) r = value_int(i);
    else if (v.type == VALUE_STRING && text_float(s, v.as.s, &f) && isfinite(f)) r = value_int(int_of_float(s, f));
    r.untrusted = true;
    return r;
}

static value filter_float(state *s, value v, const arguments *args) {
    const value *otherwise = argument(args, 0, "default");
    value r = otherwise ? *otherwise : value_float(0);
    double f = 0;
    if (v.type == VALUE_FLOAT) return v;
    if (v.type == VALUE_UNDEFINED) state_fail_undefined(s, v);
    if (v.type == VALUE_INT || v.type == VALUE_BOOL) r = value_float(v.type == VALUE_INT ? (double)v.as.i : v.as.b);
    else if ((v.type == VALUE_STRING || v.type == VALUE_BIG) && text_float(s, v.as.s, &f)) r = value_float(f);
    r.untrusted = true;
    return r;
}

/* Halves are rounded to even, as in Python. */
static value filter_round(state *s, value v, const arguments *args) {
    int64_t digits = argument_int(s, args, 0, "precision", 0);
    const string *method_name = argument_string(s, args, 1, "method", NULL);
    double f = v.type == VALUE_FLOAT ? v.as.f : v.type == VALUE_INT ? (double)v.as.i
                                            : v.type == VALUE_BOOL  ? v.as.b
                                                                    : 0;
    if (method_name && !string_is(method_name, "common") && !string_is(method_name, "ceil") &&
        !string_is(method_name, "floor"))
        state_fail(s, FILTER_ARGUMENT_ERROR, "method must be common, ceil or floor");
    else if (!value_is_number(v))
        state_fail(s, TYPE_ERROR, "type %s doesn't define __round__ method", value_type_name(v));
    if (v.type == VALUE_BOOL) v = (value){.type = VALUE_INT, .untrusted = v.untrusted, .as.i = v.as.b};
    if (s->failed) return v;
    if (method_name && !string_is(method_name, "common")) {
        double scale = pow(10, (double)digits);
        value r = value_float((string_is(method_name, "ceil") ? ceil(f * scale) : floor(f * scale)) / scale);
        r.untrusted = v.untrusted;
        return r;
    }
    if (v.type != VALUE_FLOAT && digits >= 0) return v;
    char text[512];
    if (!state_step(s, 512)) return v;
    if (digits >= 0 && digits <= 100 && fabs(f) < 1e100) {
        snprintf(text, sizeof(text), "%.*f", (int)digits, f);
        f = strtod(text, NULL);
    } else f = nearbyint(f / pow(10, (double)-digits)) * pow(10, (double)-digits);
    value r = v.type == VALUE_FLOAT ? value_float(f) : value_int((int64_t)f);
    r.untrusted = v.untrusted;
    return r;
}

/* ---- Lists ---- */

static value first_or_last(state *s, value v, bool last) {
    bool one_way =
        (v.type == VALUE_LIST && v.as.l->kind == LIST_GENERATOR) || value_is_number(v) || v.type == VALUE_NONE;
    if (last && one_way) state_fail(s, TYPE_ERROR, "'%s' object is not reversible", value_type_name(v));
    const list *items = value_items(s, v);
    if (!items || items->n == 0)
        return s->failed
                   ? v
                   : value_hinted(s, last ? "No last item, sequence was empty." : "No first item, sequence was empty.",
                                  UNDEFINED_ERROR);
    return items->items[last ? items->n - 1 : 0];
}
static value filter_first(state *s, value v, const arguments *args) { return (void)args, first_or_last(s, v, false); }
static value filter_last(state *s, value v, const arguments *args) { return (void)args, first_or_last(s, v, true); }

static value filter_list(state *s, value v, const arguments *args) {
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_LIST, items ? items->n : 0);
    (void)args;
    for (size_t i = 0; items && i < items->n && !s->failed; i++) list_add(s, all.as.l, items->items[i]);
    return all;
}

/* What Python's reversed() of the value is called. */
static void name_reversed(list *l, value v) {
    BASE_ASSERT(v.type == VALUE_LIST || v.type == VALUE_DICT || v.type == VALUE_STRING || v.type == VALUE_UNDEFINED);
    static const char *const names[][2] = {
        [LIST_LIST] = {"list_reverseiterator", "list_reverseiterator object"},
        [LIST_TUPLE] = {"reversed", "reversed object"},
        [LIST_ITEMS] = {"dict_reverseitemiterator", "dict_reverseitemiterator object"},
        [LIST_KEYS] = {"dict_reversekeyiterator", "dict_reversekeyiterator object"},
        [LIST_VALUES] = {"dict_reversevalueiterator", "dict_reversevalueiterator object"},
        [LIST_RANGE] = {"range_iterator", "range_iterator object"},
    };
    list_kind kind = v.type == VALUE_LIST ? v.as.l->kind : v.type == VALUE_DICT ? LIST_KEYS
                                                                                : LIST_TUPLE;
    l->type_name = names[kind][0];
    l->object_name = names[kind][1];
}

static value filter_reverse(state *s, value v, const arguments *args) {
    const list *items = value_iterate(s, v);
    bool copied = v.type == VALUE_LIST && v.as.l->kind == LIST_GENERATOR;
    value all = value_list(s, copied ? LIST_LIST : LIST_GENERATOR, items ? items->n : 0);
    builder b = {0};
    (void)args;
    if (!copied && !s->failed) name_reversed(all.as.l, v);
    for (size_t i = items ? items->n : 0; i-- > 0 && !s->failed;) {
        if (v.type == VALUE_STRING) builder_add_string(s, &b, items->items[i].as.s);
        else list_add(s, all.as.l, items->items[i]);
    }
    return v.type == VALUE_STRING ? value_string(builder_string(s, &b)) : all;
}

/* What map, sum, sort, ... take of an item: "a.b" is an attribute of an attribute, digits are an index. */
static value path_of(state *s, value item, const value *attribute, const value *otherwise) {
    if (!attribute) return item;
    if (attribute->type != VALUE_STRING) return value_item(s, item, *attribute);
    const string *path = attribute->as.s;
    for (size_t from = 0, to; from <= path->n && !s->failed; from = to + 1) {
        const char *dot = memchr(path->bytes + from, '.', path->n - from);
        to = dot ? (size_t)(dot - path->bytes) : path->n;
        const string *part = string_part(s, path, from, to);
        bool digits = part->n > 0 && part->n < 10;
        for (size_t i = 0; i < part->n && digits; i++) digits = part->bytes[i] >= '0' && part->bytes[i] <= '9';
        int64_t index = 0;
        for (size_t i = 0; i < part->n && digits; i++) index = index * 10 + (part->bytes[i] - '0');
        item = value_item(s, item, digits ? value_int(index) : value_string(part));
        if (item.type == VALUE_UNDEFINED && otherwise && !s->failed) item = *otherwise;
    }
    return item;
}

static value filter_join(state *s, value v, const arguments *args) {
    const value *separator = argument(args, 0, "d"), *attribute = argument(args, 1, "attribute");
    const string *by = separator ? value_to_string(s, *separator) : NULL;
    const list *items = value_iterate(s, v);
    builder b = {0};
    if (attribute && attribute->type == VALUE_NONE) attribute = NULL;
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        if (i > 0 && by) builder_add_string(s, &b, by);
        value_write(s, &b, path_of(s, items->items[i], attribute, NULL), false);
    }
    return value_string(builder_string(s, &b));
}

/* The name of a filter or test, from an argument. */
static const char *name_of(state *s, const value *v) {
    static const char none[] = "";
    if (!v || v->type != VALUE_STRING) return none;
    const string *copy = string_new(s, v->as.s->bytes, v->as.s->n, TEMPLATE_UNTRUSTED);
    return copy->bytes;
}

static arguments arguments_after(const arguments *args, size_t n) {
    BASE_ASSERT(args->n == 0 || args->items);
    arguments rest = *args;
    if (n > args->n) n = args->n;
    if (n > 0) rest.items += n;
    rest.n -= n;
    return rest;
}

/* select, map and their like skip everything that is false, None as well. */
static const list *items_if_any(state *s, value v) {
    return value_truth(s, v) ? value_iterate(s, v) : value_iterate(s, (value){0});
}

/* The arguments of map without `attribute` and `default` are no more than that. */
static void check_map(state *s, const arguments *args, const filter *f, const value *attribute) {
    builder name = {0};
    if (args->n > 0 && !f) {
        value_write(s, &name, args->items[0], true);
        state_fail(s, TEMPLATE_RUNTIME_ERROR, "No filter named %s.", name.n > 0 ? name.bytes : "");
    } else if (args->n == 0 && !attribute) state_fail(s, FILTER_ARGUMENT_ERROR, "map requires a filter argument");
    for (size_t i = 0; args->n == 0 && i < args->n_named; i++)
        if (strcmp(args->names[i], "attribute") != 0 && strcmp(args->names[i], "default") != 0)
            state_fail(s, FILTER_ARGUMENT_ERROR, "Unexpected keyword argument '%s'", args->names[i]);
}

static value filter_map(state *s, value v, const arguments *args) {
    const value *attribute = args->n == 0 ? argument(args, SIZE_MAX, "attribute") : NULL,
                *otherwise = argument(args, SIZE_MAX, "default");
    const char *name = name_of(s, args->n > 0 ? &args->items[0] : NULL);
    const filter *f = args->n > 0 ? filter_find(name) : NULL;
    const list *items = items_if_any(s, v);
    const arguments rest = arguments_after(args, 1);
    value all = value_list(s, LIST_GENERATOR, 0);
    if (items && items->n > 0) check_map(s, args, f, attribute);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        list_add(s, all.as.l,
                 f ? filter_apply(s, f, items->items[i], &rest) : path_of(s, items->items[i], attribute, otherwise));
    }
    return all;
}

/* select, reject, selectattr, rejectattr: items that pass a test, or do not. */
static value choose(state *s, value v, const arguments *args, bool by_attribute, bool wanted) {
    const size_t at = by_attribute;
    const value *attribute = by_attribute ? argument(args, 0, NULL) : NULL;
    const char *name = name_of(s, args->n > at ? &args->items[at] : NULL);
    const test *t = args->n > at ? test_find(name) : NULL;
    const list *items = items_if_any(s, v);
    const arguments rest = arguments_after(args, at + 1);
    value all = value_list(s, LIST_GENERATOR, 0);
    if (by_attribute && !attribute) state_fail(s, FILTER_ARGUMENT_ERROR, "Missing parameter for attribute name");
    else if (args->n > at && !t) state_fail(s, TEMPLATE_RUNTIME_ERROR, "No test named '%s'.", name);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        value tested = path_of(s, items->items[i], attribute, NULL);
        if (t && !arguments_fit(s, &rest, t->name, t->parameters)) break;
        bool holds = t ? t->holds(s, tested, &rest) : value_truth(s, tested);
        if (holds == wanted) list_add(s, all.as.l, items->items[i]);
    }
    return all;
}
static value filter_select(state *s, value v, const arguments *args) { return choose(s, v, args, false, true); }
static value filter_reject(state *s, value v, const arguments *args) { return choose(s, v, args, false, false); }
static value filter_selectattr(state *s, value v, const arguments *args) { return choose(s, v, args, true, true); }
static value filter_rejectattr(state *s, value v, const arguments *args) { return choose(s, v, args, true, false); }

/* For comparisons that ignore case. */
static value folded(state *s, value v, bool case_sensitive) {
    return v.type == VALUE_STRING && !case_sensitive ? value_string(string_case(s, v.as.s, CASE_LOWER)) : v;
}

/* The values of "a,b.c", an attribute each. */
static const list *paths_of(state *s, value item, const string *paths, bool case_sensitive) {
    value all = value_list(s, LIST_LIST, 0);
    for (size_t from = 0, to; from <= paths->n && !s->failed; from = to + 1) {
        const char *comma = memchr(paths->bytes + from, ',', paths->n - from);
        to = comma ? (size_t)(comma - paths->bytes) : paths->n;
        const value path = value_string(string_part(s, paths, from, to));
        list_add(s, all.as.l, folded(s, path_of(s, item, &path, NULL), case_sensitive));
    }
    return s->failed ? NULL : all.as.l;
}

typedef struct sorting {
    const value *attribute, *otherwise;
    bool case_sensitive, reverse;
    bool as_lists; /* keys are lists in Jinja */
} sorting;

/* Backwards before and after: equal items keep their order. */
static value sorted_by(state *s, const list *items, const sorting *by) {
    size_t n = items ? items->n : 0;
    keyed *all = state_alloc(s, (n + 1) * sizeof(*all));
    value out = value_list(s, LIST_LIST, n);
    const value *attribute = by->attribute && by->attribute->type != VALUE_NONE ? by->attribute : NULL;
    bool several = by->as_lists && attribute && attribute->type == VALUE_STRING &&
                   memchr(attribute->as.s->bytes, ',', attribute->as.s->n);
    for (size_t i = 0; i < n && !s->failed; i++) {
        all[i] = (keyed){.item = items->items[i]};
        if (several) all[i].keys = paths_of(s, items->items[i], attribute->as.s, by->case_sensitive);
        else all[i].key = folded(s, path_of(s, items->items[i], attribute, by->otherwise), by->case_sensitive);
    }
    if (s->failed) return out;
    if (by->reverse) keyed_reverse(all, n);
    keyed_sort(s, all, n, by->as_lists);
    if (by->reverse) keyed_reverse(all, n);
    for (size_t i = 0; i < n && !s->failed; i++) list_add(s, out.as.l, all[i].item);
    return out;
}

static value filter_sort(state *s, value v, const arguments *args) {
    sorting by = {.attribute = argument(args, 2, "attribute"), .as_lists = true};
    by.reverse = argument_bool(s, args, 0, "reverse", false);
    by.case_sensitive = argument_bool(s, args, 1, "case_sensitive", false);
    return sorted_by(s, value_iterate(s, v), &by);
}

static value filter_dictsort(state *s, value v, const arguments *args) {
    static const string key = {.bytes = "key", .n = 3};
    const string *part = argument_string(s, args, 1, "by", &key);
    if (!string_is(part, "key") && !string_is(part, "value"))
        state_fail(s, FILTER_ARGUMENT_ERROR, "You can only sort by either \"key\" or \"value\"");
    else if (v.type == VALUE_UNDEFINED) state_fail_undefined(s, v);
    else if (v.type != VALUE_DICT)
        state_fail(s, ATTRIBUTE_ERROR, "'%s' object has no attribute 'items'", value_type_name(v));
    if (s->failed) return v;
    value items = method_call(s, &(method){.self = &v, .name = "items"}, &(arguments){0});
    BASE_ASSERT(s->failed || items.type == VALUE_LIST);
    const value position = value_int(string_is(part, "value"));
    sorting by = {.attribute = &position, .reverse = argument_bool(s, args, 2, "reverse", false)};
    by.case_sensitive = argument_bool(s, args, 0, "case_sensitive", false);
    return s->failed ? v : sorted_by(s, items.as.l, &by);
}

static value filter_items(state *s, value v, const arguments *args) {
    (void)args;
    value all = value_list(s, LIST_GENERATOR, 0);
    if (v.type == VALUE_UNDEFINED) return all;
    if (v.type != VALUE_DICT) {
        state_fail(s, TYPE_ERROR, "Can only get item pairs from a mapping.");
        return v;
    }
    value items = method_call(s, &(method){.self = &v, .name = "items"}, &(arguments){0});
    BASE_ASSERT(s->failed || items.type == VALUE_LIST);
    if (!s->failed) items.as.l->kind = LIST_GENERATOR;
    return items;
}

static value extreme(state *s, value v, const arguments *args, bool greatest) {
    bool case_sensitive = argument_bool(s, args, 0, "case_sensitive", false);
    const value *attribute = argument(args, 1, "attribute");
    const list *items = value_iterate(s, v);
    if (!items || items->n == 0)
        return s->failed ? v : value_hinted(s, "No aggregated item, sequence was empty.", UNDEFINED_ERROR);
    size_t best = 0;
    for (size_t i = 1; i < items->n && !s->failed; i++) {
        int order = value_compare(s, folded(s, path_of(s, items->items[i], attribute, NULL), case_sensitive),
                                  folded(s, path_of(s, items->items[best], attribute, NULL), case_sensitive),
                                  greatest ? ">" : "<");
        if (greatest ? order > 0 : order < 0) best = i;
    }
    return items->items[best];
}
static value filter_max(state *s, value v, const arguments *args) { return extreme(s, v, args, true); }
static value filter_min(state *s, value v, const arguments *args) { return extreme(s, v, args, false); }

static value filter_sum(state *s, value v, const arguments *args) {
    const value *attribute = argument(args, 0, "attribute"), *start = argument(args, 1, "start");
    const list *items = value_iterate(s, v);
    value total = start ? *start : value_int(0);
    if (attribute && attribute->type == VALUE_NONE) attribute = NULL;
    if (total.type == VALUE_STRING) state_fail(s, TYPE_ERROR, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; items && i < items->n && !s->failed; i++)
        total = binary_operate(s, OP_ADD, total, path_of(s, items->items[i], attribute, NULL));
    return total;
}

static value filter_unique(state *s, value v, const arguments *args) {
    bool case_sensitive = argument_bool(s, args, 0, "case_sensitive", false);
    const value *attribute = argument(args, 1, "attribute");
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_GENERATOR, 0), seen = value_dict(s);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        value key = folded(s, path_of(s, items->items[i], attribute, NULL), case_sensitive);
        if (dict_find(s, seen.as.d, key)) continue;
        dict_set(s, seen.as.d, key, value_none);
        list_add(s, all.as.l, items->items[i]);
    }
    return all;
}

static value filter_batch(state *s, value v, const arguments *args) {
    BASE_ASSERT(argument(args, 0, "linecount"));
    const value size = *argument(args, 0, "linecount"), *fill = argument(args, 1, "fill_with");
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_GENERATOR, 0), row = value_list(s, LIST_LIST, 0);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        if (value_equal(s, value_int((int64_t)row.as.l->n), size)) {
            list_add(s, all.as.l, row);
            row = value_list(s, LIST_LIST, 0);
        }
        if (!s->failed) list_add(s, row.as.l, items->items[i]);
    }
    if (s->failed || row.as.l->n == 0) return all;
    bool fills = fill && fill->type != VALUE_NONE;
    while (fills && !s->failed && value_compare(s, value_int((int64_t)row.as.l->n), size, "<") < 0)
        list_add(s, row.as.l, *fill);
    list_add(s, all.as.l, row);
    return all;
}

static value filter_slice(state *s, value v, const arguments *args) {
    int64_t slices = argument_int(s, args, 0, "slices", 1);
    if (slices == 0) state_fail(s, ZERO_DIVISION_ERROR, "integer division or modulo by zero");
    const value *fill = argument(args, 1, "fill_with");
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_GENERATOR, 0);
    if (slices < 1 || !items) return all;
    size_t n = items->n / (size_t)slices, more = items->n % (size_t)slices, at = 0;
    BASE_ASSERT(n * (size_t)slices + more == items->n);
    for (size_t i = 0; i < (size_t)slices && state_step(s, 0); i++) {
        value row = value_list(s, LIST_LIST, 0);
        for (size_t end = at + n + (i < more); at < end && !s->failed; at++) list_add(s, row.as.l, items->items[at]);
        if (fill && fill->type != VALUE_NONE && i >= more && !s->failed) list_add(s, row.as.l, *fill);
        list_add(s, all.as.l, row);
    }
    return all;
}

/* Tuples (grouper, list), by rising grouper; groupers that differ in case only are one, with the case of the first. */
static value filter_groupby(state *s, value v, const arguments *args) {
    sorting by = {.attribute = argument(args, 0, "attribute"), .otherwise = argument(args, 1, "default")};
    by.case_sensitive = argument_bool(s, args, 2, "case_sensitive", false);
    value sorted = sorted_by(s, value_iterate(s, v), &by), all = value_list(s, LIST_LIST, 0), last = {0}, group = {0};
    for (size_t i = 0; !s->failed && i < sorted.as.l->n; i++) {
        value grouper = path_of(s, sorted.as.l->items[i], by.attribute, by.otherwise),
              key = folded(s, grouper, by.case_sensitive);
        if (i == 0 || !value_equal(s, key, last)) {
            value pair = value_list(s, LIST_TUPLE, 2);
            group = value_list(s, LIST_LIST, 0);
            if (s->failed) break;
            pair.as.l->is_group = true;
            list_add(s, pair.as.l, grouper);
            list_add(s, pair.as.l, group);
            list_add(s, all.as.l, pair);
        }
        list_add(s, group.as.l, sorted.as.l->items[i]);
        last = key;
    }
    return all;
}

/* ---- Others ---- */

static value filter_default(state *s, value v, const arguments *args) {
    const value *otherwise = argument(args, 0, "default_value");
    bool use = v.type == VALUE_UNDEFINED || (argument_bool(s, args, 1, "boolean", false) && !value_truth(s, v));
    return !use ? v : otherwise ? *otherwise
                                : value_text(s, "");
}

static value filter_attr(state *s, value v, const arguments *args) {
    const char *name = name_of(s, argument(args, 0, "name"));
    return value_own_attribute(s, v, name);
}

static const filter filters[] = {
    {"abs", "", false, filter_abs},
    {"attr", "name", false, filter_attr},
    {"batch", "linecount [fill_with]", true, filter_batch},
    {"capitalize", "", false, filter_capitalize},
    {"center", "[width]", false, filter_center},
    {"count", "", false, filter_length},
    {"d", "[default_value] [boolean]", false, filter_default},
    {"default", "[default_value] [boolean]", false, filter_default},
    {"dictsort", "[case_sensitive] [by] [reverse]", false, filter_dictsort},
    {"e", "", false, filter_escape},
    {"escape", "", false, filter_escape},
    {"first", "", false, filter_first},
    {"float", "[default]", false, filter_float},
    {"forceescape", "", false, filter_forceescape},
    {"format", "*", false, filter_format},
    {"groupby", "attribute [default] [case_sensitive]", false, filter_groupby},
    {"indent", "[width] [first] [blank]", false, filter_indent},
    {"int", "[default] [base]", false, filter_int},
    {"items", "", true, filter_items},
    {"join", "[d] [attribute]", false, filter_join},
    {"last", "", false, filter_last},
    {"length", "", false, filter_length},
    {"list", "", false, filter_list},
    {"lower", "", false, filter_lower},
    {"map", "*", true, filter_map},
    {"max", "[case_sensitive] [attribute]", false, filter_max},
    {"min", "[case_sensitive] [attribute]", false, filter_min},
    {"reject", "*", true, filter_reject},
    {"rejectattr", "*", true, filter_rejectattr},
    {"replace", "old new [count]", false, filter_replace},
    {"reverse", "", false, filter_reverse},
    {"round", "[precision] [method]", false, filter_round},
    {"safe", "", false, filter_safe},
    {"select", "*", true, filter_select},
    {"selectattr", "*", true, filter_selectattr},
    {"slice", "slices [fill_with]", true, filter_slice},
    {"sort", "[reverse] [case_sensitive] [attribute]", false, filter_sort},
    {"string", "", false, filter_string},
    {"sum", "[attribute] [start]", false, filter_sum},
    {"title", "", false, filter_title},
    {"tojson", "[ensure_ascii] [indent] [separators] [sort_keys]", false, filter_tojson},
    {"trim", "[chars]", false, filter_trim},
    {"truncate", "[length] [killwords] [end] [leeway]", false, filter_truncate},
    {"unique", "[case_sensitive] [attribute]", true, filter_unique},
    {"upper", "", false, filter_upper},
    {"urlencode", "", false, filter_urlencode},
    {"wordcount", "", false, filter_wordcount},
    {NULL, NULL, false, NULL},
};

const filter *filter_find(const char *name) {
    BASE_ASSERT(name);
    for (const filter *f = filters; f->name; f++)
        if (f->name[0] == name[0] && strcmp(f->name, name) == 0) return f;
    return NULL;
}

value filter_apply(state *s, const filter *f, value v, const arguments *args) {
    if (!arguments_fit(s, args, f->name, f->parameters)) return v;
    value out = f->apply(s, v, args);
    if (!s->failed || !f->is_lazy || s->code != RP_ERR_INVALID) return out;
    s->failed = false;
    state_step(s, 8 * STEP_PRINTED); /* the error */
    out = value_list(s, LIST_GENERATOR, 0);
    BASE_ASSERT(s->failed_as < N_EXCEPTIONS);
    size_t n = strlen(s->message);
    char *failure = state_alloc(s, n + 1);
    if (s->failed) return out;
    memcpy(failure, s->message, n + 1);
    out.as.l->failure = failure;
    out.as.l->failed_as = s->failed_as;
    return out;
}
