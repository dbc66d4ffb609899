/* SPDX-License-Identifier: Apache-2.0 */
/* segment_prefills.c: see segment_prefills.h. */
#include "engine/reuse/segment_prefills.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/schemas.h"
#include "engine/core/sequence.h"
#include "engine/reuse/reduced_modules.h"
#include "engine/reuse/segment_reduction.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "kv/kv_format.h"
#include "kv/span.h"
#include "backend/backend.h"
#include "pml/document.h"
#include "pml/layout.h"
#include "store/index/span_tree.h"
#include "store/record/record.h"
#include "store/span_store.h"

/* Recursion limit: scopes name earlier segments only and in their order, so real depths are 2. */
#define MAX_DEPTH 64

const pml_layout *segment_prefill_layout(const segment_prefill *prefill) { return prefill->schema->layout; }
const pml_segment *segment_prefill_segment(const segment_prefill *prefill) {
    return &prefill->schema->layout->segments[prefill->segment];
}

/* ---- prefills ---- */

static const base_key *pml_layout_name_of(const pml_layout *l, const pml_segment *s) {
    return &pml_segment_keys(l, s)[s->n_spans - 1];
}

static const base_key *prefill_name(const pml_layout *l, const pml_segment *s, bool reduced) {
    return reduced ? &s->reduced : pml_layout_name_of(l, s);
}

/* The prefill that already computes a segment, or its reduced KV. One that is not kept belongs to its asker only. */
static segment_prefill *find_prefill(const rp_engine *e, const pml_layout *l, const pml_segment *s, bool reduced,
                                     const rp_job *asker, bool kept) {
    for (segment_prefill *j = e->prefills; j; j = j->next)
        if (j->kept == kept && (kept || j->asker == asker) && (j->reduction != NULL) == reduced &&
            base_key_equal(prefill_name(segment_prefill_layout(j), segment_prefill_segment(j), reduced),
                           prefill_name(l, s, reduced)))
            return j;
    return NULL;
}

/* A request needs a prefill that a background task began, and all that this waits for. */
static void hurry_prefill(segment_prefill *prefill, rp_job *asker) {
    if (!prefill->in_background) return;
    prefill->in_background = false;
    prefill->asker = asker;
    if (asker) asker->figures.prefill_total += (uint64_t)prefill->seq.n;
    for (int32_t i = 0; i < prefill->needs.n; i++)
        if (prefill->needs.items[i].prefill) hurry_prefill(prefill->needs.items[i].prefill, asker);
}

static void drop_states(rp_engine *e, segment_prefill *prefill) {
    if (prefill->states) e->backend->ops->recurrence->states_free(e->backend, prefill->states);
    prefill->states = NULL;
}

static void segment_prefills_free_prefill(rp_engine *e, segment_prefill *prefill) {
    BASE_ASSERT(!prefill->waiters);
    segment_prefill **link = &e->prefills;
    while (*link && *link != prefill) link = &(*link)->next;
    if (*link) *link = prefill->next;
    segment_needs_release(e, &prefill->needs);
    kv_context_clear(&prefill->seq.context);
    sequence_reset(&prefill->seq);
    drop_states(e, prefill);
    segment_reduction_free(prefill->reduction);
    engine_schema_unref(e, prefill->schema);
    base_free(prefill->later);
    base_free(prefill);
}

/* Reserves the blocks that a prefill may take: of its tokens, and of their encoded form; of recurrent layers' states,
   running ones and the checkpoint that they become. */
static void reserve_blocks(const rp_engine *e, segment_prefill *prefill) {
    const pml_segment *s = segment_prefill_segment(prefill);
    int64_t blocks = prefill->reduction ? segment_reduction_blocks(e, s)
                                        : sequence_held_blocks(e->pool, segment_open_format(e, s), s->n_tokens);
    if (!prefill->reduction && kv_format_is_encoded(s->format))
        blocks += sequence_held_blocks(e->pool, s->format, s->n_tokens);
    blocks += 2 * kv_states_blocks(e->pool);
    sequence_reserve(&prefill->seq, blocks);
    prefill->seq.context.format = segment_open_format(e, s);
}

