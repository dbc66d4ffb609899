/* log_queue.c: see log_queue.h. Global state: the one queue of the process. */
#define _POSIX_C_SOURCE 200809L

#include "base/log_queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"

#define WRITE_BYTES 4096 /* of one write: as much as a pipe takes in one piece (PIPE_BUF) */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, drained;
    /* under the lock */
    bool has_thread, is_writing;
    size_t first, used; /* of bytes: where the oldest line begins; how many bytes are queued */
    uint64_t dropped, reported;
    char bytes[LOG_QUEUE_BYTES];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER, .drained = PTHREAD_COND_INITIALIZER};

/* ---- the writing thread ---- */

/* false: standard error is closed. */
static bool write_all(const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EAGAIN) { /* somebody made it non-blocking */
            poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (written <= 0) return false;
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

static size_t count_lines(const char *bytes, size_t n) {
    size_t lines = 0;
    for (size_t i = 0; i < n; i++) lines += bytes[i] == '\n';
    return lines;
}

/* Takes whole lines, as many as one write has space for, or a piece of a longer one. Locked. */
static size_t take_bytes(char *out) {
    size_t n = BASE_MIN(queue.used, WRITE_BYTES), to_end = BASE_MIN(n, LOG_QUEUE_BYTES - queue.first);
    memcpy(out, queue.bytes + queue.first, to_end);
    memcpy(out + to_end, queue.bytes, n - to_end);
    size_t whole = n;
    while (whole > 0 && out[whole - 1] != '\n') whole--;
    if (whole > 0) n = whole;
    queue.first = (queue.first + n) % LOG_QUEUE_BYTES;
    queue.used -= n;
    return n;
}

/* Locked. */
static size_t take_report(char *out) {
    uint64_t n = queue.dropped - queue.reported;
    queue.reported = queue.dropped;
    return (size_t)snprintf(out, WRITE_BYTES, "reprise: warn: %llu log lines were dropped: standard error was not read\n", (unsigned long long)n);
}

static void *writer_main(void *user) {
    char bytes[WRITE_BYTES];
    (void)user;
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        while (queue.used == 0 && queue.dropped == queue.reported) {
            queue.is_writing = false;
            pthread_cond_broadcast(&queue.drained);
            pthread_cond_wait(&queue.filled, &queue.lock);
        }
        queue.is_writing = true;
        size_t n = queue.used > 0 ? take_bytes(bytes) : take_report(bytes);
        pthread_mutex_unlock(&queue.lock);
        bool is_written = write_all(bytes, n);
        pthread_mutex_lock(&queue.lock);
        if (!is_written) { /* nobody can read a report of it either */
            queue.dropped += count_lines(bytes, n);
            queue.reported = queue.dropped;
        }
    }
    return NULL;
}

/* A child of fork has the queue but not its thread. */
static void forget_thread(void) {
    queue.has_thread = queue.is_writing = false;
    queue.used = 0;
}

static void take_lock(void) { pthread_mutex_lock(&queue.lock); }
static void release_lock(void) { pthread_mutex_unlock(&queue.lock); }

static void release_child(void) {
    forget_thread();
    release_lock();
}

/* Locked. */
static bool start_thread(void) {
    static bool watches_forks;
    sigset_t all, before;
    pthread_t thread;
    if (!watches_forks) watches_forks = pthread_atfork(take_lock, release_lock, release_child) == 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(&thread, NULL, writer_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) pthread_detach(thread);
    return ok;
}

/* ---- for everybody ---- */

static void put_bytes(const char *bytes, size_t n) {
    size_t end = (queue.first + queue.used) % LOG_QUEUE_BYTES, to_end = BASE_MIN(n, LOG_QUEUE_BYTES - end);
    memcpy(queue.bytes + end, bytes, to_end);
    memcpy(queue.bytes, bytes + to_end, n - to_end);
    queue.used += n;
}

void log_queue_add(const char *line, size_t n) {
    pthread_mutex_lock(&queue.lock);
    if (!queue.has_thread) queue.has_thread = start_thread();
    if (!queue.has_thread || n >= LOG_QUEUE_BYTES - queue.used) queue.dropped++;
    else {
        put_bytes(line, n);
        put_bytes("\n", 1);
        queue.is_writing = true;
    }
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

uint64_t log_queue_dropped(void) {
    pthread_mutex_lock(&queue.lock);
    uint64_t n = queue.dropped;
    pthread_mutex_unlock(&queue.lock);
    return n;
}

bool log_queue_flush(int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&queue.lock);
    int rc = 0;
    while (queue.has_thread && queue.is_writing && rc == 0) rc = pthread_cond_timedwait(&queue.drained, &queue.lock, &until);
    bool is_empty = !queue.has_thread || !queue.is_writing;
    pthread_mutex_unlock(&queue.lock);
    return is_empty;
}
