/* SPDX-License-Identifier: Apache-2.0 */
/* steps.c: composes the batch of a step, runs it, and settles the outcome of each part.
 *
 *   rows    | a token and drafts of every answer | chunks of prompts and modules, by turn, as far as the goal allows |
 *           | a chunk of a background task | alone, when there is nothing else (background.h)
 *
 * In the time that remains for chunks after the rows, module tokens of one job are probed in the context of its prompt
 * (job_feature.h).
 *
 * No answer waits for a prompt (Sarathi-Serve; Agrawal et al., 2024). Which rows share a step changes no result
 * (docs/architecture.md, "Why the bytes are equal").
 */
#define _POSIX_C_SOURCE 200809L /* sched_yield */

#include "engine/core/steps.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/background/background.h"
#include "engine/core/cost_model.h"
#include "engine/core/drafts.h"
#include "engine/core/engine_state.h"
#include "engine/core/host_tier.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/load.h"
#include "engine/core/observer.h"
#include "engine/core/queue.h"
#include "engine/core/sequence.h"
#include "engine/reuse/checkpoints.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "backend/backend.h"
#include "model/forward.h"
#include "model/model.h"
#include "sampling/answer.h"
#include "sampling/prompt_lookup.h"

/* Upper bound of a step's time with chunks, as a multiple of its time without them, if no goal is set: answers slow
 * down by as much as prompts gain. */
#define DEFAULT_SLOWDOWN 1.75
/* One step in this many has no chunks, to keep the time of answers alone measured. */
#define PLAIN_EVERY 32
/* Chunks of more rows are rounded to multiples of 8, the most efficient for matrix products. */
#define ROUND_FROM 16
#define ROUND_TO 8

typedef struct step {
    rp_engine *e;
    int32_t n_parts, n_rows, n_logits, n_hidden;
    cost_load load;
    rp_job *probed; /* NULL: none */
    int32_t n_probed;
    cost_load probe_load;
    uint64_t start_us, end_us;
    double predicted_us;
} step;

/* ---- memory ---- */

int steps_open(rp_engine *e, rp_error *err) {
    engine_steps *s = e->steps;
    BASE_ASSERT(s->max_logits >= e->max_sequences && s->max_rows >= s->max_logits + e->chunk_tokens);
    BASE_ASSERT(s->max_parts >= e->max_sequences + ENGINE_STEP_PREFILLS);
    size_t n_logits = (size_t)s->max_logits * (size_t)e->model->net.hp.n_outputs,
           n_hidden = (size_t)s->max_rows * (size_t)e->model->net.hp.n_embd;
    s->parts = base_calloc((size_t)s->max_parts, sizeof(*s->parts));
    s->reported = base_calloc((size_t)s->max_parts, sizeof(*s->reported));
    s->contexts = base_calloc((size_t)s->max_parts, sizeof(*s->contexts));
    s->states = base_calloc((size_t)s->max_parts, sizeof(*s->states));
    s->tentative = base_calloc((size_t)s->max_parts, sizeof(*s->tentative));
    s->answers = base_calloc((size_t)e->max_sequences, sizeof(*s->answers));
    s->rows = base_calloc((size_t)s->max_rows, sizeof(*s->rows));
    s->logits = base_calloc(n_logits + 1, sizeof(float)); /* an encoder may have none */
    s->hidden = base_calloc(n_hidden, sizeof(float));
    if (s->parts && s->reported && s->contexts && s->states && s->tentative && s->answers && s->rows && s->logits &&
        s->hidden)
        return RP_OK;
    return base_fail_memory(err, (n_logits + n_hidden) * sizeof(float), "an engine");
}

void steps_close(engine_steps *s) {
    base_free(s->parts);
    base_free(s->reported);
    base_free(s->contexts);
    base_free(s->states);
    base_free(s->tentative);
    base_free(s->answers);
    base_free(s->rows);
    base_free(s->logits);
    base_free(s->hidden);
}

static sequence *sequence_of(const step_part *p) {
    BASE_ASSERT((p->job == NULL) != (p->prefill == NULL));
    return p->job ? &p->job->seq : &p->prefill->seq;
}

/* ---- composing rows ---- */

