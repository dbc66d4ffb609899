/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.h: embeddings of prompts, and scores of a rank head (rp_request.pooling): a request whose answer is what
 * its hidden states become.
 *
 *   prompt | chunk | chunk | chunk |     causal: the steps of any prompt. last: the last row's state; the prefix cache
 *         serves it.
 *          | one step              |     encoder: each token attends to all others, so a text is one part of one step
 *
 * mean adds states in order of tokens, in double: chunks and other requests do not change it. mean and cls need states
 * that no cache has, so they compute every token, and cache none.
 */
#ifndef ENGINE_EMBEDDING_H
#define ENGINE_EMBEDDING_H

#include "engine/core/job_feature.h"

extern const job_feature embedding_feature;

#endif
