/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c: hands jobs to the engine's thread: requests, prefill of a schema's modules, preparation of weights. */
#include "engine/core/submit.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/sized.h"
#include "engine/core/engine_state.h"
#include "engine/core/fallback.h"
#include "engine/core/identity.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/request.h"
#include "engine/core/schemas.h"
#include "sampling/answer_stream.h"
#include "reprise_pml.h"

#define LEAST_RETRY_MS 50
#define MOST_RETRY_MS 600000.0

/* Estimates when a sequence will be free: earlier jobs end max_sequences at a time. */
static uint32_t retry_after_ms(const rp_engine *e) {
    double ms = e->job_ms * (e->n_live - e->max_sequences - e->max_queue + 1) / e->max_sequences;
    return (uint32_t)BASE_MAX(BASE_MIN(ms, MOST_RETRY_MS), LEAST_RETRY_MS);
}

int engine_check_computes(const rp_engine *e, rp_error *err) {
    if (!e->plans_only) return RP_OK;
    return base_fail(err, RP_ERR_UNSUPPORTED,
                     "the engine was made with plans_only: it plans requests, and computes none");
}

/* Hands a job to the engine's thread. RP_ERR_BUSY, RP_ERR_MEMORY, RP_ERR_UNSUPPORTED. */
static int job_queue(rp_job *c, rp_error *err) {
    rp_engine *e = c->engine;
    int rc = engine_check_computes(e, err);
    if (!rc) rc = answer_stream_reserve(c->request->options.stream, err);
    if (rc) return rc;
    BASE_ASSERT(c->kind != JOB_REQUEST || !base_key_equal(&c->salt, &(base_key){{0}})); /* invariant 7 */
    BASE_ASSERT(c->phase == JOB_WAITING && !c->next);
    job_draft(c)->submitted_us = base_clock_us() - c->request->planned_us;
    if (c->request->options.deadline_ms > 0)
        job_draft(c)->deadline_us = c->request->submitted_us + (uint64_t)c->request->options.deadline_ms * 1000;
    pthread_mutex_lock(&e->lock);
    if (e->n_live >= e->max_sequences + e->max_queue) {
        uint32_t ms = retry_after_ms(e);
        rc = base_fail(err, RP_ERR_BUSY, "%d requests are running and %d waiting: retry in %u ms, or raise max_queue",
                       e->max_sequences, e->n_live - e->max_sequences, ms);
        if (err) err->retry_after_ms = ms;
    } else {
        job_draft(c)->number = ++e->n_jobs;
        e->n_live++;
        *job_status_locked(c) = (rp_job_status){.prompt_tokens = c->plan ? c->plan->n_cached + c->plan->n_fresh : 0};
        *e->inbox_end = c;
        e->inbox_end = &c->next;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    if (rc) answer_stream_cancel(c->request->options.stream);
    return rc;
}

/* A planned job of a request, not queued yet. */
static int job_new_request(rp_job **out, rp_engine *e, const rp_request *request, rp_error *err) {
    rp_request o = rp_request_defaults();
    rp_job *c = NULL;
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), request, "rp_request", err);
    job_features_options(e, &o);
    if (!rc) rc = job_new(&c, e, JOB_REQUEST, err);
    if (!rc) rc = job_plan(c, &o, err);
    if (rc) job_free(c);
    else *out = c;
    return rc;
}

int rp_engine_submit(rp_engine *e, const rp_request *request, rp_job **out, rp_error *err) {
    if (!e || !request || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_engine_submit: engine, request and out are needed");
    int rc = engine_check_computes(e, err);
    *out = NULL;
    if (!rc) rc = job_new_request(out, e, request, err);
    if (!rc && (rc = job_queue(*out, err))) {
        job_free(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- jobs with a waiting caller ---- */

/* Queues a job, waits for it, frees it. */
static int job_run(rp_job *c, rp_result **out, rp_error *err) {
    rp_result *nothing;
    int rc = job_queue(c, err);
    if (!rc) rc = rp_job_result(c, out ? out : &nothing, err);
    job_free(c);
    return rc;
}

int rp_engine_run(rp_engine *e, const rp_request *request, rp_result **out, rp_error *err) {
    if (!e || !request || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_engine_run: engine, request and out are needed");
    *out = NULL;
    rp_job *c;
    int rc = rp_engine_prepare(e, NULL, NULL, err); /* before any clock starts */
    if (!rc) rc = job_new_request(&c, e, request, err);
    return rc ? rc : job_run(c, out, err);
}

/* A job that prefills a schema's modules, not queued yet. */
static int new_prefill_job(rp_job **out, rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress,
                           void *user, rp_error *err) {
    int rc = job_new(out, e, JOB_MODULE_PREFILL, err);
    if (rc) return rc;
    rp_job *c = *out;
    job_draft(c)->options.on_progress = on_progress;
    job_draft(c)->options.user = user;
    if (!(rc = engine_salt(e, tenant, &c->salt, err))) job_draft(c)->flow = c->salt;
    if (rc || (rc = engine_find_schema(e, &c->salt, name, &job_draft(c)->schema, err)) ||
        (rc = engine_use_schema(e, &job_draft(c)->schema, NULL, err))) {
        job_free(c);
        *out = NULL;
    }
    return rc;
}

int rp_schema_prefill(rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user,
                      rp_error *err) {
    rp_job *c;
    if (!e || !name) return base_fail(err, RP_ERR_INVALID, "rp_schema_prefill: engine and schema are needed");
    int rc = new_prefill_job(&c, e, tenant, name, on_progress, user, err);
    return rc ? rc : job_run(c, NULL, err);
}

int rp_schema_submit(rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user,
                     rp_job **out, rp_error *err) {
    if (!e || !name || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_schema_submit: engine, schema and out are needed");
    int rc = new_prefill_job(out, e, tenant, name, on_progress, user, err);
    if (!rc && (rc = job_queue(*out, err))) {
        job_free(*out);
        *out = NULL;
    }
    return rc;
}

int rp_engine_prepare(rp_engine *e, rp_on_progress on_progress, void *user, rp_error *err) {
    rp_job *c;
    if (!e) return base_fail(err, RP_ERR_INVALID, "rp_engine_prepare: engine is needed");
    pthread_mutex_lock(&e->lock);
    const bool is_prepared = e->prepared;
    pthread_mutex_unlock(&e->lock);
    if (is_prepared) return RP_OK;
    int rc = job_new(&c, e, JOB_PREPARE, err);
    if (rc) return rc;
    job_draft(c)->options.on_progress = on_progress;
    job_draft(c)->options.user = user;
    return job_run(c, NULL, err);
}
