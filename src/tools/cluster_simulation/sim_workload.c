/* SPDX-License-Identifier: Apache-2.0 */
/* sim_workload.c: see sim_workload.h. */
#include "tools/cluster_simulation/sim_workload.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "reprise_cluster.h"

#define FAULT_TENANTS 3

void sim_workload_free(sim_workload *w) {
    base_free(w->prompts);
    base_free(w->items);
    base_free(w->ids);
    base_free(w->owners);
    base_free(w->keys);
    base_free(w->buckets);
    *w = (sim_workload){0};
}

/* ---- names ---- */

static int workload_rehash(sim_workload *w) {
    size_t n = BASE_MAX(2 * w->n_buckets, (size_t)1024);
    BASE_ASSERT((n & (n - 1)) == 0 && n > w->n_names);
    uint32_t *buckets = base_alloc(n * sizeof(*buckets));
    if (!buckets) return RP_ERR_MEMORY;
    memset(buckets, 0xff, n * sizeof(*buckets));
    for (size_t i = 0; i < w->n_names; i++) {
        size_t b = (size_t)base_mix64(w->keys[i]) & (n - 1);
        while (buckets[b] != SIM_NONE) b = (b + 1) & (n - 1);
        buckets[b] = (uint32_t)i;
    }
    base_free(w->buckets);
    w->buckets = buckets;
    w->n_buckets = n;
    return RP_OK;
}

/* The number of the name that a tenant's KV of this content has. */
static uint32_t workload_name(sim_workload *w, uint64_t content, uint32_t tenant) {
    uint64_t key = base_mix64(base_mix64(content + w->salt) + tenant + 1);
    if (!w->rc && 2 * (w->n_names + 1) > w->n_buckets) w->rc = workload_rehash(w);
    if (w->rc) return 0;
    BASE_ASSERT(w->n_names < w->n_buckets); /* a probe ends */
    size_t b = (size_t)base_mix64(key) & (w->n_buckets - 1);
    while (w->buckets[b] != SIM_NONE && w->keys[w->buckets[b]] != key) b = (b + 1) & (w->n_buckets - 1);
    if (w->buckets[b] == SIM_NONE) {
        w->rc = base_grow((void **)&w->owners, &w->cap_owners, w->n_names + 1, SIM_MAX_ITEMS, sizeof(*w->owners));
        if (!w->rc) w->rc = base_grow((void **)&w->keys, &w->cap_keys, w->n_names + 1, SIM_MAX_ITEMS, sizeof(*w->keys));
        if (w->rc) return 0;
        w->owners[w->n_names] = tenant;
        w->keys[w->n_names] = key;
        w->buckets[b] = (uint32_t)w->n_names++;
    }
    return w->buckets[b];
}

/* ---- prompts ---- */

static sim_prompt *workload_add(sim_workload *w, uint64_t at_us, uint32_t tenant) {
    if (!w->rc) w->rc = base_grow((void **)&w->prompts, &w->cap, w->n + 1, SIM_MAX_PROMPTS, sizeof(*w->prompts));
    if (w->rc) return NULL;
    w->prompts[w->n] = (sim_prompt){.at_us = at_us, .next = SIM_NONE, .first_item = w->n_items, .tenant = tenant};
    return &w->prompts[w->n++];
}

static void workload_add_item(sim_workload *w, sim_prompt *p, uint64_t content, bool is_module, int32_t position,
                              int32_t n_tokens) {
    BASE_ASSERT(n_tokens > 0 && position >= 0);
    BASE_ASSERT(p->first_item + (size_t)p->n_kept == w->n_items); /* the last prompt */
    uint32_t id = workload_name(w, content, p->tenant);
    if (!w->rc) w->rc = base_grow((void **)&w->items, &w->cap_items, w->n_items + 1, SIM_MAX_ITEMS, sizeof(*w->items));
    if (!w->rc) w->rc = base_grow((void **)&w->ids, &w->cap_ids, w->n_items + 1, SIM_MAX_ITEMS, sizeof(*w->ids));
    if (w->rc) return;
    rp_named_kv *item = &w->items[w->n_items];
    *item = (rp_named_kv){
        .is_module = is_module, .n_tokens = n_tokens, .position = position, .bytes = w->kv_bytes * (uint64_t)n_tokens};
    uint64_t halves[2] = {base_mix64(w->keys[id] + 1), base_mix64(w->keys[id] + 2)};
    memcpy(item->name.bytes, halves, sizeof(halves));
    w->ids[w->n_items++] = id;
    p->n_kept++;
}

