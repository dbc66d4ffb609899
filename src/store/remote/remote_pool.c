/* SPDX-License-Identifier: Apache-2.0 */
/* remote_pool.c: see remote_pool.h: queues, threads and the breaker. What a thread does for a look, a pull and a push
 * is in remote_work.c.
 *
 *   reads     a FIFO queue for N_READERS threads: looks first
 *   pushes    a FIFO queue for one thread, which keeps to the bytes a second
 *   events    a queue: a completed job becomes its own event
 *   breakers  of reads, and of writes:   closed --failures--> open --time--> trial --success--> closed
 *                                                              ^---failure-----+
 */
#include "store/remote/remote_pool.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "store/remote/remote_work.h"

#define N_READERS 4
#define BREAKER_FAILURES 3
#define BREAKER_US 10000000
#define MOST_PUSHES 32 /* and so many bytes of KV, which cannot be reclaimed meanwhile */
#define MOST_PUSHED_BYTES ((uint64_t)64 << 20)
#define PUSH_US 30000000 /* for one push */
#define AVERAGED 16      /* operations in a measured mean, approximately */

typedef BASE_LIST(remote_job) queue;

typedef struct breaker {
    const char *what;
    int n_failures;      /* in a row */
    uint64_t open_until; /* base_clock_us; 0: it is closed */
    bool is_tried;       /* its trial is under way */
} breaker;

struct remote_pool {
    pool_driver *driver;
    remote_context context;
    uint64_t write_bytes_per_s;
    void (*notify)(void *user);
    void *notify_user;
    pthread_t threads[N_READERS + 1];
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t readable, writable;
    bool has_lock, has_readable, has_writable;
    /* under the lock */
    queue reads, pushes, events;
    bool closing;
    uint64_t deadline_us; /* of pushes, once it is closing */
    uint64_t n_tickets;
    size_t n_pending;    /* jobs without an event */
    size_t n_pushing;    /* of these, pushes, */
    uint64_t push_bytes; /* with so much KV */
    breaker of_reads, of_writes;
    remote_figures figures;
};

static remote_job *queue_pop(queue *q) {
    remote_job *j = q->first;
    if (j) BASE_LIST_REMOVE(q, j, links);
    return j;
}

/* ---- breakers; locked ---- */

static breaker *breaker_of(remote_pool *p, const remote_job *j) {
    return j->event.kind == REMOTE_PUSHED ? &p->of_writes : &p->of_reads;
}

static bool may_try(const breaker *b) {
    return !b->open_until || (base_clock_us() >= b->open_until && !b->is_tried);
}

static void count_failure(remote_pool *p, const remote_job *j) {
    char cause[128];
    breaker *b = breaker_of(p, j);
    b->is_tried = false;
    p->figures.cause = j->event.cause;
    if (++b->n_failures < BREAKER_FAILURES && !b->open_until) return;
    b->open_until = base_clock_us() + BREAKER_US;
    p->figures.n_opened += b == &p->of_reads;
    base_log(BASE_LOG_WARN, "pool: no %s for %d s, after failures: %s (%s)", b->what, BREAKER_US / 1000000,
             j->event.err.message, base_errno_text(j->event.cause, cause, sizeof(cause)));
}

static void count_success(remote_pool *p, const remote_job *j) {
    breaker *b = breaker_of(p, j);
    if (b->open_until) base_log(BASE_LOG_INFO, "pool: %s again", b->what);
    *b = (breaker){.what = b->what};
    p->figures.cause = 0;
}

static void average(double *mean, double value) { *mean += (value - *mean) / (*mean > 0 ? AVERAGED : 1); }

/* ---- threads ---- */

/* Locked. */
static void finish(remote_pool *p, remote_job *j) {
    BASE_ASSERT(p->n_pending > 0);
    p->n_pending--;
    if (j->event.kind == REMOTE_PUSHED) {
        const uint64_t bytes = kv_span_bytes(j->event.span);
        BASE_ASSERT(p->n_pushing > 0 && p->push_bytes >= bytes);
        p->n_pushing--;
        p->push_bytes -= bytes;
    }
    BASE_LIST_APPEND(&p->events, j, links);
    p->notify(p->notify_user);
}

/* Carries out a job with the link of a thread. Returns the bytes that it read or wrote. Locked before and after. */
static uint64_t serve(remote_pool *p, pool_link *link, remote_job *j) {
    const uint64_t begin = base_clock_us();
    pthread_mutex_unlock(&p->lock);
    remote_job_run(&p->context, link, j);
    pthread_mutex_lock(&p->lock);
    const uint64_t bytes = j->event.bytes;
    if (j->event.cause) count_failure(p, j);
    else count_success(p, j);
    if (!j->event.failed && j->event.kind == REMOTE_PULLED && bytes > 0)
        average(&p->figures.byte_us, (double)(base_clock_us() - begin) / (double)bytes);
    finish(p, j);
    return bytes;
}

