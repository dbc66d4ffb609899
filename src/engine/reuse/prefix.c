/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c: prefix cache: lookup of the longest cached prefix, waiting for a job that computes it, insertion.
 *
 *   tree    root -- [256][256][100]           a job's path, looked up at admission; extended by the job's insertions
 *   job     | hits: views | computed: own spans, inserted when full, at the end, or when needed by others | to compute |
 *
 * The last token of a prompt, or of a resumed answer, is always computed, for its logits.
 */
#include "base/check.h"
#include "engine/engine_internal.h"

/* Below this number of tokens, computing twice is cheaper than waiting: a span of them takes blocks of 64 slots. */
#define LEAST_SHARED 32

/* ---- lookup ---- */

/* Tokens that the base model computes, of a job that switches an adapter on. */
static int32_t before_switch(const rp_job *c) { return c->switch_at > 0 ? c->switch_at : INT32_MAX; }

/* Length of the common prefix of two jobs. */
static int32_t common_tokens(const rp_job *a, const rp_job *b) {
    int32_t most = BASE_MIN(job_most_found(a), b->n_tokens), n = 0;
    if (!base_key_equal(&a->root.key, &b->root.key)) return 0; /* the keys of two tenants always differ */
    while (n < most && a->tokens[n] == b->tokens[n] && a->positions[n] == b->positions[n]) n++;
    const bool same = a->switch_at == b->switch_at && base_key_equal(&a->switch_key, &b->switch_key);
    return same ? n : BASE_MIN(n, BASE_MIN(before_switch(a), before_switch(b)));
}

/* The path goes on from the root of the tokens after the switch. */
static int prefix_turn(rp_job *c, int32_t n, rp_error *err) {
    const span_root root = job_switch_root(c);
    return span_path_turn(&c->path, &root, c->tokens, c->positions, (size_t)n, err);
}

static int prefix_match(rp_engine *e, rp_job *c, rp_error *err) {
    const int32_t n = job_most_found(c), first = BASE_MIN(n, before_switch(c));
    span_path_release(&c->path);
    int rc = span_tree_match(e->tree, &c->root, c->tokens, c->positions, (size_t)first, &c->path, err);
    if (!rc && first < n && c->path.n_tokens == (size_t)first) rc = prefix_turn(c, n, err);
    c->n_found = rc ? 0 : (int32_t)c->path.n_tokens;
    c->n_found_steps = c->path.n_steps;
    c->found_end = c->path.end;
    c->n_known = 0;
    c->known_elsewhere = !rc && c->n_found == 0 && c->found_end == SPAN_END_NEW &&
                         span_tree_knows(e->tree, &c->root, c->tokens, (size_t)job_most_found(c));
    if (!rc && c->found_end != SPAN_END_ALL) c->n_known = span_path_known(&c->path, c->known, RP_MISMATCH_TOKENS);
    return rc;
}

/* Inserts the open span of a running job, if there is memory for the block that it then starts instead. */
static void give_open(rp_engine *e, rp_job *c) {
    int32_t column = kv_column_blocks(e->pool, c->format);
    if (span_store_free_blocks(e->store) < column) return;
    sequence_reserve(&c->seq, c->seq.reserved + column);
    prefix_give(c, true);
}

/* The running job that computes, or has computed, most of the tokens that c missed; NULL: none. */
static rp_job *find_ahead(rp_engine *e, const rp_job *c, int32_t *common) {
    rp_job *best = NULL;
    *common = c->n_found + LEAST_SHARED - 1;
    for (int32_t i = 0; i < e->n_running; i++) {
        rp_job *r = e->running[i];
        if (!r->shares || !r->seq.keeps_windows || r->kind != JOB_REQUEST) continue;
        int32_t n = common_tokens(c, r);
        if (n <= *common) continue;
        *common = n;
        best = r;
    }
    return best;
}

static int find(rp_engine *e, rp_job *c, bool *wait, rp_error *err) {
    *wait = false;
    c->waits_for = NULL;
    if (!c->shares) return RP_OK;
    int32_t common;
    int rc = prefix_match(e, c, err);
    rp_job *ahead = rc ? NULL : find_ahead(e, c, &common);
    if (!ahead) return rc;
    if (ahead->phase < JOB_FOCUS && (prefix_computed(ahead) < common || ahead->reduction.asked)) {
        c->waits_for = ahead;
        c->waits_until = ahead->reduction.asked ? INT32_MAX : common; /* its spans must be those that it counted when it was composed */
        *wait = true;
        return RP_OK;
    }
    give_open(e, ahead);
    return prefix_match(e, c, err);
}

int prefix_find(rp_engine *e, rp_job *c, bool *wait, rp_error *err) {
    int rc = find(e, c, wait, err);
    if (!rc && !*wait) shifted_reuse_find(c);
    return rc;
}

int prefix_compose(rp_job *c, rp_error *err) {
    int rc = RP_OK;
    for (size_t i = 1; i < c->path.n_steps && !rc; i++) {
        const span_step *s = &c->path.steps[i];
        if (!s->span) continue;                  /* a turn */
        BASE_ASSERT(kv_span_is_sealed(s->span)); /* invariant 3 */
        uint64_t mask[KV_SPAN_BLOCKS];
        kv_mask_range(mask, s->first_slot, s->first_slot + s->n_tokens);
        rc = kv_context_add(&c->seq.context, s->span, 0, mask, err);
    }
    if (!rc) rc = shifted_reuse_compose(c, err);
    BASE_ASSERT(c->n_found < job_n_given(c)); /* the last token is computed, for its logits */
    c->seq.context.format = c->format;
    c->first_own_view = c->seq.context.n_views;
    c->n_given = c->n_found;
    c->seq.tokens = c->tokens + c->n_found;
    c->seq.positions = c->positions + c->n_found;
    c->seq.n = job_n_given(c) - c->n_found;
    c->seq.slots = kv_context_slots(&c->seq.context);
    return rc ? rc : reduction_open(c, err);
}

/* ---- insertion ---- */

/* If others have computed the same tokens, the path would hold their spans besides the job's own. Admission did not
 * count them: their memory may be reserved for others. */
static bool may_extend(rp_job *c, const kv_span *span) {
    rp_engine *e = c->engine;
    uint64_t bytes = span_tree_extend_bytes(&c->path, span, c->tokens + c->n_given);
    return bytes == 0 || (int64_t)(bytes / kv_pool_block_bytes(e->pool)) <= span_store_free_blocks(e->store);
}

void prefix_give(rp_job *c, bool all) {
    kv_context *context = &c->seq.context;
    int32_t exact = c->moved.n > 0 ? c->moved.first : INT32_MAX; /* tokens before this one have the KV of a plain run */
    while (c->shares && c->first_own_view < context->n_views && c->n_given < exact) {
        kv_span *span = context->views[c->first_own_view].span;
        bool last = c->first_own_view + 1 == context->n_views, kept;
        int32_t n = kv_span_tokens(span);
        if (last && n < KV_SPAN_TOKENS && !all) return;
        if (c->n_given == c->switch_at && c->switch_at > 0 && !span_path_has_turn(&c->path) && prefix_turn(c, c->n_given, NULL)) c->shares = false;
        if (!c->shares || !(c->shares = may_extend(c, span))) return;
        if (last) kv_context_close(context);
        uint64_t cost_us = cost_model_tokens_us(&c->engine->cost, n, kv_span_position(span));
        if (span_tree_extend(&c->path, span, c->tokens + c->n_given, cost_us, &kept, NULL)) c->shares = false;
        c->first_own_view++;
        c->n_given += n;
    }
}
