/* SPDX-License-Identifier: Apache-2.0 */
/* reductions.c: see reductions.h. */
#include "engine/background/reductions.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/log.h"
#include "engine/background/audit.h"
#include "engine/background/background.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/job_tokens.h"
#include "engine/core/observer.h"
#include "engine/core/schemas.h"
#include "engine/reuse/reduced_modules.h"
#include "engine/reuse/segment_prefills.h"
#include "engine/reuse/segment_reduction.h"
#include "kv/block_pool.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "store/span_store.h"

/* ---- plans ---- */

/* Why a view is not of reduced KV, although its module has keep; NULL: it is, or the module has none. */
static const char *full_reason(rp_job *c, const pml_item *item) {
    const pml_layout *l = c->plan->layout;
    const pml_segment *s = item->is_view ? &l->segments[item->segment] : NULL;
    if (!s || !pml_segment_names_keep(l, s)) return NULL;
    if (s->keep == 0) return l->formats.falls_back ? "f16" : s->joint_of >= 0 ? "scaffold"
                                                                              : "short";
    if (c->wants.full_reason) return c->wants.full_reason;
    if (audit_ignores_keep(c)) return "audit";
    if (item->quality.mode != RP_QUALITY_REUSE && item->quality.mode != RP_QUALITY_SCAFFOLD) return "quality";
    if (item->n_again > 0 || item->n_tokens < s->n_tokens) return "last";
    if (reduced_modules_has(c->engine, s)) return NULL;
    return segment_reduction_fits(c->engine, s) ? "new" : "context";
}

/* Nor is exact what attends to reduced KV. Returns whether any view is of reduced KV. */
static bool mark_reduced(rp_job *c) {
    const pml_plan *p = c->plan;
    bool any = false;
    for (size_t i = 0; i < p->n_items; i++) {
        pml_item *item = &p->items[i];
        item->full_reason = full_reason(c, item);
        item->reduced = item->is_view && !item->full_reason && p->layout->segments[item->segment].keep > 0;
        any |= item->reduced;
        item->exact &= !any;
    }
    return any;
}

#define REDUCED_ANSWER 64 /* tokens of an answer that must fit besides */

/* A planned prompt that does not fit into the budget with all of its reduced KV, if nothing is cached, has views of
 * full KV: it must be possible to compute it again. Sets the counts of tokens, which are listed later. */
void reductions_plan(rp_job *c) {
    const pml_plan *p = c->plan;
    const rp_engine *e = c->engine;
    size_t n_exact = 0; /* none after the first one that is not */
    if (!p->layout || c->exact) return;
    while (n_exact < p->n_items && p->items[n_exact].exact) n_exact++;
    if (!mark_reduced(c)) return;
    job_features_count(c);
    c->n_prompt = p->n_fresh;
    c->n_runs = (int32_t)p->n_items; /* at most */
    const int32_t n = c->n_prompt + BASE_MIN(BASE_MAX(c->request->options.max_tokens, 0), REDUCED_ANSWER);
    const int64_t blocks = job_count_blocks(c, n, true);
    if (blocks <= (int64_t)(kv_pool_get_stats(e->pool).budget_bytes / kv_pool_block_bytes(e->pool))) return;
    for (size_t i = 0; i < p->n_items; i++) {
        pml_item *item = &p->items[i];
        if (item->reduced) item->full_reason = "memory";
        item->reduced = false;
        item->exact = i < n_exact;
    }
}

/* ---- tasks ---- */

/* Has the store the segment's KV, and is its reduced KV to be computed? */
static bool is_wanted(rp_engine *e, const pml_layout *l, const pml_segment *s) {
    if (s->keep == 0 || !segment_reduction_fits(e, s) || reduced_modules_has(e, s)) return false;
    for (int32_t i = 0; i < s->n_spans; i++)
        if (!span_store_has(e->store, &pml_segment_keys(l, s)[i])) return false;
    return true;
}

/* A background_advance_fn. */
static background_outcome reductions_advance(rp_engine *e, rp_job *c) {
    rp_schema *schema = c->request->schema;
    const pml_layout *l = schema->layout;
    BASE_ASSERT(c->needs.n_missing == 0 || c->needs.rc);
    if (c->needs.n > 0) c->next_segment++;
    segment_needs_release(e, &c->needs);
    for (; c->next_segment < l->n_segments; c->next_segment++) {
        const pml_segment *s = &l->segments[c->next_segment];
        const segment_view view = {.segment = c->next_segment, .n_tokens = s->n_tokens, .reduced = true};
        rp_error err = {0};
        if (!is_wanted(e, l, s)) continue;
        int rc = segment_needs_reserve(&c->needs, 1, &err);
        if (!rc) rc = segment_needs_add(e, &c->needs, schema, &view, c, true, &err);
        if (!rc && span_store_free_blocks(e->store) >= 0) return BACKGROUND_NEEDS;
        segment_needs_release(e, &c->needs);
        if (!rc && span_store_is_busy(e->store)) return BACKGROUND_WAITS;
        BASE_TRACE(ENGINE, "a module of %d tokens is not reduced: %s", s->n_tokens,
                   rc ? err.message : "the KV budget cannot hold its prefill");
    }
    return BACKGROUND_ENDED;
}

static void reductions_ended_task(rp_engine *e, void *user, int rc, const background_result *result) {
    reductions *r = e->reductions;
    const int before = r->n_pending;
    (void)rc, (void)result;
    for (int i = 0; i < r->n_pending; i++)
        if (r->pending[i] == user) r->pending[i--] = r->pending[--r->n_pending];
    BASE_ASSERT(r->n_pending == before - 1); /* a schema has one task */
}

static void submit_task(rp_engine *e, rp_schema *schema) {
    reductions *r = e->reductions;
    for (int i = 0; i < r->n_pending; i++)
        if (r->pending[i] == schema) return;
    background_task task = {
        .salt = schema->salt, .format = schema->layout->formats.text, .schema = schema, .advance = reductions_advance};
    task.done = reductions_ended_task;
    task.user = schema;
    if (r->n_pending < BACKGROUND_MAX_TASKS && background_submit(e, &task) == RP_OK)
        r->pending[r->n_pending++] = schema;
}

static void reductions_ended(rp_job *c, int rc) {
    rp_engine *e = c->engine;
    rp_schema *schema = c->request->schema;
    if (rc || !schema || c->request->options.reuse != RP_REUSE_ON) return;
    for (int32_t i = 0; i < schema->layout->n_segments; i++) {
        if (!is_wanted(e, schema->layout, &schema->layout->segments[i])) continue;
        if (!audit_needs_full(e, schema)) submit_task(e, schema);
        return;
    }
}

const job_observer reductions_observer = {.ended = reductions_ended};