static int add_need(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_job *asker,
                    bool look, int depth, rp_error *err);

/* The scope of a prefill: what its tokens attend to besides themselves. Of a reduction also the segment as prompts see
   it. */
static int add_scope(rp_engine *e, segment_prefill *prefill, int depth, rp_error *err) {
    const pml_layout *l = segment_prefill_layout(prefill);
    const pml_segment *s = segment_prefill_segment(prefill);
    int32_t cursor = 0;
    int rc = segment_needs_reserve(&prefill->needs, s->n_scope + 1, err);
    for (int32_t i = 0; i < s->n_scope && !rc; i++) {
        int32_t index = pml_segment_scope(l, s)[i];
        const pml_segment *t = &l->segments[index];
        const segment_view view = {.segment = index,
                                   .shift = pml_scope_position(l, s, i, &cursor) - t->pos,
                                   .n_tokens = t->n_tokens,
                                   .states = e->is_recurrent && i + 1 == s->n_scope ? SEGMENT_STATES_END
                                                                                    : SEGMENT_STATES_NONE};
        rc = add_need(e, &prefill->needs, prefill->schema, &view, prefill->asker, prefill->kept, depth + 1, err);
    }
    if (rc || !prefill->reduction || segment_reduction_recomputes(prefill->reduction)) return rc;
    const segment_view own = {.segment = prefill->segment, .n_tokens = s->n_tokens, .mask_holes = true};
    return add_need(e, &prefill->needs, prefill->schema, &own, prefill->asker, prefill->kept, depth + 1, err);
}

static int segment_prefills_new_prefill(rp_engine *e, segment_prefill **out, rp_schema *schema,
                                        const segment_view *view, rp_job *asker, bool kept, int depth, rp_error *err) {
    const pml_layout *l = schema->layout;
    const pml_segment *s = &l->segments[view->segment];
    BASE_ASSERT(view->reduced ? s->keep > 0 : s->n_spans > 0);
    if (depth >= MAX_DEPTH) return base_fail(err, RP_ERR_LIMIT, "the scopes of modules are nested %d deep", depth);
    const int64_t n_positions = (int64_t)s->pos + s->n_tokens;
    if (n_positions > e->n_ctx)
        return base_fail(err, RP_ERR_CONTEXT,
                         "a module and its scope need %lld positions, but the context has %d: "
                         "split the module, or raise n_ctx",
                         (long long)n_positions, e->n_ctx);
    int rc = RP_OK;
    segment_prefill *prefill = base_calloc(1, sizeof(*prefill));
    if (!prefill) return base_fail_memory(err, sizeof(*prefill), "a module to prefill");
    *prefill = (segment_prefill){
        .schema = engine_schema_ref(e, schema), .segment = view->segment, .kept = kept, .asker = asker};
    prefill->in_background = asker && asker->kind == JOB_BACKGROUND;
    kv_context_init(&prefill->seq.context, e->pool);
    prefill->seq.tokens = pml_segment_tokens(l, s);
    prefill->seq.first_pos = s->pos;
    prefill->seq.n = s->n_tokens;
    if (view->reduced) rc = segment_reduction_new(&prefill->reduction, e, l, s, err);
    if (!rc) rc = pml_segment_readers(l, s, &prefill->later, err);
    if (!rc) reserve_blocks(e, prefill);
    if (!rc) rc = add_scope(e, prefill, depth, err);
    if (rc) {
        segment_prefills_free_prefill(e, prefill);
        return rc;
    }
    BASE_CHAIN_APPEND(segment_prefill, e->prefills, prefill, next); /* after the prefills that it needs */
    if (asker) asker->figures.prefill_total += (uint64_t)s->n_tokens;
    *out = prefill;
    return RP_OK;
}

