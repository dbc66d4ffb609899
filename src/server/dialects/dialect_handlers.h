/* SPDX-License-Identifier: Apache-2.0 */
/* dialect_handlers.h: the handlers of the routes of every API. Quick ones run on I/O threads, all others on workers
   (server_request.h). */
#ifndef SERVER_DIALECT_HANDLERS_H
#define SERVER_DIALECT_HANDLERS_H

#include "server/http/server_request.h"

/* openai_chat.c, openai_text.c */
void handle_openai_chat(server_request *x);
void handle_openai_text(server_request *x);

/* embeddings.c */
void handle_openai_embeddings(server_request *x);
void handle_llamacpp_embedding(server_request *x);
void handle_rerank(server_request *x);

/* responses.c */
void handle_response_create(server_request *x);
void handle_response_get(server_request *x);
void handle_response_delete(server_request *x);

/* interactions.c */
void handle_interaction_create(server_request *x);
void handle_interaction_get(server_request *x);
void handle_interaction_delete(server_request *x);
void handle_interaction_cancel(server_request *x);

/* llamacpp.c, llamacpp_tools.c */
void handle_llamacpp_completion(server_request *x);
void handle_llamacpp_infill(server_request *x);
void handle_llamacpp_tokenize(server_request *x);
void handle_llamacpp_detokenize(server_request *x);
void handle_llamacpp_template(server_request *x);
void handle_llamacpp_props(server_request *x);
void handle_llamacpp_slots(server_request *x);
void handle_llamacpp_slot_change(server_request *x); /* save, restore, erase: refused */

/* ollama.c, ollama_models.c */
void handle_ollama_generate(server_request *x);
void handle_ollama_chat(server_request *x);
void handle_ollama_tags(server_request *x);
void handle_ollama_ps(server_request *x);
void handle_ollama_show(server_request *x);
void handle_ollama_version(server_request *x);
void handle_ollama_embed(server_request *x);
void handle_ollama_embeddings(server_request *x);
void handle_ollama_pull(server_request *x);
void handle_ollama_change(server_request *x); /* of models: refused */

/* anthropic.c, gemini.c */
void handle_anthropic_messages(server_request *x);
void handle_anthropic_count(server_request *x);
void handle_gemini(server_request *x);

/* cached_contents_http.c */
void handle_contents_list(server_request *x);
void handle_contents_create(server_request *x);
void handle_contents_get(server_request *x);
void handle_contents_patch(server_request *x);
void handle_contents_delete(server_request *x);

/* prompts_http.c */
void handle_prompt(server_request *x);

#endif
