/* SPDX-License-Identifier: Apache-2.0 */
/* copied_spans.h: spans of a job's own into which slots of its context are copied, so that the context can drop its
 * views (sequence_reduction.h, context_shift.h). Engine's thread, except copied_spans_blocks.
 */
#ifndef ENGINE_COPIED_SPANS_H
#define ENGINE_COPIED_SPANS_H

#include "kv/context.h"

struct rp_job;

/* Upper bound of the blocks that n_spans reduced spans with n_cells times 64 slots of a head take, copied from any KV
 * of the job's prompt that is not encoded. */
int64_t copied_spans_blocks(const struct rp_job *c, int64_t n_cells, int64_t n_spans);
/* Adds a view of a new span, whose only reference it takes, to the context that replaces the job's: its blocks were
   reserved. RP_ERR_MEMORY. */
int copied_spans_add(struct rp_job *c, kv_context *to, kv_span *span, int32_t shift, rp_error *err);

#endif
