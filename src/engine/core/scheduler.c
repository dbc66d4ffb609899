/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.c: the engine's thread: takes jobs, admits them, runs them step by step, ends them.
 *
 *   inbox --> waiting (queue.c) --admit--> running (up to max_sequences, besides paused ones and those aside) --> ended
 *
 * Admission precedes allocation. The blocks that a job may ever take are counted at admission: from then on it holds
 * its modules, its cached prefix and the blocks that others compute for it, and the rest is reserved. A running job
 * therefore never lacks a block, and the store may evict everything that no job holds. Small jobs do not bypass the
 * head of the queue. The hits of the next jobs are held, and read from disk, as far as the budget allows
 * (span_prefetch.h).
 */
#include "engine/core/scheduler.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "engine/background/background.h"
#include "engine/background/scaffolds.h"
#include "engine/core/abilities.h"
#include "engine/core/commands.h"
#include "engine/core/draft_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/job_tokens.h"
#include "engine/core/observer.h"
#include "engine/core/queue.h"
#include "engine/core/result.h"
#include "engine/core/schemas.h"
#include "engine/core/sequence.h"
#include "engine/core/status.h"
#include "engine/core/steps.h"
#include "engine/reuse/checkpoints.h"
#include "engine/reuse/conversation.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/pool_pulls.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "engine/reuse/span_prefetch.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "backend/backend.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "sampling/answer.h"
#include "store/index/span_names.h"
#include "store/span_store.h"
#include "store/index/span_tree.h"

/* Interval of checks for cancellation while nothing can be computed. */
#define MOMENT_MS 2
#define PAUSED_MS 50 /* while all running jobs are paused: deadlines */

/* Is a decoding job paused by its caller, or has it given up its turn? */
static bool is_paused(const rp_job *c) {
    BASE_ASSERT(!c->queued.aside || job_is_answering(c)); /* turns are those of answers */
    return job_is_answering(c) && (c->queued.aside || job_is_paused(c));
}

static void stop_running(rp_engine *e, const rp_job *c) {
    int32_t i = 0;
    while (i < e->n_running && e->running[i] != c) i++;
    if (i == e->n_running) return;
    for (e->n_running--; i < e->n_running; i++) e->running[i] = e->running[i + 1];
}

/* ---- the end ---- */

/* Ends the jobs with a finished write of their KV; all: the others as well. */
static void end_flushed(rp_engine *e, bool all) {
    for (rp_job *c = e->places->flushing, *next; c; c = next) {
        next = c->next;
        if (!all && c->flush_serial > span_store_flushed(e->store) && !job_is_cancelled(c)) continue;
        BASE_ASSERT(c->phase == JOB_FLUSHING);
        BASE_CHAIN_REMOVE(rp_job, e->places->flushing, c, next);
        c->phase = JOB_DONE;
        job_publish(c, RP_OK, NULL);
    }
}

/* Removes the last references to the job. */
static void scheduler_forget(rp_engine *e, const rp_job *c) {
    segment_prefills_forget(e, c);
    for (rp_job *w = e->waiting; w; w = w->next)
        if (w->queued.waits_for == c) w->queued.waits_for = NULL;
}

/* Ends a running or waiting job: with a complete answer (rc 0), or an error. Releases its KV, then publishes the
 * result. */
