/* job.c: the life of a call, and the functions of rp_job. */
#include "engine/job.h"

#include <errno.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

#define LEAST_RETRY_MS 50
#define MOST_RETRY_MS 600000.0
#define JOB_MS_WEIGHT 0.2 /* of the last call in the average of how long calls take */

int job_new(rp_job **out, rp_engine *e, job_kind kind, rp_error *err) {
    *out = NULL;
    rp_job *c = base_calloc(1, sizeof(*c));
    if (!c) return base_fail_memory(err, sizeof(*c), "a call");
    *c = (rp_job){.engine = e, .kind = kind};
    atomic_init(&c->cancelled, false);
    atomic_init(&c->paused, false);
    kv_context_init(&c->seq.context, e->pool);
    if (!engine_cond_init(&c->ended_cond)) {
        base_free(c);
        return base_fail_memory(err, sizeof(*c), "a condition");
    }
    *out = c;
    return RP_OK;
}

void job_free(rp_job *c) {
    if (!c) return;
    job_plan_free(c);
    rp_result_free(c->result);
    pthread_cond_destroy(&c->ended_cond);
    base_free(c);
}

/* ---- the queue ---- */

/* When a place will probably be free: calls before it end max_sequences at a time. */
static uint32_t retry_after_ms(const rp_engine *e) {
    double ms = e->job_ms * (e->n_live - e->max_sequences - e->max_queue + 1) / e->max_sequences;
    return (uint32_t)BASE_MAX(BASE_MIN(ms, MOST_RETRY_MS), LEAST_RETRY_MS);
}

int job_queue(rp_job *c, rp_error *err) {
    rp_engine *e = c->engine;
    int rc = RP_OK;
    c->submitted_us = base_clock_us() - c->planned_us;
    if (c->options.deadline_ms > 0) c->deadline_us = c->submitted_us + (uint64_t)c->options.deadline_ms * 1000;
    pthread_mutex_lock(&e->lock);
    if (e->n_live >= e->max_sequences + e->max_queue) {
        uint32_t ms = retry_after_ms(e);
        rc = base_fail(err, RP_ERR_BUSY, "%d requests are running and %d waiting: retry in %u ms, or raise max_queue", e->max_sequences,
                       e->n_live - e->max_sequences, ms);
        if (err) err->retry_after_ms = ms;
    } else {
        c->number = ++e->n_jobs;
        e->n_live++;
        c->status = (rp_job_status){.prompt_tokens = c->plan ? c->plan->n_cached + c->plan->n_fresh : 0};
        *e->inbox_end = c;
        e->inbox_end = &c->next;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void job_publish(rp_job *c, int rc, const rp_error *err) {
    rp_engine *e = c->engine;
    double ms = (double)(base_clock_us() - c->submitted_us) / 1e3;
    if (c->options.on_done) c->options.on_done(c->options.user);
    pthread_mutex_lock(&e->lock);
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
    pthread_mutex_unlock(&e->lock); /* the call may be gone from here on */
}

/* ---- rp_job ---- */

int rp_engine_submit(rp_engine *e, const rp_request *request, rp_job **out, rp_error *err) {
    *out = NULL;
    rp_job *c = NULL;
    int rc = job_new(&c, e, JOB_REQUEST, err);
    if (!rc) rc = job_plan(c, request, err);
    if (!rc) rc = job_queue(c, err);
    if (rc) job_free(c);
    else *out = c;
    return rc;
}

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

/* ---- calls that somebody waits for ---- */

/* Queues a call, waits for it, frees it. */
static int job_run(rp_job *c, rp_result **out, rp_error *err) {
    rp_result *nothing;
    int rc = job_queue(c, err);
    if (!rc) rc = rp_job_result(c, out ? out : &nothing, err);
    job_free(c);
    return rc;
}

int rp_engine_run(rp_engine *e, const rp_request *request, rp_result **out, rp_error *err) {
    *out = NULL;
    rp_job *c;
    int rc = rp_engine_prepare(e, NULL, NULL, err); /* before any clock starts */
    if (!rc) rc = job_new(&c, e, JOB_REQUEST, err);
    if (rc) return rc;
    if ((rc = job_plan(c, request, err))) {
        job_free(c);
        return rc;
    }
    return job_run(c, out, err);
}

/* A call that computes a schema's modules, not queued yet. */
static int new_prefill_job(rp_job **out, rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user,
                      rp_error *err) {
    int rc = job_new(out, e, JOB_MODULE_PREFILL, err);
    if (rc) return rc;
    rp_job *c = *out;
    c->options.on_progress = on_progress;
    c->options.user = user;
    if (!(rc = engine_salt(e, tenant, &c->root.salt, err))) c->flow = c->root.salt;
    if (rc || (rc = engine_find_schema(e, &c->root.salt, name, &c->schema, err))) {
        job_free(c);
        *out = NULL;
    }
    return rc;
}

int rp_schema_prefill(rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user, rp_error *err) {
    rp_job *c;
    int rc = new_prefill_job(&c, e, tenant, name, on_progress, user, err);
    return rc ? rc : job_run(c, NULL, err);
}

int rp_schema_submit(rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user, rp_job **out,
                     rp_error *err) {
    int rc = new_prefill_job(out, e, tenant, name, on_progress, user, err);
    if (!rc && (rc = job_queue(*out, err))) {
        job_free(*out);
        *out = NULL;
    }
    return rc;
}

static bool is_prepared(rp_engine *e) {
    pthread_mutex_lock(&e->lock);
    bool prepared = e->prepared;
    pthread_mutex_unlock(&e->lock);
    return prepared;
}

int rp_engine_prepare(rp_engine *e, rp_on_progress on_progress, void *user, rp_error *err) {
    rp_job *c;
    if (is_prepared(e)) return RP_OK;
    int rc = job_new(&c, e, JOB_PREPARE, err);
    if (rc) return rc;
    c->options.on_progress = on_progress;
    c->options.user = user;
    return job_run(c, NULL, err);
}
