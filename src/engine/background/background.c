/* SPDX-License-Identifier: Apache-2.0 */
/* background.c: see background.h. */
#include "engine/background/background.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/schemas.h"
#include "engine/core/sequence.h"
#include "engine/core/status.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "kv/kv_format.h"
#include "kv/span.h"
#include "backend/backend.h"
#include "pml/plan.h"
#include "store/span_store.h"

/* If a single row takes longer than BACKGROUND_STEP_US: most of it is loading the weights, which a few rows share. */
#define ROW_SLACK 1.25
/* The same of modules that are reduced, which are long: their rows cost about as much as those of a prompt, not four
   times as much. */
#define MODULE_SLACK 4.0

/* ---- queue ---- */

int background_submit(rp_engine *e, const background_task *task) {
    rp_job *c;
    BASE_ASSERT((task->schema != NULL) == (task->advance != NULL) && (task->schema != NULL) != (task->n > 0));
    BASE_ASSERT(task->n_pieces == 0 || task->pieces[task->n_pieces - 1].end == task->n);
    if (e->background_tasks->n_tasks >= BACKGROUND_MAX_TASKS) return RP_ERR_BUSY;
    int rc = job_new(&c, e, JOB_BACKGROUND, NULL);
    if (rc) return rc;
    job_request *q = job_draft(c);
    c->format = task->format;
    if (task->schema) q->schema = engine_schema_ref(e, task->schema);
    else rc = job_take_tokens(c, &task->salt, task->tokens, task->positions, task->n, NULL);
    if (rc) {
        job_free(c);
        return rc;
    }
    q->options.shifted_reuse = -1;
    q->keeps = task->keeps;
    q->pieces = task->pieces;
    q->n_pieces = task->n_pieces;
    q->advance = task->advance;
    q->background_done = task->done;
    q->background_user = task->user;
    BASE_CHAIN_APPEND(rp_job, e->background_tasks->queue, c, next);
    e->background_tasks->n_tasks++;
    engine_publish(e); /* rp_engine_drain waits for it from now on */
    return RP_OK;
}

void background_task_free(background_task *task) {
    base_free(task->tokens);
    base_free(task->positions);
    base_free(task->pieces);
    task->tokens = task->positions = NULL;
    task->pieces = NULL;
}

static rp_kv_format item_format(const rp_job *c, int32_t item) {
    const pml_item *i = &c->plan->items[item];
    return i->is_view && !c->exact ? c->plan->layout->segments[i->segment].format : c->format;
}

/* items: of each token. None, if all tokens have the job's format. RP_ERR_MEMORY. */
static int list_pieces(const rp_job *c, const int32_t *items, int32_t n, background_task *out) {
    bool differs = false;
    int32_t n_pieces = 0;
    for (int32_t i = 0; i < n; i++) {
        differs |= item_format(c, items[i]) != c->format;
        n_pieces += i + 1 == n || items[i] != items[i + 1];
    }
    if (!differs) return RP_OK;
    if (!(out->pieces = base_alloc((size_t)n_pieces * sizeof(*out->pieces)))) return RP_ERR_MEMORY;
    for (int32_t i = 0; i < n; i++)
        if (i + 1 == n || items[i] != items[i + 1])
            out->pieces[out->n_pieces++] = (background_piece){i + 1, item_format(c, items[i])};
    BASE_ASSERT(out->n_pieces == n_pieces);
    return RP_OK;
}

int background_twin(const rp_job *c, background_task *out) {
    size_t n = (size_t)c->plan->n_cached + (size_t)c->plan->n_fresh;
    int32_t *items = base_alloc(n * sizeof(*items));
    out->tokens = base_alloc(n * sizeof(*out->tokens));
    out->positions = base_alloc(n * sizeof(*out->positions));
    out->pieces = NULL;
    out->n_pieces = 0;
    out->salt = c->salt;
    out->format = c->format;
    out->n = (int32_t)n;
    int rc = items && out->tokens && out->positions
                 ? pml_plan_flatten_items(c->plan, out->tokens, out->positions, items, NULL)
                 : RP_ERR_MEMORY;
    if (!rc) rc = list_pieces(c, items, out->n, out);
    base_free(items);
    if (rc) background_task_free(out);
    return rc;
}

/* ---- completion ---- */

/* Releases what it holds; the tree has its own references to kept KV. */
static void background_release(rp_engine *e, rp_job *c) {
    if (c == e->background_tasks->current) e->background_tasks->current = NULL;
    job_release(c);
    segment_prefills_forget(e, c);
    e->budget_epoch++; /* memory was freed */
}

/* Ends a task that is in no list. */
static void background_end(rp_engine *e, rp_job *c, int rc, const float *logits) {
    BASE_ASSERT(rc || c->request->schema || (logits && c->seq.done == c->seq.n));
    if (rc == RP_OK && !c->request->schema) {
        background_result result = {
            .logits = logits,
            .path = &c->prefix.path,
            .n_found_steps = c->prefix.n_found_steps,
            .states = c->states.now};
        sequence_reserve(&c->seq, 0); /* it takes no more blocks */
        prefix_give(c, true);
        c->request->background_done(e, c->request->background_user, RP_OK, &result);
    } else {
        c->request->background_done(e, c->request->background_user, rc, NULL);
    }
    BASE_TRACE(ENGINE, "a background task of %d tokens ended: %d", c->n_prompt, rc);
    background_release(e, c);
    job_free(c);
    BASE_ASSERT(e->background_tasks->n_tasks > 0);
    e->background_tasks->n_tasks--;
}

