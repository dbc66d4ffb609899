/* SPDX-License-Identifier: Apache-2.0 */
/* template_filters.c: Jinja's filters, as Jinja2 3.1 has them; tojson is json.dumps, as transformers sets it. One thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/template_internal.h"

/* ---- Texts ---- */

static value filter_string(state *s, value v, const arguments *args) { return (void)args, value_string(value_to_string(s, v)); }

static value change_case(state *s, value v, case_kind kind) { return value_string(string_case(s, value_to_string(s, v), kind)); }
static value filter_lower(state *s, value v, const arguments *args) { return (void)args, change_case(s, v, CASE_LOWER); }
static value filter_upper(state *s, value v, const arguments *args) { return (void)args, change_case(s, v, CASE_UPPER); }
static value filter_capitalize(state *s, value v, const arguments *args) { return (void)args, change_case(s, v, CASE_CAPITAL); }

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
        builder_add_string(s, &b, string_case(s, string_part(s, text, from, at), CASE_CAPITAL));
    }
    return value_string(builder_string(s, &b));
}

static value filter_trim(state *s, value v, const arguments *args) {
    return value_string(string_strip(s, value_to_string(s, v), argument_string(s, args, 0, "chars", NULL), true, true));
}

static value filter_replace(state *s, value v, const arguments *args) {
    const value *old = argument(args, 0, "old"), *with = argument(args, 1, "new");
    if (!old || !with) {
        state_fail(s, "TypeError", "replace: give the old and the new text");
        return v;
    }
    return value_string(string_replace(s, value_to_string(s, v), value_to_string(s, *old), value_to_string(s, *with), argument_int(s, args, 2, "count", -1)));
}

static value filter_safe(state *s, value v, const arguments *args) {
    string *marked = state_alloc(s, sizeof(*marked));
    (void)args;
    if (!marked) return v;
    *marked = *value_to_string(s, v);
    marked->markup = true;
    return value_string(marked);
}

static value filter_escape(state *s, value v, const arguments *args) {
    (void)args;
    return v.type == VALUE_STRING && v.as.s->markup ? v : value_string(string_escaped(s, value_to_string(s, v)));
}

