/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c: prefix cache: lookup of the longest cached prefix, waiting for a job that computes it, insertion.
 *
 *   tree    root -- [256][256][100], root of the next scope -- [80]     a job's path, looked up at admission; extended
 *         by its insertions
 *   job     | hits: views | computed: own spans, inserted when full, at the end, or when needed by others | to compute
 *         |
 *
 * The last token of a prompt, or of a resumed answer, is always computed, for its logits.
 */
#include "engine/reuse/prefix.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/host_tier.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/job_tokens.h"
#include "engine/core/result.h"
#include "engine/core/sequence.h"
#include "engine/reuse/auto_modules.h"
#include "engine/reuse/checkpoints.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/shifted_reuse.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "kv/span.h"
#include "store/span_store.h"
#include "store/index/span_tree.h"

/* Below this number of tokens, computing twice is cheaper than waiting: a span of them takes blocks of 64 slots. */
#define LEAST_SHARED 32

/* ---- lookup ---- */

/* Length of the common prefix of two jobs. */
static int32_t common_tokens(const rp_job *a, const rp_job *b) {
    const int32_t most = BASE_MIN(job_most_found(a), b->n_tokens);
    int32_t n = 0;
    for (int32_t k = 0; k < BASE_MIN(a->n_scopes, b->n_scopes); k++) {
        if (a->scopes[k].first != n || b->scopes[k].first != n) break;
        if (!base_key_equal(&a->scopes[k].root, &b->scopes[k].root)) break; /* the roots of two tenants always differ */
        const int32_t end = BASE_MIN(most, BASE_MIN(job_scope_end(a, k), job_scope_end(b, k)));
        while (n < end && a->tokens[n] == b->tokens[n] && a->positions[n] == b->positions[n]) n++;
    }
    return n;
}

/* The path goes on from the root of scope k: as far as it has the tokens before n. */
static int prefix_turn(rp_job *c, int32_t k, int32_t n, rp_error *err) {
    const span_root root = job_scope_root(c, k);
    BASE_ASSERT(c->prefix.path.n_tokens == (size_t)c->scopes[k].first);
    BASE_ASSERT(span_path_turns(&c->prefix.path) == (size_t)k - 1);
    return span_path_turn(&c->prefix.path, &root, c->tokens, c->positions, (size_t)n, err);
}

/* The text that was missed first begins a scope. Is it cached in another one? */
static bool is_known_elsewhere(const rp_engine *e, const rp_job *c) {
    const int32_t k = job_scope_of(c, c->prefix.n_found), n = BASE_MIN(job_most_found(c), job_scope_end(c, k));
    const span_root root = job_scope_root(c, k);
    BASE_ASSERT(n >= c->prefix.n_found);
    if (c->prefix.found_end != SPAN_END_NEW || c->scopes[k].first != c->prefix.n_found) return false;
    return span_tree_knows(e->tree, &root, c->tokens + c->prefix.n_found, (size_t)(n - c->prefix.n_found));
}

static int prefix_match(rp_engine *e, rp_job *c, rp_error *err) {
    const int32_t n = job_most_found(c);
    const span_root root = job_scope_root(c, 0);
    span_path_release(&c->prefix.path);
    int rc = span_tree_match(e->tree, &root, c->tokens, c->positions, (size_t)BASE_MIN(n, job_scope_end(c, 0)),
                             &c->prefix.path, err);
    for (int32_t k = 1;
         k < c->n_scopes && !rc && c->scopes[k].first < n && c->prefix.path.n_tokens == (size_t)c->scopes[k].first; k++)
        rc = prefix_turn(c, k, BASE_MIN(n, job_scope_end(c, k)), err);
    if (!rc) checkpoints_find(c);
    c->prefix.n_found = rc ? 0 : (int32_t)c->prefix.path.n_tokens;
    BASE_ASSERT(c->prefix.n_found <= n);
    c->prefix.n_found_steps = c->prefix.path.n_steps;
    c->prefix.found_end = c->prefix.path.end;
    c->prefix.n_known = 0;
    c->prefix.known_elsewhere = !rc && is_known_elsewhere(e, c);
    if (!rc && c->prefix.found_end != SPAN_END_ALL && c->prefix.found_end != SPAN_END_STATES)
        c->prefix.n_known = span_path_known(&c->prefix.path, c->prefix.known, RP_MISMATCH_TOKENS);
    return rc;
}