/* A job that is not begun: the pool is closed, its breaker is open, or there is no memory for a link. Locked. */
static void give_up(remote_pool *p, remote_job *j) {
    breaker_of(p, j)->is_tried = false;
    remote_job_refuse(j);
    finish(p, j);
}

static void *reader_main(void *arg) {
    remote_pool *p = arg;
    pool_link *link = NULL;
    pthread_mutex_lock(&p->lock);
    while (!p->closing || p->reads.first) {
        remote_job *j = queue_pop(&p->reads);
        if (!j) pthread_cond_wait(&p->readable, &p->lock);
        else if (p->closing || (!link && pool_link_open(p->driver, &link, NULL))) give_up(p, j);
        else serve(p, link, j);
    }
    pthread_mutex_unlock(&p->lock);
    pool_link_close(link);
    return NULL;
}

/* Waits until so many bytes may be written after those before. Locked. */
static void keep_rate(remote_pool *p, uint64_t *from_us, uint64_t bytes) {
    if (p->write_bytes_per_s == 0) return;
    *from_us = BASE_MAX(*from_us, base_clock_us()) + bytes * 1000000 / p->write_bytes_per_s;
    for (uint64_t now = base_clock_us(); !p->closing && now < *from_us; now = base_clock_us()) {
        const struct timespec until = base_clock_after((int64_t)((*from_us - now) / 1000 + 1));
        pthread_cond_timedwait(&p->writable, &p->lock, &until);
    }
}

static void *writer_main(void *arg) {
    remote_pool *p = arg;
    pool_link *link = NULL;
    uint64_t from_us = 0;
    pthread_mutex_lock(&p->lock);
    while (!p->closing || p->pushes.first) {
        remote_job *j = queue_pop(&p->pushes);
        if (!j) {
            pthread_cond_wait(&p->writable, &p->lock);
            continue;
        }
        j->deadline_us = base_clock_us() + PUSH_US;
        if (p->closing) j->deadline_us = BASE_MIN(j->deadline_us, p->deadline_us);
        const bool is_open = base_clock_us() < p->of_writes.open_until;
        if (is_open || base_clock_us() >= j->deadline_us || (!link && pool_link_open(p->driver, &link, NULL)))
            give_up(p, j);
        else keep_rate(p, &from_us, serve(p, link, j));
    }
    pthread_mutex_unlock(&p->lock);
    pool_link_close(link);
    return NULL;
}

/* ---- opening ---- */

static void remote_pool_free(remote_pool *p) {
    while (p->reads.first) remote_job_free(queue_pop(&p->reads));
    while (p->pushes.first) remote_job_free(queue_pop(&p->pushes));
    while (p->events.first) remote_job_free(queue_pop(&p->events));
    if (p->has_writable) pthread_cond_destroy(&p->writable);
    if (p->has_readable) pthread_cond_destroy(&p->readable);
    if (p->has_lock) pthread_mutex_destroy(&p->lock);
    pool_driver_close(p->driver);
    base_free(p);
}

static int start_threads(remote_pool *p, rp_error *err) {
    p->has_lock = pthread_mutex_init(&p->lock, NULL) == 0;
    p->has_readable = base_cond_init(&p->readable);
    p->has_writable = base_cond_init(&p->writable);
    if (!p->has_lock || !p->has_readable || !p->has_writable) return base_fail_memory(err, sizeof(*p), "a pool");
    while (p->n_threads < N_READERS + 1) {
        void *(*const fn)(void *) = p->n_threads < N_READERS ? reader_main : writer_main;
        const int cause = base_thread_start(&p->threads[p->n_threads], fn, p);
        errno = cause;
        if (cause) return base_fail_errno(err, "cannot start a thread for", "a pool");
        p->n_threads++;
    }
    return RP_OK;
}

int remote_pool_open(remote_pool **out, const remote_pool_options *o, rp_error *err) {
    remote_pool *p = base_calloc(1, sizeof(*p));
    *out = NULL;
    if (!p) return base_fail_memory(err, sizeof(*p), "a pool");
    p->of_reads.what = "reads";
    p->of_writes.what = "writes";
    p->context = (remote_context){.secret = *o->secret, .format = o->format};
    p->write_bytes_per_s = o->write_bytes_per_s;
    p->notify = o->notify;
    p->notify_user = o->notify_user;
    int rc = pool_driver_open(&p->driver, o->address, err);
    if (rc) {
        remote_pool_free(p);
        return rc;
    }
    if ((rc = start_threads(p, err))) remote_pool_close(p, 0);
    else *out = p;
    return rc;
}

