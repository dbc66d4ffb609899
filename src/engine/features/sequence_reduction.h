/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_reduction.h: a request's KV is reduced for its decode alone, once its prompt is complete
 * (rp_request.kv_keep).
 *
 *   prompt    [view of a module][view of a prefix][own spans ......... | observed rows]   first token drawn from these
 *                    |                  |               |                                  prefix tree: the own spans
 *   decode    [reduced span][reduced span] ...                          [own: answer]      of the job alone
 *
 * The slots that each head keeps are copied into reduced spans, and the context's views are dropped: the store may
 * evict them. Views of encoded or reduced spans stay whole. What the prompt computed enters the prefix tree before;
 * nothing after it does.
 *
 * With quest all views stay: each row of the answer chooses the slots that it sees (backend/slot_bounds.h), among all
 * but those of encoded and reduced spans, of the last own tokens and of the answer, which it sees in any case.
 *
 * Hit = miss: methods score slots by the weights of the prompt's last own rows (model/sequence_methods.h), so these are
 * computed whatever is cached. The order of slots is that of positions, whatever spans they are in.
 */
#ifndef ENGINE_SEQUENCE_REDUCTION_H
#define ENGINE_SEQUENCE_REDUCTION_H

#include "engine/core/job_feature.h"

extern const job_feature sequence_reduction_feature;

/* Another feature replaces the views, too: a default yields to it, for that reason (as rp_kv_reduction.reason). false:
 * the request itself asks for a reduction. The submitting thread. */
bool sequence_reduction_yield(rp_job *c, const char *reason);

#endif
