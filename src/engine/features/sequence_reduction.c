/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_reduction.c: see sequence_reduction.h. */
#include "engine/features/sequence_reduction.h"

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
#include "engine/core/sequence.h"
#include "engine/features/copied_spans.h"
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
#include "backend/attention_observer.h"
#include "backend/backend.h"
#include "model/model.h"
#include "model/reduction.h"
#include "model/sequence_methods.h"
#include "backend/slot_bounds.h"
#include "pml/plan.h"
#include "store/record/record.h"
#include "store/index/span_tree.h"
#include "backend/slot_bounds.h"

#define DEFAULT_METHOD SEQUENCE_SNAPKV
#define EXTRA_RUNS 3 /* the own tokens, and moved ones between them (shifted_reuse.c) */

/* ---- the request ---- */

typedef struct job_reduction {
    bool asked;         /* by the request, or as the engine's default */
    bool is_default;    /* the request names neither kv_keep nor kv_method: the default applies where it can */
    const char *reason; /* why the default does not apply: as rp_kv_reduction.reason; NULL: it does. Static */
    sequence_method method;
    int32_t slots, permille;      /* one of them: slots to keep in the mean of all heads, or their share; the other is
                                     0 */
    attention_observer *observer; /* of a composed job whose method needs one; else NULL */
    int32_t n_rows;               /* observed rows: the last ones of the prompt */
    struct slot_bounds *bounds;   /* of a composed job whose answer's rows choose their slots, once its prompt is
                                     complete; else NULL */
    bool done;
    uint64_t bytes_before, bytes; /* KV of the context before and after */
    uint64_t us;                  /* time it took */
    double share;                 /* kept slots, of all heads */
} job_reduction;

static job_reduction *reduction_of(const rp_job *c) { return job_feature_state(c, &sequence_reduction_feature); }

/* "1024", "12.5%", "off". false: none of them. */
static bool read_keep(const char *keep, job_reduction *r) {
    char *end;
    r->slots = r->permille = 0;
    r->asked = strcmp(keep, "off") != 0;
    if (!r->asked) return true;
    if (keep[0] < '0' || keep[0] > '9') return false; /* a share of "auto" is for modules */
    if (strchr(keep, '%')) return reduction_share_parse(keep, &r->permille);
    const long n = strtol(keep, &end, 10);
    r->slots = n >= 1 && n <= KV_SELECTION_MAX_SLOTS ? (int32_t)n : 0;
    return *end == '\0' && r->slots > 0;
}

/* usual: what a request does not name; NULL: nothing. */
static int reduction_read(job_reduction *r, const job_reduction *usual, const char *keep, const char *method,
                          rp_error *err) {
    *r = usual ? *usual : (job_reduction){.method = DEFAULT_METHOD};
    r->is_default = r->asked && !keep && !method;
    if (keep && !read_keep(keep, r))
        return base_fail(err, RP_ERR_INVALID,
                         "kv_keep '%.32s': give a number of slots (1024), a share (12.5%%, to 100%%) or off", keep);
    if (method && !sequence_method_parse(method, &r->method))
        return base_fail(err, RP_ERR_INVALID, "kv_method '%.32s': give " SEQUENCE_METHOD_NAMES, method);
    if (method && !keep && !r->asked)
        return base_fail(err, RP_ERR_INVALID,
                         "kv_method '%.32s' without kv_keep: give the slots to keep, 1024 or 12.5%%", method);
    return RP_OK;
}

static int reduction_open_engine(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    job_reduction usual;
    int rc = reduction_read(&usual, NULL, o->kv_keep, o->kv_method, err);
    if (!rc && usual.asked) rc = engine_check_reduces(e, "kv_keep", err);
    if (rc || !(e->reduction = base_alloc(sizeof(usual))))
        return rc ? rc : base_fail_memory(err, sizeof(usual), "an engine");
    *e->reduction = usual;
    return RP_OK;
}

static void reduction_close_engine(rp_engine *e) { base_free(e->reduction); }

