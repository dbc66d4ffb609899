/* SPDX-License-Identifier: Apache-2.0 */
/* focus.c: see focus.h. */
#include "engine/features/focus.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/sequence.h"
#include "engine/features/module_share.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/context.h"
#include "kv/span.h"
#include "backend/attention_observer.h"
#include "backend/backend.h"
#include "model/model.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "sampling/sampler.h"

/* pml_item.why of the recomputed tokens. */
static const char focus_reason[] = "focus";

typedef enum focus_stage {
    FOCUS_OFF, /* no token may be chosen */
    FOCUS_WATCHES,
    FOCUS_LOOKS,
    FOCUS_RECOMPUTES,
    FOCUS_OVER,
} focus_stage;

/* A token of a module. */
typedef struct focus_token {
    size_t item;   /* of the plan, a view; */
    int32_t need;  /* of the job's needs */
    int32_t slot;  /* of the segment */
    size_t view;   /* of the context */
    double weight; /* of its slot, summed over all heads of all layers */
} focus_token;

/* The job's part of a sequence's fields, while others are computed. */
typedef struct focus_own {
    const int32_t *tokens, *positions;
    int32_t n, done;
} focus_own;

typedef struct job_focus {
    focus_stage stage;
    int32_t n_forgotten;   /* tokens whose context left their module's windows: never chosen */
    int32_t answer_token;  /* the answer's token, from 1, whose prediction was uncertain; 0: none was */
    bool missed;           /* a module that the result does not list, all of it being recomputed, was prefilled for the
                              job */
    uint64_t start_us, us; /* us: from the uncertain logits to the new ones */
    attention_observer *observer;
    focus_token *chosen; /* [n_chosen], by rising position; a plan's items as they were before they are described */
    int32_t n_chosen;
    int32_t *tokens, *positions; /* [n_chosen + 1]: chosen tokens, and the row's */
    focus_own own;
} job_focus;

static job_focus *focus_of(const rp_job *c) { return job_feature_state(c, &focus_feature); }

/* ---- the plan ---- */

/* Maximum number of tokens that a planned job chooses; 0: no module has this quality. */
static void focus_count(rp_job *c) {
    const bool none = c->exact || c->plan->asked.mode == RP_QUALITY_SCAFFOLD ||
                      c->engine->is_recurrent; /* no states for tokens that are computed out of their order */
    c->wants.n_late = none ? 0 : module_share_most(c->plan, RP_QUALITY_FOCUS);
}

static int focus_open(rp_job *c, rp_error *err) {
    const char *other = c->wants.most_answer > 0 ? "context_shift" : c->wants.exclusive ? "kv_keep"
                                                                                        : NULL;
    if (c->wants.n_late == 0) return RP_OK;
    const int rc = engine_check_backend(c->engine, BACKEND_STUDIES, "quality 'focus'", err);
    if (rc) return rc;
    /* an answer over reduced KV, or beyond the context, and the tokens that are recomputed would replace one another's
       views */
    if (other) return base_fail(err, RP_ERR_CONFLICT, "%s contradicts quality 'focus': give one of them", other);
    /* cached prefixes may lack KV that a token inside them would attend to through a window */
    if (kv_shape_has_windows(&c->engine->states->shape)) c->wants.unshared = true;
    c->wants.late_reason = focus_reason;
    return job_feature_add(c, &focus_feature)
               ? RP_OK
               : base_fail_memory(err, sizeof(job_focus), "tokens that may be recomputed");
}

/* ---- candidates ---- */

