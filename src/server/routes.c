/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: the table of routes. Owns nothing. */
#include "server/routes.h"

#include "base/compiler.h"
#include "server/handlers.h"

#define OPENAI server_problem_openai
#define LLAMACPP server_problem_llamacpp

static const server_route routes[] = {
    {"GET", "/", SERVER_OPEN, true, OPENAI, handle_page},
    {"GET", "/web/{}", SERVER_OPEN, true, OPENAI, handle_page},
    {"GET", "/livez", SERVER_OPEN, true, OPENAI, handle_livez},
    {"GET", "/readyz", SERVER_OPEN, true, OPENAI, handle_readyz},
    {"GET", "/health", SERVER_OPEN, true, LLAMACPP, handle_health},
    {"GET", "/v1/health", SERVER_OPEN, true, LLAMACPP, handle_health},
    {"GET", "/openapi.json", SERVER_OPEN, true, OPENAI, handle_openapi},
    {"GET", "/metrics", SERVER_OPERATE, true, OPENAI, handle_metrics},
    {"GET", "/v1/cache", SERVER_OPERATE, false, OPENAI, handle_cache},
    {"GET", "/v1/audit", SERVER_OPERATE, false, OPENAI, handle_audit},
    {"GET", "/v1/cache/entries", SERVER_OPERATE, false, OPENAI, handle_cache_entries},
    {"PATCH", "/v1/cache/entries", SERVER_OPERATE, false, OPENAI, handle_cache_change},
    {"DELETE", "/v1/cache/entries", SERVER_OPERATE, false, OPENAI, handle_cache_remove},
    {"GET", "/v1/cache/entries/{}", SERVER_OPERATE, false, OPENAI, handle_cache_entry},
    {"PATCH", "/v1/cache/entries/{}", SERVER_OPERATE, false, OPENAI, handle_cache_change},
    {"DELETE", "/v1/cache/entries/{}", SERVER_OPERATE, false, OPENAI, handle_cache_remove},
    {"GET", "/v1/requests", SERVER_REQUEST, false, OPENAI, handle_requests},
    {"GET", "/v1/requests/{}/explain", SERVER_REQUEST, false, OPENAI, handle_explain},
    {"GET", "/v1/models", SERVER_REQUEST, false, OPENAI, handle_models},
    {"GET", "/v1/models/{}", SERVER_REQUEST, false, OPENAI, handle_model},
    {"POST", "/v1/chat/completions", SERVER_REQUEST, false, OPENAI, handle_openai_chat},
    {"POST", "/v1/completions", SERVER_REQUEST, false, OPENAI, handle_openai_text},
    {"POST", "/v1/responses", SERVER_REQUEST, false, OPENAI, handle_response_create},
    {"GET", "/v1/responses/{}", SERVER_REQUEST, false, OPENAI, handle_response_get},
    {"DELETE", "/v1/responses/{}", SERVER_REQUEST, false, OPENAI, handle_response_delete},
    {"GET", "/v1/schemas", SERVER_REQUEST, false, OPENAI, handle_schema_list},
    {"PUT", "/v1/schemas/{}", SERVER_SCHEMAS, false, OPENAI, handle_schema_put},
    {"GET", "/v1/schemas/{}", SERVER_REQUEST, false, OPENAI, handle_schema_get},
    {"DELETE", "/v1/schemas/{}", SERVER_SCHEMAS, false, OPENAI, handle_schema_delete},
    {"GET", "/v1/schemas/{}/layout", SERVER_REQUEST, false, OPENAI, handle_schema_layout},
    {"POST", "/completion", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_completion},
    {"POST", "/completions", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_completion},
    {"POST", "/infill", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_infill},
    {"POST", "/tokenize", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_tokenize},
    {"POST", "/detokenize", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_detokenize},
    {"POST", "/apply-template", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_template},
    {"GET", "/props", SERVER_REQUEST, false, LLAMACPP, handle_llamacpp_props},
    {"GET", "/slots", SERVER_OPERATE, false, LLAMACPP, handle_llamacpp_slots},
    {"POST", "/v1/messages", SERVER_REQUEST, false, server_problem_anthropic, handle_anthropic_messages},
    {"POST", "/v1/messages/count_tokens", SERVER_REQUEST, false, server_problem_anthropic, handle_anthropic_count},
    {"GET", "/v1beta/models", SERVER_REQUEST, false, server_problem_gemini, handle_gemini_models},
    {"GET", "/v1beta/models/{}", SERVER_REQUEST, false, server_problem_gemini, handle_gemini_model},
    {"POST", "/v1beta/models/{}", SERVER_REQUEST, false, server_problem_gemini, handle_gemini},
    {"GET", "/v1beta/cachedContents", SERVER_REQUEST, false, server_problem_gemini, handle_contents_list},
    {"POST", "/v1beta/cachedContents", SERVER_REQUEST, false, server_problem_gemini, handle_contents_create},
    {"GET", "/v1beta/cachedContents/{}", SERVER_REQUEST, false, server_problem_gemini, handle_contents_get},
    {"PATCH", "/v1beta/cachedContents/{}", SERVER_REQUEST, false, server_problem_gemini, handle_contents_patch},
    {"DELETE", "/v1beta/cachedContents/{}", SERVER_REQUEST, false, server_problem_gemini, handle_contents_delete},
    {"POST", "/v1/prompts", SERVER_REQUEST, false, OPENAI, handle_prompt},
};

server_routes server_all_routes(void) { return (server_routes){routes, BASE_ARRAY_LEN(routes)}; }
