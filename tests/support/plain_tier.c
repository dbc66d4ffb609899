/* SPDX-License-Identifier: Apache-2.0 */
/* plain_tier.c: see plain_tier.h. */
#define _POSIX_C_SOURCE 200809L
#include "support/plain_tier.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/record_forge.h"

#define PATH_BYTES 256
#define ENDING ".plain"

typedef enum plain_kind { PLAIN_READ,
                          PLAIN_WRITE,
                          PLAIN_REMOVE,
                          PLAIN_SYNC } plain_kind;

typedef struct plain_job {
    struct plain_job *next;
    plain_kind kind;
    tier_event event;
    uint64_t request, begin_by;
    record_reader *reader;
    int32_t next_layer;
    record_row *row;
    bool cancelled;
    int waited; /* calls of tier_next */
} plain_job;

typedef struct plain_tier {
    store_tier base;
    plain_medium *medium;
    tier_terms terms;
    plain_job *reads, *changes, *events; /* in the order of their requests */
    uint64_t deadline_us;
    bool ends;
} plain_tier;

static void push(plain_job **list, plain_job *j) {
    j->next = NULL;
    while (*list) list = &(*list)->next;
    *list = j;
}

static void unlink_from(plain_job **list, plain_job *j) {
    while (*list != j) list = &(*list)->next;
    *list = j->next;
}

static void plain_job_free(plain_job *j) {
    record_reader_close(j->reader);
    kv_span_unref(j->event.span);
    base_free(j->row);
    base_free(j);
}

static void plain_job_free_all(plain_job *j) {
    for (plain_job *next; j; j = next) {
        next = j->next;
        plain_job_free(j);
    }
}

static void path_of(const plain_tier *p, const base_key *key, char path[PATH_BYTES]) {
    char digits[65];
    base_key_hex(key, digits, 64);
    snprintf(path, PATH_BYTES, "%s/%s" ENDING, p->medium->dir, digits);
}

/* ---- reads ---- */

/* The file that a read opens: the record's, or what the medium makes of it. */
static void tell(const plain_tier *p, const base_key *key, char path[PATH_BYTES]) {
    path_of(p, key, path);
    const plain_lie lie = p->medium->lie;
    if (lie == PLAIN_HONEST || lie == PLAIN_BREAKS) return;
    if (lie == PLAIN_SWAPS) {
        snprintf(path, PATH_BYTES, "%s", p->medium->other);
        return;
    }
    forged f = forge_load(path);
    if (lie == PLAIN_FLIPS_KV) f.bytes[f.n - 1] ^= 1;
    if (lie == PLAIN_FLIPS_HEADER) f.bytes[RECORD_PUBLIC_BYTES + 40] ^= 1;
    if (lie == PLAIN_EXTENDS) f.bytes = realloc(f.bytes, f.n + 1), f.bytes[f.n] = 0;
    snprintf(path, PATH_BYTES, "%s/lie", p->medium->dir);
    if (lie == PLAIN_LOSES) unlink(path);
    else forge_save(path, f.bytes, lie == PLAIN_CUTS ? f.n - 1 : lie == PLAIN_EXTENDS ? f.n + 1
                                                                                      : f.n);
    forge_free(&f);
}

static bool is_over(const plain_tier *p) { return base_clock_us() >= p->deadline_us; }

/* Reads a layer, and before the first the headers. */
static void read_on(plain_tier *p, plain_job *j) {
    tier_event *e = &j->event;
    if (!j->reader) {
        char path[PATH_BYTES];
        tell(p, &e->key, path);
        p->medium->n_reads++;
        e->fault = record_reader_open(&j->reader, path, p->terms.format, &e->key, NULL, &e->err);
        if (!e->fault && p->medium->lie == PLAIN_BREAKS)
            e->fault = RECORD_FAULT_IO, base_fail(&e->err, RP_ERR_IO, "the medium broke");
        if (!e->fault && !kv_span_has_form(e->span, &record_reader_record(j->reader)->form))
            e->fault = RECORD_FAULT_DAMAGED, base_fail(&e->err, RP_ERR_FORMAT, "another form");
    }
    if (!e->fault) e->fault = record_read_layer(j->reader, j->next_layer, e->span, &e->err);
    if (!e->fault) kv_span_set_ready(e->span, ++j->next_layer);
    if (!e->fault && j->next_layer < p->terms.format->shape.n_layers) return;
    if (j->reader) e->bytes = record_reader_sizes(j->reader).bytes;
    e->failed = e->fault != RECORD_FAULT_NONE;
    if (e->failed) kv_span_set_failed(e->span);
    unlink_from(&p->reads, j);
    push(&p->events, j);
}

