/* report_ring.c: see report_ring.h. */
#include "server/report_ring.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* One allocation: id, tenant and text, each with its NUL. */
typedef struct kept_report {
    char *id;
    const char *tenant, *text;
    size_t n;
} kept_report;

struct report_ring {
    pthread_mutex_t lock;
    kept_report items[SERVER_MAX_REPORTS];
    size_t next;
};

int report_ring_new(report_ring **out, rp_error *err) {
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "reports");
    pthread_mutex_init(&(*out)->lock, NULL);
    return RP_OK;
}

void report_ring_free(report_ring *r) {
    if (!r) return;
    for (size_t i = 0; i < SERVER_MAX_REPORTS; i++) base_free(r->items[i].id);
    pthread_mutex_destroy(&r->lock);
    base_free(r);
}

static bool make(kept_report *k, const char *id, const char *tenant, const char *text, size_t n) {
    size_t id_bytes = strlen(id) + 1, tenant_bytes = strlen(tenant) + 1;
    char *p = n <= SERVER_MAX_REPORT_BYTES ? base_alloc(id_bytes + tenant_bytes + n) : NULL;
    if (!p) return false;
    memcpy(p, id, id_bytes);
    memcpy(p + id_bytes, tenant, tenant_bytes);
    memcpy(p + id_bytes + tenant_bytes, text, n);
    *k = (kept_report){p, p + id_bytes, p + id_bytes + tenant_bytes, n};
    return true;
}

void report_ring_put(report_ring *r, const char *id, const char *tenant, const char *text, size_t n) {
    kept_report kept;
    if (!make(&kept, id, tenant ? tenant : "", text, n)) return;
    pthread_mutex_lock(&r->lock);
    kept_report old = r->items[r->next];
    r->items[r->next] = kept;
    r->next = (r->next + 1) % SERVER_MAX_REPORTS;
    pthread_mutex_unlock(&r->lock);
    base_free(old.id);
}

int report_ring_get(report_ring *r, const char *id, const char *tenant, base_buffer *out) {
    int rc = RP_ERR_NAME;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < SERVER_MAX_REPORTS && rc == RP_ERR_NAME; i++) {
        const kept_report *k = &r->items[i];
        if (k->id && strcmp(k->id, id) == 0 && strcmp(k->tenant, tenant ? tenant : "") == 0) rc = base_buffer_append(out, k->text, k->n);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}
