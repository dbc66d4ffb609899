/* SPDX-License-Identifier: Apache-2.0 */
/* template_names.c: the names of a template, each stored once: a hash table in its arena. One thread until it is
   parsed. */
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "template/template_internal.h"

static size_t name_slot(const name_table *t, const char *bytes, size_t n) {
    BASE_ASSERT(t->n < t->cap && (t->cap & (t->cap - 1)) == 0);
    size_t i = (size_t)base_table_hash(bytes, n) & (t->cap - 1);
    while (t->names[i] && !(strlen(t->names[i]) == n && memcmp(t->names[i], bytes, n) == 0)) i = (i + 1) & (t->cap - 1);
    return i;
}

static bool names_grow(arena *memory, name_table *t) {
    name_table larger = {.cap = t->cap ? t->cap * 2 : 256};
    larger.names = arena_alloc(memory, larger.cap * sizeof(*larger.names));
    if (!larger.names) return false;
    for (size_t i = 0; i < t->cap; i++)
        if (t->names[i]) larger.names[name_slot(&larger, t->names[i], strlen(t->names[i]))] = t->names[i];
    larger.n = t->n;
    *t = larger;
    return true;
}

const char *name_intern(arena *memory, name_table *t, const char *bytes, size_t n) {
    BASE_ASSERT(t->n <= t->cap);
    if (t->n * 2 >= t->cap && !names_grow(memory, t)) return NULL;
    size_t slot = name_slot(t, bytes, n);
    if (t->names[slot]) return t->names[slot];
    char *name = arena_alloc(memory, n + 1);
    if (!name) return NULL;
    memcpy(name, bytes, n);
    t->n++;
    return t->names[slot] = name;
}

const char *name_find(const name_table *t, const char *name) {
    return t->cap > 0 ? t->names[name_slot(t, name, strlen(name))] : NULL;
}
