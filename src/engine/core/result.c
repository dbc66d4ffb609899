/* SPDX-License-Identifier: Apache-2.0 */
/* result.c: a job's result: the source of every token of the prompt, the divergence from the cached prefix, the times.
 * */
#include "engine/core/result.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/core/cost_model.h"
#include "engine/core/drafts.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/host_tier.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/context.h"
#include "kv/kv_plan.h"
#include "kv/span.h"
#include "model/model.h"
#include "model/reduction.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/document.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "store/span_store.h"
#include "store/index/span_tree.h"
#include "reprise_test.h"

#define AROUND_BYTES ((size_t)1 << 16) /* of RP_MISMATCH_TOKENS tokens */

#define WARNING_BYTES 320

/* The strings of a result. */
typedef struct result_owner {
    char *paths; /* [items of the plan][JOB_PATH_BYTES] */
    char *stop;
    char *warnings; /* [RP_MAX_WARNINGS][WARNING_BYTES]; NULL: none */
} result_owner;

/* ---- the plan ---- */

/* Tokens of an item before a position: for a view, without its holes. */
static int32_t count_before(const pml_plan *p, const pml_item *item, int32_t pos) {
    int32_t n = BASE_MAX(BASE_MIN(pos - item->pos, item->n_tokens), 0), counted = n;
    if (!item->is_view) return n;
    const pml_segment *s = &p->layout->segments[item->segment];
    for (int32_t i = 0; i < s->n_holes; i++) {
        const pml_hole *h = &pml_segment_holes(p->layout, s)[i];
        counted -= BASE_MAX(BASE_MIN(n, h->offset + h->len) - BASE_MIN(n, h->offset), 0);
    }
    for (int32_t i = 0; i < item->n_again; i++) counted -= pml_item_again(p, item)[i] < n;
    BASE_ASSERT(counted >= 0);
    return counted;
}

/* The miss reason of a run. */
static const char *reason_of_run(const rp_job *c, const pml_item *item, int32_t first, int32_t n) {
    static const char *const by_end[] = {
        [SPAN_END_ALL] = "last",
        [SPAN_END_NEW] = "new",
        [SPAN_END_DROPPED] = "evicted",
        [SPAN_END_WINDOW] = "window",
        [SPAN_END_MEMORY] = "memory",
        [SPAN_END_STATES] = "checkpoint",
    };
    const char *of_feature = job_features_miss_reason(c);
    if (item->why && !c->exact) return item->why;
    if (c->request->options.reuse == RP_REUSE_OFF || c->request->experiment.no_prefix) return "off";
    if (item->holder > 0 && !c->exact) return "uncached"; /* fresh anonymous text is an ordinary prefix */
    if (of_feature) return of_feature;
    if (first + n == c->plan->end && n == 1 && c->prefix.n_found == c->n_prompt - 1) return "last";
    if (c->prefix.known_elsewhere && c->wants.adapter && c->switch_at == 0) return "adapter";
    return c->prefix.known_elsewhere ? "scope" : by_end[c->prefix.found_end];
}

/* Tokens of runs up to a position, from one source. */
typedef struct stretch {
    int32_t end;
    bool is_view, exact;
    int32_t shift;
    const char *reason;    /* NULL: a run's own */
    const span_step *step; /* view: its last step */
} stretch;

typedef struct stretch_list {
    stretch *items;
    size_t n;
} stretch_list;

/* Before a run of moved KV: hits, computed and recomputed tokens, the run; after the last one two. */
static size_t most_stretches(const rp_job *c) { return 4 * (size_t)c->moved.n_runs + 2; }

/* The step of the job's path that has a token. */
static const span_step *step_of(const rp_job *c, int32_t token) {
    size_t i = 0;
    /* it still holds its path */
    BASE_ASSERT(token < c->prefix.n_found && c->prefix.n_found_steps <= c->prefix.path.n_steps);
    for (int32_t n = 0; i + 1 < c->prefix.n_found_steps && (n += c->prefix.path.steps[i].n_tokens) <= token;) i++;
    while (!c->prefix.path.steps[i].span) i--; /* a turn */
    return &c->prefix.path.steps[i];
}