/* Lists the tokens that may be chosen, in the order of the plan; out NULL: counts them only. */
static int32_t list_candidates(const rp_job *c, focus_token *out) {
    job_focus *f = focus_of(c);
    const pml_plan *p = c->plan;
    int32_t n = 0, need = -1;
    size_t view = 0;
    f->n_forgotten = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        if (!item->is_view) continue;
        if (need >= 0) view += (size_t)c->needs.items[need].n_spans;
        need++;
        BASE_ASSERT(need < c->needs.n); /* one for each view */
        if (!module_share_includes(item, RP_QUALITY_FOCUS)) continue;
        if (!segment_need_is_whole(&c->needs.items[need])) {
            f->n_forgotten += item->n_counted;
            continue;
        }
        pml_slots slots = pml_item_slots(p, item);
        for (int32_t slot; pml_slots_next(&slots, &slot); n++)
            if (out)
                out[n] = (focus_token){
                    .item = i, .need = need, .slot = slot, .view = view + (size_t)(slot / KV_SPAN_TOKENS)};
    }
    return n;
}

/* Watches, if tokens may be chosen. */
static int focus_compose(rp_job *c, BASE_UNUSED rp_error *err) {
    if (list_candidates(c, NULL) > 0) focus_of(c)->stage = FOCUS_WATCHES;
    return RP_OK;
}

/* ---- watching ---- */

/* Are these logits of a watched job uncertain? */
static bool focus_is_due(const rp_job *c, const float *logits) {
    return focus_of(c)->stage == FOCUS_WATCHES &&
           logprobs_entropy(logits, c->engine->model->net.hp.n_vocab) > FOCUS_ENTROPY;
}

/* They are: their row is looked at next. */
static int focus_begin(rp_job *c, rp_error *err) {
    job_focus *f = focus_of(c);
    const rp_model *m = c->engine->model;
    BASE_ASSERT(f->stage == FOCUS_WATCHES && c->seq.n - c->seq.done == 1);
    f->start_us = base_clock_us();
    f->answer_token = c->result->n_tokens + 1;
    f->stage = FOCUS_LOOKS;
    c->wants.no_logits = true;
    size_t n_views = 0; /* of modules: the first ones of the context, in their order (segment_needs_compose) */
    for (int32_t i = 0; i < c->needs.n; i++) n_views += (size_t)c->needs.items[i].n_spans;
    return attention_observer_new(&f->observer, m->n_kv_layers, m->net.hp.n_kv_heads, ATTENTION_TOTAL,
                                  (int64_t)m->net.hp.n_layers * m->net.hp.n_heads, 0, n_views, err);
}

/* In this stage, the sequence has one row. */
static void focus_row(rp_job *c, BASE_UNUSED int32_t token, model_row *row) {
    const job_focus *f = focus_of(c);
    BASE_ASSERT((f->stage == FOCUS_LOOKS) == (f->observer != NULL));
    if (f->stage == FOCUS_LOOKS) row->observer = f->observer;
}

/* ---- choosing ---- */

static int32_t focus_percent_of(const rp_job *c, const focus_token *t) {
    return c->plan->items[t->item].quality.amount;
}

/* More weight first; equal ones in the order of the plan. */
static int compare_weights(const void *a, const void *b) {
    const focus_token *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return x->slot < y->slot ? -1 : 1;
}

static int compare_items(const void *a, const void *b) {
    const focus_token *x = a, *y = b;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return x->slot < y->slot ? -1 : 1;
}

/* Moves the chosen ones of n tokens to the front. A token without any weight has no effect, and is skipped. */
static int32_t choose_tokens(const rp_job *c, focus_token *all, int32_t n) {
    int64_t rooms[MODULE_SHARE_PERCENT + 1] = {0};
    int32_t n_chosen = 0;
    for (int32_t i = 0; i < n; i++) rooms[focus_percent_of(c, &all[i])]++;
    for (int32_t percent = 0; percent <= MODULE_SHARE_PERCENT; percent++)
        rooms[percent] = module_share_of(rooms[percent], percent);
    for (int32_t i = 0; i < n; i++)
        all[i].weight =
            attention_observer_weight(focus_of(c)->observer, 0, 0, all[i].view, all[i].slot % KV_SPAN_TOKENS);
    qsort(all, (size_t)n, sizeof(*all), compare_weights);
    for (int32_t i = 0; i < n; i++) {
        int64_t *room = &rooms[focus_percent_of(c, &all[i])];
        if (*room == 0 || !(all[i].weight > 0)) continue;
        --*room;
        all[n_chosen++] = all[i];
    }
    qsort(all, (size_t)n_chosen, sizeof(*all), compare_items);
    return n_chosen;
}

