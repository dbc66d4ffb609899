/* SPDX-License-Identifier: Apache-2.0 */
/* blend.c: see blend.h. */
#include "engine/features/blend.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/steps.h"
#include "engine/features/module_share.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/context.h"
#include "kv/span.h"
#include "model/adapter.h"
#include "backend/backend.h"
#include "model/forward.h"
#include "pml/layout.h"
#include "pml/plan.h"

/* The first tokens of modules are chosen first, up to this share of the chosen tokens
 * (docs/decisions/0016-blend-begins-with-beginnings.md). */
#define BEGINNINGS_PERCENT 75
#define BEGINNING_TOKENS 8

static bool may_choose_of(const pml_item *item) { return module_share_includes(item, RP_QUALITY_BLEND); }

int32_t blend_most(const rp_job *c) {
    if (c->exact || c->plan->asked.mode == RP_QUALITY_SCAFFOLD || model_probe_layer(c->engine->model) < 0) return 0;
    return module_share_most(c->plan, RP_QUALITY_BLEND);
}

/* ---- candidates ---- */

static void list_tokens_of(rp_job *c, size_t index, int32_t need) {
    pml_slots slots = pml_item_slots(c->plan, &c->plan->items[index]);
    for (int32_t slot; pml_slots_next(&slots, &slot);) c->blend.tokens[c->blend.n++] = (blend_token){index, need, slot};
}

int blend_open(rp_job *c, rp_error *err) {
    job_blend *b = &c->blend;
    const pml_plan *p = c->plan;
    size_t n = 0;
    for (size_t i = 0; i < p->n_items; i++) n += may_choose_of(&p->items[i]) ? (size_t)p->items[i].n_counted : 0;
    blend_release(c);
    b->tokens = base_alloc(n * sizeof(*b->tokens));
    b->deviations = base_alloc(n * sizeof(*b->deviations));
    if (!b->tokens || !b->deviations) return base_fail_memory(err, n * sizeof(*b->tokens), "tokens that may be recomputed");
    b->n_forgotten = 0;
    for (int32_t i = 0, need = -1; i < (int32_t)p->n_items; i++) {
        need += p->items[i].is_view;
        if (!may_choose_of(&p->items[i])) continue;
        if (segment_need_is_whole(&c->needs.items[need])) list_tokens_of(c, (size_t)i, need);
        else b->n_forgotten += p->items[i].n_counted;
    }
    return RP_OK;
}

void blend_release(rp_job *c) {
    base_free(c->blend.tokens);
    base_free(c->blend.deviations);
    c->blend.tokens = NULL;
    c->blend.deviations = NULL;
    c->blend.n = c->blend.done = 0;
}

/* ---- probing ---- */

static model_row blend_row_of(const rp_job *c, const blend_token *t) {
    const segment_need *need = &c->needs.items[t->need];
    const pml_layout *l = c->plan->layout;
    const pml_segment *s = &l->segments[need->view.segment];
    const int32_t pos = s->pos + t->slot + need->view.shift;
    return (model_row){
        .token = pml_segment_tokens(l, s)[t->slot],
        .pos = pos,
        .span = need->spans[t->slot / KV_SPAN_TOKENS],
        .slot = t->slot % KV_SPAN_TOKENS,
        .adapter = adapter_use_at(&c->adapter, pos),
        .adapter_scale = c->adapter.scale,
    };
}

