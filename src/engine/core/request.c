/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: a request on the submitting thread: copied, parsed, planned, checked. */
#include "engine/core/request.h"

#include <string.h>

#include "base/budget.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/sized.h"
#include "engine/background/audit.h"
#include "engine/background/reductions.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/fallback.h"
#include "engine/core/identity.h"
#include "engine/core/job.h"
#include "engine/core/job_feature.h"
#include "engine/core/job_tokens.h"
#include "engine/core/observer.h"
#include "engine/core/prompts.h"
#include "engine/core/schemas.h"
#include "engine/core/vocabulary.h"
#include "engine/reuse/auto_modules.h"
#include "engine/reuse/conversation.h"
#include "kv/block_pool.h"
#include "model/model.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/document.h"
#include "pml/plan.h"
#include "pml/quality.h"
#include "sampling/answer.h"
#include "sampling/prompt_lookup.h"
#include "sampling/sampler.h"
#include "store/index/eviction.h"
#include "store/record/record.h"
#include "store/span_store.h"
#include "reprise_pml.h"
#include "reprise_test.h"

#define DEFAULT_MAX_TOKENS 128

void rp_request_init(rp_request *request, uint32_t struct_size) {
    rp_request own = {
        .max_tokens = DEFAULT_MAX_TOKENS, .shifted_reuse = -1, .sampling = rp_sampling_defaults(), .adapter_scale = 1};
    base_sized_init(request, struct_size, &own, sizeof(own));
}

/* ---- checks and copies ---- */

static int request_check_options(const rp_engine *e, const rp_request *o, rp_error *err) {
    int32_t n_vocab = e->model->net.hp.n_vocab;
    const rp_request_experiment *x = o->experiment;
    const int rc = engine_prompt_check(&o->prompt, err);
    if (rc) return rc;
    for (int32_t i = 0; x->forced && i < x->n_forced; i++)
        if (x->forced[i] < 0 || x->forced[i] >= n_vocab)
            return base_fail(err, RP_ERR_INVALID, "forced token %d is %d, the vocabulary has %d", i, x->forced[i],
                             n_vocab);
    if (o->n_draft < RP_DRAFT_AUTO || o->n_draft > RP_MAX_DRAFT)
        return base_fail(err, RP_ERR_INVALID, "n_draft is %d: give up to %d tokens, 0 for none, or %d: automatic",
                         o->n_draft, RP_MAX_DRAFT, RP_DRAFT_AUTO);
    if (o->shifted_reuse < -1)
        return base_fail(err, RP_ERR_INVALID, "shifted_reuse is %d: give a number of tokens, or -1 for off",
                         o->shifted_reuse);
    if (!pml_quality_is_valid(o->quality))
        return base_fail(err, RP_ERR_INVALID, "quality %d:%d: " PML_QUALITY_ADVICE, (int)o->quality.mode,
                         o->quality.amount);
    if (o->reuse == RP_REUSE_EXACT && o->quality.mode != RP_QUALITY_AS_WRITTEN && o->quality.mode != RP_QUALITY_EXACT)
        return base_fail(err, RP_ERR_CONFLICT, "reuse 'exact' contradicts quality: give one of them");
    if (o->n_kept_shares < 0)
        return base_fail(err, RP_ERR_INVALID, "n_kept_shares is %d: give up to %d, or 0 for none", o->n_kept_shares,
                         RP_MAX_KEPT_SHARES);
    if (o->n_kept_shares > RP_MAX_KEPT_SHARES)
        return base_fail(err, RP_ERR_LIMIT, "n_kept_shares is %d: give at most %d", o->n_kept_shares,
                         RP_MAX_KEPT_SHARES);
    if (o->retain_s < 0)
        return base_fail(err, RP_ERR_INVALID, "retain_s is %d: give a number of seconds, or 0", o->retain_s);
    if ((o->session && strlen(o->session) > RP_MAX_SESSION_BYTES) ||
        (o->parent_session && strlen(o->parent_session) > RP_MAX_SESSION_BYTES))
        return base_fail(err, RP_ERR_LIMIT, "the name of a session has more than %d bytes", RP_MAX_SESSION_BYTES);
    if (o->deadline_ms < 0)
        return base_fail(err, RP_ERR_INVALID, "deadline_ms is %lld: give 0 (none) or more", (long long)o->deadline_ms);
    return sampling_check(o, n_vocab, err);
}