static void scheduler_end(rp_engine *e, rp_job *c, int rc, const rp_error *err) {
    rp_error own = {0};
    bool began = job_is_answering(c);
    BASE_ASSERT(c->phase != JOB_DONE && c->phase != JOB_FLUSHING && c->kind != JOB_BACKGROUND);
    BASE_ASSERT(rc == RP_OK || err);
    if (rc == RP_OK && c->kind == JOB_REQUEST) {
        sequence_reserve(&c->seq, 0); /* it takes no more blocks */
        checkpoints_end(c);
        prefix_give(c, true);
        rc = answer_finish(&c->answer, &own);
        if (!rc) conversation_remember(c);
        if (c->request->options.ends_session) span_store_end_session(e->store, c->request->reader.who.session);
        if (!rc) rc = job_describe(c, &own);
        err = &own;
    }
    if (c->kind == JOB_REQUEST)
        BASE_TRACE(ENGINE, "job %llu ended%s: %d", (unsigned long long)c->request->number,
                   began ? "" : " before its answer", rc);
    queue_remove(e, c);
    queue_settle(e, c);
    stop_running(e, c);
    scheduler_forget(e, c);
    job_release(c);
    e->budget_epoch++;
    e->background_tasks->busy_us = base_clock_us();
    for (const job_observer *const *o = e->observers; *o; o++)
        if ((*o)->ended) (*o)->ended(c, rc);
    engine_publish(e);
    BASE_ASSERT(c->seq.reserved == 0 && c->seq.context.n_views == 0); /* invariant 9: an ended job holds no block */
    c->flush_serial = rc == RP_OK && span_store_writes_through(e->store) ? span_store_put_serial(e->store) : 0;
    if (c->flush_serial > span_store_flushed(e->store)) {
        c->phase = JOB_FLUSHING;
        c->next = e->places->flushing;
        e->places->flushing = c;
        return;
    }
    c->phase = JOB_DONE;
    job_publish(c, rc, err);
}

/* A disk read failed under a running job: requeue it without the bad record, which is a miss from now on. */
static void scheduler_requeue(rp_engine *e, rp_job *c) {
    BASE_ASSERT(c->kind == JOB_REQUEST && c->phase != JOB_DONE && c->phase != JOB_FLUSHING);
    BASE_TRACE(ENGINE, "job %llu requeued: a disk read failed", (unsigned long long)c->request->number);
    queue_settle(e, c);
    stop_running(e, c);
    scheduler_forget(e, c);
    job_release(c);
    c->queued.aside = 0;
    c->queued.turn_from = 0;
    scaffold_requeue(c);
    e->budget_epoch++; /* memory was freed */
    queue_add(e, c);
}

static void scheduler_fail(rp_engine *e, rp_job *c, rp_code code, const char *what) {
    rp_error err;
    base_fail(&err, code, "%s", what);
    scheduler_end(e, c, code, &err);
}

static void scheduler_expire(rp_engine *e, rp_job *c, uint64_t now) {
    if (job_is_answering(c)) {
        answer_stop(&c->answer, "deadline", true);
        scheduler_end(e, c, RP_OK, NULL);
        return;
    }
    rp_error err;
    base_fail(&err, RP_ERR_DEADLINE, "no token within the deadline of %lld ms: retry later, or raise deadline_ms",
              (long long)((now - c->request->submitted_us) / 1000));
    scheduler_end(e, c, RP_ERR_DEADLINE, &err);
}

/* Ends the job if it was cancelled or missed its deadline. */
static void end_early(rp_engine *e, rp_job *c, uint64_t now) {
    if (job_is_cancelled(c)) {
        if (job_is_answering(c)) {
            answer_stop(&c->answer, "cancelled", false);
            scheduler_end(e, c, RP_OK, NULL);
        } else scheduler_fail(e, c, RP_ERR_CANCELLED, "cancelled by the caller");
    } else if (c->request->deadline_us && now >= c->request->deadline_us) scheduler_expire(e, c, now);
}

static void scheduler_end_expired(rp_engine *e) {
    uint64_t now = base_clock_us();
    for (int32_t i = e->n_running; i-- > 0;) end_early(e, e->running[i], now);
    for (rp_job *c = e->waiting, *next; c; c = next) {
        next = c->next;
        end_early(e, c, now);
    }
}

/* ---- admission ---- */

static bool is_cached(const pml_layout *l, const pml_segment *s) {
    return s->holder == 0 || l->schema->nodes[s->holder].cache;
}

