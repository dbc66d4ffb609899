/* SPDX-License-Identifier: Apache-2.0 */
/* template_access.c: attributes, items and slices of values, and the methods of strings, lists and dicts. As in Jinja's
 * sandbox, methods that change a list or dict are refused, and so are names that begin with an underscore. One
 * thread. */
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "template/template_internal.h"

#define MAX_STEP ((int64_t)1 << 30) /* of a slice of a range, in its text */

typedef value (*method_function)(state *s, value self, const arguments *args);

typedef struct method_entry {
    const char *name, *parameters; /* see arguments_fit */
    method_function call;          /* NULL: Python has it, templates may not use it */
} method_entry;

/* ---- Methods of strings ---- */

static value str_strip_sides(state *s, value self, const arguments *args, bool left, bool right) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const value *set = argument(args, 0, "chars");
    if (set && set->type != VALUE_STRING && set->type != VALUE_NONE) {
        state_fail(s, TYPE_ERROR, "%s arg must be None or str", left && right ? "strip" : left ? "lstrip"
                                                                                               : "rstrip");
        return (value){0};
    }
    return value_string(string_strip(s, self.as.s, set && set->type == VALUE_STRING ? set->as.s : NULL, left, right));
}

static value str_strip(state *s, value self, const arguments *args) {
    return str_strip_sides(s, self, args, true, true);
}
static value str_lstrip(state *s, value self, const arguments *args) {
    return str_strip_sides(s, self, args, true, false);
}
static value str_rstrip(state *s, value self, const arguments *args) {
    return str_strip_sides(s, self, args, false, true);
}

static value str_lower(state *s, value self, const arguments *args) {
    return (void)args, value_string(string_case(s, self.as.s, CASE_LOWER));
}
/* Lower case for comparing: ß is ss. */
static value str_casefold(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING);
    static const string sharp = {.bytes = "\xc3\x9f", .n = 2};
    (void)args;
    return value_string(string_replace(s, string_case(s, self.as.s, CASE_LOWER), &sharp,
                                       string_new(s, "ss", 2, TEMPLATE_UNTRUSTED), -1));
}
static value str_upper(state *s, value self, const arguments *args) {
    return (void)args, value_string(string_case(s, self.as.s, CASE_UPPER));
}
static value str_title(state *s, value self, const arguments *args) {
    return (void)args, value_string(string_case(s, self.as.s, CASE_TITLE));
}
static value str_capitalize(state *s, value self, const arguments *args) {
    return (void)args, value_string(string_case(s, self.as.s, CASE_CAPITAL));
}
static value str_swapcase(state *s, value self, const arguments *args) {
    return (void)args, value_string(string_case(s, self.as.s, CASE_SWAP));
}

/* Does the text have `part` at its beginning or end? A tuple: any of them. */
static bool has_affix(state *s, const string *text, value part, bool at_end) {
    const char *name = at_end ? "endswith" : "startswith";
    if (part.type == VALUE_LIST && part.as.l->kind == LIST_TUPLE) {
        for (size_t i = 0; i < part.as.l->n && !s->failed; i++) {
            value one = part.as.l->items[i];
            if (one.type != VALUE_STRING)
                state_fail(s, TYPE_ERROR, "tuple for %s must only contain str, not %s", name, value_type_name(one));
            else if (has_affix(s, text, one, at_end)) return true;
        }
        return false;
    }
    if (part.type != VALUE_STRING) {
        state_fail(s, TYPE_ERROR, "%s first arg must be str or a tuple of str, not %s", name, value_type_name(part));
        return false;
    }
    const string *p = part.as.s;
    return p->n <= text->n && state_step(s, p->n / STEP_COPIED) &&
           memcmp(text->bytes + (at_end ? text->n - p->n : 0), p->bytes, p->n) == 0;
}

/* The part of the text between the arguments start and end, in code points, as slices have them. false: start is after
   the end. */
static bool bounded(state *s, const string *text, const arguments *args, size_t first, size_t *from, size_t *to) {
    BASE_ASSERT(first > 0);
    const value *bounds[2] = {argument(args, first, NULL), argument(args, first + 1, NULL)};
    *from = 0;
    *to = text->n;
    if (!bounds[0] && !bounds[1]) return true;
    int64_t n = (int64_t)string_length(s, text), at[2] = {0, n};
    for (int i = 0; i < 2; i++) {
        if (!bounds[i] || bounds[i]->type == VALUE_NONE) continue;
        if (bounds[i]->type != VALUE_INT && bounds[i]->type != VALUE_BOOL)
            state_fail(s, TYPE_ERROR, "slice indices must be integers or None or have an __index__ method");
        at[i] = bounds[i]->type == VALUE_BOOL ? bounds[i]->as.b : bounds[i]->as.i;
        if (at[i] < 0) at[i] = at[i] < -n ? 0 : at[i] + n;
        if (i == 1 && at[i] > n) at[i] = n;
    }
    if (s->failed || at[0] > at[1]) return false;
    BASE_ASSERT(at[0] >= 0 && at[1] <= n);
    *from = string_offset(s, text, (size_t)at[0]);
    *to = string_offset(s, text, (size_t)at[1]);
    return true;
}

static value str_affix(state *s, value self, const arguments *args, bool at_end) {
    BASE_ASSERT(self.type == VALUE_STRING && args->n >= 1);
    size_t from, to;
    bool within = bounded(s, self.as.s, args, 1, &from, &to),
         has = has_affix(s, within ? string_part(s, self.as.s, from, to) : self.as.s, args->items[0], at_end);
    return value_bool(within && has);
}

static value str_startswith(state *s, value self, const arguments *args) { return str_affix(s, self, args, false); }
static value str_endswith(state *s, value self, const arguments *args) { return str_affix(s, self, args, true); }

