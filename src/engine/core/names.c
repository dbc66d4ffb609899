/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: the names of the KV that a request can reuse (reprise_cluster.h; store/index/span_names.h has the names),
 * and the report of what the store holds. A request is planned as one that is submitted; nothing is looked up. Any
 * thread.
 */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/sized.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/job_tokens.h"
#include "engine/core/request.h"
#include "kv/kv_plan.h"
#include "kv/span.h"
#include "model/reduction.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "reprise_cluster.h"
#include "store/record/record.h"
#include "store/index/span_names.h"

#define MAX_NAMES ((size_t)1 << 24)

typedef struct names_owner {
    rp_plan_names names; /* first */
    size_t cap;
} names_owner;

static int names_add(names_owner *o, const rp_named_kv *about, rp_error *err) {
    rp_plan_names *n = &o->names;
    BASE_ASSERT(about->n_tokens > 0 && about->position >= 0);
    int rc = base_grow((void **)&n->items, &o->cap, (size_t)n->n_items + 1, MAX_NAMES, sizeof(*n->items));
    if (rc) return base_fail(err, rc, "a prompt of %d names", n->n_items);
    n->items[n->n_items++] = *about;
    return RP_OK;
}

static uint64_t names_token_bytes(const rp_engine *e, rp_kv_format format) {
    const kv_shape shape = kv_shape_in(&e->states->shape, format);
    return kv_shape_token_bytes(&shape);
}

/* ---- modules ---- */

/* The slots of a view, without holes and those that the prompt computes again. */
typedef struct used_slots {
    pml_slots slots;
    const int32_t *again;
    int32_t n_again, k, next; /* next: -1: there is none */
} used_slots;

static void used_slots_advance(used_slots *u) {
    while (pml_slots_next(&u->slots, &u->next)) {
        while (u->k < u->n_again && u->again[u->k] < u->next) u->k++;
        if (u->k == u->n_again || u->again[u->k] != u->next) return;
    }
    u->next = -1;
}

/* How many of them are before slot `end`, from the next one on. */
static int32_t used_slots_until(used_slots *u, int32_t end) {
    int32_t n = 0;
    for (; u->next >= 0 && u->next < end; n++) used_slots_advance(u);
    return n;
}

/* The first part of reduced KV has the others' number: it stands for all of them. */
static int name_reduced(const rp_job *c, const pml_item *item, const pml_segment *s, used_slots *used, names_owner *o,
                        rp_error *err) {
    const int32_t group = (int32_t)(item - c->plan->items) + 1;
    BASE_ASSERT(s->keep > 0 && used->next >= 0);
    const base_key key = pml_reduced_key(s, 0);
    rp_named_kv about = {.is_module = true, .group = group, .position = item->pos + used->next};
    about.n_tokens = used_slots_until(used, INT32_MAX);
    const uint64_t share = s->keep == REDUCTION_AUTO ? REDUCTION_ALL : (uint64_t)s->keep;
    about.bytes = (uint64_t)about.n_tokens * names_token_bytes(c->engine, s->format) * share / REDUCTION_ALL;
    about.name = span_name_of(c->engine->cluster_key, &key);
    return names_add(o, &about, err);
}

static int name_view(const rp_job *c, const pml_item *item, names_owner *o, rp_error *err) {
    const pml_layout *l = c->plan->layout;
    const pml_segment *s = &l->segments[item->segment];
    const int32_t group = (int32_t)(item - c->plan->items) + 1;
    used_slots used = {
        .slots = pml_item_slots(c->plan, item), .again = pml_item_again(c->plan, item), .n_again = item->n_again};
    int rc = RP_OK;
    used_slots_advance(&used);
    if (used.next < 0) return RP_OK;
    if (item->reduced) return name_reduced(c, item, s, &used, o, err);
    for (int32_t i = 0; i < s->n_spans && used.next >= 0 && !rc; i++) {
        rp_named_kv about = {.is_module = true, .group = group, .position = item->pos + used.next};
        about.n_tokens = used_slots_until(&used, (i + 1) * KV_SPAN_TOKENS);
        const int32_t span_tokens = BASE_MIN(KV_SPAN_TOKENS, s->n_tokens - i * KV_SPAN_TOKENS);
        about.bytes = (uint64_t)span_tokens * names_token_bytes(c->engine, s->format);
        about.name = span_name_of(c->engine->cluster_key, &pml_segment_keys(l, s)[i]);
        if (about.n_tokens > 0) rc = names_add(o, &about, err);
    }
    BASE_ASSERT(rc || used.next < 0); /* all slots are in spans */
    return rc;
}