size_t prefix_peek(const rp_engine *e, const rp_job *c, span_tree_fn fn, void *user) {
    const int32_t n = job_most_found(c);
    size_t found = 0, to_states = 0;
    span_tree_states states, last;
    for (int32_t k = 0; k < c->n_scopes && c->scopes[k].first < n && found == (size_t)c->scopes[k].first; k++) {
        const span_root root = job_scope_root(c, k);
        const int32_t first = c->scopes[k].first, end = BASE_MIN(n, job_scope_end(c, k));
        const size_t before = found;
        found += span_tree_peek(e->tree, &root, c->tokens + first, c->positions + first, (size_t)(end - first), fn,
                                user, &states);
        if (states.n_tokens > 0) to_states = before + states.n_tokens, last = states;
    }
    BASE_ASSERT(found <= (size_t)n && to_states <= found);
    if (!e->is_recurrent) return found;
    if (fn && to_states > 0) fn(user, &last.key);
    return to_states;
}

void prefix_expect_reads(rp_engine *e, const rp_job *c) {
    if (!e->host->pool) return;
    const int32_t n_given = job_n_given(c);
    const size_t n_found = c->prefix.shares ? prefix_peek(e, c, NULL, NULL) : 0;
    const int32_t n_fresh = n_given - (int32_t)BASE_MIN(n_found, (size_t)n_given);
    span_store_set_reads(e->store, (double)n_fresh + BASE_MAX(c->answer.most - 1, 0));
}

/* Does what it computes enter the prefix cache? */
static bool prefix_adds(const rp_job *c) { return c->prefix.shares && !c->request->options.adds_nothing; }

/* The running job that computes, or has computed, most of the tokens that c missed; NULL: none. */
static rp_job *find_ahead(rp_engine *e, const rp_job *c, int32_t *common) {
    rp_job *best = NULL;
    *common = c->prefix.n_found + LEAST_SHARED - 1;
    for (int32_t i = 0; i < e->n_running; i++) {
        rp_job *r = e->running[i];
        if (!prefix_adds(r) || !r->seq.keeps_windows || r->kind != JOB_REQUEST) continue;
        int32_t n = common_tokens(c, r);
        if (n <= *common) continue;
        *common = n;
        best = r;
    }
    return best;
}

static int find(rp_engine *e, rp_job *c, bool *wait, rp_error *err) {
    *wait = false;
    c->queued.waits_for = NULL;
    if (!c->prefix.shares) return RP_OK;
    int32_t common;
    int rc = prefix_match(e, c, err);
    rp_job *ahead = rc ? NULL : find_ahead(e, c, &common);
    if (!ahead) return rc;
    if (ahead->phase < JOB_RECOMPUTING && (prefix_computed(ahead) < common || ahead->wants.exclusive)) {
        c->queued.waits_for = ahead;
        c->queued.waits_until = ahead->wants.exclusive
                                    ? INT32_MAX
                                    : common; /* its spans must be those that it counted when it was composed */
        *wait = true;
        return RP_OK;
    }
    const int32_t column = kv_column_blocks(e->pool, ahead->format);
    if (span_store_free_blocks(e->store) >= column) { /* for the block that it starts after its open span is inserted */
        sequence_reserve(&ahead->seq, ahead->seq.reserved + column);
        prefix_give(ahead, true);
    }
    return prefix_match(e, c, err);
}

int prefix_find(rp_engine *e, rp_job *c, bool *wait, rp_error *err) {
    int rc = find(e, c, wait, err);
    if (!rc && !*wait) shifted_reuse_find(c);
    if (!rc && !*wait) auto_modules_find(c);
    return rc;
}