static void push_stretch(stretch_list *list, int32_t begin, const stretch *s) {
    if (s->end > begin) list->items[list->n++] = *s;
}

/* The tokens before a run, or after the last one (NULL), from index `first` of the job's tokens and position `begin`
   on: hits and computed ones. */
static void list_between(const rp_job *c, const moved_run *r, int32_t first, int32_t begin, bool exact,
                         stretch_list *list) {
    const int32_t end = r ? r->pos : INT32_MAX, n = r ? r->at : c->n_prompt, hits = BASE_MIN(c->prefix.n_found, n);
    int32_t hits_end = begin;
    if (hits > first) {
        hits_end = hits == n ? BASE_MIN(end, c->plan->end) : c->positions[hits];
        push_stretch(list, begin,
                     &(stretch){.end = hits_end, .is_view = true, .exact = exact, .step = step_of(c, hits - 1)});
    }
    const int32_t link = r ? BASE_MAX(hits_end, end - r->n_recomputed) : end;
    push_stretch(list, hits_end, &(stretch){.end = link, .exact = exact});
    push_stretch(list, link, &(stretch){.end = end, .exact = exact, .reason = c->automatic.n > 0 ? "link" : "shifted"});
}

/* In position order. RP_ERR_MEMORY. */
static int list_stretches(const rp_job *c, stretch_list *list, rp_error *err) {
    int32_t first = 0, begin = INT32_MIN;
    list->items = base_calloc(most_stretches(c), sizeof(*list->items));
    if (!list->items) return base_fail_memory(err, most_stretches(c) * sizeof(*list->items), "a result");
    for (int32_t i = 0; i < c->moved.n_runs; i++) {
        const moved_run *r = &c->moved.runs[i];
        list_between(c, r, first, begin, i == 0, list);
        push_stretch(
            list, r->pos,
            &(stretch){
                .end = r->pos + r->n, .is_view = true, .shift = r->shift, .step = &r->path.steps[r->path.n_steps - 1]});
        first = r->at;
        begin = r->pos + r->n;
    }
    list_between(c, NULL, first, begin, c->moved.n_runs == 0, list);
    BASE_ASSERT(list->n <= most_stretches(c));
    return RP_OK;
}

static const char *tier_of(const rp_job *c, span_found from) {
    if (from == SPAN_FOUND_POOL) return "pool";
    if (from == SPAN_FOUND_DISK) return "disk";
    return from == SPAN_FOUND_MEMORY && host_tier_is_apart(c->engine) ? "device" : "ram";
}

static void add_stretch(rp_job *c, const pml_item *item, const char *path, const stretch *s, int32_t pos, int32_t n) {
    rp_result *r = c->result;
    rp_plan_item *out = &r->plan[r->n_plan];
    BASE_ASSERT(n >= 0 && s->is_view == (s->step != NULL));
    if (n == 0) return;
    r->n_plan++;
    *out = (rp_plan_item){
        .kept = 1,
        .kept_by = "",
        .full_reason = "",
        .is_view = s->is_view,
        .exact = s->exact && ((item->exact && item->has_format) || c->exact),
        .module = path,
        .n_tokens = n,
        .position = pos,
        .shift = s->shift,
        .tier = s->is_view ? tier_of(c, s->step->from) : "",
    };
    out->reason = s->is_view ? "" : s->reason ? s->reason
                                              : reason_of_run(c, item, pos, n);
    if (!s->is_view && (item->why || (c->exact && item->is_view))) r->quality.recomputed_tokens += n;
    if (!s->is_view) return;
    base_key_hex(kv_span_key(s->step->span), out->key, 16);
    r->cached_tokens += n;
}

