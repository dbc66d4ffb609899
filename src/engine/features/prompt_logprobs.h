/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_logprobs.h: log-probabilities of a prompt's tokens (rp_request.n_prompt_logprobs).
 *
 *   tokens of the prompt   t0   t1   t2   t3          the row of t0 has the logits of t1, ...
 *   logits                  \--->\--->\--->\---> answer
 *
 * Cached KV has no logits, so nothing of the prompt is a hit: all of its rows are computed again, in chunks of at most
 * engine_steps.max_logits rows, and each row's logits become n_top numbers after the step. What is computed enters the
 * prefix tree as ever. A row's logits depend on the tokens up to it only, so the numbers are the same whatever is
 * cached.
 */
#ifndef ENGINE_PROMPT_LOGPROBS_H
#define ENGINE_PROMPT_LOGPROBS_H

#include "engine/core/job_feature.h"

extern const job_feature prompt_logprobs_feature;

#endif
