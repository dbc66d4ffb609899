/* SPDX-License-Identifier: Apache-2.0 */
/* job_tokens.c: the tokens that a job computes itself: their list, what they attend to, their blocks.
 *
 *   by position   | text | view A | text | view B | text, answer |
 *   scopes        | 0    |        | 1    |        | 2            |
 *
 *   root of scope 0       the root of plain text (job_text_root); after views, H(that, views)
 *   root of scope k + 1   H(root of scope k, its tokens and their positions, the views between the two)
 *
 * A token attends to lower positions only. Text before all views therefore has the KV and the key of an ordinary
 * prefix, and text between views does not depend on those after it. A new scope begins where a view has a visible slot
 * before the next token: the positions skip that slot, so no span has tokens of two scopes. An adapter that is switched
 * on at a token begins one as well, and is in its root. */
#include "engine/core/job_tokens.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/sequence.h"
#include "engine/reuse/segment_reduction.h"
#include "kv/block_pool.h"
#include "kv/kv_format.h"
#include "pml/layout.h"
#include "pml/plan.h"

/* Positions of all runs, which rise from run to run (plan.h). */
static void list_runs(const pml_plan *p, int32_t *tokens, int32_t *positions) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        if (item->is_view || item->n_tokens == 0) continue;
        memcpy(tokens + n, p->tokens.ids + item->first_token, (size_t)item->n_tokens * sizeof(*tokens));
        BASE_DCHECK(n == 0 || item->pos > positions[n - 1]);
        for (int32_t k = 0; k < item->n_tokens; k++) positions[n++] = item->pos + k;
    }
    BASE_ASSERT(n == (size_t)p->n_fresh);
}

int32_t job_count_runs(const int32_t *positions, int32_t n) {
    int32_t runs = 1;
    BASE_ASSERT(n > 0); /* the first run */
    for (int32_t i = 1; i < n; i++) runs += positions[i] != positions[i - 1] + 1;
    return runs;
}

base_key job_text_root(const rp_engine *e, const base_key *salt, rp_kv_format format) {
    base_hash h;
    base_key key;
    if (format == e->formats->text) return *salt; /* which covers it */
    base_hash_init(&h, "reprise text 1");
    base_hash_key(&h, salt);
    base_hash_u64(&h, kv_format_identity(format));
    base_hash_final(&h, &key);
    return key;
}

/* ---- scopes ---- */

/* A view as the tokens after it see it. */
static void hash_view(const pml_plan *p, const pml_item *item, base_hash *h) {
    const pml_segment *s = &p->layout->segments[item->segment];
    const base_key name = item->reduced ? pml_reduced_key(s, 0) : pml_segment_keys(p->layout, s)[s->n_spans - 1];
    base_hash_key(h, &name);
    base_hash_u64(h, (uint64_t)(int64_t)item->shift);
    base_hash_u64(h, (uint64_t)item->n_tokens);
    base_hash_u64(h, (uint64_t)s->n_holes);
    for (int32_t k = 0; k < s->n_holes; k++) {
        base_hash_u64(h, (uint64_t)pml_segment_holes(p->layout, s)[k].offset);
        base_hash_u64(h, (uint64_t)pml_segment_holes(p->layout, s)[k].len);
    }
    base_hash_u64(h, (uint64_t)item->n_again);
    for (int32_t k = 0; k < item->n_again; k++) base_hash_u64(h, (uint64_t)pml_item_again(p, item)[k]);
}

/* The first view from item `at` on; NULL: there is none. */
static const pml_item *next_view(const pml_plan *p, size_t at) {
    while (at < p->n_items && !p->items[at].is_view) at++;
    return at < p->n_items ? &p->items[at] : NULL;
}

/* Does the token at pos attend to the view? NULL: no. */
static bool is_seen(const pml_plan *p, const pml_item *view, int32_t pos) {
    return view && pml_item_first_position(p, view) < pos;
}

/* The root of the tokens from i on: those from `begin` to i have the root `before`. *view: the next view; moves to the
 * first that token i does not attend to. *out_views: how many it moves by. */
static base_key name_scope(const rp_job *c, const base_key *before, int32_t begin, int32_t i, const pml_item **view,
                           int32_t *out_views) {
    const pml_plan *p = c->plan;
    uint64_t n_views = 0;
    base_key root;
    base_hash h;
    base_hash_init(&h, "reprise text scope 1");
    base_hash_key(&h, before);
    BASE_ASSERT(begin <= i && i <= c->n_prompt);
    base_hash_u64(&h, (uint64_t)(i - begin));
    for (int32_t k = begin; k < i; k++) {
        base_hash_u64(&h, (uint64_t)c->tokens[k]);
        base_hash_u64(&h, (uint64_t)c->positions[k]);
    }
    for (; is_seen(p, *view, c->positions[i]); *view = next_view(p, (size_t)(*view - p->items) + 1), n_views++)
        hash_view(p, *view, &h);
    base_hash_u64(&h, n_views);
    if (c->engine->is_recurrent) base_hash_u64(&h, (uint64_t)c->engine->module_states);
    *out_views = (int32_t)n_views;
    BASE_ASSERT(n_views > 0 || i == c->switch_at); /* what begins a scope */
    if (c->wants.adapter && i == c->switch_at) base_hash_key(&h, &c->wants.adapter->key);
    base_hash_final(&h, &root);
    return root;
}

