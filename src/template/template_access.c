/* SPDX-License-Identifier: Apache-2.0 */
/* template_access.c: attributes, items and slices of values, and the methods of strings, lists and dicts. As in Jinja's
 * sandbox, methods that change a list or dict are refused, and so are names that begin with an underscore. One thread. */
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "template/template_internal.h"

typedef value (*method_function)(state *s, value self, const arguments *args);

typedef struct method_entry {
    const char *name;
    method_function call; /* NULL: Python has it, templates may not use it */
} method_entry;

static value wrong_arguments(state *s, const char *name) {
    state_fail(s, "TypeError", "%s() got wrong arguments", name);
    return (value){0};
}

/* ---- Methods of strings ---- */

static value str_strip_sides(state *s, value self, const arguments *args, bool left, bool right) {
    const value *set = argument(args, 0, "chars");
    if (set && set->type != VALUE_STRING && set->type != VALUE_NONE) {
        state_fail(s, "TypeError", "%s arg must be None or str", left && right ? "strip" : left ? "lstrip" : "rstrip");
        return (value){0};
    }
    return value_string(string_strip(s, self.as.s, set && set->type == VALUE_STRING ? set->as.s : NULL, left, right));
}

static value str_strip(state *s, value self, const arguments *args) { return str_strip_sides(s, self, args, true, true); }
static value str_lstrip(state *s, value self, const arguments *args) { return str_strip_sides(s, self, args, true, false); }
static value str_rstrip(state *s, value self, const arguments *args) { return str_strip_sides(s, self, args, false, true); }

static value str_lower(state *s, value self, const arguments *args) { return (void)args, value_string(string_case(s, self.as.s, CASE_LOWER)); }
static value str_upper(state *s, value self, const arguments *args) { return (void)args, value_string(string_case(s, self.as.s, CASE_UPPER)); }
static value str_title(state *s, value self, const arguments *args) { return (void)args, value_string(string_case(s, self.as.s, CASE_TITLE)); }
static value str_capitalize(state *s, value self, const arguments *args) { return (void)args, value_string(string_case(s, self.as.s, CASE_CAPITAL)); }
static value str_swapcase(state *s, value self, const arguments *args) { return (void)args, value_string(string_case(s, self.as.s, CASE_SWAP)); }

/* Does the text have `part` at its beginning or end? A tuple: any of them. */
static bool has_affix(state *s, const string *text, value part, bool at_end) {
    if (part.type == VALUE_LIST && part.as.l->kind == LIST_TUPLE) {
        for (size_t i = 0; i < part.as.l->n && !s->failed; i++)
            if (has_affix(s, text, part.as.l->items[i], at_end)) return true;
        return false;
    }
    if (part.type != VALUE_STRING) {
        state_fail(s, "TypeError", "%s first arg must be str or a tuple of str, not %s", at_end ? "endswith" : "startswith", value_type_name(part));
        return false;
    }
    const string *p = part.as.s;
    return p->n <= text->n && memcmp(text->bytes + (at_end ? text->n - p->n : 0), p->bytes, p->n) == 0;
}

static value str_affix(state *s, value self, const arguments *args, bool at_end) {
    if (args->n != 1) return wrong_arguments(s, at_end ? "endswith" : "startswith");
    return value_bool(has_affix(s, self.as.s, args->items[0], at_end));
}

static value str_startswith(state *s, value self, const arguments *args) { return str_affix(s, self, args, false); }
static value str_endswith(state *s, value self, const arguments *args) { return str_affix(s, self, args, true); }

static void add_part(state *s, list *l, const string *text, size_t from, size_t to) { list_add(s, l, value_string(string_part(s, text, from, to))); }

/* split() without a separator: words; the last one has the rest. */
static value split_words(state *s, const string *text, int64_t most) {
    value all = value_list(s, LIST_LIST, 0);
    size_t at = 0, n;
    while (!s->failed) {
        while (at < text->n && is_python_space(string_at(text, at, &n))) at += n;
        if (at == text->n) break;
        size_t from = at;
        if (most == 0) {
            list_add(s, all.as.l, value_string(string_strip(s, string_part(s, text, from, text->n), NULL, false, true)));
            break;
        }
        while (at < text->n && !is_python_space(string_at(text, at, &n))) at += n;
        add_part(s, all.as.l, text, from, at);
        if (most > 0) most--;
    }
    return all;
}

