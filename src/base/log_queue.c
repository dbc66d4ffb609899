/* SPDX-License-Identifier: Apache-2.0 */
/* log_queue.c: see log_queue.h. The thread owns the bytes that it has taken; all else is under the lock. */
#define _POSIX_C_SOURCE 200809L
#include "base/check.h"
#include "base/log_queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file.h"
#include "reprise.h"
#include "base/threads.h"

#define WRITE_BYTES 4096 /* at once: PIPE_BUF */
#define NOTICE_BYTES 96

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news, ended;
    pthread_t thread;
    int fd;
    bool open, stopping, done;
    size_t head, len;             /* of the ring: bytes that wait */
    uint64_t dropped, unreported; /* lines: ever, and since the last notice */
    char ring[LOG_QUEUE_BYTES];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---- the ring; locked ---- */

static void ring_append(const char *bytes, size_t n) {
    BASE_ASSERT(n <= LOG_QUEUE_BYTES - queue.len);
    size_t at = (queue.head + queue.len) % LOG_QUEUE_BYTES, first = BASE_MIN(n, LOG_QUEUE_BYTES - at);
    memcpy(queue.ring + at, bytes, first);
    memcpy(queue.ring, bytes + first, n - first);
    queue.len += n;
}

/* Reports the omitted lines, if the queue has capacity for that and `more` bytes. */
static void log_queue_ring_report(size_t more) {
    char notice[NOTICE_BYTES];
    if (queue.unreported == 0 || queue.len + NOTICE_BYTES + more > LOG_QUEUE_BYTES) return;
    int n = snprintf(notice, sizeof(notice),
                     "reprise: warning: log: %llu lines dropped: standard error was not read fast enough\n",
                     (unsigned long long)queue.unreported);
    BASE_ASSERT(n > 0 && (size_t)n < sizeof(notice));
    ring_append(notice, (size_t)n);
    queue.unreported = 0;
}

/* ---- the thread ---- */

static void log_queue_write_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EAGAIN) { /* whoever gave us the pipe made it non-blocking */
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (written <= 0) return; /* the reader has closed its end, or the disk is full: the error cannot be reported */
        bytes += written;
        n -= (size_t)written;
    }
}

static void *queue_main(void *unused) {
    char bytes[WRITE_BYTES];
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        if (queue.len == 0) log_queue_ring_report(0);
        if (queue.len == 0 && queue.stopping) break;
        if (queue.len == 0) {
            pthread_cond_wait(&queue.news, &queue.lock);
            continue;
        }
        BASE_ASSERT(queue.head < LOG_QUEUE_BYTES && queue.len <= LOG_QUEUE_BYTES);
        size_t n = BASE_MIN(BASE_MIN(queue.len, LOG_QUEUE_BYTES - queue.head), sizeof bytes);
        memcpy(bytes, queue.ring + queue.head, n);
        queue.head = (queue.head + n) % LOG_QUEUE_BYTES;
        queue.len -= n;
        pthread_mutex_unlock(&queue.lock);
        log_queue_write_all(queue.fd, bytes, n);
        pthread_mutex_lock(&queue.lock);
    }
    queue.done = true;
    pthread_cond_signal(&queue.ended);
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

/* ---- public ---- */

int log_queue_open(int fd) {
    pthread_condattr_t attributes;
    int rc = 0;
    pthread_mutex_lock(&queue.lock);
    if (!queue.open && pthread_condattr_init(&attributes) == 0) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&queue.news, NULL);
        pthread_cond_init(&queue.ended, &attributes);
        pthread_condattr_destroy(&attributes);
        queue.fd = fd;
        queue.stopping = queue.done = false;
        queue.open = base_thread_start(&queue.thread, queue_main, NULL) == 0;
    }
    if (!queue.open) rc = RP_ERR_INTERNAL;
    pthread_mutex_unlock(&queue.lock);
    return rc;
}

bool log_queue_put(const char *line, size_t n) {
    pthread_mutex_lock(&queue.lock);
    bool open = queue.open && !queue.stopping;
    if (open) {
        log_queue_ring_report(n + 1);
        if (queue.unreported > 0 || n >= LOG_QUEUE_BYTES - queue.len) {
            queue.dropped++;
            queue.unreported++;
        } else {
            ring_append(line, n);
            ring_append("\n", 1);
        }
        pthread_cond_signal(&queue.news);
    }
    pthread_mutex_unlock(&queue.lock);
    return open;
}

uint64_t log_queue_dropped(void) {
    pthread_mutex_lock(&queue.lock);
    uint64_t dropped = queue.dropped;
    pthread_mutex_unlock(&queue.lock);
    return dropped;
}

void log_queue_close(int64_t ms) {
    struct timespec until = base_clock_after(ms);
    int rc = 0;
    pthread_mutex_lock(&queue.lock);
    bool open = queue.open && !queue.stopping;
    queue.stopping = true;
    if (open) pthread_cond_signal(&queue.news);
    while (open && !queue.done && rc != ETIMEDOUT) rc = pthread_cond_timedwait(&queue.ended, &queue.lock, &until);
    bool done = open && queue.done;
    if (done) queue.open = false;
    pthread_mutex_unlock(&queue.lock);
    if (done) pthread_join(queue.thread, NULL);
    else if (open) pthread_detach(queue.thread); /* it waits for a reader, and ends with the process */
}
