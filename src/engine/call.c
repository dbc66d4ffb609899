/* call.c: the life of a call, and the functions of rp_call. */
#include "engine/call.h"

#include <errno.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

#define LEAST_RETRY_MS 50
#define MOST_RETRY_MS 600000.0
#define CALL_MS_WEIGHT 0.2 /* of the last call in the average of how long calls take */

int call_new(rp_call **out, rp_engine *e, call_kind kind, rp_error *err) {
    *out = NULL;
    rp_call *c = base_calloc(1, sizeof(*c));
    if (!c) return base_fail_memory(err, sizeof(*c), "a call");
    *c = (rp_call){.engine = e, .kind = kind};
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

void call_free(rp_call *c) {
    if (!c) return;
    call_plan_free(c);
    rp_result_free(c->result);
    pthread_cond_destroy(&c->ended_cond);
    base_free(c);
}

/* ---- the queue ---- */

/* When a place will probably be free: calls before it end max_sequences at a time. */
static uint32_t retry_after_ms(const rp_engine *e) {
    double ms = e->call_ms * (e->n_live - e->max_sequences - e->max_queue + 1) / e->max_sequences;
    return (uint32_t)BASE_MAX(BASE_MIN(ms, MOST_RETRY_MS), LEAST_RETRY_MS);
}

int call_queue(rp_call *c, rp_error *err) {
    rp_engine *e = c->engine;
    int rc = RP_OK;
    c->submitted_us = base_clock_us() - c->planned_us;
    if (c->options.deadline_ms > 0) c->deadline_us = c->submitted_us + (uint64_t)c->options.deadline_ms * 1000;
    pthread_mutex_lock(&e->lock);
    if (e->n_live >= e->max_sequences + e->max_queue) {
        uint32_t ms = retry_after_ms(e);
        rc = base_fail(err, RP_ERR_BUSY, "%d calls run and %d wait: try again in %u ms, or let more wait (max_queue)", e->max_sequences,
                       e->n_live - e->max_sequences, ms);
        if (err) err->retry_after_ms = ms;
    } else {
        c->number = ++e->n_calls;
        e->n_live++;
        c->status = (rp_call_status){.prompt_tokens = c->plan ? c->plan->n_cached + c->plan->n_fresh : 0};
        *e->inbox_end = c;
        e->inbox_end = &c->next;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void call_publish(rp_call *c, int rc, const rp_error *err) {
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
    c->status.state = RP_CALL_DONE;
    c->status.queue_position = 0;
    if (c->result) c->status.computed_tokens = c->status.prompt_tokens, c->status.answer_tokens = c->result->n_tokens;
    e->n_live--;
    e->call_ms += (ms - e->call_ms) * CALL_MS_WEIGHT;
    c->ended = true;
    pthread_cond_broadcast(&c->ended_cond);
    pthread_mutex_unlock(&e->lock); /* the call may be gone from here on */
}

/* ---- rp_call ---- */

int rp_engine_submit(rp_engine *e, const rp_request *request, rp_call **out, rp_error *err) {
    *out = NULL;
    rp_call *c = NULL;
    int rc = call_new(&c, e, CALL_REQUEST, err);
    if (!rc) rc = call_plan(c, request, err);
    if (!rc) rc = call_queue(c, err);
    if (rc) call_free(c);
    else *out = c;
    return rc;
}

bool rp_call_wait(rp_call *c, int64_t timeout_ms) {
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

int rp_call_result(rp_call *c, rp_result **out, rp_error *err) {
    *out = NULL;
    rp_call_wait(c, -1);
    if (c->rc) {
        if (err) *err = c->err;
        return c->rc;
    }
    if (!c->result && c->kind == CALL_REQUEST) return base_fail(err, RP_ERR_INVALID, "the result of call %llu was taken before",
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

void rp_call_cancel(rp_call *c) {
    atomic_store(&c->cancelled, true);
    wake_engine(c->engine);
}

void rp_call_pause(rp_call *c) { atomic_store(&c->paused, true); }

void rp_call_resume(rp_call *c) {
    if (atomic_exchange(&c->paused, false)) wake_engine(c->engine);
}

void rp_call_free(rp_call *c) {
    if (!c) return;
    rp_call_cancel(c);
    rp_call_wait(c, -1);
    call_free(c);
}

uint64_t rp_call_number(const rp_call *c) { return c->number; }

void rp_call_get_status(rp_call *c, rp_call_status *out) {
    pthread_mutex_lock(&c->engine->lock);
    *out = c->status;
    pthread_mutex_unlock(&c->engine->lock);
}

/* ---- calls that somebody waits for ---- */

/* Queues a call, waits for it, frees it. */
static int run(rp_call *c, rp_result **out, rp_error *err) {
    rp_result *nothing;
    int rc = call_queue(c, err);
    if (!rc) rc = rp_call_result(c, out ? out : &nothing, err);
    call_free(c);
    return rc;
}

int rp_engine_run(rp_engine *e, const rp_request *request, rp_result **out, rp_error *err) {
    *out = NULL;
    rp_call *c;
    int rc = rp_engine_prepare(e, NULL, NULL, err); /* before any clock starts */
    if (!rc) rc = call_new(&c, e, CALL_REQUEST, err);
    if (rc) return rc;
    if ((rc = call_plan(c, request, err))) {
        call_free(c);
        return rc;
    }
    return run(c, out, err);
}

/* A call that computes a schema's modules, not queued yet. */
static int new_encode(rp_call **out, rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user,
                      rp_error *err) {
    int rc = call_new(out, e, CALL_ENCODE, err);
    if (rc) return rc;
    rp_call *c = *out;
    c->options.on_progress = on_progress;
    c->options.user = user;
    if (!(rc = engine_salt(e, tenant, &c->root.salt, err))) c->flow = c->root.salt;
    if (rc || (rc = engine_find_schema(e, &c->root.salt, name, &c->schema, err))) {
        call_free(c);
        *out = NULL;
    }
    return rc;
}

int rp_schema_encode(rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user, rp_error *err) {
    rp_call *c;
    int rc = new_encode(&c, e, tenant, name, on_progress, user, err);
    return rc ? rc : run(c, NULL, err);
}

int rp_schema_submit(rp_engine *e, const char *tenant, const char *name, rp_on_progress on_progress, void *user, rp_call **out,
                     rp_error *err) {
    int rc = new_encode(out, e, tenant, name, on_progress, user, err);
    if (!rc && (rc = call_queue(*out, err))) {
        call_free(*out);
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
    rp_call *c;
    if (is_prepared(e)) return RP_OK;
    int rc = call_new(&c, e, CALL_PREPARE, err);
    if (rc) return rc;
    c->options.on_progress = on_progress;
    c->options.user = user;
    return run(c, NULL, err);
}
