/* SPDX-License-Identifier: Apache-2.0 */
/* schema_registry.c: see schema_registry.h. Linear lists: they have thousands of entries at most, and lookups are
 * rare. */
#include "server/models/schema_registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

typedef struct registry_item {
    char *tenant, *name, *text; /* tenant: "" for the operator's; text NULL: it was removed */
    size_t n;
    uint64_t changed;
} registry_item;

typedef struct registry_list {
    registry_item *items; /* [n] */
    size_t n, cap;
} registry_list;

struct schema_registry {
    pthread_mutex_t lock;
    registry_list there, removed; /* a schema is in one of them at most */
    size_t bytes;                 /* of texts */
    uint64_t sum;                 /* of hashes of those that are there */
    _Atomic uint64_t digest;      /* of it: read without the lock */
};

int schema_registry_new(schema_registry **out, rp_error *err) {
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "schemas");
    pthread_mutex_init(&(*out)->lock, NULL);
    return RP_OK;
}

static void item_free(registry_item *item) {
    base_free(item->tenant);
    base_free(item->name);
    base_free(item->text);
}

static void list_free(registry_list *l) {
    for (size_t i = 0; i < l->n; i++) item_free(&l->items[i]);
    base_free(l->items);
}

void schema_registry_free(schema_registry *s) {
    if (!s) return;
    list_free(&s->there);
    list_free(&s->removed);
    pthread_mutex_destroy(&s->lock);
    base_free(s);
}

/* ---- lists; locked ---- */

/* NULL: it is not there. */
static registry_item *list_find(const registry_list *l, const char *tenant, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].tenant, tenant ? tenant : "") == 0 && strcmp(l->items[i].name, name) == 0)
            return &l->items[i];
    return NULL;
}

static int list_reserve(registry_list *l) {
    return base_grow((void **)&l->items, &l->cap, l->n + 1, SERVER_MAX_REGISTRY + 1, sizeof(*l->items));
}

static void list_remove(registry_list *l, registry_item *item) {
    BASE_ASSERT(item >= l->items && item < l->items + l->n);
    item_free(item);
    *item = l->items[--l->n];
}

static uint64_t digest_of(const registry_item *item) {
    const uint64_t names[] = {base_table_hash(item->tenant, strlen(item->tenant)),
                              base_table_hash(item->name, strlen(item->name))};
    return base_mix64(names[0] + base_mix64(names[1] + base_mix64(item->changed)));
}

static void set_digest(schema_registry *s) {
    BASE_ASSERT(s->there.n > 0 || (s->sum == 0 && s->bytes == 0));
    atomic_store(&s->digest, s->there.n == 0 ? 0 : BASE_MAX(s->sum, 1));
}

static void drop(schema_registry *s, registry_item *item) {
    BASE_ASSERT(item->text && s->bytes >= item->n);
    s->bytes -= item->n;
    s->sum -= digest_of(item);
    list_remove(&s->there, item);
    set_digest(s);
}

/* The oldest one is forgotten if there are too many. */
static void remember(schema_registry *s, registry_item *removal) {
    registry_list *l = &s->removed;
    BASE_ASSERT(!removal->text && removal->changed > 0);
    registry_item *old = list_find(l, removal->tenant, removal->name), *oldest = l->items;
    if (old) list_remove(l, old);
    for (size_t i = 1; i < l->n; i++)
        if (l->items[i].changed < oldest->changed) oldest = &l->items[i];
    if (l->n == SERVER_MAX_REGISTRY) list_remove(l, oldest);
    if (list_reserve(l)) item_free(removal);
    else l->items[l->n++] = *removal;
}

/* What is full if a text of n bytes came; NULL: nothing. */
static const char *what_is_full(schema_registry *s, const char *tenant, const char *name, size_t bytes) {
    const registry_item *old = list_find(&s->there, tenant, name);
    size_t own = 1, own_bytes = bytes, all = s->there.n + (old == NULL),
           all_bytes = s->bytes + bytes - (old ? old->n : 0);
    for (size_t i = 0; i < s->there.n; i++) {
        const registry_item *item = &s->there.items[i];
        if (item != old && strcmp(item->tenant, tenant) == 0) own++, own_bytes += item->n;
    }
    if (own > SERVER_MAX_TENANT_REGISTRY || own_bytes > SERVER_MAX_TENANT_REGISTRY_BYTES) return "a tenant's limit";
    return all > SERVER_MAX_REGISTRY || all_bytes > SERVER_MAX_REGISTRY_BYTES ? "the server's limit" : NULL;
}

/* ---- changes ---- */

