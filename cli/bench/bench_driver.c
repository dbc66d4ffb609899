/* SPDX-License-Identifier: Apache-2.0 */
/* bench_driver.c: see bench_driver.h. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, pthread_condattr_setclock */

#include "bench/bench_driver.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/command.h"

#define LOOK_EVERY_MS 100.0 /* for Ctrl-C */

/* ---- engine thread ---- */

static void bench_driver_on_step(void *user, const rp_step *s) {
    bench_driver *d = user;
    double ms = (double)(s->end_us - s->start_us) / 1e3;
    pthread_mutex_lock(&d->lock);
    bench_steps *t = &d->steps;
    bench_histogram_add(&t->ms, ms);
    if (s->predicted_us > 0 && ms > 0)
        bench_histogram_add(&t->miss, 100 * fabs(ms - (double)s->predicted_us / 1e3) / ms);
    bool answers = false, pieces = false;
    for (int32_t i = 0; i < s->n_parts; i++) {
        const rp_step_part *p = &s->parts[i];
        t->rows[p->kind] += (uint64_t)p->n_rows;
        *(p->kind == RP_STEP_DECODE ? &answers : &pieces) |= p->n_rows > 0;
    }
    if (answers) bench_histogram_add(pieces ? &t->mixed_ms : &t->alone_ms, ms);
    if (s->n_running > t->most_running) t->most_running = s->n_running;
    if (s->n_waiting > t->most_waiting) t->most_waiting = s->n_waiting;
    if (s->kv_bytes > t->max_kv_bytes) t->max_kv_bytes = s->kv_bytes;
    d->n_running = s->n_running;
    d->n_waiting = s->n_waiting;
    d->kv_bytes = s->kv_bytes;
    pthread_mutex_unlock(&d->lock);
    bench_trace_step(d->trace, s);
}

static bool bench_driver_on_token(void *user, const rp_token *token) {
    (void)token;
    bench_call *c = user;
    double now = cli_now_ms();
    if (c->n_tokens++ == 0) c->first_ms = now;
    else bench_histogram_add(&c->driver->kinds[c->kind].tbt_ms, now - c->last_ms);
    c->last_ms = now;
    return c->n_tokens != c->stop_after;
}

