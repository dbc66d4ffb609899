/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_disk.c: see span_store.h: records on disk and reads of them; opening and closing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE
bool span_store_is_busy(const span_store *s) { return s->tier && tier_measure(s->tier).is_busy; }
bool span_store_writes_through(const span_store *s) { return s->tier && s->write == SPAN_STORE_WRITE_THROUGH; }
void span_store_next_request(span_store *s) { s->request++; }
uint64_t span_store_put_serial(const span_store *s) { return s->tier ? s->tier->serial : 0; }
uint64_t span_store_flushed(const span_store *s) { return s->flushed; }
double span_store_read_byte_us(const span_store *s) { return s->tier ? tier_measure(s->tier).read_byte_us : 0; }
int span_store_keep_audit(span_store *s, char *bytes, size_t n) {
    return s->tier && s->write != SPAN_STORE_WRITE_OFF ? tier_keep_audit(s->tier, bytes, n) : RP_ERR_CONFLICT;
}

/* ---- records on disk ---- */

span_file *span_store_new_file(const span_store *s, const kv_span_form *form, int32_t n_layers) {
    const kv_shape *own = kv_pool_shape(s->pool);
    const bool is_own = n_layers == own->n_layers && (!form->slots || form->n_kv_heads == own->n_kv_heads);
    span_file *f = base_calloc(1, sizeof(*f) + (is_own ? kv_form_bytes(form, n_layers) : (size_t)own->n_layers));
    if (!f) return NULL;
    f->unreadable = !is_own;
    f->form = *form;
    f->form.slots = NULL;
    f->form.kept = (uint8_t *)f->arrays;
    if (is_own) f->form = kv_form_copy(form, n_layers, f->arrays);
    return f;
}

int span_store_enter_disk(span_store *s, uint32_t i, span_file *f, float idle) {
    BASE_ASSERT(!s->entries[i].file);
    s->entries[i].file = f;
    int rc = span_store_enter_tier(s, TIER_DISK, i, f->bytes, idle);
    if (rc) {
        s->entries[i].file = NULL;
        return rc;
    }
    s->stats.disk_spans++;
    s->stats.disk_bytes += f->bytes;
    return RP_OK;
}

void span_store_forget_file(span_store *s, uint32_t i, bool for_room) {
    span_entry *e = &s->entries[i];
    span_store_end_write(s, i);
    span_store_leave_tier(s, TIER_DISK, i, for_room);
    s->stats.disk_spans--;
    s->stats.disk_bytes -= e->file->bytes;
    base_free(e->file);
    e->file = NULL;
    span_store_set_cost(s, i);
    span_store_report(s, i);
}

/* A queued write continues, and the removal after it in the queue deletes its file. */
void span_store_leave_disk(span_store *s, uint32_t i, tier_removal how, bool for_room) {
    tier_remove(s->tier, &s->entries[i].key, how);
    span_store_forget_file(s, i, for_room);
}

/* ---- reading ---- */

kv_span *span_store_read(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    kv_span *span;
    int64_t blocks = (int64_t)(span_store_idle_bytes_of(s, &e->key) / kv_pool_block_bytes(s->pool));
    if (blocks > span_store_free_blocks(s)) return NULL;
    if (kv_span_restore(&span, s->pool, &e->file->form, &e->key, NULL)) return NULL;
    e->arriving = true;
    if (span_store_enter_ram(s, i, span)) {
        kv_span_unref(span);
        return NULL;
    }
    if (tier_read(s->tier, span, s->request) == RP_OK) {
        span_store_fit_quota(s, e->tenant);
        return span;
    }
    kv_span_unref(span);
    span_store_leave_ram(s, i, false);
    return NULL;
}

/* An entry that could not be read is removed with its last reference. A corrupt record is quarantined; one that the
 * disk could not read stays, and is not read again. */
static void fail_entry(span_store *s, uint32_t i, const tier_event *event) {
    span_entry *e = &s->entries[i];
    bool stays = event->fault == RECORD_FAULT_IO || event->fault == RECORD_FAULT_MEMORY || event->fault == RECORD_FAULT_CIPHER ||
                 event->fault == RECORD_FAULT_VERSION;
    s->stats.disk_faults++;
    base_log(BASE_LOG_WARN, "store: a record is %s (%s): %s", stays ? "ignored" : "set aside", record_fault_name(event->fault),
             event->err.message);
    span_store_fail(s, i);
    if (!e->file) return;
    e->file->unreadable = true;
    span_store_set_cost(s, i);
    span_store_report(s, i);
    if (!stays) span_store_leave_disk(s, i, event->fault == RECORD_FAULT_GONE ? TIER_EVICT : TIER_SET_ASIDE, false);
}