/* A scope that begins within a run begins a span of its own. */
static void close_at_switch(rp_job *c, int32_t token) {
    if (c->switch_at > 0 && token == c->switch_at && !c->seq.context.scatters) kv_context_close(&c->seq.context);
}

/* Appends n tokens of a sequence from seq->done on, and drafts after them. */
static int append_rows(step *s, step_part *p, int32_t n, const int32_t *drafts, int32_t n_drafts) {
    rp_engine *e = s->e;
    sequence *seq = sequence_of(p);
    int rc = RP_OK;
    BASE_ASSERT(n >= 0 && n <= seq->n - seq->done && n_drafts >= 0);
    BASE_ASSERT(n + n_drafts <= e->steps->max_rows - s->n_rows);
    p->first_row = s->n_rows;
    p->n_rows = n + n_drafts;
    rc = p->job ? checkpoints_begin(p->job, &p->err) : segment_prefill_begin(e, p->prefill, &p->err);
    for (int32_t i = 0; i < n + n_drafts && !rc; i++) {
        model_row *row = &e->steps->rows[s->n_rows + i];
        int32_t last = seq->done + n - 1, k = seq->done + i;
        if (p->job) close_at_switch(p->job, p->job->prefix.n_found + k);
        if (p->job && (rc = moved_kv_add_due(p->job, p->job->prefix.n_found + k, &p->err))) break;
        rc = i < n ? sequence_append(seq, seq->tokens[k], sequence_position(seq, k), row, &p->err)
                   : sequence_append(seq, drafts[i - n], sequence_position(seq, last) + i - n + 1, row, &p->err);
        row->context = s->n_parts;
        if (p->prefill && !rc) segment_prefill_row(p->prefill, row);
        if (p->job && !rc) job_features_row(p->job, p->job->prefix.n_found + k, row);
        row->wants_hidden |= p->job && p->job->phase == JOB_DECODE && drafts_read_hidden(p->job);
    }
    return rc;
}

/* Counts what the part's rows want: its last n_last rows want logits, others what features and prefills want. */
static void count_wanted(step *s, step_part *p, int32_t n_last) {
    model_row *rows = s->e->steps->rows + p->first_row;
    BASE_ASSERT(n_last >= 0 && n_last <= p->n_rows);
    for (int32_t i = 0; i < p->n_rows; i++) {
        rows[i].wants_logits |= i >= p->n_rows - n_last;
        p->n_logits += rows[i].wants_logits;
        p->n_hidden += rows[i].wants_hidden;
    }
    if (p->n_logits > 0) p->first_logits = s->n_logits;
    p->first_hidden = s->n_hidden;
    s->n_logits += p->n_logits;
    s->n_hidden += p->n_hidden;
}

/* Adds a part to the step; if it cannot be appended, its job or prefill fails after the step. n_last: how many of its
 * last rows, drafts included, want logits. */
static void step_add_part(step *s, rp_job *c, segment_prefill *j, int32_t n, int32_t n_last, const int32_t *drafts,
                          int32_t n_drafts) {
    rp_engine *e = s->e;
    BASE_ASSERT(s->n_parts < e->steps->max_parts);
    step_part *p = &e->steps->parts[s->n_parts];
    *p = (step_part){.job = c, .prefill = j, .first_logits = -1};
    p->rc = append_rows(s, p, n, drafts, n_drafts);
    e->steps->states[s->n_parts] = c ? c->states.now : j->states;
    e->steps->tentative[s->n_parts] = e->is_recurrent && n_drafts > 0;
    e->steps->contexts[s->n_parts++] = &sequence_of(p)->context;
    if (p->rc) {
        p->n_rows = 0;
        return;
    }
    s->n_rows += p->n_rows;
    s->load.rows += p->n_rows;
    s->load.slots += (double)sequence_of(p)->slots;
    s->load.row_slots += (double)p->n_rows * ((double)sequence_of(p)->slots - 0.5 * p->n_rows);
    count_wanted(s, p, n_last);
}