static value split_words_right(state *s, const string *text, int64_t most) {
    value all = split_words(s, text, -1);
    if (s->failed || most < 0 || all.as.l->n <= (size_t)most) return all;
    size_t n_last = (size_t)most, n_first = all.as.l->n - n_last;
    const string *end = all.as.l->items[n_first - 1].as.s, *begin = all.as.l->items[0].as.s;
    value out = value_list(s, LIST_LIST, n_last + 1);
    add_part(s, out.as.l, text, (size_t)(begin->bytes - text->bytes), (size_t)(end->bytes - text->bytes) + end->n);
    for (size_t i = n_first; i < all.as.l->n; i++) list_add(s, out.as.l, all.as.l->items[i]);
    return out;
}

static value str_split_by(state *s, value self, const arguments *args, bool from_right) {
    const value *separator = argument(args, 0, "sep");
    const string *text = self.as.s, *by = separator && separator->type == VALUE_STRING ? separator->as.s : NULL;
    int64_t most = argument_int(s, args, 1, "maxsplit", -1);
    if (separator && !by && separator->type != VALUE_NONE) state_fail(s, "TypeError", "must be str or None, not %s", value_type_name(*separator));
    if (by && by->n == 0) state_fail(s, "ValueError", "empty separator");
    if (s->failed) return (value){0};
    if (!by) return from_right ? split_words_right(s, text, most) : split_words(s, text, most);
    value all = value_list(s, LIST_LIST, 0);
    if (s->failed) return all;
    size_t total = 0, from = 0, at;
    for (at = string_find(text, by, 0); at != SIZE_MAX; at = string_find(text, by, at + by->n)) total++;
    size_t skipped = from_right && most >= 0 && total > (size_t)most ? total - (size_t)most : 0, n = 0;
    for (at = string_find(text, by, 0); at != SIZE_MAX && !s->failed; at = string_find(text, by, at + by->n)) {
        if (n++ < skipped) continue;
        if (!from_right && most >= 0 && n > (size_t)most) break;
        add_part(s, all.as.l, text, from, at);
        from = at + by->n;
    }
    add_part(s, all.as.l, text, from, text->n);
    return all;
}

static value str_split(state *s, value self, const arguments *args) { return str_split_by(s, self, args, false); }
static value str_rsplit(state *s, value self, const arguments *args) { return str_split_by(s, self, args, true); }

