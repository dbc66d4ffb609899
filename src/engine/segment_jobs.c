/* segment_jobs.c: see segment_jobs.h. */
#include "engine/segment_jobs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

/* Segments that need segments that need segments ...: scopes name earlier segments only and in their order, so real depths are 2. */
#define MAX_DEPTH 64

const pml_layout *segment_job_layout(const segment_job *job) { return job->schema->layout; }
const pml_segment *segment_job_segment(const segment_job *job) { return &job->schema->layout->segments[job->segment]; }

/* ---- jobs ---- */

static const base_key *name_of(const pml_layout *l, const pml_segment *s) { return &pml_segment_keys(l, s)[s->n_spans - 1]; }

/* The job that computes a segment already. What is not kept is its asker's alone. */
static segment_job *find_job(const rp_engine *e, const pml_layout *l, const pml_segment *s, const rp_call *asker, bool kept) {
    for (segment_job *j = e->jobs; j; j = j->next)
        if (j->kept == kept && (kept || j->asker == asker) &&
            base_key_equal(name_of(segment_job_layout(j), segment_job_segment(j)), name_of(l, s)))
            return j;
    return NULL;
}

static void free_job(rp_engine *e, segment_job *job) {
    segment_job **link = &e->jobs;
    while (*link && *link != job) link = &(*link)->next;
    if (*link) *link = job->next;
    segment_needs_release(e, &job->needs);
    kv_context_clear(&job->seq.context);
    engine_schema_unref(e, job->schema);
    base_free(job->later);
    base_free(job);
}

static int check_end(const rp_engine *e, int64_t end, rp_error *err) {
    if (end <= e->n_ctx) return RP_OK;
    return base_fail(err, RP_ERR_CONTEXT, "a module and its scope take %lld positions, the context holds %d: split it, or raise --ctx",
                     (long long)end, e->n_ctx);
}

static int add_need(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_call *asker, bool look, int depth,
                    rp_error *err);

/* What a job's tokens attend to before themselves. */
static int add_scope(rp_engine *e, segment_job *job, int depth, rp_error *err) {
    const pml_layout *l = segment_job_layout(job);
    const pml_segment *s = segment_job_segment(job);
    int32_t cursor = 0;
    int rc = segment_needs_reserve(&job->needs, s->n_scope, err);
    for (int32_t i = 0; i < s->n_scope && !rc; i++) {
        int32_t index = pml_segment_scope(l, s)[i];
        const pml_segment *t = &l->segments[index];
        segment_view view = {index, pml_scope_position(l, s, i, &cursor) - t->pos, t->n_tokens, false, NULL, 0};
        rc = add_need(e, &job->needs, job->schema, &view, job->asker, job->kept, depth + 1, err);
    }
    return rc;
}

static int new_job(rp_engine *e, segment_job **out, rp_schema *schema, int32_t segment, rp_call *asker, bool kept, int depth,
                   rp_error *err) {
    const pml_layout *l = schema->layout;
    const pml_segment *s = &l->segments[segment];
    if (depth >= MAX_DEPTH) return base_fail(err, RP_ERR_LIMIT, "scopes of modules lead %d deep", depth);
    int rc = check_end(e, (int64_t)s->pos + s->n_tokens, err);
    if (rc) return rc;
    segment_job *job = base_calloc(1, sizeof(*job));
    if (!job) return base_fail_memory(err, sizeof(*job), "a module to compute");
    *job = (segment_job){.schema = engine_schema_ref(e, schema), .segment = segment, .kept = kept, .asker = asker};
    kv_context_init(&job->seq.context, e->pool);
    job->seq.tokens = pml_segment_tokens(l, s);
    job->seq.first_pos = s->pos;
    job->seq.n = s->n_tokens;
    job->seq.reserved = sequence_blocks(kv_pool_shape(e->pool), s->n_tokens, 1, 0, true);
    rc = pml_segment_readers(l, s, &job->later, err);
    if (!rc) rc = add_scope(e, job, depth, err);
    if (rc) {
        free_job(e, job);
        return rc;
    }
    segment_job **end = &e->jobs; /* behind those that it needs */
    while (*end) end = &(*end)->next;
    *end = job;
    if (asker) asker->encode_total += (uint64_t)s->n_tokens;
    *out = job;
    return RP_OK;
}

int segment_job_compose(rp_engine *e, segment_job *job, rp_error *err) {
    kv_context *c = &job->seq.context;
    int rc = segment_needs_compose(&job->needs, segment_job_layout(job), c, err);
    segment_needs_use(e, &job->needs, segment_job_layout(job));
    job->seq.slots = kv_context_slots(c);
    c->later = job->later;
    c->n_later = (size_t)segment_job_segment(job)->n_holes;
    job->composed = true;
    return rc;
}