static void add_part(state *s, list *l, const string *text, size_t from, size_t to) {
    BASE_ASSERT(to <= text->n);
    list_add(s, l, value_string(string_part(s, text, from, to)));
}

/* split() without a separator: words; the last one has the rest. */
static value split_words(state *s, const string *text, int64_t most) {
    value all = value_list(s, LIST_LIST, 0);
    size_t at = 0, n;
    while (!s->failed) {
        const size_t before = at;
        while (at < text->n && is_python_space(string_at(text, at, &n))) at += n;
        if (at == text->n) break;
        size_t from = at;
        if (most == 0) {
            add_part(s, all.as.l, text, from, text->n);
            break;
        }
        while (at < text->n && !is_python_space(string_at(text, at, &n))) at += n;
        state_step(s, (at - before) / STEP_SCANNED);
        add_part(s, all.as.l, text, from, at);
        if (most > 0) most--;
    }
    return all;
}

static value reversed(state *s, value all) {
    BASE_ASSERT(s->failed || all.type == VALUE_LIST);
    value out = value_list(s, LIST_LIST, s->failed ? 0 : all.as.l->n);
    for (size_t i = s->failed ? 0 : all.as.l->n; i-- > 0 && !s->failed;) list_add(s, out.as.l, all.as.l->items[i]);
    return out;
}

/* The character that ends at `to` > 0. */
static size_t character_before(const string *text, size_t to) {
    BASE_ASSERT(to > 0 && to <= text->n);
    do to--;
    while (to > 0 && ((unsigned char)text->bytes[to] & 0xc0) == 0x80);
    return to;
}

/* rsplit() without a separator: the first one has the rest. */
static value split_words_right(state *s, const string *text, int64_t most) {
    value all = value_list(s, LIST_LIST, 0);
    size_t at = text->n, n;
    while (!s->failed) {
        const size_t before = at;
        while (at > 0 && is_python_space(string_at(text, character_before(text, at), &n)))
            at = character_before(text, at);
        if (at == 0) break;
        size_t to = at;
        if (most == 0) {
            add_part(s, all.as.l, text, 0, to);
            break;
        }
        while (at > 0 && !is_python_space(string_at(text, character_before(text, at), &n)))
            at = character_before(text, at);
        state_step(s, (before - at) / STEP_SCANNED);
        add_part(s, all.as.l, text, at, to);
        if (most > 0) most--;
    }
    return reversed(s, all);
}

static value split_right(state *s, const string *text, const string *by, int64_t most) {
    value all = value_list(s, LIST_LIST, 0);
    size_t to = text->n, at;
    while (most != 0 && !s->failed &&
           (at = string_find_last(s, &(string){.bytes = text->bytes, .n = to}, by)) != SIZE_MAX) {
        add_part(s, all.as.l, text, at + by->n, to);
        to = at;
        if (most > 0) most--;
    }
    if (!s->failed) add_part(s, all.as.l, text, 0, to);
    return reversed(s, all);
}

static value str_split_by(state *s, value self, const arguments *args, bool from_right) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const value *separator = argument(args, 0, "sep");
    const string *text = self.as.s, *by = separator && separator->type == VALUE_STRING ? separator->as.s : NULL;
    int64_t most = argument_int(s, args, 1, "maxsplit", -1);
    if (separator && !by && separator->type != VALUE_NONE)
        state_fail(s, TYPE_ERROR, "must be str or None, not %s", value_type_name(*separator));
    if (by && by->n == 0) state_fail(s, VALUE_ERROR, "empty separator");
    if (s->failed) return (value){0};
    if (!by) return from_right ? split_words_right(s, text, most) : split_words(s, text, most);
    if (from_right) return split_right(s, text, by, most);
    value all = value_list(s, LIST_LIST, 0);
    size_t from = 0, at;
    while (most != 0 && !s->failed && (at = string_find(s, text, by, from)) != SIZE_MAX) {
        add_part(s, all.as.l, text, from, at);
        from = at + by->n;
        if (most > 0) most--;
    }
    if (!s->failed) add_part(s, all.as.l, text, from, text->n);
    return all;
}

static value str_split(state *s, value self, const arguments *args) { return str_split_by(s, self, args, false); }
static value str_rsplit(state *s, value self, const arguments *args) { return str_split_by(s, self, args, true); }

static value str_splitlines(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s;
    bool keeps = argument_bool(s, args, 0, "keepends", false);
    value all = value_list(s, LIST_LIST, 0);
    state_step(s, text->n / STEP_SCANNED);
    for (size_t from = 0, at = 0, n; at < text->n && !s->failed;) {
        uint32_t c = string_at(text, at, &n);
        bool ends = c == '\n' || c == '\r' || c == '\v' || c == '\f' || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                    c == 0x2028 || c == 0x2029;
        size_t end = at;
        at += n;
        if (c == '\r' && at < text->n && text->bytes[at] == '\n') at++;
        if (ends) add_part(s, all.as.l, text, from, keeps ? at : end);
        else if (at >= text->n) add_part(s, all.as.l, text, from, at);
        if (ends) from = at;
    }
    return all;
}

static value str_replace(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING && args->n >= 2);
    for (size_t i = 0; i < 2; i++)
        if (args->items[i].type != VALUE_STRING)
            state_fail(s, TYPE_ERROR, "replace() argument %zu must be str, not %s", i + 1,
                       args->items[i].type == VALUE_NONE ? "None" : value_type_name(args->items[i]));
    int64_t most = argument_int(s, args, 2, NULL, -1);
    if (s->failed) return (value){0};
    const string *with = args->items[1].as.s;
    if (self.as.s->markup && !with->markup) with = string_escaped(s, with);
    const string *replaced = string_replace(s, self.as.s, args->items[0].as.s, with, most);
    return value_string(self.as.s->markup ? string_marked(s, replaced) : replaced);
}

