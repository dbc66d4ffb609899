/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c: work for the engine's thread from other threads: done between two steps, first in, first out. */
#include "engine/core/commands.h"

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/threads.h"
#include "engine/core/engine_state.h"
#include "engine/core/identity.h"
#include "engine/core/submit.h"
#include "store/span_store.h"

typedef struct engine_command engine_command;
struct engine_command {
    engine_command *next;
    engine_command_fn fn;
    engine_command_is_over is_over; /* NULL: over when fn has returned */
    void *arg;
    bool done;
    pthread_cond_t reported;
};

int engine_do(rp_engine *e, engine_command_fn fn, void *arg, rp_error *err) {
    return engine_do_until(e, fn, NULL, arg, err);
}

int engine_do_until(rp_engine *e, engine_command_fn fn, engine_command_is_over is_over, void *arg, rp_error *err) {
    int rc = engine_check_computes(e, err);
    if (rc) return rc;
    engine_command command = {.fn = fn, .is_over = is_over, .arg = arg};
    if (!base_cond_init(&command.reported)) return base_fail_memory(err, sizeof(command), "an engine command");
    pthread_mutex_lock(&e->lock);
    BASE_CHAIN_APPEND(engine_command, e->commands->queued, &command, next);
    pthread_cond_signal(&e->wake);
    while (!command.done) pthread_cond_wait(&command.reported, &e->lock);
    pthread_mutex_unlock(&e->lock);
    pthread_cond_destroy(&command.reported);
    return RP_OK;
}

void engine_run_commands(rp_engine *e) {
    pthread_mutex_lock(&e->lock);
    for (engine_command *r; (r = e->commands->queued);) {
        e->commands->queued = r->next;
        BASE_ASSERT(!r->done);
        pthread_mutex_unlock(&e->lock);
        r->fn(e, r->arg);
        bool is_over = !r->is_over || r->is_over(e, r->arg);
        pthread_mutex_lock(&e->lock);
        if (is_over) {
            r->done = true;
            pthread_cond_signal(&r->reported);
        } else {
            r->next = e->commands->open;
            e->commands->open = r;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_end_commands(rp_engine *e) {
    for (engine_command **link = &e->commands->open, *r; (r = *link);) {
        BASE_ASSERT(r->is_over && !r->done);
        if (!r->is_over(e, r->arg)) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        pthread_mutex_lock(&e->lock);
        r->done = true;
        pthread_cond_signal(&r->reported);
        pthread_mutex_unlock(&e->lock);
    }
}

/* ---- quotas ---- */

typedef struct quota_command {
    uint32_t tenant;
    rp_quota quota;
    int rc;
} quota_command;

static void set_quota(rp_engine *e, void *arg) {
    quota_command *q = arg;
    q->rc = span_store_set_quota(e->store, q->tenant, q->quota.kv_bytes, q->quota.store_bytes);
    e->budget_epoch++; /* memory may have been freed */
}

int rp_engine_set_quota(rp_engine *e, const char *tenant, const rp_quota *quota, rp_error *err) {
    base_key salt;
    if (!e || !quota) return base_fail(err, RP_ERR_INVALID, "rp_engine_set_quota: engine and quota are needed");
    int rc = engine_salt(e, tenant, &salt, err);
    if (rc) return rc;
    quota_command q = {.tenant = span_tenant(&salt), .quota = *quota};
    if ((rc = engine_do(e, set_quota, &q, err))) return rc;
    return q.rc ? base_fail(err, q.rc, "out of memory: the quota of another tenant") : RP_OK;
}
