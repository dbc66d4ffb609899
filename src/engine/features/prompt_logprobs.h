/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_logprobs.h: log-probabilities of a prompt's tokens (rp_request.n_prompt_logprobs).
 *
 *   tokens of the prompt   t0   t1   t2   t3          the row of t0 has the logits of t1, ...
 *   logits                  \--->\--->\--->\---> answer
 *
 * Cached KV has no logits, so nothing of the prompt is a hit: all of its rows are computed again, in chunks of at most
 * engine_steps.max_logits rows, and each row's logits become n_top numbers after the step. What is computed enters the prefix tree as
 * ever. A row's logits depend on the tokens up to it only, so the numbers are the same whatever is cached.
 *
 * Engine's thread, except prompt_logprobs_open (the submitting thread).
 */
#ifndef ENGINE_PROMPT_LOGPROBS_H
#define ENGINE_PROMPT_LOGPROBS_H

#include "sampling/sampler.h"

struct rp_job;

typedef struct job_prompt_logprobs {
    logprobs logprobs; /* n_top is 0 if the request asks for none */
} job_prompt_logprobs;

static inline bool prompt_logprobs_wanted(const job_prompt_logprobs *p) { return p->logprobs.n_top > 0; }

/* The result of a planned job exists: checks that every token is computed in the whole prompt, and allocates the numbers. Without effect
 * if the request asks for none. RP_ERR_CONFLICT (modules), RP_ERR_MEMORY. */
int prompt_logprobs_open(struct rp_job *c, rp_error *err);
/* The rows of the prompt's tokens [first, first + n) were computed; logits: [n][n_vocab]. */
void prompt_logprobs_take(struct rp_job *c, int32_t first, int32_t n, const float *logits);
void prompt_logprobs_close(job_prompt_logprobs *p);

#endif