/* n items, or NULL if there are none. false: no memory. */
static bool copy_items(void **out, const void *items, int32_t n, size_t bytes) {
    *out = NULL;
    if (!items || n <= 0) return true;
    *out = base_alloc((size_t)n * bytes);
    if (*out) memcpy(*out, items, (size_t)n * bytes);
    return *out != NULL;
}

static bool copy_stops(job_request *q, const rp_request *o) {
    if (o->n_stops <= 0) return true;
    q->stops = base_calloc((size_t)o->n_stops, sizeof(*q->stops));
    for (int32_t i = 0; q->stops && i < o->n_stops; i++)
        if (!(q->stops[i] = base_strdup(o->stops[i]))) return false;
    return q->stops != NULL;
}

/* Copies what the job needs after it is queued. prompt, tenant, flow, kv_format, kv_keep, kv_method, resumed, adapter,
 * session and parent_session are used before. */
static int copy_request(job_request *q, const rp_request *o, rp_error *err) {
    rp_request *own = &q->options;
    *own = *o;
    own->session = own->parent_session = NULL;
    own->prompt = (rp_prompt){.continues_last = o->prompt.continues_last};
    own->tenant = own->flow = own->kv_format = own->kv_keep = own->kv_method = NULL;
    own->resumed = NULL;
    own->stops = NULL;
    own->adapter = NULL;
    if (!copy_items((void **)&q->bias, o->sampling.bias, o->sampling.n_bias, sizeof(*q->bias)) ||
        !copy_items((void **)&q->forced, o->experiment->forced, o->experiment->n_forced, sizeof(*q->forced)) ||
        !copy_items((void **)&q->known, o->experiment->known, o->experiment->n_known, sizeof(*q->known)) ||
        !copy_stops(q, o))
        return base_fail_memory(err, sizeof(*o), "a request");
    own->sampling.bias = q->bias;
    q->experiment = *o->experiment;
    q->experiment.forced = q->forced;
    q->experiment.known = q->known;
    own->experiment = &q->experiment;
    own->stops = (const char *const *)q->stops;
    return RP_OK;
}

/* ---- planning ---- */

/* The request's own schema, or the one of that name. */
static int request_find_schema(rp_job *c, const rp_request *o, const char *name, rp_error *err) {
    rp_schema **schema = &job_draft(c)->schema;
    const rp_schema_options options = {.kv_format = o->kv_format};
    const char *own = o->prompt.schema;
    int rc = own ? engine_make_schema(c->engine, &c->salt, own, strlen(own), "schema", NULL, &options, schema, err)
                 : engine_find_schema(c->engine, &c->salt, name, schema, err);
    if (!rc) rc = engine_use_schema(c->engine, schema, c->wants.adapter, err);
    if (rc || !own || strcmp((*schema)->name, name) == 0) return rc;
    return base_fail(err, RP_ERR_NAME, "the prompt is for schema '%.100s', and the request's own is '%.100s'", name,
                     (*schema)->name);
}

/* An error in the schema of a parsed document is reported with the place that names the schema. */
static int parse_prompt(rp_job *c, const rp_request *o, const char *name, rp_error *err) {
    rp_error found;
    int rc = pml_prompt_parse(&job_draft(c)->document, o->prompt.content, o->prompt.n, name, err);
    if (rc || !(rc = request_find_schema(c, o, c->request->document->nodes[0].name, &found))) return rc;
    if (rc == RP_ERR_NAME && found.where[0] == '\0')
        return pml_fail(err, RP_ERR_NAME, c->request->document, 0, "%s", found.message);
    if (err) *err = found;
    return rc;
}

static int build_prompt(rp_job *c, const rp_request *o, const char *name, rp_error *err) {
    const rp_builder *built = o->prompt.content;
    const char *schema = builder_schema(built);
    int rc = builder_check(built, err);
    if (!rc && !schema && o->prompt.schema)
        return base_fail(err, RP_ERR_CONFLICT,
                         "the prompt has no schema, but the request has one: name it in rp_builder_new");
    if (!rc && schema) rc = request_find_schema(c, o, schema, err);
    else if (!rc) rc = builder_make_schema(built, c->engine, &c->salt, name, o->kv_format, &job_draft(c)->schema, err);
    if (!rc && !schema) rc = engine_use_schema(c->engine, &job_draft(c)->schema, c->wants.adapter, err);
    return rc ? rc : builder_build(built, c->request->schema->document, name, &job_draft(c)->document, err);
}