/* The tokens that are computed now: the chosen ones, and the row's. */
static int list_rows(rp_job *c, rp_error *err) {
    job_focus *f = focus_of(c);
    const pml_layout *l = c->plan->layout;
    size_t bytes = ((size_t)f->n_chosen + 1) * sizeof(int32_t);
    f->tokens = base_alloc(bytes);
    f->positions = base_alloc(bytes);
    if (!f->tokens || !f->positions) return base_fail_memory(err, bytes, "tokens to recompute");
    for (int32_t i = 0; i < f->n_chosen; i++) {
        const focus_token *t = &f->chosen[i];
        const pml_item *item = &c->plan->items[t->item];
        f->tokens[i] = pml_segment_tokens(l, &l->segments[item->segment])[t->slot];
        f->positions[i] = item->pos + t->slot;
        BASE_ASSERT(i == 0 || f->positions[i] > f->positions[i - 1]); /* items and slots rise with positions */
    }
    f->tokens[f->n_chosen] = c->seq.tokens[c->seq.done];
    f->positions[f->n_chosen] = sequence_position(&c->seq, c->seq.done);
    return RP_OK;
}

/* The context without the KV of the chosen tokens; tokens appended from now on are the job's alone. */
static void focus_change_context(rp_job *c, const job_focus *f) {
    kv_context *context = &c->seq.context;
    prefix_give(c, true);
    c->prefix.shares = false;
    kv_context_close(context);
    context->scatters = true;
    for (int32_t i = 0; i < f->n_chosen; i++) {
        const focus_token *t = &f->chosen[i];
        const int32_t slot = t->slot % KV_SPAN_TOKENS;
        BASE_ASSERT(t->view < context->n_views && !kv_span_is_reduced(context->views[t->view].span));
        kv_mask_clear(context->views[t->view].mask, slot, slot + 1);
    }
    c->seq.slots -= f->n_chosen;
}

static void focus_begin_rows(rp_job *c) {
    job_focus *f = focus_of(c);
    BASE_ASSERT(f->stage == FOCUS_LOOKS && c->seq.n - c->seq.done == 1);
    f->own = (focus_own){c->seq.tokens, c->seq.positions, c->seq.n, c->seq.done};
    c->seq.tokens = f->tokens;
    c->seq.positions = f->positions;
    c->seq.n = f->n_chosen + 1;
    c->seq.done = 0;
    f->stage = FOCUS_RECOMPUTES;
    c->wants.no_logits = false;
}

static int focus_choose(rp_job *c, rp_error *err) {
    job_focus *f = focus_of(c);
    const int32_t n = list_candidates(c, NULL);
    f->chosen = base_alloc((size_t)n * sizeof(*f->chosen));
    if (!f->chosen) return base_fail_memory(err, (size_t)n * sizeof(*f->chosen), "tokens that may be recomputed");
    list_candidates(c, f->chosen);
    f->n_chosen = choose_tokens(c, f->chosen, n);
    BASE_ASSERT(f->n_chosen <= c->wants.n_late); /* invariant 6 */
    attention_observer_free(f->observer);
    f->observer = NULL;
    BASE_TRACE(ENGINE, "job %llu: token %d of the answer is uncertain: recomputes %d of %d module tokens",
               (unsigned long long)c->request->number, f->answer_token, f->n_chosen, n);
    const int rc = list_rows(c, err);
    if (rc) return rc;
    focus_change_context(c, f);
    focus_begin_rows(c);
    return RP_OK;
}

/* ---- its rows ---- */

