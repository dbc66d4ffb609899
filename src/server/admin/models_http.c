/* SPDX-License-Identifier: Apache-2.0 */
/* models_http.c: the list with the one model, for the clients of OpenAI and Anthropic (/v1/models, one object for
 * both) and of Gemini (/v1beta/models). Owns nothing. Runs on workers. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r */

#include <string.h>
#include <time.h>

#include "server/handlers.h"
#include "server/server_internal.h"

#define TIME_BYTES 32

static void models_http_write_time(int64_t seconds, char text[TIME_BYTES]) {
    time_t at = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&at, &utc) || strftime(text, TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) text[0] = '\0';
}

static json_t *model_info_meta(const rp_model_info *info) {
    return json_pack("{s:s, s:I, s:i, s:i, s:s, s:s, s:i, s:b, s:s, s:i}", "architecture", info->architecture, "n_params",
                     (json_int_t)info->parameters, "n_ctx_train", (int)info->n_ctx_train, "n_vocab", (int)info->n_vocab, "chat_format",
                     info->chat_format, "fingerprint", info->fingerprint, "n_embd", (int)info->n_embd, "is_encoder", (int)info->is_encoder,
                     "pooling", info->pooling, "n_scores", (int)info->n_scores);
}

/* name: the model's own or an alias. */
static json_t *models_http_model(const rp_server *s, const char *name) {
    char created[TIME_BYTES];
    models_http_write_time(s->created, created);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:o}", "id", name, "object", "model", "type", "model", "created",
                     (json_int_t)s->created, "created_at", created, "owned_by", "reprise", "display_name", name, "meta",
                     model_info_meta(&s->info));
}

static json_t *gemini_methods(const rp_server *s) {
    if (s->info.is_encoder) return json_pack("[s, s]", "embedContent", "batchEmbedContents");
    return json_pack("[s, s, s, s, s]", "generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents");
}

static json_t *gemini_model(const rp_server *s, const char *name) {
    rp_engine_info e = {.struct_size = sizeof(e)};
    rp_engine_describe(s->engine, &e);
    return json_pack("{s:o, s:s, s:s, s:i, s:i, s:o}", "name", json_sprintf("models/%s", name), "version", rp_version(),
                     "displayName", name, "inputTokenLimit", (int)e.n_ctx, "outputTokenLimit", (int)e.n_ctx,
                     "supportedGenerationMethods", gemini_methods(s));
}

/* "default" is described under the model's own name. */
static void reply_model(server_request *x, json_t *(*describe)(const rp_server *s, const char *name)) {
    if (server_has_model(x->server, x->name)) {
        server_request_reply_json(x, 200, describe(x->server, strcmp(x->name, "default") == 0 ? x->server->model_name : x->name));
        return;
    }
    server_fail(&x->problem, SERVER_MODEL, "model", "unknown model '%.80s': this server has '%s'", x->name, x->server->model_name);
    server_request_reply_problem(x);
}

/* The model under each of its names. NULL: out of memory. */
static json_t *list_models(const rp_server *s, json_t *(*describe)(const rp_server *s, const char *name)) {
    json_t *list = json_array();
    for (int32_t i = -1; i < s->options.n_aliases && list; i++)
        if (json_array_append_new(list, describe(s, i < 0 ? s->model_name : s->aliases[i]))) return json_decref(list), NULL;
    return list;
}

void handle_models(server_request *x) {
    const rp_server *s = x->server;
    int32_t n = s->options.n_aliases;
    json_t *list = list_models(s, models_http_model);
    server_request_reply_json(x, 200,
                        json_pack("{s:s, s:o, s:b, s:s, s:s}", "object", "list", "data", list, "has_more", 0, "first_id", s->model_name, "last_id",
                                  n > 0 ? s->aliases[n - 1] : s->model_name));
}

void handle_model(server_request *x) { reply_model(x, models_http_model); }

void handle_gemini_models(server_request *x) {
    server_request_reply_json(x, 200, json_pack("{s:o}", "models", list_models(x->server, gemini_model)));
}

void handle_gemini_model(server_request *x) { reply_model(x, gemini_model); }