/* The next segment of a schema that is prefilled; none: *need is false. */
static int need_segment(rp_engine *e, rp_job *c, bool *need, rp_error *err) {
    const pml_layout *l = c->request->schema->layout;
    while (c->next_segment < l->n_segments && !is_cached(l, &l->segments[c->next_segment])) c->next_segment++;
    *need = c->next_segment < l->n_segments;
    if (!*need) return RP_OK;
    const segment_view view = {.segment = c->next_segment,
                               .n_tokens = l->segments[c->next_segment].n_tokens,
                               .mask_holes = true,
                               .states = e->is_recurrent ? SEGMENT_STATES_END : SEGMENT_STATES_NONE};
    int rc = segment_needs_reserve(&c->needs, 1, err);
    return rc ? rc : segment_needs_add(e, &c->needs, c->request->schema, &view, c, true, err);
}

/* The modules of a plan. */
static int need_views(rp_engine *e, rp_job *c, rp_error *err) {
    const pml_plan *p = c->plan;
    if (p->n_cached == 0 || c->exact) return RP_OK;
    int rc = segment_needs_reserve(&c->needs, (int32_t)p->n_items, err);
    for (size_t i = 0; i < p->n_items && !rc; i++) {
        const pml_item *item = &p->items[i];
        if (!item->is_view) continue;
        const segment_view view = {.segment = item->segment,
                                   .shift = item->shift,
                                   .n_tokens = item->n_tokens,
                                   .mask_holes = true,
                                   .again = pml_item_again(p, item),
                                   .n_again = item->n_again,
                                   .reduced = item->reduced,
                                   .states = job_view_states(c, c->needs.n)};
        rc = segment_needs_add(e, &c->needs, c->request->schema, &view, c, c->request->options.reuse == RP_REUSE_ON,
                               err);
    }
    return rc;
}

/* Reserves all blocks that the job may still take once its modules are held. */
static bool scheduler_reserve(rp_engine *e, rp_job *c) {
    BASE_ASSERT(c->seq.reserved == 0);
    int32_t n = c->n_prompt - c->prefix.n_found + job_held(c, BASE_MAX(c->answer.most - 1, 0));
    int64_t room = span_store_free_blocks(e->store);
    if (c->kind == JOB_MODULE_PREFILL) return room >= 0;
    const int least = c->wants.n_late > 0; /* tokens that attend to all KV of the prompt */
    for (int keeps = c->prefix.shares || least; keeps >= least; keeps--) {
        int64_t blocks = job_own_blocks(c, n, keeps);
        if (blocks > room) continue;
        c->seq.keeps_windows = keeps;
        sequence_reserve(&c->seq, blocks);
        return true;
    }
    return false;
}

typedef enum verdict { ADMITTED,
                       NO_ROOM,
                       WAITS } verdict;

/* Looks up all that a job needs, and reserves the rest. A job that is not admitted holds nothing. */
static int try_form(rp_engine *e, rp_job *c, verdict *v, rp_error *err) {
    bool wait = false, need = true;
    int rc = RP_OK;
    BASE_ASSERT(c->phase == JOB_WAITING && c->needs.n == 0 && c->moved.n_runs == 0);
    *v = NO_ROOM;
    span_store_next_request(e->store);
    prefix_expect_reads(e, c);
    if (c->kind == JOB_REQUEST) c->figures.prefill_done = 0;
    c->figures.prefill_total = c->figures.prefill_done; /* of a schema: its previous segments */
    if (c->kind == JOB_MODULE_PREFILL) rc = need_segment(e, c, &need, err);
    else if (!(rc = prefix_find(e, c, &wait, err)) && !wait) rc = need_views(e, c, err);
    if (!rc && wait) *v = WAITS;
    else if (!rc && scheduler_reserve(e, c)) *v = ADMITTED;
    if (rc || *v != ADMITTED) job_release(c);
    else prefetch_release(c); /* the job has its own references now */
    return rc;
}

