/* SPDX-License-Identifier: Apache-2.0 */
/* embeddings.c: embeddings in the dialects of OpenAI (/v1/embeddings), llama.cpp (/embedding) and Gemini (embedContent,
 * batchEmbedContents), and reranking as Jina and Cohere have it (/v1/rerank). Owns nothing. */
#include "server/dialects/embeddings.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

/* {"reprise": ...} in the reply, which it takes over; NULL: out of memory. */
static json_t *with_report(const server_request *x, json_t *reply) {
    if (reply && json_object_set_new(reply, "reprise", report_reprise(x))) return json_decref(reply), NULL;
    return reply;
}

static json_t *usage_of_texts(const server_request *x) {
    server_usage u = report_usage(x);
    return json_pack("{s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt, "total_tokens", (json_int_t)u.prompt,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)u.cached);
}

/* ---- OpenAI ---- */

int openai_parse_embeddings(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    const char *format = "float";
    embedding_begin(gen);
    server_field_text(&f, "model", &gen->model);
    generation_prompts(gen, &f, "input", false);
    server_field_text(&f, "encoding_format", &format);
    gen->embedding.base64 = strcmp(format, "base64") == 0;
    if (!gen->embedding.base64 && strcmp(format, "float") != 0)
        server_fail(p, SERVER_INVALID, "encoding_format", "'encoding_format' is '%.40s': give float or base64", format);
    server_field_int(&f, "dimensions", 1, INT32_MAX, &gen->embedding.dimensions);
    embedding_extras(gen, &f);
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS "model input encoding_format dimensions user");
    return (int)p->kind;
}

static json_t *openai_embeddings_whole(server_request *x) {
    json_t *data = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && data; i++) {
        json_t *one = json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", (int)i, "embedding",
                                embedding_values(x, &x->answers->choices[i]));
        if (json_array_append_new(data, one)) return json_decref(data), NULL;
    }
    return with_report(x, json_pack("{s:s, s:o, s:s, s:o}", "object", "list", "data", data, "model",
                                    server_request_model(x), "usage", usage_of_texts(x)));
}

static const server_form openai_form = {.parse = openai_parse_embeddings, .whole = openai_embeddings_whole};

void handle_openai_embeddings(server_request *x) { generate_handle(x, &openai_form); }

/* ---- llama.cpp ---- */

#define NORM_EUCLIDEAN 2 /* embd_normalize; -1: none */

int llamacpp_parse_embedding(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    int32_t norm = NORM_EUCLIDEAN;
    embedding_begin(gen);
    server_field_text(&f, "model", &gen->model);
    generation_prompts(gen, &f, server_field(&f, "content") ? "content" : "input", true);
    server_field_int(&f, "embd_normalize", -1, INT32_MAX, &norm);
    gen->embedding.raw = norm == -1;
    if (norm != -1 && norm != NORM_EUCLIDEAN)
        server_fail(p, SERVER_UNSUPPORTED, "embd_normalize", "'embd_normalize' is %d: give 2 (length 1) or -1 (none)",
                    (int)norm);
    embedding_extras(gen, &f);
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS "content input embd_normalize model id_slot cache_prompt");
    return (int)p->kind;
}

/* An embedding is a list of vectors there, one a token without pooling. */
static json_t *llamacpp_embedding_whole(server_request *x) {
    json_t *all = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && all; i++) {
        json_t *one =
            json_pack("{s:i, s:[o]}", "index", (int)i, "embedding", embedding_values(x, &x->answers->choices[i]));
        if (json_array_append_new(all, one)) return json_decref(all), NULL;
    }
    return all;
}

static const server_form llamacpp_form = {.parse = llamacpp_parse_embedding, .whole = llamacpp_embedding_whole};

void handle_llamacpp_embedding(server_request *x) { generate_handle(x, &llamacpp_form); }

/* ---- Gemini ---- */

/* {"content": {"parts": [{"text": ...}]}}: its texts together. */
static void add_gemini_content(generation *gen, const json_t *request, const char *name, server_problem *p) {
    const json_t *parts = json_object_get(json_object_get(request, "content"), "parts");
    base_buffer text = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    int rc = 0;
    if (json_array_size(parts) == 0) server_fail(p, SERVER_INVALID, name, "'%s' needs an array 'parts' of texts", name);
    for (size_t i = 0; i < json_array_size(parts) && !p->kind && !rc; i++) {
        const char *part = json_string_value(json_object_get(json_array_get(parts, i), "text"));
        if (!part)
            server_fail(p, SERVER_INVALID, name, "'%s.parts[%zu]' has no 'text': only texts have embeddings", name, i);
        else rc = base_buffer_append_str(&text, part);
    }
    if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, name, "'%s' has more than %zu bytes", name, SERVER_MAX_JOINED_BYTES);
    else if (rc) server_fail_memory(p);
    const char *joined = p->kind || text.len == 0 ? "" : generation_keep(gen, text.data, p);
    base_buffer_free(&text);
    if (!p->kind) embedding_add_text(gen, joined, name, p);
}

