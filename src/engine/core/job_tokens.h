/* SPDX-License-Identifier: Apache-2.0 */
/* job_tokens.h: the tokens that a job computes itself: their list, what they attend to, their blocks (job_tokens.c has
 * the picture). The submitting thread; the engine's thread after the job is queued.
 */
#ifndef ENGINE_JOB_TOKENS_H
#define ENGINE_JOB_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/job.h"
#include "store/index/span_tree.h"

/* Allocates the scopes of the plan's tokens. RP_ERR_MEMORY. */
int job_open_scopes(rp_job *c, rp_error *err);
/* Lists the tokens of the flat prompt instead, in rising position. RP_ERR_MEMORY. */
int job_list_flat(rp_job *c, rp_error *err);
/* Lists the tokens, positions and scopes of the plan's runs, after the plan has changed. The arrays are large
   enough. */
void job_list_runs(rp_job *c);
/* Instead: n tokens at their positions, both owned by the job from then on, of the tenant of that salt, in c->format.
 * RP_ERR_MEMORY: they remain the caller's. */
int job_take_tokens(rp_job *c, const base_key *salt, int32_t *tokens, int32_t *positions, int32_t n, rp_error *err);
/* Lists the tokens of a resumed answer after those of the prompt. */
void job_list_resumed(rp_job *c);
/* Tokens that are known, and computed or found, before the first one is sampled. */
static inline int32_t job_n_given(const rp_job *c) { return c->n_prompt + c->n_resumed; }
/* The root of plain text of a salt, in a format: the salt itself for the engine's own format. */
base_key job_text_root(const rp_engine *e, const base_key *salt, rp_kv_format format);
/* The root of its k-th scope, and the end of the scope's tokens: that of the last one is open. */
static inline span_root job_scope_root(const rp_job *c, int32_t k) {
    return (span_root){.salt = c->salt, .key = c->scopes[k].root};
}
static inline int32_t job_scope_end(const rp_job *c, int32_t k) {
    return k + 1 < c->n_scopes ? c->scopes[k + 1].first : INT32_MAX;
}
/* The scope of its token i. */
int32_t job_scope_of(const rp_job *c, int32_t i);
/* The states of recurrent layers that it needs of its plan's i-th view (checkpoints.h). */
segment_states job_view_states(const rp_job *c, int32_t i);
/* The number of runs of consecutive positions. */
int32_t job_count_runs(const int32_t *positions, int32_t n);
/* Most blocks that n own tokens of the job take, tokens that may be selected for recomputation included. */
int64_t job_own_blocks(const rp_job *c, int32_t n, bool keeps_windows);
/* Blocks that a request's modules and n of its own tokens take at one time: a lower bound; an upper one for a plan with
 * reduced KV, all of whose modules may have to be computed again. */
int64_t job_count_blocks(const rp_job *c, int32_t n, bool keeps_windows);
/* Most blocks that a whole request takes, modules included. */
int64_t job_most_blocks(const rp_job *c);
/* Most of those tokens that may be hits: the last one is always computed, for its logits; observed rows as well
 * (sequence_reduction.h), and all of them for their log-probabilities. */
int32_t job_most_found(const rp_job *c);

#endif