/* Whether it is asked for has changed. */
static void reduction_tell(rp_job *c) {
    const job_reduction *r = reduction_of(c);
    BASE_ASSERT(!r->asked || (r->slots > 0) != (r->permille > 0));
    c->wants.exclusive = r->asked;
    c->wants.n_observed = r->asked ? sequence_method_rows(r->method) : 0;
}

static int reduction_ask(rp_job *c, const rp_request *o, rp_error *err) {
    job_reduction r;
    int rc = reduction_read(&r, c->engine->reduction, o->kv_keep, o->kv_method, err);
    if (rc || !r.asked || o->pooling != RP_POOLING_OFF) return rc; /* an engine's default is for answers */
    if ((rc = engine_check_reduces(c->engine, "kv_keep", err))) return rc;
    job_reduction *own = job_feature_add(c, &sequence_reduction_feature);
    if (!own) return base_fail_memory(err, sizeof(*own), "a reduction");
    *own = r;
    reduction_tell(c);
    return RP_OK;
}

/* A default yields to reason, or, with NULL, applies again. Returns whether there is a default. */
static bool reduction_give_way(rp_job *c, const char *reason) {
    job_reduction *r = reduction_of(c);
    if (!r || !r->is_default) return false;
    r->asked = reason == NULL;
    r->reason = reason;
    reduction_tell(c);
    return true;
}

bool sequence_reduction_yield(rp_job *c, const char *reason) {
    const job_reduction *r = reduction_of(c);
    return !r || !r->asked || reduction_give_way(c, reason);
}

/* Focus and context shifts replace views for the answer, too. */
static void reduction_count(rp_job *c) { reduction_give_way(c, c->wants.n_late > 0 ? "focus" : c->wants.full_reason); }

/* A default neither refuses a request nor shortens its answer. */
static bool reduction_yields_memory(rp_job *c, bool yields) {
    return (!yields || reduction_of(c)->asked) && reduction_give_way(c, yields ? "memory" : NULL);
}

/* ---- before the prompt is complete ---- */

/* The last tokens of the own text, which stay. */
static int32_t kept_tokens(const rp_job *c) { return BASE_MIN(SEQUENCE_WINDOW, c->n_prompt); }

/* Slots to keep of n others, in the mean of all heads. */
static int32_t mean_of(const job_reduction *r, int32_t n) {
    if (r->slots > 0) return BASE_MIN(r->slots, n);
    return (int32_t)(((int64_t)n * r->permille + 999) / 1000);
}

/* Runs of views whose slots a reduced span may have together: an upper bound. */
static int32_t most_runs(const rp_job *c) {
    const pml_plan *p = c->plan;
    const pml_item *before = NULL;
    int32_t n = EXTRA_RUNS;
    for (size_t i = 0; i < p->n_items && !c->exact; i++) {
        const pml_item *item = &p->items[i];
        if (!item->is_view) continue;
        const rp_kv_format format = p->layout->segments[item->segment].format;
        n += !before || before->shift != item->shift || p->layout->segments[before->segment].format != format;
        before = item;
    }
    return n;
}

/* Blocks that the reduced KV takes at most, while the job holds its complete KV too. */
static int64_t reduction_blocks(const rp_job *c) {
    const job_reduction *r = reduction_of(c);
    const kv_pool *pool = c->engine->pool;
    const kv_shape *shape = kv_pool_shape(pool);
    const int64_t n_heads = (int64_t)shape->n_layers * kv_shape_heads(shape);
    if (!r->asked) return 0;
    const int32_t n = c->n_prompt + c->moved.n + (c->exact ? 0 : c->plan->n_cached), runs = most_runs(c);
    if (sequence_method_is_dynamic(r->method)) {
        /* bounds are not in blocks: so many stay reserved, and unused, beside them */
        const uint64_t block = kv_pool_block_bytes(pool);
        const int64_t of_bounds = (int64_t)((slot_bounds_bytes(shape, n, runs) + block - 1) / block);
        return of_bounds + kv_column_blocks(pool, c->format);
    }
    /* a head's last cell of a run may be partly filled */
    const int64_t n_cells = n_heads * (mean_of(r, n) + SEQUENCE_WINDOW) / KV_BLOCK_SLOTS + (runs + 1) * n_heads;
    const int64_t n_spans = n / KV_SPAN_TOKENS + runs;
    return copied_spans_blocks(c, n_cells, n_spans) +
           kv_column_blocks(pool, c->format); /* the answer begins a span of its own */
}

