/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c: see policy.h. */
#include "cluster/policy.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "reprise_cluster.h"

/* Default of a disk that was not measured yet: 1 GB/s. */
#define READ_BYTE_US 1e-3
#define IN_RAM (RP_TIER_RAM | CLUSTER_TIER_SPECULATIVE)

bool cluster_policy_as_text(cluster_policy policy) {
    return policy == CLUSTER_POLICY_PREFIX_COST || policy == CLUSTER_POLICY_LONGEST_MATCH;
}

/* ---- the names of a prompt ---- */

/* Merges modules and text, each of which is in order of position in items. */
void cluster_policy_order(const cluster_request *r, int32_t *order) {
    int32_t n_modules = 0;
    while (n_modules < r->n_items && r->items[n_modules].is_module) n_modules++;
    int32_t m = 0, x = n_modules;
    for (int32_t i = 0; i < r->n_items; i++) {
        bool module = m < n_modules && (x == r->n_items || r->items[m].position <= r->items[x].position);
        order[i] = module ? m++ : x++;
    }
    BASE_ASSERT(m == n_modules && x == r->n_items); /* each item once */
}

/* Work of a prompt on a node: runs of adjacent tokens to compute, and bytes to read. */
typedef struct work {
    const rp_engine_load *load;
    const cluster_fetch_cost *fetch; /* NULL: nothing is fetched */
    double tokens, attention_us, read_us, transfer_us;
    double from, to; /* the open run; equal: there is none */
} work;

static void work_close(work *w) {
    BASE_ASSERT(w->from >= 0 && w->from <= w->to);
    w->attention_us += cluster_cost_attention(w->load, w->to - w->from, w->from);
    w->from = w->to = 0;
}

static void work_compute(work *w, double position, double n) {
    if (n <= 0) return;
    w->tokens += n;
    if (w->to <= w->from || position != w->to) {
        work_close(w);
        w->from = position;
        w->to = position;
    }
    w->to += n;
}

/* KV on disk is read, or computed if that is faster. Returns whether it is read. */
static bool work_read(work *w, const rp_named_kv *item) {
    double read = cluster_cost_read(w->load, (double)item->bytes);
    if (read <= 0) read = READ_BYTE_US * (double)item->bytes;
    if (read > cluster_cost_part(w->load, item->n_tokens, item->position)) {
        work_compute(w, item->position, item->n_tokens);
        return false;
    }
    w->read_us += read;
    return true;
}

/* KV in the pool is fetched, or computed if that is faster. */
static void work_fetch(work *w, cluster_candidate *c, const rp_named_kv *item) {
    if (!w->fetch || cluster_cost_fetch_gain(w->load, w->fetch, item) <= 0) {
        work_compute(w, item->position, item->n_tokens);
        return;
    }
    w->transfer_us += cluster_cost_transfer(w->fetch, (double)item->bytes);
    c->pool_tokens += item->n_tokens;
}

static void work_item(work *w, cluster_candidate *c, const rp_named_kv *item, uint32_t tiers) {
    if (BASE_LIKELY(tiers & IN_RAM)) c->held_tokens += item->n_tokens;
    else if (!tiers) work_compute(w, item->position, item->n_tokens);
    else if (tiers == CLUSTER_TIER_POOL) work_fetch(w, c, item);
    else if (work_read(w, item)) {
        c->held_tokens += item->n_tokens;
        c->disk_tokens += item->n_tokens;
    }
}

/* The longest cached prefix: it ends at the first missing name, or at fresh text between names. */
static void work_prefix(work *w, cluster_candidate *c, const cluster_request *r, const uint8_t *held,
                        const int32_t *order) {
    int64_t end = 0;
    bool whole = true;
    for (int32_t i = 0; i < r->n_items; i++) {
        const rp_named_kv *item = &r->items[order[i]];
        whole = whole && held && held[order[i]] && item->position <= end;
        end += item->n_tokens;
        work_item(w, c, item, whole ? held[order[i]] : 0);
    }
}

/* Names of text are adjacent and in order, and none is held after the first missing one: the rest is one run. */
static int32_t work_text_rest(work *w, const cluster_request *r, int32_t from) {
    const rp_named_kv *first = &r->items[from], *last = &r->items[r->n_items - 1];
    int64_t n = (int64_t)last->position + last->n_tokens - first->position;
    int64_t most = r->prompt_tokens - first->position;
    work_compute(w, first->position, (double)BASE_MAX(BASE_MIN(n, most), 0));
    return r->n_items;
}

/* Number of names from the first one on that are in RAM or speculative: eight at a time, because frequent prompts are
 * long and on many nodes. */
static int32_t ram_prefix(const uint8_t *held, int32_t n) {
    const uint64_t each = UINT64_C(0x0101010101010101);
    _Static_assert(IN_RAM == 5, "bits 0 and 2");
    int32_t i = 0;
    for (uint64_t eight; i + 8 <= n; i += 8) {
        memcpy(&eight, held + i, 8);
        if (((eight | eight >> 2) & each) != each) break;
    }
    while (i < n && held[i] & IN_RAM) i++;
    return i;
}