/* The number of a session: of a tenant's salt and a name. 0: no name. */
static uint64_t session_number(const base_key *salt, const char *name) {
    base_key key;
    base_hash h;
    uint64_t number;
    if (!name || !name[0]) return 0;
    base_hash_init(&h, "reprise session 1");
    base_hash_key(&h, salt);
    base_hash_bytes(&h, name, strlen(name));
    base_hash_final(&h, &key);
    memcpy(&number, key.bytes, sizeof(number));
    return BASE_MAX(number, 1);
}

static int make_plan(rp_job *c, const rp_request *o, rp_error *err) {
    int rc = engine_salt(c->engine, o->tenant, &c->salt, err);
    if (!rc) rc = engine_salt(c->engine, o->flow ? o->flow : o->tenant, &job_draft(c)->flow, err);
    if (rc) return rc;
    const bool is_subagent = o->parent_session && o->parent_session[0];
    const uint64_t session = session_number(&c->salt, o->session);
    const eviction_rank rank = session == 0 ? EVICTION_ONE_OFF : is_subagent ? EVICTION_SUBAGENT
                                                                             : EVICTION_RUNNING;
    job_draft(c)->reader = (span_reader){.who = {session, rank}, .keep_s = o->retain_s};
    c->format = engine_text_format(c->engine);
    const rp_prompt *p = &o->prompt;
    const char *name = p->name ? p->name : "prompt";
    if (p->kind == RP_PROMPT_MESSAGES || p->kind == RP_PROMPT_RENDERED) return conversation_plan(c, o, err);
    if (p->kind == RP_PROMPT_TOKENS) return pml_plan_tokens(&c->plan, c->engine->model, p->content, p->n, err);
    if (p->kind == RP_PROMPT_TEXT) {
        bool planned;
        rc = job_features_plan_text(c, p->content, p->n, &planned, err);
        return rc || planned ? rc : pml_plan_text(&c->plan, c->engine->model, p->content, p->n, err);
    }
    if ((rc = p->kind == RP_PROMPT_BUILT ? build_prompt(c, o, name, err) : parse_prompt(c, o, name, err))) return rc;
    c->format =
        c->request->schema->layout->formats.text; /* of both or of neither: the engine may fall back meanwhile */
    const bool is_exact = o->reuse == RP_REUSE_EXACT || !engine_reuses_modules(c->engine);
    rp_quality quality = is_exact ? (rp_quality){RP_QUALITY_EXACT, 0} : o->quality;
    rc = pml_plan_new(&c->plan, c->request->schema->layout, c->request->document, p->continues_last, quality,
                      audit_least(c), err);
    if (!rc) c->exact = c->plan->is_flat;
    return rc;
}

static int check_plan(rp_job *c, rp_error *err) {
    const rp_engine *e = c->engine;
    int32_t first = c->request->experiment.first_position;
    if (first < 0) return base_fail(err, RP_ERR_INVALID, "first_position is %d", first);
    if (first > 0 && c->request->document && !model_is_movable(e->model))
        return base_fail(err, RP_ERR_INVALID,
                         "first_position is %d, but modules of architecture '%s' cannot be shifted", first,
                         e->model->arch->name);
    int64_t end = (int64_t)c->plan->end + first;
    if (end > e->n_ctx) {
        int rc =
            base_fail(err, RP_ERR_CONTEXT,
                      "the prompt needs %lld positions, but the context has %d: shorten the prompt, or raise n_ctx "
                      "(the model was trained for %d)",
                      (long long)end, e->n_ctx, e->model->net.hp.n_ctx_train);
        if (err) {
            err->prompt_tokens = end;
            err->context_tokens = e->n_ctx;
        }
        return rc;
    }
    pml_plan_move(c->plan, first);
    return RP_OK;
}

/* ---- tokens after the views ---- */

