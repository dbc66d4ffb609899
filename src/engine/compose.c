/* compose.c: segments -> spans: from the store, or computed in their scope and kept; steps of the forward pass. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

/* Segments that need segments that need segments ...: when the budget is so small that scopes are evicted while they are used, this
 * would not end. Scopes name earlier segments only, and those are there after the first pass, so real depths are 2. */
#define MAX_DEPTH 64

/* ---- steps ---- */

static int fill_rows(rp_engine *e, kv_context *c, const int32_t *tokens, const int32_t *positions, int32_t n, rp_error *err) {
    for (int32_t r = 0; r < n; r++) {
        model_row *row = &e->rows[r];
        *row = (model_row){.token = tokens[r], .pos = positions[r]};
        int rc = kv_context_append(c, positions[r], &row->span, &row->slot, err);
        if (rc) return rc;
    }
    return RP_OK;
}

int engine_compute(rp_engine *e, kv_context *c, const int32_t *tokens, const int32_t *positions, size_t n, float *logits,
                   rp_error *err) {
    const kv_context *contexts[] = {c};
    for (size_t done = 0; done < n;) {
        int32_t rows = (int32_t)BASE_MIN((size_t)e->chunk_tokens, n - done);
        int rc = fill_rows(e, c, tokens + done, positions + done, rows, err);
        if (rc) return rc;
        done += (size_t)rows;
        if (logits && done == n) e->rows[rows - 1].wants_logits = true;
        model_step step = {.rows = e->rows, .n_rows = rows, .contexts = contexts, .n_contexts = 1};
        if ((rc = model_forward_step(e->forward, &step, logits, err))) return rc;
        /* Layers with windows forget what is out of reach: of the last token, which a prompt that ends with it computes anew. */
        kv_context_trim(c, positions[done - 1]);
    }
    return RP_OK;
}

/* ---- segments ---- */

static int check_end(const rp_engine *e, int64_t end, rp_error *err) {
    if (end <= e->n_ctx) return RP_OK;
    return base_fail(err, RP_ERR_CONTEXT, "a module and its scope take %lld positions, the context holds %d: split it, or raise --ctx",
                     (long long)end, e->n_ctx);
}

static int compute_tokens(rp_engine *e, kv_context *c, const pml_layout *l, const pml_segment *s, engine_encoding *encoding,
                          rp_error *err) {
    int32_t positions[256];
    for (int32_t done = 0; done < s->n_tokens;) {
        int32_t n = BASE_MIN(BASE_MIN(s->n_tokens - done, e->chunk_tokens), (int32_t)BASE_ARRAY_LEN(positions));
        for (int32_t i = 0; i < n; i++) positions[i] = s->pos + done + i;
        int rc = engine_compute(e, c, pml_segment_tokens(l, s) + done, positions, (size_t)n, NULL, err);
        if (rc) return rc;
        done += n;
        encoding->done += (uint64_t)n;
        if (encoding->on_progress) encoding->on_progress(encoding->user, encoding->done, BASE_MAX(encoding->total, encoding->done));
    }
    return RP_OK;
}

/* Seals the spans that were computed, which end the context, and gives them to the store. */
static int keep_spans(rp_engine *e, kv_context *c, const pml_layout *l, const pml_segment *s, rp_error *err) {
    kv_context_close(c);
    for (int32_t i = 0; i < s->n_spans; i++) {
        kv_span *span = c->views[c->n_views - (size_t)s->n_spans + (size_t)i].span;
        kv_span_seal(span, &pml_segment_keys(l, s)[i]);
        int rc = span_store_put(engine_store(e), span, NULL, err);
        if (rc) return rc;
    }
    return RP_OK;
}

