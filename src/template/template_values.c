/* SPDX-License-Identifier: Apache-2.0 */
/* template_values.c: values as in Python: names of types, truth, order, text. Owns nothing. One thread. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "template/template_internal.h"

/* ---- Making ---- */

const value value_none = {.type = VALUE_NONE};

value value_bool(bool b) { return (value){.type = VALUE_BOOL, .as.b = b}; }
value value_int(int64_t i) { return (value){.type = VALUE_INT, .as.i = i}; }
value value_float(double f) { return (value){.type = VALUE_FLOAT, .as.f = f}; }

value value_undefined(state *s, const char *object, const string *name, bool is_element) {
    undefined *u = state_alloc(s, sizeof(*u));
    if (!u) return (value){0};
    *u = (undefined){.object = object, .name = *name, .is_element = is_element};
    return (value){.type = VALUE_UNDEFINED, .as.u = u};
}

value value_hinted(state *s, const char *hint, exception as) {
    undefined *u = state_alloc(s, sizeof(*u));
    if (!u) return (value){0};
    *u = (undefined){.hint = hint, .as = as};
    return (value){.type = VALUE_UNDEFINED, .as.u = u};
}

/* Jinja quotes the name of an object, but not before an element that is not a string. */
void state_fail_undefined(state *s, value v) {
    BASE_ASSERT(v.type == VALUE_UNDEFINED);
    const undefined *u = v.as.u;
    const exception as = u ? u->as : UNDEFINED_ERROR;
    builder name = {0};
    if (s->failed) return;
    if (!u) {
        state_fail(s, as, "a value is undefined");
        return;
    }
    if (u->hint) {
        state_fail(s, as, "%s", u->hint);
        return;
    }
    const string *text_of_name = string_new(s, u->name.bytes, u->name.n, TEMPLATE_UNTRUSTED);
    if (u->is_element) builder_add_string(s, &name, text_of_name);
    else value_write(s, &name, value_string(text_of_name), true);
    const char *text = name.n > 0 ? name.bytes : "''";
    if (s->failed) return;
    if (!u->object) state_fail(s, as, "%s is undefined", text);
    else if (u->is_element) state_fail(s, as, "%s has no element %s", u->object, text);
    else state_fail(s, as, "'%s' has no attribute %s", u->object, text);
}

value value_list(state *s, list_kind kind, size_t cap) {
    list *l = state_alloc(s, sizeof(*l));
    if (!l) return (value){0};
    l->kind = kind;
    if (!state_grow(s, (void **)&l->items, &l->cap, cap, sizeof(*l->items))) return (value){0};
    return (value){.type = VALUE_LIST, .as.l = l};
}

void list_add(state *s, list *l, value v) {
    BASE_ASSERT(s->failed || l->n <= l->cap);
    if (!s->failed && state_grow(s, (void **)&l->items, &l->cap, l->n + 1, sizeof(*l->items))) l->items[l->n++] = v;
}

value value_dict(state *s) {
    dict *d = state_alloc(s, sizeof(*d));
    return d ? (value){.type = VALUE_DICT, .as.d = d} : (value){0};
}

/* ---- Dictionaries ---- */

#define SMALL_DICT 8

static bool deeper(state *s) {
    BASE_ASSERT(s->depth >= 0);
    if (s->depth < TEMPLATE_MAX_DEPTH) return true;
    state_fail(s, RECURSION_ERROR, "values or calls are nested deeper than %d", TEMPLATE_MAX_DEPTH);
    s->code = RP_ERR_LIMIT;
    return false;
}

/* Equal keys have equal hashes: 1, 1.0 and True are one key. Each value looked at is a step: a tuple that has itself
   twice, 60 deep, has 2^60. */
static uint64_t hash_key(state *s, value key) {
    uint64_t h = 7;
    if (!state_step(s, key.type == VALUE_STRING || key.type == VALUE_BIG ? key.as.s->n / STEP_HASHED : 0)) return 0;
    switch (key.type) {
    case VALUE_STRING: return base_table_hash(key.as.s->bytes, key.as.s->n);
    case VALUE_BOOL: return (uint64_t)key.as.b;
    case VALUE_INT: return (uint64_t)key.as.i;
    case VALUE_BIG: return base_table_hash(key.as.s->bytes, key.as.s->n);
    case VALUE_FLOAT:
        return key.as.f == floor(key.as.f) && fabs(key.as.f) < 9e15 ? (uint64_t)(int64_t)key.as.f
                                                                    : base_table_hash((const char *)&key.as.f, 8);
    case VALUE_LIST:
        if (key.as.l->kind == LIST_GENERATOR) return (uint64_t)(uintptr_t)key.as.l;
        if (key.as.l->kind != LIST_TUPLE) break;
        if (!deeper(s)) return 0;
        s->depth++;
        for (size_t i = 0; i < key.as.l->n && !s->failed; i++) h = h * 31 + hash_key(s, key.as.l->items[i]);
        s->depth--;
        return h;
    case VALUE_DICT: break;
    default: return (uint64_t)key.type;
    }
    state_fail(s, TYPE_ERROR, "unhashable type: '%s'", value_type_name(key));
    return 0;
}

