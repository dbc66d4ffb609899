/* SPDX-License-Identifier: Apache-2.0 */
/* response_registry.c: see response_registry.h. An array in order of arrival; removed entries are taken out of it. */
#include "server/answers/response_registry.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

/* One allocation: id, tenant and text, the first two with their NUL. */
typedef struct kept_response {
    char *id;
    const char *tenant, *text;
    size_t n;
} kept_response;

struct response_registry {
    pthread_mutex_t lock;
    kept_response items[SERVER_MAX_RESPONSES]; /* the oldest first */
    size_t n, bytes;
};

int response_registry_new(response_registry **out, rp_error *err) {
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "answers");
    pthread_mutex_init(&(*out)->lock, NULL);
    return RP_OK;
}

void response_registry_free(response_registry *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) base_free(s->items[i].id);
    pthread_mutex_destroy(&s->lock);
    base_free(s);
}

static bool kept_response_make(kept_response *k, const char *id, const char *tenant, const char *text, size_t n) {
    size_t id_bytes = strlen(id) + 1, tenant_bytes = strlen(tenant) + 1;
    char *p = n <= SERVER_MAX_RESPONSE_BYTES ? base_alloc(id_bytes + tenant_bytes + n) : NULL;
    if (!p) return false;
    memcpy(p, id, id_bytes);
    memcpy(p + id_bytes, tenant, tenant_bytes);
    memcpy(p + id_bytes + tenant_bytes, text, n);
    *k = (kept_response){p, p + id_bytes, p + id_bytes + tenant_bytes, n};
    return true;
}

static void response_registry_take_out(response_registry *s, size_t i) {
    BASE_ASSERT(i < s->n && s->bytes >= s->items[i].n);
    s->bytes -= s->items[i].n;
    base_free(s->items[i].id);
    s->n--;
    memmove(&s->items[i], &s->items[i + 1], (s->n - i) * sizeof(s->items[0]));
}

typedef struct tenant_share {
    size_t n, bytes, oldest;
} tenant_share;

static tenant_share response_registry_share_of(const response_registry *s, const char *tenant) {
    tenant_share share = {0};
    for (size_t i = s->n; i-- > 0;) {
        if (strcmp(s->items[i].tenant, tenant) != 0) continue;
        share.n++;
        share.bytes += s->items[i].n;
        share.oldest = i;
    }
    return share;
}

/* The oldest of the tenant that has most bytes. */
static size_t find_victim(const response_registry *s) {
    tenant_share most = {0};
    for (size_t i = 0; i < s->n; i++) {
        bool is_new = true;
        for (size_t k = 0; k < i && is_new; k++) is_new = strcmp(s->items[k].tenant, s->items[i].tenant) != 0;
        tenant_share share = is_new ? response_registry_share_of(s, s->items[i].tenant) : (tenant_share){0};
        if (share.bytes > most.bytes) most = share;
    }
    BASE_ASSERT(most.oldest < s->n);
    return most.oldest;
}

void response_registry_put(response_registry *s, const char *id, const char *tenant, const char *text, size_t n) {
    kept_response kept;
    if (!kept_response_make(&kept, id, tenant ? tenant : "", text, n)) return;
    pthread_mutex_lock(&s->lock);
    tenant_share own;
    while ((own = response_registry_share_of(s, kept.tenant)).n > 0 &&
           (own.n >= SERVER_MAX_TENANT_RESPONSES || own.bytes + n > SERVER_MAX_TENANT_RESPONSES_BYTES))
        response_registry_take_out(s, own.oldest);
    while (s->n == SERVER_MAX_RESPONSES || (s->n > 0 && s->bytes + n > SERVER_MAX_RESPONSES_BYTES))
        response_registry_take_out(s, find_victim(s));
    BASE_ASSERT(s->n < SERVER_MAX_RESPONSES && s->bytes + n <= SERVER_MAX_RESPONSES_BYTES); /* invariant 6 */
    s->items[s->n++] = kept;
    s->bytes += n;
    pthread_mutex_unlock(&s->lock);
}

/* s->n: there is none. Locked. */
static size_t response_registry_find(const response_registry *s, const char *id, const char *tenant) {
    size_t i = 0;
    while (i < s->n && (strcmp(s->items[i].id, id) != 0 || strcmp(s->items[i].tenant, tenant ? tenant : "") != 0)) i++;
    return i;
}

int response_registry_get(response_registry *s, const char *id, const char *tenant, base_buffer *out) {
    pthread_mutex_lock(&s->lock);
    size_t i = response_registry_find(s, id, tenant);
    int rc = i < s->n ? base_buffer_append(out, s->items[i].text, s->items[i].n) : RP_ERR_NAME;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int response_registry_remove(response_registry *s, const char *id, const char *tenant) {
    pthread_mutex_lock(&s->lock);
    size_t i = response_registry_find(s, id, tenant);
    bool found = i < s->n;
    if (found) response_registry_take_out(s, i);
    pthread_mutex_unlock(&s->lock);
    return found ? RP_OK : RP_ERR_NAME;
}
