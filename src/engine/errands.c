/* errands.c: what another thread wants done on the engine's: between two steps, in the order in which it was asked for. */
#include "base/error.h"
#include "engine/engine_internal.h"

struct engine_errand {
    engine_errand *next;
    engine_errand_fn fn;
    engine_errand_is_over is_over; /* NULL: when fn has returned */
    void *arg;
    bool done;
    pthread_cond_t told;
};

int engine_do(rp_engine *e, engine_errand_fn fn, void *arg, rp_error *err) { return engine_do_until(e, fn, NULL, arg, err); }

int engine_do_until(rp_engine *e, engine_errand_fn fn, engine_errand_is_over is_over, void *arg, rp_error *err) {
    engine_errand errand = {.fn = fn, .is_over = is_over, .arg = arg};
    if (!engine_cond_init(&errand.told)) return base_fail_memory(err, sizeof(errand), "an errand");
    pthread_mutex_lock(&e->lock);
    engine_errand **end = &e->errands;
    while (*end) end = &(*end)->next;
    *end = &errand;
    pthread_cond_signal(&e->wake);
    while (!errand.done) pthread_cond_wait(&errand.told, &e->lock);
    pthread_mutex_unlock(&e->lock);
    pthread_cond_destroy(&errand.told);
    return RP_OK;
}

void engine_run_errands(rp_engine *e) {
    pthread_mutex_lock(&e->lock);
    for (engine_errand *r; (r = e->errands);) {
        e->errands = r->next;
        pthread_mutex_unlock(&e->lock);
        r->fn(e, r->arg);
        bool is_over = !r->is_over || r->is_over(e, r->arg);
        pthread_mutex_lock(&e->lock);
        if (is_over) {
            r->done = true;
            pthread_cond_signal(&r->told);
        } else {
            r->next = e->open_errands;
            e->open_errands = r;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_end_errands(rp_engine *e) {
    for (engine_errand **link = &e->open_errands, *r; (r = *link);) {
        if (!r->is_over(e, r->arg)) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        pthread_mutex_lock(&e->lock);
        r->done = true;
        pthread_cond_signal(&r->told);
        pthread_mutex_unlock(&e->lock);
    }
}

/* ---- quotas ---- */

typedef struct quota_errand {
    uint32_t tenant;
    rp_quota quota;
    int rc;
} quota_errand;

static void set_quota(rp_engine *e, void *arg) {
    quota_errand *q = arg;
    q->rc = span_store_set_quota(e->store, q->tenant, q->quota.state_bytes, q->quota.store_bytes);
    e->n_ended++; /* there may be room */
}

int rp_engine_set_quota(rp_engine *e, const char *tenant, const rp_quota *quota, rp_error *err) {
    base_key salt;
    int rc = engine_salt(e, tenant, &salt, err);
    if (rc) return rc;
    quota_errand q = {.tenant = span_tenant(&salt), .quota = *quota};
    if ((rc = engine_do(e, set_quota, &q, err))) return rc;
    return q.rc ? base_fail(err, q.rc, "no room for one more tenant's quota") : RP_OK;
}