/* Computes a segment in its scope. c ends with its spans. */
static int compute_segment(rp_engine *e, kv_context *c, const pml_layout *l, const pml_segment *s, engine_encoding *encoding,
                           rp_error *err) {
    int32_t cursor = 0;
    int rc = check_end(e, (int64_t)s->pos + s->n_tokens, err);
    for (int32_t i = 0; i < s->n_scope && !rc; i++) {
        int32_t index = pml_segment_scope(l, s)[i];
        const pml_segment *t = &l->segments[index];
        segment_view view = {index, pml_scope_position(l, s, i, &cursor) - t->pos, t->n_tokens, false};
        rc = engine_add_segment(e, c, l, &view, encoding, NULL, err);
    }
    kv_positions *holes = NULL;
    if (!rc) rc = pml_segment_readers(l, s, &holes, err);
    c->later = holes;
    c->n_later = (size_t)s->n_holes;
    if (!rc) rc = compute_tokens(e, c, l, s, encoding, err);
    c->later = NULL;
    c->n_later = 0;
    base_free(holes);
    return rc ? rc : keep_spans(e, c, l, s, err);
}

static int add_view(kv_context *c, const pml_layout *l, const segment_view *view, kv_span *span, int32_t first, rp_error *err) {
    const pml_segment *s = &l->segments[view->segment];
    const pml_hole *holes = pml_segment_holes(l, s);
    uint64_t mask[KV_SPAN_BLOCKS];
    kv_mask_first(mask, view->n_tokens - first);
    for (int32_t i = 0; i < s->n_holes && view->mask_holes; i++)
        kv_mask_clear(mask, holes[i].offset - first, holes[i].offset + holes[i].len - first);
    return kv_context_add(c, span, view->shift, mask, err);
}

static void unref_all(kv_span **spans, int32_t n) {
    for (int32_t i = 0; i < n; i++) kv_span_unref(spans[i]);
}

/* All spans of a segment from the store, with references, or none of them. */
static bool look_up(rp_engine *e, const pml_layout *l, const pml_segment *s, kv_span **spans) {
    for (int32_t i = 0; i < s->n_spans; i++) {
        spans[i] = span_store_get(engine_store(e), &pml_segment_keys(l, s)[i]);
        if (spans[i]) continue;
        unref_all(spans, i);
        memset(spans, 0, (size_t)s->n_spans * sizeof(*spans));
        return false;
    }
    return true;
}

static int compute_missing(rp_engine *e, const pml_layout *l, const pml_segment *s, kv_span **spans, engine_encoding *encoding,
                           rp_error *err) {
    if (encoding->depth >= MAX_DEPTH)
        return base_fail(err, RP_ERR_MEMORY, "the state budget cannot hold a module together with its scope: raise it (--ram)");
    kv_context c;
    kv_context_init(&c, e->pool);
    uint64_t start = base_clock_us();
    encoding->depth++;
    int rc = compute_segment(e, &c, l, s, encoding, err);
    encoding->depth--;
    if (encoding->depth == 0) encoding->us += base_clock_us() - start;
    for (int32_t i = 0; i < s->n_spans && !rc; i++)
        spans[i] = kv_span_ref(c.views[c.n_views - (size_t)s->n_spans + (size_t)i].span);
    kv_context_clear(&c);
    BASE_TRACE(ENGINE, "computed a segment of %d tokens at %d, scope of %d segments: %d", s->n_tokens, s->pos, s->n_scope, rc);
    return rc;
}

int engine_add_segment(rp_engine *e, kv_context *c, const pml_layout *l, const segment_view *view, engine_encoding *encoding,
                       bool *computed, rp_error *err) {
    const pml_segment *s = &l->segments[view->segment];
    kv_span **spans = base_calloc((size_t)s->n_spans, sizeof(*spans));
    if (!spans) return base_fail_memory(err, (uint64_t)s->n_spans * sizeof(*spans), "spans");
    bool missing = !look_up(e, l, s, spans);
    int rc = missing ? compute_missing(e, l, s, spans, encoding, err) : RP_OK;
    if (computed) *computed = missing;
    for (int32_t i = 0; i < s->n_spans && !rc; i++) rc = add_view(c, l, view, spans[i], i * KV_SPAN_TOKENS, err);
    unref_all(spans, s->n_spans); /* those that were not found are NULL */
    base_free(spans);
    return rc;
}