/* The flat form of a prompt that has one, if its combination was computed; else the composed one. */
static int try_admit(rp_engine *e, rp_job *c, verdict *v, rp_error *err) {
    if (!scaffold_is_there(e, c)) return try_form(e, c, v, err);
    scaffold_swap(c);
    int rc = try_form(e, c, v, err);
    if (rc || (*v == ADMITTED && scaffold_was_found(c))) return rc;
    job_release(c);
    scaffold_swap(c);
    return try_form(e, c, v, err);
}

/* Does the job fit alone? If not, tries again without the cached prefix: its views may take more blocks than its
 * tokens. */
static int try_alone(rp_engine *e, rp_job *c, verdict *v, rp_error *err) {
    c->prefix.shares = false;
    int rc = try_admit(e, c, v, err);
    if (rc || *v == ADMITTED) return rc;
    return base_fail(err, RP_ERR_BUDGET,
                     "the KV budget cannot hold the prompt with its modules and their scopes: raise kv_budget_bytes "
                     "or ram_bytes, or shorten the prompt");
}

/* Publishes that a composed job is prefilled from now on, and its cached tokens. */
static void scheduler_publish_composed(rp_engine *e, rp_job *c) {
    int32_t n_cached = job_count_found(c);
    BASE_ASSERT(n_cached >= 0 && n_cached <= c->plan->n_cached + c->plan->n_fresh);
    pthread_mutex_lock(&e->lock);
    rp_job_status *status = job_status_locked(c);
    status->cached_tokens = n_cached;
    status->state = RP_JOB_PREFILL;
    status->queue_position = 0;
    pthread_mutex_unlock(&e->lock);
}

/* All modules are held: makes a small struct for each span. */
static int scheduler_compose(rp_engine *e, rp_job *c, rp_error *err) {
    uint64_t start = base_clock_us(), taken = kv_pool_get_stats(e->pool).taken_bytes_total;
    kv_context *context = &c->seq.context;
    BASE_ASSERT(c->needs.n_missing == 0 && context->n_views == 0);
    context->scatters = c->wants.scatters;
    c->phase = JOB_PREFILL; /* or what a feature makes of it, when the views are there */
    int rc = c->needs.n > 0 ? segment_needs_compose(&c->needs, c->plan->layout, context, err) : RP_OK;
    if (!rc) rc = prefix_compose(c, err);
    span_store_set_reader(e->store, c->request->reader);
    if (c->needs.n > 0) segment_needs_use(e, &c->needs, c->plan->layout);
    span_path_use(&c->prefix.path);
    checkpoints_use(c);
    moved_kv_use(&c->moved);
    span_store_set_reader(e->store, (span_reader){0});
    c->figures.copied_bytes = kv_pool_get_stats(e->pool).taken_bytes_total - taken;
    if (!rc) scheduler_publish_composed(e, c);
    c->figures.composed_us = base_clock_us();
    c->figures.compose_us = c->figures.composed_us - start;
    return rc;
}

/* Advances a running job if its needs are met. */
static void scheduler_advance(rp_engine *e, rp_job *c) {
    rp_error err = {0};
    int rc = c->needs.rc;
    if (rc) err = c->needs.err;
    else if (c->needs.n_missing > 0) return;
    else if (c->kind == JOB_REQUEST) rc = scheduler_compose(e, c, &err);
    else {
        BASE_ASSERT(c->kind == JOB_MODULE_PREFILL);
        c->next_segment++;
        stop_running(e, c);
        job_release(c);
        e->budget_epoch++; /* memory was freed */
        queue_add(e, c);
        return;
    }
    if (rc) scheduler_end(e, c, rc, &err);
}

/* All candidates were probed: the feature composes the job again, with what it has chosen. */
static void scheduler_choose(rp_engine *e, rp_job *c) {
    rp_error err = {0};
    const int rc = job_features_choose(c, &err);
    c->phase = JOB_PREFILL;
    if (!rc) scheduler_publish_composed(e, c);
    else scheduler_end(e, c, rc, &err);
}

