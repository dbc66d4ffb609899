/* SPDX-License-Identifier: Apache-2.0 */
/* test_stream.c: rp_stream: the text of events is that of the result; each job has one end, however it ends; events of
 * a slow reader are joined; the file descriptor is readable while events wait; memory that runs out loses no end. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "sampling/answer_stream.h"
#include "support/calls.h"
#include "support/gate.h"
#include "support/shared_model.h"

#define MAX_JOBS 16
#define TEXT_BYTES 65536

/* What a reader has got of each job, by tag. */
typedef struct reading {
    char *text[MAX_JOBS];
    size_t n_bytes[MAX_JOBS];
    int n_ends[MAX_JOBS], n_events[MAX_JOBS];
    bool incomplete[MAX_JOBS];
    int ended;
} reading;

static void reading_open(reading *r) {
    *r = (reading){0};
    for (int i = 0; i < MAX_JOBS; i++) r->text[i] = calloc(1, TEXT_BYTES);
}

static void reading_close(reading *r) {
    for (int i = 0; i < MAX_JOBS; i++) free(r->text[i]);
}

/* Takes what waits; returns the number of events. */
static int32_t read_events(reading *r, rp_stream *s, int64_t timeout_ms) {
    const rp_stream_event *events;
    const int32_t n = rp_stream_read(s, timeout_ms, &events);
    for (int32_t i = 0; i < n; i++) {
        const rp_stream_event *v = &events[i];
        assert_true(v->tag < MAX_JOBS && r->n_bytes[v->tag] + v->n_bytes < TEXT_BYTES);
        assert_int_equal(r->n_ends[v->tag], 0); /* nothing comes after the end */
        memcpy(r->text[v->tag] + r->n_bytes[v->tag], v->text, v->n_bytes);
        r->n_bytes[v->tag] += v->n_bytes;
        r->n_events[v->tag]++;
        r->n_ends[v->tag] += v->ended;
        r->ended += v->ended;
        if (v->ended) r->incomplete[v->tag] = v->incomplete;
        else assert_true(v->n_bytes > 0 && !v->incomplete);
    }
    return n;
}

static rp_stream *new_stream(void) {
    rp_stream *s;
    rp_error err = {0};
    assert_int_equal(rp_stream_new(&s, &err), RP_OK);
    return s;
}

