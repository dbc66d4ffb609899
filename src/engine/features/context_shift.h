/* SPDX-License-Identifier: Apache-2.0 */
/* context_shift.h: an answer that reaches the end of the context continues (rp_request.context_shift): its oldest tokens and the prompt's are
 * dropped, all but the first ones, and the others move back (StreamingLLM; Xiao et al., 2024).
 *
 *   positions  0   kept                     n_ctx
 *   before     [kept][dropped][the others .......]      the next token needs position n_ctx
 *   after      [kept][the others .......]               ... has position n_ctx - n_ctx / CONTEXT_SHIFT_PIECES
 *
 * The kept ones are the leading system messages, if they take no more than one piece of the context, else the first REDUCTION_FIRST
 * tokens: many heads attend to them regardless of their content (attention sinks). Their KV is copied into spans of the job's own at the
 * first shift; the others' views lose slots and get another shift; no KV is computed again. Tokens keep the KV of what they attended to.
 * So memory stays that of one context.
 *
 * Such a request uses full KV of modules, and its answer does not enter the prefix tree. Which tokens are dropped depends on
 * positions alone: the answer does not depend on hits. Engine's thread, except context_shift_check.
 */
#ifndef ENGINE_CONTEXT_SHIFT_H
#define ENGINE_CONTEXT_SHIFT_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

#define CONTEXT_SHIFT_PIECES 4
#define CONTEXT_SHIFT_MOST (1 << 20) /* tokens of an answer */

struct rp_job;

typedef struct job_shift {
    bool asked;
    int32_t kept;         /* positions of the first tokens that stay, [0, kept) after the plan's first one */
    size_t n_kept_views;  /* of the context, once it was shifted */
    int32_t n, n_dropped; /* shifts so far, and positions that they dropped */
} job_shift;

/* Submitting thread, the request is planned: sets whether the answer may be longer than the context. RP_ERR_UNSUPPORTED (positions are
 * learned), RP_ERR_CONFLICT (kv_keep; encoded KV that cannot be kept), RP_ERR_CONTEXT (a context of a few tokens). */
int context_shift_check(struct rp_job *c, rp_error *err);
/* May the answer exceed the context? */
bool context_shift_may(const struct rp_job *c);
/* Tokens of an answer of at most `most` that hold KV at one time, and runs of them. */
int32_t context_shift_held(const struct rp_job *c, int32_t most);
int32_t context_shift_runs(const struct rp_job *c);
/* Blocks of the copies. */
int64_t context_shift_blocks(const struct rp_job *c);
/* Position of the answer's token that is pushed as number `token` of the job. */
int32_t context_shift_position(const struct rp_job *c, int32_t token);
/* Rows that may follow the last token before the context ends. */
int32_t context_shift_room(const struct rp_job *c);
/* If the last pushed token has no position left: shifts. The job shares nothing since its prompt is complete, and its plan is described.
 * RP_ERR_MEMORY. */
int context_shift_apply(struct rp_job *c, rp_error *err);

#endif