static void work_modules(work *w, cluster_candidate *c, const cluster_request *r, const uint8_t *held, bool plain) {
    int32_t n = plain && held ? ram_prefix(held, r->n_items) : 0;
    if (n > 0)
        c->held_tokens = r->items[n - 1].position + r->items[n - 1].n_tokens - r->items[0].position; /* adjacent */
    for (int32_t i = n; i < r->n_items; i++) {
        uint32_t tiers = held ? held[i] : 0;
        if (plain && !tiers && !r->items[i].is_module) i = work_text_rest(w, r, i) - 1;
        else work_item(w, c, &r->items[i], tiers);
    }
}

/* ---- the pool ---- */

void cluster_policy_mark_pooled(const cluster_request *r, const bool *pooled, uint8_t *held) {
    bool whole = true; /* the text so far is on the node or in the pool */
    for (int32_t i = 0, end; i < r->n_items; i = end) {
        const rp_named_kv *item = &r->items[i];
        bool all = pooled[i];
        for (end = i + 1; item->group && end < r->n_items && r->items[end].group == item->group; end++)
            all = all && pooled[end];
        if (!item->is_module) whole = whole && (held[i] || all);
        for (int32_t k = i; k < end && all && (item->is_module || whole); k++)
            if (!held[k]) held[k] = CLUSTER_TIER_POOL;
    }
}

/* Is fetching faster than computing, the round trip included? */
static bool fetch_pays(const cluster_facts *facts, const cluster_request *r, const uint8_t *held) {
    double gain_us = 0;
    for (int32_t i = 0; held && facts->fetch && i < r->n_items; i++)
        if (held[i] == CLUSTER_TIER_POOL)
            gain_us += BASE_MAX(cluster_cost_fetch_gain(facts->load, facts->fetch, &r->items[i]), 0);
    return gain_us > 0 && gain_us > facts->fetch->rtt_us;
}

void cluster_policy_see(cluster_candidate *c, const cluster_facts *facts, const cluster_request *r, const uint8_t *held,
                        const int32_t *order) {
    const rp_engine_load *load = facts->load;
    work w = {.load = load, .fetch = fetch_pays(facts, r, held) ? facts->fetch : NULL};
    /* Without modules, names of text cover the prompt from its start without gaps. */
    bool plain = r->n_items > 0 && !r->items[0].is_module;
    c->node = facts->node;
    c->held_tokens = c->disk_tokens = c->pool_tokens = 0;
    if (order) work_prefix(&w, c, r, held, order);
    else work_modules(&w, c, r, held, plain);
    /* Tokens without names, and those of a continued answer. Their positions are unknown; most are at the end. */
    double all = (double)r->prompt_tokens + (r->began ? r->answer_tokens : 0);
    double fresh = BASE_MAX(all - c->held_tokens - c->pool_tokens - w.tokens, 0);
    work_compute(&w, all - fresh, fresh);
    work_close(&w);
    BASE_ASSERT(c->disk_tokens >= 0 && c->disk_tokens <= c->held_tokens);
    double compute_us = cluster_cost_rows(load, w.tokens) + w.attention_us;
    c->drain_ms = facts->drain_us / 1e3;
    c->compute_ms = compute_us / 1e3;
    c->read_ms = w.read_us / 1e3;
    c->fetch_ms = w.transfer_us > 0 ? (w.transfer_us + w.fetch->rtt_us) / 1e3 : 0;
    c->ttft_ms = BASE_MAX(c->drain_ms, c->fetch_ms) + c->compute_ms + c->read_ms;
    c->answer_ms = cluster_cost_answer(load, facts->answer_tokens, all, facts->busy) / 1e3;
    c->step_ms = cluster_cost_decode(load, all) / 1e3;
}

/* ---- the choice ---- */

static uint64_t drawn_below(const cluster_env *env, uint64_t n) {
    BASE_ASSERT(n > 0);
    return base_mix64(env->random(env->user)) % n;
}

/* A choice among the candidates that are not excluded. fast: nor slow. */
typedef struct choice {
    cluster_policy policy;
    const cluster_candidate *candidates;
    const cluster_facts *facts;
    int32_t n;
    bool fast;
} choice;

double cluster_policy_cost(cluster_policy policy, const cluster_candidate *c, const cluster_facts *facts) {
    switch (policy) {
    case CLUSTER_POLICY_LEAST_LOADED: return (double)facts->queued_tokens;
    case CLUSTER_POLICY_LONGEST_MATCH: return -(double)c->held_tokens;
    case CLUSTER_POLICY_PREFIX_COST:
    case CLUSTER_POLICY_COST:
        return c->ttft_ms + c->answer_ms + facts->delayed * (c->compute_ms + c->read_ms) +
               facts->requests_of_all * c->fetch_ms;
    default: return 0;
    }
}

static double choice_cost(const choice *x, int32_t i) {
    return cluster_policy_cost(x->policy, &x->candidates[i], &x->facts[i]);
}