/* A run, or a module if scopes are ignored: hits and computed tokens. */
static void describe_run(rp_job *c, const pml_item *item, const char *path, const stretch_list *stretches) {
    static const stretch computed = {.end = INT32_MAX};
    const bool late = item->why && item->why == c->wants.late_reason; /* none of them is in the prefix cache */
    const stretch *list = late ? &computed : stretches->items;
    const size_t n = late ? 1 : stretches->n;
    int32_t done = 0, pos = item->pos;
    for (size_t i = 0; i < n; i++) {
        int32_t until = count_before(c->plan, item, list[i].end);
        add_stretch(c, item, path, &list[i], pos, until - done);
        done = until;
        pos = BASE_MAX(pos, BASE_MIN(list[i].end, item->pos + item->n_tokens));
    }
    BASE_ASSERT(done == item->n_counted); /* each token has a source */
}

/* The share that is asked for; of auto, the one that its spans have. */
static float kept_share(const pml_segment *s, int32_t n_own, const segment_need *need) {
    if (s->keep != REDUCTION_AUTO) return (float)s->keep / REDUCTION_ALL;
    BASE_ASSERT(need->n_spans > 0 && n_own > 0);
    const kv_shape *shape = kv_span_shape(need->spans[0]);
    const int32_t n_of_layer = kv_shape_heads(shape), n_heads = shape->n_layers * n_of_layer;
    int64_t kept = 0;
    for (int32_t i = 0; i < need->n_spans * n_heads; i++)
        kept += kv_span_slots(need->spans[i / n_heads], i % n_heads / n_of_layer, i % n_of_layer);
    return (float)kept / (float)((int64_t)n_heads * n_own);
}

/* ---- which slots reduced modules keep ---- */

/* Numbers of a reduced view: its positions from the first own token to the last one, in steps. */
static int32_t count_kept_shares(const pml_plan *p, const pml_item *view, int32_t step) {
    pml_slots slots = pml_item_slots(p, view);
    const int32_t first = pml_item_first_position(p, view) - view->pos;
    int32_t last = first;
    for (int32_t slot; pml_slots_next(&slots, &slot);) last = slot;
    BASE_ASSERT(step > 0 && last >= first);
    return (last - first) / step + 1;
}

/* Allocates the numbers of all reduced views, with the least step that makes about as many as asked for. */
static int open_kept_shares(rp_job *c, rp_error *err) {
    rp_result *r = c->result;
    const pml_plan *p = c->plan;
    const int64_t most = c->request->options.n_kept_shares;
    int64_t n_positions = 0, n = 0;
    for (size_t i = 0; i < p->n_items && most > 0 && !c->exact; i++)
        if (p->items[i].reduced) n_positions += count_kept_shares(p, &p->items[i], 1);
    if (n_positions == 0) return RP_OK;
    r->kept_step = (int32_t)((n_positions + most - 1) / most);
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].reduced) n += count_kept_shares(p, &p->items[i], r->kept_step);
    r->kept_shares = base_calloc((size_t)n, sizeof(*r->kept_shares));
    return r->kept_shares ? RP_OK : base_fail_memory(err, (size_t)n * sizeof(*r->kept_shares), "a result");
}

/* Adds the slots that each step keeps, in all heads. begin: canonical position of the first step. */
static void count_kept_slots(const segment_need *need, int32_t begin, int32_t step, float *out, int32_t n) {
    for (int32_t i = 0; i < need->n_spans; i++) {
        const kv_span *span = need->spans[i];
        const kv_shape *shape = kv_span_shape(span);
        const int32_t n_heads = kv_shape_heads(shape);
        kv_span_wait(span, shape->n_layers);
        for (int32_t head = 0; head < shape->n_layers * n_heads && !kv_span_has_failed(span); head++) {
            const int32_t layer = head / n_heads, kv_head = head % n_heads;
            const int32_t *positions = kv_span_positions(span, layer, kv_head);
            for (int32_t k = 0; k < kv_span_slots(span, layer, kv_head); k++) {
                const int32_t at = (positions[k] - begin) / step;
                BASE_ASSERT(positions[k] >= begin && at < n);
                out[at] += 1;
            }
        }
    }
}

