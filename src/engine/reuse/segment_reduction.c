/* SPDX-License-Identifier: Apache-2.0 */
/* segment_reduction.c: see segment_reduction.h. */
#include "engine/reuse/segment_reduction.h"

#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/sequence.h"
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
#include "model/tokenizer/tokenizer.h"
#include "pml/layout.h"
#include "sampling/sampler.h"
#include "store/record/record.h"

#define LEAST_CHUNK 64  /* tokens of a repetition that is worth a pass */
#define MOST_ASKING 128 /* tokens that ask for it, approximately */

/* Tokens up to `end`: rows of the segment, or what asks for a repetition and the repeated chunk. */
typedef struct reduction_piece {
    int32_t end;
    bool is_own;
} reduction_piece;

struct segment_reduction {
    rp_engine *engine;
    const pml_layout *layout;
    const pml_segment *segment;
    reduction_method method;
    bool recomputes;
    token_list tokens; /* of all pieces */
    int32_t *positions;
    reduction_piece *pieces; /* [n_pieces] */
    int32_t n_pieces, piece; /* piece: the next one, or the current one */
    int32_t most_repeated;   /* tokens of the longest piece that is not the segment's */
    size_t first_view;       /* of the segment's spans in the context */
    attention_observer *observer;
    reduction_queries *queries;
    query_record *record; /* of a span */
    bool *left_out;       /* placeholders; NULL: none */
    /* auto: a candidate share of shares[low..high], the highest of which is good enough */
    int32_t repeated;           /* piece of the first repetition; */
    int32_t judged, judged_end; /* its tokens by which candidates are judged; */
    int32_t low, high, n_candidates;
    bool judges;          /* a candidate is computed; */
    double full_nll, nll; /* sums over the judged tokens: of full KV, and of what is computed now */
    float *scores;
    kv_span **run; /* [n_spans] references to the full spans */
};

static const int32_t shares[] = SEGMENT_REDUCTION_SHARES;
#define LAST_SHARE ((int32_t)BASE_ARRAY_LEN(shares) - 1)

static bool is_auto(const segment_reduction *r) { return r->segment->keep == REDUCTION_AUTO; }

rp_kv_format segment_open_format(const rp_engine *e, const pml_segment *s) {
    return kv_format_is_encoded(s->format) ? e->states->shape.format : s->format;
}

bool segment_reduction_fits(const rp_engine *e, const pml_segment *s) {
    return (int64_t)s->pos + s->n_tokens + MOST_ASKING + BASE_MIN(s->n_tokens, LEAST_CHUNK) <= e->n_ctx;
}

bool segment_reduction_recomputes(const segment_reduction *r) { return r->recomputes; }

/* ---- pieces ---- */

static int add_piece(segment_reduction *r, bool is_own, rp_error *err) {
    reduction_piece *pieces = base_realloc(r->pieces, (size_t)(r->n_pieces + 1) * sizeof(*pieces));
    if (!pieces) return base_fail_memory(err, (uint64_t)r->n_pieces * sizeof(*pieces), "a module to reduce");
    const int32_t begin = r->n_pieces > 0 ? pieces[r->n_pieces - 1].end : 0, end = (int32_t)r->tokens.n;
    if (!is_own) r->most_repeated = BASE_MAX(r->most_repeated, end - begin);
    r->pieces = pieces;
    r->pieces[r->n_pieces++] = (reduction_piece){end, is_own};
    return RP_OK;
}

/* Tokens [begin, end) of the segment; holes: placeholders too. */
static int append_tokens(segment_reduction *r, int32_t begin, int32_t end, bool holes, rp_error *err) {
    const int32_t *tokens = pml_segment_tokens(r->layout, r->segment);
    int rc = RP_OK;
    BASE_ASSERT(begin >= 0 && begin < end && end <= r->segment->n_tokens);
    for (int32_t i = begin; i < end && !rc; i++)
        if (holes || !r->left_out || !r->left_out[i]) rc = token_list_push(&r->tokens, tokens[i]);
    return rc ? base_fail_memory(err, (uint64_t)(end - begin) * sizeof(*tokens), "tokens") : RP_OK;
}

