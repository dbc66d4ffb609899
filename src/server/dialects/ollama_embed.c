/* SPDX-License-Identifier: Apache-2.0 */
/* ollama_embed.c: Ollama's /api/embed, and /api/embeddings, its older form with one prompt. Owns nothing. */
#include <string.h>

#include "base/check.h"
#include "server/answers/embedding_request.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/ollama.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

/* Options of generation have no effect on embeddings. */
#define IGNORED_FIELDS "model options keep_alive "

int ollama_parse_embed(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    embedding_begin(gen);
    server_field_text(&f, "model", &gen->model);
    generation_prompts(gen, &f, "input", false);
    server_field_int(&f, "dimensions", 1, INT32_MAX, &gen->embedding.dimensions);
    embedding_extras(gen, &f);
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS IGNORED_FIELDS "input dimensions");
    return (int)p->kind;
}

int ollama_parse_embeddings(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    const char *prompt = NULL;
    embedding_begin(gen);
    server_field_text(&f, "model", &gen->model);
    server_field_text(&f, "prompt", &prompt);
    if (!p->kind && !prompt) server_fail(p, SERVER_INVALID, "prompt", "'prompt' is missing: give a text");
    if (!p->kind) embedding_add_text(gen, prompt, "prompt", p);
    embedding_extras(gen, &f);
    generation_known(gen, &f, EMBEDDING_EXTRA_FIELDS IGNORED_FIELDS "prompt");
    return (int)p->kind;
}

static json_t *ollama_embed_whole(server_request *x) {
    json_t *all = json_array();
    double ms = 0;
    for (int32_t i = 0; i < x->answers->n_choices && all; i++) {
        if (json_array_append_new(all, embedding_values(x, &x->answers->choices[i]))) return json_decref(all), NULL;
        ms = BASE_MAX(ms, x->answers->choices[i].result->timings.ttft_ms);
    }
    const char *model = x->gen->model ? x->gen->model : server_request_model(x);
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:o}", "model", model, "embeddings", all, "total_duration",
                     (json_int_t)(ms * 1e6), "load_duration", (json_int_t)0, "prompt_eval_count",
                     (json_int_t)report_usage(x).prompt, "reprise", report_reprise(x));
}

static json_t *ollama_embeddings_whole(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    return json_pack("{s:o, s:o}", "embedding", embedding_values(x, &x->answers->choices[0]), "reprise",
                     report_reprise(x));
}

static const server_form embed_form = {.parse = ollama_parse_embed, .whole = ollama_embed_whole};
static const server_form embeddings_form = {.parse = ollama_parse_embeddings, .whole = ollama_embeddings_whole};

void handle_ollama_embed(server_request *x) { generate_handle(x, &embed_form); }

void handle_ollama_embeddings(server_request *x) { generate_handle(x, &embeddings_form); }
