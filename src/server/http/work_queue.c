/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.c: see work_queue.h. */
#include "server/http/work_queue.h"

#include <pthread.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#define MAX_WORKERS 64

struct work_queue {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    server_work *first, **end;
    bool stopping;
    uint64_t taken_us; /* when work was taken last, or put into the empty queue */
    void (*run)(server_work *work);
    pthread_t threads[MAX_WORKERS];
    int n_threads;
};

/* The next piece of work; NULL: there is none and will be none. */
static server_work *work_queue_take(work_queue *q) {
    pthread_mutex_lock(&q->lock);
    while (!q->first && !q->stopping) pthread_cond_wait(&q->wake, &q->lock);
    server_work *work = q->first;
    if (work && !(q->first = work->next)) q->end = &q->first;
    BASE_ASSERT(q->first || q->end == &q->first);
    q->taken_us = base_clock_us();
    pthread_mutex_unlock(&q->lock);
    return work;
}

static _Thread_local bool is_worker;

bool work_queue_is_worker(void) { return is_worker; }

static void *work_queue_worker_main(void *arg) {
    work_queue *q = arg;
    is_worker = true;
    for (server_work *work; (work = work_queue_take(q));) q->run(work);
    return NULL;
}

int work_queue_new(work_queue **out, int n_threads, void (*run)(server_work *work), rp_error *err) {
    BASE_ASSERT(n_threads > 0); /* work is queued for somebody */
    work_queue *q = base_calloc(1, sizeof(*q));
    *out = NULL;
    if (!q) return base_fail_memory(err, sizeof(*q), "a queue");
    q->run = run;
    q->end = &q->first;
    pthread_mutex_init(&q->lock, NULL); /* with default attributes neither fails on Linux */
    pthread_cond_init(&q->wake, NULL);
    for (; q->n_threads < BASE_MIN(n_threads, MAX_WORKERS); q->n_threads++)
        if (pthread_create(&q->threads[q->n_threads], NULL, work_queue_worker_main, q)) {
            work_queue_free(q);
            return base_fail(err, RP_ERR_IO, "the server cannot start its worker threads");
        }
    *out = q;
    return RP_OK;
}

void work_queue_free(work_queue *q) {
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_broadcast(&q->wake);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < q->n_threads; i++) pthread_join(q->threads[i], NULL);
    BASE_ASSERT(!q->first); /* all of it has run */
    pthread_cond_destroy(&q->wake);
    pthread_mutex_destroy(&q->lock);
    base_free(q);
}

void work_queue_put(work_queue *q, server_work *work) {
    pthread_mutex_lock(&q->lock);
    BASE_ASSERT(!q->stopping);
    BASE_ASSERT(*q->end == NULL && q->end != &work->next); /* it is not queued already */
    work->next = NULL;
    if (!q->first) q->taken_us = base_clock_us();
    *q->end = work;
    q->end = &work->next;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

uint64_t work_queue_taken_us(work_queue *q) {
    pthread_mutex_lock(&q->lock);
    const uint64_t us = q->first ? q->taken_us : base_clock_us();
    pthread_mutex_unlock(&q->lock);
    return us;
}
