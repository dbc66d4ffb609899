/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: the table of routes. Owns nothing. */
#include "server/routes.h"

#include "base/compiler.h"
#include "server/admin/admin_handlers.h"
#include "server/dialects/dialect_handlers.h"
#include "server/node/node_handlers.h"
#include "server/prompt/schemas_http.h"

#define OPENAI server_problem_openai
#define LLAMACPP server_problem_llamacpp
#define OLLAMA server_problem_ollama
#define GEMINI \
    server_problem_gemini /* their paths begin with SERVER_GEMINI_VERSION, which is any version (routing.h) */
#define NONE SERVER_NO_MODEL
#define BODY SERVER_MODEL_IN_BODY
#define PATH SERVER_MODEL_IN_PATH
#define QUERY SERVER_MODEL_IN_QUERY

static const server_route routes[] = {
    {"GET", "/", SERVER_OPEN, NONE, true, OPENAI, handle_page},
    {"GET", "/web/{}", SERVER_OPEN, NONE, true, OPENAI, handle_page},
    {"GET", "/livez", SERVER_OPEN, NONE, true, OPENAI, handle_livez},
    {"GET", "/readyz", SERVER_OPEN, NONE, true, OPENAI, handle_readyz},
    {"GET", "/health", SERVER_OPEN, NONE, true, LLAMACPP, handle_health},
    {"GET", "/v1/health", SERVER_OPEN, NONE, true, LLAMACPP, handle_health},
    {"GET", "/openapi.json", SERVER_OPEN, NONE, true, OPENAI, handle_openapi},
    {"GET", "/metrics", SERVER_OPERATE, NONE, true, OPENAI, handle_metrics},
    {"GET", "/v1/cache", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache},
    {"GET", "/v1/audit", SERVER_OPERATE, QUERY, false, OPENAI, handle_audit},
    {"GET", "/v1/cache/entries", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache_entries},
    {"PATCH", "/v1/cache/entries", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache_change},
    {"DELETE", "/v1/cache/entries", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache_remove},
    {"GET", "/v1/cache/entries/{}", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache_entry},
    {"PATCH", "/v1/cache/entries/{}", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache_change},
    {"DELETE", "/v1/cache/entries/{}", SERVER_OPERATE, QUERY, false, OPENAI, handle_cache_remove},
    {"GET", "/v1/cluster/stream", SERVER_OPEN, NONE, false, OPENAI, handle_cluster_stream},
    {"GET", "/v1/cluster/requests", SERVER_OPEN, NONE, false, OPENAI, handle_cluster_requests},
    {"GET", "/v1/cluster/schemas", SERVER_OPEN, QUERY, false, OPENAI, handle_cluster_schema_list},
    {"GET", "/v1/cluster/schemas/{}", SERVER_OPEN, QUERY, false, OPENAI, handle_cluster_schema_get},
    {"PUT", "/v1/cluster/schemas/{}", SERVER_OPEN, QUERY, false, OPENAI, handle_cluster_schema_put},
    {"DELETE", "/v1/cluster/schemas/{}", SERVER_OPEN, QUERY, false, OPENAI, handle_cluster_schema_delete},
    {"POST", "/v1/cluster/drain", SERVER_OPERATE, NONE, false, OPENAI, handle_cluster_drain},
    {"GET", "/v1/requests", SERVER_REQUEST, NONE, false, OPENAI, handle_requests},
    {"GET", "/v1/requests/{}/explain", SERVER_REQUEST, NONE, false, OPENAI, handle_explain},
    {"GET", "/v1/models", SERVER_REQUEST, NONE, false, OPENAI, handle_models},
    {"GET", "/v1/models/{}", SERVER_REQUEST, NONE, false, OPENAI, handle_model},
    {"GET", "/models", SERVER_REQUEST, NONE, false, OPENAI, handle_models},
    {"GET", "/models/{}", SERVER_REQUEST, NONE, false, OPENAI, handle_model},
    {"POST", "/v1/chat/completions", SERVER_REQUEST, BODY, false, OPENAI, handle_openai_chat},
    {"POST", "/chat/completions", SERVER_REQUEST, BODY, false, OPENAI, handle_openai_chat},
    {"POST", "/v1/completions", SERVER_REQUEST, BODY, false, OPENAI, handle_openai_text},
    {"POST", "/v1/embeddings", SERVER_REQUEST, BODY, false, OPENAI, handle_openai_embeddings},
    {"POST", "/v1/rerank", SERVER_REQUEST, BODY, false, OPENAI, handle_rerank},
    {"POST", "/rerank", SERVER_REQUEST, BODY, false, OPENAI, handle_rerank},
    {"POST", "/v1/reranking", SERVER_REQUEST, BODY, false, OPENAI, handle_rerank},
    {"POST", "/reranking", SERVER_REQUEST, BODY, false, OPENAI, handle_rerank},
    {"POST", "/v1/responses", SERVER_REQUEST, BODY, false, OPENAI, handle_response_create},
    {"POST", "/responses", SERVER_REQUEST, BODY, false, OPENAI, handle_response_create},
    {"GET", "/v1/responses/{}", SERVER_REQUEST, NONE, false, OPENAI, handle_response_get},
    {"DELETE", "/v1/responses/{}", SERVER_REQUEST, NONE, false, OPENAI, handle_response_delete},
    {"GET", "/responses/{}", SERVER_REQUEST, NONE, false, OPENAI, handle_response_get},
    {"DELETE", "/responses/{}", SERVER_REQUEST, NONE, false, OPENAI, handle_response_delete},
    {"GET", "/v1/schemas", SERVER_REQUEST, QUERY, false, OPENAI, handle_schema_list},
    {"PUT", "/v1/schemas/{}", SERVER_SCHEMAS, QUERY, false, OPENAI, handle_schema_put},
    {"GET", "/v1/schemas/{}", SERVER_REQUEST, QUERY, false, OPENAI, handle_schema_get},
    {"DELETE", "/v1/schemas/{}", SERVER_SCHEMAS, QUERY, false, OPENAI, handle_schema_delete},
    {"GET", "/v1/schemas/{}/layout", SERVER_REQUEST, QUERY, false, OPENAI, handle_schema_layout},
    {"POST", "/completion", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_completion},
    {"POST", "/completions", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_completion},
    {"POST", "/embedding", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_embedding},
    {"POST", "/embeddings", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_embedding},
    {"POST", "/infill", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_infill},
    {"POST", "/tokenize", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_tokenize},
    {"POST", "/detokenize", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_detokenize},
    {"POST", "/apply-template", SERVER_REQUEST, BODY, false, LLAMACPP, handle_llamacpp_template},
    {"GET", "/props", SERVER_REQUEST, QUERY, false, LLAMACPP, handle_llamacpp_props},
    {"GET", "/lora-adapters", SERVER_REQUEST, QUERY, false, LLAMACPP, handle_llamacpp_adapters},
    {"GET", "/slots", SERVER_OPERATE, QUERY, false, LLAMACPP, handle_llamacpp_slots},
    {"POST", "/slots/{}", SERVER_REQUEST, NONE, false, LLAMACPP, handle_llamacpp_slot_change},
    {"POST", "/v1/messages", SERVER_REQUEST, BODY, false, server_problem_anthropic, handle_anthropic_messages},
    {"POST", "/v1/messages/count_tokens", SERVER_REQUEST, BODY, false, server_problem_anthropic,
     handle_anthropic_count},
    {"POST", "/messages", SERVER_REQUEST, BODY, false, server_problem_anthropic, handle_anthropic_messages},
    {"POST", "/messages/count_tokens", SERVER_REQUEST, BODY, false, server_problem_anthropic, handle_anthropic_count},
    {"GET", "/v1beta/models", SERVER_REQUEST, NONE, false, GEMINI, handle_gemini_models},
    {"GET", "/v1beta/models/{}", SERVER_REQUEST, NONE, false, GEMINI, handle_gemini_model},
    {"POST", "/v1beta/models/{}", SERVER_REQUEST, PATH, false, GEMINI, handle_gemini},
    {"POST", "/v1beta/interactions", SERVER_REQUEST, BODY, false, GEMINI, handle_interaction_create},
    {"GET", "/v1beta/interactions/{}", SERVER_REQUEST, NONE, false, GEMINI, handle_interaction_get},
    {"DELETE", "/v1beta/interactions/{}", SERVER_REQUEST, NONE, false, GEMINI, handle_interaction_delete},
    {"POST", "/v1beta/interactions/{}/cancel", SERVER_REQUEST, NONE, false, GEMINI, handle_interaction_cancel},
    {"GET", "/v1beta/cachedContents", SERVER_REQUEST, NONE, false, GEMINI, handle_contents_list},
    {"POST", "/v1beta/cachedContents", SERVER_REQUEST, BODY, false, GEMINI, handle_contents_create},
    {"GET", "/v1beta/cachedContents/{}", SERVER_REQUEST, NONE, false, GEMINI, handle_contents_get},
    {"PATCH", "/v1beta/cachedContents/{}", SERVER_REQUEST, NONE, false, GEMINI, handle_contents_patch},
    {"DELETE", "/v1beta/cachedContents/{}", SERVER_REQUEST, NONE, false, GEMINI, handle_contents_delete},
    {"POST", "/api/generate", SERVER_REQUEST, BODY, false, OLLAMA, handle_ollama_generate},
    {"POST", "/api/chat", SERVER_REQUEST, BODY, false, OLLAMA, handle_ollama_chat},
    {"GET", "/api/tags", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_tags},
    {"GET", "/api/ps", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_ps},
    {"POST", "/api/show", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_show},
    {"GET", "/api/version", SERVER_OPEN, NONE, true, OLLAMA, handle_ollama_version},
    {"POST", "/api/embed", SERVER_REQUEST, BODY, false, OLLAMA, handle_ollama_embed},
    {"POST", "/api/embeddings", SERVER_REQUEST, BODY, false, OLLAMA, handle_ollama_embeddings},
    {"POST", "/api/pull", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_pull},
    {"POST", "/api/create", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_change},
    {"POST", "/api/copy", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_change},
    {"POST", "/api/push", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_change},
    {"DELETE", "/api/delete", SERVER_REQUEST, NONE, false, OLLAMA, handle_ollama_change},
    {"POST", "/v1/prompts", SERVER_REQUEST, BODY, false, OPENAI, handle_prompt},
};

server_routes server_all_routes(void) { return (server_routes){routes, BASE_ARRAY_LEN(routes)}; }