static bool is_hashable(state *s, value v, int depth) {
    if (v.type == VALUE_DICT || !state_step(s, 0)) return false;
    if (v.type != VALUE_LIST || v.as.l->kind == LIST_GENERATOR) return true;
    bool hashable = v.as.l->kind == LIST_TUPLE && depth < TEMPLATE_MAX_DEPTH;
    for (size_t i = 0; i < v.as.l->n && hashable; i++) hashable = is_hashable(s, v.as.l->items[i], depth + 1);
    return hashable;
}

bool value_is_hashable(state *s, value v) { return is_hashable(s, v, 0); }

/* The slot of the key, or of the free place for it; any slot if the state fails. Each slot looked at is a step: the
 * hash has no secret, so a client can choose keys that share slots. */
static uint32_t *dict_slot(state *s, const dict *d, value key, uint64_t hash) {
    BASE_ASSERT(d->cap_index > 0 && (d->cap_index & (d->cap_index - 1)) == 0);
    uint64_t mixed = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15u;
    for (size_t i = (size_t)(mixed >> 20) & (d->cap_index - 1);; i = (i + 1) & (d->cap_index - 1)) {
        uint32_t *slot = &d->index[i];
        if (*slot == 0 || !state_step(s, 0)) return slot;
        const dict_entry *e = &d->entries[*slot - 1];
        if (e->hash == hash && value_equal(s, e->key, key)) return slot;
    }
}

static dict_entry *dict_entry_of(state *s, const dict *d, value key, uint64_t hash) {
    BASE_ASSERT(s->failed || d->n <= d->cap);
    if (s->failed) return NULL;
    if (d->index) {
        uint32_t slot = *dict_slot(s, d, key, hash);
        return slot ? &d->entries[slot - 1] : NULL;
    }
    for (size_t i = 0; i < d->n; i++)
        if (d->entries[i].hash == hash && value_equal(s, d->entries[i].key, key)) return &d->entries[i];
    return NULL;
}

static void dict_index(state *s, dict *d) {
    BASE_ASSERT(s->failed || d->n > 0);
    size_t cap = d->cap_index;
    if (d->n < SMALL_DICT || (d->index && d->n * 2 < cap)) {
        if (d->index && !s->failed)
            *dict_slot(s, d, d->entries[d->n - 1].key, d->entries[d->n - 1].hash) = (uint32_t)d->n;
        return;
    }
    d->cap_index = cap ? cap * 4 : (size_t)8 * SMALL_DICT;
    d->index = state_alloc(s, d->cap_index * sizeof(*d->index));
    for (size_t i = 0; d->index && i < d->n; i++)
        *dict_slot(s, d, d->entries[i].key, d->entries[i].hash) = (uint32_t)i + 1;
}

void dict_set(state *s, dict *d, value key, value item) {
    uint64_t hash = hash_key(s, key);
    dict_entry *e = dict_entry_of(s, d, key, hash);
    if (e) e->item = item;
    if (e || s->failed || !state_grow(s, (void **)&d->entries, &d->cap, d->n + 1, sizeof(*d->entries))) return;
    d->entries[d->n++] = (dict_entry){.key = key, .item = item, .hash = hash};
    dict_index(s, d);
}

const value *dict_find(state *s, const dict *d, value key) {
    dict_entry *e = dict_entry_of(s, d, key, hash_key(s, key));
    return e ? &e->item : NULL;
}

const value *dict_find_text(state *s, const dict *d, const char *key) {
    const string text = {.bytes = key, .n = strlen(key)};
    return dict_find(s, d, value_string(&text));
}

