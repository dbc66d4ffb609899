/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.h: embeddings of prompts, and scores of a rank head (rp_request.pooling): a request whose answer is what its hidden states become.
 *
 *   prompt | chunk | chunk | chunk |     causal: the steps of any prompt. last: the last row's state; the prefix cache serves it.
 *          | one step              |     encoder: each token attends to all others, so a text is one part of one step
 *
 * mean adds states in order of tokens, in double: chunks and other requests do not change it. mean and cls need states that no cache has, so they
 * compute every token, and cache none.
 *
 * embedding_open: the submitting thread. All others: the engine's thread.
 */
#ifndef ENGINE_EMBEDDING_H
#define ENGINE_EMBEDDING_H

#include "backend/backend.h"
#include "reprise.h"

struct rp_job;

typedef struct job_embedding {
    rp_pooling pooling;   /* OFF: the request is for an answer. Never MODEL */
    double *sum;          /* [n_embd] */
    int32_t first_second; /* index of the first token of a pair's second text: its tokens have type 1; INT32_MAX: none */
} job_embedding;

/* Options without those that an embedding ignores. */
void embedding_take_options(rp_request *options);
/* Is the request one that this model can compute? RP_ERR_UNSUPPORTED, RP_ERR_CONFLICT, RP_ERR_INVALID. */
int embedding_check_options(const rp_model *model, const rp_request *options, rp_error *err);
/* The job is planned and has its result: checks the plan and allocates. RP_ERR_UNSUPPORTED, RP_ERR_CONFLICT, RP_ERR_MEMORY. */
int embedding_open(struct rp_job *job, rp_error *err);
void embedding_close(job_embedding *embedding);

/* May its KV be that of other requests, and theirs its own? An encoder's depends on the whole text; mean and cls need the states of all
 * tokens. true for jobs without an embedding. */
bool embedding_is_cacheable(const struct rp_job *job);
/* Does the prompt have to be one part of one step? */
bool embedding_is_whole(const struct rp_job *job);
/* Sets what token k of the prompt sees, and its type. */
void embedding_prepare_row(const struct rp_job *job, int32_t k, model_row *row);
/* Marks the rows of a part whose states or scores are needed; k: index of its first token. Returns their number. */
int32_t embedding_mark_rows(const struct rp_job *job, int32_t k, model_row *rows, int32_t n);
/* After the step: their n states, or the scores of the first one, in row order. */
void embedding_add(struct rp_job *job, const float *hidden, const float *scores, int32_t n);
/* The prompt is complete: its embedding becomes the result's. */
void embedding_finish(struct rp_job *job);

#endif
