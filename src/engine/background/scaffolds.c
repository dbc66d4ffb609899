/* SPDX-License-Identifier: Apache-2.0 */
/* scaffolds.c: see scaffolds.h. */
#include "engine/background/scaffolds.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/background/background.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/observer.h"
#include "engine/core/sequence.h"
#include "kv/block_pool.h"
#include "kv/span.h"
#include "pml/plan.h"
#include "store/span_store.h"
#include "store/index/span_tree.h"
#include "reprise_test.h"

/* The evicted weight times this is at most the weight that replaces it. */
#define ADVANTAGE 2.0

typedef enum combination_state { KNOWN,
                                 PENDING,
                                 UNDER_WAY,
                                 ENCODED } combination_state;

struct combination {
    base_key key, salt;
    rp_kv_format format; /* of text, in the prompts that have it */
    combination_state state;
    double weight;                  /* as of used_at */
    uint64_t used_at;               /* scaffolds.n_prompts at that time */
    int32_t *tokens, *positions, n; /* PENDING: the combination; else NULL */
    base_key *spans;                /* ENCODED: keys of learned spans, parents first */
    size_t n_spans;
};

/* A span that combinations have added to the prefix tree. */
struct learned_span {
    base_key key;
    int32_t refs; /* combinations that use it */
    uint64_t bytes;
};

/* ---- the two forms of a prompt ---- */

static base_key name_combination(const scaffold_form *f) {
    base_key key;
    base_hash h;
    base_hash_init(&h, "reprise combination 1");
    base_hash_key(&h, &f->scopes[0].root);
    base_hash_bytes(&h, f->tokens, (size_t)f->n_combined * sizeof(*f->tokens));
    base_hash_bytes(&h, f->positions, (size_t)f->n_combined * sizeof(*f->positions));
    base_hash_final(&h, &key);
    return key;
}

static int scaffold_plan(rp_job *c, rp_error *err) {
    const pml_plan *p = c->plan;
    int32_t n = p->n_cached + p->n_fresh, cap = n + BASE_MAX(c->answer.most, 0);
    int32_t end = 0; /* the position after the last token of a module, its arguments included; 0: there is none */
    scaffold_form *f = &c->other;
    if (p->asked.mode != RP_QUALITY_SCAFFOLD || p->raised.mode != RP_QUALITY_AS_WRITTEN || c->wants.scatters ||
        p->n_cached == 0)
        return RP_OK;
    if (c->request->options.reuse != RP_REUSE_ON || c->request->experiment.no_prefix) return RP_OK;
    if (c->wants.adapter) return RP_OK;        /* combinations are the base model's */
    if (c->engine->is_recurrent) return RP_OK; /* background tasks leave no checkpoints: no prompt would find them */
    *f = (scaffold_form){.n_prompt = n, .cap_tokens = cap, .n_scopes = 1, .cap_scopes = 1, .exact = true};
    f->scopes = base_alloc(sizeof(*f->scopes));
    f->tokens = base_alloc((size_t)cap * sizeof(*f->tokens));
    f->positions = base_alloc((size_t)cap * sizeof(*f->positions));
    if (!f->scopes || !f->tokens || !f->positions)
        return base_fail_memory(err, (uint64_t)cap * sizeof(*f->tokens), "a prompt");
    f->scopes[0] = (job_scope){.root = job_text_root(c->engine, &c->salt, c->format)};
    int rc = pml_plan_flatten(p, f->tokens, f->positions, err);
    if (rc) return rc;
    f->n_runs = job_count_runs(f->positions, n);
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].holder >= 0) end = BASE_MAX(end, p->items[i].pos + p->items[i].n_tokens);
    while (f->n_combined < n && f->positions[f->n_combined] < end) f->n_combined++;
    f->combination = name_combination(f);
    return RP_OK;
}

