/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_open.c: see span_store.h: opening a store and its tier, and closing them. */
#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/span_store_internal.h"
#include "reprise_store.h"

#define NONE SPAN_STORE_NONE

int span_store_new(span_store **out, kv_pool *pool, rp_error *err) {
    span_store *s = base_calloc(1, sizeof(*s));
    *out = s;
    if (!s) return base_fail_memory(err, sizeof(*s), "the store");
    span_write_back_init(&s->writes, &s->places);
    s->pushes.places = &s->places;
    if (span_places_open(&s->places, pool) == RP_OK) return RP_OK;
    span_store_free(s);
    *out = NULL;
    return base_fail_memory(err, sizeof(*s), "the store");
}

/* ---- the tier's records ---- */

typedef struct known_entry {
    int64_t last_use;
    uint64_t bytes;
    uint32_t entry;
    kv_span_form *form; /* NULL: the entry has it */
    bool is_own;        /* this model's, with its arrays: it can be read */
    bool lost;          /* a text, or states, that its content does not name */
} known_entry;

typedef struct opening {
    span_store *s;
    span_store_own own;
    void *user;
    known_entry *known;
    size_t n, cap;
    const span_store_disk *disk;
    size_t n_other_arithmetic;
} opening;

static void set_known(span_entry *e, const record_row *row, void *owner) {
    e->owner = owner;
    e->cost_us = row->record.cost_us;
    e->tenant = row->record.tenant;
    e->kind = row->record.kind;
    e->parent = row->record.parent;
    span_entry_set_label(e, row->record.label);
    e->use = row->use;
    e->ttl_s = row->use.expires > 0 ? BASE_MAX(row->use.expires - row->use.last_use, 1) : 0;
    e->is_noted = true;
}

/* Records of other models are entries, too, unreadable ones, which may have the key of a text of this model: they count
 * towards the budget, and can be evicted. */
static int know_record(void *user, const record_row *row, rp_error *err) {
    opening *o = user;
    span_store *s = o->s;
    span_claim claim = {.is_known = true};
    known_entry known = {.last_use = row->use.last_use, .bytes = row->bytes};
    uint32_t i;
    int rc = RP_OK;
    for (size_t k = 0; k < o->disk->n_others; k++)
        o->n_other_arithmetic += base_key_equal(&row->fingerprint, &o->disk->others[k]);
    if (base_grow((void **)&o->known, &o->cap, o->n + 1, SPAN_STORE_MAX, sizeof(*o->known)))
        return base_fail_memory(err, o->cap * sizeof(*o->known), "the records of a store");
    known.form = span_places_copy_form(&s->places, &row->record.form, row->n_layers, &known.is_own);
    if (!known.form) return base_fail_memory(err, sizeof(*known.form), "a record");
    known.is_own &= base_key_equal(&row->fingerprint, &s->format->fingerprint);
    if (known.is_own && record_is_of_text(row->record.kind)) {
        claim.is_known = false;
        rc = o->own(o->user, row, &claim, err);
    }
    if (!rc && (rc = span_index_add(&s->places.index, &row->record.key, &i)))
        rc = base_fail(err, rc, "the store has %zu spans and cannot take another", s->places.index.n_used);
    if (rc) {
        base_free(known.form);
        return rc;
    }
    set_known(span_store_entry(s, i), row, claim.owner);
    known.lost = !claim.is_known;
    known.entry = i;
    o->known[o->n++] = known;
    return RP_OK;
}

static int compare_use(const void *a, const void *b) {
    const known_entry *x = a, *y = b;
    if (x->last_use != y->last_use) return x->last_use < y->last_use ? -1 : 1;
    return (x->entry > y->entry) - (x->entry < y->entry);
}

/* The longer a record was idle, the larger the part of its stay that has passed. */
static int enter_known(span_store *s, opening *o, rp_error *err) {
    int rc = RP_OK;
    if (o->n > 0) qsort(o->known, o->n, sizeof(*o->known), compare_use);
    for (size_t k = 0; k < o->n && !rc; k++) {
        known_entry *known = &o->known[k];
        rc = span_places_enter_disk(&s->places, known->entry, known->form, known->is_own, known->bytes,
                                    1 - (float)(k + 1) / (float)o->n);
        if (rc) break;
        known->form = NULL;
        span_store_entry(s, known->entry)->places[TIER_DISK].is_written = true;
        span_budget_watch(&s->places.budget, known->entry);
    }
    if (rc) return base_fail_memory(err, o->n * sizeof(*o->known), "the records of a store");
    for (size_t k = 0; k < o->n; k++)
        if (o->known[k].lost) span_places_drop(&s->places, o->known[k].entry);
    span_budget_settle(&s->places.budget);
    return RP_OK;
}

/* ---- opening ---- */