int schema_registry_check(schema_registry *s, const char *tenant, const char *name, size_t n, rp_error *err) {
    pthread_mutex_lock(&s->lock);
    const char *what = what_is_full(s, tenant ? tenant : "", name, n);
    pthread_mutex_unlock(&s->lock);
    if (!what) return RP_OK;
    return base_fail(err, RP_ERR_LIMIT,
                     "schema '%.80s' was not loaded: it exceeds %s (%d schemas, %zu MiB per "
                     "tenant; %d, %zu MiB in total): delete others first",
                     name, what, SERVER_MAX_TENANT_REGISTRY, SERVER_MAX_TENANT_REGISTRY_BYTES >> 20,
                     SERVER_MAX_REGISTRY, SERVER_MAX_REGISTRY_BYTES >> 20);
}

/* Locked. */
static int registry_add(schema_registry *s, const registry_item *item) {
    registry_item *old;
    if (what_is_full(s, item->tenant, item->name, item->n)) return RP_ERR_LIMIT;
    int rc = list_reserve(&s->there);
    if (rc) return rc;
    if ((old = list_find(&s->removed, item->tenant, item->name))) list_remove(&s->removed, old);
    if ((old = list_find(&s->there, item->tenant, item->name))) drop(s, old);
    s->there.items[s->there.n++] = *item;
    s->bytes += item->n;
    s->sum += digest_of(item);
    BASE_ASSERT(s->there.n <= SERVER_MAX_REGISTRY && s->bytes <= SERVER_MAX_REGISTRY_BYTES); /* invariant 6 */
    set_digest(s);
    return RP_OK;
}

int schema_registry_put(schema_registry *s, const schema_entry *e) {
    BASE_ASSERT(e->text); /* not a removal */
    registry_item item = {base_strdup(e->tenant ? e->tenant : ""), base_strdup(e->name), base_strndup(e->text, e->n),
                          e->n, e->changed};
    int rc = RP_ERR_MEMORY;
    if (item.tenant && item.name && item.text) {
        pthread_mutex_lock(&s->lock);
        rc = registry_add(s, &item);
        pthread_mutex_unlock(&s->lock);
    }
    if (rc) item_free(&item);
    return rc;
}

/* A removal for which there is no memory is not remembered. */
bool schema_registry_remove(schema_registry *s, const char *tenant, const char *name, uint64_t changed, bool always) {
    registry_item removal = {.changed = changed};
    if (changed) removal.tenant = base_strdup(tenant ? tenant : ""), removal.name = base_strdup(name);
    pthread_mutex_lock(&s->lock);
    registry_item *item = list_find(&s->there, tenant, name);
    const bool was_there = item != NULL;
    if (item) drop(s, item);
    if ((was_there || always) && removal.tenant && removal.name) remember(s, &removal);
    else item_free(&removal);
    pthread_mutex_unlock(&s->lock);
    return was_there;
}

/* ---- reading ---- */

int schema_registry_get(schema_registry *s, const char *tenant, const char *name, base_buffer *out) {
    pthread_mutex_lock(&s->lock);
    const registry_item *item = list_find(&s->there, tenant, name);
    int rc = item ? base_buffer_append(out, item->text, item->n) : RP_ERR_NAME;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

uint64_t schema_registry_changed(schema_registry *s, const char *tenant, const char *name) {
    pthread_mutex_lock(&s->lock);
    const registry_item *item = list_find(&s->there, tenant, name);
    if (!item) item = list_find(&s->removed, tenant, name);
    const uint64_t changed = item ? item->changed : 0;
    pthread_mutex_unlock(&s->lock);
    return changed;
}

uint64_t schema_registry_digest(schema_registry *s) { return atomic_load(&s->digest); }

static void visit_list(const registry_list *l, void (*visit)(void *user, const schema_entry *e), void *user) {
    for (size_t i = 0; i < l->n; i++) {
        const registry_item *item = &l->items[i];
        visit(user,
              &(schema_entry){item->tenant[0] ? item->tenant : NULL, item->name, item->text, item->n, item->changed});
    }
}

void schema_registry_visit(schema_registry *s, void (*visit)(void *user, const schema_entry *e), void *user) {
    pthread_mutex_lock(&s->lock);
    visit_list(&s->there, visit, user);
    visit_list(&s->removed, visit, user);
    pthread_mutex_unlock(&s->lock);
}

json_t *schema_registry_names(schema_registry *s, const char *tenant) {
    json_t *names = json_array();
    int failed = names == NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->there.n && !failed; i++)
        if (strcmp(s->there.items[i].tenant, tenant ? tenant : "") == 0)
            failed = json_array_append_new(names, json_string(s->there.items[i].name));
    pthread_mutex_unlock(&s->lock);
    if (!failed) return names;
    json_decref(names);
    return NULL;
}
