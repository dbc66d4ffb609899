/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c: see embedding.h. */
#include "engine/features/embedding.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "backend/backend.h"
#include "model/model.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/plan.h"

/* ---- names ---- */

static const char *const names[RP_N_POOLINGS] = {"off", "model", "mean", "cls", "last", "rank"};

const char *rp_pooling_name(rp_pooling pooling) { return (unsigned)pooling < RP_N_POOLINGS ? names[pooling] : NULL; }

int rp_pooling_parse(const char *name, rp_pooling *out, rp_error *err) {
    if (!name || !out) return base_fail(err, RP_ERR_INVALID, "rp_pooling_parse: name and out are needed");
    for (int i = RP_POOLING_MODEL; i < RP_N_POOLINGS; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (rp_pooling)i;
        return RP_OK;
    }
    return base_fail(err, RP_ERR_INVALID, "unknown pooling '%.32s': give mean, cls, last, rank or model", name);
}

/* ---- the request ---- */

typedef struct job_embedding {
    rp_pooling pooling;   /* neither OFF nor MODEL */
    double *sum;          /* [n_embedding] */
    double *scratch;      /* [model_dense_scratch] */
    int32_t first_second; /* index of the first token of a pair's second text: its tokens have type 1; INT32_MAX:
                             none */
} job_embedding;

static job_embedding *embedding_of(const rp_job *c) { return job_feature_state(c, &embedding_feature); }

/* An embedding ignores them. */
static void embedding_options(rp_request *o) {
    if (o->pooling == RP_POOLING_OFF) return;
    o->max_tokens = o->n_draft = o->n_stops = o->n_logprobs = o->n_prompt_logprobs = 0;
    o->sampling = rp_sampling_defaults();
    o->stops = NULL;
    o->grammar = o->grammar_trigger = NULL;
    o->shifted_reuse = -1;
    o->prompt.continues_last = false;
}

static rp_pooling resolve(const rp_model *m, rp_pooling pooling) {
    return pooling == RP_POOLING_MODEL ? m->net.hp.pooling : pooling;
}

static int check_options(const rp_model *m, const rp_request *o, rp_error *err) {
    if ((unsigned)o->pooling >= RP_N_POOLINGS)
        return base_fail(err, RP_ERR_INVALID, "unknown pooling value %d", (int)o->pooling);
    if (o->pooling == RP_POOLING_OFF && model_is_encoder(m))
        return base_fail(
            err, RP_ERR_UNSUPPORTED,
            "'%s' is an encoder: it computes embeddings and generates no text: use a model that generates, "
            "or ask for embeddings",
            m->arch->name);
    if (o->pooling == RP_POOLING_OFF) return RP_OK;
    if (model_is_encoder(m) && o->prompt.kind != RP_PROMPT_TEXT && o->prompt.kind != RP_PROMPT_TOKENS)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "'%s' is an encoder: it embeds plain text or tokens, without messages or modules",
                         m->arch->name);
    if (resolve(m, o->pooling) == RP_POOLING_RANK && (!model_is_encoder(m) || m->net.hp.n_outputs == 0))
        return base_fail(err, RP_ERR_UNSUPPORTED, "the model has no rank head: use a reranker, or another pooling");
    if (o->n_resumed > 0)
        return base_fail(err, RP_ERR_CONFLICT, "resumed tokens are of an answer: leave them out for embeddings");
    if (o->context_shift)
        return base_fail(err, RP_ERR_CONFLICT, "context_shift is for answers: leave it out for embeddings");
    if (o->kv_keep && strcmp(o->kv_keep, "off") != 0)
        return base_fail(err, RP_ERR_CONFLICT, "kv_keep is for answers: leave it out for embeddings");
    return RP_OK;
}

static int embedding_ask(rp_job *c, const rp_request *o, rp_error *err) {
    const rp_model *m = c->engine->model;
    const rp_pooling pooling = resolve(m, o->pooling);
    const int rc = check_options(m, o, err);
    if (rc || pooling == RP_POOLING_OFF) return rc;
    BASE_ASSERT(pooling > RP_POOLING_MODEL);
    job_embedding *embedding = job_feature_add(c, &embedding_feature);
    if (!embedding) return base_fail_memory(err, sizeof(*embedding), "an embedding");
    embedding->pooling = pooling;
    return RP_OK;
}

/* A text with the special tokens of its embedding. */
static int embedding_plan_text(rp_job *c, const char *text, size_t n, rp_error *err) {
    token_list list = {0};
    int rc = tokenizer_encode_embedding(c->engine->model->tokenizer, text, n, NULL, 0, 0, &list, err);
    if (!rc) rc = pml_plan_tokens(&c->plan, c->engine->model, list.ids, list.n, err);
    token_list_free(&list);
    return rc;
}

/* A pair is what its separator divides: the tokens after the first one, unless it is the last token. */
static int32_t find_second(const rp_job *c) {
    const rp_model *m = c->engine->model;
    const int32_t separator = tokenizer_sep(m->tokenizer);
    if (m->net.hp.n_types < 2 || separator < 0) return INT32_MAX;
    for (int32_t i = 0; i + 1 < c->n_prompt; i++)
        if (c->tokens[i] == separator) return i + 1;
    return INT32_MAX;
}