static void reduction_release(rp_job *c);

/* Spans of the own tokens begin where one is full, where positions are not consecutive, and after the first lookup of
   another job. */
static int reduction_compose(rp_job *c, rp_error *err) {
    job_reduction *r = reduction_of(c);
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    const model_hparams *hp = &c->engine->model->net.hp;
    const size_t n_views =
        c->seq.context.n_views + (size_t)(c->seq.n / KV_SPAN_TOKENS) + (size_t)c->n_runs + EXTRA_RUNS;
    reduction_release(c);
    r->n_rows = BASE_MIN(c->wants.n_observed, c->n_prompt); /* computed whatever is cached */
    if (r->n_rows == 0) return RP_OK;
    const int64_t most = (int64_t)r->n_rows * (hp->n_heads / hp->n_kv_heads) * hp->n_layers;
    return attention_observer_new(&r->observer, shape->n_layers, kv_shape_heads(shape), ATTENTION_SUM, most, 0, n_views,
                                  err);
}

static void reduction_row(rp_job *c, int32_t token, model_row *row) {
    const job_reduction *r = reduction_of(c);
    if (token >= c->n_prompt - r->n_rows && token < c->n_prompt) row->observer = r->observer;
    if (token >= c->n_prompt) row->bounds = r->bounds;
}

static void reduction_release(rp_job *c) {
    job_reduction *r = reduction_of(c);
    attention_observer_free(r->observer);
    slot_bounds_free(r->bounds);
    r->observer = NULL;
    r->bounds = NULL;
}

/* ---- the prompt is complete ---- */

/* The slots of a context that may be dropped, in its order, and by position. */
typedef struct listing {
    kv_source *sources;   /* [n] in the context's order */
    int32_t *ranks;       /* [n] of each source: its place among all by position */
    sequence_slot *slots; /* [n] by position */
    int32_t n;
} listing;

static bool stays_whole(const kv_view *v) {
    return kv_format_is_encoded(kv_span_format(v->span)) || kv_span_is_reduced(v->span);
}

static int compare_positions(const void *a, const void *b) {
    const sequence_slot *x = a, *y = b;
    return (x->pos > y->pos) - (x->pos < y->pos); /* all differ: invariant 4 of kv */
}

/* Sorted with the index in the context's order in place of the slot, then completed. */
static void sort_slots(listing *l) {
    qsort(l->slots, (size_t)l->n, sizeof(*l->slots), compare_positions);
    for (int32_t rank = 0; rank < l->n; rank++) {
        sequence_slot *s = &l->slots[rank];
        BASE_DCHECK(rank == 0 || l->slots[rank - 1].pos < s->pos); /* invariant 4 of kv */
        l->ranks[s->slot] = rank;
        s->slot = l->sources[s->slot].slot;
    }
}

static int listing_open(listing *l, const kv_context *context, rp_error *err) {
    int32_t n = 0;
    l->n = 0;
    for (size_t i = 0; i < context->n_views; i++)
        if (!stays_whole(&context->views[i])) l->n += kv_mask_count(context->views[i].mask);
    const size_t bytes = (size_t)l->n * (sizeof(*l->sources) + sizeof(*l->slots) + sizeof(*l->ranks));
    l->sources = base_alloc(BASE_MAX(bytes, 1));
    if (!l->sources) return base_fail_memory(err, bytes, "the slots of a prompt");
    l->slots = (sequence_slot *)(l->sources + l->n);
    l->ranks = (int32_t *)(l->slots + l->n);
    for (size_t i = 0; i < context->n_views; i++) {
        const kv_view *v = &context->views[i];
        for (int32_t slot = 0; slot < kv_span_tokens(v->span) && !stays_whole(v); slot++) {
            if (!(v->mask[slot / KV_BLOCK_SLOTS] >> (slot % KV_BLOCK_SLOTS) & 1)) continue;
            l->slots[n] = (sequence_slot){(int32_t)i, n, kv_span_slot_position(v->span, slot) + v->shift};
            l->sources[n++] = (kv_source){v->span, slot};
        }
    }
    BASE_ASSERT(n == l->n);
    sort_slots(l);
    return RP_OK;
}

