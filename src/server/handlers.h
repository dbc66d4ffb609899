/* handlers.h: what the table of routes points to. Quick ones run on I/O threads, all others on workers (exchange.h). */
#ifndef SERVER_HANDLERS_H
#define SERVER_HANDLERS_H

#include "server/exchange.h"

/* operator_http.c */
void handle_livez(server_exchange *x);
void handle_readyz(server_exchange *x);
void handle_health(server_exchange *x);
void handle_metrics(server_exchange *x);
void handle_cache(server_exchange *x);
void handle_requests(server_exchange *x);
void handle_explain(server_exchange *x);

/* cache_http.c */
void handle_cache_entries(server_exchange *x);
void handle_cache_entry(server_exchange *x);
void handle_cache_change(server_exchange *x);
void handle_cache_remove(server_exchange *x);

/* audit_http.c */
void handle_audit(server_exchange *x);

/* page_http.c */
void handle_page(server_exchange *x);

/* models_http.c */
void handle_models(server_exchange *x);
void handle_model(server_exchange *x);
void handle_gemini_models(server_exchange *x);
void handle_gemini_model(server_exchange *x);

/* openapi.c */
void handle_openapi(server_exchange *x);

/* openai_chat.c, openai_text.c */
void handle_openai_chat(server_exchange *x);
void handle_openai_text(server_exchange *x);

/* responses.c */
void handle_response_create(server_exchange *x);
void handle_response_get(server_exchange *x);
void handle_response_delete(server_exchange *x);

/* schemas_http.c, prompts_http.c */
void handle_schema_list(server_exchange *x);
void handle_schema_put(server_exchange *x);
void handle_schema_get(server_exchange *x);
void handle_schema_delete(server_exchange *x);
void handle_schema_layout(server_exchange *x);
void handle_prompt(server_exchange *x);

/* llamacpp.c, llamacpp_tools.c */
void handle_llamacpp_completion(server_exchange *x);
void handle_llamacpp_tokenize(server_exchange *x);
void handle_llamacpp_detokenize(server_exchange *x);
void handle_llamacpp_template(server_exchange *x);
void handle_llamacpp_props(server_exchange *x);
void handle_llamacpp_slots(server_exchange *x);

/* anthropic.c, gemini.c */
void handle_anthropic_messages(server_exchange *x);
void handle_anthropic_count(server_exchange *x);
void handle_gemini(server_exchange *x);

/* cached_contents_http.c */
void handle_contents_list(server_exchange *x);
void handle_contents_create(server_exchange *x);
void handle_contents_get(server_exchange *x);
void handle_contents_patch(server_exchange *x);
void handle_contents_delete(server_exchange *x);
/* Puts the contents that a request names in its field cachedContent in front of its own. Returns a server_problem_kind. */
int gemini_add_content(server_exchange *x, json_t *root);

#endif
