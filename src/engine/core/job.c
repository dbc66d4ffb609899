/* SPDX-License-Identifier: Apache-2.0 */
/* job.c: the life of a job, and the functions of rp_job. */
#include "engine/core/job.h"

#include <errno.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/threads.h"
#include "engine/core/engine_state.h"
#include "engine/core/job_feature.h"
#include "engine/core/schemas.h"
#include "engine/core/sequence.h"
#include "engine/reuse/auto_modules.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/segment_prefills.h"
#include "engine/reuse/span_prefetch.h"
#include "kv/context.h"
#include "pml/document.h"
#include "pml/plan.h"
#include "sampling/answer.h"
#include "sampling/answer_stream.h"
#include "sampling/prompt_lookup.h"
#include "store/index/span_tree.h"

#define JOB_MS_WEIGHT 0.2 /* weight of the last job in the average duration */

struct job_shared {
    atomic_bool cancelled, paused;
    /* Guarded by the engine's lock. */
    rp_job_status status;
    bool ended;
    pthread_cond_t ended_cond;
    int rc; /* immutable once ended, like err */
    rp_error err;
};

/* One allocation. */
typedef struct whole_job {
    rp_job job;
    job_request request;
    struct job_shared shared;
} whole_job;

int job_new(rp_job **out, rp_engine *e, job_kind kind, rp_error *err) {
    *out = NULL;
    whole_job *w = base_calloc(1, sizeof(*w));
    if (!w) return base_fail_memory(err, sizeof(*w), "a job");
    w->job = (rp_job){.engine = e, .kind = kind, .request = &w->request, .shared = &w->shared};
    atomic_init(&w->shared.cancelled, false);
    atomic_init(&w->shared.paused, false);
    kv_context_init(&w->job.seq.context, e->pool);
    if (!base_cond_init(&w->shared.ended_cond)) {
        base_free(w);
        return base_fail_memory(err, sizeof(*w), "a condition variable");
    }
    *out = &w->job;
    return RP_OK;
}

job_request *job_draft(rp_job *c) {
    BASE_ASSERT(c->request->number == 0); /* not queued */
    return (job_request *)(uintptr_t)c->request;
}

bool job_is_cancelled(const rp_job *c) { return atomic_load(&c->shared->cancelled); }

bool job_is_paused(const rp_job *c) { return atomic_load(&c->shared->paused); }

rp_job_status *job_status_locked(rp_job *c) { return &c->shared->status; }

/* Is it in a list of jobs that compute? */
BASE_UNUSED static bool job_computes(const rp_job *c) {
    for (int32_t i = 0; i < c->engine->n_running; i++)
        if (c->engine->running[i] == c) return true;
    return c->engine->background_tasks->current == c;
}

void job_release(rp_job *c) {
    BASE_DCHECK(!job_computes(c));
    prefetch_release(c);
    pool_pulls_release(c);
    job_features_release(c);
    segment_needs_release(c->engine, &c->needs);
    kv_context_clear(&c->seq.context);
    span_path_release(&c->prefix.path);
    moved_kv_put_back(c);
    checkpoints_release(c);
    draft_context_close(&c->drafts.model);
    drafts_drop(c);
    sequence_reset(&c->seq);
    c->prefix.n_found = 0;
    c->n_dropped = 0;
}

static void job_free_plan(rp_job *c) {
    for (int32_t i = 0; c->request->stops && i < c->request->options.n_stops; i++) base_free(c->request->stops[i]);
    base_free(c->request->stops);
    base_free(c->request->bias);
    base_free(c->request->forced);
    base_free(c->request->known);
    base_free(c->request->pieces);
    base_free(c->tokens);
    base_free(c->positions);
    base_free(c->scopes);
    base_free(c->other.tokens);
    base_free(c->other.positions);
    base_free(c->other.scopes);
    prompt_lookup_close(&c->prompt_lookup);
    answer_close(&c->answer);
    job_features_close(c);
    job_auto_close(&c->automatic);
    pml_plan_free(c->plan);
    pml_document_free(c->request->document);
    if (c->request->schema) engine_schema_unref(c->engine, c->request->schema);
}