void scaffold_swap(rp_job *c) {
    BASE_ASSERT(c->seq.reserved == 0 && c->prefix.path.n_steps == 0 && c->needs.n == 0 && c->moved.n_runs == 0);
    scaffold_form in_use = {
        .tokens = c->tokens,
        .positions = c->positions,
        .n_prompt = c->n_prompt,
        .cap_tokens = c->cap_tokens,
        .n_runs = c->n_runs,
        .scopes = c->scopes,
        .n_scopes = c->n_scopes,
        .cap_scopes = c->cap_scopes,
        .exact = c->exact,
        .n_combined = c->other.n_combined,
        .combination = c->other.combination,
    };
    c->tokens = c->other.tokens;
    c->positions = c->other.positions;
    c->n_prompt = c->other.n_prompt;
    c->cap_tokens = c->other.cap_tokens;
    job_list_resumed(c);
    c->n_runs = c->other.n_runs;
    c->scopes = c->other.scopes;
    c->n_scopes = c->other.n_scopes;
    c->cap_scopes = c->other.cap_scopes;
    c->exact = c->other.exact;
    c->other = in_use;
}

/* The last token of a prompt is always computed. */
static int32_t scaffolds_needed(const rp_job *c, int32_t n_prompt) {
    return BASE_MIN(c->other.n_combined, n_prompt - 1);
}

static size_t scaffolds_reach(const rp_engine *e, const base_key *salt, rp_kv_format format, const int32_t *tokens,
                              const int32_t *positions, int32_t n) {
    span_root root = {.salt = *salt, .key = job_text_root(e, salt, format)};
    return span_tree_peek(e->tree, &root, tokens, positions, (size_t)n, NULL, NULL, NULL);
}

bool scaffold_is_there(const rp_engine *e, const rp_job *c) {
    const scaffold_form *f = &c->other;
    if (!f->tokens || !f->exact || !c->prefix.shares) return false;
    int32_t need = scaffolds_needed(c, f->n_prompt);
    return scaffolds_reach(e, &c->salt, c->format, f->tokens, f->positions, need) == (size_t)need;
}

bool scaffold_was_found(const rp_job *c) {
    BASE_ASSERT(c->exact && !c->other.exact); /* the flat form is in use */
    return c->prefix.n_found >= scaffolds_needed(c, c->n_prompt);
}

void scaffold_requeue(rp_job *c) {
    if (c->other.tokens && c->exact) scaffold_swap(c);
}

/* ---- spans added by combinations ---- */

static learned_span *find_span(scaffolds *s, const base_key *key) {
    for (size_t i = 0; i < s->n_spans; i++)
        if (base_key_equal(&s->spans[i].key, key)) return &s->spans[i];
    return NULL;
}

/* Releases a combination's reference. With the last one the span is erased, unless other text extends it or a job holds
 * it. */
static void unref_span(rp_engine *e, const base_key *key) {
    scaffolds *s = e->scaffolds;
    learned_span *span = find_span(s, key);
    BASE_ASSERT(!span || (span->refs > 0 && s->stats.bytes >= span->bytes));
    if (!span || --span->refs > 0) return;
    s->stats.bytes -= span->bytes;
    *span = s->spans[--s->n_spans];
    span_tree_release(e->tree, key);
}

/* Evicted spans take no space. */
static void forget_dropped(rp_engine *e) {
    scaffolds *s = e->scaffolds;
    for (size_t i = s->n_spans; i-- > 0;) {
        if (span_store_has(e->store, &s->spans[i].key)) continue;
        BASE_ASSERT(s->stats.bytes >= s->spans[i].bytes);
        s->stats.bytes -= s->spans[i].bytes;
        s->spans[i] = s->spans[--s->n_spans];
    }
}

/* ---- combinations ---- */

static combination *scaffolds_find(scaffolds *s, const base_key *key) {
    for (size_t i = 0; i < s->n; i++)
        if (base_key_equal(&s->list[i].key, key)) return &s->list[i];
    return NULL;
}

static double scaffolds_weight(const scaffolds *s, const combination *c) {
    return c->weight * exp2(-(double)(s->n_prompts - c->used_at) / SCAFFOLDS_HALF_LIFE);
}

static void forget_tokens(scaffolds *s, combination *c) {
    BASE_ASSERT((c->tokens != NULL) == (c->state == PENDING) && (!c->tokens || s->pending_tokens >= (size_t)c->n));
    if (c->tokens) s->pending_tokens -= (size_t)c->n;
    base_free(c->tokens);
    base_free(c->positions);
    c->tokens = c->positions = NULL;
}

