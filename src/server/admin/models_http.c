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

static json_t *models_http_model(const rp_server *s) {
    char created[TIME_BYTES];
    models_http_write_time(s->created, created);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:o}", "id", s->model_name, "object", "model", "type", "model", "created",
                     (json_int_t)s->created, "created_at", created, "owned_by", "reprise", "display_name", s->model_name, "meta",
                     model_info_meta(&s->info));
}

static json_t *gemini_methods(const rp_server *s) {
    if (s->info.is_encoder) return json_pack("[s, s]", "embedContent", "batchEmbedContents");
    return json_pack("[s, s, s, s, s]", "generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents");
}

static json_t *gemini_model(const rp_server *s) {
    rp_engine_info e = {.struct_size = sizeof(e)};
    rp_engine_describe(s->engine, &e);
    return json_pack("{s:o, s:s, s:s, s:i, s:i, s:o}", "name", json_sprintf("models/%s", s->model_name), "version", rp_version(),
                     "displayName", s->model_name, "inputTokenLimit", (int)e.n_ctx, "outputTokenLimit", (int)e.n_ctx,
                     "supportedGenerationMethods", gemini_methods(s));
}

static void reply_model(server_request *x, json_t *(*describe)(const rp_server *s)) {
    if (strcmp(x->name, x->server->model_name) == 0) {
        server_request_reply_json(x, 200, describe(x->server));
        return;
    }
    server_fail(&x->problem, SERVER_MODEL, "model", "unknown model '%.80s': this server has '%s'", x->name, x->server->model_name);
    server_request_reply_problem(x);
}

void handle_models(server_request *x) {
    const char *name = x->server->model_name;
    server_request_reply_json(x, 200,
                        json_pack("{s:s, s:[o], s:b, s:s, s:s}", "object", "list", "data", models_http_model(x->server), "has_more", 0, "first_id",
                                  name, "last_id", name));
}

void handle_model(server_request *x) { reply_model(x, models_http_model); }

void handle_gemini_models(server_request *x) { server_request_reply_json(x, 200, json_pack("{s:[o]}", "models", gemini_model(x->server))); }

void handle_gemini_model(server_request *x) { reply_model(x, gemini_model); }