static void scheduler_admit(rp_engine *e, rp_job *c) {
    BASE_ASSERT(e->n_running < e->max_running && c->phase == JOB_WAITING);
    queue_admit(e, c);
    e->running[e->n_running++] = c;
    queue_begin_rows(e, c);
    e->places->n_admitted++;
    e->places->new_had_turn = true;
    c->phase = JOB_COMPOSING;
    if (!c->figures.admitted_us) c->figures.admitted_us = base_clock_us();
    BASE_TRACE(ENGINE, "job %llu admitted: %d of %d tokens cached, %d modules missing, %lld blocks reserved",
               (unsigned long long)c->request->number, c->prefix.n_found, c->n_prompt, c->needs.n_missing,
               (long long)c->seq.reserved);
}

static bool has_ended_prefill(const rp_job *c) {
    const pml_layout *l = c->kind == JOB_MODULE_PREFILL ? c->request->schema->layout : NULL;
    int32_t i = c->next_segment;
    if (l && !engine_reuses_modules(c->engine)) return true; /* modules are text */
    while (l && i < l->n_segments && !is_cached(l, &l->segments[i])) i++;
    return l && i >= l->n_segments;
}

/* Is there a place in the batch, for one of the running jobs? */
static bool has_place(const rp_engine *e) { return e->n_running - e->places->n_paused < e->max_sequences; }

/* ---- turns of long answers ----
 *
 *   has a place --turn_tokens later, while others wait for one--> aside, with its KV --a place is free, or all others
 *   have had a turn--> has a place
 *
 * New jobs and those that are aside get places in turn, so that neither waits for all of the others. */

/* Of those that are aside and not paused by their callers, the one of the highest priority that is aside for longest;
   NULL: none is. */
static rp_job *first_aside(const rp_engine *e) {
    rp_job *first = NULL;
    for (int32_t i = 0; i < e->n_running; i++) {
        rp_job *c = e->running[i];
        if (!c->queued.aside || job_is_paused(c)) continue;
        const int32_t order = first ? c->request->options.priority - first->request->options.priority : 1;
        if (order > 0 || (order == 0 && c->queued.aside < first->queued.aside)) first = c;
    }
    return first;
}

static void take_turn(rp_engine *e, rp_job *c) {
    BASE_ASSERT(c->queued.aside && e->places->n_paused > 0); /* it is one of them */
    c->queued.aside = 0;
    c->queued.turn_from = c->result->n_tokens;
    e->places->n_paused--;
    e->places->new_had_turn = false;
}

/* How many of this priority, or a higher one, want a place: jobs that may be admitted, `most` at most, and those that
   are aside. */
static int32_t n_wanting(const rp_engine *e, int32_t priority, int32_t most) {
    int32_t n = 0, n_seen = 0;
    for (const rp_job *c = e->waiting; c && n_seen < most; c = c->next, n_seen++)
        n += c->request->options.priority >= priority;
    for (int32_t i = 0; i < e->n_running; i++) {
        const rp_job *c = e->running[i];
        n += c->queued.aside && !job_is_paused(c) && c->request->options.priority >= priority;
    }
    return n;
}

static bool has_had_turn(const rp_job *c) {
    const rp_request *o = &c->request->options;
    return o->turn_tokens > 0 && c->phase == JOB_DECODE && !c->queued.aside && !job_is_paused(c) &&
           c->result->n_tokens - c->queued.turn_from >= o->turn_tokens;
}

/* Answers whose turn is over make way for those of their priority, or a higher one, that wait: as many as these are. */
static void scheduler_turns(rp_engine *e) {
    const int32_t most = BASE_MIN(e->max_sequences, e->max_running - e->n_running);
    const int32_t n_free = BASE_MAX(e->max_sequences - (e->n_running - e->places->n_paused), 0);
    rp_job *next =
        most > 0 && e->waiting && e->places->new_had_turn ? first_aside(e) : NULL; /* it was aside before those below */
    int32_t n_given = 0;
    BASE_ASSERT(e->n_running <= e->max_running && e->places->n_paused <= e->n_running);
    for (int32_t i = 0; i < e->n_running; i++) {
        rp_job *c = e->running[i];
        if (!has_had_turn(c) || n_wanting(e, c->request->options.priority, most) - n_given <= n_free + n_given)
            continue;
        c->queued.aside = ++e->places->n_asides;
        e->places->n_paused++;
        n_given++;
    }
    int32_t priority = INT32_MIN, n_seen = 0;
    for (const rp_job *c = e->waiting; c && n_seen < most; c = c->next, n_seen++)
        priority = BASE_MAX(priority, c->request->options.priority);
    if (next && has_place(e) && next->request->options.priority >= priority) take_turn(e, next);
}