/* One attempt to open; RP_ERR_IO: errno is the cause. */
static int open_tier(span_store *s, const span_store_disk *disk, bool read_only, span_store_own own, void *user,
                     rp_error *err) {
    opening o = {.s = s, .own = own, .user = user, .disk = disk};
    s->read_only = read_only;
    s->writes.mode = read_only ? SPAN_STORE_WRITE_OFF : disk->write;
    const tier_terms terms = {
        .read_only = read_only,
        .adds = s->writes.mode != SPAN_STORE_WRITE_OFF,
        .budget_bytes = disk->budget_bytes,
        .format = disk->format,
        .notify = disk->notify,
        .notify_user = disk->notify_user,
        .fn = know_record,
        .user = &o,
    };
    int rc = disk->source.open(&s->places.tier, disk->source.options, &terms, err), cause = errno;
    BASE_ASSERT((rc == RP_OK) == (s->places.tier != NULL));
    if (!rc) rc = enter_known(s, &o, err);
    if (!rc && o.n_other_arithmetic > 0)
        base_log(BASE_LOG_WARN,
                 "store: %zu records of this model were computed with different rounding (REPRISE_CPU, or another "
                 "processor): "
                 "they are misses here, and are kept",
                 o.n_other_arithmetic);
    BASE_ASSERT(rc != RP_ERR_IO || o.n == 0); /* no record is reported twice: these errors come before the first one */
    for (size_t k = 0; k < o.n; k++) base_free(o.known[k].form);
    base_free(o.known);
    errno = cause;
    return rc;
}

/* A tier that cannot be written now is opened read-only, and one that cannot be read is left out: an engine does not
 * depend on it. Problems that the user must correct are errors: another program's folder, a budget, another process. */
int span_store_open_disk(span_store *s, const span_store_disk *disk, span_store_own own, void *user, rp_error *err) {
    rp_error why, again;
    BASE_ASSERT(!s->places.tier && s->places.stats.inserts == 0); /* once, before the first span */
    s->format = disk->format;
    s->writes.fingerprint = &disk->format->fingerprint;
    s->places.budget.bytes[TIER_DISK] = s->places.stats.disk_budget_bytes = disk->budget_bytes;
    s->places.stats.disk_state = RP_STORE_WORKS;
    int rc = open_tier(s, disk, disk->source.read_only, own, user, &why);
    if (rc == RP_ERR_IO) {
        const char *trouble = tier_trouble_name(errno);
        const int second = disk->source.read_only ? RP_ERR_IO : open_tier(s, disk, true, own, user, &again);
        if (second != RP_OK && second != RP_ERR_IO) {
            rc = second;
            why = again;
        } else {
            rc = RP_OK;
            s->places.stats.disk_state = second ? RP_STORE_UNUSABLE : RP_STORE_READ_ONLY;
            s->places.stats.disk_trouble = trouble;
            base_log(BASE_LOG_WARN, "store: %s%s%s: continuing %s", why.where, why.where[0] ? ": " : "", why.message,
                     second ? "without the disk tier: nothing is read or written"
                            : "read-only: the disk tier serves hits, nothing is added");
        }
        s->read_only = true;
        s->writes.mode = SPAN_STORE_WRITE_OFF;
    }
    if (rc && err) *err = why;
    return rc;
}

/* ---- closing ---- */

/* Writes all queued spans until the deadline. Returns the number of spans that were not written. */
static size_t flush(span_store *s, uint64_t deadline_us) {
    span_places *p = &s->places;
    span_store_set_computing(s, false);
    s->writes.closing = true;
    tier_set_deadline(p->tier, deadline_us);
    const uint64_t before = p->stats.disk_unwritten;
    while (span_write_back_has_queued(&s->writes) && base_clock_us() < deadline_us &&
           base_clock_us() >= s->writes.retry_us) {
        const uint64_t n = p->stats.disk_waiting;
        span_store_poll(s);
        if (p->stats.disk_waiting != n) continue;
        if (!span_store_is_busy(s)) break; /* it waits for memory, which nobody frees any more */
        tier_wait(p->tier);
    }
    s->writes.mode = SPAN_STORE_WRITE_OFF; /* nothing more is started; the tier's writes end soon */
    while (p->index.lists[LIST_WRITING].oldest != NONE && span_store_is_busy(s)) {
        tier_wait(p->tier);
        span_store_poll(s);
    }
    uint64_t bytes = 0;
    for (int list = LIST_DUE; list < N_LISTS; list++) bytes += p->waiting_bytes[list];
    const size_t n_lost = (size_t)(p->stats.disk_waiting + p->stats.disk_unwritten - before);
    if (n_lost > 0)
        base_log(BASE_LOG_WARN,
                 "store: %zu spans (%llu KV bytes) were not written before the end: they are recomputed when needed",
                 n_lost, (unsigned long long)bytes);
    return n_lost;
}

size_t span_store_close(span_store *s, uint64_t deadline_us) {
    if (!s) return 0;
    const size_t n_lost = s->places.tier ? flush(s, deadline_us) : 0;
    for (uint32_t i = 0; s->places.tier && i < s->places.index.n_entries; i++) span_places_note(&s->places, i);
    span_pushes_close(&s->pushes);
    span_places_close(&s->places);
    base_free(s);
    return n_lost;
}

void span_store_free(span_store *s) { span_store_close(s, UINT64_MAX); }
