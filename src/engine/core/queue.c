/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: queued jobs in scheduling order: by priority; within a priority by tenants' turns (turns.h); within a tenant
 * by deadline, then arrival. The engine's thread. */
#include "engine/core/queue.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/scheduler.h"
#include "engine/core/schemas.h"
#include "engine/core/turns.h"
#include "engine/reuse/prefix.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "store/span_store.h"

/* Cost of a token before any step was measured: only ratios matter. */
#define UNKNOWN_TOKEN_US 100.0
/* With this many sequences or more, the last one is reserved for a second tenant. */
#define LEAST_FOR_OTHERS 4

/* ---- cost ---- */

/* A round gives each tenant the time of one step's prompt rows. */
static double quantum_us(const rp_engine *e) {
    uint64_t us = cost_model_tokens_us(e->cost, e->chunk_tokens, 0);
    return us > 0 ? (double)us : UNKNOWN_TOKEN_US * e->chunk_tokens;
}

/* n tokens of a prompt, in steps of their own. */
double queue_prompt_us(const rp_engine *e, int32_t n) {
    if (n <= 0) return 0;
    if (n <= e->chunk_tokens) return BASE_MAX((double)cost_model_tokens_us(e->cost, n, 0), UNKNOWN_TOKEN_US);
    double us = (double)cost_model_tokens_us(e->cost, e->chunk_tokens, n / 2) * n / e->chunk_tokens;
    return us > 0 ? us : UNKNOWN_TOKEN_US * n;
}

/* n tokens of an answer: its share of steps with all sequences. */
static double answer_us(const rp_engine *e, int32_t n, int64_t slots) {
    cost_load load = {.rows = e->max_sequences,
                      .row_slots = (double)e->max_sequences * (double)slots,
                      .slots = (double)e->max_sequences * (double)slots};
    double us = cost_model_predict(e->cost, &load) / e->max_sequences;
    return (us > 0 ? us : UNKNOWN_TOKEN_US) * BASE_MAX(n, 0);
}

/* The maximum cost of a job. Its hits, and the unused part of its answer, are refunded (queue_settle). */
static double queue_cost_of(const rp_engine *e, const rp_job *c) {
    if (c->kind != JOB_REQUEST) {
        const pml_layout *l = c->request->schema ? c->request->schema->layout : NULL;
        return l && c->next_segment < l->n_segments ? queue_prompt_us(e, l->segments[c->next_segment].n_tokens) : 0;
    }
    return queue_prompt_us(e, job_n_given(c)) + answer_us(e, c->answer.most - c->n_resumed, job_n_given(c));
}

static double spent_on(const rp_engine *e, const rp_job *c) {
    if (c->kind != JOB_REQUEST) return c->queued.cost_us;
    int32_t answered = c->result ? c->result->n_tokens - c->n_resumed : 0;
    int32_t prompt = BASE_MIN(c->seq.done, job_n_given(c) - c->prefix.n_found);
    return queue_prompt_us(e, prompt) + queue_prompt_us(e, (int32_t)BASE_MIN(c->figures.prefill_done, INT32_MAX)) +
           answer_us(e, answered, job_n_given(c));
}

/* ---- tokens to compute ---- */

/* Of the modules of a queued job: those that miss, as far as they are known to be needed. */
static int32_t missing_module_tokens(const rp_engine *e, const rp_job *c) {
    const pml_plan *p = c->plan;
    int32_t n = 0;
    for (size_t i = 0; i < p->n_items && !c->exact; i++) {
        if (!p->items[i].is_view) continue;
        const pml_segment *s = &p->layout->segments[p->items[i].segment];
        const base_key key =
            p->items[i].reduced ? pml_reduced_key(s, 0) : pml_segment_keys(p->layout, s)[s->n_spans - 1];
        if (c->request->options.reuse != RP_REUSE_ON || !span_store_has(e->store, &key)) n += s->n_tokens;
    }
    return n;
}

/* Tokens that a job has to compute, as far as is known before its turn. */
static int32_t expected_tokens(const rp_engine *e, const rp_job *c) {
    if (c->kind != JOB_REQUEST) {
        const pml_layout *l = c->request->schema ? c->request->schema->layout : NULL;
        return l && c->next_segment < l->n_segments ? l->segments[c->next_segment].n_tokens : 0;
    }
    const size_t found = c->prefix.shares ? prefix_peek(e, c, NULL, NULL) : 0;
    return c->n_prompt - (int32_t)found + missing_module_tokens(e, c);
}

/* ---- order ---- */

static bool has_same_turns(const rp_job *a, const rp_job *b) {
    return a->request->options.priority == b->request->options.priority &&
           base_key_equal(&a->request->flow, &b->request->flow);
}

/* Within one tenant. */
static bool is_more_urgent(const rp_job *a, const rp_job *b) {
    uint64_t da = a->request->deadline_us ? a->request->deadline_us : UINT64_MAX,
             db = b->request->deadline_us ? b->request->deadline_us : UINT64_MAX;
    return da != db ? da < db : a->request->number < b->request->number;
}

/* The place is the number of one of the tenant's own jobs: equal places have the same tenant. */
bool queue_precedes(const rp_job *a, const rp_job *b) {
    if (a->request->options.priority != b->request->options.priority)
        return a->request->options.priority > b->request->options.priority;
    if (a->queued.turn.round != b->queued.turn.round) return a->queued.turn.round < b->queued.turn.round;
    return a->queued.place != b->queued.place ? a->queued.place < b->queued.place : is_more_urgent(a, b);
}