/* Do threads of the disk tier or of a pool reference spans, which cannot be evicted meanwhile? */
static bool holds_memory_elsewhere(const rp_engine *e) {
    return span_store_is_busy(e->store) || (e->remote && remote_pool_measure(e->remote).is_busy);
}

static void admit_waiting(rp_engine *e) {
    for (rp_job *c = e->waiting, *next; c && has_place(e) && e->n_running < e->max_running; c = next) {
        rp_error err = {0};
        verdict v;
        next = c->next;
        if (has_ended_prefill(c)) {
            scheduler_end(e, c, RP_OK, NULL);
            continue;
        }
        const rp_job *ahead = c->queued.waits_for;
        BASE_ASSERT(ahead != c && (!ahead || ahead->phase < JOB_FLUSHING)); /* scheduler_forget */
        if (ahead && ahead->phase < JOB_RECOMPUTING && prefix_computed(ahead) < c->queued.waits_until) continue;
        if (pool_pulls_hold(e, c) || queue_keeps_place(e, c)) continue;
        if (c->queued.tried_at == e->budget_epoch) return; /* memory was short, and none was freed since */
        background_make_room(e, c->kind == JOB_REQUEST ? job_most_blocks(c) : INT64_MAX);
        int rc = try_admit(e, c, &v, &err);
        if (!rc && v == NO_ROOM && prefetch_release_others(e, c)) rc = try_admit(e, c, &v, &err);
        if (!rc && v == NO_ROOM && pool_pulls_release_others(e, c)) rc = try_admit(e, c, &v, &err);
        if (!rc && v == NO_ROOM && background_make_room(e, INT64_MAX)) rc = try_admit(e, c, &v, &err);
        if (!rc && v == NO_ROOM && e->n_running == 0 && !holds_memory_elsewhere(e)) rc = try_alone(e, c, &v, &err);
        if (rc) scheduler_end(e, c, rc, &err);
        else if (v == ADMITTED) scheduler_admit(e, c);
        else if (v == NO_ROOM) {
            c->queued.tried_at = e->budget_epoch;
            return;
        }
    }
}

static void admit_all(rp_engine *e) {
    e->places->n_paused = 0;
    for (int32_t i = 0; i < e->n_running; i++) e->places->n_paused += is_paused(e->running[i]);
    scheduler_turns(e);
    admit_waiting(e);
    /* free places are for jobs that gave theirs up */
    for (rp_job *c; has_place(e) && (c = first_aside(e));) take_turn(e, c);
}

/* Composes all prefills and jobs that can be composed; modules first, as jobs may wait for them. */
static void compose_all(rp_engine *e) {
    for (segment_prefill *j = e->prefills, *next; j; j = next) {
        rp_error err = j->needs.err;
        next = j->next;
        int rc = j->needs.rc;
        if (!rc && !j->composed && j->needs.n_missing == 0) rc = segment_prefill_compose(e, j, &err);
        else if (!rc && j->composed && segment_prefill_has_failed(j)) rc = segment_prefill_requeue(e, j, &err);
        if (!rc) continue;
        segment_prefill_fail(e, j, &err);
        next = e->prefills; /* others may have been freed with it */
    }
    for (int32_t i = e->n_running; i-- > 0;) {
        rp_job *c = e->running[i];
        if (c->phase == JOB_COMPOSING) scheduler_advance(e, c);
        else if (c->phase != JOB_DECODE && job_has_failed(c)) scheduler_requeue(e, c);
        else if (c->phase == JOB_PROBING && job_features_probe_left(c) == 0) scheduler_choose(e, c);
    }
}

