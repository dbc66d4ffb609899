/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.c: see checkpoints.h. */
#include "engine/reuse/checkpoints.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "backend/backend.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/block_pool.h"
#include "kv/span.h"
#include "model/model.h"
#include "pml/plan.h"
#include "store/index/span_tree.h"
#include "store/span_store.h"

#define MOST_BETWEEN 4096 /* tokens of an interval */
#define LEAST_PART 32     /* tokens that are worth a checkpoint of their own */
#define LAST_PARTS 2
#define MOST_HEAD 12 /* tokens after the last message, before the answer: there is a checkpoint after them anyway */

/* ---- points of a prompt ---- */

/* Does its text enter the prefix cache? */
static bool leaves_any(const rp_job *c) {
    return c->engine->is_recurrent && c->kind == JOB_REQUEST && c->prefix.shares && !c->request->options.adds_nothing;
}

/* Tokens of an interval: whole spans, whose KV takes at least as much memory as a checkpoint. */
static int32_t interval(const rp_engine *e) {
    const uint64_t bytes = (uint64_t)kv_states_blocks(e->pool) * kv_pool_block_bytes(e->pool);
    const uint64_t span_bytes = BASE_MAX(kv_shape_token_bytes(kv_pool_shape(e->pool)) * KV_SPAN_TOKENS, 1);
    return (int32_t)BASE_MIN(BASE_DIV_UP(bytes, span_bytes) * KV_SPAN_TOKENS, MOST_BETWEEN);
}