static void describe_kept_slots(rp_job *c, const pml_item *view, const segment_need *need, rp_plan_item *out) {
    rp_result *r = c->result;
    if (!view->reduced || !r->kept_shares) return;
    const kv_shape *shape = kv_span_shape(need->spans[0]);
    const int32_t step = r->kept_step, first = out->position - view->pos, n = count_kept_shares(c->plan, view, step);
    const float n_heads = (float)(shape->n_layers * kv_shape_heads(shape));
    float *shares = r->kept_shares + r->n_kept_shares;
    pml_slots slots = pml_item_slots(c->plan, view);
    count_kept_slots(need, out->position - view->shift, step, shares, n);
    int32_t slot = 0, at = 0, n_own = 0; /* tokens of step `at` */
    while (pml_slots_next(&slots, &slot)) {
        const int32_t next = (slot - first) / step;
        if (next != at) shares[at] /= (float)n_own * n_heads, n_own = 0;
        at = next;
        n_own++;
    }
    shares[at] /= (float)n_own * n_heads;
    out->first_kept_share = r->n_kept_shares;
    out->n_kept_shares = n;
    r->n_kept_shares += n;
}

static void describe_view(rp_job *c, const pml_item *item, const char *path, const segment_need *need) {
    const pml_layout *l = c->plan->layout;
    const pml_segment *s = &l->segments[item->segment];
    rp_plan_item *out = &c->result->plan[c->result->n_plan++];
    *out = (rp_plan_item){
        .is_view = true,
        .exact = item->exact && item->has_format,
        .module = path,
        .n_tokens = item->n_counted,
        .position = pml_item_first_position(c->plan, item),
        .shift = item->shift,
        .tier = need->missed ? "computed" : tier_of(c, need->from),
        .reason = need->reason,
        .kept = item->reduced ? kept_share(s, item->n_counted, need) : 1,
        .kept_by = item->reduced ? reduction_method_name(l->formats.method) : "",
        .full_reason = item->full_reason ? item->full_reason : "",
    };
    const base_key key = item->reduced ? pml_reduced_key(s, 0) : pml_segment_keys(l, s)[s->n_spans - 1];
    base_key_hex(&key, out->key, 16);
    describe_kept_slots(c, item, need, out);
    if (!need->missed) c->result->cached_tokens += item->n_counted;
}

static int describe_plan(rp_job *c, rp_error *err) {
    rp_result *r = c->result;
    const pml_plan *p = c->plan;
    result_owner *owner = r->owner = base_calloc(1, sizeof(result_owner));
    if (!owner) return base_fail_memory(err, sizeof(*owner), "a result");
    stretch_list stretches = {0};
    r->plan = base_calloc(most_stretches(c) * p->n_items, sizeof(*r->plan));
    owner->paths = base_calloc(p->n_items, JOB_PATH_BYTES);
    if (!r->plan || !owner->paths) return base_fail_memory(err, p->n_items * JOB_PATH_BYTES, "a result");
    int rc = open_kept_shares(c, err);
    if (rc || (rc = list_stretches(c, &stretches, err))) return rc;
    int32_t n_needs = 0; /* one for each view, in their order */
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        char *path = owner->paths + i * JOB_PATH_BYTES;
        if (item->holder < 0) memcpy(path, "prompt", sizeof("prompt"));
        else pml_path(p->layout->schema, item->holder, path, JOB_PATH_BYTES);
        if (item->is_view && !c->exact) describe_view(c, item, path, &c->needs.items[n_needs++]);
        else describe_run(c, item, path, &stretches);
    }
    base_free(stretches.items);
    BASE_ASSERT(c->exact || n_needs == c->needs.n);
    BASE_ASSERT((size_t)r->n_plan <= most_stretches(c) * p->n_items);
    r->prompt_tokens = p->n_cached + p->n_fresh;
    r->fresh_tokens = r->prompt_tokens - r->cached_tokens;
    BASE_ASSERT(r->cached_tokens >= 0 && r->fresh_tokens >= 0);
    r->draft_reason = drafts_reason(c);
    for (int32_t i = 0; i < r->n_plan; i++) r->inexact_tokens += r->plan[i].exact ? 0 : r->plan[i].n_tokens;
    return RP_OK;
}

