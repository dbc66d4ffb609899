/* SPDX-License-Identifier: Apache-2.0 */
/* disk_tier.c: see disk_tier.h: queues and threads of a store on disk. The operations of the table (tier.h), and how it
 * is opened, are at the end.
 *
 *   reads     a list by (request, next layer): a reader takes the first free one, reads one layer, puts it back
 *   changes   a FIFO queue, one thread: a removal frees its space before a later write. Records that were written but
 *             not published form the group; a change of one of their keys publishes it first
 *   events    a queue: a completed job becomes its own event: notification allocates no memory
 */
#include "store/disk/disk_tier.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/disk/disk_records.h"

#define N_THREADS (DISK_TIER_READERS + 1)
/* Rounding and metadata of the file system, for each file. */
#define FILE_SLACK_BYTES 8192
/* While requests are computed the writer pauses (one_in - 1) times as long as it has worked, after WORK_US of work:
 * threads that compute share short loops, and a preempted one delays all of them. It polls the flag every LOOK_US. */
#define WORK_US 200
#define LOOK_US 2000
/* The speed of reading is known after so many records, and follows the last bytes. */
#define SPEED_READS 4
#define SPEED_BYTES ((double)(256 << 20))
/* The part of the budget for growth of the index and the folders between two measurements. */
#define MARGIN_BYTES ((uint64_t)1 << 20)
/* Limit on the quarantine, a part of the budget. It is subtracted whether there are quarantined records or not:
 * quarantining a record then takes no space from others. */
#define BAD_BYTES ((uint64_t)64 << 20)
#define BAD_SHARE 16
/* Approximate size of a record's header; recommended budgets are rounded up to BUDGET_UNIT. */
#define LEAST_HEADER_BYTES ((uint64_t)8 << 10)
#define GROWTH_BYTES ((uint64_t)512 << 10) /* of an empty store: 16 folders, bad/, index and log */
#define BUDGET_UNIT ((uint64_t)64 << 10)
/* Changes of the index in one transaction, while more are queued. */
#define BATCH 32

typedef enum job_kind {
    JOB_READ,
    JOB_WRITE,
    JOB_REMOVE,
    JOB_NOTE,
    JOB_AUDIT,
    JOB_SYNC,
} job_kind;

typedef struct job {
    BASE_LINKS(struct job)
    links; /* in one of the queues */
    job_kind kind;
    base_key key;
    kv_span *span; /* a reference */
    uint64_t bytes, serial;
    uint64_t request;      /* reads: its order, */
    int32_t next_layer;    /* and its progress */
    bool taken;            /* in use by a reader */
    record_reader *reader; /* NULL: not opened yet */
    int rc, cause;         /* of a write or a sync; cause: errno */
    char *temporary;       /* of a write that is not published; NULL otherwise */
    bool cancelled;        /* a write that was erased before it started; under the lock */
    uint64_t begin_by;     /* of a write: base_clock_us; UINT64_MAX: none */
    bool late;             /* it had not started by then */
    tier_removal how;      /* removals */
    record_fault fault;    /* of a read */
    rp_error err;
    record_row *row; /* writes */
    record_use use;  /* notes */
    char *audit;     /* [bytes], of JOB_AUDIT */
} job;

typedef BASE_LIST(job) queue;

/* How fast records are read: time with at least one read in progress. */
typedef struct read_speed {
    int n_active;
    uint64_t since_us; /* base_clock_us of the last change of n_active */
    double us, bytes;
    uint64_t n; /* records */
} read_speed;