/* The segment's own rows; with queries, which are added span by span, a piece for each span. */
static int list_own(segment_reduction *r, rp_error *err) {
    const int32_t n = r->segment->n_tokens, most = reduction_method_needs_queries(r->method) ? KV_SPAN_TOKENS : n;
    int rc = RP_OK;
    for (int32_t i = 0; i < n && !rc; i += most) {
        rc = append_tokens(r, i, BASE_MIN(i + most, n), true, err);
        if (!rc) rc = add_piece(r, true, err);
    }
    return rc;
}

static int list_repetitions(segment_reduction *r, rp_error *err) {
    const pml_segment *s = r->segment;
    const int32_t most = BASE_MIN(SEGMENT_REDUCTION_CHUNK, r->engine->n_ctx - s->pos - s->n_tokens - MOST_ASKING);
    if (most < BASE_MIN(s->n_tokens, LEAST_CHUNK))
        return base_fail(err, RP_ERR_CONTEXT,
                         "a module of %d tokens at %d leaves no positions for its repetition: raise n_ctx", s->n_tokens,
                         s->pos);
    int rc = RP_OK;
    for (int32_t i = 0; i < s->n_tokens && !rc; i += most) {
        rc = pml_append_asking(r->layout, s, i, &r->tokens, err);
        if (i == 0) r->repeated = r->n_pieces, r->judged = (int32_t)r->tokens.n;
        if (!rc) rc = append_tokens(r, i, i + BASE_MIN(most, s->n_tokens - i), false, err);
        if (i == 0) r->judged_end = BASE_MIN((int32_t)r->tokens.n, r->judged + SEGMENT_REDUCTION_JUDGED);
        if (!rc) rc = add_piece(r, false, err);
    }
    if (rc || r->most_repeated <= most + MOST_ASKING) return rc;
    return base_fail(err, RP_ERR_CONTEXT, "what asks for a module's repetition takes more than %d tokens", MOST_ASKING);
}

/* The segment's own positions; then those after it, for each repetition. */
static int list_positions(segment_reduction *r, rp_error *err) {
    const pml_segment *s = r->segment;
    BASE_ASSERT(r->n_pieces > 0 && (size_t)r->pieces[r->n_pieces - 1].end == r->tokens.n); /* pieces have all tokens */
    r->positions = base_alloc((r->tokens.n + 1) * sizeof(*r->positions));
    if (!r->positions) return base_fail_memory(err, r->tokens.n * sizeof(*r->positions), "positions");
    for (int32_t p = 0, i = 0, first = 0; p < r->n_pieces; first = r->pieces[p++].end)
        for (; i < r->pieces[p].end; i++)
            r->positions[i] = r->pieces[p].is_own ? s->pos + i : s->pos + s->n_tokens + i - first;
    return RP_OK;
}

static int list_left_out(segment_reduction *r, rp_error *err) {
    const pml_segment *s = r->segment;
    const pml_hole *holes = pml_segment_holes(r->layout, s);
    if (s->n_holes == 0) return RP_OK;
    r->left_out = base_calloc((size_t)s->n_tokens, sizeof(*r->left_out));
    if (!r->left_out) return base_fail_memory(err, (uint64_t)s->n_tokens, "a module to reduce");
    for (int32_t i = 0; i < s->n_holes; i++) {
        BASE_ASSERT(holes[i].offset >= 0 && holes[i].len <= s->n_tokens - holes[i].offset);
        for (int32_t k = 0; k < holes[i].len; k++) r->left_out[holes[i].offset + k] = true;
    }
    return RP_OK;
}