/* A view's slots may share reduced spans with those before it, n_before in the context's order: one format, one shift,
   rising positions. */
static bool continues_run(const listing *l, int32_t n_before, const kv_view *before, const kv_view *v) {
    if (stays_whole(v) || before->shift != v->shift || kv_span_format(before->span) != kv_span_format(v->span))
        return false;
    return n_before == 0 || n_before == l->n || l->ranks[n_before - 1] < l->ranks[n_before];
}

/* End of the run that begins with view i, which does not stay whole, after `first` listed slots; *n: the slots of the
   run. */
static size_t end_of_run(const listing *l, const kv_context *context, size_t i, int32_t first, int32_t *n) {
    const kv_view *views = context->views;
    BASE_ASSERT(i < context->n_views && !stays_whole(&views[i]));
    *n = kv_mask_count(views[i++].mask);
    for (; i < context->n_views && continues_run(l, first + *n, &views[i - 1], &views[i]); i++)
        *n += kv_mask_count(views[i].mask);
    return i;
}

/* The part of the selection that n sources from `first` on have. */
static int select_run(kv_selection **out, const kv_selection *all, const listing *l, int32_t first, int32_t n,
                      rp_error *err) {
    BASE_ASSERT(first >= 0 && n > 0 && first + n <= l->n);
    int rc = kv_selection_new(out, all->n_layers, all->n_kv_heads, n, err);
    for (int32_t head = 0; head < all->n_layers * all->n_kv_heads && !rc; head++)
        for (int32_t i = 0; i < n; i++)
            if (kv_selection_has(all, head / all->n_kv_heads, head % all->n_kv_heads, l->ranks[first + i]))
                kv_selection_add(*out, head / all->n_kv_heads, head % all->n_kv_heads, i);
    return rc;
}

static int add_run(rp_job *c, kv_context *to, const kv_selection *all, const listing *l, int32_t first, int32_t n,
                   int32_t shift, rp_error *err) {
    kv_selection *own;
    kv_span *span;
    int rc = select_run(&own, all, l, first, n, err);
    if (rc) return rc;
    for (int32_t i = 0; i < kv_reduced_spans(own) && !rc; i++)
        if (!(rc = kv_span_collect(&span, l->sources + first, own, i, err)))
            rc = copied_spans_add(c, to, span, shift, err);
    kv_selection_free(own);
    return rc;
}

/* The context's views, in their order: reduced, or whole. */
static int compose_reduced(rp_job *c, kv_context *to, const kv_selection *all, const listing *l, rp_error *err) {
    const kv_view *views = c->seq.context.views;
    const size_t n_views = c->seq.context.n_views;
    int32_t first = 0;
    int rc = RP_OK;
    for (size_t i = 0, end; i < n_views && !rc; i = end) {
        int32_t n;
        if (stays_whole(&views[i])) {
            rc = kv_context_add(to, views[i].span, views[i].shift,
                                kv_span_is_reduced(views[i].span) ? NULL : views[i].mask, err);
            end = i + 1;
            continue;
        }
        end = end_of_run(l, &c->seq.context, i, first, &n);
        if (n > 0) rc = add_run(c, to, all, l, first, n, views[i].shift, err);
        first += n;
    }
    BASE_ASSERT(rc || first == l->n); /* each listed slot is in a run */
    return rc;
}