int segment_prefill_compose(rp_engine *e, segment_prefill *prefill, rp_error *err) {
    kv_context *c = &prefill->seq.context;
    BASE_ASSERT(!prefill->composed && prefill->seq.done == 0 && c->n_views == 0);
    int rc = segment_needs_compose(&prefill->needs, segment_prefill_layout(prefill), c, err);
    if (!prefill->in_background) segment_needs_use(e, &prefill->needs, segment_prefill_layout(prefill));
    prefill->seq.slots = kv_context_slots(c);
    c->later = prefill->later;
    c->n_later = (size_t)segment_prefill_segment(prefill)->n_holes;
    prefill->composed = true;
    return rc || !prefill->reduction ? rc : segment_reduction_begin(prefill->reduction, &prefill->seq, err);
}

/* "cities/plan/miami": for the inspection of records. */
static void pml_layout_label_of(const pml_layout *l, const pml_segment *s, char *out) {
    size_t n = (size_t)snprintf(out, RECORD_MAX_LABEL + 1, "%s/", l->schema->nodes[0].name);
    if (n > RECORD_MAX_LABEL) return;
    pml_path(l->schema, s->holder, out + n, RECORD_MAX_LABEL + 1 - n);
    if (!out[n]) out[n - 1] = '\0';
}

/* The terms of its module, or of one that contains it: the innermost TTL; a pin applies to everything inside. */
static span_terms terms_of(const pml_layout *l, const pml_segment *s) {
    const pml_node *nodes = l->schema->nodes;
    span_terms terms = {0};
    for (int32_t i = s->holder; i > 0; i = nodes[i].parent) {
        if (terms.ttl_s == 0) terms.ttl_s = nodes[i].ttl_seconds;
        terms.pin |= nodes[i].pin;
    }
    return terms;
}

/* ---- states of recurrent layers ---- */

/* Those that its first token begins with; NULL: none before any token. */
static kv_span *states_before(const segment_prefill *prefill) {
    const int32_t n_scope = segment_prefill_segment(prefill)->n_scope;
    return n_scope > 0 ? prefill->needs.items[n_scope - 1].end : NULL;
}

static int32_t n_state_layers(const kv_span *states) { return kv_span_shape(states)->n_layers; }

static bool are_loaded(const kv_span *states) {
    return !states || kv_span_layers_ready(states) == n_state_layers(states);
}

int segment_prefill_begin(rp_engine *e, segment_prefill *prefill, rp_error *err) {
    kv_span *before = states_before(prefill);
    if (!e->is_recurrent || prefill->states) return RP_OK;
    BASE_ASSERT(prefill->seq.done == 0 && prefill->needs.n_missing == 0);
    const int rc = e->backend->ops->recurrence->states_new(e->backend, &prefill->states, err);
    if (rc) return rc;
    if (before) kv_span_wait(before, n_state_layers(before));
    if (before && kv_span_has_failed(before)) return RP_OK; /* its rows are invalid: it will be requeued */
    if (before) e->backend->ops->recurrence->states_load(e->backend, prefill->states, before);
    e->backend->ops->recurrence->states_begin(e->backend, prefill->states);
    return RP_OK;
}

bool segment_prefill_is_ready(const segment_prefill *prefill) {
    return sequence_is_ready(&prefill->seq.context) && segment_needs_are_ready(&prefill->needs);
}

bool segment_prefill_has_failed(const segment_prefill *prefill) {
    return kv_context_has_failed(&prefill->seq.context) || segment_needs_have_failed(&prefill->needs);
}

bool segment_needs_are_ready(const segment_needs *needs) {
    bool are = true;
    for (int32_t i = 0; i < needs->n && are; i++)
        are = are_loaded(needs->items[i].end) && are_loaded(needs->items[i].begin);
    return are;
}

bool segment_needs_have_failed(const segment_needs *needs) {
    bool any = false;
    for (int32_t i = 0; i < needs->n && !any; i++) {
        const segment_need *need = &needs->items[i];
        any = (need->end && kv_span_has_failed(need->end)) || (need->begin && kv_span_has_failed(need->begin));
    }
    return any;
}

/* The tokens of a segment's last span. */
static int32_t last_span_tokens(const pml_segment *s) { return s->n_tokens - (s->n_spans - 1) * KV_SPAN_TOKENS; }

