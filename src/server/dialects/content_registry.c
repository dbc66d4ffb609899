/* SPDX-License-Identifier: Apache-2.0 */
/* content_registry.c: see content_registry.h. A list in order of creation, searched linearly; each lookup
 * removes expired entries. */
#include "server/dialects/content_registry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

typedef struct registry_item {
    registry_content content;
    char *tenant, *json; /* tenant: "" for the operator's */
    size_t n;
} registry_item;

struct content_registry {
    pthread_mutex_t lock;
    registry_item *items;
    size_t n, cap, bytes;
    uint64_t last_number;
};

int content_registry_new(content_registry **out, rp_error *err) {
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "cached contents");
    pthread_mutex_init(&(*out)->lock, NULL);
    return RP_OK;
}

static void registry_item_free_item(registry_item *item) {
    base_free(item->tenant);
    base_free(item->json);
}

void content_registry_free(content_registry *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) registry_item_free_item(&s->items[i]);
    base_free(s->items);
    pthread_mutex_destroy(&s->lock);
    base_free(s);
}

/* ---- locked ---- */

static void drop_expired(content_registry *s, int64_t now) {
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->items[i].content.expires > now) {
            s->items[kept++] = s->items[i];
            continue;
        }
        BASE_ASSERT(s->bytes >= s->items[i].n);
        s->bytes -= s->items[i].n;
        registry_item_free_item(&s->items[i]);
    }
    s->n = kept;
    BASE_ASSERT(s->n > 0 || s->bytes == 0);
}

static bool registry_item_is_of(const registry_item *item, const char *tenant) {
    return strcmp(item->tenant, tenant ? tenant : "") == 0;
}

static registry_item *content_registry_find(content_registry *s, const char *tenant, const char *id, int64_t now) {
    drop_expired(s, now);
    for (size_t i = 0; i < s->n; i++)
        if (registry_item_is_of(&s->items[i], tenant) && strcmp(s->items[i].content.id, id) == 0) return &s->items[i];
    return NULL;
}

static bool has_room(content_registry *s, const char *tenant, size_t bytes, int64_t now) {
    size_t own = 0, own_bytes = 0;
    drop_expired(s, now);
    for (size_t i = 0; i < s->n; i++)
        if (registry_item_is_of(&s->items[i], tenant)) own++, own_bytes += s->items[i].n;
    return own < SERVER_MAX_TENANT_CONTENTS && own_bytes + bytes <= SERVER_MAX_TENANT_CONTENTS_BYTES &&
           s->n < SERVER_MAX_CONTENTS && s->bytes + bytes <= SERVER_MAX_CONTENTS_BYTES;
}

static int content_registry_add(content_registry *s, const registry_item *item, int64_t now) {
    if (!has_room(s, item->tenant, item->n, now)) return RP_ERR_LIMIT;
    int rc = base_grow((void **)&s->items, &s->cap, s->n + 1, SERVER_MAX_CONTENTS, sizeof(*s->items));
    if (rc) return rc;
    BASE_ASSERT(s->n == 0 || s->items[s->n - 1].content.number <= s->last_number); /* a list in order of creation */
    s->items[s->n] = *item;
    s->items[s->n++].content.number = ++s->last_number;
    s->bytes += item->n;
    BASE_ASSERT(s->n <= SERVER_MAX_CONTENTS && s->bytes <= SERVER_MAX_CONTENTS_BYTES); /* invariant 6 */
    return RP_OK;
}

/* ---- any thread ---- */

bool content_registry_has_capacity(content_registry *s, const char *tenant, size_t bytes, int64_t now) {
    pthread_mutex_lock(&s->lock);
    bool has = has_room(s, tenant, bytes, now);
    pthread_mutex_unlock(&s->lock);
    return has;
}

int content_registry_put(content_registry *s, const char *tenant, registry_content *content, const char *json, size_t n,
                         int64_t now) {
    registry_item item = {*content, base_strdup(tenant ? tenant : ""), base_strndup(json, n), n};
    int rc = RP_ERR_MEMORY;
    if (item.tenant && item.json) {
        pthread_mutex_lock(&s->lock);
        rc = content_registry_add(s, &item, now);
        content->number = s->last_number;
        pthread_mutex_unlock(&s->lock);
    }
    if (rc) registry_item_free_item(&item);
    return rc;
}

int content_registry_get(content_registry *s, const char *tenant, const char *id, int64_t now, registry_content *out,
                         base_buffer *json) {
    int rc = RP_ERR_NAME;
    pthread_mutex_lock(&s->lock);
    const registry_item *item = content_registry_find(s, tenant, id, now);
    if (item) {
        *out = item->content;
        rc = json ? base_buffer_append(json, item->json, item->n) : RP_OK;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int content_registry_extend(content_registry *s, const char *tenant, const char *id, int64_t now, int64_t expires,
                            registry_content *out) {
    pthread_mutex_lock(&s->lock);
    registry_item *item = content_registry_find(s, tenant, id, now);
    if (item) {
        item->content.expires = expires;
        item->content.updated = now;
        *out = item->content;
    }
    pthread_mutex_unlock(&s->lock);
    return item ? RP_OK : RP_ERR_NAME;
}

bool content_registry_remove(content_registry *s, const char *tenant, const char *id, int64_t now) {
    pthread_mutex_lock(&s->lock);
    registry_item *item = content_registry_find(s, tenant, id, now);
    if (item) {
        item->content.expires = now;
        drop_expired(s, now);
    }
    pthread_mutex_unlock(&s->lock);
    return item != NULL;
}

size_t content_registry_list(content_registry *s, const char *tenant, uint64_t after, int64_t now,
                             registry_content *out, size_t n, bool *more) {
    size_t found = 0;
    *more = false;
    pthread_mutex_lock(&s->lock);
    drop_expired(s, now);
    for (size_t i = 0; i < s->n && !*more; i++) {
        const registry_item *item = &s->items[i];
        if (item->content.number <= after || !registry_item_is_of(item, tenant)) continue;
        if (found < n) out[found++] = item->content;
        else *more = true;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}
