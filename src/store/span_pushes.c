/* SPDX-License-Identifier: Apache-2.0 */
/* span_pushes.c: see span_pushes.h. */
#include "store/span_pushes.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

#define MAX_TENANTS ((size_t)1 << 20)

static span_entry *entry_at(const span_pushes *p, uint32_t i) { return &p->places->index.entries[i]; }

void span_pushes_close(span_pushes *p) {
    base_free(p->tenants);
    p->tenants = NULL;
    p->n_tenants = p->cap_tenants = 0;
    p->pool = NULL;
}

/* ---- tenants ---- */

static size_t tenant_index(const span_pushes *p, uint32_t tenant) {
    size_t low = 0, high = p->n_tenants;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (p->tenants[mid].tenant < tenant) low = mid + 1;
        else high = mid;
    }
    return low;
}

int span_pushes_know(span_pushes *p, const base_key *salt) {
    const uint32_t tenant = span_tenant(salt);
    const size_t i = tenant_index(p, tenant);
    if (!p->pool || (i < p->n_tenants && p->tenants[i].tenant == tenant)) return RP_OK; /* of two salts with one number
                                                                                          the first */
    const int rc = base_grow((void **)&p->tenants, &p->cap_tenants, p->n_tenants + 1, MAX_TENANTS, sizeof(*p->tenants));
    if (rc) return rc;
    memmove(p->tenants + i + 1, p->tenants + i, (p->n_tenants++ - i) * sizeof(*p->tenants));
    p->tenants[i] = (span_tenant_salt){tenant, *salt};
    return RP_OK;
}

/* ---- queues ---- */

static void enqueue(span_pushes *p, span_push_queue *q, const base_key *key) {
    if (q->n == SPAN_PUSHES_QUEUED) p->places->stats.pool_unwritten++;
    else q->keys[(q->first + q->n++) % SPAN_PUSHES_QUEUED] = *key;
}

static void set_due(span_pushes *p, uint32_t i) {
    span_entry *e = entry_at(p, i);
    if (e->push_is_due || !e->push_row) return;
    e->push_is_due = true;
    enqueue(p, &p->due, &e->key);
}

void span_pushes_add(span_pushes *p, uint32_t i, const record *r, bool seen) {
    span_entry *e = entry_at(p, i);
    if (!p->pool || (r->kind != RECORD_MODULE && r->kind != RECORD_TEXT)) return;
    BASE_ASSERT(e->span && !e->push_row);
    if (!(e->push_row = record_row_new(r, e->span, p->fingerprint))) {
        p->places->stats.pool_unwritten++;
        return;
    }
    if (r->kind == RECORD_MODULE || seen || e->use.uses > 1) set_due(p, i);
    else enqueue(p, &p->once, &e->key);
}

void span_pushes_use(span_pushes *p, uint32_t i) {
    if (p->pool && entry_at(p, i)->use.uses > 1) set_due(p, i);
}

/* false: the pool does not accept it now. */
static bool push(span_pushes *p, uint32_t i) {
    span_entry *e = entry_at(p, i);
    const size_t at = tenant_index(p, e->tenant);
    rp_name names[REMOTE_POOL_NAMES];
    const bool is_known = at < p->n_tenants && p->tenants[at].tenant == e->tenant;
    const int n = e->kind == RECORD_TEXT && e->owner ? p->names(p->names_user, e->owner, names, REMOTE_POOL_NAMES) : 0;
    if (!is_known || span_entry_place(e) == TIER_RAM) {
        p->places->stats.pool_unwritten++;
        return true;
    }
    const int rc = remote_pool_push(p->pool, e->push_row, e->span, names, n, &p->tenants[at].salt);
    if (rc == RP_ERR_BUSY) return false;
    if (rc) p->places->stats.pool_unwritten++;
    else e->push_row = NULL;
    return true;
}

/* false: the pool does not accept more now. Keys whose entries were pushed, or left memory, are skipped. */
static bool push_queue(span_pushes *p, span_push_queue *q) {
    while (q->n > 0) {
        const uint32_t i = span_index_find(&p->places->index, &q->keys[q->first]);
        const bool is_waiting = i != SPAN_INDEX_NONE && entry_at(p, i)->push_row && entry_at(p, i)->span;
        if (is_waiting && !push(p, i)) return false;
        q->first = (q->first + 1) % SPAN_PUSHES_QUEUED;
        q->n--;
    }
    return true;
}

void span_pushes_continue(span_pushes *p) {
    if (p->pool && push_queue(p, &p->due)) push_queue(p, &p->once);
}

void span_pushes_take(span_pushes *p, const remote_event *event) {
    rp_store_stats *stats = &p->places->stats;
    BASE_ASSERT(event->kind == REMOTE_PUSHED && event->span);
    if (event->failed) stats->pool_unwritten++;
    else if (event->was_there) stats->pool_present++;
    else stats->pool_writes++;
    stats->pool_write_bytes += event->bytes;
}