/* Names of text at [from, to) of a stream of tokens: of each part of `step` tokens. A name stands for everything before
 * it, too. Returns where the last one ends. */
static int32_t workload_add_text(sim_workload *w, sim_prompt *p, uint64_t text, int32_t from, int32_t to,
                                 int32_t step) {
    BASE_ASSERT(from >= 0 && from % step == 0);
    for (; from + step <= to; from += step)
        workload_add_item(w, p, base_mix64(text) + (uint64_t)(from / step), false, from, step);
    return from;
}

/* ---- kinds of workloads ---- */

static int make_trace(sim_workload *w, const rp_cluster_simulate_options *o, const rp_cluster_trace_request *trace,
                      size_t n, rp_error *err) {
    const int32_t block = o->block_tokens;
    if (o->requests > 0) n = BASE_MIN(n, (size_t)o->requests);
    for (size_t i = 0; i < n && !w->rc; i++) {
        const rp_cluster_trace_request *t = &trace[i];
        int64_t most = (int64_t)BASE_MIN(t->n_blocks, SIM_MAX_ITEMS) * block;
        if (t->prompt_tokens < 1 || t->prompt_tokens > most || t->prompt_tokens <= most - block ||
            !(t->at_ms >= 0 && t->at_ms < 1e12))
            return base_fail(err, RP_ERR_INVALID,
                             "request %zu has %zu blocks of %d tokens, which do not match %d tokens, or no valid time",
                             i, t->n_blocks, (int)block, (int)t->prompt_tokens);
        sim_prompt *p = workload_add(w, (uint64_t)(t->at_ms * 1e3 / o->speed), 0);
        if (!p) break;
        p->prompt_tokens = t->prompt_tokens;
        p->answer_tokens = BASE_MAX(o->answer_tokens > 0 ? o->answer_tokens : t->answer_tokens, 1);
        for (size_t k = 0; k < t->n_blocks; k++) {
            int32_t position = (int32_t)k * block;
            workload_add_item(w, p, t->blocks[k], false, position, BASE_MIN(block, p->prompt_tokens - position));
        }
        p->n_items = p->n_kept;
        /* Without a session: text after a system prompt that all share. */
        uint64_t session = o->trace_sessions ? o->trace_sessions[i] : 0;
        p->session = session ? session : t->n_blocks > 1 ? base_mix64(t->blocks[1]) | 1
                                                         : 1;
    }
    return RP_OK;
}

static void make_shared_prefix(sim_workload *w, const rp_cluster_simulate_options *o, sim_random *random) {
    double at = 0;
    for (int32_t i = 0; i < o->requests && !w->rc; i++) {
        at += sim_random_exponential(random) / (o->rate * o->speed);
        sim_prompt *p = workload_add(w, (uint64_t)(at * 1e6), 0);
        if (!p) return;
        uint64_t group = sim_random_below(random, (uint64_t)o->groups);
        p->session = group + 1;
        p->prompt_tokens = o->prefix_tokens + o->question_tokens;
        p->answer_tokens = o->answer_tokens;
        /* A name is of the tokens up to its end: text names of the question are its own. */
        int32_t end = workload_add_text(w, p, group, 0, o->prefix_tokens, RP_NAME_TOKENS);
        workload_add_text(w, p, (UINT64_C(1) << 40) + (uint64_t)i, end, p->prompt_tokens, RP_NAME_TOKENS);
        p->n_items = p->n_kept;
    }
}

/* Documents in spans of 256 tokens. */
#define SPAN_TOKENS 256

static void add_documents(sim_workload *w, const rp_cluster_simulate_options *o, sim_prompt *p, sim_random *random,
                          uint64_t *order) {
    BASE_ASSERT(o->chosen <= o->documents);
    uint64_t ordered = 0;
    for (int32_t i = 0; i < o->documents; i++) order[i] = (uint64_t)i;
    for (int32_t k = 0, position = 0; k < o->chosen; k++, position += o->prefix_tokens) {
        uint64_t other = (uint64_t)k + sim_random_below(random, (uint64_t)(o->documents - k)), document = order[other];
        order[other] = order[k];
        ordered = base_mix64(ordered + document + 1);
        for (int32_t from = 0; from < o->prefix_tokens; from += SPAN_TOKENS)
            workload_add_item(w, p, (document << 20) + (uint64_t)(from / SPAN_TOKENS), true, position + from,
                              BASE_MIN(SPAN_TOKENS, o->prefix_tokens - from));
    }
    p->session = ordered | 1;
}