static void add_answers(step *s) {
    rp_engine *e = s->e;
    rp_job **answers = e->steps->answers;
    int32_t first = e->steps->next_answer < e->n_running ? e->steps->next_answer : 0, i = 0, n = 0;
    for (; i < e->n_running && n < e->max_sequences; i++) {
        rp_job *c = e->running[(first + i) % e->n_running];
        if (c->phase == JOB_DECODE && !c->queued.aside && !job_is_paused(c)) answers[n++] = c;
    }
    e->steps->next_answer = i < e->n_running ? (first + i) % e->n_running : 0; /* several may be resumed at once */
    drafts_make(e, answers, n);
    for (i = 0; i < n; i++) {
        const job_drafts *drafts = &answers[i]->drafts;
        step_add_part(s, answers[i], NULL, 1, 1 + drafts->n, drafts->tokens, drafts->n);
    }
}

/* ---- chunks of prompts and modules ---- */

/* The turn of a chunk is that of the job that missed it first. */
static const rp_job *asker_of(const step_part *p) { return p->job ? p->job : p->prefill->asker; }

static int compare_turns(const void *a, const void *b) {
    const step_part *x = a, *y = b;
    const rp_job *c = asker_of(x), *d = asker_of(y);
    if (c != d && c && d) return queue_piece_precedes(c, d) ? -1 : 1;
    if (c != d) return c ? 1 : -1; /* a module without its asker: other jobs wait for it */
    return x->first_row < y->first_row ? -1 : 1;
}

/* Does the job have tokens to compute or to probe? */
static bool has_piece(const rp_job *c) {
    if (c->phase == JOB_RECOMPUTING) return !job_is_answering(c) || (!c->queued.aside && !job_is_paused(c));
    return c->phase == JOB_PREFILL || (c->phase == JOB_PROBING && job_features_probe_left(c) > 0);
}

/* If nothing else can be computed: the first job with KV still being read from disk. Each layer waits for its own KV.
 * */
static int32_t list_reading(const step *s, step_part *list) {
    const rp_engine *e = s->e;
    for (int32_t i = 0; i < e->n_running; i++) {
        if (!has_piece(e->running[i])) continue;
        list[0] = (step_part){.job = e->running[i]};
        return 1;
    }
    return 0;
}

/* Lists parts with tokens to compute after the step's parts, in order of their turns. Returns their number. */
static int32_t list_waiting(const step *s) {
    rp_engine *e = s->e;
    step_part *list = e->steps->parts + s->n_parts;
    int32_t n = 0;
    for (segment_prefill *j = e->prefills; j && n < ENGINE_STEP_PREFILLS; j = j->next)
        if (j->composed && !j->in_background && segment_prefill_is_ready(j))
            list[n] = (step_part){.prefill = j, .first_row = n}, n++;
    /* more may be resumed at once than are listed */
    for (int32_t i = 0; i < e->n_running && s->n_parts + n < e->steps->max_parts; i++)
        if (has_piece(e->running[i]) && job_is_ready(e->running[i]))
            list[n] = (step_part){.job = e->running[i], .first_row = n}, n++;
    if (n == 0 && s->n_parts == 0) n = list_reading(s, list);
    BASE_ASSERT(s->n_parts + n <= e->steps->max_parts);
    qsort(list, (size_t)n, sizeof(*list), compare_turns);
    return n;
}

/* Rows of a chunk of up to `most`, added to a load. Many are rounded: matrix products are most efficient at multiples
 * of 8. */
static int32_t fitting_rows(const cost_model *m, const cost_load *load, int64_t slots, int32_t most, double us) {
    int32_t rows = isinf(us) ? most : cost_model_overhead(m, load, (double)slots, most, us);
    BASE_ASSERT(rows > 0 && rows <= most); /* every prompt makes progress */
    return rows < most && rows > ROUND_FROM ? rows - rows % ROUND_TO : rows;
}

/* Probes one job in a step. *goal: reduced by the time of the probe. Returns whether all of its candidates fitted. */
static bool add_probe(step *s, rp_job *c, double *goal) {
    rp_engine *e = s->e;
    if (s->probed) return true;
    int32_t most = BASE_MIN(e->chunk_tokens, job_features_probe_left(c));
    double slots = (double)c->seq.slots, left = *goal - cost_model_predict(e->cost, &s->load);
    s->probed = c;
    s->n_probed = fitting_rows(&e->steps->probe_cost, &s->probe_load, c->seq.slots, most, left);
    s->probe_load = (cost_load){.rows = s->n_probed, .row_slots = s->n_probed * slots, .slots = slots};
    *goal -= cost_model_predict(&e->steps->probe_cost, &s->probe_load);
    return s->n_probed == most;
}