int segment_reduction_new(segment_reduction **out, rp_engine *e, const pml_layout *l, const pml_segment *s,
                          rp_error *err) {
    BASE_ASSERT(s->keep > 0);
    segment_reduction *r = *out = base_calloc(1, sizeof(*r));
    if (!r) return base_fail_memory(err, sizeof(*r), "a module to reduce");
    *r = (segment_reduction){.engine = e, .layout = l, .segment = s, .method = l->formats.method};
    r->recomputes = kv_format_is_encoded(s->format) || !reduction_method_repeats(r->method);
    int rc = list_left_out(r, err);
    if (!rc && r->recomputes) rc = list_own(r, err);
    if (!rc && (is_auto(r) || reduction_method_repeats(r->method))) rc = list_repetitions(r, err);
    if (!rc) rc = list_positions(r, err);
    if (!rc) return RP_OK;
    segment_reduction_free(r);
    *out = NULL;
    return rc;
}

static void forget_scores(segment_reduction *r) {
    attention_observer_free(r->observer);
    reduction_queries_free(r->queries);
    base_free(r->record);
    base_free(r->scores);
    for (int32_t i = 0; i < r->segment->n_spans && r->run; i++) kv_span_unref(r->run[i]);
    base_free(r->run);
    r->scores = NULL;
    r->run = NULL;
    r->judges = false;
    r->full_nll = r->nll = 0;
    r->observer = NULL;
    r->queries = NULL;
    r->record = NULL;
}

void segment_reduction_free(segment_reduction *r) {
    if (!r) return;
    forget_scores(r);
    token_list_free(&r->tokens);
    base_free(r->positions);
    base_free(r->pieces);
    base_free(r->left_out);
    base_free(r);
}

/* Upper bound of the blocks that a share of the slots of n tokens takes, in 1/1000: a head has a partly filled cell. */
static int64_t most_reduced_blocks(const kv_pool *pool, rp_kv_format format, int32_t n, int32_t permille) {
    const kv_shape *shape = kv_pool_shape(pool);
    BASE_ASSERT(permille > 0 && permille <= REDUCTION_ALL);
    const int64_t kept = ((int64_t)n * permille + 999) / 1000, most = BASE_DIV_UP(n, KV_BLOCK_SLOTS);
    const int64_t n_cells =
        (int64_t)shape->n_layers * kv_shape_heads(shape) * BASE_MIN(kept / KV_BLOCK_SLOTS + 1, most);
    return kv_reduced_blocks(pool, format, n_cells, BASE_DIV_UP(n, KV_SPAN_TOKENS));
}

int64_t segment_reduction_blocks(const rp_engine *e, const pml_segment *s) {
    const rp_kv_format open = segment_open_format(e, s);
    const int32_t most_repeated = MOST_ASKING + BASE_MIN(s->n_tokens, SEGMENT_REDUCTION_CHUNK);
    int64_t blocks =
        sequence_held_blocks(e->pool, open, s->n_tokens) + sequence_blocks_in(e->pool, open, most_repeated, 1, 0, true);
    const int32_t most = BASE_MIN(s->keep, REDUCTION_ALL); /* auto: of a candidate, and of the chosen share */
    blocks += most_reduced_blocks(e->pool, open, s->n_tokens, most) * (s->keep == REDUCTION_AUTO ? 2 : 1);
    return blocks + (s->format != open ? most_reduced_blocks(e->pool, s->format, s->n_tokens, most) : 0);
}

/* ---- rows ---- */

