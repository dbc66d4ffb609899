/* SPDX-License-Identifier: Apache-2.0 */
/* features.c: see features.h. */
#include "engine/features/features.h"

#include "engine/features/adapters.h"
#include "engine/features/blend.h"
#include "engine/features/context_shift.h"
#include "engine/features/continuation.h"
#include "engine/features/embedding.h"
#include "engine/features/focus.h"
#include "engine/features/prompt_logprobs.h"
#include "engine/features/sequence_reduction.h"

/* The first reason of a miss counts; a default reduction yields to those before it (count); answers are resumed when
   all else is set. */
const job_feature *const job_features_table[] = {
    &embedding_feature,
    &adapters_feature,
    &context_shift_feature,
    &blend_feature,
    &focus_feature,
    &prompt_logprobs_feature,
    &sequence_reduction_feature,
    &continuation_feature,
    NULL,
};

_Static_assert(sizeof(job_features_table) / sizeof(job_features_table[0]) == JOB_MAX_FEATURES + 1,
               "a job may have all features");