/* Of the first request the lowest layer. */
static plain_job *next_read(plain_tier *p) {
    plain_job *best = p->reads;
    for (plain_job *j = best; j; j = j->next)
        if (j->request < best->request || (j->request == best->request && j->next_layer < best->next_layer)) best = j;
    return best;
}

/* ---- changes ---- */

static void fail_write(tier_event *e, int rc, int cause, const char *why) {
    e->failed = true;
    e->cause = cause;
    base_fail(&e->err, rc, "%s", why);
}

static void write_record(plain_tier *p, plain_job *j) {
    char path[PATH_BYTES];
    tier_event *e = &j->event;
    path_of(p, &e->key, path);
    if (j->cancelled || is_over(p)) {
        fail_write(e, RP_ERR_CANCELLED, 0, "it was removed, or is too late");
    } else if (!p->ends && base_clock_us() > j->begin_by) {
        fail_write(e, RP_ERR_CANCELLED, 0, "it is too late");
        e->late = j->row;
        j->row = NULL;
    } else if (p->medium->full) {
        fail_write(e, RP_ERR_IO, p->medium->full, "the medium is full");
    } else {
        p->medium->n_writes++;
        e->failed = record_write(path, p->terms.format, &j->row->record, e->span, NULL, &e->bytes, &e->err) != RP_OK;
    }
}

static void change(plain_tier *p) {
    plain_job *j = p->changes;
    char path[PATH_BYTES];
    p->changes = j->next;
    if (j->kind == PLAIN_REMOVE) {
        path_of(p, &j->event.key, path);
        p->medium->n_removals++;
        unlink(path);
        plain_job_free(j);
        return;
    }
    if (j->kind == PLAIN_WRITE) write_record(p, j);
    push(&p->events, j);
}

/* ---- the table ---- */

static plain_job *plain_job_new(plain_kind kind, tier_event_kind event, const base_key *key) {
    plain_job *j = base_calloc(1, sizeof(*j));
    if (j) *j = (plain_job){.kind = kind, .event.kind = event, .event.key = *key};
    return j;
}

static int plain_tier_read(store_tier *t, kv_span *span, uint64_t request) {
    plain_tier *p = (plain_tier *)t;
    plain_job *j = plain_job_new(PLAIN_READ, TIER_READ, kv_span_key(span));
    if (!j) return RP_ERR_MEMORY;
    j->event.span = kv_span_ref(span);
    j->request = request;
    push(&p->reads, j);
    return RP_OK;
}

static int plain_tier_write(store_tier *t, record_row *row, kv_span *span, uint64_t begin_by, uint64_t serial) {
    plain_tier *p = (plain_tier *)t;
    plain_job *j = plain_job_new(PLAIN_WRITE, TIER_WRITTEN, kv_span_key(span));
    if (!j) return RP_ERR_MEMORY;
    j->event.span = kv_span_ref(span);
    j->event.serial = serial;
    j->row = row;
    j->begin_by = begin_by;
    push(&p->changes, j);
    return RP_OK;
}

static void plain_tier_remove(store_tier *t, const base_key *key, tier_removal how) {
    plain_tier *p = (plain_tier *)t;
    if (p->terms.read_only) return;
    for (plain_job *j = p->changes; j && how == TIER_ERASE; j = j->next)
        j->cancelled |= j->kind == PLAIN_WRITE && base_key_equal(&j->event.key, key);
    p->medium->n_set_aside += how == TIER_SET_ASIDE;
    plain_job *j = plain_job_new(PLAIN_REMOVE, TIER_SYNCED, key);
    if (j) push(&p->changes, j);
}

static void plain_tier_note(store_tier *t, const base_key *key, const record_use *use) {
    (void)key, (void)use;
    ((plain_tier *)t)->medium->n_notes++; /* it has no place for them */
}

static int plain_tier_keep_audit(store_tier *t, char *bytes, size_t n) {
    (void)t, (void)bytes, (void)n;
    return RP_ERR_CONFLICT;
}

static int plain_tier_sync(store_tier *t, uint64_t serial) {
    plain_tier *p = (plain_tier *)t;
    plain_job *j = p->terms.read_only ? NULL : plain_job_new(PLAIN_SYNC, TIER_SYNCED, &(base_key){{0}});
    if (!j) return p->terms.read_only ? RP_ERR_CONFLICT : RP_ERR_MEMORY;
    j->event.serial = serial;
    push(&p->changes, j);
    return RP_OK;
}