/* ---- the thread ---- */

static int scheduler_prepare(rp_engine *e, rp_on_progress on_progress, void *user, rp_error *err) {
    int rc = e->backend->ops->prepare(e->backend, on_progress, user, err);
    if (!rc && e->draft_model) rc = draft_model_prepare(e->draft_model, on_progress, user, err);
    pthread_mutex_lock(&e->lock);
    e->prepared = rc == RP_OK;
    pthread_mutex_unlock(&e->lock);
    engine_publish(e); /* repacked weights may be mapped: rp_memory */
    return rc;
}

/* Prepares the weights if no caller did: before the first step, as its time would mislead the cost model. */
static void prepare_first(rp_engine *e) {
    rp_error err = {0};
    if (e->n_running == 0 || e->prepared) return;
    int rc = scheduler_prepare(e, NULL, NULL, &err);
    while (rc && e->n_running > 0) scheduler_end(e, e->running[0], rc, &err);
}

static void scheduler_accept_queued(rp_engine *e, rp_job *inbox) {
    for (rp_job *c = inbox, *next; c; c = next) {
        next = c->next;
        c->next = NULL;
        BASE_ASSERT(c->request->number > 0 && c->kind != JOB_BACKGROUND); /* background.c has a queue of its own */
        if (c->kind != JOB_PREPARE) {
            queue_add(e, c);
            continue;
        }
        rp_error err = {0};
        int rc = scheduler_prepare(e, c->request->options.on_progress, c->request->options.user, &err);
        scheduler_end(e, c, rc, &err);
    }
}

/* Computed tokens of its prompt: those after the views and, once it is composed, those of the views. */
static int32_t computed_tokens(const rp_job *c) {
    bool composed = c->phase >= JOB_PREFILL && c->kind == JOB_REQUEST;
    if (c->phase == JOB_RECOMPUTING || c->phase == JOB_DECODE) return c->plan->n_cached + c->plan->n_fresh;
    int32_t views = composed && !c->exact ? c->plan->n_cached : 0;
    return BASE_MIN(prefix_computed(c), c->n_prompt) + c->moved.n + views;
}

/* What rp_job_get_status returns. Locked. */
static void publish_status(rp_engine *e) {
    int32_t position = 0;
    for (rp_job *c = e->waiting; c; c = c->next) job_status_locked(c)->queue_position = ++position;
    BASE_ASSERT(position == e->n_waiting);
    for (int32_t i = 0; i < e->n_running; i++) {
        rp_job *c = e->running[i];
        job_status_locked(c)->queue_position = 0;
        job_status_locked(c)->state = job_is_answering(c) ? RP_JOB_DECODE : RP_JOB_PREFILL;
        job_status_locked(c)->computed_tokens = computed_tokens(c);
        if (c->result) job_status_locked(c)->answer_tokens = c->result->n_tokens;
    }
}

/* Waits until there is work or a background task is due. Locked. */
static void wait_for_work(rp_engine *e) {
    for (;;) {
        e->background_tasks->hurried = e->board->n_draining > 0;
        if (e->inbox || e->commands->queued || e->stopping || e->disk_notified) return;
        if (e->waiting || e->n_running > 0 || background_is_due(e)) return;
        int64_t ms = background_wait_ms(e), write_ms = span_store_wait_ms(e->store);
        if (write_ms == 0) return;
        if (ms < 0 || (write_ms > 0 && write_ms < ms)) ms = write_ms;
        struct timespec until = base_clock_after(BASE_MAX(ms, 0));
        if (ms < 0) pthread_cond_wait(&e->wake, &e->lock);
        else pthread_cond_timedwait(&e->wake, &e->lock, &until);
    }
}