static void make_retrieval(sim_workload *w, const rp_cluster_simulate_options *o, sim_random *random) {
    uint64_t *order = base_calloc((size_t)o->documents, sizeof(*order));
    double at = 0;
    if (!order) w->rc = RP_ERR_MEMORY;
    for (int32_t i = 0; i < o->requests && !w->rc; i++) {
        at += sim_random_exponential(random) / (o->rate * o->speed);
        sim_prompt *p = workload_add(w, (uint64_t)(at * 1e6), 0);
        if (!p) break;
        p->prompt_tokens = o->chosen * o->prefix_tokens + o->question_tokens;
        p->answer_tokens = o->answer_tokens;
        add_documents(w, o, p, random, order);
        p->n_items = p->n_kept;
    }
    base_free(order);
}

/* A turn's prompt is all before it and a question; its answer belongs to the next prompt. */
static void make_conversations(sim_workload *w, const rp_cluster_simulate_options *o, sim_random *random) {
    double at = 0;
    for (uint64_t c = 0; (int64_t)w->n < o->requests && !w->rc; c++) {
        uint64_t text = (UINT64_C(1) << 41) + c;
        uint32_t tenant = o->faults ? (uint32_t)sim_random_below(random, FAULT_TENANTS) : 0;
        int32_t tokens = o->prefix_tokens;
        at += sim_random_exponential(random) * o->turns / (o->rate * o->speed);
        for (int32_t turn = 0; turn < o->turns && (int64_t)w->n < o->requests; turn++) {
            uint64_t when = turn == 0 ? (uint64_t)(at * 1e6)
                                      : (uint64_t)(sim_random_exponential(random) * o->think_s * 1e6 / o->speed);
            sim_prompt *p = workload_add(w, when, tenant);
            if (!p) return;
            p->follows = turn > 0;
            if (turn > 0) w->prompts[w->n - 2].next = (uint32_t)(w->n - 1);
            p->session = c + 1;
            p->priority = o->faults ? (int32_t)sim_random_below(random, 3) - 1 : 0;
            p->answer_tokens = 1 + (int32_t)sim_random_below(random, (uint64_t)(2 * o->answer_tokens));
            p->prompt_tokens = tokens + 1 + (int32_t)sim_random_below(random, (uint64_t)(2 * o->question_tokens));
            /* All conversations of a group begin alike. */
            int32_t end = workload_add_text(w, p, c % (uint64_t)o->groups, 0, o->prefix_tokens, RP_NAME_TOKENS);
            end = workload_add_text(w, p, text, end, p->prompt_tokens, RP_NAME_TOKENS);
            p->n_items = p->n_kept;
            tokens = p->prompt_tokens + p->answer_tokens;
            workload_add_text(w, p, text, end, tokens, RP_NAME_TOKENS);
        }
    }
}

int sim_workload_make(sim_workload *w, const rp_cluster_simulate_options *o, const rp_cluster_trace_request *trace,
                      size_t n, rp_error *err) {
    sim_random random = {o->seed};
    int rc = RP_OK;
    *w = (sim_workload){.kv_bytes = o->kv_bytes_per_token, .salt = sim_random_next(&random)};
    switch ((rp_cluster_workload)o->workload) {
    case RP_CLUSTER_TRACE: rc = make_trace(w, o, trace, n, err); break;
    case RP_CLUSTER_SHARED_PREFIX: make_shared_prefix(w, o, &random); break;
    case RP_CLUSTER_RETRIEVAL: make_retrieval(w, o, &random); break;
    case RP_CLUSTER_CONVERSATIONS: make_conversations(w, o, &random); break;
    }
    if (rc || !w->rc) return rc;
    return base_fail(err, w->rc == RP_ERR_LIMIT ? RP_ERR_LIMIT : RP_ERR_MEMORY,
                     "a workload of more than %zu requests and %zu names: %s", w->n, w->n_names,
                     w->rc == RP_ERR_LIMIT ? "too many" : "out of memory");
}