static void add_pieces(step *s) {
    rp_engine *e = s->e;
    const bool has_goal = e->steps->token_goal_us > 0;
    double goal = INFINITY;
    if (s->n_parts > 0) {
        goal = has_goal ? e->steps->token_goal_us : DEFAULT_SLOWDOWN * cost_model_predict(e->cost, &s->load);
        /* must this step run without chunks, to measure the time that their size depends on? */
        const bool is_due = e->steps->n - e->steps->last_plain >= PLAIN_EVERY;
        if (!has_goal && (is_due || !cost_model_knows(e->cost, s->load.rows))) return;
    }
    int32_t n = list_waiting(s), left = e->chunk_tokens;
    const step_part *list = e->steps->parts + s->n_parts;
    int32_t places = e->max_sequences - s->n_parts; /* limit of jobs in a step: their logits */
    for (int32_t i = 0; i < n && left > 0; i++) {
        step_part p = list[i]; /* add_part writes where the list begins */
        if (p.job && places-- <= 0) continue;
        sequence *seq = sequence_of(&p);
        if (p.job && p.job->phase == JOB_PROBING) {
            if (!add_probe(s, p.job, &goal) || cost_model_predict(e->cost, &s->load) > goal) return;
            continue;
        }
        const bool all = p.prefill ? segment_prefill_wants_logits(p.prefill) : p.job->wants.all_logits;
        int32_t most = BASE_MIN(left, p.prefill ? segment_prefill_most_rows(p.prefill)
                                                : checkpoints_next(p.job, seq->n - seq->done));
        /* other jobs may need one row of logits each */
        if (all) most = BASE_MIN(most, e->steps->max_logits - s->n_logits - BASE_MIN(BASE_MAX(places, 0), n - i - 1));
        if (most <= 0) continue;
        const bool whole = p.job && p.job->wants.one_part;
        if (whole && most < seq->n - seq->done) continue; /* it is in the next step */
        int32_t rows = whole ? most : fitting_rows(e->cost, &s->load, seq->slots, most, goal);
        const bool draws = rows == seq->n - seq->done && p.job && !p.job->answer.over && !p.job->wants.no_logits;
        if (asker_of(&p)) queue_count_rows(e, asker_of(&p), rows);
        step_add_part(s, p.job, p.prefill, rows, all ? rows : draws, NULL, 0);
        left -= rows;
        if (rows < most || cost_model_predict(e->cost, &s->load) > goal) return;
    }
}

/* Only if nothing else is computed. */
static void add_background(step *s) {
    rp_engine *e = s->e;
    segment_prefill *j = NULL; /* of the task, instead of rows of its own */
    rp_job *c = s->n_parts == 0 ? background_next(e, &j) : NULL;
    if (!c) return;
    BASE_ASSERT(e->n_running == 0 && !e->waiting); /* invariant 8 */
    const sequence *seq = j ? &j->seq : &c->seq;
    const bool all = j && segment_prefill_wants_logits(j);
    const int32_t most = BASE_MIN(j ? segment_prefill_most_rows(j) : background_most_rows(c),
                                  all ? e->steps->max_logits : e->chunk_tokens);
    int32_t rows = fitting_rows(e->cost, &s->load, seq->slots, most, background_step_us(e, seq->slots, j != NULL));
    step_add_part(s, j ? NULL : c, j, rows, all ? rows : !j && rows == seq->n - seq->done, NULL, 0);
}

/* ---- outcome ---- */

static const float *logits_of(const rp_engine *e, const step_part *p, int32_t i) {
    BASE_ASSERT(p->first_logits >= 0 && i >= 0 && i < p->n_logits && p->first_logits + i < e->steps->max_logits);
    return e->steps->logits + (size_t)(p->first_logits + i) * (size_t)e->model->net.hp.n_outputs;
}

/* The next token of the answer to compute. Its slot was allocated with the job. */
static void push_token(rp_job *c, int32_t token) {
    BASE_ASSERT(c->n_tokens < c->cap_tokens);
    c->positions[c->n_tokens] = job_answer_position(c, c->n_tokens);
    c->tokens[c->n_tokens++] = token;
    c->seq.n++;
    prompt_lookup_accept(&c->prompt_lookup, token);
}