/* Indents all lines but the first, and not blank ones; with `first` and `blank` those, too. */
static value filter_indent(state *s, value v, const arguments *args) {
    const value *width = argument(args, 0, "width");
    bool first = argument_bool(s, args, 1, "first", false), blank = argument_bool(s, args, 2, "blank", false);
    const string *text = value_to_string(s, v);
    builder space = {0}, b = {0};
    if (width && width->type == VALUE_STRING) builder_add_string(s, &space, width->as.s);
    else
        for (int64_t i = argument_int(s, args, 0, "width", 4); i > 0 && !s->failed; i--) builder_add(s, &space, " ", 1, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
    const string *by = builder_string(s, &space);
    if (first) builder_add_string(s, &b, by);
    for (size_t from = 0; !s->failed;) {
        const char *end = memchr(text->bytes + from, '\n', text->n - from);
        size_t to = end ? (size_t)(end - text->bytes) : text->n;
        if (from > 0 && (blank || to > from)) builder_add_string(s, &b, by);
        builder_add_string(s, &b, string_part(s, text, from, end ? to + 1 : to));
        if (!end) break;
        from = to + 1;
    }
    return value_string(builder_string(s, &b));
}

static value filter_format(state *s, value v, const arguments *args) {
    value named = value_dict(s);
    for (size_t i = 0; i < args->n_named && !s->failed; i++) dict_set(s, named.as.d, value_text(s, args->names[i]), args->named[i]);
    return s->failed ? v : string_percent(s, value_to_string(s, v), args->items, args->n, args->n_named > 0 ? named.as.d : NULL);
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
    for (size_t at = 0, n; at < text->n; at += n) {
        uint32_t c = string_at(text, at, &n);
        bool is_word = c >= 0x80 || c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        words += is_word && !inside;
        inside = is_word;
    }
    return value_int(words);
}

static value filter_truncate(state *s, value v, const arguments *args) {
    const string *text = value_to_string(s, v), *end = argument_string(s, args, 2, "end", NULL);
    size_t length = (size_t)argument_int(s, args, 0, "length", 255), leeway = (size_t)argument_int(s, args, 3, "leeway", 5);
    size_t n_end = end ? string_length(end) : 3;
    if (s->failed || string_length(text) <= length + leeway) return value_string(text);
    const string *cut = string_part(s, text, 0, string_offset(text, length > n_end ? length - n_end : 0));
    if (!argument_bool(s, args, 1, "killwords", false)) {
        size_t last = string_find_last(cut, &(string){.bytes = " ", .n = 1});
        if (last != SIZE_MAX) cut = string_part(s, cut, 0, last);
    }
    return value_concat(s, cut, end ? end : value_text(s, "...").as.s);
}

static value filter_urlencode(state *s, value v, const arguments *args) {
    const string *text = value_to_string(s, v);
    builder b = {0};
    char escape[4];
    (void)args;
    for (size_t i = 0; i < text->n && !s->failed; i++) {
        unsigned char c = (unsigned char)text->bytes[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c < 0x80 && c && strchr("_.-~/", c));
        snprintf(escape, sizeof(escape), plain ? "%c" : "%%%02X", c);
        builder_add(s, &b, escape, strlen(escape), TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
    }
    return value_string(builder_string(s, &b));
}

static value filter_tojson(state *s, value v, const arguments *args) {
    builder b = {0};
    const value *separators = argument(args, 2, "separators");
    json_style style = {.item_separator = ", ", .key_separator = ": ", .indent = argument_int(s, args, 1, "indent", -1)};
    if (style.indent >= 0) style.item_separator = ",";
    style.ascii = argument_bool(s, args, 0, "ensure_ascii", false);
    style.sorted = argument_bool(s, args, 3, "sort_keys", false);
    if (separators && separators->type == VALUE_LIST && separators->as.l->n == 2 && separators->as.l->items[0].type == VALUE_STRING &&
        separators->as.l->items[1].type == VALUE_STRING) {
        style.item_separator = string_new(s, separators->as.l->items[0].as.s->bytes, separators->as.l->items[0].as.s->n, TEMPLATE_UNTRUSTED)->bytes;
        style.key_separator = string_new(s, separators->as.l->items[1].as.s->bytes, separators->as.l->items[1].as.s->n, TEMPLATE_UNTRUSTED)->bytes;
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
    else if (v.type == VALUE_BOOL) return value_int(v.as.b);
    else state_fail(s, "TypeError", "bad operand type for abs(): '%s'", value_type_name(v));
    return v;
}

/* The number that a text begins with and ends with, but for white space. */
static bool text_number(state *s, const string *text, double *f, int64_t *i) {
    text = string_strip(s, text, NULL, true, true);
    char copy[64], *end;
    if (text->n == 0 || text->n >= sizeof(copy) || memchr(text->bytes, '\0', text->n)) return false;
    memcpy(copy, text->bytes, text->n);
    copy[text->n] = '\0';
    if (f) *f = strtod(copy, &end);
    else *i = strtoll(copy, &end, 10);
    return *end == '\0' && !strpbrk(copy, "xXpP");
}

static value filter_int(state *s, value v, const arguments *args) {
    const value *otherwise = argument(args, 0, "default");
    value r = otherwise ? *otherwise : value_int(0);
    double f = 0;
    int64_t i = 0;
    if (v.type == VALUE_INT) return v;
    if (v.type == VALUE_BOOL) r = value_int(v.as.b);
    else if (v.type == VALUE_FLOAT && fabs(v.as.f) < 9e18) r = value_int((int64_t)v.as.f);
    else if (v.type == VALUE_STRING && text_number(s, v.as.s, NULL, &i)) r = value_int(i);
    else if (v.type == VALUE_STRING && text_number(s, v.as.s, &f, NULL) && fabs(f) < 9e18) r = value_int((int64_t)f);
    r.untrusted = true;
    return r;
}

static value filter_float(state *s, value v, const arguments *args) {
    const value *otherwise = argument(args, 0, "default");
    value r = otherwise ? *otherwise : value_float(0);
    double f = 0;
    if (v.type == VALUE_FLOAT) return v;
    if (v.type == VALUE_INT || v.type == VALUE_BOOL) r = value_float(v.type == VALUE_INT ? (double)v.as.i : v.as.b);
    else if (v.type == VALUE_STRING && text_number(s, v.as.s, &f, NULL)) r = value_float(f);
    r.untrusted = true;
    return r;
}

/* Halves are rounded to even, as in Python. */
static value filter_round(state *s, value v, const arguments *args) {
    int64_t digits = argument_int(s, args, 0, "precision", 0);
    const string *method_name = argument_string(s, args, 1, "method", NULL);
    double f = v.type == VALUE_FLOAT ? v.as.f : v.type == VALUE_INT ? (double)v.as.i : v.type == VALUE_BOOL ? v.as.b : 0;
    if (!value_is_number(v)) {
        state_fail(s, "TypeError", "type %s doesn't define __round__ method", value_type_name(v));
        return v;
    }
    if (method_name && !string_is(method_name, "common")) {
        double scale = pow(10, (double)digits);
        return value_float((string_is(method_name, "ceil") ? ceil(f * scale) : floor(f * scale)) / scale);
    }
    if (v.type != VALUE_FLOAT && digits >= 0) return v;
    char text[512];
    if (digits >= 0 && digits <= 100 && fabs(f) < 1e100) {
        snprintf(text, sizeof(text), "%.*f", (int)digits, f);
        f = strtod(text, NULL);
    } else f = nearbyint(f / pow(10, (double)-digits)) * pow(10, (double)-digits);
    value r = v.type == VALUE_FLOAT ? value_float(f) : value_int((int64_t)f);
    r.untrusted = v.untrusted;
    return r;
}

/* ---- Lists ---- */

static value filter_length(state *s, value v, const arguments *args) {
    (void)args;
    value n = {0};
    if (v.type == VALUE_STRING) n = value_int((int64_t)string_length(v.as.s));
    else if (v.type == VALUE_LIST && v.as.l->kind != LIST_GENERATOR) n = value_int((int64_t)v.as.l->n);
    else if (v.type == VALUE_DICT) n = value_int((int64_t)v.as.d->n);
    else if (v.type == VALUE_UNDEFINED) n = value_int(0);
    else if (v.type == VALUE_LOOP) n = value_int((int64_t)v.as.loop->items->n);
    else state_fail(s, "TypeError", "object of type '%s' has no len()", value_type_name(v));
    n.untrusted = true;
    return n;
}

static value first_or_last(state *s, value v, bool last) {
    if (last && v.type == VALUE_LIST && v.as.l->kind == LIST_GENERATOR) state_fail(s, "TypeError", "'generator' object is not reversible");
    const list *items = value_iterate(s, v);
    if (!items || items->n == 0) return s->failed ? v : value_hinted(s, last ? "No last item, sequence was empty." : "No first item, sequence was empty.", NULL);
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

static value filter_reverse(state *s, value v, const arguments *args) {
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_GENERATOR, items ? items->n : 0);
    builder b = {0};
    (void)args;
    for (size_t i = items ? items->n : 0; i-- > 0 && !s->failed;) {
        if (v.type == VALUE_STRING) builder_add_string(s, &b, items->items[i].as.s);
        else list_add(s, all.as.l, items->items[i]);
    }
    return v.type == VALUE_STRING ? value_string(builder_string(s, &b)) : all;
}

static value filter_join(state *s, value v, const arguments *args) {
    const value *separator = argument(args, 0, "d"), *attribute = argument(args, 1, "attribute");
    const string *by = separator ? value_to_string(s, *separator) : NULL;
    const list *items = value_iterate(s, v);
    builder b = {0};
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        if (i > 0 && by) builder_add_string(s, &b, by);
        value_write(s, &b, attribute ? value_item(s, items->items[i], *attribute) : items->items[i], false);
    }
    return value_string(builder_string(s, &b));
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
        item = value_item(s, item, digits ? value_int(atoi(part->bytes)) : value_string(part));
        if (item.type == VALUE_UNDEFINED && otherwise && !s->failed) item = *otherwise;
    }
    return item;
}

/* The name of a filter or test, from an argument. */
static const char *name_of(state *s, const value *v) {
    static const char none[] = "";
    if (!v || v->type != VALUE_STRING) return none;
    const string *copy = string_new(s, v->as.s->bytes, v->as.s->n, TEMPLATE_UNTRUSTED);
    return copy->bytes;
}

static arguments arguments_after(const arguments *args, size_t n) {
    arguments rest = *args;
    if (n > args->n) n = args->n;
    rest.items += n;
    rest.n -= n;
    return rest;
}

/* select, map and their like skip everything that is false, None as well. */
static const list *items_if_any(state *s, value v) {
    return value_truth(s, v) ? value_iterate(s, v) : value_iterate(s, (value){0});
}

static value filter_map(state *s, value v, const arguments *args) {
    const value *attribute = args->n == 0 ? argument(args, SIZE_MAX, "attribute") : NULL, *otherwise = argument(args, SIZE_MAX, "default");
    const char *name = name_of(s, args->n > 0 ? &args->items[0] : NULL);
    const filter *f = args->n > 0 ? filter_find(name) : NULL;
    const list *items = items_if_any(s, v);
    const arguments rest = arguments_after(args, 1);
    value all = value_list(s, LIST_GENERATOR, 0);
    if (args->n == 0 && !attribute) state_fail(s, "FilterArgumentError", "map requires a filter argument");
    else if (args->n > 0 && !f) state_fail(s, "TemplateRuntimeError", "No filter named '%s'.", name);
    for (size_t i = 0; items && i < items->n && !s->failed; i++)
        list_add(s, all.as.l, f ? f->apply(s, items->items[i], &rest) : path_of(s, items->items[i], attribute, otherwise));
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
    if (by_attribute && !attribute) state_fail(s, "FilterArgumentError", "Missing parameter for attribute name");
    else if (args->n > at && !t) state_fail(s, "TemplateRuntimeError", "No test named '%s'.", name);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        value tested = path_of(s, items->items[i], attribute, NULL);
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

typedef struct keyed {
    value key, item;
} keyed;

/* A stable merge sort: items[from..to) by key. */
static void sort_keyed(state *s, keyed *items, keyed *spare, size_t from, size_t to, bool reverse) {
    if (to - from < 2 || s->failed) return;
    size_t middle = from + (to - from) / 2, a = from, b = middle;
    sort_keyed(s, items, spare, from, middle, reverse);
    sort_keyed(s, items, spare, middle, to, reverse);
    for (size_t i = from; i < to && !s->failed; i++) {
        bool second = a == middle || (b < to && (reverse ? value_compare(s, items[a].key, items[b].key, "<") < 0 : value_compare(s, items[b].key, items[a].key, "<") < 0));
        spare[i] = second ? items[b++] : items[a++];
    }
    if (!s->failed) memcpy(items + from, spare + from, (to - from) * sizeof(*items));
}

static value sorted_by(state *s, const list *items, const value *attribute, bool case_sensitive, bool reverse) {
    size_t n = items ? items->n : 0;
    keyed *all = state_alloc(s, (n + 1) * sizeof(*all)), *spare = state_alloc(s, (n + 1) * sizeof(*spare));
    value out = value_list(s, LIST_LIST, n);
    for (size_t i = 0; i < n && !s->failed; i++)
        all[i] = (keyed){folded(s, path_of(s, items->items[i], attribute, NULL), case_sensitive), items->items[i]};
    if (!s->failed) sort_keyed(s, all, spare, 0, n, reverse);
    for (size_t i = 0; i < n && !s->failed; i++) list_add(s, out.as.l, all[i].item);
    return out;
}

static value filter_sort(state *s, value v, const arguments *args) {
    bool reverse = argument_bool(s, args, 0, "reverse", false), case_sensitive = argument_bool(s, args, 1, "case_sensitive", false);
    return sorted_by(s, value_iterate(s, v), argument(args, 2, "attribute"), case_sensitive, reverse);
}

static value filter_dictsort(state *s, value v, const arguments *args) {
    static const string key = {.bytes = "key", .n = 3};
    if (v.type != VALUE_DICT) {
        state_fail(s, "AttributeError", "'%s' object has no attribute 'items'", value_type_name(v));
        return v;
    }
    value items = method_call(s, &(method){.self = &v, .name = "items"}, &(arguments){0});
    const value position = value_int(string_is(argument_string(s, args, 1, "by", &key), "value"));
    bool case_sensitive = argument_bool(s, args, 0, "case_sensitive", false), reverse = argument_bool(s, args, 2, "reverse", false);
    return s->failed ? v : sorted_by(s, items.as.l, &position, case_sensitive, reverse);
}

static value filter_items(state *s, value v, const arguments *args) {
    (void)args;
    value all = value_list(s, LIST_GENERATOR, 0);
    if (v.type == VALUE_UNDEFINED) return all;
    if (v.type != VALUE_DICT) {
        state_fail(s, "TypeError", "Can only get item pairs from a mapping.");
        return v;
    }
    value items = method_call(s, &(method){.self = &v, .name = "items"}, &(arguments){0});
    if (!s->failed) items.as.l->kind = LIST_GENERATOR;
    return items;
}

static value extreme(state *s, value v, const arguments *args, bool greatest) {
    bool case_sensitive = argument_bool(s, args, 0, "case_sensitive", false);
    const value *attribute = argument(args, 1, "attribute");
    const list *items = value_iterate(s, v);
    if (!items || items->n == 0) return s->failed ? v : value_hinted(s, "No aggregated item, sequence was empty.", NULL);
    size_t best = 0;
    for (size_t i = 1; i < items->n && !s->failed; i++) {
        int order = value_compare(s, folded(s, path_of(s, items->items[i], attribute, NULL), case_sensitive),
                                  folded(s, path_of(s, items->items[best], attribute, NULL), case_sensitive), greatest ? ">" : "<");
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
    for (size_t i = 0; items && i < items->n && !s->failed; i++) total = binary_operate(s, OP_ADD, total, path_of(s, items->items[i], attribute, NULL));
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
    int64_t size = argument_int(s, args, 0, "linecount", 1);
    const value *fill = argument(args, 1, "fill_with");
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_GENERATOR, 0), row = {0};
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        if (i % (size_t)(size > 0 ? size : 1) == 0) {
            row = value_list(s, LIST_LIST, 0);
            list_add(s, all.as.l, row);
        }
        if (!s->failed) list_add(s, row.as.l, items->items[i]);
    }
    while (!s->failed && fill && row.type == VALUE_LIST && row.as.l->n < (size_t)size) list_add(s, row.as.l, *fill);
    return all;
}

static value filter_slice(state *s, value v, const arguments *args) {
    int64_t slices = argument_int(s, args, 0, "slices", 1);
    const value *fill = argument(args, 1, "fill_with");
    const list *items = value_iterate(s, v);
    value all = value_list(s, LIST_GENERATOR, 0);
    if (slices < 1 || !items) return all;
    size_t n = items->n / (size_t)slices, more = items->n % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices && state_step(s, 0); i++) {
        value row = value_list(s, LIST_LIST, 0);
        for (size_t end = at + n + (i < more); at < end && !s->failed; at++) list_add(s, row.as.l, items->items[at]);
        if (fill && i >= more && more > 0 && !s->failed) list_add(s, row.as.l, *fill);
        list_add(s, all.as.l, row);
    }
    return all;
}