/* ---- text ---- */

/* Own tokens [begin, end) of one scope. *named: the end of the last token with a name. */
static int name_text(const rp_job *c, const base_key *root, int32_t begin, int32_t end, int32_t *named, names_owner *o,
                     rp_error *err) {
    BASE_ASSERT(*named <= begin);
    const uint64_t token_bytes = names_token_bytes(c->engine, c->format);
    span_chain chain = span_chain_begin(c->engine->cluster_key, root);
    int rc = RP_OK;
    for (int32_t i = begin; i + SPAN_NAME_TOKENS <= end && !rc; i += SPAN_NAME_TOKENS) {
        rp_named_kv about = {.n_tokens = i + SPAN_NAME_TOKENS - *named, .position = c->positions[*named]};
        about.bytes = (uint64_t)about.n_tokens * token_bytes;
        span_chain_next(&chain, c->tokens + i, c->positions + i);
        about.name = chain.name;
        *named = i + SPAN_NAME_TOKENS;
        rc = names_add(o, &about, err);
    }
    return rc;
}

/* ---- of a request ---- */

static int names_make(const rp_job *c, rp_plan_names **out, rp_error *err) {
    names_owner *o = base_calloc(1, sizeof(*o));
    if (!o) return base_fail_memory(err, sizeof(*o), "names");
    o->names = (rp_plan_names){.struct_size = (uint32_t)sizeof(o->names),
                               .prompt_tokens = c->plan->n_cached + c->plan->n_fresh,
                               .max_tokens = BASE_MAX(c->answer.most, 0),
                               .owner = o};
    const bool has_modules = !c->exact && c->plan->layout && c->request->options.reuse == RP_REUSE_ON;
    int rc = RP_OK;
    for (size_t i = 0; has_modules && i < c->plan->n_items && !rc; i++)
        if (c->plan->items[i].is_view) rc = name_view(c, &c->plan->items[i], o, err);
    const int32_t most = job_most_found(c);
    int32_t named = 0;
    for (int32_t k = 0; k < c->n_scopes && c->prefix.shares && !rc; k++)
        rc = name_text(c, &c->scopes[k].root, c->scopes[k].first, BASE_MIN(most, job_scope_end(c, k)), &named, o, err);
    if (rc) rp_plan_names_free(&o->names);
    else *out = &o->names;
    return rc;
}

int rp_plan_names_of(rp_engine *e, const rp_request *request, rp_plan_names **out, rp_error *err) {
    rp_request o = rp_request_defaults();
    rp_job *c = NULL;
    if (!e || !request || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_plan_names_of: engine, request and out are needed");
    *out = NULL;
    if (!e->cluster_key)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "the engine has no cluster key (rp_cluster_options.key): names need one");
    int rc = base_sized_read(&o, sizeof(o), request, "rp_request", err);
    job_features_options(e, &o);
    if (!rc) rc = job_new(&c, e, JOB_REQUEST, err);
    if (!rc) rc = job_plan_prompt(c, &o, err);
    if (!rc) rc = names_make(c, out, err);
    job_free(c);
    return rc;
}

void rp_plan_names_free(rp_plan_names *names) {
    if (!names) return;
    names_owner *o = names->owner;
    base_free(names->items);
    base_free(o);
}