int segment_job_begin_anew(rp_engine *e, segment_job *job, rp_error *err) {
    segment_needs_release(e, &job->needs);
    kv_context_clear(&job->seq.context);
    job->composed = false;
    job->seq.done = 0;
    job->seq.slots = 0;
    job->seq.reserved = sequence_blocks(kv_pool_shape(e->pool), job->seq.n, 1, 0, true);
    return add_scope(e, job, 0, err);
}

/* "cities/plan/miami": for people who look at records. */
static void label_of(const pml_layout *l, const pml_segment *s, char *out) {
    size_t n = (size_t)snprintf(out, RECORD_MAX_LABEL + 1, "%s/", l->schema->nodes[0].name);
    if (n > RECORD_MAX_LABEL) return;
    pml_path(l->schema, s->holder, out + n, RECORD_MAX_LABEL + 1 - n);
    if (!out[n]) out[n - 1] = '\0';
}

/* What its module says, or one that it stands in: of times the innermost, and a pin holds for all inside. */
static span_terms terms_of(const pml_layout *l, const pml_segment *s) {
    const pml_node *nodes = l->schema->nodes;
    span_terms terms = {0};
    for (int32_t i = s->holder; i > 0; i = nodes[i].parent) {
        if (terms.ttl_s == 0) terms.ttl_s = nodes[i].ttl_seconds;
        terms.pin |= nodes[i].pin;
    }
    return terms;
}

static int keep_span(rp_engine *e, const rp_schema *schema, const pml_segment *s, int32_t i, kv_span *span, rp_error *err) {
    const pml_layout *l = schema->layout;
    const base_key *keys = pml_segment_keys(l, s);
    int32_t first = i * KV_SPAN_TOKENS, n = kv_span_tokens(span);
    char label[RECORD_MAX_LABEL + 1];
    span_note note = {.kind = RECORD_MODULE, .n_tokens = n, .tokens = pml_segment_tokens(l, s) + first, .label = label,
                      .cost_us = steps_cost(e, n, kv_span_position(span)), .tenant = span_tenant(&schema->salt), .terms = terms_of(l, s)};
    if (i > 0) note.parent = keys[i - 1];
    label_of(l, s, label);
    return span_store_put(e->store, span, NULL, &note, err);
}

/* Everybody who waits gets references. */
static int hand_over(segment_job *job, rp_error *err) {
    const pml_segment *s = segment_job_segment(job);
    const kv_context *c = &job->seq.context;
    for (segment_need *w = job->waiters; w; w = w->next) {
        w->spans = base_calloc((size_t)s->n_spans, sizeof(*w->spans));
        if (!w->spans) return base_fail_memory(err, (uint64_t)s->n_spans * sizeof(*w->spans), "spans");
        for (int32_t i = 0; i < s->n_spans; i++)
            w->spans[i] = kv_span_ref(c->views[c->n_views - (size_t)s->n_spans + (size_t)i].span);
    }
    for (segment_need *w = job->waiters, *next; w; w = next) {
        next = w->next;
        w->next = NULL;
        w->job = NULL;
        w->owner->n_missing--;
    }
    job->waiters = NULL;
    return RP_OK;
}

int segment_job_finish(rp_engine *e, segment_job *job, rp_error *err) {
    const pml_layout *l = segment_job_layout(job);
    const pml_segment *s = segment_job_segment(job);
    kv_context *c = &job->seq.context;
    int rc = RP_OK;
    kv_context_close(c);
    for (int32_t i = 0; i < s->n_spans && !rc; i++) {
        kv_span *span = c->views[c->n_views - (size_t)s->n_spans + (size_t)i].span;
        kv_span_seal(span, &pml_segment_keys(l, s)[i]);
        if (job->kept) rc = keep_span(e, job->schema, s, i, span, err);
    }
    if (!rc) rc = hand_over(job, err);
    if (rc) return rc;
    BASE_TRACE(ENGINE, "computed a segment of %d tokens at %d, scope of %d segments", s->n_tokens, s->pos, s->n_scope);
    free_job(e, job);
    return RP_OK;
}

static void forget_spans(segment_need *need) {
    for (int32_t i = 0; i < need->n_spans && need->spans; i++) kv_span_unref(need->spans[i]);
    base_free(need->spans);
    need->spans = NULL;
}

void segment_job_fail(rp_engine *e, segment_job *job, const rp_error *err) {
    for (segment_need *w = job->waiters, *next; w; w = next) {
        next = w->next;
        forget_spans(w);
        w->next = NULL;
        w->job = NULL;
        w->owner->rc = err->code;
        w->owner->err = *err;
    }
    job->waiters = NULL;
    free_job(e, job);
}

/* ---- needs ---- */

