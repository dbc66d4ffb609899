/* SPDX-License-Identifier: Apache-2.0 */
/* job_feature.c: see job_feature.h. */
#include "engine/core/job_feature.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"

/* ---- rows of a job ---- */

/* Place of a row in the table. */
static int32_t place_of(const rp_job *c, const job_feature *f) {
    int32_t i = 0;
    while (c->engine->features[i] && c->engine->features[i] != f) i++;
    BASE_ASSERT(c->engine->features[i] == f);
    return i;
}

void *job_feature_state(const rp_job *c, const job_feature *f) {
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i] == f) return c->features.states[i];
    return NULL;
}

void *job_feature_add(rp_job *c, const job_feature *f) {
    job_features *own = &c->features;
    const int32_t place = place_of(c, f);
    BASE_ASSERT(own->n < JOB_MAX_FEATURES && !job_feature_state(c, f) && f->state_bytes > 0);
    void *state = base_calloc(1, f->state_bytes);
    if (!state) return NULL;
    int32_t at = own->n++;
    for (; at > 0 && place_of(c, own->rows[at - 1]) > place; at--) {
        own->rows[at] = own->rows[at - 1];
        own->states[at] = own->states[at - 1];
    }
    own->rows[at] = f;
    own->states[at] = state;
    return state;
}

/* ---- calls ---- */

/* Calls a function of each row of the table, until one fails. */
#define CALL_TABLE(engine, rc, fn, ...) \
    for (const job_feature *const *f_ = (engine)->features; *f_ && !(rc); f_++) { \
        if ((*f_)->fn) (rc) = (*f_)->fn(__VA_ARGS__); \
    }
/* Of each row that the job has. */
#define CALL_ROWS(c, rc, fn, ...) \
    for (int32_t i_ = 0; i_ < (c)->features.n && !(rc); i_++) { \
        if ((c)->features.rows[i_]->fn) (rc) = (c)->features.rows[i_]->fn(__VA_ARGS__); \
    }

int job_features_open_engine(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    int rc = RP_OK;
    CALL_TABLE(e, rc, open_engine, e, o, err)
    return rc;
}

void job_features_close_engine(rp_engine *e) {
    for (const job_feature *const *f = e->features; f && *f; f++)
        if ((*f)->close_engine) (*f)->close_engine(e);
}

void job_features_options(const rp_engine *e, rp_request *o) {
    for (const job_feature *const *f = e->features; *f; f++)
        if ((*f)->options) (*f)->options(o);
}

int job_features_ask(rp_job *c, const rp_request *o, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(c->features.n == 0 && !c->plan);
    CALL_TABLE(c->engine, rc, ask, c, o, err)
    return rc;
}

int job_features_plan_text(rp_job *c, const char *text, size_t n, bool *planned, rp_error *err) {
    *planned = false;
    for (int32_t i = 0; i < c->features.n; i++) {
        if (!c->features.rows[i]->plan_text) continue;
        *planned = true;
        return c->features.rows[i]->plan_text(c, text, n, err);
    }
    return RP_OK;
}

int job_features_plan(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(c->plan);
    CALL_TABLE(c->engine, rc, plan, c, err)
    return rc;
}

void job_features_count(rp_job *c) {
    for (const job_feature *const *f = c->engine->features; *f; f++)
        if ((*f)->count) (*f)->count(c);
    BASE_ASSERT(c->wants.n_extra >= 0 && c->wants.n_late >= 0);
}

int job_features_open(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(c->result);
    CALL_TABLE(c->engine, rc, open, c, err)
    return rc;
}

bool job_features_yield(rp_job *c, bool yields) {
    bool any = false;
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i]->yield) any |= c->features.rows[i]->yield(c, yields);
    return any;
}

int job_features_begin(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    CALL_ROWS(c, rc, begin, c, err)
    return rc;
}

job_room job_features_room(const rp_job *c) {
    job_room room = {0};
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i]->room) c->features.rows[i]->room(c, &room);
    BASE_ASSERT(room.blocks >= 0 && room.runs >= 0);
    return room;
}

int job_features_compose(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    CALL_ROWS(c, rc, compose, c, err)
    return rc;
}

/* The row that probes. */
static const job_feature *probe_of(const rp_job *c) {
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i]->probe) return c->features.rows[i];
    BASE_ASSERT(false);
    return NULL;
}

int32_t job_features_probe_left(const rp_job *c) { return probe_of(c)->probe_left(c); }

int job_features_probe(rp_job *c, int32_t n, rp_error *err) {
    BASE_ASSERT(c->phase == JOB_PROBING && n >= 0);
    return probe_of(c)->probe(c, n, err);
}

int job_features_choose(rp_job *c, rp_error *err) {
    BASE_ASSERT(c->phase == JOB_PROBING && job_features_probe_left(c) == 0);
    return probe_of(c)->choose(c, err);
}

void job_features_row(rp_job *c, int32_t token, struct model_row *row) {
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i]->row) c->features.rows[i]->row(c, token, row);
}

int job_features_settle(rp_job *c, const job_rows *rows, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(rows->first >= 0 && rows->n > 0 && rows->n_logits <= rows->n && rows->n_hidden <= rows->n);
    BASE_ASSERT((rows->n_logits > 0) == (rows->logits != NULL));
    CALL_ROWS(c, rc, settle, c, rows, err)
    return rc;
}

const job_feature *job_features_intercept(const rp_job *c, const float *logits) {
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i]->intercept && c->features.rows[i]->intercept(c, logits)) return c->features.rows[i];
    return NULL;
}

int job_features_end_prompt(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    CALL_ROWS(c, rc, end_prompt, c, err)
    return rc;
}

int job_features_go_on(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    CALL_ROWS(c, rc, goes_on, c, err)
    return rc;
}

const char *job_features_miss_reason(const rp_job *c) {
    const char *reason = NULL;
    for (int32_t i = 0; i < c->features.n && !reason; i++)
        if (c->features.rows[i]->miss_reason) reason = c->features.rows[i]->miss_reason(c);
    return reason;
}

int job_features_amend(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    CALL_ROWS(c, rc, amend, c, err)
    return rc;
}

job_again job_features_count_again(const rp_job *c, rp_quality asked) {
    job_again all = {0};
    for (const job_feature *const *f = c->engine->features; *f; f++)
        if ((*f)->count_again) (*f)->count_again(c, asked, &all);
    BASE_ASSERT(all.n_late >= 0 && (all.n_late == 0 || all.answer_token > 0)); /* late: for a token of the answer */
    return all;
}

const char *job_features_warning(const rp_job *c, int32_t i) {
    for (int32_t k = 0; k < c->features.n; k++) {
        const char *text = c->features.rows[k]->warning ? c->features.rows[k]->warning(c) : NULL;
        if (text && i-- == 0) return text;
    }
    return NULL;
}

void job_features_describe(rp_job *c) {
    for (const job_feature *const *f = c->engine->features; *f; f++)
        if ((*f)->describe) (*f)->describe(c);
}

void job_features_release(rp_job *c) {
    for (int32_t i = 0; i < c->features.n; i++)
        if (c->features.rows[i]->release) c->features.rows[i]->release(c);
}

void job_features_close(rp_job *c) {
    for (int32_t i = 0; i < c->features.n; i++) {
        if (c->features.rows[i]->close) c->features.rows[i]->close(c);
        base_free(c->features.states[i]);
    }
    c->features.n = 0;
}