int segment_reduction_begin(segment_reduction *r, sequence *seq, rp_error *err) {
    const rp_model *m = r->engine->model;
    forget_scores(r);
    BASE_ASSERT(seq->done == 0);
    BASE_ASSERT(r->recomputes || seq->context.n_views >= (size_t)r->segment->n_spans); /* its full spans are last */
    r->piece = 0;
    r->first_view = seq->context.n_views - (r->recomputes ? 0 : (size_t)r->segment->n_spans);
    seq->tokens = r->tokens.ids;
    seq->positions = r->positions;
    seq->n = (int32_t)r->tokens.n;
    seq->keeps_windows = !r->recomputes;
    int rc = reduction_observer_new(&r->observer, m, r->method, r->first_view, (size_t)r->segment->n_spans, err);
    if (rc || !reduction_method_needs_queries(r->method)) return rc;
    rc = reduction_queries_new(&r->queries, m, r->engine->n_ctx, r->method, r->segment->n_tokens, err);
    return rc ? rc : query_record_new(&r->record, m->net.hp.n_layers, m->net.hp.n_heads * m->net.hp.key_dim, err);
}

/* Where the current rows end: with the piece, or with the judged tokens of a candidate. */
static int32_t end_of_rows(const segment_reduction *r) {
    BASE_ASSERT(r->piece < r->n_pieces && (!r->judges || r->piece == r->repeated));
    return r->judges ? r->judged_end : r->pieces[r->piece].end;
}

int32_t segment_reduction_most_rows(const segment_reduction *r, const sequence *seq) {
    return end_of_rows(r) - seq->done;
}

void segment_reduction_observe(segment_reduction *r, model_row *row) {
    const bool is_own = r->pieces[r->piece].is_own;
    if (r->judges) return;
    if (!is_own) row->observer = r->observer;
    if (is_own) row->queries = r->record;
}

/* The segment's own rows are complete: later rows see it as prompts do, without placeholders, and free none of its
   blocks. */
static void end_own(segment_reduction *r, sequence *seq) {
    kv_context *c = &seq->context;
    const pml_hole *holes = pml_segment_holes(r->layout, r->segment);
    BASE_ASSERT(c->n_views == r->first_view + (size_t)r->segment->n_spans);
    kv_context_close(c);
    seq->keeps_windows = true;
    c->later = NULL;
    c->n_later = 0;
    for (int32_t v = 0; v < r->segment->n_spans; v++)
        for (int32_t i = 0; i < r->segment->n_holes; i++)
            kv_mask_clear(c->views[r->first_view + (size_t)v].mask, holes[i].offset - v * KV_SPAN_TOKENS,
                          holes[i].offset + holes[i].len - v * KV_SPAN_TOKENS);
}

/* Drops the views from `first` on; what this frees is reserved for the rows that follow. */
static void drop_views(segment_reduction *r, sequence *seq, size_t first) {
    kv_context *c = &seq->context;
    uint64_t bytes = 0;
    BASE_ASSERT(first >= r->first_view && first <= c->n_views); /* the scope stays */
    for (size_t i = first; i < c->n_views; i++)
        if (kv_span_is_unshared(c->views[i].span)) bytes += kv_span_bytes(c->views[i].span);
    kv_context_drop(c, c->n_views - first);
    seq->slots = kv_context_slots(c);
    sequence_reserve(seq, seq->reserved + (int64_t)(bytes / kv_pool_block_bytes(r->engine->pool)));
}

/* ---- auto ---- */

bool segment_reduction_wants_logits(const segment_reduction *r, const sequence *seq) {
    return is_auto(r) && r->piece == r->repeated && seq->done + 1 < r->judged_end;
}

/* Adds the negative log-likelihood of the text's tokens that the rows [first, first + n) predict. */
static void add_likelihood(segment_reduction *r, int32_t first, int32_t n, const float *logits) {
    const int32_t n_vocab = r->engine->model->net.hp.n_vocab;
    for (int32_t i = 0; i < n; i++) {
        const int32_t next = first + i + 1;
        if (next >= r->judged && next < r->judged_end)
            r->nll -= logprobs_token(logits + (size_t)i * (size_t)n_vocab, n_vocab, r->tokens.ids[next]);
    }
}

static const kv_span *const *full_spans(const segment_reduction *r) { return (const kv_span *const *)r->run; }