dict *dict_clone(state *s, const dict *d) {
    BASE_ASSERT(d->n <= d->cap);
    dict *copy = value_dict(s).as.d;
    if (s->failed || !state_grow(s, (void **)&copy->entries, &copy->cap, d->n, sizeof(*copy->entries))) return NULL;
    if (d->n > 0) memcpy(copy->entries, d->entries, d->n * sizeof(*copy->entries));
    copy->n = d->n;
    if (!d->index) return copy;
    copy->cap_index = d->cap_index;
    copy->index = state_alloc(s, copy->cap_index * sizeof(*copy->index));
    if (!copy->index) return NULL;
    memcpy(copy->index, d->index, copy->cap_index * sizeof(*copy->index));
    return copy;
}

/* ---- Types ---- */

_Static_assert(LIST_RANGE == 6 && VALUE_BIG == 15, "the order of the names below");
static const char *const list_names[] = {"list", "tuple", "generator", "dict_items",
                                         "dict_keys", "dict_values", "range"};

const char *value_type_name(value v) {
    BASE_ASSERT(v.type <= VALUE_BIG);
    static const char *const names[] = {"Undefined", "NoneType", "bool", "int",
                                        "float", "str", "list", "dict",
                                        "Namespace", "Macro", "function", "builtin_function_or_method",
                                        "LoopContext", "Cycler", "Joiner", "int"};
    if (v.type == VALUE_FUNCTION && v.as.function->is_type) return "type";
    if (v.type == VALUE_LIST && v.as.l->type_name) return v.as.l->type_name;
    return v.type == VALUE_LIST ? list_names[v.as.l->kind] : v.type == VALUE_STRING && v.as.s->markup ? "Markup"
                                                                                                      : names[v.type];
}

const char *value_object_name(value v) {
    BASE_ASSERT(v.type <= VALUE_BIG);
    static const char *const names[] = {"jinja2.runtime.Undefined object",
                                        "None",
                                        "bool object",
                                        "int object",
                                        "float object",
                                        "str object",
                                        "list object",
                                        "dict object",
                                        "jinja2.utils.Namespace object",
                                        "jinja2.runtime.Macro object",
                                        "function object",
                                        "builtin_function_or_method object",
                                        "jinja2.runtime.LoopContext object",
                                        "jinja2.utils.Cycler object",
                                        "jinja2.utils.Joiner object",
                                        "int object"};
    static const char *const lists[] = {"list object", "tuple object", "generator object", "dict_items object",
                                        "dict_keys object", "dict_values object", "range object"};
    if (v.type == VALUE_LIST && v.as.l->object_name) return v.as.l->object_name;
    if (v.type == VALUE_STRING && v.as.s->markup) return "markupsafe.Markup object";
    if (v.type == VALUE_FUNCTION && v.as.function->is_type) return "type object";
    return v.type == VALUE_LIST ? lists[v.as.l->kind] : names[v.type];
}

bool value_is_number(value v) { return v.type == VALUE_BOOL || v.type == VALUE_INT || v.type == VALUE_FLOAT; }

int64_t value_as_int(value v) {
    BASE_ASSERT(v.type == VALUE_INT || v.type == VALUE_BOOL);
    return v.type == VALUE_BOOL ? v.as.b : v.as.i;
}
double value_as_float(value v) {
    BASE_ASSERT(value_is_number(v));
    return v.type == VALUE_FLOAT ? v.as.f : (double)value_as_int(v);
}
bool value_is_sequence(value v) {
    return v.type == VALUE_LIST && (v.as.l->kind == LIST_LIST || v.as.l->kind == LIST_TUPLE);
}

bool value_truth(state *s, value v) {
    (void)s;
    switch (v.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v.as.b;
    case VALUE_INT: return v.as.i != 0;
    case VALUE_FLOAT: return v.as.f != 0;
    case VALUE_STRING: return v.as.s->n > 0;
    case VALUE_LIST: return v.as.l->kind == LIST_GENERATOR || v.as.l->n > 0;
    case VALUE_DICT: return v.as.d->n > 0;
    default: return true;
    }
}

/* ---- Order ---- */

static bool lists_equal(state *s, const list *a, const list *b) {
    bool same = a->kind == b->kind && a->kind != LIST_GENERATOR && a->kind != LIST_VALUES && a->n == b->n;
    if (a == b) return true;
    if (same && (a->kind == LIST_KEYS || a->kind == LIST_ITEMS)) { /* sets */
        const value other = {.type = VALUE_LIST, .as.l = (list *)b};
        for (size_t i = 0; i < a->n && same && !s->failed; i++) same = value_contains(s, other, a->items[i]);
        return same;
    }
    if (!deeper(s)) return false;
    s->depth++;
    for (size_t i = 0; i < a->n && same && !s->failed; i++) same = value_equal(s, a->items[i], b->items[i]);
    s->depth--;
    return same;
}

