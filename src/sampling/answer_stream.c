/* SPDX-License-Identifier: Apache-2.0 */
/* answer_stream.c: see answer_stream.h. */
#include "sampling/answer_stream.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/threads.h"

#define MAX_TEXT_BYTES ((size_t)256 << 20)
#define MAX_EVENTS ((size_t)1 << 24)
#define LEAST_EVENTS 16
/* A reader that waits is not woken more often: waking a thread costs as much as a small model's token
   (docs/performance.md). Ends wake at once. */
#define PACE_US 1000

typedef struct event_list {
    rp_stream_event *events; /* [cap]; `text` is set when they are read */
    size_t *offsets;         /* [cap] of an event's text */
    size_t n, cap_events, cap_offsets;
    base_buffer text;
} event_list;

struct rp_stream {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    event_list waiting, reading; /* reading: the reader's own */
    size_t n_jobs;               /* that have not ended: a place is reserved for each */
    bool has_end;                /* `waiting` has a job's end */
    bool rests;                  /* the reader waits for its pace, or an end */
    uint64_t read_us;            /* the last time that it took something */
    int fd;                      /* readable while `waiting` has events, once it was asked for; -1: none */
};

static int reserve_events(event_list *l, size_t n) {
    int rc = base_grow((void **)&l->events, &l->cap_events, n, MAX_EVENTS, sizeof(*l->events));
    return rc ? rc : base_grow((void **)&l->offsets, &l->cap_offsets, n, MAX_EVENTS, sizeof(*l->offsets));
}

static void event_list_close(event_list *l) {
    base_free(l->events);
    base_free(l->offsets);
    base_buffer_free(&l->text);
}

/* The place is reserved. */
static rp_stream_event *stream_add_event(rp_stream *s, uint64_t tag) {
    event_list *l = &s->waiting;
    BASE_ASSERT(l->n < l->cap_events && l->n < l->cap_offsets);
    l->offsets[l->n] = l->text.len;
    l->events[l->n] = (rp_stream_event){.tag = tag};
    return &l->events[l->n++];
}

static void stream_mark_readable(const rp_stream *s) {
    const uint64_t one = 1;
    if (s->fd >= 0 && write(s->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) BASE_ASSERT(errno == EAGAIN); /* it is */
}

/* Wakes the reader. before: events that waited before. */
static void stream_wake(rp_stream *s, size_t before, bool is_end) {
    if (is_end || (before == 0 && !s->rests)) pthread_cond_signal(&s->ready);
    if (before == 0) stream_mark_readable(s);
}

/* ---- the engine's side ---- */

int answer_stream_reserve(rp_stream *s, rp_error *err) {
    if (!s) return RP_OK;
    pthread_mutex_lock(&s->lock);
    const int rc = reserve_events(&s->waiting, s->waiting.n + s->n_jobs + 1);
    if (!rc) s->n_jobs++;
    pthread_mutex_unlock(&s->lock);
    return rc ? base_fail_memory(err, sizeof(rp_stream_event), "an event of a stream") : RP_OK;
}

void answer_stream_cancel(rp_stream *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    BASE_ASSERT(s->n_jobs > 0);
    s->n_jobs--;
    pthread_mutex_unlock(&s->lock);
}

bool answer_stream_append(rp_stream *s, uint64_t tag, const char *text, size_t n) {
    if (!s || n == 0) return true;
    pthread_mutex_lock(&s->lock);
    event_list *l = &s->waiting;
    const size_t before = l->n;
    rp_stream_event *last = before > 0 ? &l->events[before - 1] : NULL;
    const bool joins = last && last->tag == tag && !last->ended;
    const bool fits =
        (joins || reserve_events(l, l->n + s->n_jobs + 1) == RP_OK) && base_buffer_reserve(&l->text, n) == RP_OK;
    if (fits) {
        if (!joins) last = stream_add_event(s, tag);
        last->n_bytes += n;
        const int rc = base_buffer_append(&l->text, text, n);
        BASE_ASSERT(rc == RP_OK); /* reserved */
        stream_wake(s, before, false);
    }
    pthread_mutex_unlock(&s->lock);
    return fits;
}

void answer_stream_end(rp_stream *s, uint64_t tag, bool is_incomplete) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    BASE_ASSERT(s->n_jobs > 0);
    const size_t before = s->waiting.n;
    rp_stream_event *last = before > 0 ? &s->waiting.events[before - 1] : NULL;
    if (!last || last->tag != tag || last->ended) last = stream_add_event(s, tag);
    last->ended = true;
    last->incomplete = is_incomplete;
    s->has_end = true;
    s->n_jobs--;
    stream_wake(s, before, true);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the reader's side ---- */

int rp_stream_new(rp_stream **out, rp_error *err) {
    if (!out) return base_fail(err, RP_ERR_INVALID, "rp_stream_new: out is needed");
    *out = NULL;
    rp_stream *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a stream");
    s->waiting.text = s->reading.text = BASE_BUFFER(MAX_TEXT_BYTES);
    s->fd = -1;
    if (reserve_events(&s->waiting, LEAST_EVENTS) || reserve_events(&s->reading, LEAST_EVENTS)) goto no_memory;
    if (pthread_mutex_init(&s->lock, NULL)) goto no_memory;
    if (!base_cond_init(&s->ready)) {
        pthread_mutex_destroy(&s->lock);
        goto no_memory;
    }
    *out = s;
    return RP_OK;
no_memory:
    event_list_close(&s->waiting);
    event_list_close(&s->reading);
    base_free(s);
    return base_fail_memory(err, sizeof(*s), "a stream");
}

void rp_stream_free(rp_stream *s) {
    if (!s) return;
    BASE_ASSERT(s->n_jobs == 0); /* its jobs were freed */
    if (s->fd >= 0) close(s->fd);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->lock);
    event_list_close(&s->waiting);
    event_list_close(&s->reading);
    base_free(s);
}