static void settle_prefill(rp_engine *e, segment_prefill *j, const step_part *p) {
    rp_error err = p->err;
    rp_job *asker = j->asker;
    int rc = p->rc;
    if (segment_prefill_has_failed(j)) return; /* its rows are invalid: scheduler.c requeues it */
    if (!rc) {
        j->seq.done += p->n_rows;
        BASE_ASSERT(j->seq.done <= j->seq.n);
        sequence_settle(&j->seq, 0, sequence_position(&j->seq, j->seq.done - 1));
        if (asker) asker->figures.prefill_done += (uint64_t)p->n_rows;
        rc = segment_prefill_settle(j, p->n_rows, p->first_logits >= 0 ? logits_of(e, p, 0) : NULL, &err);
        if (!rc && j->seq.done == j->seq.n) rc = segment_prefill_finish(e, j, &err);
    }
    if (rc) segment_prefill_fail(e, j, &err);
    else if (asker && asker->request->options.on_progress)
        asker->request->options.on_progress(asker->request->options.user, asker->figures.prefill_done,
                                            BASE_MAX(asker->figures.prefill_total, asker->figures.prefill_done));
}

/* Samples a token from the part's i-th logits. *again: the feature for which their row has to be computed again first;
   NULL: none. */
static int steps_draw_one(rp_engine *e, rp_job *c, const step_part *p, int32_t i, int32_t *token,
                          const job_feature **again, rp_error *err) {
    const float *logits = logits_of(e, p, i);
    const bool first = !c->answer.first_us;
    if ((*again = job_features_intercept(c, logits))) return RP_OK;
    e->steps->reported_first |= first;
    int rc = answer_next(&c->answer, logits, token, err);
    if (!first || rc || c->n_resumed != 0) return rc;
    for (const job_observer *const *o = e->observers; *o; o++) /* the first logits of a prompt */
        if ((*o)->first_logits) (*o)->first_logits(c, logits);
    return RP_OK;
}

/* Samples tokens as long as drafts are accepted: the first logits are those after the first of `rows` rows. */
static int steps_draw(rp_engine *e, rp_job *c, const step_part *p, int32_t rows, rp_error *err) {
    int32_t right = 0, token = -1, n_drafts = rows - 1;
    const job_feature *again;
    BASE_ASSERT(n_drafts == 0 || n_drafts == c->drafts.n);
    int rc = steps_draw_one(e, c, p, 0, &token, &again, err);
    const int32_t first = token;
    while (!rc && !again && !c->answer.over && right < n_drafts && token == c->drafts.tokens[right]) {
        push_token(c, token);
        c->seq.done++;
        right++;
        rc = steps_draw_one(e, c, p, right, &token, &again, err);
    }
    c->seq.done -= again != NULL;
    if (n_drafts > 0) checkpoints_accept(c, 1 + right - (again != NULL));
    sequence_settle(&c->seq, n_drafts - right + (again != NULL),
                    c->positions[BASE_MAX(c->prefix.n_found + c->seq.done - 1, 0)]);
    if (rc) return rc;
    c->result->drafted_tokens += n_drafts;
    c->result->accepted_tokens += right;
    if (again) {
        drafts_drop(c); /* whether they go on right is not known */
        c->phase = JOB_RECOMPUTING;
        return again->again(c, err);
    }
    if (!c->answer.over) push_token(c, token);
    drafts_learn(c, right, first, token);
    return RP_OK;
}

/* Rows of the prompt were computed: features take what they want of them. What remains are the logits of its last row,
   if an answer follows. */
static int settle_prompt(const rp_engine *e, rp_job *c, step_part *p) {
    const bool last = c->seq.done == c->seq.n;
    const job_rows rows = {
        .first = c->prefix.n_found + c->seq.done - p->n_rows,
        .n = p->n_rows,
        .logits = p->first_logits >= 0 ? logits_of(e, p, 0) : NULL,
        .hidden = e->steps->hidden + (size_t)p->first_hidden * (size_t)e->model->net.hp.n_embd,
        .n_logits = p->n_logits,
        .n_hidden = p->n_hidden,
    };
    const int rc = p->n_rows > 0 ? job_features_settle(c, &rows, &p->err) : RP_OK;
    if (last && c->phase == JOB_PREFILL) c->phase = JOB_DECODE;
    p->first_logits = last && !c->answer.over && p->n_logits > 0 ? p->first_logits + p->n_logits - 1 : -1;
    return rc;
}