/* Index in code points. */
static int64_t index_of(state *s, const string *text, size_t at) {
    BASE_ASSERT(at == SIZE_MAX || at <= text->n);
    const string before = {.bytes = text->bytes, .n = at};
    return at == SIZE_MAX ? -1 : (int64_t)string_length(s, &before);
}

static value str_find_from(state *s, value self, const arguments *args, bool last, bool must) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s, *part = argument_string(s, args, 0, "", NULL);
    size_t from, to, at = SIZE_MAX;
    if (part && bounded(s, text, args, 1, &from, &to)) {
        const string within = {.bytes = text->bytes, .n = to}, rest = {.bytes = text->bytes + from, .n = to - from};
        at = last ? string_find_last(s, &rest, part) : string_find(s, &within, part, from);
        if (last && at != SIZE_MAX) at += from;
    }
    if (must && at == SIZE_MAX) state_fail(s, VALUE_ERROR, "substring not found");
    value v = value_int(index_of(s, text, at));
    v.untrusted = true;
    return v;
}

static value str_find(state *s, value self, const arguments *args) {
    return str_find_from(s, self, args, false, false);
}
static value str_rfind(state *s, value self, const arguments *args) {
    return str_find_from(s, self, args, true, false);
}
static value str_index(state *s, value self, const arguments *args) {
    return str_find_from(s, self, args, false, true);
}
static value str_rindex(state *s, value self, const arguments *args) {
    return str_find_from(s, self, args, true, true);
}

static value str_count(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s, *part = argument_string(s, args, 0, "", NULL);
    size_t from, to, n = 0;
    if (part && bounded(s, text, args, 1, &from, &to)) {
        const string within = {.bytes = text->bytes, .n = to}, rest = {.bytes = text->bytes + from, .n = to - from};
        if (part->n == 0) n = string_length(s, &rest) + 1;
        else
            for (size_t at = string_find(s, &within, part, from); at != SIZE_MAX;
                 at = string_find(s, &within, part, at + part->n))
                n++;
    }
    value v = value_int((int64_t)n);
    v.untrusted = true;
    return v;
}

static value str_join(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING && args->n >= 1);
    builder b = {0};
    value_type type = (value_type)args->items[0].type;
    bool iterable = type == VALUE_STRING || type == VALUE_LIST || type == VALUE_DICT || type == VALUE_UNDEFINED;
    const list *items = iterable ? value_iterate(s, args->items[0]) : NULL;
    if (!items) state_fail(s, TYPE_ERROR, "can only join an iterable");
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        if (items->items[i].type != VALUE_STRING) {
            state_fail(s, TYPE_ERROR, "sequence item %zu: expected str instance, %s found", i,
                       value_type_name(items->items[i]));
            break;
        }
        if (i > 0) builder_add_string(s, &b, self.as.s);
        builder_add_string(s, &b, items->items[i].as.s);
    }
    return value_string(builder_string(s, &b));
}

static bool is_decimal(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }
static bool is_letter(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_digit_like(uint32_t c) { /* and superscripts and subscripts */
    return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089);
}
static bool is_number_like(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
static bool is_ascii(uint32_t c) { return c < 0x80; }

static value all_are(state *s, const string *text, bool (*holds)(uint32_t c)) {
    size_t at = 0;
    for (size_t n; at < text->n && holds(string_at(text, at, &n));) at += n;
    return value_bool(state_step(s, at / STEP_CLASSED) && at == text->n && at > 0);
}

static value str_isdecimal(state *s, value self, const arguments *args) {
    return (void)args, all_are(s, self.as.s, is_decimal);
}
static value str_isdigit(state *s, value self, const arguments *args) {
    return (void)args, all_are(s, self.as.s, is_digit_like);
}
static value str_isnumeric(state *s, value self, const arguments *args) {
    return (void)args, all_are(s, self.as.s, is_number_like);
}
static value str_isalpha(state *s, value self, const arguments *args) {
    return (void)args, all_are(s, self.as.s, is_letter);
}
static value str_isalnum(state *s, value self, const arguments *args) {
    return (void)args, all_are(s, self.as.s, is_python_alnum);
}
static value str_isspace(state *s, value self, const arguments *args) {
    return (void)args, all_are(s, self.as.s, is_python_space);
}
static value str_isascii(state *s, value self, const arguments *args) {
    return (void)args, value_bool(self.as.s->n == 0 || all_are(s, self.as.s, is_ascii).as.b);
}

static value str_islower(state *s, value self, const arguments *args) {
    return (void)args, value_bool(string_has_case(s, self.as.s, CASE_LOWER));
}
static value str_isupper(state *s, value self, const arguments *args) {
    return (void)args, value_bool(string_has_case(s, self.as.s, CASE_UPPER));
}
static value str_istitle(state *s, value self, const arguments *args) {
    return (void)args, value_bool(string_has_case(s, self.as.s, CASE_TITLE));
}

/* Tabs to the next column that is a multiple of their size. */
static value str_expandtabs(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s;
    int64_t size = BASE_MIN(argument_int(s, args, 0, "tabsize", 8), (int64_t)TEMPLATE_MAX_OUTPUT_BYTES + 1), column = 0;
    builder b = {0};
    for (size_t at = 0, n; at < text->n && !s->failed; at += n) {
        uint32_t c = string_at(text, at, &n);
        if (c != '\t') builder_add_string(s, &b, string_part(s, text, at, at + n));
        for (int64_t end = c == '\t' && size > 0 ? column + size - column % size : column; column < end && !s->failed;
             column++)
            builder_add(s, &b, " ", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
        column = c == '\n' || c == '\r' ? 0 : column + (c != '\t');
    }
    return value_string(builder_string(s, &b));
}

static value str_partition_at(state *s, value self, const arguments *args, bool last) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s, *by = argument_string(s, args, 0, "", NULL);
    if (!by) return (value){0};
    if (by->n == 0) state_fail(s, VALUE_ERROR, "empty separator");
    value all = value_list(s, LIST_TUPLE, 3);
    if (s->failed) return all;
    size_t at = last ? string_find_last(s, text, by) : string_find(s, text, by, 0),
           end = at == SIZE_MAX ? text->n : at + by->n;
    if (at == SIZE_MAX) at = text->n;
    if (last && at == text->n) at = end = 0;
    add_part(s, all.as.l, text, 0, at);
    add_part(s, all.as.l, text, at, end);
    add_part(s, all.as.l, text, end, text->n);
    return all;
}

static value str_partition(state *s, value self, const arguments *args) {
    return str_partition_at(s, self, args, false);
}
static value str_rpartition(state *s, value self, const arguments *args) {
    return str_partition_at(s, self, args, true);
}

static value str_remove_affix(state *s, value self, const arguments *args, bool at_end) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s,
                 *part =
                     argument_string(s, args, 0, at_end ? "removesuffix() argument" : "removeprefix() argument", NULL);
    if (!part) return (value){0};
    if (!has_affix(s, text, value_string(part), at_end)) return self;
    return value_string(at_end ? string_part(s, text, 0, text->n - part->n) : string_part(s, text, part->n, text->n));
}

