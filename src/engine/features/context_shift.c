/* SPDX-License-Identifier: Apache-2.0 */
/* context_shift.c: see context_shift.h. */
#include "engine/features/context_shift.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/sequence.h"
#include "engine/features/copied_spans.h"
#include "engine/features/sequence_reduction.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/prefix.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "kv/kv_format.h"
#include "kv/kv_layer.h"
#include "kv/kv_plan.h"
#include "kv/slot_selection.h"
#include "kv/span.h"
#include "model/chat_format.h"
#include "model/model.h"
#include "model/reduction.h"
#include "pml/plan.h"
#include "store/index/span_tree.h"
#include "reprise_test.h"

/* ---- the request ---- */

/* Of a request whose answer may be longer than the context. */
typedef struct job_shift {
    int32_t kept;        /* positions of the first tokens that stay, [0, kept) after the plan's first one */
    size_t n_kept_views; /* of the context, once it was shifted */
    int32_t n;           /* shifts so far */
} job_shift;

static job_shift *shift_of(const rp_job *c) { return job_feature_state(c, &context_shift_feature); }

static int32_t piece_of(const rp_job *c) { return c->engine->n_ctx / CONTEXT_SHIFT_PIECES; }

static int32_t first_position(const rp_job *c) { return c->request->experiment.first_position; }

/* Encoded KV is kept as it is, with blocks that a window may lack. */
static bool can_keep(const rp_job *c, int32_t kept) {
    const pml_plan *p = c->plan;
    if (!kv_shape_has_windows(kv_pool_shape(c->engine->pool)) || c->exact) return true;
    for (size_t i = 0; i < p->n_items && p->items[i].pos < first_position(c) + kept; i++)
        if (p->items[i].is_view && kv_format_is_encoded(p->layout->segments[p->items[i].segment].format)) return false;
    return true;
}

static int context_shift_plan(rp_job *c, rp_error *err) {
    const rp_engine *e = c->engine;
    int32_t n_system = 0; /* tokens of leading system messages */
    for (size_t i = 0; i < c->plan->n_turns && c->plan->turns[i].role == CHAT_SYSTEM; i++)
        n_system = (int32_t)c->plan->turns[i].end;
    const int32_t most =
        c->request->experiment.forced ? c->request->experiment.n_forced : c->request->options.max_tokens;
    if (!c->request->options.context_shift || most - 1 <= e->n_ctx - c->plan->end) return RP_OK;
    const int32_t kept = n_system > REDUCTION_FIRST && n_system <= piece_of(c) ? n_system : REDUCTION_FIRST;
    if (!model_is_movable(e->model) || !model_capabilities(e->model).shifts)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "context_shift: KV of architecture '%s' cannot be moved to other positions",
                         e->model->arch->name);
    int rc = engine_check_reduces(e, "context_shift", err); /* what stays is copied as a reduced span */
    if (rc) return rc;
    if (!sequence_reduction_yield(c, "context_shift"))
        return base_fail(err, RP_ERR_CONFLICT, "context_shift contradicts kv_keep: give one of them");
    if (piece_of(c) <= REDUCTION_FIRST)
        return base_fail(err, RP_ERR_CONTEXT, "context_shift: a context of %d positions is too short: raise n_ctx",
                         e->n_ctx);
    if (!can_keep(c, kept))
        return base_fail(err, RP_ERR_CONFLICT,
                         "context_shift: this model has sliding windows, and the KV of the first tokens, which stay, "
                         "is in an encoded format: "
                         "give kv f16 or int8");
    job_shift *s = job_feature_add(c, &context_shift_feature);
    if (!s) return base_fail_memory(err, sizeof(*s), "a context shift");
    s->kept = kept;
    c->wants.full_reason = "context_shift";
    c->wants.most_answer = CONTEXT_SHIFT_MOST;
    c->wants.most_held =
        e->n_ctx + KV_SPAN_TOKENS; /* besides those that the context has, those of a span that is dropped in part */
    return RP_OK;
}

/* ---- memory ---- */

/* May the answer exceed the context? */
static bool context_shift_may(const rp_job *c) { return c->answer.most - 1 > c->engine->n_ctx - c->plan->end; }