int prefix_compose(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    int32_t n_roots =
        c->n_scopes - 1; /* of the text: their turns are before those after runs, which are in the last scope */
    for (size_t i = 1; i < c->prefix.path.n_steps && !rc; i++) {
        const span_step *s = &c->prefix.path.steps[i];
        if (!s->span) { /* a turn */
            if (n_roots > 0) n_roots--;
            else if (c->moved.n_added < c->moved.n_turned) rc = moved_kv_add_views(c, err);
            continue;
        }
        BASE_ASSERT(kv_span_is_sealed(s->span)); /* invariant 3 */
        uint64_t mask[KV_SPAN_BLOCKS];
        kv_mask_range(mask, s->first_slot, s->first_slot + s->n_tokens);
        rc = kv_context_add(&c->seq.context, s->span, 0, mask, err);
    }
    BASE_ASSERT(c->prefix.n_found < job_n_given(c)); /* the last token is computed, for its logits */
    BASE_ASSERT(rc || c->moved.n_added == c->moved.n_turned);
    c->seq.context.format = c->format;
    c->prefix.first_own_view = c->seq.context.n_views;
    c->prefix.n_given = c->prefix.n_found;
    c->seq.tokens = c->tokens + c->prefix.n_found;
    c->seq.positions = c->positions + c->prefix.n_found;
    c->seq.n = job_n_given(c) - c->prefix.n_found;
    c->seq.slots = kv_context_slots(&c->seq.context);
    return rc ? rc : job_features_compose(c, err);
}

/* ---- insertion ---- */

/* If others have computed the same tokens, the path would hold their spans besides the job's own. Admission did not
 * count them: their memory may be reserved for others. */
static bool may_extend(rp_job *c, const kv_span *span) {
    rp_engine *e = c->engine;
    uint64_t bytes = span_tree_extend_bytes(&c->prefix.path, span, c->tokens + c->prefix.n_given);
    return bytes == 0 || (int64_t)(bytes / kv_pool_block_bytes(e->pool)) <= span_store_free_blocks(e->store);
}

static void give_spans(rp_job *c, bool all) {
    kv_context *context = &c->seq.context;
    while (prefix_adds(c) && c->prefix.first_own_view < context->n_views) {
        if (!moved_kv_turn(c) || c->prefix.first_own_view >= context->n_views) return;
        kv_span *span = context->views[c->prefix.first_own_view].span;
        bool last = c->prefix.first_own_view + 1 == context->n_views, kept;
        int32_t n = kv_span_tokens(span);
        if (last && n < KV_SPAN_TOKENS && !all) return;
        /* the path goes on in the scope of the next token to insert */
        const int32_t k = job_scope_of(c, c->prefix.n_given);
        const bool enters = span_path_turns(&c->prefix.path) != (size_t)(k + c->moved.n_turned);
        if (enters && prefix_turn(c, k, c->prefix.n_given, NULL) != RP_OK) c->prefix.shares = false; /* no memory */
        /* did the path lose tokens to a window? */
        if (c->prefix.path.n_tokens != (size_t)c->prefix.n_given) c->prefix.shares = false;
        if (!c->prefix.shares || !(c->prefix.shares = may_extend(c, span))) return;
        if (last) kv_context_close(context);
        uint64_t cost_us = cost_model_usual_us(c->engine->cost, n, kv_span_position(span));
        span_store_set_reader(c->engine->store, c->request->reader);
        if (span_tree_extend(&c->prefix.path, span, c->tokens + c->prefix.n_given, cost_us, &kept, NULL))
            c->prefix.shares = false;
        span_store_set_reader(c->engine->store, (span_reader){0});
        c->prefix.first_own_view++;
        c->prefix.n_given += n;
        BASE_ASSERT(c->prefix.n_given <= prefix_computed(c));
    }
}

void prefix_give(rp_job *c, bool all) {
    give_spans(c, all);
    checkpoints_give(c);
}

int prefix_leave(rp_job *c, rp_error *err) {
    BASE_ASSERT(c->phase == JOB_DECODE);
    prefix_give(c, true);
    c->prefix.shares = false;
    kv_context_close(&c->seq.context); /* other requests share the prompt's KV only */
    return job_describe_plan(c, err);
}