/* ---- hits, before there is a result ---- */

/* Tokens of a view, and the predicted time of computing them. */
static int32_t count_view(rp_job *c, const kv_view *v) {
    int32_t n = kv_mask_count(v->mask);
    BASE_ASSERT(n <= kv_span_tokens(v->span));
    c->figures.saved_us +=
        span_store_cost(c->engine->store, kv_span_key(v->span)) * (uint64_t)n / (uint64_t)kv_span_tokens(v->span);
    return n;
}

int32_t job_count_found(rp_job *c) {
    const kv_context *context = &c->seq.context;
    size_t v = 0;
    int32_t n = 0;
    c->figures.saved_us = 0;
    for (int32_t k = 0; k < c->needs.n; k++) { /* modules are first */
        const segment_need *need = &c->needs.items[k];
        for (int32_t i = 0; i < need->n_spans; i++, v++)
            if (!need->missed && !need->view.reduced) n += count_view(c, &context->views[v]);
        if (need->missed || !need->view.reduced) continue;
        /* the time of computing all tokens, which a request without reduced KV would take */
        const pml_segment *s = &c->plan->layout->segments[need->view.segment];
        const int32_t own = pml_segment_own_tokens(c->plan->layout, s);
        c->figures.saved_us += (uint64_t)cost_model_tokens_us(c->engine->cost, own, s->pos);
        n += own;
    }
    BASE_ASSERT(v <= context->n_views);
    while (v < context->n_views) n += count_view(c, &context->views[v++]);
    for (int32_t i = c->moved.n_added; i < c->moved.n_runs; i++) { /* runs whose views are added later */
        const moved_run *r = &c->moved.runs[i];
        c->figures.saved_us += (uint64_t)cost_model_tokens_us(c->engine->cost, r->n, r->pos);
        n += r->n;
    }
    return n - BASE_MAX(c->prefix.n_found - c->n_prompt, 0); /* resumed tokens are none of the prompt */
}

/* ---- the divergence ---- */

/* Text of n tokens; owned by the caller. NULL: no memory. */
static char *result_text_of(const rp_job *c, const int32_t *tokens, int32_t n) {
    base_buffer b = BASE_BUFFER(AROUND_BYTES);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *text = tokenizer_bytes(c->engine->model->tokenizer, tokens[i], true, &bytes);
        if (text && base_buffer_append(&b, text, bytes) == RP_ERR_MEMORY) {
            base_buffer_free(&b);
            return NULL;
        }
    }
    return b.data ? base_buffer_take(&b) : base_strdup("");
}

/* "user 2", or "". */
static void result_name_message(const pml_document *d, int32_t node, char *out, size_t bytes) {
    int32_t count = 0;
    out[0] = '\0';
    while (node > 0 && d->nodes[node].kind != PML_ROLE) node = d->nodes[node].parent;
    if (node <= 0) return;
    for (int32_t i = 0; i <= node; i++)
        count += d->nodes[i].kind == PML_ROLE && d->nodes[i].role == d->nodes[node].role;
    snprintf(out, bytes, "%s %d", rp_role_name((rp_role)d->nodes[node].role), count);
}