static value str_removeprefix(state *s, value self, const arguments *args) {
    return str_remove_affix(s, self, args, false);
}
static value str_removesuffix(state *s, value self, const arguments *args) {
    return str_remove_affix(s, self, args, true);
}

static value str_pad(state *s, value self, const arguments *args, int side) {
    BASE_ASSERT(self.type == VALUE_STRING && side >= -1 && side <= 1);
    static const template_run run = {1, TEMPLATE_NO_OFFSET, TEMPLATE_TRUSTED};
    static const string space = {.bytes = " ", .n = 1, .runs = &run, .n_runs = 1};
    int64_t width = argument_int(s, args, 0, "width", 0), n = (int64_t)string_length(s, self.as.s);
    const value *given = argument(args, 1, NULL);
    const string *fill = given && given->type == VALUE_STRING ? given->as.s : &space;
    if (given && given->type != VALUE_STRING)
        state_fail(s, TYPE_ERROR, "The fill character must be a unicode character, not %s", value_type_name(*given));
    if (string_length(s, fill) != 1) state_fail(s, TYPE_ERROR, "The fill character must be exactly one character long");
    if (s->failed || width <= n) return self;
    int64_t left = side < 0 ? 0 : side > 0 ? width - n
                                           : (width - n) / 2 + ((width - n) & width & 1);
    builder b = {0};
    for (int64_t i = 0; i < width - n && !s->failed; i++) {
        if (i == left) builder_add_string(s, &b, self.as.s);
        builder_add_string(s, &b, fill);
    }
    if (left == width - n) builder_add_string(s, &b, self.as.s);
    return value_string(builder_string(s, &b));
}

static value str_ljust(state *s, value self, const arguments *args) { return str_pad(s, self, args, -1); }
static value str_rjust(state *s, value self, const arguments *args) { return str_pad(s, self, args, 1); }
static value str_center(state *s, value self, const arguments *args) { return str_pad(s, self, args, 0); }

static value str_zfill(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_STRING);
    const string *text = self.as.s;
    int64_t n = (int64_t)string_length(s, text), width = argument_int(s, args, 0, "width", 0);
    size_t sign = text->n > 0 && (text->bytes[0] == '-' || text->bytes[0] == '+');
    builder b = {0};
    builder_add_string(s, &b, string_part(s, text, 0, sign));
    for (; n < width && !s->failed; n++) builder_add(s, &b, "0", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
    builder_add_string(s, &b, string_part(s, text, sign, text->n));
    return value_string(builder_string(s, &b));
}

/* ---- "{}".format(x) ---- */

typedef struct fields {
    const arguments *args;
    int64_t next; /* -1: numbers are given */
} fields;

/* The argument of a field's name, and its attributes and items: "0.a[b]". */
static value field_value(state *s, fields *fs, const string *name) {
    BASE_ASSERT(fs->next >= -1);
    size_t n = 0, end, number = 0;
    while (n < name->n && name->bytes[n] != '.' && name->bytes[n] != '[') n++;
    bool digits = n > 0;
    for (size_t i = 0; i < n && digits; i++) {
        digits = name->bytes[i] >= '0' && name->bytes[i] <= '9' && number < 100000;
        number = number * 10 + (size_t)(name->bytes[i] - '0');
    }
    const value *v = NULL;
    if (n == 0 || digits) {
        if (n == 0 && fs->next < 0)
            state_fail(s, VALUE_ERROR, "cannot switch from manual field specification to automatic field numbering");
        if (digits && fs->next > 0)
            state_fail(s, VALUE_ERROR, "cannot switch from manual field specification to automatic field numbering");
        if (n == 0) number = (size_t)fs->next++;
        else fs->next = -1;
        v = number < fs->args->n ? &fs->args->items[number] : NULL;
        if (!v) state_fail(s, INDEX_ERROR, "tuple index out of range");
    } else {
        for (size_t i = 0; i < fs->args->n_named && state_step(s, 0); i++)
            if (strlen(fs->args->names[i]) == n && memcmp(fs->args->names[i], name->bytes, n) == 0)
                v = &fs->args->named[i];
        if (!v) state_fail_key(s, string_part(s, name, 0, n));
    }
    value out = v ? *v : (value){0};
    for (; n < name->n && !s->failed; n = end) {
        bool item = name->bytes[n] == '[';
        for (end = ++n;
             end < name->n && (item ? name->bytes[end] != ']' : name->bytes[end] != '.' && name->bytes[end] != '[');)
            end++;
        const string *part = string_part(s, name, n, end);
        bool index = item && part->n > 0 && part->n < 10;
        for (size_t k = 0; k < part->n && index; k++) index = part->bytes[k] >= '0' && part->bytes[k] <= '9';
        int64_t i = 0;
        for (size_t k = 0; k < part->n && index; k++) i = i * 10 + (part->bytes[k] - '0');
        out = value_item(s, out, index ? value_int(i) : value_string(part));
        if (item && end < name->n) end++;
    }
    return out;
}