static void bench_driver_on_done(void *user) {
    bench_call *c = user;
    bench_driver *d = c->driver;
    pthread_mutex_lock(&d->lock);
    c->next_ended = d->ended;
    d->ended = c;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

/* ---- creation ---- */

static void init_lock(bench_driver *d) {
    pthread_condattr_t attributes;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

int bench_driver_open(bench_driver *d, cli_loaded *loaded, const rp_engine_options *options, bench_trace *trace) {
    static const cli_list no_schemas;
    rp_engine_options o = *options;
    d->loaded = loaded;
    d->trace = trace;
    init_lock(d);
    o.on_step = bench_driver_on_step;
    o.step_user = d;
    int status = cli_load_engine(loaded, &o, &no_schemas);
    if (status == CLI_OK) status = cli_prepare_engine(loaded, &o);
    d->start_ms = cli_now_ms();
    return status;
}

void bench_driver_close(bench_driver *d) {
    if (d->loaded == NULL) return;
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
}

void bench_driver_restart(bench_driver *d) {
    for (int i = 0; i < d->n_kinds; i++) d->kinds[i] = (bench_kind){.name = d->kinds[i].name};
    pthread_mutex_lock(&d->lock);
    d->steps = (bench_steps){0};
    pthread_mutex_unlock(&d->lock);
    d->start_ms = cli_now_ms();
}

bench_steps bench_steps_now(bench_driver *d) {
    pthread_mutex_lock(&d->lock);
    bench_steps steps = d->steps;
    pthread_mutex_unlock(&d->lock);
    return steps;
}

/* ---- requests ---- */

void bench_fault(bench_driver *d, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (d->faults++ == 0) vsnprintf(d->fault, sizeof d->fault, fmt, args);
    va_end(args);
}

static void count_error(bench_driver *d, int kind, const rp_error *err) {
    unsigned code = (unsigned)-(int)err->code;
    d->kinds[kind].failed++;
    d->errors[code < BENCH_ERRORS ? code : BENCH_ERRORS - 1]++;
    char line[CLI_MESSAGE_BYTES];
    if (code >= 32 || !(d->tolerated >> code & 1)) bench_fault(d, "%s", cli_message(err, line));
}

static void link_call(bench_driver *d, bench_call *c) {
    c->older = d->newest;
    if (c->older != NULL) c->older->newer = c;
    d->newest = c;
    d->n_alive++;
}

static void unlink_call(bench_driver *d, bench_call *c) {
    if (c->older != NULL) c->older->newer = c->newer;
    *(c->newer != NULL ? &c->newer->older : &d->newest) = c->older;
    d->n_alive--;
}

void bench_submit(bench_driver *d, rp_request *request, const bench_place *p) {
    bench_call *c = cli_alloc(sizeof *c);
    rp_error err;
    *c = (bench_call){.driver = d, .kind = p->kind, .due_ms = p->due_ms, .submitted_ms = cli_now_ms(), .tag = p->tag};
    c->stop_after = p->stop_after;
    request->on_token = bench_driver_on_token;
    request->on_done = bench_driver_on_done;
    request->user = c;
    if (d->loaded->draft != NULL && request->n_draft == 0) request->n_draft = RP_DRAFT_AUTO;
    d->kinds[p->kind].submitted++;
    if (rp_engine_submit(d->loaded->engine, request, &c->call, &err) != RP_OK) {
        count_error(d, p->kind, &err);
        if (d->on_ended != NULL) d->on_ended(d->user, c, NULL, &err);
        free(c);
        return;
    }
    link_call(d, c);
    bench_trace_call(d->trace, rp_job_number(c->call), d->kinds[p->kind].name);
}

static void count_result(bench_kind *k, const bench_call *c, const rp_result *r) {
    k->done++;
    k->prompt_tokens += (uint64_t)r->prompt_tokens;
    k->cached_tokens += (uint64_t)r->cached_tokens;
    k->answer_tokens += (uint64_t)r->n_tokens;
    bench_histogram_add(&k->queue_ms, r->timings.queue_ms);
    if (c->n_tokens > 0) bench_histogram_add(&k->ttft_ms, c->first_ms - c->due_ms);
}

static void bench_driver_take_back(bench_driver *d, bench_call *c) {
    rp_result *r = NULL;
    rp_error err = {0};
    int rc = rp_job_result(c->call, &r, &err);
    double now = cli_now_ms();
    if (rc == RP_OK) count_result(&d->kinds[c->kind], c, r);
    else if (!cli_interrupted()) count_error(d, c->kind, &err);
    bench_trace_queue(d->trace, rp_job_number(c->call), c->submitted_ms,
                      r != NULL ? r->timings.queue_ms : now - c->submitted_ms);
    if (d->on_ended != NULL) d->on_ended(d->user, c, r, r != NULL ? NULL : &err);
    d->end_ms = now;
    unlink_call(d, c);
    rp_job_free(c->call);
    rp_result_free(r);
    free(c);
}

/* In the order of completion. */
static void take_back_all(bench_driver *d, bench_call *ended) {
    bench_call *first = NULL;
    for (bench_call *c = ended, *next; c != NULL; c = next) {
        next = c->next_ended;
        c->next_ended = first;
        first = c;
    }
    for (bench_call *c = first, *next; c != NULL; c = next) {
        next = c->next_ended;
        bench_driver_take_back(d, c);
    }
}

/* Waits until a request ends, at most until ms. Collects all that have ended. */
static void wait_once(bench_driver *d, double ms) {
    struct timespec until = {(time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6)};
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    while (d->ended == NULL && rc == 0) rc = pthread_cond_timedwait(&d->changed, &d->lock, &until);
    bench_call *ended = d->ended;
    d->ended = NULL;
    pthread_mutex_unlock(&d->lock);
    take_back_all(d, ended);
}

void bench_wait_until(bench_driver *d, double ms) {
    for (double now; (now = cli_now_ms()) < ms && !cli_interrupted();) wait_once(d, fmin(ms, now + LOOK_EVERY_MS));
}

void bench_wait_alive(bench_driver *d, int32_t n) {
    while (d->n_alive > n) {
        if (cli_interrupted())
            for (bench_call *c = d->newest; c != NULL; c = c->older) rp_job_cancel(c->call);
        wait_once(d, cli_now_ms() + LOOK_EVERY_MS);
    }
}