/* Back to KNOWN: erases the spans that it added, children first. Not for one under way. */
static void scaffolds_release(rp_engine *e, combination *c) {
    BASE_ASSERT(c->state != UNDER_WAY);
    forget_tokens(e->scaffolds, c);
    while (c->n_spans > 0) unref_span(e, &c->spans[--c->n_spans]);
    base_free(c->spans);
    c->spans = NULL;
    c->state = KNOWN;
}

static void scaffolds_drop(rp_engine *e, combination *c) {
    if (c->state == ENCODED) e->scaffolds->stats.dropped++;
    scaffolds_release(e, c);
}

/* Removes it from the list; the last one moves to its index. */
static void scaffolds_forget(rp_engine *e, combination *c) {
    scaffolds_drop(e, c);
    *c = e->scaffolds->list[--e->scaffolds->n];
}

/* The lightest one of a state; state -1: of any state but under way. NULL: there is none. */
static combination *scaffolds_lightest(scaffolds *s, int state) {
    combination *best = NULL;
    for (size_t i = 0; i < s->n; i++) {
        combination *c = &s->list[i];
        if (state < 0 ? c->state == UNDER_WAY : (int)c->state != state) continue;
        if (!best || scaffolds_weight(s, c) < scaffolds_weight(s, best)) best = c;
    }
    return best;
}

static combination *heaviest_pending(scaffolds *s) {
    combination *best = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == PENDING && (!best || scaffolds_weight(s, &s->list[i]) > scaffolds_weight(s, best)))
            best = &s->list[i];
    return best;
}

static void scaffolds_report(rp_engine *e) {
    scaffolds *s = e->scaffolds;
    s->stats.known = s->n;
    s->stats.prefilled = s->stats.pending = 0;
    for (size_t i = 0; i < s->n; i++) {
        s->stats.prefilled += s->list[i].state == ENCODED;
        s->stats.pending += s->list[i].state == PENDING || s->list[i].state == UNDER_WAY;
    }
}

/* ---- in the background ---- */

/* Makes space in the budget for one that is heavy enough. */
static bool scaffolds_make_space(rp_engine *e, const combination *c) {
    scaffolds *s = e->scaffolds;
    const int32_t n = c->n - (int32_t)scaffolds_reach(e, &c->salt, c->format, c->tokens, c->positions, c->n);
    BASE_ASSERT(c->state == PENDING && n >= 0);
    const int64_t blocks = sequence_blocks_in(e->pool, c->format, n, job_count_runs(c->positions, c->n), 0, true);
    const uint64_t bytes = (uint64_t)blocks * kv_pool_block_bytes(e->pool); /* that computing it adds at most */
    forget_dropped(e);
    while (s->stats.bytes + bytes > s->budget_bytes) {
        combination *victim = scaffolds_lightest(s, ENCODED);
        if (!victim || scaffolds_weight(s, victim) * ADVANTAGE > scaffolds_weight(s, c)) return false;
        scaffolds_drop(e, victim);
    }
    return true;
}

static void take_spans(scaffolds *s, combination *c, const background_result *r) {
    BASE_ASSERT(!c->spans && c->n_spans == 0);
    c->spans = base_calloc(BASE_MAX(r->path->n_steps, 1), sizeof(*c->spans));
    for (size_t i = 1; i < r->path->n_steps && c->spans; i++) {
        const kv_span *span = r->path->steps[i].span;
        learned_span *known = find_span(s, kv_span_key(span));
        if (!known && i < r->n_found_steps) continue; /* other text */
        if (!known) {
            if (base_grow((void **)&s->spans, &s->cap_spans, s->n_spans + 1, SCAFFOLDS_MAX_SPANS, sizeof(*s->spans)))
                return;
            known = &s->spans[s->n_spans++];
            *known = (learned_span){.key = *kv_span_key(span), .bytes = kv_span_bytes(span)};
            s->stats.bytes += known->bytes;
        }
        known->refs++;
        c->spans[c->n_spans++] = known->key;
    }
}

static void compute_next(rp_engine *e);

/* A background_done_fn. One combination is under way. */
static void scaffolds_computed(rp_engine *e, void *user, int rc, const background_result *r) {
    scaffolds *s = e->scaffolds;
    combination *c = s->list;
    (void)user;
    BASE_ASSERT(s->under_way);
    while (c < s->list + s->n && c->state != UNDER_WAY) c++;
    BASE_ASSERT(c < s->list + s->n);
    s->under_way = false;
    c->state = KNOWN;
    if (rc == RP_OK && r->path->n_tokens >= (size_t)c->n) {
        take_spans(s, c, r);
        c->state = ENCODED;
    }
    if (rc != RP_ERR_CANCELLED) compute_next(e);
    scaffolds_report(e);
}

