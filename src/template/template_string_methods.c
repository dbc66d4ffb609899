/* SPDX-License-Identifier: Apache-2.0 */
/* template_string_methods.c: the methods of strings, but format() (template_access.c). Text and errors are Python's.
 * One thread. */
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "template/template_internal.h"

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

const method_entry string_methods[] = {
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
    {NULL, NULL, NULL},
};