static void context_shift_room(const rp_job *c, job_room *room) {
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    const job_shift *s = shift_of(c);
    if (!context_shift_may(c)) return;
    const int64_t n_spans =
        BASE_DIV_UP(s->kept, KV_SPAN_TOKENS) + 1 + (c->exact ? 0 : (int64_t)c->plan->n_items);
    room->runs += CONTEXT_SHIFT_PIECES + 2; /* a shift begins a span */
    room->blocks +=
        copied_spans_blocks(c, (s->kept / KV_BLOCK_SLOTS + n_spans) * shape->n_layers * kv_shape_heads(shape), n_spans);
}

/* ---- shifting ---- */

/* Slots of a view before a position of the context, as a mask. Returns their number. */
static int32_t mask_before(const kv_view *v, int32_t pos, uint64_t mask[KV_SPAN_BLOCKS]) {
    memcpy(mask, v->mask, sizeof(v->mask));
    for (int32_t slot = 0; slot < kv_span_tokens(v->span); slot++)
        if (kv_span_slot_position(v->span, slot) + v->shift >= pos)
            mask[slot / KV_BLOCK_SLOTS] &= ~(UINT64_C(1) << slot % KV_BLOCK_SLOTS);
    return kv_mask_count(mask);
}

/* All of them, but in layers with a window those that the row before the shift does not see: whether they are still
 * there depends on the cache. */
static void select_kept(const rp_job *c, const kv_view *v, const kv_source *from, kv_selection *out) {
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    for (int32_t layer = 0; layer < out->n_layers; layer++)
        for (int32_t i = 0; i < out->n_slots; i++) {
            const int32_t window = shape->layers[layer].window;
            const int32_t distance = c->engine->n_ctx - 1 - (kv_span_slot_position(v->span, from[i].slot) + v->shift);
            if (window > 0 && distance >= window) continue;
            for (int32_t head = 0; head < out->n_kv_heads; head++) kv_selection_add(out, layer, head, i);
        }
}

/* Adds n slots of a view, copied. */
static int copy_slots(rp_job *c, const kv_view *v, const uint64_t mask[KV_SPAN_BLOCKS], int32_t n, kv_context *to,
                      rp_error *err) {
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    kv_source from[KV_SPAN_TOKENS];
    kv_selection *all;
    kv_span *span;
    int32_t k = 0;
    for (int32_t slot = 0; slot < KV_SPAN_TOKENS; slot++)
        if (mask[slot / KV_BLOCK_SLOTS] >> slot % KV_BLOCK_SLOTS & 1) from[k++] = (kv_source){v->span, slot};
    BASE_ASSERT(k == n);
    int rc = kv_selection_new(&all, shape->n_layers, kv_shape_heads(shape), n, err);
    if (rc) return rc;
    select_kept(c, v, from, all);
    for (int32_t i = 0; i < kv_reduced_spans(all) && !rc; i++)
        if (!(rc = kv_span_collect(&span, from, all, i, err))) rc = copied_spans_add(c, to, span, v->shift, err);
    kv_selection_free(all);
    return rc;
}

/* The first tokens, which stay, as views of their own. */
static int keep_first(rp_job *c, kv_context *to, rp_error *err) {
    const kv_context *from = &c->seq.context;
    int rc = RP_OK;
    for (size_t i = 0; i < from->n_views && !rc; i++) {
        const kv_view *v = &from->views[i];
        uint64_t mask[KV_SPAN_BLOCKS];
        const int32_t n = mask_before(v, first_position(c) + shift_of(c)->kept, mask);
        if (n == 0) continue;
        BASE_ASSERT(!kv_span_is_reduced(v->span)); /* such a request uses full KV */
        rc = kv_format_is_encoded(kv_span_format(v->span)) ? kv_context_add(to, v->span, v->shift, mask, err)
                                                           : copy_slots(c, v, mask, n, to, err);
    }
    shift_of(c)->n_kept_views = to->n_views;
    return rc;
}

/* Adds the other views, without the slots before `end`, moved back by n positions. *freed: blocks of own spans that no
   view has any more. */