base_key segment_states_name(const pml_layout *l, const pml_segment *s) {
    return span_states_name(pml_layout_name_of(l, s), last_span_tokens(s));
}

/* A checkpoint after the prefill's last token: *out, a reference. */
static int finish_states(rp_engine *e, segment_prefill *prefill, kv_span **out, rp_error *err) {
    const pml_layout *l = segment_prefill_layout(prefill);
    const pml_segment *s = segment_prefill_segment(prefill);
    const base_key key = segment_states_name(l, s);
    const span_terms terms = terms_of(l, s);
    char label[RECORD_MAX_LABEL + 1];
    pml_layout_label_of(l, s, label);
    const record about = {.kind = RECORD_MODULE_STATES,
                          .parent = *pml_layout_name_of(l, s),
                          .at = last_span_tokens(s),
                          .cost_us = cost_model_usual_us(e->cost, s->n_tokens, s->pos),
                          .tenant = span_tenant(&prefill->schema->salt),
                          .label = label};
    sequence_reserve(&prefill->seq, BASE_MAX(prefill->seq.reserved - kv_states_blocks(e->pool), 0));
    const int rc = kv_span_new_states(out, e->pool, s->pos + s->n_tokens, err);
    if (rc) return rc;
    e->backend->ops->recurrence->states_save(e->backend, prefill->states, *out);
    kv_span_seal(*out, &key);
    return prefill->kept ? span_store_put(e->store, *out, NULL, &about, &terms, err) : RP_OK;
}

int32_t segment_prefill_most_rows(const segment_prefill *prefill) {
    BASE_ASSERT(prefill->composed && prefill->needs.n_missing == 0);
    return prefill->reduction ? segment_reduction_most_rows(prefill->reduction, &prefill->seq)
                              : prefill->seq.n - prefill->seq.done;
}

void segment_prefill_row(segment_prefill *prefill, model_row *row) {
    const adapter_use *u = &prefill->schema->adapter;
    row->adapter = adapter_use_at(u, row->pos);
    row->adapter_scale = u->scale;
    if (prefill->reduction) segment_reduction_observe(prefill->reduction, row);
}

bool segment_prefill_wants_logits(const segment_prefill *prefill) {
    return prefill->reduction && segment_reduction_wants_logits(prefill->reduction, &prefill->seq);
}

int segment_prefill_settle(segment_prefill *prefill, int32_t n_rows, const float *logits, rp_error *err) {
    return prefill->reduction ? segment_reduction_settle(prefill->reduction, &prefill->seq, n_rows, logits, err)
                              : RP_OK;
}

int segment_prefill_requeue(rp_engine *e, segment_prefill *prefill, rp_error *err) {
    segment_needs_release(e, &prefill->needs);
    kv_context_clear(&prefill->seq.context);
    drop_states(e, prefill);
    prefill->composed = false;
    prefill->seq.done = 0;
    prefill->seq.slots = 0;
    reserve_blocks(e, prefill);
    return add_scope(e, prefill, 0, err);
}

static int keep_span(rp_engine *e, const rp_schema *schema, const pml_segment *s, int32_t i, kv_span *span,
                     rp_error *err) {
    const pml_layout *l = schema->layout;
    const base_key *keys = pml_segment_keys(l, s);
    int32_t first = i * KV_SPAN_TOKENS, n = kv_span_tokens(span);
    BASE_ASSERT(i >= 0 && i < s->n_spans && n == BASE_MIN(KV_SPAN_TOKENS, s->n_tokens - first));
    char label[RECORD_MAX_LABEL + 1];
    const span_terms terms = terms_of(l, s);
    record about = {
        .kind = RECORD_MODULE,
        .n_tokens = n,
        .tokens = pml_segment_tokens(l, s) + first,
        .label = label,
        .cost_us = cost_model_usual_us(e->cost, n, kv_span_position(span)),
        .tenant = span_tenant(&schema->salt),
    };
    if (i > 0) about.parent = keys[i - 1];
    pml_layout_label_of(l, s, label);
    return span_store_put(e->store, span, NULL, &about, &terms, err);
}