/* Submits the heaviest pending one. One that does not fit the budget is no longer pending; its next prompt notes it
 * again. */
static void compute_next(rp_engine *e) {
    scaffolds *s = e->scaffolds;
    for (combination *c; !s->under_way && (c = heaviest_pending(s));) {
        background_task task = {
            .salt = c->salt,
            .format = c->format,
            .tokens = c->tokens,
            .positions = c->positions,
            .n = c->n,
            .keeps = true,
            .done = scaffolds_computed,
        };
        if (!scaffolds_make_space(e, c)) {
            scaffolds_release(e, c);
            continue;
        }
        int rc = background_submit(e, &task);
        if (rc == RP_ERR_BUSY) return; /* retried when the next prompt has ended */
        if (rc) {
            scaffolds_release(e, c);
            continue;
        }
        BASE_ASSERT(s->pending_tokens >= (size_t)c->n);
        s->pending_tokens -= (size_t)c->n;
        c->tokens = c->positions = NULL;
        c->state = UNDER_WAY;
        s->under_way = true;
        BASE_TRACE(ENGINE, "scheduled the joint prefill of a combination of %d tokens", c->n);
    }
}

/* ---- learning ---- */

/* The combination of a job, its weight increased by this job; NULL: no memory. */
static combination *scaffolds_note(rp_engine *e, const rp_job *job) {
    scaffolds *s = e->scaffolds;
    combination *c, *old;
    s->n_prompts++;
    while ((old = scaffolds_lightest(s, -1)) && scaffolds_weight(s, old) < SCAFFOLDS_LEAST_WEIGHT)
        scaffolds_forget(e, old);
    if ((c = scaffolds_find(s, &job->other.combination))) {
        c->weight = scaffolds_weight(s, c) + 1;
        c->used_at = s->n_prompts;
        return c;
    }
    if (s->n >= SCAFFOLDS_MAX && old) scaffolds_forget(e, old);
    if (base_grow((void **)&s->list, &s->cap, s->n + 1, SCAFFOLDS_MAX, sizeof(*s->list))) return NULL;
    c = &s->list[s->n++];
    *c = (combination){
        .key = job->other.combination, .salt = job->salt, .format = job->format, .weight = 1, .used_at = s->n_prompts};
    return c;
}

/* Moves the job's flat form, which it no longer needs, to the combination. */
static void scaffolds_want(scaffolds *s, combination *c, rp_job *job) {
    scaffold_form *f = &job->other;
    BASE_ASSERT(c->state == KNOWN && !c->tokens && f->exact);
    if (s->pending_tokens + (size_t)f->n_combined > SCAFFOLDS_MAX_PENDING_TOKENS) return;
    c->tokens = f->tokens;
    c->positions = f->positions;
    c->n = f->n_combined;
    f->tokens = f->positions = NULL;
    s->pending_tokens += (size_t)c->n;
    c->state = PENDING;
}

static void scaffolds_learn(rp_job *job, int rc) {
    rp_engine *e = job->engine;
    scaffolds *s = e->scaffolds;
    if (rc || !job->other.tokens || job->other.n_combined == 0) return;
    combination *c = scaffolds_note(e, job);
    *(job->exact ? &s->stats.hits : &s->stats.misses) += 1;
    if (c && job->exact && c->state == KNOWN) c->state = ENCODED;         /* by an earlier engine, or a plain prompt */
    if (c && !job->exact && c->state == ENCODED) scaffolds_release(e, c); /* it was evicted */
    if (c && !job->exact && c->state == KNOWN) scaffolds_want(s, c, job);
    compute_next(e);
    scaffolds_report(e);
}

const job_observer scaffolds_observer = {.planned = scaffold_plan, .ended = scaffolds_learn};

void scaffolds_free(rp_engine *e) {
    scaffolds *s = e->scaffolds;
    for (size_t i = 0; i < s->n; i++) {
        forget_tokens(s, &s->list[i]);
        base_free(s->list[i].spans);
    }
    base_free(s->list);
    base_free(s->spans);
}