bool cluster_policy_prefers_full(cluster_policy policy, const cluster_candidate *candidates, const cluster_facts *facts,
                                 int32_t n, int32_t chosen) {
    choice x = {.policy = policy, .candidates = candidates, .facts = facts, .n = n};
    if (policy != CLUSTER_POLICY_COST && policy != CLUSTER_POLICY_PREFIX_COST && policy != CLUSTER_POLICY_LONGEST_MATCH)
        return false;
    BASE_ASSERT(chosen >= 0 && chosen < n && !candidates[chosen].excluded);
    double cost = choice_cost(&x, chosen);
    for (int32_t i = 0; i < n; i++)
        if (candidates[i].excluded && strcmp(candidates[i].excluded, "full") == 0 && choice_cost(&x, i) < cost)
            return true;
    return false;
}

static double choice_least(const choice *x) {
    double least = 0;
    bool any = false;
    for (int32_t i = 0; i < x->n; i++) {
        if (x->candidates[i].excluded) continue;
        double cost = choice_cost(x, i);
        if (!any || cost < least) least = cost;
        any = true;
    }
    return least;
}

/* The k-th candidate whose cost is at most `most`; *count, if not NULL: number of such candidates. */
static int32_t choice_nth(const choice *x, double most, uint64_t k, uint64_t *count) {
    uint64_t seen = 0;
    int32_t found = -1;
    for (int32_t i = 0; i < x->n; i++) {
        if (x->candidates[i].excluded || (x->fast && x->facts[i].slow) || choice_cost(x, i) > most) continue;
        if (seen++ == k) found = i;
        if (!count && found >= 0) break;
    }
    if (count) *count = seen;
    return found;
}

/* Rendezvous hashing (Thaler and Ravishankar, 1998) among candidates whose cost is at most `most`: when a node leaves,
 * only its sessions move. */
static int32_t choose_by_key(const choice *x, double most, uint64_t key) {
    uint64_t highest = 0;
    int32_t best = -1;
    for (int32_t i = 0; i < x->n; i++) {
        if (x->candidates[i].excluded || (x->fast && x->facts[i].slow) || choice_cost(x, i) > most) continue;
        uint64_t weight = base_mix64(base_mix64(key) ^ x->facts[i].name_hash);
        if (best < 0 || weight > highest) {
            best = i;
            highest = weight;
        }
    }
    return best;
}

/* session 0: none. Among near ties a session always gets the same node, so that its requests share KV even before the
 * first one is cached. */
static int32_t choose_least(choice *x, double near_ties, uint64_t session, const cluster_env *env) {
    double least = choice_least(x), most = least + (least > 0 ? least * near_ties : 0);
    uint64_t count;
    x->fast = true;
    int32_t only = choice_nth(x, most, 0, &count);
    if (count == 0) {
        x->fast = false;
        only = choice_nth(x, most, 0, &count);
    }
    if (count <= 1) return only;
    if (session != 0) return choose_by_key(x, most, session);
    uint64_t a = drawn_below(env, count), b = drawn_below(env, count - 1);
    if (b >= a) b++; /* not the first one */
    int32_t first = choice_nth(x, most, a, NULL), second = choice_nth(x, most, b, NULL);
    BASE_ASSERT(first >= 0 && second >= 0 && first != second);
    const cluster_facts *one = &x->facts[first], *other = &x->facts[second];
    bool less = other->queued_tokens != one->queued_tokens ? other->queued_tokens < one->queued_tokens
                                                           : other->requests < one->requests;
    return less ? second : first;
}

static int32_t choose_random(const choice *x, const cluster_env *env) {
    uint64_t count;
    int32_t only = choice_nth(x, 0, 0, &count);
    return count <= 1 ? only : choice_nth(x, 0, drawn_below(env, count), NULL);
}

/* Round robin: the first node after the last chosen one. */
static int32_t choose_next(const choice *x, int32_t *turn) {
    int32_t next = -1, first = -1;
    for (int32_t i = 0; i < x->n; i++) {
        if (x->candidates[i].excluded) continue;
        if (first < 0) first = i;
        if (next < 0 && x->candidates[i].node > *turn) next = i;
    }
    if (next < 0) next = first;
    if (next >= 0) *turn = x->candidates[next].node;
    return next;
}

int32_t cluster_policy_choose(cluster_policy policy, double near_ties, const cluster_candidate *candidates,
                              const cluster_facts *facts, int32_t n, const cluster_request *r, int32_t *turn,
                              const cluster_env *env) {
    choice x = {.policy = policy, .candidates = candidates, .facts = facts, .n = n};
    switch (policy) {
    case CLUSTER_POLICY_RANDOM: return choose_random(&x, env);
    case CLUSTER_POLICY_ROUND_ROBIN: return choose_next(&x, turn);
    case CLUSTER_POLICY_SESSION: return choose_by_key(&x, 0, r->session ? r->session : r->tenant);
    case CLUSTER_POLICY_LONGEST_MATCH:
        return choose_least(&x, 0, r->session, env); /* equal matches: the less loaded of two */
    default: return choose_least(&x, near_ties, r->session, env);
    }
}
