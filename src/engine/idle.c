/* idle.c: see idle.h. */
#include "engine/idle.h"

#include <errno.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

/* Where a row alone takes longer than IDLE_STEP_US: the weights' reading is most of it, and a few rows share that. */
#define ROW_SLACK 1.25

/* ---- queue ---- */

/* A task more or less. The number is what others see. */
static void count(rp_engine *e, int32_t n) {
    e->idle.n_tasks += n;
    pthread_mutex_lock(&e->lock);
    e->told_background = e->idle.n_tasks;
    if (e->idle.n_tasks == 0) pthread_cond_broadcast(&e->drained);
    pthread_mutex_unlock(&e->lock);
}

static void put_last(rp_engine *e, rp_call *c) {
    rp_call **end = &e->idle.queue;
    while (*end) end = &(*end)->next;
    *end = c;
    c->next = NULL;
}

int idle_submit(rp_engine *e, const idle_task *task) {
    rp_call *c;
    if (e->idle.n_tasks >= IDLE_MAX_TASKS) return RP_ERR_BUSY;
    int rc = call_new(&c, e, CALL_BACKGROUND, NULL);
    if (rc) return rc;
    call_take_tokens(c, &task->salt, task->tokens, task->positions, task->n);
    c->keeps = task->keeps;
    c->idle_done = task->done;
    c->idle_user = task->user;
    put_last(e, c);
    count(e, 1);
    return RP_OK;
}

int idle_twin(const rp_call *c, idle_task *out) {
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

/* ---- ends ---- */

/* What it holds goes; of what is kept, the tree has its own references. */
static void let_go(rp_engine *e, rp_call *c) {
    if (c == e->idle.current) e->idle.current = NULL;
    scheduler_release(e, c);
    e->n_ended++; /* there is room again */
}

/* A task that is in no list any more is over. */
static void end(rp_engine *e, rp_call *c, int rc, const float *logits) {
    if (rc == RP_OK) {
        idle_result result = {.logits = logits, .path = &c->path, .n_found_steps = c->n_found_steps};
        c->seq.reserved = 0; /* it takes no more */
        prefix_give(c, true);
        c->idle_done(e, c->idle_user, RP_OK, &result);
    } else {
        c->idle_done(e, c->idle_user, rc, NULL);
    }
    BASE_TRACE(ENGINE, "a task of %d tokens in the background ends: %d", c->n_prompt, rc);
    let_go(e, c);
    call_free(c);
    count(e, -1);
}

/* Another time. */
static void give_up(rp_engine *e, rp_call *c) {
    c->seq.reserved = 0;
    if (!kv_context_has_failed(&c->seq.context)) prefix_give(c, true);
    let_go(e, c);
    if (++c->n_tries < IDLE_MAX_TRIES) put_last(e, c);
    else end(e, c, RP_ERR_ROOM, NULL);
}

void idle_end_all(rp_engine *e) {
    if (e->idle.current) end(e, e->idle.current, RP_ERR_CANCELLED, NULL);
    for (rp_call *c; (c = e->idle.queue);) {
        e->idle.queue = c->next;
        end(e, c, RP_ERR_CANCELLED, NULL);
    }
}

/* ---- room ---- */

int64_t idle_reserved(const rp_engine *e) { return e->idle.current ? e->idle.current->seq.reserved : 0; }

bool idle_make_room(rp_engine *e, int64_t blocks) {
    if (!e->idle.current || blocks <= scheduler_free_blocks(e)) return false;
    give_up(e, e->idle.current);
    return true;
}

static bool reserve(rp_engine *e, rp_call *c) {
    int64_t blocks = call_own_blocks(c, c->n_prompt - c->n_found, c->keeps);
    if (blocks > scheduler_free_blocks(e)) return false;
    c->seq.keeps_windows = c->keeps;
    c->seq.reserved = blocks;
    return true;
}

/* The first of the queue is the one under way from now on, or it ends, or there is no room yet. */
static void admit(rp_engine *e) {
    rp_call *c = e->idle.queue;
    bool wait;
    c->shares = true;
    span_store_next_request(e->store);
    int rc = prefix_find(e, c, &wait, NULL); /* nobody else reads: there is nothing to wait for */
    bool room = !rc && reserve(e, c);
    if (!rc && !room && span_store_is_busy(e->store)) { /* the disk holds some of it */
        scheduler_release(e, c);
        e->idle.tried_at = e->n_ended;
        return;
    }
    e->idle.queue = c->next;
    c->next = NULL;
    if (room) rc = prefix_compose(c, NULL);
    c->shares = c->keeps;
    c->phase = CALL_PREFILL;
    if (rc || !room) end(e, c, rc ? rc : RP_ERR_ROOM, NULL);
    else e->idle.current = c;
}

/* ---- its turn ---- */

static bool is_free(const rp_engine *e) { return e->prepared && e->n_running == 0 && !e->waiting && e->idle.n_tasks > 0; }

/* Not while its states are on their way from disk: the disk tells. */
static bool can_go_on(const rp_engine *e) {
    const rp_call *c = e->idle.current;
    if (!c) return e->idle.tried_at != e->n_ended;
    return engine_is_ready(e, &c->seq.context) || kv_context_has_failed(&c->seq.context);
}

int64_t idle_wait_ms(const rp_engine *e) {
    if (!is_free(e) || !can_go_on(e)) return -1;
    uint64_t now = base_clock_us(), due = e->idle.busy_us + IDLE_QUIET_MS * 1000;
    return e->idle.hurried || now >= due ? 0 : (int64_t)((due - now + 999) / 1000);
}

bool idle_is_due(const rp_engine *e) { return idle_wait_ms(e) == 0; }

rp_call *idle_next(rp_engine *e) {
    if (!idle_is_due(e)) return NULL;
    if (e->idle.current && kv_context_has_failed(&e->idle.current->seq.context)) give_up(e, e->idle.current);
    if (!e->idle.current && e->idle.queue) admit(e);
    return e->idle.current && engine_is_ready(e, &e->idle.current->seq.context) ? e->idle.current : NULL;
}

double idle_step_us(const rp_engine *e, int64_t slots) { return BASE_MAX(IDLE_STEP_US, ROW_SLACK * (double)steps_cost(e, 1, slots)); }

void idle_settle(rp_engine *e, rp_call *c, int32_t n_rows, int rc, const float *logits) {
    if (kv_context_has_failed(&c->seq.context)) { /* found out in the middle of the step: its rows are worth nothing */
        give_up(e, c);
        return;
    }
    if (rc) {
        end(e, c, rc, NULL);
        return;
    }
    c->seq.done += n_rows;
    sequence_settle(&c->seq, 0, sequence_position(&c->seq, c->seq.done - 1));
    if (c->seq.done == c->seq.n) end(e, c, RP_OK, logits);
    else if (c->seq.keeps_windows) prefix_give(c, false);
}

/* ---- waiting for all of it ---- */

bool rp_engine_drain(rp_engine *e, int64_t timeout_ms) {
    struct timespec until = base_clock_after(BASE_MAX(timeout_ms, 0));
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    e->n_draining++;
    pthread_cond_signal(&e->wake);
    while (e->told_background > 0 && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&e->drained, &e->lock) : pthread_cond_timedwait(&e->drained, &e->lock, &until);
    bool nothing = e->told_background == 0;
    e->n_draining--;
    pthread_mutex_unlock(&e->lock);
    return nothing;
}
