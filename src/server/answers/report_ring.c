/* SPDX-License-Identifier: Apache-2.0 */
/* report_ring.c: see report_ring.h. */
#include "server/answers/report_ring.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

/* One allocation: id, tenant, text and line, each with its NUL. */
typedef struct kept_report {
    char *id;
    const char *tenant, *text, *line;
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

/* Copies a string to *at and advances *at past it. */
static const char *report_ring_copy(char **at, const char *text) {
    size_t n = strlen(text) + 1;
    char *to = *at;
    memcpy(to, text, n);
    *at += n;
    return to;
}

static bool kept_report_make(kept_report *k, const char *id, const char *tenant, const char *text, const char *line) {
    size_t n = strlen(text);
    const size_t bytes = strlen(id) + strlen(tenant) + n + strlen(line) + 4;
    char *at = n <= SERVER_MAX_REPORT_BYTES ? base_alloc(bytes) : NULL;
    if (!at) return false;
    k->id = at;
    report_ring_copy(&at, id);
    k->tenant = report_ring_copy(&at, tenant);
    k->text = report_ring_copy(&at, text);
    k->line = report_ring_copy(&at, line);
    BASE_ASSERT(at == k->id + bytes);
    return true;
}

void report_ring_put(report_ring *r, const char *id, const char *tenant, const char *text, const char *line) {
    kept_report kept;
    if (!kept_report_make(&kept, id, tenant ? tenant : "", text, line)) return;
    pthread_mutex_lock(&r->lock);
    BASE_ASSERT(r->next < SERVER_MAX_REPORTS);
    kept_report old = r->items[r->next];
    r->items[r->next] = kept;
    r->next = (r->next + 1) % SERVER_MAX_REPORTS;
    pthread_mutex_unlock(&r->lock);
    base_free(old.id);
}

static bool kept_report_is_of(const kept_report *k, const char *tenant) {
    return k->id && strcmp(k->tenant, tenant ? tenant : "") == 0;
}

int report_ring_get(report_ring *r, const char *id, const char *tenant, base_buffer *out) {
    int rc = RP_ERR_NAME;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < SERVER_MAX_REPORTS && rc == RP_ERR_NAME; i++) {
        const kept_report *k = &r->items[i];
        if (kept_report_is_of(k, tenant) && strcmp(k->id, id) == 0) rc = base_buffer_append_str(out, k->text);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int report_ring_list(report_ring *r, const char *tenant, size_t n, base_buffer *out, bool *more) {
    size_t found = 0;
    int rc = RP_OK;
    *more = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 1; i <= SERVER_MAX_REPORTS && !*more && !rc; i++) {
        const kept_report *k = &r->items[(r->next + SERVER_MAX_REPORTS - i) % SERVER_MAX_REPORTS];
        if (!kept_report_is_of(k, tenant)) continue;
        *more = found == n;
        if (*more) break;
        if (found++ > 0) rc = base_buffer_append_str(out, ",");
        if (!rc) rc = base_buffer_append_str(out, k->line);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}