/* The scopes of the tokens: of a flat prompt, without views. */
static void list_scopes(rp_job *c, bool flat) {
    const pml_item *view = flat ? NULL : next_view(c->plan, 0);
    const adapter_use *adapter = c->wants.adapter;
    c->switch_at = 0;
    while (adapter && c->switch_at < c->n_prompt && c->positions[c->switch_at] < adapter->from) c->switch_at++;
    const int32_t switch_at = adapter ? c->switch_at : INT32_MAX; /* from there on, the adapter computes the tokens */
    base_key root = job_text_root(c->engine, &c->salt, c->format);
    c->n_scopes = 0;
    for (int32_t i = 0, begin = 0, first_view = 0; i < c->n_prompt; i++) {
        int32_t n_views = 0;
        const bool grows = i == switch_at || is_seen(c->plan, view, c->positions[i]);
        if (!grows && i > 0) continue;
        if (grows) root = name_scope(c, &root, begin, i, &view, &n_views);
        BASE_ASSERT(c->n_scopes < c->cap_scopes);
        c->scopes[c->n_scopes++] = (job_scope){i, root, first_view, n_views};
        first_view += n_views;
        begin = i;
    }
    BASE_ASSERT(!view); /* the last token of a plan is at the highest position */
    BASE_ASSERT(c->n_scopes > 0 && c->scopes[0].first == 0);
}

int job_open_scopes(rp_job *c, rp_error *err) {
    int32_t n = 2; /* one without views, one of the adapter */
    for (size_t i = 0; i < c->plan->n_items; i++) n += c->plan->items[i].is_view;
    if (!(c->scopes = base_alloc((size_t)n * sizeof(*c->scopes))))
        return base_fail_memory(err, (uint64_t)n * sizeof(*c->scopes), "a prompt");
    c->cap_scopes = n;
    return RP_OK;
}

int32_t job_scope_of(const rp_job *c, int32_t i) {
    int32_t k = 0;
    BASE_ASSERT(i >= 0 && c->n_scopes > 0);
    while (k + 1 < c->n_scopes && c->scopes[k + 1].first <= i) k++;
    return k;
}

segment_states job_view_states(const rp_job *c, int32_t i) {
    int32_t k = 0;
    if (!c->engine->is_recurrent) return SEGMENT_STATES_NONE;
    while (k < c->n_scopes && i >= c->scopes[k].first_view + c->scopes[k].n_views) k++;
    BASE_ASSERT(k < c->n_scopes);                                           /* each view is of one */
    if (c->scopes[k].first < c->prefix.n_found) return SEGMENT_STATES_NONE; /* the job continues after it */
    if (c->engine->module_states == RP_MODULE_STATES_COMPOSED) return SEGMENT_STATES_BOTH;
    const bool is_last = i + 1 == c->scopes[k].first_view + c->scopes[k].n_views; /* it replaces earlier states */
    return is_last ? SEGMENT_STATES_END : SEGMENT_STATES_NONE;
}

/* ---- the list ---- */

void job_list_runs(rp_job *c) {
    c->n_prompt = c->n_tokens = c->plan->n_fresh;
    BASE_ASSERT(c->n_prompt <= c->cap_tokens); /* list_tokens counted those that a feature may add */
    list_runs(c->plan, c->tokens, c->positions);
    c->n_runs = job_count_runs(c->positions, c->n_prompt);
    list_scopes(c, false);
    job_list_resumed(c);
}

void job_list_resumed(rp_job *c) {
    BASE_ASSERT(job_n_given(c) <= c->cap_tokens || c->n_resumed == 0);
    for (int32_t i = 0; i < c->n_resumed; i++) {
        c->tokens[c->n_prompt + i] = c->result->tokens[i];
        c->positions[c->n_prompt + i] = c->plan->end + i;
    }
    c->n_tokens = job_n_given(c);
}

int job_list_flat(rp_job *c, rp_error *err) {
    c->n_prompt = c->n_tokens = c->plan->n_fresh + c->plan->n_cached;
    BASE_ASSERT(c->n_prompt <= c->cap_tokens);
    int rc = pml_plan_flatten(c->plan, c->tokens, c->positions, err);
    if (rc) return rc;
    c->n_runs = job_count_runs(c->positions, c->n_prompt);
    list_scopes(c, true);
    return RP_OK;
}

