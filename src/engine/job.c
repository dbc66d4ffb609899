/* SPDX-License-Identifier: Apache-2.0 */
/* job.c: the life of a job, and the functions of rp_job. */
#include "engine/job.h"

#include <errno.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "engine/engine_internal.h"

#define JOB_MS_WEIGHT 0.2 /* weight of the last job in the average duration */

int job_new(rp_job **out, rp_engine *e, job_kind kind, rp_error *err) {
    *out = NULL;
    rp_job *c = base_calloc(1, sizeof(*c));
    if (!c) return base_fail_memory(err, sizeof(*c), "a call");
    *c = (rp_job){.engine = e, .kind = kind};
    atomic_init(&c->cancelled, false);
    atomic_init(&c->paused, false);
    kv_context_init(&c->seq.context, e->pool);
    if (!base_cond_init(&c->ended_cond)) {
        base_free(c);
        return base_fail_memory(err, sizeof(*c), "a condition");
    }
    *out = c;
    return RP_OK;
}

void job_release(rp_job *c) {
    prefetch_release(c);
    blend_release(c);
    segment_needs_release(c->engine, &c->needs);
    kv_context_clear(&c->seq.context);
    span_path_release(&c->path);
    span_path_release(&c->moved.path);
    sequence_reset(&c->seq);
    c->n_found = 0;
}

static void job_free_plan(rp_job *c) {
    for (int32_t i = 0; c->stops && i < c->options.n_stops; i++) base_free(c->stops[i]);
    base_free(c->stops);
    base_free(c->bias);
    base_free(c->forced);
    base_free(c->tokens);
    base_free(c->positions);
    base_free(c->other.tokens);
    base_free(c->other.positions);
    prompt_lookup_close(&c->prompt_lookup);
    answer_close(&c->answer);
    pml_plan_free(c->plan);
    pml_document_free(c->document);
    if (c->schema) engine_schema_unref(c->engine, c->schema);
}

void job_free(rp_job *c) {
    if (!c) return;
    BASE_ASSERT(c->seq.reserved == 0);
    job_free_plan(c);
    rp_result_free(c->result);
    pthread_cond_destroy(&c->ended_cond);
    base_free(c);
}

/* ---- completion ---- */

void job_publish(rp_job *c, int rc, const rp_error *err) {
    rp_engine *e = c->engine;
    double ms = (double)(base_clock_us() - c->submitted_us) / 1e3;
    if (c->options.on_done) c->options.on_done(c->options.user);
    pthread_mutex_lock(&e->lock);
    BASE_ASSERT(!c->ended && e->n_live > 0);
    c->rc = rc;
    if (rc) {
        if (err) c->err = *err;
        rp_result_free(c->result);
        c->result = NULL;
    }
    c->status.state = RP_JOB_DONE;
    c->status.queue_position = 0;
    if (c->result) c->status.computed_tokens = c->status.prompt_tokens, c->status.answer_tokens = c->result->n_tokens;
    e->n_live--;
    e->job_ms += (ms - e->job_ms) * JOB_MS_WEIGHT;
    c->ended = true;
    pthread_cond_broadcast(&c->ended_cond);
    pthread_mutex_unlock(&e->lock); /* the job may be freed from here on */
}

/* ---- rp_job ---- */

bool rp_job_wait(rp_job *c, int64_t timeout_ms) {
    rp_engine *e = c->engine;
    struct timespec until = base_clock_after(BASE_MAX(timeout_ms, 0));
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    while (!c->ended && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&c->ended_cond, &e->lock) : pthread_cond_timedwait(&c->ended_cond, &e->lock, &until);
    bool ended = c->ended;
    pthread_mutex_unlock(&e->lock);
    return ended;
}

int rp_job_result(rp_job *c, rp_result **out, rp_error *err) {
    *out = NULL;
    rp_job_wait(c, -1);
    if (c->rc) {
        if (err) *err = c->err;
        return c->rc;
    }
    if (!c->result && c->kind == JOB_REQUEST) return base_fail(err, RP_ERR_INVALID, "the result of job %llu was already taken",
                                                                (unsigned long long)c->number);
    *out = c->result;
    c->result = NULL;
    return RP_OK;
}

static void wake_engine(rp_engine *e) {
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

void rp_job_cancel(rp_job *c) {
    atomic_store(&c->cancelled, true);
    wake_engine(c->engine);
}

void rp_job_pause(rp_job *c) { atomic_store(&c->paused, true); }

void rp_job_resume(rp_job *c) {
    if (atomic_exchange(&c->paused, false)) wake_engine(c->engine);
}

void rp_job_free(rp_job *c) {
    if (!c) return;
    rp_job_cancel(c);
    rp_job_wait(c, -1);
    job_free(c);
}

uint64_t rp_job_number(const rp_job *c) { return c->number; }

void rp_job_get_status(rp_job *c, rp_job_status *out) {
    pthread_mutex_lock(&c->engine->lock);
    *out = c->status;
    pthread_mutex_unlock(&c->engine->lock);
}