/* The i-th of n reduced spans: as expensive as its share of the segment, which is computed and repeated. */
static int keep_reduced(rp_engine *e, const rp_schema *schema, const pml_segment *s, int32_t i, int32_t n,
                        kv_span *span, rp_error *err) {
    const pml_layout *l = schema->layout;
    char label[RECORD_MAX_LABEL + 1];
    BASE_ASSERT(i >= 0 && i < n && kv_span_parts(span) == n); /* a lookup learns their number from the first one */
    const span_terms terms = terms_of(l, s);
    record about = {
        .kind = RECORD_REDUCED,
        .at = i,
        .label = label,
        .tenant = span_tenant(&schema->salt),
        .cost_us = 2 * cost_model_usual_us(e->cost, s->n_tokens, s->pos) / (uint64_t)n,
    };
    about.parent = i > 0 ? pml_reduced_key(s, i - 1) : *pml_layout_name_of(l, s);
    pml_layout_label_of(l, s, label);
    return span_store_put(e->store, span, NULL, &about, &terms, err);
}

/* Gives references to all waiters. end: the states after it; NULL: of a model without recurrent layers. */
static int segment_prefill_hand_over(segment_prefill *prefill, kv_span *const *spans, int32_t n, kv_span *end,
                                     rp_error *err) {
    kv_span *begin = end ? states_before(prefill) : NULL;
    for (segment_need *w = prefill->waiters; w; w = w->next) {
        w->spans = base_calloc((size_t)n, sizeof(*w->spans));
        if (!w->spans) return base_fail_memory(err, (uint64_t)n * sizeof(*w->spans), "spans");
        w->n_spans = n;
        for (int32_t i = 0; i < n; i++) w->spans[i] = kv_span_ref(spans[i]);
        if (end && w->view.states != SEGMENT_STATES_NONE) w->end = kv_span_ref(end);
        if (begin && w->view.states == SEGMENT_STATES_BOTH) w->begin = kv_span_ref(begin);
    }
    for (segment_need *w = prefill->waiters, *next; w; w = next) {
        next = w->next;
        w->next = NULL;
        w->prefill = NULL;
        BASE_ASSERT(w->owner->n_missing > 0);
        w->owner->n_missing--;
    }
    prefill->waiters = NULL;
    return RP_OK;
}

/* Replaces a complete span by its encoded form. */
static int encode_span(rp_engine *e, segment_prefill *prefill, size_t view, rp_error *err) {
    sequence *seq = &prefill->seq;
    const kv_span *span = seq->context.views[view].span;
    kv_span *encoded;
    int rc = kv_span_new_like(&encoded, span, segment_prefill_segment(prefill)->format, err);
    if (rc) return rc;
    sequence_reserve(seq,
                     BASE_MAX(seq->reserved - (int64_t)(kv_span_bytes(encoded) / kv_pool_block_bytes(e->pool)), 0));
    if ((rc = e->backend->ops->encode(e->backend, span, encoded, err))) kv_span_unref(encoded);
    else kv_context_replace(&seq->context, view, encoded);
    return rc;
}

/* Its spans, sealed: *out, references. */
static int finish_spans(rp_engine *e, segment_prefill *prefill, kv_span ***out, rp_error *err) {
    const pml_layout *l = segment_prefill_layout(prefill);
    const pml_segment *s = segment_prefill_segment(prefill);
    kv_context *c = &prefill->seq.context;
    kv_span **spans = *out = base_calloc((size_t)s->n_spans, sizeof(*spans));
    int rc = spans ? RP_OK : base_fail_memory(err, (uint64_t)s->n_spans * sizeof(*spans), "spans");
    kv_context_close(c);
    BASE_ASSERT(c->n_views >= (size_t)s->n_spans); /* the last ones */
    for (int32_t i = 0; i < s->n_spans && !rc; i++) {
        const size_t view = c->n_views - (size_t)s->n_spans + (size_t)i;
        if (kv_format_is_encoded(s->format) && (rc = encode_span(e, prefill, view, err))) return rc;
        kv_span_seal(c->views[view].span, &pml_segment_keys(l, s)[i]);
        spans[i] = kv_span_ref(c->views[view].span);
        if (prefill->kept) rc = keep_span(e, prefill->schema, s, i, spans[i], err);
    }
    return rc;
}

