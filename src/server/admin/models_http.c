/* SPDX-License-Identifier: Apache-2.0 */
/* models_http.c: the list of models, for the clients of OpenAI and Anthropic (/v1/models, one object for
 * both) and of Gemini (/v1beta/models). Owns nothing. Runs on workers. */
#include <string.h>

#include "server/admin/admin_handlers.h"
#include "server/core/json_time.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "reprise_adapter.h"

/* The description of a model, or of its adapter, under one of its names, in a dialect's form; made under the pool's
   lock. */
typedef json_t *(*description_form)(const server_model *m, const char *name, bool is_adapter, int64_t created);
typedef struct description {
    description_form form;
    const char *name;
    bool is_adapter;
    int64_t created;
    json_t *out; /* NULL: out of memory */
} description;

/* parent: as vLLM lists adapters. */
static json_t *openai_model(const server_model *m, const char *name, bool is_adapter, int64_t since) {
    const rp_model_info *info = &m->info;
    json_t *meta = json_pack("{s:s, s:I, s:i, s:i, s:s, s:s, s:i, s:b, s:s, s:i}", "architecture", info->architecture,
                             "n_params", (json_int_t)info->parameters, "n_ctx_train", (int)info->n_ctx_train, "n_vocab",
                             (int)info->n_vocab, "chat_format", info->chat_format, "fingerprint", info->fingerprint,
                             "n_embd", (int)info->n_embd, "is_encoder", (int)info->is_encoder, "pooling", info->pooling,
                             "n_scores", (int)info->n_scores);
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:s, s:s, s:s?, s:b, s:o}", "id", name, "object", "model", "type",
                     "model", "created", (json_int_t)since, "created_at", server_json_time(since), "owned_by",
                     "reprise", "display_name", name, "parent", is_adapter ? m->name : NULL, "loaded",
                     m->state == MODEL_LOADED, "meta", meta);
}

static json_t *gemini_model(const server_model *m, const char *name, bool is_adapter, int64_t created) {
    rp_engine_info e = {.struct_size = sizeof(e), .n_ctx = m->info.n_ctx_train};
    (void)created;
    (void)is_adapter;
    if (m->state == MODEL_LOADED) rp_engine_describe(m->engine, &e);
    json_t *methods = m->info.is_encoder ? json_pack("[s, s]", "embedContent", "batchEmbedContents")
                                         : json_pack("[s, s, s, s, s]", "generateContent", "streamGenerateContent",
                                                     "countTokens", "embedContent", "batchEmbedContents");
    return json_pack("{s:o, s:s, s:s, s:i, s:i, s:o}", "name", json_sprintf("models/%s", name), "version", rp_version(),
                     "displayName", name, "inputTokenLimit", (int)e.n_ctx, "outputTokenLimit", (int)e.n_ctx,
                     "supportedGenerationMethods", methods);
}

static void describe(server_model *m, void *user) {
    description *d = user;
    d->out = d->form(m, d->name, d->is_adapter, d->created);
}

/* "default" is described under the model's own name. */
static void reply_model(server_request *x, description_form form) {
    model_pool *p = x->server->models;
    server_model *m = model_pool_find(p, x->name);
    if (m) {
        description d = {form, strcmp(x->name, "default") == 0 ? m->name : x->name,
                         model_pool_adapter(p, x->name) != NULL, x->server->created, NULL};
        model_pool_look(p, m, describe, &d);
        server_request_reply_json(x, 200, d.out);
        return;
    }
    model_pool_fail(p, &x->problem, x->name);
    server_request_reply_problem(x);
}

/* Each model under each of its names, then the adapters. NULL: out of memory. */
static json_t *list_models(rp_server *s, description_form form) {
    json_t *list = json_array();
    description d = {form, NULL, false, s->created, NULL};
    server_model *m;
    for (int32_t i = 0; (d.name = model_pool_name(s->models, i, &m)) && list; i++) {
        d.is_adapter = model_pool_adapter(s->models, d.name) != NULL;
        model_pool_look(s->models, m, describe, &d);
        if (json_array_append_new(list, d.out)) return json_decref(list), NULL;
    }
    return list;
}

void handle_models(server_request *x) {
    json_t *list = list_models(x->server, openai_model);
    const char *first = json_string_value(json_object_get(json_array_get(list, 0), "id"));
    const char *last = json_string_value(json_object_get(json_array_get(list, json_array_size(list) - 1), "id"));
    server_request_reply_json(x, 200,
                              json_pack("{s:s, s:o, s:b, s:s, s:s}", "object", "list", "data", list, "has_more", 0,
                                        "first_id", first ? first : "", "last_id", last ? last : ""));
}

void handle_model(server_request *x) { reply_model(x, openai_model); }

void handle_gemini_models(server_request *x) {
    server_request_reply_json(x, 200, json_pack("{s:o}", "models", list_models(x->server, gemini_model)));
}

void handle_gemini_model(server_request *x) { reply_model(x, gemini_model); }

static json_t *invocation_of(const rp_adapter_info *info) {
    json_t *list = json_array();
    for (int32_t i = 0; i < info->n_invocation_tokens && list; i++)
        if (json_array_append_new(list, json_integer(info->invocation_tokens[i]))) return json_decref(list), NULL;
    return list;
}

/* llama.cpp's list. The path is a name here: clients need not know the server's files. */
void handle_llamacpp_adapters(server_request *x) {
    json_t *list = json_array();
    const server_adapter *a;
    for (int32_t i = 0; list && (a = model_pool_adapter_of(x->server->models, x->model, i)); i++) {
        rp_adapter_info info = {.struct_size = sizeof(info)};
        rp_adapter_describe(a->adapter, &info);
        json_t *one =
            json_pack("{s:i, s:s, s:f, s:s, s:i, s:o}", "id", (int)i, "path", a->name, "scale", 0.0, "fingerprint",
                      info.fingerprint, "rank", (int)info.rank, "alora_invocation_tokens", invocation_of(&info));
        if (json_array_append_new(list, one)) json_decref(list), list = NULL;
    }
    server_request_reply_json(x, 200, list);
}
