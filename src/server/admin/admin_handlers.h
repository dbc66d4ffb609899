/* SPDX-License-Identifier: Apache-2.0 */
/* admin_handlers.h: the handlers of routes for operators, of models and of the page. Quick ones run on I/O threads, all
 * others on workers (server_request.h). */
#ifndef SERVER_ADMIN_HANDLERS_H
#define SERVER_ADMIN_HANDLERS_H

#include "server/http/server_request.h"

/* operator_http.c */
void handle_livez(server_request *x);
void handle_readyz(server_request *x);
void handle_health(server_request *x);
void handle_metrics(server_request *x);
void handle_cache(server_request *x);
void handle_requests(server_request *x);
void handle_explain(server_request *x);

/* cache_http.c */
void handle_cache_entries(server_request *x);
void handle_cache_entry(server_request *x);
void handle_cache_change(server_request *x);
void handle_cache_remove(server_request *x);

/* audit_http.c */
void handle_audit(server_request *x);

/* page_http.c */
void handle_page(server_request *x);

/* models_http.c */
void handle_models(server_request *x);
void handle_model(server_request *x);
void handle_gemini_models(server_request *x);
void handle_gemini_model(server_request *x);
void handle_llamacpp_adapters(server_request *x);

/* openapi.c */
void handle_openapi(server_request *x);

#endif