/* One field: [name][!conversion][:specification], without the braces. */
static void format_field(state *s, builder *b, fields *fs, const string *field) {
    size_t end = 0, conversion = 0;
    while (end < field->n && field->bytes[end] != '!' && field->bytes[end] != ':') {
        const char *close =
            field->bytes[end] == '[' ? memchr(field->bytes + end, ']', field->n - end) : field->bytes + end + 1;
        end = close ? (size_t)(close - field->bytes) : field->n;
    }
    value v = field_value(s, fs, string_part(s, field, 0, end));
    size_t colon = end;
    if (end + 1 < field->n && field->bytes[end] == '!') {
        conversion = (size_t)field->bytes[end + 1];
        colon = end + 2;
        if (!strchr("rsa", (int)conversion))
            state_fail(s, VALUE_ERROR, "Unknown conversion specifier %c", (int)conversion);
    }
    if (s->failed) return;
    if (conversion) {
        builder text = {0};
        value_write(s, &text, v, conversion != 's');
        v = value_string(conversion == 'a' ? string_ascii(s, builder_string(s, &text)) : builder_string(s, &text));
    }
    format_value(s, b, v,
                 colon < field->n ? string_part(s, field, colon + 1, field->n)
                                  : string_part(s, field, field->n, field->n));
}

static value string_format(state *s, const string *text, const arguments *args) {
    builder b = {0};
    fields fs = {.args = args};
    size_t from = 0;
    state_step(s, text->n / STEP_SCANNED);
    for (size_t at = 0; at < text->n && !s->failed; at++) {
        char c = text->bytes[at];
        if (c != '{' && c != '}') continue;
        bool doubled = at + 1 < text->n && text->bytes[at + 1] == c;
        builder_add_string(s, &b, string_part(s, text, from, doubled ? at + 1 : at));
        if (!doubled) {
            size_t end = at + 1;
            while (end < text->n && text->bytes[end] != '}' && text->bytes[end] != '{') end++;
            if (c == '}' || at + 1 == text->n)
                state_fail(s, VALUE_ERROR, "Single '%c' encountered in format string", c);
            else if (end == text->n) state_fail(s, VALUE_ERROR, "expected '}' before end of string");
            else if (text->bytes[end] == '{')
                state_fail(s, VALUE_ERROR, "fields in format specifications are not supported");
            else format_field(s, &b, &fs, string_part(s, text, at + 1, end));
            at = end;
        } else at++;
        from = at + 1;
    }
    if (from < text->n) builder_add_string(s, &b, string_part(s, text, from, text->n));
    return value_string(builder_string(s, &b));
}

static value str_format(state *s, value self, const arguments *args) { return string_format(s, self.as.s, args); }

/* ---- Methods of lists and dicts ---- */

static value list_count(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_LIST && args->n >= 1);
    int64_t n = 0;
    for (size_t i = 0; i < self.as.l->n && !s->failed; i++) n += value_equal(s, self.as.l->items[i], args->items[0]);
    value counted = value_int(n);
    counted.untrusted = true;
    return counted;
}

static value list_index(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_LIST && args->n >= 1);
    const int64_t n = (int64_t)self.as.l->n;
    int64_t from = argument_int(s, args, 1, NULL, 0), to = argument_int(s, args, 2, NULL, n);
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to += n;
    for (int64_t i = from; i < to && i < n && !s->failed; i++)
        if (value_equal(s, self.as.l->items[i], args->items[0]))
            return (value){.type = VALUE_INT, .untrusted = true, .as.i = i};
    builder b = {0};
    value_write(s, &b, args->items[0], true);
    if (self.as.l->kind == LIST_TUPLE) state_fail(s, VALUE_ERROR, "tuple.index(x): x not in tuple");
    else state_fail(s, VALUE_ERROR, "%.300s is not in list", b.n > 0 ? b.bytes : "");
    return (value){0};
}

static value list_copy(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_LIST);
    (void)args;
    value all = value_list(s, LIST_LIST, self.as.l->n);
    for (size_t i = 0; i < self.as.l->n && !s->failed; i++) list_add(s, all.as.l, self.as.l->items[i]);
    return all;
}

static value dict_view(state *s, const dict *d, list_kind kind) {
    BASE_ASSERT(kind == LIST_ITEMS || kind == LIST_KEYS || kind == LIST_VALUES);
    value all = value_list(s, kind, d->n);
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        const dict_entry *e = &d->entries[i];
        value item = kind == LIST_KEYS ? e->key : e->item;
        if (kind == LIST_ITEMS) {
            item = value_list(s, LIST_TUPLE, 2);
            if (s->failed) break;
            list_add(s, item.as.l, e->key);
            list_add(s, item.as.l, e->item);
        }
        list_add(s, all.as.l, item);
    }
    return all;
}

static value dict_items(state *s, value self, const arguments *args) {
    return (void)args, dict_view(s, self.as.d, LIST_ITEMS);
}
static value dict_keys(state *s, value self, const arguments *args) {
    return (void)args, dict_view(s, self.as.d, LIST_KEYS);
}
static value dict_values(state *s, value self, const arguments *args) {
    return (void)args, dict_view(s, self.as.d, LIST_VALUES);
}

static value dict_get(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_DICT && args->n >= 1);
    const value *found = dict_find(s, self.as.d, args->items[0]), *otherwise = argument(args, 1, "default");
    return found ? *found : otherwise ? *otherwise
                                      : value_none;
}