typedef struct disk_tier {
    store_tier base;
    disk_tier_options options;
    bool read_only;
    uint64_t budget_bytes;
    const record_format *format;
    void (*notify)(void *user);
    void *notify_user;
    disk_folder folder;
    record_index *index;         /* the writer's, once its thread runs */
    atomic_uint one_in, hurried; /* the writer's share; syncs that are waited for */
    _Atomic uint64_t deadline_us;
    atomic_bool ends; /* a deadline was set: begin_by of writes is ignored */
    /* the writer's */
    uint64_t worked_us; /* of base_clock_thread_us, at its last pause */
    queue group;        /* writes that are not published */
    int n_group;
    uint32_t unsynced; /* a bit for each folder with removals since its last sync */
    int erase_rc;      /* the first failure of an erasure since the last sync */
    rp_error erase_err;

    pthread_t threads[N_THREADS];
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t changed, readable, reported; /* for the writer; for readers; for waits for an event */
    bool has_lock, has_changed, has_readable, has_reported;
    /* under the lock */
    bool closing, idle; /* idle: the writer has no work and nothing to commit */
    queue reads, changes, events;
    int64_t n_pending; /* reads and writes that have not become events */
    int n_open;        /* files open for reading */
    read_speed speed;
    uint64_t overhead; /* as of the last commit */
} disk_tier;

/* ---- queues ---- */

static job *queue_pop(queue *q) {
    job *j = q->first;
    if (j) BASE_LIST_REMOVE(q, j, links);
    return j;
}

static void job_free(job *j) {
    record_reader_close(j->reader);
    kv_span_unref(j->span);
    base_free(j->row);
    base_free(j->audit);
    base_free(j->temporary);
    base_free(j);
}

static void free_queue(queue *q) {
    for (job *j; (j = queue_pop(q));) job_free(j);
}

/* ---- readers ---- */

/* The next read: earlier requests first, and of theirs the lowest layer. NULL: none. Locked. */
static job *next_read(disk_tier *d) {
    job *best = NULL;
    for (job *j = d->reads.first; j; j = j->links.next) {
        if (j->taken || (!j->reader && d->n_open >= DISK_TIER_OPEN_FILES)) continue;
        if (!best || j->request < best->request ||
            (j->request == best->request && j->next_layer < best->next_layer && !d->options.whole_reads))
            best = j;
    }
    return best;
}

/* Reads one layer, and before the first the record's headers. Without the lock. */
static void disk_tier_read_on(disk_tier *d, job *j) {
    if (!j->reader) {
        char path[DISK_PATH_BYTES];
        disk_folder_record(&d->folder, &j->key, path);
        j->fault = record_reader_open(&j->reader, path, d->format, &j->key, d->options.cipher, &j->err);
    }
    /* The record must agree with the form that the index has. */
    if (!j->fault && j->next_layer == 0 && !kv_span_has_form(j->span, &record_reader_record(j->reader)->form)) {
        j->fault = RECORD_FAULT_DAMAGED;
        base_fail(&j->err, RP_ERR_FORMAT, "a record does not match the index");
    }
    if (!j->fault) j->fault = record_read_layer(j->reader, j->next_layer, j->span, &j->err);
    BASE_ASSERT(j->fault ||
                j->next_layer == kv_span_layers_ready(j->span)); /* a layer is ready when it was read and checked */
    if (!j->fault) kv_span_set_ready(j->span, ++j->next_layer);
}

static bool is_late(disk_tier *d) {
    uint64_t deadline = atomic_load(&d->deadline_us);
    return deadline != UINT64_MAX && base_clock_us() >= deadline;
}

/* Is begin_by of this write over? */
static bool is_overdue(disk_tier *d, const job *j) { return !atomic_load(&d->ends) && base_clock_us() > j->begin_by; }

static int fail_late(rp_error *err) {
    return base_fail(err, RP_ERR_CANCELLED, "the engine ended before the disk tier was ready");
}

/* Locked. */
static void disk_tier_finish(disk_tier *d, job *j) {
    BASE_ASSERT(d->n_pending > 0);
    d->n_pending--;
    BASE_LIST_APPEND(&d->events, j, links);
    pthread_cond_broadcast(&d->reported);
    d->notify(d->notify_user);
}

/* One more reader, or one less. */
static void read_speed_count(read_speed *s, int change) {
    const uint64_t now = base_clock_us();
    if (s->n_active > 0) s->us += (double)(now - s->since_us);
    s->since_us = now;
    s->n_active += change;
    BASE_ASSERT(s->n_active >= 0 && s->n_active <= DISK_TIER_READERS);
}