static bool dicts_equal(state *s, const dict *a, const dict *b) {
    bool same = a->n == b->n;
    if (a == b) return true;
    if (!deeper(s)) return false;
    s->depth++;
    for (size_t i = 0; i < a->n && same && !s->failed; i++) {
        dict_entry *e = dict_entry_of(s, b, a->entries[i].key, a->entries[i].hash);
        same = e && value_equal(s, a->entries[i].item, e->item);
    }
    s->depth--;
    return same;
}

bool value_equal(state *s, value a, value b) {
    if (!state_step(s, 0)) return false;
    if (value_is_number(a) && value_is_number(b))
        return a.type == VALUE_FLOAT || b.type == VALUE_FLOAT ? value_as_float(a) == value_as_float(b)
                                                              : value_as_int(a) == value_as_int(b);
    if (a.type != b.type) return false;
    switch (a.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_BIG:
    case VALUE_STRING: return string_equal(s, a.as.s, b.as.s);
    case VALUE_LIST: return lists_equal(s, a.as.l, b.as.l);
    case VALUE_DICT: return dicts_equal(s, a.as.d, b.as.d);
    default: return a.as.d == b.as.d;
    }
}

/* ---- Integers beyond 64 bits ---- */

static bool is_ordered_big(value a, value b) {
    return (a.type == VALUE_BIG && (b.type == VALUE_BIG || value_is_number(b))) ||
           (b.type == VALUE_BIG && value_is_number(a));
}

/* How a compares with b, of which one at least is beyond 64 bits: another int is between such numbers with a sign and
   without. */
static int big_compare(state *s, value a, value b) {
    BASE_ASSERT(is_ordered_big(a, b));
    if (!state_step(s, 64 + (a.type == VALUE_BIG ? a.as.s->n : 0) + (b.type == VALUE_BIG ? b.as.s->n : 0))) return 0;
    const double x = a.type == VALUE_BIG ? strtod(a.as.s->bytes, NULL) : value_as_float(a);
    const double y = b.type == VALUE_BIG ? strtod(b.as.s->bytes, NULL) : value_as_float(b);
    if (a.type != VALUE_BIG || b.type != VALUE_BIG || (x < 0) != (y < 0)) return (x > y) - (x < y);
    const int longer = (a.as.s->n > b.as.s->n) - (a.as.s->n < b.as.s->n),
              order = longer ? longer : memcmp(a.as.s->bytes, b.as.s->bytes, a.as.s->n);
    return x < 0 ? -order : order;
}

int value_compare(state *s, value a, value b, const char *operator_text) {
    if (!state_step(s, 0)) return 0;
    if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED)
        state_fail_undefined(s, a.type == VALUE_UNDEFINED ? a : b);
    else if (value_is_number(a) && value_is_number(b)) {
        if (a.type != VALUE_FLOAT && b.type != VALUE_FLOAT)
            return (value_as_int(a) > value_as_int(b)) - (value_as_int(a) < value_as_int(b));
        return (value_as_float(a) > value_as_float(b)) - (value_as_float(a) < value_as_float(b));
    } else if (is_ordered_big(a, b)) return big_compare(s, a, b);
    else if (a.type == VALUE_STRING && b.type == VALUE_STRING) return string_compare(s, a.as.s, b.as.s);
    else if (value_is_sequence(a) && value_is_sequence(b) && a.as.l->kind == b.as.l->kind) {
        if (!deeper(s)) return 0;
        s->depth++;
        size_t i = 0;
        while (i < a.as.l->n && i < b.as.l->n && value_equal(s, a.as.l->items[i], b.as.l->items[i])) i++;
        bool differs = i < a.as.l->n && i < b.as.l->n;
        int order = differs && !s->failed ? value_compare(s, a.as.l->items[i], b.as.l->items[i], operator_text) : 0;
        s->depth--;
        if (differs) return order;
        return (a.as.l->n > b.as.l->n) - (a.as.l->n < b.as.l->n);
    } else
        state_fail(s, TYPE_ERROR, "'%s' not supported between instances of '%s' and '%s'", operator_text,
                   value_type_name(a), value_type_name(b));
    return 0;
}