static value str_splitlines(state *s, value self, const arguments *args) {
    const string *text = self.as.s;
    bool keeps = argument_bool(s, args, 0, "keepends", false);
    value all = value_list(s, LIST_LIST, 0);
    for (size_t from = 0, at = 0, n; at < text->n && !s->failed;) {
        uint32_t c = string_at(text, at, &n);
        bool ends = c == '\n' || c == '\r' || c == '\v' || c == '\f' || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
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
    const string *old = argument_string(s, args, 0, "old", NULL), *with = argument_string(s, args, 1, "new", NULL);
    if (!old || !with) return s->failed ? (value){0} : wrong_arguments(s, "replace");
    return value_string(string_replace(s, self.as.s, old, with, argument_int(s, args, 2, "count", -1)));
}

/* Index in code points. */
static int64_t index_of(const string *text, size_t at) {
    const string before = {.bytes = text->bytes, .n = at};
    return at == SIZE_MAX ? -1 : (int64_t)string_length(&before);
}

static value str_find_from(state *s, value self, const arguments *args, const char *name, bool last, bool must) {
    const string *part = argument_string(s, args, 0, "sub", NULL);
    if (!part) return s->failed ? (value){0} : wrong_arguments(s, name);
    int64_t at = index_of(self.as.s, last ? string_find_last(self.as.s, part) : string_find(self.as.s, part, 0));
    if (must && at < 0) state_fail(s, "ValueError", "substring not found");
    value v = value_int(at);
    v.untrusted = true;
    return v;
}

static value str_find(state *s, value self, const arguments *args) { return str_find_from(s, self, args, "find", false, false); }
static value str_rfind(state *s, value self, const arguments *args) { return str_find_from(s, self, args, "rfind", true, false); }
static value str_index(state *s, value self, const arguments *args) { return str_find_from(s, self, args, "index", false, true); }
static value str_rindex(state *s, value self, const arguments *args) { return str_find_from(s, self, args, "rindex", true, true); }

static value str_count(state *s, value self, const arguments *args) {
    const string *part = argument_string(s, args, 0, "sub", NULL);
    int64_t n = 0;
    if (!part) return s->failed ? (value){0} : wrong_arguments(s, "count");
    if (part->n == 0) n = (int64_t)string_length(self.as.s) + 1;
    else
        for (size_t at = string_find(self.as.s, part, 0); at != SIZE_MAX; at = string_find(self.as.s, part, at + part->n)) n++;
    value v = value_int(n);
    v.untrusted = true;
    return v;
}

static value str_join(state *s, value self, const arguments *args) {
    builder b = {0};
    const list *items = args->n == 1 ? value_iterate(s, args->items[0]) : NULL;
    if (!items) return s->failed ? (value){0} : wrong_arguments(s, "join");
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        if (items->items[i].type != VALUE_STRING) {
            state_fail(s, "TypeError", "sequence item %zu: expected str instance, %s found", i, value_type_name(items->items[i]));
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
static bool is_letter_or_digit(uint32_t c) { return is_letter(c) || is_decimal(c); }

static value all_are(const string *text, bool (*holds)(uint32_t c)) {
    for (size_t at = 0, n; at < text->n; at += n)
        if (!holds(string_at(text, at, &n))) return value_bool(false);
    return value_bool(text->n > 0);
}

static value str_isdigit(state *s, value self, const arguments *args) { return (void)s, (void)args, all_are(self.as.s, is_decimal); }
static value str_isalpha(state *s, value self, const arguments *args) { return (void)s, (void)args, all_are(self.as.s, is_letter); }
static value str_isalnum(state *s, value self, const arguments *args) { return (void)s, (void)args, all_are(self.as.s, is_letter_or_digit); }
static value str_isspace(state *s, value self, const arguments *args) { return (void)s, (void)args, all_are(self.as.s, is_python_space); }

/* There are letters with case, and all of them have this one. */
static value str_has_case(state *s, value self, case_kind kind) {
    bool changes = !string_equal(self.as.s, string_case(s, self.as.s, kind)), other = !string_equal(self.as.s, string_case(s, self.as.s, kind == CASE_UPPER ? CASE_LOWER : CASE_UPPER));
    return value_bool(!changes && other);
}

static value str_islower(state *s, value self, const arguments *args) { return (void)args, str_has_case(s, self, CASE_LOWER); }
static value str_isupper(state *s, value self, const arguments *args) { return (void)args, str_has_case(s, self, CASE_UPPER); }

static value str_partition_at(state *s, value self, const arguments *args, bool last) {
    const string *text = self.as.s, *by = argument_string(s, args, 0, "sep", NULL);
    if (!by) return s->failed ? (value){0} : wrong_arguments(s, "partition");
    if (by->n == 0) state_fail(s, "ValueError", "empty separator");
    value all = value_list(s, LIST_TUPLE, 3);
    if (s->failed) return all;
    size_t at = last ? string_find_last(text, by) : string_find(text, by, 0), end = at == SIZE_MAX ? text->n : at + by->n;
    if (at == SIZE_MAX) at = text->n;
    if (last && at == text->n) at = end = 0;
    add_part(s, all.as.l, text, 0, at);
    add_part(s, all.as.l, text, at, end);
    add_part(s, all.as.l, text, end, text->n);
    return all;
}

static value str_partition(state *s, value self, const arguments *args) { return str_partition_at(s, self, args, false); }
static value str_rpartition(state *s, value self, const arguments *args) { return str_partition_at(s, self, args, true); }

static value str_remove_affix(state *s, value self, const arguments *args, bool at_end) {
    const string *text = self.as.s, *part = argument_string(s, args, 0, "prefix", NULL);
    if (!part) return s->failed ? (value){0} : wrong_arguments(s, at_end ? "removesuffix" : "removeprefix");
    if (!has_affix(s, text, value_string(part), at_end)) return self;
    return value_string(at_end ? string_part(s, text, 0, text->n - part->n) : string_part(s, text, part->n, text->n));
}

static value str_removeprefix(state *s, value self, const arguments *args) { return str_remove_affix(s, self, args, false); }
static value str_removesuffix(state *s, value self, const arguments *args) { return str_remove_affix(s, self, args, true); }

static value str_pad(state *s, value self, const arguments *args, int side) {
    static const template_run run = {1, TEMPLATE_NO_OFFSET, TEMPLATE_TRUSTED};
    static const string space = {.bytes = " ", .n = 1, .runs = &run, .n_runs = 1};
    int64_t width = argument_int(s, args, 0, "width", 0), n = (int64_t)string_length(self.as.s);
    const string *fill = argument_string(s, args, 1, "fillchar", &space);
    if (s->failed || width <= n) return self;
    int64_t left = side < 0 ? 0 : side > 0 ? width - n : (width - n) / 2 + ((width - n) & width & 1);
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
    const string *text = self.as.s;
    int64_t n = (int64_t)string_length(text), width = argument_int(s, args, 0, "width", 0);
    size_t sign = text->n > 0 && (text->bytes[0] == '-' || text->bytes[0] == '+');
    builder b = {0};
    builder_add_string(s, &b, string_part(s, text, 0, sign));
    for (; n < width && !s->failed; n++) builder_add(s, &b, "0", 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
    builder_add_string(s, &b, string_part(s, text, sign, text->n));
    return value_string(builder_string(s, &b));
}

/* "{} {0} {name}" without format specifications. */
static value str_format(state *s, value self, const arguments *args) {
    const string *text = self.as.s;
    builder b = {0};
    size_t next = 0, from = 0;
    for (size_t at = 0; at < text->n && !s->failed; at++) {
        char c = text->bytes[at];
        if (c != '{' && c != '}') continue;
        builder_add_string(s, &b, string_part(s, text, from, at));
        if (at + 1 < text->n && text->bytes[at + 1] == c) {
            from = ++at;
            continue;
        }
        size_t end = at + 1, number = 0;
        const value *v = NULL;
        while (end < text->n && text->bytes[end] != '}') end++;
        if (c == '}' || end == text->n) state_fail(s, "ValueError", c == '}' ? "Single '}' encountered in format string" : "Single '{' encountered in format string");
        const string *name = string_part(s, text, at + 1, end);
        bool is_number = name->n > 0;
        for (size_t i = 0; i < name->n && is_number; i++) {
            is_number = name->bytes[i] >= '0' && name->bytes[i] <= '9' && number < 1000;
            number = number * 10 + (size_t)(name->bytes[i] - '0');
        }
        if (name->n == 0) number = next++;
        if (name->n == 0 || is_number) v = number < args->n ? &args->items[number] : NULL;
        for (size_t i = 0; i < args->n_named && !v; i++)
            if (string_is(name, args->names[i])) v = &args->named[i];
        if (!v) state_fail(s, "IndexError", "Replacement index %zu out of range for positional args tuple", number);
        else value_write(s, &b, *v, false);
        from = at = end;
        from++;
    }
    builder_add_string(s, &b, string_part(s, text, from < text->n ? from : text->n, text->n));
    return value_string(builder_string(s, &b));
}

/* ---- Methods of lists and dicts ---- */

static value list_count(state *s, value self, const arguments *args) {
    int64_t n = 0;
    if (args->n != 1) return wrong_arguments(s, "count");
    for (size_t i = 0; i < self.as.l->n && !s->failed; i++) n += value_equal(s, self.as.l->items[i], args->items[0]);
    return value_int(n);
}

static value list_index(state *s, value self, const arguments *args) {
    if (args->n < 1) return wrong_arguments(s, "index");
    for (size_t i = 0; i < self.as.l->n && !s->failed; i++)
        if (value_equal(s, self.as.l->items[i], args->items[0])) return value_int((int64_t)i);
    state_fail(s, "ValueError", "value is not in list");
    return (value){0};
}

static value list_copy(state *s, value self, const arguments *args) {
    (void)args;
    value all = value_list(s, LIST_LIST, self.as.l->n);
    for (size_t i = 0; i < self.as.l->n && !s->failed; i++) list_add(s, all.as.l, self.as.l->items[i]);
    return all;
}

static value dict_view(state *s, const dict *d, list_kind kind) {
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

static value dict_items(state *s, value self, const arguments *args) { return (void)args, dict_view(s, self.as.d, LIST_ITEMS); }
static value dict_keys(state *s, value self, const arguments *args) { return (void)args, dict_view(s, self.as.d, LIST_KEYS); }
static value dict_values(state *s, value self, const arguments *args) { return (void)args, dict_view(s, self.as.d, LIST_VALUES); }

static value dict_get(state *s, value self, const arguments *args) {
    if (args->n < 1) return wrong_arguments(s, "get");
    const value *found = dict_find(s, self.as.d, args->items[0]), *otherwise = argument(args, 1, "default");
    return found ? *found : otherwise ? *otherwise : value_none;
}

static value dict_copy(state *s, value self, const arguments *args) {
    (void)args;
    value all = value_dict(s);
    for (size_t i = 0; i < self.as.d->n && !s->failed; i++) dict_set(s, all.as.d, self.as.d->entries[i].key, self.as.d->entries[i].item);
    return all;
}

/* ---- Tables of methods ---- */

static const method_entry str_methods[] = {
    {"strip", str_strip}, {"lstrip", str_lstrip}, {"rstrip", str_rstrip}, {"lower", str_lower}, {"upper", str_upper}, {"title", str_title},
    {"capitalize", str_capitalize}, {"swapcase", str_swapcase}, {"casefold", str_lower}, {"startswith", str_startswith}, {"endswith", str_endswith},
    {"split", str_split}, {"rsplit", str_rsplit}, {"splitlines", str_splitlines}, {"replace", str_replace}, {"find", str_find}, {"rfind", str_rfind},
    {"index", str_index}, {"rindex", str_rindex}, {"count", str_count}, {"join", str_join}, {"isdigit", str_isdigit}, {"isdecimal", str_isdigit},
    {"isnumeric", str_isdigit}, {"isalpha", str_isalpha}, {"isalnum", str_isalnum}, {"isspace", str_isspace}, {"islower", str_islower},
    {"isupper", str_isupper}, {"partition", str_partition}, {"rpartition", str_rpartition}, {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix}, {"ljust", str_ljust}, {"rjust", str_rjust}, {"center", str_center}, {"zfill", str_zfill},
    {"format", str_format}, {NULL, NULL},
};
static const method_entry list_methods[] = {
    {"count", list_count}, {"index", list_index}, {"copy", list_copy}, {"append", NULL}, {"clear", NULL}, {"extend", NULL}, {"insert", NULL},
    {"pop", NULL}, {"remove", NULL}, {"reverse", NULL}, {"sort", NULL}, {NULL, NULL},
};
static const method_entry tuple_methods[] = {{"count", list_count}, {"index", list_index}, {NULL, NULL}};
static const method_entry dict_methods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"get", dict_get}, {"copy", dict_copy}, {"clear", NULL}, {"pop", NULL},
    {"popitem", NULL}, {"setdefault", NULL}, {"update", NULL}, {NULL, NULL},
};

static const method_entry *methods_of(value v) {
    static const method_entry none[] = {{NULL, NULL}};
    if (v.type == VALUE_STRING) return str_methods;
    if (v.type == VALUE_DICT) return dict_methods;
    if (v.type != VALUE_LIST || (v.as.l->kind != LIST_LIST && v.as.l->kind != LIST_TUPLE)) return none;
    return v.as.l->kind == LIST_LIST ? list_methods : tuple_methods;
}

static const method_entry *method_find(value v, const char *name) {
    for (const method_entry *m = methods_of(v); m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

value method_call(state *s, const method *m, const arguments *args) {
    const method_entry *entry = method_find(*m->self, m->name);
    return entry && entry->call ? entry->call(s, *m->self, args) : (value){0};
}

static value method_new(state *s, value object, const char *name) {
    method *m = state_alloc(s, sizeof(*m));
    value *self = m ? state_alloc(s, sizeof(*self)) : NULL;
    if (!self) return (value){0};
    *self = object;
    *m = (method){.self = self, .name = name};
    return (value){.type = VALUE_METHOD, .as.method = m};
}

static value method_bind(state *s, value object, const method_entry *entry) {
    if (!entry->call) {
        char *hint = state_alloc(s, 128);
        if (!hint) return (value){0};
        snprintf(hint, 128, "access to attribute '%s' of '%s' object is unsafe.", entry->name, value_type_name(object));
        return value_hinted(s, hint, "SecurityError");
    }
    return method_new(s, object, entry->name);
}

/* ---- Attributes of loops ---- */

static value loop_neighbour(state *s, const loop *l, bool next) {
    bool there = next ? l->at + 1 < l->items->n : l->at > 0;
    if (!there) return value_hinted(s, next ? "there is no next item" : "there is no previous item", NULL);
    return l->items->items[next ? l->at + 1 : l->at - 1];
}

static value loop_attribute(state *s, value object, const char *name, bool *found) {
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
    if (object.type == VALUE_MACRO && strcmp(name, "name") == 0) {
        *found = true;
        return value_text(s, object.as.m->node->name);
    }
    if (object.type == VALUE_CYCLER && (strcmp(name, "current") == 0 || strcmp(name, "next") == 0 || strcmp(name, "reset") == 0)) {
        *found = true;
        return strcmp(name, "current") == 0 ? object.as.cycler->items[object.as.cycler->at] : method_new(s, object, name);
    }
    if (!entry) return (value){0};
    *found = true;
    return method_bind(s, object, entry);
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
    const list *l = object.as.l;
    bool indexed = l->kind == LIST_LIST || l->kind == LIST_TUPLE || l->kind == LIST_RANGE;
    if (!indexed || (key.type != VALUE_INT && key.type != VALUE_BOOL)) return NULL;
    int64_t at = key.type == VALUE_INT ? key.as.i : key.as.b;
    if (at < 0) at += (int64_t)l->n;
    return at >= 0 && at < (int64_t)l->n ? &l->items[at] : NULL;
}

static value string_item(state *s, const string *text, int64_t at, bool *found) {
    int64_t n = (int64_t)string_length(text);
    if (at < 0) at += n;
    *found = at >= 0 && at < n;
    if (!*found) return (value){0};
    size_t from = string_offset(text, (size_t)at), length;
    string_at(text, from, &length);
    return value_string(string_part(s, text, from, from + length));
}

value value_item(state *s, value object, value key) {
    bool found = false;
    if (object.type == VALUE_UNDEFINED) {
        state_fail_undefined(s, object);
        return (value){0};
    }
    const value *item = object.type == VALUE_DICT && key.type != VALUE_UNDEFINED ? dict_find(s, object.as.d, key) : object.type == VALUE_LIST ? sequence_item(object, key) : NULL;
    if (item || s->failed) return item ? *item : (value){0};
    if (object.type == VALUE_STRING && key.type == VALUE_INT) {
        value c = string_item(s, object.as.s, key.as.i, &found);
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
    if (!bound || bound->type == VALUE_NONE) return otherwise;
    if (bound->type != VALUE_INT && bound->type != VALUE_BOOL) {
        if (bound->type == VALUE_UNDEFINED) state_fail_undefined(s, *bound);
        else state_fail(s, "TypeError", "slice indices must be integers or None or have an __index__ method");
        return 0;
    }
    int64_t at = bound->type == VALUE_INT ? bound->as.i : bound->as.b;
    if (at < 0) at = at < -n ? -1 : at + n;
    if (at < 0) return backwards ? -1 : 0;
    return at > (backwards ? n - 1 : n) ? (backwards ? n - 1 : n) : at;
}

value value_slice(state *s, value object, const value *start, const value *stop, const value *step) {
    bool is_list = object.type == VALUE_LIST && object.as.l->kind != LIST_GENERATOR && object.as.l->kind < LIST_ITEMS;
    if (object.type == VALUE_UNDEFINED) state_fail_undefined(s, object);
    else if (object.type == VALUE_DICT) state_fail(s, "TypeError", "unhashable type: 'slice'");
    else if (object.type != VALUE_STRING && !is_list && !(object.type == VALUE_LIST && object.as.l->kind == LIST_RANGE))
        state_fail(s, "TypeError", "'%s' object is not subscriptable", value_type_name(object));
    int64_t by = step && step->type == VALUE_INT ? step->as.i : 1;
    if (by == 0) state_fail(s, "ValueError", "slice step cannot be zero");
    if (s->failed) return (value){0};
    const bool is_string = object.type == VALUE_STRING, back = by < 0;
    int64_t n = is_string ? (int64_t)string_length(object.as.s) : (int64_t)object.as.l->n;
    int64_t from = slice_bound(s, start, n, back ? n - 1 : 0, back), to = slice_bound(s, stop, n, back ? -1 : n, back);
    if (s->failed) return (value){0};
    if (is_string && by == 1) {
        size_t a = string_offset(object.as.s, (size_t)from), b = to <= from ? a : string_offset(object.as.s, (size_t)to);
        return state_step(s, object.as.s->n / 64) ? value_string(string_part(s, object.as.s, a, b)) : (value){0};
    }
    const list *items = is_string ? value_iterate(s, object) : object.as.l;
    value all = value_list(s, is_string || object.as.l->kind == LIST_RANGE ? LIST_LIST : object.as.l->kind, 0);
    builder b = {0};
    for (int64_t i = from; !s->failed && (back ? i > to : i < to);) {
        if (is_string) builder_add_string(s, &b, items->items[i].as.s);
        else list_add(s, all.as.l, items->items[i]);
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    return is_string ? value_string(builder_string(s, &b)) : all;
}