static void read_speed_add(read_speed *s, uint64_t bytes) {
    s->bytes += (double)bytes;
    s->n++;
    if (s->bytes < SPEED_BYTES) return;
    s->bytes /= 2;
    s->us /= 2;
}

/* Locked before and after. */
static void serve_read(disk_tier *d, job *j) {
    bool opens = !j->reader;
    BASE_ASSERT(!j->taken); /* one reader */
    j->taken = true;
    d->n_open += opens;
    read_speed_count(&d->speed, 1);
    pthread_mutex_unlock(&d->lock);
    disk_tier_read_on(d, j);
    bool over = j->fault || j->next_layer == d->format->shape.n_layers;
    if (over) {
        if (j->reader) j->bytes = record_reader_sizes(j->reader).bytes;
        record_reader_close(j->reader);
        j->reader = NULL;
        if (j->fault) kv_span_set_failed(j->span);
    }
    pthread_mutex_lock(&d->lock);
    j->taken = false;
    read_speed_count(&d->speed, -1);
    if (over && !j->fault) read_speed_add(&d->speed, j->bytes);
    if (over) {
        BASE_ASSERT(d->n_open > 0);
        d->n_open--;
        BASE_LIST_REMOVE(&d->reads, j, links);
        disk_tier_finish(d, j);
    }
    pthread_cond_broadcast(&d->readable);
}