/* May its KV be that of other requests, and theirs its own? An encoder's depends on the whole text; mean and cls need
   the states of all tokens. */
static bool is_cacheable(const rp_job *c, const job_embedding *embedding) {
    return embedding->pooling == RP_POOLING_LAST && !model_is_encoder(c->engine->model);
}

static int embedding_open(rp_job *c, rp_error *err) {
    const rp_model *m = c->engine->model;
    job_embedding *embedding = embedding_of(c);
    rp_result *r = c->result;
    if (!embedding) return RP_OK;
    if (c->wants.n_late > 0)
        return base_fail(err, RP_ERR_CONFLICT, "quality 'focus' is for answers: give another quality for embeddings");
    if (embedding->pooling != RP_POOLING_LAST && c->plan->n_cached > 0 && !c->exact)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "pooling '%s' needs the hidden states of all tokens, and modules have none: give pooling "
                         "last, or quality exact",
                         rp_pooling_name(embedding->pooling));
    if (!is_cacheable(c, embedding)) c->wants.unshared = true;
    c->wants.one_part = model_is_encoder(m);
    embedding->first_second = find_second(c);
    r->n_embedding = embedding->pooling == RP_POOLING_RANK ? m->net.hp.n_outputs : m->net.hp.n_embd;
    BASE_ASSERT(r->n_embedding > 0);
    r->embedding = base_calloc((size_t)r->n_embedding, sizeof(float));
    embedding->sum = base_calloc((size_t)r->n_embedding, sizeof(double));
    embedding->scratch = base_calloc(model_dense_scratch(m) + 1, sizeof(double));
    if (!r->embedding || !embedding->sum || !embedding->scratch)
        return base_fail_memory(err, (uint64_t)r->n_embedding * sizeof(double), "an embedding");
    return RP_OK;
}

/* ---- steps ---- */

/* Whose states or scores are needed. */
static void want_row(const rp_job *c, rp_pooling pooling, int32_t k, model_row *row) {
    switch (pooling) {
    case RP_POOLING_MEAN: row->wants_hidden = true; break;
    case RP_POOLING_CLS: row->wants_hidden = k == 0; break;
    case RP_POOLING_RANK: row->wants_logits = k == 0; break;
    case RP_POOLING_LAST: row->wants_hidden = k == c->n_prompt - 1; break;
    case RP_POOLING_OFF:
    case RP_POOLING_MODEL: break;
    }
}

static void embedding_row(rp_job *c, int32_t token, model_row *row) {
    const job_embedding *embedding = embedding_of(c);
    BASE_ASSERT(token < c->n_prompt); /* no answer follows */
    want_row(c, embedding->pooling, token, row);
    if (!c->wants.one_part) return;
    row->after = c->positions[c->n_prompt - 1] - row->pos;
    row->type = token >= embedding->first_second;
}

/* The prompt is complete: its embedding becomes the result's. */
static void embedding_finish(rp_job *c, const job_embedding *embedding) {
    rp_result *r = c->result;
    double *sum = embedding->sum, scale = embedding->pooling == RP_POOLING_MEAN ? 1.0 / c->n_prompt : 1.0, squares = 0;
    if (embedding->pooling != RP_POOLING_RANK) model_apply_dense(c->engine->model, sum, embedding->scratch);
    if (!c->request->options.raw_embedding && embedding->pooling != RP_POOLING_RANK) {
        for (int32_t d = 0; d < r->n_embedding; d++) squares += sum[d] * sum[d];
        scale = squares > 0 ? 1.0 / sqrt(squares) : 1.0;
    }
    for (int32_t d = 0; d < r->n_embedding; d++) r->embedding[d] = (float)(sum[d] * scale);
    r->finish_reason = "stop";
}

static int embedding_settle(rp_job *c, const job_rows *rows, BASE_UNUSED rp_error *err) {
    const job_embedding *embedding = embedding_of(c);
    const bool ranks = embedding->pooling == RP_POOLING_RANK;
    const float *x = ranks ? rows->logits : rows->hidden;
    const int32_t width = c->result->n_embedding;
    BASE_ASSERT(!c->wants.one_part || (rows->first == 0 && rows->n == c->n_prompt));
    BASE_ASSERT(ranks ? rows->n_hidden == 0 && rows->n_logits <= 1
                      : rows->n_logits == 0); /* the rows that embedding_row marked */
    for (int32_t i = 0; i < (ranks ? rows->n_logits : rows->n_hidden); i++, x += width)
        for (int32_t d = 0; d < width; d++) embedding->sum[d] += (double)x[d];
    if (rows->first + rows->n == c->n_prompt) embedding_finish(c, embedding);
    return RP_OK;
}

static const char *embedding_miss_reason(const rp_job *c) {
    return is_cacheable(c, embedding_of(c)) ? NULL : "pooling";
}

static void embedding_close(rp_job *c) {
    base_free(embedding_of(c)->sum);
    base_free(embedding_of(c)->scratch);
}

const job_feature embedding_feature = {
    .name = "pooling",
    .state_bytes = sizeof(job_embedding),
    .options = embedding_options,
    .ask = embedding_ask,
    .plan_text = embedding_plan_text,
    .open = embedding_open,
    .row = embedding_row,
    .settle = embedding_settle,
    .miss_reason = embedding_miss_reason,
    .close = embedding_close,
};