static int list_tokens(rp_job *c, rp_error *err) {
    job_features_count(c);
    BASE_ASSERT(c->plan->n_fresh > 0); /* the last token is never a view's */
    c->cap_tokens = c->plan->n_fresh + (c->exact ? c->plan->n_cached : c->wants.n_extra);
    c->tokens = base_alloc((size_t)c->cap_tokens * sizeof(int32_t));
    c->positions = base_alloc((size_t)c->cap_tokens * sizeof(int32_t));
    if (!c->tokens || !c->positions)
        return base_fail_memory(err, (uint64_t)c->cap_tokens * sizeof(int32_t), "a prompt");
    const int rc = job_open_scopes(c, err);
    if (rc) return rc;
    if (c->exact) return job_list_flat(c, err);
    job_list_runs(c);
    return RP_OK;
}

/* Capacity for the answer: its tokens are computed, and may be hits, like those of the prompt. */
static int extend_tokens(rp_job *c, rp_error *err) {
    BASE_ASSERT(c->n_tokens == c->n_prompt && c->n_prompt <= c->cap_tokens);
    size_t cap = (size_t)c->cap_tokens + (size_t)BASE_MAX(c->answer.most, 0);
    int32_t *tokens = base_realloc(c->tokens, cap * sizeof(int32_t));
    if (tokens) c->tokens = tokens;
    int32_t *positions = base_realloc(c->positions, cap * sizeof(int32_t));
    if (positions) c->positions = positions;
    if (!tokens || !positions) return base_fail_memory(err, cap * sizeof(int32_t), "a prompt and its answer");
    c->cap_tokens = (int32_t)cap;
    return RP_OK;
}

/* ---- the budget ---- */

static int64_t request_capacity(const rp_engine *e) {
    return (int64_t)(kv_pool_get_stats(e->pool).budget_bytes / kv_pool_block_bytes(e->pool));
}

/* Tokens of the longest answer that the budget holds with the prompt; -1: it does not hold the prompt. */
static int32_t request_longest_answer(const rp_job *c) {
    const int64_t room = request_capacity(c->engine);
    int32_t low = BASE_MIN(c->answer.most, 1), high = c->answer.most; /* the last token is not computed */
    if (job_count_blocks(c, c->n_prompt, false) > room) return -1;
    while (low < high) {
        int32_t mid = high - (high - low) / 2;
        if (job_count_blocks(c, c->n_prompt + job_held(c, mid - 1), false) <= room) low = mid;
        else high = mid - 1;
    }
    BASE_ASSERT(low <= c->answer.most);
    return low;
}

/* The budget limits the answer; at least one token must fit. Defaults of features neither refuse a request nor shorten
   its answer. */
static int request_check_budget(rp_job *c, rp_error *err) {
    int32_t most = request_longest_answer(c);
    if (most < c->answer.most && job_features_yield(c, true)) {
        const int32_t longer = request_longest_answer(c);
        if (longer == most) job_features_yield(c, false);
        most = longer;
    }
    if (most < 0)
        return base_fail(err, RP_ERR_BUDGET,
                         "the prompt needs %lld KV blocks, but the budget allows %lld (%llu bytes): raise "
                         "kv_budget_bytes or ram_bytes, or shorten the prompt",
                         (long long)job_count_blocks(c, c->n_prompt, false), (long long)request_capacity(c->engine),
                         (unsigned long long)kv_pool_get_stats(c->engine->pool).budget_bytes);
    c->answer.most = most;
    return RP_OK;
}

/* ---- all of it ---- */

/* The history for penalties and drafts: the prompt as a plain run would have it. */
static int read_back(rp_job *c, rp_error *err) {
    const int32_t n_draft = c->request->options.n_draft, most = n_draft == RP_DRAFT_AUTO ? RP_MAX_DRAFT : n_draft;
    bool drafts = most > 0 && !c->request->experiment.forced,
         penalties = sampling_looks_back(&c->request->options.sampling);
    size_t n = (size_t)c->plan->n_cached + (size_t)c->plan->n_fresh;
    if (!drafts && !penalties) return RP_OK;
    int32_t *tokens = base_calloc(2 * n, sizeof(*tokens));
    if (!tokens) return base_fail_memory(err, 2 * n * sizeof(*tokens), "a prompt");
    int rc = pml_plan_flatten(c->plan, tokens, tokens + n, err);
    for (size_t i = 0; i < n && penalties && !rc; i++) sampler_accept(&c->answer.sampler, tokens[i]);
    if (!rc && drafts)
        rc = prompt_lookup_open(&c->prompt_lookup, tokens, (int32_t)n, (int32_t)n + c->answer.most, most, err);
    base_free(tokens);
    return rc;
}