static value dict_copy(state *s, value self, const arguments *args) {
    BASE_ASSERT(self.type == VALUE_DICT);
    (void)args;
    value all = value_dict(s);
    for (size_t i = 0; i < self.as.d->n && !s->failed; i++)
        dict_set(s, all.as.d, self.as.d->entries[i].key, self.as.d->entries[i].item);
    return all;
}

/* ---- Tables of methods ---- */

static const method_entry str_methods[] = {
    {"strip", "[.chars]", str_strip},
    {"lstrip", "[.chars]", str_lstrip},
    {"rstrip", "[.chars]", str_rstrip},
    {"lower", "", str_lower},
    {"upper", "", str_upper},
    {"title", "", str_title},
    {"capitalize", "", str_capitalize},
    {"swapcase", "", str_swapcase},
    {"casefold", "", str_casefold},
    {"startswith", ".prefix [.start] [.end]", str_startswith},
    {"endswith", ".suffix [.start] [.end]", str_endswith},
    {"split", "[sep] [maxsplit]", str_split},
    {"rsplit", "[sep] [maxsplit]", str_rsplit},
    {"splitlines", "[keepends]", str_splitlines},
    {"replace", ".old .new [.count]", str_replace},
    {"find", ".sub [.start] [.end]", str_find},
    {"rfind", ".sub [.start] [.end]", str_rfind},
    {"index", ".sub [.start] [.end]", str_index},
    {"rindex", ".sub [.start] [.end]", str_rindex},
    {"count", ".sub [.start] [.end]", str_count},
    {"join", ".iterable", str_join},
    {"isdigit", "", str_isdigit},
    {"isdecimal", "", str_isdecimal},
    {"isnumeric", "", str_isnumeric},
    {"isalpha", "", str_isalpha},
    {"isalnum", "", str_isalnum},
    {"isspace", "", str_isspace},
    {"islower", "", str_islower},
    {"isupper", "", str_isupper},
    {"partition", ".sep", str_partition},
    {"rpartition", ".sep", str_rpartition},
    {"removeprefix", ".prefix", str_removeprefix},
    {"removesuffix", ".suffix", str_removesuffix},
    {"ljust", ".width [.fillchar]", str_ljust},
    {"rjust", ".width [.fillchar]", str_rjust},
    {"center", ".width [.fillchar]", str_center},
    {"zfill", ".width", str_zfill},
    {"isascii", "", str_isascii},
    {"istitle", "", str_istitle},
    {"expandtabs", "[tabsize]", str_expandtabs},
    {"format", "*", str_format},
    {NULL, NULL, NULL},
};
static const method_entry list_methods[] = {
    {"count", ".value", list_count},
    {"index", ".value [.start] [.stop]", list_index},
    {"copy", "", list_copy},
    {"append", "*", NULL},
    {"clear", "*", NULL},
    {"extend", "*", NULL},
    {"insert", "*", NULL},
    {"pop", "*", NULL},
    {"remove", "*", NULL},
    {"reverse", "*", NULL},
    {"sort", "*", NULL},
    {NULL, NULL, NULL},
};
static const method_entry tuple_methods[] = {
    {"count", ".value", list_count}, {"index", ".value [.start] [.stop]", list_index}, {NULL, NULL, NULL}};
static const method_entry dict_methods[] = {
    {"items", "", dict_items},
    {"keys", "", dict_keys},
    {"values", "", dict_values},
    {"get", ".key [.default]", dict_get},
    {"copy", "", dict_copy},
    {"clear", "*", NULL},
    {"pop", "*", NULL},
    {"popitem", "*", NULL},
    {"setdefault", "*", NULL},
    {"update", "*", NULL},
    {NULL, NULL, NULL},
};

static const method_entry *methods_of(value v) {
    static const method_entry none[] = {{NULL, NULL, NULL}};
    if (v.type == VALUE_STRING) return str_methods;
    if (v.type == VALUE_DICT) return dict_methods;
    if (v.type != VALUE_LIST || (v.as.l->kind != LIST_LIST && v.as.l->kind != LIST_TUPLE && v.as.l->kind != LIST_RANGE))
        return none;
    return v.as.l->kind == LIST_LIST ? list_methods : tuple_methods;
}

static const method_entry *method_find(value v, const char *name) {
    for (const method_entry *m = methods_of(v); m->name; m++)
        if (m->name[0] == name[0] && strcmp(m->name, name) == 0) return m;
    return NULL;
}

value method_call(state *s, const method *m, const arguments *args) {
    const method_entry *entry = method_find(*m->self, m->name);
    return entry && entry->call && arguments_fit(s, args, m->name, entry->parameters) ? entry->call(s, *m->self, args)
                                                                                      : (value){0};
}

static value method_new(state *s, value object, const char *name) {
    BASE_ASSERT(methods_of(object)->name || object.type == VALUE_LOOP || object.type == VALUE_CYCLER);
    method *m = state_alloc(s, sizeof(*m));
    value *self = m ? state_alloc(s, sizeof(*self)) : NULL;
    if (!self) return (value){0};
    *self = object;
    *m = (method){.self = self, .name = name};
    return (value){.type = VALUE_METHOD, .as.method = m};
}

static value value_unsafe(state *s, value object, const char *name) {
    char *hint = state_alloc(s, strlen(name) + 128);
    if (!hint || !state_step(s, STEP_PRINTED)) return (value){0};
    snprintf(hint, strlen(name) + 128, "access to attribute '%s' of '%s' object is unsafe.", name,
             value_type_name(object));
    return value_hinted(s, hint, SECURITY_ERROR);
}

static value method_bind(state *s, value object, const method_entry *entry) {
    return entry->call ? method_new(s, object, entry->name) : value_unsafe(s, object, entry->name);
}

/* ---- Attributes of loops ---- */

