/* SPDX-License-Identifier: Apache-2.0 */
/* embedding_request.h: embeddings and rank scores in any dialect.
 *
 *   parser      sets generation.embedding and adds prompts: generation_prompts, embedding_add_text, or embedding_rerank
 *   generate.c  a job for each prompt, several at a time; then the dialect's `whole` renders choices with results:
 *   renderer    embedding_values for each choice, or embedding_order for a rerank
 *
 * A dialect needs a parser and a `whole`, and handles with generate_handle.
 */
#ifndef SERVER_EMBEDDING_REQUEST_H
#define SERVER_EMBEDDING_REQUEST_H

#include "server/answers/generate.h"

/* Jobs of a request at a time. The others follow as these end, so that a request of many texts leaves places in the
   queue to others. */
#define SERVER_EMBEDDING_JOBS 32

/* Fields that Reprise adds to every dialect of embeddings (embedding_extras). */
#define EMBEDDING_EXTRA_FIELDS "pooling truncate priority deadline_ms reuse cache_salt "

/* ---- parsers ---- */

/* The request is for embeddings, pooled as the model says: before anything else is parsed. */
void embedding_begin(generation *gen);
/* pooling, truncate, priority, deadline_ms, reuse, cache_salt. */
void embedding_extras(generation *gen, const server_fields *f);
/* A borrowed text to embed; empty ones are refused. */
void embedding_add_text(generation *gen, const char *text, const char *field, server_problem *p);
/* "query", and the documents in the field of that name: strings, or objects with a "text". */
void embedding_rerank(generation *gen, const server_fields *f, const char *documents);

/* ---- before the jobs ---- */

/* Converts texts to tokens, those of a rerank as pairs if the model has a rank head. Returns a server_problem_kind. */
int embedding_prepare(server_request *x);

/* ---- renderers: all choices have results ---- */

/* The embedding of a choice, of the first generation.embedding.dimensions values: numbers, or base64 of little-endian
   f32. NULL: out of memory. */
json_t *embedding_values(const server_request *x, const server_choice *c);

typedef struct embedding_score {
    int32_t index; /* of the document */
    double score;
} embedding_score;

/* The documents of a rerank, best first, equal ones in their order: [n], the caller's (base_free). NULL: out of
   memory. */
embedding_score *embedding_order(const server_request *x, int32_t *n);
/* What the scores are: "rank head" or "cosine similarity". Static. */
const char *embedding_scored_by(const server_request *x);

#endif
