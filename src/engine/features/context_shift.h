/* SPDX-License-Identifier: Apache-2.0 */
/* context_shift.h: an answer that reaches the end of the context continues (rp_request.context_shift): its oldest
 * tokens and the prompt's are dropped, all but the first ones, and the others move back (StreamingLLM; Xiao et al.,
 * 2024).
 *
 *   positions  0   kept                     n_ctx
 *   before     [kept][dropped][the others .......]      the next token needs position n_ctx
 *   after      [kept][the others .......]               ... has position n_ctx - n_ctx / CONTEXT_SHIFT_PIECES
 *
 * The kept ones are the leading system messages, if they take no more than one piece of the context, else the first
 * REDUCTION_FIRST tokens: many heads attend to them regardless of their content (attention sinks). Their KV is copied
 * into spans of the job's own at the first shift; the others' views lose slots and get another shift; no KV is computed
 * again. Tokens keep the KV of what they attended to. So memory stays that of one context.
 *
 * Such a request uses full KV of modules, and its answer does not enter the prefix tree. Which tokens are dropped
 * depends on positions alone: the answer does not depend on hits.
 */
#ifndef ENGINE_CONTEXT_SHIFT_H
#define ENGINE_CONTEXT_SHIFT_H

#include "engine/core/job_feature.h"

#define CONTEXT_SHIFT_PIECES 4
#define CONTEXT_SHIFT_MOST (1 << 20) /* tokens of an answer */

extern const job_feature context_shift_feature;

#endif