static value loop_neighbour(state *s, const loop *l, bool next) {
    BASE_ASSERT(l->at < l->items->n);
    bool there = next ? l->at + 1 < l->items->n : l->at > 0;
    if (!there) return value_hinted(s, next ? "there is no next item" : "there is no previous item", UNDEFINED_ERROR);
    return l->items->items[next ? l->at + 1 : l->at - 1];
}

static value loop_attribute(state *s, value object, const char *name, bool *found) {
    BASE_ASSERT(object.type == VALUE_LOOP && object.as.loop->at < object.as.loop->items->n);
    const loop *l = object.as.loop;
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    *found = true;
    if (strcmp(name, "index") == 0) return value_int(at + 1);
    if (strcmp(name, "index0") == 0) return value_int(at);
    if (strcmp(name, "revindex") == 0) return value_int(n - at);
    if (strcmp(name, "revindex0") == 0) return value_int(n - at - 1);
    if (strcmp(name, "first") == 0) return value_bool(at == 0);
    if (strcmp(name, "last") == 0) return value_bool(at + 1 == n);
    if (strcmp(name, "length") == 0) return value_int(n);
    if (strcmp(name, "depth") == 0) return value_int(l->depth + 1);
    if (strcmp(name, "depth0") == 0) return value_int(l->depth);
    if (strcmp(name, "previtem") == 0) return loop_neighbour(s, l, false);
    if (strcmp(name, "nextitem") == 0) return loop_neighbour(s, l, true);
    if (strcmp(name, "cycle") == 0 || strcmp(name, "changed") == 0) return method_new(s, object, name);
    *found = false;
    return (value){0};
}

/* ---- Access ---- */

static value attribute_missing(state *s, value object, const char *name) {
    const string text = {.bytes = name, .n = strlen(name)};
    return value_undefined(s, value_object_name(object), &text, false);
}

static value macro_attribute(state *s, const template_node *node, const char *name, bool *found) {
    BASE_ASSERT(node->kind == NODE_MACRO);
    *found = true;
    if (strcmp(name, "name") == 0) return value_text(s, node->name);
    if (strcmp(name, "caller") == 0) return value_bool(node->op & MACRO_USES_CALLER);
    if (strcmp(name, "catch_kwargs") == 0) return value_bool(node->op & MACRO_USES_KWARGS);
    if (strcmp(name, "catch_varargs") == 0) return value_bool(node->op & MACRO_USES_VARARGS);
    *found = strcmp(name, "arguments") == 0;
    value names = *found ? value_list(s, LIST_TUPLE, node->items.n) : (value){0};
    for (uint32_t i = 0; *found && i < node->items.n && !s->failed; i++)
        list_add(s, names.as.l, value_text(s, node->items.items[i]->name));
    return names;
}

