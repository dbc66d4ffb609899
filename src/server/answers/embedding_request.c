/* SPDX-License-Identifier: Apache-2.0 */
/* embedding_request.c: see embedding_request.h. Owns nothing. Workers. */
#include "server/answers/embedding_request.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/memory.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

/* ---- parsers ---- */

void embedding_begin(generation *gen) {
    BASE_ASSERT(gen->n_prompts == 0 && gen->embedding.pooling == RP_POOLING_OFF); /* before anything else is parsed */
    gen->embedding.pooling = RP_POOLING_MODEL;
    gen->max_tokens = 0;
}

void embedding_extras(generation *gen, const server_fields *f) {
    const char *pooling = NULL, *reuse = "on";
    rp_error err;
    server_field_text(f, "pooling", &pooling);
    if (pooling && rp_pooling_parse(pooling, &gen->embedding.pooling, &err))
        server_fail(f->problem, SERVER_INVALID, "pooling", "%s", err.message);
    server_field_bool(f, "truncate", &gen->embedding.cuts);
    server_field_int(f, "priority", -1000, 1000, &gen->priority);
    server_field_int(f, "deadline_ms", 0, INT32_MAX, &gen->deadline_ms);
    server_field_text(f, "cache_salt", &gen->cache_salt);
    server_field_text(f, "reuse", &reuse);
    gen->reuse = strcmp(reuse, "off") == 0 ? RP_REUSE_OFF : RP_REUSE_ON;
    if (gen->reuse == RP_REUSE_ON && strcmp(reuse, "on") != 0)
        server_fail(f->problem, SERVER_INVALID, "reuse", "'reuse' is '%.40s': give on or off", reuse);
}

void embedding_add_text(generation *gen, const char *text, const char *field, server_problem *p) {
    if (!text[0]) server_fail(p, SERVER_INVALID, field, "'%s' is empty: give a text", field);
    else if (!p->kind) generation_add_prompt(gen, text, NULL, p);
}

void embedding_rerank(generation *gen, const server_fields *f, const char *documents) {
    server_field_text(f, "query", &gen->embedding.query);
    if (!gen->embedding.query || !gen->embedding.query[0])
        server_fail(f->problem, SERVER_INVALID, "query", "'query' is missing or empty: give a text");
    const json_t *list = gen->embedding.documents = server_field_array(f, documents);
    if (json_array_size(list) == 0)
        server_fail(f->problem, SERVER_INVALID, documents, "'%s' is missing or empty: give an array of texts",
                    documents);
    else if (!f->problem->kind)
        embedding_add_text(gen, gen->embedding.query, "query", f->problem); /* for models without a rank head */
    for (size_t i = 0; i < json_array_size(list) && !f->problem->kind; i++) {
        const json_t *document = json_array_get(list, i);
        const char *text = json_string_value(json_is_object(document) ? json_object_get(document, "text") : document);
        char name[64];
        snprintf(name, sizeof(name), "%s[%zu]", documents, i);
        if (!text)
            server_fail(f->problem, SERVER_INVALID, name, "'%s' must be a string, or an object with a string 'text'",
                        name);
        else embedding_add_text(gen, text, name, f->problem);
    }
}

/* ---- before the jobs ---- */

/* Pairs instead of texts: the query leaves the list of prompts. */
static int make_pairs(server_request *x) {
    generation *gen = x->gen;
    if (x->model->info.n_scores > 1)
        return server_fail(&x->problem, SERVER_UNSUPPORTED, "model",
                           "the model's head gives %d scores a pair, not one: use a reranker",
                           (int)x->model->info.n_scores);
    BASE_ASSERT(gen->n_prompts > 1); /* the query, and its documents */
    gen->embedding.pooling = RP_POOLING_RANK;
    for (size_t i = 0; i + 1 < gen->n_prompts; i++)
        gen->prompts[i] = (server_prompt){.text = gen->embedding.query, .second = gen->prompts[i + 1].text};
    gen->n_prompts--;
    return SERVER_FINE;
}

static int tokenize(server_request *x, server_prompt *prompt, size_t most) {
    BASE_ASSERT(!prompt->tokens);
    rp_error err;
    const char *second = prompt->second;
    if (rp_tokenize_embedding(x->model->model, prompt->text, strlen(prompt->text), second, second ? strlen(second) : 0,
                              most, &prompt->tokens, &prompt->n_tokens, &err))
        return server_fail_library(&x->problem, &err);
    return SERVER_FINE;
}