/* The same of its reduced spans, *n of them. */
static int finish_reduced(rp_engine *e, segment_prefill *prefill, kv_span ***out, int32_t *n, rp_error *err) {
    const pml_segment *s = segment_prefill_segment(prefill);
    int rc = segment_reduction_finish(prefill->reduction, &prefill->seq, out, n, err);
    for (int32_t i = 0; i < *n && !rc; i++) {
        const base_key key = pml_reduced_key(s, i);
        kv_span_seal((*out)[i], &key);
        if (prefill->kept) rc = keep_reduced(e, prefill->schema, s, i, *n, (*out)[i], err);
    }
    if (!rc && prefill->kept) reduced_modules_add(e, s);
    return rc;
}

int segment_prefill_finish(rp_engine *e, segment_prefill *prefill, rp_error *err) {
    const pml_segment *s = segment_prefill_segment(prefill);
    kv_span **spans = NULL, *end = NULL;
    BASE_ASSERT(prefill->composed && prefill->seq.done == prefill->seq.n);
    int32_t n = prefill->reduction ? 0 : s->n_spans;
    int rc = prefill->reduction ? finish_reduced(e, prefill, &spans, &n, err) : finish_spans(e, prefill, &spans, err);
    if (!rc && e->is_recurrent) rc = finish_states(e, prefill, &end, err);
    if (!rc) rc = segment_prefill_hand_over(prefill, spans, n, end, err);
    for (int32_t i = 0; i < n && spans; i++) kv_span_unref(spans[i]);
    kv_span_unref(end);
    base_free(spans);
    if (rc) return rc;
    if (prefill->reduction)
        BASE_TRACE(ENGINE, "reduced a segment of %d tokens at %d to %d spans", s->n_tokens, s->pos, n);
    else
        BASE_TRACE(ENGINE, "prefilled a segment of %d tokens at %d, scope of %d segments", s->n_tokens, s->pos,
                   s->n_scope);
    segment_prefills_free_prefill(e, prefill);
    return RP_OK;
}

void segment_prefills_forget(rp_engine *e, const rp_job *c) {
    for (segment_prefill *j = e->prefills; j; j = j->next)
        if (j->asker == c) j->asker = NULL;
}

static void forget_spans(segment_need *need) {
    for (int32_t i = 0; i < need->n_spans && need->spans; i++) kv_span_unref(need->spans[i]);
    base_free(need->spans);
    need->spans = NULL;
    kv_span_unref(need->end);
    kv_span_unref(need->begin);
    need->end = need->begin = NULL;
}

void segment_prefill_fail(rp_engine *e, segment_prefill *prefill, const rp_error *err) {
    BASE_ASSERT(err->code != RP_OK); /* its waiters would wait for ever */
    for (segment_need *w = prefill->waiters, *next; w; w = next) {
        next = w->next;
        forget_spans(w);
        w->next = NULL;
        w->prefill = NULL;
        w->owner->rc = err->code;
        w->owner->err = *err;
    }
    prefill->waiters = NULL;
    segment_prefills_free_prefill(e, prefill);
}

/* ---- needs ---- */

int segment_needs_reserve(segment_needs *needs, int32_t n, rp_error *err) {
    BASE_ASSERT(needs->n == 0);
    base_free(needs->items);
    *needs = (segment_needs){.items = base_calloc((size_t)n, sizeof(*needs->items)), .cap = n};
    return needs->items ? RP_OK : base_fail_memory(err, (uint64_t)n * sizeof(*needs->items), "a plan");
}

static const char *reason_of_miss(const rp_engine *e, const base_key *key, span_found found) {
    return found == SPAN_FOUND_NO_MEMORY ? "memory" : span_store_was_dropped(e->store, key) ? "evicted"
                                                                                            : "new";
}