/* Names that all objects of Python have, and the sandbox refuses. */
static bool is_internal(const char *name) {
    static const char *const names[] = {"__class__",
                                        "__doc__",
                                        "__init__",
                                        "__eq__",
                                        "__ne__",
                                        "__lt__",
                                        "__le__",
                                        "__gt__",
                                        "__ge__",
                                        "__hash__",
                                        "__str__",
                                        "__repr__",
                                        "__dir__",
                                        "__format__",
                                        "__getattribute__",
                                        "__setattr__",
                                        "__delattr__",
                                        "__new__",
                                        "__reduce__",
                                        "__reduce_ex__",
                                        "__sizeof__",
                                        "__subclasshook__",
                                        "__init_subclass__",
                                        NULL};
    static const char *const containers[] = {"__len__", "__iter__", "__getitem__", "__contains__", NULL};
    if (name[0] != '_') return false;
    for (size_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return true;
    for (size_t i = 0; containers[i]; i++)
        if (strcmp(containers[i], name) == 0) return true;
    return false;
}

/* An attribute, before the object's items: a method or a property. */
static value own_attribute(state *s, value object, const char *name, bool *found) {
    const method_entry *entry = method_find(object, name);
    *found = false;
    if (object.type == VALUE_LOOP) return loop_attribute(s, object, name, found);
    if (object.type == VALUE_NAMESPACE) {
        const value *v = dict_find_text(s, object.as.d, name);
        *found = v != NULL;
        return v ? *v : (value){0};
    }
    if (object.type == VALUE_MACRO) {
        value v = macro_attribute(s, object.as.m->node, name, found);
        if (*found) return v;
    }
    if (object.type == VALUE_CYCLER &&
        (strcmp(name, "current") == 0 || strcmp(name, "next") == 0 || strcmp(name, "reset") == 0)) {
        *found = true;
        return strcmp(name, "current") == 0 ? object.as.cycler->items[object.as.cycler->at]
                                            : method_new(s, object, name);
    }
    if (object.type == VALUE_LIST && object.as.l->is_group &&
        (strcmp(name, "grouper") == 0 || strcmp(name, "list") == 0)) {
        *found = true;
        return object.as.l->items[strcmp(name, "list") == 0];
    }
    *found = entry != NULL || is_internal(name);
    if (entry) return method_bind(s, object, entry);
    return *found ? value_unsafe(s, object, name) : (value){0};
}

value value_own_attribute(state *s, value object, const char *name) {
    bool found = false;
    if (object.type == VALUE_UNDEFINED) state_fail_undefined(s, object);
    value v = s->failed ? (value){0} : own_attribute(s, object, name, &found);
    return found || s->failed ? v : attribute_missing(s, object, name);
}

value value_attribute(state *s, value object, const char *name) {
    bool found;
    if (object.type == VALUE_UNDEFINED) {
        state_fail_undefined(s, object);
        return (value){0};
    }
    value v = own_attribute(s, object, name, &found);
    if (found || s->failed) return v;
    const value *item = object.type == VALUE_DICT ? dict_find_text(s, object.as.d, name) : NULL;
    return item ? *item : attribute_missing(s, object, name);
}

static const value *sequence_item(value object, value key) {
    BASE_ASSERT(object.type == VALUE_LIST);
    const list *l = object.as.l;
    bool indexed = l->kind == LIST_LIST || l->kind == LIST_TUPLE || l->kind == LIST_RANGE;
    if (!indexed || (key.type != VALUE_INT && key.type != VALUE_BOOL)) return NULL;
    int64_t at = key.type == VALUE_INT ? key.as.i : key.as.b;
    if (at < 0) at += (int64_t)l->n;
    return at >= 0 && at < (int64_t)l->n ? &l->items[at] : NULL;
}

static value string_item(state *s, const string *text, int64_t at, bool *found) {
    int64_t n = (int64_t)string_length(s, text);
    if (at < 0) at += n;
    *found = at >= 0 && at < n;
    if (!*found) return (value){0};
    size_t from = string_offset(s, text, (size_t)at), length;
    if (s->failed) return (value){0};
    string_at(text, from, &length);
    return value_string(string_part(s, text, from, from + length));
}

value value_item(state *s, value object, value key) {
    bool found = false;
    if (object.type == VALUE_UNDEFINED) {
        state_fail_undefined(s, object);
        return (value){0};
    }
    const value *item = object.type == VALUE_DICT && value_is_hashable(s, key) ? dict_find(s, object.as.d, key)
                        : object.type == VALUE_LIST                            ? sequence_item(object, key)
                                                                               : NULL;
    if (item || s->failed) return item ? *item : (value){0};
    if (object.type == VALUE_STRING && (key.type == VALUE_INT || key.type == VALUE_BOOL)) {
        value c = string_item(s, object.as.s, key.type == VALUE_INT ? key.as.i : key.as.b, &found);
        if (found) return c;
    }
    if (key.type == VALUE_STRING && !memchr(key.as.s->bytes, '\0', key.as.s->n)) {
        char *name = state_alloc(s, key.as.s->n + 1);
        if (!name) return (value){0};
        memcpy(name, key.as.s->bytes, key.as.s->n);
        value v = own_attribute(s, object, name, &found);
        return found || s->failed ? v : attribute_missing(s, object, name);
    }
    builder b = {0};
    value_write(s, &b, key, true);
    return value_undefined(s, value_object_name(object), builder_string(s, &b), true);
}

/* A bound of a slice; `otherwise` if it is not given. */
static int64_t slice_bound(state *s, const value *bound, int64_t n, int64_t otherwise, bool backwards) {
    BASE_ASSERT(n >= 0);
    if (!bound || bound->type == VALUE_NONE) return otherwise;
    if (bound->type != VALUE_INT && bound->type != VALUE_BOOL) {
        state_fail(s, TYPE_ERROR, "slice indices must be integers or None or have an __index__ method");
        return 0;
    }
    int64_t at = bound->type == VALUE_INT ? bound->as.i : bound->as.b;
    if (at < 0) at = at < -n ? -1 : at + n;
    if (at < 0) return backwards ? -1 : 0;
    return at > (backwards ? n - 1 : n) ? (backwards ? n - 1 : n) : at;
}

static int64_t step_of(state *s, const value *step) {
    if (!step || step->type == VALUE_NONE) return 1;
    if (step->type == VALUE_INT || step->type == VALUE_BOOL) return step->type == VALUE_INT ? step->as.i : step->as.b;
    state_fail(s, TYPE_ERROR, "slice indices must be integers or None or have an __index__ method");
    return 1;
}

value value_slice(state *s, value object, const value *start, const value *stop, const value *step) {
    bool is_list = object.type == VALUE_LIST && object.as.l->kind != LIST_GENERATOR && object.as.l->kind < LIST_ITEMS;
    if (object.type == VALUE_UNDEFINED) state_fail_undefined(s, object);
    else if (object.type == VALUE_DICT) state_fail(s, TYPE_ERROR, "unhashable type: 'slice'");
    else if (object.type != VALUE_STRING && !is_list && !(object.type == VALUE_LIST && object.as.l->kind == LIST_RANGE))
        state_fail(s, TYPE_ERROR, "'%s' object is not subscriptable", value_type_name(object));
    int64_t by = s->failed ? 1 : step_of(s, step);
    if (by == 0) state_fail(s, VALUE_ERROR, "slice step cannot be zero");
    if (s->failed) return (value){0};
    const bool is_string = object.type == VALUE_STRING, back = by < 0;
    int64_t n = is_string ? (int64_t)string_length(s, object.as.s) : (int64_t)object.as.l->n;
    int64_t from = slice_bound(s, start, n, back ? n - 1 : 0, back), to = slice_bound(s, stop, n, back ? -1 : n, back);
    if (s->failed) return (value){0};
    BASE_ASSERT(from >= -1 && from <= n && to >= -1 && to <= n);
    if (is_string && by == 1) {
        size_t a = string_offset(s, object.as.s, (size_t)from),
               b = to <= from ? a : string_offset(s, object.as.s, (size_t)to);
        return !s->failed ? value_string(string_part(s, object.as.s, a, b)) : (value){0};
    }
    const list *items = is_string ? value_iterate(s, object) : object.as.l;
    value all = value_list(s, is_string ? LIST_LIST : object.as.l->kind, 0);
    builder b = {0};
    if (!is_string && object.as.l->kind == LIST_RANGE && !s->failed) {
        all.as.l->start = object.as.l->start + from * object.as.l->step;
        all.as.l->stop = object.as.l->start + to * object.as.l->step;
        all.as.l->step = object.as.l->step * (by > MAX_STEP ? MAX_STEP : by < -MAX_STEP ? -MAX_STEP
                                                                                        : by);
    }
    for (int64_t i = from; !s->failed && (back ? i > to : i < to);) {
        if (is_string) builder_add_string(s, &b, items->items[i].as.s);
        else list_add(s, all.as.l, items->items[i]);
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    return is_string ? value_string(builder_string(s, &b)) : all;
}