int blend_probe(rp_engine *e, rp_job *c, int32_t n, rp_error *err) {
    job_blend *b = &c->blend;
    const kv_context *contexts[] = {&c->seq.context};
    BASE_ASSERT(n <= e->steps->max_rows && b->done + n <= b->n);
    for (int32_t i = 0; i < n; i++) e->steps->rows[i] = blend_row_of(c, &b->tokens[b->done + i]);
    int rc = model_forward_probe(e->forward, &(model_step){e->steps->rows, n, contexts, 1}, b->deviations + b->done, err);
    if (!rc) b->done += n;
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

static int32_t percent_of(const rp_job *c, int32_t i) { return c->plan->items[c->blend.tokens[i].item].quality.amount; }

/* By depth: the first token of all modules, then the second. */
static size_t list_beginnings(const rp_job *c, candidate *all) {
    const job_blend *b = &c->blend;
    size_t n = 0;
    for (int32_t i = 0, depth = 0; i < b->n; i++) {
        depth = i > 0 && b->tokens[i - 1].item == b->tokens[i].item ? depth + 1 : 0;
        if (depth < BEGINNING_TOKENS && b->deviations[i] > 0) all[n++] = (candidate){percent_of(c, i), (float)depth, i};
    }
    return n;
}

static size_t list_others(const rp_job *c, const bool *chosen, candidate *all) {
    const job_blend *b = &c->blend;
    size_t n = 0;
    for (int32_t i = 0; i < b->n; i++)
        if (!chosen[i] && b->deviations[i] > 0) all[n++] = (candidate){percent_of(c, i), -b->deviations[i], i};
    return n;
}

/* Marks the chosen tokens. A token without deviation has the same context here, and is skipped. */
static int mark_chosen(const rp_job *c, bool *chosen, rp_error *err) {
    int64_t rooms[MODULE_SHARE_PERCENT + 1] = {0}, of_beginnings[MODULE_SHARE_PERCENT + 1];
    size_t n = (size_t)c->blend.n;
    candidate *all = base_alloc(n * sizeof(*all));
    if (!all) return base_fail_memory(err, n * sizeof(*all), "tokens that may be recomputed");
    for (int32_t i = 0; i < c->blend.n; i++) rooms[percent_of(c, i)]++;
    for (int32_t percent = 0; percent <= MODULE_SHARE_PERCENT; percent++) {
        rooms[percent] = module_share_of(rooms[percent], percent);
        of_beginnings[percent] = rooms[percent] * BEGINNINGS_PERCENT / 100;
    }
    choose_first(all, list_beginnings(c, all), of_beginnings, chosen);
    for (int32_t i = 0; i < c->blend.n; i++) rooms[percent_of(c, i)] -= chosen[i];
    choose_first(all, list_others(c, chosen, all), rooms, chosen);
    base_free(all);
    return RP_OK;
}

/* Tokens [begin, end) of the list belong to one view. slots: buffer for their slots. */
static int choose_of_view(rp_job *c, int32_t begin, int32_t end, const bool *chosen, int32_t *slots, rp_error *err) {
    const blend_token *t = &c->blend.tokens[begin];
    int32_t n = 0;
    for (int32_t i = begin; i < end; i++)
        if (chosen[i]) slots[n++] = c->blend.tokens[i].slot;
    bool all = n == c->plan->items[t->item].n_counted;
    int rc = pml_plan_again(c->plan, t->item, slots, n, "blend", err);
    if (rc || !all) return rc;
    c->blend.missed |= c->needs.items[t->need].missed;
    segment_needs_remove(&c->needs, t->need);
    return RP_OK;
}

/* From the last view to the first: indices of earlier items and needs do not change. */
static int change_plan(rp_job *c, const bool *chosen, int32_t *slots, rp_error *err) {
    const blend_token *tokens = c->blend.tokens;
    int rc = RP_OK;
    for (int32_t end = c->blend.n, begin; end > 0 && !rc; end = begin) {
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
}

int blend_choose(rp_job *c, rp_error *err) {
    job_blend *b = &c->blend;
    size_t n = (size_t)BASE_MAX(b->n, 1);
    bool *chosen = base_calloc(n, sizeof(*chosen));
    int32_t *slots = base_alloc(n * sizeof(*slots)), n_fresh = c->plan->n_fresh;
    int rc = chosen && slots ? mark_chosen(c, chosen, err) : base_fail_memory(err, n * sizeof(*slots), "tokens to recompute");
    if (!rc) rc = change_plan(c, chosen, slots, err);
    base_free(chosen);
    base_free(slots);
    if (rc) return rc;
    renew_views(c);
    job_list_runs(c);
    b->n_probed = b->n;
    b->chosen = true;
    BASE_TRACE(ENGINE, "job %llu: recomputes %d of %d module tokens", (unsigned long long)c->request->number, c->plan->n_fresh - n_fresh, b->n);
    blend_release(c);
    return RP_OK;
}