static int compare_positions(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The positions after the modules of its plan, ascending: to be freed; NULL: none. */
static int32_t *module_ends(const rp_job *c, size_t *n) {
    const pml_plan *p = c->plan;
    int32_t *ends = p && c->exact ? base_alloc(p->n_items * sizeof(*ends)) : NULL;
    *n = 0;
    for (size_t i = 0; ends && i < p->n_items; i++)
        if (p->items[i].is_view) ends[(*n)++] = p->items[i].pos + p->items[i].n_tokens;
    if (*n) qsort(ends, *n, sizeof(*ends), compare_positions);
    return ends;
}

/* Adds a point where it is missing. */
static void add_point(job_states *s, int32_t point) {
    int32_t at = s->n_points;
    while (at > 0 && s->points[at - 1] > point) at--;
    if (at > 0 && s->points[at - 1] == point) return;
    memmove(s->points + at + 1, s->points + at, (size_t)(s->n_points++ - at) * sizeof(*s->points));
    s->points[at] = point;
}

/* Without memory there are none. */
static void find_points(rp_job *c) {
    job_states *s = &c->states;
    const tokenizer *t = c->engine->model->tokenizer;
    const int32_t most = BASE_MIN(job_most_found(c), c->n_prompt), every = interval(c->engine);
    int32_t last[LAST_PARTS] = {0}; /* the last one first */
    int32_t in_interval = 0;
    size_t n_modules, module = 0;
    base_free(s->points);
    s->n_points = 0;
    const size_t most_points = (size_t)(most / every + 1 + LAST_PARTS + c->n_scopes);
    if (!(s->points = base_alloc(most_points * sizeof(*s->points)))) return;
    int32_t *modules = module_ends(c, &n_modules);
    for (int32_t n = 1; n <= most; n++) {
        bool is_end = most - n >= MOST_HEAD && tokenizer_is_end(t, c->tokens[n - 1]);
        for (; module < n_modules && modules[module] <= c->positions[n - 1] + 1; module++) is_end = true;
        if (is_end && n - last[0] >= LEAST_PART) {
            if (last[0] == 0) add_point(s, n);
            memmove(last + 1, last, sizeof(last) - sizeof(*last));
            last[0] = n;
        }
        if (is_end && (n - 1) % every >= every / 2) in_interval = n;
        if (n % every == 0) {
            add_point(s, in_interval ? in_interval : n);
            in_interval = 0;
        }
    }
    for (int32_t i = 0; i < LAST_PARTS; i++)
        if (last[i] > 0) add_point(s, last[i]);
    for (int32_t k = 1; k < c->n_scopes; k++)
        if (c->scopes[k].n_views > 0 && c->scopes[k].first <= most) add_point(s, c->scopes[k].first);
    base_free(modules);
}

/* ---- states of modules ---- */

/* Changes the running states to those after a view. */
static int enter_view(rp_job *c, const segment_need *need, rp_error *err) {
    backend *b = c->engine->backend;
    const int32_t n_layers = kv_pool_shape(c->engine->pool)->n_layers;
    if (need->view.states == SEGMENT_STATES_NONE) return RP_OK;
    BASE_ASSERT(need->end);
    kv_span_wait(need->end, n_layers);
    if (need->begin) kv_span_wait(need->begin, n_layers);
    if (segment_needs_have_failed(need->owner)) return RP_OK; /* its rows are invalid: the job will be requeued */
    if (need->view.states == SEGMENT_STATES_BOTH)
        return b->ops->recurrence->states_compose(b, c->states.now, need->end, need->begin, err);
    b->ops->recurrence->states_load(b, c->states.now, need->end);
    return RP_OK;
}

/* No scope follows: what its views were entered with may be evicted. */
static void drop_view_states(rp_job *c) {
    for (int32_t i = 0; i < c->needs.n; i++) {
        segment_need *need = &c->needs.items[i];
        kv_span_unref(need->end);
        kv_span_unref(need->begin);
        need->end = need->begin = NULL;
    }
}

/* The job's next token begins to attend to views: the states change to those after them. */
static int enter_scopes(rp_job *c, rp_error *err) {
    job_states *s = &c->states;
    const int32_t next = prefix_computed(c);
    int rc = RP_OK;
    for (; s->n_entered < c->n_scopes && c->scopes[s->n_entered].first <= next && !rc; s->n_entered++) {
        const job_scope *scope = &c->scopes[s->n_entered];
        if (scope->first < next) continue; /* it is before the checkpoint that the job continued from */
        const int32_t first = scope->first_view, end = first + scope->n_views;
        BASE_ASSERT(first == end || c->needs.items[end - 1].view.states != SEGMENT_STATES_NONE);
        for (int32_t i = first; i < end && !rc; i++) rc = enter_view(c, &c->needs.items[i], err);
        if (!rc && s->n_entered + 1 == c->n_scopes && !segment_needs_have_failed(&c->needs)) drop_view_states(c);
    }
    return rc;
}

/* ---- what a job continues from ---- */

void checkpoints_find(rp_job *c) {
    job_states *s = &c->states;
    const int32_t n = (int32_t)c->prefix.path.n_tokens;
    if (!c->engine->is_recurrent) return;
    BASE_ASSERT(!s->now && s->n_unnamed == 0);
    kv_span_unref(s->from); /* of an earlier lookup */
    span_path_take_states(&c->prefix.path, &s->from);
    s->last = (int32_t)c->prefix.path.n_tokens;
    s->branch = n > s->last ? n : 0;
    if (leaves_any(c)) find_points(c);
}

bool checkpoints_are_ready(const rp_job *c) {
    return !c->states.from || kv_span_layers_ready(c->states.from) == kv_pool_shape(c->engine->pool)->n_layers;
}

bool checkpoints_have_failed(const rp_job *c) { return c->states.from && kv_span_has_failed(c->states.from); }

int checkpoints_begin(rp_job *c, rp_error *err) {
    job_states *s = &c->states;
    backend *b = c->engine->backend;
    if (!c->engine->is_recurrent) return RP_OK;
    const int rc = s->now ? RP_OK : b->ops->recurrence->states_new(b, &s->now, err);
    if (rc) return rc;
    if (!s->from) return enter_scopes(c, err);
    kv_span_wait(s->from, kv_pool_shape(c->engine->pool)->n_layers);
    if (kv_span_has_failed(s->from)) return RP_OK; /* its rows are invalid: the job will be requeued */
    b->ops->recurrence->states_load(b, s->now, s->from);
    kv_span_unref(s->from);
    s->from = NULL;
    return enter_scopes(c, err);
}

void checkpoints_use(const rp_job *c) {
    if (c->states.from) span_store_use(c->engine->store, kv_span_key(c->states.from), NULL);
}

/* ---- what it leaves ---- */

/* The next number of tokens, more than n, after which a checkpoint has to be made. */
static int32_t next_point(const rp_job *c, int32_t n) {
    const job_states *s = &c->states;
    const int32_t most = job_most_found(c), every = interval(c->engine);
    BASE_ASSERT(every > 0 && n >= 0);
    int32_t next = n < most ? most : n - n % every + every, i = 0;
    while (i < s->n_points && s->points[i] <= n) i++;
    if (i < s->n_points) next = BASE_MIN(next, s->points[i]);
    if (s->branch > n) next = BASE_MIN(next, s->branch);
    for (const rp_job *w = c->engine->waiting; w; w = w->next)
        if (w->queued.waits_for == c && w->queued.waits_until > n) next = BASE_MIN(next, w->queued.waits_until);
    BASE_ASSERT(next > n);
    return next;
}

int32_t checkpoints_next(const rp_job *c, int32_t n) {
    const int32_t done = prefix_computed(c);
    if (!c->engine->is_recurrent) return n;
    if (leaves_any(c)) n = BASE_MIN(n, next_point(c, done) - done);
    for (int32_t k = c->states.n_entered; k < c->n_scopes; k++)
        if (c->scopes[k].n_views > 0 && c->scopes[k].first > done) n = BASE_MIN(n, c->scopes[k].first - done);
    return n;
}

static void save(rp_job *c) {
    rp_engine *e = c->engine;
    job_states *s = &c->states;
    const int32_t n = prefix_computed(c);
    kv_span *span;
    BASE_ASSERT(s->now && n > s->last && n <= c->n_tokens);
    if (span_store_free_blocks(e->store) < kv_states_blocks(e->pool) ||
        kv_span_new_states(&span, e->pool, c->positions[n - 1] + 1, NULL)) {
        BASE_TRACE(ENGINE, "job %llu: no memory for a checkpoint after %d tokens",
                   (unsigned long long)c->request->number, n);
        return;
    }
    e->backend->ops->recurrence->states_save(e->backend, s->now, span);
    if (s->n_unnamed >= CHECKPOINTS_UNNAMED) { /* drops the oldest one */
        kv_span_unref(s->unnamed[0].span);
        memmove(s->unnamed, s->unnamed + 1, (size_t)--s->n_unnamed * sizeof(*s->unnamed));
    }
    s->unnamed[s->n_unnamed].span = span;
    s->unnamed[s->n_unnamed].n_tokens = n;
    s->unnamed[s->n_unnamed++].n_before = s->last;
    s->last = n;
}

void checkpoints_accept(rp_job *c, int32_t n) {
    backend *b = c->engine->backend;
    if (c->engine->is_recurrent) b->ops->recurrence->states_accept(b, c->states.now, n);
}

void checkpoints_settle(rp_job *c) {
    const int32_t n = prefix_computed(c);
    if (leaves_any(c) && n > c->states.last && next_point(c, n - 1) == n) save(c);
}

void checkpoints_end(rp_job *c) {
    if (leaves_any(c) && c->states.now && prefix_computed(c) > c->states.last) save(c);
}

void checkpoints_give(rp_job *c) {
    job_states *s = &c->states;
    int32_t n_left = 0;
    for (int32_t i = 0; i < s->n_unnamed; i++) {
        const int32_t n = s->unnamed[i].n_tokens, n_before = s->unnamed[i].n_before;
        BASE_ASSERT(n > n_before && n_before >= 0);
        if (c->prefix.shares && (size_t)n > c->prefix.path.n_tokens) {
            s->unnamed[n_left++] = s->unnamed[i];
            continue;
        }
        const uint64_t cost_us = cost_model_usual_us(c->engine->cost, n - n_before, n_before);
        span_store_set_reader(c->engine->store, c->request->reader);
        if (c->prefix.shares)
            (void)span_path_put_states(&c->prefix.path, (size_t)n, s->unnamed[i].span, cost_us,
                                       NULL); /* without memory it is not cached */
        span_store_set_reader(c->engine->store, (span_reader){0});
        kv_span_unref(s->unnamed[i].span);
    }
    s->n_unnamed = n_left;
}

void checkpoints_release(rp_job *c) {
    job_states *s = &c->states;
    backend *b = c->engine->backend;
    for (int32_t i = 0; i < s->n_unnamed; i++) kv_span_unref(s->unnamed[i].span);
    kv_span_unref(s->from);
    if (s->now) b->ops->recurrence->states_free(b, s->now);
    base_free(s->points);
    *s = (job_states){0};
}