/* Requeues the running task. */
static void give_up(rp_engine *e, rp_job *c) {
    BASE_ASSERT(c == e->background_tasks->current && c->kind == JOB_BACKGROUND);
    sequence_reserve(&c->seq, 0);
    if (!c->request->schema && !job_has_failed(c)) prefix_give(c, true);
    background_release(e, c);
    if (++c->queued.n_tries < BACKGROUND_MAX_TRIES) BASE_CHAIN_APPEND(rp_job, e->background_tasks->queue, c, next);
    else background_end(e, c, RP_ERR_BUDGET, NULL);
}

void background_end_all(rp_engine *e) {
    if (e->background_tasks->current) background_end(e, e->background_tasks->current, RP_ERR_CANCELLED, NULL);
    for (rp_job *c; (c = e->background_tasks->queue);) {
        e->background_tasks->queue = c->next;
        background_end(e, c, RP_ERR_CANCELLED, NULL);
    }
}

/* ---- memory ---- */

bool background_make_room(rp_engine *e, int64_t blocks) {
    if (!e->background_tasks->current || blocks <= span_store_free_blocks(e->store)) return false;
    give_up(e, e->background_tasks->current);
    return true;
}

/* ---- pieces ---- */

/* Tokens of an encoded format are computed in the format of text. */
static rp_kv_format piece_open_format(const rp_job *c, const background_piece *p) {
    return kv_format_is_encoded(p->format) ? c->format : p->format;
}

/* The piece that has the next token. */
static const background_piece *next_piece(const rp_job *c) {
    int32_t i = 0;
    while (i < c->request->n_pieces && c->request->pieces[i].end <= c->seq.done) i++;
    return i < c->request->n_pieces ? &c->request->pieces[i] : NULL;
}

int32_t background_most_rows(const rp_job *c) {
    const background_piece *p = next_piece(c);
    return (p ? p->end : c->seq.n) - c->seq.done;
}

/* Upper bound of the blocks of all pieces, with their encoded form. */
static int64_t piece_blocks(const rp_job *c) {
    const kv_pool *pool = c->engine->pool;
    int64_t blocks = 0;
    int32_t begin = 0;
    for (int32_t i = 0; i < c->request->n_pieces; begin = c->request->pieces[i++].end) {
        const background_piece *p = &c->request->pieces[i];
        const int32_t n = p->end - begin, runs = job_count_runs(c->positions + begin, n);
        blocks += sequence_blocks_in(pool, piece_open_format(c, p), n, runs, 0, true);
        if (kv_format_is_encoded(p->format)) blocks += sequence_blocks_in(pool, p->format, n, runs, 0, true);
    }
    return blocks;
}

/* A piece is complete: encodes its spans, and starts the next one. */
static int end_piece(rp_engine *e, rp_job *c, rp_kv_format format) {
    kv_context *context = &c->seq.context;
    int rc = RP_OK;
    BASE_ASSERT(c->prefix.first_own_view <= context->n_views);
    kv_context_close(context);
    for (size_t i = c->prefix.first_own_view; i < context->n_views && kv_format_is_encoded(format) && !rc; i++) {
        kv_span *encoded;
        if ((rc = kv_span_new_like(&encoded, context->views[i].span, format, NULL))) return rc;
        sequence_reserve(
            &c->seq, BASE_MAX(c->seq.reserved - (int64_t)(kv_span_bytes(encoded) / kv_pool_block_bytes(e->pool)), 0));
        if ((rc = e->backend->ops->encode(e->backend, context->views[i].span, encoded, NULL))) kv_span_unref(encoded);
        else kv_context_replace(context, i, encoded);
    }
    c->prefix.first_own_view = context->n_views;
    if (next_piece(c)) context->format = piece_open_format(c, next_piece(c));
    return rc;
}

static bool background_reserve(rp_engine *e, rp_job *c) {
    int64_t blocks =
        c->request->pieces ? piece_blocks(c) : job_own_blocks(c, c->n_prompt - c->prefix.n_found, c->request->keeps);
    BASE_ASSERT(c->seq.reserved == 0);
    if (blocks > span_store_free_blocks(e->store)) return false;
    c->seq.keeps_windows = c->request->keeps || c->request->pieces;
    sequence_reserve(&c->seq, blocks);
    return true;
}