/* The texts are kept for the report. */
int embedding_prepare(server_request *x) {
    generation *gen = x->gen;
    rp_engine_info e = {.struct_size = sizeof(e)};
    rp_engine_describe(x->model->engine, &e);
    if (gen->embedding.query && x->model->info.n_scores > 0) make_pairs(x); /* the model has a rank head */
    if (gen->embedding.dimensions > x->model->info.n_embd)
        server_fail(&x->problem, SERVER_INVALID, "dimensions",
                    "'dimensions' is %d: the model's embeddings have %d values", (int)gen->embedding.dimensions,
                    (int)x->model->info.n_embd);
    for (size_t i = 0; i < gen->n_prompts && !x->problem.kind; i++) {
        server_prompt *prompt = &gen->prompts[i];
        const bool is_text = prompt->ids == NULL;
        if (is_text) tokenize(x, prompt, gen->embedding.cuts ? (size_t)e.n_ctx : 0);
        else if (gen->embedding.cuts) prompt->n_tokens = BASE_MIN(prompt->n_tokens, (size_t)e.n_ctx);
        if (!x->problem.kind && prompt->n_tokens == 0)
            server_fail(&x->problem, SERVER_INVALID, "input", "text %zu has no tokens: give one that is not empty",
                        i + 1);
        if (!x->problem.kind && prompt->n_tokens > (size_t)e.n_ctx)
            server_fail(&x->problem, SERVER_CONTEXT, "input",
                        "text %zu has %zu tokens, the context has %d: shorten it, or set 'truncate'", i + 1,
                        prompt->n_tokens, (int)e.n_ctx);
    }
    return (int)x->problem.kind;
}

/* ---- values ---- */

static json_t *encoded(const rp_result *r, int32_t n, double scale) {
    unsigned char *bytes = base_alloc((size_t)n * 4);
    if (!bytes) return NULL;
    for (int32_t i = 0; i < n; i++) {
        const float value = (float)(r->embedding[i] * scale);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        base_put_u32(bytes + 4 * i, bits);
    }
    const size_t length = sodium_base64_encoded_len((size_t)n * 4, sodium_base64_VARIANT_ORIGINAL);
    char *text = base_alloc(length);
    json_t *value = NULL;
    if (text)
        value = json_string(sodium_bin2base64(text, length, bytes, (size_t)n * 4, sodium_base64_VARIANT_ORIGINAL));
    base_free(text);
    base_free(bytes);
    return value;
}

json_t *embedding_values(const server_request *x, const server_choice *c) {
    const rp_result *r = c->result;
    const int32_t asked = x->gen->embedding.dimensions;
    const int32_t n = asked > 0 ? BASE_MIN(asked, r->n_embedding) : r->n_embedding;
    double scale = 1;
    BASE_ASSERT(n >= 0 && n <= r->n_embedding);
    if (!x->gen->embedding.raw && n < r->n_embedding) { /* fewer dimensions are scaled to length 1 again */
        double squares = 0;
        for (int32_t i = 0; i < n; i++) squares += (double)r->embedding[i] * (double)r->embedding[i];
        if (squares > 0) scale = 1 / sqrt(squares);
    }
    if (x->gen->embedding.base64) return encoded(r, n, scale);
    json_t *list = json_array();
    for (int32_t i = 0; i < n && list; i++)
        if (json_array_append_new(list, json_real(r->embedding[i] * scale))) return json_decref(list), NULL;
    return list;
}

/* ---- rerank ---- */

static double cosine(const rp_result *a, const rp_result *b) {
    BASE_ASSERT(a->n_embedding == b->n_embedding);
    double sum = 0; /* of vectors of length 1 */
    for (int32_t i = 0; i < a->n_embedding; i++) sum += (double)a->embedding[i] * (double)b->embedding[i];
    return sum;
}

static int compare_scores(const void *a, const void *b) {
    const embedding_score *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

embedding_score *embedding_order(const server_request *x, int32_t *n) {
    const bool by_head = x->gen->embedding.pooling == RP_POOLING_RANK, raw = x->gen->embedding.raw_scores;
    const int32_t first = by_head ? 0 : 1; /* choice 0 is the query */
    BASE_ASSERT(x->answers->n_choices > first);
    embedding_score *order = base_calloc((size_t)BASE_MAX(x->answers->n_choices - first, 1), sizeof(*order));
    if (!order) return NULL;
    *n = x->answers->n_choices - first;
    for (int32_t i = 0; i < *n; i++) {
        const rp_result *r = x->answers->choices[first + i].result;
        const double head = by_head ? (double)r->embedding[0] : 0;
        order[i] = (embedding_score){i, by_head ? (raw ? head : 1 / (1 + exp(-head)))
                                                : cosine(x->answers->choices[0].result, r)};
    }
    qsort(order, (size_t)*n, sizeof(*order), compare_scores);
    return order;
}

const char *embedding_scored_by(const server_request *x) {
    return x->gen->embedding.pooling == RP_POOLING_RANK ? "rank head" : "cosine similarity";
}
