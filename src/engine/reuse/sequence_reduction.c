/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_reduction.c: see sequence_reduction.h. */
#include "engine/reuse/sequence_reduction.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"
#include "model/reduction.h"

#define DEFAULT_METHOD "snapkv"
#define EXTRA_RUNS 3 /* the own tokens, and moved ones between them (shifted_reuse.c) */

/* ---- the request ---- */

/* "1024", "12.5%". false: neither. */
static bool read_keep(const char *keep, job_reduction *r) {
    char *end;
    if (keep[0] < '0' || keep[0] > '9') return false; /* a share of "auto" is for modules */
    if (strchr(keep, '%')) return reduction_share_parse(keep, &r->permille);
    const long n = strtol(keep, &end, 10);
    r->slots = n >= 1 && n <= KV_SELECTION_MAX_SLOTS ? (int32_t)n : 0;
    return *end == '\0' && r->slots > 0;
}

int reduction_read(job_reduction *r, const char *keep, const char *method, rp_error *err) {
    *r = (job_reduction){.asked = keep != NULL};
    if (!keep && method) return base_fail(err, RP_ERR_INVALID, "kv_method '%.32s' without kv_keep: give the slots to keep, 1024 or 12.5%%", method);
    if (!keep) return RP_OK;
    if (!read_keep(keep, r))
        return base_fail(err, RP_ERR_INVALID, "kv_keep '%.32s': give a number of slots (1024) or a share (12.5%%, to 100%%)", keep);
    if (sequence_method_parse(method ? method : DEFAULT_METHOD, &r->method)) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "kv_method '%.32s': give " SEQUENCE_METHOD_NAMES, method);
}

/* ---- before the prompt is complete ---- */

static int32_t observed_rows(const rp_job *c) {
    return c->reduction.asked ? BASE_MIN(sequence_method_rows(c->reduction.method), c->n_prompt) : 0;
}

int32_t reduction_most_found(const rp_job *c) { return c->n_prompt - BASE_MAX(observed_rows(c), 1); }

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
        const kv_format format = p->layout->segments[item->segment].format;
        n += !before || before->shift != item->shift || p->layout->segments[before->segment].format != format;
        before = item;
    }
    return n;
}

int64_t reduction_blocks(const rp_job *c) {
    const kv_pool *pool = c->engine->pool;
    const kv_shape *shape = kv_pool_shape(pool);
    const int64_t n_heads = (int64_t)shape->n_layers * shape->n_kv_heads;
    if (!c->reduction.asked) return 0;
    const int32_t n = c->n_prompt + c->moved.n + (c->exact ? 0 : c->plan->n_cached), runs = most_runs(c);
    /* a head's last cell of a run may be partly filled */
    const int64_t n_cells = n_heads * (mean_of(&c->reduction, n) + SEQUENCE_WINDOW) / KV_BLOCK_SLOTS + (runs + 1) * n_heads;
    const int64_t n_spans = n / KV_SPAN_TOKENS + runs;
    int64_t most = 0;
    for (size_t i = 0; i < c->plan->n_items && !c->exact; i++) {
        const kv_format format = c->plan->items[i].is_view ? c->plan->layout->segments[c->plan->items[i].segment].format : c->format;
        if (!kv_format_is_encoded(format)) most = BASE_MAX(most, kv_reduced_blocks(shape, format, n_cells, n_spans));
    }
    most = BASE_MAX(most, kv_reduced_blocks(shape, c->format, n_cells, n_spans));
    return most + kv_column_blocks(pool, c->format); /* the answer begins a span of its own */
}

/* Spans of the own tokens begin where one is full, where positions are not consecutive, and after the first lookup of another job. */
int reduction_open(rp_job *c, rp_error *err) {
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    const model_hparams *hp = &c->engine->model->hp;
    const size_t n_views = c->seq.context.n_views + (size_t)(c->seq.n / KV_SPAN_TOKENS) + (size_t)c->n_runs + EXTRA_RUNS;
    reduction_release(c);
    c->reduction.n_rows = observed_rows(c);
    if (c->reduction.n_rows == 0) return RP_OK;
    const int64_t most = (int64_t)c->reduction.n_rows * (hp->n_heads / hp->n_kv_heads) * hp->n_layers;
    return attention_observer_new(&c->reduction.observer, shape->n_layers, shape->n_kv_heads, ATTENTION_SUM, most, 0, n_views, err);
}