static step_outcome settle_request(rp_engine *e, rp_job *c, step_part *p) {
    const bool decodes = c->phase == JOB_DECODE;
    if (job_has_failed(c)) return STEP_REQUEUE; /* detected in the step: rows are invalid */
    if (!p->rc) {
        const int32_t n_drafts = decodes ? p->n_rows - 1 : 0, before = c->prompt_lookup.n;
        c->seq.done += p->n_rows - n_drafts;
        BASE_ASSERT(c->seq.done <= c->seq.n);
        if (!decodes) p->rc = settle_prompt(e, c, p);
        if (!p->rc && p->first_logits >= 0) p->rc = steps_draw(e, c, p, 1 + n_drafts, &p->err);
        else if (c->phase != JOB_RECOMPUTING) sequence_settle(&c->seq, 0, sequence_position(&c->seq, c->seq.done - 1));
        const int32_t n_new = c->prompt_lookup.n - before;
        if (!p->rc && decodes && c->phase == JOB_DECODE && n_new > 0 && n_new <= p->n_hidden && drafts_read_hidden(c))
            drafts_see(c, e->steps->hidden + (size_t)p->first_hidden * (size_t)e->model->net.hp.n_embd, n_new);
        if (!p->rc) checkpoints_settle(c);
        if (!p->rc && c->seq.keeps_windows) prefix_give(c, false);
        const bool goes_on = c->phase == JOB_DECODE && !c->answer.over;
        if (!p->rc && !decodes && goes_on) p->rc = job_features_end_prompt(c, &p->err);
        if (!p->rc && goes_on) p->rc = job_features_go_on(c, &p->err);
    }
    if (p->rc) return STEP_FAILED;
    return c->phase == JOB_DECODE && c->answer.over ? STEP_ENDED : STEP_CONTINUES;
}

static void step_settle(const step *s, int step_rc, const rp_error *err) {
    rp_engine *e = s->e;
    for (int32_t i = 0; i < s->n_parts; i++) {
        step_part *p = &e->steps->parts[i];
        BASE_ASSERT(p->rc != RP_ERR_BUDGET); /* invariant 6: an admitted job never lacks a block */
        if (step_rc && !p->rc) {
            p->rc = step_rc;
            p->err = *err;
        }
        if (p->job && p->job->kind == JOB_BACKGROUND)
            background_settle(e, p->job, p->n_rows, p->rc, p->first_logits >= 0 ? logits_of(e, p, 0) : NULL);
        else if (p->job) p->outcome = settle_request(e, p->job, p);
        else settle_prefill(e, p->prefill, p);
    }
}

/* ---- reports ---- */

static rp_step_kind step_part_kind_of(const step_part *p) {
    if (!p->job) return p->prefill->in_background ? RP_STEP_BACKGROUND : RP_STEP_MODULE;
    if (p->job->kind == JOB_BACKGROUND) return RP_STEP_BACKGROUND;
    return p->job->phase == JOB_DECODE ? RP_STEP_DECODE : RP_STEP_PREFILL;
}

/* Called before the parts' jobs change. */
static void step_report(const step *s) {
    rp_engine *e = s->e;
    if (base_trace_enabled(BASE_COMPONENT_ENGINE)) {
        int32_t rows[RP_N_STEP_KINDS] = {0};
        for (int32_t i = 0; i < s->n_parts; i++)
            rows[step_part_kind_of(&e->steps->parts[i])] += e->steps->parts[i].n_rows;
        BASE_TRACE(ENGINE, "step %llu: rows: %d decode, %d prompt prefill, %d module prefill, %d background, in %d "
                           "pieces; %d requests running, %d waiting; %llu us, %.0f predicted",
                   (unsigned long long)e->steps->n, rows[RP_STEP_DECODE], rows[RP_STEP_PREFILL], rows[RP_STEP_MODULE],
                   rows[RP_STEP_BACKGROUND], s->n_parts, e->n_running, e->n_waiting,
                   (unsigned long long)(s->end_us - s->start_us), s->predicted_us);
    }
    if (!e->steps->on_step) return;
    for (int32_t i = 0; i < s->n_parts; i++) {
        const step_part *p = &e->steps->parts[i];
        const rp_job *c = asker_of(p);
        e->steps->reported[i] =
            (rp_step_part){c ? c->request->number : 0, step_part_kind_of(p), p->n_rows, (int32_t)sequence_of(p)->slots};
    }
    rp_step reported = {.struct_size = (uint32_t)sizeof(reported),
                        .number = e->steps->n,
                        .start_us = s->start_us,
                        .end_us = s->end_us,
                        .predicted_us = (uint64_t)s->predicted_us,
                        .parts = e->steps->reported,
                        .n_parts = s->n_parts,
                        .n_running = e->n_running,
                        .n_waiting = e->n_waiting,
                        .kv_bytes = kv_pool_get_stats(e->pool).used_bytes};
    e->steps->on_step(e->steps->step_user, &reported);
}

