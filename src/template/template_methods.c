/* SPDX-License-Identifier: Apache-2.0 */
/* template_methods.c: the methods of lists, tuples and dicts. As in Jinja's sandbox, those that change a list or
 * dict are refused. One thread. */
#include "base/check.h"
#include "template/template_internal.h"

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

const method_entry list_methods[] = {
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
const method_entry tuple_methods[] = {
    {"count", ".value", list_count}, {"index", ".value [.start] [.stop]", list_index}, {NULL, NULL, NULL}};
const method_entry dict_methods[] = {
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
