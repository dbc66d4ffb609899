/* SPDX-License-Identifier: Apache-2.0 */
/* schema_registry.c: see schema_registry.h. A linear list: it has thousands of entries at most, and lookups are
 * rare. */
#include "server/prompt/schema_registry.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

typedef struct registry_item {
    char *tenant, *name, *text; /* tenant: "" for the operator's */
    size_t n;
} registry_item;

struct schema_registry {
    pthread_mutex_t lock;
    registry_item *items;
    size_t n, cap, bytes;
};

int schema_registry_new(schema_registry **out, rp_error *err) {
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "schemas");
    pthread_mutex_init(&(*out)->lock, NULL);
    return RP_OK;
}

static void schema_registry_free_item(registry_item *item) {
    base_free(item->tenant);
    base_free(item->name);
    base_free(item->text);
}

void schema_registry_free(schema_registry *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) schema_registry_free_item(&s->items[i]);
    base_free(s->items);
    pthread_mutex_destroy(&s->lock);
    base_free(s);
}

/* Locked; NULL: it is not there. */
static registry_item *schema_registry_find(schema_registry *s, const char *tenant, const char *name) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->items[i].tenant, tenant ? tenant : "") == 0 && strcmp(s->items[i].name, name) == 0) return &s->items[i];
    return NULL;
}

/* Locked. */
static void remove_item(schema_registry *s, registry_item *item) {
    s->bytes -= item->n;
    schema_registry_free_item(item);
    *item = s->items[--s->n];
}

/* Locked. What is full if a text of n bytes came; NULL: nothing. */
static const char *schema_registry_full(schema_registry *s, const char *tenant, const char *name, size_t bytes) {
    const registry_item *old = schema_registry_find(s, tenant, name);
    size_t own = 1, own_bytes = bytes, all = s->n + (old == NULL), all_bytes = s->bytes + bytes - (old ? old->n : 0);
    for (size_t i = 0; i < s->n; i++)
        if (&s->items[i] != old && strcmp(s->items[i].tenant, tenant) == 0) own++, own_bytes += s->items[i].n;
    if (own > SERVER_MAX_TENANT_REGISTRY || own_bytes > SERVER_MAX_TENANT_REGISTRY_BYTES) return "a tenant's limit";
    return all > SERVER_MAX_REGISTRY || all_bytes > SERVER_MAX_REGISTRY_BYTES ? "the server's limit" : NULL;
}

int schema_registry_check(schema_registry *s, const char *tenant, const char *name, size_t n, rp_error *err) {
    pthread_mutex_lock(&s->lock);
    const char *what = schema_registry_full(s, tenant ? tenant : "", name, n);
    pthread_mutex_unlock(&s->lock);
    if (!what) return RP_OK;
    return base_fail(err, RP_ERR_LIMIT, "schema '%.80s' was not loaded: it exceeds %s (%d schemas, %zu MiB per "
                                        "tenant; %d, %zu MiB in total): delete others first",
                     name, what, SERVER_MAX_TENANT_REGISTRY, SERVER_MAX_TENANT_REGISTRY_BYTES >> 20, SERVER_MAX_REGISTRY, SERVER_MAX_REGISTRY_BYTES >> 20);
}

/* Locked. */
static int schema_registry_add(schema_registry *s, const registry_item *item) {
    registry_item *old;
    if (schema_registry_full(s, item->tenant, item->name, item->n)) return RP_ERR_LIMIT;
    int rc = base_grow((void **)&s->items, &s->cap, s->n + 1, SERVER_MAX_REGISTRY, sizeof(*s->items));
    if (rc) return rc;
    if ((old = schema_registry_find(s, item->tenant, item->name))) remove_item(s, old);
    s->items[s->n++] = *item;
    s->bytes += item->n;
    return RP_OK;
}

int schema_registry_put(schema_registry *s, const char *tenant, const char *name, const char *text, size_t n) {
    registry_item item = {base_strdup(tenant ? tenant : ""), base_strdup(name), base_strndup(text, n), n};
    int rc = RP_ERR_MEMORY;
    if (item.tenant && item.name && item.text) {
        pthread_mutex_lock(&s->lock);
        rc = schema_registry_add(s, &item);
        pthread_mutex_unlock(&s->lock);
    }
    if (rc) schema_registry_free_item(&item);
    return rc;
}

int schema_registry_get(schema_registry *s, const char *tenant, const char *name, base_buffer *out) {
    pthread_mutex_lock(&s->lock);
    const registry_item *item = schema_registry_find(s, tenant, name);
    int rc = item ? base_buffer_append(out, item->text, item->n) : RP_ERR_NAME;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

bool schema_registry_remove(schema_registry *s, const char *tenant, const char *name) {
    pthread_mutex_lock(&s->lock);
    registry_item *item = schema_registry_find(s, tenant, name);
    if (item) remove_item(s, item);
    pthread_mutex_unlock(&s->lock);
    return item != NULL;
}

void schema_registry_visit(schema_registry *s, void (*visit)(void *user, const char *tenant, const char *name, const char *text, size_t n),
                           void *user) {
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++) {
        const registry_item *item = &s->items[i];
        visit(user, item->tenant[0] ? item->tenant : NULL, item->name, item->text, item->n);
    }
    pthread_mutex_unlock(&s->lock);
}

json_t *schema_registry_names(schema_registry *s, const char *tenant) {
    json_t *names = json_array();
    int failed = names == NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n && !failed; i++)
        if (strcmp(s->items[i].tenant, tenant ? tenant : "") == 0) failed = json_array_append_new(names, json_string(s->items[i].name));
    pthread_mutex_unlock(&s->lock);
    if (!failed) return names;
    json_decref(names);
    return NULL;
}