bool value_contains(state *s, value container, value item) {
    switch (container.type) {
    case VALUE_STRING:
        if (item.type == VALUE_UNDEFINED)
            state_fail(s, TYPE_ERROR, "'in <string>' requires string as left operand, not Undefined");
        else if (item.type != VALUE_STRING)
            state_fail(s, TYPE_ERROR, "'in <string>' requires string as left operand, not %s", value_type_name(item));
        else return string_find(s, container.as.s, item.as.s, 0) != SIZE_MAX;
        return false;
    case VALUE_DICT: return dict_find(s, container.as.d, item) != NULL;
    case VALUE_UNDEFINED:
    case VALUE_LIST: break;
    default:
        state_fail(s, TYPE_ERROR, "argument of type '%s' is not iterable", value_type_name(container));
        return false;
    }
    const list *l = value_items(s, container);
    for (size_t i = 0; l && i < l->n && !s->failed; i++)
        if (value_equal(s, l->items[i], item)) return true;
    return false;
}

/* ---- Iteration ---- */

static const list *string_characters(state *s, const string *text) {
    value all = value_list(s, LIST_LIST, 0);
    string *plain = state_alloc(s, sizeof(*plain));
    if (!plain) return all.as.l;
    *plain = *text;
    plain->markup = false;
    for (size_t at = 0, n; at < text->n && !s->failed; at += n) {
        string_at(text, at, &n);
        list_add(s, all.as.l, value_string(string_part(s, plain, at, at + n)));
    }
    return all.as.l;
}

const list *value_items(state *s, value v) {
    static const list nothing = {.kind = LIST_LIST};
    if (s->failed) return NULL;
    switch (v.type) {
    case VALUE_UNDEFINED: return &nothing;
    case VALUE_STRING: return string_characters(s, v.as.s);
    case VALUE_LIST:
        if (v.as.l->kind == LIST_GENERATOR && v.as.l->used) return &nothing;
        if (v.as.l->failure) state_fail_as(s, v.as.l->failed_as, v.as.l->failure);
        if (s->failed) return NULL;
        if (v.as.l->kind == LIST_GENERATOR)
            v.as.l->used = true; /* no other list changes: those of the input are shared */
        return v.as.l;
    case VALUE_DICT: {
        value keys = value_list(s, LIST_LIST, v.as.d->n);
        for (size_t i = 0; i < v.as.d->n && !s->failed; i++) list_add(s, keys.as.l, v.as.d->entries[i].key);
        return keys.as.l;
    }
    default: state_fail(s, TYPE_ERROR, "'%s' object is not iterable", value_type_name(v)); return NULL;
    }
}

const list *value_iterate(state *s, value v) {
    const list *l = value_items(s, v);
    return l && state_step(s, l->n) ? l : NULL;
}

/* ---- Text ---- */