void span_store_drop_failed(span_store *s) {
    for (uint32_t i = s->lists[LIST_RAM].newest, next; i != NONE && s->n_failed > 0; i = next) {
        next = s->entries[i].links[LIST_RAM].older;
        if (!s->entries[i].failed || !kv_span_is_unshared(s->entries[i].span)) continue;
        span_store_leave_ram(s, i, false);
        s->entries[i].failed = false;
        s->n_failed--;
        span_store_report(s, i);
        if (!s->entries[i].file) span_store_forget(s, i);
    }
}

/* ---- the budget ---- */

uint64_t span_store_disk_limit(const span_store *s) {
    const uint64_t overhead = tier_measure(s->tier).overhead_bytes;
    return s->disk_budget > overhead ? s->disk_budget - overhead : 0;
}

/* ---- events of the disk tier ---- */

static void take_read(span_store *s, const tier_event *event) {
    uint32_t i = span_store_find(s, &event->key);
    bool own = i != NONE && s->entries[i].span == event->span;
    s->stats.disk_reads++;
    s->stats.disk_read_bytes += event->bytes;
    if (event->failed && own) fail_entry(s, i, event);
}

bool span_store_poll(span_store *s) {
    tier_event event;
    bool any = false;
    span_store_sweep(s);
    while (s->tier && tier_next(s->tier, &event)) {
        if (event.kind == TIER_READ) take_read(s, &event);
        else if (event.kind == TIER_WRITTEN) span_store_take_write(s, &event);
        else span_store_take_sync(s, &event);
        kv_span_unref(event.span);
        any = true;
    }
    if (s->n_failed > 0) span_store_drop_failed(s);
    span_store_write_waiting(s);
    span_store_start_syncs(s);
    return any;
}

/* ---- opening and closing ---- */

