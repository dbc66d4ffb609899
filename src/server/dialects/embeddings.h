/* SPDX-License-Identifier: Apache-2.0 */
/* embeddings.h: parsers and forms of embeddings and reranking. The parsers are pure, for the routes and for
   fuzz/fuzz_requests.c. */
#ifndef SERVER_EMBEDDINGS_H
#define SERVER_EMBEDDINGS_H

#include "server/answers/embedding_request.h"

int openai_parse_embeddings(generation *gen, server_problem *p);
int llamacpp_parse_embedding(generation *gen, server_problem *p);
int gemini_parse_embed(generation *gen, server_problem *p);
int gemini_parse_embed_batch(generation *gen, server_problem *p);
int rerank_parse(generation *gen, server_problem *p);

extern const server_form gemini_embed_form, gemini_embed_batch_form; /* of verbs of a model (gemini.c) */

#endif