attention_observer *reduction_observer(const rp_job *c, int32_t token) {
    return token >= c->n_prompt - c->reduction.n_rows && token < c->n_prompt ? c->reduction.observer : NULL;
}

void reduction_release(rp_job *c) {
    attention_observer_free(c->reduction.observer);
    c->reduction.observer = NULL;
}

/* ---- the prompt is complete ---- */

/* The slots of a context that may be dropped, in its order, and by position. */
typedef struct listing {
    kv_source *sources;   /* [n] in the context's order */
    int32_t *ranks;       /* [n] of each source: its place among all by position */
    sequence_slot *slots; /* [n] by position */
    int32_t n;
} listing;

static bool stays_whole(const kv_view *v) { return kv_format_is_encoded(kv_span_format(v->span)) || kv_span_is_reduced(v->span); }

static int compare_positions(const void *a, const void *b) {
    const sequence_slot *x = a, *y = b;
    return (x->pos > y->pos) - (x->pos < y->pos); /* all differ: invariant 4 of kv */
}

static int32_t count_slots(const kv_context *context) {
    int32_t n = 0;
    for (size_t i = 0; i < context->n_views; i++)
        if (!stays_whole(&context->views[i])) n += kv_mask_count(context->views[i].mask);
    return n;
}

static bool has_slot(const kv_view *v, int32_t slot) { return v->mask[slot / KV_BLOCK_SLOTS] >> (slot % KV_BLOCK_SLOTS) & 1; }

/* Sorted with the index in the context's order in place of the slot, then completed. */
static void sort_slots(listing *l) {
    qsort(l->slots, (size_t)l->n, sizeof(*l->slots), compare_positions);
    for (int32_t rank = 0; rank < l->n; rank++) {
        sequence_slot *s = &l->slots[rank];
        l->ranks[s->slot] = rank;
        s->slot = l->sources[s->slot].slot;
    }
}

static int listing_open(listing *l, const kv_context *context, rp_error *err) {
    int32_t n = 0;
    l->n = count_slots(context);
    const size_t bytes = (size_t)l->n * (sizeof(*l->sources) + sizeof(*l->slots) + sizeof(*l->ranks));
    l->sources = base_alloc(BASE_MAX(bytes, 1));
    if (!l->sources) return base_fail_memory(err, bytes, "the slots of a prompt");
    l->slots = (sequence_slot *)(l->sources + l->n);
    l->ranks = (int32_t *)(l->slots + l->n);
    for (size_t i = 0; i < context->n_views; i++) {
        const kv_view *v = &context->views[i];
        for (int32_t slot = 0; slot < kv_span_tokens(v->span) && !stays_whole(v); slot++) {
            if (!has_slot(v, slot)) continue;
            l->slots[n] = (sequence_slot){(int32_t)i, n, kv_span_slot_position(v->span, slot) + v->shift};
            l->sources[n++] = (kv_source){v->span, slot};
        }
    }
    sort_slots(l);
    return RP_OK;
}

/* A view's slots may share reduced spans with those before it, n_before in the context's order: one format, one shift, rising positions. */
static bool continues_run(const listing *l, int32_t n_before, const kv_view *before, const kv_view *v) {
    if (stays_whole(v) || before->shift != v->shift || kv_span_format(before->span) != kv_span_format(v->span)) return false;
    return n_before == 0 || n_before == l->n || l->ranks[n_before - 1] < l->ranks[n_before];
}

/* The part of the selection that n sources from `first` on have. */
static int select_run(kv_selection **out, const kv_selection *all, const listing *l, int32_t first, int32_t n, rp_error *err) {
    int rc = kv_selection_new(out, all->n_layers, all->n_kv_heads, n, err);
    for (int32_t head = 0; head < all->n_layers * all->n_kv_heads && !rc; head++)
        for (int32_t i = 0; i < n; i++)
            if (kv_selection_has(all, head / all->n_kv_heads, head % all->n_kv_heads, l->ranks[first + i]))
                kv_selection_add(*out, head / all->n_kv_heads, head % all->n_kv_heads, i);
    return rc;
}

/* Adds a view that takes blocks that the job has reserved. */
static int add_reduced(rp_job *c, kv_context *to, kv_span *span, int32_t shift, rp_error *err) {
    const int64_t blocks = (int64_t)(kv_span_bytes(span) / kv_pool_block_bytes(c->engine->pool));
    BASE_ASSERT(blocks <= c->seq.reserved); /* invariant 6 */
    sequence_reserve(&c->seq, c->seq.reserved - blocks);
    const int rc = kv_context_add(to, span, shift, NULL, err);
    kv_span_unref(span);
    return rc;
}

