/* SPDX-License-Identifier: Apache-2.0 */
/* blend.c: see blend.h. */
#include "engine/features/blend.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/steps.h"
#include "engine/features/module_share.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/context.h"
#include "kv/span.h"
#include "model/adapter.h"
#include "backend/backend.h"
#include "model/forward.h"
#include "pml/layout.h"
#include "pml/plan.h"

/* The first tokens of modules are chosen first, up to this share of the chosen tokens
 * (docs/decisions/0016-blend-recomputes-module-starts.md). */
#define BEGINNINGS_PERCENT 75
#define BEGINNING_TOKENS 8

/* A candidate token. */
typedef struct blend_token {
    size_t item;  /* of the plan, a view; */
    int32_t need; /* of the job's needs */
    int32_t slot; /* of the segment */
} blend_token;

typedef struct job_blend {
    bool chosen;         /* the plan has the chosen tokens; a requeued job keeps them */
    bool missed;         /* a completely evicted module was prefilled for the job */
    int32_t n_forgotten; /* tokens whose context left their module's windows: never chosen */
    int32_t n_probed;
    uint64_t us;         /* spent on probing */
    blend_token *tokens; /* [n], with the deviations of the first `done` of them */
    float *deviations;
    int32_t n, done;
} job_blend;

static job_blend *blend_of(const rp_job *c) { return job_feature_state(c, &blend_feature); }

/* ---- the plan ---- */

/* Recurrent layers have no states for tokens that are computed out of their order. */
static bool can_probe(const rp_job *c) {
    return model_probe_layer(c->engine->model) >= 0 && !c->engine->is_recurrent;
}

static bool may_choose_of(const pml_item *item) { return module_share_includes(item, RP_QUALITY_BLEND); }

/* Maximum number of tokens that a planned job chooses; 0: no module has this quality. */
static void blend_count(rp_job *c) {
    const bool none = c->exact || c->plan->asked.mode == RP_QUALITY_SCAFFOLD || !can_probe(c);
    c->wants.n_extra = none ? 0 : module_share_most(c->plan, RP_QUALITY_BLEND);
    c->wants.scatters = c->wants.n_extra > 0;
}

static int blend_open(rp_job *c, rp_error *err) {
    if (c->wants.n_extra == 0) return RP_OK;
    const int rc = engine_check_backend(c->engine, BACKEND_STUDIES, "quality 'blend'", err);
    if (rc) return rc;
    c->wants.unshared = true; /* scattered spans are not kept */
    return job_feature_add(c, &blend_feature)
               ? RP_OK
               : base_fail_memory(err, sizeof(job_blend), "tokens that may be recomputed");
}

/* ---- candidates ---- */

static void blend_release(rp_job *c) {
    job_blend *b = blend_of(c);
    base_free(b->tokens);
    base_free(b->deviations);
    b->tokens = NULL;
    b->deviations = NULL;
    b->n = b->done = 0;
}

/* Lists the candidates, and begins to probe them. */
static int blend_compose(rp_job *c, rp_error *err) {
    job_blend *b = blend_of(c);
    const pml_plan *p = c->plan;
    size_t n = 0;
    if (b->chosen) return RP_OK;
    for (size_t i = 0; i < p->n_items; i++) n += may_choose_of(&p->items[i]) ? (size_t)p->items[i].n_counted : 0;
    blend_release(c);
    b->tokens = base_alloc(n * sizeof(*b->tokens));
    b->deviations = base_alloc(n * sizeof(*b->deviations));
    if (!b->tokens || !b->deviations)
        return base_fail_memory(err, n * sizeof(*b->tokens), "tokens that may be recomputed");
    b->n_forgotten = 0;
    for (int32_t i = 0, need = -1; i < (int32_t)p->n_items; i++) {
        need += p->items[i].is_view;
        if (!may_choose_of(&p->items[i])) continue;
        BASE_ASSERT(need < c->needs.n); /* one for each view */
        if (!segment_need_is_whole(&c->needs.items[need])) {
            b->n_forgotten += p->items[i].n_counted;
            continue;
        }
        pml_slots slots = pml_item_slots(p, &p->items[i]);
        for (int32_t slot; pml_slots_next(&slots, &slot);) b->tokens[b->n++] = (blend_token){(size_t)i, need, slot};
    }
    BASE_ASSERT((size_t)b->n + (size_t)b->n_forgotten == n);
    if (b->n > 0) c->phase = JOB_PROBING;
    return RP_OK;
}

/* ---- probing ---- */