/* The same for reduced spans: the first one has their number. */
static bool look_up_reduced(rp_engine *e, const pml_segment *s, segment_need *need) {
    int32_t n = 1;
    for (int32_t i = 0; i < n; i++) {
        const base_key key = pml_reduced_key(s, i);
        span_found found;
        kv_span *span = span_store_get(e->store, &key, &found), **spans = need->spans;
        need->from = span_found_slower(need->from, found);
        if (span && i == 0) n = kv_span_parts(span);
        if (span && i == 0 && !(spans = base_calloc((size_t)n, sizeof(*spans))))
            kv_span_unref(span), span = NULL, found = SPAN_FOUND_NO_MEMORY;
        if (!span) {
            need->reason = reason_of_miss(e, &key, found);
            return false;
        }
        need->spans = spans;
        need->spans[i] = span;
        need->n_spans = i + 1;
    }
    return true;
}

/* Takes references to all spans of a segment from the store, or to none. A forged record may have another number of
 * tokens than its key is of. */
static bool segment_prefills_look_up(rp_engine *e, const pml_layout *l, const pml_segment *s, segment_need *need) {
    if (need->view.reduced) return look_up_reduced(e, s, need);
    for (int32_t i = 0; i < s->n_spans; i++) {
        const base_key *key = &pml_segment_keys(l, s)[i];
        span_found found;
        need->spans[i] = span_store_get(e->store, key, &found);
        need->from = span_found_slower(need->from, found);
        const int32_t n = BASE_MIN(KV_SPAN_TOKENS, s->n_tokens - i * KV_SPAN_TOKENS);
        const kv_span *span = need->spans[i];
        if (span && kv_span_tokens(span) == n && pml_segment_has_kept(l, s, i, span)) continue;
        need->reason = reason_of_miss(e, key, found);
        return false;
    }
    return true;
}

/* The checkpoint after a segment: a reference; NULL: a miss. */
static kv_span *get_states(rp_engine *e, const pml_layout *l, const pml_segment *s, segment_need *need) {
    const base_key key = segment_states_name(l, s);
    span_found found;
    kv_span *states = span_store_get(e->store, &key, &found);
    need->from = span_found_slower(need->from, found);
    if (!states) need->reason = found == SPAN_FOUND_NO_MEMORY ? "memory" : "checkpoint";
    return states;
}

/* Takes references to the states that a need has to have. */
static bool look_up_states(rp_engine *e, const pml_layout *l, const pml_segment *s, segment_need *need) {
    if (need->view.states == SEGMENT_STATES_NONE) return true;
    if (!(need->end = get_states(e, l, s, need))) return false;
    if (need->view.states == SEGMENT_STATES_END || s->n_scope == 0) return true;
    need->begin = get_states(e, l, &l->segments[pml_segment_scope(l, s)[s->n_scope - 1]], need);
    return need->begin;
}

static int add_need(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_job *asker,
                    bool look, int depth, rp_error *err) {
    const pml_layout *l = schema->layout;
    const pml_segment *s = &l->segments[view->segment];
    BASE_ASSERT(needs->n < needs->cap);
    segment_need *need = &needs->items[needs->n];
    *need = (segment_need){
        .view = *view, .n_spans = view->reduced ? 0 : s->n_spans, .owner = needs, .reason = look ? "" : "off"};
    if (!view->reduced && !(need->spans = base_calloc((size_t)s->n_spans, sizeof(*need->spans))))
        return base_fail_memory(err, (uint64_t)s->n_spans * sizeof(*need->spans), "spans");
    needs->n++;
    if (look && segment_prefills_look_up(e, l, s, need) && look_up_states(e, l, s, need)) return RP_OK;
    forget_spans(need);
    need->missed = true;
    if (view->reduced) need->n_spans = 0;
    segment_prefill *prefill = find_prefill(e, l, s, view->reduced, asker, look);
    if (prefill && !(asker && asker->kind == JOB_BACKGROUND)) hurry_prefill(prefill, asker);
    int rc = prefill ? RP_OK : segment_prefills_new_prefill(e, &prefill, schema, view, asker, look, depth, err);
    if (rc) return rc;
    need->prefill = prefill;
    need->next = prefill->waiters;
    prefill->waiters = need;
    needs->n_missing++;
    return RP_OK;
}