static int keep_others(rp_job *c, int32_t end, int32_t n, size_t first, kv_context *to, int64_t *freed, rp_error *err) {
    const kv_context *from = &c->seq.context;
    int rc = RP_OK;
    BASE_ASSERT(first <= from->n_views && n > 0);
    for (size_t i = first; i < from->n_views && !rc; i++) {
        const kv_view *v = &from->views[i];
        uint64_t before[KV_SPAN_BLOCKS], mask[KV_SPAN_BLOCKS];
        mask_before(v, end, before);
        for (int b = 0; b < KV_SPAN_BLOCKS; b++) mask[b] = v->mask[b] & ~before[b];
        if (kv_mask_count(mask) > 0) rc = kv_context_add(to, v->span, v->shift - n, mask, err);
        else if (kv_span_is_unshared(v->span))
            *freed += (int64_t)(kv_span_bytes(v->span) / kv_pool_block_bytes(c->engine->pool));
    }
    return rc;
}

/* The views of kept tokens, from the second shift on. */
static int keep_kept(const rp_job *c, kv_context *to, rp_error *err) {
    const kv_context *from = &c->seq.context;
    int rc = RP_OK;
    for (size_t i = 0; i < shift_of(c)->n_kept_views && !rc; i++) {
        const kv_view *v = &from->views[i];
        rc = kv_context_add(to, v->span, v->shift, kv_span_is_reduced(v->span) ? NULL : v->mask, err);
    }
    return rc;
}

static void replace_context(rp_job *c, const kv_context *to, int64_t freed) {
    segment_needs_drop_spans(&c->needs);
    span_path_release(&c->prefix.path);
    moved_kv_release_paths(&c->moved);
    kv_context_clear(&c->seq.context);
    c->seq.context = *to;
    c->seq.slots = kv_context_slots(to);
    sequence_reserve(&c->seq, c->seq.reserved + freed);
    c->engine->budget_epoch++; /* memory was freed */
}

/* If the last pushed token has no position left: shifts. The job shares nothing since its prompt is complete, and its
   plan is described. */
static int context_shift_apply(rp_job *c, rp_error *err) {
    job_shift *s = shift_of(c);
    if (c->positions[c->n_tokens - 1] < c->engine->n_ctx) return RP_OK;
    const int32_t n = piece_of(c), end = first_position(c) + s->kept + n;
    const size_t first = s->n > 0 ? s->n_kept_views : 0;
    int64_t freed = 0;
    kv_context to;
    BASE_ASSERT(!c->prefix.shares && c->seq.done == c->seq.n - 1);
    kv_context_close(&c->seq.context);
    kv_context_init(&to, c->engine->pool);
    to.format = c->format;
    to.scatters = c->seq.context.scatters;
    int rc = s->n > 0 ? keep_kept(c, &to, err) : keep_first(c, &to, err);
    if (!rc) rc = keep_others(c, end, n, first, &to, &freed, err);
    if (rc) {
        kv_context_clear(&to);
        return rc;
    }
    replace_context(c, &to, freed);
    s->n++;
    c->n_dropped += n;
    c->positions[c->n_tokens - 1] -= n;
    BASE_ASSERT(c->positions[c->n_tokens - 1] == job_answer_position(c, c->n_tokens - 1));
    BASE_ASSERT(c->positions[c->n_tokens - 1] < c->engine->n_ctx);
    BASE_TRACE(ENGINE, "job %llu: context shift %d: %d positions dropped after the first %d; %lld blocks free",
               (unsigned long long)c->request->number, s->n, n, s->kept, (long long)freed);
    return RP_OK;
}

static int context_shift_end_prompt(rp_job *c, rp_error *err) {
    return context_shift_may(c) ? prefix_leave(c, err) : RP_OK;
}

/* ---- results ---- */

static void context_shift_describe(rp_job *c) {
    const job_shift *s = shift_of(c);
    c->result->context_shifts = s ? s->n : 0;
}

static void context_shift_release(rp_job *c) {
    job_shift *s = shift_of(c);
    s->n = 0;
    s->n_kept_views = 0;
}

const job_feature context_shift_feature = {
    .name = "context_shift",
    .state_bytes = sizeof(job_shift),
    .plan = context_shift_plan,
    .room = context_shift_room,
    .end_prompt = context_shift_end_prompt,
    .goes_on = context_shift_apply,
    .describe = context_shift_describe,
    .release = context_shift_release,
};