static model_row blend_row_of(const rp_job *c, const blend_token *t) {
    const segment_need *need = &c->needs.items[t->need];
    const pml_layout *l = c->plan->layout;
    const pml_segment *s = &l->segments[need->view.segment];
    BASE_ASSERT(t->slot >= 0 && t->slot < need->view.n_tokens && t->slot / KV_SPAN_TOKENS < need->n_spans);
    const int32_t pos = s->pos + t->slot + need->view.shift;
    return (model_row){
        .token = pml_segment_tokens(l, s)[t->slot],
        .pos = pos,
        .span = need->spans[t->slot / KV_SPAN_TOKENS],
        .slot = t->slot % KV_SPAN_TOKENS,
        .adapter = c->wants.adapter ? adapter_use_at(c->wants.adapter, pos) : NULL,
        .adapter_scale = c->wants.adapter ? c->wants.adapter->scale : 0,
    };
}

static int32_t blend_left(const rp_job *c) { return blend_of(c)->n - blend_of(c)->done; }

static int blend_probe(rp_job *c, int32_t n, rp_error *err) {
    rp_engine *e = c->engine;
    job_blend *b = blend_of(c);
    const uint64_t start = base_clock_us();
    const kv_context *contexts[] = {&c->seq.context};
    BASE_ASSERT(n <= e->steps->max_rows && b->done + n <= b->n);
    for (int32_t i = 0; i < n; i++) e->steps->rows[i] = blend_row_of(c, &b->tokens[b->done + i]);
    int rc = model_forward_probe(
        e->forward, &(model_step){.rows = e->steps->rows, .n_rows = n, .contexts = contexts, .n_contexts = 1},
        b->deviations + b->done, err);
    if (!rc) b->done += n;
    b->us += base_clock_us() - start;
    return rc;
}

/* ---- choosing ---- */

/* Sorted by percentage, then ascending order, then index. */
typedef struct candidate {
    int32_t percent;
    float order;
    int32_t index;
} candidate;

static int compare_candidates(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->percent != y->percent) return x->percent < y->percent ? -1 : 1;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* rooms: how many more tokens may be chosen, by percentage. */
static void choose_first(candidate *all, size_t n, int64_t *rooms, bool *chosen) {
    qsort(all, n, sizeof(*all), compare_candidates);
    for (size_t i = 0; i < n; i++) {
        if (rooms[all[i].percent] == 0) continue;
        rooms[all[i].percent]--;
        chosen[all[i].index] = true;
    }
}

static int32_t percent_of(const rp_job *c, int32_t i) {
    return c->plan->items[blend_of(c)->tokens[i].item].quality.amount;
}

/* By depth: the first token of all modules, then the second. */
static size_t list_beginnings(const rp_job *c, candidate *all) {
    const job_blend *b = blend_of(c);
    size_t n = 0;
    for (int32_t i = 0, depth = 0; i < b->n; i++) {
        depth = i > 0 && b->tokens[i - 1].item == b->tokens[i].item ? depth + 1 : 0;
        if (depth < BEGINNING_TOKENS && b->deviations[i] > 0) all[n++] = (candidate){percent_of(c, i), (float)depth, i};
    }
    return n;
}

static size_t list_others(const rp_job *c, const bool *chosen, candidate *all) {
    const job_blend *b = blend_of(c);
    size_t n = 0;
    for (int32_t i = 0; i < b->n; i++)
        if (!chosen[i] && b->deviations[i] > 0) all[n++] = (candidate){percent_of(c, i), -b->deviations[i], i};
    return n;
}

/* Marks the chosen tokens. A token without deviation has the same context here, and is skipped. */
static int mark_chosen(const rp_job *c, bool *chosen, rp_error *err) {
    int64_t rooms[MODULE_SHARE_PERCENT + 1] = {0}, of_beginnings[MODULE_SHARE_PERCENT + 1];
    const int32_t n_tokens = blend_of(c)->n;
    size_t n = (size_t)n_tokens;
    candidate *all = base_alloc(n * sizeof(*all));
    if (!all) return base_fail_memory(err, n * sizeof(*all), "tokens that may be recomputed");
    for (int32_t i = 0; i < n_tokens; i++) rooms[percent_of(c, i)]++;
    for (int32_t percent = 0; percent <= MODULE_SHARE_PERCENT; percent++) {
        rooms[percent] = module_share_of(rooms[percent], percent);
        of_beginnings[percent] = rooms[percent] * BEGINNINGS_PERCENT / 100;
    }
    choose_first(all, list_beginnings(c, all), of_beginnings, chosen);
    for (int32_t i = 0; i < n_tokens; i++) rooms[percent_of(c, i)] -= chosen[i];
    choose_first(all, list_others(c, chosen, all), rooms, chosen);
    base_free(all);
    return RP_OK;
}