static reduction_run run_of(const segment_reduction *r, const kv_span *const *spans) {
    return (reduction_run){.model = r->engine->model,
                           .spans = spans,
                           .n_spans = (size_t)r->segment->n_spans,
                           .observer = r->observer,
                           .queries = r->queries,
                           .left_out = r->left_out};
}

/* Adds views of the slots that a candidate share keeps, in the place of the full spans. */
static int add_candidate(segment_reduction *r, sequence *seq, int32_t permille, rp_error *err) {
    static const base_key key; /* of spans that no lookup finds */
    const reduction_run run = run_of(r, full_spans(r));
    kv_selection *selection = NULL;
    int rc = reduction_select_scored(&selection, r->method, permille, &run, r->scores, err);
    const int32_t n = r->n_candidates = rc ? 0 : kv_reduced_spans(selection);
    for (int32_t i = 0; i < n && !rc; i++) {
        kv_span *span;
        if ((rc = kv_span_reduce(&span, full_spans(r), (size_t)r->segment->n_spans, selection, i, err))) break;
        sequence_reserve(
            seq, BASE_MAX(seq->reserved - (int64_t)(kv_span_bytes(span) / kv_pool_block_bytes(r->engine->pool)), 0));
        kv_span_seal(span, &key);
        rc = kv_context_add(&seq->context, span, 0, NULL, err);
        kv_span_unref(span);
    }
    kv_selection_free(selection);
    return rc;
}

/* The next candidate is judged by the first repetition; after the last one, all tokens are computed. */
static int next_candidate(segment_reduction *r, sequence *seq, rp_error *err) {
    BASE_ASSERT(r->low >= 0 && r->low <= r->high && r->high <= LAST_SHARE);
    drop_views(r, seq, r->first_view);
    r->judges = r->low < r->high;
    r->nll = 0;
    seq->done = seq->n = (int32_t)r->tokens.n;
    if (!r->judges) return RP_OK;
    r->piece = r->repeated;
    seq->n = r->judged_end;
    seq->done = r->repeated > 0 ? r->pieces[r->repeated - 1].end : 0;
    const int rc = add_candidate(r, seq, shares[(r->low + r->high) / 2], err);
    seq->slots = kv_context_slots(&seq->context);
    return rc;
}

/* All slots are scored: the search begins. */
static int begin_search(segment_reduction *r, sequence *seq, rp_error *err) {
    static const base_key key;
    const size_t n = (size_t)r->segment->n_spans;
    BASE_ASSERT(is_auto(r) && !r->run && !r->scores && seq->context.n_views >= r->first_view + n);
    r->run = base_alloc(n * sizeof(*r->run));
    if (!r->run) return base_fail_memory(err, n * sizeof(*r->run), "a module to reduce");
    for (size_t i = 0; i < n; i++) {
        kv_span *span = seq->context.views[r->first_view + i].span;
        if (!kv_span_is_sealed(span)) kv_span_seal(span, &key); /* its own, of this reduction only */
        r->run[i] = kv_span_ref(span);
    }
    const reduction_run run = run_of(r, full_spans(r));
    r->low = 0;
    r->high = LAST_SHARE;
    const int rc = reduction_score(&r->scores, r->engine->backend, r->method, &run, err);
    return rc ? rc : next_candidate(r, seq, err);
}

/* ---- the end of a piece ---- */

static int end_repetition(segment_reduction *r, sequence *seq, rp_error *err) {
    const int32_t piece = r->piece++;
    /* the views of the repetition's rows are those after the segment's full or reduced spans */
    drop_views(r, seq, r->first_view + (r->judges ? (size_t)r->n_candidates : (size_t)r->segment->n_spans));
    if (r->judges) { /* a candidate is computed: is it good enough? */
        BASE_ASSERT(r->low < r->high);
        const int32_t middle = (r->low + r->high) / 2, n = r->judged_end - r->judged;
        const bool is_good = r->nll - r->full_nll <= -log(SEGMENT_REDUCTION_LIKELIHOOD) * n;
        if (is_good) r->high = middle;
        else r->low = middle + 1;
        return next_candidate(r, seq, err);
    }
    if (piece == r->repeated) r->full_nll = r->nll;
    return is_auto(r) && r->piece == r->n_pieces ? begin_search(r, seq, err) : RP_OK;
}