/* All running jobs wait for the disk or are paused, or queued ones wait for memory: waits for a notification, or an
 * interval, as callers may cancel. Locked. */
static void wait_for_disk(rp_engine *e) {
    bool only_paused = e->n_running > 0; /* rp_job_resume ends a pause, and then wakes the engine under the lock */
    for (int32_t i = 0; i < e->n_running && only_paused; i++)
        only_paused = is_paused(e->running[i]) && !job_is_cancelled(e->running[i]);
    struct timespec until = base_clock_after(only_paused ? PAUSED_MS : MOMENT_MS);
    if (!e->inbox && !e->commands->queued && !e->stopping && !e->disk_notified)
        pthread_cond_timedwait(&e->wake, &e->lock, &until);
}

static void end_all(rp_engine *e) {
    end_flushed(e, true);
    while (e->n_running > 0) scheduler_fail(e, e->running[0], RP_ERR_CANCELLED, "the engine was freed");
    while (e->waiting) scheduler_fail(e, e->waiting, RP_ERR_CANCELLED, "the engine was freed");
    background_end_all(e);
    BASE_ASSERT(!e->places->flushing && e->background_tasks->n_tasks == 0 && !e->prefills); /* no job is left */
}

/* Invariant 9, and no reservation without an owner; also true while a job may hold KV. */
BASE_UNUSED static bool scheduler_is_consistent(const rp_engine *e) {
    if (e->n_running > 0 || e->waiting || e->prefills || e->places->flushing || e->background_tasks->current ||
        e->commands->open)
        return true;
    kv_pool_stats pool = kv_pool_get_stats(e->pool);
    return pool.reserved_blocks == 0 && span_store_is_consistent(e->store, pool.used_bytes);
}

/* Computes a step, and ends or requeues the requests that it settled. false: there was nothing to compute. */
static bool scheduler_step(rp_engine *e) {
    step_result result;
    if (!steps_run(e, &result)) return false;
    for (int32_t i = 0; i < result.n_parts; i++) {
        const step_part *p = &e->steps->parts[i];
        BASE_ASSERT(p->job || p->outcome == STEP_CONTINUES); /* modules end in the step */
        if (p->outcome == STEP_REQUEUE) scheduler_requeue(e, p->job);
        else if (p->outcome != STEP_CONTINUES) scheduler_end(e, p->job, p->rc, &p->err);
    }
    if (result.probed) scheduler_end(e, result.probed, result.rc, &result.err);
    return true;
}

void *scheduler_main(void *arg) {
    rp_engine *e = arg;
    bool stopping = false, stalled = false; /* stalled: nothing was computed, admitted or ended */
    while (!stopping) {
        engine_publish(e);
        pthread_mutex_lock(&e->lock);
        publish_status(e);
        if (stalled || (e->n_running == 0 && !e->waiting)) span_store_set_computing(e->store, false);
        if (stalled && (e->n_running > 0 || e->waiting)) wait_for_disk(e);
        wait_for_work(e);
        rp_job *inbox = e->inbox;
        e->inbox = NULL;
        e->inbox_end = &e->inbox;
        stopping = e->stopping;
        e->disk_notified = false;
        pthread_mutex_unlock(&e->lock);
        engine_run_commands(e);
        uint64_t before = e->budget_epoch + e->places->n_admitted;
        if (span_store_poll(e->store)) e->budget_epoch++; /* memory may have been freed */
        engine_end_commands(e);
        end_flushed(e, false);
        scheduler_accept_queued(e, inbox);
        scheduler_end_expired(e);
        pool_pulls_run(e);
        admit_all(e);
        prefetch_run(e);
        compose_all(e);
        prepare_first(e);
        span_store_set_computing(e->store, e->n_running > 0);
        bool computed = scheduler_step(e);
        if (e->reporter) span_reporter_flush(e->reporter);
        BASE_DCHECK(scheduler_is_consistent(e));
        stalled = !computed && e->budget_epoch + e->places->n_admitted == before;
    }
    end_all(e);
    return NULL;
}