int job_take_tokens(rp_job *c, const base_key *salt, int32_t *tokens, int32_t *positions, int32_t n, rp_error *err) {
    BASE_ASSERT(n > 0 && !c->tokens && !c->plan);
    if (!(c->scopes = base_alloc(sizeof(*c->scopes)))) return base_fail_memory(err, sizeof(*c->scopes), "a job");
    c->salt = *salt;
    c->tokens = tokens;
    c->positions = positions;
    c->n_prompt = c->n_tokens = c->cap_tokens = n;
    c->n_runs = job_count_runs(positions, n);
    c->n_scopes = c->cap_scopes = 1;
    c->scopes[0] = (job_scope){.root = job_text_root(c->engine, salt, c->format)};
    return RP_OK;
}

int32_t job_most_found(const rp_job *c) {
    BASE_ASSERT(c->n_prompt > 0 && c->wants.n_observed >= 0);
    return c->wants.all_logits ? 0 : job_n_given(c) - BASE_MAX(BASE_MIN(c->wants.n_observed, c->n_prompt), 1);
}

/* ---- blocks ---- */

int64_t job_own_blocks(const rp_job *c, int32_t n, bool keeps_windows) {
    const job_wants *w = &c->wants;
    const job_room room = job_features_room(c);
    BASE_ASSERT(n >= 0);
    const bool late =
        w->n_late > 0; /* such tokens begin a new span, and attend to any token before them: windows are kept */
    const int32_t runs = (w->scatters ? 1 : c->n_runs) + late + (c->switch_at > 0) + room.runs;
    const bool keeps = keeps_windows || late || w->scatters;
    const int64_t others = room.blocks + kv_states_blocks(c->engine->pool);
    return others + sequence_blocks_in(c->engine->pool, c->format, n + w->n_extra + w->n_late, runs,
                                       keeps ? 0 : c->engine->chunk_tokens, keeps);
}

/* Of the states of recurrent layers that its views need. */
static int64_t view_states_blocks(const rp_job *c) {
    int64_t n = 0;
    if (!c->engine->is_recurrent) return 0;
    for (int32_t k = 0; k < c->n_scopes; k++)
        for (int32_t i = 0; i < c->scopes[k].n_views; i++)
            n += job_view_states(c, c->scopes[k].first_view + i) != SEGMENT_STATES_NONE;
    return n * kv_states_blocks(c->engine->pool);
}

/* Upper bound of the blocks that a segment's prefill takes, its encoded form included. */
static int64_t prefill_blocks(const rp_job *c, const pml_segment *s) {
    const kv_pool *pool = c->engine->pool;
    const int64_t blocks = sequence_held_blocks(pool, segment_open_format(c->engine, s), s->n_tokens);
    return kv_format_is_encoded(s->format) ? blocks + sequence_held_blocks(pool, s->format, s->n_tokens) : blocks;
}

/* Upper bound of the blocks that a segment takes where nothing is cached. */
static int64_t most_segment_blocks(const rp_job *c, const pml_segment *s, bool reduced) {
    const pml_layout *l = c->plan->layout;
    int64_t blocks = prefill_blocks(c, s) + (reduced ? segment_reduction_blocks(c->engine, s) : 0);
    for (int32_t i = 0; i < s->n_scope; i++) blocks += prefill_blocks(c, &l->segments[pml_segment_scope(l, s)[i]]);
    return blocks;
}

/* A lower bound of the blocks that a segment of full KV takes. */
static int64_t least_segment_blocks(const rp_job *c, const pml_segment *s) {
    const kv_pool *pool = c->engine->pool;
    if (s->format != kv_pool_shape(pool)->format)
        return kv_shape_has_windows(kv_pool_shape(pool)) ? 0 : sequence_held_blocks(pool, s->format, s->n_tokens);
    return sequence_blocks_in(pool, s->format, s->n_tokens, 0, 0, false);
}

int64_t job_count_blocks(const rp_job *c, int32_t n, bool keeps_windows) {
    const pml_plan *p = c->plan;
    bool any_reduced = false;
    for (size_t i = 0; i < p->n_items && !c->exact; i++) any_reduced |= p->items[i].reduced;
    int64_t blocks = job_own_blocks(c, n, keeps_windows) + view_states_blocks(c);
    for (size_t i = 0; i < p->n_items && !c->exact; i++) {
        const pml_segment *s = p->items[i].is_view ? &p->layout->segments[p->items[i].segment] : NULL;
        if (s) blocks += any_reduced ? most_segment_blocks(c, s, p->items[i].reduced) : least_segment_blocks(c, s);
    }
    return blocks;
}

int64_t job_most_blocks(const rp_job *c) {
    return job_count_blocks(c, c->n_prompt + job_held(c, BASE_MAX(c->answer.most - 1, 0)), true);
}