static int add_run(rp_job *c, kv_context *to, const kv_selection *all, const listing *l, int32_t first, int32_t n, int32_t shift, rp_error *err) {
    kv_selection *own;
    kv_span *span;
    int rc = select_run(&own, all, l, first, n, err);
    if (rc) return rc;
    for (int32_t i = 0; i < kv_reduced_spans(own) && !rc; i++)
        if (!(rc = kv_span_collect(&span, l->sources + first, own, i, err))) rc = add_reduced(c, to, span, shift, err);
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
        int32_t n = kv_mask_count(views[i].mask);
        end = i + 1;
        if (stays_whole(&views[i])) {
            rc = kv_context_add(to, views[i].span, views[i].shift, kv_span_is_reduced(views[i].span) ? NULL : views[i].mask, err);
            continue;
        }
        for (; end < n_views && continues_run(l, first + n, &views[end - 1], &views[end]); end++) n += kv_mask_count(views[end].mask);
        if (n > 0) rc = add_run(c, to, all, l, first, n, views[i].shift, err);
        first += n;
    }
    return rc;
}

static int64_t count_kept(const kv_selection *s) {
    int64_t n = 0;
    for (int32_t head = 0; head < s->n_layers * s->n_kv_heads; head++) n += kv_selection_count(s, head / s->n_kv_heads, head % s->n_kv_heads);
    return n;
}

/* Replaces the context, and drops the other references to what it had. */
static void take_context(rp_job *c, kv_context *to) {
    kv_context_clear(&c->seq.context);
    c->seq.context = *to;
    segment_needs_drop_spans(&c->needs);
    span_path_release(&c->path);
    span_path_release(&c->moved.path);
    reduction_release(c);
    sequence_reserve(&c->seq, sequence_blocks_in(c->engine->pool, c->format, BASE_MAX(c->answer.most - 1, 0), 1, c->engine->chunk_tokens, false));
    c->engine->budget_epoch++; /* memory was freed */
}

static int reduce(rp_job *c, const listing *l, int32_t mean, rp_error *err) {
    job_reduction *r = &c->reduction;
    const kv_shape *shape = kv_pool_shape(c->engine->pool);
    const sequence_slots in = {
        .shape = shape,
        .slots = l->slots,
        .n = l->n,
        .observer = r->observer,
        .rows = c->positions + c->n_prompt - r->n_rows,
        .n_rows = r->n_rows,
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
        const int64_t n_heads = (int64_t)shape->n_layers * shape->n_kv_heads, kept = count_kept(selection);
        const int64_t whole = kv_context_slots(&c->seq.context) - l->n;
        r->share = (double)kept / (double)(n_heads * l->n);
        c->seq.slots = whole + (kept + n_heads - 1) / n_heads;
        take_context(c, &to);
    }
    kv_selection_free(selection);
    return rc;
}

int reduction_apply(rp_job *c, rp_error *err) {
    job_reduction *r = &c->reduction;
    const uint64_t start = base_clock_us();
    listing l = {0};
    if (!r->asked) return RP_OK;
    BASE_ASSERT(!r->observer || c->seq.context.n_views <= r->observer->n_views);
    BASE_ASSERT(!c->shares);
    kv_context_close(&c->seq.context);
    kv_context_wait(&c->seq.context, c->engine->states.shape.n_layers);
    int rc = listing_open(&l, &c->seq.context, err);
    if (l.sources) {
        const int32_t n_others = l.n - kept_tokens(c), mean = mean_of(r, n_others);
        r->bytes_before = kv_context_bytes(&c->seq.context);
        r->share = 1;
        if (mean < n_others) rc = reduce(c, &l, mean, err);
        r->bytes = kv_context_bytes(&c->seq.context);
        r->done = !rc;
        r->us = base_clock_us() - start;
        BASE_TRACE(ENGINE, "job %llu: keeps %.3f of %d slots by %s: %llu of %llu bytes; %llu us", (unsigned long long)c->request->number,
                   r->share, l.n, sequence_method_name(r->method), (unsigned long long)r->bytes, (unsigned long long)r->bytes_before,
                   (unsigned long long)r->us);
    }
    base_free(l.sources);
    return rc;
}