int segment_reduction_settle(segment_reduction *r, sequence *seq, int32_t n_rows, const float *logits, rp_error *err) {
    const reduction_piece *p = &r->pieces[r->piece];
    if (logits) add_likelihood(r, seq->done - n_rows, n_rows, logits);
    if (seq->done < end_of_rows(r)) return RP_OK;
    BASE_ASSERT(seq->done == end_of_rows(r)); /* steps end there */
    if (!p->is_own) return end_repetition(r, seq, err);
    if (r->queries) {
        const kv_span *last = seq->context.views[seq->context.n_views - 1].span;
        int rc = reduction_queries_add(r->queries, r->engine->backend, last, r->record, err);
        if (rc) return rc;
    }
    if (p->end == r->segment->n_tokens) end_own(r, seq);
    r->piece++;
    return RP_OK;
}

/* ---- the result ---- */

/* A reduced span in the segment's format. */
static int encode_reduced(segment_reduction *r, kv_span **span, rp_error *err) {
    kv_span *encoded;
    if (!kv_format_is_encoded(r->segment->format)) return RP_OK;
    int rc = kv_span_new_like(&encoded, *span, r->segment->format, err);
    if (rc) return rc;
    if ((rc = r->engine->backend->ops->encode(r->engine->backend, *span, encoded, err))) {
        kv_span_unref(encoded);
        return rc;
    }
    kv_span_unref(*span);
    *span = encoded;
    return RP_OK;
}

static int select_slots(segment_reduction *r, const kv_span *const *spans, kv_selection **out, rp_error *err) {
    const reduction_run run = run_of(r, spans);
    if (!is_auto(r)) return reduction_select(out, r->engine->backend, r->method, r->segment->keep, &run, err);
    BASE_TRACE(ENGINE, "a module of %d tokens keeps %d of 1000 slots", r->segment->n_tokens, shares[r->low]);
    return reduction_select_scored(out, r->method, shares[r->low], &run, r->scores, err);
}

int segment_reduction_finish(segment_reduction *r, sequence *seq, kv_span ***out, int32_t *n, rp_error *err) {
    const size_t n_run = (size_t)r->segment->n_spans;
    BASE_ASSERT(!r->judges && (!is_auto(r) || (r->run && r->low == r->high))); /* the share is found */
    const kv_span **run = base_alloc(n_run * sizeof(*run));
    kv_selection *selection = NULL;
    *out = NULL;
    *n = 0;
    if (!run) return base_fail_memory(err, n_run * sizeof(*run), "a module to reduce");
    for (size_t i = 0; i < n_run; i++) run[i] = r->run ? r->run[i] : seq->context.views[r->first_view + i].span;
    int rc = select_slots(r, run, &selection, err);
    const int32_t n_spans = rc ? 0 : kv_reduced_spans(selection);
    kv_span **spans = rc ? NULL : base_calloc((size_t)n_spans + 1, sizeof(*spans));
    if (!rc && !spans) rc = base_fail_memory(err, (uint64_t)n_spans * sizeof(*spans), "spans");
    sequence_reserve(seq, 0); /* the engine's thread takes what was reserved before anyone else */
    for (int32_t i = 0; i < n_spans && !rc; i++) {
        rc = kv_span_reduce(&spans[i], run, n_run, selection, i, err);
        if (!rc) rc = encode_reduced(r, &spans[i], err);
    }
    for (int32_t i = 0; i < n_spans && rc && spans; i++) kv_span_unref(spans[i]);
    if (rc) base_free(spans);
    else *out = spans, *n = n_spans;
    kv_selection_free(selection);
    base_free(run);
    return rc;
}