int segment_needs_add(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_job *asker,
                      bool look, rp_error *err) {
    return add_need(e, needs, schema, view, asker, look, 0, err);
}

static int kv_context_add_view(kv_context *c, const pml_layout *l, const segment_view *view, kv_span *span,
                               int32_t first, rp_error *err) {
    BASE_ASSERT(kv_span_is_sealed(span)); /* invariant 3; invariant 1 of src/kv: an open span is not shared */
    const pml_segment *s = &l->segments[view->segment];
    const pml_hole *holes = pml_segment_holes(l, s);
    uint64_t mask[KV_SPAN_BLOCKS];
    if (view->reduced) return kv_context_add(c, span, view->shift, NULL, err);
    kv_mask_first(mask, view->n_tokens - first);
    for (int32_t i = 0; i < s->n_holes && view->mask_holes; i++)
        kv_mask_clear(mask, holes[i].offset - first, holes[i].offset + holes[i].len - first);
    for (int32_t i = 0; i < view->n_again; i++) kv_mask_clear(mask, view->again[i] - first, view->again[i] + 1 - first);
    return kv_context_add(c, span, view->shift, mask, err);
}

int segment_needs_compose(const segment_needs *needs, const pml_layout *l, kv_context *c, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(needs->n_missing == 0);
    for (int32_t k = 0; k < needs->n; k++) {
        const segment_need *need = &needs->items[k];
        for (int32_t i = 0; i < need->n_spans && !rc; i++)
            rc = kv_context_add_view(c, l, &need->view, need->spans[i], i * KV_SPAN_TOKENS, err);
    }
    return rc;
}

void segment_needs_use(rp_engine *e, const segment_needs *needs, const pml_layout *l) {
    BASE_ASSERT(needs->n_missing == 0);
    for (int32_t k = 0; k < needs->n; k++) {
        const pml_segment *s = &l->segments[needs->items[k].view.segment];
        span_terms terms = terms_of(l, s);
        void (*const count)(span_store *, const base_key *, const span_terms *) =
            needs->items[k].missed ? span_store_mark : span_store_use;
        for (int32_t i = 0; i < needs->items[k].n_spans; i++)
            count(e->store, kv_span_key(needs->items[k].spans[i]), &terms);
        if (needs->items[k].end) count(e->store, kv_span_key(needs->items[k].end), &terms);
    }
}

bool segment_need_is_whole(const segment_need *need) {
    BASE_ASSERT(!need->prefill && need->n_spans > 0); /* it is met */
    for (int32_t i = 0; i < need->n_spans; i++)
        if (kv_span_readable_from(need->spans[i]) != INT32_MIN) return false;
    return true;
}

void segment_needs_remove(segment_needs *needs, int32_t index) {
    segment_need *need = &needs->items[index];
    BASE_ASSERT(needs->n_missing == 0 && index >= 0 && index < needs->n);
    forget_spans(need);
    memmove(need, need + 1, (size_t)(--needs->n - index) * sizeof(*need));
}

void segment_needs_drop_spans(segment_needs *needs) {
    BASE_ASSERT(needs->n_missing == 0);
    for (int32_t i = 0; i < needs->n; i++) forget_spans(&needs->items[i]);
}

void segment_needs_release(rp_engine *e, segment_needs *needs) {
    for (int32_t i = 0; i < needs->n; i++) {
        segment_need *need = &needs->items[i];
        if (need->prefill) {
            BASE_CHAIN_REMOVE(segment_need, need->prefill->waiters, need, next);
            if (!need->prefill->waiters) segment_prefills_free_prefill(e, need->prefill);
            need->prefill = NULL;
        }
        forget_spans(need);
    }
    base_free(needs->items);
    *needs = (segment_needs){0};
}