void remote_pool_close(remote_pool *p, uint64_t deadline_us) {
    if (!p) return;
    if (p->n_threads > 0) {
        pthread_mutex_lock(&p->lock);
        p->closing = true;
        p->deadline_us = deadline_us;
        pthread_cond_broadcast(&p->readable);
        pthread_cond_broadcast(&p->writable);
        pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    }
    remote_pool_free(p);
}

/* ---- operations ---- */

/* Returns the ticket of its event. */
static uint64_t enqueue(remote_pool *p, remote_job *j) {
    pthread_mutex_lock(&p->lock);
    const uint64_t ticket = j->event.ticket = ++p->n_tickets;
    p->n_pending++;
    if (breaker_of(p, j)->open_until) breaker_of(p, j)->is_tried = true;
    if (j->event.kind == REMOTE_PUSHED) {
        p->n_pushing++;
        p->push_bytes += kv_span_bytes(j->event.span);
        BASE_LIST_APPEND(&p->pushes, j, links);
        pthread_cond_signal(&p->writable);
    } else {
        if (j->event.kind == REMOTE_PULLED) BASE_LIST_APPEND(&p->reads, j, links);
        else BASE_LIST_PREPEND(&p->reads, j, links); /* a request waits for it, and it is short */
        pthread_cond_signal(&p->readable);
    }
    pthread_mutex_unlock(&p->lock);
    return ticket;
}

bool remote_pool_is_usable(remote_pool *p) {
    pthread_mutex_lock(&p->lock);
    const bool is_usable = may_try(&p->of_reads);
    pthread_mutex_unlock(&p->lock);
    return is_usable;
}

int remote_pool_look(remote_pool *p, remote_look *look, uint64_t deadline_us, uint64_t *ticket) {
    remote_job *j = base_calloc(1, sizeof(*j));
    if (!j) return RP_ERR_MEMORY;
    BASE_ASSERT(look->n_texts <= REMOTE_POOL_TEXTS && look->n_rows == 0);
    *j = (remote_job){.event = {.kind = REMOTE_LOOKED, .look = *look}, .deadline_us = deadline_us};
    *look = (remote_look){0};
    *ticket = enqueue(p, j);
    return RP_OK;
}

int remote_pool_pull(remote_pool *p, const remote_row *row, kv_span *span, uint64_t deadline_us, uint64_t *ticket) {
    remote_job *j = base_calloc(1, sizeof(*j));
    if (!j) return RP_ERR_MEMORY;
    *j = (remote_job){.event = {.kind = REMOTE_PULLED, .span = kv_span_ref(span), .key = row->row->record.key},
                      .salt = row->salt,
                      .deadline_us = deadline_us};
    *ticket = enqueue(p, j);
    return RP_OK;
}

int remote_pool_push(remote_pool *p, record_row *row, kv_span *span, const rp_name *names, int n_names,
                     const base_key *salt) {
    BASE_ASSERT(n_names <= REMOTE_POOL_NAMES && kv_span_is_sealed(span));
    pthread_mutex_lock(&p->lock);
    const bool is_full = p->n_pushing > 0 && (p->n_pushing >= MOST_PUSHES ||
                                              p->push_bytes + kv_span_bytes(span) > MOST_PUSHED_BYTES);
    const bool refuses = is_full || !may_try(&p->of_writes);
    pthread_mutex_unlock(&p->lock);
    if (refuses) return RP_ERR_BUSY;
    remote_job *j = base_calloc(1, sizeof(*j));
    if (!j) return RP_ERR_MEMORY;
    *j = (remote_job){.event = {.kind = REMOTE_PUSHED, .span = kv_span_ref(span), .key = row->record.key},
                      .salt = *salt,
                      .row = row,
                      .n_names = n_names};
    memcpy(j->names, names, (size_t)n_names * sizeof(*names));
    (void)enqueue(p, j);
    return RP_OK;
}

bool remote_pool_next(remote_pool *p, remote_event *out) {
    pthread_mutex_lock(&p->lock);
    remote_job *j = queue_pop(&p->events);
    pthread_mutex_unlock(&p->lock);
    if (!j) return false;
    *out = j->event;
    j->event.span = NULL;
    j->event.look = (remote_look){0};
    remote_job_free(j);
    return true;
}

remote_figures remote_pool_measure(remote_pool *p) {
    pthread_mutex_lock(&p->lock);
    remote_figures f = p->figures;
    f.is_busy = p->n_pending > 0 || p->events.first;
    f.is_open = p->of_reads.open_until != 0;
    pthread_mutex_unlock(&p->lock);
    return f;
}