/* Tokens [begin, end) of the list belong to one view. slots: buffer for their slots. */
static int choose_of_view(rp_job *c, int32_t begin, int32_t end, const bool *chosen, int32_t *slots, rp_error *err) {
    job_blend *b = blend_of(c);
    const blend_token *t = &b->tokens[begin];
    int32_t n = 0;
    BASE_ASSERT(begin < end && b->tokens[end - 1].item == t->item && b->tokens[end - 1].need == t->need);
    for (int32_t i = begin; i < end; i++)
        if (chosen[i]) slots[n++] = b->tokens[i].slot;
    bool all = n == c->plan->items[t->item].n_counted;
    int rc = pml_plan_again(c->plan, t->item, slots, n, "blend", err);
    if (rc || !all) return rc;
    b->missed |= c->needs.items[t->need].missed;
    segment_needs_remove(&c->needs, t->need);
    return RP_OK;
}

/* From the last view to the first: indices of earlier items and needs do not change. */
static int change_plan(rp_job *c, const bool *chosen, int32_t *slots, rp_error *err) {
    const job_blend *b = blend_of(c);
    const blend_token *tokens = b->tokens;
    int rc = RP_OK;
    for (int32_t end = b->n, begin; end > 0 && !rc; end = begin) {
        for (begin = end - 1; begin > 0 && tokens[begin - 1].item == tokens[begin].item; begin--) {}
        rc = choose_of_view(c, begin, end, chosen, slots, err);
    }
    return rc;
}

/* The plan's array was reallocated. */
static void renew_views(rp_job *c) {
    const pml_plan *p = c->plan;
    segment_need *need = c->needs.items;
    for (size_t i = 0; i < p->n_items; i++) {
        if (!p->items[i].is_view) continue;
        need->view.again = pml_item_again(p, &p->items[i]);
        need->view.n_again = p->items[i].n_again;
        need++;
    }
    BASE_ASSERT(need == c->needs.items + c->needs.n); /* one for each view */
}

/* All deviations are computed: changes the plan, the job's tokens and its needs. */
static int blend_mark(rp_job *c, rp_error *err) {
    job_blend *b = blend_of(c);
    BASE_ASSERT(!b->chosen && b->done == b->n);
    size_t n = (size_t)BASE_MAX(b->n, 1);
    bool *chosen = base_calloc(n, sizeof(*chosen));
    int32_t *slots = base_alloc(n * sizeof(*slots)), n_fresh = c->plan->n_fresh;
    int rc = chosen && slots ? mark_chosen(c, chosen, err)
                             : base_fail_memory(err, n * sizeof(*slots), "tokens to recompute");
    if (!rc) rc = change_plan(c, chosen, slots, err);
    base_free(chosen);
    base_free(slots);
    if (rc) return rc;
    BASE_ASSERT(c->plan->n_fresh - n_fresh <= c->wants.n_extra); /* invariant 6 */
    renew_views(c);
    job_list_runs(c);
    b->n_probed = b->n;
    b->chosen = true;
    c->wants.n_extra = 0;
    BASE_TRACE(ENGINE, "job %llu: recomputes %d of %d module tokens", (unsigned long long)c->request->number,
               c->plan->n_fresh - n_fresh, b->n);
    blend_release(c);
    return RP_OK;
}

/* Composes again, without the KV of the chosen tokens. */
static int blend_choose(rp_job *c, rp_error *err) {
    kv_context *context = &c->seq.context;
    const uint64_t start = base_clock_us();
    int rc = blend_mark(c, err);
    kv_context_clear(context);
    context->scatters = true;
    if (!rc) rc = segment_needs_compose(&c->needs, c->plan->layout, context, err);
    if (!rc) rc = prefix_compose(c, err);
    blend_of(c)->us += base_clock_us() - start;
    return rc;
}

/* ---- results ---- */

/* No lookup is made for its tokens. */
static const char *blend_miss_reason(BASE_UNUSED const rp_job *c) { return "new"; }

static void blend_count_again(const rp_job *c, rp_quality asked, job_again *out) {
    const job_blend *b = blend_of(c);
    if (asked.mode == RP_QUALITY_BLEND && !can_probe(c)) out->why = "model";
    if (!b) return;
    out->n_probed += b->n_probed;
    out->n_forgotten += b->n_forgotten;
    out->probe_us += b->us;
    out->missed |= b->missed;
}

const job_feature blend_feature = {
    .name = "quality blend",
    .state_bytes = sizeof(job_blend),
    .count = blend_count,
    .open = blend_open,
    .compose = blend_compose,
    .probe_left = blend_left,
    .probe = blend_probe,
    .choose = blend_choose,
    .miss_reason = blend_miss_reason,
    .count_again = blend_count_again,
    .release = blend_release,
};