/* Tuples (grouper, list), by rising grouper; their attributes `grouper` and `list` are not supported. */
static value filter_groupby(state *s, value v, const arguments *args) {
    const value *attribute = argument(args, 0, "attribute");
    value sorted = sorted_by(s, value_iterate(s, v), attribute, true, false), all = value_list(s, LIST_LIST, 0), last = {0}, group = {0};
    for (size_t i = 0; !s->failed && i < sorted.as.l->n; i++) {
        value key = path_of(s, sorted.as.l->items[i], attribute, NULL);
        if (i == 0 || !value_equal(s, key, last)) {
            value pair = value_list(s, LIST_TUPLE, 2);
            group = value_list(s, LIST_LIST, 0);
            if (s->failed) break;
            list_add(s, pair.as.l, key);
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
    return !use ? v : otherwise ? *otherwise : value_text(s, "");
}

static value filter_attr(state *s, value v, const arguments *args) {
    const char *name = name_of(s, argument(args, 0, "name"));
    if (v.type == VALUE_DICT) { /* attributes only, no items */
        const value copy = v;
        bool is_method = strcmp(name, "items") == 0 || strcmp(name, "keys") == 0 || strcmp(name, "values") == 0 || strcmp(name, "get") == 0;
        if (!is_method) return value_undefined(s, value_object_name(copy), string_new(s, name, strlen(name), TEMPLATE_UNTRUSTED), false);
    }
    return value_attribute(s, v, name);
}

static const filter filters[] = {
    {"abs", filter_abs}, {"attr", filter_attr}, {"batch", filter_batch}, {"capitalize", filter_capitalize}, {"center", filter_center},
    {"count", filter_length}, {"d", filter_default}, {"default", filter_default}, {"dictsort", filter_dictsort}, {"e", filter_escape},
    {"escape", filter_escape}, {"first", filter_first}, {"float", filter_float}, {"format", filter_format}, {"groupby", filter_groupby},
    {"indent", filter_indent}, {"int", filter_int}, {"items", filter_items}, {"join", filter_join}, {"last", filter_last},
    {"length", filter_length}, {"list", filter_list}, {"lower", filter_lower}, {"map", filter_map}, {"max", filter_max}, {"min", filter_min},
    {"reject", filter_reject}, {"rejectattr", filter_rejectattr}, {"replace", filter_replace}, {"reverse", filter_reverse},
    {"round", filter_round}, {"safe", filter_safe}, {"select", filter_select}, {"selectattr", filter_selectattr}, {"slice", filter_slice},
    {"sort", filter_sort}, {"string", filter_string}, {"sum", filter_sum}, {"title", filter_title}, {"tojson", filter_tojson},
    {"trim", filter_trim}, {"truncate", filter_truncate}, {"unique", filter_unique}, {"upper", filter_upper}, {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount}, {NULL, NULL},
};

const filter *filter_find(const char *name) {
    for (const filter *f = filters; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}