/* The same for a token of a conversation. */
static void name_turn(const pml_plan *p, size_t token, char *out, size_t bytes) {
    size_t at = 0;
    int count = 0;
    while (at < p->n_turns && p->turns[at].end <= token) at++;
    if (at == p->n_turns) return;
    for (size_t i = 0; i <= at; i++) count += p->turns[i].role == p->turns[at].role;
    snprintf(out, bytes, "%s %d", rp_role_name((rp_role)p->turns[at].role), count);
}

static int describe_mismatch(rp_job *c, rp_error *err) {
    rp_mismatch *d = &c->result->mismatch;
    int32_t at = c->prefix.n_found, before = BASE_MIN(at, RP_MISMATCH_TOKENS),
            found = BASE_MIN(c->n_prompt - at, RP_MISMATCH_TOKENS);
    bool any = c->prefix.n_known > 0 && found > 0; /* not in a resumed answer */
    *d = (rp_mismatch){.token = -1, .module = ""};
    if (any) {
        int32_t pos = c->positions[at];
        const pml_item *items = c->plan->items, *item = &items[0]; /* that of the token, after the views */
        for (size_t i = 0; i < c->plan->n_items; i++) {
            const bool has_pos = items[i].pos <= pos && pos < items[i].pos + items[i].n_tokens;
            if (has_pos && (c->exact || !items[i].is_view)) item = &items[i]; /* exact: there are no views */
        }
        const result_owner *owner = c->result->owner;
        *d = (rp_mismatch){.position = pos, .module = owner->paths + (size_t)(item - c->plan->items) * JOB_PATH_BYTES};
        if (c->request->document && item->holder < 0)
            result_name_message(c->request->document, item->node, d->message, sizeof(d->message));
        if (!c->request->document)
            name_turn(c->plan, (size_t)moved_kv_index(&c->moved, at), d->message, sizeof(d->message));
        for (int32_t i = 0; i < c->result->n_plan; i++) /* views before it count as well */
            if (c->result->plan[i].position < pos)
                d->token += BASE_MIN(c->result->plan[i].n_tokens, pos - c->result->plan[i].position);
    }
    d->before = result_text_of(c, c->tokens + at - before, any ? before : 0);
    d->prompt = result_text_of(c, c->tokens + at, any ? found : 0);
    d->cached = result_text_of(c, c->prefix.known, any ? c->prefix.n_known : 0);
    return d->before && d->prompt && d->cached ? RP_OK : base_fail_memory(err, AROUND_BYTES, "a result");
}

/* ---- times ---- */

static uint64_t result_between(uint64_t at, uint64_t least, uint64_t most) {
    return BASE_MAX(least, BASE_MIN(at, most));
}

/* Five points in time in their order, from arrival to first token. The four components of TTFT are the intervals
 * between them, so their sum is TTFT. A point after the first token belongs to a job that was requeued during its
 * answer. */
static void fill_timings(rp_job *c, const job_again *again) {
    rp_timings *t = &c->result->timings;
    uint64_t end = base_clock_us(), arrived = c->request->submitted_us,
             first = c->answer.first_us ? c->answer.first_us : end;
    uint64_t planned = result_between(arrived + c->request->planned_us, arrived, first),
             admitted = result_between(c->figures.admitted_us, planned, first);
    uint64_t composed = result_between(c->figures.composed_us, admitted, first),
             composing = result_between(composed - c->figures.compose_us, admitted, composed);
    double modules = (double)(composing - admitted) / 1e3, prompt = (double)(first - composed) / 1e3;
    bool missed = again->missed;
    for (int32_t i = 0; i < c->needs.n; i++) missed |= c->needs.items[i].missed;
    bool own = missed && c->request->options.reuse == RP_REUSE_OFF; /* not kept: its own */
    t->queue_ms = (double)(admitted - planned) / 1e3;
    t->module_prefill_ms = missed && !own ? modules : 0;
    t->plan_ms = (double)(planned - arrived + composed - composing) / 1e3 + (missed ? 0 : modules);
    t->prompt_prefill_ms = prompt + (own ? modules : 0);
    t->ttft_ms = (double)(first - arrived) / 1e3;
    t->decode_ms = (double)(end - first) / 1e3;
    t->saved_ms = (double)c->figures.saved_us / 1e3;
    const int32_t n_new = c->result->n_tokens - c->answer.n_resumed;
    if (n_new > 1 && end > first) t->decode_tokens_per_second = (n_new - 1) * 1e6 / (double)(end - first);
}