typedef struct known_entry {
    int64_t last_use;
    uint32_t entry;
    span_file *file; /* NULL: the entry has it */
    bool lost;       /* a text without a path to a root */
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

static void know_use(span_entry *e, const record_row *row) {
    e->cost_us = row->record.cost_us;
    e->tenant = row->record.tenant;
    e->kind = row->record.kind;
    e->parent = row->record.parent;
    span_store_set_label(e, row->record.label);
    e->uses = row->use.uses;
    e->last_use = row->use.last_use;
    e->expires = row->use.expires;
    e->ttl_s = row->use.expires > 0 ? BASE_MAX(row->use.expires - row->use.last_use, 1) : 0;
    e->pinned = row->use.pinned;
    e->noted = true;
}

/* Records of other models are entries, too, without hits: they count towards the budget, and can be evicted. */
static int know_record(void *user, const record_row *row, rp_error *err) {
    opening *o = user;
    span_store *s = o->s;
    bool asks = base_key_equal(&row->fingerprint, &s->format->fingerprint) && row->record.kind == RECORD_TEXT;
    void *owner = NULL;
    uint32_t i;
    for (size_t k = 0; k < o->disk->n_others; k++) o->n_other_arithmetic += base_key_equal(&row->fingerprint, &o->disk->others[k]);
    int rc = asks ? o->own(o->user, row, &owner, err) : RP_OK;
    if (!rc && base_grow((void **)&o->known, &o->cap, o->n + 1, SPAN_STORE_MAX, sizeof(*o->known)))
        rc = base_fail_memory(err, o->cap * sizeof(*o->known), "the records of a store");
    if (rc) return rc;
    span_file *f = span_store_new_file(s, &row->record.form, row->n_layers);
    if (!f) return base_fail_memory(err, sizeof(*f), "a record");
    if ((rc = span_store_take_entry(s, &row->record.key, owner, &i, err))) {
        base_free(f);
        return rc;
    }
    f->bytes = row->bytes;
    f->written = true;
    know_use(&s->entries[i], row);
    s->entries[i].is_foreign = !base_key_equal(&row->fingerprint, &s->format->fingerprint);
    o->known[o->n++] = (known_entry){row->use.last_use, i, f, asks && !owner};
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
    for (size_t k = 0; k < o->n; k++) {
        known_entry *known = &o->known[k];
        if (!rc) rc = span_store_enter_disk(s, known->entry, known->file, 1 - (float)(k + 1) / (float)o->n);
        if (rc) continue;
        known->file = NULL;
        span_store_watch(s, known->entry);
    }
    if (rc) return base_fail_memory(err, o->n * sizeof(*o->known), "the records of a store");
    for (size_t k = 0; k < o->n; k++)
        if (o->known[k].lost) span_store_drop(s, &s->entries[o->known[k].entry].key);
    span_store_settle_disk(s);
    return RP_OK;
}

/* One attempt to open; RP_ERR_IO: errno is the cause. */
static int open_tier(span_store *s, const span_store_disk *disk, bool read_only, span_store_own own, void *user, rp_error *err) {
    opening o = {.s = s, .own = own, .user = user, .disk = disk};
    s->read_only = read_only;
    s->write = read_only ? SPAN_STORE_WRITE_OFF : disk->write;
    const tier_terms terms = {
        .read_only = read_only,
        .adds = s->write != SPAN_STORE_WRITE_OFF,
        .budget_bytes = disk->budget_bytes,
        .format = disk->format,
        .notify = disk->notify,
        .notify_user = disk->notify_user,
        .fn = know_record,
        .user = &o,
    };
    int rc = disk->source.open(&s->tier, disk->source.options, &terms, err), cause = errno;
    if (!rc) rc = enter_known(s, &o, err);
    if (!rc && o.n_other_arithmetic > 0)
        base_log(BASE_LOG_WARN, "store: %zu records of this model were computed with different rounding (REPRISE_CPU, "
                                "or another processor): they are misses here, and are kept",
                 o.n_other_arithmetic);
    BASE_ASSERT(rc != RP_ERR_IO || o.n == 0); /* no record is reported twice: these errors come before the first one */
    for (size_t k = 0; k < o.n; k++) base_free(o.known[k].file);
    base_free(o.known);
    errno = cause;
    return rc;
}

static void warn_degraded(span_store *s, rp_store_state state, const char *trouble, const rp_error *err) {
    s->stats.disk_state = state;
    s->stats.disk_trouble = trouble;
    base_log(BASE_LOG_WARN, "store: %s%s%s: continuing %s", err->where, err->where[0] ? ": " : "", err->message,
             state == RP_STORE_READ_ONLY ? "read-only: the disk tier serves hits, nothing is added"
                                         : "without the disk tier: nothing is read or written");
}

/* A store that cannot be written now is opened read-only, and one that cannot be read is left out: an engine does not
 * depend on it. Problems that the user must correct are errors: another program's folder, a budget, another process. */
int span_store_open_disk(span_store *s, const span_store_disk *disk, span_store_own own, void *user, rp_error *err) {
    rp_error why, again;
    s->format = disk->format;
    s->disk_budget = s->stats.disk_budget_bytes = disk->budget_bytes;
    s->stats.disk_state = RP_STORE_WORKS;
    int rc = open_tier(s, disk, disk->source.read_only, own, user, &why);
    if (rc == RP_ERR_IO) {
        const char *trouble = tier_trouble_name(errno);
        int second = disk->source.read_only ? RP_ERR_IO : open_tier(s, disk, true, own, user, &again);
        if (second != RP_OK && second != RP_ERR_IO) rc = second, why = again;
        else rc = RP_OK, warn_degraded(s, second ? RP_STORE_UNUSABLE : RP_STORE_READ_ONLY, trouble, &why);
        s->read_only = true;
        s->write = SPAN_STORE_WRITE_OFF;
    }
    if (rc && err) *err = why;
    return rc;
}

void span_store_fit_disk(span_store *s) {
    if (!span_store_can_write(s)) return;
    for (size_t k = 0; k < s->n_quotas; k++) span_store_make_disk_space(s, s->quotas[k].tenant, 0, NULL);
    span_store_make_disk_space(s, 0, 0, NULL);
}

void span_store_settle_writer(span_store *s) {
    if (span_store_can_write(s)) tier_settle(s->tier);
}

void span_store_note_use(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    if (e->file && !e->noted) tier_note(s->tier, &e->key, &(record_use){e->uses, e->last_use, e->expires, e->pinned});
}

size_t span_store_close(span_store *s, uint64_t deadline_us) {
    if (!s) return 0;
    size_t n_lost = s->tier ? span_store_flush(s, deadline_us) : 0;
    for (uint32_t i = 0; s->tier && i < s->n_entries; i++) span_store_note_use(s, i);
    tier_close(s->tier);
    for (size_t i = 0; i < s->n_entries; i++) {
        kv_span_unref(s->entries[i].span);
        base_free(s->entries[i].file);
        base_free(s->entries[i].row);
        base_free(s->entries[i].label);
    }
    span_store_close_budget(s);
    base_free(s->entries);
    base_free(s->buckets);
    base_free(s);
    return n_lost;
}

void span_store_free(span_store *s) { span_store_close(s, UINT64_MAX); }