void job_free(rp_job *c) {
    if (!c) return;
    BASE_ASSERT(c->seq.reserved == 0);
    BASE_ASSERT(c->prefix.path.n_steps == 0 && c->needs.n == 0 && c->seq.context.n_views == 0); /* it holds no KV */
    job_free_plan(c);
    rp_result_free(c->result);
    pthread_cond_destroy(&c->shared->ended_cond);
    base_free((whole_job *)(void *)c); /* job is its first member */
}

/* ---- completion ---- */

void job_publish(rp_job *c, int rc, const rp_error *err) {
    rp_engine *e = c->engine;
    BASE_ASSERT(c->phase == JOB_DONE && c->kind != JOB_BACKGROUND && c->seq.reserved == 0);
    BASE_ASSERT(rc || c->result || c->kind != JOB_REQUEST); /* for rp_job_result */
    double ms = (double)(base_clock_us() - c->request->submitted_us) / 1e3;
    if (c->request->options.on_done) c->request->options.on_done(c->request->options.user);
    pthread_mutex_lock(&e->lock);
    BASE_ASSERT(!c->shared->ended && e->n_live > 0);
    c->shared->rc = rc;
    if (rc) {
        if (err) c->shared->err = *err;
        rp_result_free(c->result);
        c->result = NULL;
    }
    c->shared->status.state = RP_JOB_DONE;
    c->shared->status.queue_position = 0;
    if (c->result)
        c->shared->status.computed_tokens = c->shared->status.prompt_tokens,
        c->shared->status.answer_tokens = c->result->n_tokens;
    e->n_live--;
    e->job_ms += (ms - e->job_ms) * JOB_MS_WEIGHT;
    c->shared->ended = true;
    pthread_cond_broadcast(&c->shared->ended_cond);
    answer_stream_end(c->request->options.stream, c->request->options.stream_tag, c->answer.stream.incomplete);
    pthread_mutex_unlock(&e->lock); /* the job may be freed from here on */
}

/* ---- rp_job ---- */

bool rp_job_wait(rp_job *c, int64_t timeout_ms) {
    rp_engine *e = c->engine;
    struct timespec until = base_clock_after(BASE_MAX(timeout_ms, 0));
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    while (!c->shared->ended && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&c->shared->ended_cond, &e->lock)
                            : pthread_cond_timedwait(&c->shared->ended_cond, &e->lock, &until);
    bool ended = c->shared->ended;
    BASE_ASSERT(ended || timeout_ms >= 0);
    pthread_mutex_unlock(&e->lock);
    return ended;
}

int rp_job_result(rp_job *c, rp_result **out, rp_error *err) {
    if (!c || !out) return base_fail(err, RP_ERR_INVALID, "rp_job_result: job and out are needed");
    *out = NULL;
    rp_job_wait(c, -1);
    if (c->shared->rc) {
        if (err) *err = c->shared->err;
        return c->shared->rc;
    }
    if (!c->result && c->kind == JOB_REQUEST)
        return base_fail(err, RP_ERR_INVALID, "the result of job %llu was already taken",
                         (unsigned long long)c->request->number);
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
    atomic_store(&c->shared->cancelled, true);
    wake_engine(c->engine);
}

void rp_job_pause(rp_job *c) { atomic_store(&c->shared->paused, true); }

void rp_job_resume(rp_job *c) {
    if (atomic_exchange(&c->shared->paused, false)) wake_engine(c->engine);
}

void rp_job_free(rp_job *c) {
    if (!c) return;
    rp_job_cancel(c);
    rp_job_wait(c, -1);
    job_free(c);
}

uint64_t rp_job_number(const rp_job *c) { return c->request->number; }

int rp_job_get_status(rp_job *c, rp_job_status *out) {
    if (!c || base_sized_check(out, "rp_job_status", NULL)) return RP_ERR_INVALID;
    pthread_mutex_lock(&c->engine->lock);
    rp_job_status status = c->shared->status;
    pthread_mutex_unlock(&c->engine->lock);
    base_sized_write(out, &status, sizeof(status));
    return RP_OK;
}
