/* SPDX-License-Identifier: Apache-2.0 */
/* features.c: see features.h. */
#include "engine/features/features.h"

#include "engine/features/embedding.h"
#include "engine/features/prompt_logprobs.h"

const job_feature *const job_features_table[] = {
    &embedding_feature,
    &prompt_logprobs_feature,
    NULL,
};
