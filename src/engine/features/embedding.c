/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c: see embedding.h. */
#include "engine/features/embedding.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "backend/backend.h"
#include "model/model.h"
#include "model/tokenizer/tokenizer.h"

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

void embedding_take_options(rp_request *o) {
    if (o->pooling == RP_POOLING_OFF) return;
    o->max_tokens = o->n_draft = o->n_stops = o->n_logprobs = 0;
    o->sampling = rp_sampling_defaults();
    o->stops = NULL;
    o->grammar = o->grammar_trigger = NULL;
    o->shifted_reuse = -1;
    o->continues_last = false;
}

static rp_pooling resolve(const rp_model *m, rp_pooling pooling) { return pooling == RP_POOLING_MODEL ? m->net.hp.pooling : pooling; }

int embedding_check_options(const rp_model *m, const rp_request *o, rp_error *err) {
    if ((unsigned)o->pooling >= RP_N_POOLINGS) return base_fail(err, RP_ERR_INVALID, "unknown pooling value %d", (int)o->pooling);
    if (o->pooling == RP_POOLING_OFF && model_is_encoder(m))
        return base_fail(err, RP_ERR_UNSUPPORTED, "'%s' is an encoder: it computes embeddings and generates no text: use a model that generates, "
                                                  "or ask for embeddings",
                         m->arch->name);
    if (o->pooling == RP_POOLING_OFF) return RP_OK;
    if (model_is_encoder(m) && (o->prompt || o->built || o->messages))
        return base_fail(err, RP_ERR_UNSUPPORTED, "'%s' is an encoder: it embeds plain text or tokens, without messages or modules", m->arch->name);
    if (resolve(m, o->pooling) == RP_POOLING_RANK && (!model_is_encoder(m) || m->net.hp.n_outputs == 0))
        return base_fail(err, RP_ERR_UNSUPPORTED, "the model has no rank head: use a reranker, or another pooling");
    if (o->n_resumed > 0) return base_fail(err, RP_ERR_CONFLICT, "resumed tokens are of an answer: leave them out for embeddings");
    if (o->context_shift) return base_fail(err, RP_ERR_CONFLICT, "context_shift is for answers: leave it out for embeddings");
    if (o->kv_keep && strcmp(o->kv_keep, "off") != 0) return base_fail(err, RP_ERR_CONFLICT, "kv_keep is for answers: leave it out for embeddings");
    return RP_OK;
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

int embedding_open(rp_job *c, rp_error *err) {
    const rp_model *m = c->engine->model;
    job_embedding *embedding = &c->embedding;
    rp_result *r = c->result;
    embedding->pooling = resolve(m, c->request->options.pooling);
    if (embedding->pooling == RP_POOLING_OFF) return RP_OK;
    if (c->focus.most > 0) return base_fail(err, RP_ERR_CONFLICT, "quality 'focus' is for answers: give another quality for embeddings");
    if (embedding->pooling != RP_POOLING_LAST && c->plan->n_cached > 0 && !c->exact)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "pooling '%s' needs the hidden states of all tokens, and modules have none: give pooling last, or quality exact",
                         rp_pooling_name(embedding->pooling));
    embedding->first_second = find_second(c);
    r->n_embedding = embedding->pooling == RP_POOLING_RANK ? m->net.hp.n_outputs : m->net.hp.n_embd;
    r->embedding = base_calloc((size_t)r->n_embedding, sizeof(float));
    embedding->sum = base_calloc((size_t)r->n_embedding, sizeof(double));
    if (!r->embedding || !embedding->sum) return base_fail_memory(err, (uint64_t)r->n_embedding * sizeof(double), "an embedding");
    return RP_OK;
}

void embedding_close(job_embedding *embedding) {
    base_free(embedding->sum);
    embedding->sum = NULL;
}

/* ---- steps ---- */

bool embedding_is_cacheable(const rp_job *c) {
    const rp_pooling pooling = c->embedding.pooling;
    return pooling == RP_POOLING_OFF || (pooling == RP_POOLING_LAST && !model_is_encoder(c->engine->model));
}

bool embedding_is_whole(const rp_job *c) { return model_is_encoder(c->engine->model); }

void embedding_prepare_row(const rp_job *c, int32_t k, model_row *row) {
    if (!embedding_is_whole(c)) return;
    row->after = c->positions[c->n_prompt - 1] - row->pos;
    row->type = k >= c->embedding.first_second;
}

int32_t embedding_mark_rows(const rp_job *c, int32_t k, model_row *rows, int32_t n) {
    const bool has_first = k == 0 && n > 0, has_last = k + n == c->n_prompt && n > 0;
    switch (c->embedding.pooling) {
    case RP_POOLING_MEAN:
        for (int32_t i = 0; i < n; i++) rows[i].wants_hidden = true;
        return n;
    case RP_POOLING_CLS:
        if (has_first) rows[0].wants_hidden = true;
        return has_first;
    case RP_POOLING_RANK:
        if (has_first) rows[0].wants_logits = true;
        return has_first;
    case RP_POOLING_LAST:
        if (has_last) rows[n - 1].wants_hidden = true;
        return has_last;
    case RP_POOLING_OFF:
    case RP_POOLING_MODEL: break;
    }
    return 0;
}

void embedding_add(rp_job *c, const float *hidden, const float *scores, int32_t n) {
    const float *x = c->embedding.pooling == RP_POOLING_RANK ? scores : hidden;
    const int32_t width = c->result->n_embedding;
    for (int32_t i = 0; i < n; i++, x += width)
        for (int32_t d = 0; d < width; d++) c->embedding.sum[d] += (double)x[d];
}

void embedding_finish(rp_job *c) {
    rp_result *r = c->result;
    const double *sum = c->embedding.sum;
    double scale = c->embedding.pooling == RP_POOLING_MEAN ? 1.0 / c->n_prompt : 1.0, squares = 0;
    if (!c->request->options.raw_embedding && c->embedding.pooling != RP_POOLING_RANK) {
        for (int32_t d = 0; d < r->n_embedding; d++) squares += sum[d] * sum[d];
        scale = squares > 0 ? 1.0 / sqrt(squares) : 1.0;
    }
    for (int32_t d = 0; d < r->n_embedding; d++) r->embedding[d] = (float)(sum[d] * scale);
    r->finish_reason = "stop";
}