static void parse_gemini_dimensions(generation *gen, const json_t *request, const char *prefix, server_problem *p) {
    server_fields f = {request, p, prefix};
    int32_t dimensions = 0;
    server_field_int(&f, "outputDimensionality", 1, INT32_MAX, &dimensions);
    if (gen->n_prompts > 1 && dimensions != gen->embedding.dimensions)
        server_fail(p, SERVER_UNSUPPORTED, "requests",
                    "the requests have different values of 'outputDimensionality': give them the same");
    gen->embedding.dimensions = dimensions;
}

/* taskType and title are hints to hosted models. */
#define GEMINI_FIELDS "model content taskType title outputDimensionality task_type output_dimensionality "

int gemini_parse_embed(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    embedding_begin(gen);
    add_gemini_content(gen, gen->root, "content", p);
    parse_gemini_dimensions(gen, gen->root, "", p);
    embedding_extras(gen, &f);
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS GEMINI_FIELDS);
    return (int)p->kind;
}

int gemini_parse_embed_batch(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    embedding_begin(gen);
    const json_t *requests = server_field_array(&f, "requests");
    if (json_array_size(requests) == 0)
        server_fail(p, SERVER_INVALID, "requests", "'requests' is missing or empty: give an array");
    for (size_t i = 0; i < json_array_size(requests) && !p->kind; i++) {
        const json_t *one = json_array_get(requests, i);
        char name[48], prefix[48];
        snprintf(name, sizeof(name), "requests[%zu].content", i);
        snprintf(prefix, sizeof(prefix), "requests[%zu].", i);
        add_gemini_content(gen, one, name, p);
        parse_gemini_dimensions(gen, one, prefix, p);
        generation_known(gen, &(server_fields){json_is_object(one) ? one : NULL, p, prefix}, GEMINI_FIELDS);
    }
    embedding_extras(gen, &f);
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS "requests model");
    return (int)p->kind;
}

static json_t *gemini_embed_whole(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    return with_report(x, json_pack("{s:{s:o}}", "embedding", "values", embedding_values(x, &x->answers->choices[0])));
}

static json_t *gemini_embed_batch_whole(server_request *x) {
    json_t *list = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && list; i++)
        if (json_array_append_new(list, json_pack("{s:o}", "values", embedding_values(x, &x->answers->choices[i]))))
            return json_decref(list), NULL;
    return with_report(x, json_pack("{s:o}", "embeddings", list));
}

const server_form gemini_embed_form = {.parse = gemini_parse_embed, .whole = gemini_embed_whole};
const server_form gemini_embed_batch_form = {.parse = gemini_parse_embed_batch, .whole = gemini_embed_batch_whole};

/* ---- reranking ---- */

int rerank_parse(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    embedding_begin(gen);
    gen->embedding.top_n = INT32_MAX;
    server_field_text(&f, "model", &gen->model);
    embedding_rerank(gen, &f, "documents");
    server_field_int(&f, "top_n", 1, INT32_MAX, &gen->embedding.top_n);
    server_field_bool(&f, "return_documents", &gen->embedding.returns_documents);
    server_field_bool(&f, "raw_scores", &gen->embedding.raw_scores);
    gen->embedding.cuts = true; /* as Jina and Cohere do */
    embedding_extras(gen, &f);
    if (gen->embedding.pooling == RP_POOLING_RANK)
        gen->embedding.pooling = RP_POOLING_MODEL; /* embedding_prepare chooses it */
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS "model query documents top_n return_documents raw_scores user");
    return (int)p->kind;
}

static json_t *rerank_result(const server_request *x, const embedding_score *score) {
    const json_t *document = json_array_get(x->gen->embedding.documents, (size_t)score->index);
    BASE_ASSERT(document); /* the index of a score is that of its document */
    json_t *one = json_pack("{s:i, s:f}", "index", (int)score->index, "relevance_score", score->score);
    if (!one || !x->gen->embedding.returns_documents) return one;
    json_t *shown =
        json_is_object(document) ? json_incref((json_t *)(uintptr_t)document) : json_pack("{s:O}", "text", document);
    if (json_object_set_new(one, "document", shown)) return json_decref(one), NULL;
    return one;
}

static json_t *rerank_results(const server_request *x) {
    int32_t n = 0;
    embedding_score *order = embedding_order(x, &n);
    json_t *list = order ? json_array() : NULL;
    for (int32_t i = 0; i < BASE_MIN(n, x->gen->embedding.top_n) && list; i++)
        if (json_array_append_new(list, rerank_result(x, &order[i]))) {
            json_decref(list);
            list = NULL;
        }
    base_free(order);
    return list;
}

static json_t *rerank_whole(server_request *x) {
    json_t *all =
        with_report(x, json_pack("{s:s, s:s, s:s, s:o, s:o}", "id", x->id, "object", "list", "model",
                                 server_request_model(x), "results", rerank_results(x), "usage", usage_of_texts(x)));
    if (all && json_object_set_new(json_object_get(all, "reprise"), "scored_by", json_string(embedding_scored_by(x))))
        return json_decref(all), NULL;
    return all;
}

static const server_form rerank_form = {.parse = rerank_parse, .whole = rerank_whole};

void handle_rerank(server_request *x) { generate_handle(x, &rerank_form); }
