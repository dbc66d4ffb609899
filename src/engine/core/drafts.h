/* SPDX-License-Identifier: Apache-2.0 */
/* drafts.h: the drafts of a step: tokens after the last one of an answer, which the step verifies. A source is a row of
 * a table:
 *
 *   lookup   what followed the last tokens earlier in the text (prompt_lookup.h): costs nothing to draft
 *   model    what the draft model says (draft_model.h): each token costs a step of that model
 *   head     likewise what the draft head of the target says, if there is no draft model
 *
 * For each answer, each source proposes a length: that with which the step is expected to get the most tokens per
 * second, by the acceptance that was measured of the source in this answer and by the measured time of steps of both
 * models; the best source drafts. A full batch has no drafts, as its steps would not pay for their rows. A draft token
 * counts if the sampler draws it: drafts change steps, no answer. The engine's thread.
 */
#ifndef ENGINE_DRAFTS_H
#define ENGINE_DRAFTS_H

#include "engine/core/draft_model.h"

typedef enum draft_source { DRAFT_LOOKUP,
                            DRAFT_MODEL,
                            DRAFT_HEAD } draft_source;
#define N_DRAFT_SOURCES 3

/* Of a job. */
typedef struct job_drafts {
    draft_context model;
    draft_source source; /* of this step's draft: */
    int32_t tokens[RP_MAX_DRAFT], n;
} job_drafts;

/* Must the steps of a job's answer yield hidden states, for a draft head? */
bool drafts_read_hidden(const rp_job *c);
/* These: of the n last but one tokens of its history, [n][n_embd]. */
void drafts_see(rp_job *c, const float *hidden, int32_t n);
/* Sets the drafts of the n answers of a step, at most RP_MAX_DRAFT tokens together. */
void drafts_make(rp_engine *e, rp_job *const *jobs, int32_t n);
/* The answer's draft was verified: `right` of its tokens were. drawn: the token after those; first: the first one that
 * the step drew. */
void drafts_learn(rp_job *c, int32_t right, int32_t first, int32_t drawn);
/* The step's draft tells nothing of its source: a row has to be computed again. */
void drafts_drop(rp_job *c);
/* rp_result.draft_reason. */
const char *drafts_reason(const rp_job *c);

#endif