int segment_needs_reserve(segment_needs *needs, int32_t n, rp_error *err) {
    assert(needs->n == 0);
    base_free(needs->items);
    *needs = (segment_needs){.items = base_calloc((size_t)n, sizeof(*needs->items)), .cap = n};
    return needs->items ? RP_OK : base_fail_memory(err, (uint64_t)n * sizeof(*needs->items), "a plan");
}

/* All spans of a segment from the store, with references, or none of them. */
static bool look_up(rp_engine *e, const pml_layout *l, const pml_segment *s, segment_need *need) {
    for (int32_t i = 0; i < s->n_spans; i++) {
        const base_key *key = &pml_segment_keys(l, s)[i];
        span_found found;
        need->spans[i] = span_store_get(e->store, key, &found);
        need->from_disk |= found == SPAN_FOUND_DISK;
        if (need->spans[i] && pml_segment_has_kept(l, s, i, need->spans[i])) continue;
        need->reason = found == SPAN_FOUND_NO_ROOM ? "room" : span_store_was_dropped(e->store, key) ? "dropped" : "new";
        return false;
    }
    return true;
}

static int add_need(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_call *asker, bool look, int depth,
                    rp_error *err) {
    const pml_layout *l = schema->layout;
    const pml_segment *s = &l->segments[view->segment];
    assert(needs->n < needs->cap);
    segment_need *need = &needs->items[needs->n];
    *need = (segment_need){.view = *view, .n_spans = s->n_spans, .owner = needs, .reason = look ? "" : "off"};
    need->spans = base_calloc((size_t)s->n_spans, sizeof(*need->spans));
    if (!need->spans) return base_fail_memory(err, (uint64_t)s->n_spans * sizeof(*need->spans), "spans");
    needs->n++;
    if (look && look_up(e, l, s, need)) return RP_OK;
    forget_spans(need);
    need->missed = true;
    segment_job *job = find_job(e, l, s, asker, look);
    int rc = job ? RP_OK : new_job(e, &job, schema, view->segment, asker, look, depth, err);
    if (rc) return rc;
    need->job = job;
    need->next = job->waiters;
    job->waiters = need;
    needs->n_missing++;
    return RP_OK;
}

int segment_needs_add(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_call *asker, bool look,
                      rp_error *err) {
    return add_need(e, needs, schema, view, asker, look, 0, err);
}

static int add_view(kv_context *c, const pml_layout *l, const segment_view *view, kv_span *span, int32_t first, rp_error *err) {
    const pml_segment *s = &l->segments[view->segment];
    const pml_hole *holes = pml_segment_holes(l, s);
    uint64_t mask[KV_SPAN_BLOCKS];
    kv_mask_first(mask, view->n_tokens - first);
    for (int32_t i = 0; i < s->n_holes && view->mask_holes; i++)
        kv_mask_clear(mask, holes[i].offset - first, holes[i].offset + holes[i].len - first);
    for (int32_t i = 0; i < view->n_again; i++) kv_mask_clear(mask, view->again[i] - first, view->again[i] + 1 - first);
    return kv_context_add(c, span, view->shift, mask, err);
}

int segment_needs_compose(const segment_needs *needs, const pml_layout *l, kv_context *c, rp_error *err) {
    int rc = RP_OK;
    assert(needs->n_missing == 0);
    for (int32_t k = 0; k < needs->n; k++) {
        const segment_need *need = &needs->items[k];
        for (int32_t i = 0; i < need->n_spans && !rc; i++) rc = add_view(c, l, &need->view, need->spans[i], i * KV_SPAN_TOKENS, err);
    }
    return rc;
}

void segment_needs_use(rp_engine *e, const segment_needs *needs, const pml_layout *l) {
    for (int32_t k = 0; k < needs->n; k++) {
        const pml_segment *s = &l->segments[needs->items[k].view.segment];
        span_terms terms = terms_of(l, s);
        for (int32_t i = 0; i < s->n_spans && !needs->items[k].missed; i++) span_store_use(e->store, &pml_segment_keys(l, s)[i], &terms);
    }
}

void segment_needs_remove(segment_needs *needs, int32_t index) {
    segment_need *need = &needs->items[index];
    assert(needs->n_missing == 0);
    forget_spans(need);
    memmove(need, need + 1, (size_t)(--needs->n - index) * sizeof(*need));
}

/* A job that nobody waits for any more is ended. */
static void stop_waiting(rp_engine *e, segment_need *need) {
    segment_need **link = &need->job->waiters;
    while (*link != need) link = &(*link)->next;
    *link = need->next;
    if (!need->job->waiters) free_job(e, need->job);
    need->job = NULL;
}

void segment_needs_release(rp_engine *e, segment_needs *needs) {
    for (int32_t i = 0; i < needs->n; i++) {
        if (needs->items[i].job) stop_waiting(e, &needs->items[i]);
        forget_spans(&needs->items[i]);
    }
    base_free(needs->items);
    *needs = (segment_needs){0};
}