/* Admits the first task of the queue, or ends it, or leaves it queued while memory is short. */
static void background_admit(rp_engine *e) {
    rp_job *c = e->background_tasks->queue;
    bool wait;
    if (c->request->schema) { /* memory is reserved for each of its modules */
        e->background_tasks->queue = c->next;
        c->next = NULL;
        c->phase = JOB_PREFILL;
        e->background_tasks->current = c;
        return;
    }
    c->prefix.shares = !c->request->pieces;
    span_store_next_request(e->store);
    int rc = prefix_find(e, c, &wait, NULL);
    BASE_ASSERT(rc || !wait); /* no other job runs */
    bool room = !rc && background_reserve(e, c);
    if (!rc && !room && span_store_is_busy(e->store)) { /* writes or reads in flight hold some of it */
        job_release(c);
        e->background_tasks->tried_at = e->budget_epoch;
        return;
    }
    e->background_tasks->queue = c->next;
    c->next = NULL;
    if (room) rc = prefix_compose(c, NULL);
    if (room && c->request->pieces) c->seq.context.format = piece_open_format(c, next_piece(c));
    c->prefix.shares = c->request->keeps;
    c->phase = JOB_PREFILL;
    if (rc || !room) background_end(e, c, rc ? rc : RP_ERR_BUDGET, NULL);
    else e->background_tasks->current = c;
}

/* ---- steps ---- */

/* Of a task that reduces modules: is there anything to do for the current one? */
static bool has_prefill(const rp_engine *e, const rp_job *c) {
    if (c->needs.n_missing == 0 || c->needs.rc) return true;
    for (const segment_prefill *j = e->prefills; j; j = j->next) {
        const kv_context *context = &j->seq.context;
        if (j->needs.rc ||
            (j->composed ? sequence_is_ready(context) || kv_context_has_failed(context) : j->needs.n_missing == 0))
            return true;
    }
    return false;
}

/* The next rows of such a task: of a composed prefill. The scheduler composes them. */
static rp_job *next_prefill(rp_engine *e, rp_job *c, segment_prefill **out) {
    if (c->needs.n_missing == 0 || c->needs.rc) {
        const background_outcome outcome = c->request->advance(e, c);
        if (outcome == BACKGROUND_ENDED) background_end(e, c, RP_OK, NULL);
        else if (outcome == BACKGROUND_WAITS) {
            give_up(e, c);
            e->background_tasks->tried_at = e->budget_epoch;
        }
        return NULL;
    }
    for (segment_prefill *j = e->prefills; j && !*out; j = j->next)
        if (j->in_background && j->composed && sequence_is_ready(&j->seq.context)) *out = j;
    return *out ? c : NULL;
}

int64_t background_wait_ms(const rp_engine *e) {
    const rp_job *c = e->background_tasks->current;
    if (!e->prepared || e->n_running != 0 || e->waiting || e->background_tasks->n_tasks <= 0) return -1;
    if (!c && e->background_tasks->tried_at == e->budget_epoch) return -1; /* no memory was freed since */
    /* not while its KV is being read from disk: the store notifies the engine */
    if (c && !(c->request->schema ? has_prefill(e, c) : job_is_ready(c) || job_has_failed(c))) return -1;
    uint64_t now = base_clock_us(), due = e->background_tasks->busy_us + BACKGROUND_QUIET_MS * 1000;
    return e->background_tasks->hurried || now >= due ? 0 : (int64_t)((due - now + 999) / 1000);
}

bool background_is_due(const rp_engine *e) { return background_wait_ms(e) == 0; }

rp_job *background_next(rp_engine *e, segment_prefill **prefill) {
    *prefill = NULL;
    if (!background_is_due(e)) return NULL;
    if (e->background_tasks->current && job_has_failed(e->background_tasks->current))
        give_up(e, e->background_tasks->current);
    if (!e->background_tasks->current && e->background_tasks->queue) background_admit(e);
    if (e->background_tasks->current && e->background_tasks->current->request->schema)
        return next_prefill(e, e->background_tasks->current, prefill);
    return e->background_tasks->current && job_is_ready(e->background_tasks->current) ? e->background_tasks->current
                                                                                      : NULL;
}

double background_step_us(const rp_engine *e, int64_t slots, bool of_module) {
    return BASE_MAX(BACKGROUND_STEP_US,
                    (of_module ? MODULE_SLACK : ROW_SLACK) * (double)cost_model_tokens_us(e->cost, 1, slots));
}

void background_settle(rp_engine *e, rp_job *c, int32_t n_rows, int rc, const float *logits) {
    if (job_has_failed(c)) { /* detected in the step: rows are invalid */
        give_up(e, c);
        return;
    }
    if (rc) {
        background_end(e, c, rc, NULL);
        return;
    }
    c->seq.done += n_rows;
    BASE_ASSERT(n_rows > 0 && c->seq.done <= c->seq.n);
    sequence_settle(&c->seq, 0, sequence_position(&c->seq, c->seq.done - 1));
    for (int32_t i = 0; i < c->request->n_pieces && !rc; i++)
        if (c->request->pieces[i].end == c->seq.done) rc = end_piece(e, c, c->request->pieces[i].format);
    if (rc) background_end(e, c, rc, NULL);
    else if (c->seq.done == c->seq.n) background_end(e, c, RP_OK, logits);
    else if (c->seq.keeps_windows) prefix_give(c, false);
}