/* ---- a step ---- */

static int run_probe(step *s, rp_error *err) {
    rp_engine *e = s->e;
    rp_job *c = s->probed;
    bool waits = !sequence_is_ready(&c->seq.context);
    uint64_t start = base_clock_us();
    int rc = job_features_probe(c, s->n_probed, err);
    uint64_t us = base_clock_us() - start;
    BASE_TRACE(ENGINE, "job %llu: compared %d module tokens, %d are left; %llu us, %.0f predicted",
               (unsigned long long)c->request->number, s->n_probed, job_features_probe_left(c), (unsigned long long)us,
               cost_model_predict(&e->steps->probe_cost, &s->probe_load));
    if (!rc && !waits) cost_model_learn(&e->steps->probe_cost, &s->probe_load, (double)us);
    return rc;
}

bool steps_run(rp_engine *e, step_result *out) {
    step s = {.e = e};
    rp_error err = {0};
    int rc = RP_OK;
    *out = (step_result){0};
    add_answers(&s);
    add_pieces(&s);
    add_background(&s);
    if (s.n_parts == 0 && !s.probed) return false;
    if (s.n_rows > 0) {
        rp_step_kind last = step_part_kind_of(&e->steps->parts[s.n_parts - 1]); /* chunks are last */
        const model_step rows = {
            .rows = e->steps->rows,
            .n_rows = s.n_rows,
            .contexts = e->steps->contexts,
            .n_contexts = s.n_parts,
            .states = e->steps->states,
            .tentative = e->steps->tentative,
        };
        bool waits = false; /* for the disk */
        for (int32_t i = 0; i < s.n_parts && !waits; i++) waits = !sequence_is_ready(e->steps->contexts[i]);
        BASE_ASSERT(last != RP_STEP_BACKGROUND || s.n_parts == 1); /* invariant 8 */
        BASE_ASSERT(s.n_rows <= e->steps->max_rows && s.n_parts <= e->steps->max_parts &&
                    s.n_logits <= e->steps->max_logits);
        e->steps->n++;
        if (last == RP_STEP_DECODE) e->steps->last_plain = e->steps->n;
        else if (last == RP_STEP_BACKGROUND) e->steps->last_plain++; /* a step without answers does not count */
        s.predicted_us = cost_model_predict(e->cost, &s.load);
        s.start_us = base_clock_us();
        rc = model_forward_submit(e->forward, &rows, &err);
        if (!rc) rc = model_forward_collect(e->forward, e->steps->logits, &err);
        if (!rc && s.n_hidden > 0) rc = model_forward_read_hidden(e->forward, &rows, e->steps->hidden, &err);
        s.end_us = base_clock_us();
        const double device_us = host_tier_measured_us(e, (double)(s.end_us - s.start_us));
        const double us = drafts_measured_us(e, s.predicted_us, device_us);
        if (!rc && !waits) cost_model_learn(e->cost, &s.load, us);
        step_report(&s);
        /* rows of answers are first */
        engine_count_gap(e, s.end_us, step_part_kind_of(&e->steps->parts[0]) == RP_STEP_DECODE);
    }
    step_settle(&s, rc, &err);
    if (e->steps->reported_first) sched_yield();
    e->steps->reported_first = false;
    out->n_parts = s.n_parts;
    if (s.probed && (out->rc = run_probe(&s, &out->err))) out->probed = s.probed;
    return true;
}
