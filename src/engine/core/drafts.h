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
 * counts if the sampler draws it: drafts change steps, no answer.
 *
 * Times that are not measured any more may be wrong: those of steps with drafts where none are made, and those of steps
 * without where all have some. So a step of the other kind is made now and then, first after few steps, then after
 * more, at most DRAFT_EXPLORE_LAST. Load of other processes changes faster than the cost model forgets: the time of
 * such a step counts relative to those of the last three steps before it. The engine's thread.
 */
#ifndef ENGINE_DRAFTS_H
#define ENGINE_DRAFTS_H

#include "engine/core/draft_model.h"

typedef enum draft_source { DRAFT_LOOKUP,
                            DRAFT_MODEL,
                            DRAFT_HEAD } draft_source;
#define N_DRAFT_SOURCES 3

#define DRAFT_EXPLORE_FIRST 8
#define DRAFT_EXPLORE_LAST 64
#define DRAFT_RECENT 3

/* Of an engine: steps of the other kind. All zeros: none yet. */
typedef struct draft_exploration {
    bool drafts;                 /* the last n steps had drafts; else none had */
    int32_t n, after;            /* after so many of one kind, one is of the other */
    bool explores;               /* the step that is composed, or was last, is */
    double recent[DRAFT_RECENT]; /* measured by predicted time of the last steps that were not, */
    uint32_t n_recent;           /* as many so far: the latest is number n_recent - 1, modulo DRAFT_RECENT */
} draft_exploration;

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
/* The time of the last step, us, as the cost model has to learn it; predicted: what that expected. */
double drafts_measured_us(rp_engine *e, double predicted, double us);
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