/* Replaces the context, and drops the other references to what it had. */
static void take_context(rp_job *c, kv_context *to) {
    kv_context_clear(&c->seq.context);
    c->seq.context = *to;
    segment_needs_drop_spans(&c->needs);
    span_path_release(&c->prefix.path);
    moved_kv_release_paths(&c->moved);
    reduction_release(c);
    sequence_reserve(&c->seq, sequence_blocks_in(c->engine->pool, c->format, BASE_MAX(c->answer.most - 1, 0), 1,
                                                 c->engine->chunk_tokens, false));
    c->engine->budget_epoch++; /* memory was freed */
}

static int reduce(rp_job *c, const listing *l, int32_t mean, rp_error *err) {
    job_reduction *r = reduction_of(c);
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    const sequence_slots in = {
        .shape = shape,
        .slots = l->slots,
        .n = l->n,
        .observer = r->observer,
        .kept = c->positions + c->n_prompt - kept_tokens(c),
        .n_kept = kept_tokens(c),
        .end = c->plan->end,
    };
    kv_selection *selection;
    kv_context to;
    kv_context_init(&to, c->engine->pool);
    to.format = c->format;
    int rc = sequence_select(&selection, r->method, mean, &in, err);
    if (!rc) rc = compose_reduced(c, &to, selection, l, err);
    if (rc) kv_context_clear(&to);
    else {
        const int64_t n_heads = (int64_t)shape->n_layers * kv_shape_heads(shape);
        int64_t kept = 0;
        for (int32_t head = 0; head < selection->n_layers * selection->n_kv_heads; head++)
            kept += kv_selection_count(selection, head / selection->n_kv_heads, head % selection->n_kv_heads);
        const int64_t whole = kv_context_slots(&c->seq.context) - l->n;
        BASE_ASSERT(kept <= n_heads * l->n && whole >= 0);
        r->share = (double)kept / (double)(n_heads * l->n);
        c->seq.slots = whole + (kept + n_heads - 1) / n_heads;
        take_context(c, &to);
    }
    kv_selection_free(selection);
    return rc;
}

/* ---- slots that each row of the answer chooses ---- */

/* Slots of the answer's choice, in the context's order, and the ends of their runs. */
typedef struct candidates {
    sequence_slot *slots; /* [n_slots] */
    int32_t *run_ends;    /* [n_runs] */
    int32_t n_slots, n_runs;
    int32_t first; /* listed slots of the views so far */
} candidates;

static bool is_kept(const rp_job *c, int32_t pos) {
    for (int32_t i = c->n_prompt - kept_tokens(c); i < c->n_prompt; i++)
        if (c->positions[i] == pos) return true;
    return false;
}

static void list_candidates(const rp_job *c, const listing *l, candidates *out) {
    const kv_context *context = &c->seq.context;
    for (size_t i = 0, end; i < context->n_views; i = end) {
        int32_t n = 0;
        end = stays_whole(&context->views[i]) ? i + 1 : end_of_run(l, context, i, out->first, &n);
        const int32_t before = out->n_slots, run_end = out->first + n;
        BASE_ASSERT(n >= 0 && run_end <= l->n);
        for (; out->first < run_end; out->first++) {
            const sequence_slot *slot = &l->slots[l->ranks[out->first]];
            if (!is_kept(c, slot->pos)) out->slots[out->n_slots++] = *slot;
        }
        if (out->n_slots > before) out->run_ends[out->n_runs++] = out->n_slots;
    }
    BASE_ASSERT(out->first == l->n);
}

static int bound_slots(rp_job *c, const listing *l, int32_t mean, rp_error *err) {
    job_reduction *r = reduction_of(c);
    backend *b = c->engine->backend;
    const size_t bytes = (size_t)l->n * sizeof(sequence_slot) + c->seq.context.n_views * sizeof(int32_t);
    candidates all = {.slots = base_alloc(bytes)};
    if (!all.slots) return base_fail_memory(err, bytes, "the slots of a prompt");
    all.run_ends = (int32_t *)(all.slots + l->n);
    list_candidates(c, l, &all);
    BASE_ASSERT((size_t)all.n_runs <= c->seq.context.n_views);
    int rc = slot_bounds_new(&r->bounds, kv_pool_shape(c->engine->pool), &c->seq.context, all.slots, all.n_slots,
                             all.run_ends, all.n_runs, mean, c->plan->end, err);
    base_free(all.slots);
    if (!rc) rc = b->ops->study->bound(b, r->bounds, &c->seq.context, err);
    if (rc) return rc;
    r->share = (double)(mean + kept_tokens(c)) / l->n;
    c->seq.slots -= all.n_slots - mean - r->bounds->n_groups; /* read by each row */
    return RP_OK;
}