void float_repr(state *s, double f, char out[32]) {
    if (isnan(f) || isinf(f)) {
        snprintf(out, 32, isnan(f) ? "nan" : f > 0 ? "inf"
                                                   : "-inf");
        return;
    }
    int digits = 1;
    char text[32];
    do snprintf(text, sizeof(text), "%.*e", digits - 1, f);
    while (strtod(text, NULL) != f && ++digits <= 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    state_step(s, (size_t)digits * (STEP_PRINTED + (size_t)abs(exponent) / 4));
    if (exponent < -4 || exponent >= 16) {
        char *e = strchr(text, 'e'); /* 1e-07 has two digits in C and in Python */
        *e = '\0';
        snprintf(out, 32, "%.24se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent) % 1000);
    } else snprintf(out, 32, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, f);
}

static bool is_printable(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return c == ' ' || !(k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS ||
                         k == UTF8PROC_CATEGORY_CO || k == UTF8PROC_CATEGORY_CN || k == UTF8PROC_CATEGORY_ZS ||
                         k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP);
}

static void write_plain(state *s, builder *b, const char *text) {
    builder_add(s, b, text, strlen(text), TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
}

/* repr() of a string. Escapes and quotes are untrusted, as they depend on the text. */
static void write_quoted(state *s, builder *b, const string *text) {
    bool single = memchr(text->bytes, '\'', text->n) != NULL,
         both = single && memchr(text->bytes, '"', text->n) != NULL;
    char quote = single && !both ? '"' : '\'', escape[16];
    size_t from = 0;
    builder_add(s, b, &quote, 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
    for (size_t at = 0, n; at < text->n && !s->failed; at += n) {
        uint32_t c = string_at(text, at, &n);
        if (c >= 0x20 && c < 0x7f && c != '\\' && c != (unsigned char)quote) continue;
        if (c == '\\' || c == (unsigned char)quote) snprintf(escape, sizeof(escape), "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof(escape), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r'
                                                                                 : 't');
        else if (is_printable(c)) continue;
        else snprintf(escape, sizeof(escape), c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x"
                                                                                  : "\\U%08x",
                      c);
        state_step(s, STEP_PRINTED);
        builder_add_string(s, b, string_part(s, text, from, at));
        builder_add(s, b, escape, strlen(escape), TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
        from = at + n;
    }
    state_step(s, text->n / STEP_CLASSED);
    builder_add_string(s, b, string_part(s, text, from, text->n));
    builder_add(s, b, &quote, 1, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
}

void state_fail_key(state *s, const string *key) {
    builder b = {0};
    write_quoted(s, &b, key);
    const string *quoted = builder_string(s, &b);
    state_fail(s, KEY_ERROR, "%.*s", (int)quoted->n, quoted->bytes);
}

static void write_items(state *s, builder *b, const list *l) {
    static const char *const open[] = {"[", "(", NULL, "dict_items([", "dict_keys([", "dict_values([", NULL};
    static const char *const close[] = {"]", ")", NULL, "])", "])", "])", NULL};
    char range[96];
    if (l->kind == LIST_GENERATOR) write_plain(s, b, "<generator object>");
    else if (l->kind == LIST_RANGE) {
        snprintf(range, sizeof(range), l->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)l->start, (long long)l->stop, (long long)l->step);
        write_plain(s, b, range);
    } else {
        write_plain(s, b, open[l->kind]);
        for (size_t i = 0; i < l->n && !s->failed; i++) {
            if (i > 0) write_plain(s, b, ", ");
            value_write(s, b, l->items[i], true);
        }
        write_plain(s, b, l->kind == LIST_TUPLE && l->n == 1 ? ",)" : close[l->kind]);
    }
}

static void write_dict(state *s, builder *b, const dict *d) {
    write_plain(s, b, "{");
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        if (i > 0) write_plain(s, b, ", ");
        value_write(s, b, d->entries[i].key, true);
        write_plain(s, b, ": ");
        value_write(s, b, d->entries[i].item, true);
    }
    write_plain(s, b, "}");
}

static void write_number(state *s, builder *b, value v) {
    BASE_ASSERT(value_is_number(v));
    char text[32];
    state_step(s, STEP_PRINTED);
    if (v.type == VALUE_FLOAT) float_repr(s, v.as.f, text);
    else if (v.type == VALUE_BOOL) snprintf(text, sizeof(text), "%s", v.as.b ? "True" : "False");
    else snprintf(text, sizeof(text), "%lld", (long long)v.as.i);
    builder_add(s, b, text, strlen(text), v.untrusted ? TEMPLATE_UNTRUSTED : TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
}

void value_write(state *s, builder *b, value v, bool repr) {
    if (!state_step(s, 0) || !deeper(s)) return;
    s->depth++;
    switch (v.type) {
    case VALUE_UNDEFINED:
        if (repr) write_plain(s, b, "Undefined");
        break;
    case VALUE_NONE: write_plain(s, b, "None"); break;
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT: write_number(s, b, v); break;
    case VALUE_BIG:
        builder_add(s, b, v.as.s->bytes, v.as.s->n, v.untrusted ? TEMPLATE_UNTRUSTED : TEMPLATE_TRUSTED,
                    TEMPLATE_NO_OFFSET);
        break;
    case VALUE_STRING:
        if (!repr) builder_add_string(s, b, v.as.s);
        else if (v.as.s->markup) {
            write_plain(s, b, "Markup(");
            write_quoted(s, b, v.as.s);
            write_plain(s, b, ")");
        } else write_quoted(s, b, v.as.s);
        break;
    case VALUE_LIST: write_items(s, b, v.as.l); break;
    case VALUE_DICT: write_dict(s, b, v.as.d); break;
    case VALUE_NAMESPACE:
        write_plain(s, b, "<Namespace ");
        write_dict(s, b, v.as.d);
        write_plain(s, b, ">");
        break;
    default:
        write_plain(s, b, "<");
        write_plain(s, b, value_type_name(v));
        write_plain(s, b, ">");
    }
    s->depth--;
}

const string *value_to_string(state *s, value v) {
    builder b = {0};
    if (v.type == VALUE_STRING) return v.as.s;
    value_write(s, &b, v, false);
    return builder_string(s, &b);
}