/* ---- quality ---- */

static void describe_quality(rp_job *c, const job_again *again) {
    rp_quality_report *q = &c->result->quality;
    const rp_quality reuse = {RP_QUALITY_REUSE, 0};
    bool computes_again = false;
    for (size_t i = 0; i < c->plan->n_items; i++) computes_again |= c->plan->items[i].why != NULL;
    q->asked = q->used = c->plan->asked;
    q->reason = "";
    if (c->plan->raised.mode != RP_QUALITY_AS_WRITTEN) q->used = c->plan->raised, q->reason = "audit";
    if (q->used.mode == RP_QUALITY_SCAFFOLD && c->exact) q->recomputed_tokens = 0;
    else if (q->used.mode == RP_QUALITY_SCAFFOLD) q->used = reuse, q->reason = "new";
    else if (q->used.mode != RP_QUALITY_REUSE && !c->exact && !computes_again && again->answer_token == 0)
        q->reason = again->why ? again->why : again->n_forgotten > 0 ? "window"
                                                                     : "plain",
        q->used = reuse;
    const int32_t n_first = q->recomputed_tokens - again->n_late, n_fresh = c->result->fresh_tokens - again->n_late;
    double share = n_first > 0 && n_fresh > 0 ? (double)n_first / n_fresh : 0;
    double probe_ms = (double)again->probe_us / 1e3,
           rest_ms = BASE_MAX(c->result->timings.prompt_prefill_ms - probe_ms, 0);
    q->probed_tokens = again->n_probed;
    q->focus_token = again->answer_token;
    q->ms = probe_ms + share * rest_ms + (double)again->late_us / 1e3;
}

/* ---- warnings ---- */

/* The next warning; the last slot counts those that do not fit. */
static char *next_warning(rp_result *r, int32_t left) {
    result_owner *owner = r->owner;
    BASE_ASSERT(left > 0 && r->n_warnings <= RP_MAX_WARNINGS);
    if (r->n_warnings == RP_MAX_WARNINGS) return NULL;
    char *line = owner->warnings + (size_t)r->n_warnings * WARNING_BYTES;
    r->warnings[r->n_warnings++] = line;
    if (r->n_warnings < RP_MAX_WARNINGS || left == 1) return line;
    snprintf(line, WARNING_BYTES, "%d more warnings omitted", (int)left);
    return NULL;
}

static void warn_of_missing(rp_job *c, int32_t n) {
    const pml_plan *p = c->plan;
    char path[JOB_PATH_BYTES];
    for (size_t i = 0; i < p->n_missing; i++) {
        char *line = next_warning(c->result, n - (int32_t)i);
        if (!line) return;
        const pml_document *schema = p->layout->schema;
        snprintf(line, WARNING_BYTES, "parameter '%.60s' of '%.160s' has no argument: it stays empty",
                 schema->nodes[p->missing[i].param].name, pml_path(schema, p->missing[i].holder, path, sizeof(path)));
    }
}

/* Are its modules text because of recurrent layers, and not because the request asked for that? */
static bool are_modules_text(const rp_job *c) {
    const pml_plan *p = c->plan;
    bool any = false;
    if (!p->layout || engine_reuses_modules(c->engine) || c->request->options.reuse == RP_REUSE_EXACT) return false;
    for (size_t i = 0; i < p->n_items && !any; i++) any = p->items[i].is_view && p->items[i].holder > 0;
    return any;
}