static bool plain_tier_next(store_tier *t, tier_event *out) {
    plain_tier *p = (plain_tier *)t;
    plain_job *j = next_read(p);
    if (j && j->waited++ >= p->medium->patience) {
        j->waited = 0;
        read_on(p, j);
    }
    if (p->changes && p->changes->waited++ >= p->medium->patience) change(p);
    if (!(j = p->events)) return false;
    p->events = j->next;
    *out = j->event;
    j->event.span = NULL;
    plain_job_free(j);
    return true;
}

static void plain_tier_wait(store_tier *t) { (void)t; }

static void plain_tier_settle(store_tier *t) {
    plain_tier *p = (plain_tier *)t;
    while (p->changes) change(p);
}

static void plain_tier_set_share(store_tier *t, uint32_t one_in) { (void)t, (void)one_in; }

static void plain_tier_set_deadline(store_tier *t, uint64_t at_us) {
    plain_tier *p = (plain_tier *)t;
    p->deadline_us = at_us;
    p->ends = true;
}

static void plain_tier_measure(store_tier *t, tier_figures *out) {
    const plain_tier *p = (plain_tier *)t;
    *out = (tier_figures){.is_busy = p->reads || p->events};
    for (const plain_job *j = p->changes; j; j = j->next) out->is_busy |= j->kind != PLAIN_REMOVE;
}

static uint64_t plain_tier_record_bytes(const store_tier *t, const record *r) {
    return record_file_bytes(((const plain_tier *)t)->terms.format, r, false);
}

static void plain_tier_close(store_tier *t) {
    plain_tier *p = (plain_tier *)t;
    plain_tier_settle(t);
    plain_job_free_all(p->reads);
    plain_job_free_all(p->events);
    base_free(p);
}

/* Its files; one that cannot be read is not there. */
static int report_records(const plain_tier *p, rp_error *err) {
    char path[PATH_BYTES];
    int rc = RP_OK;
    DIR *dir = opendir(p->medium->dir);
    if (!dir) return base_fail(err, RP_ERR_IO, "no folder");
    for (const struct dirent *d; !rc && (d = readdir(dir));) {
        record_reader *reader;
        const size_t n = strlen(d->d_name);
        if (n < strlen(ENDING) || strcmp(d->d_name + n - strlen(ENDING), ENDING) != 0) continue;
        snprintf(path, sizeof(path), "%s/%s", p->medium->dir, d->d_name);
        if (record_reader_open(&reader, path, NULL, NULL, NULL, NULL)) continue;
        const record_row row = {
            .record = *record_reader_record(reader),
            .fingerprint = record_reader_format(reader)->fingerprint,
            .n_layers = record_reader_format(reader)->shape.n_layers,
            .bytes = record_reader_sizes(reader).bytes,
            .use.uses = 1,
        };
        rc = p->terms.fn(p->terms.user, &row, err);
        record_reader_close(reader);
    }
    closedir(dir);
    return rc;
}

int plain_tier_open(store_tier **out, const void *options, const tier_terms *terms, rp_error *err) {
    static const tier_ops ops = {
        .read = plain_tier_read,
        .write = plain_tier_write,
        .remove = plain_tier_remove,
        .note = plain_tier_note,
        .keep_audit = plain_tier_keep_audit,
        .sync = plain_tier_sync,
        .next = plain_tier_next,
        .wait = plain_tier_wait,
        .settle = plain_tier_settle,
        .set_share = plain_tier_set_share,
        .set_deadline = plain_tier_set_deadline,
        .measure = plain_tier_measure,
        .record_bytes = plain_tier_record_bytes,
        .close = plain_tier_close,
    };
    plain_medium *medium = ((const plain_tier_options *)options)->medium;
    *out = NULL;
    errno = medium->absent ? medium->absent : EROFS;
    if (medium->absent || (medium->refuses_changes && !terms->read_only))
        return base_fail(err, RP_ERR_IO, "the medium cannot be used");
    plain_tier *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a tier");
    *p = (plain_tier){.base.ops = &ops, .medium = medium, .terms = *terms, .deadline_us = UINT64_MAX};
    const int rc = report_records(p, err);
    if (rc) plain_tier_close(&p->base);
    else *out = &p->base;
    return rc;
}