/* Is the answer preceded by nothing, or only by the beginning-of-text token? */
static bool begins_text(const rp_model *m, const rp_request *o) {
    const int32_t *tokens = o->prompt.content;
    if (o->prompt.kind == RP_PROMPT_TOKENS) return o->prompt.n == 1 && tokens[0] == tokenizer_bos(m->tokenizer);
    return o->prompt.kind == RP_PROMPT_TEXT && o->prompt.n == 0;
}

static answer_place request_answer_place(const rp_job *c, const rp_request *o) {
    const rp_model *m = c->engine->model;
    const int32_t most = c->wants.most_answer;
    BASE_ASSERT(most > 0 || c->plan->end <= c->engine->n_ctx); /* check_plan */
    return (answer_place){
        .tokenizer = m->tokenizer,
        .n_vocab = m->net.hp.n_vocab,
        .n_prompt = c->plan->n_cached + c->plan->n_fresh,
        .room = most > 0 ? most : (int64_t)c->engine->n_ctx - c->plan->end + 1, /* its last token is not computed */
        .begins_text = begins_text(m, o),
    };
}

static int job_open_result(rp_job *c, rp_error *err) {
    c->result = base_calloc(1, sizeof(*c->result));
    if (!c->result) return base_fail_memory(err, sizeof(*c->result), "a result");
    c->result->struct_size = (uint32_t)sizeof(*c->result);
    c->result->draft_reason = "";
    return RP_OK;
}

static int open_answer(rp_job *c, const rp_request *o, rp_error *err) {
    answer_place place = request_answer_place(c, o);
    int rc = RP_OK;
    if (o->grammar) rc = vocabulary_trie(c->engine, o->special_text, &place.trie, err);
    if (!rc) rc = answer_open(&c->answer, &c->request->options, &place, c->result, err);
    job_draft(c)->options.grammar = job_draft(c)->options.grammar_trigger =
        NULL; /* borrowed from the caller, and compiled now */
    return rc;
}

int job_plan_prompt(rp_job *c, const rp_request *o, rp_error *err) {
    rp_request plain = *o;
    rp_request_experiment experiment = {.struct_size = sizeof(experiment)};
    int rc = base_sized_read(&experiment, sizeof(experiment), o->experiment, "rp_request_experiment", err);
    if (rc) return rc;
    if (o->pooling != RP_POOLING_OFF) experiment.forced = NULL; /* an embedding has no answer */
    plain.experiment = &experiment;
    c->automatic.asked = o->reuse == RP_REUSE_AUTO;
    if (c->automatic.asked) plain.reuse = RP_REUSE_ON; /* what auto_modules.h adds apart */
    o = &plain;
    if ((rc = request_check_options(c->engine, o, err)) || (rc = job_features_ask(c, o, err)) ||
        (rc = copy_request(job_draft(c), o, err)) || (rc = make_plan(c, o, err)) || (rc = check_plan(c, err)) ||
        (rc = job_features_plan(c, err)) || (reductions_plan(c), rc = list_tokens(c, err)) ||
        (rc = job_open_result(c, err)) || (rc = job_features_open(c, err)))
        return rc;
    const answer_place place = request_answer_place(c, o);
    answer_limit(&c->answer, &c->request->options, &place);
    if ((rc = request_check_budget(c, err))) return rc;
    c->prefix.shares = o->reuse != RP_REUSE_OFF && !o->experiment->no_prefix && !c->wants.unshared;
    rc = auto_modules_plan(c, err);
    if (!rc) c->automatic.allowed = audit_allows_auto(c);
    return rc;
}

int job_plan(rp_job *c, const rp_request *o, rp_error *err) {
    uint64_t start = base_clock_us();
    int rc;
    if ((rc = job_plan_prompt(c, o, err)) || (rc = open_answer(c, o, err)) || (rc = extend_tokens(c, err))) return rc;
    for (const job_observer *const *observer = c->engine->observers; *observer; observer++)
        if ((*observer)->planned && (rc = (*observer)->planned(c, err))) return rc;
    if ((rc = read_back(c, err)) || (rc = job_features_begin(c, err))) return rc;
    job_draft(c)->planned_us = base_clock_us() - start;
    return RP_OK;
}