static void focus_end_rows(rp_job *c) {
    job_focus *f = focus_of(c);
    BASE_ASSERT(f->stage == FOCUS_RECOMPUTES && c->seq.tokens == f->tokens);
    c->seq.tokens = f->own.tokens;
    c->seq.positions = f->own.positions;
    c->seq.n = f->own.n;
    c->seq.done = f->own.done + 1;
    f->us = base_clock_us() - f->start_us;
    f->stage = FOCUS_OVER;
    c->phase = JOB_DECODE;
}

/* Takes the next stage, if these were the last rows. After the stage OVER, the step's last logits are the new ones. */
static int focus_settle(rp_job *c, BASE_UNUSED const job_rows *rows, rp_error *err) {
    if (c->phase != JOB_RECOMPUTING || c->seq.done < c->seq.n) return RP_OK;
    if (focus_of(c)->stage != FOCUS_LOOKS) {
        focus_end_rows(c);
        return RP_OK;
    }
    c->seq.done--;
    sequence_settle(&c->seq, 1, sequence_position(&c->seq, c->seq.done));
    return focus_choose(c, err);
}

/* ---- the result ---- */

/* Chosen tokens [begin, end) are of one item. slots: buffer. */
static int describe_item(rp_job *c, job_focus *f, int32_t begin, int32_t end, int32_t *slots, rp_error *err) {
    const focus_token *t = &f->chosen[begin];
    const int32_t n = end - begin;
    BASE_ASSERT(n > 0 && f->chosen[end - 1].item == t->item && f->chosen[end - 1].need == t->need);
    for (int32_t i = 0; i < n; i++) slots[i] = t[i].slot;
    const bool all = n == c->plan->items[t->item].n_counted;
    int rc = pml_plan_again(c->plan, t->item, slots, n, focus_reason, err);
    if (rc || !all) return rc;
    f->missed |= c->needs.items[t->need].missed;
    segment_needs_remove(&c->needs, t->need);
    return RP_OK;
}

/* From the last item to the first: indices of earlier items and needs do not change. */
static int focus_amend(rp_job *c, rp_error *err) {
    job_focus *f = focus_of(c);
    int32_t *slots;
    int rc = RP_OK;
    if (f->n_chosen == 0) return RP_OK;
    if (!(slots = base_alloc((size_t)f->n_chosen * sizeof(*slots))))
        return base_fail_memory(err, (size_t)f->n_chosen * sizeof(*slots), "a result");
    for (int32_t end = f->n_chosen, begin; end > 0 && !rc; end = begin) {
        for (begin = end - 1; begin > 0 && f->chosen[begin - 1].item == f->chosen[begin].item; begin--) {}
        rc = describe_item(c, f, begin, end, slots, err);
    }
    base_free(slots);
    return rc;
}

static void focus_count_again(const rp_job *c, rp_quality asked, job_again *out) {
    if (asked.mode == RP_QUALITY_FOCUS && c->engine->is_recurrent) out->why = "model";
    const job_focus *f = focus_of(c);
    if (!f) return;
    if (f->stage != FOCUS_OFF) out->why = "certain";
    out->n_late += f->n_chosen;
    out->n_forgotten += f->n_forgotten;
    out->answer_token = f->answer_token;
    out->late_us += f->us;
    out->missed |= f->missed;
}

/* The job watches again from its first token on. */
static void focus_release(rp_job *c) {
    job_focus *f = focus_of(c);
    attention_observer_free(f->observer);
    base_free(f->chosen);
    base_free(f->tokens);
    base_free(f->positions);
    *f = (job_focus){0};
    c->wants.no_logits = false;
}

const job_feature focus_feature = {
    .name = "quality focus",
    .state_bytes = sizeof(job_focus),
    .count = focus_count,
    .open = focus_open,
    .compose = focus_compose,
    .row = focus_row,
    .settle = focus_settle,
    .intercept = focus_is_due,
    .again = focus_begin,
    .amend = focus_amend,
    .count_again = focus_count_again,
    .release = focus_release,
};
