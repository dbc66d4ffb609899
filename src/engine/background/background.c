/* SPDX-License-Identifier: Apache-2.0 */
/* background.c: see background.h. */
#include "engine/background/background.h"

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

/* If a single row takes longer than BACKGROUND_STEP_US: most of it is loading the weights, which a few rows share. */
#define ROW_SLACK 1.25

/* ---- queue ---- */

static void put_last(rp_engine *e, rp_job *c) {
    rp_job **end = &e->background_tasks.queue;
    while (*end) end = &(*end)->next;
    *end = c;
    c->next = NULL;
}

int background_submit(rp_engine *e, const background_task *task) {
    rp_job *c;
    if (e->background_tasks.n_tasks >= BACKGROUND_MAX_TASKS) return RP_ERR_BUSY;
    int rc = job_new(&c, e, JOB_BACKGROUND, NULL);
    if (rc) return rc;
    job_take_tokens(c, &task->salt, task->tokens, task->positions, task->n);
    job_request *q = job_draft(c);
    q->options.shifted_reuse = -1;
    q->keeps = task->keeps;
    q->background_done = task->done;
    q->background_user = task->user;
    put_last(e, c);
    e->background_tasks.n_tasks++;
    engine_publish(e); /* rp_engine_drain waits for it from now on */
    return RP_OK;
}

int background_twin(const rp_job *c, background_task *out) {
    size_t n = (size_t)c->plan->n_cached + (size_t)c->plan->n_fresh;
    int32_t *tokens = base_alloc(n * sizeof(*tokens)), *positions = base_alloc(n * sizeof(*positions));
    int rc = tokens && positions ? pml_plan_flatten(c->plan, tokens, positions, NULL) : RP_ERR_MEMORY;
    if (rc) {
        base_free(tokens);
        base_free(positions);
        return rc;
    }
    out->salt = c->root.salt;
    out->tokens = tokens;
    out->positions = positions;
    out->n = (int32_t)n;
    return RP_OK;
}

/* ---- completion ---- */

/* Releases what it holds; the tree has its own references to kept KV. */
static void background_release(rp_engine *e, rp_job *c) {
    if (c == e->background_tasks.current) e->background_tasks.current = NULL;
    job_release(c);
    e->budget_epoch++; /* memory was freed */
}

/* Ends a task that is in no list. */
static void background_end(rp_engine *e, rp_job *c, int rc, const float *logits) {
    if (rc == RP_OK) {
        background_result result = {.logits = logits, .path = &c->path, .n_found_steps = c->n_found_steps};
        sequence_reserve(&c->seq, 0); /* it takes no more blocks */
        prefix_give(c, true);
        c->request->background_done(e, c->request->background_user, RP_OK, &result);
    } else {
        c->request->background_done(e, c->request->background_user, rc, NULL);
    }
    BASE_TRACE(ENGINE, "a background task of %d tokens ended: %d", c->n_prompt, rc);
    background_release(e, c);
    job_free(c);
    BASE_ASSERT(e->background_tasks.n_tasks > 0);
    e->background_tasks.n_tasks--;
}

/* Requeues the running task. */
static void give_up(rp_engine *e, rp_job *c) {
    sequence_reserve(&c->seq, 0);
    if (!kv_context_has_failed(&c->seq.context)) prefix_give(c, true);
    background_release(e, c);
    if (++c->n_tries < BACKGROUND_MAX_TRIES) put_last(e, c);
    else background_end(e, c, RP_ERR_BUDGET, NULL);
}

void background_end_all(rp_engine *e) {
    if (e->background_tasks.current) background_end(e, e->background_tasks.current, RP_ERR_CANCELLED, NULL);
    for (rp_job *c; (c = e->background_tasks.queue);) {
        e->background_tasks.queue = c->next;
        background_end(e, c, RP_ERR_CANCELLED, NULL);
    }
}

/* ---- memory ---- */

bool background_make_room(rp_engine *e, int64_t blocks) {
    if (!e->background_tasks.current || blocks <= span_store_free_blocks(e->store)) return false;
    give_up(e, e->background_tasks.current);
    return true;
}

static bool background_reserve(rp_engine *e, rp_job *c) {
    int64_t blocks = job_own_blocks(c, c->n_prompt - c->n_found, c->request->keeps);
    if (blocks > span_store_free_blocks(e->store)) return false;
    c->seq.keeps_windows = c->request->keeps;
    sequence_reserve(&c->seq, blocks);
    return true;
}

/* Admits the first task of the queue, or ends it, or leaves it queued while memory is short. */
static void background_admit(rp_engine *e) {
    rp_job *c = e->background_tasks.queue;
    bool wait;
    c->shares = true;
    span_store_next_request(e->store);
    int rc = prefix_find(e, c, &wait, NULL); /* no other job runs: nothing to wait for */
    bool room = !rc && background_reserve(e, c);
    if (!rc && !room && span_store_is_busy(e->store)) { /* writes or reads in flight hold some of it */
        job_release(c);
        e->background_tasks.tried_at = e->budget_epoch;
        return;
    }
    e->background_tasks.queue = c->next;
    c->next = NULL;
    if (room) rc = prefix_compose(c, NULL);
    c->shares = c->request->keeps;
    c->phase = JOB_PREFILL;
    if (rc || !room) background_end(e, c, rc ? rc : RP_ERR_BUDGET, NULL);
    else e->background_tasks.current = c;
}

/* ---- steps ---- */

static bool background_is_free(const rp_engine *e) { return e->prepared && e->n_running == 0 && !e->waiting && e->background_tasks.n_tasks > 0; }

/* Not while its KV is being read from disk: the store notifies the engine. */
static bool background_can_advance(const rp_engine *e) {
    const rp_job *c = e->background_tasks.current;
    if (!c) return e->background_tasks.tried_at != e->budget_epoch;
    return engine_is_ready(e, &c->seq.context) || kv_context_has_failed(&c->seq.context);
}

int64_t background_wait_ms(const rp_engine *e) {
    if (!background_is_free(e) || !background_can_advance(e)) return -1;
    uint64_t now = base_clock_us(), due = e->background_tasks.busy_us + BACKGROUND_QUIET_MS * 1000;
    return e->background_tasks.hurried || now >= due ? 0 : (int64_t)((due - now + 999) / 1000);
}

bool background_is_due(const rp_engine *e) { return background_wait_ms(e) == 0; }

rp_job *background_next(rp_engine *e) {
    if (!background_is_due(e)) return NULL;
    if (e->background_tasks.current && kv_context_has_failed(&e->background_tasks.current->seq.context)) give_up(e, e->background_tasks.current);
    if (!e->background_tasks.current && e->background_tasks.queue) background_admit(e);
    return e->background_tasks.current && engine_is_ready(e, &e->background_tasks.current->seq.context) ? e->background_tasks.current : NULL;
}

double background_step_us(const rp_engine *e, int64_t slots) { return BASE_MAX(BACKGROUND_STEP_US, ROW_SLACK * (double)cost_model_tokens_us(&e->cost, 1, slots)); }

void background_settle(rp_engine *e, rp_job *c, int32_t n_rows, int rc, const float *logits) {
    if (kv_context_has_failed(&c->seq.context)) { /* detected in the step: rows are invalid */
        give_up(e, c);
        return;
    }
    if (rc) {
        background_end(e, c, rc, NULL);
        return;
    }
    c->seq.done += n_rows;
    sequence_settle(&c->seq, 0, sequence_position(&c->seq, c->seq.done - 1));
    if (c->seq.done == c->seq.n) background_end(e, c, RP_OK, logits);
    else if (c->seq.keeps_windows) prefix_give(c, false);
}