static void *reader_main(void *arg) {
    disk_tier *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        job *j = d->closing && is_late(d) ? NULL : next_read(d);
        if (j) serve_read(d, j);
        else if (d->closing && (!d->reads.first || is_late(d))) break;
        else pthread_cond_wait(&d->readable, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- the writer ---- */

/* Called between two pieces of work. There is no pause while another thread waits for the writer. */
static void disk_tier_rest(void *user) {
    disk_tier *d = user;
    uint64_t worked = base_clock_thread_us() - d->worked_us;
    if (worked < WORK_US) return;
    uint64_t rests = atomic_load(&d->one_in) - 1;
    for (uint64_t now = base_clock_us(), end = now + rests * worked;
         now < end && atomic_load(&d->one_in) > 1 && atomic_load(&d->hurried) == 0; now = base_clock_us())
        base_rest_us(BASE_MIN(end - now, LOOK_US));
    d->worked_us = base_clock_thread_us();
}

/* Writes the record under its temporary name. */
static int stage_record(disk_tier *d, job *j) {
    char path[DISK_PATH_BYTES];
    const record_rest rests = {disk_tier_rest, d};
    BASE_ASSERT(!d->read_only && d->folder.lock >= 0); /* invariant 5 */
    disk_folder_record(&d->folder, &j->key, path);
    int rc = disk_folder_make_room(&d->folder, &j->key, &j->err);
    if (!rc)
        rc = record_stage(&j->temporary, path, d->format, &j->row->record, j->span, d->options.cipher, &rests,
                          &j->bytes, &j->err);
    j->row->bytes = j->bytes;
    return rc;
}

/* Adds a write to the group, also one that has failed: events keep their order. */
static void disk_tier_write_record(disk_tier *d, job *j, bool cancelled) {
    j->late = !cancelled && is_overdue(d, j);
    if (cancelled) j->rc = base_fail(&j->err, RP_ERR_CANCELLED, "it was removed");
    else if (j->late) j->rc = base_fail(&j->err, RP_ERR_CANCELLED, "the disk was not ready in time");
    else j->rc = is_late(d) ? fail_late(&j->err) : stage_record(d, j);
    j->cause = errno;
    BASE_ASSERT(d->n_group < DISK_TIER_GROUP && (j->rc != RP_OK) == (j->temporary == NULL));
    BASE_LIST_APPEND(&d->group, j, links);
    d->n_group++;
}

static bool has_staged(const disk_tier *d) {
    for (const job *j = d->group.first; j; j = j->links.next)
        if (j->temporary) return true;
    return false;
}

/* Renames a temporary file to its record's name, or removes it. */
static void publish_record(disk_tier *d, job *j) {
    char path[DISK_PATH_BYTES];
    if (!j->temporary) return;
    disk_folder_record(&d->folder, &j->key, path);
    if (is_late(d)) {
        record_discard(j->temporary);
        j->rc = fail_late(&j->err);
    } else {
        j->rc = record_publish(j->temporary, path, &j->err);
    }
    j->cause = errno;
    if (j->rc) {
        base_free(j->temporary);
        j->temporary = NULL;
    }
}

/* Syncs a folder with new names. On failure its records of the group are removed: they are whole, but they may lose
 * their names, and their bytes would not be counted. */
static void sync_published(disk_tier *d, int folder) {
    char path[DISK_PATH_BYTES];
    rp_error err = {0};
    bool any = false;
    for (const job *j = d->group.first; j && !any; j = j->links.next)
        any = j->temporary && disk_folder_of(&j->key) == folder;
    if (!any) return;
    disk_folder_path(&d->folder, folder, path);
    int rc = is_late(d) ? fail_late(&err) : base_io_sync_folder(path, &err), cause = errno;
    if (!rc) d->unsynced &= ~(1u << folder);
    for (job *j = d->group.first; rc && j; j = j->links.next) {
        if (!j->temporary || disk_folder_of(&j->key) != folder) continue;
        disk_folder_record(&d->folder, &j->key, path);
        record_discard(path);
        base_free(j->temporary);
        j->temporary = NULL;
        j->rc = rc;
        j->err = err;
        j->cause = cause;
    }
}

/* Publishes the group's records: names, rows, events. */
static void publish_group(disk_tier *d) {
    if (has_staged(d)) {
        for (job *j = d->group.first; j; j = j->links.next) publish_record(d, j);
        for (int i = 0; i < DISK_FOLDERS; i++) sync_published(d, i);
    }
    for (job *j; (j = queue_pop(&d->group));) {
        BASE_ASSERT((j->rc == RP_OK) == (j->temporary != NULL)); /* files change before the index */
        rp_error err;
        /* A row that cannot be written is restored when the store is opened again. */
        if (!j->rc && disk_records_enter(d->index, d->options.cipher, j->row, &err))
            base_log(BASE_LOG_WARN, "store: %s", err.message);
        pthread_mutex_lock(&d->lock);
        disk_tier_finish(d, j);
        pthread_mutex_unlock(&d->lock);
    }
    d->n_group = 0;
}

/* Must the group be published now? */
static bool is_group_full(disk_tier *d) {
    bool full = d->n_group == DISK_TIER_GROUP;
    for (const job *j = d->group.first; j && !full; j = j->links.next) full = is_overdue(d, j);
    return full;
}

static bool is_in_group(const disk_tier *d, const base_key *key) {
    for (const job *j = d->group.first; j; j = j->links.next)
        if (base_key_equal(&j->key, key)) return true;
    return false;
}

static void disk_tier_note_failure(disk_tier *d, int rc, const rp_error *err) {
    if (!rc || d->erase_rc) return;
    d->erase_rc = rc;
    d->erase_err = *err;
}

static void remove_record(disk_tier *d, const job *j) {
    char path[DISK_PATH_BYTES];
    rp_error err;
    int rc = RP_OK;
    BASE_ASSERT(!d->read_only && d->folder.lock >= 0 && !is_in_group(d, &j->key));
    disk_folder_record(&d->folder, &j->key, path);
    if (j->how == TIER_SET_ASIDE) disk_folder_set_aside(&d->folder, &j->key);
    else rc = base_io_unlink(path, &err);
    d->unsynced |= 1u << disk_folder_of(&j->key);
    if (j->how == TIER_ERASE) disk_tier_note_failure(d, rc, &err);
    rc = record_index_remove(d->index, &j->key, &err);
    if (j->how == TIER_ERASE) disk_tier_note_failure(d, rc, &err);
}

static void sync_removals(disk_tier *d, job *j) {
    rp_error err;
    BASE_ASSERT(!d->group.first);
    disk_tier_note_failure(d, disk_folder_sync_removals(&d->folder, &d->unsynced, &err), &err);
    disk_tier_note_failure(d, record_index_commit_durably(d->index, &err), &err);
    j->rc = d->erase_rc;
    j->err = d->erase_err;
    d->erase_rc = RP_OK;
}

static void write_audit(disk_tier *d, const job *j) {
    rp_error err;
    if (disk_folder_write_audit(&d->folder, j->audit, j->bytes, &err))
        base_log(BASE_LOG_WARN, "store: %s", err.message);
}

/* Executes a change: the job becomes an event, or is freed. */
static void disk_tier_change(disk_tier *d, job *j, bool cancelled) {
    if (j->kind == JOB_WRITE) {
        if (is_in_group(d, &j->key)) publish_group(d);
        disk_tier_write_record(d, j, cancelled);
        return;
    }
    if (j->kind == JOB_SYNC || is_in_group(d, &j->key)) publish_group(d);
    switch (j->kind) {
    case JOB_NOTE: record_index_note(d->index, &j->key, &j->use, NULL); break;
    case JOB_AUDIT: write_audit(d, j); break;
    case JOB_SYNC: sync_removals(d, j); break;
    default: remove_record(d, j);
    }
    if (j->kind != JOB_SYNC) {
        job_free(j);
        return;
    }
    BASE_ASSERT(atomic_load(&d->hurried) > 0);
    atomic_fetch_sub(&d->hurried, 1);
    pthread_mutex_lock(&d->lock);
    disk_tier_finish(d, j);
    pthread_mutex_unlock(&d->lock);
}

static void disk_tier_commit(disk_tier *d) {
    rp_error err;
    if (is_late(d)) record_index_hurry(d->index);
    if (record_index_commit(d->index, &err)) base_log(BASE_LOG_WARN, "store: %s", err.message);
    uint64_t overhead = disk_folder_overhead(&d->folder) + record_index_bytes(d->index);
    pthread_mutex_lock(&d->lock);
    d->overhead = overhead;
    pthread_mutex_unlock(&d->lock);
}

static void *writer_main(void *arg) {
    disk_tier *d = arg;
    int n = 0; /* changes that are not committed */
    pthread_mutex_lock(&d->lock);
    for (;;) {
        job *j = queue_pop(&d->changes);
        bool all_done = !j && n == 0 && !d->group.first; /* a commit in the middle of a group keeps the group */
        if (all_done && d->closing) break;
        if (all_done) {
            d->idle = true;
            pthread_cond_broadcast(&d->reported);
            pthread_cond_wait(&d->changed, &d->lock);
            d->idle = false;
            continue;
        }
        bool cancelled = j && j->cancelled;
        pthread_mutex_unlock(&d->lock);
        disk_tier_rest(d);
        if (j) disk_tier_change(d, j, cancelled);
        if (!j || is_group_full(d)) publish_group(d);
        n += j != NULL;
        if (!j || n >= BATCH) {
            disk_tier_commit(d);
            n = 0;
        }
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- recovery ---- */

static int disk_tier_report_records(disk_tier *d, const tier_terms *terms, rp_error *err) {
    disk_records r = {
        .folder = &d->folder, .index = d->index, .cipher = d->options.cipher, .fn = terms->fn, .user = terms->user};
    int rc = disk_records_each(&r, err);
    if (r.index_rc) base_log(BASE_LOG_WARN, "store: %s", r.index_err.message);
    int cause = errno;
    if (!rc && !d->read_only) disk_tier_commit(d);
    errno = cause;
    return rc;
}

/* ---- the budget ---- */

static uint64_t bad_bytes(uint64_t budget) { return BASE_MIN(budget / BAD_SHARE, BAD_BYTES); }

/* Bytes besides the records, as the writer measured them, and those that are set aside. Locked, or before the threads
   start. */
static uint64_t overhead_bytes(const disk_tier *d) { return d->overhead + bad_bytes(d->budget_bytes) + MARGIN_BYTES; }

/* The error names the smallest budget that is enough for one record after folders, index and its log have grown. */
static int disk_tier_check_budget(const disk_tier *d, rp_error *err) {
    if (d->budget_bytes > overhead_bytes(d)) return RP_OK;
    /* of one block in each layer: with less than that, hardly any record would be written */
    const uint64_t record_bytes = kv_shape_token_bytes(&d->format->shape) * KV_BLOCK_SLOTS + LEAST_HEADER_BYTES;
    const uint64_t need = d->overhead + GROWTH_BYTES + MARGIN_BYTES + record_bytes;
    /* a part of a larger budget is for the quarantine */
    const uint64_t exact = BASE_MIN((need * BAD_SHARE + BAD_SHARE - 2) / (BAD_SHARE - 1), need + BAD_BYTES);
    const uint64_t least = BASE_DIV_UP(exact, BUDGET_UNIT) * BUDGET_UNIT;
    return base_fail_at(
        err, RP_ERR_INVALID, d->options.dir, 0,
        "store_budget_bytes of %llu is less than the store needs for itself and one record: give %llu (%lluK) or more",
        (unsigned long long)d->budget_bytes, (unsigned long long)least, (unsigned long long)(least >> 10));
}

/* ---- opening and closing ---- */

static int disk_tier_open_parts(disk_tier *d, const tier_terms *terms, rp_error *err) {
    char path[DISK_PATH_BYTES];
    if (!(d->has_lock = pthread_mutex_init(&d->lock, NULL) == 0) ||
        !(d->has_changed = pthread_cond_init(&d->changed, NULL) == 0) ||
        !(d->has_readable = pthread_cond_init(&d->readable, NULL) == 0) ||
        !(d->has_reported = pthread_cond_init(&d->reported, NULL) == 0))
        return base_fail_memory(err, sizeof(*d), "a lock");
    int rc = disk_folder_open(&d->folder, d->options.dir, d->read_only, err);
    if (!rc && d->read_only) rc = disk_folder_check_foreign(&d->folder, err);
    if (rc) return rc;
    disk_folder_index(&d->folder, path);
    if (!d->read_only && (rc = record_index_open(&d->index, path, err))) return rc;
    d->folder.bad_bytes = bad_bytes(d->budget_bytes);
    if (!d->read_only) disk_folder_thin_out(&d->folder);
    rc = disk_tier_report_records(d, terms, err);
    if (!rc && terms->adds) rc = disk_tier_check_budget(d, err);
    if (rc) return rc;
    for (int i = 0; i < N_THREADS; i++, d->n_threads++)
        if (pthread_create(&d->threads[i], NULL, i == 0 ? writer_main : reader_main, d) != 0)
            return base_fail(err, RP_ERR_MEMORY, "cannot start the store's threads");
    return RP_OK;
}

static void disk_tier_close(store_tier *t) {
    disk_tier *d = (disk_tier *)t;
    atomic_store(&d->one_in, 1);
    if (d->n_threads > 0) {
        pthread_mutex_lock(&d->lock);
        d->closing = true;
        pthread_cond_broadcast(&d->changed);
        pthread_cond_broadcast(&d->readable);
        pthread_mutex_unlock(&d->lock);
    }
    for (int i = 0; i < d->n_threads; i++) pthread_join(d->threads[i], NULL);
    free_queue(&d->reads);
    free_queue(&d->group);
    free_queue(&d->changes);
    free_queue(&d->events);
    record_index_close(d->index);
    disk_folder_close(&d->folder);
    if (d->has_reported) pthread_cond_destroy(&d->reported);
    if (d->has_readable) pthread_cond_destroy(&d->readable);
    if (d->has_changed) pthread_cond_destroy(&d->changed);
    if (d->has_lock) pthread_mutex_destroy(&d->lock);
    base_free(d);
}

/* ---- requests of the engine ---- */

static job *job_new(job_kind kind, const base_key *key) {
    job *j = base_calloc(1, sizeof(*j));
    if (j) *j = (job){.kind = kind, .key = *key};
    return j;
}

static void disk_tier_submit(disk_tier *d, queue *q, pthread_cond_t *cond, job *j) {
    pthread_mutex_lock(&d->lock);
    d->n_pending += j->kind == JOB_READ || j->kind == JOB_WRITE || j->kind == JOB_SYNC;
    BASE_ASSERT(!d->closing);
    BASE_LIST_APPEND(q, j, links);
    pthread_cond_signal(cond);
    pthread_mutex_unlock(&d->lock);
}

static int disk_tier_read(store_tier *t, kv_span *span, uint64_t request) {
    disk_tier *d = (disk_tier *)t;
    job *j = job_new(JOB_READ, kv_span_key(span));
    if (!j) return RP_ERR_MEMORY;
    j->span = kv_span_ref(span);
    j->request = request;
    disk_tier_submit(d, &d->reads, &d->readable, j);
    return RP_OK;
}

static int disk_tier_write(store_tier *t, record_row *row, kv_span *span, uint64_t begin_by, uint64_t serial) {
    disk_tier *d = (disk_tier *)t;
    job *j = job_new(JOB_WRITE, &row->record.key);
    if (!j) return RP_ERR_MEMORY;
    j->row = row;
    j->begin_by = begin_by;
    j->span = kv_span_ref(span);
    j->serial = serial;
    disk_tier_submit(d, &d->changes, &d->changed, j);
    return RP_OK;
}

/* Cancels a queued write. */
static void cancel_write(disk_tier *d, const base_key *key) {
    pthread_mutex_lock(&d->lock);
    for (job *j = d->changes.first; j; j = j->links.next)
        if (j->kind == JOB_WRITE && base_key_equal(&j->key, key)) j->cancelled = true;
    pthread_mutex_unlock(&d->lock);
}

static void disk_tier_remove(store_tier *t, const base_key *key, tier_removal how) {
    disk_tier *d = (disk_tier *)t;
    char path[DISK_PATH_BYTES];
    if (d->read_only) return;
    if (how == TIER_ERASE) cancel_write(d, key);
    job *j = job_new(JOB_REMOVE, key);
    if (j) {
        j->how = how;
        disk_tier_submit(d, &d->changes, &d->changed, j);
        return;
    }
    disk_folder_record(&d->folder, key, path); /* its bytes are not counted any more: remove it */
    base_io_unlink(path, NULL);
}

static int disk_tier_sync(store_tier *t, uint64_t serial) {
    disk_tier *d = (disk_tier *)t;
    if (d->read_only) return RP_ERR_CONFLICT;
    job *j = job_new(JOB_SYNC, &(base_key){{0}});
    if (!j) return RP_ERR_MEMORY;
    j->serial = serial;
    atomic_fetch_add(&d->hurried, 1);
    disk_tier_submit(d, &d->changes, &d->changed, j);
    return RP_OK;
}

static void disk_tier_note(store_tier *t, const base_key *key, const record_use *use) {
    disk_tier *d = (disk_tier *)t;
    job *j = d->read_only ? NULL : job_new(JOB_NOTE, key);
    if (!j) return;
    j->use = *use;
    disk_tier_submit(d, &d->changes, &d->changed, j);
}

static int disk_tier_keep_audit(store_tier *t, char *bytes, size_t n) {
    disk_tier *d = (disk_tier *)t;
    if (d->read_only) return RP_ERR_CONFLICT;
    job *j = job_new(JOB_AUDIT, &(base_key){{0}});
    if (!j) return RP_ERR_MEMORY;
    j->audit = bytes;
    j->bytes = n;
    disk_tier_submit(d, &d->changes, &d->changed, j);
    return RP_OK;
}

static bool disk_tier_next(store_tier *t, tier_event *out) {
    static const tier_event_kind kinds[] = {
        [JOB_READ] = TIER_READ, [JOB_WRITE] = TIER_WRITTEN, [JOB_SYNC] = TIER_SYNCED};
    disk_tier *d = (disk_tier *)t;
    pthread_mutex_lock(&d->lock);
    job *j = queue_pop(&d->events);
    pthread_mutex_unlock(&d->lock);
    if (!j) return false;
    BASE_ASSERT(j->kind == JOB_READ || j->kind == JOB_WRITE || j->kind == JOB_SYNC);
    *out = (tier_event){
        .kind = kinds[j->kind],
        .key = j->key,
        .span = j->span,
        .bytes = j->bytes,
        .serial = j->serial,
        .failed = j->rc || j->fault,
        .fault = j->fault,
        .err = j->err,
        .cause = j->cause,
        .late = j->late ? j->row : NULL,
    };
    if (j->late) j->row = NULL;
    j->span = NULL;
    job_free(j);
    return true;
}

static void disk_tier_set_share(store_tier *t, uint32_t one_in) { atomic_store(&((disk_tier *)t)->one_in, one_in); }

static void disk_tier_set_deadline(store_tier *t, uint64_t at_us) {
    disk_tier *d = (disk_tier *)t;
    atomic_store(&d->deadline_us, at_us);
    atomic_store(&d->ends, true);
}

static void disk_tier_wait(store_tier *t) {
    disk_tier *d = (disk_tier *)t;
    pthread_mutex_lock(&d->lock);
    while (!d->events.first && d->n_pending > 0) pthread_cond_wait(&d->reported, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static void disk_tier_settle(store_tier *t) {
    disk_tier *d = (disk_tier *)t;
    pthread_mutex_lock(&d->lock);
    while (d->changes.first || !d->idle) pthread_cond_wait(&d->reported, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static uint64_t disk_tier_record_bytes(const store_tier *t, const record *r) {
    const disk_tier *d = (const disk_tier *)t;
    return record_file_bytes(d->format, r, d->options.cipher) + FILE_SLACK_BYTES;
}

static void disk_tier_measure(store_tier *t, tier_figures *out) {
    disk_tier *d = (disk_tier *)t;
    pthread_mutex_lock(&d->lock);
    *out = (tier_figures){
        .is_busy = d->n_pending > 0 || d->events.first,
        .read_byte_us = d->speed.n < SPEED_READS ? 0 : d->speed.us / d->speed.bytes,
        .overhead_bytes = overhead_bytes(d),
    };
    pthread_mutex_unlock(&d->lock);
}

static const tier_ops disk_tier_ops = {
    .read = disk_tier_read,
    .write = disk_tier_write,
    .remove = disk_tier_remove,
    .note = disk_tier_note,
    .keep_audit = disk_tier_keep_audit,
    .sync = disk_tier_sync,
    .next = disk_tier_next,
    .wait = disk_tier_wait,
    .settle = disk_tier_settle,
    .set_share = disk_tier_set_share,
    .set_deadline = disk_tier_set_deadline,
    .measure = disk_tier_measure,
    .record_bytes = disk_tier_record_bytes,
    .close = disk_tier_close,
};

int disk_tier_open(store_tier **out, const void *options, const tier_terms *terms, rp_error *err) {
    BASE_ASSERT(!terms->read_only || !terms->adds);
    disk_tier *d = base_calloc(1, sizeof(*d));
    *out = NULL;
    if (!d) return base_fail_memory(err, sizeof(*d), "a store on disk");
    d->base.ops = &disk_tier_ops;
    d->options = *(const disk_tier_options *)options;
    d->read_only = terms->read_only;
    d->budget_bytes = terms->budget_bytes;
    d->format = terms->format;
    d->notify = terms->notify;
    d->notify_user = terms->notify_user;
    d->folder.lock = d->folder.lock_file = -1;
    atomic_init(&d->deadline_us, UINT64_MAX);
    atomic_init(&d->one_in, 1);
    int rc = disk_tier_open_parts(d, terms, err);
    if (rc) {
        int cause = errno;
        disk_tier_close(&d->base);
        errno = cause;
        return rc;
    }
    *out = &d->base;
    return RP_OK;
}