/* The first token was drawn: replaces the context's views, and reserves what the answer takes. Without effect if all
   slots are kept. */
static int reduction_apply(rp_job *c, rp_error *err) {
    job_reduction *r = reduction_of(c);
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    const uint64_t start = base_clock_us();
    listing l = {0};
    if (!r->asked) return RP_OK;
    BASE_ASSERT(!r->observer || c->seq.context.n_views <= r->observer->n_views);
    BASE_ASSERT(!c->prefix.shares && !c->seq.context.open);
    kv_context_wait(&c->seq.context, c->engine->states->shape.n_layers);
    int rc = listing_open(&l, &c->seq.context, err);
    if (l.sources) {
        const int32_t n_others = l.n - kept_tokens(c), mean = mean_of(r, n_others);
        BASE_ASSERT(n_others >= 0 && mean <= n_others); /* the kept tokens are listed */
        r->bytes_before = kv_context_bytes(&c->seq.context);
        r->share = 1;
        if (mean < n_others)
            rc = sequence_method_is_dynamic(r->method) ? bound_slots(c, &l, mean, err) : reduce(c, &l, mean, err);
        r->bytes = kv_context_bytes(&c->seq.context) +
                   (r->bounds ? slot_bounds_bytes(shape, r->bounds->n_slots, r->bounds->n_runs) : 0);
        r->done = !rc;
        r->us = base_clock_us() - start;
        BASE_TRACE(ENGINE, "job %llu: keeps %.3f of %d slots by %s: %llu of %llu bytes; %llu us",
                   (unsigned long long)c->request->number, r->share, l.n, sequence_method_name(r->method),
                   (unsigned long long)r->bytes, (unsigned long long)r->bytes_before, (unsigned long long)r->us);
    }
    base_free(l.sources);
    return rc;
}

static int reduction_end_prompt(rp_job *c, rp_error *err) {
    if (!reduction_of(c)->asked) return RP_OK;
    const int rc = prefix_leave(c, err);
    return rc ? rc : reduction_apply(c, err);
}

/* ---- results ---- */

static void reduction_room(const rp_job *c, job_room *room) { room->blocks += reduction_blocks(c); }

static const char *reduction_miss_reason(const rp_job *c) {
    const bool found_all = c->prefix.found_end == SPAN_END_ALL && c->prefix.n_found == job_most_found(c);
    return reduction_of(c)->asked && found_all ? "kv_keep" : NULL;
}

static void reduction_describe(rp_job *c) {
    const job_reduction *r = reduction_of(c);
    c->result->kv_reduction = (rp_kv_reduction){
        .method = "",
        .share = 1,
        .bytes_before = c->result->kv_bytes,
        .bytes = c->result->kv_bytes,
        .reason = r && r->reason ? r->reason : "",
    };
    if (!r || !r->done) return;
    c->result->kv_reduction = (rp_kv_reduction){
        sequence_method_name(r->method), r->share, r->bytes_before, r->bytes, (double)r->us / 1e3, "", {0}};
}

const job_feature sequence_reduction_feature = {
    .name = "kv_keep",
    .state_bytes = sizeof(job_reduction),
    .open_engine = reduction_open_engine,
    .close_engine = reduction_close_engine,
    .ask = reduction_ask,
    .count = reduction_count,
    .yield = reduction_yields_memory,
    .room = reduction_room,
    .compose = reduction_compose,
    .row = reduction_row,
    .end_prompt = reduction_end_prompt,
    .miss_reason = reduction_miss_reason,
    .describe = reduction_describe,
    .release = reduction_release,
};