static bool is_readable(rp_stream *s) {
    struct pollfd p = {.fd = rp_stream_fd(s), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static rp_request request_with(rp_stream *s, uint64_t tag, const char *text, int32_t n) {
    rp_request q = calls_request(text, n);
    q.stream = s;
    q.stream_tag = tag;
    return q;
}

/* ---- what events say ---- */

static void text_is_that_of_the_result(void **state) {
    static const char *const stops[] = {"e", "\xef\xbf\xbd"};
    rp_engine *e = open_engine(NULL);
    (void)state;
    for (int32_t n_stops = 0; n_stops <= 2; n_stops++) {
        rp_job *jobs[8];
        reading r;
        rp_stream *s = new_stream();
        reading_open(&r);
        for (int i = 0; i < 8; i++) {
            char *text = calls_text(i, 20);
            rp_request q = request_with(s, (uint64_t)i, text, 1 + 9 * i);
            q.stops = stops, q.n_stops = n_stops;
            jobs[i] = calls_submit(e, &q);
            free(text);
        }
        while (r.ended < 8) read_events(&r, s, -1);
        for (int i = 0; i < 8; i++) {
            rp_result *result = calls_result(jobs[i]);
            assert_int_equal(r.n_bytes[i], strlen(result->text));
            assert_memory_equal(r.text[i], result->text, r.n_bytes[i]);
            assert_false(r.incomplete[i]);
            rp_result_free(result);
            rp_job_free(jobs[i]);
        }
        assert_int_equal(read_events(&r, s, 0), 0);
        rp_stream_free(s);
        reading_close(&r);
    }
    rp_engine_free(e);
}

static void a_run_has_events_too(void **state) {
    rp_engine *e = open_engine(NULL);
    rp_stream *s = new_stream();
    rp_request q = request_with(s, 3, "hello", 12);
    rp_result *result;
    reading r;
    (void)state;
    reading_open(&r);
    assert_int_equal(rp_engine_run(e, &q, &result, NULL), RP_OK);
    assert_int_equal(read_events(&r, s, 0), 1); /* nobody read meanwhile: text and end are one event */
    assert_int_equal(r.n_ends[3], 1);
    assert_string_equal(r.text[3], result->text);
    rp_result_free(result);
    rp_stream_free(s);
    reading_close(&r);
    rp_engine_free(e);
}

/* ---- ends ---- */

static void every_job_has_one_end(void **state) {
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    o.max_queue = 4;
    rp_engine *e = open_engine(&o);
    rp_stream *s = new_stream();
    rp_job *jobs[5], *none = NULL;
    rp_request gate_request = calls_request("gate", 2);
    reading r;
    gate g;
    (void)state;
    reading_open(&r);
    gate_close(&g, e, &gate_request);
    for (int i = 0; i < 4; i++) {
        rp_request q = request_with(s, (uint64_t)i, "hello", 5);
        if (i == 2) q.deadline_ms = 1;
        jobs[i] = calls_submit(e, &q);
    }
    rp_request refused = request_with(s, 9, "hello", 5);
    assert_int_equal(rp_engine_submit(e, &refused, &none, NULL), RP_ERR_BUSY);
    refused.max_tokens = -1;
    assert_int_not_equal(rp_engine_submit(e, &refused, &none, NULL), RP_OK);
    assert_false(is_readable(s));
    assert_int_equal(read_events(&r, s, 0), 0);
    rp_job_cancel(jobs[0]);
    for (const uint64_t until = base_clock_us() + 2000; base_clock_us() < until;) {} /* the deadline passes */
    gate_end(&g);
    rp_job_free(jobs[1]); /* waits for its end */
    while (r.ended < 4) {
        assert_true(read_events(&r, s, -1) > 0);
        assert_false(is_readable(s) && r.ended == 4);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(r.n_ends[i], 1);
    assert_int_equal(r.n_ends[9], 0);
    rp_result *result;
    assert_int_equal(rp_job_result(jobs[0], &result, NULL), RP_ERR_CANCELLED);
    assert_int_equal(rp_job_result(jobs[2], &result, NULL), RP_ERR_DEADLINE);
    rp_job_free(jobs[0]), rp_job_free(jobs[2]);
    calls_end(jobs[3]);
    rp_stream_free(s);
    reading_close(&r);
    rp_engine_free(e);
}

static void wait_at_end(void *user) {
    gate *g = user;
    pthread_mutex_lock(&g->lock);
    g->arrived = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* The end of a job and its event are published under one lock: no event comes while this thread has it, however long it
   waits. */
static void no_event_ends_before_its_job(void **state) {
    rp_engine *e = open_engine(NULL);
    rp_stream *s = new_stream();
    rp_request q = request_with(s, 0, "Once upon a time", 5);
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    reading r;
    (void)state;
    reading_open(&r);
    q.on_done = wait_at_end;
    q.user = &g;
    rp_job *job = calls_submit(e, &q);
    pthread_mutex_lock(&g.lock);
    while (!g.arrived) pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    read_events(&r, s, 0); /* its text */
    pthread_mutex_lock(&e->lock);
    gate_open(&g);
    assert_int_equal(read_events(&r, s, 20), 0);
    pthread_mutex_unlock(&e->lock);
    while (r.ended == 0) read_events(&r, s, -1);
    assert_true(rp_job_wait(job, 0));
    calls_end(job);
    rp_stream_free(s);
    reading_close(&r);
    rp_engine_free(e);
}

/* Freed in the queue and in its answer; the stream directly after it, read or not. */
static void jobs_are_freed_before_their_stream(void **state) {
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    rp_engine *e = open_engine(&o);
    (void)state;
    for (int i = 0; i < 20; i++) {
        rp_stream *s = new_stream();
        rp_request held = request_with(s, 0, "gate", 400), q = request_with(s, 1, "x", 5);
        reading r;
        gate g;
        reading_open(&r);
        gate_close(&g, e, &held);
        rp_job *waits = calls_submit(e, &q);
        gate_open(&g);
        if (i % 2) read_events(&r, s, -1);
        rp_job_free(g.call);
        rp_job_free(waits);
        while (i % 4 < 2 && r.ended < 2) read_events(&r, s, -1);
        rp_stream_free(s);
        reading_close(&r);
    }
    rp_engine_free(e);
}

/* Each allocation of a submission fails once, the place of the job's end among them. */
static void a_submission_that_fails_has_no_event(void **state) {
    rp_engine *e = open_engine(NULL);
    rp_stream *s = new_stream(), *none;
    rp_request q = request_with(s, 0, "x", 2), hold = calls_request("gate", 2);
    rp_error err = {0};
    rp_job *job;
    reading r;
    gate g;
    int rc = RP_ERR_MEMORY, n_failures = 0;
    (void)state;
    reading_open(&r);
    for (uint64_t i = 1; i < 4; i++) {
        base_alloc_fail_at(i, 0);
        assert_int_equal(rp_stream_new(&none, &err), RP_ERR_MEMORY);
        base_alloc_fail_at(0, 0);
        assert_null(none);
    }
    /* the engine allocates nothing meanwhile */
    gate_close(&g, e, &hold);
    for (int i = 0; i < 16; i++) assert_int_equal(answer_stream_reserve(s, NULL), RP_OK); /* all places that it has */
    for (uint64_t i = 1; rc; i++) {
        base_alloc_fail_at(i, i % 2 == 0);
        rc = rp_engine_submit(e, &q, &job, &err);
        base_alloc_fail_at(0, 0);
        assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
        if (rc) assert_null(job);
        assert_int_equal(read_events(&r, s, 0), 0);
        n_failures += rc != RP_OK;
    }
    assert_true(n_failures > 10);
    assert_non_null(strstr(err.message, "event of a stream"));
    for (int i = 0; i < 16; i++) answer_stream_cancel(s);
    gate_end(&g);
    while (r.ended == 0) read_events(&r, s, -1);
    calls_end(job);
    rp_stream_free(s);
    reading_close(&r);
    rp_engine_free(e);
}

/* ---- waiting events ---- */

static void waiting_pieces_are_joined(void **state) {
    rp_stream *s = new_stream();
    reading r;
    (void)state;
    reading_open(&r);
    for (int i = 0; i < 2; i++) assert_int_equal(answer_stream_reserve(s, NULL), RP_OK);
    assert_false(is_readable(s));
    assert_true(answer_stream_append(s, 0, "ab", 2));
    assert_true(is_readable(s));
    assert_true(answer_stream_append(s, 0, "c", 1));
    assert_true(answer_stream_append(s, 1, "x", 1));
    assert_true(answer_stream_append(s, 0, "d", 1));
    answer_stream_end(s, 0, false);
    assert_int_equal(read_events(&r, s, -1), 3);
    assert_false(is_readable(s));
    assert_string_equal(r.text[0], "abcd");
    assert_string_equal(r.text[1], "x");
    assert_int_equal(r.n_events[0], 2);
    answer_stream_end(s, 1, true);
    assert_true(is_readable(s));
    assert_int_equal(read_events(&r, s, 0), 1);
    assert_true(r.incomplete[1] && r.n_ends[1] == 1);
    rp_stream_free(s);
    reading_close(&r);
}

/* Each allocation fails once: text may be lost, and the end says so; it always comes. */
static void memory_that_runs_out_loses_no_end(void **state) {
    (void)state;
    bool lost = false, whole = false;
    for (uint64_t n = 1; !whole; n++) {
        rp_stream *s = new_stream();
        reading r;
        reading_open(&r);
        base_alloc_fail_at(n, 1);
        int n_jobs = 0, expected = 0;
        for (int i = 0; i < MAX_JOBS; i++) n_jobs += answer_stream_reserve(s, NULL) == RP_OK;
        bool ok[MAX_JOBS];
        for (int i = 0; i < n_jobs; i++) ok[i] = true;
        for (int round = 0; round < 40; round++)
            for (int i = 0; i < n_jobs; i++) {
                if (ok[i]) ok[i] = answer_stream_append(s, (uint64_t)i, "0123456789", 10);
                if (ok[i]) expected += 10;
            }
        for (int i = 0; i < n_jobs; i++) answer_stream_end(s, (uint64_t)i, !ok[i]);
        while (read_events(&r, s, 0) == 0 && n_jobs > 0) base_alloc_fail_at(0, 0);
        base_alloc_fail_at(0, 0);
        int bytes = 0;
        for (int i = 0; i < n_jobs; i++) {
            assert_int_equal(r.n_ends[i], 1);
            assert_true(r.incomplete[i] == !ok[i]);
            bytes += (int)r.n_bytes[i];
            lost |= !ok[i];
        }
        assert_int_equal(bytes, expected);
        whole = n_jobs == MAX_JOBS && expected == MAX_JOBS * 400;
        rp_stream_free(s);
        reading_close(&r);
    }
    assert_true(lost);
}

/* ---- a reader beside the engine ---- */

typedef struct reader {
    rp_stream *stream;
    reading r;
    int n_jobs;
} reader;

static void *reader_main(void *arg) {
    reader *a = arg;
    while (a->r.ended < a->n_jobs) read_events(&a->r, a->stream, -1);
    return NULL;
}

static void a_reader_and_the_engine_at_once(void **state) {
    rp_engine *e = open_engine(NULL);
    (void)state;
    for (int round = 0; round < 8; round++) {
        reader a = {.stream = new_stream(), .n_jobs = MAX_JOBS};
        pthread_t thread;
        rp_job *jobs[MAX_JOBS];
        reading_open(&a.r);
        assert_int_equal(pthread_create(&thread, NULL, reader_main, &a), 0);
        for (int i = 0; i < MAX_JOBS; i++) {
            rp_request q = request_with(a.stream, (uint64_t)i, "hello", 30);
            jobs[i] = calls_submit(e, &q);
            if (i % 4 == 3) rp_job_cancel(jobs[i]);
        }
        pthread_join(thread, NULL);
        for (int i = 0; i < MAX_JOBS; i++) {
            rp_result *result = NULL;
            const int rc = rp_job_result(jobs[i], &result, NULL);
            assert_true(rc == RP_OK || (rc == RP_ERR_CANCELLED && i % 4 == 3));
            if (result) assert_string_equal(a.r.text[i], result->text);
            rp_result_free(result);
            rp_job_free(jobs[i]);
        }
        rp_stream_free(a.stream);
        reading_close(&a.r);
    }
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_that_of_the_result),
        cmocka_unit_test(a_run_has_events_too),
        cmocka_unit_test(every_job_has_one_end),
        cmocka_unit_test(no_event_ends_before_its_job),
        cmocka_unit_test(jobs_are_freed_before_their_stream),
        cmocka_unit_test(a_submission_that_fails_has_no_event),
        cmocka_unit_test(waiting_pieces_are_joined),
        cmocka_unit_test(memory_that_runs_out_loses_no_end),
        cmocka_unit_test(a_reader_and_the_engine_at_once),
    };
    return cmocka_run_group_tests_name("stream", tests, open_model, close_model);
}