/* Is every waiting job before those that it precedes? */
BASE_UNUSED static bool queue_is_ordered(const rp_engine *e) {
    int32_t n = 0;
    for (const rp_job *c = e->waiting; c; c = c->next, n++)
        if (c->next && queue_precedes(c->next, c)) return false;
    return n == e->n_waiting;
}

/* Removes the jobs of c's tenant and priority from the queue. Returns them in order. */
static rp_job *queue_take_out(rp_engine *e, const rp_job *c) {
    rp_job *own = NULL, **end = &own;
    for (rp_job **link = &e->waiting; *link;) {
        rp_job *w = *link;
        if (!has_same_turns(w, c)) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        w->next = NULL;
        *end = w;
        end = &w->next;
    }
    return own;
}

/* Assigns turns to them in order, and reinserts them. */
static void queue_put_back(rp_engine *e, rp_job *own) {
    double quantum = quantum_us(e);
    uint64_t place = 0;
    turn at = own ? turns_start(e->turns, &own->request->flow, own->request->options.priority, quantum) : (turn){0};
    rp_job **link = &e->waiting;
    for (rp_job *c = own, *next; c; c = next) {
        next = c->next;
        at = c->queued.turn = turns_next(at, c->queued.cost_us, quantum);
        place = c->queued.place = BASE_MAX(place, c->request->number);
        while (*link && queue_precedes(*link, c)) link = &(*link)->next;
        c->next = *link;
        *link = c;
        link = &c->next;
    }
}

void queue_add(rp_engine *e, rp_job *c) {
    BASE_ASSERT(c->seq.reserved == 0 && c->seq.context.n_views == 0); /* queued: only prefetched spans */
    c->queued.cost_us = queue_cost_of(e, c);
    c->queued.expected_tokens = expected_tokens(e, c);
    c->queued.is_charged = false;
    rp_job *own = queue_take_out(e, c), **link = &own;
    if (!own) turns_begin(e->turns, &c->request->flow, c->request->options.priority, quantum_us(e));
    while (*link && !is_more_urgent(c, *link)) link = &(*link)->next;
    c->next = *link;
    *link = c;
    queue_put_back(e, own);
    c->phase = JOB_WAITING;
    e->n_waiting++;
    BASE_DCHECK(queue_is_ordered(e));
}

void queue_remove(rp_engine *e, rp_job *c) {
    rp_job **link = &e->waiting;
    while (*link && *link != c) link = &(*link)->next;
    if (!*link) return;
    *link = c->next;
    c->next = NULL;
    BASE_ASSERT(e->n_waiting > 0);
    e->n_waiting--;
    rp_job *own = queue_take_out(e, c);
    if (!own) turns_rest(e->turns, &c->request->flow, c->request->options.priority);
    queue_put_back(e, own); /* those after it move up, unless it was admitted */
    BASE_DCHECK(queue_is_ordered(e));
}

void queue_admit(rp_engine *e, rp_job *c) {
    BASE_ASSERT(!c->queued.is_charged);
    turns_admit(e->turns, &c->request->flow, c->request->options.priority, c->queued.turn);
    c->queued.is_charged = true;
    queue_remove(e, c);
}

void queue_settle(rp_engine *e, rp_job *c) {
    if (!c->queued.is_charged) return;
    BASE_ASSERT(c->phase > JOB_WAITING && c->phase < JOB_FLUSHING);
    c->queued.is_charged = false;
    turns_refund(e->turns, &c->request->flow, c->request->options.priority, c->queued.cost_us - spent_on(e, c),
                 quantum_us(e));
    queue_put_back(e, queue_take_out(e, c));
}

/* ---- prompt rows in steps ---- */

/* A returning tenant saves nothing up: it starts with the count of the least served running tenant. */
void queue_begin_rows(const rp_engine *e, rp_job *c) {
    uint64_t least = UINT64_MAX;
    for (int32_t i = 0; i < e->n_running; i++) {
        const rp_job *r = e->running[i];
        if (r == c || r->request->options.priority != c->request->options.priority) continue;
        if (base_key_equal(&r->request->flow, &c->request->flow)) {
            c->queued.tenant_rows = r->queued.tenant_rows;
            return;
        }
        least = BASE_MIN(least, r->queued.tenant_rows);
    }
    c->queued.tenant_rows = least == UINT64_MAX ? 0 : least;
}

void queue_count_rows(const rp_engine *e, const rp_job *c, int32_t rows) {
    BASE_ASSERT(rows >= 0);
    for (int32_t i = 0; i < e->n_running; i++)
        if (has_same_turns(e->running[i], c)) e->running[i]->queued.tenant_rows += (uint64_t)rows;
}

bool queue_piece_precedes(const rp_job *a, const rp_job *b) {
    if (a->request->options.priority == b->request->options.priority && a->queued.tenant_rows != b->queued.tenant_rows)
        return a->queued.tenant_rows < b->queued.tenant_rows;
    return queue_precedes(a, b);
}

/* ---- the last sequence ---- */

bool queue_keeps_place(const rp_engine *e, const rp_job *c) {
    bool others = false;
    if (e->n_running - e->places->n_paused + 1 < e->max_sequences || e->max_sequences < LEAST_FOR_OTHERS) return false;
    for (int32_t i = 0; i < e->n_running; i++)
        if (!base_key_equal(&e->running[i]->request->flow, &c->request->flow)) others = true;
    if (others) return false; /* more than one tenant has sequences */
    for (size_t i = 0; i < e->turns->n_tenants && !others; i++)
        others = !base_key_equal(&e->turns->tenants[i].salt, &c->request->flow);
    return others && e->n_running - e->places->n_paused > 0;
}
