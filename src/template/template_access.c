/* SPDX-License-Identifier: Apache-2.0 */
/* template_access.c: attributes, items and slices of values: object.name, object["name"], object[1:2], and those in the
 * fields of format(). As in Jinja's sandbox, names that begin with an underscore are refused. One thread. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

#define MAX_STEP ((int64_t)1 << 30) /* of a slice of a range, in its text */

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

/* ---- Methods ---- */

/* Here, and not in string_methods: its fields have attributes and items of their own. */
static const method_entry string_format_method[] = {{"format", "*", str_format}, {NULL, NULL, NULL}};

static const method_entry *methods_of(value v) {
    static const method_entry none[] = {{NULL, NULL, NULL}};
    if (v.type == VALUE_STRING) return string_methods;
    if (v.type == VALUE_DICT) return dict_methods;
    if (v.type != VALUE_LIST || (v.as.l->kind != LIST_LIST && v.as.l->kind != LIST_TUPLE && v.as.l->kind != LIST_RANGE))
        return none;
    return v.as.l->kind == LIST_LIST ? list_methods : tuple_methods;
}

static const method_entry *find_in(const method_entry *m, const char *name) {
    while (m->name && strcmp(m->name, name) != 0) m++;
    return m->name ? m : NULL;
}

static const method_entry *method_find(value v, const char *name) {
    const method_entry *m = find_in(methods_of(v), name);
    return m || v.type != VALUE_STRING ? m : find_in(string_format_method, name);
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