static int describe_warnings(rp_job *c, rp_error *err) {
    rp_result *r = c->result;
    result_owner *owner = r->owner;
    int64_t end = (int64_t)c->plan->end + r->n_tokens - c->n_dropped;
    int32_t trained = c->engine->model->net.hp.n_ctx_train;
    const bool is_text = are_modules_text(c);
    int32_t n_of_features = 0;
    while (job_features_warning(c, n_of_features)) n_of_features++;
    const int32_t n_first = (end > trained) + is_text + n_of_features;
    BASE_ASSERT(n_first < RP_MAX_WARNINGS); /* none of these is omitted */
    int32_t n = (int32_t)BASE_MIN(c->plan->n_missing, (size_t)INT32_MAX / 2) + n_first;
    if (n == 0) return RP_OK;
    r->warnings = base_calloc(RP_MAX_WARNINGS, sizeof(*r->warnings));
    owner->warnings = base_calloc(RP_MAX_WARNINGS, WARNING_BYTES);
    if (!r->warnings || !owner->warnings)
        return base_fail_memory(err, (size_t)RP_MAX_WARNINGS * WARNING_BYTES, "a result");
    if (end > trained)
        snprintf(next_warning(r, n), WARNING_BYTES, "prompt and answer take %lld positions, but the model was trained "
                                                    "for %d: output beyond them may be wrong",
                 (long long)end, trained);
    if (is_text)
        snprintf(next_warning(r, n), WARNING_BYTES,
                 "modules are text of this prompt, as '%s' has recurrent layers: module_states 'last'%s reuses them",
                 c->engine->model->arch->name, model_states_compose(&c->engine->model->net) ? " or 'composed'" : "");
    for (int32_t i = 0; i < n_of_features; i++)
        snprintf(next_warning(r, n), WARNING_BYTES, "%s", job_features_warning(c, i));
    warn_of_missing(c, n - n_first);
    return RP_OK;
}

int job_describe_plan(rp_job *c, rp_error *err) {
    if (c->result->owner) return RP_OK;
    const int rc = describe_plan(c, err);
    return rc ? rc : describe_mismatch(c, err);
}

int job_describe(rp_job *c, rp_error *err) {
    int rc = job_features_amend(c, err);
    if (!rc) rc = job_describe_plan(c, err);
    const char *stop = c->answer.stream.stop;
    if (!rc && stop) {
        result_owner *owner = c->result->owner;
        c->result->stop = owner->stop = base_strdup(stop);
        if (!owner->stop) rc = base_fail_memory(err, RP_MAX_STOP_BYTES, "a result");
    }
    if (!rc) rc = describe_warnings(c, err);
    c->result->bytes_copied = c->figures.copied_bytes;
    c->result->dropped_messages = c->request->dropped;
    c->result->kv_bytes = kv_context_bytes(&c->seq.context);
    job_features_describe(c);
    const rp_quality asked = c->plan->raised.mode != RP_QUALITY_AS_WRITTEN ? c->plan->raised : c->plan->asked;
    const job_again again = job_features_count_again(c, asked);
    fill_timings(c, &again);
    describe_quality(c, &again);
    return rc;
}

void rp_result_free(rp_result *r) {
    if (!r) return;
    result_owner *owner = r->owner;
    if (owner) {
        base_free(owner->paths);
        base_free(owner->stop);
        base_free(owner->warnings);
    }
    base_free(owner);
    base_free(r->text);
    base_free(r->tokens);
    base_free(r->logprobs);
    base_free(r->top_logprobs);
    base_free(r->plan);
    base_free(r->warnings);
    base_free(r->kept_shares);
    base_free(r->embedding);
    base_free(r->prompt_ids);
    base_free(r->prompt_logprobs);
    base_free(r->prompt_ranks);
    base_free(r->prompt_top_logprobs);
    base_free(r->mismatch.before);
    base_free(r->mismatch.prompt);
    base_free(r->mismatch.cached);
    base_free(r);
}