int rp_stream_fd(rp_stream *s) {
    pthread_mutex_lock(&s->lock);
#ifdef __linux__
    if (s->fd < 0) {
        s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (s->waiting.n > 0) stream_mark_readable(s);
    }
#endif
    pthread_mutex_unlock(&s->lock);
    return s->fd;
}

/* Waits for an event, under the lock; after text, for more of it up to the reader's pace. */
static bool stream_wait(rp_stream *s, int64_t timeout_ms) {
    const struct timespec until = base_clock_after(BASE_MAX(timeout_ms, 0));
    int rc = 0;
    while (s->waiting.n == 0 && rc != ETIMEDOUT && timeout_ms != 0)
        rc = timeout_ms < 0 ? pthread_cond_wait(&s->ready, &s->lock)
                            : pthread_cond_timedwait(&s->ready, &s->lock, &until);
    const uint64_t now = base_clock_us(), due = s->read_us + PACE_US;
    if (s->waiting.n > 0 && !s->has_end && timeout_ms != 0 && now < due) {
        struct timespec pace = base_clock_after(0);
        pace.tv_nsec += (long)(due - now) * 1000;
        if (pace.tv_nsec >= 1000000000) pace.tv_nsec -= 1000000000, pace.tv_sec++;
        s->rests = true;
        for (rc = 0; !s->has_end && rc != ETIMEDOUT;) rc = pthread_cond_timedwait(&s->ready, &s->lock, &pace);
        s->rests = false;
    }
    return s->waiting.n > 0;
}

int32_t rp_stream_read(rp_stream *s, int64_t timeout_ms, const rp_stream_event **events) {
    event_list *l = &s->reading;
    l->n = 0;
    base_buffer_clear(&l->text);
    pthread_mutex_lock(&s->lock);
    /* `reading` becomes the list that is appended to: it needs the places of the jobs' ends. */
    if (stream_wait(s, timeout_ms) && reserve_events(l, s->n_jobs + 1) == RP_OK) {
        const event_list taken = s->waiting;
        uint64_t count;
        s->waiting = *l;
        *l = taken;
        s->has_end = false;
        s->read_us = base_clock_us();
        if (s->fd >= 0 && read(s->fd, &count, sizeof(count)) != (ssize_t)sizeof(count)) BASE_ASSERT(errno == EAGAIN);
    }
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < l->n; i++) l->events[i].text = l->text.data ? l->text.data + l->offsets[i] : "";
    *events = l->events;
    return (int32_t)l->n;
}
